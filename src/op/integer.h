/* Integers as the general ops see them: loaded exactly into 64 bits, and saturated where a result does not fit. They never pass
 * through double, which would lose the low bits of the large ones. */
#ifndef QN_OP_INTEGER_H
#define QN_OP_INTEGER_H

#include "op/op.h"
#include "tensor/convert.h"

static inline int qn_is_integer(uint32_t dtype) { return dtype >= QN_DTYPE_I8 && dtype <= QN_DTYPE_U32; }

static inline void qn_store_integer(qn_dtype dtype, char *p, int64_t v) {
    if (dtype == QN_DTYPE_I64) memcpy(p, &v, sizeof v);
    else qn_store_one(dtype, p, (double)v); /* what 53 bits cannot hold is past the range of every narrower type */
}

/* A number as sign and magnitude; a magnitude that does not fit stays at its largest, and only a zero gets it down from there. */
typedef struct qn_signed {
    uint64_t size;
    int negative;
} qn_signed;

static inline qn_signed qn_signed_of(int64_t v) {
    qn_signed s = {v < 0 ? 0 - (uint64_t)v : (uint64_t)v, v < 0};
    return s;
}

static inline qn_signed qn_signed_mul(qn_signed a, qn_signed b) {
    qn_signed s = {0, a.negative != b.negative};
    if (__builtin_mul_overflow(a.size, b.size, &s.size)) s.size = UINT64_MAX;
    return s;
}

static inline int64_t qn_signed_value(qn_signed s) {
    if (s.negative) return s.size > (uint64_t)INT64_MAX ? INT64_MIN : -(int64_t)s.size;
    return s.size > (uint64_t)INT64_MAX ? INT64_MAX : (int64_t)s.size;
}

/* Wide enough for the sum of as many 64-bit integers as there can be. */
__extension__ typedef __int128 qn_wide;

static inline int64_t qn_wide_value(qn_wide v) { return v < INT64_MIN ? INT64_MIN : v > INT64_MAX ? INT64_MAX : (int64_t)v; }

#endif
