/* One op at once, through the dispatcher with the references, over dense arrays that the test owns. */
#ifndef QN_TESTS_EAGER_H
#define QN_TESTS_EAGER_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quern/quern.h>

#include "cmocka_setup.h"

static inline qn_tensor eager_tensor(qn_dtype dtype, int rank, const int64_t *shape, const void *data) {
    qn_tensor t;
    uint64_t bytes;
    assert_int_equal(qn_tensor_bytes(dtype, rank, shape, &bytes), QN_OK);
    assert_int_equal(qn_tensor_init(&t, dtype, rank, shape, (void *)(uintptr_t)data, bytes), QN_OK);
    return t;
}

/* Shape and data in one expression: EAGER(QN_DTYPE_F32, data, 2, 3). */
#define EAGER(dtype, data, ...) \
    eager_tensor(dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}, data)

static inline void eager_run(int op, const void *attr, int n_src, const qn_tensor *src, int n_dst, const qn_tensor *dst) {
    qn_context_options o = {.size = sizeof o, .flags = QN_CONTEXT_REFERENCE};
    qn_request q = {.size = sizeof q, .version = QN_REQUEST_VERSION, .op = (uint16_t)op, .attr = attr};
    qn_context *context;
    qn_result result;
    size_t workspace = 0;
    char text[300] = "";
    q.n_src = (uint16_t)n_src;
    q.n_dst = (uint16_t)n_dst;
    for (int i = 0; i < n_src; i++) q.src[i] = &src[i];
    for (int i = 0; i < n_dst; i++) q.dst[i] = &dst[i];
    assert_int_equal(qn_context_create(&o, &context), QN_OK);
    if (qn_workspace_bytes(&q, &workspace, &result) == QN_OK && workspace) {
        q.workspace = aligned_alloc(QN_WORKSPACE_ALIGN, (workspace + 63) / 64 * 64);
        q.workspace_size = workspace;
    }
    if (qn_dispatch(context, &q, &result) != QN_OK) {
        qn_result_format(&result, text, sizeof text);
        fail_msg("%s", text);
    }
    free(q.workspace);
    qn_context_destroy(context);
}

#endif
