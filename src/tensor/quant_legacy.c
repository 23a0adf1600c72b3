/* The one-level block types: a scale, perhaps an offset, and 1 to 8 bits per value. The encoders here are the run-time
 * ones, whose bytes the format defines; the searching ones are in quant_legacy_best.c. */
#include "quant_bits.h"
#include "quant_codecs.h"

enum { SMALL = 32, Q1_BLOCK = 128, Q2_BLOCK = 64 };

/* Byte j holds element j in its low nibble and element j + 16 in its high one. */
static void unpack_nibbles(const uint8_t *qs, uint8_t *codes) {
    for (int j = 0; j < 16; j++) {
        codes[j] = qs[j] & 15;
        codes[j + 16] = qs[j] >> 4;
    }
}

static void unpack_fifth_bits(const uint8_t *qh, uint8_t *codes) {
    uint32_t bits = qn_get_u32(qh);
    for (int e = 0; e < SMALL; e++) codes[e] = (uint8_t)(codes[e] | ((bits >> e) & 1u) << 4);
}

static void pack_nibbles(const int *codes, uint8_t *qs) {
    for (int j = 0; j < 16; j++) qs[j] = (uint8_t)((codes[j] & 15) | (codes[j + 16] & 15) << 4);
}

static void pack_fifth_bits(const int *codes, uint8_t *qh) {
    uint32_t bits = 0;
    for (int e = 0; e < SMALL; e++) bits |= (uint32_t)((codes[e] >> 4) & 1) << e;
    qn_put_u32(qh, bits);
}

/* The element of largest magnitude, with its sign; the first one on ties. */
static float signed_peak(const float *x, int n) {
    float peak = 0.0f;
    for (int e = 0; e < n; e++)
        if (qn_abs_f32(qn_sane(x[e])) > qn_abs_f32(peak)) peak = qn_sane(x[e]);
    return peak;
}

static void range_of(const float *x, int n, float *lowest, float *highest) {
    float low = qn_sane(x[0]), high = low;
    for (int e = 1; e < n; e++) {
        float v = qn_sane(x[e]);
        low = v < low ? v : low;
        high = v > high ? v : high;
    }
    *lowest = low;
    *highest = high;
}

void qn_quant_decode_q4_0(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += 18, dst += SMALL) {
        float d = qn_get_f16(src);
        uint8_t codes[SMALL];
        unpack_nibbles(src + 2, codes);
        for (int e = 0; e < SMALL; e++) dst[e] = d * (float)(codes[e] - 8);
    }
}

void qn_quant_decode_q4_1(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += 20, dst += SMALL) {
        float d = qn_get_f16(src), m = qn_get_f16(src + 2);
        uint8_t codes[SMALL];
        unpack_nibbles(src + 4, codes);
        for (int e = 0; e < SMALL; e++) dst[e] = d * (float)codes[e] + m;
    }
}

void qn_quant_decode_q5_0(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += 22, dst += SMALL) {
        float d = qn_get_f16(src);
        uint8_t codes[SMALL];
        unpack_nibbles(src + 6, codes);
        unpack_fifth_bits(src + 2, codes);
        for (int e = 0; e < SMALL; e++) dst[e] = d * (float)(codes[e] - 16);
    }
}

void qn_quant_decode_q5_1(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += 24, dst += SMALL) {
        float d = qn_get_f16(src), m = qn_get_f16(src + 2);
        uint8_t codes[SMALL];
        unpack_nibbles(src + 8, codes);
        unpack_fifth_bits(src + 4, codes);
        for (int e = 0; e < SMALL; e++) dst[e] = d * (float)codes[e] + m;
    }
}

void qn_quant_decode_q8_0(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += 34, dst += SMALL) {
        float d = qn_get_f16(src);
        for (int e = 0; e < SMALL; e++) dst[e] = d * (float)qn_signed_byte(src[2 + e]);
    }
}

void qn_quant_decode_q8_1(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += 36, dst += SMALL) {
        float d = qn_get_f16(src);
        for (int e = 0; e < SMALL; e++) dst[e] = d * (float)qn_signed_byte(src[4 + e]);
    }
}

void qn_quant_decode_q1_0(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += 18, dst += Q1_BLOCK) {
        float d = qn_get_f16(src);
        for (int e = 0; e < Q1_BLOCK; e++) dst[e] = (src[2 + e / 8] >> (e % 8)) & 1 ? d : -d;
    }
}

void qn_quant_decode_q2_0(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += 18, dst += Q2_BLOCK) {
        float d = qn_get_f16(src);
        for (int e = 0; e < Q2_BLOCK; e++) dst[e] = d * (float)(((src[2 + e / 4] >> (2 * (e % 4))) & 3) - 1);
    }
}

void qn_quant_encode_q4_0(const float *src, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += SMALL, dst += 18) {
        float d = signed_peak(src, SMALL) / -8.0f, id = qn_inverse(d);
        int codes[SMALL];
        for (int e = 0; e < SMALL; e++) codes[e] = qn_trunc_to(qn_sane(src[e]) * id + 8.5f, 0, 15);
        qn_put_scale(dst, d);
        pack_nibbles(codes, dst + 2);
    }
}

void qn_quant_encode_q4_1(const float *src, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += SMALL, dst += 20) {
        float low, high;
        range_of(src, SMALL, &low, &high);
        float d = (high - low) / 15.0f, id = qn_inverse(d);
        int codes[SMALL];
        for (int e = 0; e < SMALL; e++) codes[e] = qn_trunc_to((qn_sane(src[e]) - low) * id + 0.5f, 0, 15);
        qn_put_scale(dst, d);
        qn_put_scale(dst + 2, low);
        pack_nibbles(codes, dst + 4);
    }
}

void qn_quant_encode_q5_0(const float *src, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += SMALL, dst += 22) {
        float d = signed_peak(src, SMALL) / -16.0f, id = qn_inverse(d);
        int codes[SMALL];
        for (int e = 0; e < SMALL; e++) codes[e] = qn_trunc_to(qn_sane(src[e]) * id + 16.5f, 0, 31);
        qn_put_scale(dst, d);
        pack_fifth_bits(codes, dst + 2);
        pack_nibbles(codes, dst + 6);
    }
}

void qn_quant_encode_q5_1(const float *src, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += SMALL, dst += 24) {
        float low, high;
        range_of(src, SMALL, &low, &high);
        float d = (high - low) / 31.0f, id = qn_inverse(d);
        int codes[SMALL];
        for (int e = 0; e < SMALL; e++) codes[e] = qn_trunc_to((qn_sane(src[e]) - low) * id + 0.5f, 0, 31);
        qn_put_scale(dst, d);
        qn_put_scale(dst + 2, low);
        pack_fifth_bits(codes, dst + 4);
        pack_nibbles(codes, dst + 8);
    }
}

/* The codes of the 8-bit types; returns the unrounded scale. */
static float encode_bytes(const float *src, uint8_t *qs, int *sum) {
    float d = qn_abs_f32(signed_peak(src, SMALL)) / 127.0f, id = qn_inverse(d);
    *sum = 0;
    for (int e = 0; e < SMALL; e++) {
        int code = qn_round_away_to(qn_sane(src[e]) * id, -127, 127);
        qs[e] = (uint8_t)(code & 255);
        *sum += code;
    }
    return d;
}

void qn_quant_encode_q8_0(const float *src, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += SMALL, dst += 34) {
        int sum;
        qn_put_scale(dst, encode_bytes(src, dst + 2, &sum));
    }
}

void qn_quant_encode_q8_1(const float *src, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += SMALL, dst += 36) {
        int sum;
        float d = encode_bytes(src, dst + 4, &sum);
        qn_put_scale(dst, d);
        qn_put_scale(dst + 2, d * (float)sum);
    }
}

void qn_quant_encode_q1_0(const float *src, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += Q1_BLOCK, dst += 18) {
        float sum = 0.0f;
        memset(dst + 2, 0, 16);
        for (int e = 0; e < Q1_BLOCK; e++) {
            float v = qn_sane(src[e]);
            sum += qn_abs_f32(v);
            if (v >= 0.0f) dst[2 + e / 8] = (uint8_t)(dst[2 + e / 8] | 1u << (e % 8));
        }
        qn_put_scale(dst, sum / (float)Q1_BLOCK);
    }
}

void qn_quant_encode_q2_0(const float *src, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += Q2_BLOCK, dst += 18) {
        float d = qn_abs_f32(signed_peak(src, Q2_BLOCK)), id = qn_inverse(d);
        qn_put_scale(dst, d);
        memset(dst + 2, 0, 16);
        for (int e = 0; e < Q2_BLOCK; e++) {
            unsigned code = (unsigned)(qn_round_away_to(qn_sane(src[e]) * id, -1, 2) + 1);
            dst[2 + e / 4] = (uint8_t)(dst[2 + e / 4] | code << (2 * (e % 4)));
        }
    }
}
