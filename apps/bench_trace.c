/* The analyser's half of `quern bench profile`: all views of a trace file, then a trace of about a gigabyte made by repeating the
 * file's events. The large file lies in a temporary folder and is removed again, also when the run is interrupted. */
#include <quern/profile.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "app.h"
#include "bench.h"

static const uint64_t LARGE = 1000000000;
enum { LIMIT_MB_S = 300 };

static volatile sig_atomic_t interrupted;
static volatile int cancel; /* what the analyser watches */

static void on_signal(int number) {
    (void)number;
    interrupted = 1;
    cancel = 1;
}

static int complain(const char *what, const char *why) {
    fprintf(stderr, "quern bench profile: %s: %s\n", what, why);
    return APP_FAILED;
}

/* The library names the file itself. */
static int pass_on(const qn_error *error) {
    fprintf(stderr, "quern bench profile: %s\n", error->text);
    return APP_FAILED;
}

/* ---- Figures ------------------------------------------------------------------------------------------------------ */

enum { REPEATS = 5 };

typedef struct figures {
    double at[REPEATS];
    int n;
} figures;

static void add_figure(figures *f, double value) { /* what could not be measured is 0, and left out */
    if (value > 0) f->at[f->n++] = value;
}

static double median(const figures *f) {
    double sorted[REPEATS] = {0};
    for (int i = 0; i < f->n; i++) {
        int at = i;
        for (; at > 0 && sorted[at - 1] > f->at[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = f->at[i];
    }
    return sorted[f->n / 2];
}

static void print_all(const figures *f, double scale, const char *unit) {
    for (int i = 0; i < f->n; i++) printf("%s%.0f", i ? ", " : " (", f->at[i] * scale);
    printf(" %s)\n", unit);
}

/* Processor time of this process: what a core that does nothing else would take. */
static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double children_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static double peak_mb(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss * 1024 / 1e6;
}

/* ---- What other programs take for the same file ------------------------------------------------------------------- */

/* Runs a program with its input and output as given; -1: could not. */
static pid_t start(char *const argv[], int in, int out, int unused) {
    pid_t child = fork();
    if (child != 0) return child;
    int nowhere = open("/dev/null", O_RDWR);
    dup2(in < 0 ? nowhere : in, STDIN_FILENO);
    dup2(out < 0 ? nowhere : out, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    if (unused >= 0) close(unused);
    execvp(argv[0], argv);
    _exit(127);
}

static int succeeded(pid_t child) {
    int status;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Seconds of `zcat file | wc`, both together; 0 when one of them is not there. */
static double time_zcat_wc(const char *path) {
    char *zcat[] = {"zcat", "-f", (char *)path, NULL}, *wc[] = {"wc", NULL};
    int ends[2];
    if (pipe(ends) != 0) return 0;
    double before = children_seconds();
    pid_t first = start(zcat, -1, ends[1], ends[0]), second = start(wc, ends[0], -1, ends[1]);
    close(ends[0]);
    close(ends[1]);
    int first_ok = succeeded(first), second_ok = succeeded(second);
    return first_ok && second_ok ? children_seconds() - before : 0;
}

/* Seconds Python takes to unpack the file and to parse its JSON, as it says itself; 0 when there is no Python. */
static double time_python(const char *path) {
    static char program[] = "import gzip, json, sys, time\n"
                            "began = time.process_time()\n"
                            "opener = gzip.open if sys.argv[1].endswith('.gz') else open\n"
                            "json.loads(opener(sys.argv[1], 'rb').read())\n"
                            "print(time.process_time() - began)\n";
    char *python[] = {"python3", "-c", program, (char *)path, NULL};
    char said[64] = "";
    int ends[2];
    if (pipe(ends) != 0) return 0;
    pid_t child = start(python, -1, ends[1], ends[0]);
    close(ends[1]);
    ssize_t n = read(ends[0], said, sizeof said - 1);
    close(ends[0]);
    return succeeded(child) && n > 0 ? strtod(said, NULL) : 0;
}

/* ---- All views ---------------------------------------------------------------------------------------------------- */

/* The Python analyser on a trace of 35.2 MB, as it was measured on an Arm Neoverse-V1: everything, and of that unpacking the file
 * and parsing its JSON, which is the same work wherever there is a Python. */
enum { REFERENCE_MS = 3000, REFERENCE_PARSE_MS = 680, LIMIT_TIMES = 20 };
static const double REFERENCE_MB = 35.2;

static qn_status count_bytes(void *user, const char *text, size_t length) {
    (void)text;
    *(uint64_t *)user += length;
    return QN_OK;
}

/* The views the reference has and its published time counts: not the file itself, nor what only we show. */
static int is_compared(const char *view) {
    static const char *const ours[] = {"trace_view", "timeline", "timeline_args", "roofline", "parts"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strcmp(view, ours[i]) == 0) return 0;
    return 1;
}

typedef struct pass { /* one trace read, analysed, and shown */
    qn_profile_info info;
    double read, shown; /* processor time in seconds */
    int views;
    uint64_t bytes;
} pass;

static int view_all(const char *path, pass *p) {
    qn_error error;
    qn_profile *profile;
    qn_profile_options options = qn_profile_options_default();
    options.cancel = &cancel;
    memset(p, 0, sizeof *p);
    p->info.size = sizeof p->info;
    double began = cpu_seconds();
    if (qn_profile_open(path, &options, &profile, &error) != QN_OK) return pass_on(&error);
    if (qn_profile_load(profile, 0, 0, 0, &error) != QN_OK || qn_profile_trace_info(profile, 0, 0, 0, &p->info) != QN_OK) {
        qn_profile_close(profile);
        return pass_on(&error);
    }
    double loaded = cpu_seconds();
    for (int i = 0; qn_profile_view_name(i) && !interrupted; i++)
        if (is_compared(qn_profile_view_name(i)))
            p->views += qn_profile_view(profile, qn_profile_view_name(i), NULL, count_bytes, &p->bytes, &error) == QN_OK;
    p->read = loaded - began;
    p->shown = cpu_seconds() - loaded;
    qn_profile_close(profile);
    return interrupted ? APP_FAILED : APP_OK;
}

static void compare(const figures *all, const figures *zcat, const figures *python, double mb) {
    double share = mb / REFERENCE_MB, ours = median(all) * 1e3, theirs = REFERENCE_MS * share;
    printf("  the Python analyser         %8.0f ms on a Neoverse-V1, for as much text: %.1f times as long\n", theirs,
           theirs / ours);
    if (zcat->n) {
        printf("  zcat | wc here              %8.1f ms: the analyser takes %.2f of that", median(zcat) * 1e3,
               ours / (median(zcat) * 1e3));
        print_all(zcat, 1e3, "ms");
    }
    if (python->n) {
        double there = REFERENCE_PARSE_MS * share, times = theirs * (median(python) * 1e3 / there) / ours;
        printf("  Python's gzip and json here %8.1f ms, %.0f ms there: scaled by that, %.1f times as long (limit %d: %s)",
               median(python) * 1e3, there, times, LIMIT_TIMES, times >= LIMIT_TIMES ? "kept" : "not reached");
        print_all(python, 1e3, "ms");
    } else {
        printf("  no python3 here: not scaled by how fast this machine is\n");
    }
}

static int time_views(const char *path) {
    pass p;
    figures all = {{0}, 0}, read = {{0}, 0}, shown = {{0}, 0}, zcat = {{0}, 0}, python = {{0}, 0};
    double before = peak_mb(), peak = 0;
    for (int i = 0; i < REPEATS; i++) { /* in turns, so that all meet the same machine */
        int rc = view_all(path, &p);
        if (rc != APP_OK) return rc;
        peak = i ? peak : peak_mb();
        add_figure(&read, p.read);
        add_figure(&shown, p.shown);
        add_figure(&all, p.read + p.shown);
        add_figure(&zcat, time_zcat_wc(path));
        add_figure(&python, time_python(path));
    }
    double mb = (double)p.info.text_bytes / 1e6;
    printf("analyser, %s: %.1f MB of text, %llu events; processor time, median of %d\n", path, mb,
           (unsigned long long)p.info.events_seen, REPEATS);
    printf("  read and analysed           %8.1f ms\n", median(&read) * 1e3);
    printf("  %2d views                    %8.1f ms, %.1f MB of JSON\n", p.views, median(&shown) * 1e3, (double)p.bytes / 1e6);
    printf("  together                    %8.1f ms", median(&all) * 1e3);
    print_all(&all, 1e3, "ms");
    printf("  peak memory                 %8.0f MB (%.0f MB before)\n", peak, before);
    compare(&all, &zcat, &python, mb);
    return APP_OK;
}

/* ---- The large trace ---------------------------------------------------------------------------------------------- */

typedef struct text {
    char *at;
    size_t length;
} text;

/* The unpacked file; zlib passes plain ones through. */
static int read_all(const char *path, text *all) {
    gzFile file = gzopen(path, "rb");
    size_t capacity = 0;
    int got = 0;
    if (!file) return complain(path, "it cannot be opened");
    do {
        all->length += (size_t)got;
        if (capacity - all->length < 1 << 20) {
            capacity = capacity * 2 + (4 << 20);
            char *more = capacity < LARGE ? realloc(all->at, capacity) : NULL;
            if (!more) {
                gzclose(file);
                return complain(path, "it is too large to be repeated");
            }
            all->at = more;
        }
    } while ((got = gzread(file, all->at + all->length, 1 << 20)) > 0);
    gzclose(file);
    all->at[all->length] = 0;
    return got < 0 ? complain(path, "it cannot be read") : APP_OK;
}

/* Where the items of traceEvents begin and end; 0 when there are none. */
static int find_events(const text *all, size_t *first, size_t *last) {
    const char *key = strstr(all->at, "\"traceEvents\"");
    const char *at = key ? strchr(key, '[') : NULL;
    int depth = 0, in_string = 0;
    if (!at) return 0;
    *first = (size_t)(++at - all->at);
    for (; *at; at++) {
        if (in_string) {
            if (*at == '\\' && at[1]) at++;
            else if (*at == '"') in_string = 0;
        } else if (*at == '"') {
            in_string = 1;
        } else if (*at == '[' || *at == '{') {
            depth++;
        } else if ((*at == ']' || *at == '}') && depth-- == 0) {
            *last = (size_t)(at - all->at);
            return *last > *first;
        }
    }
    return 0;
}

static int repeat_into(FILE *file, const text *all, size_t first, size_t last) {
    int ok = fwrite(all->at, 1, last, file) == last;
    for (uint64_t size = all->length; ok && !interrupted && size < LARGE; size += last - first + 2)
        ok = fputs(",\n", file) >= 0 && fwrite(all->at + first, 1, last - first, file) == last - first;
    ok = ok && fwrite(all->at + last, 1, all->length - last, file) == all->length - last;
    return fclose(file) == 0 && ok;
}

static int make_large(const char *path, const char *large) {
    text all = {NULL, 0};
    size_t first, last;
    int rc = read_all(path, &all);
    if (rc == APP_OK && !find_events(&all, &first, &last)) rc = complain(path, "it has no events to repeat");
    FILE *file = rc == APP_OK ? fopen(large, "wb") : NULL;
    if (rc == APP_OK && (!file || !repeat_into(file, &all, first, last))) rc = complain(large, "it cannot be written");
    free(all.at);
    return rc;
}

static int read_large(const char *large, double *rate, qn_profile_info *info) {
    qn_error error;
    qn_profile *profile;
    qn_profile_options options = qn_profile_options_default();
    options.cancel = &cancel;
    info->size = sizeof *info;
    double cpu = cpu_seconds();
    if (qn_profile_open(large, &options, &profile, &error) != QN_OK) return pass_on(&error);
    qn_status status = qn_profile_load(profile, 0, 0, 0, &error);
    cpu = cpu_seconds() - cpu;
    if (status == QN_OK) status = qn_profile_trace_info(profile, 0, 0, 0, info);
    qn_profile_close(profile);
    *rate = (double)info->text_bytes / 1e6 / cpu;
    return status == QN_OK ? APP_OK : pass_on(&error);
}

static int time_large(const char *large) {
    qn_profile_info info;
    figures rates = {{0}, 0};
    for (int i = 0; i < REPEATS; i++) {
        double rate;
        int rc = read_large(large, &rate, &info);
        if (rc != APP_OK) return rc;
        add_figure(&rates, rate);
    }
    double rate = median(&rates);
    printf("analyser, the same events repeated to %.2f GB, %llu events; one core, median of %d\n", (double)info.text_bytes / 1e9,
           (unsigned long long)info.events_seen, REPEATS);
    printf("  read and analysed           %8.0f MB/s of processor time (limit %d MB/s: %s)", rate, LIMIT_MB_S,
           rate >= LIMIT_MB_S ? "kept" : "not reached");
    print_all(&rates, 1, "MB/s");
    printf("  peak memory                 %8.0f MB\n", peak_mb());
    return rate >= LIMIT_MB_S ? APP_OK : APP_FAILED;
}

int bench_trace(const char *path) {
    const char *place = getenv("TMPDIR");
    char folder[512], large[600];
    snprintf(folder, sizeof folder, "%s/quern-bench-XXXXXX", place && *place ? place : "/tmp");
    int rc = time_views(path);
    if (rc != APP_OK) return rc;
    if (!mkdtemp(folder)) return complain(folder, "it cannot be made");
    app_catch_end(on_signal, 0);
    snprintf(large, sizeof large, "%s/large.pt.trace.json", folder);
    rc = make_large(path, large);
    if (rc == APP_OK && !interrupted) rc = time_large(large);
    unlink(large);
    rmdir(folder);
    app_catch_end(SIG_DFL, 0);
    return interrupted ? complain(path, "interrupted") : rc;
}
