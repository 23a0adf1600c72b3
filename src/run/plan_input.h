/* What sessions ask of a plan beside the public calls: inputs written where it keeps them, without a copy on the way; params read and
 * changed in part; and that a cancellation that came between two runs ends with the session's call, not with the next one. */
#ifndef QN_RUN_PLAN_INPUT_H
#define QN_RUN_PLAN_INPUT_H

#include <quern/plan.h>

/* An input's memory, with room for the largest extents of its symbols; it stays there as long as the plan. What was written counts
 * once qn_plan_set is called with a tensor whose data is that memory. */
qn_status qn_plan_input_room(qn_plan *plan, const char *name, void **at, qn_error *error);
/* A param that was set, as it is now, whichever side has the newest of it and whether or not anything has run: some of its bytes; and
 * all of them where the host keeps them, which stays so until the next run. What was written there counts once
 * qn_plan_param_written is called. */
qn_status qn_plan_param_read(qn_plan *plan, const char *name, uint64_t offset, void *to, uint64_t bytes, qn_error *error);
qn_status qn_plan_param_room(qn_plan *plan, const char *name, void **at, qn_error *error);
void qn_plan_param_written(qn_plan *plan, const char *name);
/* Forgets a cancellation that no run has met yet. */
void qn_plan_uncancel(qn_plan *plan);

#endif
