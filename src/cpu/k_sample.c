/* sample and softmax_sample over rows of f32. Both choose what the reference chooses: sums are doubles, and where noise is
 * added, scores in f32 only say which few could be the largest; those are scored again in double. Only of logits so near each other that
 * their weights are one double, as denormals are beside a top of 1, the reference takes the first and this the largest. */
#include <math.h>

#include "cpu/k_sort.h"
#include "cpu/simd/simd_codes.h"
#include "cpu/simd/simd_math.h"
#include "cpu/simd/simd_turn.h"
#include "cpu/simd/simd_wide.h"
#include "op/threefry.h"

enum { PARTS = 8, HEAP_SHARE = 16 };
#define EVERY_LANE ((1u << VF_N) - 1)

static int some_of(int64_t n, int64_t first) { return (int)(n - first < VF_N ? n - first : VF_N); }

/* ---- Rows */

/* The row with -Inf for what is no number, and its largest. */
static float clean(const float *x, int64_t n, float *to) {
    vf most = vf_set1(-INFINITY), none = most;
    for (int64_t i = 0; i < n; i += VF_N) {
        int some = some_of(n, i);
        vf v = vf_loadn(x + i, some);
        v = vf_select(v == v, v, none);
        if (to) vf_storen(to + i, v, some);
        most = vf_max(most, some == VF_N ? v : vf_select(vi_lanes() < some, v, none));
    }
    return vf_most(most);
}

/* The sum of e^((x - top) / t), of which an infinite top takes all. */
static double weight_of_row(const float *x, int64_t n, double top, double t) {
    vd low = vd_zero(), high = vd_zero();
    double sum = 0;
    int64_t i = 0;
    if (!isfinite(top)) {
        for (; i < n; i++) sum += (double)x[i] == top;
        return sum;
    }
    for (; i + VF_N <= n; i += VF_N) {
        vf v = vf_load(x + i);
        low += vd_exp((vd_low(v) - top) / t);
        high += vd_exp((vd_high(v) - top) / t);
    }
    sum = vd_sum(low + high);
    for (; i < n; i++) sum += exp(((double)x[i] - top) / t);
    return sum;
}

/* ---- Noise */

static inline vu turned(vu x, unsigned by) { return x << by | x >> (32 - by); }

/* The first word of qn_threefry for counters {row, index}, as 24 bits of a fraction. */
static vf fractions(uint32_t row, vu index, qn_words key) {
    static const unsigned turns[8] = {13, 15, 26, 6, 17, 29, 16, 24};
    const uint32_t keys[3] = {key.a, key.b, key.a ^ key.b ^ 0x1BD11BDAu};
    vu a = (vu)vi_set1((int32_t)(row + key.a)), b = index + key.b;
    QN_UNROLL
    for (unsigned round = 0; round < 20; round++) {
        a += b;
        b = turned(b, turns[round % 8]) ^ a;
        if (round % 4 != 3) continue;
        unsigned injection = round / 4 + 1;
        a += keys[injection % 3];
        b += keys[(injection + 1) % 3] + injection;
    }
    return vf_from_i((vi)(a >> 8)) * vf_set1(0x1p-24f);
}

typedef struct draw {
    const float *x;       /* of those that may be drawn */
    const int32_t *index; /* theirs; NULL: 0, 1, .. */
    int64_t n;
    double top, t;
    uint32_t row;
    qn_words key;
} draw;

static int64_t index_of(const draw *d, int64_t i) { return d->index ? d->index[i] : i; }

static double exact_score(const draw *d, int64_t i) {
    qn_words word = qn_threefry((qn_words){d->row, (uint32_t)index_of(d, i)}, d->key);
    double u = (double)(word.a >> 8) / 16777216, x = (double)d->x[i];
    return (x == d->top ? 0 : (x - d->top) / d->t) - log(-log(u > 1e-30 ? u : 1e-30));
}

/* f32 scores are off by less than MARGIN: of what can win, logits lie within 22 temperatures of the largest. No noise is above MOST_NOISE,
 * for fractions have 24 bits; so most logits of a row are too low to win, whatever theirs is. */
static const float MARGIN = 1e-3f, MOST_NOISE = 16.65f;

/* Index of the largest logit plus noise, the lowest on ties. */
static int64_t draw_one(const draw *d, float *score) {
    vf best = vf_set1(-INFINITY), top = vf_set1((float)d->top), by = vf_set1((float)(1 / d->t)), least = vf_set1(1e-30f);
    if (d->top == -INFINITY) return 0;
    for (int64_t i = 0; i < d->n; i += VF_N) {
        int32_t t[VF_N] = {0};
        int some = some_of(d->n, i);
        vi at = vi_lanes() + (int32_t)i;
        vf x = vf_loadn(d->x + i, some), far = vf_select(x == top, vf_zero(), (x - top) * by);
        if (vi_signs(far + vf_set1(MOST_NOISE) < best) == EVERY_LANE) {
            vf_storen(score + i, vf_set1(-INFINITY), some);
            continue;
        }
        if (d->index) {
            memcpy(t, d->index + i, (size_t)some * sizeof *t);
            memcpy(&at, t, sizeof at);
        }
        vf u = vf_max(fractions(d->row, (vu)at, d->key), least);
        vf s = far - vf_log(vf_zero() - vf_log(u));
        vf_storen(score + i, s, some);
        if (some < VF_N) s = vf_select(vi_lanes() < some, s, best);
        best = vf_max(best, s);
    }
    float near = vf_most(best) - MARGIN;
    int64_t chosen = -1;
    double most = -INFINITY;
    for (int64_t first = 0; first < d->n; first += VF_N) {
        int some = some_of(d->n, first);
        if (vi_signs(vf_loadn(score + first, some) < vf_set1(near)) == EVERY_LANE) continue;
        for (int64_t i = first; i < first + some; i++) {
            double s = score[i] < near ? -INFINITY : exact_score(d, i);
            if (s > most || (s == most && s > -INFINITY && index_of(d, i) < chosen)) {
                most = s;
                chosen = index_of(d, i);
            }
        }
    }
    return chosen < 0 ? 0 : chosen;
}

/* ---- What top_k, top_p and min_p leave */

typedef struct cut {
    const qn_attr_sample *at;
    const float *x;
    int64_t n;
    double top, t, sum;
    uint64_t *items; /* 2 n */
} cut;

static double share(const cut *c, uint64_t item) {
    double x = (double)c->x[(uint32_t)item];
    return (x == c->top ? 1 : exp((x - c->top) / c->t)) / c->sum;
}

/* How many of the sorted items are kept; *open when all are and more could be. */
static int64_t kept(const cut *c, const uint64_t *sorted, int64_t n, int *open) {
    double sum = 0, least = n ? (double)c->at->min_p * share(c, sorted[0]) : 0;
    *open = 0;
    for (int64_t i = 0; i < n; i++) {
        double p = share(c, sorted[i]);
        if (i > 0 && ((c->at->top_p < 1 && sum >= (double)c->at->top_p) || p < least)) return i;
        sum += p;
    }
    *open = !(c->at->top_p < 1 && sum >= (double)c->at->top_p);
    return n;
}

/* Sorts those that are near enough to the largest, and farther ones when these are not enough. Returns how many are kept. */
static int64_t keep(const cut *c, const uint64_t **sorted) {
    int64_t most = c->at->top_k > 0 && c->at->top_k < c->n ? c->at->top_k : c->n, many;
    int open;
    if (most <= c->n / HEAP_SHARE) {
        *sorted = qn_sort_first(c->x, c->n, most, 1, -1, c->items);
        return kept(c, *sorted, most, &open);
    }
    for (double reach = 4;; reach *= 4) {
        double limit = c->top - reach * c->t;
        int64_t n = 0;
        for (int64_t i = 0; i < c->n; i++)
            if ((double)c->x[i] >= limit) c->items[n++] = qn_sort_item(c->x[i], i, 1);
        *sorted = qn_sort_items(c->items, c->items + c->n, n);
        many = kept(c, *sorted, n < most ? n : most, &open);
        if (!open || n == c->n || many == most || reach > 1000) return many; /* farther away there is no weight left */
    }
}

/* ---- sample */

static int has_filter(const qn_attr_sample *at) { return at->top_k > 0 || at->top_p < 1 || at->min_p > 0; }

/* Scratch of a part: with a filter, items; then the row, scores, and what is kept with its indices. */
static int64_t floats_of(const qn_attr_sample *at, int64_t n) { return at->greedy ? 0 : has_filter(at) ? 8 * n : 2 * n; }

static int64_t sample_row(const qn_call *c, const float *row, int64_t n, uint32_t number, qn_words key, float *each) {
    const qn_attr_sample *at = c->attr;
    draw d = {.n = n, .t = fmax((double)at->temperature, 1e-6), .row = number, .key = key};
    if (at->greedy) {
        float top = clean(row, n, NULL);
        int64_t i = 0;
        while (top != -INFINITY && row[i] != top) i++;
        return i;
    }
    int filtered = has_filter(at);
    float *x = each + (filtered ? 4 * n : 0), *score = x + n, *few = score + n;
    int32_t *index = (int32_t *)(void *)(few + n);
    d.top = (double)clean(row, n, x);
    d.x = x;
    if (filtered && d.top != -INFINITY) {
        const uint64_t *sorted;
        cut f = {at, x, n, d.top, d.t, 1, (uint64_t *)(void *)each};
        if (at->top_p < 1) f.sum = weight_of_row(x, n, d.top, d.t);
        d.n = keep(&f, &sorted);
        for (int64_t i = 0; i < d.n; i++) {
            index[i] = (int32_t)(uint32_t)sorted[i];
            few[i] = x[index[i]];
        }
        d.x = few;
        d.index = index;
    }
    return draw_one(&d, score);
}

/* Where the result of a row is. */
static char *result_at(const qn_rows *it, const qn_tensor *x, const qn_tensor *y) {
    int64_t to = 0;
    for (int k = 1; k < x->rank; k++) to += it->index[x->rank - 1 - k] * qn_nb(y, k - 1);
    return qn_at(y, to);
}

static void run_sample(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *x = c->src[0], *seed = c->src[1];
    int64_t n = qn_ne(x, 0), rows = qn_tensor_count(x) / n, end = qn_cpu_cut(rows, s->parts[0], part + 1);
    uint64_t from = (uint64_t)qn_index4(seed, 0, 0, 0, 0), offset = (uint64_t)qn_index4(seed, 0, 0, 0, 1);
    qn_words key = qn_threefry((qn_words){(uint32_t)offset, (uint32_t)(offset >> 32)},
                               (qn_words){(uint32_t)from, (uint32_t)(from >> 32)});
    float *each = (float *)c->workspace + part * floats_of(c->attr, n);
    qn_rows it;
    (void)phase;
    for (qn_rows_begin_at(&it, x->rank, x->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it)) {
        const float *row = (const float *)(const void *)qn_row(&it, x);
        int32_t chosen = (int32_t)sample_row(c, row, n, (uint32_t)it.row, key, each);
        memcpy(result_at(&it, x, c->dst[0]), &chosen, sizeof chosen);
    }
}

static int is_rows(const qn_tensor *x) { return x->dtype == QN_DTYPE_F32 && (qn_ne(x, 0) == 1 || qn_nb(x, 0) == 4); }

/* Beyond some temperature different logits have the same weight, and it is the index that puts them in order. */
int QN_K(sample)(const qn_call *c, qn_cpu_step *s) {
    const qn_attr_sample *at = c->attr;
    const qn_tensor *x = c->src[0];
    int64_t n = qn_ne(x, 0), count = qn_tensor_count(x);
    if (count == 0 || !is_rows(x) || n > INT32_MAX / 64 || (has_filter(at) && at->temperature > 1000)) return 0;
    qn_cpu_by_rows(s, at->greedy ? "largest of rows" : "draws from rows", run_sample, count / n, 4.0 * (double)n,
                   at->greedy ? 0 : 20.0 * (double)n);
    if (s->parts[0] > PARTS) s->parts[0] = PARTS;
    s->workspace = (size_t)(s->parts[0] * floats_of(at, n)) * sizeof(float);
    return 1;
}

/* ---- softmax_sample */

enum { RUN = 1024 }; /* elements whose weights are added up before the place is looked for */

/* Of a logit beside the largest, which is above -Inf: one that is infinite takes all there is, one that is no number nothing. */
static inline double weight_of(double z, double most) { return z == most ? 1 : z < most ? exp(z - most) : 0; }
static inline vd weights_of(vd z, double most) {
    vd w = vd_exp(z - most);
    w = vd_select((vl)(z == vd_set1(most)), vd_set1(1.0), w);
    return vd_select((vl)(z == z), w, vd_zero());
}

static double run_weight(const float *x, int64_t n, double t, double most) {
    vd low = vd_zero(), high = vd_zero();
    for (int64_t i = 0; i + VF_N <= n; i += VF_N) {
        vf v = vf_load(x + i);
        low += weights_of(vd_low(v) / t, most);
        high += weights_of(vd_high(v) / t, most);
    }
    double sum = vd_sum(low + high);
    for (int64_t i = n / VF_N * VF_N; i < n; i++) sum += weight_of((double)x[i] / t, most);
    return sum;
}

/* The first index whose running sum is above r: by runs, then one by one. */
static int64_t search(const float *x, int64_t n, double t, double most, double total, double r) {
    int64_t last = 0, first = 0;
    double sum = 0;
    for (; first + RUN < n; first += RUN) {
        double more = run_weight(x + first, RUN, t, most) / total;
        if (sum + more > r) break;
        sum += more;
    }
    for (int64_t i = first; i < n; i++) {
        double p = weight_of((double)x[i] / t, most) / total;
        if (!(p > 0)) continue;
        sum += p;
        last = i;
        if (sum > r) return i;
    }
    while (last == 0 && --first > 0)
        if (weight_of((double)x[first] / t, most) / total > 0) last = first;
    return last;
}

static void run_softmax_sample(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *x = c->src[0], *r = c->src[1], *logprob = c->n_dst > 1 ? c->dst[1] : NULL;
    double t = (double)((const qn_attr_softmax_sample *)c->attr)->temperature;
    int64_t n = qn_ne(x, 0), rows = qn_tensor_count(x) / n, end = qn_cpu_cut(rows, s->parts[0], part + 1);
    qn_rows it;
    (void)phase;
    for (qn_rows_begin_at(&it, x->rank, x->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it)) {
        const float *row = (const float *)(const void *)qn_row(&it, x);
        double most = (double)clean(row, n, NULL) / t, total = NAN;
        int32_t found = 0;
        if (most > -INFINITY) { /* else nothing has a weight */
            total = 0;
            for (int64_t i = 0; i < n; i += RUN) total += run_weight(row + i, n - i < RUN ? n - i : RUN, t, most);
            found = (int32_t)search(row, n, t, most, total, qn_load_one((qn_dtype)r->dtype, result_at(&it, x, r)));
        }
        memcpy(result_at(&it, x, c->dst[0]), &found, sizeof found);
        double z = (double)row[found] / t, below = z == most && total > 0 ? 0 : z - most;
        if (logprob) qn_store_one((qn_dtype)logprob->dtype, result_at(&it, x, logprob), below - log(total));
    }
}

int QN_K(softmax_sample)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *x = c->src[0];
    int64_t n = qn_ne(x, 0), count = qn_tensor_count(x);
    if (count == 0 || !is_rows(x)) return 0;
    return qn_cpu_by_rows(s, "softmax draws", run_softmax_sample, count / n, 4.0 * (double)n, 20.0 * (double)n);
}
