/* soft_max with mask, slopes and sinks, softmax over the last axis, log_soft_max and their gradients: a row is read from memory once,
 * to find its highest value, while the exponentials of the row before it are taken, and stays near until it is its turn. */
#include <math.h>

#include "cpu/k_lanes.h"
#include "cpu/k_past.h"
#include "cpu/simd/simd_dot.h"
#include "cpu/simd/simd_math.h"
#include "op/alibi.h"
#include "op/op_mask.h"

/* One row of scores: x scale + slope mask; none where x is NULL. */
typedef struct scores {
    const char *x, *mask;
    uint32_t mask_dtype;
    int64_t n;
    float scale, slope, sink;
} scores;

/* How scores come from a row: by a scale that keeps their order, by any scale, or with a mask. */
enum { ORDERED, SCALED, MASKED };
static int form_of(const scores *r) { return r->mask ? MASKED : r->scale > 0 && r->scale < INFINITY ? ORDERED : SCALED; }

/* Scores less `top`. A mask of -Inf hides its score whatever that is, even NaN. */
QN_INLINE vf score_of(const scores *r, vf x, vf m, int form, vf top) {
    vf none = vf_set1(-INFINITY), scale = vf_set1(r->scale);
    return form == MASKED ? vf_select(m == none, none, x * scale + vf_set1(r->slope) * m - top)
                          : vf_fma(x, scale, vf_zero() - top);
}
/* VF_N scores that the row has. */
QN_INLINE vf scores_whole(uint32_t dtype, const scores *r, int64_t i, int form, vf top) {
    return score_of(r, qn_lanes(dtype, r->x, i), form == MASKED ? qn_lanes(r->mask_dtype, r->mask, i) : vf_zero(), form, top);
}
/* Those it still has; lanes behind its end are -Inf. */
QN_INLINE vf scores_some(uint32_t dtype, const scores *r, int64_t i, int form, vf top) {
    int n = (int)(r->n - i);
    vf m = form == MASKED ? qn_lanes_some(r->mask_dtype, r->mask, i, n) : vf_zero();
    return vf_some(score_of(r, qn_lanes_some(dtype, r->x, i, n), m, form, top), n, vf_set1(-INFINITY));
}

/* Scores to find the highest of: where their order is that of x, x itself, which is scaled at the end. */
QN_INLINE vf ranks(uint32_t dtype, const scores *r, int64_t i, int form) {
    return form == ORDERED ? qn_lanes(dtype, r->x, i) : scores_whole(dtype, r, i, form, vf_zero());
}

/* The highest of scores from `first` on, of those before by two vectors a and b, and of the sink. */
QN_INLINE float top_from(uint32_t dtype, const scores *r, int form, int64_t first, vf a, vf b) {
    int64_t i = first;
    for (; i + 2 * VF_N <= r->n; i += 2 * VF_N) {
        a = vf_max(ranks(dtype, r, i, form), a);
        b = vf_max(ranks(dtype, r, i + VF_N, form), b);
    }
    if (i + VF_N <= r->n) {
        a = vf_max(ranks(dtype, r, i, form), a);
        i += VF_N;
    }
    float top = vf_largest(vf_max(a, b));
    if (form == ORDERED) top *= r->scale;
    if (i < r->n) top = vf_largest(vf_max(scores_some(dtype, r, i, form, vf_zero()), vf_set1(top)));
    if (top < r->sink) top = r->sink;
    return top == -INFINITY ? 0 : top; /* a row of nothing but -Inf: weights of 0, not of -Inf + Inf */
}

enum { ASIDE = 4096 };

/* What goes along from row to row: the row behind and, while the weights of one are taken, the highest of its scores; and a row
 * before whose weights wait to be stored past the caches. */
typedef struct walk {
    scores next;
    float top;
    int past, afield; /* rows are to go past the caches; the one at hand is written where it is to stay, which may be far away */
    float *waiting;   /* whole vectors of f32, or NULL */
    vf share;
    const float *weights;
    float aside[2][ASIDE];
} walk;

QN_INLINE void put_waiting(const walk *w, int64_t i) { qn_past_store(w->waiting + i, vf_load(w->weights + i) * w->share); }

/* e^(x - top) of a row into f32 when there is room for it, and their sum: lanes over runs, runs in double. Meanwhile the row behind
 * is read and the one before written, so that memory does not rest. */
QN_INLINE double weights_of(uint32_t dtype, const scores *row, walk *along, int form, float *to) {
    enum { AHEAD = 32 };
    scores r = *row, next = along->next;
    vf t = vf_set1(along->top), a = vf_set1(-INFINITY), b = a;
    double sum = 0;
    int64_t size = dtype == QN_DTYPE_F32 ? 4 : 2, i = 0;
    const char *there = along->afield ? (const char *)to + QN_FAR_AHEAD : NULL;
    for (int64_t first = 0; first < r.n; first += 4096) {
        int64_t end = r.n < first + 4096 ? r.n : first + 4096;
        vf run = vf_zero(), other = vf_zero();
        for (i = first; i + 2 * VF_N <= end; i += 2 * VF_N) {
            vf v = vf_exp_below(scores_whole(dtype, &r, i, form, t)),
               w = vf_exp_below(scores_whole(dtype, &r, i + VF_N, form, t));
            if (to) vf_store(to + i, v), vf_store(to + i + VF_N, w);
            if (dtype == QN_DTYPE_F32 && there) qn_far_ask(there + i * 4), qn_far_ask(there + (i + VF_N) * 4);
            run += v;
            other += w;
            if (dtype == QN_DTYPE_F32 && along->waiting) put_waiting(along, i), put_waiting(along, i + VF_N);
            if (!next.x) continue;
            __builtin_prefetch(next.x + (i + AHEAD * VF_N) * size, 0, 3);
            if (VF_N * size * 2 > 64) __builtin_prefetch(next.x + (i + (AHEAD + 1) * VF_N) * size, 0, 3);
            a = vf_max(ranks(dtype, &next, i, form), a);
            b = vf_max(ranks(dtype, &next, i + VF_N, form), b);
        }
        for (int64_t k = i; k < end; k += VF_N) {
            int n = end - k < VF_N ? (int)(end - k) : VF_N;
            vf w = vf_exp_below(n == VF_N ? scores_whole(dtype, &r, k, form, t) : scores_some(dtype, &r, k, form, t));
            if (to) vf_storen(to + k, w, n);
            run += w;
            if (dtype == QN_DTYPE_F32 && along->waiting) put_waiting(along, k);
        }
        sum += (double)vf_sum(run + other);
    }
    along->waiting = NULL;
    if (next.x) along->top = top_from(dtype, &next, form, i, a, b);
    return sum;
}

/* Weights are kept in f32 where there is room for them, which may be y itself; past: y is whole vectors, and goes past the caches. */
QN_INLINE void soft_max_row(uint32_t dtype, const scores *r, walk *along, float *kept, char *y, int past, int form) {
    vf t = vf_set1(along->top);
    double sum = r->sink == -INFINITY ? 0 : (double)vf_exp(vf_set1(r->sink) - t)[0];
    /* in place the scores are gone once weights are written; nothing reads them again */
    sum += weights_of(dtype, r, along, form, kept);
    vf share = vf_set1(sum == 0 ? 0 : (float)(1 / sum));
    if (past) {
        along->waiting = (float *)(void *)y, along->share = share, along->weights = kept;
        return;
    }
    int64_t i = 0;
    for (; i + VF_N <= r->n; i += VF_N) {
        vf v = kept ? vf_load(kept + i) : vf_exp_below(scores_whole(dtype, r, i, form, t));
        qn_lanes_put(dtype, y, i, v * share);
    }
    if (i == r->n) return;
    int n = (int)(r->n - i);
    vf v = kept ? vf_loadn(kept + i, n) : vf_exp_below(scores_some(dtype, r, i, form, t));
    qn_lanes_put_some(dtype, y, i, v * share, n);
}

static void soft_max_any(uint32_t dtype, const scores *r, walk *along, char *y) {
    int past = along->past && dtype == QN_DTYPE_F32 && r->n <= ASIDE && r->n % VF_N == 0 && (uintptr_t)y % sizeof(vf) == 0;
    float *aside = along->aside[along->weights == along->aside[0]];
    float *kept = dtype == QN_DTYPE_F32 && !past ? (float *)(void *)y : r->n <= ASIDE ? aside : NULL;
    along->afield = kept == (float *)(void *)y;
#define ORDERED_OF(d) soft_max_row(d, r, along, kept, y, past, ORDERED)
#define SCALED_OF(d) soft_max_row(d, r, along, kept, y, past, SCALED)
#define MASKED_OF(d) soft_max_row(d, r, along, kept, y, past, MASKED)
    int form = form_of(r);
    if (form == ORDERED) QN_BY_FLOAT(dtype, ORDERED_OF);
    else if (form == SCALED) QN_BY_FLOAT(dtype, SCALED_OF);
    else QN_BY_FLOAT(dtype, MASKED_OF);
#undef ORDERED_OF
#undef SCALED_OF
#undef MASKED_OF
}

/* The highest score of a row that no other went before: whatever the form, by scores. */
static float top_of(uint32_t dtype, const scores *r) {
    vf none = vf_set1(-INFINITY);
#define PLAIN_OF(d) return top_from(d, r, SCALED, 0, none, none)
#define MASKED_OF(d) return top_from(d, r, MASKED, 0, none, none)
    if (r->mask) QN_BY_FLOAT(dtype, MASKED_OF);
    else QN_BY_FLOAT(dtype, PLAIN_OF);
#undef PLAIN_OF
#undef MASKED_OF
}

QN_INLINE void log_row(uint32_t dtype, const scores *r, walk *along, char *y) {
    double top = (double)along->top, sum = weights_of(dtype, r, along, ORDERED, NULL);
    vf whole = vf_set1(sum == 0 ? 0 : (float)(top + log(sum))); /* a row of nothing but -Inf stays as it is */
    for (int64_t i = 0; i < r->n; i += VF_N) qn_lanes_put_at(dtype, y, i, qn_lanes_at(dtype, r->x, i, r->n) - whole, r->n);
}
static void log_any(uint32_t dtype, const scores *r, walk *along, char *y) {
#define CALL(d) log_row(d, r, along, y)
    QN_BY_FLOAT(dtype, CALL);
#undef CALL
}

/* <y, g> */
QN_INLINE vf mean_of(uint32_t dtype, const char *g, const char *y, int64_t n) {
    double sum = 0;
    for (int64_t first = 0; first < n; first += 4096) {
        int64_t end = n < first + 4096 ? n : first + 4096;
        vf run = vf_zero();
        for (int64_t i = first; i < end; i += VF_N) run = vf_fma(qn_lanes_at(dtype, g, i, n), qn_lanes_at(dtype, y, i, n), run);
        sum += (double)vf_sum(run);
    }
    return vf_set1((float)sum);
}

/* dx = scale y (g - <y, g>) */
QN_INLINE void back_row(uint32_t dtype, char *dx, const char *g, const char *y, int64_t n, float scale) {
    vf mean = mean_of(dtype, g, y, n), f = vf_set1(scale);
    for (int64_t i = 0; i < n; i += VF_N) {
        vf v = f * qn_lanes_at(dtype, y, i, n) * (qn_lanes_at(dtype, g, i, n) - mean);
        qn_lanes_put_at(dtype, dx, i, v, n);
    }
}

/* The same added to a row of f32 that ends with a whole vector. */
QN_INLINE void back_row_onto(uint32_t dtype, float *sum, const char *g, const char *y, int64_t n, float scale) {
    vf mean = mean_of(dtype, g, y, n), f = vf_set1(scale);
    for (int64_t i = 0; i < n; i += VF_N) {
        vf v = f * qn_lanes_at(dtype, y, i, n) * (qn_lanes_at(dtype, g, i, n) - mean);
        vf_store(sum + i, vf_load(sum + i) + v);
    }
}

/* ---- Ops */

static int rows_of_one_dtype(const qn_call *c, int sources) {
    const qn_tensor *y = c->dst[0];
    if (!qn_lanes_rows(y) || qn_tensor_count(y) == 0) return 0;
    for (int i = 0; i < sources; i++)
        if (c->src[i]->dtype != y->dtype || !qn_lanes_rows(c->src[i]) || c->src[i]->rank != y->rank) return 0;
    return 1;
}

static int by_rows(const qn_call *c, qn_cpu_step *s, const char *name, qn_cpu_run_fn run) {
    int64_t n = qn_ne(c->dst[0], 0);
    return qn_cpu_by_rows(s, name, run, qn_tensor_count(c->dst[0]) / n, 8.0 * (double)n, 40.0 * (double)n);
}

#define EACH_ROW(it, t)                                                                                              \
    int64_t rows = qn_tensor_count(t) / qn_ne(t, 0), end = qn_cpu_cut(rows, s->parts[0], part + 1);                  \
    qn_rows it;                                                                                                      \
    for (qn_rows_begin_at(&it, (t)->rank, (t)->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end; \
         qn_rows_next(&it))

static scores scores_of(const qn_call *c, const qn_rows *it) {
    const qn_tensor *x = c->src[0], *mask = c->n_src > 1 ? c->src[1] : NULL, *sinks = c->n_src > 2 ? c->src[2] : NULL;
    scores r = {.x = qn_row(it, x), .n = it->n, .scale = 1, .slope = 1, .sink = -INFINITY};
    if (c->op != QN_OP_soft_max) return r;
    const qn_attr_soft_max *at = c->attr;
    int64_t head = it->rank >= 3 ? it->index[it->rank - 3] : 0;
    r.scale = at->scale;
    r.slope = (float)qn_alibi_slope((double)at->max_bias, qn_ne(x, 2), head);
    if (mask) r.mask = qn_row_tiled(it, mask), r.mask_dtype = mask->dtype;
    if (sinks) r.sink = (float)qn_get4(sinks, 0, 0, 0, head);
    return r;
}

typedef void (*row_fn)(uint32_t dtype, const scores *r, walk *along, char *y);

static void run_rows(const qn_call *c, const qn_cpu_step *s, int64_t part, row_fn each, int past) {
    const qn_tensor *x = c->src[0];
    const scores none = {.sink = -INFINITY};
    walk along;
    along.next = none, along.past = past, along.afield = 0, along.waiting = NULL, along.weights = NULL;
    EACH_ROW(it, x) {
        scores r = along.next.x ? along.next : scores_of(c, &it);
        if (!along.next.x) along.top = top_of(x->dtype, &r);
        qn_rows behind = it;
        qn_rows_next(&behind);
        along.next = behind.live && behind.row < end ? scores_of(c, &behind) : none;
        each(x->dtype, &r, &along, qn_row(&it, c->dst[0]));
    }
    for (int64_t i = 0; along.waiting && i < qn_ne(x, 0); i += VF_N) put_waiting(&along, i);
    if (past) qn_past_end();
}

static void run_soft_max(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    run_rows(c, s, part, soft_max_any, qn_past_is(c->dst[0], c->src, 1));
}

int QN_K(softmax_doubles)(const qn_call *c, qn_cpu_step *s); /* k_softmax_doubles.c: rows of f64 */

int QN_K(soft_max)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *mask = c->n_src > 1 ? c->src[1] : NULL;
    if (QN_K(softmax_doubles)(c, s)) return 1;
    if (!rows_of_one_dtype(c, 1) || (mask && (!qn_lanes_rows(mask) || qn_ne(mask, 0) != qn_ne(c->src[0], 0)))) return 0;
    return by_rows(c, s, "soft_max rows", run_soft_max);
}

static int last_axis(const qn_tensor *t, int axis) { return axis == -1 || axis == t->rank - 1; }

int QN_K(softmax_down)(const qn_call *c, qn_cpu_step *s, int axis); /* k_softmax_down.c: along any other axis */

int QN_K(softmax)(const qn_call *c, qn_cpu_step *s) {
    int axis = ((const qn_attr_softmax *)c->attr)->axis;
    if (!last_axis(c->src[0], axis)) return QN_K(softmax_down)(c, s, axis);
    if (QN_K(softmax_doubles)(c, s)) return 1;
    return rows_of_one_dtype(c, 1) && by_rows(c, s, "softmax rows", run_soft_max);
}

static void run_log_soft_max(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    run_rows(c, s, part, log_any, 0);
}

int QN_K(log_soft_max)(const qn_call *c, qn_cpu_step *s) {
    if (QN_K(softmax_doubles)(c, s)) return 1;
    return rows_of_one_dtype(c, 1) && by_rows(c, s, "log_soft_max rows", run_log_soft_max);
}

static void run_back(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    float scale = c->op == QN_OP_soft_max_back ? ((const qn_attr_soft_max_back *)c->attr)->scale : 1;
    EACH_ROW(it, c->src[1]) {
        char *dx = qn_row(&it, c->dst[0]);
        const char *g = qn_row(&it, c->src[0]), *y = qn_row(&it, c->src[1]);
#define CALL(d) back_row(d, dx, g, y, it.n, scale)
        QN_BY_FLOAT(c->dst[0]->dtype, CALL);
#undef CALL
    }
}

int QN_K(soft_max_back)(const qn_call *c, qn_cpu_step *s) {
    if (QN_K(softmax_doubles)(c, s)) return 1;
    return rows_of_one_dtype(c, 2) && by_rows(c, s, "soft_max_back", run_back);
}
int QN_K(softmax_back)(const qn_call *c, qn_cpu_step *s) {
    int axis = ((const qn_attr_softmax_back *)c->attr)->axis;
    if (!last_axis(c->src[0], axis)) return QN_K(softmax_down)(c, s, axis);
    if (QN_K(softmax_doubles)(c, s)) return 1;
    return rows_of_one_dtype(c, 2) && by_rows(c, s, "softmax_back rows", run_back);
}

/* ---- soft_max_mask_back: a row of the mask has the gradients of all rows it was tiled over, in their order */

static int64_t line_of(const qn_tensor *t) { return (qn_ne(t, 0) + VF_N - 1) / VF_N * VF_N; }

static void run_mask_back(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    const qn_tensor *g = c->src[0], *y = c->src[1], *dmask = c->dst[0];
    double max_bias = (double)((const qn_attr_soft_max_mask_back *)c->attr)->max_bias;
    int64_t tiles = qn_op_mask_tiles(dmask, y), line = line_of(dmask), head;
    float *sum = (float *)c->workspace + part * line;
    EACH_ROW(it, dmask) {
        int used = it.rank < 2 || it.index[it.rank - 2] < qn_ne(y, 1);
        memset(sum, 0, (size_t)line * sizeof *sum);
        for (int64_t tile = 0; used && tile < tiles; tile++) {
            const char *up = qn_at(g, qn_op_mask_tile(&it, dmask, g, tile, &head));
            const char *share = qn_at(y, qn_op_mask_tile(&it, dmask, y, tile, &head));
            float slope = (float)qn_alibi_slope(max_bias, qn_ne(y, 2), head);
#define CALL(d) back_row_onto(d, sum, up, share, it.n, slope)
            QN_BY_FLOAT(y->dtype, CALL);
#undef CALL
        }
        for (int64_t i = 0; i < it.n; i += VF_N) qn_lanes_put_at(dmask->dtype, qn_row(&it, dmask), i, vf_load(sum + i), it.n);
    }
}

int QN_K(soft_max_mask_back)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *g = c->src[0], *y = c->src[1], *dmask = c->dst[0];
    if (qn_tensor_count(dmask) == 0 || qn_tensor_count(y) == 0 || g->dtype != y->dtype) return 0;
    if (!qn_lanes_rows(g) || !qn_lanes_rows(y) || !qn_lanes_rows(dmask)) return 0;
    double n = (double)qn_tensor_count(y), rows = (double)qn_tensor_count(dmask) / (double)qn_ne(dmask, 0);
    qn_cpu_by_rows(s, "soft_max_mask_back rows", run_mask_back, (int64_t)rows, 8.0 * n / rows, 8.0 * n / rows);
    s->workspace = (size_t)(s->parts[0] * line_of(dmask)) * sizeof(float);
    return 1;
}
