/* The list of block codecs, QN_CODEC(ENUM, name, run): run is 1 when the format defines a run-time encoder, and
 * QN_CODEC_BEST for the types that have an encoder for offline use, which searches and hears weights. Declares all of
 * their functions. */
#ifndef QN_TENSOR_QUANT_CODECS_H
#define QN_TENSOR_QUANT_CODECS_H

#include "quant.h"

#define QN_CODECS(QN_CODEC, QN_CODEC_BEST) \
    QN_CODEC_BEST(Q4_0, q4_0, 1)           \
    QN_CODEC_BEST(Q4_1, q4_1, 1)           \
    QN_CODEC_BEST(Q5_0, q5_0, 1)           \
    QN_CODEC_BEST(Q5_1, q5_1, 1)           \
    QN_CODEC(Q8_0, q8_0, 1)                \
    QN_CODEC(Q8_1, q8_1, 1)                \
    QN_CODEC_BEST(Q2_K, q2_k, 1)           \
    QN_CODEC_BEST(Q3_K, q3_k, 1)           \
    QN_CODEC_BEST(Q4_K, q4_k, 1)           \
    QN_CODEC_BEST(Q5_K, q5_k, 1)           \
    QN_CODEC_BEST(Q6_K, q6_k, 1)           \
    QN_CODEC(Q8_K, q8_k, 1)                \
    QN_CODEC_BEST(IQ2_XXS, iq2_xxs, 0)     \
    QN_CODEC_BEST(IQ2_XS, iq2_xs, 0)       \
    QN_CODEC_BEST(IQ3_XXS, iq3_xxs, 0)     \
    QN_CODEC_BEST(IQ1_S, iq1_s, 0)         \
    QN_CODEC_BEST(IQ4_NL, iq4_nl, 1)       \
    QN_CODEC_BEST(IQ3_S, iq3_s, 0)         \
    QN_CODEC_BEST(IQ2_S, iq2_s, 0)         \
    QN_CODEC_BEST(IQ4_XS, iq4_xs, 1)       \
    QN_CODEC_BEST(IQ1_M, iq1_m, 0)         \
    QN_CODEC(TQ1_0, tq1_0, 1)              \
    QN_CODEC(TQ2_0, tq2_0, 1)              \
    QN_CODEC(MXFP4, mxfp4, 1)              \
    QN_CODEC(NVFP4, nvfp4, 1)              \
    QN_CODEC(Q1_0, q1_0, 1)                \
    QN_CODEC(Q2_0, q2_0, 1)

#define QN_CODEC_DECLARE(enumerator, name, run)                                    \
    void qn_quant_decode_##name(const uint8_t *src, int64_t n_blocks, float *dst); \
    void qn_quant_encode_##name(const float *src, int64_t n_blocks, uint8_t *dst);
#define QN_CODEC_DECLARE_BEST(enumerator, name, run) \
    QN_CODEC_DECLARE(enumerator, name, run)          \
    void qn_quant_encode_best_##name(const float *src, const float *weights, int64_t n_blocks, uint8_t *dst);

QN_CODECS(QN_CODEC_DECLARE, QN_CODEC_DECLARE_BEST)

#undef QN_CODEC_DECLARE
#undef QN_CODEC_DECLARE_BEST

#endif
