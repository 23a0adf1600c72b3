/* Seeds of random draws come from what is drawn for, by its text, not from its place in a list: a case that is added leaves the draws of
 * all others as they were. */
#ifndef QN_TESTS_SEED_H
#define QN_TESTS_SEED_H

#include <stddef.h>
#include <stdint.h>

/* FNV-1a, begun with SEED_START, or with what came of other bytes to go on from there. */
static const uint64_t SEED_START = 0xcbf29ce484222325u;

static inline uint64_t seed_of(uint64_t so_far, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) so_far = (so_far ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return so_far;
}

#endif
