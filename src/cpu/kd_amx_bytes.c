/* quant_matmul and quant_conv by tiles: sums of products of the bytes as they are, from which what the zero points add is taken away
 * afterwards. All of it is modulo 2^32, and what is left fits, so the numbers are those of every other way.
 *
 * Both sides lie in blocks of one register: 16 rows of 64 bytes of one side; 16 groups of four bytes for each of 16 columns of the
 * other. A tile is two by two blocks of sums. */
#include "cpu/k_bytes.h"
#include "cpu/simd/simd_tile.h"

enum { SIDE = 16, DEEP = 64, BLOCK = SIDE * DEEP, SQUARE = 2 * SIDE, TALL = 4 }; /* TALL: tiles of a unit of quant_matmul */

/* One side of the product: blocks, those of 16 rows or columns one behind the other; the sums of each row or column's bytes. */
typedef struct side {
    uint8_t *blocks;
    int32_t *sums;
    int zero;
} side;

static int64_t depth_of(const qn_bytes *b) { return qn_bytes_ceil(b->k, DEEP); }
/* Rows or columns with those that fill up the last tile. */
static int64_t filled(int64_t n) { return qn_bytes_ceil(n, SQUARE) * SQUARE; }
static size_t side_bytes(const qn_bytes *b, int64_t n) { return (size_t)(filled(n) * (depth_of(b) * DEEP + 4)); }
static side side_at(const qn_bytes *b, void *memory, int64_t n, int zero) {
    uint8_t *blocks = memory;
    return (side){blocks, (int32_t *)(void *)(blocks + filled(n) * depth_of(b) * DEEP), zero};
}

static int32_t sum_of(uint32_t dtype, const char *p, int64_t n) {
    int32_t sum = 0;
    if (dtype == QN_DTYPE_I8)
        for (int64_t i = 0; i < n; i++) sum += (int8_t)p[i];
    else
        for (int64_t i = 0; i < n; i++) sum += (uint8_t)p[i];
    return sum;
}

/* Row i, or nothing. */
static void lay_row(const qn_bytes *b, uint32_t dtype, const char *from, int64_t i, const side *to) {
    int64_t depth = depth_of(b);
    uint8_t *at = to->blocks + i / SIDE * depth * BLOCK + i % SIDE * DEEP;
    for (int64_t d = 0; d < depth; d++, at += BLOCK) {
        int64_t left = b->k - d * DEEP, some = !from ? 0 : left < DEEP ? left : DEEP;
        if (some) memcpy(at, from + d * DEEP, (size_t)some);
        memset(at + some, 0, (size_t)(DEEP - some));
    }
    to->sums[i] = from ? sum_of(dtype, from, b->k) : 0;
}

/* Four rows of 16 bytes as 16 groups of four. */
typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint16_t pairs8 __attribute__((vector_size(16)));
static void weave(uint8_t (*line)[SQUARE], int first, uint8_t *to) {
    bytes16 r[4], low[2], high[2];
    for (int i = 0; i < 4; i++) memcpy(&r[i], line[i] + first, sizeof r[i]);
    for (int i = 0; i < 2; i++) {
        low[i] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        high[i] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    pairs8 out[4];
    for (int i = 0; i < 2; i++) {
        pairs8 a = (pairs8)(i ? high[0] : low[0]), c = (pairs8)(i ? high[1] : low[1]);
        out[2 * i] = __builtin_shufflevector(a, c, 0, 8, 1, 9, 2, 10, 3, 11);
        out[2 * i + 1] = __builtin_shufflevector(a, c, 4, 12, 5, 13, 6, 14, 7, 15);
    }
    memcpy(to, out, sizeof out);
}

/* The bytes k of some columns: k = 0, 1, .. in turn. */
typedef void (*line_fn)(void *context, int64_t k, uint8_t *to);
/* Two blocks of columns side by side: those from SQUARE * pair on, `some` of which there are. Their sums are asked for only where the
 * rows have a zero point. */
static void lay_columns(const qn_bytes *b, uint32_t dtype, line_fn line_of, void *context, int64_t pair, int64_t some, int summed,
                        const side *to) {
    int64_t depth = depth_of(b);
    uint8_t *at = to->blocks + pair * 2 * depth * BLOCK, line[4][SQUARE];
    int32_t *sums = to->sums + pair * SQUARE;
    memset(line, 0, sizeof line);
    memset(sums, 0, SQUARE * sizeof *sums);
    for (int64_t k = 0; k < depth * DEEP; k += 4, at += 4 * SIDE) {
        for (int i = 0; i < 4; i++) {
            if (k + i < b->k) line_of(context, k + i, line[i]);
            else memset(line[i], 0, SQUARE);
            for (int64_t j = 0; summed && j < some; j++) sums[j] += dtype == QN_DTYPE_I8 ? (int8_t)line[i][j] : line[i][j];
        }
        weave(line, 0, at);
        weave(line, SIDE, at + depth * BLOCK);
    }
}

/* ---- Tiles. Registers: 0 to 3 are sums, 4 and 5 rows, 6 and 7 columns. */

static void begin(void) {
    tile_shapes s = {.palette = 1};
    for (int i = 0; i < 8; i++) s.bytes[i] = DEEP, s.rows[i] = SIDE;
    tile_begin(&s);
}

#define TILE(signs)                                                                                              \
    static void tile_##signs(const uint8_t *rows, const uint8_t *columns, int64_t depth, int32_t(*to)[SQUARE]) { \
        const uint8_t *more_rows = rows + depth * BLOCK, *more_columns = columns + depth * BLOCK;                \
        TILE_ZERO(0);                                                                                            \
        TILE_ZERO(1);                                                                                            \
        TILE_ZERO(2);                                                                                            \
        TILE_ZERO(3);                                                                                            \
        for (int64_t at = 0; at < depth * BLOCK; at += BLOCK) {                                                  \
            TILE_LOAD(4, rows + at, DEEP);                                                                       \
            TILE_LOAD(6, columns + at, DEEP);                                                                    \
            TILE_DOT_OF(signs, 0, 4, 6);                                                                         \
            TILE_LOAD(7, more_columns + at, DEEP);                                                               \
            TILE_DOT_OF(signs, 1, 4, 7);                                                                         \
            TILE_LOAD(5, more_rows + at, DEEP);                                                                  \
            TILE_DOT_OF(signs, 2, 5, 6);                                                                         \
            TILE_DOT_OF(signs, 3, 5, 7);                                                                         \
        }                                                                                                        \
        TILE_STORE(0, to[0], sizeof to[0]);                                                                      \
        TILE_STORE(1, to[0] + SIDE, sizeof to[0]);                                                               \
        TILE_STORE(2, to[SIDE], sizeof to[0]);                                                                   \
        TILE_STORE(3, to[SIDE] + SIDE, sizeof to[0]);                                                            \
    }
TILE(ss)
TILE(su)
TILE(us)
TILE(uu)

/* The sums of one square, by number of row tile and column tile, without what zero points add. */
static void sum_square(const qn_bytes *b, const side *rows, const side *columns, int row_signed, int column_signed, int64_t row,
                       int64_t column, int32_t (*to)[SQUARE]) {
    int64_t depth = depth_of(b);
    const uint8_t *r = rows->blocks + row * 2 * depth * BLOCK, *c = columns->blocks + column * 2 * depth * BLOCK;
    const int32_t *row_sums = rows->sums + row * SQUARE, *column_sums = columns->sums + column * SQUARE;
    (row_signed ? column_signed ? tile_ss : tile_su : column_signed ? tile_us : tile_uu)(r, c, depth, to);
    uint32_t both = (uint32_t)b->k * (uint32_t)rows->zero * (uint32_t)columns->zero;
    for (int i = 0; i < SQUARE; i++) {
        uint32_t less = (uint32_t)row_sums[i] * (uint32_t)columns->zero - both;
        for (int j = 0; j < SQUARE; j++)
            to[i][j] = (int32_t)((uint32_t)to[i][j] - less - (uint32_t)column_sums[j] * (uint32_t)rows->zero);
    }
}

/* ---- quant_matmul: rows of x, columns of w [K, N] */

typedef struct columns_of {
    const qn_tensor *w;
    int64_t first, some;
} columns_of;

static void line_of_columns(void *context, int64_t k, uint8_t *to) {
    const columns_of *f = context;
    memcpy(to, qn_at(f->w, k * qn_ne(f->w, 0) + f->first), (size_t)f->some);
}

static void pack_columns(const qn_bytes *b, int64_t pair, void *to) {
    const qn_tensor *w = b->c->src[1];
    int64_t n = qn_ne(w, 0), first = pair * SQUARE;
    columns_of f = {w, first, n - first < SQUARE ? n - first : SQUARE};
    side s = side_at(b, to, n, b->w_zero);
    lay_columns(b, w->dtype, line_of_columns, &f, pair, f.some, b->x_zero != 0, &s);
}

static void matmul_unit(const qn_bytes *b, int64_t tile, int64_t end, int64_t pair, const side *rows, const side *columns) {
    const qn_tensor *x = b->c->src[0], *w = b->c->src[1];
    int64_t m = qn_tensor_count(x) / b->k, n = qn_ne(w, 0), first = pair * SQUARE, some = n - first < SQUARE ? n - first : SQUARE;
    double scale[SQUARE], bias[SQUARE];
    int32_t sums[SQUARE][SQUARE] __attribute__((aligned(64)));
    for (int64_t j = 0; j < some; j++) scale[j] = qn_bytes_scale(b, first + j), bias[j] = qn_bytes_bias(b, first + j);
    for (; tile < end; tile++) {
        sum_square(b, rows, columns, x->dtype == QN_DTYPE_I8, w->dtype == QN_DTYPE_I8, tile, pair, sums);
        for (int64_t i = 0; i < SQUARE && tile * SQUARE + i < m; i++)
            qn_bytes_finish(b, sums[i], scale, bias, some, qn_at(b->c->dst[0], (tile * SQUARE + i) * n + first));
    }
}

/* Phases: rows of x; columns of w, unless they are packed; the sums. */
static void run_matmul(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_bytes b = qn_bytes_matmul(c);
    int64_t m = qn_tensor_count(c->src[0]) / b.k, n = qn_ne(c->src[1], 0), pairs = filled(n) / SQUARE, tiles = filled(m) / SQUARE;
    int64_t all = phase == 0 ? filled(m) : phase == 1 ? pairs : pairs * qn_bytes_ceil(tiles, TALL);
    int64_t i = qn_cpu_cut(all, s->parts[phase], part), end = qn_cpu_cut(all, s->parts[phase], part + 1);
    void *own = (char *)c->workspace + qn_bytes_lines((int64_t)side_bytes(&b, m)), *packed = s->packed ? (void *)s->packed : own;
    side rows = side_at(&b, c->workspace, m, b.x_zero), columns = side_at(&b, packed, n, b.w_zero);
    tile_shapes before = tile_before();
    if (phase == 2) begin();
    for (; i < end; i++) {
        if (phase == 0) lay_row(&b, c->src[0]->dtype, i < m ? qn_at(c->src[0], i * b.k) : NULL, i, &rows);
        else if (phase == 1 && !s->packed) pack_columns(&b, i, own);
        else if (phase == 2) {
            int64_t tile = i / pairs * TALL;
            matmul_unit(&b, tile, tile + TALL < tiles ? tile + TALL : tiles, i % pairs, &rows, &columns);
        }
    }
    if (phase == 2) tile_end(&before);
}

static void pack_matmul(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part) {
    qn_bytes b = qn_bytes_matmul(c);
    (void)s;
    pack_columns(&b, part, packed);
}

int QN_K(quant_matmul)(const qn_call *c, qn_cpu_step *s) {
    qn_bytes b = qn_bytes_matmul(c);
    if (!qn_bytes_fit(&b)) return 0;
    int64_t n = qn_ne(c->src[1], 0), m = qn_tensor_count(c->src[0]) / b.k, pairs = filled(n) / SQUARE;
    int64_t units = pairs * qn_bytes_ceil(filled(m) / SQUARE, TALL);
    size_t weights = qn_bytes_lines((int64_t)side_bytes(&b, n));
    s->run = run_matmul;
    s->name = "bytes by tiles";
    s->n_phases = 3;
    s->parts[0] = qn_cpu_parts(filled(m), (double)b.k * 2, 0);
    s->parts[1] = s->constant & 2u ? 1 : qn_cpu_parts(pairs, (double)b.k * SQUARE * 2, 0);
    s->parts[2] = qn_cpu_parts(units, 0, (double)b.k * SQUARE * (double)(m < TALL * SQUARE ? m : TALL * SQUARE) / 8);
    s->workspace = qn_bytes_lines((int64_t)side_bytes(&b, m)) + weights;
    if (s->constant & 2u) {
        s->pack = pack_matmul;
        s->pack_slot = 1;
        s->pack_parts = pairs;
        s->packed_bytes = weights;
        s->pack_also[0] = b.w_zero;
        s->pack_also[1] = b.x_zero != 0; /* whether there are sums of columns */
    }
    return 1;
}

/* ---- quant_conv: rows of weights, columns of pixels, which each part lays for itself */

typedef struct pixels_of {
    const qn_bytes_conv *v;
    qn_bytes_tap tap;
    qn_place from;
    int64_t some;
} pixels_of;

static void line_of_pixels(void *context, int64_t k, uint8_t *to) {
    pixels_of *f = context;
    (void)k; /* where the tap stands */
    qn_bytes_see(f->v, &f->tap, f->from, f->some, (char *)to);
    qn_bytes_next(f->v, &f->tap);
}

/* The weights of a group. */
static size_t group_bytes(const qn_bytes_conv *v) { return qn_bytes_lines((int64_t)side_bytes(&v->b, v->channels)); }
static void pack_channel(const qn_bytes_conv *v, int64_t number, char *to) {
    const qn_tensor *w = v->b.c->src[1];
    int64_t each = filled(v->channels), group = number / each, i = number % each;
    side s = side_at(&v->b, to + group_bytes(v) * (size_t)group, v->channels, v->b.w_zero);
    lay_row(&v->b, w->dtype, i < v->channels ? qn_at(w, (group * v->channels + i) * v->b.k) : NULL, i, &s);
}

static void conv_unit(const qn_bytes_conv *v, int64_t image, int64_t group, int64_t pair, char *weights, char *own) {
    const qn_tensor *x = v->b.c->src[0], *w = v->b.c->src[1];
    int64_t first = pair * SQUARE, some = v->s.pixels - first < SQUARE ? v->s.pixels - first : SQUARE;
    side rows = side_at(&v->b, weights + group_bytes(v) * (size_t)group, v->channels, v->b.w_zero);
    side columns = side_at(&v->b, own, SQUARE, v->b.x_zero);
    pixels_of f = {v, {.plane = qn_bytes_planes(v, image, group)}, qn_patch_pixel(&v->s, first), some};
    int32_t sums[SQUARE][SQUARE] __attribute__((aligned(64)));
    lay_columns(&v->b, x->dtype, line_of_pixels, &f, 0, some, v->b.w_zero != 0, &columns);
    for (int64_t o = 0; o < v->channels; o += SQUARE) {
        sum_square(&v->b, &rows, &columns, w->dtype == QN_DTYPE_I8, x->dtype == QN_DTYPE_I8, o / SQUARE, 0, sums);
        for (int64_t i = 0; i < SQUARE && o + i < v->channels; i++) {
            int64_t channel = group * v->channels + o + i;
            double scale[SQUARE], bias[SQUARE], by = qn_bytes_scale(&v->b, channel), more = qn_bytes_bias(&v->b, channel);
            for (int j = 0; j < SQUARE; j++) scale[j] = by, bias[j] = more;
            qn_bytes_finish(&v->b, sums[i], scale, bias, some,
                            qn_at(v->b.c->dst[0], (image * v->groups * v->channels + channel) * v->s.pixels + first));
        }
    }
}

/* Phases: weights, unless they are packed; the sums. */
static void run_conv(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_bytes_conv v = qn_bytes_conv_of(c);
    int64_t pairs = qn_bytes_ceil(v.s.pixels, SQUARE), all = phase ? v.images * v.groups * pairs : v.groups * filled(v.channels);
    int64_t i = qn_cpu_cut(all, s->parts[phase], part), end = qn_cpu_cut(all, s->parts[phase], part + 1);
    char *weights = s->packed ? (char *)(void *)s->packed : c->workspace;
    char *own = (char *)c->workspace + group_bytes(&v) * (size_t)v.groups +
                qn_bytes_lines((int64_t)side_bytes(&v.b, SQUARE)) * (size_t)part;
    tile_shapes before = tile_before();
    if (phase == 1) begin();
    for (; i < end; i++) {
        if (phase == 0 && !s->packed) pack_channel(&v, i, weights);
        else if (phase == 1) conv_unit(&v, i / pairs / v.groups, i / pairs % v.groups, i % pairs, weights, own);
    }
    if (phase == 1) tile_end(&before);
}

static void pack_conv(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part) {
    qn_bytes_conv v = qn_bytes_conv_of(c);
    int64_t all = v.groups * filled(v.channels), end = qn_cpu_cut(all, s->pack_parts, part + 1);
    for (int64_t i = qn_cpu_cut(all, s->pack_parts, part); i < end; i++) pack_channel(&v, i, packed);
}

/* Groups of a few channels would leave most of a tile empty. */
enum { FEW = 8 };

int QN_K(quant_conv)(const qn_call *c, qn_cpu_step *s) {
    qn_bytes_conv v = qn_bytes_conv_of(c);
    if (!qn_bytes_fit(&v.b) || !qn_bytes_has(c->src[0]->dtype, v.b.x_zero) || v.channels < FEW) return 0;
    int64_t rows = v.groups * filled(v.channels), units = v.images * v.groups * qn_bytes_ceil(v.s.pixels, SQUARE);
    size_t weights = group_bytes(&v) * (size_t)v.groups;
    s->run = run_conv;
    s->name = "bytes of patches by tiles";
    s->n_phases = 2;
    s->parts[0] = s->constant & 2u ? 1 : qn_cpu_parts(rows, (double)v.b.k * 2, 0);
    s->parts[1] = qn_cpu_parts(units, (double)v.b.k * SQUARE * 4, (double)v.b.k * SQUARE * (double)v.channels / 8);
    s->workspace = weights + qn_bytes_lines((int64_t)side_bytes(&v.b, SQUARE)) * (size_t)s->parts[1];
    if (s->constant & 2u) {
        s->pack = pack_conv;
        s->pack_slot = 1;
        s->pack_parts = rows < 64 ? rows : 64;
        s->packed_bytes = weights;
        s->pack_also[0] = v.b.w_zero;
        s->pack_also[1] = v.groups;
        s->pack_also[2] = v.b.x_zero != 0;
    }
    return 1;
}
