/* Reductions over any axes and their gradients. */
#include "op/op_axes.h"
#include "op/op_layout.h"
#include "vulkan/vk_layout.h"

enum { ONE_LANE = 64 }; /* results of so few elements are a lane's work, not a workgroup's */

/* What goes, folded into nb and sb; then what stays, into n, sa and sy. */
static qn_status pack_split(qn_vk_pack *p, const qn_tensor *kept, const qn_tensor *gone, const qn_tensor *y) {
    qn_vk_push *push = &p->out->push;
    qn_vk_fold f = {.shape = gone, .n = 1, .operand = {gone}}, k = {.shape = kept, .n = 2, .operand = {kept, y}};
    uint32_t extents[QN_VK_AXES];
    QN_TRY(qn_vk_fold_axes(p, &f));
    memcpy(extents, push->n, sizeof extents);
    QN_TRY(qn_vk_fold_axes(p, &k));
    memcpy(push->nb, extents, sizeof extents);
    memcpy(push->sb, f.stride[0], sizeof push->sb);
    memcpy(push->sa, k.stride[0], sizeof push->sa);
    memcpy(push->sy, k.stride[1], sizeof push->sy);
    return QN_OK;
}

static qn_status grid_of_results(qn_vk_pack *p) {
    const qn_vk_push *push = &p->out->push;
    uint64_t each = (uint64_t)push->nb[0] * push->nb[1] * push->nb[2] * push->nb[3];
    uint64_t results = (uint64_t)push->n[0] * push->n[1] * push->n[2] * push->n[3];
    p->out->spec.tiled = each <= ONE_LANE;
    return qn_vk_grid_groups(p, p->out->spec.tiled ? (results + QN_VK_LANES - 1) / QN_VK_LANES : results);
}

static qn_status pack_reduction(qn_vk_pack *p, const qn_tensor *x, const qn_tensor *to, unsigned set, int keep) {
    qn_vk_push *push = &p->out->push;
    qn_tensor kept, gone;
    qn_op_split(x, set, &kept, &gone);
    qn_tensor y = qn_op_reduced(to, set, keep, &kept);
    QN_TRY(pack_split(p, &kept, &gone, &y));
    push->a = qn_vk_address(p, x);
    push->y = qn_vk_address(p, &y);
    return grid_of_results(p);
}

qn_status qn_vk_pack_reduce_axes(qn_vk_pack *p, uint32_t fn) {
    const qn_attr_reduce *at = p->step->attr;
    const qn_tensor *x = p->step->src[0];
    (void)fn;
    QN_TRY(qn_vk_float_types(p, x, NULL, p->step->dst[0]));
    return pack_reduction(p, x, p->step->dst[0], qn_op_axes_set(&at->axes, x->rank), at->keep);
}

qn_status qn_vk_pack_arg_reduce(qn_vk_pack *p, uint32_t fn) {
    const qn_attr_arg_reduce *at = p->step->attr;
    const qn_tensor *x = p->step->src[0];
    (void)fn;
    QN_TRY(qn_vk_float_types(p, x, NULL, NULL));
    p->out->spec.fn = p->step->subop == QN_ARG_REDUCE_max ? 8 : 9;
    return pack_reduction(p, x, p->step->dst[0], 1u << qn_op_axis(at->axis, x->rank), at->keep);
}

qn_status qn_vk_pack_argmax(qn_vk_pack *p, uint32_t fn) {
    (void)fn;
    QN_TRY(qn_vk_float_types(p, p->step->src[0], NULL, NULL));
    return pack_reduction(p, p->step->src[0], p->step->dst[0], 1, 0);
}

/* Tiles added up: what stays is one tile, what goes is how many there are along each axis. */
qn_status qn_vk_pack_repeat_back(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *g = p->step->src[0], *y = p->step->dst[0];
    qn_tensor kept = qn_op_tensor_widen(g), gone = kept;
    qn_vk_push *push = &p->out->push;
    (void)fn;
    QN_TRY(qn_vk_float_types(p, g, NULL, y));
    for (int k = 0; k < QN_MAX_RANK; k++) {
        int axis = QN_MAX_RANK - 1 - k;
        int64_t small = qn_ne(y, k);
        gone.shape[axis] = small ? kept.shape[axis] / small : 1;
        gone.stride[axis] = kept.stride[axis] * small;
        kept.shape[axis] = small;
    }
    QN_TRY(pack_split(p, &kept, &gone, y));
    push->a = qn_vk_address(p, g);
    push->y = qn_vk_address(p, y);
    return grid_of_results(p);
}

qn_status qn_vk_pack_sum_first(qn_vk_pack *p, const qn_tensor *x, const qn_tensor *y) {
    QN_TRY(qn_vk_float_types(p, x, NULL, y));
    return pack_reduction(p, x, y, 1u << (x->rank - 1), 0);
}

/* Must agree with Gone in glsl/reduce_back.comp. */
typedef struct back_block {
    uint32_t extent[4];
    int32_t in_x[4], in_dx[4], kept_dx[4];
} back_block;

qn_status qn_vk_pack_reduce_back(qn_vk_pack *p, uint32_t fn) {
    const qn_attr_reduce *at = p->step->attr; /* reduce_back has the same attributes */
    const qn_tensor *x = p->step->src[1];
    unsigned set = qn_op_axes_set(&at->axes, x->rank);
    qn_vk_push *push = &p->out->push;
    qn_tensor kept, gone, kept_dx, gone_dx;
    back_block block;
    uint64_t where;
    if (fn == QN_REDUCE_prod) return qn_vk_refuse(p, "no kernel for the gradient of a product");
    QN_TRY(qn_vk_float_types(p, x, p->step->src[0], p->step->dst[0]));
    qn_op_split(x, set, &kept, &gone);
    qn_op_split(p->step->dst[0], set, &kept_dx, &gone_dx);
    qn_tensor g = qn_op_reduced(p->step->src[0], set, at->keep, &kept);
    qn_vk_fold f = {.shape = &gone, .n = 2, .operand = {&gone, &gone_dx}};
    qn_vk_fold k = {.shape = &kept, .n = 3, .operand = {&kept, &g, &kept_dx}};
    QN_TRY(qn_vk_fold_axes(p, &f));
    memcpy(block.extent, push->n, sizeof block.extent);
    QN_TRY(qn_vk_fold_axes(p, &k));
    p->out->spec.rank = QN_VK_AXES; /* both walks unravel */
    memcpy(block.in_x, f.stride[0], sizeof block.in_x);
    memcpy(block.in_dx, f.stride[1], sizeof block.in_dx);
    memcpy(block.kept_dx, k.stride[2], sizeof block.kept_dx);
    memcpy(push->sa, k.stride[0], sizeof push->sa);
    memcpy(push->sb, k.stride[1], sizeof push->sb);
    push->a = qn_vk_address(p, x);
    push->b = qn_vk_address(p, &g);
    push->y = qn_vk_address(p, p->step->dst[0]);
    void *to = qn_vk_take_block(p, sizeof block, &where);
    if (to) memcpy(to, &block, sizeof block);
    push->p[0] = (uint32_t)where;
    push->p[1] = (uint32_t)(where >> 32);
    return qn_vk_grid_groups(p, (uint64_t)push->n[0] * push->n[1] * push->n[2] * push->n[3]);
}
