/* A folder of its own for each test, and files in it. */
#ifndef QN_TESTS_FOLDER_HELP_H
#define QN_TESTS_FOLDER_HELP_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cmocka_setup.h"

/* cmocka's setup and teardown: *state is the folder's path. */
static int make_folder(void **state) {
    static char folder[64];
    snprintf(folder, sizeof folder, "/tmp/quern-test-XXXXXX");
    *state = mkdtemp(folder);
    return *state ? 0 : -1;
}

static int drop_folder(void **state) {
    const char *folder = *state;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        char path[512];
        snprintf(path, sizeof path, "%s/%.255s", folder, entry->d_name);
        unlink(path);
    }
    if (dir) {
        closedir(dir);
    }
    return rmdir(folder);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, drop_folder)

static inline void save(const char *folder, const char *name, const void *bytes, size_t length) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

#endif
