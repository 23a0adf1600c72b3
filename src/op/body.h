/* What ops know of a body: how many inputs it takes and outputs it gives, of which shapes. The graph that it is lies in a folder above
 * this one; its record begins with a qn_body, which is all that rules look at. */
#ifndef QN_OP_BODY_H
#define QN_OP_BODY_H

#include "op/op.h"

typedef struct qn_body qn_body;

typedef struct qn_body_class {
    int (*n_in)(const qn_body *body);
    int (*n_out)(const qn_body *body);
    /* Shapes without data; rank 0 when an extent has no value. */
    qn_shape (*in)(const qn_body *body, int i);
    qn_shape (*out)(const qn_body *body, int i);
    /* Whether a node of the body updates input i in place. */
    int (*updates)(const qn_body *body, int i);
} qn_body_class;

struct qn_body {
    const qn_body_class *is;
};

/* The head of a graph, which is its first member. */
static inline const qn_body *qn_body_of(const qn_graph *graph) { return (const qn_body *)(const void *)graph; }

/* How the sources and outputs of a scan_loop fall into groups, from its attributes and its body. */
typedef struct qn_scan_parts {
    int n_carry, n_xs, n_shared; /* sources, in this order */
    int n_ys;                    /* outputs: n_carry, then these, then n_carry trajectories */
    int64_t length;
} qn_scan_parts;
/* Of a call whose numbers agree; the extent is that of the first of the xs, when there are any. */
qn_scan_parts qn_scan_parts_of(const qn_attr_scan_loop *attr, int n_src, int64_t first_axis_of_xs);

#endif
