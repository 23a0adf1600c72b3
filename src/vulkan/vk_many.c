/* See vk_many.h. */
#include "vulkan/vk_many.h"

/* Must agree with Operands in glsl/many.glsl. */
typedef struct many_block {
    int32_t stride[QN_VK_OPERANDS][4];
    uint64_t base[QN_VK_OPERANDS];
} many_block;
_Static_assert(sizeof(many_block) == 384, "as the shader has it");

const qn_tensor *qn_vk_source(const qn_vk_pack *p, int slot) { return slot < p->step->n_src ? p->step->src[slot] : NULL; }
const qn_tensor *qn_vk_output(const qn_vk_pack *p, int slot) { return slot < p->step->n_dst ? p->step->dst[slot] : NULL; }

qn_status qn_vk_pack_many(qn_vk_pack *p, const qn_vk_many *m) {
    qn_vk_fold f = {.shape = m->shape, .n = QN_VK_MANY, .keep = m->keep};
    many_block block;
    uint64_t where;
    memset(&block, 0, sizeof block);
    for (int i = 0; i < QN_VK_MANY; i++) {
        f.operand[i] = m->at[i];
        qn_vk_type type = m->at[i] ? qn_vk_type_of(m->at[i]->dtype) : QN_VK_F32;
        if (type > QN_VK_BF16) return qn_vk_refuse(p, "no kernel for one of its dtypes");
        p->out->spec.tile[i] = type;
        if (m->at[i]) block.base[i] = qn_vk_address(p, m->at[i]);
    }
    QN_TRY(qn_vk_fold_axes(p, &f));
    memcpy(block.stride, f.stride, sizeof block.stride);
    void *to = qn_vk_take_block(p, sizeof block, &where);
    if (to) memcpy(to, &block, sizeof block);
    p->out->push.p[0] = (uint32_t)where;
    p->out->push.p[1] = (uint32_t)(where >> 32);
    return QN_OK;
}
