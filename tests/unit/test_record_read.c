/* The recorder against the analyser: what one writes, the other reads with nothing dropped, nothing orphaned, every kernel under
 * its op; device work, links and threads included. */
#include <pthread.h>

#include "base/decimal.h"
#include "record_help.h"
#include "prof/record_work.h"

static qn_status swallow(void *user, const char *text, size_t length) {
    (void)text;
    *(size_t *)user += length;
    return QN_OK;
}

/* Reads the file strictly and wants no node dropped and no kernel orphaned; every view that exists must come. */
static qn_profile_info read_back(const char *path) {
    qn_error error;
    qn_profile *profile;
    qn_profile_info info;
    qn_profile_options options = qn_profile_options_default();
    options.flags = QN_PROFILE_STRICT;
    info.size = sizeof info;
    if (qn_profile_open(path, &options, &profile, &error) != QN_OK || qn_profile_load(profile, 0, 0, 0, &error) != QN_OK)
        fail_msg("%s", error.text);
    assert_int_equal(qn_profile_trace_info(profile, 0, 0, 0, &info), QN_OK);
    assert_int_equal(info.events_broken, 0);
    assert_int_equal(info.nodes_dropped, 0);
    assert_int_equal(info.orphan_kernels, 0);
    for (int i = 0; qn_profile_view_name(i); i++) {
        size_t bytes = 0;
        qn_status status = qn_profile_view(profile, qn_profile_view_name(i), NULL, swallow, &bytes, &error);
        if (status != QN_UNSUPPORTED && status != QN_ARGUMENT) assert_int_equal(status, QN_OK);
    }
    qn_profile_close(profile);
    return info;
}

static void train(bench *b, int steps) {
    for (int i = 0; i < steps; i++) {
        qn_record_step(b->context, NULL);
        qn_record_loader_begin(b->context, "data");
        qn_record_loader_end(b->context);
        for (int layer = 0; layer < 4; layer++) {
            char label[32];
            snprintf(label, sizeof label, "layer %d", layer);
            qn_record_push(b->context, QN_PART_MODULE, label);
            qn_record_push(b->context, QN_PART_MODULE, "attention");
            run_ops(b, 5);
            qn_record_pop(b->context);
            qn_record_memory(b->context, b, 64, 64, 64, -1);
            qn_record_push(b->context, QN_PART_RANGE, "mlp");
            run_ops(b, 5);
            qn_record_pop(b->context);
            qn_record_pop(b->context);
        }
        qn_record_push(b->context, QN_PART_OPTIMIZER, "SGD");
        run_ops(b, 2);
        qn_record_pop(b->context);
    }
}

static void run_of_the_cpu_reads_back(void **state) {
    (void)state;
    const uint32_t flags[] = {QN_RECORD_SHAPES, QN_RECORD_SHAPES | QN_RECORD_GZIP, QN_RECORD_SHAPES | QN_RECORD_WHOLE_US, 0};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        bench b;
        const char *path;
        qn_recorder_options options = begin_options(&b);
        options.flags = flags[i];
        begin_with(&b, &options);
        train(&b, 10);
        assert_int_equal(qn_recorder_write(b.recorder, &path, &b.error), QN_OK);
        qn_profile_info info = read_back(path);
        /* per step: the step, loader and optimizer, 4 * (2 modules, a range, 10 ops), 2 ops; and the trace's own span */
        assert_int_equal(info.events_kept, 10 * (3 + 4 * (3 + 10 + 1) + 2) + 1);
        end(&b);
    }
}

static void scheduled_files_read_back(void **state) {
    (void)state;
    bench b;
    qn_recorder_options options = begin_options(&b);
    options.active = 2;
    begin_with(&b, &options);
    train(&b, 7);
    assert_int_equal(info_of(&b).files, 3);
    DIR *dir = opendir(b.folder);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", b.folder, e->d_name);
        if (e->d_name[0] != '.') assert_int_equal(read_back(path).events_kept, 2 * (3 + 4 * (3 + 10 + 1) + 2) + 1);
    }
    closedir(dir);
    end(&b);
}

/* What is open when a file is written comes with the next one, and the step around it too. */
static void files_written_inside_a_step_read_back(void **state) {
    (void)state;
    bench b;
    const char *path;
    begin(&b);
    qn_record_step(b.context, NULL);
    run_ops(&b, 2);
    for (int i = 0; i < 3; i++) {
        qn_record_push(b.context, QN_PART_MODULE, "half here, half there");
        run_ops(&b, 1);
        assert_int_equal(qn_recorder_write(b.recorder, &path, &b.error), QN_OK);
        assert_int_equal(read_back(path).events_kept, i == 0 ? 5 : 6); /* span, step, 3 ops; then a range, too */
        run_ops(&b, 1);
        qn_record_pop(b.context);
        run_ops(&b, 1);
    }
    end(&b);
}

/* ---- Quern's own views -------------------------------------------------------------------------------------------- */

typedef struct buffer {
    char text[8192];
    size_t n;
} buffer;

static qn_status append(void *user, const char *text, size_t length) {
    buffer *out = user;
    if (out->n + length >= sizeof out->text) return QN_NO_MEMORY;
    memcpy(out->text + out->n, text, length);
    out->text[out->n += length] = 0;
    return QN_OK;
}

static void view_of(const char *path, const char *view, buffer *out) {
    qn_error error;
    qn_profile *profile;
    out->n = 0;
    if (qn_profile_open(path, NULL, &profile, &error) != QN_OK ||
        qn_profile_view(profile, view, NULL, append, out, &error) != QN_OK)
        fail_msg("%s", error.text);
    qn_profile_close(profile);
}

static void piece(bench *b, const char *name, uint64_t start, uint64_t us, double flops, uint64_t bytes) {
    qn_record_host work = {
        .size = sizeof work, .name = name, .start = start, .end = start + us * 1000, .flops = flops, .bytes = bytes};
    assert_int_not_equal(qn_record_host_work(b->context, &work), 0);
}

static void roofline_tells_rates_and_limits(void **state) {
    (void)state;
    bench b;
    buffer out;
    const char *path;
    begin(&b);
    uint64_t now = qn_record_time(b.context);
    piece(&b, "quick", now, 100, 2e6, 1000000); /* 20 GFLOP/s and 10 GB/s */
    piece(&b, "quick", now + 200000, 300, 6e6, 3000000);
    piece(&b, "idle", now + 600000, 50, 0, 0);
    assert_int_equal(qn_recorder_write(b.recorder, &path, &b.error), QN_OK);
    view_of(path, "roofline", &out);
    assert_non_null(strstr(out.text, "\"peak_gflops\": null"));
    assert_non_null(strstr(out.text, "[\"quick\", \"[]\", 2, 400.0, 0.008, 0.004, 20.0, 10.0, 2.0, null, null]"));
    assert_null(strstr(out.text, "idle"));
    end(&b);
}

/* Of a row of the view: its name, how often it ran, how many ops it has, then two times. */
static void read_times(const char *row, int ops, double *total, double *self) {
    char words[2][40];
    int n;
    assert_int_equal(sscanf(row, "[%*[^,], 1, %d, %39[^,], %39[^],]", &n, words[0], words[1]), 3);
    assert_int_equal(n, ops);
    *total = qn_decimal_read(words[0], strlen(words[0]));
    *self = qn_decimal_read(words[1], strlen(words[1]));
}

static void parts_add_up(void **state) {
    (void)state;
    bench b;
    buffer out;
    const char *path;
    begin(&b);
    qn_record_push(b.context, QN_PART_MODULE, "layer");
    run_ops(&b, 1);
    qn_record_push(b.context, QN_PART_RANGE, "mlp");
    run_ops(&b, 2);
    qn_record_pop(b.context);
    qn_record_pop(b.context);
    qn_record_push(b.context, QN_PART_RANGE, "layer norm"); /* sorts between a part and what lies under it */
    qn_record_pop(b.context);
    run_ops(&b, 3);
    assert_int_equal(qn_recorder_write(b.recorder, &path, &b.error), QN_OK);
    view_of(path, "parts", &out);
    double total[2], self[2];
    const char *outer = strstr(out.text, "[\"layer\", 1, 1, "), *inner = strstr(out.text, "[\"layer/mlp\", 1, 2, ");
    assert_true(outer && inner && strstr(out.text, "[\"(no part)\", 0, 3, ") && strstr(out.text, "[\"layer norm\", 1, 0, "));
    read_times(outer, 1, &total[0], &self[0]);
    read_times(inner, 2, &total[1], &self[1]);
    assert_true(fabs(total[0] - self[0] - total[1]) < 0.02);
    assert_true(fabs(total[1] - self[1]) < 0.02);
    end(&b);
}

/* ---- Device work -------------------------------------------------------------------------------------------------- */

typedef struct launch { /* a custom op whose callback stands for a device backend */
    bench *b;
    uint64_t correlation, op, submit;
} launch;

static qn_status submit(void *user, const qn_tensor *dst, int n_src, const qn_tensor *const *src, int task, int n_tasks) {
    launch *l = user;
    qn_context *c = l->b->context;
    (void)dst, (void)n_src, (void)src, (void)task, (void)n_tasks;
    l->correlation = qn_record_correlation(c);
    l->op = qn_record_open_op(c);
    l->submit = qn_record_time(c);
    qn_record_runtime(c, "vkQueueSubmit", l->submit, qn_record_time(c), l->correlation);
    return QN_OK;
}

static void launch_op(bench *b, launch *l) {
    qn_attr_map_custom1 attr = qn_attr_map_custom1_default();
    *l = (launch){b, 0, 0, 0};
    attr.fn = submit;
    attr.user = l;
    qn_request q = {.size = sizeof q,
                    .version = QN_REQUEST_VERSION,
                    .op = QN_OP_map_custom1,
                    .n_src = 1,
                    .n_dst = 1,
                    .src = {&b->a},
                    .dst = {&b->y},
                    .attr = &attr};
    assert_int_equal(qn_dispatch(b->context, &q, NULL), QN_OK);
    assert_int_not_equal(l->op, 0);
    assert_int_equal(qn_record_open_op(b->context), 0);
    assert_int_equal(qn_record_last_op(b->context), l->op);
}

static void device_work_belongs_to_its_op(void **state) {
    (void)state;
    bench b;
    launch l;
    const char *path;
    begin(&b);
    qn_record_device device = {
        .size = sizeof device, .name = "Test \"GPU\"", .memory = 1 << 30, .compute_major = 7, .clock_bound = 500};
    assert_int_equal(qn_recorder_add_device(b.recorder, &device, &b.error), QN_OK);
    qn_record_step(b.context, NULL);
    for (int i = 0; i < 3; i++) {
        launch_op(&b, &l);
        qn_record_work work = {.size = sizeof work,
                               .kind = (qn_device_work)i,
                               .name = "mul_mat_f32",
                               .start = l.submit + 1000,
                               .end = l.submit + 1000 + 5432109, /* a duration that no op will have by chance */
                               .correlation = l.correlation,
                               .op = l.op,
                               .queue = 1,
                               .flops = 1e6,
                               .bytes = 4096,
                               .grid = {4, 2, 1},
                               .block = {64, 1, 1},
                               .occupancy = 50};
        qn_record_device_work(b.context, &work);
    }
    assert_int_equal(qn_recorder_write(b.recorder, &path, &b.error), QN_OK);
    char *text = read_text(path);
    assert_non_null(strstr(text, "\"deviceProperties\":[{\"id\":0,\"name\":\"Test \\\"GPU\\\"\",\"totalGlobalMem\":1073741824,"
                                 "\"computeMajor\":7,\"computeMinor\":0,\"clockBoundNanoseconds\":500}]"));
    assert_non_null(strstr(text, "\"cat\":\"kernel\",\"name\":\"mul_mat_f32\",\"pid\":0,\"tid\":1"));
    assert_non_null(strstr(text, "\"grid\":[4,2,1],\"block\":[64,1,1]"));
    assert_int_equal(occurrences(text, "\"ph\":\"s\",\"cat\":\"ac2g\""), 3);
    assert_int_equal(occurrences(text, "\"ph\":\"f\",\"cat\":\"ac2g\""), 3);
    assert_int_equal(occurrences(text, "\"dur\":5432.109"), 3);
    assert_int_equal(info_of(&b).clamped, 0);
    free(text);
    assert_int_equal(read_back(path).events_kept, 3 * 3 + 1 + 1);
    end(&b);
}

static void device_work_before_its_submission_is_clamped(void **state) {
    (void)state;
    bench b;
    launch l;
    begin(&b);
    qn_record_device device = {.size = sizeof device, .clock_bound = 1000};
    qn_recorder_add_device(b.recorder, &device, &b.error);
    for (int i = 0; i < 2; i++) { /* within the bound, and beyond */
        launch_op(&b, &l);
        qn_record_work work = {.size = sizeof work,
                               .name = "k",
                               .start = l.submit - (i ? 1001 : 1000),
                               .end = l.submit + 7654321,
                               .correlation = l.correlation,
                               .op = l.op};
        qn_record_device_work(b.context, &work);
    }
    char *text = write_text(&b);
    assert_non_null(strstr(text, "\"clamped\":1}"));
    assert_int_equal(occurrences(text, "\"dur\":7655.321"), 1);
    assert_int_equal(occurrences(text, "\"dur\":7654.321"), 1);
    assert_int_equal(info_of(&b).clamped, 1);
    free(text);
    end(&b);
}

static void links_point_at_the_starts_of_their_ops(void **state) {
    (void)state;
    bench b;
    begin(&b);
    run_ops(&b, 1);
    uint64_t forward = qn_record_last_op(b.context);
    run_ops(&b, 1);
    qn_record_link(b.context, forward, qn_record_last_op(b.context));
    qn_record_link(b.context, forward, 999999); /* no such op: no flow */
    char *text = write_text(&b);
    assert_int_equal(occurrences(text, "\"ph\":\"s\",\"cat\":\"fwdbwd\",\"name\":\"fwdbwd\",\"id\":1"), 1);
    assert_int_equal(occurrences(text, "\"cat\":\"fwdbwd\""), 2);
    const char *op = strstr(text, "\"External id\":1,");
    while (strncmp(op, "\"ts\":", 5) != 0) op--;
    char ts[64];
    snprintf(ts, sizeof ts, "%.*s}", (int)strcspn(op, ","), op);
    assert_non_null(strstr(strstr(text, "\"ph\":\"s\""), ts));
    free(text);
    end(&b);
}

/* ---- Threads ------------------------------------------------------------------------------------------------------ */

enum { THREADS = 4, PER_THREAD = 3000 };

typedef struct worker {
    bench *b;
    pthread_t thread;
    int number;
} worker;

static void *record_much(void *argument) {
    worker *w = argument;
    bench own = *w->b; /* tensors of its own */
    request(&own.add, QN_OP_add, &own);
    own.add.src[0] = &own.a, own.add.src[1] = &own.b, own.add.dst[0] = &own.y;
    own.a.data = own.memory[0], own.b.data = own.memory[1], own.y.data = own.memory[2];
    char name[32];
    snprintf(name, sizeof name, "worker %d", w->number);
    if (qn_context_create(NULL, &own.context) != QN_OK) return "no context";
    if (qn_recorder_attach(own.recorder, own.context, name, &own.error) != QN_OK) return "not attached";
    for (int i = 0; i < PER_THREAD; i++) {
        qn_record_push(own.context, QN_PART_MODULE, i % 2 ? "odd" : "even");
        if (qn_dispatch(own.context, &own.add, NULL) != QN_OK) return "rejected";
        qn_record_pop(own.context);
    }
    qn_context_destroy(own.context);
    return NULL;
}

static void threads_record_while_files_are_written(void **state) {
    (void)state;
    for (int oldest = 0; oldest < 2; oldest++) {
        bench b;
        worker workers[THREADS];
        qn_recorder_options options = begin_options(&b);
        options.ring_bytes = oldest ? 16384 : 1 << 20;
        if (oldest) options.flags |= QN_RECORD_DROP_OLDEST;
        begin_with(&b, &options);
        for (int i = 0; i < THREADS; i++) {
            workers[i] = (worker){&b, 0, i};
            assert_int_equal(pthread_create(&workers[i].thread, NULL, record_much, &workers[i]), 0);
        }
        for (int i = 0; i < 5; i++) {
            const char *path;
            assert_int_equal(qn_recorder_write(b.recorder, &path, &b.error), QN_OK);
            read_back(path);
        }
        for (int i = 0; i < THREADS; i++) {
            void *why;
            pthread_join(workers[i].thread, &why);
            assert_null(why);
        }
        const char *path;
        assert_int_equal(qn_recorder_write(b.recorder, &path, &b.error), QN_OK);
        read_back(path);
        qn_recorder_info info = info_of(&b);
        assert_int_equal(info.events + info.dropped, 2 * THREADS * PER_THREAD);
        if (!oldest) assert_int_equal(info.dropped, 0);
        end(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_of_the_cpu_reads_back),
        cmocka_unit_test(scheduled_files_read_back),
        cmocka_unit_test(files_written_inside_a_step_read_back),
        cmocka_unit_test(roofline_tells_rates_and_limits),
        cmocka_unit_test(parts_add_up),
        cmocka_unit_test(device_work_belongs_to_its_op),
        cmocka_unit_test(device_work_before_its_submission_is_clamped),
        cmocka_unit_test(links_point_at_the_starts_of_their_ops),
        cmocka_unit_test(threads_record_while_files_are_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
