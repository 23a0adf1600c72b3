/* Slope of a head in attention with linear biases: soft_max and the attention ops multiply their mask by it. */
#ifndef QN_OP_ALIBI_H
#define QN_OP_ALIBI_H

#include <math.h>
#include <stdint.h>

/* Heads below the largest power of two in `heads` take every step of a geometric row, the rest the steps in between.
 * A bias of 0 means no slopes: every head multiplies by 1. */
static inline double qn_alibi_slope(double max_bias, int64_t heads, int64_t head) {
    if (max_bias == 0) return 1;
    int64_t full = 1;
    while (full <= heads / 2) full *= 2;
    if (head < full) return exp2(-max_bias * (double)(head + 1) / (double)full);
    return exp2(-max_bias * (double)(2 * (head - full) + 1) / (2 * (double)full));
}

#endif
