/* Products of two rows with two rows, where the machine has them: what lies in a quarter of a register, sixteen bytes, are eight bytes of
 * one row and eight of the next. Longer registers hold several pairs of rows.
 *
 *   vu_pair_low, vu_pair_high    words a and b of VF_N rows: the pairs of the first half of these, and of the last
 *   vu_pair_rows(a, b, to)       sixteen bytes of two rows as two pairs, the same one in every quarter
 *   vi_pair_start(a, b)          sums of which a row a's begin with a and a row b's with b
 *   vi_dot_pairs(s, x, w)        s + the products of the rows of x with the rows of w
 *   vi_of_first, vi_of_second    sums of a pair x with the pairs of w, low and high: those of its first row in order; of its second */
#ifndef QN_CPU_SIMD_SIMD_SQUARE_H
#define QN_CPU_SIMD_SIMD_SQUARE_H

#include "cpu/simd/simd_dot.h"

#if defined(QN_SIMD_SVE)
static inline vu vu_pair_low(vu a, vu b) { return svzip1_u32(a, b); }
static inline vu vu_pair_high(vu a, vu b) { return svzip2_u32(a, b); }
static inline void vu_pair_rows(const int8_t *a, const int8_t *b, vu to[2]) {
    svint64_t x = svreinterpret_s64_s8(svld1rq_s8(svptrue_b8(), a)), y = svreinterpret_s64_s8(svld1rq_s8(svptrue_b8(), b));
    to[0] = svreinterpret_u32_s64(svtrn1_s64(x, y));
    to[1] = svreinterpret_u32_s64(svtrn2_s64(x, y));
}
static inline vi vi_pair_start(int32_t a, int32_t b) {
    svint64_t x = svreinterpret_s64_s32(svdup_n_s32(a)), y = svreinterpret_s64_s32(svdup_n_s32(b));
    return svreinterpret_s32_s64(svtrn1_s64(x, y));
}
static inline vi vi_dot_pairs(vi s, vu x, vu w) { return svmmla_s32(s, svreinterpret_s8_u32(x), svreinterpret_s8_u32(w)); }
static inline vi vi_of_first(vi a, vi b) {
    return svreinterpret_s32_s64(svuzp1_s64(svreinterpret_s64_s32(a), svreinterpret_s64_s32(b)));
}
static inline vi vi_of_second(vi a, vi b) {
    return svreinterpret_s32_s64(svuzp2_s64(svreinterpret_s64_s32(a), svreinterpret_s64_s32(b)));
}
#else
static inline vu vu_pair_low(vu a, vu b) { return (vu)vzip1q_u32((uint32x4_t)a, (uint32x4_t)b); }
static inline vu vu_pair_high(vu a, vu b) { return (vu)vzip2q_u32((uint32x4_t)a, (uint32x4_t)b); }
static inline void vu_pair_rows(const int8_t *a, const int8_t *b, vu to[2]) {
    int64x2_t x = vreinterpretq_s64_s8(vld1q_s8(a)), y = vreinterpretq_s64_s8(vld1q_s8(b));
    to[0] = (vu)vzip1q_s64(x, y);
    to[1] = (vu)vzip2q_s64(x, y);
}
static inline vi vi_pair_start(int32_t a, int32_t b) { return (vi)vcombine_s32(vdup_n_s32(a), vdup_n_s32(b)); }
static inline vi vi_dot_pairs(vi s, vu x, vu w) { return (vi)vmmlaq_s32((int32x4_t)s, (int8x16_t)x, (int8x16_t)w); }
static inline vi vi_of_first(vi a, vi b) { return (vi)vzip1q_s64((int64x2_t)a, (int64x2_t)b); }
static inline vi vi_of_second(vi a, vi b) { return (vi)vzip2q_s64((int64x2_t)a, (int64x2_t)b); }
#endif

#endif
