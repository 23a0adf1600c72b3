/* Codes of a byte each, VF_N of them as the lanes of a vi, and single f16 numbers: what blocks are encoded and decoded with.
 *
 *   vi_load_u8, vi_load_s8   bytes to lanes            vi_store_8   the low bytes of the lanes
 *   vi_lanes                 0, 1, 2, ...              vi_signs     bit i set where lane i is negative
 *   half_to_f, half_of_f     one f16, rounded to nearest even */
#ifndef QN_CPU_SIMD_SIMD_CODES_H
#define QN_CPU_SIMD_SIMD_CODES_H

#include "cpu/simd/simd.h"

#if defined(QN_SIMD_SVE)
static inline vi vi_load_u8(const void *p) { return svld1ub_s32(VF_ALL, p); }
static inline vi vi_load_s8(const void *p) { return svld1sb_s32(VF_ALL, p); }
static inline void vi_store_8(void *p, vi a) { svst1b_s32(VF_ALL, p, a); }
static inline vi vi_lanes(void) { return svindex_s32(0, 1); }
static inline uint32_t vi_signs(vi a) {
    return (uint32_t)svorv_s32(svcmplt_n_s32(VF_ALL, a, 0),
                               svlsl_s32_x(VF_ALL, svdup_n_s32(1), svreinterpret_u32_s32(vi_lanes())));
}
#elif defined(__AVX512F__)
static inline vi vi_load_u8(const void *p) { return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)); }
static inline vi vi_load_s8(const void *p) { return (vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)); }
static inline void vi_store_8(void *p, vi a) { _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8((__m512i)a)); }
static inline vi vi_lanes(void) { return (vi){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }
static inline uint32_t vi_signs(vi a) { return _mm512_movepi32_mask((__m512i)a); }
#elif defined(__AVX2__)
static inline vi vi_load_u8(const void *p) { return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
static inline vi vi_load_s8(const void *p) { return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)); }
/* The low bytes come together in the first word of each half. */
static inline void vi_store_8(void *p, vi a) {
    const __m256i low = _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8, 12, -1, -1, -1, -1,
                                         -1, -1, -1, -1, -1, -1, -1, -1);
    __m256i words = _mm256_shuffle_epi8((__m256i)a, low);
    __m128i both = _mm_unpacklo_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storel_epi64((__m128i *)p, both);
}
static inline vi vi_lanes(void) { return (vi){0, 1, 2, 3, 4, 5, 6, 7}; }
static inline uint32_t vi_signs(vi a) { return (uint32_t)_mm256_movemask_ps((__m256)a); }
#elif defined(QN_SIMD_NEON)
static inline vi vi_load_u8(const void *p) {
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return (vi)vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(word)))));
}
static inline vi vi_load_s8(const void *p) {
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return (vi)vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(word)))));
}
static inline void vi_store_8(void *p, vi a) {
    uint16x4_t halves = vmovn_u32((uint32x4_t)a);
    uint32_t word = vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(halves, halves))), 0);
    memcpy(p, &word, sizeof word);
}
static inline vi vi_lanes(void) { return (vi){0, 1, 2, 3}; }
static inline uint32_t vi_signs(vi a) { return vaddvq_u32((uint32x4_t)(a >> 31) & (uint32x4_t){1, 2, 4, 8}); }
#else
static inline vi vi_load_u8(const void *p) {
    const uint8_t *b = p;
    return (vi){b[0], b[1], b[2], b[3]};
}
static inline vi vi_load_s8(const void *p) {
    const int8_t *b = p;
    return (vi){b[0], b[1], b[2], b[3]};
}
static inline void vi_store_8(void *p, vi a) {
    uint32_t word = ((uint32_t)a[0] & 255u) | ((uint32_t)a[1] & 255u) << 8 | ((uint32_t)a[2] & 255u) << 16 | (uint32_t)a[3] << 24;
    memcpy(p, &word, sizeof word);
}
static inline vi vi_lanes(void) { return (vi){0, 1, 2, 3}; }
static inline uint32_t vi_signs(vi a) {
    vi bits = a >> 31 & (vi){1, 2, 4, 8};
    return (uint32_t)(bits[0] | bits[1] | bits[2] | bits[3]);
}
#endif

#if defined(__F16C__)
static inline float half_to_f(uint16_t h) { return _cvtsh_ss(h); }
static inline uint16_t half_of_f(float f) { return (uint16_t)_cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT); }
#else
static inline float half_to_f(uint16_t h) { return qn_f16_to_f32(h); }
static inline uint16_t half_of_f(float f) { return qn_f32_to_f16(f); }
#endif
static inline float half_at(const void *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return half_to_f(h);
}

#endif
