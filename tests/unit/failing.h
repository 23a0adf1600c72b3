/* Memory that ends at any call. Every request of the library for memory goes by here (the linker's --wrap, tests/CMakeLists.txt): a
 * scene is played again and again, and each time the next request is refused, alone or with all that follow. Each time it must end
 * well or with QN_NO_MEMORY and a sentence, and must have given back whatever it took. */
#ifndef QN_TESTS_FAILING_H
#define QN_TESTS_FAILING_H

#include <stdlib.h>
#include <string.h>

#include <quern/quern.h>

#include "cmocka_setup.h"

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t bytes);
int __real_posix_memalign(void **memory, size_t align, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t bytes);
int __wrap_posix_memalign(void **memory, size_t align, size_t bytes);
void __wrap_free(void *memory);

static struct {
    int is_on, is_for_good; /* from `at` on all are refused, not that one alone */
    long at, asked, live;
} failing;

static int is_refused(void) {
    if (!failing.is_on) return 0;
    long now = failing.asked++;
    return now == failing.at || (now > failing.at && failing.is_for_good);
}

static void *count(void *memory) {
    failing.live += memory != NULL;
    return memory;
}

void *__wrap_malloc(size_t bytes) { return is_refused() ? NULL : count(__real_malloc(bytes)); }
void *__wrap_calloc(size_t n, size_t size) { return is_refused() ? NULL : count(__real_calloc(n, size)); }
void *__wrap_realloc(void *memory, size_t bytes) {
    if (is_refused()) return NULL;
    return memory ? __real_realloc(memory, bytes) : count(__real_realloc(NULL, bytes));
}
int __wrap_posix_memalign(void **memory, size_t align, size_t bytes) {
    if (is_refused()) return 12; /* ENOMEM */
    int failed = __real_posix_memalign(memory, align, bytes);
    if (!failed) count(*memory);
    return failed;
}
void __wrap_free(void *memory) {
    failing.live -= memory != NULL;
    __real_free(memory);
}

typedef qn_status (*scene_fn)(const void *user, qn_error *error);

/* Returns how many requests the scene makes when it gets all. `usual` is what it ends with then. */
static inline long play(const char *what, scene_fn scene, const void *user, qn_status usual) {
    long asked = 0;
    qn_error first = {QN_OK, ""};
    qn_status given = scene(user, &first);
    if (given != usual) fail_msg("%s: %s: %s", what, qn_status_name(given), first.text);
    for (int for_good = 0; for_good < 2; for_good++)
        for (long at = 0;; at += for_good ? 1 + at / 32 : 1) { /* what fails for good fails much alike a little later */
            qn_error error = {QN_OK, ""};
            long before = failing.live;
            failing.is_on = 1;
            failing.is_for_good = for_good;
            failing.at = at;
            failing.asked = 0;
            qn_status status = scene(user, &error);
            failing.is_on = 0;
            asked = failing.asked;
            if (failing.live != before)
                fail_msg("%s: request %ld%s refused: %ld blocks were not given back", what, at, for_good ? " and on" : "",
                         failing.live - before);
            if (asked <= at) break;
            if (status != usual && (status != QN_NO_MEMORY || !error.text[0]))
                fail_msg("%s: request %ld%s refused: %s, '%s'", what, at, for_good ? " and on" : "", qn_status_name(status),
                         error.text);
        }
    return asked;
}

#endif
