/* The blocked product: a block of A is fetched once and stays in the second cache, one panel of B at a time in the first, and tiles
 * of C in registers run over both. */
#include "cpu/k_gemm.h"
#include "cpu/simd/simd_turn.h"

/* Tiles of as many sums as the registers hold beside one line of B and one number of A. */
#if defined(__AVX512F__)
enum { TILE_M = 14, TILE_V = 2, DEPTH = 256 };
#elif defined(__AVX2__)
enum { TILE_M = 6, TILE_V = 2, DEPTH = 256 };
#elif defined(__aarch64__)
enum { TILE_M = 8, TILE_V = 3, DEPTH = 256 };
#else
enum { TILE_M = 4, TILE_V = 2, DEPTH = 256 };
#endif
enum { TILE_N = TILE_V * VF_N, BLOCK_M = TILE_M * 32, LINE = 64 };

#define INLINE static inline __attribute__((always_inline))

/* ---- One tile: rows and vectors are constants wherever this is inlined. */

INLINE void tile(int rows, int vectors, int depth, const float *a, const float *b, float *c, int64_t step, int chain) {
    vf sum[TILE_M][TILE_V];
    QN_UNROLL
    for (int i = 0; i < rows; i++) {
        QN_UNROLL
        for (int v = 0; v < vectors; v++) sum[i][v] = chain ? vf_load(c + i * step + v * VF_N) : vf_zero();
    }
    for (int p = 0; p < depth; p++, a += rows, b += vectors * VF_N) {
        vf line[TILE_V];
        QN_UNROLL
        for (int v = 0; v < vectors; v++) line[v] = vf_load(b + v * VF_N);
        QN_UNROLL
        for (int i = 0; i < rows; i++) {
            vf one = vf_set1(a[i]);
            QN_UNROLL
            for (int v = 0; v < vectors; v++) sum[i][v] = vf_fma(one, line[v], sum[i][v]);
        }
    }
    QN_UNROLL
    for (int i = 0; i < rows; i++) {
        QN_UNROLL
        for (int v = 0; v < vectors; v++) vf_store(c + i * step + v * VF_N, sum[i][v]);
    }
}

typedef void (*tile_fn)(int depth, const float *a, const float *b, float *c, int64_t step, int chain);

#define TILE(rows, vectors)                                                                                             \
    static void tile_##rows##_##vectors(int depth, const float *a, const float *b, float *c, int64_t step, int chain) { \
        tile(rows, vectors, depth, a, b, c, step, chain);                                                               \
    }
#define TILES_4(v) TILE(1, v) TILE(2, v) TILE(3, v) TILE(4, v)
#define NAMES_4(v) tile_1_##v, tile_2_##v, tile_3_##v, tile_4_##v
#if defined(__AVX512F__)
#define TILES(v) \
    TILES_4(v) TILE(5, v) TILE(6, v) TILE(7, v) TILE(8, v) TILE(9, v) TILE(10, v) TILE(11, v) TILE(12, v) TILE(13, v) TILE(14, v)
#define NAMES(v)                                                                                                       \
    {                                                                                                                  \
        NAMES_4(v), tile_5_##v, tile_6_##v, tile_7_##v, tile_8_##v, tile_9_##v, tile_10_##v, tile_11_##v, tile_12_##v, \
            tile_13_##v, tile_14_##v                                                                                   \
    }
#elif defined(__AVX2__)
#define TILES(v) TILES_4(v) TILE(5, v) TILE(6, v)
#define NAMES(v) \
    { NAMES_4(v), tile_5_##v, tile_6_##v }
#elif defined(__aarch64__)
#define TILES(v) TILES_4(v) TILE(5, v) TILE(6, v) TILE(7, v) TILE(8, v)
#define NAMES(v) \
    { NAMES_4(v), tile_5_##v, tile_6_##v, tile_7_##v, tile_8_##v }
#else
#define TILES(v) TILES_4(v)
#define NAMES(v) \
    { NAMES_4(v) }
#endif
TILES(1)
TILES(2)
#if defined(__aarch64__)
TILES(3)
static const tile_fn tiles[TILE_V][TILE_M] = {NAMES(1), NAMES(2), NAMES(3)};
#else
static const tile_fn tiles[TILE_V][TILE_M] = {NAMES(1), NAMES(2)};
#endif

/* ---- The plan */

int qn_gemm_settle(qn_gemm *g) {
    int64_t size = g->c_dtype == QN_DTYPE_F32 ? 4 : 2;
    int row_wise = g->c_column == size || g->n == 1, column_wise = g->c_row == size || g->m == 1;
    if (g->c_dtype != QN_DTYPE_F32 && g->c_dtype != QN_DTYPE_F16 && g->c_dtype != QN_DTYPE_BF16) return 0;
    if (g->m < 1 || g->n < 1 || g->k < 1) return 0;
    /* Lanes lie along n: make that the way C lies, and not a few columns when there are many rows. */
    if ((!row_wise && column_wise) || (g->n < VF_N && g->m > g->n && (column_wise || !row_wise || g->m >= 4 * g->n))) {
        qn_gemm_side side = g->a;
        int64_t m = g->m, row = g->c_row;
        g->a = g->b;
        g->b = side;
        g->m = g->n;
        g->n = m;
        g->c_row = g->c_column;
        g->c_column = row;
        for (int i = 0; i < g->n_axes; i++) {
            int64_t step = g->a_step[i];
            g->a_step[i] = g->b_step[i];
            g->b_step[i] = step;
        }
        g->transposed = !g->transposed;
    }
    if (!g->a.fetch) g->a.fetch = qn_gemm_plain_fetch(g->a.dtype, g->a.along, g->a.deep, g->k);
    if (!g->b.fetch) g->b.fetch = qn_gemm_plain_fetch(g->b.dtype, g->b.along, g->b.deep, g->k);
    return g->a.fetch && g->b.fetch;
}

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t round_up(int64_t a, int64_t to) { return ceil_div(a, to) * to; }

/* Whether a tile's sums can wait in C itself between blocks of p. */
static int sums_in_place(const qn_gemm *g) { return g->c_dtype == QN_DTYPE_F32 && g->c_column == 4; }

qn_gemm_cut qn_gemm_plan(const qn_gemm *g) {
    qn_gemm_cut cut = {.rows = g->m < BLOCK_M ? g->m : BLOCK_M, .columns = round_up(g->n, TILE_N)};
    int64_t batches = 1;
    for (int i = 0; i < g->n_axes; i++) batches *= g->extent[i];
    double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k * (double)batches;
    /* Enough parts to share, of some use each; large products in parts so large that fetching A again for each costs little. */
    double want = flops / (1 << 20) < 8 ? flops / (1 << 20) : flops / (1 << 27) > 8 ? flops / (1 << 27) : 8;
    for (;;) {
        cut.down = ceil_div(g->m, cut.rows);
        cut.across = ceil_div(g->n, cut.columns);
        cut.units = cut.down * cut.across * batches;
        if ((double)cut.units >= want) break;
        int narrow = cut.columns <= TILE_N, low = cut.rows <= TILE_M;
        if (narrow && low) break;
        if (low || (!narrow && cut.columns >= cut.rows)) cut.columns = round_up(ceil_div(cut.columns, 2), TILE_N);
        else cut.rows = round_up(ceil_div(cut.rows, 2), TILE_M);
    }
    cut.parts = cut.units > 64 ? 64 : cut.units;
    int64_t depth = g->k < DEPTH ? g->k : DEPTH;
    cut.slot = (size_t)(round_up((cut.rows * depth + VF_N) * 4, LINE) + round_up((TILE_N * depth + VF_N) * 4, LINE));
    if (g->k > DEPTH && !sums_in_place(g)) cut.slot += (size_t)(cut.rows * cut.columns) * 4;
    cut.workspace = cut.slot * (size_t)cut.parts;
    return cut;
}

/* ---- One block */

typedef struct block {
    const qn_gemm *g;
    int64_t batch, a_at, b_at, c_at; /* number of the batch, byte offsets */
    int64_t row, rows, column, columns;
    float *a, *b, *sums; /* fetched panels; sums or NULL */
    int64_t sum_step;
} block;

/* Panels of A as even as they come, so that none is much lower than the others. */
static int64_t panel_row(const block *k, int64_t panels, int64_t i) { return qn_cpu_cut(k->rows, panels, i); }

static void store_row(const qn_gemm *g, char *to, float *x, int n) {
    if (g->c_column == 4 && g->c_dtype == QN_DTYPE_F32) {
        memcpy(to, x, (size_t)n * 4);
        return;
    }
    for (int j = 0; j < n; j++, to += g->c_column) {
        if (g->c_dtype == QN_DTYPE_F32) *(float *)to = x[j];
        else *(uint16_t *)to = g->c_dtype == QN_DTYPE_F16 ? qn_f32_to_f16(x[j]) : qn_f32_to_bf16(x[j]);
    }
}

static void load_row(const block *k, int64_t i, int64_t j, int n, float *x) {
    const float *from = k->sums ? k->sums + (i - k->row) * k->sum_step + (j - k->column)
                                : (const float *)(k->g->c + k->c_at + i * k->g->c_row) + j;
    memcpy(x, from, (size_t)n * 4);
}

/* A tile that is not whole, or whose sums go through finish or a conversion, is computed beside C. */
static void tile_aside(const block *k, tile_fn f, int64_t i, int rows, int64_t j, int columns, int64_t first_k, int depth,
                       const float *a) {
    const qn_gemm *g = k->g;
    float t[TILE_M * TILE_N];
    int step = (int)round_up(columns, VF_N), last = first_k + depth == g->k;
    for (int r = 0; first_k > 0 && r < rows; r++) load_row(k, i + r, j, columns, t + r * step);
    f(depth, a, k->b, t, step, first_k > 0);
    for (int r = 0; r < rows; r++) {
        float *x = t + r * step;
        if (last && g->finish) g->finish(g, k->batch, i + r, j, columns, x);
        if (last || !k->sums) store_row(g, g->c + k->c_at + (i + r) * g->c_row + j * g->c_column, x, columns);
        else memcpy(k->sums + (i + r - k->row) * k->sum_step + (j - k->column), x, (size_t)columns * 4);
    }
}

/* All tiles of one panel of B. */
static void run_panel(const block *k, int64_t j, int columns, int64_t first_k, int depth) {
    const qn_gemm *g = k->g;
    int vectors = (columns + VF_N - 1) / VF_N;
    int64_t panels = ceil_div(k->rows, TILE_M);
    int direct = sums_in_place(g) && columns == vectors * VF_N && !(g->finish && first_k + depth == g->k);
    for (int64_t n = 0; n < panels; n++) {
        int64_t first = panel_row(k, panels, n);
        int rows = (int)(panel_row(k, panels, n + 1) - first);
        const float *a = k->a + first * depth;
        tile_fn f = tiles[vectors - 1][rows - 1];
        if (direct) f(depth, a, k->b, (float *)(g->c + k->c_at + (k->row + first) * g->c_row) + j, g->c_row / 4, first_k > 0);
        else tile_aside(k, f, k->row + first, rows, j, columns, first_k, depth, a);
    }
}

static void run_block(const block *k) {
    const qn_gemm *g = k->g;
    int64_t panels = ceil_div(k->rows, TILE_M);
    for (int64_t first_k = 0; first_k < g->k; first_k += DEPTH) {
        int depth = g->k - first_k < DEPTH ? (int)(g->k - first_k) : DEPTH;
        for (int64_t n = 0; n < panels; n++) {
            int64_t first = panel_row(k, panels, n);
            int rows = (int)(panel_row(k, panels, n + 1) - first);
            g->a.fetch(&g->a, k->a_at, k->row + first, rows, first_k, depth, k->a + first * depth, rows);
        }
        for (int64_t j = 0; j < k->columns; j += TILE_N) {
            int columns = k->columns - j < TILE_N ? (int)(k->columns - j) : TILE_N;
            g->b.fetch(&g->b, k->b_at, k->column + j, columns, first_k, depth, k->b, (int)round_up(columns, VF_N));
            run_panel(k, k->column + j, columns, first_k, depth);
        }
    }
}

static void place_batch(block *k, int64_t number) {
    const qn_gemm *g = k->g;
    k->batch = number;
    k->a_at = k->b_at = k->c_at = 0;
    for (int i = g->n_axes - 1; i >= 0; i--) {
        int64_t index = number % g->extent[i];
        number /= g->extent[i];
        k->a_at += index * g->a_step[i];
        k->b_at += index * g->b_step[i];
        k->c_at += index * g->c_step[i];
    }
}

void qn_gemm_part(const qn_gemm *g, const qn_gemm_cut *cut, void *workspace, int64_t part) {
    int64_t depth = g->k < DEPTH ? g->k : DEPTH, end = qn_cpu_cut(cut->units, cut->parts, part + 1);
    char *slot = (char *)workspace + cut->slot * (size_t)part;
    block k = {.g = g, .a = (float *)slot, .sum_step = cut->columns};
    k.b = (float *)(slot + round_up((cut->rows * depth + VF_N) * 4, LINE));
    if (g->k > DEPTH && !sums_in_place(g)) k.sums = k.b + round_up((TILE_N * depth + VF_N) * 4, LINE) / 4;
    for (int64_t unit = qn_cpu_cut(cut->units, cut->parts, part); unit < end; unit++) {
        int64_t in_batch = unit % (cut->down * cut->across), down = in_batch / cut->across, across = in_batch % cut->across;
        place_batch(&k, unit / (cut->down * cut->across));
        k.row = down * cut->rows;
        k.rows = g->m - k.row < cut->rows ? g->m - k.row : cut->rows;
        k.column = across * cut->columns;
        k.columns = g->n - k.column < cut->columns ? g->n - k.column : cut->columns;
        run_block(&k);
    }
}
