/* The C library's allocator behind the callbacks of the public header, for objects whose caller brought none. */
#ifndef QN_BASE_MEMORY_H
#define QN_BASE_MEMORY_H

#include <quern/quern.h>

qn_allocator qn_memory_default(void);
/* Zeroes a part of what qn_memory_default gave. Of a large part whole pages are handed back instead: the system zeroes those that are
 * touched again, when they are, and the others take neither time nor memory. */
void qn_memory_zero(void *at, size_t bytes);
/* Drops the pages that lie wholly inside a part of a file's map; they come back when they are touched. */
void qn_memory_drop_pages(const void *at, size_t bytes);

#endif
