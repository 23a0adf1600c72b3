/* The feed-forward part of a layer: one network, or a choice of experts. */
#include <stdio.h>

#include "model/build.h"

static qn_val gated(qn_build *b, qn_val gate, qn_val up) {
    if (b->m->arch->act == QN_ACT_RELU_SQUARED) qn_build_fail(b, QN_UNSUPPORTED, "a squared relu with a gate is not known");
    static const qn_glu kinds[] = {[QN_ACT_SILU] = QN_GLU_swiglu,
                                   [QN_ACT_GELU] = QN_GLU_geglu,
                                   [QN_ACT_RELU] = QN_GLU_reglu,
                                   [QN_ACT_RELU_SQUARED] = QN_GLU_reglu,
                                   [QN_ACT_OAI] = QN_GLU_swiglu_oai};
    qn_val src[2] = {gate, up};
    return qn_build_op(b, QN_OP_glu, kinds[b->m->arch->act], up == QN_VAL_NONE ? 1 : 2, src, NULL);
}

static qn_val plain(qn_build *b, qn_val x) {
    static const qn_unary kinds[] = {[QN_ACT_SILU] = QN_UNARY_silu,
                                     [QN_ACT_GELU] = QN_UNARY_gelu,
                                     [QN_ACT_RELU] = QN_UNARY_relu,
                                     [QN_ACT_RELU_SQUARED] = QN_UNARY_relu,
                                     [QN_ACT_OAI] = QN_UNARY_silu};
    x = qn_build_unary(b, kinds[b->m->arch->act], x);
    return b->m->arch->act == QN_ACT_RELU_SQUARED ? qn_build_one(b, QN_OP_sqr, x) : x;
}

/* ffn_up, ffn_gate, ffn_down, with `kind` behind: "" or "_shexp". */
static qn_val network(qn_build *b, qn_val x, const char *kind) {
    char up[32], gate[32], down[32], weight[48];
    int halves = b->m->arch->gate == QN_GATE_HALVES;
    int64_t n = b->m->h.n_embd;
    int scale = b->m->arch->has & QN_HAS_FFN_SCALES ? QN_SCALE_LAST : QN_SCALE_NEVER;
    snprintf(up, sizeof up, "ffn_up%s", kind);
    snprintf(gate, sizeof gate, "ffn_gate%s", kind);
    snprintf(down, sizeof down, "ffn_down%s", kind);
    snprintf(weight, sizeof weight, "%s.weight", up);
    int64_t ff = qn_build_rows(b, weight, b->m->h.layers[b->layer].ff) / (halves ? 2 : 1);
    snprintf(weight, sizeof weight, "%s.weight", gate);
    qn_val y;
    if (halves) {
        y = gated(b, qn_build_linear(b, x, up, n, 2 * ff, scale), QN_VAL_NONE);
    } else if (b->m->arch->gate == QN_GATE_SPLIT && qn_build_has(b, weight)) {
        qn_val g = qn_build_linear(b, x, gate, n, ff, scale);
        y = gated(b, g, qn_build_linear(b, x, up, n, ff, scale));
    } else {
        y = plain(b, qn_build_linear(b, x, up, n, ff, scale));
    }
    if (qn_build_has(b, "ffn.act.scales")) y = qn_build_two(b, QN_OP_div, y, qn_build_small(b, "ffn.act.scales", 1, 1, &ff));
    return qn_build_linear(b, y, down, ff, n, scale);
}

/* ---- Experts. rows is the extent of x, known to the graph as a dim. */

static qn_val expert_linear(qn_build *b, qn_val x, qn_val ids, const char *name, int64_t in, int64_t out) {
    char part[96];
    int64_t experts = b->m->h.n_experts;
    snprintf(part, sizeof part, "%s.weight", name);
    qn_val w = qn_build_weight(b, part, 1, 3, (int64_t[]){experts, out, in});
    qn_val y = qn_build_op(b, QN_OP_mul_mat_id, 0, 3, (qn_val[]){w, x, ids}, NULL);
    snprintf(part, sizeof part, "%s.scale", name);
    if (b->m->arch->has & QN_HAS_FFN_SCALES && qn_build_has(b, part)) {
        qn_val s = qn_build_reshape(b, qn_build_small(b, part, 1, 1, &experts), 2, (int64_t[]){experts, 1});
        qn_val chosen = qn_build_two(b, QN_OP_get_rows, s,
                                     qn_build_reshape(b, ids, 1, (int64_t[]){qn_graph_dim(b->g, '*', b->width, b->m->h.n_used)}));
        y = qn_build_two(b, QN_OP_mul, y, qn_build_reshape(b, chosen, 3, (int64_t[]){b->width, b->m->h.n_used, 1}));
    }
    snprintf(part, sizeof part, "%s.bias", name);
    qn_val bias = qn_build_small(b, part, 0, 2, (int64_t[]){experts, out});
    return bias == QN_VAL_NONE ? y : qn_build_op(b, QN_OP_add_id, 0, 3, (qn_val[]){y, bias, ids}, NULL);
}

static qn_val sum_of_experts(qn_build *b, qn_val y) {
    qn_attr_reduce at = qn_attr_reduce_default();
    at.axes.rank = 1;
    at.axes.d[0] = 1;
    return qn_build_op(b, QN_OP_reduce, QN_REDUCE_sum, 1, &y, &at);
}

/* Experts outside the best groups fall out of the choice; a group is as good as its best two together. */
static qn_val best_groups(qn_build *b, qn_val by) {
    const qn_hparams *h = &b->m->h;
    int64_t each = h->n_experts / h->n_groups, shape[3] = {b->width, h->n_groups, each};
    qn_attr_top_k_pairs two = qn_attr_top_k_pairs_default();
    qn_attr_top_k some = qn_attr_top_k_default();
    qn_attr_one_hot hot = qn_attr_one_hot_default();
    qn_attr_scale far = qn_attr_scale_default();
    two.k = 2;
    some.k = h->groups_used;
    hot.depth = h->n_groups;
    far.s = 1e30f;
    far.b = -1e30f;
    by = qn_build_reshape(b, by, 3, shape);
    qn_val pairs[2] = {QN_VAL_NONE, QN_VAL_NONE}; /* values and indices */
    if (b->status == QN_OK) qn_graph_apply(b->g, QN_OP_top_k_pairs, 0, 1, &by, &two, 2, pairs);
    qn_val best = qn_build_one(b, QN_OP_sum_rows, pairs[0]);
    best = qn_build_reshape(b, best, 2, shape);
    qn_val ids = qn_build_op(b, QN_OP_top_k, 0, 1, &best, &some);
    qn_val in = sum_of_experts(b, qn_build_op(b, QN_OP_one_hot, 0, 1, &ids, &hot));
    in = qn_build_reshape(b, qn_build_op(b, QN_OP_scale, 0, 1, &in, &far), 3, (int64_t[]){b->width, h->n_groups, 1});
    return qn_build_reshape(b, qn_build_two(b, QN_OP_add, by, in), 2, (int64_t[]){b->width, h->n_experts});
}

/* Who computes each row, and how much it counts: ids [rows, used], weights [rows, used, 1]. A bias, where there is one, counts for the
 * choice alone. */
static qn_val route(qn_build *b, qn_val x, qn_val *ids) {
    const qn_hparams *h = &b->m->h;
    int64_t n = h->n_experts;
    qn_val logits = qn_build_linear(b, b->router == QN_VAL_NONE ? x : b->router, "ffn_gate_inp", h->n_embd, n, QN_SCALE_NEVER);
    qn_val p = h->gating == QN_GATING_CHOSEN    ? logits
               : h->gating == QN_GATING_SIGMOID ? qn_build_unary(b, QN_UNARY_sigmoid, logits)
                                                : qn_build_one(b, QN_OP_soft_max, logits);
    qn_attr_top_k at = qn_attr_top_k_default();
    at.k = h->n_used;
    qn_val bias = qn_build_small(b, qn_build_has(b, "exp_probs_b") ? "exp_probs_b" : "exp_probs_b.bias", 0, 1, &n);
    qn_val by = bias == QN_VAL_NONE ? p : qn_build_two(b, QN_OP_add, p, bias);
    if (h->n_groups > 1) by = best_groups(b, by);
    *ids = qn_build_op(b, QN_OP_top_k, 0, 1, &by, &at);
    qn_val table = qn_build_reshape(b, p, 3, (int64_t[]){b->width, n, 1});
    qn_val w = qn_build_reshape(b, qn_build_two(b, QN_OP_get_rows, table, *ids), 2, (int64_t[]){b->width, h->n_used});
    if (h->gating == QN_GATING_CHOSEN) w = qn_build_one(b, QN_OP_soft_max, w);
    if (h->gating_sum) {
        qn_attr_clamp least = qn_attr_clamp_default();
        least.min = 6.103515625e-5f; /* the smallest normal f16: nothing is divided by zero */
        qn_val sum = qn_build_one(b, QN_OP_sum_rows, w);
        w = qn_build_two(b, QN_OP_div, w, qn_build_op(b, QN_OP_clamp, 0, 1, &sum, &least));
    }
    return qn_build_reshape(b, qn_build_scale(b, w, h->expert_scale), 3, (int64_t[]){b->width, h->n_used, 1});
}

qn_val qn_build_experts(qn_build *b, qn_val x) {
    const qn_hparams *h = &b->m->h;
    qn_val ids, w = route(b, x, &ids);
    qn_val one = qn_build_reshape(b, x, 3, (int64_t[]){b->width, 1, h->n_embd});
    if (b->m->arch->weighs_first)
        one = qn_build_two(b, QN_OP_mul, qn_build_expand(b, one, 3, (int64_t[]){b->width, h->n_used, h->n_embd}), w);
    int64_t ff = qn_build_rows(b, "ffn_up_exps.weight", h->expert_ff);
    qn_val y;
    if (qn_build_has(b, "ffn_gate_up_exps.weight")) { /* one matrix, whose first half is the gate */
        ff = qn_build_rows(b, "ffn_gate_up_exps.weight", 0) / 2;
        y = gated(b, expert_linear(b, one, ids, "ffn_gate_up_exps", h->n_embd, 2 * ff), QN_VAL_NONE);
    } else {
        qn_val up = expert_linear(b, one, ids, "ffn_up_exps", h->n_embd, ff);
        y = qn_build_has(b, "ffn_gate_exps.weight") ? gated(b, expert_linear(b, one, ids, "ffn_gate_exps", h->n_embd, ff), up)
                                                    : plain(b, up);
    }
    y = expert_linear(b, y, ids, "ffn_down_exps", ff, h->n_embd);
    y = sum_of_experts(b, b->m->arch->weighs_first ? y : qn_build_two(b, QN_OP_mul, y, w));
    if (!qn_build_has(b, "ffn_up_shexp.weight")) return y;
    qn_val shared = network(b, x, "_shexp");
    if (qn_build_has(b, "ffn_gate_inp_shexp.weight")) {
        int64_t n = h->n_embd;
        qn_val gate = qn_build_reshape(b, qn_build_weight(b, "ffn_gate_inp_shexp.weight", 1, 1, &n), 2, (int64_t[]){1, n});
        gate = qn_build_unary(b, QN_UNARY_sigmoid, qn_build_two(b, QN_OP_mul_mat, gate, x));
        shared = qn_build_two(b, QN_OP_mul, shared, gate);
    }
    return qn_build_two(b, QN_OP_add, y, shared);
}

qn_val qn_build_ffn(qn_build *b, qn_val x) {
    int beside = (b->m->arch->has & QN_HAS_EXPERTS_BESIDE) != 0;
    return qn_build_has(b, "ffn_gate_inp.weight") && !beside ? qn_build_experts(b, x) : network(b, x, "");
}
