/* A graph run the plain way: node by node through the dispatcher, every value dense in a place of its own, bodies of branches and
 * loops as the words of their ops say. What plans and passes are held against. */
#ifndef QN_TESTS_CHECK_EAGER_H
#define QN_TESTS_CHECK_EAGER_H

#include <quern/graph.h>

#include "check.h"

enum { QC_EAGER_VALUES = 1024, QC_EAGER_BYTES = 1 << 23 };

typedef struct qc_eager {
    qn_tensor value[QC_EAGER_VALUES]; /* of the graph that was run */
    char text[320];                   /* what went wrong */
    size_t used;
    _Alignas(64) char pool[QC_EAGER_BYTES];
} qc_eager;

/* Gives a leaf its numbers. */
typedef void (*qc_eager_fill_fn)(void *user, const qn_value_info *leaf, qn_tensor *t);
/* NULL, or what went wrong. */
const char *qc_eager_run(qc_eager *e, const qn_graph *g, qc_eager_fill_fn fill, void *user);
/* Whether a graph has a branch or a loop. */
int qc_eager_has_bodies(const qn_graph *g);

#endif
