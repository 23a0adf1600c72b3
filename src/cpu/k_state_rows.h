/* Rows of a matrix state that one token moves on, as they lie: what gated_delta_net, delta_rule, rwkv_wkv7 and ssm_scan share. Lanes lie
 * along a row; the sums of VF_N rows are folded together, so that one comes out per lane. A state is read where it was and written
 * where it will be: nothing copies it first. */
#ifndef QN_CPU_K_STATE_ROWS_H
#define QN_CPU_K_STATE_ROWS_H

#include "cpu/k_lanes.h"
#include "cpu/k_past.h"
#include "cpu/simd/simd_turn.h"

enum {
    QN_ABREAST = 4, /* rows whose sums are taken side by side: they are chains, and what all rows need is loaded once for them */
    QN_STATE_ROWS = 32 /* rows that go through all tokens before the next ones: they stay in the first cache */
};

/* Some rows of n elements each, so many floats apart; `to` may be `from`. */
typedef struct qn_state_rows {
    const float *from;
    float *to;
    int64_t from_apart, to_apart, rows, n;
} qn_state_rows;

/* What becomes of a row s: decay s + by keys + more extra, where by and more are numbers of the row. */
typedef struct qn_state_step {
    const float *decay; /* one number for each element of a row; or one for all */
    const float *keys, *extra;
    const float *read; /* whose products with the new row are added up */
} qn_state_step;

QN_INLINE vf qn_state_load(const float *p, int n) { return n == VF_N ? vf_load(p) : vf_loadn(p, n); }
QN_INLINE void qn_state_store(float *p, vf v, int n) {
    if (n == VF_N) vf_store(p, v);
    else vf_storen(p, v, n);
}

/* Rows of tokens lie pages apart, where nothing fetches the next token's ahead. */
static inline void qn_state_ask(const float *row, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) __builtin_prefetch(row + i, 0, 3);
}

/* The sums of the products of a with rows that begin at from[0], from[1], ..; lanes [0, some) of element i on. */
QN_INLINE void qn_state_dot_lanes(const float *const *from, int rows, int64_t i, int some, const float *a, vf *sum) {
    vf ai = qn_state_load(a + i, some);
    QN_UNROLL
    for (int k = 0; k < rows; k++) sum[k] = vf_fma(qn_state_load(from[k] + i, some), ai, sum[k]);
}
QN_INLINE void qn_state_dot_rows(const qn_state_rows *x, int64_t r, int rows, const float *a, vf *out) {
    const float *from[QN_ABREAST];
    vf sum[QN_ABREAST];
    int64_t i = 0, n = x->n;
    QN_UNROLL
    for (int k = 0; k < rows; k++) {
        from[k] = x->from + (r + k) * x->from_apart;
        sum[k] = vf_zero();
    }
    for (; i + VF_N <= n; i += VF_N) qn_state_dot_lanes(from, rows, i, VF_N, a, sum);
    if (i < n) qn_state_dot_lanes(from, rows, i, (int)(n - i), a, sum);
    QN_UNROLL
    for (int k = 0; k < rows; k++) out[k] = sum[k];
}

/* The products of a with up to VF_N rows, from row `first` on; 0 in lanes without a row. */
QN_INLINE vf qn_state_dot(const qn_state_rows *x, int64_t first, const float *a) {
    vf sum[VF_N];
    int64_t r = 0, rows = x->rows - first < VF_N ? x->rows - first : VF_N;
    for (; r + QN_ABREAST <= rows; r += QN_ABREAST) qn_state_dot_rows(x, first + r, QN_ABREAST, a, sum + r);
    for (; r < rows; r++) qn_state_dot_rows(x, first + r, 1, a, sum + r);
    for (; r < VF_N; r++) sum[r] = vf_zero();
    return vf_sums(sum);
}

/* As above; each: decay has a number for each element; both: there is something extra; far: the rows come from a place of their own, and
 * lines are asked for ahead there and where they go, for a store waits for its line as a load does. */
QN_INLINE void qn_state_next_lanes(const float *const *from, float *const *to, int rows, int64_t i, int some,
                                   const qn_state_step *s, int each, int both, int far, const vf *by, const vf *more, vf *sum) {
    vf decay = each ? qn_state_load(s->decay + i, some) : vf_set1(s->decay[0]), keys = qn_state_load(s->keys + i, some);
    vf extra = both ? qn_state_load(s->extra + i, some) : vf_zero(), read = qn_state_load(s->read + i, some);
    QN_UNROLL
    for (int k = 0; k < rows; k++) {
        vf next = vf_fma(by[k], keys, qn_state_load(from[k] + i, some) * decay);
        if (both) next = vf_fma(more[k], extra, next);
        if (far) __builtin_prefetch((const char *)(from[k] + i) + QN_PAST_AHEAD, 0, 3);
        if (far) qn_far_ask((const char *)(to[k] + i) + QN_FAR_AHEAD);
        qn_state_store(to[k] + i, next, some);
        sum[k] = vf_fma(next, read, sum[k]);
    }
}
QN_INLINE void qn_state_next_rows(const qn_state_rows *x, int64_t r, int rows, qn_state_step s, int each, int both, int far,
                                  const float *by, const float *more, vf *out) {
    const float *from[QN_ABREAST];
    float *to[QN_ABREAST];
    vf sum[QN_ABREAST], b[QN_ABREAST], m[QN_ABREAST];
    int64_t i = 0, n = x->n;
    QN_UNROLL
    for (int k = 0; k < rows; k++) {
        from[k] = x->from + (r + k) * x->from_apart;
        to[k] = x->to + (r + k) * x->to_apart;
        sum[k] = vf_zero();
        b[k] = vf_set1(by[k]);
        if (both) m[k] = vf_set1(more[k]);
    }
    for (; i + VF_N <= n; i += VF_N) qn_state_next_lanes(from, to, rows, i, VF_N, &s, each, both, far, b, m, sum);
    if (i < n) qn_state_next_lanes(from, to, rows, i, (int)(n - i), &s, each, both, far, b, m, sum);
    QN_UNROLL
    for (int k = 0; k < rows; k++) out[k] = sum[k];
}

/* Moves up to VF_N rows on, from row `first` on; by and more in lanes, as the sums that come out. */
QN_INLINE vf qn_state_next(const qn_state_rows *x, int64_t first, const qn_state_step *s, int each, int both, vf by, vf more) {
    vf sum[VF_N];
    float b[VF_N], m[VF_N];
    int64_t r = 0, rows = x->rows - first < VF_N ? x->rows - first : VF_N;
    vf_store(b, by);
    if (both) vf_store(m, more);
    for (; r + QN_ABREAST <= rows; r += QN_ABREAST)
        if (x->from != x->to) qn_state_next_rows(x, first + r, QN_ABREAST, *s, each, both, 1, b + r, m + r, sum + r);
        else qn_state_next_rows(x, first + r, QN_ABREAST, *s, each, both, 0, b + r, m + r, sum + r);
    for (; r < rows; r++) qn_state_next_rows(x, first + r, 1, *s, each, both, 0, b + r, m + r, sum + r);
    for (; r < VF_N; r++) sum[r] = vf_zero();
    return vf_sums(sum);
}

#endif
