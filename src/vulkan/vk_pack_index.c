/* Gathering and scattering by index: whole slices (glsl/index.comp) and elements along one axis (glsl/along.comp). */
#include "op/op_axes.h"
#include "op/op_layout.h"
#include "vulkan/vk_many.h"

/* Must agree with Block in glsl/index.comp. */
typedef struct index_block {
    uint64_t table, slices, indices, head, next, status;
    int32_t s_table[3], s_slices[3], s_indices[2];
    uint32_t inner, places, updates, outer, index_outer, index_type, step_number, from_zero;
} index_block;

enum { INNER, MIDDLE, OUTER };
enum { GATHER, CHAIN, ADD, PUT };

/* ---- Several axes as one */

typedef struct operand {
    const qn_tensor *t;
    int first; /* axis from the end that the run begins with */
    int32_t *stride;
} operand;

/* n axes of every operand from its first on, folded into one of *extent elements; extents are those of the first operand. */
static qn_status fold_run(qn_vk_pack *p, int n, operand *list, int operands, uint32_t *extent) {
    int64_t all = 1, step[3] = {0};
    for (int k = 0; k < n; k++) {
        int64_t extent_k = qn_ne(list[0].t, list[0].first + k);
        if (extent_k == 1) continue;
        for (int o = 0; o < operands; o++) {
            int64_t bytes = qn_dtype_bytes(list[o].t->dtype);
            int64_t s = qn_ne(list[o].t, list[o].first + k) > 1 ? qn_nb(list[o].t, list[o].first + k) / bytes : 0;
            if (all == 1) step[o] = s;
            else if (s != step[o] * all) return qn_vk_refuse(p, "its axes do not lie behind one another");
        }
        if (qn_mul_overflow(all, extent_k, &all)) return qn_vk_refuse(p, "more than 2^31 elements");
    }
    for (int o = 0; o < operands; o++) {
        if (step[o] > INT32_MAX || step[o] < -INT32_MAX) return qn_vk_refuse(p, "a stride is beyond 2^31 elements");
        *list[o].stride = (int32_t)step[o];
    }
    return qn_vk_extent(p, all, extent);
}

static qn_status index_type(qn_vk_pack *p, const qn_tensor *idx, uint32_t *type) {
    *type = idx->dtype == QN_DTYPE_I64;
    if (idx->dtype != QN_DTYPE_I32 && idx->dtype != QN_DTYPE_U32 && idx->dtype != QN_DTYPE_I64)
        return qn_vk_refuse(p, "no kernel for this dtype of its indices");
    return QN_OK;
}

/* ---- Slices */

/* Axis k of the table; the `indexed` axes of the slices from k on stand in its place. With `batched` the axes outside belong to the
 * indices too. */
typedef struct slices {
    const qn_tensor *table, *slices, *idx;
    int k, indexed, batched;
} slices;

static qn_status fill_block(qn_vk_pack *p, const slices *x, index_block *b) {
    int rank = x->table->rank - 1 + x->indexed, outer = rank - x->k - x->indexed;
    int32_t unused;
    memset(b, 0, sizeof *b);
    QN_TRY(index_type(p, x->idx, &b->index_type));
    operand inner[2] = {{x->slices, 0, &b->s_slices[INNER]}, {x->table, 0, &b->s_table[INNER]}};
    operand middle[2] = {{x->idx, 0, &b->s_indices[0]}, {x->slices, x->k, &b->s_slices[MIDDLE]}};
    operand outside[3] = {{x->slices, x->k + x->indexed, &b->s_slices[OUTER]},
                          {x->table, x->k + 1, &b->s_table[OUTER]},
                          {x->idx, x->indexed, x->batched ? &b->s_indices[1] : &unused}};
    QN_TRY(fold_run(p, x->k, inner, 2, &b->inner));
    QN_TRY(fold_run(p, x->indexed, middle, 2, &b->updates));
    QN_TRY(fold_run(p, outer > 0 ? outer : 0, outside, x->batched ? 3 : 2, &b->outer));
    QN_TRY(qn_vk_stride(p, x->table, x->k, &b->s_table[MIDDLE]));
    QN_TRY(qn_vk_extent(p, qn_ne(x->table, x->k), &b->places));
    b->index_outer = x->batched ? b->outer : 1;
    b->table = qn_vk_address(p, x->table);
    b->slices = qn_vk_address(p, x->slices);
    b->indices = qn_vk_address(p, x->idx);
    b->status = p->block_at;
    b->step_number = p->step_number;
    return QN_OK;
}

/* Every index looks at all others, which a device with many lanes does for longer lists than one that is a CPU. */
static qn_status check_length(qn_vk_pack *p, uint32_t updates) {
    enum { MOST = 1 << 18, MOST_ON_CPU = 1024 };
    int on_cpu = (p->device->facts.info.features & QN_DEVICE_SOFTWARE) != 0;
    return updates > (on_cpu ? MOST_ON_CPU : MOST) ? qn_vk_refuse(p, "no kernel for so many indices") : QN_OK;
}

/* One lane for every element of what the kernel's fn walks. */
static qn_status finish(qn_vk_pack *p, const index_block *b, uint32_t fn) {
    uint64_t where, middle = fn == ADD ? b->places : b->updates;
    uint64_t lanes = fn == CHAIN ? (uint64_t)b->updates * b->index_outer : middle * b->outer;
    if (fn == CHAIN || fn == PUT) QN_TRY(check_length(p, b->updates));
    if (lanes > INT32_MAX || (fn != CHAIN && lanes * b->inner > INT32_MAX)) return qn_vk_refuse(p, "more than 2^31 elements");
    void *to = qn_vk_take_block(p, sizeof *b, &where);
    if (to) memcpy(to, b, sizeof *b);
    p->out->spec.fn = fn;
    p->out->push.p[0] = (uint32_t)where;
    p->out->push.p[1] = (uint32_t)(where >> 32);
    return qn_vk_grid_groups(p, ((fn == CHAIN ? lanes : lanes * b->inner) + QN_VK_LANES - 1) / QN_VK_LANES);
}

qn_status qn_vk_pack_gather(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *table = p->step->src[0], *idx = p->step->src[1];
    int k = qn_op_axis(((const qn_attr_gather *)p->step->attr)->axis, table->rank);
    index_block b;
    if (qn_is_block(table->dtype)) return qn_vk_refuse(p, "no kernel for block types");
    QN_TRY(fill_block(p, &(slices){table, p->step->dst[0], idx, k, idx->rank, 0}, &b));
    p->out->spec.type_a = qn_vk_word_of(table->dtype);
    return finish(p, &b, fn);
}

/* Chains, then sums, in a dispatch of `fill` that was begun. y already holds what is added to, unless it begins as zero. */
static qn_status pack_add(qn_vk_pack *p, const slices *x, int from_zero) {
    index_block b;
    qn_tensor head, next;
    QN_TRY(fill_block(p, x, &b));
    int64_t heads = (int64_t)b.places * b.index_outer, nexts = (int64_t)b.updates * b.index_outer;
    QN_TRY(qn_vk_scratch(p, QN_DTYPE_I32, 1, &heads, &head));
    QN_TRY(qn_vk_scratch(p, QN_DTYPE_I32, 1, &nexts, &next));
    b.head = qn_vk_address(p, &head);
    b.next = qn_vk_address(p, &next);
    b.from_zero = (uint32_t)from_zero;
    QN_TRY(qn_vk_float_types(p, x->slices, NULL, x->table));
    qn_vk_spec types = p->out->spec;
    QN_TRY(qn_vk_pack_walk(p, &(qn_vk_walk){&head, NULL, NULL, &head, 0}));
    p->out->push.p[0] = UINT32_MAX;
    QN_TRY(qn_vk_grid_elements(p));
    for (uint32_t fn = CHAIN; fn <= ADD; fn++) {
        QN_TRY(qn_vk_next(p, "index", fn, 1));
        p->out->spec.type_a = types.type_a;
        p->out->spec.type_y = types.type_y;
        QN_TRY(finish(p, &b, fn));
    }
    return QN_OK;
}

/* A copy of `a` in y first, unless y is a. Ends with a dispatch of `shader` begun. */
static qn_status copy_first(qn_vk_pack *p, const qn_tensor *y, const qn_tensor *a, const char *shader) {
    if (!qn_vk_apart(p, a, y)) return qn_vk_begin_dispatch(p, shader, 0, 0);
    QN_TRY(qn_vk_sub_step(p, &(qn_vk_sub){.op = QN_OP_cpy, .src = {a}, .dst = {y}}));
    return qn_vk_begin_dispatch(p, shader, 0, 1);
}

qn_status qn_vk_pack_scatter_add(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *a = p->step->src[0], *u = p->step->src[1], *idx = p->step->src[2], *y = p->step->dst[0];
    int k = qn_op_axis(((const qn_attr_scatter_add *)p->step->attr)->axis, a->rank);
    (void)fn;
    QN_TRY(copy_first(p, y, a, "fill"));
    QN_TRY(pack_add(p, &(slices){y, u, idx, k, idx->rank, 0}, 0));
    return qn_vk_end_dispatch(p);
}

/* A tensor with at least `rank` axes. */
static qn_tensor at_least(const qn_tensor *t, int rank) {
    qn_tensor out = *t;
    if (t->rank >= rank) return out;
    out.rank = rank;
    for (int k = 0; k < rank; k++) {
        out.shape[rank - 1 - k] = qn_ne(t, k);
        out.stride[rank - 1 - k] = qn_nb(t, k);
    }
    return out;
}

qn_status qn_vk_pack_scatter_rows(qn_vk_pack *p, uint32_t fn) {
    qn_tensor g = at_least(p->step->src[0], 2), y = at_least(p->step->dst[0], g.rank);
    (void)fn;
    return pack_add(p, &(slices){&y, &g, p->step->src[1], 1, 1, 1}, 1);
}

qn_status qn_vk_pack_set_rows(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *a = p->step->src[0], *idx = p->step->src[2], *to = p->step->dst[0];
    qn_tensor b = at_least(p->step->src[1], 2), y = at_least(to, b.rank);
    index_block block;
    (void)fn;
    if (qn_is_block(to->dtype)) return qn_vk_refuse(p, "no kernel writes block types");
    for (int k = 1; k + 1 < QN_MAX_RANK; k++)
        if (qn_ne(idx, k) != qn_ne(&b, k + 1) && qn_ne(idx, k) != 1) return qn_vk_refuse(p, "no kernel for tiled indices");
    QN_TRY(copy_first(p, to, a, "index"));
    QN_TRY(qn_vk_float_types(p, &b, NULL, &y));
    QN_TRY(fill_block(p, &(slices){&y, &b, idx, 1, 1, 1}, &block));
    QN_TRY(finish(p, &block, PUT));
    return qn_vk_end_dispatch(p);
}

/* The rows that the ids name, then the sum. */
qn_status qn_vk_pack_add_id(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *a = p->step->src[0], *b = p->step->src[1], *ids = p->step->src[2], *y = p->step->dst[0];
    qn_attr_gather at = qn_attr_gather_default();
    qn_tensor rows, table = *b;
    (void)fn;
    if (a->rank != 3 || b->rank != 2 || ids->rank != 2) return qn_vk_refuse(p, "no kernel for so many axes");
    at.axis = 0;
    QN_TRY(qn_vk_scratch(p, b->dtype, 3, a->shape, &rows));
    QN_TRY(qn_vk_sub_step(p, &(qn_vk_sub){.op = QN_OP_gather, .attr = &at, .src = {&table, ids}, .dst = {&rows}}));
    return qn_vk_sub_step(p, &(qn_vk_sub){.op = QN_OP_add, .waits = 1, .src = {a, &rows}, .dst = {y}});
}

/* ---- Along one axis */

static qn_status along_numbers(qn_vk_pack *p, int64_t places) {
    QN_TRY(qn_vk_extent(p, places, &p->out->push.nb[1]));
    p->out->push.p[0] = p->step_number;
    p->out->push.p[2] = (uint32_t)p->block_at;
    p->out->push.p[3] = (uint32_t)(p->block_at >> 32);
    return QN_OK;
}

/* a, idx and y walked over `shape`, each with its own extent along the last axis. */
static qn_status walk_along(qn_vk_pack *p, const qn_tensor *shape, const qn_tensor *a, const qn_tensor *idx, const qn_tensor *y) {
    qn_vk_push *push = &p->out->push;
    qn_vk_fold f = {.shape = shape, .n = 3, .operand = {a, idx, y}, .keep = 1};
    uint32_t type;
    QN_TRY(index_type(p, idx, &type));
    QN_TRY(qn_vk_fold_axes(p, &f));
    memcpy(push->sa, f.stride[0], sizeof push->sa);
    memcpy(push->sb, f.stride[1], sizeof push->sb);
    memcpy(push->sy, f.stride[2], sizeof push->sy);
    push->a = a ? qn_vk_address(p, a) : 0;
    push->b = qn_vk_address(p, idx);
    push->y = qn_vk_address(p, y);
    push->p[1] = type;
    QN_TRY(qn_vk_extent(p, qn_ne(idx, 0), &push->nb[0]));
    return qn_vk_grid_elements(p);
}

qn_status qn_vk_pack_gather_along(qn_vk_pack *p, uint32_t fn) {
    int k = qn_op_axis(((const qn_attr_gather_along *)p->step->attr)->axis, p->step->src[0]->rank);
    qn_tensor a = qn_op_lanes(p->step->src[0], k), idx = qn_op_lanes(p->step->src[1], k), y = qn_op_lanes(p->step->dst[0], k);
    (void)fn;
    p->out->spec.type_a = qn_vk_word_of(a.dtype);
    QN_TRY(walk_along(p, &idx, &a, &idx, &y));
    return along_numbers(p, qn_ne(&a, 0));
}

qn_status qn_vk_pack_scatter_along(qn_vk_pack *p, uint32_t fn) {
    int k = qn_op_axis(((const qn_attr_scatter_along_add *)p->step->attr)->axis, p->step->src[0]->rank);
    qn_tensor u = qn_op_lanes(p->step->src[1], k), idx = qn_op_lanes(p->step->src[2], k), y = qn_op_lanes(p->step->dst[0], k);
    QN_TRY(copy_first(p, p->step->dst[0], p->step->src[0], "along"));
    QN_TRY(qn_vk_float_types(p, &u, NULL, &y));
    QN_TRY(walk_along(p, &y, &u, &idx, &y));
    QN_TRY(check_length(p, p->out->push.nb[0]));
    QN_TRY(along_numbers(p, qn_ne(&y, 0)));
    p->out->spec.fn = fn;
    return qn_vk_end_dispatch(p);
}

qn_status qn_vk_pack_one_hot(qn_vk_pack *p, uint32_t fn) {
    const qn_attr_one_hot *at = p->step->attr;
    const qn_tensor *from = p->step->src[0];
    int k = qn_op_axis(at->axis, from->rank + 1);
    qn_tensor y = qn_op_lanes(p->step->dst[0], k), idx = *from;
    (void)fn;
    QN_TRY(qn_vk_float_types(p, NULL, NULL, &y));
    if (from->rank >= QN_MAX_RANK) return qn_vk_refuse(p, "no kernel for so many axes");
    idx.rank = from->rank + 1; /* one more axis behind, which the places take */
    idx.shape[from->rank] = 1;
    idx.stride[from->rank] = 0;
    QN_TRY(walk_along(p, &y, NULL, &idx, &y));
    QN_TRY(along_numbers(p, at->depth));
    p->out->push.p[4] = qn_vk_bits(at->on);
    p->out->push.p[5] = qn_vk_bits(at->off);
    return QN_OK;
}
