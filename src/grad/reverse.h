/* Reverse mode with several ends, for whoever differentiates something that is not a loss: the body of a loop, say. */
#ifndef QN_GRAD_REVERSE_H
#define QN_GRAD_REVERSE_H

#include "ir/graph.h"

/* Appends the gradients by wrt of whatever has the gradients `seed` at the values `at`; QN_VAL_NONE where there is none. */
qn_status qn_grad_reverse(qn_graph *g, int n_seed, const qn_val *at, const qn_val *seed, int n, const qn_val *wrt, qn_val *grads);
/* From the values marked, marks every float that depends on one of them. */
void qn_grad_mark_varying(const qn_graph *g, uint8_t *varies);

#endif
