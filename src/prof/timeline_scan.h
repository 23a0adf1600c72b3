/* Every item of a trace's event list, whatever its phase, one at a time: for the timeline, which shows what no view counts. */
#ifndef QUERN_PROF_TIMELINE_SCAN_H
#define QUERN_PROF_TIMELINE_SCAN_H

#include "prof/trace_cursor.h"

typedef enum prof_part {
    PROF_PART_PH,
    PROF_PART_CAT,
    PROF_PART_NAME,
    PROF_PART_PID,
    PROF_PART_TID,
    PROF_PART_TS,
    PROF_PART_DUR,
    PROF_PART_ID,
    PROF_PART_ARGS,
    PROF_PARTS
} prof_part;

typedef struct prof_item { /* valid during the call only */
    prof_scan *scan;
    prof_tok part[PROF_PARTS];
    unsigned present; /* bit per part */
} prof_item;

/* Anything but QN_OK ends the scan and is returned. */
typedef qn_status (*prof_item_fn)(void *user, const prof_item *item);

/* Memory for the window comes from `arena`. The file was read once already, so faults in it are those of a changed file. */
qn_status qn_prof_timeline_scan(qn_arena *arena, const char *path, const qn_profile_options *options, prof_item_fn take,
                                void *user, qn_error *error);

static inline int prof_has_part(const prof_item *item, prof_part part) { return (int)(item->present >> part & 1u); }
static inline const char *prof_part_text(const prof_item *item, prof_part part) { return item->scan->base + item->part[part].at; }
/* Whether a part is the string `word`. */
int qn_prof_part_is(const prof_item *item, prof_part part, const char *word);
/* A time in microseconds as whole nanoseconds, exact to the third decimal; 0 when it is none or does not fit. */
int qn_prof_part_ns(const prof_item *item, prof_part part, int64_t *ns);
/* The value of one argument; 0 when there is none of that name. */
int qn_prof_item_arg(const prof_item *item, const char *name, prof_tok *value);

#endif
