/* Matrix products and the triangular solve. The summed axis is last in both operands of mul_mat and second to last in both of
 * out_prod, so that each is the other's gradient. One operand may serve a whole group of the other's batches: batch i of b
 * meets batch i / (batches of b / batches of a) of a. */
#include "op/op_emit.h"
#include "op/product.h"

/* ---- Shape rules */

static qn_status need_groups(qn_infer_call *c) {
    for (int k = 2; k < 4; k++) {
        int64_t few = qn_ne(c->src[0], k), many = qn_ne(c->src[1], k);
        if (!qn_divides(few, many)) return qn_reject_src(c, 1, QN_REASON_SHAPE_MULTIPLE, qn_axis(c->src[1], k), few, many);
    }
    return QN_OK;
}

/* [.., rows of b, rows of a], no longer than b is. */
static qn_status out_matrices(qn_infer_call *c, int64_t rows, int64_t columns) {
    const qn_tensor *b = c->src[1];
    int64_t d[4] = {qn_ne(b, 3), qn_ne(b, 2), rows, columns};
    int rank = qn_trim_rank(4, d, b->rank < 4 ? b->rank : 4);
    return qn_out_shape(c, 0, qn_product_dtype(c->src[0]), rank, d + 4 - rank);
}

static uint64_t magnitude(int64_t stride) { return stride < 0 ? 0 - (uint64_t)stride : (uint64_t)stride; }

/* A weight matrix must be stored by rows. A row used again and again (stride 0) is; one row or one column is either way. */
static qn_status need_rows(qn_infer_call *c, int slot) {
    const qn_tensor *t = c->src[slot];
    int64_t inner = qn_nb(t, 0), outer = qn_nb(t, 1);
    if (qn_is_block(t->dtype) || qn_ne(t, 0) < 2 || qn_ne(t, 1) < 2 || outer == 0) return QN_OK;
    if (magnitude(inner) <= magnitude(outer)) return QN_OK;
    return qn_reject_src(c, slot, QN_REASON_TRANSPOSED, qn_axis(t, 0), outer, inner);
}

/* The block type into which kernels turn b for weights of a block type; b may come as that already. */
static uint32_t partner(uint32_t weights) {
    if (weights == QN_DTYPE_Q4_1 || weights == QN_DTYPE_Q5_1 || weights == QN_DTYPE_Q8_1) return QN_DTYPE_Q8_1;
    return qn_dtype_describe((qn_dtype)weights)->block == 256 ? QN_DTYPE_Q8_K : QN_DTYPE_Q8_0;
}

qn_status qn_infer_mul_mat(qn_infer_call *c) {
    const qn_attr_mul_mat *at = c->attr;
    const qn_tensor *a = c->src[0], *b = c->src[1];
    int64_t k = qn_ne(a, 0), m = qn_ne(a, 1);
    if (at->prec != 0 && at->prec != 10) return qn_reject_attr(c, "prec", QN_REASON_ATTR_CHOICE, -1, 0, at->prec);
    QN_TRY(qn_need_rank(c, 0, 4));
    QN_TRY(qn_need_rank(c, 1, 4));
    QN_TRY(qn_need_extent(c, 1, 0, k));
    QN_TRY(need_groups(c));
    QN_TRY(need_rows(c, 0));
    if (at->hint == 1) { /* a scaled Hadamard matrix */
        if (m != k) return qn_reject_src(c, 0, QN_REASON_SHAPE_SQUARE, -1, k, m);
        if (k == 0 || (k & (k - 1)) != 0) return qn_reject_src(c, 0, QN_REASON_SHAPE_POWER, qn_axis(a, 0), 0, k);
    }
    QN_TRY(qn_need_f64_pair(c, 1, 0));
    if (qn_is_block(b->dtype) && !(qn_is_block(a->dtype) && b->dtype == partner(a->dtype)))
        return qn_reject_unsupported(c, 1, QN_REASON_DTYPE_PAIR, a->dtype, b->dtype);
    c->flops_each = 2.0 * (double)k;
    return out_matrices(c, qn_ne(b, 1), m);
}

qn_status qn_infer_mul_mat_id(qn_infer_call *c) {
    const qn_tensor *as = c->src[0], *b = c->src[1], *ids = c->src[2];
    QN_TRY(qn_need_rank(c, 0, 3));
    QN_TRY(qn_need_rank(c, 1, 3));
    QN_TRY(qn_need_rank(c, 2, 2));
    QN_TRY(qn_need_extent(c, 1, 0, qn_ne(as, 0)));
    QN_TRY(qn_need_extent(c, 2, 1, qn_ne(b, 2)));
    QN_TRY(qn_need_divides(c, 1, 1, qn_ne(ids, 0)));
    QN_TRY(qn_need_f64_pair(c, 1, 0));
    c->index_limit[2] = qn_ne(as, 2);
    c->flops_each = 2.0 * (double)qn_ne(as, 0);
    int64_t d[3] = {qn_ne(ids, 1), qn_ne(ids, 0), qn_ne(as, 1)};
    return qn_out_shape(c, 0, qn_product_dtype(as), 3, d);
}

qn_status qn_infer_out_prod(qn_infer_call *c) {
    QN_TRY(qn_need_rank(c, 0, 4));
    QN_TRY(qn_need_rank(c, 1, 4));
    QN_TRY(qn_need_extent(c, 1, 1, qn_ne(c->src[0], 1)));
    QN_TRY(need_groups(c));
    QN_TRY(qn_need_f64_pair(c, 1, 0));
    c->flops_each = 2.0 * (double)qn_ne(c->src[0], 1);
    return out_matrices(c, qn_ne(c->src[1], 0), qn_ne(c->src[0], 0));
}

qn_status qn_infer_out_prod_id(qn_infer_call *c) {
    const qn_attr_out_prod_id *at = c->attr;
    const qn_tensor *b = c->src[0], *g = c->src[1];
    QN_TRY(qn_need_rank(c, 0, 3));
    QN_TRY(qn_need_rank(c, 1, 3));
    QN_TRY(qn_need_rank(c, 2, 2));
    QN_TRY(qn_need_extent(c, 1, 2, qn_ne(b, 2)));
    QN_TRY(qn_need_extent(c, 2, 1, qn_ne(b, 2)));
    QN_TRY(qn_need_extent(c, 2, 0, qn_ne(g, 1)));
    QN_TRY(qn_need_divides(c, 0, 1, qn_ne(g, 1)));
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    c->index_limit[2] = at->n_expert;
    c->flops_each = 2.0 * (double)qn_ne(g, 2) * (double)qn_ne(g, 1) / (double)at->n_expert;
    int64_t d[3] = {at->n_expert, qn_ne(g, 0), qn_ne(b, 0)};
    return qn_out_shape(c, 0, b->dtype, 3, d);
}

/* The workspace is one column of the solution, kept in double so that the result is rounded once. Its size cannot overflow:
 * that of a's rows did not. */
qn_status qn_infer_solve_tri(qn_infer_call *c) {
    const qn_tensor *a = c->src[0], *b = c->src[1];
    int64_t n = qn_ne(a, 0);
    if (qn_ne(a, 1) != n) return qn_reject_src(c, 0, QN_REASON_SHAPE_SQUARE, -1, n, qn_ne(a, 1));
    for (int k = QN_MAX_RANK - 1; k >= 2; k--) QN_TRY(qn_need_extent(c, 1, k, qn_ne(a, k)));
    QN_TRY(qn_need_extent(c, 1, 1, n));
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    c->workspace = (size_t)n * sizeof(double);
    c->flops_each = (double)n;
    qn_out_like(c, 0, b, b->dtype);
    return QN_OK;
}

/* ---- References */

qn_status qn_ref_mul_mat(const qn_call *c) {
    const qn_tensor *y = c->dst[0], *a = c->src[0], *b = c->src[1];
    int64_t k = qn_ne(a, 0), r2 = qn_share(qn_ne(a, 2), qn_ne(b, 2)), r3 = qn_share(qn_ne(a, 3), qn_ne(b, 3));
    if (qn_tensor_count(y) == 0) return QN_OK;
    for (int64_t i3 = 0; i3 < qn_ne(y, 3); i3++)
        for (int64_t i2 = 0; i2 < qn_ne(y, 2); i2++)
            for (int64_t j = 0; j < qn_ne(y, 1); j++)
                for (int64_t i = 0; i < qn_ne(y, 0); i++)
                    qn_put4(y, i3, i2, j, i, qn_dot_rows(a, qn_row4(a, i3 / r3, i2 / r2, i), b, qn_row4(b, i3, i2, j), k));
    return QN_OK;
}

qn_status qn_ref_mul_mat_id(const qn_call *c) {
    const qn_tensor *y = c->dst[0], *as = c->src[0], *b = c->src[1], *ids = c->src[2];
    if (qn_tensor_count(y) == 0) return QN_OK;
    for (int64_t t = 0; t < qn_ne(y, 2); t++)
        for (int64_t u = 0; u < qn_ne(y, 1); u++) {
            const char *row = qn_row4(b, 0, t, u % qn_ne(b, 1));
            int64_t e = qn_index4(ids, 0, 0, t, u);
            for (int64_t i = 0; i < qn_ne(y, 0); i++)
                qn_put4(y, 0, t, u, i, qn_dot_rows(as, qn_row4(as, 0, e, i), b, row, qn_ne(as, 0)));
        }
    return QN_OK;
}

/* Row j of one product: the rows of a, each times its entry in column j of b. */
static void out_prod_row(const qn_tensor *y, char *row, const qn_tensor *a, const char *a0, const qn_tensor *b, const char *b0j) {
    int64_t n = qn_ne(a, 0);
    for (int64_t first = 0; first < n; first += QN_RUN) {
        double sum[QN_RUN] = {0};
        int64_t some = qn_some(n, first);
        for (int64_t p = 0; p < qn_ne(a, 1); p++) {
            double weight = qn_load_one((qn_dtype)b->dtype, b0j + p * qn_nb(b, 1));
            qn_add_row(sum, weight, a, a0 + p * qn_nb(a, 1), first, some);
        }
        qn_store_row(y, row, first, some, sum);
    }
}

qn_status qn_ref_out_prod(const qn_call *c) {
    const qn_tensor *y = c->dst[0], *a = c->src[0], *b = c->src[1];
    int64_t r2 = qn_share(qn_ne(a, 2), qn_ne(b, 2)), r3 = qn_share(qn_ne(a, 3), qn_ne(b, 3));
    if (qn_tensor_count(a) == 0) qn_fill(y, 0); /* nothing to add up */
    if (qn_tensor_count(a) == 0 || qn_tensor_count(y) == 0) return QN_OK;
    for (int64_t i3 = 0; i3 < qn_ne(y, 3); i3++)
        for (int64_t i2 = 0; i2 < qn_ne(y, 2); i2++)
            for (int64_t j = 0; j < qn_ne(y, 1); j++)
                out_prod_row(y, qn_row4(y, i3, i2, j), a, qn_row4(a, i3 / r3, i2 / r2, 0), b, qn_at(b, qn_off4(b, i3, i2, 0, j)));
    return QN_OK;
}

/* Elements [first, first + some) of row i of expert e: the rows of b that went to e, each times what came back for i. */
static void expert_run(const qn_call *c, int64_t e, int64_t i, int64_t first, int64_t some) {
    const qn_tensor *y = c->dst[0], *b = c->src[0], *g = c->src[1], *ids = c->src[2];
    double sum[QN_RUN] = {0};
    for (int64_t t = 0; t < qn_ne(g, 2); t++)
        for (int64_t u = 0; u < qn_ne(g, 1); u++)
            if (qn_index4(ids, 0, 0, t, u) == e)
                qn_add_row(sum, qn_get4(g, 0, t, u, i), b, qn_row4(b, 0, t, u % qn_ne(b, 1)), first, some);
    qn_store_row(y, qn_row4(y, 0, e, i), first, some, sum);
}

qn_status qn_ref_out_prod_id(const qn_call *c) {
    const qn_tensor *y = c->dst[0];
    int64_t k = qn_ne(y, 0);
    if (qn_tensor_count(y) == 0) return QN_OK;
    for (int64_t e = 0; e < qn_ne(y, 2); e++)
        for (int64_t i = 0; i < qn_ne(y, 1); i++)
            for (int64_t first = 0; first < k; first += QN_RUN) expert_run(c, e, i, first, qn_some(k, first));
    return QN_OK;
}

/* Column j of one solution; b may be where x is, its entry is read before it is replaced. */
static void solve_column(const qn_tensor *x, char *x0j, const qn_tensor *a, const char *a0, const qn_tensor *b, const char *b0j,
                         int unit, double *column) {
    int64_t n = qn_ne(a, 0);
    for (int64_t i = 0; i < n; i++) {
        const char *row = a0 + i * qn_nb(a, 1);
        double rest = qn_load_one((qn_dtype)b->dtype, b0j + i * qn_nb(b, 1));
        for (int64_t t = 0; t < i; t++) rest -= qn_load_one((qn_dtype)a->dtype, row + t * qn_nb(a, 0)) * column[t];
        column[i] = unit ? rest : rest / qn_load_one((qn_dtype)a->dtype, row + i * qn_nb(a, 0));
        qn_store_one((qn_dtype)x->dtype, x0j + i * qn_nb(x, 1), column[i]);
    }
}

qn_status qn_ref_solve_tri(const qn_call *c) {
    const qn_tensor *x = c->dst[0], *a = c->src[0], *b = c->src[1];
    int64_t count = qn_tensor_count(x), columns = qn_ne(b, 0);
    int unit = ((const qn_attr_solve_tri *)c->attr)->unit;
    if (count == 0) return QN_OK;
    int64_t matrices = count / (columns * qn_ne(b, 1));
    for (int64_t number = 0; number < matrices; number++)
        for (int64_t j = 0; j < columns; j++)
            solve_column(x, qn_at(x, qn_matrix_offset(x, number) + j * qn_nb(x, 0)), a, qn_at(a, qn_matrix_offset(a, number)), b,
                         qn_at(b, qn_matrix_offset(b, number) + j * qn_nb(b, 0)), unit, c->workspace);
    return QN_OK;
}

/* ---- Gradients */

/* x with all four axes, contiguous. */
static qn_val as4(qn_vjp_call *v, qn_val x) {
    qn_shape s = qn_shape_of(v, x);
    int64_t d[4] = {qn_sd(&s, 3), qn_sd(&s, 2), qn_sd(&s, 1), qn_sd(&s, 0)};
    return qn_e_reshape(v, x, 4, d);
}

static qn_val out_prod(qn_vjp_call *v, qn_val a, qn_val b) { return qn_emit2(v, QN_OP_out_prod, 0, NULL, a, b); }
static qn_val mul_mat(qn_vjp_call *v, qn_val a, qn_val b) { return qn_emit2(v, QN_OP_mul_mat, 0, NULL, a, b); }

/* The gradient of a shared operand from one per batch: those of a group are added up. */
static qn_val sum_groups(qn_vjp_call *v, qn_val each, qn_val shared) {
    qn_shape e = qn_shape_of(v, each), s = qn_shape_of(v, shared);
    int64_t d3 = qn_sd(&s, 3), d2 = qn_sd(&s, 2), r3 = d3 ? qn_sd(&e, 3) / d3 : 1, r2 = d2 ? qn_sd(&e, 2) / d2 : 1;
    if (r3 != 1 || r2 != 1) {
        int64_t split[6] = {d3, r3, d2, r2, qn_sd(&e, 1), qn_sd(&e, 0)}, merged[6] = {d3, 1, d2, 1, qn_sd(&e, 1), qn_sd(&e, 0)};
        each = qn_e_untile(v, qn_e_reshape(v, each, 6, split), 6, merged);
    }
    return qn_e_like(v, each, shared);
}

/* y = b aT: da = gT b, added up over groups; db = g a, written so that a may stay in blocks. */
void qn_vjp_mul_mat(qn_vjp_call *v) {
    qn_val g = as4(v, v->grad[0]);
    if (v->want[0]) v->out[0] = sum_groups(v, out_prod(v, v->src[1], g), v->src[0]);
    if (v->want[1]) v->out[1] = qn_e_like(v, out_prod(v, v->src[0], qn_e_transpose(v, g)), v->src[1]);
}

/* y = bT a: da = b g, added up over groups; db = a gT, which mul_mat gives transposed because a is the shared one. */
void qn_vjp_out_prod(qn_vjp_call *v) {
    qn_val g = as4(v, v->grad[0]);
    if (v->want[0]) v->out[0] = sum_groups(v, mul_mat(v, qn_e_transpose(v, g), v->src[1]), v->src[0]);
    if (v->want[1]) v->out[1] = qn_e_like(v, qn_e_transpose(v, mul_mat(v, as4(v, v->src[0]), g)), v->src[1]);
}

/* The matrices collect outer products by id; b gets each result's gradient back through its matrix, added up over the ids that
 * shared a row. */
void qn_vjp_mul_mat_id(qn_vjp_call *v) {
    qn_val g = v->grad[0], as = v->src[0], b = v->src[1], ids = v->src[2];
    qn_shape s = qn_shape_of(v, as), r = qn_shape_of(v, b), y = qn_shape_of(v, g);
    if (v->want[0] && qn_sd(&s, 2) > 0) {
        qn_attr_out_prod_id at = qn_attr_out_prod_id_default();
        at.n_expert = qn_sd(&s, 2);
        v->out[0] = qn_e_like(v, qn_emit3(v, QN_OP_out_prod_id, 0, &at, qn_e_cast(v, b, y.dtype), g, ids), as);
    }
    if (v->want[1]) {
        int64_t matrices[3] = {qn_sd(&s, 2), qn_sd(&s, 1), qn_sd(&s, 0)}, rows[3] = {qn_sd(&r, 2), qn_sd(&r, 1), qn_sd(&r, 0)};
        qn_val plain = qn_is_block(s.dtype) ? qn_e_cast(v, as, y.dtype) : as;
        qn_val back = qn_emit3(v, QN_OP_mul_mat_id, 0, NULL, qn_e_transpose(v, qn_e_reshape(v, plain, 3, matrices)), g, ids);
        v->out[1] = qn_e_like(v, qn_e_untile(v, back, 3, rows), b);
    }
}

/* y[id] = sum of g bT: for g each row of b through its matrix, for b each row of g through the matrix turned, added up over the
 * ids that shared a row. */
void qn_vjp_out_prod_id(qn_vjp_call *v) {
    qn_val up = v->grad[0], b = v->src[0], g = v->src[1], ids = v->src[2];
    qn_shape r = qn_shape_of(v, b);
    int64_t rows[3] = {qn_sd(&r, 2), qn_sd(&r, 1), qn_sd(&r, 0)};
    if (v->want[1]) v->out[1] = qn_e_like(v, qn_emit3(v, QN_OP_mul_mat_id, 0, NULL, up, b, ids), g);
    if (!v->want[0]) return;
    qn_val back = qn_emit3(v, QN_OP_mul_mat_id, 0, NULL, qn_e_transpose(v, up), g, ids);
    v->out[0] = qn_e_like(v, qn_e_untile(v, back, 3, rows), b);
}

/* [batch, n, columns] read from the last row to the first. */
static qn_val flip_rows(qn_vjp_call *v, qn_val x, int64_t size, const int64_t *d) {
    int64_t row = d[2] * size, strides[3] = {d[1] * row, -row, size};
    return qn_e_window(v, x, 3, d, strides, (d[1] - 1) * row);
}

/* a x = b: db solves aT db = g, an upper triangle, which turned end for end in both directions is a lower one again;
 * da = -db xT in the lower triangle, without the diagonal where that was taken for ones. */
void qn_vjp_solve_tri(qn_vjp_call *v) {
    qn_shape b = qn_shape_of(v, v->src[1]);
    int64_t n = qn_sd(&b, 1), columns = qn_sd(&b, 0), batch = 1, size = b.dtype == QN_DTYPE_F64 ? 8 : 4;
    for (int k = 0; k < b.rank; k++)
        if (qn_sd(&b, k) == 0) return; /* nothing was solved: every gradient is zero */
    for (int k = 2; k < b.rank; k++) batch *= qn_sd(&b, k);
    int64_t square[3] = {batch, n, n}, wide[3] = {batch, n, columns}, turned[3] = {n * n * size, -size, -n * size};
    qn_val a = qn_e_window(v, qn_e_reshape(v, v->src[0], 3, square), 3, square, turned, (n * n - 1) * size);
    qn_val g = flip_rows(v, qn_e_reshape(v, v->grad[0], 3, wide), size, wide);
    qn_val db = flip_rows(v, qn_emit2(v, QN_OP_solve_tri, 0, v->attr, a, g), size, wide);
    if (v->want[1]) v->out[1] = qn_e_like(v, db, v->src[1]);
    if (!v->want[0]) return;
    qn_val da = mul_mat(v, qn_e_reshape(v, v->dst[0], 3, wide), db);
    qn_attr_tri below = qn_attr_tri_default();
    if (((const qn_attr_solve_tri *)v->attr)->unit) below.kind = 3;
    v->out[0] = qn_e_like(v, qn_e_scale(v, qn_emit1(v, QN_OP_tri, 0, &below, da), -1, 0), v->src[0]);
}
