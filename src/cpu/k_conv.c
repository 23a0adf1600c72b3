/* conv, conv_act and conv_back_w as products whose one side is worked out on the way: patches of an image are never
 * written down whole. f32, images whose last axes are dense. Shapes that other ways of convolving are faster for go there. */
#include <math.h>

#include "cpu/k_conv_mend.h"
#include "cpu/k_gemm.h"
#include "cpu/k_patch.h"

/* B of conv: element (pixel, channel and tap). */
static void fetch_patches(const qn_gemm_side *side, int64_t batch_offset, int64_t first, int64_t count, int64_t first_k,
                          int depth, float *panel, int step) {
    const qn_patch_shape *s = side->context;
    const qn_place from = qn_patch_pixel(s, first);
    for (int p = 0; p < depth; p++) {
        int64_t k = first_k + p;
        qn_place tap = qn_patch_tap(s, k % s->taps), at = from;
        const float *plane = (const float *)(const void *)(side->data + batch_offset + k / s->taps * s->channel);
        for (int64_t i = 0; i < count; i += step)
            qn_patch_see(s, plane, &tap, &at, count - i < step ? count - i : step, panel + i * depth + (int64_t)p * step);
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
static void see_across(const qn_patch_shape *s, const char *images, int64_t first, int64_t count, int64_t first_k, int64_t depth,
                       float rows[ROWS][RUN]) {
    int64_t image = first_k / s->pixels, pixel = first_k % s->pixels;
    const qn_place from = qn_patch_pixel(s, pixel);
    for (int64_t i = 0; i < count; i++) {
        const char *plane = images + (first + i) / s->taps * s->channel + image * s->image;
        qn_place tap = qn_patch_tap(s, (first + i) % s->taps), at = from;
        int64_t left = s->pixels - pixel;
        for (int64_t done = 0; done < depth; plane += s->image, left = s->pixels, at = (qn_place){{0, 0, 0}}) {
            int64_t run = left < depth - done ? left : depth - done;
            qn_patch_see(s, (const float *)(const void *)plane, &tap, &at, run, rows[i] + done);
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

/* The sums of conv: bias, activation, residual. */
static void finish_conv(const qn_gemm *g, int64_t batch, int64_t i, int64_t j, int n, float *x) {
    const qn_conv *v = g->context;
    int64_t channel = batch * v->channels + (g->transposed ? j : i), pixel = g->transposed ? i : j;
    int64_t channels = v->groups * v->channels, at = channel * v->pixels + pixel;
    if (v->padded && qn_conv_is_suspect(x, n))
        for (int k = 0; k < n; k++)
            if (isnan(x[k])) x[k] = qn_conv_again(v, channel + (g->transposed ? k : 0), pixel + (g->transposed ? 0 : k));
    for (int k = 0; v->bias && k < n; k++) x[k] += v->bias[(channel + (g->transposed ? k : 0)) % channels];
    if (v->act) v->act((char *)x, NULL, (const char *)x, n);
    for (int k = 0; v->residual && k < n; k++) x[k] += v->residual[at + k * (g->transposed ? v->pixels : 1)];
}

/* ---- The two products */

typedef struct product {
    qn_gemm g;
    qn_patch_shape s;
    two_axes two;
    qn_conv v;
    int64_t
        border; /* planes, or rows of weights, that padding may have spoiled and nothing has looked at: a phase of their own */
} product;

typedef int (*describe_fn)(const qn_call *c, product *p);

static int is_dense_f32(const qn_tensor *t) { return t->dtype == QN_DTYPE_F32 && qn_cpu_is_dense(t); }

static int all_dense(const qn_call *c) {
    for (int i = 0; i < c->n_src; i++)
        if (c->src[i] && !is_dense_f32(c->src[i])) return 0;
    return is_dense_f32(c->dst[0]) && qn_tensor_count(c->dst[0]) > 0 && qn_tensor_count(c->src[0]) > 0 &&
           qn_tensor_count(c->src[1]) > 0;
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
    qn_patch_shape s = qn_patch_shape_of(&(qn_window_lists){&at->stride, &at->padding, &at->padding_hi, &at->dilation}, x, y,
                                         taps, axes);
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
    v->ends = bias_of || residual || act >= 0;
    v->padded = qn_conv_is_padded(v->of);
    return 1;
}

static int describe_conv(const qn_call *c, product *p) {
    memset(p, 0, sizeof *p);
    if (!qn_conv_describe(c, &p->v)) return 0;
    const qn_conv *v = &p->v;
    p->s = (qn_patch_shape){.taps = v->taps, .pixels = v->pixels, .samples = v->samples, .channel = v->samples * 4};
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
    if (v->ends) {
        g->finish = finish_conv;
        g->context = v;
    }
    p->border = v->padded && !v->ends ? v->images * v->groups * v->channels : 0;
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
    p->s = qn_patch_shape_of(&(qn_window_lists){&at->stride, &at->padding, &at->padding_hi, &at->dilation}, x, gy, taps, axes);
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
    p->border = qn_conv_is_padded(p->s.of) ? gy->shape[1] : 0;
    return qn_gemm_settle(g);
}

/* One of p->border. */
static void mend(const qn_call *c, const product *p, int64_t number) {
    if (c->op != QN_OP_conv_back_w) {
        qn_conv_mend_plane(&p->v, number);
        return;
    }
    const qn_tensor *gy = c->src[0], *x = c->src[1], *w = c->dst[0];
    int64_t deep = p->s.image / p->s.channel / ((const qn_attr_conv_back_w *)c->attr)->groups;
    int64_t group = number / (gy->shape[1] * deep / x->shape[1]);
    qn_conv_weights_mend(&p->s, (const float *)qn_at(gy, number * p->s.pixels * 4), gy->shape[1] * p->s.pixels,
                         (const float *)qn_at(x, group * deep * p->s.channel), x->shape[0], deep,
                         (float *)qn_at(w, number * deep * p->s.taps * 4));
}

enum { FEW_WEIGHTS = 8192 };

static int prepare(const qn_call *c, qn_cpu_step *s, describe_fn describe, qn_cpu_run_fn run) {
    product p;
    if (!all_dense(c) || !describe(c, &p)) return 0;
    qn_gemm_cut cut = qn_gemm_plan(&p.g);
    qn_gemm_step(s, &cut, run);
    s->name = "implicit gemm f32";
    if (p.border) s->parts[s->n_phases++] = qn_cpu_parts(p.border, (double)qn_tensor_count(c->dst[0]) / (double)p.border, 0);
    return 1;
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part, describe_fn describe) {
    product p;
    if (!describe(c, &p)) return;
    if (phase == 2) {
        int64_t number = qn_cpu_cut(p.border, s->parts[2], part), end = qn_cpu_cut(p.border, s->parts[2], part + 1);
        for (; number < end; number++) mend(c, &p, number);
        return;
    }
    /* Weights of short sums are few, and looked at sooner than the sums. */
    int64_t weights = p.v.groups * p.v.channels * p.g.k;
    if (p.v.padded && p.v.ends && phase == 1 && weights <= FEW_WEIGHTS) p.v.padded = qn_conv_is_suspect(p.v.w, weights);
    qn_gemm_cut cut = qn_gemm_plan(&p.g);
    qn_gemm_part(&p.g, &cut, c->workspace, phase, part);
}

#define KERNEL(op, describe)                                                                                                    \
    static void run_##op(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) { run(c, s, phase, part, describe); } \
    int QN_K(op)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, describe, run_##op); }
KERNEL(conv_back_w, describe_back_w)

static void run_conv(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) { run(c, s, phase, part, describe_conv); }

static int prepare_conv(const qn_call *c, qn_cpu_step *s) {
    qn_conv v;
    if (!qn_conv_describe(c, &v)) return 0;
    return qn_conv_depth(&v, s) || qn_conv_winograd(&v, s) || qn_conv_direct(&v, s) || prepare(c, s, describe_conv, run_conv);
}

int QN_K(conv)(const qn_call *c, qn_cpu_step *s) { return prepare_conv(c, s); }
int QN_K(conv_act)(const qn_call *c, qn_cpu_step *s) { return prepare_conv(c, s); }
