/* Computing a segment of the forward pass a second time. The second time must stay one: a pass that merges equal nodes would
 * find the first and keep its results alive, which is what all this is there to avoid. So what a segment takes from outside
 * goes through `barrier`, a view of a value that no pass takes for the value itself. The barrier also waits for a gradient, so
 * that whoever reorders nodes cannot begin the second time before the backward pass has come that far. */
#include "grad/grad.h"

static int has_no_effect(const qn_ir_node *n) {
    const qn_op_info *info = qn_op_describe(n->op);
    for (int i = 0; i < info->n_src; i++)
        if (info->src[i].flags & QN_SLOT_STATE) return 0;
    for (int i = 0; i < info->n_attr; i++) {
        const qn_graph *body = qn_ir_body(info, i, n->attr);
        if (info->attr[i].kind == QN_ATTR_KIND_fn) return 0;
        for (size_t k = 0; body && k < body->nodes.n; k++)
            if (!has_no_effect(&body->nodes.at[k])) return 0;
    }
    return 1;
}

int qn_grad_is_repeatable(const qn_ir_node *n) { return n->n_src > 0 && has_no_effect(n); }

typedef struct second_time {
    qn_grad_state *s;
    int32_t segment;
    qn_val token;   /* a gradient that has arrived at this segment */
    qn_val *behind; /* per value: itself behind a barrier, or QN_VAL_NONE */
} second_time;

static int is_inside(const second_time *t, qn_val value) {
    const qn_ir_value *v = &t->s->g->values.at[value];
    return v->node >= 0 && t->s->q->segments->of[v->node] == t->segment;
}

/* The newest gradient of the segment's values: what this part of the backward pass begins with. */
static qn_val newest_gradient(const second_time *t) {
    qn_val newest = QN_VAL_NONE;
    for (size_t i = 0; i < t->s->n_values; i++)
        if (is_inside(t, (qn_val)i) && t->s->grad[i] > newest) newest = t->s->grad[i];
    return newest;
}

static qn_val put_behind(second_time *t, qn_val value) {
    if (t->behind[value] == QN_VAL_NONE)
        t->behind[value] = qn_graph_op(t->s->g, QN_OP_barrier, 0, 2, (qn_val[]){value, t->token}, NULL);
    return t->behind[value];
}

/* Sources of the second time: what was computed again, or comes from outside through a barrier. Leaves go in plain as long as
 * another source tells the two times apart, because kernels want to see a weight as what it is. */
static void take_sources(second_time *t, int n_src, qn_val *src) {
    int apart = 0, first = -1;
    for (int i = 0; i < n_src; i++) {
        if (src[i] == QN_VAL_NONE) continue;
        if (first < 0) first = i;
        qn_val again = t->s->again[src[i]];
        if (again == QN_VAL_NONE && t->s->g->values.at[src[i]].node < 0) continue;
        src[i] = again != QN_VAL_NONE ? again : put_behind(t, src[i]);
        apart = 1;
    }
    if (!apart && first >= 0) src[first] = put_behind(t, src[first]);
}

static qn_status compute_again(second_time *t, int32_t number) {
    qn_graph *g = t->s->g;
    const qn_ir_node node = g->nodes.at[number];
    qn_val src[QN_MAX_SRC], out[QN_MAX_DST];
    for (int i = 0; i < QN_MAX_SRC; i++) src[i] = i < node.n_src ? qn_ir_sources(g, &node)[i] : QN_VAL_NONE;
    take_sources(t, node.n_src, src);
    qn_grad_set_label(g, "recompute", node.label);
    QN_TRY(qn_ir_apply(g, node.op, node.subop, node.n_src, src, node.attr, node.n_out, out)); /* bodies are shared */
    for (int i = 0; i < node.n_out; i++) t->s->again[node.out + i] = out[i];
    return QN_OK;
}

qn_status qn_grad_recompute(qn_grad_state *s, int32_t segment) {
    qn_graph *g = s->g;
    second_time t = {s, segment, QN_VAL_NONE, NULL};
    if ((t.token = newest_gradient(&t)) == QN_VAL_NONE) return QN_OK; /* no gradient comes this way */
    t.behind = qn_arena_resize(&g->arena, NULL, s->n_values, sizeof *t.behind);
    if (!t.behind) return qn_ir_fail(g, QN_NO_MEMORY, "%s: no memory for %zu values", s->q->prefix, s->n_values);
    for (size_t i = 0; i < s->n_values; i++) t.behind[i] = QN_VAL_NONE;
    for (int32_t k = 0; k < (int32_t)s->n_nodes && g->error.status == QN_OK; k++)
        if (s->q->segments->of[k] == segment && qn_grad_is_repeatable(&g->nodes.at[k])) compute_again(&t, k);
    qn_arena_release(&g->arena, t.behind);
    return g->error.status;
}
