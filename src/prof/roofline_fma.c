/* Twelve (NEON: sixteen) independent chains hide the latency of the multiply-add on every core we know, and fit the registers.
 * x = x * 0.999 + 0.001 (NEON, whose destination is the addend: x = x + 0.999 * 0.001) never runs into slow denormals. */
#include "prof/roofline_fma.h"

#include "prof/roofline_chains.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__x86_64__)

__attribute__((target("avx512f"))) static float run_avx512(long turns) {
    __m512 m = _mm512_set1_ps(0.999f), a = _mm512_set1_ps(0.001f);
#define BEGIN(i) __m512 x##i = _mm512_set1_ps(1.0f + (float)i);
#define STEP(i) x##i = _mm512_fmadd_ps(x##i, m, a);
#define JOIN(i) sum = _mm512_add_ps(sum, x##i);
    RUN_CHAINS(TWELVE, turns, __m512, _mm512_setzero_ps())
#undef BEGIN
#undef STEP
#undef JOIN
    return _mm512_cvtss_f32(sum);
}

__attribute__((target("avx2,fma"))) static float run_avx2(long turns) {
    __m256 m = _mm256_set1_ps(0.999f), a = _mm256_set1_ps(0.001f);
#define BEGIN(i) __m256 x##i = _mm256_set1_ps(1.0f + (float)i);
#define STEP(i) x##i = _mm256_fmadd_ps(x##i, m, a);
#define JOIN(i) sum = _mm256_add_ps(sum, x##i);
    RUN_CHAINS(TWELVE, turns, __m256, _mm256_setzero_ps())
#undef BEGIN
#undef STEP
#undef JOIN
    return _mm256_cvtss_f32(sum);
}

#elif defined(__aarch64__)

static float run_neon(long turns) {
    float32x4_t m = vdupq_n_f32(0.999f), a = vdupq_n_f32(0.001f);
#define BEGIN(i) float32x4_t x##i = vdupq_n_f32(1.0f + (float)i);
#define STEP(i) x##i = vfmaq_f32(x##i, m, a);
#define JOIN(i) sum = vaddq_f32(sum, x##i);
    RUN_CHAINS(SIXTEEN, turns, float32x4_t, vdupq_n_f32(0.0f))
#undef BEGIN
#undef STEP
#undef JOIN
    return vgetq_lane_f32(sum, 0);
}

#endif

/* Multiply and add apart, as far as the compiler's baseline goes. */
typedef float lanes __attribute__((vector_size(16)));

static float run_plain(long turns) {
    const lanes m = {0.999f, 0.999f, 0.999f, 0.999f}, a = {0.001f, 0.001f, 0.001f, 0.001f};
#define BEGIN(i) lanes x##i = {1.0f + (float)i, 1.0f, 1.0f, 1.0f};
#define STEP(i) x##i = x##i * m + a;
#define JOIN(i) sum += x##i[0];
    RUN_CHAINS(TWELVE, turns, float, 0)
#undef BEGIN
#undef STEP
#undef JOIN
    return sum;
}

qn_fma_loop qn_fma_best(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return (qn_fma_loop){"avx512", 12 * 16 * 2, run_avx512};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return (qn_fma_loop){"avx2", 12 * 8 * 2, run_avx2};
#elif defined(__aarch64__)
    return (qn_fma_loop){"neon", 16 * 4 * 2, run_neon};
#endif
    return (qn_fma_loop){"plain", 12 * 4 * 2, run_plain};
}
