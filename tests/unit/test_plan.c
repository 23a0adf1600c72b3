/* Plans: results equal op-by-op dispatch, memory is shared and bounded, state is updated in place, bad input is a sentence. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quern/plan.h>

#include "cmocka_setup.h"

static void set(qn_plan *p, const char *name, int rank, const int64_t *shape, float *data, size_t bytes) {
    qn_tensor t;
    qn_error e;
    assert_int_equal(qn_tensor_init(&t, QN_DTYPE_F32, rank, shape, data, bytes), QN_OK);
    assert_int_equal(qn_plan_set(p, name, &t, &e), QN_OK);
}

static const float *output(const qn_plan *p, const char *name) {
    qn_tensor t;
    qn_error e;
    assert_int_equal(qn_plan_output(p, name, &t, &e), QN_OK);
    return (const float *)(const void *)((const char *)t.data + t.offset);
}

/* loss = mean over rows of (silu(x w^T))^2, all through transposes and reshapes, with its gradient by w. */
static qn_graph *small_net(qn_val *loss, qn_val *w) {
    qn_graph *g;
    int64_t sx[2] = {3, 4}, sw[2] = {5, 4};
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 2, sx);
    *w = qn_graph_param(g, "w", QN_DTYPE_F32, 2, sw);
    qn_graph_label_push(g, "layer 0");
    qn_val y = qn_graph_op(g, QN_OP_mul_mat, 0, 2, (qn_val[]){*w, x}, NULL);
    qn_val a = qn_graph_op(g, QN_OP_unary, QN_UNARY_silu, 1, &y, NULL);
    qn_graph_label_pop(g);
    qn_val t = qn_graph_op(g, QN_OP_transpose, 0, 1, &a, NULL);
    qn_attr_reshape at = qn_attr_reshape_default();
    at.shape.rank = 1;
    at.shape.d[0] = 15;
    qn_val flat = qn_graph_op(g, QN_OP_reshape, 0, 1, &t, &at); /* of a strided view: the plan must copy */
    qn_val square = qn_graph_op(g, QN_OP_sqr, 0, 1, &flat, NULL);
    *loss = qn_graph_op(g, QN_OP_mean, 0, 1, &square, NULL);
    assert_int_equal(qn_graph_error(g, NULL), QN_OK);
    return g;
}

static float eval_loss(const float *w, const float *x) {
    double sum = 0;
    for (int i = 0; i < 3; i++)
        for (int o = 0; o < 5; o++) {
            double y = 0;
            for (int k = 0; k < 4; k++) y += (double)w[o * 4 + k] * (double)x[i * 4 + k];
            double s = y / (1 + exp(-y));
            sum += s * s;
        }
    return (float)(sum / 15);
}

static void plan_computes_loss_and_gradient(void **state) {
    (void)state;
    qn_val loss, w, dw;
    qn_graph *g = small_net(&loss, &w);
    assert_int_equal(qn_graph_grad(g, loss, 1, &w, &dw), QN_OK);
    assert_int_equal(qn_graph_output(g, loss, "loss"), QN_OK);
    assert_int_equal(qn_graph_output(g, dw, "dw"), QN_OK);
    qn_plan *p;
    qn_error e;
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
    float xs[12], ws[20];
    for (int i = 0; i < 12; i++) xs[i] = (float)(i % 5) / 3 - 0.7f;
    for (int i = 0; i < 20; i++) ws[i] = (float)(i * 7 % 11) / 6 - 0.9f;
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_INVALID);
    assert_non_null(strstr(e.text, "'x' was never set"));
    set(p, "x", 2, (int64_t[]){3, 4}, xs, sizeof xs);
    set(p, "w", 2, (int64_t[]){5, 4}, ws, sizeof ws);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
        assert_true(fabsf(output(p, "loss")[0] - eval_loss(ws, xs)) < 1e-6f);
    }
    const float *grad = output(p, "dw");
    for (int i = 0; i < 20; i++) {
        float keep = ws[i], h = 1e-2f;
        ws[i] = keep + h;
        float up = eval_loss(ws, xs);
        ws[i] = keep - h;
        float down = eval_loss(ws, xs);
        ws[i] = keep;
        assert_true(fabsf((up - down) / (2 * h) - grad[i]) < 2e-3f);
    }
    qn_plan_totals t = {.size = sizeof t};
    assert_int_equal(qn_plan_describe(p, &t), QN_OK);
    assert_true(t.arena_bytes >= t.lower_bound && t.arena_bytes < t.unshared_bytes);
    assert_true(t.n_in_place > 0 && t.n_views > 0 && t.n_copies > 0);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static void cap_is_obeyed_with_the_numbers(void **state) {
    (void)state;
    qn_val loss, w;
    qn_graph *g = small_net(&loss, &w);
    qn_graph_output(g, loss, "loss");
    qn_plan_options o = {.size = sizeof o, .memory_cap = 64};
    qn_plan *p;
    qn_error e;
    assert_int_equal(qn_plan_create(g, &o, &p, &e), QN_NO_MEMORY);
    assert_null(p);
    assert_non_null(strstr(e.text, "the cap is 64"));
    qn_graph_destroy(g);
}

/* A param that will be lent is not counted; setting it instead is held against the cap, and nothing is lost by trying. */
static void lent_params_cost_nothing(void **state) {
    (void)state;
    enum { N = 4096 };
    static float ws[N], xs[N];
    int64_t n = N;
    qn_graph *g;
    qn_plan *p;
    qn_error e;
    qn_tensor t;
    qn_plan_totals before = {.size = sizeof before}, after = {.size = sizeof after};
    for (int i = 0; i < N; i++) ws[i] = (float)i, xs[i] = 1;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val w = qn_graph_param(g, "w", QN_DTYPE_F32, 1, &n), x = qn_graph_input(g, "x", QN_DTYPE_F32, 1, &n);
    qn_graph_output(g, qn_graph_op(g, QN_OP_add, 0, 2, (qn_val[]){w, x}, NULL), "y");
    qn_plan_options o = {.size = sizeof o, .memory_cap = 2 * sizeof ws + 256};
    assert_int_equal(qn_plan_create(g, &o, &p, &e), QN_NO_MEMORY);
    o.flags = QN_PLAN_LEND;
    assert_int_equal(qn_plan_create(g, &o, &p, &e), QN_OK);
    qn_plan_describe(p, &before);
    assert_true(before.host_bytes >= 2 * sizeof ws && before.host_bytes <= o.memory_cap);
    assert_int_equal(qn_tensor_init(&t, QN_DTYPE_F32, 1, &n, ws, sizeof ws), QN_OK);
    assert_int_equal(qn_plan_set(p, "w", &t, &e), QN_NO_MEMORY);
    assert_non_null(strstr(e.text, "'w'"));
    assert_int_equal(qn_plan_lend(p, "w", &t, &e), QN_OK);
    set(p, "x", 1, &n, xs, sizeof xs);
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
    for (int i = 0; i < N; i++) assert_true(output(p, "y")[i] == ws[i] + 1);
    qn_plan_describe(p, &after);
    assert_int_equal(after.host_bytes, before.host_bytes);
    qn_plan_destroy(p);
    o.memory_cap = 0;
    assert_int_equal(qn_plan_create(g, &o, &p, &e), QN_OK);
    set(p, "w", 1, &n, ws, sizeof ws);
    qn_plan_describe(p, &after);
    assert_int_equal(after.host_bytes, before.host_bytes + sizeof ws); /* it was copied, and says so */
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static void run_rows(qn_plan *p, int64_t rows, float *xs, float *first) {
    qn_error e;
    int64_t shape[2] = {rows, 64};
    set(p, "x", 2, shape, xs, (size_t)rows * 64 * sizeof *xs);
    if (qn_plan_run(p, NULL, &e) != QN_OK) fail_msg("%s", e.text);
    memcpy(first, output(p, "y"), 64 * sizeof *first);
}

/* A few rows want the weight in another order than many do, who want more room for results. Neither waits for the other's in a plan
 * without a cap; under one, what the run at hand does not need makes way. */
static void extents_take_turns_under_a_cap(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 1, 256, 1, 1, 256, 256, 2, 2, 1};
    static float ws[64 * 64], xs[256 * 64], free_row[64], capped_row[64];
    int64_t sw[2] = {64, 64};
    qn_graph *g;
    qn_plan *unbounded, *capped;
    qn_error e;
    qn_plan_totals t = {.size = sizeof t};
    for (int i = 0; i < 64 * 64; i++) ws[i] = (float)(i % 37) - 18;
    for (int i = 0; i < 256 * 64; i++) xs[i] = (float)(i % 29) / 7;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    int64_t sx[2] = {qn_graph_symbol(g, "n", 1, 256, 1), 64};
    qn_val w = qn_graph_param(g, "w", QN_DTYPE_F32, 2, sw), x = qn_graph_input(g, "x", QN_DTYPE_F32, 2, sx);
    qn_graph_output(g, qn_graph_op(g, QN_OP_mul_mat, 0, 2, (qn_val[]){w, x}, NULL), "y");
    qn_plan_options o = {.size = sizeof o};
    assert_int_equal(qn_plan_create(g, &o, &unbounded, &e), QN_OK);
    qn_plan_describe(unbounded, &t);
    assert_int_equal(t.held_bytes, 0);
    o.memory_cap = t.host_bytes; /* what most rows need */
    assert_int_equal(qn_plan_create(g, &o, &capped, &e), QN_OK);
    set(unbounded, "w", 2, sw, ws, sizeof ws);
    set(capped, "w", 2, sw, ws, sizeof ws);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        run_rows(unbounded, rows[i], xs, free_row);
        run_rows(capped, rows[i], xs, capped_row);
        assert_memory_equal(free_row, capped_row, sizeof free_row);
        qn_plan_describe(capped, &t);
        if (t.held_bytes > o.memory_cap || t.held_bytes < sizeof ws)
            fail_msg("run %zu holds %llu of %llu bytes", i, (unsigned long long)t.held_bytes, (unsigned long long)o.memory_cap);
    }
    qn_plan_describe(unbounded, &t);
    if (t.packed_bytes) assert_true(t.held_bytes > o.memory_cap);
    assert_true(t.packed_bytes || !t.n_native);
    qn_plan_destroy(unbounded);
    qn_plan_destroy(capped);
    qn_graph_destroy(g);
}

/* Four times 2^62 bytes are not none. */
static void a_cap_is_not_passed_by_overflow(void **state) {
    (void)state;
    qn_graph *g;
    qn_plan *p;
    qn_error e;
    int64_t n = INT64_C(1) << 60, one = 1;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 1, &one);
    for (const char *name = "a\0b\0c\0d\0"; *name; name += 2) qn_graph_input(g, name, QN_DTYPE_F32, 1, &n);
    qn_graph_output(g, x, "y");
    qn_plan_options o = {.size = sizeof o, .memory_cap = 1 << 20};
    assert_int_equal(qn_plan_create(g, &o, &p, &e), QN_NO_MEMORY);
    qn_graph_destroy(g);
}

/* One step of gradient descent: the param's own memory changes, and the next run sees it. */
static void optimiser_updates_params_in_place(void **state) {
    (void)state;
    qn_graph *g;
    int64_t n = 3, two = 2;
    qn_error e;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val w = qn_graph_param(g, "w", QN_DTYPE_F32, 1, &n), h = qn_graph_input(g, "hyper", QN_DTYPE_F32, 1, &two);
    qn_val square = qn_graph_op(g, QN_OP_sqr, 0, 1, &w, NULL), loss = qn_graph_op(g, QN_OP_sum, 0, 1, &square, NULL), dw;
    assert_int_equal(qn_graph_grad(g, loss, 1, &w, &dw), QN_OK);
    qn_val next = qn_graph_op(g, QN_OP_opt_step_sgd, 0, 3, (qn_val[]){w, dw, h}, NULL);
    qn_graph_output(g, next, "w'");
    qn_graph_output(g, loss, "loss");
    qn_plan *p;
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
    float ws[3] = {1, -2, 3}, hyper[2] = {0.25f, 0};
    set(p, "w", 1, &n, ws, sizeof ws);
    set(p, "hyper", 1, &two, hyper, sizeof hyper);
    for (int i = 0; i < 3; i++) assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
    assert_true(fabsf(output(p, "w'")[2] - 3 * 0.125f) < 1e-6f);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static void old_value_of_state_cannot_be_read_later(void **state) {
    (void)state;
    qn_graph *g;
    int64_t n = 3, two = 2;
    qn_error e;
    qn_plan *p;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val w = qn_graph_param(g, "w", QN_DTYPE_F32, 1, &n), h = qn_graph_input(g, "hyper", QN_DTYPE_F32, 1, &two);
    qn_val d = qn_graph_input(g, "d", QN_DTYPE_F32, 1, &n);
    qn_val next = qn_graph_op(g, QN_OP_opt_step_sgd, 0, 3, (qn_val[]){w, d, h}, NULL);
    qn_val late = qn_graph_op(g, QN_OP_sqr, 0, 1, &w, NULL);
    qn_graph_output(g, next, "next");
    qn_graph_output(g, late, "late");
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_INVALID);
    assert_non_null(strstr(e.text, "still reads the old value"));
    qn_graph_destroy(g);
}

/* What a node reads of the memory that it updates is what was there before: rows moved down by one, a matrix plus its transpose. */
static void state_is_read_before_it_is_updated(void **state) {
    (void)state;
    float from[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    static const float moved[9] = {1, 2, 3, 1, 2, 3, 4, 5, 6}, sums[9] = {2, 6, 10, 6, 10, 14, 10, 14, 18};
    int64_t shape[2] = {3, 3}, two = 2;
    int32_t rows[2] = {1, 2};
    for (int flags = 0; flags < 2; flags++) {
        qn_plan_options o = {.size = sizeof o, .flags = flags ? QN_PLAN_NO_PASSES : 0};
        qn_graph *g;
        qn_plan *p;
        qn_error e;
        qn_tensor t;
        assert_int_equal(qn_graph_create(0, &g), QN_OK);
        qn_val a = qn_graph_param(g, "a", QN_DTYPE_F32, 2, shape), b = qn_graph_param(g, "b", QN_DTYPE_F32, 2, shape);
        qn_val i = qn_graph_input(g, "i", QN_DTYPE_I32, 1, &two);
        qn_attr_narrow first = qn_attr_narrow_default();
        first.axis = 0;
        first.length = 2;
        qn_val top = qn_graph_op(g, QN_OP_narrow, 0, 1, &a, &first), turned = qn_graph_op(g, QN_OP_transpose, 0, 1, &b, NULL);
        qn_graph_output(g, qn_graph_op(g, QN_OP_store_rows, 0, 3, (qn_val[]){a, top, i}, NULL), "moved");
        qn_graph_output(g, qn_graph_op(g, QN_OP_accumulate, 0, 2, (qn_val[]){b, turned}, NULL), "sums");
        if (qn_plan_create(g, &o, &p, &e) != QN_OK) fail_msg("%s", e.text);
        set(p, "a", 2, shape, from, sizeof from);
        set(p, "b", 2, shape, from, sizeof from);
        assert_int_equal(qn_tensor_init(&t, QN_DTYPE_I32, 1, &two, rows, sizeof rows), QN_OK);
        assert_int_equal(qn_plan_set(p, "i", &t, &e), QN_OK);
        assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
        assert_memory_equal(output(p, "moved"), moved, sizeof moved);
        assert_memory_equal(output(p, "sums"), sums, sizeof sums);
        qn_plan_destroy(p);
        qn_graph_destroy(g);
    }
}

static void one_memory_is_not_two_states(void **state) {
    (void)state;
    qn_graph *g;
    qn_plan *p;
    qn_error e;
    int64_t n = 3, hyper = 7;
    qn_val out[3];
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val w = qn_graph_param(g, "w", QN_DTYPE_F32, 1, &n), m = qn_graph_param(g, "m", QN_DTYPE_F32, 1, &n);
    qn_val d = qn_graph_input(g, "d", QN_DTYPE_F32, 1, &n), h = qn_graph_input(g, "h", QN_DTYPE_F32, 1, &hyper);
    assert_int_equal(qn_graph_apply(g, QN_OP_opt_step_adamw, 0, 5, (qn_val[]){w, m, m, d, h}, NULL, 3, out), QN_OK);
    qn_graph_output(g, out[0], "w'");
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_INVALID);
    assert_non_null(strstr(e.text, "opt_step_adamw: m and v are the same memory, and both are updated in place"));
    qn_graph_destroy(g);
}

static void state_is_fed_back_from_run_to_run(void **state) {
    (void)state;
    qn_graph *g;
    int64_t n = 2;
    qn_error e;
    qn_plan *p;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val x = qn_graph_input(g, "state", QN_DTYPE_F32, 1, &n);
    qn_attr_scale at = qn_attr_scale_default();
    at.s = 2;
    qn_val y = qn_graph_op(g, QN_OP_scale, 0, 1, &x, &at);
    qn_graph_output(g, y, "next");
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
    assert_int_equal(qn_plan_feed(p, "nope", "state", &e), QN_INVALID);
    assert_int_equal(qn_plan_feed(p, "next", "state", &e), QN_OK);
    float one[2] = {1, -1};
    set(p, "state", 1, &n, one, sizeof one);
    for (int i = 0; i < 5; i++) assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
    assert_true(output(p, "next")[0] == 32 && output(p, "next")[1] == -32);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* a and b become b and a + b, in whichever order that is said. */
static void fed_inputs_may_be_outputs(void **state) {
    (void)state;
    for (int order = 0; order < 2; order++) {
        qn_graph *g;
        qn_plan *p;
        qn_error e;
        int64_t one = 1;
        float first[1] = {1};
        assert_int_equal(qn_graph_create(0, &g), QN_OK);
        qn_val a = qn_graph_input(g, "a", QN_DTYPE_F32, 1, &one), b = qn_graph_input(g, "b", QN_DTYPE_F32, 1, &one);
        qn_graph_output(g, qn_graph_op(g, QN_OP_add, 0, 2, (qn_val[]){a, b}, NULL), "sum");
        qn_graph_output(g, a, "a");
        qn_graph_output(g, b, "b");
        assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
        set(p, "a", 1, &one, first, sizeof first);
        set(p, "b", 1, &one, first, sizeof first);
        assert_int_equal(order ? qn_plan_feed(p, "b", "a", &e) : qn_plan_feed(p, "sum", "b", &e), QN_OK);
        assert_int_equal(order ? qn_plan_feed(p, "sum", "b", &e) : qn_plan_feed(p, "b", "a", &e), QN_OK);
        for (int i = 0; i < 6; i++) assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
        assert_true(output(p, "sum")[0] == 21);
        qn_plan_destroy(p);
        qn_graph_destroy(g);
    }
}

/* Neither could go first: what lies in one would be written over by the other. */
static void states_cannot_be_fed_in_a_circle(void **state) {
    (void)state;
    qn_graph *g;
    qn_plan *p;
    qn_error e;
    int64_t one = 1;
    float first[1] = {1};
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val a = qn_graph_input(g, "a", QN_DTYPE_F32, 1, &one), b = qn_graph_input(g, "b", QN_DTYPE_F32, 1, &one);
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 1, &one);
    qn_graph_output(g, qn_graph_op(g, QN_OP_accumulate, 0, 2, (qn_val[]){a, x}, NULL), "a_next");
    qn_graph_output(g, qn_graph_op(g, QN_OP_accumulate, 0, 2, (qn_val[]){b, x}, NULL), "b_next");
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
    assert_int_equal(qn_plan_feed(p, "a_next", "b", &e), QN_OK);
    assert_int_equal(qn_plan_feed(p, "b_next", "a", &e), QN_INVALID);
    assert_string_equal(e.text,
                        "output 'a_next' lies in an input that is fed, and inputs that are updated in place cannot be fed "
                        "to each other in a circle");
    set(p, "a", 1, &one, first, sizeof first);
    set(p, "b", 1, &one, first, sizeof first);
    set(p, "x", 1, &one, first, sizeof first);
    for (int i = 0; i < 3; i++) assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK); /* the feed that was there before is */
    assert_true(output(p, "a_next")[0] == 4);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* Passes see through copies, and layouts come after them: an output is dense all the same, and can be fed. */
static void an_output_that_is_a_strided_view_has_a_copy(void **state) {
    (void)state;
    for (uint32_t flags = 0; flags <= QN_PLAN_NO_PASSES; flags++) {
        qn_graph *g;
        qn_plan *p;
        qn_error e;
        qn_plan_options o = {.size = sizeof o, .flags = flags};
        qn_plan_totals t = {.size = sizeof t};
        int64_t square[2] = {2, 2};
        float x[4] = {1, 2, 3, 4}, want[4] = {4, 8, 12, 16}, got[4] = {0};
        assert_int_equal(qn_graph_create(0, &g), QN_OK);
        qn_val a = qn_graph_input(g, "a", QN_DTYPE_F32, 2, square);
        qn_val twice = qn_graph_op(g, QN_OP_add, 0, 2, (qn_val[]){a, a}, NULL);
        qn_val turned = qn_graph_op(g, QN_OP_transpose, 0, 1, &twice, NULL);
        qn_graph_output(g, qn_graph_op(g, QN_OP_cont, 0, 1, &turned, NULL), "turned");
        qn_graph_output(g, turned, "view");
        assert_int_equal(qn_plan_create(g, &o, &p, &e), QN_OK);
        assert_int_equal(qn_plan_feed(p, "turned", "a", &e), QN_OK);
        set(p, "a", 2, square, x, sizeof x);
        for (int i = 0; i < 2; i++) assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
        assert_memory_equal(output(p, "view"), want, sizeof want);
        assert_int_equal(qn_plan_read(p, "turned", 0, got, sizeof got, &e), QN_OK);
        assert_memory_equal(got, want, sizeof want);
        qn_plan_describe(p, &t);
        assert_true(t.n_copies >= 1);
        qn_plan_destroy(p);
        qn_graph_destroy(g);
    }
}

static void a_feed_of_other_extents_is_refused(void **state) {
    (void)state;
    qn_graph *g;
    qn_plan *p;
    qn_error e;
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    int64_t n = qn_graph_symbol(g, "n", 1, 8, 1), m = qn_graph_symbol(g, "m", 1, 8, 1), three = 3, five = 5;
    qn_val a = qn_graph_input(g, "a", QN_DTYPE_F32, 1, &n), b = qn_graph_input(g, "b", QN_DTYPE_F32, 1, &m);
    qn_graph_output(g, qn_graph_op(g, QN_OP_sqr, 0, 1, &a, NULL), "c");
    qn_graph_output(g, qn_graph_op(g, QN_OP_sqr, 0, 1, &b, NULL), "d");
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
    assert_int_equal(qn_plan_feed(p, "c", "b", &e), QN_OK);
    set(p, "a", 1, &three, x, 3 * sizeof *x);
    set(p, "b", 1, &five, x, 5 * sizeof *x);
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_INVALID);
    assert_string_equal(e.text, "output 'c' and input 'b' have not the same dense shape and dtype");
    set(p, "b", 1, &three, x, 3 * sizeof *x);
    for (int i = 0; i < 2; i++) assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
    assert_true(output(p, "d")[2] == 81);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static void bad_index_is_found_before_it_is_used(void **state) {
    (void)state;
    qn_graph *g;
    int64_t table[2] = {4, 3}, n = 2;
    qn_error e;
    qn_plan *p;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val a = qn_graph_param(g, "table", QN_DTYPE_F32, 2, table), i = qn_graph_input(g, "idx", QN_DTYPE_I32, 1, &n);
    qn_val y = qn_graph_op(g, QN_OP_get_rows, 0, 2, (qn_val[]){a, i}, NULL);
    qn_graph_output(g, y, "rows");
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
    float data[12] = {0};
    int32_t idx[2] = {1, 4};
    qn_tensor t;
    set(p, "table", 2, table, data, sizeof data);
    qn_tensor_init(&t, QN_DTYPE_I32, 1, &n, idx, sizeof idx);
    assert_int_equal(qn_plan_set(p, "idx", &t, &e), QN_OK);
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_RANGE);
    assert_non_null(strstr(e.text, "index number 1 is 4"));
    assert_int_equal(qn_plan_set(p, "table", &t, &e), QN_INVALID);
    assert_int_equal(qn_plan_set(p, "nobody", &t, &e), QN_INVALID);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static void symbols_are_bound_when_planning(void **state) {
    (void)state;
    qn_graph *g;
    qn_error e;
    qn_plan *p;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    int64_t batch = qn_graph_symbol(g, "batch", 1, 8, 1), shape[2] = {batch, 3};
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 2, shape), y = qn_graph_op(g, QN_OP_sum_rows, 0, 1, &x, NULL);
    qn_graph_output(g, y, "y");
    int64_t two = 2, nine = 9, bound[2] = {2, 3};
    qn_plan_options o = {.size = sizeof o, .symbols = &nine};
    assert_int_equal(qn_plan_create(g, &o, &p, &e), QN_INVALID);
    assert_non_null(strstr(e.text, "'batch' is 9"));
    o.symbols = &two;
    assert_int_equal(qn_plan_create(g, &o, &p, &e), QN_OK);
    float xs[6] = {1, 2, 3, 4, 5, 6};
    set(p, "x", 2, bound, xs, sizeof xs);
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
    assert_true(output(p, "y")[0] == 6 && output(p, "y")[1] == 15);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* With a recorder attached every step is an event under its label; the file is what the analyser reads. */
static void recorded_run_leaves_an_event_per_step(void **state) {
    (void)state;
    char folder[] = "quern-plan-XXXXXX";
    qn_val loss, w;
    qn_error e;
    qn_plan *p;
    qn_context *context;
    qn_recorder *recorder;
    const char *path;
    assert_non_null(mkdtemp(folder));
    qn_graph *g = small_net(&loss, &w);
    qn_graph_output(g, loss, "loss");
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
    float xs[12] = {0}, ws[20] = {0};
    set(p, "x", 2, (int64_t[]){3, 4}, xs, sizeof xs);
    set(p, "w", 2, (int64_t[]){5, 4}, ws, sizeof ws);
    qn_recorder_options o = qn_recorder_options_default();
    o.folder = folder;
    assert_int_equal(qn_recorder_create(&o, &recorder, &e), QN_OK);
    assert_int_equal(qn_context_create(NULL, &context), QN_OK);
    assert_int_equal(qn_recorder_attach(recorder, context, "main", &e), QN_OK);
    assert_int_equal(qn_plan_run(p, context, &e), QN_OK);
    assert_int_equal(qn_recorder_write(recorder, &path, &e), QN_OK);
    char text[65536];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = 0;
    qn_plan_totals totals = {.size = sizeof totals};
    assert_int_equal(qn_plan_describe(p, &totals), QN_OK);
    int events = 0;
    for (const char *at = text; (at = strstr(at, "\"quern::")); at++) events++;
    assert_int_equal(events, totals.n_steps);
    assert_non_null(strstr(text, "layer 0"));
    remove(path);
    remove(folder);
    qn_context_destroy(context);
    qn_recorder_destroy(recorder);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_computes_loss_and_gradient),
        cmocka_unit_test(cap_is_obeyed_with_the_numbers),
        cmocka_unit_test(lent_params_cost_nothing),
        cmocka_unit_test(extents_take_turns_under_a_cap),
        cmocka_unit_test(a_cap_is_not_passed_by_overflow),
        cmocka_unit_test(optimiser_updates_params_in_place),
        cmocka_unit_test(old_value_of_state_cannot_be_read_later),
        cmocka_unit_test(state_is_read_before_it_is_updated),
        cmocka_unit_test(one_memory_is_not_two_states),
        cmocka_unit_test(state_is_fed_back_from_run_to_run),
        cmocka_unit_test(fed_inputs_may_be_outputs),
        cmocka_unit_test(states_cannot_be_fed_in_a_circle),
        cmocka_unit_test(an_output_that_is_a_strided_view_has_a_copy),
        cmocka_unit_test(a_feed_of_other_extents_is_refused),
        cmocka_unit_test(bad_index_is_found_before_it_is_used),
        cmocka_unit_test(symbols_are_bound_when_planning),
        cmocka_unit_test(recorded_run_leaves_an_event_per_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
