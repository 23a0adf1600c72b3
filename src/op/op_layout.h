/* What the families that only move elements share: checks of a shape or dtype named by an attribute, and the two loops that
 * almost all of them are, a copy with an index map on every axis and its adjoint, a sum over the indices that map to one. */
#ifndef QN_OP_OP_LAYOUT_H
#define QN_OP_OP_LAYOUT_H

#include "op/ref.h"

/* Entry for the k-th axis from the end of a list that has one entry per axis; 0 beyond it or when the list is empty. */
static inline int64_t qn_op_dims_at(const qn_dims *list, int k) { return k < list->rank ? list->d[list->rank - 1 - k] : 0; }

/* Whether an op runs in place: the guard has seen to it that tensors that start at one address are one, or empty. */
static inline int qn_op_in_place(const qn_tensor *y, const qn_tensor *a) {
    return (uintptr_t)y->data + (uintptr_t)y->offset == (uintptr_t)a->data + (uintptr_t)a->offset;
}

/* The same tensor with axes of extent 1 in front until it has QN_MAX_RANK, so that axes of two tensors pair up by number. */
qn_tensor qn_op_tensor_widen(const qn_tensor *t);

/* What set and acc write with b, as a view of y, which must be dense. attr: of either. */
qn_tensor qn_op_region_view(const void *attr, const qn_tensor *y, const qn_tensor *a, const qn_tensor *b);

/* Rejects a shape attribute with a negative extent, more bytes than 64 bits count, or a partial block; gives its elements. */
qn_status qn_op_shape_check(qn_infer_call *c, const char *attr, const qn_dims *shape, uint32_t dtype, int64_t *count);
/* Rejects an attribute that lists anything but one number per axis of source 0, or none where it may be left out. */
qn_status qn_op_list_check(qn_infer_call *c, const char *attr, const qn_dims *list, int may_be_empty);

/* Index on the k-th axis from the end of the source for index i of the result; negative where the result is zero. */
typedef int64_t (*qn_op_axis_map)(const void *p, int k, int64_t i);
/* y[i] = a[map(i)], bit for bit. */
void qn_op_copy_mapped(const qn_tensor *y, const qn_tensor *a, qn_op_axis_map map, const void *p);
/* y[i] = sum of g[i + left + t n] with n the extents of y: over all t inside g when `wrap`, else for t = 0 alone. left has
 * QN_MAX_RANK entries, first axis first. */
void qn_op_fold(const qn_tensor *y, const qn_tensor *g, const int64_t *left, int wrap);

#endif
