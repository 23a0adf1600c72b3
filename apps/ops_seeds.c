/* The lists of the systems Quern came from, name by name, with what serves each name here and which backends have kernels for
 * it. The lists are tables in include/quern/seeds; whether their words name anything is found out here, from the op table. */
#include <quern/graph.h>
#include <stdio.h>

#include "app.h"

typedef struct seed_row {
    const char *name, *serves, *note;
    int open;
} seed_row;

typedef struct seed_list {
    const char *name, *title;
    int promised, n;
    const seed_row *rows;
} seed_list;

#define QN_SEED(name, serves, note) {#name, serves, note, 0},
#define QN_SEED_OPEN(name, why) {#name, "", why, 1},
static const seed_row rows_emel[] = {
#include <quern/seeds/emel.def>
};
static const seed_row rows_mlx[] = {
#include <quern/seeds/mlx.def>
};
static const seed_row rows_rlx[] = {
#include <quern/seeds/rlx.def>
};
static const seed_row rows_rlx_steps[] = {
#include <quern/seeds/rlx_steps.def>
};
static const seed_row rows_rlx_more[] = {
#include <quern/seeds/rlx_more.def>
};

#define QN_SEED_LIST(list, count, title) {#list, title, count, (int)(sizeof rows_##list / sizeof rows_##list[0]), rows_##list},
static const seed_list lists[] = {
#include <quern/seeds/seeds.def>
};
enum { LISTS = (int)(sizeof lists / sizeof lists[0]), WORD = 80 };

/* The next word of a text into word[WORD], and what is behind it; NULL when there is none. */
static const char *next_word(const char *text, char *word) {
    size_t n;
    text += strspn(text, " ");
    n = strcspn(text, " ");
    if (n == 0) return NULL;
    if (n >= WORD) n = WORD - 1;
    memcpy(word, text, n);
    word[n] = 0;
    return text + strcspn(text, " ");
}

/* The op that a word names, with or without a sub-op that it has; -1 when it names none. */
static int op_of(const char *word) {
    char name[WORD];
    const char *dot = strchr(word, '.');
    size_t n = dot ? (size_t)(dot - word) : strlen(word);
    memcpy(name, word, n);
    name[n] = 0;
    int op = qn_op_from_name(name);
    if (op < 0 || !dot) return op;
    for (int s = 0; s < qn_subop_count(op); s++)
        if (strcmp(qn_subop_name(op, s), dot + 1) == 0) return op;
    return -1;
}

static int is_pass(const char *name) {
    const char *summary;
    for (int i = 0; qn_graph_pass_name(i, &summary); i++)
        if (strcmp(qn_graph_pass_name(i, &summary), name) == 0) return 1;
    return 0;
}

static int word_resolves(const char *word) {
    if (strcmp(word, "graph") == 0 || strcmp(word, "plan") == 0) return 1;
    if (strncmp(word, "pass:", 5) == 0) return is_pass(word + 5);
    if (strncmp(word, "helper:", 7) == 0) return strncmp(word + 7, "qn_", 3) == 0;
    return op_of(word) >= 0;
}

/* Whether every word names something; the first that does not is left in bad[WORD]. */
static int row_resolves(const seed_row *row, char *bad) {
    char word[WORD];
    int words = 0;
    bad[0] = 0;
    for (const char *at = row->serves; (at = next_word(at, word)) != NULL; words++)
        if (!word_resolves(word)) {
            memcpy(bad, word, WORD);
            return 0;
        }
    return words > 0;
}

/* How much of a row's ops a backend has kernels for. */
static const char *backend_text(const seed_row *row, int backend) {
    char word[WORD];
    int ops = 0, have = 0;
    for (const char *at = row->serves; (at = next_word(at, word)) != NULL;) {
        int op = op_of(word);
        if (op < 0) continue;
        ops++;
        have += qn_op_has_kernel(op, backend);
    }
    return ops == 0 ? "" : have == ops ? "yes" : have ? "some" : "-";
}

static int count_resolved(const seed_list *list) {
    char bad[WORD];
    int n = 0;
    for (int i = 0; i < list->n; i++) n += row_resolves(&list->rows[i], bad);
    return n;
}

/* What is wrong with a list, on standard error: words that name nothing, and a count other than the promised one. */
static int check_list(const seed_list *list) {
    char bad[WORD];
    int wrong = 0;
    for (int i = 0; i < list->n; i++) {
        const seed_row *row = &list->rows[i];
        if (row->open || row_resolves(row, bad)) continue;
        fprintf(stderr, "quern ops: %s of the list %s is said to be served by '%s', which is nothing\n", row->name, list->name,
                bad);
        wrong = 1;
    }
    if (list->n != list->promised) {
        fprintf(stderr, "quern ops: the list %s has %d names, not %d\n", list->name, list->n, list->promised);
        wrong = 1;
    }
    return wrong;
}

static void print_text(const seed_list *list) {
    char bad[WORD];
    printf("%-36s %-56s", "name", "served by");
    for (int b = 0; qn_backend_name(b); b++) printf(" %-9s", qn_backend_name(b));
    printf(" note\n");
    for (int i = 0; i < list->n; i++) {
        const seed_row *row = &list->rows[i];
        printf("%-36s %-56s", row->name, row_resolves(row, bad) ? row->serves : "nothing");
        for (int b = 0; qn_backend_name(b); b++) printf(" %-9s", backend_text(row, b));
        printf(" %s\n", row->note);
    }
    printf("\n%s: %d of %d resolved\n", list->name, count_resolved(list), list->promised);
}

static void print_markdown(const seed_list *list) {
    char bad[WORD], word[WORD];
    printf("\n## %s\n\n%d of %d resolved.\n\n| name | served by |", list->title, count_resolved(list), list->promised);
    for (int b = 0; qn_backend_name(b); b++) printf(" %s |", qn_backend_name(b));
    printf(" note |\n|---|---|");
    for (int b = 0; qn_backend_name(b); b++) printf("---|");
    printf("---|\n");
    for (int i = 0; i < list->n; i++) {
        const seed_row *row = &list->rows[i];
        printf("| `%s` |", row->name);
        if (!row_resolves(row, bad)) printf(" nothing");
        else
            for (const char *at = row->serves; (at = next_word(at, word)) != NULL;) printf(" `%s`", word);
        printf(" |");
        for (int b = 0; qn_backend_name(b); b++) printf(" %s |", backend_text(row, b));
        printf(" %s |\n", row->note);
    }
}

int ops_print_seed(const char *name, int markdown) {
    int all = strcmp(name, "all") == 0, found = 0, wrong = 0;
    if (markdown && all)
        printf(
            "# Families\n\nGenerated by `quern ops --seed all --markdown` from `include/quern/seeds`; a test fails when it is "
            "stale. Each name of\nthe systems Quern came from, and what serves it: ops, sub-ops (`unary.silu`), passes that "
            "find a pattern (`pass:`),\nfunctions that write it with ops (`helper:`), or what a graph or a plan has without "
            "any op. A backend column says\nwhether all, some or none of the ops have a kernel there; what has none runs on the "
            "reference.\n");
    for (int i = 0; i < LISTS; i++) {
        if (!all && strcmp(lists[i].name, name) != 0) continue;
        if (found++ && !markdown) printf("\n");
        if (markdown) print_markdown(&lists[i]);
        else print_text(&lists[i]);
        wrong |= check_list(&lists[i]);
    }
    if (found) return wrong ? APP_FAILED : APP_OK;
    fprintf(stderr, "quern ops: there is no list '%s'; there are", name);
    for (int i = 0; i < LISTS; i++) fprintf(stderr, " %s", lists[i].name);
    fprintf(stderr, " all\n");
    return APP_USAGE;
}
