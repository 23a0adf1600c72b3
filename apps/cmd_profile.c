/* quern profile: reads traces of PyTorch and of Quern and prints any of their views. */
#include <errno.h>
#include <fnmatch.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "app.h"
#include "profile_cmd.h"

static const char help[] =
    "usage: quern profile VIEW FILE|DIR [options]\n"
    "       quern profile all FILE|DIR -o FOLDER [options]\n"
    "       quern profile html|serve FILE|DIR [options]    the page; 'quern profile html --help' says more\n\n"
    "Prints one view of a trace, or writes all of them. A DIR holds runs: folders of <worker>[.<digits>].pt.trace.json[.gz].\n\n"
    "  --json, --csv       exactly what the profiler's page shows, or its tables; else a table to read\n"
    "  --run, --worker, --span NAME\n"
    "                      which trace; else the first\n"
    "  --against FILE|DIR  diff: the other side; --against-run, --against-worker, --against-span choose in it, and\n"
    "                      without --against in the same DIR\n"
    "  --path 0-1-...      diff: that node and its children only\n"
    "  --op NAME, --shape TEXT\n"
    "                      operation_stack: one operator\n"
    "  --start, --end US   memory: only this time, as the trace counts it\n"
    "  --time us|ms|s, --memory B|KB|MB|GB\n"
    "                      units of the memory views\n"
    "  --top N             tables: only the first N rows\n"
    "  -o FILE             write there; it appears when it is complete\n";

/* ---- Options ------------------------------------------------------------------------------------------------------ */

typedef struct text_option {
    const char *name;
    size_t at;         /* in profile_job */
    const char *views; /* a pattern of their names; NULL: it is for all */
} text_option;

#define IN_REQUEST(field) (offsetof(profile_job, request) + offsetof(qn_profile_request, field))

static const text_option text_options[] = {{"--run", IN_REQUEST(run), NULL},
                                           {"--worker", IN_REQUEST(worker), NULL},
                                           {"--span", IN_REQUEST(span), NULL},
                                           {"--against", offsetof(profile_job, against), "diff"},
                                           {"--against-run", IN_REQUEST(against_run), "diff"},
                                           {"--against-worker", IN_REQUEST(against_worker), "diff"},
                                           {"--against-span", IN_REQUEST(against_span), "diff"},
                                           {"--path", IN_REQUEST(path), "diff"},
                                           {"--op", IN_REQUEST(op_name), "operation_stack"},
                                           {"--shape", IN_REQUEST(input_shape), "operation_stack"},
                                           {"--start", IN_REQUEST(start_ts), "memory"},
                                           {"--end", IN_REQUEST(end_ts), "memory"},
                                           {"--time", IN_REQUEST(time_metric), "memory*"},
                                           {"--memory", IN_REQUEST(memory_metric), "memory*"},
                                           {"-o", offsetof(profile_job, out), NULL}};

static int usage_error(const char *sentence, const char *what) { return profile_wrong(NULL, sentence, what); }

static int take_top(profile_job *job, const char *text) {
    char *end;
    errno = 0;
    unsigned long n = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || n == 0) return usage_error("--top takes a number of rows, not '%s'", text);
    job->top = n;
    return APP_OK;
}

static int take_option(profile_job *job, int argc, char **argv, int *i) {
    int missing = 0;
    const char *value;
    int rc = profile_take_reading(&job->options, NULL, argc, argv, i, &missing);
    if (rc != PROFILE_NOT_MINE) return rc;
    if (strcmp(argv[*i], "--json") == 0 || strcmp(argv[*i], "--csv") == 0) {
        print_form form = argv[*i][2] == 'j' ? PRINT_JSON : PRINT_CSV;
        if (job->form != PRINT_TABLE && job->form != form) return app_apart("quern profile", "--json", "--csv");
        job->form = form;
        return APP_OK;
    }
    for (size_t k = 0; k < sizeof text_options / sizeof *text_options; k++)
        if ((value = profile_value_of(text_options[k].name, argc, argv, i, &missing)) != NULL) {
            memcpy((char *)job + text_options[k].at, &value, sizeof value);
            return APP_OK;
        }
    if ((value = profile_value_of("--top", argc, argv, i, &missing)) != NULL) return take_top(job, value);
    return usage_error(missing ? "%s needs a value" : "there is no option '%s'", argv[*i]);
}

static int take_arguments(profile_job *job, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1]) {
            int rc = take_option(job, argc, argv, &i);
            if (rc != APP_OK) return rc;
        } else if (!job->view) {
            job->view = argv[i];
        } else if (!job->path) {
            job->path = argv[i];
        } else {
            return usage_error("'%s' is one argument too many", argv[i]);
        }
    }
    if (!job->view) return usage_error("name a view, then a file or folder%s", "");
    if (!job->path || !*job->path) return usage_error("%s needs a file or folder", job->view);
    return APP_OK;
}

/* What would change nothing in this view: an option of another one, or of tables where there are none. */
static int check_options(const profile_job *job) {
    const char *value;
    if (app_is_empty("quern profile", "the file to write", job->out)) return APP_USAGE;
    int all = strcmp(job->view, "all") == 0, is_trace = strcmp(job->view, "trace_view") == 0;
    for (size_t k = 0; k < sizeof text_options / sizeof *text_options; k++) {
        const text_option *o = &text_options[k];
        memcpy(&value, (const char *)job + o->at, sizeof value);
        if (!value || !o->views || fnmatch(o->views, job->view, 0) == 0) continue;
        if (all && strcmp(o->views, "diff") != 0) continue;
        return app_apart("quern profile", job->view, o->name);
    }
    if (is_trace && job->form == PRINT_CSV) return app_apart("quern profile", job->view, "--csv");
    if (job->request.input_shape && !job->request.op_name) return usage_error("--shape is of an operator: --op names it%s", "");
    const char *tables_of = job->form == PRINT_JSON ? "--json" : is_trace || (all && job->form == PRINT_TABLE) ? job->view : NULL;
    if (job->top && tables_of) return app_apart("quern profile", tables_of, "--top");
    return profile_check_units(&job->request);
}

/* `diffnode` is the diff of one node. Returns an exit code. */
static int check_view(profile_job *job) {
    const char *name;
    int known = strcmp(job->view, "all") == 0, is_diff = strncmp(job->view, "diff", 4) == 0;
    if (strcmp(job->view, "diffnode") == 0) {
        job->view = "diff";
        if (!job->request.path) job->request.path = "0";
    }
    for (int v = 0; !known && (name = qn_profile_view_name(v)) != NULL; v++) known = strcmp(name, job->view) == 0;
    if (!known) return usage_error("there is no view '%s'", job->view);
    if (strcmp(job->view, "all") == 0 && !job->out) return usage_error("all needs a folder: -o FOLDER%s", "");
    const qn_profile_request *r = &job->request;
    if (is_diff && !job->against && !r->against_run && !r->against_worker && !r->against_span)
        return usage_error("diff needs another trace: --against FILE|DIR%s", "");
    return check_options(job);
}

static void print_help(void) {
    const char *name;
    printf("%s%s\nViews:", help, profile_reading_help);
    for (int v = 0; (name = qn_profile_view_name(v)) != NULL; v++) printf("%s%s", v % 6 ? " " : "\n  ", name);
    printf(" all\n");
}

/* ---- Work --------------------------------------------------------------------------------------------------------- */

typedef struct target {
    const profile_job *job;
    FILE *to;
    int why; /* errno of a write that failed */
} target;

static qn_status write_file(void *user, const char *text, size_t length) {
    target *t = user;
    if (profile_was_interrupted()) return QN_CANCELLED;
    profile_clear_progress(&t->job->options);
    if (fwrite(text, 1, length, t->to) == length) return QN_OK;
    t->why = errno;
    return QN_IO;
}

static size_t line_width(FILE *to) {
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    if (isatty(fileno(to)) && ioctl(fileno(to), TIOCGWINSZ, &size) == 0 && size.ws_col >= 40) return size.ws_col;
    long n = columns ? strtol(columns, NULL, 10) : 0;
    return n >= 40 && n < 10000 ? (size_t)n : 120;
}

qn_status profile_write_view(const profile_job *job, const char *view, const qn_profile_request *request, FILE *to,
                             qn_error *error) {
    if (job->form == PRINT_JSON || strcmp(view, "trace_view") == 0) {
        target t = {job, to, 0};
        qn_status status = qn_profile_view(job->profile, view, request, write_file, &t, error);
        if (t.why) return qn_error_set(error, QN_IO, "the view %s could not be written: %s", view, strerror(t.why));
        if (status == QN_OK && strcmp(view, "trace_view") != 0) fputc('\n', to);
        return status;
    }
    json_text text = {0};
    qn_status status = qn_profile_view(job->profile, view, request, json_append, &text, error);
    profile_clear_progress(&job->options);
    if (status == QN_OK) {
        printer p = {.to = to, .form = job->form, .width = line_width(to), .top = job->top, .cancel = job->options.cancel};
        if (!json_parse(&text) || (!profile_print_view(&p, text.root) && !profile_was_interrupted()))
            status = qn_error_set(error, QN_NO_MEMORY, "no memory for the table of %s", view);
        else if (profile_was_interrupted()) status = qn_error_set(error, QN_CANCELLED, "interrupted");
    }
    json_free(&text);
    return status;
}

/* One sentence for one, another for many; %llu stands for the number. */
static void report_count(const char *path, uint64_t n, const char *one, const char *many) {
    if (n == 0) return;
    print_clean(stderr, path, SIZE_MAX);
    fprintf(stderr, ": ");
    fprintf(stderr, n == 1 ? one : many, (unsigned long long)n);
    fputc('\n', stderr);
}

void profile_report(const profile_job *job, int run, int worker, int span) {
    qn_profile_info info = {.size = sizeof info};
    if (qn_profile_trace_info(job->profile, run, worker, span, &info) != QN_OK) return;
    const char *path = qn_profile_trace_path(job->profile, run, worker, span);
    profile_clear_progress(&job->options);
    report_count(path, info.events_broken, "%llu event left out: no usable name, category, time or thread",
                 "%llu events left out: no usable name, category, time or thread");
    report_count(path, info.events_unknown, "%llu event left out: its category is unknown",
                 "%llu events left out: their categories are unknown");
    report_count(path, info.events_backward, "%llu event ends before it begins; it counts as written",
                 "%llu events end before they begin; they count as written");
    report_count(path, info.nodes_dropped, "%llu operator overlaps its neighbour and is in no tree",
                 "%llu operators overlap their neighbours and are in no tree");
    report_count(path, info.orphan_kernels, "%llu kernel has no call that launched it; --driver may find it",
                 "%llu kernels have no call that launched them; --driver may find it");
}

/* The traces a request touched are those now loaded. */
static void report_loaded(const profile_job *job) {
    for (int r = 0; qn_profile_run_name(job->profile, r); r++)
        for (int w = 0; qn_profile_worker_name(job->profile, r, w); w++)
            for (int s = 0; qn_profile_span_name(job->profile, r, w, s); s++) profile_report(job, r, w, s);
}

static int print_one(profile_job *job) {
    out_file out;
    qn_error error = {QN_OK, ""};
    if (out_is_read(NULL, job->profile, job->out) || out_is_read(NULL, job->other, job->out)) return APP_USAGE;
    if (!out_open(&out, job->out)) return APP_FAILED;
    qn_status status = profile_write_view(job, job->view, &job->request, out.to, &error);
    profile_clear_progress(&job->options);
    if (status != QN_OK) {
        out_discard(&out);
        return profile_failed(NULL, status, &error);
    }
    report_loaded(job);
    return out_commit(&out) ? APP_OK : APP_FAILED;
}

static int run_job(profile_job *job) {
    qn_error error = {QN_OK, ""};
    qn_status status = qn_profile_open(job->path, &job->options, &job->profile, &error);
    if (status == QN_OK && job->against) {
        status = qn_profile_open(job->against, &job->options, &job->other, &error);
        job->request.against = job->other;
    }
    if (status != QN_OK) return profile_failed(NULL, status, &error);
    return strcmp(job->view, "all") == 0 ? profile_all(job) : print_one(job);
}

int cmd_profile(int argc, char **argv) {
    profile_job job;
    profile_progress progress;
    memset(&job, 0, sizeof job);
    job.options = qn_profile_options_default();
    job.request = qn_profile_request_default();
    if (argc > 1 && strcmp(argv[1], "html") == 0) return profile_html(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "serve") == 0) return profile_serve(argc - 1, argv + 1);
    if (profile_asks_for_help(argc, argv)) {
        print_help();
        return APP_OK;
    }
    int rc = take_arguments(&job, argc, argv);
    if (rc == APP_OK) rc = check_view(&job);
    if (rc != APP_OK) return rc;
    if (strcmp(job.view, "all") == 0 && job.form == PRINT_TABLE) job.form = PRINT_JSON;
    profile_watch(&job.options, &progress);
    rc = run_job(&job);
    qn_profile_close(job.profile);
    qn_profile_close(job.other);
    return rc;
}
