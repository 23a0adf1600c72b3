/* Second derivatives of the functions of unary and math, s_<name>, over vectors of f32: what gradients of gradients compute with. Where a
 * function is all but straight, its bend is the product of two small numbers and 0 before anything it is multiplied with is infinite. */
#ifndef QN_CPU_SIMD_SIMD_SECOND_H
#define QN_CPU_SIMD_SIMD_SECOND_H

#include "cpu/simd/simd_act.h"
#include "cpu/simd/simd_trig.h"

/* Those of math, by their names in math.def; those of unary are VF_EACH_ACT. */
#define VF_EACH_MATH(DO) DO(rsqrt) DO(tan) DO(atan) DO(round_even) DO(log1p) DO(erf) DO(recip) DO(exp2) DO(log2)

static inline vf s_flat(vf x) { return (void)x, vf_zero(); }
static inline vf s_abs(vf x) { return s_flat(x); }
static inline vf s_sgn(vf x) { return s_flat(x); }
static inline vf s_neg(vf x) { return s_flat(x); }
static inline vf s_step(vf x) { return s_flat(x); }
static inline vf s_relu(vf x) { return s_flat(x); }
static inline vf s_hardsigmoid(vf x) { return s_flat(x); }
static inline vf s_floor(vf x) { return s_flat(x); }
static inline vf s_ceil(vf x) { return s_flat(x); }
static inline vf s_round(vf x) { return s_flat(x); }
static inline vf s_trunc(vf x) { return s_flat(x); }
static inline vf s_round_even(vf x) { return s_flat(x); }

static inline vf s_tanh(vf x) {
    vf y = vf_tanh(x);
    return SET(-2.0f) * y * (ONE - y * y);
}
static inline vf s_elu(vf x) { return vf_select(x > vf_zero(), vf_zero(), vf_exp(x)); }
static inline vf s_sigmoid(vf x) {
    vf up = vf_sigmoid(x), down = vf_sigmoid(f_neg(x));
    return up * down * (down - up);
}
/* The tanh of u is the sigmoid of 2 u less that of -2 u, and 1 less its square four times their product. */
static inline vf s_gelu(vf x) {
    vf twice = gelu_twice(x), up = vf_sigmoid(twice), down = vf_sigmoid(f_neg(twice)), bend = SET(4.0f) * up * down;
    vf rise = SET(0.797884561f) * vf_fma(SET(0.134145f) * x, x, ONE), turn = SET(0.214064460f) * x;
    vf y = bend * vf_fma(SET(0.5f) * x, vf_fma((down - up) * rise, rise + rise, turn), rise);
    return vf_select(bend == vf_zero(), vf_zero(), y);
}
/* x sigmoid(k x) */
static inline vf s_gated(vf x, float k) {
    vf z = SET(k) * x, up = vf_sigmoid(z), down = vf_sigmoid(f_neg(z)), bend = up * down;
    return vf_select(bend == vf_zero(), vf_zero(), SET(k) * bend * vf_fma(z, down - up, SET(2.0f)));
}
static inline vf s_gelu_quick(vf x) { return s_gated(x, 1.702f); }
static inline vf s_silu(vf x) { return s_gated(x, 1.0f); }
static inline vf s_hardswish(vf x) { return vf_select(vf_abs(x) < SET(3.0f), SET(1.0f / 3.0f), vf_zero()); }
static inline vf s_exp(vf x) { return vf_exp(x); }
static inline vf s_expm1(vf x) { return vf_exp(x); }
static inline vf s_softplus(vf x) { return vf_select(x > SET(20.0f), vf_zero(), d_sigmoid(x)); }
static inline vf s_gelu_erf(vf x) {
    vf bell = SET(0.398942280f) * vf_exp(SET(-0.5f) * x * x);
    return vf_select(bell == vf_zero(), vf_zero(), bell * (SET(2.0f) - x * x));
}

static inline vf s_rsqrt(vf x) { return SET(0.75f) / (x * x * vf_sqrt(x)); }
static inline vf s_tan(vf x) {
    vf y = vf_sin(x) / vf_cos(x);
    return SET(2.0f) * y * vf_fma(y, y, ONE);
}
/* One quotient after the other: the square of the divisor would be infinite before its quotient is 0. */
static inline vf s_atan(vf x) {
    vf below = vf_fma(x, x, ONE);
    return SET(-2.0f) * x / below / below;
}
static inline vf s_log1p(vf x) {
    vf below = ONE + x;
    return SET(-1.0f) / below / below;
}
static inline vf s_erf(vf x) { return SET(-2.25675833f) * x * vf_exp(vf_zero() - x * x); }
static inline vf s_recip(vf x) { return SET(2.0f) / x / x / x; }
/* The whole part of x is a power that is multiplied with, so that the rest loses nothing by its size. */
static inline vf s_exp2(vf x) {
    vf in = vf_max(vf_min(x, SET(130.0f)), SET(-152.0f)), n = vf_round(in), half = vf_round(n * SET(0.5f));
    vf y = SET(0.480453014f) * vf_exp((in - n) * SET(0.693147181f)) * vf_two_to(half) * vf_two_to(n - half);
    return keep_nan(x, y);
}
static inline vf s_log2(vf x) { return SET(-1.44269504f) / x / x; }

#endif
