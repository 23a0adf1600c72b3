/* The unpacked bytes of a trace file as a moving window: plain or gzip (by the file's name), any size, bounded memory. */
#ifndef QUERN_PROF_TRACE_SOURCE_H
#define QUERN_PROF_TRACE_SOURCE_H

#include <quern/profile.h>

#include "base/arena.h"

typedef struct prof_source prof_source;

typedef struct prof_window {
    prof_source *source;
    char *base; /* of the memory */
    char *at;   /* the bytes; at[length] and PROF_SCAN_PAD more are 0 */
    size_t length;
    size_t capacity;
    uint64_t offset; /* of at[0] in the unpacked text */
    int last;        /* nothing follows */
} prof_window;

/* Opens and allocates from `arena`; the path must outlive the window. Errors name the path. */
qn_status qn_prof_window_open(prof_window *window, qn_arena *arena, const char *path, const qn_profile_options *options,
                              qn_error *error);
/* Drops the bytes before at[keep], moves the rest to the front and reads more behind them; the window grows when all of it is
 * kept. QN_FORMAT when what must be kept is larger than any event can be. */
qn_status qn_prof_window_refill(prof_window *window, size_t keep, qn_error *error);
/* How much of the file has been used up to p in the window, above 0 and at most 1; 0 when that is not known. */
double qn_prof_window_share(const prof_window *window, const char *p);
void qn_prof_window_close(prof_window *window);

int qn_prof_is_gz(const char *path);

#endif
