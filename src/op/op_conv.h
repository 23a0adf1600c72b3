/* What the gradient rules of convolutions share: they unfold with the forward op's windows, multiply, and fold back. */
#ifndef QN_OP_CONV_H
#define QN_OP_CONV_H

#include "op/op_emit.h"
#include "op/op_window.h"

#define QN_COPY_WINDOWS_2D(to, from)                                                                               \
    ((to).s0 = (from)->s0, (to).s1 = (from)->s1, (to).p0 = (from)->p0, (to).p1 = (from)->p1, (to).d0 = (from)->d0, \
     (to).d1 = (from)->d1)
#define QN_COPY_WINDOWS_3D(to, from) \
    (QN_COPY_WINDOWS_2D(to, from), (to).s2 = (from)->s2, (to).p2 = (from)->p2, (to).d2 = (from)->d2)

/* A value's shape as the folding ops take it: exactly `rank` axes. */
static inline qn_dims qn_dims_of(qn_vjp_call *v, qn_val x, int rank) {
    qn_shape s = qn_shape_of(v, x);
    qn_dims d;
    memset(&d, 0, sizeof d);
    d.rank = rank;
    for (int k = 0; k < rank; k++) d.d[rank - 1 - k] = qn_sd(&s, k);
    return d;
}

/* `a` with as many axes as `like` has: they agree but for ones in front. */
static inline qn_val qn_with_rank_of(qn_vjp_call *v, qn_val a, qn_val like) {
    return qn_shape_of(v, a).rank == qn_shape_of(v, like).rank ? a : qn_e_like(v, a, like);
}

/* Whether a value has no elements. */
static inline int qn_is_empty(qn_vjp_call *v, qn_val x) {
    qn_shape s = qn_shape_of(v, x);
    for (int k = 0; k < s.rank; k++)
        if (s.d[k] == 0) return 1;
    return 0;
}

/* Whether the result or an operand of a convolution has no elements: its gradients are zero then, nothing is to be computed. */
static inline int qn_conv_is_idle(qn_vjp_call *v) {
    return qn_is_empty(v, v->grad[0]) || qn_is_empty(v, v->src[0]) || qn_is_empty(v, v->src[1]);
}

#endif
