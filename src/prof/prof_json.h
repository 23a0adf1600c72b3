/* JSON as the reference prints it: `, ` and `: ` between tokens, ASCII only, integers and doubles told apart, doubles with the
 * fewest digits that read back. Commas are placed by the writer. The first failed write is remembered and stops all others, so
 * emitters need not look at a status until qn_prof_json_finish. */
#ifndef QUERN_PROF_JSON_H
#define QUERN_PROF_JSON_H

#include <quern/profile.h>

#include <string.h>

#include "prof/prof_num.h"

enum { PROF_JSON_BUFFER = 16384 };

typedef struct prof_json {
    qn_profile_write_fn write;
    void *user;
    qn_status status; /* of the first write that failed */
    int comma;        /* the next value or key needs ", " before it */
    size_t used;
    char buffer[PROF_JSON_BUFFER];
} prof_json;

void qn_prof_json_init(prof_json *json, qn_profile_write_fn write, void *user);
/* Hands the rest to the callback; returns the first failure. */
qn_status qn_prof_json_finish(prof_json *json);

void qn_prof_json_object(prof_json *json);                                    /* { */
void qn_prof_json_object_end(prof_json *json);                                /* } */
void qn_prof_json_array(prof_json *json);                                     /* [ */
void qn_prof_json_array_end(prof_json *json);                                 /* ] */
void qn_prof_json_key_plain(prof_json *json, const char *key, size_t length); /* nothing in it needs escaping */
void qn_prof_json_key_bytes(prof_json *json, const char *key, size_t length); /* any text */
/* A key of the views themselves: a word of plain ASCII. */
static inline void qn_prof_json_key(prof_json *json, const char *key) { qn_prof_json_key_plain(json, key, strlen(key)); }

void qn_prof_json_null(prof_json *json);
void qn_prof_json_bool(prof_json *json, int value);
void qn_prof_json_int(prof_json *json, int64_t value);
void qn_prof_json_dbl(prof_json *json, double value);
void qn_prof_json_num(prof_json *json, prof_num value); /* absent prints null */
void qn_prof_json_text(prof_json *json, const char *text);
void qn_prof_json_bytes(prof_json *json, const char *text, size_t length); /* UTF-8, lone surrogates as three bytes */

/* A string put together from parts: begin, any number of parts, end. Parts are escaped like strings. */
void qn_prof_json_string_begin(prof_json *json);
void qn_prof_json_part(prof_json *json, const char *text);
void qn_prof_json_part_bytes(prof_json *json, const char *text, size_t length);
void qn_prof_json_part_num(prof_json *json, prof_num value); /* as emitted; absent is None */
void qn_prof_json_string_end(prof_json *json);

/* Bytes as they are, outside the grammar (the trace view copies its file). Sets no comma. */
void qn_prof_json_raw_slow(prof_json *json, const char *text, size_t length);
static inline void qn_prof_json_raw(prof_json *json, const char *text, size_t length) {
    if (length > PROF_JSON_BUFFER - json->used) {
        qn_prof_json_raw_slow(json, text, length);
        return;
    }
    memcpy(json->buffer + json->used, text, length);
    json->used += length;
}

#endif
