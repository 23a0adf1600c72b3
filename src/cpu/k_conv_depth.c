/* Convolution channel by channel: groups of one channel each. Pixels of a row lie along the lanes. A plane is laid out padded, its
 * columns sorted by their remainder under the stride, so that what neighbouring pixels see at a tap lies side by side. */
#include "cpu/k_conv_mend.h"

enum { AT_ONCE = 4, LINE = 64 };

typedef struct plan {
    int64_t rows, wide, row; /* of the plane as laid out: rows, floats of one remainder, and of a whole row */
    int64_t parts;
    size_t slot;
} plan;

static plan plan_of(const qn_conv *v) {
    const qn_window *w = &v->of[0], *h = &v->of[1];
    plan p = {.rows = (h->out - 1) * h->stride + (h->taps - 1) * h->dilation + 1};
    /* Vectors may reach past the last pixel. */
    p.wide = w->out + (w->taps - 1) * w->dilation / w->stride + AT_ONCE * VF_N;
    p.row = p.wide * w->stride;
    p.slot = (size_t)((p.rows * p.row * 4 + LINE - 1) / LINE) * LINE;
    p.parts = qn_cpu_parts(v->images * v->groups, (double)(v->samples + v->pixels * v->channels) * 8,
                           2.0 * (double)(v->taps * v->pixels * v->channels));
    return p;
}

static void lay_plane(const qn_conv *v, const plan *p, const float *plane, float *to) {
    const qn_window *w = &v->of[0], *h = &v->of[1];
    memset(to, 0, p->slot);
    for (int64_t i = 0; i < p->rows; i++, to += p->row) {
        if (i < h->pad || i - h->pad >= h->in) continue;
        const float *from = plane + (i - h->pad) * w->in;
        int64_t have = w->in < p->row - w->pad ? w->in : p->row - w->pad;
        if (w->stride == 1) {
            if (have > 0) memcpy(to + w->pad, from, (size_t)have * 4);
            continue;
        }
        for (int64_t r = 0; r < w->stride; r++) {
            int64_t x = (r - w->pad % w->stride + w->stride) % w->stride; /* the first sample of this remainder */
            float *at = to + r * p->wide + (x + w->pad) / w->stride;
            for (; x < have; x += w->stride) *at++ = from[x];
        }
    }
}

/* Some vectors of a row of pixels, from where its first tap sees. */
static inline void sum_pixels(const qn_conv *v, const plan *p, const float *x, const float *taps, vf sum[AT_ONCE]) {
    const qn_window *w = &v->of[0], *h = &v->of[1];
    for (int i = 0; i < AT_ONCE; i++) sum[i] = vf_zero();
    for (int64_t y = 0; y < h->taps; y++, x += h->dilation * p->row)
        for (int64_t t = 0; t < w->taps; t++) {
            int64_t at = t * w->dilation;
            const float *from = w->stride == 1 ? x + at : x + at % w->stride * p->wide + at / w->stride;
            vf one = vf_set1(*taps++);
            for (int i = 0; i < AT_ONCE; i++) sum[i] = vf_fma(one, vf_load(from + i * VF_N), sum[i]);
        }
}

static void run_plane(const qn_conv *v, const plan *p, const float *laid, int64_t plane, int64_t channel) {
    const float *taps = v->w + channel * v->taps;
    int64_t wide = v->of[0].out, at = plane * v->pixels;
    vf bias = vf_set1(v->bias ? v->bias[channel] : 0), sum[AT_ONCE];
    float nothing = 0;
    for (int64_t i = 0; i < v->taps; i++) nothing += taps[i] * 0; /* NaN when one is that padding must not meet */
    for (int64_t y = 0; y < v->of[1].out; y++, at += wide) {
        const float *x = laid + y * v->of[1].stride * p->row;
        for (int64_t first = 0; first < wide; first += AT_ONCE * VF_N) {
            sum_pixels(v, p, x + first, taps, sum);
            for (int64_t i = 0, j = first; i < AT_ONCE && j < wide; i++, j += VF_N)
                vf_storen(v->y + at + j, v->bias ? sum[i] + bias : sum[i], wide - j < VF_N ? (int)(wide - j) : VF_N);
        }
        if (nothing != 0) qn_conv_mend(v, plane, y * wide, wide, v->y + at);
        if (v->act || v->residual) qn_conv_finish(v, at, wide);
    }
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_conv v;
    (void)phase;
    if (!qn_conv_describe(c, &v)) return;
    plan p = plan_of(&v);
    float *laid = (float *)((char *)c->workspace + p.slot * (size_t)part);
    int64_t end = qn_cpu_cut(v.images * v.groups, s->parts[0], part + 1);
    for (int64_t i = qn_cpu_cut(v.images * v.groups, s->parts[0], part); i < end; i++) {
        lay_plane(&v, &p, v.x + i * v.samples, laid);
        for (int64_t k = 0; k < v.channels; k++) run_plane(&v, &p, laid, i * v.channels + k, i % v.groups * v.channels + k);
    }
}

int qn_conv_depth(const qn_conv *v, qn_cpu_step *s) {
    const qn_window *w = &v->of[0], *h = &v->of[1], *d = &v->of[2];
    if (v->deep != 1 || v->channels > 4 || d->in != 1 || d->taps != 1 || d->out != 1 || d->pad != 0) return 0;
    /* Windows that stand far apart or are mostly padding are not worth a plane. */
    if (w->stride > 8 || h->stride > 8 || w->dilation > 8 || h->dilation > 8 || w->taps > 64 || h->taps > 64) return 0;
    if (w->pad > w->taps * w->dilation || h->pad > h->taps * h->dilation || w->out > w->in * 2 + 64 || h->out > h->in * 2 + 64)
        return 0;
    plan p = plan_of(v);
    s->run = run;
    s->name = "depthwise f32";
    s->n_phases = 1;
    s->parts[0] = p.parts;
    s->workspace = p.slot * (size_t)p.parts;
    return 1;
}
