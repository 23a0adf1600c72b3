/* The dtype table for those who have already checked the number: no call, no test. */
#ifndef QN_TENSOR_DTYPE_H
#define QN_TENSOR_DTYPE_H

#include <quern/quern.h>

extern const qn_dtype_info qn_tensor_dtypes[QN_DTYPE_COUNT];

/* Bytes of one element, or of one block. */
static inline int64_t qn_dtype_bytes(uint32_t dtype) { return qn_tensor_dtypes[dtype].bytes; }

#endif
