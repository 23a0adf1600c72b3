/* Vectors under one set of names for every level. Arithmetic, comparison and choice are the compiler's own vector operators; what
 * those lack (fused multiply-add, square root, tails, conversions) has the same name in each simd_<family>.h.
 *
 *   vf  VF_N floats          vi  as many 32-bit integers; a comparison of vf gives a vi of 0 and -1
 *   vf_load, vf_store        any address              vf_loadn, vf_storen   the first n lanes, 0 <= n <= VF_N, others 0 / untouched
 *   vf_load_h, vf_store_h    f16 in memory            vf_load_b, vf_store_b bf16 in memory; rounded to nearest even
 *   vf_set1 vi_set1  vf_fma(a,b,c) = a b + c  vf_min vf_max (as the instruction: b when either is NaN)  vf_abs vf_sqrt
 *   vf_fma_stay              vf_fma for tiles of sums: c is not used again
 *   vf_select(mask, a, b)    a where the mask is -1   vf_some(a, n, b)     a in the first n lanes, b in others
 *   vf_sum vf_most           over the lanes, always in the same order; vf_largest: vf_most of lanes without NaN
 *   vf_round (to nearest even) vf_floor vf_ceil vf_trunc   vi_from_f (of a whole number in range) vf_from_i
 *
 * For the preprocessor: QN_LANES is VF_N, QN_REGISTERS how many vectors the machine holds at once, QN_SIMD_<family> which header it
 * is. A file that defines QN_NARROW before it has NEON's vectors of 16 bytes at level sve too. */
#ifndef QN_CPU_SIMD_SIMD_H
#define QN_CPU_SIMD_SIMD_H

#include <stdint.h>
#include <string.h>

#include "tensor/half.h"

#if defined(__AVX512F__)
#include "cpu/simd/simd_avx512.h"
#elif defined(__AVX2__)
#include "cpu/simd/simd_avx2.h"
#elif defined(__ARM_FEATURE_SVE_BITS) && __ARM_FEATURE_SVE_BITS == 256 && !defined(QN_NARROW)
#include "cpu/simd/simd_sve.h"
#elif defined(__aarch64__) && !defined(QN_AT_c)
#include "cpu/simd/simd_neon.h"
#else
#include "cpu/simd/simd_plain.h"
#endif

typedef uint16_t vh __attribute__((vector_size(VF_N * 2)));
typedef uint32_t vu __attribute__((vector_size(VF_N * 4)));

typedef union vf_bits {
    vf f;
    vi i;
} vf_bits;

static inline vi vi_bits(vf a) { return (vf_bits){.f = a}.i; }
static inline vf vf_of_bits(vi a) { return (vf_bits){.i = a}.f; }
static inline vf vf_select(vi mask, vf a, vf b) { return vf_of_bits((vi_bits(a) & mask) | (vi_bits(b) & ~mask)); }
static inline vf vf_abs(vf a) { return vf_of_bits(vi_bits(a) & vi_set1(0x7fffffff)); }
static inline vf vf_zero(void) { return vf_set1(0.0f); }
static inline vf vf_some(vf a, int n, vf b) {
    static const float ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    return vf_select(vf_loadn(ones, n) > vf_zero(), a, b);
}

/* Lanes turned by half of what is left, until one lane has taken in all of them. */
#if QN_LANES == 16
#define VI_FOLD(a, op)                                                                              \
    a = op(a, __builtin_shufflevector(a, a, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)); \
    a = op(a, __builtin_shufflevector(a, a, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11)); \
    a = op(a, __builtin_shufflevector(a, a, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13)); \
    a = op(a, __builtin_shufflevector(a, a, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14))
#elif defined(QN_SIMD_SVE) /* which turns whole registers */
#define VI_FOLD(a, op)                                                \
    a = op(a, __builtin_shufflevector(a, a, 4, 5, 6, 7, 0, 1, 2, 3)); \
    a = op(a, __builtin_shufflevector(a, a, 2, 3, 4, 5, 6, 7, 0, 1)); \
    a = op(a, __builtin_shufflevector(a, a, 1, 2, 3, 4, 5, 6, 7, 0))
#elif QN_LANES == 8
#define VI_FOLD(a, op)                                                \
    a = op(a, __builtin_shufflevector(a, a, 4, 5, 6, 7, 0, 1, 2, 3)); \
    a = op(a, __builtin_shufflevector(a, a, 2, 3, 0, 1, 6, 7, 4, 5)); \
    a = op(a, __builtin_shufflevector(a, a, 1, 0, 3, 2, 5, 4, 7, 6))
#else
#define VI_FOLD(a, op)                                    \
    a = op(a, __builtin_shufflevector(a, a, 2, 3, 0, 1)); \
    a = op(a, __builtin_shufflevector(a, a, 1, 0, 3, 2))
#endif
static inline float vf_largest(vf a) {
    VI_FOLD(a, vf_max);
    return a[0];
}

#ifndef QN_SIMD_SVE /* which has instructions for all that follows */
static inline vf vf_fma_stay(vf a, vf b, vf c) { return vf_fma(a, b, c); }

static inline vf vf_add(vf a, vf b) { return a + b; }
static inline float vf_sum(vf a) {
    VI_FOLD(a, vf_add);
    return a[0];
}

/* The largest lane; NaN when any lane is NaN. */
static inline float vf_most(vf a) {
    float t[VF_N], m;
    vf_store(t, a);
    m = t[0];
    for (int i = 1; i < VF_N; i++) m = t[i] > m || t[i] != t[i] ? t[i] : m;
    return m;
}

/* bf16 by its bits, so it is the same on every level. Compilers go through halves of vectors, or single numbers, unless told. */
#if defined(QN_SIMD_NEON)
static inline vf vf_load_b(const uint16_t *p) { return (vf)vshll_n_u16(vld1_u16(p), 16); }
#elif defined(__AVX512F__)
static inline vf vf_load_b(const uint16_t *p) {
    __m256i h;
    memcpy(&h, p, sizeof h);
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16);
}
#elif defined(__AVX2__)
static inline vf vf_load_b(const uint16_t *p) {
    __m128i h;
    memcpy(&h, p, sizeof h);
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16);
}
#else
static inline vf vf_load_b(const uint16_t *p) {
    vh h;
    memcpy(&h, p, sizeof h);
    return vf_of_bits((vi)(__builtin_convertvector(h, vu) << 16));
}
#endif
#if defined(__AVX512F__)
/* As below, with a mask where numbers are NaN and the instruction that narrows. */
static inline void vf_store_b(uint16_t *p, vf a) {
    __m512i u = (__m512i)a, odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, u, _mm512_set1_epi32(0x400000));
    __m256i h = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
    memcpy(p, &h, sizeof h);
}
#else
static inline void vf_store_b(uint16_t *p, vf a) {
    vu u = (vu)vi_bits(a);
    vu rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16, quiet = u >> 16 | 0x40u, nan = (vu)(a != a);
    vh h = __builtin_convertvector((rounded & ~nan) | (quiet & nan), vh);
    memcpy(p, &h, sizeof h);
}
#endif

/* The first n lanes of 16-bit numbers; loads give 0 beyond, stores leave memory beyond alone. */
static inline vf vf_load_hn(const uint16_t *p, int n) {
    uint16_t t[VF_N] = {0};
    for (int i = 0; i < n; i++) t[i] = p[i];
    return vf_load_h(t);
}
static inline void vf_store_hn(uint16_t *p, vf a, int n) {
    uint16_t t[VF_N];
    vf_store_h(t, a);
    for (int i = 0; i < n; i++) p[i] = t[i];
}
static inline vf vf_load_bn(const uint16_t *p, int n) {
    uint16_t t[VF_N] = {0};
    for (int i = 0; i < n; i++) t[i] = p[i];
    return vf_load_b(t);
}
static inline void vf_store_bn(uint16_t *p, vf a, int n) {
    uint16_t t[VF_N];
    vf_store_b(t, a);
    for (int i = 0; i < n; i++) p[i] = t[i];
}
#endif

#endif
