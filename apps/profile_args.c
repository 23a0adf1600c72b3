/* What the verbs of quern profile share: the options that say how traces are read, progress, Ctrl-C, and how they complain. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app.h"
#include "profile_cmd.h"

/* ---- Complaints --------------------------------------------------------------------------------------------------- */

int profile_wrong(const char *verb, const char *sentence, const char *what) {
    const char *space = verb ? " " : "";
    verb = verb ? verb : "";
    fprintf(stderr, "quern profile%s%s: ", space, verb);
    fprintf(stderr, sentence, what);
    fprintf(stderr, "; 'quern profile%s%s --help' says more\n", space, verb);
    return APP_USAGE;
}

int profile_failed(const char *verb, qn_status status, const qn_error *error) {
    if (profile_was_interrupted() || status == QN_CANCELLED) return PROFILE_INTERRUPTED;
    fprintf(stderr, "quern profile%s%s: ", verb ? " " : "", verb ? verb : "");
    if (status == QN_IO && error->status != QN_IO) fprintf(stderr, "the result could not be written: %s\n", strerror(errno));
    else fprintf(stderr, "%s\n", error->text[0] ? error->text : qn_status_meaning(status));
    return APP_FAILED;
}

/* ---- Options ------------------------------------------------------------------------------------------------------ */

const option_row profile_reading_rows[] = {
    OPTION(profile_reading, dialect, "--dialect", "auto|upstream|mlu_a|mlu_b", "whose rules (default: by what the trace holds)"),
    OPTION(profile_reading, strict, "--strict-reference", NULL, "refuse what the reference refuses"),
    OPTION(profile_reading, driver, "--driver", NULL, "calls of cuda_driver launch kernels too (Triton, compiled code)"),
    OPTION(profile_reading, owner, "--owner", "id|time|enclosing",
           "whose a runtime call is: the operator's with its id (the rule); the innermost operator's around it, whatever its id "
           "says "
           "(PyTorch 2.1 and later); or that of the last event around it with an id, which is how torch_mlu's edition for "
           "PyTorch 2.1 "
           "mends GPU traces"),
    OPTION(profile_reading, host_steps, "--host-steps", NULL, "steps marked on device tracks are no steps"),
    OPTION(profile_reading, comm_names, "--comm-names", NULL, "kernels named like NCCL's or CNCL's are communication"),
    {0}};

static int index_of(const char *word, const char *const *words, int n) {
    for (int k = 0; k < n; k++)
        if (strcmp(word, words[k]) == 0) return k;
    return -1;
}

int profile_take_reading(const quern_verb *v, const profile_reading *w, qn_profile_options *options) {
    static const char *const dialects[] = {"auto", "upstream", "mlu_a", "mlu_b"}, *const owners[] = {"id", "time", "enclosing"};
    static const uint32_t owner_flags[] = {0, QN_PROFILE_OWNER_TIME, QN_PROFILE_OWNER_ENCLOSING};
    int dialect = w->dialect ? index_of(w->dialect, dialects, 4) : 0, owner = w->owner ? index_of(w->owner, owners, 3) : 0;
    if (dialect < 0) return options_wrong(v, "there is no dialect ", w->dialect, ": upstream, mlu_a or mlu_b");
    if (owner < 0) return options_wrong(v, "there is no owner ", w->owner, ": id, time or enclosing");
    options->dialect = (qn_profile_dialect)dialect;
    options->flags |= owner_flags[owner] | (w->strict ? QN_PROFILE_STRICT : 0u) | (w->driver ? QN_PROFILE_DRIVER : 0u) |
                      (w->host_steps ? QN_PROFILE_HOST_STEPS : 0u) | (w->comm_names ? QN_PROFILE_COMM_NAMES : 0u);
    return APP_OK;
}

static int is_number(const char *word) {
    char *end;
    double v = strtod(word, &end);
    return *word && !*end && isfinite(v);
}

static int check_unit(const char *option, const char *word, const char *const *names, int n) {
    char sentence[96];
    if (!word || index_of(word, names, n) >= 0) return APP_OK;
    int at = snprintf(sentence, sizeof sentence, "%s takes ", option);
    for (int k = 0; k < n; k++)
        at += snprintf(sentence + at, sizeof sentence - (size_t)at, "%s%s", k == 0 ? "" : k + 1 < n ? ", " : " or ", names[k]);
    snprintf(sentence + at, sizeof sentence - (size_t)at, ", not '%%s'");
    return profile_wrong(NULL, sentence, word);
}

int profile_check_units(const qn_profile_request *r) {
    static const char *const times[] = {
#define QN_UNIT_TIME(name, in_one) #name,
#include <quern/units.def>
#undef QN_UNIT_TIME
    };
    static const char *const sizes[] = {
#define QN_UNIT_MEMORY(name, in_one) #name,
#include <quern/units.def>
#undef QN_UNIT_MEMORY
    };
    if (r->start_ts && !is_number(r->start_ts)) return profile_wrong(NULL, "--start takes a number, not '%s'", r->start_ts);
    if (r->end_ts && !is_number(r->end_ts)) return profile_wrong(NULL, "--end takes a number, not '%s'", r->end_ts);
    if (r->start_ts && r->end_ts && strtod(r->start_ts, NULL) > strtod(r->end_ts, NULL))
        return profile_wrong(NULL, "--start lies behind --end, which is %s", r->end_ts);
    int rc = check_unit("--time", r->time_metric, times, sizeof times / sizeof *times);
    return rc == APP_OK ? check_unit("--memory", r->memory_metric, sizes, sizeof sizes / sizeof *sizes) : rc;
}

/* ---- Interruption and progress ------------------------------------------------------------------------------------ */

static volatile int interrupted; /* read by the library, in the thread of a server too */

static void on_interrupt(int signal_number) {
    (void)signal_number;
    profile_interrupt();
}

int profile_was_interrupted(void) { return __atomic_load_n(&interrupted, __ATOMIC_RELAXED); }

void profile_interrupt(void) { __atomic_store_n(&interrupted, 1, __ATOMIC_RELAXED); }

/* Before anything else is said: it may go to the same terminal. */
void profile_clear_progress(const qn_profile_options *options) {
    profile_progress *p = options->progress_user;
    if (p && p->shown) {
        fprintf(stderr, "\r%79s\r", "");
        p->shown = 0;
    }
}

/* Ten times a second is enough for a person. */
static void show_progress(void *user, const char *path, uint64_t done, uint64_t total) {
    profile_progress *p = user;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    double passed = (double)(now.tv_sec - p->last.tv_sec) + (double)(now.tv_nsec - p->last.tv_nsec) * 1e-9;
    if (passed < 0.1) return;
    p->last = now;
    p->shown = 1;
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    fprintf(stderr, "\r%79s\rreading ", "");
    print_clean(stderr, name, 40);
    fprintf(stderr, " %5.1f of %.1f MB", (double)done / 1e6, (double)total / 1e6);
    fflush(stderr);
}

void profile_watch(qn_profile_options *options, profile_progress *p) {
    memset(p, 0, sizeof *p);
    if (isatty(STDERR_FILENO)) {
        options->progress = show_progress;
        options->progress_user = p;
    }
    options->cancel = &interrupted;
    app_catch_end(on_interrupt, (int)SA_RESETHAND); /* a second Ctrl-C ends the program */
}
