/* A pass takes a graph and makes the next one. It says how many nodes it did away with; 0 means that nothing changed. */
#ifndef QN_PASS_PASS_H
#define QN_PASS_PASS_H

#include "ir/rebuild.h"

#define QN_PASS(name, summary) qn_status qn_pass_##name(const qn_graph *from, qn_graph **to, int32_t *changed, qn_error *error);
#include "pass/passes.def"
#undef QN_PASS

/* Whether a node may be computed once instead of twice, or never: it only makes its outputs out of its sources. State that is updated
 * in place and the caller's own functions are not like that. */
int qn_pass_is_pure(const qn_ir_node *n);

#endif
