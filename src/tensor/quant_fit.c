/* Fits of the offline encoders: many starting scales, each polished by alternating least squares and re-coding, judged
 * by the plain squared error. */
#include <float.h>

#include "quant_bits.h"
#include "quant_search.h"

enum { MAX_GROUP = 32, POLISH = 3 };

const int8_t qn_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

int qn_iq4_nearest(float v) {
    if (!(v > -127.0f)) /* also NaN */
        return v != v ? 8 : 0;
    if (v >= 113.0f) return 15;
    int low = 0, high = 15;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (v < (float)qn_iq4_values[middle]) high = middle;
        else low = middle;
    }
    return v - (float)qn_iq4_values[low] < (float)qn_iq4_values[high] - v ? low : high;
}

static int code_of(const qn_levels *levels, float v) {
    return levels->table != NULL ? qn_iq4_nearest(v) : qn_round_even_to(v, levels->lo, levels->hi) - levels->lo;
}

static float level_of(const qn_levels *levels, int code) {
    return (float)(levels->table != NULL ? levels->table[code] : code + levels->lo);
}

float qn_quant_code_levels(const qn_levels *levels, const float *x, int n, float scale, uint8_t *codes) {
    float iscale = qn_inverse(scale), error = 0.0f;
    for (int e = 0; e < n; e++) {
        int code = code_of(levels, x[e] * iscale);
        float difference = scale * level_of(levels, code) - x[e];
        codes[e] = (uint8_t)code;
        error += difference * difference;
    }
    return error;
}

/* Least-squares scale of codes; 0 when they are all at level zero. */
static float refit_levels(const qn_levels *levels, const float *x, int n, const uint8_t *codes) {
    float xq = 0.0f, qq = 0.0f;
    for (int e = 0; e < n; e++) {
        float level = level_of(levels, codes[e]);
        xq += x[e] * level;
        qq += level * level;
    }
    return qq > 0.0f ? xq / qq : 0.0f;
}

float qn_quant_fit_levels(const qn_levels *levels, const float *x, int n) {
    uint8_t codes[MAX_GROUP];
    float peak = qn_quant_peak(x, n), best = FLT_MAX, best_scale = 0.0f;
    float reach = levels->table != NULL ? (float)levels->table[0] : (float)levels->lo;
    if (peak == 0.0f) return 0.0f;
    /* The peak may sit on the longer or on the shorter side of the levels, and may be cut a little or fall short. */
    for (int trial = 0; trial < 42; trial++) {
        float stretch = 0.80f + 0.025f * (float)(trial / 2);
        float scale = peak / (reach * stretch) * (trial % 2 != 0 ? -1.0f : 1.0f);
        for (int polish = 0; polish < POLISH; polish++) {
            float error = qn_quant_code_levels(levels, x, n, scale, codes);
            if (error < best) {
                best = error;
                best_scale = scale;
            }
            scale = refit_levels(levels, x, n, codes);
            if (scale == 0.0f) break;
        }
    }
    return best_scale;
}

float qn_quant_code_range(const float *x, int n, int top, qn_affine_fit fit, uint8_t *codes) {
    float iscale = qn_inverse(fit.scale), error = 0.0f;
    for (int e = 0; e < n; e++) {
        int code = qn_round_even_to((x[e] + fit.offset) * iscale, 0, top);
        float difference = fit.scale * (float)code - fit.offset - x[e];
        codes[e] = (uint8_t)code;
        error += difference * difference;
    }
    return error;
}

/* Least squares for both parameters; when the offset may not be negative and would be, for the scale alone. */
static qn_affine_fit refit_range(const float *x, int n, const uint8_t *codes, int any_sign) {
    float q = 0.0f, qq = 0.0f, sum = 0.0f, xq = 0.0f;
    for (int e = 0; e < n; e++) {
        float code = codes[e];
        q += code;
        qq += code * code;
        sum += x[e];
        xq += x[e] * code;
    }
    float determinant = (float)n * qq - q * q;
    if (!(determinant > 0.0f)) return (qn_affine_fit){0.0f, 0.0f};
    qn_affine_fit fit = {((float)n * xq - sum * q) / determinant, (q * xq - qq * sum) / determinant};
    if (fit.offset < 0.0f && !any_sign) fit = (qn_affine_fit){xq / qq, 0.0f};
    return fit;
}

qn_affine_fit qn_quant_fit_range(const float *x, int n, int top, int any_sign) {
    uint8_t codes[MAX_GROUP];
    float low = x[0], high = x[0], best = FLT_MAX;
    for (int e = 1; e < n; e++) {
        low = x[e] < low ? x[e] : low;
        high = x[e] > high ? x[e] : high;
    }
    if (low > 0.0f && !any_sign) low = 0.0f;
    qn_affine_fit best_fit = {0.0f, -low};
    if (!(high > low)) return best_fit;
    for (int trial = 0; trial < 40; trial++) {
        /* Shrink or stretch the range, about its middle or keeping one end. */
        float width = (high - low) * (0.75f + 0.035f * (float)(trial / 4)), spare = (high - low) - width;
        float share = (float)(trial % 4) / 3.0f;
        qn_affine_fit fit = {width / (float)top, -(low + spare * share)};
        if (fit.offset < 0.0f && !any_sign) fit.offset = 0.0f;
        for (int polish = 0; polish < POLISH && fit.scale > 0.0f; polish++) {
            float error = qn_quant_code_range(x, n, top, fit, codes);
            if (error < best) {
                best = error;
                best_fit = fit;
            }
            fit = refit_range(x, n, codes, any_sign);
        }
    }
    return best_fit;
}
