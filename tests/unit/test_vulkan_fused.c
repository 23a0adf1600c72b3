/* Fused ops on the Vulkan device, which runs them as the kernels of their parts. */
#include "vulkan_help.h"

#define F32 QN_DTYPE_F32
#define F16 QN_DTYPE_F16

static const double bound = 1e-6;
static help_item none(void) { return (help_item){.dtype = QN_DTYPE_NONE}; }
static help_item matrix(qn_dtype d, int64_t rows, int64_t columns, help_layout layout) {
    return (help_item){d, 2, {rows, columns}, layout, -1, 1, 0};
}
static help_item vector(qn_dtype d, int64_t n) { return (help_item){d, 1, {n}, DENSE, -1, 1, 0}; }

static void linear_agrees(void **state) {
    NEED_DEVICE(state);
    static const int acts[] = {-1, QN_UNARY_relu, QN_UNARY_gelu, QN_UNARY_silu};
    for (int v = 0; v < 12; v++) {
        qn_attr_linear at = qn_attr_linear_default();
        qn_dtype d = v % 4 == 3 ? F16 : F32;
        int64_t k = v % 2 ? 33 : 64, n = v % 3 ? 70 : 5;
        at.transpose_w = v % 2;
        at.act = acts[v % 4];
        help_case c = {.op = QN_OP_linear, .attr = &at, .n_src = 4, .bound = d == F16 ? 1e-5 : bound};
        c.src[0] = (help_item){d, v == 5 ? 1 : 3, {3, 11, k}, v == 4 ? PADDED : v == 6 ? TURNED : DENSE, -1, 1, 0};
        if (v == 5) c.src[0].shape[0] = k;
        c.src[1] = at.transpose_w ? matrix(d, n, k, v == 7 ? PADDED : DENSE) : matrix(d, k, n, v == 8 ? TURNED : DENSE);
        c.src[2] = v % 5 == 1 ? none() : vector(v == 3 ? F32 : d, n);
        c.src[3] = v % 3 && v != 5 ? (help_item){d, 3, {3, 11, n}, DENSE, -1, 1, 0} : none();
        c.dst_layout = v == 9 ? PADDED : DENSE;
        help_compare(BENCH(state), &c);
    }
}

static void several_linears_agree(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 4; v++) {
        int64_t k = 40, widths[3] = {24, 8, 9};
        qn_attr_linear_split at = qn_attr_linear_split_default();
        at.transpose_w = v % 2;
        at.act = v == 3 ? QN_UNARY_tanh : -1;
        at.widths = (qn_dims){3, 0, {24, 8, 9}};
        help_case c = {.op = QN_OP_linear_split, .attr = &at, .n_src = 3, .bound = bound};
        c.src[0] = (help_item){F32, 3, {2, 7, k}, v == 1 ? PADDED : DENSE, -1, 1, 0};
        c.src[1] = v % 2 ? matrix(F32, 41, k, DENSE) : matrix(F32, k, 41, DENSE);
        c.src[2] = v == 2 ? none() : vector(F32, 41);
        help_compare(BENCH(state), &c);
        qn_attr_linear_group group = qn_attr_linear_group_default();
        group.transpose_w = v % 2;
        help_case g = {.op = QN_OP_linear_group, .attr = &group, .n_src = 8, .bound = bound};
        g.src[0] = c.src[0];
        for (int i = 0; i < 3; i++) {
            g.src[1 + i] = v % 2 ? matrix(F32, widths[i], k, DENSE) : matrix(F32, k, widths[i], DENSE);
            g.src[5 + i] = v == i ? none() : vector(F32, widths[i]);
        }
        g.src[4] = none();
        help_compare(BENCH(state), &g);
    }
}

static void linear_glu_agrees(void **state) {
    NEED_DEVICE(state);
    for (int sub = 0; sub < QN_GLU_COUNT; sub++) {
        qn_attr_linear_glu at = qn_attr_linear_glu_default();
        qn_dtype d = sub == 2 ? F16 : F32;
        at.transpose_w = 1;
        help_case c = {.op = QN_OP_linear_glu, .subop = sub, .attr = &at, .n_src = 5, .bound = d == F16 ? 1e-5 : bound};
        c.src[0] = (help_item){d, 3, {2, 9, 48}, DENSE, -1, 1, 0};
        for (int i = 1; i < 3; i++) c.src[i] = matrix(d, 37, 48, DENSE);
        for (int i = 3; i < 5; i++) c.src[i] = sub % 3 == i - 3 ? none() : vector(d, 37);
        help_compare(BENCH(state), &c);
    }
}

static void convolution_with_activation_agrees(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 4; v++) {
        qn_attr_conv_act at = qn_attr_conv_act_default();
        at.act = v ? QN_UNARY_relu : -1;
        at.padding = (qn_dims){2, 0, {1, 1}};
        help_case c = {.op = QN_OP_conv_act, .attr = &at, .n_src = 4, .bound = bound};
        c.src[0] = (help_item){F32, 4, {2, 3, 9, 8}, DENSE, -1, 1, 0};
        c.src[1] = (help_item){F32, 4, {5, 3, 3, 3}, DENSE, -1, 1, 0};
        c.src[2] = v % 2 ? vector(F32, 5) : none();
        c.src[3] = v > 1 ? (help_item){F32, 4, {2, 5, 9, 8}, PADDED, -1, 1, 0} : none();
        help_compare(BENCH(state), &c);
    }
}

static void norms_of_sums_agree(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 8; v++) {
        qn_dtype d = v == 3 ? F16 : F32;
        help_case c = {.op = v % 2 ? QN_OP_add_layer_norm : QN_OP_add_rms_norm, .n_src = 4, .bound = d == F16 ? 1e-5 : bound};
        for (int i = 0; i < 2; i++) c.src[i] = (help_item){d, 3, {2, 5, 66}, v == 4 + i ? TURNED : DENSE, -2, 2, 0};
        c.src[2] = v == 2 ? none() : vector(d, 66);
        c.src[3] = v == 2 || v == 5 ? none() : vector(F32, 66);
        c.n_dst = v == 6 ? 1 : 2;
        help_compare(BENCH(state), &c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_agrees),       cmocka_unit_test(several_linears_agree),
        cmocka_unit_test(linear_glu_agrees),   cmocka_unit_test(convolution_with_activation_agrees),
        cmocka_unit_test(norms_of_sums_agree),
    };
    return cmocka_run_group_tests(tests, open_group, close_group);
}
