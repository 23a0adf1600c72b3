/* Units of a product of bf16 weights: chunk by chunk all pieces of the unit's rows pass by its panels in tiles; then pieces are
 * added up, and what tiles cannot do is done by vectors. */
#include "cpu/kd_bf16.h"
#include "cpu/simd/simd_dot.h"
#include "cpu/simd/simd_tile.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    PANEL = QN_BF16_PANEL,
    STEP = QN_BF16_STEP,
    CHUNK = QN_BF16_CHUNK,
    PANELS = QN_BF16_PANELS,
    PIECES_MOST = 3,
    LINE = 64,                    /* bytes of a line: of a tile, of a panel, of a cache */
    TILE = 16,                    /* lines of a tile */
    TILE_BYTES = TILE * LINE,     /* and so a step of a panel */
    ROW_BYTES = CHUNK * 2 + LINE, /* of a piece's chunk: the sixteen of a tile fall onto different lines of the first cache */
    STEPS = CHUNK / STEP,         /* of a chunk */
    CHUNK_BYTES = STEPS * TILE_BYTES,
    SHORTEST = 256,               /* elements of a row: below, what follows the tiles takes longer than the products */
    ABREAST = QN_BF16_PANELS_FEW, /* panels at a time, at most */
    AHEAD = 2048                  /* bytes, in a stream that is read once */
};

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static size_t in_lines(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

/* ---- Sizes */

int qn_bf16_describe(qn_bf16_product *p, const qn_tensor *weights, const qn_tensor *x, const qn_tensor *y, int64_t n_rows) {
    *p = (qn_bf16_product){.m = qn_ne(weights, 1), .k = qn_ne(weights, 0), .matrices = qn_ne(weights, 2) * qn_ne(weights, 3)};
    p->panels = ceil_div(p->m, PANEL);
    p->chunks = ceil_div(p->k, CHUNK);
    while (p->bits < 62 && (int64_t)1 << p->bits < p->k) p->bits++;
    p->along = qn_nb(weights, 1);
    p->deep = qn_nb(weights, 0);
    p->n_rows = n_rows;
    p->unit_rows = n_rows < QN_BF16_ROWS ? n_rows : QN_BF16_ROWS;
    p->pieces = x->dtype == QN_DTYPE_F32 ? 3 : x->dtype == QN_DTYPE_F16 ? 2 : 1;
    p->x_dtype = x->dtype;
    p->x_step = qn_nb(x, 0);
    p->y_step = qn_nb(y, 0);
    int floats = x->dtype == QN_DTYPE_F32 || x->dtype == QN_DTYPE_F16 || x->dtype == QN_DTYPE_BF16;
    return weights->dtype == QN_DTYPE_BF16 && floats && y->dtype == QN_DTYPE_F32 && p->k >= SHORTEST && n_rows > 0 && p->m > 0;
}

static int64_t panel_bytes(const qn_bf16_product *p) { return ceil_div(p->k, STEP) * TILE_BYTES; }
static int64_t tiles_of(const qn_bf16_product *p, int64_t rows) { return ceil_div(rows * p->pieces, TILE); }

/* What a part has for itself: sums, [tile][panel]; chunks of some panels that are packed on the way. */
static size_t sums_bytes(const qn_bf16_product *p) { return (size_t)tiles_of(p, p->unit_rows) * PANELS * TILE_BYTES; }
/* Pieces, and behind them as many lines more as the tiles of a unit may have without any. */
static size_t rows_bytes(const qn_bf16_product *p) {
    return (size_t)(p->chunks * p->n_rows * p->pieces + tiles_of(p, p->unit_rows)) * ROW_BYTES;
}

size_t qn_bf16_workspace(qn_bf16_product *p, int64_t parts) {
    p->slot = sums_bytes(p) + (size_t)ABREAST * CHUNK_BYTES;
    return rows_bytes(p) + in_lines((size_t)p->n_rows * sizeof(qn_bf16_range)) + p->slot * (size_t)parts;
}

void qn_bf16_place(qn_bf16_product *p, void *workspace) {
    p->rows = workspace;
    p->ranges = (qn_bf16_range *)(void *)(p->rows + rows_bytes(p));
    p->slots = (char *)p->ranges + in_lines((size_t)p->n_rows * sizeof(qn_bf16_range));
}

size_t qn_bf16_packed_bytes(const qn_bf16_product *p) {
    return (size_t)(p->panels * p->matrices) * ((size_t)panel_bytes(p) + sizeof(qn_bf16_range));
}

/* ---- Packing */

typedef uint16_t halves __attribute__((vector_size(LINE)));

/* Of magnitudes less one, so that zero is above all others: the least, and the most of the magnitudes. */
static qn_bf16_range range_of(const char *lines, int64_t n) {
    halves least = (halves){0} - 1, most = {0};
    for (int64_t i = 0; i < n; i++) {
        halves w;
        memcpy(&w, lines + i * LINE, sizeof w);
        w &= 0x7fff;
        least = (halves)_mm512_min_epu16((__m512i)least, (__m512i)(w - 1));
        most = (halves)_mm512_max_epu16((__m512i)most, (__m512i)w);
    }
    int low = 0xffff, high = 0;
    for (int i = 0; i < LINE / 2; i++) {
        low = least[i] < low ? least[i] : low;
        high = most[i] > high ? most[i] : high;
    }
    return (qn_bf16_range){(int16_t)(low == 0xffff ? 255 : (low + 1) >> 7), (int16_t)(high >> 7)};
}

static qn_bf16_range join(qn_bf16_range a, qn_bf16_range b) {
    return (qn_bf16_range){a.least < b.least ? a.least : b.least, a.most > b.most ? a.most : b.most};
}

/* Rows whose elements are side by side: squares of pairs are turned. Rows that are not there are zero. */
INLINE void turn_step(const char *from, int64_t along, int rows, int count, char *to) {
    vf pairs[VF_N];
    QN_UNROLL
    for (int i = 0; i < VF_N; i++) {
        vu row = vu_set1(0);
        if (count == STEP) row = i < rows ? vu_load(from + i * along) : row;
        else if (i < rows) memcpy(&row, from + i * along, (size_t)count * 2);
        pairs[i] = (vf)row;
    }
    vf_turn(pairs);
    QN_UNROLL
    for (int i = 0; i < VF_N; i++) vu_store(to + i * LINE, (vu)pairs[i]);
}

static void pack_rows(const char *from, int64_t along, int rows, int count, char *to) {
    for (; count >= STEP; count -= STEP, from += LINE, to += TILE_BYTES) {
        if (rows == PANEL) turn_step(from, along, PANEL, STEP, to);
        else turn_step(from, along, rows, STEP, to);
    }
    if (count) turn_step(from, along, rows, count, to);
}

static void pack_any(const char *from, int64_t along, int64_t deep, int rows, int count, char *to) {
    memset(to, 0, (size_t)(ceil_div(count, STEP) * TILE_BYTES));
    for (int p = 0; p < count; p++)
        for (int i = 0; i < rows; i++) memcpy(to + p / 2 * LINE + i * 4 + p % 2 * 2, from + i * along + p * deep, 2);
}

/* Elements side by side the other way: two lines are interleaved. */
static void pack_lines(const char *from, int64_t deep, int count, char *to) {
    for (int p = 0; p < ceil_div(count, STEP) * STEP; p += 2, to += LINE) {
        vh even = {0}, odd = {0};
        if (p < count) memcpy(&even, from + p * deep, sizeof even);
        if (p + 1 < count) memcpy(&odd, from + (p + 1) * deep, sizeof odd);
        vu_store(to, __builtin_convertvector(even, vu) | __builtin_convertvector(odd, vu) << 16);
    }
}

/* A chunk of some rows. */
static qn_bf16_range pack_chunk(const qn_bf16_product *p, const char *from, int rows, int count, char *to) {
    if (p->deep == 2) pack_rows(from, p->along, rows, count, to);
    else if (p->along == 2 && rows == PANEL) pack_lines(from, p->deep, count, to);
    else pack_any(from, p->along, p->deep, rows, count, to);
    return range_of(to, ceil_div(count, STEP) * TILE);
}

static int chunk_of(const qn_bf16_product *p, int64_t chunk) {
    return p->k - chunk * CHUNK < CHUNK ? (int)(p->k - chunk * CHUNK) : CHUNK;
}
static int rows_of(const qn_bf16_product *p, int64_t panel) {
    return p->m - panel * PANEL < PANEL ? (int)(p->m - panel * PANEL) : PANEL;
}

void qn_bf16_pack(const qn_bf16_product *p, const char *from, int64_t panel, void *packed) {
    qn_bf16_range range = {255, 0};
    char *to = (char *)packed + panel * panel_bytes(p);
    for (int64_t c = 0; c < p->chunks; c++)
        range = join(range, pack_chunk(p, from + c * CHUNK * p->deep, rows_of(p, panel % p->panels), chunk_of(p, c),
                                       to + c * CHUNK_BYTES));
    memcpy((char *)packed + p->panels * p->matrices * panel_bytes(p) + panel * (int64_t)sizeof range, &range, sizeof range);
}

/* ---- Activations */

static float load_one(const char *x, uint32_t dtype) {
    if (dtype == QN_DTYPE_F32) return *(const float *)(const void *)x;
    uint16_t half = *(const uint16_t *)(const void *)x;
    return dtype == QN_DTYPE_F16 ? qn_f16_to_f32(half) : qn_bf16_to_f32(half);
}

/* Elements from number i on, n of them; the other lanes are zero. */
static vf load_some(const qn_bf16_product *p, const char *x, int64_t i, int n) {
    float t[VF_N] = {0};
    if (p->x_dtype == QN_DTYPE_F32 && p->x_step == 4) return vf_loadn((const float *)(const void *)x + i, n);
    if (p->x_dtype == QN_DTYPE_BF16 && p->x_step == 2 && n == VF_N) return vf_load_b((const uint16_t *)(const void *)x + i);
    if (p->x_dtype == QN_DTYPE_F16 && p->x_step == 2 && n == VF_N) return vf_load_h((const uint16_t *)(const void *)x + i);
    for (int j = 0; j < n; j++) t[j] = load_one(x + (i + j) * p->x_step, p->x_dtype);
    return vf_load(t);
}

/* What is taken off is exact, and so is the last piece: eight bits are left for it. */
void qn_bf16_split(const qn_bf16_product *p, const char *x, int64_t row) {
    vu least = vu_set1(0xffffffffu), most = vu_set1(0);
    for (int64_t i = 0; i < ceil_div(p->k, STEP) * STEP; i += VF_N) {
        int n = p->k - i >= VF_N ? VF_N : p->k > i ? (int)(p->k - i) : 0;
        char *to = p->rows + ((i / CHUNK * p->n_rows + row) * p->pieces) * ROW_BYTES + i % CHUNK * 2;
        vf left = load_some(p, x, i, n);
        vu size = (vu)vi_bits(left) & 0x7fffffffu;
        least = (vu)_mm512_min_epu32((__m512i)least, (__m512i)(size - 1));
        most = (vu)_mm512_max_epu32((__m512i)most, (__m512i)size);
        for (int q = 0; q < p->pieces; q++, to += ROW_BYTES) {
            vu top = (vu)vi_bits(left) & 0xffff0000u;
            vh half = __builtin_convertvector(top >> 16, vh);
            memcpy(to, &half, sizeof half);
            left -= vf_of_bits((vi)top);
        }
    }
    uint32_t low = 0xffffffffu, high = 0;
    for (int i = 0; i < VF_N; i++) {
        low = least[i] < low ? least[i] : low;
        high = most[i] > high ? most[i] : high;
    }
    p->ranges[row] = (qn_bf16_range){(int16_t)(low == 0xffffffffu ? 255 : (low + 1) >> 23), (int16_t)(high >> 23)};
}

/* ---- Tiles. All lines of a unit's pieces are cut into tiles of the same height. */

/* Some chunks of two to six panels and of some tiles of pieces. What comes next is asked for on the way, `ask` lines of each
 * panel in each step: in steps before `turn` what is AHEAD, then `next`. And of the pieces' next chunk. */
typedef struct task {
    const char *w[ABREAST], *next[ABREAST], *x, *next_x;
    int64_t later;             /* bytes from a piece to its next chunk */
    int height, steps, begins; /* of tiles; begins: with zero */
    int turn, ask, ask_x;
    int once;   /* a single pass: what is QN_LATER bytes behind, too, is asked for into the second cache */
    char *sums; /* of the first tile with the first panel */
} task;

/* Registers from `weights` on hold weights, those before them pieces and sums. */
static void shape(int height, int weights) {
    tile_shapes s = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        s.bytes[i] = LINE;
        s.rows[i] = (uint8_t)(i < weights ? height : TILE);
    }
    tile_begin(&s);
}

INLINE void ask_for(const char *at, int lines) {
    for (int i = 0; i < lines; i++) __builtin_prefetch(at + i * LINE, 0, 3);
}
INLINE void ask_for_next(const task *t, int panel, int i) {
    ask_for(i < t->turn ? t->w[panel] + i * TILE_BYTES + AHEAD : t->next[panel] + (i - t->turn) * t->ask * LINE, t->ask);
    if (!t->once) return;
    int64_t at = (int64_t)i * TILE_BYTES + QN_LATER, end = (int64_t)t->steps * TILE_BYTES;
    const char *from = at < end ? t->w[panel] + at : t->next[panel] + at - end;
    for (int line = 0; line < TILE; line++) __builtin_prefetch(from + line * LINE, 0, 2);
}

INLINE void ask_for_pieces(const task *t, int i) { ask_for(t->next_x + i * t->ask_x * LINE, t->ask_x); }

/* Where pieces go on after step i - 1. */
INLINE const char *next_piece(const task *t, const char *x, int i) {
    return x + (i % STEPS ? LINE : t->later - (STEPS - 1) * LINE);
}

#define SUMS(tile, panel) (t->sums + ((tile)*PANELS + (panel)) * TILE_BYTES)
#define BEGIN(c, tile, panel)    \
    if (t->begins) TILE_ZERO(c); \
    else TILE_LOAD(c, SUMS(tile, panel), LINE)
#define END(c, tile, panel) TILE_STORE(c, SUMS(tile, panel), LINE)
#define PIECES(to, tile) TILE_LOAD(to, x + (tile)*height, ROW_BYTES)
#define WEIGHTS(to, panel)     \
    ask_for_next(t, panel, i); \
    TILE_LOAD(to, t->w[panel] + i * TILE_BYTES, LINE)

/* One tile and six panels, with one register for pieces and one for weights. */
static void one_by_six(const task *t) {
    int64_t height = (int64_t)t->height * ROW_BYTES;
    const char *x = t->x;
    BEGIN(0, 0, 0);
    BEGIN(1, 0, 1);
    BEGIN(2, 0, 2);
    BEGIN(3, 0, 3);
    BEGIN(4, 0, 4);
    BEGIN(5, 0, 5);
    for (int i = 0; i < t->steps; i++, x = next_piece(t, x, i)) {
        PIECES(6, 0);
        WEIGHTS(7, 0);
        TILE_DOT_B(0, 6, 7);
        WEIGHTS(7, 1);
        TILE_DOT_B(1, 6, 7);
        WEIGHTS(7, 2);
        TILE_DOT_B(2, 6, 7);
        WEIGHTS(7, 3);
        TILE_DOT_B(3, 6, 7);
        WEIGHTS(7, 4);
        TILE_DOT_B(4, 6, 7);
        WEIGHTS(7, 5);
        TILE_DOT_B(5, 6, 7);
    }
    END(0, 0, 0);
    END(1, 0, 1);
    END(2, 0, 2);
    END(3, 0, 3);
    END(4, 0, 4);
    END(5, 0, 5);
}

/* Two tiles and two panels. */
static void two_by_two(const task *t) {
    int64_t height = (int64_t)t->height * ROW_BYTES;
    const char *x = t->x;
    BEGIN(0, 0, 0);
    BEGIN(1, 0, 1);
    BEGIN(2, 1, 0);
    BEGIN(3, 1, 1);
    for (int i = 0; i < t->steps; i++, x = next_piece(t, x, i)) {
        PIECES(4, 0);
        WEIGHTS(6, 0);
        TILE_DOT_B(0, 4, 6);
        WEIGHTS(7, 1);
        TILE_DOT_B(1, 4, 7);
        ask_for_pieces(t, i);
        PIECES(5, 1);
        TILE_DOT_B(2, 5, 6);
        TILE_DOT_B(3, 5, 7);
    }
    END(0, 0, 0);
    END(1, 0, 1);
    END(2, 1, 0);
    END(3, 1, 1);
}

/* Three tiles and two panels, likewise. */
static void three_by_two(const task *t) {
    int64_t height = (int64_t)t->height * ROW_BYTES;
    const char *x = t->x;
    BEGIN(0, 0, 0);
    BEGIN(1, 1, 0);
    BEGIN(2, 2, 0);
    BEGIN(3, 0, 1);
    BEGIN(4, 1, 1);
    BEGIN(5, 2, 1);
    for (int i = 0; i < t->steps; i++, x = next_piece(t, x, i)) {
        PIECES(6, 0);
        WEIGHTS(7, 0);
        TILE_DOT_B(0, 6, 7);
        PIECES(6, 1);
        TILE_DOT_B(1, 6, 7);
        PIECES(6, 2);
        TILE_DOT_B(2, 6, 7);
        WEIGHTS(7, 1);
        TILE_DOT_B(5, 6, 7);
        ask_for_pieces(t, i);
        PIECES(6, 1);
        TILE_DOT_B(4, 6, 7);
        PIECES(6, 0);
        TILE_DOT_B(3, 6, 7);
    }
    END(0, 0, 0);
    END(1, 1, 0);
    END(2, 2, 0);
    END(3, 0, 1);
    END(4, 1, 1);
    END(5, 2, 1);
}

/* How the lines of a unit's pieces become tiles, and how many panels go abreast. */
typedef struct cut {
    int tiles, height, abreast, groups; /* groups of panels */
    int64_t span;                       /* chunks at a time */
    int weights;                        /* how the registers are shaped, 0: not yet */
} cut;

static cut cut_of(const qn_bf16_product *p, const qn_bf16_unit *u) {
    int lines = u->n * p->pieces, tiles = (lines + TILE - 1) / TILE, abreast = tiles == 1 ? ABREAST : 2;
    int groups = (int)ceil_div(u->end - u->panel, abreast);
    int64_t span = p->packed && qn_bf16_is_short(p, u->n) ? qn_bf16_span(p, u->n) : 1;
    return (cut){tiles, (lines + tiles - 1) / tiles, abreast, groups, span, 0};
}

/* Pass i over some tiles of the pieces. A single pass reads streams, of several each asks for its share of the panels that come
 * next; and of the pieces' next chunk as much as `group` of the groups should. */
static void ask(task *t, const cut *k, int i, int some, int group) {
    int passes = k->tiles > 1 ? k->tiles / 2 : 1;
    if (t->next[0] && passes == 1) {
        t->ask = TILE;
        t->once = 1;
        t->turn = t->steps * TILE_BYTES > AHEAD ? t->steps - AHEAD / TILE_BYTES : 0;
    } else if (t->next[0]) {
        t->ask = (TILE + passes - 1) / passes;
        for (int j = 0; j < k->abreast; j++) t->next[j] += i * t->steps * t->ask * LINE;
        if (i * t->ask >= TILE) t->ask = 0;
    }
    if (passes == 1) return;
    t->ask_x = (int)ceil_div((int64_t)some * k->height * ROW_BYTES / LINE, (int64_t)k->groups * STEPS);
    t->next_x = t->x + t->later + (int64_t)group * STEPS * t->ask_x * LINE;
}

/* A chunk of all tiles with a group of panels: by twos, one time by three where their number is odd. */
static void multiply(const task *first, cut *k, int group) {
    static void (*const by[])(const task *t) = {one_by_six, two_by_two, three_by_two};
    for (int i = 0, tile = 0, some; tile < k->tiles; i++, tile += some) {
        task t = *first;
        some = k->tiles == 1 ? 1 : i == 0 && k->tiles % 2 ? 3 : 2;
        t.x += (int64_t)tile * k->height * ROW_BYTES;
        t.sums += tile * PANELS * TILE_BYTES;
        t.height = k->height;
        ask(&t, k, i, some, group);
        int weights = some == 2 ? 6 : 7;
        if (!k->weights || (k->weights != weights && k->height < TILE)) shape(k->height, k->weights = weights);
        by[some - 1](&t);
    }
}

/* ---- What tiles cannot do */

enum { BIAS = 127, LEAST = 1 - BIAS, MANTISSA = 23, SHORT = 7 }; /* of f32: exponents; bits behind the point, and bf16's */

/* The least magnitude at which a result of these is right; infinity: at none. Sums of numbers that are multiples of a normal
 * number are right at any. What a tile drops is less than the least normal number: pieces times a weight, a weight times pieces,
 * sums of either, k (of so many bits) times each. */
static float right_from(qn_bf16_range x, qn_bf16_range w, int bits) {
    if (x.most == 255 || w.most == 255 || x.most + w.most - 2 * BIAS + 2 + bits >= BIAS) return INFINITY;
    if (w.least > 0 && x.least - BIAS - MANTISSA >= LEAST && x.least + w.least - 2 * BIAS - MANTISSA - SHORT >= LEAST) return 0;
    int most = x.most > w.most ? x.most : w.most, lost = LEAST + bits + 4 + (most > BIAS ? most - BIAS : 0);
    return lost + MANTISSA + 1 < BIAS ? ldexpf(1, lost + MANTISSA + 1) : INFINITY;
}

/* Sixteen results of row j, one chain each. */
static void chain(const qn_bf16_product *p, const qn_bf16_unit *u, int j, int64_t panel, float *to) {
    const char *packed = p->packed ? p->packed + (u->matrix * p->panels + panel) * panel_bytes(p) : NULL;
    const char *from = u->weights + panel * PANEL * p->along;
    char line[TILE_BYTES];
    vf sum = vf_zero();
    for (int64_t i = 0; i < p->k; i++) {
        if (!packed && i % 2 == 0) pack_any(from + i * p->deep, p->along, p->deep, rows_of(p, panel), p->k - i < 2 ? 1 : 2, line);
        vu pairs = vu_load(packed ? packed + i / 2 * LINE : line);
        vf w = vf_of_bits((vi)(i % 2 ? pairs & 0xffff0000u : pairs << 16));
        sum = vf_fma(vf_set1(load_one(u->x[j] + i * p->x_step, p->x_dtype)), w, sum);
    }
    vf_store(to, sum);
}

INLINE vf sum_of(const qn_bf16_product *p, const float *const *at) {
    vf sum = vf_load(at[0]);
    for (int q = 1; q < p->pieces; q++) sum += vf_load(at[q]);
    return sum;
}

/* Row j with a panel, whose sums over its pieces are at `at`. */
static void finish(const qn_bf16_product *p, const qn_bf16_unit *u, int j, int64_t panel, qn_bf16_range w,
                   const float *const *at) {
    int rows = rows_of(p, panel), wrong = 0;
    float from = right_from(p->ranges[u->row + j], w, p->bits), result[PANEL], other[PANEL];
    char *y = u->y[j] + panel * PANEL * p->y_step;
    vf_store(result, sum_of(p, at));
    for (int i = 0; i < rows; i++) wrong |= !(fabsf(result[i]) >= from) || from == INFINITY;
    if (wrong) chain(p, u, j, panel, other);
    for (int i = 0; i < rows; i++) {
        int right = fabsf(result[i]) >= from && from < INFINITY;
        *(float *)(void *)(y + i * p->y_step) = right ? result[i] : other[i];
    }
}

/* Where the range of all panels together does no harm there is nothing to look at in each. */
static void finish_row(const qn_bf16_product *p, const qn_bf16_unit *u, const cut *k, int j, const qn_bf16_range *ranges,
                       qn_bf16_range all, const char *sums) {
    const float *at[PIECES_MOST];
    int fine = p->y_step == 4 && right_from(p->ranges[u->row + j], all, p->bits) == 0;
    for (int q = 0; q < p->pieces; q++) {
        int line = j * p->pieces + q;
        at[q] = (const float *)(const void *)(sums + line / k->height * PANELS * TILE_BYTES + line % k->height * LINE);
    }
    for (int64_t panel = u->panel; panel < u->end; panel++) {
        if (fine && (panel + 1) * PANEL <= p->m) vf_store((float *)(void *)u->y[j] + panel * PANEL, sum_of(p, at));
        else finish(p, u, j, panel, ranges[panel - u->panel], at);
        for (int q = 0; q < p->pieces; q++) at[q] += TILE_BYTES / sizeof(float);
    }
}

/* ---- A unit */

/* Where chunk c of the unit's panel i is packed. */
static const char *packed_at(const qn_bf16_product *p, const qn_bf16_unit *u, int64_t i, int64_t c) {
    return p->packed + (u->matrix * p->panels + u->panel + i) * panel_bytes(p) + c * CHUNK_BYTES;
}

/* Chunks from c on of a group of panels, as they are packed, or one chunk that is packed now. Where the last group has too few
 * the last panel stands in: there is room for its sums. What comes next is the next group, or the next chunks of the first, or
 * the next unit. */
static void fetch(const qn_bf16_product *p, const qn_bf16_unit *u, const cut *k, int group, int64_t c, char *aside,
                  qn_bf16_range *ranges, task *t) {
    int64_t across = u->end - u->panel, first = (int64_t)group * k->abreast, then = c, next = first + k->abreast;
    if (group + 1 == k->groups) {
        then = c + k->span < p->chunks ? c + k->span : 0;
        next = then ? 0 : across;
    }
    for (int j = 0; j < k->abreast; j++) {
        int64_t i = first + j < across ? first + j : across - 1;
        if (p->packed) {
            t->w[j] = packed_at(p, u, i, c);
            t->next[j] = packed_at(p, u, next + j, then);
            continue;
        }
        const char *from = u->weights + (u->panel + i) * PANEL * p->along + c * CHUNK * p->deep;
        t->w[j] = aside + j * CHUNK_BYTES;
        qn_bf16_range range = pack_chunk(p, from, rows_of(p, u->panel + i), chunk_of(p, c), aside + j * CHUNK_BYTES);
        ranges[i] = c ? join(ranges[i], range) : range;
    }
}

void qn_bf16_run(const qn_bf16_product *p, const qn_bf16_unit *u, int64_t part) {
    char *slot = p->slots + p->slot * (size_t)part;
    qn_bf16_range ranges[PANELS];
    int64_t across = u->end - u->panel, all = p->panels * p->matrices;
    cut k = cut_of(p, u);
    tile_shapes before = tile_before();
    if (p->packed)
        memcpy(ranges, p->packed + all * panel_bytes(p) + (u->matrix * p->panels + u->panel) * (int64_t)sizeof *ranges,
               (size_t)across * sizeof *ranges);
    for (int64_t c = 0; c < p->chunks; c += k.span)
        for (int group = 0; group < k.groups; group++) {
            task t = {.later = p->n_rows * p->pieces * ROW_BYTES, .begins = c == 0};
            t.x = p->rows + c * t.later + u->row * p->pieces * ROW_BYTES;
            t.steps = (int)ceil_div(p->k - c * CHUNK < k.span * CHUNK ? p->k - c * CHUNK : k.span * CHUNK, STEP);
            t.sums = slot + group * k.abreast * TILE_BYTES;
            fetch(p, u, &k, group, c, slot + sums_bytes(p), ranges, &t);
            multiply(&t, &k, group);
        }
    tile_end(&before);
    qn_bf16_range joined = ranges[0];
    for (int64_t i = 1; i < across; i++) joined = join(joined, ranges[i]);
    for (int j = 0; j < u->n; j++) finish_row(p, u, &k, j, ranges, joined, slot);
}
