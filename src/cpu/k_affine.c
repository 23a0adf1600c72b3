/* affine_quantize, affine_dequantize, affine_get_rows and affine_matmul: a row of codes is one stream of bits, of which a vector of
 * codes is taken at a time; the product decodes the weights into the panels of the f32 product. */
#include "cpu/k_affine.h"

#include <math.h>

#include "cpu/k_copy.h"
#include "cpu/k_decoded.h"
#include "cpu/k_lanes.h"
#include "cpu/simd/simd_dot.h"
#include "cpu/simd/simd_fields.h"

enum { RUN = 256, WHOLE = 16 }; /* elements decoded at a time; every level's vectors fit into WHOLE */

int qn_affine_describe(const qn_call *c, int first, qn_affine *a) {
    const qn_attr_affine_dequantize *at = c->attr;
    *a = (qn_affine){c->src[first], c->src[first + 1], c->src[first + 2], at->bits, at->group, 0};
    if (qn_tensor_count(a->codes) == 0) return 0;
    if (qn_ne(a->codes, 0) > 1 && qn_nb(a->codes, 0) != (a->codes->dtype == QN_DTYPE_U8 ? 1 : 4)) return 0;
    if (!qn_lanes_rows(a->scales) || !qn_lanes_rows(a->biases)) return 0;
    a->length = qn_ne(a->scales, 0) * a->group;
    return 1;
}

QN_INLINE float one_of(uint32_t dtype, const char *row, int64_t i) { return qn_lanes_some(dtype, row, i, 1)[0]; }

/* Codes [first, first + n) of one group, as far as they are whole vectors that begin with a vector; how many those are. The last
 * vectors of a row are read from a copy, so that nothing behind it is. */
static int64_t decode_vectors(const qn_affine *a, const vi_field *f, const uint8_t *codes, int64_t first, int64_t n, float scale,
                              float bias, float *to) {
    const uint8_t *end = codes + a->length * a->bits / 8;
    uint8_t rest[VI_FIELD_BYTES];
    int64_t i = 0, bit = first * a->bits;
    if (first % VF_N) return 0;
    for (; i + VF_N <= n; i += VF_N, bit += VF_N * a->bits) {
        const uint8_t *p = codes + bit / 8;
        if (end - p < VI_FIELD_BYTES) {
            memset(rest, 0, sizeof rest);
            memcpy(rest, p, (size_t)(end - p));
            p = rest;
        }
        vf_store(to + i, vf_fma(vf_from_i(vi_fields(f, p, (int)(bit % 8))), vf_set1(scale), vf_set1(bias)));
    }
    return i;
}

QN_INLINE void decode(uint32_t dtype, const qn_affine *a, const uint8_t *codes, const char *scales, const char *biases,
                      int64_t first, int64_t n, float *to) {
    const vi_field f = vi_fields_of(a->bits);
    int64_t bytes = a->length * a->bits / 8;
    for (int64_t i = first, end = first + n; i < end;) {
        int64_t g = i / a->group, stop = (g + 1) * a->group < end ? (g + 1) * a->group : end;
        float scale = one_of(dtype, scales, g), bias = one_of(dtype, biases, g);
        i += decode_vectors(a, &f, codes, i, stop - i, scale, bias, to + (i - first));
        for (; i < stop; i++) {
            int64_t bit = i * a->bits, byte = bit / 8;
            uint32_t have = codes[byte] | (byte + 1 < bytes ? (uint32_t)codes[byte + 1] << 8 : 0);
            to[i - first] = (float)(have >> bit % 8 & ((1u << a->bits) - 1)) * scale + bias;
        }
    }
}

static void decode_rows(const qn_affine *a, const char *codes, const char *scales, const char *biases, int64_t first, int64_t n,
                        float *to) {
#define DECODE(d) decode(d, a, (const uint8_t *)codes, scales, biases, first, n, to)
    QN_BY_FLOAT(a->scales->dtype, DECODE);
#undef DECODE
}

void qn_affine_decode(const qn_affine *a, int64_t matrix, int64_t row, int64_t first, int64_t n, float *to) {
    const qn_tensor *c = a->codes, *s = a->scales, *b = a->biases;
    decode_rows(a, qn_at(c, qn_off4(c, 0, matrix, row, 0)), qn_at(s, qn_off4(s, 0, matrix, row, 0)),
                qn_at(b, qn_off4(b, 0, matrix, row, 0)), first, n, to);
}

static void decode_run(const qn_gemm_side *side, int64_t row, int64_t first, int n, float *to) {
    qn_affine_decode(side->context, side->along, side->deep + row, first, n, to);
}

void qn_affine_fetch(const qn_gemm_side *side, int64_t batch, int64_t first, int64_t count, int64_t first_k, int depth,
                     float *panel, int step) {
    (void)batch;
    qn_decoded_turn(side, decode_run, first, count, first_k, depth, panel, step);
}

/* ---- Decoding */

/* A decoded row goes out in the dtype of y. */
static void put_row(const qn_affine *a, const char *codes, const char *scales, const char *biases, const qn_tensor *y, char *to) {
    float run[RUN];
    int64_t size = qn_float_bytes(y->dtype);
    for (int64_t i = 0; i < a->length; i += RUN) {
        int64_t n = a->length - i < RUN ? a->length - i : RUN;
        decode_rows(a, codes, scales, biases, i, n, run);
        qn_copy_row(QN_DTYPE_F32, (const char *)run, y->dtype, to + i * size, n);
    }
}

static void run_dequantize(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *y = c->dst[0];
    qn_affine a;
    (void)phase;
    if (!qn_affine_describe(c, 0, &a)) return;
    int64_t rows = qn_tensor_count(y) / a.length, end = qn_cpu_cut(rows, s->parts[0], part + 1);
    qn_rows it;
    for (qn_rows_begin_at(&it, y->rank, y->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it))
        put_row(&a, qn_row(&it, a.codes), qn_row(&it, a.scales), qn_row(&it, a.biases), y, qn_row(&it, y));
}

int QN_K(affine_dequantize)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *y = c->dst[0];
    qn_affine a;
    if (qn_tensor_count(y) == 0 || !qn_lanes_rows(y) || !qn_affine_describe(c, 0, &a)) return 0;
    return qn_cpu_by_rows(s, "affine_dequantize rows", run_dequantize, qn_tensor_count(y) / a.length, 5.0 * (double)a.length, 0);
}

static void run_get_rows(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *y = c->dst[0], *ids = c->src[3];
    qn_affine a;
    (void)phase;
    if (!qn_affine_describe(c, 0, &a)) return;
    int64_t rows = qn_ne(y, 1), end = qn_cpu_cut(rows, s->parts[0], part + 1);
    for (int64_t t = qn_cpu_cut(rows, s->parts[0], part); t < end; t++) {
        int64_t row = qn_index4(ids, 0, 0, 0, t);
        put_row(&a, qn_at(a.codes, row * qn_nb(a.codes, 1)), qn_at(a.scales, row * qn_nb(a.scales, 1)),
                qn_at(a.biases, row * qn_nb(a.biases, 1)), y, qn_at(y, t * qn_nb(y, 1)));
    }
}

int QN_K(affine_get_rows)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *y = c->dst[0];
    qn_affine a;
    if (qn_tensor_count(y) == 0 || !qn_lanes_rows(y) || !qn_affine_describe(c, 0, &a)) return 0;
    return qn_cpu_by_rows(s, "affine_get_rows rows", run_get_rows, qn_ne(y, 1), 5.0 * (double)a.length, 0);
}

/* ---- Product */

static int describe_product(const qn_call *c, qn_affine *a, qn_gemm *g) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    if (qn_tensor_count(y) == 0 || !qn_affine_describe(c, 1, a)) return 0;
    qn_decoded_describe(x, y, g);
    g->b = (qn_gemm_side){.fetch = qn_affine_fetch, .context = a};
    return qn_gemm_settle(g);
}

static void run_product(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_affine a;
    qn_gemm g;
    (void)s;
    if (!describe_product(c, &a, &g)) return;
    qn_gemm_cut cut = qn_gemm_plan(&g);
    qn_gemm_part(&g, &cut, c->workspace, phase, part);
}

int QN_K(affine_matmul)(const qn_call *c, qn_cpu_step *s) {
    qn_affine a;
    qn_gemm g;
    if (!describe_product(c, &a, &g)) return 0;
    qn_gemm_cut cut = qn_gemm_plan(&g);
    qn_gemm_step(s, &cut, run_product);
    s->name = "gemm f32 of affine codes";
    qn_affine_few(c, s);
    return 1;
}

/* ---- Encoding */

typedef struct scaling {
    double scale, bias;
} scaling;

/* The larger edge exact, zero nearly so; a scale may be negative. */
static scaling edge_scaling(double low, double most, double top) {
    double high = most > 0 ? most : 0, s = fmax((high - low) / top, 1e-7), edge = low;
    if (!(fabs(low) > fabs(high))) {
        s = -s;
        edge = high;
    }
    double steps = round(edge / s);
    return steps != 0 ? (scaling){edge / steps, edge} : (scaling){s, 0};
}

static scaling span_scaling(double low, double high, double top) {
    return (scaling){(high - low) / top > 0 ? (high - low) / top : 1, low};
}

/* As it is stored, so that codes are of what will be decoded. A double goes to a half in one rounding, not by way of a float. */
QN_INLINE float stored(uint32_t dtype, char *row, int64_t i, double v) {
    if (dtype == QN_DTYPE_F32) return ((float *)(void *)row)[i] = (float)v;
    qn_store_one((qn_dtype)dtype, row + i * 2, v);
    return (float)qn_load_one((qn_dtype)dtype, row + i * 2);
}

/* What is no number decides no edge. */
QN_INLINE scaling group_scaling(uint32_t dtype, const char *w, int64_t first, int64_t n, int kind, double top) {
    vf low = vf_set1(INFINITY), high = vf_set1(-INFINITY);
    for (int64_t i = first; i < first + n; i += VF_N) {
        vf v = qn_lanes(dtype, w, i);
        low = vf_min(v, low);
        high = vf_max(v, high);
    }
    VI_FOLD(low, vf_min);
    VI_FOLD(high, vf_max);
    double least = (double)low[0], most = (double)high[0];
    return kind ? span_scaling(least, most, top) : edge_scaling(least, most, top);
}

/* Halves go up: a code is not negative, so that is away from zero. NaN is 0. */
QN_INLINE vi nearest(vf v, vf scale, vf bias, vf top) {
    vf z = vf_min(vf_max((v - bias) / scale, vf_zero()), top), even = vf_round(z);
    return vi_from_f(even) - (z - even == vf_set1(0.5f));
}

/* Eight codes of a byte each become as many of `bits`: neighbours are joined, then pairs of them, then fours. */
static void put_codes(char *to, const uint8_t *codes, int bits) {
    uint64_t x;
    memcpy(&x, codes, sizeof x);
    x = (x & 0x00ff00ff00ff00ffu) | (x >> 8 & 0x00ff00ff00ff00ffu) << bits;
    x = (x & 0x0000ffff0000ffffu) | (x >> 16 & 0x0000ffff0000ffffu) << 2 * bits;
    x = (x & 0x00000000ffffffffu) | x >> 32 << 4 * bits;
    memcpy(to, &x, (size_t)bits);
}

QN_INLINE void quantize_row(uint32_t dtype, const qn_attr_affine_quantize *at, const char *w, int64_t n, char *codes,
                            char *scales, char *biases) {
    int bits = at->bits;
    double top = (double)((1 << bits) - 1);
    for (int64_t first = 0; first < n; first += at->group) {
        scaling by = group_scaling(dtype, w, first, at->group, at->kind, top);
        vf scale = vf_set1(stored(dtype, scales, first / at->group, by.scale));
        vf bias = vf_set1(stored(dtype, biases, first / at->group, by.bias));
        for (int64_t i = first; i < first + at->group; i += WHOLE) {
            uint8_t some[WHOLE];
            for (int k = 0; k < WHOLE; k += VF_N)
                vi_store_8(some + k, nearest(qn_lanes(dtype, w, i + k), scale, bias, vf_set1((float)top)));
            for (int k = 0; k < WHOLE; k += 8, codes += bits) put_codes(codes, some + k, bits);
        }
    }
}

static void run_quantize(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *w = c->src[0];
    int64_t rows = qn_tensor_count(w) / qn_ne(w, 0), end = qn_cpu_cut(rows, s->parts[0], part + 1);
    qn_rows it;
    (void)phase;
    for (qn_rows_begin_at(&it, w->rank, w->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it)) {
        const char *row = qn_row(&it, w);
        char *codes = qn_row(&it, c->dst[0]), *scales = qn_row(&it, c->dst[1]), *biases = qn_row(&it, c->dst[2]);
#define QUANTIZE(d) quantize_row(d, c->attr, row, it.n, codes, scales, biases)
        QN_BY_FLOAT(w->dtype, QUANTIZE);
#undef QUANTIZE
    }
}

int QN_K(affine_quantize)(const qn_call *c, qn_cpu_step *s) {
    const qn_attr_affine_quantize *at = c->attr;
    const qn_tensor *w = c->src[0], *codes = c->dst[0];
    int64_t count = qn_tensor_count(w), n = qn_ne(w, 0);
    if (count == 0 || at->group % WHOLE || !qn_lanes_rows(w) || !qn_lanes_rows(c->dst[1]) || !qn_lanes_rows(c->dst[2])) return 0;
    if (qn_ne(codes, 0) > 1 && qn_nb(codes, 0) != 4) return 0;
    return qn_cpu_by_rows(s, "affine_quantize rows", run_quantize, count / n, 5.0 * (double)n, 6.0 * (double)n);
}
