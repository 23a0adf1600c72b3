/* Status names, and errors that keep their story. */
#include <string.h>

#include <quern/quern.h>

#include "base/reason.h"
#include "cmocka_setup.h"

static void status_unknown_number_has_a_name(void **state) {
    (void)state;
    assert_string_equal(qn_status_name(QN_OK), "OK");
    assert_string_equal(qn_status_name((qn_status)999), "UNKNOWN");
    assert_string_equal(qn_reason_name((qn_reason)9999), "UNKNOWN");
    assert_true(strlen(qn_status_meaning((qn_status)-1)) > 0);
}

static void status_numbers_are_pinned(void **state) {
    (void)state;
    assert_int_equal(QN_OK, 0);
    assert_int_equal(QN_INVALID, 1);
    assert_int_equal(QN_UNSUPPORTED, 2);
    assert_int_equal(QN_WORKSPACE, 3);
    assert_int_equal(QN_UNEXPECTED, 4);
}

static void error_wrapped_twice_reads_from_outside_in(void **state) {
    (void)state;
    qn_error e;
    assert_int_equal(qn_error_set(&e, QN_FORMAT, "offset %d is past the end", 7), QN_FORMAT);
    assert_int_equal(qn_error_wrap(&e, "tensor %d", 3), QN_FORMAT);
    assert_int_equal(qn_error_wrap(&e, "model.gguf"), QN_FORMAT);
    assert_string_equal(e.text, "model.gguf: tensor 3: offset 7 is past the end");
}

static void error_too_long_says_that_it_was_cut(void **state) {
    (void)state;
    qn_error e;
    char big[2000];
    memset(big, 'x', sizeof big);
    big[sizeof big - 1] = 0;
    qn_error_set(&e, QN_IO, "%s", big);
    assert_string_equal(e.text + sizeof e.text - 4, "...");
    qn_error_wrap(&e, "outer");
    assert_memory_equal(e.text, "outer: xxx", 10);
    assert_string_equal(e.text + sizeof e.text - 4, "...");
    qn_error_wrap(&e, "%s", big);
    assert_string_equal(e.text + sizeof e.text - 4, "...");
}

/* A quoted name may hold anything; what is printed must not steer a terminal. */
static void error_quotes_nothing_that_steers(void **state) {
    (void)state;
    qn_error e;
    qn_error_set(&e, QN_FORMAT, "tensor '%s'", "a\x1B[2J\x7F\xFF\xC3\xA9\xC2\x9Bz\xE2\x82");
    assert_string_equal(e.text, "tensor 'a?[2J??\xC3\xA9??z?\?'");
    qn_error_wrap(&e, "%s", "line\n\ttab \xE2\x82\xAC\x01");
    assert_string_equal(e.text, "line\n\ttab \xE2\x82\xAC?: tensor 'a?[2J??\xC3\xA9??z?\?'");
}

static void error_without_record_still_returns_the_status(void **state) {
    (void)state;
    assert_int_equal(qn_error_set(NULL, QN_IO, "nobody listens"), QN_IO);
    assert_int_equal(qn_error_wrap(NULL, "nobody listens"), QN_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_unknown_number_has_a_name),
        cmocka_unit_test(status_numbers_are_pinned),
        cmocka_unit_test(error_wrapped_twice_reads_from_outside_in),
        cmocka_unit_test(error_too_long_says_that_it_was_cut),
        cmocka_unit_test(error_quotes_nothing_that_steers),
        cmocka_unit_test(error_without_record_still_returns_the_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
