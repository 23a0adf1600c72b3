/* The completion of bash, from the tables of all verbs. */
#include <ctype.h>
#include <string.h>

#include "options.h"

static const char body[] =
    "_quern_add() { # what compgen says, a line each\n"
    "    local list\n"
    "    list=$(compgen \"$@\") && mapfile -t -O ${#COMPREPLY[@]} COMPREPLY <<<\"$list\"\n"
    "}\n"
    "_quern() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} at=2 n=0 i kind rest\n"
    "    COMPREPLY=()\n"
    "    if [ \"$COMP_CWORD\" -le 1 ]; then\n"
    "        _quern_add -W \"$(_quern_subs '') --help --version\" -- \"$cur\"\n"
    "        return 0\n"
    "    fi\n"
    "    if [ \"$verb\" = help ]; then\n"
    "        rest=\"$(_quern_subs '') $(_quern_options help) --help\"\n"
    "        [ \"$COMP_CWORD\" -eq 2 ] || rest=$(_quern_subs \"${COMP_WORDS[2]}\")\n"
    "        _quern_add -W \"$rest\" -- \"$cur\"\n"
    "        return 0\n"
    "    fi\n"
    "    if [ \"$COMP_CWORD\" -gt 2 ] && [[ \" $(_quern_subs \"$verb\") \" = *\" ${COMP_WORDS[2]} \"* ]]; then\n"
    "        verb=\"$verb ${COMP_WORDS[2]}\"\n"
    "        at=3\n"
    "    fi\n"
    "    if [ \"$cur\" = = ]; then # readline cuts --name=VALUE into three words\n"
    "        cur=\n"
    "    elif [ \"$prev\" = = ]; then\n"
    "        prev=${COMP_WORDS[COMP_CWORD-2]}\n"
    "    elif [[ $cur = -* ]]; then\n"
    "        _quern_add -W \"$(_quern_options \"$verb\") --help\" -- \"$cur\"\n"
    "        return 0\n"
    "    elif [[ $prev != -* || \" $(_quern_alone \"$verb\") \" = *\" $prev \"* ]]; then\n"
    "        for ((i = at; i < COMP_CWORD; i++)); do # how many words without a dash are before this one\n"
    "            if [ \"${COMP_WORDS[i]}\" = = ]; then i=$((i + 1)); continue; fi\n"
    "            if [[ ${COMP_WORDS[i]} != -* ]]; then n=$((n + 1)); continue; fi\n"
    "            [[ ${COMP_WORDS[i+1]} = = || \" $(_quern_alone \"$verb\") \" = *\" ${COMP_WORDS[i]} \"* ]] || i=$((i + 1))\n"
    "        done\n"
    "        prev=$n\n"
    "        [ \"$COMP_CWORD\" -ne 2 ] || _quern_add -W \"$(_quern_subs \"$verb\")\" -- \"$cur\"\n"
    "    fi\n"
    "    read -r kind rest <<<\"$(_quern_argument \"$verb $prev\")\"\n"
    "    case $kind in\n"
    "    words) _quern_add -W \"$rest\" -- \"$cur\" ;;\n"
    "    folders) _quern_add -d -- \"$cur\" ;;\n"
    "    files) _quern_add -f -- \"$cur\" ;;\n"
    "    ending)\n"
    "        _quern_add -f -X \"!*.$rest\" -- \"$cur\"\n"
    "        _quern_add -d -- \"$cur\"\n"
    "        ;;\n"
    "    esac\n"
    "    case $kind in folders | files | ending) compopt -o filenames 2>/dev/null ;; esac\n"
    "    return 0\n"
    "}\n"
    "complete -F _quern quern\n";

/* ---- Case tables: one branch a verb */

typedef void (*print_branch)(FILE *to, const quern_verb *v);

static void print_case(FILE *to, const quern_verb *const *verbs, print_branch branch) {
    for (int i = 0; verbs[i]; i++) {
        branch(to, verbs[i]);
        if (verbs[i]->subs) print_case(to, verbs[i]->subs, branch);
    }
}

static void print_function(FILE *to, const char *name, const quern_verb *const *verbs, print_branch branch) {
    fprintf(to, "%s() {\n    case $1 in\n", name);
    print_case(to, verbs, branch);
    fputs("    esac\n}\n", to);
}

static void print_list(FILE *to, const quern_verb *const *verbs) {
    for (int i = 0; verbs && verbs[i]; i++) fprintf(to, "%s%s", i ? " " : "", verb_last_word(verbs[i]));
}

static void branch_subs(FILE *to, const quern_verb *v) {
    if (!v->subs) return;
    fprintf(to, "    '%s') echo '", v->name);
    print_list(to, v->subs);
    fputs("' ;;\n", to);
}

static int takes_next(const option_row *row) { return row->kind == OPTION_IS_TEXT || row->kind == OPTION_IS_MANY; }

/* The names of the options, of all (0) or of those behind which no argument stands (1). */
static void print_options(FILE *to, const quern_verb *v, int alone) {
    fprintf(to, "    '%s') echo '", v->name);
    int n = 0;
    for (const option_group *g = v->groups; g->rows; g++)
        for (const option_row *row = g->rows; row->names; row++) {
            const char *at = row->names, *name;
            if (option_is_word(row) || !row->help || (alone && takes_next(row))) continue;
            for (size_t length; (length = options_name(&at, &name)) != 0;) {
                if (n++) fputc(' ', to);
                options_show_name(to, name, length);
            }
        }
    fputs("' ;;\n", to);
}

static void branch_options(FILE *to, const quern_verb *v) { print_options(to, v, 0); }
static void branch_alone(FILE *to, const quern_verb *v) { print_options(to, v, 1); }

/* Whether an argument is shown as all there are: "md|csv|json". */
static int is_list(const char *argument) {
    if (!argument || !strchr(argument, '|')) return 0;
    for (const char *c = argument; *c; c++)
        if (!islower((unsigned char)*c) && !isdigit((unsigned char)*c) && !strchr("|_-", *c)) return 0;
    return 1;
}

/* "words a b c", "ending gguf", "files", "folders"; nothing for a text. */
static void print_kind(FILE *to, const option_row *row) {
    if (row->choices) {
        fputs("words", to);
        for (int i = 0; row->choices(i); i++) fprintf(to, " %s", row->choices(i));
    } else if (is_list(row->argument)) {
        fputs("words ", to);
        for (const char *c = row->argument; *c; c++) fputc(*c == '|' ? ' ' : *c, to);
    } else if (row->files) {
        if (*row->files == '/') fputs("folders", to);
        else if (*row->files == '*') fputs("files", to);
        else fprintf(to, "ending %s", row->files);
    }
}

static int has_kind(const option_row *row) { return row->choices || row->files || is_list(row->argument); }

/* "'run -m' | 'run --model'"; of a word by its place the number. */
static void print_keys(FILE *to, const quern_verb *v, const option_row *row, int number) {
    const char *at = row->names, *name;
    int n = 0;
    if (option_is_word(row)) fprintf(to, "    '%s %d'", v->name, number);
    for (size_t length; !option_is_word(row) && (length = options_name(&at, &name)) != 0; n++) {
        fprintf(to, n ? " | '%s " : "    '%s ", v->name);
        options_show_name(to, name, length);
        fputc('\'', to);
    }
}

static void branch_argument(FILE *to, const quern_verb *v) {
    int words = 0;
    for (const option_group *g = v->groups; g->rows; g++)
        for (const option_row *row = g->rows; row->names; row++) {
            int number = words;
            words += option_is_word(row);
            if (!has_kind(row)) continue;
            print_keys(to, v, row, number);
            fputs(") echo '", to);
            print_kind(to, row);
            fputs("' ;;\n", to);
        }
}

void verbs_bash(FILE *to, const quern_verb *const *verbs) {
    fputs("# Completion of the quern command for bash. Made by quern help --bash-completion.\n", to);
    fputs("_quern_subs() {\n    case $1 in\n    '') echo '", to);
    print_list(to, verbs);
    fputs("' ;;\n", to);
    print_case(to, verbs, branch_subs);
    fputs("    esac\n}\n", to);
    print_function(to, "_quern_options", verbs, branch_options);
    print_function(to, "_quern_alone", verbs, branch_alone);
    print_function(to, "_quern_argument", verbs, branch_argument);
    fputs(body, to);
}
