/* The man page quern(1), from the tables of all verbs. */
#include <quern/quern.h>
#include <string.h>

#include "options.h"

/* A text as troff reads it: no control line, no escape, dashes that can be copied, and no line too long for an editor. */
static void print_text(FILE *to, const char *text) {
    enum { LONG = 60 };
    int column = 0;
    for (; *text; text++) {
        if (!column && (*text == '.' || *text == '\'')) fputs("\\&", to);
        column++;
        switch (*text) {
        case '\\': fputs("\\e", to); break;
        case '-': fputs("\\-", to); break;
        case '\'': fputs("\\(aq", to); break;
        case '`': fputs("\\(ga", to); break;
        case '^': fputs("\\(ha", to); break;
        case '~': fputs("\\(ti", to); break;
        case ' ':
            if (column <= LONG) {
                fputc(' ', to);
                break;
            } /* falls through */
        case '\n': fputc('\n', to), column = 0; break;
        default: fputc(*text, to);
        }
    }
    fputc('\n', to);
}

/* Paragraphs: what stands on a line of its own. */
static void print_paragraphs(FILE *to, const char *text) {
    char line[1024];
    while (*text) {
        size_t n = strcspn(text, "\n");
        if (n) {
            snprintf(line, sizeof line, "%.*s", (int)n, text);
            fputs(".PP\n", to);
            print_text(to, line);
        }
        text += n + (text[n] == '\n');
    }
}

static void print_row(FILE *to, const option_row *row) {
    const char *at = row->names, *name;
    char text[512];
    int first = 1, optional = row->kind == OPTION_IS_MAYBE || row->kind == OPTION_IS_CHOICE;
    fputs(".TP\n", to);
    for (size_t n; (n = options_name(&at, &name)) != 0; first = 0) {
        fputs(first ? "\\fB" : ", \\fB", to);
        for (size_t i = 0; i < n; i++) fputs(name[i] == '-' || name[i] == '_' ? "\\-" : (char[]){name[i], 0}, to);
        fputs("\\fR", to);
    }
    if (row->argument) fprintf(to, optional ? "[=\\fI%s\\fR]" : " \\fI%s\\fR", row->argument);
    fputc('\n', to);
    options_help_of(row, text, sizeof text);
    print_text(to, text);
}

static void print_usage(FILE *to, const quern_verb *v) {
    char line[512];
    for (const char *at = v->usage;; at++) { /* lines of one paragraph */
        size_t n = strcspn(at, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, at);
        fprintf(to, "%s\\fBquern %s\\fR\n", at == v->usage ? "" : ".br\n", v->name);
        if (n) print_text(to, line);
        at += n;
        if (!*at) return;
    }
}

/* The first verb with these rows: where they are told. */
static const quern_verb *teller_of(const quern_verb *const *verbs, const option_row *rows) {
    for (int i = 0; verbs && verbs[i]; i++) {
        for (const option_group *g = verbs[i]->groups; g->rows; g++)
            if (g->rows == rows) return verbs[i];
        const quern_verb *sub = teller_of(verbs[i]->subs, rows);
        if (sub) return sub;
    }
    return NULL;
}

static void print_verb(FILE *to, const quern_verb *const *all, const quern_verb *v) {
    fprintf(to, ".SS quern %s\n", v->name);
    print_usage(to, v);
    print_paragraphs(to, v->about);
    for (const option_group *g = v->groups; g->rows; g++) {
        const quern_verb *teller = teller_of(all, g->rows);
        if (!options_has_help(g)) continue;
        if (g->title)
            fprintf(to, ".PP\n\\fI%s\\fR%s%s\n", g->title, teller == v ? "" : ": as for quern ", teller == v ? "" : teller->name);
        for (const option_row *row = g->rows; row->names && teller == v; row++)
            if (row->help) print_row(to, row);
    }
    for (int i = 0; v->subs && v->subs[i]; i++) print_verb(to, all, v->subs[i]);
}

static const char *const variables[][2] = {
    {"QUERN_PROFILE", "a folder: verbs that compute record a trace into it, as with --profile"},
    {"QUERN_CPU", "levels of kernels that may run, such as avx2,c; none leaves the references"},
    {"QUERN_CACHE", "the folder in which compiled Vulkan shaders are kept, else quern in XDG_CACHE_HOME or ~/.cache"},
    {"COLUMNS", "how wide the tables of quern profile may be where standard output is no terminal"},
};

void verbs_man(FILE *to, const quern_verb *const *verbs) {
    fprintf(to,
            ".\\\" Made by quern help \\-\\-man.\n.TH QUERN 1 \"\" \"quern %s\" \"User Commands\"\n.SH NAME\n"
            "quern \\- tensor runtime: language models, graphs, training and a profiler\n"
            ".SH SYNOPSIS\n.B quern\n.I VERB\n[\\fIoptions\\fR]\n.br\n.B quern help\n[\\fIVERB\\fR]\n.SH DESCRIPTION\n"
            "Results go to standard output, everything else to standard error. The verbs:\n",
            qn_version());
    for (int i = 0; verbs[i]; i++) {
        fprintf(to, ".TP\n.B %s\n", verbs[i]->name);
        print_text(to, verbs[i]->brief);
    }
    fputs(".SH VERBS\n", to);
    for (int i = 0; verbs[i]; i++) print_verb(to, verbs, verbs[i]);
    fputs(".SH EXIT STATUS\n.TP\n.B 0\nIt is done.\n.TP\n.B 1\nSomething failed while it ran; a sentence says what.\n"
          ".TP\n.B 2\nIt was called wrongly, and nothing was done.\n.TP\n.B 130\nIt was interrupted.\n.SH ENVIRONMENT\n",
          to);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        fprintf(to, ".TP\n.B %s\n", variables[i][0]);
        print_text(to, variables[i][1]);
    }
    fputs(".SH EXAMPLES\nTell a tale, and look at where the time went:\n.PP\n.nf\n.RS\n"
          "quern run \\-m model.gguf \\-p \"Once upon a time\" \\-n 100 \\-\\-profile=trace\n"
          "quern profile html trace \\-o trace.html\n.RE\n.fi\n.PP\nWhat would it allocate, with 8 sequences of 4096 tokens?\n"
          ".PP\n.nf\n.RS\nquern plan \\-m model.gguf \\-c 4096 \\-np 8\n.RE\n.fi\n",
          to);
}
