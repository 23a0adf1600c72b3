/* Transforms against their definition at every length up to 512 and every prime to 4099; the functions of signal.h against
 * theirs, and their gradients against differences. */
#include <quern/signal.h>

#include "control_help.h"
#include "eager.h"

enum { MOST = 4099 };

/* A signal of random numbers in [-1, 1): n real parts, then n imaginary ones. */
static void draw(double *x, int64_t n, uint64_t seed) {
    for (int64_t i = 0; i < 2 * n; i++) x[i] = number(&seed);
}

/* Frequencies k and n - k of the definition, 0 <= k < n, roots from a table of n: theirs are conjugates, so the two share their products. */
static void direct(const double *x, int64_t n, int64_t k, const double *root, double out[2][2]) {
    double rc = 0, rs = 0, ic = 0, is = 0; /* sums of real and imaginary parts times cosines and sines */
    for (int64_t j = 0, at = 0; j < n; j++) {
        rc += x[j] * root[2 * at];
        rs += x[j] * root[2 * at + 1];
        ic += x[n + j] * root[2 * at];
        is += x[n + j] * root[2 * at + 1];
        at += k;
        if (at >= n) at -= n;
    }
    out[0][0] = rc - is;
    out[0][1] = rs + ic;
    out[1][0] = rc + is;
    out[1][1] = ic - rs;
}

static void roots_of(int64_t n, double *root) {
    for (int64_t j = 0; j < n; j++) {
        root[2 * j] = cos(2 * acos(-1.0) * (double)j / (double)n);
        root[2 * j + 1] = -sin(2 * acos(-1.0) * (double)j / (double)n);
    }
}

static void transform(const double *x, double *y, int64_t n, int inverse, int norm) {
    qn_attr_fft at = qn_attr_fft_default();
    at.inverse = inverse;
    at.norm = norm;
    qn_tensor from = EAGER(QN_DTYPE_F64, x, 2 * n), to = EAGER(QN_DTYPE_F64, y, 2 * n);
    eager_run(QN_OP_fft, &at, 1, &from, 1, &to);
}

/* What f32 and c64 differ by from y, in relation to the root of n. */
static double error_of_singles(const double *x, const double *y, int64_t n, int inverse) {
    static float from[2][2 * MOST], to[2][2 * MOST]; /* parts, and pairs */
    qn_attr_fft at = qn_attr_fft_default();
    double worst = 0;
    at.inverse = inverse;
    for (int64_t i = 0; i < n; i++)
        for (int part = 0; part < 2; part++) from[0][part * n + i] = from[1][2 * i + part] = (float)x[part * n + i];
    qn_tensor parts[2] = {EAGER(QN_DTYPE_F32, from[0], 2 * n), EAGER(QN_DTYPE_F32, to[0], 2 * n)};
    qn_tensor pairs[2] = {EAGER(QN_DTYPE_C64, from[1], n), EAGER(QN_DTYPE_C64, to[1], n)};
    eager_run(QN_OP_fft, &at, 1, &parts[0], 1, &parts[1]);
    eager_run(QN_OP_fft, &at, 1, &pairs[0], 1, &pairs[1]);
    for (int64_t i = 0; i < 2 * n; i++) {
        worst = fmax(worst, fabs((double)to[0][i] - y[i]));
        worst = fmax(worst, fabs((double)to[1][i] - y[i % 2 * n + i / 2]));
    }
    return worst / sqrt((double)n);
}

/* The largest difference to the definition in relation to the root of n: at every `stride`-th frequency of the first half, and at those
 * that mirror them in the second, so with 1 at all. */
static double error_at(int64_t n, int64_t stride) {
    static double x[2 * MOST], y[2 * MOST], root[2 * MOST];
    double worst = 0, out[2][2];
    draw(x, n, (uint64_t)n);
    roots_of(n, root);
    transform(x, y, n, 0, 0);
    for (int64_t k = 0; k <= n / 2; k += stride) {
        int64_t mirror = k ? n - k : 0;
        direct(x, n, k, root, out);
        worst = fmax(worst, hypot(y[k] - out[0][0], y[n + k] - out[0][1]) / sqrt((double)n));
        worst = fmax(worst, hypot(y[mirror] - out[1][0], y[n + mirror] - out[1][1]) / sqrt((double)n));
    }
    if (!(error_of_singles(x, y, n, 0) < 1e-6)) fail_msg("length %d: f32 or c64 is off by more", (int)n);
    transform(x, y, n, 1, 0);
    if (!(error_of_singles(x, y, n, 1) < 1e-6)) fail_msg("length %d: f32 or c64 is off by more, backwards", (int)n);
    return worst;
}

/* In f64, and with that in f32 and c64. */
static void every_length_agrees_with_the_sum(void **state) {
    (void)state;
    for (int64_t n = 1; n <= 512; n++) {
        double e = error_at(n, 1);
        if (!(e < 1e-12)) fail_msg("length %d: off by %g", (int)n, e);
    }
}

/* Three thousand million products, seconds where they are compiled to be fast; elsewhere, under sanitizers, every so manieth of them. */
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
enum { EVERY_FREQUENCY = 1 };
#else
enum { EVERY_FREQUENCY = 0 };
#endif

static void primes_agree_with_the_sum(void **state) {
    (void)state;
    int primes = 0;
    for (int64_t n = 513; n <= MOST; n++) {
        int prime = 1;
        for (int64_t p = 2; p * p <= n && prime; p++) prime = n % p != 0;
        if (!prime) continue;
        primes++;
        double e = error_at(n, EVERY_FREQUENCY ? 1 : n / 58);
        if (!(e < 1e-12)) fail_msg("prime %d: off by %g", (int)n, e);
    }
    assert_int_equal(primes, 468);
}

/* There and back again, and the energy in between; f32 within 1e-6. */
static void norms_and_directions_undo_each_other(void **state) {
    static const int pairs[4][2] = {{0, 1}, {1, 1}, {2, 2}, {3, 0}};
    static const int64_t lengths[] = {1, 2, 37, 240, 1024, 2039, 4096};
    static double x[2 * 4096], y[2 * 4096], z[2 * 4096];
    static float xf[2 * 4096], yf[2 * 4096];
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        int64_t n = lengths[i];
        double before = 0, after = 0, largest = 0;
        draw(x, n, 99);
        for (int p = 0; p < 4; p++) {
            transform(x, y, n, 0, pairs[p][0]);
            transform(y, z, n, 1, pairs[p][1]);
            assert_near(z, x, 2 * n, 1e-13, "there and back");
        }
        transform(x, y, n, 0, 2);
        for (int64_t k = 0; k < 2 * n; k++) {
            before += x[k] * x[k];
            after += y[k] * y[k];
            largest = fmax(largest, fabs(y[k]));
            xf[k] = (float)x[k];
        }
        assert_true(fabs(before - after) < 1e-12 * before);
        qn_attr_fft at = qn_attr_fft_default();
        at.norm = 2;
        qn_tensor from = EAGER(QN_DTYPE_F32, xf, 2 * n), to = EAGER(QN_DTYPE_F32, yf, 2 * n);
        eager_run(QN_OP_fft, &at, 1, &from, 1, &to);
        for (int64_t k = 0; k < 2 * n; k++) assert_true(fabs((double)yf[k] - y[k]) < 1e-6 * largest);
    }
}

/* ---- signal.h */

static qn_val leaf(qn_graph *g, const char *name, int rank, int64_t a, int64_t b) {
    int64_t d[2] = {a, b};
    return qn_graph_input(g, name, QN_DTYPE_F64, rank, d);
}

static qn_graph *graph_new(void) {
    qn_graph *g;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    return g;
}

static void must_build(const qn_graph *g) {
    qn_error error;
    if (qn_graph_error(g, &error) != QN_OK) fail_msg("%s", error.text);
}

/* What `fill` puts into the leaf of that name. */
static void filled(const char *name, double *x, int64_t n) {
    uint64_t seed = 1;
    for (const char *c = name; *c; c++) seed = seed * 31 + (unsigned char)*c;
    for (int64_t i = 0; i < n; i++) x[i] = number(&seed);
}

/* A matrix that a plan gives, which may be a view. */
static void matrix(const qn_plan *p, const char *name, int64_t rows, int64_t n, double *to) {
    qn_tensor t;
    qn_error error;
    if (qn_plan_output(p, name, &t, &error) != QN_OK) fail_msg("%s", error.text);
    assert_true(t.rank == 2 && t.shape[0] == rows && t.shape[1] == n && t.dtype == QN_DTYPE_F64);
    for (int64_t i = 0; i < rows * n; i++)
        memcpy(&to[i], (const char *)t.data + t.offset + i / n * t.stride[0] + i % n * t.stride[1], sizeof *to);
}

static void convolution_is_the_sum_of_products(void **state) {
    enum { N = 19, M = 6, ROWS = 3 };
    double a[ROWS * N], b[M], y[ROWS * (N + M - 1)], want[ROWS * (N + M - 1)] = {0};
    (void)state;
    qn_graph *g = graph_new();
    qn_graph_output(g, qn_graph_fft_convolve(g, leaf(g, "a", 2, ROWS, N), leaf(g, "b", 1, M, 0)), "y");
    must_build(g);
    qn_plan *p = plan_of(g);
    fill(p, NULL, 0, 0);
    run(p);
    filled("a", a, ROWS * N);
    filled("b", b, M);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < M; j++) want[r * (N + M - 1) + i + j] += a[r * N + i] * b[j];
    matrix(p, "y", ROWS, N + M - 1, y);
    assert_near(y, want, ROWS * (N + M - 1), 1e-13, "convolution");
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static void real_transforms_undo_each_other(void **state) {
    static const int64_t lengths[] = {1, 2, 3, 8, 37, 90};
    (void)state;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        int64_t n = lengths[i];
        double x[2 * 90], y[2 * 90];
        qn_graph *g = graph_new();
        qn_val half = qn_graph_rfft(g, leaf(g, "x", 2, 2, n), 0);
        qn_graph_output(g, qn_graph_irfft(g, half, n, 1), "y");
        must_build(g);
        qn_dims d = qn_signal_shape(g, half);
        assert_true(d.rank == 3 && d.d[1] == 2 && d.d[2] == n / 2 + 1);
        qn_plan *p = plan_of(g);
        fill(p, NULL, 0, 0);
        run(p);
        filled("x", x, 2 * n);
        matrix(p, "y", 2, n, y);
        assert_near(y, x, 2 * n, 1e-13, "real there and back");
        qn_plan_destroy(p);
        qn_graph_destroy(g);
    }
}

/* A sine of amplitude A at the middle of a bin has density A^2 / 2 over the bin's width, summed over the peak. */
static void density_of_a_sine_adds_up_to_its_power(void **state) {
    enum { N = 1024, W = 128, HOP = 64, RATE = 1000 };
    double x[N], w[W], sum = 0;
    (void)state;
    qn_graph *g = graph_new();
    qn_graph_output(g, qn_graph_psd(g, leaf(g, "x", 1, N, 0), leaf(g, "w", 1, W, 0), HOP, RATE), "y");
    must_build(g);
    qn_plan *p = plan_of(g);
    for (int i = 0; i < N; i++) x[i] = 3 * sin(2 * acos(-1.0) * 17 * i / W);
    for (int i = 0; i < W; i++) w[i] = 0.5 - 0.5 * cos(2 * acos(-1.0) * i / W);
    set(p, "x", x);
    set(p, "w", w);
    run(p);
    const double *y = output(p, "y");
    int best = 0;
    for (int k = 0; k <= W / 2; k++) {
        sum += y[k] * RATE / W;
        if (y[k] > y[best]) best = k;
    }
    assert_int_equal(best, 17);
    assert_true(fabs(sum - 4.5) < 1e-12);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* Gradients of the mean of squares of everything at once, by every leaf. */
static void gradients_agree_with_differences(void **state) {
    enum { N = 12, M = 5, W = 6 };
    const double h = 1e-6;
    (void)state;
    qn_graph *g = graph_new();
    qn_attr_reduce all = qn_attr_reduce_default();
    qn_val wrt[3] = {leaf(g, "a", 1, N, 0), leaf(g, "b", 1, M, 0), leaf(g, "w", 1, W, 0)}, grads[3];
    qn_val y = qn_graph_fft_convolve(g, wrt[0], wrt[1]), d = qn_graph_psd(g, y, wrt[2], 4, 2);
    qn_val loss = qn_signal_op1(g, QN_OP_reduce, QN_REDUCE_mean, qn_signal_op1(g, QN_OP_sqr, 0, d, NULL), &all);
    qn_graph_output(g, loss, "loss");
    must_build(g);
    qn_plan *plain = plan_of(g);
    assert_int_equal(qn_graph_grad(g, loss, 3, wrt, grads), QN_OK);
    static const char *const names[3] = {"a", "b", "w"};
    static const char *const outputs[3] = {"ga", "gb", "gw"};
    static const int64_t counts[3] = {N, M, W};
    for (int i = 0; i < 3; i++) qn_graph_output(g, grads[i], outputs[i]);
    qn_plan *p = plan_of(g);
    fill(p, NULL, 0, 0);
    run(p);
    for (int i = 0; i < 3; i++)
        for (int64_t k = 0; k < counts[i]; k++) {
            double at[2];
            for (int side = 0; side < 2; side++) {
                fill(plain, names[i], k, side ? h : -h);
                run(plain);
                at[side] = *(const double *)output(plain, "loss");
            }
            double slope = (at[1] - at[0]) / (2 * h), found = ((const double *)output(p, outputs[i]))[k];
            assert_near(&found, &slope, 1, 1e-6, names[i]);
        }
    qn_plan_destroy(plain);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* What cannot be is an error of the graph, not a crash. */
static void wrong_lengths_are_turned_down(void **state) {
    qn_error error;
    (void)state;
    qn_graph *g = graph_new();
    assert_int_equal(qn_graph_frames(g, leaf(g, "x", 1, 8, 0), leaf(g, "w", 1, 4, 0), 0), QN_VAL_NONE);
    assert_int_not_equal(qn_graph_error(g, &error), QN_OK);
    qn_graph_destroy(g);
    g = graph_new();
    assert_int_equal(qn_graph_irfft(g, leaf(g, "x", 2, 2, 5), 20, 1), QN_VAL_NONE);
    assert_int_not_equal(qn_graph_error(g, &error), QN_OK);
    qn_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_agrees_with_the_sum),     cmocka_unit_test(primes_agree_with_the_sum),
        cmocka_unit_test(norms_and_directions_undo_each_other), cmocka_unit_test(convolution_is_the_sum_of_products),
        cmocka_unit_test(real_transforms_undo_each_other),      cmocka_unit_test(density_of_a_sine_adds_up_to_its_power),
        cmocka_unit_test(gradients_agree_with_differences),     cmocka_unit_test(wrong_lengths_are_turned_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
