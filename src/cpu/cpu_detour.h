/* The walk through the levels, and the detour for what it does not take. */
#ifndef QN_CPU_CPU_DETOUR_H
#define QN_CPU_CPU_DETOUR_H

#include "cpu/cpu.h"

/* A step of copies, the kernel for what they make, and copies back; 0: there is none, or the reference is as fast. */
int qn_cpu_detour(uint32_t levels, const qn_call *c, qn_cpu_step *s);

#endif
