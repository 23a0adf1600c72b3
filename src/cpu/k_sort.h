/* Elements of a row with their indices, in the order of the ops that sort. */
#ifndef QN_CPU_K_SORT_H
#define QN_CPU_K_SORT_H

#include "cpu/kernel.h"

/* Ascending in key order; descending, the key is turned round and the index is not. */
static inline uint64_t qn_sort_item(float x, int64_t i, int descending) {
    uint32_t b;
    float plain = x + 0.0f; /* -0 is 0 */
    memcpy(&b, &plain, sizeof b);
    uint32_t key = x != x ? UINT32_MAX : b >> 31 ? ~b : b | 0x80000000u;
    return (uint64_t)(descending ? ~key : key) << 32 | (uint32_t)i;
}

/* Ascending items; the result lies in one of the two, each of n. */
#define qn_sort_items QN_K(sort_items)
const uint64_t *qn_sort_items(uint64_t *items, uint64_t *spare, int64_t n);
/* The first k items of a row in order, element `skip` left out; they lie in the heap, which holds k. */
#define qn_sort_first QN_K(sort_first)
const uint64_t *qn_sort_first(const float *x, int64_t n, int64_t k, int descending, int64_t skip, uint64_t *heap);

#endif
