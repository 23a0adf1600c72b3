/* The vocabulary gradient rules are written in. Every helper here is one op of the table, or a few. */
#include <math.h>

#include "op/op_emit.h"

void qn_emit_many(qn_vjp_call *v, qn_op op, int subop, const void *attr, int n_src, const qn_val *src, int n_out, qn_val *out) {
    for (int i = 0; i < n_out; i++) out[i] = QN_VAL_NONE;
    if (v->status != QN_OK) return;
    v->status = v->emitter->apply(v->emitter->self, op, subop, n_src, src, attr, n_out, out);
    if (v->status != QN_OK)
        for (int i = 0; i < n_out; i++) out[i] = QN_VAL_NONE;
}

void qn_vjp_refuse(qn_vjp_call *v, int slot, const char *why) {
    if (v->status != QN_OK) return;
    v->status = QN_UNSUPPORTED;
    v->why = why;
    v->why_slot = slot;
}

qn_val qn_emit1(qn_vjp_call *v, qn_op op, int subop, const void *attr, qn_val a) {
    qn_val out;
    qn_emit_many(v, op, subop, attr, 1, &a, 1, &out);
    return out;
}

qn_val qn_emit2(qn_vjp_call *v, qn_op op, int subop, const void *attr, qn_val a, qn_val b) {
    qn_val src[2] = {a, b}, out;
    qn_emit_many(v, op, subop, attr, 2, src, 1, &out);
    return out;
}

qn_val qn_emit3(qn_vjp_call *v, qn_op op, int subop, const void *attr, qn_val a, qn_val b, qn_val c) {
    qn_val src[3] = {a, b, c}, out;
    qn_emit_many(v, op, subop, attr, 3, src, 1, &out);
    return out;
}

qn_shape qn_shape_of(qn_vjp_call *v, qn_val x) {
    qn_shape none = {QN_DTYPE_F32, 1, {0}};
    const qn_shape *s = v->status == QN_OK && x != QN_VAL_NONE ? v->emitter->shape(v->emitter->self, x) : NULL;
    return s ? *s : none;
}

/* The wider of two float dtypes when they differ: f64 if either is, else f32. */
static qn_val binary(qn_vjp_call *v, qn_op op, qn_val a, qn_val b) {
    uint32_t da = qn_shape_of(v, a).dtype, db = qn_shape_of(v, b).dtype;
    if (da != db) {
        uint32_t wide = da == QN_DTYPE_F64 || db == QN_DTYPE_F64 ? QN_DTYPE_F64 : QN_DTYPE_F32;
        a = qn_e_cast(v, a, wide);
        b = qn_e_cast(v, b, wide);
    }
    return qn_emit2(v, op, 0, NULL, a, b);
}

qn_val qn_e_add(qn_vjp_call *v, qn_val a, qn_val b) { return binary(v, QN_OP_add, a, b); }
qn_val qn_e_sub(qn_vjp_call *v, qn_val a, qn_val b) { return binary(v, QN_OP_sub, a, b); }
qn_val qn_e_mul(qn_vjp_call *v, qn_val a, qn_val b) { return binary(v, QN_OP_mul, a, b); }
qn_val qn_e_div(qn_vjp_call *v, qn_val a, qn_val b) { return binary(v, QN_OP_div, a, b); }

/* The f32 towards zero from x, so that what is left of it has its sign, and an infinity times either is the same one. */
static float most_of(double x) {
    float y = (float)x;
    return fabs((double)y) > fabs(x) ? nextafterf(y, 0) : y;
}

/* An attribute is an f32, which is too little for a gradient in f64: what it leaves of the numbers is added by a second op. */
qn_val qn_e_scale(qn_vjp_call *v, qn_val a, double s, double b) {
    qn_attr_scale at = qn_attr_scale_default(), rest = at;
    at.s = (float)s;
    at.b = (float)b;
    if (((double)at.s == s && (double)at.b == b) || !isfinite(s) || !isfinite(b) || qn_shape_of(v, a).dtype != QN_DTYPE_F64)
        return qn_emit1(v, QN_OP_scale, 0, &at, a);
    at.s = (double)at.s == s ? at.s / 2 : most_of(s);
    rest.s = (float)(s - (double)at.s);
    rest.b = (float)(b - (double)at.b);
    return qn_e_add(v, qn_emit1(v, QN_OP_scale, 0, &at, a), qn_emit1(v, QN_OP_scale, 0, &rest, a));
}

qn_val qn_e_unary(qn_vjp_call *v, qn_unary f, qn_val a) { return qn_emit1(v, QN_OP_unary, (int)f, NULL, a); }
qn_val qn_e_sum_rows(qn_vjp_call *v, qn_val a) { return qn_emit1(v, QN_OP_sum_rows, 0, NULL, a); }

qn_val qn_e_zeros(qn_vjp_call *v, qn_val like) {
    qn_attr_fill at = qn_attr_fill_default();
    return qn_emit1(v, QN_OP_fill, 0, &at, like);
}

qn_val qn_e_cast(qn_vjp_call *v, qn_val a, uint32_t dtype) {
    if (a == QN_VAL_NONE || qn_shape_of(v, a).dtype == dtype) return a;
    qn_attr_dup at = qn_attr_dup_default();
    at.dtype = (int32_t)dtype;
    return qn_emit1(v, QN_OP_dup, 0, &at, a);
}

qn_val qn_e_cont(qn_vjp_call *v, qn_val a) { return qn_emit1(v, QN_OP_cont, 0, NULL, a); }
qn_val qn_e_transpose(qn_vjp_call *v, qn_val a) { return qn_e_cont(v, qn_emit1(v, QN_OP_transpose, 0, NULL, a)); }

static qn_dims dims(int rank, const int64_t *d) {
    qn_dims out;
    memset(&out, 0, sizeof out);
    out.rank = rank;
    memcpy(out.d, d, sizeof *d * (size_t)rank);
    return out;
}

qn_val qn_e_reshape(qn_vjp_call *v, qn_val a, int rank, const int64_t *d) {
    qn_attr_cont at = qn_attr_cont_default();
    at.shape = dims(rank, d);
    return qn_emit1(v, QN_OP_cont, 0, &at, a);
}

qn_val qn_e_like(qn_vjp_call *v, qn_val a, qn_val shape_of) {
    qn_shape s = qn_shape_of(v, shape_of);
    return qn_e_reshape(v, a, s.rank, s.d);
}

qn_val qn_e_permute(qn_vjp_call *v, qn_val a, int rank, const int *axes) {
    qn_attr_permute at = qn_attr_permute_default();
    at.axes.rank = rank;
    for (int i = 0; i < rank; i++) at.axes.d[i] = axes[i];
    return qn_e_cont(v, qn_emit1(v, QN_OP_permute, 0, &at, a));
}

qn_val qn_e_tile(qn_vjp_call *v, qn_val a, int rank, const int64_t *d) {
    qn_attr_repeat at = qn_attr_repeat_default();
    at.shape = dims(rank, d);
    return qn_emit1(v, QN_OP_repeat, 0, &at, a);
}

qn_val qn_e_untile(qn_vjp_call *v, qn_val g, int rank, const int64_t *d) {
    qn_shape s = qn_shape_of(v, g);
    int same = s.rank == rank;
    for (int i = 0; same && i < rank; i++) same = s.d[i] == d[i];
    if (same) return g;
    qn_attr_repeat_back at = qn_attr_repeat_back_default();
    at.shape = dims(rank, d);
    return qn_emit1(v, QN_OP_repeat_back, 0, &at, g);
}

qn_val qn_e_untile_like(qn_vjp_call *v, qn_val g, qn_val like) {
    qn_shape s = qn_shape_of(v, like);
    return qn_e_untile(v, g, s.rank, s.d);
}

qn_val qn_e_window(qn_vjp_call *v, qn_val a, int rank, const int64_t *d, const int64_t *strides, int64_t offset) {
    qn_attr_view at = qn_attr_view_default();
    at.shape = dims(rank, d);
    at.strides = dims(rank, strides);
    at.offset = offset;
    int64_t own[QN_MAX_RANK];
    if (v->status == QN_OK && v->emitter->strides && v->emitter->strides(v->emitter->self, a, own)) a = qn_e_cont(v, a);
    return qn_e_cont(v, qn_emit1(v, QN_OP_view, 0, &at, a));
}

qn_val qn_e_slice(qn_vjp_call *v, qn_val a, int axis, int64_t start, int64_t n) {
    qn_val dense = qn_e_cont(v, a);
    qn_shape s = qn_shape_of(v, dense);
    const qn_dtype_info *d = qn_dtype_describe((qn_dtype)s.dtype);
    int64_t strides[QN_MAX_RANK] = {0}, step = d->bytes;
    for (int i = s.rank - 1; i >= 0; i--) {
        strides[i] = step;
        step *= i == s.rank - 1 ? s.d[i] / d->block : s.d[i];
    }
    s.d[axis] = n;
    return qn_e_window(v, dense, s.rank, s.d, strides, start * strides[axis]);
}
