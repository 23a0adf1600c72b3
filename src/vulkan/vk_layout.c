/* Shapes for kernels. Up to eight axes come in; axes of extent 1 are dropped and neighbours that lie behind one another in every
 * operand are folded into one, until at most four remain, which is all that 128 bytes of push constants have room for. */
#include "vulkan/vk_layout.h"

enum { AXES = QN_VK_AXES };

/* Axes counted from the last. */
typedef struct axes {
    int rank, operands;
    int64_t n[QN_MAX_RANK], m[QN_MAX_RANK]; /* walked, and a tiled operand's own extents */
    int64_t s[QN_VK_OPERANDS][QN_MAX_RANK]; /* in elements */
} axes;

qn_status qn_vk_refuse(qn_vk_pack *p, const char *why) {
    return qn_error_set(p->error, QN_UNSUPPORTED, "vulkan: %s: %s", qn_op_describe(p->step->op)->name, why);
}

qn_vk_type qn_vk_type_of(uint32_t dtype) {
    switch (dtype) {
    case QN_DTYPE_F32: return QN_VK_F32;
    case QN_DTYPE_F16: return QN_VK_F16;
    case QN_DTYPE_BF16: return QN_VK_BF16;
    case QN_DTYPE_I32: return QN_VK_I32;
    case QN_DTYPE_BOOL: return QN_VK_BOOL;
    case QN_DTYPE_U8: return QN_VK_U8;
    case QN_DTYPE_I8: return QN_VK_I8;
    case QN_DTYPE_I16: return QN_VK_I16;
    case QN_DTYPE_U32: return QN_VK_U32;
    default: return QN_VK_NO_TYPE;
    }
}

qn_vk_type qn_vk_word_of(uint32_t dtype) {
    int64_t bytes = qn_dtype_bytes(dtype);
    return bytes == 1 ? QN_VK_RAW8 : bytes == 2 ? QN_VK_RAW16 : bytes == 4 ? QN_VK_RAW32 : QN_VK_RAW64;
}

qn_vk_type qn_vk_block_type_of(uint32_t dtype) {
    switch (dtype) {
    case QN_DTYPE_Q4_0: return QN_VK_Q4_0;
    case QN_DTYPE_Q8_0: return QN_VK_Q8_0;
    case QN_DTYPE_Q4_K: return QN_VK_Q4_K;
    case QN_DTYPE_Q6_K: return QN_VK_Q6_K;
    default: return QN_VK_NO_TYPE;
    }
}

static qn_status float_type(qn_vk_pack *p, const qn_tensor *t, uint32_t *type) {
    qn_vk_type found = t ? qn_vk_type_of(t->dtype) : QN_VK_F32;
    if (found > QN_VK_BF16)
        return qn_error_set(p->error, QN_UNSUPPORTED, "vulkan: %s: no kernel for %s", qn_op_describe(p->step->op)->name,
                            qn_dtype_describe((qn_dtype)t->dtype)->name);
    *type = found;
    return QN_OK;
}

qn_status qn_vk_float_types(qn_vk_pack *p, const qn_tensor *a, const qn_tensor *b, const qn_tensor *y) {
    QN_TRY(float_type(p, a, &p->out->spec.type_a));
    QN_TRY(float_type(p, b, &p->out->spec.type_b));
    return float_type(p, y, &p->out->spec.type_y);
}

void qn_vk_pack_numbers(qn_vk_pack *p) {
    const qn_op_info *info = qn_op_describe(p->step->op);
    int at = 0;
    for (int i = 0; i < info->n_attr && at < 6; i++)
        if (info->attr[i].kind == QN_ATTR_KIND_f32)
            memcpy(&p->out->push.p[at++], (const char *)p->step->attr + info->attr[i].offset, 4);
}

uint64_t qn_vk_address(const qn_vk_pack *p, const qn_tensor *t) { return p->arena + (uintptr_t)t->data + (uint64_t)t->offset; }

int qn_vk_apart(const qn_vk_pack *p, const qn_tensor *a, const qn_tensor *y) {
    return p->asks || qn_vk_address(p, a) != qn_vk_address(p, y);
}

static int64_t element_stride(const qn_tensor *t, int k) { return qn_ne(t, k) > 1 ? qn_nb(t, k) / qn_dtype_bytes(t->dtype) : 0; }

static qn_status narrow(qn_vk_pack *p, int64_t stride, int32_t *out) {
    if (stride > INT32_MAX || stride < -INT32_MAX) return qn_vk_refuse(p, "a stride is beyond 2^31 elements");
    *out = (int32_t)stride;
    return QN_OK;
}

qn_status qn_vk_stride(qn_vk_pack *p, const qn_tensor *t, int k, int32_t *stride) {
    return narrow(p, element_stride(t, k), stride);
}

qn_status qn_vk_byte_stride(qn_vk_pack *p, const qn_tensor *t, int k, int32_t *stride) {
    return narrow(p, qn_ne(t, k) > 1 ? qn_nb(t, k) : 0, stride);
}

static void fill_axes(axes *x, const qn_vk_fold *f) {
    memset(x, 0, sizeof *x);
    x->rank = f->shape->rank > f->keep ? f->shape->rank
                                       : f->keep; /* ones in front may be left out; operands have more along them */
    x->operands = f->n;
    for (int k = 0; k < x->rank; k++) {
        x->n[k] = x->m[k] = qn_ne(f->shape, k);
        for (int o = 0; o < f->n; o++) x->s[o][k] = f->operand[o] ? element_stride(f->operand[o], k) : 0;
        if (f->tiled && qn_ne(f->tiled, k) > 1 && qn_ne(f->tiled, k) < x->n[k]) x->m[k] = qn_ne(f->tiled, k);
    }
}

static int can_fold(const axes *x, int inner, int outer) {
    if (x->m[inner] != x->n[inner] || x->m[outer] != x->n[outer]) return 0;
    for (int o = 0; o < x->operands; o++)
        if (x->s[o][outer] != x->s[o][inner] * x->n[inner]) return 0;
    return 1;
}

/* Extents of 1 have stride 0, so dropping them is what lets their neighbours meet. */
static void fold(axes *x, int keep) {
    int top = -1;
    for (int k = 0; k < x->rank; k++) {
        if (k >= keep && x->n[k] == 1) continue;
        if (k >= keep && top >= keep && can_fold(x, top, k)) {
            x->n[top] *= x->n[k];
            x->m[top] = x->n[top];
            continue;
        }
        top++;
        x->n[top] = x->n[k];
        x->m[top] = x->m[k];
        for (int o = 0; o < x->operands; o++) x->s[o][top] = x->s[o][k];
    }
    x->rank = top + 1;
}

qn_status qn_vk_fold_axes(qn_vk_pack *p, qn_vk_fold *f) {
    qn_vk_push *push = &p->out->push;
    qn_vk_spec *spec = &p->out->spec;
    axes x;
    fill_axes(&x, f);
    fold(&x, f->keep);
    if (x.rank > AXES) return qn_vk_refuse(p, "more than 4 axes remain after folding");
    int64_t total = 1;
    for (int k = 0; k < AXES; k++) {
        int there = k < x.rank;
        int64_t n = there ? x.n[k] : 1;
        if (n > INT32_MAX || qn_mul_overflow(total, n ? n : 1, &total) || total > INT32_MAX)
            return qn_vk_refuse(p, "more than 2^31 elements");
        push->n[k] = (uint32_t)n;
        push->nb[k] = there ? (uint32_t)x.m[k] : 1;
        if (push->nb[k] < push->n[k]) spec->tiled = 1;
        for (int o = 0; o < f->n; o++) QN_TRY(narrow(p, there ? x.s[o][k] : 0, &f->stride[o][k]));
    }
    spec->rank = f->keep ? AXES : x.rank < 1 ? 1 : (uint32_t)x.rank; /* kernels with axes to keep know which is which */
    return QN_OK;
}

qn_status qn_vk_pack_walk(qn_vk_pack *p, const qn_vk_walk *w) {
    qn_vk_push *push = &p->out->push;
    qn_vk_fold f = {.shape = w->shape, .n = 3, .operand = {w->a, w->b, w->y}, .tiled = w->b, .keep = w->keep};
    QN_TRY(qn_vk_fold_axes(p, &f));
    memcpy(push->sa, f.stride[0], sizeof push->sa);
    memcpy(push->sb, f.stride[1], sizeof push->sb);
    memcpy(push->sy, f.stride[2], sizeof push->sy);
    push->a = w->a ? qn_vk_address(p, w->a) : 0;
    push->b = w->b ? qn_vk_address(p, w->b) : 0;
    push->y = w->y ? qn_vk_address(p, w->y) : 0;
    return QN_OK;
}

qn_status qn_vk_grid_groups(qn_vk_pack *p, uint64_t groups) {
    uint64_t x = groups < QN_VK_GROUP_LIMIT ? groups : QN_VK_GROUP_LIMIT, y = x ? (groups + x - 1) / x : 0;
    if (y > QN_VK_GROUP_LIMIT) return qn_vk_refuse(p, "more work than a grid has room for");
    p->out->groups[0] = (uint32_t)x;
    p->out->groups[1] = (uint32_t)y;
    p->out->groups[2] = 1;
    return QN_OK;
}

qn_status qn_vk_grid_elements(qn_vk_pack *p) {
    const uint32_t *n = p->out->push.n;
    uint64_t count = (uint64_t)n[0] * n[1] * n[2] * n[3];
    return qn_vk_grid_groups(p, (count + QN_VK_LANES - 1) / QN_VK_LANES);
}

qn_status qn_vk_grid_rows(qn_vk_pack *p) {
    const uint32_t *n = p->out->push.n;
    return qn_vk_grid_groups(p, (uint64_t)n[1] * n[2] * n[3]);
}

void *qn_vk_take_block(qn_vk_pack *p, uint64_t bytes, uint64_t *address) {
    uint64_t at = p->block_used;
    p->block_used += (bytes + QN_VK_BLOCK_ALIGN - 1) / QN_VK_BLOCK_ALIGN * QN_VK_BLOCK_ALIGN;
    *address = p->block_at + at;
    return p->block ? p->block + at : NULL;
}

qn_status qn_vk_at_most_4_axes(qn_vk_pack *p, const qn_tensor *t) {
    for (int k = 4; k < t->rank; k++)
        if (qn_ne(t, k) != 1) return qn_vk_refuse(p, "no kernel for more than 4 axes");
    return QN_OK;
}

qn_status qn_vk_extent(qn_vk_pack *p, int64_t n, uint32_t *out) {
    if (n > INT32_MAX) return qn_vk_refuse(p, "an extent is beyond 2^31");
    *out = (uint32_t)n;
    return QN_OK;
}

qn_status qn_vk_scratch(qn_vk_pack *p, uint32_t dtype, int rank, const int64_t *shape, qn_tensor *t) {
    const uint64_t align = 256;
    uint64_t bytes;
    if (qn_tensor_bytes((qn_dtype)dtype, rank, shape, &bytes) != QN_OK ||
        qn_tensor_init(t, (qn_dtype)dtype, rank, shape, NULL, 0) != QN_OK)
        return qn_vk_refuse(p, "what it needs on the way is too large");
    t->size = bytes;
    t->data = (void *)(uintptr_t)(p->scratch_at - p->arena + p->scratch_used); /* the arena's address is added again later */
    if (t->size > UINT64_MAX / 2 - p->scratch_used) return qn_vk_refuse(p, "what it needs on the way is too large");
    p->scratch_used += (t->size + align - 1) / align * align;
    return QN_OK;
}
