/* Powers and logarithms to base 2, tangents, powers of any base and remainders. Bounds as in simd_math.h, by the same test:
 *   vf_exp2   2 ulp        vf_log2, vf_atan   4 ulp (of a power of two vf_log2 is exact)        vf_tan   6 ulp
 *   vf_pow    1 ulp, through doubles; what is negative, infinite or NaN as C's pow has it
 *   vf_mod    a - b floor(a / b), exact but for its last rounding, with the sign of b */
#ifndef QN_CPU_SIMD_SIMD_POWER_H
#define QN_CPU_SIMD_SIMD_POWER_H

#include "cpu/simd/simd_math.h"
#include "cpu/simd/simd_trig.h"
#include "cpu/simd/simd_wide.h"

/* The whole part of x is an exponent, so that the rest loses nothing by its size. */
static inline vf vf_exp2(vf x) {
    vf in = vf_max(vf_min(x, vf_set1(130.0f)), vf_set1(-152.0f)), n = vf_round(in), half = vf_round(n * vf_set1(0.5f));
    vf r = (in - n) * vf_set1(0.693147181f), e = vf_fma(r * r, vf_exp_tail(r), r) + vf_set1(1.0f);
    return vf_select(x != x, x, e * vf_two_to(half) * vf_two_to(n - half));
}

static inline vf vf_log2(vf x) {
    vi tiny = (x < vf_set1(1.17549435e-38f)) & (x > vf_zero());
    vf n, f, tail;
    vf_log_parts(vf_select(tiny, x * vf_set1(8388608.0f), x), &n, &f, &tail);
    vf y = vf_fma(f - tail, vf_set1(1.44269504f), n - vf_select(tiny, vf_set1(23.0f), vf_zero()));
    y = vf_select(x == vf_set1(INFINITY), x, y);
    y = vf_select(x == vf_zero(), vf_set1(-INFINITY), y);
    return vf_select((x < vf_zero()) | (x != x), vf_set1(NAN), y);
}

static inline vf vf_tan(vf x) { return vf_select(x == vf_zero(), x, vf_sin(x) / vf_cos(x)); }

/* Beyond tan(pi / 8) and tan(3 pi / 8) an eighth or a quarter turn is taken off; what is left has a short odd series. */
static inline vf vf_atan(vf x) {
    vf a = vf_abs(x), one = vf_set1(1.0f);
    vi middle = a > vf_set1(0.414213562f), far = a > vf_set1(2.41421356f);
    vf r = vf_select(far, vf_set1(-1.0f) / a, vf_select(middle, (a - one) / (a + one), a));
    vf turn = vf_select(far, vf_set1(1.57079633f), vf_select(middle, vf_set1(0.785398163f), vf_zero()));
    vf z = r * r, p = vf_set1(8.05374449538e-2f);
    p = vf_fma(p, z, vf_set1(-1.38776856032e-1f));
    p = vf_fma(p, z, vf_set1(1.99777106478e-1f));
    p = vf_fma(p, z, vf_set1(-3.33329491539e-1f));
    vf y = turn + vf_fma(p * z, r, r);
    vi sign = vi_bits(x) & vi_set1((int32_t)0x80000000u);
    return vf_select(x != x, x, vf_of_bits(vi_bits(y) | sign));
}

/* ---- In doubles */

/* Added and taken off again it leaves the nearest whole number. */
#define VD_LARGE 6755399441055744.0
static inline vd vd_whole(vd a) { return (a + VD_LARGE) - VD_LARGE; }
static inline vd vd_abs(vd a) { return (vd)((vl)a & INT64_MAX); }

/* ln of a float that is no negative number, to 1e-12 of it: m 2^n as in vf_log_parts. */
static inline vd vd_log_of_float(vd x) {
    const int64_t root = 0x3fe6a09e667f3bcd;
    vl bits = (vl)x - root;
    vd m = (vd)((bits & (((int64_t)1 << 52) - 1)) + root), n = (vd)((bits >> 52) + 0x4338000000000000) - VD_LARGE;
    vd s = (m - 1.0) / (m + 1.0), q = s * s, p = vd_set1(2.0 / 17);
    p = vd_fma(p, q, vd_set1(2.0 / 15));
    p = vd_fma(p, q, vd_set1(2.0 / 13));
    p = vd_fma(p, q, vd_set1(2.0 / 11));
    p = vd_fma(p, q, vd_set1(2.0 / 9));
    p = vd_fma(p, q, vd_set1(2.0 / 7));
    p = vd_fma(p, q, vd_set1(2.0 / 5));
    p = vd_fma(p, q, vd_set1(2.0 / 3));
    vd y = vd_fma(n, vd_set1(0.69314718055994531), vd_fma(p * q, s, s + s));
    y = vd_select((vl)(x == vd_zero()), vd_set1(-INFINITY), y);
    return vd_select((vl)((x == vd_set1(INFINITY)) | (x != x)), x, y);
}

static inline vd vd_pow_of_floats(vd a, vd b) {
    vd size = vd_abs(a), one = vd_set1(1.0), t = b * vd_log_of_float(size);
    vd y = vd_exp(vd_select((vl)(t > vd_set1(200.0)), vd_set1(200.0), t)); /* which no float has any more */
    vl whole = (vl)(vd_whole(b) == b), even = (vl)(vd_whole(b * 0.5) == b * 0.5), sign = (vl)a & INT64_MIN;
    y = (vd)((vl)y | (sign & whole & ~even));
    y = vd_select((vl)(a < vd_zero()) & (vl)(size < vd_set1(INFINITY)) & ~whole, vd_set1(NAN), y);
    vl ones = (vl)(size == one) & (vl)(vd_abs(b) == vd_set1(INFINITY));
    return vd_select((vl)(b == vd_zero()) | (vl)(a == one) | ones, one, y);
}

static inline vf vf_pow(vf a, vf b) {
    return vf_of_wide(vd_pow_of_floats(vd_low(a), vd_low(b)), vd_pow_of_floats(vd_high(a), vd_high(b)));
}

static inline double vf_mod_one(double a, double b) {
    double r = fmod(a, b);
    if (r == 0) return copysign(0, b);
    return (r < 0) != (b < 0) ? r + b : r;
}

/* Up to so many times b the quotient's whole part and its product with b are exact. */
#define VD_MOD_FAR 268435456.0
static inline vd vd_mod_of_floats(vd a, vd b, vl *far) {
    vd t = a / b, n = vd_whole(t);
    *far |= ~((vl)(vd_abs(t) < vd_set1(VD_MOD_FAR)) & (vl)(vd_abs(b) < vd_set1(INFINITY)));
    n = vd_select((vl)(n > t), n - 1.0, n);
    vd r = vd_fma(vd_zero() - n, b, a);
    return vd_select((vl)(r == vd_zero()), (vd)((vl)b & INT64_MIN), r);
}

static inline vf vf_mod(vf a, vf b) {
    vl far = {0};
    vd low = vd_mod_of_floats(vd_low(a), vd_low(b), &far), high = vd_mod_of_floats(vd_high(a), vd_high(b), &far);
    if (!vl_any(far)) return vf_of_wide(low, high);
    float x[VF_N], y[VF_N];
    vf_store(x, a);
    vf_store(y, b);
    for (int i = 0; i < VF_N; i++) x[i] = (float)vf_mod_one((double)x[i], (double)y[i]);
    return vf_load(x);
}

#endif
