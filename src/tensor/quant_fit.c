/* Fits of the offline encoders: many starting scales, each polished by alternating least squares and re-coding, judged by the
 * squared error under the caller's weights. Four values are worked on at a time, in vectors as every processor of ours has
 * them; each lane keeps its own sums, so the order of additions, and with it the bytes, is the same everywhere. */
#include <float.h>

#include "quant_bits.h"
#include "quant_search.h"

enum { LANES = 4, POLISH = 3 };

static const float hopeless = 1.25f; /* a trial this much worse than the best so far is not polished */

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

typedef float lanes __attribute__((vector_size(16)));
typedef int32_t choice __attribute__((vector_size(16))); /* all bits set where it holds */

static inline lanes load(const float *p) {
    lanes v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline float total(lanes v) { return (v[0] + v[2]) + (v[1] + v[3]); }

static inline lanes all(float v) { return (lanes){v, v, v, v}; }

static inline lanes choose(choice which, lanes yes, lanes no) { return (lanes)(((choice)yes & which) | ((choice)no & ~which)); }

/* To nearest even within [lo, hi]; v is a number. */
static inline lanes round_within(lanes v, lanes lo, lanes hi) {
    v = choose(v < lo, lo, v);
    v = choose(v > hi, hi, v);
    return (v + 12582912.0f) - 12582912.0f;
}

/* The sums of a trial. */
typedef struct trial_sums {
    float error, xq, qq, q;
} trial_sums;

/* A scale whose inverse is a number too; others explain nothing. */
static float useful_inverse(float scale) { return qn_abs_f32(scale) > 0x1p-120f ? 1.0f / scale : 0.0f; }

/* ---- One scale: x ~ scale * level */

/* Levels nearest to x * iscale: whole numbers, or from the table. */
static inline lanes find_levels(const qn_levels *levels, lanes x, float iscale) {
    lanes v = x * iscale;
    if (levels->table == NULL) return round_within(v, all((float)levels->lo), all((float)levels->hi));
    lanes level = all((float)levels->table[levels->lo]);
    for (int k = levels->lo; k < levels->hi; k++) {
        float below = (float)levels->table[k], above = (float)levels->table[k + 1];
        level += choose(v >= all(0.5f * (below + above)), all(above - below), all(0.0f));
    }
    return level;
}

static trial_sums try_levels(const qn_levels *levels, const float *x, const float *w, int n, float scale) {
    lanes error = all(0.0f), xq = error, qq = error;
    float iscale = useful_inverse(scale);
    for (int b = 0; b < n; b += LANES) {
        lanes value = load(x + b), weight = load(w + b), level = find_levels(levels, value, iscale);
        lanes difference = level * scale - value, weighted = weight * level;
        error += weight * difference * difference;
        xq += weighted * value;
        qq += weighted * level;
    }
    return (trial_sums){total(error), total(xq), total(qq), 0.0f};
}

float qn_quant_code_levels(const qn_levels *levels, const float *x, const float *w, int n, float scale, uint8_t *codes) {
    lanes error = all(0.0f);
    float iscale = useful_inverse(scale);
    for (int b = 0; b < n; b += LANES) {
        lanes value = load(x + b), level = find_levels(levels, value, iscale), difference = level * scale - value;
        error += load(w + b) * difference * difference;
        for (int l = 0; l < LANES; l++)
            codes[b + l] = (uint8_t)(levels->table ? qn_iq4_nearest(level[l]) : (int)level[l] - levels->lo);
    }
    return total(error);
}

float qn_quant_fit_levels(const qn_levels *levels, const float *x, const float *w, int n) {
    float peak = qn_quant_peak(x, n), best = FLT_MAX, best_scale = 0.0f;
    float reach = levels->table != NULL ? (float)levels->table[0] : (float)levels->lo;
    if (peak == 0.0f) return 0.0f;
    /* The peak may sit on the longer or on the shorter side of the levels, and
   * may be cut a little or fall short. */
    for (int trial = 0; trial < 42; trial++) {
        float stretch = 0.80f + 0.025f * (float)(trial / 2);
        float scale = peak / (reach * stretch) * (trial % 2 != 0 ? -1.0f : 1.0f);
        for (int polish = 0; polish < POLISH; polish++) {
            trial_sums sums = try_levels(levels, x, w, n, scale);
            if (sums.error < best) {
                best = sums.error;
                best_scale = scale;
            }
            float better = sums.qq > 0.0f ? sums.xq / sums.qq : 0.0f;
            if (better == 0.0f || better == scale || sums.error > best * hopeless) break;
            scale = better;
        }
    }
    return best_scale;
}

/* ---- Scale and offset: x ~ scale * code - offset */

static trial_sums try_range(const float *x, const float *w, int n, int top, qn_affine_fit fit) {
    lanes error = all(0.0f), q = error, xq = error, qq = error, hi = all((float)top);
    float iscale = useful_inverse(fit.scale);
    for (int b = 0; b < n; b += LANES) {
        lanes value = load(x + b), weight = load(w + b);
        lanes code = round_within((value + fit.offset) * iscale, all(0.0f), hi), weighted = weight * code;
        lanes difference = code * fit.scale - fit.offset - value;
        error += weight * difference * difference;
        q += weighted;
        qq += weighted * code;
        xq += weighted * value;
    }
    return (trial_sums){total(error), total(xq), total(qq), total(q)};
}

float qn_quant_code_range(const float *x, const float *w, int n, int top, qn_affine_fit fit, uint8_t *codes) {
    lanes error = all(0.0f), hi = all((float)top);
    float iscale = useful_inverse(fit.scale);
    for (int b = 0; b < n; b += LANES) {
        lanes value = load(x + b), code = round_within((value + fit.offset) * iscale, all(0.0f), hi);
        lanes difference = code * fit.scale - fit.offset - value;
        error += load(w + b) * difference * difference;
        for (int l = 0; l < LANES; l++) codes[b + l] = (uint8_t)code[l];
    }
    return total(error);
}

/* Least squares for both parameters; when the offset may not be negative and would be, for the scale alone. */
static qn_affine_fit refit_range(const trial_sums *sums, float weight, float sum, int any_sign) {
    float determinant = weight * sums->qq - sums->q * sums->q;
    if (!(determinant > 0.0f)) return (qn_affine_fit){0.0f, 0.0f};
    qn_affine_fit fit = {(weight * sums->xq - sum * sums->q) / determinant, (sums->q * sums->xq - sums->qq * sum) / determinant};
    if (fit.offset < 0.0f && !any_sign) fit = (qn_affine_fit){sums->xq / sums->qq, 0.0f};
    return fit;
}

qn_affine_fit qn_quant_fit_range(const float *x, const float *w, int n, int top, int any_sign) {
    float low = x[0], high = x[0], best = FLT_MAX, weight = 0.0f, sum = 0.0f;
    for (int e = 0; e < n; e++) {
        low = x[e] < low ? x[e] : low;
        high = x[e] > high ? x[e] : high;
        weight += w[e];
        sum += w[e] * x[e];
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
            trial_sums sums = try_range(x, w, n, top, fit);
            if (sums.error < best) {
                best = sums.error;
                best_fit = fit;
            }
            qn_affine_fit better = refit_range(&sums, weight, sum, any_sign);
            if ((better.scale == fit.scale && better.offset == fit.offset) || sums.error > best * hopeless) break;
            fit = better;
        }
    }
    return best_fit;
}
