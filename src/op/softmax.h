/* The row sum that softmax and the losses share. */
#ifndef QN_OP_SOFTMAX_H
#define QN_OP_SOFTMAX_H

#include <quern/quern.h>

/* ln of the sum of e^x over a row, without overflow; -Inf for a row of nothing but -Inf. */
double qn_op_row_log_sum(const qn_tensor *x, const char *row, int64_t n);

#endif
