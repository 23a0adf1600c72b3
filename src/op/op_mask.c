/* Matrices with a part of them blanked out, and rows put on a diagonal. Matrices are the last two axes; what is kept is kept
 * bit for bit. */
#include <math.h>

#include "op/op_emit.h"
#include "op/op_layout.h"

/* ---- Shape rules */

qn_status qn_infer_diag(qn_infer_call *c) {
    const qn_tensor *a = c->src[0];
    int rank = a->rank < 2 ? 2 : a->rank;
    int64_t d[QN_MAX_RANK];
    QN_TRY(qn_need_extent(c, 0, 1, 1));
    for (int k = 0; k < rank; k++) d[rank - 1 - k] = qn_ne(a, k == 1 ? 0 : k);
    return qn_out_shape(c, 0, a->dtype, rank, d);
}

qn_status qn_infer_matrix(qn_infer_call *c) {
    qn_out_like(c, 0, c->src[0], c->src[0]->dtype);
    return QN_OK;
}

qn_status qn_infer_tri(qn_infer_call *c) {
    const qn_tensor *a = c->src[0];
    if (qn_ne(a, 0) != qn_ne(a, 1)) return qn_reject_src(c, 0, QN_REASON_SHAPE_SQUARE, -1, qn_ne(a, 0), qn_ne(a, 1));
    return qn_infer_matrix(c);
}

/* ---- References */

/* Which columns of a row stay: [from, to). */
typedef struct kept {
    int64_t from, to;
} kept;
typedef kept (*keep_fn)(int64_t row, int64_t n, const void *attr);

static void mask(const qn_call *c, keep_fn keep, double blank) {
    qn_tensor y = qn_op_tensor_widen(c->dst[0]), a = qn_op_tensor_widen(c->src[0]);
    int64_t to = qn_nb(&y, 0), from = qn_nb(&a, 0);
    size_t bytes = (size_t)qn_dtype_bytes(y.dtype);
    qn_rows it;
    for (qn_rows_begin(&it, y.rank, y.shape); it.live; qn_rows_next(&it)) {
        char *out = qn_row(&it, &y);
        const char *in = qn_row(&it, &a);
        kept k = keep(it.index[QN_MAX_RANK - 2], it.n, c->attr);
        for (int64_t i = 0; i < it.n; i++) {
            if (i < k.from || i >= k.to) qn_store_one((qn_dtype)y.dtype, out + i * to, blank);
            else if (in != out) memcpy(out + i * to, in + i * from, bytes);
        }
    }
}

static kept keep_past(int64_t row, int64_t n, const void *attr) {
    const qn_attr_diag_mask_inf *at = attr;
    (void)n;
    return (kept){0, (int64_t)at->n_past + row + 1};
}

qn_status qn_ref_diag_mask_inf(const qn_call *c) {
    mask(c, keep_past, -INFINITY);
    return QN_OK;
}

static kept keep_past_zero(int64_t row, int64_t n, const void *attr) {
    const qn_attr_diag_mask_zero *at = attr;
    (void)n;
    return (kept){0, (int64_t)at->n_past + row + 1};
}

qn_status qn_ref_diag_mask_zero(const qn_call *c) {
    mask(c, keep_past_zero, 0);
    return QN_OK;
}

static kept keep_triangle(int64_t row, int64_t n, const void *attr) {
    switch (((const qn_attr_tri *)attr)->kind) {
    case 0: return (kept){row, n};
    case 1: return (kept){row + 1, n};
    case 2: return (kept){0, row + 1};
    default: return (kept){0, row};
    }
}

qn_status qn_ref_tri(const qn_call *c) {
    mask(c, keep_triangle, 0);
    return QN_OK;
}

qn_status qn_ref_diag(const qn_call *c) {
    qn_tensor y = qn_op_tensor_widen(c->dst[0]), a = qn_op_tensor_widen(c->src[0]);
    size_t bytes = (size_t)qn_dtype_bytes(y.dtype);
    int along = QN_MAX_RANK - 2;
    qn_rows it;
    a.shape[along] = y.shape[along]; /* every row of y comes from the one row of a */
    a.stride[along] = 0;
    qn_fill(c->dst[0], 0);
    for (qn_rows_begin(&it, y.rank, y.shape); it.live; qn_rows_next(&it)) {
        int64_t i = it.index[along];
        memcpy(qn_row(&it, &y) + i * qn_nb(&y, 0), qn_row(&it, &a) + i * qn_nb(&a, 0), bytes);
    }
    return QN_OK;
}

/* ---- Gradients */

/* The diagonal is a window whose steps are a row and an element. */
void qn_vjp_diag(qn_vjp_call *v) {
    qn_shape s = qn_shape_of(v, v->grad[0]);
    if (!v->want[0] || v->status != QN_OK) return;
    int64_t d[QN_MAX_RANK], stride[QN_MAX_RANK], n = qn_sd(&s, 0), bytes = qn_dtype_bytes(s.dtype), step = bytes;
    for (int i = s.rank - 1; i >= 0; i--) {
        d[i] = s.d[i];
        stride[i] = step;
        step *= s.d[i] ? s.d[i] : 1;
    }
    d[s.rank - 2] = 1;
    stride[s.rank - 1] = (n + 1) * bytes;
    v->out[0] = qn_e_like(v, qn_e_window(v, qn_e_cont(v, v->grad[0]), s.rank, d, stride, 0), v->src[0]);
}

void qn_vjp_diag_mask(qn_vjp_call *v) {
    qn_attr_diag_mask_zero at = qn_attr_diag_mask_zero_default();
    at.n_past = v->op == QN_OP_diag_mask_inf ? ((const qn_attr_diag_mask_inf *)v->attr)->n_past
                                             : ((const qn_attr_diag_mask_zero *)v->attr)->n_past;
    if (v->want[0]) v->out[0] = qn_emit1(v, QN_OP_diag_mask_zero, 0, &at, v->grad[0]);
}

void qn_vjp_tri(qn_vjp_call *v) {
    if (v->want[0]) v->out[0] = qn_emit1(v, QN_OP_tri, 0, v->attr, v->grad[0]);
}
