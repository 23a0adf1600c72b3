/* Block formats: how each GGUF block type is decoded and encoded. One codec per type, found by dtype; the layouts are
 * those of the format's own definition. Decoding gives f32 exactly as the formulas say, one rounding at most. Encoders
 * take any floats: NaN counts as zero, infinities as the largest finite value, and a scale too large for f16
 * saturates. */
#ifndef QN_TENSOR_QUANT_H
#define QN_TENSOR_QUANT_H

#include <quern/quern.h>

/* Decode n_blocks consecutive blocks at src into n_blocks * block floats. */
typedef void (*qn_block_decode_fn)(const uint8_t *src, int64_t n_blocks, float *dst);
/* Encode n_blocks * block floats into n_blocks consecutive blocks. Pure: same floats, same bytes. */
typedef void (*qn_block_encode_fn)(const float *src, int64_t n_blocks, uint8_t *dst);

/* The same under weights: weights[i] >= 0 says how much the squared error of src[i] counts. NULL: all alike. */
typedef void (*qn_block_weigh_fn)(const float *src, const float *weights, int64_t n_blocks, uint8_t *dst);

typedef struct qn_block_codec {
    qn_block_decode_fn decode;
    qn_block_encode_fn encode;
    int run_time_encode; /* 1: cpy, set_rows and friends may write this type; 0: only offline quantisation does */
    /* The encoder for offline quantisation where a longer search finds codes with less error than `encode`, whose bytes
     * the format fixes, or where weights are heard; NULL: the same as encode. */
    qn_block_weigh_fn encode_best;
} qn_block_codec;

/* The codec of a block dtype, NULL for any other dtype. */
const qn_block_codec *qn_tensor_block_codec(qn_dtype dtype);

/* The codec's encoder of least error. Weights are not heard by types whose codes follow from a fixed rule. */
static inline void qn_tensor_block_encode(const qn_block_codec *codec, const float *src, const float *weights, int64_t n_blocks,
                                          uint8_t *dst) {
    if (codec->encode_best) codec->encode_best(src, weights, n_blocks, dst);
    else codec->encode(src, n_blocks, dst);
}

#endif
