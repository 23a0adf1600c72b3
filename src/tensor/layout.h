/* Where a view's bytes lie. All arithmetic is checked: a descriptor from anywhere can be asked. */
#ifndef QN_TENSOR_LAYOUT_H
#define QN_TENSOR_LAYOUT_H

#include <quern/quern.h>

/* Which part of a descriptor is wrong; the reason, axis and numbers of a result record. */
typedef struct qn_layout_fault {
    qn_reason reason;
    int dim;
    int64_t expected, actual;
} qn_layout_fault;

/* What a checked view covers: addresses [low, high) of all its elements, and the bytes its elements have, gaps not counted.
 * All zero when it is empty or has no data. */
typedef struct qn_span {
    uintptr_t low, high;
    uint64_t bytes;
} qn_span;

/* What a tensor's elements may take, were each there by itself: as much as a process can address. Views of one element that claim
 * more could be computed with by nobody, and below this no product of one tensor's extents, in any type, comes near 64 bits. */
#define QN_LAYOUT_BYTES (INT64_C(1) << 47)

/* Checks dtype, flags, rank, extents, strides, that the buffer ends at an address and that every byte of the view lies in it. `need_data`: a view with
 * elements must have a data pointer; otherwise data may be NULL and then only shapes are checked. QN_OK or QN_INVALID. */
qn_status qn_layout_check(const qn_tensor *t, int need_data, qn_span *span, qn_layout_fault *fault);
/* Whether no two elements share bytes, for destinations. Sufficient, not necessary: axes must nest. */
qn_status qn_layout_check_distinct(const qn_tensor *t, qn_layout_fault *fault);
/* Whether two checked views whose spans meet share a byte. Exact for slices of one tensor, yes otherwise. */
int qn_layout_overlap(const qn_tensor *a, const qn_tensor *b);
static inline int qn_span_meet(const qn_span *a, const qn_span *b) { return a->low < b->high && b->low < a->high; }
/* Same bytes, same order: data, offset, dtype, shape and strides agree (axes of extent 1 aside). */
int qn_layout_same(const qn_tensor *a, const qn_tensor *b);
/* The last `rank` axes of a view, or all of them with ones in front, which lie as those of a dense tensor do. */
qn_tensor qn_layout_with_rank(const qn_tensor *t, int rank);

#endif
