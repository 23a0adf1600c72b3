/* The ternary types: -d, 0 or d per value, five base-3 digits to a byte (tq1_0) or four 2-bit codes to a byte
 * (tq2_0). */
#include "quant_bits.h"
#include "quant_codecs.h"

enum { BLOCK = 256, TQ1_BYTES = 54, TQ2_BYTES = 66 };

static const uint8_t powers_of_3[5] = {1, 3, 9, 27, 81};

/* A byte is the fraction v / 243 in 1/256ths, rounded up: multiplying by 3 moves the next digit over the point. */
static int ternary_digit(uint8_t byte, int n) {
    int rest = (byte * powers_of_3[n]) & 255;
    return (rest * 3) >> 8;
}

/* One run of a tq1_0 block: `width` bytes of `digits` digits, digit n of byte m being element n * width + m. */
static void decode_run(const uint8_t *bytes, int width, int digits, float d, float *dst) {
    for (int n = 0; n < digits; n++)
        for (int m = 0; m < width; m++) dst[n * width + m] = d * (float)(ternary_digit(bytes[m], n) - 1);
}

static void encode_run(const float *src, int width, int digits, float id, uint8_t *bytes) {
    for (int m = 0; m < width; m++) {
        int value = 0;
        for (int n = 0; n < 5; n++) /* a run of four digits is padded with a last zero */
            value = value * 3 + (n < digits ? qn_round_away_to(qn_sane(src[n * width + m]) * id, -1, 1) + 1 : 0);
        bytes[m] = (uint8_t)((value * 256 + 242) / 243);
    }
}

static float peak_of(const float *x) {
    float peak = 0.0f;
    for (int e = 0; e < BLOCK; e++) {
        float v = qn_abs_f32(qn_sane(x[e]));
        peak = v > peak ? v : peak;
    }
    return peak;
}

void qn_quant_decode_tq1_0(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += TQ1_BYTES, dst += BLOCK) {
        float d = qn_get_f16(src + 52);
        decode_run(src, 32, 5, d, dst);
        decode_run(src + 32, 16, 5, d, dst + 160);
        decode_run(src + 48, 4, 4, d, dst + 240);
    }
}

void qn_quant_encode_tq1_0(const float *src, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += BLOCK, dst += TQ1_BYTES) {
        float d = peak_of(src), id = qn_inverse(d);
        encode_run(src, 32, 5, id, dst);
        encode_run(src + 160, 16, 5, id, dst + 32);
        encode_run(src + 240, 4, 4, id, dst + 48);
        qn_put_scale(dst + 52, d);
    }
}

void qn_quant_decode_tq2_0(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += TQ2_BYTES, dst += BLOCK) {
        float d = qn_get_f16(src + 64);
        for (int e = 0; e < BLOCK; e++) {
            int half = e / 128, l = e / 32 % 4, m = e % 32;
            dst[e] = d * (float)(((src[32 * half + m] >> (2 * l)) & 3) - 1);
        }
    }
}

void qn_quant_encode_tq2_0(const float *src, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += BLOCK, dst += TQ2_BYTES) {
        float d = peak_of(src), id = qn_inverse(d);
        memset(dst, 0, 64);
        for (int e = 0; e < BLOCK; e++) {
            int half = e / 128, l = e / 32 % 4, m = e % 32;
            unsigned code = (unsigned)(qn_round_away_to(qn_sane(src[e]) * id, -1, 1) + 1);
            dst[32 * half + m] = (uint8_t)(dst[32 * half + m] | code << (2 * l));
        }
        qn_put_scale(dst + 64, d);
    }
}
