/* Inside a plan: one storage record per value, one step per node that computes. */
#ifndef QN_PLAN_PLAN_H
#define QN_PLAN_PLAN_H

#include <quern/plan.h>

#include "ir/graph.h"

enum { QN_PLAN_ALIGN = 64 };

typedef struct qn_plan_slot {
    qn_storage storage;
    qn_val root;
    uint64_t offset, bytes;
    int32_t born, dies; /* of a root: over everything that uses its memory */
    int32_t read_until; /* of a root: the last node that reads that memory; leaves live on after it */
    int dense;          /* row-major without gaps: may be written over, or reshaped */
} qn_plan_slot;

/* An index source: its values are known only when the step runs, and a kernel trusts them. */
typedef struct qn_plan_index {
    const qn_tensor *tensor;
    int64_t limit;
    int32_t slot;
} qn_plan_index;

enum { QN_PLAN_INDEX_MAX = 2 }; /* no op has more */

typedef struct qn_plan_step {
    qn_ref_fn run;
    qn_call call;
    const qn_tensor *src[QN_MAX_SRC];
    const qn_tensor *dst[QN_MAX_DST];
    int32_t node;
    double flops; /* what it stands for, for the profiler */
    uint64_t bytes;
    int32_t n_index;
    qn_plan_index index[QN_PLAN_INDEX_MAX];
} qn_plan_step;

typedef struct qn_plan_feed_pair {
    qn_val output, input;
} qn_plan_feed_pair;

struct qn_plan {
    qn_arena arena;  /* the records */
    qn_graph *graph; /* bound; the plan's own */
    qn_plan_slot *slots;
    qn_tensor *tensors; /* per value */
    uint8_t *is_set;    /* per value: leaves that have data */
    int32_t n_unset;    /* inputs and params that have none yet */
    QN_VEC(qn_plan_step) steps;
    QN_VEC(qn_plan_feed_pair) feeds;
    qn_plan_totals totals;
    size_t scratch;
    void *memory; /* arena, params, inputs and scratch, one block; NULL until needed */
    uint64_t memory_bytes;
};

/* A node's request over descriptors of all values of its graph. */
qn_request qn_plan_request(const qn_graph *g, const qn_ir_node *n, const qn_tensor *tensors);
/* A copy of the graph with the copies its layouts need. */
qn_status qn_plan_relayout(const qn_graph *from, qn_graph **to, int32_t *copies, qn_error *error);
/* Chooses storage: views, in place, lifetimes. */
qn_status qn_plan_assign(qn_plan *p, qn_error *error);
/* Gives every root in the arena its offset; sets arena_bytes and lower_bound. */
qn_status qn_plan_place(qn_plan *p, qn_error *error);

#endif
