/* A plan on a device says what it will allocate on either side, allocates that and no more, and keeps under its cap: what its kernels
 * need for themselves and what waits to be copied are part of it. What there really is, the device counts. */
#include <stdio.h>
#include <string.h>

#include <quern/device.h>

#include "cmocka_setup.h"
#include "run/plan_impl.h"
#include "vulkan/vulkan.h"

enum { ROWS = 512, WIDTH = 8, PLACES = 64 };

/* A device of its own for every test, so that what it keeps is this test's. */
static int open_device(void **state) {
    qn_device *device = NULL;
    qn_error e = {QN_OK, ""};
    if (qn_vulkan_open(&(qn_vulkan_options){.flags = QN_VULKAN_NO_SELF_TEST, .cache = ""}, &device, &e) != QN_OK)
        print_message("no device: %s\n", e.text);
    *state = device;
    return 0;
}

static int close_device(void **state) {
    qn_device_close(*state);
    return 0;
}

/* Rows added up at their places, which chains rows in scratch, as many as there are. */
static qn_graph *places(void) {
    qn_graph *g;
    qn_error e;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    int64_t rows = qn_graph_symbol(g, "rows", 1, ROWS, 1);
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 2, (int64_t[]){rows, WIDTH});
    qn_val at = qn_graph_input(g, "at", QN_DTYPE_I32, 1, &rows);
    qn_val table = qn_graph_param(g, "table", QN_DTYPE_F32, 2, (int64_t[]){PLACES, WIDTH});
    qn_attr_get_rows_back where = qn_attr_get_rows_back_default();
    where.rows = PLACES;
    qn_val sums = qn_graph_op(g, QN_OP_get_rows_back, 0, 2, (qn_val[]){x, at}, &where);
    qn_graph_output(g, qn_graph_op(g, QN_OP_add, 0, 2, (qn_val[]){sums, table}, NULL), "y");
    qn_graph_output(g, qn_graph_op(g, QN_OP_add, 0, 2, (qn_val[]){x, x}, NULL), "twice");
    if (qn_graph_error(g, &e) != QN_OK) fail_msg("%s", e.text);
    return g;
}

static qn_status plan_of(const qn_graph *g, qn_device *on, uint64_t cap, qn_plan **p, qn_error *e) {
    qn_plan_options o = {.size = sizeof o, .device = on, .memory_cap = cap};
    return qn_plan_create(g, &o, p, e);
}

static qn_plan *made(const qn_graph *g, qn_device *on, uint64_t cap) {
    qn_plan *p = NULL;
    qn_error e = {QN_OK, ""};
    if (plan_of(g, on, cap, &p, &e) != QN_OK) fail_msg("%s", e.text);
    return p;
}

static void set(qn_plan *p, const char *name, qn_dtype dtype, int rank, const int64_t *shape, const void *data) {
    qn_tensor t;
    qn_error e = {QN_OK, ""};
    size_t n = 4;
    for (int i = 0; i < rank; i++) n *= (size_t)shape[i];
    assert_int_equal(qn_tensor_init(&t, dtype, rank, shape, (void *)(uintptr_t)data, n), QN_OK);
    if (qn_plan_set(p, name, &t, &e) != QN_OK) fail_msg("%s", e.text);
}

static qn_status try_rows(qn_plan *p, int64_t rows, qn_error *e) {
    static float x[ROWS * WIDTH], table[PLACES * WIDTH];
    static int32_t at[ROWS];
    for (int i = 0; i < ROWS * WIDTH; i++) x[i] = 1;
    for (int i = 0; i < ROWS; i++) at[i] = i % PLACES;
    set(p, "x", QN_DTYPE_F32, 2, (int64_t[]){rows, WIDTH}, x);
    set(p, "at", QN_DTYPE_I32, 1, &rows, at);
    set(p, "table", QN_DTYPE_F32, 2, (int64_t[]){PLACES, WIDTH}, table);
    return qn_plan_run(p, NULL, e);
}

static void run_rows(qn_plan *p, int64_t rows) {
    qn_error e = {QN_OK, ""};
    qn_tensor y;
    if (try_rows(p, rows, &e) != QN_OK || qn_plan_output(p, "y", &y, &e) != QN_OK) fail_msg("%s", e.text);
    assert_true(((const float *)(const void *)((const char *)y.data + y.offset))[0] == (float)((rows + PLACES - 1) / PLACES));
}

static qn_plan_totals totals(const qn_plan *p) {
    qn_plan_totals t = {.size = sizeof t};
    assert_int_equal(qn_plan_describe(p, &t), QN_OK);
    return t;
}

/* What the host has of the plan and the device does not know of. */
static uint64_t plain_bytes(const qn_plan *p) {
    uint64_t all = p->memory_bytes + qn_plan_packs_bytes(p, 0);
    for (size_t i = 0; i < p->leaves.n; i++)
        if (p->leaves.at[i].memory) all += qn_plan_padded(p->leaves.at[i].capacity);
    return all;
}

static void totals_are_what_is_allocated(void **state) {
    qn_device *device = *state;
    if (!device) skip();
    qn_graph *g = places();
    uint64_t before = qn_vulkan_held(device, 0);
    assert_int_equal(qn_vulkan_held(device, 1), 0);
    qn_plan *p = made(g, device, 0);
    qn_plan_totals planned = totals(p);
    assert_true(planned.device_scratch_bytes >= 4 * ROWS && planned.staging_bytes >= 4 * (2 * ROWS + PLACES) * WIDTH);
    assert_int_equal(qn_vulkan_held(device, 0), before);
    assert_int_equal(planned.held_bytes, 0);
    assert_int_equal(planned.device_held_bytes, 0);
    run_rows(p, ROWS);
    qn_plan_totals t = totals(p);
    assert_int_equal(t.device_bytes, planned.device_bytes);
    assert_int_equal(t.device_held_bytes, planned.device_bytes);
    assert_int_equal(qn_vulkan_held(device, 0) - before, planned.device_bytes);
    assert_int_equal(t.held_bytes, plain_bytes(p) + qn_vulkan_held(device, 1));
    assert_true(t.held_bytes <= planned.host_bytes);
    float all[ROWS * WIDTH];
    qn_error e;
    assert_int_equal(qn_plan_read(p, "twice", 0, all, sizeof all, &e), QN_OK);
    assert_int_equal(totals(p).held_bytes, plain_bytes(p) + qn_vulkan_held(device, 1));
    assert_int_equal(totals(p).held_bytes, planned.host_bytes); /* now that the largest was copied by itself */
    qn_plan_destroy(p);
    assert_int_equal(qn_vulkan_held(device, 0), before);
    qn_graph_destroy(g);
}

static void a_cap_counts_staging_and_scratch(void **state) {
    qn_device *device = *state;
    if (!device) skip();
    qn_graph *g = places();
    qn_plan *p = made(g, device, 0), *refused = NULL;
    qn_plan_totals t = totals(p);
    qn_plan_destroy(p);
    uint64_t cap = t.host_bytes > t.device_bytes ? t.host_bytes : t.device_bytes;
    qn_error e = {QN_OK, ""};
    p = made(g, device, cap);
    run_rows(p, ROWS);
    qn_plan_destroy(p);
    assert_int_equal(plan_of(g, device, cap - 1, &refused, &e), QN_NO_MEMORY);
    assert_null(refused);
    char staging[64], scratch[64];
    snprintf(staging, sizeof staging, "staging %llu)", (unsigned long long)t.staging_bytes);
    snprintf(scratch, sizeof scratch, "on the device (scratch %llu)", (unsigned long long)t.device_scratch_bytes);
    if (!strstr(e.text, staging) || !strstr(e.text, scratch)) fail_msg("%s", e.text);
    qn_graph_destroy(g);
}

/* Programs for other extents are kept for speed alone; under a cap they make way, and what is in memory stays under it. */
static void programs_for_other_extents_make_way(void **state) {
    qn_device *device = *state;
    if (!device) skip();
    qn_graph *g = places();
    static const int64_t rows[] = {ROWS, 3, 500, ROWS, 17, 480, 3, ROWS, 499, 498, 497, 496, 495, 494, 493, 492, 3, ROWS};
    qn_plan *p = made(g, device, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) run_rows(p, rows[i]);
    qn_plan_totals t = totals(p);
    uint64_t cap = t.host_bytes > t.device_bytes ? t.host_bytes : t.device_bytes;
    assert_true(t.held_bytes > cap); /* without a cap they stay */
    assert_int_equal(t.held_bytes, plain_bytes(p) + qn_vulkan_held(device, 1));
    qn_plan_destroy(p);
    uint64_t device_before = qn_vulkan_held(device, 0), host_before = qn_vulkan_held(device, 1);
    p = made(g, device, cap);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        run_rows(p, rows[i]);
        t = totals(p);
        assert_int_equal(t.device_held_bytes, qn_vulkan_held(device, 0) - device_before);
        assert_in_range(t.device_held_bytes, 1, cap);
        assert_in_range(t.held_bytes, plain_bytes(p) + qn_vulkan_held(device, 1) - host_before, cap);
    }
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* One that does not fit is refused when it is asked for, and the plan goes on as it was. */
static void larger_extents_are_refused_and_nothing_is_lost(void **state) {
    qn_device *device = *state;
    if (!device) skip();
    qn_graph *g = places();
    int64_t few = 8;
    qn_plan *p = NULL;
    qn_error e = {QN_OK, ""};
    qn_plan_options o = {.size = sizeof o, .device = device, .symbols = &few};
    assert_int_equal(qn_plan_create(g, &o, &p, &e), QN_OK);
    uint64_t small = totals(p).host_bytes > totals(p).device_bytes ? totals(p).host_bytes : totals(p).device_bytes;
    qn_plan_destroy(p);
    o.memory_cap = small + 1024;
    assert_int_equal(qn_plan_create(g, &o, &p, &e), QN_OK);
    run_rows(p, few);
    assert_int_equal(try_rows(p, ROWS, &e), QN_NO_MEMORY);
    assert_non_null(strstr(e.text, "the cap is"));
    assert_true(totals(p).held_bytes <= o.memory_cap && totals(p).device_held_bytes <= o.memory_cap);
    run_rows(p, few);
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

/* What crosses changes with what is kept and fed: the totals tell, and the cap holds. */
static void kept_outputs_need_no_staging(void **state) {
    qn_device *device = *state;
    if (!device) skip();
    qn_graph *g = places();
    qn_plan *p = made(g, device, 0);
    qn_error e;
    uint64_t before = totals(p).staging_bytes;
    assert_int_equal(qn_plan_keep(p, "twice", &e), QN_OK);
    assert_int_equal(totals(p).staging_bytes, before - 4 * ROWS * WIDTH);
    run_rows(p, ROWS);
    assert_int_equal(totals(p).held_bytes, plain_bytes(p) + qn_vulkan_held(device, 1));
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

int main(void) {
#define ONE(test) cmocka_unit_test_setup_teardown(test, open_device, close_device)
    const struct CMUnitTest tests[] = {
        ONE(totals_are_what_is_allocated),        ONE(a_cap_counts_staging_and_scratch),
        ONE(programs_for_other_extents_make_way), ONE(larger_extents_are_refused_and_nothing_is_lost),
        ONE(kept_outputs_need_no_staging),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
