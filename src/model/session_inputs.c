/* The inputs of a run: where each token stands, which cell it goes to, what it may look at. */
#include <math.h>

#include "model/session.h"
#include "tensor/half.h"

enum { F16_ZERO = 0, F16_MINUS_INF = 0xfc00 };

/* One token's row of a mask: keys up to its own position, within the window or its block if there is one. Behind them, and in an encoder nowhere,
 * nothing is seen. */
static void mask_row(const qn_session *s, uint16_t *row, int64_t keys, int64_t position, int64_t window) {
    float alibi = s->m->h.alibi;
    int64_t from = window > 0 && position - window + 1 > 0 ? position - window + 1 : 0;
    if (window > 0 && s->m->arch->chunked) from = position / window * window;
    for (int64_t j = 0; j < from; j++) row[j] = F16_MINUS_INF;
    for (int64_t j = from; j <= position; j++) row[j] = alibi > 0 ? qn_f32_to_f16(-(float)(position - j)) : F16_ZERO;
    for (int64_t j = position + 1; j < keys; j++) row[j] = F16_MINUS_INF;
}

static void encoder_row(const qn_session *s, uint16_t *row, int64_t keys, int64_t position) {
    for (int64_t j = 0; j < keys; j++) row[j] = s->m->h.alibi > 0 ? qn_f32_to_f16(-fabsf((float)(position - j))) : F16_ZERO;
}

static int64_t keys_needed(const qn_session *s, const qn_session_group *g) {
    int64_t most = 0;
    for (int32_t i = 0; i < g->count; i++) {
        int64_t end = s->sequences[g->first + i].length + g->tokens;
        if (end > most) most = end;
    }
    return (most + s->shape.step - 1) / s->shape.step * s->shape.step;
}

static qn_status set(qn_session *s, const char *name, qn_dtype dtype, int rank, const int64_t *shape, void *data,
                     qn_error *error) {
    qn_tensor t;
    uint64_t bytes = 0;
    qn_tensor_bytes(dtype, rank, shape, &bytes);
    qn_tensor_init(&t, dtype, rank, shape, data, bytes);
    return qn_plan_set(s->plan, name, &t, error);
}

qn_status qn_session_feed(qn_session *s, const qn_session_group *g, qn_error *error) {
    int encoder = (s->m->arch->has & QN_IS_ENCODER) != 0;
    int64_t keys = encoder ? g->tokens : keys_needed(s, g), all = g->count * g->tokens, end = g->first + g->count, at = 0;
    for (int32_t i = 0; i < g->count; i++) {
        int64_t length = encoder ? 0 : s->sequences[g->first + i].length;
        for (int64_t t = 0; t < g->tokens; t++, at++) {
            s->in.positions[at] = (int32_t)(length + t);
            if (!encoder) s->in.cells[at] = (int32_t)((g->first + i) * s->shape.context + length + t);
            if (encoder) encoder_row(s, s->in.mask + at * keys, keys, t);
            else mask_row(s, s->in.mask + at * keys, keys, length + t, 0);
            if (s->in.mask_window) mask_row(s, s->in.mask_window + at * keys, keys, length + t, s->m->h.window);
        }
    }
    int64_t mask[4] = {g->count, 1, g->tokens, keys};
    QN_TRY(set(s, "mask", QN_DTYPE_F16, 4, mask, s->in.mask, error));
    if (s->in.mask_window) QN_TRY(set(s, "mask_window", QN_DTYPE_F16, 4, mask, s->in.mask_window, error));
    QN_TRY(set(s, "tokens", QN_DTYPE_I32, 1, &all, s->in.tokens, error));
    QN_TRY(set(s, "positions", QN_DTYPE_I32, 1, &all, s->in.positions, error));
    if (!encoder) QN_TRY(set(s, "cells", QN_DTYPE_I32, 1, &all, s->in.cells, error));
    if (!encoder) QN_TRY(set(s, "last", QN_DTYPE_U8, 1, &end, s->in.last, error));
    return set(s, "wanted", QN_DTYPE_I32, 1, &g->n_wanted, s->in.wanted, error);
}
