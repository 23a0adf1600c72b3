/* Four lanes in the compiler's own vectors: whatever the architecture surely has, SSE2 or NEON or nothing. */
#ifndef QN_CPU_SIMD_SIMD_PLAIN_H
#define QN_CPU_SIMD_SIMD_PLAIN_H

#include <math.h>

#define QN_SIMD_PLAIN 1
#define QN_LANES 4
#if defined(__aarch64__)
#define QN_REGISTERS 32
#else
#define QN_REGISTERS 16
#endif
enum { VF_N = QN_LANES };
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));

static inline vf vf_set1(float a) { return (vf){a, a, a, a}; }
static inline vi vi_set1(int32_t a) { return (vi){a, a, a, a}; }
static inline vf vf_load(const float *p) {
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void vf_store(float *p, vf a) { memcpy(p, &a, sizeof a); }
static inline vf vf_loadn(const float *p, int n) {
    float t[VF_N] = {0};
    for (int i = 0; i < n; i++) t[i] = p[i];
    return vf_load(t);
}
static inline void vf_storen(float *p, vf a, int n) {
    for (int i = 0; i < n; i++) p[i] = a[i];
}
/* Two roundings where the other levels have one: a level is one device, and each keeps to its own bits. */
static inline vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
static inline vf vf_min(vf a, vf b) {
    return (vf){a[0] < b[0] ? a[0] : b[0], a[1] < b[1] ? a[1] : b[1], a[2] < b[2] ? a[2] : b[2], a[3] < b[3] ? a[3] : b[3]};
}
static inline vf vf_max(vf a, vf b) {
    return (vf){a[0] > b[0] ? a[0] : b[0], a[1] > b[1] ? a[1] : b[1], a[2] > b[2] ? a[2] : b[2], a[3] > b[3] ? a[3] : b[3]};
}
static inline vf vf_sqrt(vf a) { return (vf){sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])}; }
static inline vf vf_round(vf a) { return (vf){rintf(a[0]), rintf(a[1]), rintf(a[2]), rintf(a[3])}; }
static inline vf vf_floor(vf a) { return (vf){floorf(a[0]), floorf(a[1]), floorf(a[2]), floorf(a[3])}; }
static inline vf vf_ceil(vf a) { return (vf){ceilf(a[0]), ceilf(a[1]), ceilf(a[2]), ceilf(a[3])}; }
static inline vf vf_trunc(vf a) { return (vf){truncf(a[0]), truncf(a[1]), truncf(a[2]), truncf(a[3])}; }
static inline vi vi_from_f(vf a) { return __builtin_convertvector(a, vi); }
static inline vf vf_from_i(vi a) { return __builtin_convertvector(a, vf); }
static inline vf vf_load_h(const uint16_t *p) {
    return (vf){qn_f16_to_f32(p[0]), qn_f16_to_f32(p[1]), qn_f16_to_f32(p[2]), qn_f16_to_f32(p[3])};
}
static inline void vf_store_h(uint16_t *p, vf a) {
    for (int i = 0; i < VF_N; i++) p[i] = qn_f32_to_f16(a[i]);
}

#endif
