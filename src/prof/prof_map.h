/* A map from trace values to indices that keeps the order of insertion, like the reference's dictionaries. Absent is a key. */
#ifndef QUERN_PROF_MAP_H
#define QUERN_PROF_MAP_H

#include "prof/prof_text.h"

typedef struct prof_entry {
    prof_val key;
    uint32_t value;
} prof_entry;

typedef struct prof_map {
    qn_arena *arena;
    QN_VEC(prof_entry) entries; /* in order of insertion; entries are never removed, give them a value that says so */
    prof_slots slots;
} prof_map;

void qn_prof_map_init(prof_map *map, qn_arena *arena);
void qn_prof_map_free(prof_map *map);
/* The entry's value, inserted as `initial` when the key is new; NULL when memory ends. Valid until the next insertion. */
uint32_t *qn_prof_map_put(prof_map *map, prof_val key, uint32_t initial);
/* NULL when there is no such key. */
uint32_t *qn_prof_map_find(const prof_map *map, prof_val key);

#endif
