/* Streams of packed floats: packing, and the product with a few rows. */
#include "cpu/k_stream.h"
#include "base/clock.h"
#include "cpu/simd/simd_rows.h"

#define INLINE static inline __attribute__((always_inline))

enum { WIDE = QN_GEMM_WIDE, VECTORS = WIDE / VF_N };
/* Rows whose sums fit the registers beside a line of weights, how many panels go abreast for each number of rows up to TOLD and with MORE, and
 * which bodies (rows, panels) that takes; bytes before they are read, a line is asked for. A model of a Neoverse V1 gives four streams with one row a
 * tenth. More rows than fit take several passes over a depth of weights: by SHARED bodies, where two panels abreast fit.
 *
 * x86 has two ways with one row: every line is asked for LATER, two streams at a time with AVX-512 and four with AVX2; or four at a time, of
 * which only pages' beginnings are, where machines stop to look ahead by themselves. On one machine the second reads a fifth more, on
 * another the first does. */
#define MANY_3(DO, ...) DO(1, 2, 1, __VA_ARGS__) DO(2, 2, 1, __VA_ARGS__) DO(3, 2, 1, __VA_ARGS__)
#define SHARED(DO, ...)
#if defined(__AVX512F__)
#define TWO_WAYS 1
enum { ROWS = 4, MOST = 4, MORE = 2, DEPTH = 64, SOON = QN_SOON, LATER = QN_LATER };
#define ABREAST \
    { 2, 4, 4, 2 }
#define MANY(DO, ...) DO(1, 2, 1, __VA_ARGS__) DO(2, 4, 1, __VA_ARGS__) DO(3, 4, 1, __VA_ARGS__) DO(4, 2, 1, __VA_ARGS__)
#undef SHARED
#define SHARED(DO, ...) DO(2, 2, 2, __VA_ARGS__) DO(3, 2, 2, __VA_ARGS__) DO(4, 2, 2, __VA_ARGS__)
#elif defined(__AVX2__)
#define TWO_WAYS 1
enum { ROWS = 4, MOST = 4, MORE = 1, DEPTH = 512, SOON = QN_SOON, LATER = QN_LATER };
#define ABREAST \
    { 4, 2, 2, 1 }
#define MANY(DO, ...) DO(1, 4, 1, __VA_ARGS__) DO(2, 2, 1, __VA_ARGS__) DO(3, 2, 1, __VA_ARGS__)
#elif QN_REGISTERS == 32
enum { ROWS = 8, MOST = 4, MORE = 1, DEPTH = 512, SOON = 2048, LATER = 0 };
#define ABREAST \
    { 4, 2, 2, 2 }
#define MANY(DO, ...) DO(1, 4, 1, __VA_ARGS__) DO(2, 2, 1, __VA_ARGS__) DO(3, 2, 1, __VA_ARGS__) DO(4, 2, 1, __VA_ARGS__)
#else
enum { ROWS = 4, MOST = 2, MORE = 1, DEPTH = 512, SOON = 2048, LATER = 0 };
#define ABREAST \
    { 2, 2, 2, 1 }
#define MANY(DO, ...) MANY_3(DO, __VA_ARGS__)
#endif
enum { TOLD = 4 };
static const int abreast[TOLD] = ABREAST;

typedef vf (*load_fn)(const char *line, int v);
INLINE vf load_f32(const char *line, int v) { return vf_load((const float *)(const void *)line + v * VF_N); }
#if defined(__ARM_FEATURE_FP16_FML)
INLINE vf load_f16(const char *line, int v) { return vf_load_h_times_one((const uint16_t *)(const void *)line + v * VF_N); }
#else
INLINE vf load_f16(const char *line, int v) { return vf_load_h((const uint16_t *)(const void *)line + v * VF_N); }
#endif
INLINE vf load_bf16(const char *line, int v) { return vf_load_b((const uint16_t *)(const void *)line + v * VF_N); }

/* ---- Packing */

/* Rows for all lanes whose elements lie side by side: words of them are turned, a stripe at a time. Returns how many lines that gave. */
INLINE int64_t pack_stripes(const char *from, int64_t along, int64_t k, int size, char *to) {
    const int64_t deep = VF_STRIPE * 4 / size;
    int64_t row[WIDE], p = 0;
    for (int i = 0; i < WIDE; i++) row[i] = i * along;
    for (; p + deep <= k; p += deep)
        for (int v = 0; v < WIDE; v += VF_N) {
            vf words[VF_STRIPE];
            vf_turn_rows(from + p * size, row + v, words);
            for (int i = 0; i < VF_STRIPE; i++) {
                uint16_t pairs[2][VF_N];
                char *line = to + ((p + i * 4 / size) * WIDE + v) * size;
                if (size == 4) {
                    vf_store((float *)(void *)line, words[i]);
                    continue;
                }
                vf_part_pairs(words[i], pairs[0]);
                memcpy(line, pairs[0], sizeof pairs[0]);
                memcpy(line + WIDE * size, pairs[1], sizeof pairs[1]);
            }
        }
    return p;
}

INLINE void pack_elements(const char *from, int64_t along, int64_t deep, int rows, int64_t k, int size, char *to) {
    enum { AT_A_TIME = 64 };
    memset(to, 0, (size_t)(k * WIDE * size));
    for (int64_t first = 0; first < k; first += AT_A_TIME) { /* lines of the panel stay in the first cache */
        int64_t end = first + AT_A_TIME < k ? first + AT_A_TIME : k;
        for (int i = 0; i < rows; i++)
            for (int64_t p = first; p < end; p++) memcpy(to + (p * WIDE + i) * size, from + i * along + p * deep, (size_t)size);
    }
}

INLINE void pack_panel(const char *from, int64_t along, int64_t deep, int rows, int64_t k, int size, char *to) {
    int64_t p = rows == WIDE && deep == size ? pack_stripes(from, along, k, size, to) : 0;
    pack_elements(from + p * deep, along, deep, rows, k - p, size, to + p * WIDE * size);
}

void qn_stream_pack(const char *from, uint32_t dtype, int64_t along, int64_t deep, int rows, int64_t k, void *panel) {
    if (dtype == QN_DTYPE_F32) pack_panel(from, along, deep, rows, k, 4, panel);
    else pack_panel(from, along, deep, rows, k, 2, panel);
}

/* ---- A few rows */

/* What is asked for while a line is read: so many bytes behind it, and from line `turn` on (-1: never) what is read next. */
typedef struct asked {
    int64_t behind, turn;
} asked;

typedef struct task {
    const char *panel; /* at the first line */
    const char *next;  /* what is read behind the last line */
    int64_t apart;     /* bytes from one panel to the next */
    const char *asked; /* where `soon` counts from: the first line, if it is not a copy */
    int64_t asked_apart;
    int64_t depth;
    const float *const *x; /* of the first row; at the first element */
    int64_t first;
    float *sums; /* [row][panel][WIDE], where they stay between depths */
    int begins;  /* with zero */
    asked soon, later;
} task;

/* A pass over a depth. Each of several passes asks for its share of the depth that follows. `starts`: lines that are read later are asked
 * for where a page begins only. */
INLINE void stream(const task *t, int rows, int panels, int passes, int starts, int size, load_fn load) {
    vf sum[ROWS][MOST * VECTORS];
    const float *x[ROWS];
    const char *line = t->panel, *soon = t->asked + t->soon.behind, *later = t->panel + t->later.behind;
    QN_UNROLL
    for (int j = 0; j < rows; j++) {
        x[j] = t->x[j] + t->first;
        QN_UNROLL
        for (int v = 0; v < panels * VECTORS; v++)
            sum[j][v] = t->begins ? vf_zero() : vf_load(t->sums + j * panels * WIDE + v * VF_N);
    }
    for (int64_t p = 0; p < t->depth; p++, line += WIDE * size, soon += WIDE * size / passes, later += WIDE * size) {
        if (p == t->soon.turn) soon = t->next;
        if (p == t->later.turn) later = t->next;
        QN_UNROLL
        for (int i = 0; i < panels; i++) {
            for (int at = 0; at < WIDE * size / passes; at += 64) {
                __builtin_prefetch(soon + i * t->asked_apart + at, 0, 3);
                if (LATER == 0 || passes > 1 ||
                    (starts && (uintptr_t)(later + i * t->apart + at) % QN_AHEAD_PAGE >= QN_AHEAD_START))
                    continue;
                __builtin_prefetch(later + i * t->apart + at, 0, 2);
            }
            QN_UNROLL
            for (int v = 0; v < VECTORS; v++) {
                vf w = load(line + i * t->apart, v);
                QN_UNROLL
                for (int j = 0; j < rows; j++)
                    sum[j][i * VECTORS + v] = vf_fma_stay(vf_set1(x[j][p]), w, sum[j][i * VECTORS + v]);
            }
        }
    }
    QN_UNROLL
    for (int j = 0; j < rows; j++) {
        QN_UNROLL
        for (int v = 0; v < panels * VECTORS; v++) vf_store(t->sums + j * panels * WIDE + v * VF_N, sum[j][v]);
    }
}

typedef void (*stream_fn)(const task *t);
#define STREAM(rows, panels, passes, type, size) \
    static void s##rows##_##panels##_##passes##_##type(const task *t) { stream(t, rows, panels, passes, 0, size, load_##type); }
#define ONE(DO, ...) DO(1, 1, 1, __VA_ARGS__) DO(2, 1, 1, __VA_ARGS__) DO(3, 1, 1, __VA_ARGS__) DO(4, 1, 1, __VA_ARGS__)
#if QN_REGISTERS == 32 && !defined(QN_SIMD_AVX512)
#define ONE_MORE(DO, ...) DO(5, 1, 1, __VA_ARGS__) DO(6, 1, 1, __VA_ARGS__) DO(7, 1, 1, __VA_ARGS__) DO(8, 1, 1, __VA_ARGS__)
#else
#define ONE_MORE(DO, ...)
#endif
#define ALL(DO, ...) ONE(DO, __VA_ARGS__) ONE_MORE(DO, __VA_ARGS__) MANY(DO, __VA_ARGS__) SHARED(DO, __VA_ARGS__)
ALL(STREAM, f32, 4)
ALL(STREAM, f16, 2)
ALL(STREAM, bf16, 2)
#ifdef TWO_WAYS
#define STARTS(type, size) \
    static void starts_##type(const task *t) { stream(t, 1, MOST, 1, 1, size, load_##type); }
STARTS(f32, 4)
STARTS(f16, 2)
STARTS(bf16, 2)
#define FOUR_STARTS(type) {starts_##type},
#else
#define FOUR_STARTS(type)
#endif
#define NAME(rows, panels, passes, type) [rows - 1] = s##rows##_##panels##_##passes##_##type,
#define NAMES(type) \
    { {ONE(NAME, type) ONE_MORE(NAME, type)}, {MANY(NAME, type)}, {[0] = NULL, SHARED(NAME, type)}, FOUR_STARTS(type) }
/* By type, by how many panels (one; several in one pass; several in one of several passes; MOST by the beginnings of pages), by rows. */
enum { ONE_PANEL, IN_ONE_PASS, IN_SEVERAL, BY_STARTS, KINDS };
static const stream_fn streams[][KINDS][ROWS] = {NAMES(f32), NAMES(f16), NAMES(bf16)};

/* Some lines of some panels, and their sums. Then come lines from `next_line` on of panels from `next` on. */
typedef struct span {
    int64_t panel;
    int panels;
    int64_t line, end, next, next_line;
    float *sums; /* [row][panel][WIDE] */
} span;

/* Lines of weights of 16 bits as floats, for so many passes that it pays. */
enum { WIDENED = 64, WIDENED_FROM = 4 };
_Static_assert((WIDENED_FROM - 1) * ROWS >= TOLD, "so many passes are of MORE panels at most");
INLINE void widen_lines(const task *t, int panels, load_fn load, float *to) {
    for (int i = 0; i < panels; i++)
        for (int64_t p = 0; p < t->depth; p++) {
            const char *line = t->panel + i * t->apart + p * WIDE * 2;
            QN_UNROLL
            for (int v = 0; v < VECTORS; v++) vf_store(to + (i * WIDENED + p) * WIDE + v * VF_N, load(line, v));
        }
}

/* What a pass asks for: with several passes its share of the depth behind, else what is read soon and later. More
 * than two passes ask for some lines more than once, which costs little. */
static void ask_in_pass(task *t, int64_t left, int size, int pass, int passes, int shared, int copied) {
    asked share = {(t->depth + pass * t->depth / passes) * WIDE * size, -1};
    t->soon = shared || copied ? share : (asked){SOON, left - SOON / (WIDE * size)};
    t->later = copied ? (asked){0, -1} : (asked){LATER, left - LATER / (WIDE * size)};
}

/* Depth by depth when the rows do not go through at once, so that a depth of weights is still at hand for the rows that follow. */
static void run_span(const qn_stream *s, span a, int kind) {
    int type = s->dtype == QN_DTYPE_F32 ? 0 : s->dtype == QN_DTYPE_F16 ? 1 : 2, size = type ? 2 : 4;
    int passes = (s->n + ROWS - 1) / ROWS, widened = passes >= WIDENED_FROM && size == 2;
    int64_t bytes = qn_stream_panel_bytes(s->dtype, s->k), depth = passes == 1 ? a.end - a.line : widened ? WIDENED : DEPTH;
    _Alignas(64) float wide[MORE * WIDENED * WIDE];
    task t = {.next = s->panel + a.next * bytes + a.next_line * WIDE * size};
    for (t.first = a.line; t.first < a.end; t.first += depth) {
        t.panel = t.asked = s->panel + a.panel * bytes + t.first * WIDE * size;
        t.apart = t.asked_apart = bytes;
        t.depth = a.end - t.first < depth ? a.end - t.first : depth;
        t.begins = t.first == 0;
        if (widened) {
            if (type == 1) widen_lines(&t, a.panels, load_f16, wide);
            else widen_lines(&t, a.panels, load_bf16, wide);
            t.panel = (const char *)wide;
            t.apart = WIDENED * WIDE * 4;
        }
        for (int pass = 0; pass < passes; pass++) {
            int j = s->n * pass / passes, rows = s->n * (pass + 1) / passes - j; /* nearly the same for each */
            t.x = s->x + j;
            t.sums = a.sums + j * a.panels * WIDE;
            ask_in_pass(&t, a.end - t.first, size, pass, passes, kind == IN_SEVERAL, widened);
            streams[widened ? 0 : type][kind][rows - 1](&t);
        }
    }
}

/* Row j of some panels is finished. */
static void write_row(const qn_stream *s, int j, span a) {
    int64_t left = s->columns - a.panel * WIDE, columns = left < a.panels * WIDE ? left : a.panels * WIDE;
    memcpy(s->y[j] + a.panel * WIDE, a.sums + j * a.panels * WIDE, (size_t)columns * 4);
}

static void run_panels(const qn_stream *s, int64_t first, int n) {
    float sums[QN_STREAM_ROWS * MOST * WIDE];
    span all = {first, n, 0, s->k, first + n, 0, sums};
    run_span(s, all, n == 1 ? ONE_PANEL : s->n <= ROWS ? IN_ONE_PASS : IN_SEVERAL);
    for (int j = 0; j < s->n; j++) write_row(s, j, all);
}

#ifdef TWO_WAYS
/* MOST panels and one row, by either way. A contest needs so many bytes that its clock does not count. */
enum { CONTESTED = 1 << 17 };

static void run_by(const qn_stream *s, span all, int starts) {
    int n = starts ? MOST : abreast[0];
    for (int i = 0; i < MOST; i += n) {
        span a = all;
        a.panel += i;
        a.panels = n;
        a.sums += i * WIDE;
        if (i + n < MOST) a.next = a.panel + n, a.next_line = a.line;
        run_span(s, a, starts ? BY_STARTS : IN_ONE_PASS);
    }
}

static void run_contested(const qn_stream *s, span all, int way) {
    span first = all, second = all;
    first.next = all.panel;
    first.end = first.next_line = second.line = s->k / 2;
    uint64_t begin = qn_clock_now();
    run_by(s, first, way);
    uint64_t turn = qn_clock_now();
    run_by(s, second, !way);
    qn_contest_won(s->contest, qn_clock_now() - turn < turn - begin ? !way : way);
}

static void run_faster(const qn_stream *s, int64_t first) {
    float sums[MOST * WIDE];
    span all = {first, MOST, 0, s->k, first + MOST, 0, sums};
    int large = qn_stream_panel_bytes(s->dtype, s->k) * MOST >= CONTESTED, way;
    if (large && s->contest && qn_contest_next(s->contest, &way)) run_contested(s, all, way);
    else run_by(s, all, s->contest && qn_contest_leader(s->contest));
    write_row(s, 0, all);
}
#endif

void qn_stream_run(const qn_stream *s) {
    int n = s->n <= TOLD ? abreast[s->n - 1] : MORE;
    int64_t i = 0;
#ifdef TWO_WAYS
    for (; s->n == 1 && i + MOST <= s->panels; i += MOST) run_faster(s, i);
#endif
    for (; n > 1 && i + n <= s->panels; i += n) run_panels(s, i, n);
    for (; i < s->panels; i++) run_panels(s, i, 1);
}

const qn_stream_way *qn_stream_here(void) {
    static const qn_stream_way way = {qn_stream_panel_bytes, qn_stream_pack, qn_stream_run};
    return &way;
}
