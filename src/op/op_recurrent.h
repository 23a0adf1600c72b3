/* What the recurrences over a matrix state share: rwkv_wkv6, gated_linear_attn and rwkv_wkv7, forward and backward, all take
 * rows [tokens, heads, width] and a state [sequences, heads width width], and give results and states packed in one tensor of
 * rows heads width wide. They differ in one token's step, which works on doubles. */
#ifndef QN_OP_RECURRENT_H
#define QN_OP_RECURRENT_H

#include "op/ref.h"

enum { QN_RECURRENT_IN = 6 };

typedef struct qn_recurrent_sizes {
    int64_t tokens, heads, width; /* tokens: of all sequences together, one sequence behind the other */
    int64_t seqs, steps;          /* steps: tokens of one sequence */
} qn_recurrent_sizes;

/* From the state before a token and the token's rows x to the state behind it and the result row. next may be prev. */
typedef void (*qn_recurrent_step)(int64_t n, double scale, double *const *x, const double *prev, double *next, double *y);
/* From the gradients of the state behind (grad) and of the result (gy) to those of the state before, in place, and of the
 * token's rows, added to dx. */
typedef void (*qn_recurrent_back)(int64_t n, double scale, double *const *x, const double *prev, const double *next, double *grad,
                                  const double *gy, double *const *dx);

/* n_in row sources come first, the state behind them; per_head is the one among them that all tokens share, -1 when none. */
typedef struct qn_recurrent_kind {
    int n_in, per_head;
    qn_recurrent_step step;
} qn_recurrent_kind;

extern const qn_recurrent_kind qn_recurrent_wkv6, qn_recurrent_gla, qn_recurrent_wkv7;

/* Guard of the shapes of the sources that begin at slot `first`. */
qn_status qn_op_recurrent_check(qn_infer_call *c, const qn_recurrent_kind *kind, int first, qn_recurrent_sizes *z);
/* Extents {rows, columns} of the packed result. */
qn_status qn_op_recurrent_packed(qn_infer_call *c, const qn_recurrent_sizes *z, int64_t d[2]);
void qn_op_recurrent_open(const qn_recurrent_kind *kind, const qn_tensor *const *src, qn_recurrent_sizes *z);
/* Rows of one token and head into x. */
void qn_op_recurrent_load(const qn_recurrent_kind *kind, const qn_tensor *const *src, int64_t token, int64_t head, int64_t n,
                          double *const *x);

/* Row of `width` elements number `run` of the states, which lie behind the result rows. */
static inline char *qn_packed_run(const qn_tensor *y, int64_t tokens, int64_t heads, int64_t width, int64_t run) {
    return qn_at(y, (tokens + run / heads) * qn_nb(y, 1) + run % heads * width * qn_nb(y, 0));
}

#endif
