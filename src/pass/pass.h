/* A pass takes a graph and makes the next one. What it does it does in steps that can be counted, named, skipped and stopped at a limit,
 * so that a wrong result can be traced to one of them. */
#ifndef QN_PASS_PASS_H
#define QN_PASS_PASS_H

#include "ir/rebuild.h"

typedef struct qn_pass_run {
    const char *name;
    const qn_graph *from;
    const qn_pass_options *options; /* never NULL */
    int32_t changed;                /* things done so far by this pass */
    int32_t *left;                  /* things that may still be done by all passes; NULL: any number */
    qn_error *error;
} qn_pass_run;

#define QN_PASS(name, summary) qn_status qn_pass_##name(qn_pass_run *run, qn_graph **to);
#include "pass/passes.def"
#undef QN_PASS

/* Asks for leave to do one thing, and counts it: 0 when its rule is to be skipped or the limit is reached. */
int qn_pass_may(qn_pass_run *run, const char *rule, int32_t node);
/* Tells why something that looked like a rule's pattern was left alone. */
void qn_pass_missed(qn_pass_run *run, const char *rule, int32_t node, const char *why);
/* Whether a name is in a list of names separated by commas. */
int qn_pass_listed(const char *list, const char *name);

/* Whether a node may be computed once instead of twice, or never: it only makes its outputs out of its sources. State that is updated
 * in place and the caller's own functions are not like that. */
int qn_pass_is_pure(const qn_ir_node *n);

#endif
