/* Elements and slices by index: gather and scatter_add take whole slices across one axis, gather_along and scatter_along_add one
 * element of each lane; top_k_pairs, whose gradient is one of them; one_hot. Indices were found in range before any of this runs.
 *
 * Sums into one place are taken in double, in the order of the indices, and rounded once: the updates of each place are first
 * chained in the workspace, head[place] to next[update] and on to -1. */
#include <math.h>

#include "op/integer.h"
#include "op/op_axes.h"
#include "op/op_emit.h"
#include "op/op_layout.h"

enum { LAST = QN_MAX_RANK - 1 };

/* ---- Shape rules */

/* The shape of `table` with the axes of idx in the place of axis k; blames idx when that has too many axes. */
static qn_status gathered_shape(qn_infer_call *c, int table, int idx, int k, int *rank, int64_t *d) {
    const qn_tensor *t = c->src[table], *i = c->src[idx];
    int most = QN_MAX_RANK - (t->rank - 1), axis = qn_op_front(t->rank, k), n = 0;
    if (i->rank > most) return qn_reject_src(c, idx, QN_REASON_SHAPE_RANK, -1, most, i->rank);
    for (int j = 0; j < axis; j++) d[n++] = t->shape[j];
    for (int j = 0; j < i->rank; j++) d[n++] = i->shape[j];
    for (int j = axis + 1; j < t->rank; j++) d[n++] = t->shape[j];
    *rank = n;
    return QN_OK;
}

qn_status qn_infer_gather(qn_infer_call *c) {
    const qn_tensor *table = c->src[0];
    int32_t axis = ((const qn_attr_gather *)c->attr)->axis;
    int64_t d[QN_MAX_RANK];
    int rank;
    QN_TRY(qn_op_axis_check(c, axis, table->rank));
    int k = qn_op_axis(axis, table->rank);
    QN_TRY(gathered_shape(c, 0, 1, k, &rank, d));
    if (k == 0 && qn_is_block(table->dtype)) return qn_reject_src(c, 0, QN_REASON_DTYPE_CLASS, -1, 0, table->dtype);
    c->index_limit[1] = qn_ne(table, k);
    return qn_out_shape(c, 0, table->dtype, rank, d);
}

/* Room for the chains of `updates` updates of `places` places. */
static qn_status chain_workspace(qn_infer_call *c, int slot, int64_t places, int64_t updates) {
    int64_t n, bytes;
    if (qn_add_overflow(places, updates, &n) || qn_mul_overflow(n, (int64_t)sizeof(int64_t), &bytes))
        return qn_reject_src(c, slot, QN_REASON_SIZE_OVERFLOW, c->src[slot]->rank - 1, INT64_MAX, updates);
    c->workspace = updates ? (size_t)bytes : 0;
    return QN_OK;
}

qn_status qn_infer_scatter_add(qn_infer_call *c) {
    const qn_tensor *a = c->src[0], *u = c->src[1];
    int32_t axis = ((const qn_attr_scatter_add *)c->attr)->axis;
    int64_t d[QN_MAX_RANK];
    int rank;
    QN_TRY(qn_op_axis_check(c, axis, a->rank));
    int k = qn_op_axis(axis, a->rank);
    QN_TRY(gathered_shape(c, 0, 2, k, &rank, d));
    for (int j = 0; j < rank || j < u->rank; j++) QN_TRY(qn_need_extent(c, 1, j, j < rank ? d[rank - 1 - j] : 1));
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    QN_TRY(chain_workspace(c, 2, qn_ne(a, k), qn_tensor_count(c->src[2])));
    c->index_limit[2] = qn_ne(a, k);
    qn_out_like(c, 0, a, a->dtype);
    return QN_OK;
}

/* Rejects indices that differ from a in any axis but k. */
static qn_status need_lanes(qn_infer_call *c, int idx, const qn_tensor *a, int k) {
    const qn_tensor *t = c->src[idx];
    for (int j = 0; j < a->rank || j < t->rank; j++)
        if (j != k) QN_TRY(qn_need_extent(c, idx, j, qn_ne(a, j)));
    return QN_OK;
}

qn_status qn_infer_gather_along(qn_infer_call *c) {
    const qn_tensor *a = c->src[0];
    int32_t axis = ((const qn_attr_gather_along *)c->attr)->axis;
    QN_TRY(qn_op_axis_check(c, axis, a->rank));
    int k = qn_op_axis(axis, a->rank);
    QN_TRY(need_lanes(c, 1, a, k));
    c->index_limit[1] = qn_ne(a, k);
    return qn_out_shape(c, 0, a->dtype, c->src[1]->rank, c->src[1]->shape);
}

qn_status qn_infer_scatter_along_add(qn_infer_call *c) {
    const qn_tensor *a = c->src[0];
    int32_t axis = ((const qn_attr_scatter_along_add *)c->attr)->axis;
    QN_TRY(qn_op_axis_check(c, axis, a->rank));
    int k = qn_op_axis(axis, a->rank);
    QN_TRY(need_lanes(c, 2, a, k));
    QN_TRY(qn_need_same_shape(c, 1, 2));
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    QN_TRY(chain_workspace(c, 2, qn_ne(a, k), qn_ne(c->src[2], k)));
    c->index_limit[2] = qn_ne(a, k);
    qn_out_like(c, 0, a, a->dtype);
    return QN_OK;
}

qn_status qn_infer_top_k_pairs(qn_infer_call *c) {
    const qn_tensor *x = c->src[0];
    int64_t k = ((const qn_attr_top_k_pairs *)c->attr)->k, n = qn_ne(x, 0), bytes;
    if (k > n) return qn_reject_attr(c, "k", QN_REASON_ATTR_HIGH, -1, qn_f_bits((double)n), qn_f_bits((double)k));
    if (n > INT32_MAX) return qn_reject_src(c, 0, QN_REASON_SHAPE_LARGE, x->rank - 1, INT32_MAX, n);
    bytes = k * (int64_t)sizeof(int64_t); /* k is at most n here */
    c->workspace = qn_tensor_count(x) ? (size_t)bytes : 0;
    c->flops_each = (double)n / (double)k; /* each element is looked at once, most of them no more than that */
    for (int i = 0; i < 2; i++) {
        qn_out_like(c, i, x, i ? (uint32_t)QN_DTYPE_I32 : x->dtype);
        c->out[i].d[x->rank - 1] = k;
    }
    return QN_OK;
}

qn_status qn_infer_one_hot(qn_infer_call *c) {
    const qn_attr_one_hot *at = c->attr;
    const qn_tensor *idx = c->src[0];
    uint32_t dtype = at->dtype ? (uint32_t)at->dtype : QN_DTYPE_F32;
    int64_t d[QN_MAX_RANK];
    int rank = idx->rank + 1;
    if (rank > QN_MAX_RANK) return qn_reject_src(c, 0, QN_REASON_SHAPE_RANK, -1, QN_MAX_RANK - 1, idx->rank);
    QN_TRY(qn_op_axis_check(c, at->axis, rank));
    int k = qn_op_axis(at->axis, rank);
    for (int j = 0; j < rank; j++) d[rank - 1 - j] = j == k ? at->depth : qn_ne(idx, j < k ? j : j - 1);
    if (qn_is_block(dtype)) return qn_reject_attr(c, "dtype", QN_REASON_DTYPE_CLASS, -1, 0, dtype);
    c->index_limit[0] = at->depth;
    return qn_out_shape(c, 0, dtype, rank, d);
}

/* ---- References: slices */

/* A tensor without n of its axes from k on, beginning `offset` bytes later; `rank` is how many it has altogether. */
static qn_tensor without_axes(const qn_tensor *t, int rank, int k, int n, int64_t offset) {
    qn_tensor s = *t;
    s.rank = rank > n ? rank - n : 1;
    s.shape[0] = 1; /* when no axis is left */
    s.stride[0] = qn_dtype_bytes(t->dtype);
    s.offset += offset;
    for (int j = 0; j < rank - n; j++) {
        int from = j < k ? j : j + n;
        s.shape[s.rank - 1 - j] = qn_ne(t, from);
        s.stride[s.rank - 1 - j] = qn_nb(t, from);
    }
    return s;
}

/* Byte offset of number p of the n axes from k on, counted in logical order over the shape of idx. */
static int64_t offset_of(const qn_tensor *t, int k, const qn_tensor *idx, int64_t p) {
    int64_t offset = 0;
    for (int j = 0; j < idx->rank; j++) {
        offset += p % qn_ne(idx, j) * qn_nb(t, k + j);
        p /= qn_ne(idx, j);
    }
    return offset;
}

static int64_t index_at(const qn_tensor *idx, int64_t p) {
    return qn_load_index((qn_dtype)idx->dtype, qn_at(idx, offset_of(idx, 0, idx, p)));
}

qn_status qn_ref_gather(const qn_call *c) {
    const qn_tensor *table = c->src[0], *idx = c->src[1], *y = c->dst[0];
    int k = qn_op_axis(((const qn_attr_gather *)c->attr)->axis, table->rank), rank = table->rank - 1 + idx->rank;
    int64_t n = qn_tensor_count(y) ? qn_tensor_count(idx) : 0;
    for (int64_t p = 0; p < n; p++) {
        qn_tensor from = without_axes(table, table->rank, k, 1, index_at(idx, p) * qn_nb(table, k));
        qn_tensor to = without_axes(y, rank, k, idx->rank, offset_of(y, k, idx, p));
        qn_copy(&to, &from);
    }
    return QN_OK;
}

/* Chains updates by place: last to first, so that each chain runs in the order of the updates. */
static void chain(int64_t *head, int64_t places, int64_t *next, int64_t updates, const qn_tensor *lane, const char *indices) {
    for (int64_t i = 0; i < places; i++) head[i] = -1;
    for (int64_t p = updates - 1; p >= 0; p--) {
        int64_t place = indices ? qn_load_index((qn_dtype)lane->dtype, indices + p * qn_nb(lane, 0)) : index_at(lane, p);
        next[p] = head[place];
        head[place] = p;
    }
}

/* Adds the slices of a chain onto one slice of y. */
static void add_chain(const qn_tensor *to, const qn_tensor *u, int rank, int k, const qn_tensor *idx, const int64_t *next,
                      int64_t first) {
    double sum[QN_RUN], more[QN_RUN];
    qn_rows it;
    for (qn_rows_begin(&it, to->rank, to->shape); it.live; qn_rows_next(&it))
        for (int64_t i = 0; i < it.n; i += QN_RUN) {
            int64_t n = it.n - i < QN_RUN ? it.n - i : QN_RUN;
            qn_load_row(to, qn_row(&it, to), i, n, sum);
            for (int64_t p = first; p >= 0; p = next[p]) {
                qn_tensor from = without_axes(u, rank, k, idx->rank, offset_of(u, k, idx, p));
                qn_load_row(&from, qn_row(&it, &from), i, n, more);
                for (int64_t j = 0; j < n; j++) sum[j] += more[j];
            }
            qn_store_row(to, qn_row(&it, to), i, n, sum);
        }
}

qn_status qn_ref_scatter_add(const qn_call *c) {
    const qn_tensor *a = c->src[0], *u = c->src[1], *idx = c->src[2], *y = c->dst[0];
    int k = qn_op_axis(((const qn_attr_scatter_add *)c->attr)->axis, a->rank), rank = a->rank - 1 + idx->rank;
    int64_t places = qn_ne(a, k), updates = qn_tensor_count(idx), *head = c->workspace;
    if (!qn_op_in_place(y, a)) qn_copy(y, a);
    if (updates == 0) return QN_OK;
    chain(head, places, head + places, updates, idx, NULL);
    for (int64_t i = 0; i < places; i++) {
        qn_tensor to = without_axes(y, a->rank, k, 1, i * qn_nb(y, k));
        if (head[i] >= 0) add_chain(&to, u, rank, k, idx, head + places, head[i]);
    }
    return QN_OK;
}

/* ---- References: lanes */

qn_status qn_ref_gather_along(const qn_call *c) {
    int k = qn_op_axis(((const qn_attr_gather_along *)c->attr)->axis, c->src[0]->rank);
    qn_tensor a = qn_op_lanes(c->src[0], k), idx = qn_op_lanes(c->src[1], k), y = qn_op_lanes(c->dst[0], k);
    size_t bytes = (size_t)qn_dtype_bytes(a.dtype);
    qn_rows it;
    for (qn_rows_begin(&it, QN_MAX_RANK, idx.shape); it.live; qn_rows_next(&it)) {
        const char *from = qn_row(&it, &a), *at = qn_row(&it, &idx);
        char *to = qn_row(&it, &y);
        for (int64_t i = 0; i < it.n; i++) {
            int64_t place = qn_load_index((qn_dtype)idx.dtype, at + i * idx.stride[LAST]);
            memcpy(to + i * y.stride[LAST], from + place * a.stride[LAST], bytes);
        }
    }
    return QN_OK;
}

qn_status qn_ref_scatter_along_add(const qn_call *c) {
    int k = qn_op_axis(((const qn_attr_scatter_along_add *)c->attr)->axis, c->src[0]->rank);
    qn_tensor u = qn_op_lanes(c->src[1], k), idx = qn_op_lanes(c->src[2], k), y = qn_op_lanes(c->dst[0], k);
    int64_t places = y.shape[LAST], *head = c->workspace;
    qn_rows it;
    if (!qn_op_in_place(c->dst[0], c->src[0])) qn_copy(c->dst[0], c->src[0]);
    for (qn_rows_begin(&it, QN_MAX_RANK, idx.shape); it.live; qn_rows_next(&it)) {
        int64_t *next = head + places;
        chain(head, places, next, it.n, &idx, qn_row(&it, &idx));
        for (int64_t i = 0; i < places; i++) {
            double sum, more;
            if (head[i] < 0) continue;
            qn_load_row(&y, qn_row(&it, &y), i, 1, &sum);
            for (int64_t p = head[i]; p >= 0; p = next[p]) {
                qn_load_row(&u, qn_row(&it, &u), p, 1, &more);
                sum += more;
            }
            qn_store_row(&y, qn_row(&it, &y), i, 1, &sum);
        }
    }
    return QN_OK;
}

qn_status qn_ref_one_hot(const qn_call *c) {
    const qn_attr_one_hot *at = c->attr;
    const qn_tensor *idx = c->src[0];
    int k = qn_op_axis(at->axis, idx->rank + 1);
    qn_tensor y = qn_op_lanes(c->dst[0], k);
    int64_t n = qn_tensor_count(idx), p = 0;
    double on = (double)at->on;
    qn_rows it;
    qn_fill(c->dst[0], (double)at->off);
    if (n == 0) return QN_OK;
    for (qn_rows_begin(&it, QN_MAX_RANK, y.shape); it.live; qn_rows_next(&it), p++)
        qn_store_row(&y, qn_row(&it, &y), index_at(idx, p), 1, &on); /* the other axes of y are those of idx, in order */
    return QN_OK;
}

/* ---- References: the k largest, by a heap of k indices whose root is the last in rank */

typedef struct ranked {
    const qn_tensor *x;
    const char *row;
} ranked;

/* Whether element i comes before element j: it is larger, NaN being largest, or equal with the lower index. */
static int before(const ranked *r, int64_t i, int64_t j) {
    qn_dtype dtype = (qn_dtype)r->x->dtype;
    if (qn_is_integer(dtype)) {
        int64_t a = qn_load_index(dtype, r->row + i * qn_nb(r->x, 0)), b = qn_load_index(dtype, r->row + j * qn_nb(r->x, 0));
        return a != b ? a > b : i < j;
    }
    double a, b;
    qn_load_row(r->x, r->row, i, 1, &a);
    qn_load_row(r->x, r->row, j, 1, &b);
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b) ? i < j : isnan(a);
    return a != b ? a > b : i < j;
}

/* Lets the element at the root of heap[at..n) sink to where it belongs. */
static void sink(const ranked *r, int64_t *heap, int64_t at, int64_t n) {
    for (;;) {
        int64_t last = at, left = 2 * at + 1;
        if (left < n && before(r, heap[last], heap[left])) last = left;
        if (left + 1 < n && before(r, heap[last], heap[left + 1])) last = left + 1;
        if (last == at) return;
        int64_t swap = heap[at];
        heap[at] = heap[last];
        heap[last] = swap;
        at = last;
    }
}

static void choose(const ranked *r, int64_t *heap, int64_t k, int64_t n) {
    for (int64_t i = 0; i < k; i++) heap[i] = i;
    for (int64_t i = k / 2 - 1; i >= 0; i--) sink(r, heap, i, k);
    for (int64_t i = k; i < n; i++) {
        if (!before(r, i, heap[0])) continue;
        heap[0] = i;
        sink(r, heap, 0, k);
    }
    for (int64_t i = k - 1; i > 0; i--) { /* the root is the last: it goes to the end */
        int64_t last = heap[0];
        heap[0] = heap[i];
        heap[i] = last;
        sink(r, heap, 0, i);
    }
}

qn_status qn_ref_top_k_pairs(const qn_call *c) {
    const qn_tensor *x = c->src[0], *values = c->dst[0], *indices = c->dst[1];
    int64_t k = qn_ne(values, 0), *heap = c->workspace;
    size_t bytes = (size_t)qn_dtype_bytes(x->dtype);
    qn_rows it;
    for (qn_rows_begin(&it, x->rank, x->shape); it.live; qn_rows_next(&it)) {
        ranked r = {x, qn_row(&it, x)};
        char *to = qn_row(&it, values), *at = qn_row(&it, indices);
        choose(&r, heap, k, it.n);
        for (int64_t i = 0; i < k; i++) {
            memcpy(to + i * qn_nb(values, 0), r.row + heap[i] * qn_nb(x, 0), bytes);
            qn_store_integer(QN_DTYPE_I32, at + i * qn_nb(indices, 0), heap[i]);
        }
    }
    return QN_OK;
}

/* ---- Gradients */

/* Zeros to scatter g onto, in the shape of a source. */
static qn_val nothing_yet(qn_vjp_call *v, qn_val like, qn_val g) {
    return qn_e_zeros(v, qn_e_cast(v, like, qn_shape_of(v, g).dtype));
}

void qn_vjp_gather(qn_vjp_call *v) {
    qn_attr_scatter_add at = qn_attr_scatter_add_default();
    at.axis = ((const qn_attr_gather *)v->attr)->axis;
    if (!v->want[0]) return;
    v->out[0] = qn_emit3(v, QN_OP_scatter_add, 0, &at, nothing_yet(v, v->src[0], v->grad[0]), v->grad[0], v->src[1]);
}

void qn_vjp_scatter_add(qn_vjp_call *v) {
    qn_attr_gather at = qn_attr_gather_default();
    qn_shape a = qn_shape_of(v, v->src[0]), g = qn_shape_of(v, v->grad[0]);
    at.axis = -1 - qn_op_axis(((const qn_attr_scatter_add *)v->attr)->axis, a.rank);
    if (v->want[0]) v->out[0] = v->grad[0];
    if (!v->want[1]) return;
    qn_val like_a = g.rank == a.rank ? v->grad[0] : qn_e_like(v, v->grad[0], v->src[0]);
    v->out[1] = qn_emit2(v, QN_OP_gather, 0, &at, like_a, v->src[2]);
}

static void along_gradient(qn_vjp_call *v, qn_val g, qn_val idx, int32_t axis) {
    qn_attr_scatter_along_add at = qn_attr_scatter_along_add_default();
    at.axis = axis;
    v->out[0] = qn_emit3(v, QN_OP_scatter_along_add, 0, &at, nothing_yet(v, v->src[0], g), g, idx);
}

void qn_vjp_gather_along(qn_vjp_call *v) {
    if (v->want[0]) along_gradient(v, v->grad[0], v->src[1], ((const qn_attr_gather_along *)v->attr)->axis);
}

void qn_vjp_top_k_pairs(qn_vjp_call *v) {
    if (v->want[0] && v->grad[0] != QN_VAL_NONE) along_gradient(v, v->grad[0], v->dst[1], -1);
}

void qn_vjp_scatter_along_add(qn_vjp_call *v) {
    qn_attr_gather_along at = qn_attr_gather_along_default();
    qn_shape a = qn_shape_of(v, v->src[0]);
    at.axis = -1 - qn_op_axis(((const qn_attr_scatter_along_add *)v->attr)->axis, a.rank);
    if (v->want[0]) v->out[0] = v->grad[0];
    if (v->want[1]) v->out[1] = qn_emit2(v, QN_OP_gather_along, 0, &at, v->grad[0], v->src[2]);
}
