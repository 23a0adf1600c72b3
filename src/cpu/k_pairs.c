/* Two or three operands broadcast against each other, of the dtypes that are not computed in vectors of f32: arith of integers and f64,
 * compare of these and of truths, logic, where of anything that has a size. Operands of any strides are walked by tiles: one that does not
 * lie side by side is brought there first, so that every function is one loop over neighbours. */
#include "cpu/k_past.h"
#include "cpu/k_typed.h"
#include "op/op_broadcast.h"
#include "op/scalar_math.h"

enum { TILE = 512, OPERANDS = 4 }; /* elements of a tile; the result, and up to three sources */

typedef void (*tile_fn)(void *y, const void *const *in, int64_t n);

/* ---- Functions */

#define LOOP(name, to, from, expression)                               \
    static void name(void *result, const void *const *in, int64_t n) { \
        to *y = result;                                                \
        const from *p = in[0], *q = in[1];                             \
        QN_TYPED_EACH                                                  \
        for (int64_t i = 0; i < n; i++) {                              \
            from a = p[i], b = q[i];                                   \
            y[i] = (to)(expression);                                   \
        }                                                              \
    }

/* Quotients of up to 32 bits are those of doubles: one that is not whole is further from a whole number than a double is off. */
#define QUOTIENT(a, b) ((double)(a) / ((b) == 0 ? 1.0 : (double)(b)))
#define NARROW(d, type, wide)                                                                                        \
    static inline wide limit_##d(wide v) { return v < QN_LOW_##d ? QN_LOW_##d : v > QN_HIGH_##d ? QN_HIGH_##d : v; } \
    static inline wide div_of_##d(wide a, wide b) { return b == 0 ? 0 : limit_##d((wide)QUOTIENT(a, b)); }           \
    static inline wide mod_of_##d(wide a, wide b) {                                                                  \
        wide r = b == 0 ? 0 : a - (wide)QUOTIENT(a, b) * b;                                                          \
        return r != 0 && (r < 0) != (b < 0) ? r + b : r;                                                             \
    }                                                                                                                \
    static inline int64_t pow_of_##d(int64_t a, int64_t b) {                                                         \
        return qn_limited(qn_op_integer_arith(QN_ARITH_pow, a, b), QN_LOW_##d, QN_HIGH_##d);                         \
    }                                                                                                                \
    LOOP(add_##d, type, type, limit_##d((wide)a + (wide)b))                                                          \
    LOOP(sub_##d, type, type, limit_##d((wide)a - (wide)b))                                                          \
    LOOP(div_##d, type, type, div_of_##d(a, b))                                                                      \
    LOOP(max_##d, type, type, b > a ? b : a)                                                                         \
    LOOP(min_##d, type, type, b < a ? b : a)                                                                         \
    LOOP(pow_##d, type, type, pow_of_##d((int64_t)a, (int64_t)b))                                                    \
    LOOP(mod_##d, type, type, mod_of_##d(a, b))

QN_TYPED_NARROW(NARROW)

LOOP(mul_I8, int8_t, int8_t, limit_I8(a *b))
LOOP(mul_U8, uint8_t, uint8_t, limit_U8(a *b))
LOOP(mul_I16, int16_t, int16_t, limit_I16(a *b))
LOOP(mul_I32, int32_t, int32_t, limit_I32((int64_t)a *b))
LOOP(mul_U32, uint32_t, uint32_t, (uint64_t)a *b > UINT32_MAX ? UINT32_MAX : (uint64_t)a * b)

static inline int64_t end_of(int negative) { return negative ? INT64_MIN : INT64_MAX; }
static inline int64_t add_long(int64_t a, int64_t b) {
    int64_t sum = (int64_t)((uint64_t)a + (uint64_t)b);
    return ((a ^ sum) & (b ^ sum)) < 0 ? end_of(b < 0) : sum;
}
static inline int64_t sub_long(int64_t a, int64_t b) {
    int64_t difference = (int64_t)((uint64_t)a - (uint64_t)b);
    return ((a ^ b) & (a ^ difference)) < 0 ? end_of(b > 0) : difference;
}
static inline int64_t mul_long(int64_t a, int64_t b) {
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? end_of((a < 0) != (b < 0)) : product;
}
static inline int64_t div_long(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? sub_long(0, a) : a / b; }
static inline int64_t mod_long(int64_t a, int64_t b) {
    int64_t r = b == 0 || b == -1 ? 0 : a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
LOOP(add_I64, int64_t, int64_t, add_long(a, b))
LOOP(sub_I64, int64_t, int64_t, sub_long(a, b))
LOOP(mul_I64, int64_t, int64_t, mul_long(a, b))
LOOP(div_I64, int64_t, int64_t, div_long(a, b))
LOOP(max_I64, int64_t, int64_t, b > a ? b : a)
LOOP(min_I64, int64_t, int64_t, b < a ? b : a)
LOOP(pow_I64, int64_t, int64_t, qn_op_integer_arith(QN_ARITH_pow, a, b))
LOOP(mod_I64, int64_t, int64_t, mod_long(a, b))

#define LOOP_F64(name, expression, unused) LOOP(name##_F64, double, double, expression)
QN_TYPED_FLOAT_ARITH(LOOP_F64, )
LOOP(pow_F64, double, double, qn_op_arith(QN_ARITH_pow, a, b))
LOOP(mod_F64, double, double, qn_op_arith(QN_ARITH_mod, a, b))

#define COMPARISON(name, expression, d, type) LOOP(name##_##d, uint8_t, type, expression)
#define COMPARISONS(d, type, wide) QN_TYPED_COMPARISONS(COMPARISON, d, type)
QN_TYPED_NUMBERS(COMPARISONS)
COMPARISONS(F32, float, float)

/* Any byte but 0 is a truth. */
#define TRUTHS(name, expression) LOOP(name, uint8_t, uint8_t, (a = a != 0, b = b != 0, expression))
#define COMPARED_TRUTHS(name, expression, unused) TRUTHS(name##_BOOL, expression)
QN_TYPED_COMPARISONS(COMPARED_TRUTHS, )
TRUTHS(truth_and, a &b)
TRUTHS(truth_or, a | b)
TRUTHS(truth_xor, a ^ b)

static void truth_not(void *result, const void *const *in, int64_t n) {
    uint8_t *y = result;
    const uint8_t *p = in[0];
    QN_TYPED_EACH
    for (int64_t i = 0; i < n; i++) y[i] = p[i] == 0;
}

#define CHOICE(type)                                                            \
    static void choose_##type(void *result, const void *const *in, int64_t n) { \
        type *y = result;                                                       \
        const uint8_t *is = in[0];                                              \
        const type *p = in[1], *q = in[2];                                      \
        QN_TYPED_EACH                                                           \
        for (int64_t i = 0; i < n; i++) {                                       \
            type a = p[i], b = q[i];                                            \
            y[i] = is[i] ? a : b;                                               \
        }                                                                       \
    }
CHOICE(uint8_t)
CHOICE(uint16_t)
CHOICE(uint32_t)
CHOICE(uint64_t)

#define ARITH_OF(d, type, wide)                                                                                               \
    [QN_DTYPE_##d] = {[QN_ARITH_add] = add_##d, [QN_ARITH_sub] = sub_##d, [QN_ARITH_mul] = mul_##d, [QN_ARITH_div] = div_##d, \
                      [QN_ARITH_max] = max_##d, [QN_ARITH_min] = min_##d, [QN_ARITH_pow] = pow_##d, [QN_ARITH_mod] = mod_##d},
#define COMPARE_OF(d, type, wide)                                                                   \
    [QN_DTYPE_##d] = {[QN_COMPARE_eq] = eq_##d, [QN_COMPARE_ne] = ne_##d, [QN_COMPARE_lt] = lt_##d, \
                      [QN_COMPARE_le] = le_##d, [QN_COMPARE_gt] = gt_##d, [QN_COMPARE_ge] = ge_##d},
static const tile_fn arith_fns[QN_DTYPE_COUNT][QN_ARITH_COUNT] = {QN_TYPED_NUMBERS(ARITH_OF)};
static const tile_fn compare_fns[QN_DTYPE_COUNT][QN_COMPARE_COUNT] = {QN_TYPED_NUMBERS(COMPARE_OF) COMPARE_OF(F32, , )
                                                                          COMPARE_OF(BOOL, , )};
static const tile_fn logic_fns[QN_LOGIC_COUNT] = {
    [QN_LOGIC_and] = truth_and, [QN_LOGIC_or] = truth_or, [QN_LOGIC_xor] = truth_xor, [QN_LOGIC_not] = truth_not};
static const tile_fn choice_fns[9] = {[1] = choose_uint8_t, [2] = choose_uint16_t, [4] = choose_uint32_t, [8] = choose_uint64_t};

static tile_fn function_of(const qn_call *c) {
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    int all_f64 = c->n_src > 1 && a->dtype == QN_DTYPE_F64 && c->src[1] && c->src[1]->dtype == a->dtype && y->dtype == a->dtype;
    switch (c->op) {
    case QN_OP_arith: return arith_fns[a->dtype][c->subop];
    case QN_OP_compare: return compare_fns[a->dtype][c->subop];
    case QN_OP_logic: return logic_fns[c->subop];
    case QN_OP_where: return a->dtype == QN_DTYPE_BOOL ? choice_fns[qn_dtype_bytes(y->dtype)] : NULL;
    case QN_OP_add1:
    case QN_OP_add: return all_f64 ? add_F64 : NULL;
    case QN_OP_sub: return all_f64 ? sub_F64 : NULL;
    case QN_OP_mul: return all_f64 ? mul_F64 : NULL;
    case QN_OP_div: return all_f64 ? div_F64 : NULL;
    default: return NULL;
    }
}

/* ---- The walk: operand 0 is the result */

typedef struct walk {
    int n, operands;
    int64_t extent[QN_MAX_RANK], rows, tiles;
    int64_t step[OPERANDS][QN_MAX_RANK], size[OPERANDS]; /* bytes */
    const qn_tensor *of[OPERANDS];
} walk;

static int64_t step_of(const walk *w, int i, int k) { return qn_ne(w->of[i], k) == 1 ? 0 : qn_nb(w->of[i], k); }

/* An axis that goes on where the one outside it takes its next step is the same axis. */
static void add_axis(walk *w, int k, int64_t extent) {
    int merges = w->n > 0;
    for (int i = 0; i < w->operands && merges; i++) merges = w->step[i][w->n - 1] == extent * step_of(w, i, k);
    if (!merges) w->extent[w->n++] = 1;
    w->extent[w->n - 1] *= extent;
    for (int i = 0; i < w->operands; i++) w->step[i][w->n - 1] = step_of(w, i, k);
}

/* 0: an operand is tiled over the result. */
static int make_walk(const qn_call *c, walk *w) {
    const qn_tensor *y = c->dst[0];
    *w = (walk){.operands = 1, .of = {y}, .rows = 1};
    for (int i = 0; i < c->n_src && c->src[i]; i++) w->of[w->operands++] = c->src[i];
    for (int i = 0; i < w->operands; i++) w->size[i] = qn_dtype_bytes(w->of[i]->dtype);
    for (int k = y->rank - 1; k >= 0; k--) {
        int64_t extent = qn_ne(y, k);
        for (int i = 1; i < w->operands; i++)
            if (qn_ne(w->of[i], k) != 1 && qn_ne(w->of[i], k) != extent) return 0;
        if (extent != 1) add_axis(w, k, extent);
    }
    if (w->n == 0) w->extent[w->n++] = 1;
    for (int i = 0; i < w->n - 1; i++) w->rows *= w->extent[i];
    w->tiles = (w->extent[w->n - 1] + TILE - 1) / TILE;
    return 1;
}

static char *row_at(const walk *w, int operand, int64_t row) {
    int64_t at = 0;
    for (int i = w->n - 2; i >= 0; row /= w->extent[i--]) at += row % w->extent[i] * w->step[operand][i];
    return qn_at(w->of[operand], at);
}

#define ELEMENTS(type) \
    for (int64_t i = 0; i < n; i++) *(type *)(void *)(to + i * to_step) = *(const type *)(const void *)(from + i * step)

static void copy_elements(char *to, int64_t to_step, const char *from, int64_t step, int64_t n, int64_t size) {
    switch (size) {
    case 1: ELEMENTS(uint8_t); return;
    case 2: ELEMENTS(uint16_t); return;
    case 4: ELEMENTS(uint32_t); return;
    default: ELEMENTS(uint64_t);
    }
}

typedef struct tiles {
    _Alignas(64) char of[OPERANDS][TILE * 8];
    char *row[OPERANDS];
    const void *in[OPERANDS]; /* what the function reads, by source */
    int past;
} tiles;

/* A value that is the same all along a row is spread once. */
static void begin_row(const walk *w, tiles *t, int64_t row) {
    int64_t n = w->extent[w->n - 1] < TILE ? w->extent[w->n - 1] : TILE;
    for (int i = 0; i < w->operands; i++) {
        t->row[i] = row_at(w, i, row);
        if (i > 0 && w->step[i][w->n - 1] == 0) copy_elements(t->of[i], w->size[i], t->row[i], 0, n, w->size[i]);
    }
}

static void run_tile(const walk *w, tiles *t, tile_fn fn, int64_t first) {
    int last = w->n - 1;
    int64_t n = w->extent[last] - first < TILE ? w->extent[last] - first : TILE;
    for (int i = 1; i < w->operands; i++) {
        int64_t step = w->step[i][last];
        const char *from = t->row[i] + first * step;
        t->in[i - 1] = step == w->size[i] ? from : t->of[i];
        if (step != w->size[i] && step != 0) copy_elements(t->of[i], w->size[i], from, step, n, w->size[i]);
    }
    int64_t step = w->step[0][last];
    char *to = t->row[0] + first * step;
    int direct = step == w->size[0] && !t->past;
    fn(direct ? (void *)to : (void *)t->of[0], t->in, n);
    if (direct) return;
    if (step == w->size[0]) qn_past_put(to, t->of[0], n * step);
    else copy_elements(to, step, t->of[0], w->size[0], n, w->size[0]);
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    walk w;
    tiles t;
    (void)phase;
    if (!make_walk(c, &w)) return;
    t.past = qn_past_is(s, c->dst[0], c->src, c->n_src);
    int64_t units = w.rows * w.tiles, row = -1, end = qn_cpu_cut(units, s->parts[0], part + 1);
    for (int64_t u = qn_cpu_cut(units, s->parts[0], part); u < end; u++) {
        if (u / w.tiles != row) begin_row(&w, &t, row = u / w.tiles);
        run_tile(&w, &t, (tile_fn)s->inner, u % w.tiles * TILE);
    }
    if (t.past) qn_past_end();
}

int QN_K(pairs)(const qn_call *c, qn_cpu_step *s) {
    walk w;
    tile_fn fn = function_of(c);
    if (!fn || qn_tensor_count(c->dst[0]) == 0 || !make_walk(c, &w)) return 0;
    double n = (double)qn_tensor_count(c->dst[0]) / (double)(w.rows * w.tiles), bytes = 0;
    for (int i = 0; i < w.operands; i++) bytes += n * (double)w.size[i];
    int slow = c->op == QN_OP_arith && (c->subop == QN_ARITH_pow || c->subop == QN_ARITH_mod);
    s->inner = (qn_cpu_inner_fn)fn;
    return qn_cpu_by_rows(s, "tiles of pairs", run, w.rows * w.tiles, bytes, slow ? n * 40 : 0);
}

int QN_K(logic)(const qn_call *c, qn_cpu_step *s) { return QN_K(pairs)(c, s); }
