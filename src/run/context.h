/* What a context holds: hooks and counters. No tensor, no queue, no lock: one thread uses it at a time. */
#ifndef QN_RUN_CONTEXT_H
#define QN_RUN_CONTEXT_H

#include <quern/quern.h>

#include "base/trace.h"

struct qn_context {
    qn_allocator allocator;
    qn_log_fn log;
    void *log_user;
    uint32_t flags;
    uint32_t cpu_levels; /* kernels that may be chosen; 0: references only */
    qn_pool *pool;
    uint64_t events;
    qn_trace_ring *ring; /* the recorder's, NULL when nothing is recorded */
    qn_counters ops[QN_OP_COUNT];
    qn_counters unknown; /* requests that name no op */
};

/* Formats and hands a line to the context's log callback, if it has one. */
QN_PRINTF(3, 4) void qn_run_log(const qn_context *context, qn_log_level level, const char *format, ...);

#endif
