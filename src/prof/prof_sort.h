/* Stable sorting. The qsort of the C library is not stable, and may not be memory-safe with the inconsistent orders NaN gives. */
#ifndef QUERN_PROF_SORT_H
#define QUERN_PROF_SORT_H

#include <quern/quern.h>

#include "base/arena.h"
#include "prof/prof_num.h"

/* Whether a must come before b. */
typedef int (*prof_less_fn)(const void *a, const void *b, const void *context);

/* Sorts in place; QN_NO_MEMORY leaves the items as they were. Runs already in order cost one comparison per item. */
qn_status qn_prof_sort(qn_arena *arena, void *items, size_t n, size_t size, prof_less_fn less, const void *context);

/* The i-th of the numbers to be ordered. */
typedef prof_num (*prof_number_fn)(const void *context, size_t i);

/* The stable order of n numbers, ascending: order[k] is the one that comes k-th. Linear for the times of a trace, for which this
 * is: numbers of one kind that share their leading bits. *sorted says that the order is the one they had; `order` may then be as
 * it was. n is below 2^32. */
qn_status qn_prof_order(qn_arena *arena, size_t n, prof_number_fn at, const void *context, uint32_t *order, int *sorted);
/* A copy, to be resized and released like any array of the arena, in which items[order[k]] is the k-th; NULL when memory ends. */
void *qn_prof_gather(qn_arena *arena, const void *items, size_t n, size_t size, const uint32_t *order);

#endif
