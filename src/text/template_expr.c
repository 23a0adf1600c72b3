/* Expressions of a template, from the loosest to the tightest operator. */
#include "base/decimal.h"
#include "text/template_parse.h"

static tpl_node *deeper(tpl_parser *p, tpl_node *(*parse)(tpl_parser *)) {
    if (++p->depth > TPL_MOST_NESTING) return qn_text_tpl_parse_fail(p, p->now.line, "nested too deeply", TPL_NOTHING);
    tpl_node *n = parse(p);
    p->depth--;
    return n;
}

static tpl_node *two(tpl_parser *p, tpl_node_kind kind, int op, tpl_node *a, tpl_node *b) {
    tpl_node *n = a && b ? qn_text_tpl_parse_node(p, kind, a->line) : NULL;
    if (!n) return NULL;
    n->op = op;
    n->a = a;
    n->b = b;
    return n;
}

/* Arguments up to the closing bracket, which is taken too. Named ones carry their name. */
static tpl_node *parse_arguments(tpl_parser *p, tpl_node *call) {
    tpl_node **last = &call->parts;
    while (!p->t->failed && !qn_text_tpl_at_op(p, ")")) {
        qn_text name = {NULL, 0};
        if (qn_text_tpl_at_op(p, "*"))
            return qn_text_tpl_parse_fail(p, p->now.line, "arguments with * are not known", TPL_NOTHING);
        tpl_node *value = deeper(p, qn_text_tpl_parse_expression);
        if (value && value->kind == NODE_NAME && qn_text_tpl_at_op(p, "=")) {
            name = value->text;
            qn_text_tpl_advance(p);
            value = deeper(p, qn_text_tpl_parse_expression);
        }
        tpl_node *part = value ? qn_text_tpl_parse_node(p, NODE_BODY, value->line) : NULL;
        if (!part) return NULL;
        part->a = value;
        part->text = name;
        *last = part;
        last = &part->next;
        if (!qn_text_tpl_take_op(p, ",")) break;
    }
    return qn_text_tpl_want_op(p, ")") ? call : NULL;
}

static tpl_node *parse_constant(tpl_parser *p, tpl_value value) {
    tpl_node *n = qn_text_tpl_parse_node(p, NODE_CONSTANT, p->now.line);
    if (n) n->value = value;
    qn_text_tpl_advance(p);
    return n;
}

static tpl_node *parse_number(tpl_parser *p) {
    char digits[64];
    size_t n = 0;
    for (size_t i = 0; i < p->now.text.length && n < sizeof digits - 1; i++)
        if (p->now.text.at[i] != '_') digits[n++] = p->now.text.at[i];
    digits[n] = 0;
    if (n == sizeof digits - 1) return qn_text_tpl_parse_fail(p, p->now.line, "a number of too many digits", TPL_NOTHING);
    int64_t integer = 0;
    int fits = p->now.kind == T_INT;
    for (size_t i = 0; fits && i < n; i++)
        fits = !__builtin_mul_overflow(integer, 10, &integer) && !__builtin_add_overflow(integer, digits[i] - '0', &integer);
    if (fits) return parse_constant(p, tpl_int(integer));
    return parse_constant(p, (tpl_value){.kind = TPL_FLOAT, .as.number = qn_decimal_read(digits, n)});
}

static tpl_node *parse_strings(tpl_parser *p) { /* neighbours are one */
    int line = p->now.line;
    qn_text text = p->now.text;
    qn_text_tpl_advance(p);
    while (p->now.kind == T_STRING) {
        char *both = qn_arena_alloc(&p->t->arena, text.length + p->now.text.length + 1, 1);
        if (!both) return qn_text_tpl_parse_fail(p, line, "no memory for the template", TPL_NOTHING);
        memcpy(both, text.at, text.length);
        memcpy(both + text.length, p->now.text.at, p->now.text.length);
        text = (qn_text){both, text.length + p->now.text.length};
        qn_text_tpl_advance(p);
    }
    tpl_node *n = qn_text_tpl_parse_node(p, NODE_CONSTANT, line);
    if (n) n->value = tpl_text(text);
    return n;
}

static tpl_node *parse_items(tpl_parser *p, tpl_node *list, const char *close, int dict) {
    tpl_node **last = &list->parts;
    while (!p->t->failed && !qn_text_tpl_at_op(p, close)) {
        for (int i = 0; i < 1 + dict; i++) {
            *last = deeper(p, qn_text_tpl_parse_expression);
            if (!*last) return NULL;
            last = &(*last)->next;
            if (dict && i == 0 && !qn_text_tpl_want_op(p, ":")) return NULL;
        }
        if (!qn_text_tpl_take_op(p, ",")) break;
        list->op |= 1; /* a comma makes (a,) a tuple */
    }
    return qn_text_tpl_want_op(p, close) ? list : NULL;
}

static tpl_node *parse_parentheses(tpl_parser *p) {
    tpl_node *n = qn_text_tpl_parse_node(p, NODE_LIST, p->now.line);
    qn_text_tpl_advance(p);
    if (!n || !parse_items(p, n, ")", 0)) return NULL;
    if (n->parts && !n->parts->next && !n->op) return n->parts;
    n->op = 1;
    return n;
}

static tpl_node *parse_primary(tpl_parser *p) {
    static const struct {
        const char *name;
        tpl_kind kind;
        int value;
    } WORDS[] = {{"true", TPL_BOOL, 1},  {"True", TPL_BOOL, 1}, {"false", TPL_BOOL, 0},
                 {"False", TPL_BOOL, 0}, {"none", TPL_NONE, 0}, {"None", TPL_NONE, 0}};
    int line = p->now.line;
    if (p->now.kind == T_NAME) {
        for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
            if (qn_text_tpl_at_name(p, WORDS[i].name))
                return parse_constant(p, (tpl_value){.kind = WORDS[i].kind, .as.integer = WORDS[i].value});
        tpl_node *n = qn_text_tpl_parse_node(p, NODE_NAME, line);
        if (n) n->text = p->now.text;
        qn_text_tpl_advance(p);
        return n;
    }
    if (p->now.kind == T_STRING) return parse_strings(p);
    if (p->now.kind == T_INT || p->now.kind == T_FLOAT) return parse_number(p);
    if (qn_text_tpl_at_op(p, "(")) return parse_parentheses(p);
    if (qn_text_tpl_at_op(p, "[") || qn_text_tpl_at_op(p, "{")) {
        int dict = qn_text_tpl_at_op(p, "{");
        tpl_node *n = qn_text_tpl_parse_node(p, dict ? NODE_DICT : NODE_LIST, line);
        qn_text_tpl_advance(p);
        if (!n || !parse_items(p, n, dict ? "}" : "]", dict)) return NULL;
        n->op = 0;
        return n;
    }
    if (p->t->failed) return NULL;
    return qn_text_tpl_parse_fail(p, line, "an expression is missing before",
                                  p->now.kind == T_CLOSE ? (qn_text){"the end of the block", 20} : p->now.text);
}

static tpl_node *parse_subscript(tpl_parser *p, tpl_node *of) {
    tpl_node *n = qn_text_tpl_parse_node(p, NODE_ITEM, p->now.line), **part[3];
    qn_text_tpl_advance(p);
    if (!n) return NULL;
    n->a = of;
    part[0] = &n->b;
    part[1] = &n->c;
    part[2] = &n->d;
    for (int i = 0; i < 3 && !p->t->failed; i++) {
        if (!qn_text_tpl_at_op(p, ":") && !qn_text_tpl_at_op(p, "]")) *part[i] = deeper(p, qn_text_tpl_parse_expression);
        if (!qn_text_tpl_at_op(p, ":")) break;
        n->kind = NODE_SLICE;
        qn_text_tpl_advance(p);
    }
    if (n->kind == NODE_ITEM && !n->b) return qn_text_tpl_parse_fail(p, n->line, "an index is missing", TPL_NOTHING);
    return qn_text_tpl_want_op(p, "]") ? n : NULL;
}

/* .name, [index] and (arguments), as many as there are. */
static tpl_node *parse_postfix(tpl_parser *p, tpl_node *n) {
    while (n && !p->t->failed) {
        int line = p->now.line;
        if (qn_text_tpl_at_op(p, ".")) {
            qn_text_tpl_advance(p);
            tpl_node *of = n;
            if (p->now.kind == T_INT) { /* a.0 is a[0] */
                n = two(p, NODE_ITEM, 0, of, parse_number(p));
                continue;
            }
            if (p->now.kind != T_NAME) return qn_text_tpl_parse_fail(p, line, "a name is missing behind '.'", TPL_NOTHING);
            n = qn_text_tpl_parse_node(p, NODE_ATTRIBUTE, line);
            if (n) n->a = of, n->text = p->now.text;
            qn_text_tpl_advance(p);
        } else if (qn_text_tpl_at_op(p, "[")) {
            n = parse_subscript(p, n);
        } else if (qn_text_tpl_at_op(p, "(")) {
            tpl_node *of = n;
            n = qn_text_tpl_parse_node(p, NODE_CALL, line);
            qn_text_tpl_advance(p);
            if (n) n->a = of, n = parse_arguments(p, n);
        } else {
            return n;
        }
    }
    return NULL;
}

/* |filter and |filter(arguments). */
tpl_node *qn_text_tpl_parse_filter(tpl_parser *p, tpl_node *of) {
    tpl_node *n = qn_text_tpl_parse_node(p, NODE_FILTER, p->now.line);
    if (!n || p->now.kind != T_NAME)
        return qn_text_tpl_parse_fail(p, p->now.line, "the name of a filter is missing", TPL_NOTHING);
    n->a = of;
    n->text = p->now.text;
    n->builtin = qn_text_tpl_find_filter(n->text);
    if (!n->builtin) return qn_text_tpl_parse_fail(p, n->line, "a filter that is not known:", n->text);
    qn_text_tpl_advance(p);
    if (qn_text_tpl_take_op(p, "(")) return parse_arguments(p, n);
    return n;
}

/* is test, is not test, is test argument, is test(arguments). */
static tpl_node *parse_test(tpl_parser *p, tpl_node *of) {
    tpl_node *n = qn_text_tpl_parse_node(p, NODE_TEST, p->now.line);
    if (!n) return NULL;
    n->a = of;
    n->op = qn_text_tpl_take_name(p, "not");
    if (p->now.kind != T_NAME) return qn_text_tpl_parse_fail(p, p->now.line, "the name of a test is missing", TPL_NOTHING);
    n->text = p->now.text;
    n->builtin = qn_text_tpl_find_test(n->text);
    if (!n->builtin) return qn_text_tpl_parse_fail(p, n->line, "a test that is not known:", n->text);
    qn_text_tpl_advance(p);
    if (qn_text_tpl_take_op(p, "(")) return parse_arguments(p, n);
    int word = p->now.kind == T_NAME && !qn_text_tpl_at_name(p, "else") && !qn_text_tpl_at_name(p, "or") &&
               !qn_text_tpl_at_name(p, "and") && !qn_text_tpl_at_name(p, "is") && !qn_text_tpl_at_name(p, "if");
    if (word || p->now.kind == T_STRING || p->now.kind == T_INT || p->now.kind == T_FLOAT || qn_text_tpl_at_op(p, "[") ||
        qn_text_tpl_at_op(p, "{")) {
        n->parts = qn_text_tpl_parse_node(p, NODE_BODY, p->now.line);
        if (n->parts) n->parts->a = parse_postfix(p, parse_primary(p));
    }
    return n;
}

static tpl_node *parse_filters(tpl_parser *p, tpl_node *n) {
    while (n && !p->t->failed) {
        if (qn_text_tpl_take_op(p, "|")) n = qn_text_tpl_parse_filter(p, n);
        else if (qn_text_tpl_take_name(p, "is")) n = parse_test(p, n);
        else if (qn_text_tpl_at_op(p, "(")) n = parse_postfix(p, n);
        else return n;
    }
    return NULL;
}

static tpl_node *parse_signed(tpl_parser *p, int filters) {
    int line = p->now.line, minus = qn_text_tpl_at_op(p, "-");
    tpl_node *n;
    if (minus || qn_text_tpl_at_op(p, "+")) {
        qn_text_tpl_advance(p);
        if (++p->depth > TPL_MOST_NESTING) return qn_text_tpl_parse_fail(p, line, "nested too deeply", TPL_NOTHING);
        tpl_node *a = parse_signed(p, 0);
        p->depth--;
        n = a ? qn_text_tpl_parse_node(p, NODE_UNARY, line) : NULL;
        if (n) n->op = minus ? OP_SUB : OP_ADD, n->a = a;
    } else {
        n = parse_postfix(p, parse_primary(p));
    }
    return filters ? parse_filters(p, n) : n;
}

typedef struct level {
    const char *token;
    int op;
} level;

/* Left to right: operators of one strength. */
static tpl_node *parse_level(tpl_parser *p, const level *ops, size_t n_ops, tpl_node *(*tighter)(tpl_parser *)) {
    tpl_node *n = tighter(p);
    for (size_t i = 0; n && i < n_ops;) {
        if (!qn_text_tpl_at_op(p, ops[i].token)) {
            i++;
            continue;
        }
        qn_text_tpl_advance(p);
        n = two(p, NODE_BINARY, ops[i].op, n, tighter(p));
        i = 0;
    }
    return n;
}

static tpl_node *parse_power(tpl_parser *p) {
    tpl_node *n = parse_signed(p, 1);
    while (n && qn_text_tpl_take_op(p, "**")) n = two(p, NODE_BINARY, OP_POW, n, parse_signed(p, 1));
    return n;
}

static tpl_node *parse_product(tpl_parser *p) {
    static const level OPS[] = {{"*", OP_MUL}, {"/", OP_DIV}, {"//", OP_FLOOR}, {"%", OP_MOD}};
    return parse_level(p, OPS, 4, parse_power);
}

static tpl_node *parse_concat(tpl_parser *p) {
    static const level OPS[] = {{"~", OP_CONCAT}};
    return parse_level(p, OPS, 1, parse_product);
}

static tpl_node *parse_sum(tpl_parser *p) {
    static const level OPS[] = {{"+", OP_ADD}, {"-", OP_SUB}};
    return parse_level(p, OPS, 2, parse_concat);
}

static tpl_node *parse_compare(tpl_parser *p) {
    static const level OPS[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<", OP_LT}, {"<=", OP_LE}, {">", OP_GT}, {">=", OP_GE}};
    tpl_node *first = parse_sum(p), *compare = NULL, **last = NULL;
    while (first && !p->t->failed) {
        int op = 0;
        for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++)
            if (qn_text_tpl_at_op(p, OPS[i].token)) op = OPS[i].op;
        if (qn_text_tpl_at_name(p, "in")) op = OP_IN;
        if (op) qn_text_tpl_advance(p);
        if (!op && qn_text_tpl_at_name(p, "not")) { /* only "not in" can stand here */
            qn_text_tpl_advance(p);
            if (!qn_text_tpl_take_name(p, "in"))
                return qn_text_tpl_parse_fail(p, p->now.line, "'in' is missing behind 'not'", TPL_NOTHING);
            op = OP_NOT_IN;
        }
        if (!op) break;
        if (!compare) {
            compare = qn_text_tpl_parse_node(p, NODE_COMPARE, first->line);
            if (!compare) return NULL;
            compare->a = first;
            last = &compare->parts;
        }
        tpl_node *part = qn_text_tpl_parse_node(p, NODE_BODY, p->now.line);
        if (!part) return NULL;
        part->op = op;
        part->a = parse_sum(p);
        *last = part;
        last = &part->next;
    }
    return p->t->failed ? NULL : compare ? compare : first;
}

static tpl_node *parse_not(tpl_parser *p) {
    if (!qn_text_tpl_at_name(p, "not")) return parse_compare(p);
    tpl_node *n = qn_text_tpl_parse_node(p, NODE_NOT, p->now.line);
    qn_text_tpl_advance(p);
    if (n) n->a = deeper(p, parse_not);
    return n && n->a ? n : NULL;
}

static tpl_node *parse_and(tpl_parser *p) {
    tpl_node *n = parse_not(p);
    while (n && qn_text_tpl_take_name(p, "and")) n = two(p, NODE_AND, 0, n, parse_not(p));
    return n;
}

tpl_node *qn_text_tpl_parse_or(tpl_parser *p) {
    tpl_node *n = parse_and(p);
    while (n && qn_text_tpl_take_name(p, "or")) n = two(p, NODE_OR, 0, n, parse_and(p));
    return n;
}

tpl_node *qn_text_tpl_parse_expression(tpl_parser *p) {
    tpl_node *n = qn_text_tpl_parse_or(p);
    while (n && qn_text_tpl_at_name(p, "if")) {
        tpl_node *choose = qn_text_tpl_parse_node(p, NODE_CHOOSE, p->now.line);
        qn_text_tpl_advance(p);
        if (!choose) return NULL;
        choose->a = n;
        choose->b = qn_text_tpl_parse_or(p);
        if (choose->b && qn_text_tpl_take_name(p, "else")) choose->c = deeper(p, qn_text_tpl_parse_expression);
        n = choose;
    }
    return p->t->failed ? NULL : n;
}

tpl_node *qn_text_tpl_parse_postfix(tpl_parser *p) { return parse_postfix(p, parse_primary(p)); }
