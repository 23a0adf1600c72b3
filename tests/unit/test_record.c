/* The recorder: what is told comes out, nothing is lost without being counted, and the file is good for readers. */
#include "record_help.h"
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <quern/limits.h>
#include "prof/record_work.h"

static void op_is_written_with_shapes_operations_and_bytes(void **state) {
    (void)state;
    bench b;
    begin(&b);
    assert_int_equal(qn_dispatch(b.context, &b.add, NULL), QN_OK);
    assert_int_equal(qn_dispatch(b.context, &b.product, NULL), QN_OK);
    char *text = write_text(&b);
    assert_non_null(strstr(text, "\"name\":\"quern::add\""));
    assert_non_null(strstr(text, "\"Input Dims\":[[8,8],[8,8]],\"Input type\":[\"f32\",\"f32\"],\"flops\":64,\"bytes\":768"));
    assert_non_null(strstr(text, "\"name\":\"quern::mul_mat\""));
    assert_non_null(strstr(text, "\"flops\":1024,\"bytes\":768")); /* 2 * 8 * 8 * 8 */
    assert_non_null(strstr(text, "\"External id\":1,"));
    assert_non_null(strstr(text, "\"External id\":2,"));
    assert_non_null(strstr(text, "\"PyTorch Profiler (0)\""));
    assert_non_null(strstr(text, "\"Record Window End\""));
    assert_non_null(strstr(text, "{\"name\":\"main\"}"));
    assert_int_equal(info_of(&b).events, 2);
    free(text);
    end(&b);
}

static void rejected_op_is_not_written(void **state) {
    (void)state;
    bench b;
    begin(&b);
    b.a.rank = 99;
    assert_int_equal(qn_dispatch(b.context, &b.add, NULL), QN_INVALID);
    char *text = write_text(&b);
    assert_int_equal(occurrences(text, "cpu_op"), 0);
    free(text);
    end(&b);
}

static void without_shapes_none_are_written(void **state) {
    (void)state;
    bench b;
    qn_recorder_options options = begin_options(&b);
    options.flags = 0;
    begin_with(&b, &options);
    run_ops(&b, 3);
    char *text = write_text(&b);
    assert_int_equal(occurrences(text, "cpu_op"), 3);
    assert_int_equal(occurrences(text, "Input Dims"), 0);
    free(text);
    end(&b);
}

static void strings_are_escaped(void **state) {
    (void)state;
    bench b;
    begin(&b);
    qn_record_push(b.context, QN_PART_RANGE, "a\"b\\c\n\x01 \xc3\xa9 \xff\xc3 <script>");
    run_ops(&b, 1);
    qn_record_pop(b.context);
    char *text = write_text(&b);
    assert_int_equal(occurrences(text, "a\\\"b\\\\c\\n\\u0001 \xc3\xa9 \\ufffd\\ufffd <script>"), 3); /* its name, two origins */
    free(text);
    end(&b);
}

static void parts_become_ranges_modules_and_origins(void **state) {
    (void)state;
    bench b;
    begin(&b);
    qn_record_push(b.context, QN_PART_MODULE, "layer 3");
    qn_record_push(b.context, QN_PART_MODULE, "attention");
    run_ops(&b, 1);
    qn_record_pop(b.context);
    qn_record_pop(b.context);
    qn_record_push(b.context, QN_PART_OPTIMIZER, "AdamW");
    qn_record_pop(b.context);
    qn_record_loader_begin(b.context, "shards");
    qn_record_loader_end(b.context);
    qn_record_pop(b.context); /* one too many is nothing */
    char *text = write_text(&b);
    assert_int_equal(occurrences(text, "\"origin\":\"layer 3/attention\""), 2);
    assert_non_null(strstr(text, "\"name\":\"nn.Module: attention\""));
    assert_non_null(strstr(text, "\"Python id\":2,\"Python parent id\":1,\"Python module id\":2"));
    assert_non_null(strstr(text, "\"Python id\":1,\"Python parent id\":null,\"Python module id\":1"));
    assert_non_null(strstr(text, "\"name\":\"Optimizer.step#AdamW.step\""));
    assert_non_null(strstr(text, "\"name\":\"enumerate(DataLoader)#shards.__next__\""));
    free(text);
    end(&b);
}

static void ranges_deeper_than_the_limit_are_balanced(void **state) {
    (void)state;
    bench b;
    begin(&b);
    for (int i = 0; i < 100; i++) qn_record_push(b.context, QN_PART_RANGE, "deep");
    run_ops(&b, 1);
    for (int i = 0; i < 100; i++) qn_record_pop(b.context);
    run_ops(&b, 1);
    char *text = write_text(&b);
    assert_int_equal(occurrences(text, "user_annotation"), 64);
    assert_int_equal(occurrences(text, "\"origin\""), 65);
    free(text);
    end(&b);
}

static void names_beyond_the_limit_are_counted(void **state) {
    (void)state;
    bench b;
    qn_recorder_options options = begin_options(&b);
    options.max_labels = 4;
    begin_with(&b, &options);
    for (int i = 0; i < 6; i++) {
        char label[32];
        snprintf(label, sizeof label, "part %d", i);
        qn_record_push(b.context, QN_PART_RANGE, label);
        run_ops(&b, 1);
        qn_record_pop(b.context);
    }
    char *text = write_text(&b);
    assert_non_null(strstr(text, "\"origin\":\"part 2\""));
    assert_null(strstr(text, "part 3"));
    assert_int_equal(info_of(&b).labels_lost, 3);
    free(text);
    end(&b);
}

/* A ring of 1024 words holds 1024 / 7 ops without shapes. */
enum { SMALL_RING_OPS = 1024 / 7, MANY = 1000 };

static void full_ring_drops_the_newest(void **state) {
    (void)state;
    bench b;
    qn_recorder_options options = begin_options(&b);
    options.flags = 0;
    options.ring_bytes = 1;
    begin_with(&b, &options);
    run_ops(&b, MANY);
    assert_int_equal(info_of(&b).dropped, MANY - SMALL_RING_OPS);
    char *text = write_text(&b);
    assert_int_equal(occurrences(text, "cpu_op"), SMALL_RING_OPS);
    assert_non_null(strstr(text, "\"External id\":1,"));
    assert_non_null(strstr(text, "\"dropped\":854"));
    free(text);
    run_ops(&b, 5); /* there is room again */
    text = write_text(&b);
    assert_int_equal(occurrences(text, "cpu_op"), 5);
    assert_non_null(strstr(text, "\"dropped\":0"));
    assert_int_equal(info_of(&b).dropped, MANY - SMALL_RING_OPS);
    free(text);
    end(&b);
}

static void full_ring_drops_the_oldest(void **state) {
    (void)state;
    bench b;
    qn_recorder_options options = begin_options(&b);
    options.flags = QN_RECORD_DROP_OLDEST;
    options.ring_bytes = 1;
    begin_with(&b, &options);
    run_ops(&b, MANY);
    char *text = write_text(&b);
    assert_int_equal(occurrences(text, "cpu_op"), SMALL_RING_OPS);
    assert_non_null(strstr(text, "\"External id\":1000,"));
    assert_null(strstr(text, "\"External id\":1,"));
    assert_non_null(strstr(text, "\"dropped\":854"));
    free(text);
    run_ops(&b, 5);
    text = write_text(&b);
    assert_int_equal(occurrences(text, "cpu_op"), 5);
    assert_non_null(strstr(text, "\"dropped\":0"));
    free(text);
    end(&b);
}

static void schedule_writes_one_file_for_each_active_phase(void **state) {
    (void)state;
    bench b;
    qn_recorder_options options = begin_options(&b);
    options.wait = 1;
    options.warmup = 1;
    options.active = 2;
    options.repeat = 2;
    begin_with(&b, &options);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(qn_record_step(b.context, &b.error), QN_OK);
        run_ops(&b, 3);
    }
    assert_int_equal(info_of(&b).files, 2);
    assert_int_equal(info_of(&b).events, 2 * (2 * 3 + 2)); /* ops and steps */
    assert_int_equal(info_of(&b).dropped, 0);
    assert_int_equal(count_files(&b, 0), 2);
    end(&b);
}

static void steps_last_until_the_next(void **state) {
    (void)state;
    bench b;
    begin(&b);
    for (int i = 0; i < 3; i++) {
        qn_record_step(b.context, NULL);
        run_ops(&b, 2);
    }
    char *text = write_text(&b);
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "\"ProfilerStep#%d\"", i);
        assert_int_equal(occurrences(text, name), 1);
    }
    free(text);
    run_ops(&b, 1); /* the last step goes on in the next file */
    text = write_text(&b);
    assert_int_equal(occurrences(text, "\"ProfilerStep#2\""), 1);
    free(text);
    end(&b);
}

static void memory_and_counters_are_written(void **state) {
    (void)state;
    bench b;
    begin(&b);
    qn_record_memory(b.context, (const void *)(uintptr_t)4096, 256, 256, 1024, -1);
    qn_record_memory(b.context, (const void *)(uintptr_t)4096, -256, 0, 1024, 2);
    qn_record_counter(b.context, "tokens/s", 12.5);
    qn_record_counter(b.context, "nothing", NAN);
    char *text = write_text(&b);
    assert_non_null(strstr(text, "\"args\":{\"Addr\":4096,\"Bytes\":256,\"Total Allocated\":256,\"Total Reserved\":1024,"
                                 "\"Device Id\":-1,\"Device Type\":0}"));
    assert_non_null(
        strstr(text, "\"Bytes\":-256,\"Total Allocated\":0,\"Total Reserved\":1024,\"Device Id\":2,\"Device Type\":1"));
    assert_non_null(strstr(text, "\"name\":\"tokens/s\""));
    assert_non_null(strstr(text, "{\"value\":12.5}"));
    assert_non_null(strstr(text, "{\"value\":null}"));
    free(text);
    end(&b);
}

static void times_are_microseconds_with_three_places_or_none(void **state) {
    (void)state;
    for (int whole = 0; whole < 2; whole++) {
        bench b;
        qn_recorder_options options = begin_options(&b);
        if (whole) options.flags |= QN_RECORD_WHOLE_US;
        begin_with(&b, &options);
        uint64_t now = qn_record_time(b.context);
        qn_record_host work = {.size = sizeof work, .name = "piece", .start = now, .end = now + 1234567};
        assert_int_not_equal(qn_record_host_work(b.context, &work), 0);
        char *text = write_text(&b);
        assert_int_equal(strstr(text, "\"dur\":1234.567,") != NULL, !whole);
        if (whole) assert_true(strstr(text, "\"dur\":1234,") || strstr(text, "\"dur\":1235,"));
        free(text);
        end(&b);
    }
}

static void nothing_happens_without_a_recorder(void **state) {
    (void)state;
    bench b;
    begin_options(&b);
    qn_record_push(b.context, QN_PART_RANGE, "x");
    qn_record_pop(b.context);
    qn_record_memory(b.context, NULL, 1, 1, 1, 0);
    qn_record_counter(b.context, "x", 1);
    qn_record_link(b.context, 1, 2);
    qn_record_runtime(b.context, "x", 1, 2, 3);
    assert_int_equal(qn_record_step(b.context, NULL), QN_OK);
    assert_int_equal(qn_record_time(b.context), 0);
    assert_int_equal(qn_record_open_op(NULL), 0);
    assert_int_equal(qn_record_correlation(b.context), 0);
    qn_recorder_detach(b.context);
    qn_recorder_destroy(NULL);
    end(&b);
}

static void detaching_and_destroying_in_any_order_is_safe(void **state) {
    (void)state;
    bench b;
    begin(&b);
    assert_int_equal(qn_recorder_attach(b.recorder, b.context, NULL, &b.error), QN_ARGUMENT);
    run_ops(&b, 1);
    qn_recorder_detach(b.context);
    run_ops(&b, 1);
    assert_int_equal(qn_recorder_attach(b.recorder, b.context, NULL, &b.error), QN_OK);
    run_ops(&b, 1);
    qn_context_destroy(b.context); /* while attached */
    b.context = NULL;
    char *text = write_text(&b);
    assert_int_equal(occurrences(text, "cpu_op"), 2);
    assert_non_null(strstr(text, "{\"name\":\"thread 2\"}"));
    free(text);
    assert_int_equal(qn_context_create(NULL, &b.context), QN_OK);
    assert_int_equal(qn_recorder_attach(b.recorder, b.context, NULL, &b.error), QN_OK);
    qn_recorder_destroy(b.recorder); /* while attached */
    b.recorder = NULL;
    run_ops(&b, 1);
    end(&b);
}

typedef struct failing {
    int left;
} failing;

static void *fail_later(void *user, size_t bytes, size_t align) {
    void *memory = NULL;
    if (((failing *)user)->left-- <= 0) return NULL;
    return posix_memalign(&memory, align, bytes) == 0 ? memory : NULL;
}

static void give_back(void *user, void *memory, size_t bytes) {
    (void)user;
    (void)bytes;
    free(memory);
}

static void no_memory_and_bad_options_are_told(void **state) {
    (void)state;
    bench b;
    qn_recorder_options options = begin_options(&b);
    failing f = {0};
    options.allocator = (qn_allocator){&f, fail_later, give_back};
    assert_int_equal(qn_recorder_create(&options, &b.recorder, &b.error), QN_NO_MEMORY);
    f.left = 1;
    assert_int_equal(qn_recorder_create(&options, &b.recorder, &b.error), QN_OK);
    assert_int_equal(qn_recorder_attach(b.recorder, b.context, NULL, &b.error), QN_NO_MEMORY);
    run_ops(&b, 1);
    qn_recorder_destroy(b.recorder);
    options = qn_recorder_options_default();
    assert_int_equal(qn_recorder_create(&options, &b.recorder, &b.error), QN_ARGUMENT);
    options.folder = b.folder;
    options.flags = 1u << 30;
    assert_int_equal(qn_recorder_create(&options, &b.recorder, &b.error), QN_ARGUMENT);
    assert_null(b.recorder);
    end(&b);
}

static void *take_counted(void *user, size_t bytes, size_t align) {
    void *memory = NULL;
    if (posix_memalign(&memory, align, bytes) != 0) return NULL;
    *(size_t *)user += bytes;
    return memory;
}

static void give_counted(void *user, void *memory, size_t bytes) {
    *(size_t *)user -= bytes;
    free(memory);
}

/* A program may make a context for each of its requests. */
static void contexts_that_are_gone_leave_no_ring_behind_a_file(void **state) {
    (void)state;
    bench b;
    size_t held = 0, first = 0;
    qn_recorder_options options = begin_options(&b);
    options.allocator = (qn_allocator){&held, take_counted, give_counted};
    options.max_labels = 2;
    begin_with(&b, &options);
    for (int i = 0; i < 4; i++) {
        qn_context *other;
        assert_int_equal(qn_context_create(NULL, &other), QN_OK);
        assert_int_equal(qn_recorder_attach(b.recorder, other, NULL, &b.error), QN_OK);
        for (int k = 0; k < 3; k++) qn_record_counter(other, k == 0 ? "a" : k == 1 ? "b" : "c", 1);
        assert_int_equal(qn_dispatch(other, &b.add, NULL), QN_OK);
        if (i % 2) qn_recorder_detach(other);
        qn_context_destroy(other);
        run_ops(&b, 1);
        char *text = write_text(&b);
        assert_int_equal(occurrences(text, "cpu_op"), 2);
        free(text);
        first = i ? first : held;
        assert_int_equal(held, first);
        assert_int_equal(info_of(&b).labels_lost, 2 * (i + 1));
    }
    end(&b);
    assert_int_equal(held, 0);
}

static void folder_is_made_and_a_bad_one_is_told(void **state) {
    (void)state;
    bench b;
    char inner[128], outer[128];
    qn_recorder_options options = begin_options(&b);
    snprintf(inner, sizeof inner, "%s/run/1", b.folder);
    snprintf(outer, sizeof outer, "%s/run", b.folder);
    options.folder = inner;
    begin_with(&b, &options);
    const char *path;
    assert_int_equal(qn_recorder_write(b.recorder, &path, &b.error), QN_OK);
    unlink(path);
    assert_int_equal(rmdir(inner), 0);
    assert_int_equal(rmdir(outer), 0);
    fclose(fopen(outer, "w")); /* a file where the folder should be */
    assert_int_equal(qn_recorder_write(b.recorder, &path, &b.error), QN_IO);
    assert_non_null(strstr(b.error.text, "run"));
    assert_non_null(strstr(b.error.text, strerror(ENOTDIR))); /* in words, not as a number */
    assert_null(path);
    end(&b);
}

/* A write that fails as the system would let one: no file to open, none to grow. */
static qn_status write_within(bench *b, int what, rlim_t most) {
    struct rlimit before, low;
    assert_int_equal(getrlimit(what, &before), 0);
    low = before;
    low.rlim_cur = most;
    assert_int_equal(setrlimit(what, &low), 0);
    qn_status status = qn_recorder_write(b->recorder, NULL, &b->error);
    assert_int_equal(setrlimit(what, &before), 0);
    return status;
}

static void what_a_failed_file_lost_is_counted(void **state) {
    (void)state;
    bench b;
    begin(&b);
    signal(SIGXFSZ, SIG_IGN);
    run_ops(&b, 100);
    assert_int_equal(write_within(&b, RLIMIT_NOFILE, 0), QN_IO);
    assert_int_equal(info_of(&b).dropped, 0); /* nothing was taken yet */
    char *text = write_text(&b);
    assert_int_equal(occurrences(text, "cpu_op"), 100);
    free(text);
    run_ops(&b, 30);
    assert_int_equal(write_within(&b, RLIMIT_FSIZE, 500), QN_IO);
    assert_int_equal(info_of(&b).dropped, 30);
    run_ops(&b, 2);
    text = write_text(&b);
    assert_int_equal(occurrences(text, "cpu_op"), 2);
    assert_non_null(strstr(text, "\"dropped\":30"));
    free(text);
    assert_int_equal(info_of(&b).dropped, 30);
    assert_int_equal(count_files(&b, 0), 2);
    end(&b);
}

static void a_folder_of_no_use_is_told_before_anything_is_recorded(void **state) {
    (void)state;
    bench b;
    char file[128], inner[160];
    qn_recorder_options options = begin_options(&b);
    snprintf(file, sizeof file, "%s/file", b.folder);
    snprintf(inner, sizeof inner, "%s/run", file);
    fclose(fopen(file, "w"));
    const char *const bad[] = {file, inner, "/dev/null"};
    for (int i = 0; i < 3; i++) {
        options.folder = bad[i];
        b.error.text[0] = 0;
        assert_int_equal(qn_recorder_create(&options, &b.recorder, &b.error), QN_IO);
        assert_null(b.recorder);
        assert_non_null(strstr(b.error.text, i < 2 ? file : bad[i]));
    }
    assert_int_equal(unlink(file), 0);
    options.folder = b.folder;
    assert_int_equal(qn_recorder_create(&options, &b.recorder, &b.error), QN_OK);
    end(&b); /* where it would be told if trying the folder left something there */
}

static void environment_names_the_folder(void **state) {
    (void)state;
    unsetenv("QUERN_PROFILE");
    assert_null(qn_recorder_environment());
    setenv("QUERN_PROFILE", "", 1);
    assert_null(qn_recorder_environment());
    setenv("QUERN_PROFILE", "logs", 1);
    assert_string_equal(qn_recorder_environment(), "logs");
    unsetenv("QUERN_PROFILE");
}

static void limits_are_measured_and_written(void **state) {
    (void)state;
    qn_limits limits;
    qn_error error;
    limits.size = 1;
    assert_int_equal(qn_limits_measure(10, &limits, &error), QN_ARGUMENT);
    limits.size = sizeof limits;
    assert_int_equal(qn_limits_measure(5, &limits, &error), QN_ARGUMENT);
    qn_limits_all all = {.roof = {.size = sizeof all}};
    assert_int_equal(qn_limits_measure(10, &all.roof, &error), QN_OK);
    assert_true(all.roof.size == sizeof all && all.roof.cores > 0 && all.roof.gflops_core > 0);
    assert_true(all.memory.read > 0 && all.cache.triad > 0 && all.memory_core.copy > 0 && all.cache_core.write > 0);
    assert_true(all.roof.read_gbps == all.memory.read && all.roof.triad_gbps_core == all.memory_core.triad);
    assert_true((all.dots > 0) == (all.dots_core > 0) && (all.tiles > 0) == (all.tiles_core > 0));
    bench b;
    qn_recorder_options options = begin_options(&b);
    options.flags |= QN_RECORD_LIMITS;
    begin_with(&b, &options);
    char *text = write_text(&b);
    const char *at = strstr(text, "\"quernLimits\":{\"cores\":");
    assert_non_null(at);
    assert_true(strtod(strstr(at, "\"gflops\":") + 9, NULL) > 0);
    assert_true(strtod(strstr(at, "\"gbps\":") + 7, NULL) > 0);
    free(text);
    end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(op_is_written_with_shapes_operations_and_bytes),
        cmocka_unit_test(rejected_op_is_not_written),
        cmocka_unit_test(without_shapes_none_are_written),
        cmocka_unit_test(strings_are_escaped),
        cmocka_unit_test(parts_become_ranges_modules_and_origins),
        cmocka_unit_test(ranges_deeper_than_the_limit_are_balanced),
        cmocka_unit_test(names_beyond_the_limit_are_counted),
        cmocka_unit_test(full_ring_drops_the_newest),
        cmocka_unit_test(full_ring_drops_the_oldest),
        cmocka_unit_test(schedule_writes_one_file_for_each_active_phase),
        cmocka_unit_test(steps_last_until_the_next),
        cmocka_unit_test(memory_and_counters_are_written),
        cmocka_unit_test(times_are_microseconds_with_three_places_or_none),
        cmocka_unit_test(nothing_happens_without_a_recorder),
        cmocka_unit_test(detaching_and_destroying_in_any_order_is_safe),
        cmocka_unit_test(no_memory_and_bad_options_are_told),
        cmocka_unit_test(contexts_that_are_gone_leave_no_ring_behind_a_file),
        cmocka_unit_test(folder_is_made_and_a_bad_one_is_told),
        cmocka_unit_test(what_a_failed_file_lost_is_counted),
        cmocka_unit_test(a_folder_of_no_use_is_told_before_anything_is_recorded),
        cmocka_unit_test(environment_names_the_folder),
        cmocka_unit_test(limits_are_measured_and_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
