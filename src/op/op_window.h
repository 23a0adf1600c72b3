/* Sliding windows along one axis, the arithmetic that convolutions, patches and pools share. Output o at tap k looks at the
 * sample  o * stride + k * dilation - pad,  which is a real one when it lies in [0, in). Attributes may be as large as they
 * like: once qn_window_fit has accepted the numbers, no sum below can overflow. */
#ifndef QN_OP_WINDOW_H
#define QN_OP_WINDOW_H

#include "op/product.h"

typedef struct qn_window {
    int64_t in, taps;
    int64_t stride, pad, dilation;
    int64_t out; /* set by qn_window_fit */
} qn_window;

typedef enum qn_window_fault { QN_WINDOW_OK, QN_WINDOW_WIDE, QN_WINDOW_EMPTY } qn_window_fault;

/* Sets out, or says what is wrong: the taps reach past 64 bits, or no window fits. The padded extent cannot overflow: extents
 * of floats are below 2^62, because their bytes were counted, and a pad is an i32. */
static inline qn_window_fault qn_window_fit(qn_window *w) {
    int64_t reach, room = w->in + 2 * w->pad;
    w->out = 0;
    if (qn_mul_overflow(w->dilation, w->taps - 1, &reach)) return QN_WINDOW_WIDE;
    if (room <= reach) return QN_WINDOW_EMPTY;
    w->out = (room - reach - 1) / w->stride + 1;
    return QN_WINDOW_OK;
}

/* The other way round, for what spreads few values over many samples: `in` from out, out >= 1. Nonzero on overflow; the
 * result can be below 1 when pad is large. */
static inline int qn_window_unfit(qn_window *w) {
    int64_t last;
    if (qn_mul_overflow(w->out - 1, w->stride, &last) || qn_add_overflow(last, w->taps, &w->in)) return 1;
    w->in -= 2 * w->pad;
    return 0;
}

static inline int64_t qn_window_sample(const qn_window *w, int64_t output, int64_t tap) {
    return output * w->stride + tap * w->dilation - w->pad;
}

/* A half-open range of outputs. */
typedef struct qn_range {
    int64_t first, last;
} qn_range;

/* The outputs whose tap falls on a sample in [from, to), 0 <= from <= to <= in. */
static inline qn_range qn_window_outputs(const qn_window *w, int64_t tap, int64_t from, int64_t to) {
    int64_t low = from + w->pad - tap * w->dilation, high = to + w->pad - tap * w->dilation;
    qn_range s;
    s.first = low <= 0 ? 0 : (low - 1) / w->stride + 1;
    s.last = high <= 0 ? 0 : (high - 1) / w->stride + 1;
    if (s.last > w->out) s.last = w->out;
    if (s.first > s.last) s.first = s.last;
    return s;
}

/* The one output whose tap falls on this sample, -1 when there is none. */
static inline int64_t qn_window_output(const qn_window *w, int64_t sample, int64_t tap) {
    int64_t at = sample + w->pad - tap * w->dilation;
    if (at < 0 || at % w->stride) return -1;
    return at / w->stride < w->out ? at / w->stride : -1;
}

/* Values a fixed number of bytes apart: one axis of a tensor, the other indices being fixed. */
typedef struct qn_strip {
    qn_dtype dtype;
    char *at;
    int64_t step;
} qn_strip;

/* n values of the strip from `first`, every `every`-th. */
static inline void qn_strip_load(qn_strip s, int64_t first, int64_t every, int64_t n, double *out) {
    if (n <= 0) return;
    /* For one value the step is not used, and multiplying it out could overflow. */
    qn_load_run(s.dtype, s.at + first * s.step, n > 1 ? every * s.step : 0, 0, n, out);
}

/* acc[o - from] += weight * the sample that output o, from <= o < to, sees at this tap. At most QN_RUN outputs. */
void qn_window_collect(const qn_window *w, int64_t tap, qn_strip samples, double weight, int64_t from, int64_t to, double *acc);
/* The transpose: acc[i - from] += weight * the output that sees sample i, from <= i < to, at this tap. At most QN_RUN samples. */
void qn_window_spread(const qn_window *w, int64_t tap, qn_strip outputs, double weight, int64_t from, int64_t to, double *acc);

/* The windows of a kernel over an image: width, height, depth. Axes a form does not have are one window over one sample. */
enum { QN_WINDOW_AXES = 3 };
typedef struct qn_windows {
    qn_window of[QN_WINDOW_AXES];
} qn_windows;

#define QN_WINDOW_ALONG(s, p, d) \
    { .in = 1, .taps = 1, .stride = (s), .pad = (p), .dilation = (d), .out = 1 }
#define QN_WINDOWS_1D(at)                                                                                     \
    {                                                                                                         \
        { QN_WINDOW_ALONG((at)->s0, (at)->p0, (at)->d0), QN_WINDOW_ALONG(1, 0, 1), QN_WINDOW_ALONG(1, 0, 1) } \
    }
#define QN_WINDOWS_2D(at)                                                                                 \
    {                                                                                                     \
        {                                                                                                 \
            QN_WINDOW_ALONG((at)->s0, (at)->p0, (at)->d0), QN_WINDOW_ALONG((at)->s1, (at)->p1, (at)->d1), \
                QN_WINDOW_ALONG(1, 0, 1)                                                                  \
        }                                                                                                 \
    }
#define QN_WINDOWS_3D(at)                                                                                 \
    {                                                                                                     \
        {                                                                                                 \
            QN_WINDOW_ALONG((at)->s0, (at)->p0, (at)->d0), QN_WINDOW_ALONG((at)->s1, (at)->p1, (at)->d1), \
                QN_WINDOW_ALONG((at)->s2, (at)->p2, (at)->d2)                                             \
        }                                                                                                 \
    }

/* Extents of a shape from its last axis on, ones beyond its rank. */
typedef struct qn_extents {
    int rank;
    int64_t d[QN_MAX_RANK];
} qn_extents;

qn_extents qn_extents_of(const qn_tensor *t);
qn_extents qn_extents_of_dims(const qn_dims *dims);

/* Fits the kernel in source `kernel` to an image, both having their windows on the last `axes` axes. */
void qn_windows_fit(qn_windows *w, int axes, const qn_extents *image, const qn_tensor *kernel);
/* The same as a guard. The image is the source `slot`, or the attribute `shape` when that is -1. */
qn_status qn_windows_infer(qn_infer_call *c, qn_windows *w, int axes, const qn_extents *image, int slot, int kernel);

#endif
