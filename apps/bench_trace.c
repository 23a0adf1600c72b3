/* The analyser's half of `quern bench profile`: all views of a trace file, then a trace of about a gigabyte made by repeating the
 * file's events. The large file lies in a temporary folder and is removed again, also when the run is interrupted. */
#include <quern/profile.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
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

/* ---- All views ---------------------------------------------------------------------------------------------------- */

static qn_status count_bytes(void *user, const char *text, size_t length) {
    (void)text;
    *(uint64_t *)user += length;
    return QN_OK;
}

/* Processor time of this process: what a core that does nothing else would take. */
static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double peak_mb(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss * 1024 / 1e6;
}

/* The views the reference has and its published time counts: not the file itself, nor what only we show. */
static int is_compared(const char *view) {
    static const char *const ours[] = {"trace_view", "timeline", "timeline_args", "roofline", "parts"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strcmp(view, ours[i]) == 0) return 0;
    return 1;
}

enum { REFERENCE_MS = 3000 }; /* the Python analyser on a trace of 35 MB, as it was measured on an Arm Neoverse-V1 */

static int time_views(const char *path) {
    qn_error error;
    qn_profile *profile;
    qn_profile_options options = qn_profile_options_default();
    options.cancel = &cancel;
    double before = peak_mb(), start = bench_now(), cpu = cpu_seconds();
    if (qn_profile_open(path, &options, &profile, &error) != QN_OK) return complain(path, error.text);
    qn_profile_info info;
    info.size = sizeof info;
    if (qn_profile_load(profile, 0, 0, 0, &error) != QN_OK || qn_profile_trace_info(profile, 0, 0, 0, &info) != QN_OK) {
        qn_profile_close(profile);
        return complain(path, error.text);
    }
    double loaded = bench_now();
    int views = 0;
    uint64_t bytes = 0;
    for (int i = 0; qn_profile_view_name(i) && !interrupted; i++)
        if (is_compared(qn_profile_view_name(i)))
            views += qn_profile_view(profile, qn_profile_view_name(i), NULL, count_bytes, &bytes, &error) == QN_OK;
    double end = bench_now();
    cpu = cpu_seconds() - cpu;
    qn_profile_close(profile);
    printf("analyser, %s\n", path);
    printf("  read and analysed           %8.1f ms, %.1f MB of text, %llu events\n", (loaded - start) / 1e6,
           (double)info.text_bytes / 1e6, (unsigned long long)info.events_seen);
    printf("  %2d views                    %8.1f ms, %.1f MB of JSON\n", views, (end - loaded) / 1e6, (double)bytes / 1e6);
    printf("  together                    %8.1f ms, %.1f ms of processor time, peak memory %.0f MB (%.0f MB before)\n",
           (end - start) / 1e6, cpu * 1e3, peak_mb(), before);
    printf("  the Python analyser took %d ms for its 35 MB on a Neoverse-V1: %.0f times as long per byte\n", REFERENCE_MS,
           REFERENCE_MS / 35.2 / (cpu * 1e9 / (double)info.text_bytes));
    return interrupted ? APP_FAILED : APP_OK;
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

static int time_large(const char *large) {
    qn_error error;
    qn_profile *profile;
    qn_profile_info info;
    qn_profile_options options = qn_profile_options_default();
    options.cancel = &cancel;
    info.size = sizeof info;
    double start = bench_now(), cpu = cpu_seconds();
    if (qn_profile_open(large, &options, &profile, &error) != QN_OK) return complain(large, error.text);
    qn_status status = qn_profile_load(profile, 0, 0, 0, &error);
    double seconds = (bench_now() - start) / 1e9;
    cpu = cpu_seconds() - cpu;
    if (status == QN_OK) status = qn_profile_trace_info(profile, 0, 0, 0, &info);
    qn_profile_close(profile);
    if (status != QN_OK) return complain(large, error.text);
    double rate = (double)info.text_bytes / 1e6 / cpu;
    printf("analyser, the same events repeated to %.2f GB, one core\n", (double)info.text_bytes / 1e9);
    printf("  read and analysed           %8.0f MB/s of processor time (limit %d MB/s: %s)\n", rate, LIMIT_MB_S,
           rate >= LIMIT_MB_S ? "kept" : "not reached");
    printf("  took                        %8.2f s, %llu events, peak memory %.0f MB\n", seconds,
           (unsigned long long)info.events_seen, peak_mb());
    return rate >= LIMIT_MB_S ? APP_OK : APP_FAILED;
}

int bench_trace(const char *path) {
    const char *place = getenv("TMPDIR");
    char folder[512], large[600];
    snprintf(folder, sizeof folder, "%s/quern-bench-XXXXXX", place && *place ? place : "/tmp");
    int rc = time_views(path);
    if (rc != APP_OK) return rc;
    if (!mkdtemp(folder)) return complain(folder, "it cannot be made");
    struct sigaction action, old_int, old_term;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigaction(SIGINT, &action, &old_int);
    sigaction(SIGTERM, &action, &old_term);
    snprintf(large, sizeof large, "%s/large.pt.trace.json", folder);
    rc = make_large(path, large);
    if (rc == APP_OK && !interrupted) rc = time_large(large);
    unlink(large);
    rmdir(folder);
    sigaction(SIGINT, &old_int, NULL);
    sigaction(SIGTERM, &old_term, NULL);
    return interrupted ? complain(path, "interrupted") : rc;
}
