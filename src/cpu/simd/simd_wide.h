/* Doubles, for sums that must not lose what f32 would: a vd has half as many lanes as a vf.
 *
 *   vd_low, vd_high        the first and the second half of a vf      vd_load, vd_store   any address
 *   vd_sum                 over the lanes, always in the same order */
#ifndef QN_CPU_SIMD_SIMD_WIDE_H
#define QN_CPU_SIMD_SIMD_WIDE_H

#include "cpu/simd/simd.h"

typedef double vd __attribute__((vector_size(VF_N * 4)));

#if defined(__AVX512F__)
static inline vd vd_low(vf a) { return __builtin_convertvector(__builtin_shufflevector(a, a, 0, 1, 2, 3, 4, 5, 6, 7), vd); }
static inline vd vd_high(vf a) {
    return __builtin_convertvector(__builtin_shufflevector(a, a, 8, 9, 10, 11, 12, 13, 14, 15), vd);
}
#elif defined(__AVX2__)
static inline vd vd_low(vf a) { return __builtin_convertvector(__builtin_shufflevector(a, a, 0, 1, 2, 3), vd); }
static inline vd vd_high(vf a) { return __builtin_convertvector(__builtin_shufflevector(a, a, 4, 5, 6, 7), vd); }
#else
static inline vd vd_low(vf a) { return (vd){(double)a[0], (double)a[1]}; }
static inline vd vd_high(vf a) { return (vd){(double)a[2], (double)a[3]}; }
#endif

static inline vd vd_load(const double *p) {
    vd v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void vd_store(double *p, vd a) { memcpy(p, &a, sizeof a); }
static inline vd vd_zero(void) { return (vd){0}; }

/* Halves of the lanes are added until one is left. */
static inline double vd_sum(vd a) {
    double t[VF_N / 2];
    vd_store(t, a);
    for (int w = VF_N / 4; w > 0; w /= 2)
        for (int i = 0; i < w; i++) t[i] += t[i + w];
    return t[0];
}

#endif
