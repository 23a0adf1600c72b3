/* Windows of byte strides: view shows one, set and acc write through one into a contiguous tensor, view_back adds through one
 * onto zeros. All four take the same attributes and check them with the same functions. */
#include "op/op_emit.h"
#include "op/op_layout.h"

typedef struct window {
    int rank;
    const int64_t *d;
    int64_t stride[QN_MAX_RANK];
    int64_t offset;
    const qn_dtype_info *dtype;
} window;

/* ---- Shape rules */

/* Steps an axis takes: elements, or blocks along the last axis of a block type. */
static int64_t steps_of(const window *w, int i) { return i == w->rank - 1 ? w->d[i] / w->dtype->block : w->d[i]; }

static int is_empty(const window *w) {
    for (int i = 0; i < w->rank; i++)
        if (w->d[i] == 0) return 1;
    return 0;
}

/* Bytes [*low, *high) a window touches, counted from where its offset counts; none when it is empty. Returns the axis whose
 * stride overflows, or -1. */
static int span_of(const window *w, int64_t *low, int64_t *high) {
    *low = *high = w->offset;
    if (is_empty(w)) return -1;
    for (int i = 0; i < w->rank; i++) {
        int64_t far, *side = w->stride[i] < 0 ? low : high;
        if (__builtin_mul_overflow(steps_of(w, i) - 1, w->stride[i], &far) || qn_add_overflow(*side, far, side)) return i;
    }
    return qn_add_overflow(*high, w->dtype->bytes, high) ? w->rank - 1 : -1;
}

/* Rejects strides or an offset that do not fall on elements. */
static qn_status need_units(qn_infer_call *c, const window *w) {
    int64_t unit = w->dtype->bytes;
    for (int i = 0; i < w->rank; i++)
        if (w->stride[i] % unit) return qn_reject_attr(c, "strides", QN_REASON_STRIDE_UNIT, i, unit, w->stride[i]);
    if (w->offset % unit) return qn_reject_attr(c, "offset", QN_REASON_OFFSET_UNIT, -1, unit, w->offset);
    return QN_OK;
}

/* Rejects a window that leaves bytes [low, high). An empty one touches none, wherever it is. */
static qn_status need_inside(qn_infer_call *c, const window *w, int64_t low, int64_t high) {
    int64_t from, to;
    if (is_empty(w)) return QN_OK;
    int bad = span_of(w, &from, &to);
    if (bad >= 0) return qn_reject_attr(c, "strides", QN_REASON_ADDRESS_OVERFLOW, bad, 0, w->stride[bad]);
    if (from < low) /* low is at most 0, so only the very lowest number has no opposite */
        return qn_reject_attr(c, "strides", QN_REASON_OUT_OF_BUFFER_LOW, -1, 0, from == INT64_MIN ? INT64_MAX : low - from);
    if (to > high) return qn_reject_attr(c, "offset", QN_REASON_REGION_OUTSIDE, -1, high, to);
    return QN_OK;
}

static qn_status need_stride_count(qn_infer_call *c, const qn_dims *strides, int rank) {
    return strides->rank == rank ? QN_OK : qn_reject_attr(c, "strides", QN_REASON_ATTR_RANK, -1, rank, strides->rank);
}

/* Dense strides of a shape whose byte count is known to fit. */
static void dense_strides(const qn_dtype_info *dtype, int rank, const int64_t *d, int64_t *stride) {
    int64_t step = dtype->bytes;
    for (int i = rank - 1; i >= 0; i--) {
        int64_t n = i == rank - 1 ? d[i] / dtype->block : d[i];
        stride[i] = step;
        step *= n ? n : 1;
    }
}

static window window_of(const qn_dims *strides, int64_t offset, int rank, const int64_t *d, uint32_t dtype) {
    window w = {rank, d, {0}, offset, qn_dtype_describe((qn_dtype)dtype)};
    if (strides->rank) memcpy(w.stride, strides->d, (size_t)strides->rank * sizeof w.stride[0]);
    else dense_strides(w.dtype, rank, d, w.stride);
    return w;
}

qn_status qn_infer_view(qn_infer_call *c) {
    const qn_attr_view *at = c->attr;
    const qn_tensor *a = c->src[0];
    int64_t count, low, high;
    QN_TRY(qn_op_shape_check(c, "shape", &at->shape, a->dtype, &count));
    if (at->strides.rank) QN_TRY(need_stride_count(c, &at->strides, at->shape.rank));
    window w = window_of(&at->strides, at->offset, at->shape.rank, at->shape.d, a->dtype);
    window own = {a->rank, a->shape, {0}, 0, w.dtype};
    memcpy(own.stride, a->stride, sizeof own.stride);
    int last = w.rank - 1, bad = span_of(&own, &low, &high);
    if (bad >= 0) return qn_reject_src(c, 0, QN_REASON_ADDRESS_OVERFLOW, bad, 0, a->stride[bad]);
    QN_TRY(need_units(c, &w));
    if (qn_is_block(a->dtype) && w.stride[last] != w.dtype->bytes)
        return qn_reject_attr(c, "strides", QN_REASON_STRIDE_BLOCK, last, w.dtype->bytes, w.stride[last]);
    QN_TRY(need_inside(c, &w, low, high));
    if (qn_add_overflow(a->offset, w.offset, &c->view_offset))
        return qn_reject_attr(c, "offset", QN_REASON_ADDRESS_OVERFLOW, -1, 0, w.offset);
    memcpy(c->view_stride, w.stride, sizeof w.stride);
    return qn_out_shape(c, 0, a->dtype, w.rank, w.d);
}

/* Sums of halves are kept wider, so the window's bytes are those of the wider type. */
qn_status qn_infer_view_back(qn_infer_call *c) {
    const qn_attr_view_back *at = c->attr;
    const qn_tensor *g = c->src[0];
    uint32_t dtype = g->dtype == QN_DTYPE_F64 ? QN_DTYPE_F64 : QN_DTYPE_F32;
    int64_t count;
    QN_TRY(qn_op_shape_check(c, "shape", &at->shape, dtype, &count));
    QN_TRY(need_stride_count(c, &at->strides, g->rank));
    window w = window_of(&at->strides, at->offset, g->rank, g->shape, dtype);
    QN_TRY(need_units(c, &w));
    QN_TRY(need_inside(c, &w, 0, count * w.dtype->bytes));
    return qn_out_shape(c, 0, dtype, at->shape.rank, at->shape.d);
}

/* Rejects a region two of whose elements are one, which would make the result depend on the order of writing. Axes must nest:
 * from the smallest stride up, each steps over everything the smaller ones reach. */
static qn_status need_distinct(qn_infer_call *c, const window *w) {
    int64_t need = w->dtype->bytes;
    unsigned done = 0;
    if (is_empty(w)) return QN_OK;
    for (;;) {
        int next = -1;
        for (int i = 0; i < w->rank; i++)
            if (w->d[i] > 1 && !(done >> i & 1) && (next < 0 || w->stride[i] < w->stride[next])) next = i;
        if (next < 0) return QN_OK;
        if (w->stride[next] < need) return qn_reject_attr(c, "strides", QN_REASON_REGION_OVERLAP, next, need, w->stride[next]);
        need += (w->d[next] - 1) * w->stride[next]; /* fits: the sum of all was checked against the bytes of a */
        done |= 1u << next;
    }
}

/* The region of set and acc. Without strides it lies as a slice of a does: the strides of a's own last axes. */
static window region_of(const qn_attr_set *at, int a_rank, const int64_t *a_shape, int rank, const int64_t *d, uint32_t dtype) {
    window w = window_of(&at->strides, at->offset, rank, d, dtype);
    if (at->strides.rank) return w;
    int64_t own[QN_MAX_RANK];
    dense_strides(w.dtype, a_rank, a_shape, own);
    for (int k = 0; k < rank; k++) w.stride[rank - 1 - k] = k < a_rank ? own[a_rank - 1 - k] : 0;
    return w;
}

static qn_attr_set region_attr(const void *attr) {
    qn_attr_set at; /* acc's record has the same fields */
    _Static_assert(sizeof(qn_attr_acc) == sizeof(qn_attr_set), "set and acc share their attributes");
    memcpy(&at, attr, sizeof at);
    return at;
}

qn_tensor qn_op_region_view(const void *attr, const qn_tensor *y, const qn_tensor *a, const qn_tensor *b) {
    qn_attr_set at = region_attr(attr);
    window w = region_of(&at, a->rank, a->shape, b->rank, b->shape, a->dtype);
    qn_tensor view = *y;
    view.offset += w.offset;
    view.rank = b->rank;
    for (int i = 0; i < b->rank; i++) {
        view.shape[i] = b->shape[i];
        view.stride[i] = w.stride[i];
    }
    return view;
}

qn_status qn_infer_region(qn_infer_call *c) {
    qn_attr_set at = region_attr(c->attr);
    const qn_tensor *a = c->src[0], *b = c->src[1];
    if (at.strides.rank) {
        QN_TRY(need_stride_count(c, &at.strides, b->rank));
    } else {
        for (int k = a->rank; k < b->rank; k++)
            if (qn_ne(b, k) != 1) return qn_reject_src(c, 1, QN_REASON_SHAPE_RANK, -1, a->rank, b->rank);
    }
    QN_TRY(qn_need_contiguous(c, 0));
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    window w = region_of(&at, a->rank, a->shape, b->rank, b->shape, a->dtype);
    int last = w.rank - 1;
    QN_TRY(need_units(c, &w));
    for (int i = 0; i < w.rank; i++)
        if (w.stride[i] < 0) return qn_reject_attr(c, "strides", QN_REASON_ATTR_ENTRY_LOW, i, 0, w.stride[i]);
    if (w.stride[last] != w.dtype->bytes)
        return qn_reject_attr(c, "strides", QN_REASON_ATTR_EXTENT, last, w.dtype->bytes, w.stride[last]);
    QN_TRY(need_inside(c, &w, 0, qn_tensor_count(a) * w.dtype->bytes));
    QN_TRY(need_distinct(c, &w));
    qn_out_like(c, 0, a, a->dtype);
    return QN_OK;
}

/* ---- References */

qn_status qn_ref_view(const qn_call *c) {
    (void)c;
    return QN_OK;
}

/* Element number i, in logical order, of a tensor of any strides: windows are laid over the contiguous form of a tensor, which
 * the destination need not have. */
static char *element(const qn_tensor *t, int64_t i) {
    int64_t offset = 0;
    for (int axis = t->rank - 1; axis >= 0; axis--) {
        offset += i % t->shape[axis] * t->stride[axis];
        i /= t->shape[axis];
    }
    return qn_at(t, offset);
}

/* Puts, or adds, each element of `from` where the window has it in y. */
static void write_window(const qn_tensor *y, const window *w, const qn_tensor *from, int add) {
    qn_dtype dtype = (qn_dtype)y->dtype;
    int64_t unit = w->dtype->bytes;
    qn_rows it;
    for (qn_rows_begin(&it, from->rank, from->shape); it.live; qn_rows_next(&it)) {
        const char *row = qn_row(&it, from);
        int64_t start = w->offset;
        for (int j = 0; j < from->rank; j++) start += it.index[j] * w->stride[j];
        for (int64_t i = 0; i < it.n; i++) {
            char *at = element(y, (start + i * w->stride[w->rank - 1]) / unit);
            const char *value = row + i * qn_nb(from, 0);
            if (add) qn_store_one(dtype, at, qn_load_one(dtype, at) + qn_load_one((qn_dtype)from->dtype, value));
            else memcpy(at, value, (size_t)unit);
        }
    }
}

static qn_status write_region(const qn_call *c, int add) {
    qn_attr_set at = region_attr(c->attr);
    const qn_tensor *y = c->dst[0], *a = c->src[0], *b = c->src[1];
    if (!qn_op_in_place(y, a)) qn_copy(y, a);
    window w = region_of(&at, a->rank, a->shape, b->rank, b->shape, a->dtype);
    write_window(y, &w, b, add);
    return QN_OK;
}

qn_status qn_ref_set(const qn_call *c) { return write_region(c, 0); }
qn_status qn_ref_acc(const qn_call *c) { return write_region(c, 1); }

qn_status qn_ref_view_back(const qn_call *c) {
    const qn_attr_view_back *at = c->attr;
    const qn_tensor *y = c->dst[0], *g = c->src[0];
    window w = window_of(&at->strides, at->offset, g->rank, g->shape, y->dtype);
    qn_fill(y, 0);
    write_window(y, &w, g, 1);
    return QN_OK;
}

/* ---- Gradients */

/* The same window over elements of another size. Strides that nothing steps over may be any number, so they are made small;
 * the others reach no further than a tensor does. */
static void rescale(window *w, uint32_t dtype) {
    uint64_t from = (uint64_t)w->dtype->bytes, to;
    int empty = is_empty(w);
    w->dtype = qn_dtype_describe((qn_dtype)dtype);
    to = (uint64_t)w->dtype->bytes;
    for (int i = 0; i < w->rank; i++)
        w->stride[i] = empty || w->d[i] == 1 ? (int64_t)to : (int64_t)((uint64_t)(w->stride[i] / (int64_t)from) * to);
    w->offset = (int64_t)((uint64_t)w->offset / from * to);
}

static qn_dims dims_of(int rank, const int64_t *d) {
    qn_dims list = {rank, 0, {0}};
    memcpy(list.d, d, (size_t)rank * sizeof d[0]);
    return list;
}

/* The window of a view whose source has strides of its own, so that it counts bytes over those: what comes back is added up over
 * the bytes that the source spans, and its elements take theirs from there. */
static qn_val strided_view_grad(qn_vjp_call *v, const window *w, const int64_t *strides) {
    qn_shape a = qn_shape_of(v, v->src[0]);
    window own = {a.rank, a.d, {0}, 0, qn_dtype_describe((qn_dtype)a.dtype)};
    int64_t low, high;
    memcpy(own.stride, strides, sizeof own.stride);
    if (is_empty(&own) || span_of(&own, &low, &high) >= 0) return QN_VAL_NONE;
    int64_t units = (high - low) / own.dtype->bytes;
    window part = *w;
    part.offset -= low;
    own.offset = -low;
    uint32_t wide = qn_shape_of(v, v->grad[0]).dtype == QN_DTYPE_F64 ? QN_DTYPE_F64 : QN_DTYPE_F32;
    rescale(&part, wide);
    rescale(&own, wide);
    qn_attr_view_back back = qn_attr_view_back_default();
    back.shape = dims_of(1, &units);
    back.strides = dims_of(part.rank, part.stride);
    back.offset = part.offset;
    qn_val flat = qn_emit1(v, QN_OP_view_back, 0, &back, v->grad[0]);
    return qn_e_window(v, flat, own.rank, own.d, own.stride, own.offset);
}

/* In a graph values have no layout: the window lies in the contiguous form of a, which a plan makes where it must. */
void qn_vjp_view(qn_vjp_call *v) {
    const qn_attr_view *at = v->attr;
    qn_shape a = qn_shape_of(v, v->src[0]), g = qn_shape_of(v, v->grad[0]);
    int64_t strides[QN_MAX_RANK] = {0};
    if (!v->want[0] || v->status != QN_OK) return;
    window w = window_of(&at->strides, at->offset, at->shape.rank, at->shape.d, a.dtype);
    if (v->emitter->strides && v->emitter->strides(v->emitter->self, v->src[0], strides)) {
        v->out[0] = strided_view_grad(v, &w, strides);
        return;
    }
    rescale(&w, g.dtype == QN_DTYPE_F64 ? QN_DTYPE_F64 : QN_DTYPE_F32);
    qn_attr_view_back back = qn_attr_view_back_default();
    back.shape = dims_of(a.rank, a.d);
    back.strides = dims_of(w.rank, w.stride);
    back.offset = w.offset;
    v->out[0] = qn_emit1(v, QN_OP_view_back, 0, &back, v->grad[0]);
}

void qn_vjp_view_back(qn_vjp_call *v) {
    const qn_attr_view_back *at = v->attr;
    qn_shape s = qn_shape_of(v, v->src[0]), y = qn_shape_of(v, v->dst[0]), g = qn_shape_of(v, v->grad[0]);
    if (!v->want[0] || v->status != QN_OK) return;
    window w = window_of(&at->strides, at->offset, s.rank, s.d, y.dtype);
    rescale(&w, g.dtype);
    v->out[0] = qn_e_window(v, v->grad[0], w.rank, w.d, w.stride, w.offset);
}

/* The gradient of b is what g has in the region; of a it is g, without the region where set has put something else. */
static void region_grad(qn_vjp_call *v, int replaced) {
    qn_attr_set at = region_attr(v->attr);
    qn_shape a = qn_shape_of(v, v->src[0]), b = qn_shape_of(v, v->src[1]), g = qn_shape_of(v, v->grad[0]);
    if (v->status != QN_OK) return;
    window w = region_of(&at, a.rank, a.d, b.rank, b.d, a.dtype);
    rescale(&w, g.dtype);
    qn_val whole = qn_e_cont(v, v->grad[0]);
    if (v->want[1]) v->out[1] = qn_e_window(v, whole, w.rank, w.d, w.stride, w.offset);
    if (!v->want[0]) return;
    at.strides = dims_of(w.rank, w.stride);
    at.offset = w.offset;
    qn_val zeros = replaced ? qn_e_cast(v, qn_e_zeros(v, v->src[1]), g.dtype) : QN_VAL_NONE;
    v->out[0] = replaced ? qn_emit2(v, QN_OP_set, 0, &at, whole, zeros) : v->grad[0];
}

void qn_vjp_set(qn_vjp_call *v) { region_grad(v, 1); }
void qn_vjp_acc(qn_vjp_call *v) { region_grad(v, 0); }
