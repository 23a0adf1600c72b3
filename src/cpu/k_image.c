/* Images resized (upscale), the gradient of that (upscale_back), images cut into the patches under a kernel (im2col),
 * and patches folded back (im2col_back). */
#include "cpu/k_copy.h"
#include "cpu/k_gemm.h"
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

/* ---- upscale_back, f32: the same taps, listed by the sample they read. Rows of the gradient are added up for a row of samples, then
 * its columns. */

/* Sample i went into outputs at[j] by weight[j], start[i] <= j < start[i + 1]. */
typedef struct readers {
    int32_t *start, *at;
    float *weight;
} readers;

static int64_t taps_of(const qn_resize_axis *a) {
    return a->out * (a->mode == QN_RESIZE_NEAREST ? 1 : a->mode == QN_RESIZE_BILINEAR ? 2 : TAPS);
}
static size_t readers_bytes(const qn_resize_axis *a) { return in_lines((a->in + 1) * 4) + 2 * in_lines(taps_of(a) * 4); }

/* Those of axis k; *base moves behind them. */
static readers readers_at(const qn_resize_axis *a, char **base) {
    readers r = {(int32_t *)(void *)*base, (int32_t *)(void *)(*base + in_lines((a->in + 1) * 4)), NULL};
    r.weight = (float *)(void *)((char *)r.at + in_lines(taps_of(a) * 4));
    *base += readers_bytes(a);
    return r;
}

/* Counting sort: of one sample, outputs stay in their order. */
static void list_readers(const qn_resize_axis *a, const readers *r) {
    memset(r->start, 0, (size_t)(a->in + 1) * sizeof *r->start);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t o = 0; o < a->out; o++) {
            qn_taps t = qn_taps_of(a, o);
            for (int64_t j = 0; j < t.n; j++) {
                int64_t i = qn_tap_index(a, &t, j);
                if (pass == 0) {
                    r->start[i + 1]++;
                    continue;
                }
                r->weight[r->start[i]] = (float)qn_tap_weight(a, &t, j);
                r->at[r->start[i]++] = (int32_t)o;
            }
        }
        for (int64_t i = 0; pass == 0 && i < a->in; i++) r->start[i + 1] += r->start[i];
    }
    for (int64_t i = a->in; i > 0; i--) r->start[i] = r->start[i - 1]; /* each has moved to where the next begins */
    r->start[0] = 0;
}

static void add_row(float weight, const float *from, int64_t n, float *to) {
    for (int64_t i = 0; i < n; i += VF_N) {
        int some = n - i < VF_N ? (int)(n - i) : VF_N;
        vf_storen(to + i, vf_fma(vf_set1(weight), vf_loadn(from + i, some), vf_loadn(to + i, some)), some);
    }
}

/* The rows of g that row `r` of samples went into. */
static void add_rows(const qn_resize_axis *a, const readers *by, const float *g, int64_t r, float *sum) {
    int64_t i1 = r % a[1].in, i2 = r / a[1].in % a[2].in, i3 = r / a[1].in / a[2].in;
    memset(sum, 0, (size_t)a[0].out * sizeof *sum);
    for (int32_t p = by[3].start[i3]; p < by[3].start[i3 + 1]; p++)
        for (int32_t q = by[2].start[i2]; q < by[2].start[i2 + 1]; q++) {
            const float *plane = g + (by[3].at[p] * a[2].out + by[2].at[q]) * a[1].out * a[0].out;
            for (int32_t j = by[1].start[i1]; j < by[1].start[i1 + 1]; j++)
                add_row(by[1].weight[j], plane + by[1].at[j] * a[0].out, a[0].out, sum);
        }
}

/* Phases: the lists; rows of samples. */
static void run_upscale_back(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_attr_upscale_back *at = c->attr;
    qn_resize how = {at->mode, at->align_corners, 0};
    qn_resize_axis a[QN_RESIZE_AXES];
    readers by[QN_RESIZE_AXES];
    char *base = c->workspace;
    for (int k = 0; k < QN_RESIZE_AXES; k++) {
        a[k] = qn_resize_axis_of(how, k, qn_ne(c->dst[0], k), qn_ne(c->src[0], k));
        by[k] = readers_at(&a[k], &base);
        if (phase == 0) list_readers(&a[k], &by[k]);
    }
    if (phase == 0) return;
    const float *g = (const float *)(const void *)qn_at(c->src[0], 0);
    float *dx = (float *)(void *)qn_at(c->dst[0], 0), *sum = (float *)(void *)(base + in_lines(a[0].out * 4) * (size_t)part);
    int64_t rows = a[3].in * a[2].in * a[1].in, end = qn_cpu_cut(rows, s->parts[1], part + 1);
    for (int64_t r = qn_cpu_cut(rows, s->parts[1], part); r < end; r++) {
        add_rows(a, by, g, r, sum);
        for (int64_t i = 0; i < a[0].in; i++) {
            float v = 0;
            for (int32_t j = by[0].start[i]; j < by[0].start[i + 1]; j++) v += by[0].weight[j] * sum[by[0].at[j]];
            dx[r * a[0].in + i] = v;
        }
    }
}

int QN_K(upscale_back)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *g = c->src[0], *dx = c->dst[0];
    const qn_attr_upscale_back *at = c->attr;
    if (!is_f32_dense(g) || !is_f32_dense(dx) || at->antialias || qn_tensor_count(dx) == 0 || qn_tensor_count(g) == 0) return 0;
    qn_resize how = {at->mode, at->align_corners, 0};
    int64_t rows = 1;
    size_t bytes = 0, own = in_lines(qn_ne(g, 0) * 4);
    for (int k = 0; k < QN_RESIZE_AXES; k++) {
        if (qn_ne(g, k) > INT32_MAX / TAPS || qn_ne(dx, k) > INT32_MAX - 1) return 0;
        qn_resize_axis a = qn_resize_axis_of(how, k, qn_ne(dx, k), qn_ne(g, k));
        bytes += readers_bytes(&a);
        if (k > 0) rows *= qn_ne(dx, k);
    }
    double each = (double)qn_tensor_count(g) / (double)rows;
    s->run = run_upscale_back;
    s->name = "upscale_back rows";
    s->n_phases = 2;
    s->parts[0] = 1;
    s->parts[1] = qn_cpu_parts(rows, each * 8, each * 8);
    s->workspace = bytes + own * (size_t)s->parts[1];
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

/* ---- im2col_back: patches of some channels and a row of positions are turned, so that lanes lie along the row, and each tap is then a
 * run of neighbours that is added to a run of the image. An element is summed by one unit, over positions from first to last. */

enum { DEPTH = 256, WIDE = 64 }; /* most taps of some channels, unless one has more, and positions turned at a time */

static patches patches_back_of(const qn_call *c) {
    const qn_attr_im2col_back *at = c->attr;
    int axes = at->is_2d ? 2 : 1;
    patches p = {.from = c->src[0]->dtype, .to = c->dst[0]->dtype};
    qn_extents x = qn_extents_of(c->dst[0]);
    if (at->is_2d) p.w = (qn_windows)QN_WINDOWS_2D(at);
    else p.w = (qn_windows)QN_WINDOWS_1D(at);
    qn_windows_fit(&p.w, axes, &x, c->src[1]);
    p.channels = qn_ne(c->dst[0], axes);
    p.batch = qn_ne(c->dst[0], axes + 1);
    p.length = p.channels * p.w.of[0].taps * p.w.of[1].taps;
    return p;
}

static int64_t channels_of(const patches *p) {
    int64_t taps = p->w.of[0].taps * p->w.of[1].taps, some = taps > DEPTH ? 1 : DEPTH / taps;
    return some < p->channels ? some : p->channels;
}

/* One tap at `n` positions, the first of which falls on sample x of a row; those beyond its ends are padding. */
static void add_tap(const qn_window *w, const float *from, int n, int64_t x, float *row) {
    if (w->stride == 1 && n == VF_N && x >= 0 && x + VF_N <= w->in) {
        vf_store(row + x, vf_load(row + x) + vf_load(from));
    } else if (w->stride == 1) {
        int64_t first = x < 0 ? -x : 0, end = w->in - x < n ? w->in - x : n;
        if (first >= end) return;
        int some = (int)(end - first);
        vf_storen(row + x + first, vf_loadn(row + x + first, some) + vf_loadn(from + first, some), some);
    } else
        for (int i = 0; i < n; i++, x += w->stride)
            if (x >= 0 && x < w->in) row[x] += from[i];
}

/* Positions [first, first + count) of output row oh, whose turned taps of `some` channels lie in panels. Taps of one row that are
 * neighbours overlap: between them come all other rows, so that none waits for the one before it to be written. */
static void add_panels(const patches *p, const float *panel, int64_t some, int64_t oh, int64_t first, int64_t count,
                       float *image) {
    const qn_window *w = &p->w.of[0], *h = &p->w.of[1];
    for (int64_t done = 0; done < count; done += VF_N, panel += some * h->taps * w->taps * VF_N) {
        int n = count - done < VF_N ? (int)(count - done) : VF_N;
        for (int64_t kw = 0; kw < w->taps; kw++) {
            int64_t x = qn_window_sample(w, first + done, kw);
            for (int64_t kh = 0; kh < h->taps; kh++) {
                int64_t y = qn_window_sample(h, oh, kh);
                const float *from = panel + (kh * w->taps + kw) * VF_N;
                for (int64_t c = 0; c < some && y >= 0 && y < h->in; c++)
                    add_tap(w, from + c * h->taps * w->taps * VF_N, n, x, image + (c * h->in + y) * w->in);
            }
        }
    }
}

static void run_fold(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    patches p = patches_back_of(c);
    const qn_window *w = &p.w.of[0], *h = &p.w.of[1];
    int64_t most = channels_of(&p), blocks = (p.channels + most - 1) / most, taps = w->taps * h->taps, plane = h->in * w->in;
    int64_t size = p.from == QN_DTYPE_F32 ? 4 : 2, units = p.batch * blocks;
    float *panel = (float *)(void *)((char *)c->workspace + in_lines(most * taps * WIDE * 4) * (size_t)part);
    qn_gemm_fetch_fn turn = qn_gemm_plain_fetch(p.from, p.length * size, size, most * taps);
    (void)phase;
    for (int64_t u = qn_cpu_cut(units, s->parts[0], part), end = qn_cpu_cut(units, s->parts[0], part + 1); u < end; u++) {
        int64_t n = u / blocks, first = u % blocks * most, some = p.channels - first < most ? p.channels - first : most;
        float *image = (float *)(void *)qn_at(c->dst[0], (n * p.channels + first) * plane * 4);
        memset(image, 0, (size_t)(some * plane) * sizeof *image);
        for (int64_t r = 0; r < h->out * w->out;) {
            int64_t ow = r % w->out, count = w->out - ow < WIDE ? w->out - ow : WIDE;
            qn_gemm_side side = {.data = qn_at(c->src[0], (n * h->out * w->out + r) * p.length * size),
                                 .along = p.length * size,
                                 .deep = size,
                                 .dtype = p.from};
            turn(&side, 0, 0, count, first * taps, (int)(some * taps), panel, VF_N);
            add_panels(&p, panel, some, r / w->out, ow, count, image);
            r += count;
        }
    }
}

int QN_K(im2col_back)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *g = c->src[0], *dx = c->dst[0];
    if (qn_tensor_count(g) == 0 || !is_f32_dense(dx) || qn_tensor_count(dx) == 0) return 0;
    if (!qn_lanes_float(g->dtype) || !qn_cpu_is_dense(g)) return 0;
    patches p = patches_back_of(c);
    int64_t taps = p.w.of[0].taps * p.w.of[1].taps, most = channels_of(&p), positions = p.w.of[0].out * p.w.of[1].out;
    if (taps > 1 << 16 || p.w.of[0].stride < 1) return 0;
    qn_cpu_by_rows(s, "im2col_back by channels", run_fold, p.batch * ((p.channels + most - 1) / most),
                   8.0 * (double)(most * taps) * (double)positions, 0);
    s->workspace = in_lines(most * taps * WIDE * 4) * (size_t)s->parts[0];
    return 1;
}
