/* solve_tri in f32: some right sides at a time along the lanes, in double, from the first row of the matrix to the last.
 * solve: the steps of the reference, but the matrix is eliminated once for all right sides, which lie along the lanes as its
 * rows do. */
#include <math.h>

#include "cpu/kernel.h"
#include "cpu/simd/simd_wide.h"

static int is_plain(const qn_tensor *t) { return t->dtype == QN_DTYPE_F32 && qn_cpu_is_dense(t); }

/* Columns [0, some) of one solution; b may be where x is. */
static void solve_lanes(const float *a, const float *b, float *x, int64_t n, int64_t columns, int some, int unit, double *done) {
    for (int64_t i = 0; i < n; i++, a += n) {
        vf from = vf_loadn(b + i * columns, some);
        vd low = vd_low(from), high = vd_high(from);
        for (int64_t t = 0; t < i; t++) {
            double by = (double)a[t];
            low -= by * vd_load(done + t * VF_N);
            high -= by * vd_load(done + t * VF_N + VF_N / 2);
        }
        if (!unit) {
            low /= (double)a[i];
            high /= (double)a[i];
        }
        vd_store(done + i * VF_N, low);
        vd_store(done + i * VF_N + VF_N / 2, high);
        for (int k = 0; k < some; k++) x[i * columns + k] = (float)done[i * VF_N + k];
    }
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *b = c->src[1];
    int64_t n = qn_ne(c->src[0], 0), columns = qn_ne(b, 0), wide = (columns + VF_N - 1) / VF_N;
    int64_t units = qn_tensor_count(b) / (n * columns) * wide, u = qn_cpu_cut(units, s->parts[0], part);
    double *done = (double *)c->workspace + part * n * VF_N;
    (void)phase;
    for (int64_t end = qn_cpu_cut(units, s->parts[0], part + 1); u < end; u++) {
        int64_t first = u % wide * VF_N, at = u / wide * n * columns + first;
        solve_lanes((const float *)(const void *)qn_at(c->src[0], u / wide * n * n * 4),
                    (const float *)(const void *)qn_at(b, at * 4), (float *)(void *)qn_at(c->dst[0], at * 4), n, columns,
                    (int)(columns - first < VF_N ? columns - first : VF_N), ((const qn_attr_solve_tri *)c->attr)->unit, done);
    }
}

int QN_K(solve_tri)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *a = c->src[0], *b = c->src[1];
    int64_t n = qn_ne(a, 0), columns = qn_ne(b, 0), count = qn_tensor_count(b);
    if (!is_plain(a) || !is_plain(b) || !is_plain(c->dst[0]) || count == 0) return 0;
    if (qn_tensor_count(a) / (n * n) != count / (n * columns)) return 0; /* a matrix of its own for each */
    int64_t units = count / (n * columns) * ((columns + VF_N - 1) / VF_N);
    qn_cpu_by_rows(s, "solve_tri lanes", run, units, 0, (double)n * (double)n * VF_N);
    s->workspace = (size_t)(n * VF_N * s->parts[0]) * sizeof(double);
    return 1;
}

/* ---- solve */

/* to -= times from */
static void take_off(double *to, const double *from, double times, int64_t n) {
    vd by = vd_set1(times);
    int64_t k = 0;
    for (; k + VF_N / 2 <= n; k += VF_N / 2) vd_store(to + k, vd_load(to + k) - by * vd_load(from + k));
    for (; k < n; k++) to[k] -= times * from[k];
}

static void swap(double *a, double *b, int64_t n) {
    for (int64_t k = 0; k < n; k++) {
        double keep = a[k];
        a[k] = b[k];
        b[k] = keep;
    }
}

/* f: the matrix, x: its right sides, which become the solutions. */
static void eliminate(double *f, double *x, int64_t n, int64_t columns) {
    for (int64_t p = 0; p < n; p++) {
        int64_t best = p;
        for (int64_t i = p + 1; i < n; i++)
            if (fabs(f[i * n + p]) > fabs(f[best * n + p])) best = i;
        if (best != p) {
            swap(f + p * n, f + best * n, n);
            swap(x + p * columns, x + best * columns, columns);
        }
        for (int64_t i = p + 1; i < n; i++) {
            double times = f[i * n + p] / f[p * n + p];
            take_off(f + i * n + p + 1, f + p * n + p + 1, times, n - p - 1);
            take_off(x + i * columns, x + p * columns, times, columns);
        }
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        for (int64_t k = i + 1; k < n; k++) take_off(x + i * columns, x + k * columns, f[i * n + k], columns);
        for (int64_t j = 0; j < columns; j++) x[i * columns + j] /= f[i * n + i];
    }
}

static void run_solve(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    int64_t n = qn_ne(c->src[0], 0), columns = qn_ne(c->src[1], 0), cells = n * columns;
    int64_t many = qn_tensor_count(c->src[1]) / cells, u = qn_cpu_cut(many, s->parts[0], part);
    int turned = ((const qn_attr_solve *)c->attr)->transpose;
    double *f = (double *)c->workspace + part * (n * n + cells), *x = f + n * n;
    (void)phase;
    for (int64_t end = qn_cpu_cut(many, s->parts[0], part + 1); u < end; u++) {
        const float *a = (const float *)(const void *)qn_at(c->src[0], u * n * n * 4),
                    *b = (const float *)(const void *)qn_at(c->src[1], u * cells * 4);
        float *to = (float *)(void *)qn_at(c->dst[0], u * cells * 4);
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < n; k++) f[i * n + k] = (double)(turned ? a[k * n + i] : a[i * n + k]);
        for (int64_t i = 0; i < cells; i++) x[i] = (double)b[i];
        eliminate(f, x, n, columns);
        for (int64_t i = 0; i < cells; i++) to[i] = (float)x[i];
    }
}

int QN_K(solve)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *a = c->src[0], *b = c->src[1];
    int64_t n = qn_ne(a, 0), columns = qn_ne(b, 0), count = qn_tensor_count(b);
    if (!is_plain(a) || !is_plain(b) || !is_plain(c->dst[0]) || count == 0) return 0;
    qn_cpu_by_rows(s, "elimination", run_solve, count / (n * columns), 0, (double)n * (double)n * (double)(n + 2 * columns));
    if (s->parts[0] > 8) s->parts[0] = 8;
    s->workspace = (size_t)(s->parts[0] * (n * n + n * columns)) * sizeof(double);
    return 1;
}
