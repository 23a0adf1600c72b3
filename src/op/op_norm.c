/* Norms: rows (norm, rms_norm, l2_norm) and groups of channels (group_norm), with the gradients of each. None has weights:
 * those are a mul and an add. A set of elements that is normalised together is a `span`: one row, or the channels of a group. */
#include <math.h>

#include "op/op_tape.h"
#include "op/ref.h"

/* ---- Shape rules */

qn_status qn_infer_row_norm(qn_infer_call *c) {
    const qn_tensor *x = c->src[0];
    if (qn_ne(x, 0) == 0) return qn_reject_src(c, 0, QN_REASON_SHAPE_EMPTY, x->rank - 1, 1, 0);
    c->flops_each = 5; /* mean, difference, square, its mean, scale */
    qn_out_like(c, 0, x, x->dtype);
    return QN_OK;
}

qn_status qn_infer_row_norm2(qn_infer_call *c) {
    QN_TRY(qn_need_same_shape(c, 1, 0));
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    QN_TRY(qn_infer_row_norm(c));
    c->flops_each = 8;
    return QN_OK;
}

qn_status qn_infer_group_norm(qn_infer_call *c) {
    const qn_tensor *x = c->src[0];
    int32_t groups = ((const qn_attr_group_norm *)c->attr)->n_groups;
    QN_TRY(qn_need_rank(c, 0, 4));
    if (groups > qn_ne(x, 2)) return qn_reject_attr(c, "n_groups", QN_REASON_ATTR_CONFLICT, -1, qn_ne(x, 2), groups);
    for (int k = 0; k < 2; k++)
        if (qn_ne(x, k) == 0) return qn_reject_src(c, 0, QN_REASON_SHAPE_EMPTY, x->rank - 1 - k, 1, 0);
    c->flops_each = 5;
    qn_out_like(c, 0, x, x->dtype);
    return QN_OK;
}

qn_status qn_infer_group_norm_back(qn_infer_call *c) {
    QN_TRY(qn_need_same_shape(c, 1, 0));
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    QN_TRY(qn_infer_group_norm(c));
    c->flops_each = 8;
    return QN_OK;
}

/* ---- Spans. A span is `planes` rows-by-columns planes at a fixed step: 1 plane of 1 row for row norms. */

typedef struct span {
    int64_t planes, rows, columns;
    int64_t n, c0; /* batch and first channel, for groups */
} span;

/* Where a row of a span starts in a tensor. `base` is the first row's place for row norms. */
static char *span_row(const qn_tensor *t, const span *s, char *base, int64_t plane, int64_t row) {
    return base ? base : qn_at(t, qn_off4(t, s->n, s->c0 + plane, row, 0));
}

typedef double (*visit_fn)(double a, double b, const double *with);

/* Sum over the span of f(a, b); b is NULL for sums over one tensor. */
static double span_sum(const span *s, const qn_tensor *a, char *pa, const qn_tensor *b, char *pb, visit_fn f,
                       const double *with) {
    double xa[QN_RUN], xb[QN_RUN] = {0}, sum = 0;
    for (int64_t p = 0; p < s->planes; p++)
        for (int64_t r = 0; r < s->rows; r++)
            for (int64_t i = 0; i < s->columns; i += QN_RUN) {
                int64_t n = s->columns - i < QN_RUN ? s->columns - i : QN_RUN;
                qn_load_row(a, span_row(a, s, pa, p, r), i, n, xa);
                if (b) qn_load_row(b, span_row(b, s, pb, p, r), i, n, xb);
                for (int64_t k = 0; k < n; k++) sum += f(xa[k], xb[k], with);
            }
    return sum;
}

/* y = f(a, b) over the span. */
static void span_map(const span *s, const qn_tensor *y, char *py, const qn_tensor *a, char *pa, const qn_tensor *b, char *pb,
                     visit_fn f, const double *with) {
    double xa[QN_RUN], xb[QN_RUN] = {0};
    for (int64_t p = 0; p < s->planes; p++)
        for (int64_t r = 0; r < s->rows; r++)
            for (int64_t i = 0; i < s->columns; i += QN_RUN) {
                int64_t n = s->columns - i < QN_RUN ? s->columns - i : QN_RUN;
                qn_load_row(a, span_row(a, s, pa, p, r), i, n, xa);
                if (b) qn_load_row(b, span_row(b, s, pb, p, r), i, n, xb);
                for (int64_t k = 0; k < n; k++) xa[k] = f(xa[k], xb[k], with);
                qn_store_row(y, span_row(y, s, py, p, r), i, n, xa);
            }
}

static double v_first(double a, double b, const double *w) {
    (void)b;
    (void)w;
    return a;
}
static double v_square(double a, double b, const double *w) {
    (void)b;
    (void)w;
    return a * a;
}
static double v_product(double a, double b, const double *w) {
    (void)w;
    return a * b;
}
static double v_centred_square(double a, double b, const double *w) {
    (void)b;
    return (a - w[0]) * (a - w[0]);
}
static double v_centred_product(double g, double x, const double *w) { return g * (x - w[0]) * w[1]; }
/* (x - mean) r, with mean 0 where there is none to take off */
static double v_normalise(double x, double b, const double *w) {
    (void)b;
    return (x - w[0]) * w[1];
}
/* r (g - mean(g) - y mean(g y)) */
static double v_norm_back(double g, double x, const double *w) { return w[1] * (g - w[2] - (x - w[0]) * w[1] * w[3]); }
/* r (g - x <x, g> / (sum x^2 + n eps)) */
static double v_rms_back(double g, double x, const double *w) { return w[0] * (g - x * w[1]); }
/* (g - y <y, g>) / |x|. What lies along x is taken off twice, the second time of what the first has left: where g lies along x, as
 * it always does in a row of one element, the first leaves rounding alone. */
static double v_l2_left(double g, double x, const double *w) { return (g - x * w[1]) * x; }
static double v_l2_back(double g, double x, const double *w) { return (g - x * w[1] - x * w[2]) * w[0]; }

static void centre(const span *s, const qn_tensor *x, char *px, double eps, double *w) {
    double n = (double)(s->planes * s->rows * s->columns);
    w[0] = span_sum(s, x, px, NULL, NULL, v_first, NULL) / n;
    w[1] = 1 / sqrt(span_sum(s, x, px, NULL, NULL, v_centred_square, w) / n + eps);
}

static void norm_span(const span *s, const qn_tensor *y, char *py, const qn_tensor *x, char *px, double eps) {
    double w[2];
    centre(s, x, px, eps, w);
    span_map(s, y, py, x, px, NULL, NULL, v_normalise, w);
}

static void norm_back_span(const span *s, const qn_tensor *y, char *py, const qn_tensor *g, char *pg, const qn_tensor *x,
                           char *px, double eps) {
    double w[4], n = (double)(s->planes * s->rows * s->columns);
    centre(s, x, px, eps, w);
    w[2] = span_sum(s, g, pg, NULL, NULL, v_first, NULL) / n;
    w[3] = span_sum(s, g, pg, x, px, v_centred_product, w) / n;
    span_map(s, y, py, g, pg, x, px, v_norm_back, w);
}

/* ---- References over rows. eps is the first attribute of all of them. */

static double eps_of(const qn_call *c) { return (double)((const qn_attr_norm *)c->attr)->eps; }
static span row_span(const qn_rows *it) { return (span){1, 1, it->n, 0, 0}; }

qn_status qn_ref_norm(const qn_call *c) {
    const qn_tensor *y = c->dst[0], *x = c->src[0];
    qn_rows it;
    for (qn_rows_begin(&it, x->rank, x->shape); it.live; qn_rows_next(&it)) {
        span s = row_span(&it);
        norm_span(&s, y, qn_row(&it, y), x, qn_row(&it, x), eps_of(c));
    }
    return QN_OK;
}

qn_status qn_ref_norm_back(const qn_call *c) {
    const qn_tensor *y = c->dst[0], *g = c->src[0], *x = c->src[1];
    qn_rows it;
    for (qn_rows_begin(&it, g->rank, g->shape); it.live; qn_rows_next(&it)) {
        span s = row_span(&it);
        norm_back_span(&s, y, qn_row(&it, y), g, qn_row(&it, g), x, qn_row(&it, x), eps_of(c));
    }
    return QN_OK;
}

qn_status qn_ref_rms_norm(const qn_call *c) {
    const qn_tensor *y = c->dst[0], *x = c->src[0];
    qn_rows it;
    for (qn_rows_begin(&it, x->rank, x->shape); it.live; qn_rows_next(&it)) {
        span s = row_span(&it);
        char *px = qn_row(&it, x);
        double w[2] = {0, 1 / sqrt(span_sum(&s, x, px, NULL, NULL, v_square, NULL) / (double)it.n + eps_of(c))};
        span_map(&s, y, qn_row(&it, y), x, px, NULL, NULL, v_normalise, w);
    }
    return QN_OK;
}

qn_status qn_ref_rms_norm_back(const qn_call *c) {
    const qn_tensor *y = c->dst[0], *g = c->src[0], *x = c->src[1];
    qn_rows it;
    for (qn_rows_begin(&it, g->rank, g->shape); it.live; qn_rows_next(&it)) {
        span s = row_span(&it);
        char *px = qn_row(&it, x), *pg = qn_row(&it, g);
        double squares = span_sum(&s, x, px, NULL, NULL, v_square, NULL) + (double)it.n * eps_of(c);
        double w[2] = {1 / sqrt(squares / (double)it.n), span_sum(&s, g, pg, x, px, v_product, NULL) / squares};
        span_map(&s, y, qn_row(&it, y), g, pg, x, px, v_rms_back, w);
    }
    return QN_OK;
}

/* The length of a row, but at least eps: a floor, not something added. */
qn_status qn_ref_l2_norm(const qn_call *c) {
    const qn_tensor *y = c->dst[0], *x = c->src[0];
    qn_rows it;
    for (qn_rows_begin(&it, x->rank, x->shape); it.live; qn_rows_next(&it)) {
        span s = row_span(&it);
        char *px = qn_row(&it, x);
        double length = sqrt(span_sum(&s, x, px, NULL, NULL, v_square, NULL));
        double w[2] = {0, 1 / (length < eps_of(c) ? eps_of(c) : length)};
        span_map(&s, y, qn_row(&it, y), x, px, NULL, NULL, v_normalise, w);
    }
    return QN_OK;
}

qn_status qn_ref_l2_norm_back(const qn_call *c) {
    const qn_tensor *y = c->dst[0], *g = c->src[0], *x = c->src[1];
    qn_rows it;
    for (qn_rows_begin(&it, g->rank, g->shape); it.live; qn_rows_next(&it)) {
        span s = row_span(&it);
        char *px = qn_row(&it, x), *pg = qn_row(&it, g);
        double squares = span_sum(&s, x, px, NULL, NULL, v_square, NULL), length = sqrt(squares), w[3] = {1 / length, 0, 0};
        if (!(length <= eps_of(c))) { /* no number either, which the floor would hide */
            w[1] = span_sum(&s, g, pg, x, px, v_product, NULL) / squares;
            w[2] = span_sum(&s, g, pg, x, px, v_l2_left, w) / squares;
        } else w[0] = 1 / eps_of(c);
        span_map(&s, y, qn_row(&it, y), g, pg, x, px, v_l2_back, w);
    }
    return QN_OK;
}

/* ---- References over groups of consecutive channels; the last group may be short, or of no channel at all. */

static void each_group(const qn_call *c, const qn_tensor *x, int back) {
    const qn_attr_group_norm *at = c->attr;
    int64_t channels = qn_ne(x, 2), per = (channels + at->n_groups - 1) / at->n_groups;
    for (int64_t n = 0; n < qn_ne(x, 3); n++)
        for (int64_t first = 0; first < channels; first += per) {
            span s = {channels - first < per ? channels - first : per, qn_ne(x, 1), qn_ne(x, 0), n, first};
            if (back) norm_back_span(&s, c->dst[0], NULL, c->src[0], NULL, c->src[1], NULL, (double)at->eps);
            else norm_span(&s, c->dst[0], NULL, c->src[0], NULL, (double)at->eps);
        }
}

qn_status qn_ref_group_norm(const qn_call *c) {
    each_group(c, c->src[0], 0);
    return QN_OK;
}

qn_status qn_ref_group_norm_back(const qn_call *c) {
    each_group(c, c->src[0], 1);
    return QN_OK;
}

/* ---- Gradients */

#define ROW_NORM_VJP(name)                                                           \
    void qn_vjp_##name(qn_vjp_call *v) {                                             \
        qn_attr_##name##_back at = qn_attr_##name##_back_default();                  \
        at.eps = ((const qn_attr_##name *)v->attr)->eps;                             \
        v->out[0] = qn_emit2(v, QN_OP_##name##_back, 0, &at, v->grad[0], v->src[0]); \
    }
ROW_NORM_VJP(norm)
ROW_NORM_VJP(rms_norm)
ROW_NORM_VJP(l2_norm)

void qn_vjp_group_norm(qn_vjp_call *v) {
    const qn_attr_group_norm *forward = v->attr;
    qn_attr_group_norm_back at = qn_attr_group_norm_back_default();
    at.n_groups = forward->n_groups;
    at.eps = forward->eps;
    v->out[0] = qn_emit2(v, QN_OP_group_norm_back, 0, &at, v->grad[0], v->src[0]);
}

/* ---- Second order: the gradients above as formulas of ops */

static double eps_attr(const qn_vjp_call *v) { return (double)((const qn_attr_norm_back *)v->attr)->eps; }
static qn_val row_mean(qn_vjp_call *v, qn_val x) { return qn_emit1(v, QN_OP_mean, 0, NULL, x); }
/* sqrt(mean of d^2 + eps) */
static qn_val row_root(qn_vjp_call *v, qn_val d) {
    qn_val square = row_mean(v, qn_emit1(v, QN_OP_sqr, 0, NULL, d));
    return qn_emit1(v, QN_OP_sqrt, 0, NULL, qn_e_scale(v, square, 1, eps_attr(v)));
}

/* (g - mean(g) - h mean(g h)) / s; without centring the mean of g stays. */
static void row_formula(qn_vjp_call *v, int centred, qn_val *out) {
    qn_val g = qn_op_wide(v, v->src[0]), d = qn_op_wide(v, v->src[1]);
    if (centred) d = qn_e_sub(v, d, row_mean(v, d));
    qn_val s = row_root(v, d), h = qn_e_div(v, d, s), along = qn_e_mul(v, h, row_mean(v, qn_e_mul(v, g, h)));
    if (centred) g = qn_e_sub(v, g, row_mean(v, g));
    out[0] = qn_e_div(v, qn_e_sub(v, g, along), s);
}

static void norm_back_formula(qn_vjp_call *v, qn_op_tape *t, qn_val *out) {
    (void)t;
    row_formula(v, 1, out);
}
static void rms_norm_back_formula(qn_vjp_call *v, qn_op_tape *t, qn_val *out) {
    (void)t;
    row_formula(v, 0, out);
}

/* Channels [first, first + n) of g and x [batch, channels, area], in groups of `per`, as rows of norm_back. */
static qn_val group_rows(qn_vjp_call *v, qn_val g, qn_val x, int64_t first, int64_t n, int64_t per) {
    const qn_attr_group_norm_back *from = v->attr;
    qn_attr_norm_back at = qn_attr_norm_back_default();
    qn_shape s = qn_shape_of(v, x);
    int64_t rows[2] = {s.d[0] * (n / per), per * s.d[2]}, part[3] = {s.d[0], n, s.d[2]};
    at.eps = from->eps;
    g = qn_e_reshape(v, qn_e_slice(v, g, 1, first, n), 2, rows);
    x = qn_e_reshape(v, qn_e_slice(v, x, 1, first, n), 2, rows);
    return qn_e_reshape(v, qn_emit2(v, QN_OP_norm_back, 0, &at, g, x), 3, part);
}

/* The last group may be shorter than the others. */
static void group_norm_back_formula(qn_vjp_call *v, qn_op_tape *t, qn_val *out) {
    (void)t;
    qn_shape s = qn_shape_of(v, v->src[1]);
    int64_t channels = qn_sd(&s, 2), groups = ((const qn_attr_group_norm_back *)v->attr)->n_groups;
    int64_t per = (channels + groups - 1) / groups, rest = per ? channels % per : 0;
    int64_t flat[3] = {qn_sd(&s, 3), channels, qn_sd(&s, 1) * qn_sd(&s, 0)};
    if (channels == 0 || flat[0] == 0) return;
    qn_val g = qn_e_reshape(v, qn_op_wide(v, v->src[0]), 3, flat), x = qn_e_reshape(v, qn_op_wide(v, v->src[1]), 3, flat);
    qn_val y = channels > rest ? group_rows(v, g, x, 0, channels - rest, per) : QN_VAL_NONE;
    if (rest) {
        qn_attr_concat at = qn_attr_concat_default();
        at.axis = 1;
        qn_val last = group_rows(v, g, x, channels - rest, rest, rest);
        y = y == QN_VAL_NONE ? last : qn_emit2(v, QN_OP_concat, 0, &at, y, last);
    }
    out[0] = qn_e_like(v, y, v->src[1]);
}

void qn_vjp_norm_back(qn_vjp_call *v) { qn_op_vjp_of_formula(v, norm_back_formula); }
void qn_vjp_rms_norm_back(qn_vjp_call *v) { qn_op_vjp_of_formula(v, rms_norm_back_formula); }
void qn_vjp_group_norm_back(qn_vjp_call *v) { qn_op_vjp_of_formula(v, group_norm_back_formula); }

/* With r and q what is left of g and of its gradient u by the op itself, divided by |x| and without what lies along x: q by g, and by x
 *   -(x <u, r> + r <x, u> + q <x, g>) / |x|^2,
 * or nothing where the floor, a constant, stands for the length. In this form nothing cancels: of a row of one element r and q are zero. */
void qn_vjp_l2_norm_back(qn_vjp_call *v) {
    double eps = eps_attr(v);
    qn_val g = qn_op_wide(v, v->src[0]), x = qn_op_wide(v, v->src[1]), u = qn_op_wide(v, v->grad[0]);
    qn_val q = qn_emit2(v, QN_OP_l2_norm_back, 0, v->attr, u, x);
    v->out[0] = q;
    if (!v->want[1]) return;
    qn_attr_clamp floor = qn_attr_clamp_default();
    floor.min = (float)(eps * eps);
    qn_val r = qn_emit2(v, QN_OP_l2_norm_back, 0, v->attr, g, x);
    qn_val squares = qn_e_sum_rows(v, qn_emit1(v, QN_OP_sqr, 0, NULL, x));
    qn_val above = qn_e_unary(v, QN_UNARY_step, qn_e_scale(v, squares, 1, -eps * eps));
    qn_val by = qn_e_div(v, qn_e_scale(v, above, -1, 0), qn_emit1(v, QN_OP_clamp, 0, &floor, squares));
    qn_val sum = qn_e_mul(v, x, qn_e_sum_rows(v, qn_e_mul(v, u, r)));
    sum = qn_e_add(v, sum, qn_e_mul(v, r, qn_e_sum_rows(v, qn_e_mul(v, x, u))));
    sum = qn_e_add(v, sum, qn_e_mul(v, q, qn_e_sum_rows(v, qn_e_mul(v, x, g))));
    v->out[1] = qn_e_mul(v, sum, by);
}
