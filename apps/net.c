/* Parts of networks. */
#include "net.h"

#include <stdio.h>

#include "stories.h"

qn_val net_param_new(net *n, const char *name, float spread, float fill, int rank, const int64_t *shape) {
    qn_val v = qn_graph_param(n->graph, name, QN_DTYPE_F32, rank, shape);
    if (v == QN_VAL_NONE || n->n_params == NET_PARAMS) return QN_VAL_NONE;
    net_param *p = &n->params[n->n_params++];
    *p = (net_param){"", v, rank, {0}, spread, fill};
    snprintf(p->name, sizeof p->name, "%s", name);
    memcpy(p->shape, shape, (size_t)rank * sizeof *shape);
    return v;
}

qn_val net_add(net *n, qn_val a, qn_val b) { return qn_graph_op(n->graph, QN_OP_arith, QN_ARITH_add, 2, (qn_val[]){a, b}, NULL); }

qn_val net_matmul(net *n, qn_val a, qn_val b, int transposed_b) {
    qn_attr_matmul at = qn_attr_matmul_default();
    at.transpose_b = transposed_b;
    return qn_graph_op(n->graph, QN_OP_matmul, 0, 2, (qn_val[]){a, b}, &at);
}

qn_val net_reshape(net *n, qn_val a, int rank, const int64_t *shape) {
    qn_attr_reshape at = qn_attr_reshape_default();
    at.shape.rank = rank;
    memcpy(at.shape.d, shape, (size_t)rank * sizeof *shape);
    return qn_graph_op(n->graph, QN_OP_reshape, 0, 1, &a, &at);
}

qn_val net_unary(net *n, int sub, qn_val a) { return qn_graph_op(n->graph, QN_OP_unary, sub, 1, &a, NULL); }

/* A name with a word behind it, as a param that starts at zero. */
static qn_val companion(net *n, const net_param *p, const char *word) {
    char name[160];
    snprintf(name, sizeof name, "%s.%s", p->name, word);
    return qn_graph_param(n->graph, name, QN_DTYPE_F32, p->rank, p->shape);
}

/* All gradients times min(1, clip / their length), the length taken over all of them. */
static void clip_grads(net *n, qn_val *grads) {
    qn_attr_scale by = qn_attr_scale_default();
    qn_attr_clamp most = qn_attr_clamp_default();
    qn_val sum = QN_VAL_NONE;
    qn_graph_label_push(n->graph, "clip");
    for (int i = 0; i < n->n_params; i++) {
        qn_val square = qn_graph_op(n->graph, QN_OP_arith, QN_ARITH_mul, 2, (qn_val[]){grads[i], grads[i]}, NULL);
        square = qn_graph_op(n->graph, QN_OP_sum, 0, 1, &square, NULL);
        sum = i ? net_add(n, sum, square) : square;
    }
    by.s = 1 / n->clip;
    most.min = 1;
    qn_val length = qn_graph_op(n->graph, QN_OP_sqrt, 0, 1, &sum, NULL);
    length = qn_graph_op(n->graph, QN_OP_scale, 0, 1, &length, &by);
    length = qn_graph_op(n->graph, QN_OP_clamp, 0, 1, &length, &most);
    for (int i = 0; i < n->n_params; i++)
        grads[i] = qn_graph_op(n->graph, QN_OP_arith, QN_ARITH_div, 2, (qn_val[]){grads[i], length}, NULL);
    qn_graph_label_pop(n->graph);
}

int net_train_step(net *n, qn_val loss) {
    qn_val wrt[NET_PARAMS], grads[NET_PARAMS], stepped[3];
    char name[160];
    for (int i = 0; i < n->n_params; i++) wrt[i] = n->params[i].value;
    qn_val hyper = qn_graph_input(n->graph, "hyper", QN_DTYPE_F32, 1, (int64_t[]){7});
    if (qn_graph_grad(n->graph, loss, n->n_params, wrt, grads) != QN_OK) return 0;
    if (n->clip > 0) clip_grads(n, grads);
    for (int i = 0; i < n->n_params; i++) {
        const net_param *p = &n->params[i];
        qn_val m = companion(n, p, "m"), v = companion(n, p, "v");
        qn_graph_label_push(n->graph, "adamw");
        qn_graph_apply(n->graph, QN_OP_opt_step_adamw, 0, 5, (qn_val[]){p->value, m, v, grads[i], hyper}, NULL, 3, stepped);
        qn_graph_label_pop(n->graph);
        snprintf(name, sizeof name, "%s'", p->name);
        qn_graph_output(n->graph, stepped[0], name);
    }
    return qn_graph_output(n->graph, loss, "loss") == QN_OK;
}

static int build_mnist(net *n) { return net_mnist(n, 64, 1); }

static const net_example examples[] = {
    {"mnist", "a training step of a small CNN on 28x28 digits, batch 64", build_mnist},
    {"gpt2", "a training step of a GPT-2-small: 12 layers, 768 wide, 12 heads, 1024 tokens", net_gpt2},
    {"stories", "a training step of the storyteller: 4 layers, 128 wide, 4 sequences of 256 tokens", net_stories_example},
};

const net_example *net_example_at(int i) { return i >= 0 && i < (int)(sizeof examples / sizeof *examples) ? &examples[i] : NULL; }

const net_example *net_example_find(const char *name) {
    for (int i = 0; net_example_at(i); i++)
        if (strcmp(examples[i].name, name) == 0) return &examples[i];
    return NULL;
}
