/* A GPT-2-small-shaped training step: what `quern plan --example gpt2` plans. */
#include <stdio.h>

#include "net.h"

enum { LAYERS = 12, WIDE = 768, HEADS = 12, TOKENS = 1024, WORDS = 50257 };

static qn_val param(net *n, const char *part, int layer, float spread, float fill, int rank, const int64_t *shape) {
    char name[64];
    if (layer < 0) snprintf(name, sizeof name, "%s", part);
    else snprintf(name, sizeof name, "h%d.%s", layer, part);
    return net_param_new(n, name, spread, fill, rank, shape);
}

static qn_val norm(net *n, const char *part, int layer, qn_val x) {
    char gain[32], bias[32];
    snprintf(gain, sizeof gain, "%s.g", part);
    snprintf(bias, sizeof bias, "%s.b", part);
    qn_val src[] = {x, param(n, gain, layer, 0, 1, 1, (int64_t[]){WIDE}), param(n, bias, layer, 0, 0, 1, (int64_t[]){WIDE})};
    qn_val out[1];
    qn_graph_apply(n->graph, QN_OP_layer_norm, 0, 3, src, NULL, 1, out);
    return out[0];
}

static qn_val dense(net *n, const char *part, int layer, qn_val x, int64_t from, int64_t to) {
    char weight[32], bias[32];
    snprintf(weight, sizeof weight, "%s.w", part);
    snprintf(bias, sizeof bias, "%s.b", part);
    qn_val y = net_matmul(n, x, param(n, weight, layer, 0.02f, 0, 2, (int64_t[]){from, to}), 0);
    return net_add(n, y, param(n, bias, layer, 0, 0, 1, (int64_t[]){to}));
}

static qn_val narrow(net *n, qn_val a, int64_t start, int64_t length) {
    qn_attr_narrow at = qn_attr_narrow_default();
    at.start = start;
    at.length = length;
    return qn_graph_op(n->graph, QN_OP_narrow, 0, 1, &a, &at);
}

static qn_val attend(net *n, int layer, qn_val x) {
    qn_attr_attention at = qn_attr_attention_default();
    at.layout = 1;
    at.mask_kind = 1;
    at.scale = 0.125f;
    qn_val qkv = dense(n, "qkv", layer, x, WIDE, 3 * WIDE), src[3], out[1];
    for (int i = 0; i < 3; i++)
        src[i] = net_reshape(n, qn_graph_op(n->graph, QN_OP_cont, 0, 1, (qn_val[]){narrow(n, qkv, i * WIDE, WIDE)}, NULL), 4,
                             (int64_t[]){1, TOKENS, HEADS, WIDE / HEADS});
    qn_graph_apply(n->graph, QN_OP_attention, 0, 3, src, &at, 1, out);
    return dense(n, "proj", layer, net_reshape(n, out[0], 2, (int64_t[]){TOKENS, WIDE}), WIDE, WIDE);
}

static qn_val block(net *n, int layer, qn_val x) {
    char label[32];
    snprintf(label, sizeof label, "layer %d", layer);
    qn_graph_label_push(n->graph, label);
    qn_graph_label_push(n->graph, "attention");
    x = net_add(n, x, attend(n, layer, norm(n, "ln1", layer, x)));
    qn_graph_label_pop(n->graph);
    qn_graph_label_push(n->graph, "mlp");
    qn_val h = net_unary(n, QN_UNARY_gelu, dense(n, "up", layer, norm(n, "ln2", layer, x), WIDE, 4 * WIDE));
    x = net_add(n, x, dense(n, "down", layer, h, 4 * WIDE, WIDE));
    qn_graph_label_pop(n->graph);
    qn_graph_label_pop(n->graph);
    return x;
}

int net_gpt2(net *n) {
    qn_val tokens = qn_graph_input(n->graph, "tokens", QN_DTYPE_I32, 1, (int64_t[]){TOKENS});
    qn_val labels = qn_graph_input(n->graph, "labels", QN_DTYPE_I32, 1, (int64_t[]){TOKENS});
    qn_val words = net_param_new(n, "wte", 0.02f, 0, 2, (int64_t[]){WORDS, WIDE});
    qn_val places = net_param_new(n, "wpe", 0.02f, 0, 2, (int64_t[]){TOKENS, WIDE});
    qn_val x = net_add(n, qn_graph_op(n->graph, QN_OP_get_rows, 0, 2, (qn_val[]){words, tokens}, NULL), places);
    for (int i = 0; i < LAYERS; i++) x = block(n, i, x);
    qn_val logits = net_matmul(n, norm(n, "ln_f", -1, x), words, 1);
    qn_attr_one_hot at = qn_attr_one_hot_default();
    at.depth = WORDS;
    qn_val hot = qn_graph_op(n->graph, QN_OP_one_hot, 0, 1, &labels, &at);
    return net_train_step(n, qn_graph_op(n->graph, QN_OP_cross_entropy_loss, 0, 2, (qn_val[]){logits, hot}, NULL));
}
