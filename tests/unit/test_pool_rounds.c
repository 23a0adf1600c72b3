/* The pool's rounds, with so few digits for their number that it comes again all the time: wide and narrow rounds, after which a
 * lane was left out of some, and pauses in which workers fall asleep. Every part still runs once. */
#define TAKEN_BITS 60
#include "thread/pool.c"

#include <sys/resource.h>
#include <time.h>

#include "cmocka_setup.h"

enum { PARTS = 40, THREADS = 7, ROUNDS = 20000 };

typedef struct tally {
    _Atomic int seen[PARTS];
} tally;

static void count(void *arg, int64_t part) { atomic_fetch_add_explicit(&((tally *)arg)->seen[part], 1, memory_order_relaxed); }

static void check_round(qn_pool *pool, tally *t, int64_t parts) {
    qn_pool_for(pool, parts, count, t);
    for (int64_t k = 0; k < PARTS; k++) assert_int_equal(atomic_exchange(&t->seen[k], 0), k < parts);
}

static void numbers_come_again(void **state) {
    (void)state;
    qn_pool *pool;
    tally t;
    memset(&t, 0, sizeof t);
    assert_int_equal(qn_pool_create(THREADS, &pool), QN_OK);
    for (int round = 0; round < ROUNDS; round++) check_round(pool, &t, round % 16 ? 2 : 2 + round / 16 % (PARTS - 2));
    qn_pool_destroy(pool);
}

/* With as many narrow rounds between the wide ones as there are numbers, a lane finds its own number again. */
static void a_lane_was_left_out(void **state) {
    (void)state;
    qn_pool *pool;
    tally t;
    memset(&t, 0, sizeof t);
    assert_int_equal(qn_pool_create(THREADS, &pool), QN_OK);
    for (int between = 0; between < 2 * (int)TAKEN_TAGS; between++)
        for (int i = 0; i < 20; i++) {
            check_round(pool, &t, PARTS);
            for (int k = 0; k < between; k++) check_round(pool, &t, 2);
        }
    qn_pool_destroy(pool);
}

static void those_who_sleep_are_woken(void **state) {
    (void)state;
    qn_pool *pool;
    tally t;
    memset(&t, 0, sizeof t);
    assert_int_equal(qn_pool_create(THREADS, &pool), QN_OK);
    for (int round = 0; round < 60; round++) {
        if (round % 3 == 0) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        check_round(pool, &t, round % 2 ? PARTS : 3);
    }
    qn_pool_destroy(pool);
}

/* A round of two parts wants one worker, and who sleeps beside it sleeps on: woken each time, they would change places with others
 * on their cores thousands of times. */
static void a_narrow_round_wakes_few(void **state) {
    (void)state;
    enum { MANY = 64, NARROW = 100 };
    qn_pool *pool;
    tally t;
    struct rusage before, after;
    memset(&t, 0, sizeof t);
    assert_int_equal(qn_pool_create(MANY, &pool), QN_OK);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
    for (int round = 0; round < NARROW; round++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        check_round(pool, &t, 2);
    }
    assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
    assert_in_range(after.ru_nvcsw - before.ru_nvcsw, 0, NARROW * MANY / 4);
    qn_pool_destroy(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_come_again),
        cmocka_unit_test(a_lane_was_left_out),
        cmocka_unit_test(those_who_sleep_are_woken),
        cmocka_unit_test(a_narrow_round_wakes_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
