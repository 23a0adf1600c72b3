/* Inside a session. */
#ifndef QN_MODEL_SESSION_H
#define QN_MODEL_SESSION_H

#include <stdatomic.h>

#include "model/model.h"

/* What one sequence holds. */
typedef struct qn_sequence {
    int32_t *ids; /* of the cells, in order; room for the whole context */
    int64_t length;
} qn_sequence;

/* The inputs of a run: the plan's own memory of them, with room for the largest. */
typedef struct qn_session_inputs {
    int32_t *tokens, *positions, *wanted;
    int32_t *cells;               /* NULL for an encoder */
    uint16_t *mask, *mask_window; /* the second NULL when no layer has a window */
    uint8_t *last;
} qn_session_inputs;

struct qn_session {
    qn_arena arena;
    qn_model *m;
    qn_model_shape shape;
    int64_t context; /* as the caller asked, not rounded */
    qn_graph *graph;
    qn_plan *plan;
    qn_context *run;
    qn_sequence *sequences;
    qn_session_inputs in;
    int64_t width; /* of a row of results */
    /* The last run: rows of each part begin at first_row, and lie in the plan or, after several runs of it, in `rows`. */
    int32_t n_parts;
    int32_t *first_row, *n_rows;
    int64_t *part_length;
    const float *results;
    float *rows;
    uint64_t rows_cap;
    int has_cache;
    _Atomic int cancelled;
};

qn_status qn_session_need_cache(qn_session *s, qn_error *error);
/* qn_session_run, which leaves a cancellation standing: a generation is many runs, and one that comes as a run ends must end it
 * all the same. Who calls this forgets it at last. */
qn_status qn_session_go_on(qn_session *s, const qn_session_part *parts, int n_parts, qn_error *error);
void qn_session_uncancel(qn_session *s);

/* session_inputs.c: fills the inputs for `tokens` tokens of each of `count` sequences from `first` on, which stand at their lengths,
 * and hands them to the plan. `wanted` of them give results; they are in in.wanted. */
typedef struct qn_session_group {
    int32_t first, count;
    int64_t tokens;
    int64_t n_wanted;
} qn_session_group;
qn_status qn_session_feed(qn_session *s, const qn_session_group *group, qn_error *error);

#endif
