/* The pool: every part once, in any number of rounds, with any number of threads, or with the caller's own. */
#include <stdatomic.h>

#include "cmocka_setup.h"
#include "thread/pool.h"

enum { PARTS = 1000 };

typedef struct tally {
    _Atomic int seen[PARTS];
} tally;

static void count(void *arg, int64_t part) { atomic_fetch_add(&((tally *)arg)->seen[part], 1); }

static void every_part_runs_once(void **state) {
    (void)state;
    static const int threads[] = {1, 2, 3, 7, 32};
    for (int i = 0; i < 5; i++) {
        qn_pool *pool;
        tally t;
        assert_int_equal(qn_pool_create(threads[i], &pool), QN_OK);
        assert_in_range(qn_pool_threads(pool), 1, threads[i]);
        for (int k = 0; k < PARTS; k++) atomic_store(&t.seen[k], 0);
        for (int round = 1; round <= 200; round++) {
            int64_t parts = round % 7 == 0 ? 1 : PARTS - round;
            qn_pool_for(pool, parts, count, &t);
            for (int64_t k = 0; k < parts; k++) atomic_fetch_sub(&t.seen[k], 1);
        }
        for (int k = 0; k < PARTS; k++) assert_int_equal(atomic_load(&t.seen[k]), 0);
        qn_pool_destroy(pool);
    }
    tally t;
    for (int k = 0; k < PARTS; k++) atomic_store(&t.seen[k], 0);
    qn_pool_for(NULL, PARTS, count, &t);
    for (int k = 0; k < PARTS; k++) assert_int_equal(atomic_load(&t.seen[k]), 1);
}

static void backwards(void *user, int64_t parts, void (*task)(void *, int64_t), void *arg) {
    ++*(int *)user;
    while (parts-- > 0) task(arg, parts);
}

static void a_borrowed_pool_is_used(void **state) {
    (void)state;
    qn_pool *pool;
    int calls = 0;
    tally t;
    for (int k = 0; k < PARTS; k++) atomic_store(&t.seen[k], 0);
    assert_int_equal(qn_pool_borrow(backwards, &calls, 4, &pool), QN_OK);
    assert_int_equal(qn_pool_threads(pool), 4);
    qn_pool_for(pool, PARTS, count, &t);
    qn_pool_for(pool, 1, count, &t);
    assert_int_equal(calls, 1); /* one part is not worth handing over */
    for (int k = 1; k < PARTS; k++) assert_int_equal(atomic_load(&t.seen[k]), 1);
    qn_pool_destroy(pool);
    assert_int_equal(qn_pool_borrow(NULL, NULL, 4, &pool), QN_ARGUMENT);
    assert_int_equal(qn_pool_create(-1, &pool), QN_ARGUMENT);
    assert_int_equal(qn_pool_create(2, NULL), QN_ARGUMENT);
}

/* More than a pool can have: a machine may have as many processors, and `threads 0` asks for them all. */
static void too_many_are_fewer(void **state) {
    (void)state;
    qn_pool *pool;
    tally t;
    for (int k = 0; k < PARTS; k++) atomic_store(&t.seen[k], 0);
    assert_int_equal(qn_pool_create(100000, &pool), QN_OK);
    assert_in_range(qn_pool_threads(pool), 1, 256);
    qn_pool_for(pool, PARTS, count, &t);
    for (int k = 0; k < PARTS; k++) assert_int_equal(atomic_load(&t.seen[k]), 1);
    qn_pool_destroy(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_runs_once),
        cmocka_unit_test(a_borrowed_pool_is_used),
        cmocka_unit_test(too_many_are_fewer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
