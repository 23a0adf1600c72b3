/* Offline encoders of the types whose run-time encoder is a fixed quick rule: they look for the codes of least squared
 * error under the caller's weights, and judge every candidate with its scales as stored. */
#include <float.h>

#include "quant_bits.h"
#include "quant_codecs.h"
#include "quant_k.h"
#include "quant_search.h"

enum { SMALL = 32 };

static void pack_nibbles(const uint8_t *codes, uint8_t *qs) {
    for (int j = 0; j < 16; j++) qs[j] = (uint8_t)((codes[j] & 15) | (codes[j + 16] & 15) << 4);
}

static void pack_fifth_bits(const uint8_t *codes, uint8_t *qh) {
    uint32_t bits = 0;
    for (int e = 0; e < SMALL; e++) bits |= (uint32_t)(codes[e] >> 4) << e;
    qn_put_u32(qh, bits);
}

static void best_symmetric(const qn_levels *levels, const float *src, const float *weights, uint8_t *d_at, uint8_t *codes) {
    float x[SMALL], w[SMALL];
    qn_quant_take_weights(weights, SMALL, w);
    int exponent = qn_quant_normalise(src, SMALL, x);
    float scale = qn_quant_put_normalised(d_at, qn_quant_fit_levels(levels, x, w, SMALL), exponent);
    qn_quant_code_levels(levels, x, w, SMALL, scale, codes);
}

static void best_affine(int top, const float *src, const float *weights, uint8_t *d_at, uint8_t *m_at, uint8_t *codes) {
    float x[SMALL], w[SMALL];
    qn_quant_take_weights(weights, SMALL, w);
    int exponent = qn_quant_normalise(src, SMALL, x);
    qn_affine_fit fit = qn_quant_fit_range(x, w, SMALL, top, 1);
    fit.scale = qn_quant_put_normalised(d_at, fit.scale, exponent);
    fit.offset = -qn_quant_put_normalised(m_at, -fit.offset, exponent);
    qn_quant_code_range(x, w, SMALL, top, fit, codes);
}

void qn_quant_encode_best_q4_0(const float *src, const float *weights, int64_t n_blocks, uint8_t *dst) {
    static const qn_levels levels = {-8, 7, NULL};
    for (int64_t b = 0; b < n_blocks; b++, src += SMALL, dst += 18) {
        uint8_t codes[SMALL];
        best_symmetric(&levels, src, qn_quant_weights_at(weights, b * SMALL), dst, codes);
        pack_nibbles(codes, dst + 2);
    }
}

void qn_quant_encode_best_q5_0(const float *src, const float *weights, int64_t n_blocks, uint8_t *dst) {
    static const qn_levels levels = {-16, 15, NULL};
    for (int64_t b = 0; b < n_blocks; b++, src += SMALL, dst += 22) {
        uint8_t codes[SMALL];
        best_symmetric(&levels, src, qn_quant_weights_at(weights, b * SMALL), dst, codes);
        pack_fifth_bits(codes, dst + 2);
        pack_nibbles(codes, dst + 6);
    }
}

void qn_quant_encode_best_iq4_nl(const float *src, const float *weights, int64_t n_blocks, uint8_t *dst) {
    static const qn_levels levels = {0, 15, qn_iq4_values};
    for (int64_t b = 0; b < n_blocks; b++, src += SMALL, dst += 18) {
        uint8_t codes[SMALL];
        best_symmetric(&levels, src, qn_quant_weights_at(weights, b * SMALL), dst, codes);
        pack_nibbles(codes, dst + 2);
    }
}

void qn_quant_encode_best_q4_1(const float *src, const float *weights, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += SMALL, dst += 20) {
        uint8_t codes[SMALL];
        best_affine(15, src, qn_quant_weights_at(weights, b * SMALL), dst, dst + 2, codes);
        pack_nibbles(codes, dst + 4);
    }
}

void qn_quant_encode_best_q5_1(const float *src, const float *weights, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += SMALL, dst += 24) {
        uint8_t codes[SMALL];
        best_affine(31, src, qn_quant_weights_at(weights, b * SMALL), dst, dst + 2, codes);
        pack_fifth_bits(codes, dst + 4);
        pack_nibbles(codes, dst + 8);
    }
}

/* A super-block of symmetric sub-blocks of `size` with integers in [-span, span - 1] under one f16. */
static void best_super(const qn_levels *levels, const float *src, const float *weights, int size, int span, qn_k_symmetric *parts,
                       uint8_t *d_at) {
    float x[QN_K_BLOCK], w[QN_K_BLOCK], scales[16];
    qn_quant_take_weights(weights, QN_K_BLOCK, w);
    int exponent = qn_quant_normalise(src, QN_K_BLOCK, x), count = QN_K_BLOCK / size;
    for (int k = 0; k < count; k++) scales[k] = qn_quant_fit_levels(levels, x + size * k, w + size * k, size);
    float d = qn_quant_put_normalised(d_at, qn_quant_peak(scales, count) / -(float)span, exponent);
    for (int k = 0; k < count; k++) {
        int guess = qn_round_even_to(scales[k] * qn_inverse(d), -span, span - 1);
        float best = FLT_MAX;
        for (int trial = guess - 2; trial <= guess + 2; trial++) {
            uint8_t codes[SMALL];
            if (trial < -span || trial >= span) continue;
            float error = qn_quant_code_levels(levels, x + size * k, w + size * k, size, d * (float)trial, codes);
            if (error < best) {
                best = error;
                parts->scale[k] = trial;
                memcpy(parts->code + size * k, codes, (size_t)size);
            }
        }
    }
}

void qn_quant_encode_best_q3_k(const float *src, const float *weights, int64_t n_blocks, uint8_t *dst) {
    static const qn_levels levels = {-4, 3, NULL};
    for (int64_t b = 0; b < n_blocks; b++, src += QN_K_BLOCK, dst += QN_Q3_K_BYTES) {
        qn_k_symmetric parts;
        best_super(&levels, src, qn_quant_weights_at(weights, b * QN_K_BLOCK), 16, 32, &parts, dst + 108);
        qn_quant_pack_q3_k(&parts, dst);
    }
}

void qn_quant_encode_best_q6_k(const float *src, const float *weights, int64_t n_blocks, uint8_t *dst) {
    static const qn_levels levels = {-32, 31, NULL};
    for (int64_t b = 0; b < n_blocks; b++, src += QN_K_BLOCK, dst += QN_Q6_K_BYTES) {
        qn_k_symmetric parts;
        best_super(&levels, src, qn_quant_weights_at(weights, b * QN_K_BLOCK), 16, 128, &parts, dst + 208);
        qn_quant_pack_q6_k(&parts, dst);
    }
}

void qn_quant_encode_best_iq4_xs(const float *src, const float *weights, int64_t n_blocks, uint8_t *dst) {
    static const qn_levels levels = {0, 15, qn_iq4_values};
    for (int64_t b = 0; b < n_blocks; b++, src += QN_K_BLOCK, dst += QN_IQ4_XS_BYTES) {
        qn_k_symmetric parts;
        best_super(&levels, src, qn_quant_weights_at(weights, b * QN_K_BLOCK), 32, 32, &parts, dst);
        qn_quant_pack_iq4_xs(&parts, dst);
    }
}

/* The pair of integers around a fit that leaves the least error in one sub-block. */
static void best_pair(const float *x, const float *w, int size, int top, int most, qn_affine_fit unit, qn_affine_fit fit, int k,
                      qn_k_affine *parts) {
    int scale_guess = qn_round_even_to(fit.scale * qn_inverse(unit.scale), 0, most);
    int offset_guess = qn_round_even_to(fit.offset * qn_inverse(unit.offset), 0, most);
    float best = FLT_MAX;
    for (int trial = 0; trial < 25; trial++) {
        uint8_t codes[SMALL];
        int scale = scale_guess - 2 + trial / 5, offset = offset_guess - 2 + trial % 5;
        if (scale < 0 || scale > most || offset < 0 || offset > most) continue;
        qn_affine_fit stored = {unit.scale * (float)scale, unit.offset * (float)offset};
        float error = qn_quant_code_range(x, w, size, top, stored, codes);
        if (error < best) {
            best = error;
            parts->scale[k] = scale;
            parts->offset[k] = offset;
            memcpy(parts->code + size * k, codes, (size_t)size);
        }
    }
}

static void best_affine_super(const float *src, const float *weights, int size, int top, int most, qn_k_affine *parts,
                              uint8_t *d_at, uint8_t *dmin_at) {
    float x[QN_K_BLOCK], w[QN_K_BLOCK];
    qn_quant_take_weights(weights, QN_K_BLOCK, w);
    qn_affine_fit fits[16], unit = {0.0f, 0.0f};
    int exponent = qn_quant_normalise(src, QN_K_BLOCK, x), count = QN_K_BLOCK / size;
    for (int k = 0; k < count; k++) {
        fits[k] = qn_quant_fit_range(x + size * k, w + size * k, size, top, 0);
        unit.scale = fits[k].scale > unit.scale ? fits[k].scale : unit.scale;
        unit.offset = fits[k].offset > unit.offset ? fits[k].offset : unit.offset;
    }
    unit.scale = qn_quant_put_normalised(d_at, unit.scale / (float)most, exponent);
    unit.offset = qn_quant_put_normalised(dmin_at, unit.offset / (float)most, exponent);
    for (int k = 0; k < count; k++) best_pair(x + size * k, w + size * k, size, top, most, unit, fits[k], k, parts);
}

void qn_quant_encode_best_q2_k(const float *src, const float *weights, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += QN_K_BLOCK, dst += QN_Q2_K_BYTES) {
        qn_k_affine parts;
        best_affine_super(src, qn_quant_weights_at(weights, b * QN_K_BLOCK), 16, 3, 15, &parts, dst + 80, dst + 82);
        qn_quant_pack_q2_k(&parts, dst);
    }
}

void qn_quant_encode_best_q4_k(const float *src, const float *weights, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += QN_K_BLOCK, dst += QN_Q4_K_BYTES) {
        qn_k_affine parts;
        best_affine_super(src, qn_quant_weights_at(weights, b * QN_K_BLOCK), 32, 15, 63, &parts, dst, dst + 2);
        qn_quant_pack_q4_k(&parts, dst);
    }
}

void qn_quant_encode_best_q5_k(const float *src, const float *weights, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += QN_K_BLOCK, dst += QN_Q5_K_BYTES) {
        qn_k_affine parts;
        best_affine_super(src, qn_quant_weights_at(weights, b * QN_K_BLOCK), 32, 31, 63, &parts, dst, dst + 2);
        qn_quant_pack_q5_k(&parts, dst);
    }
}
