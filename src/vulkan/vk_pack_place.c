/* Ops that only move things: pieces copied into a larger whole, tiles, edges of zeros. All by copies into views. */
#include "op/op_axes.h"
#include "op/op_layout.h"
#include "vulkan/vk_many.h"

static qn_status copy(qn_vk_pack *p, const qn_tensor *from, const qn_tensor *to, int waits) {
    return qn_vk_sub_step(p, &(qn_vk_sub){.op = QN_OP_cpy, .waits = waits, .src = {from}, .dst = {to}});
}

/* Pieces one behind the other along axis k of y. */
static qn_status pack_join(qn_vk_pack *p, int k) {
    qn_tensor part = qn_op_tensor_widen(p->step->dst[0]);
    int axis = QN_MAX_RANK - 1 - k;
    if (qn_is_block(part.dtype)) return qn_vk_refuse(p, "no kernel for block types");
    for (int i = 0; i < p->step->n_src; i++) {
        const qn_tensor *from = p->step->src[i];
        if (!from) continue;
        part.shape[axis] = qn_ne(from, k);
        QN_TRY(copy(p, from, &part, 0));
        part.offset += part.shape[axis] * part.stride[axis];
    }
    return QN_OK;
}

static int widest(const qn_vk_pack *p) {
    int rank = 0;
    for (int i = 0; i < p->step->n_src; i++)
        if (p->step->src[i] && p->step->src[i]->rank > rank) rank = p->step->src[i]->rank;
    return rank;
}

qn_status qn_vk_pack_concat(qn_vk_pack *p, uint32_t fn) {
    (void)fn;
    return pack_join(p, qn_op_axis(((const qn_attr_concat *)p->step->attr)->axis, widest(p)));
}

qn_status qn_vk_pack_join(qn_vk_pack *p, uint32_t fn) {
    (void)fn;
    return pack_join(p, qn_op_axis(((const qn_attr_join *)p->step->attr)->axis, widest(p)));
}

/* The part of a padded tensor that is not padding. */
static qn_tensor inside(const qn_tensor *y, const qn_tensor *a, const qn_dims *left) {
    qn_tensor part = qn_op_tensor_widen(y);
    for (int k = 0; k < QN_MAX_RANK; k++) {
        int axis = QN_MAX_RANK - 1 - k;
        part.offset += qn_op_dims_at(left, k) * part.stride[axis];
        part.shape[axis] = qn_ne(a, k);
    }
    return part;
}

qn_status qn_vk_pack_pad(qn_vk_pack *p, uint32_t fn) {
    const qn_attr_pad *at = p->step->attr;
    const qn_tensor *a = p->step->src[0], *y = p->step->dst[0];
    qn_attr_fill zero = qn_attr_fill_default();
    (void)fn;
    if (at->circular) return qn_vk_refuse(p, "no kernel that wraps around");
    qn_tensor part = inside(y, a, &at->left);
    zero.c = 0;
    QN_TRY(qn_vk_sub_step(p, &(qn_vk_sub){.op = QN_OP_fill, .attr = &zero, .src = {y}, .dst = {y}}));
    return qn_tensor_count(a) ? copy(p, a, &part, 1) : QN_OK;
}

qn_status qn_vk_pack_pad_back(qn_vk_pack *p, uint32_t fn) {
    const qn_attr_pad_back *at = p->step->attr;
    const qn_tensor *g = p->step->src[0], *y = p->step->dst[0];
    (void)fn;
    if (at->circular) return qn_vk_refuse(p, "no kernel that wraps around");
    qn_tensor part = inside(g, y, &at->left);
    return copy(p, &part, y, 0);
}
