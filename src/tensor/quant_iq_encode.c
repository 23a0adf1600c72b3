/* Encoders of the codebook types iq1, iq2 and iq3, for offline quantisation: the search is in quant_iq_search.c, here
 * is how each type lays its codes out. */
#include "quant_bits.h"
#include "quant_codecs.h"
#include "quant_grids.h"
#include "quant_iq_search.h"
#include "quant_search.h"

enum { BLOCK = 256 };

typedef void (*pack_fn)(const qn_iq_codes *codes, uint8_t *dst);

static void encode_blocks(const qn_iq_book *book, const float *src, const float *weights, int64_t n_blocks, uint8_t *dst,
                          int bytes, pack_fn pack) {
    qn_iq_norms norms;
    qn_iq_prepare(book, &norms);
    for (int64_t b = 0; b < n_blocks; b++, src += BLOCK, dst += bytes) {
        qn_iq_codes codes;
        qn_iq_encode_block(book, &norms, src, qn_quant_weights_at(weights, b * BLOCK), &codes);
        memset(dst, 0, (size_t)bytes);
        pack(&codes, dst);
    }
}

/* Four 7-bit sign indices and a level; the eighth sign is their parity and is not stored. */
static uint32_t sign_word(const qn_iq_codes *codes, int s) {
    uint32_t word = (uint32_t)codes->level[s] << 28;
    for (int l = 0; l < 4; l++) word |= (uint32_t)(codes->signs[4 * s + l] & 127) << (7 * l);
    return word;
}

/* Two 4-bit levels to a byte. */
static void pack_levels(const qn_iq_codes *codes, int count, uint8_t *dst) {
    for (int i = 0; i < count; i += 2) dst[i / 2] = (uint8_t)(codes->level[i] | codes->level[i + 1] << 4);
}

static void pack_iq2_xxs(const qn_iq_codes *codes, uint8_t *dst) {
    qn_put_u16(dst, codes->d);
    for (int s = 0; s < 8; s++) {
        for (int l = 0; l < 4; l++) dst[2 + 8 * s + l] = (uint8_t)codes->entry[4 * s + l];
        qn_put_u32(dst + 6 + 8 * s, sign_word(codes, s));
    }
}

static void pack_iq2_xs(const qn_iq_codes *codes, uint8_t *dst) {
    qn_put_u16(dst, codes->d);
    for (int g = 0; g < 32; g++) qn_put_u16(dst + 2 + 2 * g, (uint16_t)(codes->entry[g] | (codes->signs[g] & 127) << 9));
    pack_levels(codes, 16, dst + 66);
}

static void pack_iq2_s(const qn_iq_codes *codes, uint8_t *dst) {
    qn_put_u16(dst, codes->d);
    for (int g = 0; g < 32; g++) {
        dst[2 + g] = (uint8_t)(codes->entry[g] & 255);
        dst[34 + g] = codes->signs[g];
        dst[66 + g / 4] = (uint8_t)(dst[66 + g / 4] | codes->entry[g] >> 8 << (2 * (g % 4)));
    }
    pack_levels(codes, 16, dst + 74);
}

static void pack_iq3_xxs(const qn_iq_codes *codes, uint8_t *dst) {
    qn_put_u16(dst, codes->d);
    for (int u = 0; u < 64; u++) dst[2 + u] = (uint8_t)codes->entry[u];
    for (int s = 0; s < 8; s++) qn_put_u32(dst + 66 + 4 * s, sign_word(codes, s));
}

static void pack_iq3_s(const qn_iq_codes *codes, uint8_t *dst) {
    qn_put_u16(dst, codes->d);
    for (int u = 0; u < 64; u++) {
        dst[2 + u] = (uint8_t)(codes->entry[u] & 255);
        dst[66 + u / 8] = (uint8_t)(dst[66 + u / 8] | codes->entry[u] >> 8 << (u % 8));
    }
    memcpy(dst + 74, codes->signs, 32);
    pack_levels(codes, 8, dst + 106);
}

static void pack_iq1_s(const qn_iq_codes *codes, uint8_t *dst) {
    qn_put_u16(dst, codes->d);
    for (int s = 0; s < 8; s++) {
        unsigned high = (unsigned)codes->level[s] << 12 | (unsigned)codes->shift[4 * s] << 15;
        for (int l = 0; l < 4; l++) {
            dst[2 + 4 * s + l] = (uint8_t)(codes->entry[4 * s + l] & 255);
            high |= (unsigned)codes->entry[4 * s + l] >> 8 << (3 * l);
        }
        qn_put_u16(dst + 34 + 2 * s, (uint16_t)high);
    }
}

static void pack_iq1_m(const qn_iq_codes *codes, uint8_t *dst) {
    for (int g = 0; g < 32; g++) {
        unsigned nibble = (unsigned)codes->entry[g] >> 8 | (unsigned)codes->shift[g] << 3;
        dst[g] = (uint8_t)(codes->entry[g] & 255);
        dst[32 + g / 2] = (uint8_t)(dst[32 + g / 2] | nibble << (4 * (g % 2)));
    }
    for (int i = 0; i < 4; i++) {
        unsigned word = ((unsigned)codes->d >> (4 * i) & 15u) << 12;
        for (int j = 0; j < 4; j++) word |= (unsigned)codes->level[4 * i + j] << (3 * j);
        qn_put_u16(dst + 48 + 2 * i, (uint16_t)word);
    }
}

/* QN_IQ_ENCODER(name, bytes, grid, values, entries, digits, kind, units, levels, step, peak value) */
#define QN_IQ_ENCODER(name, bytes, grid, values, entries, digits, kind, units, levels, step, peak)             \
    void qn_quant_encode_best_##name(const float *src, const float *weights, int64_t n_blocks, uint8_t *dst) { \
        static const qn_iq_book book = {grid, values, entries, digits, kind, units, levels, step, peak};       \
        encode_blocks(&book, src, weights, n_blocks, dst, bytes, pack_##name);                                 \
    }                                                                                                          \
    void qn_quant_encode_##name(const float *src, int64_t n_blocks, uint8_t *dst) {                            \
        qn_quant_encode_best_##name(src, NULL, n_blocks, dst);                                                 \
    }

QN_IQ_ENCODER(iq2_xxs, 66, qn_grid_iq2_xxs, qn_grid_values_iq2, 256, 8, QN_IQ_EVEN, 4, 16, 0.125f, 43.0f)
QN_IQ_ENCODER(iq2_xs, 74, qn_grid_iq2_xs, qn_grid_values_iq2, 512, 8, QN_IQ_EVEN, 2, 16, 0.125f, 43.0f)
QN_IQ_ENCODER(iq2_s, 82, qn_grid_iq2_s, qn_grid_values_iq2, 1024, 8, QN_IQ_FREE, 2, 16, 0.125f, 43.0f)
QN_IQ_ENCODER(iq3_xxs, 98, qn_grid_iq3_xxs, qn_grid_values_iq3_xxs, 256, 4, QN_IQ_EVEN_PAIR, 8, 16, 0.25f, 62.0f)
QN_IQ_ENCODER(iq3_s, 110, qn_grid_iq3_s, qn_grid_values_iq3_s, 512, 4, QN_IQ_FREE, 8, 16, 1.0f, 15.0f)
QN_IQ_ENCODER(iq1_s, 50, qn_grid_iq1, qn_grid_values_iq1, 2048, 8, QN_IQ_SHIFT_SECTION, 4, 8, 1.0f, 1.125f)
QN_IQ_ENCODER(iq1_m, 56, qn_grid_iq1, qn_grid_values_iq1, 2048, 8, QN_IQ_SHIFT, 2, 8, 1.0f, 1.125f)
