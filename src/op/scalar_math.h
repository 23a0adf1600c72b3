/* Scalar functions that several families share, over doubles. */
#ifndef QN_OP_SCALAR_MATH_H
#define QN_OP_SCALAR_MATH_H

#include <math.h>

static inline double qn_sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }

#define QN_GELU_C 0.79788456080286535588 /* sqrt(2 / pi) */
#define QN_GELU_A 0.044715
#define QN_SQRT_HALF 0.70710678118654752440
#define QN_PHI_C 0.39894228040143267794 /* 1 / sqrt(2 pi) */

/* x s(x) with s falling to 0 faster than x grows: at -Inf the product is 0, not NaN. */
static inline double qn_gate(double x, double s) { return s == 0 ? 0 : x * s; }

static inline double qn_gelu(double x) { return qn_gate(x, 0.5 * (1 + tanh(QN_GELU_C * x * (1 + QN_GELU_A * x * x)))); }
static inline double qn_gelu_d(double x) {
    double t = tanh(QN_GELU_C * x * (1 + QN_GELU_A * x * x)), bend = 1 - t * t;
    return 0.5 * (1 + t) + (bend == 0 ? 0 : 0.5 * x * bend * QN_GELU_C * (1 + 3 * QN_GELU_A * x * x));
}
static inline double qn_gelu_quick(double x) { return qn_gate(x, qn_sigmoid(1.702 * x)); }
static inline double qn_gelu_quick_d(double x) {
    double s = qn_sigmoid(1.702 * x), bend = s * (1 - s);
    return s + (bend == 0 ? 0 : 1.702 * x * bend);
}
static inline double qn_gelu_erf(double x) { return qn_gate(x, 0.5 * erfc(-x * QN_SQRT_HALF)); }
static inline double qn_gelu_erf_d(double x) {
    double bell = QN_PHI_C * exp(-0.5 * x * x);
    return 0.5 * erfc(-x * QN_SQRT_HALF) + (bell == 0 ? 0 : x * bell);
}
static inline double qn_silu(double x) { return qn_gate(x, qn_sigmoid(x)); }
static inline double qn_silu_d(double x) {
    double s = qn_sigmoid(x), bend = s * (1 - s);
    return s + (bend == 0 ? 0 : x * bend);
}
/* At the infinities g and 0: the bend is gone before x has grown. */
static inline double qn_silu_back(double g, double x) {
    double s = 1 / (1 + exp(-x)), rest = 1 - s;
    return s == 0 ? g * s : g * s * (1 + (rest == 0 ? 0 : x * rest));
}

static inline double qn_scale(double x, double s, double b) { return b == 0 ? s * x : s * x + b; }
static inline double qn_clamp(double x, double low, double high) { return isnan(x) ? x : x < low ? low : x > high ? high : x; }
static inline double qn_leaky_relu(double x, double slope) { return x > 0 || isnan(x) ? x : slope * x; }

/* What ops with sub-ops compute, by the number of the sub-op, for those who compute several in one. Not xielu, which has
 * parameters. */
double qn_op_unary(int subop, double x);
double qn_op_unary_slope(int subop, double x);
double qn_op_math(int subop, double x);
double qn_op_math_slope(int subop, double x);
double qn_op_arith(int subop, double a, double b);
double qn_op_compare(int subop, double a, double b);
double qn_op_logic(int subop, double a, double b);

#endif
