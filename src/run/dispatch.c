/* The eager door: one request in, run or rejected, ready again. The machine has one state; each op has an accepting and a
 * rejecting transition, and the guard decides which. Nothing here allocates, locks or remembers, the context's counters aside. */
#include <time.h>

#include "op/guard.h"
#include "run/backend.h"
#include "run/context.h"

static qn_status guard_all(const qn_request *q, qn_guarded *g, qn_result *r) {
    QN_TRY(qn_guard_sources(q, 1, g, r));
    QN_TRY(qn_guard_destinations(q, g));
    QN_TRY(qn_guard_workspace(q, g));
    for (int i = 0; i < q->n_src; i++)
        if (q->src[i] && (q->src[i]->flags & QN_TENSOR_DEVICE))
            return qn_reject(&g->infer, QN_UNSUPPORTED, QN_ARG_SOURCE, i, QN_REASON_NOT_VISIBLE, -1, 0, 0);
    for (int i = 0; i < q->n_dst; i++)
        if (q->dst[i] && (q->dst[i]->flags & QN_TENSOR_DEVICE))
            return qn_reject(&g->infer, QN_UNSUPPORTED, QN_ARG_DEST, i, QN_REASON_NOT_VISIBLE, -1, 0, 0);
    return QN_OK;
}

static void begin(const qn_request *q, qn_result *r) {
    memset(r, 0, sizeof *r);
    r->op = q ? q->op : 0;
    r->subop = q ? q->subop : 0;
    r->dim = -1;
}

static void count(qn_counters *n, qn_status status) {
    switch (status) {
    case QN_OK: n->accepted++; break;
    case QN_INVALID: n->invalid++; break;
    case QN_UNSUPPORTED: n->unsupported++; break;
    case QN_UNEXPECTED: n->unexpected++; break;
    default: n->failed++; break;
    }
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static qn_status execute(qn_context *ctx, const qn_request *q, const qn_guarded *g, qn_result *r) {
    qn_counters *n = &ctx->ops[q->op];
    qn_call call = {q->op, q->subop, q->n_src, q->n_dst, q->src, q->dst, g->infer.attr, q->workspace};
    uint64_t start = ctx->flags & QN_CONTEXT_TIMED ? now() : 0;
    qn_status status = g->info->is_view ? QN_OK : qn_op_rules_of(q->op)->reference(&call);
    if (ctx->flags & QN_CONTEXT_TIMED) n->nanoseconds += now() - start;
    if (status != QN_OK) {
        r->status = QN_USER; /* only a callback can fail once the guard has passed */
        r->reason = QN_REASON_CALLBACK;
        r->actual = status;
        return QN_USER;
    }
    if (g->info->is_view) return QN_OK;
    for (int i = 0; i < q->n_src; i++)
        if (q->src[i] && !(g->info->src[i].flags & QN_SLOT_SHAPE)) n->bytes_read += g->src[i].bytes;
    for (int i = 0; i < q->n_dst; i++)
        if (q->dst[i]) n->bytes_written += g->dst[i].bytes;
    return QN_OK;
}

qn_status qn_dispatch(qn_context *context, const qn_request *request, qn_result *result) {
    qn_result local, *r = result ? result : &local;
    qn_guarded g;
    begin(request, r);
    if (!context || !request) return (qn_status)(r->status = QN_ARGUMENT);
    context->events++;
    qn_status status = guard_all(request, &g, r);
    if (status == QN_OK) status = execute(context, request, &g, r);
    count(request->op < QN_OP_COUNT ? &context->ops[request->op] : &context->unknown, status);
    return status;
}

qn_status qn_can_dispatch(qn_context *context, const qn_request *request, qn_result *result) {
    qn_result local, *r = result ? result : &local;
    qn_guarded g;
    begin(request, r);
    if (!context || !request) return (qn_status)(r->status = QN_ARGUMENT);
    return guard_all(request, &g, r);
}

qn_status qn_infer(const qn_request *request, qn_tensor *out, int *n_out, qn_result *result) {
    qn_result local, *r = result ? result : &local;
    qn_guarded g;
    begin(request, r);
    if (!request || !out || !n_out) return (qn_status)(r->status = QN_ARGUMENT);
    *n_out = 0;
    QN_TRY(qn_guard_sources(request, 0, &g, r));
    for (int i = 0; i < g.infer.n_out; i++) {
        const qn_shape *s = &g.infer.out[i];
        if (qn_tensor_init(&out[i], (qn_dtype)s->dtype, s->rank, s->d, NULL, 0) != QN_OK)
            return qn_reject(&g.infer, QN_INVALID, QN_ARG_DEST, i, QN_REASON_SIZE_OVERFLOW, 0, INT64_MAX, s->d[0]);
    }
    if (g.info->is_view) {
        const qn_tensor *a = request->src[0];
        out[0].data = a->data;
        out[0].size = a->size;
        out[0].offset = g.infer.view_offset;
        out[0].flags = a->flags;
        memcpy(out[0].stride, g.infer.view_stride, sizeof out[0].stride);
        for (int i = out[0].rank; i < QN_MAX_RANK; i++) out[0].stride[i] = 0;
    }
    *n_out = g.infer.n_out;
    return QN_OK;
}

qn_status qn_workspace_bytes(const qn_request *request, size_t *bytes, qn_result *result) {
    qn_result local, *r = result ? result : &local;
    qn_guarded g;
    begin(request, r);
    if (!request || !bytes) return (qn_status)(r->status = QN_ARGUMENT);
    *bytes = 0;
    QN_TRY(qn_guard_sources(request, 0, &g, r));
    *bytes = g.infer.workspace;
    return QN_OK;
}
