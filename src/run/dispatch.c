/* The eager door: one request in, run or rejected, ready again. The machine has one state; each op has an accepting and a
 * rejecting transition, and the guard decides which. Nothing here allocates, locks or remembers, the context's counters aside. */
#include "base/clock.h"
#include "cpu/cpu.h"
#include "op/guard.h"
#include "op/op_bytes.h"
#include "run/backend.h"
#include "run/context.h"
#include "run/traced.h"

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

static void count(qn_counters *n, qn_status status) {
    switch (status) {
    case QN_OK: n->accepted++; break;
    case QN_INVALID: n->invalid++; break;
    case QN_UNSUPPORTED: n->unsupported++; break;
    case QN_UNEXPECTED: n->unexpected++; break;
    default: n->failed++; break;
    }
}

/* The kernel that will do it, when there is one: its scratch, not the reference's, is then what counts. */
static qn_status choose(const qn_context *ctx, const qn_request *q, qn_guarded *g, qn_cpu_step *kernel) {
    qn_call call = {q->op, q->subop, q->n_src, q->n_dst, q->src, q->dst, g->infer.attr, NULL};
    kernel->run = NULL;
    kernel->constant = 0;
    if (!ctx->cpu_levels || g->info->is_view) return QN_OK;
    if (!qn_cpu_prepare(ctx->cpu_levels, &call, kernel)) {
        kernel->run = NULL;
        return QN_OK;
    }
    g->infer.workspace = kernel->workspace;
    return qn_guard_workspace(q, g);
}

static qn_status execute(qn_context *ctx, const qn_request *q, qn_guarded *g, qn_result *r) {
    qn_counters *n = &ctx->ops[q->op];
    qn_call call = {q->op, q->subop, q->n_src, q->n_dst, q->src, q->dst, g->infer.attr, q->workspace};
    qn_cpu_step kernel;
    QN_TRY(choose(ctx, q, g, &kernel));
    uint64_t start = ctx->flags & QN_CONTEXT_TIMED ? qn_clock_now() : 0;
    qn_status status = QN_OK;
    if (kernel.run) qn_cpu_run(ctx->pool, &call, &kernel);
    else if (!g->info->is_view) status = qn_op_rules_of(q->op)->reference(&call);
    if (ctx->flags & QN_CONTEXT_TIMED) n->nanoseconds += qn_clock_now() - start;
    if (status != QN_OK) {
        r->status = QN_USER; /* only a callback can fail once the guard has passed */
        r->reason = QN_REASON_CALLBACK;
        r->actual = status;
        return QN_USER;
    }
    if (g->info->is_view) return QN_OK;
    for (int i = 0; i < q->n_src; i++)
        if (q->src[i]) n->bytes_read += qn_op_bytes_read(g->info, q->op, i, g->src[i].bytes, q->src);
    for (int i = 0; i < q->n_dst; i++)
        if (q->dst[i]) n->bytes_written += g->dst[i].bytes;
    return QN_OK;
}

static int has_ranks(const qn_request *q, const qn_guarded *g) {
    for (int i = 0; i < q->n_dst; i++)
        if (q->dst[i] && q->dst[i]->rank != g->infer.out[i].rank) return 0;
    return 1;
}

/* Ops count axes from the front, and so see destinations, which may have more or fewer ones there, as their rules would have them. */
__attribute__((noinline)) static qn_status execute_with_ranks(qn_context *ctx, const qn_request *q, qn_guarded *g, qn_result *r) {
    qn_request same = *q;
    qn_tensor made[QN_MAX_DST];
    for (int i = 0; i < q->n_dst; i++) {
        if (!q->dst[i]) continue;
        made[i] = qn_layout_with_rank(q->dst[i], g->infer.out[i].rank);
        same.dst[i] = &made[i];
    }
    return execute(ctx, &same, g, r);
}

/* Inlined into both, so that not recording costs a branch and no more. */
__attribute__((always_inline)) static inline qn_status dispatch(qn_context *context, const qn_request *request, qn_guarded *g,
                                                                qn_result *r) {
    qn_status status = guard_all(request, g, r);
    if (status == QN_OK)
        status = has_ranks(request, g) ? execute(context, request, g, r) : execute_with_ranks(context, request, g, r);
    count(request->op < QN_OP_COUNT ? &context->ops[request->op] : &context->unknown, status);
    return status;
}

__attribute__((noinline)) static qn_status dispatch_traced(qn_context *context, const qn_request *request, qn_result *r) {
    qn_trace_ring *ring = context->ring;
    qn_trace_span span;
    qn_guarded g;
    qn_trace_begin(ring, &span);
    qn_status status = dispatch(context, request, &g, r);
    qn_run_trace_op(ring, &span, request, &g, status);
    return status;
}

qn_status qn_dispatch(qn_context *context, const qn_request *request, qn_result *result) {
    qn_result local, *r = result ? result : &local;
    qn_guarded g;
    qn_result_begin(request, r);
    if (!context || !request) return qn_result_lacks(r, request ? QN_REASON_NO_CONTEXT : QN_REASON_NO_REQUEST);
    context->events++;
    if (qn_trace_on(context->ring)) return dispatch_traced(context, request, r);
    return dispatch(context, request, &g, r);
}

qn_status qn_can_dispatch(qn_context *context, const qn_request *request, qn_result *result) {
    qn_result local, *r = result ? result : &local;
    qn_guarded g;
    qn_result_begin(request, r);
    if (!context || !request) return qn_result_lacks(r, request ? QN_REASON_NO_CONTEXT : QN_REASON_NO_REQUEST);
    return guard_all(request, &g, r);
}

/* A destination the caller has laid out already, and rightly. */
static int is_given(const qn_request *q, int i, const qn_shape *s) {
    const qn_tensor *t = i < q->n_dst ? q->dst[i] : NULL;
    if (!t || t->dtype != s->dtype || t->rank < 1 || t->rank > QN_MAX_RANK) return 0;
    for (int k = 0; k < s->rank || k < t->rank; k++)
        if (qn_ne(t, k) != qn_sd(s, k)) return 0;
    return 1;
}

/* What the kernel asks for with all destinations that there can be, or without the optional ones that the request does not have: a kernel
 * may go another way for want of one. */
static size_t kernel_workspace(const qn_request *q, const qn_guarded *g, uint32_t levels, int all) {
    qn_tensor out[QN_MAX_DST];
    const qn_tensor *dst[QN_MAX_DST] = {NULL};
    int n = 0;
    for (int i = 0; i < g->infer.n_out; i++) {
        const qn_shape *s = &g->infer.out[i];
        if (!all && (g->info->dst[i].flags & QN_SLOT_OPTIONAL) && (i >= q->n_dst || !q->dst[i])) continue;
        n = i + 1;
        dst[i] = &out[i];
        if (is_given(q, i, s)) out[i] = qn_layout_with_rank(q->dst[i], s->rank);
        else qn_tensor_init(&out[i], (qn_dtype)s->dtype, s->rank, s->d, NULL, 0);
    }
    qn_call call = {q->op, q->subop, q->n_src, n, q->src, dst, g->infer.attr, NULL};
    qn_cpu_step kernel;
    kernel.constant = 0;
    return qn_cpu_prepare(levels, &call, &kernel) ? kernel.workspace : 0;
}

/* What the reference asks for or what the kernel asks for, whichever is more: the caller need not know which will run. */
qn_status qn_workspace_bytes(const qn_request *request, size_t *bytes, qn_result *result) {
    qn_result local, *r = result ? result : &local;
    qn_guarded g;
    qn_result_begin(request, r);
    if (!request || !bytes) return qn_result_lacks(r, request ? QN_REASON_NO_PLACE : QN_REASON_NO_REQUEST);
    *bytes = 0;
    QN_TRY(qn_guard_sources(request, 0, &g, r));
    *bytes = g.infer.workspace;
    if (g.info->is_view || !qn_cpu_has_kernel(request->op)) return QN_OK;
    uint32_t levels = qn_cpu_levels();
    for (int all = request->n_dst == 0; all < 2; all++) {
        size_t more = kernel_workspace(request, &g, levels, all);
        if (more > *bytes) *bytes = more;
    }
    return QN_OK;
}
