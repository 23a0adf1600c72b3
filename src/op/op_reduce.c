/* Reductions and scans along the last axis, and over everything. Sums run left to right in double: the order is part of the
 * result, so it never depends on who calls. */
#include <math.h>

#include "op/op_emit.h"
#include "op/ref.h"

/* ---- Shape rules */

qn_status qn_infer_sum(qn_infer_call *c) {
    int64_t one = 1;
    c->flops_each = (double)qn_tensor_count(c->src[0]);
    return qn_out_shape(c, 0, c->src[0]->dtype, 1, &one);
}

qn_status qn_infer_sum_rows(qn_infer_call *c) {
    qn_out_like(c, 0, c->src[0], c->src[0]->dtype);
    c->out[0].d[c->src[0]->rank - 1] = 1;
    c->flops_each = (double)qn_ne(c->src[0], 0);
    return QN_OK;
}

static qn_status need_columns(qn_infer_call *c) {
    const qn_tensor *a = c->src[0];
    return qn_ne(a, 0) == 0 ? qn_reject_src(c, 0, QN_REASON_SHAPE_EMPTY, a->rank - 1, 1, 0) : QN_OK;
}

qn_status qn_infer_mean(qn_infer_call *c) {
    QN_TRY(need_columns(c));
    return qn_infer_sum_rows(c);
}

qn_status qn_infer_argmax(qn_infer_call *c) {
    QN_TRY(qn_need_rank(c, 0, 2));
    QN_TRY(need_columns(c));
    const qn_tensor *a = c->src[0];
    if (qn_ne(a, 0) > INT32_MAX) return qn_reject_src(c, 0, QN_REASON_SHAPE_LARGE, a->rank - 1, INT32_MAX, qn_ne(a, 0));
    int64_t rows = qn_ne(a, 1);
    c->flops_each = (double)qn_ne(a, 0);
    return qn_out_shape(c, 0, QN_DTYPE_I32, 1, &rows);
}

qn_status qn_infer_count_equal(qn_infer_call *c) {
    QN_TRY(qn_need_same_shape(c, 1, 0));
    int64_t one = 1;
    c->flops_each = (double)qn_tensor_count(c->src[0]);
    return qn_out_shape(c, 0, QN_DTYPE_I64, 1, &one);
}

/* ---- References */

static double row_sum(const qn_tensor *t, const char *row, int64_t n) {
    double run[QN_RUN], sum = 0;
    for (int64_t i = 0; i < n; i += QN_RUN) {
        int64_t take = n - i < QN_RUN ? n - i : QN_RUN;
        qn_load_row(t, row, i, take, run);
        for (int64_t k = 0; k < take; k++) sum += run[k];
    }
    return sum;
}

qn_status qn_ref_sum(const qn_call *c) {
    const qn_tensor *a = c->src[0];
    double sum = 0;
    qn_rows it;
    for (qn_rows_begin(&it, a->rank, a->shape); it.live; qn_rows_next(&it)) sum += row_sum(a, qn_row(&it, a), it.n);
    qn_put4(c->dst[0], 0, 0, 0, 0, sum);
    return QN_OK;
}

/* Walks the rows of y, whose length is 1, so that rows of width 0 still give their zero. */
static void reduce_rows(const qn_call *c, int mean) {
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    int64_t n = qn_ne(a, 0);
    qn_rows it;
    for (qn_rows_begin(&it, y->rank, y->shape); it.live; qn_rows_next(&it)) {
        double sum = row_sum(a, qn_row(&it, a), n);
        if (mean) sum /= (double)n;
        qn_store_row(y, qn_row(&it, y), 0, 1, &sum);
    }
}

qn_status qn_ref_sum_rows(const qn_call *c) {
    reduce_rows(c, 0);
    return QN_OK;
}

qn_status qn_ref_mean(const qn_call *c) {
    reduce_rows(c, 1);
    return QN_OK;
}

/* One element at a time, so that it may run in place in either direction. */
qn_status qn_ref_cumsum(const qn_call *c) {
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    const qn_attr_cumsum *at = c->attr;
    qn_rows it;
    for (qn_rows_begin(&it, a->rank, a->shape); it.live; qn_rows_next(&it)) {
        const char *from = qn_row(&it, a);
        char *to = qn_row(&it, y);
        double sum = 0;
        for (int64_t k = 0; k < it.n; k++) {
            int64_t i = at->reverse ? it.n - 1 - k : k;
            double x, before = sum;
            qn_load_row(a, from, i, 1, &x);
            sum += x;
            qn_store_row(y, to, i, 1, at->exclusive ? &before : &sum);
        }
    }
    return QN_OK;
}

qn_status qn_ref_argmax(const qn_call *c) {
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    for (int64_t r = 0; r < qn_ne(a, 1); r++) {
        int64_t best = 0;
        double top = qn_get4(a, 0, 0, r, 0);
        for (int64_t i = 1; i < qn_ne(a, 0) && !isnan(top); i++) {
            double x = qn_get4(a, 0, 0, r, i);
            if (x > top || isnan(x)) {
                top = x;
                best = i;
            }
        }
        qn_put4(y, 0, 0, 0, r, (double)best);
    }
    return QN_OK;
}

qn_status qn_ref_count_equal(const qn_call *c) {
    const qn_tensor *a = c->src[0], *b = c->src[1];
    double x[QN_RUN], z[QN_RUN];
    int64_t equal = 0;
    qn_rows it;
    for (qn_rows_begin(&it, a->rank, a->shape); it.live; qn_rows_next(&it))
        for (int64_t i = 0; i < it.n; i += QN_RUN) {
            int64_t n = it.n - i < QN_RUN ? it.n - i : QN_RUN;
            qn_load_row(a, qn_row(&it, a), i, n, x);
            qn_load_row(b, qn_row(&it, b), i, n, z);
            for (int64_t k = 0; k < n; k++) equal += x[k] == z[k];
        }
    *(int64_t *)(void *)qn_at(c->dst[0], 0) = equal;
    return QN_OK;
}

/* ---- Gradients */

void qn_vjp_sum(qn_vjp_call *v) {
    qn_shape s = qn_shape_of(v, v->src[0]);
    v->out[0] = qn_e_tile(v, v->grad[0], s.rank, s.d);
}

void qn_vjp_sum_rows(qn_vjp_call *v) { qn_vjp_sum(v); }

void qn_vjp_mean(qn_vjp_call *v) {
    qn_shape s = qn_shape_of(v, v->src[0]);
    int64_t n = qn_sd(&s, 0);
    v->out[0] = qn_e_scale(v, qn_e_tile(v, v->grad[0], s.rank, s.d), n ? 1 / (double)n : 0, 0);
}

/* What element i went into: the sums from i on, or up to i when the scan ran backwards. */
void qn_vjp_cumsum(qn_vjp_call *v) {
    const qn_attr_cumsum *forward = v->attr;
    qn_attr_cumsum at = qn_attr_cumsum_default();
    at.reverse = !forward->reverse;
    at.exclusive = forward->exclusive;
    v->out[0] = qn_emit1(v, QN_OP_cumsum, 0, &at, v->grad[0]);
}
