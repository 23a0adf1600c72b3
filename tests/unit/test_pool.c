/* The pool: every part once, in any number of rounds, with any number of threads, or with the caller's own. */
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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
    assert_in_range(qn_pool_threads(pool), 1, QN_POOL_MAX);
    qn_pool_for(pool, PARTS, count, &t);
    for (int k = 0; k < PARTS; k++) assert_int_equal(atomic_load(&t.seen[k]), 1);
    qn_pool_destroy(pool);
}

/* ---- A pool that several have in common */

enum { TOGETHER = 3000 };

typedef struct visitor {
    qn_pool *pool;
    int wrong;
} visitor;

static void *visit(void *arg) {
    visitor *v = arg;
    tally t;
    for (int k = 0; k < PARTS; k++) atomic_store(&t.seen[k], 0);
    for (int round = 0; round < TOGETHER; round++) {
        int64_t parts = 2 + round % 60;
        qn_pool_for(v->pool, parts, count, &t);
        for (int64_t k = 0; k < parts; k++) v->wrong += atomic_exchange(&t.seen[k], 0) != 1;
    }
    return NULL;
}

static void two_callers_get_their_own(void **state) {
    (void)state;
    qn_pool *pool;
    pthread_t other;
    assert_int_equal(qn_pool_create(3, &pool), QN_OK);
    visitor a = {pool, 0}, b = {pool, 0};
    assert_int_equal(pthread_create(&other, NULL, visit, &a), 0);
    visit(&b);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_int_equal(a.wrong + b.wrong, 0);
    qn_pool_destroy(pool);
}

typedef struct nest {
    qn_pool *pool;
    tally inner[8];
} nest;

static void call_again(void *arg, int64_t part) {
    nest *n = arg;
    qn_pool_for(n->pool, PARTS, count, &n->inner[part]);
}

static void parts_may_call_again(void **state) {
    (void)state;
    nest n;
    memset(&n, 0, sizeof n);
    assert_int_equal(qn_pool_create(3, &n.pool), QN_OK);
    qn_pool_for(n.pool, 8, call_again, &n);
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < PARTS; k++) assert_int_equal(atomic_load(&n.inner[i].seen[k]), 1);
    qn_pool_destroy(n.pool);
}

/* ---- What its threads take over from the program, and what not */

static _Atomic int handled;
static void handle(int number) { atomic_store(&handled, number); }

/* A signal that the program waits for: were a worker to take it, the program would wait for ever. */
static void signals_are_the_program_s(void **state) {
    (void)state;
    qn_pool *pool;
    sigset_t one, before;
    struct sigaction mine, old;
    assert_int_equal(qn_pool_create(4, &pool), QN_OK);
    memset(&mine, 0, sizeof mine);
    mine.sa_handler = handle;
    assert_int_equal(sigaction(SIGUSR1, &mine, &old), 0);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &one, &before), 0);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(kill(getpid(), SIGUSR1), 0);
        assert_int_equal(sigtimedwait(&one, NULL, &(struct timespec){.tv_sec = 5}), SIGUSR1);
    }
    assert_int_equal(atomic_load(&handled), 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    assert_int_equal(sigaction(SIGUSR1, &old, NULL), 0);
    qn_pool_destroy(pool);
}

typedef struct thirds {
    pthread_t caller;
    _Atomic int by_others;
    float third[PARTS];
} thirds;

/* The caller holds back until somebody else has had a part, or does not come. */
static void divide(void *arg, int64_t part) {
    thirds *t = arg;
    volatile float one = 1, three = 3;
    if (!pthread_equal(t->caller, pthread_self())) atomic_store(&t->by_others, 1);
    for (int ms = 0; part == 0 && ms < 5000 && !atomic_load(&t->by_others); ms++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    t->third[part] = one / three;
}

static void all_round_as_the_caller_does(void **state) {
    (void)state;
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TONEAREST};
    static const float thirds_of[] = {0x1.555556p-2f, 0x1.555554p-2f, 0x1.555556p-2f};
    qn_pool *pool;
    assert_int_equal(qn_pool_create(3, &pool), QN_OK);
    for (int i = 0; i < 3; i++) {
        thirds t = {.caller = pthread_self()};
        assert_int_equal(fesetround(modes[i]), 0);
        qn_pool_for(pool, PARTS, divide, &t);
        assert_int_equal(fesetround(FE_TONEAREST), 0);
        if (qn_pool_threads(pool) > 1) assert_int_equal(atomic_load(&t.by_others), 1);
        for (int k = 0; k < PARTS; k++) assert_true(t.third[k] == thirds_of[i]);
    }
    qn_pool_destroy(pool);
}

/* Its threads stayed behind: the child can use what it got, and let go of it. */
static void a_child_may_let_go_of_its_pool(void **state) {
    (void)state;
    qn_pool *pool;
    assert_int_equal(qn_pool_create(3, &pool), QN_OK);
    tally t;
    for (int k = 0; k < PARTS; k++) atomic_store(&t.seen[k], 0);
    qn_pool_for(pool, PARTS, count, &t);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* they sleep by then */
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20); /* instead of waiting for ever */
        qn_pool_destroy(pool);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    qn_pool_for(pool, PARTS, count, &t);
    for (int k = 0; k < PARTS; k++) assert_int_equal(atomic_load(&t.seen[k]), 2);
    qn_pool_destroy(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_runs_once),         cmocka_unit_test(a_borrowed_pool_is_used),
        cmocka_unit_test(too_many_are_fewer),           cmocka_unit_test(two_callers_get_their_own),
        cmocka_unit_test(parts_may_call_again),         cmocka_unit_test(signals_are_the_program_s),
        cmocka_unit_test(all_round_as_the_caller_does), cmocka_unit_test(a_child_may_let_go_of_its_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
