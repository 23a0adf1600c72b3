/* Words of VF_N rows that are turned on their way from memory, a stripe of VF_STRIPE at a time, and pairs of 16 bits that are parted. */
#ifndef QN_CPU_SIMD_SIMD_ROWS_H
#define QN_CPU_SIMD_SIMD_ROWS_H

#include "cpu/simd/simd_turn.h"

/* Memory that is to be read as such: compilers would keep what they know of it in registers, of which there are too few, or put together
 * in them what was parted in memory. */
static inline const void *vf_in_memory(const void *p) {
    __asm__ volatile("" : "+r"(p) : : "memory");
    return p;
}

/* vf_turn_rows: the words from `at` on of VF_N rows, which begin row[i] bytes behind: r[i] gets word i of each. */
#if defined(QN_SIMD_SVE)
enum { VF_STRIPE = VF_N };
static inline void vf_turn_rows(const char *at, const int64_t *row, vf *r) {
    QN_UNROLL
    for (int i = 0; i < VF_N; i++) r[i] = vf_load((const float *)(const void *)(at + row[i]));
    vf_turn(r);
}
#else
enum { VF_STRIPE = QN_LANES == 16 ? 8 : 4 };

/* Zips within quarters of 16 bytes: of single lanes, of pairs of lanes. */
#if QN_LANES == 16
#define VF_QUARTERS(a, b, i, j, k, l)                                                                                         \
    __builtin_shufflevector(a, b, i, j, k, l, i + 4, j + 4, k + 4, l + 4, i + 8, j + 8, k + 8, l + 8, i + 12, j + 12, k + 12, \
                            l + 12)
#elif QN_LANES == 8
#define VF_QUARTERS(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l, i + 4, j + 4, k + 4, l + 4)
#else
#define VF_QUARTERS(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#endif
static inline void vf_turn_quarters(vf *r) {
    vf a = VF_QUARTERS(r[0], r[1], 0, VF_N, 1, VF_N + 1), b = VF_QUARTERS(r[2], r[3], 0, VF_N, 1, VF_N + 1);
    vf c = VF_QUARTERS(r[0], r[1], 2, VF_N + 2, 3, VF_N + 3), d = VF_QUARTERS(r[2], r[3], 2, VF_N + 2, 3, VF_N + 3);
    r[0] = VF_QUARTERS(a, b, 0, 1, VF_N, VF_N + 1);
    r[1] = VF_QUARTERS(a, b, 2, 3, VF_N + 2, VF_N + 3);
    r[2] = VF_QUARTERS(c, d, 0, 1, VF_N, VF_N + 1);
    r[3] = VF_QUARTERS(c, d, 2, 3, VF_N + 2, VF_N + 3);
}

/* Half a vector from each of two places: that is a round of the turning which no shuffle has to do. */
#if QN_LANES == 16
static inline vf vf_load_two(const char *low, const char *high) {
    __m512d first = _mm512_castpd256_pd512(_mm256_loadu_pd((const double *)(const void *)low));
    return (vf)_mm512_insertf64x4(first, _mm256_loadu_pd((const double *)(const void *)high), 1);
}
#elif QN_LANES == 8
static inline vf vf_load_two(const char *low, const char *high) {
    __m256 first = _mm256_castps128_ps256(_mm_loadu_ps((const float *)(const void *)low));
    return (vf)_mm256_insertf128_ps(first, _mm_loadu_ps((const float *)(const void *)high), 1);
}
#endif

static inline void vf_turn_rows(const char *at, const int64_t *row, vf *r) {
#if QN_LANES == 16
    vf a[4], b[4];
    QN_UNROLL
    for (int i = 0; i < 4; i++) {
        a[i] = vf_load_two(at + row[i], at + row[i + 4]);
        b[i] = vf_load_two(at + row[i + 8], at + row[i + 12]);
    }
    vf_turn_quarters(a);
    vf_turn_quarters(b);
    QN_UNROLL
    for (int i = 0; i < 4; i++) { /* quarters with even numbers are of the first four words */
        r[i] = __builtin_shufflevector(a[i], b[i], 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
        r[i + 4] = __builtin_shufflevector(a[i], b[i], 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    }
#else
    QN_UNROLL
    for (int i = 0; i < 4; i++) {
#if QN_LANES == 8
        r[i] = vf_load_two(at + row[i], at + row[i + 4]);
#else
        r[i] = vf_load((const float *)(const void *)(at + row[i]));
#endif
    }
    vf_turn_quarters(r);
#endif
}
#endif

/* Four words of each row in the same way. */
static inline void vf_turn_fours(const char *at, const int64_t *row, vf *r) {
#if defined(QN_SIMD_SVE)
    vf square[VF_N];
    for (int i = 0; i < VF_N; i++) square[i] = vf_loadn((const float *)(const void *)(at + row[i]), 4);
    vf_turn(square);
    for (int i = 0; i < 4; i++) r[i] = square[i];
#elif QN_LANES == 16
    QN_UNROLL
    for (int i = 0; i < 4; i++) {
        __m512 w = _mm512_castps128_ps512(_mm_loadu_ps((const float *)(const void *)(at + row[i])));
        w = _mm512_insertf32x4(w, _mm_loadu_ps((const float *)(const void *)(at + row[i + 4])), 1);
        w = _mm512_insertf32x4(w, _mm_loadu_ps((const float *)(const void *)(at + row[i + 8])), 2);
        r[i] = (vf)_mm512_insertf32x4(w, _mm_loadu_ps((const float *)(const void *)(at + row[i + 12])), 3);
    }
    vf_turn_quarters(r);
#else
    vf_turn_rows(at, row, r);
#endif
}

/* Pairs of 16 bits, one to a lane, apart: the first of all lanes, then the second. */
static inline void vf_part_pairs(vf pairs, uint16_t *to) {
#if defined(QN_SIMD_AVX512)
    const __m512i order = _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30, 28, 26, 24, 22, 20, 18,
                                           16, 14, 12, 10, 8, 6, 4, 2, 0);
    __m512i parted = _mm512_permutexvar_epi16(order, (__m512i)pairs);
    _mm256_storeu_si256((__m256i *)(void *)to, _mm512_castsi512_si256(parted));
    _mm256_storeu_si256((__m256i *)(void *)(to + VF_N), _mm512_extracti64x4_epi64(parted, 1));
#elif defined(QN_SIMD_AVX2)
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8, 9, 12, 13, 2, 3,
                                           6, 7, 10, 11, 14, 15);
    __m256i parted = _mm256_permute4x64_epi64(_mm256_shuffle_epi8((__m256i)pairs, order), 0xd8);
    _mm256_storeu_si256((__m256i *)(void *)to, parted);
#else
    vu u = (vu)vi_bits(pairs);
    vh first = __builtin_convertvector(u & 0xffffu, vh), second = __builtin_convertvector(u >> 16, vh);
    memcpy(to, &first, sizeof first);
    memcpy(to + VF_N, &second, sizeof second);
#endif
}

#endif
