/* Products have one order of arithmetic: a row of the result has the same bits alone and in any batch, with packed weights and with
 * those that may change, for one thread and for three, at every level of the machine. */
#define _DEFAULT_SOURCE /* setenv */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quern/graph.h>

#include "cmocka_setup.h"

enum { MOST_ROWS = 40, MOST_BYTES = 80 * 1024 * 4 };

static const char *const levels[] = {"c",      "c,avx2",    "c,avxvnni", "c,avx512", "c,avx512,amx",
                                     "c,neon", "c,dotprod", "c,i8mm",    "c,sve"};

static uint8_t weights[MOST_BYTES];
static float x[MOST_ROWS * 1024];

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Weights whose scales are small numbers, whatever the type: no byte has its two highest bits set. */
static void fill(uint32_t dtype) {
    uint32_t state = 5;
    for (size_t i = 0; i < sizeof weights; i++) weights[i] = (uint8_t)(next_random(&state) & 0x3f);
    if (dtype == QN_DTYPE_F32)
        for (size_t i = 0; i < sizeof weights / 4; i++) {
            float w = (float)next_random(&state) * 0x1p-23f - 1.0f;
            memcpy(weights + 4 * i, &w, 4);
        }
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) x[i] = (float)next_random(&state) * 0x1p-23f - 1.0f;
}

/* y of `rows` rows of x from `first` on. */
static void multiply(qn_dtype dtype, int packed, int m, int k, int first, int rows, qn_pool *pool, float *y) {
    char text[300];
    qn_graph *g = NULL;
    qn_plan *plan = NULL;
    qn_context *context = NULL;
    qn_tensor t;
    qn_error error;
    uint64_t bytes;
    snprintf(text, sizeof text,
             "quern graph 1\n%s %%w %s[%d, %d]\ninput %%x f32[%d, %d]\n%%y = mul_mat %%w %%x\noutput %%y \"y\"\n",
             packed ? "param" : "input", qn_dtype_describe(dtype)->name, m, k, rows, k);
    assert_int_equal(qn_graph_parse(text, strlen(text), 0, &g, &error), QN_OK);
    assert_int_equal(qn_plan_create(g, &(qn_plan_options){.size = sizeof(qn_plan_options)}, &plan, &error), QN_OK);
    assert_int_equal(qn_tensor_bytes(dtype, 2, (int64_t[]){m, k}, &bytes), QN_OK);
    assert_true(bytes <= sizeof weights);
    assert_int_equal(qn_tensor_init(&t, dtype, 2, (int64_t[]){m, k}, weights, bytes), QN_OK);
    assert_int_equal(qn_plan_set(plan, "w", &t, &error), QN_OK);
    assert_int_equal(qn_tensor_init(&t, QN_DTYPE_F32, 2, (int64_t[]){rows, k}, x + first * k, (uint64_t)(rows * k) * 4), QN_OK);
    assert_int_equal(qn_plan_set(plan, "x", &t, &error), QN_OK);
    qn_context_options o = {.size = sizeof o, .pool = pool};
    assert_int_equal(qn_context_create(&o, &context), QN_OK);
    for (int run = 0; run <= packed; run++) /* what may be packed late is packed by the second run */
        assert_int_equal(qn_plan_run(plan, context, &error), QN_OK);
    assert_int_equal(qn_plan_output(plan, "y", &t, &error), QN_OK);
    memcpy(y, t.data, (size_t)(rows * m) * sizeof(float));
    qn_context_destroy(context);
    qn_plan_destroy(plan);
    qn_graph_destroy(g);
}

static void compare_all(qn_dtype dtype, int m, int k, qn_pool *pool) {
    static const int batches[] = {2, 3, 4, 5, 7, 8, 9, 16, 17, 33, MOST_ROWS};
    static float alone[MOST_ROWS * 80], many[MOST_ROWS * 80];
    fill(dtype);
    for (int i = 0; i < MOST_ROWS; i++) multiply(dtype, 1, m, k, i, 1, NULL, alone + i * m);
    multiply(dtype, 0, m, k, 3, 1, NULL, many);
    assert_memory_equal(many, alone + 3 * m, (size_t)m * 4);
    for (size_t b = 0; b < sizeof batches / sizeof *batches; b++)
        for (int packed = 0; packed < 2; packed++) {
            multiply(dtype, packed, m, k, 0, batches[b], b % 2 ? pool : NULL, many);
            assert_memory_equal(many, alone, (size_t)(batches[b] * m) * 4);
        }
}

static void test_one_order(void **state) {
    qn_pool *pool = NULL;
    (void)state;
    assert_int_equal(qn_pool_create(3, &pool), QN_OK);
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        setenv("QUERN_CPU", levels[l], 1);
        for (int d = 1; d < QN_DTYPE_COUNT; d++) {
            const qn_dtype_info *info = qn_dtype_describe((qn_dtype)d);
            int floats = d == QN_DTYPE_F32 || d == QN_DTYPE_F16 || d == QN_DTYPE_BF16;
            if (!info || (info->block <= 1 && !floats)) continue;
            compare_all((qn_dtype)d, 75, info->block <= 1 ? 301 : info->block <= 32 ? 288 : 512, pool);
        }
    }
    unsetenv("QUERN_CPU");
    qn_pool_destroy(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
