/* What tests of whole families share: tensors that are freed at the end of a test, numbers to fill them with, and one op at a time,
 * its outputs made as it says. The context is the reference's or that with the fast kernels, as the group of tests opened it. */
#ifndef QN_TESTS_FAMILY_HELP_H
#define QN_TESTS_FAMILY_HELP_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "op/op.h"
#include "tensor/convert.h"

#include "cmocka_setup.h"

enum { MOST = 512 };

static qn_context *context;
static void *owned[MOST];
static int n_owned;

static inline int open_reference(void **state) {
    (void)state;
    qn_context_options o = {.size = sizeof o, .flags = QN_CONTEXT_REFERENCE};
    return qn_context_create(&o, &context) != QN_OK;
}

/* With the fast kernels, where an op has one. */
static inline int open_fast(void **state) {
    (void)state;
    return qn_context_create(NULL, &context) != QN_OK;
}

static inline int close_context(void **state) {
    (void)state;
    qn_context_destroy(context);
    return 0;
}

static inline void forget(void) {
    while (n_owned) free(owned[--n_owned]);
}

static inline qn_tensor make(qn_dtype dtype, int rank, const int64_t *d) {
    qn_tensor t;
    uint64_t bytes;
    assert_int_equal(qn_tensor_bytes(dtype, rank, d, &bytes), QN_OK);
    assert_true(n_owned < MOST);
    void *data = owned[n_owned++] = calloc(bytes / 64 + 1, 64);
    assert_non_null(data);
    assert_int_equal(qn_tensor_init(&t, dtype, rank, d, data, bytes), QN_OK);
    t.flags = QN_TENSOR_PARAM;
    return t;
}

#define SHAPE(...) \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }

static inline double at(const qn_tensor *t, int64_t i) {
    return qn_load_one((qn_dtype)t->dtype, (char *)t->data + i * qn_dtype_describe((qn_dtype)t->dtype)->bytes);
}
static inline void put(const qn_tensor *t, int64_t i, double v) {
    qn_store_one((qn_dtype)t->dtype, (char *)t->data + i * qn_dtype_describe((qn_dtype)t->dtype)->bytes, v);
}
static inline void fill(const qn_tensor *t, const double *v) {
    for (int64_t i = 0; i < qn_tensor_count(t); i++) put(t, i, v[i]);
}

static uint64_t seed = 5;
static inline double uniform(void) {
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(seed >> 11) * 0x1p-53;
}
static inline double normal(void) { return sqrt(-2 * log(1 - uniform())) * cos(2 * acos(-1) * uniform()); }
static inline void fill_random(const qn_tensor *t, double low, double high) {
    for (int64_t i = 0; i < qn_tensor_count(t); i++) put(t, i, low + (high - low) * uniform());
}

/* Runs an op; outputs are made as the op says. States keep their place. */
static inline void apply(int op, const void *attr, int n_src, const qn_tensor *src, int n_dst, qn_tensor *dst) {
    qn_request q = {.size = sizeof q, .version = QN_REQUEST_VERSION, .op = (uint16_t)op, .n_src = (uint16_t)n_src, .attr = attr};
    qn_tensor out[QN_MAX_DST];
    qn_result result;
    char text[300];
    size_t workspace = 0;
    int n_out = 0;
    for (int i = 0; i < n_src; i++) q.src[i] = src[i].rank ? &src[i] : NULL;
    if (qn_infer(&q, out, &n_out, &result) == QN_OK && qn_workspace_bytes(&q, &workspace, &result) == QN_OK) {
        for (int i = 0; i < n_dst; i++) {
            int state = i < n_src && (qn_op_describe(op)->src[i].flags & QN_SLOT_STATE);
            dst[i] = state ? src[i] : make((qn_dtype)out[i].dtype, out[i].rank, out[i].shape);
            q.dst[i] = &dst[i];
        }
        q.n_dst = (uint16_t)n_dst;
        q.workspace_size = workspace;
        if (workspace) q.workspace = aligned_alloc(QN_WORKSPACE_ALIGN, (workspace + 63) / 64 * 64);
        qn_dispatch(context, &q, &result);
        free(q.workspace);
    }
    qn_result_format(&result, text, sizeof text);
    if (result.status != QN_OK) fail_msg("%s", text);
}

static inline void near(double have, double want, double bound) {
    if (!(fabs(have - want) <= bound)) fail_msg("%.12g, expected %.12g", have, want);
}

/* The largest error as a part of the largest element. */
static inline double apart(const qn_tensor *a, const qn_tensor *b) {
    double error = 0, size = 0;
    for (int64_t i = 0; i < qn_tensor_count(a); i++) {
        error = fmax(error, fabs(at(a, i) - at(b, i)));
        size = fmax(size, fabs(at(b, i)));
    }
    return error / size;
}

#endif
