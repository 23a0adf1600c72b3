/* The products of kd_dots.c for a few rows at a time by instructions that multiply two rows with two: twice the products of a dot
 * instruction. Sums come out by pairs, and by pairs they stay from the first group of a chunk to the last, integers and floats in
 * registers: only a chunk's beginning and end put them in order. What happens to an element is what happens everywhere else, so the bits
 * are the same. Weights and their scales are paired once for all rows that meet them, rows on the way. */
#include "cpu/kd_quant.h"
#include "cpu/simd/simd_square.h"

#define INLINE static inline __attribute__((always_inline))

/* A tile has two pairs of rows and two vectors of lanes: sixteen sums, and room for what is multiplied. */
enum { ROWS = QN_TILE_ROWS, ROW_PAIRS = ROWS / 2, VECTORS = 2, SIDE = 2 * VECTORS, TILES = QN_PANEL_VECTORS / VECTORS, DEEP = 8 };

/* What a tile takes of a chunk of a panel, by pairs of its rows, of which a vector has one or more: codes in steps of eight elements. */
typedef struct paired {
    vu codes[QN_CHUNK / DEEP][SIDE];
    vf scale[QN_CHUNK / 16][SIDE], least[QN_CHUNK / 16][SIDE];
} paired;

/* Bytes less the offset: 128 more keeps them from borrowing of each other. */
INLINE vu less_offset(vu codes, uint32_t offsets) { return ((codes ^ 0x80808080u) - offsets) ^ 0x80808080u; }

/* From lane `lane` of the panel on. */
static void pair_weights(const qn_quant_chunk *w, int lane, int count, int groups, int offset, int least, paired *to) {
    uint32_t offsets = (uint32_t)offset * 0x01010101u;
    for (int v = 0; v < VECTORS; v++, lane += VF_N) {
        for (int s = 0; s < count / DEEP; s++) {
            vu a = less_offset(vu_load(w->codes[2 * s] + lane), offsets),
               b = less_offset(vu_load(w->codes[2 * s + 1] + lane), offsets);
            to->codes[s][2 * v] = vu_pair_low(a, b);
            to->codes[s][2 * v + 1] = vu_pair_high(a, b);
        }
        for (int g = 0; g < groups; g++) {
            vf scale = vf_load(w->scale[g] + lane), lowest = least ? vf_load(w->least[g] + lane) : scale;
            to->scale[g][2 * v] = vf_pair_low(scale, scale);
            to->scale[g][2 * v + 1] = vf_pair_high(scale, scale);
            to->least[g][2 * v] = vf_pair_low(lowest, lowest);
            to->least[g][2 * v + 1] = vf_pair_high(lowest, lowest);
        }
    }
}

/* Integer sums of a group: its codes, and its bytes of each row. */
INLINE void multiply(const int8_t *const q[ROWS], const vu (*codes)[SIDE], int group, vi whole[ROW_PAIRS][SIDE]) {
    QN_UNROLL
    for (int j = 0; j < ROW_PAIRS; j++) {
        QN_UNROLL
        for (int l = 0; l < SIDE; l++) whole[j][l] = vi_sum_start(0);
    }
    QN_UNROLL
    for (int s = 0; s < group / DEEP; s += 2) {
        vu rows[ROW_PAIRS][2];
        QN_UNROLL
        for (int j = 0; j < ROW_PAIRS; j++) vu_pair_rows(q[2 * j] + s * DEEP, q[2 * j + 1] + s * DEEP, rows[j]);
        QN_UNROLL
        for (int i = 0; i < 2; i++) {
            QN_UNROLL
            for (int l = 0; l < SIDE; l++) {
                vu lanes = codes[s + i][l];
                QN_UNROLL
                for (int j = 0; j < ROW_PAIRS; j++) whole[j][l] = vi_dot_pairs(whole[j][l], rows[j][i], lanes);
            }
        }
    }
}

INLINE void tile(const qn_quant_row *const *x, const paired *w, int64_t groups, int group, int least, float *sums, int step) {
    vf sum[ROW_PAIRS][SIDE];
    const int8_t *q[ROWS];
    QN_UNROLL
    for (int j = 0; j < ROWS; j++) q[j] = x[j]->q;
    QN_UNROLL
    for (int i = 0; i < ROW_PAIRS * VECTORS; i++) {
        int j = i / VECTORS, v = i % VECTORS;
        vf a = vf_load(sums + 2 * j * step + v * VF_N), b = vf_load(sums + (2 * j + 1) * step + v * VF_N);
        sum[j][2 * v] = vf_pair_low(a, b);
        sum[j][2 * v + 1] = vf_pair_high(a, b);
    }
    const vu(*codes)[SIDE] = w->codes;
    for (int64_t g = 0; g < groups; g++, codes += group / DEEP) {
        vi whole[ROW_PAIRS][SIDE];
        multiply(q, codes, group, whole);
        QN_UNROLL
        for (int j = 0; j < ROW_PAIRS; j++) {
            const qn_quant_row *a = x[2 * j], *b = x[2 * j + 1];
            vf d = vf_pair_of(a->d + g * group / 32, b->d + g * group / 32);
            QN_UNROLL
            for (int l = 0; l < SIDE; l++) {
                sum[j][l] = vf_fma_stay(vf_from_sum(whole[j][l]), w->scale[g][l] * d, sum[j][l]);
                if (least) sum[j][l] = vf_fma_stay(w->least[g][l], vf_pair_of(a->total + g, b->total + g), sum[j][l]);
            }
        }
        QN_UNROLL
        for (int j = 0; j < ROWS; j++) q[j] += group;
    }
    QN_UNROLL
    for (int i = 0; i < ROW_PAIRS * VECTORS; i++) {
        int j = i / VECTORS, v = i % VECTORS;
        vf_store(sums + 2 * j * step + v * VF_N, vf_of_first(sum[j][2 * v], sum[j][2 * v + 1]));
        vf_store(sums + (2 * j + 1) * step + v * VF_N, vf_of_second(sum[j][2 * v], sum[j][2 * v + 1]));
    }
}

INLINE void tiles(const qn_quant_row *const *x, const paired *w, int n, int groups, int group, int least, float *sums, int step) {
    for (int j = 0; j < n; j += ROWS, x += ROWS, sums += ROWS * (int64_t)step)
        for (int t = 0; t < TILES; t++) tile(x, w + t, groups, group, least, sums + t * VECTORS * VF_N, step);
}

void qn_quant_tiles(const qn_quant_type *t, const qn_quant_chunk *w, const qn_quant_row *const *x, int n, int count, float *sums,
                    int step) {
    paired pairs[TILES];
    int groups = count / t->group;
    for (int i = 0; i < TILES; i++) pair_weights(w, i * VECTORS * VF_N, count, groups, t->offset, t->has_least, pairs + i);
    if (t->group == 32 && t->has_least) tiles(x, pairs, n, groups, 32, 1, sums, step);
    else if (t->group == 32) tiles(x, pairs, n, groups, 32, 0, sums, step);
    else if (t->has_least) tiles(x, pairs, n, groups, 16, 1, sums, step);
    else tiles(x, pairs, n, groups, 16, 0, sums, step);
}
