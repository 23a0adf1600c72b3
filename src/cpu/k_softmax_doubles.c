/* soft_max, softmax over the last axis, log_soft_max and their gradients in f64: a row is where its result will be, as scores, then as
 * their exponentials, which are added up in lanes. */
#include <math.h>

#include "cpu/k_softmax.h"
#include "cpu/k_typed.h"
#include "cpu/simd/simd_wide.h"
#include "op/alibi.h"

enum { TILE = 256, LANES = VF_N / 2 };

static int is_row(const qn_tensor *t) { return t->dtype == QN_DTYPE_F64 && (qn_nb(t, 0) == 8 || qn_ne(t, 0) == 1); }

/* ---- One row */

/* x scale + slope mask. A mask of -Inf hides its score whatever that is, even NaN. */
static void put_scores(const double *x, const char *mask, uint32_t dtype, int64_t n, double scale, double slope, double *y) {
    double m[TILE];
    QN_TYPED_EACH
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * scale;
    for (int64_t first = 0; mask && first < n; first += TILE) {
        int64_t some = n - first < TILE ? n - first : TILE;
        double *to = y + first;
        qn_typed_load(dtype, mask + first * qn_dtype_bytes(dtype), some, m, 0);
        QN_TYPED_EACH
        for (int64_t i = 0; i < some; i++) to[i] = m[i] == -INFINITY ? -INFINITY : to[i] + slope * m[i];
    }
}

static double top_of(const double *x, int64_t n, double top) {
    vd most = vd_set1(top);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) most = vd_max(vd_load(x + i), most);
    double t[LANES];
    vd_store(t, most);
    for (int k = 0; k < LANES; k++) top = t[k] > top ? t[k] : top;
    for (; i < n; i++) top = x[i] > top ? x[i] : top;
    return top == -INFINITY ? 0 : top; /* a row of nothing but -Inf: weights of 0, not of -Inf + Inf */
}

/* e^(x - top) into y, where there is one, and their sum. */
static double weights_of(const double *x, int64_t n, double top, double *y) {
    vd sum = vd_zero(), t = vd_set1(top);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vd w = vd_exp(vd_load(x + i) - t);
        sum += w;
        if (y) vd_store(y + i, w);
    }
    if (i == n) return vd_sum(sum);
    double last[LANES];
    for (int k = 0; k < LANES; k++) last[k] = i + k < n ? x[i + k] : -INFINITY;
    vd w = vd_exp(vd_load(last) - t);
    vd_store(last, w);
    if (y) memcpy(y + i, last, (size_t)(n - i) * sizeof *y);
    return vd_sum(sum + w);
}

static void soft_row(double *y, int64_t n, double sink) {
    double top = top_of(y, n, sink), sum = sink == -INFINITY ? 0 : exp(sink - top);
    sum += weights_of(y, n, top, y);
    QN_TYPED_EACH
    for (int64_t i = 0; i < n; i++) y[i] = sum == 0 ? 0 : y[i] / sum;
}

static void log_row(const double *x, int64_t n, double *y) {
    double top = top_of(x, n, -INFINITY), sum = weights_of(x, n, top, NULL);
    double whole = sum == 0 ? 0 : top + log(sum); /* a row of nothing but -Inf stays as it is */
    QN_TYPED_EACH
    for (int64_t i = 0; i < n; i++) y[i] = x[i] - whole;
}

/* dx = scale y (g - <y, g>) */
static void back_row(const double *g, const double *y, int64_t n, double scale, double *dx) {
    vd sum = vd_zero();
    double mean = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) sum = vd_fma(vd_load(g + i), vd_load(y + i), sum);
    for (; i < n; i++) mean += g[i] * y[i];
    mean += vd_sum(sum);
    QN_TYPED_EACH
    for (i = 0; i < n; i++) dx[i] = scale * y[i] * (g[i] - mean);
}

/* ---- Ops */

static void forward(const qn_call *c, const qn_rows *it, double *y) {
    const qn_tensor *mask = c->n_src > 1 ? c->src[1] : NULL, *sinks = c->n_src > 2 ? c->src[2] : NULL;
    const double *x = (const double *)(const void *)qn_row(it, c->src[0]);
    if (c->op == QN_OP_log_soft_max) {
        log_row(x, it->n, y);
        return;
    }
    qn_attr_soft_max plain = qn_attr_soft_max_default();
    const qn_attr_soft_max *at = c->op == QN_OP_soft_max ? c->attr : &plain;
    int64_t head = it->rank >= 3 ? it->index[it->rank - 3] : 0;
    put_scores(x, mask ? qn_row_tiled(it, mask) : NULL, mask ? mask->dtype : 0, it->n, (double)at->scale,
               qn_alibi_slope((double)at->max_bias, qn_ne(c->src[0], 2), head), y);
    soft_row(y, it->n, sinks ? qn_get4(sinks, 0, 0, 0, head) : -INFINITY);
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *y = c->dst[0];
    int64_t rows = qn_tensor_count(y) / qn_ne(y, 0), end = qn_cpu_cut(rows, s->parts[0], part + 1);
    double scale = c->op == QN_OP_soft_max_back ? (double)((const qn_attr_soft_max_back *)c->attr)->scale : 1;
    qn_rows it;
    (void)phase;
    for (qn_rows_begin_at(&it, y->rank, y->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it)) {
        double *to = (double *)(void *)qn_row(&it, y);
        const double *in[2] = {(const double *)(const void *)qn_row(&it, c->src[0]), NULL};
        if (!s->n[0]) {
            forward(c, &it, to);
            continue;
        }
        in[1] = (const double *)(const void *)qn_row(&it, c->src[1]);
        back_row(in[0], in[1], it.n, scale, to);
    }
}

int QN_K(softmax_doubles)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *y = c->dst[0], *mask = c->op == QN_OP_soft_max && c->n_src > 1 ? c->src[1] : NULL;
    int back = c->op == QN_OP_soft_max_back || c->op == QN_OP_softmax_back;
    if (!is_row(y) || qn_tensor_count(y) == 0) return 0;
    for (int i = 0; i < 1 + back; i++)
        if (!is_row(c->src[i]) || c->src[i]->rank != y->rank) return 0;
    if (mask && (!qn_typed_can(mask->dtype) || (qn_ne(mask, 0) > 1 && qn_nb(mask, 0) != qn_dtype_bytes(mask->dtype)))) return 0;
    double n = (double)qn_ne(y, 0);
    s->n[0] = back;
    return qn_cpu_by_rows(s, "rows of f64", run, qn_tensor_count(y) / qn_ne(y, 0), 16 * n, (back ? 8 : 80) * n);
}
