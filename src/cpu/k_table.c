/* This level's kernels by op. */
#include "cpu/kernel.h"

#ifdef QN_FULL_LEVEL
#define ON_FULL(...) __VA_ARGS__
#else
#define ON_FULL(...)
#endif
#ifdef QN_NARROW_LEVEL
#define ON_WIDE(...)
#else
#define ON_WIDE(...) __VA_ARGS__
#endif
#ifdef QN_AT_vbmi
#define ON_vbmi(...) __VA_ARGS__
#else
#define ON_vbmi(...)
#endif
#ifdef QN_AT_amx
#define ON_amx(...) __VA_ARGS__
#else
#define ON_amx(...)
#endif

#define QN_CPU_KERNEL(op) ON_FULL(int QN_K(op)(const qn_call *c, qn_cpu_step *s);)
#define QN_CPU_KERNEL_DOT(op) ON_WIDE(int QN_K(op)(const qn_call *c, qn_cpu_step *s);)
#define QN_CPU_KERNEL_AT(level, op) ON_##level(int QN_K(op)(const qn_call *c, qn_cpu_step *s);)
#include "cpu/cpu_kernels.def"
#undef QN_CPU_KERNEL
#undef QN_CPU_KERNEL_DOT
#undef QN_CPU_KERNEL_AT

extern const qn_cpu_kernel_fn QN_CPU_TABLE[QN_OP_COUNT];
const qn_cpu_kernel_fn QN_CPU_TABLE[QN_OP_COUNT] = {
#ifdef QN_EMPTY_LEVEL /* left out of this build, see cmake/cpu.cmake */
    NULL
#else
#define QN_CPU_KERNEL(op) ON_FULL([QN_OP_##op] = QN_K(op), )
#define QN_CPU_KERNEL_DOT(op) ON_WIDE([QN_OP_##op] = QN_K(op), )
#define QN_CPU_KERNEL_AT(level, op) ON_##level([QN_OP_##op] = QN_K(op), )
#include "cpu/cpu_kernels.def"
#undef QN_CPU_KERNEL
#undef QN_CPU_KERNEL_DOT
#undef QN_CPU_KERNEL_AT
#endif
};
