/* quern profile html and quern profile serve: the profiler's page, as one file or from a server on this machine. */
#include <quern/page.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app.h"
#include "profile_cmd.h"

typedef struct page_job {
    const char *path, *against, *out, *host, *port_text, *title;
    profile_reading reading;
    int port;
    qn_profile_options options;
    qn_profile *profile, *other;
    qn_page_options page;
} page_job;

/* ---- Options ------------------------------------------------------------------------------------------------------ */

#define PATH OPTION(page_job, path, "FILE|DIR", NULL, NULL, .files = "*")
#define AGAINST \
    OPTION(page_job, against, "--against", "FILE|DIR", "another profile, offered as the right side of the diff", .files = "*")
#define TITLE OPTION(page_job, title, "--title", "TEXT", "of the page (default: the name of what is shown)")

static const option_row html_rows[] = {
    PATH,
    OPTION(page_job, out, "-o", "FILE.html", "write there; it appears when it is complete", .files = "html"),
    AGAINST,
    TITLE,
    {0}};
static const option_row serve_rows[] = {
    PATH,
    OPTION(page_job, port_text, "--port", "N", "0 takes any free one (default 8765)"),
    OPTION(page_job, host, "--host", "ADDRESS", "anything but the default, 127.0.0.1, lets other machines read the profile"),
    AGAINST,
    TITLE,
    {0}};
static const option_group html_groups[] = {
    {NULL, html_rows, 0}, {"How traces are read", profile_reading_rows, offsetof(page_job, reading)}, {0}};
static const option_group serve_groups[] = {
    {NULL, serve_rows, 0}, {"How traces are read", profile_reading_rows, offsetof(page_job, reading)}, {0}};

static int take_words(const quern_verb *self, int argc, char **argv, page_job *job) {
    const char *who = verb_last_word(self);
    memset(job, 0, sizeof *job);
    job->options = qn_profile_options_default();
    job->page = qn_page_options_default();
    job->port = 8765;
    int rc = options_read(self, argc, argv, job);
    if (rc == APP_OK) rc = profile_take_reading(self, &job->reading, &job->options);
    if (rc != APP_OK) return rc;
    if (!job->path || !*job->path) return profile_wrong(who, "a file or folder is needed%s", "");
    if (app_is_empty("quern profile", "the file to write", job->out)) return APP_USAGE;
    if (job->port_text) {
        char *end;
        long port = strtol(job->port_text, &end, 10);
        if (*job->port_text < '0' || *job->port_text > '9' || *end || port > 65535)
            return profile_wrong(who, "'%s' is no port: 0 to 65535", job->port_text);
        job->port = (int)port;
    }
    return APP_OK;
}

/* ---- Work --------------------------------------------------------------------------------------------------------- */

static qn_status open_profiles(page_job *job, qn_error *error) {
    const char *slash = strrchr(job->path, '/');
    qn_status status = qn_profile_open(job->path, &job->options, &job->profile, error);
    if (status == QN_OK && job->against) status = qn_profile_open(job->against, &job->options, &job->other, error);
    job->page.against = job->other;
    job->page.title = job->title ? job->title : slash && slash[1] ? slash + 1 : job->path;
    return status;
}

static void close_profiles(page_job *job) {
    qn_profile_close(job->profile);
    qn_profile_close(job->other);
}

static qn_status write_file(void *user, const char *text, size_t length) {
    if (profile_was_interrupted()) return QN_CANCELLED;
    return fwrite(text, 1, length, user) == length ? QN_OK : QN_IO;
}

static int write_report(page_job *job) {
    out_file out;
    qn_error error = {QN_OK, ""};
    qn_status status = open_profiles(job, &error);
    if (status != QN_OK) return profile_failed("html", status, &error);
    if (out_is_read("html", job->profile, job->out) || out_is_read("html", job->other, job->out)) return APP_USAGE;
    if (!out_open(&out, job->out)) return APP_FAILED;
    status = qn_page_write(job->profile, &job->page, write_file, out.to, &error);
    profile_clear_progress(&job->options);
    if (status != QN_OK) {
        out_discard(&out);
        return profile_failed("html", status, &error);
    }
    return out_commit(&out) ? APP_OK : APP_FAILED;
}

static int run_html(const quern_verb *self, int argc, char **argv) {
    page_job job;
    profile_progress progress;
    int rc = take_words(self, argc, argv, &job);
    if (rc != APP_OK) return rc;
    if (!job.out && isatty(STDOUT_FILENO))
        return profile_wrong("html", "a page is nothing for a terminal: -o FILE says where to%s", "");
    profile_watch(&job.options, &progress);
    rc = write_report(&job);
    close_profiles(&job);
    return rc;
}

const quern_verb profile_html = {
    .name = "profile html",
    .brief = "write the profiler's page, one file with every view in it",
    .run = run_html,
    .usage = "FILE|DIR [-o FILE] [options]",
    .about = "Writes one self-contained page with every view of every trace in it. It needs no network and no server. "
             "Without -o it goes to standard output, unless that is a terminal.",
    .groups = html_groups,
    .needs = "profiler"};

/* The server's thread must not take the signals this one waits for. */
static int serve_until_stopped(page_job *job) {
    qn_page_server *server = NULL;
    qn_error error = {QN_OK, ""};
    sigset_t waited;
    int number;
    app_end_signals(&waited);
    sigprocmask(SIG_BLOCK, &waited, NULL);
    signal(SIGPIPE, SIG_IGN);
    qn_status status = open_profiles(job, &error);
    status = status == QN_OK ? qn_page_serve(job->profile, &job->page, job->host, job->port, &server, &error) : status;
    if (status != QN_OK) return profile_failed("serve", status, &error);
    const char *host = job->host ? job->host : "127.0.0.1";
    int six = strchr(host, ':') != NULL;
    printf("http://%s%s%s:%d/\n", six ? "[" : "", host, six ? "]" : "", qn_page_server_port(server));
    int told = fflush(stdout) == 0; /* else nobody knows where it is */
    if (told && isatty(STDERR_FILENO)) fprintf(stderr, "Open that address in a browser; Ctrl-C ends the server.\n");
    while (told && sigwait(&waited, &number) != 0) {}
    profile_interrupt(); /* a view that is being read ends early */
    app_catch_end(SIG_DFL, 0);
    sigprocmask(SIG_UNBLOCK, &waited, NULL); /* and when it waits for a file that does not come, a second Ctrl-C ends all */
    qn_page_server_stop(server);
    return told ? APP_OK : APP_FAILED;
}

static int run_serve(const quern_verb *self, int argc, char **argv) {
    page_job job;
    profile_progress progress;
    int rc = take_words(self, argc, argv, &job);
    if (rc != APP_OK) return rc;
    profile_watch(&job.options, &progress);
    job.options.progress = NULL; /* traces are read behind the page's back, when it asks for them */
    rc = serve_until_stopped(&job);
    close_profiles(&job);
    return rc;
}

const quern_verb profile_serve = {
    .name = "profile serve",
    .brief = "show the profiler's page from a small server on this machine",
    .run = run_serve,
    .usage = "FILE|DIR [options]",
    .about = "Shows the page from a small server until Ctrl-C. Traces are read when they are first looked at.",
    .groups = serve_groups,
    .needs = "profiler"};
