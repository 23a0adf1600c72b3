/* Products of two rows with two rows, where the machine has them: what lies in a vector here are eight bytes of one row and eight of the
 * next.
 *
 *   vu_pair_low, vu_pair_high    words a and b of four rows: the pair of the first two of these, and of the last two
 *   vi_pair_start(a, b)          sums of which a row a's begin with a and a row b's with b
 *   vi_dot_pairs(s, x, w)        s + the products of the rows of x with the rows of w
 *   vi_of_first, vi_of_second    sums of a pair x with two pairs of w: those of its first row, four lanes; of its second */
#ifndef QN_CPU_SIMD_SIMD_SQUARE_H
#define QN_CPU_SIMD_SIMD_SQUARE_H

#include "cpu/simd/simd_dot.h"

static inline vu vu_pair_low(vu a, vu b) { return (vu)vzip1q_u32((uint32x4_t)a, (uint32x4_t)b); }
static inline vu vu_pair_high(vu a, vu b) { return (vu)vzip2q_u32((uint32x4_t)a, (uint32x4_t)b); }

static inline vi vi_pair_start(int32_t a, int32_t b) { return (vi)vcombine_s32(vdup_n_s32(a), vdup_n_s32(b)); }
static inline vi vi_dot_pairs(vi s, vu x, vu w) { return (vi)vmmlaq_s32((int32x4_t)s, (int8x16_t)x, (int8x16_t)w); }
static inline vi vi_of_first(vi a, vi b) { return (vi)vzip1q_s64((int64x2_t)a, (int64x2_t)b); }
static inline vi vi_of_second(vi a, vi b) { return (vi)vzip2q_s64((int64x2_t)a, (int64x2_t)b); }

#endif
