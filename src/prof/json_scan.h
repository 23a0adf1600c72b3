/* A JSON scanner over a window of text. It checks the grammar, marks where values lie and builds nothing.
 *
 * The window always ends in a 0 byte (and PROF_SCAN_PAD more that may be read), so loops need no bound of their own. When a value runs
 * into the end of the window the answer is PROF_SCAN_MORE: the caller refills and starts that value again. Values of any size
 * can be skipped piecewise with a prof_skip, which keeps its place between refills. There is no recursion. */
#ifndef QUERN_PROF_JSON_SCAN_H
#define QUERN_PROF_JSON_SCAN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

/* ---- Digits, eight at a time: the first lies lowest in a word, as both our machines store them -------------------- */

static inline uint64_t prof_word(const char *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

/* How many of eight bytes are digits before the first that is none. Those differ from '0' by ten or more, which shows in their highest
 * bits; the lowest so marked is exact. */
static inline unsigned prof_digits(uint64_t word) {
    word ^= 0x3030303030303030ull;
    uint64_t none = ((word + 0x7676767676767676ull) | word) & 0x8080808080808080ull;
    return none ? (unsigned)__builtin_ctzll(none) >> 3 : 8;
}

/* Pairs, then fours, then all eight are put together within the word. */
static inline uint64_t prof_eight_digits(uint64_t word) {
    word &= 0x0f0f0f0f0f0f0f0full;
    word = (word * 10 + (word >> 8)) & 0x00ff00ff00ff00ffull;
    word = (word * 100 + (word >> 16)) & 0x0000ffff0000ffffull;
    return (word * 10000 + (word >> 32)) & 0xffffffffull;
}

/* The value of a number that is nothing but one to sixteen digits, and its length; 0 for anything else, also for one that may go on
 * beyond the window. Most numbers of a trace are such. */
static inline unsigned prof_scan_digits(const prof_scan *scan, const char *p, int64_t *value) {
    static const int64_t TENS[9] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    uint64_t word = prof_word(p);
    unsigned n = prof_digits(word);
    if (n == 0 || (*p == '0' && n > 1)) {
        return 0;
    }
    /* Digits move up to the end of their word; what comes in below counts as zeros in front of them. */
    *value = (int64_t)prof_eight_digits(word << 8 * (8 - n));
    if (n == 8) {
        uint64_t next = prof_word(p + 8);
        unsigned more = prof_digits(next);
        if (more) {
            *value = *value * TENS[more] + (int64_t)prof_eight_digits(next << 8 * (8 - more));
            n += more;
        }
    }
    char behind = p[n];
    int goes_on = (behind >= '0' && behind <= '9') || behind == '.' || behind == 'e' || behind == 'E';
    return goes_on || scan->end - p <= (ptrdiff_t)n ? 0 : n;
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
