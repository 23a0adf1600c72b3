/* Convolutions and pools: windows that slide over the last axes. */
#include "op/op_convn.h"
#include "tensor/layout.h"
#include "vulkan/vk_many.h"

enum { TILE = 64 };

/* ---- Convolutions */

/* Must agree with Block in glsl/conv.comp. */
typedef struct conv_block {
    uint64_t few, many, weights, bias;
    int32_t s_few[5], s_many[5], s_weights[5];
    int32_t inside[3], outside[3], taps[3], stride[3], pad[3], dilation[3];
    uint32_t few_group, many_group, groups, n_i, n_j, n_k, part, part_step;
} conv_block;

typedef struct conv {
    const qn_tensor *few, *many, *weights, *bias, *y;
    qn_window_lists lists;
    int64_t groups;
} conv;

#define CONV_OF(at, few, many, weights, bias, y) \
    { few, many, weights, bias, y, {&(at)->stride, &(at)->padding, &(at)->padding_hi, &(at)->dilation}, (at)->groups }

/* Strides of the three window axes, of the channels and of the batch; axes that are not there have none. */
static qn_status strides_of(qn_vk_pack *p, const qn_tensor *t, int axes, int32_t *s) {
    for (int k = 0; k < 3; k++) {
        s[k] = 0;
        if (k < axes) QN_TRY(qn_vk_stride(p, t, k, &s[k]));
    }
    QN_TRY(qn_vk_stride(p, t, axes, &s[3]));
    return qn_vk_stride(p, t, axes + 1, &s[4]);
}

static qn_status narrow(qn_vk_pack *p, int64_t n, int32_t *out) {
    uint32_t u;
    QN_TRY(qn_vk_extent(p, n, &u));
    *out = (int32_t)u;
    return QN_OK;
}

static qn_status fill_windows(qn_vk_pack *p, const conv *c, int axes, conv_block *b) {
    for (int k = 0; k < 3; k++) {
        qn_window w = {.stride = 1, .dilation = 1};
        if (k < axes) w = qn_window_along(&c->lists, k);
        QN_TRY(narrow(p, k < axes ? qn_ne(c->many, k) : 1, &b->inside[k]));
        QN_TRY(narrow(p, k < axes ? qn_ne(c->few, k) : 1, &b->outside[k]));
        QN_TRY(narrow(p, k < axes ? qn_ne(c->weights, k) : 1, &b->taps[k]));
        QN_TRY(narrow(p, w.stride, &b->stride[k]));
        QN_TRY(narrow(p, w.pad, &b->pad[k]));
        QN_TRY(narrow(p, w.dilation, &b->dilation[k]));
        /* The farthest sample that the kernel works out must be a 32-bit number. */
        double reach = (double)b->outside[k] * b->stride[k] + (double)b->taps[k] * b->dilation[k] + b->pad[k] + b->inside[k];
        if (reach > INT32_MAX) return qn_vk_refuse(p, "its windows reach beyond 2^31");
    }
    return QN_OK;
}

static int64_t product3(const int32_t *n) { return (int64_t)n[0] * n[1] * n[2]; }

/* Everything of the block; lengths of i, j and k by the kernel's fn. */
static qn_status fill_conv(qn_vk_pack *p, const conv *c, uint32_t fn, conv_block *b) {
    int axes = c->weights->rank - 2;
    int64_t batch = qn_ne(c->many, axes + 1), few = qn_ne(c->weights, axes + 1) / c->groups, many = qn_ne(c->weights, axes), i, j,
            k;
    memset(b, 0, sizeof *b);
    QN_TRY(fill_windows(p, c, axes, b));
    QN_TRY(strides_of(p, c->few, axes, b->s_few));
    QN_TRY(strides_of(p, c->many, axes, b->s_many));
    QN_TRY(strides_of(p, c->weights, axes, b->s_weights));
    b->few = qn_vk_address(p, c->few);
    b->many = qn_vk_address(p, c->many);
    b->weights = qn_vk_address(p, c->weights);
    b->bias = c->bias ? qn_vk_address(p, c->bias) : 0;
    QN_TRY(qn_vk_extent(p, few, &b->few_group));
    QN_TRY(qn_vk_extent(p, many, &b->many_group));
    QN_TRY(qn_vk_extent(p, c->groups, &b->groups));
    int64_t places = product3(b->outside), samples = product3(b->inside), taps = product3(b->taps);
    if (places > INT32_MAX || samples > INT32_MAX || taps > INT32_MAX)
        return qn_vk_refuse(p, "an image of more than 2^31 elements");
    int over = qn_mul_overflow(batch, places, fn == 2 ? &k : &i);
    if (fn == 1) over |= qn_mul_overflow(batch, samples, &i);
    over |= qn_mul_overflow(fn == 1 ? few : many, taps, fn == 2 ? &i : &k);
    j = fn == 1 ? many : few;
    if (over) return qn_vk_refuse(p, "more than 2^31 elements");
    QN_TRY(qn_vk_extent(p, i, &b->n_i));
    QN_TRY(qn_vk_extent(p, j, &b->n_j));
    return qn_vk_extent(p, k, &b->n_k);
}

/* Channels a tile has, over 16: few channels are not rounded up to many. */
static uint32_t high_of(const conv_block *b) { return b->n_j <= 16 ? 1 : b->n_j <= 32 ? 2 : 4; }

static qn_status finish_conv(qn_vk_pack *p, const conv *c, const conv_block *b, const qn_tensor *y, uint64_t splits) {
    qn_vk_push *push = &p->out->push;
    uint32_t high = 16 * high_of(b);
    uint64_t where, across = ((uint64_t)b->n_i + TILE - 1) / TILE, down = ((uint64_t)b->n_j + high - 1) / high;
    int axes = c->weights->rank - 2;
    p->out->spec.rank = (uint32_t)axes;
    p->out->spec.tile[0] = high_of(b);
    int32_t s[5], bias_step = 0;
    if (across > INT32_MAX || down > QN_VK_GROUP_LIMIT || b->groups * splits > QN_VK_GROUP_LIMIT)
        return qn_vk_refuse(p, "more tiles than a grid has room for");
    QN_TRY(strides_of(p, y, axes, s));
    memcpy(push->sy, s, sizeof push->sy);
    if (c->bias) QN_TRY(qn_vk_stride(p, c->bias, 0, &bias_step));
    void *to = qn_vk_take_block(p, sizeof *b, &where);
    if (to) memcpy(to, b, sizeof *b);
    push->y = qn_vk_address(p, y);
    push->p[0] = (uint32_t)where;
    push->p[1] = (uint32_t)(where >> 32);
    push->p[2] = c->bias ? qn_vk_type_of(c->bias->dtype) : QN_VK_F32;
    push->p[3] = (uint32_t)bias_step;
    push->p[4] = (uint32_t)s[4];
    p->out->groups[0] = (uint32_t)across;
    p->out->groups[1] = (uint32_t)down;
    p->out->groups[2] = (uint32_t)(b->groups * splits);
    return across > QN_VK_GROUP_LIMIT ? qn_vk_refuse(p, "more tiles than a grid has room for") : QN_OK;
}

static qn_status pack_conv(qn_vk_pack *p, const conv *c, uint32_t fn) {
    conv_block b;
    const qn_tensor *x = fn == 0 ? c->many : c->few;
    QN_TRY(qn_vk_float_types(p, x, c->weights, c->y));
    if (c->bias && qn_vk_type_of(c->bias->dtype) > QN_VK_BF16) return qn_vk_refuse(p, "no kernel for this dtype of its bias");
    QN_TRY(fill_conv(p, c, fn, &b));
    b.part = b.n_k ? b.n_k : 1;
    return finish_conv(p, c, &b, c->y, 1);
}

/* The destination may have fewer or more ones in front than the operands, here and below. */
qn_status qn_vk_pack_conv(qn_vk_pack *p, uint32_t fn) {
    const qn_attr_conv *at = p->step->attr;
    const qn_tensor *x = p->step->src[0];
    qn_tensor y = qn_layout_with_rank(p->step->dst[0], x->rank);
    conv c = CONV_OF(at, &y, x, p->step->src[1], qn_vk_source(p, 2), &y);
    return pack_conv(p, &c, fn);
}

qn_status qn_vk_pack_conv_transpose(qn_vk_pack *p, uint32_t fn) {
    const qn_attr_conv_transpose *at = p->step->attr;
    const qn_tensor *x = p->step->src[0];
    qn_tensor y = qn_layout_with_rank(p->step->dst[0], x->rank);
    conv c = CONV_OF(at, x, &y, p->step->src[1], qn_vk_source(p, 2), &y);
    return pack_conv(p, &c, fn);
}

/* The weights have few elements and each is a long sum. Its parts become partial results of their own, which are then added. */
static uint32_t parts_of(const conv_block *b) {
    enum { SHORT = 1024, MOST = 64, ENOUGH = 256 };
    uint64_t tiles = (((uint64_t)b->n_i + TILE - 1) / TILE) * (((uint64_t)b->n_j + TILE - 1) / TILE) * b->groups;
    uint64_t parts = b->n_k / SHORT, wanted = tiles ? ENOUGH / tiles : 0;
    if (parts > wanted) parts = wanted;
    return (uint32_t)(parts > MOST ? MOST : parts < 1 ? 1 : parts);
}

qn_status qn_vk_pack_conv_back_w(qn_vk_pack *p, uint32_t fn) {
    const qn_attr_conv_back_w *at = p->step->attr;
    qn_tensor dw = qn_layout_with_rank(p->step->dst[0], p->step->src[1]->rank), partial;
    conv c = CONV_OF(at, p->step->src[0], p->step->src[1], &dw, NULL, &dw);
    conv_block b;
    int64_t shape[QN_MAX_RANK];
    QN_TRY(qn_vk_float_types(p, c.many, c.few, &dw));
    QN_TRY(fill_conv(p, &c, fn, &b));
    uint32_t parts = parts_of(&b);
    b.part = (b.n_k + parts - 1) / parts;
    if (!b.part) b.part = 1;
    if (parts == 1 || dw.rank >= QN_MAX_RANK) {
        b.part = b.n_k ? b.n_k : 1;
        return finish_conv(p, &c, &b, &dw, 1);
    }
    shape[0] = parts;
    memcpy(shape + 1, dw.shape, (size_t)dw.rank * sizeof *shape);
    QN_TRY(qn_vk_scratch(p, QN_DTYPE_F32, dw.rank + 1, shape, &partial));
    qn_tensor one = qn_layout_with_rank(&partial, dw.rank);
    QN_TRY(strides_of(p, &one, dw.rank - 2, b.s_weights));
    b.part_step = (uint32_t)(partial.stride[0] / (int64_t)sizeof(float));
    p->out->spec.type_y = QN_VK_F32;
    QN_TRY(finish_conv(p, &c, &b, &one, parts));
    QN_TRY(qn_vk_next(p, "reduce_axes", QN_REDUCE_sum, 1));
    return qn_vk_pack_sum_first(p, &partial, &dw);
}

/* ---- Pools */

/* Must agree with Block in glsl/pool.comp. */
typedef struct pool_block {
    int32_t inside[4], outside[4], taps[4], stride[4], pad[4], behind[4];
    uint32_t count_pad;
} pool_block;

/* few: at the windows; many: at the samples; shape: which of the two is walked. */
static qn_status pack_pool(qn_vk_pack *p, const qn_tensor *few, const qn_tensor *many, const qn_vk_walk *walk) {
    const qn_attr_pool *at = p->step->attr; /* pool_back has the same attributes */
    qn_window_lists lists = {&at->stride, &at->padding, &at->padding_hi, NULL};
    pool_block b;
    uint64_t where;
    memset(&b, 0, sizeof b);
    QN_TRY(qn_vk_pack_walk(p, walk));
    p->out->spec.tiled = 0;
    b.count_pad = at->count_include_pad;
    for (int k = 0; k < 4; k++) {
        int pooled = k < at->kernel.rank;
        qn_window w = {.stride = 1};
        if (pooled) w = qn_window_along(&lists, k);
        QN_TRY(narrow(p, pooled ? qn_ne(many, k) : p->out->push.n[k], &b.inside[k]));
        QN_TRY(narrow(p, pooled ? qn_ne(few, k) : p->out->push.n[k], &b.outside[k]));
        QN_TRY(narrow(p, pooled ? qn_list_entry(&at->kernel, k, 1) : 1, &b.taps[k]));
        QN_TRY(narrow(p, w.stride, &b.stride[k]));
        QN_TRY(narrow(p, w.pad, &b.pad[k]));
        QN_TRY(narrow(p, pooled ? qn_pad_behind(&lists, k) : 0, &b.behind[k]));
        if ((double)b.outside[k] * b.stride[k] + b.taps[k] + (double)b.inside[k] + b.pad[k] > INT32_MAX)
            return qn_vk_refuse(p, "its windows reach beyond 2^31");
    }
    void *to = qn_vk_take_block(p, sizeof b, &where);
    if (to) memcpy(to, &b, sizeof b);
    p->out->push.p[0] = (uint32_t)where;
    p->out->push.p[1] = (uint32_t)(where >> 32);
    return qn_vk_grid_elements(p);
}

qn_status qn_vk_pack_pool(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *x = p->step->src[0], *y = p->step->dst[0];
    int axes = ((const qn_attr_pool *)p->step->attr)->kernel.rank;
    (void)fn;
    QN_TRY(qn_vk_float_types(p, x, NULL, y));
    return pack_pool(p, y, x, &(qn_vk_walk){y, x, NULL, y, axes});
}

qn_status qn_vk_pack_pool_back(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *g = p->step->src[0], *x = p->step->src[1], *dx = p->step->dst[0];
    int axes = ((const qn_attr_pool *)p->step->attr)->kernel.rank;
    if (fn == QN_REDUCE_prod) return qn_vk_refuse(p, "no kernel for the gradient of a product");
    p->out->spec.fn = fn + 8;
    QN_TRY(qn_vk_float_types(p, g, x, dx));
    return pack_pool(p, g, x, &(qn_vk_walk){x, g, x, dx, axes});
}
