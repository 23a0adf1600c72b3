/* What the trainings of `quern train` have in common: a sentence when something fails, networks and their plans, params at their start and
 * handed on. All return 0 or NULL when they fail, and have said why. */
#ifndef QN_APPS_TRAIN_PARAMS_H
#define QN_APPS_TRAIN_PARAMS_H

#include <quern/device.h>

#include "net.h"

int train_fail(const char *what, const char *text); /* 0 */
int train_set(qn_plan *plan, const char *name, qn_dtype dtype, int rank, const int64_t *shape, const void *data, size_t bytes);
/* An empty network; its plan, when the graph was `built`; both at their end, either may be missing. */
net *train_net(void);
int train_plan(const net *n, int built, qn_device *device, qn_plan **plan);
void train_free(net *n, qn_plan *plan);
/* Every param as its network says, and zeros for AdamW's means. */
int train_start(const net *n, qn_plan *step, uint64_t *random);
/* A param as the last step left it, into the plan that only looks. */
int train_hand_on(const net_param *p, const qn_plan *step, qn_plan *look, qn_tensor *t);

#endif
