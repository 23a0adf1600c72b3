/* Blocks to f32. A step takes VF_N bytes of codes, widens them to lanes, and has as many elements of each of the fields that share a
 * byte; products and differences are rounded one by one, as the formats say. */
#include "cpu/k_codec.h"
#include "cpu/k_lanes.h"
#include "cpu/simd/simd_codes.h"
#include "cpu/simd/simd_dot.h"
#include "tensor/quant.h"
#include "tensor/quant_search.h"

/* Blocks of `size` bytes and `block` elements, one after the other. */
typedef void (*block_fn)(const uint8_t *p, float *to);
QN_INLINE void each_block(const uint8_t *p, int64_t n, float *to, int block, int size, block_fn decode) {
    for (int64_t i = 0; i < n; i += block, p += size) decode(p, to + i);
}

QN_INLINE void put(float *to, vf scale, vi codes) { vf_store(to, scale * vf_from_i(codes)); }
QN_INLINE void put_above(float *to, vf scale, vi codes, vf least) { vf_store(to, scale * vf_from_i(codes) + least); }
QN_INLINE void put_below(float *to, vf scale, vi codes, vf offset) { vf_store(to, scale * vf_from_i(codes) - offset); }

/* ---- 32 elements: element j and element j + 16 share byte j */

QN_INLINE void q4_0(const uint8_t *p, float *to) {
    vf d = vf_set1(half_at(p));
    for (int i = 0; i < 16; i += VF_N) {
        vi q = vi_load_u8(p + 2 + i);
        put(to + i, d, (q & 15) - 8);
        put(to + 16 + i, d, (q >> 4) - 8);
    }
}

QN_INLINE void q4_1(const uint8_t *p, float *to) {
    vf d = vf_set1(half_at(p)), m = vf_set1(half_at(p + 2));
    for (int i = 0; i < 16; i += VF_N) {
        vi q = vi_load_u8(p + 4 + i);
        put_above(to + i, d, q & 15, m);
        put_above(to + 16 + i, d, q >> 4, m);
    }
}

/* Bit e of the word as the fifth bit of element e, for VF_N elements from `first` on. */
QN_INLINE vi fifth(const uint8_t *p, int first) {
    int32_t word;
    memcpy(&word, p, sizeof word);
    return (vi_set1(word) >> (vi_lanes() + first) & 1) << 4;
}

QN_INLINE void q5_0(const uint8_t *p, float *to) {
    vf d = vf_set1(half_at(p));
    for (int i = 0; i < 16; i += VF_N) {
        vi q = vi_load_u8(p + 6 + i);
        put(to + i, d, ((q & 15) | fifth(p + 2, i)) - 16);
        put(to + 16 + i, d, (q >> 4 | fifth(p + 2, i + 16)) - 16);
    }
}

QN_INLINE void q5_1(const uint8_t *p, float *to) {
    vf d = vf_set1(half_at(p)), m = vf_set1(half_at(p + 2));
    for (int i = 0; i < 16; i += VF_N) {
        vi q = vi_load_u8(p + 8 + i);
        put_above(to + i, d, (q & 15) | fifth(p + 4, i), m);
        put_above(to + 16 + i, d, q >> 4 | fifth(p + 4, i + 16), m);
    }
}

QN_INLINE void q8_0(const uint8_t *p, float *to) {
    vf d = vf_set1(half_at(p));
    for (int i = 0; i < 32; i += VF_N) put(to + i, d, vi_load_s8(p + 2 + i));
}

QN_INLINE void q8_1(const uint8_t *p, float *to) {
    vf d = vf_set1(half_at(p));
    for (int i = 0; i < 32; i += VF_N) put(to + i, d, vi_load_s8(p + 4 + i));
}

/* ---- 256 elements under scales of scales */

QN_INLINE void q2_k(const uint8_t *p, float *to) {
    float d = half_at(p + 80), dmin = half_at(p + 82);
    for (int k = 0; k < 16; k++) {
        vf scale = vf_set1(d * (float)(p[k] & 15)), offset = vf_set1(dmin * (float)(p[k] >> 4));
        const uint8_t *qs = p + 16 + 32 * (k / 8) + 16 * (k % 2);
        for (int i = 0; i < 16; i += VF_N) put_below(to + 16 * k + i, scale, vi_load_u8(qs + i) >> (2 * (k / 2 % 4)) & 3, offset);
    }
}

QN_INLINE int q3_k_scale(const uint8_t *scales, int k) {
    int low = k < 8 ? scales[k] & 15 : scales[k - 8] >> 4, high = scales[8 + k % 4] >> (2 * (k / 4)) & 3;
    return (low | high << 4) - 32;
}

QN_INLINE void q3_k(const uint8_t *p, float *to) {
    float d = half_at(p + 108);
    for (int k = 0; k < 16; k++) {
        vf scale = vf_set1(d * (float)q3_k_scale(p + 96, k));
        const uint8_t *qs = p + 32 + 32 * (k / 8) + 16 * (k % 2), *third = p + 16 * (k % 2);
        for (int i = 0; i < 16; i += VF_N) {
            vi q = (vi_load_u8(qs + i) >> (2 * (k / 2 % 4)) & 3) | (vi_load_u8(third + i) >> (k / 2) & 1) << 2;
            put(to + 16 * k + i, scale, q - 4);
        }
    }
}

/* Six bits each for scale and offset of eight groups, in twelve bytes. */
QN_INLINE void six_bits(const uint8_t *s, int k, float *scale, float *offset) {
    *scale = (float)(k < 4 ? s[k] & 63 : (s[k + 4] & 15) | s[k - 4] >> 6 << 4);
    *offset = (float)(k < 4 ? s[k + 4] & 63 : s[k + 4] >> 4 | s[k] >> 6 << 4);
}

QN_INLINE void q4_k(const uint8_t *p, float *to) {
    float d = half_at(p), dmin = half_at(p + 2), s[2], o[2];
    for (int k = 0; k < 8; k += 2, to += 64) {
        six_bits(p + 4, k, &s[0], &o[0]);
        six_bits(p + 4, k + 1, &s[1], &o[1]);
        vf a = vf_set1(d * s[0]), b = vf_set1(d * s[1]), a_least = vf_set1(dmin * o[0]), b_least = vf_set1(dmin * o[1]);
        for (int i = 0; i < 32; i += VF_N) {
            vi q = vi_load_u8(p + 16 + 16 * k + i);
            put_below(to + i, a, q & 15, a_least);
            put_below(to + 32 + i, b, q >> 4, b_least);
        }
    }
}

QN_INLINE void q5_k(const uint8_t *p, float *to) {
    float d = half_at(p), dmin = half_at(p + 2), s[2], o[2];
    for (int k = 0; k < 8; k += 2, to += 64) {
        six_bits(p + 4, k, &s[0], &o[0]);
        six_bits(p + 4, k + 1, &s[1], &o[1]);
        vf a = vf_set1(d * s[0]), b = vf_set1(d * s[1]), a_least = vf_set1(dmin * o[0]), b_least = vf_set1(dmin * o[1]);
        for (int i = 0; i < 32; i += VF_N) {
            vi q = vi_load_u8(p + 48 + 16 * k + i), high = vi_load_u8(p + 16 + i) >> k;
            put_below(to + i, a, (q & 15) | (high & 1) << 4, a_least);
            put_below(to + 32 + i, b, q >> 4 | (high & 2) << 3, b_least);
        }
    }
}

/* Two halves of 128; in a half, element 32 j + l has its low bits in byte l or l + 32 and its high ones in pair j of byte l. */
QN_INLINE void q6_k(const uint8_t *p, float *to) {
    float d = half_at(p + 208);
    for (int h = 0; h < 2; h++, to += 128) {
        const uint8_t *ql = p + 64 * h, *qh = p + 128 + 32 * h;
        for (int g = 0; g < 2; g++) {
            vf scale[4];
            for (int j = 0; j < 4; j++) scale[j] = vf_set1(d * (float)(int8_t)p[192 + 8 * h + 2 * j + g]);
            for (int i = 16 * g; i < 16 * g + 16; i += VF_N) {
                vi a = vi_load_u8(ql + i), b = vi_load_u8(ql + 32 + i), high = vi_load_u8(qh + i);
                put(to + i, scale[0], ((a & 15) | (high & 3) << 4) - 32);
                put(to + 32 + i, scale[1], ((b & 15) | (high & 12) << 2) - 32);
                put(to + 64 + i, scale[2], (a >> 4 | (high & 48)) - 32);
                put(to + 96 + i, scale[3], (b >> 4 | (high >> 6) << 4) - 32);
            }
        }
    }
}

QN_INLINE void q8_k(const uint8_t *p, float *to) {
    float d;
    memcpy(&d, p, sizeof d);
    for (int i = 0; i < 256; i += VF_N) put(to + i, vf_set1(d), vi_load_s8(p + 4 + i));
}

/* ---- Nibbles that a table turns into values */

/* Four-bit floats, doubled. */
static const int8_t fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* The lane's low byte, with its sign, of what the table gives. */
QN_INLINE vi looked_up(const int8_t *table, vi codes) { return (vi)vu_table16((const uint8_t *)table, (vu)codes) << 24 >> 24; }

QN_INLINE void sixteen_pairs(const uint8_t *qs, const int8_t *table, float scale, float *to) {
    vf d = vf_set1(scale);
    for (int i = 0; i < 16; i += VF_N) {
        vi q = vi_load_u8(qs + i);
        put(to + i, d, looked_up(table, q & 15));
        put(to + 16 + i, d, looked_up(table, q >> 4));
    }
}

QN_INLINE void iq4_nl(const uint8_t *p, float *to) { sixteen_pairs(p + 2, qn_iq4_values, half_at(p), to); }

QN_INLINE void iq4_xs(const uint8_t *p, float *to) {
    float d = half_at(p);
    unsigned high = p[2] | (unsigned)p[3] << 8;
    for (int s = 0; s < 8; s++) {
        int scale = (p[4 + s / 2] >> (4 * (s % 2)) & 15) | (int)(high >> (2 * s) & 3u) << 4;
        sixteen_pairs(p + 8 + 16 * s, qn_iq4_values, d * (float)(scale - 32), to + 32 * s);
    }
}

/* 2^(e - 128), half of which the table carries; the two lowest are subnormal. */
QN_INLINE void mxfp4(const uint8_t *p, float *to) {
    uint32_t e = p[0];
    sixteen_pairs(p + 1, fp4_values, qn_bits_to_f32(e < 2 ? 0x00200000u << e : (e - 1) << 23), to);
}

/* ---- By type */

#define TYPES(X)            \
    X(Q4_0, q4_0, 32, 18)   \
    X(Q4_1, q4_1, 32, 20)   \
    X(Q5_0, q5_0, 32, 22)   \
    X(Q5_1, q5_1, 32, 24)   \
    X(Q8_0, q8_0, 32, 34)   \
    X(Q8_1, q8_1, 32, 36)   \
    X(Q2_K, q2_k, 256, 84)  \
    X(Q3_K, q3_k, 256, 110) \
    X(Q4_K, q4_k, 256, 144) \
    X(Q5_K, q5_k, 256, 176) \
    X(Q6_K, q6_k, 256, 210) \
    X(Q8_K, q8_k, 256, 292) X(IQ4_NL, iq4_nl, 32, 18) X(IQ4_XS, iq4_xs, 256, 136) X(MXFP4, mxfp4, 32, 17)
#define ROW(dtype, name, block, size) \
    static void row_##name(const uint8_t *p, int64_t n, float *to) { each_block(p, n, to, block, size, name); }
TYPES(ROW)

typedef void (*row_fn)(const uint8_t *p, int64_t n, float *to);
#define ENTRY(dtype, name, block, size) [QN_DTYPE_##dtype] = row_##name,
static const row_fn rows[QN_DTYPE_COUNT] = {TYPES(ENTRY)};

void qn_codec_decode(uint32_t dtype, const uint8_t *blocks, int64_t n, float *to) {
    if (rows[dtype]) rows[dtype](blocks, n, to);
    else qn_tensor_block_codec((qn_dtype)dtype)->decode(blocks, n / qn_dtype_describe((qn_dtype)dtype)->block, to);
}
