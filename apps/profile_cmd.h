/* quern profile: what its files share. A view comes out of the library as JSON; tables and CSV are made from that JSON, so that
 * they can show nothing else. */
#ifndef QN_APPS_PROFILE_CMD_H
#define QN_APPS_PROFILE_CMD_H

#include <quern/profile.h>
#include <stdio.h>
#include <time.h>

#include "options.h"

/* ---- A JSON text in memory (profile_json.c) ----------------------------------------------------------------------- */

typedef enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_LIST, JSON_OBJECT } json_type;

typedef struct json_value {
    json_type type;
    uint32_t count;         /* of children */
    const char *text, *key; /* scalars as shown, strings decoded; key of a member of an object, else NULL. Both terminated. */
    struct json_value *first, *next;
} json_value;

typedef struct json_text { /* grows while the view is written, then is read in place */
    char *at;
    size_t n, cap;
    json_value *root;
    struct json_block *blocks;
} json_text;

qn_status json_append(void *json_text, const char *text, size_t length); /* a qn_profile_write_fn */
int json_parse(json_text *text);                                         /* 0: not JSON, or no memory */
void json_free(json_text *text);
const json_value *json_member(const json_value *object, const char *key); /* NULL when there is none */
int json_is_scalar(const json_value *value);

/* ---- Tables (profile_table.c makes, profile_print.c prints) ------------------------------------------------------- */

typedef struct table_column {
    const char *name;
    int is_number;
} table_column;

typedef struct table {
    const char *title; /* may be NULL */
    table_column column[40];
    size_t columns, cells, cap; /* cells = rows * columns */
    char **cell;
    size_t words, words_cap; /* texts the table itself made */
    char **word;
    int failed; /* memory ended */
} table;

typedef enum print_form { PRINT_TABLE, PRINT_JSON, PRINT_CSV } print_form;

typedef struct printer {
    FILE *to;
    print_form form; /* TABLE or CSV */
    size_t width;    /* of a line */
    size_t top;      /* most rows of a table; 0: all */
    size_t printed;  /* tables so far */
    const volatile int *cancel;
    int failed;
} printer;

/* The whole view; returns 0 when memory ended or the caller asked to stop. */
int profile_print_view(printer *p, const json_value *root);

void table_begin(table *t, const char *title);
void table_column_add(table *t, const char *name, int is_number);
void table_cell(table *t, const char *text);      /* text must live as long as the table */
void table_cell_copy(table *t, const char *text); /* any text */
void table_print(printer *p, table *t);           /* and forgets it */
void print_line(printer *p, const char *text);    /* a sentence between tables; CSV leaves it out */
/* At most so many characters of a text from a file or a folder, without what a terminal would obey. */
void print_clean(FILE *to, const char *text, size_t most);

/* ---- Files (profile_out.c) ---------------------------------------------------------------------------------------- */

typedef struct out_file { /* appears under its name only when it is complete */
    FILE *to;
    char *path, *temporary; /* NULL: standard output */
} out_file;

/* Whether the path is a trace of the profile (NULL: none), by whatever name; the sentence is said then. What is read is not written
 * over. verb as for profile_wrong. */
int out_is_read(const char *verb, const qn_profile *profile, const char *path);
int out_open(out_file *out, const char *path); /* NULL: standard output; 0 after printing why not */
int out_commit(out_file *out);                 /* 0 after printing why not; nothing is left then */
void out_discard(out_file *out);

typedef struct sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
} sha256;

void sha256_begin(sha256 *hash);
void sha256_add(sha256 *hash, const void *bytes, size_t n);
void sha256_end(sha256 *hash, char hex[65]);

/* ---- What all verbs take and say (profile_args.c) ----------------------------------------------------------------- */

enum { PROFILE_INTERRUPTED = 130 };

/* Complaints about arguments and about work that failed; both return the exit code. verb is NULL for the views. */
int profile_wrong(const char *verb, const char *sentence_with_one_word, const char *word);
int profile_failed(const char *verb, qn_status status, const qn_error *error);

/* How traces are read: words, their rows, and what they mean. Returns an exit code. */
typedef struct profile_reading {
    const char *dialect, *owner;
    int strict, driver, host_steps, comm_names;
} profile_reading;
extern const option_row profile_reading_rows[];
int profile_take_reading(const quern_verb *v, const profile_reading *words, qn_profile_options *options);
/* Whether bounds of time are numbers and units are known; returns an exit code. */
int profile_check_units(const qn_profile_request *request);

typedef struct profile_progress {
    struct timespec last;
    int shown;
} profile_progress;

/* From here on a signal stops the reading, and a terminal is shown how far it is. */
void profile_watch(qn_profile_options *options, profile_progress *progress);
void profile_clear_progress(const qn_profile_options *options);
int profile_was_interrupted(void);
void profile_interrupt(void);

/* The page (profile_page.c). */
extern const quern_verb profile_html, profile_serve;

/* ---- The job (cmd_profile.c, profile_all.c) ----------------------------------------------------------------------- */

typedef struct profile_job {
    const char *view, *path, *against, *out, *top_text;
    option_choice form_name;
    profile_reading reading;
    print_form form;
    size_t top;
    qn_profile_options options;
    qn_profile_request request;
    qn_profile *profile, *other;
} profile_job;

/* Writes one view to `to` in the job's form. The error is set unless QN_OK. */
qn_status profile_write_view(const profile_job *job, const char *view, const qn_profile_request *request, FILE *to,
                             qn_error *error);
/* Every view of every trace into the folder job->out; returns an exit code. */
int profile_all(profile_job *job);
/* Says on standard error what was left out of a loaded trace. */
void profile_report(const profile_job *job, int run, int worker, int span);

#endif
