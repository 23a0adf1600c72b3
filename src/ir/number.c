/* Exact numbers. Floats are tried with more and more digits until they read back as the same bits. */
#include "ir/number.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/decimal.h"
#include "tensor/dtype.h"
#include "tensor/half.h"

int qn_ir_number_is(qn_dtype dtype) {
    const qn_dtype_info *info = qn_dtype_describe(dtype);
    return info && info->kind != QN_KIND_BLOCK && info->kind != QN_KIND_COMPLEX;
}

static int is_float(qn_dtype dtype) { return dtype >= QN_DTYPE_F64 && dtype <= QN_DTYPE_BF16; }

/* Decimal digits with at most one point and one exponent, nothing else: the C library would also take hexadecimal and words. */
static int is_decimal(const char *text, size_t n) {
    size_t i = 0, digits = 0;
    if (i < n && (text[i] == '-' || text[i] == '+')) i++;
    for (; i < n && text[i] >= '0' && text[i] <= '9'; i++) digits++;
    if (i < n && text[i] == '.') i++;
    for (; i < n && text[i] >= '0' && text[i] <= '9'; i++) digits++;
    if (!digits) return 0;
    if (i < n && (text[i] == 'e' || text[i] == 'E')) {
        i++;
        if (i < n && (text[i] == '-' || text[i] == '+')) i++;
        if (i == n) return 0;
        for (; i < n && text[i] >= '0' && text[i] <= '9'; i++) {}
    }
    return i == n;
}

static void store_float(qn_dtype dtype, double wide, float narrow, void *element) {
    uint16_t half = dtype == QN_DTYPE_F16 ? qn_f64_to_f16(wide) : qn_f64_to_bf16(wide);
    if (dtype == QN_DTYPE_F64) memcpy(element, &wide, sizeof wide);
    else if (dtype == QN_DTYPE_F32) memcpy(element, &narrow, sizeof narrow);
    else memcpy(element, &half, sizeof half);
}

static double load_float(qn_dtype dtype, const void *element) {
    double wide;
    float narrow;
    uint16_t half;
    if (dtype == QN_DTYPE_F64) return memcpy(&wide, element, sizeof wide), wide;
    if (dtype == QN_DTYPE_F32) return memcpy(&narrow, element, sizeof narrow), (double)narrow;
    memcpy(&half, element, sizeof half);
    return (double)(dtype == QN_DTYPE_F16 ? qn_f16_to_f32(half) : qn_bf16_to_f32(half));
}

static int parse_float(qn_dtype dtype, const char *text, size_t n, void *element) {
    static const struct {
        const char *text;
        double value;
    } words[] = {{"inf", INFINITY}, {"-inf", -INFINITY}, {"nan", NAN}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (n == strlen(words[i].text) && memcmp(text, words[i].text, n) == 0) {
            store_float(dtype, words[i].value, (float)words[i].value, element);
            return 1;
        }
    if (n >= QN_NUMBER_ROOM || !is_decimal(text, n)) return 0;
    store_float(dtype, qn_decimal_read(text, n), qn_decimal_read_f32(text, n), element); /* each rounds once */
    return !isinf(load_float(dtype, element));                                           /* infinity must be written as such */
}

static const int64_t lowest[QN_DTYPE_COUNT] = {
    [QN_DTYPE_I8] = INT8_MIN, [QN_DTYPE_I16] = INT16_MIN, [QN_DTYPE_I32] = INT32_MIN, [QN_DTYPE_I64] = INT64_MIN};
static const int64_t highest[QN_DTYPE_COUNT] = {
    [QN_DTYPE_I8] = INT8_MAX,   [QN_DTYPE_U8] = UINT8_MAX,   [QN_DTYPE_I16] = INT16_MAX, [QN_DTYPE_I32] = INT32_MAX,
    [QN_DTYPE_I64] = INT64_MAX, [QN_DTYPE_U32] = UINT32_MAX, [QN_DTYPE_BOOL] = 1};

static int parse_integer(qn_dtype dtype, const char *text, size_t n, void *element) {
    char copy[24], *end;
    size_t sign = n && text[0] == '-';
    if (n == sign || n >= sizeof copy) return 0;
    for (size_t i = sign; i < n; i++)
        if (text[i] < '0' || text[i] > '9') return 0;
    memcpy(copy, text, n);
    copy[n] = 0;
    errno = 0;
    long long v = strtoll(copy, &end, 10);
    if (errno || v < lowest[dtype] || v > highest[dtype]) return 0;
    int8_t i8 = (int8_t)v;
    uint8_t u8 = (uint8_t)v;
    int16_t i16 = (int16_t)v;
    int32_t i32 = (int32_t)v;
    uint32_t u32 = (uint32_t)v;
    int64_t i64 = v;
    switch (dtype) {
    case QN_DTYPE_I8: memcpy(element, &i8, sizeof i8); break;
    case QN_DTYPE_U8:
    case QN_DTYPE_BOOL: memcpy(element, &u8, sizeof u8); break;
    case QN_DTYPE_I16: memcpy(element, &i16, sizeof i16); break;
    case QN_DTYPE_I32: memcpy(element, &i32, sizeof i32); break;
    case QN_DTYPE_U32: memcpy(element, &u32, sizeof u32); break;
    default: memcpy(element, &i64, sizeof i64); break;
    }
    return 1;
}

int qn_ir_number_parse(qn_dtype dtype, const char *text, size_t n, void *element) {
    if (!qn_ir_number_is(dtype)) return 0;
    return is_float(dtype) ? parse_float(dtype, text, n, element) : parse_integer(dtype, text, n, element);
}

static int format_float(qn_dtype dtype, const void *element, char *text) {
    double v = load_float(dtype, element);
    char back[8];
    size_t bytes = (size_t)qn_dtype_bytes(dtype);
    int whole = v > -1e7 && v < 1e7 && v == (double)(int64_t)v; /* 65504 in f16 is not to read 6.55e+04 */
    for (int digits = whole ? 7 : 1; digits <= 17; digits++) {
        int n = isnan(v) ? snprintf(text, QN_NUMBER_ROOM, "nan") : qn_decimal_print(text, QN_NUMBER_ROOM, 'g', digits, v);
        if (parse_float(dtype, text, (size_t)n, back) && memcmp(back, element, bytes) == 0) return 1;
        if (isnan(v) || isinf(v)) return 0;
    }
    return 0;
}

int qn_ir_number_format(qn_dtype dtype, const void *element, char *text) {
    if (!qn_ir_number_is(dtype)) return 0;
    if (is_float(dtype)) return format_float(dtype, element, text);
    int64_t v = 0;
    uint32_t bytes = (uint32_t)qn_dtype_bytes(dtype);
    for (uint32_t i = 0; i < bytes; i++) v |= (int64_t)((uint64_t)((const unsigned char *)element)[i] << 8 * i);
    if (lowest[dtype] < 0 && bytes < 8 && v > highest[dtype]) v -= (int64_t)1 << 8 * bytes;
    snprintf(text, QN_NUMBER_ROOM, "%lld", (long long)v);
    return v <= highest[dtype];
}
