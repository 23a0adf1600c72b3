/* Drawing from logits. The weights of a row are its softmax, cut down by top_k, top_p and min_p; then each that is left gets
 * Gumbel noise of its own from a counter-based generator, and the largest wins. The noise depends on seed, offset, row and
 * index alone, so every backend can draw the same in any order. A logit that is not a number is never drawn; a row that has
 * nothing to draw from gives index 0. */
#include <math.h>

#include "op/product.h"
#include "op/threefry.h"

/* ---- Shape rule */

static int has_filter(const qn_attr_sample *at) { return at->top_k > 0 || at->top_p < 1 || at->min_p > 0; }

/* The workspace is a double for each weight, and behind them an index each when the largest must be found one by one. */
qn_status qn_infer_sample(qn_infer_call *c) {
    const qn_attr_sample *at = c->attr;
    const qn_tensor *logits = c->src[0];
    int64_t d[QN_MAX_RANK] = {1}, n = qn_ne(logits, 0);
    if (n == 0) return qn_reject_src(c, 0, QN_REASON_SHAPE_EMPTY, qn_axis(logits, 0), 1, 0);
    if (n > INT32_MAX) return qn_reject_src(c, 0, QN_REASON_SHAPE_LARGE, qn_axis(logits, 0), INT32_MAX, n);
    QN_TRY(qn_need_rank(c, 1, 1));
    QN_TRY(qn_need_extent(c, 1, 0, 2));
    c->flops_each = at->greedy ? (double)n : 20.0 * (double)n; /* a softmax, and a random number for each */
    for (int i = 0; i < logits->rank - 1; i++) d[i] = logits->shape[i];
    if (!at->greedy) c->workspace = (size_t)n * (sizeof(double) + (has_filter(at) ? sizeof(int32_t) : 0));
    return qn_out_shape(c, 0, QN_DTYPE_I32, logits->rank > 1 ? logits->rank - 1 : 1, d);
}

/* ---- Reference */

static double logit(const qn_tensor *logits, const char *row, int64_t i) {
    double x;
    qn_load_row(logits, row, i, 1, &x);
    return isnan(x) ? -INFINITY : x;
}

/* Index of the largest logit, the first on ties. */
static int64_t largest(const qn_tensor *logits, const char *row) {
    int64_t best = 0;
    double top = logit(logits, row, 0);
    for (int64_t i = 1; i < qn_ne(logits, 0); i++) {
        double x = logit(logits, row, i);
        if (x > top) {
            top = x;
            best = i;
        }
    }
    return best;
}

/* Softmax of the row at a temperature. An infinite logit takes all there is; a row of -Inf gives zeros. */
static void weigh(const qn_tensor *logits, const char *row, double temperature, double *p) {
    int64_t n = qn_ne(logits, 0);
    double top = logit(logits, row, largest(logits, row)), sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = logit(logits, row, i);
        p[i] = x == top ? 1 : exp((x - top) / temperature);
        if (top == -INFINITY) p[i] = 0;
        sum += p[i];
    }
    for (int64_t i = 0; i < n && sum > 0; i++) p[i] /= sum;
}

/* Whether weight a comes before weight b: larger, or as large and earlier. */
static int comes_before(const double *p, int32_t a, int32_t b) { return p[a] > p[b] || (p[a] == p[b] && a < b); }

/* Lets the entry at `at` sink to its place in a heap of n whose first comes before all others. */
static void sink(const double *p, int32_t *heap, int64_t n, int64_t at) {
    for (int64_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && comes_before(p, heap[child + 1], heap[child])) child++;
        if (!comes_before(p, heap[child], heap[at])) return;
        int32_t swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
        at = child;
    }
}

/* Takes the largest weights one by one until there are top_k or they make up top_p or fall below min_p of the largest; sets the
 * rest to zero and makes the others sum to one. */
static void cut(const qn_attr_sample *at, double *p, int32_t *heap, int64_t n) {
    int64_t left = n, most = at->top_k > 0 && at->top_k < n ? at->top_k : n;
    double sum = 0, least;
    for (int64_t i = 0; i < n; i++) heap[i] = (int32_t)i;
    for (int64_t i = n / 2 - 1; i >= 0; i--) sink(p, heap, n, i);
    least = (double)at->min_p * p[heap[0]];
    while (left > n - most) {
        if (left < n && ((at->top_p < 1 && sum >= (double)at->top_p) || p[heap[0]] < least)) break;
        sum += p[heap[0]];
        heap[0] = heap[--left];
        sink(p, heap, left, 0);
    }
    for (int64_t i = 0; i < left; i++) p[heap[i]] = 0;
    for (int64_t i = 0; i < n; i++) p[i] /= sum > 1e-12 ? sum : 1e-12;
}

/* Index of the largest ln p plus Gumbel noise. */
static int64_t draw(const double *p, int64_t n, qn_words key, uint32_t row) {
    int64_t best = 0;
    double top = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (!(p[i] > 0)) continue;
        qn_words word = qn_threefry((qn_words){row, (uint32_t)i}, key);
        double u = (double)(word.a >> 8) / 16777216, score = log(p[i]) - log(-log(u > 1e-30 ? u : 1e-30));
        if (score > top) {
            top = score;
            best = i;
        }
    }
    return best;
}

/* The key of a run: the offset, counted under the seed. */
static qn_words key_of(const qn_tensor *seed) {
    uint64_t s = (uint64_t)qn_index4(seed, 0, 0, 0, 0), offset = (uint64_t)qn_index4(seed, 0, 0, 0, 1);
    return qn_threefry((qn_words){(uint32_t)offset, (uint32_t)(offset >> 32)}, (qn_words){(uint32_t)s, (uint32_t)(s >> 32)});
}

qn_status qn_ref_sample(const qn_call *c) {
    const qn_attr_sample *at = c->attr;
    const qn_tensor *logits = c->src[0], *y = c->dst[0];
    int64_t n = qn_ne(logits, 0), shape[QN_MAX_RANK];
    double *p = c->workspace, temperature = fmax((double)at->temperature, 1e-6);
    qn_words key = key_of(c->src[1]);
    qn_rows it;
    memcpy(shape, logits->shape, sizeof shape);
    for (qn_rows_begin(&it, logits->rank, shape); it.live; qn_rows_next(&it)) {
        const char *row = qn_row(&it, logits);
        int64_t to = 0, chosen;
        for (int k = 1; k < logits->rank; k++) to += it.index[logits->rank - 1 - k] * qn_nb(y, k - 1);
        if (at->greedy) chosen = largest(logits, row);
        else {
            weigh(logits, row, temperature, p);
            if (has_filter(at)) cut(at, p, (int32_t *)(void *)(p + n), n);
            chosen = draw(p, n, key, (uint32_t)it.row);
        }
        qn_store_one(QN_DTYPE_I32, qn_at(y, to), (double)chosen);
    }
    return QN_OK;
}

/* ---- By one number for each row */

qn_status qn_infer_softmax_sample(qn_infer_call *c) {
    const qn_tensor *logits = c->src[0], *r = c->src[1];
    int64_t d[QN_MAX_RANK] = {1}, n = qn_ne(logits, 0);
    int rank = logits->rank > 1 ? logits->rank - 1 : 1;
    if (n == 0) return qn_reject_src(c, 0, QN_REASON_SHAPE_EMPTY, qn_axis(logits, 0), 1, 0);
    if (n > INT32_MAX) return qn_reject_src(c, 0, QN_REASON_SHAPE_LARGE, qn_axis(logits, 0), INT32_MAX, n);
    for (int i = 0; i < logits->rank - 1; i++) d[i] = logits->shape[i];
    for (int k = 0; k < (r->rank > rank ? r->rank : rank); k++) QN_TRY(qn_need_extent(c, 1, k, qn_ne(logits, k + 1)));
    QN_TRY(qn_need_f64_pair(c, 1, 0));
    c->flops_each = 10.0 * (double)n;
    QN_TRY(qn_out_shape(c, 0, QN_DTYPE_I32, rank, d));
    return qn_out_shape(c, 1, qn_product_dtype(logits), rank, d);
}

/* A logit's weight beside the largest: one that is infinite takes all there is, one that is no number nothing. */
static double weight_of(double z, double most) { return z == most ? most > -INFINITY : z < most ? exp(z - most) : 0; }

/* The first index whose running sum is above r; the last that has any weight when rounding keeps the sum below it. */
static int64_t search(const qn_tensor *x, const char *row, int64_t n, double t, double most, double total, double r) {
    int64_t last = 0;
    double sum = 0, v;
    for (int64_t i = 0; i < n; i++) {
        qn_load_row(x, row, i, 1, &v);
        double p = weight_of(v / t, most) / total;
        if (!(p > 0)) continue;
        sum += p;
        last = i;
        if (sum > r) break;
    }
    return last;
}

qn_status qn_ref_softmax_sample(const qn_call *c) {
    const qn_tensor *x = c->src[0], *r = c->src[1], *y = c->dst[0], *logprob = c->n_dst > 1 ? c->dst[1] : NULL;
    double t = (double)((const qn_attr_softmax_sample *)c->attr)->temperature;
    qn_rows it;
    for (qn_rows_begin(&it, x->rank, x->shape); it.live; qn_rows_next(&it)) {
        const char *row = qn_row(&it, x);
        double most = -INFINITY, total = 0, v;
        int64_t at_r = 0, at_y = 0, at_p = 0;
        for (int k = 1; k < x->rank; k++) {
            int64_t index = it.index[x->rank - 1 - k];
            at_r += index * qn_nb(r, k - 1);
            at_y += index * qn_nb(y, k - 1);
            if (logprob) at_p += index * qn_nb(logprob, k - 1);
        }
        for (int64_t i = 0; i < it.n; i++) {
            qn_load_row(x, row, i, 1, &v);
            if (v / t > most) most = v / t;
        }
        for (int64_t i = 0; i < it.n; i++) {
            qn_load_row(x, row, i, 1, &v);
            total += weight_of(v / t, most);
        }
        int64_t found = search(x, row, it.n, t, most, total, qn_load_one((qn_dtype)r->dtype, qn_at(r, at_r)));
        qn_store_one(QN_DTYPE_I32, qn_at(y, at_y), (double)found);
        qn_load_row(x, row, found, 1, &v);
        double below = v / t == most && total > 0 ? 0 : v / t - most;
        if (logprob) qn_store_one((qn_dtype)logprob->dtype, qn_at(logprob, at_p), below - log(total));
    }
    return QN_OK;
}
