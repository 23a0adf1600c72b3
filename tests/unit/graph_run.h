/* Runs a graph node by node through the dispatcher with the references, every value dense in a place of its own. Slow and plain
 * on purpose: it is what optimised graphs are held against. */
#ifndef QN_TESTS_GRAPH_RUN_H
#define QN_TESTS_GRAPH_RUN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/graph.h"
#include "tensor/convert.h"

#include "cmocka_setup.h"

typedef struct graph_run {
    qn_context *context;
    qn_tensor *t; /* per value */
    void **owned;
    size_t n;
} graph_run;

static inline uint64_t graph_run_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* A number for a leaf: mostly small, with the hard ones among them when asked. */
static inline double graph_run_number(uint64_t *state, int hard) {
    static const double numbers[] = {0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e30, -1e30, 1e-40, INFINITY, -INFINITY, NAN};
    uint64_t z = graph_run_random(state);
    if (hard && z % 3 == 0) return numbers[z / 3 % (sizeof numbers / sizeof *numbers)];
    return (double)(z >> 11) * 0x1p-53 * 4 - 2;
}

/* Leaves take numbers by their names, so that two graphs over the same leaves get the same. */
static inline void graph_run_fill(const qn_graph *g, const qn_ir_value *v, qn_tensor *t, int hard) {
    uint64_t state = 7;
    for (const char *c = qn_ir_string(g, v->name); *c; c++) state = state * 31 + (unsigned char)*c;
    qn_dtype dtype = (qn_dtype)t->dtype;
    const qn_dtype_info *info = qn_dtype_describe(dtype);
    int64_t n = qn_tensor_count(t);
    if (info->kind == QN_KIND_BLOCK) {
        double *row = calloc((size_t)n + 1, sizeof *row);
        assert_non_null(row);
        for (int64_t i = 0; i < n; i++) row[i] = graph_run_number(&state, 0);
        qn_store_run(dtype, t->data, info->bytes, 0, n, row);
        free(row);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        qn_store_one(dtype, (char *)t->data + i * info->bytes, graph_run_number(&state, hard && info->kind == QN_KIND_FLOAT));
}

static inline qn_tensor graph_run_dense(graph_run *r, const qn_shape *s) {
    qn_tensor t;
    uint64_t bytes;
    assert_int_equal(qn_tensor_bytes((qn_dtype)s->dtype, s->rank, s->d, &bytes), QN_OK);
    void *data = r->owned[r->n++] = calloc(bytes / 64 + 1, 64);
    assert_non_null(data);
    assert_int_equal(qn_tensor_init(&t, (qn_dtype)s->dtype, s->rank, s->d, data, bytes), QN_OK);
    return t;
}

static inline void graph_run_dispatch(graph_run *r, qn_request *q) {
    qn_result result;
    char text[300];
    size_t workspace = 0;
    q->size = sizeof *q;
    q->version = QN_REQUEST_VERSION;
    if (qn_workspace_bytes(q, &workspace, &result) == QN_OK && workspace) {
        q->workspace = aligned_alloc(QN_WORKSPACE_ALIGN, (workspace + 63) / 64 * 64);
        q->workspace_size = workspace;
    }
    if (qn_dispatch(r->context, q, &result) != QN_OK) {
        qn_result_format(&result, text, sizeof text);
        fail_msg("%s", text);
    }
    free(q->workspace);
}

static inline void graph_run_node(graph_run *r, const qn_graph *g, const qn_ir_node *n) {
    const qn_op_info *info = qn_op_describe(n->op);
    qn_request q = {.op = (uint16_t)n->op, .subop = (uint16_t)n->subop, .n_src = (uint16_t)n->n_src, .attr = n->attr};
    qn_tensor view[QN_MAX_DST];
    qn_result result;
    int n_out;
    for (int i = 0; i < n->n_src; i++) {
        qn_val s = qn_ir_sources(g, n)[i];
        q.src[i] = s == QN_VAL_NONE ? NULL : &r->t[s];
    }
    for (int i = 0; i < n->n_out; i++) {
        int state = i < n->n_src && (info->src[i].flags & QN_SLOT_STATE);
        r->t[n->out + i] = state ? *q.src[i] : graph_run_dense(r, &g->values.at[n->out + i].shape);
        q.dst[i] = &r->t[n->out + i];
    }
    q.n_dst = (uint16_t)n->n_out;
    if (info->is_view) { /* made dense: the next op sees no strides */
        q.size = sizeof q;
        q.version = QN_REQUEST_VERSION;
        assert_int_equal(qn_infer(&q, view, &n_out, &result), QN_OK);
        q = (qn_request){.op = QN_OP_cont, .n_src = 1, .n_dst = 1, .src = {&view[0]}, .dst = {&r->t[n->out]}};
    }
    graph_run_dispatch(r, &q);
}

/* Every value of the graph, computed. */
static inline void graph_run_all(graph_run *r, const qn_graph *g, int hard) {
    qn_context_options o = {.size = sizeof o, .flags = QN_CONTEXT_REFERENCE};
    memset(r, 0, sizeof *r);
    assert_int_equal(qn_context_create(&o, &r->context), QN_OK);
    r->t = calloc(g->values.n + 1, sizeof *r->t);
    r->owned = calloc(g->values.n + 1, sizeof *r->owned);
    assert_true(r->t && r->owned);
    for (size_t i = 0; i < g->values.n; i++) {
        const qn_ir_value *v = &g->values.at[i];
        if (v->kind == QN_VALUE_RESULT) continue;
        r->t[i] = graph_run_dense(r, &v->shape);
        r->t[i].flags = v->kind == QN_VALUE_PARAM ? QN_TENSOR_PARAM : 0;
        if (v->kind == QN_VALUE_CONSTANT) memcpy(r->t[i].data, g->constants.at[v->data].data, g->constants.at[v->data].bytes);
        else graph_run_fill(g, v, &r->t[i], hard);
    }
    for (size_t k = 0; k < g->nodes.n; k++) graph_run_node(r, g, &g->nodes.at[k]);
}

static inline void graph_run_free(graph_run *r) {
    for (size_t i = 0; i < r->n; i++) free(r->owned[i]);
    free(r->owned);
    free(r->t);
    qn_context_destroy(r->context);
}

/* How far two dense tensors are apart: 0 when all bits agree, NaN counting as NaN whatever its payload, else the largest
 * difference in relation to the largest number. Infinity when they are not of one type. */
static inline double graph_run_difference(const qn_tensor *a, const qn_tensor *b) {
    int64_t n = qn_tensor_count(a);
    size_t each = (size_t)qn_dtype_describe((qn_dtype)a->dtype)->bytes;
    double apart = 0, largest = 1;
    int differ = 0;
    if (a->dtype != b->dtype || n != qn_tensor_count(b)) return INFINITY;
    for (int64_t i = 0; i < n; i++) {
        const char *p = (const char *)a->data + (size_t)i * each, *q = (const char *)b->data + (size_t)i * each;
        double x = qn_load_one((qn_dtype)a->dtype, p), y = qn_load_one((qn_dtype)b->dtype, q);
        if (memcmp(p, q, each) == 0 || (isnan(x) && isnan(y))) continue;
        differ = 1;
        if (isnan(x) || isnan(y) || isinf(x) || isinf(y)) return INFINITY;
        if (fabs(x - y) > apart) apart = fabs(x - y);
        if (fabs(x) > largest) largest = fabs(x);
    }
    return !differ ? 0 : apart > 0 ? apart / largest : 1e-300; /* the sign of a zero differs, too */
}

#endif
