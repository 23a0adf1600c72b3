/* The counter events the trace view adds (section 16). */
#ifndef QUERN_PROF_VIEW_COUNTERS_H
#define QUERN_PROF_VIEW_COUNTERS_H

#include "prof/prof_view.h"

/* Writes them joined by ", ", as raw text; returns how many there were. */
size_t qn_prof_view_put_counters(prof_json *json, const prof_trace *trace);

#endif
