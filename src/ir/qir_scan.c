/* The cursor of the .qir reader: blanks, words, numbers, strings, and errors that say where. */
#include <stdarg.h>
#include <stdio.h>

#include "ir/qir.h"

static void set_error(qir_reader *r, const char *at, qn_status status, const char *sentence) {
    long line = 1;
    const char *line_start = r->start;
    if (r->failed) return;
    r->failed = 1;
    for (const char *c = r->start; c < at; c++) /* once, so nobody need count lines on the way */
        if (*c == '\n') line++, line_start = c + 1;
    qn_error_set(r->error, status, "%ld:%ld: %s", line, (long)(at - line_start) + 1, sentence);
    /* Names of a file from anywhere end up on somebody's terminal: nothing in them may move its cursor. */
    for (char *c = r->error->text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
}

int qn_qir_fail(qir_reader *r, const char *at, const char *format, ...) {
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    set_error(r, at, QN_FORMAT, text);
    return 0;
}

int qn_qir_check_graph(qir_reader *r, const char *at) {
    qn_error error;
    if (qn_graph_error(r->g, &error) == QN_OK) return !r->failed;
    set_error(r, at, error.status, error.text);
    return 0;
}

int qn_qir_no_memory(qir_reader *r) {
    set_error(r, r->at, QN_NO_MEMORY, "no memory, or more than the limit allows");
    return 0;
}

void qn_qir_skip_blanks(qir_reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\r')) r->at++;
}

int qn_qir_at_line_end(qir_reader *r) {
    qn_qir_skip_blanks(r);
    return r->at == r->end || *r->at == '\n' || *r->at == '#';
}

int qn_qir_next_line(qir_reader *r) {
    while (r->at < r->end && *r->at != '\n') r->at++;
    if (r->at == r->end) return 0;
    r->at++;
    return 1;
}

int qn_qir_peek(qir_reader *r) {
    qn_qir_skip_blanks(r);
    return r->at < r->end ? (unsigned char)*r->at : -1;
}

int qn_qir_accept(qir_reader *r, char byte) {
    if (r->failed || qn_qir_peek(r) != (unsigned char)byte) return 0;
    r->at++;
    return 1;
}

/* What stands at the cursor, for a sentence. */
static const char *describe_here(qir_reader *r, char *text, size_t size) {
    int c = qn_qir_peek(r);
    if (qn_qir_at_line_end(r)) snprintf(text, size, "the end of the line");
    else if (c < 0x20 || c >= 0x7f) snprintf(text, size, "byte 0x%02x", (unsigned)c);
    else snprintf(text, size, "'%c'", c);
    return text;
}

int qn_qir_expect(qir_reader *r, char byte, const char *why) {
    char here[40];
    if (qn_qir_accept(r, byte)) return 1;
    return qn_qir_fail(r, r->at, "expected '%c' %s, found %s", byte, why, describe_here(r, here, sizeof here));
}

static int is_digit(char c) { return c >= '0' && c <= '9'; }
static int is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

int qn_qir_word(qir_reader *r, const char *what, qir_span *word) {
    char here[40];
    qn_qir_skip_blanks(r);
    if (r->failed) return 0;
    if (r->at == r->end || !is_letter(*r->at))
        return qn_qir_fail(r, r->at, "expected %s, found %s", what, describe_here(r, here, sizeof here));
    word->at = r->at;
    while (r->at < r->end && (is_letter(*r->at) || is_digit(*r->at))) r->at++;
    word->n = (size_t)(r->at - word->at);
    return 1;
}

int qn_qir_value_name(qir_reader *r, qir_span *name) {
    if (!qn_qir_expect(r, '%', "and a value's name")) return 0;
    name->at = r->at;
    while (r->at < r->end && (is_letter(*r->at) || is_digit(*r->at) || *r->at == '.')) r->at++;
    name->n = (size_t)(r->at - name->at);
    return name->n ? 1 : qn_qir_fail(r, r->at, "a name must follow '%%'");
}

int qn_qir_integer(qir_reader *r, const char *what, int64_t *value) {
    char here[40];
    qn_qir_skip_blanks(r);
    if (r->failed) return 0;
    const char *start = r->at;
    int negative = r->at < r->end && *r->at == '-';
    if (negative) r->at++;
    if (r->at == r->end || !is_digit(*r->at))
        return qn_qir_fail(r, start, "expected %s, found %s", what, describe_here(r, here, sizeof here));
    int64_t v = 0;
    for (; r->at < r->end && is_digit(*r->at); r->at++)
        if (qn_mul_overflow(v, 10, &v) || qn_add_overflow(v, *r->at - '0', &v))
            return qn_qir_fail(r, start, "%s does not fit in 63 bits", what);
    *value = negative ? -v : v;
    /* Symbolic extents are kept in a range of very negative numbers; text must not make one up. */
    return qn_dim_is_symbolic(*value) ? qn_qir_fail(r, start, "%s is too negative", what) : 1;
}

int qn_qir_number(qir_reader *r, qir_span *number) {
    char here[40];
    qn_qir_skip_blanks(r);
    if (r->failed) return 0;
    number->at = r->at;
    for (; r->at < r->end; r->at++) {
        char c = *r->at, before = r->at > number->at ? r->at[-1] : 'e';
        int sign = (c == '-' || c == '+') && (before == 'e' || before == 'E');
        if (!sign && !is_digit(c) && !is_letter(c) && c != '.') break;
    }
    number->n = (size_t)(r->at - number->at);
    return number->n ? 1 : qn_qir_fail(r, r->at, "expected a number, found %s", describe_here(r, here, sizeof here));
}

int qn_qir_hex_digit(char c) {
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte an escape stands for, the cursor behind its backslash; -1 when it is none. */
static int escaped(qir_reader *r) {
    if (r->at == r->end) return -1;
    char c = *r->at++;
    if (c == '"' || c == '\\') return c;
    if (c != 'x' || r->end - r->at < 2) return -1;
    int high = qn_qir_hex_digit(r->at[0]), low = qn_qir_hex_digit(r->at[1]);
    r->at += 2;
    return high < 0 || low < 0 || high + low == 0 ? -1 : high * 16 + low;
}

int qn_qir_string(qir_reader *r, const char *what) {
    char here[40];
    qn_qir_skip_blanks(r);
    if (r->failed) return 0;
    const char *start = r->at;
    if (!qn_qir_accept(r, '"'))
        return qn_qir_fail(r, r->at, "expected %s in quotes, found %s", what, describe_here(r, here, sizeof here));
    r->string.n = 0;
    while (r->at < r->end && *r->at != '"' && *r->at != '\n') {
        const char *at = r->at;
        int c = (unsigned char)*r->at++;
        if (c == '\\' && (c = escaped(r)) < 0)
            return qn_qir_fail(r, at, "an escape is \\\" or \\\\ or \\x and two hexadecimal digits, not 00");
        if (c == 0) return qn_qir_fail(r, at, "a zero byte cannot be in a string");
        if (!QN_VEC_ROOM(r->arena, &r->string, 2)) return qn_qir_no_memory(r);
        r->string.at[r->string.n++] = (char)c;
    }
    if (r->at == r->end || *r->at != '"') return qn_qir_fail(r, start, "this string is not closed");
    r->at++;
    if (!QN_VEC_ROOM(r->arena, &r->string, 1)) return qn_qir_no_memory(r);
    r->string.at[r->string.n] = 0;
    return 1;
}

int qn_qir_is(qir_span word, const char *text) { return strlen(text) == word.n && memcmp(word.at, text, word.n) == 0; }

const char *qn_qir_copy(qir_span span, char *text, size_t size) {
    size_t n = span.n < size ? span.n : size - 1;
    memcpy(text, span.at, n);
    text[n] = 0;
    return text;
}
