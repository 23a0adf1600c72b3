/* The map: entries in a vector, found through open addressing. */
#include "prof/prof_map.h"

#include <string.h>

void qn_prof_map_init(prof_map *map, qn_arena *arena) {
    memset(map, 0, sizeof *map);
    map->arena = arena;
}

void qn_prof_map_free(prof_map *map) {
    qn_arena_release(map->arena, map->slots.at);
    QN_VEC_FREE(map->arena, &map->entries);
    memset(&map->slots, 0, sizeof map->slots);
}

static uint32_t entry_hash(qn_hash_key hash_key, const void *owner, uint32_t index) {
    return qn_prof_hash_value(hash_key, ((const prof_map *)owner)->entries.at[index].key);
}

static uint32_t walk(const prof_map *map, prof_val key, size_t *cursor) {
    uint32_t found;
    *cursor = qn_prof_hash_value(map->slots.key, key);
    while ((found = prof_slots_at(&map->slots, cursor)) != PROF_NIL && !prof_same(map->entries.at[found].key, key)) {
        ++*cursor;
    }
    return found;
}

uint32_t *qn_prof_map_find(const prof_map *map, prof_val key) {
    size_t cursor;
    uint32_t found = walk(map, key, &cursor);
    return found == PROF_NIL ? NULL : &map->entries.at[found].value;
}

uint32_t *qn_prof_map_put(prof_map *map, prof_val key, uint32_t initial) {
    size_t cursor;
    if (qn_prof_slots_room(&map->slots, map->arena, entry_hash, map) != QN_OK || map->entries.n >= PROF_NIL - 1 ||
        !QN_VEC_ROOM(map->arena, &map->entries, 1)) {
        return NULL;
    }
    uint32_t found = walk(map, key, &cursor);
    if (found == PROF_NIL) {
        found = (uint32_t)map->entries.n++;
        prof_entry entry = {key, initial};
        map->entries.at[found] = entry;
        prof_slots_put(&map->slots, cursor, found);
    }
    return &map->entries.at[found].value;
}
