/* Programs of elementwise steps with f64 or integers among their dtypes, which k_region.c's vectors of f32 do not hold: tiles of doubles, in
 * which every step is what the reference has, to the bit. Steps that are arithmetic are loops compilers make vectors of; the others are
 * the reference's functions, an element at a time. */
#include <math.h>

#include "cpu/k_region.h"
#include "cpu/k_typed.h"
#include "op/scalar_math.h"

enum { TILE = QN_REGION_TILE };

typedef void (*step_fn)(const double *a, const double *b, const double *c, double *y, int64_t n);

typedef struct machine {
    qn_region region;
    step_fn function[QN_REGION_MAX_STEPS]; /* NULL: one element at a time */
    const char *row[QN_REGION_MAX_SOURCES];
    int64_t step[QN_REGION_MAX_SOURCES];
    const double *in[QN_REGION_MAX_SOURCES]; /* of the tile */
    double made[QN_REGION_MAX_SOURCES][TILE], at[QN_REGION_MAX_STEPS][TILE];
} machine;

/* ---- Steps */

#define STEP(name, expression)                                                                         \
    static void s_##name(const double *ap, const double *bp, const double *cp, double *y, int64_t n) { \
        QN_TYPED_EACH                                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                              \
            double a = ap[i], b = bp[i], c = cp[i];                                                    \
            (void)a, (void)b, (void)c;                                                                 \
            y[i] = expression;                                                                         \
        }                                                                                              \
    }
STEP(cast, a)
STEP(sqr, a *a)
STEP(sqrt, sqrt(a))
STEP(scale, c == 0 ? b * a : b * a + c)
STEP(clamp, a<b ? b : a> c ? c : a)
STEP(leaky_relu, ((a > 0) | (a != a)) ? a : b *a)
STEP(where, a != 0 ? b : c)
STEP(and, (a != 0) & (b != 0))
STEP(or, (a != 0) | (b != 0))
STEP(xor, (a != 0) ^ (b != 0))
STEP(not, a == 0)
STEP(abs, fabs(a))
STEP(neg, -a)
STEP(step, a > 0)
STEP(relu, ((a > 0) | (a != a)) ? a : 0)
STEP(recip, 1 / a)
#define STEP_OF(name, expression, unused) STEP(name, expression)
QN_TYPED_FLOAT_ARITH(STEP_OF, )
QN_TYPED_COMPARISONS(STEP_OF, )

static step_fn function_of(const qn_region_step *s) {
    static const step_fn unary[QN_UNARY_COUNT] = {
        [QN_UNARY_abs] = s_abs, [QN_UNARY_neg] = s_neg, [QN_UNARY_step] = s_step, [QN_UNARY_relu] = s_relu};
    static const step_fn arith[QN_ARITH_COUNT] = {[QN_ARITH_add] = s_add, [QN_ARITH_sub] = s_sub, [QN_ARITH_mul] = s_mul,
                                                  [QN_ARITH_div] = s_div, [QN_ARITH_max] = s_max, [QN_ARITH_min] = s_min};
    static const step_fn compare[QN_COMPARE_COUNT] = {[QN_COMPARE_eq] = s_eq, [QN_COMPARE_ne] = s_ne, [QN_COMPARE_lt] = s_lt,
                                                      [QN_COMPARE_le] = s_le, [QN_COMPARE_gt] = s_gt, [QN_COMPARE_ge] = s_ge};
    static const step_fn logic[QN_LOGIC_COUNT] = {
        [QN_LOGIC_and] = s_and, [QN_LOGIC_or] = s_or, [QN_LOGIC_xor] = s_xor, [QN_LOGIC_not] = s_not};
    switch (s->kind) {
    case QN_REGION_unary: return unary[s->subop];
    case QN_REGION_arith: return arith[s->subop];
    case QN_REGION_compare: return compare[s->subop];
    case QN_REGION_logic: return logic[s->subop];
    case QN_REGION_math: return s->subop == QN_MATH_recip ? s_recip : NULL;
    case QN_REGION_cast: return s_cast;
    case QN_REGION_sqr: return s_sqr;
    case QN_REGION_sqrt: return s_sqrt;
    case QN_REGION_scale: return s_scale;
    case QN_REGION_clamp: return s_clamp;
    case QN_REGION_leaky_relu: return s_leaky_relu;
    case QN_REGION_where: return s_where;
    default: return NULL;
    }
}

static const double *operand(const machine *m, const qn_region_step *s, int i) {
    if (i >= s->n_operands) return m->at[0]; /* not looked at */
    return s->operand[i] < QN_REGION_STEP_BIT ? m->in[s->operand[i]] : m->at[s->operand[i] - QN_REGION_STEP_BIT];
}

/* To the dtype of a step, and back. */
static void round_to(uint32_t dtype, double *y, int64_t n) {
    char narrow[TILE * 4];
    if (dtype == QN_DTYPE_F64) return;
    qn_typed_store(dtype, y, n, narrow);
    qn_typed_load(dtype, narrow, n, y, 0);
}

static void run_steps(machine *m, int64_t n) {
    for (int k = 0; k < m->region.n_steps; k++) {
        const qn_region_step *s = &m->region.step[k];
        const double *a = operand(m, s, 0), *b = operand(m, s, 1), *c = operand(m, s, 2);
        if (s->kind == QN_REGION_number) continue; /* there since the beginning */
        if (m->function[k]) m->function[k](a, b, c, m->at[k], n);
        else
            for (int64_t i = 0; i < n; i++) m->at[k][i] = qn_region_value(s, a[i], b[i], c[i]);
        round_to((uint32_t)s->dtype, m->at[k], n);
    }
}

/* ---- Tiles */

/* Elements `step` apart, side by side. */
#define GATHER(type) \
    for (int64_t i = 0; i < n; i++) ((type *)(void *)to)[i] = *(const type *)(const void *)(from + i * step)

static const double *load_tile(const qn_tensor *t, const char *from, int64_t step, int64_t n, double *made) {
    int64_t size = qn_dtype_bytes(t->dtype);
    _Alignas(8) char to[TILE * 8];
    if (step != size) {
        if (size == 1) GATHER(uint8_t);
        else if (size == 2) GATHER(uint16_t);
        else if (size == 4) GATHER(uint32_t);
        else GATHER(uint64_t);
        from = to;
    }
    if (t->dtype == QN_DTYPE_F64 && step == size) return (const double *)(const void *)from;
    qn_typed_load(t->dtype, from, n, made, 0);
    return made;
}

static void run_tile(const qn_call *c, machine *m, const qn_region_layout *l, int64_t row, int64_t first) {
    int64_t n = l->columns - first < TILE ? l->columns - first : TILE;
    for (int i = 0; i < c->n_src; i++)
        if (c->src[i]) m->in[i] = load_tile(c->src[i], m->row[i] + first * m->step[i], m->step[i], n, m->made[i]);
    run_steps(m, n);
    for (int o = 0; o < m->region.n_outputs && o < c->n_dst; o++) {
        const qn_tensor *y = c->dst[o];
        if (y)
            qn_typed_store(y->dtype, m->at[m->region.output[o]], n,
                           qn_at(y, (row * l->columns + first) * qn_dtype_bytes(y->dtype)));
    }
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    machine m;
    (void)phase;
    qn_region_program(c, &m.region);
    for (int k = 0; k < m.region.n_steps; k++) {
        m.function[k] = function_of(&m.region.step[k]);
        for (int i = 0; i < TILE; i++) m.at[k][i] = (double)m.region.step[k].number;
    }
    qn_region_walk w = qn_region_walk_of(c, s, part);
    while (qn_region_next(c, &w, m.row, m.step)) run_tile(c, &m, &w.l, w.row, w.first);
}

/* ---- Choosing */

static int is_narrow(uint32_t d) { return d == QN_DTYPE_F32 || d == QN_DTYPE_F16 || d == QN_DTYPE_BF16 || d == QN_DTYPE_BOOL; }
static int is_double(uint32_t d) { return qn_typed_can(d) && d != QN_DTYPE_I64; } /* whose values are */

/* What floats hold is k_region.c's, if need be behind copies. */
static int is_ours(const qn_call *c, const qn_region *r) {
    int can = 1, narrow = 1;
    for (int i = 0; i < c->n_src; i++)
        if (c->src[i]) can &= is_double(c->src[i]->dtype), narrow &= is_narrow(c->src[i]->dtype);
    for (int i = 0; i < c->n_dst; i++)
        if (c->dst[i]) can &= is_double(c->dst[i]->dtype) && qn_cpu_is_dense(c->dst[i]);
    for (int k = 0; k < r->n_steps; k++)
        can &= r->step[k].dtype == QN_DTYPE_F64 || is_narrow((uint32_t)r->step[k].dtype),
            narrow &= is_narrow((uint32_t)r->step[k].dtype);
    return can && !narrow;
}

int QN_K(doubles)(const qn_call *c, qn_cpu_step *s) {
    qn_region r;
    double flops = 0;
    if (!c->dst[0] || qn_tensor_count(c->dst[0]) == 0) return 0;
    if (!qn_region_program(c, &r) || !is_ours(c, &r)) return 0;
    qn_region_layout l = qn_region_layout_of(c);
    for (int k = 0; k < r.n_steps; k++) flops += function_of(&r.step[k]) ? 8 : 80;
    return qn_cpu_by_rows(s, "tiles of doubles", run, l.rows * qn_region_tiles(&l), TILE * 8.0 * (c->n_src + c->n_dst),
                          TILE * flops);
}
