/* Windows over tensors: fitting kernels to images, and the two inner loops of everything that slides. A run of outputs or
 * samples is handled at a time, in doubles on the stack; each sum still has its taps in row-major order. */
#include "op/op_window.h"

void qn_window_collect(const qn_window *w, int64_t tap, qn_strip samples, double weight, int64_t from, int64_t to, double *acc) {
    double run[QN_RUN];
    qn_range s = qn_window_outputs(w, tap, 0, w->in);
    if (s.first < from) s.first = from;
    if (s.last > to) s.last = to;
    if (s.first >= s.last) return;
    qn_strip_load(samples, qn_window_sample(w, s.first, tap), w->stride, s.last - s.first, run);
    for (int64_t o = s.first; o < s.last; o++) acc[o - from] += weight * run[o - s.first];
}

void qn_window_spread(const qn_window *w, int64_t tap, qn_strip outputs, double weight, int64_t from, int64_t to, double *acc) {
    double run[QN_RUN];
    qn_range s = qn_window_outputs(w, tap, from, to);
    qn_strip_load(outputs, s.first, 1, s.last - s.first, run);
    for (int64_t o = s.first; o < s.last; o++) acc[qn_window_sample(w, o, tap) - from] += weight * run[o - s.first];
}

qn_extents qn_extents_of(const qn_tensor *t) {
    qn_extents e;
    e.rank = t->rank;
    for (int k = 0; k < QN_MAX_RANK; k++) e.d[k] = qn_ne(t, k);
    return e;
}

qn_extents qn_extents_of_dims(const qn_dims *dims) {
    qn_extents e;
    e.rank = dims->rank;
    for (int k = 0; k < QN_MAX_RANK; k++) e.d[k] = k < dims->rank ? dims->d[dims->rank - 1 - k] : 1;
    return e;
}

void qn_windows_fit(qn_windows *w, int axes, const qn_extents *image, const qn_tensor *kernel) {
    for (int k = 0; k < axes; k++) {
        w->of[k].in = image->d[k];
        w->of[k].taps = qn_ne(kernel, k);
        (void)qn_window_fit(&w->of[k]);
    }
}

/* The image is too small for a single window. */
static qn_status reject_small(qn_infer_call *c, const qn_window *w, int slot, int dim) {
    int64_t least = w->dilation * (w->taps - 1) - 2 * w->pad;
    if (least < INT64_MAX) least++;
    if (slot < 0) return qn_reject_attr(c, "shape", QN_REASON_SHAPE_SMALL, dim, least, w->in);
    return qn_reject_src(c, slot, QN_REASON_SHAPE_SMALL, dim, least, w->in);
}

qn_status qn_windows_infer(qn_infer_call *c, qn_windows *w, int axes, const qn_extents *image, int slot, int kernel) {
    const qn_tensor *taps = c->src[kernel];
    for (int k = 0; k < axes; k++) {
        qn_window *a = &w->of[k];
        a->in = image->d[k];
        a->taps = qn_ne(taps, k);
        if (a->taps < 1) return qn_reject_src(c, kernel, QN_REASON_SHAPE_EMPTY, qn_axis(taps, k), 1, a->taps);
        qn_window_fault fault = qn_window_fit(a);
        if (fault == QN_WINDOW_WIDE) return qn_reject_src(c, kernel, QN_REASON_WINDOW_OVERFLOW, qn_axis(taps, k), 0, a->taps);
        if (fault == QN_WINDOW_EMPTY) return reject_small(c, a, slot, image->rank - 1 - k);
    }
    return QN_OK;
}
