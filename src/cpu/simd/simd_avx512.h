/* Sixteen lanes of AVX-512. */
#ifndef QN_CPU_SIMD_SIMD_AVX512_H
#define QN_CPU_SIMD_SIMD_AVX512_H

#include <immintrin.h>

#define QN_SIMD_AVX512 1
#define QN_LANES 16
#define QN_REGISTERS 32
enum { VF_N = QN_LANES };
typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));

static inline vf vf_set1(float a) { return (vf)_mm512_set1_ps(a); }
static inline vi vi_set1(int32_t a) { return (vi)_mm512_set1_epi32(a); }
static inline vf vf_load(const float *p) { return (vf)_mm512_loadu_ps(p); }
static inline void vf_store(float *p, vf a) { _mm512_storeu_ps(p, (__m512)a); }
static inline __mmask16 vf_first(int n) { return (__mmask16)((1u << n) - 1u); }
static inline vf vf_loadn(const float *p, int n) { return (vf)_mm512_maskz_loadu_ps(vf_first(n), p); }
static inline void vf_storen(float *p, vf a, int n) { _mm512_mask_storeu_ps(p, vf_first(n), (__m512)a); }
static inline vf vf_fma(vf a, vf b, vf c) { return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
static inline vf vf_min(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
static inline vf vf_max(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
static inline vf vf_sqrt(vf a) { return (vf)_mm512_sqrt_ps((__m512)a); }
static inline vf vf_round(vf a) { return (vf)_mm512_roundscale_ps((__m512)a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline vf vf_floor(vf a) { return (vf)_mm512_roundscale_ps((__m512)a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
static inline vf vf_ceil(vf a) { return (vf)_mm512_roundscale_ps((__m512)a, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC); }
static inline vf vf_trunc(vf a) { return (vf)_mm512_roundscale_ps((__m512)a, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
static inline vi vi_from_f(vf a) { return (vi)_mm512_cvttps_epi32((__m512)a); }
static inline vf vf_from_i(vi a) { return (vf)_mm512_cvtepi32_ps((__m512i)a); }
static inline vf vf_load_h(const uint16_t *p) {
    __m256i h;
    memcpy(&h, p, sizeof h);
    return (vf)_mm512_cvtph_ps(h);
}
static inline void vf_store_h(uint16_t *p, vf a) {
    __m256i h = _mm512_cvtps_ph((__m512)a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    memcpy(p, &h, sizeof h);
}

/* a b + c, and 0 where x is below `least`, in the same step. */
static inline vf vf_fma_from(vf least, vf x, vf a, vf b, vf c) {
    return (vf)_mm512_maskz_fmadd_ps(_mm512_cmp_ps_mask((__m512)x, (__m512)least, _CMP_NLT_UQ), (__m512)a, (__m512)b, (__m512)c);
}

/* One of 32 numbers for each lane, by the last five bits of i: one step. */
#define QN_SIMD_PICK32 1
static inline vi vi_pick32(const int32_t table[32], vi i) {
    return (vi)_mm512_permutex2var_epi32(_mm512_loadu_si512(table), (__m512i)i, _mm512_loadu_si512(table + 16));
}

#endif
