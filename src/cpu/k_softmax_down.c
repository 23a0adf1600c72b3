/* softmax and its gradient along an axis that is not the last: neighbours of the axes behind it are lanes, and the axis is walked down
 * in each of them. */
#include <math.h>

#include "cpu/k_softmax.h"
#include "cpu/simd/simd_math.h"

/* WIDE: vectors that go down together, so that a row gives whole pages of lines; RUN: so many terms are added before their sum is added
 * to the others', which keeps its rounding small. */
enum { WIDE = 4, RUN = 64 };

/* A dense tensor as axes before, the axis, and neighbours behind. */
typedef struct columns {
    int64_t before, length, width, step; /* step: bytes from one row to the next */
} columns;

static columns columns_of(const qn_tensor *t, int axis) {
    columns k = {1, 1, 1, qn_dtype_bytes(t->dtype)};
    axis = axis < 0 ? axis + t->rank : axis;
    for (int i = 0; i < t->rank; i++) *(i < axis ? &k.before : i == axis ? &k.length : &k.width) *= t->shape[i];
    k.step *= k.width;
    return k;
}

static int64_t units_of(const columns *k) { return k->before * ((k->width + WIDE * VF_N - 1) / (WIDE * VF_N)); }

QN_INLINE vf lanes(uint32_t dtype, const char *row, int64_t i, int64_t width, int whole) {
    return whole ? qn_lanes(dtype, row, i) : qn_lanes_at(dtype, row, i, width);
}
QN_INLINE void put(uint32_t dtype, char *row, int64_t i, vf v, int64_t width, int whole) {
    if (whole) qn_lanes_put(dtype, row, i, v);
    else qn_lanes_put_at(dtype, row, i, v, width);
}

/* The highest of each lane; 0 where there is nothing but -Inf, so that weights are 0 and not of -Inf + Inf. */
QN_INLINE void tops_of(uint32_t dtype, const char *x, const columns *k, int64_t at, int n, int whole, vf *top) {
    vf none = vf_set1(-INFINITY);
    for (int v = 0; v < n; v++) top[v] = none;
    for (int64_t i = 0; i < k->length; i++)
        for (int v = 0; v < n; v++) top[v] = vf_max(lanes(dtype, x + i * k->step, at + v * VF_N, k->width, whole), top[v]);
    for (int v = 0; v < n; v++) top[v] = vf_select(top[v] == none, vf_zero(), top[v]);
}

/* n vectors from lane `at` on. f32 keeps the exponentials where the results will be; narrower dtypes take them twice. */
QN_INLINE void soft_down(uint32_t dtype, const char *x, char *y, const columns *k, int64_t at, int n, int whole) {
    vf top[WIDE], sum[WIDE], share[WIDE];
    int keeps = dtype == QN_DTYPE_F32;
    tops_of(dtype, x, k, at, n, whole, top);
    for (int v = 0; v < n; v++) sum[v] = vf_zero();
    for (int64_t first = 0; first < k->length; first += RUN) {
        vf run[WIDE];
        for (int v = 0; v < n; v++) run[v] = vf_zero();
        for (int64_t i = first; i < k->length && i < first + RUN; i++)
            for (int v = 0; v < n; v++) {
                vf e = vf_exp_below(lanes(dtype, x + i * k->step, at + v * VF_N, k->width, whole) - top[v]);
                if (keeps) put(dtype, y + i * k->step, at + v * VF_N, e, k->width, whole);
                run[v] += e;
            }
        for (int v = 0; v < n; v++) sum[v] += run[v];
    }
    for (int v = 0; v < n; v++) share[v] = vf_select(sum[v] == vf_zero(), vf_zero(), vf_set1(1) / sum[v]);
    for (int64_t i = 0; i < k->length; i++)
        for (int v = 0; v < n; v++) {
            vf e = lanes(dtype, (keeps ? y : x) + i * k->step, at + v * VF_N, k->width, whole);
            put(dtype, y + i * k->step, at + v * VF_N, (keeps ? e : vf_exp_below(e - top[v])) * share[v], k->width, whole);
        }
}

/* dx = y (g - sum of g y) */
QN_INLINE void back_down(uint32_t dtype, const char *g, const char *y, char *dx, const columns *k, int64_t at, int n, int whole) {
    vf sum[WIDE];
    for (int v = 0; v < n; v++) sum[v] = vf_zero();
    for (int64_t first = 0; first < k->length; first += RUN) {
        vf run[WIDE];
        for (int v = 0; v < n; v++) run[v] = vf_zero();
        for (int64_t i = first; i < k->length && i < first + RUN; i++)
            for (int v = 0; v < n; v++) {
                int64_t lane = at + v * VF_N;
                vf a = lanes(dtype, g + i * k->step, lane, k->width, whole),
                   b = lanes(dtype, y + i * k->step, lane, k->width, whole);
                run[v] = vf_fma(a, b, run[v]);
            }
        for (int v = 0; v < n; v++) sum[v] += run[v];
    }
    for (int64_t i = 0; i < k->length; i++)
        for (int v = 0; v < n; v++) {
            int64_t lane = at + v * VF_N;
            vf a = lanes(dtype, g + i * k->step, lane, k->width, whole), b = lanes(dtype, y + i * k->step, lane, k->width, whole);
            put(dtype, dx + i * k->step, lane, b * (a - sum[v]), k->width, whole);
        }
}

/* A unit is WIDE vectors, or at the end of a row those that are left, one by one. */
QN_INLINE void soft_unit(uint32_t dtype, const char *x, char *y, const columns *k, int64_t at) {
    if (at + WIDE * VF_N <= k->width) soft_down(dtype, x, y, k, at, WIDE, 1);
    else
        for (; at < k->width; at += VF_N) soft_down(dtype, x, y, k, at, 1, 0);
}
QN_INLINE void back_unit(uint32_t dtype, const char *g, const char *y, char *dx, const columns *k, int64_t at) {
    if (at + WIDE * VF_N <= k->width) back_down(dtype, g, y, dx, k, at, WIDE, 1);
    else
        for (; at < k->width; at += VF_N) back_down(dtype, g, y, dx, k, at, 1, 0);
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    columns k = columns_of(c->dst[0], (int)s->n[0]);
    int64_t units = units_of(&k), per = units / k.before, end = qn_cpu_cut(units, s->parts[0], part + 1);
    for (int64_t u = qn_cpu_cut(units, s->parts[0], part); u < end; u++) {
        int64_t block = u / per * k.length * k.step, at = u % per * WIDE * VF_N;
        const char *a = qn_at(c->src[0], block);
        char *to = qn_at(c->dst[0], block);
#define SOFT(d) soft_unit(d, a, to, &k, at)
#define BACK(d) back_unit(d, a, qn_at(c->src[1], block), to, &k, at)
        if (c->op == QN_OP_softmax) QN_BY_FLOAT(c->dst[0]->dtype, SOFT);
        else QN_BY_FLOAT(c->dst[0]->dtype, BACK);
#undef SOFT
#undef BACK
    }
}

/* For softmax and softmax_back, which have this axis. */
int QN_K(softmax_down)(const qn_call *c, qn_cpu_step *s, int axis) {
    const qn_tensor *y = c->dst[0];
    if (!qn_lanes_float(y->dtype) || !qn_cpu_is_dense(y) || qn_tensor_count(y) == 0) return 0;
    for (int i = 0; i < c->n_src; i++)
        if (c->src[i]->dtype != y->dtype || !qn_cpu_is_dense(c->src[i])) return 0;
    columns k = columns_of(y, axis);
    s->n[0] = axis;
    double each = (double)qn_tensor_count(y) / (double)units_of(&k);
    return qn_cpu_by_rows(s, "softmax down", run, units_of(&k), 8 * each, 40 * each);
}
