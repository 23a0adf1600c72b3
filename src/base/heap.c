/* One door to the C library's heap. */
#include "base/heap.h"

#include <stdlib.h>

void *qn_heap_alloc(size_t bytes) { return malloc(bytes); }
void *qn_heap_zeroed(size_t count, size_t size) { return calloc(count, size); }
void *qn_heap_resize(void *memory, size_t bytes) { return realloc(memory, bytes); }
void qn_heap_free(void *memory) { free(memory); }
