/* A pass takes a graph and makes the next one. What it does it does in steps that can be counted, named, skipped and stopped at
 * a limit, so that a wrong result can be traced to one of them. */
#ifndef QN_PASS_PASS_H
#define QN_PASS_PASS_H

#include "ir/rebuild.h"

typedef struct qn_pass_run {
    const char *name;
    const qn_graph *from;           /* what it works on; passes that go in rounds move it along */
    const qn_pass_options *options; /* never NULL */
    int32_t changed;                /* things done so far by this pass */
    int32_t *left;                  /* things that may still be done by all passes; NULL: any number */
    qn_error *error;
} qn_pass_run;

/* *to stays NULL when there is nothing to do. */
#define QN_PASS(name, summary) qn_status qn_pass_##name(qn_pass_run *run, qn_graph **to);
#define QN_PASS_RULE(name) extern const char qn_pass_rule_##name[];
#include "pass/passes.def"
#undef QN_PASS
#undef QN_PASS_RULE

/* Asks for leave to do one thing, and counts it: 0 when its rule is to be skipped or the limit is reached. The rule is a
 * qn_pass_rule_<name> or the name of a row. */
int qn_pass_may(qn_pass_run *run, const char *rule, int32_t node);
/* Tells why something that looked like a rule's pattern was left alone. */
void qn_pass_missed(qn_pass_run *run, const char *rule, int32_t node, const char *why);
/* Whether fusing nodes into an op does no harm: there is a kernel for it, or none for any of them either. */
int qn_pass_claims(const qn_pass_run *run, int op, int subop, const qn_graph *g, const int32_t *nodes, int n);
/* Whether a name is in a list of names separated by commas. */
int qn_pass_listed(const char *list, const char *name);

/* Whether a graph has a node of an op: most passes need not walk a graph that has none of theirs. */
int qn_pass_has_op(const qn_graph *g, int op);
/* Adds a node unless its op refuses, at the upper bounds of the symbols; 0 then, and the graph is as it was. A graph keeps the
 * first refusal for good, so passes that are not sure ask this way. */
int qn_pass_try(qn_graph *g, int op, int subop, int n_src, const qn_val *src, const void *attr, int n_out, qn_val *out);

/* How much of a graph there is, to take off what comes later. */
typedef struct qn_pass_mark {
    size_t nodes, sources, values, constants;
} qn_pass_mark;

static inline qn_pass_mark qn_pass_mark_of(const qn_graph *g) {
    return (qn_pass_mark){g->nodes.n, g->sources.n, g->values.n, g->constants.n};
}
static inline void qn_pass_roll_back(qn_graph *g, qn_pass_mark mark) {
    g->nodes.n = mark.nodes;
    g->sources.n = mark.sources;
    g->values.n = mark.values;
    g->constants.n = mark.constants;
}

/* Whether a node may be computed once instead of twice, or never: it only makes its outputs out of its sources, and nobody writes over
 * them. State that is updated in place and the caller's own functions are not like that. */
int qn_pass_is_pure(const qn_graph *g, const qn_ir_node *n);
/* Whether some node updates the memory that a node made for its first output, or that this is a view of. Such a copy is wanted, even of
 * the same numbers: instead of it another value would be written over. */
int qn_pass_is_written_over(const qn_graph *g, const qn_ir_node *n);

/* One pass by name, for tests. *changed (may be NULL) is how many things it did, 0 when the graph is as it was. */
qn_status qn_pass_one(const qn_graph *graph, const char *name, qn_graph **out, int32_t *changed, qn_error *error);

#endif
