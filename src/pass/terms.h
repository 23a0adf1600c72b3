/* Rules as text. A rule is a pattern, a replacement and conditions, written as terms:
 *
 *   x                            any value; the same name again is the same value; x? may also be left out
 *   (op.sub term term {attr=v})  a node; sources that are left out are written _
 *   (+ a b) (- a b) (* a b) (/ a b)   the seed's op or arith's; + and * match either way round
 *   #1.5                         a constant whose elements are all 1.5; -0 is not 0
 *   #c                           a constant whose elements are all alike; $c is their value
 *   .?f                          any sub-op; $f is its number
 *   ^(op ..)                     a node that may have other users: its value is also an output of the replacement, the next
 *                                after those before it
 *   @1(op ..)                    output 1 of a node with several; without, a node has one
 *   ^1(op ..)                    output 0 of a node whose output 1, if it has one, may have other users, and is treated as ^ says
 *   #(e, e, ..)                  in a replacement: a constant of one axis, with the numbers of these expressions, of the dtype of
 *                                the result
 *
 * An attribute is matched by a number, a dtype's name or a variable $a. One that is not mentioned must have its default, so
 * that no rule overlooks one; {..} takes all that are not mentioned, whatever they are, and in a replacement gives them to the
 * attributes of the same names. There attributes are expressions: numbers, variables and functions of variables and values,
 * f($a, x). Conditions are functions as well, separated by commas. Functions are in rule_calls.def.
 *
 * Patterns are trees, but a term that is written twice may be one node. A root with several outputs is replaced by an op with as
 * many, in their order. A match says nothing about other users of what lies inside it: that is the business of who applies it. */
#ifndef QN_PASS_TERMS_H
#define QN_PASS_TERMS_H

#include "pass/pass.h"

enum {
    QN_RULE_TERMS = 40, /* of pattern and replacement together */
    QN_RULE_NODES = 12, /* of a pattern */
    QN_RULE_ARGS = 10,  /* sources of a node that a rule can speak of */
    QN_RULE_VALUES = 12,
    QN_RULE_VARS = 12,
    QN_RULE_ATTRS = 6,
    QN_RULE_EXPRS = 24,
    QN_RULE_CALL_ARGS = 4,
    QN_RULE_CONDITIONS = 4
};

/* A number, or a list of them; what an attribute holds or a function gives. */
typedef struct qn_rule_value {
    int is_list;
    double f;  /* of a number */
    int64_t i; /* of a number that is whole, an extent or a dtype */
    qn_dims list;
} qn_rule_value;

typedef enum qn_expr_kind { QN_EXPR_NUMBER, QN_EXPR_VAR, QN_EXPR_VALUE, QN_EXPR_CALL } qn_expr_kind;

typedef struct qn_expr {
    qn_expr_kind kind;
    double number;
    int index; /* of a variable, a value, or a function */
    int n_args, arg[QN_RULE_CALL_ARGS];
} qn_expr;

typedef struct qn_term_attr {
    int8_t attr; /* number in the op's table */
    int8_t expr; /* in a pattern a number or a variable */
} qn_term_attr;

typedef enum qn_term_kind { QN_TERM_VALUE, QN_TERM_ABSENT, QN_TERM_SPLAT, QN_TERM_NUMBERS, QN_TERM_NODE } qn_term_kind;

typedef struct qn_term {
    uint8_t kind;          /* qn_term_kind */
    int8_t index;          /* QN_TERM_VALUE: which; QN_TERM_SPLAT: the variable, or -1 for the number */
    int8_t optional;       /* QN_TERM_VALUE */
    double number;         /* QN_TERM_SPLAT */
    int16_t op;            /* QN_TERM_NODE, and all below */
    int16_t subop;         /* -1: any */
    int16_t other;         /* + - * /: the seed's op as well, else -1 */
    int8_t subop_var;      /* variable that takes any, or -1 */
    int8_t commutes, rest; /* rest: {..} */
    int8_t tee;            /* a bit for each output that may have other users */
    int8_t many, output;   /* @: the node has several outputs, and this is the one */
    int8_t n_args, arg[QN_RULE_ARGS];
    int8_t n_attr;
    qn_term_attr attr[QN_RULE_ATTRS]; /* QN_TERM_NUMBERS: its expressions, of no attribute */
} qn_term;

typedef struct qn_rule {
    const char *name;
    int when; /* QN_RULE_EXACT and so on */
    int n_terms, pattern, replacement;
    int n_values, n_vars, n_exprs, n_conditions;
    qn_term term[QN_RULE_TERMS];
    qn_expr expr[QN_RULE_EXPRS];
    int condition[QN_RULE_CONDITIONS];
    char value_name[QN_RULE_VALUES][8], var_name[QN_RULE_VARS][8];
} qn_rule;

/* A pattern found. */
typedef struct qn_match {
    const qn_rule *rule;
    const qn_graph *g;
    qn_val value[QN_RULE_VALUES];
    int32_t reader[QN_RULE_VALUES]; /* the first node that takes it */
    qn_rule_value var[QN_RULE_VARS];
    uint32_t has_value, has_var;
    int32_t rest; /* the node of {..}, or -1 */
    int n_nodes;
    int32_t node[QN_RULE_NODES]; /* the root first */
    uint8_t tee[QN_RULE_NODES];  /* a bit for each output that may have other users */
} qn_match;

/* Reads a rule's texts. 0 and a sentence in `why` when they are none; the texts are ours, so a test calls this for every row. */
int qn_rule_parse(const char *name, int when, const char *pattern, const char *replacement, const char *conditions, qn_rule *rule,
                  char *why, size_t size);

/* Whether the rule's pattern is there with its root at a node, whatever the conditions say. */
int qn_rule_match(const qn_rule *rule, const qn_graph *g, int32_t node, qn_match *match);
/* NULL when all conditions hold, else a few words about the first that does not. */
const char *qn_rule_refuted(const qn_match *match);
/* Adds the replacement's nodes to a graph, in which value i of the match goes by values[i]; out receives n_out results. 0 when
 * an op refuses, and nothing has been added then. */
int qn_rule_build(const qn_match *match, qn_graph *to, const qn_val *values, int n_out, qn_val *out);
/* The op that the replacement makes at its root, -1 when it is a value; and the sub-op, 0 when it has none. */
int qn_rule_makes(const qn_match *match, int *subop);

/* ---- Functions of rules */

/* One argument: a value of the graph, or what an expression gave. */
typedef struct qn_rule_arg {
    qn_val value; /* QN_VAL_NONE: see number */
    qn_rule_value number;
} qn_rule_arg;

typedef int (*qn_rule_fn)(const qn_match *m, const qn_rule_arg *arg, qn_rule_value *result);

typedef struct qn_rule_call {
    const char *name;
    int n_args;
    qn_rule_fn fn;     /* 0: no value, or the condition does not hold */
    const char *about; /* what it means when it does not */
} qn_rule_call;

int qn_rule_call_find(const char *name, size_t length);
const qn_rule_call *qn_rule_call_at(int index);
/* 0 when it has no value. */
int qn_rule_eval(const qn_match *m, int expr, qn_rule_value *result);

/* The number all elements of a value are, when it is a constant or a view of one and they are alike. */
int qn_pass_splat(const qn_graph *g, qn_val v, double *number);
/* A node's complete record of attributes. */
static inline const void *qn_pass_attr(const qn_ir_node *n) { return n->attr ? n->attr : qn_op_describe(n->op)->attr_default; }
/* Whether two values have the same shape, and the same dtype. */
int qn_pass_same_type(const qn_ir_value *a, const qn_ir_value *b);
int qn_pass_same_shape(const qn_ir_value *a, const qn_ir_value *b);

#endif
