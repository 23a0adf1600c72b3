/* Quern's trace analyser: reads Chrome-trace JSON as PyTorch (CUDA, MLU, CPU only) and Quern itself write it, plain or .gz, and
 * answers the views of the PyTorch profiler as JSON: same keys, same order, same numbers.
 *
 *     qn_profile *profile;
 *     qn_profile_options options = qn_profile_options_default();
 *     if (qn_profile_open("logs", &options, &profile, &error) == QN_OK) {
 *         qn_profile_view(profile, "overview", NULL, my_write, my_file, &error);
 *         qn_profile_close(profile);
 *     }
 *
 * A path is one trace file or a log directory. In a directory every folder that holds files named
 * <worker>[.<digits>].pt.trace.json[.gz] is a run. Opening lists; a trace is read and analysed when a view first needs it and
 * is kept until close. A profile is used by one thread at a time; different profiles share nothing. */
#include <quern/quern.h> /* which includes this file at its end: either way in, everything is there, in order */
#ifndef QUERN_PROFILE_H
#define QUERN_PROFILE_H

#ifdef __cplusplus
extern "C" {
#endif

/* Which edition of the reference is followed. AUTO: MLU_A for traces of MLU devices, MLU_B when one file holds both GPU and MLU
 * work, else UPSTREAM. */
typedef enum qn_profile_dialect {
    QN_PROFILE_AUTO,
    QN_PROFILE_UPSTREAM, /* PyTorch profiler plugin 0.4.3 */
    QN_PROFILE_MLU_A,    /* torch_mlu, MLU only */
    QN_PROFILE_MLU_B     /* torch_mlu, GPU and MLU together */
} qn_profile_dialect;

enum {
    QN_PROFILE_STRICT = 1u,      /* reject what the reference rejects, instead of answering what can be answered */
    QN_PROFILE_DRIVER = 2u,      /* cuda_driver calls count as runtime calls (Triton and compiled code launch through them) */
    QN_PROFILE_OWNER_TIME = 4u,  /* a runtime call belongs to the innermost operator around it on its thread, whatever the ids */
    QN_PROFILE_HOST_STEPS = 8u,  /* steps annotated on device tracks are not steps of their own */
    QN_PROFILE_COMM_NAMES = 16u, /* kernels named like collective libraries are communication */
    /* A runtime call takes the id of the last event with one that encloses it on its pid and tid: torch_mlu's rule for GPU traces
     * of PyTorch 2.1. Not together with OWNER_TIME. */
    QN_PROFILE_OWNER_ENCLOSING = 32u
};

/* Bytes of trace text taken in so far, of which total are expected (both as stored, so compressed for .gz). */
typedef void (*qn_profile_progress_fn)(void *user, const char *path, uint64_t done, uint64_t total);

typedef struct qn_profile_options {
    uint32_t size;  /* sizeof(qn_profile_options) */
    uint32_t flags; /* QN_PROFILE_STRICT and so on */
    qn_profile_dialect dialect;
    int32_t reserved;
    uint64_t max_text;   /* most bytes of unpacked JSON in one file; 0: 1 TiB. A file beyond it is refused, not cut. */
    uint64_t max_memory; /* most bytes one trace may keep; 0: half of the machine's memory, at most 16 GiB */
    qn_profile_progress_fn progress; /* may be NULL */
    void *progress_user;
    /* May be NULL. Reading stops with QN_CANCELLED soon after it becomes non-zero; a signal's handler may set it, and so may another
     * thread, atomically. */
    const volatile int *cancel;
} qn_profile_options;

static inline qn_profile_options qn_profile_options_default(void) {
    qn_profile_options options;
    memset(&options, 0, sizeof options);
    options.size = (uint32_t)sizeof options;
    return options;
}

/* Which trace a view is about, and the view's own parameters; all zero (NULL request) takes the first run, its first worker and
 * first span. Strings are compared whole. */
typedef struct qn_profile_request {
    uint32_t size; /* sizeof(qn_profile_request) */
    uint32_t reserved;
    const char *run, *worker, *span;
    const char *group_by;      /* operation*: "Operation" or "OperationAndInputShape"; kernel_table: "Kernel" or another word */
    const char *op_name;       /* operation_stack: one operator's table; NULL gives all, keyed by name */
    const char *input_shape;   /* operation_stack with op_name: the shape text, NULL for the grouping by name */
    const char *time_metric;   /* memory views: "us", "ms" (default), "s" */
    const char *memory_metric; /* memory views: "B", "KB", "MB", "GB"; the default depends on the view */
    const char *start_ts, *end_ts; /* memory: JSON numbers in the trace's own time; NULL: no bound */
    const char *path;              /* diff: "0-1-..." asks for that node and its children only */
    struct qn_profile *against;    /* diff: the other side's profile; NULL: the same one */
    const char *against_run, *against_worker, *against_span;
} qn_profile_request;

static inline qn_profile_request qn_profile_request_default(void) {
    qn_profile_request request;
    memset(&request, 0, sizeof request);
    request.size = (uint32_t)sizeof request;
    return request;
}

/* Takes the next bytes of a view; anything but QN_OK stops it and is returned. */
typedef qn_status (*qn_profile_write_fn)(void *user, const char *text, size_t length);

typedef struct qn_profile qn_profile;

/* options may be NULL. ARGUMENT for a path that holds no trace, IO when it cannot be read. */
QN_API qn_status qn_profile_open(const char *path, const qn_profile_options *options, qn_profile **profile, qn_error *error);
QN_API void qn_profile_close(qn_profile *profile);

/* Runs in ascending order of name; in each, workers likewise; per worker, spans "1", "2", ... or "default". NULL past them. */
QN_API const char *qn_profile_run_name(const qn_profile *profile, int run);
QN_API const char *qn_profile_worker_name(const qn_profile *profile, int run, int worker);
QN_API const char *qn_profile_span_name(const qn_profile *profile, int run, int worker, int span);
QN_API const char *qn_profile_trace_path(const qn_profile *profile, int run, int worker, int span);

/* Reads and analyses one trace now (see qn_profile_trace_path for the numbers). FORMAT errors name the byte. */
QN_API qn_status qn_profile_load(qn_profile *profile, int run, int worker, int span, qn_error *error);

/* Views by number, from 0; NULL past the last. The names are those of the expected files: "overview", "operation_table", ... */
QN_API const char *qn_profile_view_name(int view);
/* Writes one view as JSON. request may be NULL. ARGUMENT for an unknown view, worker or span; UNSUPPORTED when the trace has no
 * such view (no kernels, no memory records, ...). Nothing is written before the trace is analysed. */
QN_API qn_status qn_profile_view(qn_profile *profile, const char *view, const qn_profile_request *request,
                                 qn_profile_write_fn write, void *user, qn_error *error);

/* What was kept and what was not, of a trace that is loaded. */
typedef struct qn_profile_info {
    uint32_t size; /* set by the caller to sizeof(qn_profile_info) */
    qn_profile_dialect dialect;
    uint64_t text_bytes;      /* unpacked */
    uint64_t events_seen;     /* items of traceEvents */
    uint64_t events_kept;     /* that take part in the analysis */
    uint64_t events_broken;   /* left out because a name, category, time or thread is missing or of the wrong kind */
    uint64_t nodes_dropped;   /* operators that overlap their neighbour on the same thread, which no tree can hold */
    uint64_t orphan_kernels;  /* kernels no runtime call launched */
    uint64_t memory_bytes;    /* kept by this trace */
    uint64_t events_unknown;  /* left out because their category is none that any profiler is known to write */
    uint64_t events_backward; /* kept, though they end before they begin; they count as written */
} qn_profile_info;
QN_API qn_status qn_profile_trace_info(const qn_profile *profile, int run, int worker, int span, qn_profile_info *info);

#ifdef __cplusplus
}
#endif
#endif
