/* Norms of rows: norm, rms_norm, l2_norm, group_norm, and with weights layer_norm, rms_layer_norm, add_layer_norm, add_rms_norm. A
 * row is summed in lanes over runs and in double over the runs, and is near when it is read again. */
#include "cpu/k_norm.h"
#include "cpu/k_past.h"
#include "cpu/k_typed.h"
#include "cpu/simd/simd_wide.h"

/* A row, and what is done to it: residual is added first and the sum kept; gamma multiplies and beta is added, any of them NULL. */
typedef struct norm_row {
    const char *x, *residual;
    const char *next; /* the row behind, asked for meanwhile, when y goes past the caches by whole vectors or lies far */
    int is_far;
    char *y, *total;
    const qn_tensor *gamma, *beta;
    int64_t n;
    double eps;
    double mean, r; /* what was found */
} norm_row;

QN_INLINE void add_row(uint32_t dtype, char *y, const char *a, const char *b, int64_t n) {
    for (int64_t i = 0; i < n; i += VF_N)
        qn_lanes_put_at(dtype, y, i, qn_lanes_at(dtype, a, i, n) + qn_lanes_at(dtype, b, i, n), n);
}

QN_INLINE void put_lanes(uint32_t dtype, const norm_row *w, int64_t i, vf v) {
    if (w->is_far) {
        __builtin_prefetch(w->next + i * qn_float_bytes(dtype), 0, 3);
        qn_far_ask(w->y + i * qn_float_bytes(dtype) + QN_FAR_AHEAD);
    }
    if (dtype != QN_DTYPE_F32 || !w->next || w->is_far) {
        qn_lanes_put_at(dtype, w->y, i, v, w->n);
        return;
    }
    __builtin_prefetch(w->next + i * 4, 0, 3);
    qn_past_store((float *)(void *)w->y + i, v);
}

/* In double, for rows that floats do not hold in between. */
static void write_far(uint32_t dtype, const norm_row *w, const char *x) {
    for (int64_t i = 0; i < w->n; i += VF_N) {
        vf v = qn_lanes_at(dtype, x, i, w->n);
        vd low = (vd_low(v) - w->mean) * w->r, high = (vd_high(v) - w->mean) * w->r;
        if (w->gamma) v = weight_at(w->gamma, i, w->n), low *= vd_low(v), high *= vd_high(v);
        if (w->beta) v = weight_at(w->beta, i, w->n), low += vd_low(v), high += vd_high(v);
        put_lanes(dtype, w, i, vf_of_wide(low, high));
    }
}

QN_INLINE void write_row(uint32_t dtype, const norm_row *w, const char *x) {
    vf r = vf_set1((float)w->r), mean = vf_set1((float)w->mean);
    vf more = vf_set1((float)-lost(w->mean - (double)(float)w->mean, w->r));
    if (!w->gamma && !w->beta) {
        for (int64_t i = 0; i < w->n; i += VF_N) put_lanes(dtype, w, i, vf_fma(qn_lanes_at(dtype, x, i, w->n) - mean, r, more));
        return;
    }
    for (int64_t i = 0; i < w->n; i += VF_N) {
        vf h = vf_fma(qn_lanes_at(dtype, x, i, w->n) - mean, r, more), b = w->beta ? weight_at(w->beta, i, w->n) : vf_zero();
        put_lanes(dtype, w, i, w->gamma ? vf_fma(h, weight_at(w->gamma, i, w->n), b) : h + b);
    }
}

QN_INLINE void norm_one(uint32_t dtype, norm_kind kind, norm_row *w) {
    const char *x = w->x;
    if (w->residual) {
        add_row(dtype, w->total, x, w->residual, w->n);
        x = w->total;
    }
    row_moments(dtype, kind, x, w->n, w->eps, &w->mean, &w->r);
    if (is_near(w->r)) write_row(dtype, w, x);
    else write_far(dtype, w, x);
}

/* ---- f64 */

/* Of x - mean, or of its square, in as many chains as hide an addition's time. */
QN_INLINE double sum_doubles(const double *x, int64_t n, double mean, int square) {
    enum { LANES = VF_N / 2, CHAINS = 4 };
    vd sum[CHAINS] = {vd_zero(), vd_zero(), vd_zero(), vd_zero()}, m = vd_set1(mean);
    double rest = 0;
    int64_t i = 0;
    for (; i + CHAINS * LANES <= n; i += CHAINS * LANES)
        for (int k = 0; k < CHAINS; k++) {
            vd v = vd_load(x + i + k * LANES) - m;
            sum[k] = square ? vd_fma(v, v, sum[k]) : sum[k] + v;
        }
    for (; i < n; i++) rest += square ? (x[i] - mean) * (x[i] - mean) : x[i] - mean;
    return vd_sum((sum[0] + sum[1]) + (sum[2] + sum[3])) + rest;
}

static void norm_doubles(norm_kind kind, norm_row *w) {
    const double *x = (const double *)(const void *)w->x, *residual = (const double *)(const void *)w->residual;
    const double *gamma = w->gamma ? (const double *)qn_at(w->gamma, 0) : NULL;
    const double *beta = w->beta ? (const double *)qn_at(w->beta, 0) : NULL;
    double *y = (double *)(void *)w->y, *total = (double *)(void *)w->total;
    if (residual) {
        QN_TYPED_EACH
        for (int64_t i = 0; i < w->n; i++) total[i] = x[i] + residual[i];
        x = total;
    }
    const double mean = w->mean = kind == CENTRED ? sum_doubles(x, w->n, 0, 0) / (double)w->n : 0;
    const double r = w->r = row_factor(kind, sum_doubles(x, w->n, mean, 1), w->n, w->eps);
    QN_TYPED_EACH
    for (int64_t i = 0; i < w->n; i++) y[i] = (x[i] - mean) * r;
    if (gamma) {
        QN_TYPED_EACH
        for (int64_t i = 0; i < w->n; i++) y[i] *= gamma[i];
    }
    if (beta) {
        QN_TYPED_EACH
        for (int64_t i = 0; i < w->n; i++) y[i] += beta[i];
    }
}

static void norm_any(uint32_t dtype, norm_kind kind, norm_row *w) {
    if (dtype == QN_DTYPE_F64) {
        norm_doubles(kind, w);
        return;
    }
#define CENTRED_OF(d) norm_one(d, CENTRED, w)
#define SQUARES_OF(d) norm_one(d, SQUARES, w)
#define LENGTH_OF(d) norm_one(d, LENGTH, w)
    if (kind == CENTRED) QN_BY_FLOAT(dtype, CENTRED_OF);
    else if (kind == SQUARES) QN_BY_FLOAT(dtype, SQUARES_OF);
    else QN_BY_FLOAT(dtype, LENGTH_OF);
}

/* ---- Ops over rows */

/* Where an op has its slots; -1: it has none. */
typedef struct norm_slots {
    norm_kind kind;
    int residual, gamma, beta, total, mean;
} norm_slots;

static const qn_tensor *src_of(const qn_call *c, int slot) { return slot >= 0 && slot < c->n_src ? c->src[slot] : NULL; }
static const qn_tensor *dst_of(const qn_call *c, int slot) { return slot >= 0 && slot < c->n_dst ? c->dst[slot] : NULL; }

static void put_statistic(const qn_tensor *t, const qn_rows *it, double v) {
    if (t) qn_store_one((qn_dtype)t->dtype, qn_row(it, t), v);
}

enum { ASIDE = 1 << 14 }; /* bytes of a row that is made here and then written past the caches */

/* Meanwhile what is read next is asked for: most often the row behind. */
static void put_past(char *y, const char *x, int64_t bytes, const char *next) {
    for (int64_t some; bytes > 0; bytes -= some, y += some, x += some, next += some) {
        some = qn_past_some(y, bytes, 1);
        for (int64_t i = 0; i < some; i += 64) __builtin_prefetch(next + i, 0, 3);
        qn_past_put(y, x, some);
    }
}

static void run_rows(const qn_call *c, const qn_cpu_step *s, int64_t part, const norm_slots *at) {
    const qn_tensor *x = c->src[0], *y = c->dst[0], *residual = src_of(c, at->residual), *total = dst_of(c, at->total);
    int64_t rows = qn_tensor_count(x) / qn_ne(x, 0), end = qn_cpu_cut(rows, s->parts[0], part + 1);
    int64_t bytes = qn_ne(x, 0) * qn_dtype_bytes(x->dtype);
    qn_way way = residual || bytes > ASIDE ? QN_NEAR : qn_past_way(s, y, c->src, c->n_src);
    int past = way == QN_PAST;
    _Alignas(64) char aside[ASIDE];
    qn_rows it;
    for (qn_rows_begin_at(&it, x->rank, x->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it)) {
        norm_row w = {.x = qn_row(&it, x), .y = qn_row(&it, y), .n = it.n, .eps = (double)((const qn_attr_norm *)c->attr)->eps};
        w.gamma = src_of(c, at->gamma);
        w.beta = src_of(c, at->beta);
        if (residual) {
            w.residual = qn_row(&it, residual);
            w.total = qn_row(&it, total ? total : y); /* when the sum is not asked for, y holds it until it is normalised */
        }
        int whole = past && x->dtype == QN_DTYPE_F32 && ((uintptr_t)w.y | (uintptr_t)bytes) % sizeof(vf) == 0;
        w.is_far = way == QN_FAR;
        if (whole || w.is_far) w.next = w.x + bytes;
        else if (past) w.y = aside;
        norm_any(x->dtype, at->kind, &w);
        if (past && !whole) put_past(qn_row(&it, y), aside, bytes, w.x + bytes);
        put_statistic(at->mean < 0 ? NULL : dst_of(c, at->mean), &it, w.mean);
        put_statistic(at->mean < 0 ? NULL : dst_of(c, at->mean + 1), &it, w.r);
    }
    if (past) qn_past_end();
}

static int is_double_row(const qn_tensor *t) { return t->dtype == QN_DTYPE_F64 && (qn_nb(t, 0) == 8 || qn_ne(t, 0) == 1); }
/* f64 goes with f64 alone. */
static int is_rows(const qn_tensor *t, const qn_tensor *x) {
    return x->dtype == QN_DTYPE_F64 ? is_double_row(t) : qn_lanes_rows(t);
}

static int prepare_rows(const qn_call *c, qn_cpu_step *s, const norm_slots *at, const char *name, qn_cpu_run_fn run) {
    const qn_tensor *x = c->src[0], *y = c->dst[0], *residual = src_of(c, at->residual), *total = dst_of(c, at->total);
    const qn_tensor *weights[2] = {src_of(c, at->gamma), src_of(c, at->beta)};
    int64_t n = qn_ne(x, 0), count = qn_tensor_count(x);
    if (count == 0 || x->dtype != y->dtype || x->rank != y->rank || !is_rows(x, x) || !is_rows(y, x)) return 0;
    if (at->residual >= 0) {
        if (!residual || residual->dtype != x->dtype || (total && total->dtype != x->dtype)) return 0;
        if (residual->rank != x->rank || !is_rows(residual, x) || (total && !is_rows(total, x))) return 0;
    }
    for (int i = 0; i < 2; i++)
        if (weights[i] && (!is_rows(weights[i], x) || qn_ne(weights[i], 0) != n)) return 0;
    return qn_cpu_by_rows(s, name, run, count / n, 12.0 * (double)n, 0);
}

#define ROWS(op, ...)                                                                       \
    static const norm_slots slots_##op = {__VA_ARGS__};                                     \
    static void run_##op(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) { \
        (void)phase;                                                                        \
        run_rows(c, s, part, &slots_##op);                                                  \
    }                                                                                       \
    int QN_K(op)(const qn_call *c, qn_cpu_step *s) { return prepare_rows(c, s, &slots_##op, #op " rows", run_##op); }
ROWS(norm, CENTRED, -1, -1, -1, -1, -1)
ROWS(rms_norm, SQUARES, -1, -1, -1, -1, -1)
ROWS(l2_norm, LENGTH, -1, -1, -1, -1, -1)
ROWS(layer_norm, CENTRED, -1, 1, 2, -1, 1)
ROWS(rms_layer_norm, SQUARES, -1, 1, 2, -1, -1)
ROWS(add_layer_norm, CENTRED, 1, 2, 3, 1, -1)
ROWS(add_rms_norm, SQUARES, 1, 2, 3, 1, -1)

/* ---- Groups of channels: in a dense tensor a group is one long row, the last of a batch perhaps a short one. */

static void run_groups(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    const qn_attr_group_norm *at = c->attr;
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    int64_t channels = qn_ne(x, 2), plane = qn_ne(x, 0) * qn_ne(x, 1), per = (channels + at->n_groups - 1) / at->n_groups;
    int64_t groups = (channels + per - 1) / per, units = groups * qn_ne(x, 3), end = qn_cpu_cut(units, s->parts[0], part + 1);
    int64_t size = qn_dtype_bytes(x->dtype);
    for (int64_t u = qn_cpu_cut(units, s->parts[0], part); u < end; u++) {
        int64_t first = u % groups * per, some = channels - first < per ? channels - first : per;
        int64_t at_byte = (u / groups * channels + first) * plane * size;
        norm_row w = {.x = qn_at(x, at_byte), .y = qn_at(y, at_byte), .n = some * plane, .eps = (double)at->eps};
        norm_any(x->dtype, CENTRED, &w);
    }
}

int QN_K(group_norm)(const qn_call *c, qn_cpu_step *s) {
    const qn_attr_group_norm *at = c->attr;
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    int64_t count = qn_tensor_count(x), channels = qn_ne(x, 2);
    if (count == 0 || x->rank > 4 || x->dtype != y->dtype || !qn_cpu_is_dense(x) ||
        (!qn_lanes_float(x->dtype) && x->dtype != QN_DTYPE_F64) || !qn_cpu_is_dense(y))
        return 0;
    int64_t per = (channels + at->n_groups - 1) / at->n_groups, units = (channels + per - 1) / per * qn_ne(x, 3);
    return qn_cpu_by_rows(s, "group_norm", run_groups, units, 12.0 * (double)count / (double)units, 0);
}
