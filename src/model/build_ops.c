/* Ops and weights as the builder of models wants them. */
#include <stdarg.h>
#include <stdio.h>

#include "model/build.h"

QN_PRINTF(3, 4) void qn_build_fail(qn_build *b, qn_status status, const char *format, ...) {
    if (b->status != QN_OK) return;
    char text[sizeof b->error->text];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    b->status = qn_error_set(b->error, status, "%s", text);
}

/* ---- Ops */

qn_val qn_build_op(qn_build *b, int op, int subop, int n, const qn_val *src, const void *attr) {
    return b->status == QN_OK ? qn_graph_op(b->g, op, subop, n, src, attr) : QN_VAL_NONE;
}

qn_val qn_build_one(qn_build *b, int op, qn_val a) { return qn_build_op(b, op, 0, 1, &a, NULL); }
qn_val qn_build_two(qn_build *b, int op, qn_val a, qn_val c) { return qn_build_op(b, op, 0, 2, (qn_val[]){a, c}, NULL); }
qn_val qn_build_unary(qn_build *b, qn_unary kind, qn_val a) { return qn_build_op(b, QN_OP_unary, kind, 1, &a, NULL); }

qn_val qn_build_scale(qn_build *b, qn_val a, float by) {
    if (by == 0 || by == 1) return a;
    qn_attr_scale at = qn_attr_scale_default();
    at.s = by;
    return qn_build_op(b, QN_OP_scale, 0, 1, &a, &at);
}

static qn_dims dims(int n, const int64_t *d) {
    qn_dims list;
    memset(&list, 0, sizeof list);
    list.rank = n;
    for (int i = 0; i < n; i++) list.d[i] = d[i];
    return list;
}

qn_val qn_build_reshape(qn_build *b, qn_val a, int rank, const int64_t *shape) {
    qn_attr_reshape at = qn_attr_reshape_default();
    at.shape = dims(rank, shape);
    return qn_build_op(b, QN_OP_reshape, 0, 1, &a, &at);
}

qn_val qn_build_expand(qn_build *b, qn_val a, int rank, const int64_t *shape) {
    qn_attr_expand at = qn_attr_expand_default();
    at.shape = dims(rank, shape);
    return qn_build_op(b, QN_OP_expand, 0, 1, &a, &at);
}

qn_val qn_build_permute(qn_build *b, qn_val a, int rank, const int64_t *axes) {
    qn_attr_permute at = qn_attr_permute_default();
    at.axes = dims(rank, axes);
    return qn_build_op(b, QN_OP_permute, 0, 1, &a, &at);
}

qn_val qn_build_view(qn_build *b, qn_val a, int rank, const int64_t *shape, const int64_t *strides, int64_t offset) {
    qn_attr_view at = qn_attr_view_default();
    at.shape = dims(rank, shape);
    at.strides = dims(rank, strides);
    at.offset = offset;
    return qn_build_op(b, QN_OP_view, 0, 1, &a, &at);
}

qn_val qn_build_narrow(qn_build *b, qn_val a, int64_t start, int64_t length) {
    qn_attr_narrow at = qn_attr_narrow_default();
    at.start = start;
    at.length = length;
    return qn_build_op(b, QN_OP_narrow, 0, 1, &a, &at);
}

/* ---- Weights */

static void full_name(const qn_build *b, const char *name, char full[160]) {
    if (b->layer < 0) snprintf(full, 160, "%s", name);
    else snprintf(full, 160, "blk.%d.%s", b->layer, name);
}

int qn_build_has(const qn_build *b, const char *name) {
    char full[160];
    full_name(b, name, full);
    return qn_file_find(b->m->file, QN_FILE_TENSORS, full) >= 0;
}

int64_t qn_build_rows(const qn_build *b, const char *name, int64_t standard) {
    char full[160];
    qn_file_tensor t;
    full_name(b, name, full);
    if (qn_file_entry(b->m->file, qn_file_find(b->m->file, QN_FILE_TENSORS, full), &t) != QN_OK || t.tensor.rank < 2)
        return standard;
    return t.tensor.shape[t.tensor.rank - 2];
}

static void shape_text(int rank, const int64_t *shape, char text[96]) {
    size_t n = 0;
    text[0] = 0;
    for (int k = 0; k < rank; k++) n += (size_t)snprintf(text + n, 96 - n, k ? ", %lld" : "%lld", (long long)shape[k]);
}

/* One axis may be written as several: [heads, length] for [heads * length]. */
static int same_shape(const qn_tensor *t, int rank, const int64_t *shape) {
    if (rank == 1) return qn_tensor_count(t) == shape[0];
    const int64_t *have = t->shape;
    int have_rank = t->rank;
    for (; have_rank > rank && *have == 1; have++) have_rank--; /* a stack of one */
    if (have_rank != rank) return 0;
    for (int k = 0; k < rank; k++)
        if (have[k] != shape[k]) return 0;
    return 1;
}

qn_val qn_build_weight(qn_build *b, const char *name, int needed, int rank, const int64_t *shape) {
    char full[160], have[96], want[96];
    qn_file_tensor t;
    full_name(b, name, full);
    if (b->status != QN_OK) return QN_VAL_NONE;
    if (qn_file_entry(b->m->file, qn_file_find(b->m->file, QN_FILE_TENSORS, full), &t) != QN_OK) {
        if (needed) qn_build_fail(b, QN_FORMAT, "the tensor %s is missing", full);
        return QN_VAL_NONE;
    }
    if (!same_shape(&t.tensor, rank, shape)) {
        shape_text(t.tensor.rank, t.tensor.shape, have);
        shape_text(rank, shape, want);
        qn_build_fail(b, QN_FORMAT, "the tensor %s is [%s], the model needs [%s]", full, have, want);
        return QN_VAL_NONE;
    }
    return qn_graph_param(b->g, full, (qn_dtype)t.tensor.dtype, t.tensor.rank, t.tensor.shape);
}

qn_val qn_build_small(qn_build *b, const char *name, int needed, int rank, const int64_t *shape) {
    char full[160];
    qn_file_tensor t;
    qn_val w = qn_build_weight(b, name, needed, rank, shape);
    full_name(b, name, full);
    if (w == QN_VAL_NONE || qn_file_entry(b->m->file, qn_file_find(b->m->file, QN_FILE_TENSORS, full), &t) != QN_OK) return w;
    if (t.tensor.dtype != QN_DTYPE_F32) {
        qn_attr_cast at = qn_attr_cast_default();
        at.dtype = QN_DTYPE_F32;
        w = qn_build_op(b, QN_OP_cast, 0, 1, &w, &at);
    }
    return t.tensor.rank == rank ? w : qn_build_reshape(b, w, rank, shape);
}

static int has_bias(const qn_build *b, const char *name) {
    int projects = strncmp(name, "attn_", 5) == 0 && strcmp(name, "attn_output") != 0;
    return !(b->m->arch->has & (projects ? QN_LACKS_QKV_EXTRAS : QN_LACKS_BIASES));
}

qn_val qn_build_linear(qn_build *b, qn_val x, const char *name, int64_t in, int64_t out, int scale) {
    char part[96];
    snprintf(part, sizeof part, "%s.weight", name);
    qn_val w = qn_build_weight(b, part, 1, 2, (int64_t[]){out, in});
    qn_val y = qn_build_two(b, QN_OP_mul_mat, w, x);
    snprintf(part, sizeof part, "%s.bias", name);
    qn_val bias = has_bias(b, name) ? qn_build_small(b, part, 0, 1, &out) : QN_VAL_NONE;
    snprintf(part, sizeof part, "%s.scale", name);
    qn_val factor = scale == QN_SCALE_NEVER ? QN_VAL_NONE : qn_build_small(b, part, 0, 1, (int64_t[]){1});
    if (factor != QN_VAL_NONE && scale == QN_SCALE_FIRST) y = qn_build_two(b, QN_OP_mul, y, factor);
    if (bias != QN_VAL_NONE) y = qn_build_two(b, QN_OP_add, y, bias);
    if (factor != QN_VAL_NONE && scale == QN_SCALE_LAST) y = qn_build_two(b, QN_OP_mul, y, factor);
    return y;
}

qn_val qn_build_normalise(qn_build *b, qn_val x) {
    if (b->m->arch->norm == QN_NORM_RMS) {
        qn_attr_rms_norm at = qn_attr_rms_norm_default();
        at.eps = b->m->h.eps;
        return qn_build_op(b, QN_OP_rms_norm, 0, 1, &x, &at);
    }
    qn_attr_norm at = qn_attr_norm_default();
    at.eps = b->m->h.eps;
    return qn_build_op(b, QN_OP_norm, 0, 1, &x, &at);
}

qn_val qn_build_norm(qn_build *b, qn_val x, const char *name) {
    char part[96];
    int64_t n = b->m->h.n_embd;
    x = qn_build_normalise(b, x);
    if (b->m->arch->norm == QN_NORM_BARE) return x;
    snprintf(part, sizeof part, "%s.weight", name);
    x = qn_build_two(b, QN_OP_mul, x, qn_build_small(b, part, 1, 1, &n));
    snprintf(part, sizeof part, "%s.bias", name);
    qn_val bias = qn_build_small(b, part, 0, 1, &n);
    return bias == QN_VAL_NONE ? x : qn_build_two(b, QN_OP_add, x, bias);
}
