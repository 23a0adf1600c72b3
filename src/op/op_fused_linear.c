/* linear and its kin: products with one matrix of weights, or several over one x, and what follows them. The product is the
 * reference of matmul (that of mul_mat adds up in the same order), so each gives the bits of its parts. */
#include "op/op_fused.h"
#include "op/product.h"

enum { MOST_WEIGHTS = 4 };

_Static_assert(offsetof(qn_attr_linear, transpose_w) == offsetof(qn_attr_linear_split, transpose_w), "shared attributes");
_Static_assert(offsetof(qn_attr_linear, transpose_w) == offsetof(qn_attr_linear_group, transpose_w), "shared attributes");
_Static_assert(offsetof(qn_attr_linear, transpose_w) == offsetof(qn_attr_linear_glu, transpose_w), "shared attributes");
_Static_assert(offsetof(qn_attr_linear, dtype) == offsetof(qn_attr_linear_split, dtype), "shared attributes");
_Static_assert(offsetof(qn_attr_linear, dtype) == offsetof(qn_attr_linear_group, dtype), "shared attributes");
_Static_assert(offsetof(qn_attr_linear, dtype) == offsetof(qn_attr_linear_glu, dtype), "shared attributes");

/* ---- Shape rules */

/* What the product with the weights in a slot is rounded to: as matmul does it, or f32 when asked. */
static qn_status product_dtype(qn_infer_call *c, int slot, uint32_t *dtype) {
    uint32_t wanted = (uint32_t)((const qn_attr_linear *)c->attr)->dtype;
    *dtype = qn_joint_dtype(c->src[0], c->src[slot]);
    if (!wanted || wanted == *dtype) return QN_OK;
    if (wanted != QN_DTYPE_F32 || *dtype == QN_DTYPE_F64)
        return qn_reject_attr(c, "dtype", QN_REASON_DTYPE_PAIR, -1, *dtype, wanted);
    *dtype = wanted;
    return QN_OK;
}

/* Weights in a slot, and their bias: output `i` becomes [.., N] of x [.., K]. */
static qn_status need_weights(qn_infer_call *c, int slot, int bias, int i) {
    int transposed = ((const qn_attr_linear *)c->attr)->transpose_w;
    const qn_tensor *x = c->src[0], *w = c->src[slot];
    uint32_t dtype = 0;
    if (w->rank < 2) return qn_reject_src(c, slot, QN_REASON_SHAPE_RANK_LOW, -1, 2, w->rank);
    if (w->rank > 2) return qn_reject_src(c, slot, QN_REASON_SHAPE_RANK, -1, 2, w->rank);
    QN_TRY(qn_need_extent(c, slot, transposed ? 0 : 1, qn_ne(x, 0)));
    if (qn_is_block(w->dtype) && !transposed) return qn_reject_attr(c, "transpose_w", QN_REASON_ATTR_VALUE, -1, 1, 0);
    QN_TRY(qn_need_f64_pair(c, slot, 0));
    QN_TRY(product_dtype(c, slot, &dtype));
    int64_t d[QN_MAX_RANK], n = qn_ne(w, transposed ? 1 : 0);
    for (int k = 0; k < x->rank; k++) d[k] = k == x->rank - 1 ? n : x->shape[k];
    if (c->src[bias]) {
        QN_TRY(qn_need_rank(c, bias, 1));
        QN_TRY(qn_need_extent(c, bias, 0, n));
        QN_TRY(qn_op_addend_check(c, bias, dtype));
    }
    c->flops_each = 2 * (double)qn_ne(x, 0);
    return qn_out_shape(c, i, dtype, x->rank, d);
}

qn_status qn_infer_linear(qn_infer_call *c) {
    const qn_tensor *r = c->src[3];
    QN_TRY(qn_op_act_check(c, ((const qn_attr_linear *)c->attr)->act));
    QN_TRY(need_weights(c, 1, 2, 0));
    const qn_shape *y = &c->out[0];
    for (int k = 0; r && k < (r->rank > y->rank ? r->rank : y->rank); k++) QN_TRY(qn_need_extent(c, 3, k, qn_sd(y, k)));
    return r ? qn_op_addend_check(c, 3, y->dtype) : QN_OK;
}

qn_status qn_infer_linear_split(qn_infer_call *c) {
    const qn_attr_linear_split *at = c->attr;
    int64_t sum = 0;
    QN_TRY(qn_op_act_check(c, at->act));
    QN_TRY(need_weights(c, 1, 2, 0));
    qn_shape whole = c->out[0];
    int last = whole.rank - 1;
    if (at->widths.rank < 2) return qn_reject_attr(c, "widths", QN_REASON_ATTR_RANK, -1, 2, at->widths.rank);
    for (int i = 0; i < at->widths.rank; i++) {
        int64_t width = at->widths.d[i];
        if (width < 1) return qn_reject_attr(c, "widths", QN_REASON_ATTR_ENTRY_LOW, i, 1, width);
        if (width > whole.d[last] - sum)
            return qn_reject_attr(c, "widths", QN_REASON_ATTR_ENTRY_HIGH, i, whole.d[last] - sum, width);
        c->out[i] = whole;
        c->out[i].d[last] = width;
        sum += width;
    }
    c->n_out = at->widths.rank;
    if (sum == whole.d[last]) return QN_OK;
    return qn_reject_attr(c, "widths", QN_REASON_SHAPE_COUNT, -1, whole.d[last], sum);
}

qn_status qn_infer_linear_group(qn_infer_call *c) {
    double flops = 0;
    for (int i = 0; i < MOST_WEIGHTS; i++) {
        int slot = 1 + i, bias = 1 + MOST_WEIGHTS + i;
        if (!c->src[slot] && c->src[bias]) return qn_reject_src(c, bias, QN_REASON_NOT_TAKEN, -1, 0, 0);
        if (!c->src[slot]) continue;
        if (i != c->n_out) return qn_reject_src(c, slot - 1, QN_REASON_MISSING, -1, 0, 0);
        QN_TRY(need_weights(c, slot, bias, i));
        int64_t n = c->out[i].d[c->out[i].rank - 1], first = c->out[0].d[c->out[0].rank - 1];
        flops += first ? c->flops_each * (double)n / (double)first : 0; /* counted for each element of the first */
    }
    c->flops_each = flops;
    return QN_OK;
}

qn_status qn_infer_linear_glu(qn_infer_call *c) {
    int64_t bytes;
    QN_TRY(need_weights(c, 2, 4, 0));
    qn_shape second = c->out[0];
    QN_TRY(need_weights(c, 1, 3, 0));
    int last = second.rank - 1;
    int64_t n = c->out[0].d[last];
    if (second.d[last] != n)
        return qn_reject_src(c, 2, QN_REASON_SHAPE_EXTENT, ((const qn_attr_linear *)c->attr)->transpose_w ? 0 : 1, n,
                             second.d[last]);
    if (second.dtype != c->out[0].dtype) return qn_reject_src(c, 2, QN_REASON_DTYPE_PAIR, -1, c->src[1]->dtype, c->src[2]->dtype);
    if (qn_mul_overflow(n, (int64_t)sizeof(double), &bytes))
        return qn_reject_out(c, 0, QN_REASON_SIZE_OVERFLOW, last, INT64_MAX, n);
    c->workspace = (size_t)bytes; /* one row of the second product, of whatever dtype */
    c->flops_each *= 2;
    return QN_OK;
}

/* Rows of a and b are gated, then go to their experts: what mul_mat_id asks of its b is asked of both. */
qn_status qn_infer_glu_mul_mat_id(qn_infer_call *c) {
    const qn_tensor *as = c->src[0], *a = c->src[1], *ids = c->src[3];
    int64_t bytes;
    QN_TRY(qn_need_rank(c, 0, 3));
    QN_TRY(qn_need_rank(c, 1, 3));
    QN_TRY(qn_need_rank(c, 3, 2));
    QN_TRY(qn_need_same_shape(c, 2, 1));
    QN_TRY(qn_need_same_dtype(c, 2, 1));
    QN_TRY(qn_need_extent(c, 1, 0, qn_ne(as, 0)));
    QN_TRY(qn_need_extent(c, 3, 1, qn_ne(a, 2)));
    QN_TRY(qn_need_divides(c, 1, 1, qn_ne(ids, 0)));
    QN_TRY(qn_need_f64_pair(c, 1, 0));
    if (qn_mul_overflow(qn_ne(a, 0), (int64_t)sizeof(double), &bytes))
        return qn_reject_src(c, 1, QN_REASON_SIZE_OVERFLOW, qn_axis(a, 0), INT64_MAX, qn_ne(a, 0));
    c->workspace = (size_t)bytes; /* one row, gated, of whatever dtype */
    c->index_limit[3] = qn_ne(as, 2);
    c->flops_each = 2.0 * (double)qn_ne(as, 0);
    int64_t d[3] = {qn_ne(ids, 1), qn_ne(ids, 0), qn_ne(as, 1)};
    return qn_out_shape(c, 0, qn_product_dtype(as), 3, d);
}

/* ---- References */

/* y = x w, rounded. */
static qn_status multiply(const qn_tensor *x, const qn_tensor *w, int transposed, const qn_tensor *y) {
    const qn_tensor *src[QN_MAX_SRC] = {x, w}, *dst[QN_MAX_DST] = {y};
    qn_attr_matmul at = qn_attr_matmul_default();
    at.transpose_b = transposed;
    qn_call call = {QN_OP_matmul, 0, 2, 1, src, dst, &at, NULL};
    return qn_ref_matmul(&call);
}

static qn_status linear(const qn_call *c, const qn_tensor *w, const qn_tensor *bias, const qn_tensor *y) {
    QN_TRY(multiply(c->src[0], w, ((const qn_attr_linear *)c->attr)->transpose_w, y));
    qn_op_addend_apply(y, bias);
    return QN_OK;
}

qn_status qn_ref_linear(const qn_call *c) {
    QN_TRY(linear(c, c->src[1], c->src[2], c->dst[0]));
    qn_op_act_apply(c->dst[0], ((const qn_attr_linear *)c->attr)->act);
    qn_op_addend_apply(c->dst[0], c->src[3]);
    return QN_OK;
}

/* Elements [start, start + n) of the k-th axis from the end; not that of blocks. */
static qn_tensor slice(const qn_tensor *t, int k, int64_t start, int64_t n) {
    qn_tensor s = *t;
    s.shape[t->rank - 1 - k] = n;
    s.offset += start * qn_nb(t, k);
    return s;
}

qn_status qn_ref_linear_split(const qn_call *c) {
    const qn_attr_linear_split *at = c->attr;
    int64_t start = 0;
    for (int i = 0; i < at->widths.rank; start += at->widths.d[i++]) {
        if (i >= c->n_dst || !c->dst[i]) continue;
        qn_tensor w = slice(c->src[1], at->transpose_w ? 1 : 0, start, at->widths.d[i]), bias;
        if (c->src[2]) bias = slice(c->src[2], 0, start, at->widths.d[i]);
        QN_TRY(linear(c, &w, c->src[2] ? &bias : NULL, c->dst[i]));
        qn_op_act_apply(c->dst[i], at->act);
    }
    return QN_OK;
}

qn_status qn_ref_linear_group(const qn_call *c) {
    for (int i = 0; i < MOST_WEIGHTS; i++)
        if (c->src[1 + i] && i < c->n_dst && c->dst[i]) QN_TRY(linear(c, c->src[1 + i], c->src[1 + MOST_WEIGHTS + i], c->dst[i]));
    return QN_OK;
}

/* A tensor of one axis over a row. */
static qn_tensor row_vector(const qn_tensor *t, char *row) {
    qn_tensor v = *t;
    v.rank = 1;
    v.shape[0] = qn_ne(t, 0);
    v.stride[0] = qn_nb(t, 0);
    v.data = row;
    v.offset = 0;
    return v;
}

qn_status qn_ref_linear_glu(const qn_call *c) {
    const qn_attr_linear_glu *at = c->attr;
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    qn_attr_glu gate = qn_attr_glu_default();
    gate.alpha = at->alpha;
    gate.limit = at->limit;
    qn_rows it;
    for (qn_rows_begin(&it, y->rank, y->shape); it.live; qn_rows_next(&it)) {
        qn_tensor to = row_vector(y, qn_row(&it, y)), second = to, from = row_vector(x, qn_ne(x, 0) ? qn_row(&it, x) : x->data);
        second.data = c->workspace;
        second.stride[0] = qn_dtype_bytes(y->dtype);
        const qn_tensor *src[QN_MAX_SRC] = {&to, &second}, *dst[QN_MAX_DST] = {&to};
        qn_call glu = {QN_OP_glu, c->subop, 2, 1, src, dst, &gate, NULL};
        QN_TRY(multiply(&from, c->src[1], at->transpose_w, &to));
        QN_TRY(multiply(&from, c->src[2], at->transpose_w, &second));
        qn_op_addend_apply(&to, c->src[3]);
        qn_op_addend_apply(&second, c->src[4]);
        QN_TRY(qn_ref_glu(&glu));
    }
    return QN_OK;
}

qn_status qn_ref_glu_mul_mat_id(const qn_call *c) {
    const qn_attr_glu_mul_mat_id *at = c->attr;
    const qn_tensor *y = c->dst[0], *as = c->src[0], *a = c->src[1], *b = c->src[2], *ids = c->src[3];
    qn_attr_glu gate = qn_attr_glu_default();
    gate.alpha = at->alpha;
    gate.limit = at->limit;
    if (qn_tensor_count(y) == 0) return QN_OK;
    for (int64_t t = 0; t < qn_ne(y, 2); t++)
        for (int64_t u = 0; u < qn_ne(y, 1); u++) {
            int64_t own = u % qn_ne(a, 1), e = qn_index4(ids, 0, 0, t, u);
            qn_tensor left = row_vector(a, qn_row4(a, 0, t, own)), right = row_vector(b, qn_row4(b, 0, t, own)), gated = left;
            gated.data = c->workspace;
            gated.stride[0] = qn_dtype_bytes(a->dtype);
            const qn_tensor *src[QN_MAX_SRC] = {&left, &right}, *dst[QN_MAX_DST] = {&gated};
            qn_call glu = {QN_OP_glu, c->subop, 2, 1, src, dst, &gate, NULL};
            if (qn_ne(a, 0)) QN_TRY(qn_ref_glu(&glu));
            for (int64_t i = 0; i < qn_ne(y, 0); i++)
                qn_put4(y, 0, t, u, i, qn_dot_rows(as, qn_row4(as, 0, e, i), &gated, c->workspace, qn_ne(as, 0)));
        }
    return QN_OK;
}
