/* The dtype table and its look-ups. */
#include "tensor/dtype.h"

#define QN_DTYPE(enumerator, name, kind, block, bytes, gguf, safetensors, onnx) \
    {name, QN_KIND_##kind, block, bytes, gguf, safetensors, onnx},
const qn_dtype_info qn_tensor_dtypes[QN_DTYPE_COUNT] = {
    {"none", QN_KIND_FLOAT, 1, 0, -1, NULL, 0},
#include <quern/dtypes.def>
};
#undef QN_DTYPE

const qn_dtype_info *qn_dtype_describe(qn_dtype dtype) {
    return dtype > QN_DTYPE_NONE && dtype < QN_DTYPE_COUNT ? &qn_tensor_dtypes[dtype] : NULL;
}

qn_dtype qn_dtype_from_name(const char *name) {
    for (int d = 1; name && d < QN_DTYPE_COUNT; d++)
        if (strcmp(qn_tensor_dtypes[d].name, name) == 0) return (qn_dtype)d;
    return QN_DTYPE_NONE;
}

qn_dtype qn_dtype_from_gguf(uint32_t id) {
    for (int d = 1; d < QN_DTYPE_COUNT; d++)
        if (qn_tensor_dtypes[d].gguf >= 0 && (uint32_t)qn_tensor_dtypes[d].gguf == id) return (qn_dtype)d;
    return QN_DTYPE_NONE;
}
