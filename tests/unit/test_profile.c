/* The analyser through its public face: file names, broken files, limits, cancelling, and memory that ends anywhere. */
#include <string.h>
#include <zlib.h>

#include <quern/profile.h>

#include "folder_help.h"

static const char SMALL[] =
    "{\"deviceProperties\": [{\"name\": \"D\", \"totalGlobalMem\": 1073741824, \"computeMajor\": 7, \"computeMinor\": 5}],"
    " \"traceEvents\": ["
    "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#3\", \"pid\": 1, \"tid\": 7, \"ts\": 0, \"dur\": "
    "100},"
    "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"pid\": 1, \"tid\": 7, \"ts\": 10, \"dur\": 50,"
    " \"args\": {\"External id\": 5, \"Input Dims\": [[2, 3], []], \"Call stack\": \"a;b\"}},"
    "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"launch\", \"pid\": 1, \"tid\": 7, \"ts\": 20, \"dur\": 5,"
    " \"args\": {\"External id\": 5, \"correlation\": 9}},"
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\", \"pid\": 0, \"tid\": 7, \"ts\": 30, \"dur\": 40,"
    " \"args\": {\"device\": 0, \"correlation\": 9, \"External id\": 5, \"blocks per SM\": 0.5, \"grid\": [1, 1, 1]}},"
    "{\"ph\": \"X\", \"cat\": \"python_function\", \"name\": \"nn.Module: N\", \"pid\": 1, \"tid\": 7, \"ts\": 5, \"dur\": 60,"
    " \"args\": {\"Python id\": 1, \"Python module id\": 0}},"
    "{\"ph\": \"i\", \"name\": \"[memory]\", \"pid\": 1, \"tid\": 7, \"ts\": 15,"
    " \"args\": {\"Device Type\": 1, \"Device Id\": 0, \"Bytes\": 64, \"Addr\": 4096, \"Total Allocated\": 64, \"Total "
    "Reserved\": 64}}"
    "]}";

typedef struct text {
    char at[65536];
    size_t n;
} text;

static qn_status take(void *user, const char *bytes, size_t length) {
    text *into = user;
    if (into->n + length >= sizeof into->at) {
        return QN_IO;
    }
    memcpy(into->at + into->n, bytes, length);
    into->n += length;
    into->at[into->n] = 0;
    return QN_OK;
}

static void save_gz(const char *folder, const char *name, const char *bytes, size_t length) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, (unsigned)length), (int)length);
    assert_int_equal(gzclose(file), Z_OK);
}

/* Opens one file and loads it; the profile is closed again unless it is wanted. */
static qn_status load(const char *folder, const char *name, const qn_profile_options *options, qn_error *error,
                      qn_profile **keep) {
    char path[512];
    qn_profile *profile = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    qn_status status = qn_profile_open(path, options, &profile, error);
    if (status != QN_OK) {
        return status;
    }
    status = qn_profile_load(profile, 0, 0, 0, error);
    if (keep) {
        *keep = profile;
    } else {
        qn_profile_close(profile);
    }
    return status;
}

static qn_status load_text(void **state, const char *json, uint32_t flags, qn_error *error) {
    qn_profile_options options = qn_profile_options_default();
    options.flags = flags;
    save(*state, "t.pt.trace.json", json, strlen(json));
    return load(*state, "t.pt.trace.json", &options, error, NULL);
}

static void open_folder_numbers_spans_by_stamp(void **state) {
    qn_profile *profile = NULL;
    qn_error error;
    save(*state, "w.200.pt.trace.json", SMALL, sizeof SMALL - 1);
    save_gz(*state, "w.1000.pt.trace.json.gz", SMALL, sizeof SMALL - 1);
    save(*state, "v.1.2.pt.trace.json", SMALL, sizeof SMALL - 1);
    save(*state, "plain.pt.trace.json", SMALL, sizeof SMALL - 1);
    save(*state, "other.json", "{}", 2);
    assert_int_equal(qn_profile_open(*state, NULL, &profile, &error), QN_OK);
    assert_string_equal(qn_profile_run_name(profile, 0), ".");
    assert_null(qn_profile_run_name(profile, 1));
    assert_string_equal(qn_profile_worker_name(profile, 0, 0), "plain");
    assert_string_equal(qn_profile_worker_name(profile, 0, 1), "v.1");
    assert_string_equal(qn_profile_worker_name(profile, 0, 2), "w");
    assert_null(qn_profile_worker_name(profile, 0, 3));
    assert_string_equal(qn_profile_span_name(profile, 0, 0, 0), "default");
    assert_non_null(strstr(qn_profile_trace_path(profile, 0, 2, 0), "w.1000.")); /* "1000" comes before "200" */
    assert_string_equal(qn_profile_span_name(profile, 0, 2, 1), "2");
    text out = {{0}, 0};
    qn_profile_request request = qn_profile_request_default();
    request.worker = "w";
    request.span = "1";
    assert_int_equal(qn_profile_view(profile, "operation_table", &request, take, &out, &error), QN_OK);
    assert_non_null(strstr(out.at, "\"name\": \"aten::mm\", \"calls\": 1, \"device_self_duration\": 40"));
    request.span = "3";
    assert_int_equal(qn_profile_view(profile, "overview", &request, take, &out, &error), QN_ARGUMENT);
    qn_profile_close(profile);
}

static void broken_json_is_refused_with_its_byte(void **state) {
    qn_error error;
    assert_int_equal(load_text(state, "{\"traceEvents\": [{\"ph\": }]}", 0, &error), QN_FORMAT);
    assert_non_null(strstr(error.text, "byte 24"));
    assert_int_equal(load_text(state, "{\"traceEvents\": [{\"ph\": \"X\"", 0, &error), QN_FORMAT);
    assert_non_null(strstr(error.text, "byte 27"));
    assert_int_equal(load_text(state, "{\"traceEvents\": []} x", 0, &error), QN_FORMAT);
    assert_int_equal(load_text(state, "", 0, &error), QN_FORMAT);
    assert_int_equal(load_text(state, "{\"a\": 1}", 0, &error), QN_FORMAT);
    assert_int_equal(load_text(state, "{\"traceEvents\": {}}", 0, &error), QN_FORMAT);
    assert_int_equal(load_text(state, "\xef\xbb\xbf {\"traceEvents\": []} \n", 0, &error), QN_OK);
}

static void tolerance_ends_where_strict_begins(void **state) {
    static const char *const LAX[] = {
        "[]", "{\"traceEvents\": [5, {}]}", "{\"traceEvents\": [{\"ph\": \"X\", \"name\": \"a\", \"ts\": 1, \"dur\": 1}]}",
        "{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"a\\q\", \"ts\": 1, \"dur\": 1, \"tid\": 1}]}"};
    qn_error error;
    for (size_t i = 0; i < sizeof LAX / sizeof *LAX; i++) {
        assert_int_equal(load_text(state, LAX[i], 0, &error), QN_OK);
        assert_int_equal(load_text(state, LAX[i], QN_PROFILE_STRICT, &error), QN_FORMAT);
    }
    assert_int_equal(load_text(state, "{\"traceEvents\": [{\"name\": \"a\tb\", \"x\": N/A}]}", QN_PROFILE_STRICT, &error), QN_OK);
}

static void last_of_two_equal_keys_counts(void **state) {
    qn_profile *profile = NULL;
    qn_error error;
    static const char
        TWICE[] = "{\"traceEvents\": [{\"ph\": \"X\", \"name\": \"gone\"}], \"traceEvents\": ["
                  "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"a\", \"name\": \"b\", \"ts\": 1, \"dur\": 4, \"tid\": 1}]}";
    save(*state, "t.pt.trace.json", TWICE, sizeof TWICE - 1);
    assert_int_equal(load(*state, "t.pt.trace.json", NULL, &error, &profile), QN_OK);
    text out = {{0}, 0};
    assert_int_equal(qn_profile_view(profile, "tree", NULL, take, &out, &error), QN_OK);
    assert_non_null(strstr(out.at, "\"name\": \"b\""));
    qn_profile_info info = {.size = sizeof info};
    assert_int_equal(qn_profile_trace_info(profile, 0, 0, 0, &info), QN_OK);
    assert_int_equal(info.events_seen, 1);
    qn_profile_close(profile);
}

static void damaged_gzip_is_refused(void **state) {
    qn_error error;
    char path[512], bytes[4096];
    save_gz(*state, "t.pt.trace.json.gz", SMALL, sizeof SMALL - 1);
    snprintf(path, sizeof path, "%s/t.pt.trace.json.gz", (const char *)*state);
    FILE *file = fopen(path, "rb");
    size_t length = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_int_equal(load(*state, "t.pt.trace.json.gz", NULL, &error, NULL), QN_OK);
    save(*state, "t.pt.trace.json.gz", bytes, length / 2);
    assert_int_equal(load(*state, "t.pt.trace.json.gz", NULL, &error, NULL), QN_FORMAT);
    bytes[length / 2] ^= 0x55;
    save(*state, "t.pt.trace.json.gz", bytes, length);
    assert_int_equal(load(*state, "t.pt.trace.json.gz", NULL, &error, NULL), QN_FORMAT);
}

static void bomb_stops_at_the_limit(void **state) {
    qn_error error;
    qn_profile_options options = qn_profile_options_default();
    enum { BLANKS = 8 << 20 };
    char *blanks = malloc(BLANKS);
    assert_non_null(blanks);
    memset(blanks, ' ', BLANKS);
    save_gz(*state, "t.pt.trace.json.gz", blanks, BLANKS);
    free(blanks);
    options.max_text = 1 << 20;
    assert_int_equal(load(*state, "t.pt.trace.json.gz", &options, &error, NULL), QN_FORMAT);
    assert_non_null(strstr(error.text, "1048576"));
}

static void cancel_stops_and_can_be_tried_again(void **state) {
    volatile int cancel = 1;
    qn_error error;
    qn_profile *profile = NULL;
    qn_profile_options options = qn_profile_options_default();
    options.cancel = &cancel;
    save(*state, "t.pt.trace.json", SMALL, sizeof SMALL - 1);
    assert_int_equal(load(*state, "t.pt.trace.json", &options, &error, &profile), QN_CANCELLED);
    cancel = 0;
    assert_int_equal(qn_profile_load(profile, 0, 0, 0, &error), QN_OK);
    qn_profile_close(profile);
}

/* With every limit from nothing to enough, the answer is "no memory" or the views, never anything else. */
static void memory_that_ends_anywhere_is_reported(void **state) {
    qn_profile_options options = qn_profile_options_default();
    int enough = 0;
    save(*state, "t.pt.trace.json", SMALL, sizeof SMALL - 1);
    for (uint64_t limit = 1024; limit < 4u << 20 && enough < 3; limit += limit / 64) {
        qn_profile *profile = NULL;
        qn_error error;
        options.max_memory = limit;
        qn_status status = load(*state, "t.pt.trace.json", &options, &error, &profile);
        assert_true(status == QN_OK || status == QN_NO_MEMORY);
        for (int view = 0; status == QN_OK && qn_profile_view_name(view); view++) {
            text out = {{0}, 0};
            qn_status answer = qn_profile_view(profile, qn_profile_view_name(view), NULL, take, &out, &error);
            assert_true(answer == QN_OK || answer == QN_NO_MEMORY || answer == QN_UNSUPPORTED);
        }
        enough += status == QN_OK;
        qn_profile_close(profile);
    }
    assert_true(enough);
}

static void arguments_of_the_calls_are_checked(void **state) {
    qn_profile *profile = NULL;
    qn_error error;
    qn_profile_options options = qn_profile_options_default();
    assert_int_equal(qn_profile_open(NULL, NULL, &profile, &error), QN_ARGUMENT);
    assert_int_equal(qn_profile_open("/nonexistent/quern", NULL, &profile, &error), QN_IO);
    assert_int_equal(qn_profile_open(*state, NULL, &profile, &error), QN_ARGUMENT);
    options.flags = 1u << 31;
    assert_int_equal(qn_profile_open(*state, &options, &profile, &error), QN_ARGUMENT);
    options = qn_profile_options_default();
    options.size = 4;
    assert_int_equal(qn_profile_open(*state, &options, &profile, &error), QN_ARGUMENT);
    save(*state, "t.pt.trace.json", SMALL, sizeof SMALL - 1);
    assert_int_equal(load(*state, "t.pt.trace.json", NULL, &error, &profile), QN_OK);
    assert_int_equal(qn_profile_view(profile, "nothing", NULL, take, &profile, &error), QN_ARGUMENT);
    assert_int_equal(qn_profile_load(profile, 0, 1, 0, &error), QN_ARGUMENT);
    assert_null(qn_profile_span_name(profile, -1, 0, 0));
    qn_profile_close(profile);
    qn_profile_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(open_folder_numbers_spans_by_stamp),
        IN_FOLDER(broken_json_is_refused_with_its_byte),
        IN_FOLDER(tolerance_ends_where_strict_begins),
        IN_FOLDER(last_of_two_equal_keys_counts),
        IN_FOLDER(damaged_gzip_is_refused),
        IN_FOLDER(bomb_stops_at_the_limit),
        IN_FOLDER(cancel_stops_and_can_be_tried_again),
        IN_FOLDER(memory_that_ends_anywhere_is_reported),
        IN_FOLDER(arguments_of_the_calls_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
