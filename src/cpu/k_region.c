/* region: a program of elementwise steps runs over tiles that stay in the first cache, a vector at a time in f32. Programs that touch
 * other dtypes than f32 (truths within the program aside), or functions without a vector form, are left to the reference. */
#include "cpu/kernel.h"
#include "cpu/simd/simd_act.h"
#include "cpu/simd/simd_math.h"
#include "op/region.h"

enum { TILE = 128 }; /* elements of a register */

typedef struct machine {
    qn_region region;
    const float *in[QN_REGION_MAX_SOURCES]; /* of the tile; a source that is stretched along it has been spread */
    float spread[QN_REGION_MAX_SOURCES][TILE];
    float at[QN_REGION_MAX_STEPS][TILE]; /* results of the steps */
} machine;

/* ---- Steps */

typedef void (*step_fn)(const float *a, const float *b, const float *c, float *y);

/* name(a, b, c) for a whole tile: what lies behind the elements there are is computed too, and dropped. */
#define STEP(name, expression)                                                          \
    static void s_##name(const float *ap, const float *bp, const float *cp, float *y) { \
        for (int i = 0; i < TILE; i += VF_N) {                                          \
            vf a = vf_load(ap + i), b = vf_load(bp + i), c = vf_load(cp + i);           \
            (void)a, (void)b, (void)c;                                                  \
            vf_store(y + i, expression);                                                \
        }                                                                               \
    }

static inline vf truth(vi mask) { return vf_of_bits(mask & vi_bits(vf_set1(1.0f))); }
static inline vf larger(vf a, vf b) { return vf_select((a != a) | (a >= b), a, b); }
static inline vf smaller(vf a, vf b) { return vf_select((a != a) | (a <= b), a, b); }
static inline vf limited(vf a, vf b, vf c) { return vf_select(a < b, b, vf_select(a > c, c, a)); }

STEP(cast, a)
STEP(sqr, a *a)
STEP(sqrt, vf_sqrt(a))
STEP(log, vf_log(a))
STEP(scale, vf_select(c == vf_zero(), a *b, vf_fma(a, b, c)))
STEP(clamp, limited(a, b, c))
STEP(leaky_relu, vf_select((a > vf_zero()) | (a != a), a, a *b))
STEP(where, vf_select(a != vf_zero(), b, c))
STEP(silu_back, a *d_silu(b))
STEP(add, a + b)
STEP(sub, a - b)
STEP(mul, a *b)
STEP(div, a / b)
STEP(max, vf_select(b != b, b, larger(a, b)))
STEP(min, vf_select(b != b, b, smaller(a, b)))
STEP(eq, truth(a == b))
STEP(ne, truth(a != b))
STEP(lt, truth(a < b))
STEP(le, truth(a <= b))
STEP(gt, truth(a > b))
STEP(ge, truth(a >= b))
STEP(rsqrt, vf_set1(1.0f) / vf_sqrt(a))
STEP(recip, vf_set1(1.0f) / a)
STEP(erf, vf_erf(a))
STEP(log1p, vf_log1p(a))

#define EACH_UNARY(DO)                                                                                                    \
    DO(abs)                                                                                                               \
    DO(sgn)                                                                                                               \
    DO(neg) DO(step) DO(tanh) DO(elu) DO(relu) DO(sigmoid) DO(gelu) DO(gelu_quick) DO(silu) DO(hardswish) DO(hardsigmoid) \
        DO(exp) DO(expm1) DO(softplus) DO(gelu_erf)
#define UNARY(name) STEP(unary_##name, f_##name(a)) STEP(back_##name, a *d_##name(b))
EACH_UNARY(UNARY)

static step_fn unary_of(int subop) {
    switch (subop) {
#define CASE(name) \
    case QN_UNARY_##name: return s_unary_##name;
        EACH_UNARY(CASE)
#undef CASE
    default: return NULL;
    }
}

static step_fn unary_back_of(int subop) {
    switch (subop) {
#define CASE(name) \
    case QN_UNARY_##name: return s_back_##name;
        EACH_UNARY(CASE)
#undef CASE
    default: return NULL;
    }
}

static step_fn arith_of(int subop) {
    static const step_fn by[QN_ARITH_COUNT] = {[QN_ARITH_add] = s_add, [QN_ARITH_sub] = s_sub, [QN_ARITH_mul] = s_mul,
                                               [QN_ARITH_div] = s_div, [QN_ARITH_max] = s_max, [QN_ARITH_min] = s_min};
    return by[subop];
}

static step_fn compare_of(int subop) {
    static const step_fn by[QN_COMPARE_COUNT] = {[QN_COMPARE_eq] = s_eq, [QN_COMPARE_ne] = s_ne, [QN_COMPARE_lt] = s_lt,
                                                 [QN_COMPARE_le] = s_le, [QN_COMPARE_gt] = s_gt, [QN_COMPARE_ge] = s_ge};
    return by[subop];
}

static step_fn math_of(int subop) {
    static const step_fn by[QN_MATH_COUNT] = {
        [QN_MATH_rsqrt] = s_rsqrt, [QN_MATH_recip] = s_recip, [QN_MATH_erf] = s_erf, [QN_MATH_log1p] = s_log1p};
    return by[subop];
}

/* NULL: no vector form. A number has none either: it is there before the first tile. */
static step_fn function_of(const qn_region_step *s) {
    switch (s->kind) {
    case QN_REGION_cast: return s->dtype == QN_DTYPE_F32 ? s_cast : NULL;
    case QN_REGION_unary: return unary_of(s->subop);
    case QN_REGION_unary_back: return unary_back_of(s->subop);
    case QN_REGION_math: return math_of(s->subop);
    case QN_REGION_sqr: return s_sqr;
    case QN_REGION_sqrt: return s_sqrt;
    case QN_REGION_log: return s_log;
    case QN_REGION_scale: return s_scale;
    case QN_REGION_clamp: return s_clamp;
    case QN_REGION_leaky_relu: return s_leaky_relu;
    case QN_REGION_arith: return arith_of(s->subop);
    case QN_REGION_compare: return compare_of(s->subop);
    case QN_REGION_where: return s_where;
    case QN_REGION_silu_back: return s_silu_back;
    default: return NULL;
    }
}

static const float *operand(const machine *m, const qn_region_step *s, int i) {
    if (i >= s->n_operands) return m->at[0]; /* not looked at */
    return s->operand[i] < QN_REGION_STEP_BIT ? m->in[s->operand[i]] : m->at[s->operand[i] - QN_REGION_STEP_BIT];
}

static void run_steps(machine *m) {
    for (int k = 0; k < m->region.n_steps; k++) {
        const qn_region_step *s = &m->region.step[k];
        step_fn f = function_of(s);
        if (f) f(operand(m, s, 0), operand(m, s, 1), operand(m, s, 2), m->at[k]);
    }
}

/* ---- Tiles. The output is dense; a source lies as it does, holds one element for all, or is stretched along some axes. */

typedef struct layout {
    int64_t rows, columns; /* one row when no source is stretched along some axes only */
    int flat;
} layout;

static int64_t stretched(const qn_tensor *t, int k) { return qn_ne(t, k) == 1 ? 0 : qn_nb(t, k); }

static int is_flat(const qn_tensor *t, const qn_tensor *y) {
    return qn_tensor_count(t) == 1 || (qn_cpu_is_dense(t) && qn_tensor_count(t) == qn_tensor_count(y));
}

static layout layout_of(const qn_call *c) {
    const qn_tensor *y = c->dst[0];
    layout l = {.flat = 1, .rows = 1, .columns = qn_tensor_count(y)};
    for (int i = 0; i < c->n_src; i++) l.flat &= !c->src[i] || is_flat(c->src[i], y);
    if (!l.flat) {
        l.columns = qn_ne(y, 0);
        l.rows = qn_tensor_count(y) / l.columns;
    }
    return l;
}

/* Where row `row` of y is in a source, from its last axis to its first; how far its elements are apart. */
static const char *row_of(const qn_tensor *t, const qn_tensor *y, const layout *l, int64_t row, int64_t *step) {
    int64_t at = 0;
    *step = l->flat ? (qn_tensor_count(t) == 1 ? 0 : 4) : stretched(t, 0);
    for (int k = 1; !l->flat && k < y->rank; row /= qn_ne(y, k++)) at += row % qn_ne(y, k) * stretched(t, k);
    return qn_at(t, at);
}

static void load_tile(const char *from, int64_t step, int n, const float **in, float *spread) {
    *in = spread;
    if (step == 4 && n == TILE) *in = (const float *)from;
    else if (step == 4) memcpy(spread, from, (size_t)n * 4);
    else
        for (int i = 0; i < n; i++) spread[i] = *(const float *)(from + i * step);
}

static void run_tile(const qn_call *c, machine *m, const layout *l, int64_t row, int64_t first) {
    const qn_tensor *y = c->dst[0];
    int n = l->columns - first < TILE ? (int)(l->columns - first) : TILE;
    for (int i = 0; i < c->n_src; i++) {
        int64_t step;
        if (!c->src[i]) continue;
        const char *from = row_of(c->src[i], y, l, row, &step);
        load_tile(from + first * step, step, n, &m->in[i], m->spread[i]);
    }
    run_steps(m);
    for (int o = 0; o < m->region.n_outputs; o++)
        if (o < c->n_dst && c->dst[o])
            memcpy(qn_at(c->dst[o], (row * l->columns + first) * 4), m->at[m->region.output[o]], (size_t)n * 4);
}

static int64_t tiles_of(const layout *l) { return (l->columns + TILE - 1) / TILE; }

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    machine m;
    layout l = layout_of(c);
    int64_t all = l.rows * tiles_of(&l), end = qn_cpu_cut(all, s->parts[0], part + 1);
    (void)phase;
    qn_region_read(&((const qn_attr_region *)c->attr)->code, &m.region);
    memset(m.spread, 0, sizeof m.spread);
    for (int k = 0; k < m.region.n_steps; k++)
        for (int i = 0; i < TILE; i++) m.at[k][i] = m.region.step[k].kind == QN_REGION_number ? m.region.step[k].number : 0.0f;
    for (int64_t i = qn_cpu_cut(all, s->parts[0], part); i < end; i++)
        run_tile(c, &m, &l, i / tiles_of(&l), i % tiles_of(&l) * TILE);
}

/* ---- Choosing */

/* Truths are f32 within the program: no source and no output is one. */
static int is_ours(const qn_call *c, const qn_region *r) {
    int yes = 1;
    for (int i = 0; i < c->n_src; i++) yes &= !c->src[i] || c->src[i]->dtype == QN_DTYPE_F32;
    for (int i = 0; i < c->n_dst; i++) yes &= !c->dst[i] || (c->dst[i]->dtype == QN_DTYPE_F32 && qn_cpu_is_dense(c->dst[i]));
    for (int k = 0; k < r->n_steps; k++) {
        const qn_region_step *s = &r->step[k];
        int typed = s->dtype == QN_DTYPE_F32 || (s->dtype == QN_DTYPE_BOOL && s->kind == QN_REGION_compare);
        yes &= typed && (s->kind == QN_REGION_number || function_of(s));
    }
    return yes;
}

int QN_K(region)(const qn_call *c, qn_cpu_step *s) {
    qn_region r;
    if (!c->dst[0] || qn_tensor_count(c->dst[0]) == 0) return 0;
    qn_region_read(&((const qn_attr_region *)c->attr)->code, &r);
    if (!is_ours(c, &r)) return 0;
    layout l = layout_of(c);
    return qn_cpu_by_rows(s, "tiles of a program", run, l.rows * tiles_of(&l), TILE * 4.0 * (c->n_src + c->n_dst),
                          TILE * 6.0 * r.n_steps);
}
