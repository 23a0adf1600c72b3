/* Inputs written where a plan keeps them, without a copy on the way. */
#ifndef QN_RUN_PLAN_INPUT_H
#define QN_RUN_PLAN_INPUT_H

#include <quern/plan.h>

/* An input's memory, with room for the largest extents of its symbols; it stays there as long as the plan. What was written counts
 * once qn_plan_set is called with a tensor whose data is that memory. */
qn_status qn_plan_input_room(qn_plan *plan, const char *name, void **at, qn_error *error);

#endif
