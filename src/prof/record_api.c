/* What programs and executors tell the recorder about. Every function is a no-op on a context without a ring, and costs a branch
 * while a schedule waits; ranges are followed even then, so that ops know their part when recording begins. */
#include "prof/record.h"

#include "run/context.h"
#include "run/traced.h"

static qn_trace_ring *ring_of(const qn_context *context) { return context ? context->ring : NULL; }

static qn_trace_ring *recording_ring(const qn_context *context) {
    qn_trace_ring *ring = ring_of(context);
    return qn_trace_on(ring) ? ring : NULL;
}

/* ---- Parts and steps ---------------------------------------------------------------------------------------------- */

void qn_record_push(qn_context *context, qn_part part, const char *label) {
    qn_trace_ring *ring = ring_of(context);
    if (!ring) return;
    uint32_t depth = ring->depth++;
    if (depth >= QN_TRACE_DEPTH) return;
    if ((unsigned)part >= QN_PART_COUNT) part = QN_PART_RANGE;
    uint32_t parent = ring->label, id = qn_trace_label_of(ring, parent, (unsigned)part, label ? label : "");
    qn_trace_open *open = &ring->open[depth];
    open->start = qn_trace_on(ring) ? qn_trace_time(ring) : 0;
    open->instance = ++ring->instances;
    open->label = id;
    open->kind = (uint32_t)part;
    open->around = parent;
    if (id) ring->label = id;
}

void qn_record_pop(qn_context *context) {
    qn_trace_ring *ring = ring_of(context);
    if (!ring || ring->depth == 0 || --ring->depth >= QN_TRACE_DEPTH) return;
    const qn_trace_open *open = &ring->open[ring->depth];
    ring->label = open->around;
    if (!open->start || !open->label || !qn_trace_on(ring)) return;
    uint64_t module_around = 0;
    for (uint32_t i = ring->depth; i-- > 0 && !module_around;)
        if (ring->open[i].kind == QN_PART_MODULE) module_around = ring->open[i].instance;
    uint64_t body[5] = {open->start, qn_trace_time(ring), open->label, open->instance, module_around};
    qn_trace_write(ring, QN_TRACE_RANGE, open->kind, body, 5);
}

void qn_record_loader_begin(qn_context *context, const char *name) { qn_record_push(context, QN_PART_LOADER, name); }

void qn_record_loader_end(qn_context *context) { qn_record_pop(context); }

qn_status qn_record_step(qn_context *context, qn_error *error) {
    qn_trace_ring *ring = ring_of(context);
    if (!ring) return QN_OK;
    qn_recorder *recorder = ring->recorder;
    pthread_mutex_lock(&recorder->lock);
    qn_status status = qn_record_schedule(recorder, ring, qn_trace_time(ring), error);
    pthread_mutex_unlock(&recorder->lock);
    return status;
}

/* ---- Memory and counters ------------------------------------------------------------------------------------------ */

void qn_record_memory(qn_context *context, const void *address, int64_t bytes, int64_t total_allocated, int64_t total_reserved,
                      int device) {
    qn_trace_ring *ring = recording_ring(context);
    if (!ring) return;
    uint64_t now = qn_trace_time(ring);
    uint64_t body[7] = {now,
                        now,
                        (uint64_t)(uintptr_t)address,
                        (uint64_t)bytes,
                        (uint64_t)total_allocated,
                        (uint64_t)total_reserved,
                        (uint64_t)(int64_t)device};
    qn_trace_write(ring, QN_TRACE_MEMORY, 0, body, 7);
}

void qn_record_counter(qn_context *context, const char *name, double value) {
    qn_trace_ring *ring = recording_ring(context);
    if (!ring) return;
    uint64_t now = qn_trace_time(ring);
    uint64_t body[4] = {now, now, qn_run_trace_name(ring, name), qn_trace_bits(value)};
    qn_trace_write(ring, QN_TRACE_COUNTER, 0, body, 4);
}

/* ---- Work with times of its own ----------------------------------------------------------------------------------- */

uint64_t qn_record_time(qn_context *context) {
    qn_trace_ring *ring = recording_ring(context);
    return ring ? qn_trace_time(ring) : 0;
}

uint64_t qn_record_open_op(qn_context *context) {
    qn_trace_ring *ring = recording_ring(context);
    return ring ? ring->open_op : 0;
}

uint64_t qn_record_last_op(qn_context *context) {
    qn_trace_ring *ring = recording_ring(context);
    return ring ? ring->last_op : 0;
}

uint64_t qn_record_correlation(qn_context *context) {
    qn_trace_ring *ring = recording_ring(context);
    return ring ? qn_trace_next_id(ring) : 0; /* ids are unique as well, and plans draw from them too */
}

/* Times this clock can have; beyond 2^62 arithmetic on them could overflow. */
static int sound(uint64_t start, uint64_t end) { return start <= end && end < (uint64_t)1 << 62; }

uint64_t qn_record_host_work(qn_context *context, const qn_record_host *work) {
    qn_trace_ring *ring = recording_ring(context);
    if (!ring || !work || work->size != sizeof *work || !sound(work->start, work->end)) return 0;
    uint64_t body[7 + QN_TRACE_SHAPE_WORDS];
    int n_src = ring->shapes && work->src && work->n_src > 0 ? work->n_src : 0;
    if (n_src > QN_TRACE_SOURCES) n_src = QN_TRACE_SOURCES;
    body[0] = work->start;
    body[1] = work->end;
    body[2] = qn_trace_next_id(ring);
    body[3] = qn_trace_bits(work->flops);
    body[4] = work->bytes;
    body[5] = ring->label | (uint64_t)n_src << 48;
    body[6] = qn_run_trace_name(ring, work->name);
    for (int i = 0; i < n_src; i++)
        if (work->src[i] && (work->src[i]->rank < 0 || work->src[i]->rank > QN_MAX_RANK)) return 0;
    unsigned n = 7 + qn_run_trace_shapes(work->src, n_src, body + 7);
    if (work->end > ring->last_time) ring->last_time = work->end; /* what ends later on this thread ends later in the file */
    ring->last_op = body[2];
    qn_trace_write(ring, QN_TRACE_HOST, 0, body, n);
    return body[2];
}

void qn_record_runtime(qn_context *context, const char *name, uint64_t start, uint64_t end, uint64_t correlation) {
    qn_trace_ring *ring = recording_ring(context);
    if (ring && sound(start, end)) qn_run_trace_runtime(ring, name, start, end, correlation);
}

void qn_record_device_work(qn_context *context, const qn_record_work *w) {
    qn_trace_ring *ring = recording_ring(context);
    if (!ring || !w || w->size != sizeof *w || (unsigned)w->kind >= QN_DEVICE_WORK_COUNT || !sound(w->start, w->end)) return;
    qn_run_trace_work(ring, w);
}

void qn_record_link(qn_context *context, uint64_t forward_op, uint64_t backward_op) {
    qn_trace_ring *ring = recording_ring(context);
    if (!ring || !forward_op || !backward_op) return;
    uint64_t now = qn_trace_time(ring);
    uint64_t body[4] = {now, now, forward_op, backward_op};
    qn_trace_write(ring, QN_TRACE_LINK, 0, body, 4);
}
