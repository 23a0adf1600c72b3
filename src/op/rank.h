/* Choices by rank that a reference and its kernel must make alike. */
#ifndef QN_OP_RANK_H
#define QN_OP_RANK_H

#include <math.h>
#include <stdint.h>

/* A group's rank, from its two best. +Inf beside -Inf adds up to no number, which counts as -Inf like any other: a group that stands in
 * no order to the rest would be chosen again and again, and too few be open in the end. */
static inline double qn_op_group_rank(double first, double second) {
    double sum = first + second;
    return isnan(sum) ? -INFINITY : sum;
}

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
