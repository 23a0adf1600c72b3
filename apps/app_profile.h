/* Recording for the verbs that run something: --profile[=DIR] on their command line, or QUERN_PROFILE=DIR around them. */
#ifndef QN_APPS_APP_PROFILE_H
#define QN_APPS_APP_PROFILE_H

#include <quern/plan.h>
#include <quern/record.h>

#include "options.h"

typedef struct app_profile {
    qn_recorder *recorder; /* NULL: nothing is recorded */
} app_profile;

/* The row of an option_maybe in the words of a verb that runs something. */
#define APP_PROFILE_ROW(type, field)        \
    OPTION(type, field, "--profile", "DIR", \
           "record a trace into DIR (default quern-profile) for quern profile; QUERN_PROFILE=DIR does the same", .files = "/")
/* The folder to record into, NULL: none. */
const char *app_profile_folder(const option_maybe *given);
/* Starts recording into the folder; with NULL nothing happens. APP_OK or APP_FAILED, having said why. */
int app_profile_begin(app_profile *profile, const char *folder);
/* One call per context that runs something, on its thread. */
int app_profile_attach(app_profile *profile, qn_context *context, const char *thread);
/* Names the device that plans of the run use, as qn_device_open was asked for it. */
int app_profile_device(app_profile *profile, const char *backend, int index);
/* One more run of the plan, recorded on a context of its own: for benchmarks, whose figures stay those of runs that were not. */
int app_profile_run(app_profile *profile, qn_plan *plan, const char *thread);
/* Writes the trace and says on standard error where it is. Call it also after a failure: what happened until then is kept. */
int app_profile_end(app_profile *profile);

#endif
