/* Elements of plain dtypes as doubles and back, as references convert them. */
#include "cpu/k_typed.h"

#include <math.h>

#include "cpu/k_lanes.h"
#include "cpu/simd/simd_wide.h"

#define LOAD(type, expression)                                            \
    do {                                                                  \
        const type *p = (const type *)(const void *)x;                    \
        QN_TYPED_EACH                                                     \
        for (int64_t i = 0; i < n; i++) y[i] = (double)(p[i] expression); \
    } while (0)

QN_INLINE void load_halves(uint32_t dtype, const char *x, int64_t n, double *y) {
    int64_t i = 0;
    for (; i + VF_N <= n; i += VF_N) {
        vf v = qn_lanes(dtype, x, i);
        vd_store(y + i, vd_low(v));
        vd_store(y + i + VF_N / 2, vd_high(v));
    }
    for (; i < n; i++) {
        uint16_t half;
        memcpy(&half, x + i * 2, 2);
        y[i] = (double)(dtype == QN_DTYPE_F16 ? qn_f16_to_f32(half) : qn_bf16_to_f32(half));
    }
}

/* 64-bit integers rounded to odd: where a double cannot hold one, the nearer of its neighbours whose last bit is set, which no tie and no
 * shorter number has, so two roundings are one. The two halves are doubles, and what their sum loses is one as well. */
static void load_odd(const char *x, int64_t n, double *y) {
    const int64_t *p = (const int64_t *)(const void *)x;
    QN_TYPED_EACH
    for (int64_t i = 0; i < n; i++) {
        double high = (double)(int32_t)(p[i] >> 32) * 4294967296.0, low = (double)(uint32_t)p[i];
        double sum = high + low, lost = low - (sum - high);
        int64_t bits, past = (lost < 0) != (sum < 0); /* the sum was rounded away from zero */
        memcpy(&bits, &sum, sizeof bits);
        bits = lost != 0 ? (bits - past) | 1 : bits;
        memcpy(y + i, &bits, sizeof bits);
    }
}

void qn_typed_load(uint32_t dtype, const char *x, int64_t n, double *y, int odd) {
    switch (dtype) {
    case QN_DTYPE_F64: memcpy(y, x, (size_t)n * sizeof *y); return;
    case QN_DTYPE_F32: LOAD(float, ); return;
    case QN_DTYPE_F16: load_halves(QN_DTYPE_F16, x, n, y); return;
    case QN_DTYPE_BF16: load_halves(QN_DTYPE_BF16, x, n, y); return;
    case QN_DTYPE_I8: LOAD(int8_t, ); return;
    case QN_DTYPE_U8: LOAD(uint8_t, ); return;
    case QN_DTYPE_I16: LOAD(int16_t, ); return;
    case QN_DTYPE_I32: LOAD(int32_t, ); return;
    case QN_DTYPE_U32: LOAD(uint32_t, ); return;
    case QN_DTYPE_BOOL: LOAD(uint8_t, != 0); return;
    default: /* I64 */
        if (odd) load_odd(x, n, y);
        else LOAD(int64_t, );
    }
}

#define STORE(type, expression)                                    \
    do {                                                           \
        type *p = (type *)(void *)y;                               \
        QN_TYPED_EACH                                              \
        for (int64_t i = 0; i < n; i++) p[i] = (type)(expression); \
    } while (0)

/* The limits are doubles, and NaN is in no order. */
#define LIMITED(low, high) (x[i] != x[i] ? 0.0 : x[i] < (low) ? (low) : x[i] > (high) ? (high) : x[i])
/* Of 64 bits the highest is no double: the first double past it stands for all beyond. */
static int64_t limited64(double v) {
    return v != v ? 0 : v >= 9223372036854775808.0 ? INT64_MAX : v <= -9223372036854775808.0 ? INT64_MIN : (int64_t)v;
}

QN_INLINE void store_halves(uint32_t dtype, const double *x, int64_t n, char *y) {
    int64_t i = 0;
    for (; i + VF_N <= n; i += VF_N)
        qn_lanes_put(dtype, y, i, vf_of_wide(vd_to_odd(vd_load(x + i)), vd_to_odd(vd_load(x + i + VF_N / 2))));
    for (; i < n; i++) {
        uint16_t half = dtype == QN_DTYPE_F16 ? qn_f64_to_f16(x[i]) : qn_f64_to_bf16(x[i]);
        memcpy(y + i * 2, &half, 2);
    }
}

void qn_typed_store(uint32_t dtype, const double *x, int64_t n, char *y) {
    switch (dtype) {
    case QN_DTYPE_F64: memcpy(y, x, (size_t)n * sizeof *x); return;
    case QN_DTYPE_F32: STORE(float, x[i]); return;
    case QN_DTYPE_F16: store_halves(QN_DTYPE_F16, x, n, y); return;
    case QN_DTYPE_BF16: store_halves(QN_DTYPE_BF16, x, n, y); return;
    case QN_DTYPE_I8: STORE(int8_t, (int32_t)LIMITED(-128.0, 127.0)); return;
    case QN_DTYPE_U8: STORE(uint8_t, (int32_t)LIMITED(0.0, 255.0)); return;
    case QN_DTYPE_I16: STORE(int16_t, (int32_t)LIMITED(-32768.0, 32767.0)); return;
    case QN_DTYPE_I32: STORE(int32_t, LIMITED(-2147483648.0, 2147483647.0)); return;
    case QN_DTYPE_U32: STORE(uint32_t, (int64_t)LIMITED(0.0, 4294967295.0)); return;
    case QN_DTYPE_BOOL: STORE(uint8_t, x[i] != 0); return;
    default: STORE(int64_t, limited64(x[i]));
    }
}
