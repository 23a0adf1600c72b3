/* Ops that lay tensors side by side: repeat, its adjoint repeat_back, concat; and the two loops that they share with padding. */
#include "op/op_emit.h"
#include "op/op_layout.h"

/* ---- Shared loops */

void qn_op_copy_mapped(const qn_tensor *y, const qn_tensor *a, qn_op_axis_map map, const void *p) {
    qn_tensor to = qn_op_tensor_widen(y), from = qn_op_tensor_widen(a);
    size_t bytes = (size_t)qn_dtype_bytes(y->dtype);
    int last = QN_MAX_RANK - 1;
    qn_rows it;
    for (qn_rows_begin(&it, to.rank, to.shape); it.live; qn_rows_next(&it)) {
        char *row = qn_row(&it, &to);
        int64_t offset = 0;
        int zero = 0;
        for (int j = 0; j < last; j++) {
            int64_t i = map(p, last - j, it.index[j]);
            if (i < 0) zero = 1;
            else offset += i * from.stride[j];
        }
        for (int64_t i = 0; i < it.n; i++) {
            int64_t s = zero ? -1 : map(p, 0, i);
            if (s < 0) memset(row + i * to.stride[last], 0, bytes);
            else memcpy(row + i * to.stride[last], qn_at(&from, offset + s * from.stride[last]), bytes);
        }
    }
}

/* Adds elements [start, start + n) of a row of g to sum; when wrap is not 0 also those any number of wraps before or behind,
 * as far as the row has them. */
static void add_row(const qn_tensor *g, const char *row, int64_t start, int64_t wrap, int64_t n, double *sum) {
    double part[QN_RUN];
    int64_t end = qn_ne(g, 0), at = wrap ? start - (start + n - 1) / wrap * wrap : start;
    for (; at < end; at += wrap) {
        int64_t low = at < 0 ? 0 : at, high = at + n < end ? at + n : end;
        qn_load_row(g, row, low, high - low, part);
        for (int64_t i = low; i < high; i++) sum[i - at] += part[i - low];
        if (!wrap) return;
    }
}

/* The rows of g that one row of y takes: the first one's indices, and how many there are along each axis. */
static void fold_rows(const qn_rows *it, const qn_tensor *g, const int64_t *left, int wrap, int64_t *first, int64_t *count) {
    for (int j = 0; j < QN_MAX_RANK - 1; j++) {
        int64_t n = it->shape[j], end = g->shape[j];
        first[j] = it->index[j] + left[j];
        if (wrap) first[j] %= n;
        count[j] = !wrap ? 1 : first[j] < end ? (end - 1 - first[j]) / n + 1 : 0;
    }
    count[QN_MAX_RANK - 1] = g->shape[QN_MAX_RANK - 1] ? 1 : 0;
}

void qn_op_fold(const qn_tensor *y, const qn_tensor *g, const int64_t *left, int wrap) {
    qn_tensor to = qn_op_tensor_widen(y), from = qn_op_tensor_widen(g);
    int last = QN_MAX_RANK - 1;
    int64_t first[QN_MAX_RANK], count[QN_MAX_RANK];
    qn_rows it, tile;
    for (qn_rows_begin(&it, to.rank, to.shape); it.live; qn_rows_next(&it)) {
        fold_rows(&it, &from, left, wrap, first, count);
        for (int64_t at = 0; at < it.n; at += QN_RUN) {
            int64_t n = it.n - at < QN_RUN ? it.n - at : QN_RUN;
            double sum[QN_RUN] = {0};
            for (qn_rows_begin(&tile, QN_MAX_RANK, count); tile.live; qn_rows_next(&tile)) {
                int64_t offset = 0;
                for (int j = 0; j < last; j++) offset += (first[j] + tile.index[j] * to.shape[j]) * from.stride[j];
                add_row(&from, qn_at(&from, offset), at + left[last], wrap ? it.n : 0, n, sum);
            }
            qn_store_row(&to, qn_row(&it, &to), at, n, sum);
        }
    }
}

/* ---- Shape rules */

qn_status qn_infer_repeat(qn_infer_call *c) {
    const qn_attr_repeat *at = c->attr;
    const qn_tensor *a = c->src[0];
    int64_t count;
    QN_TRY(qn_op_shape_check(c, "shape", &at->shape, a->dtype, &count));
    if (at->shape.rank < a->rank) return qn_reject_attr(c, "shape", QN_REASON_ATTR_RANK, -1, a->rank, at->shape.rank);
    for (int k = 0; k < a->rank; k++) {
        int64_t n = qn_ne(a, k), want = qn_op_dims_at(&at->shape, k);
        if (n ? want % n != 0 : want != 0)
            return qn_reject_attr(c, "shape", QN_REASON_SHAPE_MULTIPLE, at->shape.rank - 1 - k, n, want);
    }
    return qn_out_shape(c, 0, a->dtype, at->shape.rank, at->shape.d);
}

qn_status qn_infer_repeat_back(qn_infer_call *c) {
    const qn_attr_repeat_back *at = c->attr;
    const qn_tensor *g = c->src[0];
    int64_t count;
    QN_TRY(qn_op_shape_check(c, "shape", &at->shape, g->dtype, &count));
    int rank = at->shape.rank > g->rank ? at->shape.rank : g->rank;
    for (int k = 0; k < rank; k++) {
        int64_t n = k < at->shape.rank ? qn_op_dims_at(&at->shape, k) : 1, have = qn_ne(g, k);
        if (n ? have % n != 0 : have != 0)
            return qn_reject_attr(c, "shape", QN_REASON_SHAPE_DIVIDES, at->shape.rank - 1 - k, have, n);
    }
    return qn_out_shape(c, 0, g->dtype, at->shape.rank, at->shape.d);
}

/* The joined axis counted from the end; rank is that of the source with more axes. */
static int joined_axis(int32_t axis, int rank) { return axis < 0 ? -1 - axis : rank - 1 - axis; }

qn_status qn_infer_concat(qn_infer_call *c) {
    int32_t axis = ((const qn_attr_concat *)c->attr)->axis;
    const qn_tensor *a = c->src[0], *b = c->src[1];
    int rank = a->rank > b->rank ? a->rank : b->rank, joined = joined_axis(axis, rank);
    int64_t d[QN_MAX_RANK], sum;
    if (axis < -rank) return qn_reject_attr(c, "axis", QN_REASON_ATTR_LOW, -1, qn_f_bits(-rank), qn_f_bits(axis));
    if (axis >= rank) return qn_reject_attr(c, "axis", QN_REASON_ATTR_HIGH, -1, qn_f_bits(rank - 1), qn_f_bits(axis));
    for (int k = 0; k < rank; k++) {
        if (k != joined) QN_TRY(qn_need_extent(c, 1, k, qn_ne(a, k)));
        d[rank - 1 - k] = qn_ne(a, k);
    }
    if (qn_add_overflow(qn_ne(a, joined), qn_ne(b, joined), &sum))
        return qn_reject_src(c, 1, QN_REASON_SIZE_OVERFLOW, joined < b->rank ? b->rank - 1 - joined : 0, INT64_MAX,
                             qn_ne(b, joined));
    d[rank - 1 - joined] = sum;
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    return qn_out_shape(c, 0, a->dtype, rank, d);
}

/* ---- References */

static int64_t tiled(const void *p, int k, int64_t i) {
    const qn_tensor *a = p;
    return i % qn_ne(a, k);
}

qn_status qn_ref_repeat(const qn_call *c) {
    qn_op_copy_mapped(c->dst[0], c->src[0], tiled, c->src[0]);
    return QN_OK;
}

qn_status qn_ref_repeat_back(const qn_call *c) {
    static const int64_t none[QN_MAX_RANK];
    qn_op_fold(c->dst[0], c->src[0], none, 1);
    return QN_OK;
}

qn_status qn_ref_concat(const qn_call *c) {
    const qn_tensor *a = c->src[0], *b = c->src[1];
    const qn_dtype_info *d = qn_dtype_describe((qn_dtype)a->dtype);
    int rank = a->rank > b->rank ? a->rank : b->rank;
    int k = joined_axis(((const qn_attr_concat *)c->attr)->axis, rank), axis = QN_MAX_RANK - 1 - k;
    int64_t steps = k == 0 ? qn_ne(a, k) / d->block : qn_ne(a, k);
    qn_tensor part = qn_op_tensor_widen(c->dst[0]);
    part.shape[axis] = qn_ne(a, k);
    qn_copy(&part, a);
    part.shape[axis] = qn_ne(b, k);
    part.offset += steps * part.stride[axis];
    qn_copy(&part, b);
    return QN_OK;
}

/* ---- Gradients */

void qn_vjp_repeat(qn_vjp_call *v) {
    if (v->want[0]) v->out[0] = qn_e_untile_like(v, v->grad[0], v->src[0]);
}

void qn_vjp_repeat_back(qn_vjp_call *v) {
    if (!v->want[0]) return;
    qn_shape s = qn_shape_of(v, v->src[0]), g = qn_shape_of(v, v->grad[0]);
    int rank = s.rank > g.rank ? s.rank : g.rank; /* repeat cannot drop axes, not even those of extent 1 */
    int64_t d[QN_MAX_RANK];
    for (int k = 0; k < rank; k++) d[rank - 1 - k] = qn_sd(&s, k);
    v->out[0] = qn_e_like(v, qn_e_tile(v, v->grad[0], rank, d), v->src[0]);
}

void qn_vjp_concat(qn_vjp_call *v) {
    qn_shape a = qn_shape_of(v, v->src[0]), b = qn_shape_of(v, v->src[1]), g = qn_shape_of(v, v->grad[0]);
    int k = joined_axis(((const qn_attr_concat *)v->attr)->axis, a.rank > b.rank ? a.rank : b.rank), axis = g.rank - 1 - k;
    if (v->want[0]) v->out[0] = qn_e_like(v, qn_e_slice(v, v->grad[0], axis, 0, qn_sd(&a, k)), v->src[0]);
    if (v->want[1]) v->out[1] = qn_e_like(v, qn_e_slice(v, v->grad[0], axis, qn_sd(&a, k), qn_sd(&b, k)), v->src[1]);
}
