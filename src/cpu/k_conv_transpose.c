/* conv_transpose, which is also the gradient of a convolution's image, as products of matrices. f32, everything dense.
 *
 * Samples of the output whose places leave the same remainders by the strides see the same taps of the kernel, each of them at a pixel
 * of its own: for them this is a convolution of step 1 with those taps alone. So the output is cut into as many slices as there are
 * remainders, each a product that has no zeros in it, and the sums of a slice are written to where its samples lie. Images are side by
 * side in one product when they are small, so that weights are fetched once for all of them. */
#include "cpu/k_conv_mend.h"
#include "cpu/k_gemm.h"

enum { MOST_SLICES = 1024 };

/* The whole op. Windows stand on the pixels of x and look at the samples of y. */
typedef struct spread {
    qn_patch_shape s;
    int64_t images, groups, deep, channels; /* deep, channels: of a group, going in and coming out */
    int64_t slices[QN_WINDOW_AXES], n_slices;
    int one_by_one; /* each image is a product of its own, and y is its matrix */
    const float *x, *w, *bias;
    int has_bias;
    float *y;
} spread;

/* One slice: samples first, first + stride, .. along each axis, and every tap_step-th tap from `tap` on. */
typedef struct slice {
    const spread *of;
    qn_patch_shape s; /* as a convolution: windows stand on the slice's samples and look at x */
    int64_t first[QN_WINDOW_AXES], tap[QN_WINDOW_AXES], tap_step[QN_WINDOW_AXES];
    qn_gemm g;
} slice;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int is_dense_f32(const qn_tensor *t) { return t->dtype == QN_DTYPE_F32 && qn_cpu_is_dense(t) && qn_tensor_count(t) > 0; }

static int describe(const qn_call *c, spread *v) {
    const qn_attr_conv_transpose *at = c->attr;
    const qn_tensor *x = c->src[0], *w = c->src[1], *y = c->dst[0], *bias = c->n_src > 2 ? c->src[2] : NULL;
    int axes = x->rank - 2;
    int64_t taps[QN_WINDOW_AXES] = {1, 1, 1};
    if (!is_dense_f32(x) || !is_dense_f32(w) || !is_dense_f32(y) || (bias && !is_dense_f32(bias))) return 0;
    for (int k = 0; k < axes; k++) taps[k] = qn_ne(w, k);
    *v = (spread){.images = x->shape[0], .groups = at->groups, .deep = x->shape[1] / at->groups, .channels = w->shape[1]};
    v->s = qn_patch_shape_of(&(qn_window_lists){&at->stride, &at->padding, &at->padding_hi, &at->dilation}, y, x, taps, axes);
    v->n_slices = 1;
    for (int k = 0; k < QN_WINDOW_AXES; k++) {
        v->slices[k] = least(v->s.of[k].stride, v->s.of[k].in);
        if (v->slices[k] > MOST_SLICES) return 0;
        v->n_slices *= v->slices[k];
    }
    v->one_by_one = v->n_slices == 1 && (v->images == 1 || v->s.samples >= v->channels);
    v->x = (const float *)qn_at(x, 0);
    v->w = (const float *)qn_at(w, 0);
    v->bias = bias ? (const float *)qn_at(bias, 0) : NULL;
    v->has_bias = bias != NULL; /* also before there is data */
    v->y = (float *)qn_at(y, 0);
    return v->n_slices <= MOST_SLICES;
}

/* ---- The sides */

/* Where the weights of the output's first channel for channel and tap `k` of the slice lie. */
static int64_t tap_offset(const slice *l, int64_t k) {
    const spread *v = l->of;
    qn_place at = qn_patch_tap(&l->s, k % l->s.taps);
    for (int i = 0; i < QN_WINDOW_AXES; i++) at.at[i] = l->tap[i] + at.at[i] * l->tap_step[i];
    return k / l->s.taps * v->channels * v->s.taps + (at.at[2] * v->s.of[1].taps + at.at[1]) * v->s.of[0].taps + at.at[0];
}

enum { LINES = 16 };

/* A: element (channel, channel of x and tap of the slice). Some lines of every panel in turn, so that weights are read as they lie. */
static void fetch_taps(const qn_gemm_side *side, int64_t batch_offset, int64_t first, int64_t count, int64_t first_k, int depth,
                       float *panel, int step) {
    const slice *l = side->context;
    const int64_t along = l->of->s.taps;
    const float *from = (const float *)(const void *)(side->data + batch_offset) + first * along;
    for (int p = 0; p < depth; p += LINES) {
        int64_t at[LINES];
        int lines = depth - p < LINES ? depth - p : LINES;
        for (int k = 0; k < lines; k++) at[k] = tap_offset(l, first_k + p + k);
        for (int64_t i = 0; i < count; i += step) {
            int64_t some = least(step, count - i);
            float *to = panel + i * depth + (int64_t)p * step;
            for (int k = 0; k < lines; k++, to += step) {
                const float *w = from + at[k] + i * along;
                for (int64_t r = 0; r < some; r++) to[r] = w[r * along];
            }
        }
    }
}

/* B: element (sample of the slice in any image, channel of x and tap). */
static void fetch_pixels(const qn_gemm_side *side, int64_t batch_offset, int64_t first, int64_t count, int64_t first_k, int depth,
                         float *panel, int step) {
    const slice *l = side->context;
    const qn_patch_shape *s = &l->s;
    const char *images = side->data + batch_offset + first / s->pixels * s->image;
    const int64_t begin = first % s->pixels;
    const qn_place from = qn_patch_pixel(s, begin);
    for (int p = 0; p < depth; p++) {
        int64_t k = first_k + p, left = s->pixels - begin;
        qn_place tap = qn_patch_tap(s, k % s->taps), at = from;
        const char *plane = images + k / s->taps * s->channel;
        for (int64_t i = 0, run; i < count; i += run) {
            if (!left) {
                plane += s->image;
                left = s->pixels;
                at = (qn_place){{0, 0, 0}};
            }
            run = least(least(step - i % step, count - i), left);
            qn_patch_see(s, (const float *)(const void *)plane, &tap, &at, run,
                         panel + i / step * step * depth + (int64_t)p * step + i % step);
            left -= run;
        }
    }
}

/* ---- What becomes of the sums */

static void add_bias(const qn_gemm *g, int64_t batch, int64_t i, int64_t j, int n, float *x) {
    const spread *v = ((const slice *)g->context)->of;
    const float *from = v->bias + batch % v->groups * v->channels;
    for (int k = 0; k < n; k++) x[k] += from[g->transposed ? j + k : i];
}

/* Where a sample of the slice lies, counted from its channel's plane of the first image on. */
static float *spot(const slice *l, int64_t batch, int64_t image, const qn_place *p) {
    const spread *v = l->of;
    const qn_window *w = v->s.of;
    int64_t at[QN_WINDOW_AXES], plane = (image * v->groups + batch) * v->channels;
    for (int k = 0; k < QN_WINDOW_AXES; k++) at[k] = l->first[k] + p->at[k] * w[k].stride;
    return v->y + plane * v->s.samples + (at[2] * w[1].in + at[1]) * w[0].in + at[0];
}

/* `run` sums of each channel, all of one row of samples. */
static void store_run(const spread *v, float *to, const float *bias, int rows, int64_t run, const float *sums, int64_t step) {
    const int64_t every = v->s.of[0].stride;
    for (int r = 0; r < rows; r++, to += v->s.samples, sums += step) {
        float more = bias ? bias[r] : 0.0f;
        for (int64_t i = 0; i < run; i++) to[i * every] = bias ? sums[i] + more : sums[i];
    }
}

static void store(const qn_gemm *g, int64_t batch, int64_t i, int rows, int64_t j, int columns, const float *sums, int64_t step) {
    const slice *l = g->context;
    const spread *v = l->of;
    const float *bias = v->bias ? v->bias + batch * v->channels : NULL;
    int64_t number = g->transposed ? i : j, image = number / l->s.pixels, left = g->transposed ? rows : columns;
    qn_place at = qn_patch_pixel(&l->s, number % l->s.pixels);
    while (left > 0) {
        int64_t run = g->transposed ? 1 : least(l->s.of[0].out - at.at[0], left);
        float *to = spot(l, batch, image, &at);
        if (g->transposed)
            for (int k = 0; k < columns; k++) to[(j + k) * v->s.samples] = bias ? sums[k] + bias[j + k] : sums[k];
        else store_run(v, to + i * v->s.samples, bias ? bias + i : NULL, rows, run, sums, step);
        sums += g->transposed ? step : run;
        left -= run;
        qn_patch_step(&at, run, l->s.of[0].out, l->s.of[1].out);
        if (at.at[2] < l->s.of[2].out) continue;
        at = (qn_place){{0, 0, 0}};
        image++;
    }
}

/* ---- Slices */

/* The slice's samples and taps along one axis; its window may have no taps. */
static void cut_axis(slice *l, int k, int64_t first) {
    const qn_window *w = &l->of->s.of[k];
    int64_t divisor = common_divisor(w->stride, w->dilation), every = w->stride / divisor, base = first + w->pad, tap = 0;
    while (tap < w->taps && tap < every && (base - tap * w->dilation) % w->stride != 0) tap++;
    l->first[k] = first;
    l->tap[k] = tap;
    l->tap_step[k] = every;
    l->s.of[k] = (qn_window){.in = w->out,
                             .taps = tap < w->taps && tap < every ? (w->taps - 1 - tap) / every + 1 : 0,
                             .stride = 1,
                             .pad = -((base - tap * w->dilation) / w->stride),
                             .dilation = -(w->dilation / divisor),
                             .out = (w->in - first - 1) / w->stride + 1};
}

/* One tap, and a pixel for each sample of the slice: x is the matrix as it is. */
static int is_plain(const slice *l) {
    for (int k = 0; k < QN_WINDOW_AXES; k++)
        if (l->s.of[k].taps != 1 || l->s.of[k].pad != 0 || l->s.of[k].in != l->s.of[k].out) return 0;
    return l->of->one_by_one || l->of->images == 1;
}

static void set_product(slice *l) {
    const spread *v = l->of;
    qn_gemm *g = &l->g;
    *g = (qn_gemm){.m = v->channels, .k = v->deep * l->s.taps, .c = (char *)v->y, .c_dtype = QN_DTYPE_F32, .context = l};
    g->n = v->one_by_one ? l->s.pixels : l->s.pixels * v->images;
    g->a = (qn_gemm_side){.data = (const char *)v->w, .along = 4, .dtype = QN_DTYPE_F32, .fetch = fetch_taps, .context = l};
    g->b = (qn_gemm_side){.data = (const char *)v->x, .along = 4, .dtype = QN_DTYPE_F32, .fetch = fetch_pixels, .context = l};
    if (v->s.taps == 1) g->a = (qn_gemm_side){.data = g->a.data, .along = 4, .deep = v->channels * 4, .dtype = QN_DTYPE_F32};
    if (is_plain(l)) g->b = (qn_gemm_side){.data = g->b.data, .along = 4, .deep = l->s.channel, .dtype = QN_DTYPE_F32};
    g->c_row = v->s.samples * 4;
    g->c_column = 4;
    if (v->one_by_one) qn_gemm_axis(g, v->images, 0, l->s.image, v->groups * v->channels * g->c_row);
    else g->store = store;
    qn_gemm_axis(g, v->groups, v->deep * v->channels * v->s.taps * 4, v->deep * l->s.channel, v->channels * g->c_row);
    if (v->one_by_one && v->has_bias) g->finish = add_bias;
}

/* 0: no tap falls on these samples. */
static int cut_slice(const spread *v, int64_t number, slice *l) {
    qn_place first = qn_patch_place(number, v->slices[0], v->slices[1]);
    *l = (slice){.of = v, .s = {.taps = 1, .pixels = 1, .samples = 1}};
    for (int k = 0; k < QN_WINDOW_AXES; k++) {
        cut_axis(l, k, first.at[k]);
        l->s.taps *= l->s.of[k].taps;
        l->s.pixels *= l->s.of[k].out;
        l->s.samples *= l->s.of[k].in;
    }
    l->s.channel = l->s.samples * 4;
    l->s.image = v->groups * v->deep * l->s.channel;
    if (!l->s.taps) return 0;
    set_product(l);
    return qn_gemm_settle(&l->g);
}

/* ---- The step: numbers are the bytes of all shared panels, of a part's scratch, and whether there are samples that no tap falls on */

enum { SHARED, SLOT, GAPS };

static void fill(const spread *v, int64_t parts, int64_t part) {
    int64_t planes = v->images * v->groups * v->channels, plane = qn_cpu_cut(planes, parts, part);
    for (int64_t end = qn_cpu_cut(planes, parts, part + 1); plane < end; plane++) {
        float value = v->bias ? v->bias[plane % (v->groups * v->channels)] : 0.0f;
        for (int64_t i = 0; i < v->s.samples; i++) v->y[plane * v->s.samples + i] = value;
    }
}

static int is_padded(const spread *v) {
    for (int k = 0; k < QN_WINDOW_AXES; k++) {
        qn_range inner = qn_conv_turned_inner(&v->s.of[k]);
        if (inner.first > 0 || inner.last < v->s.of[k].in) return 1;
    }
    return 0;
}

static void mend(const spread *v, int64_t parts, int64_t part) {
    int64_t planes = v->images * v->groups * v->channels, end = qn_cpu_cut(planes, parts, part + 1);
    qn_conv_turned t = {&v->s, v->groups, v->deep, v->channels, v->x, v->w, v->bias, v->y};
    for (int64_t plane = qn_cpu_cut(planes, parts, part); plane < end; plane++) qn_conv_turned_mend_plane(&t, plane);
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    spread v;
    slice l;
    size_t shared = 0;
    if (!describe(c, &v)) return;
    if (phase == 2) {
        mend(&v, s->parts[2], part);
        return;
    }
    if (phase == 0 && s->n[GAPS]) fill(&v, s->parts[0], part);
    for (int64_t i = 0; i < v.n_slices; i++) {
        if (!cut_slice(&v, i, &l)) continue;
        qn_gemm_cut cut = qn_gemm_plan(&l.g);
        char *at = (char *)c->workspace + shared;
        shared += cut.shared;
        if (part >= cut.parts[phase]) continue;
        cut.shared = (size_t)s->n[SHARED] -
                     (size_t)(at - (char *)c->workspace); /* scratch begins behind what all of them share */
        cut.slot = (size_t)s->n[SLOT];
        qn_gemm_part(&l.g, &cut, at, phase, part);
    }
}

int QN_K(conv_transpose)(const qn_call *c, qn_cpu_step *s) {
    spread v;
    slice l;
    size_t shared = 0, slot = 0;
    if (!describe(c, &v)) return 0;
    s->run = run;
    s->name = v.n_slices == 1 ? "implicit gemm f32" : "implicit gemm by remainders f32";
    s->n_phases = 2;
    s->parts[0] = s->parts[1] = 1;
    s->n[GAPS] = 0;
    for (int64_t i = 0; i < v.n_slices; i++) {
        if (!cut_slice(&v, i, &l)) {
            s->n[GAPS] = 1;
            continue;
        }
        qn_gemm_cut cut = qn_gemm_plan(&l.g);
        shared += cut.shared;
        if (cut.slot > slot) slot = cut.slot;
        for (int k = 0; k < 2; k++)
            if (cut.parts[k] > s->parts[k]) s->parts[k] = cut.parts[k];
    }
    int64_t planes = v.images * v.groups * v.channels, fills = qn_cpu_parts(planes, (double)v.s.samples * 4, 0);
    if (s->n[GAPS] && fills > s->parts[0]) s->parts[0] = fills;
    if (is_padded(&v)) s->parts[s->n_phases++] = qn_cpu_parts(planes, (double)v.s.samples, 0);
    s->n[SHARED] = (int64_t)shared;
    s->n[SLOT] = (int64_t)slot;
    s->workspace = shared + slot * (size_t)s->parts[1];
    return 1;
}
