/* Scale searches the encoders share; see quant_search.h. */
#include "quant_search.h"

#include "quant_bits.h"

enum { MAX_GROUP = 32 };

int qn_quant_normalise(const float *src, int n, float *x) {
    float peak = 0.0f;
    for (int e = 0; e < n; e++) {
        float v = qn_abs_f32(qn_sane(src[e]));
        peak = v > peak ? v : peak;
    }
    if (peak == 0.0f) {
        memset(x, 0, (size_t)n * sizeof *x);
        return 0;
    }
    /* Every f32 is a normal f64, so its exponent field is there to read, subnormals included. */
    int k = (int)((qn_f64_to_bits(peak) >> 52) & 2047u) - 1023;
    double factor = qn_power_of_two(-k);
    for (int e = 0; e < n; e++) x[e] = (float)((double)qn_sane(src[e]) * factor);
    return k;
}

float qn_quant_put_normalised(uint8_t *p, float d, int k) {
    double value = (double)d * qn_power_of_two(k);
    value = value > 65504.0 ? 65504.0 : value < -65504.0 ? -65504.0 : value;
    float stored = qn_put_scale(p, (float)value);
    return (float)((double)stored * qn_power_of_two(-k));
}

float qn_quant_peak(const float *x, int n) {
    float peak = 0.0f;
    for (int e = 0; e < n; e++)
        if (qn_abs_f32(x[e]) > qn_abs_f32(peak)) peak = x[e];
    return peak;
}

void qn_quant_take_weights(const float *given, int n, float *w) {
    float most = 0.0f;
    if (given != NULL) qn_quant_normalise(given, n, w);
    for (int e = 0; e < n && given != NULL; e++) {
        w[e] = w[e] > 0.0f ? w[e] : 0.0f;
        most = w[e] > most ? w[e] : most;
    }
    for (int e = 0; e < n && most == 0.0f; e++) w[e] = 1.0f;
}

typedef struct affine_sums {
    float w, x;               /* fixed by the data */
    float code, code2, xcode; /* of the trial's codes */
} affine_sums;

static float affine_error(const float *x, const float *w, const int *codes, int n, float scale, float low, int absolute) {
    float error = 0.0f;
    for (int e = 0; e < n; e++) {
        float difference = scale * (float)codes[e] + low - x[e];
        error += w[e] * (absolute ? qn_abs_f32(difference) : difference * difference);
    }
    return error;
}

static void affine_codes(const float *x, const float *w, int n, float iscale, float low, int top, int *codes, affine_sums *sums) {
    sums->code = sums->code2 = sums->xcode = 0.0f;
    for (int e = 0; e < n; e++) {
        codes[e] = qn_round_even_to(iscale * (x[e] - low), 0, top);
        float code = (float)codes[e];
        sums->code += w[e] * code;
        sums->code2 += w[e] * code * code;
        sums->xcode += w[e] * code * x[e];
    }
}

/* The least-squares scale and lower end for the trial's codes; 0 when they do not determine both. */
static int affine_solve(const affine_sums *sums, float *scale, float *low) {
    float determinant = sums->w * sums->code2 - sums->code * sums->code;
    if (!(determinant > 0.0f)) return 0;
    *scale = (sums->w * sums->xcode - sums->x * sums->code) / determinant;
    *low = (sums->code2 * sums->x - sums->code * sums->xcode) / determinant;
    if (*low > 0.0f) {
        *low = 0.0f;
        *scale = sums->xcode / sums->code2;
    }
    return 1;
}

qn_affine_fit qn_quant_fit_affine(const float *x, const float *w, int n, const qn_affine_plan *plan) {
    int codes[MAX_GROUP];
    float low = x[0], high = x[0];
    affine_sums sums = {w[0], w[0] * x[0], 0.0f, 0.0f, 0.0f};
    for (int e = 1; e < n; e++) {
        low = x[e] < low ? x[e] : low;
        high = x[e] > high ? x[e] : high;
        sums.w += w[e];
        sums.x += w[e] * x[e];
    }
    low = low > 0.0f ? 0.0f : low;
    if (high == low) return (qn_affine_fit){0.0f, -low};
    float iscale = (float)plan->top / (high - low), best_scale = 1.0f / iscale;
    affine_codes(x, w, n, iscale, low, plan->top, codes, &sums);
    float best = affine_error(x, w, codes, n, best_scale, low, plan->absolute);
    for (int k = 0; k <= plan->steps; k++) {
        float scale, trial_low;
        iscale = (plan->from + plan->step * (float)k + (float)plan->top) / (high - low);
        affine_codes(x, w, n, iscale, low, plan->top, codes, &sums);
        if (!affine_solve(&sums, &scale, &trial_low)) continue;
        float error = affine_error(x, w, codes, n, scale, trial_low, plan->absolute);
        if (error < best) {
            best = error;
            best_scale = scale;
            low = trial_low; /* the remaining trials start from here: part of the definition */
        }
    }
    return (qn_affine_fit){best_scale, -low};
}
