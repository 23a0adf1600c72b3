/* The inside of strings and numbers: expressions (pattern), lengths and formats, and integers in a range. */
#include "text/schema.h"
#include "text/utf8.h"

#include <stdio.h>

enum { MOST_PATTERN_DEPTH = 40 };

typedef struct pattern_reader {
    schema_writer *w;
    const char *at, *end;
    int depth;
} pattern_reader;

static int peek(const pattern_reader *p) { return p->at < p->end ? (unsigned char)*p->at : -1; }

static qn_status refuse(pattern_reader *p, const char *what) { return qn_text_schema_fault(p->w, "pattern: %s", what); }

/* One character of a string, written as JSON writes it; control characters in either of the ways that they have. */
static qn_status put_character(schema_writer *w, uint32_t code) {
    static const char SHORT[][2] = {{'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}};
    for (size_t i = 0; i < sizeof SHORT / sizeof *SHORT; i++)
        if (code == (uint32_t)SHORT[i][0]) return qn_text_schema_put(w, "(\"\\\\\" (\"%c\" | \"u%04x\"))", SHORT[i][1], code);
    if (code == '"' || code == '\\') return qn_text_schema_put(w, "\"\\\\\\%c\"", (int)code);
    if (code < 0x20 || code == 0x7F) return qn_text_schema_put(w, "\"\\\\u%04x\"", code);
    return qn_text_schema_put(w, "\"\\U%08X\"", code);
}

/* What a backslash and a letter stand for, as the inside of a class; NULL: the letter itself, or nothing known. */
static const char *class_of(int letter) {
    static const char *const CLASSES[] = {"d0-9", "wa-zA-Z0-9_", "s "}; /* strings hold no other white space unescaped */
    for (size_t i = 0; i < sizeof CLASSES / sizeof *CLASSES; i++)
        if (letter == CLASSES[i][0]) return CLASSES[i] + 1;
    return NULL;
}

/* The character behind a backslash; 0: not known. */
static uint32_t escaped(int letter) {
    static const char KNOWN[][2] = {{'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'f', '\f'}, {'v', '\v'}};
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (letter == KNOWN[i][0]) return (uint32_t)KNOWN[i][1];
    int alphanumeric = (letter >= '0' && letter <= '9') || ((letter | 0x20) >= 'a' && (letter | 0x20) <= 'z');
    return letter > 0 && letter < 0x80 && !alphanumeric ? (uint32_t)letter : 0;
}

static qn_status read_character(pattern_reader *p, uint32_t *code) {
    if (peek(p) == '\\') {
        p->at++;
        *code = escaped(peek(p));
        p->at++;
        return *code ? QN_OK : refuse(p, "an escape that is not known");
    }
    size_t n = qn_text_utf8_read(p->at, (size_t)(p->end - p->at), code);
    p->at += n;
    return n ? QN_OK : refuse(p, "it ends too early");
}

/* A class being written: what a string holds as it is goes into the class itself, what it holds escaped stands beside it. */
typedef struct class_writer {
    int inverted;
    uint32_t control; /* a bit for each control character in it */
    int quote, backslash;
} class_writer;

/* A range, without the characters that a string never holds as they are. */
static qn_status put_class_range(pattern_reader *p, class_writer *c, uint32_t low, uint32_t high) {
    static const uint32_t APART[] = {'"', '\\', 0x110000};
    for (uint32_t code = low; code <= high && code < 0x20; code++) c->control |= 1u << code;
    c->quote |= low <= '"' && high >= '"';
    c->backslash |= low <= '\\' && high >= '\\';
    if (low < 0x20) low = 0x20;
    qn_status status = QN_OK;
    for (size_t i = 0; i < sizeof APART / sizeof *APART && low <= high && status == QN_OK; i++) {
        uint32_t last = high < APART[i] ? high : APART[i] - 1;
        if (low <= last) status = qn_text_schema_put(p->w, "\\U%08X-\\U%08X", low, last);
        if (low <= APART[i]) low = APART[i] + 1;
    }
    return status;
}

/* One member of a class: a character, a range or a group such as \d. */
static qn_status put_class_member(pattern_reader *p, class_writer *c) {
    static const char *const OTHER_SPACE = "\\u0085\\u00A0\\u1680\\u2000-\\u200A\\u2028\\u2029\\u202F\\u205F\\u3000\\uFEFF";
    uint32_t low, high;
    const char *group = peek(p) == '\\' && p->at + 1 < p->end ? class_of((unsigned char)p->at[1]) : NULL;
    if (group) {
        p->at += 2;
        return qn_text_schema_put(p->w, "%s%s", group, c->inverted && *group == ' ' ? OTHER_SPACE : "");
    }
    qn_status status = read_character(p, &low);
    high = low;
    if (status == QN_OK && peek(p) == '-' && p->at + 1 < p->end && p->at[1] != ']') {
        p->at++;
        status = read_character(p, &high);
    }
    if (status != QN_OK) return status;
    return high < low ? refuse(p, "a range that runs backwards") : put_class_range(p, c, low, high);
}

/* A class of characters. An inverted one holds no control characters, which strings have only as escapes. */
static qn_status put_class(pattern_reader *p) {
    class_writer c = {0};
    p->at++;
    if (peek(p) == '^') c.inverted = 1, p->at++;
    qn_status status = qn_text_schema_put(p->w, c.inverted ? "([^\"\\\\\\x7F\\x00-\\x1F" : "([");
    for (int first = 1; (peek(p) != ']' || first) && status == QN_OK; first = 0) status = put_class_member(p, &c);
    p->at++;
    if (status == QN_OK) status = qn_text_schema_put(p->w, "]");
    for (uint32_t code = 0; code < 0x20 && !c.inverted && status == QN_OK; code++) {
        if (c.control >> code & 1) status = qn_text_schema_put(p->w, " | ");
        if (c.control >> code & 1 && status == QN_OK) status = put_character(p->w, code);
    }
    if (status == QN_OK && c.quote != c.inverted) status = qn_text_schema_put(p->w, " | \"\\\\\\\"\"");
    if (status == QN_OK && c.backslash != c.inverted) status = qn_text_schema_put(p->w, " | \"\\\\\\\\\"");
    return status == QN_OK ? qn_text_schema_put(p->w, ")") : status;
}

static qn_status put_choice(pattern_reader *p);

static qn_status put_atom(pattern_reader *p) {
    int c = peek(p), next = p->at + 1 < p->end ? (unsigned char)p->at[1] : -1;
    uint32_t code;
    qn_status status;
    if (c == '[') return put_class(p);
    if (c == '(') {
        p->at++;
        if (peek(p) == '?') {
            if (p->at + 1 >= p->end || p->at[1] != ':')
                return refuse(p, "groups that look ahead, look back or have names are not known");
            p->at += 2;
        }
        if (++p->depth > MOST_PATTERN_DEPTH) return refuse(p, "groups are nested too deeply");
        status = qn_text_schema_put(p->w, "(");
        if (status == QN_OK) status = put_choice(p);
        if (status != QN_OK) return status;
        if (peek(p) != ')') return refuse(p, "a '(' without its ')'");
        p->at++;
        p->depth--;
        return qn_text_schema_put(p->w, ")");
    }
    if (c == '.') {
        p->at++;
        return qn_text_schema_put(p->w, "%s", qn_text_schema_rule(p->w, "dot"));
    }
    if (c == '\\' && class_of(next)) {
        p->at += 2;
        return qn_text_schema_put(p->w, "[%s]", class_of(next));
    }
    if (c == '^' || c == '$' || c == '*' || c == '+' || c == '?' || c == '{')
        return refuse(p, "an anchor or repetition where none can stand");
    status = read_character(p, &code);
    return status == QN_OK ? put_character(p->w, code) : status;
}

/* {m}, {m,} or {m,n}, with the first number not the greater. */
static qn_status read_counts(pattern_reader *p) {
    int64_t count[2] = {0, -1}, n = 0, digits = 0;
    for (p->at++; peek(p) != '}'; p->at++) {
        int c = peek(p);
        if (c == ',' && n == 0) n = 1, count[1] = digits = 0;
        else if (c >= '0' && c <= '9' && ++digits < 8) count[n] = count[n] * 10 + (c - '0');
        else return refuse(p, "a '{' that begins no repetition");
        if (n == 0 && count[0] > GRAMMAR_MOST_REPEAT) return refuse(p, "too many repetitions");
    }
    if ((n == 0 && !digits) || count[1] > GRAMMAR_MOST_REPEAT || (n == 1 && digits && count[1] < count[0]))
        return refuse(p, "a repetition that cannot be");
    p->at++;
    return QN_OK;
}

static qn_status put_repeat(pattern_reader *p) {
    int c = peek(p);
    const char *from = p->at;
    if (c != '*' && c != '+' && c != '?' && c != '{') return QN_OK;
    qn_status status = c == '{' ? read_counts(p) : QN_OK;
    if (status != QN_OK) return status;
    p->at += c != '{';
    size_t n = (size_t)(p->at - from);
    if (peek(p) == '?') p->at++; /* lazy or not, the same strings fit */
    return qn_text_schema_put(p->w, "%.*s", (int)n, from);
}

static qn_status put_choice(pattern_reader *p) {
    qn_status status = QN_OK;
    while (status == QN_OK && peek(p) >= 0 && peek(p) != ')') {
        if (peek(p) == '|') {
            p->at++;
            status = qn_text_schema_put(p->w, "| ");
            continue;
        }
        if (peek(p) == '$' && p->at + 1 == p->end && p->depth == 0) break;
        status = put_atom(p);
        if (status == QN_OK) status = put_repeat(p);
        if (status == QN_OK) status = qn_text_schema_put(p->w, " ");
    }
    return status;
}

qn_status qn_text_schema_pattern(schema_writer *w, qn_text pattern) {
    pattern_reader p = {w, pattern.at, pattern.at + pattern.length, 0};
    const char *any = qn_text_schema_rule(w, "char");
    int from_start = peek(&p) == '^';
    p.at += from_start;
    qn_status status = qn_text_schema_put(w, from_start ? "(" : "%s* (", any);
    size_t mark = w->out.n;
    if (status == QN_OK) status = put_choice(&p);
    if (status != QN_OK) return status;
    int to_end = peek(&p) == '$';
    p.at += to_end;
    if (p.at < p.end) return refuse(&p, "a ')' without its '('");
    int depth = 0;
    for (size_t i = mark; (from_start || to_end) && i < w->out.n; i++) { /* "^a|b$" is not "^(a|b)$" */
        depth += (w->out.at[i] == '(') - (w->out.at[i] == ')');
        if (w->out.at[i] == '"' || w->out.at[i] == '[') { /* over literals and classes */
            char close = w->out.at[i] == '"' ? '"' : ']';
            for (i++; i < w->out.n && w->out.at[i] != close; i++) i += w->out.at[i] == '\\';
        } else if (w->out.at[i] == '|' && depth == 0) {
            return refuse(&p, "anchors around a choice are not known; put the choice in parentheses");
        }
    }
    return qn_text_schema_put(w, to_end ? ")" : ") %s*", any);
}

qn_status qn_text_schema_string(schema_writer *w, const json_node *s) {
    static const char *const FORMATS[] = {"date", "time", "date-time", "uuid"};
    const json_node *pattern = qn_text_json_get(s, "pattern"), *format = qn_text_json_get(s, "format");
    int64_t least, most;
    qn_status status = qn_text_schema_count(w, s, "minLength", 0, &least);
    if (status == QN_OK) status = qn_text_schema_count(w, s, "maxLength", -1, &most);
    if (status != QN_OK) return status;
    if (most >= 0 && most < least) return qn_error_set(w->error, QN_INVALID, "schema: maxLength is below minLength");
    if (pattern && pattern->kind == JSON_STRING) {
        if (least > 0 || most >= 0 || format)
            return qn_text_schema_fault(w, "pattern together with a length or a format is not known");
        status = qn_text_schema_put(w, "\"\\\"\" ");
        if (status == QN_OK) status = qn_text_schema_pattern(w, pattern->text);
        return status == QN_OK ? qn_text_schema_put(w, " \"\\\"\"") : status;
    }
    if (format && format->kind == JSON_STRING) {
        if (least > 0 || most >= 0) return qn_text_schema_fault(w, "format together with a length is not known");
        for (size_t i = 0; i < sizeof FORMATS / sizeof *FORMATS; i++)
            if (qn_text_json_is(format->text, FORMATS[i]))
                return qn_text_schema_put(w, "\"\\\"\" %s \"\\\"\"", qn_text_schema_rule(w, FORMATS[i]));
        return qn_text_schema_fault(w, "format '%.*s' is not known; date, time, date-time and uuid are",
                                    format->text.length > 40 ? 40 : (int)format->text.length, format->text.at);
    }
    if (least == 0 && most < 0) return qn_text_schema_put(w, "%s", qn_text_schema_rule(w, "string"));
    const char *any = qn_text_schema_rule(w, "char");
    if (most < 0) return qn_text_schema_put(w, "\"\\\"\" %s{%lld,} \"\\\"\"", any, (long long)least);
    return qn_text_schema_put(w, "\"\\\"\" %s{%lld,%lld} \"\\\"\"", any, (long long)least, (long long)most);
}

/* ---- Integers from low to high, as choices of digits */

static qn_status put_digits(schema_writer *w, const char *low, const char *high) {
    size_t n = strlen(low), same = 0;
    while (same < n && low[same] == high[same]) same++;
    qn_status status = same ? qn_text_schema_put(w, "\"%.*s\" ", (int)same, low) : QN_OK;
    if (status != QN_OK || same == n) return status;
    size_t rest = n - same - 1;
    if (!rest) return qn_text_schema_put(w, "[%c-%c] ", low[same], high[same]);
    char nines[24], zeros[24];
    snprintf(nines, sizeof nines, "%.*s", (int)rest, "99999999999999999999");
    snprintf(zeros, sizeof zeros, "%.*s", (int)rest, "00000000000000000000");
    int low_whole = strcmp(low + same + 1, zeros) == 0, high_whole = strcmp(high + same + 1, nines) == 0;
    char first = (char)(low[same] + !low_whole), last = (char)(high[same] - !high_whole);
    status = qn_text_schema_put(w, "(");
    if (status == QN_OK && !low_whole) { /* the first digit as in low, the rest from low's up */
        status = qn_text_schema_put(w, "\"%c\" ", low[same]);
        if (status == QN_OK) status = put_digits(w, low + same + 1, nines);
        if (status == QN_OK && (first <= last || !high_whole)) status = qn_text_schema_put(w, "| ");
    }
    if (status == QN_OK && first <= last) {
        status = qn_text_schema_put(w, "[%c-%c] [0-9]{%zu} ", first, last, rest);
        if (status == QN_OK && !high_whole) status = qn_text_schema_put(w, "| ");
    }
    if (status == QN_OK && !high_whole) {
        status = qn_text_schema_put(w, "\"%c\" ", high[same]);
        if (status == QN_OK) status = put_digits(w, zeros, high + same + 1);
    }
    return status == QN_OK ? qn_text_schema_put(w, ") ") : status;
}

/* Magnitudes, length by length; an open upper end takes what more digits there may be. */
static qn_status put_magnitudes(schema_writer *w, uint64_t low, uint64_t high, int open) {
    char from[24], to[24];
    qn_status status = QN_OK;
    for (int first = 1; status == QN_OK; first = 0) {
        int n = snprintf(from, sizeof from, "%llu", (unsigned long long)low);
        snprintf(to, sizeof to, "%.*s", n, "99999999999999999999");
        if (!open && snprintf(NULL, 0, "%llu", (unsigned long long)high) == n)
            snprintf(to, sizeof to, "%llu", (unsigned long long)high);
        if (!first) status = qn_text_schema_put(w, "| ");
        if (status == QN_OK) status = put_digits(w, from, to);
        uint64_t next = 1;
        for (int i = 0; i < n; i++) next *= 10;
        if (open || next > high || n >= 19) {
            if (status == QN_OK && open && n < 16) status = qn_text_schema_put(w, "| [1-9] [0-9]{%d,15} ", n);
            return status;
        }
        low = next;
    }
    return status;
}

static uint64_t magnitude(int64_t value) { return value < 0 ? 0 - (uint64_t)value : (uint64_t)value; }

static qn_status put_range(schema_writer *w, int has_low, int64_t low, int has_high, int64_t high) {
    qn_status status = QN_OK;
    int negative = !has_low || low < 0, other = !has_high || high >= 0;
    if (negative) {
        int64_t top = has_high && high < 0 ? high : -1;
        status = qn_text_schema_put(w, "\"-\" (");
        if (status == QN_OK) status = put_magnitudes(w, magnitude(top), has_low ? magnitude(low) : UINT64_MAX, !has_low);
        if (status == QN_OK) status = qn_text_schema_put(w, other ? ") | " : ")");
    }
    if (status == QN_OK && other)
        status = put_magnitudes(w, has_low && low > 0 ? (uint64_t)low : 0, has_high ? (uint64_t)high : UINT64_MAX, !has_high);
    return status;
}

/* An end of the range; of two the narrower. */
static qn_status get_bound(schema_writer *w, const json_node *s, const char *key, int add, int *has, int64_t *bound) {
    const json_node *v = qn_text_json_get(s, key);
    int upper = strstr(key, "aximum") != NULL;
    if (!v) return QN_OK;
    if ((v->kind != JSON_INT && v->kind != JSON_FLOAT) || v->number != floor(v->number) || fabs(v->number) > 9e15)
        return qn_text_schema_fault(w, "%s of an integer is a whole number of at most 15 digits", key);
    int64_t value = (int64_t)v->number + add;
    if (!*has || (upper ? value < *bound : value > *bound)) *bound = value;
    *has = 1;
    return QN_OK;
}

qn_status qn_text_schema_integer(schema_writer *w, const json_node *s) {
    int has_low = 0, has_high = 0;
    int64_t low = 0, high = 0;
    qn_status status = get_bound(w, s, "minimum", 0, &has_low, &low);
    if (status == QN_OK) status = get_bound(w, s, "exclusiveMinimum", 1, &has_low, &low);
    if (status == QN_OK) status = get_bound(w, s, "maximum", 0, &has_high, &high);
    if (status == QN_OK) status = get_bound(w, s, "exclusiveMaximum", -1, &has_high, &high);
    if (status != QN_OK) return status;
    if (!has_low && !has_high) return qn_text_schema_put(w, "%s", qn_text_schema_rule(w, "integer"));
    if (has_low && has_high && high < low) return qn_error_set(w->error, QN_INVALID, "schema: maximum is below minimum");
    return put_range(w, has_low, low, has_high, high);
}
