/* The Walsh-Hadamard transform of one row, for the ops that turn vectors on their way. */
#ifndef QN_CPU_K_FWHT_H
#define QN_CPU_K_FWHT_H

#include "cpu/kernel.h"

enum { QN_FWHT_LEAST = 16 }; /* a vector of every level */

/* In place, n a power of two and no less than QN_FWHT_LEAST; not yet divided by the root of n. */
#define qn_fwht_transform QN_K(fwht_transform)
void qn_fwht_transform(float *x, int64_t n);

#endif
