/* What the files of unpacking share: words and fields of a panel, and how a function for one block and one vector of its rows becomes
 * one for a chunk. */
#ifndef QN_CPU_KD_UNPACK_H
#define QN_CPU_KD_UNPACK_H

#include "cpu/kd_quant.h"

#define INLINE static inline __attribute__((always_inline))

/* Word i of a field of words. */
INLINE vu word(const uint8_t *field, int i, int v) { return vu_load(field + (i * QN_PANEL + v * VF_N) * 4); }
/* A field of one f16 a row. */
INLINE vf half_field(const uint8_t *field, int v) { return vf_load_h((const uint16_t *)(const void *)(field + v * VF_N * 2)); }
/* Fields of one 16-bit number or one byte a row. */
typedef uint8_t vb __attribute__((vector_size(VF_N)));
INLINE vu short_field(const uint8_t *field, int v) {
    vh h;
    memcpy(&h, field + v * VF_N * 2, sizeof h);
    return __builtin_convertvector(h, vu);
}
INLINE vu byte_field(const uint8_t *field, int v) {
    vb b;
    memcpy(&b, field + v * VF_N, sizeof b);
    return __builtin_convertvector(b, vu);
}
INLINE void put(uint32_t (*codes)[QN_PANEL], int i, int v, vu w) { vu_store(codes[i] + v * VF_N, w); }
INLINE void put_f(float (*to)[QN_PANEL], int group, int v, vf x) { vf_store(to[group] + v * VF_N, x); }
INLINE vf byte_f(vu w, int i) { return vf_from_i((vi)(w >> (8 * i) & 255u)); }
INLINE vf signed_byte_f(vu w, int i) { return vf_from_i((vi)w << (24 - 8 * i) >> 24); }

/* name(p, b, v, to) unpacks vector v of block b of a chunk, whose panel bytes begin at p. */
#define UNPACK(name, block, size)                                                                   \
    void QN_K(unpack_##name)(const uint8_t *panel, int count, qn_quant_chunk *to) {                 \
        for (int b = 0; b * (block) < count; b++)                                                   \
            for (int v = 0; v < QN_PANEL_VECTORS; v++) name(panel + b * (size)*QN_PANEL, b, v, to); \
    }

#define QN_UNPACKS(X)                                                                                                       \
    X(q4_0)                                                                                                                 \
    X(q4_1) X(q5_0) X(q5_1) X(q8_0) X(q8_1) X(q2_k) X(q3_k) X(q4_k) X(q5_k) X(q6_k) X(q8_k) X(iq2_xxs) X(iq2_xs) X(iq3_xxs) \
        X(iq1_s) X(iq4_nl) X(iq3_s) X(iq2_s) X(iq4_xs) X(iq1_m) X(tq1_0) X(tq2_0) X(mxfp4) X(nvfp4) X(q1_0) X(q2_0)
#define QN_UNPACK_DECLARE(name) void QN_K(unpack_##name)(const uint8_t *panel, int count, qn_quant_chunk *to);
QN_UNPACKS(QN_UNPACK_DECLARE)

#endif
