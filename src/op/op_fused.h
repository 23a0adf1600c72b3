/* What the fused ops share: a row's worth of epilogue, and the check of the activation they name. */
#ifndef QN_OP_OP_FUSED_H
#define QN_OP_OP_FUSED_H

#include "op/ref.h"

/* Rejects an activation that has parameters: there is no room for them. */
qn_status qn_op_act_check(qn_infer_call *c, int32_t act);
/* Rejects an operand that is added to an output of that dtype and is of another, f32 onto a half aside. */
qn_status qn_op_addend_check(qn_infer_call *c, int slot, uint32_t dtype);

/* y = act(y) and y = y + b, in place, with the references of unary and add; act -1 and b NULL do nothing. */
void qn_op_act_apply(const qn_tensor *y, int32_t act);
void qn_op_addend_apply(const qn_tensor *y, const qn_tensor *b);

#endif
