/* Byte-pair merging over one stretch of text: symbols in a list, the best pair of neighbours merged again and again. A heap
 * finds the pair, so n symbols cost n log n. Of equally good pairs the leftmost goes first, so a text has one encoding. */
#ifndef QN_TEXT_MERGE_H
#define QN_TEXT_MERGE_H

#include "text/tokenizer.h"

typedef struct merge_symbol {
    const char *at;
    uint32_t n;         /* bytes; 0: merged into the symbol before */
    int32_t id;         /* what the model kind makes of it; -1: nothing */
    int32_t prev, next; /* -1: none */
} merge_symbol;

typedef struct merge_place {
    uint64_t order; /* less is better */
    int32_t left;   /* symbol whose merge with its next one this is */
    uint32_t bytes; /* of both when it was entered; more now means that one of them has grown */
    int32_t id;     /* of the merged symbol */
} merge_place;

typedef struct merger {
    const qn_tokenizer *t;
    /* Whether two neighbours may merge: how good that is, and what they become. */
    int (*rank)(const qn_tokenizer *t, const merge_symbol *left, const merge_symbol *right, uint64_t *order, int32_t *id);
    merge_symbol *symbol;
    size_t n, room;
    merge_place *place;
    size_t places, places_room;
} merger;

/* Appends a symbol; 0: no memory. */
int qn_text_merge_add(merger *m, const char *at, size_t n, int32_t id);
/* Merges what can be; the list that starts at symbol 0 is the result. 0: no memory. */
int qn_text_merge_run(merger *m);
void qn_text_merge_free(merger *m);

#endif
