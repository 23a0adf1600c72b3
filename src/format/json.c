/* The JSON scanner; see json.h. */
#include "format/json.h"

#include "ir/number.h"

enum { VALUE, VALUE_OR_END, KEY, KEY_OR_END, COMMA_OR_END, DONE };

void qn_format_json_begin(qn_json *json, const char *text, uint64_t bytes) {
    memset(json, 0, sizeof *json);
    json->text = text;
    json->bytes = bytes;
    json->expect = VALUE;
}

static qn_json_kind bad(qn_json *json, qn_json_token *token, const char *why) {
    json->why = why;
    token->kind = QN_JSON_BAD;
    return QN_JSON_BAD;
}

static int peek(const qn_json *json) { return json->at < json->bytes ? (unsigned char)json->text[json->at] : -1; }

static void skip_space(qn_json *json) {
    for (int c = peek(json); c == ' ' || c == '\n' || c == '\r' || c == '\t'; c = peek(json)) json->at++;
}

static qn_json_kind done(qn_json *json, qn_json_token *token, qn_json_kind kind) {
    json->expect = json->depth ? COMMA_OR_END : DONE;
    return token->kind = kind;
}

static qn_json_kind scan_string(qn_json *json, qn_json_token *token, qn_json_kind kind) {
    token->at = ++json->at;
    token->escaped = 0;
    for (;; json->at++) {
        int c = peek(json);
        if (c < 0) return bad(json, token, "the text ends inside a string");
        if (c == '"') break;
        if (c < 32) return bad(json, token, "a control character inside a string");
        if (c != '\\') continue;
        token->escaped = 1;
        json->at++;
        if (json->at >= json->bytes) return bad(json, token, "the text ends inside a string");
    }
    token->bytes = json->at++ - token->at;
    return done(json, token, kind);
}

static uint64_t skip_digits(qn_json *json) {
    uint64_t from = json->at;
    for (int c = peek(json); c >= '0' && c <= '9'; c = peek(json)) json->at++;
    return json->at - from;
}

static qn_json_kind scan_number(qn_json *json, qn_json_token *token) {
    token->at = json->at;
    if (peek(json) == '-') json->at++;
    int zero = peek(json) == '0';
    uint64_t whole = skip_digits(json);
    if (!whole || (zero && whole > 1)) return bad(json, token, whole ? "a number with a zero in front" : "a value was expected");
    if (peek(json) == '.') {
        json->at++;
        if (!skip_digits(json)) return bad(json, token, "a number without digits behind its point");
    }
    if (peek(json) == 'e' || peek(json) == 'E') {
        json->at++;
        if (peek(json) == '+' || peek(json) == '-') json->at++;
        if (!skip_digits(json)) return bad(json, token, "a number without digits in its exponent");
    }
    token->bytes = json->at - token->at;
    return done(json, token, QN_JSON_NUMBER);
}

static qn_json_kind scan_word(qn_json *json, qn_json_token *token) {
    static const struct {
        const char *word;
        uint64_t bytes;
        qn_json_kind kind;
    } words[] = {{"true", 4, QN_JSON_TRUE}, {"false", 5, QN_JSON_FALSE}, {"null", 4, QN_JSON_NULL}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (json->bytes - json->at >= words[i].bytes && memcmp(json->text + json->at, words[i].word, words[i].bytes) == 0) {
            token->at = json->at;
            token->bytes = words[i].bytes;
            json->at += words[i].bytes;
            return done(json, token, words[i].kind);
        }
    return bad(json, token, "a value was expected");
}

static qn_json_kind open_list(qn_json *json, qn_json_token *token, int object) {
    if (json->depth == QN_JSON_DEPTH) return bad(json, token, "lists and objects are nested more than 64 deep");
    json->is_object[json->depth++] = (uint8_t)object;
    token->at = json->at++;
    json->expect = object ? KEY_OR_END : VALUE_OR_END;
    return token->kind = object ? QN_JSON_OBJECT : QN_JSON_ARRAY;
}

static qn_json_kind close_list(qn_json *json, qn_json_token *token) {
    int object = json->is_object[--json->depth];
    token->at = json->at++;
    return done(json, token, object ? QN_JSON_OBJECT_END : QN_JSON_ARRAY_END);
}

static qn_json_kind scan_key(qn_json *json, qn_json_token *token) {
    if (peek(json) != '"') return bad(json, token, "a name in quotes was expected");
    if (scan_string(json, token, QN_JSON_KEY) == QN_JSON_BAD) return QN_JSON_BAD;
    skip_space(json);
    if (peek(json) != ':') return bad(json, token, "a colon was expected");
    json->at++;
    json->expect = VALUE;
    return QN_JSON_KEY;
}

qn_json_kind qn_format_json_next(qn_json *json, qn_json_token *token) {
    memset(token, 0, sizeof *token);
    skip_space(json);
    int c = peek(json);
    if (json->expect == DONE) {
        if (c >= 0) return bad(json, token, "text behind the end of the document");
        return token->kind = QN_JSON_END;
    }
    int may_end = json->expect == VALUE_OR_END || json->expect == KEY_OR_END || json->expect == COMMA_OR_END;
    if (may_end && c == (json->is_object[json->depth - 1] ? '}' : ']')) return close_list(json, token);
    if (json->expect == COMMA_OR_END) {
        if (c != ',') return bad(json, token, c < 0 ? "the text ends too early" : "a comma or the end of the list was expected");
        json->at++;
        json->expect = json->is_object[json->depth - 1] ? KEY : VALUE;
        skip_space(json);
        c = peek(json);
    }
    if (c < 0) return bad(json, token, "the text ends too early");
    if (json->expect == KEY || json->expect == KEY_OR_END) return scan_key(json, token);
    if (c == '{' || c == '[') return open_list(json, token, c == '{');
    if (c == '"') return scan_string(json, token, QN_JSON_STRING);
    if (c == '-' || (c >= '0' && c <= '9')) return scan_number(json, token);
    return scan_word(json, token);
}

qn_json_kind qn_format_json_skip(qn_json *json, const qn_json_token *first) {
    if (first->kind != QN_JSON_OBJECT && first->kind != QN_JSON_ARRAY) return first->kind;
    qn_json_token token = *first;
    for (int outer = json->depth - 1; json->depth > outer;)
        if (qn_format_json_next(json, &token) == QN_JSON_BAD) break;
    return token.kind;
}

/* ---- Strings */

/* Four hexadecimal digits; -1 when they are not. */
static int32_t hex4(const char *p, const char *end) {
    int32_t v = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int c = (unsigned char)p[i], digit = c >= '0' && c <= '9'                 ? c - '0'
                                             : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                                                  : -1;
        if (digit < 0) return -1;
        v = v * 16 + digit;
    }
    return v;
}

static char *put_utf8(char *out, uint32_t c) {
    if (c < 0x80) {
        *out++ = (char)c;
    } else if (c < 0x800) {
        *out++ = (char)(0xc0 | c >> 6);
        *out++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *out++ = (char)(0xe0 | c >> 12);
        *out++ = (char)(0x80 | (c >> 6 & 63));
        *out++ = (char)(0x80 | (c & 63));
    } else {
        *out++ = (char)(0xf0 | c >> 18);
        *out++ = (char)(0x80 | (c >> 12 & 63));
        *out++ = (char)(0x80 | (c >> 6 & 63));
        *out++ = (char)(0x80 | (c & 63));
    }
    return out;
}

/* Behind a backslash; NULL when it is no escape. A pair of surrogates is one character, a lone one is none. */
static const char *unescape(const char *p, const char *end, char **out) {
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (p == end) return NULL;
    if (*p != 'u') {
        const char *at = memchr(names, *p, sizeof names - 1);
        if (!at) return NULL;
        *(*out)++ = values[at - names];
        return p + 1;
    }
    int32_t high = hex4(p + 1, end), low;
    if (high < 0 || (high >= 0xdc00 && high < 0xe000)) return NULL;
    p += 5;
    if (high >= 0xd800 && high < 0xdc00) {
        if (end - p < 6 || p[0] != '\\' || p[1] != 'u') return NULL;
        low = hex4(p + 2, end);
        if (low < 0xdc00 || low >= 0xe000) return NULL;
        high = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
        p += 6;
    }
    *out = put_utf8(*out, (uint32_t)high);
    return p;
}

/* Length of the UTF-8 sequence at p, 0 when it is none: too short, too long for its character, a surrogate, past U+10FFFF. */
static int utf8_length(const unsigned char *p, const unsigned char *end) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    int n = p[0] < 0x80                   ? 1
            : p[0] >= 0xc2 && p[0] < 0xe0 ? 2
            : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
            : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
                                          : 0;
    if (!n || end - p < n) return 0;
    uint32_t c = n == 1 ? p[0] : p[0] & (0xffu >> (n + 1));
    for (int i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (p[i] & 63u);
    }
    return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : n;
}

int64_t qn_format_json_text(const qn_json *json, const qn_json_token *token, char *out) {
    const char *p = json->text + token->at, *end = p + token->bytes;
    char *to = out;
    while (p < end) {
        if (*p == '\\') {
            p = unescape(p + 1, end, &to);
            if (!p) return -1;
            continue;
        }
        int n = utf8_length((const unsigned char *)p, (const unsigned char *)end);
        if (!n) return -1;
        memcpy(to, p, (size_t)n);
        p += n;
        to += n;
    }
    return to - out;
}

int qn_format_json_number(const qn_json *json, const qn_json_token *token, int64_t *integer, double *number) {
    const char *p = json->text + token->at;
    if (qn_ir_number_parse(QN_DTYPE_I64, p, (size_t)token->bytes, integer)) return 1;
    return qn_ir_number_parse(QN_DTYPE_F64, p, (size_t)token->bytes, number) ? 2 : 0;
}
