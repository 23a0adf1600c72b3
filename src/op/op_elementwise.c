/* Elementwise ops: one value in, or two with the second tiled over the first, one value out. The functions are written once,
 * over doubles; every dtype goes through them with one rounding at the end. */
#include <math.h>

#include "op/op_emit.h"
#include "op/ref.h"
#include "op/scalar_math.h"

/* ---- Shape rules */

qn_status qn_infer_same(qn_infer_call *c) {
    qn_out_like(c, 0, c->src[0], c->src[0]->dtype);
    return QN_OK;
}

qn_status qn_infer_same2(qn_infer_call *c) {
    QN_TRY(qn_need_same_shape(c, 1, 0));
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    return qn_infer_same(c);
}

/* Output dtype of a map: that of the source, or f32 from a half when asked. */
static qn_status map_dtype(qn_infer_call *c, int32_t wanted) {
    uint32_t from = c->src[0]->dtype, to = wanted ? (uint32_t)wanted : from;
    int widened = to == QN_DTYPE_F32 && (from == QN_DTYPE_F16 || from == QN_DTYPE_BF16);
    if (to != from && !widened) return qn_reject_attr(c, "dtype", QN_REASON_DTYPE_PAIR, -1, from, to);
    qn_out_like(c, 0, c->src[0], to);
    return QN_OK;
}

qn_status qn_infer_map(qn_infer_call *c) { return map_dtype(c, ((const qn_attr_sqr *)c->attr)->dtype); }

qn_status qn_infer_unary(qn_infer_call *c) {
    if (c->subop == QN_UNARY_xielu && !c->attr_given) return qn_reject_attr(c, "alpha_n", QN_REASON_ATTR_MISSING, -1, 0, 0);
    return map_dtype(c, ((const qn_attr_unary *)c->attr)->dtype);
}

qn_status qn_infer_clamp(qn_infer_call *c) {
    const qn_attr_clamp *at = c->attr;
    if (at->min > at->max)
        return qn_reject_attr(c, "min", QN_REASON_ATTR_HIGH, -1, qn_f_bits((double)at->max), qn_f_bits((double)at->min));
    return qn_infer_same(c);
}

/* Legal pairs: equal floats; a half with f32, giving either; a block with f32, giving the block or f32. */
static qn_status binary_dtype(qn_infer_call *c, int32_t wanted) {
    uint32_t a = c->src[0]->dtype, b = c->src[1]->dtype, y = wanted ? (uint32_t)wanted : a;
    int half = a == QN_DTYPE_F16 || a == QN_DTYPE_BF16;
    int wide = b == QN_DTYPE_F32 && (half || qn_is_block(a));
    if (a != b && !wide) return qn_reject_src(c, 1, QN_REASON_DTYPE_PAIR, -1, a, b);
    if (y != a && !(wide && y == QN_DTYPE_F32)) return qn_reject_attr(c, "dtype", QN_REASON_DTYPE_PAIR, -1, a, y);
    if (qn_is_block(y) && !qn_can_convert(QN_DTYPE_F32, (qn_dtype)y))
        return qn_reject_unsupported(c, 0, QN_REASON_DTYPE_CONVERT, y, QN_DTYPE_F32);
    qn_out_like(c, 0, c->src[0], y);
    return QN_OK;
}

qn_status qn_infer_binary(qn_infer_call *c) {
    if (qn_is_block(c->src[0]->dtype)) QN_TRY(qn_need_same_shape(c, 1, 0));
    QN_TRY(qn_need_tiles(c, 1, 0));
    return binary_dtype(c, ((const qn_attr_add *)c->attr)->dtype);
}

qn_status qn_infer_add1(qn_infer_call *c) {
    int64_t n = qn_tensor_count(c->src[1]);
    if (n != 1) return qn_reject_src(c, 1, QN_REASON_SHAPE_COUNT, -1, 1, n);
    return binary_dtype(c, 0);
}

qn_status qn_infer_add_id(qn_infer_call *c) {
    const qn_tensor *a = c->src[0], *b = c->src[1];
    QN_TRY(qn_need_rank(c, 0, 3));
    QN_TRY(qn_need_rank(c, 1, 2));
    QN_TRY(qn_need_rank(c, 2, 2));
    QN_TRY(qn_need_extent(c, 1, 0, qn_ne(a, 0)));
    QN_TRY(qn_need_extent(c, 2, 0, qn_ne(a, 1)));
    QN_TRY(qn_need_extent(c, 2, 1, qn_ne(a, 2)));
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    c->index_limit[2] = qn_ne(b, 1);
    return qn_infer_same(c);
}

/* ---- References */

static double f_sqr(double x, const void *p) {
    (void)p;
    return x * x;
}
static double f_sqrt(double x, const void *p) {
    (void)p;
    return sqrt(x);
}
static double f_log(double x, const void *p) {
    (void)p;
    return log(x);
}
static double f_sin(double x, const void *p) {
    (void)p;
    return sin(x);
}
static double f_cos(double x, const void *p) {
    (void)p;
    return cos(x);
}

static double f_scale(double x, const void *p) {
    const qn_attr_scale *at = p;
    return qn_scale(x, (double)at->s, (double)at->b);
}

static double f_clamp(double x, const void *p) {
    const qn_attr_clamp *at = p;
    return qn_clamp(x, (double)at->min, (double)at->max);
}

static double f_leaky_relu(double x, const void *p) { return qn_leaky_relu(x, (double)((const qn_attr_leaky_relu *)p)->slope); }

static double f_silu_back(double g, double x, const void *p) {
    (void)p;
    return qn_silu_back(g, x);
}

#define MAP1(op)                                        \
    qn_status qn_ref_##op(const qn_call *c) {           \
        qn_map1(c->dst[0], c->src[0], f_##op, c->attr); \
        return QN_OK;                                   \
    }
MAP1(sqr)
MAP1(sqrt)
MAP1(log)
MAP1(sin)
MAP1(cos)
MAP1(scale)
MAP1(clamp)
MAP1(leaky_relu)

#define ARITHMETIC(op, sign)                                      \
    static void run_##op(double *a, const double *b, int64_t n) { \
        for (int64_t i = 0; i < n; i++) a[i] = a[i] sign b[i];    \
    }                                                             \
    qn_status qn_ref_##op(const qn_call *c) {                     \
        qn_map2_runs(c->dst[0], c->src[0], c->src[1], run_##op);  \
        return QN_OK;                                             \
    }
ARITHMETIC(add, +)
ARITHMETIC(sub, -)
ARITHMETIC(mul, *)
ARITHMETIC(div, /)

qn_status qn_ref_add1(const qn_call *c) { return qn_ref_add(c); }

qn_status qn_ref_silu_back(const qn_call *c) {
    qn_map2(c->dst[0], c->src[0], c->src[1], f_silu_back, NULL);
    return QN_OK;
}

qn_status qn_ref_add_id(const qn_call *c) {
    const qn_tensor *y = c->dst[0], *a = c->src[0], *b = c->src[1], *ids = c->src[2];
    for (int64_t t = 0; t < qn_ne(a, 2); t++)
        for (int64_t u = 0; u < qn_ne(a, 1); u++) {
            int64_t e = qn_index4(ids, 0, 0, t, u);
            for (int64_t i = 0; i < qn_ne(a, 0); i++) qn_put4(y, 0, t, u, i, qn_get4(a, 0, t, u, i) + qn_get4(b, 0, 0, e, i));
        }
    return QN_OK;
}

/* ---- Gradients. g is v->grad[0]; a source that is not wanted costs nothing. */

void qn_vjp_add(qn_vjp_call *v) {
    if (v->want[0]) v->out[0] = v->grad[0];
    if (v->want[1]) v->out[1] = qn_e_untile_like(v, v->grad[0], v->src[1]);
}

void qn_vjp_sub(qn_vjp_call *v) {
    if (v->want[0]) v->out[0] = v->grad[0];
    if (v->want[1]) v->out[1] = qn_e_scale(v, qn_e_untile_like(v, v->grad[0], v->src[1]), -1, 0);
}

void qn_vjp_mul(qn_vjp_call *v) {
    if (v->want[0]) v->out[0] = qn_e_mul(v, v->grad[0], v->src[1]);
    if (v->want[1]) v->out[1] = qn_e_untile_like(v, qn_e_mul(v, v->grad[0], v->src[0]), v->src[1]);
}

void qn_vjp_div(qn_vjp_call *v) {
    qn_val over = qn_e_div(v, v->grad[0], v->src[1]);
    if (v->want[0]) v->out[0] = over;
    if (v->want[1]) v->out[1] = qn_e_scale(v, qn_e_untile_like(v, qn_e_mul(v, over, v->dst[0]), v->src[1]), -1, 0);
}

void qn_vjp_add1(qn_vjp_call *v) {
    if (v->want[0]) v->out[0] = v->grad[0];
    if (v->want[1]) v->out[1] = qn_e_like(v, qn_emit1(v, QN_OP_sum, 0, NULL, v->grad[0]), v->src[1]);
}

/* The rows of b that ids name get the rows of g, added up. */
void qn_vjp_add_id(qn_vjp_call *v) {
    if (v->want[0]) v->out[0] = v->grad[0];
    if (!v->want[1]) return;
    qn_shape g = qn_shape_of(v, v->grad[0]), b = qn_shape_of(v, v->src[1]);
    int64_t rows = qn_sd(&g, 1) * qn_sd(&g, 2), flat[2] = {rows, qn_sd(&g, 0)};
    qn_attr_scatter_add_rows at = qn_attr_scatter_add_rows_default();
    at.rows = qn_sd(&b, 1);
    v->out[1] = qn_emit2(v, QN_OP_scatter_add_rows, 0, &at, qn_e_reshape(v, v->grad[0], 2, flat),
                         qn_e_reshape(v, v->src[2], 1, &rows));
}

void qn_vjp_sqr(qn_vjp_call *v) { v->out[0] = qn_e_scale(v, qn_e_mul(v, v->grad[0], v->src[0]), 2, 0); }
void qn_vjp_sqrt(qn_vjp_call *v) { v->out[0] = qn_e_scale(v, qn_e_div(v, v->grad[0], v->dst[0]), 0.5, 0); }
void qn_vjp_log(qn_vjp_call *v) { v->out[0] = qn_e_div(v, v->grad[0], v->src[0]); }
void qn_vjp_sin(qn_vjp_call *v) { v->out[0] = qn_e_mul(v, v->grad[0], qn_emit1(v, QN_OP_cos, 0, NULL, v->src[0])); }
void qn_vjp_cos(qn_vjp_call *v) {
    v->out[0] = qn_e_scale(v, qn_e_mul(v, v->grad[0], qn_emit1(v, QN_OP_sin, 0, NULL, v->src[0])), -1, 0);
}
void qn_vjp_scale(qn_vjp_call *v) { v->out[0] = qn_e_scale(v, v->grad[0], (double)((const qn_attr_scale *)v->attr)->s, 0); }
void qn_vjp_zero(qn_vjp_call *v) { v->out[0] = QN_VAL_NONE; }

/* 1 inside the limits, both ends included, 0 outside: the product of two steps taken from the far side. */
void qn_vjp_clamp(qn_vjp_call *v) {
    const qn_attr_clamp *at = v->attr;
    qn_val x = v->src[0], inside = QN_VAL_NONE;
    if (!isinf(at->min)) {
        qn_val below = qn_e_unary(v, QN_UNARY_step, qn_e_scale(v, x, -1, (double)at->min));
        inside = qn_e_scale(v, below, -1, 1);
    }
    if (!isinf(at->max)) {
        qn_val under = qn_e_scale(v, qn_e_unary(v, QN_UNARY_step, qn_e_scale(v, x, 1, -(double)at->max)), -1, 1);
        inside = inside == QN_VAL_NONE ? under : qn_e_mul(v, inside, under);
    }
    v->out[0] = inside == QN_VAL_NONE ? v->grad[0] : qn_e_mul(v, v->grad[0], inside);
}

void qn_vjp_leaky_relu(qn_vjp_call *v) {
    double slope = (double)((const qn_attr_leaky_relu *)v->attr)->slope;
    qn_val up = qn_e_unary(v, QN_UNARY_step, v->src[0]);
    v->out[0] = qn_e_mul(v, v->grad[0], qn_e_scale(v, up, 1 - slope, slope));
}

/* With s the sigmoid of x: for g the same gradient again, for x  g s (1 - s) (2 + x (1 - 2 s)). */
void qn_vjp_silu_back(qn_vjp_call *v) {
    qn_val up = v->grad[0], g = v->src[0], x = v->src[1];
    if (v->want[0]) v->out[0] = qn_emit2(v, QN_OP_silu_back, 0, NULL, up, x);
    if (!v->want[1]) return;
    qn_val s = qn_e_unary(v, QN_UNARY_sigmoid, x);
    qn_val slope = qn_e_mul(v, s, qn_e_scale(v, s, -1, 1));
    qn_val bend = qn_e_scale(v, qn_e_mul(v, x, qn_e_scale(v, s, -2, 1)), 1, 2);
    v->out[1] = qn_e_mul(v, qn_e_mul(v, up, g), qn_e_mul(v, slope, bend));
}
