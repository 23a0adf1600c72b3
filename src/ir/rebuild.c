/* The walk that every pass, and specialisation, is written with. */
#include "ir/rebuild.h"

/* Symbols and expressions keep their numbers, so that dims of the old graph are dims of the new one. */
static qn_status copy_symbols(qn_rebuild *r) {
    const qn_graph *g = r->from;
    qn_graph *to = r->to;
    if (r->symbols) return QN_OK;
    if (!QN_VEC_ROOM(&to->arena, &to->dims, g->dims.n) || !QN_VEC_ROOM(&to->arena, &to->symbols, g->symbols.n))
        return qn_ir_fail(to, QN_NO_MEMORY, "no memory for the symbols");
    for (size_t i = 0; i < g->symbols.n; i++) {
        qn_ir_symbol s = g->symbols.at[i];
        if ((s.name = qn_ir_text(to, qn_ir_string(g, s.name))) < 0) return QN_NO_MEMORY;
        to->symbols.at[to->symbols.n++] = s;
    }
    for (size_t i = 0; i < g->dims.n; i++) to->dims.at[to->dims.n++] = g->dims.at[i];
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

qn_status qn_rebuild_copy_with(qn_rebuild *r, int32_t node, const qn_val *src) {
    const qn_ir_node *n = &r->from->nodes.at[node];
    const qn_op_info *info = qn_op_describe(n->op);
    _Alignas(16) char room[QN_ATTR_BYTES_MAX];
    const void *attr = n->attr;
    qn_val out[QN_MAX_DST];
    if (r->symbols && !qn_ir_attr_bind(r->from, info, n->attr, r->symbols, room, &attr))
        return qn_ir_fail(r->to, QN_INVALID, "%s: an extent among the attributes has no value under this binding", info->name);
    QN_TRY(qn_graph_apply(r->to, n->op, n->subop, n->n_src, src, attr, n->n_out, out));
    for (int i = 0; i < n->n_out; i++) r->map[n->out + i] = out[i];
    return QN_OK;
}

qn_status qn_rebuild_copy(qn_rebuild *r, int32_t node) {
    qn_val src[QN_MAX_SRC];
    qn_rebuild_sources(r, node, src);
    return qn_rebuild_copy_with(r, node, src);
}

static void walk(qn_rebuild *r, qn_rebuild_fn each) {
    const qn_graph *g = r->from;
    qn_graph *to = r->to;
    for (size_t i = 0; i < g->values.n; i++) r->map[i] = QN_VAL_NONE;
    for (size_t i = 0; i < g->values.n && to->error.status == QN_OK; i++) {
        const qn_ir_value *v = &g->values.at[i];
        if (v->kind != QN_VALUE_RESULT) {
            r->map[i] = copy_leaf(r, v);
        } else if (v->output == 0) {
            to->forced_label = qn_ir_text(to, qn_ir_string(g, g->nodes.at[v->node].label));
            qn_status status = (each ? each : qn_rebuild_copy)(r, v->node);
            if (status != QN_OK)
                qn_ir_fail(to, status, "node %d: %s could not be rebuilt", v->node,
                           qn_op_describe(g->nodes.at[v->node].op)->name);
        }
    }
    for (size_t i = 0; i < g->outputs.n && to->error.status == QN_OK; i++)
        qn_graph_output(to, r->map[g->outputs.at[i].value], qn_ir_string(g, g->outputs.at[i].name));
    to->forced_label = 0;
}

qn_status qn_ir_rebuild(const qn_graph *from, const int64_t *symbols, qn_rebuild_fn each, void *user, qn_graph **to,
                        qn_error *error) {
    qn_rebuild r = {from, NULL, symbols, NULL, user};
    *to = NULL;
    if (from->error.status != QN_OK) return qn_graph_error(from, error);
    if (qn_graph_create(from->arena.limit, &r.to) != QN_OK) return qn_error_set(error, QN_NO_MEMORY, "no memory for a graph");
    r.map = qn_arena_resize(&r.to->arena, NULL, from->values.n + 1, sizeof *r.map);
    if (!r.map) qn_ir_fail(r.to, QN_NO_MEMORY, "no memory to rebuild %zu values", from->values.n);
    if (r.map && copy_symbols(&r) == QN_OK) walk(&r, each);
    qn_status status = qn_graph_error(r.to, error);
    if (status != QN_OK) {
        qn_graph_destroy(r.to);
        return status;
    }
    qn_arena_release(&r.to->arena, r.map);
    *to = r.to;
    return QN_OK;
}
