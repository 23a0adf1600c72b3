/* Hash maps of the tokenizers: bytes to number, pair of numbers to rank. They are filled once and then only read. */
#include "text/token_map.h"

#include <string.h>

static uint64_t mix(uint64_t x) {
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93u;
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93u;
    return x ^ x >> 32;
}

static uint64_t hash_bytes(const char *bytes, size_t n) {
    uint64_t h = 0x9E3779B97F4A7C15u ^ n;
    while (n >= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        h = mix(h ^ word);
        bytes += 8;
        n -= 8;
    }
    uint64_t tail = 0;
    for (size_t i = 0; i < n; i++) tail |= (uint64_t)(unsigned char)bytes[i] << (8 * i);
    return mix(h ^ tail);
}

/* The power of two that leaves at least half the slots free. */
static size_t slots_for(size_t most) {
    size_t slots = 16;
    while (slots / 2 < most) slots *= 2;
    return slots;
}

int32_t qn_text_texts_add(token_texts *texts, qn_arena *arena, const char *bytes, size_t n) {
    if (n > UINT32_MAX - texts->pool.n || texts->span.n >= INT32_MAX) return -1;
    if (!QN_VEC_ROOM(arena, &texts->pool, n) || !QN_VEC_ROOM(arena, &texts->span, 1)) return -1;
    if (n) memcpy(texts->pool.at + texts->pool.n, bytes, n);
    texts->span.at[texts->span.n] = (token_span){(uint32_t)texts->pool.n, (uint32_t)n};
    texts->pool.n += n;
    return (int32_t)texts->span.n++;
}

int qn_text_map_init(token_map *map, qn_arena *arena, size_t most, const token_texts *texts) {
    size_t slots = most < SIZE_MAX / 64 ? slots_for(most) : 0;
    if (!slots) return 0;
    map->slot = qn_arena_resize(arena, NULL, slots, sizeof *map->slot);
    if (!map->slot) return 0;
    memset(map->slot, 0xFF, slots * sizeof *map->slot);
    map->mask = slots - 1;
    map->texts = texts;
    return 1;
}

/* The slot that holds these bytes or the free one where they belong; NULL after too many probes. */
static int32_t *probe(const token_map *map, const char *bytes, size_t n) {
    uint64_t at = hash_bytes(bytes, n);
    for (int i = 0; i < TOKEN_MAP_PROBES; i++, at++) {
        int32_t *slot = &map->slot[at & map->mask];
        if (*slot < 0) return slot;
        token_span s = map->texts->span.at[*slot];
        if (s.n == n && memcmp(map->texts->pool.at + s.at, bytes, n) == 0) return slot;
    }
    return NULL;
}

int32_t qn_text_map_find(const token_map *map, const char *bytes, size_t n) {
    const int32_t *slot = probe(map, bytes, n);
    return slot ? *slot : -1;
}

int32_t qn_text_map_add(token_map *map, int32_t number) {
    token_span s = map->texts->span.at[number];
    int32_t *slot = probe(map, map->texts->pool.at + s.at, s.n);
    if (!slot) return -1;
    if (*slot < 0) *slot = number;
    return *slot;
}

int qn_text_pairs_init(pair_map *map, qn_arena *arena, size_t most) {
    size_t slots = most < SIZE_MAX / 64 ? slots_for(most) : 0;
    if (!slots) return 0;
    map->slot = qn_arena_resize(arena, NULL, slots, sizeof *map->slot);
    if (!map->slot) return 0;
    for (size_t i = 0; i < slots; i++) map->slot[i].key = PAIR_FREE;
    map->mask = slots - 1;
    return 1;
}

static pair_entry *probe_pair(const pair_map *map, uint64_t key) {
    uint64_t at = mix(key);
    for (int i = 0; i < TOKEN_MAP_PROBES; i++, at++) {
        pair_entry *e = &map->slot[at & map->mask];
        if (e->key == key || e->key == PAIR_FREE) return e;
    }
    return NULL;
}

static uint64_t pair_key(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << 32 | (uint32_t)right; }

const pair_entry *qn_text_pairs_find(const pair_map *map, int32_t left, int32_t right) {
    const pair_entry *e = probe_pair(map, pair_key(left, right));
    return e && e->key != PAIR_FREE ? e : NULL;
}

int qn_text_pairs_add(pair_map *map, int32_t left, int32_t right, int32_t rank, int32_t result) {
    pair_entry *e = probe_pair(map, pair_key(left, right));
    if (!e) return -1;
    if (e->key != PAIR_FREE) return 0;
    *e = (pair_entry){pair_key(left, right), rank, result};
    return 1;
}
