/* A schedule: one graph with numbers for all its extents, made ready to run. Which values share memory, which ops run in place,
 * which kernel each node has, how much scratch there is. It owns no tensor data: qn_schedule_point aims its descriptors at memory
 * that the plan, or the schedule of the node around it, provides. */
#ifndef QN_PLAN_PLAN_H
#define QN_PLAN_PLAN_H

#include <quern/plan.h>

#include "cpu/cpu.h"
#include "device/device.h"
#include "ir/graph.h"

enum { QN_PLAN_ALIGN = 64 };

static inline uint64_t qn_plan_padded(uint64_t bytes) { return (bytes + QN_PLAN_ALIGN - 1) / QN_PLAN_ALIGN * QN_PLAN_ALIGN; }
/* Sums of bytes stop at what no machine has, instead of beginning again at nothing and fitting under any cap. */
static inline uint64_t qn_plan_sum(uint64_t a, uint64_t b) {
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) || sum > INT64_MAX ? INT64_MAX : sum;
}

typedef struct qn_plan_slot {
    qn_storage storage;
    qn_val root;
    uint64_t offset, bytes;
    int32_t born, dies; /* of a root: over everything that uses its memory */
    int32_t read_until; /* of a root: the last node that reads that memory; leaves live on after it */
    int dense;          /* row-major without gaps: may be written over, or reshaped */
    int32_t direct;     /* of a root of a body: 1 + the output that is written there, wherever it goes; 0: none */
} qn_plan_slot;

typedef struct qn_plan_control qn_plan_control; /* bodies.h */

/* An index source: its values are known only when the step runs, and a kernel trusts them. */
typedef struct qn_plan_index {
    const qn_tensor *tensor;
    int64_t limit;
    int32_t slot;
} qn_plan_index;

enum { QN_PLAN_INDEX_MAX = 2 }; /* no op has more */

typedef struct qn_plan_step {
    qn_call call;
    qn_cpu_step cpu;          /* the kernel, when cpu.run is set */
    qn_ref_fn run;            /* else the reference, */
    qn_plan_control *control; /* else its bodies */
    int32_t on_device;        /* none of them: a device does it */
    int32_t n_index;
    int32_t node;
    int32_t reason; /* why not on the device: index into reasons, -1: it is, or there is none */
    qn_plan_index index[QN_PLAN_INDEX_MAX];
    const qn_tensor **src; /* as many as the op may have, NULL where not given */
    const qn_tensor **dst;
    int32_t packed; /* index of the packed source it reads, -1: none */
    double flops;   /* what it stands for, for the profiler */
    uint64_t bytes;
    uint64_t runs, nanoseconds; /* so far, when they are counted */
} qn_plan_step;

/* A weight, or a few, in the order a kernel wants them. Steps with the same kernel and sources share one. */
enum { QN_PLAN_PACKED = 4 };
typedef struct qn_plan_pack {
    int32_t step;                  /* the first that asked: its kernel packs */
    qn_val values[QN_PLAN_PACKED]; /* what it is made of; QN_VAL_NONE behind the last */
    size_t bytes;
    void *data;
    int fresh;          /* holds what the source holds */
    int waited;         /* a run went by without it */
    qn_contest contest; /* between the ways to read it */
    int32_t shared;     /* who owns the data: whoever runs schedules, under this number, or (-1) the schedule */
} qn_plan_pack;

/* What a schedule is made for. */
typedef struct qn_schedule_options {
    uint32_t flags;         /* QN_PLAN_* */
    const int64_t *symbols; /* values of the graph's symbols */
    uint32_t cpu_levels;    /* kernels that may be chosen; 0: references only */
    qn_device *device;      /* NULL: the CPU alone */
    const qn_pass_options *passes;
    int is_body;  /* of a node of another schedule: nothing is packed, because nobody says when a weight changes */
    int n_direct; /* of a body: so many of its first outputs may be written where they go */
} qn_schedule_options;

typedef struct qn_schedule {
    qn_arena arena;  /* the records */
    qn_graph *graph; /* bound, optimised, laid out */
    qn_plan_slot *slots;
    qn_tensor *tensors; /* per value */
    QN_VEC(qn_plan_step) steps;
    QN_VEC(qn_plan_pack) packs;
    QN_VEC(char *) reasons;
    qn_plan_totals totals;
    int32_t n_body_steps; /* of its steps' bodies, all in all */
    size_t scratch;
} qn_schedule;

/* A node's request over descriptors of all values of its graph. */
qn_request qn_plan_request(const qn_graph *g, const qn_ir_node *n, const qn_tensor *tensors);
/* A copy of the graph with the copies its layouts need; outputs are dense, but for a body's, which are copied where they go. */
qn_status qn_plan_relayout(const qn_graph *from, int is_body, qn_graph **to, int32_t *copies, qn_error *error);
/* Chooses storage: views, in place, lifetimes. */
qn_status qn_plan_assign(qn_schedule *p, qn_error *error);
/* Gives every root in the arena its offset; sets arena_bytes and lower_bound. */
qn_status qn_plan_place(qn_schedule *p, qn_error *error);

/* All of it. */
qn_status qn_schedule_create(const qn_graph *graph, const qn_schedule_options *options, qn_schedule **schedule, qn_error *error);
void qn_schedule_destroy(qn_schedule *schedule);
/* Aims the descriptors: values in the arena at `memory`, scratch at `scratch`, leaves at what `leaf` gives for each. */
typedef void *(*qn_schedule_leaf_fn)(void *user, qn_val leaf);
void qn_schedule_point(qn_schedule *schedule, void *memory, void *scratch, qn_schedule_leaf_fn leaf, void *user);

#endif
