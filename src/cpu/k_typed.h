/* Loops over elements of every plain dtype, which compilers make vectors of: they are compiled once per level. */
#ifndef QN_CPU_K_TYPED_H
#define QN_CPU_K_TYPED_H

#include "cpu/kernel.h"

/* X(dtype, C type, what its values are computed in) */
#define QN_TYPED_NARROW(X)   \
    X(I8, int8_t, int32_t)   \
    X(U8, uint8_t, int32_t)  \
    X(I16, int16_t, int32_t) \
    X(I32, int32_t, int64_t) \
    X(U32, uint32_t, int64_t)
#define QN_TYPED_NUMBERS(X) X(F64, double, double) QN_TYPED_NARROW(X) X(I64, int64_t, int64_t)

#define QN_LOW_I8 INT8_MIN
#define QN_LOW_U8 0
#define QN_LOW_I16 INT16_MIN
#define QN_LOW_I32 INT32_MIN
#define QN_LOW_I64 INT64_MIN
#define QN_LOW_U32 0
#define QN_HIGH_I8 INT8_MAX
#define QN_HIGH_U8 UINT8_MAX
#define QN_HIGH_I16 INT16_MAX
#define QN_HIGH_I32 INT32_MAX
#define QN_HIGH_I64 INT64_MAX
#define QN_HIGH_U32 UINT32_MAX
static inline int64_t qn_limited(int64_t v, int64_t low, int64_t high) { return v < low ? low : v > high ? high : v; }

/* X(name, what it is of a and b, and what X was given): comparisons, and what arithmetic is of floats */
#define QN_TYPED_COMPARISONS(X, ...) \
    X(eq, a == b, __VA_ARGS__)       \
    X(ne, a != b, __VA_ARGS__)       \
    X(lt, a < b, __VA_ARGS__)        \
    X(le, a <= b, __VA_ARGS__)       \
    X(gt, a > b, __VA_ARGS__)        \
    X(ge, a >= b, __VA_ARGS__)
#define QN_TYPED_FLOAT_ARITH(X, ...)                   \
    X(add, a + b, __VA_ARGS__)                         \
    X(sub, a - b, __VA_ARGS__)                         \
    X(mul, a *b, __VA_ARGS__)                          \
    X(div, a / b, __VA_ARGS__)                         \
    X(max, ((a != a) | (a >= b)) ? a : b, __VA_ARGS__) \
    X(min, ((a != a) | (a <= b)) ? a : b, __VA_ARGS__)

/* Before a loop of which no turn needs what another writes: a destination is a source, element by element, or lies elsewhere. */
#if defined(__clang__)
#pragma clang diagnostic ignored \
    "-Wpass-failed" /* of some dtypes and functions there is no vector form, which is not to be warned of */
#define QN_TYPED_EACH _Pragma("clang loop vectorize(assume_safety)")
#else
#define QN_TYPED_EACH _Pragma("GCC ivdep")
#endif

/* n neighbouring elements of a plain dtype as doubles, and back: rounded once, into integers truncated and saturated, NaN giving 0. Of
 * 64-bit integers `odd` asks for what rounds to a shorter float as the integer itself would. No complex numbers. */
#define qn_typed_load QN_K(typed_load)
void qn_typed_load(uint32_t dtype, const char *x, int64_t n, double *y, int odd);
#define qn_typed_store QN_K(typed_store)
void qn_typed_store(uint32_t dtype, const double *x, int64_t n, char *y);
static inline int qn_typed_can(uint32_t dtype) { return dtype >= QN_DTYPE_F64 && dtype <= QN_DTYPE_BOOL; }

#endif
