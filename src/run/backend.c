/* Which backends there are, and which ops each has kernels for. */
#include "run/backend.h"

#include "cpu/cpu.h"
#include "vulkan/vulkan.h"

static const char *const names[QN_BACKEND_COUNT] = {"reference", "cpu", "vulkan"};

const char *qn_backend_name(int backend) { return backend >= 0 && backend < QN_BACKEND_COUNT ? names[backend] : NULL; }

int qn_op_has_kernel(int op, int backend) {
    if (op < 0 || op >= QN_OP_COUNT) return 0;
    if (backend == QN_BACKEND_CPU) return qn_cpu_has_kernel(op);
    if (backend == QN_BACKEND_VULKAN) return qn_vulkan_has_op(op);
    return backend == QN_BACKEND_REFERENCE && qn_op_rules_of(op)->reference != NULL;
}
