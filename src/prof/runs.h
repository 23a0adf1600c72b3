/* The runs, workers and spans of a log directory (section 2): names only, nothing is read. */
#ifndef QUERN_PROF_RUNS_H
#define QUERN_PROF_RUNS_H

#include <quern/profile.h>

#include "base/arena.h"
#include "prof/prof_model.h"

typedef struct prof_span {
    const char *name;  /* "1", "2", ... or "default" */
    const char *stamp; /* the digits of the file name, "" when there are none */
    const char *path;
    prof_trace *trace; /* once it is loaded */
    int tried;         /* then, without a trace, `failure` says why it cannot be used */
    qn_error *failure;
} prof_span;

typedef struct prof_worker {
    const char *name;
    QN_VEC(prof_span) spans;
} prof_worker;

typedef struct prof_run {
    const char *name;
    QN_VEC(prof_worker) workers; /* ascending by name */
} prof_run;

typedef QN_VEC(prof_run) prof_runs;

/* Lists what lies under a directory, or the one run of a single file. */
qn_status qn_prof_runs_list(qn_arena *arena, const char *path, prof_runs *runs, qn_error *error);

#endif
