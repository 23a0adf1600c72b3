/* Turning a square over its diagonal: pairs of vectors are interleaved as often as the number of a row has bits. */
#ifndef QN_CPU_SIMD_SIMD_TURN_H
#define QN_CPU_SIMD_SIMD_TURN_H

#include "cpu/simd/simd.h"

/* Unrolls the loop that follows, whose bounds the compiler knows. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define QN_SLOW_COMPILER 1 /* checks on every unrolled line keep it busy for half an hour */
#endif
#endif
#if defined(QN_SLOW_COMPILER) || defined(__SANITIZE_ADDRESS__)
#define QN_UNROLL
#elif defined(__clang__)
#define QN_UNROLL _Pragma("unroll")
#else
#define QN_UNROLL _Pragma("GCC unroll 32")
#endif

/* The low halves of a and b lane by lane, a0 b0 a1 b1 ..; and the high halves. Of the lanes of a and then b, those with even numbers;
 * and the others. */
#if QN_LANES == 16
static inline vf vf_zip_low(vf a, vf b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
static inline vf vf_zip_high(vf a, vf b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
static inline vf vf_even(vf a, vf b) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
static inline vf vf_odd(vf a, vf b) {
    return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}
#elif QN_LANES == 8
static inline vf vf_zip_low(vf a, vf b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
static inline vf vf_zip_high(vf a, vf b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
static inline vf vf_even(vf a, vf b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14); }
static inline vf vf_odd(vf a, vf b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15); }
#else
static inline vf vf_zip_low(vf a, vf b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
static inline vf vf_zip_high(vf a, vf b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
static inline vf vf_even(vf a, vf b) { return __builtin_shufflevector(a, b, 0, 2, 4, 6); }
static inline vf vf_odd(vf a, vf b) { return __builtin_shufflevector(a, b, 1, 3, 5, 7); }
#endif

/* v_turn(r) for vectors v of any kind, of which every row is one: row i with row i + half, each time. After as many rounds as the index has
 * bits, row and lane have changed places. */
#define QN_TURN(v, rows)                                              \
    static inline void v##_turn(v *r) {                               \
        QN_UNROLL                                                     \
        for (int round = 1; round < (rows); round *= 2) {             \
            v t[rows];                                                \
            QN_UNROLL                                                 \
            for (int i = 0; i < (rows) / 2; i++) {                    \
                t[2 * i] = v##_zip_low(r[i], r[i + (rows) / 2]);      \
                t[2 * i + 1] = v##_zip_high(r[i], r[i + (rows) / 2]); \
            }                                                         \
            QN_UNROLL                                                 \
            for (int i = 0; i < (rows); i++) r[i] = t[i];             \
        }                                                             \
    }
QN_TURN(vf, VF_N)

/* In lane i the sum over the lanes of r[i], VF_N of them at once for the price of a few; r is used up. */
static inline vf vf_sums(vf *r) {
    QN_UNROLL
    for (int half = VF_N / 2; half > 0; half /= 2) QN_UNROLL
    for (int i = 0; i < half; i++) r[i] = vf_zip_low(r[i], r[i + half]) + vf_zip_high(r[i], r[i + half]);
    return r[0];
}

#endif
