/* The C library's heap, for what lives as long as its owner and grows piece by piece. Only src/base calls it by its own name. */
#ifndef QN_BASE_HEAP_H
#define QN_BASE_HEAP_H

#include <stddef.h>

void *qn_heap_alloc(size_t bytes);                /* not zeroed; NULL: no memory */
void *qn_heap_zeroed(size_t count, size_t size);  /* NULL also when the product overflows */
void *qn_heap_resize(void *memory, size_t bytes); /* memory may be NULL; NULL leaves it as it was */
void qn_heap_free(void *memory);                  /* NULL: nothing */

#endif
