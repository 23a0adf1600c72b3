/* Chat templates: a subset of Jinja, read into a tree and walked. What the files share: values, the tree, and the walk's
 * state.
 *
 * Nothing is ever freed before the end: all memory is one arena with a limit; every node evaluated is a step, so are 64 bytes of
 * text or 16 names looked through, and steps have a limit; the nesting of templates, expressions and calls has one too. So
 * whatever the template, it ends, and soon. After the first fault everything returns at once. */
#ifndef QN_TEXT_TEMPLATE_H
#define QN_TEXT_TEMPLATE_H

#include <quern/text.h>

#include "base/arena.h"

/* ---- Values -------------------------------------------------------------------------------------------------------- */

typedef enum tpl_kind {
    TPL_UNDEFINED, /* text: what was not there */
    TPL_NONE,
    TPL_BOOL,
    TPL_INT,
    TPL_FLOAT,
    TPL_STRING,
    TPL_LIST,
    TPL_DICT,
    TPL_MACRO,
    TPL_FUNCTION, /* of ours */
    TPL_METHOD    /* a name of ours, and the value it belongs to */
} tpl_kind;

typedef struct tpl_value tpl_value;
typedef struct tpl_list tpl_list;
typedef struct tpl_dict tpl_dict;
typedef struct tpl_node tpl_node;
typedef struct tpl tpl;

struct tpl_value {
    tpl_kind kind;
    union {
        int64_t integer; /* BOOL, INT */
        double number;
        qn_text text; /* UNDEFINED, STRING */
        tpl_list *list;
        tpl_dict *dict;
        const struct tpl_macro *macro;
        const struct tpl_builtin *function;
        const struct tpl_method *method;
    } as;
};

struct tpl_list {
    QN_VEC(tpl_value) items;
    int is_tuple; /* differs in how it is printed */
};

typedef struct tpl_pair {
    tpl_value key, value;
} tpl_pair;

struct tpl_dict {
    QN_VEC(tpl_pair) pairs; /* in the order they came */
    int is_namespace;
};

typedef struct tpl_macro {
    const tpl_node *node;
    struct tpl_frame *frame; /* it was defined in */
} tpl_macro;

/* What a call brings: values by their places, then values by their names. */
typedef struct tpl_args {
    tpl_value *at;
    size_t n;
    qn_text *names; /* of at[n] on */
    size_t named;
} tpl_args;

/* A filter, test, function or method of ours. names are those of its arguments, with spaces between, in the order of their
 * places; "..." takes any. The value a filter, test or method belongs to is args->at[0], without a name. */
typedef struct tpl_builtin {
    const char *name;
    const char *names;
    int has_self; /* it belongs to a value */
    int least;    /* arguments that must be there, without that value */
    tpl_value (*run)(tpl *t, const tpl_args *args);
} tpl_builtin;

typedef struct tpl_method {
    const tpl_builtin *function;
    tpl_value self;
} tpl_method;

/* ---- The tree ------------------------------------------------------------------------------------------------------ */

typedef enum tpl_node_kind {
    NODE_CONSTANT,
    NODE_NAME,
    NODE_LIST,      /* parts; op 1: a tuple */
    NODE_DICT,      /* parts: key, value, key, value */
    NODE_ATTRIBUTE, /* a.text */
    NODE_ITEM,      /* a[b] */
    NODE_SLICE,     /* a[b:c:d] */
    NODE_CALL,      /* a(parts); named ones carry their name in text */
    NODE_FILTER,    /* a|text(parts) */
    NODE_TEST,      /* a is text(parts); op 1: is not */
    NODE_UNARY,     /* op a */
    NODE_BINARY,    /* a op b */
    NODE_COMPARE,   /* a, then parts with their op: chained as in 1 < x < 3 */
    NODE_AND,
    NODE_OR,
    NODE_NOT,
    NODE_CHOOSE, /* a if b else c */
    NODE_TEXT,
    NODE_OUTPUT,       /* {{ a }} */
    NODE_IF,           /* a: condition, parts: body, b: else */
    NODE_FOR,          /* targets: names in list b, a: what, c: condition, parts: body, d: else */
    NODE_SET,          /* list b of targets, a: value; a NULL: parts are the body, c: filters over NODE_CONSTANT */
    NODE_MACRO,        /* text: name, b: list of parameters (NODE_NAME, a: default), parts: body */
    NODE_FILTER_BLOCK, /* c: filters, parts: body */
    NODE_BODY,         /* parts */
    NODE_DO,           /* a */
    NODE_BREAK,
    NODE_CONTINUE
} tpl_node_kind;

struct tpl_node {
    tpl_node_kind kind;
    int line;
    int op; /* a token, see the operators below */
    qn_text text;
    tpl_value value;
    const tpl_builtin *builtin; /* of filters and tests */
    tpl_node *a, *b, *c, *d;
    tpl_node *parts, *next;
};

enum {
    OP_ADD = 1,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOOR,
    OP_MOD,
    OP_POW,
    OP_CONCAT,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN
};

/* ---- The walk ------------------------------------------------------------------------------------------------------ */

typedef struct tpl_frame { /* names of one scope */
    QN_VEC(tpl_pair) names;
    struct tpl_frame *outer;
} tpl_frame;

struct tpl {
    qn_arena arena;
    qn_error *error;
    int failed;
    qn_status status;
    uint64_t steps, most_steps, most_output;
    uint32_t depth, most_depth;
    int64_t now;
    int line; /* of the node being evaluated */
    tpl_frame *frame;
    QN_VEC(char) out;
    int leaving; /* NODE_BREAK or NODE_CONTINUE on its way to the loop */
};

/* The first fault counts; returns an undefined value, so that `return qn_text_tpl_fail(...)` reads well. */
QN_PRINTF(2, 3) tpl_value qn_text_tpl_fail(tpl *t, const char *format, ...);
/* The same where the arena gave nothing: QN_NO_MEMORY, whether the limit or the system said no. */
tpl_value qn_text_tpl_no_memory(tpl *t);
int qn_text_tpl_step(tpl *t, uint64_t n); /* 0: no more */

/* template_parse.c: NULL after a fault */
tpl_node *qn_text_tpl_parse(tpl *t, qn_text source);
/* template_run.c */
void qn_text_tpl_run(tpl *t, const tpl_node *body);
tpl_value qn_text_tpl_call_macro(tpl *t, const tpl_macro *macro, const tpl_args *args);
void qn_text_tpl_assign(tpl *t, tpl_frame *frame, qn_text name, tpl_value value);
void qn_text_tpl_write(tpl *t, qn_text text);
/* template_eval.c */
tpl_value qn_text_tpl_eval(tpl *t, const tpl_node *node);
tpl_value qn_text_tpl_call(tpl *t, tpl_value what, const tpl_args *args);
tpl_value qn_text_tpl_apply(tpl *t, const tpl_builtin *f, const tpl_args *args); /* binds named arguments to their places first */
tpl_value qn_text_tpl_attribute(tpl *t, tpl_value of, qn_text name, int items_first);
tpl_value qn_text_tpl_item(tpl *t, tpl_value of, tpl_value index);
tpl_value qn_text_tpl_binary(tpl *t, int op, tpl_value a, tpl_value b);

/* template_value.c */
static inline tpl_value tpl_int(int64_t i) { return (tpl_value){.kind = TPL_INT, .as.integer = i}; }
static inline tpl_value tpl_bool(int b) { return (tpl_value){.kind = TPL_BOOL, .as.integer = b != 0}; }
static inline tpl_value tpl_none(void) { return (tpl_value){.kind = TPL_NONE}; }
static inline tpl_value tpl_text(qn_text s) { return (tpl_value){.kind = TPL_STRING, .as.text = s}; }
static inline tpl_value tpl_word(const char *s) { return tpl_text((qn_text){s, strlen(s)}); }
static inline tpl_value tpl_undefined(qn_text name) { return (tpl_value){.kind = TPL_UNDEFINED, .as.text = name}; }
static inline int tpl_given(const tpl_args *args, size_t i) { return i < args->n && args->at[i].kind != TPL_UNDEFINED; }
static inline int tpl_same(qn_text a, qn_text b) {
    return a.length == b.length && (a.length == 0 || memcmp(a.at, b.at, a.length) == 0);
}

const char *qn_text_tpl_kind_name(tpl_value v);
int qn_text_tpl_truth(tpl_value v);
int qn_text_tpl_is_number(tpl_value v);
double qn_text_tpl_number(tpl_value v);
int qn_text_tpl_same(tpl *t, qn_text a, qn_text b); /* as tpl_same, paid for: for texts that templates make, names too */
int qn_text_tpl_equal(tpl *t, tpl_value a, tpl_value b);
int qn_text_tpl_compare(tpl *t, tpl_value a, tpl_value b); /* -1, 0, 1; fails for values without an order */
int qn_text_tpl_contains(tpl *t, tpl_value in, tpl_value what);
/* The first place of a part from `from` on, or the text's length + 1. */
size_t qn_text_tpl_find(tpl *t, qn_text text, qn_text part, size_t from);
tpl_value qn_text_tpl_list_new(tpl *t, size_t room);
void qn_text_tpl_list_add(tpl *t, tpl_value list, tpl_value item);
tpl_value qn_text_tpl_dict_new(tpl *t);
void qn_text_tpl_dict_set(tpl *t, tpl_dict *dict, tpl_value key, tpl_value value);
tpl_value *qn_text_tpl_dict_get(tpl *t, const tpl_dict *dict, tpl_value key); /* NULL: not there */
/* A list of what can be iterated: items, keys, characters. */
tpl_value qn_text_tpl_iterate(tpl *t, tpl_value v);
qn_text qn_text_tpl_string(tpl *t, tpl_value v); /* as {{ v }} prints it */
size_t qn_text_tpl_length(tpl *t, qn_text text); /* in characters */
qn_text qn_text_tpl_copy(tpl *t, const char *at, size_t n);

/* Texts that grow. */
typedef struct tpl_buffer {
    QN_VEC(char) bytes;
} tpl_buffer;
void qn_text_tpl_append(tpl *t, tpl_buffer *b, const char *at, size_t n);
static inline qn_text tpl_taken(const tpl_buffer *b) { return (qn_text){b->bytes.at ? b->bytes.at : "", b->bytes.n}; }

/* template_json.c */
tpl_value qn_text_tpl_from_json(tpl *t, qn_text text);
tpl_value qn_text_tpl_filter_tojson(tpl *t, const tpl_args *args);

/* Tables of builtins: filters, tests, functions, and methods by the kind of value. NULL: not known. */
/* The printf of Python: "%s is %d" and its values. */
tpl_value qn_text_tpl_filter_format(tpl *t, const tpl_args *args);
const tpl_builtin *qn_text_tpl_find_filter(qn_text name);
const tpl_builtin *qn_text_tpl_find_test(qn_text name);
const tpl_builtin *qn_text_tpl_find_function(qn_text name);
const tpl_builtin *qn_text_tpl_find_method(tpl_kind kind, qn_text name);

#endif
