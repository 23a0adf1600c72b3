/* SplitMix64; see rand.h. */
#include "base/rand.h"

uint64_t qn_rand_next(qn_rand *rand) {
    uint64_t x = rand->state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

double qn_rand_unit(qn_rand *rand) { return (double)(qn_rand_next(rand) >> 11) * 0x1p-53; }
