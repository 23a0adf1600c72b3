/* Rotary embedding from tables, gradients of gates, running sums, sorting. */
#include "op/op_axes.h"
#include "vulkan/vk_many.h"

/* ---- rope_table. fn 1: the other way round. */

/* x with its heads on an axis of their own: [.., tokens, heads, channels]. */
static qn_status with_heads(qn_vk_pack *p, const qn_tensor *x, int64_t head_dim, qn_tensor *out) {
    *out = *x;
    if (!head_dim) {
        if (x->rank >= 2) return QN_OK;
        out->rank = 2; /* one head */
        out->shape[0] = 1;
        out->stride[0] = 0;
        out->shape[1] = x->shape[0];
        out->stride[1] = x->stride[0];
        return QN_OK;
    }
    if (x->rank >= QN_MAX_RANK) return qn_vk_refuse(p, "no kernel for so many axes");
    int last = x->rank - 1;
    out->rank = x->rank + 1;
    out->shape[last] = x->shape[last] / head_dim;
    out->stride[last] = x->stride[last] * head_dim;
    out->shape[last + 1] = head_dim;
    out->stride[last + 1] = x->stride[last];
    return QN_OK;
}

/* What the kernel needs of the positions, whose last axis goes with the tokens and those in front with what is in front of them. */
static qn_status pack_positions(qn_vk_pack *p, const qn_tensor *positions, uint32_t tokens, const qn_tensor *x) {
    qn_vk_push *push = &p->out->push;
    (void)tokens;
    if (!positions) return QN_OK;
    qn_tensor at = *positions;
    if (positions->dtype != QN_DTYPE_I32) return qn_vk_refuse(p, "no kernel for this dtype of its positions");
    if (positions->rank + 2 > QN_MAX_RANK) return qn_vk_refuse(p, "no kernel for so many axes");
    at.rank = positions->rank + 2;
    for (int k = 0; k < 2; k++) at.shape[positions->rank + k] = 1, at.stride[positions->rank + k] = 0;
    qn_vk_fold f = {.shape = x, .n = 2, .operand = {x, &at}, .keep = 3};
    uint32_t n[4];
    memcpy(n, push->n, sizeof n);
    QN_TRY(qn_vk_fold_axes(p, &f));
    if (memcmp(n + 1, push->n + 1, 3 * sizeof *n) != 0) return qn_vk_refuse(p, "its positions do not lie like its tokens");
    memcpy(push->sb, f.stride[1], sizeof push->sb);
    push->b = qn_vk_address(p, positions);
    return QN_OK;
}

qn_status qn_vk_pack_rope_table(qn_vk_pack *p, uint32_t fn) {
    const qn_attr_rope_table *at = p->step->attr; /* rope_table_back has the same attributes */
    const qn_tensor *x = p->step->src[0], *y = p->step->dst[0], *cosines = p->step->src[1], *sines = p->step->src[2];
    qn_vk_push *push;
    qn_tensor turned;
    int32_t step_c, step_s;
    int copied = qn_vk_apart(p, x, y);
    if (copied) QN_TRY(qn_vk_sub_step(p, &(qn_vk_sub){.op = QN_OP_cpy, .src = {x}, .dst = {y}}));
    QN_TRY(qn_vk_begin_dispatch(p, "rope_table", fn, copied));
    QN_TRY(with_heads(p, y, at->head_dim, &turned));
    QN_TRY(qn_vk_pack_many(p, &(qn_vk_many){.shape = &turned, .keep = 3, .at = {&turned, cosines, sines}}));
    push = &p->out->push;
    QN_TRY(pack_positions(p, qn_vk_source(p, 3), push->n[2], &turned));
    QN_TRY(qn_vk_stride(p, cosines, 1, &step_c));
    QN_TRY(qn_vk_stride(p, sines, 1, &step_s));
    uint32_t pairs = (at->n_rot ? (uint32_t)at->n_rot : push->n[0]) / 2;
    push->n[0] = pairs;
    QN_TRY(qn_vk_extent(p, qn_ne(cosines, 1), &push->nb[0]));
    push->nb[1] = (uint32_t)step_c;
    push->nb[2] = (uint32_t)step_s;
    push->sa[0] = (int32_t)(uint32_t)p->block_at;
    push->sa[1] = (int32_t)(uint32_t)(p->block_at >> 32);
    push->sa[2] = (int32_t)p->step_number;
    push->p[2] = at->interleaved ? 2 : 1;
    push->p[3] = at->interleaved ? 1 : pairs;
    push->p[4] = qn_vk_bits(fn ? -1 : 1);
    QN_TRY(qn_vk_grid_elements(p));
    return qn_vk_end_dispatch(p);
}

/* ---- glu_back */

/* One half of the last axis. */
static qn_tensor half_of(const qn_tensor *t, int64_t n, int second) {
    qn_tensor h = *t;
    h.shape[t->rank - 1] = n;
    if (second) h.offset += n * t->stride[t->rank - 1];
    return h;
}

qn_status qn_vk_pack_glu_back(qn_vk_pack *p, uint32_t fn) {
    const qn_attr_glu_back *at = p->step->attr;
    const qn_tensor *g = p->step->src[0], *a = p->step->src[1], *b = qn_vk_source(p, 2), *da = p->step->dst[0];
    int64_t n = qn_ne(g, 0);
    (void)fn;
    if (!b && qn_ne(a, 0) != 2 * n) return qn_vk_refuse(p, "no kernel for an element left over");
    qn_tensor u = b ? *a : half_of(a, n, at->swapped), v = b ? *b : half_of(a, n, !at->swapped);
    qn_tensor du = b ? *da : half_of(da, n, at->swapped), dv = b ? *da : half_of(da, n, !at->swapped);
    const qn_tensor *to_v = b ? qn_vk_output(p, 1) : &dv;
    QN_TRY(qn_vk_pack_many(p, &(qn_vk_many){.shape = g, .at = {g, &u, &v, &du, to_v}}));
    p->out->push.p[2] = qn_vk_bits(at->alpha);
    p->out->push.p[3] = qn_vk_bits(at->limit);
    return qn_vk_grid_elements(p);
}

/* ---- Running sums */

static qn_status pack_scan(qn_vk_pack *p, const qn_tensor *x, const qn_tensor *y, int reverse, int exclusive) {
    QN_TRY(qn_vk_float_types(p, x, NULL, y));
    QN_TRY(qn_vk_pack_walk(p, &(qn_vk_walk){x, x, NULL, y, 1}));
    p->out->push.p[0] = (uint32_t)reverse;
    p->out->push.p[1] = (uint32_t)exclusive;
    return qn_vk_grid_rows(p);
}

qn_status qn_vk_pack_cumsum(qn_vk_pack *p, uint32_t fn) {
    const qn_attr_cumsum *at = p->step->attr;
    (void)fn;
    return pack_scan(p, p->step->src[0], p->step->dst[0], at->reverse, at->exclusive);
}

qn_status qn_vk_pack_scan(qn_vk_pack *p, uint32_t fn) {
    const qn_attr_scan *at = p->step->attr;
    int k = qn_op_axis(at->axis, p->step->src[0]->rank);
    qn_tensor x = qn_op_lanes(p->step->src[0], k), y = qn_op_lanes(p->step->dst[0], k);
    (void)fn;
    return pack_scan(p, &x, &y, at->reverse, at->exclusive);
}

/* ---- Sorting */

static qn_status pack_rank(qn_vk_pack *p, uint32_t fn) {
    enum { LONGEST = 8192 }; /* every element looks at all of its row */
    const qn_tensor *a = p->step->src[0], *y = p->step->dst[0];
    if (qn_ne(a, 0) > LONGEST) return qn_vk_refuse(p, "no kernel sorts more than 8192 elements");
    QN_TRY(qn_vk_float_types(p, a, NULL, NULL));
    QN_TRY(qn_vk_pack_walk(p, &(qn_vk_walk){a, a, NULL, y, 1}));
    p->out->push.p[0] = (uint32_t)qn_ne(y, 0);
    p->out->spec.fn = fn;
    return qn_vk_grid_elements(p);
}

qn_status qn_vk_pack_argsort(qn_vk_pack *p, uint32_t fn) {
    (void)fn;
    return pack_rank(p, (uint32_t)((const qn_attr_argsort *)p->step->attr)->order);
}

qn_status qn_vk_pack_top_k(qn_vk_pack *p, uint32_t fn) { return pack_rank(p, fn); }
