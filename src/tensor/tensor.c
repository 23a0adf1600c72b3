/* Making dense tensors and asking simple things of any. */
#include "tensor/dtype.h"
#include "tensor/layout.h"

qn_status qn_tensor_bytes(qn_dtype dtype, int rank, const int64_t *shape, uint64_t *bytes) {
    const qn_dtype_info *d = qn_dtype_describe(dtype);
    if (!d || rank < 1 || rank > QN_MAX_RANK || !shape || !bytes) return QN_INVALID;
    if (shape[rank - 1] % d->block) return QN_INVALID;
    int64_t total = d->bytes, zero = 0;
    for (int i = 0; i < rank; i++) {
        int64_t n = i == rank - 1 ? shape[i] / d->block : shape[i];
        if (n < 0) return QN_INVALID;
        if (n == 0) zero = 1;
        else if (__builtin_mul_overflow(total, n, &total)) return QN_INVALID;
    }
    *bytes = zero ? 0 : (uint64_t)total;
    return QN_OK;
}

qn_status qn_tensor_init(qn_tensor *t, qn_dtype dtype, int rank, const int64_t *shape, void *data, uint64_t size) {
    uint64_t bytes;
    if (!t || qn_tensor_bytes(dtype, rank, shape, &bytes) != QN_OK) return QN_INVALID;
    if (data && bytes > size) return QN_INVALID;
    memset(t, 0, sizeof *t);
    t->data = data;
    t->size = size;
    t->dtype = dtype;
    t->rank = rank;
    const qn_dtype_info *d = qn_dtype_describe(dtype);
    int64_t step = d->bytes;
    for (int i = rank - 1; i >= 0; i--) {
        int64_t n = i == rank - 1 ? shape[i] / d->block : shape[i];
        t->shape[i] = shape[i];
        t->stride[i] = step;
        step *= n ? n : 1;
    }
    return QN_OK;
}

int64_t qn_tensor_count(const qn_tensor *t) {
    if (!t || t->rank < 1 || t->rank > QN_MAX_RANK) return -1;
    int64_t n = 1, zero = 0;
    for (int i = 0; i < t->rank; i++) {
        if (t->shape[i] < 0) return -1;
        if (t->shape[i] == 0) zero = 1;
        else if (__builtin_mul_overflow(n, t->shape[i], &n)) return -1;
    }
    return zero ? 0 : n;
}

int qn_tensor_is_contiguous(const qn_tensor *t) {
    if (!t || t->dtype == QN_DTYPE_NONE || t->dtype >= QN_DTYPE_COUNT || t->rank < 1 || t->rank > QN_MAX_RANK) return 0;
    const qn_dtype_info *d = &qn_tensor_dtypes[t->dtype];
    int64_t step = d->bytes;
    for (int i = t->rank - 1; i >= 0; i--) {
        int64_t n = d->block != 1 && i == t->rank - 1 ? t->shape[i] / d->block
                                                      : t->shape[i]; /* a division only where it must be */
        if (n < 1) return n == 0 && qn_tensor_count(t) >= 0;
        if ((n != 1 && t->stride[i] != step) || __builtin_mul_overflow(step, n, &step)) return 0;
    }
    return 1;
}
