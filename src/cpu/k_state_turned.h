/* Blocks of a matrix state that many tokens move on, turned: element by element of its rows, which are the lanes, so that no sum goes
 * across lanes. The sums are those of k_state_rows.h, in its order, so that it does not show how many tokens come at once: every
 * VF_N-th element is a chain by itself, and chains are added as vf_sums adds lanes. Chains whose sums meet first go side by side, and
 * lie so. What gated_delta_net, delta_rule, rwkv_wkv7 and ssm_scan share. */
#ifndef QN_CPU_K_STATE_TURNED_H
#define QN_CPU_K_STATE_TURNED_H

#include "cpu/k_state_rows.h"

enum {
    QN_TURNED_VECTORS = VF_N < 16 ? 4 : 2,
    QN_TURNED_ROWS = QN_TURNED_VECTORS * VF_N,  /* of a block */
    QN_TURNED_CHAINS = 2,                       /* side by side: with more it is slower */
    QN_TURNED_GROUPS = VF_N / QN_TURNED_CHAINS, /* of chains, which are as many elements apart */
    QN_TURNED_TOKENS = 8                        /* fewer do not pay for turning */
};

/* Floats of a block whose rows have n elements; where a group begins, and where element i lies, of so many vectors in a row. */
static inline int64_t qn_turned_floats(int64_t n) { return (n + VF_N - 1) / VF_N * VF_N * QN_TURNED_ROWS; }
static inline int64_t qn_turned_group(int64_t group, int64_t vectors) {
    return group * vectors * QN_TURNED_CHAINS * QN_TURNED_ROWS;
}
static inline int64_t qn_turned_place(int64_t i, int64_t vectors) {
    int64_t lane = i % VF_N, in_group = i / VF_N * QN_TURNED_CHAINS + lane / QN_TURNED_GROUPS;
    return qn_turned_group(lane % QN_TURNED_GROUPS, vectors) + in_group * QN_TURNED_ROWS;
}

/* VF_N rows and as many elements at a time; rows that are not there are zero. */
static inline void qn_turn_in(const qn_state_rows *x, float *s) {
    const int64_t vectors = (x->n + VF_N - 1) / VF_N;
    for (int64_t i = 0; i < x->n; i += VF_N)
        for (int64_t r = 0; r < QN_TURNED_ROWS; r += VF_N) {
            vf square[VF_N];
            int some = (int)(x->n - i < VF_N ? x->n - i : VF_N);
            for (int64_t j = 0; j < VF_N; j++)
                square[j] = r + j >= x->rows ? vf_zero() : qn_state_load(x->from + (r + j) * x->from_apart + i, some);
            vf_turn(square);
            for (int j = 0; j < VF_N; j++)
                vf_store(s + qn_turned_place(i + j, vectors) + r, square[j]); /* zeros behind the last */
        }
}
static inline void qn_turn_out(const qn_state_rows *x, const float *s) {
    const int64_t vectors = (x->n + VF_N - 1) / VF_N;
    for (int64_t i = 0; i < x->n; i += VF_N)
        for (int64_t r = 0; r < x->rows; r += VF_N) {
            vf square[VF_N];
            int some = (int)(x->n - i < VF_N ? x->n - i : VF_N);
            for (int j = 0; j < VF_N; j++) square[j] = j < some ? vf_load(s + qn_turned_place(i + j, vectors) + r) : vf_zero();
            vf_turn(square);
            for (int64_t j = 0; j < VF_N && r + j < x->rows; j++)
                qn_state_store(x->to + (r + j) * x->to_apart + i, square[j], some);
        }
}

/* One number for each row, those behind the last zero; and back. */
static inline void qn_turned_take(vf *v, const float *row, int64_t n) {
    for (int w = 0; w < QN_TURNED_VECTORS; w++, row += VF_N, n -= VF_N)
        v[w] = n < 1 ? vf_zero() : qn_state_load(row, n < VF_N ? (int)n : VF_N);
}
static inline void qn_turned_give(float *row, const vf *v, int64_t n) {
    for (int w = 0; w < QN_TURNED_VECTORS && n > 0; w++, row += VF_N, n -= VF_N)
        qn_state_store(row, v[w], n < VF_N ? (int)n : VF_N);
}

/* Sums of n chains or groups, the first half to the other, until one is left: so vf_sums adds up lanes. */
QN_INLINE void qn_turned_sums(vf (*sum)[QN_TURNED_VECTORS], int n, vf *out) {
    QN_UNROLL
    for (int half = n / 2; half > 0; half /= 2) QN_UNROLL
    for (int k = 0; k < half; k++) QN_UNROLL
    for (int w = 0; w < QN_TURNED_VECTORS; w++) sum[k][w] += sum[k + half][w];
    QN_UNROLL
    for (int w = 0; w < QN_TURNED_VECTORS; w++) out[w] = sum[0][w];
}

/* Zero behind the last of n: a jump there would put all sums into memory. */
QN_INLINE vf qn_turned_at(const float *a, int64_t i, int64_t n) { return vf_set1(i < n ? a[i] : 0.0f); }

/* Element i and those a group's other chains have beside it, their products with a. */
QN_INLINE void qn_turned_dot_some(const float *s, int64_t n, const float *a, int64_t i, vf (*sum)[QN_TURNED_VECTORS]) {
    QN_UNROLL
    for (int c = 0; c < QN_TURNED_CHAINS; c++) {
        vf ai = qn_turned_at(a, i + c * QN_TURNED_GROUPS, n);
        QN_UNROLL
        for (int w = 0; w < QN_TURNED_VECTORS; w++) sum[c][w] = vf_fma(vf_load(s + c * QN_TURNED_ROWS + w * VF_N), ai, sum[c][w]);
    }
}

/* The products of the rows, n long, with a. */
QN_INLINE void qn_turned_dot(const float *s, int64_t n, const float *a, vf *out) {
    vf sums[QN_TURNED_GROUPS][QN_TURNED_VECTORS];
    const int64_t vectors = (n + VF_N - 1) / VF_N, whole = n / VF_N * VF_N;
    for (int64_t g = 0; g < QN_TURNED_GROUPS; g++) {
        const float *at = s + qn_turned_group(g, vectors);
        vf sum[QN_TURNED_CHAINS][QN_TURNED_VECTORS];
        int64_t i = 0;
        memset(sum, 0, sizeof sum);
        for (; i < whole; i += VF_N, at += QN_TURNED_CHAINS * QN_TURNED_ROWS) qn_turned_dot_some(at, INT64_MAX, a, g + i, sum);
        if (i < n) qn_turned_dot_some(at, n, a, g + i, sum);
        qn_turned_sums(sum, QN_TURNED_CHAINS, sums[g]);
    }
    qn_turned_sums(sums, QN_TURNED_GROUPS, out);
}

/* As qn_turned_dot_some, for qn_turned_next. */
QN_INLINE void qn_turned_next_some(float *s, int64_t n, const qn_state_step *step, int64_t first, int each, int both,
                                   const vf *by, const vf *more, vf (*sum)[QN_TURNED_VECTORS]) {
    QN_UNROLL
    for (int c = 0; c < QN_TURNED_CHAINS; c++) {
        const int64_t i = first + c * QN_TURNED_GROUPS;
        vf di = each ? qn_turned_at(step->decay, i, n) : vf_set1(step->decay[0]), ki = qn_turned_at(step->keys, i, n);
        vf ei = both ? qn_turned_at(step->extra, i, n) : vf_zero(), ri = qn_turned_at(step->read, i, n);
        QN_UNROLL
        for (int w = 0; w < QN_TURNED_VECTORS; w++) {
            float *at = s + c * QN_TURNED_ROWS + w * VF_N;
            vf next = vf_fma(by[w], ki, vf_load(at) * di);
            if (both) next = vf_fma(more[w], ei, next);
            vf_store(at, next);
            sum[c][w] = vf_fma(next, ri, sum[c][w]);
        }
    }
}

/* As qn_state_next. */
QN_INLINE void qn_turned_next(float *s, int64_t n, const qn_state_step *step, int each, int both, const vf *by, const vf *more,
                              vf *out) {
    vf sums[QN_TURNED_GROUPS][QN_TURNED_VECTORS];
    const int64_t vectors = (n + VF_N - 1) / VF_N, whole = n / VF_N * VF_N;
    const qn_state_step x = *step;
    for (int64_t g = 0; g < QN_TURNED_GROUPS; g++) {
        float *at = s + qn_turned_group(g, vectors);
        vf sum[QN_TURNED_CHAINS][QN_TURNED_VECTORS];
        int64_t i = 0;
        memset(sum, 0, sizeof sum);
        for (; i < whole; i += VF_N, at += QN_TURNED_CHAINS * QN_TURNED_ROWS)
            qn_turned_next_some(at, INT64_MAX, &x, g + i, each, both, by, more, sum);
        if (i < n) qn_turned_next_some(at, n, &x, g + i, each, both, by, more, sum);
        qn_turned_sums(sum, QN_TURNED_CHAINS, sums[g]);
    }
    qn_turned_sums(sums, QN_TURNED_GROUPS, out);
}

#endif
