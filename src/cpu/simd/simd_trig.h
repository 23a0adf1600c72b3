/* Sine and cosine of radians, within 2 ulp of the exact value (tests/unit/test_simd_math.c). Quarter turns are taken off in doubles, so
 * that nothing is lost near the zeros; what is farther out than half a million radians goes through the C library, a lane at a time:
 * from there on the number of turns, a float, may be so far off that what is left is beyond what the series are for. */
#ifndef QN_CPU_SIMD_SIMD_TRIG_H
#define QN_CPU_SIMD_SIMD_TRIG_H

#include <math.h>

#include "cpu/simd/simd.h"

#define VF_TRIG_FAR 524288.0f

/* x - n pi / 2; pi / 2 in two parts, the first short enough that any such number of turns times it is exact. */
#if defined(QN_SIMD_SVE)
typedef double vf_every_second __attribute__((vector_size(32)));
static inline vf_every_second vf_less_turns(svfloat32_t x, svfloat32_t n) {
    vf_every_second wide = svcvt_f64_f32_x(svptrue_b64(), x), m = svcvt_f64_f32_x(svptrue_b64(), n);
    return (wide - m * 0x1.921fb544p+0) - m * 0x1.0b4611a626331p-34;
}
static inline vf vf_take_turns(vf x, vf n) {
    svfloat32_t even = svcvt_f32_f64_x(svptrue_b64(), vf_less_turns(x, n));
    svfloat32_t odd = svcvt_f32_f64_x(svptrue_b64(), vf_less_turns(svtrn2_f32(x, x), svtrn2_f32(n, n)));
    return svtrn1_f32(even, odd);
}
#else
typedef double vf_wide __attribute__((vector_size(VF_N * 8))); /* as many doubles as a vf has floats */
static inline vf vf_take_turns(vf x, vf n) {
    vf_wide wide = __builtin_convertvector(x, vf_wide), m = __builtin_convertvector(n, vf_wide);
    return __builtin_convertvector((wide - m * 0x1.921fb544p+0) - m * 0x1.0b4611a626331p-34, vf);
}
#endif

/* x = turns pi / 2 + r with |r| hardly above pi / 4, for |x| up to VF_TRIG_FAR. */
static inline vf vf_quarter_turns(vf x, vi *turns) {
    vf n = vf_round(x * vf_set1(0.636619772f));
    *turns = vi_from_f(n);
    return vf_take_turns(x, n);
}

static inline vf vf_sin_near(vf r) {
    vf z = r * r, p = vf_set1(-1.9515295891e-4f);
    p = vf_fma(p, z, vf_set1(8.3321608736e-3f));
    p = vf_fma(p, z, vf_set1(-1.6666654611e-1f));
    return vf_fma(p * z, r, r);
}

static inline vf vf_cos_near(vf r) {
    vf z = r * r, half = z * vf_set1(0.5f), w = vf_set1(1.0f) - half, p = vf_set1(2.443315711809948e-5f);
    p = vf_fma(p, z, vf_set1(-1.388731625493765e-3f));
    p = vf_fma(p, z, vf_set1(4.166664568298827e-2f));
    return w + vf_fma(p * z, z, (vf_set1(1.0f) - w) - half); /* what rounding took from w is put back */
}

/* The sine, `ahead` quarter turns on. */
static inline vf vf_sin_ahead(vf x, int ahead) {
    vi turns;
    vf r = vf_quarter_turns(x, &turns);
    turns += vi_set1(ahead);
    vf y = vf_select((turns & vi_set1(1)) != vi_set1(0), vf_cos_near(r), vf_sin_near(r));
    return vf_of_bits(vi_bits(y) ^ (vi)((vu)(turns & vi_set1(2)) << 30));
}

#if defined(QN_SIMD_SVE)
static inline int vf_any_far(vf x) {
    return svptest_any(VF_ALL, svnot_b_z(VF_ALL, svcmple_f32(VF_ALL, vf_abs(x), vf_set1(VF_TRIG_FAR)))); /* NaN too */
}
#else
static inline int vf_any_far(vf x) {
    uint64_t lane[VF_N / 2], any = 0;
    vi far = ~(vf_abs(x) <= vf_set1(VF_TRIG_FAR)); /* NaN too */
    memcpy(lane, &far, sizeof far);
    for (int i = 0; i < VF_N / 2; i++) any |= lane[i];
    return any != 0;
}
#endif

static inline vf vf_each_double(vf x, double (*f)(double)) {
    float t[VF_N];
    vf_store(t, x);
    for (int i = 0; i < VF_N; i++) t[i] = (float)f((double)t[i]);
    return vf_load(t);
}

static inline vf vf_sin(vf x) {
    if (vf_any_far(x)) return vf_each_double(x, sin);
    return vf_select(x == vf_zero(), x, vf_sin_ahead(x, 0));
}

static inline vf vf_cos(vf x) { return vf_any_far(x) ? vf_each_double(x, cos) : vf_sin_ahead(x, 1); }

#endif
