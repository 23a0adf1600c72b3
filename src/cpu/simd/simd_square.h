/* Products of two rows with two rows, where the machine has them: what lies in a quarter of a register, sixteen bytes, are eight bytes of
 * one row and eight of the next. Longer registers hold several pairs of rows.
 *
 *   vu_pair_low, vu_pair_high    words a and b of VF_N rows: the pairs of the first half of these, and of the last
 *   vu_pair_rows(a, b, ...)      sixteen bytes of two rows as two pairs in memory
 *   vu_pair_load(p)              a pair, the same in every quarter
 *   vu_minus_bytes(a, b)         byte by byte
 *   vi_dot_pairs(s, x, w)        s + the products of the rows of x with the rows of w
 *
 * Sums of a pair x with the pairs of w:
 *
 *   vf_pair_low, vf_pair_high    from those of x's first row and those of its second, in the order of w's rows: with low and with high
 *   vf_of_first, vf_of_second    back: those of the first row, those of the second
 *   vf_pair_rows(a, b, to)       a number of the first row and one of the second as a pair in memory; vf_pair_load */
#ifndef QN_CPU_SIMD_SIMD_SQUARE_H
#define QN_CPU_SIMD_SIMD_SQUARE_H

#include <arm_neon.h>

#include "cpu/simd/simd_dot.h"

#if defined(QN_SIMD_SVE)
static inline vu vu_pair_low(vu a, vu b) { return svzip1_u32(a, b); }
static inline vu vu_pair_high(vu a, vu b) { return svzip2_u32(a, b); }
static inline vu vu_pair_load(const void *p) { return svld1rq_u32(VF_ALL, p); }
static inline vu vu_minus_bytes(vu a, vu b) {
    return svreinterpret_u32_u8(svsub_u8_x(svptrue_b8(), svreinterpret_u8_u32(a), svreinterpret_u8_u32(b)));
}
#if defined(__clang__)
static inline vi vi_dot_pairs(vi s, vu x, vu w) { return svmmla_s32(s, svreinterpret_s8_u32(x), svreinterpret_s8_u32(w)); }
#else /* by its name for the reason of vf_fma_stay */
static inline vi vi_dot_pairs(vi s, vu x, vu w) {
    __asm__("smmla %0.s, %1.b, %2.b" : "+w"(s) : "w"(x), "w"(w));
    return s;
}
#endif
#define VF_TWOS(of, a, b) svreinterpret_f32_f64(of(svreinterpret_f64_f32(a), svreinterpret_f64_f32(b)))
static inline vf vf_pair_low(vf a, vf b) { return VF_TWOS(svzip1_f64, a, b); }
static inline vf vf_pair_high(vf a, vf b) { return VF_TWOS(svzip2_f64, a, b); }
static inline vf vf_of_first(vf low, vf high) { return VF_TWOS(svuzp1_f64, low, high); }
static inline vf vf_of_second(vf low, vf high) { return VF_TWOS(svuzp2_f64, low, high); }
static inline vf vf_pair_load(const float *p) { return svld1rq_f32(VF_ALL, p); }
#else
static inline vu vu_pair_low(vu a, vu b) { return (vu)vzip1q_u32((uint32x4_t)a, (uint32x4_t)b); }
static inline vu vu_pair_high(vu a, vu b) { return (vu)vzip2q_u32((uint32x4_t)a, (uint32x4_t)b); }
static inline vu vu_pair_load(const void *p) { return vu_load(p); }
static inline vu vu_minus_bytes(vu a, vu b) { return (vu)vsubq_u8((uint8x16_t)a, (uint8x16_t)b); }
static inline vi vi_dot_pairs(vi s, vu x, vu w) {
    __asm__("smmla %0.4s, %1.16b, %2.16b" : "+w"(s) : "w"(x), "w"(w));
    return s;
}
static inline vf vf_pair_low(vf a, vf b) { return (vf)vzip1q_f64((float64x2_t)a, (float64x2_t)b); }
static inline vf vf_pair_high(vf a, vf b) { return (vf)vzip2q_f64((float64x2_t)a, (float64x2_t)b); }
static inline vf vf_of_first(vf low, vf high) { return vf_pair_low(low, high); }
static inline vf vf_of_second(vf low, vf high) { return vf_pair_high(low, high); }
static inline vf vf_pair_load(const float *p) { return vf_load(p); }
#endif

/* By general registers: what multiplies has enough to do. */
static inline void vu_pair_rows(const int8_t *a, const int8_t *b, int8_t *first, int8_t *second) {
    uint64_t x[2], y[2];
    memcpy(x, a, sizeof x);
    memcpy(y, b, sizeof y);
    __asm__("" : "+r"(x[0]), "+r"(x[1]), "+r"(y[0]), "+r"(y[1]));
    memcpy(first, (uint64_t[2]){x[0], y[0]}, 2 * sizeof *x);
    memcpy(second, (uint64_t[2]){x[1], y[1]}, 2 * sizeof *x);
}
static inline uint64_t number_twice(const float *p) {
    uint32_t bits;
    memcpy(&bits, p, sizeof bits);
    uint64_t two = bits | (uint64_t)bits << 32;
    __asm__("" : "+r"(two));
    return two;
}
static inline void vf_pair_rows(const float *a, const float *b, float *to) {
    memcpy(to, (uint64_t[2]){number_twice(a), number_twice(b)}, 2 * sizeof(uint64_t));
}

#endif
