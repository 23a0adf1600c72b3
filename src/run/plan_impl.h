/* Inside a plan: the graph as it was given, the leaves' memory, and a schedule for each binding of its symbols that was run lately. */
#ifndef QN_RUN_PLAN_IMPL_H
#define QN_RUN_PLAN_IMPL_H

#include <stdatomic.h>

#include "base/trace.h"
#include "plan/plan.h"

/* An input or a param: its memory is sized once, for the largest extents its symbols allow. */
typedef struct qn_plan_leaf {
    const char *name;
    qn_value_kind kind;
    qn_val value;      /* in the graph as given */
    qn_shape shape;    /* as last set */
    uint64_t capacity; /* bytes at the upper bounds */
    void *memory;      /* the plan's own, NULL until it is needed */
    void *lent;        /* the caller's instead; read only */
    int mapped;        /* which lies in the map of a file */
    int is_set;
    int is_updated;     /* some node writes it where it is */
    uint32_t newest;    /* QN_ON_*: which sides have its newest bytes, whichever specialisation made them */
    uint64_t device_at; /* in the device's buffer */
} qn_plan_leaf;

enum { QN_ON_HOST = 1u, QN_ON_DEVICE = 2u };

/* A value that crosses between host and device, or a leaf that a segment writes. */
typedef struct qn_transfer {
    qn_val root;
    int32_t leaf; /* which leaf it is, -1: none */
    int32_t sent; /* the device has this constant; a leaf that was written: the host gets it too */
} qn_transfer;

typedef QN_VEC(qn_transfer) qn_transfers;

/* Steps [first, end) that run on one side. */
typedef struct qn_segment {
    int32_t first, end;
    int32_t on_device;
    qn_program *program;
    qn_transfers in, out;
    qn_transfers loads; /* params it reads: they change seldom, so they are sent by themselves and take no room in its program */
    qn_transfers wrote; /* leaves it updates */
    const void **in_at;
    void **out_at;
    double *times; /* of the program's steps in nanoseconds, NULL: it is not timed */
} qn_segment;

typedef struct qn_device_side {
    uint64_t bytes;   /* of the plan's buffer, leaves included */
    uint64_t *offset; /* per value: where its root lies */
    int known;        /* what crosses, and what the programs will take */
    int ready;        /* programs are made */
    qn_program_need need;
    uint64_t copies; /* of the host, for what is copied outside a program */
} qn_device_side;

/* Where a fed output goes. */
typedef struct qn_feed_sides {
    uint8_t on_device, on_host;
} qn_feed_sides;

/* What of the arena is alive in a recorded run. */
typedef struct qn_run_memory {
    const qn_schedule *schedule;    /* NULL: this run is not recorded */
    uint8_t *is_alive;              /* per value; NULL: no run was recorded yet */
    uint64_t alive, kept, reserved; /* bytes: of the arena's values, of all others, of everything the plan holds */
    uint64_t base;                  /* address of the arena, or what tells a device's buffer from others */
    int32_t device;                 /* whose memory, -1: the host's */
} qn_run_memory;

/* A schedule and what it needs to run in this plan. */
typedef struct qn_special {
    qn_schedule *schedule;
    int64_t symbols[QN_IR_MAX_SYMBOLS];
    int32_t *leaf_of; /* per value of its graph, -1: no leaf */
    uint64_t used;    /* for the least recently used */
    int pointed;      /* descriptors aim at the plan's memory */
    QN_VEC(qn_segment) segments;
    QN_VEC(qn_feed_sides) feeds; /* as the plan's */
    QN_VEC(int32_t) host_leaves; /* which a run looks at on the host, as they were before it */
    qn_device_side device;
    qn_run_memory memory;
} qn_special;

typedef struct qn_plan_feed_pair {
    const char *output;
    int32_t leaf;
} qn_plan_feed_pair;

/* Params in the order a kernel wants them, for all specialisations. */
typedef struct qn_pack_source {
    int64_t leaf, offset; /* -1: none; bytes, and the layout: views of one param are packed apart */
    int64_t shape[QN_MAX_RANK], stride[QN_MAX_RANK];
} qn_pack_source;
typedef struct qn_shared_pack {
    qn_pack_source from[QN_PLAN_PACKED];
    qn_cpu_form form;
    void *data;
    int fresh;          /* holds what the param holds */
    int waited;         /* a run went by without it */
    qn_contest contest; /* between the ways to read it */
    uint64_t used;      /* as a specialisation's */
} qn_shared_pack;

enum { QN_PLAN_SPECIALS = 8 };

struct qn_plan {
    qn_arena arena;
    qn_graph *graph; /* as given, a copy */
    uint32_t flags, cpu_levels;
    uint64_t memory_cap;
    qn_device *device;
    qn_device_buffer *device_buffer;     /* leaves first, for all specialisations; behind them what one of them needs */
    const struct qn_special *device_has; /* that one, NULL: none */
    uint64_t device_leaves, device_most; /* bytes of the leaves; what the largest specialisation so far needs in all */
    uint64_t device_copies;              /* the most that one so far may have made the device keep for copies */
    const struct qn_pass_options *passes;
    int64_t symbols[QN_IR_MAX_SYMBOLS]; /* of the next run */
    int is_stale;                       /* symbols differ from those of `current` */
    QN_VEC(qn_plan_leaf) leaves;
    int32_t n_unset;
    qn_special *specials[QN_PLAN_SPECIALS], *current;
    uint64_t clock;
    QN_VEC(qn_plan_feed_pair) feeds;
    QN_VEC(qn_shared_pack) packs;
    QN_VEC(const char *) kept; /* outputs that stay on the device */
    void *memory;              /* arena and scratch of whichever schedule runs */
    uint64_t memory_bytes;
    int memory_ready;   /* every leaf and pack of `current` has memory and data */
    int is_shown;       /* outputs of `current` lie in the memory there is */
    uint64_t n_uploads; /* to the device, so far */
    int is_traced;      /* some run was recorded: programs made from now on time their steps */
    _Atomic int cancelled;
};

/* What a run has at hand, in bodies as well. */
typedef struct qn_run {
    qn_pool *pool;
    qn_trace_ring *ring; /* NULL: nothing is recorded */
    int timed;
    const _Atomic int *cancelled;
    qn_run_memory *memory; /* NULL: not recorded, or not on this side */
} qn_run;

/* executor.c */
qn_status qn_run_steps(const qn_run *r, qn_schedule *x, int32_t first, int32_t end, qn_error *error);
/* control.c: a step with bodies */
qn_status qn_run_control(const qn_run *r, const qn_plan_step *s, qn_error *error);

/* packs.c: what the current schedule wants packed; bytes of all there are, or of those that others alone want; an end to these but so
 * many; memory; what is in it; a param that was set anew; the end. */
qn_status qn_plan_packs_list(qn_plan *p, qn_error *error);
uint64_t qn_plan_packs_bytes(const qn_plan *p, int idle);
void qn_plan_packs_release(qn_plan *p, uint64_t most);
qn_status qn_plan_packs_allocate(qn_plan *p, qn_error *error);
int qn_plan_packs_fill(qn_plan *p, qn_pool *pool); /* 1: some wait for later runs */
void qn_plan_packs_forget(qn_plan *p, const qn_plan_leaf *leaf);
void qn_plan_packs_destroy(qn_plan *p);

/* memory_trace.c: around a recorded run, and around its steps: births before it runs, deaths after. at: when, 0: now. */
void qn_run_memory_begin(qn_plan *p);
void qn_run_memory_births(qn_trace_ring *ring, qn_run_memory *memory, const qn_plan_step *step, uint64_t at);
void qn_run_memory_deaths(qn_trace_ring *ring, qn_run_memory *memory, const qn_plan_step *step, uint64_t at);
void qn_run_memory_end(qn_trace_ring *ring, qn_run_memory *memory);

/* specialise.c */
uint64_t qn_plan_leaf_bytes(const qn_plan *p); /* of all that are not lent and will not be */
int qn_plan_leaf_costs(const qn_plan *p, const qn_plan_leaf *leaf);
qn_status qn_plan_specialise(qn_plan *p, qn_error *error);
void qn_plan_drop_specials(qn_plan *p);
uint64_t qn_plan_arena_bytes(const qn_schedule *s);
void qn_plan_count(const qn_plan *p, const qn_special *x, qn_plan_totals *totals); /* everything, on either side */
qn_status qn_plan_fits(qn_plan *p, qn_special *x, qn_error *error);                /* under the cap, with what is known by now */
/* Everything that a specialisation takes, on either side, with what others left that it makes use of. */
uint64_t qn_plan_host_bytes(const qn_plan *p, const qn_special *x);
uint64_t qn_plan_device_bytes(const qn_plan *p, const qn_special *x);

/* values.c */
qn_plan_leaf *qn_plan_leaf_find(const qn_plan *p, const char *name);
qn_val qn_plan_output_find(const qn_plan *p, const char *name);
/* Gives every leaf, pack and schedule its memory. */
qn_status qn_plan_ready(qn_plan *p, qn_pool *pool, qn_error *error);

/* feeds.c: whether outputs fit the inputs they are fed to, as extents are now, and in which order; after a run, on the host */
qn_status qn_plan_feeds_check(qn_plan *p, qn_error *error);
void qn_plan_feed_inputs(qn_plan *p);

/* device_memory.c: the buffer, large enough for a specialisation; the newest bytes of the leaves it reads here; an output that is
 * nowhere but there. */
qn_status qn_device_memory_need(qn_plan *p, qn_special *x, qn_error *error);
qn_status qn_device_memory_home(qn_plan *p, qn_plan_leaf *leaf, qn_error *error); /* the newest of one leaf, to the host */
qn_status qn_device_memory_fetch(qn_plan *p, const qn_special *x, qn_error *error);
int qn_device_memory_holds(const qn_plan *p, qn_val value);
/* Of the buffer, when a specialisation runs; of everything there is by now, on either side; an end to programs that the current one
 * does not use, oldest first, until what is left is under the cap there and takes no more than `spare` here; how much that is. */
uint64_t qn_device_memory_buffer(const qn_plan *p, const qn_special *x);
qn_program_need qn_device_memory_held(const qn_plan *p);
uint64_t qn_device_memory_make_way(qn_plan *p, uint64_t spare);

/* segments.c */
qn_status qn_segments_split(qn_plan *p, qn_special *x, qn_error *error);
qn_status qn_segments_measure(qn_plan *p, qn_special *x, qn_error *error); /* nothing is allocated for it */
qn_program_need qn_segments_held(const qn_special *x);
void qn_segments_forget(qn_plan *p); /* what crosses has changed, in all specialisations */
qn_status qn_segments_finish(qn_plan *p, qn_special *x, qn_error *error);
qn_status qn_segment_run(qn_plan *p, qn_special *x, qn_segment *segment, qn_trace_ring *ring, qn_error *error);
void qn_segment_host_writes(qn_plan *p, const qn_segment *segment); /* before one runs on the host */
void qn_segments_failed(qn_plan *p, const qn_special *x);
void qn_segments_destroy(qn_special *x);
/* segment_trace.c: after a run from start to end, the times of its steps into the plan and, unless it is NULL, the ring */
qn_status qn_segment_seen(qn_special *x, qn_segment *segment, qn_trace_ring *ring, uint64_t start, uint64_t end, qn_error *error);

#endif
