/* Walking the event list again. The window and the scanner are the reader's; what is marked here are whole parts, arguments as
 * one piece of text. */
#include "prof/timeline_scan.h"

#include <math.h>
#include <string.h>

#define MOST_NS (INT64_MAX / 2) /* so that differences of times fit as well; 146 years */

typedef struct walk {
    prof_cursor cursor;
    prof_item item;
    prof_item_fn take;
    void *user;
} walk;

static int part_of(const char *name, size_t length) {
    static const char *const NAMES[PROF_PARTS] = {"ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "args"};
    for (int part = 0; part < PROF_PARTS; part++) {
        if (strlen(NAMES[part]) == length && memcmp(NAMES[part], name, length) == 0) {
            return part;
        }
    }
    return -1;
}

static prof_scan_result mark_parts(void *user, const char **p) {
    walk *w = user;
    prof_scan *scan = &w->cursor.scan;
    int closed;
    w->item.present = 0;
    ++*p;
    for (int first = 1;; first = 0) {
        prof_tok key, value;
        prof_scan_result result = qn_prof_scan_member(scan, p, first, &key, &closed);
        if (result != PROF_SCAN_OK || closed) {
            return result;
        }
        result = qn_prof_scan_value(scan, p, &value);
        if (result != PROF_SCAN_OK) {
            return result;
        }
        int part = part_of(scan->base + key.at, key.length);
        if (part >= 0) {
            w->item.part[part] = value;
            w->item.present |= 1u << part;
        }
    }
}

static qn_status take_item(void *user, int is_object) {
    walk *w = user;
    return is_object ? w->take(w->user, &w->item) : QN_OK;
}

static qn_status top_object(walk *w) {
    static const char LIST[] = "traceEvents";
    prof_cursor *cursor = &w->cursor;
    cursor->p++;
    for (int first = 1;; first = 0) {
        prof_tok key;
        const char *value;
        int closed;
        prof_scan_result result = qn_prof_cursor_member(cursor, first, &key, &value, &closed);
        if (result != PROF_SCAN_OK) {
            return qn_prof_cursor_fail(cursor, result);
        }
        if (closed) {
            return QN_OK;
        }
        int is_list = key.length == sizeof LIST - 1 && memcmp(cursor->scan.base + key.at, LIST, sizeof LIST - 1) == 0 &&
                      *value == '[';
        cursor->p = value;
        if (is_list) {
            qn_status status = qn_prof_cursor_events(cursor, mark_parts, take_item, w);
            if (status != QN_OK) {
                return status;
            }
        } else if ((result = qn_prof_cursor_skip(cursor)) != PROF_SCAN_OK) {
            return qn_prof_cursor_fail(cursor, result);
        }
    }
}

qn_status qn_prof_timeline_scan(qn_arena *arena, const char *path, const qn_profile_options *options, prof_item_fn take,
                                void *user, qn_error *error) {
    walk w;
    memset(&w, 0, sizeof w);
    w.take = take;
    w.user = user;
    w.item.scan = &w.cursor.scan;
    qn_status status = qn_prof_cursor_open(&w.cursor, arena, path, options, error);
    if (status != QN_OK) {
        return status;
    }
    if (*w.cursor.p == '{') {
        status = top_object(&w);
    } else if (*w.cursor.p == '[') {
        status = qn_prof_cursor_events(&w.cursor, mark_parts, take_item, &w);
    } else {
        status = qn_prof_cursor_fail(&w.cursor, qn_prof_scan_bad(&w.cursor.scan, w.cursor.p, "expected { at the top"));
    }
    qn_prof_cursor_close(&w.cursor);
    return status;
}

/* ---- Parts as values ---------------------------------------------------------------------------------------------- */

int qn_prof_part_is(const prof_item *item, prof_part part, const char *word) {
    const prof_tok *tok = &item->part[part];
    return prof_has_part(item, part) && tok->type == PROF_TOK_STRING && tok->length == strlen(word) &&
           memcmp(prof_part_text(item, part), word, tok->length) == 0;
}

/* Digits as written: a double could not tell the nanoseconds of a clock that counts from 1970. */
static int decimal_ns(const char *at, const char *end, int64_t *ns) {
    int negative = at < end && *at == '-';
    int decimals = -1;
    int64_t value = 0;
    for (at += negative; at < end; at++) {
        if (*at == '.' && decimals < 0) {
            decimals = 0;
        } else if (*at < '0' || *at > '9') {
            return 0;
        } else if (decimals < 3) {
            if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *at - '0', &value)) {
                return 0;
            }
            decimals += decimals >= 0;
        }
    }
    for (int i = decimals < 0 ? 0 : decimals; i < 3; i++) {
        if (__builtin_mul_overflow(value, 10, &value)) {
            return 0;
        }
    }
    *ns = negative ? -value : value;
    return value <= MOST_NS;
}

int qn_prof_part_ns(const prof_item *item, prof_part part, int64_t *ns) {
    if (!prof_has_part(item, part)) {
        return 0;
    }
    const prof_tok *tok = &item->part[part];
    const char *at = prof_part_text(item, part);
    if (tok->type == PROF_TOK_INT || tok->type == PROF_TOK_DBL) {
        if (decimal_ns(at, at + tok->length, ns)) {
            return 1;
        }
        double us = prof_to_dbl(qn_prof_tok_number(item->scan, tok)); /* written with an exponent, or too large */
        if (fabs(us) < (double)MOST_NS / 1e3) {
            *ns = (int64_t)(us * 1e3);
            return 1;
        }
    }
    return 0;
}

int qn_prof_item_arg(const prof_item *item, const char *name, prof_tok *value) {
    if (!prof_has_part(item, PROF_PART_ARGS) || *prof_part_text(item, PROF_PART_ARGS) != '{') {
        return 0;
    }
    const char *p = prof_part_text(item, PROF_PART_ARGS) + 1;
    int closed, found = 0;
    for (int first = 1;; first = 0) {
        prof_tok key, one;
        if (qn_prof_scan_member(item->scan, &p, first, &key, &closed) != PROF_SCAN_OK || closed ||
            qn_prof_scan_value(item->scan, &p, &one) != PROF_SCAN_OK) {
            return found;
        }
        if (key.length == strlen(name) && memcmp(item->scan->base + key.at, name, key.length) == 0) {
            *value = one;
            found = 1;
        }
    }
}
