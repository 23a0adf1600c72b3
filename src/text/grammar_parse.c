/* GBNF to a tree: rules of literals, classes, tokens, references, groups, choices and repetitions. Errors name line and
 * column. */
#include "text/grammar_parts.h"
#include "text/utf8.h"

typedef struct parser {
    grammar_tree *tree;
    const qn_tokenizer *t;
    const char *begin, *at, *end;
    token_texts names; /* of rules, for the map */
    token_map map;
    int depth;
    qn_error *error;
} parser;

static qn_status fault(parser *p, const char *at, const char *why) {
    int line = 1, column = 1;
    for (const char *c = p->begin; c < at; c++) {
        column++;
        if (*c == '\n') line++, column = 1;
    }
    return qn_error_set(p->error, QN_INVALID, "grammar %d:%d: %s", line, column, why);
}

static qn_status no_memory(parser *p) { return qn_error_set(p->error, QN_NO_MEMORY, "no memory for the grammar"); }

static int more(const parser *p) { return p->at < p->end; }

static int peek(const parser *p) { return p->at < p->end ? (unsigned char)*p->at : -1; }

/* White space and comments; line ends only where they mean nothing. */
static void skip(parser *p, int lines) {
    while (more(p)) {
        if (*p->at == '#')
            while (more(p) && *p->at != '\n' && *p->at != '\r') p->at++;
        else if (*p->at == ' ' || *p->at == '\t' || (lines && (*p->at == '\n' || *p->at == '\r'))) p->at++;
        else break;
    }
}

static int is_word(int c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static tree_node *new_node(parser *p, tree_kind kind) {
    tree_node *node = qn_arena_alloc(p->tree->arena, 1, sizeof *node);
    if (node) node->kind = kind;
    return node;
}

/* The number of a rule, which need not be defined yet. */
static qn_status rule_number(parser *p, const char *name, size_t n, int32_t *number) {
    *number = qn_text_map_find(&p->map, name, n);
    if (*number >= 0) return QN_OK;
    if (p->tree->rules.n >= GRAMMAR_MOST_RULES) return fault(p, name, "more rules than there is room for");
    if (!QN_VEC_ROOM(p->tree->arena, &p->tree->rules, 1)) return no_memory(p);
    *number = qn_text_texts_add(&p->names, p->tree->arena, name, n);
    if (*number < 0) return no_memory(p);
    if (qn_text_map_add(&p->map, *number) < 0) return fault(p, name, "names of rules that no honest grammar has");
    p->tree->rules.at[p->tree->rules.n++] = (tree_rule){name, n, NULL};
    return QN_OK;
}

static int hex_value(int c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static qn_status read_hex(parser *p, int digits, uint32_t *code) {
    const char *from = p->at - 2;
    *code = 0;
    for (int i = 0; i < digits; i++) {
        int value = hex_value(peek(p));
        if (value < 0) return fault(p, from, "an escape with too few hexadecimal digits");
        *code = *code << 4 | (uint32_t)value;
        p->at++;
    }
    if (*code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000)) return fault(p, from, "an escape that names no character");
    return QN_OK;
}

/* One character of a literal or class, escaped or not. */
static qn_status read_character(parser *p, uint32_t *code) {
    if (peek(p) != '\\') {
        size_t n = qn_text_utf8_read(p->at, (size_t)(p->end - p->at), code);
        if (!n) return fault(p, p->at, "bytes that are no UTF-8");
        p->at += n;
        return QN_OK;
    }
    static const char PLAIN[][2] = {{'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'"', '"'}, {'\\', '\\'},
                                    {'[', '['},  {']', ']'},  {'-', '-'},  {'^', '^'}};
    p->at += 2;
    int kind = p->at <= p->end ? (unsigned char)p->at[-1] : -1;
    if (kind == 'x') return read_hex(p, 2, code);
    if (kind == 'u') return read_hex(p, 4, code);
    if (kind == 'U') return read_hex(p, 8, code);
    for (size_t i = 0; i < sizeof PLAIN / sizeof *PLAIN; i++) {
        if (kind == PLAIN[i][0]) {
            *code = (unsigned char)PLAIN[i][1];
            return QN_OK;
        }
    }
    p->at = p->at <= p->end ? p->at : p->end;
    return fault(p, p->at, "an escape that is not known");
}

static qn_status parse_literal(parser *p, tree_node **out) {
    const char *from = p->at++;
    QN_VEC(char) bytes = {0};
    while (peek(p) != '"') {
        uint32_t code;
        if (!more(p)) return fault(p, from, "a literal without its end");
        qn_status status = read_character(p, &code);
        if (status != QN_OK) return status;
        if (!QN_VEC_ROOM(p->tree->arena, &bytes, 4)) return no_memory(p);
        bytes.n += qn_text_utf8_write(code, bytes.at + bytes.n);
    }
    p->at++;
    if (!(*out = new_node(p, TREE_LITERAL))) return no_memory(p);
    (*out)->bytes = bytes.at;
    (*out)->n = bytes.n;
    return QN_OK;
}

static qn_status parse_class(parser *p, tree_node **out) {
    const char *from = p->at++;
    QN_VEC(code_range) ranges = {0};
    if (!(*out = new_node(p, TREE_CLASS))) return no_memory(p);
    if (peek(p) == '^') (*out)->inverted = 1, p->at++;
    while (peek(p) != ']') {
        code_range r;
        if (!more(p)) return fault(p, from, "a class without its end");
        qn_status status = read_character(p, &r.low);
        r.high = r.low;
        if (status == QN_OK && peek(p) == '-' && p->at + 1 < p->end && p->at[1] != ']') {
            p->at++;
            status = read_character(p, &r.high);
        }
        if (status != QN_OK) return status;
        if (r.high < r.low) return fault(p, from, "a class with a range that runs backwards");
        if (!QN_VEC_ROOM(p->tree->arena, &ranges, 1)) return no_memory(p);
        ranges.at[ranges.n++] = r;
    }
    p->at++;
    (*out)->range = ranges.at;
    (*out)->n = ranges.n;
    return QN_OK;
}

/* <[1000]> by number or <think> by text, ! in front for any other. */
static qn_status parse_token(parser *p, tree_node **out) {
    const char *from = p->at;
    if (!(*out = new_node(p, TREE_TOKEN))) return no_memory(p);
    if (peek(p) == '!') (*out)->inverted = 1, p->at++;
    if (peek(p) != '<') return fault(p, from, "'!' stands before tokens only, as in !<think>");
    const char *open = p->at++, *close = memchr(p->at, '>', (size_t)(p->end - p->at));
    if (!close || !p->t) return fault(p, from, p->t ? "a token without its '>'" : "a token where there is no vocabulary");
    int64_t id = -1;
    if (peek(p) == '[') {
        id = 0;
        for (p->at++; peek(p) >= '0' && peek(p) <= '9' && id < INT32_MAX; p->at++) id = id * 10 + (*p->at - '0');
        if (peek(p) != ']' || p->at + 1 != close || p->at[-1] == '[') return fault(p, from, "a token number is written <[1000]>");
    } else {
        int32_t ids[2];
        size_t n = 0;
        if (qn_tokenizer_encode(p->t, open, (size_t)(close + 1 - open), QN_ENCODE_SPECIAL, ids, 2, &n, NULL) == QN_OK && n == 1)
            id = ids[0];
    }
    if (id < 0 || id >= p->t->n_tokens) return fault(p, from, "the vocabulary has no such token");
    (*out)->rule = (int32_t)id;
    p->at = close + 1;
    return QN_OK;
}

static qn_status parse_choice(parser *p, int nested, tree_node **out);

static qn_status parse_group(parser *p, tree_node **out) {
    const char *from = p->at++;
    if (++p->depth > GRAMMAR_MOST_DEPTH) return fault(p, from, "parentheses are nested too deeply");
    skip(p, 1);
    qn_status status = parse_choice(p, 1, out);
    if (status != QN_OK) return status;
    if (peek(p) != ')') return fault(p, from, "a '(' without its ')'");
    p->at++;
    p->depth--;
    return QN_OK;
}

static qn_status parse_reference(parser *p, tree_node **out) {
    const char *from = p->at;
    while (is_word(peek(p))) p->at++;
    if (!(*out = new_node(p, TREE_RULE))) return no_memory(p);
    return rule_number(p, from, (size_t)(p->at - from), &(*out)->rule);
}

static qn_status read_count(parser *p, int32_t *count) {
    int64_t value = 0;
    const char *from = p->at;
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++) {
        value = value * 10 + (*p->at - '0');
        if (value > GRAMMAR_MOST_REPEAT) return fault(p, from, "more than 65536 repetitions");
    }
    if (p->at == from) return fault(p, from, "a number of repetitions is missing");
    *count = (int32_t)value;
    return QN_OK;
}

/* {m}, {m,}, {m,n}, {,n} */
static qn_status parse_counts(parser *p, int32_t *least, int32_t *most) {
    const char *from = p->at++;
    qn_status status = QN_OK;
    skip(p, 0);
    *least = 0;
    if (peek(p) != ',') status = read_count(p, least);
    *most = *least;
    skip(p, 0);
    if (status == QN_OK && peek(p) == ',') {
        p->at++;
        skip(p, 0);
        *most = -1;
        if (peek(p) != '}') status = read_count(p, most);
        skip(p, 0);
    }
    if (status != QN_OK) return status;
    if (peek(p) != '}') return fault(p, from, "a '{' without its '}'");
    if (*most >= 0 && *most < *least) return fault(p, from, "repetitions with the greater number first");
    p->at++;
    return QN_OK;
}

static qn_status parse_repeats(parser *p, int nested, tree_node **node) {
    for (;;) {
        int32_t least = 0, most = -1;
        int c = peek(p);
        if (c != '*' && c != '+' && c != '?' && c != '{') return QN_OK;
        if (c == '{') {
            qn_status status = parse_counts(p, &least, &most);
            if (status != QN_OK) return status;
        } else {
            p->at++;
            least = c == '+';
            most = c == '?' ? 1 : -1;
        }
        tree_node *repeat = new_node(p, TREE_REPEAT);
        if (!repeat) return no_memory(p);
        if ((*node)->kind == TREE_REPEAT && ++p->depth > GRAMMAR_MOST_DEPTH)
            return fault(p, p->at, "repetitions are nested too deeply");
        repeat->least = least;
        repeat->most = most;
        repeat->first = *node;
        *node = repeat;
        skip(p, nested);
    }
}

static int starts_item(int c) { return c == '"' || c == '[' || c == '(' || c == '.' || c == '<' || c == '!' || is_word(c); }

static qn_status parse_item(parser *p, tree_node **out) {
    int c = peek(p);
    if (c == '"') return parse_literal(p, out);
    if (c == '[') return parse_class(p, out);
    if (c == '(') return parse_group(p, out);
    if (c == '<' || c == '!') return parse_token(p, out);
    if (c != '.') return parse_reference(p, out);
    p->at++;
    if (!(*out = new_node(p, TREE_CLASS))) return no_memory(p);
    (*out)->inverted = 1; /* anything that is not nothing */
    return QN_OK;
}

static qn_status parse_sequence(parser *p, int nested, tree_node **out) {
    tree_node **last;
    if (!(*out = new_node(p, TREE_SEQUENCE))) return no_memory(p);
    last = &(*out)->first;
    while (starts_item(peek(p))) {
        int depth = p->depth;
        qn_status status = parse_item(p, last);
        skip(p, nested);
        if (status == QN_OK) status = parse_repeats(p, nested, last);
        if (status != QN_OK) return status;
        p->depth = depth;
        skip(p, nested);
        last = &(*last)->next;
    }
    return QN_OK;
}

static qn_status parse_choice(parser *p, int nested, tree_node **out) {
    tree_node **last;
    if (!(*out = new_node(p, TREE_CHOICE))) return no_memory(p);
    last = &(*out)->first;
    for (;;) {
        qn_status status = parse_sequence(p, nested, last);
        if (status != QN_OK) return status;
        if (peek(p) != '|') return QN_OK;
        p->at++;
        skip(p, 1);
        last = &(*last)->next;
    }
}

static qn_status parse_rule(parser *p) {
    const char *from = p->at;
    while (is_word(peek(p))) p->at++;
    size_t n = (size_t)(p->at - from);
    if (!n) return fault(p, from, "a rule starts with its name");
    int32_t number;
    qn_status status = rule_number(p, from, n, &number);
    if (status != QN_OK) return status;
    skip(p, 0);
    if (p->end - p->at < 3 || memcmp(p->at, "::=", 3) != 0) return fault(p, p->at, "'::=' is missing behind the name of a rule");
    p->at += 3;
    skip(p, 1);
    tree_node *body = NULL;
    status = parse_choice(p, 0, &body);
    if (status != QN_OK) return status;
    if (more(p) && *p->at != '\n' && *p->at != '\r') return fault(p, p->at, "nothing that can stand in a rule");
    if (p->tree->rules.at[number].body) return fault(p, from, "a rule that is there already");
    p->tree->rules.at[number].body = body;
    return QN_OK;
}

qn_status qn_text_grammar_parse(grammar_tree *tree, qn_text text, const qn_tokenizer *t, qn_error *error) {
    parser p = {.tree = tree, .t = t, .begin = text.at, .at = text.at, .end = text.at + text.length, .error = error};
    if (text.length > GRAMMAR_MOST_TEXT)
        return qn_error_set(error, QN_INVALID, "a grammar of %zu bytes; at most %d are taken", text.length, GRAMMAR_MOST_TEXT);
    size_t most = text.length / 2 + 2 < GRAMMAR_MOST_RULES ? text.length / 2 + 2
                                                           : GRAMMAR_MOST_RULES; /* a name and what ends it */
    int32_t root;
    if (!qn_text_map_init(&p.map, tree->arena, most, &p.names)) return no_memory(&p);
    qn_status status = rule_number(&p, "root", 4, &root);
    if (status != QN_OK) return status;
    for (skip(&p, 1); more(&p); skip(&p, 1)) {
        status = parse_rule(&p);
        if (status != QN_OK) return status;
    }
    for (size_t i = 0; i < tree->rules.n; i++) {
        const tree_rule *r = &tree->rules.at[i];
        if (!r->body)
            return qn_error_set(error, QN_INVALID, "grammar: rule '%.*s' is used and not defined", r->n > 80 ? 80 : (int)r->n,
                                r->name);
    }
    return QN_OK;
}
