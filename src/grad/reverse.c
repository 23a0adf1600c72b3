/* Reverse-mode differentiation over a graph: nodes backwards, each op's own rule in turn, gradients of values that are used
 * more than once added up as they arise, so that no more than the sum and its next part are ever alive. The gradient nodes go
 * to the end of the same graph, under the label of the node they belong to with a prefix in front. */
#include "grad/reverse.h"

#include <stdio.h>

#include "grad/grad.h"
#include "op/op_emit.h"

static const char *const prefixes[] = {"gradient", "tangent", "second gradient", "recompute"};

void qn_grad_set_label(qn_graph *g, const char *prefix, int32_t label) {
    char path[512];
    const char *of = qn_ir_string(g, label);
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t n = strlen(prefixes[i]);
        if (strncmp(of, prefixes[i], n) != 0 || (of[n] && strncmp(of + n, " / ", 3) != 0)) continue;
        of += of[n] ? n + 3 : n;
        break;
    }
    snprintf(path, sizeof path, "%s%s%s", prefix, *of ? " / " : "", of);
    g->forced_label = qn_ir_text(g, path);
}

qn_val qn_grad_fill(qn_graph *g, qn_val like, float value) {
    qn_attr_fill at = qn_attr_fill_default();
    at.c = value;
    return qn_graph_op(g, QN_OP_fill, 0, 1, &like, &at);
}

static qn_status emit_apply(void *self, int op, int subop, int n_src, const qn_val *src, const void *attr, int n_out,
                            qn_val *out) {
    return qn_graph_apply(((qn_grad_state *)self)->g, op, subop, n_src, src, attr, n_out, out);
}

static const qn_shape *emit_shape(void *self, qn_val value) {
    const qn_graph *g = ((qn_grad_state *)self)->g;
    return value >= 0 && (size_t)value < g->values.n ? &g->values.at[value].shape : NULL;
}

/* Gradients flow through floats only: an index or a count has none. */
void qn_grad_mark_varying(const qn_graph *g, uint8_t *varies) {
    for (size_t k = 0; k < g->nodes.n; k++) {
        const qn_ir_node *node = &g->nodes.at[k];
        int any = 0;
        for (int i = 0; i < node->n_src; i++) {
            qn_val v = qn_ir_sources(g, node)[i];
            any |= v != QN_VAL_NONE && varies[v];
        }
        for (int i = 0; any && i < node->n_out; i++)
            if (qn_is_float(g->values.at[node->out + i].shape.dtype)) varies[node->out + i] = 1;
    }
}

/* Adds to what a value has received so far. */
static void accumulate(qn_grad_state *s, qn_vjp_call *v, qn_val value, qn_val more) {
    if (more == QN_VAL_NONE || value == QN_VAL_NONE) return;
    more = qn_e_cast(v, more, s->g->values.at[value].shape.dtype);
    s->grad[value] = s->grad[value] == QN_VAL_NONE ? more : qn_e_add(v, s->grad[value], more);
}

static qn_val present(const qn_grad_state *s, qn_val value) {
    if (value == QN_VAL_NONE || !s->again) return value;
    return s->again[value] != QN_VAL_NONE ? s->again[value] : value;
}

static qn_status fail(qn_graph *g, int32_t number, const qn_op_info *info, const qn_vjp_call *v) {
    if (v->why && v->why_slot >= 0)
        return qn_ir_fail(g, v->status, "node %d: %s has no gradient for %s: %s", number, info->name, info->src[v->why_slot].name,
                          v->why);
    const char *why = v->why ? v->why : "";
    return qn_ir_fail(g, v->status, "node %d: the gradient of %s could not be written%s%s", number, info->name, *why ? ": " : "",
                      why);
}

static qn_status visit(qn_grad_state *s, int32_t number) {
    qn_graph *g = s->g;
    const qn_ir_node node = g->nodes.at[number]; /* by value: the array moves as nodes are added */
    const qn_op_info *info = qn_op_describe(node.op);
    const qn_emitter emitter = {.self = s, .apply = emit_apply, .shape = emit_shape, .graph = s->g};
    qn_vjp_call v = {.emitter = &emitter,
                     .op = node.op,
                     .subop = node.subop,
                     .attr = node.attr ? node.attr : info->attr_default,
                     .n_src = node.n_src,
                     .n_dst = node.n_out,
                     .status = QN_OK};
    qn_val src[QN_MAX_SRC];
    int wanted = 0, reached = 0;
    for (int i = 0; i < QN_MAX_SRC; i++) {
        src[i] = i < node.n_src ? qn_ir_sources(g, &node)[i] : QN_VAL_NONE;
        v.src[i] = present(s, src[i]);
        v.out[i] = QN_VAL_NONE;
        v.want[i] = src[i] != QN_VAL_NONE && s->varies[src[i]] && !(info->src[i].flags & (QN_SLOT_INDEX | QN_SLOT_SHAPE));
        wanted |= v.want[i];
    }
    for (int i = 0; i < QN_MAX_DST; i++) {
        v.dst[i] = i < node.n_out ? present(s, node.out + i) : QN_VAL_NONE;
        v.grad[i] = i < node.n_out ? s->grad[node.out + i] : QN_VAL_NONE;
        reached |= v.grad[i] != QN_VAL_NONE;
    }
    if (!wanted || !reached) return QN_OK;
    qn_grad_set_label(g, s->q->prefix, node.label);
    qn_vjp_fn rule = qn_op_rules_of(node.op)->vjp;
    if (!rule) return qn_ir_fail(g, QN_INVALID, "node %d: %s has no gradient: %s", number, info->name, info->no_gradient);
    rule(&v);
    if (v.status != QN_OK) return fail(g, number, info, &v);
    for (int i = 0; i < node.n_src; i++)
        if (v.want[i]) accumulate(s, &v, src[i], v.out[i]);
    return v.status;
}

static void walk(qn_grad_state *s) {
    const qn_grad_question *q = s->q;
    const qn_emitter emitter = {.self = s, .apply = emit_apply, .shape = emit_shape, .graph = s->g};
    qn_vjp_call v = {.emitter = &emitter, .status = QN_OK};
    int32_t segment = q->segments ? q->segments->n : 0;
    qn_grad_set_label(s->g, q->prefix, 0);
    for (int i = 0; i < q->n_seeds; i++) accumulate(s, &v, q->at[i], q->seeds[i]);
    for (int32_t k = (int32_t)s->n_nodes - 1; k >= 0 && s->g->error.status == QN_OK; k--) {
        if (q->segments && q->segments->of[k] != segment) {
            segment = q->segments->of[k];
            if (q->segments->recomputed[segment]) qn_grad_recompute(s, segment);
        }
        visit(s, k);
    }
}

qn_status qn_grad_walk(qn_graph *g, const qn_grad_question *q, qn_val *out) {
    qn_grad_state s = {.g = g, .q = q, .n_nodes = g->nodes.n, .n_values = g->values.n};
    s.grad = qn_arena_resize(&g->arena, NULL, s.n_values, sizeof *s.grad);
    s.varies = qn_arena_resize(&g->arena, NULL, s.n_values, 1);
    s.again = q->segments ? qn_arena_resize(&g->arena, NULL, s.n_values, sizeof *s.again) : NULL;
    if (s.grad && s.varies && (s.again || !q->segments)) {
        memset(s.varies, 0, s.n_values);
        for (size_t i = 0; i < s.n_values; i++) s.grad[i] = QN_VAL_NONE;
        for (size_t i = 0; s.again && i < s.n_values; i++) s.again[i] = QN_VAL_NONE;
        for (int i = 0; i < q->n; i++) s.varies[q->wrt[i]] = 1;
        qn_grad_mark_varying(g, s.varies);
        walk(&s);
        for (int i = 0; i < q->n; i++) out[i] = g->error.status == QN_OK ? s.grad[q->wrt[i]] : QN_VAL_NONE;
    } else {
        qn_ir_fail(g, QN_NO_MEMORY, "%s: no memory for %zu values", q->prefix, s.n_values);
    }
    qn_arena_release(&g->arena, s.grad);
    qn_arena_release(&g->arena, s.varies);
    qn_arena_release(&g->arena, s.again);
    g->forced_label = 0;
    return g->error.status;
}

qn_status qn_grad_reverse(qn_graph *g, int n_seed, const qn_val *at, const qn_val *seed, int n, const qn_val *wrt,
                          qn_val *grads) {
    const qn_grad_question q = {.prefix = "gradient", .n_seeds = n_seed, .at = at, .seeds = seed, .n = n, .wrt = wrt};
    return qn_grad_walk(g, &q, grads);
}
