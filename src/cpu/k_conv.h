/* What the ways to convolve share: one call's geometry in plain numbers, what follows the sums, and the tile that convolutions with
 * channels along the lanes are made of. f32 alone, everything dense. */
#ifndef QN_CPU_K_CONV_H
#define QN_CPU_K_CONV_H

#include "cpu/kernel.h"
#include "op/op_convn.h"

/* x = act(x) over n floats, g is not looked at: as unary computes it. NULL for those that unary leaves to the reference. */
typedef void (*qn_conv_act_fn)(char *y, const char *g, const char *x, int64_t n);
#define qn_unary_row QN_K(unary_row)
qn_conv_act_fn qn_unary_row(int32_t act);

/* conv or conv_act. Axes are counted from the last; those an image does not have are of extent 1. */
typedef struct qn_conv {
    qn_window of[QN_WINDOW_AXES];
    int64_t taps, pixels, samples;          /* of a kernel, of an output plane, of an input plane */
    int64_t images, groups, deep, channels; /* deep, channels: of a group, going in and coming out */
    const float *x, *w, *bias, *residual;
    int ends;   /* there is something to do to finished sums; a pointer would not say so before there is data */
    int padded; /* some pixels see beyond the image */
    float *y;
    qn_conv_act_fn act;
} qn_conv;

/* 0: not one of these kernels. */
#define qn_conv_describe QN_K(conv_describe)
int qn_conv_describe(const qn_call *c, qn_conv *v);

/* One tap for each sample: the product of a matrix of weights and the image as it is. */
static inline int qn_conv_is_plain(const qn_conv *v) {
    for (int k = 0; k < QN_WINDOW_AXES; k++)
        if (v->of[k].stride != 1 || v->of[k].pad != 0) return 0;
    return v->taps == 1 && v->pixels == v->samples;
}

/* Activation and residual over n finished sums of y from element `at` on. The bias is in them. */
static inline void qn_conv_finish(const qn_conv *v, int64_t at, int64_t n) {
    float *y = v->y + at;
    if (v->act) v->act((char *)y, NULL, (const char *)y, n);
    for (int64_t i = 0; v->residual && i < n; i++) y[i] += v->residual[at + i];
}

/* ---- Tiles: some pixels by some vectors of channels */

#if QN_REGISTERS == 32
enum { QN_CONV_PIXELS = 14 };
#else
enum { QN_CONV_PIXELS = 6 };
#endif
enum { QN_CONV_MOST = QN_CONV_PIXELS * 2 * VF_N };

/* Where the numbers of one pixel lie, three loops deep, and how far the next pixel's are; in floats. */
typedef struct qn_conv_walk {
    int64_t pitch, outer, outer_step, middle, middle_step, inner, inner_step;
} qn_conv_walk;

/* Sums for `pixels` pixels: weights come as lines of `vectors` vectors, one for each number of a pixel. Row p of the result begins at
 * to + p * step. vectors is 2, and pixels at most QN_CONV_PIXELS, or 4 and half as many. */
#define qn_conv_tile QN_K(conv_tile)
void qn_conv_tile(int pixels, int vectors, const qn_conv_walk *walk, const float *x, const float *w, float *to, int64_t step);

/* Sums of a tile, `step` floats from pixel to pixel, become rows of pixels in planes of y: channels from `channel` of all groups on,
 * as many as are left of `lanes`, pixels from element `at` of the plane on; then what follows. border: some pixel may see padding. */
#define qn_conv_store QN_K(conv_store)
void qn_conv_store(const qn_conv *v, int64_t image, int64_t channel, int64_t lanes, int64_t at, int pixels, const float *sums,
                   int64_t step, int border);

/* ---- The ways: 0 when one is not for this shape */

#define qn_conv_direct QN_K(conv_direct)
#define qn_conv_winograd QN_K(conv_winograd)
int qn_conv_direct(const qn_conv *v, qn_cpu_step *s);
int qn_conv_winograd(const qn_conv *v, qn_cpu_step *s);
#define qn_conv_depth QN_K(conv_depth)
int qn_conv_depth(const qn_conv *v, qn_cpu_step *s);

#endif
