/* The storyteller: a llama-shaped transformer of about a million weights, by the same ops and names as src/model builds it with, so that
 * what is trained here is what a GGUF file says. Attention is written out, as products and a softmax have fast gradients. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "stories.h"

enum { ROWS = STORY_BATCH * STORY_CONTEXT };

static qn_val op(net *n, int kind, int count, const qn_val *src, const void *at) {
    return qn_graph_op(n->graph, kind, 0, count, src, at);
}
static qn_val two(net *n, int kind, qn_val a, qn_val b) { return op(n, kind, 2, (qn_val[]){a, b}, NULL); }

static qn_val permute(net *n, qn_val a, const int64_t axes[4]) {
    qn_attr_permute at = qn_attr_permute_default();
    at.axes.rank = 4;
    memcpy(at.axes.d, axes, 4 * sizeof *axes);
    return op(n, QN_OP_cont, 1, (qn_val[]){op(n, QN_OP_permute, 1, &a, &at)}, NULL);
}

static void full_name(char name[64], int layer, const char *part) {
    if (layer < 0) snprintf(name, 64, "%s.weight", part);
    else snprintf(name, 64, "blk.%d.%s.weight", layer, part);
}

/* x times the weight [to, from]; `gain` below 1 keeps the sum of all layers small at the start. */
static qn_val linear(net *n, int layer, const char *part, qn_val x, int64_t from, int64_t to, float gain) {
    char name[64];
    full_name(name, layer, part);
    qn_val w = net_param_new(n, name, gain * sqrtf(1.5f / (float)from), 0, 2, (int64_t[]){to, from});
    return two(n, QN_OP_mul_mat, w, x);
}

static qn_val norm(net *n, int layer, const char *part, qn_val x) {
    char name[64];
    qn_attr_rms_norm at = qn_attr_rms_norm_default();
    at.eps = STORY_EPSILON;
    full_name(name, layer, part);
    x = op(n, QN_OP_rms_norm, 1, &x, &at);
    return two(n, QN_OP_mul, x, net_param_new(n, name, 0, 1, 1, (int64_t[]){STORY_WIDE}));
}

static qn_val rope(net *n, qn_val x, qn_val positions, int64_t heads) {
    qn_attr_rope at = qn_attr_rope_default();
    at.n_dims = STORY_HEAD;
    at.freq_base = STORY_ROPE_BASE;
    at.n_ctx_orig = STORY_CONTEXT;
    x = net_reshape(n, x, 3, (int64_t[]){ROWS, heads, STORY_HEAD});
    return op(n, QN_OP_rope, 2, (qn_val[]){x, positions}, &at);
}

static qn_val attend(net *n, int layer, qn_val x, qn_val positions, qn_val mask) {
    static const char *const parts[] = {"attn_q", "attn_k", "attn_v"};
    static const int64_t heads[] = {STORY_HEADS, STORY_HEADS_KV, STORY_HEADS_KV};
    qn_val p[3];
    for (int i = 0; i < 3; i++) {
        p[i] = linear(n, layer, parts[i], x, STORY_WIDE, heads[i] * STORY_HEAD, 1);
        if (i < 2) p[i] = rope(n, p[i], positions, heads[i]);
        p[i] = net_reshape(n, p[i], 4, (int64_t[]){STORY_BATCH, STORY_CONTEXT, heads[i], STORY_HEAD});
        p[i] = permute(n, p[i], i < 2 ? (int64_t[]){0, 2, 1, 3} : (int64_t[]){0, 2, 3, 1});
    }
    qn_attr_soft_max at = qn_attr_soft_max_default();
    at.scale = 1.0f / sqrtf((float)STORY_HEAD);
    qn_val weights = op(n, QN_OP_soft_max, 2, (qn_val[]){two(n, QN_OP_mul_mat, p[1], p[0]), mask}, &at);
    qn_val y = permute(n, two(n, QN_OP_mul_mat, p[2], weights), (int64_t[]){0, 2, 1, 3});
    y = net_reshape(n, y, 2, (int64_t[]){ROWS, STORY_WIDE});
    return linear(n, layer, "attn_output", y, STORY_WIDE, STORY_WIDE, 1.0f / sqrtf(2.0f * STORY_LAYERS));
}

static qn_val feed(net *n, int layer, qn_val x) {
    qn_val gate = linear(n, layer, "ffn_gate", x, STORY_WIDE, STORY_FF, 1);
    qn_val up = linear(n, layer, "ffn_up", x, STORY_WIDE, STORY_FF, 1);
    qn_val y = qn_graph_op(n->graph, QN_OP_glu, QN_GLU_swiglu, 2, (qn_val[]){gate, up}, NULL);
    return linear(n, layer, "ffn_down", y, STORY_FF, STORY_WIDE, 1.0f / sqrtf(2.0f * STORY_LAYERS));
}

static qn_val block(net *n, int layer, qn_val x, qn_val positions, qn_val mask) {
    char label[32];
    snprintf(label, sizeof label, "layer %d", layer);
    qn_graph_label_push(n->graph, label);
    qn_graph_label_push(n->graph, "attention");
    x = two(n, QN_OP_add, x, attend(n, layer, norm(n, layer, "attn_norm", x), positions, mask));
    qn_graph_label_pop(n->graph);
    qn_graph_label_push(n->graph, "mlp");
    x = two(n, QN_OP_add, x, feed(n, layer, norm(n, layer, "ffn_norm", x)));
    qn_graph_label_pop(n->graph);
    qn_graph_label_pop(n->graph);
    return x;
}

/* Where each row of the batch is, and what it may see: itself and what came before. */
static int add_constants(net *n, qn_val *positions, qn_val *mask) {
    int32_t at[ROWS];
    float *sees = malloc(sizeof *sees * STORY_CONTEXT * STORY_CONTEXT);
    if (!sees) return 0;
    for (int i = 0; i < ROWS; i++) at[i] = i % STORY_CONTEXT;
    for (int i = 0; i < STORY_CONTEXT * STORY_CONTEXT; i++) sees[i] = i % STORY_CONTEXT > i / STORY_CONTEXT ? -INFINITY : 0.0f;
    *positions = qn_graph_constant(n->graph, QN_DTYPE_I32, 1, (int64_t[]){ROWS}, at, sizeof at);
    *mask = qn_graph_constant(n->graph, QN_DTYPE_F32, 2, (int64_t[]){STORY_CONTEXT, STORY_CONTEXT}, sees,
                              sizeof *sees * STORY_CONTEXT * STORY_CONTEXT);
    free(sees);
    return 1;
}

int net_stories(net *n, int64_t words, int train) {
    qn_val positions, mask;
    if (!add_constants(n, &positions, &mask)) return 0;
    qn_val tokens = qn_graph_input(n->graph, "tokens", QN_DTYPE_I32, 1, (int64_t[]){ROWS});
    qn_val labels = qn_graph_input(n->graph, "labels", QN_DTYPE_I32, 1, (int64_t[]){ROWS});
    qn_val table = net_param_new(n, "token_embd.weight", 0.06f, 0, 2, (int64_t[]){words, STORY_WIDE});
    qn_val x = two(n, QN_OP_get_rows, table, tokens);
    for (int i = 0; i < STORY_LAYERS; i++) x = block(n, i, x, positions, mask);
    qn_graph_label_push(n->graph, "head");
    qn_val logits = two(n, QN_OP_mul_mat, table, norm(n, -1, "output_norm", x));
    qn_attr_one_hot at = qn_attr_one_hot_default();
    at.depth = words;
    qn_val loss = two(n, QN_OP_cross_entropy_loss, logits, op(n, QN_OP_one_hot, 1, &labels, &at));
    qn_graph_label_pop(n->graph);
    n->clip = 1;
    return train ? net_train_step(n, loss) : qn_graph_output(n->graph, loss, "loss") == QN_OK;
}

int net_stories_example(net *n) {
    story_vocab *v = malloc(sizeof *v);
    int good = v && story_vocab_make(v) && net_stories(n, v->n, 1);
    if (v) story_vocab_free(v);
    free(v);
    return good;
}
