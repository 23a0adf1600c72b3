/* The multiplication itself: rows of activations times unpacked panels. Its shape (rows, vectors, group, minimum, width of codes, runs) is
 * constant wherever the body is inlined. */
#include "cpu/kd_quant.h"

#define INLINE static inline __attribute__((always_inline))

enum { WIDEST = QN_DOT_PANELS_ONE * QN_PANEL_VECTORS, LINE = 64 };

typedef struct task {
    const qn_quant_chunk *w; /* of the first panel; others follow it */
    const qn_quant_row *const *x;
    int groups, offset;
    float *sums;
    int step;
    const uint8_t *next[QN_DOT_PANELS]; /* what comes next, and how many lines of each are asked for in a group; 0: none */
    int lines;
} task;

/* Vector v of the panels side by side. */
INLINE vu codes_at(const task *t, int i, int v) {
    return vu_load(t->w[v / QN_PANEL_VECTORS].codes[i] + v % QN_PANEL_VECTORS * VF_N);
}

INLINE void ask_for_next(const task *t, int g) {
    for (int i = g * t->lines; i < (g + 1) * t->lines; i++)
        for (int p = 0; p < QN_DOT_PANELS; p++) __builtin_prefetch(t->next[p] + i * LINE, 0, 3);
}

INLINE void dots(const task *t, int rows, int width, int group, int least, int wide, int run) {
    vf sum[QN_DOT_ROWS][WIDEST];
    const qn_quant_row *row[QN_DOT_ROWS];
    const int8_t *q[QN_DOT_ROWS];
    QN_UNROLL
    for (int j = 0; j < rows; j++) {
        row[j] = t->x[j];
        q[j] = row[j]->q;
        QN_UNROLL
        for (int v = 0; v < width; v++) sum[j][v] = vf_load(t->sums + j * t->step + v * VF_N);
    }
    for (int g = 0; g < t->groups; g++) {
        vi whole[QN_DOT_ROWS][WIDEST], part[QN_DOT_ROWS][WIDEST];
        ask_for_next(t, g);
        QN_UNROLL
        for (int j = 0; j < rows; j++) {
            vi start = vi_sum_start(-t->offset * row[j]->sum[g]);
            QN_UNROLL
            for (int v = 0; v < width; v++) whole[j][v] = start, part[j][v] = wide ? start : vi_run_start(start);
        }
        QN_UNROLL
        for (int i = 0; i < group / 4; i++) {
            vu codes[WIDEST];
            QN_UNROLL
            for (int v = 0; v < width; v++) codes[v] = codes_at(t, g * (group / 4) + i, v);
            QN_UNROLL
            for (int j = 0; j < rows; j++) {
                int32_t x = four_bytes(q[j] + g * group + 4 * i);
                QN_UNROLL
                for (int v = 0; v < width; v++) {
                    part[j][v] = wide ? vi_dot4_wide(part[j][v], codes[v], x) : vi_run_dot4(part[j][v], codes[v], x);
                    if ((i + 1) % run) continue;
                    whole[j][v] = wide ? part[j][v] : vi_run_end(part[j][v], whole[j][v]);
                    if (!wide) part[j][v] = vi_run_start(whole[j][v]);
                }
            }
        }
        QN_UNROLL
        for (int v = 0; v < width; v++) {
            const qn_quant_chunk *w = t->w + v / QN_PANEL_VECTORS;
            int at = v % QN_PANEL_VECTORS * VF_N;
            vf scale = vf_load(w->scale[g] + at);
            QN_UNROLL
            for (int j = 0; j < rows; j++) {
                sum[j][v] = vf_fma(vf_from_sum(whole[j][v]), scale * vf_set1(row[j]->d[g * group / 32]), sum[j][v]);
                if (least) sum[j][v] = vf_fma(vf_load(w->least[g] + at), vf_set1(row[j]->total[g]), sum[j][v]);
            }
        }
    }
    QN_UNROLL
    for (int j = 0; j < rows; j++) {
        QN_UNROLL
        for (int v = 0; v < width; v++) vf_store(t->sums + j * t->step + v * VF_N, sum[j][v]);
    }
}

typedef void (*dots_fn)(const task *t);

/* Kinds of types: group, minimum, width of codes, words of a run. */
#define KINDS_LONG(X) \
    X(plain, 32, 0, 0, 8) X(least, 32, 1, 0, 8) X(wide, 32, 0, 1, 8) X(half, 16, 0, 0, 4) X(half_least, 16, 1, 0, 4)
#if VI_RUNS /* and shorter ones */
#define KINDS(X)  \
    KINDS_LONG(X) \
    X(plain_4, 32, 0, 0, 4) X(plain_1, 32, 0, 0, 1) X(least_4, 32, 1, 0, 4) X(half_2, 16, 0, 0, 2) X(half_1, 16, 0, 0, 1)
#else
#define KINDS(X) KINDS_LONG(X)
#endif
#define KIND(kind, ...) KIND_##kind,
enum { KINDS(KIND) };
static int kind_of(const qn_quant_type *t) {
    if (t->is_wide) return KIND_wide;
#if VI_RUNS
    int run = vi_run_words(t->most);
    if (t->group == 32 && run < 8) return t->has_least ? KIND_least_4 : run == 4 ? KIND_plain_4 : KIND_plain_1;
    if (t->group == 16 && run < 4) return run == 2 ? KIND_half_2 : KIND_half_1;
#endif
    if (t->group == 32) return t->has_least ? KIND_least : KIND_plain;
    return t->has_least ? KIND_half_least : KIND_half;
}

/* One function per kind, number of rows and number of panels: 1 or QN_DOT_PANELS, and QN_DOT_PANELS_ONE for a single row. */
#define BODY(name, rows, panels, ...) \
    static void name(const task *t) { dots(t, rows, (panels)*QN_PANEL_VECTORS, __VA_ARGS__); }
#define BODIES(kind, ...)                               \
    BODY(one_##kind, 1, QN_DOT_PANELS_ONE, __VA_ARGS__) \
    BODY(r1_##kind, 1, 1, __VA_ARGS__)                  \
    BODY(r2_##kind, 2, 1, __VA_ARGS__)                  \
    BODY(p1_##kind, 1, QN_DOT_PANELS, __VA_ARGS__)      \
    BODY(p2_##kind, 2, QN_DOT_PANELS, __VA_ARGS__)
#define ROW_BODIES(n, kind, ...)           \
    BODY(r##n##_##kind, n, 1, __VA_ARGS__) \
    BODY(p##n##_##kind, n, QN_DOT_PANELS, __VA_ARGS__)
#define BODIES_3(...) ROW_BODIES(3, __VA_ARGS__)
#define BODIES_6(...) ROW_BODIES(4, __VA_ARGS__) ROW_BODIES(5, __VA_ARGS__) ROW_BODIES(6, __VA_ARGS__)
#if QN_DOT_ROWS == 6
#define UP_TO(p, kind) \
    { p##1_##kind, p##2_##kind, p##3_##kind, p##4_##kind, p##5_##kind, p##6_##kind }
KINDS(BODIES)
KINDS(BODIES_3)
KINDS(BODIES_6)
#elif QN_DOT_ROWS == 3
#define UP_TO(p, kind) \
    { p##1_##kind, p##2_##kind, p##3_##kind }
KINDS(BODIES)
KINDS(BODIES_3)
#else
#define UP_TO(p, kind) \
    { p##1_##kind, p##2_##kind }
KINDS(BODIES)
#endif

#define NAMES_ONE(kind, ...) one_##kind,
#define NAMES_PANEL(kind, ...) UP_TO(r, kind),
#define NAMES_PANELS(kind, ...) UP_TO(p, kind),
static const dots_fn one_row[] = {KINDS(NAMES_ONE)};
static const dots_fn one_panel[][QN_DOT_ROWS] = {KINDS(NAMES_PANEL)};
static const dots_fn some_panels[][QN_DOT_ROWS] = {KINDS(NAMES_PANELS)};

/* All rows in as many passes as the registers ask for, as even as they come; the first asks for what comes next. */
static void all_rows(const dots_fn *by_rows, task *t, int n) {
    int passes = (n + QN_DOT_ROWS - 1) / QN_DOT_ROWS, each = (n + passes - 1) / passes;
    for (int j = 0; j < n; j += each, t->x += each, t->sums += each * (int64_t)t->step, t->lines = 0)
        by_rows[(n - j < each ? n - j : each) - 1](t);
}

void qn_quant_dots(const qn_quant_type *t, const qn_quant_chunk *w, int panels, const qn_quant_row *const *x, int n, int count,
                   float *sums, int step, const qn_quant_next *next) {
    int kind = kind_of(t), groups = count / t->group;
    task k = {.w = w, .x = x, .groups = groups, .offset = t->offset, .sums = sums, .step = step};
    for (int p = 0; p < QN_DOT_PANELS && next->panels; p++) k.next[p] = next->at[p < next->panels ? p : 0];
    if (next->panels) k.lines = (next->bytes + groups * LINE - 1) / (groups * LINE);
#ifdef QN_HAS_TILES
    if (qn_quant_by_tiles(t, n) && panels >= QN_TILE_LEAST) {
        int done = n - n % QN_TILE_ROWS;
        qn_quant_tiles(t, w, panels, x, done, count, sums, step);
        k.x += done;
        k.sums += done * (int64_t)step;
        n -= done;
    }
#endif
    if (n == 1 && panels == QN_DOT_PANELS_ONE) one_row[kind](&k);
    else if (n > 0)
        for (int p = 0, some; p < panels; p += some) {
            task one = k;
            some = panels - p < QN_DOT_PANELS ? 1 : QN_DOT_PANELS;
            one.w += p;
            one.sums += p * QN_PANEL;
            all_rows((some == 1 ? one_panel : some_panels)[kind], &one, n);
        }
}
