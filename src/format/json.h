/* A JSON scanner over text in memory: tokens one by one, the grammar checked, nothing built and no recursion. The scanner is a plain
 * record: a copy of it is a place to come back to. */
#ifndef QN_FORMAT_JSON_H
#define QN_FORMAT_JSON_H

#include <quern/quern.h>

enum {
    QN_JSON_DEPTH = 64,
    QN_JSON_HEADER_BYTES = 100 << 20
}; /* a safetensors header is at most as long as its own library allows */

typedef enum qn_json_kind {
    QN_JSON_BAD, /* see why */
    QN_JSON_END, /* of the text */
    QN_JSON_OBJECT,
    QN_JSON_OBJECT_END,
    QN_JSON_ARRAY,
    QN_JSON_ARRAY_END,
    QN_JSON_KEY, /* the value follows as the next token */
    QN_JSON_STRING,
    QN_JSON_NUMBER,
    QN_JSON_TRUE,
    QN_JSON_FALSE,
    QN_JSON_NULL
} qn_json_kind;

typedef struct qn_json {
    const char *text;
    uint64_t bytes, at;
    const char *why; /* of QN_JSON_BAD; `at` is where */
    int depth;
    int expect; /* see json.c */
    uint8_t is_object[QN_JSON_DEPTH];
} qn_json;

typedef struct qn_json_token {
    qn_json_kind kind;
    int escaped;    /* a string with backslashes in it */
    uint64_t at;    /* of the token in the text; strings without their quotes */
    uint64_t bytes; /* likewise */
} qn_json_token;

void qn_format_json_begin(qn_json *json, const char *text, uint64_t bytes);
qn_json_kind qn_format_json_next(qn_json *json, qn_json_token *token);
/* Passes over the value whose first token was just read; BAD when it is broken, else anything else. */
qn_json_kind qn_format_json_skip(qn_json *json, const qn_json_token *first);
/* The string a KEY or STRING token means, as UTF-8 into out, which has room for token->bytes. -1 when an escape is broken, or when
 * the bytes are not UTF-8. */
int64_t qn_format_json_text(const qn_json *json, const qn_json_token *token, char *out);
/* The number a NUMBER token means: 1 and *integer when it is a whole number of 64 bits, 2 and *number for any other, 0 when it is
 * beyond a double. */
int qn_format_json_number(const qn_json *json, const qn_json_token *token, int64_t *integer, double *number);

#endif
