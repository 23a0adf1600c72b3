/* arith: eight functions of two values. Floats are computed in double and rounded once; integers are exact, and saturate. */
#include <math.h>

#include "op/op_broadcast.h"
#include "op/op_emit.h"
#include "op/scalar_math.h"

/* ---- Functions of floats */

static double larger(double a, double b) { return isnan(a) ? a : isnan(b) || b > a ? b : a; }
static double smaller(double a, double b) { return isnan(a) ? a : isnan(b) || b < a ? b : a; }

/* fmod is exact but has the sign of a; the other remainder is one b away. */
static double modulo(double a, double b) {
    double r = fmod(a, b);
    if (r == 0) return copysign(0, b);
    return (r < 0) != (b < 0) ? r + b : r;
}

#define FLOAT(name, expression)                                       \
    static void float_##name(double *x, const double *z, int64_t n) { \
        for (int64_t i = 0; i < n; i++) {                             \
            double a = x[i], b = z[i];                                \
            x[i] = expression;                                        \
        }                                                             \
    }
FLOAT(add, a + b)
FLOAT(sub, a - b)
FLOAT(mul, a *b)
FLOAT(div, a / b)
FLOAT(max, larger(a, b))
FLOAT(min, smaller(a, b))
FLOAT(pow, pow(a, b))
FLOAT(mod, modulo(a, b))

/* ---- Functions of integers */

static int64_t integer_add(int64_t a, int64_t b) {
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? (b < 0 ? INT64_MIN : INT64_MAX) : sum;
}

static int64_t integer_sub(int64_t a, int64_t b) {
    int64_t difference;
    return __builtin_sub_overflow(a, b, &difference) ? (b < 0 ? INT64_MAX : INT64_MIN) : difference;
}

static int64_t integer_mul(int64_t a, int64_t b) { return qn_signed_value(qn_signed_mul(qn_signed_of(a), qn_signed_of(b))); }

static int64_t integer_div(int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return integer_sub(0, a); /* the one quotient that may not fit */
    return a / b;
}

static int64_t integer_max(int64_t a, int64_t b) { return b > a ? b : a; }
static int64_t integer_min(int64_t a, int64_t b) { return b < a ? b : a; }

static int64_t integer_pow(int64_t a, int64_t b) {
    qn_signed power = {1, 0}, square = qn_signed_of(a);
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    for (; b > 0; b /= 2) {
        if (b % 2) power = qn_signed_mul(power, square);
        square = qn_signed_mul(square, square);
    }
    return qn_signed_value(power);
}

static int64_t integer_mod(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0;
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static const qn_run2_fn floats[] = {
#define QN_ARITH(name, formula) float_##name,
#include <quern/arith.def>
#undef QN_ARITH
};

double qn_op_arith(int subop, double a, double b) {
    floats[subop](&a, &b, 1);
    return a;
}

static const qn_op_integer_fn integers[] = {
#define QN_ARITH(name, formula) integer_##name,
#include <quern/arith.def>
#undef QN_ARITH
};

int64_t qn_op_integer_arith(int subop, int64_t a, int64_t b) { return integers[subop](a, b); }

qn_status qn_ref_arith(const qn_call *c) {
    if (qn_is_integer(c->dst[0]->dtype)) qn_op_integer_pairs(c->dst[0], c->src[0], c->src[1], integers[c->subop]);
    else qn_op_pairs(c->dst[0], c->src[0], c->src[1], floats[c->subop]);
    return QN_OK;
}

/* ---- Gradients. Each is computed in the shape of y and then summed over the axes its source was stretched along. */

static qn_val arith(qn_vjp_call *v, qn_arith f, qn_val a, qn_val b) {
    uint32_t da = qn_shape_of(v, a).dtype, db = qn_shape_of(v, b).dtype;
    if (da != db) {
        uint32_t wide = da == QN_DTYPE_F64 || db == QN_DTYPE_F64 ? QN_DTYPE_F64 : QN_DTYPE_F32;
        a = qn_e_cast(v, a, wide);
        b = qn_e_cast(v, b, wide);
    }
    return qn_emit2(v, QN_OP_arith, (int)f, NULL, a, b);
}

/* x where cond is not zero, else 0. */
static qn_val only_where(qn_vjp_call *v, qn_val cond, qn_val x) {
    return qn_emit3(v, QN_OP_where, 0, NULL, cond, x, qn_e_zeros(v, x));
}

/* da = g b a^(b-1), where b is not 0; db = g y ln a, where a is above 0. */
static void pow_gradients(qn_vjp_call *v, qn_val *da, qn_val *db) {
    qn_val g = v->grad[0], a = v->src[0], b = v->src[1];
    if (v->want[0]) {
        qn_val slope = arith(v, QN_ARITH_mul, b, arith(v, QN_ARITH_pow, a, qn_e_scale(v, b, 1, -1)));
        *da = only_where(v, b, arith(v, QN_ARITH_mul, g, slope));
    }
    if (v->want[1]) {
        qn_val slope = arith(v, QN_ARITH_mul, v->dst[0], qn_emit1(v, QN_OP_log, 0, NULL, a));
        *db = only_where(v, qn_e_unary(v, QN_UNARY_step, a), arith(v, QN_ARITH_mul, g, slope));
    }
}

/* To a where it is the result, else to b; so ties go to a. */
static void extremum_gradients(qn_vjp_call *v, qn_val *da, qn_val *db) {
    qn_val g = v->grad[0], zero = qn_e_zeros(v, g);
    qn_val taken = qn_emit2(v, QN_OP_compare, QN_COMPARE_eq, NULL, v->src[0], v->dst[0]);
    if (v->want[0]) *da = qn_emit3(v, QN_OP_where, 0, NULL, taken, g, zero);
    if (v->want[1]) *db = qn_emit3(v, QN_OP_where, 0, NULL, taken, zero, g);
}

static void quotient_gradients(qn_vjp_call *v, qn_val *da, qn_val *db) {
    qn_val over = arith(v, QN_ARITH_div, v->grad[0], v->src[1]);
    *da = over;
    if (v->want[1]) *db = qn_e_scale(v, arith(v, QN_ARITH_mul, over, v->dst[0]), -1, 0);
}

/* y = a - b q with q whole: q is (a - y) / b. */
static void modulo_gradients(qn_vjp_call *v, qn_val *da, qn_val *db) {
    qn_val g = v->grad[0];
    *da = g;
    if (!v->want[1]) return;
    qn_val q = arith(v, QN_ARITH_div, arith(v, QN_ARITH_sub, v->dst[0], v->src[0]), v->src[1]);
    *db = arith(v, QN_ARITH_mul, g, q);
}

void qn_vjp_arith(qn_vjp_call *v) {
    qn_val g = v->grad[0], da = g, db = g;
    switch (v->subop) {
    case QN_ARITH_add: break;
    case QN_ARITH_sub:
        if (v->want[1]) db = qn_e_scale(v, g, -1, 0);
        break;
    case QN_ARITH_mul:
        if (v->want[0]) da = arith(v, QN_ARITH_mul, g, v->src[1]);
        if (v->want[1]) db = arith(v, QN_ARITH_mul, g, v->src[0]);
        break;
    case QN_ARITH_div: quotient_gradients(v, &da, &db); break;
    case QN_ARITH_pow: pow_gradients(v, &da, &db); break;
    case QN_ARITH_mod: modulo_gradients(v, &da, &db); break;
    default: extremum_gradients(v, &da, &db); break;
    }
    if (v->want[0]) v->out[0] = qn_e_untile_like(v, da, v->src[0]);
    if (v->want[1]) v->out[1] = qn_e_untile_like(v, db, v->src[1]);
}
