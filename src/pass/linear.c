/* matmul, mul_mat and linear as linear. */
#include "pass/linear.h"

#include "pass/terms.h"

static int from_matmul(const qn_ir_node *n, const qn_val *src, qn_pass_linear *l) {
    const qn_attr_matmul *at = qn_pass_attr(n);
    *l = (qn_pass_linear){src[0], src[1], QN_VAL_NONE, at->transpose_b, -1, 0};
    return !at->transpose_a;
}

/* It gives f32 of halves, where linear would give halves. */
static int from_mul_mat(const qn_graph *g, const qn_ir_node *n, const qn_val *src, qn_pass_linear *l) {
    const qn_attr_mul_mat *at = qn_pass_attr(n);
    *l = (qn_pass_linear){src[1], src[0], QN_VAL_NONE, 1, -1, (int32_t)g->values.at[n->out].shape.dtype};
    return at->prec == 0 && at->hint == 0 && qn_is_float(g->values.at[l->x].shape.dtype);
}

static int from_linear(const qn_ir_node *n, const qn_val *src, qn_pass_linear *l) {
    const qn_attr_linear *at = qn_pass_attr(n);
    *l = (qn_pass_linear){src[0], src[1], n->n_src > 2 ? src[2] : QN_VAL_NONE, at->transpose_w, at->act, at->dtype};
    return n->n_src < 4 || src[3] == QN_VAL_NONE;
}

int qn_pass_linear_of(const qn_graph *g, int32_t node, qn_pass_linear *l) {
    const qn_ir_node *n = &g->nodes.at[node];
    const qn_val *src = qn_ir_sources(g, n);
    int is = n->op == QN_OP_matmul    ? from_matmul(n, src, l)
             : n->op == QN_OP_mul_mat ? from_mul_mat(g, n, src, l)
             : n->op == QN_OP_linear  ? from_linear(n, src, l)
                                      : 0;
    return is && g->values.at[l->w].shape.rank == 2;
}
