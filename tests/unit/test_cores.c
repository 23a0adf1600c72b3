/* How many processors there are for the process: what a control group's quota buys, and what the system lets it run on. */
#define _GNU_SOURCE /* sched_setaffinity */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <quern/device.h>

#include "cmocka_setup.h"
#include "thread/cores.h"
#include "thread/pool.h"

static void a_quota_buys_cores(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int cores;
    } rows[] = {{"max 100000", 0}, {"200000 100000", 2}, {"150000 100000", 2}, {"50000 100000", 1},
                {"1 100000", 1},   {"-1 100000", 0},     {"100000 0", 0},      {"100000", 0},
                {"", 0},           {"quota", 0},         {"0 100000", 0},      {"9223372036854775807 1", 0},
                {"100000 -1", 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_int_equal(qn_cores_of_quota(rows[i].text), rows[i].cores);
}

/* ---- Groups, in a folder of our own */

static char top[64];

static void put(const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", top, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int granted(const char *list) {
    char path[256];
    put("list", list);
    snprintf(path, sizeof path, "%s/list", top);
    return qn_cores_granted(path, top);
}

static void folder(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", top, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void drop(void) {
    static const char *const names[] = {
        "list", "a/b/cpu.max", "a/b", "a/cpu.max", "a", "cpu/x/cpu.cfs_quota_us", "cpu/x/cpu.cfs_period_us", "cpu/x", "cpu"};
    char path[256];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", top, names[i]);
        remove(path);
    }
    remove(top);
}

static void groups_grant_cores(void **state) {
    (void)state;
    snprintf(top, sizeof top, "/tmp/test_cores.XXXXXX");
    assert_non_null(mkdtemp(top));
    folder("a");
    folder("a/b");
    put("a/cpu.max", "300000 100000\n");
    assert_int_equal(granted("0::/a/b\n"), 3); /* of the one around it */
    put("a/b/cpu.max", "max 100000\n");
    assert_int_equal(granted("0::/a/b\n"), 3);
    put("a/b/cpu.max", "150000 100000\n");
    assert_int_equal(granted("0::/a/b\n"), 2);
    assert_int_equal(granted("0::/a\n"), 3);
    assert_int_equal(granted("0::/\n"), 0);
    assert_int_equal(granted("0::/elsewhere/c\n"), 0);
    folder("cpu");
    folder("cpu/x");
    put("cpu/x/cpu.cfs_quota_us", "-1\n");
    put("cpu/x/cpu.cfs_period_us", "100000\n");
    assert_int_equal(granted("4:cpuset:/a\n2:cpu,cpuacct:/x\n"), 0);
    put("cpu/x/cpu.cfs_quota_us", "400000\n");
    assert_int_equal(granted("4:cpuset:/a\n2:cpu,cpuacct:/x\n"), 4);
    assert_int_equal(granted("2:cpuacct,cpu:/x\n"), 4);
    assert_int_equal(granted("2:cpuacct,cpuset:/x\n"), 0);
    assert_int_equal(granted("1:cpu:/x\n0::/a/b\n"), 2);
    assert_int_equal(granted("4:cpuset:/x\n"), 0);
    assert_int_equal(granted("no such line\n:\n::\n"), 0);
    drop();
    assert_int_equal(qn_cores_granted("/nowhere/list", top), 0);
}

static void one_processor_is_one_thread(void **state) {
    (void)state;
    cpu_set_t before, one;
    qn_pool *pool;
    qn_device_info cpu;
    if (sched_getaffinity(0, sizeof before, &before) != 0) {
        assert_int_equal(errno, EINVAL); /* more processors than this set has room for */
        skip();
    }
    assert_in_range(qn_cores(), 1, CPU_COUNT(&before));
    int first = 0;
    while (!CPU_ISSET(first, &before)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(qn_cores(), 1);
    assert_int_equal(qn_pool_create(0, &pool), QN_OK);
    assert_int_equal(qn_pool_threads(pool), 1);
    qn_pool_destroy(pool);
    assert_int_equal(qn_device_list(&cpu, 1, NULL, NULL), QN_OK);
    assert_string_equal(cpu.backend, "cpu");
    assert_int_equal(cpu.n_cores, 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(qn_device_list(&cpu, 0, NULL, NULL), QN_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quota_buys_cores),
        cmocka_unit_test(groups_grant_cores),
        cmocka_unit_test(one_processor_is_one_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
