/* The 4-bit float types: E2M1 codes under a power-of-two scale (mxfp4) or an unsigned E4M3 scale per 16 (nvfp4). */
#include "quant_bits.h"
#include "quant_codecs.h"

enum { MX_BLOCK = 32, MX_BYTES = 17, NV_BLOCK = 64, NV_BYTES = 36, NV_SUB = 16 };

/* E2M1 times two, so that they are integers; the scales carry the missing half. */
static const int8_t fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 2^(e - 128); the two lowest are subnormal in f32. */
static float mx_scale(uint8_t e) { return e < 2 ? qn_bits_to_f32(0x00200000u << e) : qn_bits_to_f32((uint32_t)(e - 1) << 23); }

/* The scale has no sign: of a byte's upper bit only the test for what is no number takes notice. */
static float nv_scale(uint8_t code) {
    int exponent = (code >> 3) & 15, mantissa = code & 7;
    if (code == 0x7f) return 0.0f;
    float value = exponent == 0 ? (float)mantissa * 0x1p-9f
                                : (1.0f + (float)mantissa / 8.0f) * (float)qn_power_of_two(exponent - 7);
    return 0.5f * value;
}

/* Half up on the 3-bit mantissa. From 256 on everything is the largest code. */
static uint8_t nv_scale_code(float value) {
    if (!(value >= 0x1p-10f)) return 0;
    if (value >= 256.0f) return 0x7e;
    if (value < 0x1p-6f) /* subnormals count in 2^-9 and do not carry: the format's encoder stops at 7 of them */
        return (uint8_t)qn_trunc_to(value * 512.0f + 0.5f, 0, 7);
    /* Exponent and mantissa are one number, so a rounding carry moves the exponent by itself. */
    uint32_t code = ((qn_f32_to_bits(value) + (1u << 19)) >> 20) - (120u << 3);
    return code >= (15u << 3) ? 0x7e : (uint8_t)code;
}

/* Index of the value nearest to x under scale d, the lowest on ties. */
static uint8_t nearest_fp4(float x, float d) {
    int best = 0;
    float best_error = qn_abs_f32(x);
    for (int i = 1; i < 16; i++) {
        float error = qn_abs_f32((float)fp4_values[i] * d - x);
        if (error < best_error) {
            best = i;
            best_error = error;
        }
    }
    return (uint8_t)best;
}

static float peak_of(const float *x, int n) {
    float peak = 0.0f;
    for (int e = 0; e < n; e++) {
        float v = qn_abs_f32(qn_sane(x[e]));
        peak = v > peak ? v : peak;
    }
    return peak;
}

/* Elements i and i + half share byte i. */
static void decode_pairs(const uint8_t *qs, int half, float d, float *dst) {
    for (int i = 0; i < half; i++) {
        dst[i] = d * (float)fp4_values[qs[i] & 15];
        dst[i + half] = d * (float)fp4_values[qs[i] >> 4];
    }
}

static void encode_pairs(const float *src, int half, float d, uint8_t *qs) {
    for (int i = 0; i < half; i++) {
        uint8_t low = nearest_fp4(qn_sane(src[i]), d), high = nearest_fp4(qn_sane(src[i + half]), d);
        qs[i] = (uint8_t)(low | high << 4);
    }
}

void qn_quant_decode_mxfp4(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += MX_BYTES, dst += MX_BLOCK) decode_pairs(src + 1, 16, mx_scale(src[0]), dst);
}

void qn_quant_encode_mxfp4(const float *src, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += MX_BLOCK, dst += MX_BYTES) {
        /* The biased exponent field is floor(log2) + 127, and 0 for the subnormals, whose scale cannot be lower
         * anyway. */
        int field = (int)(qn_f32_to_bits(peak_of(src, MX_BLOCK)) >> 23);
        dst[0] = (uint8_t)(field > 2 ? field - 2 : 0);
        encode_pairs(src, 16, mx_scale(dst[0]), dst + 1);
    }
}

void qn_quant_decode_nvfp4(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += NV_BYTES, dst += NV_BLOCK)
        for (int t = 0; t < 4; t++) decode_pairs(src + 4 + 8 * t, 8, nv_scale(src[t]), dst + NV_SUB * t);
}

void qn_quant_encode_nvfp4(const float *src, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += NV_BLOCK, dst += NV_BYTES)
        for (int t = 0; t < 4; t++) {
            dst[t] = nv_scale_code(peak_of(src + NV_SUB * t, NV_SUB) / 6.0f);
            encode_pairs(src + NV_SUB * t, 8, nv_scale(dst[t]), dst + 4 + 8 * t);
        }
}
