/* The second derivatives of unary, as an op, and with it the gradient of unary_back. A sub-op is a row of unary.def with s_<name>
 * here; functions that are straight on either side of a kink have none, whatever they do in it. */
#include "op/op_emit.h"
#include "op/ref.h"
#include "op/scalar_math.h"

typedef qn_attr_unary_back2 attrs;
_Static_assert(sizeof(qn_attr_unary_back) == sizeof(qn_attr_unary_back2), "shared attributes");

#define S(name) static double s_##name(double x, const attrs *p)
#define FLAT(name)        \
    S(name) {             \
        (void)x, (void)p; \
        return 0;         \
    }

FLAT(abs)
FLAT(sgn)
FLAT(neg)
FLAT(step)
FLAT(relu)
FLAT(hardsigmoid)
FLAT(floor)
FLAT(ceil)
FLAT(round)
FLAT(trunc)

S(tanh) {
    (void)p;
    double y = tanh(x);
    return -2 * y * (1 - y * y);
}
S(elu) {
    (void)p;
    return x > 0 ? 0 : exp(x);
}
S(sigmoid) {
    (void)p;
    double y = qn_sigmoid(x);
    return y * (1 - y) * (1 - 2 * y);
}
/* With t = tanh of u(x), everything but the step itself carries the factor 1 - t^2, which vanishes before x grows too large. */
S(gelu) {
    (void)p;
    double t = tanh(QN_GELU_C * x * (1 + QN_GELU_A * x * x)), bend = 1 - t * t;
    double rise = QN_GELU_C * (1 + 3 * QN_GELU_A * x * x), turn = 6 * QN_GELU_A * QN_GELU_C * x;
    return bend == 0 ? 0 : bend * (rise + 0.5 * x * (turn - 2 * t * rise * rise));
}
/* x sigmoid(k x) */
static double gated(double x, double k) {
    double y = qn_sigmoid(k * x), bend = y * (1 - y);
    return bend == 0 ? 0 : k * bend * (2 + k * x * (1 - 2 * y));
}
S(gelu_quick) {
    (void)p;
    return gated(x, 1.702);
}
S(silu) {
    (void)p;
    return gated(x, 1);
}
S(hardswish) {
    (void)p;
    return fabs(x) < 3 ? 1.0 / 3 : 0;
}
S(exp) {
    (void)p;
    return exp(x);
}
S(expm1) { return s_exp(x, p); }
S(softplus) {
    (void)p;
    double y = qn_sigmoid(x);
    return x > 20 ? 0 : y * (1 - y);
}
S(gelu_erf) {
    (void)p;
    double bell = QN_PHI_C * exp(-0.5 * x * x);
    return bell == 0 ? 0 : bell * (2 - x * x);
}
S(xielu) {
    if (x > 0) return 2 * (double)p->alpha_p;
    return x < (double)p->eps ? (double)p->alpha_n * exp(x) : 0;
}

typedef double (*scalar_fn)(double x, const attrs *p);
static const scalar_fn second[] = {
#define QN_UNARY(name, formula) s_##name,
#include <quern/unary.def>
#undef QN_UNARY
};

typedef struct chosen {
    scalar_fn f;
    const attrs
    *p;
} chosen;

static double apply_times(double h, double x, const void *p) {
    const chosen *c = p;
    return h * c->f(x, c->p);
}

qn_status qn_ref_unary_back2(const qn_call *c) {
    chosen how = {second[c->subop], c->attr};
    qn_map2(c->dst[0], c->src[0], c->src[1], apply_times, &how);
    return QN_OK;
}

static qn_val bend(qn_vjp_call *v, qn_val h, qn_val x) {
    const qn_attr_unary_back *from = v->attr;
    attrs
    at = qn_attr_unary_back2_default();
    at.alpha_n = from->alpha_n;
    at.alpha_p = from->alpha_p;
    at.beta = from->beta;
    at.eps = from->eps;
    return qn_emit2(v, QN_OP_unary_back2, v->subop, &at, h, x);
}

void qn_vjp_unary_back(qn_vjp_call *v) {
    qn_val up = v->grad[0], g = v->src[0], x = v->src[1];
    if (v->want[0]) v->out[0] = qn_emit2(v, QN_OP_unary_back, v->subop, v->attr, up, x);
    if (v->want[1]) v->out[1] = bend(v, qn_e_mul(v, up, g), x);
}

void qn_vjp_unary_back2(qn_vjp_call *v) {
    if (v->want[0]) v->out[0] = bend(v, v->grad[0], v->src[1]);
    if (v->want[1]) qn_vjp_refuse(v, 1, "third order is not provided");
}
