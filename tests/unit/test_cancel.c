/* Reading that another thread stops: it ends, and the two meet in nothing else than the number they share. */
#include <quern/format.h>
#include <quern/profile.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cmocka_setup.h"

static volatile int wanted;
static char path[] = "quern-cancel-XXXXXX";

static void *stop_soon(void *unused) {
    (void)unused;
    nanosleep(&(struct timespec){0, 20 * 1000 * 1000}, NULL);
    __atomic_store_n(&wanted, 1, __ATOMIC_RELAXED);
    return NULL;
}

static int set_up(void **state) {
    (void)state;
    strcpy(path + sizeof path - 7, "XXXXXX");
    int fd = mkstemp(path);
    __atomic_store_n(&wanted, 0, __ATOMIC_RELAXED);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file) return -1;
    fputs("{\"traceEvents\": [", file);
    for (int i = 0; i < 20000; i++)
        fprintf(file, "%s{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"a\",\"pid\":1,\"tid\":1,\"ts\":%d,\"dur\":1,\"args\":{}}",
                i ? "," : "", 2 * i);
    fputs("]}", file);
    return fclose(file);
}

static int tear_down(void **state) {
    (void)state;
    return unlink(path);
}

static qn_status read_trace(qn_error *error) {
    qn_profile *profile = NULL;
    qn_profile_options options = qn_profile_options_default();
    options.cancel = &wanted;
    qn_status status = qn_profile_open(path, &options, &profile, error);
    if (status == QN_OK) status = qn_profile_load(profile, 0, 0, 0, error);
    qn_profile_close(profile);
    return status;
}

static qn_status read_model(qn_error *error) {
    qn_file *file = NULL;
    qn_file_options options = qn_file_options_default();
    options.flags = QN_FILE_NO_MAP;
    options.cancel = &wanted;
    qn_status status = qn_file_open(path, &options, &file, error); /* a JSON document is one */
    qn_file_close(file);
    return status;
}

/* Again and again, until it is told to stop. */
static void is_heard(qn_status (*read_it)(qn_error *error)) {
    pthread_t other;
    qn_error error = {QN_OK, ""};
    qn_status status = QN_OK;
    assert_int_equal(pthread_create(&other, NULL, stop_soon, NULL), 0);
    while (status != QN_CANCELLED) {
        status = read_it(&error);
        if (status != QN_OK && status != QN_CANCELLED) fail_msg("%s", error.text);
    }
    assert_int_equal(pthread_join(other, NULL), 0);
}

static void a_trace_is_stopped(void **state) {
    (void)state;
    is_heard(read_trace);
}

static void a_model_is_stopped(void **state) {
    (void)state;
    is_heard(read_model);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(a_trace_is_stopped, set_up, tear_down),
                                       cmocka_unit_test_setup_teardown(a_model_is_stopped, set_up, tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
