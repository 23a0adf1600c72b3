/* An op's record: what ran, on what, how many operations and bytes it stands for, and which part of the model asked for it. */
#include "run/traced.h"

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

static uint64_t traffic(const qn_request *q, const qn_guarded *g) {
    uint64_t bytes = 0;
    if (g->info->is_view) return 0;
    for (int i = 0; i < q->n_src; i++)
        if (q->src[i] && !(g->info->src[i].flags & QN_SLOT_SHAPE)) bytes += g->src[i].bytes;
    for (int i = 0; i < q->n_dst; i++)
        if (q->dst[i]) bytes += g->dst[i].bytes;
    return bytes;
}

void qn_run_trace_step(qn_trace_ring *ring, const qn_trace_span *span, const qn_call *c, double flops, uint64_t bytes,
                       qn_status status) {
    uint64_t body[BODY + QN_TRACE_SHAPE_WORDS];
    if (!qn_trace_end(ring, span, &body[1]) || status != QN_OK) return;
    body[0] = span->start;
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
    ring->last_op = span->id;
    qn_trace_write(ring, QN_TRACE_OP, (unsigned)c->op, body, n);
}

void qn_run_trace_op(qn_trace_ring *ring, const qn_trace_span *span, const qn_request *q, const qn_guarded *g, qn_status status) {
    qn_call call = {q->op, q->subop, q->n_src, q->n_dst, q->src, q->dst, NULL, NULL};
    int ran = status == QN_OK; /* of a rejected request the guard may know nothing */
    qn_run_trace_step(ring, span, &call, ran ? qn_op_flops(&g->infer) : 0, ran ? traffic(q, g) : 0, status);
}
