/* Systems of linear equations with dense matrices: elimination with the largest pivot of each column, in double whatever the dtype, so
 * that the result is rounded once. A pivot of zero is divided by like any number: where a matrix is singular the solution holds
 * infinities or NaN, and nothing else happens. */
#include <math.h>

#include "op/op_emit.h"
#include "op/product.h"

/* The workspace is a copy of one matrix, which becomes its factors, and one column. */
qn_status qn_infer_solve(qn_infer_call *c) {
    const qn_tensor *a = c->src[0], *b = c->src[1];
    int64_t n = qn_ne(a, 0), cells, bytes;
    if (a->rank < 2) return qn_reject_src(c, 0, QN_REASON_SHAPE_RANK_LOW, -1, 2, a->rank);
    if (b->rank < 2) return qn_reject_src(c, 1, QN_REASON_SHAPE_RANK_LOW, -1, 2, b->rank);
    if (qn_ne(a, 1) != n) return qn_reject_src(c, 0, QN_REASON_SHAPE_SQUARE, -1, n, qn_ne(a, 1));
    for (int k = QN_MAX_RANK - 1; k >= 2; k--) QN_TRY(qn_need_extent(c, 1, k, qn_ne(a, k)));
    QN_TRY(qn_need_extent(c, 1, 1, n));
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    if (qn_add_overflow(n, 1, &cells) || qn_mul_overflow(cells, n, &cells) ||
        qn_mul_overflow(cells, (int64_t)sizeof(double), &bytes))
        return qn_reject_src(c, 0, QN_REASON_SIZE_OVERFLOW, qn_axis(a, 0), INT64_MAX, n);
    c->workspace = (size_t)bytes;
    c->flops_each = 2.0 * (double)n;
    qn_out_like(c, 0, b, b->dtype);
    return QN_OK;
}

/* ---- Reference */

/* A number at a place in a matrix. */
static double cell(const qn_tensor *t, int64_t matrix, int64_t row, int64_t column) {
    return qn_load_one((qn_dtype)t->dtype, qn_at(t, matrix + row * qn_nb(t, 1) + column * qn_nb(t, 0)));
}

static void swap_rows(double *f, int64_t n, int64_t i, int64_t j, int64_t width) {
    for (int64_t k = 0; k < width && i != j; k++) {
        double keep = f[i * n + k];
        f[i * n + k] = f[j * n + k];
        f[j * n + k] = keep;
    }
}

/* Eliminates column by column, carrying one right side along in x, then substitutes from the last row up. */
static void solve_one(double *f, double *x, int64_t n) {
    for (int64_t p = 0; p < n; p++) {
        int64_t best = p;
        for (int64_t i = p + 1; i < n; i++)
            if (fabs(f[i * n + p]) > fabs(f[best * n + p])) best = i;
        swap_rows(f, n, p, best, n);
        swap_rows(x, 1, p, best, 1);
        for (int64_t i = p + 1; i < n; i++) {
            double times = f[i * n + p] / f[p * n + p];
            for (int64_t k = p + 1; k < n; k++) f[i * n + k] -= times * f[p * n + k];
            x[i] -= times * x[p];
        }
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        for (int64_t k = i + 1; k < n; k++) x[i] -= f[i * n + k] * x[k];
        x[i] /= f[i * n + i];
    }
}

/* Every right side has the matrix eliminated anew: plain, and the workspace stays one matrix. */
qn_status qn_ref_solve(const qn_call *c) {
    const qn_tensor *x = c->dst[0], *a = c->src[0], *b = c->src[1];
    int64_t count = qn_tensor_count(x), n = qn_ne(a, 0), columns = qn_ne(b, 0);
    int turned = ((const qn_attr_solve *)c->attr)->transpose;
    double *f = c->workspace, *column = f + n * n;
    if (count == 0) return QN_OK;
    for (int64_t number = 0; number < count / (columns * n); number++) {
        int64_t of_a = qn_matrix_offset(a, number), of_b = qn_matrix_offset(b, number), of_x = qn_matrix_offset(x, number);
        for (int64_t j = 0; j < columns; j++) {
            for (int64_t i = 0; i < n * n; i++) f[i] = turned ? cell(a, of_a, i % n, i / n) : cell(a, of_a, i / n, i % n);
            for (int64_t i = 0; i < n; i++) column[i] = cell(b, of_b, i, j);
            solve_one(f, column, n);
            for (int64_t i = 0; i < n; i++)
                qn_store_one((qn_dtype)x->dtype, qn_at(x, of_x + i * qn_nb(x, 1) + j * qn_nb(x, 0)), column[i]);
        }
    }
    return QN_OK;
}

/* ---- Gradient: db solves the system turned over, and da = -db xT, or its transpose. */

void qn_vjp_solve(qn_vjp_call *v) {
    qn_attr_solve at = *(const qn_attr_solve *)v->attr;
    qn_shape b = qn_shape_of(v, v->src[1]);
    int turned = at.transpose;
    for (int k = 0; k < b.rank; k++)
        if (qn_sd(&b, k) == 0) return; /* nothing was solved: every gradient is zero */
    at.transpose = !turned;
    qn_val db = qn_emit2(v, QN_OP_solve, 0, &at, v->src[0], v->grad[0]);
    if (v->want[1]) v->out[1] = db;
    if (!v->want[0]) return;
    qn_attr_matmul outer = qn_attr_matmul_default();
    outer.transpose_b = 1;
    qn_val left = turned ? v->dst[0] : db, right = turned ? db : v->dst[0];
    v->out[0] = qn_e_like(v, qn_e_scale(v, qn_emit2(v, QN_OP_matmul, 0, &outer, left, right), -1, 0), v->src[0]);
}
