/* A JSON document as a tree, for schemas and for the variables of templates. Strict (RFC 8259), bounded in depth; memory is
 * the arena's. */
#ifndef QN_TEXT_JSON_DOM_H
#define QN_TEXT_JSON_DOM_H

#include <quern/text.h>

#include "base/arena.h"

typedef enum json_kind { JSON_NULL, JSON_BOOL, JSON_INT, JSON_FLOAT, JSON_STRING, JSON_LIST, JSON_OBJECT } json_kind;

typedef struct json_node {
    json_kind kind;
    int64_t integer; /* BOOL, INT */
    double number;   /* INT, FLOAT */
    qn_text text;    /* STRING, without escapes; FLOAT: the digits of an integer beyond 64 bits, as they stand in the document */
    qn_text key;     /* of a member */
    size_t n;        /* items or members */
    struct json_node *first, *next;
} json_node;

enum { JSON_MOST_DEPTH = 128 };

/* INVALID with the byte and the reason. */
qn_status qn_text_json_parse(qn_arena *arena, qn_text text, json_node **root, qn_error *error);
/* A member by its key, the last of that name; NULL: none, or no object. */
const json_node *qn_text_json_get(const json_node *object, const char *key);
int qn_text_json_is(qn_text text, const char *word);

/* The shortest decimal that reads back as the same double, as Python writes it ("1.0", "1e+20").
 * Returns its length; 32 bytes are enough. */
size_t qn_text_number_print(double number, char out[32]);

#endif
