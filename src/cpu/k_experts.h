/* Rows that each go to a matrix of their own: lists of them by matrix, for the products with experts. */
#ifndef QN_CPU_K_EXPERTS_H
#define QN_CPU_K_EXPERTS_H

#include "cpu/kernel.h"

/* Counting sort, which keeps the order of rows within an expert. Row i goes to number i % used of line i / used of ids; expert x has
 * the rows list[start[x]] .. list[start[x + 1] - 1]. start has room for count + 1. */
static inline void qn_experts_sort(const qn_tensor *ids, int64_t used, int64_t rows, int64_t count, int32_t *start,
                                   int32_t *list) {
    memset(start, 0, (size_t)(count + 1) * sizeof *start);
    for (int64_t i = 0; i < rows; i++) start[qn_index4(ids, 0, 0, i / used, i % used) + 1]++;
    for (int64_t x = 0; x < count; x++) start[x + 1] += start[x];
    for (int64_t i = 0; i < rows; i++) list[start[qn_index4(ids, 0, 0, i / used, i % used)]++] = (int32_t)i;
    for (int64_t x = count; x > 0; x--) start[x] = start[x - 1]; /* each has moved to where the next begins */
    start[0] = 0;
}

#endif
