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

/* ---- Options ------------------------------------------------------------------------------------------------------ */

static const char *size_unit(int item) {
    static const char *const names[] = {
#define QN_UNIT_MEMORY(name, in_one) #name,
#include <quern/units.def>
#undef QN_UNIT_MEMORY
    };
    return item < (int)(sizeof names / sizeof *names) ? names[item] : NULL;
}

static const char *view_name(int item) { return item == 0 ? "all" : qn_profile_view_name(item - 1); }

static const option_row rows[] = {
    OPTION(profile_job, view, "VIEW", NULL, NULL, .choices = view_name),
    OPTION(profile_job, path, "FILE|DIR", NULL, NULL, .files = "*"),
    OPTION(profile_job, form_name, "--json", NULL, "print exactly what the profiler's page shows; else a table to read"),
    OPTION(profile_job, form_name, "--csv", NULL, "print the tables of it"),
    OPTION(profile_job, top_text, "--top", "N", "tables: only the first N rows"),
    OPTION(profile_job, request.run, "--run", "NAME", "the run to show (default: the first)"),
    OPTION(profile_job, request.worker, "--worker", "NAME", "its worker (default: the first)"),
    OPTION(profile_job, request.span, "--span", "NAME", "the worker's trace (default: the first)"),
    OPTION(profile_job, out, "-o", "FILE", "write there; it appears when it is complete; of 'all' it is a folder", .files = "*"),
    {0}};
static const option_row diff_rows[] = {
    OPTION(profile_job, against, "--against", "FILE|DIR", "the other side (default: the same DIR)", .files = "*"),
    OPTION(profile_job, request.against_run, "--against-run", "NAME", "the run to choose there"),
    OPTION(profile_job, request.against_worker, "--against-worker", "NAME", "its worker"),
    OPTION(profile_job, request.against_span, "--against-span", "NAME", "the worker's trace"),
    OPTION(profile_job, request.path, "--path", "0-1-...", "that node and its children only"),
    {0}};
static const option_row stack_rows[] = {
    OPTION(profile_job, request.op_name, "--op", "NAME", "the stacks of this operator"),
    OPTION(profile_job, request.input_shape, "--shape", "TEXT", "of its calls, those with this shape"),
    {0}};
static const option_row time_rows[] = {
    OPTION(profile_job, request.start_ts, "--start", "US", "only from this time on, as the trace counts it"),
    OPTION(profile_job, request.end_ts, "--end", "US", "only up to this time"),
    {0}};
static const option_row unit_rows[] = {
    OPTION(profile_job, request.time_metric, "--time", "us|ms|s", "unit of times"),
    OPTION(profile_job, request.memory_metric, "--memory", "B|KB|MB|GB", "unit of sizes", .choices = size_unit),
    {0}};
static const option_group groups[] = {{NULL, rows, 0},
                                      {"Of the view diff", diff_rows, 0},
                                      {"Of the view operation_stack", stack_rows, 0},
                                      {"Of the view memory", time_rows, 0},
                                      {"Of the views memory, memory_curve and memory_events", unit_rows, 0},
                                      {"How traces are read", profile_reading_rows, offsetof(profile_job, reading)},
                                      {0}};

/* Rows that are for some views alone, by a pattern of their names. */
static const struct {
    const option_row *rows;
    const char *views;
} parts[] = {{diff_rows, "diff"}, {stack_rows, "operation_stack"}, {time_rows, "memory"}, {unit_rows, "memory*"}};

static int usage_error(const char *sentence, const char *what) { return profile_wrong(NULL, sentence, what); }

static int take_top(profile_job *job, const char *text) {
    char *end;
    if (!text) return APP_OK;
    errno = 0;
    unsigned long n = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || n == 0) return usage_error("--top takes a number of rows, not '%s'", text);
    job->top = n;
    return APP_OK;
}

static int take_words(const quern_verb *self, int argc, char **argv, profile_job *job) {
    int rc = options_read(self, argc, argv, job);
    if (rc == APP_OK) rc = profile_take_reading(self, &job->reading, &job->options);
    if (rc == APP_OK) rc = take_top(job, job->top_text);
    if (rc != APP_OK) return rc;
    if (job->form_name.name) job->form = strcmp(job->form_name.name, "--json") == 0 ? PRINT_JSON : PRINT_CSV;
    if (!job->view) return usage_error("name a view, then a file or folder%s", "");
    if (!job->path || !*job->path) return usage_error("%s needs a file or folder", job->view);
    return APP_OK;
}

/* The first row of those that is given, NULL: none is. */
static const option_row *given_of(const option_row *row, const profile_job *job) {
    for (; row->names; row++) {
        const char *value;
        memcpy(&value, (const char *)job + row->at, sizeof value);
        if (value) return row;
    }
    return NULL;
}

/* What would change nothing in this view: an option of another one, or of tables where there are none. */
static int check_options(const profile_job *job) {
    if (app_is_empty("quern profile", "the file to write", job->out)) return APP_USAGE;
    int all = strcmp(job->view, "all") == 0, is_trace = strcmp(job->view, "trace_view") == 0;
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        const option_row *given = given_of(parts[k].rows, job);
        if (!given || fnmatch(parts[k].views, job->view, 0) == 0 || (all && strcmp(parts[k].views, "diff") != 0)) continue;
        return app_apart("quern profile", job->view, given->names);
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

static void print_views(FILE *to) {
    const char *name;
    fprintf(to, "Views:");
    for (int v = 0; (name = qn_profile_view_name(v)) != NULL; v++) fprintf(to, "%s%s", v % 6 ? " " : "\n  ", name);
    fprintf(to, " all\n");
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

static int run(const quern_verb *self, int argc, char **argv) {
    profile_job job;
    profile_progress progress;
    memset(&job, 0, sizeof job);
    job.options = qn_profile_options_default();
    job.request = qn_profile_request_default();
    int rc = take_words(self, argc, argv, &job);
    if (rc == APP_OK) rc = check_view(&job);
    if (rc != APP_OK) return rc;
    if (strcmp(job.view, "all") == 0 && job.form == PRINT_TABLE) job.form = PRINT_JSON;
    profile_watch(&job.options, &progress);
    rc = run_job(&job);
    qn_profile_close(job.profile);
    qn_profile_close(job.other);
    return rc;
}

static const quern_verb *const pages[] = {&profile_html, &profile_serve, NULL};

const quern_verb verb_profile = {
    .name = "profile",
    .brief = "show a profiler's trace, PyTorch's or our own: views, or a page",
    .run = run,
    .usage = "VIEW FILE|DIR [options]\nall FILE|DIR -o FOLDER [options]\nhtml | serve FILE|DIR [options]",
    .about = "Prints one view of a trace, or writes all of them. A DIR holds runs: folders of "
             "<worker>[.<digits>].pt.trace.json[.gz].",
    .groups = groups,
    .more = print_views,
    .subs = pages,
    .needs = "profiler"};
