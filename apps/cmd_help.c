/* quern help: of a verb, or all of it as a man page or for a shell. */
#include <stdio.h>
#include <string.h>

#include "app.h"

typedef struct help_words {
    const char *verb, *sub;
    int man, bash;
} help_words;

static const char *verb_name(int i) { return app_verbs[i] ? app_verbs[i]->name : NULL; }

static const option_row rows[] = {
    OPTION(help_words, verb, "VERB", NULL, "what to tell of: a verb", .choices = verb_name),
    OPTION(help_words, sub, "SUB", NULL, "and the verb behind it, as in quern help bench ops"),
    OPTION(help_words, man, "--man", NULL, "print the man page, for man -l -"),
    OPTION(help_words, bash, "--bash-completion", NULL, "print what bash completes by: source <(quern help --bash-completion)"),
    {0}};
static const option_group groups[] = {{NULL, rows, 0}, {0}};

static int run(const quern_verb *self, int argc, char **argv) {
    help_words w = {0};
    int rc = options_read(self, argc, argv, &w);
    if (rc != APP_OK) return rc;
    if (w.man && w.bash) return app_apart("quern help", "--man", "--bash-completion");
    if (w.verb && (w.man || w.bash)) return app_apart("quern help", w.verb, w.man ? "--man" : "--bash-completion");
    if (w.man) return verbs_man(stdout, app_verbs), APP_OK;
    if (w.bash) return verbs_bash(stdout, app_verbs), APP_OK;
    if (!w.verb) return app_usage(stdout), APP_OK;
    const quern_verb *v = verb_find(app_verbs, w.verb);
    if (!v) return app_no_verb("quern help", app_verbs, w.verb, "quern help");
    const quern_verb *sub = w.sub ? verb_find(v->subs, w.sub) : v;
    char lister[64];
    snprintf(lister, sizeof lister, "quern help %s", v->subs ? v->name : "");
    if (!sub) return app_no_verb("quern help", v->subs, w.sub, lister);
    verb_help(stdout, sub);
    return APP_OK;
}

const quern_verb verb_help_of = {.name = "help",
                                 .brief = "tell about a verb",
                                 .run = run,
                                 .usage = "[VERB [SUB]]\n--man\n--bash-completion",
                                 .about = "Tells what a verb does and which options it takes; without one, lists the verbs.",
                                 .groups = groups};
