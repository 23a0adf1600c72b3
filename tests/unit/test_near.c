/* Which names are near a word that somebody mistyped. */
#include <string.h>

#include <quern/quern.h>

#include "cmocka_setup.h"

static const char *const NAMES[] = {"add",
                                    "add_id",
                                    "matmul",
                                    "mul_mat",
                                    "mul_mat_id",
                                    "soft_max",
                                    "llama",
                                    "llama4",
                                    "mllama",
                                    "l2",
                                    "a_name_of_more_letters_than_anybody_would_care_to_look_through_for_a_slip",
                                    NULL};

static const char *name_at(const void *user, int i) { return ((const char *const *)user)[i]; }

static void names_that_are_near(void **state) {
    (void)state;
    static const struct {
        const char *word, *want; /* nearest first, with spaces */
    } CASES[] = {{"matmull", "matmul"},
                 {"mul_matt", "mul_mat mul_mat_id"},
                 {"SOFT_MAX", "soft_max"},
                 {"ad", "add"},
                 {"llama5", "llama llama4 mllama"},
                 {"llama_embed", "llama"},
                 {"zz", ""},
                 {"", ""},
                 {"softmax", "soft_max"},
                 {"foo", ""},
                 {"l1", "l2"},
                 {"add", "add add_id"}};
    for (size_t c = 0; c < sizeof CASES / sizeof *CASES; c++) {
        int nearest[4], n = qn_nearest_names(CASES[c].word, name_at, NAMES, nearest, 4);
        char got[200] = "";
        for (int i = 0; i < n; i++) strcat(strcat(got, i ? " " : ""), NAMES[nearest[i]]);
        if (strcmp(got, CASES[c].want) != 0) fail_msg("'%s': '%s', not '%s'", CASES[c].word, got, CASES[c].want);
        int one = -1;
        assert_int_equal(qn_nearest_names(CASES[c].word, name_at, NAMES, &one, 1), n > 0);
        assert_int_equal(one, n ? nearest[0] : -1);
    }
}

static void odd_calls_find_nothing(void **state) {
    (void)state;
    static char word[100000];
    int nearest[64] = {-7};
    memset(word, 'a', sizeof word - 1);
    assert_int_equal(qn_nearest_names(word, name_at, NAMES, nearest, 4), 0);
    assert_int_equal(qn_nearest_names("add", name_at, NAMES, nearest, 0), 0);
    assert_int_equal(qn_nearest_names("add", name_at, NAMES, nearest, -1), 0);
    assert_int_equal(nearest[0], -7);
    assert_int_equal(qn_nearest_names(NULL, name_at, NAMES, nearest, 4), 0);
    assert_int_equal(qn_nearest_names("add", NULL, NAMES, nearest, 4), 0);
    assert_int_equal(qn_nearest_names("add", name_at, NAMES, NULL, 4), 0);
    assert_true(qn_nearest_names("add", name_at, NAMES, nearest, INT32_MAX) >= 1);
    assert_int_equal(qn_nearest_names("\xff\xfe\x80", name_at, NAMES, nearest, 4), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_that_are_near), cmocka_unit_test(odd_calls_find_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
