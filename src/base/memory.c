/* Aligned memory from the C library. */
#include "base/memory.h"

#include <stdlib.h>

static void *allocate(void *user, size_t bytes, size_t align) {
    (void)user;
    void *memory = NULL;
    return posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, bytes) == 0 ? memory : NULL;
}

static void release(void *user, void *memory, size_t bytes) {
    (void)user;
    (void)bytes;
    free(memory);
}

qn_allocator qn_memory_default(void) { return (qn_allocator){NULL, allocate, release}; }
