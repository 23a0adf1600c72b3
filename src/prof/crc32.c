/* Checksums. On x86-64 the bytes are folded 64 at a time by carry-less multiplication: a block standing 512 bits before another
 * is worth the block times x^512 modulo the polynomial, so its halves, each multiplied by a constant, are added to the later block.
 * What is left in the end is a short text with the same checksum, which zlib finishes. On aarch64 there is an instruction. */
#include "prof/crc32.h"

#include <string.h>
#include <zlib.h>

static uint32_t by_zlib(uint32_t crc, const unsigned char *at, size_t n) {
    while (n) { /* its lengths have 32 bits */
        uInt part = n < (1u << 30) ? (uInt)n : 1u << 30;
        crc = (uint32_t)crc32(crc, at, part);
        at += part;
        n -= part;
    }
    return crc;
}

#if defined __x86_64__
#include <immintrin.h>

enum { LEAST = 256 }; /* bytes from which folding pays */

/* Powers of x modulo the polynomial, bits reversed, as the multiplication of reversed texts wants them: by how far a half moves. */
#define BY_64_BYTES 0x00000001c6e41596ll, 0x0000000154442bd4ll
#define BY_16_BYTES 0x00000000ccaa009ell, 0x00000001751997d0ll

__attribute__((target("pclmul,sse2"))) static __m128i fold(__m128i block, __m128i by, __m128i into) {
    __m128i low = _mm_clmulepi64_si128(block, by, 0x00), high = _mm_clmulepi64_si128(block, by, 0x11);
    return _mm_xor_si128(into, _mm_xor_si128(low, high));
}

__attribute__((target("pclmul,sse2"))) static uint32_t by_folding(uint32_t crc, const unsigned char *at, size_t n) {
    const __m128i *in = (const __m128i *)(const void *)at;
    __m128i block[4];
    for (int i = 0; i < 4; i++) {
        block[i] = _mm_loadu_si128(in + i);
    }
    block[0] = _mm_xor_si128(block[0], _mm_cvtsi32_si128((int)~crc));
    const __m128i by_64 = _mm_set_epi64x(BY_64_BYTES), by_16 = _mm_set_epi64x(BY_16_BYTES);
    for (in += 4, n -= 64; n >= 64; in += 4, n -= 64) {
        for (int i = 0; i < 4; i++) {
            block[i] = fold(block[i], by_64, _mm_loadu_si128(in + i));
        }
    }
    for (int i = 1; i < 4; i++) {
        block[i] = fold(block[i - 1], by_16, block[i]);
    }
    unsigned char rest[16];
    _mm_storeu_si128((__m128i *)(void *)rest, block[3]);
    crc = by_zlib(0xffffffffu, rest, sizeof rest); /* the first state is in the text already, so this one must be none */
    return by_zlib(crc, (const unsigned char *)in, n);
}

uint32_t qn_prof_crc32(uint32_t crc, const void *bytes, size_t length) {
    int folds = length >= LEAST && __builtin_cpu_supports("pclmul");
    return folds ? by_folding(crc, bytes, length) : by_zlib(crc, bytes, length);
}

#elif defined __aarch64__ && defined __linux__
#include <sys/auxv.h>

static uint32_t by_instruction(uint32_t crc, const unsigned char *at, size_t n) {
    crc = ~crc;
    for (; n >= 8; n -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        __asm__(".arch_extension crc\n\tcrc32x %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    }
    return by_zlib(~crc, at, n);
}

uint32_t qn_prof_crc32(uint32_t crc, const void *bytes, size_t length) {
    const unsigned long has_crc32 = 1ul << 7; /* of the capabilities the kernel tells */
    return getauxval(AT_HWCAP) & has_crc32 ? by_instruction(crc, bytes, length) : by_zlib(crc, bytes, length);
}

#else

uint32_t qn_prof_crc32(uint32_t crc, const void *bytes, size_t length) { return by_zlib(crc, bytes, length); }

#endif
