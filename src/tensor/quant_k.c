/* Decoders of the super-block types q2_K to q6_K and q8_K: 256 values, sub-blocks of 16 or 32 with small integer scales
 * (and offsets) under one or two f16 super-scales. */
#include "quant_bits.h"
#include "quant_codecs.h"
#include "quant_k.h"

void qn_quant_decode_q2_k(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += QN_Q2_K_BYTES, dst += QN_K_BLOCK) {
        float d = qn_get_f16(src + 80), dmin = qn_get_f16(src + 82);
        for (int k = 0; k < 16; k++) {
            float scale = d * (float)(src[k] & 15), offset = dmin * (float)(src[k] >> 4);
            const uint8_t *qs = src + 16 + 32 * (k / 8) + 16 * (k % 2);
            int shift = 2 * (k / 2 % 4);
            for (int l = 0; l < 16; l++) dst[16 * k + l] = scale * (float)((qs[l] >> shift) & 3) - offset;
        }
    }
}

static int q3_k_scale(const uint8_t *scales, int k) {
    int low = k < 8 ? scales[k] & 15 : scales[k - 8] >> 4;
    int high = (scales[8 + k % 4] >> (2 * (k / 4))) & 3;
    return (low | high << 4) - 32;
}

void qn_quant_decode_q3_k(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += QN_Q3_K_BYTES, dst += QN_K_BLOCK) {
        float d = qn_get_f16(src + 108);
        for (int k = 0; k < 16; k++) {
            float scale = d * (float)q3_k_scale(src + 96, k);
            const uint8_t *qs = src + 32 + 32 * (k / 8) + 16 * (k % 2), *hmask = src + 16 * (k % 2);
            int shift = 2 * (k / 2 % 4), bit = k / 2;
            for (int l = 0; l < 16; l++) {
                int code = ((qs[l] >> shift) & 3) - ((hmask[l] >> bit) & 1 ? 0 : 4);
                dst[16 * k + l] = scale * (float)code;
            }
        }
    }
}

/* The 6-bit scale and offset of sub-block k of q4_K and q5_K. */
static void unpack_scale(const uint8_t *s, int k, int *scale, int *offset) {
    if (k < 4) {
        *scale = s[k] & 63;
        *offset = s[k + 4] & 63;
    } else {
        *scale = (s[k + 4] & 15) | (s[k - 4] >> 6) << 4;
        *offset = (s[k + 4] >> 4) | (s[k] >> 6) << 4;
    }
}

void qn_quant_decode_q4_k(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += QN_Q4_K_BYTES, dst += QN_K_BLOCK) {
        float d = qn_get_f16(src), dmin = qn_get_f16(src + 2);
        for (int k = 0; k < 8; k++) {
            int sc, mn, shift = 4 * (k % 2);
            unpack_scale(src + 4, k, &sc, &mn);
            float scale = d * (float)sc, offset = dmin * (float)mn;
            const uint8_t *qs = src + 16 + 32 * (k / 2);
            for (int l = 0; l < 32; l++) dst[32 * k + l] = scale * (float)((qs[l] >> shift) & 15) - offset;
        }
    }
}

void qn_quant_decode_q5_k(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += QN_Q5_K_BYTES, dst += QN_K_BLOCK) {
        float d = qn_get_f16(src), dmin = qn_get_f16(src + 2);
        for (int k = 0; k < 8; k++) {
            int sc, mn, shift = 4 * (k % 2);
            unpack_scale(src + 4, k, &sc, &mn);
            float scale = d * (float)sc, offset = dmin * (float)mn;
            const uint8_t *qs = src + 48 + 32 * (k / 2), *qh = src + 16;
            for (int l = 0; l < 32; l++) {
                int code = ((qs[l] >> shift) & 15) | ((qh[l] >> k) & 1) << 4;
                dst[32 * k + l] = scale * (float)code - offset;
            }
        }
    }
}

void qn_quant_decode_q6_k(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += QN_Q6_K_BYTES, dst += QN_K_BLOCK) {
        float d = qn_get_f16(src + 208);
        for (int k = 0; k < 16; k++) {
            int h = k / 8, j = k / 2 % 4, first = 16 * (k % 2);
            float scale = d * (float)qn_signed_byte(src[192 + k]);
            const uint8_t *ql = src + 64 * h + 32 * (j % 2) + first, *qh = src + 128 + 32 * h + first;
            int low_shift = 4 * (j / 2), high_shift = 2 * j;
            for (int l = 0; l < 16; l++) {
                int code = ((ql[l] >> low_shift) & 15) | ((qh[l] >> high_shift) & 3) << 4;
                dst[16 * k + l] = scale * (float)(code - 32);
            }
        }
    }
}

void qn_quant_decode_q8_k(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += QN_Q8_K_BYTES, dst += QN_K_BLOCK) {
        float d = qn_bits_to_f32(qn_get_u32(src));
        for (int e = 0; e < QN_K_BLOCK; e++) dst[e] = d * (float)qn_signed_byte(src[4 + e]);
    }
}
