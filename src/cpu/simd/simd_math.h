/* Functions over vectors. Stated bounds are against the exact value, found by tests/unit/test_simd_math.c over all magnitudes:
 *   vf_exp, vf_expm1, vf_log, vf_log1p   2 ulp        vf_tanh, vf_sigmoid, vf_erf   4 ulp
 * NaN gives NaN, infinities give their limits, results below the smallest normal number may be rounded once more. vf_sigmoid is 0 below
 * -87, where 1.6e-38 is left and less, and so is what is multiplied with it: silu, and gelu below -10. */
#ifndef QN_CPU_SIMD_SIMD_MATH_H
#define QN_CPU_SIMD_SIMD_MATH_H

#include <math.h>

#include "cpu/simd/simd.h"

/* x = n ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts, the first short enough that n times it is exact. */
static inline vf vf_reduce_ln2(vf x, vf *r) {
    vf n = vf_round(x * vf_set1(1.44269504f));
    *r = vf_fma(n, vf_set1(-0.693145752f), x);
    *r = vf_fma(n, vf_set1(-1.42860677e-6f), *r);
    return n;
}

/* 2^n for whole n in [-126, 127]. */
static inline vf vf_two_to(vf n) { return vf_of_bits((vi_from_f(n) + vi_set1(127)) << 23); }

/* (e^r - 1 - r) / r^2 for |r| <= 0.35, by its series: what is left off is below a tenth of an ulp of e^r. */
static inline vf vf_exp_tail(vf r) {
    vf p = vf_set1(1.98412698e-4f);
    p = vf_fma(p, r, vf_set1(1.38888889e-3f));
    p = vf_fma(p, r, vf_set1(8.33333333e-3f));
    p = vf_fma(p, r, vf_set1(4.16666667e-2f));
    p = vf_fma(p, r, vf_set1(1.66666667e-1f));
    return vf_fma(p, r, vf_set1(0.5f));
}

static inline vf vf_exp(vf x) {
    vf low = vf_set1(-104.0f), high = vf_set1(89.0f), r;
    vf inside = vf_max(vf_min(x, high), low); /* NaN comes out as a bound and is put back below */
    vf n = vf_reduce_ln2(inside, &r);
    vf e = vf_fma(r * r, vf_exp_tail(r), r) + vf_set1(1.0f);
    vf half = vf_round(n * vf_set1(0.5f)); /* in two steps: 2^n itself may be no normal number */
    vf y = e * vf_two_to(half) * vf_two_to(n - half);
    return vf_select(x != x, x, y);
}

static inline vf vf_expm1(vf x) {
    vf low = vf_set1(-30.0f), high = vf_set1(89.0f), one = vf_set1(1.0f), r;
    vf inside = vf_max(vf_min(x, high), low);
    vf n = vf_reduce_ln2(inside, &r);
    vf p = vf_fma(r * r, vf_exp_tail(r), r); /* e^r - 1 */
    vf half = vf_round(n * vf_set1(0.5f)), s = vf_two_to(half), t = vf_two_to(n - half);
    vf y = vf_fma(p, s, s - one / t) * t; /* 2^n p + 2^n - 1 */
    y = vf_select(n == vf_zero(), p, y);
    return vf_select((x != x) | (x == vf_zero()), x, y);
}

/* A normal number as m 2^n with m in [sqrt 1/2, sqrt 2), by the series of 2 artanh((m - 1) / (m + 1)): f = m - 1, and ln m = f - tail,
 * so that nothing is lost when m is near 1. */
static inline void vf_log_parts(vf x, vf *n, vf *f, vf *tail) {
    vi bits = (vi)((vu)vi_bits(x) - 0x3f3504f3u);
    vf m = vf_of_bits((bits & vi_set1(0x7fffff)) + vi_set1(0x3f3504f3));
    *n = vf_from_i(bits >> 23);
    *f = m - vf_set1(1.0f);
    vf s = *f / (m + vf_set1(1.0f)), q = s * s;
    vf p = vf_set1(0.222222222f);
    p = vf_fma(p, q, vf_set1(0.285714286f));
    p = vf_fma(p, q, vf_set1(0.4f));
    p = vf_fma(p, q, vf_set1(0.666666667f));
    *tail = s * (*f - q * p); /* 2 s is f - s f */
}

static inline vf vf_log_normal(vf x) {
    vf n, f, tail;
    vf_log_parts(x, &n, &f, &tail);
    vf y = f - (tail - n * vf_set1(1.42860677e-6f));
    return vf_fma(n, vf_set1(0.693145752f), y);
}

static inline vf vf_log(vf x) {
    vi tiny = (x < vf_set1(1.17549435e-38f)) & (x > vf_zero());
    vf y = vf_log_normal(vf_select(tiny, x * vf_set1(8388608.0f), x)) - vf_select(tiny, vf_set1(15.9423852f), vf_zero());
    y = vf_select(x == vf_set1(INFINITY), x, y);
    y = vf_select(x == vf_zero(), vf_set1(-INFINITY), y);
    return vf_select((x < vf_zero()) | (x != x), vf_set1(NAN), y);
}

/* The rounding error of 1 + x is put back by the slope of the logarithm. */
static inline vf vf_log1p(vf x) {
    vf one = vf_set1(1.0f), u = x + one, lost = vf_select(vf_abs(x) > one, one - (u - x), x - (u - one));
    vf y = vf_log(u) + vf_select((u > vf_zero()) & (u < vf_set1(INFINITY)), lost / u, vf_zero());
    return vf_select(x == vf_zero(), x, y);
}

static inline vf vf_tanh(vf x) {
    vf a = vf_min(vf_abs(x), vf_set1(10.0f)), t = vf_expm1(a + a), y = t / (t + vf_set1(2.0f));
    vi sign = vi_bits(x) & vi_set1((int32_t)0x80000000u);
    return vf_select(x != x, x, vf_of_bits(vi_bits(y) | sign));
}

/* 0 where the mask is -1. */
static inline vf vf_unless(vi mask, vf a) { return vf_of_bits(vi_bits(a) & ~mask); }

#if defined(QN_SIMD_PICK32)
/* Where a table costs one step: e^(sign x) for |x| <= 87.25, sign 1 or -1, is t + t q. sign x = n ln 2 / 32 + r; n is added to a number
 * so large that it has no fraction, whose last bits it then is: five pick the root of 2, less what the others, shifted to an
 * exponent, bring along. q = e^r - 1 is fitted to 6e-8. NaN passes. */
static inline vf vf_exp_parts(vf x, float sign, vf *q) {
    static const int32_t roots[32] = {
        0x3f800000, 0x3f7ecd87, 0x3f7daac3, 0x3f7c980f, 0x3f7b95c2, 0x3f7aa43a, 0x3f79c3d3, 0x3f78f4f0,
        0x3f7837f0, 0x3f778d3a, 0x3f76f532, 0x3f767043, 0x3f75fed7, 0x3f75a15b, 0x3f75583f, 0x3f7523f6,
        0x3f7504f3, 0x3f74fbaf, 0x3f7508a4, 0x3f752c4d, 0x3f75672a, 0x3f75b9be, 0x3f76248c, 0x3f76a81e,
        0x3f7744fd, 0x3f77fbb8, 0x3f78ccdf, 0x3f79b907, 0x3f7ac0c7, 0x3f7be4ba, 0x3f7d257d, 0x3f7e83b3,
    };
    vf large = vf_set1(12582912.0f), z = vf_fma(x, vf_set1(sign * 46.1662413f), large), n = z - large;
    vf r = vf_fma(n, vf_set1(sign * (-1.42860677e-6f / 32)), vf_fma(n, vf_set1(sign * (-0.693145752f / 32)), x)); /* sign r */
    *q = vf_fma(r, vf_set1(0.5f), vf_set1(sign * 1.00001493f)) * r;
    return vf_of_bits((vi)((vu)vi_pick32(roots, vi_bits(z)) + ((vu)vi_bits(z) << 18)));
}
/* e^x for x <= 0 to 2 ulp: what is below e^-87.25, next to the smallest normal number, is 0. NaN passes. */
static inline vf vf_exp_below(vf x) {
    vf q, t = vf_exp_parts(x, 1.0f, &q);
    return vf_fma_from(vf_set1(-87.25f), x, t, q, t);
}
/* 1 + e^-x for x >= -87. */
static inline vf vf_one_exp(vf x) {
    vf q, t = vf_exp_parts(vf_min(vf_set1(87.0f), x), -1.0f, &q);
    return vf_fma(t, q, t + vf_set1(1.0f));
}
#else
/* e^(sign x) for |x| <= 87, sign 1 or -1, as p 2^(n - 1): sign x = n ln 2 + r. n + 126 is added to a number so large that it has no
 * fraction, whose last bits it then is, and so 2^(n - 1) is a shift away, and 0 where n is -126; 2 e^r is a polynomial fitted to 3e-9.
 * NaN passes. */
static inline vf vf_exp_parts(vf x, float sign, vf *power) {
    vf large = vf_set1(12583038.0f), z = vf_fma(x, vf_set1(sign * 1.44269504f), large), n = z - large;
    vf r = vf_fma(n, vf_set1(sign * -1.42860677e-6f), vf_fma(n, vf_set1(sign * -0.693145752f), x)); /* sign r */
    vf p = vf_set1(2 * 1.38145592e-3f);
    p = vf_fma(p, r, vf_set1(sign * 2 * 8.3687352e-3f));
    p = vf_fma(p, r, vf_set1(2 * 4.1668389e-2f));
    p = vf_fma(p, r, vf_set1(sign * 2 * 1.66665211e-1f));
    p = vf_fma(p, r, vf_set1(2 * 4.9999994e-1f));
    *power = vf_of_bits((vi)((vu)vi_bits(z) << 23));
    return vf_fma(vf_fma(p, r, vf_set1(sign * 2)), r, vf_set1(2.0f));
}

/* e^x for x <= 0 to 2 ulp: what is below e^-86.98, next to the smallest normal number, is 0. NaN passes. */
static inline vf vf_exp_below(vf x) {
    vf power, p = vf_exp_parts(vf_max(vf_set1(-87.25f), x), 1.0f, &power);
    return p * power;
}
/* 1 + e^-x for x >= -87. */
static inline vf vf_one_exp(vf x) {
    vf power, p = vf_exp_parts(vf_min(vf_set1(87.0f), x), -1.0f, &power);
    return vf_fma(p, power, vf_set1(1.0f));
}
#endif

/* a / (1 + e^-x), 0 where x is below -87 and the quotient next to nothing; there anything may come out before the end. */
static inline vf vf_over_sigmoid(vf a, vf x) { return vf_unless(x < vf_set1(-87.0f), a / vf_one_exp(x)); }
static inline vf vf_sigmoid(vf x) { return vf_over_sigmoid(vf_set1(1.0f), x); }

/* erfc(x) for x >= 0.75: e^-x^2 times a polynomial of 3 / (3 + x), fitted to 1e-9. x^2 is taken in two parts, because an error
 * in it is multiplied by itself. */
static inline vf vf_erfc_far(vf x) {
    vf t = vf_set1(3.0f) / (vf_set1(3.0f) + x);
    vf p = vf_set1(-0.136654827f);
    p = vf_fma(p, t, vf_set1(0.446953563f));
    p = vf_fma(p, t, vf_set1(-0.333272882f));
    p = vf_fma(p, t, vf_set1(0.390488035f));
    p = vf_fma(p, t, vf_set1(0.0626343715f));
    p = vf_fma(p, t, vf_set1(0.194056146f));
    p = vf_fma(p, t, vf_set1(0.188185973f));
    p = vf_fma(p, t, vf_set1(0.187538387f));
    p = vf_fma(p, t, vf_set1(6.04190688e-5f));
    vf head = vf_of_bits(vi_bits(x) & vi_set1((int32_t)0xfffff000u)), rest = x - head;
    return p * vf_exp(vf_zero() - head * head) * vf_exp(vf_zero() - rest * (head + x));
}

/* erf(x) / x for |x| <= 1, its series in x^2. */
static inline vf vf_erf_near(vf q) {
    vf p = vf_set1(-1.48e-8f);
    p = vf_fma(p, q, vf_set1(1.63658447e-7f));
    p = vf_fma(p, q, vf_set1(-1.64621146e-6f));
    p = vf_fma(p, q, vf_set1(1.49256505e-5f));
    p = vf_fma(p, q, vf_set1(-1.20553329e-4f));
    p = vf_fma(p, q, vf_set1(8.54832702e-4f));
    p = vf_fma(p, q, vf_set1(-5.22397762e-3f));
    p = vf_fma(p, q, vf_set1(2.68661706e-2f));
    p = vf_fma(p, q, vf_set1(-1.12837917e-1f));
    p = vf_fma(p, q, vf_set1(3.76126389e-1f));
    p = vf_set1(1.12837917f) - q * p;
    return p;
}

static inline vf vf_erf(vf x) {
    vf a = vf_abs(x), b = vf_min(a, vf_set1(4.2f)), near = a * vf_erf_near(a * a), far = vf_set1(1.0f) - vf_erfc_far(b);
    vf y = vf_select(a < vf_set1(0.875f), near, far);
    vi sign = vi_bits(x) & vi_set1((int32_t)0x80000000u);
    return vf_select(x != x, x, vf_of_bits(vi_bits(y) | sign));
}

/* erfc(x) / 2 for any x: what the exact gelu needs, relative precision at both ends. */
static inline vf vf_half_erfc(vf x) {
    vf a = vf_abs(x), b = vf_min(vf_max(a, vf_set1(0.75f)), vf_set1(10.0f)), half = vf_set1(0.5f);
    vf near = half - half * x * vf_erf_near(a * a), far = half * vf_erfc_far(b);
    far = vf_select(x < vf_zero(), vf_set1(1.0f) - far, vf_select(x > b, vf_zero(), far)); /* beyond 10 nothing is left */
    return vf_select(x != x, x, vf_select(a < vf_set1(0.75f), near, far));
}

#endif
