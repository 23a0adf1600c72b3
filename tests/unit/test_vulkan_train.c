/* Kernels that training needs, against the reference: norms with weights, reductions over any axes, losses, optimiser steps. */
#include "vulkan_help.h"

#define F32 QN_DTYPE_F32
#define F16 QN_DTYPE_F16
#define BF16 QN_DTYPE_BF16

static const double rows_bound = 1e-6;
static double bound_of(qn_dtype d) { return d == BF16 ? 1e-4 : rows_bound; }
static help_item none(void) { return (help_item){.dtype = QN_DTYPE_NONE}; }
static help_item vector(qn_dtype d, int64_t n) { return (help_item){d, 1, {n}, DENSE, 0.5, 1.5, 0}; }

/* ---- Norms */

static void row_norms_agree(void **state) {
    NEED_DEVICE(state);
    static const int64_t shapes[][3] = {{2, 3, 7}, {1, 5, 300}, {3, 40, 65}, {1, 1, 1}};
    for (int s = 0; s < 4; s++)
        for (int v = 0; v < 8; v++) {
            qn_dtype d = v == 3 ? F16 : v == 5 ? BF16 : F32;
            int64_t n = shapes[s][2];
            int centred = v % 2;
            help_case c = {.op = centred ? QN_OP_layer_norm : QN_OP_rms_layer_norm, .n_src = 3, .bound = bound_of(d)};
            c.src[0] = (help_item){d, 3, {shapes[s][0], shapes[s][1], n}, (help_layout)(v % 4), -2, 3, 0};
            c.src[1] = v == 7 ? none() : vector(v == 3 ? F32 : d, n);
            c.src[2] = v == 2 || v == 7 ? none() : vector(d, n);
            if (v > 5) c.n_dst = 1;
            if (v == 4) c.dst_layout = PADDED;
            help_compare(BENCH(state), &c);
        }
}

static void row_norm_gradients_agree(void **state) {
    NEED_DEVICE(state);
    static const int64_t shapes[][3] = {{2, 3, 7}, {1, 5, 300}, {3, 40, 65}};
    for (int s = 0; s < 3; s++)
        for (int v = 0; v < 8; v++) {
            qn_dtype d = v == 3 ? F16 : F32;
            int64_t n = shapes[s][2];
            int centred = v % 2;
            help_case c = {.op = centred ? QN_OP_layer_norm_back : QN_OP_rms_layer_norm_back, .n_src = centred ? 5 : 3};
            c.bound = bound_of(d);
            for (int i = 0; i < 2; i++)
                c.src[i] = (help_item){d, 3, {shapes[s][0], shapes[s][1], n}, (help_layout)((v + i) % 4), -2, 3, 0};
            c.src[2] = v == 7 ? none() : vector(d, n);
            for (int i = 3; i < 5; i++)
                c.src[i] = v == 5 ? (help_item){F32, 3, {shapes[s][0], shapes[s][1], 1}, DENSE, -1, 1, 0} : none();
            if (v >= 6) c.n_dst = 1;
            help_compare(BENCH(state), &c);
        }
}

static void batch_norms_agree(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 8; v++) {
        qn_attr_batch_norm at = qn_attr_batch_norm_default();
        qn_attr_batch_norm_back back = qn_attr_batch_norm_back_default();
        qn_dtype d = v == 6 ? F16 : F32;
        at.training = back.training = v % 2;
        help_case c = {.op = QN_OP_batch_norm, .attr = &at, .n_src = 5, .bound = bound_of(d)};
        c.src[0] = (help_item){d, v > 3 ? 3 : 4, {3, 6, 5, 7}, v == 2 ? TURNED : v == 3 ? PADDED : DENSE, -2, 3, 0};
        for (int i = 1; i < 5; i++) c.src[i] = vector(F32, 6);
        help_compare(BENCH(state), &c);
        help_case g = {.op = QN_OP_batch_norm_back, .attr = &back, .n_src = 5, .n_dst = 3, .bound = bound_of(d)};
        g.src[0] = g.src[1] = c.src[0];
        for (int i = 2; i < 5; i++) g.src[i] = vector(F32, 6);
        help_compare(BENCH(state), &g);
    }
}

static void plain_row_gradients_agree(void **state) {
    NEED_DEVICE(state);
    static const int ops[] = {QN_OP_norm_back, QN_OP_rms_norm_back, QN_OP_l2_norm_back, QN_OP_soft_max_back};
    for (int o = 0; o < 4; o++)
        for (int v = 0; v < 4; v++) {
            qn_dtype d = v == 2 ? F16 : F32;
            help_case c = {.op = ops[o], .n_src = 2, .bound = bound_of(d), .dst_layout = v == 1 ? PADDED : DENSE};
            c.src[0] = (help_item){d, 3, {2, 5, v == 3 ? 300 : 33}, (help_layout)v, -2, 2, 0};
            c.src[1] = (help_item){d, 3, {2, 5, v == 3 ? 300 : 33}, v == 1 ? TURNED : DENSE, 0, 1, 0};
            help_compare(BENCH(state), &c);
        }
}

/* Squares that f32 does not hold, and rows of nearly one number. */
static void norms_of_any_size_agree(void **state) {
    NEED_DEVICE(state);
    static const int forward[] = {QN_OP_layer_norm, QN_OP_rms_layer_norm};
    static const int ops[] = {QN_OP_norm_back, QN_OP_rms_norm_back, QN_OP_l2_norm_back, QN_OP_layer_norm_back,
                              QN_OP_rms_layer_norm_back};
    static const double ranges[][2] = {{-1e30, 1e30}, {-1e18, 1e18}, {1000, 1000.002}};
    for (int r = 0; r < 3; r++) {
        help_item x = {F32, 2, {5, 300}, DENSE, ranges[r][0], ranges[r][1], 0}, g = x;
        g.low = -1e20;
        g.high = 1e20;
        for (int o = 0; o < 2; o++) {
            help_case c = {.op = forward[o], .n_src = 3, .bound = rows_bound, .src = {x, vector(F32, 300), vector(F32, 300)}};
            help_compare(BENCH(state), &c);
        }
        for (int o = 0; o < 5; o++) {
            help_case c = {.op = ops[o], .n_src = o < 3 ? 2 : 3, .bound = rows_bound, .src = {g, x, vector(F32, 300)}};
            help_compare(BENCH(state), &c);
        }
        qn_attr_batch_norm at = qn_attr_batch_norm_default();
        at.training = 1;
        help_case c = {.op = QN_OP_batch_norm, .attr = &at, .n_src = 5, .n_dst = 3, .bound = rows_bound};
        c.src[0] = (help_item){F32, 3, {40, 2, 9}, DENSE, x.low, x.high, 0};
        for (int i = 1; i < 5; i++) c.src[i] = vector(F32, 2);
        help_compare(BENCH(state), &c);
    }
}

/* A gate that is NaN has no slope, and one that is shut none either, whatever goes through it. */
static void gradients_of_gates_keep_nan(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 4; v++) {
        help_case c = {.op = QN_OP_glu_back, .subop = v < 2 ? QN_GLU_reglu : QN_GLU_swiglu_oai, .n_src = 3, .bound = 1e-7};
        for (int i = 0; i < 3; i++) c.src[i] = (help_item){F32, 2, {3, 33}, DENSE, -2, 2, i == 1 + v % 2};
        help_compare(BENCH(state), &c);
    }
}

/* ---- Reductions */

static void reductions_agree(void **state) {
    NEED_DEVICE(state);
    static const struct {
        int n, axis[3];
    } sets[] = {{0, {0}}, {1, {0}}, {1, {1}}, {1, {-1}}, {2, {0, 2}}, {2, {1, 3}}, {3, {0, 2, 3}}, {1, {2}}};
    for (int f = 0; f < QN_REDUCE_COUNT; f++)
        for (int s = 0; s < 8; s++)
            for (int v = 0; v < 3; v++) {
                qn_attr_reduce at = qn_attr_reduce_default();
                qn_attr_reduce_back back = qn_attr_reduce_back_default();
                at.keep = back.keep = v == 1;
                at.axes.rank = back.axes.rank = sets[s].n;
                for (int i = 0; i < sets[s].n; i++) at.axes.d[i] = back.axes.d[i] = sets[s].axis[i];
                qn_dtype d = v == 2 ? F16 : F32;
                int odd = f == QN_REDUCE_max || f == QN_REDUCE_min ? v != 0 : 0;
                help_case c = {.op = QN_OP_reduce, .subop = f, .attr = &at, .n_src = 1, .bound = bound_of(d)};
                c.src[0] = (help_item){d, 4, {3, 4, 5, 17}, (help_layout)(v + s % 2), 0.9, 1.1, odd};
                help_compare(BENCH(state), &c);
                if (f == QN_REDUCE_prod) continue;
                qn_tensor t[HELP_ALL];
                memset(t, 0, sizeof t);
                help_tensors(BENCH(state), &c, t);
                help_case g = {.op = QN_OP_reduce_back, .subop = f, .attr = &back, .n_src = 2, .bound = bound_of(d)};
                g.src[1] = c.src[0];
                g.src[0] = (help_item){d, t[HELP_ITEMS].rank, {0}, DENSE, -1, 1, 0};
                memcpy(g.src[0].shape, t[HELP_ITEMS].shape, sizeof g.src[0].shape);
                help_compare(BENCH(state), &g);
            }
}

static void long_reductions_agree(void **state) {
    NEED_DEVICE(state);
    for (int f = 0; f < QN_REDUCE_COUNT; f++) {
        qn_attr_reduce at = qn_attr_reduce_default();
        at.axes = (qn_dims){2, 0, {0, 2}};
        help_case c = {.op = QN_OP_reduce, .subop = f, .attr = &at, .n_src = 1, .bound = rows_bound};
        c.src[0] = (help_item){F32, 3, {31, 6, 97}, DENSE, 0.999, 1.001, 0};
        help_compare(BENCH(state), &c);
    }
}

/* Half of the numbers multiply to what no float holds, the other half take it back. */
static void products_may_be_large_on_the_way(void **state) {
    NEED_DEVICE(state);
    float x[256], y = 0;
    int64_t n = 256, one = 1;
    qn_tensor from, to;
    qn_error e = {QN_OK, ""};
    for (int i = 0; i < 256; i++) x[i] = i % 2 ? 0.125f : 8.0f;
    assert_int_equal(qn_tensor_init(&from, F32, 1, &n, QN_AT(0), sizeof x), QN_OK);
    assert_int_equal(qn_tensor_init(&to, F32, 1, &one, QN_AT(1024), sizeof y), QN_OK);
    qn_attr_reduce at = qn_attr_reduce_default();
    at.keep = 1;
    qn_device_step step = {
        .op = QN_OP_reduce, .subop = QN_REDUCE_prod, .attr = &at, .n_src = 1, .n_dst = 1, .src = {&from}, .dst = {&to}};
    qn_device_range in = {0, sizeof x}, out = {1024, sizeof y};
    qn_program_options o = {
        .arena_bytes = 2048, .n_steps = 1, .steps = &step, .n_inputs = 1, .n_outputs = 1, .inputs = &in, .outputs = &out};
    qn_program *p = NULL;
    help_expect(qn_program_create(BENCH(state)->device, &o, &p, &e), QN_OK, &e);
    const void *input = x;
    void *output = &y;
    help_expect(qn_program_run(p, &input, &output, help_patience, &e), QN_OK, &e);
    qn_program_destroy(p);
    assert_true(y == 1);
}

static void indices_of_extrema_agree(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 12; v++) {
        qn_attr_arg_reduce at = qn_attr_arg_reduce_default();
        at.axis = v % 3 - 1;
        at.keep = v % 2;
        help_case c = {.op = QN_OP_arg_reduce, .subop = v % 4 > 1, .attr = &at, .n_src = 1, .bound = 0};
        c.src[0] = (help_item){v % 3 ? F32 : F16, 3, {5, 6, v > 5 ? 300 : 7}, (help_layout)(v % 4), -4, 4, v > 8};
        help_compare(BENCH(state), &c);
    }
    help_case c = {.op = QN_OP_argmax, .n_src = 1, .bound = 0, .src = {{F32, 2, {9, 301}, PADDED, -1, 1, 1}}};
    help_compare(BENCH(state), &c);
}

static void softmax_of_any_axis_agrees(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 12; v++) {
        qn_attr_softmax at = qn_attr_softmax_default();
        qn_attr_softmax_back back = qn_attr_softmax_back_default();
        at.axis = back.axis = v % 4 - 2;
        qn_dtype d = v == 5 ? F16 : F32;
        help_case c = {.op = QN_OP_softmax, .attr = &at, .n_src = 1, .bound = bound_of(d), .dst_layout = (help_layout)(v % 3)};
        c.src[0] = (help_item){d, 4, {3, 4, 37, 5}, (help_layout)(v % 4), -4, 4, v == 8 ? 2 : v == 9 ? 3 : 0};
        help_compare(BENCH(state), &c);
        help_case g = {.op = QN_OP_softmax_back, .attr = &back, .n_src = 2, .bound = bound_of(d)};
        g.src[0] = g.src[1] = c.src[0];
        g.src[1].low = 0;
        g.src[0].odd = g.src[1].odd = 0;
        help_compare(BENCH(state), &g);
    }
}

/* ---- Training */

static void losses_agree(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 7; v++) { /* 5: masked logits, which have no label; 6: logits far from 0 */
        int64_t rows = v == 3 ? 1 : 19, n = v == 2 ? 700 : 10;
        help_case c = {.op = QN_OP_cross_entropy_loss, .n_src = 2, .bound = rows_bound};
        c.src[0] = (help_item){
            F32, 3, {v == 4 ? 3 : 1, rows, n}, v == 1 ? PADDED : DENSE, v == 6 ? 99994 : -6, v == 6 ? 100006 : 6, v == 5 ? 2 : 0};
        c.src[1] = (help_item){F32, 3, {v == 4 ? 3 : 1, rows, n}, v == 1 ? TURNED : DENSE, 0, v == 5 ? 0 : 0.3, 0};
        help_compare(BENCH(state), &c);
        help_case g = {.op = QN_OP_cross_entropy_loss_back, .n_src = 3, .bound = rows_bound};
        g.src[0] = vector(F32, 1);
        g.src[1] = c.src[0];
        g.src[2] = c.src[1];
        help_compare(BENCH(state), &g);
    }
}

static void optimiser_steps_agree(void **state) {
    NEED_DEVICE(state);
    for (int v = 0; v < 3; v++) {
        help_layout layout = v == 1 ? PADDED : v == 2 ? TURNED : DENSE;
        help_case c = {.op = QN_OP_opt_step_adamw, .n_src = 5, .n_state = 3, .bound = 1e-7, .flags = QN_TENSOR_PARAM};
        for (int i = 0; i < 4; i++) c.src[i] = (help_item){F32, 2, {17, 33}, layout, i == 2 ? 0 : -1, 1, 0};
        c.src[4] = (help_item){F32, 1, {7}, DENSE, 0.1, 0.9, 0};
        help_compare(BENCH(state), &c);
        help_case s = {.op = QN_OP_opt_step_sgd, .n_src = 3, .n_state = 1, .bound = 1e-7, .flags = QN_TENSOR_PARAM};
        s.src[0] = s.src[1] = c.src[0];
        s.src[2] = (help_item){F32, 1, {2}, DENSE, 0.1, 0.9, 0};
        help_compare(BENCH(state), &s);
        qn_attr_accumulate at = qn_attr_accumulate_default();
        at.scale = 0.25f;
        help_case a = {
            .op = QN_OP_accumulate, .attr = &at, .n_src = v ? 3 : 2, .n_state = 1, .bound = 1e-7, .flags = QN_TENSOR_PARAM};
        a.src[0] = c.src[0];
        a.src[1] = (help_item){v == 2 ? F16 : F32, 2, {17, 33}, layout, -1, 1, 0};
        a.src[2] = (help_item){F32, 1, {1}, DENSE, 0, v == 1 ? 1e-30 : 1, 0};
        help_compare(BENCH(state), &a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_norms_agree),
        cmocka_unit_test(row_norm_gradients_agree),
        cmocka_unit_test(batch_norms_agree),
        cmocka_unit_test(plain_row_gradients_agree),
        cmocka_unit_test(norms_of_any_size_agree),
        cmocka_unit_test(gradients_of_gates_keep_nan),
        cmocka_unit_test(reductions_agree),
        cmocka_unit_test(long_reductions_agree),
        cmocka_unit_test(products_may_be_large_on_the_way),
        cmocka_unit_test(indices_of_extrema_agree),
        cmocka_unit_test(softmax_of_any_axis_agrees),
        cmocka_unit_test(losses_agree),
        cmocka_unit_test(optimiser_steps_agree),
    };
    return cmocka_run_group_tests(tests, open_group, close_group);
}
