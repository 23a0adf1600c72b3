/* Reasons by name, and results as errors: for our own code and its tests; callers have qn_result_format. */
#ifndef QN_BASE_REASON_H
#define QN_BASE_REASON_H

#include <quern/quern.h>

const char *qn_reason_name(qn_reason reason);
/* The sentence of a result as a qn_error, to be wrapped and passed on. (src/op/result.c) */
qn_status qn_result_to_error(const qn_result *result, qn_error *error);

#endif
