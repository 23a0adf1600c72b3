/* Inside a graph. Everything is an index into an array, so that graphs are copied, hashed and printed by walking arrays.
 *
 * Shapes may hold symbolic dims. Rules of ops know numbers only, so a symbolic graph is inferred at its symbols' upper bounds when
 * it is built (that is `probe`), and again, whole, for every binding it is specialised to. */
#ifndef QN_IR_GRAPH_H
#define QN_IR_GRAPH_H

#include <quern/graph.h>

#include "base/arena.h"
#include "op/body.h"

typedef struct qn_ir_value {
    qn_value_kind kind;
    int32_t node, output; /* QN_VALUE_RESULT: who made it; else -1 */
    int32_t name;         /* leaf: index into text, else -1 */
    int32_t data;         /* constant: index into constants, else -1 */
    qn_val origin;        /* where its memory comes from, through views and nodes that update it in place; mostly itself */
    int32_t updated;      /* of an origin: a node updates it in place */
    qn_shape shape;       /* with symbolic dims */
    qn_shape probe;       /* the same at the upper bounds */
} qn_ir_value;

typedef struct qn_ir_node {
    int32_t op, subop;
    int32_t n_src, src; /* first of its sources in `sources` */
    int32_t n_out, out; /* its outputs are values out .. out + n_out - 1 */
    const void *attr;   /* complete record with symbolic dims, in the arena; NULL: the defaults */
    int32_t label;      /* index into text */
} qn_ir_node;

typedef struct qn_ir_symbol {
    int32_t name;
    int64_t least, most, multiple_of;
} qn_ir_symbol;

typedef enum qn_ir_dim_kind { QN_IR_DIM_SYMBOL, QN_IR_DIM_ADD, QN_IR_DIM_SUB, QN_IR_DIM_MUL, QN_IR_DIM_DIV } qn_ir_dim_kind;

/* An expression over dims; a and b are dims again, numbers or earlier expressions. */
typedef struct qn_ir_dim {
    qn_ir_dim_kind kind;
    int32_t terms; /* numbers and symbols in it, written out: bounds its depth and what it costs to evaluate */
    int64_t a, b;  /* a symbol's number in a for QN_IR_DIM_SYMBOL */
} qn_ir_dim;

/* A string of the graph, and what goes by it. */
typedef struct qn_ir_name {
    int32_t text; /* index into text */
    uint32_t hash;
    qn_val input, param; /* QN_VAL_NONE: there is none of that name */
    int32_t output;      /* -1: likewise */
} qn_ir_name;

typedef struct qn_ir_output {
    qn_val value;
    int32_t name;
} qn_ir_output;

typedef struct qn_ir_constant {
    const void *data;
    size_t bytes;
} qn_ir_constant;

struct qn_graph {
    qn_body head; /* first: what ops see of it when it is a body */
    qn_arena arena;
    qn_error error;
    QN_VEC(char) text;          /* zero-terminated strings, one behind the other; 0 is "" */
    QN_VEC(qn_ir_name) names;   /* one for each string */
    QN_VEC(int32_t) name_slots; /* hash table of names, a power of two long: -1 is free */
    QN_VEC(qn_ir_value) values;
    QN_VEC(qn_ir_node) nodes;
    QN_VEC(qn_val) sources;
    QN_VEC(qn_val) inputs; /* in order of creation */
    QN_VEC(qn_ir_output) outputs;
    QN_VEC(qn_ir_constant) constants;
    QN_VEC(qn_ir_symbol) symbols;
    QN_VEC(qn_ir_dim) dims;
    QN_VEC(int32_t) dim_slots; /* hash table of dims, as that of names */
    size_t n_hashed;           /* so many of the dims are in it */
    QN_VEC(qn_graph *) bodies; /* that its nodes' attributes point to: its own, and destroyed with it */
    int32_t depth;             /* of bodies in one another below it; 0 when it has none */
    QN_VEC(int32_t) labels;    /* stack: the label in force after each push */
    int32_t forced_label;      /* of the next nodes instead of the stack's top, when not 0: copies keep their labels */
};

/* qn_graph_create; what the graph takes counts in `outer` as well, unless that is NULL. */
qn_status qn_ir_create(size_t allocation_limit, qn_arena *outer, qn_graph **graph);
/* Fails the graph: keeps the first error. Returns its status. */
QN_PRINTF(3, 4) qn_status qn_ir_fail(qn_graph *g, qn_status status, const char *format, ...);
/* A value in words, for sentences: "input 'x'", "what add gives (node 3)", "v of opt_step_adamw (node 7)". Returns text. */
const char *qn_ir_value_words(const qn_graph *g, qn_val value, char *text, size_t size);
/* Index of a string, the old one when it is there already; -1 after a failure. */
int32_t qn_ir_text(qn_graph *g, const char *text);
/* What goes by a string; NULL when the graph does not have it. Good until the next string is added. */
qn_ir_name *qn_ir_name_find(const qn_graph *g, const char *text);
static inline const char *qn_ir_string(const qn_graph *g, int32_t index) { return index < 0 ? "" : g->text.at + index; }

/* Value of a dim under a binding (NULL: upper bounds). 0 when it overflows, is negative or does not divide. */
int qn_ir_dim_value(const qn_graph *g, int64_t dim, const int64_t *symbols, int64_t *value);
/* Text in pieces. */
typedef void (*qn_ir_put_fn)(void *user, const char *text, size_t n);
/* Writes a dim, or a string in quotes with what would break them escaped. */
void qn_ir_put_dim(const qn_graph *g, int64_t dim, qn_ir_put_fn put, void *user);
void qn_ir_put_quoted(qn_ir_put_fn put, void *user, const char *text);
/* Whether a string can be written without quotes: letters, digits and _, no digit first. */
int qn_ir_is_word(const char *text);
/* A buffer to put into: what does not fit is cut, what was wanted is counted. */
typedef struct qn_ir_room {
    char *text;
    size_t size, wanted;
} qn_ir_room;
void qn_ir_put_room(void *room, const char *text, size_t n);
/* A copy of attributes with every dim replaced by its number; the record lies in `room` of at least QN_ATTR_BYTES_MAX. NULL attr
 * gives NULL. 0 when a dim has no value. */
int qn_ir_attr_bind(const qn_graph *g, const qn_op_info *op, const void *attr, const int64_t *symbols, void *room,
                    const void **bound);
/* Shapes of the outputs when sources have these shapes; fills n_out of them. Attributes are bound numbers. */
qn_status qn_ir_infer(int op, int subop, int n_src, const qn_shape *const *src, const void *attr, qn_shape *out, int *n_out,
                      qn_result *result);
/* qn_graph_apply, but the bodies among the attributes belong to the graph already and are not copied. */
qn_status qn_ir_apply(qn_graph *g, int op, int subop, int n_src, const qn_val *src, const void *attr, int n_out, qn_val *out);
/* Adds a node whose guard has been passed elsewhere with the shapes given; used by passes that rebuild. */
qn_status qn_ir_append(qn_graph *g, int op, int subop, int n_src, const qn_val *src, const void *attr, int n_out,
                       const qn_shape *shape, const qn_shape *probe, int32_t label, qn_val *out);

/* Label of the next node. */
static inline int32_t qn_ir_label(const qn_graph *g) {
    return g->forced_label ? g->forced_label : g->labels.n ? g->labels.at[g->labels.n - 1] : 0;
}

static inline const qn_val *qn_ir_sources(const qn_graph *g, const qn_ir_node *n) { return g->sources.at + n->src; }
/* The request a node would make, tensors still missing. */
static inline qn_request qn_ir_request(const qn_ir_node *n) {
    return (qn_request){.size = sizeof(qn_request),
                        .version = QN_REQUEST_VERSION,
                        .op = (uint16_t)n->op,
                        .subop = (uint16_t)n->subop,
                        .n_src = (uint16_t)n->n_src,
                        .attr = n->attr};
}

enum { QN_IR_MAX_SYMBOLS = 16, QN_IR_MAX_TERMS = 64, QN_IR_MAX_DEPTH = 8 };
/* Names are found by hash, and come from files of anybody's: a run of collisions that no honest names have (among a million of them
 * 41 is the longest seen) is refused instead of searched, or a file of a few megabytes would take minutes. */
enum { QN_IR_MAX_PROBES = 512 };

extern const qn_body_class qn_ir_body_class; /* of every graph */

/* ---- body.c: graphs in graphs. A body's symbols are the first of those of the graph it belongs to, in their order, so that a binding of
 * the one is a binding of the other. */

/* Attribute i of a record, when it is a body; NULL when it is none or none is given. */
const qn_graph *qn_ir_body(const qn_op_info *op, int i, const void *attr);
void qn_ir_body_set(const qn_op_info *op, int i, void *attr, const qn_graph *body);
/* An empty graph to become a body of g, with its symbols; counts against g's limit. It is the caller's until it is given to g. */
qn_status qn_ir_body_create(qn_graph *g, qn_graph **body);
/* g owns the body from now on, and destroys it when it fails to take it. */
qn_status qn_ir_body_own(qn_graph *g, qn_graph *body);
/* Replaces the bodies of a record by copies that belong to g. */
qn_status qn_ir_body_copy(qn_graph *g, const qn_op_info *op, void *attr);
/* Replaces the bodies of a record by what their shapes are at a binding, for a rule to look at; room for QN_IR_VIEW_MAX of them. */
typedef struct qn_ir_body_view {
    qn_body head;
    const qn_graph *graph;
    const int64_t *symbols;
} qn_ir_body_view;
enum { QN_IR_VIEW_MAX = 4 };
void qn_ir_body_look(const qn_op_info *op, void *attr, const int64_t *symbols, qn_ir_body_view *views);
/* Whether two graphs are the same but for labels: same leaves, nodes and outputs in the same order. */
int qn_ir_same(const qn_graph *a, const qn_graph *b);
/* Whether two nodes' attributes are, bodies compared by what they are. */
int qn_ir_same_attr(const qn_op_info *op, const void *a, const void *b);
/* A hash h (base/hash.h) that takes up a record as well: the same for records that are the same. */
uint64_t qn_ir_hash_attr(uint64_t h, const qn_op_info *op, const void *attr);

#endif
