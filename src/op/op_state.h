/* Guards of the ops that carry a state in doubles from one token to the next: workspace is added up, exactly, and a sum that
 * does not fit in 64 bits rejects the request; all their float sources have one dtype. */
#ifndef QN_OP_STATE_H
#define QN_OP_STATE_H

#include "op/op.h"

/* a b d doubles more. */
static inline qn_status qn_scratch_add(qn_infer_call *c, int64_t a, int64_t b, int64_t d) {
    int64_t n, total;
    if (qn_mul_overflow(a, b, &n) || qn_mul_overflow(n, d, &n) || qn_mul_overflow(n, (int64_t)sizeof(double), &n) ||
        qn_add_overflow(n, (int64_t)c->workspace, &total))
        return qn_reject_out(c, 0, QN_REASON_SIZE_OVERFLOW, -1, INT64_MAX, d);
    c->workspace = (size_t)total;
    return QN_OK;
}

/* Every source but indices has the dtype of source `like`. */
static inline qn_status qn_need_one_dtype(qn_infer_call *c, int like) {
    for (int i = 0; i < c->n_src; i++)
        if (!(c->info->src[i].flags & QN_SLOT_INDEX)) QN_TRY(qn_need_same_dtype(c, i, like));
    return QN_OK;
}

#endif
