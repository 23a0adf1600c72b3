/* Optimiser steps. They update the weights, and what they remember of them, where these lie; the numbers that steer a step come
 * as a tensor, because they change from step to step while a plan does not. */
#include <math.h>

#include "op/product.h"

/* ---- Shape rules */

/* What a number of the hyper tensor must be: low <= it <= high, with an end left out where `open` says so. NaN never fits. */
typedef struct bound {
    double low, high;
    int open_low, open_high;
} bound;

static int fits(const bound *b, double x) {
    return (b->open_low ? x > b->low : x >= b->low) && (b->open_high ? x < b->high : x <= b->high);
}

static qn_status need_hyper(qn_infer_call *c, int slot, int length, const bound *bounds, int n_bounds) {
    QN_TRY(qn_need_rank(c, slot, 1));
    QN_TRY(qn_need_extent(c, slot, 0, length));
    for (int i = 0; i < n_bounds; i++) {
        double x;
        if (qn_infer_host_value(c, slot, i, &x) && !fits(&bounds[i], x))
            return qn_reject_src(c, slot, QN_REASON_VALUE_RANGE, i, 0, qn_f_bits(x));
    }
    return QN_OK;
}

/* Everything but hyper has the shape and dtype of the weights, which must be flagged as weights. */
static qn_status need_state(qn_infer_call *c, int last) {
    for (int slot = 1; slot <= last; slot++) QN_TRY(qn_need_same_shape(c, slot, 0));
    for (int slot = 1; slot <= last; slot++) QN_TRY(qn_need_same_dtype(c, slot, 0));
    if (!(c->src[0]->flags & QN_TENSOR_PARAM)) return qn_reject_src(c, 0, QN_REASON_NOT_PARAMETER, -1, 0, 0);
    return QN_OK;
}

qn_status qn_infer_opt_step_adamw(qn_infer_call *c) {
    static const bound bounds[] = {
        {0, INFINITY, 1, 1}, /* alpha */
        {0, 1, 0, 1},        /* beta1 */
        {0, 1, 0, 1},        /* beta2 */
        {0, INFINITY, 0, 1}, /* eps */
        {0, 1, 0, 0},        /* decay */
        {0, INFINITY, 0, 1}, /* 1/(1-beta1^t), which a t of 0 makes infinite */
        {0, INFINITY, 0, 1}, /* 1/(1-beta2^t) */
    };
    QN_TRY(need_state(c, 3));
    QN_TRY(need_hyper(c, 4, 7, bounds, 7));
    for (int i = 0; i < 3; i++) qn_out_like(c, i, c->src[i], c->src[i]->dtype);
    return QN_OK;
}

qn_status qn_infer_opt_step_sgd(qn_infer_call *c) {
    static const bound bounds[] = {
        {0, INFINITY, 1, 1}, /* alpha */
        {0, 1, 0, 0},        /* decay */
    };
    QN_TRY(need_state(c, 1));
    QN_TRY(need_hyper(c, 2, 2, bounds, 2));
    qn_out_like(c, 0, c->src[0], c->src[0]->dtype);
    return QN_OK;
}

/* A sum over several runs. What is added may be narrower than the sum. */
qn_status qn_infer_accumulate(qn_infer_call *c) {
    const qn_tensor *sum = c->src[0], *keep = c->src[2];
    QN_TRY(qn_need_same_shape(c, 1, 0));
    if (keep && qn_tensor_count(keep) != 1) return qn_reject_src(c, 2, QN_REASON_SHAPE_COUNT, -1, 1, qn_tensor_count(keep));
    if (c->src[1]->dtype == QN_DTYPE_F64) QN_TRY(qn_need_f64_pair(c, 1, 0));
    if (!(sum->flags & QN_TENSOR_PARAM)) return qn_reject_src(c, 0, QN_REASON_NOT_PARAMETER, -1, 0, 0);
    c->flops_each = 2;
    qn_out_like(c, 0, sum, sum->dtype);
    return QN_OK;
}

/* ---- References */

qn_status qn_ref_opt_step_adamw(const qn_call *c) {
    const qn_tensor *w = c->dst[0], *m = c->dst[1], *v = c->dst[2], *grad = c->src[3];
    double h[7], wx[QN_RUN], mx[QN_RUN], vx[QN_RUN], gx[QN_RUN];
    qn_load_row(c->src[4], qn_at(c->src[4], 0), 0, 7, h);
    double alpha = h[0], beta1 = h[1], beta2 = h[2], eps = h[3], decay = h[4], m_up = h[5], v_up = h[6];
    qn_rows it;
    for (qn_rows_begin(&it, w->rank, w->shape); it.live; qn_rows_next(&it))
        for (int64_t first = 0; first < it.n; first += QN_RUN) {
            int64_t some = qn_some(it.n, first);
            qn_load_row(w, qn_row(&it, w), first, some, wx);
            qn_load_row(m, qn_row(&it, m), first, some, mx);
            qn_load_row(v, qn_row(&it, v), first, some, vx);
            qn_load_row(grad, qn_row(&it, grad), first, some, gx);
            for (int64_t i = 0; i < some; i++) {
                mx[i] = beta1 * mx[i] + (1 - beta1) * gx[i];
                vx[i] = beta2 * vx[i] + (1 - beta2) * gx[i] * gx[i];
                wx[i] = wx[i] * (1 - alpha * decay) - alpha * (mx[i] * m_up) / (sqrt(vx[i] * v_up) + eps);
            }
            qn_store_row(w, qn_row(&it, w), first, some, wx);
            qn_store_row(m, qn_row(&it, m), first, some, mx);
            qn_store_row(v, qn_row(&it, v), first, some, vx);
        }
    return QN_OK;
}

qn_status qn_ref_opt_step_sgd(const qn_call *c) {
    const qn_tensor *w = c->dst[0], *grad = c->src[1];
    double h[2], wx[QN_RUN], gx[QN_RUN];
    qn_load_row(c->src[2], qn_at(c->src[2], 0), 0, 2, h);
    qn_rows it;
    for (qn_rows_begin(&it, w->rank, w->shape); it.live; qn_rows_next(&it))
        for (int64_t first = 0; first < it.n; first += QN_RUN) {
            int64_t some = qn_some(it.n, first);
            qn_load_row(w, qn_row(&it, w), first, some, wx);
            qn_load_row(grad, qn_row(&it, grad), first, some, gx);
            for (int64_t i = 0; i < some; i++) wx[i] = wx[i] * (1 - h[0] * h[1]) - h[0] * gx[i];
            qn_store_row(w, qn_row(&it, w), first, some, wx);
        }
    return QN_OK;
}

qn_status qn_ref_accumulate(const qn_call *c) {
    const qn_tensor *sum = c->dst[0], *g = c->src[1], *keep = c->n_src > 2 ? c->src[2] : NULL;
    double scale = (double)((const qn_attr_accumulate *)c->attr)->scale, left = 1, x[QN_RUN], more[QN_RUN];
    if (keep) left = qn_load_one((qn_dtype)keep->dtype, qn_at(keep, 0));
    qn_rows it;
    for (qn_rows_begin(&it, sum->rank, sum->shape); it.live; qn_rows_next(&it))
        for (int64_t first = 0; first < it.n; first += QN_RUN) {
            int64_t some = qn_some(it.n, first);
            qn_load_row(sum, qn_row(&it, sum), first, some, x);
            qn_load_row(g, qn_row(&it, g), first, some, more);
            for (int64_t i = 0; i < some; i++) x[i] = (left == 0 ? 0 : left * x[i]) + scale * more[i];
            qn_store_row(sum, qn_row(&it, sum), first, some, x);
        }
    return QN_OK;
}
