/* Bodies: the graphs in the attributes of branches and loops. A graph owns copies of the bodies that were given to it, so that nobody
 * changes them behind its back, and they count against its limit. */
#include "base/hash.h"
#include "ir/rebuild.h"

/* ---- What ops see of a graph */

static const qn_graph *graph_of(const qn_body *body) { return (const qn_graph *)(const void *)body; }

static int graph_n_in(const qn_body *b) { return (int)graph_of(b)->inputs.n; }
static int graph_n_out(const qn_body *b) { return (int)graph_of(b)->outputs.n; }
static qn_shape graph_in(const qn_body *b, int i) { return graph_of(b)->values.at[graph_of(b)->inputs.at[i]].probe; }
static qn_shape graph_out(const qn_body *b, int i) { return graph_of(b)->values.at[graph_of(b)->outputs.at[i].value].probe; }
static int graph_updates(const qn_body *b, int i) { return graph_of(b)->values.at[graph_of(b)->inputs.at[i]].updated; }

const qn_body_class qn_ir_body_class = {graph_n_in, graph_n_out, graph_in, graph_out, graph_updates};

/* The same at a binding. An extent that is a number although it depends on symbols keeps that number, as it does in the graph. */
static const qn_ir_body_view *view_of(const qn_body *body) { return (const qn_ir_body_view *)(const void *)body; }

static qn_shape shape_at(const qn_body *b, qn_val value) {
    const qn_ir_body_view *v = view_of(b);
    qn_shape s = v->graph->values.at[value].shape;
    for (int k = 0; k < s.rank; k++)
        if (!qn_ir_dim_value(v->graph, s.d[k], v->symbols, &s.d[k])) s.rank = 0;
    return s;
}

static int view_n_in(const qn_body *b) { return (int)view_of(b)->graph->inputs.n; }
static int view_n_out(const qn_body *b) { return (int)view_of(b)->graph->outputs.n; }
static qn_shape view_in(const qn_body *b, int i) { return shape_at(b, view_of(b)->graph->inputs.at[i]); }
static qn_shape view_out(const qn_body *b, int i) { return shape_at(b, view_of(b)->graph->outputs.at[i].value); }
static int view_updates(const qn_body *b, int i) { return graph_updates(&view_of(b)->graph->head, i); }

static const qn_body_class view_class = {view_n_in, view_n_out, view_in, view_out, view_updates};

void qn_ir_body_look(const qn_op_info *op, void *attr, const int64_t *symbols, qn_ir_body_view *views) {
    for (int i = 0, n = 0; i < op->n_attr && n < QN_IR_VIEW_MAX; i++) {
        const qn_graph *body = qn_ir_body(op, i, attr);
        if (!body) continue;
        views[n] = (qn_ir_body_view){{&view_class}, body, symbols};
        qn_ir_body_set(op, i, attr, (const qn_graph *)(const void *)&views[n++]); /* rules look at heads alone */
    }
}

/* ---- Bodies of records */

const qn_graph *qn_ir_body(const qn_op_info *op, int i, const void *attr) {
    const qn_graph *body = NULL;
    if (attr && op->attr[i].kind == QN_ATTR_KIND_body) memcpy(&body, (const char *)attr + op->attr[i].offset, sizeof body);
    return body;
}

void qn_ir_body_set(const qn_op_info *op, int i, void *attr, const qn_graph *body) {
    memcpy((char *)attr + op->attr[i].offset, &body, sizeof body);
}

static qn_status take_symbols(const qn_graph *g, qn_graph *body) {
    for (size_t i = 0; i < g->symbols.n; i++) {
        const qn_ir_symbol *s = &g->symbols.at[i];
        qn_graph_symbol(body, qn_ir_string(g, s->name), s->least, s->most, s->multiple_of);
    }
    return body->error.status;
}

qn_status qn_ir_body_create(qn_graph *g, qn_graph **body) {
    if (qn_ir_create(0, &g->arena, body) != QN_OK) return qn_ir_fail(g, QN_NO_MEMORY, "no memory for a body");
    if (take_symbols(g, *body) == QN_OK) return QN_OK;
    qn_graph_destroy(*body);
    *body = NULL;
    return qn_ir_fail(g, QN_NO_MEMORY, "no memory for a body");
}

/* Params are set by name from outside, where nobody sees into a body. */
static qn_status check_params(qn_graph *g, const qn_graph *body) {
    for (size_t i = 0; i < body->values.n; i++)
        if (body->values.at[i].kind == QN_VALUE_PARAM)
            return qn_ir_fail(g, QN_INVALID, "a body has no params, and this one has '%s': pass it in as a source",
                              qn_ir_string(body, body->values.at[i].name));
    return QN_OK;
}

qn_status qn_ir_body_own(qn_graph *g, qn_graph *body) {
    qn_status status = g->error.status;
    if (status == QN_OK) status = check_params(g, body);
    if (status == QN_OK && body->error.status != QN_OK) status = qn_ir_fail(g, body->error.status, "%s", body->error.text);
    if (status == QN_OK && body->depth + 1 > QN_IR_MAX_DEPTH)
        status = qn_ir_fail(g, QN_INVALID, "more than %d bodies in one another", QN_IR_MAX_DEPTH);
    if (status == QN_OK &&
        ((!body->arena.outer && !qn_arena_join(&body->arena, &g->arena)) || !QN_VEC_ROOM(&g->arena, &g->bodies, 1)))
        status = qn_ir_fail(g, QN_NO_MEMORY, "no memory for a body");
    if (status != QN_OK) {
        qn_graph_destroy(body);
        return status;
    }
    g->bodies.at[g->bodies.n++] = body;
    if (body->depth + 1 > g->depth) g->depth = body->depth + 1;
    return QN_OK;
}

qn_status qn_ir_body_copy(qn_graph *g, const qn_op_info *op, void *attr) {
    for (int i = 0; i < op->n_attr; i++) {
        const qn_graph *body = qn_ir_body(op, i, attr);
        qn_graph *copy;
        qn_error error;
        if (!body) continue;
        if (body->depth + 1 > QN_IR_MAX_DEPTH)
            return qn_ir_fail(g, QN_INVALID, "more than %d bodies in one another", QN_IR_MAX_DEPTH);
        if (qn_ir_clone(body, g, &copy, &error) != QN_OK)
            return qn_ir_fail(g, error.status, "%s: %s: %s", op->name, op->attr[i].name, error.text);
        QN_TRY(qn_ir_body_own(g, copy));
        qn_ir_body_set(op, i, attr, copy);
    }
    return QN_OK;
}

/* ---- Sameness */

static int same_shape(const qn_shape *a, const qn_shape *b) {
    return a->dtype == b->dtype && a->rank == b->rank && memcmp(a->d, b->d, sizeof *a->d * (size_t)a->rank) == 0;
}

/* Dims are compared by number, so both must have made the same expressions in the same order: two copies of one graph have. */
static int same_symbols(const qn_graph *a, const qn_graph *b) {
    if (a->symbols.n != b->symbols.n || a->dims.n != b->dims.n) return 0;
    for (size_t i = 0; i < a->symbols.n; i++) {
        const qn_ir_symbol *x = &a->symbols.at[i], *y = &b->symbols.at[i];
        if (x->least != y->least || x->most != y->most || x->multiple_of != y->multiple_of ||
            strcmp(qn_ir_string(a, x->name), qn_ir_string(b, y->name)) != 0)
            return 0;
    }
    for (size_t i = 0; i < a->dims.n; i++) {
        const qn_ir_dim *x = &a->dims.at[i], *y = &b->dims.at[i];
        if (x->kind != y->kind || x->a != y->a || x->b != y->b) return 0;
    }
    return 1;
}

static int same_value(const qn_graph *a, const qn_graph *b, size_t i) {
    const qn_ir_value *x = &a->values.at[i], *y = &b->values.at[i];
    if (x->kind != y->kind || x->node != y->node || x->output != y->output || !same_shape(&x->shape, &y->shape)) return 0;
    if (x->kind != QN_VALUE_CONSTANT) return 1; /* what leaves are called is nobody's business but their graph's */
    const qn_ir_constant *c = &a->constants.at[x->data], *d = &b->constants.at[y->data];
    return c->bytes == d->bytes && (c->bytes == 0 || memcmp(c->data, d->data, c->bytes) == 0);
}

int qn_ir_same_attr(const qn_op_info *op, const void *a, const void *b) {
    const char *x = a ? a : op->attr_default, *y = b ? b : op->attr_default;
    for (int i = 0; i < op->n_attr; i++) {
        const qn_graph *body = qn_ir_body(op, i, x), *other = qn_ir_body(op, i, y);
        if (body && other ? !qn_ir_same(body, other) : memcmp(x + op->attr[i].offset, y + op->attr[i].offset, op->attr[i].bytes))
            return 0;
    }
    return 1;
}

static int same_node(const qn_graph *a, const qn_graph *b, size_t i) {
    const qn_ir_node *x = &a->nodes.at[i], *y = &b->nodes.at[i];
    if (x->op != y->op || x->subop != y->subop || x->n_src != y->n_src || x->n_out != y->n_out || x->out != y->out) return 0;
    if (memcmp(qn_ir_sources(a, x), qn_ir_sources(b, y), sizeof(qn_val) * (size_t)x->n_src) != 0) return 0;
    return qn_ir_same_attr(qn_op_describe(x->op), x->attr, y->attr);
}

int qn_ir_same(const qn_graph *a, const qn_graph *b) {
    if (a == b) return 1;
    if (a->values.n != b->values.n || a->nodes.n != b->nodes.n || a->outputs.n != b->outputs.n || !same_symbols(a, b)) return 0;
    for (size_t i = 0; i < a->values.n; i++)
        if (!same_value(a, b, i)) return 0;
    for (size_t i = 0; i < a->nodes.n; i++)
        if (!same_node(a, b, i)) return 0;
    for (size_t i = 0; i < a->outputs.n; i++)
        if (a->outputs.at[i].value != b->outputs.at[i].value) return 0;
    return 1;
}

/* ---- Hashes. What is the same has the same; symbols have no part in it, for bodies of one graph all have its own. */

static uint64_t hash_value(qn_hash_key key, uint64_t h, const qn_graph *g, const qn_ir_value *v) {
    h = qn_hash_word(key, h, (uint64_t)v->kind << 32 | (uint32_t)v->shape.dtype);
    h = qn_hash_bytes(key, h, v->shape.d, sizeof *v->shape.d * (size_t)v->shape.rank);
    if (v->kind != QN_VALUE_CONSTANT) return h;
    return qn_hash_bytes(key, h, g->constants.at[v->data].data, g->constants.at[v->data].bytes);
}

static uint64_t hash_graph(qn_hash_key key, uint64_t h, const qn_graph *g) {
    for (size_t i = 0; i < g->dims.n; i++) {
        const qn_ir_dim *e = &g->dims.at[i];
        h = qn_hash_word(key, qn_hash_word(key, qn_hash_word(key, h, e->kind), (uint64_t)e->a), (uint64_t)e->b);
    }
    for (size_t i = 0; i < g->values.n; i++) h = hash_value(key, h, g, &g->values.at[i]);
    for (size_t i = 0; i < g->nodes.n; i++) {
        const qn_ir_node *n = &g->nodes.at[i];
        h = qn_hash_word(key, h, (uint64_t)(uint32_t)n->op << 32 | (uint32_t)n->subop);
        h = qn_hash_bytes(key, h, qn_ir_sources(g, n), sizeof(qn_val) * (size_t)n->n_src);
        h = qn_ir_hash_attr(h, qn_op_describe(n->op), n->attr);
    }
    for (size_t i = 0; i < g->outputs.n; i++) h = qn_hash_word(key, h, (uint64_t)g->outputs.at[i].value);
    return h;
}

uint64_t qn_ir_hash_attr(uint64_t h, const qn_op_info *op, const void *attr) {
    qn_hash_key key = qn_hash_process_key();
    const char *at = attr ? attr : op->attr_default;
    for (int i = 0; i < op->n_attr; i++) {
        const qn_graph *body = qn_ir_body(op, i, at);
        h = body ? hash_graph(key, h, body) : qn_hash_bytes(key, h, at + op->attr[i].offset, op->attr[i].bytes);
    }
    return h;
}
