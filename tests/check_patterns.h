/* Graphs made of what passes look for, for `qn_check graphs`: one at a time, and at the end whether every pass did something. */
#ifndef QN_TESTS_CHECK_PATTERNS_H
#define QN_TESTS_CHECK_PATTERNS_H

#include "check.h"

void qc_graph_patterns(uint64_t seed);
void qc_graph_patterns_end(void);

#endif
