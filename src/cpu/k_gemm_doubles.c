/* The product of k_gemm.h in f64. A sum is added up from its first term to its last, each product rounded before it is added: the bits
 * are those of the reference. Lanes lie along the columns, of which a panel is laid out at a time; rows are read where they lie. */
#include "cpu/k_gemm.h"
#include "cpu/k_lanes.h"
#include "cpu/simd/simd_turn.h"
#include "cpu/simd/simd_wide.h"

enum { LANES = VF_N / 2, ROWS = 4, VECTORS = QN_REGISTERS == 32 ? 4 : 2, WIDE = VECTORS * LANES, DEPTH = 512, UNITS = 16 };

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int qn_gemm_doubles_plan(const qn_gemm *g, qn_gemm_cut *cut) {
    int64_t batches = 1, depth = g->k < DEPTH ? g->k : DEPTH;
    if (g->c_dtype != QN_DTYPE_F64) return 0;
    for (int i = 0; i < g->n_axes; i++) batches *= g->extent[i];
    *cut = (qn_gemm_cut){.doubles = 1, .columns = WIDE, .across = ceil_div(g->n, WIDE), .parts = {1}};
    /* Rows are cut where columns do not give enough units: each of these lays out the panel for itself. */
    cut->down = cut->across * batches >= UNITS ? 1 : ceil_div(UNITS, cut->across * batches);
    if (cut->down > ceil_div(g->m, 8 * ROWS)) cut->down = ceil_div(g->m, 8 * ROWS);
    cut->rows = ceil_div(g->m, cut->down);
    cut->units = cut->across * cut->down * batches;
    cut->parts[1] = qn_cpu_parts(cut->units, 16.0 * (double)(g->k * WIDE), 2.0 * (double)(cut->rows * g->k * WIDE));
    cut->slot = (size_t)(depth * WIDE) * sizeof(double);
    cut->workspace = cut->slot * (size_t)cut->parts[1];
    return 1;
}

enum { TURN = 32 };

/* Columns that lie deep, some of each at a time. */
static void turn_panel(const qn_gemm *g, const char *b, int64_t columns, int64_t depth, double *to) {
    for (int64_t first = 0; first < depth; first += TURN)
        for (int64_t j = 0; j < columns; j++) {
            const double *from = (const double *)(const void *)(b + j * g->b.along) + first;
            for (int64_t p = 0; p < TURN && first + p < depth; p++) to[(first + p) * WIDE + j] = from[p];
        }
    for (int64_t p = 0; columns < WIDE && p < depth; p++)
        for (int64_t j = columns; j < WIDE; j++) to[p * WIDE + j] = 0;
}

/* Columns that are not there are 0. */
static void lay_panel(const qn_gemm *g, const char *b, int64_t columns, int64_t depth, double *to) {
    if (g->b.deep == 8 && g->b.along != 8) {
        turn_panel(g, b, columns, depth, to);
        return;
    }
    for (int64_t p = 0; p < depth; p++, b += g->b.deep, to += WIDE) {
        if (g->b.along == 8) memcpy(to, b, (size_t)columns * 8);
        else
            for (int64_t j = 0; j < columns; j++) to[j] = *(const double *)(const void *)(b + j * g->b.along);
        for (int64_t j = columns; j < WIDE; j++) to[j] = 0;
    }
}

/* `rows` rows of sums, which go on from what is in them. */
QN_INLINE void tile(int rows, const qn_gemm *g, const char *a, const double *panel, int64_t depth, double sums[ROWS][WIDE]) {
    vd s[ROWS][VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++) s[r][v] = vd_load(sums[r] + v * LANES);
    for (int64_t p = 0; p < depth; p++, a += g->a.deep, panel += WIDE) {
        vd b[VECTORS];
        QN_UNROLL
        for (int v = 0; v < VECTORS; v++) b[v] = vd_load(panel + v * LANES);
        QN_UNROLL
        for (int r = 0; r < rows; r++) {
            vd one = vd_set1(*(const double *)(const void *)(a + r * g->a.along));
            QN_UNROLL
            for (int v = 0; v < VECTORS; v++) s[r][v] += one * b[v];
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++) vd_store(sums[r] + v * LANES, s[r][v]);
}

/* What is in C so far; nothing before the first term. */
static void begin_rows(const qn_gemm *g, const char *c, int rows, int64_t columns, int64_t first_k, double sums[ROWS][WIDE]) {
    memset(sums, 0, (size_t)rows * sizeof *sums);
    for (int r = 0; first_k > 0 && r < rows; r++)
        for (int64_t j = 0; j < columns; j++) sums[r][j] = *(const double *)(const void *)(c + r * g->c_row + j * g->c_column);
}

static void end_rows(const qn_gemm *g, char *c, int rows, int64_t columns, double sums[ROWS][WIDE]) {
    for (int r = 0; r < rows; r++)
        for (int64_t j = 0; j < columns; j++) *(double *)(void *)(c + r * g->c_row + j * g->c_column) = sums[r][j];
}

enum { FEW = 2, CHAINS = 8 };

/* Some sums of one row, of columns that lie deep, each a chain of its own: for a row or two a panel costs more than it saves. */
QN_INLINE void chains(int n, const qn_gemm *g, const char *a, const char *b, double *sums) {
    double s[CHAINS] = {0};
    const double *from[CHAINS];
    for (int j = 0; j < n; j++) from[j] = (const double *)(const void *)(b + j * g->b.along);
    for (int64_t p = 0; p < g->k; p++, a += g->a.deep) {
        double one = *(const double *)(const void *)a;
        QN_UNROLL
        for (int j = 0; j < n; j++) s[j] += one * from[j][p];
    }
    for (int j = 0; j < n; j++) sums[j] = s[j];
}

static void run_few(const qn_gemm *g, const char *a, const char *b, int64_t columns, double *sums) {
    int64_t j = 0;
    for (; j + CHAINS <= columns; j += CHAINS) chains(CHAINS, g, a, b + j * g->b.along, sums + j);
    for (; j < columns; j++) chains(1, g, a, b + j * g->b.along, sums + j);
}

static void run_unit(const qn_gemm *g, const qn_gemm_cut *cut, int64_t number, double *panel) {
    qn_gemm_place at = qn_gemm_place_of(g, g->a_step, number / (cut->across * cut->down));
    int64_t first = number % cut->across * WIDE, columns = g->n - first < WIDE ? g->n - first : WIDE;
    int64_t row = number / cut->across % cut->down * cut->rows, end = row + cut->rows < g->m ? row + cut->rows : g->m;
    double sums[ROWS][WIDE];
    if (g->m <= FEW && g->b.deep == 8) {
        for (int64_t i = row; i < end; i++) {
            run_few(g, g->a.data + at.a + i * g->a.along, g->b.data + at.b + first * g->b.along, columns, sums[0]);
            end_rows(g, g->c + at.c + i * g->c_row + first * g->c_column, 1, columns, sums);
        }
        return;
    }
    for (int64_t k = 0, depth; k < g->k; k += depth) {
        depth = g->k - k < DEPTH ? g->k - k : DEPTH;
        lay_panel(g, g->b.data + at.b + first * g->b.along + k * g->b.deep, columns, depth, panel);
        for (int64_t i = row; i < end; i += ROWS) {
            const char *a = g->a.data + at.a + i * g->a.along + k * g->a.deep;
            char *c = g->c + at.c + i * g->c_row + first * g->c_column;
            int rows = end - i < ROWS ? (int)(end - i) : ROWS;
            begin_rows(g, c, rows, columns, k, sums);
            if (rows == ROWS) tile(ROWS, g, a, panel, depth, sums);
            else
                for (int r = 0; r < rows; r++) tile(1, g, a + r * g->a.along, panel, depth, sums + r);
            end_rows(g, c, rows, columns, sums);
        }
    }
}

void qn_gemm_doubles_part(const qn_gemm *g, const qn_gemm_cut *cut, void *workspace, int phase, int64_t part) {
    double *panel = (double *)(void *)((char *)workspace + cut->slot * (size_t)part);
    if (phase == 0) return; /* there is nothing that all share */
    int64_t end = qn_cpu_cut(cut->units, cut->parts[1], part + 1);
    for (int64_t u = qn_cpu_cut(cut->units, cut->parts[1], part); u < end; u++) run_unit(g, cut, u, panel);
}
