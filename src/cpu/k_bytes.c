/* Products of bytes: quant_matmul and quant_conv. Numbers less their zero points are 16 bits wide, two to a lane, and sums of their
 * products are exact in 32 bits, so the order of sums does not show. One side lies in rows of pairs, the other in panels: a line of
 * LANES pairs, one for each column, for every pair of the summed axis. In a convolution rows are channels and columns are pixels. */
#include "cpu/k_bytes.h"
#include "cpu/simd/simd_turn.h"

#if QN_REGISTERS == 32
enum { ROWS = 8 };
#else
enum { ROWS = 4 };
#endif
enum { LANES = 2 * VF_N };

#define INLINE static inline __attribute__((always_inline))

/* s + both products of each lane of w with x, the same two numbers for all. */
#if defined(__AVX512VNNI__)
static inline vi dot2(vi s, vi w, vi x) { return (vi)_mm512_dpwssd_epi32((__m512i)s, (__m512i)w, (__m512i)x); }
#elif defined(__AVX2__)
static inline vi dot2(vi s, vi w, vi x) { return s + (vi)_mm256_madd_epi16((__m256i)w, (__m256i)x); }
#else
static inline vi dot2(vi s, vi w, vi x) { return s + (w << 16 >> 16) * (x << 16 >> 16) + (w >> 16) * (x >> 16); }
#endif

static inline vi vi_of(const int32_t *p) {
    vi v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* ---- Tiles: up to ROWS rows by one panel */

INLINE void tile(int rows, int64_t pairs, const int32_t *a, const int32_t *panel, int32_t *to) {
    vi sum[ROWS][2];
    QN_UNROLL
    for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = vi_set1(0);
    for (int64_t p = 0; p < pairs; p++, panel += LANES) {
        vi low = vi_of(panel), high = vi_of(panel + VF_N);
        QN_UNROLL
        for (int r = 0; r < rows; r++) {
            vi one = vi_set1(a[r * pairs + p]);
            sum[r][0] = dot2(sum[r][0], low, one);
            sum[r][1] = dot2(sum[r][1], high, one);
        }
    }
    QN_UNROLL
    for (int r = 0; r < rows; r++) memcpy(to + r * LANES, sum[r], sizeof sum[r]);
}

static void sum_tile(int rows, int64_t pairs, const int32_t *a, const int32_t *panel, int32_t *to) {
    int done = 0;
    for (; rows - done >= ROWS; done += ROWS) tile(ROWS, pairs, a + done * pairs, panel, to + done * LANES);
    if (rows - done >= 4) {
        tile(4, pairs, a + done * pairs, panel, to + done * LANES);
        done += 4;
    }
    for (; done < rows; done++) tile(1, pairs, a + done * pairs, panel, to + done * LANES);
}

/* ---- Bytes as pairs */

static int64_t pairs_of(const qn_bytes *b) { return (b->k + 1) / 2; }

/* n bytes less zero. */
static void widen(uint32_t dtype, const char *from, int64_t n, int zero, int16_t *to) {
    if (dtype == QN_DTYPE_I8)
        for (int64_t i = 0; i < n; i++) to[i] = (int16_t)((int8_t)from[i] - zero);
    else
        for (int64_t i = 0; i < n; i++) to[i] = (int16_t)((uint8_t)from[i] - zero);
}
/* A row of them; half of the last pair may be empty. */
static void widen_row(uint32_t dtype, const char *from, int64_t k, int zero, int16_t *to) {
    widen(dtype, from, k, zero, to);
    if (k & 1) to[k] = 0;
}

/* ---- quant_matmul */

static void pack_columns(const qn_bytes *b, int64_t panel, int32_t *to) {
    const qn_tensor *w = b->c->src[1];
    int64_t n = qn_ne(w, 0), first = panel * LANES, some = n - first < LANES ? n - first : LANES;
    int16_t *pairs = (int16_t *)(to + panel * pairs_of(b) * LANES);
    for (int64_t k = 0; k < pairs_of(b) * 2; k++) {
        int16_t *line = pairs + k / 2 * 2 * LANES + k % 2;
        const char *from = k < b->k ? qn_at(w, k * n + first) : NULL;
        for (int64_t j = 0; j < LANES; j++)
            line[2 * j] = from && j < some ? (int16_t)(qn_bytes_number(w->dtype, from + j) - b->w_zero) : (int16_t)0;
    }
}

static void matmul_unit(const qn_bytes *b, int64_t panel, int64_t row, int64_t end, const int32_t *rows, const int32_t *panels) {
    int64_t n = qn_ne(b->c->src[1], 0), first = panel * LANES, some = n - first < LANES ? n - first : LANES;
    double scale[LANES], bias[LANES];
    int32_t sums[ROWS * LANES];
    for (int64_t j = 0; j < some; j++) scale[j] = qn_bytes_scale(b, first + j), bias[j] = qn_bytes_bias(b, first + j);
    for (; row < end; row += ROWS) {
        int count = (int)(end - row < ROWS ? end - row : ROWS);
        sum_tile(count, pairs_of(b), rows + row * pairs_of(b), panels + panel * pairs_of(b) * LANES, sums);
        for (int r = 0; r < count; r++)
            qn_bytes_finish(b, sums + r * LANES, scale, bias, some, qn_at(b->c->dst[0], (row + r) * n + first));
    }
}

enum { TALL = 64 }; /* rows of a unit */

/* Phases: rows of x; panels of w, unless they are packed; the sums. */
static void run_matmul(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_bytes b = qn_bytes_matmul(c);
    int64_t m = qn_tensor_count(c->src[0]) / b.k, panels = qn_bytes_ceil(qn_ne(c->src[1], 0), LANES);
    int64_t all = phase == 0 ? m : phase == 1 ? panels : panels * qn_bytes_ceil(m, TALL);
    int64_t i = qn_cpu_cut(all, s->parts[phase], part), end = qn_cpu_cut(all, s->parts[phase], part + 1);
    int32_t *rows = c->workspace, *own = (int32_t *)(void *)((char *)c->workspace + qn_bytes_lines(m * pairs_of(&b) * 4));
    for (; i < end; i++) {
        if (phase == 0)
            widen_row(c->src[0]->dtype, qn_at(c->src[0], i * b.k), b.k, b.x_zero, (int16_t *)(rows + i * pairs_of(&b)));
        else if (phase == 1 && !s->packed) pack_columns(&b, i, own);
        else if (phase == 2) {
            int64_t row = i / panels * TALL;
            matmul_unit(&b, i % panels, row, row + TALL < m ? row + TALL : m, rows, s->packed ? s->packed : own);
        }
    }
}

static void pack_matmul(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part) {
    qn_bytes b = qn_bytes_matmul(c);
    (void)s;
    pack_columns(&b, part, packed);
}

int QN_K(quant_matmul)(const qn_call *c, qn_cpu_step *s) {
    qn_bytes b = qn_bytes_matmul(c);
    if (!qn_bytes_fit(&b)) return 0;
    int64_t n = qn_ne(c->src[1], 0), m = qn_tensor_count(c->src[0]) / b.k, panels = qn_bytes_ceil(n, LANES);
    size_t weights = qn_bytes_lines(panels * pairs_of(&b) * LANES * 4);
    s->run = run_matmul;
    s->name = "bytes by pairs";
    s->n_phases = 3;
    s->parts[0] = qn_cpu_parts(m, (double)b.k * 3, 0);
    s->parts[1] = s->constant & 2u ? 1 : qn_cpu_parts(panels, (double)b.k * LANES * 3, 0);
    s->parts[2] = qn_cpu_parts(panels * qn_bytes_ceil(m, TALL), 0, (double)b.k * LANES * (double)(m < TALL ? m : TALL));
    s->workspace = qn_bytes_lines(m * pairs_of(&b) * 4) + weights;
    if (s->constant & 2u) {
        s->pack = pack_matmul;
        s->pack_slot = 1;
        s->pack_parts = panels;
        s->packed_bytes = weights;
        s->pack_also[0] = b.w_zero;
    }
    return 1;
}

/* ---- quant_conv: rows of weights, panels of pixels, each part its own */

static void lay_panel(const qn_bytes_conv *v, int64_t image, int64_t group, int64_t first, int64_t some, int32_t *to) {
    const qn_place from = qn_patch_pixel(&v->s, first);
    qn_bytes_tap tap = {.plane = qn_bytes_planes(v, image, group)};
    uint32_t dtype = v->b.c->src[0]->dtype;
    int16_t pair[2][LANES] = {{0}};
    char seen[LANES];
    for (int64_t k = 0; k < v->b.k; k += 2, to += LANES) {
        for (int i = 0; i < 2 && k + i < v->b.k; i++) {
            qn_bytes_see(v, &tap, from, some, seen);
            qn_bytes_next(v, &tap);
            widen(dtype, seen, some, v->b.x_zero, pair[i]);
        }
        if (k + 1 == v->b.k) memset(pair[1], 0, sizeof pair[1]);
        for (int j = 0; j < LANES; j++) to[j] = (int32_t)((uint32_t)(uint16_t)pair[0][j] | (uint32_t)(uint16_t)pair[1][j] << 16);
    }
}

static void conv_unit(const qn_bytes_conv *v, int64_t image, int64_t group, int64_t panel, const int32_t *rows, int32_t *own) {
    int64_t first = panel * LANES, some = v->s.pixels - first < LANES ? v->s.pixels - first : LANES;
    int32_t sums[ROWS * LANES];
    lay_panel(v, image, group, first, some, own);
    for (int64_t o = 0; o < v->channels; o += ROWS) {
        int count = (int)(v->channels - o < ROWS ? v->channels - o : ROWS);
        int64_t channel = group * v->channels + o;
        sum_tile(count, pairs_of(&v->b), rows + channel * pairs_of(&v->b), own, sums);
        for (int r = 0; r < count; r++) {
            double scale[LANES], bias[LANES], by = qn_bytes_scale(&v->b, channel + r), more = qn_bytes_bias(&v->b, channel + r);
            for (int j = 0; j < LANES; j++) scale[j] = by, bias[j] = more;
            qn_bytes_finish(&v->b, sums + r * LANES, scale, bias, some,
                            qn_at(v->b.c->dst[0], (image * v->groups * v->channels + channel + r) * v->s.pixels + first));
        }
    }
}

static void pack_row(const qn_bytes_conv *v, int64_t i, int32_t *rows) {
    const qn_tensor *w = v->b.c->src[1];
    widen_row(w->dtype, qn_at(w, i * v->b.k), v->b.k, v->b.w_zero, (int16_t *)(rows + i * pairs_of(&v->b)));
}

/* Phases: weights, unless they are packed; the sums. */
static void run_conv(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_bytes_conv v = qn_bytes_conv_of(c);
    int64_t channels = v.groups * v.channels, panels = qn_bytes_ceil(v.s.pixels, LANES),
            all = phase ? v.images * v.groups * panels : channels;
    int64_t i = qn_cpu_cut(all, s->parts[phase], part), end = qn_cpu_cut(all, s->parts[phase], part + 1);
    char *slot = (char *)c->workspace + qn_bytes_lines(channels * pairs_of(&v.b) * 4) +
                 qn_bytes_lines(pairs_of(&v.b) * LANES * 4) * (size_t)part;
    for (; i < end; i++) {
        if (phase == 0 && !s->packed) pack_row(&v, i, c->workspace);
        else if (phase == 1)
            conv_unit(&v, i / panels / v.groups, i / panels % v.groups, i % panels, s->packed ? s->packed : c->workspace,
                      (int32_t *)(void *)slot);
    }
}

static void pack_conv(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part) {
    qn_bytes_conv v = qn_bytes_conv_of(c);
    (void)s;
    pack_row(&v, part, packed);
}

int QN_K(quant_conv)(const qn_call *c, qn_cpu_step *s) {
    qn_bytes_conv v = qn_bytes_conv_of(c);
    if (!qn_bytes_fit(&v.b) || !qn_bytes_has(c->src[0]->dtype, v.b.x_zero)) return 0; /* beyond the edges lie bytes too */
    int64_t channels = v.groups * v.channels, panels = qn_bytes_ceil(v.s.pixels, LANES), units = v.images * v.groups * panels;
    size_t weights = qn_bytes_lines(channels * pairs_of(&v.b) * 4);
    s->run = run_conv;
    s->name = "bytes by pairs of patches";
    s->n_phases = 2;
    s->parts[0] = s->constant & 2u ? 1 : qn_cpu_parts(channels, (double)v.b.k * 3, 0);
    s->parts[1] = qn_cpu_parts(units, (double)v.b.k * LANES * 4, (double)v.b.k * LANES * (double)v.channels);
    s->workspace = weights + qn_bytes_lines(pairs_of(&v.b) * LANES * 4) * (size_t)s->parts[1];
    if (s->constant & 2u) {
        s->pack = pack_conv;
        s->pack_slot = 1;
        s->pack_parts = channels;
        s->packed_bytes = weights;
        s->pack_also[0] = v.b.w_zero;
    }
    return 1;
}
