/* Small integers four to a 32-bit lane, for the products of quantised weights.
 *
 *   vu                     VF_N lanes of 32 bits, here each of four bytes
 *   vu_load, vu_store      any address
 *   four_bytes(p)          as one number
 *   vi_dot4(s, w, x)       s + the four products of a lane of w with x, the same four bytes for every lane. w is unsigned and at most
 *                          127, x signed, neither is -128
 *   vi_dot4_wide(s, w, x)  the same for weights of full range: signed bytes, or VU_WIDE_FLIP set and 128 more than they are
 *   vi_dot4_upper(s, w, x) the same for the upper halves of w's bytes, in steps of 2^VI_UPPER_BITS: a sum of these, shifted down by that,
 *                          is exact
 *   vi_dot4_at(s, w, x, i) vi_dot4 with the bytes from 4 i on of x, and vi_dot4_upper_at, vi_run_dot4_at, vi_run_upper_at; x has whole
 *                          sixteens of them, i is constant
 *   vf_times_at(a, x, i), vf_fma_at(a, x, i, s)   a * x[i], and s more; likewise of whole fours
 *   vi_run_start(s), vi_run_dot4(r, w, x), vi_run_end(r, s)   s + the products of several words, vi_run_words(most) where codes are at most
 *                          `most`: so long pairs of products may be added up in 16 bits where that is cheaper (VI_RUNS)
 *   vi_sum_start(a)        a, from which sums go on that are made floats by vf_from_sum(s); they stay below 2^22
 *   vu_upper(w)            the upper halves of w's bytes       vu_join(a, b, mask)   a, which has no bit in mask, and the bits of b there
 *   vu_tops(a, b, c)       the two upper bits of each byte, those of a before those of b and c; on Arm only
 *   vf_from_byte(w, i)     byte i, a constant, of every lane; vf_from_signed_byte
 *   vu_table16(t, w)       t[byte] for bytes below 16
 *   vu_pick16(t, i)        t[i] of a table of an even number of 16-bit entries */
#ifndef QN_CPU_SIMD_SIMD_DOT_H
#define QN_CPU_SIMD_SIMD_DOT_H

#include "cpu/simd/simd_turn.h"

static inline vu vu_load(const void *p) {
    vu v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void vu_store(void *p, vu a) { memcpy(p, &a, sizeof a); }
static inline int32_t four_bytes(const int8_t *x) {
    int32_t four;
    memcpy(&four, x, 4);
    return four;
}
static inline vu vu_set1(uint32_t a) { return (vu)vi_set1((int32_t)a); }

#if defined(QN_SIMD_NEON) || defined(QN_SIMD_SVE)
/* A sum begins with the bits of 1.5 * 2^23, whose last bit is worth 1: what is added to them as integers, the float has more. Arm turns
 * integers into floats at a quarter of the pace at which it subtracts. The start comes from another kind of register, for which it has
 * a unit that products do not need; compilers that may would copy it from vector to vector. */
static inline vi vi_sum_start(int32_t a) {
    vi s;
#if defined(QN_SIMD_SVE) && defined(__clang__)
    s = vi_set1(a + 0x4b400000);
#elif defined(QN_SIMD_SVE)
    __asm__ volatile("mov %0.s, %w1" : "=w"(s) : "r"(a + 0x4b400000));
#else
    __asm__ volatile("dup %0.4s, %w1" : "=w"(s) : "r"(a + 0x4b400000));
#endif
    return s;
}
static inline vf vf_from_sum(vi a) { return vf_of_bits(a) - vf_set1(12582912.0f); }
#else
static inline vi vi_sum_start(int32_t a) { return vi_set1(a); }
static inline vf vf_from_sum(vi a) { return vf_from_i(a); }
#endif

#if defined(__AVX512VNNI__)
#define VU_WIDE_FLIP 0x80808080u
static inline vi vi_dot4(vi s, vu w, int32_t x) { return (vi)_mm512_dpbusd_epi32((__m512i)s, (__m512i)w, _mm512_set1_epi32(x)); }
static inline vi vi_dot4_wide(vi s, vu w, int32_t x) { return vi_dot4(s, w, x); }
#elif defined(__AVXVNNI__)
#define VU_WIDE_FLIP 0x80808080u
static inline vi vi_dot4(vi s, vu w, int32_t x) {
    return (vi)_mm256_dpbusd_avx_epi32((__m256i)s, (__m256i)w, _mm256_set1_epi32(x));
}
static inline vi vi_dot4_wide(vi s, vu w, int32_t x) { return vi_dot4(s, w, x); }
#elif defined(__AVX2__)
#define VU_WIDE_FLIP 0u
static inline vi vi_dot4(vi s, vu w, int32_t x) {
    __m256i pairs = _mm256_maddubs_epi16((__m256i)w, _mm256_set1_epi32(x));
    return s + (vi)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
/* |w| times x with the sign of w: pairs stay below 2^15. */
static inline vi vi_dot4_wide(vi s, vu w, int32_t x) {
    __m256i turned = _mm256_sign_epi8(_mm256_set1_epi32(x), (__m256i)w);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8((__m256i)w), turned);
    return s + (vi)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
#elif defined(QN_SIMD_SVE)
#define VU_WIDE_FLIP 0u
static inline vi vi_dot4_wide(vi s, vu w, int32_t x) {
    return svdot_s32(s, svreinterpret_s8_u32(w), svreinterpret_s8_s32(svdup_n_s32(x)));
}
static inline vi vi_dot4(vi s, vu w, int32_t x) { return vi_dot4_wide(s, w, x); }
#elif defined(QN_SIMD_NEON) && defined(__ARM_FEATURE_DOTPROD)
#define VU_WIDE_FLIP 0u
static inline vi vi_dot4_wide(vi s, vu w, int32_t x) {
    return (vi)vdotq_s32((int32x4_t)s, (int8x16_t)w, vreinterpretq_s8_s32(vdupq_n_s32(x)));
}
static inline vi vi_dot4(vi s, vu w, int32_t x) { return vi_dot4_wide(s, w, x); }
#elif defined(QN_SIMD_NEON)
#define VU_WIDE_FLIP 0u
static inline vi vi_dot4_wide(vi s, vu w, int32_t x) {
    int8x16_t four = vreinterpretq_s8_s32(vdupq_n_s32(x));
    int16x8_t low = vmull_s8(vget_low_s8((int8x16_t)w), vget_low_s8(four));
    int16x8_t high = vmull_high_s8((int8x16_t)w, four);
    return (vi)vaddq_s32((int32x4_t)s, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
}
static inline vi vi_dot4(vi s, vu w, int32_t x) { return vi_dot4_wide(s, w, x); }
#else
#define VU_WIDE_FLIP 0u
typedef int16_t vs __attribute__((vector_size(VF_N * 4)));
static inline vi vi_pair_sums(vs p) { return ((vi)p << 16 >> 16) + ((vi)p >> 16); }
/* Even and odd bytes apart: a product of two bytes fits 16 bits. */
static inline vi vi_dot4_wide(vi s, vu w, int32_t x) {
    vs even = (vs)w << 8 >> 8, odd = (vs)w >> 8, four = (vs)vi_set1(x);
    return s + vi_pair_sums(even * (four << 8 >> 8)) + vi_pair_sums(odd * (four >> 8));
}
static inline vi vi_dot4(vi s, vu w, int32_t x) { return vi_dot4_wide(s, w, x); }
#endif

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
/* Bytes of full range are welcome there: to leave the halves where they are saves a shift a word. */
enum { VI_UPPER_BITS = 4 };
static inline vi vi_dot4_upper(vi s, vu w, int32_t x) { return vi_dot4(s, w & 0xf0f0f0f0u, x); }
#else
enum { VI_UPPER_BITS = 0 };
static inline vi vi_dot4_upper(vi s, vu w, int32_t x) { return vi_dot4(s, w >> 4 & 0x0f0f0f0fu, x); }
#endif

#if defined(__AVX2__) && !defined(__AVX512VNNI__) && !defined(__AVXVNNI__)
#define VI_RUNS 1
static inline int vi_run_words(int most) { return most <= 15 ? 8 : most <= 31 ? 4 : most <= 63 ? 2 : 1; }
static inline vi vi_run_start(vi s) { return s - s; }
static inline vi vi_run_dot4(vi r, vu w, int32_t x) {
    return (vi)_mm256_add_epi16((__m256i)r, _mm256_maddubs_epi16((__m256i)w, _mm256_set1_epi32(x)));
}
static inline vi vi_run_end(vi r, vi s) { return s + (vi)_mm256_madd_epi16((__m256i)r, _mm256_set1_epi16(1)); }
#else
#define VI_RUNS 0
static inline int vi_run_words(int most) { return (void)most, 8; }
static inline vi vi_run_start(vi s) { return s; }
static inline vi vi_run_dot4(vi r, vu w, int32_t x) { return vi_dot4(r, w, x); }
static inline vi vi_run_end(vi r, vi s) { return (void)s, r; }
#endif

#if defined(QN_SIMD_SVE)
/* As with NEON below: the sixteen bytes are in every quarter that dots can take their four from. */
static inline vi vi_dot4_at(vi s, vu w, const int8_t *x, int i) {
    svint8_t all = svld1rq_s8(svptrue_b8(), x + (i & ~3) * 4), codes = svreinterpret_s8_u32(w);
    switch (i & 3) {
    case 0: return svdot_lane_s32(s, codes, all, 0);
    case 1: return svdot_lane_s32(s, codes, all, 1);
    case 2: return svdot_lane_s32(s, codes, all, 2);
    default: return svdot_lane_s32(s, codes, all, 3);
    }
}
static inline vi vi_dot4_upper_at(vi s, vu w, const int8_t *x, int i) {
    return vi_dot4_at(s, svreinterpret_u32_u8(svlsr_n_u8_x(svptrue_b8(), svreinterpret_u8_u32(w), 4)), x, i);
}
#elif defined(QN_SIMD_NEON) && defined(__ARM_FEATURE_DOTPROD)
/* Dots take their four from any quarter of a vector: one load for four of them, and none to spread a number. */
static inline vi vi_dot4_at(vi s, vu w, const int8_t *x, int i) {
    int8x16_t all = vld1q_s8(x + (i & ~3) * 4), codes = (int8x16_t)w;
    switch (i & 3) {
    case 0: return (vi)vdotq_laneq_s32((int32x4_t)s, codes, all, 0);
    case 1: return (vi)vdotq_laneq_s32((int32x4_t)s, codes, all, 1);
    case 2: return (vi)vdotq_laneq_s32((int32x4_t)s, codes, all, 2);
    default: return (vi)vdotq_laneq_s32((int32x4_t)s, codes, all, 3);
    }
}
static inline vi vi_dot4_upper_at(vi s, vu w, const int8_t *x, int i) {
    return vi_dot4_at(s, (vu)vshrq_n_u8((uint8x16_t)w, 4), x, i);
}
#else
static inline vi vi_dot4_at(vi s, vu w, const int8_t *x, int i) { return vi_dot4(s, w, four_bytes(x + 4 * i)); }
static inline vi vi_dot4_upper_at(vi s, vu w, const int8_t *x, int i) { return vi_dot4_upper(s, w, four_bytes(x + 4 * i)); }
#endif

static inline vi vi_run_dot4_at(vi r, vu w, const int8_t *x, int i) {
    return VI_RUNS ? vi_run_dot4(r, w, four_bytes(x + 4 * i)) : vi_dot4_at(r, w, x, i);
}
static inline vi vi_run_upper_at(vi r, vu w, const int8_t *x, int i) {
    return VI_RUNS ? vi_run_dot4(r, w >> 4 & 0x0f0f0f0fu, four_bytes(x + 4 * i)) : vi_dot4_upper_at(r, w, x, i);
}

#if defined(QN_SIMD_NEON)
static inline vf vf_times_at(vf a, const float *x, int i) {
    float32x4_t all = vld1q_f32(x + (i & ~3));
    switch (i & 3) {
    case 0: return (vf)vmulq_laneq_f32((float32x4_t)a, all, 0);
    case 1: return (vf)vmulq_laneq_f32((float32x4_t)a, all, 1);
    case 2: return (vf)vmulq_laneq_f32((float32x4_t)a, all, 2);
    default: return (vf)vmulq_laneq_f32((float32x4_t)a, all, 3);
    }
}
static inline vf vf_fma_at(vf a, const float *x, int i, vf sum) {
    float32x4_t all = vld1q_f32(x + (i & ~3));
    switch (i & 3) {
    case 0: return (vf)vfmaq_laneq_f32((float32x4_t)sum, (float32x4_t)a, all, 0);
    case 1: return (vf)vfmaq_laneq_f32((float32x4_t)sum, (float32x4_t)a, all, 1);
    case 2: return (vf)vfmaq_laneq_f32((float32x4_t)sum, (float32x4_t)a, all, 2);
    default: return (vf)vfmaq_laneq_f32((float32x4_t)sum, (float32x4_t)a, all, 3);
    }
}
#else
static inline vf vf_times_at(vf a, const float *x, int i) { return a * vf_set1(x[i]); }
static inline vf vf_fma_at(vf a, const float *x, int i, vf sum) { return vf_fma(a, vf_set1(x[i]), sum); }
#endif

#if defined(QN_SIMD_NEON)
static inline vu vu_join(vu low, vu high, uint32_t mask) {
    return (vu)vbslq_u32(vdupq_n_u32(mask), (uint32x4_t)high, (uint32x4_t)low);
}
static inline vu vu_upper(vu w) { return (vu)vshrq_n_u8((uint8x16_t)w, 4); }
static inline vu vu_tops(vu a, vu b, vu c) {
    uint8x16_t four = vsriq_n_u8(vsriq_n_u8((uint8x16_t)a, (uint8x16_t)b, 2), (uint8x16_t)c, 4);
    return (vu)vshrq_n_u8(four, 2);
}
/* The byte becomes the end of 2^23, whose last bit is worth 1. */
static inline vf vf_byte_on(vu w, int i, float less) {
    return vf_of_bits((vi)vu_join(vu_set1(0x4b000000u), w >> (8 * i), 255u)) - vf_set1(less);
}
static inline vf vf_from_byte(vu w, int i) { return vf_byte_on(w, i, 8388608.0f); }
static inline vf vf_from_signed_byte(vu w, int i) { return vf_byte_on(w ^ 0x80808080u, i, 8388736.0f); }
#else
static inline vu vu_join(vu low, vu high, uint32_t mask) { return low | (high & mask); }
#if defined(QN_SIMD_SVE)
#define VU_BYTES_DOWN(w, n) svreinterpret_u32_u8(svlsr_n_u8_x(svptrue_b8(), svreinterpret_u8_u32(w), n))
static inline vu vu_upper(vu w) { return VU_BYTES_DOWN(w, 4); }
static inline vu vu_tops(vu a, vu b, vu c) {
    vu high = VU_BYTES_DOWN(a, 2), middle = VU_BYTES_DOWN(b, 4), low = VU_BYTES_DOWN(c, 6);
    return (high & 0x30303030u) | (middle & 0x0c0c0c0cu) | low;
}
#else
static inline vu vu_upper(vu w) { return w >> 4 & 0x0f0f0f0fu; }
#endif
static inline vf vf_from_byte(vu w, int i) { return vf_from_i((vi)(w >> (8 * i) & 255u)); }
static inline vf vf_from_signed_byte(vu w, int i) { return vf_from_i((vi)w << (24 - 8 * i) >> 24); }
#endif

#if defined(__AVX512F__)
static inline vu vu_table16(const uint8_t *t, vu w) {
    return (vu)_mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)t)), (__m512i)w);
}
static inline vu vu_pick16(const uint16_t *t, vu i) {
    return (vu)_mm512_i32gather_epi32((__m512i)(i >> 1), t, 4) >> ((i & 1u) << 4) & 0xffffu;
}
#elif defined(__AVX2__)
static inline vu vu_table16(const uint8_t *t, vu w) {
    return (vu)_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)t)), (__m256i)w);
}
static inline vu vu_pick16(const uint16_t *t, vu i) {
    return (vu)_mm256_i32gather_epi32((const int *)(const void *)t, (__m256i)(i >> 1), 4) >> ((i & 1u) << 4) & 0xffffu;
}
#elif defined(QN_SIMD_SVE)
static inline vu vu_table16(const uint8_t *t, vu w) {
    return svreinterpret_u32_u8(svtbl_u8(svld1rq_u8(svptrue_b8(), t), svreinterpret_u8_u32(w)));
}
static inline vu vu_pick16(const uint16_t *t, vu i) { return svld1uh_gather_u32index_u32(VF_ALL, t, i); }
#else
#if defined(QN_SIMD_NEON)
static inline vu vu_table16(const uint8_t *t, vu w) { return (vu)vqtbl1q_u8(vld1q_u8(t), (uint8x16_t)w); }
#else
static inline vu vu_table16(const uint8_t *t, vu w) {
    uint8_t b[VF_N * 4];
    vu_store(b, w);
    for (int i = 0; i < VF_N * 4; i++) b[i] = t[b[i] & 15];
    return vu_load(b);
}
#endif
static inline vu vu_pick16(const uint16_t *t, vu i) {
    for (int l = 0; l < VF_N; l++) i[l] = t[i[l]];
    return i;
}
#endif

/* Over the lanes. */
static inline vi vi_add(vi a, vi b) { return a + b; }
#if defined(QN_SIMD_AVX512)
static inline vi vi_max(vi a, vi b) { return (vi)_mm512_max_epi32((__m512i)a, (__m512i)b); }
#elif defined(QN_SIMD_AVX2)
static inline vi vi_max(vi a, vi b) { return (vi)_mm256_max_epi32((__m256i)a, (__m256i)b); }
#elif defined(QN_SIMD_NEON)
static inline vi vi_max(vi a, vi b) { return (vi)vmaxq_s32((int32x4_t)a, (int32x4_t)b); }
#else
static inline vi vi_max(vi a, vi b) { return (a & (a > b)) | (b & ~(a > b)); }
#endif
static inline int32_t vi_total(vi a) {
    VI_FOLD(a, vi_add);
    return a[0];
}
static inline int32_t vi_largest(vi a) {
    VI_FOLD(a, vi_max);
    return a[0];
}

#endif
