/* An op's record: what ran, on what, how many operations and bytes it stands for, and which part of the model asked for it. */
#include "run/traced.h"

#include "op/op_bytes.h"

enum { BODY = 6 };
_Static_assert(1 + BODY + QN_TRACE_SHAPE_WORDS + 1 <= QN_TRACE_WORDS_MAX, "the longest record fits");

unsigned qn_run_trace_shapes(const qn_tensor *const *src, int n_src, uint64_t *out) {
    unsigned n = 0;
    for (int i = 0; i < n_src; i++) {
        const qn_tensor *t = src[i];
        out[n++] = t ? t->dtype | (uint64_t)t->rank << 8 : 0;
        for (int k = 0; t && k < t->rank; k++) out[n++] = (uint64_t)t->shape[k];
    }
    return n;
}

uint32_t qn_run_trace_name(qn_trace_ring *ring, const char *name) {
    return qn_trace_label_of(ring, QN_TRACE_NO_PARENT, 0, name ? name : "");
}

uint32_t qn_run_trace_label(qn_trace_ring *ring, const char *path) {
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

/* A time that was given counts as used, so that what ends later on this thread ends later in the file. */
static void note_time(qn_trace_ring *ring, uint64_t end) {
    if (end > ring->last_time) ring->last_time = end;
}

void qn_run_trace_runtime(qn_trace_ring *ring, const char *name, uint64_t start, uint64_t end, uint64_t correlation) {
    uint64_t body[5] = {start, end, qn_run_trace_name(ring, name), correlation, ring->open_op};
    note_time(ring, end);
    qn_trace_write(ring, QN_TRACE_RUNTIME, 0, body, 5);
}

static uint64_t pair(uint32_t low, uint32_t high) { return low | (uint64_t)high << 32; }

void qn_run_trace_work(qn_trace_ring *ring, const qn_record_work *w) {
    uint32_t blocks, occupancy;
    memcpy(&blocks, &w->blocks_per_sm, sizeof blocks);
    memcpy(&occupancy, &w->occupancy, sizeof occupancy);
    uint64_t body[13] = {w->start,
                         w->end,
                         pair(qn_run_trace_name(ring, w->name), w->shared_memory),
                         w->correlation,
                         w->op,
                         pair((uint32_t)w->device, (uint32_t)w->queue),
                         qn_trace_bits(w->flops),
                         w->bytes,
                         pair(w->grid[0], w->grid[1]),
                         pair(w->grid[2], w->block[0]),
                         pair(w->block[1], w->block[2]),
                         pair(blocks, occupancy),
                         ring->label};
    qn_trace_write(ring, QN_TRACE_DEVICE, (unsigned)w->kind, body, 13);
}

static uint64_t traffic(const qn_request *q, const qn_guarded *g) {
    uint64_t bytes = 0;
    if (g->info->is_view) return 0;
    for (int i = 0; i < q->n_src; i++)
        if (q->src[i]) bytes += qn_op_bytes_read(g->info, q->op, i, g->src[i].bytes, q->src);
    for (int i = 0; i < q->n_dst; i++)
        if (q->dst[i]) bytes += g->dst[i].bytes;
    return bytes;
}

void qn_run_trace_step_at(qn_trace_ring *ring, const qn_trace_span *span, uint64_t end, const qn_call *c, double flops,
                          uint64_t bytes) {
    uint64_t body[BODY + QN_TRACE_SHAPE_WORDS];
    body[0] = span->start;
    body[1] = end;
    body[2] = span->id;
    body[3] = qn_trace_bits(flops);
    body[4] = bytes;
    body[5] = ring->label | (uint64_t)c->subop << 32;
    unsigned n = BODY;
    if (ring->shapes) {
        int n_src = c->n_src < QN_TRACE_SOURCES ? c->n_src : QN_TRACE_SOURCES;
        body[5] |= (uint64_t)n_src << 48;
        n += qn_run_trace_shapes(c->src, n_src, body + BODY);
    }
    note_time(ring, end);
    ring->last_op = span->id;
    qn_trace_write(ring, QN_TRACE_OP, (unsigned)c->op, body, n);
}

void qn_run_trace_step(qn_trace_ring *ring, const qn_trace_span *span, const qn_call *c, double flops, uint64_t bytes,
                       qn_status status) {
    uint64_t end;
    if (qn_trace_end(ring, span, &end) && status == QN_OK) qn_run_trace_step_at(ring, span, end, c, flops, bytes);
}

void qn_run_trace_op(qn_trace_ring *ring, const qn_trace_span *span, const qn_request *q, const qn_guarded *g, qn_status status) {
    qn_call call = {q->op, q->subop, q->n_src, q->n_dst, q->src, q->dst, NULL, NULL};
    int ran = status == QN_OK; /* of a rejected request the guard may know nothing */
    qn_run_trace_step(ring, span, &call, ran ? qn_op_flops(&g->infer) : 0, ran ? traffic(q, g) : 0, status);
}
