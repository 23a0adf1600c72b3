/* Traces that nobody's program writes: numbers that are none. */
#include <stdarg.h>
#include <string.h>

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

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(keys_that_are_no_numbers_are_one_key)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
