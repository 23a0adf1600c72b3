/* Contexts: made with the caller's allocator, told apart by nothing but their address. */
#include "run/context.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/memory.h"
#include "cpu/cpu.h"

qn_status qn_context_create(const qn_context_options *options, qn_context **context) {
    if (!context) return QN_ARGUMENT;
    *context = NULL;
    qn_context_options o;
    memset(&o, 0, sizeof o);
    if (options) {
        if (options->size != sizeof o) return QN_ARGUMENT;
        o = *options;
    }
    if (o.flags & ~(QN_CONTEXT_TIMED | QN_CONTEXT_REFERENCE)) return QN_ARGUMENT;
    if (!o.allocator.allocate != !o.allocator.release) return QN_ARGUMENT;
    if (!o.allocator.allocate) o.allocator = qn_memory_default();
    qn_context *c = o.allocator.allocate(o.allocator.user, sizeof *c, 64);
    if (!c) return QN_NO_MEMORY;
    memset(c, 0, sizeof *c);
    c->allocator = o.allocator;
    c->log = o.log;
    c->log_user = o.log_user;
    c->flags = o.flags;
    c->pool = o.pool;
    c->cpu_levels = o.flags & QN_CONTEXT_REFERENCE ? 0 : qn_cpu_levels();
    *context = c;
    qn_run_log(c, QN_LOG_DEBUG, "quern %s: context with %d ops", qn_version(), (int)QN_OP_COUNT);
    return QN_OK;
}

void qn_context_destroy(qn_context *context) {
    if (!context) return;
    if (context->ring) atomic_store_explicit(&context->ring->slot, NULL, memory_order_release); /* its recorder outlives it */
    context->allocator.release(context->allocator.user, context, sizeof *context);
}

void qn_run_log(const qn_context *context, qn_log_level level, const char *format, ...) {
    if (!context->log) return;
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    context->log(context->log_user, level, text);
}

qn_status qn_context_counters(const qn_context *context, int op, qn_counters *counters) {
    if (!context || !counters || op < 0 || op >= QN_OP_COUNT) return QN_ARGUMENT;
    *counters = context->ops[op];
    return QN_OK;
}

uint64_t qn_context_events(const qn_context *context) { return context ? context->events : 0; }
