/* One builder for all architectures: embeddings, layers, the head. What differs is in the rows of archs.def. */
#include <stdio.h>

#include "model/build.h"

int64_t qn_model_cache_rows(const qn_model_shape *shape) { return shape->context * shape->sequences; }

static void add_symbols(qn_build *b) {
    const qn_model_shape *s = b->shape;
    int encoder = (b->m->arch->has & QN_IS_ENCODER) != 0;
    b->sequences = qn_graph_symbol(b->g, "sequences", 1, s->sequences, 1);
    int64_t most = ((int64_t)s->batch + s->sequences - 1) / s->sequences * s->sequences;
    b->all = qn_graph_symbol(b->g, "all", 1, most, 1);
    b->tokens = qn_graph_dim(b->g, '/', b->all, b->sequences);
    b->keys = encoder ? b->tokens : qn_graph_symbol(b->g, "keys", s->step, s->context, s->step);
    b->rows = qn_graph_symbol(b->g, "rows", 1, most, 1);
    b->end = encoder ? 0 : qn_graph_symbol(b->g, "end", 1, s->sequences, 1);
    b->width = b->all;
}

static int any_window(const qn_model *m, int windowed) {
    for (int i = 0; i < m->h.n_layers; i++)
        if (m->h.layers[i].windowed == windowed) return 1;
    return 0;
}

static qn_val add_inputs(qn_build *b) {
    qn_graph *g = b->g;
    int encoder = (b->m->arch->has & QN_IS_ENCODER) != 0;
    int64_t mask[4] = {b->sequences, 1, b->tokens, b->keys};
    qn_val tokens = qn_graph_input(g, "tokens", QN_DTYPE_I32, 1, &b->all);
    b->positions = qn_graph_input(g, "positions", QN_DTYPE_I32, 1, &b->all);
    b->wanted = qn_graph_input(g, "wanted", QN_DTYPE_I32, 1, &b->rows);
    if (!encoder) {
        b->cells = qn_graph_input(g, "cells", QN_DTYPE_I32, 1, &b->all);
        qn_graph_input(g, "last", QN_DTYPE_U8, 1, &b->end);
    }
    b->mask = qn_graph_input(g, "mask", QN_DTYPE_F16, 4, mask);
    if (any_window(b->m, 1)) b->mask_window = qn_graph_input(g, "mask_window", QN_DTYPE_F16, 4, mask);
    return tokens;
}

static qn_val embed(qn_build *b, qn_val tokens) {
    const qn_hparams *h = &b->m->h;
    uint32_t has = b->m->arch->has;
    b->embedding = qn_build_weight(b, "token_embd.weight", 1, 2, (int64_t[]){h->n_vocab, h->n_embd});
    qn_val x = qn_build_scale(b, qn_build_two(b, QN_OP_get_rows, b->embedding, tokens), h->embed_scale);
    if (has & QN_HAS_TOKEN_TYPES && qn_build_has(b, "token_types.weight")) {
        qn_file_tensor t; /* every token is of the first type: one text, no pair */
        int64_t rows = 2, zero = 1;
        if (qn_file_entry(b->m->file, qn_file_find(b->m->file, QN_FILE_TENSORS, "token_types.weight"), &t) == QN_OK &&
            t.tensor.rank == 2)
            rows = t.tensor.shape[0];
        qn_val table = qn_build_weight(b, "token_types.weight", 1, 2, (int64_t[]){rows, h->n_embd});
        qn_val first = qn_graph_constant(b->g, QN_DTYPE_I32, 1, &zero, (int32_t[]){0}, sizeof(int32_t));
        x = qn_build_two(b, QN_OP_add, x, qn_build_two(b, QN_OP_get_rows, table, first));
    }
    if (has & QN_HAS_POSITIONS || (has & QN_HAS_POSITIONS_MAYBE && qn_build_has(b, "position_embd.weight"))) {
        qn_val table = qn_build_weight(b, "position_embd.weight", 1, 2, (int64_t[]){h->context, h->n_embd});
        x = qn_build_two(b, QN_OP_add, x, qn_build_two(b, QN_OP_get_rows, table, b->positions));
    }
    return has & QN_HAS_EMBED_NORM ? qn_build_norm(b, x, "token_embd_norm") : x;
}

/* ---- A layer. Only rows that are wanted go on behind the last attention. */

static qn_val only_wanted(qn_build *b, qn_val x) {
    return b->layer == b->m->h.n_layers - 1 ? qn_build_two(b, QN_OP_get_rows, x, b->wanted) : x;
}

static qn_val residual(qn_build *b, qn_val part) {
    return b->m->arch->has & QN_HAS_SCALE_KEYS ? qn_build_scale(b, part, b->m->h.residual_scale) : part;
}

static qn_val attention(qn_build *b, qn_val x) {
    qn_graph_label_push(b->g, "attention");
    qn_val y = qn_build_attention(b, x);
    qn_graph_label_pop(b->g);
    y = only_wanted(b, y);
    if (b->layer == b->m->h.n_layers - 1) b->width = b->rows;
    return y;
}

static qn_val ffn(qn_build *b, qn_val x) {
    qn_graph_label_push(b->g, "mlp");
    qn_val y = qn_build_ffn(b, x);
    qn_graph_label_pop(b->g);
    return y;
}

/* x + attention + ffn, both of x. */
static qn_val parallel_layer(qn_build *b, qn_val x) {
    qn_val norm = qn_build_norm(b, x, "attn_norm");
    qn_val a = attention(b, qn_build_has(b, "attn_norm_2.weight") ? qn_build_norm(b, x, "attn_norm_2") : norm);
    x = only_wanted(b, x);
    qn_val of = b->m->arch->residual == QN_RESIDUAL_SHARED ? only_wanted(b, norm) : qn_build_norm(b, x, "ffn_norm");
    qn_val y = qn_build_two(b, QN_OP_add, a, ffn(b, of));
    return qn_build_two(b, QN_OP_add, y, x);
}

static qn_val norm_after_layer(qn_build *b, qn_val x) {
    qn_val a = attention(b, x);
    x = qn_build_norm(b, qn_build_two(b, QN_OP_add, a, only_wanted(b, x)), "attn_output_norm");
    return qn_build_norm(b, qn_build_two(b, QN_OP_add, ffn(b, x), x), "layer_output_norm");
}

static qn_val experts_beside(qn_build *b, qn_val input) {
    qn_graph_label_push(b->g, "experts");
    qn_val y = qn_build_experts(b, qn_build_norm(b, only_wanted(b, input), "ffn_norm_exps"));
    qn_graph_label_pop(b->g);
    return y;
}

static qn_val serial_layer(qn_build *b, qn_val x) {
    uint32_t has = b->m->arch->has;
    int bare = b->m->arch->residual == QN_RESIDUAL_POST_ONLY, post = (has & QN_HAS_POST_NORMS) != 0;
    qn_val norm = bare ? x : qn_build_norm(b, x, "attn_norm"), input = x;
    qn_val a = attention(b, norm);
    if (post) a = qn_build_norm(b, a, "post_attention_norm");
    x = qn_build_two(b, QN_OP_add, residual(b, a), only_wanted(b, x));
    qn_val of = bare                           ? x
                : has & QN_HAS_OUT_NORM_AS_FFN ? qn_build_norm(b, x, "attn_output_norm")
                : has & QN_HAS_POST_NORM_AS_FFN
                    ? qn_build_norm(b, x, qn_build_has(b, "ffn_norm.weight") ? "ffn_norm" : "post_attention_norm")
                : b->m->arch->residual == QN_RESIDUAL_BY_NORM && !qn_build_has(b, "ffn_norm.weight")
                    ? only_wanted(b, norm)
                    : qn_build_norm(b, x, "ffn_norm");
    if (b->m->arch->early_router) b->router = only_wanted(b, input);
    qn_val f = ffn(b, of);
    if (has & QN_HAS_EXPERTS_BESIDE) f = qn_build_two(b, QN_OP_add, f, experts_beside(b, input));
    if (post) f = qn_build_norm(b, f, "post_ffw_norm");
    return qn_build_two(b, QN_OP_add, residual(b, f), x);
}

static qn_val layer(qn_build *b, qn_val x) {
    qn_residual_kind kind = b->m->arch->residual;
    if (kind == QN_RESIDUAL_NORM_AFTER) return norm_after_layer(b, x);
    if (kind == QN_RESIDUAL_SHARED || (kind == QN_RESIDUAL_BY_KEY && b->m->h.parallel)) return parallel_layer(b, x);
    return serial_layer(b, x);
}

static qn_val head(qn_build *b, qn_val x) {
    const qn_hparams *h = &b->m->h;
    if (b->m->arch->has & QN_IS_ENCODER) return x;
    x = qn_build_norm(b, x, "output_norm");
    qn_val y;
    if (qn_build_has(b, "output.weight")) y = qn_build_linear(b, x, "output", h->n_embd, h->n_vocab, QN_SCALE_FIRST);
    else y = qn_build_two(b, QN_OP_mul_mat, b->embedding, x);
    if (h->logit_scale != 0) y = qn_build_scale(b, y, b->m->arch->has & QN_HAS_SCALE_KEYS ? 1 / h->logit_scale : h->logit_scale);
    if (h->final_softcap > 0)
        y = qn_build_scale(b, qn_build_unary(b, QN_UNARY_tanh, qn_build_scale(b, y, 1 / h->final_softcap)), h->final_softcap);
    return y;
}

static qn_status build(qn_build *b) {
    char label[32];
    add_symbols(b);
    qn_val tokens = add_inputs(b);
    qn_graph_label_push(b->g, "embedding");
    qn_val x = embed(b, tokens);
    qn_graph_label_pop(b->g);
    for (b->layer = 0; b->layer < b->m->h.n_layers && b->status == QN_OK; b->layer++) {
        snprintf(label, sizeof label, "layer %d", b->layer);
        qn_graph_label_push(b->g, label);
        x = layer(b, x);
        qn_graph_label_pop(b->g);
    }
    b->layer = -1;
    qn_graph_label_push(b->g, "head");
    x = head(b, x);
    qn_graph_label_pop(b->g);
    if (b->status == QN_OK) qn_graph_output(b->g, x, "result");
    return b->status != QN_OK ? b->status : qn_graph_error(b->g, b->error);
}

qn_status qn_model_build(const qn_model *m, const qn_model_shape *shape, qn_graph **graph, qn_error *error) {
    qn_build b;
    memset(&b, 0, sizeof b);
    b.m = m;
    b.shape = shape;
    b.error = error;
    b.layer = -1;
    b.positions = b.cells = b.mask = b.mask_window = b.wanted = b.embedding = b.factors = b.router = QN_VAL_NONE;
    if (qn_graph_create(0, &b.g) != QN_OK) return qn_error_set(error, QN_NO_MEMORY, "no memory for a model's graph");
    qn_status status = build(&b);
    if (status == QN_OK) *graph = b.g;
    else qn_graph_destroy(b.g);
    return status;
}
