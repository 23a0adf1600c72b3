/* Eight lanes of AVX2, with FMA and F16C. */
#ifndef QN_CPU_SIMD_SIMD_AVX2_H
#define QN_CPU_SIMD_SIMD_AVX2_H

#include <immintrin.h>

#define QN_SIMD_AVX2 1
#define QN_LANES 8
#define QN_REGISTERS 16
enum { VF_N = QN_LANES };
typedef float vf __attribute__((vector_size(32)));
typedef int32_t vi __attribute__((vector_size(32)));

static inline vf vf_set1(float a) { return (vf)_mm256_set1_ps(a); }
static inline vi vi_set1(int32_t a) { return (vi)_mm256_set1_epi32(a); }
static inline vf vf_load(const float *p) { return (vf)_mm256_loadu_ps(p); }
static inline void vf_store(float *p, vf a) { _mm256_storeu_ps(p, (__m256)a); }
static inline __m256i vf_first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vf vf_loadn(const float *p, int n) { return (vf)_mm256_maskload_ps(p, vf_first(n)); }
static inline void vf_storen(float *p, vf a, int n) { _mm256_maskstore_ps(p, vf_first(n), (__m256)a); }
static inline vf vf_fma(vf a, vf b, vf c) { return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
static inline vf vf_min(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
static inline vf vf_max(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
static inline vf vf_sqrt(vf a) { return (vf)_mm256_sqrt_ps((__m256)a); }
static inline vf vf_round(vf a) { return (vf)_mm256_round_ps((__m256)a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline vf vf_floor(vf a) { return (vf)_mm256_round_ps((__m256)a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
static inline vf vf_ceil(vf a) { return (vf)_mm256_round_ps((__m256)a, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC); }
static inline vf vf_trunc(vf a) { return (vf)_mm256_round_ps((__m256)a, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
static inline vi vi_from_f(vf a) { return (vi)_mm256_cvttps_epi32((__m256)a); }
static inline vf vf_from_i(vi a) { return (vf)_mm256_cvtepi32_ps((__m256i)a); }
static inline vf vf_load_h(const uint16_t *p) {
    __m128i h;
    memcpy(&h, p, sizeof h);
    return (vf)_mm256_cvtph_ps(h);
}
static inline void vf_store_h(uint16_t *p, vf a) {
    __m128i h = _mm256_cvtps_ph((__m256)a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    memcpy(p, &h, sizeof h);
}

#endif
