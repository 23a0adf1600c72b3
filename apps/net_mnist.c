/* The small CNN for handwritten digits: two convolutions with pooling, two dense layers. */
#include <math.h>

#include "net.h"

static qn_val convolve(net *n, const char *w, const char *b, qn_val x, int64_t from, int64_t to) {
    qn_attr_conv at = qn_attr_conv_default();
    at.padding.rank = 2;
    at.padding.d[0] = at.padding.d[1] = 1;
    float spread = sqrtf(6.0f / (9.0f * (float)from));
    qn_val src[] = {x, net_param_new(n, w, spread, 0, 4, (int64_t[]){to, from, 3, 3}),
                    net_param_new(n, b, 0, 0, 1, (int64_t[]){to})};
    return net_unary(n, QN_UNARY_relu, qn_graph_op(n->graph, QN_OP_conv, 0, 3, src, &at));
}

static qn_val halve(net *n, qn_val x) {
    qn_attr_pool at = qn_attr_pool_default();
    at.kernel.rank = at.stride.rank = 2;
    for (int i = 0; i < 2; i++) at.kernel.d[i] = at.stride.d[i] = 2;
    return qn_graph_op(n->graph, QN_OP_pool, qn_subop_from_name(QN_OP_pool, "max"), 1, &x, &at);
}

static qn_val dense(net *n, const char *w, const char *b, qn_val x, int64_t from, int64_t to) {
    qn_val weight = net_param_new(n, w, sqrtf(6.0f / (float)from), 0, 2, (int64_t[]){from, to});
    return net_add(n, net_matmul(n, x, weight, 0), net_param_new(n, b, 0, 0, 1, (int64_t[]){to}));
}

int net_mnist(net *n, int64_t batch, int train) {
    qn_val x = qn_graph_input(n->graph, "images", QN_DTYPE_F32, 4, (int64_t[]){batch, 1, 28, 28});
    qn_graph_label_push(n->graph, "conv 1");
    x = halve(n, convolve(n, "c1.w", "c1.b", x, 1, 16));
    qn_graph_label_pop(n->graph);
    qn_graph_label_push(n->graph, "conv 2");
    x = halve(n, convolve(n, "c2.w", "c2.b", x, 16, 32));
    qn_graph_label_pop(n->graph);
    x = net_reshape(n, x, 2, (int64_t[]){batch, 32 * 7 * 7});
    qn_graph_label_push(n->graph, "dense 1");
    x = net_unary(n, QN_UNARY_relu, dense(n, "d1.w", "d1.b", x, 32 * 7 * 7, 128));
    qn_graph_label_pop(n->graph);
    qn_graph_label_push(n->graph, "dense 2");
    x = dense(n, "d2.w", "d2.b", x, 128, 10);
    qn_graph_label_pop(n->graph);
    if (!train) return qn_graph_output(n->graph, x, "logits") == QN_OK;
    qn_val labels = qn_graph_input(n->graph, "labels", QN_DTYPE_F32, 2, (int64_t[]){batch, 10});
    return net_train_step(n, qn_graph_op(n->graph, QN_OP_cross_entropy_loss, 0, 2, (qn_val[]){x, labels}, NULL));
}
