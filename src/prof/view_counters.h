/* The counter events the trace view adds (section 16). */
#ifndef QUERN_PROF_VIEW_COUNTERS_H
#define QUERN_PROF_VIEW_COUNTERS_H

#include "prof/prof_view.h"

/* Whether there are any: not in a window shorter than a microsecond, nor where no kernel names its device. */
int qn_prof_view_has_counters(const prof_trace *trace);
/* Writes them joined by ", ", as raw text. */
void qn_prof_view_put_counters(prof_json *json, const prof_trace *trace);

#endif
