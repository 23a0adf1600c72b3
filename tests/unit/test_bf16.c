/* Products with bf16 weights, which some levels compute by tiles that know no subnormal numbers and make NaN of infinity too
 * easily: a row's result has the same bits alone and in any batch, with packed weights and without, whatever is in it or in the
 * other rows; it is as near to the exact sum as a sum of floats comes, and NaN and infinity are where they belong. */
#define _DEFAULT_SOURCE /* setenv */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quern/graph.h>

#include "cmocka_setup.h"
#include "cpu/cpu.h"

enum { ROWS = 512, M = 75, K = 610, LONG_M = 7, LONG_K = 6000, LONG_ROWS = 33 };

typedef struct size {
    int m, k, rows; /* rows: the most */
} size;

static const char *const levels[] = {"c", "c,avx2", "c,avxvnni", "c,avx512", "c,avx512,amx", "c,neon", "c,dotprod", "c,i8mm"};

static uint16_t weights[M * K];
static float x[ROWS * K];
static uint16_t x_short[ROWS * K]; /* the same in 16 bits, where that is asked for */

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}
static float next_float(uint32_t *state) { return (float)next_random(state) * 0x1p-23f - 1.0f; }

static uint16_t to_bf16(float a) {
    uint32_t u;
    memcpy(&u, &a, 4);
    return (uint16_t)(u >> 16);
}
static float from_bf16(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float a;
    memcpy(&a, &u, 4);
    return a;
}

static void fill_plain(void) {
    uint32_t state = 11;
    for (int i = 0; i < M * K; i++) weights[i] = to_bf16(next_float(&state));
    for (int i = 0; i < ROWS * K; i++) x[i] = next_float(&state);
}

static void scale_row(float *row, float by) {
    for (int i = 0; i < K; i++) row[i] *= by;
}
static void scale_weights(int row, float by) {
    for (int i = 0; i < K; i++) weights[row * K + i] = to_bf16(from_bf16(weights[row * K + i]) * by);
}

/* Rows 1 to 9 of both are of a kind each; the others are plain. */
static void fill_hard(void) {
    fill_plain();
    x[1 * K + 7] = INFINITY;
    x[2 * K + 601] = -INFINITY;
    x[2 * K + 3] = NAN;
    scale_row(x + 3 * K, 0x1p-130f);
    scale_row(x + 4 * K, 0x1p-115f);
    for (int i = 0; i < K; i++) x[5 * K + i] = i == 5 ? 0x1p-110f : 0;
    scale_row(x + 6 * K, 0);
    scale_row(x + 7 * K, 0x1p+95f);
    for (int i = 0; i < K; i += 2) x[8 * K + i] *= 0x1p-120f;
    x[9 * K + 100] = 0x1p-149f;
    weights[17 * K + 7] = 0x7f80;
    weights[18 * K + 300] = 0x7fc0;
    weights[19 * K + 609] = 0xff80;
    scale_weights(33, 0x1p-128f);
    scale_weights(34, 0x1p-100f);
    scale_weights(35, 0);
    for (int i = 0; i < K; i++) weights[36 * K + i] = i == 5 ? to_bf16(0x1p+100f) : 0;
    scale_weights(50, 0x1p+24f);
    weights[74 * K + 1] = 1;
}

/* y of `rows` rows of x from `first` on. */
static void multiply(size z, qn_dtype x_dtype, int packed, int first, int rows, qn_pool *pool, float *y) {
    char text[300];
    qn_graph *g = NULL;
    qn_plan *plan = NULL;
    qn_context *context = NULL;
    qn_tensor t;
    qn_error error;
    int64_t bytes = x_dtype == QN_DTYPE_F32 ? 4 : 2;
    char *at = x_dtype == QN_DTYPE_F32 ? (char *)x : (char *)x_short;
    snprintf(text, sizeof text,
             "quern graph 1\n%s %%w bf16[%d, %d]\ninput %%x %s[%d, %d]\n%%y = mul_mat %%w %%x\noutput %%y \"y\"\n",
             packed ? "param" : "input", z.m, z.k, qn_dtype_describe(x_dtype)->name, rows, z.k);
    assert_int_equal(qn_graph_parse(text, strlen(text), 0, &g, &error), QN_OK);
    assert_int_equal(qn_plan_create(g, &(qn_plan_options){.size = sizeof(qn_plan_options)}, &plan, &error), QN_OK);
    assert_int_equal(qn_tensor_init(&t, QN_DTYPE_BF16, 2, (int64_t[]){z.m, z.k}, weights, (uint64_t)(z.m * z.k) * 2), QN_OK);
    assert_int_equal(qn_plan_set(plan, "w", &t, &error), QN_OK);
    assert_int_equal(
        qn_tensor_init(&t, x_dtype, 2, (int64_t[]){rows, z.k}, at + first * z.k * bytes, (uint64_t)(rows * z.k * bytes)), QN_OK);
    assert_int_equal(qn_plan_set(plan, "x", &t, &error), QN_OK);
    qn_context_options o = {.size = sizeof o, .pool = pool};
    assert_int_equal(qn_context_create(&o, &context), QN_OK);
    for (int run = 0; run <= packed; run++) /* what may be packed late is packed by the second run */
        assert_int_equal(qn_plan_run(plan, context, &error), QN_OK);
    assert_int_equal(qn_plan_output(plan, "y", &t, &error), QN_OK);
    memcpy(y, t.data, (size_t)(rows * z.m) * sizeof(float));
    qn_context_destroy(context);
    qn_plan_destroy(plan);
    qn_graph_destroy(g);
}

static int same_bits(const float *a, const float *b, int n) {
    for (int i = 0; i < n; i++)
        if (memcmp(a + i, b + i, 4) != 0 && !(isnan(a[i]) && isnan(b[i]))) return 0;
    return 1;
}

enum { SAMPLES = 34 }; /* rows whose result alone is known: the first 33, and the last */
static int sample(size z, int i) { return i < SAMPLES - 1 ? i : z.rows - 1; }

static void compare_batches(size z, qn_dtype x_dtype, qn_pool *pool) {
    static const int batches[] = {1, 3, 8, 16, 17, 33, ROWS};
    static float alone[SAMPLES * M], many[ROWS * M];
    for (int i = 0; i < SAMPLES; i++) multiply(z, x_dtype, i % 2, sample(z, i), 1, NULL, alone + i * z.m);
    for (size_t b = 0; b < sizeof batches / sizeof *batches && batches[b] <= z.rows; b++)
        for (int packed = 0; packed < 2; packed++) {
            multiply(z, x_dtype, packed, 0, batches[b], b % 2 ? pool : NULL, many);
            for (int i = 0; i < SAMPLES; i++)
                if (sample(z, i) < batches[b]) assert_true(same_bits(many + sample(z, i) * z.m, alone + i * z.m, z.m));
        }
}

/* Against the exact sum, off by no more than floats are: a few roundings in every term, and what is below the normal numbers. */
static void compare_exact(void) {
    static float y[16 * M];
    multiply((size){M, K, ROWS}, QN_DTYPE_F32, 1, 0, 16, NULL, y);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < M; j++) {
            double sum = 0, terms = 0, got = y[i * M + j];
            for (int p = 0; p < K; p++) {
                double term = (double)x[i * K + p] * (double)from_bf16(weights[j * K + p]);
                sum += term;
                terms += fabs(term);
            }
            if (isnan(sum)) assert_true(isnan(got));
            else if (fabs(sum) > (double)FLT_MAX) assert_true(isinf(got) && (got > 0) == (sum > 0));
            else assert_true(fabs(got - sum) <= terms * K * 0x1p-24 * 0.1 + K * 0x1p-150);
        }
}

/* Sets level number l; 0: this machine has not got it. */
static int at_level(size_t l) {
    setenv("QUERN_CPU", levels[l], 1);
    return l == 0 || qn_cpu_levels() != 1u << QN_CPU_LEVEL_c;
}

static void test_batches(void **state) {
    qn_pool *pool = NULL;
    (void)state;
    assert_int_equal(qn_pool_create(3, &pool), QN_OK);
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        if (!at_level(l)) continue;
        fill_plain();
        compare_batches((size){M, K, ROWS}, QN_DTYPE_F32, pool);
        compare_batches((size){LONG_M, LONG_K, LONG_ROWS}, QN_DTYPE_F32, pool);
        for (int i = 0; i < ROWS * K; i++) x_short[i] = to_bf16(x[i]);
        compare_batches((size){M, K, ROWS}, QN_DTYPE_BF16, pool);
        for (int i = 0; i < ROWS * K; i++) x_short[i] = (uint16_t)(x_short[i] & 0xbfff); /* any f16 below 2 */
        compare_batches((size){M, K, ROWS}, QN_DTYPE_F16, pool);
    }
    unsetenv("QUERN_CPU");
    qn_pool_destroy(pool);
}

static void test_hard_numbers(void **state) {
    qn_pool *pool = NULL;
    (void)state;
    assert_int_equal(qn_pool_create(3, &pool), QN_OK);
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        if (!at_level(l)) continue;
        fill_hard();
        compare_exact();
        compare_batches((size){M, K, ROWS}, QN_DTYPE_F32, pool);
        fill_plain();
        compare_exact();
    }
    unsetenv("QUERN_CPU");
    qn_pool_destroy(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_batches), cmocka_unit_test(test_hard_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
