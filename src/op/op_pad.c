/* Tensors grown or turned along their axes: pad (zeros or wrapped around), its adjoint pad_back, pad_reflect_1d, roll. Every one
 * is a copy with an index map on each axis. */
#include "op/op_emit.h"
#include "op/op_layout.h"

/* ---- Shape rules */

/* Rejects lists of pads that do not fit the axes or are negative. */
static qn_status need_pads(qn_infer_call *c, const char *name, const qn_dims *pads) {
    QN_TRY(qn_op_list_check(c, name, pads, 1));
    for (int i = 0; i < pads->rank; i++)
        if (pads->d[i] < 0) return qn_reject_attr(c, name, QN_REASON_ATTR_ENTRY_LOW, i, 0, pads->d[i]);
    return QN_OK;
}

qn_status qn_infer_pad(qn_infer_call *c) {
    const qn_attr_pad *at = c->attr;
    const qn_tensor *a = c->src[0];
    int64_t d[QN_MAX_RANK];
    QN_TRY(need_pads(c, "left", &at->left));
    QN_TRY(need_pads(c, "right", &at->right));
    for (int k = 0; k < a->rank; k++) {
        int i = a->rank - 1 - k;
        if (at->circular && a->shape[i] == 0) return qn_reject_src(c, 0, QN_REASON_SHAPE_EMPTY, i, 1, 0);
        if (qn_add_overflow(a->shape[i], qn_op_dims_at(&at->left, k), &d[i]))
            return qn_reject_attr(c, "left", QN_REASON_SIZE_OVERFLOW, i, INT64_MAX, qn_op_dims_at(&at->left, k));
        if (qn_add_overflow(d[i], qn_op_dims_at(&at->right, k), &d[i]))
            return qn_reject_attr(c, "right", QN_REASON_SIZE_OVERFLOW, i, INT64_MAX, qn_op_dims_at(&at->right, k));
    }
    return qn_out_shape(c, 0, a->dtype, a->rank, d);
}

qn_status qn_infer_pad_back(qn_infer_call *c) {
    const qn_attr_pad_back *at = c->attr;
    const qn_tensor *g = c->src[0];
    int64_t d[QN_MAX_RANK];
    QN_TRY(need_pads(c, "left", &at->left));
    QN_TRY(need_pads(c, "right", &at->right));
    for (int k = 0; k < g->rank; k++) {
        int i = g->rank - 1 - k;
        int64_t least; /* what pad could have given: the pads, and something to wrap around */
        if (qn_add_overflow(qn_op_dims_at(&at->left, k), qn_op_dims_at(&at->right, k), &least)) least = INT64_MAX;
        d[i] = g->shape[i] - least;
        if (d[i] < (at->circular ? 1 : 0)) return qn_reject_src(c, 0, QN_REASON_SHAPE_SMALL, i, least, g->shape[i]);
    }
    return qn_out_shape(c, 0, g->dtype, g->rank, d);
}

qn_status qn_infer_pad_reflect_1d(qn_infer_call *c) {
    const qn_attr_pad_reflect_1d *at = c->attr;
    const qn_tensor *a = c->src[0];
    int64_t n = qn_ne(a, 0), most = n ? n - 1 : 0, d[QN_MAX_RANK], *last = &d[a->rank - 1];
    if (at->left > most)
        return qn_reject_attr(c, "left", QN_REASON_ATTR_HIGH, -1, qn_f_bits((double)most), qn_f_bits((double)at->left));
    if (at->right > most)
        return qn_reject_attr(c, "right", QN_REASON_ATTR_HIGH, -1, qn_f_bits((double)most), qn_f_bits((double)at->right));
    memcpy(d, a->shape, sizeof d);
    if (qn_add_overflow(n, at->left, last) || qn_add_overflow(*last, at->right, last))
        return qn_reject_src(c, 0, QN_REASON_SIZE_OVERFLOW, a->rank - 1, INT64_MAX, n);
    return qn_out_shape(c, 0, a->dtype, a->rank, d);
}

qn_status qn_infer_roll(qn_infer_call *c) {
    const qn_attr_roll *at = c->attr;
    const qn_tensor *a = c->src[0];
    QN_TRY(qn_op_list_check(c, "shift", &at->shift, 0));
    for (int i = 0; i < a->rank; i++) {
        int64_t most = a->shape[i] ? a->shape[i] - 1 : 0, shift = at->shift.d[i];
        if (shift > most) return qn_reject_attr(c, "shift", QN_REASON_ATTR_ENTRY_HIGH, i, most, shift);
        if (shift < -most) return qn_reject_attr(c, "shift", QN_REASON_ATTR_ENTRY_LOW, i, -most, shift);
    }
    qn_out_like(c, 0, a, a->dtype);
    return QN_OK;
}

/* ---- References */

/* i modulo n, never negative. */
static int64_t wrapped(int64_t i, int64_t n) {
    int64_t r = i % n;
    return r < 0 ? r + n : r;
}

typedef struct pad_map {
    const qn_attr_pad *at;
    const qn_tensor *a;
} pad_map;

static int64_t padded(const void *p, int k, int64_t i) {
    const pad_map *m = p;
    int64_t n = qn_ne(m->a, k), from = i - qn_op_dims_at(&m->at->left, k);
    if (m->at->circular) return wrapped(from, n);
    return from < n ? from : -1;
}

qn_status qn_ref_pad(const qn_call *c) {
    pad_map m = {c->attr, c->src[0]};
    qn_op_copy_mapped(c->dst[0], c->src[0], padded, &m);
    return QN_OK;
}

qn_status qn_ref_pad_back(const qn_call *c) {
    const qn_attr_pad_back *at = c->attr;
    int64_t left[QN_MAX_RANK];
    for (int k = 0; k < QN_MAX_RANK; k++) left[QN_MAX_RANK - 1 - k] = qn_op_dims_at(&at->left, k);
    qn_op_fold(c->dst[0], c->src[0], left, at->circular);
    return QN_OK;
}

typedef struct reflect_map {
    int64_t left, n;
} reflect_map;

static int64_t reflected(const void *p, int k, int64_t i) {
    const reflect_map *m = p;
    if (k) return i;
    int64_t from = i < m->left ? m->left - i : i - m->left;
    return from < m->n ? from : 2 * (m->n - 1) - from;
}

qn_status qn_ref_pad_reflect_1d(const qn_call *c) {
    const qn_attr_pad_reflect_1d *at = c->attr;
    reflect_map m = {at->left, qn_ne(c->src[0], 0)};
    qn_op_copy_mapped(c->dst[0], c->src[0], reflected, &m);
    return QN_OK;
}

typedef struct roll_map {
    const qn_dims *shift;
    const qn_tensor *a;
} roll_map;

static int64_t rolled(const void *p, int k, int64_t i) {
    const roll_map *m = p;
    return wrapped(i - qn_op_dims_at(m->shift, k), qn_ne(m->a, k));
}

qn_status qn_ref_roll(const qn_call *c) {
    roll_map m = {&((const qn_attr_roll *)c->attr)->shift, c->src[0]};
    qn_op_copy_mapped(c->dst[0], c->src[0], rolled, &m);
    return QN_OK;
}

/* ---- Gradients */

void qn_vjp_pad(qn_vjp_call *v) {
    const qn_attr_pad *at = v->attr;
    qn_attr_pad_back back = qn_attr_pad_back_default();
    back.left = at->left;
    back.right = at->right;
    back.circular = at->circular;
    if (v->want[0]) v->out[0] = qn_emit1(v, QN_OP_pad_back, 0, &back, v->grad[0]);
}

void qn_vjp_pad_back(qn_vjp_call *v) {
    const qn_attr_pad_back *at = v->attr;
    qn_attr_pad forth = qn_attr_pad_default();
    forth.left = at->left;
    forth.right = at->right;
    forth.circular = at->circular;
    if (v->want[0]) v->out[0] = qn_emit1(v, QN_OP_pad, 0, &forth, v->grad[0]);
}

/* Elements [start, start + n) of the last axis in reverse, with `before` zeros in front and `behind` after them. */
static qn_val mirrored(qn_vjp_call *v, qn_val g, int64_t start, int64_t n, int64_t before, int64_t behind) {
    qn_shape s = qn_shape_of(v, g);
    if (v->status != QN_OK) return QN_VAL_NONE;
    qn_attr_pad pad = qn_attr_pad_default();
    int64_t stride[QN_MAX_RANK], bytes = qn_dtype_bytes(s.dtype), step = bytes;
    for (int i = s.rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= s.d[i] ? s.d[i] : 1;
    }
    int last = s.rank - 1;
    s.d[last] = n;
    stride[last] = -bytes;
    pad.left.rank = pad.right.rank = s.rank;
    pad.left.d[last] = before;
    pad.right.d[last] = behind;
    return qn_emit1(v, QN_OP_pad, 0, &pad, qn_e_window(v, g, s.rank, s.d, stride, (start + n - 1) * bytes));
}

/* Each tail is a mirror image of samples next to the edge and adds back onto them. */
void qn_vjp_pad_reflect_1d(qn_vjp_call *v) {
    const qn_attr_pad_reflect_1d *at = v->attr;
    qn_shape x = qn_shape_of(v, v->src[0]), s = qn_shape_of(v, v->grad[0]);
    if (!v->want[0] || v->status != QN_OK) return;
    int64_t n = qn_sd(&x, 0), left = at->left, right = at->right;
    qn_val whole = qn_e_cont(v, v->grad[0]), sum = qn_e_slice(v, whole, s.rank - 1, left, n);
    if (left) sum = qn_e_add(v, sum, mirrored(v, whole, 0, left, 1, n - 1 - left));
    if (right) sum = qn_e_add(v, sum, mirrored(v, whole, left + n, right, n - 1 - right, 1));
    v->out[0] = sum;
}

void qn_vjp_roll(qn_vjp_call *v) {
    qn_attr_roll back = *(const qn_attr_roll *)v->attr;
    for (int i = 0; i < back.shift.rank; i++) back.shift.d[i] = -back.shift.d[i];
    if (v->want[0]) v->out[0] = qn_emit1(v, QN_OP_roll, 0, &back, v->grad[0]);
}
