/* math: functions of one value that graphs use beside those of unary; math_back and math_back2: their first and second
 * derivatives times an incoming gradient. A sub-op is a row of math.def with f_<name>, d_<name> and s_<name> here. */
#include <math.h>

#include "op/op_emit.h"
#include "op/ref.h"
#include "op/scalar_math.h"

#define TWO_OVER_ROOT_PI 1.12837916709551257390
#define LN_2 0.69314718055994530942

#define F(name) static double f_##name(double x)
#define D(name) static double d_##name(double x)
#define S(name) static double s_##name(double x)

F(rsqrt) { return 1 / sqrt(x); }
D(rsqrt) { return -0.5 / (x * sqrt(x)); }
S(rsqrt) { return 0.75 / (x * x * sqrt(x)); }
F(tan) { return tan(x); }
D(tan) {
    double y = tan(x);
    return 1 + y * y;
}
S(tan) {
    double y = tan(x);
    return 2 * y * (1 + y * y);
}
F(atan) { return atan(x); }
D(atan) { return 1 / (1 + x * x); }
S(atan) { return -2 * x / ((1 + x * x) * (1 + x * x)); }
F(log1p) { return log1p(x); }
D(log1p) { return 1 / (1 + x); }
S(log1p) { return -1 / ((1 + x) * (1 + x)); }
F(erf) { return erf(x); }
D(erf) { return TWO_OVER_ROOT_PI * exp(-x * x); }
S(erf) { return -2 * x * d_erf(x); }
F(recip) { return 1 / x; }
D(recip) { return -1 / (x * x); }
S(recip) { return 2 / (x * x * x); }
F(exp2) { return exp2(x); }
D(exp2) { return LN_2 * exp2(x); }
S(exp2) { return LN_2 * LN_2 * exp2(x); }
F(log2) { return log2(x); }
D(log2) { return 1 / (LN_2 * x); }
S(log2) { return -1 / (LN_2 * x * x); }

/* By hand, because rint follows the rounding mode of whoever calls. */
F(round_even) {
    double low = floor(x), part = x - low;
    if (part > 0.5 || (part == 0.5 && fmod(low, 2) != 0)) low += 1;
    return copysign(low, x);
}
D(round_even) {
    (void)x;
    return 1;
}
S(round_even) {
    (void)x;
    return 0;
}

typedef double (*scalar_fn)(double x);
static const scalar_fn functions[] = {
#define QN_MATH(name, formula) f_##name,
#include <quern/math.def>
#undef QN_MATH
};
static const scalar_fn derivatives[] = {
#define QN_MATH(name, formula) d_##name,
#include <quern/math.def>
#undef QN_MATH
};

static const scalar_fn second[] = {
#define QN_MATH(name, formula) s_##name,
#include <quern/math.def>
#undef QN_MATH
};

double qn_op_math(int subop, double x) { return functions[subop](x); }
double qn_op_math_slope(int subop, double x) { return derivatives[subop](x); }

static double apply(double x, const void *p) { return (*(const scalar_fn *)p)(x); }
static double apply_times(double g, double x, const void *p) { return g * (*(const scalar_fn *)p)(x); }

qn_status qn_ref_math(const qn_call *c) {
    qn_map1(c->dst[0], c->src[0], apply, &functions[c->subop]);
    return QN_OK;
}

qn_status qn_ref_math_back(const qn_call *c) {
    qn_map2(c->dst[0], c->src[0], c->src[1], apply_times, &derivatives[c->subop]);
    return QN_OK;
}

qn_status qn_ref_math_back2(const qn_call *c) {
    qn_map2(c->dst[0], c->src[0], c->src[1], apply_times, &second[c->subop]);
    return QN_OK;
}

void qn_vjp_math(qn_vjp_call *v) {
    qn_val x = qn_e_cast(v, v->src[0], qn_shape_of(v, v->grad[0]).dtype);
    v->out[0] = qn_emit2(v, QN_OP_math_back, v->subop, NULL, v->grad[0], x);
}

void qn_vjp_math_back(qn_vjp_call *v) {
    qn_val up = v->grad[0], g = v->src[0], x = v->src[1];
    if (v->want[0]) v->out[0] = qn_emit2(v, QN_OP_math_back, v->subop, NULL, up, x);
    if (v->want[1]) v->out[1] = qn_emit2(v, QN_OP_math_back2, v->subop, NULL, qn_e_mul(v, up, g), x);
}

void qn_vjp_math_back2(qn_vjp_call *v) {
    if (v->want[0]) v->out[0] = qn_emit2(v, QN_OP_math_back2, v->subop, NULL, v->grad[0], v->src[1]);
    if (v->want[1]) qn_vjp_refuse(v, 1, "third order is not provided");
}
