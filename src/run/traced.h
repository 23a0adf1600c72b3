/* What a dispatched op leaves in the ring of its context. */
#ifndef QN_RUN_TRACED_H
#define QN_RUN_TRACED_H

#include "base/trace.h"
#include "op/guard.h"

/* Ends the span; an op that ran is written down, one that was rejected is not. */
void qn_run_trace_op(qn_trace_ring *ring, const qn_trace_span *span, const qn_request *request, const qn_guarded *guarded,
                     qn_status status);

/* The same for a step of a plan, whose cost was worked out when it was planned. */
void qn_run_trace_step(qn_trace_ring *ring, const qn_trace_span *span, const qn_call *call, double flops, uint64_t bytes,
                       qn_status status);

/* Appends the shapes of the sources, of at most QN_TRACE_SOURCES: one word dtype | rank << 8 each (0 when it was left out), then its extents. Returns the
 * words; `out` has room for QN_TRACE_SHAPE_WORDS. */
enum { QN_TRACE_SOURCES = 10, QN_TRACE_SHAPE_WORDS = QN_TRACE_SOURCES * (1 + QN_MAX_RANK) };
unsigned qn_run_trace_shapes(const qn_tensor *const *src, int n_src, uint64_t *out);

#endif
