/* Everything a graph promises, checked from its arrays alone: nothing is believed that was not looked at before, so that a graph
 * a faulty pass has spoilt is described and not followed. Each check that later ones rest on marks what it found wanting. */
#include <stdarg.h>
#include <stdio.h>

#include "ir/qir.h"

typedef struct verifier {
    const qn_graph *g;
    qn_graph_fault_fn fault;
    void *user;
    int faults;
    int dims_are_sound; /* shapes may be evaluated */
    int depth;          /* of bodies around it */
    int no_memory;      /* something could not be looked at */
} verifier;

static void check_graph(verifier *v);

static QN_PRINTF(4, 5) void report(verifier *v, int32_t node, qn_val value, const char *format, ...) {
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    v->faults++;
    qn_graph_fault f = {node, value, text};
    if (v->fault) v->fault(v->user, &f);
}

/* Whether an index is one of a string's first byte; the text ends in a zero, so the string does as well. */
static int is_text(const qn_graph *g, int32_t index) {
    return index >= 0 && (size_t)index < g->text.n && g->text.at[g->text.n - 1] == 0 &&
           (index == 0 || g->text.at[index - 1] == 0);
}

static const char *text_of(const qn_graph *g, int32_t index) { return is_text(g, index) ? g->text.at + index : "?"; }

static void check_symbols(verifier *v) {
    const qn_graph *g = v->g;
    if (g->symbols.n > QN_IR_MAX_SYMBOLS)
        report(v, -1, QN_VAL_NONE, "%zu symbols, %d are the most", g->symbols.n, QN_IR_MAX_SYMBOLS);
    for (size_t i = 0; i < g->symbols.n; i++) {
        const qn_ir_symbol *s = &g->symbols.at[i];
        const char *name = text_of(g, s->name);
        if (!is_text(g, s->name) || !*name) report(v, -1, QN_VAL_NONE, "symbol %zu has no name", i);
        if (s->least < 0 || s->most < s->least || s->multiple_of < 1 || s->most % s->multiple_of)
            report(v, -1, QN_VAL_NONE, "symbol '%s': bounds %lld to %lld in steps of %lld make no sense", name,
                   (long long)s->least, (long long)s->most, (long long)s->multiple_of);
        for (size_t k = 0; k < i && k < QN_IR_MAX_SYMBOLS; k++)
            if (g->symbols.at[k].name == s->name)
                report(v, -1, QN_VAL_NONE, "symbols %zu and %zu are both called '%s'", k, i, name);
    }
}

/* Terms of an operand of expression i: a number has one, an earlier expression its own, anything else is none. */
static int32_t operand_terms(const qn_graph *g, size_t i, int64_t dim) {
    if (!qn_dim_is_symbolic(dim)) return dim >= 0 ? 1 : 0;
    int64_t at = dim - QN_DIM_BASE;
    return at < (int64_t)i ? g->dims.at[at].terms : 0;
}

static void check_dims(verifier *v) {
    const qn_graph *g = v->g;
    int before = v->faults;
    for (size_t i = 0; i < g->dims.n; i++) {
        const qn_ir_dim *e = &g->dims.at[i];
        if (e->kind == QN_IR_DIM_SYMBOL) {
            if (e->a < 0 || (size_t)e->a >= g->symbols.n || e->terms != 1)
                report(v, -1, QN_VAL_NONE, "extent %zu is symbol %lld, which the graph does not have", i, (long long)e->a);
            continue;
        }
        int32_t a = operand_terms(g, i, e->a), b = operand_terms(g, i, e->b);
        if (e->kind > QN_IR_DIM_DIV) report(v, -1, QN_VAL_NONE, "extent %zu is of no kind there is: %d", i, (int)e->kind);
        else if (a < 1 || b < 1) report(v, -1, QN_VAL_NONE, "extent %zu is made of something that does not precede it", i);
        else if (a > QN_IR_MAX_TERMS || b > QN_IR_MAX_TERMS || e->terms != a + b || e->terms > QN_IR_MAX_TERMS)
            report(v, -1, QN_VAL_NONE, "extent %zu says it has %d terms", i, e->terms);
    }
    v->dims_are_sound = v->faults == before && g->symbols.n <= QN_IR_MAX_SYMBOLS;
}

/* ---- Values */

/* A shape whose dims have values at the upper bounds, the stored ones, and whose size can be had. */
static int check_shape(verifier *v, int32_t node, qn_val number, const qn_ir_value *value) {
    const qn_shape *s = &value->shape, *p = &value->probe;
    uint64_t bytes;
    if (!qn_dtype_describe((qn_dtype)s->dtype) || s->rank < 1 || s->rank > QN_MAX_RANK) {
        report(v, node, number, "value %d has dtype %u and rank %d", number, s->dtype, s->rank);
        return 0;
    }
    if (p->dtype != s->dtype || p->rank != s->rank) {
        report(v, node, number, "value %d has another dtype or rank at its symbols' upper bounds", number);
        return 0;
    }
    for (int k = 0; k < s->rank; k++) {
        int64_t most;
        if (!v->dims_are_sound || !qn_ir_dim_value(v->g, s->d[k], NULL, &most)) {
            report(v, node, number, "value %d: axis %d has no extent", number, k);
            return 0;
        }
        if (most != p->d[k]) {
            report(v, node, number, "value %d: axis %d is %lld at the symbols' upper bounds, %lld is stored", number, k,
                   (long long)most, (long long)p->d[k]);
            return 0;
        }
    }
    if (qn_tensor_bytes((qn_dtype)p->dtype, p->rank, p->d, &bytes) == QN_OK) return 1;
    report(v, node, number, "value %d: its size overflows, or a row is not a whole number of blocks", number);
    return 0;
}

static void check_constant(verifier *v, qn_val number, const qn_ir_value *value, int shape_is_sound) {
    const qn_graph *g = v->g;
    uint64_t need;
    if (value->data < 0 || (size_t)value->data >= g->constants.n) {
        report(v, -1, number, "constant %d has no data", number);
        return;
    }
    const qn_ir_constant *c = &g->constants.at[value->data];
    if (!shape_is_sound) return;
    for (int k = 0; k < value->shape.rank; k++)
        if (qn_dim_is_symbolic(value->shape.d[k])) report(v, -1, number, "constant %d: axis %d depends on a symbol", number, k);
    qn_tensor_bytes((qn_dtype)value->probe.dtype, value->probe.rank, value->probe.d, &need);
    if (c->bytes != need || (need && !c->data))
        report(v, -1, number, "constant %d needs %llu bytes and has %zu", number, (unsigned long long)need, c->bytes);
}

/* Leaves of one name: each must be the one that goes by it. */
static void check_name(verifier *v, qn_val number, const qn_ir_value *value) {
    static const char *const words[] = {"input", "param"};
    const qn_graph *g = v->g;
    const char *name = text_of(g, value->name);
    if (!is_text(g, value->name) || !*name) {
        report(v, -1, number, "%s %d has no name", words[value->kind], number);
        return;
    }
    const qn_ir_name *known = qn_ir_name_find(g, name);
    qn_val named = !known ? QN_VAL_NONE : value->kind == QN_VALUE_INPUT ? known->input : known->param;
    if (named == number) return;
    if (named == QN_VAL_NONE) report(v, -1, number, "%s '%s' cannot be found by its name", words[value->kind], name);
    else report(v, -1, number, "%s '%s' is value %d and value %d", words[value->kind], name, named, number);
}

static void check_result(verifier *v, qn_val number, const qn_ir_value *value) {
    const qn_graph *g = v->g;
    if (value->node < 0 || (size_t)value->node >= g->nodes.n) {
        report(v, -1, number, "value %d is made by node %d, which the graph does not have", number, value->node);
        return;
    }
    const qn_ir_node *n = &g->nodes.at[value->node];
    if (value->output < 0 || value->output >= n->n_out || (int64_t)n->out + value->output != number)
        report(v, value->node, number, "value %d says it is output %d of node %d, which says otherwise", number, value->output,
               value->node);
}

static void check_values(verifier *v) {
    for (size_t i = 0; i < v->g->values.n; i++) {
        const qn_ir_value *value = &v->g->values.at[i];
        qn_val number = (qn_val)i;
        int sound = check_shape(v, value->kind == QN_VALUE_RESULT ? value->node : -1, number, value);
        switch (value->kind) {
        case QN_VALUE_INPUT:
        case QN_VALUE_PARAM: check_name(v, number, value); break;
        case QN_VALUE_CONSTANT: check_constant(v, number, value, sound); break;
        case QN_VALUE_RESULT: check_result(v, number, value); break;
        default: report(v, -1, number, "value %d is of no kind there is: %d", number, (int)value->kind); break;
        }
    }
}

/* ---- Nodes */

static int is_value(const qn_graph *g, int64_t value) { return value >= 0 && (size_t)value < g->values.n; }

/* Everything about a node that the op's rule is not asked about. 1 when it can be asked. */
static int check_node_links(verifier *v, int32_t number, const qn_ir_node *n, int32_t *next_out) {
    const qn_graph *g = v->g;
    const qn_op_info *op = qn_op_describe(n->op);
    int before = v->faults;
    if (!op) {
        report(v, number, QN_VAL_NONE, "node %d: there is no op number %d", number, n->op);
        return 0;
    }
    if (n->n_src < 0 || n->n_src > op->n_src || n->src < 0 || (size_t)n->src + (size_t)n->n_src > g->sources.n)
        report(v, number, QN_VAL_NONE, "node %d: %s: %d sources, it takes %d to %d", number, op->name, n->n_src, op->n_src_min,
               op->n_src);
    if (n->n_out < op->n_dst_min || n->n_out > op->n_dst || n->n_out < 1)
        report(v, number, QN_VAL_NONE, "node %d: %s: %d outputs, it gives %d to %d", number, op->name, n->n_out, op->n_dst_min,
               op->n_dst);
    else if (n->out < *next_out || !is_value(g, (int64_t)n->out + n->n_out - 1))
        report(v, number, n->out, "node %d: %s: its outputs from value %d on are out of order", number, op->name, n->out);
    if (n->subop < 0 || n->subop > (qn_subop_count(n->op) ? qn_subop_count(n->op) - 1 : 0))
        report(v, number, QN_VAL_NONE, "node %d: %s has no sub-op number %d", number, op->name, n->subop);
    if (!is_text(g, n->label)) report(v, number, QN_VAL_NONE, "node %d: %s: its label is no string", number, op->name);
    if (v->faults != before) return 0;
    *next_out = n->out + n->n_out;
    for (int i = 0; i < n->n_src; i++) {
        qn_val s = qn_ir_sources(g, n)[i];
        if (s == QN_VAL_NONE) continue;
        if (!is_value(g, s))
            report(v, number, s, "node %d: %s: %s: value %d is none of the graph's", number, op->name, op->src[i].name, s);
        else if ((op->src[i].flags & QN_SLOT_STATE) && g->values.at[s].kind == QN_VALUE_CONSTANT)
            report(v, number, s, "node %d: %s: %s is updated in place and cannot be a constant", number, op->name,
                   op->src[i].name);
        else if (s >= n->out)
            report(v, number, s, "node %d: %s: %s: value %d does not precede it", number, op->name, op->src[i].name, s);
    }
    for (int i = 0; i < n->n_out; i++) {
        const qn_ir_value *y = &g->values.at[n->out + i];
        if (y->kind != QN_VALUE_RESULT || y->node != number || y->output != i)
            report(v, number, n->out + i, "node %d: %s: value %d is not its output %d", number, op->name, n->out + i, i);
    }
    return v->faults == before;
}

/* ---- Bodies */

typedef struct body_place {
    verifier *outside;
    int32_t node;
    const char *op, *attr;
} body_place;

/* A fault in a body is one of the node it belongs to. */
static void report_from_body(void *user, const qn_graph_fault *fault) {
    const body_place *at = user;
    report(at->outside, at->node, QN_VAL_NONE, "node %d: %s: %s: %s", at->node, at->op, at->attr, fault->text);
}

static int has_its_symbols(const qn_graph *g, const qn_graph *body) {
    if (body->symbols.n > g->symbols.n) return 0;
    for (size_t i = 0; i < body->symbols.n; i++) {
        const qn_ir_symbol *a = &g->symbols.at[i], *b = &body->symbols.at[i];
        if (strcmp(text_of(g, a->name), text_of(body, b->name)) != 0 || a->least != b->least || a->most != b->most ||
            a->multiple_of != b->multiple_of)
            return 0;
    }
    return 1;
}

static void check_body(verifier *v, int32_t number, const qn_op_info *op, int i, const qn_graph *body) {
    body_place at = {v, number, op->name, op->attr[i].name};
    verifier inside = {body, report_from_body, &at, 0, 0, v->depth + 1, 0};
    size_t k = 0;
    while (k < v->g->bodies.n && v->g->bodies.at[k] != body) k++;
    if (k == v->g->bodies.n) {
        report(v, number, QN_VAL_NONE, "node %d: %s: %s is not one of the graph's bodies", number, op->name, at.attr);
        return;
    }
    if (v->depth == QN_IR_MAX_DEPTH || body->depth >= v->g->depth) {
        report(v, number, QN_VAL_NONE, "node %d: %s: %s is deeper than bodies may be in one another", number, op->name, at.attr);
        return;
    }
    if (!has_its_symbols(v->g, body))
        report(v, number, QN_VAL_NONE, "node %d: %s: %s has other symbols", number, op->name, at.attr);
    check_graph(&inside);
    v->no_memory |= inside.no_memory;
}

static void check_bodies(verifier *v, int32_t number, const qn_ir_node *n) {
    const qn_op_info *op = qn_op_describe(n->op);
    for (int i = 0; i < op->n_attr; i++) {
        const qn_graph *body = qn_ir_body(op, i, n->attr);
        if (body) check_body(v, number, op, i, body);
    }
}

/* The op's guard and shape rule once more, and what they give against what is stored. */
static void check_node_shapes(verifier *v, int32_t number, const qn_ir_node *n) {
    const qn_graph *g = v->g;
    const qn_op_info *op = qn_op_describe(n->op);
    const qn_shape *src[QN_MAX_SRC] = {0};
    qn_shape out[QN_MAX_DST];
    qn_result result;
    _Alignas(16) char room[QN_ATTR_BYTES_MAX];
    const void *attr;
    char inferred[160], stored[160];
    int n_out = 0;
    for (int i = 0; i < n->n_src; i++) {
        qn_val s = qn_ir_sources(g, n)[i];
        if (s != QN_VAL_NONE) src[i] = &g->values.at[s].probe;
    }
    if (!v->dims_are_sound || !qn_ir_attr_bind(g, op, n->attr, NULL, room, &attr)) {
        report(v, number, QN_VAL_NONE, "node %d: %s: an extent among the attributes has no value", number, op->name);
        return;
    }
    memset(&result, 0, sizeof result);
    if (qn_ir_infer(n->op, n->subop, n->n_src, src, attr, out, &n_out, &result) != QN_OK) {
        char sentence[400];
        qn_result_format(&result, sentence, sizeof sentence);
        report(v, number, QN_VAL_NONE, "node %d: %s", number, sentence);
        return;
    }
    if (n->n_out > n_out)
        report(v, number, QN_VAL_NONE, "node %d: %s: %d outputs, it gives %d here", number, op->name, n->n_out, n_out);
    for (int i = 0; i < n->n_out && i < n_out; i++) {
        const qn_shape *probe = &g->values.at[n->out + i].probe;
        int same = probe->dtype == out[i].dtype && probe->rank == out[i].rank;
        for (int k = 0; same && k < out[i].rank; k++) same = probe->d[k] == out[i].d[k];
        if (same) continue;
        qn_ir_shape_format(g, &out[i], inferred, sizeof inferred);
        qn_ir_shape_format(g, probe, stored, sizeof stored);
        report(v, number, n->out + i, "node %d: %s: %s is %s, but %s is stored", number, op->name, op->dst[i].name, inferred,
               stored);
    }
}

static void check_nodes(verifier *v) {
    int32_t next_out = 0;
    for (size_t i = 0; i < v->g->nodes.n; i++) {
        const qn_ir_node *n = &v->g->nodes.at[i];
        int before = v->faults;
        if (!check_node_links(v, (int32_t)i, n, &next_out)) continue;
        check_bodies(v, (int32_t)i, n);
        if (v->faults == before) check_node_shapes(v, (int32_t)i, n); /* rules look into bodies that are sound */
    }
}

/* ---- Memory that is updated in place. Views share their source's memory, and an output of the same number as a state source is that
 * source afterwards: whoever reads the memory under its old name later reads something else than it says. */

typedef struct memory {
    qn_val root;     /* the value that made this state of the memory */
    int32_t updater; /* of a root: the node that made another state of it, -1 when none has */
} memory;

static void check_read(verifier *v, const memory *of, int32_t reader, qn_val value) {
    int32_t by = of[of[value].root].updater;
    if (by < 0) return;
    const char *name = qn_op_describe(v->g->nodes.at[by].op)->name;
    if (reader >= 0)
        report(v, reader, value, "node %d: %s: value %d is read after node %d, %s, has updated it in place", reader,
               qn_op_describe(v->g->nodes.at[reader].op)->name, value, by, name);
    else report(v, -1, value, "value %d is an output, but node %d, %s, updates it in place", value, by, name);
}

static void follow_node(verifier *v, memory *of, int32_t number, const qn_ir_node *n) {
    const qn_op_info *op = qn_op_describe(n->op);
    const qn_val *src = qn_ir_sources(v->g, n);
    for (int i = 0; i < n->n_src; i++)
        if (src[i] != QN_VAL_NONE && !(op->src[i].flags & QN_SLOT_SHAPE)) check_read(v, of, number, src[i]);
    for (int i = 0; i < n->n_src; i++)
        if (src[i] != QN_VAL_NONE && (op->src[i].flags & QN_SLOT_STATE)) of[of[src[i]].root].updater = number;
    for (int i = 0; i < n->n_out; i++)
        of[n->out + i] = (memory){op->is_view && n->n_src && src[0] != QN_VAL_NONE ? of[src[0]].root : n->out + i, -1};
}

/* Only of a graph that has no other fault: nothing is looked at twice here. */
static void check_updates(verifier *v) {
    const qn_graph *g = v->g;
    qn_arena scratch;
    qn_arena_init(&scratch, 0);
    memory *of = qn_arena_alloc(&scratch, g->values.n, sizeof *of);
    if (!of) {
        v->no_memory = 1;
        report(v, -1, QN_VAL_NONE, "no memory to check what is updated in place");
    }
    for (size_t i = 0; of && i < g->values.n; i++) of[i] = (memory){(qn_val)i, -1};
    for (size_t i = 0; of && i < g->nodes.n; i++) follow_node(v, of, (int32_t)i, &g->nodes.at[i]);
    for (size_t i = 0; of && i < g->outputs.n; i++) check_read(v, of, -1, g->outputs.at[i].value);
    qn_arena_destroy(&scratch);
}

static void check_outputs(verifier *v) {
    const qn_graph *g = v->g;
    for (size_t i = 0; i < g->outputs.n; i++) {
        const qn_ir_output *o = &g->outputs.at[i];
        const char *name = text_of(g, o->name);
        if (!is_value(g, o->value)) report(v, -1, o->value, "output %zu is value %d, which the graph does not have", i, o->value);
        if (!is_text(g, o->name) || !*name) {
            report(v, -1, o->value, "output %zu has no name", i);
            continue;
        }
        const qn_ir_name *known = qn_ir_name_find(g, name);
        if (!known || known->output != (int32_t)i) report(v, -1, o->value, "output %zu: '%s' is not its name alone", i, name);
    }
}

static void check_inputs(verifier *v) {
    const qn_graph *g = v->g;
    size_t n = 0;
    for (size_t i = 0; i < g->values.n; i++) {
        if (g->values.at[i].kind == QN_VALUE_PARAM && v->depth)
            report(v, -1, (qn_val)i, "param '%s' is in a body, which has none", text_of(g, g->values.at[i].name));
        if (g->values.at[i].kind != QN_VALUE_INPUT) continue;
        if (n >= g->inputs.n || g->inputs.at[n] != (qn_val)i)
            report(v, -1, (qn_val)i, "input '%s' is not number %zu of the inputs", text_of(g, g->values.at[i].name), n);
        n++;
    }
    if (n < g->inputs.n) report(v, -1, QN_VAL_NONE, "%zu inputs are listed, there are %zu", g->inputs.n, n);
}

static void check_graph(verifier *v) {
    if (v->g->error.status != QN_OK) {
        report(v, -1, QN_VAL_NONE, "it could not be built: %s", v->g->error.text);
        return;
    }
    check_symbols(v);
    check_dims(v);
    check_values(v);
    check_inputs(v);
    check_nodes(v);
    check_outputs(v);
    if (v->faults == 0) check_updates(v);
}

qn_status qn_graph_verify(const qn_graph *g, qn_graph_fault_fn fault, void *user) {
    if (!g) return QN_ARGUMENT;
    verifier v = {g, fault, user, 0, 0, 0, 0};
    check_graph(&v);
    return v.no_memory ? QN_NO_MEMORY : v.faults ? QN_INVALID : QN_OK;
}
