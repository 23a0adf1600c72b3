/* The analyser's orders: numbers by radix where they are alike, by comparison where they are not, and always stable. */
#include <stdlib.h>

#include "cmocka_setup.h"
#include "prof/prof_sort.h"

enum { MOST = 3000 };

static prof_num number_at(const void *numbers, size_t i) { return ((const prof_num *)numbers)[i]; }

/* Against insertion, which is slow and plainly right. */
static void assert_ordered(const prof_num *numbers, size_t n) {
    static uint32_t order[MOST], wanted[MOST];
    qn_arena arena;
    qn_arena_init(&arena, 0);
    int sorted;
    assert_int_equal(qn_prof_order(&arena, n, number_at, numbers, order, &sorted), QN_OK);
    for (size_t i = 0; i < n; i++) {
        size_t at = i;
        for (; at > 0 && prof_lt(numbers[i], numbers[wanted[at - 1]]); at--) {
            wanted[at] = wanted[at - 1];
        }
        wanted[at] = (uint32_t)i;
    }
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(sorted ? i : order[i], wanted[i]);
    }
    assert_int_equal(arena.used, 0);
    qn_arena_destroy(&arena);
}

static int64_t random_in(uint64_t *seed, int64_t range) {
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return (int64_t)((*seed >> 33) % (uint64_t)range);
}

static void times_of_a_trace_come_in_order(void **state) {
    (void)state;
    static prof_num numbers[MOST];
    uint64_t seed = 1;
    for (int range = 1; range <= 1000000; range *= 100) {
        for (size_t i = 0; i < MOST; i++) {
            numbers[i] = prof_int(1623142623460111 + random_in(&seed, range));
        }
        assert_ordered(numbers, MOST);
        for (size_t i = 0; i < MOST; i++) {
            numbers[i] = prof_dbl(1623142623460111.0 + 0.25 * (double)random_in(&seed, range));
        }
        assert_ordered(numbers, MOST);
    }
}

static void numbers_of_every_kind_come_in_order(void **state) {
    (void)state;
    static const double odd[] = {0.0, -0.0, 1e-300, -1e-300, 1e300, -1e300, HUGE_VAL, -HUGE_VAL, 0.5, -0.5, 3.0, -3.0};
    static const int64_t far[] = {INT64_MIN, INT64_MAX, 0, -1, 1, INT64_MIN + 1, INT64_MAX - 1, 42, -42, 42};
    prof_num numbers[64];
    size_t n = 0;
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        numbers[n++] = prof_int(far[i]);
    }
    assert_ordered(numbers, n);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        numbers[n++] = prof_dbl(odd[i]);
    }
    assert_ordered(numbers + sizeof far / sizeof *far, sizeof odd / sizeof *odd);
    assert_ordered(numbers, n); /* both kinds */
    numbers[n++] = prof_add(prof_int(INT64_MAX), prof_int(INT64_MAX));
    assert_ordered(numbers, n);
    assert_ordered(numbers, 1);
    assert_ordered(numbers, 0);
}

/* What is not a number has no place; all others must still be there, each once. */
static void not_a_number_loses_nothing(void **state) {
    (void)state;
    prof_num numbers[40];
    uint32_t order[40];
    int seen[40] = {0}, sorted;
    qn_arena arena;
    qn_arena_init(&arena, 0);
    for (int i = 0; i < 40; i++) {
        numbers[i] = prof_dbl(i % 3 ? (double)(40 - i) : (double)NAN);
    }
    assert_int_equal(qn_prof_order(&arena, 40, number_at, numbers, order, &sorted), QN_OK);
    for (int i = 0; i < 40; i++) {
        seen[sorted ? i : (int)order[i]]++;
    }
    for (int i = 0; i < 40; i++) {
        assert_int_equal(seen[i], 1);
    }
    qn_arena_destroy(&arena);
}

static void gather_follows_the_order(void **state) {
    (void)state;
    const char items[] = "badc";
    const uint32_t order[] = {1, 0, 3, 2};
    qn_arena arena;
    qn_arena_init(&arena, 0);
    char *got = qn_prof_gather(&arena, items, 4, 1, order);
    assert_memory_equal(got, "abcd", 4);
    qn_arena_destroy(&arena);
    qn_arena_init(&arena, 3);
    assert_null(qn_prof_gather(&arena, items, 4, 1, order));
    int sorted;
    uint32_t none[4];
    const prof_num numbers[4] = {prof_int(4), prof_int(3), prof_int(2), prof_int(1)};
    assert_int_equal(qn_prof_order(&arena, 4, number_at, numbers, none, &sorted), QN_NO_MEMORY);
    qn_arena_destroy(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_of_a_trace_come_in_order),
        cmocka_unit_test(numbers_of_every_kind_come_in_order),
        cmocka_unit_test(not_a_number_loses_nothing),
        cmocka_unit_test(gather_follows_the_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
