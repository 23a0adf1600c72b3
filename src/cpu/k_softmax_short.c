/* soft_max without mask and sinks, softmax over the last axis and log_soft_max where a row is a few vectors, as those of gates are: rows
 * go abreast and stay in registers, so that none waits for another's sum. */
#include <math.h>

#include "cpu/k_softmax.h"
#include "cpu/simd/simd_math.h"

enum { ABREAST = 4, VECTORS = 4 };

/* The rows at hand, up to ABREAST of n elements each. */
typedef struct band {
    const char *x[ABREAST];
    char *y[ABREAST];
    int rows, n, log;
    float scale;
} band;

/* Scores of a row; lanes behind its end are -Inf. */
QN_INLINE void load_row(uint32_t dtype, int vectors, const band *b, int row, vf *v) {
    vf scale = vf_set1(b->scale);
    int last = (vectors - 1) * VF_N;
    for (int k = 0; k < vectors - 1; k++) v[k] = qn_lanes(dtype, b->x[row], k * VF_N) * scale;
    v[vectors - 1] = vf_some(qn_lanes_some(dtype, b->x[row], last, b->n - last) * scale, b->n - last, vf_set1(-INFINITY));
}

QN_INLINE void store_row(uint32_t dtype, int vectors, const band *b, int row, const vf *v) {
    int last = (vectors - 1) * VF_N;
    for (int k = 0; k < vectors - 1; k++) qn_lanes_put(dtype, b->y[row], k * VF_N, v[k]);
    qn_lanes_put_some(dtype, b->y[row], last, v[vectors - 1], b->n - last);
}

/* The highest score; 0 where there is nothing but -Inf, so that weights are 0 and not of -Inf + Inf. */
QN_INLINE float top_of(int vectors, const vf *v) {
    vf most = vf_set1(-INFINITY);
    for (int k = 0; k < vectors; k++) most = vf_max(v[k], most);
    float top = vf_largest(most);
    return top == -INFINITY ? 0 : top;
}

/* x - top - log sum: the sum of both would be rounded to the digits of top. A row of nothing but -Inf stays as it is. */
QN_INLINE void put_logs(uint32_t dtype, int vectors, const band *b, int row, float top, float sum) {
    vf v[VECTORS], rest = vf_set1(sum == 0 ? 0 : vf_log(vf_set1(sum))[0]);
    load_row(dtype, vectors, b, row, v);
    for (int k = 0; k < vectors; k++) v[k] = v[k] - vf_set1(top) - rest;
    store_row(dtype, vectors, b, row, v);
}

QN_INLINE void soft_band(uint32_t dtype, int vectors, const band *b) {
    vf v[ABREAST][VECTORS];
    float top[ABREAST], sum[ABREAST], share[ABREAST];
    for (int r = 0; r < ABREAST; r++) load_row(dtype, vectors, b, r, v[r]);
    for (int r = 0; r < ABREAST; r++) top[r] = top_of(vectors, v[r]);
    for (int r = 0; r < ABREAST; r++) {
        vf all = vf_zero();
        for (int k = 0; k < vectors; k++) all += v[r][k] = vf_exp_below(v[r][k] - vf_set1(top[r]));
        sum[r] = vf_sum(all);
    }
    for (int r = 0; b->log && r < b->rows; r++) put_logs(dtype, vectors, b, r, top[r], sum[r]);
    for (int r = 0; r < ABREAST; r++) share[r] = sum[r] == 0 ? 0 : 1 / sum[r];
    for (int r = 0; r < ABREAST; r++) {
        for (int k = 0; k < vectors; k++) v[r][k] *= vf_set1(share[r]);
        if (!b->log && r < b->rows) store_row(dtype, vectors, b, r, v[r]);
    }
}

QN_INLINE void soft_any(uint32_t dtype, const band *b) {
    int vectors = (b->n + VF_N - 1) / VF_N;
    if (vectors == 1) soft_band(dtype, 1, b);
    else if (vectors == 2) soft_band(dtype, 2, b);
    else if (vectors == 3) soft_band(dtype, 3, b);
    else soft_band(dtype, 4, b);
}

/* In a band that is not full the last row is read several times. */
static void put_band(uint32_t dtype, band *b) {
    if (b->rows == 0) return;
    for (int r = b->rows; r < ABREAST; r++) b->x[r] = b->x[b->rows - 1];
#define CALL(d) soft_any(d, b)
    QN_BY_FLOAT(dtype, CALL);
#undef CALL
    b->rows = 0;
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *x = c->src[0];
    int64_t rows = qn_tensor_count(x) / qn_ne(x, 0), end = qn_cpu_cut(rows, s->parts[0], part + 1);
    band b = {.n = (int)qn_ne(x, 0), .log = c->op == QN_OP_log_soft_max, .scale = 1};
    if (c->op == QN_OP_soft_max) b.scale = ((const qn_attr_soft_max *)c->attr)->scale;
    qn_rows it;
    (void)phase;
    for (qn_rows_begin_at(&it, x->rank, x->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it)) {
        b.x[b.rows] = qn_row(&it, x);
        b.y[b.rows] = qn_row(&it, c->dst[0]);
        if (++b.rows == ABREAST) put_band(x->dtype, &b);
    }
    put_band(x->dtype, &b);
}

/* For the ops of k_softmax.c, which has seen to dtypes and strides. */
int QN_K(softmax_short)(const qn_call *c, qn_cpu_step *s) {
    int64_t n = qn_ne(c->src[0], 0);
    for (int i = 1; i < c->n_src; i++)
        if (c->src[i]) return 0;
    if (n > VECTORS * VF_N) return 0;
    return qn_cpu_by_rows(s, "softmax of short rows", run, qn_tensor_count(c->src[0]) / n, 8.0 * (double)n, 40.0 * (double)n);
}
