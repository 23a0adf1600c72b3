/* Rows of elements that lie side by side, from dtype to dtype. */
#include "cpu/k_copy.h"
#include "tensor/quant.h"

QN_INLINE void convert(uint32_t from, const char *src, uint32_t to, char *dst, int64_t n) {
    int64_t i = 0;
    for (; i + VF_N <= n; i += VF_N) qn_lanes_put(to, dst, i, qn_lanes(from, src, i));
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

typedef int8_t vc __attribute__((vector_size(VF_N)));

/* Blocks of 32 with one scale, which caches of keys and values are kept in. */
static void decode_q8_0(const char *row, int64_t n, float *to) {
    for (int64_t p = 0; p < n; p += 32, row += 34) {
        uint16_t half;
        memcpy(&half, row, sizeof half);
        vf d = vf_set1(qn_f16_to_f32(half));
        for (int i = 0; i < 32; i += VF_N) {
            vc codes;
            memcpy(&codes, row + 2 + i, sizeof codes);
            vf_store(to + p + i, d * vf_from_i(__builtin_convertvector(codes, vi)));
        }
    }
}

static void decode_q4_0(const char *row, int64_t n, float *to) {
    for (int64_t p = 0; p < n; p += 32, row += 18) {
        uint16_t half;
        memcpy(&half, row, sizeof half);
        vf d = vf_set1(qn_f16_to_f32(half));
        for (int i = 0; i < 16; i += VF_N) {
            vc codes;
            memcpy(&codes, row + 2 + i, sizeof codes);
            vi both = __builtin_convertvector(codes, vi);
            vf_store(to + p + i, d * vf_from_i((both & 15) - 8));
            vf_store(to + p + i + 16, d * vf_from_i((both >> 4 & 15) - 8));
        }
    }
}

static void decode(uint32_t from, const char *src, float *to, int64_t n) {
    if (from == QN_DTYPE_Q8_0) decode_q8_0(src, n, to);
    else if (from == QN_DTYPE_Q4_0) decode_q4_0(src, n, to);
    else qn_tensor_block_codec((qn_dtype)from)->decode((const uint8_t *)src, n / qn_dtype_describe((qn_dtype)from)->block, to);
}

enum { CHUNK = 256 }; /* a multiple of every block */

void qn_copy_row(uint32_t from, const char *src, uint32_t to, char *dst, int64_t n) {
    const qn_dtype_info *a = qn_dtype_describe((qn_dtype)from), *b = qn_dtype_describe((qn_dtype)to);
    if (from == to) {
        memmove(dst, src, (size_t)(n / a->block * a->bytes));
        return;
    }
    if (!qn_is_block(from) && !qn_is_block(to)) {
        convert_floats(from, src, to, dst, n);
        return;
    }
    if (to == QN_DTYPE_F32) {
        decode(from, src, (float *)(void *)dst, n);
        return;
    }
    float wide[CHUNK];
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t some = n - i < CHUNK ? n - i : CHUNK;
        const char *p = src + i / a->block * a->bytes;
        char *q = dst + i / b->block * b->bytes;
        if (qn_is_block(from)) {
            decode(from, p, wide, some);
            convert_floats(QN_DTYPE_F32, (const char *)wide, to, q, some);
        } else {
            convert_floats(from, p, QN_DTYPE_F32, (char *)wide, some);
            qn_tensor_block_codec((qn_dtype)to)->encode(wide, some / b->block, (uint8_t *)q);
        }
    }
}
