/* What kernels of products of bytes share: whose bytes they are, what a tap of a convolution sees of them, and what becomes of a sum.
 * In a convolution the rows of the product are channels and its columns are pixels. */
#ifndef QN_CPU_K_BYTES_H
#define QN_CPU_K_BYTES_H

#include <limits.h>

#include "cpu/k_patch.h"

/* Columns that are finished together at the most, and alignment of workspace. */
enum { QN_BYTES_WIDE = 32, QN_BYTES_LINE = 64 };

typedef struct qn_bytes {
    const qn_call *c;
    int64_t k; /* summed */
    int x_zero, w_zero, y_zero;
} qn_bytes;

static inline size_t qn_bytes_lines(int64_t n) { return (size_t)((n + QN_BYTES_LINE - 1) / QN_BYTES_LINE) * QN_BYTES_LINE; }
static inline int64_t qn_bytes_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int qn_bytes_number(uint32_t dtype, const char *p) {
    return dtype == QN_DTYPE_I8 ? *(const int8_t *)p : *(const uint8_t *)p;
}

/* How far a byte can lie from a zero point, which need not be a byte of its dtype. */
static inline int64_t qn_bytes_furthest(uint32_t dtype, int zero) {
    int low = dtype == QN_DTYPE_I8 ? -128 : 0, below = zero - low, above = low + 255 - zero;
    return below > above ? below : above;
}
static inline int qn_bytes_has(uint32_t dtype, int zero) { return qn_bytes_furthest(dtype, zero) <= 255; }

/* Whether these kernels take it: bytes side by side, sums that fit 32 bits. */
static inline int qn_bytes_fit(const qn_bytes *b) {
    const qn_call *c = b->c;
    int64_t each = qn_bytes_furthest(c->src[0]->dtype, b->x_zero) * qn_bytes_furthest(c->src[1]->dtype, b->w_zero);
    int dense = qn_cpu_is_dense(c->src[0]) && qn_cpu_is_dense(c->src[1]) && qn_cpu_is_dense(c->dst[0]);
    return dense && qn_tensor_count(c->dst[0]) > 0 && b->k > 0 && b->k <= INT_MAX / each;
}

/* ---- What becomes of sums */

static inline double qn_bytes_scale(const qn_bytes *b, int64_t i) {
    const qn_tensor *t = b->c->src[2];
    return qn_get4(t, 0, 0, 0, qn_tensor_count(t) == 1 ? 0 : i);
}
static inline double qn_bytes_bias(const qn_bytes *b, int64_t i) {
    const qn_tensor *t = b->c->n_src > 3 ? b->c->src[3] : NULL;
    return t ? qn_get4(t, 0, 0, 0, i) : 0;
}

/* n sums with scale and bias for each, as the reference has it, in double. */
static inline void qn_bytes_finish(const qn_bytes *b, const int32_t *sums, const double *scale, const double *bias, int64_t n,
                                   char *to) {
    const double magic = 0x1.8p52, low = b->c->dst[0]->dtype == QN_DTYPE_I8 ? -128 : 0, high = low + 255, zero = b->y_zero;
    int32_t out[QN_BYTES_WIDE];
    for (int64_t i = 0; i < n; i++) {
        double v = ((double)sums[i] + bias[i]) * scale[i];
        double near = v < -1e6 ? -1e6 : v > 1e6 ? 1e6 : v; /* beyond every byte, and near enough for rounding by a sum */
        double y = (near + magic) - magic + zero;
        y = y < low ? low : y > high ? high : y;
        out[i] = v != v ? 0 : (int32_t)y;
    }
    for (int64_t i = 0; i < n; i++) to[i] = (char)out[i];
}

/* ---- The two ops */

/* Rows of x, columns of w [K, N]. */
static inline qn_bytes qn_bytes_matmul(const qn_call *c) {
    const qn_attr_quant_matmul *at = c->attr;
    return (qn_bytes){c, qn_ne(c->src[0], 0), at->x_zero, at->w_zero, at->y_zero};
}

typedef struct qn_bytes_conv {
    qn_bytes b;
    qn_patch_shape s;
    int64_t images, groups, deep, channels; /* deep, channels: of a group */
} qn_bytes_conv;

static inline qn_bytes_conv qn_bytes_conv_of(const qn_call *c) {
    const qn_attr_quant_conv *at = c->attr;
    const qn_tensor *x = c->src[0], *w = c->src[1];
    int64_t taps[QN_WINDOW_AXES] = {1, 1, 1};
    int axes = x->rank - 2;
    qn_tensor y = *c->dst[0];
    for (int k = 0; k < axes; k++) taps[k] = qn_ne(w, k);
    qn_bytes_conv v = {.images = x->shape[0], .groups = at->groups, .deep = w->shape[1], .channels = w->shape[0] / at->groups};
    v.s = qn_patch_shape_of(&(qn_window_lists){&at->stride, &at->padding, &at->padding_hi, &at->dilation}, x, &y, taps, axes);
    v.b = (qn_bytes){c, v.deep * v.s.taps, at->x_zero, at->w_zero, at->y_zero};
    return v;
}

/* The samples a group of an image has. */
static inline const char *qn_bytes_planes(const qn_bytes_conv *v, int64_t image, int64_t group) {
    return qn_at(v->b.c->src[0], (image * v->groups + group) * v->deep * v->s.samples);
}

/* Bytes x, x + stride, .. of a row that has n of them; the zero point where there is none. */
static inline void qn_bytes_see_row(const char *row, int64_t n, int64_t x, int64_t stride, int64_t count, int none, char *to) {
    int64_t i = 0, inside = x >= n ? 0 : stride == 1 ? n - x : (n - x - 1) / stride + 1;
    if (inside > count) inside = count;
    for (; i < count && x < 0; i++, x += stride) to[i] = (char)none;
    if (stride == 1 && inside > i) memcpy(to + i, row + x, (size_t)(inside - i));
    else
        for (int64_t j = i; j < inside; j++) to[j] = row[x + (j - i) * stride];
    for (i = inside > i ? inside : i; i < count; i++) to[i] = (char)none;
}

/* Taps and channels in the order of the summed axis, from those of a group's first sample on. */
typedef struct qn_bytes_tap {
    const char *plane;
    qn_place at;
} qn_bytes_tap;

static inline void qn_bytes_next(const qn_bytes_conv *v, qn_bytes_tap *t) {
    qn_patch_step(&t->at, 1, v->s.of[0].taps, v->s.of[1].taps);
    if (t->at.at[2] < v->s.of[2].taps) return;
    t->at.at[2] = 0;
    t->plane += v->s.samples;
}

/* What a tap sees from `count` pixels from `p` on. */
static inline void qn_bytes_see(const qn_bytes_conv *v, const qn_bytes_tap *t, qn_place p, int64_t count, char *to) {
    const qn_window *w = &v->s.of[0], *h = &v->s.of[1], *d = &v->s.of[2];
    while (count > 0) {
        int64_t run = w->out - p.at[0] < count ? w->out - p.at[0] : count;
        int64_t y = qn_window_sample(h, p.at[1], t->at.at[1]), z = qn_window_sample(d, p.at[2], t->at.at[2]);
        if (y < 0 || y >= h->in || z < 0 || z >= d->in) memset(to, v->b.x_zero, (size_t)run);
        else
            qn_bytes_see_row(t->plane + (z * h->in + y) * w->in, w->in, qn_window_sample(w, p.at[0], t->at.at[0]), w->stride, run,
                             v->b.x_zero, to);
        qn_patch_step(&p, run, w->out, h->out);
        to += run;
        count -= run;
    }
}

#endif
