/* The functions of simd_math.h through the kernels that use them, on every level this machine has: how many units in the last place
 * they are off, over all magnitudes, and what they make of the ends of the range. */
#define _DEFAULT_SOURCE /* setenv */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_setup.h"
#include "cpu/cpu.h"

enum { N = 1 << 16 };

static float x[N], y[N];

static double sigmoid(double a) { return 1 / (1 + exp(-a)); }
static double silu(double a) { return a * sigmoid(a); }
static double softplus(double a) { return a > 20 ? a : log1p(exp(a)); }
static double rsqrt(double a) { return 1 / sqrt(a); }
static double gelu_erf(double a) { return 0.5 * a * erfc(-a * 0.70710678118654752440); }

/* Units in the last place of f32 between got and want. */
static double ulps(float got, double want) {
    int e;
    if (isnan(want)) return isnan(got) ? 0 : 1e9;
    if (isinf(got) || isinf((float)want)) return got == (float)want ? 0 : 1e9;
    frexp(want, &e);
    double unit = ldexp(1, e < -125 ? -149 : e - 24);
    return fabs((double)got - want) / unit;
}

static const struct {
    const char *name;
    int op, sub;
    double (*exact)(double);
    double low, high; /* of the inputs: where the function is not simply 0, 1 or infinite */
    double bound;
} functions[] = {
    {"exp", QN_OP_unary, QN_UNARY_exp, exp, -87, 88.7, 2},
    {"exp to its ends", QN_OP_unary, QN_UNARY_exp, exp, -104, 88.722, 2},
    {"expm1", QN_OP_unary, QN_UNARY_expm1, expm1, -40, 88.7, 2},
    {"tanh", QN_OP_unary, QN_UNARY_tanh, tanh, -20, 20, 4},
    {"sigmoid", QN_OP_unary, QN_UNARY_sigmoid, sigmoid, -87, 40, 4},
    {"silu", QN_OP_unary, QN_UNARY_silu, silu, -87, 40, 4},
    {"softplus", QN_OP_unary, QN_UNARY_softplus, softplus, -80, 40, 4},
    {"log", QN_OP_log, 0, log, 1e-30, 1e30, 2},
    {"log of the smallest", QN_OP_log, 0, log, 1e-45, 1e-38, 2},
    {"log1p", QN_OP_math, QN_MATH_log1p, log1p, -0.9999, 1e30, 2},
    {"erf", QN_OP_math, QN_MATH_erf, erf, -6, 6, 4},
    {"rsqrt", QN_OP_math, QN_MATH_rsqrt, rsqrt, 1e-30, 1e30, 2},
    {"exp2", QN_OP_math, QN_MATH_exp2, exp2, -125.9, 127.9, 2},
    {"log2", QN_OP_math, QN_MATH_log2, log2, 1e-30, 1e30, 4},
    {"atan", QN_OP_math, QN_MATH_atan, atan, -1e6, 1e6, 4},
    {"atan near 0", QN_OP_math, QN_MATH_atan, atan, -3, 3, 4},
    {"tan", QN_OP_math, QN_MATH_tan, tan, -1e6, 1e6, 6},
    {"tan of a turn", QN_OP_math, QN_MATH_tan, tan, -7, 7, 6},
    {"sin", QN_OP_sin, 0, sin, -1e6, 2e6, 2},
    {"cos", QN_OP_cos, 0, cos, -2e6, 1e6, 2},
    {"sin far out", QN_OP_sin, 0, sin, -1e9, 3e38, 2},
    {"cos far out", QN_OP_cos, 0, cos, -1e9, 3e38, 2},
    {"sin of a turn", QN_OP_sin, 0, sin, -7, 7, 2},
    {"cos of a turn", QN_OP_cos, 0, cos, -7, 7, 2},
    {"gelu_erf", QN_OP_unary, QN_UNARY_gelu_erf, gelu_erf, -5, 8,
     24}, /* far out on the left an error of its argument grows by its square */
};

/* Half of the numbers spread evenly over the range, half over the magnitudes. */
static void draw(double low, double high) {
    uint64_t state = 12345;
    for (int i = 0; i < N; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        double u = (double)(state >> 11) * 0x1p-53;
        double wide = low + u * (high - low), side = i & 2 ? high : low;
        x[i] = (float)(i & 1 ? wide : side * exp2(-60 * u));
    }
}

static void run_rows(qn_context *context, int op, int sub, int64_t n) {
    int64_t shape[] = {N / n, n};
    qn_tensor from, to;
    qn_result r;
    qn_tensor_init(&from, QN_DTYPE_F32, 2, shape, x, sizeof x);
    qn_tensor_init(&to, QN_DTYPE_F32, 2, shape, y, sizeof y);
    qn_request q = {.size = sizeof q,
                    .version = QN_REQUEST_VERSION,
                    .op = (uint16_t)op,
                    .subop = (uint16_t)sub,
                    .n_src = 1,
                    .n_dst = 1,
                    .src = {&from},
                    .dst = {&to}};
    assert_int_equal(qn_dispatch(context, &q, &r), QN_OK);
}
static void run(qn_context *context, int op, int sub) { run_rows(context, op, sub, N); }

/* vf_exp_below is 2 ulp off at most: rows of a number below 0 and 0, whose shares are e^x and 1 over their sum, which is rounded
 * three times more. */
static void check_shares(qn_context *context, const char *level) {
    double worst = 0, at = 0;
    draw(-86.9, -1e-9);
    for (int i = 0; i < N; i += 2) x[i] = x[i + (i >> 2 & 1)], x[i + 1] = 0;
    run_rows(context, QN_OP_soft_max, 0, 2);
    for (int i = 0; i < N; i++) {
        double e = exp((double)x[i & ~1]), u = ulps(y[i], (i & 1 ? 1 : e) / (1 + e));
        if (u > worst) worst = u, at = (double)x[i & ~1];
    }
    print_message("%s: shares %.2f ulp at %.9g\n", level, worst, at);
    if (!(worst <= 4)) fail_msg("shares are off by %.2f ulp at %.9g", worst, at);
    static const float ends[] = {-INFINITY, 0, NAN, 0, -87.5f, 0, -1e30f, 0};
    memcpy(x, ends, sizeof ends);
    run_rows(context, QN_OP_soft_max, 0, 2);
    assert_true(y[0] == 0 && y[1] == 1 && isnan(y[2]) && isnan(y[3]) && y[4] < 1.2e-38f && y[5] == 1 && y[6] == 0 && y[7] == 1);
}

static void at_every_level(void (*check)(qn_context *context, const char *level)) {
    uint32_t have = qn_cpu_levels();
    for (int level = 0; level < QN_CPU_LEVEL_COUNT; level++) {
        qn_context *context;
        if (!(have >> level & 1)) continue;
        setenv("QUERN_CPU", qn_cpu_level_name(level), 1);
        assert_int_equal(qn_context_create(NULL, &context), QN_OK);
        check(context, qn_cpu_level_name(level));
        qn_context_destroy(context);
        unsetenv("QUERN_CPU");
    }
}

static void check_functions(qn_context *context, const char *level) {
    check_shares(context, level);
    for (size_t k = 0; k < sizeof functions / sizeof *functions; k++) {
        double worst = 0, at = 0;
        draw(functions[k].low, functions[k].high);
        run(context, functions[k].op, functions[k].sub);
        for (int i = 0; i < N; i++) {
            double u = ulps(y[i], functions[k].exact((double)x[i]));
            if (u > worst) worst = u, at = (double)x[i];
        }
        print_message("%s: %s %.2f ulp at %.9g\n", level, functions[k].name, worst, at);
        if (!(worst <= functions[k].bound)) fail_msg("%s is off by %.2f ulp at %.9g", functions[k].name, worst, at);
        static const float ends[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e30f, -1e30f};
        memcpy(x, ends, sizeof ends);
        run(context, functions[k].op, functions[k].sub);
        assert_true(isnan(y[0]));
        if (functions[k].op != QN_OP_unary) { /* the others' limits are no values of the formulas above */
            for (int i = 1; i < 5; i++) assert_true(ulps(y[i], functions[k].exact((double)ends[i])) <= functions[k].bound);
            continue;
        }
        assert_true(y[1] == (functions[k].exact(100) > 2 ? INFINITY : (float)functions[k].exact(100)));
        assert_true(!isnan(y[2]) && fabsf(y[2]) <= 1.0f);
        assert_true(ulps(y[3], functions[k].exact(0)) <= functions[k].bound);
    }
}

static void functions_keep_their_bounds(void **state) {
    (void)state;
    at_every_level(check_functions);
}

/* Of all floats these have the worst sines where quarter turns are counted in floats as far as a million. */
static void check_sines(qn_context *context, const char *level) {
    (void)level;
    for (int i = 0; i < N; i++) x[i] = (i & 1 ? -1.0f : 1.0f) * (1033434.0625f + (float)(i / 2 % 7 - 3) * 0.0625f);
    run(context, QN_OP_sin, 0);
    for (int i = 0; i < N; i++) assert_true(ulps(y[i], sin((double)x[i])) <= 2);
}

static void sines_far_out_keep_theirs(void **state) {
    (void)state;
    at_every_level(check_sines);
}

/* A scale that adds nothing leaves zeros their signs, as the reference does and a region of several ops: a quotient by them shows it. */
static void check_zeros(qn_context *context, const char *level) {
    (void)level;
    qn_result r;
    qn_tensor from, to;
    for (int i = 0; i < N; i++) x[i] = i % 3 == 0 ? -0.0f : i % 3 == 1 ? 0.0f : -1e-45f;
    qn_tensor_init(&from, QN_DTYPE_F32, 1, (int64_t[]){N - 5}, x, sizeof x);
    qn_tensor_init(&to, QN_DTYPE_F32, 1, (int64_t[]){N - 5}, y, sizeof y);
    qn_attr_scale at = qn_attr_scale_default();
    at.s = 0.25f;
    qn_request q = {.size = sizeof q, .version = QN_REQUEST_VERSION, .op = QN_OP_scale, .n_src = 1, .n_dst = 1, .attr = &at};
    q.src[0] = &from, q.dst[0] = &to;
    assert_int_equal(qn_dispatch(context, &q, &r), QN_OK);
    for (int i = 0; i < N - 5; i++) assert_true(y[i] == 0 && !signbit(y[i]) == (i % 3 == 1));
}

static void zeros_keep_their_signs(void **state) {
    (void)state;
    at_every_level(check_zeros);
}

/* ---- Functions of two numbers */

static float z[N];

static double modulo(double a, double b) {
    double r = fmod(a, b);
    if (r == 0) return copysign(0, b);
    return (r < 0) != (b < 0) ? r + b : r;
}

static void run_pairs(qn_context *context, int sub) {
    qn_tensor a, b, to;
    qn_result r;
    qn_tensor_init(&a, QN_DTYPE_F32, 1, (int64_t[]){N}, x, sizeof x);
    qn_tensor_init(&b, QN_DTYPE_F32, 1, (int64_t[]){N}, z, sizeof z);
    qn_tensor_init(&to, QN_DTYPE_F32, 1, (int64_t[]){N}, y, sizeof y);
    qn_request q = {
        .size = sizeof q, .version = QN_REQUEST_VERSION, .op = QN_OP_arith, .subop = (uint16_t)sub, .n_src = 2, .n_dst = 1};
    q.src[0] = &a, q.src[1] = &b, q.dst[0] = &to;
    assert_int_equal(qn_dispatch(context, &q, &r), QN_OK);
}

static void check_pairs(qn_context *context, int sub, double (*exact)(double, double), double bound) {
    run_pairs(context, sub);
    for (int i = 0; i < N; i++) {
        double want = exact((double)x[i], (double)z[i]);
        if (!(ulps(y[i], want) <= bound) || (!isnan(want) && signbit(y[i]) != signbit((float)want)))
            fail_msg("of %.9g and %.9g it is %.9g, not %.9g", (double)x[i], (double)z[i], (double)y[i], want);
    }
}

/* Every pair of numbers with a rule of its own, and pairs from everywhere. */
static void draw_pairs(double high) {
    static const float odd[] = {0.0f,        -0.0f,       1,        -1,        2,      -2,     0.5f,  -0.5f,
                                3,           -3,          INFINITY, -INFINITY, NAN,    1e-40f, 1e30f, -1e30f,
                                16777217.0f, 16777216.0f, 0.999f,   -7.5f,     1e-30f, 4};
    enum { ODD = sizeof odd / sizeof *odd };
    draw(-high, high);
    memcpy(z, x, sizeof z);
    for (int i = 0; i < N; i++) z[i] = x[(int)(((uint64_t)i * 40503 + 7) % N)];
    for (int i = 0; i < ODD * ODD; i++) x[i] = odd[i / ODD], z[i] = odd[i % ODD];
}

static void check_all_pairs(qn_context *context, const char *level) {
    (void)level;
    for (double high = 3; high < 1e30; high *= 1e9) {
        draw_pairs(high);
        check_pairs(context, QN_ARITH_pow, pow, 1);
        check_pairs(context, QN_ARITH_mod, modulo, 0.5);
    }
    for (int i = 0; i < N; i++) x[i] = fabsf(x[i]), z[i] = z[i] / 1e16f; /* where powers are neither 0 nor infinite */
    check_pairs(context, QN_ARITH_pow, pow, 1);
}

static void pairs_keep_their_rules(void **state) {
    (void)state;
    at_every_level(check_all_pairs);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(functions_keep_their_bounds), cmocka_unit_test(sines_far_out_keep_theirs),
                                       cmocka_unit_test(zeros_keep_their_signs), cmocka_unit_test(pairs_keep_their_rules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
