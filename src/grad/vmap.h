/* Batching a graph: every node once for all items of a new first axis, by a rule of vmap_rules.def, or once for each item. */
#ifndef QN_GRAD_VMAP_H
#define QN_GRAD_VMAP_H

#include "ir/graph.h"

typedef struct qn_vmap {
    const qn_graph *from;
    qn_graph *to;
    int64_t batch;
    qn_val *map;      /* per value of the old graph: the new one */
    uint8_t *batched; /* per value of the old graph: whether the new one has the batch in front */
    qn_vmap_report report;
} qn_vmap;

/* One node, and what a rule makes of it. Shapes of items are those of the old graph. */
typedef struct qn_vmap_call {
    qn_vmap *m;
    int32_t node;
    int op, subop, n_src, n_out;
    const qn_op_info *info;
    int least;
    unsigned slots;
    qn_val src[QN_MAX_SRC]; /* in the new graph */
    uint8_t batched[QN_MAX_SRC];
    qn_shape item[QN_MAX_SRC];
    int rank; /* most axes of an item of its sources */
    /* the rule's answer */
    qn_shape as[QN_MAX_SRC];    /* the shape in which the op gets a source */
    uint8_t expand[QN_MAX_SRC]; /* a source that is the same for all is stretched first, to `wide` */
    qn_shape wide[QN_MAX_SRC];
    int batch_axis; /* where the outputs have the batch */
    _Alignas(16) char attr[QN_ATTR_BYTES_MAX];
} qn_vmap_call;

/* 1: the answer is there; 0: the rule does not fit; -1: it has written the node itself, and mapped its outputs. */
typedef int (*qn_vmap_rule)(qn_vmap_call *c);

/* The rule of an op with its columns filled in, NULL when it has none. */
qn_vmap_rule qn_vmap_rule_of(qn_vmap_call *c);

/* Gives source i the batch in front of its item, which ones widen to `rank` axes; stretches it when it has none. 0: too many
 * axes. */
int qn_vmap_lead(qn_vmap_call *c, int i, int rank);
/* The same with the batch going into the first of those axes. */
int qn_vmap_fold(qn_vmap_call *c, int i, int rank);

/* Rules of products; the others are in vmap_rules.c. */
int qn_vmap_mul_mat(qn_vmap_call *c);
int qn_vmap_matmul(qn_vmap_call *c);
int qn_vmap_dot_general(qn_vmap_call *c);

#endif
