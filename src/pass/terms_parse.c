/* Texts of rules into terms. They are rows of our own tables, so what is wrong with one is said to whoever wrote it, by a test.
 */
#include <stdio.h>

#include "base/decimal.h"
#include "pass/terms.h"

typedef struct reader {
    const char *at, *begin;
    qn_rule *rule;
    int in_pattern;
    char *why;
    size_t size;
    int failed;
} reader;

static int fail(reader *r, const char *what) {
    if (!r->failed) snprintf(r->why, r->size, "%s at '%.20s' of \"%s\"", what, r->at, r->begin);
    r->failed = 1;
    return -1;
}

static void blanks(reader *r) {
    while (*r->at == ' ' || *r->at == '\n') r->at++;
}

static int accept(reader *r, char c) {
    blanks(r);
    if (*r->at != c) return 0;
    r->at++;
    return 1;
}

static int is_letter(char c) { return (c >= 'a' && c <= 'z') || c == '_'; }
static int is_digit(char c) { return c >= '0' && c <= '9'; }

/* A word's length at the cursor, which goes behind it. */
static size_t word(reader *r, const char **begin) {
    blanks(r);
    *begin = r->at;
    while (is_letter(*r->at) || (r->at > *begin && is_digit(*r->at))) r->at++;
    return (size_t)(r->at - *begin);
}

/* Number of a name in a list, a new one when the text may introduce it. */
static int name_index(reader *r, char (*names)[8], int *n, int most, int may_add) {
    const char *begin;
    size_t length = word(r, &begin);
    if (length == 0 || length > 7) return fail(r, "a name of one to seven letters is needed");
    for (int i = 0; i < *n; i++)
        if (strlen(names[i]) == length && memcmp(names[i], begin, length) == 0) return i;
    if (!may_add) return fail(r, "a name that the pattern does not have");
    if (*n == most) return fail(r, "too many names");
    memcpy(names[*n], begin, length);
    names[*n][length] = 0;
    return (*n)++;
}

static int variable(reader *r) { return name_index(r, r->rule->var_name, &r->rule->n_vars, QN_RULE_VARS, r->in_pattern); }

static int value(reader *r) { return name_index(r, r->rule->value_name, &r->rule->n_values, QN_RULE_VALUES, r->in_pattern); }

/* ---- Expressions */

static int new_expr(reader *r, qn_expr_kind kind) {
    if (r->rule->n_exprs == QN_RULE_EXPRS) return fail(r, "too many expressions");
    memset(&r->rule->expr[r->rule->n_exprs], 0, sizeof r->rule->expr[0]);
    r->rule->expr[r->rule->n_exprs].kind = kind;
    return r->rule->n_exprs++;
}

static int number(reader *r, double *v) {
    blanks(r);
    size_t sign = *r->at == '-', n = sign + strspn(r->at + sign, "0123456789.");
    if (n == sign) return fail(r, "a number is needed");
    *v = qn_decimal_read(r->at, n);
    r->at += n;
    return 0;
}

static int expression(reader *r);

static int call(reader *r, const char *name, size_t length) {
    int e = new_expr(r, QN_EXPR_CALL), function = qn_rule_call_find(name, length);
    if (e < 0) return e;
    if (function < 0) return fail(r, "there is no such function");
    r->rule->expr[e].index = function;
    while (!accept(r, ')')) {
        int n = r->rule->expr[e].n_args, arg = expression(r);
        if (arg < 0) return arg;
        if (n == QN_RULE_CALL_ARGS) return fail(r, "too many arguments");
        r->rule->expr[e].arg[n] = arg;
        r->rule->expr[e].n_args++;
        accept(r, ',');
    }
    if (r->rule->expr[e].n_args != qn_rule_call_at(function)->n_args) return fail(r, "another number of arguments is needed");
    return e;
}

static int expression(reader *r) {
    int e;
    blanks(r);
    if (accept(r, '$')) {
        if ((e = new_expr(r, QN_EXPR_VAR)) < 0) return e;
        return (r->rule->expr[e].index = variable(r)) < 0 ? -1 : e;
    }
    if (!is_letter(*r->at)) {
        if ((e = new_expr(r, QN_EXPR_NUMBER)) < 0) return e;
        return number(r, &r->rule->expr[e].number) < 0 ? -1 : e;
    }
    const char *begin, *before = r->at;
    size_t length = word(r, &begin);
    if (accept(r, '(')) return call(r, begin, length);
    char name[8] = "";
    if (length < sizeof name) memcpy(name, begin, length);
    qn_dtype dtype = qn_dtype_from_name(name);
    if (dtype != QN_DTYPE_NONE) {
        if ((e = new_expr(r, QN_EXPR_NUMBER)) < 0) return e;
        r->rule->expr[e].number = (double)dtype;
        return e;
    }
    r->at = before;
    if ((e = new_expr(r, QN_EXPR_VALUE)) < 0) return e;
    return (r->rule->expr[e].index = value(r)) < 0 ? -1 : e;
}

/* ---- Terms */

static int new_term(reader *r, qn_term_kind kind) {
    if (r->rule->n_terms == QN_RULE_TERMS) return fail(r, "too many terms");
    qn_term *t = &r->rule->term[r->rule->n_terms];
    memset(t, 0, sizeof *t);
    t->kind = (uint8_t)kind;
    t->subop_var = t->index = -1;
    t->other = -1;
    return r->rule->n_terms++;
}

static int sign(reader *r, qn_term *t) {
    static const struct {
        char sign;
        int seed, subop, commutes;
    } signs[] = {{'+', QN_OP_add, QN_ARITH_add, 1},
                 {'-', QN_OP_sub, QN_ARITH_sub, 0},
                 {'*', QN_OP_mul, QN_ARITH_mul, 1},
                 {'/', QN_OP_div, QN_ARITH_div, 0}};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        if (!accept(r, signs[i].sign)) continue;
        t->op = QN_OP_arith;
        t->subop = (int16_t)signs[i].subop;
        t->other = (int16_t)signs[i].seed;
        t->commutes = (int8_t)signs[i].commutes;
        return 1;
    }
    return 0;
}

static int op_name(reader *r, qn_term *t) {
    char text[40] = "";
    const char *begin;
    if (sign(r, t)) return 0;
    size_t length = word(r, &begin);
    if (length < sizeof text) memcpy(text, begin, length);
    t->op = (int16_t)qn_op_from_name(text);
    if (t->op < 0) return fail(r, "there is no such op");
    if (*r->at != '.') return qn_subop_count(t->op) ? fail(r, "a sub-op is needed") : 0;
    r->at++;
    if (accept(r, '?')) {
        t->subop = -1;
        return (t->subop_var = (int8_t)variable(r)) < 0 ? -1 : 0;
    }
    memset(text, 0, sizeof text);
    length = word(r, &begin);
    if (length < sizeof text) memcpy(text, begin, length);
    t->subop = (int16_t)qn_subop_from_name(t->op, text);
    return t->subop < 0 ? fail(r, "there is no such sub-op") : 0;
}

static int attributes(reader *r, qn_term *t) {
    const qn_op_info *info = qn_op_describe(t->op);
    while (!accept(r, '}')) {
        const char *begin;
        if (accept(r, '.')) {
            if (!accept(r, '.')) return fail(r, "'..' has two dots");
            t->rest = 1;
            accept(r, ',');
            continue;
        }
        size_t length = word(r, &begin);
        int i = 0;
        while (i < info->n_attr && (strlen(info->attr[i].name) != length || memcmp(info->attr[i].name, begin, length) != 0)) i++;
        if (i == info->n_attr || !accept(r, '=')) return fail(r, "the op has no such attribute");
        if (t->n_attr == QN_RULE_ATTRS) return fail(r, "too many attributes");
        int e = expression(r);
        if (e < 0) return e;
        qn_expr_kind kind = r->rule->expr[e].kind;
        if (r->in_pattern && kind != QN_EXPR_NUMBER && kind != QN_EXPR_VAR)
            return fail(r, "a pattern has numbers and variables here");
        t->attr[t->n_attr++] = (qn_term_attr){(int8_t)i, (int8_t)e};
        accept(r, ',');
    }
    return 0;
}

static int term(reader *r);

/* What stands before a node: which of its outputs may have other users, which of several it is. */
typedef struct prefix {
    int tee, many, output;
} prefix;

static int node(reader *r, prefix p) {
    int at = new_term(r, QN_TERM_NODE);
    if (at < 0 || op_name(r, &r->rule->term[at]) < 0) return -1;
    qn_term *t = &r->rule->term[at];
    t->tee = (int8_t)p.tee;
    t->many = (int8_t)p.many;
    t->output = (int8_t)p.output;
    while (!accept(r, ')')) {
        if (accept(r, '{')) {
            if (attributes(r, t) < 0) return -1;
            continue;
        }
        if (!*r->at) return fail(r, "')' is missing");
        int arg = term(r);
        if (arg < 0) return arg;
        if (t->n_args == qn_op_describe(t->op)->n_src || t->n_args == QN_RULE_ARGS) return fail(r, "the op has fewer sources");
        t->arg[t->n_args++] = (int8_t)arg;
    }
    return at;
}

static int splat(reader *r) {
    int at = new_term(r, QN_TERM_SPLAT);
    if (at < 0) return at;
    if (is_letter(*r->at)) return (r->rule->term[at].index = (int8_t)variable(r)) < 0 ? -1 : at;
    return number(r, &r->rule->term[at].number) < 0 ? -1 : at;
}

static int numbers(reader *r) {
    int at = new_term(r, QN_TERM_NUMBERS);
    if (at < 0 || !accept(r, '(')) return at < 0 ? at : fail(r, "a replacement's constants are lists");
    while (!accept(r, ')')) {
        int e = expression(r);
        if (e < 0) return e;
        if (r->rule->term[at].n_attr == QN_RULE_ATTRS) return fail(r, "too many numbers");
        r->rule->term[at].attr[r->rule->term[at].n_attr++] = (qn_term_attr){-1, (int8_t)e};
        accept(r, ',');
    }
    return r->rule->term[at].n_attr ? at : fail(r, "a number is needed");
}

/* 0 and a failure when there is something before something that is no node. */
static int prefixed(reader *r, prefix *p) {
    *p = (prefix){0, 0, 0};
    if (accept(r, '^')) {
        p->many = is_digit(*r->at);
        p->tee = 1 << (p->many ? *r->at++ - '0' : 0);
        if (p->tee > 64) return fail(r, "no op has so many outputs") >= 0;
    } else if (accept(r, '@')) {
        if (!is_digit(*r->at)) return fail(r, "'@' stands before a digit") >= 0;
        p->many = 1;
        p->output = *r->at++ - '0';
    }
    blanks(r);
    return !(p->tee || p->many) || *r->at == '(' || fail(r, "'^' and '@' stand before a node") >= 0;
}

static int term(reader *r) {
    prefix p;
    if (!prefixed(r, &p)) return -1;
    if (accept(r, '(')) return node(r, p);
    if (accept(r, '#')) return r->in_pattern ? splat(r) : numbers(r);
    blanks(r);
    if (*r->at == '_' && !is_letter(r->at[1])) {
        r->at++;
        return new_term(r, QN_TERM_ABSENT);
    }
    int at = new_term(r, QN_TERM_VALUE);
    if (at < 0 || (r->rule->term[at].index = (int8_t)value(r)) < 0) return -1;
    r->rule->term[at].optional = *r->at == '?';
    r->at += r->rule->term[at].optional;
    return at;
}

static int whole_term(reader *r, const char *text, int in_pattern) {
    r->at = r->begin = text;
    r->in_pattern = in_pattern;
    int at = term(r);
    blanks(r);
    return at >= 0 && *r->at ? fail(r, "something follows") : at;
}

int qn_rule_parse(const char *name, int when, const char *pattern, const char *replacement, const char *conditions, qn_rule *rule,
                  char *why, size_t size) {
    reader r = {.rule = rule, .why = why, .size = size};
    memset(rule, 0, sizeof *rule);
    rule->name = name;
    rule->when = when;
    if ((rule->pattern = whole_term(&r, pattern, 1)) < 0) return 0;
    if (rule->term[rule->pattern].kind != QN_TERM_NODE) return fail(&r, "a pattern is a node") > 0;
    if ((rule->replacement = whole_term(&r, replacement, 0)) < 0) return 0;
    r.at = r.begin = conditions;
    for (blanks(&r); *r.at && !r.failed; accept(&r, ','), blanks(&r)) {
        if (rule->n_conditions == QN_RULE_CONDITIONS) return fail(&r, "too many conditions") > 0;
        rule->condition[rule->n_conditions++] = expression(&r);
    }
    return !r.failed;
}
