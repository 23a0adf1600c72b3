/* Packed values: how many bytes they take, and what they mean. Both work on bytes anybody may have written, so nothing is believed:
 * an array is measured before it is walked, and walked again with every length checked again, because a mapped file can change. */
#include "format/file.h"

#include <math.h>

enum { MOST_NESTED = 8, ARRAY_HEAD = 12, STRING_HEAD = 8 };

uint64_t qn_format_type_bytes(uint32_t type) {
    static const uint8_t bytes[] = {
        [QN_KEY_U8] = 1,  [QN_KEY_I8] = 1,   [QN_KEY_U16] = 2, [QN_KEY_I16] = 2, [QN_KEY_U32] = 4, [QN_KEY_I32] = 4,
        [QN_KEY_F32] = 4, [QN_KEY_BOOL] = 1, [QN_KEY_U64] = 8, [QN_KEY_I64] = 8, [QN_KEY_F64] = 8};
    return type < sizeof bytes ? bytes[type] : 0;
}

static uint64_t fail(qn_format_fault *fault, const char *why, uint64_t at, uint64_t claimed, uint64_t left) {
    *fault = (qn_format_fault){why, at, claimed, left};
    return 0;
}

static uint64_t measure(uint32_t type, const uint8_t *at, uint64_t room, int depth, qn_format_fault *fault);

static uint64_t measure_fixed(uint32_t type, const uint8_t *at, uint64_t count, uint64_t room, qn_format_fault *fault) {
    uint64_t bytes = qn_format_type_bytes(type);
    if (count > room / bytes) return fail(fault, "more items than the file has bytes for", 0, count, room / bytes);
    for (uint64_t i = 0; type == QN_KEY_BOOL && i < count; i++)
        if (at[i] > 1) return fail(fault, "a bool is neither 0 nor 1", i, at[i], 1);
    return count * bytes;
}

static uint64_t measure_array(const uint8_t *at, uint64_t room, int depth, qn_format_fault *fault) {
    if (room < ARRAY_HEAD) return fail(fault, "the file ends inside an array's head", 0, ARRAY_HEAD, room);
    if (depth == MOST_NESTED) return fail(fault, "arrays are nested too deep", 0, MOST_NESTED + 1, MOST_NESTED);
    uint32_t item = qn_format_u32(at);
    uint64_t count = qn_format_u64(at + 4), pos = ARRAY_HEAD;
    if (qn_format_type_bytes(item)) {
        uint64_t bytes = measure_fixed(item, at + pos, count, room - pos, fault);
        if (!bytes && count) return fault->at += pos, 0;
        return pos + bytes;
    }
    if (item != QN_KEY_STRING && item != QN_KEY_ARRAY) return fail(fault, "the items' type is unknown", 0, item, QN_KEY_F64);
    uint64_t least = item == QN_KEY_STRING ? STRING_HEAD : ARRAY_HEAD;
    if (count > (room - pos) / least)
        return fail(fault, "more items than the file has bytes for", 4, count, (room - pos) / least);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t bytes = measure(item, at + pos, room - pos, depth + 1, fault);
        if (!bytes) return fault->at += pos, 0;
        pos += bytes;
    }
    return pos;
}

static uint64_t measure(uint32_t type, const uint8_t *at, uint64_t room, int depth, qn_format_fault *fault) {
    if (type == QN_KEY_ARRAY) return measure_array(at, room, depth, fault);
    if (type == QN_KEY_STRING) {
        if (room < STRING_HEAD) return fail(fault, "the file ends inside a string's length", 0, STRING_HEAD, room);
        uint64_t length = qn_format_u64(at);
        if (length > room - STRING_HEAD)
            return fail(fault, "a string is longer than the rest of the file", 0, length, room - STRING_HEAD);
        return STRING_HEAD + length;
    }
    if (!qn_format_type_bytes(type)) return fail(fault, "the value's type is unknown", 0, type, QN_KEY_F64);
    return measure_fixed(type, at, 1, room, fault);
}

uint64_t qn_format_value_measure(uint32_t type, const uint8_t *at, uint64_t room, qn_format_fault *fault) {
    return measure(type, at, room, 0, fault);
}

/* ---- Meaning */

static void set_integer(qn_file_value *v, int64_t integer) {
    v->integer = integer;
    v->number = (double)integer;
}

static void set_number(qn_file_value *v, double number) {
    v->number = number;
    if (isnan(number)) v->integer = 0;
    else if (number >= 9223372036854775808.0) v->integer = INT64_MAX;
    else if (number < -9223372036854775808.0) v->integer = INT64_MIN;
    else v->integer = (int64_t)number;
}

static void decode_float(const uint8_t *at, int wide, qn_file_value *v) {
    float narrow;
    double number;
    memcpy(&narrow, at, sizeof narrow);
    if (wide) memcpy(&number, at, sizeof number);
    set_number(v, wide ? number : (double)narrow);
}

void qn_format_value_decode(uint32_t type, const uint8_t *at, uint64_t bytes, qn_file_value *v) {
    memset(v, 0, sizeof *v);
    v->type = (qn_key_type)type;
    switch (type) {
    case QN_KEY_BOOL:
    case QN_KEY_U8: set_integer(v, at[0]); break;
    case QN_KEY_I8: set_integer(v, (int8_t)at[0]); break;
    case QN_KEY_U16: set_integer(v, at[0] | at[1] << 8); break;
    case QN_KEY_I16: set_integer(v, (int16_t)(at[0] | at[1] << 8)); break;
    case QN_KEY_U32: set_integer(v, qn_format_u32(at)); break;
    case QN_KEY_I32: set_integer(v, (int32_t)qn_format_u32(at)); break;
    case QN_KEY_I64: set_integer(v, (int64_t)qn_format_u64(at)); break;
    case QN_KEY_U64:
        set_integer(v, (int64_t)qn_format_u64(at));
        v->number = (double)qn_format_u64(at);
        break;
    case QN_KEY_F32: decode_float(at, 0, v); break;
    case QN_KEY_F64: decode_float(at, 1, v); break;
    case QN_KEY_STRING:
        v->text = (const char *)at + STRING_HEAD;
        v->bytes = bytes - STRING_HEAD;
        break;
    default: /* an array */
        v->item = (qn_key_type)qn_format_u32(at);
        v->count = qn_format_u64(at + 4);
        v->text = (const char *)at + ARRAY_HEAD;
        v->bytes = bytes - ARRAY_HEAD;
    }
}

qn_status qn_file_item(qn_file_value *array, uint64_t number, qn_file_value *item) {
    if (!array || !item || array->type != QN_KEY_ARRAY || number >= array->count) return QN_ARGUMENT;
    const uint8_t *base = (const uint8_t *)array->text;
    uint64_t bytes = qn_format_type_bytes(array->item), pos = 0, from = 0;
    qn_format_fault fault;
    if (bytes) {
        if (number >= array->bytes / bytes) return QN_FORMAT;
        pos = number * bytes;
    } else {
        if (array->cursor[0] <= number && array->cursor[1] <= array->bytes) {
            from = array->cursor[0];
            pos = array->cursor[1];
        }
        for (;; from++, pos += bytes) {
            bytes = qn_format_value_measure(array->item, base + pos, array->bytes - pos, &fault);
            if (!bytes) return QN_FORMAT;
            if (from == number) break;
        }
        array->cursor[0] = number;
        array->cursor[1] = pos;
    }
    qn_format_value_decode(array->item, base + pos, bytes, item);
    item->offset = array->offset + ARRAY_HEAD + pos;
    return QN_OK;
}
