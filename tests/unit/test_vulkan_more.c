/* More kernels of the Vulkan device against the reference: block types, rotary tables, gradients of gates, running sums. */
#include "vulkan_help.h"

#define F32 QN_DTYPE_F32
#define F16 QN_DTYPE_F16
#define I32 QN_DTYPE_I32

static const double bound = 1e-6;
static const qn_dtype blocks[] = {QN_DTYPE_Q4_0, QN_DTYPE_Q8_0, QN_DTYPE_Q4_K, QN_DTYPE_Q6_K};

static void block_types_are_read(void **state) {
    NEED_DEVICE(state);
    for (int d = 0; d < 4; d++) {
        help_case rows = {.op = QN_OP_get_rows, .n_src = 2, .bound = 1e-12};
        rows.src[0] = (help_item){blocks[d], 3, {2, 7, 512}, DENSE, -1, 1, 0};
        rows.src[1] = (help_item){I32, 2, {2, 5}, DENSE, 0, 7, 0};
        help_compare(BENCH(state), &rows);
        for (int v = 0; v < 3; v++) {
            help_case c = {.op = QN_OP_mul_mat, .n_src = 2, .bound = bound};
            c.src[0] = (help_item){blocks[d], 4, {1, v == 2 ? 2 : 1, v ? 70 : 3, 512}, DENSE, -1, 1, 0};
            c.src[1] = (help_item){F32, 4, {1, v == 2 ? 4 : 1, v ? 5 : 67, 512}, v == 1 ? PADDED : DENSE, -1, 1, 0};
            help_compare(BENCH(state), &c);
        }
        qn_attr_linear at = qn_attr_linear_default();
        at.transpose_w = 1;
        at.act = QN_UNARY_silu;
        help_case l = {.op = QN_OP_linear, .attr = &at, .n_src = 3, .bound = bound};
        l.src[0] = (help_item){F32, 3, {2, 3, 256}, DENSE, -1, 1, 0};
        l.src[1] = (help_item){blocks[d], 2, {33, 256}, DENSE, -1, 1, 0};
        l.src[2] = (help_item){F32, 1, {33}, DENSE, -1, 1, 0};
        help_compare(BENCH(state), &l);
    }
}

static void rotary_tables_agree(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 12; v++) {
        qn_attr_rope_table at = qn_attr_rope_table_default();
        qn_attr_rope_table_back back = qn_attr_rope_table_back_default();
        int joined = v % 4 == 3;
        at.interleaved = back.interleaved = v % 2;
        at.n_rot = back.n_rot = v % 3 == 1 ? 12 : 0;
        at.head_dim = back.head_dim = joined ? 16 : 0;
        help_case c = {.op = v < 6 ? QN_OP_rope_table : QN_OP_rope_table_back,
                       .attr = v < 6 ? (void *)&at : (void *)&back,
                       .n_src = 4,
                       .bound = bound};
        qn_dtype d = v == 4 ? F16 : F32;
        c.src[0] = (help_item){d, joined ? 3 : 4, {2, 5, joined ? 48 : 3, 16}, v == 2 ? PADDED : DENSE, -1, 1, 0};
        for (int i = 1; i < 3; i++) c.src[i] = (help_item){F32, 2, {9, at.n_rot ? 6 : 8}, v == 5 ? PADDED : DENSE, -1, 1, 0};
        c.src[3] = (help_item){v % 2 ? I32 : QN_DTYPE_NONE, v > 8 ? 2 : 1, {v > 8 ? 2 : 5, 5}, DENSE, 0, 9, 0};
        if (v == 8) c.n_state = 1;
        help_compare(BENCH(state), &c);
    }
}

static void gates_gradients_agree(void **state) {
    NEED_DEVICE(state);
    for (int sub = 0; sub < QN_GLU_COUNT; sub++)
        for (int v = 0; v < 4; v++) {
            qn_attr_glu_back at = qn_attr_glu_back_default();
            qn_dtype d = v == 3 ? F16 : F32;
            at.swapped = v == 1;
            help_case c = {.op = QN_OP_glu_back, .subop = sub, .attr = &at, .n_src = v < 2 ? 2 : 3, .bound = bound};
            c.src[0] = (help_item){d, 3, {2, 5, 13}, v == 2 ? TURNED : DENSE, -2, 2, 0};
            c.src[1] = (help_item){d, 3, {2, 5, v < 2 ? 26 : 13}, v == 1 ? PADDED : DENSE, -8, 8, 0};
            c.src[2] = (help_item){d, 3, {2, 5, 13}, DENSE, -8, 8, 0};
            help_compare(BENCH(state), &c);
        }
}

static void running_sums_agree(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 12; v++) {
        qn_attr_scan at = qn_attr_scan_default();
        qn_attr_cumsum sum = qn_attr_cumsum_default();
        int product = v % 3 == 2;
        at.axis = v % 4 - 2;
        at.reverse = sum.reverse = v / 2 % 2;
        at.exclusive = sum.exclusive = v / 4 % 2;
        help_case c = {.op = QN_OP_scan, .subop = product, .attr = &at, .n_src = 1, .bound = bound};
        c.src[0] = (help_item){F32, 3, {5, v % 2 ? 300 : 7, 11}, (help_layout)(v % 4), product ? 0.99 : -1, product ? 1.01 : 1,
                               0};
        help_compare(BENCH(state), &c);
        c.op = QN_OP_cumsum;
        c.subop = 0;
        c.attr = &sum;
        c.src[0].shape[2] = 700;
        c.src[0].shape[1] = 3;
        help_compare(BENCH(state), &c);
    }
}

static void outer_products_agree(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 6; v++) {
        qn_dtype d = v == 4 ? F16 : F32;
        help_case c = {.op = QN_OP_out_prod, .n_src = 2, .bound = bound, .dst_layout = v == 5 ? PADDED : DENSE};
        c.src[0] = (help_item){d, 4, {v == 3 ? 3 : 1, v > 1 ? 2 : 1, v ? 70 : 1, 33}, (help_layout)(v % 3), -1, 1, 0};
        c.src[1] = (help_item){d, 4, {v == 3 ? 3 : 1, v > 1 ? 4 : 1, v ? 70 : 1, v == 1 ? 5 : 67}, v == 2 ? TURNED : DENSE, -1,
                               1, 0};
        help_compare(BENCH(state), &c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(block_types_are_read), cmocka_unit_test(rotary_tables_agree),  cmocka_unit_test(gates_gradients_agree),
        cmocka_unit_test(running_sums_agree),   cmocka_unit_test(outer_products_agree),
    };
    return cmocka_run_group_tests(tests, open_group, close_group);
}
