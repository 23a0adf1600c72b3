/* flash_attn_ext: five tensors with four strides each are more than push constants hold, so they go to the parameter block. */
#include "vulkan/vk_layout.h"

/* Must agree with Block in glsl/attention.comp. */
typedef struct attention_block {
    uint64_t q, k, v, mask, sinks, y;
    uint32_t queries, heads, batches, keys, channels, wide, group, full;
    float scale, cap, slope, unused;
    int32_t sq[4], sk[4], sv[4], sm[4], sy[4];
    uint32_t nm[4];
} attention_block;
_Static_assert(sizeof(attention_block) == 192, "as the shader has it");

enum { WIDTH = 512 };

static qn_status strides(qn_vk_pack *p, const qn_tensor *t, int32_t *s) {
    for (int k = 0; t && k < 4; k++)
        QN_TRY(qn_is_block(t->dtype) ? qn_vk_byte_stride(p, t, k, &s[k]) : qn_vk_stride(p, t, k, &s[k]));
    return QN_OK;
}

static qn_status fill_block(qn_vk_pack *p, attention_block *b, const qn_tensor *mask, const qn_tensor *sinks) {
    const qn_attr_flash_attn_ext *at = p->step->attr;
    const qn_tensor *q = p->step->src[0], *k = p->step->src[1], *v = p->step->src[2], *y = p->step->dst[0];
    for (int i = 0; i < 4; i++)
        if (qn_ne(q, i) > INT32_MAX || qn_ne(k, i) > INT32_MAX) return qn_vk_refuse(p, "an extent is beyond 2^31");
    QN_TRY(strides(p, q, b->sq));
    QN_TRY(strides(p, k, b->sk));
    QN_TRY(strides(p, v, b->sv));
    QN_TRY(strides(p, mask, b->sm));
    QN_TRY(strides(p, y, b->sy));
    b->q = qn_vk_address(p, q);
    b->k = qn_vk_address(p, k);
    b->v = qn_vk_address(p, v);
    b->mask = mask ? qn_vk_address(p, mask) : 0;
    b->sinks = sinks ? qn_vk_address(p, sinks) : 0;
    b->y = qn_vk_address(p, y);
    b->queries = (uint32_t)qn_ne(q, 1);
    b->heads = (uint32_t)qn_ne(q, 2);
    b->batches = (uint32_t)qn_ne(q, 3);
    b->keys = (uint32_t)qn_ne(k, 1);
    b->channels = (uint32_t)qn_ne(q, 0);
    b->wide = (uint32_t)qn_ne(v, 0);
    b->group = qn_ne(k, 2) ? b->heads / (uint32_t)qn_ne(k, 2) : 1;
    b->full = 1;
    while (b->full <= b->heads / 2) b->full *= 2;
    b->scale = at->scale;
    b->cap = at->logit_softcap;
    b->slope = -at->max_bias / (float)b->full;
    for (int i = 0; i < 4; i++) b->nm[i] = mask ? (uint32_t)(qn_ne(mask, i) < INT32_MAX ? qn_ne(mask, i) : INT32_MAX) : 1;
    return QN_OK;
}

qn_status qn_vk_pack_attention(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *q = p->step->src[0], *k = p->step->src[1], *v = p->step->src[2];
    const qn_tensor *mask = p->step->n_src > 3 ? p->step->src[3] : NULL, *sinks = p->step->n_src > 4 ? p->step->src[4] : NULL;
    attention_block block;
    uint64_t where, rows;
    (void)fn;
    if (q->dtype != QN_DTYPE_F32) return qn_vk_refuse(p, "no kernel for queries that are not f32");
    if (sinks && sinks->stride[sinks->rank - 1] != 4 && qn_ne(sinks, 0) > 1)
        return qn_vk_refuse(p, "no kernel for strided sinks");
    if (qn_ne(q, 0) > WIDTH || qn_ne(v, 0) > WIDTH) return qn_vk_refuse(p, "no kernel for heads of more than 512 channels");
    QN_TRY(qn_vk_float_types(p, qn_is_block(k->dtype) ? NULL : k, qn_is_block(v->dtype) ? NULL : v, mask));
    if (qn_is_block(k->dtype)) p->out->spec.type_a = qn_vk_block_type_of(k->dtype);
    if (qn_is_block(v->dtype)) p->out->spec.type_b = qn_vk_block_type_of(v->dtype);
    if (p->out->spec.type_a == QN_VK_NO_TYPE || p->out->spec.type_b == QN_VK_NO_TYPE)
        return qn_vk_refuse(p, "no kernel for this block type");
    memset(&block, 0, sizeof block);
    QN_TRY(fill_block(p, &block, mask, sinks));
    int64_t most = 1;
    for (int i = 1; i < 4; i++)
        if (qn_mul_overflow(most, qn_ne(q, i), &most)) return qn_vk_refuse(p, "more queries than a grid has room for");
    rows = qn_ne(v, 0) ? (uint64_t)most : 0;
    if (rows > INT32_MAX) return qn_vk_refuse(p, "more queries than a grid has room for");
    void *to = qn_vk_take_block(p, sizeof block, &where);
    if (to) memcpy(to, &block, sizeof block);
    p->out->push.p[0] = (uint32_t)where;
    p->out->push.p[1] = (uint32_t)(where >> 32);
    p->out->spec.fn = (mask ? 1u : 0u) | (sinks ? 2u : 0u);
    p->out->spec.rank = 4;
    return qn_vk_grid_groups(p, rows);
}
