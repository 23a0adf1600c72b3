/* quern profile html and quern profile serve: the profiler's page, as one file or from a server on this machine. */
#include <errno.h>
#include <quern/page.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "app.h"
#include "profile_cmd.h"

static const char
    html_help[] = "usage: quern profile html FILE|DIR [-o report.html] [--against FILE|DIR] [--title TEXT] [options]\n\n"
                  "Writes one self-contained page with every view of every trace in it. It needs no network and no server.\n";
static const char serve_help
    [] = "usage: quern profile serve FILE|DIR [--port N] [--host ADDRESS] [--against FILE|DIR] [--title TEXT] [options]\n\n"
         "Shows the page from a small server until Ctrl-C. Traces are read when they are first looked at.\n\n"
         "  --port N        8765 unless said otherwise; 0 takes any free one\n"
         "  --host ADDRESS  127.0.0.1 unless said otherwise; anything else lets other machines read the profile\n";
static const char shared_help[] = "  --against FILE|DIR  another profile, offered as the right side of the diff\n"
                                  "  --dialect, --strict-reference, --driver, --owner=time, --host-steps, --comm-names\n"
                                  "                      as 'quern profile --help' says\n";

static volatile int stopped; /* set when the user wants to stop, read by the library */

typedef struct page_job {
    const char *path, *against, *out, *host, *port_text, *title;
    int port;
    qn_profile_options options;
    qn_profile *profile, *other;
    qn_page_options page;
} page_job;

/* ---- Options ------------------------------------------------------------------------------------------------------ */

static int wrong(const char *verb, const char *sentence, const char *what) {
    fprintf(stderr, "quern profile %s: ", verb);
    fprintf(stderr, sentence, what);
    fprintf(stderr, "; 'quern profile %s --help' says more\n", verb);
    return APP_USAGE;
}

static int take_flag(page_job *job, const char *word) {
    static const struct {
        const char *name;
        uint32_t flag;
    } flags[] = {{"--strict-reference", QN_PROFILE_STRICT},
                 {"--driver", QN_PROFILE_DRIVER},
                 {"--owner=time", QN_PROFILE_OWNER_TIME},
                 {"--host-steps", QN_PROFILE_HOST_STEPS},
                 {"--comm-names", QN_PROFILE_COMM_NAMES}};
    for (size_t k = 0; k < sizeof flags / sizeof *flags; k++)
        if (strcmp(word, flags[k].name) == 0) {
            job->options.flags |= flags[k].flag;
            return 1;
        }
    return 0;
}

static int take_dialect(page_job *job, const char *verb, const char *name) {
    static const char *const names[] = {"auto", "upstream", "mlu_a", "mlu_b"};
    for (int k = 0; k < 4; k++)
        if (strcmp(name, names[k]) == 0) {
            job->options.dialect = (qn_profile_dialect)k;
            return APP_OK;
        }
    return wrong(verb, "there is no dialect '%s': upstream, mlu_a or mlu_b", name);
}

/* `--name value` and `--name=value`. */
static int take_option(page_job *job, int argc, char **argv, int *i) {
    const char *dialect = NULL;
    const struct {
        const char *name;
        const char **to;
    } texts[] = {{"-o", &job->out},           {"--against", &job->against}, {"--host", &job->host},
                 {"--port", &job->port_text}, {"--title", &job->title},     {"--dialect", &dialect}};
    if (take_flag(job, argv[*i])) return APP_OK;
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        size_t n = strlen(texts[k].name);
        if (strncmp(argv[*i], texts[k].name, n) != 0 || (argv[*i][n] != 0 && argv[*i][n] != '=')) continue;
        if (argv[*i][n] == 0 && *i + 1 >= argc) return wrong(argv[0], "%s needs a value", argv[*i]);
        *texts[k].to = argv[*i][n] ? argv[*i] + n + 1 : argv[++*i];
        return dialect ? take_dialect(job, argv[0], dialect) : APP_OK;
    }
    return wrong(argv[0], "there is no option '%s'", argv[*i]);
}

static int take_arguments(page_job *job, int argc, char **argv) {
    memset(job, 0, sizeof *job);
    job->options = qn_profile_options_default();
    job->page = qn_page_options_default();
    job->port = 8765;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1]) {
            int rc = take_option(job, argc, argv, &i);
            if (rc != APP_OK) return rc;
        } else if (!job->path) {
            job->path = argv[i];
        } else {
            return wrong(argv[0], "'%s' is one argument too many", argv[i]);
        }
    }
    if (!job->path) return wrong(argv[0], "of which file or folder%s?", "");
    if (job->port_text) {
        char *end;
        long port = strtol(job->port_text, &end, 10);
        if (*job->port_text < '0' || *job->port_text > '9' || *end || port > 65535)
            return wrong(argv[0], "'%s' is no port: 0 to 65535", job->port_text);
        job->port = (int)port;
    }
    return APP_OK;
}

static int asks_for_help(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) return 1;
    return 0;
}

/* ---- Work --------------------------------------------------------------------------------------------------------- */

static void show_progress(void *user, const char *path, uint64_t done, uint64_t total) {
    struct timespec now, *last = user;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if ((double)(now.tv_sec - last->tv_sec) + (double)(now.tv_nsec - last->tv_nsec) * 1e-9 < 0.1) return;
    *last = now;
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    fprintf(stderr, "\rreading %-40.40s %5.1f of %.1f MB\r", name, (double)done / 1e6, (double)total / 1e6);
    fflush(stderr);
}

static int failed(const char *verb, qn_status status, const qn_error *error) {
    if (stopped || status == QN_CANCELLED) return PROFILE_INTERRUPTED;
    fprintf(stderr, "quern profile %s: %s\n", verb, error->text[0] ? error->text : strerror(errno));
    return APP_FAILED;
}

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

static void on_signal(int number) {
    (void)number;
    stopped = 1;
}

static qn_status write_file(void *user, const char *text, size_t length) {
    if (stopped) return QN_CANCELLED;
    return fwrite(text, 1, length, user) == length ? QN_OK : QN_IO;
}

static int write_report(page_job *job) {
    out_file out;
    qn_error error = {QN_OK, ""};
    qn_status status = open_profiles(job, &error);
    if (status != QN_OK) return failed("html", status, &error);
    if (!out_open(&out, job->out)) return APP_FAILED;
    status = qn_page_write(job->profile, &job->page, write_file, out.to, &error);
    if (job->options.progress) fprintf(stderr, "%79s\r", "");
    if (status != QN_OK) {
        out_discard(&out);
        return failed("html", status, &error);
    }
    return out_commit(&out) ? APP_OK : APP_FAILED;
}

int profile_html(int argc, char **argv) {
    page_job job;
    struct timespec last = {0, 0};
    struct sigaction action;
    if (asks_for_help(argc, argv)) {
        printf("%s\n%s", html_help, shared_help);
        return APP_OK;
    }
    int rc = take_arguments(&job, argc, argv);
    if (rc != APP_OK) return rc;
    if (!job.out && isatty(STDOUT_FILENO)) return wrong(argv[0], "the report needs a file: -o report.html%s", "");
    if (isatty(STDERR_FILENO)) {
        job.options.progress = show_progress;
        job.options.progress_user = &last;
    }
    job.options.cancel = &stopped;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    rc = write_report(&job);
    close_profiles(&job);
    return rc;
}

/* The server's thread must not take the signals this one waits for. */
static int serve_until_stopped(page_job *job) {
    qn_page_server *server = NULL;
    qn_error error = {QN_OK, ""};
    sigset_t waited;
    int number;
    sigemptyset(&waited);
    sigaddset(&waited, SIGINT);
    sigaddset(&waited, SIGTERM);
    sigprocmask(SIG_BLOCK, &waited, NULL);
    signal(SIGPIPE, SIG_IGN);
    qn_status status = open_profiles(job, &error);
    status = status == QN_OK ? qn_page_serve(job->profile, &job->page, job->host, job->port, &server, &error) : status;
    if (status != QN_OK) return failed("serve", status, &error);
    const char *host = job->host ? job->host : "127.0.0.1";
    int six = strchr(host, ':') != NULL;
    printf("http://%s%s%s:%d/\n", six ? "[" : "", host, six ? "]" : "", qn_page_server_port(server));
    fflush(stdout);
    if (isatty(STDERR_FILENO)) fprintf(stderr, "Open that address in a browser; Ctrl-C ends the server.\n");
    while (sigwait(&waited, &number) != 0) {}
    stopped = 1; /* a view that is being read ends early */
    qn_page_server_stop(server);
    return APP_OK;
}

int profile_serve(int argc, char **argv) {
    page_job job;
    if (asks_for_help(argc, argv)) {
        printf("%s%s", serve_help, shared_help);
        return APP_OK;
    }
    int rc = take_arguments(&job, argc, argv);
    if (rc != APP_OK) return rc;
    job.options.cancel = &stopped;
    rc = serve_until_stopped(&job);
    close_profiles(&job);
    return rc;
}
