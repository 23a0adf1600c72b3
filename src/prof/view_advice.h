/* The recommendations of the overview (section 11). */
#ifndef QUERN_PROF_VIEW_ADVICE_H
#define QUERN_PROF_VIEW_ADVICE_H

#include "prof/prof_view.h"

/* Writes the whole list as one JSON string. */
void qn_prof_view_advice(prof_json *json, const prof_trace *trace);

#endif
