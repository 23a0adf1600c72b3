/* Plans on a device: the same numbers as on the CPU, what the device cannot run goes to the CPU and says so, state stays there, inputs
 * that did not change are not sent again. Without a device these say so and pass over. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quern/device.h>

#include "cmocka_setup.h"
#include "run/plan_impl.h"
#include "vulkan/vulkan.h"

static qn_device *device;

static int open_once(void **state) {
    qn_error e = {QN_OK, ""};
    (void)state;
    if (qn_vulkan_open(&(qn_vulkan_options){.flags = QN_VULKAN_VALIDATE, .cache = ""}, &device, &e) != QN_OK)
        print_message("no device: %s\n", e.text);
    return 0;
}

static int close_once(void **state) {
    (void)state;
    const char *first = "";
    int n = device ? qn_vulkan_messages(device, NULL, &first) : 0;
    if (n) print_message("%d validation messages, the first: %s\n", n, first);
    qn_device_close(device);
    return n != 0;
}

#define NEED_DEVICE() \
    if (!device) skip()

static void set(qn_plan *p, const char *name, int rank, const int64_t *shape, const float *data) {
    qn_tensor t;
    qn_error e;
    size_t n = 4;
    for (int i = 0; i < rank; i++) n *= (size_t)shape[i];
    assert_int_equal(qn_tensor_init(&t, QN_DTYPE_F32, rank, shape, (void *)(uintptr_t)data, n), QN_OK);
    if (qn_plan_set(p, name, &t, &e) != QN_OK) fail_msg("%s", e.text);
}

static const float *output(const qn_plan *p, const char *name) {
    qn_tensor t;
    qn_error e;
    if (qn_plan_output(p, name, &t, &e) != QN_OK) fail_msg("%s", e.text);
    return (const float *)(const void *)((const char *)t.data + t.offset);
}

static void run(qn_plan *p) {
    qn_error e = {QN_OK, ""};
    if (qn_plan_run(p, NULL, &e) != QN_OK) fail_msg("%s", e.text);
}

static qn_plan *plan_of(const qn_graph *g, qn_device *on, uint32_t flags) {
    qn_plan *p = NULL;
    qn_error e = {QN_OK, ""};
    qn_plan_options o = {.size = sizeof o, .device = on, .flags = flags};
    if (qn_plan_create(g, &o, &p, &e) != QN_OK) fail_msg("%s", e.text);
    return p;
}

static void fill(float *data, int n, int step) {
    for (int i = 0; i < n; i++) data[i] = (float)(i * step % 13) / 8 - 0.7f;
}

/* Two products with an op between them that no device has: a user's own. */
static qn_status double_it(void *user, const qn_tensor *dst, int n_src, const qn_tensor *const *src, int task, int n_tasks) {
    (void)user, (void)n_src, (void)task, (void)n_tasks;
    const float *x = (const float *)(const void *)((const char *)src[0]->data + src[0]->offset);
    float *y = (float *)(void *)((char *)dst->data + dst->offset);
    for (int64_t i = 0; i < qn_tensor_count(dst); i++) y[i] = 2 * x[i];
    return QN_OK;
}

static qn_graph *mixed(void) {
    qn_graph *g;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 2, (int64_t[]){4, 8});
    qn_val w = qn_graph_param(g, "w", QN_DTYPE_F32, 2, (int64_t[]){8, 8});
    qn_val y = qn_graph_op(g, QN_OP_mul_mat, 0, 2, (qn_val[]){w, x}, NULL);
    qn_attr_map_custom1 at = qn_attr_map_custom1_default();
    at.fn = double_it;
    qn_val twice = qn_graph_op(g, QN_OP_map_custom1, 0, 1, &y, &at);
    qn_val z = qn_graph_op(g, QN_OP_mul_mat, 0, 2, (qn_val[]){w, twice}, NULL);
    qn_val s = qn_graph_op(g, QN_OP_soft_max, 0, 1, &z, NULL);
    qn_graph_output(g, s, "s");
    qn_graph_output(g, y, "y");
    qn_error e;
    if (qn_graph_error(g, &e) != QN_OK) fail_msg("%s", e.text);
    return g;
}

static void device_and_cpu_share_a_graph(void **state) {
    (void)state;
    NEED_DEVICE();
    qn_graph *g = mixed();
    qn_plan *on = plan_of(g, device, 0), *off = plan_of(g, NULL, QN_PLAN_REFERENCE);
    float x[32], w[64];
    fill(w, 64, 3);
    set(on, "w", 2, (int64_t[]){8, 8}, w);
    set(off, "w", 2, (int64_t[]){8, 8}, w);
    for (int round = 0; round < 3; round++) {
        fill(x, 32, 5 + round);
        set(on, "x", 2, (int64_t[]){4, 8}, x);
        set(off, "x", 2, (int64_t[]){4, 8}, x);
        run(on);
        run(off);
        for (int i = 0; i < 32; i++) {
            assert_true(fabsf(output(on, "s")[i] - output(off, "s")[i]) < 1e-5f);
            assert_true(fabsf(output(on, "y")[i] - output(off, "y")[i]) < 1e-5f);
        }
    }
    qn_plan_totals t = {.size = sizeof t};
    qn_plan_describe(on, &t);
    assert_int_equal(t.n_segments, 2);
    assert_true(t.device_bytes > 0 && t.n_device >= 3);
    int told = 0;
    for (int32_t i = 0; i < t.n_steps; i++) {
        qn_plan_step_info s = {.size = sizeof s};
        assert_int_equal(qn_plan_step_describe(on, i, &s), QN_OK);
        assert_int_equal(strcmp(s.place, "cpu") == 0, *s.reason != 0); /* whoever is not on the device says why */
        told += *s.reason != 0;
    }
    assert_int_equal(told, 1);
    qn_plan_options strict = {.size = sizeof strict, .device = device, .flags = QN_PLAN_STRICT};
    qn_plan *refused;
    qn_error e;
    assert_int_equal(qn_plan_create(g, &strict, &refused, &e), QN_UNSUPPORTED);
    qn_plan_destroy(on);
    qn_plan_destroy(off);
    qn_graph_destroy(g);
}

static void unchanged_inputs_are_not_sent_again(void **state) {
    (void)state;
    NEED_DEVICE();
    qn_graph *g = mixed();
    qn_plan *p = plan_of(g, device, 0);
    float x[32], w[64];
    fill(x, 32, 5);
    fill(w, 64, 3);
    set(p, "x", 2, (int64_t[]){4, 8}, x);
    set(p, "w", 2, (int64_t[]){8, 8}, w);
    run(p);
    uint64_t first = p->n_uploads;
    run(p);
    uint64_t second = p->n_uploads - first; /* only what the CPU computes in between */
    set(p, "x", 2, (int64_t[]){4, 8}, x);
    run(p);
    assert_int_equal(second, 1);
    assert_int_equal(p->current->segments.at[0].program->n_inputs, 1); /* a param has no room in it, to be sent once */
    assert_int_equal(p->n_uploads - first - second, 2);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* A counter that is fed back and a running sum kept on the device. */
static void fed_state_stays_on_the_device(void **state) {
    (void)state;
    NEED_DEVICE();
    qn_graph *g;
    int64_t n = 6;
    qn_error e;
    float zero[6] = {0}, x[6];
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val s = qn_graph_input(g, "state", QN_DTYPE_F32, 1, &n), a = qn_graph_input(g, "x", QN_DTYPE_F32, 1, &n);
    qn_graph_output(g, qn_graph_op(g, QN_OP_add, 0, 2, (qn_val[]){s, a}, NULL), "next");
    qn_plan *p = plan_of(g, device, 0);
    assert_int_equal(qn_plan_feed(p, "next", "state", &e), QN_OK);
    assert_int_equal(qn_plan_keep(p, "next", &e), QN_OK);
    set(p, "state", 1, &n, zero);
    fill(x, 6, 5);
    set(p, "x", 1, &n, x);
    for (int i = 0; i < 4; i++) run(p);
    assert_int_equal(p->n_uploads, 2); /* the state once, x once */
    qn_tensor t;
    assert_int_equal(qn_plan_output(p, "next", &t, &e), QN_INVALID);
    float got[2];
    assert_int_equal(qn_plan_read(p, "next", 8, got, sizeof got, &e), QN_OK);
    for (int i = 0; i < 2; i++) assert_true(fabsf(got[i] - 4 * x[i + 2]) < 1e-5f);
    set(p, "state", 1, &n, zero); /* set again from outside */
    run(p);
    assert_int_equal(qn_plan_read(p, "next", 0, got, sizeof got, &e), QN_OK);
    for (int i = 0; i < 2; i++) assert_true(fabsf(got[i] - x[i]) < 1e-5f);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* A running sum of rows, as many as there are this time: each count of rows is a specialisation, and all go on from one sum. */
static qn_graph *running_sum(void) {
    qn_graph *g;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    int64_t rows = qn_graph_symbol(g, "rows", 1, 4, 1);
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 2, (int64_t[]){rows, 4});
    qn_val sum = qn_graph_param(g, "sum", QN_DTYPE_F32, 1, (int64_t[]){4});
    qn_attr_reduce at = qn_attr_reduce_default();
    at.axes = (qn_dims){.rank = 1};
    qn_val more = qn_graph_op(g, QN_OP_reduce, QN_REDUCE_sum, 1, &x, &at);
    qn_graph_output(g, more, "more");
    qn_graph_output(g, qn_graph_op(g, QN_OP_accumulate, 0, 2, (qn_val[]){sum, more}, NULL), "next");
    qn_error e;
    if (qn_graph_error(g, &e) != QN_OK) fail_msg("%s", e.text);
    return g;
}

static void run_rows(qn_plan *p, int64_t rows) {
    static const float ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    set(p, "x", 2, (int64_t[]){rows, 4}, ones);
    run(p);
}

static float read_first(qn_plan *p, const char *name) {
    float first = -1;
    qn_error e = {QN_OK, ""};
    if (qn_plan_read(p, name, 0, &first, sizeof first, &e) != QN_OK) fail_msg("%s", e.text);
    return first;
}

static void state_is_one_for_all_extents(void **state) {
    (void)state;
    NEED_DEVICE();
    qn_graph *g = running_sum();
    float total = 0, zero[4] = {0};
    for (int kept = 0; kept < 2; kept++) {
        qn_error e = {QN_OK, ""};
        int64_t small = 1;
        qn_plan *p = NULL;
        qn_plan_options o = {.size = sizeof o, .device = device, .symbols = &small}; /* a larger buffer is needed later */
        if (qn_plan_create(g, &o, &p, &e) != QN_OK) fail_msg("%s", e.text);
        if (kept) assert_int_equal(qn_plan_keep(p, "next", &e), QN_OK);
        set(p, "sum", 1, (int64_t[]){4}, zero);
        total = 0;
        for (int i = 0; i < 12; i++) {
            int64_t rows = 1 + i * 3 % 4;
            if (i == 5) set(p, "sum", 1, (int64_t[]){4}, zero), total = 0;
            run_rows(p, rows);
            total += (float)rows;
            assert_true(read_first(p, "next") == total);
        }
        assert_true(p->n_uploads < 12 + 6); /* the rows every time, the sum when it was set and when the buffer grew */
        qn_plan_destroy(p);
    }
    qn_graph_destroy(g);
}

/* What is asked of a plan between runs does not cost it the state that only the device has, nor an output that is kept there. */
static void state_outlives_new_wishes(void **state) {
    (void)state;
    NEED_DEVICE();
    qn_graph *g = running_sum();
    qn_plan *p = plan_of(g, device, 0);
    float zero[4] = {0};
    qn_error e = {QN_OK, ""};
    assert_int_equal(qn_plan_keep(p, "next", &e), QN_OK);
    set(p, "sum", 1, (int64_t[]){4}, zero);
    run_rows(p, 3);
    assert_int_equal(qn_plan_keep(p, "more", &e), QN_OK);
    assert_true(read_first(p, "next") == 3);
    run_rows(p, 2);
    assert_true(read_first(p, "next") == 5 && read_first(p, "more") == 2);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* A run that fails leaves what it began with, where the host has it. */
static void a_failed_run_can_be_run_again(void **state) {
    (void)state;
    NEED_DEVICE();
    qn_graph *g = running_sum();
    qn_plan *p = plan_of(g, device, 0);
    float zero[4] = {0};
    qn_error e = {QN_OK, ""};
    set(p, "sum", 1, (int64_t[]){4}, zero);
    run_rows(p, 3);
    qn_vulkan_inject(device, QN_VULKAN_FAULT_TIMEOUT);
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_DEVICE);
    run(p);
    assert_true(read_first(p, "next") == 6);
    qn_vulkan_inject(device, QN_VULKAN_FAULT_NO_MEMORY); /* for the program of the next specialisation */
    set(p, "x", 2, (int64_t[]){1, 4}, (float[]){1, 1, 1, 1});
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_DEVICE);
    run(p);
    assert_true(read_first(p, "next") == 7);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* An index out of range: the node is named, state is what it was, and nothing was learnt. */
static void a_bad_index_leaves_state_alone(void **state) {
    (void)state;
    NEED_DEVICE();
    qn_graph *g = NULL;
    qn_error e = {QN_OK, ""};
    static const char text[] = "quern graph 1\n"
                               "input %state f32[1, 4]\n"
                               "input %ids i32[1]\n"
                               "param %table f32[3, 4]\n"
                               "param %w f32[1, 4]\n"
                               "const %rate f32[2] = 1, 0\n"
                               "%row = get_rows %table %ids\n"
                               "%next = add %state %row\n"
                               "%learnt = opt_step_sgd %w %row %rate\n"
                               "output %next \"next\"\n"
                               "output %learnt \"learnt\"\n";
    if (qn_graph_parse(text, sizeof text - 1, 0, &g, &e) != QN_OK) fail_msg("%s", e.text);
    qn_plan *p = plan_of(g, device, QN_PLAN_STRICT);
    float table[12], zero[4] = {0};
    int64_t one = 1;
    for (int i = 0; i < 12; i++) table[i] = (float)(i / 4 + 1);
    set(p, "table", 2, (int64_t[]){3, 4}, table);
    set(p, "state", 2, (int64_t[]){1, 4}, zero);
    set(p, "w", 2, (int64_t[]){1, 4}, zero);
    if (qn_plan_feed(p, "next", "state", &e) != QN_OK) fail_msg("%s", e.text);
    static const int32_t ids[] = {2, 3, 0, -1, 1};
    float sum = 0;
    for (int i = 0; i < 5; i++) {
        qn_tensor t;
        int good = ids[i] >= 0 && ids[i] < 3;
        assert_int_equal(qn_tensor_init(&t, QN_DTYPE_I32, 1, &one, (void *)(uintptr_t)&ids[i], sizeof *ids), QN_OK);
        if (qn_plan_set(p, "ids", &t, &e) != QN_OK) fail_msg("%s", e.text);
        assert_int_equal(qn_plan_run(p, NULL, &e), good ? QN_OK : QN_RANGE);
        if (!good) {
            assert_string_equal(e.text, "node 0: get_rows: an index is out of range");
            continue;
        }
        sum += (float)(ids[i] + 1);
        assert_true(output(p, "next")[0] == sum && output(p, "learnt")[3] == -sum);
    }
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* Inputs that are outputs as well, handed on from one to the next and round in a circle: each gets what the run began with, whatever
 * the order of the feeds, and an output shows what its run had. `told` is also read on the host. */
static void fed_inputs_are_handed_on(void **state) {
    (void)state;
    static const char *const names[] = {"a", "b", "c"}, *const now[] = {"a_now", "b_now", "c_now"};
    for (int on = 0; on < 2; on++) {
        if (on) NEED_DEVICE();
        qn_graph *g;
        qn_error e = {QN_OK, ""};
        int64_t n = 2;
        qn_val v[3];
        qn_attr_map_custom1 at = qn_attr_map_custom1_default();
        at.fn = double_it;
        assert_int_equal(qn_graph_create(0, &g), QN_OK);
        for (int i = 0; i < 3; i++) {
            v[i] = qn_graph_input(g, names[i], QN_DTYPE_F32, 1, &n);
            qn_graph_output(g, v[i], now[i]);
        }
        qn_val told = qn_graph_op(g, QN_OP_map_custom1, 0, 1, &v[1], &at);
        qn_graph_output(g, qn_graph_op(g, QN_OP_add, 0, 2, (qn_val[]){v[0], told}, NULL), "y");
        qn_plan *p = plan_of(g, on ? device : NULL, 0);
        for (int i = 0; i < 3; i++) {
            set(p, names[i], 1, &n, (float[]){(float)(1 << 4 * i), 0});
            assert_int_equal(qn_plan_feed(p, now[i], names[(i + 1) % 3], &e), QN_OK);
        }
        for (int round = 0; round < 5; round++) {
            float a = (float)(1 << 4 * ((3 - round % 3) % 3)), b = (float)(1 << 4 * ((4 - round % 3) % 3));
            run(p);
            assert_true(read_first(p, "a_now") == a && output(p, "a_now")[0] == a && read_first(p, "b_now") == b);
            assert_true(read_first(p, "y") == a + 2 * b);
        }
        qn_plan_destroy(p);
        qn_graph_destroy(g);
    }
}

/* State that is an input, updated where it is and fed to itself, as it would be without saying so. */
static void state_may_be_fed_to_itself(void **state) {
    (void)state;
    NEED_DEVICE();
    qn_graph *g;
    qn_error e = {QN_OK, ""};
    int64_t n = 2;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val sum = qn_graph_input(g, "sum", QN_DTYPE_F32, 1, &n), x = qn_graph_input(g, "x", QN_DTYPE_F32, 1, &n);
    qn_graph_output(g, qn_graph_op(g, QN_OP_accumulate, 0, 2, (qn_val[]){sum, x}, NULL), "next");
    qn_plan *p = plan_of(g, device, 0);
    assert_int_equal(qn_plan_feed(p, "next", "sum", &e), QN_OK);
    set(p, "sum", 1, &n, (float[]){0, 0});
    set(p, "x", 1, &n, (float[]){1, 2});
    for (int i = 1; i < 4; i++) {
        run(p);
        assert_true(read_first(p, "next") == (float)i);
    }
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* Adding onto a copy of something whose axes no kernel walks: that is known before the plan runs. */
static void a_step_is_asked_for_with_its_copies(void **state) {
    (void)state;
    NEED_DEVICE();
    qn_graph *g;
    int64_t shape[6] = {2, 2, 2, 2, 2, 2}, three = 3;
    float x[64], zeros[96] = {0};
    qn_attr_permute turn = qn_attr_permute_default();
    qn_attr_scatter_add at = qn_attr_scatter_add_default();
    turn.axes = (qn_dims){.rank = 6, .d = {1, 0, 3, 2, 5, 4}};
    at.axis = 0;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val in = qn_graph_input(g, "x", QN_DTYPE_F32, 6, shape);
    qn_val a = qn_graph_op(g, QN_OP_permute, 0, 1, &in, &turn);
    qn_val idx = qn_graph_constant(g, QN_DTYPE_I32, 1, &three, (int32_t[]){1, 0, 1}, 12);
    qn_val more = qn_graph_constant(g, QN_DTYPE_F32, 6, (int64_t[]){3, 2, 2, 2, 2, 2}, zeros, sizeof zeros);
    qn_graph_output(g, qn_graph_op(g, QN_OP_scatter_add, 0, 3, (qn_val[]){a, more, idx}, &at), "y");
    qn_plan *p = plan_of(g, device, QN_PLAN_NO_PASSES);
    fill(x, 64, 5);
    set(p, "x", 6, shape, x);
    run(p);
    for (int i = 0; i < 64; i++) assert_true(output(p, "y")[i] == x[(i & 42) >> 1 | (i & 21) << 1]);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static void a_lost_device_is_a_status(void **state) {
    (void)state;
    NEED_DEVICE();
    qn_graph *g = mixed();
    qn_plan *p = plan_of(g, device, 0);
    float x[32], w[64], before[32];
    qn_error e = {QN_OK, ""};
    fill(x, 32, 5);
    fill(w, 64, 3);
    set(p, "x", 2, (int64_t[]){4, 8}, x);
    set(p, "w", 2, (int64_t[]){8, 8}, w);
    run(p);
    memcpy(before, output(p, "s"), sizeof before);
    qn_vulkan_inject(device, QN_VULKAN_FAULT_LOST_ON_SUBMIT);
    assert_int_equal(qn_plan_run(p, NULL, &e), QN_DEVICE);
    qn_plan_destroy(p);
    qn_device_close(device);
    open_once(state);
    assert_non_null(device);
    p = plan_of(g, device, 0);
    set(p, "x", 2, (int64_t[]){4, 8}, x);
    set(p, "w", 2, (int64_t[]){8, 8}, w);
    run(p);
    assert_memory_equal(before, output(p, "s"), sizeof before);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

typedef struct kernel_rows {
    size_t n;
    char text[8192];
} kernel_rows;

/* Without blanks, so that a row reads the same however it is spaced. */
static qn_status keep_rows(void *user, const char *text, size_t length) {
    kernel_rows *rows = user;
    for (size_t i = 0; i < length && rows->n + 1 < sizeof rows->text; i++)
        if (text[i] != ' ' && text[i] != '\n') rows->text[rows->n++] = text[i];
    rows->text[rows->n] = 0;
    return QN_OK;
}

/* Every step is an op with a kernel of its own, and the analyser finds all of them in order. */
static void recorded_run_shows_the_device(void **state) {
    (void)state;
    NEED_DEVICE();
    char folder[] = "quern-device-XXXXXX";
    qn_error e = {QN_OK, ""};
    qn_graph *g = mixed();
    qn_plan *p = plan_of(g, device, 0);
    qn_context *context;
    qn_recorder *recorder;
    qn_profile *profile;
    const char *path;
    float x[32], w[64];
    fill(w, 64, 3);
    fill(x, 32, 5);
    set(p, "w", 2, (int64_t[]){8, 8}, w);
    set(p, "x", 2, (int64_t[]){4, 8}, x);
    assert_non_null(mkdtemp(folder));
    qn_recorder_options o = qn_recorder_options_default();
    o.folder = folder;
    assert_int_equal(qn_recorder_create(&o, &recorder, &e), QN_OK);
    assert_int_equal(qn_context_create(NULL, &context), QN_OK);
    assert_int_equal(qn_recorder_attach(recorder, context, "main", &e), QN_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(qn_plan_run(p, context, &e), QN_OK);
    assert_int_equal(qn_recorder_write(recorder, &path, &e), QN_OK);
    assert_int_equal(qn_profile_open(path, NULL, &profile, &e), QN_OK);
    assert_int_equal(qn_profile_load(profile, 0, 0, 0, &e), QN_OK);
    qn_profile_info info = {.size = sizeof info};
    assert_int_equal(qn_profile_trace_info(profile, 0, 0, 0, &info), QN_OK);
    assert_int_equal(info.nodes_dropped + info.orphan_kernels + info.events_broken, 0);
    qn_plan_totals totals = {.size = sizeof totals};
    assert_int_equal(qn_plan_describe(p, &totals), QN_OK);
    assert_int_equal(totals.n_segments, 2);
    kernel_rows rows = {0, ""};
    assert_int_equal(qn_profile_view(profile, "kernel_table", NULL, keep_rows, &rows, &e), QN_OK);
    assert_non_null(strstr(rows.text, "[\"mul_mat\",\"No\",6,"));
    assert_non_null(strstr(rows.text, "[\"soft_max\",\"No\",3,"));
    qn_profile_close(profile);
    remove(path);
    remove(folder);
    qn_context_destroy(context);
    qn_recorder_destroy(recorder);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_and_cpu_share_a_graph),  cmocka_unit_test(unchanged_inputs_are_not_sent_again),
        cmocka_unit_test(fed_state_stays_on_the_device), cmocka_unit_test(recorded_run_shows_the_device),
        cmocka_unit_test(state_is_one_for_all_extents),  cmocka_unit_test(state_outlives_new_wishes),
        cmocka_unit_test(a_failed_run_can_be_run_again), cmocka_unit_test(fed_inputs_are_handed_on),
        cmocka_unit_test(state_may_be_fed_to_itself),    cmocka_unit_test(a_step_is_asked_for_with_its_copies),
        cmocka_unit_test(a_lost_device_is_a_status),     cmocka_unit_test(a_bad_index_leaves_state_alone),
    };
    return cmocka_run_group_tests(tests, open_once, close_once);
}
