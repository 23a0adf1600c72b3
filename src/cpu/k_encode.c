/* f32 to blocks of 32 with one scale, which caches of keys and values are kept in. The bytes are those of the formats' encoders: the
 * same quotients and roundings in the same order. A block that holds NaN, an infinity or numbers near the ends of f32 is left to the
 * encoder itself, so that here nothing overflows. */
#include "cpu/k_codec.h"
#include "cpu/k_lanes.h"
#include "cpu/simd/simd_codes.h"
#include "cpu/simd/simd_dot.h"
#include "tensor/quant.h"

enum { BLOCK = 32, HALF = 16, VECTORS = BLOCK / VF_N };

/* Largest magnitude, as bits: those of finite numbers are ordered like the numbers, all others are above them. */
QN_INLINE int32_t peak_bits(const vf *x) {
    vi most = vi_bits(vf_abs(x[0]));
    QN_UNROLL
    for (int i = 1; i < VECTORS; i++) most = vi_max(most, vi_bits(vf_abs(x[i])));
    return vi_largest(most);
}
/* From 2^-90 to 2^100: scales and their inverses are normal numbers, sums and differences finite. */
QN_INLINE int is_plain(int32_t bits) { return bits >= (127 - 90) << 23 && bits < (127 + 100) << 23; }

QN_INLINE void load_block(const float *from, vf *x) {
    QN_UNROLL
    for (int i = 0; i < VECTORS; i++) x[i] = vf_load(from + i * VF_N);
}

/* A scale beyond f16 saturates. */
QN_INLINE void put_scale(uint8_t *p, float d) {
    uint16_t h = half_of_f(d > 65504.0f ? 65504.0f : d < -65504.0f ? -65504.0f : d);
    memcpy(p, &h, sizeof h);
}

/* To nearest, halves away from zero: the largest number below a half is added and the rest cut off. */
QN_INLINE vi rounded_away(vf x) {
    vi sign = vi_bits(x) & vi_set1((int32_t)0x80000000u);
    return vi_from_f(x + vf_of_bits(vi_bits(vf_set1(0x1.fffffep-2f)) | sign));
}

QN_INLINE int q8_0(const float *from, uint8_t *to) {
    vf x[VECTORS];
    load_block(from, x);
    int32_t bits = peak_bits(x);
    if (!is_plain(bits)) return 0;
    float d = qn_bits_to_f32((uint32_t)bits) / 127.0f, inverse = 1.0f / d;
    put_scale(to, d);
    QN_UNROLL
    for (int i = 0; i < VECTORS; i++) vi_store_8(to + 2 + i * VF_N, rounded_away(x[i] * vf_set1(inverse)));
    return 1;
}

/* Codes of 4 or 5 bits: element j and element j + 16 share byte j, fifth bits have a word of their own. */
QN_INLINE void put_codes(const vi *codes, uint8_t *fifths, uint8_t *to) {
    QN_UNROLL
    for (int i = 0; i < HALF / VF_N; i++) vi_store_8(to + i * VF_N, (codes[i] & 15) | (codes[i + HALF / VF_N] & 15) << 4);
    if (!fifths) return;
    uint32_t bits = 0;
    QN_UNROLL
    for (int i = 0; i < VECTORS; i++) bits |= vi_signs(codes[i] << 27) << (i * VF_N);
    memcpy(fifths, &bits, sizeof bits);
}

/* The first of the elements that have this magnitude. */
static float first_of(const float *x, float magnitude) {
    int i = 0;
    while (i < BLOCK - 1 && x[i] != magnitude && x[i] != -magnitude) i++;
    return x[i];
}

/* The scale takes the sign of the largest element, the first one where two are as large, so that its code is 0. */
QN_INLINE int symmetric(const float *from, uint8_t *to, int half, uint8_t *fifths, uint8_t *qs) {
    vf x[VECTORS];
    vi codes[VECTORS];
    load_block(from, x);
    int32_t bits = peak_bits(x);
    if (!is_plain(bits)) return 0;
    vi above = vi_set1(0), below = above, most = vi_set1(bits);
    QN_UNROLL
    for (int i = 0; i < VECTORS; i++) {
        above |= vi_bits(x[i]) == most;
        below |= vi_bits(x[i]) == (most | vi_set1((int32_t)0x80000000u));
    }
    float peak = qn_bits_to_f32((uint32_t)bits);
    uint32_t is_above = vi_signs(above), is_below = vi_signs(below);
    if (is_above && is_below) peak = first_of(from, peak);
    else if (is_below) peak = -peak;
    float d = peak / (float)-half, inverse = 1.0f / d;
    put_scale(to, d);
    QN_UNROLL
    for (int i = 0; i < VECTORS; i++) {
        codes[i] = vi_from_f(x[i] * vf_set1(inverse) + vf_set1((float)half + 0.5f));
        vi over = codes[i] > 2 * half - 1;
        codes[i] = (vi_set1(2 * half - 1) & over) | (codes[i] & ~over);
    }
    put_codes(codes, fifths, qs);
    return 1;
}

QN_INLINE int q4_0(const float *from, uint8_t *to) { return symmetric(from, to, 8, NULL, to + 2); }
QN_INLINE int q5_0(const float *from, uint8_t *to) { return symmetric(from, to, 16, to + 2, to + 6); }

/* Integers in the order of the numbers whose bits they are, and back. */
QN_INLINE vi ordered(vi bits) { return bits ^ (bits >> 31 & 0x7fffffff); }
QN_INLINE float largest_of(vi bits) {
    int32_t most = vi_largest(ordered(bits));
    return qn_bits_to_f32((uint32_t)(most ^ (most >> 31 & 0x7fffffff)));
}

/* From the lowest element up. */
QN_INLINE int affine(const float *from, uint8_t *to, int top, uint8_t *fifths, uint8_t *qs) {
    vf x[VECTORS];
    vi codes[VECTORS];
    load_block(from, x);
    if (!is_plain(peak_bits(x))) return 0;
    vf high = x[0], low = x[0];
    QN_UNROLL
    for (int i = 1; i < VECTORS; i++) {
        high = vf_max(high, x[i]);
        low = vf_min(low, x[i]);
    }
    float least = -largest_of(vi_bits(low) ^ vi_set1((int32_t)0x80000000u)), d = (largest_of(vi_bits(high)) - least) / (float)top,
          inverse = d != 0.0f ? 1.0f / d : 0.0f;
    if (least == 0.0f) least = first_of(from, 0.0f); /* with its sign */
    put_scale(to, d);
    put_scale(to + 2, least);
    QN_UNROLL
    for (int i = 0; i < VECTORS; i++) {
        codes[i] = vi_from_f((x[i] - vf_set1(least)) * vf_set1(inverse) + vf_set1(0.5f));
        vi over = codes[i] > top;
        codes[i] = (vi_set1(top) & over) | (codes[i] & ~over);
    }
    put_codes(codes, fifths, qs);
    return 1;
}

QN_INLINE int q4_1(const float *from, uint8_t *to) { return affine(from, to, 15, NULL, to + 4); }
QN_INLINE int q5_1(const float *from, uint8_t *to) { return affine(from, to, 31, to + 4, to + 8); }

/* ---- By type */

#define TYPES(X) X(Q4_0, q4_0, 18) X(Q4_1, q4_1, 20) X(Q5_0, q5_0, 22) X(Q5_1, q5_1, 24) X(Q8_0, q8_0, 34)
/* What comes 4 KiB later is asked for: a row may come from far away, and machines do not look across its pages. */
enum { AHEAD = 1024, LINE = 16 };
#define ROW(dtype, name, size)                                                                         \
    static void row_##name(const float *from, int64_t n, uint8_t *to) {                                \
        for (int64_t i = 0; i < n; i += BLOCK, to += size) {                                           \
            __builtin_prefetch(from + i + AHEAD, 0, 3);                                                \
            __builtin_prefetch(from + i + AHEAD + LINE, 0, 3);                                         \
            if (!name(from + i, to)) qn_tensor_block_codec(QN_DTYPE_##dtype)->encode(from + i, 1, to); \
        }                                                                                              \
    }
TYPES(ROW)

typedef void (*row_fn)(const float *from, int64_t n, uint8_t *to);
#define ENTRY(dtype, name, size) [QN_DTYPE_##dtype] = row_##name,
static const row_fn rows[QN_DTYPE_COUNT] = {TYPES(ENTRY)};

void qn_codec_encode(uint32_t dtype, const float *from, int64_t n, uint8_t *blocks) {
    if (rows[dtype]) rows[dtype](from, n, blocks);
    else qn_tensor_block_codec((qn_dtype)dtype)->encode(from, n / qn_dtype_describe((qn_dtype)dtype)->block, blocks);
}
