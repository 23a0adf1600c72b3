/* conv, conv_act, conv_transpose and conv_back_w as products whose one side is worked out on the way: patches of an image are never
 * written down whole. f32, images whose last axes are dense. Shapes that other ways of convolving are faster for go there. */
#include "cpu/k_conv.h"
#include "cpu/k_gemm.h"

/* One op's geometry. Axes are counted from the last; those an image does not have are of extent 1. */
typedef struct shape {
    qn_window of[QN_WINDOW_AXES];
    int64_t taps, pixels, samples; /* of a kernel, of the side that windows stand on, of the side they look at */
    int64_t channel;               /* bytes from a channel of the image to the next */
    int64_t image;                 /* and from image to image, for the product that sums over them */
} shape;

static shape shape_of(const qn_window_lists *l, const qn_tensor *in, const qn_tensor *out, const int64_t *taps, int axes) {
    shape s = {.taps = 1, .pixels = 1, .samples = 1};
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

typedef struct place {
    int64_t at[QN_WINDOW_AXES];
} place;

static place place_among(int64_t number, int64_t a, int64_t b) { return (place){{number % a, number / a % b, number / (a * b)}}; }
static place pixel_at(const shape *s, int64_t n) { return place_among(n, s->of[0].out, s->of[1].out); }
static place tap_at(const shape *s, int64_t n) { return place_among(n, s->of[0].taps, s->of[1].taps); }
static place sample_at(const shape *s, int64_t n) { return place_among(n, s->of[0].in, s->of[1].in); }

/* The place so many further on in a row, at most at its end: then the next row begins. */
static inline void step_on(place *p, int64_t run, int64_t a, int64_t b) {
    p->at[0] += run;
    if (p->at[0] < a) return;
    p->at[0] = 0;
    if (++p->at[1] < b) return;
    p->at[1] = 0;
    p->at[2]++;
}

/* ---- Patches: what a tap of a channel sees from each pixel */

static inline void copy_floats(const float *from, int64_t n, float *to) {
    int64_t i = 0;
    for (; i + VF_N <= n; i += VF_N) vf_store(to + i, vf_load(from + i));
    if (i < n) vf_storen(to + i, vf_loadn(from + i, (int)(n - i)), (int)(n - i));
}

static inline void see_nothing(int64_t count, float *to) {
    for (int64_t i = 0; i < count; i++) to[i] = 0;
}

/* Elements x, x + stride, .. of a row that has n of them, 0 where there is none. */
static inline void see_row(const float *row, int64_t n, int64_t x, int64_t stride, int64_t count, float *to) {
    int64_t i = 0;
    for (; i < count && x < 0; i++, x += stride) to[i] = 0;
    if (stride == 1) {
        int64_t whole = n - x < count - i ? n - x : count - i;
        if (whole > 0) copy_floats(row + x, whole, to + i);
        if (whole > 0) i += whole;
    } else {
        for (; i < count && x < n; i++, x += stride) to[i] = row[x];
    }
    see_nothing(count - i, to + i);
}

/* What a tap sees from `count` pixels from `p` on, of one channel plane: one row of pixels at a time. p goes along. */
static void see_pixels(const shape *s, const float *plane, const place *tap, place *p, int64_t count, float *to) {
    const qn_window *w = &s->of[0], *h = &s->of[1], *d = &s->of[2];
    while (count > 0) {
        int64_t run = w->out - p->at[0] < count ? w->out - p->at[0] : count;
        int64_t y = qn_window_sample(h, p->at[1], tap->at[1]), z = qn_window_sample(d, p->at[2], tap->at[2]);
        if (y < 0 || y >= h->in || z < 0 || z >= d->in) see_nothing(run, to);
        else see_row(plane + (z * h->in + y) * w->in, w->in, qn_window_sample(w, p->at[0], tap->at[0]), w->stride, run, to);
        step_on(p, run, w->out, h->out);
        to += run;
        count -= run;
    }
}

/* Element i is that of the row at (at + i) / stride, 0 where that is no whole number or none of the row. */
static inline void spread_row(const float *row, const qn_window *w, int64_t at, int64_t count, float *to) {
    int64_t i = at < 0 ? -at : (w->stride - at % w->stride) % w->stride;
    see_nothing(count, to);
    for (int64_t x = (at + i) / w->stride; i < count && x < w->out; i += w->stride, x++) to[i] = row[x];
}

/* The other way: for `count` samples from `p` on, the pixel whose tap falls there, if any. */
static void see_samples(const shape *s, const float *plane, const place *tap, place *p, int64_t count, float *to) {
    const qn_window *w = &s->of[0], *h = &s->of[1], *d = &s->of[2];
    while (count > 0) {
        int64_t run = w->in - p->at[0] < count ? w->in - p->at[0] : count;
        int64_t y = qn_window_output(h, p->at[1], tap->at[1]), z = qn_window_output(d, p->at[2], tap->at[2]);
        const float *row = plane + (z * h->out + y) * w->out;
        if (y < 0 || z < 0) see_nothing(run, to);
        else if (w->stride == 1) see_row(row, w->out, p->at[0] + w->pad - tap->at[0] * w->dilation, 1, run, to);
        else spread_row(row, w, p->at[0] + w->pad - tap->at[0] * w->dilation, run, to);
        step_on(p, run, w->in, h->in);
        to += run;
        count -= run;
    }
}

/* B of conv: element (pixel, channel and tap). */
static void fetch_patches(const qn_gemm_side *side, int64_t batch_offset, int64_t first, int64_t count, int64_t first_k,
                          int depth, float *panel, int step) {
    const shape *s = side->context;
    const place from = pixel_at(s, first);
    for (int p = 0; p < depth; p++) {
        int64_t k = first_k + p;
        place tap = tap_at(s, k % s->taps), at = from;
        const float *plane = (const float *)(const void *)(side->data + batch_offset + k / s->taps * s->channel);
        for (int64_t i = 0; i < count; i += step)
            see_pixels(s, plane, &tap, &at, count - i < step ? count - i : step, panel + i * depth + (int64_t)p * step);
    }
}

/* B of conv_transpose: element (sample, channel and tap). */
static void fetch_spread(const qn_gemm_side *side, int64_t batch_offset, int64_t first, int64_t count, int64_t first_k, int depth,
                         float *panel, int step) {
    const shape *s = side->context;
    const place from = sample_at(s, first);
    for (int p = 0; p < depth; p++) {
        int64_t k = first_k + p;
        place tap = tap_at(s, k % s->taps), at = from;
        const float *plane = (const float *)(const void *)(side->data + batch_offset + k / s->taps * s->channel);
        for (int64_t i = 0; i < count; i += step)
            see_samples(s, plane, &tap, &at, count - i < step ? count - i : step, panel + i * depth + (int64_t)p * step);
    }
}

/* ---- Sides whose summed axis lies side by side in runs */

/* `count` rows, at most a panel of them, of `depth` floats each, into lines of a panel. */
static void turn_rows(const char *rows, int64_t along, int64_t count, int64_t depth, float *panel, int step) {
    qn_gemm_side run = {.data = rows, .along = along, .deep = 4, .dtype = QN_DTYPE_F32};
    qn_gemm_plain_fetch(QN_DTYPE_F32, along, 4, depth)(&run, 0, 0, count, 0, (int)depth, panel, step);
}

enum { ROWS = 64, RUN = 128 }; /* of patches written down at a time, to be turned */

/* What `count` channels and taps from `first` on see from `depth` pixels of all images from `first_k` on, a row for each. */
static void see_across(const shape *s, const char *images, int64_t first, int64_t count, int64_t first_k, int64_t depth,
                       float rows[ROWS][RUN]) {
    int64_t image = first_k / s->pixels, pixel = first_k % s->pixels;
    const place from = pixel_at(s, pixel);
    for (int64_t i = 0; i < count; i++) {
        const char *plane = images + (first + i) / s->taps * s->channel + image * s->image;
        place tap = tap_at(s, (first + i) % s->taps), at = from;
        int64_t left = s->pixels - pixel;
        for (int64_t done = 0; done < depth; plane += s->image, left = s->pixels, at = (place){{0, 0, 0}}) {
            int64_t run = left < depth - done ? left : depth - done;
            see_pixels(s, (const float *)(const void *)plane, &tap, &at, run, rows[i] + done);
            done += run;
        }
    }
}

/* B of conv_back_w: element (channel and tap, pixel of an image); the same numbers as conv's with the axes exchanged. */
static void fetch_patches_across(const qn_gemm_side *side, int64_t batch_offset, int64_t first, int64_t count, int64_t first_k,
                                 int depth, float *panel, int step) {
    float rows[ROWS][RUN];
    for (int64_t i = 0; i < count; i += step, panel += (int64_t)step * depth) {
        int64_t some = count - i < step ? count - i : step;
        for (int64_t done = 0; done < depth; done += RUN) {
            int64_t run = depth - done < RUN ? depth - done : RUN;
            see_across(side->context, side->data + batch_offset, first + i, some, first_k + done, run, rows);
            turn_rows((const char *)rows, sizeof *rows, some, run, panel + done * step, step);
        }
    }
}

/* A summed axis that is two, of which the inner one lies side by side. */
typedef struct two_axes {
    int64_t inner, outer_step; /* extent; bytes */
} two_axes;

static void fetch_two(const qn_gemm_side *side, int64_t batch_offset, int64_t first, int64_t count, int64_t first_k, int depth,
                      float *panel, int step) {
    const two_axes *t = side->context;
    for (int64_t i = 0; i < count; i += step, panel += (int64_t)step * depth) {
        const char *rows = side->data + batch_offset + (first + i) * side->along;
        for (int64_t done = 0, run; done < depth; done += run) {
            int64_t k = first_k + done, inside = k % t->inner;
            run = t->inner - inside < depth - done ? t->inner - inside : depth - done;
            turn_rows(rows + k / t->inner * t->outer_step + inside * 4, side->along, count - i < step ? count - i : step, run,
                      panel + done * step, step);
        }
    }
}

/* ---- What follows the sums: for each channel, which is a row of the product, or a column when the sides were exchanged */

typedef struct bias {
    const float *data;
    int64_t groups, channels; /* of a group */
} bias;

static void add_bias(const qn_gemm *g, int64_t batch, int64_t i, int64_t j, int n, float *x) {
    const bias *b = g->finish_context;
    const float *from = b->data + batch % b->groups * b->channels;
    if (g->transposed)
        for (int k = 0; k < n; k++) x[k] += from[j + k];
    else
        for (int k = 0; k < n; k++) x[k] += from[i];
}

/* The sums of conv: bias, activation, residual. */
static void finish_conv(const qn_gemm *g, int64_t batch, int64_t i, int64_t j, int n, float *x) {
    const qn_conv *v = g->finish_context;
    int64_t channel = batch * v->channels + (g->transposed ? j : i), pixel = g->transposed ? i : j;
    int64_t channels = v->groups * v->channels, at = channel * v->pixels + pixel;
    for (int k = 0; v->bias && k < n; k++) x[k] += v->bias[(channel + (g->transposed ? k : 0)) % channels];
    if (v->act) v->act((char *)x, NULL, (const char *)x, n);
    for (int k = 0; v->residual && k < n; k++) x[k] += v->residual[at + k * (g->transposed ? v->pixels : 1)];
}

/* ---- The three products */

typedef struct product {
    qn_gemm g;
    shape s;
    two_axes two;
    bias b;
    qn_conv v;
} product;

typedef int (*describe_fn)(const qn_call *c, product *p);

static int is_dense_f32(const qn_tensor *t) { return t->dtype == QN_DTYPE_F32 && qn_cpu_is_dense(t); }

static int all_dense(const qn_call *c) {
    for (int i = 0; i < c->n_src; i++)
        if (c->src[i] && !is_dense_f32(c->src[i])) return 0;
    return is_dense_f32(c->dst[0]) && qn_tensor_count(c->dst[0]) > 0 && qn_tensor_count(c->src[0]) > 0 &&
           qn_tensor_count(c->src[1]) > 0;
}

static void take_bias(const qn_call *c, product *p, int64_t groups, int64_t channels) {
    if (c->n_src < 3 || !c->src[2]) return;
    p->b = (bias){(const float *)(const void *)qn_at(c->src[2], 0), groups, channels};
    p->g.finish = add_bias;
    p->g.finish_context = &p->b;
}

/* The first attributes of conv_act are those of conv. */
int qn_conv_describe(const qn_call *c, qn_conv *v) {
    const qn_attr_conv *at = c->attr;
    const qn_tensor *x = c->src[0], *w = c->src[1], *y = c->dst[0], *bias_of = c->n_src > 2 ? c->src[2] : NULL;
    const qn_tensor *residual = c->op == QN_OP_conv_act && c->n_src > 3 ? c->src[3] : NULL;
    int32_t act = c->op == QN_OP_conv_act ? ((const qn_attr_conv_act *)c->attr)->act : -1;
    int axes = x->rank - 2;
    int64_t taps[QN_WINDOW_AXES] = {1, 1, 1};
    if (!all_dense(c) || (act >= 0 && !qn_unary_row(act))) return 0;
    for (int k = 0; k < axes; k++) taps[k] = qn_ne(w, k);
    shape s = shape_of(&(qn_window_lists){&at->stride, &at->padding, &at->padding_hi, &at->dilation}, x, y, taps, axes);
    *v = (qn_conv){.taps = s.taps, .pixels = s.pixels, .samples = s.samples, .images = x->shape[0], .groups = at->groups};
    memcpy(v->of, s.of, sizeof v->of);
    v->deep = w->shape[1];
    v->channels = w->shape[0] / at->groups;
    v->x = (const float *)qn_at(x, 0);
    v->w = (const float *)qn_at(w, 0);
    v->bias = bias_of ? (const float *)qn_at(bias_of, 0) : NULL;
    v->residual = residual ? (const float *)qn_at(residual, 0) : NULL;
    v->y = (float *)qn_at(y, 0);
    v->act = act >= 0 ? qn_unary_row(act) : NULL;
    return 1;
}

static int describe_conv(const qn_call *c, product *p) {
    memset(p, 0, sizeof *p);
    if (!qn_conv_describe(c, &p->v)) return 0;
    const qn_conv *v = &p->v;
    p->s = (shape){.taps = v->taps, .pixels = v->pixels, .samples = v->samples, .channel = v->samples * 4};
    memcpy(p->s.of, v->of, sizeof v->of);
    qn_gemm *g = &p->g;
    g->m = v->channels;
    g->n = v->pixels;
    g->k = v->deep * v->taps;
    g->a = (qn_gemm_side){.data = (const char *)v->w, .along = g->k * 4, .deep = 4, .dtype = QN_DTYPE_F32};
    g->b = (qn_gemm_side){
        .data = (const char *)v->x, .along = 4, .deep = 4, .dtype = QN_DTYPE_F32, .fetch = fetch_patches, .context = &p->s};
    if (qn_conv_is_plain(v)) {
        g->b.fetch = NULL; /* the image is the matrix */
        g->b.deep = p->s.channel;
    }
    g->c = (char *)v->y;
    g->c_row = v->pixels * 4;
    g->c_column = 4;
    g->c_dtype = QN_DTYPE_F32;
    qn_gemm_axis(g, v->images, 0, v->groups * v->deep * p->s.channel, v->groups * v->channels * g->c_row);
    qn_gemm_axis(g, v->groups, g->m * g->k * 4, v->deep * p->s.channel, g->m * g->c_row);
    if (v->bias || v->act || v->residual) {
        g->finish = finish_conv;
        g->finish_context = v;
    }
    return qn_gemm_settle(g);
}

/* w is [C, Co / groups, kernel]; the windows stand on x and look at y. */
static int describe_transpose(const qn_call *c, product *p) {
    const qn_attr_conv_transpose *at = c->attr;
    const qn_tensor *x = c->src[0], *w = c->src[1], *y = c->dst[0];
    int axes = x->rank - 2;
    int64_t taps[QN_WINDOW_AXES] = {1, 1, 1}, deep = x->shape[1] / at->groups;
    for (int k = 0; k < axes; k++) taps[k] = qn_ne(w, k);
    memset(p, 0, sizeof *p);
    p->s = shape_of(&(qn_window_lists){&at->stride, &at->padding, &at->padding_hi, &at->dilation}, y, x, taps, axes);
    p->s.channel = p->s.pixels * 4;
    qn_gemm *g = &p->g;
    g->m = w->shape[1];
    g->n = p->s.samples;
    g->k = deep * p->s.taps;
    p->two = (two_axes){p->s.taps, w->shape[1] * p->s.taps * 4};
    g->a = (qn_gemm_side){
        .data = qn_at(w, 0), .along = p->s.taps * 4, .dtype = QN_DTYPE_F32, .fetch = fetch_two, .context = &p->two};
    g->b = (qn_gemm_side){.data = qn_at(x, 0), .along = 4, .dtype = QN_DTYPE_F32, .fetch = fetch_spread, .context = &p->s};
    g->c = qn_at(y, 0);
    g->c_row = p->s.samples * 4;
    g->c_column = 4;
    g->c_dtype = QN_DTYPE_F32;
    qn_gemm_axis(g, x->shape[0], 0, x->shape[1] * p->s.channel, y->shape[1] * g->c_row);
    qn_gemm_axis(g, at->groups, deep * p->two.outer_step, deep * p->s.channel, g->m * g->c_row);
    take_bias(c, p, at->groups, g->m);
    return qn_gemm_settle(g);
}

/* Sums over all pixels of all images: sources g [N, Co, ..] and x [N, C, ..]. */
static int describe_back_w(const qn_call *c, product *p) {
    const qn_attr_conv_back_w *at = c->attr;
    const qn_tensor *gy = c->src[0], *x = c->src[1], *w = c->dst[0];
    int axes = x->rank - 2;
    int64_t taps[QN_WINDOW_AXES] = {1, 1, 1}, deep = x->shape[1] / at->groups;
    for (int k = 0; k < axes; k++) taps[k] = qn_ne(w, k);
    memset(p, 0, sizeof *p);
    p->s = shape_of(&(qn_window_lists){&at->stride, &at->padding, &at->padding_hi, &at->dilation}, x, gy, taps, axes);
    p->s.channel = p->s.samples * 4;
    p->s.image = x->shape[1] * p->s.channel;
    qn_gemm *g = &p->g;
    g->m = gy->shape[1] / at->groups;
    g->n = deep * p->s.taps;
    g->k = gy->shape[0] * p->s.pixels;
    p->two = (two_axes){p->s.pixels, gy->shape[1] * p->s.pixels * 4};
    g->a = (qn_gemm_side){
        .data = qn_at(gy, 0), .along = p->s.pixels * 4, .dtype = QN_DTYPE_F32, .fetch = fetch_two, .context = &p->two};
    g->b = (qn_gemm_side){
        .data = qn_at(x, 0), .along = 4, .dtype = QN_DTYPE_F32, .fetch = fetch_patches_across, .context = &p->s};
    g->c = qn_at(w, 0);
    g->c_row = g->n * 4;
    g->c_column = 4;
    g->c_dtype = QN_DTYPE_F32;
    qn_gemm_axis(g, at->groups, g->m * g->a.along, deep * p->s.channel, g->m * g->c_row);
    return qn_gemm_settle(g);
}

static int prepare(const qn_call *c, qn_cpu_step *s, describe_fn describe, qn_cpu_run_fn run) {
    product p;
    if (!all_dense(c) || !describe(c, &p)) return 0;
    qn_gemm_cut cut = qn_gemm_plan(&p.g);
    qn_gemm_step(s, &cut, run);
    s->name = "implicit gemm f32";
    return 1;
}

static void run(const qn_call *c, int phase, int64_t part, describe_fn describe) {
    product p;
    if (!describe(c, &p)) return;
    qn_gemm_cut cut = qn_gemm_plan(&p.g);
    qn_gemm_part(&p.g, &cut, c->workspace, phase, part);
}

#define KERNEL(op, describe)                                                                \
    static void run_##op(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) { \
        (void)s;                                                                            \
        run(c, phase, part, describe);                                                      \
    }                                                                                       \
    int QN_K(op)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, describe, run_##op); }
KERNEL(conv_transpose, describe_transpose)
KERNEL(conv_back_w, describe_back_w)

static void run_conv(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)s;
    run(c, phase, part, describe_conv);
}

static int prepare_conv(const qn_call *c, qn_cpu_step *s) {
    qn_conv v;
    if (!qn_conv_describe(c, &v)) return 0;
    return qn_conv_depth(&v, s) || qn_conv_winograd(&v, s) || qn_conv_direct(&v, s) || prepare(c, s, describe_conv, run_conv);
}

int QN_K(conv)(const qn_call *c, qn_cpu_step *s) { return prepare_conv(c, s); }
int QN_K(conv_act)(const qn_call *c, qn_cpu_step *s) { return prepare_conv(c, s); }
