/* Scale searches the encoders share. They work on normalised values (qn_quant_normalise) and in f32 throughout: the
 * run-time encoders' bytes depend on near-tied candidates, so the precision of the sums is part of their definition. */
#ifndef QN_TENSOR_QUANT_SEARCH_H
#define QN_TENSOR_QUANT_SEARCH_H

#include <stddef.h>
#include <stdint.h>

/* The element of largest magnitude, with its sign; the first one on ties. */
float qn_quant_peak(const float *x, int n);

/* Weights of one block: those given, brought near 1 by a power of two so that sums of errors neither overflow nor vanish, and
 * negative ones as zero; or all 1, when none are given or all of them are zero. */
void qn_quant_take_weights(const float *given, int n, float *w);

/* Weights further on, of none also none. */
static inline const float *qn_quant_weights_at(const float *weights, int64_t offset) { return weights ? weights + offset : NULL; }

/* How an affine search goes: codes 0..top, trial k = 0..steps stretches the range to top + from + step * k units. */
typedef struct qn_affine_plan {
    int top;
    float from;
    float step;
    int steps;
    int absolute; /* 1: the error is the weighted sum of |difference|, else of its square */
} qn_affine_plan;

/* x ~ scale * code - offset. */
typedef struct qn_affine_fit {
    float scale;
    float offset;
} qn_affine_fit;

/* Fit with offset >= 0, at most 32 values under weights w: the search the format defines. */
qn_affine_fit qn_quant_fit_affine(const float *x, const float *w, int n, const qn_affine_plan *plan);

/* The values a code can stand for, before its scale: lo..hi, or the 16 entries of an increasing table (lo = 0, hi =
 * 15). */
typedef struct qn_levels {
    int lo;
    int hi;
    const int8_t *table; /* NULL: the code is the value */
} qn_levels;

extern const int8_t qn_iq4_values[16];

/* Code of the entry of qn_iq4_values nearest to v, the upper one on ties. */
int qn_iq4_nearest(float v);

/* For offline encoders, which minimise the squared error under weights that are not negative. A fit for 16 or 32 values: scale *
 * level. */
float qn_quant_fit_levels(const qn_levels *levels, const float *x, const float *w, int n);
/* Code n values under a given scale; returns the weighted squared error. Codes count from lo. */
float qn_quant_code_levels(const qn_levels *levels, const float *x, const float *w, int n, float scale, uint8_t *codes);

/* The same for codes 0..top with a free offset (any_sign) or one that is not negative. */
qn_affine_fit qn_quant_fit_range(const float *x, const float *w, int n, int top, int any_sign);
float qn_quant_code_range(const float *x, const float *w, int n, int top, qn_affine_fit fit, uint8_t *codes);

#endif
