/* soft_max with mask, slopes and sinks, softmax over the last axis and log_soft_max: a row is read from memory once,
 * piece by piece, to find a piece's highest value while the exponentials of the piece before are taken and a row before is stored. All
 * that has to stay near meanwhile is a row's weights and two pieces: three whole rows of 4096 do not fit into the first cache. */
#include <math.h>

#include "cpu/k_past.h"
#include "cpu/k_softmax.h"
#include "cpu/simd/simd_dot.h"
#include "cpu/simd/simd_math.h"
#include "op/alibi.h"

/* One row of scores: x scale + slope mask; none where x is NULL. */
typedef struct scores {
    const char *x, *mask;
    uint32_t mask_dtype;
    int64_t n;
    float scale, slope, sink;
} scores;

/* How scores come from a row: by a scale that keeps their order and no mask, or in any way. */
enum { ORDERED, ANY };
static int form_of(const scores *r) { return !r->mask && r->scale > 0 && r->scale < INFINITY ? ORDERED : ANY; }

/* Scores less `top`. A mask of -Inf hides its score whatever that is, even NaN. */
QN_INLINE vf score_of(const scores *r, vf x, vf m, int form, vf top) {
    vf none = vf_set1(-INFINITY), scale = vf_set1(r->scale);
    return form == ORDERED ? x * scale - top /* rounded as `top` was: what is left of the highest is 0 */
                           : vf_select(m == none, none, x * scale + vf_set1(r->slope) * m - top);
}
/* VF_N scores that the row has. */
QN_INLINE vf scores_whole(uint32_t dtype, const scores *r, int64_t i, int form, vf top) {
    vf m = form == ANY && r->mask ? qn_lanes(r->mask_dtype, r->mask, i) : vf_zero();
    return score_of(r, qn_lanes(dtype, r->x, i), m, form, top);
}
/* Those it still has; lanes behind its end are -Inf. */
QN_INLINE vf scores_some(uint32_t dtype, const scores *r, int64_t i, int form, vf top) {
    int n = (int)(r->n - i);
    vf m = form == ANY && r->mask ? qn_lanes_some(r->mask_dtype, r->mask, i, n) : vf_zero();
    return vf_some(score_of(r, qn_lanes_some(dtype, r->x, i, n), m, form, top), n, vf_set1(-INFINITY));
}

/* Scores to find the highest of: where their order is that of x, x itself, which is scaled at the end. */
QN_INLINE vf ranks(uint32_t dtype, const scores *r, int64_t i, int form) {
    return form == ORDERED ? qn_lanes(dtype, r->x, i) : scores_whole(dtype, r, i, form, vf_zero());
}

/* The highest of scores from `first` to `end`, which is at most the row's, and of those before by two vectors a and b. */
QN_INLINE float top_from(uint32_t dtype, const scores *r, int form, int64_t first, int64_t end, vf a, vf b) {
    int64_t i = first;
    for (; i + 2 * VF_N <= end; i += 2 * VF_N) {
        a = vf_max(ranks(dtype, r, i, form), a);
        b = vf_max(ranks(dtype, r, i + VF_N, form), b);
    }
    if (i + VF_N <= end) {
        a = vf_max(ranks(dtype, r, i, form), a);
        i += VF_N;
    }
    float top = vf_largest(vf_max(a, b));
    if (form == ORDERED) top *= r->scale;
    return i < end ? vf_largest(vf_max(scores_some(dtype, r, i, form, vf_zero()), vf_set1(top))) : top;
}

/* Where there is nothing but -Inf, weights are 0, and not of -Inf + Inf. */
static float base_of(float top) { return top == -INFINITY ? 0 : top; }

/* PIECE: elements of a piece, unless there would be more than PIECES; RUN: elements whose sum is one of floats; ASIDE: elements of a row
 * whose weights are kept aside; AHEAD: bytes before they are read, scores are asked for. */
enum { PIECE = 1024, PIECES = 256, RUN = 4096, ASIDE = 4096, AHEAD = 2048 };

/* A row that waits to be written, while the one behind it is read: where it will be, if there is one, and whether it goes there past the
 * caches; what it is made of. That is weights kept aside, of which it is a share, or for logarithms scores, of which the highest is taken
 * away and then the share: their sum would be rounded to the scores' digits. */
typedef struct waiting {
    char *y;
    const char *from;
    int past;
    float top;
} waiting;

/* What goes along from piece to piece: the highest score of the one at hand, what is known of its row's pieces, and a row before, whose
 * weights are aside until those of the row at hand take their place. */
typedef struct walk {
    int64_t each; /* elements of a piece */
    float top;
    double sums[PIECES];
    float tops[PIECES], share[PIECES]; /* share: of the row that waits */
    int past;                          /* rows are to go past the caches, where their addresses allow it */
    waiting wait;
    float aside[ASIDE];
} walk;

/* A piece: elements of a row from `first` to `end`. x is NULL in one that is not there. */
typedef struct piece {
    scores of;
    int64_t first, end;
} piece;

static piece piece_from(const walk *w, const scores *r, int64_t first) {
    return (piece){*r, first, r->n - first < w->each ? r->n : first + w->each};
}

QN_INLINE void put_waiting(uint32_t dtype, int log, waiting w, int64_t i, vf share) {
    vf v = log ? qn_lanes(dtype, w.from, i) - vf_set1(w.top) - share : qn_lanes(QN_DTYPE_F32, w.from, i) * share;
    if (w.past) qn_past_lanes(dtype, w.y, i, v);
    else {
        qn_far_ask(w.y + i * qn_float_bytes(dtype) + QN_FAR_AHEAD);
        qn_lanes_put(dtype, w.y, i, v);
    }
}
QN_INLINE void put_waiting_some(uint32_t dtype, int log, waiting w, int64_t i, vf share, int n) {
    if (n == VF_N) put_waiting(dtype, log, w, i, share);
    else if (log) qn_lanes_put_some(dtype, w.y, i, qn_lanes_some(dtype, w.from, i, n) - vf_set1(w.top) - share, n);
    else qn_lanes_put_some(dtype, w.y, i, qn_lanes_some(QN_DTYPE_F32, w.from, i, n) * share, n);
}
static void wait_for(uint32_t dtype, walk *w, const scores *r, char *y, const void *from, float top) {
    int whole = r->n % VF_N == 0 && (int64_t)(uintptr_t)y % (VF_N * qn_float_bytes(dtype)) == 0;
    w->wait = (waiting){y, from, w->past && whole, top};
}

/* Of a run: sums of weights, the highest scores of the piece behind, and how far that was read. */
typedef struct found {
    vf sum, other, a, b;
    int64_t seen;
} found;

/* The pairs of vectors from i to `end`; where they end. `before` may have constants in it. */
QN_INLINE int64_t weigh_pairs(uint32_t dtype, int log, int form, const piece *p, const piece *next, vf t, waiting before,
                              vf share, float *to, int64_t i, int64_t end, found *f) {
    int64_t size = qn_float_bytes(dtype), shift = next->first - p->first;
    for (; i + 2 * VF_N <= end; i += 2 * VF_N) {
        vf u = vf_exp_below(scores_whole(dtype, &p->of, i, form, t));
        vf v = vf_exp_below(scores_whole(dtype, &p->of, i + VF_N, form, t));
        if (before.y) put_waiting(dtype, log, before, i, share), put_waiting(dtype, log, before, i + VF_N, share);
        if (to) vf_store(to + i, u), vf_store(to + i + VF_N, v);
        f->sum += u;
        f->other += v;
        int64_t k = i + shift;
        if (k + 2 * VF_N > next->end) continue;
        __builtin_prefetch(next->of.x + k * size + AHEAD, 0, 3);
        if (VF_N * size * 2 > 64) __builtin_prefetch(next->of.x + (k + VF_N) * size + AHEAD, 0, 3);
        f->a = vf_max(ranks(dtype, &next->of, k, form), f->a);
        f->b = vf_max(ranks(dtype, &next->of, k + VF_N, form), f->b);
        f->seen = k + 2 * VF_N;
    }
    return i;
}

/* e^(x - top) of a piece into f32 when there is room for it, and their sum: lanes over runs, runs in double. Meanwhile the piece behind
 * is read to find its highest score and that of the row before is written, so that memory does not rest. */
QN_INLINE double weigh(uint32_t dtype, int log, int form, piece p, piece next, walk *w, vf share, float *to) {
    const vf t = vf_set1(base_of(w->top)), none = vf_set1(-INFINITY);
    const waiting before = w->wait, no = {NULL, NULL, 0, 0};
    const waiting far = {before.y, before.from, 0, before.top}, past = {before.y, before.from, 1, before.top};
    found f = {vf_zero(), vf_zero(), none, none, next.first};
    double sum = 0;
    for (int64_t first = p.first; first < p.end; first += RUN) {
        int64_t end = p.end < first + RUN ? p.end : first + RUN, i;
        f.sum = f.other = vf_zero();
        if (before.past) i = weigh_pairs(dtype, log, form, &p, &next, t, past, share, to, first, end, &f);
        else if (before.y) i = weigh_pairs(dtype, log, form, &p, &next, t, far, share, to, first, end, &f);
        else i = weigh_pairs(dtype, log, form, &p, &next, t, no, share, to, first, end, &f);
        for (; i < end; i += VF_N) {
            int n = end - i < VF_N ? (int)(end - i) : VF_N;
            vf u = vf_exp_below(n == VF_N ? scores_whole(dtype, &p.of, i, form, t) : scores_some(dtype, &p.of, i, form, t));
            if (before.y) put_waiting_some(dtype, log, before, i, share, n);
            if (to) vf_storen(to + i, u, n);
            f.sum += u;
        }
        sum += (double)vf_sum(f.sum + f.other);
    }
    if (next.of.x) w->top = top_from(dtype, &next.of, form, f.seen, next.end, f.a, f.b);
    return sum;
}

/* The weights of a row, piece by piece, each against its own highest score; how many pieces there are. `behind` is the row to read
 * next. */
QN_INLINE int weigh_row(uint32_t dtype, int log, int form, const scores *r, const scores *behind, walk *w, float *to) {
    int count = 0;
    for (int64_t first = 0; first < r->n; count++) {
        piece p = piece_from(w, r, first), next = p.end < r->n ? piece_from(w, r, p.end) : piece_from(w, behind, 0);
        w->tops[count] = w->top;
        w->sums[count] = weigh(dtype, log, form, p, next, w, vf_set1(w->wait.y ? w->share[count] : 0), to);
        first = p.end;
    }
    return count;
}

/* The highest of several pieces and `most`; the sum of their weights against it. share: what a piece's weights count in it. */
static double total_of(walk *w, int count, float *most) {
    double sum = 0;
    for (int k = 0; k < count; k++) *most = w->tops[k] > *most ? w->tops[k] : *most;
    *most = base_of(*most);
    for (int k = 0; k < count; k += VF_N) {
        int n = count - k < VF_N ? count - k : VF_N;
        vf_storen(w->share + k, vf_exp_below(vf_loadn(w->tops + k, n) - vf_set1(*most)), n);
    }
    for (int k = 0; k < count; k++) sum += w->sums[k] * (double)w->share[k];
    return sum;
}

/* A row too long to be kept aside: its weights are where its results will be, or are taken once more. */
QN_INLINE void finish_long(uint32_t dtype, int form, const scores *r, const walk *w, char *y) {
    int64_t k = 0;
    for (piece p = piece_from(w, r, 0); p.first < r->n; p = piece_from(w, r, p.end), k++) {
        vf share = vf_set1(w->share[k]), t = vf_set1(base_of(w->tops[k]));
        int64_t i = p.first;
        for (; i + VF_N <= p.end; i += VF_N) {
            vf v = dtype == QN_DTYPE_F32 ? qn_lanes(dtype, y, i) : vf_exp_below(scores_whole(dtype, r, i, form, t));
            qn_lanes_put(dtype, y, i, v * share);
        }
        int n = (int)(p.end - i);
        if (n == 0) continue;
        vf v = dtype == QN_DTYPE_F32 ? qn_lanes_some(dtype, y, i, n) : vf_exp_below(scores_some(dtype, r, i, form, t));
        qn_lanes_put_some(dtype, y, i, v * share, n);
    }
}

QN_INLINE void soft_max_row(uint32_t dtype, int form, const scores *r, const scores *behind, walk *w, char *y) {
    /* in place the scores are gone once weights are written; nothing reads them again */
    float *to = r->n <= ASIDE ? w->aside : dtype == QN_DTYPE_F32 ? (float *)(void *)y : NULL, most = r->sink;
    int count = weigh_row(dtype, 0, form, r, behind, w, to);
    if (count == 1 && r->sink == -INFINITY) w->share[0] = w->sums[0] == 0 ? 0 : (float)(1 / w->sums[0]);
    else {
        double sum = total_of(w, count, &most);
        if (r->sink != -INFINITY) sum += (double)vf_exp(vf_set1(r->sink - most))[0];
        double part = sum == 0 ? 0 : 1 / sum;
        for (int k = 0; k < count; k++) w->share[k] = (float)((double)w->share[k] * part);
    }
    if (to == w->aside) wait_for(dtype, w, r, y, to, 0);
    else finish_long(dtype, form, r, w, y);
}

static void soft_max_any(uint32_t dtype, const scores *r, const scores *behind, walk *w, char *y) {
#define ORDERED_OF(d) soft_max_row(d, ORDERED, r, behind, w, y)
#define ANY_OF(d) soft_max_row(d, ANY, r, behind, w, y)
    if (form_of(r) == ORDERED) QN_BY_FLOAT(dtype, ORDERED_OF);
    else QN_BY_FLOAT(dtype, ANY_OF);
#undef ORDERED_OF
#undef ANY_OF
}

/* The highest score of a piece that no other went before: whatever the form, by scores. */
static float top_of(uint32_t dtype, const piece *p) {
    vf none = vf_set1(-INFINITY);
#define CALL(d) return top_from(d, &p->of, ANY, p->first, p->end, none, none)
    QN_BY_FLOAT(dtype, CALL);
#undef CALL
}

QN_INLINE void log_row(uint32_t dtype, const scores *r, const scores *behind, walk *w, char *y) {
    float most = -INFINITY;
    int count = weigh_row(dtype, 1, ORDERED, r, behind, w, NULL);
    double sum = total_of(w, count, &most);
    float share = sum == 0 ? 0 : (float)log(sum); /* a row of nothing but -Inf stays as it is */
    for (int k = 0; k < count; k++) w->share[k] = share;
    wait_for(dtype, w, r, y, r->x, most);
}
static void log_any(uint32_t dtype, const scores *r, const scores *behind, walk *w, char *y) {
#define CALL(d) log_row(d, r, behind, w, y)
    QN_BY_FLOAT(dtype, CALL);
#undef CALL
}

/* ---- Ops */

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

typedef void (*row_fn)(uint32_t dtype, const scores *r, const scores *behind, walk *w, char *y);

static void start(walk *w, int64_t n, int past) {
    int64_t count = (n + PIECE - 1) / PIECE, pair = 2 * VF_N;
    if (count > PIECES) count = PIECES;
    w->each = ((n + count - 1) / count + pair - 1) / pair * pair;
    w->past = past;
    w->wait = (waiting){NULL, NULL, 0, 0};
}

static void put_last(uint32_t dtype, int log, const walk *w, const scores *r) {
    for (int64_t i = 0; w->wait.y && i < r->n; i += VF_N) {
        vf share = vf_set1(w->share[i / w->each]);
        int n = r->n - i < VF_N ? (int)(r->n - i) : VF_N;
#define CALL(d) put_waiting_some(d, log, w->wait, i, share, n)
        QN_BY_FLOAT(dtype, CALL);
#undef CALL
    }
}

static void run_rows(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    const scores none = {.sink = -INFINITY};
    int log = c->op == QN_OP_log_soft_max, past = qn_past_is(s, y, c->src, 1);
    row_fn each = log ? log_any : soft_max_any;
    scores r = none;
    char *to = NULL; /* where row r goes */
    walk along;
    (void)phase;
    start(&along, qn_ne(x, 0), past);
    QN_SOFTMAX_ROWS(it, x) { /* it is the row behind r */
        scores next = scores_of(c, &it);
        piece first = piece_from(&along, &next, 0);
        if (r.x) each(x->dtype, &r, &next, &along, to);
        else along.top = top_of(x->dtype, &first);
        r = next;
        to = qn_row(&it, y);
    }
    if (r.x) each(x->dtype, &r, &none, &along, to);
    put_last(x->dtype, log, &along, &r);
    if (past) qn_past_end();
}

static int forward(const qn_call *c, qn_cpu_step *s, const char *name) {
    return qn_softmax_can(c, 1) && (QN_K(softmax_short)(c, s) || qn_softmax_by_rows(c, s, name, run_rows));
}

int QN_K(soft_max)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *mask = c->n_src > 1 ? c->src[1] : NULL;
    if (QN_K(softmax_doubles)(c, s)) return 1;
    if (mask && (!qn_lanes_rows(mask) || qn_ne(mask, 0) != qn_ne(c->src[0], 0))) return 0;
    return forward(c, s, "soft_max rows");
}

int QN_K(softmax)(const qn_call *c, qn_cpu_step *s) {
    int axis = ((const qn_attr_softmax *)c->attr)->axis;
    if (!qn_softmax_is_last(c->src[0], axis)) return QN_K(softmax_down)(c, s, axis);
    if (QN_K(softmax_doubles)(c, s)) return 1;
    return forward(c, s, "softmax rows");
}

int QN_K(log_soft_max)(const qn_call *c, qn_cpu_step *s) {
    if (QN_K(softmax_doubles)(c, s)) return 1;
    return forward(c, s, "log_soft_max rows");
}
