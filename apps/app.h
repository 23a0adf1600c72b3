/* What the verbs of the quern command share. Each verb is a table of its words and a function, see options.h. */
#ifndef QN_APPS_APP_H
#define QN_APPS_APP_H

#include <signal.h>

#include <quern/device.h>
#include <quern/graph.h>

#include "options.h"

/* Exit codes: 0 done, 1 failed while running, 2 called wrongly; and 130 interrupted, see model_app.h and profile_cmd.h. */
enum { APP_OK = 0, APP_FAILED = 1, APP_USAGE = 2 };

/* The verbs, in the files cmd_<verb>.c; the table of them is in quern.c. */
extern const quern_verb verb_ops, verb_bench, verb_devices, verb_inspect, verb_quantize, verb_convert, verb_run, verb_chat,
    verb_tokenize, verb_embed, verb_eval, verb_plan, verb_train, verb_graph, verb_profile, verb_help_of;

/* All verbs with a line for each. And what is said of a word that is none of a list: "WHO: there is no verb 'WORD'", the nearest that
 * there is, and which command lists them; the exit code. */
void app_usage(FILE *to);
int app_no_verb(const char *who, const quern_verb *const *list, const char *word, const char *lister);

/* Views of the op table, each printed to standard output. */
void ops_print_list(void);
void ops_print_page(int op);
void ops_print_json(void);
void ops_print_json_op(int op); /* one entry, without a line end */
void ops_print_markdown(void);
/* The dispatcher's state machine; `full`: every op with its guards named, else the seed's diagram of its 94. */
void ops_print_mermaid(int full);
/* A list of include/quern/seeds, or "all", and what serves each of its names; fails when a row names nothing. */
int ops_print_seed(const char *name, int markdown);

/* A graph from .qir text, '-' for standard input; what is wrong has been said. And NAME=N,... over the upper bounds of its symbols,
 * into numbers[APP_SYMBOLS]. */
enum { APP_SYMBOLS = 64 };
int app_graph_read(const char *who, const char *path, qn_graph **graph);
int app_graph_symbols(const char *who, const qn_graph *graph, const char *list, int64_t *numbers);

/* A device as it is named: BACKEND or BACKEND:N. The parts, 0 when it is no such name; and opened, an exit code, what is wrong has
 * been said. */
enum { APP_BACKEND = 32 };
int app_device_name(const char *name, char backend[APP_BACKEND], int *index);
int app_device_wrong(const char *who, const char *name); /* says that it is no such name: the exit code */
int app_device_open(const char *who, const char *name, qn_device **device);

/* Views of a graph, likewise. */
void graph_print_dot(const qn_graph *graph);
int graph_print_stats(const qn_graph *graph);

/* Words of `quern graph` about passes, NULL where none was given. */
typedef struct graph_passes {
    const char *passes, *skip, *limit, *precision, *print_after;
    int fast, time, report;
} graph_passes;
/* Replaces the graph by what the passes make of it; prints what was asked for. */
int graph_run_passes(qn_graph **graph, const char *file, const graph_passes *passes);

/* Signals that ask the program to end: Ctrl-C, a kill, and a terminal that is closed, unless who started the program has that ignored,
 * as nohup does. And a handler for each of them; with SA_RESETHAND, a second Ctrl-C or kill ends the program. */
void app_end_signals(sigset_t *set);
void app_catch_end(void (*handler)(int), int flags);

/* "WHO: 'ONE' and 'OTHER' do not go together": the exit code. */
int app_apart(const char *who, const char *one, const char *other);
/* "WHO: NAME is given more than once, and the last one counts", unless there was none before or it said the same. The last one counts
 * because aliases and scripts put what a person types behind words of their own; but nothing that was asked for goes without a word. */
void app_again(const char *who, const char *name, const char *before, const char *now);
/* Whether a name was given and is empty, which has been said: "WHO: the name of WHAT is empty". */
int app_is_empty(const char *who, const char *what, const char *name);
/* The end of a plural: "1 token", "2 tokens". */
const char *app_s(int64_t n);

/* Text made of table facts; each returns `text`. */
char *ops_slots_text(const qn_slot_info *slots, int n, char *text, size_t size);
char *ops_attr_text(const qn_attr_info *attr, char *text, size_t size);
char *ops_dtypes_text(uint64_t set, char *text, size_t size);

#endif
