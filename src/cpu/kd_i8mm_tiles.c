/* The products of kd_dots.c for a few rows at a time by instructions that multiply two rows with two: twice the products of a dot
 * instruction. The integer sums of a group come out by pairs, are put in order and become floats as everywhere else, so the bits are
 * the same. Weights are paired once for all rows that meet them, rows on the way. */
#include "cpu/kd_quant.h"
#include "cpu/simd/simd_square.h"

#define INLINE static inline __attribute__((always_inline))

enum { ROWS = QN_TILE_ROWS, DEEP = 8, LANE_PAIRS = 2 * QN_PANEL_VECTORS, ROW_PAIRS = ROWS / 2 };

/* A chunk of a panel: step by step of eight elements, by pairs of its rows, of which a vector has one or more. */
typedef struct paired {
    vu at[QN_CHUNK / DEEP][LANE_PAIRS];
} paired;

static void pair_weights(const qn_quant_chunk *w, int count, paired *to) {
    for (int s = 0; s < count / DEEP; s++) {
        QN_UNROLL
        for (int v = 0; v < QN_PANEL_VECTORS; v++) {
            vu a = vu_load(w->codes[2 * s] + v * VF_N), b = vu_load(w->codes[2 * s + 1] + v * VF_N);
            to->at[s][2 * v] = vu_pair_low(a, b);
            to->at[s][2 * v + 1] = vu_pair_high(a, b);
        }
    }
}

/* Integer sums of group g. */
INLINE void multiply(const qn_quant_row *const *x, const paired *w, int g, int group, int offset, vi sum[ROW_PAIRS][LANE_PAIRS]) {
    QN_UNROLL
    for (int q = 0; q < ROW_PAIRS; q++) {
        vi start = vi_pair_start(-offset * x[2 * q]->sum[g], -offset * x[2 * q + 1]->sum[g]);
        QN_UNROLL
        for (int l = 0; l < LANE_PAIRS; l++) sum[q][l] = start;
    }
    QN_UNROLL
    for (int s = 0; s < group / DEEP; s += 2) {
        vu rows[ROW_PAIRS][2];
        int at = g * group + s * DEEP;
        QN_UNROLL
        for (int q = 0; q < ROW_PAIRS; q++) vu_pair_rows(x[2 * q]->q + at, x[2 * q + 1]->q + at, rows[q]);
        QN_UNROLL
        for (int i = 0; i < 2; i++) {
            QN_UNROLL
            for (int l = 0; l < LANE_PAIRS; l++) {
                vu lanes = w->at[at / DEEP + i][l];
                QN_UNROLL
                for (int q = 0; q < ROW_PAIRS; q++) sum[q][l] = vi_dot_pairs(sum[q][l], rows[q][i], lanes);
            }
        }
    }
}

/* Vector v of the sums of one row: what group g adds to it. */
INLINE void add_group(const qn_quant_row *x, vi whole, vf scale, vf lowest, int g, int group, int least, float *sums) {
    vf sum = vf_fma(vf_from_i(whole), scale * vf_set1(x->d[g * group / 32]), vf_load(sums));
    vf_store(sums, least ? vf_fma(lowest, vf_set1(x->total[g]), sum) : sum);
}

INLINE void tile(const qn_quant_row *const *x, const qn_quant_chunk *w, const paired *pairs, int groups, int offset, int group,
                 int least, float *sums, int step) {
    for (int g = 0; g < groups; g++) {
        vi sum[ROW_PAIRS][LANE_PAIRS];
        multiply(x, pairs, g, group, offset, sum);
        QN_UNROLL
        for (int v = 0; v < QN_PANEL_VECTORS; v++) {
            vf scale = vf_load(w->scale[g] + v * VF_N), lowest = least ? vf_load(w->least[g] + v * VF_N) : scale;
            QN_UNROLL
            for (int q = 0; q < ROW_PAIRS; q++) {
                vi a = sum[q][2 * v], b = sum[q][2 * v + 1];
                float *to = sums + 2 * q * step + v * VF_N;
                add_group(x[2 * q], vi_of_first(a, b), scale, lowest, g, group, least, to);
                add_group(x[2 * q + 1], vi_of_second(a, b), scale, lowest, g, group, least, to + step);
            }
        }
    }
}

void qn_quant_tiles(const qn_quant_type *t, const qn_quant_chunk *w, const qn_quant_row *const *x, int n, int count, float *sums,
                    int step) {
    paired pairs;
    int groups = count / t->group;
    pair_weights(w, count, &pairs);
    for (int j = 0; j < n; j += ROWS, x += ROWS, sums += ROWS * (int64_t)step) {
        if (t->group == 32 && t->has_least) tile(x, w, &pairs, groups, t->offset, 32, 1, sums, step);
        else if (t->group == 32) tile(x, w, &pairs, groups, t->offset, 32, 0, sums, step);
        else if (t->has_least) tile(x, w, &pairs, groups, t->offset, 16, 1, sums, step);
        else tile(x, w, &pairs, groups, t->offset, 16, 0, sums, step);
    }
}
