/* Rows of blocks to and from f32, by vectors, with the bits that the formats' own codecs give. */
#ifndef QN_CPU_K_CODEC_H
#define QN_CPU_K_CODEC_H

#include "cpu/kernel.h"

/* n elements, a whole number of blocks. Types that have no vectors here go through their codec. */
#define qn_codec_decode QN_K(codec_decode)
#define qn_codec_encode QN_K(codec_encode)
void qn_codec_decode(uint32_t dtype, const uint8_t *blocks, int64_t n, float *to);
void qn_codec_encode(uint32_t dtype, const float *from, int64_t n, uint8_t *blocks);

#endif
