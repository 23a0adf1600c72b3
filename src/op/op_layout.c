/* Copies and the views that only rename axes: dup, cpy, cont, reshape, permute, transpose. A copy to the same dtype moves bits,
 * so NaN payloads and 64-bit integers come out as they went in. Views write nothing: their rule is the whole op. */
#include "op/op_layout.h"
#include "op/op_emit.h"

qn_tensor qn_op_tensor_widen(const qn_tensor *t) {
    qn_tensor w = *t;
    int more = QN_MAX_RANK - t->rank;
    w.rank = QN_MAX_RANK;
    for (int i = 0; i < QN_MAX_RANK; i++) {
        w.shape[i] = i < more ? 1 : t->shape[i - more];
        w.stride[i] = i < more ? 0 : t->stride[i - more];
    }
    return w;
}

/* ---- Shape rules */

qn_status qn_op_shape_check(qn_infer_call *c, const char *attr, const qn_dims *shape, uint32_t dtype, int64_t *count) {
    const qn_dtype_info *d = qn_dtype_describe((qn_dtype)dtype);
    int64_t bytes = d->bytes, empty = 0;
    *count = 1;
    for (int i = 0; i < shape->rank; i++) {
        int64_t n = shape->d[i];
        if (n < 0) return qn_reject_attr(c, attr, QN_REASON_NEGATIVE_EXTENT, i, 0, n);
        if (n == 0) empty = 1; /* the other extents still count: dense strides are made of them */
        else if (qn_mul_overflow(*count, n, count) || qn_mul_overflow(bytes, n, &bytes))
            return qn_reject_attr(c, attr, QN_REASON_SIZE_OVERFLOW, i, INT64_MAX, n);
    }
    int last = shape->rank - 1;
    if (shape->d[last] % d->block) return qn_reject_attr(c, attr, QN_REASON_PARTIAL_BLOCK, last, d->block, shape->d[last]);
    if (empty) *count = 0;
    return QN_OK;
}

qn_status qn_op_list_check(qn_infer_call *c, const char *attr, const qn_dims *list, int may_be_empty) {
    if (list->rank == c->src[0]->rank || (may_be_empty && list->rank == 0)) return QN_OK;
    return qn_reject_attr(c, attr, QN_REASON_ATTR_RANK, -1, c->src[0]->rank, list->rank);
}

/* A copy into a dtype (0: the source's own) and shape. What no backend could do is rejected before what ours cannot. */
static qn_status copy_out(qn_infer_call *c, int32_t wanted, int rank, const int64_t *d) {
    uint32_t from = c->src[0]->dtype, to = wanted ? (uint32_t)wanted : from;
    QN_TRY(qn_out_shape(c, 0, to, rank, d));
    if (!qn_can_convert((qn_dtype)from, (qn_dtype)to)) return qn_reject_unsupported(c, 0, QN_REASON_DTYPE_CONVERT, to, from);
    return QN_OK;
}

qn_status qn_infer_dup(qn_infer_call *c) {
    return copy_out(c, ((const qn_attr_dup *)c->attr)->dtype, c->src[0]->rank, c->src[0]->shape);
}

/* Rejects a shape attribute that has not as many elements as source 0. */
static qn_status need_count(qn_infer_call *c, const qn_dims *shape, uint32_t dtype) {
    int64_t have = qn_tensor_count(c->src[0]), count;
    QN_TRY(qn_op_shape_check(c, "shape", shape, dtype, &count));
    return count == have ? QN_OK : qn_reject_attr(c, "shape", QN_REASON_SHAPE_COUNT, -1, have, count);
}

qn_status qn_infer_cont(qn_infer_call *c) {
    const qn_attr_cont *at = c->attr;
    if (at->shape.rank == 0) return copy_out(c, at->dtype, c->src[0]->rank, c->src[0]->shape);
    QN_TRY(need_count(c, &at->shape, QN_DTYPE_I8)); /* as single bytes: what they become is checked with the result */
    return copy_out(c, at->dtype, at->shape.rank, at->shape.d);
}

qn_status qn_infer_cpy(qn_infer_call *c) {
    const qn_tensor *a = c->src[0], *b = c->src[1];
    int64_t have = qn_tensor_count(a), room = qn_tensor_count(b);
    if (have != room) return qn_reject_src(c, 1, QN_REASON_SHAPE_COUNT, -1, have, room);
    if (!qn_can_convert((qn_dtype)a->dtype, (qn_dtype)b->dtype))
        return qn_reject_unsupported(c, 0, QN_REASON_DTYPE_CONVERT, b->dtype, a->dtype);
    qn_out_like(c, 0, b, b->dtype);
    return QN_OK;
}

qn_status qn_infer_reshape(qn_infer_call *c) {
    const qn_attr_reshape *at = c->attr;
    const qn_tensor *a = c->src[0];
    QN_TRY(need_count(c, &at->shape, a->dtype));
    QN_TRY(qn_need_contiguous(c, 0));
    const qn_dtype_info *d = qn_dtype_describe((qn_dtype)a->dtype);
    int64_t step = d->bytes;
    for (int i = at->shape.rank - 1; i >= 0; i--) {
        int64_t n = i == at->shape.rank - 1 ? at->shape.d[i] / d->block : at->shape.d[i];
        c->view_stride[i] = step;
        step *= n ? n : 1; /* fits: need_count multiplied the same numbers */
    }
    c->view_offset = a->offset;
    return qn_out_shape(c, 0, a->dtype, at->shape.rank, at->shape.d);
}

qn_status qn_infer_permute(qn_infer_call *c) {
    const qn_attr_permute *at = c->attr;
    const qn_tensor *a = c->src[0];
    int64_t d[QN_MAX_RANK];
    unsigned seen = 0;
    QN_TRY(qn_op_list_check(c, "axes", &at->axes, 0));
    for (int i = 0; i < a->rank; i++) {
        int64_t from = at->axes.d[i];
        if (from < 0) return qn_reject_attr(c, "axes", QN_REASON_ATTR_ENTRY_LOW, i, 0, from);
        if (from >= a->rank) return qn_reject_attr(c, "axes", QN_REASON_ATTR_ENTRY_HIGH, i, a->rank - 1, from);
        if (seen >> from & 1) return qn_reject_attr(c, "axes", QN_REASON_ATTR_REPEATED, i, 0, from);
        seen |= 1u << from;
        d[i] = a->shape[from];
        c->view_stride[i] = a->stride[from];
    }
    int last = a->rank - 1; /* where blocks lie */
    if (qn_is_block(a->dtype) && at->axes.d[last] != last)
        return qn_reject_attr(c, "axes", QN_REASON_ATTR_EXTENT, last, last, at->axes.d[last]);
    c->view_offset = a->offset;
    return qn_out_shape(c, 0, a->dtype, a->rank, d);
}

qn_status qn_infer_transpose(qn_infer_call *c) {
    const qn_tensor *a = c->src[0];
    if (qn_is_block(a->dtype)) return qn_reject_src(c, 0, QN_REASON_DTYPE_CLASS, -1, 0, a->dtype);
    int rank = a->rank < 2 ? 2 : a->rank; /* a single axis is a matrix of one row */
    int64_t d[QN_MAX_RANK];
    for (int i = 0; i < rank - 2; i++) {
        d[i] = a->shape[i];
        c->view_stride[i] = a->stride[i];
    }
    d[rank - 2] = qn_ne(a, 0);
    d[rank - 1] = qn_ne(a, 1);
    c->view_stride[rank - 2] = qn_nb(a, 0);
    c->view_stride[rank - 1] = a->rank < 2 ? qn_dtype_bytes(a->dtype) : qn_nb(a, 1);
    c->view_offset = a->offset;
    return qn_out_shape(c, 0, a->dtype, rank, d);
}

/* The very view that a is. */
qn_status qn_infer_barrier(qn_infer_call *c) {
    const qn_tensor *a = c->src[0];
    memcpy(c->view_stride, a->stride, sizeof a->stride);
    c->view_offset = a->offset;
    return qn_out_shape(c, 0, a->dtype, a->rank, a->shape);
}

/* ---- References */

qn_status qn_ref_dup(const qn_call *c) {
    qn_copy(c->dst[0], c->src[0]);
    return QN_OK;
}
qn_status qn_ref_cont(const qn_call *c) { return qn_ref_dup(c); }
qn_status qn_ref_cpy(const qn_call *c) { return qn_ref_dup(c); }

static qn_status writes_nothing(const qn_call *c) {
    (void)c;
    return QN_OK;
}
qn_status qn_ref_reshape(const qn_call *c) { return writes_nothing(c); }
qn_status qn_ref_permute(const qn_call *c) { return writes_nothing(c); }
qn_status qn_ref_transpose(const qn_call *c) { return writes_nothing(c); }
qn_status qn_ref_barrier(const qn_call *c) { return writes_nothing(c); }

/* ---- Gradients */

/* The gradient as a copy sees it: none comes back through integers, whose steps are flat; through a block type it passes
 * straight, as if nothing had been rounded. */
static qn_val copy_grad(qn_vjp_call *v) {
    uint32_t dtype = qn_shape_of(v, v->dst[0]).dtype;
    return qn_is_float(dtype) || qn_is_block(dtype) ? v->grad[0] : QN_VAL_NONE;
}

void qn_vjp_cast(qn_vjp_call *v) {
    if (v->want[0]) v->out[0] = copy_grad(v);
}

static qn_val reshaped_grad(qn_vjp_call *v) {
    qn_val g = copy_grad(v);
    return g == QN_VAL_NONE ? g : qn_e_like(v, g, v->src[0]);
}

void qn_vjp_cpy(qn_vjp_call *v) {
    if (v->want[0]) v->out[0] = reshaped_grad(v);
    if (v->want[1]) v->out[1] = QN_VAL_NONE; /* b lends only its place */
}

void qn_vjp_cont(qn_vjp_call *v) {
    if (v->want[0]) v->out[0] = reshaped_grad(v);
}

void qn_vjp_reshape(qn_vjp_call *v) {
    if (v->want[0]) v->out[0] = qn_e_like(v, v->grad[0], v->src[0]);
}

void qn_vjp_permute(qn_vjp_call *v) {
    const qn_attr_permute *at = v->attr;
    int back[QN_MAX_RANK];
    if (!v->want[0]) return;
    for (int i = 0; i < at->axes.rank; i++) back[at->axes.d[i]] = i;
    v->out[0] = qn_e_permute(v, v->grad[0], at->axes.rank, back);
}

void qn_vjp_transpose(qn_vjp_call *v) {
    if (v->want[0]) v->out[0] = qn_e_like(v, qn_e_transpose(v, v->grad[0]), v->src[0]);
}

/* What it waits for has no part in the result. */
void qn_vjp_barrier(qn_vjp_call *v) {
    if (v->want[0]) v->out[0] = v->grad[0];
}
