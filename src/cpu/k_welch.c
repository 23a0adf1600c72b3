/* welch_peaks: powers of bins averaged over segments, and the strongest of them. In double and in the reference's order: the bins that
 * come out are decided by these sums. */
#include <math.h>

#include "cpu/k_lanes.h"
#include "cpu/simd/simd_wide.h"

enum { LANES = VF_N / 2 };

/* sum += |X|^2 over the bins of a row, by 2 where a bin stands for two; sum has room for whole vectors. The second half of a row holds
 * the imaginary parts. */
QN_INLINE void add_power(uint32_t dtype, const char *row, int64_t n, int64_t bins, double *sum) {
    const char *im_row = row + n * qn_float_bytes(dtype);
    for (int64_t i = 0; i < bins; i += VF_N) {
        vf re = qn_lanes_at(dtype, row, i, bins), im = qn_lanes_at(dtype, im_row, i, bins);
        vd low = vd_low(re) * vd_low(re) + vd_low(im) * vd_low(im), high = vd_high(re) * vd_high(re) + vd_high(im) * vd_high(im);
        vd_store(sum + i, vd_load(sum + i) + low * 2);
        vd_store(sum + i + LANES, vd_load(sum + i + LANES) + high * 2);
    }
}

/* Whether a comes before b, which is the later bin. NaN is strongest. */
static int stays(double a, double b) { return isnan(a) || a >= b; }

/* Puts bin i in front of those of the list that are weaker; the list holds at most k. */
static int64_t insert(const double *p, int64_t i, int64_t *list, int64_t have, int64_t k) {
    int64_t j = have < k ? have++ : k - 1;
    for (; j > 0 && !stays(p[list[j - 1]], p[i]); j--) list[j] = list[j - 1];
    list[j] = i;
    return have;
}

static void find_peaks(const double *p, int64_t bins, int64_t k, int64_t *list) {
    int64_t have = 0, i = 0;
    for (; have < k; i++) have = insert(p, i, list, have, k);
    while (i < bins) {
        double last = p[list[k - 1]];
        if (isnan(last)) return;
        if (i + LANES <= bins && !vl_any(~(vl)(vd_load(p + i) <= last))) {
            i += LANES;
            continue;
        }
        for (int64_t end = i + LANES < bins ? i + LANES : bins; i < end; i++)
            if (!stays(p[list[k - 1]], p[i])) insert(p, i, list, k, k);
    }
}

/* A part's scratch: powers, whole vectors of them, and the list. */
static int64_t powers_of(int64_t bins) { return (bins + VF_N - 1) / VF_N * VF_N; }

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_attr_welch_peaks *at = c->attr;
    const qn_tensor *x = c->src[0];
    int64_t n = qn_ne(x, 0) / 2, bins = n / 2 + 1, rows = qn_tensor_count(c->dst[0]) / at->k;
    double *sum = (double *)c->workspace + part * (powers_of(bins) + at->k), count = (double)at->n_segments;
    int64_t *list = (int64_t *)(void *)(sum + powers_of(bins)), first = qn_cpu_cut(rows, s->parts[0], part);
    qn_rows from, to;
    (void)phase;
    qn_rows_begin_at(&from, x->rank, x->shape, first * at->n_segments);
    qn_rows_begin_at(&to, c->dst[0]->rank, c->dst[0]->shape, first);
    for (int64_t end = qn_cpu_cut(rows, s->parts[0], part + 1); to.live && to.row < end; qn_rows_next(&to)) {
        memset(sum, 0, (size_t)powers_of(bins) * sizeof *sum);
        for (int64_t segment = 0; segment < at->n_segments; segment++, qn_rows_next(&from)) {
#define ADD(dtype) add_power(dtype, qn_row(&from, x), n, bins, sum)
            QN_BY_FLOAT(x->dtype, ADD);
#undef ADD
        }
        sum[0] /= 2; /* these two stand for themselves; halves of such sums are exact */
        if (n % 2 == 0 && n > 1) sum[n / 2] /= 2;
        for (int64_t i = 0; i < bins; i++) sum[i] /= count;
        find_peaks(sum, bins, at->k, list);
        for (int64_t k = 0; k < at->k; k++) {
            *(int32_t *)(void *)(qn_row(&to, c->dst[0]) + k * qn_nb(c->dst[0], 0)) = (int32_t)list[k];
            qn_store_row(c->dst[1], qn_row(&to, c->dst[1]), k, 1, &sum[list[k]]);
        }
    }
}

int QN_K(welch_peaks)(const qn_call *c, qn_cpu_step *s) {
    const qn_attr_welch_peaks *at = c->attr;
    const qn_tensor *x = c->src[0];
    int64_t bins = qn_ne(x, 0) / 4 + 1;
    if (!qn_lanes_rows(x) || qn_tensor_count(x) == 0) return 0;
    qn_cpu_by_rows(s, "peaks f64", run, qn_tensor_count(c->dst[0]) / at->k, 0, 8.0 * (double)(bins * (at->n_segments + 1)));
    s->workspace = (size_t)(s->parts[0] * (powers_of(bins) + at->k)) * sizeof(double);
    return 1;
}
