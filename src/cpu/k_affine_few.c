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
    qn_experts_few rows;
    int64_t n, groups;          /* rows of a matrix, groups of a row */
    int64_t panels, panel, lot; /* panels of a matrix; bytes of a panel, of a group in it */
    int bits, size;             /* bits of a packed code, bytes of a scale */
} few;

static int describe(const qn_call *c, few *f) {
    const qn_tensor *x = c->src[0], *y = c->dst[0], *ids = c->op == QN_OP_affine_matmul_id ? c->src[4] : NULL;
    if (!qn_affine_describe(c, 1, &f->a) || !qn_lanes_float(y->dtype) || !qn_cpu_is_dense(x) || !qn_cpu_is_dense(y)) return 0;
    if (f->a.group % 16 || !qn_lanes_float(x->dtype)) return 0; /* decoded by whole vectors */
    f->rows = qn_experts_few_of(x, ids, y, ids ? qn_ne(f->a.codes, 2) : 1);
    f->n = qn_ne(y, 0);
    f->groups = f->a.length / f->a.group;
    f->panels = (f->n + WIDE - 1) / WIDE;
    f->bits = f->a.bits <= 4 ? 4 : 8;
    f->size = (int)qn_float_bytes(f->a.scales->dtype);
    f->lot = 2 * WIDE * f->size + f->a.group * WIDE * f->bits / 8;
    f->panel = f->groups * f->lot;
    return qn_experts_are_few(&f->rows, QN_AFFINE_FEW) && f->n >= WIDE;
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
    int64_t all = f.rows.count * f.panels, end = qn_cpu_cut(all, s->pack_parts, part + 1);
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

/* Some rows of y, by number, with some panels of a matrix. */
static void run_rows(const qn_call *c, const few *f, const char *matrix, int64_t first, int64_t end, const int32_t *list,
                     int rows) {
    const qn_tensor *y = c->dst[0];
    qn_experts_room r = qn_experts_room_of(&f->rows, c->workspace);
    float sums[ROWS * MOST * WIDE];
    int64_t size = qn_float_bytes(y->dtype);
    task t = {.f = f, .sums = sums};
    for (int j = 0; j < rows; j++) t.x[j] = qn_experts_line(&f->rows, &r, list[j]);
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

/* A unit of one matrix with all its rows. */
static void run_unit(const qn_call *c, const few *f, const char *packed, int64_t which, int64_t unit) {
    qn_experts_room r = qn_experts_room_of(&f->rows, c->workspace);
    const char *matrix = packed + which * f->panels * f->panel;
    int64_t last = (unit + 1) * UNIT < f->panels ? (unit + 1) * UNIT : f->panels;
    for (int32_t i = r.start[which], end = r.start[which + 1]; i < end; i += ROWS)
        run_rows(c, f, matrix, unit * UNIT, last, r.list + i, end - i < ROWS ? end - i : ROWS);
}

static void run_few(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    few f;
    if (!describe(c, &f) || qn_experts_few_else(&f.rows, c, s, phase, part)) return;
    int64_t units = (f.panels + UNIT - 1) / UNIT, end = qn_cpu_cut(units, s->parts[1], part + 1);
    for (int64_t which = 0; which < f.rows.count; which++)
        for (int64_t u = qn_cpu_cut(units, s->parts[1], part); u < end; u++) run_unit(c, &f, s->packed, which, u);
}

void qn_affine_few(const qn_call *c, qn_cpu_step *s) {
    const uint32_t weights = 1u << 1 | 1u << 2 | 1u << 3;
    few f;
    if ((s->constant & weights) != weights || !describe(c, &f)) return;
    int64_t panels = f.rows.count * f.panels;
    qn_experts_few_step(&f.rows, s, run_few, (f.panels + UNIT - 1) / UNIT, (double)(f.panel * UNIT), UNIT * WIDE);
    s->name = f.rows.ids ? "streams of affine codes by expert" : "streams of affine codes";
    s->pack = pack;
    s->pack_slot = 1;
    s->pack_more = 1u << 2 | 1u << 3;
    s->pack_parts = panels < 64 ? panels : 64;
    s->packed_bytes = (size_t)(panels * f.panel);
    s->pack_also[0] = f.a.bits;
    s->pack_also[1] = f.a.group;
    s->pack_late = 1;
}
