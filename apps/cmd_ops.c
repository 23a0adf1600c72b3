/* quern ops: the op table, for people and for machines. */
#include <stdio.h>
#include <strings.h>

#include "app.h"

static const char *name_of_op(const void *user, int op) {
    (void)user;
    return op < QN_OP_COUNT ? qn_op_describe(op)->name : NULL;
}

/* The ops that have it as a sub-op, behind a semicolon, but for those that derivatives are made of; how many there are. */
static int name_owners(const char *name) {
    int n = 0;
    for (int op = 0; op < QN_OP_COUNT; op++) {
        const char *owner = qn_op_describe(op)->name;
        if (strstr(owner, "_back") || strstr(owner, "_tangent")) continue;
        for (int s = 0; s < qn_subop_count(op); s++)
            if (strcasecmp(name, qn_subop_name(op, s)) == 0)
                fprintf(stderr, "%s'%s'", n++ ? ", " : "; it is a sub-op of ", owner);
    }
    return n;
}

static int unknown_op(const char *name) {
    int near;
    fprintf(stderr, "quern ops: there is no op '%s'", name);
    if (!name_owners(name) && qn_nearest_names(name, name_of_op, NULL, &near, 1))
        fprintf(stderr, "; did you mean '%s'?", qn_op_describe(near)->name);
    fprintf(stderr, "\n");
    return APP_USAGE;
}

static int print_one(const char *name, const char *form) {
    int op = qn_op_from_name(name);
    if (op < 0) return unknown_op(name);
    if (form && strcmp(form, "--json") != 0) {
        fprintf(stderr, "quern ops: %s is for the whole table, not for one op\n", form);
        return APP_USAGE;
    }
    if (!form) {
        ops_print_page(op);
        return APP_OK;
    }
    ops_print_json_op(op);
    printf("\n");
    return APP_OK;
}

static int print_seed(const char *seed, const char *name, const char *form) {
    if (name || (form && strcmp(form, "--markdown") != 0)) return app_apart("quern ops", "--seed", name ? name : form);
    return ops_print_seed(seed, form != NULL);
}

typedef struct ops_words {
    const char *name, *seed;
    option_choice form;
} ops_words;

static const char *op_name(int op) { return op < QN_OP_COUNT ? qn_op_describe(op)->name : NULL; }

static const option_row rows[] = {
    OPTION(ops_words, name, "NAME", NULL, "print the page of this op", .choices = op_name),
    OPTION(ops_words, form, "--json", NULL, "print everything, or the one op, for machines"),
    OPTION(ops_words, form, "--markdown", NULL, "print the text of docs/ops.md"),
    OPTION(ops_words, form, "--mermaid", "full",
           "print the dispatcher's state machine, as the diagram of the 94 seed ops; or in full, for "
           "every op, with guards and actions named"),
    OPTION(
        ops_words, seed, "--seed", "emel|mlx|rlx|rlx_steps|rlx_more|all",
        "print the names of a list of another project's ops, and what serves each; with --markdown, the text of docs/families.md",
        .once = 1),
    {0}};
static const option_group groups[] = {{NULL, rows, 0}, {0}};

static int run(const quern_verb *self, int argc, char **argv) {
    ops_words w = {0};
    int rc = options_read(self, argc, argv, &w);
    const char *form = w.form.name;
    if (rc != APP_OK) return rc;
    if (w.seed) return print_seed(w.seed, w.name, form);
    if (w.name) return print_one(w.name, form);
    if (!form) ops_print_list();
    else if (strcmp(form, "--json") == 0) ops_print_json();
    else if (strcmp(form, "--markdown") == 0) ops_print_markdown();
    else if (strcmp(form, "--mermaid") == 0) ops_print_mermaid(0);
    else if (strcmp(form, "--mermaid=full") == 0) ops_print_mermaid(1);
    else return options_wrong(self, "there is no diagram ", form, "");
    return APP_OK;
}

const quern_verb verb_ops = {.name = "ops",
                             .brief = "list the ops, or print the page of one",
                             .run = run,
                             .usage = "[NAME] [--json | --markdown | --mermaid[=full]]\n--seed LIST [--markdown]",
                             .about = "Lists every op of the table: family, inputs, attributes, dtypes, gradient, backends.",
                             .groups = groups};
