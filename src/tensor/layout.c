/* Checks on views: the one place where extents, strides and buffer sizes from outside are believed or not. */
#include "tensor/layout.h"

#include <stdlib.h>

#include "tensor/dtype.h"

static qn_status fail(qn_layout_fault *f, qn_reason reason, int dim, int64_t expected, int64_t actual) {
    f->reason = reason;
    f->dim = dim;
    f->expected = expected;
    f->actual = actual;
    return QN_INVALID;
}

/* Elements along an axis, or blocks on the last axis of a block type: what a stride steps over. */
static inline int64_t steps_of(const qn_tensor *t, int axis) {
    int32_t block = qn_tensor_dtypes[t->dtype].block;
    return block != 1 && axis == t->rank - 1 ? t->shape[axis] / block : t->shape[axis];
}

/* Size that strides and addresses must be multiples of, a power of two: an element, or one byte for blocks, whose fields are
 * read byte by byte. */
static inline int64_t unit_of(const qn_dtype_info *d) {
    if (d->kind == QN_KIND_BLOCK) return 1;
    return d->kind == QN_KIND_COMPLEX ? d->bytes / 2 : d->bytes;
}

/* Extents and strides, each for itself; *bytes is what the elements take, 0 when there are none. The product of the extents
 * that are not 0 must fit even then, or strides made of it could overflow. */
static qn_status check_axes(const qn_tensor *t, const qn_dtype_info *d, int64_t *bytes, qn_layout_fault *f) {
    int64_t mask = unit_of(d) - 1, total = d->bytes;
    int empty = 0, last = t->rank - 1;
    for (int i = 0; i <= last; i++) {
        int64_t n = t->shape[i];
        if (n < 0) return fail(f, QN_REASON_NEGATIVE_EXTENT, i, 0, n);
        if (n == 0) empty = 1;
        else if (__builtin_mul_overflow(total, n, &total)) return fail(f, QN_REASON_SIZE_OVERFLOW, i, INT64_MAX, n);
        if (t->stride[i] & mask) return fail(f, QN_REASON_STRIDE_UNIT, i, mask + 1, t->stride[i]);
    }
    if (d->kind == QN_KIND_BLOCK) {
        if (t->shape[last] % d->block) return fail(f, QN_REASON_PARTIAL_BLOCK, last, d->block, t->shape[last]);
        if (t->stride[last] != d->bytes) return fail(f, QN_REASON_STRIDE_BLOCK, last, d->bytes, t->stride[last]);
        total /= d->block;
    }
    *bytes = empty ? 0 : total;
    return *bytes > QN_LAYOUT_BYTES ? fail(f, QN_REASON_SIZE_OVERFLOW, 0, QN_LAYOUT_BYTES, t->shape[0]) : QN_OK;
}

/* Lowest byte offset of the view's elements from its data, and one past the highest. */
static qn_status reach(const qn_tensor *t, const qn_dtype_info *d, int64_t *low, int64_t *high, qn_layout_fault *f) {
    int64_t down = t->offset, up = t->offset;
    for (int i = 0; i < t->rank; i++) {
        int64_t far, *side = t->stride[i] < 0 ? &down : &up, steps = steps_of(t, i);
        if (__builtin_mul_overflow(steps ? steps - 1 : 0, t->stride[i], &far) || __builtin_add_overflow(*side, far, side))
            return fail(f, QN_REASON_ADDRESS_OVERFLOW, i, 0, t->stride[i]);
    }
    if (__builtin_add_overflow(up, (int64_t)d->bytes, &up)) return fail(f, QN_REASON_ADDRESS_OVERFLOW, t->rank - 1, 0, up);
    *low = down;
    *high = up;
    return QN_OK;
}

static qn_status check_head(const qn_tensor *t, qn_layout_fault *f) {
    if (t->dtype == QN_DTYPE_NONE || t->dtype >= QN_DTYPE_COUNT)
        return fail(f, QN_REASON_UNKNOWN_DTYPE, -1, QN_DTYPE_COUNT - 1, t->dtype);
    if (t->flags & ~(QN_TENSOR_PARAM | QN_TENSOR_CONST | QN_TENSOR_DEVICE)) return fail(f, QN_REASON_FLAGS, -1, 0, t->flags);
    if (t->reserved) return fail(f, QN_REASON_RECORD_RESERVED, -1, 0, t->reserved);
    if (t->rank < 1 || t->rank > QN_MAX_RANK) return fail(f, QN_REASON_RANK, -1, QN_MAX_RANK, t->rank);
    return QN_OK;
}

/* The usual view, in one walk: plain elements, data, no stride backwards, nothing wrong. For all others, and to say what is wrong,
 * there are the checks above. */
static inline int is_plainly_good(const qn_tensor *t, const qn_dtype_info *d, qn_span *span) {
    if (d->kind == QN_KIND_BLOCK || !t->data || t->offset < 0) return 0;
    uintptr_t data = (uintptr_t)t->data;
    int64_t odd = (int64_t)(data + (uintptr_t)t->offset), total = d->bytes, up = t->offset, far;
    for (int i = 0; i < t->rank; i++) {
        int64_t n = t->shape[i], stride = t->stride[i];
        if (n < 1 || stride < 0 || __builtin_mul_overflow(total, n, &total) || __builtin_mul_overflow(n - 1, stride, &far) ||
            __builtin_add_overflow(up, far, &up))
            return 0;
        odd |= stride;
    }
    if (total > QN_LAYOUT_BYTES || __builtin_add_overflow(up, (int64_t)d->bytes, &up) || (odd & (unit_of(d) - 1)) ||
        (uint64_t)up > t->size || t->size > UINTPTR_MAX - data)
        return 0;
    *span = (qn_span){data + (uintptr_t)t->offset, data + (uintptr_t)up, (uint64_t)total};
    return 1;
}

qn_status qn_layout_check(const qn_tensor *t, int need_data, qn_span *span, qn_layout_fault *f) {
    span->low = span->high = 0;
    span->bytes = 0;
    qn_status s = check_head(t, f);
    if (s != QN_OK) return s;
    const qn_dtype_info *d = &qn_tensor_dtypes[t->dtype];
    if (is_plainly_good(t, d, span)) return QN_OK;
    int64_t bytes, low, high;
    if ((s = check_axes(t, d, &bytes, f)) != QN_OK) return s;
    if (t->offset < 0) return fail(f, QN_REASON_OFFSET_NEGATIVE, -1, 0, t->offset);
    if (!t->data) return need_data && bytes ? fail(f, QN_REASON_NULL_DATA, -1, 0, 0) : QN_OK;
    uintptr_t unit = (uintptr_t)unit_of(d), data = (uintptr_t)t->data;
    if (t->size > UINTPTR_MAX - data) return fail(f, QN_REASON_BUFFER_END, -1, 0, 0);
    if ((data + (uintptr_t)t->offset) & (unit - 1)) return fail(f, QN_REASON_OFFSET_UNIT, -1, (int64_t)unit, t->offset);
    if ((s = reach(t, d, &low, &high, f)) != QN_OK) return s;
    if (!bytes) return QN_OK; /* its rows may lie anywhere, but their addresses can be computed */
    if (low < 0) return fail(f, QN_REASON_OUT_OF_BUFFER_LOW, -1, 0, low == INT64_MIN ? INT64_MAX : -low);
    if ((uint64_t)high > t->size) return fail(f, QN_REASON_OUT_OF_BUFFER_HIGH, -1, (int64_t)t->size, high);
    span->low = data + (uintptr_t)low;
    span->high = data + (uintptr_t)high;
    span->bytes = (uint64_t)bytes;
    return QN_OK;
}

qn_status qn_layout_check_distinct(const qn_tensor *t, qn_layout_fault *f) {
    int axis[QN_MAX_RANK], n = 0;
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] == 0) return QN_OK; /* strides of an empty view may be anything */
    for (int i = 0; i < t->rank; i++) {
        if (steps_of(t, i) == 1) continue;
        int at = n++;
        for (; at > 0 && llabs(t->stride[axis[at - 1]]) > llabs(t->stride[i]); at--) axis[at] = axis[at - 1];
        axis[at] = i;
    }
    int64_t need = qn_dtype_bytes(t->dtype); /* bytes taken by one step of the axes seen so far */
    for (int k = 0; k < n; k++) {
        int i = axis[k];
        int64_t stride = llabs(t->stride[i]), steps = steps_of(t, i);
        if (stride < need) return fail(f, QN_REASON_SELF_OVERLAP, i, need, t->stride[i]);
        need = (steps - 1) * stride + need; /* fits: the layout was checked against its buffer */
    }
    return QN_OK;
}

/* Whether elements i of a and j of b can share bytes, the strides being equal: i - j must add up to the gap between the two
 * views. Axes nest, so on each axis, largest stride first, only two differences can still be made good by the axes left. */
static int can_meet(const qn_tensor *a, const qn_tensor *b, const int *order, int left, int64_t gap) {
    if (left == 0) return llabs(gap) < qn_dtype_bytes(a->dtype);
    int64_t stride = a->stride[order[0]], na = steps_of(a, order[0]), nb = steps_of(b, order[0]);
    int64_t low = gap / stride - (gap % stride < 0);
    for (int64_t by = low; by <= low + 1; by++)
        if (by > -nb && by < na && can_meet(a, b, order + 1, left - 1, gap - by * stride)) return 1;
    return 0;
}

/* Exact answer for views of one buffer that differ only in offset and extents, as slices of one tensor do. */
static int slices_apart(const qn_tensor *a, const qn_tensor *b) {
    if (a->rank != b->rank || a->dtype != b->dtype || a->data != b->data) return 0;
    int order[QN_MAX_RANK], n = 0;
    for (int i = 0; i < a->rank; i++) {
        if (steps_of(a, i) == 1 && steps_of(b, i) == 1) continue;
        if (a->stride[i] != b->stride[i] || a->stride[i] <= 0) return 0;
        int at = n++;
        for (; at > 0 && a->stride[order[at - 1]] < a->stride[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
    return !can_meet(a, b, order, n, b->offset - a->offset);
}

int qn_layout_overlap(const qn_tensor *a, const qn_tensor *b) {
    qn_layout_fault ignored;
    if (qn_layout_check_distinct(a, &ignored) == QN_OK && qn_layout_check_distinct(b, &ignored) == QN_OK)
        return !slices_apart(a, b);
    return 1;
}

int qn_layout_same(const qn_tensor *a, const qn_tensor *b) {
    if (a->dtype != b->dtype || (uintptr_t)a->data + (uintptr_t)a->offset != (uintptr_t)b->data + (uintptr_t)b->offset) return 0;
    int rank = a->rank > b->rank ? a->rank : b->rank;
    for (int k = 0; k < rank; k++) {
        int64_t na = k < a->rank ? a->shape[a->rank - 1 - k] : 1, nb = k < b->rank ? b->shape[b->rank - 1 - k] : 1;
        if (na != nb) return 0;
        if (na > 1 && a->stride[a->rank - 1 - k] != b->stride[b->rank - 1 - k]) return 0;
    }
    return 1;
}

qn_tensor qn_layout_with_rank(const qn_tensor *t, int rank) {
    qn_tensor y = *t;
    int more = rank - t->rank;
    y.rank = rank;
    for (int i = rank - 1; i >= 0; i--) {
        y.shape[i] = i >= more ? t->shape[i - more] : 1;
        /* wraps round where an axis of one has a stride of any size */
        y.stride[i] = i >= more ? t->stride[i - more] : (int64_t)((uint64_t)y.stride[i + 1] * (uint64_t)steps_of(&y, i + 1));
    }
    return y;
}
