/* affine_matmul and affine_matmul_id for a few tokens: codes, packed with lanes along the rows of weights, are read once as streams. An
 * element is decoded as in the large product and summed by the same chain (see k_gemm.h), so it has the same bits.
 *
 * Packed: matrix by matrix, panels of WIDE rows; of each, group by group, the rows' scales, their biases, and for each element of
 * the group a line of codes, of 4 bits or of 8. A line of 4 bits has the codes of the first half of the rows in the lower halves of
 * its bytes. */
#include "cpu/k_affine.h"
#include "cpu/k_copy.h"
#include "cpu/k_experts.h"
#include "cpu/k_lanes.h"
#include "cpu/simd/simd_codes.h"
#include "cpu/simd/simd_turn.h"

enum { VECTORS = 2, WIDE = VECTORS * VF_N, ROWS = 4, AHEAD = 1024 };
/* Panels of a unit, and how many of them go abreast: as many as the registers hold beside scales and biases. */
#if defined(__AVX512F__)
enum { UNIT = 4, ABREAST_ONE = 4, ABREAST = 2 };
#elif QN_REGISTERS == 32
enum { UNIT = 4, ABREAST_ONE = 4, ABREAST = 1 };
#else
enum { UNIT = 4, ABREAST_ONE = 2, ABREAST = 1 };
#endif
enum { MOST = ABREAST_ONE };

typedef struct few {
    qn_affine a;
    const qn_tensor *ids;        /* which matrix each row goes to; NULL: there is but one */
    int64_t m, used, lines;      /* rows of y, those of a token, rows of x */
    int64_t matrices, n, groups; /* matrices, rows of one, groups of a row */
    int64_t panels, panel, lot;  /* panels of a matrix; bytes of a panel, of a group in it */
    int bits, size;              /* bits of a packed code, bytes of a scale */
} few;

static int describe(const qn_call *c, few *f) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    int by_expert = c->op == QN_OP_affine_matmul_id;
    if (!qn_affine_describe(c, 1, &f->a) || !qn_lanes_float(y->dtype) || !qn_cpu_is_dense(x) || !qn_cpu_is_dense(y)) return 0;
    if (f->a.group % 16 || !qn_lanes_float(x->dtype)) return 0; /* decoded by whole vectors */
    f->ids = by_expert ? c->src[4] : NULL;
    f->n = qn_ne(y, 0);
    f->m = qn_tensor_count(y) / f->n;
    f->used = by_expert ? qn_ne(y, 1) : 1;
    f->lines = qn_tensor_count(x) / f->a.length;
    f->matrices = by_expert ? qn_ne(f->a.codes, 2) : 1;
    f->groups = f->a.length / f->a.group;
    f->panels = (f->n + WIDE - 1) / WIDE;
    f->bits = f->a.bits <= 4 ? 4 : 8;
    f->size = f->a.scales->dtype == QN_DTYPE_F32 ? 4 : 2;
    f->lot = 2 * WIDE * f->size + f->a.group * WIDE * f->bits / 8;
    f->panel = f->groups * f->lot;
    return f->m <= QN_AFFINE_FEW * f->used && f->n >= WIDE && f->matrices < INT32_MAX;
}

/* ---- Packing */

/* Code i of a row, which is one stream of bits. */
static unsigned code_at(const few *f, const uint8_t *row, int64_t i) {
    int64_t bit = i * f->a.bits, byte = bit / 8;
    unsigned have = row[byte], shift = (unsigned)(bit % 8);
    if (shift + (unsigned)f->a.bits > 8) have |= (unsigned)row[byte + 1] << 8;
    return have >> shift & ((1u << f->a.bits) - 1);
}

static void pack_line(const few *f, const uint8_t *const *codes, int rows, int64_t i, uint8_t *to) {
    memset(to, 0, (size_t)(WIDE * f->bits / 8));
    for (int r = 0; r < rows; r++) {
        unsigned code = code_at(f, codes[r], i);
        if (f->bits == 8) to[r] = (uint8_t)code;
        else to[r % (WIDE / 2)] |= (uint8_t)(code << (r < WIDE / 2 ? 0 : 4));
    }
}

static void pack_panel(const few *f, int64_t panel, char *to) {
    const qn_tensor *s = f->a.scales, *b = f->a.biases, *k = f->a.codes;
    const char *codes[WIDE], *scales[WIDE], *biases[WIDE];
    int64_t which = panel / f->panels, first = panel % f->panels * WIDE;
    int rows = f->n - first < WIDE ? (int)(f->n - first) : WIDE;
    for (int r = 0; r < rows; r++) {
        codes[r] = qn_at(k, qn_off4(k, 0, which, first + r, 0));
        scales[r] = qn_at(s, qn_off4(s, 0, which, first + r, 0));
        biases[r] = qn_at(b, qn_off4(b, 0, which, first + r, 0));
    }
    for (int64_t g = 0; g < f->groups; g++, to += f->lot) {
        memset(to, 0, (size_t)(2 * WIDE * f->size));
        for (int r = 0; r < rows; r++) {
            memcpy(to + r * f->size, scales[r] + g * f->size, (size_t)f->size);
            memcpy(to + (WIDE + r) * f->size, biases[r] + g * f->size, (size_t)f->size);
        }
        uint8_t *line = (uint8_t *)to + 2 * WIDE * f->size;
        for (int64_t i = 0; i < f->a.group; i++, line += WIDE * f->bits / 8)
            pack_line(f, (const uint8_t *const *)codes, rows, g * f->a.group + i, line);
    }
}

static void pack(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part) {
    few f;
    if (!describe(c, &f)) return;
    int64_t all = f.matrices * f.panels, end = qn_cpu_cut(all, s->pack_parts, part + 1);
    for (int64_t i = qn_cpu_cut(all, s->pack_parts, part); i < end; i++) pack_panel(&f, i, (char *)packed + i * f.panel);
}

/* ---- The product */

typedef struct task {
    const few *f;
    const char *panel;    /* of the first */
    const float *x[ROWS]; /* rows */
    float *sums;          /* [row][panel][WIDE] */
} task;

/* Vector v of a line. */
QN_INLINE vf codes_at(const uint8_t *line, int bits, int v) {
    vi codes = vi_load_u8(line + (bits == 8 ? v * VF_N : 0));
    if (bits == 4) codes = v ? codes >> 4 : codes & 15;
    return vf_from_i(codes);
}

QN_INLINE void stream(const task *t, int bits, int rows, int panels) {
    const few *f = t->f;
    uint32_t dtype = f->a.scales->dtype;
    vf sum[ROWS][MOST * VECTORS];
    QN_UNROLL
    for (int j = 0; j < rows; j++) {
        QN_UNROLL
        for (int v = 0; v < panels * VECTORS; v++) sum[j][v] = vf_zero();
    }
    for (int64_t g = 0; g < f->groups; g++) {
        const char *lot = t->panel + g * f->lot;
        const uint8_t *line = (const uint8_t *)lot + 2 * WIDE * f->size;
        const float *x[ROWS];
        QN_UNROLL
        for (int j = 0; j < rows; j++) x[j] = t->x[j] + g * f->a.group;
        vf scale[MOST * VECTORS], bias[MOST * VECTORS];
        QN_UNROLL
        for (int v = 0; v < panels * VECTORS; v++) {
            const char *at = lot + v / VECTORS * f->panel;
            scale[v] = qn_lanes(dtype, at, v % VECTORS * VF_N);
            bias[v] = qn_lanes(dtype, at, WIDE + v % VECTORS * VF_N);
        }
        for (int64_t i = 0; i < f->a.group; i++, line += WIDE * bits / 8) {
            QN_UNROLL
            for (int v = 0; v < panels * VECTORS; v++) {
                const uint8_t *at = line + v / VECTORS * f->panel;
                if (v % VECTORS == 0) __builtin_prefetch(at + AHEAD, 0, 3);
                vf w = vf_fma(codes_at(at, bits, v % VECTORS), scale[v], bias[v]);
                QN_UNROLL
                for (int j = 0; j < rows; j++) sum[j][v] = vf_fma(vf_set1(x[j][i]), w, sum[j][v]);
            }
        }
    }
    QN_UNROLL
    for (int j = 0; j < rows; j++) {
        QN_UNROLL
        for (int v = 0; v < panels * VECTORS; v++) vf_store(t->sums + (j * panels * VECTORS + v) * VF_N, sum[j][v]);
    }
}

#define BODY(bits, rows, name, panels) \
    static void name##_##rows##_of_##bits(const task *t) { stream(t, bits, rows, panels); }
#define BODIES(bits)                 \
    BODY(bits, 1, one, 1)            \
    BODY(bits, 2, one, 1)            \
    BODY(bits, 3, one, 1)            \
    BODY(bits, 4, one, 1)            \
    BODY(bits, 1, some, ABREAST_ONE) \
    BODY(bits, 2, some, ABREAST)     \
    BODY(bits, 3, some, ABREAST)     \
    BODY(bits, 4, some, ABREAST)
BODIES(4)
BODIES(8)
#define ROW_NAMES(name, bits) \
    { name##_1_of_##bits, name##_2_of_##bits, name##_3_of_##bits, name##_4_of_##bits }
/* By bits (4, 8), by panels (one, several abreast), by rows. */
static void (*const streams[2][2][ROWS])(const task *t) = {{ROW_NAMES(one, 4), ROW_NAMES(some, 4)},
                                                           {ROW_NAMES(one, 8), ROW_NAMES(some, 8)}};

/* What a run has in its workspace: which rows of y go to each matrix, and rows of x as floats. */
typedef struct room {
    int32_t *start, *list;
    float *x;
} room;
static size_t lists_bytes(const few *f) { return (size_t)((f->matrices + 1 + f->m + 15) / 16) * 64; }
static room room_of(const qn_call *c, const few *f) {
    int32_t *start = c->workspace;
    return (room){start, start + f->matrices + 1, (float *)(void *)((char *)c->workspace + lists_bytes(f))};
}

/* The row of x that row i of y is made of. */
static int64_t line_of(const qn_call *c, const few *f, int64_t i) {
    if (!f->ids) return i;
    int64_t each = qn_ne(c->src[0], 1);
    return i / f->used * each + i % f->used % each;
}

static void sort_rows(const few *f, const room *r) {
    if (f->ids) {
        qn_experts_sort(f->ids, f->used, f->m, f->matrices, r->start, r->list);
        return;
    }
    r->start[0] = 0, r->start[1] = (int32_t)f->m;
    for (int32_t i = 0; i < f->m; i++) r->list[i] = i;
}

/* Some rows of y, by number, with some panels of a matrix. */
static void run_rows(const qn_call *c, const few *f, const char *matrix, int64_t first, int64_t end, const int32_t *list,
                     int rows) {
    const qn_tensor *y = c->dst[0];
    const float *x = room_of(c, f).x;
    float sums[ROWS * MOST * WIDE];
    int64_t size = y->dtype == QN_DTYPE_F32 ? 4 : 2;
    task t = {.f = f, .sums = sums};
    for (int j = 0; j < rows; j++) t.x[j] = x + line_of(c, f, list[j]) * f->a.length;
    for (int64_t p = first; p < end;) {
        int abreast = rows == 1 ? ABREAST_ONE : ABREAST, some = end - p >= abreast;
        int panels = some ? abreast : 1;
        t.panel = matrix + p * f->panel;
        streams[f->bits == 8][some][rows - 1](&t);
        int64_t left = f->n - p * WIDE, n = left < panels * WIDE ? left : panels * WIDE;
        for (int j = 0; j < rows; j++)
            qn_copy_row(QN_DTYPE_F32, (const char *)(sums + j * panels * WIDE), y->dtype,
                        qn_at(y, (list[j] * f->n + p * WIDE) * size), n);
        p += panels;
    }
}

/* Units [first, end) of every matrix that has rows. */
static void run_units(const qn_call *c, const few *f, const char *packed, int64_t first, int64_t end) {
    room r = room_of(c, f);
    for (int64_t which = 0; which < f->matrices; which++) {
        const char *matrix = packed + which * f->panels * f->panel;
        for (int64_t u = r.start[which] < r.start[which + 1] ? first : end; u < end; u++) {
            int64_t last = (u + 1) * UNIT < f->panels ? (u + 1) * UNIT : f->panels;
            for (int32_t i = r.start[which]; i < r.start[which + 1]; i += ROWS) {
                int rows = r.start[which + 1] - i < ROWS ? r.start[which + 1] - i : ROWS;
                run_rows(c, f, matrix, u * UNIT, last, r.list + i, rows);
            }
        }
    }
}

/* Phases: rows of x as floats, and lists of them; the sums. Without packed weights, which turned out not to stay, the large product. */
static void run_few(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    few f;
    if (!s->packed) {
        for (int64_t i = part; i < s->n[phase]; i += s->parts[phase]) s->wrapped(c, s, phase, i);
        return;
    }
    if (!describe(c, &f)) return;
    int64_t all = phase == 0 ? f.lines : (f.panels + UNIT - 1) / UNIT;
    int64_t first = qn_cpu_cut(all, s->parts[phase], part), end = qn_cpu_cut(all, s->parts[phase], part + 1);
    if (phase == 1) {
        run_units(c, &f, s->packed, first, end);
        return;
    }
    const qn_tensor *x = c->src[0];
    room r = room_of(c, &f);
    int64_t size = x->dtype == QN_DTYPE_F32 ? 4 : 2, k = f.a.length;
    if (part == 0) sort_rows(&f, &r);
    for (int64_t i = first; i < end; i++) qn_copy_row(x->dtype, qn_at(x, i * k * size), QN_DTYPE_F32, (char *)(r.x + i * k), k);
}

void qn_affine_few(const qn_call *c, qn_cpu_step *s) {
    const uint32_t weights = 1u << 1 | 1u << 2 | 1u << 3;
    few f;
    if ((s->constant & weights) != weights || !describe(c, &f)) return;
    size_t bytes = lists_bytes(&f) + (size_t)(f.lines * f.a.length) * sizeof(float);
    int64_t units = (f.panels + UNIT - 1) / UNIT, panels = f.matrices * f.panels;
    double busy = (double)(f.m < f.matrices ? f.m : f.matrices); /* matrices that have rows, at most */
    s->wrapped = s->run;
    s->n[0] = s->parts[0];
    s->n[1] = s->parts[1];
    s->run = run_few;
    s->name = f.ids ? "streams of affine codes by expert" : "streams of affine codes";
    s->parts[0] = qn_cpu_parts(f.lines, (double)f.a.length * 8, 0);
    s->parts[1] = qn_cpu_parts(units, (double)(f.panel * UNIT) * busy, (double)(UNIT * WIDE * f.a.length * f.m * 2));
    if (s->workspace < bytes) s->workspace = bytes;
    s->pack = pack;
    s->pack_slot = 1;
    s->pack_more = 1u << 2 | 1u << 3;
    s->pack_parts = panels < 64 ? panels : 64;
    s->packed_bytes = (size_t)(panels * f.panel);
    s->pack_late = 1;
}
