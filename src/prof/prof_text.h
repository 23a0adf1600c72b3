/* Interning of strings and lists. Every function returns PROF_NIL when memory ends. */
#ifndef QUERN_PROF_TEXT_H
#define QUERN_PROF_TEXT_H

#include "prof/prof_model.h"

qn_status qn_prof_text_init(prof_text *text, qn_arena *arena);

/* Bytes that are already decoded and clean. */
uint32_t qn_prof_intern(prof_text *text, const char *bytes, size_t length);
uint32_t qn_prof_intern_c(prof_text *text, const char *terminated);
/* The inside of a JSON string as written: escapes are resolved and broken UTF-8 becomes U+FFFD. */
uint32_t qn_prof_intern_json(prof_text *text, const char *bytes, size_t length, int escaped);
/* A JSON array or object as written, already checked. The result is a list id. */
uint32_t qn_prof_intern_list(prof_text *text, const char *json, size_t length);
/* text(v) of a checked array or object as a string id (list_text.c). */
uint32_t qn_prof_list_to_text(prof_text *text, const char *json, size_t length);
/* text(v) of section 1 as a string id: absent is None (0), strings are themselves. */
uint32_t qn_prof_value_text(prof_text *text, prof_val value);

/* Resolves escapes and repairs UTF-8 into `out` (at least 3 * length bytes); returns the bytes written. */
size_t qn_prof_unescape(const char *bytes, size_t length, char *out);

static inline uint32_t qn_prof_hash_bytes(qn_hash_key key, const void *bytes, size_t length) {
    return (uint32_t)qn_hash_bytes(key, key.begin, bytes, length);
}
/* Equal for values that prof_same calls equal. */
uint32_t qn_prof_hash_value(qn_hash_key key, prof_val value);

/* Open addressing over indices the caller keeps. `find` walks from the hash by the table's key: for each candidate index it gives, the
 * caller compares; PROF_NIL ends the walk at a free slot, where `qn_prof_slots_put` with the same cursor inserts. */
static inline uint32_t prof_slots_at(const prof_slots *slots, const size_t *cursor) {
    uint32_t stored = slots->at ? slots->at[*cursor & slots->mask] : 0;
    return stored ? stored - 1 : PROF_NIL;
}
typedef uint32_t (*prof_hash_fn)(qn_hash_key key, const void *owner, uint32_t index);
qn_status qn_prof_slots_grow(prof_slots *slots, qn_arena *arena, prof_hash_fn hash_of, const void *owner);
/* Makes room for one more; `hash_of` tells the hash of a stored index when the table must be rebuilt. */
static inline qn_status qn_prof_slots_room(prof_slots *slots, qn_arena *arena, prof_hash_fn hash_of, const void *owner) {
    return slots->at && slots->n * 3 < (slots->mask + 1) * 2 ? QN_OK : qn_prof_slots_grow(slots, arena, hash_of, owner);
}
static inline void prof_slots_put(prof_slots *slots, size_t cursor, uint32_t index) {
    slots->at[cursor & slots->mask] = index + 1;
    slots->n++;
}

/* ASCII-only comparisons with literals. */
int qn_prof_starts(const prof_str *string, const char *prefix);
int qn_prof_ends(const prof_str *string, const char *suffix);
int qn_prof_is(const prof_str *string, const char *literal);
int qn_prof_contains(const prof_str *string, const char *part);
/* -1, 0, 1 by unsigned bytes. */
int qn_prof_str_cmp(const prof_str *a, const prof_str *b);

#endif
