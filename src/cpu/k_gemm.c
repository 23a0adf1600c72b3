/* The blocked product: panels of one operand stay in the second cache, one panel of the other at a time in the first, and tiles
 * of C in registers run over both. */
#include "cpu/k_gemm.h"
#include "cpu/simd/simd_turn.h"

/* Machines with AVX-512 have second caches of a megabyte and more, which feed the tiles as well as the first: sums then go through memory
 * half as often. */
#if defined(QN_SIMD_AVX512)
enum { TALL = 16, DEPTH = 512 };
#else
enum { TALL = 32, DEPTH = 256 };
#endif
enum { TILE_M = QN_GEMM_ROWS, TILE_V = QN_GEMM_VECTORS, TILE_N = QN_GEMM_WIDE, UNIT_M = TILE_M * TALL, UNIT_N = TILE_N * 8 };
enum { GROUP = 16, LINE = 64 };

#define INLINE static inline __attribute__((always_inline))

/* ---- One tile: rows and vectors are constants wherever this is inlined. */

INLINE void one_line(int rows, int vectors, const float *a, const float *b, vf sum[TILE_M][TILE_V]) {
    vf line[TILE_V];
    QN_UNROLL
    for (int v = 0; v < vectors; v++) line[v] = vf_load(b + v * VF_N);
#if defined(QN_SIMD_SVE)
    vf four[(TILE_M + 3) / 4];
    QN_UNROLL
    for (int i = 0; i < rows; i += 4) four[i / 4] = vf_quarters(a + i, rows - i < 4 ? rows - i : 4);
    QN_UNROLL
    for (int i = 0; i < rows; i++) {
        QN_UNROLL
        for (int v = 0; v < vectors; v++) sum[i][v] = vf_fma_lane(four[i / 4], i, line[v], sum[i][v]);
    }
#else
    QN_UNROLL
    for (int i = 0; i < rows; i++) {
        vf one = vf_set1(a[i]);
        QN_UNROLL
        for (int v = 0; v < vectors; v++) sum[i][v] = vf_fma_stay(one, line[v], sum[i][v]);
    }
#endif
}

/* What the caches should have next: `lines` of it for every four of a tile. */
typedef struct ahead {
    const char *at;
    int lines;
} ahead;

/* Sums go on from `from`, a tile by itself, or begin at 0 when that is NULL. The sums of the next tile lie behind those of this one. */
INLINE void tile(int rows, int vectors, int depth, const float *a, const float *b, const float *from, float *to, int64_t step,
                 ahead next) {
    const int sums = TILE_M * TILE_N * 4; /* bytes */
    vf sum[TILE_M][TILE_V];
    QN_UNROLL
    for (int i = 0; i < rows; i++) {
        QN_UNROLL
        for (int v = 0; v < vectors; v++) sum[i][v] = from ? vf_load(from + i * TILE_N + v * VF_N) : vf_zero();
    }
    int p = 0;
    for (; p + 4 <= depth; p += 4, a += 4 * rows, b += 4 * TILE_N) {
        for (int i = 0; i < next.lines; i++, next.at += LINE) __builtin_prefetch(next.at, 0, 2);
        if (from && p < 4 * sums / LINE) __builtin_prefetch((const char *)from + sums + p * (LINE / 4), 0, 3);
        if (p < 4 * rows)
            for (int v = 0; v < vectors; v++) __builtin_prefetch(to + p / 4 * step + v * VF_N, 1, 3);
        QN_UNROLL
        for (int q = 0; q < 4; q++) one_line(rows, vectors, a + q * rows, b + q * TILE_N, sum);
    }
    for (; p < depth; p++, a += rows, b += TILE_N) one_line(rows, vectors, a, b, sum);
    QN_UNROLL
    for (int i = 0; i < rows; i++) {
        QN_UNROLL
        for (int v = 0; v < vectors; v++) vf_store(to + i * step + v * VF_N, sum[i][v]);
    }
}

typedef void (*tile_fn)(int depth, const float *a, const float *b, const float *from, float *to, int64_t step, ahead next);

#define TILE(rows, vectors)                                                                                                    \
    static void tile_##rows##_##vectors(int depth, const float *a, const float *b, const float *from, float *to, int64_t step, \
                                        ahead next) {                                                                          \
        tile(rows, vectors, depth, a, b, from, to, step, next);                                                                \
    }
#define TILES_4(v) TILE(1, v) TILE(2, v) TILE(3, v) TILE(4, v)
#define NAMES_4(v) tile_1_##v, tile_2_##v, tile_3_##v, tile_4_##v
#if QN_GEMM_ROWS == 14
#define TILES(v) \
    TILES_4(v) TILE(5, v) TILE(6, v) TILE(7, v) TILE(8, v) TILE(9, v) TILE(10, v) TILE(11, v) TILE(12, v) TILE(13, v) TILE(14, v)
#define NAMES(v)                                                                                                       \
    {                                                                                                                  \
        NAMES_4(v), tile_5_##v, tile_6_##v, tile_7_##v, tile_8_##v, tile_9_##v, tile_10_##v, tile_11_##v, tile_12_##v, \
            tile_13_##v, tile_14_##v                                                                                   \
    }
#elif QN_GEMM_ROWS == 6
#define TILES(v) TILES_4(v) TILE(5, v) TILE(6, v)
#define NAMES(v) \
    { NAMES_4(v), tile_5_##v, tile_6_##v }
#elif QN_GEMM_ROWS == 8
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
#if QN_GEMM_VECTORS == 3
TILES(3)
static const tile_fn tiles[TILE_V][TILE_M] = {NAMES(1), NAMES(2), NAMES(3)};
#else
static const tile_fn tiles[TILE_V][TILE_M] = {NAMES(1), NAMES(2)};
#endif

/* ---- The plan */

/* Batches that share B, where they come to a few rows together: those of one product, for which B is read once. */
static void join_batches(qn_gemm *g) {
    int last = g->n_axes - 1;
    if (last < 0 || g->b_step[last] || g->finish || g->store || g->m * g->extent[last] > QN_GEMM_FEW) return;
    if (g->m == 1) {
        g->a.along = g->a_step[last];
        g->c_row = g->c_step[last];
    } else if (g->a_step[last] != g->m * g->a.along || g->c_step[last] != g->m * g->c_row) {
        return;
    }
    g->m *= g->extent[last];
    g->n_axes--;
}

/* f64 throughout, and nothing that is floats on the way. */
static int is_doubles(const qn_gemm *g) {
    return g->c_dtype == QN_DTYPE_F64 && g->a.dtype == QN_DTYPE_F64 && g->b.dtype == QN_DTYPE_F64 && !g->a.fetch && !g->b.fetch &&
           !g->finish && !g->store;
}

int qn_gemm_settle(qn_gemm *g) {
    join_batches(g);
    int doubles = is_doubles(g);
    int64_t size = doubles ? 8 : qn_float_bytes(g->c_dtype);
    int row_wise = g->c_column == size || g->n == 1, column_wise = g->c_row == size || g->m == 1;
    if (!doubles && g->c_dtype != QN_DTYPE_F32 && g->c_dtype != QN_DTYPE_F16 && g->c_dtype != QN_DTYPE_BF16) return 0;
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
    if (doubles) return 1;
    if (!g->a.fetch) g->a.fetch = qn_gemm_plain_fetch(g->a.dtype, g->a.along, g->a.deep, g->k);
    if (!g->b.fetch) g->b.fetch = qn_gemm_plain_fetch(g->b.dtype, g->b.along, g->b.deep, g->k);
    return g->a.fetch && g->b.fetch;
}

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t round_up(int64_t a, int64_t to) { return ceil_div(a, to) * to; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Panels of A, as even as they come: `tall` of them have one row more than the others. */
typedef struct panels {
    int64_t count, tall;
    int rows; /* of the tall ones */
} panels;

static panels panels_of(int64_t rows) {
    int64_t n = ceil_div(rows, TILE_M), tall = rows % n;
    return (panels){n, tall ? tall : n, (int)ceil_div(rows, n)};
}
static int64_t panel_first(const panels *s, int64_t i) { return i * s->rows - (i > s->tall ? i - s->tall : 0); }

/* Halves the unit until there are enough of them. Along the shared operand that means to fetch the other one again, which for 2048^3 and
 * four units across was a twentieth of the time: it comes last. */
static void cut_units(const qn_gemm *g, qn_gemm_cut *cut, int64_t batches, double want) {
    for (;;) {
        cut->down = ceil_div(g->m, cut->rows);
        cut->across = ceil_div(g->n, cut->columns);
        cut->units = cut->down * cut->across * batches;
        if ((double)cut->units >= want) return;
        int64_t rows = round_up(ceil_div(cut->rows, 2), TILE_M), columns = round_up(ceil_div(cut->columns, 2), TILE_N);
        int low = cut->rows <= 4 * TILE_M, narrow = cut->columns <= 8 * TILE_N,
            rows_first = cut->share_a ? narrow && !low : !low || narrow;
        if (low && narrow && cut->units >= 8) return;
        if (rows < cut->rows && (rows_first || columns == cut->columns)) cut->rows = rows;
        else if (columns < cut->columns) cut->columns = columns;
        else return;
    }
}

/* All units alike: one that is a remainder leaves a thread waiting for the whole one of another. And no more rows of them than it takes, for
 * each goes through all of a shared B. */
static void even_units(const qn_gemm *g, qn_gemm_cut *cut, int64_t batches, double want) {
    int64_t down = (int64_t)ceil(want / (double)(cut->across * batches)), least_down = ceil_div(g->m, UNIT_M);
    if (!cut->share_a && down < cut->down) cut->down = down > least_down ? down : least_down;
    cut->rows = ceil_div(g->m, cut->down);
    cut->columns = round_up(ceil_div(g->n, cut->across), TILE_N);
    cut->down = ceil_div(g->m, cut->rows);
    cut->units = cut->down * cut->across * batches;
}

qn_gemm_cut qn_gemm_plan(const qn_gemm *g) {
    qn_gemm_cut cut = {.share_a = g->m < g->n};
    int64_t batches = 1, depth = least(g->k, DEPTH);
    if (qn_gemm_doubles_plan(g, &cut) || qn_gemm_few_plan(g, &cut)) return cut;
    for (int i = 0; i < g->n_axes; i++) batches *= g->extent[i];
    double flops = 2.0 * (double)g->m * (double)g->n * (double)g->k * (double)batches;
    double small = flops / (1 << 20), large = flops / (1 << 28),
           want = small < 8     ? small
                  : large < 8   ? 8
                  : large < 32  ? large
                  : large < 64  ? 32
                  : large < 128 ? large / 2
                                : 64;
    cut.rows = cut.share_a ? g->m : least(g->m, UNIT_M);
    cut.columns = cut.share_a ? least(round_up(g->n, TILE_N), UNIT_N) : round_up(g->n, TILE_N);
    cut_units(g, &cut, batches, want);
    even_units(g, &cut, batches, want);
    cut.parts[1] = least(cut.units, 64);
    cut.shared_batches = qn_gemm_side_batches(g, cut.share_a ? g->a_step : g->b_step);
    int64_t along = cut.share_a ? g->m : round_up(g->n, TILE_N);
    cut.groups = ceil_div(ceil_div(along, cut.share_a ? TILE_M : TILE_N), GROUP);
    cut.share_units = cut.shared_batches * ceil_div(g->k, DEPTH) * cut.groups;
    cut.parts[0] = qn_cpu_parts(cut.share_units, (double)(cut.shared_batches * along * g->k) * 8 / (double)cut.share_units, 0);
    cut.shared = (size_t)round_up((cut.shared_batches * along * g->k) * 4, LINE);
    cut.slot = (size_t)round_up(((cut.share_a ? cut.columns : cut.rows) * depth) * 4, LINE);
    if (g->k > DEPTH)
        cut.slot += (size_t)ceil_div(cut.share_a ? panels_of(g->m).count : ceil_div(cut.rows, TILE_M),
                                     cut.share_a ? cut.down : 1) *
                    (size_t)(cut.columns * TILE_M * 4);
    cut.workspace = cut.shared + cut.slot * (size_t)cut.parts[1];
    return cut;
}

/* ---- Fetching */

/* Panels [from, end) of A at this depth, the tall ones first; `row` is where panel 0 begins. */
static void fetch_rows(const qn_gemm *g, const panels *s, int64_t from, int64_t end, int64_t batch, int64_t row, int64_t first_k,
                       int depth, float *to) {
    int64_t middle = end < s->tall ? end : from > s->tall ? from : s->tall;
    int64_t i = panel_first(s, from), m = panel_first(s, middle), e = panel_first(s, end);
    if (i < m) g->a.fetch(&g->a, batch, row + i, m - i, first_k, depth, to + i * depth, s->rows);
    if (m < e) g->a.fetch(&g->a, batch, row + m, e - m, first_k, depth, to + m * depth, s->rows - 1);
}

/* A unit of the first phase: some panels of the shared operand at one depth. Lines of a depth lie together, panel by panel. */
static void share(const qn_gemm *g, const qn_gemm_cut *cut, float *shared, int64_t number) {
    int64_t deep = ceil_div(g->k, DEPTH), along = cut->share_a ? g->m : round_up(g->n, TILE_N);
    int64_t group = number % cut->groups, first_k = number / cut->groups % deep * DEPTH, batch = number / cut->groups / deep;
    int64_t at = qn_gemm_side_offset(g, cut->share_a ? g->a_step : g->b_step, batch);
    int depth = (int)least(g->k - first_k, DEPTH);
    float *to = shared + batch * along * g->k + first_k * along;
    if (cut->share_a) {
        panels s = panels_of(g->m);
        fetch_rows(g, &s, group * GROUP, least(s.count, (group + 1) * GROUP), at, 0, first_k, depth, to);
    } else {
        int64_t j = group * GROUP * TILE_N;
        g->b.fetch(&g->b, at, j, least(g->n - j, GROUP * TILE_N), first_k, depth, to + j * depth, TILE_N);
    }
}

/* ---- One unit */

typedef struct unit {
    const qn_gemm *g;
    int64_t batch, a_at, b_at, c_at; /* number of the batch, byte offsets */
    int64_t row, rows, column, columns;
    int64_t panel, end_panel; /* of the shared rows */
    const float *shared;      /* of this batch */
    float *own, *sums;        /* the other operand's panels; tiles of sums that wait for the next depth */
    int64_t first_k;
    int depth;
} unit;

void qn_gemm_store_row(const qn_gemm *g, char *to, const float *x, int n) {
    if (qn_gemm_is_plain(g)) {
        memcpy(to, x, (size_t)n * 4);
        return;
    }
    for (int j = 0; j < n; j++, to += g->c_column) {
        if (g->c_dtype == QN_DTYPE_F32) *(float *)to = x[j];
        else *(uint16_t *)to = g->c_dtype == QN_DTYPE_F16 ? qn_f32_to_f16(x[j]) : qn_f32_to_bf16(x[j]);
    }
}

/* The last depth of a tile that is not whole, or whose sums are finished or converted. */
static void tile_aside(const unit *u, tile_fn f, int64_t i, int rows, int64_t j, int columns, const float *a, const float *b,
                       const float *from, ahead next) {
    const qn_gemm *g = u->g;
    float t[TILE_M * TILE_N];
    f(u->depth, a, b, from, t, TILE_N, next);
    for (int r = 0; r < rows; r++) {
        float *x = t + r * TILE_N;
        if (g->finish) g->finish(g, u->batch, i + r, j, columns, x);
        if (!g->store) qn_gemm_store_row(g, g->c + u->c_at + (i + r) * g->c_row + j * g->c_column, x, columns);
    }
    if (g->store) g->store(g, u->batch, i, rows, j, columns, t, TILE_N);
}

/* Tile number `number` of the unit, at (i, j). */
static void run_tile(const unit *u, int64_t number, int64_t i, int rows, int64_t j, const float *a, const float *b, ahead next) {
    const qn_gemm *g = u->g;
    int columns = (int)least(u->column + u->columns - j, TILE_N), vectors = (columns + VF_N - 1) / VF_N;
    float *sums = u->sums + number * TILE_M * TILE_N, *from = u->first_k > 0 ? sums : NULL;
    tile_fn f = tiles[vectors - 1][rows - 1];
    if (u->first_k + u->depth < g->k) f(u->depth, a, b, from, sums, TILE_N, next);
    else if (qn_gemm_is_plain(g) && !g->finish && !g->store && columns == vectors * VF_N)
        f(u->depth, a, b, from, (float *)(g->c + u->c_at + i * g->c_row) + j, g->c_row / 4, next);
    else tile_aside(u, f, i, rows, j, columns, a, b, from, next);
}

/* The shared operand's next panel, so wide, is asked for while so many tiles pass by: all of it, or tiles wait for the last cache, which
 * with four to a panel of 64 KB took a fifth of the time of 4096^3. */
static ahead ask_during(const float *next, int wide, int64_t passing) {
    return (ahead){(const char *)next, (int)ceil_div(wide, 4 * passing)};
}
static void ask_on(ahead *next, int depth) { next->at += next->lines * (depth / 4) * LINE; }

/* A panel of the shared operand stays in the first cache while the unit's own pass by; meanwhile its next one is fetched. */
static void run_shared_rows(const unit *u) {
    panels s = panels_of(u->g->m);
    const float *shared = u->shared + u->first_k * u->g->m;
    int64_t number = 0;
    u->g->b.fetch(&u->g->b, u->b_at, u->column, u->columns, u->first_k, u->depth, u->own, TILE_N);
    for (int64_t n = u->panel; n < u->end_panel; n++) {
        int64_t i = panel_first(&s, n);
        const float *a = shared + i * u->depth;
        ahead next = ask_during(a + s.rows * u->depth, s.rows, ceil_div(u->columns, TILE_N));
        for (int64_t j = 0; j < u->columns; j += TILE_N, ask_on(&next, u->depth))
            run_tile(u, number++, i, s.rows - (n >= s.tall), u->column + j, a, u->own + j * u->depth, next);
    }
}

static void run_shared_columns(const unit *u) {
    panels s = panels_of(u->rows);
    const float *shared = u->shared + u->first_k * round_up(u->g->n, TILE_N);
    int64_t number = 0;
    fetch_rows(u->g, &s, 0, s.count, u->a_at, u->row, u->first_k, u->depth, u->own);
    for (int64_t j = u->column; j < u->column + u->columns; j += TILE_N) {
        const float *b = shared + j * u->depth;
        ahead next = ask_during(b + TILE_N * u->depth, TILE_N, s.count);
        for (int64_t n = 0; n < s.count; n++, ask_on(&next, u->depth)) {
            int64_t i = panel_first(&s, n);
            run_tile(u, number++, u->row + i, s.rows - (n >= s.tall), j, u->own + i * u->depth, b, next);
        }
    }
}

static void place_batch(unit *u, const qn_gemm_cut *cut, const float *shared, int64_t number) {
    const qn_gemm *g = u->g;
    qn_gemm_place at = qn_gemm_place_of(g, cut->share_a ? g->a_step : g->b_step, number);
    u->batch = number;
    u->a_at = at.a;
    u->b_at = at.b;
    u->c_at = at.c;
    u->shared = shared + at.shared * (cut->share_a ? g->m : round_up(g->n, TILE_N)) * g->k;
}

static void run_unit(const qn_gemm_cut *cut, unit *u) {
    const qn_gemm *g = u->g;
    for (u->first_k = 0; u->first_k < g->k; u->first_k += DEPTH) {
        u->depth = (int)least(g->k - u->first_k, DEPTH);
        if (cut->share_a) run_shared_rows(u);
        else run_shared_columns(u);
    }
}

void qn_gemm_part(const qn_gemm *g, const qn_gemm_cut *cut, void *workspace, int phase, int64_t part) {
    if (cut->few || cut->doubles) {
        (cut->few ? qn_gemm_few_part : qn_gemm_doubles_part)(g, cut, workspace, phase, part);
        return;
    }
    float *shared = workspace;
    int64_t units = phase == 0 ? cut->share_units : cut->units, number = qn_cpu_cut(units, cut->parts[phase], part);
    int64_t end = qn_cpu_cut(units, cut->parts[phase], part + 1), in_batch = cut->down * cut->across;
    if (phase == 0) {
        for (; number < end; number++) share(g, cut, shared, number);
        return;
    }
    unit u = {.g = g, .own = (float *)((char *)workspace + cut->shared + cut->slot * (size_t)part)};
    u.sums = u.own + round_up(((cut->share_a ? cut->columns : cut->rows) * least(g->k, DEPTH)) * 4, LINE) / 4;
    for (; number < end; number++) {
        place_batch(&u, cut, shared, number / in_batch);
        int64_t down = number % in_batch / cut->across, panels_all = panels_of(g->m).count;
        u.panel = qn_cpu_cut(panels_all, cut->down, down);
        u.end_panel = qn_cpu_cut(panels_all, cut->down, down + 1);
        u.row = down * cut->rows;
        u.rows = least(g->m - u.row, cut->rows);
        u.column = number % cut->across * cut->columns;
        u.columns = least(g->n - u.column, cut->columns);
        run_unit(cut, &u);
    }
}
