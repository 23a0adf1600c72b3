/* Random numbers that are the same everywhere: SplitMix64 (Steele, Lea and Flood 2014). The state is one 64-bit counter that
 * goes up by 0x9E3779B97F4A7C15; each number is the counter, mixed. Any seed is as good as any other. */
#ifndef QN_BASE_RAND_H
#define QN_BASE_RAND_H

#include <stdint.h>

typedef struct qn_rand {
    uint64_t state;
} qn_rand;

uint64_t qn_rand_next(qn_rand *rand);
/* In [0, 1), with 53 random bits. */
double qn_rand_unit(qn_rand *rand);

#endif
