/* What fusion makes around rms_norm, and of a short convolution with its state. References run the references of what was fused,
 * one after the other over the destination, so a fused op gives the bits of its parts. */
#include "op/op_fused.h"
#include "op/product.h"

_Static_assert(offsetof(qn_attr_rms_norm_add, eps) == offsetof(qn_attr_rms_norm, eps), "shared attributes");
_Static_assert(offsetof(qn_attr_rms_norm_gate, eps) == offsetof(qn_attr_rms_norm, eps), "shared attributes");
_Static_assert(offsetof(qn_attr_rms_norm_group, eps) == offsetof(qn_attr_rms_norm, eps), "shared attributes");
_Static_assert(offsetof(qn_attr_rms_norm_rope, n_offs) == offsetof(qn_attr_rope, n_offs), "shared attributes");

/* ---- Shape rules */

/* x has columns, and the weights at `slot`, if there are any, one for each. */
static qn_status check_norm(qn_infer_call *c, int slot) {
    const qn_tensor *x = c->src[0];
    if (qn_ne(x, 0) == 0) return qn_reject_src(c, 0, QN_REASON_SHAPE_EMPTY, qn_axis(x, 0), 1, 0);
    if (!c->src[slot]) return QN_OK;
    QN_TRY(qn_need_rank(c, slot, 1));
    QN_TRY(qn_need_extent(c, slot, 0, qn_ne(x, 0)));
    return qn_op_addend_check(c, slot, x->dtype);
}

qn_status qn_infer_rms_norm_add(qn_infer_call *c) {
    const qn_tensor *x = c->src[0], *scale = c->src[3];
    QN_TRY(check_norm(c, 2));
    QN_TRY(qn_need_same_shape(c, 1, 0));
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    if (scale) {
        QN_TRY(qn_need_rank(c, 3, 1));
        if (qn_ne(scale, 0) != 1) QN_TRY(qn_need_extent(c, 3, 0, qn_ne(x, 0)));
        QN_TRY(qn_need_same_dtype(c, 3, 0));
    }
    c->flops_each = 9;
    qn_out_like(c, 0, x, x->dtype);
    return QN_OK;
}

qn_status qn_infer_rms_norm_gate(qn_infer_call *c) {
    const qn_tensor *x = c->src[0];
    QN_TRY(qn_op_act_check(c, ((const qn_attr_rms_norm_gate *)c->attr)->act));
    QN_TRY(check_norm(c, 2));
    QN_TRY(qn_need_same_shape(c, 1, 0));
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    c->workspace = QN_RUN * sizeof(double);
    c->flops_each = 12;
    qn_out_like(c, 0, x, x->dtype);
    return QN_OK;
}

qn_status qn_infer_rms_norm_rope(qn_infer_call *c) {
    QN_TRY(check_norm(c, 3));
    QN_TRY(qn_infer_rope(c));
    c->flops_each = 11;
    return QN_OK;
}

qn_status qn_infer_rms_norm_group(qn_infer_call *c) {
    const qn_tensor *x = c->src[0];
    for (int i = 0; i < 4; i++) QN_TRY(check_norm(c, 1 + i));
    if (c->src[4] && !c->src[3]) return qn_reject_src(c, 3, QN_REASON_MISSING, -1, 0, 0);
    int n = c->src[4] ? 4 : c->src[3] ? 3 : 2;
    for (int i = 0; i < n; i++) qn_out_like(c, i, x, x->dtype);
    c->flops_each = 3.0 + n;
    return QN_OK;
}

qn_status qn_infer_ssm_conv_silu(qn_infer_call *c) {
    const qn_tensor *state = c->src[0], *x = c->src[1], *w = c->src[2];
    QN_TRY(qn_need_rank(c, 1, 3));
    QN_TRY(qn_need_rank(c, 2, 2));
    QN_TRY(qn_need_extent(c, 2, 1, qn_ne(x, 1)));
    if (qn_ne(w, 0) == 0) return qn_reject_src(c, 2, QN_REASON_SHAPE_EMPTY, qn_axis(w, 0), 1, 0);
    QN_TRY(qn_need_rank(c, 0, 3));
    QN_TRY(qn_need_extent(c, 0, 0, qn_ne(w, 0) - 1));
    QN_TRY(qn_need_extent(c, 0, 1, qn_ne(x, 1)));
    QN_TRY(qn_need_extent(c, 0, 2, qn_ne(x, 2)));
    for (int i = 1; i < 3; i++) QN_TRY(qn_need_same_dtype(c, i, 0));
    if (qn_ne(x, 0) == 0) return qn_reject_src(c, 1, QN_REASON_SHAPE_EMPTY, qn_axis(x, 0), 1, 0);
    c->flops_each = 2.0 * (double)qn_ne(w, 0) + 5;
    int64_t y[3] = {qn_ne(x, 2), qn_ne(x, 0), qn_ne(x, 1)}, joined[3] = {y[0], y[2], 0};
    if (qn_add_overflow(qn_ne(x, 0), qn_ne(state, 0), &joined[2]))
        return qn_reject_src(c, 1, QN_REASON_SIZE_OVERFLOW, qn_axis(x, 0), INT64_MAX, qn_ne(x, 0));
    int rank = x->rank > state->rank ? x->rank : state->rank;
    if (rank > 3) rank = 3;
    QN_TRY(qn_out_shape(c, 0, x->dtype, 3, y));
    return qn_out_shape(c, 1, x->dtype, rank, joined + 3 - rank);
}

/* ---- References */

static qn_status norm_into(const qn_tensor *y, const qn_tensor *x, const qn_tensor *gamma, float eps) {
    const qn_tensor *src[QN_MAX_SRC] = {x, gamma}, *dst[QN_MAX_DST] = {y};
    qn_attr_rms_norm plain = qn_attr_rms_norm_default();
    qn_attr_rms_layer_norm weighted = qn_attr_rms_layer_norm_default();
    plain.eps = weighted.eps = eps;
    if (!gamma) return qn_ref_rms_norm(&(qn_call){QN_OP_rms_norm, 0, 1, 1, src, dst, &plain, NULL});
    return qn_ref_rms_layer_norm(&(qn_call){QN_OP_rms_layer_norm, 0, 2, 1, src, dst, &weighted, NULL});
}

static const qn_tensor *given(const qn_call *c, int slot) { return slot < c->n_src ? c->src[slot] : NULL; }

qn_status qn_ref_rms_norm_add(const qn_call *c) {
    const qn_tensor *y = c->dst[0], *scale = given(c, 3);
    const qn_tensor *src[QN_MAX_SRC] = {y, scale}, *dst[QN_MAX_DST] = {y};
    qn_attr_mul at = qn_attr_mul_default();
    QN_TRY(norm_into(y, c->src[0], given(c, 2), ((const qn_attr_rms_norm_add *)c->attr)->eps));
    qn_op_addend_apply(y, c->src[1]);
    return scale ? qn_ref_mul(&(qn_call){QN_OP_mul, 0, 2, 1, src, dst, &at, NULL}) : QN_OK;
}

/* The gate's activation is rounded like any other result, in a run of the workspace. */
qn_status qn_ref_rms_norm_gate(const qn_call *c) {
    const qn_attr_rms_norm_gate *at = c->attr;
    const qn_tensor *y = c->dst[0], *z = c->src[1];
    int64_t each = qn_dtype_bytes(z->dtype);
    double a[QN_RUN], b[QN_RUN];
    qn_rows it;
    QN_TRY(norm_into(y, c->src[0], given(c, 2), at->eps));
    for (qn_rows_begin(&it, y->rank, y->shape); it.live; qn_rows_next(&it))
        for (int64_t first = 0; first < it.n; first += QN_RUN) {
            int64_t some = qn_some(it.n, first);
            qn_tensor gate = {
                .data = c->workspace, .size = QN_RUN * sizeof(double), .dtype = z->dtype, .rank = 1, .shape = {some}};
            gate.stride[0] = each;
            qn_load_row(z, qn_row(&it, z), first, some, b);
            qn_store_row(&gate, c->workspace, 0, some, b);
            qn_op_act_apply(&gate, at->act);
            qn_load_row(&gate, c->workspace, 0, some, b);
            qn_load_row(y, qn_row(&it, y), first, some, a);
            for (int64_t i = 0; i < some; i++) a[i] *= b[i];
            qn_store_row(y, qn_row(&it, y), first, some, a);
        }
    return QN_OK;
}

qn_status qn_ref_rms_norm_rope(const qn_call *c) {
    const qn_tensor *y = c->dst[0];
    const qn_tensor *src[QN_MAX_SRC] = {y, c->src[1], given(c, 2)}, *dst[QN_MAX_DST] = {y};
    QN_TRY(norm_into(y, c->src[0], given(c, 3), ((const qn_attr_rms_norm_rope *)c->attr)->eps));
    return qn_ref_rope(&(qn_call){QN_OP_rope, 0, 3, 1, src, dst, c->attr, NULL});
}

qn_status qn_ref_rms_norm_group(const qn_call *c) {
    for (int i = 0; i < c->n_dst; i++)
        if (c->dst[i]) QN_TRY(norm_into(c->dst[i], c->src[0], c->src[1 + i], ((const qn_attr_rms_norm_group *)c->attr)->eps));
    return QN_OK;
}

/* Element i of the state and x joined. */
static double joined_at(const qn_tensor *state, const qn_tensor *x, int64_t s, int64_t channel, int64_t i) {
    int64_t n = qn_ne(state, 0);
    return i < n ? qn_get4(state, 0, s, channel, i) : qn_get4(x, 0, s, channel, i - n);
}

qn_status qn_ref_ssm_conv_silu(const qn_call *c) {
    const qn_tensor *state = c->src[0], *x = c->src[1], *w = c->src[2], *y = c->dst[0], *joined = c->n_dst > 1 ? c->dst[1] : NULL;
    if (qn_tensor_count(y) == 0) return QN_OK;
    for (int64_t s = 0; s < qn_ne(y, 2); s++)
        for (int64_t i = 0; i < qn_ne(y, 0); i++) {
            for (int64_t t = 0; t < qn_ne(y, 1); t++) {
                double sum = 0;
                for (int64_t j = 0; j < qn_ne(w, 0); j++) sum += joined_at(state, x, s, i, t + j) * qn_get4(w, 0, 0, i, j);
                qn_put4(y, 0, s, t, i, sum);
            }
            for (int64_t t = 0; joined && t < qn_ne(joined, 0); t++) qn_put4(joined, 0, s, i, t, joined_at(state, x, s, i, t));
        }
    qn_op_act_apply(y, QN_UNARY_silu);
    return QN_OK;
}
