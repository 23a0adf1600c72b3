/* Decoders of the codebook types iq1, iq2 and iq3: 256 values in groups of 8, each one or two grid entries with signs
 * or a shift, under small scales per 16 or 32 and one f16. */
#include "quant_bits.h"
#include "quant_codecs.h"
#include "quant_grids.h"

enum { BLOCK = 256 };

/* A 7-bit sign index is seven signs and, as the eighth, their parity. */
static unsigned expand_signs(unsigned index) {
    unsigned parity = index ^ index >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return (index & 127u) | (parity & 1u) << 7;
}

static float signed_value(float value, unsigned signs, int i) { return (signs >> i) & 1u ? -value : value; }

/* Eight values of an iq2 group. */
static void put_iq2(unsigned entry, unsigned signs, float scale, float *dst) {
    for (int i = 0; i < 8; i++) dst[i] = signed_value(scale * (float)qn_grid_values_iq2[(entry >> (2 * i)) & 3u], signs, i);
}

/* Eight values of an iq3 group: two entries of four. */
static void put_iq3(unsigned first, unsigned second, const int8_t *values, unsigned signs, float scale, float *dst) {
    for (int i = 0; i < 4; i++) {
        dst[i] = signed_value(scale * (float)values[(first >> (3 * i)) & 7u], signs, i);
        dst[i + 4] = signed_value(scale * (float)values[(second >> (3 * i)) & 7u], signs, i + 4);
    }
}

static void put_iq1(unsigned entry, float shift, float scale, float *dst) {
    for (int i = 0; i < 8; i++) dst[i] = scale * ((float)qn_grid_values_iq1[(entry >> (2 * i)) & 3u] + shift);
}

void qn_quant_decode_iq2_xxs(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += 66, dst += BLOCK) {
        float d = qn_get_f16(src);
        for (int s = 0; s < 8; s++) {
            const uint8_t *index = src + 2 + 8 * s;
            uint32_t word = qn_get_u32(index + 4);
            float scale = d * (0.5f + (float)(word >> 28)) * 0.25f;
            for (int l = 0; l < 4; l++)
                put_iq2(qn_grid_iq2_xxs[index[l]], expand_signs((word >> (7 * l)) & 127u), scale, dst + 32 * s + 8 * l);
        }
    }
}

/* The 4-bit scale of the 16 values that group g (of 32) lies in. */
static float iq2_scale(const uint8_t *scales, int g) {
    return (0.5f + (float)((scales[g / 4] >> (4 * (g / 2 % 2))) & 15)) * 0.25f;
}

void qn_quant_decode_iq2_xs(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += 74, dst += BLOCK) {
        float d = qn_get_f16(src);
        for (int g = 0; g < 32; g++) {
            unsigned code = qn_get_u16(src + 2 + 2 * g);
            put_iq2(qn_grid_iq2_xs[code & 511u], expand_signs(code >> 9), d * iq2_scale(src + 66, g), dst + 8 * g);
        }
    }
}

void qn_quant_decode_iq2_s(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += 82, dst += BLOCK) {
        float d = qn_get_f16(src);
        for (int g = 0; g < 32; g++) {
            unsigned index = src[2 + g] | ((unsigned)src[66 + g / 4] >> (2 * (g % 4)) & 3u) << 8;
            put_iq2(qn_grid_iq2_s[index], src[34 + g], d * iq2_scale(src + 74, g), dst + 8 * g);
        }
    }
}

void qn_quant_decode_iq3_xxs(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += 98, dst += BLOCK) {
        float d = qn_get_f16(src);
        for (int s = 0; s < 8; s++) {
            uint32_t word = qn_get_u32(src + 66 + 4 * s);
            float scale = d * (0.5f + (float)(word >> 28)) * 0.5f;
            for (int l = 0; l < 4; l++) {
                const uint8_t *index = src + 2 + 8 * s + 2 * l;
                put_iq3(qn_grid_iq3_xxs[index[0]], qn_grid_iq3_xxs[index[1]], qn_grid_values_iq3_xxs,
                        expand_signs((word >> (7 * l)) & 127u), scale, dst + 32 * s + 8 * l);
            }
        }
    }
}

void qn_quant_decode_iq3_s(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += 110, dst += BLOCK) {
        float d = qn_get_f16(src);
        for (int g = 0; g < 32; g++) {
            int s = g / 4, l = g % 4;
            unsigned high = (unsigned)src[66 + s] >> (2 * l);
            unsigned first = src[2 + 2 * g] | (high & 1u) << 8, second = src[3 + 2 * g] | (high >> 1 & 1u) << 8;
            float scale = d * (float)(1 + 2 * ((src[106 + s / 2] >> (4 * (s % 2))) & 15));
            put_iq3(qn_grid_iq3_s[first], qn_grid_iq3_s[second], qn_grid_values_iq3_s, src[74 + g], scale, dst + 8 * g);
        }
    }
}

void qn_quant_decode_iq1_s(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += 50, dst += BLOCK) {
        float d = qn_get_f16(src);
        for (int g = 0; g < 32; g++) {
            unsigned high = qn_get_u16(src + 34 + 2 * (g / 4));
            unsigned index = src[2 + g] | ((high >> (3 * (g % 4))) & 7u) << 8;
            float scale = d * (float)(2 * ((high >> 12) & 7u) + 1);
            put_iq1(qn_grid_iq1[index], high >> 15 ? -0.125f : 0.125f, scale, dst + 8 * g);
        }
    }
}

void qn_quant_decode_iq1_m(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += 56, dst += BLOCK) {
        unsigned d_bits = 0, scales[4];
        for (int i = 0; i < 4; i++) {
            scales[i] = qn_get_u16(src + 48 + 2 * i);
            d_bits |= (scales[i] >> 12) << (4 * i);
        }
        float d = qn_f16_to_f32((uint16_t)d_bits);
        for (int g = 0; g < 32; g++) {
            unsigned nibble = (unsigned)src[32 + g / 2] >> (4 * (g % 2)) & 15u;
            unsigned index = src[g] | (nibble & 7u) << 8;
            unsigned code = scales[g / 8] >> (3 * (g / 2 % 4)) & 7u;
            put_iq1(qn_grid_iq1[index], nibble & 8u ? -0.125f : 0.125f, d * (float)(2 * code + 1), dst + 8 * g);
        }
    }
}
