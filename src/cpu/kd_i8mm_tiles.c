/* The products of kd_dots.c for a few rows at a time by instructions that multiply two rows with two: twice the products of a dot
 * instruction. Sums come out by pairs, and by pairs they stay from the first chunk to the last: the first begins with zeros, and behind the
 * last they are put in order. What happens to an element is what happens everywhere else, so the bits are the same. Weights are paired
 * once for all rows that meet them, rows once for all the panels abreast. */
#include "cpu/kd_quant.h"
#include "cpu/simd/simd_square.h"

#define INLINE static inline __attribute__((always_inline))

/* A tile has two pairs of rows and two vectors of lanes: sixteen sums, and room for what is multiplied. */
enum { ROWS = QN_TILE_ROWS, ROW_PAIRS = ROWS / 2, VECTORS = 2, SIDE = 2 * VECTORS, TILES = QN_PANEL_VECTORS / VECTORS };
enum { DEEP = 8, BLOCK = 32 };

/* What a tile takes of a chunk of a panel, by pairs of its rows, of which a vector has one or more: codes in steps of eight elements. */
typedef struct paired {
    vu codes[QN_CHUNK / DEEP][SIDE];
    vf scale[QN_CHUNK / 16][SIDE], least[QN_CHUNK / 16][SIDE];
} paired;

/* And of its rows: eight bytes of one and eight of the other, which serve every quarter of a register. */
typedef struct row_pairs {
    int8_t q[QN_CHUNK / DEEP][ROW_PAIRS][2 * DEEP];
    float d[QN_CHUNK / BLOCK][ROW_PAIRS][4], total[QN_CHUNK / 16][ROW_PAIRS][4];
} row_pairs;

/* From lane `lane` of the panel on. */
static void pair_weights(const qn_quant_chunk *w, int lane, int count, int groups, int offset, int least, paired *to) {
    vu offsets = vu_set1((uint32_t)offset * 0x01010101u);
    for (int v = 0; v < VECTORS; v++, lane += VF_N) {
        for (int s = 0; s < count / DEEP; s++) {
            vu a = vu_minus_bytes(vu_load(w->codes[2 * s] + lane), offsets);
            vu b = vu_minus_bytes(vu_load(w->codes[2 * s + 1] + lane), offsets);
            to->codes[s][2 * v] = vu_pair_low(a, b);
            to->codes[s][2 * v + 1] = vu_pair_high(a, b);
        }
        for (int g = 0; g < groups; g++) {
            vf scale = vf_load(w->scale[g] + lane);
            to->scale[g][2 * v] = vf_pair_low(scale, scale);
            to->scale[g][2 * v + 1] = vf_pair_high(scale, scale);
            if (!least) continue;
            vf lowest = vf_load(w->least[g] + lane);
            to->least[g][2 * v] = vf_pair_low(lowest, lowest);
            to->least[g][2 * v + 1] = vf_pair_high(lowest, lowest);
        }
    }
}

/* Block b of 32 elements of some rows. */
INLINE void pair_block(const qn_quant_row *const *x, uint64_t b, int group, int least, row_pairs *to) {
    int8_t(*q)[ROW_PAIRS][2 * DEEP] = to->q + b * BLOCK / DEEP;
    QN_UNROLL
    for (int j = 0; j < ROW_PAIRS; j++) {
        const qn_quant_row *first = x[2 * j], *second = x[2 * j + 1];
        const int8_t *from = first->q + b * BLOCK, *other = second->q + b * BLOCK;
        vu_pair_rows(from, other, q[0][j], q[1][j]);
        vu_pair_rows(from + 2 * DEEP, other + 2 * DEEP, q[2][j], q[3][j]);
        vf_pair_rows(first->d + b, second->d + b, to->d[b][j]);
        for (int i = 0; least && i < BLOCK / group; i++) {
            uint64_t g = b * (uint64_t)(BLOCK / group) + (uint64_t)i;
            vf_pair_rows(first->total + g, second->total + g, to->total[g][j]);
        }
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

/* Where vector i of a tile's sums waits for the next chunk: two rows' places for a vector of lanes take what the pair has of it. */
INLINE float *place(float *sums, int step, int i) { return sums + (i / SIDE * 2 + i % 2) * step + i % SIDE / 2 * VF_N; }

/* While it multiplies, rows that come `next`, if any, are paired: in the time that takes by itself the products would stand still. */
INLINE void tile(const row_pairs *x, const paired *w, uint64_t groups, int group, int least, float *sums, int step,
                 const qn_quant_row *const *next, row_pairs *to) {
    vf sum[ROW_PAIRS][SIDE];
    QN_UNROLL
    for (int i = 0; i < ROW_PAIRS * SIDE; i++) sum[i / SIDE][i % SIDE] = vf_load(place(sums, step, i));
    const int8_t(*q)[ROW_PAIRS][2 * DEEP] = x->q;
    const vu(*codes)[SIDE] = w->codes;
    uint64_t g = 0;
    do { /* there is one: a test before it has compilers keep each sum twice */
        uint64_t b = g * (uint64_t)group / BLOCK;
        vi whole[ROW_PAIRS][SIDE];
        if (next && g % (uint64_t)(BLOCK / group) == 0) pair_block(next, b, group, least, to);
        multiply(q, codes, group, whole);
        QN_UNROLL
        for (int j = 0; j < ROW_PAIRS; j++) {
            vf d = vf_pair_load(x->d[b][j]), total = least ? vf_pair_load(x->total[g][j]) : d;
            QN_UNROLL
            for (int l = 0; l < SIDE; l++) {
                sum[j][l] = vf_fma_stay(vf_from_sum(whole[j][l]), w->scale[g][l] * d, sum[j][l]);
                if (least) sum[j][l] = vf_fma_stay(w->least[g][l], total, sum[j][l]);
            }
        }
        q += group / DEEP;
        codes += group / DEEP;
    } while (++g < groups);
    QN_UNROLL
    for (int i = 0; i < ROW_PAIRS * SIDE; i++) vf_store(place(sums, step, i), sum[i / SIDE][i % SIDE]);
}

typedef struct task {
    const paired *w;
    const qn_quant_row *const *x;
    int tiles, n, count;
    float *sums;
    int step;
} task;

INLINE void run(const task *t, int group, int least) {
    row_pairs pairs[2];
    uint64_t groups = (uint64_t)(t->count / group);
    for (uint64_t b = 0; b < groups / (uint64_t)(BLOCK / group); b++) pair_block(t->x, b, group, least, pairs);
    for (int j = 0; j < t->n; j += ROWS) {
        row_pairs *x = pairs + j / ROWS % 2, *to = pairs + (j / ROWS + 1) % 2;
        float *sums = t->sums + j * (int64_t)t->step;
        int last = t->tiles - 1;
        for (int i = 0; i < last; i++) tile(x, t->w + i, groups, group, least, sums + i * VECTORS * VF_N, t->step, NULL, NULL);
        const qn_quant_row *const *next = t->x + (j + ROWS < t->n ? j + ROWS : j); /* behind the last: these again, for nobody */
        tile(x, t->w + last, groups, group, least, sums + last * VECTORS * VF_N, t->step, next, to);
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

void qn_quant_tiles_end(int n, float *sums, int step) {
    for (int j = 0; j < n; j += 2)
        for (int at = 0; at < step; at += VF_N) {
            float *first = sums + j * (int64_t)step + at, *second = first + step;
            vf low = vf_load(first), high = vf_load(second);
            vf_store(first, vf_of_first(low, high));
            vf_store(second, vf_of_second(low, high));
        }
}
