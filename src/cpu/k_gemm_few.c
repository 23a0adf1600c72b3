/* The product for a few rows of A: to lay B out in panels would cost more than to multiply it, so it is read where it lies, once. Lines
 * of B that lie side by side are added to the sums as they are; what lies along the summed axis is turned, a stripe at a time, in
 * registers. Either way an element is the one chain of k_gemm.h. */
#include "cpu/k_gemm.h"
#include "cpu/simd/simd_rows.h"

#define INLINE static inline __attribute__((always_inline))

/* Where lines are added up: rows and lines at a time, so that their numbers of A stay in registers; columns of a unit, and sums, so that
 * these and some lines stay in the first cache; units that there should be for threads to share, and how narrow they may be for it: less
 * than a kilobyte of a line at a time costs a quarter. */
enum { ROWS = QN_REGISTERS == 32 ? 4 : 2, LINES = 4, CHUNK = 1024, SUMS = 4096, UNITS = 8, LEAST = 256 };
/* Where they are turned: vectors of a panel, and rows of A that pass by at a time. */
enum { ACROSS = 2, WIDE = ACROSS * VF_N, PASSING = 4, LINE = 64 };

/* Some columns of B and all rows of A. */
typedef struct task {
    const char *b; /* at the first of the columns */
    int64_t along, deep, columns, k;
    int rows;
    const float *x[QN_GEMM_FEW]; /* rows of A, side by side */
    float *sums[QN_GEMM_FEW];
} task;

typedef enum kind { F32, F16, BF16 } kind;
static kind kind_of(uint32_t dtype) { return dtype == QN_DTYPE_F32 ? F32 : dtype == QN_DTYPE_F16 ? F16 : BF16; }
INLINE int size_of(kind type) { return type == F32 ? 4 : 2; }

/* ---- Lines of B side by side */

INLINE vf load(kind type, const char *p) {
    const uint16_t *h = (const uint16_t *)(const void *)p;
    return type == F32 ? vf_load((const float *)(const void *)p) : type == F16 ? vf_load_h(h) : vf_load_b(h);
}
INLINE vf loadn(kind type, const char *p, int n) {
    const uint16_t *h = (const uint16_t *)(const void *)p;
    return type == F32 ? vf_loadn((const float *)(const void *)p, n) : type == F16 ? vf_load_hn(h, n) : vf_load_bn(h, n);
}

/* Some lines, `deep` bytes apart, of which the first is number p. */
typedef struct lines {
    const char *at;
    int64_t deep, p;
} lines;

/* n of them, added to the sums of rows from `row` on. Those that follow are asked for. */
INLINE void add_lines(const task *t, kind type, const lines *l, int n, int row, int rows) {
    vf one[ROWS][LINES], w[LINES];
    QN_UNROLL
    for (int r = 0; r < rows; r++) {
        QN_UNROLL
        for (int q = 0; q < n; q++) one[r][q] = vf_set1(t->x[row + r][l->p + q]);
    }
    for (int64_t j = 0; j < t->columns; j += VF_N) {
        int some = t->columns - j < VF_N ? (int)(t->columns - j) : VF_N;
        QN_UNROLL
        for (int q = 0; q < n; q++) {
            const char *from = l->at + q * l->deep + j * size_of(type);
            if (row == 0) __builtin_prefetch(from + n * l->deep, 0, 3);
            w[q] = some == VF_N ? load(type, from) : loadn(type, from, some);
        }
        QN_UNROLL
        for (int r = 0; r < rows; r++) {
            float *to = t->sums[row + r] + j;
            vf sum = l->p == 0 ? vf_zero() : some == VF_N ? vf_load(to) : vf_loadn(to, some);
            QN_UNROLL
            for (int q = 0; q < n; q++) sum = vf_fma_stay(one[r][q], w[q], sum);
            if (some == VF_N) vf_store(to, sum);
            else vf_storen(to, sum, some);
        }
    }
}

INLINE void add_rows(const task *t, kind type, const lines *l, int n) {
    int row = 0;
    for (; row + ROWS <= t->rows; row += ROWS) add_lines(t, type, l, n, row, ROWS);
    if (ROWS > 2 && row + 2 <= t->rows) {
        add_lines(t, type, l, n, row, 2);
        row += 2;
    }
    if (row < t->rows) add_lines(t, type, l, n, row, 1);
}

/* Numbers of 16 bits that several passes need are widened once. */
INLINE void add_widened(const task *t, kind type, const lines *l, int n) {
    float wide[LINES][CHUNK];
    const lines widened = {(const char *)wide[0], sizeof wide[0], l->p};
    for (int q = 0; q < n; q++) {
        const char *from = l->at + q * l->deep;
        int64_t j = 0;
        for (; j + VF_N <= t->columns; j += VF_N) {
            __builtin_prefetch(from + n * l->deep + j * size_of(type), 0, 3);
            vf_store(wide[q] + j, load(type, from + j * size_of(type)));
        }
        if (j < t->columns) vf_store(wide[q] + j, loadn(type, from + j * size_of(type), (int)(t->columns - j)));
    }
    add_rows(t, F32, &widened, n);
}

INLINE void add_some(const task *t, kind type, int64_t p, int n) {
    const lines l = {t->b + p * t->deep, t->deep, p};
    if (type != F32 && t->rows > ROWS) add_widened(t, type, &l, n);
    else add_rows(t, type, &l, n);
}

INLINE void add_up(const task *t, kind type) {
    int64_t p = 0;
    for (; p + LINES <= t->k; p += LINES) add_some(t, type, p, LINES);
    for (; p < t->k; p++) add_some(t, type, p, 1);
}

/* ---- Lines of B along the summed axis */

/* Stripes of the columns of a panel, that have been turned: words of 32 bits are lines, those of 16 bits pairs of lines. Pairs of f16 are
 * parted in memory, whence they are widened on the way to a register. */
typedef struct stripes {
    vf w[ACROSS][VF_STRIPE];
    uint16_t parted[ACROSS][2 * VF_STRIPE][VF_N];
    const uint16_t *h; /* there */
} stripes;

INLINE void turn(stripes *s, kind type, const char *at, const int64_t *rows) {
    const int64_t *row = vf_in_memory(rows);
    QN_UNROLL
    for (int v = 0; v < ACROSS; v++) {
        vf_turn_rows(at, row + v * VF_N, s->w[v]);
        QN_UNROLL
        for (int i = 0; i < VF_STRIPE && type == F16; i++) vf_part_pairs(s->w[v][i], s->parted[v][2 * i]);
    }
    if (type == F16) s->h = vf_in_memory(s->parted);
}

INLINE vf line_of(const stripes *s, kind type, int v, int i) {
    if (type == F32) return s->w[v][i];
    if (type == F16) return vf_load_h(s->h + (v * 2 * VF_STRIPE + i) * VF_N);
    return vf_of_bits(i % 2 ? vi_bits(s->w[v][i / 2]) & vi_set1(-65536) : vi_bits(s->w[v][i / 2]) << 16);
}

INLINE void multiply(const stripes *s, kind type, int depth, int64_t p, const float *const *x, int rows, vf sum[][ACROSS]) {
    const int most = VF_STRIPE * 4 / size_of(type);
    QN_UNROLL
    for (int i = 0; i < most; i++) {
        if (i >= depth) continue;
        QN_UNROLL
        for (int v = 0; v < ACROSS; v++) {
            vf line = line_of(s, type, v, i);
            QN_UNROLL
            for (int r = 0; r < rows; r++) sum[r][v] = vf_fma_stay(vf_set1(x[r][p + i]), line, sum[r][v]);
        }
    }
}

INLINE void load_sums(float *const *sums, int rows, vf sum[][ACROSS]) {
    QN_UNROLL
    for (int r = 0; r < rows; r++) {
        QN_UNROLL
        for (int v = 0; v < ACROSS; v++) sum[r][v] = vf_load(sums[r] + v * VF_N);
    }
}
INLINE void store_sums(float *const *sums, int rows, vf sum[][ACROSS]) {
    QN_UNROLL
    for (int r = 0; r < rows; r++) {
        QN_UNROLL
        for (int v = 0; v < ACROSS; v++) vf_store(sums[r] + v * VF_N, sum[r][v]);
    }
}

/* Rows of A that pass by stripes, with their sums in memory. */
INLINE void pass_by(const task *t, const stripes *s, kind type, int depth, int64_t p, int row, int rows) {
    vf sum[PASSING][ACROSS];
    load_sums(t->sums + row, rows, sum);
    multiply(s, type, depth, p, t->x + row, rows, sum);
    store_sums(t->sums + row, rows, sum);
}
INLINE void all_pass_by(const task *t, const stripes *s, kind type, int depth, int64_t p) {
    int r = 0;
    for (; r + PASSING <= t->rows; r += PASSING) pass_by(t, s, type, depth, p, r, PASSING);
    for (; r < t->rows; r++) pass_by(t, s, type, depth, p, r, 1);
}

/* What is left of the columns of a panel, less than stripes are deep. */
INLINE void turn_rest(const task *t, kind type, int64_t p) {
    char words[WIDE][VF_STRIPE * 4];
    int64_t row[WIDE];
    stripes s;
    int depth = (int)(t->k - p);
    memset(words, 0, sizeof words);
    for (int i = 0; i < WIDE; i++) row[i] = i * VF_STRIPE * 4;
    for (int i = 0; i < t->columns; i++)
        memcpy(words[i], t->b + i * t->along + p * size_of(type), (size_t)(depth * size_of(type)));
    turn(&s, type, words[0], row);
    all_pass_by(t, &s, type, depth, p);
}

/* A panel, at most WIDE columns, with so many rows of A, 0: as many as there are. Where the panel has fewer columns the last one stands in:
 * there is room for its sums. The machine finds by itself what comes next; to ask for it made this slower. */
INLINE void turn_up(const task *t, kind type, int rows) {
    const int size = size_of(type), step = VF_STRIPE * 4 / size;
    int64_t row[WIDE], p = 0;
    vf sum[PASSING][ACROSS];
    stripes s;
    for (int i = 0; i < WIDE; i++) row[i] = (i < t->columns ? i : t->columns - 1) * t->along;
    for (int r = 0; r < t->rows; r++) memset(t->sums[r], 0, WIDE * sizeof(float));
    load_sums(t->sums, rows, sum);
    for (; p + step <= t->k; p += step) {
        turn(&s, type, t->b + p * size, row);
        if (rows) multiply(&s, type, step, p, t->x, rows, sum);
        else all_pass_by(t, &s, type, step, p);
    }
    store_sums(t->sums, rows, sum);
    if (p < t->k) turn_rest(t, type, p);
}

typedef void (*task_fn)(const task *t);
#define BODIES(type)                                                  \
    static void add_##type(const task *t) { add_up(t, type); }        \
    static void turn_0_##type(const task *t) { turn_up(t, type, 0); } \
    static void turn_1_##type(const task *t) { turn_up(t, type, 1); } \
    static void turn_2_##type(const task *t) { turn_up(t, type, 2); } \
    static void turn_3_##type(const task *t) { turn_up(t, type, 3); } \
    static void turn_4_##type(const task *t) { turn_up(t, type, 4); }
BODIES(F32)
BODIES(F16)
BODIES(BF16)
/* By type: lines side by side; lines that are turned, by rows. */
#define NAMES(type) \
    { add_##type, turn_1_##type, turn_2_##type, turn_3_##type, turn_4_##type, turn_0_##type }
static const task_fn bodies[][PASSING + 2] = {NAMES(F32), NAMES(F16), NAMES(BF16)};

/* ---- The plan */

static int is_plain(const qn_gemm *g, const qn_gemm_side *s) {
    return s->fetch == qn_gemm_plain_fetch(s->dtype, s->along, s->deep, g->k);
}
static int lies_along(const qn_gemm *g) { return g->b.along == qn_float_bytes(g->b.dtype); }
/* Rows of A that need not be fetched. */
static int in_place(const qn_gemm *g) { return g->a.dtype == QN_DTYPE_F32 && g->a.deep == 4 && is_plain(g, &g->a); }

/* Columns of a unit. */
static int64_t columns_of(const qn_gemm *g, int64_t batches) {
    if (!lies_along(g)) return WIDE;
    double bytes = (double)(g->k * qn_float_bytes(g->b.dtype)), flops = (double)(g->k * g->m * 2) / 8;
    int64_t most = g->m * CHUNK > SUMS ? SUMS / g->m / VF_N * VF_N : CHUNK, parts = qn_cpu_parts(g->n * batches, bytes, flops);
    int64_t across = ((parts < UNITS ? parts : UNITS) + batches - 1) / batches, each = (g->n + across - 1) / across;
    each = (each + LEAST - 1) / LEAST * LEAST;
    return each < most ? each : most;
}

/* Few columns of many rows are left to tiles: a plan that was made for the most rows must have the scratch for less of them, too. */
int qn_gemm_few_plan(const qn_gemm *g, qn_gemm_cut *cut) {
    if (g->m > QN_GEMM_FEW || g->transposed || g->finish || g->store || !is_plain(g, &g->b)) return 0;
    if (!lies_along(g) && (g->b.deep != qn_float_bytes(g->b.dtype) || g->k == 1)) return 0;
    int64_t batches = 1;
    for (int i = 0; i < g->n_axes; i++) batches *= g->extent[i];
    int64_t most = columns_of(g, batches);
    cut->few = 1;
    cut->columns = most;
    cut->across = (g->n + most - 1) / most;
    cut->units = cut->across * batches;
    double each = (double)g->k * (double)g->n / (double)cut->across;
    cut->parts[1] = qn_cpu_parts(cut->units, each * (double)qn_float_bytes(g->b.dtype), each * (double)g->m * 2 / 8);
    cut->shared_batches = qn_gemm_side_batches(g, g->a_step);
    cut->share_units = in_place(g) ? 0 : cut->shared_batches * g->m;
    cut->parts[0] = qn_cpu_parts(cut->share_units, (double)g->k * 8, 0);
    cut->shared = (size_t)((cut->share_units * g->k * 4 + LINE - 1) / LINE * LINE);
    cut->slot = (size_t)(g->m * most) * sizeof(float);
    cut->workspace = cut->shared + cut->slot * (size_t)cut->parts[1];
    return 1;
}

/* ---- Running */

/* Rows of plain floats are lines to the fetch of the other way; those that somebody else hands over are panels of one. */
static void fetch_row(const qn_gemm *g, int64_t number, float *to) {
    const int64_t most = 1 << 20;
    int64_t at = qn_gemm_side_offset(g, g->a_step, number / g->m), row = number % g->m;
    qn_gemm_side turned = g->a;
    turned.along = g->a.deep;
    turned.deep = g->a.along;
    turned.fetch = is_plain(g, &g->a) ? qn_gemm_plain_fetch(g->a.dtype, turned.along, turned.deep, 1) : NULL;
    for (int64_t p = 0; p < g->k; p += most) {
        int some = (int)(g->k - p < most ? g->k - p : most);
        if (turned.fetch) turned.fetch(&turned, at, p, some, row, 1, to + p, some);
        else g->a.fetch(&g->a, at, row, 1, p, some, to + p, 1);
    }
}

static void run_unit(const qn_gemm *g, const qn_gemm_cut *cut, const float *shared, float *slot, int64_t number) {
    qn_gemm_place at = qn_gemm_place_of(g, g->a_step, number / cut->across);
    int64_t first = number % cut->across * cut->columns, left = g->n - first;
    task t = {.along = g->b.along, .deep = g->b.deep, .k = g->k, .rows = (int)g->m};
    int direct = lies_along(g) && qn_gemm_is_plain(g);
    t.b = g->b.data + at.b + first * g->b.along;
    t.columns = left < cut->columns ? left : cut->columns;
    for (int r = 0; r < t.rows; r++) {
        t.x[r] = in_place(g) ? (const float *)(const void *)(g->a.data + at.a + r * g->a.along)
                             : shared + (at.shared * g->m + r) * g->k;
        t.sums[r] = direct ? (float *)(void *)(g->c + at.c + r * g->c_row) + first : slot + r * cut->columns;
    }
    bodies[kind_of(g->b.dtype)][lies_along(g) ? 0 : t.rows > PASSING ? PASSING + 1 : t.rows](&t);
    for (int r = 0; r < t.rows && !direct; r++)
        qn_gemm_store_row(g, g->c + at.c + r * g->c_row + first * g->c_column, t.sums[r], (int)t.columns);
}

void qn_gemm_few_part(const qn_gemm *g, const qn_gemm_cut *cut, void *workspace, int phase, int64_t part) {
    float *shared = workspace, *slot = (float *)(void *)((char *)workspace + cut->shared + cut->slot * (size_t)part);
    int64_t units = phase == 0 ? cut->share_units : cut->units, end = qn_cpu_cut(units, cut->parts[phase], part + 1);
    for (int64_t i = qn_cpu_cut(units, cut->parts[phase], part); i < end; i++) {
        if (phase == 0) fetch_row(g, i, shared + i * g->k);
        else run_unit(g, cut, shared, slot, i);
    }
}
