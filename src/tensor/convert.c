/* Values in and out of every dtype. One switch each way for single elements; rows loop inside the switch, so that dense runs of
 * the common dtypes are plain loops a compiler can see through. */
#include "tensor/convert.h"

#include <math.h>

#include "tensor/dtype.h"
#include "tensor/half.h"
#include "tensor/quant.h"

enum { CHUNK = 256 }; /* a multiple of every block length */

/* Strided pointers from the checked front are aligned to the element, so the typed access is sound. */
#define AT(type, p, i) (*(type *)(void *)((char *)(p) + (i)*stride))
#define AT_CONST(type, p, i) (*(const type *)(const void *)((const char *)(p) + (i)*stride))

static int64_t to_int(double v, double low, double high) {
    if (isnan(v)) return 0;
    if (v <= low) return (int64_t)low;
    if (v >= high) return high >= 9223372036854775807.0 ? INT64_MAX : (int64_t)high;
    return (int64_t)v;
}

double qn_load_one(qn_dtype dtype, const void *p) {
    double v;
    qn_load_run(dtype, p, 0, 0, 1, &v);
    return v;
}

void qn_store_one(qn_dtype dtype, void *p, double v) { qn_store_run(dtype, p, 0, 0, 1, &v); }

int64_t qn_load_index(qn_dtype dtype, const void *p) {
    if (dtype == QN_DTYPE_I64) return *(const int64_t *)p;
    if (dtype == QN_DTYPE_I32) return *(const int32_t *)p;
    return (int64_t)qn_load_one(dtype, p);
}

static void load_blocks(qn_dtype dtype, const char *row, int64_t first, int64_t n, double *out) {
    const qn_block_codec *codec = qn_tensor_block_codec(dtype);
    const qn_dtype_info *d = qn_dtype_describe(dtype);
    float buffer[CHUNK];
    while (n > 0) {
        int64_t block = first / d->block, skip = first % d->block, take = d->block - skip;
        if (take > n) take = n;
        codec->decode((const uint8_t *)row + block * d->bytes, 1, buffer);
        for (int64_t i = 0; i < take; i++) out[i] = (double)buffer[skip + i];
        out += take;
        first += take;
        n -= take;
    }
}

static void store_blocks(qn_dtype dtype, char *row, int64_t first, int64_t n, const double *in) {
    const qn_block_codec *codec = qn_tensor_block_codec(dtype);
    const qn_dtype_info *d = qn_dtype_describe(dtype);
    float buffer[CHUNK];
    for (; n > 0; n -= d->block, first += d->block, in += d->block) {
        for (int i = 0; i < d->block; i++) buffer[i] = (float)in[i];
        codec->encode(buffer, 1, (uint8_t *)row + first / d->block * d->bytes);
    }
}

#define LOAD(type, expression)                   \
    for (int64_t i = 0; i < n; i++) {            \
        type x = AT_CONST(type, row, first + i); \
        out[i] = (double)(expression);           \
    }                                            \
    return

void qn_load_run(qn_dtype dtype, const char *row, int64_t stride, int64_t first, int64_t n, double *out) {
    switch ((int)dtype) {
    case QN_DTYPE_F64: LOAD(double, x);
    case QN_DTYPE_F32:
        if (stride == (int64_t)sizeof(float)) { /* dense rows are worth a loop of their own: it vectorises */
            const float *dense = (const float *)(const void *)row + first;
            for (int64_t i = 0; i < n; i++) out[i] = (double)dense[i];
            return;
        }
        LOAD(float, x);
    case QN_DTYPE_F16: LOAD(uint16_t, qn_f16_to_f32(x));
    case QN_DTYPE_BF16: LOAD(uint16_t, qn_bf16_to_f32(x));
    case QN_DTYPE_I8: LOAD(int8_t, x);
    case QN_DTYPE_U8: LOAD(uint8_t, x);
    case QN_DTYPE_I16: LOAD(int16_t, x);
    case QN_DTYPE_I32: LOAD(int32_t, x);
    case QN_DTYPE_I64: LOAD(int64_t, x);
    case QN_DTYPE_U32: LOAD(uint32_t, x);
    case QN_DTYPE_BOOL: LOAD(uint8_t, x != 0);
    case QN_DTYPE_C64: LOAD(float, x);
    default: load_blocks(dtype, row, first, n, out);
    }
}

#define STORE(type, expression)                        \
    for (int64_t i = 0; i < n; i++) {                  \
        double v = in[i];                              \
        AT(type, row, first + i) = (type)(expression); \
    }                                                  \
    return

void qn_store_run(qn_dtype dtype, char *row, int64_t stride, int64_t first, int64_t n, const double *in) {
    switch ((int)dtype) {
    case QN_DTYPE_F64: STORE(double, v);
    case QN_DTYPE_F32:
        if (stride == (int64_t)sizeof(float)) {
            float *dense = (float *)(void *)row + first;
            for (int64_t i = 0; i < n; i++) dense[i] = (float)in[i];
            return;
        }
        STORE(float, v);
    case QN_DTYPE_F16: STORE(uint16_t, qn_f64_to_f16(v));
    case QN_DTYPE_BF16: STORE(uint16_t, qn_f64_to_bf16(v));
    case QN_DTYPE_I8: STORE(int8_t, to_int(v, INT8_MIN, INT8_MAX));
    case QN_DTYPE_U8: STORE(uint8_t, to_int(v, 0, UINT8_MAX));
    case QN_DTYPE_I16: STORE(int16_t, to_int(v, INT16_MIN, INT16_MAX));
    case QN_DTYPE_I32: STORE(int32_t, to_int(v, INT32_MIN, INT32_MAX));
    case QN_DTYPE_I64: STORE(int64_t, to_int(v, -9223372036854775808.0, 9223372036854775807.0));
    case QN_DTYPE_U32: STORE(uint32_t, to_int(v, 0, UINT32_MAX));
    case QN_DTYPE_BOOL: STORE(uint8_t, v != 0);
    case QN_DTYPE_C64:
        for (int64_t i = 0; i < n; i++) {
            float *pair = &AT(float, row, first + i);
            pair[0] = (float)in[i];
            pair[1] = 0;
        }
        return;
    default: store_blocks(dtype, row, first, n, in);
    }
}

int qn_can_convert(qn_dtype from, qn_dtype to) {
    const qn_dtype_info *a = qn_dtype_describe(from), *b = qn_dtype_describe(to);
    if (!a || !b) return 0;
    if (from == to) return 1;
    if (a->kind == QN_KIND_COMPLEX || b->kind == QN_KIND_COMPLEX) return 0;
    if (a->kind == QN_KIND_BLOCK) return b->kind == QN_KIND_FLOAT;
    if (b->kind == QN_KIND_BLOCK) return a->kind == QN_KIND_FLOAT && qn_tensor_block_codec(to)->run_time_encode;
    return 1;
}

/* Integers go through int64, not through double: past 2^53 a double would lose their low bits. */
static void convert_ints(qn_dtype from, const char *src, qn_dtype to, char *dst, int64_t n) {
    int64_t step_from = qn_dtype_bytes(from), step_to = qn_dtype_bytes(to);
    static const int64_t low[QN_DTYPE_COUNT] = {[QN_DTYPE_I8] = INT8_MIN, [QN_DTYPE_I16] = INT16_MIN, [QN_DTYPE_I32] = INT32_MIN};
    static const int64_t high[QN_DTYPE_COUNT] = {
        [QN_DTYPE_I8] = INT8_MAX,   [QN_DTYPE_U8] = UINT8_MAX,   [QN_DTYPE_I16] = INT16_MAX,
        [QN_DTYPE_I32] = INT32_MAX, [QN_DTYPE_U32] = UINT32_MAX, [QN_DTYPE_BOOL] = 1};
    for (int64_t i = 0; i < n; i++) {
        const char *p = src + i * step_from;
        int64_t v = from == QN_DTYPE_I64 ? *(const int64_t *)(const void *)p : (int64_t)qn_load_one(from, p);
        if (to == QN_DTYPE_I64) {
            *(int64_t *)(void *)(dst + i * step_to) = v;
            continue;
        }
        if (to == QN_DTYPE_BOOL) v = v != 0;
        v = v < low[to] ? low[to] : v > high[to] ? high[to] : v;
        qn_store_one(to, dst + i * step_to, (double)v);
    }
}

/* A 64-bit integer for a float of fewer than 53 bits. Where a double cannot hold it the last bit is made odd, which no tie and no narrower
 * number has: so the double rounds as the integer itself would, and the two roundings are one. */
static double to_odd(int64_t v) {
    uint64_t size = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    int past = size >> 53 ? 11 - __builtin_clzll(size) : 0;
    uint64_t kept = size >> past;
    if (kept << past != size) kept |= 1;
    return ldexp(v < 0 ? -(double)kept : (double)kept, past);
}

static void load_odd(const char *src, int64_t stride, int64_t n, double *out) {
    for (int64_t i = 0; i < n; i++) out[i] = to_odd(AT_CONST(int64_t, src, i));
}

static int is_int(const qn_dtype_info *d) { return d->kind == QN_KIND_INT || d->kind == QN_KIND_UINT || d->kind == QN_KIND_BOOL; }

void qn_convert_run(qn_dtype from, const char *src, int64_t src_stride, qn_dtype to, char *dst, int64_t dst_stride,
                    int64_t first_src, int64_t first_dst, int64_t n) {
    const qn_dtype_info *a = qn_dtype_describe(from), *b = qn_dtype_describe(to);
    double buffer[CHUNK];
    while (n > 0) {
        int64_t take = n < CHUNK ? n : CHUNK;
        if (from == to && a->kind != QN_KIND_BLOCK) {
            for (int64_t i = 0; i < take; i++)
                memcpy(dst + (first_dst + i) * dst_stride, src + (first_src + i) * src_stride, (size_t)a->bytes);
        } else if (from == to) {
            memcpy(dst + first_dst / b->block * b->bytes, src + first_src / a->block * a->bytes,
                   (size_t)(take / a->block * a->bytes));
        } else if (is_int(a) && is_int(b)) {
            for (int64_t i = 0; i < take; i++)
                convert_ints(from, src + (first_src + i) * src_stride, to, dst + (first_dst + i) * dst_stride, 1);
        } else {
            if (from == QN_DTYPE_I64 && to != QN_DTYPE_F64) load_odd(src + first_src * src_stride, src_stride, take, buffer);
            else qn_load_run(from, src, src_stride, first_src, take, buffer);
            qn_store_run(to, dst, dst_stride, first_dst, take, buffer);
        }
        first_src += take;
        first_dst += take;
        n -= take;
    }
}

/* Offline quantisation takes the encoder with the least error, which run-time copies cannot afford. */
static void quantise(qn_dtype from, const char *src, qn_dtype to, char *dst, int64_t n) {
    const qn_block_codec *codec = qn_tensor_block_codec(to);
    const qn_dtype_info *a = qn_dtype_describe(from), *b = qn_dtype_describe(to);
    double wide[CHUNK];
    float buffer[CHUNK];
    for (int64_t i = 0; i < n; i += b->block) {
        qn_load_run(from, src, a->bytes, i, b->block, wide);
        for (int k = 0; k < b->block; k++) buffer[k] = (float)wide[k];
        qn_tensor_block_encode(codec, buffer, NULL, 1, (uint8_t *)dst + i / b->block * b->bytes);
    }
}

qn_status qn_convert(qn_dtype from, const void *src, qn_dtype to, void *dst, int64_t n) {
    const qn_dtype_info *a = qn_dtype_describe(from), *b = qn_dtype_describe(to);
    if (!a || !b || n < 0 || ((!src || !dst) && n)) return QN_INVALID;
    if (n % a->block || n % b->block) return QN_INVALID;
    if (b->kind == QN_KIND_BLOCK && a->kind == QN_KIND_FLOAT) {
        quantise(from, src, to, dst, n);
        return QN_OK;
    }
    if (!qn_can_convert(from, to)) return QN_UNSUPPORTED;
    qn_convert_run(from, src, a->bytes, to, dst, b->bytes, 0, 0, n);
    return QN_OK;
}
