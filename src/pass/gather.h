/* Ops that read one x, each with weights of its own, become one op that reads it once: what the passes that do so share. The op stands
 * where the first of its members stood, so the weights of the others must be there by then; and the others must be near, or their
 * results would lie in memory long before they are wanted. */
#ifndef QN_PASS_GATHER_H
#define QN_PASS_GATHER_H

#include "ir/rebuild.h"
#include "pass/facts.h"

enum { QN_GATHER_MOST = 4 };

typedef struct qn_gather_group {
    int n;
    int32_t node[QN_GATHER_MOST];
} qn_gather_group;

typedef struct qn_gather_rule {
    const char *name;
    int op; /* that they become */
    /* The value a node shares with others; QN_VAL_NONE: it is none of these ops. */
    qn_val (*shared)(const qn_graph *g, int32_t node);
    /* Whether a node that reads the same value can join. */
    int (*joins)(const qn_pass_facts *f, const qn_gather_group *group, int32_t node);
    /* Whether the op gives what the members gave; NULL: always. */
    int (*taken)(const qn_graph *g, const qn_gather_group *group);
    /* Applies the op; out has a value for each member. */
    qn_status (*make)(qn_rebuild *r, const qn_gather_group *group, qn_val *out);
} qn_gather_rule;

/* Whether a value that node `at` reads is there, and is the same, where `first` stands. None is. */
int qn_gather_reads_the_same(const qn_pass_facts *f, qn_val v, int32_t at, int32_t first);
/* Runs the pass: `to` stays NULL when there is no group. */
qn_status qn_gather_run(qn_pass_run *run, const qn_gather_rule *rule, qn_graph **to);

#endif
