/* --help of a verb, from its table. */
#include <string.h>

#include "build_parts.h"
#include "options.h"

enum { WIDTH = 100, COLUMN = 28 };

/* A text in lines of at most WIDTH, from `column` on, where the first begins. Its own line ends stay. */
static void print_wrapped(FILE *to, const char *text, int column) {
    int at = column;
    while (*text) {
        size_t n = strcspn(text, " \n"), blanks = strspn(text + n, " ");
        if (at > column && at + 1 + (int)n > WIDTH) {
            fprintf(to, "\n%*s", column, "");
            at = column;
        }
        at += fprintf(to, "%s%.*s", at > column && n ? " " : "", (int)n, text);
        text += n + blanks;
        for (; *text == '\n'; text++, at = column) fprintf(to, "\n%*s", text[1] != '\n' && text[1] ? column : 0, "");
    }
    fputc('\n', to);
}

/* "-p, --prompt TEXT"; returns the columns it took. */
static int print_names(FILE *to, const option_row *row) {
    const char *at = row->names, *name;
    int column = 0, optional = row->kind == OPTION_IS_MAYBE || row->kind == OPTION_IS_CHOICE;
    for (size_t n; (n = options_name(&at, &name)) != 0; column += (int)n) {
        if (column) column += fprintf(to, ", ");
        options_show_name(to, name, n);
    }
    if (row->argument) column += fprintf(to, optional ? "[=%s]" : " %s", row->argument);
    return column;
}

static void print_row(FILE *to, const option_row *row) {
    char text[512];
    options_help_of(row, text, sizeof text);
    fputs("  ", to);
    int column = 2 + print_names(to, row);
    if (column + 2 > COLUMN) fprintf(to, "\n%*s", COLUMN, "");
    else fprintf(to, "%*s", COLUMN - column, "");
    print_wrapped(to, text, COLUMN);
}

static void print_usage(FILE *to, const quern_verb *v) {
    const char *line = v->usage, *before = "usage:";
    for (;; line++) {
        size_t n = strcspn(line, "\n");
        fprintf(to, "%s quern %s%s%.*s\n", before, v->name, n ? " " : "", (int)n, line);
        before = "      ";
        line += n;
        if (!*line) return;
    }
}

void verb_help(FILE *to, const quern_verb *v) {
    const char *why = v->needs ? build_lacks_why(v->needs) : NULL;
    print_usage(to, v);
    fputc('\n', to);
    print_wrapped(to, v->about, 0);
    if (why) fprintf(to, "\nThis build has no %s: %s.\n", v->needs, why);
    for (int i = 0; v->subs && v->subs[i]; i++) {
        if (i == 0) fputc('\n', to);
        fprintf(to, "  %-*s%s\n", COLUMN - 2, v->subs[i]->name, v->subs[i]->brief);
    }
    for (const option_group *g = v->groups; g->rows; g++) {
        if (!options_has_help(g)) continue;
        fputc('\n', to);
        if (g->title) fprintf(to, "%s:\n", g->title);
        for (const option_row *row = g->rows; row->names; row++)
            if (row->help) print_row(to, row);
    }
    if (v->more) {
        fputc('\n', to);
        v->more(to);
    }
}
