/* What sessions ask of a plan beside the public calls: inputs written where it keeps them, without a copy on the way; and that a
 * cancellation that came between two runs ends with the session's call, not with the next one. */
#ifndef QN_RUN_PLAN_INPUT_H
#define QN_RUN_PLAN_INPUT_H

#include <quern/plan.h>

/* An input's memory, with room for the largest extents of its symbols; it stays there as long as the plan. What was written counts
 * once qn_plan_set is called with a tensor whose data is that memory. */
qn_status qn_plan_input_room(qn_plan *plan, const char *name, void **at, qn_error *error);
/* Forgets a cancellation that no run has met yet. */
void qn_plan_uncancel(qn_plan *plan);

#endif
