/* A JSON schema becomes a grammar in text. Every schema that is used becomes one rule, "s-N", written when its turn comes; so
 * schemas may be nested and refer to each other in any way, and nothing recurses. */
#ifndef QN_TEXT_SCHEMA_H
#define QN_TEXT_SCHEMA_H

#include "text/grammar_parts.h"
#include "text/json_dom.h"

typedef struct schema_use { /* a schema that has, or will get, a rule */
    const json_node *schema;
    const char *type; /* of its types only this one; NULL: all of the schema */
} schema_use;

typedef struct schema_writer {
    qn_arena *arena;
    const json_node *root;
    QN_VEC(char) out;
    QN_VEC(schema_use) uses;
    size_t now;     /* the use whose rule is being written */
    uint32_t needs; /* of JSON's own rules: bits by their row in schema_rules.def */
    qn_error *error;
} schema_writer;

/* Appends printf-style, at most 500 bytes. */
QN_PRINTF(2, 3) qn_status qn_text_schema_put(schema_writer *w, const char *format, ...);
/* UNSUPPORTED, with a sentence. */
QN_PRINTF(2, 3) qn_status qn_text_schema_fault(schema_writer *w, const char *format, ...);
/* The name of one of JSON's own rules, which will be written. */
const char *qn_text_schema_rule(schema_writer *w, const char *name);
/* Appends the rule of a schema, which will be written. */
qn_status qn_text_schema_use(schema_writer *w, const json_node *schema, const char *type);
/* What a reference leads to. */
qn_status qn_text_schema_resolve(schema_writer *w, qn_text ref, const json_node **target);

/* Refuses what a part of an allOf says that is not about the members of objects. */
qn_status qn_text_schema_check_part(schema_writer *w, const json_node *s);

/* schema_values.c: a value as it is written in JSON, and a string in quotes, as literals; and the inside of the literal of a
 * string's inside. */
qn_status qn_text_schema_value(schema_writer *w, const json_node *value);
qn_status qn_text_schema_quoted(schema_writer *w, qn_text text);
qn_status qn_text_schema_inside(schema_writer *w, qn_text text);
/* Whether a value is of one of these types ("type" of a schema: a name or a list of names; NULL: of any). */
int qn_text_schema_is_typed(const json_node *value, const json_node *types);
int qn_text_schema_same(const json_node *a, const json_node *b); /* values, with their members in one order */
/* schema_text.c: strings, the inside of one that fits an expression, and integers in a range (either end may be open). */
qn_status qn_text_schema_string(schema_writer *w, const json_node *s);
qn_status qn_text_schema_pattern(schema_writer *w, qn_text pattern);
qn_status qn_text_schema_integer(schema_writer *w, const json_node *s);
/* A whole number of things that a keyword says, or `standard`. */
qn_status qn_text_schema_count(schema_writer *w, const json_node *s, const char *key, int64_t standard, int64_t *count);
/* schema_object.c: "{...}" of this schema, or of all that it and its allOf say together. Ends the rule and writes those it
 * needs. */
qn_status qn_text_schema_object(schema_writer *w, const json_node *s);

#endif
