/* Whole graphs for the modes that run plans: steps of training, a layer of a model with weights in blocks, branches and loops. All are
 * large enough for kernels to be shared among threads. */
#ifndef QN_TESTS_CHECK_PLANS_H
#define QN_TESTS_CHECK_PLANS_H

#include <quern/plan.h>

#include "check.h"

typedef struct qc_plan {
    const char *name;
    qn_graph *graph;
    qn_plan *plan;
} qc_plan;

int qc_plans_count(void);
/* Parsed, derived where it has a loss, planned and given its numbers, always the same; 0 after a failure, which is reported. */
int qc_plan_begin(int number, qc_plan *p);
/* Runs it three times and gathers the outputs of the last, at most room bytes; -1 after a failure, which is reported. */
int64_t qc_plan_run(qc_plan *p, qn_context *context, unsigned char *out, size_t room);
void qc_plan_end(qc_plan *p);

#endif
