/* What a recorded run says about memory: values of the arena come to life in the step that makes them and are released by the step
 * that uses them last, whatever memory they share meanwhile. Leaves, constants and packed weights are there all the time; the
 * memory of bodies is scratch of the step around them. Totals are those of the plan that runs. */
#include "run/plan_impl.h"

static void write_change(qn_trace_ring *ring, const qn_run_memory *m, qn_val v, int64_t bytes, uint64_t at) {
    uint64_t time = at ? at : qn_trace_time(ring);
    uint64_t body[7] = {time,
                        time,
                        m->base + m->schedule->slots[v].offset,
                        (uint64_t)bytes,
                        m->kept + m->alive,
                        m->reserved,
                        (uint64_t)(int64_t)m->device};
    qn_trace_write(ring, QN_TRACE_MEMORY, 0, body, 7);
}

static void release(qn_trace_ring *ring, qn_run_memory *m, qn_val v, uint64_t at) {
    uint64_t bytes = m->schedule->slots[v].bytes;
    m->is_alive[v] = 0;
    m->alive -= bytes;
    write_change(ring, m, v, -(int64_t)bytes, at);
}

void qn_run_memory_begin(qn_plan *p) {
    qn_special *x = p->current;
    qn_run_memory *m = &x->memory;
    const qn_plan_totals *t = &x->schedule->totals;
    size_t n = x->schedule->graph->values.n;
    if (!m->is_alive) m->is_alive = qn_arena_alloc(&x->schedule->arena, n, 1);
    m->schedule = m->is_alive ? x->schedule : NULL; /* no memory: the run is worth more than its curve */
    if (!m->schedule) return;
    memset(m->is_alive, 0, n);
    m->device = p->device ? 0 : -1;
    m->base = p->device ? (uintptr_t)p->device_buffer : (uintptr_t)p->memory;
    m->alive = 0;
    m->kept = t->param_bytes + t->input_bytes + t->constant_bytes + (p->device ? 0 : t->packed_bytes);
    m->reserved = p->device ? qn_device_memory_held(p).device : m->kept + p->memory_bytes;
}

void qn_run_memory_births(qn_trace_ring *ring, qn_run_memory *m, const qn_plan_step *s, uint64_t at) {
    const qn_schedule *x = m->schedule;
    for (int i = 0; i < s->call.n_dst; i++) {
        if (!s->dst[i]) continue;
        qn_val root = x->slots[s->dst[i] - x->tensors].root;
        uint64_t bytes = x->slots[root].bytes;
        if (x->slots[root].storage != QN_STORAGE_ARENA || m->is_alive[root] || !bytes) continue;
        m->is_alive[root] = 1;
        m->alive += bytes;
        write_change(ring, m, root, (int64_t)bytes, at);
    }
}

static void release_dead(qn_trace_ring *ring, qn_run_memory *m, const qn_tensor *const *list, int n, int32_t node, uint64_t at) {
    const qn_schedule *x = m->schedule;
    for (int i = 0; i < n; i++) {
        if (!list[i]) continue;
        qn_val root = x->slots[list[i] - x->tensors].root;
        if (m->is_alive[root] && x->slots[root].dies <= node) release(ring, m, root, at);
    }
}

void qn_run_memory_deaths(qn_trace_ring *ring, qn_run_memory *m, const qn_plan_step *s, uint64_t at) {
    release_dead(ring, m, s->src, s->call.n_src, s->node, at);
    release_dead(ring, m, s->dst, s->call.n_dst, s->node, at); /* results nobody reads */
}

/* What is left are outputs, which the next run writes over, and what a run that failed left behind. */
void qn_run_memory_end(qn_trace_ring *ring, qn_run_memory *m) {
    for (size_t v = 0; m->schedule && v < m->schedule->graph->values.n; v++)
        if (m->is_alive[v]) release(ring, m, (qn_val)v, 0);
    m->schedule = NULL;
}
