/* Plans: a graph made ready to run. Planning decides everything once: which values share memory, which ops run in place, which
 * kernel each node uses, how much scratch there is. Running walks a flat list of steps, with no lookup, lock, check or allocation. */
#include <quern/quern.h> /* which includes this file at its end: either way in, everything is there, in order */
#ifndef QUERN_PLAN_H
#define QUERN_PLAN_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qn_plan qn_plan;

typedef struct qn_plan_options {
    uint32_t size;          /* sizeof(qn_plan_options) */
    uint32_t flags;         /* QN_PLAN_* */
    const int64_t *symbols; /* values of the graph's symbols in order of creation; NULL when it has none */
    uint64_t memory_cap;    /* most bytes the plan may allocate; 0: no cap */
} qn_plan_options;

enum { QN_PLAN_NO_PASSES = 1u }; /* run the graph as it was built */

/* What will be allocated, known before anything is. */
typedef struct qn_plan_totals {
    uint32_t size; /* sizeof(qn_plan_totals), set by the caller */
    uint32_t reserved;
    uint64_t arena_bytes;    /* values that live for part of a run, sharing memory */
    uint64_t lower_bound;    /* the most bytes alive at once: no arena can be smaller */
    uint64_t unshared_bytes; /* what they would take without sharing */
    uint64_t scratch_bytes;  /* workspace of the ops, one for all */
    uint64_t param_bytes;
    uint64_t constant_bytes;
    uint64_t input_bytes;
    int32_t n_steps, n_views, n_in_place, n_copies; /* nodes run, nodes that are views, steps in place, copies the plan added */
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

/* Plans a graph, which is copied. Fails with the numbers when the cap is exceeded. Nothing but the plan itself is allocated. */
QN_API qn_status qn_plan_create(const qn_graph *graph, const qn_plan_options *options, qn_plan **plan, qn_error *error);
QN_API void qn_plan_destroy(qn_plan *plan);
QN_API qn_status qn_plan_describe(const qn_plan *plan, qn_plan_totals *totals);
/* The graph as it will run: bound, optimised, with the copies its layouts need. It belongs to the plan; its values are what
 * qn_plan_value_describe takes. */
QN_API const qn_graph *qn_plan_graph(const qn_plan *plan);
QN_API qn_status qn_plan_value_describe(const qn_plan *plan, qn_val value, qn_plan_value *info);

/* Bytes for an input or a param, by name; copied, dense, checked for dtype and shape. Params stay until set again. Memory is allocated
 * at the first of these calls or the first run. */
QN_API qn_status qn_plan_set(qn_plan *plan, const char *name, const qn_tensor *tensor, qn_error *error);
/* Runs every step. Fails when an input or a param was never set, and names it; an index out of range is found before it is used. The
 * context counts and records what runs; it may be NULL. */
QN_API qn_status qn_plan_run(qn_plan *plan, qn_context *context, qn_error *error);
/* A view of an output by name, good until the next run. */
QN_API qn_status qn_plan_output(const qn_plan *plan, const char *name, qn_tensor *tensor, qn_error *error);
/* Makes what an output holds the next run's input, without leaving the plan: state that is carried from run to run. */
QN_API qn_status qn_plan_feed(qn_plan *plan, const char *output, const char *input, qn_error *error);

#ifdef __cplusplus
}
#endif
#endif
