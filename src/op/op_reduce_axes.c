/* Reductions over any set of axes, and what runs along any one axis: arg_reduce, softmax, scan. Elements are taken in logical
 * order, floats in double and integers exactly, so the result depends on nothing else. */
#include <math.h>

#include "op/integer.h"
#include "op/op_axes.h"
#include "op/op_emit.h"

typedef qn_attr_reduce reduce_attrs; /* reduce_back has the same fields */
_Static_assert(offsetof(qn_attr_reduce, axes) == offsetof(qn_attr_reduce_back, axes), "shared attributes");
_Static_assert(offsetof(qn_attr_reduce, keep) == offsetof(qn_attr_reduce_back, keep), "shared attributes");
typedef qn_attr_scan scan_attrs; /* as scan_back does, and softmax and softmax_back share the axis that comes first */
_Static_assert(offsetof(qn_attr_scan, axis) == offsetof(qn_attr_scan_back, axis), "shared attributes");
_Static_assert(offsetof(qn_attr_scan, axis) == offsetof(qn_attr_softmax, axis), "shared attributes");
_Static_assert(offsetof(qn_attr_scan, axis) == offsetof(qn_attr_softmax_back, axis), "shared attributes");
_Static_assert(offsetof(qn_attr_scan, reverse) == offsetof(qn_attr_scan_back, reverse), "shared attributes");
_Static_assert(offsetof(qn_attr_scan, exclusive) == offsetof(qn_attr_scan_back, exclusive), "shared attributes");

enum { LAST = QN_MAX_RANK - 1 };

/* ---- Shape rules */

/* What is left of x, first axis first; at least one axis. */
static int reduced_shape(const qn_tensor *x, unsigned set, int keep, int64_t *d) {
    int rank = 0;
    for (int i = 0; i < x->rank; i++) {
        int gone = (int)(set >> (x->rank - 1 - i) & 1);
        if (!gone) d[rank++] = x->shape[i];
        else if (keep) d[rank++] = 1;
    }
    if (rank == 0) d[rank++] = 1;
    return rank;
}

/* Rejects a reduced axis without elements. */
static qn_status need_elements(qn_infer_call *c, int slot, unsigned set) {
    const qn_tensor *x = c->src[slot];
    for (int i = 0; i < x->rank; i++)
        if ((set >> (x->rank - 1 - i) & 1) && x->shape[i] == 0) return qn_reject_src(c, slot, QN_REASON_SHAPE_EMPTY, i, 1, 0);
    return QN_OK;
}

/* The axes of a reduction of source `slot`: sums and products may be of nothing, the others not. */
static qn_status reduce_set(qn_infer_call *c, int slot, unsigned *set) {
    const reduce_attrs *at = c->attr;
    QN_TRY(qn_op_axes_check(c, &at->axes, c->src[slot]->rank, set));
    return c->subop == QN_REDUCE_sum || c->subop == QN_REDUCE_prod ? QN_OK : need_elements(c, slot, *set);
}

qn_status qn_infer_reduce(qn_infer_call *c) {
    const reduce_attrs *at = c->attr;
    const qn_tensor *x = c->src[0];
    int64_t d[QN_MAX_RANK];
    unsigned set;
    QN_TRY(reduce_set(c, 0, &set));
    int rank = reduced_shape(x, set, at->keep, d);
    c->flops_each = 1;
    for (int k = 0; k < x->rank; k++)
        if (set >> k & 1) c->flops_each *= (double)qn_ne(x, k);
    return qn_out_shape(c, 0, x->dtype, rank, d);
}

/* The product's gradient keeps the products of what follows each element. */
static qn_status product_workspace(qn_infer_call *c, const qn_tensor *x, unsigned set) {
    int64_t bytes = sizeof(double);
    int empty = 0;
    for (int i = 0; i < x->rank; i++) {
        if (!(set >> (x->rank - 1 - i) & 1)) continue;
        if (x->shape[i] == 0) empty = 1;
        else if (qn_mul_overflow(bytes, x->shape[i], &bytes))
            return qn_reject_src(c, 1, QN_REASON_SIZE_OVERFLOW, i, INT64_MAX, x->shape[i]);
    }
    c->workspace = empty ? 0 : (size_t)bytes;
    return QN_OK;
}

qn_status qn_infer_reduce_back(qn_infer_call *c) {
    const reduce_attrs *at = c->attr;
    const qn_tensor *g = c->src[0], *x = c->src[1];
    int64_t d[QN_MAX_RANK];
    unsigned set;
    QN_TRY(reduce_set(c, 1, &set));
    int rank = reduced_shape(x, set, at->keep, d);
    for (int k = 0; k < rank || k < g->rank; k++) QN_TRY(qn_need_extent(c, 0, k, k < rank ? d[rank - 1 - k] : 1));
    QN_TRY(qn_need_same_dtype(c, 0, 1));
    if (c->subop == QN_REDUCE_prod) QN_TRY(product_workspace(c, x, set));
    qn_out_like(c, 0, x, x->dtype);
    return QN_OK;
}

qn_status qn_infer_arg_reduce(qn_infer_call *c) {
    const qn_attr_arg_reduce *at = c->attr;
    const qn_tensor *x = c->src[0];
    int64_t d[QN_MAX_RANK];
    QN_TRY(qn_op_axis_check(c, at->axis, x->rank));
    int k = qn_op_axis(at->axis, x->rank);
    QN_TRY(need_elements(c, 0, 1u << k));
    if (qn_ne(x, k) > INT32_MAX)
        return qn_reject_src(c, 0, QN_REASON_SHAPE_LARGE, qn_op_front(x->rank, k), INT32_MAX, qn_ne(x, k));
    int rank = reduced_shape(x, 1u << k, at->keep, d);
    c->flops_each = (double)qn_ne(x, k);
    return qn_out_shape(c, 0, QN_DTYPE_I32, rank, d);
}

qn_status qn_infer_softmax(qn_infer_call *c) {
    const scan_attrs *at = c->attr;
    QN_TRY(qn_op_axis_check(c, at->axis, c->src[0]->rank));
    qn_out_like(c, 0, c->src[0], c->src[0]->dtype);
    c->flops_each = 5; /* maximum, difference, power, sum, quotient */
    return QN_OK;
}

qn_status qn_infer_softmax_back(qn_infer_call *c) {
    QN_TRY(qn_need_same_shape(c, 1, 0));
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    QN_TRY(qn_infer_softmax(c));
    c->flops_each = 4;
    return QN_OK;
}

qn_status qn_infer_scan(qn_infer_call *c) {
    QN_TRY(qn_infer_softmax(c));
    c->flops_each = 1;
    return QN_OK;
}

/* Products before each element of a lane are kept while the lane is walked from the other end. */
qn_status qn_infer_scan_back(qn_infer_call *c) {
    const scan_attrs *at = c->attr;
    const qn_tensor *x = c->src[1];
    int64_t bytes;
    QN_TRY(qn_op_axis_check(c, at->axis, x->rank)); /* of x, whose axes the attribute counts */
    QN_TRY(qn_need_same_shape(c, 0, 1));
    QN_TRY(qn_need_same_dtype(c, 0, 1));
    int k = qn_op_axis(at->axis, x->rank);
    if (qn_mul_overflow(qn_ne(x, k), (int64_t)sizeof(double), &bytes))
        return qn_reject_src(c, 1, QN_REASON_SIZE_OVERFLOW, qn_op_front(x->rank, k), INT64_MAX, qn_ne(x, k));
    c->workspace = (size_t)bytes;
    c->flops_each = 4;
    qn_out_like(c, 0, x, x->dtype);
    return QN_OK;
}

/* ---- reduce */

/* A reduction on its way: the value, and for extrema which element it is. */
typedef struct running {
    double value;
    int64_t seen, best;
} running;

typedef void (*take_fn)(running *r, const double *x, int64_t n);

static void take_sum(running *r, const double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) r->value += x[i];
    r->seen += n;
}
static void take_mean(running *r, const double *x, int64_t n) { take_sum(r, x, n); }

static void take_prod(running *r, const double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) r->value *= x[i];
    r->seen += n;
}

#define EXTREMUM(name, sign)                                                        \
    static void take_##name(running *r, const double *x, int64_t n) {               \
        for (int64_t i = 0; i < n; i++) {                                           \
            int first = r->seen + i == 0, over = x[i] sign r->value || isnan(x[i]); \
            if (!first && (isnan(r->value) || !over)) continue;                     \
            r->value = x[i];                                                        \
            r->best = r->seen + i;                                                  \
        }                                                                           \
        r->seen += n;                                                               \
    }
EXTREMUM(max, >)
EXTREMUM(min, <)

static const take_fn takes[] = {
#define QN_REDUCE(name, formula) take_##name,
#include <quern/reduce.def>
#undef QN_REDUCE
};

static running reduce_floats(const qn_tensor *gone, int subop) {
    running r = {subop == QN_REDUCE_prod ? 1 : 0, 0, 0};
    double run[QN_RUN];
    qn_rows it;
    for (qn_rows_begin(&it, QN_MAX_RANK, gone->shape); it.live; qn_rows_next(&it))
        for (int64_t i = 0; i < it.n; i += QN_RUN) {
            int64_t n = it.n - i < QN_RUN ? it.n - i : QN_RUN;
            qn_load_row(gone, qn_row(&it, gone), i, n, run);
            takes[subop](&r, run, n);
        }
    if (subop == QN_REDUCE_mean) r.value /= (double)r.seen;
    return r;
}

static int64_t reduce_integers(const qn_tensor *gone, int subop, int64_t *best) {
    qn_wide sum = 0;
    qn_signed product = {1, 0};
    int64_t top = 0, seen = 0;
    qn_rows it;
    for (qn_rows_begin(&it, QN_MAX_RANK, gone->shape); it.live; qn_rows_next(&it))
        for (int64_t i = 0; i < it.n; i++, seen++) {
            int64_t x = qn_load_index((qn_dtype)gone->dtype, qn_row(&it, gone) + i * gone->stride[LAST]);
            sum += x;
            if (subop == QN_REDUCE_prod) product = qn_signed_mul(product, qn_signed_of(x));
            if (seen == 0 || (subop == QN_REDUCE_max ? x > top : x < top)) top = x, *best = seen;
        }
    switch (subop) {
    case QN_REDUCE_sum: return qn_wide_value(sum);
    case QN_REDUCE_mean: return qn_wide_value(sum / seen);
    case QN_REDUCE_prod: return qn_signed_value(product);
    default: return top;
    }
}

qn_status qn_ref_reduce(const qn_call *c) {
    const reduce_attrs *at = c->attr;
    const qn_tensor *x = c->src[0];
    unsigned set = qn_op_axes_set(&at->axes, x->rank);
    qn_dtype dtype = (qn_dtype)x->dtype;
    qn_tensor kept, gone;
    int64_t best;
    qn_op_split(x, set, &kept, &gone);
    qn_tensor y = qn_op_reduced(c->dst[0], set, at->keep, &kept);
    qn_rows it;
    for (qn_rows_begin(&it, QN_MAX_RANK, kept.shape); it.live; qn_rows_next(&it))
        for (int64_t i = 0; i < it.n; i++) {
            qn_tensor lane = qn_op_begin_at(&gone, &kept, qn_row(&it, &kept), i);
            char *to = qn_row(&it, &y) + i * y.stride[LAST];
            if (qn_is_integer(dtype)) qn_store_integer(dtype, to, reduce_integers(&lane, c->subop, &best));
            else qn_store_one(dtype, to, reduce_floats(&lane, c->subop).value);
        }
    return QN_OK;
}

/* What follows each element multiplied up, into `after`. */
static void products_after(const qn_tensor *gone, double *after) {
    int64_t n = 0;
    double product = 1;
    qn_rows it;
    for (qn_rows_begin(&it, QN_MAX_RANK, gone->shape); it.live; qn_rows_next(&it), n += it.n)
        qn_load_row(gone, qn_row(&it, gone), 0, it.n, after + n);
    while (n-- > 0) {
        double x = after[n];
        after[n] = product;
        product *= x;
    }
}

/* Writes the gradient of one reduction, g being that of its result: through dx, which lies as x does. */
static void reduce_back_one(const qn_tensor *dx, const qn_tensor *x, double g, int subop, double *after) {
    running r = {0, 0, 0};
    double before = 1;
    int64_t at = 0;
    if (subop != QN_REDUCE_sum && subop != QN_REDUCE_prod) r = reduce_floats(x, subop);
    if (subop == QN_REDUCE_prod) products_after(x, after);
    qn_rows it;
    for (qn_rows_begin(&it, QN_MAX_RANK, x->shape); it.live; qn_rows_next(&it))
        for (int64_t i = 0; i < it.n; i++, at++) {
            double value = g, here;
            if (subop == QN_REDUCE_mean) value = g / (double)r.seen;
            else if (subop == QN_REDUCE_max || subop == QN_REDUCE_min) value = at == r.best ? g : 0;
            else if (subop == QN_REDUCE_prod) {
                value = g * (before * after[at]);
                qn_load_row(x, qn_row(&it, x), i, 1, &here);
                before *= here;
            }
            qn_store_row(dx, qn_row(&it, dx), i, 1, &value);
        }
}

qn_status qn_ref_reduce_back(const qn_call *c) {
    const reduce_attrs *at = c->attr;
    const qn_tensor *x = c->src[1];
    unsigned set = qn_op_axes_set(&at->axes, x->rank);
    qn_tensor kept, gone, kept_dx, gone_dx;
    qn_op_split(x, set, &kept, &gone);
    qn_op_split(c->dst[0], set, &kept_dx, &gone_dx);
    qn_tensor g = qn_op_reduced(c->src[0], set, at->keep, &kept);
    qn_rows it;
    for (qn_rows_begin(&it, QN_MAX_RANK, kept.shape); it.live; qn_rows_next(&it))
        for (int64_t i = 0; i < it.n; i++) {
            qn_tensor from = qn_op_begin_at(&gone, &kept, qn_row(&it, &kept), i);
            qn_tensor to = qn_op_begin_at(&gone_dx, &kept_dx, qn_row(&it, &kept_dx), i);
            double up;
            qn_load_row(&g, qn_row(&it, &g), i, 1, &up);
            reduce_back_one(&to, &from, up, c->subop, c->workspace);
        }
    return QN_OK;
}

qn_status qn_ref_arg_reduce(const qn_call *c) {
    const qn_attr_arg_reduce *at = c->attr;
    const qn_tensor *x = c->src[0];
    unsigned set = 1u << qn_op_axis(at->axis, x->rank);
    int extremum = c->subop == QN_ARG_REDUCE_max ? QN_REDUCE_max : QN_REDUCE_min;
    qn_tensor kept, gone;
    qn_op_split(x, set, &kept, &gone);
    qn_tensor y = qn_op_reduced(c->dst[0], set, at->keep, &kept);
    qn_rows it;
    for (qn_rows_begin(&it, QN_MAX_RANK, kept.shape); it.live; qn_rows_next(&it))
        for (int64_t i = 0; i < it.n; i++) {
            qn_tensor lane = qn_op_begin_at(&gone, &kept, qn_row(&it, &kept), i);
            int64_t best = 0;
            if (qn_is_integer(x->dtype)) reduce_integers(&lane, extremum, &best);
            else best = reduce_floats(&lane, extremum).best;
            qn_store_integer(QN_DTYPE_I32, qn_row(&it, &y) + i * y.stride[LAST], best);
        }
    return QN_OK;
}

/* ---- softmax */

static void softmax_lane(const qn_tensor *y, char *to, const qn_tensor *x, const char *from, int64_t n) {
    double run[QN_RUN], top = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i += QN_RUN) {
        int64_t take = n - i < QN_RUN ? n - i : QN_RUN;
        qn_load_row(x, from, i, take, run);
        for (int64_t k = 0; k < take; k++)
            if (run[k] > top) top = run[k];
    }
    if (top == -INFINITY) top = 0; /* then every e^x is 0, or NaN */
    for (int64_t i = 0; i < n; i += QN_RUN) {
        int64_t take = n - i < QN_RUN ? n - i : QN_RUN;
        qn_load_row(x, from, i, take, run);
        for (int64_t k = 0; k < take; k++) sum += exp(run[k] - top);
    }
    for (int64_t i = 0; i < n; i += QN_RUN) {
        int64_t take = n - i < QN_RUN ? n - i : QN_RUN;
        qn_load_row(x, from, i, take, run);
        for (int64_t k = 0; k < take; k++) run[k] = sum == 0 ? 0 : exp(run[k] - top) / sum;
        qn_store_row(y, to, i, take, run);
    }
}

qn_status qn_ref_softmax(const qn_call *c) {
    int k = qn_op_axis(((const scan_attrs *)c->attr)->axis, c->src[0]->rank);
    qn_tensor x = qn_op_lanes(c->src[0], k), y = qn_op_lanes(c->dst[0], k);
    qn_rows it;
    for (qn_rows_begin(&it, QN_MAX_RANK, x.shape); it.live; qn_rows_next(&it))
        softmax_lane(&y, qn_row(&it, &y), &x, qn_row(&it, &x), it.n);
    return QN_OK;
}

/* dx = y (g - sum of g y). */
qn_status qn_ref_softmax_back(const qn_call *c) {
    int k = qn_op_axis(((const scan_attrs *)c->attr)->axis, c->src[0]->rank);
    qn_tensor g = qn_op_lanes(c->src[0], k), y = qn_op_lanes(c->src[1], k), dx = qn_op_lanes(c->dst[0], k);
    double up, share;
    qn_rows it;
    for (qn_rows_begin(&it, QN_MAX_RANK, g.shape); it.live; qn_rows_next(&it)) {
        const char *pg = qn_row(&it, &g), *py = qn_row(&it, &y);
        char *to = qn_row(&it, &dx);
        double sum = 0;
        for (int64_t i = 0; i < it.n; i++) {
            qn_load_row(&g, pg, i, 1, &up);
            qn_load_row(&y, py, i, 1, &share);
            sum += up * share;
        }
        for (int64_t i = 0; i < it.n; i++) {
            qn_load_row(&g, pg, i, 1, &up);
            qn_load_row(&y, py, i, 1, &share);
            double value = share * (up - sum);
            qn_store_row(&dx, to, i, 1, &value);
        }
    }
    return QN_OK;
}

/* ---- scan. One element at a time, so that it may run in place in either direction. */

static void scan_floats(const qn_tensor *y, char *to, const qn_tensor *x, const char *from, int64_t n, const qn_call *c) {
    const scan_attrs *at = c->attr;
    double now = c->subop == QN_SCAN_prod ? 1 : 0, value;
    for (int64_t k = 0; k < n; k++) {
        int64_t i = at->reverse ? n - 1 - k : k;
        double before = now;
        qn_load_row(x, from, i, 1, &value);
        now = c->subop == QN_SCAN_prod ? now * value : now + value;
        qn_store_row(y, to, i, 1, at->exclusive ? &before : &now);
    }
}

static void scan_integers(const qn_tensor *y, char *to, const qn_tensor *x, const char *from, int64_t n, const qn_call *c) {
    const scan_attrs *at = c->attr;
    qn_wide sum = 0;
    qn_signed product = {1, 0};
    for (int64_t k = 0; k < n; k++) {
        int64_t i = at->reverse ? n - 1 - k : k, value = qn_load_index((qn_dtype)x->dtype, from + i * x->stride[LAST]);
        int64_t before = c->subop == QN_SCAN_prod ? qn_signed_value(product) : qn_wide_value(sum);
        sum += value;
        product = qn_signed_mul(product, qn_signed_of(value));
        int64_t after = c->subop == QN_SCAN_prod ? qn_signed_value(product) : qn_wide_value(sum);
        qn_store_integer((qn_dtype)y->dtype, to + i * y->stride[LAST], at->exclusive ? before : after);
    }
}

qn_status qn_ref_scan(const qn_call *c) {
    int k = qn_op_axis(((const scan_attrs *)c->attr)->axis, c->src[0]->rank);
    qn_tensor x = qn_op_lanes(c->src[0], k), y = qn_op_lanes(c->dst[0], k);
    qn_rows it;
    for (qn_rows_begin(&it, QN_MAX_RANK, x.shape); it.live; qn_rows_next(&it))
        (qn_is_integer(x.dtype) ? scan_integers : scan_floats)(&y, qn_row(&it, &y), &x, qn_row(&it, &x), it.n, c);
    return QN_OK;
}

/* Of a product: dx_i is the product of all before i, times h_i, where h_i = g_i + x_(i+1) h_(i+1); no division, so zeros are
 * exact. The exclusive form has g_(i+1) for g_i. A sum is the same with every x one. Positions count in the scan's direction. */
qn_status qn_ref_scan_back(const qn_call *c) {
    const scan_attrs *at = c->attr;
    int k = qn_op_axis(at->axis, c->src[1]->rank), product = c->subop == QN_SCAN_prod;
    qn_tensor g = qn_op_lanes(c->src[0], k), x = qn_op_lanes(c->src[1], k), dx = qn_op_lanes(c->dst[0], k);
    double *before = c->workspace, value, up;
    qn_rows it;
    for (qn_rows_begin(&it, QN_MAX_RANK, x.shape); it.live; qn_rows_next(&it)) {
        const char *pg = qn_row(&it, &g), *px = qn_row(&it, &x);
        char *to = qn_row(&it, &dx);
        double so_far = 1, later = 0, next = 0, h = 0;
        for (int64_t p = 0; p < it.n; p++) {
            qn_load_row(&x, px, at->reverse ? it.n - 1 - p : p, 1, &value);
            before[p] = so_far;
            if (product) so_far *= value;
        }
        for (int64_t p = it.n - 1; p >= 0; p--) {
            int64_t i = at->reverse ? it.n - 1 - p : p;
            qn_load_row(&x, px, i, 1, &value);
            qn_load_row(&g, pg, i, 1, &up);
            h = (at->exclusive ? later : up) + next * h;
            double out = before[p] * h;
            qn_store_row(&dx, to, i, 1, &out);
            next = product ? value : 1;
            later = up;
        }
    }
    return QN_OK;
}

/* ---- Gradients */

/* A sum's is g itself, stretched; the others need x. */
void qn_vjp_reduce(qn_vjp_call *v) {
    const qn_attr_reduce *at = v->attr;
    qn_attr_reduce_back back = qn_attr_reduce_back_default();
    back.axes = at->axes;
    back.keep = at->keep;
    if (v->subop != QN_REDUCE_sum) {
        qn_val x = qn_e_cast(v, v->src[0], qn_shape_of(v, v->grad[0]).dtype);
        v->out[0] = qn_emit2(v, QN_OP_reduce_back, v->subop, &back, v->grad[0], x);
        return;
    }
    qn_shape s = qn_shape_of(v, v->src[0]);
    unsigned set = qn_op_axes_set(&at->axes, s.rank);
    int64_t ones[QN_MAX_RANK];
    qn_attr_expand expand = qn_attr_expand_default();
    expand.shape.rank = s.rank;
    for (int i = 0; i < s.rank; i++) {
        ones[i] = set >> (s.rank - 1 - i) & 1 ? 1 : s.d[i];
        expand.shape.d[i] = s.d[i];
    }
    v->out[0] = qn_emit1(v, QN_OP_expand, 0, &expand, qn_e_reshape(v, v->grad[0], s.rank, ones));
}

void qn_vjp_softmax(qn_vjp_call *v) {
    qn_attr_softmax_back at = qn_attr_softmax_back_default();
    at.axis = ((const qn_attr_softmax *)v->attr)->axis;
    v->out[0] = qn_emit2(v, QN_OP_softmax_back, 0, &at, v->grad[0], v->dst[0]);
}

/* What element i of a sum went into: the sums from i on, which are a scan from the other end. */
void qn_vjp_scan(qn_vjp_call *v) {
    const qn_attr_scan *at = v->attr;
    if (v->subop == QN_SCAN_sum) {
        qn_attr_scan other = *at;
        other.reverse = !at->reverse;
        v->out[0] = qn_emit1(v, QN_OP_scan, QN_SCAN_sum, &other, v->grad[0]);
        return;
    }
    qn_attr_scan_back back = qn_attr_scan_back_default();
    back.axis = at->axis;
    back.reverse = at->reverse;
    back.exclusive = at->exclusive;
    qn_val x = qn_e_cast(v, v->src[0], qn_shape_of(v, v->grad[0]).dtype);
    v->out[0] = qn_emit2(v, QN_OP_scan_back, v->subop, &back, v->grad[0], x);
}
