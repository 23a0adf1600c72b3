/* Run-time encoders of the super-block types: the searches the format defines, in f32, candidate by candidate. */
#include <float.h>
#include <math.h>

#include "quant_bits.h"
#include "quant_codecs.h"
#include "quant_k.h"
#include "quant_search.h"

void qn_quant_pack_q2_k(const qn_k_affine *parts, uint8_t *dst) {
    memset(dst, 0, 80);
    for (int k = 0; k < 16; k++) dst[k] = (uint8_t)(parts->scale[k] | parts->offset[k] << 4);
    for (int e = 0; e < QN_K_BLOCK; e++) {
        uint8_t *byte = dst + 16 + 32 * (e / 128) + e % 32;
        *byte = (uint8_t)(*byte | parts->code[e] << (2 * (e / 32 % 4)));
    }
}

void qn_quant_pack_q3_k(const qn_k_symmetric *parts, uint8_t *dst) {
    memset(dst, 0, 108);
    for (int k = 0; k < 16; k++) {
        int code = parts->scale[k] + 32;
        uint8_t *low = dst + 96 + k % 8, *high = dst + 104 + k % 4;
        *low = (uint8_t)(*low | (code & 15) << (k < 8 ? 0 : 4));
        *high = (uint8_t)(*high | code >> 4 << (2 * (k / 4)));
    }
    for (int e = 0; e < QN_K_BLOCK; e++) {
        uint8_t *byte = dst + 32 + 32 * (e / 128) + e % 32, *mask = dst + e % 32;
        *byte = (uint8_t)(*byte | (parts->code[e] & 3) << (2 * (e / 32 % 4)));
        *mask = (uint8_t)(*mask | parts->code[e] >> 2 << (e / 32));
    }
}

static void pack_scales(const qn_k_affine *parts, uint8_t *s) {
    memset(s, 0, 12);
    for (int k = 0; k < 4; k++) {
        s[k] = (uint8_t)(parts->scale[k] | parts->scale[k + 4] >> 4 << 6);
        s[k + 4] = (uint8_t)(parts->offset[k] | parts->offset[k + 4] >> 4 << 6);
        s[k + 8] = (uint8_t)((parts->scale[k + 4] & 15) | (parts->offset[k + 4] & 15) << 4);
    }
}

/* The low four bits of each code, in pairs 32 apart. */
static void pack_low_nibbles(const uint8_t *codes, uint8_t *qs) {
    for (int i = 0; i < 128; i++) {
        const uint8_t *pair = codes + 64 * (i / 32) + i % 32;
        qs[i] = (uint8_t)((pair[0] & 15) | (pair[32] & 15) << 4);
    }
}

void qn_quant_pack_q4_k(const qn_k_affine *parts, uint8_t *dst) {
    pack_scales(parts, dst + 4);
    pack_low_nibbles(parts->code, dst + 16);
}

void qn_quant_pack_q5_k(const qn_k_affine *parts, uint8_t *dst) {
    pack_scales(parts, dst + 4);
    memset(dst + 16, 0, 32);
    for (int e = 0; e < QN_K_BLOCK; e++) dst[16 + e % 32] = (uint8_t)(dst[16 + e % 32] | parts->code[e] >> 4 << (e / 32));
    pack_low_nibbles(parts->code, dst + 48);
}

void qn_quant_pack_q6_k(const qn_k_symmetric *parts, uint8_t *dst) {
    memset(dst, 0, 192);
    for (int e = 0; e < QN_K_BLOCK; e++) {
        int h = e / 128, j = e / 32 % 4, l = e % 32;
        uint8_t *low = dst + 64 * h + 32 * (j % 2) + l, *high = dst + 128 + 32 * h + l;
        *low = (uint8_t)(*low | (parts->code[e] & 15) << (4 * (j / 2)));
        *high = (uint8_t)(*high | parts->code[e] >> 4 << (2 * j));
    }
    for (int k = 0; k < 16; k++) dst[192 + k] = (uint8_t)(parts->scale[k] & 255);
}

/* Weights of an affine fit: |x|, plus the root mean square for the wider codes. */
static void affine_weights(const float *x, int n, int with_mean, float *w) {
    float base = 0.0f;
    if (with_mean) {
        float squares = 0.0f;
        for (int e = 0; e < n; e++) squares += x[e] * x[e];
        base = sqrtf(squares / (float)n);
    }
    for (int e = 0; e < n; e++) w[e] = base + qn_abs_f32(x[e]);
}

/* Fit every sub-block of `size`, store the super-scales at d and dmin, and code against what was stored. `most` is the
 * largest sub-block integer. */
static void encode_affine(const float *src, int size, int most, const qn_affine_plan *plan, qn_k_affine *parts, uint8_t *d_at,
                          uint8_t *dmin_at) {
    float x[QN_K_BLOCK], w[32];
    qn_affine_fit fits[16];
    float top_scale = 0.0f, top_offset = 0.0f;
    int exponent = qn_quant_normalise(src, QN_K_BLOCK, x), count = QN_K_BLOCK / size;
    for (int k = 0; k < count; k++) {
        affine_weights(x + size * k, size, !plan->absolute, w);
        fits[k] = qn_quant_fit_affine(x + size * k, w, size, plan);
        top_scale = fits[k].scale > top_scale ? fits[k].scale : top_scale;
        top_offset = fits[k].offset > top_offset ? fits[k].offset : top_offset;
    }
    float iscale = top_scale > 0.0f ? (float)most / top_scale : 0.0f;
    float ioffset = top_offset > 0.0f ? (float)most / top_offset : 0.0f;
    float d = qn_quant_put_normalised(d_at, top_scale / (float)most, exponent);
    float dmin = qn_quant_put_normalised(dmin_at, top_offset / (float)most, exponent);
    for (int k = 0; k < count; k++) {
        parts->scale[k] = qn_round_even_to(iscale * fits[k].scale, 0, most);
        parts->offset[k] = qn_round_even_to(ioffset * fits[k].offset, 0, most);
        float scale = d * (float)parts->scale[k], offset = dmin * (float)parts->offset[k];
        for (int e = size * k; e < size * (k + 1); e++)
            parts->code[e] = (uint8_t)(scale != 0.0f ? qn_round_even_to((x[e] + offset) / scale, 0, plan->top) : 0);
    }
}

void qn_quant_encode_q2_k(const float *src, int64_t n_blocks, uint8_t *dst) {
    static const qn_affine_plan plan = {3, -0.5f, 0.1f, 15, 1};
    for (int64_t b = 0; b < n_blocks; b++, src += QN_K_BLOCK, dst += QN_Q2_K_BYTES) {
        qn_k_affine parts;
        encode_affine(src, 16, 15, &plan, &parts, dst + 80, dst + 82);
        qn_quant_pack_q2_k(&parts, dst);
    }
}

void qn_quant_encode_q4_k(const float *src, int64_t n_blocks, uint8_t *dst) {
    static const qn_affine_plan plan = {15, -1.0f, 0.1f, 20, 0};
    for (int64_t b = 0; b < n_blocks; b++, src += QN_K_BLOCK, dst += QN_Q4_K_BYTES) {
        qn_k_affine parts;
        encode_affine(src, 32, 63, &plan, &parts, dst, dst + 2);
        qn_quant_pack_q4_k(&parts, dst);
    }
}

void qn_quant_encode_q5_k(const float *src, int64_t n_blocks, uint8_t *dst) {
    static const qn_affine_plan plan = {31, -0.5f, 0.1f, 15, 0};
    for (int64_t b = 0; b < n_blocks; b++, src += QN_K_BLOCK, dst += QN_Q5_K_BYTES) {
        qn_k_affine parts;
        encode_affine(src, 32, 63, &plan, &parts, dst, dst + 2);
        qn_quant_pack_q5_k(&parts, dst);
    }
}

/* Coordinate descent on the codes of 16 values, from the plain rounding, maximising (sum w x q)^2 / sum w q^2 with w =
 * x^2; returns the scale that goes with them. */
static float fit_q3(const float *x) {
    float peak = qn_quant_peak(x, 16), xq = 0.0f, qq = 0.0f;
    int codes[16];
    if (peak == 0.0f) return 0.0f;
    float iscale = -4.0f / peak;
    for (int e = 0; e < 16; e++) {
        codes[e] = qn_round_even_to(iscale * x[e], -4, 3);
        float w = x[e] * x[e], code = (float)codes[e];
        xq += w * x[e] * code;
        qq += w * code * code;
    }
    for (int pass = 0, changed = 1; pass < 5 && changed; pass++) {
        changed = 0;
        for (int e = 0; e < 16; e++) {
            float w = x[e] * x[e], code = (float)codes[e];
            float rest_xq = xq - w * x[e] * code, rest_qq = qq - w * code * code;
            if (!(rest_xq > 0.0f)) continue;
            int trial = qn_round_even_to(x[e] * rest_qq / rest_xq, -4, 3);
            if (trial == codes[e]) continue;
            rest_xq += w * x[e] * (float)trial;
            rest_qq += w * (float)trial * (float)trial;
            if (rest_qq > 0.0f && rest_xq * rest_xq * qq > xq * xq * rest_qq) {
                codes[e] = trial;
                xq = rest_xq;
                qq = rest_qq;
                changed = 1;
            }
        }
    }
    return qq > 0.0f ? xq / qq : 0.0f;
}

/* The best of 19 scales around -32 / peak for 16 values, each refitted under w = x^2. */
static float fit_q6(const float *x) {
    float peak = qn_quant_peak(x, 16), best = -1.0f, best_scale = 0.0f;
    if (peak == 0.0f) return 0.0f;
    for (int trial = 0; trial < 19; trial++) {
        /* the middle one comes first: it wins ties */
        int i = trial == 0 ? 0 : trial <= 9 ? trial - 10 : trial - 9;
        float iscale = -(32.0f + 0.1f * (float)i) / peak, xq = 0.0f, qq = 0.0f;
        for (int e = 0; e < 16; e++) {
            float w = x[e] * x[e], code = (float)qn_round_even_to(iscale * x[e], -32, 31);
            xq += w * x[e] * code;
            qq += w * code * code;
        }
        if (qq > 0.0f && (best < 0.0f || xq * xq > best * qq)) {
            best_scale = xq / qq;
            best = best_scale * xq;
        }
    }
    return best_scale;
}

/* Super-scale and codes of a symmetric type: sub-block integers in [-span, span - 1], codes in [-top, top - 1]. */
static void encode_symmetric(const float *src, float (*fit)(const float *), int span, int top, qn_k_symmetric *parts,
                             uint8_t *d_at) {
    float x[QN_K_BLOCK], scales[16];
    int exponent = qn_quant_normalise(src, QN_K_BLOCK, x);
    for (int k = 0; k < 16; k++) scales[k] = fit(x + 16 * k);
    float peak = qn_quant_peak(scales, 16);
    float iscale = peak != 0.0f ? -(float)span / peak : 0.0f;
    float d = qn_quant_put_normalised(d_at, qn_inverse(iscale), exponent);
    for (int k = 0; k < 16; k++) {
        parts->scale[k] = qn_round_even_to(iscale * scales[k], -span, span - 1);
        float scale = d * (float)parts->scale[k];
        for (int e = 16 * k; e < 16 * k + 16; e++) {
            int code = scale != 0.0f ? qn_round_even_to(x[e] / scale, -top, top - 1) : 0;
            parts->code[e] = (uint8_t)(code + top);
        }
    }
}

void qn_quant_encode_q3_k(const float *src, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += QN_K_BLOCK, dst += QN_Q3_K_BYTES) {
        qn_k_symmetric parts;
        encode_symmetric(src, fit_q3, 32, 4, &parts, dst + 108);
        qn_quant_pack_q3_k(&parts, dst);
    }
}

void qn_quant_encode_q6_k(const float *src, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += QN_K_BLOCK, dst += QN_Q6_K_BYTES) {
        qn_k_symmetric parts;
        encode_symmetric(src, fit_q6, 128, 32, &parts, dst + 208);
        qn_quant_pack_q6_k(&parts, dst);
    }
}

void qn_quant_encode_q8_k(const float *src, int64_t n_blocks, uint8_t *dst) {
    for (int64_t b = 0; b < n_blocks; b++, src += QN_K_BLOCK, dst += QN_Q8_K_BYTES) {
        float x[QN_K_BLOCK];
        for (int e = 0; e < QN_K_BLOCK; e++) x[e] = qn_sane(src[e]);
        float peak = qn_quant_peak(x, QN_K_BLOCK);
        float iscale = peak != 0.0f ? -127.0f / peak : 0.0f;
        /* Two roundings may have pushed d up; near the top of f32 the largest code must still decode to a number. */
        float d = qn_inverse(iscale), most = FLT_MAX / 128.0f;
        qn_put_u32(dst, qn_f32_to_bits(d > most ? most : d < -most ? -most : d));
        for (int k = 0; k < 16; k++) {
            int sum = 0;
            for (int e = 16 * k; e < 16 * k + 16; e++) {
                int code = qn_round_even_to(x[e] * iscale, -128, 127);
                dst[4 + e] = (uint8_t)(code & 255);
                sum += code;
            }
            qn_put_u16(dst + 260 + 2 * k, (uint16_t)(sum & 0xffff));
        }
    }
}
