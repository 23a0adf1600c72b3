/* Walking a trace file's text. */
#include "prof/trace_cursor.h"

#include <string.h>

int qn_prof_cursor_more(prof_cursor *cursor) {
    size_t keep = (size_t)(cursor->p - cursor->window.at);
    cursor->status = qn_prof_window_refill(&cursor->window, keep, cursor->error);
    cursor->p = cursor->window.at;
    prof_cursor_aim(cursor);
    return cursor->status == QN_OK;
}

static qn_status refuse_at(prof_cursor *cursor, const char *at, const char *what, const char *why) {
    uint64_t offset = cursor->window.offset + (uint64_t)(at - cursor->window.at);
    return qn_error_set(cursor->error, QN_FORMAT, "%s: byte %llu: %s%s", cursor->path, (unsigned long long)offset, what, why);
}

qn_status qn_prof_cursor_refuse(prof_cursor *cursor, const char *why) { return refuse_at(cursor, cursor->p, "", why); }

qn_status qn_prof_cursor_fail(prof_cursor *cursor, prof_scan_result result) {
    if (cursor->status != QN_OK) {
        return cursor->status;
    }
    const char *at = result == PROF_SCAN_BAD ? cursor->scan.bad_at : cursor->p;
    return refuse_at(cursor, at, "not valid JSON: ", cursor->scan.why);
}

qn_status qn_prof_cursor_blanks(prof_cursor *cursor) {
    for (;;) {
        cursor->p = prof_skip_space(cursor->p);
        if (cursor->p < cursor->window.at + cursor->window.length || cursor->window.last) {
            prof_cursor_aim(cursor);
            return QN_OK;
        }
        if (!qn_prof_cursor_more(cursor)) {
            return cursor->status;
        }
    }
}

qn_status qn_prof_cursor_open(prof_cursor *cursor, qn_arena *arena, const char *path, const qn_profile_options *options,
                              qn_error *error) {
    cursor->path = path;
    cursor->error = error;
    qn_status status = qn_prof_window_open(&cursor->window, arena, path, options, error);
    if (status != QN_OK) {
        return status;
    }
    int marked = cursor->window.length >= 3 && memcmp(cursor->window.at, "\xef\xbb\xbf", 3) == 0; /* UTF-8's byte order mark */
    cursor->p = cursor->window.at + (marked ? 3 : 0);
    status = qn_prof_cursor_blanks(cursor);
    if (status == QN_OK && memcmp(cursor->p, "\x1f\x8b", 2) == 0) {
        status = qn_prof_cursor_refuse(cursor, "this is gzip, but the file's name does not end in .gz");
    }
    if (status != QN_OK) {
        qn_prof_cursor_close(cursor);
    }
    return status;
}

void qn_prof_cursor_close(prof_cursor *cursor) { qn_prof_window_close(&cursor->window); }

prof_scan_result qn_prof_cursor_item(prof_cursor *cursor, int first, int *closed) {
    prof_scan_result result;
    do {
        cursor->p = prof_skip_space(cursor->p);
        prof_cursor_aim(cursor);
        result = qn_prof_scan_item(&cursor->scan, &cursor->p, first, closed);
    } while (result == PROF_SCAN_MORE && qn_prof_cursor_more(cursor));
    return result;
}

prof_scan_result qn_prof_cursor_member(prof_cursor *cursor, int first, prof_tok *key, const char **value, int *closed) {
    prof_scan_result result;
    do {
        cursor->p = prof_skip_space(cursor->p);
        prof_cursor_aim(cursor);
        *value = cursor->p;
        result = qn_prof_scan_member(&cursor->scan, value, first, key, closed);
    } while (result == PROF_SCAN_MORE && qn_prof_cursor_more(cursor));
    return result;
}

prof_scan_result qn_prof_cursor_skip(prof_cursor *cursor) {
    prof_scan_result result;
    prof_tok ignored;
    prof_skip skip;
    int container = *cursor->p == '[' || *cursor->p == '{';
    qn_prof_skip_begin(&skip);
    do {
        prof_cursor_aim(cursor);
        result = container ? qn_prof_skip_run(&cursor->scan, &cursor->p, &skip)
                           : qn_prof_scan_value(&cursor->scan, &cursor->p, &ignored);
    } while (result == PROF_SCAN_MORE && qn_prof_cursor_more(cursor));
    return result;
}

static prof_scan_result one_event(prof_cursor *cursor, prof_mark_fn mark, prof_take_fn take, void *user) {
    prof_scan_result result;
    const char *p;
    prof_tok other;
    do {
        prof_cursor_aim(cursor);
        p = cursor->p;
        result = *p == '{' ? mark(user, &p) : qn_prof_scan_value(&cursor->scan, &p, &other);
    } while (result == PROF_SCAN_MORE && qn_prof_cursor_more(cursor));
    if (result == PROF_SCAN_OK) {
        cursor->status = take(user, *cursor->p == '{');
        cursor->p = p;
    }
    return result;
}

qn_status qn_prof_cursor_events(prof_cursor *cursor, prof_mark_fn mark, prof_take_fn take, void *user) {
    int closed = 0;
    cursor->p++;
    for (int first = 1;; first = 0) {
        prof_scan_result result = qn_prof_cursor_item(cursor, first, &closed);
        if (result == PROF_SCAN_OK && !closed) {
            result = one_event(cursor, mark, take, user);
        }
        if (result != PROF_SCAN_OK || cursor->status != QN_OK) {
            return qn_prof_cursor_fail(cursor, result);
        }
        if (closed) {
            return QN_OK;
        }
    }
}
