/* Tokens of a template's blocks. */
#include <stdlib.h>

#include "text/template_parse.h"
#include "text/utf8.h"

tpl_node *qn_text_tpl_parse_fail(tpl_parser *p, int line, const char *what, qn_text near) {
    p->t->line = line;
    if (near.length) qn_text_tpl_fail(p->t, "%s '%.*s'", what, near.length > 40 ? 40 : (int)near.length, near.at);
    else qn_text_tpl_fail(p->t, "%s", what);
    p->at = p->end;
    p->now.kind = T_END;
    return NULL;
}

tpl_node *qn_text_tpl_parse_node(tpl_parser *p, tpl_node_kind kind, int line) {
    tpl_node *n = qn_arena_alloc(&p->t->arena, 1, sizeof *n);
    if (!n) return qn_text_tpl_parse_fail(p, line, "no memory for the template", TPL_NOTHING);
    n->kind = kind;
    n->line = line;
    return n;
}

int qn_text_tpl_line_at(tpl_parser *p, const char *at) {
    for (; p->line_from < at; p->line_from++) p->line += *p->line_from == '\n';
    return p->line;
}

static int is_name(char c, int first) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
}

static void read_string(tpl_parser *p) {
    char quote = *p->at++;
    const char *from = p->at;
    while (p->at < p->end && *p->at != quote) p->at += 1 + (*p->at == '\\');
    if (p->at >= p->end) {
        qn_text_tpl_parse_fail(p, p->now.line, "a string without its end", TPL_NOTHING);
        return;
    }
    size_t n = (size_t)(p->at++ - from), out = 0;
    char *bytes = qn_arena_alloc(&p->t->arena, n + 4, 1);
    if (!bytes) {
        qn_text_tpl_parse_fail(p, p->now.line, "no memory for the template", TPL_NOTHING);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        static const char PLAIN[] = "n\nt\tr\r\\\\''\"\"b\bf\fv\va\a";
        if (from[i] != '\\' || i + 1 >= n) {
            bytes[out++] = from[i];
            continue;
        }
        char c = from[++i];
        int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
        const char *plain = NULL;
        for (size_t k = 0; k + 1 < sizeof PLAIN; k += 2)
            if (PLAIN[k] == c) plain = &PLAIN[k + 1];
        if (digits) {
            char hex[9] = {0};
            memcpy(hex, from + i + 1, n - i - 1 < (size_t)digits ? n - i - 1 : (size_t)digits);
            unsigned long code = strtoul(hex, NULL, 16);
            if (strspn(hex, "0123456789abcdefABCDEF") != (size_t)digits || code > 0x10FFFF) {
                qn_text_tpl_parse_fail(p, p->now.line, "an escape that names no character", TPL_NOTHING);
                return;
            }
            out += qn_text_utf8_write((uint32_t)code, bytes + out);
            i += (size_t)digits;
        } else if (c >= '0' && c <= '7') { /* up to three octal digits */
            uint32_t code = (uint32_t)(c - '0');
            for (int more = 0; more < 2 && i + 1 < n && from[i + 1] >= '0' && from[i + 1] <= '7'; more++)
                code = code * 8 + (uint32_t)(from[++i] - '0');
            out += qn_text_utf8_write(code, bytes + out);
        } else if (plain) {
            bytes[out++] = *plain;
        } else if (c != '\n') { /* what is no escape stays as it is */
            bytes[out++] = '\\';
            bytes[out++] = c;
        }
    }
    p->now.kind = T_STRING;
    p->now.text = (qn_text){bytes, out};
}

static void read_number(tpl_parser *p) {
    const char *from = p->at;
    p->now.kind = T_INT;
    while (p->at < p->end && ((*p->at >= '0' && *p->at <= '9') || *p->at == '_')) p->at++;
    if (p->at + 1 < p->end && *p->at == '.' && p->at[1] >= '0' && p->at[1] <= '9') {
        p->now.kind = T_FLOAT;
        for (p->at++; p->at < p->end && *p->at >= '0' && *p->at <= '9';) p->at++;
    }
    if (p->at + 1 < p->end && (*p->at == 'e' || *p->at == 'E')) {
        const char *digits = p->at + 1 + (p->at[1] == '-' || p->at[1] == '+');
        if (digits < p->end && *digits >= '0' && *digits <= '9') {
            p->now.kind = T_FLOAT;
            for (p->at = digits; p->at < p->end && *p->at >= '0' && *p->at <= '9';) p->at++;
        }
    }
    p->now.text = (qn_text){from, (size_t)(p->at - from)};
}

static void read_operator(tpl_parser *p) {
    static const char *const LONG[] = {"==", "!=", "<=", ">=", "**", "//"};
    p->now.kind = T_OP;
    p->now.text = (qn_text){p->at, 1};
    for (size_t i = 0; i < sizeof LONG / sizeof *LONG; i++)
        if (p->end - p->at >= 2 && memcmp(p->at, LONG[i], 2) == 0) p->now.text.length = 2;
    if (p->now.text.length == 1 && (*p->at == 0 || !strchr("+-*/%~<>=.,:|()[]{}", *p->at))) {
        qn_text_tpl_parse_fail(p, p->now.line, "a character that nothing begins with:", p->now.text);
        return;
    }
    if (strchr("([{", *p->at)) p->open++;
    if (strchr(")]}", *p->at)) p->open--;
    p->at += p->now.text.length;
}

/* The end of the block: -%} and }} and their like. Returns its length, or 0. */
static size_t block_end(const tpl_parser *p) {
    size_t sign = p->at < p->end && (*p->at == '-' || *p->at == '+');
    char close = p->in_block == '{' ? '}' : '%';
    if ((size_t)(p->end - p->at) < sign + 2 || p->at[sign] != close || p->at[sign + 1] != '}') return 0;
    return sign + 2;
}

/* The next token into p->now. */
void qn_text_tpl_advance(tpl_parser *p) {
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r')) p->at++;
    p->now = (tpl_token){T_END, {p->at, 0}, qn_text_tpl_line_at(p, p->at)};
    if (p->at >= p->end) {
        qn_text_tpl_parse_fail(p, p->now.line, "a block without its end", TPL_NOTHING);
        return;
    }
    size_t end = p->open ? 0 : block_end(p);
    if (end) {
        p->now.kind = T_CLOSE;
        p->strip_next = *p->at == '-' ? 1 : p->in_block == '%' && *p->at != '+' ? 2 : 0;
        p->at += end;
        p->in_block = 0;
    } else if (is_name(*p->at, 1)) {
        const char *from = p->at;
        while (p->at < p->end && is_name(*p->at, 0)) p->at++;
        p->now.kind = T_NAME;
        p->now.text = (qn_text){from, (size_t)(p->at - from)};
    } else if (*p->at == '"' || *p->at == '\'') {
        read_string(p);
    } else if (*p->at >= '0' && *p->at <= '9') {
        read_number(p);
    } else {
        read_operator(p);
    }
}

int qn_text_tpl_at_op(const tpl_parser *p, const char *op) {
    return p->now.kind == T_OP && p->now.text.length == strlen(op) && memcmp(p->now.text.at, op, p->now.text.length) == 0;
}

int qn_text_tpl_at_name(const tpl_parser *p, const char *name) {
    return p->now.kind == T_NAME && p->now.text.length == strlen(name) && memcmp(p->now.text.at, name, p->now.text.length) == 0;
}

int qn_text_tpl_take_op(tpl_parser *p, const char *op) {
    if (!qn_text_tpl_at_op(p, op)) return 0;
    qn_text_tpl_advance(p);
    return 1;
}

int qn_text_tpl_take_name(tpl_parser *p, const char *name) {
    if (!qn_text_tpl_at_name(p, name)) return 0;
    qn_text_tpl_advance(p);
    return 1;
}

int qn_text_tpl_want_op(tpl_parser *p, const char *op) {
    if (qn_text_tpl_take_op(p, op)) return 1;
    if (!p->t->failed) {
        char what[40] = "expected '";
        size_t n = strlen(op);
        memcpy(what + 10, op, n);
        memcpy(what + 10 + n, "', found", 9);
        qn_text_tpl_parse_fail(p, p->now.line, what,
                               p->now.kind == T_CLOSE ? (qn_text){"the end of the block", 20} : p->now.text);
    }
    return 0;
}
