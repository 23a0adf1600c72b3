/* Numbers of the profiler: text, rounding, reading, exact arithmetic. The expected texts are what the reference prints. */
#include <string.h>

#include "cmocka_setup.h"
#include "prof/prof_num.h"

static void assert_text(prof_num value, const char *expected) {
    char text[PROF_NUM_TEXT];
    int length = qn_prof_num_text(value, text);
    assert_int_equal(length, (int)strlen(expected));
    assert_memory_equal(text, expected, strlen(expected));
}

static void number_text_has_the_fewest_digits(void **state) {
    (void)state;
    assert_text(prof_dbl(0.1), "0.1");
    assert_text(prof_dbl(-0.0), "-0.0");
    assert_text(prof_dbl(7.0), "7.0");
    assert_text(prof_dbl(1e15), "1000000000000000.0");
    assert_text(prof_dbl(1e16), "1e+16");
    assert_text(prof_dbl(0.0001), "0.0001");
    assert_text(prof_dbl(0.000015), "1.5e-05");
    assert_text(prof_dbl(69.33333333333333), "69.33333333333333");
    assert_text(prof_dbl(158.33333333333334), "158.33333333333334");
    assert_text(prof_dbl(618970019642690137449562112.0), "6.189700196426902e+26"); /* a power of two */
    assert_text(prof_dbl(5e-324), "5e-324");
    assert_text(prof_dbl(1.7976931348623157e308), "1.7976931348623157e+308");
    assert_text(prof_dbl((double)INFINITY), "Infinity");
    assert_text(prof_int(INT64_MIN), "-9223372036854775808");
    assert_text(prof_absent(), "None");
}

static void number_read_rounds_to_nearest(void **state) {
    (void)state;
    static const char *const TEXTS[] = {"0",
                                        "1",
                                        "5981835104513352.123",
                                        "9007199254740993",
                                        "9007199254740992.5",
                                        "1e-400",
                                        "1e400",
                                        "123456789012345678901234567890",
                                        "2.2250738585072011e-308",
                                        "0.1",
                                        "17976931348623158e292"};
    static const double VALUES[] = {0,
                                    1,
                                    5981835104513352.123,
                                    9007199254740992.0,
                                    9007199254740992.0,
                                    0,
                                    HUGE_VAL,
                                    123456789012345678901234567890.0,
                                    2.2250738585072011e-308,
                                    0.1,
                                    17976931348623158e292};
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++) {
        double value = qn_prof_dbl_read(TEXTS[i], (int64_t)strlen(TEXTS[i]));
        assert_memory_equal(&value, &VALUES[i], sizeof value);
    }
}

static void rounding_follows_the_exact_value(void **state) {
    (void)state;
    assert_text(qn_prof_round2(prof_dbl(0.125)), "0.12"); /* an exact tie goes to even */
    assert_text(qn_prof_round2(prof_dbl(2.675)), "2.67"); /* the double lies below */
    assert_text(qn_prof_round2(prof_dbl(7.7)), "7.7");
    assert_text(qn_prof_round2(prof_dbl(-0.001)), "-0.0");
    assert_text(qn_prof_round2(prof_dbl(1234567890123.456)), "1234567890123.46");
    assert_text(qn_prof_round2(prof_int(3)), "3");
    assert_text(qn_prof_round0(prof_dbl(2.5)), "2");
    assert_text(qn_prof_round0(prof_dbl(-3.5)), "-4");
    assert_text(qn_prof_round0(prof_dbl(-18446744073709551616.0)), "-18446744073709551616");
    assert_text(prof_dbl(qn_prof_round_places(0.00012345, 4)), "0.0001");
}

static void integers_stay_exact_beyond_64_bits(void **state) {
    (void)state;
    prof_num span = prof_sub(prof_int(INT64_MIN), prof_int(INT64_MAX));
    assert_text(span, "-18446744073709551615");
    assert_text(prof_add(span, prof_int(INT64_MAX)), "-9223372036854775808"); /* and come back */
    assert_int_equal(prof_add(span, prof_int(INT64_MAX)).tag, PROF_INT);
    assert_text(prof_mul(prof_int(INT64_MAX), prof_int(1000)), "9223372036854775807000");
    assert_int_equal(prof_mul(prof_int(INT64_MAX), prof_int(INT64_MAX)).tag, PROF_DBL);
    assert_true(prof_lt(span, prof_int(INT64_MIN)));
    assert_text(prof_add(prof_int(1), prof_dbl(0.5)), "1.5");
}

static void integers_and_doubles_compare_exactly(void **state) {
    (void)state;
    assert_true(prof_gt(prof_int(9007199254740993), prof_dbl(9007199254740992.0)));
    assert_true(prof_eq(prof_int(7), prof_dbl(7.0)));
    assert_true(prof_same(prof_int(7), prof_dbl(7.0)));
    assert_true(prof_lt(prof_dbl(-0.5), prof_int(0)));
    assert_int_equal(prof_cmp(prof_int(1), prof_dbl((double)NAN)), 2);
    assert_false(prof_le(prof_dbl((double)NAN), prof_int(1)));
    assert_true(prof_lt(prof_int(INT64_MAX), prof_dbl(1e300)));
    assert_false(prof_same(prof_absent(), prof_int(0)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(number_text_has_the_fewest_digits),    cmocka_unit_test(number_read_rounds_to_nearest),
        cmocka_unit_test(rounding_follows_the_exact_value),     cmocka_unit_test(integers_stay_exact_beyond_64_bits),
        cmocka_unit_test(integers_and_doubles_compare_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
