/* The contract between the profile (which finds and loads traces) and the emitters (view_*.c, one family each).
 *
 * An emitter reads the model and writes JSON; it allocates only from context->arena, which is emptied after the view. It returns
 * QN_UNSUPPORTED with a sentence when the trace has no such view, before it writes anything, and otherwise QN_OK: failed writes
 * are remembered by the writer. */
#ifndef QUERN_PROF_VIEW_H
#define QUERN_PROF_VIEW_H

#include "prof/prof_joint.h"
#include "prof/prof_json.h"
#include "prof/prof_model.h"

typedef enum prof_scope { PROF_SCOPE_TRACE, PROF_SCOPE_SPAN, PROF_SCOPE_RUN, PROF_SCOPE_PAIR } prof_scope;

typedef struct prof_run_worker { /* for the RUN views */
    const char *name;
    const prof_trace *const *traces; /* its loaded spans; those that cannot be analysed are left out */
    size_t n_traces;
} prof_run_worker;

typedef struct prof_view_context {
    qn_arena *arena;
    const qn_profile_request *request; /* never NULL */
    const prof_trace *trace;           /* TRACE; PAIR: left side */
    const prof_trace *other;           /* PAIR: right side */
    const prof_dist *dist;             /* SPAN, never NULL there; dist->exists may be 0 */
    const prof_run_worker *workers;    /* RUN: workers ascending, those with no trace left out */
    size_t n_workers;                  /* RUN; TRACE: number of distinct workers of the run, for the overview */
    int run_has_distributed;           /* RUN: some span has a distributed view */
    /* Copies the unpacked text of trace->path to `write`, chunk by chunk (trace view). */
    qn_status (*copy_text)(const prof_trace *trace, qn_profile_write_fn write, void *user, qn_error *error);
} prof_view_context;

typedef qn_status (*prof_view_fn)(const prof_view_context *context, prof_json *json, qn_error *error);

#define PROF_VIEW(name, scope) qn_status qn_prof_view_##name(const prof_view_context *context, prof_json *json, qn_error *error);
#include "prof/views.def"
#undef PROF_VIEW

#endif
