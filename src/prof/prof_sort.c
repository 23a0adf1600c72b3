/* Bottom-up merge sort. Blocks of eight are sorted by insertion; two neighbours that are already in order are not merged, so
 * sorted input, the usual case in traces, is linear. Numbers are ordered by radix instead, where they are alike enough. */
#include "prof/prof_sort.h"

#include <string.h>

enum { BLOCK = 8, LARGEST = 256 };

static void insert_block(char *items, size_t n, size_t size, prof_less_fn less, const void *context, char *held) {
    for (size_t i = 1; i < n; i++) {
        size_t at = i;
        while (at > 0 && less(items + i * size, items + (at - 1) * size, context)) {
            at--;
        }
        if (at < i) {
            memcpy(held, items + i * size, size);
            memmove(items + (at + 1) * size, items + at * size, (i - at) * size);
            memcpy(items + at * size, held, size);
        }
    }
}

/* Merges items[0..left) and items[left..n) through `spare`, which holds the left part. */
static void merge(char *items, size_t left, size_t n, size_t size, prof_less_fn less, const void *context, char *spare) {
    memcpy(spare, items, left * size);
    size_t a = 0, b = left, out = 0;
    while (a < left && b < n) {
        int take_right = less(items + b * size, spare + a * size, context);
        const char *from = take_right ? items + b * size : spare + a * size;
        memcpy(items + out * size, from, size);
        b += (size_t)take_right;
        a += (size_t)!take_right;
        out++;
    }
    memcpy(items + out * size, spare + a * size, (left - a) * size);
}

static int is_sorted(const char *items, size_t n, size_t size, prof_less_fn less, const void *context) {
    for (size_t i = 1; i < n; i++) {
        if (less(items + i * size, items + (i - 1) * size, context)) {
            return 0;
        }
    }
    return 1;
}

qn_status qn_prof_sort(qn_arena *arena, void *items, size_t n, size_t size, prof_less_fn less, const void *context) {
    char held[LARGEST], *base = items;
    if (size > LARGEST) {
        return QN_ARGUMENT;
    }
    if (n < 2 || is_sorted(base, n, size, less, context)) {
        return QN_OK;
    }
    char *spare = NULL;
    if (n > BLOCK) {
        spare = qn_arena_resize(arena, NULL, n, size);
        if (!spare) {
            return QN_NO_MEMORY;
        }
    }
    for (size_t i = 0; i < n; i += BLOCK) {
        insert_block(base + i * size, n - i < BLOCK ? n - i : BLOCK, size, less, context, held);
    }
    for (size_t width = BLOCK; width < n; width *= 2) {
        for (size_t i = 0; i + width < n; i += 2 * width) {
            char *from = base + i * size;
            if (less(from + width * size, from + (width - 1) * size, context)) {
                size_t both = n - i < 2 * width ? n - i : 2 * width;
                merge(from, width, both, size, less, context, spare);
            }
        }
    }
    qn_arena_release(arena, spare);
    return QN_OK;
}

/* ---- Numbers ------------------------------------------------------------------------------------------------------ */

enum { DIGIT = 11 }; /* bits sorted by in one pass; the counts of one stay in the first cache */

typedef struct numbers {
    prof_number_fn at;
    const void *context;
} numbers;

static int number_before(const void *a, const void *b, const void *context) {
    const numbers *all = context;
    return prof_lt(all->at(all->context, *(const uint32_t *)a), all->at(all->context, *(const uint32_t *)b));
}

/* A number as an unsigned integer of the same order; 0 when this cannot be said of it and the one before it at once. */
static int ordered_bits(prof_num value, uint32_t tag, uint64_t *bits) {
    const uint64_t sign = 1ull << 63;
    if (value.tag != tag || (tag != PROF_INT && (tag != PROF_DBL || value.d != value.d))) {
        return 0;
    }
    if (tag == PROF_DBL) {
        value.d += 0.0; /* the two zeros are equal */
    }
    uint64_t raw = (uint64_t)value.i;
    *bits = tag == PROF_DBL && (raw & sign) ? ~raw : raw ^ sign;
    return 1;
}

/* Fills keys[i] with the distance of number i from the least; *bits are enough for the greatest of them. */
static int make_keys(const numbers *all, size_t n, uint64_t *keys, unsigned *bits, int *sorted) {
    uint64_t least = UINT64_MAX, most = 0;
    uint32_t tag = all->at(all->context, 0).tag;
    *sorted = 1;
    for (size_t i = 0; i < n; i++) {
        if (!ordered_bits(all->at(all->context, i), tag, &keys[i])) {
            return 0;
        }
        *sorted &= keys[i] >= most;
        least = keys[i] < least ? keys[i] : least;
        most = keys[i] > most ? keys[i] : most;
    }
    for (size_t i = 0; i < n && !*sorted; i++) {
        keys[i] -= least;
    }
    for (*bits = 0, most -= least; most; most >>= 1) {
        ++*bits;
    }
    return 1;
}

/* Sorts keys by the bits from `low` on, of which there are `bits`. The result lies in `keys` or in `spare`: it is returned. */
static uint64_t *radix(uint64_t *keys, uint64_t *spare, size_t n, unsigned low, unsigned bits) {
    const uint64_t mask = (1u << DIGIT) - 1;
    for (unsigned shift = low; shift < low + bits; shift += DIGIT) {
        uint32_t count[1 << DIGIT] = {0}, sum = 0;
        for (size_t i = 0; i < n; i++) {
            count[keys[i] >> shift & mask]++;
        }
        for (size_t i = 0; i <= mask; i++) {
            uint32_t here = count[i];
            count[i] = sum;
            sum += here;
        }
        for (size_t i = 0; i < n; i++) {
            spare[count[keys[i] >> shift & mask]++] = keys[i];
        }
        uint64_t *held = keys;
        keys = spare;
        spare = held;
    }
    return keys;
}

static qn_status order_slowly(qn_arena *arena, const numbers *all, size_t n, uint32_t *order, int *sorted) {
    for (size_t i = 0; i < n; i++) {
        order[i] = (uint32_t)i;
    }
    *sorted = 0;
    return qn_prof_sort(arena, order, n, sizeof *order, number_before, all);
}

qn_status qn_prof_order(qn_arena *arena, size_t n, prof_number_fn at, const void *context, uint32_t *order, int *sorted) {
    const numbers all = {at, context};
    *sorted = n < 2;
    if (*sorted) {
        return QN_OK;
    }
    uint64_t *keys = qn_arena_resize(arena, NULL, n, 2 * sizeof *keys);
    if (!keys) {
        return QN_NO_MEMORY;
    }
    unsigned bits, index_bits = 1;
    int alike = make_keys(&all, n, keys, &bits, sorted);
    while ((n - 1) >> index_bits) {
        index_bits++;
    }
    qn_status status = QN_OK;
    if (!alike || (!*sorted && bits + index_bits > 64)) {
        status = order_slowly(arena, &all, n, order, sorted);
    } else if (!*sorted) {
        for (size_t i = 0; i < n; i++) { /* a key and its place share a word */
            keys[i] = keys[i] << index_bits | i;
        }
        const uint64_t *done = radix(keys, keys + n, n, index_bits, bits);
        for (size_t i = 0; i < n; i++) {
            order[i] = (uint32_t)(done[i] & ((1ull << index_bits) - 1));
        }
    }
    qn_arena_release(arena, keys);
    return status;
}

void *qn_prof_gather(qn_arena *arena, const void *items, size_t n, size_t size, const uint32_t *order) {
    char *out = qn_arena_resize(arena, NULL, n, size);
    for (size_t k = 0; out && k < n; k++) {
        memcpy(out + k * size, (const char *)items + order[k] * size, size);
    }
    return out;
}
