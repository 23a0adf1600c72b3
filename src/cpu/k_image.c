/* Images resized (upscale) and cut into the patches under a kernel (im2col). */
#include "cpu/k_copy.h"
#include "op/op_resize.h"
#include "op/op_window.h"

enum { LINE = 64 };

static size_t in_lines(int64_t bytes) { return (size_t)((bytes + LINE - 1) / LINE) * LINE; }
static int is_f32_dense(const qn_tensor *t) { return t->dtype == QN_DTYPE_F32 && qn_cpu_is_dense(t); }

/* ---- upscale, f32: rows are blended first, then columns by a table that all rows share */

enum { TAPS = 4 };

typedef struct column {
    int32_t at[TAPS];
    float weight[TAPS];
} column;

static void axes_of(const qn_call *c, qn_resize_axis *a) {
    const qn_attr_upscale *at = c->attr;
    qn_resize how = {at->mode, at->align_corners, at->antialias};
    for (int k = 0; k < QN_RESIZE_AXES; k++) a[k] = qn_resize_axis_of(how, k, qn_ne(c->src[0], k), qn_ne(c->dst[0], k));
}

static void make_columns(const qn_resize_axis *a, column *to) {
    for (int64_t o = 0; o < a->out; o++) {
        qn_taps t = qn_taps_of(a, o);
        for (int64_t j = 0; j < TAPS; j++) {
            to[o].at[j] = (int32_t)qn_tap_index(a, &t, j < t.n ? j : 0);
            to[o].weight[j] = j < t.n ? (float)qn_tap_weight(a, &t, j) : 0.0f;
        }
    }
}

/* What is left of a plane for one row of outputs. */
static const float *blend_rows(const qn_resize_axis *a, const float *plane, int64_t row, int64_t wide, float *to) {
    qn_taps t = qn_taps_of(a, row);
    if (t.n == 1) return plane + qn_tap_index(a, &t, 0) * wide;
    for (int64_t j = 0; j < t.n; j++) {
        const float *from = plane + qn_tap_index(a, &t, j) * wide;
        vf weight = vf_set1((float)qn_tap_weight(a, &t, j));
        int64_t i = 0;
        for (; i + VF_N <= wide; i += VF_N)
            vf_store(to + i, j == 0 ? weight * vf_load(from + i) : vf_fma(weight, vf_load(from + i), vf_load(to + i)));
        for (; i < wide; i++) to[i] = j == 0 ? weight[0] * from[i] : to[i] + weight[0] * from[i];
    }
    return to;
}

static void blend_columns(const column *t, int n, const float *row, int64_t wide, float *to) {
    if (n == 1)
        for (int64_t o = 0; o < wide; o++) to[o] = row[t[o].at[0]];
    else if (n == 2)
        for (int64_t o = 0; o < wide; o++) to[o] = t[o].weight[0] * row[t[o].at[0]] + t[o].weight[1] * row[t[o].at[1]];
    else
        for (int64_t o = 0; o < wide; o++)
            to[o] = (t[o].weight[0] * row[t[o].at[0]] + t[o].weight[1] * row[t[o].at[1]]) +
                    (t[o].weight[2] * row[t[o].at[2]] + t[o].weight[3] * row[t[o].at[3]]);
}

/* Phases: the table; rows of outputs. */
static void run_upscale(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_resize_axis a[QN_RESIZE_AXES];
    column *columns = c->workspace;
    axes_of(c, a);
    if (phase == 0) {
        make_columns(&a[0], columns);
        return;
    }
    const float *x = (const float *)(const void *)qn_at(c->src[0], 0);
    float *y = (float *)(void *)qn_at(c->dst[0], 0);
    char *own = (char *)c->workspace + in_lines(a[0].out * (int64_t)sizeof *columns) + in_lines(a[0].in * 4) * (size_t)part;
    int64_t rows = a[3].out * a[2].out * a[1].out, r = qn_cpu_cut(rows, s->parts[1], part);
    int n = a[0].mode == QN_RESIZE_NEAREST ? 1 : a[0].mode == QN_RESIZE_BILINEAR ? 2 : TAPS;
    for (int64_t end = qn_cpu_cut(rows, s->parts[1], part + 1); r < end; r++) {
        int64_t i2 = qn_taps_of(&a[2], r / a[1].out % a[2].out).first, i3 = qn_taps_of(&a[3], r / a[1].out / a[2].out).first;
        const float *plane = x + (i3 * a[2].in + i2) * a[1].in * a[0].in;
        const float *row = blend_rows(&a[1], plane, r % a[1].out, a[0].in, (float *)(void *)own);
        blend_columns(columns, n, row, a[0].out, y + r * a[0].out);
    }
}

int QN_K(upscale)(const qn_call *c, qn_cpu_step *s) {
    qn_resize_axis a[QN_RESIZE_AXES];
    if (!is_f32_dense(c->src[0]) || !is_f32_dense(c->dst[0]) || ((const qn_attr_upscale *)c->attr)->antialias) return 0;
    axes_of(c, a);
    if (a[0].in > INT32_MAX || qn_tensor_count(c->dst[0]) == 0) return 0;
    s->run = run_upscale;
    s->name = "upscale rows";
    s->n_phases = 2;
    s->parts[0] = 1;
    s->parts[1] = qn_cpu_parts(a[3].out * a[2].out * a[1].out, (double)a[0].out * 12, (double)a[0].out * 16);
    s->workspace = in_lines(a[0].out * (int64_t)sizeof(column)) + in_lines(a[0].in * 4) * (size_t)s->parts[1];
    return 1;
}

/* ---- im2col: a row of [channel, tap] for each position of the window */

typedef struct patches {
    qn_windows w;
    int64_t batch, channels, length; /* length: of a row */
    uint32_t from, to;
} patches;

static patches patches_of(const qn_call *c) {
    const qn_attr_im2col *at = c->attr;
    int axes = at->is_2d ? 2 : 1;
    patches p = {.from = c->src[1]->dtype, .to = c->dst[0]->dtype};
    qn_extents x = qn_extents_of(c->src[1]);
    if (at->is_2d) p.w = (qn_windows)QN_WINDOWS_2D(at);
    else p.w = (qn_windows)QN_WINDOWS_1D(at);
    qn_windows_fit(&p.w, axes, &x, c->src[0]);
    p.channels = qn_ne(c->src[1], axes);
    p.batch = qn_ne(c->src[1], axes + 1);
    p.length = p.channels * p.w.of[0].taps * p.w.of[1].taps;
    return p;
}

/* One row, elements of `size` bytes. */
QN_INLINE void one_patch(const patches *p, int64_t size, const char *image, int64_t oh, int64_t ow, char *to) {
    const qn_window *w = &p->w.of[0], *h = &p->w.of[1];
    const int64_t x = qn_window_sample(w, ow, 0), reach = (w->taps - 1) * w->dilation;
    const int inside = x >= 0 && x + reach < w->in;
    for (int64_t c = 0; c < p->channels; c++, image += h->in * w->in * size)
        for (int64_t kh = 0; kh < h->taps; kh++) {
            int64_t y = qn_window_sample(h, oh, kh);
            const char *row = image + (y * w->in + x) * size;
            if (y < 0 || y >= h->in) {
                memset(to, 0, (size_t)(w->taps * size));
                to += w->taps * size;
            } else if (inside)
                for (int64_t k = 0; k < w->taps; k++, to += size) memcpy(to, row + k * w->dilation * size, (size_t)size);
            else
                for (int64_t k = 0, at = x; k < w->taps; k++, at += w->dilation, to += size) {
                    if (at >= 0 && at < w->in) memcpy(to, row + k * w->dilation * size, (size_t)size);
                    else memset(to, 0, (size_t)size);
                }
        }
}

static void run_patches(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    patches p = patches_of(c);
    const qn_window *w = &p.w.of[0], *h = &p.w.of[1];
    int64_t rows = p.batch * h->out * w->out, r = qn_cpu_cut(rows, s->parts[0], part);
    int64_t in = p.from == QN_DTYPE_F32 ? 4 : 2, out = p.to == QN_DTYPE_F32 ? 4 : 2;
    char *own = (char *)c->workspace + in_lines(p.length * 4) * (size_t)part;
    (void)phase;
    for (int64_t end = qn_cpu_cut(rows, s->parts[0], part + 1); r < end; r++) {
        const char *image = qn_at(c->src[1], r / w->out / h->out * p.channels * h->in * w->in * in);
        char *to = qn_at(c->dst[0], r * p.length * out), *first = p.from == p.to ? to : own;
        if (in == 4) one_patch(&p, 4, image, r / w->out % h->out, r % w->out, first);
        else one_patch(&p, 2, image, r / w->out % h->out, r % w->out, first);
        if (first != to) qn_copy_row(p.from, first, p.to, to, p.length);
    }
}

int QN_K(im2col)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *x = c->src[1], *y = c->dst[0];
    if (qn_tensor_count(x) == 0 || qn_tensor_count(y) == 0 || !qn_cpu_is_dense(x) || !qn_cpu_is_dense(y)) return 0;
    if (!qn_lanes_float(x->dtype) || !qn_lanes_float(y->dtype)) return 0;
    patches p = patches_of(c);
    qn_cpu_by_rows(s, "im2col rows", run_patches, p.batch * p.w.of[1].out * p.w.of[0].out, (double)p.length * 12, 0);
    s->workspace = p.from == p.to ? 0 : in_lines(p.length * 4) * (size_t)s->parts[0];
    return 1;
}
