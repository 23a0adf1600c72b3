/* add, sub, mul, div of two tensors, the second tiled over the first, and arith, where either is broadcast. f32, f16, bf16 and mixtures of
 * them; rows whose elements lie side by side, or are one number. */
#include "cpu/k_copy.h"
#include "cpu/k_lanes.h"
#include "cpu/k_past.h"

typedef void (*row_fn)(char *y, const char *a, const char *b, int64_t n, qn_way way);

/* NaN wins; of equals the first. */
QN_INLINE vf combined(int op, vf p, vf q) {
    return op == QN_ARITH_add   ? p + q
           : op == QN_ARITH_sub ? p - q
           : op == QN_ARITH_mul ? p * q
           : op == QN_ARITH_div ? p / q
           : op == QN_ARITH_max ? vf_select((p != p) | (p >= q), p, q)
                                : vf_select((p != p) | (p <= q), p, q);
}

/* Both operands are whole rows, or one of them is one number. */
enum { BOTH, B_ONE, A_ONE, FORMS };

/* A row: computed in f32, rounded once. */
QN_INLINE void row(int op, uint32_t dtype, int form, char *y, const char *a, const char *b, int64_t n, qn_way way) {
    int64_t i = 0, size = qn_float_bytes(dtype);
    vf one_a = vf_set1(qn_lanes_some(dtype, a, 0, 1)[0]), one_b = vf_set1(qn_lanes_some(dtype, b, 0, 1)[0]);
#define P(i) (form == A_ONE ? one_a : qn_lanes(dtype, a, i))
#define Q(i) (form == B_ONE ? one_b : qn_lanes(dtype, b, i))
#define SOME_P(i, n) (form == A_ONE ? one_a : qn_lanes_some(dtype, a, i, n))
#define SOME_Q(i, n) (form == B_ONE ? one_b : qn_lanes_some(dtype, b, i, n))
    if (way == QN_PAST) {
        i = qn_past_head(y, n, size);
        if (i) qn_lanes_put_some(dtype, y, 0, combined(op, SOME_P(0, (int)i), SOME_Q(0, (int)i)), (int)i);
        for (; i + VF_N <= n; i += VF_N) {
            if (form != A_ONE) __builtin_prefetch(a + i * size + QN_PAST_AHEAD, 0, 3);
            if (form != B_ONE) __builtin_prefetch(b + i * size + QN_PAST_AHEAD, 0, 3);
            qn_past_lanes(dtype, y, i, combined(op, P(i), Q(i)));
        }
    }
    for (; way == QN_FAR && i + VF_N <= n; i += VF_N) {
        qn_far_ask(y + i * size + QN_FAR_AHEAD);
        qn_lanes_put(dtype, y, i, combined(op, P(i), Q(i)));
    }
    for (; i + VF_N <= n; i += VF_N) qn_lanes_put(dtype, y, i, combined(op, P(i), Q(i)));
    int rest = (int)(n - i);
    if (rest) qn_lanes_put_some(dtype, y, i, combined(op, SOME_P(i, rest), SOME_Q(i, rest)), rest);
#undef P
#undef Q
#undef SOME_P
#undef SOME_Q
}

#define ROW(op, type, form)                                                                          \
    static void op##_##type##_##form(char *y, const char *a, const char *b, int64_t n, qn_way way) { \
        row(QN_ARITH_##op, QN_DTYPE_##type, form, y, a, b, n, way);                                  \
    }
#define FORMS_OF(op, type) ROW(op, type, BOTH) ROW(op, type, B_ONE) ROW(op, type, A_ONE)
#define TYPES_OF(op) FORMS_OF(op, F32) FORMS_OF(op, F16) FORMS_OF(op, BF16)
TYPES_OF(add)
TYPES_OF(sub)
TYPES_OF(mul)
TYPES_OF(div)
TYPES_OF(max)
TYPES_OF(min)

#define ENTRY(op, form) \
    { op##_F32_##form, op##_F16_##form, op##_BF16_##form }
#define ENTRIES(op) [QN_ARITH_##op] = {ENTRY(op, BOTH), ENTRY(op, B_ONE), ENTRY(op, A_ONE)}
static const row_fn row_fns[QN_ARITH_COUNT][FORMS][3] = {ENTRIES(add), ENTRIES(sub), ENTRIES(mul),
                                                         ENTRIES(div), ENTRIES(max), ENTRIES(min)};

enum { N_ROW, N_FLAT }; /* elements of a row; of dtypes that differ: whether that is all there are */

/* Both operands dense and of the same shape: one row of everything, cut anywhere. */
static void run_flat(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    int64_t n = s->n[N_ROW], size = qn_float_bytes(c->dst[0]->dtype), lines = (n + 255) / 256;
    int64_t first = 256 * qn_cpu_cut(lines, s->parts[0], part), end = 256 * qn_cpu_cut(lines, s->parts[0], part + 1);
    if (end > n) end = n;
    qn_way way = qn_past_way(s, c->dst[0], c->src, c->n_src);
    first *= size;
    ((row_fn)s->inner)(qn_at(c->dst[0], first), qn_at(c->src[0], first), qn_at(c->src[1], first), end - first / size, way);
    if (way == QN_PAST) qn_past_end();
}

static void run_rows(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    const qn_tensor *y = c->dst[0];
    int64_t rows = qn_tensor_count(y) / s->n[N_ROW];
    int64_t first = qn_cpu_cut(rows, s->parts[0], part), end = qn_cpu_cut(rows, s->parts[0], part + 1);
    int64_t n = s->n[N_ROW];
    qn_way way = n >= 128 ? qn_past_way(s, y, c->src, c->n_src) : QN_NEAR; /* of shorter rows too many lines are cut */
    qn_rows it;
    for (qn_rows_begin_at(&it, y->rank, y->shape, first); it.live && it.row < end; qn_rows_next(&it))
        ((row_fn)s->inner)(qn_row(&it, y), qn_row_tiled(&it, c->src[0]), qn_row_tiled(&it, c->src[1]), n, way);
    if (way == QN_PAST) qn_past_end();
}

/* Short rows of which each meets the same one: that is written down several times, and as many rows are a long one. */
enum { SHORT = 128, TILE = 2048 };
static int64_t tiled_rows(int64_t n) { return TILE / n; }

static void run_tiled(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    const qn_tensor *y = c->dst[0];
    int64_t n = s->n[N_ROW], size = qn_float_bytes(y->dtype), rows = qn_tensor_count(y) / n, each = tiled_rows(n);
    int64_t units = (rows + each - 1) / each, end = qn_cpu_cut(units, s->parts[0], part + 1);
    qn_way way = qn_past_way(s, y, c->src, c->n_src);
    _Alignas(64) char tile[TILE * 4];
    for (int64_t r = 0; r < each; r++) memcpy(tile + r * n * size, qn_at(c->src[1], 0), (size_t)(n * size));
    for (int64_t u = qn_cpu_cut(units, s->parts[0], part); u < end; u++) {
        int64_t first = u * each, some = rows - first < each ? rows - first : each, at = first * n * size;
        ((row_fn)s->inner)(qn_at(y, at), qn_at(c->src[0], at), tile, some * n, way);
    }
    if (way == QN_PAST) qn_past_end();
}

/* Operands of several dtypes become tiles of f32, which stay near; what is f32 already is not copied. */
enum { MIXED = 1024 };
typedef struct mixed {
    const qn_call *c;
    row_fn row;
    const char *a, *b;
    char *y;
    int one_a, one_b; /* an operand's row is one number */
} mixed;

/* n elements of an operand's row from i on; of one number, that. */
static const char *floats_of(const qn_tensor *t, const char *row, int one, int64_t i, int64_t n, float *tile) {
    if (one) i = 0, n = 1;
    if (t->dtype == QN_DTYPE_F32) return row + i * 4;
    qn_copy_row(t->dtype, row + i * 2, QN_DTYPE_F32, (char *)tile, n);
    return (const char *)tile;
}

static void mix(const mixed *m, int64_t first, int64_t end) {
    const qn_tensor *a = m->c->src[0], *b = m->c->src[1], *y = m->c->dst[0];
    _Alignas(64) float left[MIXED], right[MIXED], both[MIXED];
    for (int64_t i = first; i < end; i += MIXED) {
        int64_t some = end - i < MIXED ? end - i : MIXED;
        char *to = m->y + i * qn_float_bytes(y->dtype), *at = y->dtype == QN_DTYPE_F32 ? to : (char *)both;
        m->row(at, floats_of(a, m->a, m->one_a, i, some, left), floats_of(b, m->b, m->one_b, i, some, right), some, QN_NEAR);
        if (at != to) qn_copy_row(QN_DTYPE_F32, at, y->dtype, to, some);
    }
}

static void run_mixed(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    const qn_tensor *a = c->src[0], *b = c->src[1], *y = c->dst[0];
    int64_t n = s->n[N_ROW], units = s->n[N_FLAT] ? (n + MIXED - 1) / MIXED : qn_tensor_count(y) / n;
    int64_t first = qn_cpu_cut(units, s->parts[0], part), end = qn_cpu_cut(units, s->parts[0], part + 1);
    mixed m = {c, (row_fn)s->inner, qn_at(a, 0), qn_at(b, 0), qn_at(y, 0), 0, 0};
    if (s->n[N_FLAT]) {
        mix(&m, first * MIXED, end * MIXED < n ? end * MIXED : n);
        return;
    }
    m.one_a = qn_ne(a, 0) == 1;
    m.one_b = qn_ne(b, 0) == 1;
    qn_rows it;
    for (qn_rows_begin_at(&it, y->rank, y->shape, first); it.live && it.row < end; qn_rows_next(&it)) {
        m.a = qn_row_tiled(&it, a);
        m.b = qn_row_tiled(&it, b);
        m.y = qn_row(&it, y);
        mix(&m, 0, n);
    }
}

static int side_by_side(const qn_tensor *t, int64_t size) { return qn_ne(t, 0) == 1 || qn_nb(t, 0) == size; }

static int same_shape(const qn_tensor *a, const qn_tensor *b) {
    if (a->rank != b->rank) return 0;
    for (int k = 0; k < a->rank; k++)
        if (a->shape[k] != b->shape[k]) return 0;
    return 1;
}

/* Which of the loops over rows fits; -1: none. */
static int form_of(const qn_tensor *a, const qn_tensor *b, const qn_tensor *y) {
    int64_t n = qn_ne(y, 0), na = qn_ne(a, 0), nb = qn_ne(b, 0);
    if ((nb != n && nb != 1) || (na != n && na != 1) || (na != n && nb != n)) return -1;
    return na != n ? A_ONE : nb == n ? BOTH : B_ONE;
}

static int all_dense(const qn_tensor *a, const qn_tensor *b, const qn_tensor *y) {
    return same_shape(a, b) && same_shape(a, y) && qn_cpu_is_dense(a) && qn_cpu_is_dense(b) && qn_cpu_is_dense(y);
}

static int prepare_mixed(const qn_call *c, qn_cpu_step *s, int op, const char *name) {
    const qn_tensor *a = c->src[0], *b = c->src[1], *y = c->dst[0];
    int64_t n = qn_ne(y, 0), count = qn_tensor_count(y);
    double bytes = (double)(qn_float_bytes(a->dtype) + qn_float_bytes(b->dtype) + qn_float_bytes(y->dtype));
    s->n[N_FLAT] = all_dense(a, b, y);
    s->n[N_ROW] = s->n[N_FLAT] ? count : n;
    int form = form_of(a, b, y);
    if (form < 0) return 0;
    s->inner = (qn_cpu_inner_fn)row_fns[op][s->n[N_FLAT] ? BOTH : form][0];
    if (s->n[N_FLAT]) return qn_cpu_by_rows(s, name, run_mixed, (count + MIXED - 1) / MIXED, MIXED * bytes, 0);
    return qn_cpu_by_rows(s, name, run_mixed, count / n, (double)n * bytes, 0);
}

static int prepare(const qn_call *c, qn_cpu_step *s, int op, const char *name) {
    const qn_tensor *a = c->src[0], *b = c->src[1], *y = c->dst[0];
    uint32_t d = y->dtype;
    int type = d == QN_DTYPE_F32 ? 0 : d == QN_DTYPE_F16 ? 1 : 2;
    int64_t size = qn_float_bytes(y->dtype), n = qn_ne(y, 0), count = qn_tensor_count(y);
    if (!qn_lanes_float(d) || !qn_lanes_float(a->dtype) || !qn_lanes_float(b->dtype) || count == 0) return 0;
    if (!side_by_side(a, qn_float_bytes(a->dtype)) || !side_by_side(b, qn_float_bytes(b->dtype)) || !side_by_side(y, size))
        return 0;
    if (a->dtype != d || b->dtype != d) return prepare_mixed(c, s, op, name);
    if (all_dense(a, b, y)) {
        s->n[N_ROW] = count;
        s->inner = (qn_cpu_inner_fn)row_fns[op][BOTH][type];
        return qn_cpu_by_rows(s, name, run_flat, (count + 255) / 256, 768.0 * (double)size, 0);
    }
    int form = form_of(a, b, y);
    if (form < 0) return 0;
    s->n[N_ROW] = n;
    s->inner = (qn_cpu_inner_fn)row_fns[op][form][type];
    if (form == BOTH && n > 1 && n < SHORT && qn_tensor_count(b) == n && same_shape(a, y) && qn_cpu_is_dense(a) &&
        qn_cpu_is_dense(y))
        return qn_cpu_by_rows(s, name, run_tiled, (count / n + tiled_rows(n) - 1) / tiled_rows(n),
                              3.0 * (double)(tiled_rows(n) * n * size), 0);
    return qn_cpu_by_rows(s, name, run_rows, count / n, 3.0 * (double)(n * size), 0);
}

int QN_K(one_step)(const qn_call *c, qn_cpu_step *s); /* k_region.c */
int QN_K(pairs)(const qn_call *c, qn_cpu_step *s);    /* k_pairs.c: f64, and of arith integers */

#define KERNEL(op) \
    int QN_K(op)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, QN_ARITH_##op, #op " rows") || QN_K(pairs)(c, s); }
KERNEL(add)
KERNEL(sub)
KERNEL(mul)
KERNEL(div)

/* Powers and remainders, and layouts that rows do not take, are programs of one step. */
int QN_K(arith)(const qn_call *c, qn_cpu_step *s) {
    return (row_fns[c->subop][BOTH][0] && prepare(c, s, c->subop, "arith rows")) || QN_K(one_step)(c, s) || QN_K(pairs)(c, s);
}
