/* Axes by number and by set, broadcasting, and the ways to walk a tensor that they make. */
#include "op/op_axes.h"

#include "op/op_layout.h"

enum { LAST = QN_MAX_RANK - 1 };

qn_status qn_op_axis_check(qn_infer_call *c, int32_t axis, int rank) {
    if (axis < -rank) return qn_reject_attr(c, "axis", QN_REASON_ATTR_LOW, -1, qn_f_bits(-rank), qn_f_bits(axis));
    if (axis >= rank) return qn_reject_attr(c, "axis", QN_REASON_ATTR_HIGH, -1, qn_f_bits(rank - 1), qn_f_bits(axis));
    return QN_OK;
}

qn_status qn_op_axes_check(qn_infer_call *c, const qn_dims *axes, int rank, unsigned *set) {
    unsigned seen = 0;
    for (int i = 0; i < axes->rank; i++) {
        int64_t axis = axes->d[i];
        if (axis < -rank) return qn_reject_attr(c, "axes", QN_REASON_ATTR_ENTRY_LOW, i, -rank, axis);
        if (axis >= rank) return qn_reject_attr(c, "axes", QN_REASON_ATTR_ENTRY_HIGH, i, rank - 1, axis);
        unsigned bit = 1u << qn_op_axis((int32_t)axis, rank);
        if (seen & bit) return qn_reject_attr(c, "axes", QN_REASON_ATTR_REPEATED, i, 0, axis);
        seen |= bit;
    }
    *set = axes->rank ? seen : (1u << rank) - 1;
    return QN_OK;
}

unsigned qn_op_axes_set(const qn_dims *axes, int rank) {
    unsigned set = 0;
    for (int i = 0; i < axes->rank; i++) set |= 1u << qn_op_axis((int32_t)axes->d[i], rank);
    return axes->rank ? set : (1u << rank) - 1;
}

qn_status qn_op_broadcast(qn_infer_call *c, int n, uint32_t dtype) {
    int64_t d[QN_MAX_RANK], have[QN_MAX_RANK];
    int rank = 1;
    for (int k = 0; k < QN_MAX_RANK; k++) have[k] = 1;
    for (int s = 0; s < n; s++) {
        const qn_tensor *t = c->src[s];
        if (!t) continue;
        if (t->rank > rank) rank = t->rank;
        for (int k = 0; k < t->rank; k++) {
            int64_t e = qn_ne(t, k);
            if (e == 1 || e == have[k]) continue;
            if (have[k] != 1) return qn_reject_src(c, s, QN_REASON_SHAPE_EXTENT, qn_op_front(t->rank, k), have[k], e);
            have[k] = e;
        }
    }
    for (int k = 0; k < rank; k++) d[rank - 1 - k] = have[k];
    return qn_out_shape(c, 0, dtype, rank, d);
}

qn_tensor qn_op_stretch(const qn_tensor *t, const qn_tensor *y) {
    qn_tensor s = *t;
    s.rank = y->rank;
    for (int k = 0; k < y->rank; k++) {
        s.shape[y->rank - 1 - k] = qn_ne(y, k);
        s.stride[y->rank - 1 - k] = qn_ne(t, k) == 1 ? 0 : qn_nb(t, k);
    }
    return s;
}

qn_tensor qn_op_lanes(const qn_tensor *t, int k) {
    qn_tensor w = qn_op_tensor_widen(t);
    int64_t n = w.shape[LAST - k], step = w.stride[LAST - k];
    for (int i = LAST - k; i < LAST; i++) {
        w.shape[i] = w.shape[i + 1];
        w.stride[i] = w.stride[i + 1];
    }
    w.shape[LAST] = n;
    w.stride[LAST] = step;
    return w;
}

void qn_op_split(const qn_tensor *t, unsigned set, qn_tensor *kept, qn_tensor *gone) {
    int at_kept = LAST, at_gone = LAST;
    *kept = *gone = *t;
    kept->rank = gone->rank = QN_MAX_RANK;
    for (int k = 0; k < QN_MAX_RANK; k++) {
        int is_gone = (int)(set >> k & 1);
        qn_tensor *to = is_gone ? gone : kept;
        int at = is_gone ? at_gone-- : at_kept--;
        to->shape[at] = qn_ne(t, k);
        to->stride[at] = qn_nb(t, k);
    }
    for (; at_kept >= 0; at_kept--) kept->shape[at_kept] = 1, kept->stride[at_kept] = 0;
    for (; at_gone >= 0; at_gone--) gone->shape[at_gone] = 1, gone->stride[at_gone] = 0;
}

qn_tensor qn_op_reduced(const qn_tensor *y, unsigned set, int keep, const qn_tensor *kept) {
    qn_tensor r = *y;
    int at = LAST, from = 0;
    r.rank = QN_MAX_RANK;
    for (int k = 0; k < QN_MAX_RANK; k++) {
        if (set >> k & 1) {
            from += keep ? 1 : 0;
            continue;
        }
        r.shape[at] = kept->shape[at];
        r.stride[at--] = qn_nb(y, from++);
    }
    for (; at >= 0; at--) r.shape[at] = 1, r.stride[at] = 0;
    return r;
}
