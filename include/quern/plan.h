/* Plans: a graph made ready to run. Planning decides everything once: which values share memory, which ops run in place, which
 * kernel each node uses, how much scratch there is. Running walks a flat list of steps, with no lookup, lock, check or allocation.
 *
 * A plan belongs to one thread at a time, with everything that is asked of it; qn_plan_cancel alone may come from any other. Different
 * plans share nothing: those of one graph, which each copies, run at once, with a context for each thread. */
#include <quern/quern.h> /* which includes this file at its end: either way in, everything is there, in order */
#ifndef QUERN_PLAN_H
#define QUERN_PLAN_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qn_plan qn_plan;
struct qn_device;
struct qn_pass_options;

typedef struct qn_plan_options {
    uint32_t size;            /* sizeof(qn_plan_options) */
    uint32_t flags;           /* QN_PLAN_* */
    const int64_t *symbols;   /* values of the graph's symbols in order of creation; NULL: their upper bounds. Inputs that are set
                               with other extents change them, see qn_plan_set */
    uint64_t memory_cap;      /* most bytes the plan may allocate on the host, and on the device; 0: no cap */
    struct qn_device *device; /* runs what it can, the CPU the rest; NULL: the CPU alone. Must outlive the plan */
    const struct qn_pass_options *passes; /* NULL: the defaults; must outlive the plan */
} qn_plan_options;

enum {
    QN_PLAN_NO_PASSES = 1u, /* run the graph as it was built */
    QN_PLAN_REFERENCE = 2u, /* the plain references only, no fast kernel */
    QN_PLAN_STRICT = 4u,    /* refuse a node that the device cannot run, instead of leaving it to the CPU */
    QN_PLAN_TIMED = 8u,     /* count the time of every step, see qn_plan_step_describe */
    QN_PLAN_LEND = 16u /* every param that no node updates will be lent: it costs the host nothing, in the totals and under the
                               cap, unless it is set instead */
};

/* What will be allocated, known before anything is. */
typedef struct qn_plan_totals {
    uint32_t size; /* sizeof(qn_plan_totals), set by the caller */
    uint32_t reserved;
    uint64_t arena_bytes;    /* values that live for part of a run, sharing memory */
    uint64_t lower_bound;    /* the most bytes alive at once: no arena can be smaller */
    uint64_t unshared_bytes; /* what they would take without sharing */
    uint64_t scratch_bytes;  /* workspace of the ops, one for all */
    uint64_t param_bytes;
    uint64_t packed_bytes; /* params once more, in the order kernels want them */
    uint64_t constant_bytes;
    uint64_t input_bytes;
    uint64_t staging_bytes;        /* on the host, what crosses to the device and back: in runs, and at most 16 MiB for params,
                                          state and outputs that are copied by themselves, which plans of a device share */
    uint64_t device_scratch_bytes; /* on the device: workspace and parameters of its kernels */
    uint64_t host_bytes, device_bytes; /* everything, on either side; params that were lent cost nothing */
    /* What is allocated by now, on either side: what other extents want (packed params, programs of the device) stays beside it, as
     * long as the cap allows. */
    uint64_t held_bytes, device_held_bytes;
    int32_t n_steps, n_views, n_in_place, n_copies; /* nodes run, nodes that are views, steps in place, copies the plan added */
    int32_t n_native, n_reference, n_device; /* steps with a fast kernel of the CPU, with the reference only, on the device */
    int32_t n_segments;                      /* submissions to the device in a run */
} qn_plan_totals;

typedef enum qn_storage { QN_STORAGE_ARENA, QN_STORAGE_INPUT, QN_STORAGE_PARAM, QN_STORAGE_CONSTANT, QN_STORAGE_VIEW } qn_storage;

typedef struct qn_plan_value {
    uint32_t size; /* sizeof(qn_plan_value), set by the caller */
    qn_storage storage;
    qn_val root;     /* whose memory it uses: itself, or what it is a view of or written over */
    uint64_t offset; /* in the arena, for QN_STORAGE_ARENA */
    uint64_t bytes;
    int32_t born, dies; /* first and last step that touches it */
} qn_plan_value;

/* Plans a graph, which is copied. Fails with the numbers when the cap is exceeded; so do later runs, when other extents, outputs kept or
 * fed, or params set instead of lent take more than that. Nothing but the plan itself is allocated. */
QN_API qn_status qn_plan_create(const qn_graph *graph, const qn_plan_options *options, qn_plan **plan, qn_error *error);
QN_API void qn_plan_destroy(qn_plan *plan);
QN_API qn_status qn_plan_describe(const qn_plan *plan, qn_plan_totals *totals);
/* The graph as it will run: bound, optimised, with the copies its layouts need. It belongs to the plan; its values are what
 * qn_plan_value_describe takes. */
QN_API const qn_graph *qn_plan_graph(const qn_plan *plan);
QN_API qn_status qn_plan_value_describe(const qn_plan *plan, qn_val value, qn_plan_value *info);

/* Where a step runs, and why there. */
typedef struct qn_plan_step_info {
    uint32_t size;      /* sizeof(qn_plan_step_info), set by the caller */
    int32_t node;       /* of `graph` */
    const char *place;  /* "cpu" or "device" */
    const char *how;    /* "native": a kernel made for it; "reference": the plain C one; "bodies": it runs those of its own */
    const char *kernel; /* which: "gemm f32"; the op's name for a reference or a device */
    const char *level;  /* of instruction set: "avx512"; "" elsewhere */
    const char *reason; /* why not on the plan's device; "" when it is there, or the plan has none */
    double flops;
    uint64_t bytes;             /* read and written */
    uint64_t runs, nanoseconds; /* so far, with QN_PLAN_TIMED */
    const qn_graph *graph;      /* qn_plan_graph, or a body in it as it will run */
} qn_plan_step_info;
/* Step by number, 0 <= step < n_steps: those of the graph, then those of the bodies of each of them in turn. Strings live as long as the plan keeps its binding. */
QN_API qn_status qn_plan_step_describe(const qn_plan *plan, int32_t step, qn_plan_step_info *info);

/* Bytes for an input or a param, by name; copied, dense, checked for dtype and shape; a tensor without data means zeros, as state
 * begins. They stay until set again. Extents that are
 * symbols of the graph may differ from run to run: the plan is specialised to them at the next run, and keeps the last few
 * specialisations. Memory is allocated at the first of these calls or the first run. */
QN_API qn_status qn_plan_set(qn_plan *plan, const char *name, const qn_tensor *tensor, qn_error *error);
/* The same without a copy, for a param: the bytes must stay where they are until the plan is destroyed or the param set again, and
 * be aligned to their elements. Fails for a param that the graph updates. */
QN_API qn_status qn_plan_lend(qn_plan *plan, const char *name, const qn_tensor *tensor, qn_error *error);
/* Runs every step. Fails when an input or a param was never set, and names it; an index out of range is found before it is used. The
 * context counts and records what runs and brings its pool; it may be NULL. */
QN_API qn_status qn_plan_run(qn_plan *plan, qn_context *context, qn_error *error);
/* From any thread: the run in progress, if there is one, stops before its next step with QN_CANCELLED. */
QN_API void qn_plan_cancel(qn_plan *plan);
/* A view of an output by name, dense, good until the next run. */
QN_API qn_status qn_plan_output(const qn_plan *plan, const char *name, qn_tensor *tensor, qn_error *error);
/* Leaves an output on the device: it is not read back after a run. qn_plan_read fetches some of it when wanted. */
QN_API qn_status qn_plan_keep(qn_plan *plan, const char *output, qn_error *error);
/* `bytes` bytes of an output from `offset` on, wherever it is. */
QN_API qn_status qn_plan_read(qn_plan *plan, const char *output, uint64_t offset, void *to, uint64_t bytes, qn_error *error);
/* Makes what an output holds the next run's input, without leaving the plan or its device: state carried from run to run. Both must have
 * the same extents in every run. The output may be an input itself; inputs that are updated in place cannot be fed to each other in a
 * circle. */
QN_API qn_status qn_plan_feed(qn_plan *plan, const char *output, const char *input, qn_error *error);

/* The first value that is not finite. */
typedef struct qn_plan_bad {
    uint32_t size; /* sizeof(qn_plan_bad), set by the caller */
    int32_t node;  /* of qn_plan_graph; -1: all is finite */
    int32_t output;
    int32_t input;             /* the source that brought it, -1: it arose here, from finite sources */
    int64_t n_nan, n_infinite; /* in that output */
    int64_t first;             /* index of the first */
} qn_plan_bad;
/* A run on the CPU that looks at every result as soon as it is there, and stops at the first NaN or infinity. */
QN_API qn_status qn_plan_find_bad(qn_plan *plan, qn_context *context, qn_plan_bad *bad, qn_error *error);

#ifdef __cplusplus
}
#endif
#endif
