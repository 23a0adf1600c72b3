/* Plans made and run. Everything that can fail or take memory happens before the first step of a run; the run itself is a loop over
 * function pointers. */
#include "base/clock.h"
#include "base/memory.h"
#include "ir/rebuild.h"
#include "op/guard.h"
#include "op/ref.h"
#include "run/context.h"
#include "run/plan_impl.h"
#include "run/plan_input.h"
#include "run/traced.h"

/* ---- Making */

static qn_status copy_graph(qn_plan *p, const qn_graph *graph, qn_error *error) {
    qn_status status = qn_graph_error(graph, error);
    return status != QN_OK ? status : qn_ir_rebuild(graph, NULL, qn_rebuild_copy, NULL, &p->graph, error);
}

static qn_status list_leaves(qn_plan *p, qn_error *error) {
    const qn_graph *g = p->graph;
    for (size_t v = 0; v < g->values.n; v++) {
        const qn_ir_value *value = &g->values.at[v];
        if (value->kind > QN_VALUE_PARAM) continue;
        if (!QN_VEC_ROOM(&p->arena, &p->leaves, 1)) return qn_error_set(error, QN_NO_MEMORY, "no memory for a plan");
        qn_plan_leaf *l = &p->leaves.at[p->leaves.n++];
        memset(l, 0, sizeof *l);
        l->name = qn_ir_string(g, value->name);
        l->kind = value->kind;
        l->value = (qn_val)v;
        if (qn_tensor_bytes((qn_dtype)value->probe.dtype, value->probe.rank, value->probe.d, &l->capacity) != QN_OK)
            return qn_error_set(error, QN_INVALID, "'%s' is too large", l->name);
        l->newest = QN_ON_HOST;
        l->device_at = p->device_leaves;
        p->device_leaves = qn_plan_sum(p->device_leaves, qn_plan_padded(l->capacity));
    }
    p->n_unset = (int32_t)p->leaves.n;
    return QN_OK;
}

static void take_options(qn_plan *p, const qn_plan_options *o) {
    p->flags = o->flags;
    p->memory_cap = o->memory_cap;
    p->device = o->device;
    p->passes = o->passes;
    p->cpu_levels = o->flags & QN_PLAN_REFERENCE ? 0 : qn_cpu_levels();
    for (size_t i = 0; i < p->graph->symbols.n; i++) p->symbols[i] = o->symbols ? o->symbols[i] : p->graph->symbols.at[i].most;
}

qn_status qn_plan_create(const qn_graph *graph, const qn_plan_options *options, qn_plan **plan, qn_error *error) {
    static const qn_plan_options none = {.size = sizeof none};
    static const uint32_t known = QN_PLAN_NO_PASSES | QN_PLAN_REFERENCE | QN_PLAN_STRICT | QN_PLAN_TIMED | QN_PLAN_LEND;
    const qn_plan_options *o = options ? options : &none;
    if (!graph || !plan || o->size != sizeof *o || (o->flags & ~known))
        return qn_error_set(error, QN_ARGUMENT, "plan: a graph and valid options are needed");
    *plan = NULL;
    qn_allocator memory = qn_memory_default();
    qn_plan *p = memory.allocate(memory.user, sizeof *p, QN_PLAN_ALIGN);
    if (!p) return qn_error_set(error, QN_NO_MEMORY, "no memory for a plan");
    memset(p, 0, sizeof *p);
    qn_arena_init(&p->arena, 0);
    qn_status status = copy_graph(p, graph, error);
    if (status == QN_OK) status = list_leaves(p, error);
    if (status == QN_OK) {
        take_options(p, o);
        status = qn_plan_specialise(p, error);
    }
    if (status == QN_OK) *plan = p;
    else qn_plan_destroy(p);
    return status;
}

void qn_plan_destroy(qn_plan *p) {
    if (!p) return;
    qn_allocator memory = qn_memory_default();
    qn_plan_drop_specials(p);
    qn_plan_packs_destroy(p);
    qn_device_buffer_destroy(p->device_buffer);
    if (p->memory) memory.release(memory.user, p->memory, p->memory_bytes);
    for (size_t i = 0; i < p->leaves.n; i++)
        if (p->leaves.at[i].memory) memory.release(memory.user, p->leaves.at[i].memory, p->leaves.at[i].capacity);
    qn_graph_destroy(p->graph);
    qn_arena_destroy(&p->arena);
    memory.release(memory.user, p, sizeof *p);
}

/* ---- Before a run */

/* Only asked when some leaf is missing: a run that has everything looks for nothing. */
static qn_status name_missing_leaf(const qn_plan *p, qn_error *error) {
    for (size_t i = 0; i < p->leaves.n; i++)
        if (!p->leaves.at[i].is_set)
            return qn_error_set(error, QN_INVALID, "%s '%s' was never set",
                                p->leaves.at[i].kind == QN_VALUE_INPUT ? "input" : "param", p->leaves.at[i].name);
    return QN_OK;
}

/* Inputs that were set one after the other must agree on what the symbols are. */
static qn_status check_extents(const qn_plan *p, qn_error *error) {
    for (size_t i = 0; i < p->leaves.n; i++) {
        const qn_plan_leaf *l = &p->leaves.at[i];
        const qn_shape *want = &p->graph->values.at[l->value].shape;
        for (int k = 0; l->is_set && k < want->rank; k++) {
            int64_t extent;
            if (!qn_ir_dim_value(p->graph, want->d[k], p->symbols, &extent)) extent = -1;
            if (extent != l->shape.d[k])
                return qn_error_set(error, QN_INVALID, "'%s': axis %d was set with extent %lld, the other inputs make it %lld",
                                    l->name, k, (long long)l->shape.d[k], (long long)extent);
        }
    }
    return QN_OK;
}

static qn_status prepare_run(qn_plan *p, qn_pool *pool, qn_error *error) {
    if (p->n_unset) return name_missing_leaf(p, error);
    if (p->is_stale) {
        QN_TRY(check_extents(p, error));
        QN_TRY(qn_plan_specialise(p, error));
    }
    return p->memory_ready ? QN_OK : qn_plan_ready(p, pool, error);
}

/* ---- Steps */

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

static qn_status callback_failed(const qn_plan_step *s, qn_status status, qn_error *error) {
    return qn_error_set(error, QN_USER, "node %d: %s: the callback returned %d", s->node, qn_op_describe(s->call.op)->name,
                        (int)status);
}

static inline qn_status compute(const qn_run *r, const qn_plan_step *s, qn_error *error) {
    if (!s->cpu.run) {
        if (!s->run) return qn_run_control(r, s, error);
        qn_status status = s->run(&s->call);
        return status == QN_OK ? QN_OK : callback_failed(s, status, error);
    }
    qn_cpu_run(r->pool, &s->call, &s->cpu);
    return QN_OK;
}

/* With the time taken, for the ring, for the plan's own statistics, or both. The label is in force for bodies as well. */
static qn_status compute_seen(const qn_run *r, const qn_schedule *x, qn_plan_step *s, qn_error *error) {
    qn_trace_ring *ring = r->ring;
    qn_trace_span span;
    uint32_t around = ring ? ring->label : 0;
    if (ring) ring->label = qn_run_trace_label(ring, qn_ir_string(x->graph, x->graph->nodes.at[s->node].label));
    uint64_t start = qn_clock_now();
    qn_run_memory *memory = r->memory && r->memory->schedule == x ? r->memory : NULL; /* a body's is its step's scratch */
    if (ring) qn_trace_begin(ring, &span);
    if (memory) qn_run_memory_births(ring, memory, s, 0);
    qn_status status = compute(r, s, error);
    if (memory) qn_run_memory_deaths(ring, memory, s, 0);
    if (ring) {
        qn_run_trace_step(ring, &span, &s->call, s->flops, s->bytes, status);
        ring->label = around;
    }
    s->nanoseconds += qn_clock_now() - start;
    s->runs++;
    return status;
}

qn_status qn_run_steps(const qn_run *r, qn_schedule *x, int32_t first, int32_t end, qn_error *error) {
    int seen = r->ring || r->timed;
    for (int32_t i = first; i < end; i++) {
        qn_plan_step *s = &x->steps.at[i];
        if (atomic_load_explicit(r->cancelled, memory_order_relaxed))
            return qn_error_set(error, QN_CANCELLED, "cancelled before node %d", s->node);
        if (s->n_index) QN_TRY(check_step_indices(s, error));
        qn_status status = seen ? compute_seen(r, x, s, error) : compute(r, s, error);
        if (status != QN_OK) return status;
    }
    return QN_OK;
}

static qn_status run_steps(qn_plan *p, qn_pool *pool, qn_trace_ring *ring, int32_t first, int32_t end, qn_error *error) {
    qn_run r = {pool, ring, (p->flags & QN_PLAN_TIMED) != 0, &p->cancelled, ring && !p->device ? &p->current->memory : NULL};
    return qn_run_steps(&r, p->current->schedule, first, end, error);
}

/* ---- Runs */

static qn_status run_all(qn_plan *p, qn_pool *pool, qn_trace_ring *ring, qn_error *error) {
    if (!p->device) return run_steps(p, pool, ring, 0, (int32_t)p->current->schedule->steps.n, error);
    QN_TRY(qn_device_memory_fetch(p, p->current, error));
    for (size_t i = 0; i < p->current->segments.n; i++) {
        qn_segment *segment = &p->current->segments.at[i];
        if (segment->on_device) {
            QN_TRY(qn_segment_run(p, p->current, segment, ring, error));
            continue;
        }
        qn_segment_host_writes(p, segment);
        QN_TRY(run_steps(p, pool, ring, segment->first, segment->end, error));
    }
    return QN_OK;
}

qn_status qn_plan_run(qn_plan *p, qn_context *context, qn_error *error) {
    if (!p) return qn_error_set(error, QN_ARGUMENT, "a plan is needed");
    qn_pool *pool = context ? context->pool : NULL;
    qn_trace_ring *ring = context && qn_trace_on(context->ring) ? context->ring : NULL;
    if (ring) p->is_traced = 1;
    if (p->n_unset || p->is_stale || !p->memory_ready) QN_TRY(prepare_run(p, pool, error));
    if (ring) qn_run_memory_begin(p);
    qn_status status = run_all(p, pool, ring, error);
    if (ring) qn_run_memory_end(ring, &p->current->memory);
    qn_plan_uncancel(p);
    if (status == QN_OK && p->feeds.n) qn_plan_feed_inputs(p);
    if (status != QN_OK) qn_segments_failed(p, p->current);
    return status;
}

void qn_plan_uncancel(qn_plan *p) { atomic_store_explicit(&p->cancelled, 0, memory_order_relaxed); }

void qn_plan_cancel(qn_plan *p) {
    if (p) atomic_store_explicit(&p->cancelled, 1, memory_order_relaxed);
}

/* ---- Looking for the first value that is not finite */

static int64_t count_bad(const qn_tensor *t, qn_plan_bad *bad) {
    qn_rows it;
    double run[QN_RUN];
    if (!qn_is_float(t->dtype)) return 0;
    bad->n_nan = bad->n_infinite = 0;
    for (qn_rows_begin(&it, t->rank, t->shape); it.live; qn_rows_next(&it))
        for (int64_t i = 0; i < it.n; i += QN_RUN) {
            int64_t n = it.n - i < QN_RUN ? it.n - i : QN_RUN;
            qn_load_row(t, qn_row(&it, t), i, n, run);
            for (int64_t k = 0; k < n; k++) {
                if (run[k] - run[k] == 0) continue;
                if (bad->n_nan + bad->n_infinite == 0) bad->first = it.row * it.n + i + k;
                *(run[k] != run[k] ? &bad->n_nan : &bad->n_infinite) += 1;
            }
        }
    return bad->n_nan + bad->n_infinite;
}

/* Asked before the step runs, since it may write over its source. Results before it were fine, so this is a leaf. */
static int bad_source(const qn_plan_step *s) {
    qn_plan_bad unused;
    for (int k = 0; k < s->call.n_src; k++)
        if (s->src[k] && !qn_is_block(s->src[k]->dtype) && count_bad(s->src[k], &unused)) return k;
    return -1;
}

static int is_bad(const qn_plan_step *s, qn_plan_bad *bad) {
    for (int i = 0; i < s->call.n_dst; i++) {
        if (!s->dst[i] || !count_bad(s->dst[i], bad)) continue;
        bad->node = s->node;
        bad->output = i;
        return 1;
    }
    return 0;
}

qn_status qn_plan_find_bad(qn_plan *p, qn_context *context, qn_plan_bad *bad, qn_error *error) {
    if (!p || !bad || bad->size != sizeof *bad) return qn_error_set(error, QN_ARGUMENT, "a plan and a record are needed");
    bad->node = bad->input = bad->output = -1;
    bad->n_nan = bad->n_infinite = bad->first = 0;
    if (p->device)
        return qn_error_set(error, QN_UNSUPPORTED, "looking for bad values runs on the CPU: make the plan without a device");
    qn_pool *pool = context ? context->pool : NULL;
    QN_TRY(prepare_run(p, pool, error));
    const qn_schedule *x = p->current->schedule;
    for (int32_t i = 0; i < (int32_t)x->steps.n && bad->node < 0; i++) {
        int source = bad_source(&x->steps.at[i]);
        qn_status status = run_steps(p, pool, NULL, i, i + 1, error);
        if (status == QN_CANCELLED) qn_plan_uncancel(p); /* as a run does */
        QN_TRY(status);
        if (is_bad(&x->steps.at[i], bad)) bad->input = source;
        else bad->n_nan = bad->n_infinite = bad->first = 0;
    }
    return QN_OK;
}
