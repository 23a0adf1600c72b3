/* The guard every request passes, eager or planned: one function checks a request against the table and runs the op's own
 * rule. What it accepts, kernels may trust. */
#ifndef QN_OP_GUARD_H
#define QN_OP_GUARD_H

#include "op/op.h"
#include "tensor/layout.h"

/* A result record before anything is known. */
static inline void qn_result_begin(const qn_request *q, qn_result *r) {
    memset(r, 0, sizeof *r);
    r->op = q ? q->op : UINT16_MAX; /* no op has it */
    r->subop = q ? q->subop : 0;
    r->dim = -1;
}

/* What the call itself lacks. */
static inline qn_status qn_result_lacks(qn_result *r, qn_reason reason) {
    r->reason = (uint16_t)reason;
    return (qn_status)(r->status = QN_ARGUMENT);
}

/* A request that was understood. Points into the request. */
typedef struct qn_guarded {
    const qn_op_info *info;
    qn_infer_call infer;
    qn_span src[QN_MAX_SRC], dst[QN_MAX_DST]; /* of the slots that were given */
} qn_guarded;

/* Record, op, sources, attributes, then the op's own rule: everything but the destinations. With need_data every source that
 * has elements must have data, and indices are checked; without, descriptors alone are enough. */
qn_status qn_guard_sources(const qn_request *request, int need_data, qn_guarded *guarded, qn_result *result);
/* Every value of an index tensor in [0, limit)? If not, which one and what it is. */
int qn_guard_indices(const qn_tensor *t, int64_t limit, int64_t *which, int64_t *value);
/* The destinations: descriptors, then agreement with what the rule inferred, then no undeclared overlap. */
qn_status qn_guard_destinations(const qn_request *request, qn_guarded *guarded);
/* The workspace: there, large enough, aligned, apart from every tensor. */
qn_status qn_guard_workspace(const qn_request *request, qn_guarded *guarded);
/* Reject on behalf of a request; fills the record and returns the status. */
qn_status qn_reject(qn_infer_call *c, qn_status status, int arg_kind, int arg, qn_reason reason, int dim, int64_t expected,
                    int64_t actual);

#endif
