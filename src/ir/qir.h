/* Inside the reader of .qir text: a cursor over bytes that nobody trusts. Every function that can fail returns 0 once something has
 * failed, so that the first error is the one that is told; positions are those of the bytes it is about. */
#ifndef QN_IR_QIR_H
#define QN_IR_QIR_H

#include "ir/graph.h"

/* A piece of the text. */
typedef struct qir_span {
    const char *at;
    size_t n;
} qir_span;

typedef struct qir_name { /* of a value */
    qir_span text;        /* without the percent sign */
    uint32_t hash;
    qn_val value;
} qir_name;

typedef struct qir_reader {
    const char *at, *start, *end; /* the cursor, and the text */
    qn_graph *g;                  /* that is being read: the outermost, or a body */
    qn_arena *arena;              /* the outermost's: what the reader needs counts there */
    int depth;                    /* of the body that is being read; 0 outside */
    qn_error *error;
    int failed;
    QN_VEC(qir_name) names; /* a hash table, a power of two long; free slots have no text */
    size_t n_names;
    QN_VEC(char) string; /* the last string that was read, with a zero behind it */
    QN_VEC(char) data;   /* the last constant */
} qir_reader;

/* ---- qir_scan.c: bytes and words */

QN_PRINTF(3, 4) int qn_qir_fail(qir_reader *r, const char *at, const char *format, ...); /* 0 */
/* What the graph says went wrong, told at a position; 1 when nothing did. */
int qn_qir_check_graph(qir_reader *r, const char *at);
int qn_qir_no_memory(qir_reader *r); /* 0 */

void qn_qir_skip_blanks(qir_reader *r);
int qn_qir_at_line_end(qir_reader *r); /* nothing but a comment is left */
int qn_qir_next_line(qir_reader *r);   /* 0 at the end of the text */
int qn_qir_peek(qir_reader *r);        /* the next byte that is not blank; -1 at the end of the text */
int qn_qir_accept(qir_reader *r, char byte);
int qn_qir_expect(qir_reader *r, char byte, const char *why);
int qn_qir_word(qir_reader *r, const char *what, qir_span *word); /* letters, digits and _ */
int qn_qir_value_name(qir_reader *r, qir_span *name);             /* %name */
int qn_qir_integer(qir_reader *r, const char *what, int64_t *value);
int qn_qir_number(qir_reader *r, qir_span *number); /* anything that looks like one */
int qn_qir_string(qir_reader *r, const char *what); /* into r->string */
int qn_qir_hex_digit(char c);                       /* its value, -1 when it is none */
int qn_qir_is(qir_span word, const char *text);
/* A span as a C string of at most size - 1 bytes. */
const char *qn_qir_copy(qir_span span, char *text, size_t size);

/* ---- qir_parts.c: what statements are made of */

int qn_qir_find(qir_reader *r, qir_span name, qn_val *value);
int qn_qir_define(qir_reader *r, qir_span name, qn_val value);
int qn_qir_dim(qir_reader *r, int64_t *dim);
int qn_qir_type(qir_reader *r, qn_shape *shape);
/* {name=value, ...} over a record of defaults. */
int qn_qir_attributes(qir_reader *r, const qn_op_info *op, void *record);
/* {statements} of a body, which becomes r->g's. */
int qn_qir_body(qir_reader *r, const qn_graph **body);
/* Bytes of a constant into r->data. */
int qn_qir_constant(qir_reader *r, const qn_shape *shape);

/* "f32[batch, 784]", as snprintf; used in sentences. */
int qn_ir_shape_format(const qn_graph *g, const qn_shape *shape, char *text, size_t size);
/* Whether an attribute of a record differs from the default. */
int qn_ir_attr_differs(const qn_op_info *op, const qn_attr_info *attr, const void *record);

#endif
