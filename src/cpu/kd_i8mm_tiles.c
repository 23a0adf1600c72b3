/* The products of kd_dots.c for a few rows at a time by instructions that multiply two rows with two: twice the products of a dot
 * instruction. Sums come out by pairs, and by pairs they stay from the first group of a chunk to the last, integers and floats in
 * registers: only a chunk's beginning and end put them in order. What happens to an element is what happens everywhere else, so the bits
 * are the same. Weights are paired once for all rows that meet them, rows once for all the panels abreast. */
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

/* And of its rows: eight bytes of one and eight of the other, which serve every quarter of a register. Scales are paired by fours, also
 * where fewer are left. */
typedef struct row_pairs {
    int8_t q[QN_CHUNK / DEEP][ROW_PAIRS][2 * DEEP];
    float d[QN_CHUNK / 32][ROW_PAIRS][4], total[QN_CHUNK / 16][ROW_PAIRS][4];
} row_pairs;

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

static void pair_rows(const qn_quant_row *const *x, int count, int group, int least, row_pairs *to) {
    for (int j = 0; j < ROW_PAIRS; j++) {
        const qn_quant_row *a = x[2 * j], *b = x[2 * j + 1];
        for (int s = 0; s < count / DEEP; s += 4) { /* a group of 32 at the least */
            vu_pair_rows(a->q + s * DEEP, b->q + s * DEEP, to->q[s][j], to->q[s + 1][j]);
            vu_pair_rows(a->q + (s + 2) * DEEP, b->q + (s + 2) * DEEP, to->q[s + 2][j], to->q[s + 3][j]);
        }
        for (int g = 0; g < count / 32; g += 4) vf_pair_rows(a->d + g, b->d + g, to->d[g][j], ROW_PAIRS * 4);
        for (int g = 0; least && g < count / group; g += 4) vf_pair_rows(a->total + g, b->total + g, to->total[g][j], ROW_PAIRS * 4);
    }
}

/* Integer sums of a group. */
INLINE void multiply(const int8_t (*q)[ROW_PAIRS][2 * DEEP], const vu (*codes)[SIDE], int group, vi whole[ROW_PAIRS][SIDE]) {
    QN_UNROLL
    for (int j = 0; j < ROW_PAIRS; j++) {
        QN_UNROLL
        for (int l = 0; l < SIDE; l++) whole[j][l] = vi_sum_start(0);
    }
    QN_UNROLL
    for (int s = 0; s < group / DEEP; s++) {
        vu rows[ROW_PAIRS];
        QN_UNROLL
        for (int j = 0; j < ROW_PAIRS; j++) rows[j] = vu_pair_load(q[s][j]);
        QN_UNROLL
        for (int l = 0; l < SIDE; l++) {
            vu lanes = codes[s][l];
            QN_UNROLL
            for (int j = 0; j < ROW_PAIRS; j++) whole[j][l] = vi_dot_pairs(whole[j][l], rows[j], lanes);
        }
    }
}

INLINE void tile(const row_pairs *x, const paired *w, int groups, int group, int least, float *sums, int step) {
    vf sum[ROW_PAIRS][SIDE];
    QN_UNROLL
    for (int i = 0; i < ROW_PAIRS * VECTORS; i++) {
        int j = i / VECTORS, v = i % VECTORS;
        vf a = vf_load(sums + 2 * j * step + v * VF_N), b = vf_load(sums + (2 * j + 1) * step + v * VF_N);
        sum[j][2 * v] = vf_pair_low(a, b);
        sum[j][2 * v + 1] = vf_pair_high(a, b);
    }
    int64_t g = 0;
    do { /* there is one: a test before it has compilers keep each sum twice */
        vi whole[ROW_PAIRS][SIDE];
        multiply(x->q + g * group / DEEP, w->codes + g * group / DEEP, group, whole);
        QN_UNROLL
        for (int j = 0; j < ROW_PAIRS; j++) {
            vf d = vf_pair_load(x->d[g * group / 32][j]), total = least ? vf_pair_load(x->total[g][j]) : d;
            QN_UNROLL
            for (int l = 0; l < SIDE; l++) {
                sum[j][l] = vf_fma_stay(vf_from_sum(whole[j][l]), w->scale[g][l] * d, sum[j][l]);
                if (least) sum[j][l] = vf_fma_stay(w->least[g][l], total, sum[j][l]);
            }
        }
    } while (++g < groups);
    QN_UNROLL
    for (int i = 0; i < ROW_PAIRS * VECTORS; i++) {
        int j = i / VECTORS, v = i % VECTORS;
        vf_store(sums + 2 * j * step + v * VF_N, vf_of_first(sum[j][2 * v], sum[j][2 * v + 1]));
        vf_store(sums + (2 * j + 1) * step + v * VF_N, vf_of_second(sum[j][2 * v], sum[j][2 * v + 1]));
    }
}

typedef struct task {
    const paired *w;
    const qn_quant_row *const *x;
    int tiles, n, count;
    float *sums;
    int step;
} task;

INLINE void run(const task *t, int group, int least) {
    row_pairs x;
    for (int j = 0; j < t->n; j += ROWS) {
        pair_rows(t->x + j, t->count, group, least, &x);
        for (int i = 0; i < t->tiles; i++)
            tile(&x, t->w + i, t->count / group, group, least, t->sums + j * (int64_t)t->step + i * VECTORS * VF_N, t->step);
    }
}

void qn_quant_tiles(const qn_quant_type *t, const qn_quant_chunk *w, int panels, const qn_quant_row *const *x, int n, int count,
                    float *sums, int step) {
    paired pairs[QN_TILE_PANELS * TILES];
    task all = {.w = pairs, .x = x, .tiles = panels * TILES, .n = n, .count = count, .sums = sums, .step = step};
    for (int i = 0; i < all.tiles; i++)
        pair_weights(w + i / TILES, i % TILES * VECTORS * VF_N, count, count / t->group, t->offset, t->has_least, pairs + i);
    if (t->group == 32 && t->has_least) run(&all, 32, 1);
    else if (t->group == 32) run(&all, 32, 0);
    else if (t->has_least) run(&all, 16, 1);
    else run(&all, 16, 0);
}
