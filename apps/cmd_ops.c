/* quern ops: the op table, for people and for machines. */
#include <stdio.h>
#include <strings.h>

#include "app.h"

static const char
    help[] = "usage: quern ops [NAME] [--json | --markdown | --mermaid[=full]]\n"
             "       quern ops --seed LIST [--markdown]\n\n"
             "Lists every op of the table: family, inputs, attributes, dtypes, gradient, backends.\n\n"
             "  NAME            the page of one op\n"
             "  --json          everything, or the one op, for machines\n"
             "  --markdown      the text of docs/ops.md\n"
             "  --mermaid       the dispatcher's state machine, as the diagram of the 94 seed ops\n"
             "  --mermaid=full  the same for every op, with guards and actions named\n"
             "  --seed LIST     emel, mlx, rlx, rlx_steps, rlx_more or all: the names of a list and what serves each\n";

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

int cmd_ops(int argc, char **argv) {
    const char *name = NULL, *form = NULL, *seed = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
            fputs(help, stdout);
            return APP_OK;
        }
        if (strcmp(argv[i], "--seed") == 0) {
            if (i + 1 >= argc || seed) {
                fprintf(stderr, "quern ops: --seed takes one name of a list\n");
                return APP_USAGE;
            }
            seed = argv[++i];
            continue;
        }
        const char **slot = argv[i][0] == '-' ? &form : &name;
        if (*slot) return app_apart("quern ops", *slot, argv[i]);
        *slot = argv[i];
    }
    if (seed) return print_seed(seed, name, form);
    if (name) return print_one(name, form);
    if (!form) {
        ops_print_list();
    } else if (strcmp(form, "--json") == 0) {
        ops_print_json();
    } else if (strcmp(form, "--markdown") == 0) {
        ops_print_markdown();
    } else if (strcmp(form, "--mermaid") == 0) {
        ops_print_mermaid(0);
    } else if (strcmp(form, "--mermaid=full") == 0) {
        ops_print_mermaid(1);
    } else {
        fprintf(stderr, "quern ops: there is no option '%s'; 'quern ops --help' lists them\n", form);
        return APP_USAGE;
    }
    return APP_OK;
}
