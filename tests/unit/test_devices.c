/* The list of devices and what opening one says, whatever this machine has: a GPU, a driver that plays one on the CPU, or nothing. */
#include <stdlib.h>
#include <string.h>

#include <quern/device.h>

#include "cmocka_setup.h"

enum { ROOM = 17 };
static qn_device_info list[ROOM];

static int devices(void) {
    int n = 0;
    assert_int_equal(qn_device_list(list, ROOM, &n, NULL), QN_OK);
    return n < ROOM ? n : ROOM;
}

/* A recipe that asks for "the GPU" must not get a driver that computes on the CPU, a hundred times slower than the CPU does. */
static void software_is_no_gpu(void **state) {
    (void)state;
    qn_error error = {QN_OK, ""};
    qn_device *device = NULL;
    qn_device_info info;
    int n = devices(), hardware = 0;
    assert_false(list[0].features & QN_DEVICE_SOFTWARE);
    for (int i = 1; i < n; i++) {
        if (strstr(list[i].name, "llvmpipe")) assert_true(list[i].features & QN_DEVICE_SOFTWARE);
        hardware += !(list[i].features & QN_DEVICE_SOFTWARE) && list[i].features & QN_DEVICE_TRUSTED;
    }
    qn_status status = qn_device_open("vulkan", QN_DEVICE_FIRST_GPU, &device, &error);
    if (hardware) {
        assert_int_equal(status, QN_OK);
        assert_int_equal(qn_device_describe(device, &info), QN_OK);
        assert_false(info.features & QN_DEVICE_SOFTWARE);
        qn_device_close(device);
        return;
    }
    if (status == QN_DEVICE) return; /* a GPU that fails its test */
    assert_int_equal(status, QN_UNSUPPORTED);
    assert_null(device);
    assert_true(strlen(error.text) > 10);
    for (int i = 1; i < n; i++)
        if (i + 1 == n && list[i].features & QN_DEVICE_SOFTWARE) assert_non_null(strstr(error.text, list[i].name));
    assert_int_not_equal(qn_device_open("vulkan", -2, &device, &error), QN_OK);
    assert_null(device);
}

static void an_open_device_says_what_the_list_says(void **state) {
    (void)state;
    qn_error error = {QN_OK, ""};
    qn_device_info info;
    assert_int_equal(qn_device_describe(NULL, &info), QN_ARGUMENT);
    assert_int_equal(qn_device_describe(NULL, NULL), QN_ARGUMENT);
    for (int i = 1, n = devices(); i < n; i++) {
        qn_device *device = NULL;
        if (qn_device_open(list[i].backend, list[i].index, &device, &error) != QN_OK) continue;
        assert_int_equal(qn_device_describe(device, NULL), QN_ARGUMENT);
        assert_int_equal(qn_device_describe(device, &info), QN_OK);
        assert_string_equal(info.name, list[i].name);
        assert_string_equal(info.verdict, list[i].verdict);
        assert_int_equal(info.features, list[i].features);
        assert_int_equal(info.index, list[i].index);
        qn_device_close(device);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(software_is_no_gpu),
                                       cmocka_unit_test(an_open_device_says_what_the_list_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
