/* Fields of 2 to 8 bits out of a stream of bits, the lowest first: VF_N of them as the lanes of a vi.
 *
 *   vi_fields_of(bits)         what the others want to know about the width
 *   vi_fields(f, p, bit)       from bit `bit` (0 or 4) of p on; reads VI_FIELD_BYTES bytes */
#ifndef QN_CPU_SIMD_SIMD_FIELDS_H
#define QN_CPU_SIMD_SIMD_FIELDS_H

#include "cpu/simd/simd_codes.h"

#if defined(__AVX512F__)
enum { VI_FIELD_BYTES = 16 };
typedef struct vi_field {
    vi words, shift, mask; /* the two 16-bit words that hold a field, and where in them it begins */
} vi_field;
static inline vi_field vi_fields_of(int bits) {
    vi at = vi_lanes() * bits, word = at >> 4;
    return (vi_field){word | (word + 1) << 16, at & 15, vi_set1((1 << bits) - 1)};
}
static inline vi vi_fields(const vi_field *f, const uint8_t *p, int bit) {
    __m512i all = _mm512_zextsi128_si512(_mm_loadu_si128((const __m128i *)p));
    return (vi)_mm512_permutexvar_epi16((__m512i)f->words, all) >> (f->shift + bit) & f->mask;
}
#elif QN_LANES == 8
enum { VI_FIELD_BYTES = 8 };
typedef struct vi_field {
    vi bytes, shift, mask; /* the four bytes from which on a field is found */
} vi_field;
static inline vi_field vi_fields_of(int bits) {
    vi at = vi_lanes() * bits, byte = at >> 3;
    return (vi_field){byte | (byte + 1) << 8 | (byte + 2) << 16 | (byte + 3) << 24, at & 7, vi_set1((1 << bits) - 1)};
}
static inline vi vi_fields(const vi_field *f, const uint8_t *p, int bit) {
    int64_t word;
    memcpy(&word, p, sizeof word);
#if defined(QN_SIMD_SVE)
    svuint8_t all = svreinterpret_u8_s64(svdup_n_s64(word));
    vi four = svreinterpret_s32_u8(svtbl_u8(all, svreinterpret_u8_s32(f->bytes)));
#else
    vi four = (vi)_mm256_shuffle_epi8(_mm256_set1_epi64x(word), (__m256i)f->bytes);
#endif
    return four >> (f->shift + bit) & f->mask;
}
#else
enum { VI_FIELD_BYTES = 4 };
typedef struct vi_field {
    vi shift, mask;
} vi_field;
static inline vi_field vi_fields_of(int bits) { return (vi_field){vi_lanes() * bits, vi_set1((1 << bits) - 1)}; }
static inline vi vi_fields(const vi_field *f, const uint8_t *p, int bit) {
    int32_t word;
    memcpy(&word, p, sizeof word);
    return vi_set1(word) >> (f->shift + bit) & f->mask;
}
#endif

#endif
