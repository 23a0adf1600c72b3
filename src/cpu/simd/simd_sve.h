/* Eight lanes of SVE. Its registers are as long as the machine has them; here they are taken to be 32 bytes, which the compiler is told
 * (-msve-vector-bits=256) and cpu_features.c asks of the machine before it offers the level. The compiler's own vectors of that size are
 * such registers. What is beyond a row's end is left out by a predicate. */
#ifndef QN_CPU_SIMD_SIMD_SVE_H
#define QN_CPU_SIMD_SIMD_SVE_H

#include <arm_sve.h>

#define QN_SIMD_SVE 1
#define QN_LANES 8
#define QN_REGISTERS 32
enum { VF_N = QN_LANES };
typedef float vf __attribute__((vector_size(32)));
typedef int32_t vi __attribute__((vector_size(32)));
typedef uint32_t vu __attribute__((vector_size(32)));

#define VF_ALL svptrue_b32()
static inline svbool_t vf_first(int n) { return svwhilelt_b32_s32(0, n); }

static inline vf vf_set1(float a) { return svdup_n_f32(a); }
static inline vi vi_set1(int32_t a) { return svdup_n_s32(a); }
static inline vf vf_load(const float *p) { return svld1_f32(VF_ALL, p); }
static inline void vf_store(float *p, vf a) { svst1_f32(VF_ALL, p, a); }
static inline vf vf_loadn(const float *p, int n) { return svld1_f32(vf_first(n), p); }
static inline void vf_storen(float *p, vf a, int n) { svst1_f32(vf_first(n), p, a); }
static inline vf vf_fma(vf a, vf b, vf c) { return svmla_f32_x(VF_ALL, c, a, b); }
/* Sums that fill the registers: GCC, when it may choose which of the three registers to overwrite, runs out of them and takes the stack.
 * Clang keeps such vectors out of assembly. */
#if defined(__clang__)
#define VF_FMA_LANE(i) c = svmla_lane_f32(c, b, a, i)
static inline vf vf_fma_stay(vf a, vf b, vf c) { return vf_fma(a, b, c); }
#else
#define VF_FMA_LANE(i) __asm__("fmla %0.s, %1.s, %2.s[" #i "]" : "+w"(c) : "w"(b), "y"(a))
static inline vf vf_fma_stay(vf a, vf b, vf c) {
    __asm__("fmla %0.s, %1/m, %2.s, %3.s" : "+w"(c) : "Upl"(VF_ALL), "w"(a), "w"(b));
    return c;
}
#endif
/* The same with lane i, a constant, of the quarter of a register that each lane is in: vf_quarters puts the first n <= 4 floats from p
 * in all of them, so that one load serves four multiply-adds. */
static inline vf vf_quarters(const float *p, int n) { return svld1rq_f32(vf_first(n), p); }
static inline vf vf_fma_lane(vf a, int i, vf b, vf c) {
    switch (i & 3) {
    case 0: VF_FMA_LANE(0); break;
    case 1: VF_FMA_LANE(1); break;
    case 2: VF_FMA_LANE(2); break;
    default: VF_FMA_LANE(3); break;
    }
    return c;
}
/* By comparison and choice, so that NaN goes the way it goes elsewhere. */
static inline vf vf_min(vf a, vf b) { return svsel_f32(svcmplt_f32(VF_ALL, a, b), a, b); }
static inline vf vf_max(vf a, vf b) { return svsel_f32(svcmpgt_f32(VF_ALL, a, b), a, b); }
static inline vf vf_sqrt(vf a) { return svsqrt_f32_x(VF_ALL, a); }
static inline vf vf_round(vf a) { return svrintn_f32_x(VF_ALL, a); }
static inline vf vf_floor(vf a) { return svrintm_f32_x(VF_ALL, a); }
static inline vf vf_ceil(vf a) { return svrintp_f32_x(VF_ALL, a); }
static inline vf vf_trunc(vf a) { return svrintz_f32_x(VF_ALL, a); }
static inline vi vi_from_f(vf a) { return svcvt_s32_f32_x(VF_ALL, a); }
static inline vf vf_from_i(vi a) { return svcvt_f32_s32_x(VF_ALL, a); }

/* One instruction each, in an order of its own that is always the same. The largest is NaN when any lane is. */
static inline float vf_sum(vf a) { return svaddv_f32(VF_ALL, a); }
static inline float vf_most(vf a) { return svmaxv_f32(VF_ALL, a); }

/* Numbers of 16 bits lie in the lower halves of the lanes between memory and arithmetic. */
static inline vf vf_of_halves(vu h) { return svcvt_f32_f16_x(VF_ALL, svreinterpret_f16_u32(h)); }
static inline vu vf_to_halves(vf a) { return svreinterpret_u32_f16(svcvt_f16_f32_x(VF_ALL, a)); }
static inline vf vf_of_brains(vu h) { return svreinterpret_f32_u32(h << 16); }
static inline vu vf_to_brains(vf a) {
    vu u = svreinterpret_u32_f32(a), rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16, quiet = u >> 16 | 0x40u;
    return svsel_u32(svcmpuo_f32(VF_ALL, a, a), quiet, rounded);
}
static inline vf vf_load_h(const uint16_t *p) { return vf_of_halves(svld1uh_u32(VF_ALL, p)); }
static inline vf vf_load_b(const uint16_t *p) { return vf_of_brains(svld1uh_u32(VF_ALL, p)); }
static inline vf vf_load_hn(const uint16_t *p, int n) { return vf_of_halves(svld1uh_u32(vf_first(n), p)); }
static inline vf vf_load_bn(const uint16_t *p, int n) { return vf_of_brains(svld1uh_u32(vf_first(n), p)); }
static inline void vf_store_h(uint16_t *p, vf a) { svst1h_u32(VF_ALL, p, vf_to_halves(a)); }
static inline void vf_store_b(uint16_t *p, vf a) { svst1h_u32(VF_ALL, p, vf_to_brains(a)); }
static inline void vf_store_hn(uint16_t *p, vf a, int n) { svst1h_u32(vf_first(n), p, vf_to_halves(a)); }
static inline void vf_store_bn(uint16_t *p, vf a, int n) { svst1h_u32(vf_first(n), p, vf_to_brains(a)); }

#endif
