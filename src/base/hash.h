/* Hashes of what files bring, for tables in memory. They are keyed by what is drawn anew for each process, so that nobody can write a
 * file whose names or numbers all want one place. Only where things lie in a table may depend on a hash, never a result or an order:
 * it is another one in the next process. */
#ifndef QN_BASE_HASH_H
#define QN_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

__extension__ typedef unsigned __int128 qn_hash_wide;

typedef struct qn_hash_key {
    uint64_t begin, by; /* what a hash begins with, and what each word is multiplied by */
} qn_hash_key;

/* The key of this process, the same in every thread. */
qn_hash_key qn_hash_process_key(void);

/* A hash h that takes up one word more. Both halves of the product count: the low one alone would leave the low bits of many words
 * without a say in each other's place, whatever the key. */
static inline uint64_t qn_hash_word(qn_hash_key key, uint64_t h, uint64_t word) {
    qn_hash_wide product = (qn_hash_wide)(h ^ word) * key.by;
    return (uint64_t)product ^ (uint64_t)(product >> 64) ^ key.begin;
}

/* The same with a tag beside the word, for less than a second word costs. */
static inline uint64_t qn_hash_tagged(qn_hash_key key, uint64_t h, uint64_t tag, uint64_t word) {
    return qn_hash_word(key, h ^ tag * key.by, word);
}

static inline uint64_t qn_hash_bytes(qn_hash_key key, uint64_t h, const void *bytes, size_t n) {
    const char *at = bytes;
    uint64_t word = 0;
    h = qn_hash_word(key, h, n); /* so that zeros at the end count */
    for (; n >= sizeof word; n -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        h = qn_hash_word(key, h, word);
    }
    if (n == 0) return h;
    word = 0;
    memcpy(&word, at, n);
    return qn_hash_word(key, h, word);
}

#endif
