/* Programs on the Vulkan device: how they run, where their barriers stand, what they refuse, how device faults are survived. */
#include <unistd.h>

#include "base/clock.h"
#include "vulkan_help.h"

#define F32 QN_DTYPE_F32
#define I32 QN_DTYPE_I32

/* ---- Programs */

enum { N = 100 };

static qn_tensor vector_at(uint64_t offset) {
    qn_tensor t;
    int64_t n = N;
    assert_int_equal(qn_tensor_init(&t, F32, 1, &n, NULL, 0), QN_OK);
    t.data = QN_AT(offset);
    t.size = N * sizeof(float);
    return t;
}

static qn_device_step binary_step(int op, const qn_tensor *a, const qn_tensor *b, const qn_tensor *y) {
    return (qn_device_step){.op = op, .n_src = 2, .n_dst = 1, .src = {a, b}, .dst = {y}};
}

/* The example: (x + y) * y, then its relu; two inputs, one output, one submission. */
static void three_steps_run_in_one_submission(void **state) {
    NEED_DEVICE(state);
    qn_device *device = BENCH(state)->device;
    qn_tensor x = vector_at(0), y = vector_at(512), sum = vector_at(1024), product = vector_at(1536), z = vector_at(2048);
    qn_device_step steps[3] = {
        binary_step(QN_OP_add, &x, &y, &sum),
        binary_step(QN_OP_mul, &sum, &y, &product),
        {.op = QN_OP_unary, .subop = QN_UNARY_relu, .n_src = 1, .n_dst = 1, .src = {&product}, .dst = {&z}}};
    qn_device_range inputs[2] = {{0, N * 4}, {512, N * 4}}, output = {2048, N * 4};
    qn_program_options o = {
        .arena_bytes = 4096, .n_steps = 3, .steps = steps, .n_inputs = 2, .inputs = inputs, .n_outputs = 1, .outputs = &output};
    qn_program *p = NULL;
    qn_error e = {QN_OK, ""};
    help_expect(qn_program_create(device, &o, &p, &e), QN_OK, &e);
    assert_int_equal(qn_vulkan_barriers(p), 2);
    float xs[N], ys[N], zs[N];
    for (int run = 0; run < 3; run++) {
        for (int i = 0; i < N; i++) {
            xs[i] = (float)(i - 50 + run);
            if (run == 0) ys[i] = (float)i * 0.5f;
        }
        const void *in[2] = {xs, run ? NULL : ys}; /* what was set once stays */
        void *out[1] = {zs};
        help_expect(qn_program_run(p, in, out, help_patience, &e), QN_OK, &e);
        for (int i = 0; i < N; i++) assert_true(zs[i] == fmaxf((xs[i] + ys[i]) * ys[i], 0));
    }
    help_expect(qn_program_run(p, NULL, NULL, help_patience, &e), QN_OK, &e);
    qn_program_destroy(p);
}

static int barriers_of(qn_device *device, const qn_device_step *steps, int n, uint32_t flags) {
    qn_program_options o = {.arena_bytes = 8192, .n_steps = n, .steps = steps, .flags = flags};
    qn_program *p = NULL;
    qn_error e = {QN_OK, ""};
    help_expect(qn_program_create(device, &o, &p, &e), QN_OK, &e);
    int barriers = qn_vulkan_barriers(p);
    qn_program_destroy(p);
    return barriers;
}

static void barriers_stand_only_where_ranges_meet(void **state) {
    NEED_DEVICE(state);
    qn_device *device = BENCH(state)->device;
    qn_tensor a = vector_at(0), b = vector_at(512), c = vector_at(1024), d = vector_at(1536), e = vector_at(2048),
              f = vector_at(2560);
    qn_device_step apart[3] = {binary_step(QN_OP_add, &a, &b, &c), binary_step(QN_OP_sub, &a, &b, &d),
                               binary_step(QN_OP_mul, &a, &b, &e)};
    assert_int_equal(barriers_of(device, apart, 3, 0), 0);
    assert_int_equal(barriers_of(device, apart, 3, QN_PROGRAM_SERIAL), 2);
    qn_device_step reads[4] = {apart[0], apart[1], binary_step(QN_OP_add, &c, &d, &e), binary_step(QN_OP_add, &c, &d, &f)};
    assert_int_equal(barriers_of(device, reads, 4, 0), 1);
    qn_device_step write_after_read[2] = {binary_step(QN_OP_add, &a, &b, &c), binary_step(QN_OP_add, &d, &e, &a)};
    assert_int_equal(barriers_of(device, write_after_read, 2, 0), 1);
    qn_device_step write_twice[2] = {binary_step(QN_OP_add, &a, &b, &c), binary_step(QN_OP_add, &d, &e, &c)};
    assert_int_equal(barriers_of(device, write_twice, 2, 0), 1);
}

static void buffers_keep_what_they_are_given(void **state) {
    NEED_DEVICE(state);
    qn_device *device = BENCH(state)->device;
    qn_device_buffer *buffer = NULL;
    qn_error e = {QN_OK, ""};
    float data[N], back[N];
    for (int i = 0; i < N; i++) data[i] = (float)i;
    help_expect(qn_device_buffer_create(device, 4096, &buffer, &e), QN_OK, &e);
    help_expect(qn_device_upload(buffer, 0, data, sizeof data, &e), QN_OK, &e);
    qn_tensor a = vector_at(0);
    qn_device_step step = binary_step(QN_OP_add, &a, &a, &a); /* in place, in an arena that outlives its programs */
    qn_program_options o = {.arena_bytes = 4096, .arena = buffer, .n_steps = 1, .steps = &step};
    for (int i = 0; i < 2; i++) {
        qn_program *p = NULL;
        help_expect(qn_program_create(device, &o, &p, &e), QN_OK, &e);
        help_expect(qn_program_run(p, NULL, NULL, help_patience, &e), QN_OK, &e);
        qn_program_destroy(p);
    }
    help_expect(qn_device_download(buffer, 0, back, sizeof back, &e), QN_OK, &e);
    for (int i = 0; i < N; i++) assert_true(back[i] == 4 * data[i]);
    help_expect(qn_device_download(buffer, 4000, back, sizeof back, &e), QN_ARGUMENT, &e);
    qn_device_buffer_destroy(buffer);
}

static void timed_program_has_a_time_per_step(void **state) {
    NEED_DEVICE(state);
    qn_device_info info;
    qn_device_describe(BENCH(state)->device, &info);
    if (!(info.features & QN_DEVICE_TIMESTAMPS)) skip();
    qn_tensor a = vector_at(0), b = vector_at(512);
    qn_device_step steps[2] = {binary_step(QN_OP_add, &a, &a, &b), binary_step(QN_OP_add, &a, &b, &b)};
    qn_program_options o = {.arena_bytes = 4096, .n_steps = 2, .steps = steps, .flags = QN_PROGRAM_TIMED};
    qn_program *p = NULL;
    qn_error e = {QN_OK, ""};
    double ns[2] = {-1, -1};
    help_expect(qn_program_create(BENCH(state)->device, &o, &p, &e), QN_OK, &e);
    help_expect(qn_program_times(p, ns, 2, &e), QN_ARGUMENT, &e);
    uint64_t began = 0, before = qn_clock_now();
    assert_int_equal(qn_program_began(p, &began), 0);
    help_expect(qn_program_run(p, NULL, NULL, help_patience, &e), QN_OK, &e);
    uint64_t after = qn_clock_now();
    help_expect(qn_program_times(p, ns, 2, &e), QN_OK, &e);
    for (int i = 0; i < 2; i++) assert_true(ns[i] >= 0 && ns[i] < 1e10);
    if (info.clock_bound && qn_program_began(p, &began)) { /* a busy machine may make every comparison too coarse */
        assert_true(began + info.clock_bound >= before);
        assert_true(began + (uint64_t)(ns[0] + ns[1]) <= after + info.clock_bound);
    }
    qn_program_destroy(p);
}

/* ---- Bad input */

static void refuses(qn_device *d, const qn_program_options *o, qn_status want, const char *words) {
    qn_program *p = NULL;
    qn_error e = {QN_OK, ""};
    help_expect(qn_program_create(d, o, &p, &e), want, &e);
    assert_null(p);
    if (!strstr(e.text, words)) fail_msg("'%s' does not say '%s'", e.text, words);
}

static void what_cannot_run_is_refused_with_a_sentence(void **state) {
    NEED_DEVICE(state);
    qn_device *d = BENCH(state)->device;
    qn_tensor a = vector_at(0), b = vector_at(512), far = vector_at(4000), wide = a;
    qn_device_step step = {.op = QN_OP_log_soft_max, .n_src = 1, .n_dst = 1, .src = {&a}, .dst = {&b}};
    qn_program_options o = {.arena_bytes = 4096, .n_steps = 1, .steps = &step};
    refuses(d, &o, QN_UNSUPPORTED, "step 0: vulkan: log_soft_max: there is no kernel");
    step = binary_step(QN_OP_add, &a, &far, &b);
    refuses(d, &o, QN_INVALID, "not inside the arena");
    step = binary_step(30000, &a, &a, &b);
    refuses(d, &o, QN_UNEXPECTED, "step 0");
    step = binary_step(-1, &a, &a, &b);
    refuses(d, &o, QN_UNEXPECTED, "op -1");
    step = binary_step(QN_OP_add, &a, NULL, &b);
    refuses(d, &o, QN_INVALID, "step 0: add");
    wide.stride[0] = INT64_MAX / 4 * 4;
    step = binary_step(QN_OP_add, &wide, &a, &b);
    refuses(d, &o, QN_INVALID, "step 0: add");
    wide = a;
    wide.dtype = QN_DTYPE_F64;
    wide.shape[0] = 50;
    wide.stride[0] = 8;
    qn_tensor wide_out = wide;
    wide_out.data = QN_AT(512);
    step = binary_step(QN_OP_add, &wide, &wide, &wide_out);
    refuses(d, &o, QN_UNSUPPORTED, "no kernel for f64");
    wide = b; /* complex numbers, read where only their halves are aligned; blocks at odd places */
    wide.dtype = QN_DTYPE_C64;
    wide.shape[0] = 3;
    wide.stride[0] = 8;
    qn_tensor apart = wide;
    apart.data = QN_AT(0);
    apart.stride[0] = 12;
    step = (qn_device_step){.op = QN_OP_cont, .n_src = 1, .n_dst = 1, .src = {&apart}, .dst = {&wide}};
    refuses(d, &o, QN_UNSUPPORTED, "multiples of their size");
    apart.stride[0] = 8;
    apart.offset = 4;
    refuses(d, &o, QN_UNSUPPORTED, "multiples of their size");
    qn_tensor blocks, rows = vector_at(512), index = vector_at(1024);
    int64_t block[] = {3, 32}, row[] = {1, 32};
    assert_int_equal(qn_tensor_init(&blocks, QN_DTYPE_Q8_0, 2, block, QN_AT(1), 3 * 34), QN_OK);
    assert_int_equal(qn_tensor_init(&rows, F32, 2, row, QN_AT(512), 128), QN_OK);
    index.dtype = I32;
    index.shape[0] = 1;
    step = (qn_device_step){.op = QN_OP_get_rows, .n_src = 2, .n_dst = 1, .src = {&blocks, &index}, .dst = {&rows}};
    refuses(d, &o, QN_UNSUPPORTED, "multiples of their size");
    qn_device_range out = {4000, 200};
    step = binary_step(QN_OP_add, &a, &a, &b);
    o.n_outputs = 1;
    o.outputs = &out;
    refuses(d, &o, QN_ARGUMENT, "beyond the arena");
    o.steps = NULL;
    refuses(d, &o, QN_ARGUMENT, "needs a device and steps");
    assert_int_equal(qn_program_run(NULL, NULL, NULL, 0, NULL), QN_ARGUMENT);
}

/* Whatever an op is asked with, the answer is a status; yes only where there is a kernel, no with a sentence. */
static void every_op_gets_an_answer(void **state) {
    NEED_DEVICE(state);
    static const qn_dtype dtypes[] = {F32, I32, QN_DTYPE_F16, QN_DTYPE_F64, QN_DTYPE_Q4_0};
    int yes = 0, no = 0;
    for (int op = 0; op < QN_OP_COUNT; op++)
        for (int d = 0; d < 5; d++)
            for (int rank = 1; rank <= QN_MAX_RANK; rank++) {
                const qn_op_info *info = qn_op_describe(op);
                int64_t shape[QN_MAX_RANK] = {2, 2, 2, 2, 2, 2, 2, 2};
                shape[rank - 1] = 32;
                qn_tensor t;
                qn_error e = {QN_OK, ""};
                assert_int_equal(qn_tensor_init(&t, dtypes[d], rank, shape, NULL, 0), QN_OK);
                qn_device_step step = {.op = op, .n_src = info->n_src_min, .n_dst = info->n_dst_min};
                for (int i = 0; i < step.n_src; i++) step.src[i] = &t;
                for (int i = 0; i < step.n_dst; i++) step.dst[i] = &t;
                qn_status status = qn_device_supports(BENCH(state)->device, &step, &e);
                assert_true(status == QN_OK ? qn_vulkan_has_op(op) : e.text[0] != 0);
                *(status == QN_OK ? &yes : &no) += 1;
            }
    assert_true(yes > 20 && no > 500);
}

static void index_out_of_range_is_found_by_the_kernel(void **state) {
    NEED_DEVICE(state);
    qn_tensor table, idx, y;
    int64_t rows[2] = {3, 4}, two[2] = {2, 4}, n = 2;
    assert_int_equal(qn_tensor_init(&table, F32, 2, rows, NULL, 0), QN_OK);
    assert_int_equal(qn_tensor_init(&idx, I32, 1, &n, NULL, 0), QN_OK);
    assert_int_equal(qn_tensor_init(&y, F32, 2, two, NULL, 0), QN_OK);
    table.size = 48, idx.size = 8, y.size = 32;
    idx.data = QN_AT(64);
    y.data = QN_AT(128);
    qn_device_step step = {.op = QN_OP_get_rows, .n_src = 2, .n_dst = 1, .src = {&table, &idx}, .dst = {&y}};
    qn_device_range in = {64, 8};
    qn_program_options o = {.arena_bytes = 256, .n_steps = 1, .steps = &step, .n_inputs = 1, .inputs = &in};
    static const int32_t good[2] = {0, 2}, high[2] = {3, 0}, low[2] = {0, -1};
    const void *inputs[3] = {good, high, low};
    static const qn_status want[3] = {QN_OK, QN_RANGE, QN_RANGE};
    qn_program *p = NULL;
    qn_error e = {QN_OK, ""};
    help_expect(qn_program_create(BENCH(state)->device, &o, &p, &e), QN_OK, &e);
    for (int i = 0; i < 3; i++) help_expect(qn_program_run(p, &inputs[i], NULL, help_patience, &e), want[i], &e);
    assert_non_null(strstr(e.text, "step 0"));
    help_expect(qn_program_run(p, &inputs[0], NULL, help_patience, &e), QN_OK, &e); /* and the program is as good as before */
    qn_program_destroy(p);
}

/* ---- Faults of the device */

static qn_status run_add(qn_device *d, qn_vulkan_fault fault, qn_error *e) {
    qn_tensor a = vector_at(0), b = vector_at(512);
    qn_device_step step = binary_step(QN_OP_add, &a, &a, &b);
    qn_program_options o = {.arena_bytes = 1024, .n_steps = 1, .steps = &step};
    qn_program *p = NULL;
    if (fault == QN_VULKAN_FAULT_NO_MEMORY) qn_vulkan_inject(d, fault);
    qn_status status = qn_program_create(d, &o, &p, e);
    if (status != QN_OK) return status;
    qn_vulkan_inject(d, fault);
    status = qn_program_run(p, NULL, NULL, help_patience, e);
    if (fault == QN_VULKAN_FAULT_TIMEOUT) { /* only late: the next run waits for it first */
        qn_error ignored;
        assert_int_equal(qn_program_run(p, NULL, NULL, help_patience, &ignored), QN_OK);
    }
    qn_program_destroy(p);
    return status;
}

static void lost_device_can_be_opened_again(void **state) {
    NEED_DEVICE(state);
    static const qn_vulkan_fault faults[] = {QN_VULKAN_FAULT_LOST_ON_SUBMIT, QN_VULKAN_FAULT_LOST_ON_WAIT};
    qn_vulkan_options o = {.flags = QN_VULKAN_NO_SELF_TEST, .cache = ""};
    for (int i = 0; i < 2; i++) {
        qn_device *d = NULL;
        qn_error e = {QN_OK, ""};
        help_expect(qn_vulkan_open(&o, &d, &e), QN_OK, &e);
        help_expect(run_add(d, QN_VULKAN_FAULT_NONE, &e), QN_OK, &e);
        help_expect(run_add(d, faults[i], &e), QN_DEVICE, &e);
        assert_non_null(strstr(e.text, i ? "vkWaitSemaphores: ERROR_DEVICE_LOST" : "vkQueueSubmit: ERROR_DEVICE_LOST"));
        help_expect(run_add(d, QN_VULKAN_FAULT_NONE, &e), QN_DEVICE, &e);
        assert_non_null(strstr(e.text, "open it again"));
        qn_device_destroy(d);
        help_expect(qn_vulkan_open(&o, &d, &e), QN_OK, &e);
        help_expect(run_add(d, QN_VULKAN_FAULT_NONE, &e), QN_OK, &e);
        qn_device_destroy(d);
    }
}

static void timeout_and_no_memory_are_survived(void **state) {
    NEED_DEVICE(state);
    qn_device *d = BENCH(state)->device;
    qn_error e = {QN_OK, ""};
    help_expect(run_add(d, QN_VULKAN_FAULT_TIMEOUT, &e), QN_DEVICE, &e);
    assert_non_null(strstr(e.text, "has not finished"));
    help_expect(run_add(d, QN_VULKAN_FAULT_NO_MEMORY, &e), QN_DEVICE, &e);
    assert_non_null(strstr(e.text, "vkAllocateMemory: ERROR_OUT_OF_DEVICE_MEMORY"));
    help_expect(run_add(d, QN_VULKAN_FAULT_NONE, &e), QN_OK, &e);
    qn_device_buffer *huge = NULL;
    help_expect(qn_device_buffer_create(d, UINT64_MAX / 2, &huge, &e), QN_DEVICE, &e);
    assert_null(huge);
    qn_vulkan_options o = {.index = 99};
    help_expect(qn_vulkan_open(&o, &d, &e), QN_ARGUMENT, &e);
}

static int cache_file(const char *folder, char *path, size_t size, const char *bytes) {
    char command[600];
    snprintf(command, sizeof command, "ls %s/vulkan-*.bin 2>/dev/null", folder);
    FILE *list = popen(command, "r");
    int found = list && fgets(path, (int)size, list) != NULL;
    if (list) pclose(list);
    if (!found) return 0;
    path[strcspn(path, "\n")] = '\0';
    if (!bytes) return 1;
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, 30, SEEK_SET);
    fputs(bytes, file);
    return fclose(file) == 0;
}

static void damaged_cache_is_ignored(void **state) {
    NEED_DEVICE(state);
    char folder[] = "/tmp/quern-cache-XXXXXX", path[500];
    assert_non_null(mkdtemp(folder));
    qn_vulkan_options o = {.cache = folder};
    for (int i = 0; i < 3; i++) {
        qn_device *d = NULL;
        qn_error e = {QN_OK, ""};
        help_expect(qn_vulkan_open(&o, &d, &e), QN_OK, &e);
        qn_device_destroy(d);
        assert_true(cache_file(folder, path, sizeof path, i == 1 ? "damage" : NULL));
    }
    unlink(path);
    rmdir(folder);
}

static void list_has_the_cpu_first(void **state) {
    (void)state;
    static qn_device_info infos[4];
    int n = 0;
    qn_error e;
    assert_int_equal(qn_device_list(infos, 4, &n, &e), QN_OK);
    assert_true(n >= 1);
    assert_string_equal(infos[0].backend, "cpu");
    assert_int_equal(qn_device_list(NULL, 4, &n, &e), QN_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_steps_run_in_one_submission),
        cmocka_unit_test(barriers_stand_only_where_ranges_meet),
        cmocka_unit_test(buffers_keep_what_they_are_given),
        cmocka_unit_test(timed_program_has_a_time_per_step),
        cmocka_unit_test(what_cannot_run_is_refused_with_a_sentence),
        cmocka_unit_test(every_op_gets_an_answer),
        cmocka_unit_test(index_out_of_range_is_found_by_the_kernel),
        cmocka_unit_test(lost_device_can_be_opened_again),
        cmocka_unit_test(timeout_and_no_memory_are_survived),
        cmocka_unit_test(damaged_cache_is_ignored),
        cmocka_unit_test(list_has_the_cpu_first),
    };
    return cmocka_run_group_tests(tests, open_group, close_group);
}
