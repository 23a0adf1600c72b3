/* Values combined two by two, as reductions and pools do it. */
#ifndef QN_CPU_K_FOLD_H
#define QN_CPU_K_FOLD_H

#include <math.h>

#include "cpu/k_lanes.h"

/* Of extrema NaN stays, and is taken from b. */
QN_INLINE vf qn_fold(int reduction, vf a, vf b) {
    if (reduction == QN_REDUCE_max) return vf_select(b != b, b, vf_max(b, a));
    return reduction == QN_REDUCE_min ? vf_select(b != b, b, vf_min(b, a)) : a + b;
}
/* What changes nothing. */
QN_INLINE float qn_fold_nothing(int reduction) {
    return reduction == QN_REDUCE_max ? -INFINITY : reduction == QN_REDUCE_min ? INFINITY : 0.0f;
}

#endif
