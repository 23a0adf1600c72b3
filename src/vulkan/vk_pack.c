/* Packers: each looks at a checked step and either fills in what its kernel is told, or says why the kernel cannot do it. They
 * are asked twice, by `supports` without addresses and by a program with them, so the two can never disagree. */
#include "vulkan/vk_layout.h"

/* ---- Which kernel */

typedef struct kernel_row {
    int op;
    const char *shader;
    uint32_t fn;
    qn_vk_pack_fn pack;
} kernel_row;

static const kernel_row rows[] = {
#define QN_VK_KERNEL(op, shader, fn, packer) {QN_OP_##op, #shader, fn, qn_vk_pack_##packer},
#include "vulkan/vk_kernels.def"
#undef QN_VK_KERNEL
};
enum { ROWS = sizeof rows / sizeof *rows };

int qn_vulkan_has_op(int op) {
    for (int i = 0; i < ROWS; i++)
        if (rows[i].op == op) return 1;
    return 0;
}

int qn_vulkan_op_count(void) {
    int n = 0;
    for (int op = 0; op < QN_OP_COUNT; op++) n += qn_vulkan_has_op(op);
    return n;
}

/* Takes the next place in the list for a dispatch of this shader. */
static qn_status open_dispatch(qn_vk_pack *p, const char *shader, uint32_t fn) {
    if (p->n >= QN_VK_DISPATCHES) return qn_vk_refuse(p, "it takes too many kernels");
    p->out = &p->list[p->n];
    memset(p->out, 0, sizeof *p->out);
    p->out->shader = qn_vk_shader_find(shader);
    p->out->spec.fn = fn;
    return p->out->shader < 0 ? qn_vk_refuse(p, "its shader is not in this build") : QN_OK;
}

static void close_dispatch(qn_vk_pack *p) {
    p->out->waits = p->waits;
    p->waits = 0;
    p->n++;
}

static qn_status try_row(qn_vk_pack *p, const kernel_row *row) {
    uint32_t fn = row->fn == QN_VK_SUBOP ? (uint32_t)p->step->subop : row->fn;
    if (strcmp(row->shader, "none") == 0) return row->pack(p, fn);
    QN_TRY(open_dispatch(p, row->shader, fn));
    QN_TRY(row->pack(p, fn));
    close_dispatch(p);
    return QN_OK;
}

/* The front asks no more of complex numbers than that their halves be aligned, and nothing of blocks; kernels take numbers whole and
 * blocks by two bytes. */
static int is_aligned(const qn_tensor *t) {
    uint64_t unit = qn_is_block(t->dtype) ? 2 : (uint64_t)qn_dtype_bytes(t->dtype);
    uint64_t odd = (uintptr_t)t->data + (uint64_t)t->offset;
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] > 1) odd |= (uint64_t)t->stride[i];
    return odd % unit == 0;
}

static qn_status check_alignment(qn_vk_pack *p) {
    int all = 1;
    for (int i = 0; i < p->step->n_src; i++) all &= !p->step->src[i] || is_aligned(p->step->src[i]);
    for (int i = 0; i < p->step->n_dst; i++) all &= !p->step->dst[i] || is_aligned(p->step->dst[i]);
    return all ? QN_OK : qn_vk_refuse(p, "its elements do not lie at multiples of their size");
}

qn_status qn_vk_translate(qn_vk_pack *p) {
    qn_status status = QN_UNSUPPORTED;
    int found = 0;
    qn_vk_pack before = *p;
    QN_TRY(check_alignment(p));
    for (int i = 0; i < ROWS; i++) {
        if (rows[i].op != p->step->op) continue;
        found = 1;
        *p = before;
        if (p->step->is_commit && rows[i].pack != qn_vk_pack_copy) return qn_vk_refuse(p, "only a copy can be a commit");
        status = try_row(p, &rows[i]);
        if (status != QN_UNSUPPORTED) return status;
    }
    *p = before;
    return found ? status : qn_vk_refuse(p, "there is no kernel for this op");
}

qn_status qn_vk_begin_dispatch(qn_vk_pack *p, const char *shader, uint32_t fn, int waits) {
    p->waits = waits && p->n > 0;
    return open_dispatch(p, shader, fn);
}

qn_status qn_vk_end_dispatch(qn_vk_pack *p) {
    close_dispatch(p);
    return QN_OK;
}

qn_status qn_vk_next(qn_vk_pack *p, const char *shader, uint32_t fn, int waits) {
    close_dispatch(p);
    p->waits = waits;
    return open_dispatch(p, shader, fn);
}

qn_status qn_vk_sub_step(qn_vk_pack *p, const qn_vk_sub *sub) {
    const qn_tensor *src[QN_MAX_SRC] = {NULL}, *dst[QN_MAX_DST] = {NULL};
    const qn_checked_step *outer = p->step;
    qn_checked_step step = {.op = sub->op, .subop = sub->subop, .attr = sub->attr, .src = src, .dst = dst};
    for (int i = 0; i < QN_VK_SUB_TENSORS; i++) {
        src[i] = sub->src[i];
        dst[i] = sub->dst[i];
        if (src[i]) step.n_src = i + 1;
        if (dst[i]) step.n_dst = i + 1;
    }
    if (!step.attr) step.attr = qn_op_describe(sub->op)->attr_default;
    p->waits = sub->waits && p->n > 0;
    p->step = &step;
    qn_status status = qn_vk_translate(p);
    p->step = outer;
    return status;
}

/* ---- One element at a time */

qn_status qn_vk_pack_binary(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *a = p->step->src[0], *b = p->step->src[1], *y = p->step->dst[0];
    (void)fn;
    QN_TRY(qn_vk_float_types(p, a, b, y));
    QN_TRY(qn_vk_pack_walk(p, &(qn_vk_walk){y, a, b, y, 0}));
    return qn_vk_grid_elements(p);
}

/* Both sides may be stretched: an extent of 1 has a stride of 0. */
qn_status qn_vk_pack_arith(qn_vk_pack *p, uint32_t fn) { return qn_vk_pack_binary(p, fn); }

qn_status qn_vk_pack_unary(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *a = p->step->src[0], *y = p->step->dst[0];
    (void)fn;
    QN_TRY(qn_vk_float_types(p, a, NULL, y));
    QN_TRY(qn_vk_pack_walk(p, &(qn_vk_walk){y, a, NULL, y, 0}));
    qn_vk_pack_numbers(p);
    return qn_vk_grid_elements(p);
}

/* u and v are two tensors, or the halves of one. */
qn_status qn_vk_pack_glu(qn_vk_pack *p, uint32_t fn) {
    const qn_attr_glu *at = p->step->attr;
    const qn_tensor *y = p->step->dst[0], *b = p->step->n_src > 1 ? p->step->src[1] : NULL;
    qn_tensor u = *p->step->src[0], v = b ? *b : u;
    (void)fn;
    if (!b) {
        int last = u.rank - 1;
        int64_t n = qn_ne(y, 0);
        u.shape[last] = v.shape[last] = n;
        *(at->swapped ? &u.offset : &v.offset) += n * u.stride[last];
    }
    QN_TRY(qn_vk_float_types(p, &u, &v, y));
    QN_TRY(qn_vk_pack_walk(p, &(qn_vk_walk){y, &u, &v, y, 0}));
    qn_vk_pack_numbers(p);
    return qn_vk_grid_elements(p);
}

/* Equal dtypes move as words. Integers wider than a float's fraction would round twice on the way to halves, or not fit. */
static qn_status copy_types(qn_vk_pack *p, const qn_tensor *a, const qn_tensor *y) {
    qn_vk_spec *s = &p->out->spec;
    if (qn_is_block(a->dtype) || qn_is_block(y->dtype)) return qn_vk_refuse(p, "no kernel for block types");
    if (a->dtype == y->dtype) {
        s->type_a = s->type_y = qn_vk_word_of(a->dtype);
        return QN_OK;
    }
    s->type_a = qn_vk_type_of(a->dtype);
    s->type_y = qn_vk_type_of(y->dtype);
    int wide = s->type_a == QN_VK_I32 || s->type_a == QN_VK_U32;
    if (s->type_a == QN_VK_NO_TYPE || s->type_y == QN_VK_NO_TYPE ||
        (wide && (s->type_y == QN_VK_BF16 || s->type_y == QN_VK_I32 || s->type_y == QN_VK_U32)))
        return qn_vk_refuse(p, "no kernel converts between these dtypes");
    return QN_OK;
}

/* Source and destination are folded each by itself: their shapes need not agree. */
qn_status qn_vk_pack_copy(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *a = p->step->src[0], *y = p->step->dst[0];
    qn_vk_push *push = &p->out->push;
    (void)fn;
    QN_TRY(copy_types(p, a, y));
    QN_TRY(qn_vk_pack_walk(p, &(qn_vk_walk){a, a, NULL, NULL, 0}));
    qn_vk_push from = *push;
    uint32_t rank = p->out->spec.rank;
    QN_TRY(qn_vk_pack_walk(p, &(qn_vk_walk){y, NULL, NULL, y, 0}));
    push->a = from.a;
    memcpy(push->sa, from.sa, sizeof push->sa);
    memcpy(push->nb, from.n, sizeof push->nb);
    if (rank > p->out->spec.rank) p->out->spec.rank = rank;
    p->out->spec.tiled = 0;
    if (p->step->is_commit) {
        push->p[0] = (uint32_t)p->block_at;
        push->p[1] = (uint32_t)(p->block_at >> 32);
    }
    return qn_vk_grid_elements(p);
}

qn_status qn_vk_pack_repeat(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *a = p->step->src[0], *y = p->step->dst[0];
    (void)fn;
    QN_TRY(copy_types(p, a, y));
    QN_TRY(qn_vk_pack_walk(p, &(qn_vk_walk){y, NULL, a, y, 0}));
    return qn_vk_grid_elements(p);
}

/* ---- Rows */

qn_status qn_vk_pack_reduce(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *a = p->step->src[0], *y = p->step->dst[0];
    (void)fn;
    QN_TRY(qn_vk_float_types(p, a, NULL, y));
    QN_TRY(qn_vk_pack_walk(p, &(qn_vk_walk){a, a, NULL, y, 1}));
    return qn_vk_grid_rows(p);
}

qn_status qn_vk_pack_reduce_all(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *a = p->step->src[0], *y = p->step->dst[0];
    (void)fn;
    QN_TRY(qn_vk_float_types(p, a, NULL, y));
    QN_TRY(qn_vk_pack_walk(p, &(qn_vk_walk){a, a, NULL, NULL, 0}));
    p->out->push.y = qn_vk_address(p, y);
    return qn_vk_grid_groups(p, 1);
}

qn_status qn_vk_pack_norm(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *x = p->step->src[0], *y = p->step->dst[0];
    (void)fn;
    QN_TRY(qn_vk_float_types(p, x, NULL, y));
    QN_TRY(qn_vk_pack_walk(p, &(qn_vk_walk){x, x, NULL, y, 1}));
    qn_vk_pack_numbers(p);
    return qn_vk_grid_rows(p);
}

qn_status qn_vk_pack_soft_max(qn_vk_pack *p, uint32_t fn) {
    const qn_attr_soft_max *at = p->step->attr;
    const qn_tensor *x = p->step->src[0], *mask = p->step->n_src > 1 ? p->step->src[1] : NULL, *y = p->step->dst[0];
    (void)fn;
    const qn_tensor *sinks = p->step->n_src > 2 ? p->step->src[2] : NULL;
    QN_TRY(qn_vk_float_types(p, x, mask, y));
    QN_TRY(qn_vk_pack_walk(p, &(qn_vk_walk){x, x, mask, y, mask || sinks ? 4 : 1}));
    p->out->spec.fn = (mask ? 1u : 0u) | (sinks ? 2u : 0u);
    if (sinks) {
        int32_t step;
        if (sinks->dtype != QN_DTYPE_F32) return qn_vk_refuse(p, "no kernel for sinks that are not f32");
        QN_TRY(qn_vk_stride(p, sinks, 0, &step));
        uint64_t where = qn_vk_address(p, sinks);
        p->out->push.p[3] = (uint32_t)step;
        p->out->push.p[4] = (uint32_t)where;
        p->out->push.p[5] = (uint32_t)(where >> 32);
    }
    p->out->push.p[0] = qn_vk_bits(at->scale);
    uint32_t full = 1;
    while (full <= qn_ne(x, 2) / 2 && full < 1u << 30) full *= 2;
    p->out->push.p[1] = qn_vk_bits(-at->max_bias / (float)full);
    p->out->push.p[2] = full;
    return qn_vk_grid_rows(p);
}

/* ---- Others */

qn_status qn_vk_pack_get_rows(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *a = p->step->src[0], *idx = p->step->src[1], *y = p->step->dst[0];
    qn_vk_push *push = &p->out->push;
    qn_vk_spec *spec = &p->out->spec;
    (void)fn;
    QN_TRY(qn_vk_at_most_4_axes(p, y));
    int blocks = qn_is_block(a->dtype);
    spec->type_a = blocks ? qn_vk_block_type_of(a->dtype) : qn_vk_type_of(a->dtype);
    spec->type_y = qn_vk_type_of(y->dtype);
    if ((blocks ? spec->type_a == QN_VK_NO_TYPE : spec->type_a > QN_VK_I32) || spec->type_y > QN_VK_I32 ||
        idx->dtype != QN_DTYPE_I32)
        return qn_vk_refuse(p, "no kernel for these dtypes");
    if (a->dtype == y->dtype) spec->type_a = spec->type_y = QN_VK_RAW32; /* f32 or i32: get_rows widens halves */
    QN_TRY(qn_vk_pack_walk(p, &(qn_vk_walk){y, NULL, NULL, y, 4}));
    for (int k = 0; k < 4; k++) {
        QN_TRY(blocks ? qn_vk_byte_stride(p, a, k, &push->sa[k]) : qn_vk_stride(p, a, k, &push->sa[k]));
        if (k) QN_TRY(qn_vk_stride(p, idx, k - 1, &push->sb[k]));
    }
    push->a = qn_vk_address(p, a);
    push->b = qn_vk_address(p, idx);
    QN_TRY(qn_vk_extent(p, qn_ne(a, 1), &push->nb[0]));
    push->p[0] = p->step_number;
    push->p[2] = (uint32_t)p->block_at;
    push->p[3] = (uint32_t)(p->block_at >> 32);
    return qn_vk_grid_elements(p);
}
