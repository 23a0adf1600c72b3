/* Rows of elements that lie side by side, from dtype to dtype. */
#include "cpu/k_copy.h"
#include "cpu/k_codec.h"

/* Bytes before they are read, a line of f32 is asked for: rows often lie where only the last cache has them. Narrower ones come in time
 * by themselves. */
enum { AHEAD = 1024 };

QN_INLINE void convert(uint32_t from, const char *src, uint32_t to, char *dst, int64_t n) {
    int64_t i = 0;
    for (; i + VF_N <= n; i += VF_N) {
        if (from == QN_DTYPE_F32) __builtin_prefetch(src + i * 4 + AHEAD, 0, 3);
        qn_lanes_put(to, dst, i, qn_lanes(from, src, i));
    }
    if (i < n) qn_lanes_put_some(to, dst, i, qn_lanes_some(from, src, i, (int)(n - i)), (int)(n - i));
}

static void convert_floats(uint32_t from, const char *src, uint32_t to, char *dst, int64_t n) {
#define FROM_F32(d) convert(QN_DTYPE_F32, src, d, dst, n)
#define FROM_F16(d) convert(QN_DTYPE_F16, src, d, dst, n)
#define FROM_BF16(d) convert(QN_DTYPE_BF16, src, d, dst, n)
    if (from == QN_DTYPE_F32) QN_BY_FLOAT(to, FROM_F32);
    else if (from == QN_DTYPE_F16) QN_BY_FLOAT(to, FROM_F16);
    else QN_BY_FLOAT(to, FROM_BF16);
}

enum { CHUNK = 256 }; /* a multiple of every block */

/* Every value but those of 64-bit integers is a double. */
static void convert_plain(uint32_t from, const char *src, uint32_t to, char *dst, int64_t n) {
    int64_t step = qn_dtype_bytes(from), to_step = qn_dtype_bytes(to);
    double wide[CHUNK];
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t some = n - i < CHUNK ? n - i : CHUNK;
        qn_typed_load(from, src + i * step, some, wide, qn_lanes_float(to));
        qn_typed_store(to, wide, some, dst + i * to_step);
    }
}

void qn_copy_row(uint32_t from, const char *src, uint32_t to, char *dst, int64_t n) {
    const qn_dtype_info *a = qn_dtype_describe((qn_dtype)from), *b = qn_dtype_describe((qn_dtype)to);
    if (from == to) {
        memmove(dst, src, (size_t)(n / a->block * a->bytes));
        return;
    }
    if (!qn_is_block(from) && !qn_is_block(to)) {
        (qn_lanes_float(from) && qn_lanes_float(to) ? convert_floats : convert_plain)(from, src, to, dst, n);
        return;
    }
    if (to == QN_DTYPE_F32) {
        qn_codec_decode(from, (const uint8_t *)src, n, (float *)(void *)dst);
        return;
    }
    if (from == QN_DTYPE_F32) {
        qn_codec_encode(to, (const float *)(const void *)src, n, (uint8_t *)dst);
        return;
    }
    float wide[CHUNK];
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t some = n - i < CHUNK ? n - i : CHUNK;
        const char *p = src + i / a->block * a->bytes;
        char *q = dst + i / b->block * b->bytes;
        if (qn_is_block(from)) {
            qn_codec_decode(from, (const uint8_t *)p, some, wide);
            convert_floats(QN_DTYPE_F32, (const char *)wide, to, q, some);
        } else {
            convert_floats(from, p, QN_DTYPE_F32, (char *)wide, some);
            qn_codec_encode(to, wide, some, (uint8_t *)q);
        }
    }
}
