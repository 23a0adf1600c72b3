/* Squares of bytes: every sixteen bytes of a vector belong to a row, and sixteen vectors hold as many squares side by side as a vector has
 * such parts, which are turned over their diagonals.
 *
 *   vb                  a vector of bytes            VB_ROWS   rows that sixteen vectors hold, sixteen bytes of each
 *   vb_rows(p, step)    sixteen bytes from p on, then of every sixteenth row behind it
 *   vb_turn(r)          the sixteen; then vector i is byte i of all rows */
#ifndef QN_CPU_SIMD_SIMD_BYTES_H
#define QN_CPU_SIMD_SIMD_BYTES_H

#include "cpu/simd/simd_turn.h"

enum { VB_ROWS = VF_N * 4 };
typedef uint8_t vb __attribute__((vector_size(VF_N * 4)));

#if defined(QN_SIMD_AVX512)
static inline vb vb_zip_low(vb a, vb b) { return (vb)_mm512_unpacklo_epi8((__m512i)a, (__m512i)b); }
static inline vb vb_zip_high(vb a, vb b) { return (vb)_mm512_unpackhi_epi8((__m512i)a, (__m512i)b); }
static inline __m128i vb_sixteen(const char *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }
static inline vb vb_rows(const char *p, int64_t step) {
    __m512i v = _mm512_castsi128_si512(vb_sixteen(p));
    v = _mm512_inserti32x4(v, vb_sixteen(p + 16 * step), 1);
    v = _mm512_inserti32x4(v, vb_sixteen(p + 32 * step), 2);
    return (vb)_mm512_inserti32x4(v, vb_sixteen(p + 48 * step), 3);
}
#elif defined(QN_SIMD_AVX2)
static inline vb vb_zip_low(vb a, vb b) { return (vb)_mm256_unpacklo_epi8((__m256i)a, (__m256i)b); }
static inline vb vb_zip_high(vb a, vb b) { return (vb)_mm256_unpackhi_epi8((__m256i)a, (__m256i)b); }
static inline vb vb_rows(const char *p, int64_t step) {
    return (vb)_mm256_loadu2_m128i((const __m128i *)(const void *)(p + 16 * step), (const __m128i *)(const void *)p);
}
#else
static inline vb vb_zip_low(vb a, vb b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
static inline vb vb_zip_high(vb a, vb b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
static inline vb vb_rows(const char *p, int64_t step) {
    vb v;
    memcpy(&v, p, sizeof v);
    return (void)step, v;
}
#endif

QN_TURN(vb, 16)

#endif
