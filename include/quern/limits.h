/* What the machine can do, in more detail than quern/record.h has it: bandwidth by kind of access and by where the data lie, and rates of
 * products of bytes. */
#ifndef QUERN_LIMITS_H
#define QUERN_LIMITS_H

#include <quern/record.h>

#ifdef __cplusplus
extern "C" {
#endif

/* GB/s that loops ask for and store. Where the machine can store past its caches, the figure is the better of that and plain stores,
 * which first fetch their lines. */
typedef struct qn_bandwidth {
    double read;            /* best of the next three */
    double read_streams[3]; /* a thread reads one array, or two, or four at a time */
    double write, copy;     /* a = s, a = b */
    double triad;           /* a = b + s * c */
} qn_bandwidth;

/* qn_limits_measure fills all of this for a caller who sets roof.size to sizeof(qn_limits_all) and passes &roof. */
typedef struct qn_limits_all {
    qn_limits roof;                   /* its rates of memory are those of `memory` */
    double dots, dots_core;           /* products of bytes, summed in 32 bits, count two; 0: no instruction for them */
    double tiles, tiles_core;         /* and by tiles */
    uint64_t cache_bytes;             /* of the last cache, as the system tells it; 0: it does not */
    qn_bandwidth memory, memory_core; /* of arrays larger than caches, or as large as the time allows */
    qn_bandwidth cache, cache_core;   /* of arrays that the last cache holds */
} qn_limits_all;

#ifdef __cplusplus
}
#endif

#endif
