/* Every kernel of the Vulkan device against the reference, on odd, strided and broadcast shapes, with not one message of the
 * validation layer where it is installed. Where there is no device it says so and passes. */
#include "vulkan_help.h"

#define F32 QN_DTYPE_F32
#define F16 QN_DTYPE_F16
#define BF16 QN_DTYPE_BF16
#define I32 QN_DTYPE_I32

static const double elementwise = 1e-7, halves = 1e-6, bfloats = 1e-4, heavy = 1e-6;
static double bound_of(qn_dtype d) { return d == F32 ? elementwise : d == F16 ? halves : bfloats; }

/* ---- Kernels */

static const struct {
    int rank;
    int64_t a[QN_MAX_RANK], b[QN_MAX_RANK];
} tilings[] = {
    {1, {7}, {7}},
    {3, {5, 3, 7}, {5, 3, 7}},
    {3, {5, 3, 7}, {1, 3, 7}},
    {3, {5, 3, 7}, {1, 1, 1}},
    {3, {5, 3, 7}, {5, 1, 7}},
    {3, {5, 3, 7}, {5, 3, 1}},
    {3, {4, 6, 8}, {2, 3, 4}},
    {8, {2, 1, 3, 1, 2, 2, 1, 3}, {2, 1, 3, 1, 2, 2, 1, 3}},
    {3, {5, 0, 7}, {5, 0, 7}},
    {2, {130, 257}, {1, 257}},
};

static void binary_agrees(void **state) {
    NEED_DEVICE(state);
    static const int ops[] = {QN_OP_add, QN_OP_sub, QN_OP_mul, QN_OP_div};
    static const qn_dtype pairs[][2] = {{F32, F32}, {F16, F16}, {F16, F32}, {BF16, BF16}};
    for (size_t o = 0; o < 4; o++)
        for (size_t s = 0; s < sizeof tilings / sizeof *tilings; s++)
            for (int d = 0; d < 4; d++) {
                help_case c = {.op = ops[o], .n_src = 2, .bound = bound_of(pairs[d][0]), .dst_layout = (help_layout)(s % 3)};
                for (int i = 0; i < 2; i++) {
                    c.src[i] = (help_item){pairs[d][i], tilings[s].rank, {0}, (help_layout)((s + (size_t)(d + i)) % 4), -2, 2, 0};
                    if (tilings[s].rank == 8) c.src[i].layout = c.dst_layout = DENSE; /* padding every axis leaves more than 4 */
                    memcpy(c.src[i].shape, i ? tilings[s].b : tilings[s].a, sizeof c.src[i].shape);
                }
                if (ops[o] == QN_OP_div) c.src[1].low = 0.5;
                help_compare(BENCH(state), &c);
            }
}

static void one_argument(help_bench *b, int op, int subop, const void *attr, double low, double high) {
    static const qn_dtype dtypes[] = {F32, F16, BF16};
    for (int d = 0; d < 3; d++)
        for (int v = 0; v < 3; v++) {
            help_case c = {.op = op,
                           .subop = subop,
                           .attr = attr,
                           .n_src = 1,
                           .bound = bound_of(dtypes[d]),
                           .dst_layout = v == 1 ? TURNED : DENSE};
            c.src[0] = (help_item){dtypes[d], 3, {3, 5, 17}, (help_layout)v, low, high, 0};
            if (v == 2) c.src[0].odd = 1; /* NaN, Inf and their kin */
            help_compare(b, &c);
        }
}

static void unary_agrees(void **state) {
    NEED_DEVICE(state);
    qn_attr_unary at = qn_attr_unary_default();
    at.alpha_n = 0.8f;
    at.alpha_p = 0.7f;
    at.beta = 0.5f;
    at.eps = -1e-6f;
    for (int sub = 0; sub < QN_UNARY_COUNT; sub++) one_argument(BENCH(state), QN_OP_unary, sub, &at, -5, 5);
}

static void maps_agree(void **state) {
    NEED_DEVICE(state);
    help_bench *b = BENCH(state);
    qn_attr_scale scale = qn_attr_scale_default();
    qn_attr_clamp clamp = qn_attr_clamp_default();
    qn_attr_leaky_relu leaky = qn_attr_leaky_relu_default();
    qn_attr_fill fill = qn_attr_fill_default();
    scale.s = -1.5f;
    scale.b = 0.25f;
    clamp.min = -0.5f;
    clamp.max = 1;
    leaky.slope = 0.1f;
    fill.c = 3.5f;
    one_argument(b, QN_OP_sqr, 0, NULL, -3, 3);
    one_argument(b, QN_OP_sqrt, 0, NULL, 0, 9);
    one_argument(b, QN_OP_log, 0, NULL, 0.01, 9);
    one_argument(b, QN_OP_sin, 0, NULL, -50, 50);
    one_argument(b, QN_OP_cos, 0, NULL, -5000, 5000);
    one_argument(b, QN_OP_cos, 0, NULL, -20000, 20000);
    one_argument(b, QN_OP_sin, 0, NULL, -1e7, 1e7);
    one_argument(b, QN_OP_cos, 0, NULL, -3e38, 3e38);
    one_argument(b, QN_OP_scale, 0, &scale, -3, 3);
    one_argument(b, QN_OP_clamp, 0, &clamp, -3, 3);
    one_argument(b, QN_OP_leaky_relu, 0, &leaky, -3, 3);
    one_argument(b, QN_OP_fill, 0, &fill, -3, 3);
}

static void copies_arrive_bit_for_bit(void **state) {
    NEED_DEVICE(state);
    static const qn_dtype dtypes[] = {F32, F16, BF16, I32, QN_DTYPE_F64, QN_DTYPE_I64, QN_DTYPE_I16};
    for (int from = 0; from < 7; from++)
        for (int to = 0; to < 7; to++) {
            if (from != to && (from > 3 || to > 3 || (dtypes[from] == I32 && dtypes[to] == BF16))) continue;
            for (int v = 0; v < 8; v++) {
                help_case c = {.op = QN_OP_cpy, .n_src = 2, .dst_layout = (help_layout)(v / 2 % 3)};
                c.src[0] = (help_item){dtypes[from], 3, {4, 6, 11}, (help_layout)(v % 4), -1e5, 1e5, v & 1};
                c.src[1] = (help_item){dtypes[to], 2, {12, 22}, DENSE, 0, 1, 0};
                if (v >= 4) c.src[0].low = -1, c.src[0].high = 1;
                help_compare(BENCH(state), &c);
            }
        }
    qn_attr_cont shape = qn_attr_cont_default();
    shape.shape = (qn_dims){4, 0, {5, 1, 3, 14}};
    help_case cont = {.op = QN_OP_cont, .attr = &shape, .n_src = 1, .src = {{F16, 3, {6, 5, 7}, TURNED, -1, 1, 0}}};
    help_compare(BENCH(state), &cont);
    help_case dup = {.op = QN_OP_dup, .n_src = 1, .src = {{I32, 8, {2, 1, 2, 3, 1, 2, 1, 5}, TURNED, -1e9, 1e9, 0}}};
    help_compare(BENCH(state), &dup);
    qn_attr_cast cast = qn_attr_cast_default();
    cast.dtype = F16;
    help_case narrow = {.op = QN_OP_cast, .attr = &cast, .n_src = 1, .src = {{F32, 2, {9, 33}, DENSE, -1, 1, 1}}};
    help_compare(BENCH(state), &narrow);
}

static void rows_agree(void **state) {
    NEED_DEVICE(state);
    static const int ops[] = {QN_OP_sum_rows, QN_OP_mean, QN_OP_sum, QN_OP_norm, QN_OP_rms_norm, QN_OP_l2_norm, QN_OP_soft_max};
    static const int64_t shapes[][4] = {{1, 1, 1, 1}, {2, 3, 2, 5}, {1, 2, 3, 256}, {3, 1, 5, 257}, {1, 1, 2, 1999}};
    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++)
        for (int s = 0; s < 5; s++)
            for (int v = 0; v < 4; v++) {
                qn_dtype d = v == 3 ? F16 : v == 1 ? BF16 : F32;
                help_case c = {.op = ops[o], .n_src = 1, .bound = bound_of(d) > heavy ? bound_of(d) : heavy};
                if (d == F32 && ops[o] != QN_OP_soft_max) c.bound = elementwise;
                if (ops[o] != QN_OP_sum) c.dst_layout = (help_layout)(v % 3);
                c.src[0] = (help_item){d, 4, {0}, (help_layout)v, -2, 3, 0};
                memcpy(c.src[0].shape, shapes[s], sizeof shapes[s]);
                help_compare(BENCH(state), &c);
            }
    help_case none = {.op = QN_OP_sum_rows, .n_src = 1, .bound = 0, .src = {{F32, 2, {3, 0}, DENSE, 0, 1, 0}}};
    help_compare(BENCH(state), &none);
    none.op = QN_OP_sum;
    help_compare(BENCH(state), &none);
}

/* Squares that f32 does not hold, and rows of nearly one number. */
static void norms_of_rows_of_any_size_agree(void **state) {
    NEED_DEVICE(state);
    static const int ops[] = {QN_OP_norm, QN_OP_rms_norm, QN_OP_l2_norm};
    static const double ranges[][2] = {{-1e30, 1e30}, {-3e38, 3e38}, {-1e-30, 1e-30}, {1000, 1000.002}};
    for (int o = 0; o < 3; o++)
        for (int r = 0; r < 4; r++)
            for (int v = 0; v < 2; v++) {
                qn_attr_norm at = qn_attr_norm_default();
                at.eps = r < 2 ? 0.1f : 0;
                help_case c = {.op = ops[o], .attr = &at, .n_src = 1, .bound = heavy, .dst_layout = v ? PADDED : DENSE};
                c.src[0] = (help_item){F32, 2, {3, v ? 700 : 50}, DENSE, ranges[r][0], ranges[r][1], 0};
                help_compare(BENCH(state), &c);
            }
}

static void soft_max_with_mask_agrees(void **state) {
    NEED_DEVICE(state);
    qn_attr_soft_max at = qn_attr_soft_max_default();
    for (int v = 0; v < 6; v++) {
        at.scale = v % 2 ? 0.3f : 1;
        at.max_bias = v >= 2 ? 8 : 0;
        help_case c = {.op = QN_OP_soft_max, .attr = &at, .n_src = 2, .bound = heavy, .dst_layout = v == 4 ? PADDED : DENSE};
        c.src[0] = (help_item){F32, 4, {2, 6, 3, 37}, v == 3 ? TURNED : DENSE, -4, 4, 0};
        c.src[1] = (help_item){
            v % 3 ? F16 : F32, 4, {1, v == 5 ? 3 : 1, 5, 37}, DENSE, -2, 2, v == 4 ? 1 : v == 2 ? 2 : v == 3 ? 3 : 0};
        help_compare(BENCH(state), &c);
    }
}

static void get_rows_agrees(void **state) {
    NEED_DEVICE(state);
    static const qn_dtype dtypes[] = {F32, F16, BF16, I32};
    for (int d = 0; d < 4; d++)
        for (int v = 0; v < 4; v++) {
            help_case c = {.op = QN_OP_get_rows, .n_src = 2, .dst_layout = v == 2 ? PADDED : DENSE};
            c.src[0] = (help_item){dtypes[d], 3, {2, 9, 31}, (help_layout)v, -100, 100, 0};
            c.src[1] = (help_item){I32, 2, {2, 5}, v == 1 ? PADDED : DENSE, 0, 9, 0};
            help_compare(BENCH(state), &c);
        }
}

static void mul_mat_agrees(void **state) {
    NEED_DEVICE(state);
    static const int64_t sizes[][3] = {{1, 1, 1}, {5, 3, 7}, {64, 64, 16}, {65, 130, 33}, {3, 200, 100}, {7, 9, 0}};
    static const qn_dtype pairs[][2] = {{F32, F32}, {F16, F32}, {F16, F16}, {BF16, F32}};
    for (int s = 0; s < 6; s++)
        for (int d = 0; d < 4; d++)
            for (int batched = 0; batched < 2; batched++) {
                int64_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
                help_case c = {.op = QN_OP_mul_mat, .n_src = 2, .bound = heavy, .dst_layout = batched ? PADDED : DENSE};
                c.src[0] = (help_item){pairs[d][0], 4, {1, batched ? 2 : 1, m, k}, batched ? PADDED : DENSE, -1, 1, 0};
                c.src[1] = (help_item){pairs[d][1], 4, {batched ? 3 : 1, batched ? 4 : 1, n, k}, batched ? TURNED : DENSE, -1,
                                       1,           0};
                if ((n * k > 5000 || m * n > 8000) && batched) continue; /* keeps it inside the arena */
                help_compare(BENCH(state), &c);
            }
}

static void matmul_agrees(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 8; v++) {
        qn_attr_matmul at = qn_attr_matmul_default();
        at.transpose_a = v & 1;
        at.transpose_b = v >> 1 & 1;
        int64_t m = 37, n = 70, k = 19;
        help_case c = {.op = QN_OP_matmul, .attr = &at, .n_src = 2, .bound = heavy, .dst_layout = v == 4 ? TURNED : DENSE};
        c.src[0] = (help_item){
            F32, 4, {v > 3 ? 2 : 1, 3, at.transpose_a ? k : m, at.transpose_a ? m : k}, v > 5 ? TURNED : DENSE, -1, 1, 0};
        c.src[1] = (help_item){
            F32, 3, {v > 3 ? 1 : 3, at.transpose_b ? n : k, at.transpose_b ? k : n}, v == 5 ? PADDED : DENSE, -1, 1, 0};
        help_compare(BENCH(state), &c);
    }
}

static void arith_broadcasts_both_ways(void **state) {
    NEED_DEVICE(state);
    for (int sub = QN_ARITH_add; sub <= QN_ARITH_min; sub++)
        for (int v = 0; v < 3; v++) {
            help_case c = {
                .op = QN_OP_arith, .subop = sub, .n_src = 2, .bound = elementwise, .dst_layout = v == 1 ? PADDED : DENSE};
            c.src[0] = (help_item){F32, 4, {3, 1, 5, 1}, v == 1 ? TURNED : DENSE, -2, 2, v == 2 && sub >= QN_ARITH_max};
            c.src[1] = (help_item){F32, 3, {4, 1, 7}, DENSE, 0.5, 2, 0};
            help_compare(BENCH(state), &c);
        }
}

static void powers_of_odd_numbers_agree(void **state) {
    NEED_DEVICE(state);
    help_case c = {.op = QN_OP_arith, .subop = QN_ARITH_pow, .n_src = 2, .bound = elementwise};
    c.src[0] = (help_item){F32, 2, {4, HELP_ODD}, DENSE, 0, 0, 1};
    c.src[1] = (help_item){F32, 2, {4, 1}, DENSE, -2, 2, 0};
    help_compare(BENCH(state), &c);
}

static void attention_agrees(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 10; v++) {
        qn_attr_flash_attn_ext at = qn_attr_flash_attn_ext_default();
        at.scale = 0.3f;
        at.max_bias = v == 3 ? 8 : 0;
        at.logit_softcap = v == 4 ? 2 : 0;
        int64_t keys = v == 5 ? 300 : v == 9 ? 513 : 21, d = v == 6 ? 300 : 16;
        help_case c = {.op = QN_OP_flash_attn_ext, .attr = &at, .n_src = v == 7 ? 5 : v ? 4 : 3, .bound = heavy};
        c.src[0] = (help_item){F32, 4, {2, 6, 5, 16}, v == 2 ? TURNED : DENSE, -2, 2, 0};
        c.src[1] = (help_item){v % 2 ? F16 : F32, 4, {2, v < 4 ? 2 : 3, keys, 16}, v == 8 ? PADDED : DENSE, -2, 2, 0};
        c.src[2] = (help_item){v % 3 ? F16 : F32, 4, {2, v < 4 ? 2 : 3, keys, d}, v == 8 ? TURNED : DENSE, -2, 2, 0};
        if (v)
            c.src[3] = (help_item){F16, 4, {1, v == 2 ? 6 : 1, 7, keys}, DENSE, -2, 2, v == 1 ? 2 : v == 8 ? 3 : v == 9 ? 2 : 0};
        if (v == 7) c.src[4] = (help_item){F32, 1, {6}, DENSE, -1, 1, 0};
        help_compare(BENCH(state), &c);
    }
}

static void rope_agrees(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 12; v++) {
        qn_attr_rope at = qn_attr_rope_default();
        at.n_dims = v % 3 == 0 ? 32 : 20;
        at.mode = v % 2 ? 2 : 0;
        at.n_offs = v % 3 == 2 ? 4 : 0;
        at.freq_scale = v > 6 ? 0.25f : 1;
        at.attn_factor = v > 4 ? 1.2f : 1;
        qn_dtype d = v % 4 == 3 ? F16 : F32;
        help_case c = {.op = v >= 6 ? QN_OP_rope_back : QN_OP_rope,
                       .attr = &at,
                       .n_src = 2,
                       .bound = heavy,
                       .dst_layout = v == 5 ? PADDED : DENSE};
        c.src[0] = (help_item){d, 4, {2, 5, 3, 32}, v == 4 ? TURNED : DENSE, -2, 2, 0};
        c.src[1] = (help_item){I32, 1, {5}, DENSE, -9, v > 8 ? 1e6 : 100, 0};
        help_compare(BENCH(state), &c);
    }
}

static void glu_agrees(void **state) {
    NEED_DEVICE(state);
    qn_attr_glu at = qn_attr_glu_default();
    for (int sub = 0; sub < QN_GLU_COUNT; sub++)
        for (int v = 0; v < 4; v++) {
            at.swapped = v == 1;
            qn_dtype d = v == 3 ? F16 : F32;
            help_case c = {.op = QN_OP_glu,
                           .subop = sub,
                           .attr = &at,
                           .n_src = v < 2 ? 1 : 2,
                           .bound = bound_of(d),
                           .dst_layout = v == 2 ? TURNED : DENSE};
            c.src[0] = (help_item){d, 3, {2, 5, v < 2 ? 27 : 13}, v == 1 ? TURNED : v == 2 ? PADDED : DENSE, -8, 8, 0};
            c.src[1] = (help_item){d, 3, {2, 5, 13}, DENSE, -8, 8, 0};
            help_compare(BENCH(state), &c);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(binary_agrees),
        cmocka_unit_test(unary_agrees),
        cmocka_unit_test(maps_agree),
        cmocka_unit_test(copies_arrive_bit_for_bit),
        cmocka_unit_test(rows_agree),
        cmocka_unit_test(soft_max_with_mask_agrees),
        cmocka_unit_test(get_rows_agrees),
        cmocka_unit_test(mul_mat_agrees),
        cmocka_unit_test(matmul_agrees),
        cmocka_unit_test(arith_broadcasts_both_ways),
        cmocka_unit_test(attention_agrees),
        cmocka_unit_test(rope_agrees),
        cmocka_unit_test(powers_of_odd_numbers_agree),
        cmocka_unit_test(glu_agrees),
        cmocka_unit_test(norms_of_rows_of_any_size_agree),
    };
    return cmocka_run_group_tests(tests, open_group, close_group);
}
