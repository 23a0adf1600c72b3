/* Runs of a plan: other extents, lent params, packed weights, cancelling, the first bad value, times, threads, and nothing allocated. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <quern/quern.h>

#include "cmocka_setup.h"
#include "run/plan_impl.h"

static void set(qn_plan *p, const char *name, int rank, const int64_t *shape, float *data) {
    qn_tensor t;
    qn_error e;
    size_t n = 4;
    for (int i = 0; i < rank; i++) n *= (size_t)shape[i];
    assert_int_equal(qn_tensor_init(&t, QN_DTYPE_F32, rank, shape, data, n), QN_OK);
    if (qn_plan_set(p, name, &t, &e) != QN_OK) fail_msg("%s", e.text);
}

static const float *output(const qn_plan *p, const char *name) {
    qn_tensor t;
    qn_error e;
    assert_int_equal(qn_plan_output(p, name, &t, &e), QN_OK);
    return (const float *)(const void *)((const char *)t.data + t.offset);
}

/* y = x w^T for x [n, 8], w [m, 8], and the sum of y. */
static qn_graph *product(int64_t n, int64_t m) {
    qn_graph *g;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    int64_t rows = n ? n : qn_graph_symbol(g, "n", 1, 64, 1);
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 2, (int64_t[]){rows, 8});
    qn_val w = qn_graph_param(g, "w", QN_DTYPE_F32, 2, (int64_t[]){m, 8});
    qn_val y = qn_graph_op(g, QN_OP_mul_mat, 0, 2, (qn_val[]){w, x}, NULL);
    assert_int_equal(qn_graph_output(g, y, "y"), QN_OK);
    assert_int_equal(qn_graph_output(g, qn_graph_op(g, QN_OP_sum, 0, 1, &y, NULL), "sum"), QN_OK);
    return g;
}

static void fill(float *data, int n, int step) {
    for (int i = 0; i < n; i++) data[i] = (float)(i * step % 13) / 8 - 0.7f;
}

static void inputs_with_other_extents_specialise_the_plan(void **state) {
    (void)state;
    qn_graph *g = product(0, 5);
    qn_plan *p;
    qn_error e;
    float x[64 * 8], w[5 * 8];
    fill(x, 64 * 8, 5);
    fill(w, 5 * 8, 3);
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
    set(p, "w", 2, (int64_t[]){5, 8}, w);
    static const int64_t extents[] = {64, 3, 17, 3, 64, 1};
    const void *arena = NULL, *rows = NULL;
    for (size_t i = 0; i < sizeof extents / sizeof *extents; i++) {
        set(p, "x", 2, (int64_t[]){extents[i], 8}, x);
        assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
        qn_tensor y;
        assert_int_equal(qn_plan_output(p, "y", &y, &e), QN_OK);
        assert_int_equal(y.shape[0], extents[i]);
        if (i == 0) arena = p->memory, rows = qn_plan_leaf_find(p, "x")->memory;
        assert_ptr_equal(p->memory, arena); /* what the whole bucket needed serves its prefixes */
        assert_ptr_equal(qn_plan_leaf_find(p, "x")->memory, rows);
        float want = 0;
        for (int k = 0; k < 8; k++) want += x[(extents[i] - 1) * 8 + k] * w[4 * 8 + k];
        assert_true(fabsf(output(p, "y")[extents[i] * 5 - 1] - want) < 1e-5f);
    }
    int specials = 0;
    for (int i = 0; i < QN_PLAN_SPECIALS; i++) specials += p->specials[i] != NULL;
    assert_int_equal(specials, 4); /* 64, 3, 17 and 1: the second 3 and 64 were found */
    qn_tensor t;
    qn_tensor_init(&t, QN_DTYPE_F32, 2, (int64_t[]){65, 8}, x, sizeof x);
    assert_int_equal(qn_plan_set(p, "x", &t, &e), QN_INVALID);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* x [2 n] and y [n]: what x is set to does not make n anything, but it must agree. */
static qn_graph *doubled(void) {
    qn_graph *g;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    int64_t n = qn_graph_symbol(g, "n", 1, 64, 1), twice = qn_graph_dim(g, '*', 2, n);
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 1, &twice), y = qn_graph_input(g, "y", QN_DTYPE_F32, 1, &n);
    assert_int_equal(qn_graph_output(g, qn_graph_op(g, QN_OP_sqr, 0, 1, &x, NULL), "xx"), QN_OK);
    assert_int_equal(qn_graph_output(g, qn_graph_op(g, QN_OP_sqr, 0, 1, &y, NULL), "yy"), QN_OK);
    return g;
}

static void extents_that_are_expressions_must_agree(void **state) {
    (void)state;
    qn_graph *g = doubled();
    qn_plan *p;
    qn_error e;
    float x[128] = {1, 2, 3, 4, 5, 6};
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
    set(p, "x", 1, (int64_t[]){5}, x);
    set(p, "y", 1, (int64_t[]){64}, x); /* which n was from the beginning */
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_INVALID);
    assert_string_equal(e.text, "'x': axis 0 was set with extent 5, the other inputs make it 128");
    set(p, "x", 1, (int64_t[]){6}, x);
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_INVALID);
    set(p, "y", 1, (int64_t[]){3}, x);
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
    assert_true(output(p, "xx")[5] == 36 && output(p, "yy")[2] == 9);
    set(p, "x", 1, (int64_t[]){4}, x);
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_INVALID);
    set(p, "x", 1, (int64_t[]){6}, x);
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static void a_call_that_fails_leaves_the_extents_alone(void **state) {
    (void)state;
    qn_graph *g = doubled();
    qn_plan *p;
    qn_error e;
    qn_tensor t;
    float x[128] = {1, 2, 3, 4, 5, 6};
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
    set(p, "x", 1, (int64_t[]){6}, x);
    set(p, "y", 1, (int64_t[]){3}, x);
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
    assert_int_equal(qn_tensor_init(&t, QN_DTYPE_F32, 1, (int64_t[]){5}, x, sizeof x), QN_OK);
    assert_int_equal(qn_plan_lend(p, "y", &t, &e), QN_INVALID); /* it is an input */
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
    assert_true(output(p, "yy")[2] == 9);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static void inputs_that_disagree_on_a_symbol_are_named(void **state) {
    (void)state;
    qn_graph *g;
    qn_plan *p;
    qn_error e;
    float data[16] = {0};
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    int64_t n = qn_graph_symbol(g, "n", 1, 8, 1), twice = qn_graph_dim(g, '*', 2, n);
    qn_val a = qn_graph_input(g, "a", QN_DTYPE_F32, 1, &n), b = qn_graph_input(g, "b", QN_DTYPE_F32, 1, &twice);
    qn_graph_output(g, qn_graph_op(g, QN_OP_sum, 0, 1, &a, NULL), "sa");
    qn_graph_output(g, qn_graph_op(g, QN_OP_sum, 0, 1, &b, NULL), "sb");
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
    set(p, "a", 1, (int64_t[]){3}, data);
    set(p, "b", 1, (int64_t[]){8}, data);
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_INVALID);
    assert_non_null(strstr(e.text, "'b': axis 0 was set with extent 8"));
    set(p, "b", 1, (int64_t[]){6}, data);
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* Lent and copied params give the same bits, also after the weight is packed, and a new weight is packed anew. */
static void lent_params_are_read_where_they_are(void **state) {
    (void)state;
    enum { N = 24, M = 96 };
    qn_graph *g = product(N, M);
    qn_plan *p, *q;
    qn_error e;
    float x[N * 8], w[M * 8], other[M * 8];
    qn_tensor t;
    fill(x, N * 8, 5);
    fill(w, M * 8, 3);
    fill(other, M * 8, 7);
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
    assert_int_equal(qn_plan_create(g, NULL, &q, &e), QN_OK);
    set(p, "x", 2, (int64_t[]){N, 8}, x);
    set(q, "x", 2, (int64_t[]){N, 8}, x);
    float *const weights[] = {w, other, w};
    for (int i = 0; i < 3; i++) {
        set(p, "w", 2, (int64_t[]){M, 8}, weights[i]);
        qn_tensor_init(&t, QN_DTYPE_F32, 2, (int64_t[]){M, 8}, weights[i], sizeof w);
        assert_int_equal(qn_plan_lend(q, "w", &t, &e), QN_OK);
        assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
        assert_int_equal(qn_plan_run(q, NULL, &e), QN_OK);
        assert_memory_equal(output(p, "y"), output(q, "y"), sizeof(float) * N * M);
    }
    qn_tensor_init(&t, QN_DTYPE_F32, 2, (int64_t[]){N, 8}, x, sizeof x);
    assert_int_equal(qn_plan_lend(q, "x", &t, &e), QN_INVALID); /* an input */
    qn_plan_destroy(p);
    qn_plan_destroy(q);
    qn_graph_destroy(g);
}

/* A weight that meets few rows is not packed before the second run, and the bits do not tell; one that was set anew waits again. */
static void packing_waits_for_the_second_run(void **state) {
    (void)state;
    enum { N = 3, M = 96 };
    qn_graph *g = product(N, M);
    qn_plan *p;
    qn_error e;
    float x[N * 8], w[M * 8], first[N * M];
    fill(x, N * 8, 5);
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
    set(p, "x", 2, (int64_t[]){N, 8}, x);
    for (int i = 0; i < 2; i++) {
        fill(w, M * 8, 3 + 4 * i);
        set(p, "w", 2, (int64_t[]){M, 8}, w);
        for (int run = 0; run < 3; run++) {
            assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
            if (run == 0) memcpy(first, output(p, "y"), sizeof first);
            assert_memory_equal(first, output(p, "y"), sizeof first);
            for (size_t k = 0; k < p->packs.n; k++) assert_int_equal(p->packs.at[k].fresh, run > 0);
            assert_int_equal(p->memory_ready, run > 0 || p->packs.n == 0);
        }
    }
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* ---- Convolutions: packed by either op, or not packed, they give the same bits; what is not finite stays where it belongs */

enum { CHANNELS = 64, SIDE = 14, IMAGE = CHANNELS * SIDE * SIDE, KERNEL = CHANNELS * CHANNELS * 9 };
static const int64_t image[] = {1, CHANNELS, SIDE, SIDE}, kernel[] = {CHANNELS, CHANNELS, 3, 3};
static float image_data[IMAGE], kernel_data[KERNEL];

static void planned_convolution(int seeds, float *y) {
    qn_attr_conv general = qn_attr_conv_default();
    qn_attr_conv_2d seed = qn_attr_conv_2d_default();
    qn_graph *g;
    qn_plan *p;
    qn_error e;
    general.padding = (qn_dims){.rank = 2, .d = {1, 1}};
    seed.p0 = seed.p1 = 1;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 4, image), w = qn_graph_param(g, "w", QN_DTYPE_F32, 4, kernel);
    qn_val v = seeds ? qn_graph_op(g, QN_OP_conv_2d, 0, 2, (qn_val[]){w, x}, &seed)
                     : qn_graph_op(g, QN_OP_conv, 0, 2, (qn_val[]){x, w}, &general);
    assert_int_equal(qn_graph_output(g, v, "y"), QN_OK);
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
    set(p, "x", 4, image, image_data);
    set(p, "w", 4, kernel, kernel_data);
    for (int again = 0; again < 2; again++) assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
    memcpy(y, output(p, "y"), IMAGE * sizeof *y);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static void dispatched_convolution(uint32_t flags, float *y) {
    static _Alignas(64) char workspace[1 << 24];
    qn_attr_conv at = qn_attr_conv_default();
    qn_tensor x, w, to;
    qn_context *context;
    qn_result r;
    at.padding = (qn_dims){.rank = 2, .d = {1, 1}};
    assert_int_equal(qn_context_create(&(qn_context_options){.size = sizeof(qn_context_options), .flags = flags}, &context),
                     QN_OK);
    qn_tensor_init(&x, QN_DTYPE_F32, 4, image, image_data, sizeof image_data);
    qn_tensor_init(&w, QN_DTYPE_F32, 4, kernel, kernel_data, sizeof kernel_data);
    qn_tensor_init(&to, QN_DTYPE_F32, 4, image, y, IMAGE * sizeof *y);
    qn_request q = {.size = sizeof q,
                    .version = QN_REQUEST_VERSION,
                    .op = QN_OP_conv,
                    .n_src = 2,
                    .n_dst = 1,
                    .src = {&x, &w},
                    .dst = {&to},
                    .attr = &at,
                    .workspace = workspace,
                    .workspace_size = sizeof workspace};
    assert_int_equal(qn_dispatch(context, &q, &r), QN_OK);
    qn_context_destroy(context);
}

static void convolutions_agree_however_they_are_run(void **state) {
    (void)state;
    static float packed[IMAGE], other[IMAGE], exact[IMAGE];
    for (int odd = 0; odd < 2; odd++) {
        fill(image_data, IMAGE, 5);
        fill(kernel_data, KERNEL, 3);
        if (odd) image_data[3 * SIDE + 3] = NAN, image_data[SIDE * SIDE + 9 * SIDE + 10] = INFINITY;
        planned_convolution(0, packed);
        planned_convolution(1, other);
        assert_memory_equal(packed, other, sizeof packed);
        dispatched_convolution(0, other);
        assert_memory_equal(packed, other, sizeof packed);
        dispatched_convolution(QN_CONTEXT_REFERENCE, exact);
        for (int i = 0; i < IMAGE; i++)
            assert_true(isfinite(exact[i]) ? fabsf(packed[i] - exact[i]) < 1e-3f : !isfinite(packed[i]));
    }
}

/* ---- Cancelling */

typedef struct stopper {
    qn_plan *plan;
    _Atomic int stop;
} stopper;

static void *keep_cancelling(void *arg) {
    stopper *s = arg;
    while (!atomic_load(&s->stop)) qn_plan_cancel(s->plan);
    return NULL;
}

static void cancel_stops_a_run_and_the_next_one_works(void **state) {
    (void)state;
    qn_graph *g = product(4, 3);
    qn_plan *p;
    qn_error e;
    float x[32], w[24];
    fill(x, 32, 5);
    fill(w, 24, 3);
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
    set(p, "x", 2, (int64_t[]){4, 8}, x);
    set(p, "w", 2, (int64_t[]){3, 8}, w);
    stopper s = {p, 0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, keep_cancelling, &s), 0);
    int cancelled = 0;
    for (int i = 0; i < 1000000 && !cancelled; i++) cancelled = qn_plan_run(p, NULL, &e) == QN_CANCELLED;
    atomic_store(&s.stop, 1);
    pthread_join(thread, NULL);
    assert_true(cancelled);
    assert_non_null(strstr(e.text, "cancelled before node"));
    qn_plan_run(p, NULL, &e); /* the last request to stop may still be waiting */
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static void a_search_that_is_cancelled_leaves_no_request_behind(void **state) {
    (void)state;
    qn_graph *g = product(4, 3);
    qn_plan *p;
    qn_error e;
    qn_plan_bad bad = {.size = sizeof bad};
    float x[32] = {0}, w[24] = {0};
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
    set(p, "x", 2, (int64_t[]){4, 8}, x);
    set(p, "w", 2, (int64_t[]){3, 8}, w);
    qn_plan_cancel(p);
    assert_int_equal(qn_plan_find_bad(p, NULL, &bad, &e), QN_CANCELLED);
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* ---- Memory that is updated */

/* c holds what x holds, or a number twice over: what is added to it must not be added to anything else. */
static void a_copy_that_is_written_over_stays_a_copy(void **state) {
    (void)state;
    static const char *const copies[] = {
        "%c = cont %x\n",
        "%c = scale %x {s=1}\n",
        "%n = unary.neg %x\n%c = unary.neg %n\n",
        "%n = reshape %x {shape=(2, 2)}\n%d = cont %n\n%c = reshape %d {shape=(4)}\n",
        "const %o f32[4] = 1, 2, 3, 4\n%c = sqrt %o\n",
        "%c = sqr %x\n%d = sqr %x\noutput %d \"d\"\n",
    };
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        char text[400];
        float x[4] = {1, 2, 3, 4}, more[4] = {10, 10, 10, 10}, want[4];
        snprintf(text, sizeof text,
                 "quern graph 1\ninput %%x f32[4]\ninput %%g f32[4]\n%s%%s = accumulate %%c %%g\noutput %%s \"s\"\n", copies[i]);
        qn_plan_options plain = {.size = sizeof plain, .flags = QN_PLAN_NO_PASSES};
        for (int passes = 0; passes < 2; passes++) {
            qn_graph *g;
            qn_plan *p;
            qn_error e;
            if (qn_graph_parse(text, strlen(text), 0, &g, &e) != QN_OK) fail_msg("%s", e.text);
            if (qn_plan_create(g, passes ? NULL : &plain, &p, &e) != QN_OK) fail_msg("%s%s", text, e.text);
            set(p, "x", 1, (int64_t[]){4}, x);
            set(p, "g", 1, (int64_t[]){4}, more);
            for (int run = 0; run < 3; run++) {
                assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
                if (!passes && !run) memcpy(want, output(p, "s"), sizeof want);
                assert_memory_equal(output(p, "s"), want, sizeof want);
            }
            qn_plan_destroy(p);
            qn_graph_destroy(g);
        }
    }
}

/* ---- Looking */

static void first_bad_value_is_found_where_it_arises(void **state) {
    (void)state;
    qn_graph *g;
    qn_plan *p;
    qn_error e;
    int64_t n = 4;
    float x[4] = {1, 2, 0, 4};
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val a = qn_graph_input(g, "x", QN_DTYPE_F32, 1, &n);
    qn_val fine = qn_graph_op(g, QN_OP_sqr, 0, 1, &a, NULL);
    qn_val logs = qn_graph_op(g, QN_OP_log, 0, 1, &fine, NULL);
    qn_val less = qn_graph_op(g, QN_OP_sub, 0, 2, (qn_val[]){logs, logs}, NULL);
    qn_graph_output(g, less, "y");
    qn_plan_options o = {.size = sizeof o, .flags = QN_PLAN_NO_PASSES};
    assert_int_equal(qn_plan_create(g, &o, &p, &e), QN_OK);
    set(p, "x", 1, &n, x);
    qn_plan_bad bad = {.size = sizeof bad};
    assert_int_equal(qn_plan_find_bad(p, NULL, &bad, &e), QN_OK);
    assert_int_equal(bad.node, 1);
    assert_int_equal(bad.input, -1);
    assert_int_equal(bad.n_infinite, 1);
    assert_int_equal(bad.n_nan, 0);
    assert_int_equal(bad.first, 2);
    x[2] = 3;
    set(p, "x", 1, &n, x);
    assert_int_equal(qn_plan_find_bad(p, NULL, &bad, &e), QN_OK);
    assert_int_equal(bad.node, -1);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static void steps_say_where_they_run_and_what_they_cost(void **state) {
    (void)state;
    qn_graph *g = product(4, 3);
    qn_plan *p;
    qn_error e;
    float x[32], w[24];
    fill(x, 32, 5);
    fill(w, 24, 3);
    qn_plan_options o = {.size = sizeof o, .flags = QN_PLAN_TIMED | QN_PLAN_REFERENCE | QN_PLAN_NO_PASSES};
    assert_int_equal(qn_plan_create(g, &o, &p, &e), QN_OK);
    set(p, "x", 2, (int64_t[]){4, 8}, x);
    set(p, "w", 2, (int64_t[]){3, 8}, w);
    for (int i = 0; i < 5; i++) assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
    qn_plan_step_info s = {.size = sizeof s};
    assert_int_equal(qn_plan_step_describe(p, 0, &s), QN_OK);
    assert_string_equal(s.place, "cpu");
    assert_string_equal(s.how, "reference");
    assert_string_equal(s.kernel, "mul_mat");
    assert_string_equal(s.reason, "");
    assert_int_equal(s.runs, 5);
    assert_true(s.nanoseconds > 0);
    assert_true(s.flops == 2.0 * 4 * 3 * 8);
    assert_int_equal(qn_plan_step_describe(p, 2, &s), QN_ARGUMENT);
    float part[2];
    assert_int_equal(qn_plan_read(p, "y", 4, part, sizeof part, &e), QN_OK);
    assert_memory_equal(part, output(p, "y") + 1, sizeof part);
    assert_int_equal(qn_plan_read(p, "y", 44, part, sizeof part, &e), QN_INVALID);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* ---- Threads */

static void bits_do_not_depend_on_threads(void **state) {
    (void)state;
    enum { N = 64, M = 700 };
    qn_graph *g = product(N, M);
    qn_plan *p;
    qn_error e;
    float x[N * 8], w[M * 8];
    fill(x, N * 8, 5);
    fill(w, M * 8, 3);
    assert_int_equal(qn_plan_create(g, NULL, &p, &e), QN_OK);
    set(p, "x", 2, (int64_t[]){N, 8}, x);
    set(p, "w", 2, (int64_t[]){M, 8}, w);
    float *first = malloc(sizeof(float) * N * M);
    assert_non_null(first);
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_OK);
    memcpy(first, output(p, "y"), sizeof(float) * N * M);
    static const int threads[] = {1, 2, 3, 7};
    for (int i = 0; i < 4; i++) {
        qn_pool *pool;
        qn_context *c;
        assert_int_equal(qn_pool_create(threads[i], &pool), QN_OK);
        assert_int_equal(qn_context_create(&(qn_context_options){.size = sizeof(qn_context_options), .pool = pool}, &c), QN_OK);
        for (int k = 0; k < 20; k++) {
            assert_int_equal(qn_plan_run(p, c, &e), QN_OK);
            assert_memory_equal(first, output(p, "y"), sizeof(float) * N * M);
        }
        qn_context_destroy(c);
        qn_pool_destroy(pool);
    }
    free(first);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_with_other_extents_specialise_the_plan),
        cmocka_unit_test(extents_that_are_expressions_must_agree),
        cmocka_unit_test(a_call_that_fails_leaves_the_extents_alone),
        cmocka_unit_test(inputs_that_disagree_on_a_symbol_are_named),
        cmocka_unit_test(lent_params_are_read_where_they_are),
        cmocka_unit_test(packing_waits_for_the_second_run),
        cmocka_unit_test(convolutions_agree_however_they_are_run),
        cmocka_unit_test(cancel_stops_a_run_and_the_next_one_works),
        cmocka_unit_test(a_search_that_is_cancelled_leaves_no_request_behind),
        cmocka_unit_test(a_copy_that_is_written_over_stays_a_copy),
        cmocka_unit_test(first_bad_value_is_found_where_it_arises),
        cmocka_unit_test(steps_say_where_they_run_and_what_they_cost),
        cmocka_unit_test(bits_do_not_depend_on_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
