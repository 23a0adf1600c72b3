/* Other forms for packed weights, where the file's own takes too long to unpack for each token. A form is made of a block of a panel, as
 * it is and unpacked; the arithmetic of its products is that of kd_dots.c. */
#include "cpu/kd_unpack.h"

/* ---- Nibbles, for codebooks: the values of a type are few, so a nibble tells which, and a table of 16 gives its code. That takes 4 bits
 * an element where the file has 2 or 3, and no gathering for each token. Scales are f32 behind the nibbles, minima behind these. */

static const uint8_t codes_iq2[16] = {72, 89, 107, 56, 39, 21};
static const uint8_t codes_iq3_xxs[16] = {68, 76, 84, 92, 100, 108, 116, 126, 60, 52, 44, 36, 28, 20, 12, 2};
static const uint8_t codes_iq3_s[16] = {65, 67, 69, 71, 73, 75, 77, 79, 63, 61, 59, 57, 55, 53, 51, 49};
static const uint8_t codes_iq1[16] = {0, 2, 8, 10, 16, 18};

/* One block of a panel as nibbles. */
static void to_nibbles(const qn_quant_kept *k, const qn_quant_chunk *from, uint8_t *to) {
    uint8_t which[256] = {0};
    for (int i = 0; i < 16; i++) which[k->table[i]] = (uint8_t)i;
    which[k->table[0]] = 0; /* unused entries are 0 */
    for (int u = 0; u < 4; u++)
        for (int w = 0; w < 8; w++)
            for (int i = 0; i < QN_PANEL * 4; i++, to++) {
                const uint8_t *low = (const uint8_t *)from->codes[16 * u + w],
                              *high = (const uint8_t *)from->codes[16 * u + 8 + w];
                *to = (uint8_t)(which[low[i]] | which[high[i]] << 4);
            }
    memcpy(to, from->scale, (size_t)k->groups * QN_PANEL * sizeof(float));
}

static void keep_nibbles(const qn_quant_kept *k, const uint8_t *raw, const qn_quant_chunk *from, uint8_t *to) {
    (void)raw;
    to_nibbles(k, from, to);
}

INLINE void from_nibbles(const uint8_t *table, int groups, const uint8_t *p, int v, qn_quant_chunk *to) {
    QN_UNROLL_BLOCK
    for (int g = 0; g < groups; g++) put_f(to->scale, g, v, kept_float(p + 128 * QN_PANEL, g, v));
    QN_UNROLL_BLOCK
    for (int u = 0; u < 4; u++) {
        QN_UNROLL_BLOCK
        for (int w = 0; w < 8; w++) {
            vu q = word(p, 8 * u + w, v);
            put(to->codes, 16 * u + w, v, vu_table16(table, q & LOW4));
            put(to->codes, 16 * u + 8 + w, v, vu_table16(table, vu_upper(q)));
        }
    }
}

#define KEPT(name, table, group)                                                  \
    INLINE void kept_##name(const uint8_t *p, int b, int v, qn_quant_chunk *to) { \
        (void)b;                                                                  \
        from_nibbles(table, 256 / (group), p, v, to);                             \
    }                                                                             \
    UNPACK(kept_##name, 256, 128 + 1024 / (group), group, 0, 0)                   \
    const qn_quant_kept QN_K(kept_##name) = {keep_nibbles, QN_K(unpack_kept_##name), 128 + 1024 / (group), 256 / (group), table};
KEPT(iq2_32, codes_iq2, 32)
KEPT(iq2_16, codes_iq2, 16)
KEPT(iq3_xxs, codes_iq3_xxs, 32)
KEPT(iq3_s, codes_iq3_s, 32)
KEPT(iq1_32, codes_iq1, 32)
KEPT(iq1_16, codes_iq1, 16)

/* ---- Pairs of bits, as in TQ2_0, for digits to the base of 3, which take eight steps each to come by, pairs two. */

static void keep_pairs(const qn_quant_kept *k, const uint8_t *raw, const qn_quant_chunk *from, uint8_t *to) {
    (void)k, (void)raw;
    for (int h = 0; h < 2; h++)
        for (int w = 0; w < 8; w++)
            for (int i = 0; i < QN_PANEL * 4; i++, to++) {
                *to = 0;
                for (int j = 0; j < 4; j++) *to = (uint8_t)(*to | ((const uint8_t *)from->codes[32 * h + 8 * j + w])[i] << 2 * j);
            }
    for (int r = 0; r < QN_PANEL; r++) memcpy(to + 2 * r, &(uint16_t){qn_f32_to_f16(from->scale[0][r])}, 2);
}
const qn_quant_kept QN_K(kept_pairs) = {keep_pairs, QN_K(unpack_tq2_0), 66, 8, NULL};

/* ---- Forms for Arm, where one row of activations waits for instructions, not for memory: its products are kd_abreast.c's. */
#ifdef QN_KEEPS_Q4_K

/* Q4_K: scales and minima as the floats they become. It takes a third more bytes, and of the instructions for one row a third fewer: half
 * of them made floats of six bits. */

static void keep_floats(const qn_quant_kept *k, const uint8_t *raw, const qn_quant_chunk *from, uint8_t *to) {
    (void)raw;
    to_nibbles(k, from, to);
    memcpy(to + 160 * QN_PANEL, from->least, (size_t)k->groups * QN_PANEL * sizeof(float));
}

INLINE void kept_q4_k(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    (void)b;
    for (int g = 0; g < 8; g++) {
        put_f(to->scale, g, v, kept_float(p + 128 * QN_PANEL, g, v));
        put_f(to->least, g, v, kept_float(p + 160 * QN_PANEL, g, v));
    }
    for (int u = 0; u < 4; u++)
        for (int w = 0; w < 8; w++) {
            vu q = word(p, 8 * u + w, v);
            put(to->codes, 16 * u + w, v, q & LOW4);
            put(to->codes, 16 * u + 8 + w, v, vu_upper(q));
        }
}

static const uint8_t codes_plain[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
UNPACK_ONLY(kept_q4_k, 256, 192)
const qn_quant_kept QN_K(kept_q4_k) = {keep_floats, QN_K(unpack_kept_q4_k), 192, 8, codes_plain};

/* Q6_K: the sixteen codes of a group are three words of a row with a code in six bits of each byte, and in the two upper bits of
 * their bytes, from the first word down, the bits of the fourth: with NEON six instructions where the file's own form takes eleven.
 * Scales are halves of floats, two to a word, of which a signed byte needs no more: one instruction instead of three, for 16 bytes
 * more. */
static void keep_sixes(const qn_quant_kept *k, const uint8_t *raw, const qn_quant_chunk *from, uint8_t *to) {
    for (int g = 0; g < k->groups; g++)
        for (int i = 0; i < 3; i++)
            for (int l = 0; l < QN_PANEL; l++, to += 4) {
                uint32_t word = from->codes[4 * g + i][l] | (from->codes[4 * g + 3][l] >> (4 - 2 * i) & 0x03030303u) << 6;
                memcpy(to, &word, 4);
            }
    for (int g = 0; g < k->groups; g += 2)
        for (int l = 0; l < QN_PANEL; l++, to += 4) {
            const int8_t *scale = (const int8_t *)raw + (192 + g / 4 * 4) * QN_PANEL + 4 * l + g % 4;
            uint32_t word = qn_f32_to_bits(scale[0]) >> 16 | qn_f32_to_bits(scale[1]);
            memcpy(to, &word, 4);
        }
    memcpy(to, raw + 208 * QN_PANEL, 2 * QN_PANEL);
}

INLINE void kept_q6_k(const uint8_t *p, int b, int v, qn_quant_chunk *to) {
    vf d = half_field(p + 224 * QN_PANEL, v);
    (void)b;
    QN_UNROLL
    for (int g = 0; g < 16; g++) {
        vu codes[4];
        sixes(p, g, v, codes);
        for (int j = 0; j < 4; j++) put(to->codes, 4 * g + j, v, codes[j]);
        put_f(to->scale, g, v, sixes_scale(p, d, g, v));
    }
}

UNPACK_ONLY(kept_q6_k, 256, 226)
const qn_quant_kept QN_K(kept_q6_k) = {keep_sixes, QN_K(unpack_kept_q6_k), 226, 16, NULL};
#endif

void qn_quant_keep(const qn_quant_type *t, const uint8_t *rows, int64_t step, int n, int64_t blocks, uint8_t *panel) {
    enum { LARGEST = 210 };
    uint8_t raw[LARGEST * QN_PANEL];
    qn_quant_chunk chunk;
    if (!t->kept) qn_quant_pack(t, rows, step, n, blocks, panel);
    else
        for (int64_t b = 0, size = qn_dtype_bytes(t->dtype); b < blocks; b++) {
            qn_quant_pack(t, rows + b * size, step, n, 1, raw);
            t->unpack(raw, QN_CHUNK, &chunk);
            t->kept->keep(t->kept, raw, &chunk, panel + b * t->kept->bytes * QN_PANEL);
        }
}
