/* The interval algebra of the step split, case by case. */
#include "cmocka_setup.h"
#include "prof/prof_interval.h"

static qn_arena arena_of(void) {
    qn_arena arena;
    qn_arena_init(&arena, 0);
    return arena;
}

static prof_ranges list(qn_arena *arena, const int *ends, size_t n) {
    prof_ranges made = {NULL, 0, 0};
    for (size_t i = 0; i < n; i += 2) {
        assert_int_equal(qn_prof_range_push(arena, &made, prof_int(ends[i]), prof_int(ends[i + 1])), QN_OK);
    }
    return made;
}

#define LIST(arena, ...) list(arena, (const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

static void assert_ranges(const prof_ranges *got, const int *ends, size_t n) {
    assert_int_equal(got->n, n / 2);
    for (size_t i = 0; i < got->n; i++) {
        assert_int_equal(got->at[i].start.i, ends[2 * i]);
        assert_int_equal(got->at[i].end.i, ends[2 * i + 1]);
    }
}

#define ASSERT_RANGES(got, ...) assert_ranges(got, (const int[]){__VA_ARGS__}, sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

static void merge_touching_ranges_become_one(void **state) {
    (void)state;
    qn_arena arena = arena_of();
    prof_ranges in = LIST(&arena, 20, 30, 0, 10, 10, 15, 12, 14, 40, 40), out = {NULL, 0, 0};
    assert_int_equal(qn_prof_ranges_merge(&arena, &in, &out), QN_OK);
    ASSERT_RANGES(&out, 0, 15, 20, 30, 40, 40);
    assert_int_equal(qn_prof_ranges_sum(&out).i, 25);
    assert_int_equal(qn_prof_ranges_sum_in(prof_int(5), prof_int(25), &out).i, 15);
    qn_arena_destroy(&arena);
}

static void meet_and_minus_split_a_at_b(void **state) {
    (void)state;
    qn_arena arena = arena_of();
    prof_ranges a = LIST(&arena, 0, 10, 20, 30, 50, 60), b = LIST(&arena, 2, 4, 8, 22, 55, 70);
    prof_ranges both = {NULL, 0, 0}, rest = {NULL, 0, 0};
    assert_int_equal(qn_prof_ranges_meet(&arena, &a, &b, &both), QN_OK);
    ASSERT_RANGES(&both, 2, 4, 8, 10, 20, 22, 55, 60);
    assert_int_equal(qn_prof_ranges_minus(&arena, &a, &b, &rest), QN_OK);
    ASSERT_RANGES(&rest, 0, 2, 4, 8, 22, 30, 50, 55);
    qn_arena_destroy(&arena);
}

static void algebra_with_nan_ends(void **state) {
    (void)state;
    qn_arena arena = arena_of();
    prof_ranges a = LIST(&arena, 0, 10, 5, 20), b = LIST(&arena, 3, 4), out = {NULL, 0, 0};
    a.at[0].end = b.at[0].start = prof_dbl((double)NAN);
    assert_int_equal(qn_prof_ranges_meet(&arena, &a, &b, &out), QN_OK);
    out.n = 0;
    assert_int_equal(qn_prof_ranges_minus(&arena, &a, &b, &out), QN_OK);
    out.n = 0;
    assert_int_equal(qn_prof_ranges_merge(&arena, &a, &out), QN_OK);
    qn_arena_destroy(&arena);
}

static void pieces_keep_their_value_when_cut(void **state) {
    (void)state;
    qn_arena arena = arena_of();
    prof_pieces in = {NULL, 0, 0}, out = {NULL, 0, 0};
    assert_true(QN_VEC_ROOM(&arena, &in, 2));
    prof_piece first = {prof_int(0), prof_int(10), prof_dbl(0.5)}, second = {prof_int(20), prof_int(30), prof_int(1)};
    in.at[in.n++] = first;
    in.at[in.n++] = second;
    assert_int_equal(qn_prof_pieces_clip(&arena, &in, prof_int(5), prof_int(25), &out), QN_OK);
    assert_int_equal(out.n, 2);
    assert_int_equal(out.at[0].start.i, 5);
    assert_int_equal(out.at[1].end.i, 25);
    assert_int_equal(out.at[1].value.tag, PROF_INT);
    qn_arena_destroy(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merge_touching_ranges_become_one),
        cmocka_unit_test(meet_and_minus_split_a_at_b),
        cmocka_unit_test(algebra_with_nan_ends),
        cmocka_unit_test(pieces_keep_their_value_when_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
