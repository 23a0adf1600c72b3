/* Reading JSON into a tree; see json_dom.h. */
#include "text/json_dom.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/decimal.h"
#include "text/utf8.h"

enum { MOST_NUMBER = 400 };

typedef struct reader {
    qn_arena *arena;
    const char *begin, *at, *end;
    int depth;
    qn_error *error;
} reader;

static qn_status fault(reader *r, const char *why) {
    return qn_error_set(r->error, QN_INVALID, "JSON, byte %zu: %s", (size_t)(r->at - r->begin), why);
}

static qn_status no_memory(reader *r) { return qn_error_set(r->error, QN_NO_MEMORY, "no memory for the JSON document"); }

static int peek(const reader *r) { return r->at < r->end ? (unsigned char)*r->at : -1; }

static void skip(reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) r->at++;
}

static int read_hex4(reader *r, uint32_t *code) {
    *code = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        int c = peek(r), value = c >= '0' && c <= '9'                     ? c - '0'
                                 : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                                          : -1;
        if (c < 0 || value < 0) return 0;
        *code = *code << 4 | (uint32_t)value;
    }
    return 1;
}

/* Behind the backslash. A surrogate without its partner becomes U+FFFD. */
static qn_status read_escape(reader *r, char **out) {
    static const char PLAIN[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
    int kind = peek(r);
    r->at++;
    if (kind == 'u') {
        uint32_t code, low;
        if (!read_hex4(r, &code)) return fault(r, "\\u wants four hexadecimal digits");
        if (code >= 0xD800 && code < 0xDC00 && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u') {
            const char *back = r->at;
            r->at += 2;
            if (!read_hex4(r, &low)) return fault(r, "\\u wants four hexadecimal digits");
            if (low >= 0xDC00 && low < 0xE000) code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            else r->at = back;
        }
        if (code >= 0xD800 && code < 0xE000) code = 0xFFFD;
        *out += qn_text_utf8_write(code, *out);
        return QN_OK;
    }
    for (size_t i = 0; i + 1 < sizeof PLAIN; i += 2) {
        if (kind == PLAIN[i]) {
            *(*out)++ = PLAIN[i + 1];
            return QN_OK;
        }
    }
    r->at--;
    return fault(r, "an escape that is not known");
}

static qn_status read_string(reader *r, qn_text *text) {
    const char *from = ++r->at, *close = from;
    while (close < r->end && *close != '"') close += 1 + (*close == '\\');
    if (close >= r->end) return fault(r, "a string without its end");
    char *bytes = qn_arena_alloc(r->arena, (size_t)(close - from) + 4, 1), *out = bytes;
    if (!bytes) return no_memory(r);
    while (r->at < close) {
        uint32_t code;
        if (*r->at == '\\') {
            r->at++;
            qn_status status = read_escape(r, &out);
            if (status != QN_OK) return status;
            continue;
        }
        size_t n = qn_text_utf8_read(r->at, (size_t)(close - r->at), &code);
        if (!n || code < 0x20) return fault(r, n ? "a control character in a string" : "bytes that are no UTF-8");
        memcpy(out, r->at, n);
        out += n;
        r->at += n;
    }
    if (r->at != close) return fault(r, "a string without its end"); /* its last escape ran over the quote */
    r->at++;
    *text = (qn_text){bytes, (size_t)(out - bytes)};
    return QN_OK;
}

static void digits(reader *r) {
    while (peek(r) >= '0' && peek(r) <= '9') r->at++;
}

static qn_status read_number(reader *r, json_node *node) {
    const char *from = r->at, *start = from + (*from == '-');
    r->at = start;
    digits(r);
    if (r->at == start || (*start == '0' && r->at - start > 1)) return fault(r, "a number that is none");
    node->kind = JSON_INT;
    if (peek(r) == '.') {
        const char *dot = ++r->at;
        node->kind = JSON_FLOAT;
        digits(r);
        if (r->at == dot) return fault(r, "a number that ends in its point");
    }
    if (peek(r) == 'e' || peek(r) == 'E') {
        node->kind = JSON_FLOAT;
        r->at++;
        if (peek(r) == '+' || peek(r) == '-') r->at++;
        const char *exponent = r->at;
        digits(r);
        if (r->at == exponent) return fault(r, "a number without its exponent");
    }
    if (r->at - from > MOST_NUMBER) return fault(r, "a number of more than 400 characters");
    node->number = qn_decimal_read(from, (size_t)(r->at - from));
    for (const char *p = start; node->kind == JSON_INT && p < r->at; p++) {
        int64_t digit = *from == '-' ? -(*p - '0') : *p - '0';
        if (__builtin_mul_overflow(node->integer, 10, &node->integer) ||
            __builtin_add_overflow(node->integer, digit, &node->integer))
            node->kind = JSON_FLOAT, node->text = (qn_text){from, (size_t)(r->at - from)}; /* beyond 64 bits */
    }
    return QN_OK;
}

static qn_status read_value(reader *r, json_node *node);

static qn_status read_items(reader *r, json_node *list, int is_object) {
    json_node **last = &list->first;
    int close = is_object ? '}' : ']';
    r->at++;
    skip(r);
    if (peek(r) == close) {
        r->at++;
        return QN_OK;
    }
    for (;;) {
        json_node *item = qn_arena_alloc(r->arena, 1, sizeof *item);
        if (!item) return no_memory(r);
        if (is_object) {
            if (peek(r) != '"') return fault(r, "a member starts with its name in quotes");
            qn_status status = read_string(r, &item->key);
            if (status != QN_OK) return status;
            skip(r);
            if (peek(r) != ':') return fault(r, "':' is missing behind the name of a member");
            r->at++;
            skip(r);
        }
        qn_status status = read_value(r, item);
        if (status != QN_OK) return status;
        *last = item;
        last = &item->next;
        list->n++;
        skip(r);
        if (peek(r) == close) break;
        if (peek(r) != ',') return fault(r, is_object ? "',' or '}' is missing" : "',' or ']' is missing");
        r->at++;
        skip(r);
    }
    r->at++;
    return QN_OK;
}

static int word(reader *r, const char *name) {
    size_t n = strlen(name);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, name, n) != 0) return 0;
    r->at += n;
    return 1;
}

static qn_status read_value(reader *r, json_node *node) {
    int c = peek(r);
    if (c == '"') {
        node->kind = JSON_STRING;
        return read_string(r, &node->text);
    }
    if (c == '{' || c == '[') {
        if (++r->depth > JSON_MOST_DEPTH) return fault(r, "lists and objects are nested too deeply");
        node->kind = c == '{' ? JSON_OBJECT : JSON_LIST;
        qn_status status = read_items(r, node, c == '{');
        r->depth--;
        return status;
    }
    if (c == '-' || (c >= '0' && c <= '9')) return read_number(r, node);
    node->kind = JSON_BOOL;
    if (word(r, "true")) node->integer = 1;
    else if (!word(r, "false")) {
        node->kind = JSON_NULL;
        if (!word(r, "null")) return fault(r, c < 0 ? "a value is missing" : "nothing that starts a value");
    }
    node->number = (double)node->integer;
    return QN_OK;
}

qn_status qn_text_json_parse(qn_arena *arena, qn_text text, json_node **root, qn_error *error) {
    reader r = {arena, text.at, text.at, text.at + text.length, 0, error};
    *root = qn_arena_alloc(arena, 1, sizeof **root);
    if (!*root) return no_memory(&r);
    skip(&r);
    qn_status status = read_value(&r, *root);
    if (status != QN_OK) return status;
    skip(&r);
    return r.at < r.end ? fault(&r, "something follows the document") : QN_OK;
}

int qn_text_json_is(qn_text text, const char *name) {
    size_t n = strlen(name);
    return text.length == n && memcmp(text.at, name, n) == 0;
}

const json_node *qn_text_json_get(const json_node *object, const char *key) {
    const json_node *found = NULL;
    if (!object || object->kind != JSON_OBJECT) return NULL;
    for (const json_node *m = object->first; m; m = m->next)
        if (qn_text_json_is(m->key, key)) found = m;
    return found;
}

size_t qn_text_number_print(double number, char out[32]) {
    int precision = 1, n;
    if (number != number || number - number != 0)
        return (size_t)snprintf(out, 32, "%s", number != number ? "NaN" : number > 0 ? "Infinity" : "-Infinity");
    do n = qn_decimal_print(out, 32, 'e', precision - 1, number);
    while (qn_decimal_read(out, (size_t)n) != number && ++precision <= 17);
    int exponent = atoi(strchr(out, 'e') + 1), places = precision - 1 - exponent;
    if (exponent >= -4 && exponent < 16) n = qn_decimal_print(out, 32, 'f', places > 1 ? places : 1, number);
    return (size_t)n;
}
