/* Sums over any axes of dense f32: reduce (sum and mean), repeat_back, sum_rows, sum, mean; and count_equal. */
#include "cpu/k_axes.h"
#include "cpu/simd/simd_wide.h"

enum { PIECE = 1 << 14 };

/* Sums of `width` neighbours in the output, the innermost group staying: rows are added one after the other. All sums are of doubles:
 * where terms cancel, a sum of floats would be left with its own roundings. */
static void add_row(double *sum, const float *x, int width) {
    int i = 0;
    for (; i + VF_N <= width; i += VF_N) {
        vd_store(sum + i, vd_load(sum + i) + vd_from(x + i));
        vd_store(sum + i + VF_N / 2, vd_load(sum + i + VF_N / 2) + vd_from(x + i + VF_N / 2));
    }
    for (; i < width; i++) sum[i] += (double)x[i];
}

/* Rows of x that are `pitch` apart: four at a time, so that sums are fetched and put back a quarter as often, while the next four are
 * asked for: of a wide matrix each lies in a page of its own, which machines do not look ahead to. */
static void add_rows(double *sum, const float *x, int64_t pitch, int64_t rows, int width) {
    for (; rows >= 4; rows -= 4, x += 4 * pitch) {
        int i = 0;
        for (; i + VF_N <= width; i += VF_N) {
            vd low = vd_load(sum + i), high = vd_load(sum + i + VF_N / 2);
            for (int k = 0; k < 4; k++) {
                const float *row = x + k * pitch + i;
                __builtin_prefetch(row + 4 * pitch, 0, 3);
                low += vd_from(row);
                high += vd_from(row + VF_N / 2);
            }
            vd_store(sum + i, low);
            vd_store(sum + i + VF_N / 2, high);
        }
        for (int k = 0; k < 4; k++)
            for (int j = i; j < width; j++) sum[j] += (double)x[k * pitch + j];
    }
    for (; rows > 0; rows--, x += pitch) add_row(sum, x, width);
}

static void sum_columns(const qn_axes *l, const float *x, float *y, int64_t unit, double scale) {
    qn_axes_columns c = qn_axes_columns_at(l, unit);
    double sum[QN_ABREAST] = {0};
    do add_rows(sum, x + qn_axes_columns_from(l, &c), c.width, c.rows, c.some);
    while (qn_axes_next(l, c.above, &c.place, 1));
    for (int i = 0; i < c.some; i++) y[c.to + i] = (float)(sum[i] * scale);
}

static void sum_runs(const qn_axes *l, const float *x, float *y, int64_t n, double scale) {
    int inner = l->n - 1;
    qn_axes_place w = qn_axes_kept(l, inner, n);
    double sum = 0;
    do sum += vd_add_up(x + qn_axes_offset(l, inner, &w, l->extent[inner]), l->extent[inner]);
    while (qn_axes_next(l, inner, &w, 1));
    y[n] = (float)(sum * scale);
}

static double scale_of(const qn_call *c, const qn_axes *l) {
    return qn_axes_is_mean(c) ? (double)l->kept / (double)qn_tensor_count(c->src[0]) : 1.0;
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_axes l;
    (void)phase;
    if (!qn_axes_of(c, &l)) return;
    double scale = scale_of(c, &l);
    const float *x = (const float *)(const void *)qn_at(c->src[0], 0);
    float *y = (float *)(void *)qn_at(c->dst[0], 0);
    int64_t units = qn_axes_units(&l), end = qn_cpu_cut(units, s->parts[0], part + 1);
    for (int64_t u = qn_cpu_cut(units, s->parts[0], part); u < end; u++) {
        if (l.n == 2 && l.gone[1]) y[u] = (float)(vd_add_up(x + u * l.extent[1], l.extent[1]) * scale);
        else if (l.n == 0) y[u] = (float)((double)x[u] * scale);
        else if (l.gone[l.n - 1]) sum_runs(&l, x, y, u, scale);
        else sum_columns(&l, x, y, u, scale);
    }
}

/* One sum of everything, in pieces: sums of pieces are kept in the workspace and added when all are there. */
static void run_pieces(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const float *x = (const float *)(const void *)qn_at(c->src[0], 0);
    double *sums = c->workspace, sum = 0;
    int64_t n = qn_tensor_count(c->src[0]), pieces = (n + PIECE - 1) / PIECE;
    if (phase == 0) {
        int64_t end = qn_cpu_cut(pieces, s->parts[0], part + 1);
        for (int64_t i = qn_cpu_cut(pieces, s->parts[0], part); i < end; i++)
            sums[i] = vd_add_up(x + i * PIECE, n - i * PIECE < PIECE ? n - i * PIECE : PIECE);
        return;
    }
    for (int64_t i = 0; i < pieces; i++) sum += sums[i];
    *(float *)(void *)qn_at(c->dst[0], 0) = (float)(s->n[0] ? sum / (double)n : sum);
}

static int prepare_pieces(qn_cpu_step *s, int64_t n, int is_mean) {
    int64_t pieces = (n + PIECE - 1) / PIECE;
    qn_cpu_by_rows(s, "sum of sums", run_pieces, pieces, 4.0 * PIECE, 0);
    s->n_phases = 2;
    s->parts[1] = 1;
    s->workspace = (size_t)pieces * sizeof(double);
    s->n[0] = is_mean;
    return 1;
}

static int prepare(const qn_call *c, qn_cpu_step *s) {
    qn_axes l;
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    if (x->dtype != QN_DTYPE_F32 || y->dtype != QN_DTYPE_F32 || !qn_cpu_is_dense(x) || !qn_cpu_is_dense(y)) return 0;
    if (qn_tensor_count(x) == 0 || qn_tensor_count(y) == 0 || !qn_axes_of(c, &l)) return 0;
    if (l.n == 1 && l.gone[0] && l.extent[0] >= 4 * PIECE) return prepare_pieces(s, l.extent[0], scale_of(c, &l) < 1.0);
    int64_t units = qn_axes_units(&l);
    return qn_cpu_by_rows(s, "sums", run, units, 4.0 * (double)qn_tensor_count(x) / (double)units, 0);
}

int QN_K(fold)(const qn_call *c, qn_cpu_step *s);  /* k_fold.c */
int QN_K(total)(const qn_call *c, qn_cpu_step *s); /* k_total.c: f64 and integers */

int QN_K(reduce)(const qn_call *c, qn_cpu_step *s) {
    int adds = c->subop == QN_REDUCE_sum || c->subop == QN_REDUCE_mean;
    return (adds ? prepare(c, s) : QN_K(fold)(c, s)) || QN_K(total)(c, s);
}

#define KERNEL(op) \
    int QN_K(op)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s) || QN_K(total)(c, s); }
KERNEL(repeat_back)
KERNEL(sum_rows)
KERNEL(mean)
KERNEL(sum)

/* ---- count_equal: parts count apart, and a second phase adds up */

/* n is below 2^31, so no lane's count overflows. */
static int64_t count_run(const char *a, const char *b, int64_t n) {
    const float *p = (const float *)(const void *)a,
                *q = (const float *)(const void *)b; /* bits are loaded, whatever they mean */
    vi same = vi_set1(0);
    int32_t lane[VF_N], one, other;
    int64_t i = 0, count = 0;
    for (; i + VF_N <= n; i += VF_N) same -= vi_bits(vf_load(p + i)) == vi_bits(vf_load(q + i));
    memcpy(lane, &same, sizeof lane);
    for (int k = 0; k < VF_N; k++) count += lane[k];
    for (; i < n; i++) {
        memcpy(&one, a + i * 4, 4);
        memcpy(&other, b + i * 4, 4);
        count += one == other;
    }
    return count;
}

static void run_count(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    int64_t *counts = c->workspace, n = qn_tensor_count(c->src[0]), pieces = (n + PIECE - 1) / PIECE, all = 0;
    if (phase == 1) {
        for (int64_t i = 0; i < s->parts[0]; i++) all += counts[i];
        memcpy(qn_at(c->dst[0], 0), &all, sizeof all);
        return;
    }
    for (int64_t i = qn_cpu_cut(pieces, s->parts[0], part), end = qn_cpu_cut(pieces, s->parts[0], part + 1); i < end; i++)
        all += count_run(qn_at(c->src[0], i * PIECE * 4), qn_at(c->src[1], i * PIECE * 4),
                         n - i * PIECE < PIECE ? n - i * PIECE : PIECE);
    counts[part] = all;
}

int QN_K(count_equal)(const qn_call *c, qn_cpu_step *s) {
    int64_t n = qn_tensor_count(c->src[0]);
    if (n == 0 || !qn_cpu_is_dense(c->src[0]) || !qn_cpu_is_dense(c->src[1])) return 0;
    qn_cpu_by_rows(s, "count_equal", run_count, (n + PIECE - 1) / PIECE, PIECE * 8.0, 0);
    s->n_phases = 2;
    s->parts[1] = 1;
    s->workspace = (size_t)s->parts[0] * sizeof(int64_t);
    return 1;
}
