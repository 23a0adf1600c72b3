/* Gradients of gradients. An op that computes a gradient (norm_back, attention_back) is itself a formula, and where that formula
 * can be written with ops that have gradients, its own gradient follows: the rule writes the formula down on a tape, and the tape
 * is walked backwards with the rules of the ops on it. The formula may use the tape's gradient too, so "the gradient of this
 * forward pass" is a formula as well. Whatever is not needed of it in the end is for dead code elimination to take away. */
#ifndef QN_OP_OP_TAPE_H
#define QN_OP_OP_TAPE_H

#include "op/op_emit.h"

enum { QN_OP_TAPE_STEPS = 192, QN_OP_TAPE_ATTR_BYTES = 12288, QN_OP_TAPE_SRC = 10, QN_OP_TAPE_DST = 5 };

typedef struct qn_op_tape_step {
    int op, subop, n_src, n_out;
    int varies;
    const void *attr; /* in the tape's pool, complete; NULL: the defaults */
    qn_val src[QN_OP_TAPE_SRC], out[QN_OP_TAPE_DST];
    qn_val grad[QN_OP_TAPE_DST]; /* of the walk at hand */
} qn_op_tape_step;

typedef struct qn_op_tape {
    const qn_emitter *under; /* who really takes the ops */
    qn_emitter emitter;      /* writes them down and passes them on */
    int n, paused;
    qn_op_tape_step step[QN_OP_TAPE_STEPS];
    size_t used;
    _Alignas(16) char pool[QN_OP_TAPE_ATTR_BYTES];
} qn_op_tape;

/* Gradients of `of`, whose own are `up`, by the values `by`: out[i] is QN_VAL_NONE where it is zero. Entries of `of` and `up`
 * that are QN_VAL_NONE count as zero too. What is emitted while the tape is paused is a constant to it. */
void qn_op_tape_back(qn_op_tape *t, qn_vjp_call *v, int n, const qn_val *of, const qn_val *up, int n_by, const qn_val *by,
                     qn_val *out);

/* Values that are one and the same become values of their own, before the formula: a walk by all of them gives each its part. */
void qn_op_tape_apart(qn_vjp_call *v, int n, qn_val *by);

/* Writes the outputs of the op that v is about, as a formula of its sources. */
typedef void (*qn_op_formula)(qn_vjp_call *v, qn_op_tape *t, qn_val *out);
/* A whole rule: the gradient of that formula for every source wanted. */
void qn_op_vjp_of_formula(qn_vjp_call *v, qn_op_formula formula);

/* A half as f32; others as they are. Formulas are computed in these. */
qn_val qn_op_wide(qn_vjp_call *v, qn_val x);

#endif
