/* Images resized (upscale), and the gradient of that (upscale_back). */
#include "cpu/k_lanes.h"
#include "op/op_resize.h"

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
            for (int64_t j = 0; j < t.n;) {
                int64_t i;
                double weight;
                j = qn_tap_run(a, &t, j, &i, &weight);
                if (weight == 0) continue;
                if (pass == 0) {
                    r->start[i + 1]++;
                    continue;
                }
                r->weight[r->start[i]] = (float)weight;
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
