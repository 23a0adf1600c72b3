/* The scanner. What it accepts is what the reference's JSON reader accepts in its tolerant mode (control characters inside
 * strings, NaN and Infinity) plus bare N/A; a text that the strict mode accepts gives the same values, so one pass is enough. */
#include "prof/json_scan.h"

#include <string.h>

#if defined __SSE2__
#include <emmintrin.h>
#elif defined __ARM_NEON
#include <arm_neon.h>
#endif

prof_scan_result qn_prof_scan_bad(prof_scan *scan, const char *at, const char *why) {
    if (at >= scan->end && !scan->last) {
        return PROF_SCAN_MORE;
    }
    scan->bad_at = at;
    scan->why = at >= scan->end ? "the text ends too early" : why;
    return PROF_SCAN_BAD;
}

/* ---- Strings ------------------------------------------------------------------------------------------------------ */

/* First quote or backslash at or after p; may lie beyond the end of the window, and reads at most 15 bytes beyond it. */
#if defined __SSE2__
static const char *find_special(const char *p, const char *end) {
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\');
    for (; p < end; p += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i hits = _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash));
        unsigned found = (unsigned)_mm_movemask_epi8(hits);
        if (found) {
            return p + __builtin_ctz(found);
        }
    }
    return p;
}
#elif defined __ARM_NEON
static const char *find_special(const char *p, const char *end) {
    const uint8x16_t quote = vdupq_n_u8('"'), backslash = vdupq_n_u8('\\');
    for (; p < end; p += 16) {
        uint8x16_t bytes = vld1q_u8((const uint8_t *)p);
        uint8x16_t hits = vorrq_u8(vceqq_u8(bytes, quote), vceqq_u8(bytes, backslash));
        /* four bits of the result for each byte: the nearest thing to a mask that NEON has */
        uint64_t found = vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(hits), 4)), 0);
        if (found) {
            return p + (__builtin_ctzll(found) >> 2);
        }
    }
    return p;
}
#else
static uint64_t zero_bytes(uint64_t word) { /* the lowest flag is exact, which is all that is used */
    return (word - 0x0101010101010101ull) & ~word & 0x8080808080808080ull;
}

static const char *find_special(const char *p, const char *end) {
    for (; p < end; p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        uint64_t found = zero_bytes(word ^ 0x2222222222222222ull) | zero_bytes(word ^ 0x5c5c5c5c5c5c5c5cull);
        if (found) {
            return p + (__builtin_ctzll(found) >> 3);
        }
    }
    return p;
}
#endif

static int is_hex(char c) { return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f'); }

/* An escape at p (the backslash); returns the bytes to pass over, 0 when it is broken. Bytes beyond the window read as 0. */
static int escape_length(const char *p) {
    switch (p[1]) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't': return 2;
    case 'u': return is_hex(p[2]) && is_hex(p[3]) && is_hex(p[4]) && is_hex(p[5]) ? 6 : 0;
    default: return 0;
    }
}

prof_scan_result qn_prof_scan_string(prof_scan *scan, const char **p, prof_tok *tok) {
    const char *start = *p + 1, *at = start;
    int escaped = 0;
    for (;;) {
        at = find_special(at, scan->end);
        if (at >= scan->end) {
            return qn_prof_scan_bad(scan, scan->end, "");
        }
        if (*at == '"') {
            break;
        }
        if (scan->end - at < 6 && !scan->last) {
            return PROF_SCAN_MORE;
        }
        int length = escape_length(at);
        if (length == 0) {
            if (scan->strict) {
                return qn_prof_scan_bad(scan, at, "a broken escape in a string");
            }
            scan->bad_escapes++;
            length = at[1] == 0 && at + 1 >= scan->end ? 1 : 2;
        }
        escaped = 1;
        at += length;
    }
    tok->at = (uint32_t)(start - scan->base);
    tok->length = (uint32_t)(at - start);
    tok->type = PROF_TOK_STRING;
    tok->escaped = (uint8_t)escaped;
    *p = at + 1;
    return PROF_SCAN_OK;
}

/* ---- Numbers and words -------------------------------------------------------------------------------------------- */

static int is_digit(char c) { return c >= '0' && c <= '9'; }

static const char *pass_digits(const char *at) {
    unsigned n;
    while ((n = prof_digits(prof_word(at))) == 8) {
        at += 8;
    }
    return at + n;
}

static prof_scan_result finish(prof_scan *scan, const char **p, const char *end, prof_tok *tok, int type) {
    if (end >= scan->end && !scan->last) {
        return PROF_SCAN_MORE; /* a number or word may go on in the next window */
    }
    tok->at = (uint32_t)(*p - scan->base);
    tok->length = (uint32_t)(end - *p);
    tok->type = (uint8_t)type;
    tok->escaped = 0;
    *p = end;
    return PROF_SCAN_OK;
}

static prof_scan_result scan_word(prof_scan *scan, const char **p, prof_tok *tok) {
    static const struct {
        const char *word;
        int length, type, lax;
    } WORDS[] = {{"true", 4, PROF_TOK_TRUE, 0},         {"false", 5, PROF_TOK_FALSE, 0}, {"null", 4, PROF_TOK_NULL, 0},
                 {"NaN", 3, PROF_TOK_SPECIAL, 0},       {"N/A", 3, PROF_TOK_NA, 0},      {"Infinity", 8, PROF_TOK_SPECIAL, 0},
                 {"-Infinity", 9, PROF_TOK_SPECIAL, 0}, {"nan", 3, PROF_TOK_SPECIAL, 1}, {"-nan", 4, PROF_TOK_SPECIAL, 1},
                 {"inf", 3, PROF_TOK_SPECIAL, 1},       {"-inf", 4, PROF_TOK_SPECIAL, 1}};
    size_t left = (size_t)(scan->end - *p);
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++) {
        size_t length = (size_t)WORDS[i].length;
        if ((WORDS[i].lax && scan->strict) || memcmp(*p, WORDS[i].word, left < length ? left : length) != 0) {
            continue;
        }
        if (left < length) {
            return qn_prof_scan_bad(scan, scan->last ? *p : scan->end, "expected a value");
        }
        prof_scan_result result = finish(scan, p, *p + length, tok, WORDS[i].type);
        scan->bare_na += result == PROF_SCAN_OK && WORDS[i].type == PROF_TOK_NA;
        return result;
    }
    return qn_prof_scan_bad(scan, *p, "expected a value");
}

static prof_scan_result scan_number(prof_scan *scan, const char **p, prof_tok *tok) {
    const char *at = *p + (**p == '-');
    int type = PROF_TOK_INT;
    if (*at == '0') {
        at++;
        if (is_digit(*at)) {
            return qn_prof_scan_bad(scan, at, "a number must not begin with 0");
        }
    } else if (is_digit(*at)) {
        at = pass_digits(at);
    } else if (at < scan->end) {
        return scan_word(scan, p, tok); /* -Infinity and its kind */
    } else {
        return qn_prof_scan_bad(scan, at, "");
    }
    if (*at == '.') {
        type = PROF_TOK_DBL;
        if (!is_digit(*++at)) {
            return qn_prof_scan_bad(scan, at, "expected a digit after the point");
        }
        at = pass_digits(at);
    }
    if (*at == 'e' || *at == 'E') {
        type = PROF_TOK_DBL;
        at += 1 + (at[1] == '+' || at[1] == '-');
        if (!is_digit(*at)) {
            return qn_prof_scan_bad(scan, at, "expected a digit in the exponent");
        }
        at = pass_digits(at);
    }
    return finish(scan, p, at, tok, type);
}

/* Up to 18 digits. */
static uint64_t digits_value(const char *at, size_t n) {
    uint64_t value = 0;
    for (; n >= 8; n -= 8, at += 8) {
        value = value * 100000000 + prof_eight_digits(prof_word(at));
    }
    for (; n; n--, at++) {
        value = value * 10 + (uint64_t)(*at - '0');
    }
    return value;
}

prof_val qn_prof_tok_number(const prof_scan *scan, const prof_tok *tok) {
    const char *at = scan->base + tok->at, *end = at + tok->length;
    int negative = *at == '-';
    switch (tok->type) {
    case PROF_TOK_TRUE: return prof_int(1);
    case PROF_TOK_FALSE: return prof_int(0);
    case PROF_TOK_SPECIAL: {
        double value = at[negative] == 'I' || at[negative] == 'i' ? HUGE_VAL : (double)NAN;
        return prof_dbl(negative ? -value : value);
    }
    case PROF_TOK_INT: {
        int64_t value = 0;
        const char *digit = at + negative;
        if (end - digit <= 18) { /* no overflow is possible */
            value = (int64_t)digits_value(digit, (size_t)(end - digit));
            return prof_int(negative ? -value : value);
        }
        for (; digit < end; digit++) {
            if (__builtin_mul_overflow(value, 10, &value) || __builtin_sub_overflow(value, *digit - '0', &value)) {
                goto as_double; /* built downward, because the least integer has no positive twin */
            }
        }
        if (!negative && value == INT64_MIN) {
            goto as_double;
        }
        return prof_int(negative ? value : -value);
    }
    case PROF_TOK_DBL:
    as_double : {
        double value = qn_prof_dbl_read(at + negative, end - at - negative);
        return prof_dbl(negative ? -value : value);
    }
    default: return prof_absent();
    }
}

/* ---- Containers --------------------------------------------------------------------------------------------------- */

prof_scan_result qn_prof_scan_member(prof_scan *scan, const char **p, int first, prof_tok *key, int *closed) {
    const char *at = prof_skip_space(*p);
    *closed = 0;
    if (*at == '}') {
        *closed = 1;
        *p = at + 1;
        return PROF_SCAN_OK;
    }
    if (!first) {
        if (*at != ',') {
            return qn_prof_scan_bad(scan, at, "expected , or } in an object");
        }
        at = prof_skip_space(at + 1);
    }
    if (*at != '"') {
        return qn_prof_scan_bad(scan, at, "expected a quoted key");
    }
    prof_scan_result result = qn_prof_scan_string(scan, &at, key);
    if (result != PROF_SCAN_OK) {
        return result;
    }
    at = prof_skip_space(at);
    if (*at != ':') {
        return qn_prof_scan_bad(scan, at, "expected : after a key");
    }
    at = prof_skip_space(at + 1);
    if (at >= scan->end) {
        return qn_prof_scan_bad(scan, at, "");
    }
    *p = at;
    return PROF_SCAN_OK;
}

prof_scan_result qn_prof_scan_item(prof_scan *scan, const char **p, int first, int *closed) {
    const char *at = prof_skip_space(*p);
    *closed = 0;
    if (*at == ']' && first) {
        *closed = 1;
        *p = at + 1;
        return PROF_SCAN_OK;
    }
    if (!first) {
        if (*at == ']') {
            *closed = 1;
            *p = at + 1;
            return PROF_SCAN_OK;
        }
        if (*at != ',') {
            return qn_prof_scan_bad(scan, at, "expected , or ] in an array");
        }
        at = prof_skip_space(at + 1);
    }
    if (at >= scan->end) {
        return qn_prof_scan_bad(scan, at, "");
    }
    *p = at;
    return PROF_SCAN_OK;
}

enum { EXPECT_OPEN, EXPECT_FIRST, EXPECT_NEXT, EXPECT_VALUE }; /* FIRST: behind an opening bracket; NEXT: behind a value */

void qn_prof_skip_begin(prof_skip *skip) {
    skip->depth = 0;
    skip->expect = EXPECT_OPEN;
}

static int top_is_object(const prof_skip *skip) {
    int top = skip->depth - 1;
    return (int)(skip->is_object[top / 64] >> (top % 64) & 1);
}

static prof_scan_result open_container(prof_scan *scan, const char **p, prof_skip *skip) {
    if (skip->depth == PROF_SCAN_DEPTH) {
        return qn_prof_scan_bad(scan, *p, "values are nested more than 1024 deep");
    }
    uint64_t bit = 1ull << (skip->depth % 64), *word = &skip->is_object[skip->depth / 64];
    uint64_t below = skip->depth % 64 ? *word & (bit - 1) : 0;
    *word = **p == '{' ? below | bit : below;
    skip->depth++;
    skip->expect = EXPECT_FIRST;
    ++*p;
    return PROF_SCAN_OK;
}

prof_scan_result qn_prof_skip_run(prof_scan *scan, const char **p, prof_skip *skip) {
    prof_tok ignored;
    prof_scan_result result;
    do {
        int closed = 0;
        if (skip->expect == EXPECT_FIRST || skip->expect == EXPECT_NEXT) {
            int first = skip->expect == EXPECT_FIRST;
            *p = prof_skip_space(*p); /* so that endless blanks are not kept in the window */
            result = top_is_object(skip) ? qn_prof_scan_member(scan, p, first, &ignored, &closed)
                                         : qn_prof_scan_item(scan, p, first, &closed);
            if (result != PROF_SCAN_OK) {
                return result;
            }
            skip->expect = closed ? EXPECT_NEXT : EXPECT_VALUE;
            skip->depth -= closed;
            continue;
        }
        if (**p == '[' || **p == '{') {
            result = open_container(scan, p, skip);
        } else if (**p == '"') {
            result = qn_prof_scan_string(scan, p, &ignored);
            skip->expect = result == PROF_SCAN_OK ? EXPECT_NEXT : skip->expect;
        } else {
            result = is_digit(**p) || **p == '-' ? scan_number(scan, p, &ignored) : scan_word(scan, p, &ignored);
            skip->expect = result == PROF_SCAN_OK ? EXPECT_NEXT : skip->expect;
        }
        if (result != PROF_SCAN_OK) {
            return result;
        }
    } while (skip->depth);
    return PROF_SCAN_OK;
}

prof_scan_result qn_prof_scan_value(prof_scan *scan, const char **p, prof_tok *tok) {
    char c = **p;
    if (c == '"') {
        return qn_prof_scan_string(scan, p, tok);
    }
    if (is_digit(c) || c == '-') {
        return scan_number(scan, p, tok);
    }
    if (c != '[' && c != '{') {
        return scan_word(scan, p, tok);
    }
    prof_skip skip;
    qn_prof_skip_begin(&skip);
    const char *at = *p;
    prof_scan_result result = qn_prof_skip_run(scan, &at, &skip);
    if (result != PROF_SCAN_OK) {
        return result;
    }
    tok->at = (uint32_t)(*p - scan->base);
    tok->length = (uint32_t)(at - *p);
    tok->type = PROF_TOK_LIST;
    tok->escaped = 0;
    *p = at;
    return PROF_SCAN_OK;
}
