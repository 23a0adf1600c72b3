/* Traces that nobody's program writes: numbers that are none, and nesting and width that would take hours if their cost grew with
 * their square. */
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include <quern/profile.h>

#include "folder_help.h"

/* ---- Writing a trace ---------------------------------------------------------------------------------------------- */

typedef struct writer {
    FILE *file;
    char *text;
    size_t length;
    int any;
} writer;

static void begin(writer *w) {
    memset(w, 0, sizeof *w);
    w->file = open_memstream(&w->text, &w->length);
    assert_non_null(w->file);
    fputs("{\"traceEvents\": [", w->file);
}

static void end(writer *w, void **state, const char *name) {
    fputs("]}", w->file);
    assert_int_equal(fclose(w->file), 0);
    save(*state, name, w->text, w->length);
    free(w->text);
}

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...) {
    va_list list;
    va_start(list, format);
    fputs(w->any++ ? ",\n" : "", w->file);
    vfprintf(w->file, format, list);
    va_end(list);
}

/* A complete event; `args` as JSON. */
static void put_event(writer *w, const char *category, const char *name, int tid, int ts, int dur, const char *args) {
    put(w, "{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": 0, \"tid\": %d, \"ts\": %d, \"dur\": %d, \"args\": {%s}}",
        category, name, tid, ts, dur, args);
}

static void put_flow(writer *w, char phase, int id, int tid, int ts) {
    put(w, "{\"ph\": \"%c\", \"cat\": \"fwdbwd\", \"name\": \"f\", \"id\": %d, \"pid\": 0, \"tid\": %d, \"ts\": %d}", phase, id,
        tid, ts);
}

/* ---- Asking ------------------------------------------------------------------------------------------------------- */

static qn_status drop(void *user, const char *bytes, size_t length) {
    (void)bytes;
    *(size_t *)user += length;
    return QN_OK;
}

static qn_profile *open_trace(void **state, const char *name, uint32_t flags) {
    char path[512];
    qn_profile *profile = NULL;
    qn_profile_options options = qn_profile_options_default();
    options.flags = flags;
    snprintf(path, sizeof path, "%s/%s", (const char *)*state, name);
    assert_int_equal(qn_profile_open(path, &options, &profile, NULL), QN_OK);
    return profile;
}

/* ---- Numbers that are none ---------------------------------------------------------------------------------------- */

static void keys_that_are_no_numbers_are_one_key(void **state) {
    writer w;
    begin(&w);
    put_event(&w, "cpu_op", "aten::mm", 1, 0, 10, "\"External id\": NaN");
    put_event(&w, "cuda_runtime", "launch", 1, 1, 2, "\"External id\": NaN, \"correlation\": NaN");
    put_event(&w, "kernel", "k", 7, 3, 4,
              "\"External id\": -nan, \"correlation\": -nan, \"device\": NaN, \"blocks per SM\": NaN");
    put_event(&w, "kernel", "k", 7, 8, 4, "\"correlation\": NaN, \"device\": nan");
    put_event(&w, "python_function", "nn.Module: M", 1, 0, 10,
              "\"Python id\": NaN, \"Python parent id\": NaN, \"Python module id\": NaN");
    put(&w, "{\"ph\": \"i\", \"name\": \"[memory]\", \"tid\": 1, \"ts\": 4, \"args\": {\"Addr\": NaN, \"Bytes\": 8, "
            "\"Total Allocated\": NaN, \"Device Type\": 1, \"Device Id\": NaN}}");
    put(&w, "{\"ph\": \"s\", \"cat\": \"fwdbwd\", \"name\": \"f\", \"id\": NaN, \"ts\": 0}");
    put(&w, "{\"ph\": \"f\", \"cat\": \"fwdbwd\", \"name\": \"f\", \"id\": NaN, \"ts\": 0}");
    end(&w, state, "t.json");
    qn_profile *profile = open_trace(state, "t.json", 0);
    qn_error error;
    assert_int_equal(qn_profile_load(profile, 0, 0, 0, &error), QN_OK);
    qn_profile_info info = {.size = sizeof info};
    assert_int_equal(qn_profile_trace_info(profile, 0, 0, 0, &info), QN_OK);
    assert_int_equal(info.orphan_kernels, 0); /* both found their call */
    for (int view = 0; qn_profile_view_name(view); view++) {
        size_t length = 0;
        qn_status status = qn_profile_view(profile, qn_profile_view_name(view), NULL, drop, &length, &error);
        assert_true(status == QN_OK || status == QN_UNSUPPORTED);
    }
    qn_profile_close(profile);
}

/* ---- Depth and width ---------------------------------------------------------------------------------------------- */

typedef void (*shape_fn)(writer *w, int n);

static void same_key(writer *w, int n) {
    for (int i = 0; i < n; i++) {
        put_event(w, "kernel", "k", 7, i, 1, "\"correlation\": NaN");
    }
}

/* Operators each in the one before it, all within [ts, ts + 2 n]. */
static void put_nested(writer *w, int n, int tid, int ts) {
    for (int i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "op%d", i);
        put_event(w, "cpu_op", name, tid, ts + i, 2 * n - 2 * i, "");
    }
}

/* Every link leads to the innermost operator of deep backward work. */
static void links_into_the_deep(writer *w, int n) {
    put_event(w, "python_function", "nn.Module: M", 1, 0, 1, "\"Python id\": 0, \"Python module id\": 0");
    put_event(w, "cpu_op", "autograd::engine::evaluate_function: B", 2, 10, 4 * n, "");
    put_nested(w, n / 2, 2, 11);
    for (int i = 0; i < n / 2; i++) {
        put_flow(w, 's', i, 1, i);
        put_flow(w, 'f', i, 2, 11 + n / 2 - 1);
    }
}

static void memory_in_the_deep(writer *w, int n) {
    put_nested(w, n / 2, 1, 0);
    for (int i = 0; i < n / 2; i++) {
        put(w,
            "{\"ph\": \"i\", \"name\": \"[memory]\", \"tid\": 1, \"ts\": %d, \"args\": {\"Addr\": %d, \"Bytes\": 8, "
            "\"Device Type\": 0, \"Device Id\": -1}}",
            i, i);
    }
}

/* Calls that begin in the innermost operator and outlast all but the root. */
static void calls_past_the_end(writer *w, int n) {
    put_nested(w, n / 2, 1, 0);
    for (int i = 0; i < n / 2; i++) {
        put_event(w, "cuda_runtime", "launch", 1, n / 2, 10 * n, "");
    }
}

static void labels_in_the_deep(writer *w, int n) {
    put_nested(w, n, 1, 0);
    put_event(w, "cpu_op", "op", 1, 4 * n, 1, "\"origin\": \"part\"");
}

static void steps_with_collectives(writer *w, int n) {
    for (int i = 0; i < n / 2; i++) {
        char text[64];
        snprintf(text, sizeof text, "ProfilerStep#%d", i);
        put_event(w, "user_annotation", text, 1, 10 * i, 10, "");
        snprintf(text, sizeof text, "\"External id\": %d", i);
        put_event(w, "cpu_op", "nccl:all_reduce", 2, 10 * i + 1, 5, text);
    }
}

static void wide_modules(writer *w, int n, char letter) {
    for (int i = 0; i < n; i++) {
        char name[64], args[64];
        snprintf(name, sizeof name, "nn.Module: %c%d", letter, i);
        snprintf(args, sizeof args, "\"Python id\": %d, \"Python module id\": 0", i);
        put_event(w, "python_function", name, 1, 2 * i, 1, args);
    }
}

static void wide_modules_a(writer *w, int n) { wide_modules(w, n, 'a'); }

static void wide_modules_b(writer *w, int n) { wide_modules(w, n, 'b'); }

/* Sums of which a quicksort by the median of three cuts off two at a time, in the order in which the table of kernels is sorted:
 * names downward. At the first cuts the least lie in front and in the middle, the next least two behind each of these. */
static void kernels_against_the_sort(writer *w, int n) {
    int middle = (n - 1) / 2;
    for (int i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "k%08d", n - 1 - i);
        put_event(w, "kernel", name, 7, i, 1 + (i >= middle ? 2 * (i - middle) + 1 : i % 2 ? 2 * n + i : i), "");
    }
}

/* Seconds of this process for one view of a trace of that shape. */
static double cost(void **state, shape_fn shape, shape_fn other, int n, const char *view, uint32_t flags) {
    writer w;
    begin(&w);
    shape(&w, n);
    end(&w, state, "t.json");
    begin(&w);
    (other ? other : shape)(&w, n);
    end(&w, state, "u.json");
    clock_t before = clock();
    size_t length = 0;
    qn_error error = {QN_OK, ""};
    qn_profile_request request = qn_profile_request_default();
    qn_profile *profile = open_trace(state, "t.json", flags);
    request.against = open_trace(state, "u.json", flags);
    assert_int_equal(qn_profile_view(profile, view, &request, drop, &length, &error), QN_OK);
    assert_true(length > 0);
    qn_profile_close(profile);
    qn_profile_close(request.against);
    return (double)(clock() - before) / CLOCKS_PER_SEC;
}

/* Four times as much takes about four times as long; what grows with the square takes sixteen times. */
static void cost_grows_with_the_size(void **state) {
    static const struct {
        shape_fn shape, other;
        const char *view;
        uint32_t flags;
    } CASES[] = {{same_key, NULL, "overview", 0},
                 {links_into_the_deep, NULL, "overview", 0},
                 {memory_in_the_deep, NULL, "memory", 0},
                 {calls_past_the_end, NULL, "overview", QN_PROFILE_OWNER_TIME},
                 {labels_in_the_deep, NULL, "parts", 0},
                 {steps_with_collectives, NULL, "distributed_waittime", 0},
                 {steps_with_collectives, NULL, "distributed_overlap", 0},
                 {kernels_against_the_sort, NULL, "kernel_table", 0},
                 {wide_modules_a, wide_modules_b, "diff", 0}};
    enum { SMALL = 25000 };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        double small = cost(state, CASES[i].shape, CASES[i].other, SMALL, CASES[i].view, CASES[i].flags);
        double large = cost(state, CASES[i].shape, CASES[i].other, 4 * SMALL, CASES[i].view, CASES[i].flags);
        if (large > 8 * small + 0.5) {
            fail_msg("case %zu, %s: %.2f s, then %.2f s", i, CASES[i].view, small, large);
        }
    }
}

/* What cannot be linear is refused before it is begun. */
static void steps_over_one_another_are_refused(void **state) {
    enum { N = 25000 };
    writer w;
    begin(&w);
    for (int i = 0; i < N; i++) {
        put_event(&w, "user_annotation", "ProfilerStep#1", 1, 0, 4 * N, "");
        put_event(&w, "cpu_op", "op", 2, 4 * i, 1, "");
    }
    end(&w, state, "t.json");
    qn_profile *profile = open_trace(state, "t.json", 0);
    qn_error error;
    assert_int_equal(qn_profile_load(profile, 0, 0, 0, &error), QN_FORMAT);
    assert_non_null(strstr(error.text, "its 25000 steps lie over one another"));
    qn_profile_close(profile);
}

static void modules_in_modules_are_compared_up_to_a_depth(void **state) {
    enum { N = 25000 };
    writer w;
    begin(&w);
    for (int i = 0; i < N; i++) {
        put_event(&w, "python_function", "nn.Module: M", 1, i, 2 * N - 2 * i, "\"Python id\": 1, \"Python module id\": 0");
    }
    end(&w, state, "t.json");
    qn_profile *profile = open_trace(state, "t.json", 0);
    size_t length = 0;
    qn_error error;
    assert_int_equal(qn_profile_view(profile, "diff", NULL, drop, &length, &error), QN_UNSUPPORTED);
    assert_non_null(strstr(error.text, "modules lie too deep in one another"));
    qn_profile_close(profile);
}

/* ---- Many of a kind ----------------------------------------------------------------------------------------------- */

static qn_status find_last(void *user, const char *bytes, size_t length) {
    static const char WANTED[] = "\"process\": \"the last\"";
    int *found = user;
    for (size_t i = 0; i + sizeof WANTED - 1 <= length; i++) {
        *found += memcmp(bytes + i, WANTED, sizeof WANTED - 1) == 0;
    }
    return QN_OK;
}

static void every_process_has_its_name(void **state) {
    enum { N = 5000 };
    writer w;
    begin(&w);
    for (int i = 1; i <= N; i++) {
        put(&w, "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %d, \"args\": {\"name\": \"%s\"}}", i,
            i < N ? "one" : "the last");
    }
    put(&w, "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"op\", \"pid\": %d, \"tid\": 1, \"ts\": 0, \"dur\": 1}", N);
    end(&w, state, "t.json");
    qn_profile *profile = open_trace(state, "t.json", 0);
    int found = 0;
    assert_int_equal(qn_profile_view(profile, "timeline", NULL, find_last, &found, NULL), QN_OK);
    assert_int_equal(found, 1);
    qn_profile_close(profile);
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(keys_that_are_no_numbers_are_one_key), IN_FOLDER(cost_grows_with_the_size),
                                       IN_FOLDER(steps_over_one_another_are_refused),
                                       IN_FOLDER(modules_in_modules_are_compared_up_to_a_depth),
                                       IN_FOLDER(every_process_has_its_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
