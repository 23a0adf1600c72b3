/* Doubles, for sums that must not lose what f32 would: a vd has half as many lanes as a vf.
 *
 *   vd_low, vd_high        the first and the second half of a vf      vd_load, vd_store   any address
 *   vd_fma(a, b, c)        a b + c                                    vd_sum              over the lanes, always in the same order
 *   vf_of_wide             two vd as a vf                             vd_from             as many floats, from any address
 *   vd_set1, vd_max        b when either is NaN                       vd_exp              of x <= 700, to 3 ulp; 0 below -700
 *   vl                     as many 64-bit integers                    vl_any              whether a mask has a lane that is set
 *   vd_sqrt                                                           vd_to_odd           16 bits of it, so that a half is rounded once */
#ifndef QN_CPU_SIMD_SIMD_WIDE_H
#define QN_CPU_SIMD_SIMD_WIDE_H

#include "cpu/simd/simd.h"

typedef double vd __attribute__((vector_size(VF_N * 4)));

#if defined(QN_SIMD_SVE)
/* Every second lane of a register becomes a double. */
static inline vd vd_low(vf a) { return svcvt_f64_f32_x(svptrue_b64(), svzip1_f32(a, a)); }
static inline vd vd_high(vf a) { return svcvt_f64_f32_x(svptrue_b64(), svzip2_f32(a, a)); }
static inline vd vd_from(const float *p) { return vd_low(svld1_f32(svptrue_pat_b32(SV_VL4), p)); }
#elif defined(__AVX512F__)
static inline vd vd_low(vf a) { return (vd)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)a)); }
static inline vd vd_high(vf a) { return (vd)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)a, 1)); }
static inline vd vd_from(const float *p) { return (vd)_mm512_cvtps_pd(_mm256_loadu_ps(p)); }
#elif defined(__AVX2__)
static inline vd vd_low(vf a) { return (vd)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)a)); }
static inline vd vd_high(vf a) { return (vd)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)a, 1)); }
static inline vd vd_from(const float *p) { return (vd)_mm256_cvtps_pd(_mm_loadu_ps(p)); }
#else
static inline vd vd_low(vf a) { return (vd){(double)a[0], (double)a[1]}; }
static inline vd vd_high(vf a) { return (vd){(double)a[2], (double)a[3]}; }
static inline vd vd_from(const float *p) { return (vd){(double)p[0], (double)p[1]}; }
#endif

#if defined(__AVX512F__)
static inline vd vd_fma(vd a, vd b, vd c) { return (vd)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
#elif defined(__AVX2__)
static inline vd vd_fma(vd a, vd b, vd c) { return (vd)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
#elif defined(QN_SIMD_SVE)
static inline vd vd_fma(vd a, vd b, vd c) { return svmla_f64_x(svptrue_b64(), c, a, b); }
#elif defined(QN_SIMD_NEON)
static inline vd vd_fma(vd a, vd b, vd c) { return (vd)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b); }
#else
static inline vd vd_fma(vd a, vd b, vd c) { return a * b + c; }
#endif

#if defined(__AVX512F__)
static inline vd vd_sqrt(vd a) { return (vd)_mm512_sqrt_pd((__m512d)a); }
#elif defined(__AVX2__)
static inline vd vd_sqrt(vd a) { return (vd)_mm256_sqrt_pd((__m256d)a); }
#elif defined(QN_SIMD_SVE)
static inline vd vd_sqrt(vd a) { return svsqrt_f64_x(svptrue_b64(), a); }
#elif defined(QN_SIMD_NEON)
static inline vd vd_sqrt(vd a) { return (vd)vsqrtq_f64((float64x2_t)a); }
#else
static inline vd vd_sqrt(vd a) { return (vd){sqrt(a[0]), sqrt(a[1])}; }
#endif

static inline vd vd_set1(double a) { return (vd){0} + a; }
static inline vd vd_load(const double *p) {
    vd v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void vd_store(double *p, vd a) { memcpy(p, &a, sizeof a); }
static inline vd vd_zero(void) { return (vd){0}; }

typedef int64_t vl __attribute__((vector_size(VF_N * 4)));

static inline vl vl_load(const int64_t *p) {
    vl v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void vl_store(int64_t *p, vl a) { memcpy(p, &a, sizeof a); }
#if defined(__AVX512F__)
static inline int vl_any(vl mask) { return _mm512_movepi64_mask((__m512i)mask) != 0; }
#elif defined(__AVX2__)
static inline int vl_any(vl mask) { return _mm256_movemask_pd((__m256d)mask) != 0; }
#else
static inline int vl_any(vl mask) {
    int64_t any = 0;
    for (int i = 0; i < VF_N / 2; i++) any |= mask[i];
    return any != 0;
}
#endif

static inline vd vd_select(vl mask, vd a, vd b) { return (vd)(((vl)a & mask) | ((vl)b & ~mask)); }
static inline vd vd_max(vd a, vd b) { return vd_select((vl)(a > b), a, b); }

/* Rounded to odd: the first 16 bits of the significand, the last of them set where any bit behind is. Such a number lies on the same side
 * of all that is halfway between two f16, or two bf16, so a float that has it rounds to the half that the double would have given; and it
 * is short enough to be a float where bf16 has its smallest numbers. NaN and infinities stay. */
static inline vd vd_to_odd(vd a) {
    const int64_t behind = ((int64_t)1 << 37) - 1;
    vl bits = (vl)a;
    return (vd)((bits | ((bits & behind) + behind)) & ~behind);
}

/* x = n ln 2 + r, ln 2 in two parts; n is added to a number so large that it has no fraction, and its last bits are then n. NaN passes. */
static inline vd vd_exp(vd x) {
    const double large = 6755399441055744.0;
    vd in = vd_select(x < vd_set1(-700.0), vd_set1(-700.0), x);
    vd z = vd_fma(in, vd_set1(1.4426950408889634), vd_set1(large)), n = z - large;
    vd r = vd_fma(n, vd_set1(-1.9082149292705877e-10), vd_fma(n, vd_set1(-0.69314718036912382), in));
    vd p = vd_set1(2.08767569878681e-9); /* 1 / 12!, then 1 / 11!, .. */
    p = vd_fma(p, r, vd_set1(2.505210838544172e-8));
    p = vd_fma(p, r, vd_set1(2.755731922398589e-7));
    p = vd_fma(p, r, vd_set1(2.7557319223985893e-6));
    p = vd_fma(p, r, vd_set1(2.48015873015873e-5));
    p = vd_fma(p, r, vd_set1(1.984126984126984e-4));
    p = vd_fma(p, r, vd_set1(1.388888888888889e-3));
    p = vd_fma(p, r, vd_set1(8.333333333333333e-3));
    p = vd_fma(p, r, vd_set1(4.1666666666666664e-2));
    p = vd_fma(p, r, vd_set1(1.6666666666666666e-1));
    p = vd_fma(p, r, vd_set1(0.5));
    p = vd_fma(vd_fma(p, r, vd_set1(1.0)), r, vd_set1(1.0));
    vd power = (vd)(((vl)z << 52) + ((int64_t)1023 << 52));
    return vd_select(x < vd_set1(-700.0), vd_zero(), p * power);
}

/* Two vd as a vf, each lane rounded once. */
#if defined(__AVX512F__)
static inline vf vf_of_wide(vd low, vd high) {
    __m512 first = _mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)low));
    return (vf)_mm512_insertf32x8(first, _mm512_cvtpd_ps((__m512d)high), 1);
}
#elif defined(__AVX2__)
static inline vf vf_of_wide(vd low, vd high) {
    return (vf)_mm256_set_m128(_mm256_cvtpd_ps((__m256d)high), _mm256_cvtpd_ps((__m256d)low));
}
#else
static inline vf vf_of_wide(vd low, vd high) {
    float t[VF_N];
    for (int i = 0; i < VF_N / 2; i++) {
        t[i] = (float)low[i];
        t[VF_N / 2 + i] = (float)high[i];
    }
    return vf_load(t);
}
#endif

/* Halves of the lanes are added until one is left. */
static inline double vd_sum(vd a) {
    double t[VF_N / 2];
    vd_store(t, a);
    for (int w = VF_N / 4; w > 0; w /= 2)
        for (int i = 0; i < w; i++) t[i] += t[i + w];
    return t[0];
}

/* The sum of n neighbours, in as many chains as hide an addition's time; lines are asked for ahead. */
static inline double vd_add_up(const float *x, int64_t n) {
    vd a = vd_zero(), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 2 * VF_N <= n; i += 2 * VF_N) {
        for (int k = 0; k < 2 * VF_N; k += 16) __builtin_prefetch(x + i + k + 1024, 0, 3);
        a += vd_from(x + i);
        b += vd_from(x + i + VF_N / 2);
        c += vd_from(x + i + VF_N);
        d += vd_from(x + i + VF_N * 3 / 2);
    }
    for (; i < n; i += VF_N) { /* lanes behind the end are zeros */
        vf v = vf_loadn(x + i, n - i < VF_N ? (int)(n - i) : VF_N);
        a += vd_low(v);
        b += vd_high(v);
    }
    return vd_sum((a + b) + (c + d));
}

#endif
