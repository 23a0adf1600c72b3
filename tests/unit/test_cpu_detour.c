/* Calls that reach their kernel by way of copies: they have the bits of the call whose sources were f32 and dense from the beginning. */
#include <stdio.h>
#include <string.h>

#include <quern/quern.h>

#include "cmocka_setup.h"
#include "cpu/cpu.h"
#include "tensor/half.h"

enum { CHANNELS = 64, SIDE = 14, IMAGE = CHANNELS * SIDE * SIDE, KERNEL = CHANNELS * CHANNELS * 9, RUNS = 3 };
static float image[IMAGE], kernel[KERNEL];
static uint16_t kernel_halves[KERNEL];

static void setup_numbers(void) {
    for (int i = 0; i < IMAGE; i++) image[i] = (float)(i * 5 % 13) / 8 - 0.7f;
    for (int i = 0; i < KERNEL; i++) { /* numbers that a half has exactly */
        kernel[i] = (float)(i * 3 % 13) / 8 - 0.75f;
        kernel_halves[i] = qn_f32_to_f16(kernel[i]);
    }
}

static void set(qn_plan *p, const char *name, qn_dtype dtype, const int64_t *shape, void *data, uint64_t bytes) {
    qn_tensor t;
    qn_error e;
    assert_int_equal(qn_tensor_init(&t, dtype, 4, shape, data, bytes), QN_OK);
    if (qn_plan_set(p, name, &t, &e) != QN_OK) fail_msg("%s", e.text);
}

/* Two convolutions with the same weights, one after the other, so often that weights are packed; what is made and how. */
static void convolve(qn_dtype dtype, float *y, char *how, uint64_t *packed) {
    static const char text[] = "quern graph 1\ninput %%x f32[1, 64, 14, 14]\nparam %%w %s[64, 64, 3, 3]\n"
                               "%%z = conv_2d %%w %%x {p0=1, p1=1}\n%%y = conv_2d %%w %%z {p0=1, p1=1}\noutput %%y \"y\"\n";
    static const int64_t shape[] = {1, CHANNELS, SIDE, SIDE}, weights[] = {CHANNELS, CHANNELS, 3, 3};
    char graph[sizeof text + 16];
    qn_graph *g;
    qn_plan *p;
    qn_tensor t;
    qn_error e;
    int n = snprintf(graph, sizeof graph, text, dtype == QN_DTYPE_F16 ? "f16" : "f32");
    if (qn_graph_parse(graph, (size_t)n, 0, &g, &e) != QN_OK) fail_msg("%s", e.text);
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
    set(p, "x", QN_DTYPE_F32, shape, image, sizeof image);
    if (dtype == QN_DTYPE_F16) set(p, "w", dtype, weights, kernel_halves, sizeof kernel_halves);
    else set(p, "w", dtype, weights, kernel, sizeof kernel);
    for (int i = 0; i < RUNS; i++) {
        assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
        assert_int_equal(qn_plan_output(p, "y", &t, &e), QN_OK);
        if (i) assert_memory_equal(y, (char *)t.data + t.offset, IMAGE * sizeof *y);
        memcpy(y, (char *)t.data + t.offset, IMAGE * sizeof *y);
    }
    qn_plan_totals totals = {.size = sizeof totals};
    qn_plan_step_info step = {.size = sizeof step};
    qn_plan_describe(p, &totals);
    *packed = totals.packed_bytes;
    assert_int_equal(qn_plan_step_describe(p, 0, &step), QN_OK);
    snprintf(how, 64, "%s", step.kernel ? step.kernel : "");
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static void weights_of_16_bits_give_the_bits_of_f32(void **state) {
    (void)state;
    static float wide[IMAGE], halves[IMAGE];
    char how[2][64];
    uint64_t packed[2];
    if (!qn_cpu_levels()) skip(); /* references only */
    setup_numbers();
    convolve(QN_DTYPE_F32, wide, how[0], &packed[0]);
    convolve(QN_DTYPE_F16, halves, how[1], &packed[1]);
    assert_memory_equal(wide, halves, sizeof wide);
    assert_int_equal(packed[0], packed[1]); /* one form for both convolutions, as of f32 */
    assert_string_not_equal(how[0], how[1]);
    assert_string_equal(how[1], "by way of f32");
}

/* Rows of a view with gaps, and of the same numbers without: the same reduction. */
static void gaps_change_nothing(void **state) {
    (void)state;
    enum { ROWS = 40, WIDE = 50, EACH = 31 };
    static float full[ROWS * WIDE], dense[ROWS * EACH], y[2][ROWS];
    static _Alignas(64) char workspace[1 << 20];
    qn_tensor x[2], to[2];
    qn_context *context;
    assert_int_equal(qn_context_create(NULL, &context), QN_OK);
    for (int i = 0; i < ROWS * WIDE; i++) full[i] = (float)(i * 7 % 19) / 3 - 2.9f;
    for (int i = 0; i < ROWS; i++) memcpy(dense + i * EACH, full + i * WIDE + 3, EACH * sizeof *dense);
    qn_tensor_init(&x[0], QN_DTYPE_F32, 2, (int64_t[]){ROWS, EACH}, dense, sizeof dense);
    x[1] = x[0];
    x[1].data = full, x[1].size = sizeof full, x[1].offset = 3 * 4, x[1].stride[0] = WIDE * 4;
    for (int i = 0; i < 2; i++) {
        qn_result r;
        qn_tensor_init(&to[i], QN_DTYPE_F32, 2, (int64_t[]){ROWS, 1}, y[i], sizeof y[i]);
        qn_request q = {.size = sizeof q, .version = QN_REQUEST_VERSION, .op = QN_OP_sum_rows, .n_src = 1, .n_dst = 1};
        q.src[0] = &x[i], q.dst[0] = &to[i], q.workspace = workspace, q.workspace_size = sizeof workspace;
        assert_int_equal(qn_dispatch(context, &q, &r), QN_OK);
    }
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    qn_context_destroy(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_of_16_bits_give_the_bits_of_f32),
        cmocka_unit_test(gaps_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
