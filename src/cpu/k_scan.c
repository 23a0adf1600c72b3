/* scan and cumsum, running sums and products along an axis, and scan_back; floats in double, integers exact. Lanes are what lies beside
 * each other: elements of the axes behind, or rows, turned so that they do; few rows, or such of halves, are one chain each, as the
 * reference has it, and so are other dtypes. */
#include "cpu/k_columns.h"
#include "cpu/k_copy.h"
#include "cpu/k_past.h"
#include "cpu/k_typed.h"
#include "cpu/simd/simd_turn.h"
#include "cpu/simd/simd_wide.h"
#include "op/integer.h"
#include "op/op_axes.h"

/* x dense as [outer, n, inner], n the axis that is walked. */
typedef struct form {
    int64_t outer, n, inner;
    int product, reverse, exclusive;
    int past; /* y goes past the caches where whole squares do, and columns */
} form;

/* Rows before they are read, lines are asked for, which matters most on the way back: machines look ahead less well downwards. */
enum { ROWS_AHEAD = 4 };

_Static_assert(offsetof(qn_attr_scan, exclusive) == offsetof(qn_attr_scan_back, exclusive), "shared attributes");

static form form_of(const qn_call *c) {
    const qn_attr_scan *at = c->attr;
    const qn_tensor *x = c->src[c->op == QN_OP_scan_back]; /* there the gradient comes first, maybe with more ones in front */
    if (c->op == QN_OP_cumsum) {
        const qn_attr_cumsum *rows = c->attr;
        return (form){qn_tensor_count(x) / qn_ne(x, 0), qn_ne(x, 0), 1, 0, rows->reverse, rows->exclusive, 0};
    }
    qn_about a = qn_about_axis(x, qn_op_axis(at->axis, x->rank));
    return (form){a.outer, a.n, a.inner, c->subop == QN_SCAN_prod, at->reverse, at->exclusive, 0};
}

typedef struct running {
    vd low, high;
} running;

/* What goes out for x, and what is carried on. */
QN_INLINE vf step(const form *f, running *now, vf x) {
    running before = *now;
    if (f->product) *now = (running){now->low * vd_low(x), now->high * vd_high(x)};
    else *now = (running){now->low + vd_low(x), now->high + vd_high(x)};
    return f->exclusive ? vf_of_wide(before.low, before.high) : vf_of_wide(now->low, now->high);
}

static running start_of(const form *f) {
    vd one = vd_set1(f->product ? 1 : 0);
    return (running){one, one};
}

static int some_of(int columns, int first) { return columns - first < VF_N ? columns - first : VF_N; }

static void scan_columns(const form *f, const float *x, float *y, int columns) {
    running now[QN_ABREAST / VF_N];
    for (int v = 0; v * VF_N < columns; v++) now[v] = start_of(f);
    for (int64_t k = 0; k < f->n; k++) {
        int64_t at = (f->reverse ? f->n - 1 - k : k) * f->inner;
        for (int i = 0; i < columns; i += VF_N) {
            int some = some_of(columns, i);
            __builtin_prefetch(x + at + i + (f->reverse ? -ROWS_AHEAD : ROWS_AHEAD) * f->inner, 0, 3);
            vf v = step(f, now + i / VF_N, vf_loadn(x + at + i, some));
            if (f->past) qn_past_store(y + at + i, v);
            else vf_storen(y + at + i, v, some);
        }
    }
}

/* A square of up to VF_N rows of n, and as many of their columns, to lanes and back. */
static void load_square(const float *x, int64_t n, int some, int many, vf *r) {
    for (int i = 0; i < VF_N; i++) r[i] = i < some ? vf_loadn(x + i * n, many) : vf_zero();
    vf_turn(r);
}
static void store_square(float *y, int64_t n, int some, int many, vf *r) {
    vf_turn(r);
    for (int i = 0; i < some; i++) vf_storen(y + i * n, r[i], many);
}

/* What runs along a whole square never leaves the registers. */
QN_INLINE void run_square(int product, int reverse, int exclusive, const form *f, const float *x, float *y, running *sums) {
    const form plain = {.product = product, .exclusive = exclusive};
    running now = *sums;
    vf r[VF_N];
    QN_UNROLL
    for (int i = 0; i < VF_N; i++) r[i] = vf_load(x + i * f->n);
    vf_turn(r);
    QN_UNROLL
    for (int i = 0; i < VF_N; i++) {
        int k = reverse ? VF_N - 1 - i : i;
        r[k] = step(&plain, &now, r[k]);
    }
    *sums = now;
    vf_turn(r);
    if (f->past) {
        QN_UNROLL
        for (int i = 0; i < VF_N; i++) qn_past_store(y + i * f->n, r[i]);
    } else {
        QN_UNROLL
        for (int i = 0; i < VF_N; i++) vf_store(y + i * f->n, r[i]);
    }
}
typedef void (*square_fn)(const form *f, const float *x, float *y, running *sums);
#define SQUARE(name, product, reverse, exclusive)                              \
    static void name(const form *f, const float *x, float *y, running *sums) { \
        run_square(product, reverse, exclusive, f, x, y, sums);                \
    }
#define SQUARES(name, by)           \
    SQUARE(name##_on, by, 0, 0)     \
    SQUARE(name##_before, by, 0, 1) \
    SQUARE(name##_back, by, 1, 0)   \
    SQUARE(name##_behind, by, 1, 1)
SQUARES(sum, 0)
SQUARES(product, 1)
#define OF(name)                                                   \
    {                                                              \
        {name##_on, name##_before}, { name##_back, name##_behind } \
    }
/* By product, reverse, exclusive. */
static const square_fn squares[2][2][2] = {OF(sum), OF(product)};

/* Up to VF_N rows; a square of them at a time. */
static void scan_rows(const form *f, const float *x, float *y, int some) {
    square_fn whole = some < VF_N ? NULL : squares[f->product != 0][f->reverse != 0][f->exclusive != 0];
    running now = start_of(f);
    for (int64_t first = 0; first < f->n; first += VF_N) {
        vf r[VF_N];
        int many = (int)(f->n - first < VF_N ? f->n - first : VF_N);
        int64_t at = f->reverse ? f->n - first - many : first;
        if (whole && many == VF_N) {
            whole(f, x + at, y + at, &now);
            continue;
        }
        load_square(x + at, f->n, some, many, r);
        for (int i = 0; i < many; i++) {
            int k = f->reverse ? many - 1 - i : i;
            r[k] = step(f, &now, r[k]);
        }
        store_square(y + at, f->n, some, many, r);
    }
}

/* Rows or columns of a unit. */
static int64_t most_of(const form *f) { return f->inner == 1 ? VF_N : qn_abreast(f->outer, f->inner); }
static int64_t units_of(const form *f) {
    return f->inner == 1 ? (f->outer + VF_N - 1) / VF_N : qn_columns_units(f->outer, f->inner);
}

/* Where unit u begins; *some is how many rows or columns it has. */
static int64_t unit_at(const form *f, int64_t u, int *some) {
    if (f->inner == 1) {
        *some = (int)(f->outer - u * VF_N < VF_N ? f->outer - u * VF_N : VF_N);
        return u * VF_N * f->n;
    }
    qn_columns b = qn_columns_at(f->outer, f->inner, u);
    *some = b.some;
    return b.outer * f->n * f->inner + b.first;
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    form f = form_of(c);
    const float *x = (const float *)(const void *)qn_at(c->src[0], 0);
    float *y = (float *)(void *)qn_at(c->dst[0], 0);
    int64_t u = qn_cpu_cut(units_of(&f), s->parts[0], part);
    (void)phase;
    f.past = (f.inner == 1 ? f.n : f.inner) % VF_N == 0 && (uintptr_t)y % sizeof(vf) == 0 &&
             qn_past_is(NULL, c->dst[0], c->src, 1);
    for (int64_t end = qn_cpu_cut(units_of(&f), s->parts[0], part + 1); u < end; u++) {
        int some;
        int64_t at = unit_at(&f, u, &some);
        (f.inner == 1 ? scan_rows : scan_columns)(&f, x + at, y + at, some);
    }
    if (f.past) qn_past_end();
}

static int by_lanes(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    if (x->dtype != QN_DTYPE_F32 || qn_tensor_count(x) == 0 || !qn_cpu_is_dense(x) || !qn_cpu_is_dense(y)) return 0;
    form f = form_of(c);
    if (f.inner == 1 && f.outer < VF_N / 2) return 0; /* few rows: lanes would be empty */
    return qn_cpu_by_rows(s, f.inner == 1 ? "scan of turned rows" : "scan of columns", run, units_of(&f),
                          8.0 * (double)f.n * (double)most_of(&f), 4.0 * (double)f.n * (double)most_of(&f));
}

/* ---- f64, and integers, which are exact and saturate: a chain for each column, a row being one. Of f32 what has too few rows for
 * lanes. */

/* `width` columns, each of their n elements `step` behind the one before. */
typedef void (*chains_fn)(const void *from, void *to, int64_t n, int64_t step, int64_t width, int exclusive);

/* next: what `a` becomes with x; shown: what goes out for v, which is that, or a. */
#define CHAINS(name, type, held, initial, next, shown)                                                         \
    QN_INLINE type name##_step(held *now, type x, int exclusive) {                                             \
        held a = *now, v = next;                                                                               \
        *now = v;                                                                                              \
        if (exclusive) v = a;                                                                                  \
        return (type)(shown);                                                                                  \
    }                                                                                                          \
    static void name(const void *from, void *to, int64_t n, int64_t step, int64_t width, int exclusive) {      \
        const type *x = from;                                                                                  \
        type *y = to;                                                                                          \
        held now[QN_ABREAST], one = initial;                                                                   \
        for (int64_t k = 0; width == 1 && k < n; k++) y[k * step] = name##_step(&one, x[k * step], exclusive); \
        for (int64_t i = 0; width > 1 && i < width; i++) now[i] = one;                                         \
        for (int64_t k = 0; width > 1 && k < n; k++, x += step, y += step) {                                   \
            QN_TYPED_EACH                                                                                      \
            for (int64_t i = 0; i < width; i++) y[i] = name##_step(now + i, x[i], exclusive);                  \
        }                                                                                                      \
    }
#define NOTHING_YET ((qn_signed){1, 0})
#define PRODUCTS(d, type, wide)                                                                \
    CHAINS(prod_##d, type, qn_signed, NOTHING_YET, qn_signed_mul(a, qn_signed_of((int64_t)x)), \
           qn_limited(qn_signed_value(v), QN_LOW_##d, QN_HIGH_##d))
#define SUMS(d, type, wide) CHAINS(sum_##d, type, int64_t, 0, a + (int64_t)x, qn_limited(v, QN_LOW_##d, QN_HIGH_##d))
QN_TYPED_NARROW(PRODUCTS)
QN_TYPED_NARROW(SUMS)
PRODUCTS(I64, int64_t, int64_t)
CHAINS(sum_I64, int64_t, qn_wide, 0, a + x, qn_wide_value(v))
CHAINS(prod_F64, double, double, 1, a *x, v)
CHAINS(sum_F64, double, double, 0, a + x, v)
CHAINS(prod_F32, float, double, 1, a *(double)x, v)
CHAINS(sum_F32, float, double, 0, a + (double)x, v)

#define CHAINS_OF(d, type, wide) [QN_DTYPE_##d] = {[QN_SCAN_sum] = sum_##d, [QN_SCAN_prod] = prod_##d},
static const chains_fn chains[QN_DTYPE_COUNT][2] = {QN_TYPED_NUMBERS(CHAINS_OF) CHAINS_OF(F32, , )};

static void run_chains(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    form f = form_of(c);
    int64_t size = qn_dtype_bytes(c->dst[0]->dtype), units = qn_columns_units(f.outer, f.inner);
    int64_t u = qn_cpu_cut(units, s->parts[0], part), end = qn_cpu_cut(units, s->parts[0], part + 1);
    (void)phase;
    for (; u < end; u++) {
        qn_columns b = qn_columns_at(f.outer, f.inner, u);
        int64_t at = (b.outer * f.n + (f.reverse ? f.n - 1 : 0)) * f.inner + b.first;
        ((chains_fn)s->inner)(qn_at(c->src[0], at * size), qn_at(c->dst[0], at * size), f.n, f.reverse ? -f.inner : f.inner,
                              b.some, f.exclusive);
    }
}

static int by_chains(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    if (!chains[x->dtype][0] || qn_tensor_count(x) == 0 || !qn_cpu_is_dense(x) || !qn_cpu_is_dense(y)) return 0;
    form f = form_of(c);
    if (f.n > INT32_MAX) return 0; /* sums of 32 bits would not fit in 64 */
    int64_t units = qn_columns_units(f.outer, f.inner);
    double each = (double)qn_tensor_count(x) / (double)units;
    s->inner = (qn_cpu_inner_fn)chains[x->dtype][f.product ? QN_SCAN_prod : QN_SCAN_sum];
    return qn_cpu_by_rows(s, "chains", run_chains, units, 16.0 * each, 4.0 * each);
}

int QN_K(scan)(const qn_call *c, qn_cpu_step *s) { return by_lanes(c, s) || by_chains(c, s); }

/* ---- One chain of doubles */

static void sum_along(const float *x, float *y, int64_t n, const qn_attr_cumsum *at, double *sum) {
    for (int64_t k = 0; k < n; k++) {
        int64_t i = at->reverse ? n - 1 - k : k;
        double next = *sum + (double)x[i];
        y[i] = (float)(at->exclusive ? *sum : next);
        *sum = next;
    }
}

static void run_cumsum(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    enum { RUN = 512 };
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    const qn_attr_cumsum *at = c->attr;
    int64_t n = qn_ne(a, 0), rows = qn_tensor_count(a) / n, end = qn_cpu_cut(rows, s->parts[0], part + 1);
    int64_t size = qn_float_bytes(a->dtype);
    float x[RUN];
    qn_rows it;
    (void)phase;
    for (qn_rows_begin_at(&it, a->rank, a->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it)) {
        double sum = 0;
        for (int64_t done = 0, some; done < n; done += some) {
            some = n - done < RUN ? n - done : RUN;
            int64_t first = at->reverse ? n - done - some : done;
            qn_copy_row(a->dtype, qn_row(&it, a) + first * size, QN_DTYPE_F32, (char *)x, some);
            sum_along(x, x, some, at, &sum);
            qn_copy_row(QN_DTYPE_F32, (const char *)x, y->dtype, qn_row(&it, y) + first * size, some);
        }
    }
}

int QN_K(cumsum)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    if (by_lanes(c, s) || by_chains(c, s)) return 1;
    if (!qn_lanes_rows(a) || !qn_lanes_rows(y) || a->dtype != y->dtype || qn_tensor_count(a) == 0) return 0;
    return qn_cpu_by_rows(s, "running sums", run_cumsum, qn_tensor_count(a) / qn_ne(a, 0), 16.0 * (double)qn_ne(a, 0), 0);
}

/* ---- scan_back. Of a product: dx_i is the product of all before i, times h_i, where h_i = g_i + x_(i+1) h_(i+1); of a sum h_i itself.
 * The exclusive form has g_(i+1) for g_i. First the products are remembered, then h comes from the other end. */

enum { REMEMBERED = 1 << 25 }; /* bytes, of all parts */

typedef struct back {
    running h, next; /* next: the x behind */
    vf later;        /* the g behind */
} back;

QN_INLINE vf add_back(const form *f, back *b, vf g) {
    vf up = f->exclusive ? b->later : g;
    b->later = g;
    b->h = (running){b->h.low + vd_low(up), b->h.high + vd_high(up)};
    return vf_of_wide(b->h.low, b->h.high);
}

QN_INLINE vf multiply_back(const form *f, back *b, vf x, vf g, const double *before) {
    vf up = f->exclusive ? b->later : g;
    b->later = g;
    b->h = (running){vd_fma(b->next.low, b->h.low, vd_low(up)), vd_fma(b->next.high, b->h.high, vd_high(up))};
    b->next = (running){vd_low(x), vd_high(x)};
    return vf_of_wide(vd_load(before) * b->h.low, vd_load(before + VF_N / 2) * b->h.high);
}

static void remember(running *now, vf x, double *before) {
    vd_store(before, now->low);
    vd_store(before + VF_N / 2, now->high);
    *now = (running){now->low * vd_low(x), now->high * vd_high(x)};
}

static back back_start(void) { return (back){{vd_zero(), vd_zero()}, {vd_zero(), vd_zero()}, vf_zero()}; }

/* Positions p count in the direction of the scan; what is remembered lies in their order. */
static void products_back(const form *f, const float *g, const float *x, float *dx, int some, double *before) {
    running now = start_of(f);
    back b = back_start();
    for (int64_t p = 0; p < f->n; p++)
        remember(&now, vf_loadn(x + (f->reverse ? f->n - 1 - p : p) * f->inner, some), before + p * VF_N);
    for (int64_t p = f->n - 1; p >= 0; p--) {
        int64_t at = (f->reverse ? f->n - 1 - p : p) * f->inner;
        vf_storen(dx + at, multiply_back(f, &b, vf_loadn(x + at, some), vf_loadn(g + at, some), before + p * VF_N), some);
    }
}

static void columns_back(const form *f, const float *g, const float *x, float *dx, int columns, double *before) {
    back b[QN_ABREAST / VF_N];
    for (int i = 0; f->product && i < columns; i += VF_N) products_back(f, g + i, x + i, dx + i, some_of(columns, i), before);
    if (f->product) return;
    for (int v = 0; v * VF_N < columns; v++) b[v] = back_start();
    for (int64_t p = f->n - 1; p >= 0; p--) {
        int64_t at = (f->reverse ? f->n - 1 - p : p) * f->inner;
        for (int i = 0; i < columns; i += VF_N) {
            int some = some_of(columns, i);
            __builtin_prefetch(g + at + i + (f->reverse ? ROWS_AHEAD : -ROWS_AHEAD) * f->inner, 0, 3);
            vf v = add_back(f, b + i / VF_N, vf_loadn(g + at + i, some));
            if (f->past) qn_past_store(dx + at + i, v);
            else vf_storen(dx + at + i, v, some);
        }
    }
}

static void rows_back(const form *f, const float *g, const float *x, float *dx, int some, double *before) {
    running now = start_of(f);
    back b = back_start();
    vf r[VF_N], up[VF_N];
    for (int64_t first = 0; f->product && first < f->n; first += VF_N) {
        int many = (int)(f->n - first < VF_N ? f->n - first : VF_N);
        load_square(x + (f->reverse ? f->n - first - many : first), f->n, some, many, r);
        for (int i = 0; i < many; i++) remember(&now, r[f->reverse ? many - 1 - i : i], before + (first + i) * VF_N);
    }
    for (int64_t first = (f->n - 1) / VF_N * VF_N; first >= 0; first -= VF_N) {
        int many = (int)(f->n - first < VF_N ? f->n - first : VF_N);
        int64_t at = f->reverse ? f->n - first - many : first;
        if (f->product) load_square(x + at, f->n, some, many, r);
        load_square(g + at, f->n, some, many, up);
        for (int i = many - 1; i >= 0; i--) {
            int k = f->reverse ? many - 1 - i : i;
            up[k] = f->product ? multiply_back(f, &b, r[k], up[k], before + (first + i) * VF_N) : add_back(f, &b, up[k]);
        }
        store_square(dx + at, f->n, some, many, up);
    }
}

static void run_back(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    form f = form_of(c);
    const float *g = (const float *)(const void *)qn_at(c->src[0], 0), *x = (const float *)(const void *)qn_at(c->src[1], 0);
    float *dx = (float *)(void *)qn_at(c->dst[0], 0);
    double *before = f.product ? (double *)c->workspace + part * f.n * VF_N : NULL;
    int64_t u = qn_cpu_cut(units_of(&f), s->parts[0], part);
    (void)phase;
    f.past = f.inner % VF_N == 0 && !f.product && (uintptr_t)dx % sizeof(vf) == 0 && qn_past_is(NULL, c->dst[0], c->src, 2);
    for (int64_t end = qn_cpu_cut(units_of(&f), s->parts[0], part + 1); u < end; u++) {
        int some;
        int64_t at = unit_at(&f, u, &some);
        (f.inner == 1 ? rows_back : columns_back)(&f, g + at, x + at, dx + at, some, before);
    }
    if (f.past) qn_past_end();
}

int QN_K(scan_back)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *g = c->src[0], *x = c->src[1], *dx = c->dst[0];
    if (x->dtype != QN_DTYPE_F32 || qn_tensor_count(x) == 0 || !qn_cpu_is_dense(g) || !qn_cpu_is_dense(x)) return 0;
    form f = form_of(c);
    if (!qn_cpu_is_dense(dx)) return 0;
    qn_cpu_by_rows(s, f.inner == 1 ? "scan_back of turned rows" : "scan_back of columns", run_back, units_of(&f),
                   12.0 * (double)f.n * (double)most_of(&f), 8.0 * (double)f.n * (double)most_of(&f));
    if (!f.product) return 1;
    int64_t each = f.n * VF_N * (int64_t)sizeof(double), most = REMEMBERED / each;
    if (most < 1) return 0;
    if (s->parts[0] > most) s->parts[0] = most;
    s->workspace = (size_t)(s->parts[0] * each);
    return 1;
}
