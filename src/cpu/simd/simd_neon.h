/* Four lanes of NEON, which every 64-bit Arm has. */
#ifndef QN_CPU_SIMD_SIMD_NEON_H
#define QN_CPU_SIMD_SIMD_NEON_H

#include <arm_neon.h>

#define QN_SIMD_NEON 1
#define QN_LANES 4
#define QN_REGISTERS 32
enum { VF_N = QN_LANES };
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));

static inline vf vf_set1(float a) { return (vf)vdupq_n_f32(a); }
static inline vi vi_set1(int32_t a) { return (vi)vdupq_n_s32(a); }
static inline vf vf_load(const float *p) { return (vf)vld1q_f32(p); }
static inline void vf_store(float *p, vf a) { vst1q_f32(p, (float32x4_t)a); }
static inline vf vf_loadn(const float *p, int n) {
    float t[VF_N] = {0};
    for (int i = 0; i < n; i++) t[i] = p[i];
    return vf_load(t);
}
static inline void vf_storen(float *p, vf a, int n) {
    for (int i = 0; i < n; i++) p[i] = a[i];
}
static inline vf vf_fma(vf a, vf b, vf c) { return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
/* By comparison and choice, so that NaN goes the way it goes elsewhere. */
static inline vf vf_min(vf a, vf b) {
    return (vf)vbslq_f32(vcltq_f32((float32x4_t)a, (float32x4_t)b), (float32x4_t)a, (float32x4_t)b);
}
static inline vf vf_max(vf a, vf b) {
    return (vf)vbslq_f32(vcgtq_f32((float32x4_t)a, (float32x4_t)b), (float32x4_t)a, (float32x4_t)b);
}
static inline vf vf_sqrt(vf a) { return (vf)vsqrtq_f32((float32x4_t)a); }
static inline vf vf_round(vf a) { return (vf)vrndnq_f32((float32x4_t)a); }
static inline vf vf_floor(vf a) { return (vf)vrndmq_f32((float32x4_t)a); }
static inline vf vf_ceil(vf a) { return (vf)vrndpq_f32((float32x4_t)a); }
static inline vf vf_trunc(vf a) { return (vf)vrndq_f32((float32x4_t)a); }
static inline vi vi_from_f(vf a) { return (vi)vcvtq_s32_f32((float32x4_t)a); }
static inline vf vf_from_i(vi a) { return (vf)vcvtq_f32_s32((int32x4_t)a); }
static inline vf vf_load_h(const uint16_t *p) { return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
#if defined(__ARM_FEATURE_FP16_FML)
/* The same number from a multiply-add, but +0 for -0: products that are added to a sum which begins with +0 cannot tell. Zero is written
 * where it is used, because a copy of it would cost what a conversion does. */
static inline vf vf_load_h_times_one(const uint16_t *p) {
    float32x4_t y;
    __asm__("movi %0.2d, #0\n\tfmlal %0.4s, %1.4h, %2.4h" : "=&w"(y) : "w"(vld1_u16(p)), "w"(vdup_n_u16(0x3c00)));
    return (vf)y;
}
#endif
static inline void vf_store_h(uint16_t *p, vf a) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)a))); }

#endif
