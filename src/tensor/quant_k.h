/* Sizes of the super-block types, and the packing their two families of encoders share. */
#ifndef QN_TENSOR_QUANT_K_H
#define QN_TENSOR_QUANT_K_H

#include <stdint.h>

enum {
    QN_K_BLOCK = 256,
    QN_Q2_K_BYTES = 84,
    QN_Q3_K_BYTES = 110,
    QN_Q4_K_BYTES = 144,
    QN_Q5_K_BYTES = 176,
    QN_Q6_K_BYTES = 210,
    QN_Q8_K_BYTES = 292,
    QN_IQ4_XS_BYTES = 136
};

/* What the affine types (q2_K, q4_K, q5_K) store: per sub-block integers, and 256 codes. Super-scales are written
 * apart. */
typedef struct qn_k_affine {
    int scale[16];
    int offset[16];
    uint8_t code[QN_K_BLOCK];
} qn_k_affine;

/* What the symmetric types (q3_K, q6_K, iq4_xs) store; codes are already offset to be non-negative. */
typedef struct qn_k_symmetric {
    int scale[16];
    uint8_t code[QN_K_BLOCK];
} qn_k_symmetric;

void qn_quant_pack_q2_k(const qn_k_affine *parts, uint8_t *dst);
void qn_quant_pack_q4_k(const qn_k_affine *parts, uint8_t *dst);
void qn_quant_pack_q5_k(const qn_k_affine *parts, uint8_t *dst);
void qn_quant_pack_q3_k(const qn_k_symmetric *parts, uint8_t *dst);
void qn_quant_pack_q6_k(const qn_k_symmetric *parts, uint8_t *dst);
void qn_quant_pack_iq4_xs(const qn_k_symmetric *parts, uint8_t *dst);

#endif
