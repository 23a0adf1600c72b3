/* What the verbs of quern profile share: the options that say how traces are read, progress, Ctrl-C, and how they complain. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app.h"
#include "profile_cmd.h"

const char profile_reading_help[] =
    "  --dialect upstream|mlu_a|mlu_b\n"
    "                      whose rules; else by what the trace holds\n"
    "  --strict-reference  refuse what the reference refuses\n"
    "  --driver            calls of cuda_driver launch kernels too (Triton, compiled code)\n"
    "  --owner id|time|enclosing\n"
    "                      whose a runtime call is: the operator's with its id (the rule); the innermost operator's around it,\n"
    "                      whatever its id says (PyTorch 2.1 and later); or that of the last event around it with an id, which\n"
    "                      is how torch_mlu's edition for PyTorch 2.1 mends GPU traces\n"
    "  --host-steps        steps marked on device tracks are no steps\n"
    "  --comm-names        kernels named like NCCL's or CNCL's are communication\n";

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

int profile_asks_for_help(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) return 1;
    return 0;
}

/* ---- Options ------------------------------------------------------------------------------------------------------ */

/* The value of an option that was given, which is remembered: one that comes again with another is said. A command line is read once
 * in a process, and has no more kinds of options than there is room for. */
static const char *given(const char *name, const char *value) {
    static struct { const char *name, *value; } before[32];
    size_t k = 0;
    while (k + 1 < sizeof before / sizeof *before && before[k].name && strcmp(before[k].name, name) != 0) k++;
    if (before[k].name && strcmp(before[k].name, name) == 0) app_again("quern profile", name, before[k].value, value);
    before[k].name = name;
    before[k].value = value;
    return value;
}

const char *profile_value_of(const char *name, int argc, char **argv, int *i, int *missing) {
    size_t n = strlen(name);
    if (strncmp(argv[*i], name, n) != 0) return NULL;
    if (argv[*i][n] == '=') return given(name, argv[*i] + n + 1);
    if (argv[*i][n] != 0) return NULL;
    if (*i + 1 >= argc) {
        *missing = 1;
        return NULL;
    }
    return given(name, argv[++*i]);
}

static int take_flag(qn_profile_options *options, const char *word) {
    static const struct {
        const char *name;
        uint32_t flag;
    } flags[] = {{"--strict-reference", QN_PROFILE_STRICT},
                 {"--driver", QN_PROFILE_DRIVER},
                 {"--host-steps", QN_PROFILE_HOST_STEPS},
                 {"--comm-names", QN_PROFILE_COMM_NAMES}};
    for (size_t k = 0; k < sizeof flags / sizeof *flags; k++)
        if (strcmp(word, flags[k].name) == 0) {
            options->flags |= flags[k].flag;
            return 1;
        }
    return 0;
}

static int index_of(const char *word, const char *const *words, int n) {
    for (int k = 0; k < n; k++)
        if (strcmp(word, words[k]) == 0) return k;
    return -1;
}

int profile_take_reading(qn_profile_options *options, const char *verb, int argc, char **argv, int *i, int *missing) {
    static const char *const dialects[] = {"auto", "upstream", "mlu_a", "mlu_b"}, *const owners[] = {"id", "time", "enclosing"};
    static const uint32_t owner_flags[] = {0, QN_PROFILE_OWNER_TIME, QN_PROFILE_OWNER_ENCLOSING};
    const char *value;
    if (take_flag(options, argv[*i])) return APP_OK;
    if ((value = profile_value_of("--dialect", argc, argv, i, missing)) != NULL) {
        int k = index_of(value, dialects, 4);
        if (k < 0) return profile_wrong(verb, "there is no dialect '%s': upstream, mlu_a or mlu_b", value);
        options->dialect = (qn_profile_dialect)k;
        return APP_OK;
    }
    if ((value = profile_value_of("--owner", argc, argv, i, missing)) != NULL) {
        int k = index_of(value, owners, 3);
        if (k < 0) return profile_wrong(verb, "there is no owner '%s': id, time or enclosing", value);
        options->flags &= ~(QN_PROFILE_OWNER_TIME | QN_PROFILE_OWNER_ENCLOSING);
        options->flags |= owner_flags[k];
        return APP_OK;
    }
    return PROFILE_NOT_MINE;
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
