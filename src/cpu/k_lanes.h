/* Rows of f32, f16 or bf16 as vectors of f32. A body that takes its dtypes as arguments and is always inlined becomes one loop per
 * dtype where QN_BY_FLOAT calls it with constants. */
#ifndef QN_CPU_K_LANES_H
#define QN_CPU_K_LANES_H

#include "cpu/kernel.h"

#define QN_INLINE static inline __attribute__((always_inline))

/* VF_N elements of a row from element i on. */
QN_INLINE vf qn_lanes(uint32_t dtype, const char *row, int64_t i) {
    if (dtype == QN_DTYPE_F32) return vf_load((const float *)(const void *)row + i);
    const uint16_t *p = (const uint16_t *)(const void *)row + i;
    return dtype == QN_DTYPE_F16 ? vf_load_h(p) : vf_load_b(p);
}
/* The first n of them, zero beyond. */
QN_INLINE vf qn_lanes_some(uint32_t dtype, const char *row, int64_t i, int n) {
    if (dtype == QN_DTYPE_F32) return vf_loadn((const float *)(const void *)row + i, n);
    const uint16_t *p = (const uint16_t *)(const void *)row + i;
    return dtype == QN_DTYPE_F16 ? vf_load_hn(p, n) : vf_load_bn(p, n);
}
QN_INLINE void qn_lanes_put(uint32_t dtype, char *row, int64_t i, vf v) {
    uint16_t *p = (uint16_t *)(void *)row + i;
    if (dtype == QN_DTYPE_F32) vf_store((float *)(void *)row + i, v);
    else if (dtype == QN_DTYPE_F16) vf_store_h(p, v);
    else vf_store_b(p, v);
}
QN_INLINE void qn_lanes_put_some(uint32_t dtype, char *row, int64_t i, vf v, int n) {
    uint16_t *p = (uint16_t *)(void *)row + i;
    if (dtype == QN_DTYPE_F32) vf_storen((float *)(void *)row + i, v, n);
    else if (dtype == QN_DTYPE_F16) vf_store_hn(p, v, n);
    else vf_store_bn(p, v, n);
}
/* Up to VF_N elements, as many as the row of n still has. */
QN_INLINE vf qn_lanes_at(uint32_t dtype, const char *row, int64_t i, int64_t n) {
    return n - i >= VF_N ? qn_lanes(dtype, row, i) : qn_lanes_some(dtype, row, i, (int)(n - i));
}
QN_INLINE void qn_lanes_put_at(uint32_t dtype, char *row, int64_t i, vf v, int64_t n) {
    if (n - i >= VF_N) qn_lanes_put(dtype, row, i, v);
    else qn_lanes_put_some(dtype, row, i, v, (int)(n - i));
}

/* CALL(constant) for the dtype at hand, which is one of the three. */
#define QN_BY_FLOAT(dtype, CALL)                              \
    do {                                                      \
        if ((dtype) == QN_DTYPE_F32) CALL(QN_DTYPE_F32);      \
        else if ((dtype) == QN_DTYPE_F16) CALL(QN_DTYPE_F16); \
        else CALL(QN_DTYPE_BF16);                             \
    } while (0)

static inline int qn_lanes_float(uint32_t dtype) {
    return dtype == QN_DTYPE_F32 || dtype == QN_DTYPE_F16 || dtype == QN_DTYPE_BF16;
}
/* A float tensor whose rows lie side by side. */
static inline int qn_lanes_rows(const qn_tensor *t) {
    return qn_lanes_float(t->dtype) && (qn_ne(t, 0) == 1 || qn_nb(t, 0) == qn_float_bytes(t->dtype));
}

#endif
