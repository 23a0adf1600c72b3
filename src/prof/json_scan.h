/* A JSON scanner over a window of text. It checks the grammar, marks where values lie and builds nothing.
 *
 * The window always ends in a 0 byte (and PROF_SCAN_PAD more that may be read), so loops need no bound of their own. When a value runs
 * into the end of the window the answer is PROF_SCAN_MORE: the caller refills and starts that value again. Values of any size
 * can be skipped piecewise with a prof_skip, which keeps its place between refills. There is no recursion. */
#ifndef QUERN_PROF_JSON_SCAN_H
#define QUERN_PROF_JSON_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "prof/prof_num.h"

enum { PROF_SCAN_DEPTH = 1024, PROF_SCAN_PAD = 16 };

typedef enum prof_scan_result { PROF_SCAN_OK, PROF_SCAN_MORE, PROF_SCAN_BAD } prof_scan_result;

typedef enum prof_tok_type {
    PROF_TOK_STRING,
    PROF_TOK_INT,
    PROF_TOK_DBL,
    PROF_TOK_TRUE,
    PROF_TOK_FALSE,
    PROF_TOK_NULL,
    PROF_TOK_SPECIAL, /* NaN, Infinity, -Infinity, and the spellings of C: nan, -nan, inf, -inf */
    PROF_TOK_NA,      /* bare N/A, which stands for the string */
    PROF_TOK_LIST     /* array or object */
} prof_tok_type;

typedef struct prof_tok { /* offsets count from scan->base */
    uint32_t at, length;  /* strings without their quotes */
    uint8_t type, escaped;
} prof_tok;

typedef struct prof_scan {
    const char *base;   /* offsets of tokens are relative to this: the start of what must stay together */
    const char *end;    /* *end is 0 */
    int last;           /* no text follows the window */
    int strict;         /* also refuse broken escapes and the spellings of C */
    const char *bad_at; /* PROF_SCAN_BAD: where and why */
    const char *why;
    uint64_t bad_escapes, bare_na;
} prof_scan;

typedef struct prof_skip { /* a container being skipped */
    uint64_t is_object[PROF_SCAN_DEPTH / 64];
    int depth;
    int expect; /* see json_scan.c */
} prof_skip;

static inline const char *prof_skip_space(const char *p) {
    while (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t') {
        p++;
    }
    return p;
}

/* Each takes *p at the first byte of the thing and leaves it behind the thing; it is unchanged unless the answer is OK. */
prof_scan_result qn_prof_scan_string(prof_scan *scan, const char **p, prof_tok *tok);
prof_scan_result qn_prof_scan_value(prof_scan *scan, const char **p, prof_tok *tok);
/* The next member of an object: *p stands behind `{` (first) or behind the last value, and is left at the first byte of the
 * member's value; or behind `}`, with *closed set. */
prof_scan_result qn_prof_scan_member(prof_scan *scan, const char **p, int first, prof_tok *key, int *closed);
/* The next item of an array, likewise with `[` and `]`. */
prof_scan_result qn_prof_scan_item(prof_scan *scan, const char **p, int first, int *closed);

/* Begin at `[` or `{` of a container and call `run` until OK; on MORE, *p stands where to go on after a refill. */
void qn_prof_skip_begin(prof_skip *skip);
prof_scan_result qn_prof_skip_run(prof_scan *scan, const char **p, prof_skip *skip);

/* Numbers and literals of a token as a value: null, lists and strings give absent. Integers beyond 64 bits become doubles. */
prof_val qn_prof_tok_number(const prof_scan *scan, const prof_tok *tok);

prof_scan_result qn_prof_scan_bad(prof_scan *scan, const char *at, const char *why);

#endif
