/* unary and unary_back in f32, f16 and bf16 over dense tensors: a row of unary.def is an expression here, computed in f32. xielu, which
 * has parameters, is left to the reference. */
#include "cpu/kernel.h"
#include "cpu/simd/simd_math.h"

#define ONE vf_set1(1.0f)
#define SET(c) vf_set1(c)

/* x s with s falling to 0 faster than x grows: at -Inf the product is 0, not NaN. */
static inline vf gate(vf x, vf s) { return vf_select(s == vf_zero(), vf_zero(), x * s); }
static inline vf relu6ish(vf x) { return vf_min(vf_max((x + SET(3.0f)) * SET(1.0f / 6.0f), vf_zero()), ONE); }
static inline vf keep_nan(vf x, vf y) { return vf_select(x != x, x, y); }

static inline vf f_abs(vf x) { return vf_abs(x); }
static inline vf d_abs(vf x) { return vf_select(x > vf_zero(), ONE, vf_select(x < vf_zero(), SET(-1.0f), vf_zero())); }
static inline vf f_sgn(vf x) { return d_abs(x); }
static inline vf d_sgn(vf x) { return x - x; }
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
static inline vf gelu_gate(vf x) {
    vf u = SET(0.797884561f) * x * vf_fma(SET(0.044715f) * x, x, ONE);
    return vf_sigmoid(u + u); /* (1 + tanh u) / 2 */
}
static inline vf f_gelu(vf x) { return gate(x, gelu_gate(x)); }
static inline vf d_gelu(vf x) {
    vf s = gelu_gate(x), u = SET(1.59576912f) * vf_fma(SET(0.134145f) * x, x, ONE);
    vf bend = s * (ONE - s);
    return s + vf_select(bend == vf_zero(), vf_zero(), x * bend * u);
}
static inline vf f_gelu_quick(vf x) { return gate(x, vf_sigmoid(SET(1.702f) * x)); }
static inline vf d_gelu_quick(vf x) {
    vf s = vf_sigmoid(SET(1.702f) * x), bend = s * (ONE - s);
    return s + vf_select(bend == vf_zero(), vf_zero(), SET(1.702f) * x * bend);
}
static inline vf f_silu(vf x) { return gate(x, vf_sigmoid(x)); }
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
static inline vf f_softplus(vf x) {
    return keep_nan(x, vf_select(x > SET(20.0f), x, vf_log1p(vf_exp(vf_min(x, SET(20.0f))))));
}
static inline vf d_softplus(vf x) { return vf_select(x > SET(20.0f), ONE, vf_sigmoid(x)); }
static inline vf f_gelu_erf(vf x) { return gate(x, vf_half_erfc(x * SET(-0.707106781f))); }
static inline vf d_gelu_erf(vf x) {
    vf bell = SET(0.398942280f) * vf_exp(SET(-0.5f) * x * x);
    return vf_half_erfc(x * SET(-0.707106781f)) + vf_select(bell == vf_zero(), vf_zero(), x * bell);
}

/* The sub-ops that have a kernel, forward and backward. */
#define EACH(DO)                                                                                                  \
    DO(abs)                                                                                                       \
    DO(sgn) DO(neg) DO(step) DO(tanh) DO(elu) DO(relu) DO(sigmoid) DO(gelu) DO(gelu_quick) DO(silu) DO(hardswish) \
        DO(hardsigmoid) DO(exp) DO(expm1) DO(softplus) DO(gelu_erf)

typedef void (*run_fn)(char *y, const char *g, const char *x, int64_t n);

/* Forward the gradient is not looked at. */
#define FORWARD(name, g, x) f_##name(x)
#define BACKWARD(name, g, x) ((g)*d_##name(x))
#define LOOP(way, name, type, label, load, loadn, store, storen)                              \
    static void way##_##name##_##label(char *yp, const char *gp, const char *xp, int64_t n) { \
        type *y = (type *)yp;                                                                 \
        const type *x = (const type *)xp, *g = (const type *)gp;                              \
        int64_t i = 0;                                                                        \
        (void)g;                                                                              \
        for (; i + VF_N <= n; i += VF_N) store(y + i, way(name, load(g + i), load(x + i)));   \
        int some = (int)(n - i);                                                              \
        if (some) storen(y + i, way(name, loadn(g + i, some), loadn(x + i, some)), some);     \
    }
#define LOOPS(way, name)                                                           \
    LOOP(way, name, float, f32, vf_load, vf_loadn, vf_store, vf_storen)            \
    LOOP(way, name, uint16_t, f16, vf_load_h, vf_load_hn, vf_store_h, vf_store_hn) \
    LOOP(way, name, uint16_t, bf16, vf_load_b, vf_load_bn, vf_store_b, vf_store_bn)
#define BOTH(name) LOOPS(FORWARD, name) LOOPS(BACKWARD, name)
EACH(BOTH)

#define ENTRY(name) [QN_UNARY_##name] = {FORWARD_##name##_f32, FORWARD_##name##_f16, FORWARD_##name##_bf16},
static const run_fn forward[QN_UNARY_COUNT][3] = {EACH(ENTRY)};
#undef ENTRY
#define ENTRY(name) [QN_UNARY_##name] = {BACKWARD_##name##_f32, BACKWARD_##name##_f16, BACKWARD_##name##_bf16},
static const run_fn backward[QN_UNARY_COUNT][3] = {EACH(ENTRY)};
#undef ENTRY

enum { CHUNK = 256 }; /* elements that are never cut apart */

/* Sources: x alone, or the gradient and then x. */
static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    const qn_tensor *x = c->src[c->n_src - 1], *g = c->src[0];
    int64_t n = s->n[0], size = s->n[1], chunks = (n + CHUNK - 1) / CHUNK;
    int64_t first = CHUNK * qn_cpu_cut(chunks, s->parts[0], part), end = CHUNK * qn_cpu_cut(chunks, s->parts[0], part + 1);
    if (end > n) end = n;
    ((run_fn)s->inner)(qn_at(c->dst[0], first * size), qn_at(g, first * size), qn_at(x, first * size), end - first);
}

static int prepare(const qn_call *c, qn_cpu_step *s, const run_fn *by_dtype, const char *name) {
    uint32_t d = c->dst[0]->dtype;
    int which = d == QN_DTYPE_F32 ? 0 : d == QN_DTYPE_F16 ? 1 : d == QN_DTYPE_BF16 ? 2 : -1;
    if (which < 0 || !by_dtype[which] || !qn_cpu_is_dense(c->dst[0])) return 0;
    for (int i = 0; i < c->n_src; i++)
        if (c->src[i]->dtype != d || !qn_cpu_is_dense(c->src[i])) return 0;
    s->n[0] = qn_tensor_count(c->dst[0]);
    s->n[1] = d == QN_DTYPE_F32 ? 4 : 2;
    if (s->n[0] == 0) return 0;
    s->inner = (qn_cpu_inner_fn)by_dtype[which];
    return qn_cpu_by_rows(s, name, run, (s->n[0] + CHUNK - 1) / CHUNK, CHUNK * 2.0 * (double)s->n[1], CHUNK * 20.0);
}

int QN_K(unary)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, forward[c->subop], "unary"); }
int QN_K(unary_back)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, backward[c->subop], "unary_back"); }
