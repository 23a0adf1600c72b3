/* The products of kd_dots.c for rows sixteen at a time by AMX: a tile gives the integer sums of 16 rows and 16 lanes over a group, and
 * vectors turn them into floats as everywhere else, so the bits are the same. Two groups at a time: what tiles leave for the vectors
 * must stay in the first cache beside the weights. */
#include "cpu/kd_quant.h"
#include "cpu/simd/simd_tile.h"

#define INLINE static inline __attribute__((always_inline))

enum { ROWS = QN_TILE_ROWS, PANELS = QN_TILE_PANELS, SOME = 2, LINE = 64 };

/* Integer sums of a block of rows with all panels, by group. */
typedef struct wholes {
    int32_t at[SOME][PANELS][ROWS][QN_PANEL];
} wholes;

/* A block of rows: their bytes, `step` from one to the next. */
typedef struct block {
    const qn_quant_row *const *x;
    const int8_t *q;
    int64_t step;
} block;

/* Rows one after the other are read where they are, others are put side by side first. */
static block block_of(const qn_quant_row *const *x, int8_t (*aside)[QN_CHUNK]) {
    block b = {x, x[0]->q, sizeof *x[0]};
    int in_order = 1;
    for (int j = 1; j < ROWS; j++) in_order &= x[j] == x[0] + j;
    if (in_order) return b;
    for (int j = 0; j < ROWS; j++) memcpy(aside[j], x[j]->q, QN_CHUNK);
    b.q = aside[0];
    b.step = QN_CHUNK;
    return b;
}

/* Registers: 0 to 3 are sums, 4 is a group of the rows, 5 and 6 that of two panels. */
static void begin(int group) {
    tile_shapes s = {.palette = 1};
    for (int i = 0; i < 7; i++) {
        s.bytes[i] = (uint16_t)(i == 4 ? group : LINE);
        s.rows[i] = (uint8_t)(i < 5 ? ROWS : group / 4);
    }
    tile_begin(&s);
}

#define PANEL(p, with)                                \
    TILE_ZERO(p);                                     \
    TILE_LOAD(with, w[p].codes[g * group / 4], LINE); \
    TILE_DOT(p, 4, with);                             \
    TILE_STORE(p, to->at[i][p], LINE)

static void multiply(const block *b, const qn_quant_chunk *w, int group, int first, int n, wholes *to) {
    for (int i = 0; i < n; i++) {
        int g = first + i;
        TILE_LOAD(4, b->q + g * group, b->step);
        PANEL(0, 5);
        PANEL(1, 6);
        PANEL(2, 5);
        PANEL(3, 6);
    }
}

/* Row j of what was multiplied: n groups from `first` on. */
INLINE void finish(const qn_quant_type *t, const qn_quant_row *x, const qn_quant_chunk *w, const wholes *from, int j, int first,
                   int n, int least, float *sums) {
    vf sum[PANELS];
    QN_UNROLL
    for (int p = 0; p < PANELS; p++) sum[p] = vf_load(sums + p * QN_PANEL);
    QN_UNROLL
    for (int i = 0; i < n; i++) {
        int g = first + i;
        vi start = vi_set1(-t->offset * x->sum[g]);
        vf d = vf_set1(x->d[g * t->group / 32]), total = vf_set1(x->total[g]);
        QN_UNROLL
        for (int p = 0; p < PANELS; p++) {
            vi whole = (vi)vu_load(from->at[i][p][j]) + start;
            sum[p] = vf_fma(vf_from_i(whole), vf_load(w[p].scale[g]) * d, sum[p]);
            if (least) sum[p] = vf_fma(vf_load(w[p].least[g]), total, sum[p]);
        }
    }
    QN_UNROLL
    for (int p = 0; p < PANELS; p++) vf_store(sums + p * QN_PANEL, sum[p]);
}

INLINE void finish_rows(const qn_quant_type *t, const block *b, const qn_quant_chunk *w, const wholes *from, int first, int n,
                        int least, float *sums, int step) {
    for (int j = 0; j < ROWS; j++) finish(t, b->x[j], w, from, j, first, n, least, sums + j * step);
}

void qn_quant_tiles(const qn_quant_type *t, const qn_quant_chunk *w, int panels, const qn_quant_row *const *x, int n, int count,
                    float *sums, int step) {
    (void)panels; /* PANELS */
    wholes at __attribute__((aligned(64)));
    int8_t aside[ROWS][QN_CHUNK] __attribute__((aligned(64)));
    int groups = count / t->group;
    tile_shapes before = tile_before();
    begin(t->group);
    for (int j = 0; j < n; j += ROWS, sums += ROWS * (int64_t)step) {
        block b = block_of(x + j, aside);
        for (int g = 0; g < groups; g += SOME) {
            int some = groups - g < SOME ? groups - g : SOME;
            multiply(&b, w, t->group, g, some, &at);
            if (some < SOME) finish_rows(t, &b, w, &at, g, 1, t->has_least, sums, step);
            else if (t->has_least) finish_rows(t, &b, w, &at, g, SOME, 1, sums, step);
            else finish_rows(t, &b, w, &at, g, SOME, 0, sums, step);
        }
    }
    tile_end(&before);
}
