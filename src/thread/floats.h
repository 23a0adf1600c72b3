/* How a thread rounds, and whether it takes the smallest numbers for zero: a worker does as its caller does, so that the number of
 * threads does not show in results. Which exceptions trap stays each thread's own. */
#ifndef QN_THREAD_FLOATS_H
#define QN_THREAD_FLOATS_H

#include <stdint.h>

#if defined(__x86_64__)
#define QN_FLOATS_MASK UINT64_C(0xe040) /* flush to zero, rounding, denormals are zero */
static inline uint64_t qn_floats_word(void) { return __builtin_ia32_stmxcsr(); }
static inline void qn_floats_load(uint64_t word) { __builtin_ia32_ldmxcsr((unsigned)word); }
#elif defined(__aarch64__)
#define QN_FLOATS_MASK UINT64_C(0x03c80000) /* flush to zero, of halves too, rounding, one NaN for all */
static inline uint64_t qn_floats_word(void) {
    uint64_t word;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    return word;
}
static inline void qn_floats_load(uint64_t word) { __asm__ volatile("msr fpcr, %0" : : "r"(word)); }
#else
#define QN_FLOATS_MASK UINT64_C(0)
static inline uint64_t qn_floats_word(void) { return 0; }
static inline void qn_floats_load(uint64_t word) { (void)word; }
#endif

static inline uint64_t qn_floats_mode(void) { return qn_floats_word() & QN_FLOATS_MASK; }

static inline void qn_floats_follow(uint64_t mode) {
    uint64_t word = qn_floats_word();
    if ((word & QN_FLOATS_MASK) != mode) qn_floats_load((word & ~QN_FLOATS_MASK) | mode);
}

#endif
