/* The table from dtype to block codec. */
#include "quant.h"

#include <stddef.h>

#include "quant_codecs.h"

#define QN_CODEC_ROW(enumerator, name, run) [QN_DTYPE_##enumerator] = {qn_quant_decode_##name, qn_quant_encode_##name, run, NULL},
#define QN_CODEC_ROW_BEST(enumerator, name, run) \
    [QN_DTYPE_##enumerator] = {qn_quant_decode_##name, qn_quant_encode_##name, run, qn_quant_encode_best_##name},

static const qn_block_codec codecs[QN_DTYPE_COUNT] = {QN_CODECS(QN_CODEC_ROW, QN_CODEC_ROW_BEST)};

const qn_block_codec *qn_tensor_block_codec(qn_dtype dtype) {
    size_t index = (size_t)dtype;
    if (index >= QN_DTYPE_COUNT || codecs[index].decode == NULL) return NULL;
    return &codecs[index];
}
