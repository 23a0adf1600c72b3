/* Reductions over any axes of dense f64 and integers, arg_reduce and argmax of them, and reduce_back of extrema. Whatever is reduced, rows of neighbours are taken
 * into as many lanes, which compilers make vectors of: columns are such rows, and a run of neighbours is cut into them. Integers are
 * exact and saturate at the end; f64 is added in an order that shapes alone decide. */
#include <math.h>

#include "cpu/k_axes.h"
#include "cpu/k_typed.h"
#include "op/integer.h"
#include "op/op_axes.h"

/* LANES of a run, or of a short one; elements of a PIECE, of which one total is kept where there are MANY. */
enum { LANES = QN_ABREAST, FEW_LANES = 64, LONG_RUN = 1 << 13, PIECE = 1 << 14, MANY = 4 };

/* What lanes hold: sums of f64 or of up to 32 bits, extrema, and magnitudes of products in `first`; of sums of 64 bits the low halves
 * there and the high ones in `more`, of products the signs. */
typedef struct lanes {
    _Alignas(64) uint64_t first[LANES];
    int64_t more[LANES];
} lanes;

/* Rows of x that are `pitch` elements apart, `width` of each. */
typedef void (*fold_fn)(lanes *l, const void *x, int64_t pitch, int64_t rows, int64_t width);

#define FOLD(name, type, lane, statement)                                                      \
    static void name(lanes *l, const void *from, int64_t pitch, int64_t rows, int64_t width) { \
        lane *to = (lane *)(void *)l->first;                                                   \
        int64_t *more = l->more;                                                               \
        (void)more;                                                                            \
        for (const type *row = from; rows > 0; rows--, row += pitch) {                         \
            QN_TYPED_EACH                                                                      \
            for (int64_t i = 0; i < width; i++) {                                              \
                type x = row[i];                                                               \
                statement;                                                                     \
            }                                                                                  \
        }                                                                                      \
    }

static inline void multiply(uint64_t *size, int64_t *negative, int64_t x) {
    qn_signed p = qn_signed_mul((qn_signed){*size, (int)*negative}, qn_signed_of(x));
    *size = p.size;
    *negative = p.negative;
}

#define EXTREMA(d, type, wide)                               \
    FOLD(max_##d, type, type, to[i] = x > to[i] ? x : to[i]) \
    FOLD(min_##d, type, type, to[i] = x < to[i] ? x : to[i])
#define INTEGERS(d, type, wide) \
    EXTREMA(d, type, wide)      \
    FOLD(prod_##d, type, uint64_t, multiply(to + i, more + i, (int64_t)x))
#define SUMS(d, type, wide) FOLD(sum_##d, type, int64_t, to[i] += (int64_t)x)
QN_TYPED_NARROW(INTEGERS)
QN_TYPED_NARROW(SUMS)
INTEGERS(I64, int64_t, int64_t)
FOLD(sum_I64, int64_t, uint64_t, (to[i] += (uint32_t)x, more[i] += x >> 32))
FOLD(sum_F64, double, double, to[i] += x)
FOLD(prod_F64, double, double, to[i] *= x)
FOLD(max_F64, double, double, to[i] = (((x > to[i]) | (x != x)) & (to[i] == to[i])) ? x : to[i])
FOLD(min_F64, double, double, to[i] = (((x < to[i]) | (x != x)) & (to[i] == to[i])) ? x : to[i])

#define FOLDS_OF(d, type, wide)                   \
    [QN_DTYPE_##d] = {[QN_REDUCE_sum] = sum_##d,  \
                      [QN_REDUCE_mean] = sum_##d, \
                      [QN_REDUCE_max] = max_##d,  \
                      [QN_REDUCE_min] = min_##d,  \
                      [QN_REDUCE_prod] = prod_##d},
static const fold_fn folds[QN_DTYPE_COUNT][QN_REDUCE_COUNT] = {QN_TYPED_NUMBERS(FOLDS_OF)};

/* ---- Totals */

typedef struct total {
    double real;
    qn_wide sum;
    qn_signed product;
    int64_t top;
    int begun;
} total;

typedef struct work {
    int reduction;
    uint32_t dtype;
    int64_t size;
    fold_fn fold;
    qn_axes axes;
} work;

static int make_work(const qn_call *c, work *w) {
    *w = (work){.reduction = c->op == QN_OP_reduce ? c->subop
                             : qn_axes_is_mean(c)  ? QN_REDUCE_mean
                                                   : QN_REDUCE_sum,
                .dtype = c->src[0]->dtype,
                .size = qn_dtype_bytes(c->src[0]->dtype)};
    w->fold = folds[w->dtype][w->reduction];
    return w->fold && qn_axes_of(c, &w->axes);
}

static int is_extremum(const work *w) { return w->reduction == QN_REDUCE_max || w->reduction == QN_REDUCE_min; }

/* Extrema begin with the first row. */
static void take(const work *w, lanes *l, int *begun, const char *x, int64_t pitch, int64_t rows, int64_t width) {
    if (!*begun && is_extremum(w)) {
        memcpy(l->first, x, (size_t)(width * w->size));
        x += pitch * w->size;
        rows--;
    } else if (!*begun) {
        for (int64_t i = 0; i < width; i++) l->first[i] = w->reduction == QN_REDUCE_prod, l->more[i] = 0;
        for (int64_t i = 0; i < width && w->dtype == QN_DTYPE_F64; i++)
            ((double *)(void *)l->first)[i] = w->reduction == QN_REDUCE_prod;
    }
    *begun = 1;
    w->fold(l, x, pitch, rows, width);
}

static void add_real(const work *w, total *t, double x) {
    if (w->reduction == QN_REDUCE_prod) t->real = t->begun ? t->real * x : x;
    else if (!is_extremum(w)) t->real = t->begun ? t->real + x : x;
    else if (!t->begun || (!isnan(t->real) && (isnan(x) || (w->reduction == QN_REDUCE_max ? x > t->real : x < t->real))))
        t->real = x;
}

/* What another total comes to, or a lane as one. */
static void merge(const work *w, total *t, const total *o) {
    if (w->dtype == QN_DTYPE_F64) add_real(w, t, o->real);
    else if (w->reduction == QN_REDUCE_prod) t->product = t->begun ? qn_signed_mul(t->product, o->product) : o->product;
    else if (!is_extremum(w)) t->sum = t->begun ? t->sum + o->sum : o->sum;
    else if (!t->begun || (w->reduction == QN_REDUCE_max ? o->top > t->top : o->top < t->top)) t->top = o->top;
    t->begun = 1;
}

static total lane_of(const work *w, const lanes *l, int64_t i) {
    total t = {.begun = 1};
    if (w->dtype == QN_DTYPE_F64) t.real = ((const double *)(const void *)l->first)[i];
    else if (w->reduction == QN_REDUCE_prod) t.product = (qn_signed){l->first[i], (int)l->more[i]};
    else if (is_extremum(w)) t.top = qn_load_index((qn_dtype)w->dtype, (const char *)l->first + i * w->size);
    else if (w->dtype == QN_DTYPE_I64) t.sum = (qn_wide)l->more[i] * ((qn_wide)1 << 32) + l->first[i];
    else t.sum = (int64_t)l->first[i];
    return t;
}

static void put(const work *w, const total *t, int64_t count, char *y) {
    int mean = w->reduction == QN_REDUCE_mean;
    if (w->dtype == QN_DTYPE_F64) {
        double v = mean ? t->real / (double)count : t->real;
        memcpy(y, &v, sizeof v);
        return;
    }
    int64_t v = w->reduction == QN_REDUCE_prod ? qn_signed_value(t->product)
                : is_extremum(w)               ? t->top
                                               : qn_wide_value(mean ? t->sum / count : t->sum);
    qn_store_integer((qn_dtype)w->dtype, y, v);
}

/* A run as rows of lanes, and what is left as the beginning of one. */
static void take_run(const work *w, lanes *l, int *begun, const char *x, int64_t n) {
    int64_t width = n < FEW_LANES ? n : n < LONG_RUN ? FEW_LANES : LANES;
    take(w, l, begun, x, width, n / width, width);
    w->fold(l, x + n / width * width * w->size, 0, n % width > 0, n % width);
}

static void total_run(const work *w, total *t, const char *x, int64_t n) {
    lanes l;
    int begun = 0;
    int64_t width = n < FEW_LANES ? n : n < LONG_RUN ? FEW_LANES : LANES;
    take_run(w, &l, &begun, x, n);
    for (int64_t i = 0; i < width; i++) {
        total lane = lane_of(w, &l, i);
        merge(w, t, &lane);
    }
}

static int64_t pieces_of(int64_t n) { return (n + PIECE - 1) / PIECE; }
static total piece_of(const work *w, const char *x, int64_t n, int64_t i) {
    total t = {.begun = 0};
    total_run(w, &t, x + i * PIECE * w->size, n - i * PIECE < PIECE ? n - i * PIECE : PIECE);
    return t;
}

/* A long run in pieces, as run_pieces takes the only one there is. */
static void total_all(const work *w, total *t, const char *x, int64_t n) {
    int64_t pieces = pieces_of(n);
    if (pieces < MANY) {
        total_run(w, t, x, n);
        return;
    }
    for (int64_t i = 0; i < pieces; i++) {
        total piece = piece_of(w, x, n, i);
        merge(w, t, &piece);
    }
}

/* ---- Units */

static void reduce_runs(const work *w, const char *x, char *y, int64_t unit, int64_t count) {
    const qn_axes *l = &w->axes;
    int inner = l->n - 1;
    qn_axes_place place = qn_axes_kept(l, inner, unit);
    total t = {.begun = 0};
    do total_all(w, &t, x + qn_axes_offset(l, inner, &place, l->extent[inner]) * w->size, l->extent[inner]);
    while (qn_axes_next(l, inner, &place, 1));
    put(w, &t, count, y + unit * w->size);
}

static void reduce_columns(const work *w, const char *x, char *y, int64_t unit, int64_t count) {
    const qn_axes *l = &w->axes;
    qn_axes_columns b = qn_axes_columns_at(l, unit);
    int begun = 0;
    lanes at;
    do take(w, &at, &begun, x + qn_axes_columns_from(l, &b) * w->size, b.width, b.rows, b.some);
    while (qn_axes_next(l, b.above, &b.place, 1));
    for (int i = 0; i < b.some; i++) {
        total t = lane_of(w, &at, i);
        put(w, &t, count, y + (b.to + i) * w->size);
    }
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    work w;
    (void)phase;
    if (!make_work(c, &w)) return;
    const char *x = qn_at(c->src[0], 0);
    char *y = qn_at(c->dst[0], 0);
    int64_t count = qn_tensor_count(c->src[0]) / w.axes.kept, units = qn_axes_units(&w.axes);
    for (int64_t u = qn_cpu_cut(units, s->parts[0], part), end = qn_cpu_cut(units, s->parts[0], part + 1); u < end; u++) {
        if (w.axes.n == 0) memcpy(y, x, (size_t)w.size);
        else (w.axes.gone[w.axes.n - 1] ? reduce_runs : reduce_columns)(&w, x, y, u, count);
    }
}

/* One value of everything: totals of pieces are kept in the workspace and merged when all are there. */
static void run_pieces(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    work w;
    total *totals = c->workspace;
    int64_t n = qn_tensor_count(c->src[0]), pieces = pieces_of(n);
    if (!make_work(c, &w)) return;
    if (phase == 0) {
        for (int64_t i = qn_cpu_cut(pieces, s->parts[0], part), end = qn_cpu_cut(pieces, s->parts[0], part + 1); i < end; i++)
            totals[i] = piece_of(&w, qn_at(c->src[0], 0), n, i);
        return;
    }
    for (int64_t i = 1; i < pieces; i++) merge(&w, &totals[0], &totals[i]);
    put(&w, &totals[0], n, qn_at(c->dst[0], 0));
}

int QN_K(total)(const qn_call *c, qn_cpu_step *s) {
    work w;
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    int64_t n = qn_tensor_count(x);
    if (n == 0 || qn_tensor_count(y) == 0 || y->dtype != x->dtype || !qn_cpu_is_dense(x) || !qn_cpu_is_dense(y)) return 0;
    if (!make_work(c, &w) || n / w.axes.kept > INT32_MAX) return 0; /* so many halves of 64 bits have a sum of 64 bits */
    int64_t units = qn_axes_units(&w.axes), pieces = pieces_of(n);
    if (w.axes.n != 1 || !w.axes.gone[0] || pieces < MANY)
        return qn_cpu_by_rows(s, "totals", run, units, (double)(n * w.size) / (double)units, (double)n / (double)units);
    qn_cpu_by_rows(s, "total of totals", run_pieces, pieces, (double)(PIECE * w.size), 0);
    s->n_phases = 2;
    s->parts[1] = 1;
    s->workspace = (size_t)pieces * sizeof(total);
    return 1;
}

/* ---- Where the largest or smallest is: lanes remember in which row it was */

typedef void (*best_fn)(void *best, int32_t *at, const void *x, int64_t pitch, int64_t rows, int64_t width);

#define BEST(name, type, better)                                                                                \
    static void name(void *values, int32_t *at, const void *from, int64_t pitch, int64_t rows, int64_t width) { \
        type *best = values;                                                                                    \
        const type *row = from;                                                                                 \
        for (int64_t i = 0; i < width; i++) best[i] = row[i], at[i] = 0;                                        \
        for (int32_t r = 1; r < rows; r++) {                                                                    \
            row += pitch;                                                                                       \
            QN_TYPED_EACH                                                                                       \
            for (int64_t i = 0; i < width; i++) {                                                               \
                type x = row[i], b = best[i];                                                                   \
                int is = better;                                                                                \
                best[i] = is ? x : b;                                                                           \
                at[i] = is ? r : at[i];                                                                         \
            }                                                                                                   \
        }                                                                                                       \
    }
#define BESTS(d, type, wide)       \
    BEST(largest_##d, type, x > b) \
    BEST(smallest_##d, type, x < b)
QN_TYPED_NARROW(BESTS)
BESTS(I64, int64_t, int64_t)
BEST(largest_F64, double, ((x > b) | (x != x)) & (b == b))
BEST(smallest_F64, double, ((x < b) | (x != x)) & (b == b))
BEST(largest_F32, float, ((x > b) | (x != x)) & (b == b))
BEST(smallest_F32, float, ((x < b) | (x != x)) & (b == b))
#define BESTS_OF(d, type, wide) [QN_DTYPE_##d] = {[QN_ARG_REDUCE_max] = largest_##d, [QN_ARG_REDUCE_min] = smallest_##d},
static const best_fn bests[QN_DTYPE_COUNT][2] = {QN_TYPED_NUMBERS(BESTS_OF) BESTS_OF(F32, , )};

/* x dense as [outer, n, inner] of which n goes. */
typedef struct form {
    int64_t outer, n, inner, size;
    int order;
    best_fn best;
} form;

/* Axes in the set go, counted from the last; 0: others lie between them. */
static int make_form(const qn_tensor *x, unsigned set, int order, form *f) {
    *f = (form){1, 1, 1, qn_dtype_bytes(x->dtype), order, bests[x->dtype][order]};
    for (int k = 0; k < x->rank; k++) {
        int64_t extent = qn_ne(x, k);
        if (extent == 1) continue;
        if (!(set >> k & 1)) *(f->n > 1 ? &f->outer : &f->inner) *= extent;
        else if (f->outer > 1) return 0;
        else f->n *= extent;
    }
    return f->best && f->n <= INT32_MAX;
}

static int form_of(const qn_call *c, form *f) {
    const qn_tensor *x = c->src[c->op == QN_OP_reduce_back];
    if (c->op == QN_OP_argmax) return make_form(x, 1, QN_ARG_REDUCE_max, f);
    if (c->op == QN_OP_arg_reduce)
        return make_form(x, 1u << qn_op_axis(((const qn_attr_arg_reduce *)c->attr)->axis, x->rank), c->subop, f);
    unsigned set = qn_op_axes_set(&((const qn_attr_reduce_back *)c->attr)->axes, x->rank);
    return make_form(x, set, c->subop == QN_REDUCE_max ? QN_ARG_REDUCE_max : QN_ARG_REDUCE_min, f);
}

/* Whether lane i is better than lane k, or as good and earlier; places are rows times the width, plus the lane. */
static int beats(const form *f, uint32_t dtype, const char *best, const int64_t *place, int64_t i, int64_t k) {
    int over, under;
    if (dtype == QN_DTYPE_F64 || dtype == QN_DTYPE_F32) {
        const float *f32 = (const float *)(const void *)best;
        const double *f64 = (const double *)(const void *)best;
        double a = dtype == QN_DTYPE_F64 ? f64[i] : (double)f32[i], b = dtype == QN_DTYPE_F64 ? f64[k] : (double)f32[k];
        if (isnan(a) || isnan(b)) return isnan(a) && (!isnan(b) || place[i] < place[k]);
        over = a > b, under = a < b;
    } else {
        int64_t a = qn_load_index((qn_dtype)dtype, best + i * f->size), b = qn_load_index((qn_dtype)dtype, best + k * f->size);
        over = a > b, under = a < b;
    }
    if (!over && !under) return place[i] < place[k];
    return f->order == QN_ARG_REDUCE_max ? over : under;
}

/* What does not fill a row is a lane each. */
static int32_t best_of_run(const form *f, uint32_t dtype, const char *x) {
    _Alignas(64) char best[2 * FEW_LANES * 8];
    int32_t at[FEW_LANES];
    int64_t place[2 * FEW_LANES], width = f->n < FEW_LANES ? f->n : FEW_LANES, rows = f->n / width, rest = f->n % width, top = 0;
    f->best(best, at, x, width, rows, width);
    memcpy(best + width * f->size, x + rows * width * f->size, (size_t)(rest * f->size));
    for (int64_t i = 0; i < width + rest; i++) {
        place[i] = i < width ? at[i] * width + i : rows * width + i - width;
        if (beats(f, dtype, best, place, i, top)) top = i;
    }
    return (int32_t)place[top];
}

static void run_best(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    form f;
    const char *x = qn_at(c->src[0], 0);
    int32_t *y = (int32_t *)(void *)qn_at(c->dst[0], 0);
    _Alignas(64) char best[LANES * 8];
    (void)phase;
    if (!form_of(c, &f)) return;
    int64_t units = qn_columns_units(f.outer, f.inner);
    for (int64_t u = qn_cpu_cut(units, s->parts[0], part), end = qn_cpu_cut(units, s->parts[0], part + 1); u < end; u++) {
        qn_columns b = qn_columns_at(f.outer, f.inner, u);
        if (f.inner == 1) y[u] = best_of_run(&f, c->src[0]->dtype, x + u * f.n * f.size);
        else
            f.best(best, y + b.outer * f.inner + b.first, x + (b.outer * f.n * f.inner + b.first) * f.size, f.inner, f.n, b.some);
    }
}

static int prepare_best(const qn_call *c, qn_cpu_step *s, const qn_tensor *x, const char *name, qn_cpu_run_fn fn) {
    form f;
    if (qn_tensor_count(x) == 0 || !qn_cpu_is_dense(x) || !qn_cpu_is_dense(c->dst[0]) || !form_of(c, &f)) return 0;
    int64_t units = qn_columns_units(f.outer, f.inner);
    double each = (double)qn_tensor_count(x) / (double)units;
    return qn_cpu_by_rows(s, name, fn, units, each * (double)f.size, each);
}

int QN_K(best)(const qn_call *c, qn_cpu_step *s) {
    return c->dst[0]->dtype == QN_DTYPE_I32 && prepare_best(c, s, c->src[0], "best of lanes", run_best);
}

/* ---- reduce_back of the largest and the smallest: zeros, and the gradient where it was */

static void run_best_back(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    form f;
    _Alignas(64) char best[LANES * 8];
    int32_t at[LANES];
    (void)phase;
    if (!form_of(c, &f)) return;
    int64_t units = qn_columns_units(f.outer, f.inner);
    for (int64_t u = qn_cpu_cut(units, s->parts[0], part), end = qn_cpu_cut(units, s->parts[0], part + 1); u < end; u++) {
        qn_columns b = qn_columns_at(f.outer, f.inner, u);
        int64_t begin = (b.outer * f.n * f.inner + b.first) * f.size, row = f.inner * f.size;
        const char *x = qn_at(c->src[1], begin), *g = qn_at(c->src[0], (b.outer * f.inner + b.first) * f.size);
        char *dx = qn_at(c->dst[0], begin);
        if (f.inner == 1) at[0] = best_of_run(&f, c->src[1]->dtype, x);
        else f.best(best, at, x, f.inner, f.n, b.some);
        for (int64_t r = 0; f.inner > 1 && r < f.n; r++) memset(dx + r * row, 0, (size_t)(b.some * f.size));
        if (f.inner == 1) memset(dx, 0, (size_t)(f.n * f.size));
        for (int64_t i = 0; i < b.some; i++) memcpy(dx + at[i] * row + i * f.size, g + i * f.size, (size_t)f.size);
    }
}

int QN_K(best_back)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *g = c->src[0], *x = c->src[1];
    if ((c->subop != QN_REDUCE_max && c->subop != QN_REDUCE_min) || g->dtype != x->dtype || !qn_cpu_is_dense(g)) return 0;
    return prepare_best(c, s, x, "best of lanes, back", run_best_back);
}
