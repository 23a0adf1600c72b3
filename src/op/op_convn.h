/* Windows over the last one to three axes from lists of attributes: what convolutions and pools of graphs share. Lists begin
 * with the first of these axes and may be left out; a window behind is an axis counted from the last. Every entry is at most
 * 2^31 - 1, so once a list was checked the arithmetic of op_window.h cannot overflow. */
#ifndef QN_OP_CONVN_H
#define QN_OP_CONVN_H

#include "op/op_window.h"

/* Rejects a list that has neither no entry nor one for each axis, or an entry outside [low, high]. */
static inline qn_status qn_need_list(qn_infer_call *c, const char *name, const qn_dims *list, int axes, int64_t low,
                                     int64_t high) {
    if (list->rank && list->rank != axes) return qn_reject_attr(c, name, QN_REASON_ATTR_RANK, -1, axes, list->rank);
    for (int i = 0; i < list->rank; i++) {
        if (list->d[i] < low) return qn_reject_attr(c, name, QN_REASON_ATTR_ENTRY_LOW, i, low, list->d[i]);
        if (list->d[i] > high) return qn_reject_attr(c, name, QN_REASON_ATTR_ENTRY_HIGH, i, high, list->d[i]);
    }
    return QN_OK;
}

/* The entry for the k-th axis from the last. */
static inline int64_t qn_list_entry(const qn_dims *list, int k, int64_t initial) {
    return k < list->rank ? list->d[list->rank - 1 - k] : initial;
}

/* The lists that conv and pool have in common, wherever their attribute records keep them. NULL: the op has no such list. */
typedef struct qn_window_lists {
    const qn_dims *stride, *padding, *padding_hi, *dilation;
} qn_window_lists;

static inline qn_status qn_need_window_lists(qn_infer_call *c, const qn_window_lists *l, int axes) {
    QN_TRY(qn_need_list(c, "stride", l->stride, axes, 1, INT32_MAX));
    QN_TRY(qn_need_list(c, "padding", l->padding, axes, 0, INT32_MAX));
    QN_TRY(qn_need_list(c, "padding_hi", l->padding_hi, axes, 0, INT32_MAX));
    return l->dilation ? qn_need_list(c, "dilation", l->dilation, axes, 1, INT32_MAX) : QN_OK;
}

/* Padding behind the last sample; the same as before the first unless it was given. */
static inline int64_t qn_pad_behind(const qn_window_lists *l, int k) {
    return qn_list_entry(l->padding_hi, k, qn_list_entry(l->padding, k, 0));
}

/* The window along the k-th axis from the last, without its extents. */
static inline qn_window qn_window_along(const qn_window_lists *l, int k) {
    qn_window w = {.in = 1, .taps = 1, .out = 1};
    w.stride = qn_list_entry(l->stride, k, 1);
    w.pad = qn_list_entry(l->padding, k, 0);
    w.dilation = l->dilation ? qn_list_entry(l->dilation, k, 1) : 1;
    return w;
}

/* Sets out from in and taps, as qn_window_fit does when both paddings are one. */
static inline qn_window_fault qn_window_fit_between(qn_window *w, int64_t behind) {
    int64_t reach, room = w->in + w->pad + behind;
    w->out = 0;
    if (qn_mul_overflow(w->dilation, w->taps - 1, &reach)) return QN_WINDOW_WIDE;
    if (room <= reach) return QN_WINDOW_EMPTY;
    w->out = (room - reach - 1) / w->stride + 1;
    return QN_WINDOW_OK;
}

#endif
