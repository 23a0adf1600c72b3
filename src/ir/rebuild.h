/* Graphs are not edited: a pass walks one and builds the next. This is the walk: leaves, then nodes in order, then outputs, with a map
 * from old values to new. What a pass does with a node is the pass's own business; copying it is the default. */
#ifndef QN_IR_REBUILD_H
#define QN_IR_REBUILD_H

#include "ir/graph.h"

typedef struct qn_rebuild {
    const qn_graph *from;
    qn_graph *to;
    const int64_t *symbols; /* values that replace the symbols; NULL: they stay */
    qn_val *map;            /* old value to new; QN_VAL_NONE for one that is gone */
    void *user;
} qn_rebuild;

/* What to do with a node: add what replaces it to r->to and set the map of its outputs. A failure of r->to is found anyway. */
typedef qn_status (*qn_rebuild_fn)(qn_rebuild *r, int32_t node);

/* A new graph made of the old one. each NULL copies every node. */
qn_status qn_ir_rebuild(const qn_graph *from, const int64_t *symbols, qn_rebuild_fn each, void *user, qn_graph **to,
                        qn_error *error);
/* The node as it is, over the mapped sources. */
qn_status qn_rebuild_copy(qn_rebuild *r, int32_t node);
/* The same with its sources given. */
qn_status qn_rebuild_copy_with(qn_rebuild *r, int32_t node, const qn_val *src);
/* Mapped sources of a node into src[QN_MAX_SRC]. */
void qn_rebuild_sources(const qn_rebuild *r, int32_t node, qn_val *src);

#endif
