/* The JSON scanner: what it accepts, where it says a text is broken, and that the size of the window makes no difference. */
#include <stdlib.h>
#include <string.h>

#include "cmocka_setup.h"
#include "prof/json_scan.h"

typedef struct window { /* a text that may end anywhere: bytes behind the end are 0, as the scanner needs */
    char bytes[4096];
    prof_scan scan;
} window;

static prof_scan_result scan(window *w, const char *text, size_t length, int last, int strict, prof_tok *tok, size_t *took) {
    memset(w, 0, sizeof *w);
    memcpy(w->bytes, text, length);
    w->scan.base = w->bytes;
    w->scan.end = w->bytes + length;
    w->scan.last = last;
    w->scan.strict = strict;
    const char *p = w->bytes;
    prof_scan_result result = qn_prof_scan_value(&w->scan, &p, tok);
    *took = (size_t)(p - w->bytes);
    return result;
}

static void scan_value_accepts_what_the_reference_does(void **state) {
    (void)state;
    static const char *const GOOD[] = {"1",
                                       "-0",
                                       "12.5e+3",
                                       "\"a\\u00e9\\n\"",
                                       "[]",
                                       "{}",
                                       "[1, {\"a\": [null, true]}, \"x\"]",
                                       "NaN",
                                       "-Infinity",
                                       "N/A",
                                       "\"tab\tinside\"",
                                       "\"\\ud800\"",
                                       "{\"a\":1,\"a\":2}"};
    for (size_t i = 0; i < sizeof GOOD / sizeof *GOOD; i++) {
        window w;
        prof_tok tok;
        size_t took;
        assert_int_equal(scan(&w, GOOD[i], strlen(GOOD[i]), 1, 1, &tok, &took), PROF_SCAN_OK);
        assert_int_equal(took, strlen(GOOD[i]));
    }
}

static void scan_value_names_the_place_of_a_fault(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int at, lax; /* lax: accepted unless strict */
    } BAD[] = {{"01", 1, 0},   {"1.", 2, 0},  {"[1 2]", 3, 0},      {"{\"a\" 1}", 5, 0}, {"{1: 2}", 1, 0},
               {"[1,]", 3, 0}, {"tru", 0, 0}, {"\"abc", 4, 0},      {"[[]", 3, 0},       {"\"a\\q\"", 2, 1},
               {"nan", 0, 1},  {"1e", 2, 0},  {"{\"a\":1,}", 7, 0}, {"-", 1, 0},         {"\"\\u12\"", 1, 1}};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        window w;
        prof_tok tok;
        size_t took;
        assert_int_equal(scan(&w, BAD[i].text, strlen(BAD[i].text), 1, 1, &tok, &took), PROF_SCAN_BAD);
        assert_int_equal(w.scan.bad_at - w.bytes, BAD[i].at);
        assert_int_equal(scan(&w, BAD[i].text, strlen(BAD[i].text), 1, 0, &tok, &took) == PROF_SCAN_OK, BAD[i].lax);
    }
}

static void scan_value_cut_anywhere_asks_for_more(void **state) {
    (void)state;
    static const char TEXT[] = "{\"k\": [12.5, -3, \"a\\u0041\\\\b\", true, {\"x\": null}], \"z\": -Infinity} ";
    for (size_t cut = 0; cut < sizeof TEXT - 2; cut++) {
        window w;
        prof_tok tok;
        size_t took;
        assert_int_equal(scan(&w, TEXT, cut, 0, 0, &tok, &took), PROF_SCAN_MORE);
        assert_int_equal(took, 0);
    }
}

static void skip_survives_any_cut(void **state) {
    (void)state;
    static const char TEXT[] = "[{\"k\": [12.5, -3, \"a\\u0041\\\\b\", true, {\"x\": null}]}, [[]], {}, N/A] ";
    for (size_t cut = 1; cut < sizeof TEXT - 1; cut++) {
        window w;
        prof_skip skip;
        memset(&w, 0, sizeof w);
        memcpy(w.bytes, TEXT, cut);
        w.scan.base = w.bytes;
        w.scan.end = w.bytes + cut;
        const char *p = w.bytes;
        qn_prof_skip_begin(&skip);
        if (qn_prof_skip_run(&w.scan, &p, &skip) == PROF_SCAN_MORE) { /* the rest arrives where the first part ended */
            memcpy(w.bytes, TEXT, sizeof TEXT - 1);
            w.scan.end = w.bytes + sizeof TEXT - 1;
            assert_int_equal(qn_prof_skip_run(&w.scan, &p, &skip), PROF_SCAN_OK);
        }
        assert_int_equal(p - w.bytes, sizeof TEXT - 2);
    }
}

static void nesting_beyond_the_limit_is_refused(void **state) {
    (void)state;
    char deep[PROF_SCAN_DEPTH + 1];
    window w;
    prof_tok tok;
    size_t took;
    memset(deep, '[', sizeof deep);
    assert_int_equal(scan(&w, deep, sizeof deep, 1, 0, &tok, &took), PROF_SCAN_BAD);
    assert_int_equal(w.scan.bad_at - w.bytes, PROF_SCAN_DEPTH);
}

static void integers_beyond_64_bits_become_doubles(void **state) {
    (void)state;
    static const char *const TEXTS[] = {"9223372036854775807", "-9223372036854775808", "9223372036854775808", "-1e2"};
    static const int TAGS[] = {PROF_INT, PROF_INT, PROF_DBL, PROF_DBL};
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++) {
        window w;
        prof_tok tok;
        size_t took;
        assert_int_equal(scan(&w, TEXTS[i], strlen(TEXTS[i]), 1, 1, &tok, &took), PROF_SCAN_OK);
        assert_int_equal(qn_prof_tok_number(&w.scan, &tok).tag, TAGS[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scan_value_accepts_what_the_reference_does), cmocka_unit_test(scan_value_names_the_place_of_a_fault),
        cmocka_unit_test(scan_value_cut_anywhere_asks_for_more),      cmocka_unit_test(skip_survives_any_cut),
        cmocka_unit_test(nesting_beyond_the_limit_is_refused),        cmocka_unit_test(integers_beyond_64_bits_become_doubles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
