/* The tile registers of AMX: eight of up to 16 rows of 64 bytes, for products of bytes summed in 32 bits and of bf16 summed in
 * f32. Numbers of registers are literals. The instructions are written out, because compilers of our range know neither what
 * they read nor what they write. */
#ifndef QN_CPU_SIMD_SIMD_TILE_H
#define QN_CPU_SIMD_SIMD_TILE_H

#include <stdint.h>

/* What the registers hold, by number, until they are given back. */
typedef struct tile_shapes {
    uint8_t palette, start, none[14];
    uint16_t bytes[16]; /* of a row */
    uint8_t rows[16];
} tile_shapes;

/* The calling convention lets anybody reshape them, but there are libraries that shape the registers of a thread once and then count on it,
 * and would be killed in the host's thread: so it gets its shapes back. What was in the registers is lost. */
static inline tile_shapes tile_before(void) {
    tile_shapes s;
    __asm__ volatile("sttilecfg %0" : "=m"(s));
    return s;
}
static inline void tile_begin(const tile_shapes *s) { __asm__ volatile("ldtilecfg %0" : : "m"(*s)); }
static inline void tile_end(const tile_shapes *before) {
    if (before->palette) tile_begin(before);
    else __asm__ volatile("tilerelease");
}

#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t : :)
#define TILE_LOAD(t, p, step) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(p), "r"((int64_t)(step)) : "memory")
#define TILE_STORE(t, p, step) __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(p), "r"((int64_t)(step)) : "memory")
/* c[i][j] += the sum over k of a[i][k] b[k / 4][4 j + k % 4]; of what signs a's and b's bytes are: ss, su, us, uu */
#define TILE_DOT_OF(signs, c, a, b) __asm__ volatile("tdpb" #signs "d %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)
#define TILE_DOT(c, a, b) TILE_DOT_OF(su, c, a, b)
/* c[i][j] += the sum over k of a[i][k] b[k / 2][2 j + k % 2], all bf16: the even and the odd k are a chain of fused
 * multiply-adds each, whose sum is added to c. Rounded to nearest even; numbers below the normal ones count as zero. */
#define TILE_DOT_B(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

#endif
