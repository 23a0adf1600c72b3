/* What the ops over arbitrary axes share. Axes are counted from the last one, as in op.h, because a destination may have more
 * or fewer leading axes of extent 1 than its source. Lanes and splits have QN_MAX_RANK axes, so that they pair up by number. */
#ifndef QN_OP_OP_AXES_H
#define QN_OP_OP_AXES_H

#include "op/ref.h"

/* The axis an attribute means, counted from the last; it is in range. */
static inline int qn_op_axis(int32_t axis, int rank) { return axis < 0 ? -1 - axis : rank - 1 - axis; }
/* The same number counted from the front. */
static inline int qn_op_front(int rank, int k) { return rank - 1 - k; }

/* Rejects the attribute `axis` unless it names one of `rank` axes, from the front or (negative) from the end. */
qn_status qn_op_axis_check(qn_infer_call *c, int32_t axis, int rank);
/* Rejects the attribute `axes` unless its entries name different ones of `rank` axes. Bit k of *set: axis k from the end is
 * named. An empty list names all. */
qn_status qn_op_axes_check(qn_infer_call *c, const qn_dims *axes, int rank, unsigned *set);
/* The set of a list that was checked. */
unsigned qn_op_axes_set(const qn_dims *axes, int rank);

/* c->out[0]: the shape the first n sources have together, each aligned at its last axis and stretched where it has extent 1.
 * Blames the first source that fits none of those before it. Absent sources are passed over. */
qn_status qn_op_broadcast(qn_infer_call *c, int n, uint32_t dtype);
/* A tensor as if it had the shape of y: stride zero where it is stretched. Nothing is copied. */
qn_tensor qn_op_stretch(const qn_tensor *t, const qn_tensor *y);

/* A tensor with axis k moved behind all others, so that its rows run along that axis. */
qn_tensor qn_op_lanes(const qn_tensor *t, int k);

/* A tensor's axes in two: `kept`, and `gone`, those in the set. An element of kept is where a walk of gone begins. */
void qn_op_split(const qn_tensor *t, unsigned set, qn_tensor *kept, qn_tensor *gone);
/* What is left of a tensor of `kept` when the axes in the set were taken out, or with `keep` left at extent 1: as kept is. */
qn_tensor qn_op_reduced(const qn_tensor *y, unsigned set, int keep, const qn_tensor *kept);
/* `gone` beginning at one element of a row of `kept`. Of nothing it begins anywhere: the strides of an empty tensor are anybody's. */
static inline qn_tensor qn_op_begin_at(const qn_tensor *gone, const qn_tensor *kept, char *row, int64_t i) {
    qn_tensor t = *gone;
    t.data = qn_tensor_count(gone) ? row + i * kept->stride[QN_MAX_RANK - 1] : row;
    t.offset = 0;
    return t;
}

#endif
