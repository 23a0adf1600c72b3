/* Plans from the caller's side: made, filled, run, read. Everything that can fail or take memory happens before the first step of a
 * run; the run itself is a loop over function pointers. */
#include "base/memory.h"
#include "op/guard.h"
#include "plan/plan.h"
#include "run/context.h"
#include "run/traced.h"

static uint64_t padded(uint64_t bytes) { return (bytes + QN_PLAN_ALIGN - 1) / QN_PLAN_ALIGN * QN_PLAN_ALIGN; }

/* ---- Making */

static uint64_t bytes_of(const qn_tensor *t) {
    uint64_t bytes = 0;
    return qn_tensor_bytes((qn_dtype)t->dtype, t->rank, t->shape, &bytes) == QN_OK ? bytes : 0;
}

/* The guard once more, on the layouts the step will really have; from it the scratch and the index limits. */
static qn_status check_step(qn_plan *p, qn_plan_step *s, const qn_ir_node *n, qn_error *error) {
    qn_request q = qn_plan_request(p->graph, n, p->tensors);
    qn_guarded g;
    qn_result result;
    qn_result_begin(&q, &result);
    if (qn_guard_sources(&q, 0, &g, &result) != QN_OK) {
        qn_result_to_error(&result, error);
        return qn_error_wrap(error, "node %d", s->node);
    }
    if (g.infer.workspace > p->scratch) p->scratch = g.infer.workspace;
    s->flops = qn_op_flops(&g.infer);
    for (int i = 0; i < n->n_src; i++)
        if (s->src[i] && !(g.info->src[i].flags & QN_SLOT_SHAPE)) s->bytes += bytes_of(s->src[i]);
    for (int i = 0; i < n->n_out; i++) s->bytes += bytes_of(s->dst[i]);
    for (int i = 0; i < n->n_src; i++) {
        if (!s->src[i] || !(g.info->src[i].flags & QN_SLOT_INDEX)) continue;
        if (s->n_index == QN_PLAN_INDEX_MAX)
            return qn_error_set(error, QN_UNSUPPORTED, "node %d: too many index sources", s->node);
        s->index[s->n_index++] = (qn_plan_index){s->src[i], g.infer.index_limit[i], i};
    }
    return QN_OK;
}

static qn_status add_step(qn_plan *p, int32_t k, qn_error *error) {
    const qn_ir_node *n = &p->graph->nodes.at[k];
    const qn_op_info *info = qn_op_describe(n->op);
    if (info->is_view) return QN_OK;
    qn_plan_step *s = &p->steps.at[p->steps.n++];
    memset(s, 0, sizeof *s);
    s->node = k;
    s->run = qn_op_rules_of(n->op)->reference;
    for (int i = 0; i < n->n_src; i++) {
        qn_val v = qn_ir_sources(p->graph, n)[i];
        s->src[i] = v == QN_VAL_NONE ? NULL : &p->tensors[v];
    }
    for (int i = 0; i < n->n_out; i++) s->dst[i] = &p->tensors[n->out + i];
    s->call = (qn_call){n->op, n->subop, n->n_src, n->n_out, s->src, s->dst, n->attr ? n->attr : info->attr_default, NULL};
    return check_step(p, s, n, error);
}

/* Leaves follow the arena; each gets a place of its own for the life of the plan. */
static void place_leaves(qn_plan *p) {
    uint64_t at = p->totals.arena_bytes;
    for (size_t v = 0; v < p->graph->values.n; v++) {
        qn_plan_slot *s = &p->slots[v];
        if (s->storage != QN_STORAGE_INPUT && s->storage != QN_STORAGE_PARAM) {
            if (s->storage == QN_STORAGE_CONSTANT) p->totals.constant_bytes += s->bytes;
            continue;
        }
        s->offset = at;
        p->n_unset++;
        at += padded(s->bytes);
        *(s->storage == QN_STORAGE_INPUT ? &p->totals.input_bytes : &p->totals.param_bytes) += s->bytes;
    }
    p->totals.scratch_bytes = p->scratch;
    p->memory_bytes = at + padded(p->scratch);
}

static qn_status fill_plan(qn_plan *p, const qn_plan_options *o, qn_error *error) {
    size_t n = p->graph->values.n;
    p->slots = qn_arena_alloc(&p->arena, n, sizeof *p->slots);
    p->tensors = qn_arena_alloc(&p->arena, n, sizeof *p->tensors);
    p->is_set = qn_arena_alloc(&p->arena, n, 1);
    if (!p->slots || !p->tensors || !p->is_set || !QN_VEC_ROOM(&p->arena, &p->steps, p->graph->nodes.n + 1))
        return qn_error_set(error, QN_NO_MEMORY, "no memory to plan %zu values", n);
    QN_TRY(qn_plan_assign(p, error));
    QN_TRY(qn_plan_place(p, error));
    for (int32_t k = 0; k < (int32_t)p->graph->nodes.n; k++) QN_TRY(add_step(p, k, error));
    p->totals.n_steps = (int32_t)p->steps.n;
    place_leaves(p);
    if (o->memory_cap && p->memory_bytes > o->memory_cap)
        return qn_error_set(error, QN_NO_MEMORY,
                            "the plan needs %llu bytes (arena %llu, params %llu, inputs %llu, scratch %llu), the cap is %llu",
                            (unsigned long long)p->memory_bytes, (unsigned long long)p->totals.arena_bytes,
                            (unsigned long long)p->totals.param_bytes, (unsigned long long)p->totals.input_bytes,
                            (unsigned long long)p->totals.scratch_bytes, (unsigned long long)o->memory_cap);
    return QN_OK;
}

/* Bound, optimised, laid out: each a graph made of the one before. */
static qn_status make_graph(qn_plan *p, const qn_graph *graph, const qn_plan_options *o, qn_error *error) {
    qn_graph *bound = NULL, *better = NULL;
    qn_status status = qn_graph_bind(graph, o->symbols, &bound, error);
    if (status == QN_OK && !(o->flags & QN_PLAN_NO_PASSES)) status = qn_graph_optimise(bound, &better, error);
    if (status == QN_OK) status = qn_plan_relayout(better ? better : bound, &p->graph, &p->totals.n_copies, error);
    qn_graph_destroy(bound);
    qn_graph_destroy(better);
    return status;
}

const qn_graph *qn_plan_graph(const qn_plan *p) { return p ? p->graph : NULL; }

qn_status qn_plan_create(const qn_graph *graph, const qn_plan_options *options, qn_plan **plan, qn_error *error) {
    static const qn_plan_options none = {sizeof none, 0, NULL, 0};
    const qn_plan_options *o = options ? options : &none;
    if (!graph || !plan || o->size != sizeof *o || (o->flags & ~QN_PLAN_NO_PASSES))
        return qn_error_set(error, QN_ARGUMENT, "plan: a graph and valid options are needed");
    *plan = NULL;
    qn_allocator memory = qn_memory_default();
    qn_plan *p = memory.allocate(memory.user, sizeof *p, QN_PLAN_ALIGN);
    if (!p) return qn_error_set(error, QN_NO_MEMORY, "no memory for a plan");
    memset(p, 0, sizeof *p);
    qn_arena_init(&p->arena, 0);
    qn_status status = make_graph(p, graph, o, error);
    if (status == QN_OK) status = fill_plan(p, o, error);
    if (status == QN_OK) *plan = p;
    else qn_plan_destroy(p);
    return status;
}

void qn_plan_destroy(qn_plan *p) {
    if (!p) return;
    qn_allocator memory = qn_memory_default();
    if (p->memory) memory.release(memory.user, p->memory, p->memory_bytes);
    qn_graph_destroy(p->graph);
    qn_arena_destroy(&p->arena);
    memory.release(memory.user, p, sizeof *p);
}

qn_status qn_plan_describe(const qn_plan *p, qn_plan_totals *totals) {
    if (!p || !totals || totals->size != sizeof *totals) return QN_ARGUMENT;
    *totals = p->totals;
    totals->size = sizeof *totals;
    return QN_OK;
}

qn_status qn_plan_value_describe(const qn_plan *p, qn_val value, qn_plan_value *info) {
    if (!p || !info || info->size != sizeof *info || value < 0 || (size_t)value >= p->graph->values.n) return QN_ARGUMENT;
    const qn_plan_slot *s = &p->slots[value], *root = &p->slots[s->root];
    info->storage = s->storage;
    info->root = s->root;
    info->offset = root->offset + (uint64_t)p->tensors[value].offset;
    info->bytes = s->bytes;
    info->born = root->born;
    info->dies = root->dies;
    return QN_OK;
}

/* ---- Memory: one block, and every descriptor pointed into it */

static void point_tensors(qn_plan *p) {
    for (size_t v = 0; v < p->graph->values.n; v++) {
        const qn_plan_slot *root = &p->slots[p->slots[v].root];
        qn_tensor *t = &p->tensors[v];
        if (root->storage == QN_STORAGE_CONSTANT) {
            const qn_ir_constant *c = &p->graph->constants.at[p->graph->values.at[p->slots[v].root].data];
            memcpy(&t->data, &c->data, sizeof t->data); /* never written: no op runs in place on a constant */
            p->is_set[v] = 1;
        } else {
            t->data = (char *)p->memory + root->offset;
        }
        t->size = root->bytes;
    }
    for (size_t i = 0; i < p->steps.n; i++)
        p->steps.at[i].call.workspace = (char *)p->memory + p->memory_bytes - padded(p->scratch);
}

static qn_status need_memory(qn_plan *p, qn_error *error) {
    if (p->memory) return QN_OK;
    qn_allocator memory = qn_memory_default();
    p->memory = memory.allocate(memory.user, p->memory_bytes ? p->memory_bytes : 1, QN_PLAN_ALIGN);
    if (!p->memory)
        return qn_error_set(error, QN_NO_MEMORY, "no memory: the plan needs %llu bytes", (unsigned long long)p->memory_bytes);
    memset(p->memory, 0, p->memory_bytes);
    point_tensors(p);
    return QN_OK;
}

/* ---- Values in and out */

static qn_val find_leaf(const qn_plan *p, const char *name, int inputs_only) {
    for (size_t v = 0; name && v < p->graph->values.n; v++) {
        const qn_ir_value *leaf = &p->graph->values.at[v];
        int named = leaf->kind == QN_VALUE_INPUT || (leaf->kind == QN_VALUE_PARAM && !inputs_only);
        if (named && strcmp(qn_ir_string(p->graph, leaf->name), name) == 0) return (qn_val)v;
    }
    return QN_VAL_NONE;
}

static qn_val find_output(const qn_plan *p, const char *name) {
    for (size_t i = 0; name && i < p->graph->outputs.n; i++)
        if (strcmp(qn_ir_string(p->graph, p->graph->outputs.at[i].name), name) == 0) return p->graph->outputs.at[i].value;
    return QN_VAL_NONE;
}

static qn_status copy_into(const qn_tensor *to, const qn_tensor *from, const char *name, qn_error *error) {
    if (from->dtype != to->dtype || from->rank != to->rank)
        return qn_error_set(error, QN_INVALID, "'%s': dtype and rank must be those of the graph", name);
    for (int k = 0; k < to->rank; k++)
        if (from->shape[k] != to->shape[k])
            return qn_error_set(error, QN_INVALID, "'%s': axis %d has extent %lld, the graph has %lld", name, k,
                                (long long)from->shape[k], (long long)to->shape[k]);
    uint64_t bytes;
    if (qn_tensor_count(from) && (!from->data || !qn_tensor_is_contiguous(from) || from->offset < 0 ||
                                  qn_tensor_bytes((qn_dtype)from->dtype, from->rank, from->shape, &bytes) != QN_OK ||
                                  (uint64_t)from->offset > from->size || bytes > from->size - (uint64_t)from->offset))
        return qn_error_set(error, QN_INVALID, "'%s': the tensor must be dense and lie in its buffer", name);
    if (qn_tensor_count(from)) memcpy(to->data, (const char *)from->data + from->offset, bytes);
    return QN_OK;
}

qn_status qn_plan_set(qn_plan *p, const char *name, const qn_tensor *tensor, qn_error *error) {
    if (!p || !name || !tensor) return qn_error_set(error, QN_ARGUMENT, "a plan, a name and a tensor are needed");
    qn_val v = find_leaf(p, name, 0);
    if (v == QN_VAL_NONE) return qn_error_set(error, QN_INVALID, "the graph has no input or param '%s'", name);
    QN_TRY(need_memory(p, error));
    QN_TRY(copy_into(&p->tensors[v], tensor, name, error));
    p->n_unset -= !p->is_set[v];
    p->is_set[v] = 1;
    return QN_OK;
}

qn_status qn_plan_output(const qn_plan *p, const char *name, qn_tensor *tensor, qn_error *error) {
    if (!p || !tensor) return qn_error_set(error, QN_ARGUMENT, "a plan and room for a tensor are needed");
    qn_val v = find_output(p, name);
    if (v == QN_VAL_NONE) return qn_error_set(error, QN_INVALID, "the graph has no output '%s'", name ? name : "");
    if (!p->memory) return qn_error_set(error, QN_INVALID, "output '%s': the plan has not run yet", name);
    *tensor = p->tensors[v];
    return QN_OK;
}

qn_status qn_plan_feed(qn_plan *p, const char *output, const char *input, qn_error *error) {
    if (!p) return qn_error_set(error, QN_ARGUMENT, "a plan is needed");
    qn_val from = find_output(p, output), to = find_leaf(p, input, 1);
    if (from == QN_VAL_NONE || to == QN_VAL_NONE)
        return qn_error_set(error, QN_INVALID, "the graph has no %s '%s'", from == QN_VAL_NONE ? "output" : "input",
                            from == QN_VAL_NONE ? (output ? output : "") : (input ? input : ""));
    const qn_tensor *a = &p->tensors[from], *b = &p->tensors[to];
    int same = a->dtype == b->dtype && a->rank == b->rank && p->slots[from].dense;
    for (int k = 0; same && k < a->rank; k++) same = a->shape[k] == b->shape[k];
    if (!same)
        return qn_error_set(error, QN_INVALID, "output '%s' and input '%s' have not the same dense shape and dtype", output,
                            input);
    if (!QN_VEC_ROOM(&p->arena, &p->feeds, 1)) return qn_error_set(error, QN_NO_MEMORY, "no memory for a feed");
    p->feeds.at[p->feeds.n++] = (qn_plan_feed_pair){from, to};
    return QN_OK;
}

/* ---- Running */

/* Only asked when some leaf is missing: a run that has everything looks for nothing. */
static qn_status name_missing_leaf(const qn_plan *p, qn_error *error) {
    for (size_t v = 0; v < p->graph->values.n; v++) {
        const qn_ir_value *leaf = &p->graph->values.at[v];
        if (leaf->kind <= QN_VALUE_PARAM && !p->is_set[v])
            return qn_error_set(error, QN_INVALID, "%s '%s' was never set", leaf->kind == QN_VALUE_INPUT ? "input" : "param",
                                qn_ir_string(p->graph, leaf->name));
    }
    return QN_OK;
}

static qn_status check_step_indices(const qn_plan_step *s, qn_error *error) {
    int64_t which, value;
    for (int i = 0; i < s->n_index; i++) {
        if (qn_guard_indices(s->index[i].tensor, s->index[i].limit, &which, &value)) continue;
        const qn_op_info *info = qn_op_describe(s->call.op);
        return qn_error_set(error, QN_RANGE, "node %d: %s: %s: index number %lld is %lld, it must be at least 0 and below %lld",
                            s->node, info->name, info->src[s->index[i].slot].name, (long long)which, (long long)value,
                            (long long)s->index[i].limit);
    }
    return QN_OK;
}

/* Interns a label's path in the ring, part by part, so that time adds up by part. */
static uint32_t ring_label(qn_trace_ring *ring, const char *path) {
    uint32_t label = ring->label;
    while (*path) {
        char part[QN_TRACE_LABEL_MAX + 1];
        const char *end = strstr(path, " / ");
        size_t n = end ? (size_t)(end - path) : strlen(path);
        if (n > QN_TRACE_LABEL_MAX) n = QN_TRACE_LABEL_MAX;
        memcpy(part, path, n);
        part[n] = 0;
        label = qn_trace_label_of(ring, label, 0, part);
        path = end ? end + 3 : "";
    }
    return label;
}

static qn_status run_traced(const qn_plan *p, const qn_plan_step *s, qn_trace_ring *ring) {
    qn_trace_span span;
    qn_trace_begin(ring, &span);
    qn_status status = s->run(&s->call);
    uint32_t around = ring->label;
    ring->label = ring_label(ring, qn_ir_string(p->graph, p->graph->nodes.at[s->node].label));
    qn_run_trace_step(ring, &span, &s->call, s->flops, s->bytes, status);
    ring->label = around;
    return status;
}

static qn_status run_steps(qn_plan *p, qn_trace_ring *ring, qn_error *error) {
    for (size_t i = 0; i < p->steps.n; i++) {
        const qn_plan_step *s = &p->steps.at[i];
        if (s->n_index) QN_TRY(check_step_indices(s, error));
        qn_status status = ring ? run_traced(p, s, ring) : s->run(&s->call);
        if (status != QN_OK)
            return qn_error_set(error, QN_USER, "node %d: %s: the callback returned %d", s->node,
                                qn_op_describe(s->call.op)->name, (int)status);
    }
    return QN_OK;
}

qn_status qn_plan_run(qn_plan *p, qn_context *context, qn_error *error) {
    if (!p) return qn_error_set(error, QN_ARGUMENT, "a plan is needed");
    QN_TRY(need_memory(p, error));
    if (p->n_unset) return name_missing_leaf(p, error);
    QN_TRY(run_steps(p, context && qn_trace_on(context->ring) ? context->ring : NULL, error));
    for (size_t i = 0; i < p->feeds.n; i++) {
        const qn_tensor *a = &p->tensors[p->feeds.at[i].output], *b = &p->tensors[p->feeds.at[i].input];
        memmove((char *)b->data + b->offset, (const char *)a->data + a->offset, p->slots[p->feeds.at[i].input].bytes);
    }
    return QN_OK;
}
