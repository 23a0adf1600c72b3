/* The quern command: one binary, one verb a job. Results go to standard output, everything else to standard error. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "app.h"
#include "build_parts.h"

const quern_verb *const app_verbs[] = {&verb_run,   &verb_chat,     &verb_inspect, &verb_tokenize, &verb_embed,   &verb_eval,
                                       &verb_plan,  &verb_quantize, &verb_convert, &verb_train,    &verb_profile, &verb_bench,
                                       &verb_graph, &verb_ops,      &verb_devices, &verb_help_of,  NULL};

void app_usage(FILE *to) {
    fprintf(to, "quern %s: a tensor runtime in C\n\nusage: quern VERB [options]\n\n", qn_version());
    for (int i = 0; app_verbs[i]; i++) fprintf(to, "  %-8s %s\n", app_verbs[i]->name, app_verbs[i]->brief);
    fprintf(to, "\nquern help VERB says more. Exit codes: 0 done, 1 failed, 2 called wrongly, 130 interrupted.\n");
}

static const char *name_of_verb(const void *user, int i) {
    const quern_verb *const *list = user;
    return list && list[i] ? verb_last_word(list[i]) : NULL;
}

int app_no_verb(const char *who, const quern_verb *const *list, const char *word, const char *lister) {
    int near, any = qn_nearest_names(word, name_of_verb, list, &near, 1);
    fprintf(stderr, "%s: there is no verb '%s'", who, word);
    if (any) fprintf(stderr, "; did you mean '%s'?", name_of_verb(list, near));
    fprintf(stderr, "%s '%s' lists them\n", any ? "" : ";", lister);
    return APP_USAGE;
}

/* Of three files that a caller has closed, the next open would take the number: what is meant for people would go into the model that
 * is being written. Their places are held by what can be neither read nor written, so that using one is an error as it was. */
static int hold_standard_files(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) return 0;
    return 1;
}

/* Help comes before everything else, and what a build lacks before any other word is looked at. */
static int call(const quern_verb *v, int argc, char **argv) {
    const quern_verb *sub = argc > 1 ? verb_find(v->subs, argv[1]) : NULL;
    const char *why = v->needs ? build_lacks_why(v->needs) : NULL;
    if (sub) return call(sub, argc - 1, argv + 1);
    if (options_ask_help(v, argc, argv)) {
        verb_help(stdout, v);
        return APP_OK;
    }
    if (!why) return v->run(v, argc, argv);
    fprintf(stderr, "quern %s: this build has no %s: %s\n", v->name, v->needs, why);
    return APP_FAILED;
}

static int run(int argc, char **argv) {
    if (argc < 2) {
        app_usage(stderr);
        return APP_USAGE;
    }
    if (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0) {
        app_usage(stdout);
        return APP_OK;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        printf("quern %s\n", qn_version());
        return APP_OK;
    }
    const quern_verb *v = verb_find(app_verbs, argv[1]);
    if (v) return call(v, argc - 1, argv + 1);
    return app_no_verb("quern", app_verbs, argv[1], "quern --help");
}

int main(int argc, char **argv) {
    if (!hold_standard_files()) return APP_FAILED; /* there may be nowhere to say it */
    signal(SIGXFSZ, SIG_IGN);                      /* a file at its limit is an error of the write, which is told */
    int rc = run(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout)) return rc;
    fprintf(stderr, "quern: standard output could not be written\n");
    return APP_FAILED;
}
