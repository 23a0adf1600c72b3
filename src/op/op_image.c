/* Resizing images. Height and width are the last two axes and follow the mode; the axes in front always take the nearest sample.
 * Every mode is a set of weighted taps per axis, so the gradient is the same taps walked the other way. Coordinates are single
 * precision by definition: which sample is nearest, and where taps begin, must not depend on who computes it. */
#include "op/op_conv.h"
#include "op/op_resize.h"

/* ---- Shape rules */

/* The shape to resize to; it must have an entry for every axis that x really has. */
static qn_status resized_shape(qn_infer_call *c, const qn_dims *shape, qn_resize how) {
    const qn_tensor *x = c->src[0];
    QN_TRY(qn_need_rank(c, 0, QN_RESIZE_AXES));
    for (int i = 0; i < x->rank; i++)
        if (x->shape[i] == 0) return qn_reject_src(c, 0, QN_REASON_SHAPE_EMPTY, i, 1, 0);
    int rank = qn_trim_rank(x->rank, x->shape, 1);
    if (shape->rank > QN_RESIZE_AXES) return qn_reject_attr(c, "shape", QN_REASON_ATTR_RANK, -1, QN_RESIZE_AXES, shape->rank);
    if (shape->rank < rank) return qn_reject_attr(c, "shape", QN_REASON_ATTR_RANK, -1, rank, shape->rank);
    for (int i = 0; i < shape->rank; i++)
        if (shape->d[i] < 1) return qn_reject_attr(c, "shape", QN_REASON_ATTR_EXTENT, i, 1, shape->d[i]);
    if (how.antialias && how.mode != QN_RESIZE_BILINEAR)
        return qn_reject_attr(c, "antialias", QN_REASON_ATTR_CONFLICT, -1, QN_RESIZE_BILINEAR, how.mode);
    return qn_out_shape(c, 0, x->dtype, shape->rank, shape->d);
}

qn_status qn_infer_upscale(qn_infer_call *c) {
    const qn_attr_upscale *at = c->attr;
    qn_resize how = {at->mode, at->align_corners, at->antialias};
    return resized_shape(c, &at->shape, how);
}

qn_status qn_infer_upscale_back(qn_infer_call *c) {
    const qn_attr_upscale_back *at = c->attr;
    qn_resize how = {at->mode, at->align_corners, at->antialias};
    return resized_shape(c, &at->shape, how);
}

/* ---- References */

/* Weight that an input sample has in an output; 0 also when it is no tap of it. */
static double weight_of_sample(const qn_resize_axis *a, int64_t output, int64_t sample) {
    qn_taps t = qn_taps_of(a, output);
    double weight = 0;
    for (int64_t j = 0; j < t.n; j++)
        if (qn_tap_index(a, &t, j) == sample) weight += qn_tap_weight(a, &t, j);
    return weight / t.total;
}

static int64_t nearest(const qn_resize_axis *a, int64_t output) { return qn_taps_of(a, output).first; }

/* One value of the result, from image (i3, i2): along the rows first, then across them. */
static double interpolate(const qn_resize_axis *a, const qn_tensor *x, int64_t i3, int64_t i2, const qn_taps *rows,
                          const qn_taps *columns) {
    double sum = 0;
    for (int64_t j = 0; j < rows->n; j++) {
        double along = 0;
        int64_t row = qn_tap_index(&a[1], rows, j);
        for (int64_t k = 0; k < columns->n; k++)
            along += qn_tap_weight(&a[0], columns, k) * qn_get4(x, i3, i2, row, qn_tap_index(&a[0], columns, k));
        sum += qn_tap_weight(&a[1], rows, j) * along;
    }
    return sum / (rows->total * columns->total);
}

qn_status qn_ref_upscale(const qn_call *c) {
    const qn_attr_upscale *at = c->attr;
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    qn_resize how = {at->mode, at->align_corners, at->antialias};
    qn_resize_axis a[QN_RESIZE_AXES];
    for (int k = 0; k < QN_RESIZE_AXES; k++) a[k] = qn_resize_axis_of(how, k, qn_ne(x, k), qn_ne(y, k));
    for (int64_t o3 = 0; o3 < a[3].out; o3++)
        for (int64_t o2 = 0; o2 < a[2].out; o2++)
            for (int64_t o1 = 0; o1 < a[1].out; o1++) {
                qn_taps rows = qn_taps_of(&a[1], o1);
                for (int64_t o0 = 0; o0 < a[0].out; o0++) {
                    qn_taps columns = qn_taps_of(&a[0], o0);
                    double v = interpolate(a, x, nearest(&a[3], o3), nearest(&a[2], o2), &rows, &columns);
                    qn_put4(y, o3, o2, o1, o0, v);
                }
            }
    return QN_OK;
}

/* acc[i] += weight times what columns [from, to) of the input get back from one row of g. */
static void give_back(const qn_resize_axis *a, const qn_tensor *g, int64_t o3, int64_t o2, int64_t o1, double weight,
                      int64_t from, int64_t to, double *acc) {
    for (int64_t o0 = 0; o0 < a->out; o0++) {
        qn_taps t = qn_taps_of(a, o0);
        double share = weight * qn_get4(g, o3, o2, o1, o0) / t.total;
        for (int64_t k = 0; k < t.n;) { /* by a weight of 0 a sample went into nothing */
            int64_t i;
            double part;
            k = qn_tap_run(a, &t, k, &i, &part);
            if (i >= from && i < to && part != 0) acc[i - from] += share * part;
        }
    }
}

/* All rows of g that row (i3, i2, i1) of the input went into. */
static void give_back_rows(const qn_resize_axis *a, const qn_tensor *g, const int64_t *input, int64_t from, int64_t to,
                           double *acc) {
    for (int64_t o3 = 0; o3 < a[3].out; o3++) {
        if (nearest(&a[3], o3) != input[3]) continue;
        for (int64_t o2 = 0; o2 < a[2].out; o2++) {
            if (nearest(&a[2], o2) != input[2]) continue;
            for (int64_t o1 = 0; o1 < a[1].out; o1++) {
                double weight = weight_of_sample(&a[1], o1, input[1]);
                if (weight != 0) give_back(&a[0], g, o3, o2, o1, weight, from, to, acc);
            }
        }
    }
}

qn_status qn_ref_upscale_back(const qn_call *c) {
    const qn_attr_upscale_back *at = c->attr;
    const qn_tensor *g = c->src[0], *dx = c->dst[0];
    qn_resize how = {at->mode, at->align_corners, at->antialias};
    qn_resize_axis a[QN_RESIZE_AXES];
    double acc[QN_RUN];
    qn_rows it;
    for (int k = 0; k < QN_RESIZE_AXES; k++) a[k] = qn_resize_axis_of(how, k, qn_ne(dx, k), qn_ne(g, k));
    for (qn_rows_begin(&it, dx->rank, dx->shape); it.live; qn_rows_next(&it)) {
        int64_t input[QN_RESIZE_AXES] = {0};
        for (int k = 0; k < QN_RESIZE_AXES && k < it.rank; k++) input[k] = it.index[it.rank - 1 - k];
        for (int64_t from = 0; from < it.n; from += QN_RUN) {
            int64_t to = from + qn_some(it.n, from);
            for (int64_t i = 0; i < to - from; i++) acc[i] = 0;
            give_back_rows(a, g, input, from, to, acc);
            qn_store_row(dx, qn_row(&it, dx), from, to - from, acc);
        }
    }
    return QN_OK;
}

/* ---- Gradients */

void qn_vjp_upscale(qn_vjp_call *v) {
    const qn_attr_upscale *from = v->attr;
    qn_attr_upscale_back at = qn_attr_upscale_back_default();
    at.mode = from->mode;
    at.align_corners = from->align_corners;
    at.antialias = from->antialias;
    at.shape = qn_dims_of(v, v->src[0], QN_RESIZE_AXES);
    v->out[0] = qn_with_rank_of(v, qn_emit1(v, QN_OP_upscale_back, 0, &at, v->grad[0]), v->src[0]);
}

void qn_vjp_upscale_back(qn_vjp_call *v) {
    const qn_attr_upscale_back *from = v->attr;
    qn_attr_upscale at = qn_attr_upscale_default();
    at.mode = from->mode;
    at.align_corners = from->align_corners;
    at.antialias = from->antialias;
    at.shape = qn_dims_of(v, v->src[0], QN_RESIZE_AXES);
    v->out[0] = qn_with_rank_of(v, qn_emit1(v, QN_OP_upscale, 0, &at, v->grad[0]), v->src[0]);
}
