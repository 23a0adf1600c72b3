/* The gradient of an op in a graph of its own against its rule run at once. */
#ifndef QN_TESTS_CHECK_GRAD_GRAPH_H
#define QN_TESTS_CHECK_GRAD_GRAPH_H

#include "check.h"

/* weight: what comes in for the f64 outputs, one behind the other. want: sources by which; grad: what the rule gave for them. 1 when
 * there was something to compare: sources that lie apart or are written over make no such graph. */
int qc_grad_graph(const qc_built *b, const double *weight, const int *want, double *const *grad);

#endif
