/* Blocks of a matrix state that many tokens move on, turned: element by element of its rows, which are the lanes, so that no sum goes
 * across lanes. What gated_delta_net, delta_rule and rwkv_wkv7 share. */
#ifndef QN_CPU_K_STATE_TURNED_H
#define QN_CPU_K_STATE_TURNED_H

#include "cpu/k_state_rows.h"

enum {
    QN_TURNED_VECTORS = VF_N < 16 ? 4 : 2,
    QN_TURNED_ROWS = QN_TURNED_VECTORS * VF_N, /* of a block */
    QN_TURNED_CHAINS = 2,                      /* sums side by side */
    QN_TURNED_TOKENS = 8                       /* fewer do not pay for turning */
};

/* VF_N rows and as many elements at a time; rows that are not there are zero. */
static inline void qn_turn_in(const qn_state_rows *x, float *s) {
    for (int64_t i = 0; i < x->n; i += VF_N)
        for (int64_t r = 0; r < QN_TURNED_ROWS; r += VF_N) {
            vf square[VF_N];
            int some = (int)(x->n - i < VF_N ? x->n - i : VF_N);
            for (int64_t j = 0; j < VF_N; j++)
                square[j] = r + j >= x->rows ? vf_zero() : qn_state_load(x->from + (r + j) * x->from_apart + i, some);
            vf_turn(square);
            for (int j = 0; j < some; j++) vf_store(s + (i + j) * QN_TURNED_ROWS + r, square[j]);
        }
}
static inline void qn_turn_out(const qn_state_rows *x, const float *s) {
    for (int64_t i = 0; i < x->n; i += VF_N)
        for (int64_t r = 0; r < x->rows; r += VF_N) {
            vf square[VF_N];
            int some = (int)(x->n - i < VF_N ? x->n - i : VF_N);
            for (int j = 0; j < VF_N; j++) square[j] = j < some ? vf_load(s + (i + j) * QN_TURNED_ROWS + r) : vf_zero();
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

/* The products of the rows, n long, with a. */
QN_INLINE void qn_turned_dot(const float *s, int64_t n, const float *a, vf *out) {
    vf sum[QN_TURNED_CHAINS][QN_TURNED_VECTORS];
    memset(sum, 0, sizeof sum);
    for (int64_t i = 0; i < n; i += QN_TURNED_CHAINS)
        for (int c = 0; c < QN_TURNED_CHAINS && i + c < n; c++) {
            vf ai = vf_set1(a[i + c]);
            for (int w = 0; w < QN_TURNED_VECTORS; w++)
                sum[c][w] = vf_fma(vf_load(s + (i + c) * QN_TURNED_ROWS + w * VF_N), ai, sum[c][w]);
        }
    for (int w = 0; w < QN_TURNED_VECTORS; w++) out[w] = sum[0][w] + sum[1][w];
}

/* As qn_state_next. */
QN_INLINE void qn_turned_next(float *s, int64_t n, const qn_state_step *step, int each, int both, const vf *by, const vf *more,
                              vf *out) {
    vf sum[QN_TURNED_CHAINS][QN_TURNED_VECTORS], all = vf_set1(step->decay[0]);
    const float *decay = step->decay, *keys = step->keys, *extra = step->extra, *read = step->read;
    memset(sum, 0, sizeof sum);
    for (int64_t i = 0; i < n; i += QN_TURNED_CHAINS)
        for (int c = 0; c < QN_TURNED_CHAINS && i + c < n; c++) {
            vf di = each ? vf_set1(decay[i + c]) : all, ki = vf_set1(keys[i + c]), ri = vf_set1(read[i + c]);
            vf ei = both ? vf_set1(extra[i + c]) : vf_zero();
            for (int w = 0; w < QN_TURNED_VECTORS; w++) {
                float *at = s + (i + c) * QN_TURNED_ROWS + w * VF_N;
                vf next = vf_fma(by[w], ki, vf_load(at) * di);
                if (both) next = vf_fma(more[w], ei, next);
                vf_store(at, next);
                sum[c][w] = vf_fma(next, ri, sum[c][w]);
            }
        }
    for (int w = 0; w < QN_TURNED_VECTORS; w++) out[w] = sum[0][w] + sum[1][w];
}

#endif
