/* What the tests of branches and loops share: graphs from text, plans over them, leaves filled by name. */
#ifndef QN_TESTS_CONTROL_HELP_H
#define QN_TESTS_CONTROL_HELP_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quern/quern.h>

#include "ir/rebuild.h"

#include "cmocka_setup.h"

static const qn_dtype F64 = QN_DTYPE_F64;

static inline qn_graph *parse(const char *text) {
    qn_graph *g;
    qn_error error;
    if (qn_graph_parse(text, strlen(text), 0, &g, &error) != QN_OK) fail_msg("%s\n%s", error.text, text);
    return g;
}

static inline qn_plan *plan_with(const qn_graph *g, const qn_plan_options *o) {
    qn_plan *p;
    qn_error error;
    if (qn_plan_create(g, o, &p, &error) != QN_OK) fail_msg("%s", error.text);
    return p;
}

static inline qn_plan *plan_of(const qn_graph *g) { return plan_with(g, NULL); }

static inline void set_shape(qn_plan *p, const char *name, qn_dtype dtype, int rank, const int64_t *shape, const void *data) {
    qn_tensor t;
    qn_error error;
    uint64_t bytes;
    assert_int_equal(qn_tensor_bytes(dtype, rank, shape, &bytes), QN_OK);
    assert_int_equal(qn_tensor_init(&t, dtype, rank, shape, (void *)(uintptr_t)data, bytes), QN_OK);
    if (qn_plan_set(p, name, &t, &error) != QN_OK) fail_msg("%s", error.text);
}

/* In the shape the graph says. */
static inline void set(qn_plan *p, const char *name, const void *data) {
    const qn_graph *g = qn_plan_graph(p);
    const qn_ir_name *known = qn_ir_name_find(g, name);
    assert_non_null(known);
    const qn_shape *s = &g->values.at[known->input != QN_VAL_NONE ? known->input : known->param].shape;
    set_shape(p, name, (qn_dtype)s->dtype, s->rank, s->d, data);
}

static inline void run(qn_plan *p) {
    qn_error error;
    if (qn_plan_run(p, NULL, &error) != QN_OK) fail_msg("%s", error.text);
}

static inline const void *output(const qn_plan *p, const char *name) {
    qn_tensor t;
    qn_error error;
    if (qn_plan_output(p, name, &t, &error) != QN_OK) fail_msg("%s", error.text);
    assert_true(qn_tensor_is_contiguous(&t));
    return (const char *)t.data + t.offset;
}

static inline double number(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return (double)((z ^ z >> 31) >> 11) * 0x1p-52 - 1;
}

static inline int64_t count_of(const qn_shape *s) {
    int64_t n = 1;
    for (int k = 0; k < s->rank; k++) n *= s->d[k];
    return n;
}

/* f64 leaves by their names, one element moved by h. */
static inline void fill(qn_plan *p, const char *moved, int64_t element, double h) {
    const qn_graph *g = qn_plan_graph(p);
    double data[4096];
    for (size_t v = 0; v < g->values.n; v++) {
        if (g->values.at[v].kind > QN_VALUE_PARAM || g->values.at[v].shape.dtype != F64) continue;
        const char *name = qn_ir_string(g, g->values.at[v].name);
        uint64_t state = 1;
        for (const char *c = name; *c; c++) state = state * 31 + (unsigned char)*c;
        int64_t n = count_of(&g->values.at[v].shape);
        assert_true(n <= 4096);
        for (int64_t i = 0; i < n; i++) data[i] = number(&state);
        if (moved && strcmp(moved, name) == 0) data[element] += h;
        set(p, name, data);
    }
}

static inline void assert_near(const double *a, const double *b, int64_t n, double bound, const char *what) {
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= bound * (1 + fabs(b[i]))))
            fail_msg("%s: element %d is %.17g, not %.17g", what, (int)i, a[i], b[i]);
}

#endif
