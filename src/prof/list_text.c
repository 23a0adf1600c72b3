/* text(v) of arrays and objects: the JSON tokens in order, each in the reference's own spelling. The nesting needs no stack,
 * because brackets translate to themselves. */
#include "prof/prof_text.h"

#include <string.h>

typedef struct shown { /* output under construction */
    qn_arena *arena;
    QN_VEC(char) out;
    int failed;
} shown;

static void put(shown *s, const char *bytes, size_t length) {
    if (s->failed || !QN_VEC_ROOM(s->arena, &s->out, length)) {
        s->failed = 1;
        return;
    }
    for (size_t i = 0; i < length; i++) { /* a few bytes at a time */
        s->out.at[s->out.n++] = bytes[i];
    }
}

/* A character inside quotes: the reference escapes the quote in use, backslashes and control characters. */
static void put_quoted(shown *s, char c, char quote) {
    static const char HEX[] = "0123456789abcdef";
    char text[4] = {'\\', c, 0, 0};
    unsigned char u = (unsigned char)c;
    if (c == quote || c == '\\') {
        put(s, text, 2);
    } else if (c == '\n' || c == '\r' || c == '\t') {
        text[1] = c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
        put(s, text, 2);
    } else if (u < 0x20 || u == 0x7f) {
        text[1] = 'x';
        text[2] = HEX[u >> 4];
        text[3] = HEX[u & 15];
        put(s, text, 4);
    } else {
        put(s, &c, 1);
    }
}

static size_t put_string(shown *s, const char *json, size_t length) {
    size_t end = 1;
    while (end < length && json[end] != '"') {
        end += json[end] == '\\' ? 2 : 1;
    }
    char *plain = qn_arena_resize(s->arena, NULL, end + 1, 3);
    if (!plain) {
        s->failed = 1;
        return end + 1;
    }
    size_t n = qn_prof_unescape(json + 1, end - 1, plain);
    char quote = memchr(plain, '\'', n) && !memchr(plain, '"', n) ? '"' : '\'';
    put(s, &quote, 1);
    for (size_t i = 0; i < n; i++) {
        put_quoted(s, plain[i], quote);
    }
    put(s, &quote, 1);
    qn_arena_release(s->arena, plain);
    return end + 1;
}

static size_t put_word(shown *s, const char *json, size_t length) {
    size_t n = 0;
    while (n < length && !memchr(" \t\r\n,]}:", json[n], 8)) {
        n++;
    }
    char digits[PROF_NUM_TEXT];
    if (json[0] == 'n' && n == 4) {
        put(s, "None", 4);
    } else if (json[0] == 't') {
        put(s, "True", 4);
    } else if (json[0] == 'f') {
        put(s, "False", 5);
    } else if (json[0] == 'N' && n > 1 && json[1] == '/') {
        put(s, "'N/A'", 5);
    } else if (json[n - 1] == 'y') {
        put(s, json[0] == '-' ? "-inf" : "inf", json[0] == '-' ? 4 : 3);
    } else if (json[0] == 'N' || json[n - 1] == 'n') {
        put(s, "nan", 3);
    } else if (json[n - 1] == 'f') {
        put(s, json[0] == '-' ? "-inf" : "inf", json[0] == '-' ? 4 : 3);
    } else if (memchr(json, '.', n) || memchr(json, 'e', n) || memchr(json, 'E', n)) {
        int negative = json[0] == '-';
        double value = qn_prof_dbl_read(json + negative, (int64_t)n - negative);
        put(s, digits, (size_t)qn_prof_dbl_text(negative ? -value : value, digits));
    } else {
        int minus_zero = n == 2 && json[0] == '-' && json[1] == '0';
        put(s, json + minus_zero, n - (size_t)minus_zero);
    }
    return n;
}

uint32_t qn_prof_list_to_text(prof_text *text, const char *json, size_t length) {
    shown s = {text->arena, {NULL, 0, 0}, 0};
    for (size_t i = 0; i < length && !s.failed;) {
        char c = json[i];
        if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
            i++;
        } else if (c == '"') {
            i += put_string(&s, json + i, length - i);
        } else if (c == ',' || c == ':') {
            put(&s, c == ',' ? ", " : ": ", 2);
            i++;
        } else if (c == '[' || c == ']' || c == '{' || c == '}') {
            put(&s, &c, 1);
            i++;
        } else {
            i += put_word(&s, json + i, length - i);
        }
    }
    uint32_t id = s.failed ? PROF_NIL : qn_prof_intern(text, s.out.at ? s.out.at : "", s.out.n);
    qn_arena_release(text->arena, s.out.at);
    return id;
}
