/* Reverse-mode differentiation over a graph: nodes backwards, each op's own rule in turn, gradients of values that are used more than
 * once added up in the order in which they arise. The gradient nodes go to the end of the same graph, under the label of the node
 * they belong to with "gradient" in front. */
#include "grad/reverse.h"

#include <stdio.h>

#include "op/op_emit.h"

typedef struct walk {
    qn_graph *g;
    qn_val *grad;    /* per value of the forward graph: its gradient so far, or QN_VAL_NONE */
    uint8_t *varies; /* per value: whether it depends on a value asked for */
} walk;

static qn_status emit_apply(void *self, int op, int subop, int n_src, const qn_val *src, const void *attr, int n_out,
                            qn_val *out) {
    return qn_graph_apply(((walk *)self)->g, op, subop, n_src, src, attr, n_out, out);
}

static const qn_shape *emit_shape(void *self, qn_val value) {
    const qn_graph *g = ((walk *)self)->g;
    return value >= 0 && (size_t)value < g->values.n ? &g->values.at[value].shape : NULL;
}

/* Gradients flow through floats only: an index or a count has none. */
static int is_differentiable(const qn_graph *g, qn_val value) { return qn_is_float(g->values.at[value].shape.dtype); }

void qn_grad_mark_varying(const qn_graph *g, uint8_t *varies) {
    for (size_t k = 0; k < g->nodes.n; k++) {
        const qn_ir_node *node = &g->nodes.at[k];
        int any = 0;
        for (int i = 0; i < node->n_src; i++) {
            qn_val s = qn_ir_sources(g, node)[i];
            any |= s != QN_VAL_NONE && varies[s];
        }
        for (int i = 0; any && i < node->n_out; i++)
            if (is_differentiable(g, node->out + i)) varies[node->out + i] = 1;
    }
}

static void set_label(qn_graph *g, int32_t label) {
    char path[512];
    const char *of = qn_ir_string(g, label);
    snprintf(path, sizeof path, "gradient%s%s", *of ? " / " : "", of);
    g->forced_label = qn_ir_text(g, path);
}

/* Adds to what a value has received so far. */
static void accumulate(walk *w, qn_vjp_call *v, qn_val value, qn_val more) {
    if (more == QN_VAL_NONE) return;
    more = qn_e_cast(v, more, w->g->values.at[value].shape.dtype);
    w->grad[value] = w->grad[value] == QN_VAL_NONE ? more : qn_e_add(v, w->grad[value], more);
}

static qn_status visit(walk *w, int32_t number) {
    qn_graph *g = w->g;
    const qn_ir_node node = g->nodes.at[number]; /* by value: the array moves as nodes are added */
    const qn_op_info *info = qn_op_describe(node.op);
    const qn_emitter emitter = {w, emit_apply, emit_shape, g};
    qn_vjp_call v = {.emitter = &emitter,
                     .op = node.op,
                     .subop = node.subop,
                     .attr = node.attr ? node.attr : info->attr_default,
                     .n_src = node.n_src,
                     .n_dst = node.n_out,
                     .status = QN_OK};
    int wanted = 0, reached = 0;
    for (int i = 0; i < QN_MAX_SRC; i++) {
        v.src[i] = i < node.n_src ? qn_ir_sources(g, &node)[i] : QN_VAL_NONE;
        v.out[i] = QN_VAL_NONE;
        v.want[i] = v.src[i] != QN_VAL_NONE && w->varies[v.src[i]] && !(info->src[i].flags & (QN_SLOT_INDEX | QN_SLOT_SHAPE));
        wanted |= v.want[i];
    }
    for (int i = 0; i < QN_MAX_DST; i++) {
        v.dst[i] = i < node.n_out ? node.out + i : QN_VAL_NONE;
        v.grad[i] = i < node.n_out ? w->grad[node.out + i] : QN_VAL_NONE;
        reached |= v.grad[i] != QN_VAL_NONE;
    }
    if (!wanted || !reached) return QN_OK;
    set_label(g, node.label);
    qn_vjp_fn rule = qn_op_rules_of(node.op)->vjp;
    if (!rule) return qn_ir_fail(g, QN_INVALID, "node %d: %s has no gradient: %s", number, info->name, info->no_gradient);
    rule(&v);
    if (v.status != QN_OK) return qn_ir_fail(g, v.status, "node %d: the gradient of %s could not be written", number, info->name);
    for (int i = 0; i < node.n_src; i++)
        if (v.want[i]) accumulate(w, &v, v.src[i], v.out[i]);
    return v.status;
}

static qn_val fill(qn_graph *g, qn_val like, float value) {
    qn_attr_fill at = qn_attr_fill_default();
    at.c = value;
    return qn_graph_op(g, QN_OP_fill, 0, 1, &like, &at);
}

static qn_status check_question(qn_graph *g, qn_val loss, int n, const qn_val *wrt) {
    if (g->symbols.n) return qn_ir_fail(g, QN_INVALID, "gradient: the graph has symbols; bind them first");
    if (loss < 0 || (size_t)loss >= g->values.n)
        return qn_ir_fail(g, QN_ARGUMENT, "gradient: value %d is none of this graph's", loss);
    const qn_shape *s = &g->values.at[loss].shape;
    for (int k = 0; k < s->rank; k++)
        if (s->d[k] != 1)
            return qn_ir_fail(g, QN_INVALID, "gradient: the loss must have one element, axis %d has %lld", k, (long long)s->d[k]);
    if (!is_differentiable(g, loss)) return qn_ir_fail(g, QN_INVALID, "gradient: the loss is not a float");
    for (int i = 0; i < n; i++) {
        if (wrt[i] < 0 || (size_t)wrt[i] >= g->values.n)
            return qn_ir_fail(g, QN_ARGUMENT, "gradient: value %d is none of this graph's", wrt[i]);
        if (!is_differentiable(g, wrt[i])) return qn_ir_fail(g, QN_INVALID, "gradient: value %d is not a float", wrt[i]);
    }
    return QN_OK;
}

/* A seed is a gradient a value has from outside. */
static void plant(walk *w, qn_val at, qn_val seed) {
    const qn_emitter emitter = {w, emit_apply, emit_shape, w->g};
    qn_vjp_call v = {.emitter = &emitter, .status = QN_OK};
    accumulate(w, &v, at, seed);
}

qn_status qn_grad_reverse(qn_graph *g, int n_seed, const qn_val *at, const qn_val *seed, int n, const qn_val *wrt,
                          qn_val *grads) {
    size_t n_values = g->values.n, n_nodes = g->nodes.n;
    walk w = {g, qn_arena_resize(&g->arena, NULL, n_values, sizeof(qn_val)), qn_arena_resize(&g->arena, NULL, n_values, 1)};
    if (w.grad && w.varies) {
        memset(w.varies, 0, n_values);
        for (size_t i = 0; i < n_values; i++) w.grad[i] = QN_VAL_NONE;
        for (int i = 0; i < n; i++) w.varies[wrt[i]] = 1;
        qn_grad_mark_varying(g, w.varies);
        for (int i = 0; i < n_seed; i++) plant(&w, at[i], seed[i]);
        for (int32_t k = (int32_t)n_nodes - 1; k >= 0 && g->error.status == QN_OK; k--) visit(&w, k);
        for (int i = 0; i < n; i++) grads[i] = w.grad[wrt[i]];
    } else {
        qn_ir_fail(g, QN_NO_MEMORY, "gradient: no memory for %zu values", n_values);
    }
    qn_arena_release(&g->arena, w.grad);
    qn_arena_release(&g->arena, w.varies);
    g->forced_label = 0;
    return g->error.status;
}

qn_status qn_graph_grad(qn_graph *g, qn_val loss, int n, const qn_val *wrt, qn_val *grads) {
    if (!g || n < 0 || (n && (!wrt || !grads))) return QN_ARGUMENT;
    for (int i = 0; i < n; i++) grads[i] = QN_VAL_NONE;
    if (g->error.status != QN_OK) return g->error.status;
    QN_TRY(check_question(g, loss, n, wrt));
    set_label(g, 0);
    qn_val seed = fill(g, loss, 1);
    QN_TRY(qn_grad_reverse(g, 1, &loss, &seed, n, wrt, grads));
    set_label(g, 0);
    for (int i = 0; i < n && g->error.status == QN_OK; i++)
        if (grads[i] == QN_VAL_NONE) grads[i] = fill(g, wrt[i], 0);
    g->forced_label = 0;
    return g->error.status;
}
