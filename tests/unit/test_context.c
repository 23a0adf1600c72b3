/* Contexts: hooks are used, failures come back, counters count. */
#include <stdlib.h>
#include <string.h>

#include <quern/quern.h>

#include "base/reason.h"
#include "cmocka_setup.h"

typedef struct hooks {
    int allocations, releases, lines;
    int refuse;
} hooks;

static void *hook_allocate(void *user, size_t bytes, size_t align) {
    hooks *h = user;
    h->allocations++;
    void *memory = NULL;
    return h->refuse || posix_memalign(&memory, align, bytes) != 0 ? NULL : memory;
}

static void hook_release(void *user, void *memory, size_t bytes) {
    (void)bytes;
    ((hooks *)user)->releases++;
    free(memory);
}

static void hook_log(void *user, qn_log_level level, const char *text) {
    (void)level;
    assert_non_null(strstr(text, "quern"));
    ((hooks *)user)->lines++;
}

static void context_uses_its_hooks_and_no_other(void **state) {
    (void)state;
    hooks h = {0, 0, 0, 0};
    qn_context_options o = {sizeof o, 0, {&h, hook_allocate, hook_release}, hook_log, &h, NULL};
    qn_context *c;
    assert_int_equal(qn_context_create(&o, &c), QN_OK);
    assert_int_equal(h.allocations, 1);
    assert_int_equal(h.lines, 1);
    qn_context_destroy(c);
    assert_int_equal(h.releases, 1);
}

static void context_without_memory_is_a_status(void **state) {
    (void)state;
    hooks h = {0, 0, 0, 1};
    qn_context_options o = {sizeof o, 0, {&h, hook_allocate, hook_release}, NULL, NULL, NULL};
    qn_context *c = (qn_context *)&h;
    assert_int_equal(qn_context_create(&o, &c), QN_NO_MEMORY);
    assert_null(c);
    qn_context_destroy(c);
}

static void context_with_bad_options_is_refused(void **state) {
    (void)state;
    qn_context *c;
    qn_context_options o;
    memset(&o, 0, sizeof o);
    assert_int_equal(qn_context_create(&o, &c), QN_ARGUMENT);
    o.size = sizeof o;
    o.flags = 128;
    assert_int_equal(qn_context_create(&o, &c), QN_ARGUMENT);
    o.flags = 0;
    o.allocator.allocate = hook_allocate;
    assert_int_equal(qn_context_create(&o, &c), QN_ARGUMENT);
    assert_int_equal(qn_context_create(NULL, NULL), QN_ARGUMENT);
}

static void counters_tell_what_became_of_requests(void **state) {
    (void)state;
    float a[4] = {1, 2, 3, 4}, y[4];
    int64_t n = 4;
    qn_tensor ta, ty;
    qn_context *c;
    qn_result r;
    qn_counters count;
    qn_context_options o = {.size = sizeof o, .flags = QN_CONTEXT_TIMED};
    assert_int_equal(qn_context_create(&o, &c), QN_OK);
    qn_tensor_init(&ta, QN_DTYPE_F32, 1, &n, a, sizeof a);
    qn_tensor_init(&ty, QN_DTYPE_F32, 1, &n, y, sizeof y);
    qn_request q = {
        .size = sizeof q, .version = QN_REQUEST_VERSION, .op = QN_OP_sqr, .n_src = 1, .n_dst = 1, .src = {&ta}, .dst = {&ty}};
    assert_int_equal(qn_dispatch(c, &q, &r), QN_OK);
    q.subop = 1;
    assert_int_equal(qn_dispatch(c, &q, &r), QN_UNEXPECTED);
    q.subop = 0;
    q.n_src = 0;
    assert_int_equal(qn_dispatch(c, &q, NULL), QN_INVALID);
    q.n_src = 1;
    ta.flags = QN_TENSOR_DEVICE;
    assert_int_equal(qn_dispatch(c, &q, &r), QN_UNSUPPORTED);
    assert_int_equal(qn_context_counters(c, QN_OP_sqr, &count), QN_OK);
    assert_int_equal(count.accepted, 1);
    assert_int_equal(count.unexpected, 1);
    assert_int_equal(count.invalid, 1);
    assert_int_equal(count.unsupported, 1);
    assert_int_equal(count.bytes_read, 16);
    assert_int_equal(count.bytes_written, 16);
    q.op = 60000;
    assert_int_equal(qn_dispatch(c, &q, &r), QN_UNEXPECTED);
    assert_int_equal(qn_context_events(c), 5);
    assert_int_equal(qn_dispatch(NULL, &q, &r), QN_ARGUMENT);
    assert_int_equal(qn_dispatch(c, NULL, &r), QN_ARGUMENT);
    assert_int_equal(qn_context_counters(c, -1, &count), QN_ARGUMENT);
    qn_context_destroy(c);
}

/* Of a table what indices name is read, at most all of it. */
static void tables_are_not_read_whole(void **state) {
    float a[10 * 4] = {0}, y[30 * 4];
    int32_t ids[30] = {3, 9, 3};
    qn_context *c = NULL;
    qn_counters count;
    qn_tensor ta, ti, ty;
    qn_result r;
    (void)state;
    assert_int_equal(qn_context_create(NULL, &c), QN_OK);
    qn_tensor_init(&ta, QN_DTYPE_F32, 2, (int64_t[]){10, 4}, a, sizeof a);
    for (int64_t n = 3; n <= 30; n *= 10) {
        uint64_t rows = n == 3 ? 3 : 3 + 10;
        qn_tensor_init(&ti, QN_DTYPE_I32, 1, &n, ids, sizeof ids);
        qn_tensor_init(&ty, QN_DTYPE_F32, 2, (int64_t[]){n, 4}, y, sizeof y);
        qn_request q = {.size = sizeof q, .version = QN_REQUEST_VERSION, .op = QN_OP_get_rows, .n_src = 2, .n_dst = 1};
        q.src[0] = &ta;
        q.src[1] = &ti;
        q.dst[0] = &ty;
        assert_int_equal(qn_dispatch(c, &q, &r), QN_OK);
        assert_int_equal(qn_context_counters(c, QN_OP_get_rows, &count), QN_OK);
        assert_int_equal(count.bytes_read, rows * 16 + (n == 3 ? 3 : 33) * 4);
    }
    qn_context_destroy(c);
}

static void sentence_names_op_argument_and_numbers(void **state) {
    (void)state;
    char text[200], small[8];
    qn_result r = {.status = QN_INVALID,
                   .op = QN_OP_soft_max,
                   .reason = QN_REASON_SHAPE_EXTENT,
                   .arg_kind = QN_ARG_SOURCE,
                   .arg = 1,
                   .dim = 1,
                   .expected = 8,
                   .actual = 7};
    int n = qn_result_format(&r, text, sizeof text);
    assert_string_equal(text, "soft_max: mask: axis 1 has extent 7, expected 8");
    assert_int_equal(n, (int)strlen(text));
    assert_int_equal(qn_result_format(&r, small, sizeof small), n);
    assert_string_equal(small, "soft_ma");
    assert_int_equal(qn_result_format(&r, NULL, 0), n);
    qn_error e;
    assert_int_equal(qn_result_to_error(&r, &e), QN_INVALID);
    assert_int_equal(qn_error_wrap(&e, "layer 3"), QN_INVALID);
    assert_string_equal(e.text, "layer 3: soft_max: mask: axis 1 has extent 7, expected 8");
    r.op = 60000;
    r.reason = 60000;
    qn_result_format(&r, text, sizeof text);
    assert_string_equal(text, "dispatch: an unknown reason");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(context_uses_its_hooks_and_no_other), cmocka_unit_test(context_without_memory_is_a_status),
        cmocka_unit_test(context_with_bad_options_is_refused), cmocka_unit_test(counters_tell_what_became_of_requests),
        cmocka_unit_test(tables_are_not_read_whole),           cmocka_unit_test(sentence_names_op_argument_and_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
