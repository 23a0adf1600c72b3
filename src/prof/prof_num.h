/* Values as a trace writes them: absent, exact 64-bit integer, double, interned string or interned list.
 *
 * The views must show `0` where the reference adds integers and `0.0` where a double took part, so integers stay integers
 * until a double touches them. The reference's integers have no bound: results that leave 64 bits are kept exactly to 88, and
 * beyond that become doubles. Integers and doubles are compared exactly. Absent operands count as integer 0 in arithmetic; the
 * callers test for absence where it means something. */
#ifndef QUERN_PROF_NUM_H
#define QUERN_PROF_NUM_H

#include <math.h>
#include <stdint.h>

typedef enum prof_tag {
    PROF_ABSENT = 0, /* key missing or JSON null */
    PROF_INT,        /* i; also JSON true and false as 1 and 0 */
    PROF_DBL,        /* d */
    PROF_STR,        /* i is a string id of the trace */
    PROF_LIST,       /* i is a list id of the trace (a JSON array or object) */
    PROF_BIG         /* an integer outside 64 bits, made by arithmetic only: see prof_is_big */
} prof_tag;

typedef struct prof_val {
    union {
        int64_t i;
        double d;
    };
    uint32_t tag; /* prof_tag */
} prof_val;

typedef prof_val prof_num; /* a value that is absent, an integer or a double */

static inline prof_num prof_int(int64_t i) {
    prof_num v = {{i}, PROF_INT};
    return v;
}

static inline prof_num prof_dbl(double d) {
    prof_num v;
    v.tag = PROF_DBL;
    v.d = d;
    return v;
}

static inline prof_num prof_absent(void) {
    prof_num v = {{0}, PROF_ABSENT};
    return v;
}

static inline int prof_is_num(prof_val v) { return v.tag == PROF_INT || v.tag == PROF_DBL || (v.tag & 255) == PROF_BIG; }

/* The upper 24 bits of a big integer's tag are its bits 64 to 87 (two's complement), i holds the 64 below. */
static inline int prof_is_big(prof_val v) { return (v.tag & 255) == PROF_BIG; }

/* The general cases of what follows. */
double qn_prof_big_to_dbl(prof_num v);
prof_num qn_prof_add_any(prof_num a, prof_num b);
prof_num qn_prof_sub_any(prof_num a, prof_num b);
prof_num qn_prof_mul_any(prof_num a, prof_num b);
int qn_prof_cmp_any(prof_num a, prof_num b);

static inline double prof_to_dbl(prof_num v) {
    return v.tag == PROF_DBL ? v.d : prof_is_big(v) ? qn_prof_big_to_dbl(v) : (double)v.i;
}

static inline prof_num prof_add(prof_num a, prof_num b) {
    int64_t sum;
    if (a.tag <= PROF_INT && b.tag <= PROF_INT && !__builtin_add_overflow(a.i, b.i, &sum)) {
        return prof_int(sum);
    }
    return qn_prof_add_any(a, b);
}

static inline prof_num prof_sub(prof_num a, prof_num b) {
    int64_t difference;
    if (a.tag <= PROF_INT && b.tag <= PROF_INT && !__builtin_sub_overflow(a.i, b.i, &difference)) {
        return prof_int(difference);
    }
    return qn_prof_sub_any(a, b);
}

static inline prof_num prof_mul(prof_num a, prof_num b) {
    int64_t product;
    if (a.tag <= PROF_INT && b.tag <= PROF_INT && !__builtin_mul_overflow(a.i, b.i, &product)) {
        return prof_int(product);
    }
    return qn_prof_mul_any(a, b);
}

/* Always a double. The caller keeps zero divisors away. */
static inline double prof_div(prof_num a, prof_num b) { return prof_to_dbl(a) / prof_to_dbl(b); }

/* -1, 0, 1 as a is less than, equal to, greater than b; 2 when either is not a number. */
static inline int prof_cmp(prof_num a, prof_num b) {
    if (a.tag <= PROF_INT && b.tag <= PROF_INT) {
        return a.i < b.i ? -1 : a.i > b.i;
    }
    if (a.tag == PROF_DBL && b.tag == PROF_DBL) {
        return a.d < b.d ? -1 : a.d > b.d ? 1 : a.d == b.d ? 0 : 2;
    }
    return qn_prof_cmp_any(a, b);
}

static inline int prof_lt(prof_num a, prof_num b) { return prof_cmp(a, b) == -1; }
static inline int prof_gt(prof_num a, prof_num b) { return prof_cmp(a, b) == 1; }
static inline int prof_eq(prof_num a, prof_num b) { return prof_cmp(a, b) == 0; }
static inline int prof_le(prof_num a, prof_num b) {
    int order = prof_cmp(a, b);
    return order == -1 || order == 0;
}
static inline int prof_ge(prof_num a, prof_num b) {
    int order = prof_cmp(a, b);
    return order == 1 || order == 0;
}

/* The first of equals, like the reference's max(a, b) and min(a, b). */
static inline prof_num prof_max(prof_num a, prof_num b) { return prof_gt(b, a) ? b : a; }
static inline prof_num prof_min(prof_num a, prof_num b) { return prof_lt(b, a) ? b : a; }

/* Whether the value is zero or absent: what the reference's truth test calls false. */
static inline int prof_is_zero(prof_num v) { return v.tag == PROF_DBL ? v.d == 0 : v.tag <= PROF_INT && v.i == 0; }

static inline int prof_is_nan(prof_val v) { return v.tag == PROF_DBL && v.d != v.d; }

/* Key equality: absent equals absent, 7 equals 7.0, strings and lists by identity (they are interned). Not-a-number is one key, as
 * the reference's reader makes one object of all of them; a key that did not equal itself could be put into a map and never found. */
static inline int prof_same(prof_val a, prof_val b) {
    if (prof_is_num(a) && prof_is_num(b)) {
        int order = prof_cmp(a, b);
        return order == 0 || (order == 2 && prof_is_nan(a) && prof_is_nan(b));
    }
    return a.tag == b.tag && a.i == b.i;
}

/* r0: nearest integer, ties to even. Not-a-number, infinities and doubles beyond 88 bits come back as they are. */
prof_num qn_prof_round0(prof_num value);
/* r2: an integer is itself; a double becomes the decimal of two places nearest to its exact binary value. */
prof_num qn_prof_round2(prof_num value);
/* The same for any number of places from 0 to 30. */
double qn_prof_round_places(double value, int places);

/* Text as the output shows it (section 1), without a terminator; at most PROF_NUM_TEXT bytes. Independent of the locale. */
enum { PROF_NUM_TEXT = 40 };
int qn_prof_num_text(prof_num value, char *text); /* any of the kinds; absent gives None */
int qn_prof_dbl_text(double value, char *text);
int qn_prof_int_text(int64_t value, char *text);
/* Reads an unsigned JSON number "digits[.digits][e[+-]digits]" of `length` bytes, correctly rounded. */
double qn_prof_dbl_read(const char *text, int64_t length);

#endif
