/* Branches and loops for random graphs: a value in, one of the same shape out, with small random bodies that are smooth and keep
 * numbers small. */
#ifndef QN_TESTS_CHECK_BODIES_H
#define QN_TESTS_CHECK_BODIES_H

#include <quern/graph.h>

#include "check.h"

/* Weights for a dense layer inside; QN_VAL_NONE: none. */
typedef struct qc_layer {
    qn_val w, bias;
} qc_layer;

/* a and b have one float dtype and one shape, which for a scan has two axes at least. QN_VAL_NONE after an error. */
qn_val qc_bodies_add(qn_graph *g, qc_rng *rng, qn_val a, qn_val b, qc_layer layer);
/* A scan over the first axis of x [T, H, D] whose body is one step of the delta rule, with sums of products or with products; what it
 * reads, in the shape of x. */
qn_val qc_delta_scan_add(qn_graph *g, qc_rng *rng, qn_val x, qn_val y);
/* Fails unless every kind was made. */
void qc_bodies_end(void);

#endif
