/* The parser of the command line, which knows what the tables of the verbs say. */
#include "options.h"

#include <string.h>

#include "app.h"

/* ---- Rows and their names */

int option_is_word(const option_row *row) { return row->names[0] != '-'; }

size_t options_name(const char **at, const char **name) {
    *at += strspn(*at, ", ");
    size_t length = strcspn(*at, ", ");
    *name = *at;
    *at += length;
    return length;
}

void options_show_name(FILE *to, const char *name, size_t length) {
    for (size_t i = 0; i < length; i++) fputc(name[i] == '_' ? '-' : name[i], to);
}

void options_help_of(const option_row *row, char *text, size_t size) {
    const char *number = row->standard ? row->standard : "";
    size_t length = strlen(number), shown = length && number[length - 1] == 'f' ? length - 1 : length;
    if (shown > 2 && memcmp(number + shown - 2, ".0", 2) == 0) shown -= 2;
    snprintf(text, size, length ? "%s (default %.*s)" : "%s", row->help, (int)shown, number);
}

int options_has_help(const option_group *group) {
    for (const option_row *row = group->rows; row->names; row++)
        if (row->help) return 1;
    return 0;
}

static int is_name(const char *row, const char *word, size_t length) {
    for (size_t i = 0; i < length; i++)
        if ((row[i] == '_' ? '-' : row[i]) != (word[i] == '_' ? '-' : word[i])) return 0;
    return 1;
}

const option_row *options_find(const quern_verb *v, const char *name, size_t length, const option_group **group) {
    for (*group = v->groups; (*group)->rows; ++*group)
        for (const option_row *row = (*group)->rows; row->names; row++) {
            const char *at = row->names, *one;
            for (size_t n; (n = options_name(&at, &one)) != 0;)
                if (!option_is_word(row) && n == length && is_name(one, name, n)) return row;
        }
    return NULL;
}

/* The row of the next word without a dash: one whose place is free, or has room. */
static const option_row *next_word(const quern_verb *v, int number, const option_group **group) {
    for (*group = v->groups; (*group)->rows; ++*group)
        for (const option_row *row = (*group)->rows; row->names; row++)
            if (option_is_word(row) && (row->kind == OPTION_IS_MANY || number-- == 0)) return row;
    return NULL;
}

/* ---- Complaints */

static int complain(const quern_verb *v, const char *before, const char *word, const char *after, const char *near) {
    if (v->who) fprintf(stderr, "%s: ", v->who);
    else fprintf(stderr, "quern %s: ", v->name);
    fprintf(stderr, "%s'%s'%s", before, word, after);
    if (near) {
        fputs("; did you mean '", stderr);
        options_show_name(stderr, near, strcspn(near, ", "));
        fputs("'?", stderr);
    }
    fprintf(stderr, "%s 'quern %s --help' says more\n", near ? "" : ";", v->name);
    return APP_USAGE;
}

int options_wrong(const quern_verb *v, const char *before, const char *word, const char *after) {
    return complain(v, before, word, after, NULL);
}

/* The names of a verb's options by number, for qn_nearest_names; each is a text of its own until the next is asked for. */
typedef struct name_list {
    const quern_verb *verb;
    char *name;
    size_t room;
} name_list;

static const char *name_of_option(const void *user, int i) {
    const name_list *list = user;
    for (const option_group *g = list->verb->groups; g->rows; g++)
        for (const option_row *row = g->rows; row->names; row++) {
            const char *at = row->names, *one;
            for (size_t n; !option_is_word(row) && (n = options_name(&at, &one)) != 0;)
                if (i-- == 0) return snprintf(list->name, list->room, "%.*s", (int)n, one), list->name;
        }
    return NULL;
}

static int no_option(const quern_verb *v, const char *word, size_t length) {
    char wrong[64], name[64];
    name_list list = {v, name, sizeof name};
    int near;
    snprintf(wrong, sizeof wrong, "%.*s", (int)(length < sizeof wrong ? length : sizeof wrong - 1), word);
    int any = qn_nearest_names(wrong, name_of_option, &list, &near, 1);
    return complain(v, "there is no option ", word, "", any ? name_of_option(&list, near) : NULL);
}

/* ---- Places */

/* What was understood so far. */
enum { MOST_ROWS = 256, NAME_ROOM = 64 };
typedef struct understood {
    const quern_verb *verb;
    void *words;
    char given[MOST_ROWS]; /* by row: its place holds an argument of the command line, not one that stood there before */
} understood;

static int number_of(const quern_verb *v, const option_row *wanted) {
    int n = 0;
    for (const option_group *g = v->groups; g->rows; g++)
        for (const option_row *row = g->rows; row->names; row++, n++)
            if (row == wanted) return n;
    return n;
}

static const char *who(const quern_verb *v, char room[NAME_ROOM]) {
    snprintf(room, NAME_ROOM, "quern %s", v->name);
    return v->who ? v->who : room;
}

/* Whether the row may have this argument, after the one before, if there was one: it is the last that counts, which is said. */
static int may_replace(understood *u, const option_row *row, const char *name, const char *before, const char *now) {
    char room[NAME_ROOM];
    int n = number_of(u->verb, row), again = n < MOST_ROWS && u->given[n];
    if (n < MOST_ROWS) u->given[n] = 1;
    if (!again) return APP_OK;
    if (row->once && strcmp(before, now) != 0) return app_apart(who(u->verb, room), before, now);
    app_again(who(u->verb, room), name, before ? before : "", now ? now : "");
    return APP_OK;
}

static int keep_text(understood *u, const option_row *row, const char *name, const char *argument, const char **place) {
    int rc = may_replace(u, row, name, *place, argument);
    *place = argument;
    return rc;
}

static int keep_maybe(understood *u, const option_row *row, const char *name, const char *argument, option_maybe *place) {
    int rc = may_replace(u, row, name, place->argument, argument);
    *place = (option_maybe){1, argument};
    return rc;
}

static int keep_choice(const understood *u, const char *word, option_choice *place) {
    char room[NAME_ROOM];
    if (place->name && strcmp(place->name, word) != 0) return app_apart(who(u->verb, room), place->name, word);
    place->name = word;
    return APP_OK;
}

static int keep_another(const understood *u, const char *name, const char *argument, option_many *place) {
    if (place->n == OPTION_MANY) return options_wrong(u->verb, "more values than there is room for: ", name, "");
    place->at[place->n++] = argument;
    return APP_OK;
}

/* `word` is what was written, `name` the part of it before an argument. */
static int keep(understood *u, const option_group *group, const option_row *row, const char *word, const char *name,
                const char *argument) {
    char *place = (char *)u->words + group->at + row->at;
    switch (row->kind) {
    case OPTION_IS_FLAG: *(int *)(void *)place = 1; return APP_OK;
    case OPTION_IS_TEXT: return keep_text(u, row, name, argument, (const char **)(void *)place);
    case OPTION_IS_MAYBE: return keep_maybe(u, row, name, argument, (option_maybe *)(void *)place);
    case OPTION_IS_CHOICE: return keep_choice(u, word, (option_choice *)(void *)place);
    default: return keep_another(u, name, argument, (option_many *)(void *)place);
    }
}

static int takes_argument(const option_row *row) { return row->kind == OPTION_IS_TEXT || row->kind == OPTION_IS_MANY; }

/* ---- The walk over the words */

/* One option, at argv[*i], and perhaps the word behind it. */
static int take_option(understood *u, int argc, char **argv, int *i) {
    const char *word = argv[*i], *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : strlen(word);
    char name[NAME_ROOM];
    const option_group *group;
    const option_row *row = options_find(u->verb, word, length, &group);
    if (!row) return no_option(u->verb, word, length);
    const char *argument = equals ? equals + 1 : NULL;
    snprintf(name, sizeof name, "%.*s", (int)length, word);
    if (equals && !row->argument) return options_wrong(u->verb, "", name, " takes no value");
    if (!equals && takes_argument(row)) {
        if (*i + 1 >= argc) return options_wrong(u->verb, "", word, " needs something behind it");
        argument = argv[++*i];
    }
    return keep(u, group, row, word, name, argument);
}

int options_read(const quern_verb *v, int argc, char **argv, void *words) {
    understood u = {.verb = v, .words = words};
    int n_words = 0, only_words = 0;
    for (int i = 1; i < argc; i++) {
        int rc = APP_OK;
        const option_group *group;
        if (!only_words && strcmp(argv[i], "--") == 0) {
            only_words = 1;
        } else if (!only_words && argv[i][0] == '-' && argv[i][1]) {
            rc = take_option(&u, argc, argv, &i);
        } else {
            const option_row *row = next_word(v, n_words++, &group);
            rc = row ? keep(&u, group, row, argv[i], row->names, argv[i]) : options_wrong(v, "what is ", argv[i], " for");
        }
        if (rc != APP_OK) return rc;
    }
    return APP_OK;
}

int options_ask_help(const quern_verb *v, int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const option_group *group;
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) return 1;
        const option_row *row = argv[i][0] == '-' ? options_find(v, argv[i], strlen(argv[i]), &group) : NULL;
        i += row && takes_argument(row);
    }
    return 0;
}

/* ---- Verbs */

const char *verb_last_word(const quern_verb *v) { return strrchr(v->name, ' ') ? strrchr(v->name, ' ') + 1 : v->name; }

const quern_verb *verb_find(const quern_verb *const *list, const char *word) {
    for (; list && *list; list++)
        if (strcmp(verb_last_word(*list), word) == 0) return *list;
    return NULL;
}
