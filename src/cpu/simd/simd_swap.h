/* Lanes that change places: vf_swap<h> puts lane i ^ h where lane i was. There is one for each power of two below VF_N. */
#ifndef QN_CPU_SIMD_SIMD_SWAP_H
#define QN_CPU_SIMD_SIMD_SWAP_H

#include "cpu/simd/simd.h"

#if QN_LANES == 16
static inline vf vf_swap1(vf a) { return __builtin_shufflevector(a, a, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14); }
static inline vf vf_swap2(vf a) { return __builtin_shufflevector(a, a, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13); }
static inline vf vf_swap4(vf a) { return __builtin_shufflevector(a, a, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11); }
static inline vf vf_swap8(vf a) { return __builtin_shufflevector(a, a, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7); }
#elif QN_LANES == 8
static inline vf vf_swap1(vf a) { return __builtin_shufflevector(a, a, 1, 0, 3, 2, 5, 4, 7, 6); }
static inline vf vf_swap2(vf a) { return __builtin_shufflevector(a, a, 2, 3, 0, 1, 6, 7, 4, 5); }
static inline vf vf_swap4(vf a) { return __builtin_shufflevector(a, a, 4, 5, 6, 7, 0, 1, 2, 3); }
#else
static inline vf vf_swap1(vf a) { return __builtin_shufflevector(a, a, 1, 0, 3, 2); }
static inline vf vf_swap2(vf a) { return __builtin_shufflevector(a, a, 2, 3, 0, 1); }
#endif

#endif
