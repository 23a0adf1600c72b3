/* The trace view's filter: whatever the chunks, the same text; one event left out, counters put in, broken text repaired. */
#include <stdlib.h>
#include <string.h>

#include "prof/prof_view.h"
#include "cmocka_setup.h"

typedef struct memory_file { /* stands for the file; the filter gets it in chunks of one size */
    const char *text;
    size_t chunk;
} memory_file;

typedef struct collected {
    char text[4096];
    size_t n;
} collected;

static qn_status collect(void *user, const char *text, size_t n) {
    collected *c = user;
    assert_true(c->n + n < sizeof c->text);
    memcpy(c->text + c->n, text, n);
    c->n += n;
    c->text[c->n] = 0;
    return QN_OK;
}

/* The path of the made-up trace is the address of its memory_file. */
static qn_status copy_chunks(const prof_trace *trace, qn_profile_write_fn write, void *user, qn_error *error) {
    const memory_file *file = (const memory_file *)(const void *)trace->path;
    size_t length = strlen(file->text);
    (void)error;
    for (size_t at = 0; at < length; at += file->chunk) {
        size_t n = length - at < file->chunk ? length - at : file->chunk;
        char *copy = malloc(n); /* of its own, so that a look beyond the chunk is noticed */
        assert_non_null(copy);
        memcpy(copy, file->text + at, n);
        qn_status status = write(user, copy, n);
        free(copy);
        if (status != QN_OK) {
            return status;
        }
    }
    return QN_OK;
}

/* One device that is busy all the time, so that counters are few and known. */
static void make_trace(prof_trace *trace, prof_device *device, prof_range *busy, qn_profile_dialect dialect, uint64_t left_out) {
    memset(trace, 0, sizeof *trace);
    memset(device, 0, sizeof *device);
    *busy = (prof_range){prof_int(0), prof_int(2)};
    device->id = prof_int(0);
    device->busy.at = busy;
    device->busy.n = 1;
    trace->dialect = dialect;
    trace->device_word = "GPU";
    trace->is_gpu = 1;
    trace->window_end_event = left_out;
    trace->has_kernel = 1;
    trace->devices.at = device;
    trace->devices.n = 1;
    trace->window_start = prof_int(0);
    trace->window_end = prof_int(1);
}

enum { KERNELS_WITHOUT_DEVICE = 2 };

static void check(const char *from, const char *to, qn_profile_dialect dialect, uint64_t left_out, int has_kernel) {
    for (size_t chunk = 1; chunk <= strlen(from); chunk++) {
        memory_file file = {from, chunk};
        prof_trace trace;
        prof_device device;
        prof_range busy;
        collected got = {{0}, 0};
        qn_arena arena;
        qn_arena_init(&arena, 0);
        make_trace(&trace, &device, &busy, dialect, left_out);
        trace.has_kernel = has_kernel != 0;
        trace.devices.n = has_kernel == KERNELS_WITHOUT_DEVICE ? 0 : 1;
        trace.path = (const char *)(const void *)&file;
        prof_view_context context = {.arena = &arena, .trace = &trace, .copy_text = copy_chunks};
        prof_json *json = malloc(sizeof *json);
        assert_non_null(json);
        qn_prof_json_init(json, collect, &got);
        assert_int_equal(qn_prof_view_trace_view(&context, json, NULL), QN_OK);
        assert_int_equal(qn_prof_json_finish(json), QN_OK);
        assert_string_equal(got.text, to);
        free(json);
        qn_arena_destroy(&arena);
    }
}

#define COUNTER(v) "{\"ph\":\"C\", \"name\":\"GPU 0 Utilization\", \"pid\":0, \"ts\":" v "}}"
#define COUNTERS                                                                                                          \
    COUNTER("0, \"args\":{\"GPU Utilization\":1")                                                                         \
    ", " COUNTER("0, \"args\":{\"GPU Utilization\":0") ", " COUNTER("0, \"args\":{\"GPU Utilization\":1.0") ", " COUNTER( \
        "1, \"args\":{\"GPU Utilization\":0")

static void clean_text_passes_unchanged(void **state) {
    (void)state;
    const char *text = "{\"a\": [1, {\"traceEvents\": [NaN]}], \"traceEvents\" :\n [{\"x\": \"\\u00e9\\\\\\\"[,\"}, {}], "
                       "\"z\": []}";
    check(text, text, QN_PROFILE_UPSTREAM, UINT64_MAX, 0);
    check(text, text, QN_PROFILE_MLU_A, UINT64_MAX, 0);
}

static void counters_go_in_front_or_behind(void **state) {
    (void)state;
    check("{\"k\": \"traceEvents\", \"traceEvents\": [{\"a\": [1]}], \"n\": 1}",
          "{\"k\": \"traceEvents\", \"traceEvents\": [" COUNTERS ",{\"a\": [1]}], \"n\": 1}", QN_PROFILE_UPSTREAM, UINT64_MAX, 1);
    check("{\"traceEvents\": [{\"a\": [1]}], \"n\": 1}\n", "{\"traceEvents\": [{\"a\": [1]}, " COUNTERS "]}", QN_PROFILE_MLU_A,
          UINT64_MAX, 1);
    check("{\"traceEvents\": [{}], \"n\": [1], \"m\": 2}", "{\"traceEvents\": [{}, " COUNTERS "], \"n\": [1], \"m\": 2}",
          QN_PROFILE_MLU_B, UINT64_MAX, 1);
}

/* A kernel that names no device gives no counters, and no comma may wait for them. */
static void no_counters_leave_the_file_as_it_is(void **state) {
    static const qn_profile_dialect DIALECTS[] = {QN_PROFILE_UPSTREAM, QN_PROFILE_MLU_A, QN_PROFILE_MLU_B};
    const char *text = "{\"traceEvents\": [{\"a\": [1]}], \"n\": 1}\n";
    (void)state;
    for (size_t i = 0; i < sizeof DIALECTS / sizeof *DIALECTS; i++) {
        check(text, text, DIALECTS[i], UINT64_MAX, KERNELS_WITHOUT_DEVICE);
    }
}

static void one_event_can_be_left_out(void **state) {
    (void)state;
    const char *text = "{\"traceEvents\": [ {\"a\": [0, 1]},\n {\"b\": {}} , {\"c\": 2} ]}";
    check(text, "{\"traceEvents\": [\n {\"b\": {}} , {\"c\": 2} ]}", QN_PROFILE_UPSTREAM, 0, 0);
    check(text, "{\"traceEvents\": [ {\"a\": [0, 1]}, {\"c\": 2} ]}", QN_PROFILE_UPSTREAM, 1, 0);
    check(text, "{\"traceEvents\": [ {\"a\": [0, 1]},\n {\"b\": {}} ]}", QN_PROFILE_UPSTREAM, 2, 0);
}

static void what_a_browser_refuses_is_repaired(void **state) {
    (void)state;
    check("{\"traceEvents\": [{\"a\": \"x\ty\\q\\u12zz\\\\\", \"b\": N/A, \"c\": [N/A,NaN], \"d\": \"N/A\"}]}",
          "{\"traceEvents\": [{\"a\": \"x\\u0009y\\\\q\\\\u12zz\\\\\", \"b\": \"N/A\", \"c\": [\"N/A\",NaN], \"d\": \"N/A\"}]}",
          QN_PROFILE_UPSTREAM, UINT64_MAX, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clean_text_passes_unchanged),         cmocka_unit_test(counters_go_in_front_or_behind),
        cmocka_unit_test(no_counters_leave_the_file_as_it_is), cmocka_unit_test(one_event_can_be_left_out),
        cmocka_unit_test(what_a_browser_refuses_is_repaired),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
