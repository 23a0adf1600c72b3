/* The unary functions and their derivatives, f_<name> and d_<name>, over vectors of f32: what unary, glu and their gradients compute
 * with. */
#ifndef QN_CPU_SIMD_SIMD_ACT_H
#define QN_CPU_SIMD_SIMD_ACT_H

#include "cpu/simd/simd_math.h"

/* By their names in unary.def, all of those that have no parameters. */
#define VF_EACH_ACT(DO) \
    DO(abs)             \
    DO(sgn)             \
    DO(neg)             \
    DO(step)            \
    DO(tanh)            \
    DO(elu)             \
    DO(relu)            \
    DO(sigmoid)         \
    DO(gelu)            \
    DO(gelu_quick)      \
    DO(silu) DO(hardswish) DO(hardsigmoid) DO(exp) DO(expm1) DO(softplus) DO(gelu_erf) DO(floor) DO(ceil) DO(round) DO(trunc)

#define ONE vf_set1(1.0f)
#define SET(c) vf_set1(c)

/* x s with s falling to 0 faster than x grows: at -Inf the product is 0, not NaN. */
static inline vf gate(vf x, vf s) { return vf_select(s == vf_zero(), vf_zero(), x * s); }
static inline vf relu6ish(vf x) { return vf_min(vf_max((x + SET(3.0f)) * SET(1.0f / 6.0f), vf_zero()), ONE); }
static inline vf keep_nan(vf x, vf y) { return vf_select(x != x, x, y); }

static inline vf f_abs(vf x) { return vf_abs(x); }
static inline vf d_abs(vf x) { return vf_select(x > vf_zero(), ONE, vf_select(x < vf_zero(), SET(-1.0f), vf_zero())); }
static inline vf f_sgn(vf x) { return d_abs(x); }
static inline vf d_sgn(vf x) { return (void)x, vf_zero(); }
static inline vf f_neg(vf x) { return vf_of_bits(vi_bits(x) ^ vi_set1((int32_t)0x80000000u)); }
static inline vf d_neg(vf x) { return (void)x, SET(-1.0f); }
static inline vf f_step(vf x) { return vf_select(x > vf_zero(), ONE, vf_zero()); }
static inline vf d_step(vf x) { return (void)x, vf_zero(); }
static inline vf f_tanh(vf x) { return vf_tanh(x); }
static inline vf d_tanh(vf x) {
    vf y = vf_tanh(x);
    return ONE - y * y;
}
static inline vf f_elu(vf x) { return vf_select(x > vf_zero(), x, vf_expm1(x)); }
static inline vf d_elu(vf x) { return vf_select(x > vf_zero(), ONE, vf_exp(x)); }
static inline vf f_relu(vf x) { return vf_select((x > vf_zero()) | (x != x), x, vf_zero()); }
static inline vf d_relu(vf x) { return f_step(x); }
static inline vf f_sigmoid(vf x) { return vf_sigmoid(x); }
static inline vf d_sigmoid(vf x) {
    vf s = vf_sigmoid(x);
    return s * vf_sigmoid(f_neg(x));
}
/* Twice the u of (1 + tanh u) / 2, which is the sigmoid of it. */
static inline vf gelu_twice(vf x) { return x * vf_fma(x * x, SET(0.0713548163f), SET(1.59576912f)); }
static inline vf f_gelu(vf x) { return vf_over_sigmoid(x, gelu_twice(x)); }
static inline vf d_gelu(vf x) {
    vf s = vf_sigmoid(gelu_twice(x)), u = SET(1.59576912f) * vf_fma(SET(0.134145f) * x, x, ONE);
    vf bend = s * (ONE - s);
    return s + vf_select(bend == vf_zero(), vf_zero(), x * bend * u);
}
static inline vf f_gelu_quick(vf x) { return vf_over_sigmoid(x, SET(1.702f) * x); }
static inline vf d_gelu_quick(vf x) {
    vf s = vf_sigmoid(SET(1.702f) * x), bend = s * (ONE - s);
    return s + vf_select(bend == vf_zero(), vf_zero(), SET(1.702f) * x * bend);
}
static inline vf f_silu(vf x) { return vf_over_sigmoid(x, x); }
static inline vf d_silu(vf x) {
    vf s = vf_sigmoid(x), bend = s * (ONE - s);
    return s + vf_select(bend == vf_zero(), vf_zero(), x * bend);
}
static inline vf f_hardswish(vf x) { return keep_nan(x, gate(x, relu6ish(x))); }
static inline vf d_hardswish(vf x) {
    vf inner = vf_fma(x, SET(1.0f / 3.0f), SET(0.5f));
    return keep_nan(x, vf_select(x <= SET(-3.0f), vf_zero(), vf_select(x >= SET(3.0f), ONE, inner)));
}
static inline vf f_hardsigmoid(vf x) { return keep_nan(x, relu6ish(x)); }
static inline vf d_hardsigmoid(vf x) { return vf_select((x > SET(-3.0f)) & (x < SET(3.0f)), SET(1.0f / 6.0f), vf_zero()); }
static inline vf f_exp(vf x) { return vf_exp(x); }
static inline vf d_exp(vf x) { return vf_exp(x); }
static inline vf f_expm1(vf x) { return vf_expm1(x); }
static inline vf d_expm1(vf x) { return vf_exp(x); }
static inline vf f_softplus(vf x) { return keep_nan(x, vf_select(x > SET(20.0f), x, vf_log1p(vf_exp(vf_min(x, SET(20.0f)))))); }
static inline vf d_softplus(vf x) { return vf_select(x > SET(20.0f), ONE, vf_sigmoid(x)); }
static inline vf f_gelu_erf(vf x) { return gate(x, vf_half_erfc(x * SET(-0.707106781f))); }
static inline vf d_gelu_erf(vf x) {
    vf bell = SET(0.398942280f) * vf_exp(SET(-0.5f) * x * x);
    return vf_half_erfc(x * SET(-0.707106781f)) + vf_select(bell == vf_zero(), vf_zero(), x * bell);
}
static inline vf f_floor(vf x) { return vf_floor(x); }
static inline vf d_floor(vf x) { return (void)x, vf_zero(); }
static inline vf f_ceil(vf x) { return vf_ceil(x); }
static inline vf d_ceil(vf x) { return (void)x, vf_zero(); }
/* Halves go away from zero; the sign is x's where nothing is added, too, so that -0 stays. */
static inline vf f_round(vf x) {
    vf whole = vf_trunc(x);
    vi up = (vf_abs(x - whole) >= SET(0.5f)) & vi_bits(ONE), sign = vi_bits(x) & vi_set1((int32_t)0x80000000u);
    return whole + vf_of_bits(up | sign);
}
static inline vf d_round(vf x) { return (void)x, vf_zero(); }
static inline vf f_trunc(vf x) { return vf_trunc(x); }
static inline vf d_trunc(vf x) { return (void)x, vf_zero(); }

#endif
