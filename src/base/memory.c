/* Aligned memory from the C library. */
#define _DEFAULT_SOURCE /* madvise */
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __has_feature
#if __has_feature(memory_sanitizer)
#define WATCHED_FOR_WRITES /* by one who knows of no zeros but those that are written */
#endif
#endif

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

/* The pages that lie wholly inside a part; 0 when there is none. */
static int whole_pages(const void *at, size_t bytes, uintptr_t *from, uintptr_t *to) {
    long size = sysconf(_SC_PAGESIZE);
    uintptr_t page = size > 0 ? (uintptr_t)size : 4096;
    *from = ((uintptr_t)at + page - 1) / page * page;
    *to = ((uintptr_t)at + bytes) / page * page;
    return *to > *from;
}

/* Pages that the process does not share, and that are of no file, come back as zeros. Whether they are such pages a mark at either end
 * tells, as the C library's allocator may be anybody's. */
static int hand_back(uintptr_t from, uintptr_t to) {
#if defined(MADV_DONTNEED) && !defined(WATCHED_FOR_WRITES)
    volatile unsigned char *first = (unsigned char *)from, *last = (unsigned char *)to - 1;
    *first = *last = 1;
    return madvise((void *)from, to - from, MADV_DONTNEED) == 0 && !*first && !*last;
#else
    (void)from, (void)to;
    return 0;
#endif
}

void qn_memory_zero(void *at, size_t bytes) {
    uintptr_t from, to, begin = (uintptr_t)at;
    if (bytes < LARGE || !whole_pages(at, bytes, &from, &to) || !hand_back(from, to)) {
        memset(at, 0, bytes);
        return;
    }
    memset(at, 0, from - begin);
    memset((void *)to, 0, begin + bytes - to);
}

void qn_memory_drop_pages(const void *at, size_t bytes) {
#ifdef MADV_DONTNEED
    uintptr_t from, to;
    if (whole_pages(at, bytes, &from, &to)) (void)madvise((void *)from, to - from, MADV_DONTNEED);
#else
    (void)at, (void)bytes;
#endif
}
