/* reduce by the highest, the lowest and products, over any axes of dense f32. Products are of doubles, as sums are: a float would overflow
 * on its way to a result that a float has. */
#include "cpu/k_axes.h"
#include "cpu/k_fold.h"
#include "cpu/simd/simd_wide.h"

/* AHEAD: elements before they are read, a line is asked for; PIECE: elements of which one value is kept. */
enum { AHEAD = 1024, PIECE = 1 << 14, LONG = 4 * PIECE };

/* ---- Columns: rows of `width` neighbours, one after the other, into what is there so far */

QN_INLINE void extreme_row(int reduction, float *best, const float *x, int64_t pitch, int width) {
    for (int i = 0; i < width; i += VF_N) {
        __builtin_prefetch(x + pitch + i, 0, 3);
        vf v = qn_lanes_at(QN_DTYPE_F32, (const char *)x, i, width);
        vf_store(best + i, qn_fold(reduction, vf_load(best + i), v));
    }
}

static void product_row(double *product, const float *x, int width) {
    int i = 0;
    for (; i + VF_N / 2 <= width; i += VF_N / 2) vd_store(product + i, vd_load(product + i) * vd_from(x + i));
    for (; i < width; i++) product[i] *= (double)x[i];
}

QN_INLINE void extreme_columns(int reduction, const qn_axes *l, const float *x, float *y, int64_t unit) {
    qn_axes_columns b = qn_axes_columns_at(l, unit);
    float best[QN_ABREAST + VF_N];
    for (int i = 0; i < b.some; i += VF_N) vf_store(best + i, vf_set1(qn_fold_nothing(reduction)));
    do {
        const float *rows = x + qn_axes_columns_from(l, &b);
        for (int64_t i = 0; i < b.rows; i++) extreme_row(reduction, best, rows + i * b.width, b.width, b.some);
    } while (qn_axes_next(l, b.above, &b.place, 1));
    memcpy(y + b.to, best, (size_t)b.some * sizeof *y);
}

static void product_columns(const qn_axes *l, const float *x, float *y, int64_t unit) {
    qn_axes_columns b = qn_axes_columns_at(l, unit);
    double product[QN_ABREAST];
    for (int i = 0; i < b.some; i++) product[i] = 1;
    do {
        const float *rows = x + qn_axes_columns_from(l, &b);
        for (int64_t i = 0; i < b.rows; i++) product_row(product, rows + i * b.width, b.some);
    } while (qn_axes_next(l, b.above, &b.place, 1));
    for (int i = 0; i < b.some; i++) y[b.to + i] = (float)product[i];
}

/* ---- Runs of neighbours, in as many chains as hide an operation's time */

QN_INLINE vf extreme_run(int reduction, vf best, const float *x, int64_t n) {
    vf a = best, b = best, c = best, d = best;
    int64_t i = 0;
    for (; i + 4 * VF_N <= n; i += 4 * VF_N) {
        for (int k = 0; k < 4 * VF_N; k += 16) __builtin_prefetch(x + i + k + AHEAD, 0, 3);
        a = qn_fold(reduction, a, vf_load(x + i));
        b = qn_fold(reduction, b, vf_load(x + i + VF_N));
        c = qn_fold(reduction, c, vf_load(x + i + 2 * VF_N));
        d = qn_fold(reduction, d, vf_load(x + i + 3 * VF_N));
    }
    for (; i < n; i++) a = qn_fold(reduction, a, vf_set1(x[i]));
    return qn_fold(reduction, qn_fold(reduction, a, b), qn_fold(reduction, c, d));
}

static double product_run(const float *x, int64_t n) {
    double product = 1, lanes[VF_N / 2];
    int64_t i = 0;
    if (n >= VF_N) {
        vd a = vd_from(x), b = vd_from(x + VF_N / 2);
        for (i = VF_N; i + VF_N <= n; i += VF_N) {
            a = a * vd_from(x + i);
            b = b * vd_from(x + i + VF_N / 2);
        }
        vd_store(lanes, a * b);
        for (int k = 0; k < VF_N / 2; k++) product *= lanes[k];
    }
    for (; i < n; i++) product *= (double)x[i];
    return product;
}

/* A long run in pieces, as run_pieces takes the only one there is. */
static double product_all(const float *x, int64_t n) {
    double product = 1;
    if (n < LONG) return product_run(x, n);
    for (int64_t i = 0; i < n; i += PIECE) product *= product_run(x + i, n - i < PIECE ? n - i : PIECE);
    return product;
}

QN_INLINE void extreme_runs(int reduction, const qn_axes *l, const float *x, float *y, int64_t unit) {
    int inner = l->n - 1;
    qn_axes_place w = qn_axes_kept(l, inner, unit);
    vf best = vf_set1(qn_fold_nothing(reduction));
    float lanes[VF_N];
    do best = extreme_run(reduction, best, x + qn_axes_offset(l, inner, &w, l->extent[inner]), l->extent[inner]);
    while (qn_axes_next(l, inner, &w, 1));
    vf_store(lanes, best);
    for (int k = 1; k < VF_N; k++) best = qn_fold(reduction, best, vf_set1(lanes[k]));
    vf_storen(y + unit, best, 1);
}

static void product_runs(const qn_axes *l, const float *x, float *y, int64_t unit) {
    int inner = l->n - 1;
    qn_axes_place w = qn_axes_kept(l, inner, unit);
    double product = 1;
    do product *= product_all(x + qn_axes_offset(l, inner, &w, l->extent[inner]), l->extent[inner]);
    while (qn_axes_next(l, inner, &w, 1));
    y[unit] = (float)product;
}

/* ---- One value of everything, in pieces: theirs are kept in the workspace and combined when all are there */

static double value_of_run(int reduction, const float *x, int64_t n) {
    qn_axes all = {.n = 1, .extent = {n}, .gone = {1}, .kept = 1};
    float y = 0;
    if (reduction == QN_REDUCE_prod) return product_run(x, n);
    if (reduction == QN_REDUCE_max) extreme_runs(QN_REDUCE_max, &all, x, &y, 0);
    else extreme_runs(QN_REDUCE_min, &all, x, &y, 0);
    return (double)y;
}

static double combine(int reduction, double a, double b) {
    if (reduction == QN_REDUCE_prod) return a * b;
    int over = reduction == QN_REDUCE_max ? b > a : b < a;
    return isnan(a) || !(over || isnan(b)) ? a : b;
}

static void run_pieces(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const float *x = (const float *)(const void *)qn_at(c->src[0], 0);
    double *values = c->workspace;
    int64_t n = qn_tensor_count(c->src[0]), pieces = (n + PIECE - 1) / PIECE;
    if (phase == 0) {
        for (int64_t i = qn_cpu_cut(pieces, s->parts[0], part), end = qn_cpu_cut(pieces, s->parts[0], part + 1); i < end; i++)
            values[i] = value_of_run(c->subop, x + i * PIECE, n - i * PIECE < PIECE ? n - i * PIECE : PIECE);
        return;
    }
    double value = values[0];
    for (int64_t i = 1; i < pieces; i++) value = combine(c->subop, value, values[i]);
    *(float *)(void *)qn_at(c->dst[0], 0) = (float)value;
}

static int prepare_pieces(qn_cpu_step *s, int64_t n) {
    int64_t pieces = (n + PIECE - 1) / PIECE;
    qn_cpu_by_rows(s, "fold of folds", run_pieces, pieces, 4.0 * PIECE, 0);
    s->n_phases = 2;
    s->parts[1] = 1;
    s->workspace = (size_t)pieces * sizeof(double);
    return 1;
}

/* ---- The op */

static void fold_unit(int reduction, const qn_axes *l, const float *x, float *y, int64_t unit) {
    int runs = l->gone[l->n - 1];
    switch (reduction) {
    case QN_REDUCE_max:
        if (runs) extreme_runs(QN_REDUCE_max, l, x, y, unit);
        else extreme_columns(QN_REDUCE_max, l, x, y, unit);
        return;
    case QN_REDUCE_min:
        if (runs) extreme_runs(QN_REDUCE_min, l, x, y, unit);
        else extreme_columns(QN_REDUCE_min, l, x, y, unit);
        return;
    default:
        if (runs) product_runs(l, x, y, unit);
        else product_columns(l, x, y, unit);
    }
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_axes l = qn_axes_of_reduce(c);
    const float *x = (const float *)(const void *)qn_at(c->src[0], 0);
    float *y = (float *)(void *)qn_at(c->dst[0], 0);
    int64_t units = qn_axes_units(&l), end = qn_cpu_cut(units, s->parts[0], part + 1);
    (void)phase;
    for (int64_t u = qn_cpu_cut(units, s->parts[0], part); u < end; u++) {
        if (l.n == 0) y[u] = x[u];
        else fold_unit(c->subop, &l, x, y, u);
    }
}

int QN_K(fold)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    if (x->dtype != QN_DTYPE_F32 || y->dtype != QN_DTYPE_F32 || !qn_cpu_is_dense(x) || !qn_cpu_is_dense(y)) return 0;
    if (qn_tensor_count(x) == 0 || qn_tensor_count(y) == 0) return 0;
    qn_axes l = qn_axes_of_reduce(c);
    if (l.n == 1 && l.gone[0] && l.extent[0] >= LONG) return prepare_pieces(s, l.extent[0]);
    int64_t units = qn_axes_units(&l);
    return qn_cpu_by_rows(s, "folds", run, units, 4.0 * (double)qn_tensor_count(x) / (double)units, 0);
}
