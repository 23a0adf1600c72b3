/* Attention of graphs and its gradients (glsl/attend.comp). flash_attn_ext has a kernel of its own (vk_pack_attention.c). */
#include <math.h>

#include "vulkan/vk_many.h"

/* Must agree with Block in glsl/attend.comp and attend_bias.comp. */
typedef struct attend_block {
    uint64_t q, k, v, mask, g, g_lse, result, other, lse, kept;
    int32_t sq[4], sk[4], sv[4], sm[4], sg[4], so[4], sz[4], sl[4], sgl[4];
    uint32_t batches, heads, queries, keys, group, d_q, d_v, lanes, kind, window;
    int32_t offset;
    float scale, cap;
    uint32_t key_heads;
} attend_block;

enum { FORWARD, KEEP, FOR_QUERIES, FOR_KEYS, ROWS = 4, WIDE = 256, SHARED = 20480, BIAS = 4 };

typedef struct attend {
    const qn_tensor *q, *k, *v, *mask, *g, *g_lse;
    const qn_attr_attention *at;
    attend_block b;
} attend;

/* Strides as the kernel has them: channel, place, head, batch, in either layout. */
static qn_status strides(qn_vk_pack *p, const qn_attr_attention *at, const qn_tensor *t, int32_t *s) {
    int place = at->layout ? 2 : 1;
    QN_TRY(qn_vk_stride(p, t, 0, &s[0]));
    QN_TRY(qn_vk_stride(p, t, place, &s[1]));
    QN_TRY(qn_vk_stride(p, t, 3 - place, &s[2]));
    return qn_vk_stride(p, t, 3, &s[3]);
}

/* Of [batch, head, query]. */
static qn_status row_strides(qn_vk_pack *p, const qn_tensor *t, int32_t *s) {
    for (int k = 0; k < 3; k++) QN_TRY(qn_vk_stride(p, t, k, &s[k + 1]));
    return QN_OK;
}

static qn_status fill_sources(qn_vk_pack *p, attend *a) {
    attend_block *b = &a->b;
    QN_TRY(strides(p, a->at, a->q, b->sq));
    QN_TRY(strides(p, a->at, a->k, b->sk));
    QN_TRY(strides(p, a->at, a->v, b->sv));
    for (int k = 0; a->mask && k < 4; k++) QN_TRY(qn_vk_stride(p, a->mask, k, &b->sm[k]));
    if (a->g) QN_TRY(strides(p, a->at, a->g, b->sg));
    if (a->g_lse) QN_TRY(row_strides(p, a->g_lse, b->sgl));
    b->q = qn_vk_address(p, a->q);
    b->k = qn_vk_address(p, a->k);
    b->v = qn_vk_address(p, a->v);
    b->mask = a->mask ? qn_vk_address(p, a->mask) : 0;
    b->g = a->g ? qn_vk_address(p, a->g) : 0;
    b->g_lse = a->g_lse ? qn_vk_address(p, a->g_lse) : 0;
    return QN_OK;
}

static qn_status fill_numbers(qn_vk_pack *p, attend *a) {
    const qn_attr_attention *at = a->at;
    attend_block *b = &a->b;
    int place = at->layout ? 2 : 1, head = 3 - place;
    QN_TRY(qn_vk_extent(p, qn_ne(a->q, 3), &b->batches));
    QN_TRY(qn_vk_extent(p, qn_ne(a->q, head), &b->heads));
    QN_TRY(qn_vk_extent(p, qn_ne(a->k, head), &b->key_heads));
    QN_TRY(qn_vk_extent(p, qn_ne(a->q, place), &b->queries));
    QN_TRY(qn_vk_extent(p, qn_ne(a->k, place), &b->keys));
    QN_TRY(qn_vk_extent(p, qn_ne(a->q, 0), &b->d_q));
    QN_TRY(qn_vk_extent(p, qn_ne(a->v, 0), &b->d_v));
    if (b->d_q > WIDE || b->d_v > WIDE) return qn_vk_refuse(p, "no kernel for heads of more than 256 channels");
    if ((double)b->batches * b->heads * b->queries > (double)INT32_MAX / 8) return qn_vk_refuse(p, "too many queries");
    b->group = b->key_heads ? b->heads / b->key_heads : 1;
    if (!b->group) b->group = 1;
    b->lanes = 1;
    while (b->lanes < b->d_q || b->lanes < b->d_v) b->lanes *= 2;
    b->kind = (uint32_t)at->mask_kind;
    b->window = (uint32_t)at->window;
    int64_t offset = at->q_offset >= 0 ? at->q_offset : (int64_t)b->keys - b->queries;
    if (offset + b->queries > INT32_MAX) return qn_vk_refuse(p, "a position is beyond 2^31");
    b->offset = (int32_t)offset;
    b->scale = at->scale != 0 ? at->scale : b->d_q ? (float)(1 / sqrt((double)b->d_q)) : 1;
    b->cap = at->softcap;
    return QN_OK;
}

static qn_status begin(qn_vk_pack *p, attend *a) {
    const qn_tensor *floats[] = {a->q, a->k, a->v, a->g};
    if (p->device->facts.properties.limits.maxComputeSharedMemorySize < SHARED)
        return qn_vk_refuse(p, "too little shared memory");
    for (int i = 0; i < 4; i++)
        if (floats[i] && qn_vk_type_of(floats[i]->dtype) > QN_VK_BF16) return qn_vk_refuse(p, "no kernel for one of its dtypes");
    if (a->mask && qn_vk_type_of(a->mask->dtype) > QN_VK_BF16 && a->mask->dtype != QN_DTYPE_BOOL)
        return qn_vk_refuse(p, "no kernel for this dtype of its mask");
    if (a->g_lse && a->g_lse->dtype != QN_DTYPE_F32) return qn_vk_refuse(p, "no kernel for this dtype of a gradient");
    QN_TRY(fill_sources(p, a));
    return fill_numbers(p, a);
}

static uint32_t type_or_f32(const qn_tensor *t) { return t ? qn_vk_type_of(t->dtype) : QN_VK_F32; }

/* One pass; out and other are where it writes. */
static qn_status pass(qn_vk_pack *p, const attend *a, uint32_t fn, const qn_tensor *out, const qn_tensor *other) {
    attend_block b = a->b;
    uint64_t where, rows = fn == FOR_KEYS ? b.keys : b.queries, heads = fn == FOR_KEYS ? b.key_heads : b.heads;
    const qn_tensor *types[7] = {a->q, a->k, a->v, a->mask, a->g, out, other};
    for (int i = 0; i < 7; i++) p->out->spec.tile[i] = type_or_f32(types[i]);
    if (p->out->spec.tile[5] > QN_VK_BF16 || p->out->spec.tile[6] > QN_VK_BF16)
        return qn_vk_refuse(p, "no kernel for an output's dtype");
    if (out) QN_TRY(strides(p, a->at, out, b.so));
    if (other) QN_TRY(strides(p, a->at, other, b.sz));
    b.result = out ? qn_vk_address(p, out) : 0;
    b.other = other ? qn_vk_address(p, other) : 0;
    void *to = qn_vk_take_block(p, sizeof b, &where);
    if (to) memcpy(to, &b, sizeof b);
    p->out->spec.fn = fn;
    p->out->spec.rank = QN_VK_AXES;
    p->out->push.p[0] = (uint32_t)where;
    p->out->push.p[1] = (uint32_t)(where >> 32);
    return qn_vk_grid_groups(p, (rows + ROWS - 1) / ROWS * heads * b.batches);
}

qn_status qn_vk_pack_attend(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *lse = qn_vk_output(p, 1);
    attend a = {p->step->src[0], p->step->src[1], p->step->src[2], qn_vk_source(p, 3), NULL, NULL, p->step->attr, {0}};
    QN_TRY(begin(p, &a));
    if (lse && lse->dtype != QN_DTYPE_F32) return qn_vk_refuse(p, "no kernel for an output's dtype");
    if (lse) QN_TRY(row_strides(p, lse, a.b.sl));
    a.b.lse = lse ? qn_vk_address(p, lse) : 0;
    return pass(p, &a, fn, p->step->dst[0], NULL);
}

static qn_status pack_bias(qn_vk_pack *p, const attend *a, const qn_tensor *dbias) {
    QN_TRY(pass(p, a, KEEP, NULL, NULL)); /* for the block and the dtypes; the rest is a walk over the bias */
    uint32_t block[2] = {p->out->push.p[0], p->out->push.p[1]};
    p->out->spec.tile[5] = qn_vk_type_of(dbias->dtype);
    QN_TRY(qn_vk_pack_walk(p, &(qn_vk_walk){dbias, NULL, NULL, dbias, 4}));
    p->out->push.p[0] = block[0];
    p->out->push.p[1] = block[1];
    return qn_vk_grid_elements(p);
}

qn_status qn_vk_pack_attend_back(qn_vk_pack *p, uint32_t fn) {
    attend a = {
        p->step->src[0],    p->step->src[1],    p->step->src[2], qn_vk_source(p, 4),
        qn_vk_source(p, 3), qn_vk_source(p, 5), p->step->attr,   {0}}; /* attention_back has the attributes of attention */
    const qn_tensor *dq = qn_vk_output(p, 0), *dk = qn_vk_output(p, 1), *dv = qn_vk_output(p, 2), *dbias = qn_vk_output(p, 3);
    qn_tensor kept;
    (void)fn;
    QN_TRY(begin(p, &a));
    int64_t count = (int64_t)a.b.batches * a.b.heads * a.b.queries * 2;
    QN_TRY(qn_vk_scratch(p, QN_DTYPE_F32, 1, &count, &kept));
    a.b.kept = qn_vk_address(p, &kept);
    QN_TRY(pass(p, &a, KEEP, NULL, NULL));
    if (dq) {
        QN_TRY(qn_vk_next(p, "attend", FOR_QUERIES, 1));
        QN_TRY(pass(p, &a, FOR_QUERIES, dq, NULL));
    }
    if (dk || dv) {
        QN_TRY(qn_vk_next(p, "attend", FOR_KEYS, dq == NULL));
        QN_TRY(pass(p, &a, FOR_KEYS, dk, dv));
    }
    if (dbias && a.at->mask_kind == BIAS) {
        if (qn_vk_type_of(dbias->dtype) > QN_VK_BF16) return qn_vk_refuse(p, "no kernel for an output's dtype");
        QN_TRY(qn_vk_next(p, "attend_bias", 0, !dq && !dk && !dv));
        QN_TRY(pack_bias(p, &a, dbias));
    }
    return QN_OK;
}
