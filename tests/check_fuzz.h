/* Between check_fuzz.c and check_hostile.c. */
#ifndef QN_TESTS_CHECK_FUZZ_H
#define QN_TESTS_CHECK_FUZZ_H

#include "check.h"

/* Spoils one thing of the request at random. Data pointers and sizes stay true. */
void qc_spoil(qc_built *b, qc_rng *rng);
/* Makes sure that what would be accepted is small enough to run: strides of zero can make a few bytes look like terabytes. */
void qc_defuse(qc_built *b);

#endif
