/* argsort, top_k, top_k_pairs, knn and argmax over rows of f32, arg_reduce along any axis. An element and its index make one
 * number of 64 bits whose order is the op's order (NaN above everything, both zeros equal, equal keys by ascending index), so
 * no algorithm can change the result: all of a row is sorted by the bytes of the key, the few first are kept in a heap behind
 * a filter of vectors, or found one after the other where the row is short. */
#include <math.h>

#include "cpu/k_sort.h"
#include "cpu/k_columns.h"
#include "cpu/k_lanes.h"
#include "cpu/simd/simd_dot.h"
#include "op/op_axes.h"

/* Rows of up to RANKED elements are sorted by ranks, and of up to FEW the first are found so, too. */
enum { PARTS = 8, RANKED = 64, FEW = 16, HEAP_SHARE = 16, SHORT = 512, PICKS = 16 };

static const float lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* ---- All of a row */

/* How many come before each of n numbers, equals by ascending index: that asks no question whose answer would be guessed. */
static void rank_keys(const int32_t *key, int64_t n, int32_t *rank) {
    for (int64_t v = 0; v < n; v += VF_N) {
        vi k = (vi)vu_load((const uint32_t *)key + v), place = vi_from_f(vf_load(lanes)) + vi_set1((int32_t)v),
           before = vi_set1(0);
        for (int32_t j = 0; j < n; j++) {
            vi other = vi_set1(key[j]);
            before -= (other < k) | ((other == k) & (vi_set1(j) < place));
        }
        vf_store((float *)(void *)(rank + v), vf_of_bits(before));
    }
}

static const uint64_t *rank_sort(const uint64_t *a, uint64_t *to, int64_t n) {
    int32_t key[RANKED] = {0}, rank[RANKED];
    for (int64_t i = 0; i < n; i++)
        key[i] = (int32_t)((uint32_t)(a[i] >> 32) ^ 0x80000000u); /* as signed numbers they have the same order */
    rank_keys(key, n, rank);
    for (int64_t i = 0; i < n; i++) to[rank[i]] = a[i];
    return to;
}

/* Indices of a row of up to RANKED elements in its order, which is that of items: their keys by vectors, as signed numbers. */
static void rank_row(const float *x, int64_t n, int descending, int32_t *order) {
    int32_t key[RANKED], rank[RANKED];
    vi turn = vi_set1(descending ? -1 : 0);
    for (int64_t i = 0; i < n; i += VF_N) {
        vf v = qn_lanes_at(QN_DTYPE_F32, (const char *)x, i, n);
        vi b = vi_bits(v + vf_zero()), nan = v != v; /* -0 is 0 */
        vi k = (~nan & (b ^ ((b >> 31) & vi_set1(INT32_MAX)))) | (nan & vi_set1(INT32_MAX));
        vf_store((float *)(void *)(key + i), vf_of_bits(k ^ turn));
    }
    rank_keys(key, n, rank);
    for (int64_t i = 0; i < n; i++) order[rank[i]] = (int32_t)i;
}

/* By the four bytes of the key, lowest first; items come in order of their indices, which each pass keeps. */
static const uint64_t *radix_sort(uint64_t *a, uint64_t *spare, int64_t n) {
    int64_t count[4][256] = {{0}};
    for (int64_t i = 0; i < n; i++)
        for (int b = 0; b < 4; b++) count[b][a[i] >> (32 + 8 * b) & 255]++;
    for (int b = 0; b < 4; b++) {
        int64_t at = 0;
        if (count[b][a[0] >> (32 + 8 * b) & 255] == n) continue; /* all alike */
        for (int v = 0; v < 256; v++) {
            int64_t here = count[b][v];
            count[b][v] = at;
            at += here;
        }
        for (int64_t i = 0; i < n; i++) spare[count[b][a[i] >> (32 + 8 * b) & 255]++] = a[i];
        uint64_t *swap = a;
        a = spare;
        spare = swap;
    }
    return a;
}

const uint64_t *qn_sort_items(uint64_t *items, uint64_t *spare, int64_t n) {
    return n > RANKED ? radix_sort(items, spare, n) : rank_sort(items, spare, n);
}

static const uint64_t *sort_row(const float *x, int64_t n, int descending, uint64_t *items) {
    for (int64_t i = 0; i < n; i++) items[i] = qn_sort_item(x[i], i, descending);
    return qn_sort_items(items, items + n, n);
}

/* ---- The first k: a heap of items, the last of them at its root */

static void sink(uint64_t *heap, int64_t i, int64_t k) {
    uint64_t x = heap[i];
    for (int64_t child; (child = 2 * i + 1) < k; i = child) {
        if (child + 1 < k && heap[child + 1] > heap[child]) child++;
        if (heap[child] <= x) break;
        heap[i] = heap[child];
    }
    heap[i] = x;
}

static void offer(uint64_t *heap, int64_t k, uint64_t item) {
    if (item >= heap[0]) return;
    heap[0] = item;
    sink(heap, 0, k);
}

static int any_lane(vi mask) {
    uint64_t lane[VF_N / 2], any = 0;
    memcpy(lane, &mask, sizeof mask);
    for (int i = 0; i < VF_N / 2; i++) any |= lane[i];
    return any != 0;
}

/* ---- The first k of a short row, such as a router's: the largest is found k times, without a branch that would be guessed */

static int is_short(int64_t k, int64_t n) { return n <= SHORT && k <= PICKS && 2 * k <= n; }

/* 0: the heap must do it, since there is NaN, or what is taken out could not be told from what is there. */
static int pick_first(const float *x, int64_t n, int64_t k, uint64_t *items) {
    float left[SHORT + VF_N];
    vf nothing = vf_set1(-INFINITY), lane = vf_load(lanes);
    vi nan = vi_set1(0);
    for (int64_t i = 0; i < n; i += VF_N) {
        vf v = qn_lanes_at(QN_DTYPE_F32, (const char *)x, i, n);
        nan |= v != v;
        vf_store(left + i, vf_select(lane < vf_set1((float)(n - i)), v, nothing));
    }
    if (any_lane(nan)) return 0;
    for (int64_t j = 0; j < k; j++) {
        vf most = vf_load(left), at = lane;
        for (int64_t i = VF_N; i < n; i += VF_N) {
            vf v = vf_load(left + i);
            at = vf_select(v > most, lane + vf_set1((float)i), at);
            most = vf_max(v, most);
        }
        float largest = vf_largest(most);
        if (largest == -INFINITY) return 0;
        int64_t first = -(int64_t)vf_largest(vf_select(most == vf_set1(largest), vf_zero() - at, nothing)); /* of equals */
        items[j] = qn_sort_item(x[first], first, 1);
        left[first] = -INFINITY;
    }
    return 1;
}

const uint64_t *qn_sort_first(const float *x, int64_t n, int64_t k, int descending, int64_t skip, uint64_t *heap) {
    int64_t i = 0;
    if (descending && skip < 0 && is_short(k, n) && pick_first(x, n, k, heap)) return heap;
    for (int64_t have = 0; have < k; i++)
        if (i != skip) heap[have++] = qn_sort_item(x[i], i, descending);
    for (int64_t p = k / 2; p-- > 0;) sink(heap, p, k);
    for (; i + VF_N <= n; i += VF_N) { /* what does not come before the last of the heap comes behind it, also when it is equal */
        vf last = vf_set1(x[(uint32_t)heap[0]]), v = vf_load(x + i);
        if (!any_lane(descending ? ~(v <= last) : ~(v >= last))) continue;
        for (int j = 0; j < VF_N; j++)
            if (i + j != skip) offer(heap, k, qn_sort_item(x[i + j], i + j, descending));
    }
    for (; i < n; i++)
        if (i != skip) offer(heap, k, qn_sort_item(x[i], i, descending));
    for (int64_t last = k; last-- > 1;) {
        uint64_t most = heap[0];
        heap[0] = heap[last];
        heap[last] = most;
        sink(heap, 0, last);
    }
    return heap;
}

/* ---- Rows */

static int by_heap(int64_t k, int64_t n) { return n > FEW && (k <= n / HEAP_SHARE || is_short(k, n)); }
static int64_t items_of(int64_t k, int64_t n) { return by_heap(k, n) ? k : 2 * n; }

static void run_rows(const qn_call *c, const qn_cpu_step *s, int64_t part, int descending, int with_values) {
    const qn_tensor *x = c->src[0], *values = with_values ? c->dst[0] : NULL, *y = c->dst[with_values];
    int64_t n = qn_ne(x, 0), k = qn_ne(c->dst[0], 0), rows = qn_tensor_count(x) / n,
            end = qn_cpu_cut(rows, s->parts[0], part + 1);
    uint64_t *items = (uint64_t *)c->workspace + part * items_of(k, n);
    int32_t order[RANKED];
    qn_rows it;
    for (qn_rows_begin_at(&it, x->rank, x->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it)) {
        const float *row = (const float *)(const void *)qn_row(&it, x);
        int32_t *to = y ? (int32_t *)(void *)qn_row(&it, y) : NULL;
        float *kept = values ? (float *)(void *)qn_row(&it, values) : NULL;
        if (!by_heap(k, n) && n <= RANKED) {
            rank_row(row, n, descending, order);
            if (to) memcpy(to, order, (size_t)k * sizeof *to);
            for (int64_t i = 0; kept && i < k; i++) kept[i] = row[order[i]];
            continue;
        }
        const uint64_t *sorted = by_heap(k, n) ? qn_sort_first(row, n, k, 1, -1, items) : sort_row(row, n, descending, items);
        for (int64_t i = 0; to && i < k; i++) to[i] = (int32_t)(uint32_t)sorted[i];
        for (int64_t i = 0; kept && i < k; i++) kept[i] = row[(uint32_t)sorted[i]];
    }
}

static int is_row_of(const qn_tensor *t, uint32_t dtype) { return t->dtype == dtype && (qn_ne(t, 0) == 1 || qn_nb(t, 0) == 4); }

static int prepare(const qn_call *c, qn_cpu_step *s, const char *name, qn_cpu_run_fn run, int with_values) {
    const qn_tensor *x = c->src[0], *y = c->dst[0], *indices = c->dst[with_values];
    int64_t count = qn_tensor_count(x), bytes;
    if (!y || count == 0 || qn_tensor_count(y) == 0 || !is_row_of(x, QN_DTYPE_F32)) return 0;
    if (indices && !is_row_of(indices, QN_DTYPE_I32)) return 0;
    if (with_values && !is_row_of(y, QN_DTYPE_F32)) return 0;
    int64_t n = qn_ne(x, 0), k = qn_ne(y, 0);
    qn_cpu_by_rows(s, name, run, count / n, 4.0 * (double)n, by_heap(k, n) ? (double)n : 60.0 * (double)n);
    if (s->parts[0] > PARTS) s->parts[0] = PARTS;
    if (qn_mul_overflow(items_of(k, n), (int64_t)sizeof(uint64_t) * s->parts[0], &bytes)) return 0;
    s->workspace = (size_t)bytes;
    return 1;
}

static void run_argsort(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    run_rows(c, s, part, ((const qn_attr_argsort *)c->attr)->order, 0);
}
static void run_top_k(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    run_rows(c, s, part, 1, 0);
}
static void run_pairs(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    run_rows(c, s, part, 1, 1);
}

int QN_K(argsort)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, "sorted rows", run_argsort, 0); }
int QN_K(top_k)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, "largest of rows", run_top_k, 0); }
int QN_K(top_k_pairs)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, "largest of rows", run_pairs, 1); }

/* ---- knn: the first of a row in ascending order, its own element left out */

static void run_knn(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *x = c->src[0];
    int64_t n = qn_ne(x, 0), k = qn_ne(c->dst[0], 0), rows = qn_tensor_count(x) / n,
            end = qn_cpu_cut(rows, s->parts[0], part + 1);
    uint64_t *heap = (uint64_t *)c->workspace + part * k;
    qn_rows it;
    (void)phase;
    for (qn_rows_begin_at(&it, x->rank, x->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it)) {
        const float *row = (const float *)(const void *)qn_row(&it, x);
        int32_t *ids = (int32_t *)(void *)qn_row(&it, c->dst[0]);
        float *distances = (float *)(void *)qn_row(&it, c->dst[1]);
        qn_sort_first(row, n, k, 0, it.row % n, heap);
        for (int64_t i = 0; i < k; i++) {
            ids[i] = (int32_t)(uint32_t)heap[i];
            distances[i] = row[(uint32_t)heap[i]];
        }
    }
}

int QN_K(knn)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *x = c->src[0];
    int64_t n = qn_ne(x, 0), k = qn_ne(c->dst[0], 0), count = qn_tensor_count(x);
    if (count == 0 || !is_row_of(x, QN_DTYPE_F32) || !is_row_of(c->dst[0], QN_DTYPE_I32)) return 0;
    if (!is_row_of(c->dst[1], QN_DTYPE_F32)) return 0;
    qn_cpu_by_rows(s, "nearest of rows", run_knn, count / n, 4.0 * (double)n, 4.0 * (double)n);
    s->workspace = (size_t)(s->parts[0] * k) * sizeof(uint64_t);
    return 1;
}

/* ---- argmax and arg_reduce: the largest value first, then where it is. For the smallest, numbers are turned round. */

/* The first element that is best; n is that there is none. */
static int64_t first_of(const float *x, int64_t n, vf best, vf turn, int nan) {
    int64_t i = 0;
    for (; i + VF_N <= n; i += VF_N) {
        vf v = vf_load(x + i) * turn;
        if (any_lane(nan ? v != v : v == best)) break;
    }
    for (; i < n; i++)
        if (nan ? x[i] != x[i] : x[i] * turn[0] == best[0]) return i;
    return n;
}

/* The largest of a stretch, and whether there is a NaN. */
static float most_of(const float *x, int64_t n, vf turn, int *has_nan) {
    enum { AHEAD = 1024 }; /* elements, asked for in time: memory is read a tenth to a sixth faster */
    vf most[4];
    vi nan = {0};
    int64_t i = 0;
    for (int k = 0; k < 4; k++) most[k] = vf_set1(-INFINITY);
    for (; i + 4 * VF_N <= n; i += 4 * VF_N)
        for (int k = 0; k < 4; k++) {
            vf v = vf_load(x + i + k * VF_N) * turn;
            __builtin_prefetch(x + i + k * VF_N + AHEAD, 0, 3);
            most[k] = vf_max(v, most[k]);
            nan |= v != v;
        }
    *has_nan = any_lane(nan);
    float top = vf_largest(vf_max(vf_max(most[0], most[1]), vf_max(most[2], most[3])));
    for (; i < n; i++) {
        *has_nan |= x[i] != x[i];
        top = x[i] * turn[0] > top ? x[i] * turn[0] : top;
    }
    return top;
}

/* By stretches, of which only the first best is searched. */
static int64_t first_best(const float *x, int64_t n, float sign) {
    enum { STRETCH = 512 };
    vf turn = vf_set1(sign);
    float top = -INFINITY;
    int64_t where = 0;
    int has_nan = 0;
    for (int64_t i = 0; i < n && !has_nan; i += STRETCH) {
        float most = most_of(x + i, n - i < STRETCH ? n - i : STRETCH, turn, &has_nan);
        if (has_nan || most > top) {
            top = most;
            where = i;
        }
    }
    int64_t first = where + first_of(x + where, n - where, vf_set1(top), turn, has_nan);
    return first < n ? first : 0;
}

static void run_argmax(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    int64_t n = qn_ne(x, 0), rows = qn_ne(x, 1), end = qn_cpu_cut(rows, s->parts[0], part + 1);
    (void)phase;
    for (int64_t r = qn_cpu_cut(rows, s->parts[0], part); r < end; r++) {
        int32_t best = (int32_t)first_best((const float *)(const void *)qn_at(x, r * qn_nb(x, 1)), n, 1);
        memcpy(qn_at(y, r * qn_nb(y, 0)), &best, sizeof best);
    }
}

int QN_K(best)(const qn_call *c, qn_cpu_step *s); /* k_total.c: f64 and integers */

int QN_K(argmax)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    int64_t n = qn_ne(x, 0);
    if (x->dtype != QN_DTYPE_F32) return QN_K(best)(c, s);
    if (!is_row_of(x, QN_DTYPE_F32) || y->dtype != QN_DTYPE_I32 || qn_tensor_count(y) == 0 || n == 0) return 0;
    return qn_cpu_by_rows(s, "argmax rows", run_argmax, qn_ne(x, 1), 4.0 * (double)n, 0);
}

static qn_about about_of(const qn_call *c) {
    const qn_tensor *x = c->src[0];
    return qn_about_axis(x, qn_op_axis(((const qn_attr_arg_reduce *)c->attr)->axis, x->rank));
}

/* Columns side by side, whose elements are `inner` apart. The first NaN stays, for nothing is taken in its place. */
static void best_of_columns(const float *x, const qn_about *f, int some, float sign, int32_t *to) {
    vf turn = vf_set1(sign);
    float best[QN_ABREAST], places[QN_ABREAST] = {0}; /* places are bits */
    for (int k = 0; k < QN_ABREAST; k++) best[k] = k < some ? x[k] * sign : 0;
    for (int64_t i = 1; i < f->n; i++) {
        vf now = vf_of_bits(vi_set1((int32_t)i));
        x += f->inner;
        for (int k = 0; k < some; k += VF_N) {
            __builtin_prefetch(x + f->inner + k, 0, 3);
            vf v = vf_loadn(x + k, some - k < VF_N ? some - k : VF_N) * turn, so_far = vf_load(best + k);
            vi take = ~(v <= so_far) & (so_far == so_far);
            vf_store(best + k, vf_select(take, v, so_far));
            vf_store(places + k, vf_select(take, now, vf_load(places + k)));
        }
    }
    memcpy(to, places, (size_t)some * sizeof *to);
}

static void run_arg_reduce(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_about f = about_of(c);
    const float *x = (const float *)(const void *)qn_at(c->src[0], 0), sign = c->subop == QN_ARG_REDUCE_max ? 1 : -1;
    int32_t *y = (int32_t *)(void *)qn_at(c->dst[0], 0);
    int64_t units = qn_columns_units(f.outer, f.inner), end = qn_cpu_cut(units, s->parts[0], part + 1);
    (void)phase;
    for (int64_t u = qn_cpu_cut(units, s->parts[0], part); u < end; u++) {
        qn_columns b = qn_columns_at(f.outer, f.inner, u);
        if (f.inner == 1) y[u] = (int32_t)first_best(x + u * f.n, f.n, sign);
        else best_of_columns(x + b.outer * f.n * f.inner + b.first, &f, b.some, sign, y + b.outer * f.inner + b.first);
    }
}

int QN_K(arg_reduce)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    if (x->dtype != QN_DTYPE_F32) return QN_K(best)(c, s);
    if (qn_tensor_count(x) == 0 || !qn_cpu_is_dense(x) || !qn_cpu_is_dense(y)) return 0;
    qn_about f = about_of(c);
    int64_t units = qn_columns_units(f.outer, f.inner);
    return qn_cpu_by_rows(s, "arg_reduce", run_arg_reduce, units, 4.0 * (double)qn_tensor_count(x) / (double)units, 0);
}
