/* argsort and top_k. The order is total: NaN above everything, equal keys by ascending index, so the result is one
 * permutation and not a matter of algorithm. Sorting is a merge sort over (key, index) in the workspace. */
#include <math.h>

#include "op/ref.h"

typedef struct keyed {
    double key;
    int64_t index;
} keyed;

static qn_status need_sortable(qn_infer_call *c) {
    const qn_tensor *a = c->src[0];
    int64_t n = qn_ne(a, 0), bytes;
    if (n > INT32_MAX) return qn_reject_src(c, 0, QN_REASON_SHAPE_LARGE, a->rank - 1, INT32_MAX, n);
    if (qn_mul_overflow(n, 2 * (int64_t)sizeof(keyed), &bytes))
        return qn_reject_src(c, 0, QN_REASON_SIZE_OVERFLOW, a->rank - 1, INT64_MAX, n);
    c->workspace = qn_tensor_count(a) ? (size_t)bytes : 0;
    return QN_OK;
}

qn_status qn_infer_argsort(qn_infer_call *c) {
    QN_TRY(need_sortable(c));
    qn_out_like(c, 0, c->src[0], QN_DTYPE_I32);
    return QN_OK;
}

qn_status qn_infer_top_k(qn_infer_call *c) {
    const qn_tensor *a = c->src[0];
    int64_t k = ((const qn_attr_top_k *)c->attr)->k;
    if (k > qn_ne(a, 0)) return qn_reject_attr(c, "k", QN_REASON_ATTR_VALUE, -1, qn_ne(a, 0), k);
    QN_TRY(need_sortable(c));
    qn_out_like(c, 0, a, QN_DTYPE_I32);
    c->out[0].d[a->rank - 1] = k;
    return QN_OK;
}

/* Whether x belongs before z in ascending order; equal keys (and two NaNs) say no. */
static int below(double x, double z) { return isnan(z) ? !isnan(x) : x < z; }

/* Merges two neighbouring sorted runs; of equals the left one goes first, which keeps the sort stable. */
static void merge(const keyed *in, int64_t left, int64_t middle, int64_t right, int descending, keyed *out) {
    int64_t i = left, k = middle;
    for (int64_t at = left; at < right; at++) {
        int take_right = i == middle || (k < right && (descending ? below(in[i].key, in[k].key) : below(in[k].key, in[i].key)));
        out[at] = take_right ? in[k++] : in[i++];
    }
}

static const keyed *sort(keyed *items, keyed *spare, int64_t n, int descending) {
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t left = 0; left < n; left += 2 * width) {
            int64_t middle = left + width < n ? left + width : n, right = middle + width < n ? middle + width : n;
            merge(items, left, middle, right, descending, spare);
        }
        keyed *swap = items;
        items = spare;
        spare = swap;
    }
    return items;
}

static void sort_rows(const qn_call *c, int descending) {
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    int64_t n = qn_ne(a, 0), keep = qn_ne(y, 0);
    keyed *items = c->workspace;
    qn_rows it;
    for (qn_rows_begin(&it, a->rank, a->shape); it.live; qn_rows_next(&it)) {
        const char *from = qn_row(&it, a);
        char *to = qn_row(&it, y);
        for (int64_t i = 0; i < n; i++) {
            qn_load_row(a, from, i, 1, &items[i].key);
            items[i].index = i;
        }
        const keyed *sorted = sort(items, items + n, n, descending);
        for (int64_t i = 0; i < keep; i++) {
            double index = (double)sorted[i].index;
            qn_store_row(y, to, i, 1, &index);
        }
    }
}

qn_status qn_ref_argsort(const qn_call *c) {
    sort_rows(c, ((const qn_attr_argsort *)c->attr)->order);
    return QN_OK;
}

qn_status qn_ref_top_k(const qn_call *c) {
    sort_rows(c, 1);
    return QN_OK;
}
