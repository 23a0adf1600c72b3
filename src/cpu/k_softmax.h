/* What softmax over the last axis and its gradients have in common: which rows there are kernels for, and how they are walked. */
#ifndef QN_CPU_K_SOFTMAX_H
#define QN_CPU_K_SOFTMAX_H

#include "cpu/k_lanes.h"

/* Kernels that are asked before, or instead. */
int QN_K(softmax_doubles)(const qn_call *c, qn_cpu_step *s);        /* k_softmax_doubles.c: rows of f64 */
int QN_K(softmax_short)(const qn_call *c, qn_cpu_step *s);          /* k_softmax_short.c: rows of a few vectors */
int QN_K(softmax_down)(const qn_call *c, qn_cpu_step *s, int axis); /* k_softmax_down.c: along any other axis */

/* Rows of one float dtype in the destination and so many sources. */
static inline int qn_softmax_can(const qn_call *c, int sources) {
    const qn_tensor *y = c->dst[0];
    if (!qn_lanes_rows(y) || qn_tensor_count(y) == 0) return 0;
    for (int i = 0; i < sources; i++)
        if (c->src[i]->dtype != y->dtype || !qn_lanes_rows(c->src[i]) || c->src[i]->rank != y->rank) return 0;
    return 1;
}

static inline int qn_softmax_is_last(const qn_tensor *t, int axis) { return axis == -1 || axis == t->rank - 1; }

static inline int qn_softmax_by_rows(const qn_call *c, qn_cpu_step *s, const char *name, qn_cpu_run_fn run) {
    int64_t n = qn_ne(c->dst[0], 0);
    return qn_cpu_by_rows(s, name, run, qn_tensor_count(c->dst[0]) / n, 8.0 * (double)n, 40.0 * (double)n);
}

/* The rows of a part, which `s` and `part` name; `end` is behind the last. */
#define QN_SOFTMAX_ROWS(it, t)                                                                                       \
    int64_t rows = qn_tensor_count(t) / qn_ne(t, 0), end = qn_cpu_cut(rows, s->parts[0], part + 1);                  \
    qn_rows it;                                                                                                      \
    for (qn_rows_begin_at(&it, (t)->rank, (t)->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end; \
         qn_rows_next(&it))

#endif
