/* Bottom-up merge sort. Blocks of eight are sorted by insertion; two neighbours that are already in order are not merged, so
 * sorted input, the usual case in traces, is linear. */
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
