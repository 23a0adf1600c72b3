/* Choices by rank that a reference and its kernel must make alike. */
#ifndef QN_OP_RANK_H
#define QN_OP_RANK_H

#include <stdint.h>

/* The best of x[n] that is worse than number `last` (-1: the best of all) and whose group is open; ties by the lower. */
static inline int64_t qn_op_next_best(const double *x, int64_t n, int64_t last, const double *open, int64_t per_group) {
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        if (open && open[i / per_group] == 0) continue;
        if (last >= 0 && (x[i] > x[last] || (x[i] == x[last] && i <= last))) continue;
        if (best < 0 || x[i] > x[best]) best = i;
    }
    return best;
}

#endif
