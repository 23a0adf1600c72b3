/* Pools of graphs: sum, mean, maximum, minimum or product of windows sliding over the last one to three axes; whatever lies in
 * front is a batch. Only real samples take part, but a mean may count the padding too. Padding is always less than the window,
 * so every window holds a sample. A NaN counts as extremal, and of equal extrema the first in row-major order does. */
#include <math.h>

#include "op/op_convn.h"
#include "op/op_emit.h"

/* The attributes of all three ops are the same list. */
_Static_assert(sizeof(qn_attr_pool) == sizeof(qn_attr_pool_back), "shared attributes");
_Static_assert(sizeof(qn_attr_pool) == sizeof(qn_attr_pool_tangent), "shared attributes");
_Static_assert(offsetof(qn_attr_pool, ceil_mode) == offsetof(qn_attr_pool_tangent, ceil_mode), "shared attributes");

typedef struct pool_form {
    int reduction; /* qn_reduce */
    int count_pad;
    int axes;
    qn_window of[QN_WINDOW_AXES];
    int64_t behind[QN_WINDOW_AXES];
} pool_form;

/* ---- Shape rules */

/* The number of windows along an axis that begin in front of its padding's end, or, rounded up, on a sample or before it. */
static int64_t windows_along(const qn_window *w, int64_t behind, int ceil_mode) {
    int64_t room = w->in + w->pad + behind - w->taps, out = room / w->stride + 1;
    if (ceil_mode && room % w->stride && out * w->stride < w->in + w->pad) out++;
    return out;
}

static pool_form form_of(const qn_attr_pool *at, int subop, const qn_tensor *x) {
    qn_window_lists lists = {&at->stride, &at->padding, &at->padding_hi, NULL};
    pool_form f = {.reduction = subop, .count_pad = at->count_include_pad, .axes = at->kernel.rank};
    for (int k = 0; k < QN_WINDOW_AXES; k++) {
        f.of[k] = (qn_window){.in = 1, .taps = 1, .stride = 1, .dilation = 1, .out = 1};
        if (k >= f.axes) continue;
        f.of[k] = qn_window_along(&lists, k);
        f.of[k].in = qn_ne(x, k);
        f.of[k].taps = qn_list_entry(&at->kernel, k, 1);
        f.behind[k] = qn_pad_behind(&lists, k);
        f.of[k].out = windows_along(&f.of[k], f.behind[k], at->ceil_mode);
    }
    return f;
}

/* Padding that is as wide as the window would give windows without a sample. */
static qn_status need_narrow(qn_infer_call *c, const char *name, const qn_dims *padding, const qn_dims *kernel) {
    for (int i = 0; i < padding->rank; i++)
        if (padding->d[i] >= kernel->d[i])
            return qn_reject_attr(c, name, QN_REASON_ATTR_ENTRY_HIGH, i, kernel->d[i] - 1, padding->d[i]);
    return QN_OK;
}

/* Everything about the attributes and the forward x in source `slot`. */
static qn_status need_pool(qn_infer_call *c, int slot) {
    const qn_attr_pool *at = c->attr;
    const qn_tensor *x = c->src[slot];
    qn_window_lists lists = {&at->stride, &at->padding, &at->padding_hi, NULL};
    int axes = at->kernel.rank;
    if (axes > QN_WINDOW_AXES) return qn_reject_attr(c, "kernel", QN_REASON_ATTR_RANK, -1, QN_WINDOW_AXES, axes);
    QN_TRY(qn_need_list(c, "kernel", &at->kernel, axes, 1, INT32_MAX));
    QN_TRY(qn_need_window_lists(c, &lists, axes));
    QN_TRY(need_narrow(c, "padding", &at->padding, &at->kernel));
    QN_TRY(need_narrow(c, "padding_hi", &at->padding_hi, &at->kernel));
    c->flops_each = 1;
    if (x->rank < axes) return qn_reject_src(c, slot, QN_REASON_SHAPE_RANK_LOW, -1, axes, x->rank);
    for (int k = 0; k < axes; k++) {
        int64_t pad = qn_list_entry(&at->padding, k, 0) + qn_pad_behind(&lists, k), taps = qn_list_entry(&at->kernel, k, 1);
        if (qn_ne(x, k) == 0) return qn_reject_src(c, slot, QN_REASON_SHAPE_EMPTY, qn_axis(x, k), 1, 0);
        if (qn_ne(x, k) + pad < taps)
            return qn_reject_src(c, slot, QN_REASON_SHAPE_SMALL, qn_axis(x, k), taps - pad, qn_ne(x, k));
        c->flops_each *= (double)(taps < qn_ne(x, k) ? taps : qn_ne(x, k));
    }
    return QN_OK;
}

qn_status qn_infer_pool(qn_infer_call *c) {
    const qn_tensor *x = c->src[0];
    int64_t d[QN_MAX_RANK];
    QN_TRY(need_pool(c, 0));
    pool_form f = form_of(c->attr, c->subop, x);
    for (int k = 0; k < x->rank; k++) d[x->rank - 1 - k] = k < f.axes ? f.of[k].out : qn_ne(x, k);
    return qn_out_shape(c, 0, x->dtype, x->rank, d);
}

/* Sources: a direction, then x, which it is a direction at. */
qn_status qn_infer_pool_tangent(qn_infer_call *c) {
    const qn_tensor *x = c->src[1];
    int64_t d[QN_MAX_RANK];
    QN_TRY(need_pool(c, 1));
    QN_TRY(qn_need_same_shape(c, 0, 1));
    QN_TRY(qn_need_same_dtype(c, 0, 1));
    pool_form f = form_of(c->attr, c->subop, x);
    for (int k = 0; k < x->rank; k++) d[x->rank - 1 - k] = k < f.axes ? f.of[k].out : qn_ne(x, k);
    return qn_out_shape(c, 0, x->dtype, x->rank, d);
}

/* Sources: the gradient of the result, then the forward x. */
qn_status qn_infer_pool_back(qn_infer_call *c) {
    const qn_tensor *x = c->src[1];
    QN_TRY(need_pool(c, 1));
    pool_form f = form_of(c->attr, c->subop, x);
    for (int k = 0; k < QN_MAX_RANK; k++) QN_TRY(qn_need_extent(c, 0, k, k < f.axes ? f.of[k].out : qn_ne(x, k)));
    QN_TRY(qn_need_f64_pair(c, 0, 1));
    qn_out_like(c, 0, x, x->dtype);
    return QN_OK;
}

/* ---- Windows */

/* The pooled axes of a tensor at one index of the axes in front. */
typedef struct volume {
    qn_dtype dtype;
    char *at;
    int64_t step[QN_WINDOW_AXES];
} volume;

static volume volume_of(const pool_form *f, const qn_tensor *t, const qn_rows *it) {
    volume v = {(qn_dtype)t->dtype, NULL, {0}};
    int64_t at = 0;
    for (int k = f->axes; k < it->rank; k++) at += it->index[it->rank - 1 - k] * qn_nb(t, k);
    v.at = qn_at(t, at);
    for (int k = 0; k < f->axes; k++) v.step[k] = qn_nb(t, k);
    return v;
}

/* An index along each pooled axis, from the last. */
typedef struct place {
    int64_t at[QN_WINDOW_AXES];
} place;

/* Index within the volume of element `last` of the walked row. */
static place place_of(const pool_form *f, const qn_rows *it, int64_t last) {
    place p = {{last, 0, 0}};
    for (int k = 1; k < f->axes; k++) p.at[k] = it->index[it->rank - 1 - k];
    return p;
}

static double sample(const volume *v, const place *p) {
    return qn_load_one(v->dtype, v->at + p->at[0] * v->step[0] + p->at[1] * v->step[1] + p->at[2] * v->step[2]);
}

static int same_place(const place *a, const place *b) {
    return a->at[0] == b->at[0] && a->at[1] == b->at[1] && a->at[2] == b->at[2];
}

/* The real samples under one window, and how many values its mean counts. */
typedef struct under {
    qn_range of[QN_WINDOW_AXES];
    double count;
} under;

static under under_window(const pool_form *f, const place *window) {
    under u = {.count = 1};
    for (int k = 0; k < QN_WINDOW_AXES; k++) {
        const qn_window *w = &f->of[k];
        int64_t first = qn_window_sample(w, window->at[k], 0), last = first + w->taps, end = w->in + f->behind[k];
        u.of[k] = (qn_range){first < 0 ? 0 : first, last > w->in ? w->in : last};
        if (f->count_pad) u.count *= (double)((last < end ? last : end) - first);
        else u.count *= (double)(u.of[k].last - u.of[k].first);
    }
    return u;
}

/* Steps to the next sample under the window in row-major order; 0 when there is none. */
static int next_under(const under *u, place *p) {
    for (int k = 0; k < QN_WINDOW_AXES; k++) {
        if (++p->at[k] < u->of[k].last) return 1;
        p->at[k] = u->of[k].first;
    }
    return 0;
}

static place first_under(const under *u) {
    place p = {{u->of[0].first, u->of[1].first, u->of[2].first}};
    return p;
}

static place extremum(const pool_form *f, const volume *x, const under *u) {
    place p = first_under(u), best = p;
    double value = sample(x, &p);
    while (!isnan(value) && next_under(u, &p)) {
        double v = sample(x, &p);
        if ((f->reduction == QN_REDUCE_max ? v > value : v < value) || isnan(v)) {
            value = v;
            best = p;
        }
    }
    return best;
}

static double sum_under(const volume *x, const under *u) {
    double sum = 0;
    place p = first_under(u);
    do sum += sample(x, &p);
    while (next_under(u, &p));
    return sum;
}

/* The product of all samples but one, which may be NULL. */
static double product_under(const volume *x, const under *u, const place *without) {
    double product = 1;
    place p = first_under(u);
    do
        if (!without || !same_place(&p, without)) product *= sample(x, &p);
    while (next_under(u, &p));
    return product;
}

/* ---- References */

static double pool_window(const pool_form *f, const volume *x, const place *window) {
    under u = under_window(f, window);
    place best;
    switch (f->reduction) {
    case QN_REDUCE_sum: return sum_under(x, &u);
    case QN_REDUCE_mean: return sum_under(x, &u) / u.count;
    case QN_REDUCE_prod: return product_under(x, &u, NULL);
    default: best = extremum(f, x, &u); return sample(x, &best);
    }
}

/* How fast the result of a window changes as its samples move along t. */
static double tangent_window(const pool_form *f, const volume *t, const volume *x, const place *window) {
    under u = under_window(f, window);
    place p = first_under(&u);
    double sum = 0;
    switch (f->reduction) {
    case QN_REDUCE_sum: return sum_under(t, &u);
    case QN_REDUCE_mean: return sum_under(t, &u) / u.count;
    case QN_REDUCE_prod:
        do sum += sample(t, &p) * product_under(x, &u, &p);
        while (next_under(&u, &p));
        return sum;
    default: p = extremum(f, x, &u); return sample(t, &p);
    }
}

/* Every window of x, or of t over x when there is one. */
static qn_status each_window(const qn_call *c, const qn_tensor *t, const qn_tensor *x) {
    const qn_tensor *y = c->dst[0];
    pool_form f = form_of(c->attr, c->subop, x);
    int64_t shape[QN_MAX_RANK];
    qn_rows it;
    for (int k = 0; k < x->rank; k++) shape[x->rank - 1 - k] = k < f.axes ? f.of[k].out : qn_ne(x, k);
    for (qn_rows_begin(&it, x->rank, shape); it.live; qn_rows_next(&it)) {
        volume from = volume_of(&f, x, &it), along = volume_of(&f, t ? t : x, &it);
        char *row = qn_row(&it, y);
        for (int64_t o = 0; o < it.n; o++) {
            place window = place_of(&f, &it, o);
            double v = t ? tangent_window(&f, &along, &from, &window) : pool_window(&f, &from, &window);
            qn_store_row(y, row, o, 1, &v);
        }
    }
    return QN_OK;
}

qn_status qn_ref_pool(const qn_call *c) { return each_window(c, NULL, c->src[0]); }
qn_status qn_ref_pool_tangent(const qn_call *c) { return each_window(c, c->src[0], c->src[1]); }

/* What a window passes back to one of its samples, of the gradient of its result. */
static double share_of(const pool_form *f, const volume *x, const place *window, const place *at) {
    under u = under_window(f, window);
    place best;
    switch (f->reduction) {
    case QN_REDUCE_sum: return 1;
    case QN_REDUCE_mean: return 1 / u.count;
    case QN_REDUCE_prod: return product_under(x, &u, at);
    default: best = extremum(f, x, &u); return same_place(&best, at) ? 1 : 0;
    }
}

/* The windows over one sample: outputs [first, last) along an axis. */
static qn_range windows_over(const qn_window *w, int64_t at) {
    int64_t low = at + w->pad - (w->taps - 1), last = (at + w->pad) / w->stride + 1;
    qn_range r = {low <= 0 ? 0 : (low - 1) / w->stride + 1, last < w->out ? last : w->out};
    return r;
}

static double back_sample(const pool_form *f, const volume *g, const volume *x, const place *at) {
    qn_range over[QN_WINDOW_AXES];
    double sum = 0;
    for (int k = 0; k < QN_WINDOW_AXES; k++) over[k] = windows_over(&f->of[k], at->at[k]);
    for (int64_t d = over[2].first; d < over[2].last; d++)
        for (int64_t h = over[1].first; h < over[1].last; h++)
            for (int64_t w = over[0].first; w < over[0].last; w++) {
                place window = {{w, h, d}};
                double share = share_of(f, x, &window, at);
                if (share != 0) sum += share * sample(g, &window);
            }
    return sum;
}

/* Each sample gathers from the windows it lies under, so that sums are rounded once. */
qn_status qn_ref_pool_back(const qn_call *c) {
    const qn_tensor *g = c->src[0], *x = c->src[1], *dx = c->dst[0];
    pool_form f = form_of(c->attr, c->subop, x);
    qn_rows it;
    for (qn_rows_begin(&it, x->rank, x->shape); it.live; qn_rows_next(&it)) {
        volume grads = volume_of(&f, g, &it), from = volume_of(&f, x, &it);
        char *row = qn_row(&it, dx);
        for (int64_t i = 0; i < it.n; i++) {
            place at = place_of(&f, &it, i);
            double v = back_sample(&f, &grads, &from, &at);
            qn_store_row(dx, row, i, 1, &v);
        }
    }
    return QN_OK;
}

/* ---- Gradient */

void qn_vjp_pool(qn_vjp_call *v) {
    const qn_attr_pool *from = v->attr;
    qn_attr_pool_back at = qn_attr_pool_back_default();
    at.kernel = from->kernel;
    at.stride = from->stride;
    at.padding = from->padding;
    at.padding_hi = from->padding_hi;
    at.count_include_pad = from->count_include_pad;
    at.ceil_mode = from->ceil_mode;
    v->out[0] = qn_emit2(v, QN_OP_pool_back, v->subop, &at, v->grad[0], v->src[0]);
}

/* Where x only chooses, or has no part at all, moving it changes nothing. */
static void refuse_product(qn_vjp_call *v) {
    if (v->want[1] && v->subop == QN_REDUCE_prod) qn_vjp_refuse(v, 1, "second order of a product is not provided");
}

void qn_vjp_pool_back(qn_vjp_call *v) {
    qn_attr_pool_tangent at;
    memcpy(&at, v->attr, sizeof at);
    if (v->want[0]) {
        qn_val up = qn_e_cast(v, v->grad[0], qn_shape_of(v, v->src[1]).dtype);
        v->out[0] = qn_e_like(v, qn_emit2(v, QN_OP_pool_tangent, v->subop, &at, up, v->src[1]), v->src[0]);
    }
    refuse_product(v);
}

void qn_vjp_pool_tangent(qn_vjp_call *v) {
    qn_attr_pool_back at;
    memcpy(&at, v->attr, sizeof at);
    if (v->want[0]) v->out[0] = qn_emit2(v, QN_OP_pool_back, v->subop, &at, v->grad[0], v->src[1]);
    refuse_product(v);
}
