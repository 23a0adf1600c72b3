/* Graphs are not edited: a pass walks one and builds the next. This is the walk: leaves, then nodes in order, then outputs, with a map
 * from old values to new. What a pass does with a node is the pass's own business; copying it is the default. */
#ifndef QN_IR_REBUILD_H
#define QN_IR_REBUILD_H

#include "ir/graph.h"

typedef struct qn_rebuild {
    const qn_graph *from;
    qn_graph *to;
    const int64_t *symbols; /* values that replace the symbols, of its bodies as well; NULL: they stay */
    qn_val *map;            /* old value to new; QN_VAL_NONE for one that is gone */
    void *user;
    const uint8_t *needed; /* per value: constants where it is 0 are left out; NULL: none is */
} qn_rebuild;

/* What to do with a node: add what replaces it to r->to and set the map of its outputs. A failure of r->to is found anyway. */
typedef qn_status (*qn_rebuild_fn)(qn_rebuild *r, int32_t node);

/* A new graph made of the old one. each NULL copies every node. */
qn_status qn_ir_rebuild(const qn_graph *from, const int64_t *symbols, qn_rebuild_fn each, void *user, qn_graph **to,
                        qn_error *error);
/* The same without the constants for whose values `needed` is 0. */
qn_status qn_ir_rebuild_needed(const qn_graph *from, const uint8_t *needed, qn_rebuild_fn each, void *user, qn_graph **to,
                               qn_error *error);
/* The node as it is, over the mapped sources. */
qn_status qn_rebuild_copy(qn_rebuild *r, int32_t node);
/* The same with its sources given. */
qn_status qn_rebuild_copy_with(qn_rebuild *r, int32_t node, const qn_val *src);
/* What is made next stands for all of these nodes: it goes by the label of the node that is being visited or, when that has none, of the
 * first of them which has one. */
void qn_rebuild_label(qn_rebuild *r, const int32_t *nodes, int n);
/* The same with so many outputs, of which the caller makes what he likes: nothing is mapped. */
qn_status qn_rebuild_apply(qn_rebuild *r, int32_t node, const qn_val *src, int n_out, qn_val *out);
/* What becomes of a body. */
typedef qn_status (*qn_rebuild_body_fn)(void *user, const qn_graph *body, qn_graph **made, qn_error *error);
/* A new graph with the same nodes, each body replaced by what `each` makes of it, which the graph takes over. */
qn_status qn_ir_rebuild_bodies(const qn_graph *from, qn_rebuild_body_fn each, void *user, qn_graph **to, qn_error *error);
/* A copy of a graph that can be a body of another: its symbols are found there by name, and it counts there. The caller's, until it is
 * given away. */
qn_status qn_ir_clone(const qn_graph *body, qn_graph *into, qn_graph **clone, qn_error *error);
/* Marks every value that the outputs depend on; the array has one entry for each and is zero before. */
void qn_ir_mark_needed(const qn_graph *g, uint8_t *needed);
/* Adds to a graph what another computes: values stand for its inputs, in order, and those of its outputs are given back. Only what they
 * need is added, under its own labels. Neither has symbols. */
qn_status qn_ir_inline(qn_graph *to, const qn_graph *from, const qn_val *inputs, qn_val *outputs);
/* Mapped sources of a node into src[QN_MAX_SRC]. */
void qn_rebuild_sources(const qn_rebuild *r, int32_t node, qn_val *src);

#endif
