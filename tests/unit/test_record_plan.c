/* What a recorded run of a plan says: which memory was alive when, when a device worked, and how often a labelled part was entered. */
#include "record_help.h"

#include <quern/device.h>

#include "run/context.h"
#include "run/plan_impl.h"
#include "vulkan/vulkan.h"

enum { ROWS = 16, COLUMNS = 16, BYTES = ROWS * COLUMNS * 4 }; /* whole cache lines, so that the plan pads nothing */

/* x and w in parts a, b, a again; one value is read twice, much later. */
static qn_graph *labelled(void) {
    qn_graph *g;
    int64_t shape[2] = {ROWS, COLUMNS};
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 2, shape), w = qn_graph_param(g, "w", QN_DTYPE_F32, 2, shape);
    qn_graph_label_push(g, "a");
    qn_val first = qn_graph_op(g, QN_OP_mul_mat, 0, 2, (qn_val[]){w, x}, NULL);
    qn_val second = qn_graph_op(g, QN_OP_mul_mat, 0, 2, (qn_val[]){w, first}, NULL);
    qn_graph_label_pop(g);
    qn_graph_label_push(g, "b");
    qn_val third = qn_graph_op(g, QN_OP_mul_mat, 0, 2, (qn_val[]){w, second}, NULL);
    qn_graph_label_pop(g);
    qn_graph_label_push(g, "a");
    qn_val sum = qn_graph_op(g, QN_OP_add, 0, 2, (qn_val[]){first, third}, NULL);
    qn_val last = qn_graph_op(g, QN_OP_mul_mat, 0, 2, (qn_val[]){w, sum}, NULL);
    qn_graph_label_pop(g);
    qn_graph_output(g, last, "y");
    qn_error e;
    if (qn_graph_error(g, &e) != QN_OK) fail_msg("%s", e.text);
    return g;
}

static qn_plan *ready_plan(qn_device *device) {
    static float ones[ROWS * COLUMNS];
    int64_t shape[2] = {ROWS, COLUMNS};
    qn_tensor t;
    qn_error e;
    qn_plan *p = NULL;
    qn_plan_options o = {.size = sizeof o, .flags = QN_PLAN_NO_PASSES, .device = device};
    qn_graph *g = labelled();
    for (int i = 0; i < ROWS * COLUMNS; i++) ones[i] = 1;
    assert_int_equal(qn_tensor_init(&t, QN_DTYPE_F32, 2, shape, ones, sizeof ones), QN_OK);
    if (qn_plan_create(g, &o, &p, &e) != QN_OK || qn_plan_set(p, "x", &t, &e) != QN_OK || qn_plan_set(p, "w", &t, &e) != QN_OK)
        fail_msg("%s", e.text);
    qn_graph_destroy(g);
    return p;
}

static void run(bench *b, qn_plan *p) {
    if (qn_plan_run(p, b->context, &b->error) != QN_OK) fail_msg("%s", b->error.text);
}

/* ---- Records */

typedef struct seen {
    int births, deaths, kernels;
    uint64_t alive, most, kept, reserved;
    uint64_t first_kernel, last_kernel; /* start of the first, end of the last */
} seen;

/* Follows the memory records: everything alive is apart, nothing dies twice, totals are what they should be. */
static seen follow(bench *b, int device) {
    enum { MOST = 16 };
    uint64_t lives[MOST];
    int n = 0;
    seen s = {0};
    uint64_t *words = malloc((b->context->ring->mask + 1) * sizeof *words), lost = 0;
    assert_non_null(words);
    size_t count = qn_trace_collect(b->context->ring, words, &lost);
    assert_int_equal(lost, 0);
    for (size_t at = 0; at < count; at += qn_trace_head_words(words[at])) {
        const uint64_t *body = words + at + 1;
        if (qn_trace_head_kind(words[at]) == QN_TRACE_DEVICE) {
            if (!s.kernels++) s.first_kernel = body[0];
            s.last_kernel = body[1];
        }
        if (qn_trace_head_kind(words[at]) != QN_TRACE_MEMORY) continue;
        int64_t bytes = (int64_t)body[3];
        assert_int_equal((int64_t)body[6], device);
        assert_int_equal(bytes < 0 ? -bytes : bytes, BYTES);
        if (s.births + s.deaths == 0) s.kept = body[4] - BYTES;
        int k = 0;
        while (k < n && lives[k] != body[2]) k++;
        if (bytes > 0) {
            for (int i = 0; i < n; i++) assert_true(lives[i] + BYTES <= body[2] || body[2] + BYTES <= lives[i]);
            assert_true(n < MOST);
            lives[n++] = body[2];
            s.births++;
        } else {
            assert_true(k < n);
            lives[k] = lives[--n];
            s.deaths++;
        }
        s.alive = (uint64_t)n * BYTES;
        s.most = s.alive > s.most ? s.alive : s.most;
        s.reserved = body[5];
        assert_int_equal(body[4], s.kept + s.alive);
        assert_true(body[4] <= s.reserved);
    }
    free(words);
    return s;
}

static void plan_tells_what_memory_is_alive(void **state) {
    (void)state;
    bench b;
    begin(&b);
    qn_plan *p = ready_plan(NULL);
    qn_plan_totals t = {.size = sizeof t};
    qn_plan_describe(p, &t);
    for (int i = 0; i < 3; i++) {
        run(&b, p);
        seen s = follow(&b, -1);
        assert_true(s.births >= 4); /* five results, of which one may be written over a source */
        assert_int_equal(s.births, s.deaths);
        assert_int_equal(s.alive, 0);
        assert_int_equal(s.most, t.lower_bound);
        assert_int_equal(s.kept, t.param_bytes + t.input_bytes + t.constant_bytes + t.packed_bytes);
    }
    qn_recorder_detach(b.context);
    run(&b, p); /* and without a ring it just runs */
    qn_plan_destroy(p);
    end(&b);
}

static void run_that_is_cancelled_leaves_nothing_alive(void **state) {
    (void)state;
    bench b;
    begin(&b);
    qn_plan *p = ready_plan(NULL);
    qn_plan_cancel(p);
    assert_int_equal(qn_plan_run(p, b.context, &b.error), QN_CANCELLED);
    seen s = follow(&b, -1);
    assert_int_equal(s.births, s.deaths);
    run(&b, p);
    s = follow(&b, -1);
    assert_true(s.births >= 4 && s.alive == 0);
    qn_plan_destroy(p);
    end(&b);
}

/* ---- A device */

static void device_tells_memory_and_when_it_worked(void **state) {
    (void)state;
    qn_device *device = NULL;
    qn_device_info info = {.size = sizeof info};
    qn_error e = {QN_OK, ""};
    if (qn_vulkan_open(&(qn_vulkan_options){.flags = QN_VULKAN_VALIDATE, .cache = ""}, &device, &e) != QN_OK) {
        print_message("no device: %s\n", e.text);
        skip();
    }
    qn_device_describe(device, &info);
    print_message("%s: clocks compared within %llu ns\n", info.name, (unsigned long long)info.clock_bound);
    bench b;
    begin(&b);
    qn_plan *p = ready_plan(device);
    for (int i = 0; i < 3; i++) {
        uint64_t before = qn_trace_time(b.context->ring);
        run(&b, p);
        uint64_t after = qn_trace_time(b.context->ring);
        seen s = follow(&b, 0);
        assert_true(s.births >= 4 && s.births == s.deaths && s.alive == 0);
        assert_true(s.kept >= 2 * BYTES);
        if (!(info.features & QN_DEVICE_TIMESTAMPS)) continue;
        assert_int_equal(s.kernels, 5);
        assert_true(s.first_kernel >= before && s.last_kernel <= after + info.clock_bound);
    }
    qn_plan_destroy(p);
    end(&b);
    const char *first = "";
    if (qn_vulkan_messages(device, NULL, &first)) fail_msg("validation: %s", first);
    qn_device_close(device);
}

/* ---- Parts */

typedef struct text {
    char at[8192];
    size_t n;
} text;

static qn_status append(void *user, const char *bytes, size_t n) {
    text *t = user;
    assert_true(t->n + n < sizeof t->at);
    memcpy(t->at + t->n, bytes, n);
    t->at[t->n += n] = 0;
    return QN_OK;
}

static void labelled_parts_are_counted_each_time_they_are_entered(void **state) {
    (void)state;
    bench b;
    text parts = {.n = 0};
    const char *path;
    qn_profile *profile = NULL;
    begin(&b);
    qn_plan *p = ready_plan(NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(qn_record_step(b.context, &b.error), QN_OK);
        run(&b, p);
    }
    if (qn_recorder_write(b.recorder, &path, &b.error) != QN_OK || qn_profile_open(path, NULL, &profile, &b.error) != QN_OK ||
        qn_profile_view(profile, "parts", NULL, append, &parts, &b.error) != QN_OK)
        fail_msg("%s", b.error.text);
    if (!strstr(parts.at, "[\"a\", 6, 12, ") && !strstr(parts.at, "[\"a\",6,12,")) fail_msg("%s", parts.at);
    if (!strstr(parts.at, "[\"b\", 3, 3, ") && !strstr(parts.at, "[\"b\",3,3,")) fail_msg("%s", parts.at);
    qn_profile_close(profile);
    qn_plan_destroy(p);
    end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_tells_what_memory_is_alive),
        cmocka_unit_test(run_that_is_cancelled_leaves_nothing_alive),
        cmocka_unit_test(device_tells_memory_and_when_it_worked),
        cmocka_unit_test(labelled_parts_are_counted_each_time_they_are_entered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
