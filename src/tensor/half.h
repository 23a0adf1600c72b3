/* Conversions between the 16-bit float formats and f32 / f64. All are done on the bits, so every machine gives the
 * same answer whatever its rounding mode or its hardware conversions do. Rounding is to nearest, ties to even, and
 * happens once: the f64 forms do not pass through f32. */
#ifndef QN_TENSOR_HALF_H
#define QN_TENSOR_HALF_H

#include <stdint.h>
#include <string.h>

static inline float qn_bits_to_f32(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t qn_f32_to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline uint64_t qn_f64_to_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* value / 2^shift rounded to nearest even, 1 <= shift <= 63. */
static inline uint64_t qn_shift_round_even(uint64_t value, unsigned shift) {
    uint64_t kept = value >> shift;
    uint64_t lost = value & ((UINT64_C(1) << shift) - 1);
    uint64_t half = UINT64_C(1) << (shift - 1);
    return kept + (lost > half || (lost == half && (kept & 1) != 0) ? 1u : 0u);
}

static inline float qn_f16_to_f32(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00u) return qn_bits_to_f32(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
    if (magnitude >= 0x0400u) /* normal: only the exponent bias changes, 127 - 15 */
        return qn_bits_to_f32(sign | ((magnitude << 13) + (112u << 23)));
    /* subnormal: the integer times 2^-24 is exact in f32 */
    return qn_bits_to_f32(sign | qn_f32_to_bits((float)magnitude * 0x1p-24f));
}

static inline uint16_t qn_f32_to_f16(float value) {
    uint32_t bits = qn_f32_to_bits(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= (143u << 23)) /* 2^16 and above; 65520 up to there carries into infinity below */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude >= (113u << 23)) return (uint16_t)(sign | (uint32_t)qn_shift_round_even(magnitude - (112u << 23), 13));
    if (magnitude <= (102u << 23)) /* up to 2^-25: half of the smallest subnormal ties to zero */
        return (uint16_t)sign;
    uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u;
    return (uint16_t)(sign | (uint32_t)qn_shift_round_even(fraction, 126u - (magnitude >> 23)));
}

static inline uint16_t qn_f64_to_f16(double value) {
    uint64_t bits = qn_f64_to_bits(value);
    uint64_t sign = (bits >> 48) & 0x8000u;
    uint64_t magnitude = bits & (UINT64_MAX >> 1);
    if (magnitude > (UINT64_C(2047) << 52)) return (uint16_t)(sign | 0x7e00u | ((magnitude >> 42) & 0x3ffu));
    if (magnitude >= (UINT64_C(1039) << 52)) return (uint16_t)(sign | 0x7c00u);
    if (magnitude >= (UINT64_C(1009) << 52))
        return (uint16_t)(sign | qn_shift_round_even(magnitude - (UINT64_C(1008) << 52), 42));
    if (magnitude <= (UINT64_C(998) << 52)) return (uint16_t)sign;
    uint64_t fraction = (magnitude & ((UINT64_C(1) << 52) - 1)) | (UINT64_C(1) << 52);
    return (uint16_t)(sign | qn_shift_round_even(fraction, 1051u - (unsigned)(magnitude >> 52)));
}

static inline float qn_bf16_to_f32(uint16_t brain) { return qn_bits_to_f32((uint32_t)brain << 16); }

static inline uint16_t qn_f32_to_bf16(float value) {
    uint32_t bits = qn_f32_to_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) /* keep it a NaN even when only low payload bits were set */
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)qn_shift_round_even(bits, 16);
}

static inline uint16_t qn_f64_to_bf16(double value) {
    uint64_t bits = qn_f64_to_bits(value);
    uint64_t sign = (bits >> 48) & 0x8000u;
    uint64_t magnitude = bits & (UINT64_MAX >> 1);
    if (magnitude > (UINT64_C(2047) << 52)) return (uint16_t)(sign | 0x7fc0u | ((magnitude >> 45) & 0x7fu));
    if (magnitude >= (UINT64_C(1151) << 52)) return (uint16_t)(sign | 0x7f80u);
    if (magnitude >= (UINT64_C(897) << 52)) return (uint16_t)(sign | qn_shift_round_even(magnitude - (UINT64_C(896) << 52), 45));
    if (magnitude <= (UINT64_C(889) << 52)) /* up to 2^-134 */
        return (uint16_t)sign;
    uint64_t fraction = (magnitude & ((UINT64_C(1) << 52) - 1)) | (UINT64_C(1) << 52);
    return (uint16_t)(sign | qn_shift_round_even(fraction, 942u - (unsigned)(magnitude >> 52)));
}

#endif
