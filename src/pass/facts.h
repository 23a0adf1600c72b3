/* What passes ask about a graph: who uses a value, and whether it may be read elsewhere than it is.
 *
 * Ops with state write over a source. What reads that memory before the write and what reads it after see different numbers,
 * though the value has one name; so a node that reads it may not be moved across the write, nor merged with one on the other
 * side. */
#ifndef QN_PASS_FACTS_H
#define QN_PASS_FACTS_H

#include "pass/pass.h"

typedef struct qn_pass_write {
    qn_val root;
    int32_t node;
} qn_pass_write;

typedef struct qn_pass_facts {
    const qn_graph *g;
    qn_arena arena;
    int32_t *first_use; /* per value, and one behind the last: where its users begin in `users` */
    int32_t *users;     /* nodes, ascending; a node that takes a value twice is there twice */
    uint8_t *is_output;
    int32_t *root;                /* per value: whose memory it is a view of, itself for most */
    uint8_t *written;             /* per root: some node with state writes there */
    QN_VEC(qn_pass_write) writes; /* ascending by node */
} qn_pass_facts;

/* QN_NO_MEMORY is told through error. */
qn_status qn_pass_facts_make(const qn_graph *g, qn_pass_facts *facts, qn_error *error);
void qn_pass_facts_free(qn_pass_facts *facts);

static inline int qn_pass_use_count(const qn_pass_facts *f, qn_val v) { return f->first_use[v + 1] - f->first_use[v]; }
/* How often a value's memory is written before a node runs. Two reads of it are the same when this is. */
int qn_pass_epoch(const qn_pass_facts *f, qn_val v, int32_t node);
/* The first node that writes over its memory; INT32_MAX when none does. */
int32_t qn_pass_first_write(const qn_pass_facts *f, qn_val v);

#endif
