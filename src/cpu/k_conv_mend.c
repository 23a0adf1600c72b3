/* Sums that padding spoiled. The fast ways lay zeros around an image and multiply every weight with them, which of a weight that is NaN or
 * infinite makes NaN, where there is no sample and so nothing to add. Sums at the border are therefore looked at, and those that are NaN
 * are made again from what there is; as soon as that is NaN too, they are what they should be. */
#include "cpu/k_conv_mend.h"

#include <math.h>

/* ---- One sum, from what there is */

/* A convolution's, without its bias. */
static double conv_again(const qn_patch_shape *s, const float *x, const float *w, int64_t deep, const qn_place *at) {
    const qn_window *of = s->of;
    double sum = 0;
    for (int64_t k = 0; k < deep * s->taps && !isnan(sum); k++) {
        qn_place tap = qn_patch_tap(s, k % s->taps);
        int64_t i[QN_WINDOW_AXES], inside = 1;
        for (int a = 0; a < QN_WINDOW_AXES; a++) {
            i[a] = qn_window_sample(&of[a], at->at[a], tap.at[a]);
            inside &= i[a] >= 0 && i[a] < of[a].in;
        }
        if (inside) sum += (double)w[k] * (double)x[k / s->taps * s->samples + (i[2] * of[1].in + i[1]) * of[0].in + i[0]];
    }
    return sum;
}

/* What reaches sample `at` of a transposed convolution: channels of w are `step` floats apart. */
static double turned_again(const qn_patch_shape *s, const float *x, const float *w, int64_t step, int64_t deep,
                           const qn_place *at) {
    const qn_window *of = s->of;
    double sum = 0;
    for (int64_t k = 0; k < deep * s->taps && !isnan(sum); k++) {
        qn_place tap = qn_patch_tap(s, k % s->taps);
        int64_t o[QN_WINDOW_AXES], inside = 1;
        for (int a = 0; a < QN_WINDOW_AXES; a++) inside &= (o[a] = qn_window_output(&of[a], at->at[a], tap.at[a])) >= 0;
        if (inside)
            sum += (double)w[k / s->taps * step + k % s->taps] *
                   (double)x[k / s->taps * s->pixels + (o[2] * of[1].out + o[1]) * of[0].out + o[0]];
    }
    return sum;
}

/* The gradient of a weight: pixels of g times what the tap sees of x from them, over all images. */
static double weight_again(const qn_patch_shape *s, const float *g, int64_t g_image, const float *x, int64_t images,
                           const qn_place *tap) {
    const qn_window *of = s->of;
    qn_range r[QN_WINDOW_AXES];
    double sum = 0;
    for (int a = 0; a < QN_WINDOW_AXES; a++) r[a] = qn_window_outputs(&of[a], tap->at[a], 0, of[a].in);
    for (int64_t n = 0; n < images; n++, g += g_image, x += s->image / 4)
        for (int64_t d = r[2].first; d < r[2].last; d++)
            for (int64_t h = r[1].first; h < r[1].last && !isnan(sum); h++) {
                int64_t z = qn_window_sample(&of[2], d, tap->at[2]), y = qn_window_sample(&of[1], h, tap->at[1]);
                const float *samples = x + (z * of[1].in + y) * of[0].in, *pixels = g + (d * of[1].out + h) * of[0].out;
                for (int64_t o = r[0].first; o < r[0].last; o++)
                    sum += (double)pixels[o] * (double)samples[qn_window_sample(&of[0], o, tap->at[0])];
            }
    return sum;
}

/* ---- Where they are looked for */

static qn_patch_shape shape_of(const qn_conv *v) {
    qn_patch_shape s = {.taps = v->taps, .pixels = v->pixels, .samples = v->samples};
    memcpy(s.of, v->of, sizeof s.of);
    return s;
}

float qn_conv_again(const qn_conv *v, int64_t plane, int64_t pixel) {
    qn_patch_shape s = shape_of(v);
    qn_place at = qn_patch_pixel(&s, pixel);
    int64_t channel = plane % (v->groups * v->channels), group = plane / v->channels; /* of all images */
    return (float)conv_again(&s, v->x + group * v->deep * v->samples, v->w + channel * v->deep * v->taps, v->deep, &at);
}

void qn_conv_mend(const qn_conv *v, int64_t plane, int64_t pixel, int64_t n, float *y) {
    for (int64_t i = 0; i < n; i++)
        if (isnan(y[i])) y[i] = qn_conv_again(v, plane, pixel + i) + (v->bias ? v->bias[plane % (v->groups * v->channels)] : 0);
}

/* Columns [from, end) of a row of the result. */
typedef void (*look_fn)(const void *of, int64_t plane, int64_t row, int64_t from, int64_t end);

enum { SHORT = 128 };

/* Of a plane's rows, those and the ends of those that reach beyond `inner`; where rows are short, all of it is looked through sooner. */
static void look_around(const void *of, int64_t plane, const float *y, const int64_t *extent, const qn_range *inner,
                        look_fn look) {
    int64_t all = extent[0] * extent[1] * extent[2];
    if (extent[0] <= SHORT && !qn_conv_is_suspect(y + plane * all, all)) return;
    for (int64_t row = 0; row < extent[1] * extent[2]; row++) {
        int64_t h = row % extent[1], z = row / extent[1];
        int in = h >= inner[1].first && h < inner[1].last && z >= inner[2].first && z < inner[2].last;
        look(of, plane, row, 0, in ? inner[0].first : extent[0]);
        if (in) look(of, plane, row, inner[0].last, extent[0]);
    }
}

static void look_conv(const void *of, int64_t plane, int64_t row, int64_t from, int64_t end) {
    const qn_conv *v = of;
    int64_t pixel = row * v->of[0].out + from;
    qn_conv_mend(v, plane, pixel, end - from, v->y + plane * v->pixels + pixel);
}

void qn_conv_mend_plane(const qn_conv *v, int64_t plane) {
    int64_t extent[QN_WINDOW_AXES];
    qn_range inner[QN_WINDOW_AXES];
    int64_t weights = v->deep * v->taps, channel = plane % (v->groups * v->channels);
    if (weights <= v->pixels && !qn_conv_is_suspect(v->w + channel * weights, weights)) return;
    for (int a = 0; a < QN_WINDOW_AXES; a++) extent[a] = v->of[a].out, inner[a] = qn_conv_inner(&v->of[a]);
    look_around(v, plane, v->y, extent, inner, look_conv);
}

static void look_turned(const void *of, int64_t plane, int64_t row, int64_t from, int64_t end) {
    const qn_conv_turned *t = of;
    const qn_patch_shape *s = t->s;
    int64_t all = t->groups * t->channels, step = t->channels * s->taps, channel = plane % all;
    float *y = t->y + plane * s->samples + row * s->of[0].in;
    for (int64_t i = from; i < end; i++) {
        if (!isnan(y[i])) continue;
        qn_place at = {{i, row % s->of[1].in, row / s->of[1].in}};
        const float *x = t->x + plane / t->channels * t->deep * s->pixels;
        const float *w = t->w + channel / t->channels * t->deep * step + channel % t->channels * s->taps;
        y[i] = (float)turned_again(s, x, w, step, t->deep, &at) + (t->bias ? t->bias[channel] : 0);
    }
}

void qn_conv_turned_mend_plane(const qn_conv_turned *t, int64_t plane) {
    int64_t extent[QN_WINDOW_AXES];
    qn_range inner[QN_WINDOW_AXES];
    for (int a = 0; a < QN_WINDOW_AXES; a++) extent[a] = t->s->of[a].in, inner[a] = qn_conv_turned_inner(&t->s->of[a]);
    look_around(t, plane, t->y, extent, inner, look_turned);
}

void qn_conv_weights_mend(const qn_patch_shape *s, const float *g, int64_t g_image, const float *x, int64_t images, int64_t deep,
                          float *dw) {
    int suspect = 0;
    if (deep * s->taps < images * s->pixels) suspect = qn_conv_is_suspect(dw, deep * s->taps);
    else
        for (int64_t n = 0; n < images; n++) suspect |= qn_conv_is_suspect(g + n * g_image, s->pixels);
    for (int64_t k = 0; suspect && k < deep * s->taps; k++) {
        if (!isnan(dw[k])) continue;
        qn_place tap = qn_patch_tap(s, k % s->taps);
        dw[k] = (float)weight_again(s, g, g_image, x + k / s->taps * s->samples, images, &tap);
    }
}
