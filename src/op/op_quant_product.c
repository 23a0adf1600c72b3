/* Products of bytes, as quantised networks are run: integers less their zero points are multiplied and added up exactly, a bias is
 * added, and the sum scaled, rounded half to even and kept within the dtype that came in. References add in double, which holds
 * every sum of so many products of bytes as memory can hold. */
#include <math.h>

#include "op/op_convn.h"

/* ---- Shape rules */

/* One number for each of the n columns or channels, or one for all; and a bias for each. */
static qn_status need_scales(qn_infer_call *c, int64_t n) {
    QN_TRY(qn_need_rank(c, 2, 1));
    if (qn_tensor_count(c->src[2]) != 1) QN_TRY(qn_need_extent(c, 2, 0, n));
    if (!c->src[3]) return QN_OK;
    QN_TRY(qn_need_rank(c, 3, 1));
    return qn_need_extent(c, 3, 0, n);
}

qn_status qn_infer_quant_matmul(qn_infer_call *c) {
    const qn_tensor *x = c->src[0], *w = c->src[1];
    int64_t d[QN_MAX_RANK];
    QN_TRY(qn_need_rank(c, 1, 2));
    QN_TRY(qn_need_extent(c, 1, 1, qn_ne(x, 0)));
    QN_TRY(need_scales(c, qn_ne(w, 0)));
    for (int i = 0; i < x->rank; i++) d[i] = x->shape[i];
    d[x->rank - 1] = qn_ne(w, 0);
    c->flops_each = 2.0 * (double)qn_ne(x, 0);
    return qn_out_shape(c, 0, x->dtype, x->rank, d);
}

static qn_window_lists lists_of(const qn_attr_quant_conv *at) {
    return (qn_window_lists){&at->stride, &at->padding, &at->padding_hi, &at->dilation};
}

/* The extent along the k-th axis from the end. Bytes may have extents that padding would carry past 64 bits. */
static qn_status fit_axis(qn_infer_call *c, const qn_window_lists *lists, int k, int64_t *out) {
    const qn_tensor *x = c->src[0], *w = c->src[1];
    qn_window win = qn_window_along(lists, k);
    win.in = qn_ne(x, k);
    win.taps = qn_ne(w, k);
    if (win.in > INT64_MAX / 2) return qn_reject_src(c, 0, QN_REASON_SHAPE_LARGE, qn_axis(x, k), INT64_MAX / 2, win.in);
    if (win.taps < 1) return qn_reject_src(c, 1, QN_REASON_SHAPE_EMPTY, qn_axis(w, k), 1, 0);
    qn_window_fault fault = qn_window_fit_between(&win, qn_pad_behind(lists, k));
    if (fault == QN_WINDOW_WIDE) return qn_reject_src(c, 1, QN_REASON_WINDOW_OVERFLOW, qn_axis(w, k), 0, win.taps);
    if (fault == QN_WINDOW_EMPTY) {
        int64_t least = win.dilation * (win.taps - 1) - win.pad - qn_pad_behind(lists, k);
        return qn_reject_src(c, 0, QN_REASON_SHAPE_SMALL, qn_axis(x, k), least < INT64_MAX ? least + 1 : least, win.in);
    }
    *out = win.out;
    return QN_OK;
}

qn_status qn_infer_quant_conv(qn_infer_call *c) {
    const qn_attr_quant_conv *at = c->attr;
    const qn_tensor *x = c->src[0], *w = c->src[1];
    qn_window_lists lists = lists_of(at);
    int axes = x->rank - 2;
    int64_t d[QN_MAX_RANK];
    if (axes < 1) return qn_reject_src(c, 0, QN_REASON_SHAPE_RANK_LOW, -1, 3, x->rank);
    if (axes > QN_WINDOW_AXES) return qn_reject_src(c, 0, QN_REASON_SHAPE_RANK, -1, 2 + QN_WINDOW_AXES, x->rank);
    if (w->rank < x->rank) return qn_reject_src(c, 1, QN_REASON_SHAPE_RANK_LOW, -1, x->rank, w->rank);
    if (w->rank > x->rank) return qn_reject_src(c, 1, QN_REASON_SHAPE_RANK, -1, x->rank, w->rank);
    QN_TRY(qn_need_window_lists(c, &lists, axes));
    if (x->shape[1] % at->groups) return qn_reject_src(c, 0, QN_REASON_SHAPE_MULTIPLE, 1, at->groups, x->shape[1]);
    if (w->shape[0] % at->groups) return qn_reject_src(c, 1, QN_REASON_SHAPE_MULTIPLE, 0, at->groups, w->shape[0]);
    QN_TRY(qn_need_extent(c, 1, axes, x->shape[1] / at->groups));
    for (int k = 0; k < axes; k++) QN_TRY(fit_axis(c, &lists, k, &d[x->rank - 1 - k]));
    d[0] = x->shape[0];
    d[1] = w->shape[0];
    QN_TRY(need_scales(c, d[1]));
    c->flops_each = 2;
    for (int k = 0; k <= axes; k++) c->flops_each *= (double)qn_ne(w, k);
    return qn_out_shape(c, 0, x->dtype, x->rank, d);
}

/* ---- References */

/* What is done with a sum for column or channel n. */
static double requantised(const qn_call *c, double sum, int64_t n, int y_zero) {
    const qn_tensor *mult = c->src[2], *bias = c->src[3];
    double low = c->dst[0]->dtype == QN_DTYPE_I8 ? -128 : 0, scale = qn_get4(mult, 0, 0, 0, qn_tensor_count(mult) == 1 ? 0 : n);
    if (bias) sum += qn_get4(bias, 0, 0, 0, n);
    double y = nearbyint(sum * scale) + y_zero;
    if (isnan(y)) return 0;
    return y < low ? low : y > low + 255 ? low + 255 : y;
}

qn_status qn_ref_quant_matmul(const qn_call *c) {
    const qn_attr_quant_matmul *at = c->attr;
    const qn_tensor *y = c->dst[0], *x = c->src[0], *w = c->src[1];
    double xs[QN_RUN], ws[QN_RUN];
    qn_rows it;
    for (qn_rows_begin(&it, y->rank, y->shape); it.live; qn_rows_next(&it)) {
        char *to = qn_row(&it, y);
        for (int64_t j = 0; j < it.n; j++) {
            double sum = 0;
            for (int64_t first = 0; first < qn_ne(x, 0); first += QN_RUN) {
                int64_t some = qn_some(qn_ne(x, 0), first);
                qn_load_row(x, qn_row(&it, x), first, some, xs);
                qn_load_run((qn_dtype)w->dtype, qn_at(w, j * qn_nb(w, 0)), qn_nb(w, 1), first, some, ws);
                for (int64_t i = 0; i < some; i++) sum += (xs[i] - at->x_zero) * (ws[i] - at->w_zero);
            }
            double v = requantised(c, sum, j, at->y_zero);
            qn_store_row(y, to, j, 1, &v);
        }
    }
    return QN_OK;
}

/* One image and kernel: windows along the three axes, width first; those that are not there are one sample wide. */
typedef struct image {
    qn_window of[QN_WINDOW_AXES];
    const qn_tensor *x, *w;
    int axes;
    double x_zero, w_zero;
} image;

static int64_t place(const image *m, const qn_tensor *t, int64_t outer, int64_t channel, const int64_t *at) {
    int64_t bytes = outer * qn_nb(t, m->axes + 1) + channel * qn_nb(t, m->axes);
    for (int k = 0; k < m->axes; k++) bytes += at[k] * qn_nb(t, k);
    return bytes;
}

/* The sum over the taps of one channel; taps beyond the edges see x_zero and add nothing. */
static double tap_sum(const image *m, int64_t n, int64_t x_channel, int64_t o, int64_t w_channel, const int64_t *out) {
    double sum = 0;
    int64_t tap[QN_WINDOW_AXES], at[QN_WINDOW_AXES];
    for (tap[2] = 0; tap[2] < m->of[2].taps; tap[2]++)
        for (tap[1] = 0; tap[1] < m->of[1].taps; tap[1]++)
            for (tap[0] = 0; tap[0] < m->of[0].taps; tap[0]++) {
                int inside = 1;
                for (int k = 0; k < m->axes; k++) {
                    at[k] = qn_window_sample(&m->of[k], out[k], tap[k]);
                    inside &= at[k] >= 0 && at[k] < m->of[k].in;
                }
                if (!inside) continue;
                double x = qn_load_one((qn_dtype)m->x->dtype, qn_at(m->x, place(m, m->x, n, x_channel, at)));
                double w = qn_load_one((qn_dtype)m->w->dtype, qn_at(m->w, place(m, m->w, o, w_channel, tap)));
                sum += (x - m->x_zero) * (w - m->w_zero);
            }
    return sum;
}

qn_status qn_ref_quant_conv(const qn_call *c) {
    const qn_attr_quant_conv *at = c->attr;
    const qn_tensor *y = c->dst[0], *x = c->src[0], *w = c->src[1];
    qn_window_lists lists = lists_of(at);
    image m = {.x = x, .w = w, .axes = x->rank - 2, .x_zero = at->x_zero, .w_zero = at->w_zero};
    int64_t each = w->shape[0] / at->groups, shape[QN_MAX_RANK], out[QN_WINDOW_AXES] = {0};
    for (int k = 0; k < QN_WINDOW_AXES; k++) {
        m.of[k] = k < m.axes ? qn_window_along(&lists, k) : (qn_window){.in = 1, .taps = 1, .stride = 1, .dilation = 1, .out = 1};
        if (k < m.axes) m.of[k].in = qn_ne(x, k), m.of[k].taps = qn_ne(w, k);
    }
    for (int k = 0; k < x->rank; k++) shape[k] = qn_ne(y, x->rank - 1 - k); /* y may have ones in front, or lack them */
    qn_rows it;
    for (qn_rows_begin(&it, x->rank, shape); it.live; qn_rows_next(&it)) {
        int64_t n = it.index[0], o = it.index[1];
        for (int k = 1; k < m.axes; k++) out[k] = it.index[x->rank - 1 - k];
        for (out[0] = 0; out[0] < it.n; out[0]++) {
            double sum = 0;
            for (int64_t i = 0; i < w->shape[1]; i++) sum += tap_sum(&m, n, o / each * w->shape[1] + i, o, i, out);
            double v = requantised(c, sum, o, at->y_zero);
            qn_store_row(y, qn_row(&it, y), out[0], 1, &v);
        }
    }
    return QN_OK;
}
