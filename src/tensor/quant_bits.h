/* Small helpers every block codec shares: little-endian fields assembled from bytes (no alignment or byte order is
 * assumed), roundings that are defined for any float, and the stored half-precision scale. */
#ifndef QN_TENSOR_QUANT_BITS_H
#define QN_TENSOR_QUANT_BITS_H

#include <float.h>
#include <stdint.h>

#include "half.h"

static inline uint16_t qn_get_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }

static inline uint32_t qn_get_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline void qn_put_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)(v & 255u);
    p[1] = (uint8_t)(v >> 8);
}

static inline void qn_put_u32(uint8_t *p, uint32_t v) {
    qn_put_u16(p, (uint16_t)(v & 0xffffu));
    qn_put_u16(p + 2, (uint16_t)(v >> 16));
}

static inline float qn_get_f16(const uint8_t *p) { return qn_f16_to_f32(qn_get_u16(p)); }

/* Byte to signed value without relying on how narrowing conversions behave. */
static inline int qn_signed_byte(uint8_t byte) { return byte < 128 ? byte : (int)byte - 256; }

/* An encoder input made harmless: NaN counts as zero, infinities as the largest finite value. */
static inline float qn_sane(float v) {
    if (v != v) return 0.0f;
    return v > FLT_MAX ? FLT_MAX : v < -FLT_MAX ? -FLT_MAX : v;
}

static inline float qn_abs_f32(float v) { return v < 0.0f ? -v : v; }

/* v limited to [lo, hi]; NaN, which only overflowed intermediates give, becomes the nearest of them to zero. */
static inline float qn_limit(float v, int lo, int hi) {
    if (v != v) v = 0.0f;
    return v < (float)lo ? (float)lo : v > (float)hi ? (float)hi : v;
}

/* Toward zero, within [lo, hi]. */
static inline int qn_trunc_to(float v, int lo, int hi) { return (int)qn_limit(v, lo, hi); }

/* To nearest even, within [lo, hi] (|lo|, |hi| < 2^21). Adding 1.5 * 2^23 leaves no bits below the unit, so the
 * addition itself rounds; this is much cheaper than a library call where the machine has no rounding instruction. */
static inline int qn_round_even_to(float v, int lo, int hi) { return (int)((qn_limit(v, lo, hi) + 12582912.0f) - 12582912.0f); }

/* To nearest, halves away from zero, within [lo, hi]. The subtraction is exact, so 0.49999997 stays 0. */
static inline int qn_round_away_to(float v, int lo, int hi) {
    float limited = qn_limit(v, lo, hi);
    int whole = (int)limited;
    float rest = limited - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

/* 1 / d, or 0 for d = 0: the convention of every encoder. */
static inline float qn_inverse(float d) { return d != 0.0f ? 1.0f / d : 0.0f; }

/* Store a scale as f16 and give back the value the decoder will see. A scale beyond the format saturates: an infinite
 * one would turn zero codes into NaN. */
static inline float qn_put_scale(uint8_t *p, float d) {
    if (d != d) d = 0.0f;
    d = d > 65504.0f ? 65504.0f : d < -65504.0f ? -65504.0f : d;
    uint16_t half = qn_f32_to_f16(d);
    qn_put_u16(p, half);
    return qn_f16_to_f32(half);
}

/* 2^k as a double, |k| <= 1000. */
static inline double qn_power_of_two(int k) {
    uint64_t bits = (uint64_t)(1023 + k) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Copy n floats, made sane and multiplied by the power of two that brings the largest magnitude into [1, 2). Searches
 * then cannot overflow or lose everything to underflow, and since the factor is exact they find the same codes.
 * Returns k with src = x * 2^k. */
int qn_quant_normalise(const float *src, int n, float *x);
/* qn_put_scale for a scale of normalised values; what comes back is normalised too. */
float qn_quant_put_normalised(uint8_t *p, float d, int k);

#endif
