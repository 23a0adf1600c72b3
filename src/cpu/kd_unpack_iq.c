/* Unpacking of the types whose codes are looked up: tables of 16 values, and the codebooks of iq1, iq2 and iq3. An entry of a codebook
 * is digits, two or three bits each, which become bytes and then values by arithmetic, all rows of a vector at once. */
#include "cpu/kd_unpack.h"
#include "tensor/quant_grids.h"

/* ---- Tables of 16 */

#define FLIP(x) (uint8_t)((uint8_t)(x) ^ (VU_WIDE_FLIP & 255u))
static const uint8_t uneven[16] = {FLIP(-127), FLIP(-104), FLIP(-83), FLIP(-65), FLIP(-49), FLIP(-35), FLIP(-22), FLIP(-10),
                                   FLIP(1),    FLIP(13),   FLIP(25),  FLIP(38),  FLIP(53),  FLIP(69),  FLIP(89),  FLIP(113)};
/* Four-bit floats doubled, and 12 more so that none is negative. */
static const uint8_t float4[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

/* Bytes of which each holds two codes, the second `apart` words after the first. */
INLINE void looked_up(const uint8_t *table, const uint8_t *qs, int words, int v, uint32_t (*codes)[QN_PANEL]) {
    for (int w = 0; w < words; w++) {
        vu q = word(qs, w, v);
        put(codes, w, v, vu_table16(table, q & LOW4));
        put(codes, w + words, v, vu_table16(table, vu_upper(q)));
    }
}

INLINE void iq4_nl(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    put_f(to->scale, b, v, half_field(p, v));
    looked_up(uneven, p + 2 * QN_PANEL, 4, v, to->codes + 8 * b);
}
UNPACK(iq4_nl, 32, 18, 32, 0, 1)

INLINE void iq4_xs(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    vf d = half_field(p, v);
    vu high = short_field(p + 2 * QN_PANEL, v), low = word(p + 4 * QN_PANEL, 0, v);
    (void)b;
    for (int s = 0; s < 8; s++) {
        vu scale = (low >> (4 * s) & 15u) | (high >> (2 * s) & 3u) << 4;
        put_f(to->scale, s, v, d * (vf_from_i((vi)scale) - vf_set1(32.0f)));
        looked_up(uneven, p + (8 + 16 * s) * QN_PANEL, 4, v, to->codes + 8 * s);
    }
}
UNPACK(iq4_xs, 256, 136, 32, 0, 1)

/* 2^(e - 128), of which the two lowest are subnormal. */
INLINE void mxfp4(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    vu e = byte_field(p, v), tiny = (vu)(e < 2u);
    put_f(to->scale, b, v, vf_of_bits((vi)((vu_set1(0x00200000u) << (e & 1u) & tiny) | ((e - 1u) << 23 & ~tiny))));
    looked_up(float4, p + QN_PANEL, 4, v, to->codes + 8 * b);
}
UNPACK(mxfp4, 32, 17, 32, 0, 0)

/* Half of an unsigned float of 4 exponent and 3 mantissa bits; 0x7f is 0, 0xff a number. */
INLINE vf half_e4m3(vu x) {
    vu e = x >> 3 & 15u, m = x & 7u, none = (vu)(x == 127u), low = (vu)(e == 0u);
    vi normal = (vi)((e + 119u) << 23 | m << 20), small = vi_bits(vf_from_i((vi)m) * vf_set1(0x1p-10f));
    return vf_of_bits(((normal & ~(vi)low) | (small & (vi)low)) & ~(vi)none);
}

INLINE void nvfp4(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    vu scales = word(p, 0, v);
    for (int t = 0; t < 4; t++) {
        put_f(to->scale, 4 * b + t, v, half_e4m3(scales >> (8 * t) & 255u));
        looked_up(float4, p + (4 + 8 * t) * QN_PANEL, 2, v, to->codes + 16 * b + 4 * t);
    }
}
UNPACK_NARROW(nvfp4, 64, 36, 16, 0, 0)

/* ---- Codebooks. Eight elements are a group; codes are 64 more than the values. */

/* Four 2-bit digits to four bytes. */
INLINE vu digits2(vu e) {
    e = (e | e << 12) & 0x000f000fu;
    return (e | e << 6) & 0x03030303u;
}
/* Four 3-bit digits to four bytes. */
INLINE vu digits3(vu e) { return (e & 7u) | (e << 5 & 0x700u) | (e << 10 & 0x70000u) | (e << 15 & 0x7000000u); }

/* 64 + value, or 64 - value in the bytes whose bit of `signs` is set. */
INLINE vu with_signs(vu value, vu signs) {
    vu four = signs & 15u, ones = (four | four << 7 | four << 14 | four << 21) & ONES;
    return value + 0x40404040u - ((value & ((ones << 8) - ones)) << 1);
}
/* Seven signs and their parity. */
INLINE vu eight_signs(vu seven) {
    vu p = seven ^ seven >> 4;
    p ^= p >> 2;
    p ^= p >> 1;
    return seven | (p & 1u) << 7;
}

INLINE void put_iq2(qn_quant_chunk *to, int group, int v, vu entry, vu signs) {
    vu a = digits2(entry & 255u), b = digits2(entry >> 8); /* 0, 1, 2 stand for 8, 25, 43 */
    put(to->codes, 2 * group, v, with_signs(a * 17u + (a >> 1 & ONES) + 0x08080808u, signs));
    put(to->codes, 2 * group + 1, v, with_signs(b * 17u + (b >> 1 & ONES) + 0x08080808u, signs >> 4));
}

/* d / 8 times an odd number: (1/2 + n) d / 4. */
INLINE vf odd_scale(vf d, vu n, float factor) { return d * vf_set1(factor) * vf_from_i((vi)(n + n + 1u)); }

INLINE void iq2_xxs(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    vf d = half_field(p, v);
    (void)b;
    for (int s = 0; s < 8; s++) {
        vu index = word(p + 2 * QN_PANEL, 2 * s, v), signs = word(p + 2 * QN_PANEL, 2 * s + 1, v);
        put_f(to->scale, s, v, odd_scale(d, signs >> 28, 0.125f));
        for (int l = 0; l < 4; l++)
            put_iq2(to, 4 * s + l, v, vu_pick16(qn_grid_iq2_xxs, index >> (8 * l) & 255u), eight_signs(signs >> (7 * l) & 127u));
    }
}
UNPACK_ONLY(iq2_xxs, 256, 66)

/* Sixteen scales of four bits. */
INLINE void nibble_scales(const uint8_t *scales, vf d, int v, qn_quant_chunk *to) {
    for (int g = 0; g < 16; g++) put_f(to->scale, g, v, odd_scale(d, word(scales, g / 8, v) >> (4 * (g % 8)) & 15u, 0.125f));
}

INLINE void iq2_xs(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    (void)b;
    nibble_scales(p + 66 * QN_PANEL, half_field(p, v), v, to);
    for (int g = 0; g < 32; g++) {
        vu code = word(p + 2 * QN_PANEL, g / 2, v) >> (16 * (g % 2)) & 0xffffu;
        put_iq2(to, g, v, vu_pick16(qn_grid_iq2_xs, code & 511u), eight_signs(code >> 9));
    }
}
UNPACK_ONLY(iq2_xs, 256, 74)

INLINE vu byte_at(const uint8_t *field, int i, int v) { return word(field, i / 4, v) >> (8 * (i % 4)) & 255u; }

INLINE void iq2_s(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    (void)b;
    nibble_scales(p + 74 * QN_PANEL, half_field(p, v), v, to);
    for (int g = 0; g < 32; g++) {
        vu high = byte_at(p + 66 * QN_PANEL, g / 4, v) >> (2 * (g % 4)) & 3u;
        put_iq2(to, g, v, vu_pick16(qn_grid_iq2_s, byte_at(p + 2 * QN_PANEL, g, v) | high << 8),
                byte_at(p + 34 * QN_PANEL, g, v));
    }
}
UNPACK_ONLY(iq2_s, 256, 82)

/* 4 + 8 digit, and 2 more for the last of the eight. */
INLINE vu iq3_xxs_value(vu digit) { return digit * 8u + ((digit & digit >> 1 & digit >> 2 & ONES) << 1) + 0x04040404u; }

INLINE void iq3_xxs(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    vf d = half_field(p, v);
    (void)b;
    for (int s = 0; s < 8; s++) {
        vu word_signs = word(p + 66 * QN_PANEL, s, v);
        put_f(to->scale, s, v, odd_scale(d, word_signs >> 28, 0.25f));
        for (int l = 0; l < 4; l++) {
            int g = 4 * s + l;
            vu signs = eight_signs(word_signs >> (7 * l) & 127u);
            for (int h = 0; h < 2; h++) {
                vu digits = digits3(vu_pick16(qn_grid_iq3_xxs, byte_at(p + 2 * QN_PANEL, 2 * g + h, v)));
                put(to->codes, 2 * g + h, v, with_signs(iq3_xxs_value(digits), signs >> (4 * h)));
            }
        }
    }
}
UNPACK_ONLY(iq3_xxs, 256, 98)

INLINE void iq3_s(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    vf d = half_field(p, v);
    vu scales = word(p + 106 * QN_PANEL, 0, v);
    (void)b;
    for (int s = 0; s < 8; s++) put_f(to->scale, s, v, odd_scale(d, scales >> (4 * s) & 15u, 1.0f));
    for (int g = 0; g < 32; g++) {
        vu high = byte_at(p + 66 * QN_PANEL, g / 4, v) >> (2 * (g % 4)), signs = byte_at(p + 74 * QN_PANEL, g, v);
        for (int h = 0; h < 2; h++) {
            vu digits = digits3(vu_pick16(qn_grid_iq3_s, byte_at(p + 2 * QN_PANEL, 2 * g + h, v) | (high >> h & 1u) << 8));
            put(to->codes, 2 * g + h, v, with_signs(digits * 2u + ONES, signs >> (4 * h)));
        }
    }
}
UNPACK_ONLY(iq3_s, 256, 110)

/* Digits 0, 1, 2 stand for -1, 0, 1, and an eighth is added or taken away: in eighths, and 9 more, 8 digit + 2 or + 0. */
INLINE void put_iq1(qn_quant_chunk *to, int group, int v, vu entry, vu minus) {
    vu shift = (minus ^ 1u) * 0x02020202u;
    put(to->codes, 2 * group, v, digits2(entry & 255u) * 8u + shift);
    put(to->codes, 2 * group + 1, v, digits2(entry >> 8) * 8u + shift);
}

INLINE void iq1_s(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    vf d = half_field(p, v);
    (void)b;
    for (int s = 0; s < 8; s++) {
        vu high = word(p + 34 * QN_PANEL, s / 2, v) >> (16 * (s % 2)) & 0xffffu;
        put_f(to->scale, s, v, odd_scale(d, high >> 12 & 7u, 0.125f));
        for (int l = 0; l < 4; l++) {
            vu index = byte_at(p + 2 * QN_PANEL, 4 * s + l, v) | (high >> (3 * l) & 7u) << 8;
            put_iq1(to, 4 * s + l, v, vu_pick16(qn_grid_iq1, index), high >> 15);
        }
    }
}
UNPACK_ONLY(iq1_s, 256, 50)

/* The f16 scale is the top four bits of each of four halves. */
INLINE void iq1_m(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    vu half[4], bits = vu_set1(0);
    uint16_t t[VF_N];
    (void)b;
    for (int i = 0; i < 4; i++) {
        half[i] = word(p + 48 * QN_PANEL, i / 2, v) >> (16 * (i % 2)) & 0xffffu;
        bits |= half[i] >> 12 << (4 * i);
    }
    vh narrow = __builtin_convertvector(bits, vh);
    memcpy(t, &narrow, sizeof t);
    vf d = vf_load_h(t);
    for (int g = 0; g < 16; g++) put_f(to->scale, g, v, odd_scale(d, half[g / 4] >> (3 * (g % 4)) & 7u, 0.125f));
    for (int g = 0; g < 32; g++) {
        vu nibble = byte_at(p + 32 * QN_PANEL, g / 2, v) >> (4 * (g % 2)) & 15u;
        put_iq1(to, g, v, vu_pick16(qn_grid_iq1, byte_at(p, g, v) | (nibble & 7u) << 8), nibble >> 3);
    }
}
UNPACK_ONLY(iq1_m, 256, 56)
