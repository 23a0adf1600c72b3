/* A place in a trace file's text: the window it is in, the scanner over it, and what went wrong. The reader and the timeline both
 * walk the same structure with it, an object with a list of events in it or a bare list, and look at different parts. */
#ifndef QUERN_PROF_TRACE_CURSOR_H
#define QUERN_PROF_TRACE_CURSOR_H

#include "prof/json_scan.h"
#include "prof/trace_source.h"

typedef struct prof_cursor {
    prof_window window;
    prof_scan scan;
    const char *p; /* next byte to look at; everything from here on stays in the window */
    const char *path;
    qn_error *error;
    qn_status status; /* of memory and input; the scanner has its own */
} prof_cursor;

/* Opens the file and stands at the first byte that means something. */
qn_status qn_prof_cursor_open(prof_cursor *cursor, qn_arena *arena, const char *path, const qn_profile_options *options,
                              qn_error *error);
void qn_prof_cursor_close(prof_cursor *cursor);

/* Scans from p on: tokens count from there. */
static inline void prof_cursor_aim(prof_cursor *cursor) {
    cursor->scan.base = cursor->p;
    cursor->scan.end = cursor->window.at + cursor->window.length;
    cursor->scan.last = cursor->window.last;
}

/* Reads on after PROF_SCAN_MORE; 0 when that failed. */
int qn_prof_cursor_more(prof_cursor *cursor);
/* The status and sentence for what the scanner or the window refused. */
qn_status qn_prof_cursor_fail(prof_cursor *cursor, prof_scan_result result);
/* "path: byte N: why", N being where p stands. */
qn_status qn_prof_cursor_refuse(prof_cursor *cursor, const char *why);

/* Leaves p at the first byte that is no blank; at the end of the window only when the text ends there. */
qn_status qn_prof_cursor_blanks(prof_cursor *cursor);
/* The next item of a list: p stands behind `[` (first) or behind an item, and is left at the item or behind `]`. */
prof_scan_result qn_prof_cursor_item(prof_cursor *cursor, int first, int *closed);
/* The next member of an object, likewise; *key counts from scan.base, and *value is where its value begins: p moves there when the
 * key has been looked at. */
prof_scan_result qn_prof_cursor_member(prof_cursor *cursor, int first, prof_tok *key, const char **value, int *closed);
/* A value nobody asks for, of any size. */
prof_scan_result qn_prof_cursor_skip(prof_cursor *cursor);

/* Marks what is wanted of the event at *p, an object, and leaves *p behind it; it is called again for the same event when the window
 * ended in it. Then takes it; an item that is no object is taken unmarked. */
typedef prof_scan_result (*prof_mark_fn)(void *user, const char **p);
typedef qn_status (*prof_take_fn)(void *user, int is_object);
/* All items of the list at p. */
qn_status qn_prof_cursor_events(prof_cursor *cursor, prof_mark_fn mark, prof_take_fn take, void *user);

#endif
