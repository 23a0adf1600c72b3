/* Templates to trees: text and blocks told apart, and the statements. White space around blocks goes as chat templates expect
 * it (trim_blocks and lstrip_blocks of Jinja): a line end right behind a block is dropped, and so are spaces before a block
 * that begins its line. */
#include "text/template_parse.h"

static tpl_node *parse_body(tpl_parser *p, const char *const *ends, qn_text *found);

static int is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* The next "{%", "{{" or "{#", or the end. */
static const char *find_block(const tpl_parser *p, const char *from) {
    for (const char *at = from; at + 1 < p->end; at++)
        if (*at == '{' && (at[1] == '%' || at[1] == '{' || at[1] == '#')) return at;
    return p->end;
}

/* Where text ends before a block: without the spaces that the block's sign, or its being first in its line, takes. */
static const char *strip_end(const char *from, const char *to, char sign, int starts_line) {
    const char *start = to;
    if (sign == '-') {
        while (to > from && is_space(to[-1])) to--;
    } else if (sign != '+') {
        while (start > from && (is_space(start[-1]) && start[-1] != '\n')) start--;
        if (start == from ? starts_line : start[-1] == '\n') to = start;
    }
    return to;
}

/* Text up to the next block, which is entered. first: nothing came before. NULL: there is none. */
static tpl_node *parse_text(tpl_parser *p, int first) {
    const char *from = p->at, *to;
    int starts_line = first, line = qn_text_tpl_line_at(p, p->at);
    if (p->strip_next == 1)
        while (from < p->end && is_space(*from)) from++;
    else if (p->strip_next == 2 && from < p->end && *from == '\n') from++;
    if (from > p->at) starts_line = from[-1] == '\n';
    p->strip_next = 0;
    const char *block = find_block(p, from);
    to = block;
    if (block < p->end) {
        char sign = block + 2 < p->end ? block[2] : 0;
        if (sign == '-' || block[1] != '{') to = strip_end(from, to, sign, starts_line);
        p->in_block = block[1];
        p->at = block + 2 + (sign == '-' || sign == '+');
    } else {
        p->at = p->end;
    }
    if (to == from) return NULL;
    tpl_node *n = qn_text_tpl_parse_node(p, NODE_TEXT, line);
    if (n) n->text = (qn_text){from, (size_t)(to - from)};
    return n;
}

static void skip_comment(tpl_parser *p) {
    const char *at = p->at;
    int line = qn_text_tpl_line_at(p, at);
    while (at + 1 < p->end && !(at[0] == '#' && at[1] == '}')) at++;
    if (at + 1 >= p->end) {
        qn_text_tpl_parse_fail(p, line, "a comment without its end", TPL_NOTHING);
        return;
    }
    char sign = at > p->at ? at[-1] : 0;
    p->strip_next = sign == '-' ? 1 : sign == '+' ? 0 : 2;
    p->at = at + 2;
    p->in_block = 0;
}

static int want_close(tpl_parser *p) {
    if (p->now.kind == T_CLOSE) return 1;
    if (!p->t->failed) qn_text_tpl_parse_fail(p, p->now.line, "the end of the block should come before", p->now.text);
    return 0;
}

/* ---- Statements. Each is entered with the token behind its name, and leaves behind its last block. */

static tpl_node *parse_if(tpl_parser *p, int line) {
    static const char *const ENDS[] = {"elif", "else", "endif", NULL};
    tpl_node *first = NULL, **last = &first;
    for (;;) {
        qn_text found = TPL_NOTHING;
        tpl_node *n = qn_text_tpl_parse_node(p, NODE_IF, line);
        if (!n) return NULL;
        n->a = qn_text_tpl_parse_expression(p);
        if (!n->a || !want_close(p)) return NULL;
        n->parts = parse_body(p, ENDS, &found);
        *last = n;
        last = &n->b;
        if (p->t->failed) return NULL;
        if (found.length == 5) break; /* endif */
        if (found.at[2] == 's') {     /* else */
            static const char *const END[] = {"endif", NULL};
            if (!want_close(p)) return NULL;
            n->b = qn_text_tpl_parse_node(p, NODE_BODY, p->now.line);
            if (n->b) n->b->parts = parse_body(p, END, &found);
            break;
        }
        line = p->now.line;
    }
    return !p->t->failed && want_close(p) ? first : NULL;
}

/* Names, or what a namespace has, with commas between: "a", "a, b", "(a, b)", "ns.x". */
static tpl_node *parse_targets(tpl_parser *p) {
    tpl_node *first = NULL, **last = &first;
    int bracket = qn_text_tpl_take_op(p, "(");
    do {
        if (p->now.kind != T_NAME) return qn_text_tpl_parse_fail(p, p->now.line, "a name is missing before", p->now.text);
        *last = qn_text_tpl_parse_node(p, NODE_NAME, p->now.line);
        if (!*last) return NULL;
        (*last)->text = p->now.text;
        qn_text_tpl_advance(p);
        if (qn_text_tpl_take_op(p, ".")) { /* its object in a, its name in text */
            tpl_node *object = *last;
            *last = qn_text_tpl_parse_node(p, NODE_ATTRIBUTE, p->now.line);
            if (!*last || p->now.kind != T_NAME)
                return qn_text_tpl_parse_fail(p, p->now.line, "a name is missing behind '.'", TPL_NOTHING);
            (*last)->a = object;
            (*last)->text = p->now.text;
            qn_text_tpl_advance(p);
        }
        last = &(*last)->next;
    } while (qn_text_tpl_take_op(p, ","));
    if (bracket && !qn_text_tpl_want_op(p, ")")) return NULL;
    return first;
}

static tpl_node *parse_for(tpl_parser *p, int line) {
    static const char *const ENDS[] = {"else", "endfor", NULL}, *const END[] = {"endfor", NULL};
    qn_text found = TPL_NOTHING;
    tpl_node *n = qn_text_tpl_parse_node(p, NODE_FOR, line);
    if (!n || !(n->b = parse_targets(p))) return NULL;
    if (!qn_text_tpl_take_name(p, "in")) return qn_text_tpl_parse_fail(p, line, "'in' is missing in a loop, before", p->now.text);
    n->a = qn_text_tpl_parse_or(p);
    if (n->a && qn_text_tpl_take_name(p, "if")) n->c = qn_text_tpl_parse_expression(p);
    if (qn_text_tpl_at_name(p, "recursive")) return qn_text_tpl_parse_fail(p, line, "recursive loops are not known", TPL_NOTHING);
    if (p->t->failed || !want_close(p)) return NULL;
    n->parts = parse_body(p, ENDS, &found);
    if (!p->t->failed && found.length == 4) { /* else */
        if (!want_close(p)) return NULL;
        n->d = qn_text_tpl_parse_node(p, NODE_BODY, p->now.line);
        if (n->d) n->d->parts = parse_body(p, END, &found);
    }
    return !p->t->failed && want_close(p) ? n : NULL;
}

/* Filters over what a body printed; the constant at their bottom is filled when it is known. */
static tpl_node *parse_body_filters(tpl_parser *p, int first) {
    tpl_node *n = qn_text_tpl_parse_node(p, NODE_CONSTANT, p->now.line);
    while (n && (first || qn_text_tpl_take_op(p, "|"))) {
        n = qn_text_tpl_parse_filter(p, n);
        first = 0;
    }
    return n;
}

static tpl_node *parse_set(tpl_parser *p, int line) {
    static const char *const END[] = {"endset", NULL};
    qn_text found = TPL_NOTHING;
    tpl_node *n = qn_text_tpl_parse_node(p, NODE_SET, line);
    if (!n || !(n->b = parse_targets(p))) return NULL;
    if (qn_text_tpl_take_op(p, "=")) {
        n->a = qn_text_tpl_parse_expression(p);
        tpl_node **last = n->a ? &n->a->next : NULL;
        if (n->a && qn_text_tpl_at_op(p, ",")) { /* a, b without brackets */
            tpl_node *tuple = qn_text_tpl_parse_node(p, NODE_LIST, line);
            if (!tuple) return NULL;
            tuple->op = 1;
            tuple->parts = n->a;
            n->a = tuple;
            while (last && qn_text_tpl_take_op(p, ",")) {
                *last = qn_text_tpl_parse_expression(p);
                last = *last ? &(*last)->next : NULL;
            }
        }
        return !p->t->failed && want_close(p) ? n : NULL;
    }
    n->c = parse_body_filters(p, 0);
    if (p->t->failed || !want_close(p)) return NULL;
    n->parts = parse_body(p, END, &found);
    return !p->t->failed && want_close(p) ? n : NULL;
}

static tpl_node *parse_macro(tpl_parser *p, int line) {
    static const char *const END[] = {"endmacro", NULL};
    qn_text found = TPL_NOTHING;
    tpl_node *n = qn_text_tpl_parse_node(p, NODE_MACRO, line);
    if (!n || p->now.kind != T_NAME) return qn_text_tpl_parse_fail(p, line, "a macro without its name", TPL_NOTHING);
    n->text = p->now.text;
    qn_text_tpl_advance(p);
    tpl_node **last = &n->b;
    if (!qn_text_tpl_want_op(p, "(")) return NULL;
    while (p->now.kind == T_NAME) {
        *last = qn_text_tpl_parse_node(p, NODE_NAME, p->now.line);
        if (!*last) return NULL;
        (*last)->text = p->now.text;
        qn_text_tpl_advance(p);
        if (qn_text_tpl_take_op(p, "=")) (*last)->a = qn_text_tpl_parse_expression(p);
        last = &(*last)->next;
        if (!qn_text_tpl_take_op(p, ",")) break;
    }
    if (p->t->failed || !qn_text_tpl_want_op(p, ")") || !want_close(p)) return NULL;
    n->parts = parse_body(p, END, &found);
    if (!p->t->failed && p->now.kind == T_NAME) qn_text_tpl_advance(p); /* its name again */
    return !p->t->failed && want_close(p) ? n : NULL;
}

static tpl_node *parse_filter_block(tpl_parser *p, int line) {
    static const char *const END[] = {"endfilter", NULL};
    qn_text found = TPL_NOTHING;
    tpl_node *n = qn_text_tpl_parse_node(p, NODE_FILTER_BLOCK, line);
    if (!n || !(n->c = parse_body_filters(p, 1)) || !want_close(p)) return NULL;
    n->parts = parse_body(p, END, &found);
    return !p->t->failed && want_close(p) ? n : NULL;
}

/* {% generation %} marks what the model said, for training; here it changes nothing. */
static tpl_node *parse_generation(tpl_parser *p, int line) {
    static const char *const END[] = {"endgeneration", NULL};
    qn_text found = TPL_NOTHING;
    tpl_node *n = want_close(p) ? qn_text_tpl_parse_node(p, NODE_BODY, line) : NULL;
    if (n) n->parts = parse_body(p, END, &found);
    return n && !p->t->failed && want_close(p) ? n : NULL;
}

/* {% raw %}: everything up to {% endraw %} is text, the line end behind it too. */
static tpl_node *parse_raw(tpl_parser *p, int line) {
    if (!want_close(p)) return NULL;
    const char *from = p->at;
    while (p->strip_next == 1 && from < p->end && is_space(*from)) from++;
    int starts_line = from > p->at && from[-1] == '\n';
    p->strip_next = 0;
    for (const char *at = from; at + 1 < p->end; at++) {
        if (at[0] != '{' || at[1] != '%') continue;
        char sign = at + 2 < p->end ? at[2] : 0;
        const char *to = strip_end(from, at, sign, starts_line);
        p->at = at + 2 + (sign == '-' || sign == '+');
        while (p->at < p->end && is_space(*p->at)) p->at++;
        if (p->end - p->at < 6 || memcmp(p->at, "endraw", 6) != 0) continue;
        p->in_block = '%';
        qn_text_tpl_advance(p);
        qn_text_tpl_advance(p);
        tpl_node *n = want_close(p) ? qn_text_tpl_parse_node(p, NODE_TEXT, line) : NULL;
        if (n) n->text = (qn_text){from, (size_t)(to - from)};
        return n;
    }
    return qn_text_tpl_parse_fail(p, line, "{% raw %} without its end", TPL_NOTHING);
}

static tpl_node *parse_do(tpl_parser *p, int line) {
    tpl_node *n = qn_text_tpl_parse_node(p, NODE_DO, line);
    if (n) n->a = qn_text_tpl_parse_expression(p);
    return n && n->a && want_close(p) ? n : NULL;
}

static tpl_node *parse_break(tpl_parser *p, int line) {
    return want_close(p) ? qn_text_tpl_parse_node(p, NODE_BREAK, line) : NULL;
}
static tpl_node *parse_continue(tpl_parser *p, int line) {
    return want_close(p) ? qn_text_tpl_parse_node(p, NODE_CONTINUE, line) : NULL;
}

static const struct {
    const char *name;
    tpl_node *(*parse)(tpl_parser *p, int line);
} STATEMENTS[] = {{"if", parse_if},
                  {"for", parse_for},
                  {"set", parse_set},
                  {"macro", parse_macro},
                  {"filter", parse_filter_block},
                  {"generation", parse_generation},
                  {"raw", parse_raw},
                  {"do", parse_do},
                  {"break", parse_break},
                  {"continue", parse_continue}};

static tpl_node *parse_statement(tpl_parser *p) {
    int line = p->now.line;
    if (p->now.kind != T_NAME)
        return p->t->failed ? NULL : qn_text_tpl_parse_fail(p, line, "a statement without its name, at", p->now.text);
    for (size_t i = 0; i < sizeof STATEMENTS / sizeof *STATEMENTS; i++) {
        if (!qn_text_tpl_at_name(p, STATEMENTS[i].name)) continue;
        if (++p->depth > TPL_MOST_NESTING) return qn_text_tpl_parse_fail(p, line, "nested too deeply", TPL_NOTHING);
        qn_text_tpl_advance(p);
        tpl_node *n = STATEMENTS[i].parse(p, line);
        p->depth--;
        return n;
    }
    return qn_text_tpl_parse_fail(p, line, "a statement that is not known:", p->now.text);
}

static int is_end(const tpl_parser *p, const char *const *ends) {
    for (; ends && *ends; ends++)
        if (qn_text_tpl_at_name(p, *ends)) return 1;
    return 0;
}

/* Everything up to a statement that is one of the ends, whose name is left in found, or to the end of the template where there
 * are none. */
static tpl_node *parse_body(tpl_parser *p, const char *const *ends, qn_text *found) {
    tpl_node *first = NULL, **last = &first;
    for (int start = !ends; !p->t->failed; start = 0) {
        p->in_block = 0;
        *last = parse_text(p, start);
        if (*last) last = &(*last)->next;
        if (!p->in_block) break; /* the end */
        if (p->in_block == '#') {
            skip_comment(p);
            continue;
        }
        int output = p->in_block == '{';
        qn_text_tpl_advance(p);
        if (!output && is_end(p, ends)) {
            *found = p->now.text;
            qn_text_tpl_advance(p);
            return first;
        }
        tpl_node *n = output ? qn_text_tpl_parse_node(p, NODE_OUTPUT, p->now.line) : parse_statement(p);
        if (output && n && (!(n->a = qn_text_tpl_parse_expression(p)) || !want_close(p))) n = NULL;
        if (!n) return first;
        *last = n;
        last = &n->next;
    }
    if (ends && !p->t->failed)
        qn_text_tpl_parse_fail(p, qn_text_tpl_line_at(p, p->end), "the template ends before",
                               (qn_text){ends[0], strlen(ends[0])});
    return first;
}

tpl_node *qn_text_tpl_parse(tpl *t, qn_text source) {
    char *copy = qn_arena_alloc(&t->arena, source.length + 1, 1);
    size_t n = 0;
    if (!copy) {
        qn_text_tpl_fail(t, "no memory for the template");
        return NULL;
    }
    for (size_t i = 0; i < source.length; i++) { /* line ends of any kind become \n, and the last of them is dropped */
        if (source.at[i] == '\r' && i + 1 < source.length && source.at[i + 1] == '\n') continue;
        copy[n++] = source.at[i] == '\r' ? '\n' : source.at[i];
    }
    if (n && copy[n - 1] == '\n') n--;
    tpl_parser p = {.t = t, .at = copy, .end = copy + n, .line_from = copy, .line = 1};
    tpl_node *body = qn_text_tpl_parse_node(&p, NODE_BODY, 1);
    qn_text found;
    if (body) body->parts = parse_body(&p, NULL, &found);
    return t->failed ? NULL : body;
}
