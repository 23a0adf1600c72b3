/* Squares of 16-bit words: every sixteen bytes of a vector hold eight of them, and eight vectors so many squares side by side, which are
 * turned over their diagonals.
 *
 *   vw                   a vector of words
 *   VW_ROWS, VW_LONG     rows that eight vectors hold, words of each
 *   vw_rows(a, b)        words from a on, and where VW_ROWS is 16 those from b on, which is eight rows below
 *   vw_turn(r)           the eight
 *   vw_put(w, to, far)   turned: VW_ROWS words of one column, and where VW_LONG is 16 those of the eighth one behind it */
#ifndef QN_CPU_SIMD_SIMD_WORDS_H
#define QN_CPU_SIMD_SIMD_WORDS_H

#include "cpu/simd/simd_turn.h"

typedef uint16_t vw __attribute__((vector_size(VF_N * 4)));

#if defined(QN_SIMD_AVX512)
enum { VW_ROWS = 16, VW_LONG = 16 };
static inline vw vw_zip_low(vw a, vw b) { return (vw)_mm512_unpacklo_epi16((__m512i)a, (__m512i)b); }
static inline vw vw_zip_high(vw a, vw b) { return (vw)_mm512_unpackhi_epi16((__m512i)a, (__m512i)b); }
static inline vw vw_rows(const void *a, const void *b) {
    return (vw)_mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(a)), _mm256_loadu_si256(b), 1);
}
static inline void vw_put(vw w, void *to, void *far) {
    __m512i sorted = _mm512_shuffle_i64x2((__m512i)w, (__m512i)w,
                                          0xd8); /* what belongs to one column lies in every other sixteen bytes */
    _mm256_storeu_si256(to, _mm512_castsi512_si256(sorted));
    _mm256_storeu_si256(far, _mm512_extracti64x4_epi64(sorted, 1));
}
#elif defined(QN_SIMD_AVX2)
enum { VW_ROWS = 8, VW_LONG = 16 };
static inline vw vw_zip_low(vw a, vw b) { return (vw)_mm256_unpacklo_epi16((__m256i)a, (__m256i)b); }
static inline vw vw_zip_high(vw a, vw b) { return (vw)_mm256_unpackhi_epi16((__m256i)a, (__m256i)b); }
static inline vw vw_rows(const void *a, const void *b) { return (void)b, (vw)_mm256_loadu_si256(a); }
static inline void vw_put(vw w, void *to, void *far) {
    _mm_storeu_si128(to, _mm256_castsi256_si128((__m256i)w));
    _mm_storeu_si128(far, _mm256_extracti128_si256((__m256i)w, 1));
}
#else
enum { VW_ROWS = 8, VW_LONG = 8 };
static inline vw vw_zip_low(vw a, vw b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
static inline vw vw_zip_high(vw a, vw b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
static inline vw vw_rows(const void *a, const void *b) {
    vw w;
    memcpy(&w, a, sizeof w);
    return (void)b, w;
}
static inline void vw_put(vw w, void *to, void *far) {
    memcpy(to, &w, sizeof w);
    (void)far;
}
#endif

QN_TURN(vw, 8)

#endif
