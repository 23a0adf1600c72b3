/* Which backends there are, and which ops each has kernels for. */
#include "run/backend.h"

#include "op/op.h"

static const char *const names[QN_BACKEND_COUNT] = {"reference"};

const char *qn_backend_name(int backend) { return backend >= 0 && backend < QN_BACKEND_COUNT ? names[backend] : NULL; }

int qn_op_has_kernel(int op, int backend) {
    return backend == QN_BACKEND_REFERENCE && op >= 0 && op < QN_OP_COUNT && qn_op_rules_of(op)->reference != NULL;
}
