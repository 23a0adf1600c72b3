/* A graph's leaves, outputs, labels and strings, and the questions it answers about itself. */
#include "ir/graph.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/memory.h"

qn_status qn_ir_fail(qn_graph *g, qn_status status, const char *format, ...) {
    if (g->error.status != QN_OK) return g->error.status;
    char text[sizeof g->error.text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return qn_error_set(&g->error, status, "%s", text);
}

qn_status qn_ir_create(size_t allocation_limit, qn_arena *outer, qn_graph **graph) {
    qn_allocator memory = qn_memory_default();
    qn_graph *g = *graph = memory.allocate(memory.user, sizeof *g, _Alignof(qn_graph));
    if (!g) return QN_NO_MEMORY;
    memset(g, 0, sizeof *g);
    g->head.is = &qn_ir_body_class;
    qn_arena_init(&g->arena, allocation_limit);
    g->arena.outer = outer;
    if (qn_ir_text(g, "") == 0) return QN_OK;
    qn_graph_destroy(g);
    *graph = NULL;
    return QN_NO_MEMORY;
}

qn_status qn_graph_create(size_t allocation_limit, qn_graph **graph) {
    return graph ? qn_ir_create(allocation_limit, NULL, graph) : QN_ARGUMENT;
}

void qn_graph_destroy(qn_graph *g) {
    if (!g) return;
    qn_allocator memory = qn_memory_default();
    for (size_t i = 0; i < g->bodies.n; i++) qn_graph_destroy(g->bodies.at[i]); /* no deeper than bodies may nest */
    qn_arena_destroy(&g->arena);
    memory.release(memory.user, g, sizeof *g);
}

qn_status qn_graph_error(const qn_graph *g, qn_error *error) {
    if (!g) return qn_error_set(error, QN_ARGUMENT, "no graph was given");
    if (error) *error = g->error;
    return g->error.status;
}

const char *qn_ir_value_words(const qn_graph *g, qn_val value, char *text, size_t size) {
    static const char *const words[] = {"input", "param"};
    const qn_ir_value *v = &g->values.at[value];
    if (v->kind == QN_VALUE_CONSTANT) {
        snprintf(text, size, "a constant (value %d)", value);
    } else if (v->kind != QN_VALUE_RESULT) {
        snprintf(text, size, "%s '%.80s'", words[v->kind], qn_ir_string(g, v->name));
    } else {
        const qn_ir_node *n = &g->nodes.at[v->node];
        const qn_op_info *op = qn_op_describe(n->op);
        const char *sub = qn_subop_name(n->op, n->subop), *dot = sub ? "." : "";
        sub = sub ? sub : "";
        if (n->n_out == 1) snprintf(text, size, "what %s%s%s gives (node %d)", op->name, dot, sub, v->node);
        else snprintf(text, size, "%s of %s%s%s (node %d)", op->dst[v->output].name, op->name, dot, sub, v->node);
    }
    return text;
}

/* The shape at the upper bounds; INVALID with a sentence when an extent has no value or the size overflows. */
static qn_status probe_shape(qn_graph *g, const char *what, const qn_shape *shape, qn_shape *probe) {
    uint64_t bytes;
    *probe = *shape;
    for (int i = 0; i < shape->rank; i++)
        if (!qn_ir_dim_value(g, shape->d[i], NULL, &probe->d[i]))
            return qn_ir_fail(g, QN_INVALID, "%s: axis %d has no extent", what, i);
    if (qn_tensor_bytes((qn_dtype)shape->dtype, probe->rank, probe->d, &bytes) != QN_OK)
        return qn_ir_fail(g, QN_INVALID, "%s: the size overflows, or a row is not a whole number of blocks", what);
    return QN_OK;
}

static qn_val add_leaf(qn_graph *g, qn_value_kind kind, const char *name, qn_dtype dtype, int rank, const int64_t *shape) {
    static const char *const words[] = {"input", "param", "constant"};
    char what[200];
    if (!g || g->error.status != QN_OK) return QN_VAL_NONE;
    snprintf(what, sizeof what, "%s '%s'", words[kind], name ? name : "");
    if (!qn_dtype_describe(dtype) || rank < 1 || rank > QN_MAX_RANK || !shape ||
        (kind != QN_VALUE_CONSTANT && (!name || !*name))) {
        qn_ir_fail(g, QN_ARGUMENT, "%s: needs a name, a dtype and a rank of 1 to %d", what, QN_MAX_RANK);
        return QN_VAL_NONE;
    }
    qn_ir_value v = {.kind = kind, .node = -1, .output = -1, .name = -1, .data = -1, .shape = {dtype, rank, {0}}};
    memcpy(v.shape.d, shape, sizeof *shape * (size_t)rank);
    if (probe_shape(g, what, &v.shape, &v.probe) != QN_OK) return QN_VAL_NONE;
    if (name && (v.name = qn_ir_text(g, name)) < 0) return QN_VAL_NONE;
    qn_ir_name *known = name ? qn_ir_name_find(g, name) : NULL;
    qn_val *by_name = !known ? NULL : kind == QN_VALUE_INPUT ? &known->input : &known->param;
    if (by_name && *by_name != QN_VAL_NONE) {
        qn_ir_fail(g, QN_INVALID, "%s: there is one of that name already", what);
        return QN_VAL_NONE;
    }
    if (g->values.n >= INT32_MAX || !QN_VEC_ROOM(&g->arena, &g->values, 1) ||
        (kind == QN_VALUE_INPUT && !QN_VEC_ROOM(&g->arena, &g->inputs, 1))) {
        qn_ir_fail(g, QN_NO_MEMORY, "%s: no memory", what);
        return QN_VAL_NONE;
    }
    v.origin = (qn_val)g->values.n;
    g->values.at[g->values.n] = v;
    if (kind == QN_VALUE_INPUT) g->inputs.at[g->inputs.n++] = (qn_val)g->values.n;
    if (by_name) *by_name = (qn_val)g->values.n;
    return (qn_val)g->values.n++;
}

qn_val qn_graph_input(qn_graph *g, const char *name, qn_dtype dtype, int rank, const int64_t *shape) {
    return add_leaf(g, QN_VALUE_INPUT, name, dtype, rank, shape);
}

qn_val qn_graph_param(qn_graph *g, const char *name, qn_dtype dtype, int rank, const int64_t *shape) {
    return add_leaf(g, QN_VALUE_PARAM, name, dtype, rank, shape);
}

qn_val qn_graph_constant(qn_graph *g, qn_dtype dtype, int rank, const int64_t *shape, const void *data, size_t bytes) {
    qn_val v = add_leaf(g, QN_VALUE_CONSTANT, NULL, dtype, rank, shape);
    if (v == QN_VAL_NONE) return v;
    uint64_t need = 0;
    const qn_shape *s = &g->values.at[v].shape;
    for (int k = 0; k < rank; k++)
        if (qn_dim_is_symbolic(shape[k])) {
            qn_ir_fail(g, QN_INVALID, "a constant's axis %d cannot depend on a symbol", k);
            return QN_VAL_NONE;
        }
    if (qn_tensor_bytes(dtype, rank, s->d, &need) != QN_OK || need != bytes || (bytes && !data)) {
        qn_ir_fail(g, QN_INVALID, "a constant of %llu bytes was given %zu", (unsigned long long)need, bytes);
        return QN_VAL_NONE;
    }
    void *copy = qn_arena_alloc(&g->arena, bytes, 1);
    if (!copy || !QN_VEC_ROOM(&g->arena, &g->constants, 1)) {
        qn_ir_fail(g, QN_NO_MEMORY, "no memory for a constant of %zu bytes", bytes);
        return QN_VAL_NONE;
    }
    if (bytes) memcpy(copy, data, bytes);
    g->constants.at[g->constants.n] = (qn_ir_constant){copy, bytes};
    g->values.at[v].data = (int32_t)g->constants.n++;
    return v;
}

qn_status qn_graph_output(qn_graph *g, qn_val value, const char *name) {
    if (!g) return QN_ARGUMENT;
    if (g->error.status != QN_OK) return g->error.status;
    if (value < 0 || (size_t)value >= g->values.n || !name || !*name)
        return qn_ir_fail(g, QN_ARGUMENT, "output '%s': value %d is none of this graph's", name ? name : "", value);
    int32_t text = qn_ir_text(g, name);
    qn_ir_name *known = qn_ir_name_find(g, name);
    if (known && known->output >= 0) return qn_ir_fail(g, QN_INVALID, "output '%s': there is one of that name already", name);
    if (text < 0 || !known || !QN_VEC_ROOM(&g->arena, &g->outputs, 1))
        return qn_ir_fail(g, QN_NO_MEMORY, "output '%s': no memory", name);
    known->output = (int32_t)g->outputs.n;
    g->outputs.at[g->outputs.n++] = (qn_ir_output){value, text};
    return QN_OK;
}

qn_status qn_graph_label_push(qn_graph *g, const char *label) {
    if (!g || !label) return QN_ARGUMENT;
    if (g->error.status != QN_OK) return g->error.status;
    char path[512];
    const char *outer = g->labels.n ? qn_ir_string(g, g->labels.at[g->labels.n - 1]) : "";
    if (snprintf(path, sizeof path, "%s%s%s", outer, *outer ? " / " : "", label) >= (int)sizeof path)
        return qn_ir_fail(g, QN_ARGUMENT, "label '%.40s...': the path is longer than %zu bytes", label, sizeof path - 1);
    int32_t text = qn_ir_text(g, path);
    if (text < 0 || !QN_VEC_ROOM(&g->arena, &g->labels, 1)) return qn_ir_fail(g, QN_NO_MEMORY, "label '%s': no memory", label);
    g->labels.at[g->labels.n++] = text;
    return QN_OK;
}

qn_status qn_graph_label_pop(qn_graph *g) {
    if (!g) return QN_ARGUMENT;
    if (g->error.status != QN_OK) return g->error.status;
    if (g->labels.n == 0) return qn_ir_fail(g, QN_ARGUMENT, "a label was popped that nobody pushed");
    g->labels.n--;
    return QN_OK;
}

int32_t qn_graph_value_count(const qn_graph *g) { return g ? (int32_t)g->values.n : 0; }
int32_t qn_graph_node_count(const qn_graph *g) { return g ? (int32_t)g->nodes.n : 0; }
int32_t qn_graph_output_count(const qn_graph *g) { return g ? (int32_t)g->outputs.n : 0; }

qn_status qn_graph_value(const qn_graph *g, qn_val value, qn_value_info *info) {
    if (!g || !info || info->size != sizeof *info || value < 0 || (size_t)value >= g->values.n) return QN_ARGUMENT;
    const qn_ir_value *v = &g->values.at[value];
    info->kind = v->kind;
    info->dtype = (qn_dtype)v->shape.dtype;
    info->rank = v->shape.rank;
    memcpy(info->shape, v->shape.d, sizeof info->shape);
    info->name = v->name >= 0 ? qn_ir_string(g, v->name) : NULL;
    info->node = v->node;
    info->output = v->output;
    return QN_OK;
}

qn_status qn_graph_node(const qn_graph *g, int32_t node, qn_node_info *info) {
    if (!g || !info || info->size != sizeof *info || node < 0 || (size_t)node >= g->nodes.n) return QN_ARGUMENT;
    const qn_ir_node *n = &g->nodes.at[node];
    info->op = n->op;
    info->subop = n->subop;
    info->n_src = n->n_src;
    info->n_out = n->n_out;
    for (int i = 0; i < QN_MAX_SRC; i++) info->src[i] = i < n->n_src ? qn_ir_sources(g, n)[i] : QN_VAL_NONE;
    for (int i = 0; i < QN_MAX_DST; i++) info->out[i] = i < n->n_out ? n->out + i : QN_VAL_NONE;
    info->attr = n->attr;
    info->label = qn_ir_string(g, n->label);
    return QN_OK;
}

qn_val qn_graph_output_value(const qn_graph *g, int32_t output, const char **name) {
    if (!g || output < 0 || (size_t)output >= g->outputs.n) return QN_VAL_NONE;
    if (name) *name = qn_ir_string(g, g->outputs.at[output].name);
    return g->outputs.at[output].value;
}

const void *qn_graph_constant_data(const qn_graph *g, qn_val value) {
    if (!g || value < 0 || (size_t)value >= g->values.n || g->values.at[value].data < 0) return NULL;
    return g->constants.at[g->values.at[value].data].data;
}

int32_t qn_graph_symbol_count(const qn_graph *g) { return g ? (int32_t)g->symbols.n : 0; }

qn_status qn_graph_symbol_describe(const qn_graph *g, int32_t symbol, qn_symbol_info *info) {
    if (!g || !info || info->size != sizeof *info || symbol < 0 || (size_t)symbol >= g->symbols.n) return QN_ARGUMENT;
    const qn_ir_symbol *s = &g->symbols.at[symbol];
    info->name = qn_ir_string(g, s->name);
    info->least = s->least;
    info->most = s->most;
    info->multiple_of = s->multiple_of;
    return QN_OK;
}
