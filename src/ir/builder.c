/* Adding nodes. A node enters only through the op's own guard and shape rule, run on descriptors without data. When symbols are
 * about, the rule is asked at several bindings and the answers are explained as sums and products of symbols; an answer that
 * cannot be explained (a rounded quotient, say) keeps its number at the upper bounds, and the binding decides at run time. */
#include "base/reason.h"
#include "ir/graph.h"

static void describe(const qn_shape *s, qn_tensor *t) {
    memset(t, 0, sizeof *t);
    if (qn_tensor_init(t, (qn_dtype)s->dtype, s->rank, s->d, NULL, 0) == QN_OK) return;
    t->dtype = s->dtype; /* the guard will say what is wrong with it */
    t->rank = s->rank;
    memcpy(t->shape, s->d, sizeof t->shape);
}

qn_status qn_ir_infer(int op, int subop, int n_src, const qn_shape *const *src, const void *attr, qn_shape *out, int *n_out,
                      qn_result *result) {
    qn_tensor tensors[QN_MAX_SRC], inferred[QN_MAX_DST];
    qn_request q;
    memset(&q, 0, sizeof q);
    q.size = sizeof q;
    q.version = QN_REQUEST_VERSION;
    q.op = (uint16_t)op;
    q.subop = (uint16_t)subop;
    q.n_src = (uint16_t)n_src;
    q.attr = attr;
    for (int i = 0; i < n_src && i < QN_MAX_SRC; i++) {
        if (!src[i]) continue;
        describe(src[i], &tensors[i]);
        tensors[i].flags = QN_TENSOR_PARAM; /* whether a value is a parameter is a matter of the leaf, checked by the verifier */
        q.src[i] = &tensors[i];
    }
    qn_status status = qn_infer(&q, inferred, n_out, result);
    for (int i = 0; status == QN_OK && i < *n_out; i++) {
        out[i].dtype = inferred[i].dtype;
        out[i].rank = inferred[i].rank;
        memcpy(out[i].d, inferred[i].shape, sizeof out[i].d);
    }
    return status;
}

int qn_ir_attr_bind(const qn_graph *g, const qn_op_info *op, const void *attr, const int64_t *symbols, void *room,
                    const void **bound) {
    uint32_t bytes;
    *bound = attr;
    if (!attr) return 1;
    memcpy(&bytes, attr, sizeof bytes);
    if (bytes != op->attr_bytes) return 1; /* of another version, which the guard refuses: no more of it may be read */
    memcpy(room, attr, op->attr_bytes);
    *bound = room;
    for (int i = 0; i < op->n_attr; i++) {
        char *field = (char *)room + op->attr[i].offset;
        if (op->attr[i].kind == QN_ATTR_KIND_i64) {
            int64_t *d = (int64_t *)(void *)field;
            if (qn_dim_is_symbolic(*d) && !qn_ir_dim_value(g, *d, symbols, d)) return 0;
        } else if (op->attr[i].kind == QN_ATTR_KIND_dims) {
            qn_dims *list = (qn_dims *)(void *)field;
            for (int k = 0; k < list->rank && k < QN_MAX_RANK; k++)
                if (qn_dim_is_symbolic(list->d[k]) && !qn_ir_dim_value(g, list->d[k], symbols, &list->d[k])) return 0;
        }
    }
    return 1;
}

/* Shapes of the outputs at one binding; the sources' shapes are evaluated at it. */
static qn_status infer_at(qn_graph *g, int op, int subop, int n_src, const qn_val *src, const void *attr, const int64_t *symbols,
                          qn_shape *out, int *n_out, qn_result *result) {
    qn_shape shapes[QN_MAX_SRC];
    const qn_shape *given[QN_MAX_SRC] = {0};
    _Alignas(16) char room[QN_ATTR_BYTES_MAX];
    qn_ir_body_view views[QN_IR_VIEW_MAX];
    const void *bound;
    for (int i = 0; i < n_src; i++) {
        if (src[i] == QN_VAL_NONE) continue;
        const qn_ir_value *v = &g->values.at[src[i]];
        shapes[i] = symbols ? v->shape : v->probe;
        for (int k = 0; symbols && k < shapes[i].rank; k++)
            if (!qn_ir_dim_value(g, v->shape.d[k], symbols, &shapes[i].d[k])) return QN_UNEXPECTED;
        given[i] = &shapes[i];
    }
    if (!qn_ir_attr_bind(g, qn_op_describe(op), attr, symbols, room, &bound)) return QN_UNEXPECTED;
    if (symbols && bound == room) qn_ir_body_look(qn_op_describe(op), room, symbols, views);
    return qn_ir_infer(op, subop, n_src, given, bound, out, n_out, result);
}

/* The dim that a symbol stands for; it exists, so this finds it. */
static int64_t symbol_dim(qn_graph *g, int symbol) {
    const qn_ir_symbol *s = &g->symbols.at[symbol];
    return qn_graph_symbol(g, qn_ir_string(g, s->name), s->least, s->most, s->multiple_of);
}

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* base to the power e by which `from` shrinks to `to` as the symbol does; 0 when it is none of 1, 2, 3. */
static int power_of(int64_t from, int64_t to, int64_t most, int64_t low) {
    for (int e = 1; e <= 3; e++)
        if (qn_mul_overflow(to, most, &to) || qn_mul_overflow(from, low, &from)) return 0;
        else if (to == from) return e;
    return 0;
}

/* An extent as p/q times powers of symbols. */
static int64_t explain_product(qn_graph *g, int64_t at_most, const int64_t *lowered, const int64_t *step) {
    int64_t all = 1, product = 1;
    for (int s = 0; s < (int)g->symbols.n; s++) {
        int64_t most = g->symbols.at[s].most;
        int e = lowered[s] == at_most ? 0 : power_of(at_most, lowered[s], most, most - step[s]);
        if (lowered[s] != at_most && e == 0) return at_most;
        for (; e > 0; e--) {
            if (qn_mul_overflow(all, most, &all)) return at_most;
            product = qn_graph_dim(g, '*', product, symbol_dim(g, s));
        }
    }
    int64_t common = common_divisor(all, at_most), scale = common ? at_most / common : 0, whole;
    if (scale == 0 || qn_mul_overflow(scale, all, &whole)) return at_most;
    return qn_graph_dim(g, '/', qn_graph_dim(g, '*', scale, product), all / common);
}

/* An extent as a number plus and minus multiples of symbols, of whatever sign; at_most when a number on the way does not fit. */
static int64_t explain_sum(qn_graph *g, int64_t at_most, const int64_t *lowered, const int64_t *step) {
    int64_t plus = 0, minus = 0, constant = at_most, size = 0, whole;
    for (int s = 0; s < (int)g->symbols.n; s++) { /* symbols in order of creation, the number behind them */
        int64_t drop = at_most - lowered[s], times = drop < 0 ? -drop : drop, common = common_divisor(times, step[s]);
        if (drop == 0) continue;
        if (qn_mul_overflow(times / common, g->symbols.at[s].most, &whole) || qn_add_overflow(size, whole, &size)) return at_most;
        if (qn_mul_overflow(drop, g->symbols.at[s].most / step[s], &whole) || qn_add_overflow(constant, -whole, &constant))
            return at_most;
        int64_t term = qn_graph_dim(g, '*', times / common, symbol_dim(g, s));
        term = qn_graph_dim(g, '/', term, step[s] / common);
        if (drop > 0) plus = qn_graph_dim(g, '+', plus, term);
        else minus = qn_graph_dim(g, '+', minus, term);
    }
    if (constant > 0 && qn_add_overflow(size, constant, &whole)) return at_most;
    if (constant > 0) plus = qn_graph_dim(g, '+', plus, constant);
    plus = qn_graph_dim(g, '-', plus, minus);
    return constant < 0 ? qn_graph_dim(g, '-', plus, -constant) : plus;
}

/* An expression for an extent from its values at the upper bounds and with each symbol lowered a step: a sum when that also predicts all
 * symbols lowered together, a product when there is one and the sum would begin below zero. The caller tries it on other bindings. */
static int64_t explain(qn_graph *g, int64_t at_most, const int64_t *lowered, int64_t all_lowered, const int64_t *step) {
    int64_t constant = at_most, predicted = at_most, whole;
    int n = (int)g->symbols.n, involved = 0;
    for (int s = 0; s < n; s++) {
        int64_t drop = at_most - lowered[s];
        if (drop == 0) continue;
        if (step[s] == 0) return at_most;
        involved++;
        if (qn_add_overflow(predicted, -drop, &predicted) || qn_mul_overflow(drop, g->symbols.at[s].most / step[s], &whole) ||
            qn_add_overflow(constant, -whole, &constant))
            return explain_product(g, at_most, lowered, step);
    }
    if (involved == 0) return at_most;
    int64_t product = constant < 0 || predicted != all_lowered ? explain_product(g, at_most, lowered, step) : at_most;
    return qn_dim_is_symbolic(product) || predicted != all_lowered ? product : explain_sum(g, at_most, lowered, step);
}

static int depends_on_symbols(const qn_graph *g, int op, int n_src, const qn_val *src, const void *attr) {
    _Alignas(16) char room[QN_ATTR_BYTES_MAX];
    const void *bound;
    if (g->symbols.n == 0) return 0;
    for (int i = 0; i < n_src; i++) {
        if (src[i] == QN_VAL_NONE) continue;
        const qn_shape *s = &g->values.at[src[i]].shape;
        for (int k = 0; k < s->rank; k++)
            if (qn_dim_is_symbolic(s->d[k])) return 1;
    }
    for (int i = 0; i < qn_op_describe(op)->n_attr; i++) {
        const qn_graph *body = qn_ir_body(qn_op_describe(op), i, attr);
        if (body && body->dims.n) return 1;
    }
    return attr && qn_ir_attr_bind(g, qn_op_describe(op), attr, NULL, room, &bound) &&
           memcmp(attr, bound, qn_op_describe(op)->attr_bytes) != 0;
}

/* One node, asked at several bindings. */
typedef struct probing {
    int op, subop, n_src;
    const qn_val *src;
    const void *attr;
    int64_t symbols[QN_IR_MAX_SYMBOLS];
    qn_shape out[QN_MAX_DST];
} probing;

/* 1 when the op takes the shapes of that binding and gives results of the same rank. */
static int ask(qn_graph *g, probing *p, int n_out, const qn_shape *probe) {
    qn_result ignored;
    int got = 0;
    memset(&ignored, 0, sizeof ignored);
    if (infer_at(g, p->op, p->subop, p->n_src, p->src, p->attr, p->symbols, p->out, &got, &ignored) != QN_OK || got < n_out)
        return 0;
    for (int i = 0; i < n_out; i++)
        if (p->out[i].rank != probe[i].rank) return 0;
    return 1;
}

/* Takes back every expression that does not give what the op gives at this binding. */
static void refute(const qn_graph *g, const probing *p, int n_out, const qn_shape *probe, qn_shape *shape) {
    int64_t value;
    for (int i = 0; i < n_out; i++)
        for (int k = 0; k < probe[i].rank; k++)
            if (!qn_ir_dim_value(g, shape[i].d[k], p->symbols, &value) || value != p->out[i].d[k]) shape[i].d[k] = probe[i].d[k];
}

/* Symbolic shapes of the outputs from the shapes at the upper bounds; low has room for them once for each symbol. */
static void generalise(qn_graph *g, probing *p, int n_out, const qn_shape *probe, qn_shape *shape, qn_shape *low) {
    int n = (int)g->symbols.n;
    int64_t step[QN_IR_MAX_SYMBOLS];
    for (int s = 0; s < n; s++) p->symbols[s] = g->symbols.at[s].most;
    for (int s = 0; s < n; s++) {
        const qn_ir_symbol *sym = &g->symbols.at[s];
        step[s] = sym->most - sym->multiple_of >= sym->least ? sym->multiple_of : 0;
        p->symbols[s] -= step[s];
        if (!ask(g, p, n_out, probe)) return;
        memcpy(&low[s * n_out], p->out, sizeof *low * (size_t)n_out);
        p->symbols[s] += step[s];
    }
    for (int s = 0; s < n; s++) p->symbols[s] -= step[s];
    if (!ask(g, p, n_out, probe)) return;
    for (int i = 0; i < n_out; i++)
        for (int k = 0; k < probe[i].rank; k++) {
            int64_t lowered[QN_IR_MAX_SYMBOLS];
            for (int s = 0; s < n; s++) lowered[s] = low[s * n_out + i].d[k];
            shape[i].d[k] = explain(g, probe[i].d[k], lowered, p->out[i].d[k], step);
        }
    refute(g, p, n_out, probe, shape);
    for (int part = 0; part < 2; part++) { /* the lower bounds, and half way down */
        for (int s = 0; s < n; s++) {
            const qn_ir_symbol *sym = &g->symbols.at[s];
            int64_t steps = (sym->most - sym->least) / sym->multiple_of;
            p->symbols[s] = sym->most - (part ? steps / 2 : steps) * sym->multiple_of;
        }
        if (ask(g, p, n_out, probe)) refute(g, p, n_out, probe, shape);
    }
}

/* Where the memory of output i of a node comes from: its own, but for views and what is updated in place. */
static qn_val origin_of(const qn_graph *g, const qn_op_info *info, int n_src, const qn_val *src, int i) {
    int slot = info->is_view ? 0 : i;
    int shared = slot < n_src && src[slot] != QN_VAL_NONE && (info->is_view || (info->src[slot].flags & QN_SLOT_STATE));
    return shared ? g->values.at[src[slot]].origin : (qn_val)g->values.n;
}

qn_status qn_ir_append(qn_graph *g, int op, int subop, int n_src, const qn_val *src, const void *attr, int n_out,
                       const qn_shape *shape, const qn_shape *probe, int32_t label, qn_val *out) {
    const qn_op_info *info = qn_op_describe(op);
    void *record = attr ? qn_arena_alloc(&g->arena, 1, info->attr_bytes) : NULL;
    if ((attr && !record) || g->values.n > INT32_MAX - QN_MAX_DST || !QN_VEC_ROOM(&g->arena, &g->nodes, 1) ||
        !QN_VEC_ROOM(&g->arena, &g->sources, (size_t)n_src + 1) || !QN_VEC_ROOM(&g->arena, &g->values, (size_t)n_out))
        return qn_ir_fail(g, QN_NO_MEMORY, "%s: no memory for another node", info->name);
    if (attr) memcpy(record, attr, info->attr_bytes);
    int32_t node = (int32_t)g->nodes.n;
    qn_ir_node *n = &g->nodes.at[g->nodes.n++];
    *n = (qn_ir_node){op, subop, n_src, (int32_t)g->sources.n, n_out, (int32_t)g->values.n, record, label};
    for (int i = 0; i < n_src; i++) {
        g->sources.at[g->sources.n++] = src[i];
        if (src[i] != QN_VAL_NONE && (info->src[i].flags & QN_SLOT_STATE)) g->values.at[g->values.at[src[i]].origin].updated = 1;
    }
    for (int i = 0; i < n_out; i++) {
        qn_val origin = origin_of(g, info, n_src, src, i);
        out[i] = (qn_val)g->values.n;
        g->values.at[g->values.n++] = (qn_ir_value){.kind = QN_VALUE_RESULT,
                                                    .node = node,
                                                    .output = i,
                                                    .name = -1,
                                                    .data = -1,
                                                    .origin = origin,
                                                    .shape = shape[i],
                                                    .probe = probe[i]};
    }
    return QN_OK;
}

static qn_status check_call(qn_graph *g, int op, int subop, int n_src, const qn_val *src, int n_out) {
    const qn_op_info *info = qn_op_describe(op);
    if (!info) return qn_ir_fail(g, QN_UNEXPECTED, "there is no op number %d", op);
    if (subop < 0 || subop > UINT16_MAX)
        return qn_ir_fail(g, QN_UNEXPECTED, "%s: there is no sub-op number %d", info->name, subop);
    if (n_src < 0 || n_src > info->n_src || n_out < info->n_dst_min || n_out > info->n_dst || (n_src && !src))
        return qn_ir_fail(g, QN_INVALID, "%s: %d sources and %d outputs, it takes %d to %d and gives %d to %d", info->name, n_src,
                          n_out, info->n_src_min, info->n_src, info->n_dst_min, info->n_dst);
    for (int i = 0; i < n_src; i++) {
        if (src[i] == QN_VAL_NONE) continue;
        if (src[i] < 0 || (size_t)src[i] >= g->values.n)
            return qn_ir_fail(g, QN_INVALID, "%s: %s: value %d is none of this graph's", info->name, info->src[i].name, src[i]);
        if ((info->src[i].flags & QN_SLOT_STATE) && g->values.at[src[i]].kind == QN_VALUE_CONSTANT)
            return qn_ir_fail(g, QN_INVALID, "%s: %s is updated in place and cannot be a constant", info->name,
                              info->src[i].name);
    }
    return QN_OK;
}

qn_status qn_ir_apply(qn_graph *g, int op, int subop, int n_src, const qn_val *src, const void *attr, int n_out, qn_val *out) {
    for (int i = 0; i < n_out; i++) out[i] = QN_VAL_NONE;
    if (g->error.status != QN_OK) return g->error.status;
    QN_TRY(check_call(g, op, subop, n_src, src, n_out));
    qn_shape probe[QN_MAX_DST], shape[QN_MAX_DST];
    qn_result result = {.op = (uint16_t)op, .subop = (uint16_t)subop};
    int inferred = 0;
    qn_status status = infer_at(g, op, subop, n_src, src, attr, NULL, probe, &inferred, &result);
    if (status == QN_UNEXPECTED && result.status == 0)
        return qn_ir_fail(g, QN_INVALID, "%s: an extent among the attributes has no value", qn_op_describe(op)->name);
    if (status != QN_OK) {
        qn_error error;
        qn_result_to_error(&result, &error);
        const char *label = qn_ir_string(g, qn_ir_label(g));
        return qn_ir_fail(g, status, "%s%snode %zu: %s", label, *label ? ": " : "", g->nodes.n, error.text);
    }
    if (n_out > inferred)
        return qn_ir_fail(g, QN_INVALID, "%s: %d outputs wanted, it gives %d here", qn_op_describe(op)->name, n_out, inferred);
    memcpy(shape, probe, sizeof probe);
    if (depends_on_symbols(g, op, n_src, src, attr)) {
        probing p = {.op = op, .subop = subop, .n_src = n_src, .src = src, .attr = attr};
        qn_shape *low = qn_arena_resize(&g->arena, NULL, g->symbols.n * (size_t)n_out, sizeof *low);
        if (!low) return qn_ir_fail(g, QN_NO_MEMORY, "%s: no memory for its shapes", qn_op_describe(op)->name);
        generalise(g, &p, n_out, probe, shape, low);
        qn_arena_release(&g->arena, low);
        if (g->error.status != QN_OK) return g->error.status;
    }
    return qn_ir_append(g, op, subop, n_src, src, attr, n_out, shape, probe, qn_ir_label(g), out);
}

qn_status qn_graph_apply(qn_graph *g, int op, int subop, int n_src, const qn_val *src, const void *attr, int n_out, qn_val *out) {
    if (!g || !out) return QN_ARGUMENT;
    const qn_op_info *info = qn_op_describe(op);
    _Alignas(16) char record[QN_ATTR_BYTES_MAX];
    uint32_t bytes = 0;
    if (info && attr) memcpy(&bytes, attr, sizeof bytes);
    if (!info || !info->n_body || bytes != info->attr_bytes) return qn_ir_apply(g, op, subop, n_src, src, attr, n_out, out);
    for (int i = 0; i < n_out; i++) out[i] = QN_VAL_NONE;
    if (g->error.status != QN_OK) return g->error.status;
    memcpy(record, attr, bytes);
    QN_TRY(qn_ir_body_copy(g, info, record));
    return qn_ir_apply(g, op, subop, n_src, src, record, n_out, out);
}

qn_val qn_graph_op(qn_graph *g, int op, int subop, int n_src, const qn_val *src, const void *attr) {
    qn_val out;
    return qn_graph_apply(g, op, subop, n_src, src, attr, 1, &out) == QN_OK ? out : QN_VAL_NONE;
}
