/* Pools: the maximum or the average of a sliding window. A pool along one axis is a pool over images of height 1, except that its
 * average divides by the samples that are really there and that of an image by the whole window. Padding is always less than the
 * window, so every window holds a sample. A NaN counts as the maximum, and of equal maxima the first in row-major order does. */
#include "op/op_emit.h"
#include "op/op_window.h"

enum { POOL_MAX = 0, POOL_AVERAGE = 1 };

/* ---- Shape rules */

typedef struct pool_form {
    int axes; /* 1: width, 2: width and height */
    int kind;
    qn_window width, height;
} pool_form;

static qn_window along(int32_t k, int32_t s, int32_t p) {
    qn_window w = {.in = 1, .taps = k, .stride = s, .pad = p, .dilation = 1, .out = 1};
    return w;
}

static pool_form form_1d(const qn_attr_pool_1d *at) {
    pool_form f = {1, at->kind, along(at->k, at->s, at->p), along(1, 1, 0)};
    return f;
}

static pool_form form_1d_back(const qn_attr_pool_1d_back *at) {
    pool_form f = {1, at->kind, along(at->k, at->s, at->p), along(1, 1, 0)};
    return f;
}

static pool_form form_2d(const qn_attr_pool_2d *at) {
    pool_form f = {2, at->kind, along(at->k0, at->s0, at->p0), along(at->k1, at->s1, at->p1)};
    return f;
}

static pool_form form_2d_back(const qn_attr_pool_2d_back *at) {
    pool_form f = {2, at->kind, along(at->k0, at->s0, at->p0), along(at->k1, at->s1, at->p1)};
    return f;
}

static void fit_form(pool_form *f, const qn_tensor *x) {
    f->width.in = qn_ne(x, 0);
    (void)qn_window_fit(&f->width);
    if (f->axes == 1) return;
    f->height.in = qn_ne(x, 1);
    (void)qn_window_fit(&f->height);
}

/* Fits one axis of source x; `pad` is the attribute to blame, `slot` the source that x is. */
static qn_status need_fit(qn_infer_call *c, qn_window *w, int slot, int k, const char *pad) {
    const qn_tensor *x = c->src[slot];
    w->in = qn_ne(x, k);
    if (w->pad >= w->taps)
        return qn_reject_attr(c, pad, QN_REASON_ATTR_HIGH, -1, qn_f_bits((double)w->taps - 1), qn_f_bits((double)w->pad));
    if (w->in == 0) return qn_reject_src(c, slot, QN_REASON_SHAPE_EMPTY, qn_axis(x, k), 1, 0);
    if (qn_window_fit(w) == QN_WINDOW_OK) return QN_OK;
    return qn_reject_src(c, slot, QN_REASON_SHAPE_SMALL, qn_axis(x, k), w->taps - 2 * w->pad, w->in);
}

static qn_status fit_source(qn_infer_call *c, pool_form *f, int slot) {
    QN_TRY(need_fit(c, &f->width, slot, 0, f->axes == 1 ? "p" : "p0"));
    return f->axes == 1 ? QN_OK : need_fit(c, &f->height, slot, 1, "p1");
}

/* The extent that k axes from the end of x becomes. */
static int64_t pooled(const pool_form *f, const qn_tensor *x, int k) {
    return k == 0 ? f->width.out : k == 1 && f->axes == 2 ? f->height.out : qn_ne(x, k);
}

static qn_status infer_pool(qn_infer_call *c, pool_form f) {
    const qn_tensor *x = c->src[0];
    int64_t d[QN_MAX_RANK];
    int rank = x->rank < f.axes ? f.axes : x->rank; /* padding can make a lone row several rows */
    QN_TRY(fit_source(c, &f, 0));
    c->flops_each = (double)f.width.taps * (f.axes == 2 ? (double)f.height.taps : 1.0);
    for (int k = 0; k < rank; k++) d[rank - 1 - k] = pooled(&f, x, k);
    return qn_out_shape(c, 0, qn_product_dtype(x), rank, d);
}

/* Sources: the gradient of the result, then the forward x. */
static qn_status infer_pool_back(qn_infer_call *c, pool_form f) {
    const qn_tensor *x = c->src[1];
    QN_TRY(fit_source(c, &f, 1));
    for (int k = 0; k < QN_MAX_RANK; k++) QN_TRY(qn_need_extent(c, 0, k, pooled(&f, x, k)));
    QN_TRY(qn_need_f64_pair(c, 0, 1));
    qn_out_like(c, 0, x, qn_product_dtype(x));
    return QN_OK;
}

qn_status qn_infer_pool_1d(qn_infer_call *c) { return infer_pool(c, form_1d(c->attr)); }
qn_status qn_infer_pool_2d(qn_infer_call *c) { return infer_pool(c, form_2d(c->attr)); }
qn_status qn_infer_pool_1d_back(qn_infer_call *c) { return infer_pool_back(c, form_1d_back(c->attr)); }
qn_status qn_infer_pool_2d_back(qn_infer_call *c) { return infer_pool_back(c, form_2d_back(c->attr)); }

/* ---- References */

/* One image of a tensor that may have any axes in front, as byte strides. */
typedef struct plane {
    qn_dtype dtype;
    char *at;
    int64_t row, column;
} plane;

/* The image a row of the walked shape belongs to; the tensors agree on all axes in front of the image. */
static plane plane_of(const pool_form *f, const qn_tensor *t, const qn_rows *it) {
    int64_t at = 0;
    for (int k = f->axes; k < it->rank; k++) at += it->index[it->rank - 1 - k] * qn_nb(t, k);
    plane p = {(qn_dtype)t->dtype, qn_at(t, at), f->axes == 2 ? qn_nb(t, 1) : 0, qn_nb(t, 0)};
    return p;
}

/* Number of the walked row within its image. */
static int64_t row_in_plane(const pool_form *f, const qn_rows *it) {
    return f->axes == 2 && it->rank > 1 ? it->index[it->rank - 2] : 0;
}

static double sample(const plane *p, int64_t row, int64_t column) {
    return qn_load_one(p->dtype, p->at + row * p->row + column * p->column);
}

/* The real samples under one window of an axis. */
static qn_range under(const qn_window *w, int64_t output) {
    int64_t first = qn_window_sample(w, output, 0), last = first + w->taps;
    qn_range s = {first < 0 ? 0 : first, last > w->in ? w->in : last};
    return s;
}

typedef struct peak {
    double value;
    int64_t row, column;
} peak;

static peak peak_of(const plane *x, qn_range rows, qn_range columns) {
    peak best = {sample(x, rows.first, columns.first), rows.first, columns.first};
    for (int64_t r = rows.first; r < rows.last; r++)
        for (int64_t k = columns.first; k < columns.last; k++) {
            double value = sample(x, r, k);
            if (isnan(best.value)) return best;
            if (value > best.value || isnan(value)) best = (peak){value, r, k};
        }
    return best;
}

static double divisor(const pool_form *f, qn_range columns) {
    return f->axes == 1 ? (double)(columns.last - columns.first) : (double)f->width.taps * (double)f->height.taps;
}

static double average_of(const pool_form *f, const plane *x, qn_range rows, qn_range columns) {
    double sum = 0;
    for (int64_t r = rows.first; r < rows.last; r++)
        for (int64_t k = columns.first; k < columns.last; k++) sum += sample(x, r, k);
    return sum / divisor(f, columns);
}

static void pool(pool_form f, const qn_tensor *y, const qn_tensor *x) {
    qn_rows it;
    fit_form(&f, x);
    for (qn_rows_begin(&it, y->rank, y->shape); it.live; qn_rows_next(&it)) {
        plane image = plane_of(&f, x, &it);
        qn_range rows = under(&f.height, row_in_plane(&f, &it));
        char *row = qn_row(&it, y);
        for (int64_t o = 0; o < f.width.out; o++) {
            qn_range columns = under(&f.width, o);
            double v = f.kind == POOL_MAX ? peak_of(&image, rows, columns).value : average_of(&f, &image, rows, columns);
            qn_store_row(y, row, o, 1, &v);
        }
    }
}

/* acc[i] += what sample (row, from + i) gets from the windows of row `oh` of the result. */
static void share_windows(const pool_form *f, const plane *g, const plane *x, int64_t oh, int64_t row, int64_t from, int64_t to,
                          double *acc) {
    qn_range rows = under(&f->height, oh);
    int64_t first = qn_window_outputs(&f->width, f->width.taps - 1, from, f->width.in).first;
    for (int64_t o = first; o < f->width.out; o++) {
        qn_range columns = under(&f->width, o);
        double share = sample(g, oh, o);
        if (columns.first >= to) return;
        if (f->kind == POOL_MAX) {
            peak best = peak_of(x, rows, columns);
            if (best.row == row && best.column >= from && best.column < to) acc[best.column - from] += share;
            continue;
        }
        for (int64_t k = columns.first < from ? from : columns.first; k < columns.last && k < to; k++)
            acc[k - from] += share / divisor(f, columns);
    }
}

/* Each run of samples gathers from the windows it lies under, so that sums are rounded once. */
static void pool_back(pool_form f, const qn_tensor *dx, const qn_tensor *g, const qn_tensor *x) {
    double acc[QN_RUN];
    qn_rows it;
    fit_form(&f, x);
    for (qn_rows_begin(&it, dx->rank, dx->shape); it.live; qn_rows_next(&it)) {
        plane grads = plane_of(&f, g, &it), image = plane_of(&f, x, &it);
        int64_t row = row_in_plane(&f, &it);
        char *at = qn_row(&it, dx);
        for (int64_t from = 0; from < it.n; from += QN_RUN) {
            int64_t to = from + qn_some(it.n, from);
            for (int64_t i = 0; i < to - from; i++) acc[i] = 0;
            for (int64_t oh = qn_window_outputs(&f.height, f.height.taps - 1, row, f.height.in).first; oh < f.height.out; oh++) {
                if (under(&f.height, oh).first > row) break;
                share_windows(&f, &grads, &image, oh, row, from, to, acc);
            }
            qn_store_row(dx, at, from, to - from, acc);
        }
    }
}

qn_status qn_ref_pool_1d(const qn_call *c) {
    pool(form_1d(c->attr), c->dst[0], c->src[0]);
    return QN_OK;
}

qn_status qn_ref_pool_2d(const qn_call *c) {
    pool(form_2d(c->attr), c->dst[0], c->src[0]);
    return QN_OK;
}

qn_status qn_ref_pool_1d_back(const qn_call *c) {
    pool_back(form_1d_back(c->attr), c->dst[0], c->src[0], c->src[1]);
    return QN_OK;
}

qn_status qn_ref_pool_2d_back(const qn_call *c) {
    pool_back(form_2d_back(c->attr), c->dst[0], c->src[0], c->src[1]);
    return QN_OK;
}

/* ---- Gradients */

void qn_vjp_pool_1d(qn_vjp_call *v) {
    const qn_attr_pool_1d *from = v->attr;
    qn_attr_pool_1d_back at = qn_attr_pool_1d_back_default();
    at.kind = from->kind;
    at.k = from->k;
    at.s = from->s;
    at.p = from->p;
    v->out[0] = qn_emit2(v, QN_OP_pool_1d_back, 0, &at, v->grad[0], v->src[0]);
}

void qn_vjp_pool_2d(qn_vjp_call *v) {
    const qn_attr_pool_2d *from = v->attr;
    qn_attr_pool_2d_back at = qn_attr_pool_2d_back_default();
    at.kind = from->kind;
    at.k0 = from->k0;
    at.k1 = from->k1;
    at.s0 = from->s0;
    at.s1 = from->s1;
    at.p0 = from->p0;
    at.p1 = from->p1;
    v->out[0] = qn_emit2(v, QN_OP_pool_2d_back, 0, &at, v->grad[0], v->src[0]);
}

/* ---- Second order. Both gradients are linear in g, and x only chooses. Of an average the transpose is the average itself; of a
 * maximum it is what lies where the maximum was found, which the general pool knows. */

static qn_val maximum_tangent(qn_vjp_call *v, int axes, const int32_t *k, const int32_t *s, const int32_t *p) {
    qn_attr_pool_tangent at = qn_attr_pool_tangent_default();
    qn_shape x = qn_shape_of(v, v->src[1]);
    uint32_t dtype = qn_shape_of(v, v->grad[0]).dtype;
    int rank = x.rank < axes ? axes : x.rank;
    int64_t d[QN_MAX_RANK];
    for (int i = 0; i < rank; i++) d[rank - 1 - i] = qn_sd(&x, i);
    at.kernel.rank = at.stride.rank = at.padding.rank = axes;
    for (int i = 0; i < axes; i++) { /* the attributes count from the last axis, the lists from the first */
        at.kernel.d[axes - 1 - i] = k[i];
        at.stride.d[axes - 1 - i] = s[i];
        at.padding.d[axes - 1 - i] = p[i];
    }
    qn_val t = qn_e_reshape(v, v->grad[0], rank, d), at_x = qn_e_reshape(v, qn_e_cast(v, v->src[1], dtype), rank, d);
    return qn_e_like(v, qn_emit2(v, QN_OP_pool_tangent, QN_REDUCE_max, &at, t, at_x), v->src[0]);
}

void qn_vjp_pool_1d_back(qn_vjp_call *v) {
    const qn_attr_pool_1d_back *from = v->attr;
    if (!v->want[0]) return;
    if (from->kind == POOL_MAX) {
        v->out[0] = maximum_tangent(v, 1, &from->k, &from->s, &from->p);
        return;
    }
    qn_attr_pool_1d at = qn_attr_pool_1d_default();
    at.kind = from->kind;
    at.k = from->k;
    at.s = from->s;
    at.p = from->p;
    v->out[0] = qn_e_like(v, qn_emit1(v, QN_OP_pool_1d, 0, &at, v->grad[0]), v->src[0]);
}

void qn_vjp_pool_2d_back(qn_vjp_call *v) {
    const qn_attr_pool_2d_back *from = v->attr;
    if (!v->want[0]) return;
    if (from->kind == POOL_MAX) {
        int32_t k[2] = {from->k0, from->k1}, s[2] = {from->s0, from->s1}, p[2] = {from->p0, from->p1};
        v->out[0] = maximum_tangent(v, 2, k, s, p);
        return;
    }
    qn_attr_pool_2d at = qn_attr_pool_2d_default();
    at.kind = from->kind;
    at.k0 = from->k0;
    at.k1 = from->k1;
    at.s0 = from->s0;
    at.s1 = from->s1;
    at.p0 = from->p0;
    at.p1 = from->p1;
    v->out[0] = qn_e_like(v, qn_emit1(v, QN_OP_pool_2d, 0, &at, v->grad[0]), v->src[0]);
}
