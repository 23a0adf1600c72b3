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
/* Fails unless every kind was made. */
void qc_bodies_end(void);

#endif
