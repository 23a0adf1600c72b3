/* The walk that every pass, and specialisation, is written with. */
#include "ir/rebuild.h"

/* Symbols and expressions keep their numbers, so that dims of the old graph are dims of the new one. When the new graph is to be a body of
 * another, it has that one's symbols, and expressions change only in what they call them. */
static qn_status copy_symbols(qn_rebuild *r, const qn_graph *of) {
    const qn_graph *g = r->from, *names = of ? of : g;
    qn_graph *to = r->to;
    int64_t number[QN_IR_MAX_SYMBOLS];
    if (r->symbols) return QN_OK;
    if (!QN_VEC_ROOM(&to->arena, &to->dims, g->dims.n) || !QN_VEC_ROOM(&to->arena, &to->symbols, names->symbols.n))
        return qn_ir_fail(to, QN_NO_MEMORY, "no memory for the symbols");
    for (size_t i = 0; i < names->symbols.n; i++) {
        qn_ir_symbol s = names->symbols.at[i];
        if ((s.name = qn_ir_text(to, qn_ir_string(names, s.name))) < 0) return QN_NO_MEMORY;
        to->symbols.at[to->symbols.n++] = s;
    }
    for (size_t i = 0; i < g->symbols.n; i++) {
        const qn_ir_symbol *s = &g->symbols.at[i], *same = NULL;
        const char *name = qn_ir_string(g, s->name);
        for (size_t k = 0; k < to->symbols.n && !same; k++)
            if (strcmp(qn_ir_string(to, to->symbols.at[k].name), name) == 0) same = &to->symbols.at[number[i] = (int64_t)k];
        if (!same || same->least != s->least || same->most != s->most || same->multiple_of != s->multiple_of)
            return qn_ir_fail(to, QN_INVALID, "symbol '%s' is not one of the graph it goes into, or has other bounds there",
                              name);
    }
    for (size_t i = 0; i < g->dims.n; i++) {
        qn_ir_dim e = g->dims.at[i];
        if (e.kind == QN_IR_DIM_SYMBOL) e.a = number[e.a];
        to->dims.at[to->dims.n++] = e;
    }
    return QN_OK;
}

static qn_val copy_leaf(qn_rebuild *r, const qn_ir_value *v) {
    const qn_graph *g = r->from;
    const char *name = qn_ir_string(g, v->name);
    int64_t d[QN_MAX_RANK];
    for (int k = 0; k < v->shape.rank; k++) {
        d[k] = v->shape.d[k];
        if (r->symbols && !qn_ir_dim_value(g, v->shape.d[k], r->symbols, &d[k])) {
            qn_ir_fail(r->to, QN_INVALID, "'%s': axis %d has no extent under this binding", name, k);
            return QN_VAL_NONE;
        }
    }
    qn_dtype dtype = (qn_dtype)v->shape.dtype;
    if (v->kind == QN_VALUE_INPUT) return qn_graph_input(r->to, name, dtype, v->shape.rank, d);
    if (v->kind == QN_VALUE_PARAM) return qn_graph_param(r->to, name, dtype, v->shape.rank, d);
    const qn_ir_constant *c = &g->constants.at[v->data];
    return qn_graph_constant(r->to, dtype, v->shape.rank, d, c->data, c->bytes);
}

void qn_rebuild_sources(const qn_rebuild *r, int32_t node, qn_val *src) {
    const qn_ir_node *n = &r->from->nodes.at[node];
    for (int i = 0; i < QN_MAX_SRC; i++) {
        qn_val s = i < n->n_src ? qn_ir_sources(r->from, n)[i] : QN_VAL_NONE;
        src[i] = s == QN_VAL_NONE ? QN_VAL_NONE : r->map[s];
    }
}

static qn_status rebuild_in(qn_rebuild r, qn_rebuild_fn each, qn_graph *inside, qn_graph **to, qn_error *error);

/* Copies of a node's bodies, bound as the node is, into a record of the new graph. */
static qn_status copy_bodies(qn_rebuild *r, const qn_op_info *info, void *attr) {
    for (int i = 0; i < info->n_attr; i++) {
        const qn_graph *body = qn_ir_body(info, i, attr);
        qn_graph *made;
        qn_error error;
        if (!body) continue;
        if (rebuild_in((qn_rebuild){.from = body, .symbols = r->symbols}, NULL, r->to, &made, &error) != QN_OK)
            return qn_ir_fail(r->to, error.status, "%s: %s: %s", info->name, info->attr[i].name, error.text);
        QN_TRY(qn_ir_body_own(r->to, made));
        qn_ir_body_set(info, i, attr, made);
    }
    return QN_OK;
}

qn_status qn_rebuild_apply(qn_rebuild *r, int32_t node, const qn_val *src, int n_out, qn_val *out) {
    const qn_ir_node *n = &r->from->nodes.at[node];
    const qn_op_info *info = qn_op_describe(n->op);
    _Alignas(16) char room[QN_ATTR_BYTES_MAX];
    const void *attr = n->attr;
    if (r->symbols && !qn_ir_attr_bind(r->from, info, n->attr, r->symbols, room, &attr))
        return qn_ir_fail(r->to, QN_INVALID, "%s: an extent among the attributes has no value under this binding", info->name);
    if (info->n_body && attr) {
        if (attr != room) memcpy(room, attr, info->attr_bytes);
        attr = room;
        QN_TRY(copy_bodies(r, info, room));
    }
    return qn_ir_apply(r->to, n->op, n->subop, n->n_src, src, attr, n_out, out);
}

qn_status qn_rebuild_copy_with(qn_rebuild *r, int32_t node, const qn_val *src) {
    const qn_ir_node *n = &r->from->nodes.at[node];
    qn_val out[QN_MAX_DST];
    QN_TRY(qn_rebuild_apply(r, node, src, n->n_out, out));
    for (int i = 0; i < n->n_out; i++) r->map[n->out + i] = out[i];
    return QN_OK;
}

qn_status qn_rebuild_copy(qn_rebuild *r, int32_t node) {
    qn_val src[QN_MAX_SRC];
    qn_rebuild_sources(r, node, src);
    return qn_rebuild_copy_with(r, node, src);
}

void qn_rebuild_label(qn_rebuild *r, const int32_t *nodes, int n) {
    for (int i = 0; i < n && r->to->forced_label == 0; i++)
        r->to->forced_label = qn_ir_text(r->to, qn_ir_string(r->from, r->from->nodes.at[nodes[i]].label));
}

static void visit(qn_rebuild *r, qn_rebuild_fn each, int32_t node) {
    const qn_ir_node *n = &r->from->nodes.at[node];
    r->to->forced_label = qn_ir_text(r->to, qn_ir_string(r->from, n->label));
    qn_status status = each(r, node);
    if (status != QN_OK) qn_ir_fail(r->to, status, "node %d: %s could not be rebuilt", node, qn_op_describe(n->op)->name);
}

static void walk(qn_rebuild *r, qn_rebuild_fn each) {
    const qn_graph *g = r->from;
    qn_graph *to = r->to;
    for (size_t i = 0; i < g->values.n; i++) r->map[i] = QN_VAL_NONE;
    for (size_t i = 0; i < g->values.n && to->error.status == QN_OK; i++) {
        const qn_ir_value *v = &g->values.at[i];
        if (v->kind == QN_VALUE_CONSTANT && r->needed && !r->needed[i]) continue;
        if (v->kind != QN_VALUE_RESULT) r->map[i] = copy_leaf(r, v);
        else if (v->output == 0) visit(r, each, v->node);
    }
    for (size_t i = 0; i < g->outputs.n && to->error.status == QN_OK; i++)
        qn_graph_output(to, r->map[g->outputs.at[i].value], qn_ir_string(g, g->outputs.at[i].name));
    to->forced_label = 0;
}

/* inside: the graph the new one is to be a body of, or NULL. */
static qn_status rebuild_in(qn_rebuild r, qn_rebuild_fn each, qn_graph *inside, qn_graph **to, qn_error *error) {
    const qn_graph *from = r.from;
    *to = NULL;
    if (from->error.status != QN_OK) return qn_graph_error(from, error);
    if (qn_ir_create(inside ? 0 : from->arena.limit, inside ? &inside->arena : NULL, &r.to) != QN_OK)
        return qn_error_set(error, QN_NO_MEMORY, "no memory for a graph");
    r.map = qn_arena_resize(&r.to->arena, NULL, from->values.n + 1, sizeof *r.map);
    if (!r.map) qn_ir_fail(r.to, QN_NO_MEMORY, "no memory to rebuild %zu values", from->values.n);
    if (r.map && copy_symbols(&r, inside) == QN_OK) walk(&r, each ? each : qn_rebuild_copy);
    qn_status status = qn_graph_error(r.to, error);
    if (status != QN_OK) {
        qn_graph_destroy(r.to);
        return status;
    }
    qn_arena_release(&r.to->arena, r.map);
    *to = r.to;
    return QN_OK;
}

qn_status qn_ir_rebuild(const qn_graph *from, const int64_t *symbols, qn_rebuild_fn each, void *user, qn_graph **to,
                        qn_error *error) {
    return rebuild_in((qn_rebuild){.from = from, .symbols = symbols, .user = user}, each, NULL, to, error);
}

qn_status qn_ir_rebuild_needed(const qn_graph *from, const uint8_t *needed, qn_rebuild_fn each, void *user, qn_graph **to,
                               qn_error *error) {
    return rebuild_in((qn_rebuild){.from = from, .user = user, .needed = needed}, each, NULL, to, error);
}

qn_status qn_ir_clone(const qn_graph *body, qn_graph *into, qn_graph **clone, qn_error *error) {
    return rebuild_in((qn_rebuild){.from = body}, NULL, into, clone, error);
}

/* ---- Other bodies in the same nodes */

typedef struct body_maker {
    qn_rebuild_body_fn make;
    void *user;
} body_maker;

static qn_status copy_with_made_bodies(qn_rebuild *r, int32_t node) {
    const body_maker *m = r->user;
    const qn_ir_node *n = &r->from->nodes.at[node];
    const qn_op_info *info = qn_op_describe(n->op);
    _Alignas(16) char room[QN_ATTR_BYTES_MAX];
    qn_val src[QN_MAX_SRC], out[QN_MAX_DST];
    if (!info->n_body || !n->attr) return qn_rebuild_copy(r, node);
    memcpy(room, n->attr, info->attr_bytes);
    for (int i = 0; i < info->n_attr; i++) {
        const qn_graph *body = qn_ir_body(info, i, room);
        qn_graph *made;
        qn_error error;
        if (!body) continue;
        if (m->make(m->user, body, &made, &error) != QN_OK)
            return qn_ir_fail(r->to, error.status, "node %d: %s: %s: %s", node, info->name, info->attr[i].name, error.text);
        QN_TRY(qn_ir_body_own(r->to, made));
        qn_ir_body_set(info, i, room, made);
    }
    qn_rebuild_sources(r, node, src);
    QN_TRY(qn_ir_apply(r->to, n->op, n->subop, n->n_src, src, room, n->n_out, out));
    for (int i = 0; i < n->n_out; i++) r->map[n->out + i] = out[i];
    return QN_OK;
}

qn_status qn_ir_rebuild_bodies(const qn_graph *from, qn_rebuild_body_fn each, void *user, qn_graph **to, qn_error *error) {
    body_maker m = {each, user};
    return qn_ir_rebuild(from, NULL, copy_with_made_bodies, &m, to, error);
}

/* ---- A graph's nodes among those of another */

static int is_needed(const qn_ir_node *n, const uint8_t *needed) {
    int any = 0;
    for (int i = 0; i < n->n_out; i++) any |= needed[n->out + i];
    return any;
}

void qn_ir_mark_needed(const qn_graph *g, uint8_t *needed) {
    for (size_t i = 0; i < g->outputs.n; i++) needed[g->outputs.at[i].value] = 1;
    for (size_t k = g->nodes.n; k-- > 0;) {
        const qn_ir_node *n = &g->nodes.at[k];
        for (int i = 0; is_needed(n, needed) && i < n->n_src; i++)
            if (qn_ir_sources(g, n)[i] != QN_VAL_NONE) needed[qn_ir_sources(g, n)[i]] = 1;
    }
}

qn_status qn_ir_inline(qn_graph *to, const qn_graph *from, const qn_val *inputs, qn_val *outputs) {
    static const int64_t none[1] = {0};
    qn_rebuild r = {.from = from, .to = to, .symbols = none};
    uint8_t *needed = qn_arena_resize(&to->arena, NULL, from->values.n + 1, 1);
    int32_t label = to->forced_label;
    r.map = qn_arena_resize(&to->arena, NULL, from->values.n + 1, sizeof *r.map);
    if (from->symbols.n || to->symbols.n)
        qn_ir_fail(to, QN_INVALID, "a graph with symbols cannot be put into another: bind them first");
    if (!r.map || !needed) qn_ir_fail(to, QN_NO_MEMORY, "no memory for the nodes of a body");
    if (to->error.status == QN_OK) {
        memset(needed, 0, from->values.n + 1);
        qn_ir_mark_needed(from, needed);
        for (size_t i = 0; i < from->values.n; i++) r.map[i] = QN_VAL_NONE;
        for (size_t i = 0; i < from->inputs.n; i++) r.map[from->inputs.at[i]] = inputs[i];
        for (size_t i = 0; i < from->values.n && to->error.status == QN_OK; i++) {
            const qn_ir_value *v = &from->values.at[i];
            if (v->kind == QN_VALUE_CONSTANT && needed[i]) r.map[i] = copy_leaf(&r, v);
            else if (v->kind == QN_VALUE_RESULT && v->output == 0 && is_needed(&from->nodes.at[v->node], needed))
                visit(&r, qn_rebuild_copy, v->node);
        }
        for (size_t i = 0; i < from->outputs.n; i++) outputs[i] = r.map[from->outputs.at[i].value];
    }
    to->forced_label = label;
    qn_arena_release(&to->arena, r.map);
    qn_arena_release(&to->arena, needed);
    return to->error.status;
}
