/* region: a program of elementwise steps runs over tiles that stay in the first cache, a vector at a time in f32. An op that can be a
 * step and has no kernel of its own is the program of that one step. Dtypes are f32, f16, bf16 and truths, which are 0 and 1 within;
 * programs with others are k_doubles.c's, and functions without a vector form are left to the reference. */
#include "cpu/k_lanes.h"
#include "cpu/k_past.h"
#include "cpu/k_region.h"
#include "cpu/simd/simd_act.h"
#include "cpu/simd/simd_power.h"

enum { TILE = QN_REGION_TILE, AHEAD = 1024 }; /* AHEAD: bytes before they are read or written, lines are asked for */

typedef void (*step_fn)(const float *a, const float *b, const float *c, float *y);

typedef struct machine {
    qn_region region;
    step_fn function[QN_REGION_MAX_STEPS];  /* NULL of a number, which is there before the first tile */
    const char *row[QN_REGION_MAX_SOURCES]; /* where the row at hand begins in each source, and how far its elements are apart */
    int64_t step[QN_REGION_MAX_SOURCES];
    int past, direct;                       /* the result is too large for any cache; it needs no more than the last step */
    const float *in[QN_REGION_MAX_SOURCES]; /* of the tile; a source that is stretched along it has been spread */
    float spread[QN_REGION_MAX_SOURCES][TILE];
    float at[QN_REGION_MAX_STEPS][TILE]; /* results of the steps */
} machine;

/* ---- Steps */

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
static inline vf leaky(vf a, vf slope) { return vf_select((a > vf_zero()) | (a != a), a, a * slope); }
static inline vf from_tangent(vf y) { return vf_fma(y, y, vf_set1(1.0f)); } /* its slope */
static inline vf limited(vf a, vf b, vf c) { return vf_select(a < b, b, vf_select(a > c, c, a)); }

STEP(cast, a)
STEP(to_truth, truth(a != vf_zero()))
STEP(sqr, a *a)
STEP(sqrt, vf_sqrt(a))
STEP(log, vf_log(a))
STEP(sin, vf_sin(a))
STEP(cos, vf_cos(a))
STEP(scale, vf_select(c == vf_zero(), a *b, vf_fma(a, b, c)))
STEP(clamp, limited(a, b, c))
STEP(leaky_relu, leaky(a, b))
STEP(where, vf_select(a != vf_zero(), b, c))
STEP(silu_back, a *d_silu(b))
STEP(add, a + b)
STEP(sub, a - b)
STEP(mul, a *b)
STEP(div, a / b)
STEP(max, vf_select(b != b, b, larger(a, b)))
STEP(min, vf_select(b != b, b, smaller(a, b)))
STEP(pow, vf_pow(a, b))
STEP(mod, vf_mod(a, b))
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
STEP(round_even, vf_select(vf_abs(a) < vf_set1(8388608.0f), vf_round(a), a))
STEP(tan, vf_tan(a))
STEP(atan, vf_atan(a))
STEP(exp2, vf_exp2(a))
STEP(log2, vf_log2(a))
STEP(back_tan, a *from_tangent(vf_tan(b)))
STEP(back_atan, a / vf_fma(b, b, vf_set1(1.0f)))
STEP(back_exp2, a *vf_set1(0.693147181f) * vf_exp2(b))
STEP(back_log2, a *vf_set1(1.44269504f) / b)
STEP(back_rsqrt, a *vf_set1(-0.5f) / (b * vf_sqrt(b)))
STEP(back_recip, vf_zero() - a / (b * b))
STEP(back_erf, a *vf_set1(1.12837917f) * vf_exp(vf_zero() - b * b))
STEP(back_log1p, a / (vf_set1(1.0f) + b))
STEP(and, truth((a != vf_zero()) & (b != vf_zero())))
STEP(or, truth((a != vf_zero()) | (b != vf_zero())))
STEP(xor, truth((a != vf_zero()) ^ (b != vf_zero())))
STEP(not, truth(a == vf_zero()))

#define UNARY(name) STEP(unary_##name, f_##name(a)) STEP(back_##name, a *d_##name(b))
VF_EACH_ACT(UNARY)

static step_fn unary_of(int subop) {
    switch (subop) {
#define CASE(name) \
    case QN_UNARY_##name: return s_unary_##name;
        VF_EACH_ACT(CASE)
#undef CASE
    default: return NULL;
    }
}

static step_fn unary_back_of(int subop) {
    switch (subop) {
#define CASE(name) \
    case QN_UNARY_##name: return s_back_##name;
        VF_EACH_ACT(CASE)
#undef CASE
    default: return NULL;
    }
}

static step_fn arith_of(int subop) {
    static const step_fn by[QN_ARITH_COUNT] = {
        [QN_ARITH_add] = s_add, [QN_ARITH_sub] = s_sub, [QN_ARITH_mul] = s_mul, [QN_ARITH_div] = s_div,
        [QN_ARITH_max] = s_max, [QN_ARITH_min] = s_min, [QN_ARITH_pow] = s_pow, [QN_ARITH_mod] = s_mod};
    return by[subop];
}

static step_fn compare_of(int subop) {
    static const step_fn by[QN_COMPARE_COUNT] = {[QN_COMPARE_eq] = s_eq, [QN_COMPARE_ne] = s_ne, [QN_COMPARE_lt] = s_lt,
                                                 [QN_COMPARE_le] = s_le, [QN_COMPARE_gt] = s_gt, [QN_COMPARE_ge] = s_ge};
    return by[subop];
}

static step_fn math_of(int subop) {
    static const step_fn by[QN_MATH_COUNT] = {
        [QN_MATH_rsqrt] = s_rsqrt, [QN_MATH_recip] = s_recip, [QN_MATH_erf] = s_erf,
        [QN_MATH_log1p] = s_log1p, [QN_MATH_tan] = s_tan,     [QN_MATH_atan] = s_atan,
        [QN_MATH_exp2] = s_exp2,   [QN_MATH_log2] = s_log2,   [QN_MATH_round_even] = s_round_even};
    return by[subop];
}

static step_fn math_back_of(int subop) {
    static const step_fn by[QN_MATH_COUNT] = {
        [QN_MATH_rsqrt] = s_back_rsqrt, [QN_MATH_recip] = s_back_recip, [QN_MATH_erf] = s_back_erf,
        [QN_MATH_log1p] = s_back_log1p, [QN_MATH_tan] = s_back_tan,     [QN_MATH_atan] = s_back_atan,
        [QN_MATH_exp2] = s_back_exp2,   [QN_MATH_log2] = s_back_log2,   [QN_MATH_round_even] = s_cast};
    return by[subop];
}

static step_fn logic_of(int subop) {
    static const step_fn by[QN_LOGIC_COUNT] = {
        [QN_LOGIC_and] = s_and, [QN_LOGIC_or] = s_or, [QN_LOGIC_xor] = s_xor, [QN_LOGIC_not] = s_not};
    return by[subop];
}

/* NULL: no vector form. A number has none either. */
static step_fn function_of(const qn_region_step *s) {
    switch (s->kind) {
    case QN_REGION_cast: return s->dtype == QN_DTYPE_BOOL ? s_to_truth : s_cast;
    case QN_REGION_unary: return unary_of(s->subop);
    case QN_REGION_unary_back: return unary_back_of(s->subop);
    case QN_REGION_math: return math_of(s->subop);
    case QN_REGION_math_back: return math_back_of(s->subop);
    case QN_REGION_logic: return logic_of(s->subop);
    case QN_REGION_sin: return s_sin;
    case QN_REGION_cos: return s_cos;
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

/* ---- Steps rounded once
 *
 * A half is what the exact result is rounded to, once. Where all operands are halves, f32 is wide enough for a sum, product, quotient
 * or root not to be rounded to the middle between two halves unless it lies there; where one has more bits it may be, and the half is then
 * the wrong one of two. So such steps are computed in doubles, as the reference does. Choices among operands are exact anyhow, and
 * functions that are off by some ulp of f32 gain nothing. */

#define ONCE(name, expression)                                                                       \
    static inline vd wide_##name(vd a, vd b, vd c) { return (void)a, (void)b, (void)c, expression; } \
    static void once_##name(const float *ap, const float *bp, const float *cp, float *y) {           \
        for (int i = 0; i < TILE; i += VF_N) {                                                       \
            vf a = vf_load(ap + i), b = vf_load(bp + i), c = vf_load(cp + i);                        \
            vd low = wide_##name(vd_low(a), vd_low(b), vd_low(c));                                   \
            vd high = wide_##name(vd_high(a), vd_high(b), vd_high(c));                               \
            vf_store(y + i, vf_of_wide(vd_to_odd(low), vd_to_odd(high)));                            \
        }                                                                                            \
    }

ONCE(add, a + b)
ONCE(sub, a - b)
ONCE(mul, a *b)
ONCE(div, a / b)
ONCE(sqr, a *a)
ONCE(sqrt, vd_sqrt(a))
ONCE(scale, vd_select((vl)(c == vd_zero()), a *b, a *b + c))
ONCE(leaky_relu, vd_select((vl)((a > vd_zero()) | (a != a)), a, a *b))
ONCE(rsqrt, 1.0 / vd_sqrt(a))
ONCE(recip, 1.0 / a)
ONCE(back_rsqrt, a * -0.5 / (b * vd_sqrt(b)))
ONCE(back_recip, -a / (b * b))
ONCE(back_log1p, a / (1.0 + b))

/* NULL: the step's usual function does. */
static step_fn once_of(const qn_region_step *s) {
    static const step_fn arith[QN_ARITH_COUNT] = {
        [QN_ARITH_add] = once_add, [QN_ARITH_sub] = once_sub, [QN_ARITH_mul] = once_mul, [QN_ARITH_div] = once_div};
    static const step_fn math[QN_MATH_COUNT] = {[QN_MATH_rsqrt] = once_rsqrt, [QN_MATH_recip] = once_recip};
    static const step_fn math_back[QN_MATH_COUNT] = {
        [QN_MATH_rsqrt] = once_back_rsqrt, [QN_MATH_recip] = once_back_recip, [QN_MATH_log1p] = once_back_log1p};
    switch (s->kind) {
    case QN_REGION_arith: return arith[s->subop];
    case QN_REGION_math: return math[s->subop];
    case QN_REGION_math_back: return math_back[s->subop];
    case QN_REGION_sqr: return once_sqr;
    case QN_REGION_sqrt: return once_sqrt;
    case QN_REGION_scale: return once_scale;
    case QN_REGION_leaky_relu: return once_leaky_relu;
    default: return NULL;
    }
}

static int is_half(uint32_t dtype) { return dtype == QN_DTYPE_F16 || dtype == QN_DTYPE_BF16; }
static int bits_of(uint32_t dtype) {
    return dtype == QN_DTYPE_F32 ? 24 : dtype == QN_DTYPE_F16 ? 11 : dtype == QN_DTYPE_BF16 ? 8 : 1;
}

/* Whether an operand has more bits than the step keeps. A number, always f32, has those it needs. */
static int is_longer(const qn_call *c, const qn_region *r, const qn_region_step *s, int operand) {
    if (operand < QN_REGION_STEP_BIT) return bits_of(c->src[operand]->dtype) > bits_of(s->dtype);
    const qn_region_step *from = &r->step[operand - QN_REGION_STEP_BIT];
    if (from->kind == QN_REGION_number) return qn_region_round(s->dtype, (double)from->number) != (double)from->number;
    return bits_of(from->dtype) > bits_of(s->dtype);
}

/* The sum of a product and a third number may be as long as anything, so a scale is always among them unless it adds nothing. */
static int is_rounded_twice(const qn_call *c, const qn_region *r, const qn_region_step *s) {
    int longer = 0;
    if (!is_half(s->dtype)) return 0;
    for (int i = 0; i < s->n_operands; i++) longer |= is_longer(c, r, s, s->operand[i]);
    if (s->kind != QN_REGION_scale || s->operand[2] < QN_REGION_STEP_BIT) return longer || s->kind == QN_REGION_scale;
    const qn_region_step *added = &r->step[s->operand[2] - QN_REGION_STEP_BIT];
    return longer || added->kind != QN_REGION_number || added->number != 0;
}

static void choose_functions(const qn_call *c, machine *m) {
    for (int k = 0; k < m->region.n_steps; k++) {
        const qn_region_step *s = &m->region.step[k];
        step_fn once = is_rounded_twice(c, &m->region, s) ? once_of(s) : NULL;
        m->function[k] = once ? once : function_of(s);
    }
}

/* ---- A tile of halves */

static void from_halves(uint32_t dtype, const uint16_t *from, float *to) {
    for (int i = 0; i < TILE; i += VF_N) vf_store(to + i, dtype == QN_DTYPE_F16 ? vf_load_h(from + i) : vf_load_b(from + i));
}

static void to_halves(uint32_t dtype, const float *from, uint16_t *to) {
    for (int i = 0; i < TILE; i += VF_N) {
        if (dtype == QN_DTYPE_F16) vf_store_h(to + i, vf_load(from + i));
        else vf_store_b(to + i, vf_load(from + i));
    }
}

/* ---- The program */

static const float *operand(const machine *m, const qn_region_step *s, int i) {
    if (i >= s->n_operands) return m->at[0]; /* not looked at */
    return s->operand[i] < QN_REGION_STEP_BIT ? m->in[s->operand[i]] : m->at[s->operand[i] - QN_REGION_STEP_BIT];
}

/* The last step writes to `last`, if that is given. */
static void run_steps(machine *m, float *last) {
    for (int k = 0; k < m->region.n_steps; k++) {
        const qn_region_step *s = &m->region.step[k];
        if (!m->function[k]) continue;
        m->function[k](operand(m, s, 0), operand(m, s, 1), operand(m, s, 2),
                       last && k + 1 == m->region.n_steps ? last : m->at[k]);
        if (is_half(s->dtype)) { /* rounded where the step says */
            uint16_t half[TILE];
            to_halves(s->dtype, m->at[k], half);
            from_halves(s->dtype, half, m->at[k]);
        }
    }
}

/* ---- Tiles */

static void load_halves(const char *from, uint32_t dtype, int64_t step, int n, float *spread) {
    uint16_t half[TILE] = {0};
    if (step == 2) memcpy(half, from, (size_t)n * 2);
    else
        for (int i = 0; i < n; i++) memcpy(&half[i], from + i * step, 2);
    from_halves(dtype, half, spread);
}

static void load_tile(const char *from, uint32_t dtype, int64_t step, int n, const float **in, float *spread) {
    *in = spread;
    if (dtype == QN_DTYPE_BOOL)
        for (int i = 0; i < n; i++) spread[i] = from[i * step] ? 1.0f : 0.0f;
    else if (dtype != QN_DTYPE_F32) load_halves(from, dtype, step, n, spread);
    else if (step == 4 && n == TILE) {
        for (int i = 0; i < TILE * 4; i += 64) __builtin_prefetch(from + i + AHEAD, 0, 3);
        *in = (const float *)from;
    } else if (step == 4) memcpy(spread, from, (size_t)n * 4);
    else
        for (int i = 0; i < n; i++) spread[i] = *(const float *)(from + i * step);
}

static void store_bytes(const void *from, int n, char *to, int past) {
    if (past) qn_past_put(to, from, n);
    else memcpy(to, from, (size_t)n);
}

static void store_tile(const float *from, uint32_t dtype, int n, char *to, int past) {
    uint16_t half[TILE];
    if (dtype == QN_DTYPE_F32) store_bytes(from, n * 4, to, past);
    else if (dtype == QN_DTYPE_BOOL)
        for (int i = 0; i < n; i++) to[i] = from[i] != 0;
    else {
        to_halves(dtype, from, half);
        store_bytes(half, n * 2, to, past);
    }
}

static void run_tile(const qn_call *c, machine *m, const qn_region_layout *l, int64_t row, int64_t first) {
    int n = l->columns - first < TILE ? (int)(l->columns - first) : TILE;
    for (int i = 0; i < c->n_src; i++) {
        const qn_tensor *t = c->src[i];
        if (t) load_tile(m->row[i] + first * m->step[i], t->dtype, m->step[i], n, &m->in[i], m->spread[i]);
    }
    if (m->direct && n == TILE) {
        char *to = qn_at(c->dst[0], (row * l->columns + first) * 4);
        for (int i = 0; i < TILE * 4; i += 64) qn_far_ask(to + i + AHEAD);
        run_steps(m, (float *)(void *)to);
        return;
    }
    run_steps(m, NULL);
    for (int o = 0; o < m->region.n_outputs; o++) {
        const qn_tensor *y = o < c->n_dst ? c->dst[o] : NULL;
        if (y)
            store_tile(m->at[m->region.output[o]], y->dtype, n, qn_at(y, (row * l->columns + first) * qn_dtype_bytes(y->dtype)),
                       m->past);
    }
}

/* One result, which is that of the last step, in f32: other steps have read what they need when it is written. */
static int is_direct(const qn_call *c, const machine *m) {
    const qn_region *r = &m->region;
    int last = r->n_steps - 1;
    return !m->past && r->n_outputs == 1 && r->output[0] == last && m->function[last] && r->step[last].dtype == QN_DTYPE_F32 &&
           c->dst[0]->dtype == QN_DTYPE_F32;
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    machine m;
    (void)phase;
    qn_region_program(c, &m.region);
    choose_functions(c, &m);
    m.past = qn_past_is(s, c->dst[0], c->src, c->n_src);
    m.direct = is_direct(c, &m);
    memset(m.spread, 0, (size_t)c->n_src * sizeof m.spread[0]);
    for (int k = 0; k < m.region.n_steps; k++)
        for (int i = 0; i < TILE; i++) m.at[k][i] = m.region.step[k].kind == QN_REGION_number ? m.region.step[k].number : 0.0f;
    qn_region_walk w = qn_region_walk_of(c, s, part);
    while (qn_region_next(c, &w, m.row, m.step)) run_tile(c, &m, &w.l, w.row, w.first);
    if (m.past) qn_past_end();
}

/* ---- Choosing */

static int has_form(uint32_t d) { return d == QN_DTYPE_F32 || d == QN_DTYPE_F16 || d == QN_DTYPE_BF16 || d == QN_DTYPE_BOOL; }

static int is_ours(const qn_call *c, const qn_region *r) {
    int yes = 1;
    for (int i = 0; i < c->n_src; i++) yes &= !c->src[i] || has_form(c->src[i]->dtype);
    for (int i = 0; i < c->n_dst; i++) yes &= !c->dst[i] || (has_form(c->dst[i]->dtype) && qn_cpu_is_dense(c->dst[i]));
    for (int k = 0; k < r->n_steps; k++)
        yes &= has_form(r->step[k].dtype) && (r->step[k].kind == QN_REGION_number || function_of(&r->step[k]));
    return yes;
}

static int prepare(const qn_call *c, qn_cpu_step *s) {
    qn_region r;
    if (!c->dst[0] || qn_tensor_count(c->dst[0]) == 0) return 0;
    if (!qn_region_program(c, &r) || !is_ours(c, &r)) return 0;
    qn_region_layout l = qn_region_layout_of(c);
    return qn_cpu_by_rows(s, "tiles of a program", run, l.rows * qn_region_tiles(&l), TILE * 4.0 * (c->n_src + c->n_dst),
                          TILE * 6.0 * r.n_steps);
}

int QN_K(doubles)(const qn_call *c, qn_cpu_step *s); /* k_doubles.c */

int QN_K(region)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s) || QN_K(doubles)(c, s); }

/* ---- One step that costs less than the memory it goes through: without tiles it is a tenth faster. f32, dense. */

enum { CHUNK = 256 }; /* elements that are never cut apart */

QN_INLINE vf cheap(int op, vf a, vf slope) { return op == QN_OP_sqr ? a * a : op == QN_OP_sqrt ? vf_sqrt(a) : leaky(a, slope); }

QN_INLINE void cheap_loop(int op, int past, const float *x, float *y, int64_t n, vf slope) {
    int64_t i = 0, ahead = past ? QN_PAST_AHEAD : AHEAD;
    for (; i + VF_N <= n; i += VF_N) {
        __builtin_prefetch((const char *)(x + i) + ahead, 0, 3);
        if (past) qn_past_store(y + i, cheap(op, vf_load(x + i), slope));
        else {
            qn_far_ask((const char *)(y + i) + ahead);
            vf_store(y + i, cheap(op, vf_load(x + i), slope));
        }
    }
    if (i < n) vf_storen(y + i, cheap(op, vf_loadn(x + i, (int)(n - i)), slope), (int)(n - i));
}

QN_INLINE void cheap_part(int op, const qn_call *c, const qn_cpu_step *s, int64_t first, int64_t n, float slope) {
    const float *x = (const float *)(const void *)qn_at(c->src[0], first * 4);
    float *y = (float *)(void *)qn_at(c->dst[0], first * 4);
    int past = qn_past_is(s, c->dst[0], c->src, 1);
    int64_t head = past ? qn_past_head((const char *)y, n, 4) : n;
    cheap_loop(op, 0, x, y, head, vf_set1(slope));
    if (!past) return;
    cheap_loop(op, 1, x + head, y + head, n - head, vf_set1(slope));
    qn_past_end();
}

static void run_cheap(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    int64_t all = qn_tensor_count(c->dst[0]), chunks = (all + CHUNK - 1) / CHUNK;
    int64_t first = CHUNK * qn_cpu_cut(chunks, s->parts[0], part), end = CHUNK * qn_cpu_cut(chunks, s->parts[0], part + 1);
    int64_t n = (end < all ? end : all) - first;
    (void)phase;
    switch (c->op) {
    case QN_OP_sqr: cheap_part(QN_OP_sqr, c, s, first, n, 0); break;
    case QN_OP_sqrt: cheap_part(QN_OP_sqrt, c, s, first, n, 0); break;
    default: cheap_part(QN_OP_leaky_relu, c, s, first, n, ((const qn_attr_leaky_relu *)c->attr)->slope);
    }
}

static int prepare_cheap(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    int64_t all = qn_tensor_count(y);
    if (all == 0 || x->dtype != QN_DTYPE_F32 || y->dtype != QN_DTYPE_F32 || !qn_cpu_is_dense(x) || !qn_cpu_is_dense(y)) return 0;
    return qn_cpu_by_rows(s, "one step", run_cheap, (all + CHUNK - 1) / CHUNK, CHUNK * 8.0, 0);
}

#define CHEAP_STEP(op) \
    int QN_K(op)(const qn_call *c, qn_cpu_step *s) { return prepare_cheap(c, s) || prepare(c, s) || QN_K(doubles)(c, s); }
CHEAP_STEP(sqr)
CHEAP_STEP(sqrt)
CHEAP_STEP(leaky_relu)

/* Other ops that are one step. */
int QN_K(one_step)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s); } /* whichever op it is */
#define ONE_STEP(op) \
    int QN_K(op)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s) || QN_K(doubles)(c, s); }
ONE_STEP(log)
ONE_STEP(sin)
ONE_STEP(cos)
ONE_STEP(math)
ONE_STEP(math_back)

/* And such as are pairs of other dtypes as well. */
int QN_K(pairs)(const qn_call *c, qn_cpu_step *s); /* k_pairs.c */
int QN_K(add1)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s) || QN_K(pairs)(c, s); }
int QN_K(compare)(const qn_call *c, qn_cpu_step *s) { return QN_K(pairs)(c, s) || prepare(c, s); }
int QN_K(where)(const qn_call *c, qn_cpu_step *s) { return QN_K(pairs)(c, s) || prepare(c, s) || QN_K(doubles)(c, s); }
