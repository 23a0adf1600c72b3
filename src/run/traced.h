/* What a dispatched op leaves in the ring of its context. */
#ifndef QN_RUN_TRACED_H
#define QN_RUN_TRACED_H

#include "base/trace.h"
#include "op/guard.h"
#include "quern/record.h"

/* Ends the span; an op that ran is written down, one that was rejected is not. */
void qn_run_trace_op(qn_trace_ring *ring, const qn_trace_span *span, const qn_request *request, const qn_guarded *guarded,
                     qn_status status);

/* The same for a step of a plan, whose cost was worked out when it was planned. */
void qn_run_trace_step(qn_trace_ring *ring, const qn_trace_span *span, const qn_call *call, double flops, uint64_t bytes,
                       qn_status status);

/* One that ended at a time of its own and is not the innermost any more. */
void qn_run_trace_step_at(qn_trace_ring *ring, const qn_trace_span *span, uint64_t end, const qn_call *call, double flops,
                          uint64_t bytes);

/* A call into a driver, by the op that is open; and work on a device. Their times are given. */
void qn_run_trace_runtime(qn_trace_ring *ring, const char *name, uint64_t start, uint64_t end, uint64_t correlation);
void qn_run_trace_work(qn_trace_ring *ring, const qn_record_work *work);

/* The number of a name in the ring; and of a part of the graph, "a / b / c", interned part by part so that time adds up by part. */
uint32_t qn_run_trace_name(qn_trace_ring *ring, const char *name);
uint32_t qn_run_trace_label(qn_trace_ring *ring, const char *path);

/* Appends the shapes of the sources, of at most QN_TRACE_SOURCES: one word dtype | rank << 8 each (0 when it was left out), then its extents. Returns the
 * words; `out` has room for QN_TRACE_SHAPE_WORDS. */
enum { QN_TRACE_SOURCES = 10, QN_TRACE_SHAPE_WORDS = QN_TRACE_SOURCES * (1 + QN_MAX_RANK) };
unsigned qn_run_trace_shapes(const qn_tensor *const *src, int n_src, uint64_t *out);

#endif
