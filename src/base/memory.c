/* Aligned memory from the C library. */
#define _DEFAULT_SOURCE /* madvise */
#include "base/memory.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* From this size on a block is put on pages of 2 MiB where the system has them: weights are read from end to end for every token, and
 * on small pages the walk to the next one costs more than its bytes. */
enum { LARGE = 8 << 20, HUGE_PAGE = 2 << 20 };

static void *allocate(void *user, size_t bytes, size_t align) {
    (void)user;
    void *memory = NULL;
    if (align < sizeof(void *)) align = sizeof(void *);
    if (bytes >= LARGE && align < HUGE_PAGE) align = HUGE_PAGE;
    if (posix_memalign(&memory, align, bytes) != 0) return NULL;
#ifdef MADV_HUGEPAGE
    if (bytes >= LARGE) (void)madvise(memory, bytes, MADV_HUGEPAGE); /* advice: without it everything is as before */
#endif
    return memory;
}

static void release(void *user, void *memory, size_t bytes) {
    (void)user;
    (void)bytes;
    free(memory);
}

qn_allocator qn_memory_default(void) { return (qn_allocator){NULL, allocate, release}; }

void qn_memory_drop_pages(const void *at, size_t bytes) {
#ifdef MADV_DONTNEED
    long size = sysconf(_SC_PAGESIZE);
    uintptr_t page = size > 0 ? (uintptr_t)size : 4096;
    uintptr_t from = ((uintptr_t)at + page - 1) / page * page, to = ((uintptr_t)at + bytes) / page * page;
    if (to > from) (void)madvise((void *)from, to - from, MADV_DONTNEED);
#else
    (void)at, (void)bytes;
#endif
}
