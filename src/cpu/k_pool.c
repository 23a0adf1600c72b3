/* pool, pool_back and pool_tangent over planes of f32: maximum, minimum, sum, mean. A part takes whole planes, so windows that overlap
 * add up in one order. Products are left to the reference. */
#include "cpu/k_fold.h"
#include "cpu/simd/simd_turn.h"
#include "op/op_convn.h"

typedef struct form {
    qn_window of[QN_WINDOW_AXES]; /* from the last axis */
    int64_t behind[QN_WINDOW_AXES];
    int64_t in, out; /* samples and windows of a plane */
    int count_pad, reduction;
} form;

/* Where a window lies: [first, last) on each axis, and what a mean divides by. */
typedef struct under {
    int64_t first[QN_WINDOW_AXES], last[QN_WINDOW_AXES];
    float rows, count; /* on the outer axes, and in all */
} under;

/* pool_back has the same attributes, which pool's are checked against where they are declared. */
static int form_of(form *f, const qn_attr_pool *at, int reduction, const qn_tensor *in, const qn_tensor *out) {
    qn_window_lists l = {&at->stride, &at->padding, &at->padding_hi, NULL};
    *f = (form){.in = 1, .out = 1, .count_pad = at->count_include_pad, .reduction = reduction};
    for (int k = 0; k < QN_WINDOW_AXES; k++) {
        f->of[k] = (qn_window){1, 1, 1, 0, 1, 1};
        if (k < at->kernel.rank) {
            f->of[k] = qn_window_along(&l, k);
            f->of[k].stride = at->stride.rank ? f->of[k].stride : qn_list_entry(&at->kernel, k, 1);
            f->of[k].taps = qn_list_entry(&at->kernel, k, 1);
            f->of[k].in = qn_ne(in, k);
            f->of[k].out = qn_ne(out, k);
            f->behind[k] = qn_pad_behind(&l, k);
        }
        f->in *= f->of[k].in;
        f->out *= f->of[k].out;
    }
    return at->stride.rank == at->kernel.rank; /* what a missing stride means is the rule's business */
}

/* The window's place on one axis; count is multiplied by what it contributes to a mean's divisor. */
static inline void place_on(const form *f, int k, int64_t window, under *u, float *count) {
    const qn_window *w = &f->of[k];
    int64_t first = qn_window_sample(w, window, 0), last = first + w->taps, end = w->in + f->behind[k];
    u->first[k] = first < 0 ? 0 : first;
    u->last[k] = last > w->in ? w->in : last;
    *count *= (float)(f->count_pad ? (last < end ? last : end) - first : u->last[k] - u->first[k]);
}

/* Walks the windows of a plane in order; `number` counts them. The outer axes are worked out once for each row. */
#define EACH_WINDOW(f, u, number)                               \
    for (int64_t d_ = 0, number = 0; d_ < (f)->of[2].out; d_++) \
        for (int64_t h_ = 0; h_ < (f)->of[1].out; h_++)         \
            for (int64_t w_ = (outer_axes(f, d_, h_, &(u)), 0); w_ < (f)->of[0].out && inner_axis(f, w_, &(u)); w_++, number++)

static inline void outer_axes(const form *f, int64_t d, int64_t h, under *u) {
    u->rows = 1;
    place_on(f, 2, d, u, &u->rows);
    place_on(f, 1, h, u, &u->rows);
}

static inline int inner_axis(const form *f, int64_t w, under *u) {
    u->count = u->rows;
    place_on(f, 0, w, u, &u->count);
    return 1;
}

#define EACH_SAMPLE(f, u, at)                                                            \
    for (int64_t z_ = (u)->first[2]; z_ < (u)->last[2]; z_++)                            \
        for (int64_t y_ = (u)->first[1]; y_ < (u)->last[1]; y_++)                        \
            for (int64_t at = (z_ * (f)->of[1].in + y_) * (f)->of[0].in + (u)->first[0], \
                         end_ = at + (u)->last[0] - (u)->first[0];                       \
                 at < end_; at++)

/* ---- Extrema: a row of windows at a time, one sample of each window after the other, so that nothing is guessed */

enum { CHUNK = 4 * VF_N }; /* windows at a time */

typedef struct found {
    int32_t begin[CHUNK]; /* where each window begins in a row of samples, which may be before it */
    int32_t at[CHUNK];    /* in the plane: the first sample that no other under the window beats; NaN beats all */
    float value[CHUNK];
} found;

static inline vi ints_at(const int32_t *p) {
    vi v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Tap x of n windows along the row of samples that begins at `row`. A window that has no such sample shows its best once more, which
 * does not beat itself. */
static inline __attribute__((always_inline)) void look(const form *f, const float *plane, int64_t row, int n, int32_t x,
                                                       int largest, found *best) {
    const qn_window *w = &f->of[0];
    float sample[CHUNK];
    int i = 0;
    for (; i < n && best->begin[i] + x < 0; i++) sample[i] = best->value[i];
    for (; i < n && best->begin[i] + x < w->in; i++) sample[i] = plane[row + best->begin[i] + x];
    for (; i < (n + VF_N - 1) / VF_N * VF_N; i++) sample[i] = best->value[i];
    for (i = 0; i < n; i += VF_N) {
        vf v = vf_load(sample + i), b = vf_load(best->value + i);
        vi better = ~(largest ? v <= b : v >= b) & (b == b); /* more, or not a number */
        vi at = (better & (ints_at(best->begin + i) + vi_set1((int32_t)row + x))) | (~better & ints_at(best->at + i));
        vf_store(best->value + i, vf_select(better, v, b));
        memcpy(best->at + i, &at, sizeof at);
    }
}

/* Windows [first, first + n) of the row that u is in. */
static void extrema(const form *f, const float *plane, const under *u, int64_t first, int n, found *best) {
    int64_t top = (u->first[2] * f->of[1].in + u->first[1]) * f->of[0].in;
    for (int i = 0; i < (n + VF_N - 1) / VF_N * VF_N; i++) { /* what fills the last vector is the last window again */
        best->begin[i] = (int32_t)qn_window_sample(&f->of[0], first + (i < n ? i : n - 1), 0);
        best->at[i] = (int32_t)top + (best->begin[i] < 0 ? 0 : best->begin[i]);
        best->value[i] = plane[best->at[i]];
    }
    for (int64_t z = u->first[2]; z < u->last[2]; z++)
        for (int64_t y = u->first[1]; y < u->last[1]; y++) {
            int64_t row = (z * f->of[1].in + y) * f->of[0].in;
            for (int32_t x = 0; x < f->of[0].taps; x++) {
                if (f->reduction == QN_REDUCE_max) look(f, plane, row, n, x, 1, best);
                else look(f, plane, row, n, x, 0, best);
            }
        }
}

/* The extrema of a plane: y gets them, or what t has where they are; or dx gets g there. */
static void plane_extrema(const form *f, const float *x, const float *t, float *y, const float *g, float *dx) {
    under u;
    found best;
    int64_t o = 0, wide = f->of[0].out;
    for (int64_t d = 0; d < f->of[2].out; d++)
        for (int64_t h = 0; h < f->of[1].out; h++) {
            outer_axes(f, d, h, &u);
            for (int64_t first = 0; first < wide; first += CHUNK) {
                int n = wide - first < CHUNK ? (int)(wide - first) : CHUNK;
                extrema(f, x, &u, first, n, &best);
                if (t)
                    for (int i = 0; i < n; i++) y[o + i] = t[best.at[i]];
                else if (y) memcpy(y + o, best.value, (size_t)n * sizeof *y);
                else
                    for (int i = 0; i < n; i++) dx[best.at[i]] += g[o + i];
                o += n;
            }
        }
}

/* ---- Values alone, a line of windows at a time: samples that lie above each other are combined first, then neighbours */

enum { LINE = 64, LONGEST = 8, MOST_TAPS = 64 }; /* windows of a line; the strides and windows this is for */

static int is_lined(const form *f) {
    return f->of[0].stride <= LONGEST && f->of[0].taps <= MOST_TAPS && f->of[0].out * 2 >= VF_N;
}

/* Samples [start, start + n) of all rows under the windows, as one row; where there are none, what changes nothing. */
QN_INLINE void flatten(const form *f, const float *plane, const under *u, int64_t start, int64_t n, int reduction, float *to) {
    const qn_window *w = &f->of[0];
    int64_t low = start < 0 ? 0 : start, high = start + n < w->in ? start + n : w->in, i, top = f->of[1].in * w->in;
    float nothing = qn_fold_nothing(reduction);
    for (i = 0; i < low - start; i++) to[i] = nothing;
    for (i = low; i < high; i += VF_N) {
        const float *column = plane + u->first[2] * top + i;
        vf v = qn_lanes_at(QN_DTYPE_F32, (const char *)(column + u->first[1] * w->in), 0, high - i);
        for (int64_t z = u->first[2]; z < u->last[2]; z++, column += top)
            for (int64_t y = u->first[1] + (z == u->first[2]); y < u->last[1]; y++)
                v = qn_fold(reduction, v, qn_lanes_at(QN_DTYPE_F32, (const char *)(column + y * w->in), 0, high - i));
        vf_store(to + (i - start), v);
    }
    for (i = high - start; i < n; i++) to[i] = nothing;
}

/* VF_N windows whose samples begin at `from`. */
QN_INLINE vf across(const float *from, int64_t stride, int64_t taps, int reduction) {
    if (stride == 1) {
        vf v = vf_load(from);
        for (int64_t x = 1; x < taps; x++) v = qn_fold(reduction, v, vf_load(from + x));
        return v;
    }
    if (stride == 2) {
        vf a = vf_load(from), b = vf_load(from + VF_N), v = vf_even(a, b);
        for (int64_t x = 1; x < taps; x++) {
            if (x & 1) v = qn_fold(reduction, v, vf_odd(a, b));
            else {
                a = vf_load(from + x);
                b = vf_load(from + x + VF_N);
                v = qn_fold(reduction, v, vf_even(a, b));
            }
        }
        return v;
    }
    float t[VF_N];
    for (int i = 0; i < VF_N; i++) t[i] = from[i * stride];
    vf v = vf_load(t);
    for (int64_t x = 1; x < taps; x++) {
        for (int i = 0; i < VF_N; i++) t[i] = from[i * stride + x];
        v = qn_fold(reduction, v, vf_load(t));
    }
    return v;
}

/* Windows [first, first + n) of the row that u is in. Samples are read where they lie if there is one row of them, without an end. */
QN_INLINE void pool_line(const form *f, const float *plane, under *u, int64_t first, int64_t n, int reduction, float *y) {
    const qn_window *w = &f->of[0];
    float line[LINE * LONGEST + MOST_TAPS + VF_N], count[LINE];
    int64_t start = qn_window_sample(w, first, 0), reach = (n + VF_N - 1) / VF_N * VF_N * w->stride + w->taps - 1;
    int inside = start >= 0 && start + (n - 1) * w->stride + w->taps <= w->in;
    const float *from = line;
    if (start < 0 || start + reach > w->in || u->last[2] - u->first[2] > 1 || u->last[1] - u->first[1] > 1)
        flatten(f, plane, u, start, reach, reduction, line);
    else from = plane + (u->first[2] * f->of[1].in + u->first[1]) * w->in + start;
    for (int64_t i = 0; reduction == QN_REDUCE_mean && !inside && i < n; i++) {
        inner_axis(f, first + i, u);
        count[i] = u->count;
    }
    for (int64_t i = 0; i < n; i += VF_N) {
        vf v = across(from + i * w->stride, w->stride, w->taps, reduction);
        if (reduction == QN_REDUCE_mean)
            v /= inside ? vf_set1(u->rows * (float)w->taps) : qn_lanes_at(QN_DTYPE_F32, (char *)count, i, n);
        qn_lanes_put_at(QN_DTYPE_F32, (char *)y, i, v, n);
    }
}

QN_INLINE void pool_lines(const form *f, const float *plane, int reduction, float *y) {
    under u;
    int64_t wide = f->of[0].out;
    for (int64_t d = 0; d < f->of[2].out; d++)
        for (int64_t h = 0; h < f->of[1].out; h++, y += wide) {
            outer_axes(f, d, h, &u);
            for (int64_t first = 0; first < wide; first += LINE)
                pool_line(f, plane, &u, first, wide - first < LINE ? wide - first : LINE, reduction, y + first);
        }
}

static void plane_values(const form *f, const float *x, float *y) {
    switch (f->reduction) {
    case QN_REDUCE_max: pool_lines(f, x, QN_REDUCE_max, y); break;
    case QN_REDUCE_min: pool_lines(f, x, QN_REDUCE_min, y); break;
    case QN_REDUCE_mean: pool_lines(f, x, QN_REDUCE_mean, y); break;
    default: pool_lines(f, x, QN_REDUCE_sum, y);
    }
}

/* ---- Sums */

static float total(const form *f, const float *x, const under *u) {
    float sum = 0;
    EACH_SAMPLE(f, u, i) sum += x[i];
    return f->reduction == QN_REDUCE_mean ? sum / u->count : sum;
}

static int is_extremum(const form *f) { return f->reduction == QN_REDUCE_max || f->reduction == QN_REDUCE_min; }

/* Of the tangent the first source is t, whose sums change as those of x do. */
static void run_pool(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    form f;
    int tangent = c->op == QN_OP_pool_tangent;
    form_of(&f, c->attr, c->subop, c->src[0], c->dst[0]);
    int64_t first = qn_cpu_cut(s->n[0], s->parts[0], part), end = qn_cpu_cut(s->n[0], s->parts[0], part + 1);
    for (int64_t plane = first; plane < end; plane++) {
        const float *t = (const float *)(const void *)qn_at(c->src[0], plane * f.in * 4);
        const float *x = tangent ? (const float *)(const void *)qn_at(c->src[1], plane * f.in * 4) : t;
        float *y = (float *)(void *)qn_at(c->dst[0], plane * f.out * 4);
        under u;
        if (is_lined(&f) && !(tangent && is_extremum(&f))) plane_values(&f, t, y);
        else if (is_extremum(&f)) plane_extrema(&f, x, tangent ? t : NULL, y, NULL, NULL);
        else EACH_WINDOW(&f, u, o) y[o] = total(&f, t, &u);
    }
}

static void run_back(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    form f;
    form_of(&f, c->attr, c->subop, c->src[1], c->src[0]);
    int64_t first = qn_cpu_cut(s->n[0], s->parts[0], part), end = qn_cpu_cut(s->n[0], s->parts[0], part + 1);
    for (int64_t plane = first; plane < end; plane++) {
        const float *g = (const float *)(const void *)qn_at(c->src[0], plane * f.out * 4);
        const float *x = (const float *)(const void *)qn_at(c->src[1], plane * f.in * 4);
        float *dx = (float *)(void *)qn_at(c->dst[0], plane * f.in * 4);
        memset(dx, 0, (size_t)f.in * 4);
        under u;
        if (is_extremum(&f)) plane_extrema(&f, x, NULL, NULL, g, dx);
        else EACH_WINDOW(&f, u, o) {
                float share = f.reduction == QN_REDUCE_mean ? g[o] / u.count : g[o];
                EACH_SAMPLE(&f, &u, i) dx[i] += share;
            }
    }
}

static int is_plain(const qn_tensor *t) { return t->dtype == QN_DTYPE_F32 && qn_cpu_is_dense(t); }

static int prepare(const qn_call *c, qn_cpu_step *s, const qn_tensor *in, const qn_tensor *out, qn_cpu_run_fn run) {
    form f;
    int whole = form_of(&f, c->attr, c->subop, in, out) && c->subop != QN_REDUCE_prod;
    for (int k = 0; k < QN_WINDOW_AXES; k++) whole &= f.of[k].pad < f.of[k].taps && f.behind[k] < f.of[k].taps;
    whole &= f.of[0].taps <= f.of[0].in; /* taps are walked, and those beyond both ends could be two thousand million */
    if (!whole || f.in == 0 || f.out == 0 || f.in > INT32_MAX / 2) return 0;
    s->n[0] = qn_tensor_count(in) / f.in;
    if (s->n[0] == 0) return 0;
    return qn_cpu_by_rows(s, "pool planes", run, s->n[0], (double)(f.in + f.out) * 4, (double)f.in * 4);
}

int QN_K(pool)(const qn_call *c, qn_cpu_step *s) {
    if (!is_plain(c->src[0]) || !is_plain(c->dst[0])) return 0;
    return prepare(c, s, c->src[0], c->dst[0], run_pool);
}

_Static_assert(sizeof(qn_attr_pool) == sizeof(qn_attr_pool_tangent), "pool and pool_tangent have the same attributes");

int QN_K(pool_tangent)(const qn_call *c, qn_cpu_step *s) {
    return is_plain(c->src[0]) && is_plain(c->src[1]) && is_plain(c->dst[0]) && prepare(c, s, c->src[0], c->dst[0], run_pool);
}

_Static_assert(sizeof(qn_attr_pool) == sizeof(qn_attr_pool_back), "pool and pool_back have the same attributes");

int QN_K(pool_back)(const qn_call *c, qn_cpu_step *s) {
    if (!is_plain(c->src[0]) || !is_plain(c->src[1]) || !is_plain(c->dst[0])) return 0;
    return prepare(c, s, c->src[1], c->src[0], run_back);
}
