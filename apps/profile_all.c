/* quern profile all: every view of every trace, in a folder laid out like the reference data:
 * <run>/views.json, <run>/<worker>.span<N>/<view>.json, <run>/All.span<N>/distributed_*.json. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "app.h"
#include "profile_cmd.h"

typedef struct folder {
    profile_job *job;
    const char *run;
    char path[4096];
    int written, failed;
    int loaded; /* traces of the current run */
} folder;

static int is_distributed(const char *view) { return strncmp(view, "distributed_", 12) == 0; }

/* The page's feed repeats the trace event by event, and a diff needs two traces. */
static int is_left_out(const char *view) { return strncmp(view, "timeline", 8) == 0 || strcmp(view, "diff") == 0; }

static int is_of_run(const char *view) { return strcmp(view, "views") == 0 || strcmp(view, "workers") == 0; }

/* Makes every folder on the way. */
static int make_folders(char *path) {
    for (char *p = path + 1;; p++) {
        char c = *p;
        if (c == '/' || c == 0) {
            *p = 0;
            int failed = mkdir(path, 0777) != 0 && errno != EEXIST;
            if (failed) fprintf(stderr, "quern profile: %s: cannot make the folder: %s\n", path, strerror(errno));
            *p = c;
            if (failed) return 0;
        }
        if (c == 0) return 1;
    }
}

/* out/run/part; the run of a single folder has no name of its own. */
static int set_folder(folder *f, const char *part) {
    int named = f->run && *f->run && strcmp(f->run, ".") != 0;
    int n = snprintf(f->path, sizeof f->path, "%s%s%s%s%s", f->job->out, named ? "/" : "", named ? f->run : "", part ? "/" : "",
                     part ? part : "");
    if (n < 0 || (size_t)n >= sizeof f->path - 64) {
        fprintf(stderr, "quern profile: %s: the name is too long\n", f->job->out);
        return 0;
    }
    return make_folders(f->path);
}

typedef struct hashing {
    sha256 hash;
    uint64_t bytes;
} hashing;

static qn_status hash_some(void *user, const char *text, size_t n) {
    hashing *h = user;
    sha256_add(&h->hash, text, n);
    h->bytes += n;
    return profile_was_interrupted() ? QN_CANCELLED : QN_OK;
}

/* The trace view is the trace with a few lines more: its hash tells as much and takes no room. */
static qn_status write_hash(const profile_job *job, const qn_profile_request *request, FILE *to, qn_error *error) {
    hashing h = {.bytes = 0};
    char hex[65];
    sha256_begin(&h.hash);
    qn_status status = qn_profile_view(job->profile, "trace_view", request, hash_some, &h, error);
    if (status != QN_OK) return status;
    sha256_end(&h.hash, hex);
    fprintf(to, "%s  %llu bytes, uncompressed trace view\n", hex, (unsigned long long)h.bytes);
    return QN_OK;
}

/* Returns 0 when the whole job must stop. */
static int write_one(folder *f, const char *view, const qn_profile_request *request) {
    int hashed = strcmp(view, "trace_view") == 0;
    size_t n = strlen(f->path);
    qn_error error;
    out_file out;
    snprintf(f->path + n, sizeof f->path - n, "/%s.%s", view,
             hashed                        ? "sha256"
             : f->job->form == PRINT_CSV   ? "csv"
             : f->job->form == PRINT_TABLE ? "txt"
                                           : "json");
    int opened = out_open(&out, f->path);
    f->path[n] = 0;
    if (!opened) return 0;
    qn_status status = hashed ? write_hash(f->job, request, out.to, &error)
                              : profile_write_view(f->job, view, request, out.to, &error);
    if (status == QN_OK) {
        f->written++;
        return out_commit(&out);
    }
    out_discard(&out);
    profile_clear_progress(&f->job->options);
    if (status == QN_UNSUPPORTED) return 1; /* this trace has no such view */
    if (status != QN_CANCELLED) fprintf(stderr, "quern profile: %s\n", error.text);
    f->failed = 1;
    return status != QN_CANCELLED && status != QN_IO && status != QN_NO_MEMORY;
}

static int write_trace(folder *f, int run, int worker, int span) {
    qn_profile *profile = f->job->profile;
    qn_profile_request request = f->job->request;
    qn_error error;
    char part[1024];
    request.run = f->run;
    request.worker = qn_profile_worker_name(profile, run, worker);
    request.span = qn_profile_span_name(profile, run, worker, span);
    qn_status status = qn_profile_load(profile, run, worker, span, &error);
    profile_clear_progress(&f->job->options);
    if (status != QN_OK) { /* the others stay */
        if (status != QN_CANCELLED) fprintf(stderr, "quern profile: %s\n", error.text);
        f->failed = 1;
        return status != QN_CANCELLED;
    }
    f->loaded++;
    profile_report(f->job, run, worker, span);
    snprintf(part, sizeof part, "%s.span%s", request.worker, request.span);
    if (!set_folder(f, part)) return 0;
    const char *view;
    for (int v = 0; (view = qn_profile_view_name(v)) != NULL; v++)
        if (!is_distributed(view) && !is_of_run(view) && !is_left_out(view) && !write_one(f, view, &request)) return 0;
    return 1;
}

/* All workers of one span together. The folder is made only when there is something for it. */
static int write_span(folder *f, const char *span) {
    qn_profile_request request = f->job->request;
    const char *view;
    char part[1024];
    json_text probe = {0};
    qn_error error;
    request.run = f->run;
    request.worker = NULL;
    request.span = span;
    qn_status status = qn_profile_view(f->job->profile, "distributed_overlap", &request, json_append, &probe, &error);
    json_free(&probe);
    if (status != QN_OK) return status != QN_CANCELLED;
    snprintf(part, sizeof part, "All.span%s", span);
    if (!set_folder(f, part)) return 0;
    for (int v = 0; (view = qn_profile_view_name(v)) != NULL; v++)
        if (is_distributed(view) && !write_one(f, view, &request)) return 0;
    return 1;
}

/* Whether an earlier worker has a span of that name. */
static int is_known_span(const qn_profile *profile, int run, int worker, const char *span) {
    const char *name;
    for (int w = 0; w < worker; w++)
        for (int s = 0; (name = qn_profile_span_name(profile, run, w, s)) != NULL; s++)
            if (strcmp(name, span) == 0) return 1;
    return 0;
}

static int write_run(folder *f, int run) {
    qn_profile *profile = f->job->profile;
    qn_profile_request request = f->job->request;
    const char *span;
    f->loaded = 0;
    for (int w = 0; qn_profile_worker_name(profile, run, w); w++)
        for (int s = 0; qn_profile_span_name(profile, run, w, s); s++)
            if (!write_trace(f, run, w, s)) return 0;
    if (f->loaded == 0) return 1;
    for (int w = 0; qn_profile_worker_name(profile, run, w); w++)
        for (int s = 0; (span = qn_profile_span_name(profile, run, w, s)) != NULL; s++)
            if (!is_known_span(profile, run, w, span) && !write_span(f, span)) return 0;
    request.run = f->run;
    return set_folder(f, NULL) && write_one(f, "views", &request) && write_one(f, "workers", &request);
}

int profile_all(profile_job *job) {
    folder *f = calloc(1, sizeof *f);
    int whole = 1;
    if (!f) {
        fprintf(stderr, "quern profile: no memory\n");
        return APP_FAILED;
    }
    f->job = job;
    for (int run = 0; whole && (f->run = qn_profile_run_name(job->profile, run)) != NULL; run++) {
        if (job->request.run && strcmp(job->request.run, f->run) != 0) continue;
        whole = write_run(f, run);
    }
    int failed = f->failed || !whole || f->written == 0;
    profile_clear_progress(&job->options);
    fprintf(stderr, "%d file%s in %s\n", f->written, app_s(f->written), job->out);
    free(f);
    return profile_was_interrupted() ? PROFILE_INTERRUPTED : failed ? APP_FAILED : APP_OK;
}
