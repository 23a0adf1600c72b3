/* affine_matmul for a few rows of activations: codes of 4 or 8 bits, packed with lanes along the rows of weights, are read once as
 * streams. An element is decoded as in the large product and summed by the same chain (see k_gemm.h), so it has the same bits.
 *
 * Packed: panels of WIDE rows; of each, group by group, the rows' scales, their biases, and for each element of the group a
 * line of codes. A line of 4 bits has the codes of the first half of the rows in the lower halves of its bytes. */
#include "cpu/k_affine.h"
#include "cpu/k_copy.h"
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
    int64_t m, n, groups;       /* rows of x, of weights, groups of a row */
    int64_t panels, panel, lot; /* panels; bytes of a panel, of a group in it */
    int size;                   /* bytes of a scale */
} few;

static int describe(const qn_call *c, few *f) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    if (!qn_affine_describe(c, 1, &f->a) || !qn_lanes_float(y->dtype) || !qn_cpu_is_dense(x) || !qn_cpu_is_dense(y)) return 0;
    if ((f->a.bits != 4 && f->a.bits != 8) || f->a.group % 16 || !qn_lanes_float(x->dtype))
        return 0; /* decoded by whole vectors */
    f->n = qn_ne(y, 0);
    f->m = qn_tensor_count(y) / f->n;
    f->groups = f->a.length / f->a.group;
    f->panels = (f->n + WIDE - 1) / WIDE;
    f->size = f->a.scales->dtype == QN_DTYPE_F32 ? 4 : 2;
    f->lot = 2 * WIDE * f->size + f->a.group * WIDE * f->a.bits / 8;
    f->panel = f->groups * f->lot;
    return f->m <= QN_AFFINE_FEW && f->n >= WIDE;
}

/* ---- Packing */

static void pack_line(const few *f, const uint8_t *const *codes, int rows, int64_t i, uint8_t *to) {
    memset(to, 0, (size_t)(WIDE * f->a.bits / 8));
    for (int r = 0; r < rows; r++) {
        if (f->a.bits == 8) to[r] = codes[r][i];
        else to[r % (WIDE / 2)] |= (uint8_t)((codes[r][i / 2] >> i % 2 * 4 & 15) << (r < WIDE / 2 ? 0 : 4));
    }
}

static void pack_panel(const few *f, int64_t panel, char *to) {
    const qn_tensor *s = f->a.scales, *b = f->a.biases, *k = f->a.codes;
    const uint8_t *codes[WIDE];
    int64_t first = panel * WIDE;
    int rows = f->n - first < WIDE ? (int)(f->n - first) : WIDE;
    for (int r = 0; r < rows; r++) codes[r] = (const uint8_t *)qn_at(k, (first + r) * qn_nb(k, 1));
    for (int64_t g = 0; g < f->groups; g++, to += f->lot) {
        memset(to, 0, (size_t)(2 * WIDE * f->size));
        for (int r = 0; r < rows; r++) {
            memcpy(to + r * f->size, qn_at(s, (first + r) * qn_nb(s, 1) + g * f->size), (size_t)f->size);
            memcpy(to + (WIDE + r) * f->size, qn_at(b, (first + r) * qn_nb(b, 1) + g * f->size), (size_t)f->size);
        }
        uint8_t *line = (uint8_t *)to + 2 * WIDE * f->size;
        for (int64_t i = 0; i < f->a.group; i++, line += WIDE * f->a.bits / 8)
            pack_line(f, codes, rows, g * f->a.group + i, line);
    }
}

static void pack(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part) {
    few f;
    if (!describe(c, &f)) return;
    int64_t end = qn_cpu_cut(f.panels, s->pack_parts, part + 1);
    for (int64_t i = qn_cpu_cut(f.panels, s->pack_parts, part); i < end; i++) pack_panel(&f, i, (char *)packed + i * f.panel);
}

/* ---- The product */

typedef struct task {
    const few *f;
    const char *panel; /* of the first */
    const float *x;    /* rows, length apart */
    float *sums;       /* [row][panel][WIDE] */
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
        const float *x = t->x + g * f->a.group;
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
                for (int j = 0; j < rows; j++) sum[j][v] = vf_fma(vf_set1(x[j * f->a.length + i]), w, sum[j][v]);
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

/* Some rows of x from `row` on with all panels of a unit. */
static void run_rows(const qn_call *c, const few *f, const char *packed, int64_t first, int64_t end, int64_t row, int rows) {
    const qn_tensor *y = c->dst[0];
    float sums[ROWS * MOST * WIDE];
    int64_t size = y->dtype == QN_DTYPE_F32 ? 4 : 2;
    for (int64_t p = first; p < end;) {
        int abreast = rows == 1 ? ABREAST_ONE : ABREAST, some = end - p >= abreast;
        int panels = some ? abreast : 1;
        task t = {f, packed + p * f->panel, (const float *)c->workspace + row * f->a.length, sums};
        streams[f->a.bits == 8][some][rows - 1](&t);
        int64_t left = f->n - p * WIDE, n = left < panels * WIDE ? left : panels * WIDE;
        for (int j = 0; j < rows; j++)
            qn_copy_row(QN_DTYPE_F32, (const char *)(sums + j * panels * WIDE), y->dtype,
                        qn_at(y, ((row + j) * f->n + p * WIDE) * size), n);
        p += panels;
    }
}

/* Phases: rows of x as floats; the sums. Without packed weights, which turned out not to stay, the large product. */
static void run_few(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    few f;
    if (!s->packed) {
        for (int64_t i = part; i < s->n[phase]; i += s->parts[phase]) s->wrapped(c, s, phase, i);
        return;
    }
    if (!describe(c, &f)) return;
    const qn_tensor *x = c->src[0];
    int64_t all = phase == 0 ? f.m : (f.panels + UNIT - 1) / UNIT, end = qn_cpu_cut(all, s->parts[phase], part + 1);
    int64_t size = x->dtype == QN_DTYPE_F32 ? 4 : 2, k = f.a.length;
    for (int64_t i = qn_cpu_cut(all, s->parts[phase], part); i < end; i++) {
        if (phase == 0) {
            qn_copy_row(x->dtype, qn_at(x, i * k * size), QN_DTYPE_F32, (char *)c->workspace + i * k * 4, k);
            continue;
        }
        int64_t last = (i + 1) * UNIT < f.panels ? (i + 1) * UNIT : f.panels;
        for (int64_t row = 0; row < f.m; row += ROWS)
            run_rows(c, &f, s->packed, i * UNIT, last, row, f.m - row < ROWS ? (int)(f.m - row) : ROWS);
    }
}

void qn_affine_few(const qn_call *c, qn_cpu_step *s) {
    const uint32_t weights = 1u << 1 | 1u << 2 | 1u << 3;
    few f;
    if ((s->constant & weights) != weights || !describe(c, &f)) return;
    size_t rows = (size_t)(f.m * f.a.length) * sizeof(float);
    s->wrapped = s->run;
    s->n[0] = s->parts[0];
    s->n[1] = s->parts[1];
    s->run = run_few;
    s->name = "streams of affine codes";
    s->parts[0] = qn_cpu_parts(f.m, (double)f.a.length * 8, 0);
    s->parts[1] = qn_cpu_parts((f.panels + UNIT - 1) / UNIT, (double)(f.panel * UNIT),
                               (double)(UNIT * WIDE * f.a.length * f.m * 2));
    if (s->workspace < rows) s->workspace = rows;
    s->pack = pack;
    s->pack_slot = 1;
    s->pack_more = 1u << 2 | 1u << 3;
    s->pack_parts = f.panels < 64 ? f.panels : 64;
    s->packed_bytes = (size_t)(f.panels * f.panel);
    s->pack_late = 1;
}
