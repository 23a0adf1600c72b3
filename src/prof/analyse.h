/* From a file to a finished model. */
#ifndef QUERN_PROF_ANALYSE_H
#define QUERN_PROF_ANALYSE_H

#include "prof/prof_model.h"

/* Reads and analyses; the path must outlive the trace. On failure the trace is empty and need not be freed. */
qn_status qn_prof_trace_load(const char *path, const qn_profile_options *options, prof_trace *trace, qn_error *error);
void qn_prof_trace_free(prof_trace *trace);

#endif
