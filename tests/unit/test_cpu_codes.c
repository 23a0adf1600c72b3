/* Products of weights whose codes are as large as they come with activations as large as they come, all of one sign: where sums of a level
 * are kept in few bits for a while, they must fit. On every level this machine has, for every block type, against doubles. */
#define _DEFAULT_SOURCE /* setenv */
#include <math.h>
#include <stdlib.h>

#include "cmocka_setup.h"
#include "cpu/cpu.h"
#include "tensor/convert.h"
#include "tensor/quant.h"

enum { ROWS = 48, K = 512, MOST = 20 };

static float w[ROWS * K], x[MOST * K], y[MOST * ROWS], decoded[ROWS * K];
static _Alignas(64) uint8_t blocks[ROWS * K * 4], workspace[1 << 20], packed[1 << 20];

/* In every sixteen one element as far below zero as the others are above it, or the reverse. */
static void fill(float sign, float of_x) {
    for (int i = 0; i < ROWS * K; i++) w[i] = i % 16 == i / K % 16 ? -sign : sign * 0.9999f;
    for (int i = 0; i < MOST * K; i++) x[i] = of_x;
}

static qn_tensor a, b, c;

static void shape(qn_dtype type, int64_t n) {
    qn_tensor_init(&a, type, 2, (int64_t[]){ROWS, K}, blocks, sizeof blocks);
    qn_tensor_init(&b, QN_DTYPE_F32, 2, (int64_t[]){n, K}, x, sizeof x);
    qn_tensor_init(&c, QN_DTYPE_F32, 2, (int64_t[]){n, ROWS}, y, sizeof y);
}

static void multiply(qn_context *context) {
    qn_result r;
    qn_request q = {
        .size = sizeof q, .version = QN_REQUEST_VERSION, .op = QN_OP_mul_mat, .n_src = 2, .n_dst = 1, .src = {&a, &b}};
    q.dst[0] = &c;
    q.workspace = workspace;
    q.workspace_size = sizeof workspace;
    if (qn_dispatch(context, &q, &r) == QN_OK) return;
    char text[300];
    qn_result_format(&r, text, sizeof text);
    fail_msg("%s", text);
}

/* With weights that stay, as a plan has them; 0 where the level does not pack them. */
static int multiply_packed(int level) {
    const qn_tensor *src[] = {&a, &b};
    qn_tensor *dst[] = {&c};
    qn_call call = {.op = QN_OP_mul_mat, .n_src = 2, .n_dst = 1, .src = src, .dst = (void *)dst, .workspace = workspace};
    qn_cpu_step step = {.constant = 1};
    call.attr = qn_op_describe(QN_OP_mul_mat)->attr_default;
    if (!qn_cpu_prepare(1u << level, &call, &step) || !step.pack) return 0;
    assert_true(step.workspace <= sizeof workspace && step.packed_bytes <= sizeof packed);
    qn_cpu_pack(NULL, &call, &step, packed);
    step.packed = packed;
    qn_cpu_run(NULL, &call, &step);
    return 1;
}

static void check(const char *level, const char *how, int64_t n) {
    for (int64_t j = 0; j < n; j++)
        for (int i = 0; i < ROWS; i++) {
            double sum = 0, size = 0;
            for (int k = 0; k < K; k++) {
                sum += (double)decoded[i * K + k] * (double)x[j * K + k];
                size += fabs((double)decoded[i * K + k]);
            }
            if (!(fabs((double)y[j * ROWS + i] - sum) <= 1e-5 * size))
                fail_msg("%s, %s%s, %d rows: %g, not %g", level, how, qn_dtype_describe((qn_dtype)a.dtype)->name, (int)n,
                         (double)y[j * ROWS + i], sum);
        }
}

static int check_type(qn_context *context, qn_dtype type, int level) {
    static const int64_t rows[] = {1, 3, MOST};
    const char *name = qn_cpu_level_name(level);
    int found = 0;
    for (int i = 0; i < 3; i++) {
        shape(type, rows[i]);
        multiply(context);
        check(name, "", rows[i]);
        if (!multiply_packed(level)) continue;
        check(name, "packed ", rows[i]);
        found = 1;
    }
    return found;
}

/* How many types it packs. */
static int check_level(int level) {
    qn_context *context;
    int types = 0;
    setenv("QUERN_CPU", qn_cpu_level_name(level), 1);
    assert_int_equal(qn_context_create(NULL, &context), QN_OK);
    for (int type = 0; type < QN_DTYPE_COUNT; type++) {
        const qn_dtype_info *info = qn_dtype_describe((qn_dtype)type);
        if (!info || info->block == 1 || !qn_can_convert(QN_DTYPE_F32, (qn_dtype)type)) continue;
        int found = 0;
        for (int form = 0; form < 4; form++) {
            fill(form % 2 ? 1 : -1, form / 2 ? 1 : -1);
            assert_int_equal(qn_convert(QN_DTYPE_F32, w, (qn_dtype)type, blocks, ROWS * K), QN_OK);
            assert_int_equal(qn_convert((qn_dtype)type, blocks, QN_DTYPE_F32, decoded, ROWS * K), QN_OK);
            found |= check_type(context, (qn_dtype)type, level);
        }
        types += found;
    }
    qn_context_destroy(context);
    unsetenv("QUERN_CPU");
    return types;
}

static void the_largest_codes(void **state) {
    (void)state;
    uint32_t have = qn_cpu_levels();
    int most = 0;
    for (int level = 0; level < QN_CPU_LEVEL_COUNT; level++)
        if (have >> level & 1) {
            int types = check_level(level);
            if (types > most) most = types;
        }
    assert_true(most >= 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_largest_codes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
