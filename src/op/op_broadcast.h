/* The two loops of ops of two broadcast operands: over doubles, and over integers, which stay exact. */
#ifndef QN_OP_OP_BROADCAST_H
#define QN_OP_OP_BROADCAST_H

#include "op/integer.h"
#include "op/op_axes.h"

/* y = f(a, b), both stretched to y; f works on runs, the result in its first argument. */
void qn_op_pairs(const qn_tensor *y, const qn_tensor *a, const qn_tensor *b, qn_run2_fn f);

typedef int64_t (*qn_op_integer_fn)(int64_t a, int64_t b);
/* The same for integer a and b; what does not fit y is saturated. */
void qn_op_integer_pairs(const qn_tensor *y, const qn_tensor *a, const qn_tensor *b, qn_op_integer_fn f);

/* What arith computes of integers, by the number of its sub-op; 64 bits, saturated. */
int64_t qn_op_integer_arith(int subop, int64_t a, int64_t b);

#endif
