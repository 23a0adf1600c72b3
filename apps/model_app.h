/* What the verbs about model files share: inspect, quantize, convert. */
#ifndef QN_APPS_MODEL_APP_H
#define QN_APPS_MODEL_APP_H

#include <stdio.h>
#include <stdlib.h>

#include <quern/format.h>

#include "app.h"

enum { MODEL_INTERRUPTED = 130 }; /* exit code after Ctrl-C, as shells have it */

/* ---- The command line */

/* "quern VERB: text", the exit code for a failure. */
int model_fail(const char *verb, const char *text);

/* Opens a model's file, read into memory instead of mapped when no_map is set; Ctrl-C ends the reading once it is caught. */
qn_status model_open_file(const char *path, int no_map, qn_file **file, qn_error *error);

/* Whether `out` is the file `in`, by whatever name, one of its shards, or what lies in the folder `in` and is no GGUF; the sentence is
 * said. What would be read must not be written over. */
int model_is_same(const char *verb, const char *in, const char *out);

/* ---- Long work */

/* From now on the first Ctrl-C (or kill, or the end of the terminal) only sets what model_stopped tells; a second one ends the program. */
void model_catch_stop(void);
void model_catch_stop_reading(void); /* the same, and a read that waits ends */
/* The same; and when nobody reads standard output any more, that is a Ctrl-C too: what is half written gets removed. */
void model_catch_stop_writing(void);
const volatile int *model_stopped(void);
/* What else the first Ctrl-C does, from a signal's handler: stop(work). NULL: nothing. */
void model_stop_by(void (*stop)(void *), void *work);

/* One line on standard error that is written over and over, if that is a terminal; else nothing. */
void model_progress(const char *what, uint64_t done, uint64_t total);
void model_progress_end(void);

/* ---- Text from files, which may hold anything */

/* Bytes of the UTF-8 character at the start of a text of `room` bytes, 0 when there is none. */
int model_character(const char *text, uint64_t room);
/* For people: control characters and broken UTF-8 as \xNN, cut at `most` bytes. Returns the columns it took, about. */
int model_print_text(const char *text, uint64_t bytes, uint64_t most);
/* As a JSON string with its quotes; broken UTF-8 becomes U+FFFD. */
void model_print_json(const char *text, uint64_t bytes);
/* A float in the fewest digits that mean the same f32 or (wide) f64. */
void model_print_number(double v, int wide);
/* "u32", "string". */
const char *model_type_name(qn_key_type type);

/* ---- XXH64, the 64-bit hash that xxhsum -H64 and llama.cpp's gguf-hash also give. */

typedef struct model_hash {
    uint64_t lanes[4], total;
    uint8_t rest[32];
    uint32_t n_rest;
} model_hash;

void model_hash_begin(model_hash *h);
void model_hash_add(model_hash *h, const void *data, uint64_t bytes);
uint64_t model_hash_value(const model_hash *h);

#endif
