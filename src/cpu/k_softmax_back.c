/* Gradients of softmax over the last axis: soft_max_back, softmax_back, and of its mask soft_max_mask_back. */
#include "cpu/k_past.h"
#include "cpu/k_softmax.h"
#include "cpu/simd/simd_dot.h"
#include "op/alibi.h"
#include "op/op_mask.h"

/* RUN: elements whose sum is one of floats; NEAR: bytes of a row behind, that stay near when they are asked for. */
enum { RUN = 4096, NEAR = 1 << 15 };

/* <y, g> */
QN_INLINE vf mean_of(uint32_t dtype, const char *g, const char *y, int64_t n) {
    double sum = 0;
    for (int64_t first = 0; first < n; first += RUN) {
        int64_t i = first, end = n < first + RUN ? n : first + RUN;
        vf run = vf_zero(), other = run;
        for (; i + 2 * VF_N <= end; i += 2 * VF_N) {
            run = vf_fma(qn_lanes(dtype, g, i), qn_lanes(dtype, y, i), run);
            other = vf_fma(qn_lanes(dtype, g, i + VF_N), qn_lanes(dtype, y, i + VF_N), other);
        }
        for (; i < end; i += VF_N) run = vf_fma(qn_lanes_at(dtype, g, i, n), qn_lanes_at(dtype, y, i, n), run);
        sum += (double)vf_sum(run + other);
    }
    return vf_set1((float)sum);
}

/* The rows at hand, n elements of each; `past`: dx goes past the caches, by whole vectors of f32, and meanwhile the rows behind, which are
 * most often `stride` bytes away, are asked for. */
typedef struct back_rows {
    const char *g, *y;
    char *dx;
    int64_t n, stride;
    int past;
} back_rows;

/* dx = scale y (g - <y, g>) */
QN_INLINE void back_row(uint32_t dtype, const back_rows *r, float scale) {
    vf mean = mean_of(dtype, r->g, r->y, r->n), f = vf_set1(scale);
    int64_t i = 0, size = qn_float_bytes(dtype);
    for (; dtype == QN_DTYPE_F32 && r->past && i < r->n; i += VF_N) {
        __builtin_prefetch(r->g + r->stride + i * 4, 0, 3);
        __builtin_prefetch(r->y + r->stride + i * 4, 0, 3);
        qn_past_lanes(dtype, r->dx, i, f * qn_lanes(dtype, r->y, i) * (qn_lanes(dtype, r->g, i) - mean));
    }
    for (; i + VF_N <= r->n; i += VF_N) {
        qn_far_ask(r->dx + i * size + QN_FAR_AHEAD);
        qn_lanes_put(dtype, r->dx, i, f * qn_lanes(dtype, r->y, i) * (qn_lanes(dtype, r->g, i) - mean));
    }
    int some = (int)(r->n - i);
    if (some == 0) return;
    vf v = f * qn_lanes_some(dtype, r->y, i, some) * (qn_lanes_some(dtype, r->g, i, some) - mean);
    qn_lanes_put_some(dtype, r->dx, i, v, some);
}

/* The same added to a row of f32 that ends with a whole vector. */
QN_INLINE void back_row_onto(uint32_t dtype, float *sum, const char *g, const char *y, int64_t n, float scale) {
    vf mean = mean_of(dtype, g, y, n), f = vf_set1(scale);
    for (int64_t i = 0; i < n; i += VF_N) {
        vf v = f * qn_lanes_at(dtype, y, i, n) * (qn_lanes_at(dtype, g, i, n) - mean);
        vf_store(sum + i, vf_load(sum + i) + v);
    }
}

static void run_back(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    const qn_tensor *dx = c->dst[0];
    float scale = c->op == QN_OP_soft_max_back ? ((const qn_attr_soft_max_back *)c->attr)->scale : 1;
    int64_t n = qn_ne(dx, 0), bytes = n * 4;
    int past = dx->dtype == QN_DTYPE_F32 && bytes <= NEAR && qn_past_is(s, dx, c->src, 2);
    QN_SOFTMAX_ROWS(it, c->src[1]) {
        back_rows r = {qn_row(&it, c->src[0]), qn_row(&it, c->src[1]), qn_row(&it, dx), n, bytes, past};
        r.past = past && ((uintptr_t)r.dx | (uintptr_t)bytes) % sizeof(vf) == 0;
#define CALL(d) back_row(d, &r, scale)
        QN_BY_FLOAT(dx->dtype, CALL);
#undef CALL
    }
    if (past) qn_past_end();
}

int QN_K(soft_max_back)(const qn_call *c, qn_cpu_step *s) {
    if (QN_K(softmax_doubles)(c, s)) return 1;
    return qn_softmax_can(c, 2) && qn_softmax_by_rows(c, s, "soft_max_back", run_back);
}
int QN_K(softmax_back)(const qn_call *c, qn_cpu_step *s) {
    int axis = ((const qn_attr_softmax_back *)c->attr)->axis;
    if (!qn_softmax_is_last(c->src[0], axis)) return QN_K(softmax_down)(c, s, axis);
    if (QN_K(softmax_doubles)(c, s)) return 1;
    return qn_softmax_can(c, 2) && qn_softmax_by_rows(c, s, "softmax_back rows", run_back);
}

/* ---- soft_max_mask_back: a row of the mask has the gradients of all rows it was tiled over, in their order */

static int64_t line_of(const qn_tensor *t) { return (qn_ne(t, 0) + VF_N - 1) / VF_N * VF_N; }

static void run_mask_back(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    const qn_tensor *g = c->src[0], *y = c->src[1], *dmask = c->dst[0];
    double max_bias = (double)((const qn_attr_soft_max_mask_back *)c->attr)->max_bias;
    int64_t tiles = qn_op_mask_tiles(dmask, y), line = line_of(dmask), head;
    float *sum = (float *)c->workspace + part * line;
    QN_SOFTMAX_ROWS(it, dmask) {
        int used = it.rank < 2 || it.index[it.rank - 2] < qn_ne(y, 1);
        memset(sum, 0, (size_t)line * sizeof *sum);
        for (int64_t tile = 0; used && tile < tiles; tile++) {
            const char *up = qn_at(g, qn_op_mask_tile(&it, dmask, g, tile, &head));
            const char *share = qn_at(y, qn_op_mask_tile(&it, dmask, y, tile, &head));
            float slope = (float)qn_alibi_slope(max_bias, qn_ne(y, 2), head);
#define CALL(d) back_row_onto(d, sum, up, share, it.n, slope)
            QN_BY_FLOAT(y->dtype, CALL);
#undef CALL
        }
        for (int64_t i = 0; i < it.n; i += VF_N) qn_lanes_put_at(dmask->dtype, qn_row(&it, dmask), i, vf_load(sum + i), it.n);
    }
}

int QN_K(soft_max_mask_back)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *g = c->src[0], *y = c->src[1], *dmask = c->dst[0];
    if (qn_tensor_count(dmask) == 0 || qn_tensor_count(y) == 0 || g->dtype != y->dtype) return 0;
    if (!qn_lanes_rows(g) || !qn_lanes_rows(y) || !qn_lanes_rows(dmask)) return 0;
    double n = (double)qn_tensor_count(y), rows = (double)qn_tensor_count(dmask) / (double)qn_ne(dmask, 0);
    qn_cpu_by_rows(s, "soft_max_mask_back rows", run_mask_back, (int64_t)rows, 8.0 * n / rows, 8.0 * n / rows);
    s->workspace = (size_t)(s->parts[0] * line_of(dmask)) * sizeof(float);
    return 1;
}
