/* Norms with weights, their gradients, losses and optimiser steps: several tensors over one shape. */
#include "op/op_axes.h"
#include "vulkan/vk_many.h"

/* eps is the first attribute of all norms of rows; see op_affine_norm.c. */
static uint32_t eps_bits(const qn_vk_pack *p) { return qn_vk_bits(((const qn_attr_layer_norm *)p->step->attr)->eps); }

/* ---- Rows. fn 1: with a mean. */

qn_status qn_vk_pack_layer_norm(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *x = p->step->src[0];
    qn_vk_many m = {.shape = x, .keep = 1, .at = {x, p->step->dst[0], qn_vk_source(p, 1), qn_vk_source(p, 2)}};
    if (fn == 1) {
        m.at[4] = qn_vk_output(p, 1);
        m.at[5] = qn_vk_output(p, 2);
    }
    QN_TRY(qn_vk_pack_many(p, &m));
    p->out->push.p[2] = eps_bits(p);
    return qn_vk_grid_rows(p);
}

/* Sums over rows first, because dx may lie over g, on which they depend; they need the statistics of every row. */
static qn_status pack_weight_gradients(qn_vk_pack *p, uint32_t centred, const qn_tensor *dgamma, const qn_tensor *dbeta) {
    const qn_tensor *g = p->step->src[0], *x = p->step->src[1];
    qn_tensor mean, r, lacks;
    int64_t shape[QN_MAX_RANK];
    memcpy(shape, x->shape, sizeof shape);
    shape[x->rank - 1] = 1;
    QN_TRY(qn_vk_scratch(p, QN_DTYPE_F32, x->rank, shape, &mean));
    QN_TRY(qn_vk_scratch(p, QN_DTYPE_F32, x->rank, shape, &r));
    QN_TRY(qn_vk_scratch(p, QN_DTYPE_F32, x->rank, shape, &lacks));
    QN_TRY(qn_vk_pack_many(p, &(qn_vk_many){.shape = x, .keep = 1, .at = {x, NULL, NULL, NULL, &mean, &r, &lacks}}));
    p->out->push.p[2] = eps_bits(p);
    QN_TRY(qn_vk_grid_rows(p));
    QN_TRY(qn_vk_next(p, "column_sums", centred, 1));
    QN_TRY(qn_vk_pack_many(p, &(qn_vk_many){.shape = x, .keep = 1, .at = {g, x, dgamma, dbeta, &mean, &r, &lacks}}));
    QN_TRY(qn_vk_grid_groups(p, ((uint64_t)p->out->push.n[0] + 31) / 32));
    return qn_vk_next(p, "layer_norm_back", centred, 1);
}

/* Opened with the shader that the first of its dispatches has. */
static qn_status pack_layer_norm_back(qn_vk_pack *p, uint32_t centred) {
    const qn_tensor *g = p->step->src[0], *x = p->step->src[1];
    qn_vk_many m = {.shape = x, .keep = 1, .at = {g, x, p->step->dst[0], qn_vk_source(p, 2)}};
    if (centred) {
        m.at[4] = qn_vk_source(p, 3);
        m.at[5] = qn_vk_source(p, 4);
    }
    QN_TRY(qn_vk_pack_many(p, &m));
    p->out->push.p[2] = eps_bits(p);
    return qn_vk_grid_rows(p);
}

/* Two rows of the table: this one is first and refuses when there are no sums to take. */
qn_status qn_vk_pack_layer_norm_sums(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *dgamma = qn_vk_output(p, 1), *dbeta = qn_vk_output(p, 2);
    if (!dgamma && !dbeta) return qn_vk_refuse(p, "nothing to add up");
    QN_TRY(pack_weight_gradients(p, fn, dgamma, dbeta));
    return pack_layer_norm_back(p, fn);
}

qn_status qn_vk_pack_layer_norm_back(qn_vk_pack *p, uint32_t fn) { return pack_layer_norm_back(p, fn); }

/* ---- Channels, which are moved to where rows are */

static qn_tensor channels_last(const qn_tensor *t, int rank) { return qn_op_lanes(t, rank - 2); }

static void channel_numbers(qn_vk_pack *p, const qn_attr_batch_norm *at) {
    p->out->push.p[2] = qn_vk_bits(at->eps);
    p->out->push.p[3] = qn_vk_bits(at->momentum);
}

qn_status qn_vk_pack_batch_norm(qn_vk_pack *p, uint32_t fn) {
    const qn_attr_batch_norm *at = p->step->attr;
    const qn_tensor *const *src = p->step->src;
    qn_tensor x = channels_last(src[0], src[0]->rank), y = channels_last(p->step->dst[0], src[0]->rank);
    qn_vk_many m = {.shape = &x, .keep = 1, .at = {&x, &y, src[1], src[2], src[3], src[4]}};
    (void)fn;
    if (at->training && (qn_vk_output(p, 3) || qn_vk_output(p, 4))) {
        m.at[6] = qn_vk_output(p, 3);
        m.at[7] = qn_vk_output(p, 4);
        p->out->spec.fn = 4;
        QN_TRY(qn_vk_pack_many(p, &m));
        channel_numbers(p, at);
        QN_TRY(qn_vk_grid_groups(p, p->out->push.n[0]));
        QN_TRY(qn_vk_next(p, "batch_norm", 1, 1));
    }
    p->out->spec.fn = at->training ? 1 : 0;
    m.at[6] = qn_vk_output(p, 1);
    m.at[7] = qn_vk_output(p, 2);
    QN_TRY(qn_vk_pack_many(p, &m));
    channel_numbers(p, at);
    return qn_vk_grid_groups(p, p->out->push.n[0]);
}

qn_status qn_vk_pack_batch_norm_back(qn_vk_pack *p, uint32_t fn) {
    const qn_attr_batch_norm *at = p->step->attr; /* batch_norm_back has the same attributes */
    const qn_tensor *const *src = p->step->src;
    (void)fn;
    for (int i = 5; i < 9; i++)
        if (qn_vk_source(p, i)) return qn_vk_refuse(p, "no kernel for gradients of its statistics");
    if (qn_vk_output(p, 3) || qn_vk_output(p, 4)) return qn_vk_refuse(p, "no kernel for gradients of running statistics");
    qn_tensor g = channels_last(src[0], src[1]->rank), x = channels_last(src[1], src[1]->rank);
    qn_tensor dx = channels_last(p->step->dst[0], src[1]->rank);
    qn_vk_many m = {.shape = &x, .keep = 1, .at = {&g, &dx, src[2], &x, src[3], src[4], qn_vk_output(p, 1), qn_vk_output(p, 2)}};
    p->out->spec.fn = at->training ? 3 : 2;
    QN_TRY(qn_vk_pack_many(p, &m));
    channel_numbers(p, at);
    return qn_vk_grid_groups(p, p->out->push.n[0]);
}

/* ---- Rows with g and one more tensor. fn as in rows_back.comp. */

static qn_status pack_rows_back(qn_vk_pack *p, const qn_tensor *g, const qn_tensor *x, const qn_tensor *y, float number) {
    QN_TRY(qn_vk_float_types(p, g, x, y));
    QN_TRY(qn_vk_pack_walk(p, &(qn_vk_walk){x, g, x, y, 1}));
    p->out->push.p[0] = qn_vk_bits(number);
    return qn_vk_grid_rows(p);
}

qn_status qn_vk_pack_rows_back(qn_vk_pack *p, uint32_t fn) {
    (void)fn;
    return pack_rows_back(p, p->step->src[0], p->step->src[1], p->step->dst[0], ((const qn_attr_norm_back *)p->step->attr)->eps);
}

qn_status qn_vk_pack_soft_max_back(qn_vk_pack *p, uint32_t fn) {
    (void)fn;
    return pack_rows_back(p, p->step->src[0], p->step->src[1], p->step->dst[0],
                          ((const qn_attr_soft_max_back *)p->step->attr)->scale);
}

qn_status qn_vk_pack_softmax_back(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *x = p->step->src[0];
    int k = qn_op_axis(((const qn_attr_softmax *)p->step->attr)->axis, x->rank);
    qn_tensor g = qn_op_lanes(x, k), y = qn_op_lanes(p->step->src[1], k), dx = qn_op_lanes(p->step->dst[0], k);
    (void)fn;
    return pack_rows_back(p, &g, &y, &dx, 1);
}

/* Softmax along any axis is that of rows, without a mask. */
qn_status qn_vk_pack_softmax(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *from = p->step->src[0];
    int k = qn_op_axis(((const qn_attr_softmax *)p->step->attr)->axis, from->rank);
    qn_tensor x = qn_op_lanes(from, k), y = qn_op_lanes(p->step->dst[0], k);
    (void)fn;
    QN_TRY(qn_vk_float_types(p, &x, NULL, &y));
    QN_TRY(qn_vk_pack_walk(p, &(qn_vk_walk){&x, &x, NULL, &y, 1}));
    p->out->push.p[0] = qn_vk_bits(1);
    return qn_vk_grid_rows(p);
}

/* ---- Losses: a value per row, and their sum */

qn_status qn_vk_pack_loss(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *x = p->step->src[0], *labels = p->step->src[1];
    qn_tensor rows;
    int64_t shape[QN_MAX_RANK];
    (void)fn;
    memcpy(shape, x->shape, sizeof shape);
    shape[x->rank - 1] = 1;
    QN_TRY(qn_vk_scratch(p, QN_DTYPE_F32, x->rank, shape, &rows));
    QN_TRY(qn_vk_float_types(p, x, labels, &rows));
    QN_TRY(qn_vk_pack_walk(p, &(qn_vk_walk){x, x, labels, &rows, 1}));
    const uint32_t *n = p->out->push.n;
    p->out->push.p[0] = qn_vk_bits((float)((double)n[1] * n[2] * n[3]));
    QN_TRY(qn_vk_grid_rows(p));
    QN_TRY(qn_vk_next(p, "reduce", 2, 1));
    QN_TRY(qn_vk_float_types(p, &rows, NULL, p->step->dst[0]));
    QN_TRY(qn_vk_pack_walk(p, &(qn_vk_walk){&rows, &rows, NULL, NULL, 0}));
    p->out->push.y = qn_vk_address(p, p->step->dst[0]);
    return qn_vk_grid_groups(p, 1);
}

qn_status qn_vk_pack_loss_back(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *g = p->step->src[0], *x = p->step->src[1], *labels = p->step->src[2], *dx = p->step->dst[0];
    (void)fn;
    if (g->dtype != dx->dtype) return qn_vk_refuse(p, "no kernel for a gradient of another dtype");
    QN_TRY(qn_vk_float_types(p, x, labels, dx));
    QN_TRY(qn_vk_pack_walk(p, &(qn_vk_walk){x, x, labels, dx, 1}));
    uint64_t where = qn_vk_address(p, g);
    const uint32_t *n = p->out->push.n;
    p->out->push.p[0] = qn_vk_bits((float)((double)n[1] * n[2] * n[3]));
    p->out->push.p[2] = (uint32_t)where;
    p->out->push.p[3] = (uint32_t)(where >> 32);
    return qn_vk_grid_rows(p);
}

/* ---- Optimiser steps. fn as in optim.comp. */

qn_status qn_vk_pack_optim(qn_vk_pack *p, uint32_t fn) {
    const qn_tensor *const *src = p->step->src;
    const qn_tensor *numbers = fn == 0 ? src[4] : qn_vk_source(p, 2), *w = p->step->dst[0];
    qn_vk_many m = {.shape = w, .at = {w, NULL, NULL, fn == 0 ? src[3] : src[1]}};
    int32_t step = 0;
    if (fn == 0) {
        m.at[1] = p->step->dst[1];
        m.at[2] = p->step->dst[2];
    }
    qn_tensor first; /* only its address counts: the kernel takes the numbers by hand */
    if (numbers) {
        first = *numbers;
        QN_TRY(qn_vk_stride(p, numbers, 0, &step));
        first.rank = 1;
        first.shape[0] = 1;
        m.at[4] = &first;
    }
    QN_TRY(qn_vk_pack_many(p, &m));
    if (fn == 2) p->out->push.p[2] = qn_vk_bits(((const qn_attr_accumulate *)p->step->attr)->scale);
    p->out->push.p[3] = (uint32_t)step;
    p->out->push.p[4] = (uint32_t)p->block_at;
    p->out->push.p[5] = (uint32_t)(p->block_at >> 32);
    return qn_vk_grid_elements(p);
}
