/* Quern's recorder: every microsecond of a run as a file that Quern's analyser, Perfetto and the tools of PyTorch open.
 *
 *     qn_recorder_options options = qn_recorder_options_default();
 *     options.folder = "logs";
 *     qn_recorder_create(&options, &recorder, &error);
 *     qn_recorder_attach(recorder, context, "main", &error);
 *     for (...) {
 *         qn_record_step(context, &error);           top of each iteration
 *         qn_record_push(context, QN_PART_MODULE, "layer 3");
 *         qn_dispatch(context, ...);                 records itself
 *         qn_record_pop(context);
 *     }
 *     qn_recorder_write(recorder, &path, &error);    <host>_<pid>.<stamp>.pt.trace.json[.gz]
 *     qn_recorder_destroy(recorder);
 *
 * A context that no recorder is attached to pays one predictable branch a call. Each attached context writes a ring of its own,
 * without lock or allocation, so contexts on different threads never meet; like the context, its ring belongs to one thread at a
 * time. Writing the file may happen on any thread while others go on recording. The qn_record_ functions do nothing on a context
 * that is not attached, so programs call them unconditionally. Times are nanoseconds of one monotonic clock. */
#include <quern/quern.h> /* which includes this file at its end: either way in, everything is there, in order */
#ifndef QUERN_RECORD_H
#define QUERN_RECORD_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What the machine can do -------------------------------------------------------------------------------------- */

/* The roof of a roofline: rates of all cores together, and of one. Bytes are those the loop asks for; a store that first
 * fetches its line moves more. */
typedef struct qn_limits {
    uint32_t size;              /* set by the caller to sizeof(qn_limits) */
    int32_t cores;              /* threads that ran */
    double gflops, gflops_core; /* fused multiply-adds of f32 count two */
    double read_gbps, write_gbps, triad_gbps;
    double read_gbps_core, write_gbps_core, triad_gbps_core;
    char isa[16]; /* vector instructions the multiply-adds ran on: "avx512", "avx2", "neon", "plain" */
} qn_limits;

/* Measures for about that long (10 to 60000 ms); the figure of each loop is its fastest pass. */
QN_API qn_status qn_limits_measure(int milliseconds, qn_limits *limits, qn_error *error);

/* ---- Recorders ---------------------------------------------------------------------------------------------------- */

enum {
    QN_RECORD_SHAPES = 1u,      /* shapes and dtypes of the sources of each op */
    QN_RECORD_DROP_OLDEST = 2u, /* a full ring loses its oldest records; without, what comes when it is full */
    QN_RECORD_GZIP = 4u,        /* compress the file */
    QN_RECORD_WHOLE_US = 8u,    /* times in whole microseconds, for readers that know no others */
    QN_RECORD_LIMITS = 16u      /* measure the machine's limits (0.2 s, once, when the recorder is made) and write them down */
};

typedef struct qn_recorder_options {
    uint32_t size;          /* sizeof(qn_recorder_options) */
    uint32_t flags;         /* QN_RECORD_* */
    qn_allocator allocator; /* all zero: the C library's */
    const char *folder;     /* made when it is not there, and IO when no file can be made in it; copied */
    uint64_t ring_bytes;    /* per attached context; 0: 8 MiB; rounded up to a power of two */
    uint32_t max_labels;    /* distinct names a context may use; 0: 4096. Names beyond are filed under the part around them. */
    uint32_t reserved;
    /* In steps: record nothing, record and throw away, record and write; that many times over (0: for ever). active 0: always
     * record, and write only when asked. */
    uint32_t wait, warmup, active, repeat;
} qn_recorder_options;

static inline qn_recorder_options qn_recorder_options_default(void) {
    qn_recorder_options options;
    memset(&options, 0, sizeof options);
    options.size = (uint32_t)sizeof options;
    options.flags = QN_RECORD_SHAPES;
    return options;
}

typedef struct qn_recorder qn_recorder;

/* The folder the environment asks to record into (QUERN_PROFILE), or NULL. */
QN_API const char *qn_recorder_environment(void);

QN_API qn_status qn_recorder_create(const qn_recorder_options *options, qn_recorder **recorder, qn_error *error);
/* Detaches what is still attached; nothing is written. No attached context may be in a call at that time. */
QN_API void qn_recorder_destroy(qn_recorder *recorder);

/* From here on this context records, under a thread name of its own (copied; NULL: "thread N"). ARGUMENT when it is attached
 * already. A context may be destroyed while it is attached; what it recorded stays. */
QN_API qn_status qn_recorder_attach(qn_recorder *recorder, qn_context *context, const char *thread, qn_error *error);
QN_API void qn_recorder_detach(qn_context *context);

/* A device that work will be recorded for, in the order of their numbers. Fields that are 0 or NULL are left out. */
typedef struct qn_record_device {
    uint32_t size; /* sizeof(qn_record_device) */
    int32_t compute_major, compute_minor;
    int32_t cores;
    const char *name;
    uint64_t memory;
    uint64_t clock_bound; /* nanoseconds by which its times may differ from the host's */
} qn_record_device;
QN_API qn_status qn_recorder_add_device(qn_recorder *recorder, const qn_record_device *device, qn_error *error);

/* Writes what was recorded since the last file, whole or not at all; *path (may be NULL) stays valid until the next call. Ranges
 * that are still open are left for the file in which they close. */
QN_API qn_status qn_recorder_write(qn_recorder *recorder, const char **path, qn_error *error);

typedef struct qn_recorder_info {
    uint32_t size;        /* set by the caller to sizeof(qn_recorder_info) */
    uint32_t files;       /* written so far */
    uint64_t events;      /* in them: ops, ranges, calls, device work, memory records, counters */
    uint64_t dropped;     /* records a full ring lost, or a file that could not be written */
    uint64_t labels_lost; /* names that found no room */
    uint64_t clamped;     /* device work that seemed to start before its submission */
} qn_recorder_info;
QN_API qn_status qn_recorder_describe(qn_recorder *recorder, qn_recorder_info *info);

/* ---- What a program tells about itself ---------------------------------------------------------------------------- */

typedef enum qn_part {
    QN_PART_RANGE,     /* user_annotation */
    QN_PART_MODULE,    /* a layer of a model: nn.Module of PyTorch's views */
    QN_PART_OPTIMIZER, /* Optimizer.step#<label>.step */
    QN_PART_LOADER,    /* enumerate(DataLoader)#<label>.__next__ */
    QN_PART_COUNT
} qn_part;

/* Open and close a range. Ops inside carry the labels of all open ranges, joined by '/', as their origin: the parts of the
 * model the time is shown by. At most 64 deep; deeper ones count to the 64th. */
QN_API void qn_record_push(qn_context *context, qn_part part, const char *label);
QN_API void qn_record_pop(qn_context *context);

/* The next step begins here: ProfilerStep#N lasts until the next call, or until the file is written. Drives the schedule, and so
 * may write a file; its failures are the writer's. */
QN_API qn_status qn_record_step(qn_context *context, qn_error *error);

/* Fetching a batch. */
QN_API void qn_record_loader_begin(qn_context *context, const char *name);
QN_API void qn_record_loader_end(qn_context *context);

/* One allocation (bytes > 0) or release (bytes < 0), and the totals after it. device -1: the host. */
QN_API void qn_record_memory(qn_context *context, const void *address, int64_t bytes, int64_t total_allocated,
                             int64_t total_reserved, int device);
QN_API void qn_record_counter(qn_context *context, const char *name, double value);

/* ---- For executors: work with times of its own -------------------------------------------------------------------- */

/* Work on a device, as the profiler shows it. */
typedef enum qn_device_work { QN_DEVICE_KERNEL, QN_DEVICE_COPY, QN_DEVICE_FILL, QN_DEVICE_WORK_COUNT } qn_device_work;

typedef struct qn_record_work {
    uint32_t size; /* sizeof(qn_record_work) */
    qn_device_work kind;
    const char *name;
    uint64_t start, end;  /* already on the host's clock */
    uint64_t correlation; /* of the submission that started it */
    uint64_t op;          /* id of the op it serves (qn_record_open_op at submission); 0: none */
    int32_t device, queue;
    double flops;
    uint64_t bytes;
    uint32_t grid[3], block[3]; /* kernels: workgroups and their size; grid[0] 0: not known */
    uint32_t shared_memory;
    float blocks_per_sm, occupancy; /* 0: not known */
} qn_record_work;

#ifdef __cplusplus
}
#endif
#endif
