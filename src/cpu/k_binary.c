/* add, sub, mul, div of two tensors, the second tiled over the first, and arith, where either is broadcast. f32, f16 and bf16; rows
 * whose elements lie side by side, or are one number. */
#include "cpu/k_past.h"

typedef void (*row_fn)(char *y, const char *a, const char *b, int64_t n);

/* One loop per dtype and operator: load, compute in f32, store with one rounding. */
#define ROW(name, type, load, loadn, store, storen, expr)                         \
    static void name(char *yp, const char *ap, const char *bp, int64_t n) {       \
        type *y = (type *)yp;                                                     \
        const type *a = (const type *)ap, *b = (const type *)bp;                  \
        int64_t i = 0;                                                            \
        for (; i + VF_N <= n; i += VF_N) {                                        \
            vf p = load(a + i), q = load(b + i);                                  \
            store(y + i, expr);                                                   \
        }                                                                         \
        if (i < n) {                                                              \
            vf p = loadn(a + i, (int)(n - i)), q = loadn(b + i, (int)(n - i));    \
            storen(y + i, expr, (int)(n - i));                                    \
        }                                                                         \
    }                                                                             \
    /* b is one number, for the whole row */                                      \
    static void name##_one(char *yp, const char *ap, const char *bp, int64_t n) { \
        type *y = (type *)yp;                                                     \
        const type *a = (const type *)ap;                                         \
        vf q = vf_set1(loadn((const type *)bp, 1)[0]);                            \
        int64_t i = 0;                                                            \
        for (; i + VF_N <= n; i += VF_N) {                                        \
            vf p = load(a + i);                                                   \
            store(y + i, expr);                                                   \
        }                                                                         \
        if (i < n) {                                                              \
            vf p = loadn(a + i, (int)(n - i));                                    \
            storen(y + i, expr, (int)(n - i));                                    \
        }                                                                         \
    }                                                                             \
    /* a is one number */                                                         \
    static void one_##name(char *yp, const char *ap, const char *bp, int64_t n) { \
        type *y = (type *)yp;                                                     \
        const type *b = (const type *)bp;                                         \
        vf p = vf_set1(loadn((const type *)ap, 1)[0]);                            \
        int64_t i = 0;                                                            \
        for (; i + VF_N <= n; i += VF_N) {                                        \
            vf q = load(b + i);                                                   \
            store(y + i, expr);                                                   \
        }                                                                         \
        if (i < n) {                                                              \
            vf q = loadn(b + i, (int)(n - i));                                    \
            storen(y + i, expr, (int)(n - i));                                    \
        }                                                                         \
    }
#define ROWS(op, expr)                                                            \
    ROW(op##_f32, float, vf_load, vf_loadn, vf_store, vf_storen, expr)            \
    ROW(op##_f16, uint16_t, vf_load_h, vf_load_hn, vf_store_h, vf_store_hn, expr) \
    ROW(op##_bf16, uint16_t, vf_load_b, vf_load_bn, vf_store_b, vf_store_bn, expr)

ROWS(add, p + q)
ROWS(sub, p - q)
ROWS(mul, p *q)
ROWS(div, p / q)
/* NaN wins; of equals the first. */
ROWS(max, vf_select((p != p) | (p >= q), p, q))
ROWS(min, vf_select((p != p) | (p <= q), p, q))

static row_fn row_of(const qn_tensor *t, const row_fn *choices) {
    return t->dtype == QN_DTYPE_F32 ? choices[0] : t->dtype == QN_DTYPE_F16 ? choices[1] : choices[2];
}

enum { N_ROW }; /* elements of a row */

/* Bytes from one element to the next, 0 where a row is one number; and whether memory must be asked for a row, which it must not for one
 * that is used again and again. */
typedef struct strides {
    int64_t y, a, b;
    int far_a, far_b;
} strides;

static void row_past(row_fn row, char *y, const char *a, const char *b, int64_t n, strides by) {
    _Alignas(64) char tile[QN_PAST_TILE];
    for (int64_t some; n > 0; n -= some, y += some * by.y, a += some * by.a, b += some * by.b) {
        some = qn_past_some(y, n, by.y);
        if (by.far_a) qn_past_ask(a, some * by.a);
        if (by.far_b) qn_past_ask(b, some * by.b);
        row(tile, a, b, some);
        qn_past_put(y, tile, some * by.y);
    }
}

/* Both operands dense and of the same shape: one row of everything, cut anywhere. */
static void run_flat(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    int64_t n = s->n[N_ROW], size = c->dst[0]->dtype == QN_DTYPE_F32 ? 4 : 2, lines = (n + 255) / 256;
    int64_t first = 256 * qn_cpu_cut(lines, s->parts[0], part), end = 256 * qn_cpu_cut(lines, s->parts[0], part + 1);
    if (end > n) end = n;
    row_fn row = (row_fn)s->inner;
    char *y = qn_at(c->dst[0], first * size);
    const char *a = qn_at(c->src[0], first * size), *b = qn_at(c->src[1], first * size);
    n = end - first;
    if (!qn_past_is(c->dst[0], c->src, c->n_src)) {
        row(y, a, b, n);
        return;
    }
    row_past(row, y, a, b, n, (strides){size, size, size, 1, 1});
    qn_past_end();
}

static void run_rows(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    const qn_tensor *y = c->dst[0];
    int64_t rows = qn_tensor_count(y) / s->n[N_ROW];
    int64_t first = qn_cpu_cut(rows, s->parts[0], part), end = qn_cpu_cut(rows, s->parts[0], part + 1);
    int64_t size = y->dtype == QN_DTYPE_F32 ? 4 : 2, n = s->n[N_ROW], whole = qn_tensor_count(y);
    const qn_tensor *a = c->src[0], *b = c->src[1];
    strides by = {size, qn_ne(a, 0) == n ? size : 0, qn_ne(b, 0) == n ? size : 0, qn_tensor_count(a) == whole,
                  qn_tensor_count(b) == whole};
    int past = n * size >= QN_PAST_TILE && qn_past_is(y, c->src, c->n_src);
    row_fn row = (row_fn)s->inner;
    qn_rows it;
    for (qn_rows_begin_at(&it, y->rank, y->shape, first); it.live && it.row < end; qn_rows_next(&it)) {
        char *to = qn_row(&it, y);
        const char *p = qn_row_tiled(&it, a), *q = qn_row_tiled(&it, b);
        if (past) row_past(row, to, p, q, n, by);
        else row(to, p, q, n);
    }
    if (past) qn_past_end();
}

static int side_by_side(const qn_tensor *t, int64_t size) { return qn_ne(t, 0) == 1 || qn_nb(t, 0) == size; }

static int same_shape(const qn_tensor *a, const qn_tensor *b) {
    if (a->rank != b->rank) return 0;
    for (int k = 0; k < a->rank; k++)
        if (a->shape[k] != b->shape[k]) return 0;
    return 1;
}

/* rows: both whole; ones: b is one number; first: a is. */
static int prepare(const qn_call *c, qn_cpu_step *s, const row_fn *rows, const row_fn *ones, const row_fn *first,
                   const char *name) {
    const qn_tensor *a = c->src[0], *b = c->src[1], *y = c->dst[0];
    uint32_t d = y->dtype;
    if ((d != QN_DTYPE_F32 && d != QN_DTYPE_F16 && d != QN_DTYPE_BF16) || a->dtype != d || b->dtype != d) return 0;
    int64_t size = d == QN_DTYPE_F32 ? 4 : 2, n = qn_ne(y, 0), count = qn_tensor_count(y);
    if (count == 0 || !side_by_side(a, size) || !side_by_side(b, size) || !side_by_side(y, size)) return 0;
    if (same_shape(a, b) && same_shape(a, y) && qn_cpu_is_dense(a) && qn_cpu_is_dense(b) && qn_cpu_is_dense(y)) {
        s->n[N_ROW] = count;
        s->inner = (qn_cpu_inner_fn)row_of(y, rows);
        return qn_cpu_by_rows(s, name, run_flat, (count + 255) / 256, 768.0 * (double)size, 0);
    }
    int64_t na = qn_ne(a, 0), nb = qn_ne(b, 0);
    if ((nb != n && nb != 1) || (na != n && na != 1) || (na != n && nb != n)) return 0;
    s->n[N_ROW] = n;
    s->inner = (qn_cpu_inner_fn)row_of(y, na != n ? first : nb == n ? rows : ones);
    return qn_cpu_by_rows(s, name, run_rows, count / n, 3.0 * (double)(n * size), 0);
}

#define KERNEL(op)                                                                        \
    int QN_K(op)(const qn_call *c, qn_cpu_step *s) {                                      \
        static const row_fn rows[] = {op##_f32, op##_f16, op##_bf16};                     \
        static const row_fn ones[] = {op##_f32_one, op##_f16_one, op##_bf16_one};         \
        static const row_fn firsts[] = {one_##op##_f32, one_##op##_f16, one_##op##_bf16}; \
        return prepare(c, s, rows, ones, firsts, #op " rows");                            \
    }
KERNEL(add)
KERNEL(sub)
KERNEL(mul)
KERNEL(div)

#define ENTRY(op, way) [QN_ARITH_##op] = {way(op, f32), way(op, f16), way(op, bf16)}
#define BOTH(op, type) op##_##type
#define B_ONE(op, type) op##_##type##_one
#define A_ONE(op, type) one_##op##_##type
#define ALL(way) \
    { ENTRY(add, way), ENTRY(sub, way), ENTRY(mul, way), ENTRY(div, way), ENTRY(max, way), ENTRY(min, way) }

/* pow and mod are left to the reference. */
int QN_K(arith)(const qn_call *c, qn_cpu_step *s) {
    static const row_fn rows[QN_ARITH_COUNT][3] = ALL(BOTH), ones[QN_ARITH_COUNT][3] = ALL(B_ONE),
                        firsts[QN_ARITH_COUNT][3] = ALL(A_ONE);
    if (!rows[c->subop][0]) return 0;
    return prepare(c, s, rows[c->subop], ones[c->subop], firsts[c->subop], "arith rows");
}
