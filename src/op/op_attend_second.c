/* Second order of attention: the forward pass written with products and a softmax, its gradient, and that one's gradient. It
 * keeps all scores, which the ops themselves never do: [queries, keys] numbers for every head. */
#include <math.h>

#include "op/op_tape.h"

enum { Q = 0, K = 1, V = 2 };
enum { MASK_CAUSAL = 1, MASK_CUSTOM = 2, MASK_SLIDING = 3, MASK_BIAS = 4 };

static qn_val mul_mat(qn_vjp_call *v, qn_val a, qn_val b) { return qn_emit2(v, QN_OP_mul_mat, 0, NULL, a, b); }

static qn_val as4(qn_vjp_call *v, qn_val x) {
    qn_shape s = qn_shape_of(v, x);
    int64_t d[4] = {qn_sd(&s, 3), qn_sd(&s, 2), qn_sd(&s, 1), qn_sd(&s, 0)};
    return s.rank == 4 ? x : qn_e_reshape(v, x, 4, d);
}

/* [batch, heads, places, width], whichever way it came. */
static qn_val heads_first(qn_vjp_call *v, qn_val x, int layout) {
    static const int order[4] = {0, 2, 1, 3};
    x = as4(v, x);
    return layout ? qn_e_permute(v, x, 4, order) : x;
}

/* cap tanh(s / cap) */
static qn_val capped(qn_vjp_call *v, qn_val s, double cap) {
    return cap == 0 ? s : qn_e_scale(v, qn_e_unary(v, QN_UNARY_tanh, qn_e_scale(v, s, 1 / cap, 0)), cap, 0);
}

static qn_val hide(qn_vjp_call *v, qn_val s, qn_val hidden) {
    qn_attr_fill at = qn_attr_fill_default();
    at.c = -INFINITY;
    return qn_emit3(v, QN_OP_where, 0, NULL, hidden, qn_emit1(v, QN_OP_fill, 0, &at, s), s);
}

/* first, first + 1, ... [n] or, as a column, [n, 1]. */
static qn_val count_up(qn_vjp_call *v, int64_t first, int64_t n, int column) {
    qn_attr_arange at = qn_attr_arange_default();
    int64_t d[2] = {n, 1};
    qn_val i, none = QN_VAL_NONE;
    at.stop = (float)n;
    qn_emit_many(v, QN_OP_arange, 0, &at, 0, &none, 1, &i);
    i = qn_e_scale(v, i, 1, (double)first);
    return column ? qn_e_reshape(v, i, 2, d) : i;
}

/* 1 where a key is out of a query's sight: behind it, or further back than the window. */
static qn_val out_of_sight(qn_vjp_call *v, const qn_attr_attention_back *at, int64_t queries, int64_t keys) {
    int64_t offset = at->q_offset >= 0 ? at->q_offset : keys - queries;
    qn_val apart = qn_emit2(v, QN_OP_arith, QN_ARITH_sub, NULL, count_up(v, offset, queries, 1), count_up(v, 0, keys, 0));
    qn_val late = qn_e_unary(v, QN_UNARY_step, qn_e_scale(v, apart, -1, 0));
    if (at->mask_kind != MASK_SLIDING) return late;
    return qn_e_add(v, late, qn_e_unary(v, QN_UNARY_step, qn_e_scale(v, apart, 1, -(double)at->window)));
}

static qn_val scores(qn_vjp_call *v, const qn_attr_attention_back *at, qn_val q, qn_val k, qn_val mask) {
    qn_shape qs = qn_shape_of(v, q), ks = qn_shape_of(v, k);
    double width = (double)qn_sd(&qs, 0), scale = at->scale != 0 ? (double)at->scale : width > 0 ? 1 / sqrt(width) : 1;
    qn_val s = capped(v, qn_e_scale(v, mul_mat(v, k, q), scale, 0), (double)at->softcap);
    switch (at->mask_kind) {
    case MASK_CAUSAL:
    case MASK_SLIDING: return hide(v, s, out_of_sight(v, at, qn_sd(&qs, 1), qn_sd(&ks, 1)));
    case MASK_CUSTOM: return hide(v, s, qn_e_unary(v, QN_UNARY_step, qn_e_scale(v, as4(v, mask), -1, 0.5)));
    case MASK_BIAS: return qn_e_add(v, s, as4(v, mask));
    default: return s;
    }
}

/* ln of the sum of e^s. What is taken off first does not matter to the result, so the tape need not know of it; a row that has no
 * score at all counts as one of sum 1, which has no slope. */
static qn_val log_sums(qn_vjp_call *v, qn_op_tape *t, qn_val s) {
    qn_attr_reduce at = qn_attr_reduce_default();
    qn_attr_clamp low = qn_attr_clamp_default();
    at.axes.rank = at.keep = 1;
    at.axes.d[0] = -1;
    low.min = -1e30f;
    t->paused = 1;
    qn_val top = qn_emit1(v, QN_OP_clamp, 0, &low, qn_emit1(v, QN_OP_reduce, QN_REDUCE_max, &at, s));
    t->paused = 0;
    qn_val sum = qn_e_sum_rows(v, qn_e_unary(v, QN_UNARY_exp, qn_e_sub(v, s, top)));
    qn_val one = qn_e_scale(v, qn_e_zeros(v, sum), 1, 1), some = qn_emit3(v, QN_OP_where, 0, NULL, sum, sum, one);
    return qn_e_add(v, qn_emit1(v, QN_OP_log, 0, NULL, some), top);
}

static void attention_back_formula(qn_vjp_call *v, qn_op_tape *t, qn_val *out) {
    const qn_attr_attention_back *at = v->attr;
    qn_val mask = v->n_src > 4 ? v->src[4] : QN_VAL_NONE, g_lse = v->n_src > 5 ? v->src[5] : QN_VAL_NONE;
    qn_val g = v->n_src > 3 ? v->src[3] : QN_VAL_NONE, by[4], of[2] = {QN_VAL_NONE, QN_VAL_NONE},
           up[2] = {QN_VAL_NONE, QN_VAL_NONE};
    for (int i = Q; i <= V; i++) by[i] = qn_op_wide(v, v->src[i]);
    uint32_t dtype = qn_shape_of(v, by[Q]).dtype;
    by[3] = qn_e_cast(v, mask, dtype);
    qn_op_tape_apart(v, 4, by);
    qn_val q = heads_first(v, by[Q], at->layout), k = heads_first(v, by[K], at->layout), w = heads_first(v, by[V], at->layout);
    qn_val s = scores(v, at, q, k, by[3]);
    if (g != QN_VAL_NONE) {
        of[0] = mul_mat(v, qn_e_transpose(v, w), qn_emit1(v, QN_OP_soft_max, 0, NULL, s));
        up[0] = heads_first(v, qn_e_cast(v, g, dtype), at->layout);
    }
    if (g_lse != QN_VAL_NONE) {
        of[1] = log_sums(v, t, s);
        up[1] = qn_e_like(v, g_lse, of[1]);
    }
    qn_op_tape_back(t, v, 2, of, up, at->mask_kind == MASK_BIAS ? 4 : 3, by, out);
}

/* Whether there is no batch, head, query or key; heads of no width still have scores. */
static int has_nothing(qn_vjp_call *v) {
    for (int i = Q; i <= V; i++) {
        qn_shape s = qn_shape_of(v, v->src[i]);
        for (int k = 1; k < s.rank; k++)
            if (qn_sd(&s, k) == 0) return 1;
    }
    return 0;
}

void qn_vjp_attention_back(qn_vjp_call *v) {
    if (!has_nothing(v)) qn_op_vjp_of_formula(v, attention_back_formula);
}

/* ---- flash_attn_back: the mask has slopes and may have more rows than there are queries, heads may have sinks; soft_max has
 * all that. The result has heads and places changed over. */

static void flash_attn_back_formula(qn_vjp_call *v, qn_op_tape *t, qn_val *out) {
    static const int order[4] = {0, 2, 1, 3};
    const qn_attr_flash_attn_back *at = v->attr;
    qn_val by[5] = {v->src[Q], v->src[K], v->src[V], v->n_src > 4 ? v->src[4] : QN_VAL_NONE,
                    v->n_src > 5 ? v->src[5] : QN_VAL_NONE};
    uint32_t dtype = qn_shape_of(v, by[Q]).dtype;
    for (int i = K; i <= V; i++) by[i] = qn_e_cast(v, by[i], dtype);
    qn_op_tape_apart(v, 5, by);
    qn_val s = qn_e_scale(v, mul_mat(v, as4(v, by[K]), as4(v, by[Q])), (double)at->scale, 0);
    qn_attr_soft_max soft = qn_attr_soft_max_default();
    soft.max_bias = at->max_bias;
    qn_val src[3] = {capped(v, s, (double)at->logit_softcap), by[3], by[4]}, share;
    qn_emit_many(v, QN_OP_soft_max, 0, &soft, 3, src, 1, &share);
    qn_val y = qn_e_permute(v, mul_mat(v, qn_e_transpose(v, as4(v, by[V])), share), 4, order), g = as4(v, v->src[3]);
    qn_op_tape_back(t, v, 1, &y, &g, v->n_dst < 5 ? v->n_dst : 5, by, out);
}

void qn_vjp_flash_attn_back(qn_vjp_call *v) {
    if (!has_nothing(v)) qn_op_vjp_of_formula(v, flash_attn_back_formula);
}
