/* The three ways a graph can write x w + bias, read as one. */
#ifndef QN_PASS_LINEAR_H
#define QN_PASS_LINEAR_H

#include "pass/facts.h"

typedef struct qn_pass_linear {
    qn_val x, w, bias;               /* bias QN_VAL_NONE: none */
    int32_t transpose_w, act, dtype; /* as attributes of linear */
} qn_pass_linear;

/* Whether a node is matmul, mul_mat or linear with a matrix of weights, and nothing added behind the activation. */
int qn_pass_linear_of(const qn_graph *g, int32_t node, qn_pass_linear *l);

#endif
