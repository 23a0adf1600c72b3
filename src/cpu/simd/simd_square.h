/* Products of two rows with two rows, where the machine has them: what lies in a quarter of a register, sixteen bytes, are eight bytes of
 * one row and eight of the next. Longer registers hold several pairs of rows.
 *
 *   vu_pair_low, vu_pair_high    words a and b of VF_N rows: the pairs of the first half of these, and of the last
 *   vu_pair_rows(a, b, ...)      sixteen bytes of two rows as two pairs in memory
 *   vu_pair_load(p)              a pair, the same in every quarter
 *   vi_dot_pairs(s, x, w)        s + the products of the rows of x with the rows of w
 *
 * Sums of a pair x with the pairs of w:
 *
 *   vf_pair_low, vf_pair_high    from those of x's first row and those of its second, in the order of w's rows: with low and with high
 *   vf_of_first, vf_of_second    back: those of the first row, those of the second
 *   vf_pair_rows(a, b, to, step) four numbers of the first row and of the second as four pairs in memory; vf_pair_load */
#ifndef QN_CPU_SIMD_SIMD_SQUARE_H
#define QN_CPU_SIMD_SIMD_SQUARE_H

#include <arm_neon.h>

#include "cpu/simd/simd_dot.h"

#if defined(QN_SIMD_SVE)
static inline vu vu_pair_low(vu a, vu b) { return svzip1_u32(a, b); }
static inline vu vu_pair_high(vu a, vu b) { return svzip2_u32(a, b); }
static inline vu vu_pair_load(const void *p) { return svld1rq_u32(VF_ALL, p); }
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

static inline void vu_pair_rows(const int8_t *a, const int8_t *b, int8_t *first, int8_t *second) {
    int64x2_t x = vreinterpretq_s64_s8(vld1q_s8(a)), y = vreinterpretq_s64_s8(vld1q_s8(b));
    vst1q_s8(first, vreinterpretq_s8_s64(vzip1q_s64(x, y)));
    vst1q_s8(second, vreinterpretq_s8_s64(vzip2q_s64(x, y)));
}
static inline void vf_pair_rows(const float *a, const float *b, float *to, int step) {
    float32x4_t x = vld1q_f32(a), y = vld1q_f32(b);
    float64x2_t low[2] = {vreinterpretq_f64_f32(vzip1q_f32(x, x)), vreinterpretq_f64_f32(vzip1q_f32(y, y))};
    float64x2_t high[2] = {vreinterpretq_f64_f32(vzip2q_f32(x, x)), vreinterpretq_f64_f32(vzip2q_f32(y, y))};
    vst1q_f32(to, vreinterpretq_f32_f64(vzip1q_f64(low[0], low[1])));
    vst1q_f32(to + step, vreinterpretq_f32_f64(vzip2q_f64(low[0], low[1])));
    vst1q_f32(to + 2 * step, vreinterpretq_f32_f64(vzip1q_f64(high[0], high[1])));
    vst1q_f32(to + 3 * step, vreinterpretq_f32_f64(vzip2q_f64(high[0], high[1])));
}

#endif
