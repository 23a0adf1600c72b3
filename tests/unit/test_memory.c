/* Zeroed memory: every byte that was asked for and no other, and of a large part nothing is resident before it is touched. */
#define _DEFAULT_SOURCE /* mincore */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "cmocka_setup.h"

#ifdef __has_feature
#if __has_feature(memory_sanitizer)
#define ZEROS_ARE_WRITTEN
#endif
#endif

static void just_what_was_asked_for_is_zeroed(void **state) {
    (void)state;
    enum { BYTES = 24 << 20 };
    static const size_t parts[][2] = {{0, BYTES}, {7, BYTES - 20}, {4096, 9 << 20}, {5000, (8 << 20) + 1}, {3, 100}, {9, 0}};
    qn_allocator memory = qn_memory_default();
    unsigned char *block = memory.allocate(memory.user, BYTES, 64);
    assert_non_null(block);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t wrong = 0, from = parts[i][0], to = from + parts[i][1];
        memset(block, 0xab, BYTES);
        qn_memory_zero(block + from, to - from);
        for (size_t k = 0; k < BYTES; k++) wrong += block[k] != (k >= from && k < to ? 0 : 0xab);
        assert_int_equal(wrong, 0);
    }
    memory.release(memory.user, block, BYTES);
}

#ifndef ZEROS_ARE_WRITTEN
static size_t resident(void *block, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = bytes / page, found = 0;
    unsigned char *is_there = calloc(n, 1);
    assert_non_null(is_there);
    assert_int_equal(mincore((void *)(((uintptr_t)block + page - 1) / page * page), (n - 1) * page, is_there), 0);
    for (size_t i = 0; i < n; i++) found += is_there[i] & 1;
    free(is_there);
    return found * page;
}

/* Twice, as memory that was used before and never before. */
static void what_is_not_touched_is_not_resident(void **state) {
    (void)state;
    enum { BYTES = 64 << 20, FEW = 8 << 20 };
    qn_allocator memory = qn_memory_default();
    unsigned char *block = memory.allocate(memory.user, BYTES, 64);
    assert_non_null(block);
    for (int i = 0; i < 2; i++) {
        qn_memory_zero(block, BYTES);
        if (resident(block, BYTES) > FEW) fail_msg("%zu bytes are resident", resident(block, BYTES));
        memset(block, 1, BYTES);
        assert_true(resident(block, BYTES) > BYTES - FEW);
    }
    memory.release(memory.user, block, BYTES);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(just_what_was_asked_for_is_zeroed),
#ifndef ZEROS_ARE_WRITTEN
        cmocka_unit_test(what_is_not_touched_is_not_resident),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
