/* Which number belongs to these bytes: open addressing over spans of one pool of bytes. A vocabulary comes from a file of
 * anybody's, so a run of collisions that no honest vocabulary has is refused instead of searched. */
#ifndef QN_TEXT_TOKEN_MAP_H
#define QN_TEXT_TOKEN_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

typedef struct token_span { /* bytes of a pool */
    uint32_t at, n;
} token_span;

typedef struct token_texts {
    QN_VEC(char) pool;
    QN_VEC(token_span) span; /* by number */
} token_texts;

typedef struct token_map {
    int32_t *slot; /* numbers, -1 where free */
    uint64_t mask;
    const token_texts *texts;
} token_map;

enum { TOKEN_MAP_PROBES = 512 };

/* Room for `most` entries; 0: no memory. */
int qn_text_map_init(token_map *map, qn_arena *arena, size_t most, const token_texts *texts);
/* Adds bytes to the pool and a span over them; -1: no memory, or more than 32 bits can count. Returns the span's number. */
int32_t qn_text_texts_add(token_texts *texts, qn_arena *arena, const char *bytes, size_t n);
/* The number of these bytes, or -1. */
int32_t qn_text_map_find(const token_map *map, const char *bytes, size_t n);
/* Enters the span of a number unless its bytes are there already; returns the number the bytes have now, or -1 when too many
 * collide. */
int32_t qn_text_map_add(token_map *map, int32_t number);

/* Pairs of numbers to a pair of numbers, by the same rules. */
typedef struct pair_entry {
    uint64_t key; /* left << 32 | right; PAIR_FREE where free */
    int32_t rank, result;
} pair_entry;

#define PAIR_FREE UINT64_MAX

typedef struct pair_map {
    pair_entry *slot;
    uint64_t mask;
} pair_map;

int qn_text_pairs_init(pair_map *map, qn_arena *arena, size_t most);
const pair_entry *qn_text_pairs_find(const pair_map *map, int32_t left, int32_t right); /* NULL: not there */
/* 1: added; 0: was there, and stays as it was; -1: too many collide. */
int qn_text_pairs_add(pair_map *map, int32_t left, int32_t right, int32_t rank, int32_t result);

#endif
