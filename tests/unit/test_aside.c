/* Sleepers are kept off their waker's processor while they are woken, and no longer. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "thread/pool.c"

#include <dirent.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cmocka_setup.h"

static int can(const char *text) {
    char path[] = "/tmp/quern_aside_XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
    int is = qn_aside_can(path);
    remove(path);
    return is;
}

/* A filter may answer a call by ending the process. */
static void a_filter_forbids(void **state) {
    (void)state;
    assert_int_equal(can("Name:\tquern\nSeccomp:\t0\nSeccomp_filters:\t0\n"), 1);
    assert_int_equal(can("Name:\tquern\nSeccomp:\t2\nSeccomp_filters:\t1\n"), 0);
    assert_int_equal(can("Seccomp:\t1\n"), 0);
    assert_int_equal(can("Seccomp:\n"), 0);
    assert_int_equal(can("Name:\tSeccomp: 0\n"), 0);
    assert_int_equal(can(""), 0);
    assert_int_equal(qn_aside_can("/nowhere/status"), 0);
}

typedef struct bed {
    sem_t ready, wake;
    qn_aside aside;
} bed;

static void *rest(void *arg) {
    bed *b = arg;
    cpu_set_t *is = malloc(sizeof *is);
    sem_post(&b->ready);
    sem_wait(&b->wake);
    qn_aside_release(&b->aside);
    if (is && sched_getaffinity(0, sizeof *is, is)) CPU_ZERO(is);
    return is;
}

static void one_sleeps_aside(void **state) {
    (void)state;
    cpu_set_t all, one, is;
    bed b;
    pthread_t sleeper;
    void *after;
    memset(&b, 0, sizeof b);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    if (CPU_COUNT(&all) < 2) skip();
    int here = sched_getcpu();
    CPU_ZERO(&one);
    CPU_SET(here, &one);
    assert_int_equal(sem_init(&b.ready, 0, 0), 0);
    assert_int_equal(sem_init(&b.wake, 0, 0), 0);
    assert_int_equal(pthread_create(&sleeper, NULL, rest, &b), 0);
    sem_wait(&b.ready);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    for (int i = 0; i < 2; i++) { /* the second time it must not take the first one's set for what was before */
        qn_aside_keep(&b.aside, sleeper);
        assert_int_equal(pthread_getaffinity_np(sleeper, sizeof is, &is), 0);
        assert_int_equal(CPU_COUNT(&is), CPU_COUNT(&all) - 1);
        assert_false(CPU_ISSET(here, &is));
    }
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    sem_post(&b.wake);
    assert_int_equal(pthread_join(sleeper, &after), 0);
    assert_non_null(after);
    assert_true(CPU_EQUAL((cpu_set_t *)after, &all));
    free(after);
    sem_destroy(&b.ready);
    sem_destroy(&b.wake);
}

/* A list that was given to it stays its list: the processors of a group are another thing. */
static void a_list_comes_back(void **state) {
    (void)state;
    cpu_set_t all, other, is;
    bed b;
    pthread_t sleeper;
    void *after;
    memset(&b, 0, sizeof b);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    if (CPU_COUNT(&all) < 2) skip();
    CPU_ZERO(&other);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&other); i++)
        if (CPU_ISSET(i, &all)) CPU_SET(i, &other);
    assert_int_equal(sem_init(&b.ready, 0, 0), 0);
    assert_int_equal(sem_init(&b.wake, 0, 0), 0);
    assert_int_equal(pthread_create(&sleeper, NULL, rest, &b), 0);
    sem_wait(&b.ready);
    assert_int_equal(pthread_setaffinity_np(sleeper, sizeof other, &other), 0);
    qn_aside_keep(&b.aside, sleeper);
    assert_int_equal(b.aside.is_known, 1);
    assert_int_equal(pthread_getaffinity_np(sleeper, sizeof is, &is), 0);
    assert_true(CPU_EQUAL(&is, &other));
    b.aside.is_kept = 1; /* as if it had been */
    sem_post(&b.wake);
    assert_int_equal(pthread_join(sleeper, &after), 0);
    assert_true(CPU_EQUAL((cpu_set_t *)after, &other));
    free(after);
    sem_destroy(&b.ready);
    sem_destroy(&b.wake);
}

/* Who may use one processor only, the waker's, stays where it is. */
static void one_without_a_choice_stays(void **state) {
    (void)state;
    cpu_set_t all, one, is;
    bed b;
    pthread_t sleeper;
    void *after;
    memset(&b, 0, sizeof b);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    assert_int_equal(sem_init(&b.ready, 0, 0), 0);
    assert_int_equal(sem_init(&b.wake, 0, 0), 0);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(pthread_create(&sleeper, NULL, rest, &b), 0);
    sem_wait(&b.ready);
    qn_aside_keep(&b.aside, sleeper);
    assert_int_equal(b.aside.is_kept, 0);
    assert_int_equal(pthread_getaffinity_np(sleeper, sizeof is, &is), 0);
    assert_true(CPU_EQUAL(&is, &one));
    sem_post(&b.wake);
    assert_int_equal(pthread_join(sleeper, &after), 0);
    free(after);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    sem_destroy(&b.ready);
    sem_destroy(&b.wake);
}

/* How many threads of this process may use other processors than these. */
static int others_than(const cpu_set_t *all) {
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    int others = 0;
    for (struct dirent *d; (d = readdir(tasks));) {
        cpu_set_t is;
        int id = atoi(d->d_name);
        others += id > 0 && sched_getaffinity(id, sizeof is, &is) == 0 && !CPU_EQUAL(&is, all);
    }
    closedir(tasks);
    return others;
}

static void nothing(void *arg, int64_t part) { (void)arg, (void)part; }

/* Rounds too short for those who are woken to come in time, too; on any system, whether it needs this or not. */
static void a_pool_gives_back_what_it_took(void **state) {
    (void)state;
    qn_pool *pool;
    cpu_set_t all;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_int_equal(qn_pool_create(5, &pool), QN_OK);
    pool->can_place = pool->is_queued = 1;
    for (int round = 0; round < 200; round++) {
        if (round % 4 == 0) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        qn_pool_for(pool, 2 + round % 7, nothing, NULL);
    }
    int others = 0;
    for (int ms = 0; ms < 5000 && (others = others_than(&all)) > 0; ms++) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(others, 0);
    int known = 0;
    for (int i = 1; i < pool->n_threads; i++) known += pool->aside[i].is_known;
    if (pool->n_threads > 1) assert_in_range(known, 1, 4);
    qn_pool_destroy(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_filter_forbids),
        cmocka_unit_test(one_sleeps_aside),
        cmocka_unit_test(a_list_comes_back),
        cmocka_unit_test(one_without_a_choice_stays),
        cmocka_unit_test(a_pool_gives_back_what_it_took),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
