/* How images are resized: which samples an output is made of, and by what weights. Coordinates are single precision by definition, so
 * kernels and references share this. */
#ifndef QN_OP_RESIZE_H
#define QN_OP_RESIZE_H

#include <math.h>
#include <stdint.h>

enum { QN_RESIZE_NEAREST = 0, QN_RESIZE_BILINEAR = 1, QN_RESIZE_BICUBIC = 2, QN_RESIZE_AXES = 4 };

typedef struct qn_resize {
    int mode, align_corners, antialias;
} qn_resize;

/* One axis from `in` samples to `out`: `scale` samples out for one in, centres of samples at index + offset. */
typedef struct qn_resize_axis {
    int mode, antialias;
    int64_t in, out;
    float scale, offset, support;
} qn_resize_axis;

static inline qn_resize_axis qn_resize_axis_of(qn_resize how, int k, int64_t in, int64_t out) {
    int image = k < 2, aligned = image && how.align_corners;
    qn_resize_axis a = {.mode = image ? how.mode : QN_RESIZE_NEAREST, .antialias = how.antialias, .in = in, .out = out};
    a.scale = aligned && in > 1 && out > 1 ? (float)(out - 1) / (float)(in - 1) : (float)out / (float)in;
    a.offset = aligned ? 0.0f : 0.5f;
    a.support = a.scale < 1.0f ? 1.0f / a.scale : 1.0f;
    return a;
}

/* The samples an output is made of: [first, first + n), those beyond an edge standing for the edge. */
typedef struct qn_taps {
    int64_t first, n;
    float centre; /* antialias: the output's coordinate; else how far it is past the base sample */
    double total; /* of the weights */
} qn_taps;

/* A whole number in [low, high], whatever the float is. */
static inline int64_t qn_resize_whole(float v, int64_t low, int64_t high) {
    if (!(v > (float)low)) return low;
    if (v >= (float)high) return high;
    return (int64_t)v;
}

static inline int64_t qn_tap_index(const qn_resize_axis *a, const qn_taps *t, int64_t j) {
    int64_t i = t->first + j;
    return i < 0 ? 0 : i >= a->in ? a->in - 1 : i;
}

/* Keys' cubic kernel. */
static inline double qn_resize_cubic(double u) {
    const double alpha = -0.75;
    if (u <= 1) return ((alpha + 2) * u - (alpha + 3)) * u * u + 1;
    return u < 2 ? ((alpha * u - 5 * alpha) * u + 8 * alpha) * u - 4 * alpha : 0;
}

static inline double qn_tap_weight(const qn_resize_axis *a, const qn_taps *t, int64_t j) {
    if (a->mode == QN_RESIZE_NEAREST) return 1;
    if (a->mode == QN_RESIZE_BICUBIC) return qn_resize_cubic(fabs((double)j - 1 - (double)t->centre));
    if (!a->antialias) return j == 0 ? 1 - (double)t->centre : (double)t->centre;
    float weight = 1.0f - fabsf((float)(t->first + j) - t->centre + a->offset) / a->support;
    return weight > 0 ? (double)weight : 0;
}

/* The weight of tap j and of those behind it that stand for the same sample, which is *sample; the tap behind them. */
static inline int64_t qn_tap_run(const qn_resize_axis *a, const qn_taps *t, int64_t j, int64_t *sample, double *weight) {
    *sample = qn_tap_index(a, t, j);
    *weight = 0;
    for (; j < t->n && qn_tap_index(a, t, j) == *sample; j++) *weight += qn_tap_weight(a, t, j);
    return j;
}

static inline qn_taps qn_taps_of(const qn_resize_axis *a, int64_t output) {
    qn_taps t = {.n = 1, .total = 1};
    float at = ((float)output + a->offset) / a->scale - a->offset, base = floorf(at);
    int64_t sample = qn_resize_whole(base, -1, a->in);
    if (a->mode == QN_RESIZE_NEAREST) {
        t.first = qn_resize_whole((float)output / a->scale, 0, a->in - 1);
    } else if (a->mode == QN_RESIZE_BICUBIC) {
        t = (qn_taps){sample - 1, 4, at - base, 1};
    } else if (!a->antialias) {
        float past = at - (float)(sample < 0 ? 0 : sample >= a->in ? a->in - 1 : sample);
        t = (qn_taps){sample, 2, past < 0 ? 0 : past > 1 ? 1 : past, 1};
    } else {
        t.centre = ((float)output + a->offset) / a->scale;
        t.first = qn_resize_whole(t.centre - a->support + a->offset, 0, a->in);
        t.n = qn_resize_whole(t.centre + a->support + a->offset, 0, a->in) - t.first;
        t.total = 0;
        for (int64_t j = 0; j < t.n; j++) t.total += qn_tap_weight(a, &t, j);
        if (!(t.total > 0)) t.total = 1;
    }
    return t;
}

#endif
