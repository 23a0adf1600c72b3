/* unary: 22 functions of one value, and unary_back: each one's derivative times an incoming gradient. A sub-op is a row of
 * unary.def with f_<name> and d_<name> here; NaN in gives NaN out, sgn and step aside, which give 0. */
#include "op/op_emit.h"
#include "op/ref.h"
#include "op/scalar_math.h"

typedef qn_attr_unary attrs; /* unary_back has the same leading fields, checked below */
_Static_assert(offsetof(qn_attr_unary, alpha_n) == offsetof(qn_attr_unary_back, alpha_n), "shared attributes");
_Static_assert(offsetof(qn_attr_unary, eps) == offsetof(qn_attr_unary_back, eps), "shared attributes");

#define F(name) static double f_##name(double x, const attrs *p)
#define D(name) static double d_##name(double x, const attrs *p)
#define PLAIN (void)p

F(abs) {
    PLAIN;
    return fabs(x);
}
D(abs) {
    PLAIN;
    return x > 0 ? 1 : x < 0 ? -1 : 0;
}
F(sgn) {
    PLAIN;
    return x > 0 ? 1 : x < 0 ? -1 : 0;
}
D(sgn) {
    PLAIN;
    (void)x;
    return 0;
}
F(neg) {
    PLAIN;
    return -x;
}
D(neg) {
    PLAIN;
    (void)x;
    return -1;
}
F(step) {
    PLAIN;
    return x > 0 ? 1 : 0;
}
D(step) {
    PLAIN;
    (void)x;
    return 0;
}
F(tanh) {
    PLAIN;
    return tanh(x);
}
D(tanh) {
    PLAIN;
    double y = tanh(x);
    return 1 - y * y;
}
F(elu) {
    PLAIN;
    return x > 0 ? x : expm1(x);
}
D(elu) {
    PLAIN;
    return x > 0 ? 1 : exp(x);
}
F(relu) {
    PLAIN;
    return x > 0 || isnan(x) ? x : 0;
}
D(relu) {
    PLAIN;
    return x > 0 ? 1 : 0;
}
F(sigmoid) {
    PLAIN;
    return qn_sigmoid(x);
}
D(sigmoid) {
    PLAIN;
    double y = qn_sigmoid(x);
    return y * (1 - y);
}
F(gelu) {
    PLAIN;
    return qn_gelu(x);
}
D(gelu) {
    PLAIN;
    return qn_gelu_d(x);
}
F(gelu_quick) {
    PLAIN;
    return qn_gelu_quick(x);
}
D(gelu_quick) {
    PLAIN;
    return qn_gelu_quick_d(x);
}
F(silu) {
    PLAIN;
    return qn_silu(x);
}
D(silu) {
    PLAIN;
    return qn_silu_d(x);
}
F(hardsigmoid) {
    PLAIN;
    return isnan(x) ? x : x <= -3 ? 0 : x >= 3 ? 1 : (x + 3) / 6;
}
D(hardsigmoid) {
    PLAIN;
    return fabs(x) < 3 ? 1.0 / 6 : 0;
}
F(hardswish) { return qn_gate(x, f_hardsigmoid(x, p)); }
D(hardswish) {
    PLAIN;
    return x <= -3 ? 0 : x >= 3 ? 1 : (2 * x + 3) / 6;
}
F(exp) {
    PLAIN;
    return exp(x);
}
D(exp) {
    PLAIN;
    return exp(x);
}
F(expm1) {
    PLAIN;
    return expm1(x);
}
D(expm1) {
    PLAIN;
    return exp(x);
}
F(softplus) {
    PLAIN;
    return x > 20 ? x : log1p(exp(x));
}
D(softplus) {
    PLAIN;
    return x > 20 ? 1 : qn_sigmoid(x);
}
F(gelu_erf) {
    PLAIN;
    return qn_gelu_erf(x);
}
D(gelu_erf) {
    PLAIN;
    return qn_gelu_erf_d(x);
}
F(floor) {
    PLAIN;
    return floor(x);
}
D(floor) {
    PLAIN;
    (void)x;
    return 0;
}
F(ceil) {
    PLAIN;
    return ceil(x);
}
D(ceil) {
    PLAIN;
    (void)x;
    return 0;
}
F(round) {
    PLAIN;
    return round(x);
}
D(round) {
    PLAIN;
    (void)x;
    return 0;
}
F(trunc) {
    PLAIN;
    return trunc(x);
}
D(trunc) {
    PLAIN;
    (void)x;
    return 0;
}

F(xielu) {
    double an = (double)p->alpha_n, ap = (double)p->alpha_p, beta = (double)p->beta, eps = (double)p->eps;
    if (x > 0) return ap * x * x + beta * x;
    return (expm1(x < eps || isnan(x) ? x : eps) - x) * an + beta * x;
}
D(xielu) {
    double an = (double)p->alpha_n, ap = (double)p->alpha_p, beta = (double)p->beta, eps = (double)p->eps;
    if (x > 0) return 2 * ap * x + beta;
    return an * ((x < eps ? exp(x) : 0) - 1) + beta;
}

typedef double (*scalar_fn)(double x, const attrs *p);
static const scalar_fn functions[] = {
#define QN_UNARY(name, formula) f_##name,
#include <quern/unary.def>
#undef QN_UNARY
};
static const scalar_fn derivatives[] = {
#define QN_UNARY(name, formula) d_##name,
#include <quern/unary.def>
#undef QN_UNARY
};

double qn_op_unary(int subop, double x) { return functions[subop](x, NULL); }
double qn_op_unary_slope(int subop, double x) { return derivatives[subop](x, NULL); }

/* A sub-op and its attributes, for the maps. */
typedef struct chosen {
    scalar_fn f;
    const attrs
    *p;
} chosen;

static double apply(double x, const void *p) {
    const chosen *c = p;
    return c->f(x, c->p);
}

static double apply_times(double g, double x, const void *p) {
    const chosen *c = p;
    return g * c->f(x, c->p);
}

qn_status qn_ref_unary(const qn_call *c) {
    chosen how = {functions[c->subop], c->attr};
    qn_map1(c->dst[0], c->src[0], apply, &how);
    return QN_OK;
}

qn_status qn_infer_unary_back(qn_infer_call *c) {
    if (c->subop == QN_UNARY_xielu && !c->attr_given) return qn_reject_attr(c, "alpha_n", QN_REASON_ATTR_MISSING, -1, 0, 0);
    return qn_infer_same2(c);
}

qn_status qn_ref_unary_back(const qn_call *c) {
    chosen how = {derivatives[c->subop], c->attr};
    qn_map2(c->dst[0], c->src[0], c->src[1], apply_times, &how);
    return QN_OK;
}

/* The gradient of a widened half is computed in f32, the dtype of g. */
void qn_vjp_unary(qn_vjp_call *v) {
    const qn_attr_unary *forward = v->attr;
    qn_attr_unary_back at = qn_attr_unary_back_default();
    at.alpha_n = forward->alpha_n;
    at.alpha_p = forward->alpha_p;
    at.beta = forward->beta;
    at.eps = forward->eps;
    qn_val x = qn_e_cast(v, v->src[0], qn_shape_of(v, v->grad[0]).dtype);
    v->out[0] = qn_emit2(v, QN_OP_unary_back, v->subop, &at, v->grad[0], x);
}
