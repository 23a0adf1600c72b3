/* What the three memory views share (section 17): units, rounding for display, devices in first-seen order. */
#ifndef QUERN_PROF_VIEW_MEMORY_H
#define QUERN_PROF_VIEW_MEMORY_H

#include "prof/prof_map.h"
#include "prof/view_util.h"

typedef struct prof_units {
    const char *time, *memory;           /* "ms", "KB" */
    prof_num time_factor, memory_factor; /* integer 1, or a double */
} prof_units;

typedef struct prof_memory_view { /* where each of the views begins */
    const prof_trace *trace;
    qn_arena *arena;
    prof_units units;
    prof_map devices; /* see qn_prof_memory_device */
} prof_memory_view;

/* Checks that there is something to show and reads the request's units; `memory` is the view's own. */
qn_status qn_prof_memory_begin(const prof_view_context *context, const char *memory, prof_memory_view *view, qn_error *error);

/* Two places, or the first significant digit of what is smaller. */
prof_num qn_prof_memory_rounded(prof_num value);

/* Devices seen so far are a map from name to running number. The number of one, added when new; PROF_NIL when memory ends. */
uint32_t qn_prof_memory_device(prof_map *devices, uint32_t name);
static inline const prof_str *prof_memory_device_name(const prof_trace *trace, const prof_map *devices, size_t i) {
    return prof_string(trace, (uint32_t)devices->entries.at[i].key.i);
}
/* The device a reader wants to see first: the first of the dialect's own, ascending, else "CPU". */
void qn_prof_memory_default(prof_json *json, const prof_trace *trace, const prof_map *devices);

/* "Name (unit)" as a column {"name", "type", "tooltip"}; unit and tooltip may be NULL. */
void qn_prof_memory_column(prof_json *json, const char *name, const char *unit, int is_number, const char *tooltip);

#endif
