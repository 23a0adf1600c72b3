/* Random graphs, for the modes that need some: two leaves "x" and "w" of one shape [a, b], a constant, up to 40 nodes, the
 * outputs "loss" (one element) and "middle". Everything is f64 and smooth. */
#ifndef QN_TESTS_CHECK_GRAPHS_H
#define QN_TESTS_CHECK_GRAPHS_H

#include <quern/plan.h>

#include "check.h"

enum { QC_LEAF_MOST = 12, QC_BATCH_MOST = 12, QC_GRAPH_BYTES = 1 << 20 };

/* Where a graph is run: the leaves that go with a seed, moved by so much along x and w (NULL: not moved). */
typedef struct qc_point {
    uint64_t seed;
    const double *x, *w;
    double by;
    int batch; /* items of a leaf that has one more axis */
    int item;  /* the item that goes into one that has not; 0 for w unless w_too */
    int w_too;
} qc_point;

qn_graph *qc_graph_make(uint64_t seed, qn_val *loss);
qn_val qc_graph_leaf_value(const qn_graph *g, const char *name);
/* The QC_LEAF_MOST numbers that a leaf begins with; x has the seed, w the next one. */
void qc_graph_leaf(uint64_t seed, const double *along, double by, double *data);
/* Outputs of a planned graph, dense, one behind the other, into QC_GRAPH_BYTES; how many bytes. */
size_t qc_graph_run(const qn_graph *g, uint32_t flags, const qc_point *at, char *out);

/* Tangents, Hessians, checkpointing and batching of one random graph. */
void qc_graph_derive(uint64_t seed, char *a, char *b);

#endif
