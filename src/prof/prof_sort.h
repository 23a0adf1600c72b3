/* Stable sorting. The qsort of the C library is not stable, and may not be memory-safe with the inconsistent orders NaN gives. */
#ifndef QUERN_PROF_SORT_H
#define QUERN_PROF_SORT_H

#include <quern/quern.h>

#include "base/arena.h"

/* Whether a must come before b. */
typedef int (*prof_less_fn)(const void *a, const void *b, const void *context);

/* Sorts in place; QN_NO_MEMORY leaves the items as they were. Runs already in order cost one comparison per item. */
qn_status qn_prof_sort(qn_arena *arena, void *items, size_t n, size_t size, prof_less_fn less, const void *context);

#endif
