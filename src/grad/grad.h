/* What differentiation is made of. One walk backwards over the nodes of a graph does everything: a gradient seeds it with 1 at
 * the loss; a Hessian times a vector walks a second time, from the gradients; a tangent walks a second time, by what the first
 * walk was seeded with. Nodes are appended as the walks go, and what the question asked for in the end did not need is taken
 * away again. */
#ifndef QN_GRAD_GRAD_H
#define QN_GRAD_GRAD_H

#include "ir/graph.h"

/* Which forward nodes are computed again in the backward pass instead of keeping what they gave. */
typedef struct qn_grad_segments {
    int32_t n;           /* segments */
    int32_t *of;         /* per forward node: its segment; never falls from one node to the next */
    uint8_t *recomputed; /* per segment */
} qn_grad_segments;

typedef struct qn_grad_question {
    const char *prefix; /* of the labels of what is appended */
    int n_seeds;
    const qn_val *at, *seeds; /* values, and what comes in for each, in its shape */
    int n;
    const qn_val *wrt;
    const qn_grad_segments *segments; /* NULL: everything is kept */
} qn_grad_question;

/* Walks back over all nodes there are. out[i] is the gradient for wrt[i], QN_VAL_NONE when it is zero. */
qn_status qn_grad_walk(qn_graph *g, const qn_grad_question *q, qn_val *out);

/* A walk at work, for the part of it that computes segments again. */
typedef struct qn_grad_state {
    qn_graph *g;
    const qn_grad_question *q;
    size_t n_nodes, n_values; /* when the walk began */
    qn_val *grad;             /* per value: its gradient so far, or QN_VAL_NONE */
    uint8_t *varies;          /* per value: whether it depends on a value asked for */
    qn_val *again;            /* per value: what to use for it now, or QN_VAL_NONE for itself; NULL without segments */
} qn_grad_state;

/* Computes the nodes of a segment again, in front of what the walk appends for them. */
qn_status qn_grad_recompute(qn_grad_state *s, int32_t segment);
/* Whether a node's outputs follow from its sources alone, so that it may be computed a second time. */
int qn_grad_is_repeatable(const qn_ir_node *n);

/* Segments by the rule of the options; saved[v] is not 0 where the backward pass reads the forward value v or a view of
 * it, for a budget. The arrays
 * belong to the graph's arena. */
qn_status qn_grad_segments_make(qn_graph *g, qn_val loss, const qn_grad_options *options, const uint8_t *saved,
                                qn_grad_segments *s);
/* Bytes of those of the first n values that are marked, leaves aside. */
uint64_t qn_grad_saved_bytes(const qn_graph *g, const uint8_t *saved, size_t n);

/* Takes away the nodes from number first_node on (whose outputs begin at first_value) that none of the `keep` values needs, and
 * renumbers those. Nobody else may have heard of them yet. */
qn_status qn_grad_compact(qn_graph *g, size_t first_node, size_t first_value, int n, qn_val *keep);

/* The label for what belongs to a node of that label: the prefix in place of one that was put there before. */
void qn_grad_set_label(qn_graph *g, const char *prefix, int32_t label);

/* Nodes of gradients: a value like another one, all the same number. */
qn_val qn_grad_fill(qn_graph *g, qn_val like, float value);

#endif
