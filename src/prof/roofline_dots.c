/* Independent chains, as for the multiply-adds: twelve of vectors; four tiles, which is how many sums a product by tiles has beside its
 * operands. Operands never change, so nothing but the instruction is timed. */
#include "prof/roofline_dots.h"

#include <stdint.h>

#include "cpu/cpu.h"
#include "prof/roofline_chains.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "cpu/simd/simd_tile.h"

__attribute__((target("avx512f,avx512vnni"))) static float run_avx512(long turns) {
    __m512i a = _mm512_set1_epi8(1), b = _mm512_set1_epi8(-1);
#define BEGIN(i) __m512i x##i = _mm512_set1_epi32(i);
#define STEP(i) x##i = _mm512_dpbusd_epi32(x##i, a, b);
#define JOIN(i) sum = _mm512_add_epi32(sum, x##i);
    RUN_CHAINS(TWELVE, turns, __m512i, _mm512_setzero_si512())
#undef BEGIN
#undef STEP
#undef JOIN
    return (float)_mm_cvtsi128_si32(_mm512_castsi512_si128(sum));
}

__attribute__((target("avxvnni,avx2"))) static float run_avxvnni(long turns) {
    __m256i a = _mm256_set1_epi8(1), b = _mm256_set1_epi8(-1);
#define BEGIN(i) __m256i x##i = _mm256_set1_epi32(i);
#define STEP(i) x##i = _mm256_dpbusd_avx_epi32(x##i, a, b);
#define JOIN(i) sum = _mm256_add_epi32(sum, x##i);
    RUN_CHAINS(TWELVE, turns, __m256i, _mm256_setzero_si256())
#undef BEGIN
#undef STEP
#undef JOIN
    return (float)_mm_cvtsi128_si32(_mm256_castsi256_si128(sum));
}

/* Four squares of 16 by 16 sums; 64 products to each. */
static float run_amx(long turns) {
    enum { SUMS = 4, ROWS = 16, ROW = 64 };
    tile_shapes s = {.palette = 1}, before = tile_before();
    uint8_t bytes[ROWS * ROW];
    int32_t sums[ROWS * ROW / 4];
    for (int i = 0; i < ROWS * ROW; i++) bytes[i] = (uint8_t)(i & 1);
    for (int i = 0; i < SUMS + 2; i++) {
        s.bytes[i] = ROW;
        s.rows[i] = ROWS;
    }
    tile_begin(&s);
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    TILE_LOAD(4, bytes, ROW);
    TILE_LOAD(5, bytes, ROW);
    for (long t = 0; t < turns; t++) {
        TILE_DOT(0, 4, 5);
        TILE_DOT(1, 4, 5);
        TILE_DOT(2, 4, 5);
        TILE_DOT(3, 4, 5);
    }
    TILE_STORE(0, sums, ROW);
    tile_end(&before);
    return (float)sums[0];
}

qn_fma_loop qn_dots_best(void) {
    uint32_t levels = qn_cpu_levels();
    if (levels >> QN_CPU_LEVEL_avx512 & 1) return (qn_fma_loop){"avx512 vnni", 12 * 64 * 2, run_avx512};
    if (levels >> QN_CPU_LEVEL_avxvnni & 1) return (qn_fma_loop){"avx vnni", 12 * 32 * 2, run_avxvnni};
    return (qn_fma_loop){"", 0, NULL};
}

qn_fma_loop qn_dots_tiles(void) {
    if (qn_cpu_levels() >> QN_CPU_LEVEL_amx & 1) return (qn_fma_loop){"amx", 4 * 16 * 16 * 64 * 2, run_amx};
    return (qn_fma_loop){"", 0, NULL};
}

#elif defined(__aarch64__)
#include <arm_neon.h>

/* The instruction is written out, since its header wants it switched on for a whole file; the function must have it for assemblers, which
 * our two compilers are told in two ways. */
#define DOT(x, a, b) __asm__("sdot %0.4s, %1.16b, %2.16b" : "+w"(x) : "w"(a), "w"(b))
#if defined(__clang__)
#define WITH_DOTS __attribute__((target("dotprod")))
#else
#define WITH_DOTS __attribute__((target("arch=armv8.2-a+dotprod")))
#endif

WITH_DOTS static float run_dotprod(long turns) {
    int8x16_t a = vdupq_n_s8(1), b = vdupq_n_s8(-1);
#define BEGIN(i) int32x4_t x##i = vdupq_n_s32(i);
#define STEP(i) DOT(x##i, a, b);
#define JOIN(i) sum = vaddq_s32(sum, x##i);
    RUN_CHAINS(SIXTEEN, turns, int32x4_t, vdupq_n_s32(0))
#undef BEGIN
#undef STEP
#undef JOIN
    return (float)vgetq_lane_s32(sum, 0);
}

qn_fma_loop qn_dots_best(void) {
    if (qn_cpu_levels() >> QN_CPU_LEVEL_dotprod & 1) return (qn_fma_loop){"dotprod", 16 * 16 * 2, run_dotprod};
    return (qn_fma_loop){"", 0, NULL};
}

qn_fma_loop qn_dots_tiles(void) { return (qn_fma_loop){"", 0, NULL}; }

#else

qn_fma_loop qn_dots_best(void) { return (qn_fma_loop){"", 0, NULL}; }
qn_fma_loop qn_dots_tiles(void) { return (qn_fma_loop){"", 0, NULL}; }

#endif
