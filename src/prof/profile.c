/* The public face of the analyser: finds the trace a request means, loads it when it is first needed, and hands it to the
 * view's emitter. */
#include <quern/profile.h>

#include <string.h>
#include <unistd.h>

#include "prof/analyse.h"
#include "prof/prof_view.h"
#include "prof/runs.h"
#include "prof/trace_source.h"

struct qn_profile {
    qn_arena arena;
    qn_profile_options options;
    prof_runs runs;
};

typedef struct view_row {
    const char *name;
    prof_scope scope;
    prof_view_fn emit;
} view_row;

static const view_row VIEWS[] = {
#define PROF_VIEW(name, scope) {#name, PROF_SCOPE_##scope, qn_prof_view_##name},
#include "prof/views.def"
#undef PROF_VIEW
};

enum { N_VIEWS = sizeof VIEWS / sizeof *VIEWS };

const char *qn_profile_view_name(int view) { return view >= 0 && view < N_VIEWS ? VIEWS[view].name : NULL; }

/* ---- Opening ------------------------------------------------------------------------------------------------------ */

/* A hostile file must not take the whole machine: half of its memory, and never more than 16 GiB. */
static uint64_t memory_limit(void) {
    const uint64_t most = 16ull << 30;
    long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    uint64_t half = pages > 0 && bytes > 0 ? (uint64_t)pages * (uint64_t)bytes / 2 : most;
    return half < most ? half : most;
}

static qn_status check_options(const qn_profile_options *given, qn_profile_options *options, qn_error *error) {
    const uint32_t known = QN_PROFILE_STRICT | QN_PROFILE_DRIVER | QN_PROFILE_OWNER_TIME | QN_PROFILE_HOST_STEPS |
                           QN_PROFILE_COMM_NAMES | QN_PROFILE_OWNER_ENCLOSING;
    const uint32_t owners = QN_PROFILE_OWNER_TIME | QN_PROFILE_OWNER_ENCLOSING;
    *options = qn_profile_options_default();
    if (!given) {
        return QN_OK;
    }
    if (given->size < offsetof(qn_profile_options, reserved)) {
        return qn_error_set(error, QN_ARGUMENT, "the profile options say they have %u bytes", given->size);
    }
    memcpy(options, given, given->size < sizeof *options ? given->size : sizeof *options);
    options->size = (uint32_t)sizeof *options;
    if (options->flags & ~known) {
        return qn_error_set(error, QN_ARGUMENT, "unknown profile flags 0x%x", options->flags & ~known);
    }
    if ((options->flags & owners) == owners) {
        return qn_error_set(error, QN_ARGUMENT, "a runtime call has one owner: by time or by what encloses it, not both");
    }
    if ((unsigned)options->dialect > QN_PROFILE_MLU_B) {
        return qn_error_set(error, QN_ARGUMENT, "unknown profile dialect %d", (int)options->dialect);
    }
    return QN_OK;
}

qn_status qn_profile_open(const char *path, const qn_profile_options *options, qn_profile **profile, qn_error *error) {
    qn_profile_options checked;
    qn_arena arena;
    if (!path || !profile) {
        return qn_error_set(error, QN_ARGUMENT, "qn_profile_open needs a path and a place for the profile");
    }
    *profile = NULL;
    qn_status status = check_options(options, &checked, error);
    if (status != QN_OK) {
        return status;
    }
    qn_arena_init(&arena, 0);
    qn_profile *made = qn_arena_alloc(&arena, 1, sizeof *made);
    if (!made) {
        return qn_error_set(error, QN_NO_MEMORY, "%s: no memory", path);
    }
    made->options = checked;
    made->options.max_memory = checked.max_memory ? checked.max_memory : memory_limit();
    status = qn_prof_runs_list(&arena, path, &made->runs, error);
    if (status != QN_OK) {
        qn_arena_destroy(&arena);
        return status == QN_NO_MEMORY ? qn_error_set(error, status, "%s: no memory", path) : status;
    }
    made->arena = arena; /* the profile lives in its own arena */
    *profile = made;
    return QN_OK;
}

static prof_span *span_at(const qn_profile *profile, int run, int worker, int span) {
    if (!profile || run < 0 || (size_t)run >= profile->runs.n) {
        return NULL;
    }
    const prof_run *r = &profile->runs.at[run];
    if (worker < 0 || (size_t)worker >= r->workers.n || span < 0 || (size_t)span >= r->workers.at[worker].spans.n) {
        return NULL;
    }
    return &r->workers.at[worker].spans.at[span];
}

void qn_profile_close(qn_profile *profile) {
    if (!profile) {
        return;
    }
    for (int run = 0; (size_t)run < profile->runs.n; run++) {
        for (int worker = 0; (size_t)worker < profile->runs.at[run].workers.n; worker++) {
            prof_span *span;
            for (int i = 0; (span = span_at(profile, run, worker, i)) != NULL; i++) {
                if (span->trace) {
                    qn_prof_trace_free(span->trace);
                }
            }
        }
    }
    qn_arena arena = profile->arena;
    qn_arena_destroy(&arena);
}

const char *qn_profile_run_name(const qn_profile *profile, int run) {
    return profile && run >= 0 && (size_t)run < profile->runs.n ? profile->runs.at[run].name : NULL;
}

const char *qn_profile_worker_name(const qn_profile *profile, int run, int worker) {
    return span_at(profile, run, worker, 0) ? profile->runs.at[run].workers.at[worker].name : NULL;
}

const char *qn_profile_span_name(const qn_profile *profile, int run, int worker, int span) {
    const prof_span *found = span_at(profile, run, worker, span);
    return found ? found->name : NULL;
}

const char *qn_profile_trace_path(const qn_profile *profile, int run, int worker, int span) {
    const prof_span *found = span_at(profile, run, worker, span);
    return found ? found->path : NULL;
}

/* ---- Loading ------------------------------------------------------------------------------------------------------ */

static qn_status load(qn_profile *profile, prof_span *span, qn_error *error) {
    if (span->trace) {
        return QN_OK;
    }
    if (span->tried) {
        if (error) {
            *error = *span->failure;
        }
        return span->failure->status;
    }
    prof_trace *trace = qn_arena_alloc(&profile->arena, 1, sizeof *trace);
    qn_error *failure = qn_arena_alloc(&profile->arena, 1, sizeof *failure);
    if (!trace || !failure) {
        return qn_error_set(error, QN_NO_MEMORY, "%s: no memory", span->path);
    }
    qn_status status = qn_prof_trace_load(span->path, &profile->options, trace, failure);
    if (status == QN_OK) {
        span->trace = trace;
    } else {
        span->failure = failure;
        span->tried = status == QN_FORMAT || status == QN_IO; /* a cancelled read, or one without memory, may be tried again */
        if (error) {
            *error = *failure;
        }
    }
    return status;
}

qn_status qn_profile_load(qn_profile *profile, int run, int worker, int span, qn_error *error) {
    prof_span *found = span_at(profile, run, worker, span);
    if (!found) {
        return qn_error_set(error, QN_ARGUMENT, "there is no run %d, worker %d, span %d", run, worker, span);
    }
    return load(profile, found, error);
}

qn_status qn_profile_trace_info(const qn_profile *profile, int run, int worker, int span, qn_profile_info *info) {
    const prof_span *found = span_at(profile, run, worker, span);
    if (!found || !found->trace || !info || info->size < sizeof info->size) {
        return QN_ARGUMENT;
    }
    const prof_trace *trace = found->trace;
    qn_profile_info full;
    memset(&full, 0, sizeof full);
    full.size = info->size;
    full.dialect = trace->dialect;
    full.text_bytes = trace->text_bytes;
    full.events_seen = trace->events_seen;
    full.events_kept = trace->events.n + trace->mems.n;
    full.events_broken = trace->events_broken;
    full.nodes_dropped = trace->nodes_dropped;
    full.orphan_kernels = trace->orphans;
    full.memory_bytes = trace->arena.used;
    full.events_unknown = trace->events_unknown;
    full.events_backward = trace->events_backward;
    memcpy(info, &full, info->size < sizeof full ? info->size : sizeof full);
    return QN_OK;
}

/* ---- Finding what a request means --------------------------------------------------------------------------------- */

static prof_run *find_run(const qn_profile *profile, const char *name) {
    for (size_t i = 0; i < profile->runs.n; i++) {
        if (!name || strcmp(profile->runs.at[i].name, name) == 0) {
            return &profile->runs.at[i];
        }
    }
    return NULL;
}

static prof_worker *find_worker(const prof_run *run, const char *name) {
    for (size_t i = 0; run && i < run->workers.n; i++) {
        if (!name || strcmp(run->workers.at[i].name, name) == 0) {
            return &run->workers.at[i];
        }
    }
    return NULL;
}

static prof_span *find_span(const prof_worker *worker, const char *name) {
    for (size_t i = 0; worker && i < worker->spans.n; i++) {
        if (!name || strcmp(worker->spans.at[i].name, name) == 0) {
            return &worker->spans.at[i];
        }
    }
    return NULL;
}

static qn_status find_trace(qn_profile *profile, const char *run, const char *worker, const char *span, const prof_trace **trace,
                            qn_error *error) {
    const prof_run *r = find_run(profile, run);
    const prof_worker *w = find_worker(r, worker);
    prof_span *s = find_span(w, span);
    if (!s) {
        const char *what = !r ? "run" : !w ? "worker" : "span", *name = !r ? run : !w ? worker : span;
        return qn_error_set(error, QN_ARGUMENT, "there is no %s named %.200s", what, name ? name : "(any)");
    }
    qn_status status = load(profile, s, error);
    *trace = s->trace;
    return status;
}

/* ---- Contexts of the scopes --------------------------------------------------------------------------------------- */

static qn_status copy_unpacked(const prof_trace *trace, qn_profile_write_fn write, void *user, qn_error *error) {
    qn_profile_options options = trace->options;
    prof_window window;
    qn_arena arena;
    options.progress = NULL;
    qn_arena_init(&arena, 0);
    qn_status status = qn_prof_window_open(&window, &arena, trace->path, &options, error);
    int last = 0;
    while (status == QN_OK && !last) {
        last = window.last;
        status = window.length ? write(user, window.at, window.length) : QN_OK;
        if (status == QN_OK && !last) {
            status = qn_prof_window_refill(&window, window.length, error);
        }
    }
    qn_prof_window_close(&window);
    qn_arena_destroy(&arena);
    return status;
}

static size_t usable_workers(const prof_run *run) {
    size_t n = 0;
    for (size_t i = 0; i < run->workers.n; i++) {
        const prof_worker *worker = &run->workers.at[i];
        int usable = 0;
        for (size_t j = 0; j < worker->spans.n; j++) {
            usable |= worker->spans.at[j].trace || !worker->spans.at[j].tried;
        }
        n += (size_t)usable;
    }
    return n;
}

/* Workers of a run that have the span and can be analysed; the others are left out. Only a stop ends it. */
static qn_status join_span(qn_profile *profile, qn_arena *arena, const prof_run *run, const char *span, prof_dist *dist,
                           qn_error *error) {
    prof_dist_worker *workers = qn_arena_alloc(arena, run->workers.n, sizeof *workers);
    size_t n = 0;
    if (!workers) {
        return qn_error_set(error, QN_NO_MEMORY, "no memory for %zu workers", run->workers.n);
    }
    for (size_t i = 0; i < run->workers.n; i++) {
        prof_span *found = find_span(&run->workers.at[i], span);
        qn_status status = found ? load(profile, found, error) : QN_FORMAT;
        if (status == QN_CANCELLED || status == QN_NO_MEMORY) {
            return status;
        }
        if (status == QN_OK) {
            workers[n].name = run->workers.at[i].name;
            workers[n++].trace = found->trace;
        }
    }
    qn_status status = qn_prof_dist_build(arena, workers, n, dist);
    return status == QN_OK ? QN_OK : qn_error_set(error, status, "no memory to compare %zu workers", n);
}

static qn_status context_of_span(qn_profile *profile, prof_view_context *context, qn_error *error) {
    const prof_run *run = find_run(profile, context->request->run);
    const char *span = context->request->span;
    prof_dist *dist = qn_arena_alloc(context->arena, 1, sizeof *dist);
    if (!run || !dist) {
        return qn_error_set(error, dist ? QN_ARGUMENT : QN_NO_MEMORY, "there is no such run");
    }
    if (!span) {
        span = run->workers.at[0].spans.at[0].name;
    }
    context->dist = dist;
    return join_span(profile, context->arena, run, span, dist, error);
}

static qn_status load_worker(qn_profile *profile, qn_arena *arena, prof_worker *worker, prof_run_worker *into, qn_error *error) {
    const prof_trace **traces = qn_arena_alloc(arena, worker->spans.n, sizeof(void *));
    if (!traces) {
        return qn_error_set(error, QN_NO_MEMORY, "no memory for %zu spans", worker->spans.n);
    }
    into->name = worker->name;
    into->traces = traces;
    into->n_traces = 0;
    for (size_t i = 0; i < worker->spans.n; i++) {
        qn_status status = load(profile, &worker->spans.at[i], error);
        if (status == QN_CANCELLED || status == QN_NO_MEMORY) {
            return status;
        }
        if (status == QN_OK) {
            traces[into->n_traces++] = worker->spans.at[i].trace;
        }
    }
    return QN_OK;
}

static qn_status context_of_run(qn_profile *profile, prof_view_context *context, qn_error *error) {
    const prof_run *run = find_run(profile, context->request->run);
    prof_run_worker *workers = run ? qn_arena_alloc(context->arena, run->workers.n, sizeof *workers) : NULL;
    if (!workers) {
        return qn_error_set(error, run ? QN_NO_MEMORY : QN_ARGUMENT, "there is no such run");
    }
    for (size_t i = 0; i < run->workers.n; i++) {
        prof_run_worker *into = &workers[context->n_workers];
        qn_status status = load_worker(profile, context->arena, &run->workers.at[i], into, error);
        if (status != QN_OK) {
            return status;
        }
        context->n_workers += into->n_traces != 0;
    }
    context->workers = workers;
    for (size_t i = 0; i < run->workers.n && !context->run_has_distributed; i++) {
        for (size_t j = 0; j < run->workers.at[i].spans.n && !context->run_has_distributed; j++) {
            prof_dist dist;
            qn_status status = join_span(profile, context->arena, run, run->workers.at[i].spans.at[j].name, &dist, error);
            if (status != QN_OK) {
                return status;
            }
            context->run_has_distributed = dist.exists;
        }
    }
    return QN_OK;
}

static qn_status context_of_trace(qn_profile *profile, prof_view_context *context, prof_scope scope, qn_error *error) {
    const qn_profile_request *request = context->request;
    qn_status status = find_trace(profile, request->run, request->worker, request->span, &context->trace, error);
    if (status != QN_OK) {
        return status;
    }
    context->n_workers = usable_workers(find_run(profile, request->run));
    if (scope == PROF_SCOPE_PAIR) {
        qn_profile *other = request->against ? request->against : profile;
        return find_trace(other, request->against_run, request->against_worker, request->against_span, &context->other, error);
    }
    return QN_OK;
}

/* ---- Views -------------------------------------------------------------------------------------------------------- */

static qn_status emit(qn_profile *profile, const view_row *view, prof_view_context *context, qn_profile_write_fn write,
                      void *user, qn_error *error) {
    qn_status status = view->scope == PROF_SCOPE_SPAN  ? context_of_span(profile, context, error)
                       : view->scope == PROF_SCOPE_RUN ? context_of_run(profile, context, error)
                                                       : context_of_trace(profile, context, view->scope, error);
    prof_json *json = status == QN_OK ? qn_arena_alloc(context->arena, 1, sizeof *json) : NULL;
    if (!json) {
        return status != QN_OK ? status : qn_error_set(error, QN_NO_MEMORY, "no memory to write");
    }
    qn_prof_json_init(json, write, user);
    status = view->emit(context, json, error);
    if (status == QN_NO_MEMORY) {
        qn_error_set(error, status, "no memory for the view %s", view->name);
    }
    if (status != QN_OK) {
        return status;
    }
    status = qn_prof_json_finish(json);
    return status == QN_OK ? QN_OK : qn_error_set(error, status, "the view %s could not be written", view->name);
}

qn_status qn_profile_view(qn_profile *profile, const char *view, const qn_profile_request *request, qn_profile_write_fn write,
                          void *user, qn_error *error) {
    qn_profile_request checked = qn_profile_request_default();
    const view_row *row = NULL;
    for (int i = 0; view && i < N_VIEWS; i++) {
        row = strcmp(VIEWS[i].name, view) == 0 ? &VIEWS[i] : row;
    }
    if (!profile || !row || !write) {
        return qn_error_set(error, QN_ARGUMENT, "there is no view named %.100s", view ? view : "(none)");
    }
    if (request) {
        if (request->size < offsetof(qn_profile_request, run)) {
            return qn_error_set(error, QN_ARGUMENT, "the request says it has %u bytes", request->size);
        }
        memcpy(&checked, request, request->size < sizeof checked ? request->size : sizeof checked);
    }
    qn_arena arena;
    prof_view_context context;
    qn_arena_init(&arena, (size_t)profile->options.max_memory);
    memset(&context, 0, sizeof context);
    context.arena = &arena;
    context.request = &checked;
    context.copy_text = copy_unpacked;
    qn_status status = emit(profile, row, &context, write, user, error);
    qn_arena_destroy(&arena);
    return status;
}
