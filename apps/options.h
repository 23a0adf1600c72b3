/* The words of the quern command: a table for each verb says which there are, what they mean and where they go. The parser goes by it,
 * and so do --help, the man page and the completion of shells, which can therefore not differ from what a verb takes. */
#ifndef QN_APPS_OPTIONS_H
#define QN_APPS_OPTIONS_H

#include <stddef.h>
#include <stdio.h>

/* Places for what was given. They begin as zeros; a place of text may begin with its default. */
typedef struct option_maybe { /* --name or --name=ARGUMENT */
    int given;
    const char *argument;
} option_maybe;
typedef struct option_choice { /* of options that share the place one may be given: its name, as it was written */
    const char *name;
} option_choice;
enum { OPTION_MANY = 64 };
typedef struct option_many { /* may be given again: each argument */
    const char *at[OPTION_MANY];
    int n;
} option_many;

typedef enum option_kind { OPTION_IS_FLAG, OPTION_IS_TEXT, OPTION_IS_MAYBE, OPTION_IS_CHOICE, OPTION_IS_MANY } option_kind;

/* One row. Rows whose names have no dash are words by their place: the first such row takes the first word, and so on. */
typedef struct option_row {
    const char *names;                /* "-p, --prompt"; "FILE". An underscore is a dash, also on the command line. */
    const char *argument;             /* "TEXT", or all there are: "md|csv|json". NULL: takes none */
    option_kind kind;                 /* OPTION finds it by the type of the place */
    size_t at;                        /* of the place in the words of its group */
    const char *help;                 /* what it does; NULL: the usage shows it, as the words by their place */
    const char *standard;             /* its default as C writes it, "0.8f"; NULL: there is none, or the help tells it */
    const char *files;                /* its argument is a file with this ending, "gguf"; "*": any file; "/": a folder */
    const char *(*choices)(int item); /* its argument is one of these, NULL behind the last; shown by completion */
    int once; /* a second one that says something else is an error; without, the last one counts, which is said */
} option_row;

/* A row of the place `field` in the words `type`; behind the names and the argument: the help, then others by name, as .files = "gguf". */
#define OPTION(type, field, shown, takes, ...)                                                                         \
    {                                                                                                                  \
        .names = (shown), .argument = (takes),                                                                       \
        .kind = _Generic(((type *)0)->field, int                                                                     \
                         : OPTION_IS_FLAG, const char *                                                              \
                         : OPTION_IS_TEXT, option_maybe                                                              \
                         : OPTION_IS_MAYBE, option_choice                                                            \
                         : OPTION_IS_CHOICE, option_many                                                             \
                         : OPTION_IS_MANY),                                                                          \
        .at = offsetof(type, field), .help = __VA_ARGS__ \
    }

typedef struct option_group {
    const char *title;      /* of help; NULL: none */
    const option_row *rows; /* a row without names is behind the last */
    size_t at;              /* of the group's words in those of the verb */
} option_group;

typedef struct quern_verb quern_verb;
struct quern_verb {
    const char *name;                                          /* as it is called: "run", "bench ops" */
    const char *who;                                           /* before its complaints; NULL: "quern NAME" */
    const char *brief;                                         /* what it does, in a few words */
    int (*run)(const quern_verb *self, int argc, char **argv); /* argv[0] is the last word of the name */
    const char *usage;             /* what may stand behind the name; several lines are several ways to call it */
    const char *about;             /* paragraphs, lines of any length */
    const option_group *groups;    /* one without rows is behind the last */
    void (*more)(FILE *to);        /* what only other tables know, behind the options; NULL: nothing */
    const quern_verb *const *subs; /* verbs of its own, by their last word; NULL behind the last, and where there are none */
    const char *needs;             /* the part of a build without which it can do nothing; NULL: none */
};

/* Sorts the words behind the verb into their places. APP_OK; APP_USAGE when all has been said. */
int options_read(const quern_verb *v, int argc, char **argv, void *words);
/* "WHO: what is wrong with 'word'; 'quern NAME --help' says more": the exit code for a wrong call. `before` and `after` go around. */
int options_wrong(const quern_verb *v, const char *before, const char *word, const char *after);
/* Whether --help or -h is among the words, and not as the argument of another. */
int options_ask_help(const quern_verb *v, int argc, char **argv);

/* How well a row is known by a word: the row that has the name, of `length` characters; NULL: none. *group is the row's. */
const option_row *options_find(const quern_verb *v, const char *name, size_t length, const option_group **group);
/* The names of a row one by one: at the first call *at is row->names. Returns the length, 0 behind the last. */
size_t options_name(const char **at, const char **name);
/* What a row does, and its default if that is not told there. */
void options_help_of(const option_row *row, char *text, size_t size);
int options_has_help(const option_group *group); /* any of its rows; the others are shown by the usage alone */
/* A name as it is shown: with dashes. */
void options_show_name(FILE *to, const char *name, size_t length);
int option_is_word(const option_row *row); /* by its place */

/* The verb of a word, in a list that ends with NULL; NULL: there is none. */
const quern_verb *verb_find(const quern_verb *const *list, const char *word);
const char *verb_last_word(const quern_verb *v);

/* Help, the man page, the completion (options_help.c, options_man.c, options_bash.c). */
void verb_help(FILE *to, const quern_verb *v);
void verbs_man(FILE *to, const quern_verb *const *verbs);
void verbs_bash(FILE *to, const quern_verb *const *verbs);

extern const quern_verb *const app_verbs[]; /* quern.c */

#endif
