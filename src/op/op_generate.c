/* Tensors made from attributes alone. */
#include <math.h>

#include "op/ref.h"

/* A length past this is a mistyped step, not a request; it also keeps every byte count far from 64 bits. */
static const float MOST = 1099511627776.0f; /* 2^40 */

/* The length is the ceiling of a quotient taken in f32, as whoever counts elements from the same three numbers takes it. */
qn_status qn_infer_arange(qn_infer_call *c) {
    const qn_attr_arange *at = c->attr;
    if (!(at->stop > at->start))
        return qn_reject_attr(c, "stop", QN_REASON_ATTR_ABOVE, -1, qn_f_bits((double)at->start), qn_f_bits((double)at->stop));
    if (!(at->step > 0)) return qn_reject_attr(c, "step", QN_REASON_ATTR_ABOVE, -1, qn_f_bits(0), qn_f_bits((double)at->step));
    float span = at->stop - at->start, n = ceilf(span / at->step);
    if (!(n <= MOST)) return qn_reject_out(c, 0, QN_REASON_SHAPE_LARGE, 0, (int64_t)MOST, n < 9e18f ? (int64_t)n : INT64_MAX);
    int64_t count = (int64_t)n;
    return qn_out_shape(c, 0, QN_DTYPE_F32, 1, &count);
}

qn_status qn_ref_arange(const qn_call *c) {
    const qn_attr_arange *at = c->attr;
    const qn_tensor *y = c->dst[0];
    for (int64_t i = 0; i < qn_ne(y, 0); i++) qn_put4(y, 0, 0, 0, i, (double)at->start + (double)at->step * (double)i);
    return QN_OK;
}

qn_status qn_ref_fill(const qn_call *c) {
    qn_fill(c->dst[0], (double)((const qn_attr_fill *)c->attr)->c);
    return QN_OK;
}
