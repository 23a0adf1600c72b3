/* What a tap of a kernel sees of an image from each pixel of the other side: patches as the products of convolutions fetch them. */
#ifndef QN_CPU_K_PATCH_H
#define QN_CPU_K_PATCH_H

#include "cpu/kernel.h"
#include "op/op_convn.h"

/* One op's geometry. Axes are counted from the last; those an image does not have are of extent 1. */
typedef struct qn_patch_shape {
    qn_window of[QN_WINDOW_AXES];
    int64_t taps, pixels, samples; /* of a kernel, of the side that windows stand on, of the side they look at */
    int64_t channel;               /* bytes from a channel of the image to the next */
    int64_t image;                 /* and from image to image, for the product that sums over them */
} qn_patch_shape;

static inline qn_patch_shape qn_patch_shape_of(const qn_window_lists *l, const qn_tensor *in, const qn_tensor *out,
                                               const int64_t *taps, int axes) {
    qn_patch_shape s = {.taps = 1, .pixels = 1, .samples = 1};
    for (int k = 0; k < QN_WINDOW_AXES; k++) {
        s.of[k] = (qn_window){1, 1, 1, 0, 1, 1};
        if (k < axes) {
            s.of[k] = qn_window_along(l, k);
            s.of[k].in = qn_ne(in, k);
            s.of[k].out = qn_ne(out, k);
            s.of[k].taps = taps[k];
        }
        s.taps *= s.of[k].taps;
        s.pixels *= s.of[k].out;
        s.samples *= s.of[k].in;
    }
    return s;
}

typedef struct qn_place {
    int64_t at[QN_WINDOW_AXES];
} qn_place;

static inline qn_place qn_patch_place(int64_t number, int64_t a, int64_t b) {
    return (qn_place){{number % a, number / a % b, number / (a * b)}};
}
static inline qn_place qn_patch_pixel(const qn_patch_shape *s, int64_t n) {
    return qn_patch_place(n, s->of[0].out, s->of[1].out);
}
static inline qn_place qn_patch_tap(const qn_patch_shape *s, int64_t n) {
    return qn_patch_place(n, s->of[0].taps, s->of[1].taps);
}

/* The place so many further on in a row, at most at its end: then the next row begins. */
static inline void qn_patch_step(qn_place *p, int64_t run, int64_t a, int64_t b) {
    p->at[0] += run;
    if (p->at[0] < a) return;
    p->at[0] = 0;
    if (++p->at[1] < b) return;
    p->at[1] = 0;
    p->at[2]++;
}

/* ---- Patches: what a tap of a channel sees from each pixel */

static inline void qn_patch_copy(const float *from, int64_t n, float *to) {
    int64_t i = 0;
    for (; i + VF_N <= n; i += VF_N) vf_store(to + i, vf_load(from + i));
    if (i < n) vf_storen(to + i, vf_loadn(from + i, (int)(n - i)), (int)(n - i));
}

static inline void qn_patch_nothing(int64_t count, float *to) {
    for (int64_t i = 0; i < count; i++) to[i] = 0;
}

/* Elements x, x + stride, .. of a row that has n of them, 0 where there is none. */
static inline void qn_patch_row(const float *row, int64_t n, int64_t x, int64_t stride, int64_t count, float *to) {
    int64_t i = 0;
    for (; i < count && x < 0; i++, x += stride) to[i] = 0;
    if (stride == 1) {
        int64_t whole = n - x < count - i ? n - x : count - i;
        if (whole > 0) qn_patch_copy(row + x, whole, to + i);
        if (whole > 0) i += whole;
    } else {
        for (; i < count && x < n; i++, x += stride) to[i] = row[x];
    }
    qn_patch_nothing(count - i, to + i);
}

/* What a tap sees from `count` pixels from `p` on, of one channel plane: one row of pixels at a time. p goes along. */
static inline void qn_patch_see(const qn_patch_shape *s, const float *plane, const qn_place *tap, qn_place *p, int64_t count,
                                float *to) {
    const qn_window *w = &s->of[0], *h = &s->of[1], *d = &s->of[2];
    while (count > 0) {
        int64_t run = w->out - p->at[0] < count ? w->out - p->at[0] : count;
        int64_t y = qn_window_sample(h, p->at[1], tap->at[1]), z = qn_window_sample(d, p->at[2], tap->at[2]);
        if (y < 0 || y >= h->in || z < 0 || z >= d->in) qn_patch_nothing(run, to);
        else qn_patch_row(plane + (z * h->in + y) * w->in, w->in, qn_window_sample(w, p->at[0], tap->at[0]), w->stride, run, to);
        qn_patch_step(p, run, w->out, h->out);
        to += run;
        count -= run;
    }
}

#endif
