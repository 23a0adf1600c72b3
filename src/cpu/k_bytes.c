/* Products of bytes: quant_matmul and quant_conv. Numbers less their zero points are 16 bits wide, two to a lane, and sums of their
 * products are exact in 32 bits, so the order of sums does not show. One side lies in rows of pairs, the other in panels: a line of
 * LANES pairs, one for each column, for every pair of the summed axis. In a convolution rows are channels and columns are pixels. */
#include <limits.h>
#include <math.h>

#include "cpu/k_patch.h"
#include "cpu/simd/simd_turn.h"

#if defined(__AVX512F__) || (defined(__aarch64__) && !defined(QN_AT_c))
enum { ROWS = 8 };
#else
enum { ROWS = 4 };
#endif
enum { LANES = 2 * VF_N, LINE = 64, MOST = INT_MAX / (255 * 255) };

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

/* ---- Bytes in, bytes out */

typedef struct bytes {
    const qn_call *c;
    int64_t k, pairs;
    int x_zero, w_zero, y_zero;
} bytes;

static int number(uint32_t dtype, const char *p) { return dtype == QN_DTYPE_I8 ? *(const int8_t *)p : *(const uint8_t *)p; }

/* k bytes, `step` apart, less zero. */
INLINE void widen_by(uint32_t dtype, const char *from, int64_t step, int64_t k, int zero, int16_t *to) {
    for (int64_t i = 0; i < k; i++) to[i] = (int16_t)(number(dtype, from + i * step) - zero);
}
static void widen(uint32_t dtype, const char *from, int64_t step, int64_t k, int zero, int16_t *to) {
    if (dtype == QN_DTYPE_I8 && step == 1) widen_by(QN_DTYPE_I8, from, 1, k, zero, to);
    else if (step == 1) widen_by(QN_DTYPE_U8, from, 1, k, zero, to);
    else widen_by(dtype, from, step, k, zero, to);
}
/* The same in pairs: half of the last pair may be empty. */
static void widen_row(uint32_t dtype, const char *from, int64_t k, int zero, int16_t *to) {
    widen(dtype, from, 1, k, zero, to);
    if (k & 1) to[k] = 0;
}

/* What becomes of n sums: scale and bias for each, as the reference has it, in double. */
static void requantise(const bytes *b, const int32_t *sums, const double *scale, const double *bias, int64_t n, char *to) {
    const double magic = 0x1.8p52, low = b->c->dst[0]->dtype == QN_DTYPE_I8 ? -128 : 0, high = low + 255, zero = b->y_zero;
    int32_t out[LANES];
    for (int64_t i = 0; i < n; i++) {
        double v = ((double)sums[i] + bias[i]) * scale[i];
        double near = v < -1e6 ? -1e6 : v > 1e6 ? 1e6 : v; /* beyond every byte, and near enough for rounding by a sum */
        double y = (near + magic) - magic + zero;
        y = y < low ? low : y > high ? high : y;
        out[i] = v != v ? 0 : (int32_t)y;
    }
    for (int64_t i = 0; i < n; i++) to[i] = (char)out[i];
}

static double scale_at(const bytes *b, int64_t i) {
    const qn_tensor *t = b->c->src[2];
    return qn_get4(t, 0, 0, 0, qn_tensor_count(t) == 1 ? 0 : i);
}
static double bias_at(const bytes *b, int64_t i) {
    const qn_tensor *t = b->c->n_src > 3 ? b->c->src[3] : NULL;
    return t ? qn_get4(t, 0, 0, 0, i) : 0;
}

static size_t in_lines(int64_t n) { return (size_t)((n + LINE - 1) / LINE) * LINE; }
static int is_dense(const qn_call *c) {
    return qn_cpu_is_dense(c->src[0]) && qn_cpu_is_dense(c->src[1]) && qn_cpu_is_dense(c->dst[0]);
}
static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* ---- quant_matmul: rows of x, columns of w [K, N] */

static bytes matmul_of(const qn_call *c) {
    const qn_attr_quant_matmul *at = c->attr;
    int64_t k = qn_ne(c->src[0], 0);
    return (bytes){c, k, (k + 1) / 2, at->x_zero, at->w_zero, at->y_zero};
}

static void pack_columns(const bytes *b, int64_t panel, int32_t *to) {
    const qn_tensor *w = b->c->src[1];
    int64_t n = qn_ne(w, 0), first = panel * LANES, some = n - first < LANES ? n - first : LANES;
    int16_t *pairs = (int16_t *)(to + panel * b->pairs * LANES);
    for (int64_t k = 0; k < b->pairs * 2; k++) {
        int16_t *line = pairs + k / 2 * 2 * LANES + k % 2;
        const char *from = k < b->k ? qn_at(w, k * n + first) : NULL;
        for (int64_t j = 0; j < LANES; j++)
            line[2 * j] = from && j < some ? (int16_t)(number(w->dtype, from + j) - b->w_zero) : (int16_t)0;
    }
}

static void matmul_unit(const bytes *b, int64_t panel, int64_t row, int64_t end, const int32_t *rows, const int32_t *panels) {
    int64_t n = qn_ne(b->c->src[1], 0), first = panel * LANES, some = n - first < LANES ? n - first : LANES;
    double scale[LANES], bias[LANES];
    int32_t sums[ROWS * LANES];
    for (int64_t j = 0; j < some; j++) scale[j] = scale_at(b, first + j), bias[j] = bias_at(b, first + j);
    for (; row < end; row += ROWS) {
        int count = (int)(end - row < ROWS ? end - row : ROWS);
        sum_tile(count, b->pairs, rows + row * b->pairs, panels + panel * b->pairs * LANES, sums);
        for (int r = 0; r < count; r++)
            requantise(b, sums + r * LANES, scale, bias, some, qn_at(b->c->dst[0], (row + r) * n + first));
    }
}

enum { TALL = 64 }; /* rows of a unit */

/* Phases: rows of x; panels of w, unless they are packed; the sums. */
static void run_matmul(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    bytes b = matmul_of(c);
    int64_t m = qn_tensor_count(c->src[0]) / b.k, panels = ceil_div(qn_ne(c->src[1], 0), LANES);
    int64_t all = phase == 0 ? m : phase == 1 ? panels : panels * ceil_div(m, TALL);
    int64_t i = qn_cpu_cut(all, s->parts[phase], part), end = qn_cpu_cut(all, s->parts[phase], part + 1);
    int32_t *rows = c->workspace, *own = (int32_t *)(void *)((char *)c->workspace + in_lines(m * b.pairs * 4));
    for (; i < end; i++) {
        if (phase == 0) widen_row(c->src[0]->dtype, qn_at(c->src[0], i * b.k), b.k, b.x_zero, (int16_t *)(rows + i * b.pairs));
        else if (phase == 1 && !s->packed) pack_columns(&b, i, own);
        else if (phase == 2) {
            int64_t row = i / panels * TALL;
            matmul_unit(&b, i % panels, row, row + TALL < m ? row + TALL : m, rows, s->packed ? s->packed : own);
        }
    }
}

static void pack_matmul(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part) {
    bytes b = matmul_of(c);
    (void)s;
    pack_columns(&b, part, packed);
}

int QN_K(quant_matmul)(const qn_call *c, qn_cpu_step *s) {
    bytes b = matmul_of(c);
    if (qn_tensor_count(c->dst[0]) == 0 || !is_dense(c) || b.k < 1 || b.k > MOST) return 0;
    int64_t n = qn_ne(c->src[1], 0), m = qn_tensor_count(c->src[0]) / b.k, panels = ceil_div(n, LANES);
    size_t weights = in_lines(panels * b.pairs * LANES * 4);
    s->run = run_matmul;
    s->name = "bytes by pairs";
    s->n_phases = 3;
    s->parts[0] = qn_cpu_parts(m, (double)b.k * 3, 0);
    s->parts[1] = s->constant & 2u ? 1 : qn_cpu_parts(panels, (double)b.k * LANES * 3, 0);
    s->parts[2] = qn_cpu_parts(panels * ceil_div(m, TALL), 0, (double)b.k * LANES * (double)(m < TALL ? m : TALL));
    s->workspace = in_lines(m * b.pairs * 4) + weights;
    if (s->constant & 2u) {
        s->pack = pack_matmul;
        s->pack_slot = 1;
        s->pack_parts = panels;
        s->packed_bytes = weights;
    }
    return 1;
}

/* ---- quant_conv: rows of weights, panels of pixels, each part its own */

typedef struct conv {
    bytes b;
    qn_patch_shape s;
    int64_t images, groups, deep, channels; /* deep, channels: of a group */
} conv;

static conv conv_of(const qn_call *c) {
    const qn_attr_quant_conv *at = c->attr;
    const qn_tensor *x = c->src[0], *w = c->src[1];
    int64_t taps[QN_WINDOW_AXES] = {1, 1, 1};
    int axes = x->rank - 2;
    qn_tensor y = *c->dst[0];
    for (int k = 0; k < axes; k++) taps[k] = qn_ne(w, k);
    conv v = {.images = x->shape[0], .groups = at->groups, .deep = w->shape[1], .channels = w->shape[0] / at->groups};
    v.s = qn_patch_shape_of(&(qn_window_lists){&at->stride, &at->padding, &at->padding_hi, &at->dilation}, x, &y, taps, axes);
    int64_t k = v.deep * v.s.taps;
    v.b = (bytes){c, k, (k + 1) / 2, at->x_zero, at->w_zero, at->y_zero};
    return v;
}

/* Bytes x, x + stride, .. of a row that has n of them, less zero; 0 where there is none. */
static void see_row(const conv *v, const char *row, int64_t n, int64_t x, int64_t stride, int64_t count, int16_t *to) {
    int64_t i = 0, inside = x < n ? (n - x - 1) / stride + 1 : 0;
    for (; i < count && x < 0; i++, x += stride) to[i] = 0;
    if (inside > count) inside = count;
    if (inside > i) widen(v->b.c->src[0]->dtype, row + x, stride, inside - i, v->b.x_zero, to + i);
    for (i = inside > i ? inside : i; i < count; i++) to[i] = 0;
}

/* What tap and channel k sees from up to LANES pixels from `p` on; zero beyond the edges. */
static void see_bytes(const conv *v, const char *planes, int64_t k, qn_place p, int64_t count, int16_t *to) {
    const qn_window *w = &v->s.of[0], *h = &v->s.of[1], *d = &v->s.of[2];
    const qn_place tap = qn_patch_tap(&v->s, k % v->s.taps);
    const char *plane = planes + k / v->s.taps * v->s.samples;
    while (count > 0) {
        int64_t run = w->out - p.at[0] < count ? w->out - p.at[0] : count;
        int64_t y = qn_window_sample(h, p.at[1], tap.at[1]), z = qn_window_sample(d, p.at[2], tap.at[2]);
        if (y < 0 || y >= h->in || z < 0 || z >= d->in) memset(to, 0, (size_t)run * sizeof *to);
        else see_row(v, plane + (z * h->in + y) * w->in, w->in, qn_window_sample(w, p.at[0], tap.at[0]), w->stride, run, to);
        qn_patch_step(&p, run, w->out, h->out);
        to += run;
        count -= run;
    }
}

static void lay_panel(const conv *v, int64_t image, int64_t group, int64_t first, int64_t some, int32_t *to) {
    const qn_place from = qn_patch_pixel(&v->s, first);
    const char *planes = qn_at(v->b.c->src[0], (image * v->groups + group) * v->deep * v->s.samples);
    int16_t pair[2][LANES] = {{0}};
    for (int64_t k = 0; k < v->b.k; k += 2, to += LANES) {
        see_bytes(v, planes, k, from, some, pair[0]);
        if (k + 1 < v->b.k) see_bytes(v, planes, k + 1, from, some, pair[1]);
        else memset(pair[1], 0, sizeof pair[1]);
        for (int j = 0; j < LANES; j++) to[j] = (int32_t)((uint32_t)(uint16_t)pair[0][j] | (uint32_t)(uint16_t)pair[1][j] << 16);
    }
}

static void conv_unit(const conv *v, int64_t image, int64_t group, int64_t panel, const int32_t *rows, int32_t *own) {
    int64_t first = panel * LANES, some = v->s.pixels - first < LANES ? v->s.pixels - first : LANES;
    int32_t sums[ROWS * LANES];
    lay_panel(v, image, group, first, some, own);
    for (int64_t o = 0; o < v->channels; o += ROWS) {
        int count = (int)(v->channels - o < ROWS ? v->channels - o : ROWS);
        int64_t channel = group * v->channels + o;
        sum_tile(count, v->b.pairs, rows + channel * v->b.pairs, own, sums);
        for (int r = 0; r < count; r++) {
            double scale[LANES], bias[LANES], by = scale_at(&v->b, channel + r), more = bias_at(&v->b, channel + r);
            for (int j = 0; j < LANES; j++) scale[j] = by, bias[j] = more;
            requantise(&v->b, sums + r * LANES, scale, bias, some,
                       qn_at(v->b.c->dst[0], (image * v->groups * v->channels + channel + r) * v->s.pixels + first));
        }
    }
}

static void pack_row(const conv *v, int64_t i, int32_t *rows) {
    const qn_tensor *w = v->b.c->src[1];
    widen_row(w->dtype, qn_at(w, i * v->b.k), v->b.k, v->b.w_zero, (int16_t *)(rows + i * v->b.pairs));
}

/* Phases: weights, unless they are packed; the sums. */
static void run_conv(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    conv v = conv_of(c);
    int64_t channels = v.groups * v.channels, panels = ceil_div(v.s.pixels, LANES),
            all = phase ? v.images * v.groups * panels : channels;
    int64_t i = qn_cpu_cut(all, s->parts[phase], part), end = qn_cpu_cut(all, s->parts[phase], part + 1);
    char *slot = (char *)c->workspace + in_lines(channels * v.b.pairs * 4) + in_lines(v.b.pairs * LANES * 4) * (size_t)part;
    for (; i < end; i++) {
        if (phase == 0 && !s->packed) pack_row(&v, i, c->workspace);
        else if (phase == 1)
            conv_unit(&v, i / panels / v.groups, i / panels % v.groups, i % panels, s->packed ? s->packed : c->workspace,
                      (int32_t *)(void *)slot);
    }
}

static void pack_conv(const qn_call *c, const qn_cpu_step *s, void *packed, int64_t part) {
    conv v = conv_of(c);
    (void)s;
    pack_row(&v, part, packed);
}

int QN_K(quant_conv)(const qn_call *c, qn_cpu_step *s) {
    if (qn_tensor_count(c->dst[0]) == 0 || qn_tensor_count(c->src[0]) == 0 || qn_tensor_count(c->src[1]) == 0 || !is_dense(c))
        return 0;
    conv v = conv_of(c);
    if (v.b.k > MOST) return 0;
    int64_t channels = v.groups * v.channels, panels = ceil_div(v.s.pixels, LANES), units = v.images * v.groups * panels;
    size_t weights = in_lines(channels * v.b.pairs * 4);
    s->run = run_conv;
    s->name = "bytes by pairs of patches";
    s->n_phases = 2;
    s->parts[0] = s->constant & 2u ? 1 : qn_cpu_parts(channels, (double)v.b.k * 3, 0);
    s->parts[1] = qn_cpu_parts(units, (double)v.b.k * LANES * 4, (double)v.b.k * LANES * (double)v.channels);
    s->workspace = weights + in_lines(v.b.pairs * LANES * 4) * (size_t)s->parts[1];
    if (s->constant & 2u) {
        s->pack = pack_conv;
        s->pack_slot = 1;
        s->pack_parts = channels;
        s->packed_bytes = weights;
    }
    return 1;
}
