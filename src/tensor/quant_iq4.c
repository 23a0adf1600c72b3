/* iq4_nl and iq4_xs: 4-bit codes into a fixed table of 16 unevenly spaced values. */
#include "quant_bits.h"
#include "quant_codecs.h"
#include "quant_k.h"
#include "quant_search.h"

enum { SUB = 32, NL_BYTES = 18 };

static void decode_nibbles(const uint8_t *qs, float scale, float *dst) {
    for (int j = 0; j < 16; j++) {
        dst[j] = scale * (float)qn_iq4_values[qs[j] & 15];
        dst[j + 16] = scale * (float)qn_iq4_values[qs[j] >> 4];
    }
}

void qn_quant_decode_iq4_nl(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += NL_BYTES, dst += SUB) decode_nibbles(src + 2, qn_get_f16(src), dst);
}

void qn_quant_decode_iq4_xs(const uint8_t *src, int64_t n_blocks, float *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += QN_IQ4_XS_BYTES, dst += QN_K_BLOCK) {
        float d = qn_get_f16(src);
        unsigned high = qn_get_u16(src + 2);
        for (int s = 0; s < 8; s++) {
            int scale = ((src[4 + s / 2] >> (4 * (s % 2))) & 15) | (int)((high >> (2 * s)) & 3u) << 4;
            decode_nibbles(src + 8 + 16 * s, d * (float)(scale - 32), dst + SUB * s);
        }
    }
}

void qn_quant_pack_iq4_xs(const qn_k_symmetric *parts, uint8_t *dst) {
    unsigned high = 0;
    memset(dst + 4, 0, 4);
    for (int s = 0; s < 8; s++) {
        unsigned code = (unsigned)(parts->scale[s] + 32);
        dst[4 + s / 2] = (uint8_t)(dst[4 + s / 2] | (code & 15u) << (4 * (s % 2)));
        high |= (code >> 4) << (2 * s);
        for (int j = 0; j < 16; j++)
            dst[8 + 16 * s + j] = (uint8_t)(parts->code[SUB * s + j] | parts->code[SUB * s + j + 16] << 4);
    }
    qn_put_u16(dst + 2, (uint16_t)high);
}

/* Sums of the least squares, under w = x^2, for the scale of the codes that x * iscale gets. Codes may be NULL. */
typedef struct fit_sums {
    float xq, qq;
} fit_sums;

static fit_sums fit_at(const float *x, float iscale, uint8_t *codes) {
    fit_sums s = {0.0f, 0.0f};
    for (int e = 0; e < SUB; e++) {
        int code = qn_iq4_nearest(x[e] * iscale);
        float w = x[e] * x[e], value = (float)qn_iq4_values[code];
        s.xq += w * value * x[e];
        s.qq += w * value * value;
        if (codes != NULL) codes[e] = (uint8_t)code;
    }
    return s;
}

static float fitted(fit_sums s) { return s.qq > 0.0f ? s.xq / s.qq : 0.0f; }

void qn_quant_encode_iq4_nl(const float *src, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += SUB, dst += NL_BYTES) {
        float x[SUB];
        uint8_t codes[SUB];
        int exponent = qn_quant_normalise(src, SUB, x);
        float first = qn_quant_peak(x, SUB) / (float)qn_iq4_values[0];
        /* The codes stay those of the first scale: only the scale itself is refitted. */
        qn_quant_put_normalised(dst, fitted(fit_at(x, qn_inverse(first), codes)), exponent);
        for (int j = 0; j < 16; j++) dst[2 + j] = (uint8_t)(codes[j] | codes[j + 16] << 4);
    }
}

/* The best of 16 trial scales: one that puts the peak on the first table entry with its sign turned, where it is cut to the
 * last one, and 15 around the one that puts it on the first entry. */
static float fit_sub_block(const float *x) {
    float peak = qn_quant_peak(x, SUB), first = (float)qn_iq4_values[0];
    if (peak == 0.0f) return 0.0f;
    fit_sums sums = fit_at(x, qn_inverse(-peak / first), NULL);
    float scale = fitted(sums), best = scale * sums.xq; /* best: how much of the weighted square sum the scale explains */
    for (int i = -7; i <= 7; i++) {
        sums = fit_at(x, (first + (float)i) / peak, NULL);
        if (sums.qq > 0.0f && sums.xq * sums.xq > best * sums.qq) {
            scale = fitted(sums);
            best = scale * sums.xq;
        }
    }
    return scale;
}

void qn_quant_encode_iq4_xs(const float *src, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += QN_K_BLOCK, dst += QN_IQ4_XS_BYTES) {
        float x[QN_K_BLOCK], scales[8];
        qn_k_symmetric parts;
        int exponent = qn_quant_normalise(src, QN_K_BLOCK, x);
        for (int s = 0; s < 8; s++) scales[s] = fit_sub_block(x + SUB * s);
        float wanted = qn_quant_peak(scales, 8) / -32.0f, id = qn_inverse(wanted);
        float d = qn_quant_put_normalised(dst, wanted, exponent);
        /* Codes follow the scale before it was rounded, as ggml's do, unless half precision lost more than its last bit. */
        if (qn_abs_f32(d - wanted) <= qn_abs_f32(wanted) / 1024.0f) d = wanted;
        for (int s = 0; s < 8; s++) {
            parts.scale[s] = qn_round_even_to(id * scales[s], -32, 31);
            float iscale = qn_inverse(d * (float)parts.scale[s]);
            for (int e = SUB * s; e < SUB * (s + 1); e++) parts.code[e] = (uint8_t)qn_iq4_nearest(x[e] * iscale);
        }
        qn_quant_pack_iq4_xs(&parts, dst);
    }
}
