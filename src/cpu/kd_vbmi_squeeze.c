/* Streams of bf16 without what their exponents repeat. Nearly all weights of a panel have one of seven neighbouring exponents: a code of
 * three bits says which, or that it is another, written down apart. So a weight takes 11 bits, and is to the bit what it was. With few rows
 * of activations a core waits for memory and has the time to put them together. (An f16 takes 14 bits this way: what is saved is
 * what that time costs.)
 *
 * A panel: a head; blocks of DEEP lines; the lines that fill no block, as they are; the rare exponents. Two lines are a group. Of a block
 * come first the plain bytes of its groups, then their codes. A weight is turned by a bit, so that its sign and its fraction are the plain byte
 * and the upper byte is its exponent. A panel that would not become shorter follows its head as it is. */
#include "cpu/kd_vbmi_squeeze.h"

#include "cpu/simd/simd_turn.h"

#define INLINE static inline __attribute__((always_inline))

enum { WIDE = QN_GEMM_WIDE, LINE = 64, HEAD = LINE, DEEP = 16, GROUPS = DEEP / 2, OTHER = 7 };
/* Bytes of the codes of a group, of the plain bytes of a block, of a block. */
enum { BITS = 3, CODES = BITS * LINE / 8, PLAIN = GROUPS * LINE, BLOCK = PLAIN + GROUPS * CODES };
/* What the table says of a rare weight: the upper byte of no other, since the largest exponent is always rare. */
enum { LARGEST = 255 };
_Static_assert(WIDE * 2 == LINE && VF_N * 2 == WIDE, "a line of a panel is a line of a cache and two vectors");

typedef struct head {
    uint8_t squeezed, top; /* and the largest exponent that has a code */
} head;

static int64_t panel_bytes(uint32_t dtype, int64_t k) { return HEAD + qn_stream_panel_bytes(dtype, k); }
/* Where the lines that fill no block begin. */
INLINE int64_t rest_of(int64_t k) { return HEAD + k / DEEP * BLOCK; }

/* ---- Packing */

/* Weights as they come, from which lines are made. */
typedef struct source {
    const char *from;
    int64_t along, deep;
    uint32_t dtype;
    int rows;
} source;

enum { FETCHED = 32 }; /* lines at a time */

/* n lines, at most FETCHED, from line `first` on. */
static void fetch(const source *s, int64_t first, int n, char *lines) {
    qn_stream_pack(s->from + first * s->deep, s->dtype, s->along, s->deep, s->rows, n, lines);
}

/* The seven neighbouring exponents that most of a sample of the weights have, by the largest. */
static uint8_t choose_top(const source *s, int64_t k) {
    enum { SAMPLES = 32 };
    int count[LARGEST + 1] = {0}, top = OTHER - 1, best = -1;
    int64_t parts = k / FETCHED, step = parts / SAMPLES + 1;
    uint16_t lines[FETCHED * WIDE];
    for (int64_t i = 0; i < parts || i == 0; i += step) {
        int n = parts ? FETCHED : (int)k;
        fetch(s, i * FETCHED, n, (char *)lines);
        for (int j = 0; j < n * WIDE; j++) count[lines[j] >> 7 & LARGEST]++;
    }
    for (int e = OTHER - 1; e < LARGEST; e++) {
        int sum = 0;
        for (int j = 0; j < OTHER; j++) sum += count[e - j];
        if (sum > best) best = sum, top = e;
    }
    return (uint8_t)top;
}

/* Codes side by side, a byte each, become bits: eight of them as many bytes as one has bits. */
static void store_codes(__m512i codes, uint8_t *to) {
    uint64_t eight[8];
    memcpy(eight, &codes, sizeof eight);
    for (int i = 0; i < 8; i++) {
        uint64_t bits = _pext_u64(eight[i], UINT64_C(0x0707070707070707));
        memcpy(to + i * BITS, &bits, BITS);
    }
}

/* A line, turned, in such an order that its even words are the first vector and the odd ones the second. */
static __m512i in_order(const char *line) {
    static const uint16_t order[WIDE] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                         8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    __m512i words = _mm512_permutexvar_epi16(_mm512_loadu_si512(order), _mm512_loadu_si512(line));
    return _mm512_shldi_epi16(words, words, 1);
}

/* A group from its two lines; returns how many rare exponents it had. */
static int squeeze_group(const char *lines, uint8_t top, uint8_t *plain, uint8_t *codes, uint8_t *rare) {
    __m512i a = in_order(lines), b = in_order(lines + LINE), low = _mm512_set1_epi16(0xff);
    __m512i exponent = _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8));
    __m512i code = _mm512_min_epu8(_mm512_sub_epi8(_mm512_set1_epi8((char)top), exponent), _mm512_set1_epi8(OTHER));
    __mmask64 others = _mm512_cmpeq_epi8_mask(code, _mm512_set1_epi8(OTHER));
    _mm512_storeu_si512(plain, _mm512_packus_epi16(_mm512_and_si512(a, low), _mm512_and_si512(b, low)));
    store_codes(code, codes);
    _mm512_storeu_si512(rare, _mm512_maskz_compress_epi8(others, exponent));
    return (int)_mm_popcnt_u64(others);
}

/* 0: it did not become shorter. What is read is always whole vectors, so one must fit behind the last rare byte. */
static int squeeze(const source *s, int64_t k, uint8_t top, uint8_t *panel) {
    int64_t rest = rest_of(k), whole = k / DEEP * DEEP;
    uint8_t *to = panel + HEAD, *rare = panel + rest + k % DEEP * LINE, *end = panel + panel_bytes(s->dtype, k) - LINE;
    char lines[FETCHED * LINE];
    if (rare > end) return 0;
    for (int64_t first = 0; first < whole; first += FETCHED) {
        int n = whole - first < FETCHED ? DEEP : FETCHED;
        if (rare + n * WIDE > end) return 0;
        fetch(s, first, n, lines);
        for (int i = 0; i < n / 2; i++) {
            uint8_t *block = to + i / GROUPS * BLOCK, *codes = block + PLAIN + i % GROUPS * CODES;
            rare += squeeze_group(lines + 2 * i * LINE, top, block + i % GROUPS * LINE, codes, rare);
        }
        to += n / DEEP * BLOCK;
    }
    memset(rare, 0, LINE);
    if (k > whole) fetch(s, whole, (int)(k - whole), (char *)panel + rest);
    return 1;
}

static void pack(const char *from, uint32_t dtype, int64_t along, int64_t deep, int rows, int64_t k, void *panel) {
    source s = {from, along, deep, dtype, rows};
    head h = {0, choose_top(&s, k)};
    memset(panel, 0, HEAD);
    h.squeezed = (uint8_t)squeeze(&s, k, h.top, panel);
    memcpy(panel, &h, sizeof h);
    if (!h.squeezed) qn_stream_pack(from, dtype, along, deep, rows, k, (char *)panel + HEAD);
}

/* ---- A few rows */

typedef struct reader {
    const char *panel, *block;
    const uint8_t *rare;
    __m512i table;
} reader;

/* The exponents by their codes, eight times: what the bits above a code are does not matter. */
static __m512i table_of(int top) {
    uint8_t upper[64];
    for (int i = 0; i < 64; i++) upper[i] = (uint8_t)(i % 8 == OTHER ? LARGEST : top - i % 8);
    return _mm512_loadu_si512(upper);
}

/* Which byte of the codes goes to each byte, so that every eight codes have a word of 64 bits; and where in it each begins. */
typedef struct spread {
    __m512i bytes, shifts;
} spread;

static spread spread_of(void) {
    uint8_t bytes[64], shifts[64];
    for (int i = 0; i < 64; i++) {
        bytes[i] = (uint8_t)(i / 8 * BITS + (i % 8 < BITS ? i % 8 : 0));
        shifts[i] = (uint8_t)(i % 8 * BITS);
    }
    return (spread){_mm512_loadu_si512(bytes), _mm512_loadu_si512(shifts)};
}

/* Two lines of a panel, two vectors each. */
INLINE void read_group(reader *r, int g, const spread *to, vf w[2][2]) {
    const __m256i *codes = (const __m256i *)(const void *)(r->block + PLAIN + g * CODES);
    __m512i plain = _mm512_loadu_si512(r->block + g * LINE), spaced = _mm512_zextsi256_si512(_mm256_loadu_si256(codes));
    spaced = _mm512_multishift_epi64_epi8(to->shifts, _mm512_permutexvar_epi8(to->bytes, spaced));
    __m512i exponent = _mm512_permutexvar_epi8(spaced, r->table);
    __mmask64 others = _mm512_cmpeq_epi8_mask(exponent, _mm512_set1_epi8((char)LARGEST));
    __m512i rare = _mm512_loadu_si512(r->rare);
    __asm__("" : "+v"(rare)); /* spread on their way from memory, as compilers like it, they take several times as long */
    exponent = _mm512_mask_expand_epi8(exponent, others, rare);
    r->rare += _mm_popcnt_u64(others);
    __m512i line[2] = {_mm512_unpacklo_epi8(plain, exponent), _mm512_unpackhi_epi8(plain, exponent)};
    QN_UNROLL
    for (int i = 0; i < 2; i++) {
        line[i] = _mm512_shrdi_epi16(line[i], line[i], 1);
        w[i][0] = (vf)_mm512_slli_epi32(line[i], 16);
        w[i][1] = (vf)_mm512_and_si512(line[i], _mm512_set1_epi32((int)0xffff0000));
    }
}

/* Where a block is, of the first panel; behind the last one, where those of the panels are that come after those abreast. */
INLINE const char *block_at(const reader *r, int64_t block, int64_t blocks, int64_t next) {
    return r->panel + HEAD + (block < blocks ? block * BLOCK : next + (block - blocks) * BLOCK);
}

/* Asks for the lines of a block, a share of them for each of its groups. */
INLINE void ask(const char *soon, const char *later, int g) {
    QN_UNROLL
    for (int at = g * LINE; at < BLOCK; at += PLAIN) {
        __builtin_prefetch(soon + at, 0, 3);
        __builtin_prefetch(later + at, 0, 2);
    }
}

/* Line p of the panels for all rows of activations: w[panel][line][vector]. */
INLINE void add_line(const qn_stream *s, int rows, int panels, int64_t p, vf w[][2][2], int line, vf sum[][4]) {
    QN_UNROLL
    for (int j = 0; j < rows; j++) {
        vf x = vf_set1(s->x[j][p]);
        QN_UNROLL
        for (int i = 0; i < panels * 2; i++) sum[j][i] = vf_fma_stay(x, w[i / 2][line][i % 2], sum[j][i]);
    }
}

INLINE void run_blocks(const qn_stream *s, int rows, int panels, reader *r, vf sum[][4]) {
    enum { SOON = 2, LATER = 12 };
    spread to = spread_of();
    int64_t blocks = s->k / DEEP, bytes = panel_bytes(s->dtype, s->k);
    for (int64_t b = 0; b < blocks; b++) {
        const char *soon = block_at(r, b + SOON, blocks, panels * bytes), *later = block_at(r, b + LATER, blocks, panels * bytes);
        QN_UNROLL
        for (int g = 0; g < GROUPS; g++) {
            vf w[2][2][2];
            QN_UNROLL
            for (int i = 0; i < panels; i++) {
                ask(soon + i * bytes, later + i * bytes, g);
                read_group(&r[i], g, &to, w[i]);
            }
            add_line(s, rows, panels, b * DEEP + g * 2, w, 0, sum);
            add_line(s, rows, panels, b * DEEP + g * 2 + 1, w, 1, sum);
        }
        QN_UNROLL
        for (int i = 0; i < panels; i++) r[i].block += BLOCK;
    }
}

/* The lines that fill no block. */
INLINE void run_rest(const qn_stream *s, int rows, int panels, const reader *r, vf sum[][4]) {
    for (int64_t p = s->k / DEEP * DEEP; p < s->k; p++) {
        vf w[2][2][2];
        QN_UNROLL
        for (int i = 0; i < panels; i++) {
            const uint16_t *line = (const uint16_t *)(const void *)(r[i].panel + rest_of(s->k) + p % DEEP * LINE);
            w[i][0][0] = vf_load_b(line);
            w[i][0][1] = vf_load_b(line + VF_N);
        }
        add_line(s, rows, panels, p, w, 0, sum);
    }
}

enum { MOST_ROWS = 8 }; /* whose sums fit the registers */

INLINE void run_panels(const qn_stream *s, int rows, int panels, int64_t first) {
    vf sum[MOST_ROWS][4];
    float sums[2 * WIDE];
    reader r[2];
    int64_t bytes = panel_bytes(s->dtype, s->k);
    QN_UNROLL
    for (int i = 0; i < panels; i++) {
        const char *panel = s->panel + (first + i) * bytes, *rare = panel + rest_of(s->k) + s->k % DEEP * LINE;
        head h;
        memcpy(&h, panel, sizeof h);
        r[i] = (reader){panel, panel + HEAD, (const uint8_t *)rare, table_of(h.top)};
        __builtin_prefetch(rare + panels * bytes, 0, 2);
    }
    QN_UNROLL
    for (int j = 0; j < rows; j++) {
        QN_UNROLL
        for (int i = 0; i < panels * 2; i++) sum[j][i] = vf_zero();
    }
    run_blocks(s, rows, panels, r, sum);
    run_rest(s, rows, panels, r, sum);
    int64_t left = s->columns - first * WIDE, columns = left < panels * WIDE ? left : panels * WIDE;
    QN_UNROLL
    for (int j = 0; j < rows; j++) {
        QN_UNROLL
        for (int i = 0; i < panels * 2; i++) vf_store(sums + i * VF_N, sum[j][i]);
        memcpy(s->y[j] + first * WIDE, sums, (size_t)columns * 4);
    }
}

/* Two panels abreast where their sums leave room for the rest in the registers. */
enum { TOGETHER = 4 };
typedef void (*panels_fn)(const qn_stream *s, int64_t first);
#define BODY(rows, panels) \
    static void run_##rows##_##panels(const qn_stream *s, int64_t first) { run_panels(s, rows, panels, first); }
#define FOUR(DO, panels) DO(1, panels) DO(2, panels) DO(3, panels) DO(4, panels)
#define EIGHT(DO) FOUR(DO, 1) DO(5, 1) DO(6, 1) DO(7, 1) DO(8, 1)
EIGHT(BODY)
FOUR(BODY, 2)
#define NAME(rows, panels) run_##rows##_##panels,
static const panels_fn alone[MOST_ROWS] = {EIGHT(NAME)}, abreast[TOGETHER] = {FOUR(NAME, 2)};

static int is_squeezed(const qn_stream *s, int64_t panel) {
    head h;
    memcpy(&h, s->panel + panel * panel_bytes(s->dtype, s->k), sizeof h);
    return h.squeezed;
}

/* A panel that is as it was. */
static void run_plain(const qn_stream *s, int64_t panel) {
    qn_stream one = *s;
    one.panel = s->panel + panel * panel_bytes(s->dtype, s->k) + HEAD;
    one.panels = 1;
    one.columns = s->columns - panel * WIDE < WIDE ? s->columns - panel * WIDE : WIDE;
    for (int j = 0; j < s->n; j++) one.y[j] = s->y[j] + panel * WIDE;
    qn_stream_run(&one);
}

/* More rows than fit go one lot after the other. */
static void run_squeezed(const qn_stream *s, int64_t panel) {
    int lots = (s->n + MOST_ROWS - 1) / MOST_ROWS, each = (s->n + lots - 1) / lots;
    for (int j = 0; j < s->n; j += each) {
        qn_stream lot = *s;
        lot.n = s->n - j < each ? s->n - j : each;
        memcpy(lot.x, s->x + j, (size_t)lot.n * sizeof *lot.x);
        memcpy(lot.y, s->y + j, (size_t)lot.n * sizeof *lot.y);
        alone[lot.n - 1](&lot, panel);
    }
}

static void run(const qn_stream *s) {
    for (int64_t i = 0, n; i < s->panels; i += n) {
        int two = s->n <= TOGETHER && i + 1 < s->panels && is_squeezed(s, i) && is_squeezed(s, i + 1);
        n = two ? 2 : 1;
        if (two) abreast[s->n - 1](s, i);
        else if (is_squeezed(s, i)) run_squeezed(s, i);
        else run_plain(s, i);
    }
}

const qn_stream_way *qn_stream_squeezed(void) {
    static const qn_stream_way way = {panel_bytes, pack, run};
    return &way;
}
