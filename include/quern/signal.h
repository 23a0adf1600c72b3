/* Signals written with ops: real transforms, short-time transforms, power spectra, convolution. Each function adds nodes to a
 * graph and returns the value of the last; QN_VAL_NONE when one could not be added, which the graph's error then tells. All of
 * them have gradients, because their ops have. Extents along the transformed axis must be numbers, not symbols.
 *
 * A real signal is [.., n], of at most 7 axes; its half spectrum is [.., 2, n / 2 + 1]: real parts, then imaginary ones, of
 * frequencies 0 to n / 2. norm is that of the op fft. */
#include <quern/graph.h>
#ifndef QUERN_SIGNAL_H
#define QUERN_SIGNAL_H

#ifdef __cplusplus
extern "C" {
#endif

/* What the functions below are made of. */

/* Shape of a value; without extents when there is no such value. */
static inline qn_dims qn_signal_shape(const qn_graph *graph, qn_val x) {
    qn_value_info info;
    qn_dims d;
    memset(&info, 0, sizeof info);
    memset(&d, 0, sizeof d);
    info.size = sizeof info;
    if (x == QN_VAL_NONE || qn_graph_value(graph, x, &info) != QN_OK) return d;
    d.rank = info.rank;
    memcpy(d.d, info.shape, sizeof info.shape);
    return d;
}

/* Extent of the k-th axis from the end; 0 when it has none that is a number. */
static inline int64_t qn_signal_extent(const qn_graph *graph, qn_val x, int k) {
    qn_dims d = qn_signal_shape(graph, x);
    int64_t n = k < d.rank ? d.d[d.rank - 1 - k] : 0;
    return n > 0 ? n : 0;
}

static inline qn_val qn_signal_op1(qn_graph *graph, int op, int subop, qn_val x, const void *attr) {
    return qn_graph_op(graph, op, subop, 1, &x, attr);
}

static inline qn_val qn_signal_arith(qn_graph *graph, qn_arith f, qn_val a, qn_val b) {
    qn_val src[2];
    src[0] = a;
    src[1] = b;
    return qn_graph_op(graph, QN_OP_arith, (int)f, 2, src, NULL);
}

/* The last `drop` axes replaced by n others. */
static inline qn_val qn_signal_reshape(qn_graph *graph, qn_val x, int drop, int n, int64_t a, int64_t b) {
    qn_attr_reshape at = qn_attr_reshape_default();
    at.shape = qn_signal_shape(graph, x);
    at.shape.rank -= drop;
    if (at.shape.rank < 0 || at.shape.rank + n > QN_MAX_RANK) at.shape.rank = 0; /* which the op turns down */
    else {
        at.shape.d[at.shape.rank++] = a;
        if (n == 2) at.shape.d[at.shape.rank++] = b;
    }
    return qn_signal_op1(graph, QN_OP_reshape, 0, qn_signal_op1(graph, QN_OP_cont, 0, x, NULL), &at);
}

static inline qn_val qn_signal_narrow(qn_graph *graph, qn_val x, int32_t axis, int64_t start, int64_t length) {
    qn_attr_narrow at = qn_attr_narrow_default();
    at.axis = axis;
    at.start = start;
    at.length = length;
    return qn_signal_op1(graph, QN_OP_narrow, 0, x, &at);
}

/* Zeros behind the last axis, up to n. */
static inline qn_val qn_signal_pad(qn_graph *graph, qn_val x, int64_t n) {
    qn_attr_pad at = qn_attr_pad_default();
    at.right = qn_signal_shape(graph, x);
    for (int i = 0; i < at.right.rank; i++) at.right.d[i] = 0;
    if (at.right.rank > 0) at.right.d[at.right.rank - 1] = n - qn_signal_extent(graph, x, 0);
    at.left = at.right;
    if (at.left.rank > 0) at.left.d[at.left.rank - 1] = 0;
    return qn_signal_op1(graph, QN_OP_pad, 0, x, &at);
}

static inline qn_val qn_signal_join(qn_graph *graph, int32_t axis, qn_val a, qn_val b) {
    qn_attr_join at = qn_attr_join_default();
    qn_val src[2];
    src[0] = a;
    src[1] = b;
    at.axis = axis;
    return qn_graph_op(graph, QN_OP_join, 0, 2, src, &at);
}

/* All frequencies but the first and, for even n, the last, twice: a half spectrum stands for those that are left out. */
static inline qn_val qn_signal_double(qn_graph *graph, qn_val half, int64_t n) {
    qn_attr_scale twice = qn_attr_scale_default();
    int64_t inner = (n - 1) / 2;
    qn_val x = qn_signal_narrow(graph, half, -1, 0, 1);
    twice.s = 2;
    if (inner > 0) {
        qn_val middle = qn_signal_op1(graph, QN_OP_scale, 0, qn_signal_narrow(graph, half, -1, 1, inner), &twice);
        x = qn_signal_join(graph, -1, x, middle);
    }
    if (n % 2 == 0) x = qn_signal_join(graph, -1, x, qn_signal_narrow(graph, half, -1, inner + 1, 1));
    return x;
}

static inline qn_val qn_signal_fft(qn_graph *graph, qn_val x, int inverse, int32_t norm) {
    qn_attr_fft at = qn_attr_fft_default();
    at.inverse = inverse;
    at.norm = norm;
    return qn_signal_op1(graph, QN_OP_fft, 0, x, &at);
}

/* ---- The functions */

/* The half spectrum of a real signal. */
static inline qn_val qn_graph_rfft(qn_graph *graph, qn_val x, int32_t norm) {
    int64_t n = qn_signal_extent(graph, x, 0);
    qn_val y = qn_signal_fft(graph, qn_signal_pad(graph, x, 2 * n), 0, norm);
    return qn_signal_narrow(graph, qn_signal_reshape(graph, y, 1, 2, 2, n), -1, 0, n / 2 + 1);
}

/* The real signal of length n whose half spectrum this is; imaginary parts of the first frequency, and of the last for even n,
 * do not matter. norm 1 undoes qn_graph_rfft with norm 0 or 1. */
static inline qn_val qn_graph_irfft(qn_graph *graph, qn_val half, int64_t n, int32_t norm) {
    qn_val full = qn_signal_reshape(graph, qn_signal_pad(graph, qn_signal_double(graph, half, n), n), 2, 1, 2 * n, 0);
    return qn_signal_narrow(graph, qn_signal_fft(graph, full, 1, norm), -1, 0, n);
}

/* |X|^2 of a half spectrum: [.., n / 2 + 1]. */
static inline qn_val qn_graph_power(qn_graph *graph, qn_val half) {
    qn_attr_reduce at = qn_attr_reduce_default();
    at.axes.rank = 1;
    at.axes.d[0] = -2;
    return qn_signal_op1(graph, QN_OP_reduce, QN_REDUCE_sum, qn_signal_op1(graph, QN_OP_sqr, 0, half, NULL), &at);
}

/* Frames [.., f, w] of a signal, every `hop` samples one, each times window [w]: f = (n - w) / hop + 1. */
static inline qn_val qn_graph_frames(qn_graph *graph, qn_val x, qn_val window, int64_t hop) {
    qn_attr_view at = qn_attr_view_default();
    qn_value_info info;
    int64_t n = qn_signal_extent(graph, x, 0), w = qn_signal_extent(graph, window, 0), step;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    if (x == QN_VAL_NONE || qn_graph_value(graph, x, &info) != QN_OK) return QN_VAL_NONE;
    x = qn_signal_op1(graph, QN_OP_cont, 0, x, NULL);
    at.shape = qn_signal_shape(graph, x);
    at.shape.rank = hop > 0 && at.shape.rank > 0 && at.shape.rank < QN_MAX_RANK ? at.shape.rank + 1 : 0; /* 0 is turned down */
    if (at.shape.rank > 0) {
        at.shape.d[at.shape.rank - 2] = n >= w ? (n - w) / hop + 1 : 0;
        at.shape.d[at.shape.rank - 1] = w;
        at.strides.rank = at.shape.rank;
        step = qn_dtype_describe(info.dtype)->bytes;
        at.strides.d[at.shape.rank - 1] = step;
        at.strides.d[at.shape.rank - 2] = step * hop;
        step *= n;
        for (int i = at.shape.rank - 3; i >= 0; step *= at.shape.d[i--]) at.strides.d[i] = step;
    }
    return qn_signal_arith(graph, QN_ARITH_mul, qn_signal_op1(graph, QN_OP_view, 0, x, &at), window);
}

/* Half spectra of frames: [.., f, 2, w / 2 + 1]. */
static inline qn_val qn_graph_stft(qn_graph *graph, qn_val x, qn_val window, int64_t hop) {
    return qn_graph_rfft(graph, qn_graph_frames(graph, x, window, hop), 0);
}

/* One-sided power spectral density by Welch's method: [.., w / 2 + 1], in squared units per unit of `rate`. */
static inline qn_val qn_graph_psd(qn_graph *graph, qn_val x, qn_val window, int64_t hop, float rate) {
    qn_attr_reduce mean = qn_attr_reduce_default(), all = qn_attr_reduce_default();
    qn_attr_scale by_rate = qn_attr_scale_default();
    qn_val power = qn_graph_power(graph, qn_graph_stft(graph, x, window, hop));
    mean.axes.rank = 1;
    mean.axes.d[0] = -2;
    by_rate.s = rate;
    power = qn_signal_op1(graph, QN_OP_reduce, QN_REDUCE_mean, power, &mean);
    power = qn_signal_double(graph, power, qn_signal_extent(graph, window, 0));
    qn_val energy = qn_signal_op1(graph, QN_OP_reduce, QN_REDUCE_sum, qn_signal_op1(graph, QN_OP_sqr, 0, window, NULL), &all);
    return qn_signal_arith(graph, QN_ARITH_div, power, qn_signal_op1(graph, QN_OP_scale, 0, energy, &by_rate));
}

/* The product of two half spectra, frequency by frequency. */
static inline qn_val qn_graph_spectra_mul(qn_graph *graph, qn_val a, qn_val b) {
    qn_val ar = qn_signal_narrow(graph, a, -2, 0, 1), ai = qn_signal_narrow(graph, a, -2, 1, 1);
    qn_val br = qn_signal_narrow(graph, b, -2, 0, 1), bi = qn_signal_narrow(graph, b, -2, 1, 1);
    qn_val re = qn_signal_arith(graph, QN_ARITH_sub, qn_signal_arith(graph, QN_ARITH_mul, ar, br),
                                qn_signal_arith(graph, QN_ARITH_mul, ai, bi));
    qn_val im = qn_signal_arith(graph, QN_ARITH_add, qn_signal_arith(graph, QN_ARITH_mul, ar, bi),
                                qn_signal_arith(graph, QN_ARITH_mul, ai, br));
    return qn_signal_join(graph, -2, re, im);
}

/* The whole convolution of two real signals along the last axis, length n + m - 1; axes in front broadcast. */
static inline qn_val qn_graph_fft_convolve(qn_graph *graph, qn_val a, qn_val b) {
    int64_t n = qn_signal_extent(graph, a, 0) + qn_signal_extent(graph, b, 0) - 1;
    qn_val fa = qn_graph_rfft(graph, qn_signal_pad(graph, a, n), 0), fb = qn_graph_rfft(graph, qn_signal_pad(graph, b, n), 0);
    return qn_graph_irfft(graph, qn_graph_spectra_mul(graph, fa, fb), n, 1);
}

#ifdef __cplusplus
}
#endif
#endif
