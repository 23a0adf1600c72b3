/* Fused ops around norms and convolutions, and the epilogue of all. Their references are the references of what was fused, run
 * one after the other over the destination, so a fused op gives the bits of its parts. */
#include "op/op_fused.h"

_Static_assert(offsetof(qn_attr_add_layer_norm, eps) == offsetof(qn_attr_layer_norm, eps), "shared attributes");
_Static_assert(offsetof(qn_attr_add_layer_norm, eps) == offsetof(qn_attr_rms_norm, eps), "shared attributes");
_Static_assert(offsetof(qn_attr_add_rms_norm, eps) == offsetof(qn_attr_rms_layer_norm, eps), "shared attributes");
_Static_assert(offsetof(qn_attr_conv_act, groups) == offsetof(qn_attr_conv, groups), "shared attributes");
_Static_assert(offsetof(qn_attr_conv_act, dilation) == offsetof(qn_attr_conv, dilation), "shared attributes");
_Static_assert(QN_UNARY_COUNT == 22, "the highest act in fused.def is the last sub-op of unary");

/* ---- Epilogue */

qn_status qn_op_act_check(qn_infer_call *c, int32_t act) {
    return act == QN_UNARY_xielu ? qn_reject_attr(c, "act", QN_REASON_ATTR_CHOICE, -1, 0, act) : QN_OK;
}

qn_status qn_op_addend_check(qn_infer_call *c, int slot, uint32_t dtype) {
    uint32_t have = c->src[slot]->dtype;
    if (have == dtype || (have == QN_DTYPE_F32 && (dtype == QN_DTYPE_F16 || dtype == QN_DTYPE_BF16))) return QN_OK;
    return qn_reject_src(c, slot, QN_REASON_DTYPE_PAIR, -1, dtype, have);
}

void qn_op_act_apply(const qn_tensor *y, int32_t act) {
    const qn_tensor *src[QN_MAX_SRC] = {y}, *dst[QN_MAX_DST] = {y};
    qn_attr_unary at = qn_attr_unary_default();
    qn_call call = {QN_OP_unary, act, 1, 1, src, dst, &at, NULL};
    if (act >= 0) qn_ref_unary(&call);
}

void qn_op_addend_apply(const qn_tensor *y, const qn_tensor *b) {
    const qn_tensor *src[QN_MAX_SRC] = {y, b}, *dst[QN_MAX_DST] = {y};
    qn_attr_add at = qn_attr_add_default();
    qn_call call = {QN_OP_add, 0, 2, 1, src, dst, &at, NULL};
    if (b) qn_ref_add(&call);
}

/* ---- Norms of a sum */

qn_status qn_infer_add_norm(qn_infer_call *c) {
    const qn_tensor *x = c->src[0];
    QN_TRY(qn_need_same_shape(c, 1, 0));
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    if (qn_ne(x, 0) == 0) return qn_reject_src(c, 0, QN_REASON_SHAPE_EMPTY, x->rank - 1, 1, 0);
    if (c->op == QN_OP_add_rms_norm && !c->src[2] && c->src[3]) return qn_reject_src(c, 2, QN_REASON_MISSING, -1, 0, 0);
    for (int s = 2; s < 4; s++) {
        if (!c->src[s]) continue;
        QN_TRY(qn_need_rank(c, s, 1));
        QN_TRY(qn_need_extent(c, s, 0, qn_ne(x, 0)));
        QN_TRY(qn_op_addend_check(c, s, x->dtype));
    }
    c->flops_each = 8;
    qn_out_like(c, 0, x, x->dtype);
    qn_out_like(c, 1, x, x->dtype);
    return QN_OK;
}

/* The sum in y, a copy of it where one is wanted, and the norm over y in place. */
static qn_status add_and_norm(const qn_call *c, int op, qn_ref_fn norm) {
    const qn_tensor *y = c->dst[0], *sum = c->n_dst > 1 ? c->dst[1] : NULL;
    const qn_tensor *terms[QN_MAX_SRC] = {c->src[0], c->src[1]}, *dst[QN_MAX_DST] = {y};
    qn_call add = {QN_OP_arith, QN_ARITH_add, 2, 1, terms, dst, NULL, NULL};
    QN_TRY(qn_ref_arith(&add));
    if (sum) qn_copy(sum, y);
    const qn_tensor *src[QN_MAX_SRC] = {y, c->src[2], c->src[3]};
    qn_call whole = {op, 0, 3, 1, src, dst, c->attr, NULL};
    return norm(&whole);
}

qn_status qn_ref_add_layer_norm(const qn_call *c) { return add_and_norm(c, QN_OP_layer_norm, qn_ref_layer_norm); }

qn_status qn_ref_add_rms_norm(const qn_call *c) {
    if (!c->src[2]) return add_and_norm(c, QN_OP_rms_norm, qn_ref_rms_norm);
    return add_and_norm(c, QN_OP_rms_layer_norm, qn_ref_rms_layer_norm);
}

/* ---- Convolution with an epilogue */

qn_status qn_infer_conv_act(qn_infer_call *c) {
    const qn_tensor *r = c->src[3];
    QN_TRY(qn_op_act_check(c, ((const qn_attr_conv_act *)c->attr)->act));
    QN_TRY(qn_infer_conv(c));
    const qn_shape *y = &c->out[0];
    for (int k = 0; r && k < (r->rank > y->rank ? r->rank : y->rank); k++) QN_TRY(qn_need_extent(c, 3, k, qn_sd(y, k)));
    return r ? qn_op_addend_check(c, 3, y->dtype) : QN_OK;
}

qn_status qn_ref_conv_act(const qn_call *c) {
    qn_call conv = *c;
    conv.op = QN_OP_conv;
    conv.n_src = 3;
    QN_TRY(qn_ref_conv(&conv));
    qn_op_act_apply(c->dst[0], ((const qn_attr_conv_act *)c->attr)->act);
    qn_op_addend_apply(c->dst[0], c->src[3]);
    return QN_OK;
}
