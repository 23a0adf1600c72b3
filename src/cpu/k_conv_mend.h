/* Sums that padding spoiled are made again: k_conv_mend.c says why. */
#ifndef QN_CPU_K_CONV_MEND_H
#define QN_CPU_K_CONV_MEND_H

#include "cpu/k_conv.h"
#include "cpu/k_patch.h"

static inline qn_range qn_conv_range(int64_t first, int64_t last, int64_t all) {
    first = first < 0 ? 0 : first < all ? first : all;
    return (qn_range){first, last < first ? first : last < all ? last : all};
}

/* Outputs all of whose taps see a sample. */
static inline qn_range qn_conv_inner(const qn_window *w) {
    int64_t room = w->in + w->pad - (w->taps - 1) * w->dilation;
    return qn_conv_range((w->pad + w->stride - 1) / w->stride, room <= 0 ? 0 : (room - 1) / w->stride + 1, w->out);
}

/* Samples that no tap reaches from a place where there is no pixel. */
static inline qn_range qn_conv_turned_inner(const qn_window *w) {
    return qn_conv_range((w->taps - 1) * w->dilation - w->pad, w->out * w->stride - w->pad, w->in);
}

static inline int qn_conv_is_padded(const qn_window *of) {
    for (int a = 0; a < QN_WINDOW_AXES; a++) {
        qn_range inner = qn_conv_inner(&of[a]);
        if (inner.first > 0 || inner.last < of[a].out) return 1;
    }
    return 0;
}

/* Whether one of n floats is NaN, or infinite. */
static inline int qn_conv_is_suspect(const float *x, int64_t n) {
    vf all[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    int64_t i = 0;
    for (; i + 4 * VF_N <= n; i += 4 * VF_N)
        for (int k = 0; k < 4; k++) {
            vf v = vf_load(x + i + k * VF_N);
            all[k] += v - v;
        }
    for (; i < n; i += VF_N) {
        vf v = n - i < VF_N ? vf_loadn(x + i, (int)(n - i)) : vf_load(x + i);
        all[0] += v - v;
    }
    return vf_sum((all[0] + all[1]) + (all[2] + all[3])) != 0;
}

/* A sum without its bias. Planes are channels of all groups of all images. */
#define qn_conv_again QN_K(conv_again)
float qn_conv_again(const qn_conv *v, int64_t plane, int64_t pixel);

/* n sums with their bias, and all those at the border of a plane of v->y. */
#define qn_conv_mend QN_K(conv_mend)
#define qn_conv_mend_plane QN_K(conv_mend_plane)
void qn_conv_mend(const qn_conv *v, int64_t plane, int64_t pixel, int64_t n, float *y);
void qn_conv_mend_plane(const qn_conv *v, int64_t plane);

/* A transposed convolution: windows stand on the pixels of x and look at the samples of y. */
typedef struct qn_conv_turned {
    const qn_patch_shape *s;
    int64_t groups, deep, channels; /* deep, channels: of a group, going in and coming out */
    const float *x, *w, *bias;
    float *y;
} qn_conv_turned;
#define qn_conv_turned_mend_plane QN_K(conv_turned_mend_plane)
void qn_conv_turned_mend_plane(const qn_conv_turned *t, int64_t plane);

/* The gradients of the weights of one output channel. g and x: that channel's plane and the first one it sees, of the first image. */
#define qn_conv_weights_mend QN_K(conv_weights_mend)
void qn_conv_weights_mend(const qn_patch_shape *s, const float *g, int64_t g_image, const float *x, int64_t images, int64_t deep,
                          float *dw);

#endif
