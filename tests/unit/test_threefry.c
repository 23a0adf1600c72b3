/* The generator against the published known answers of Threefry2x32 with 20 rounds: a sampler that agrees with itself could
 * still be another generator than the one the documentation names. */
#include "cmocka_setup.h"
#include "op/threefry.h"

static void expect(qn_words counter, qn_words key, qn_words want) {
    qn_words have = qn_threefry(counter, key);
    assert_int_equal(have.a, want.a);
    assert_int_equal(have.b, want.b);
}

static void threefry_of_zeros_is_as_published(void **state) {
    (void)state;
    expect((qn_words){0, 0}, (qn_words){0, 0}, (qn_words){0x6b200159u, 0x99ba4efeu});
}

static void threefry_of_ones_is_as_published(void **state) {
    (void)state;
    qn_words ones = {0xffffffffu, 0xffffffffu};
    expect(ones, ones, (qn_words){0x1cb996fcu, 0xbb002be7u});
}

static void threefry_of_pi_is_as_published(void **state) {
    (void)state;
    expect((qn_words){0x243f6a88u, 0x85a308d3u}, (qn_words){0x13198a2eu, 0x03707344u}, (qn_words){0xc4923a9cu, 0x483df7a0u});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threefry_of_zeros_is_as_published),
        cmocka_unit_test(threefry_of_ones_is_as_published),
        cmocka_unit_test(threefry_of_pi_is_as_published),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
