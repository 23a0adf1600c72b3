/* Views that are right and unusual: axes of one with any stride, ones in front on one side only, one element that claims to be very
 * many. Kernels, not references; the sanitizers see what is read and written beside them. */
#include <stdlib.h>
#include <string.h>

#include <quern/quern.h>

#include "cmocka_setup.h"

static qn_tensor view(qn_dtype dtype, int rank, const int64_t *shape, void *data, uint64_t bytes) {
    qn_tensor t;
    assert_int_equal(qn_tensor_init(&t, dtype, rank, shape, data, bytes), QN_OK);
    return t;
}
#define VIEW(dtype, data, bytes, ...) \
    view(dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}, data, bytes)

static qn_request request(int op, const void *attr, int n_src, const qn_tensor *src, const qn_tensor *dst) {
    qn_request q = {.size = sizeof q, .version = QN_REQUEST_VERSION, .op = (uint16_t)op, .attr = attr};
    q.n_src = (uint16_t)n_src;
    q.n_dst = dst != NULL;
    for (int i = 0; i < n_src; i++) q.src[i] = &src[i];
    q.dst[0] = dst;
    return q;
}

static void run(int op, const void *attr, int n_src, const qn_tensor *src, const qn_tensor *dst) {
    qn_request q = request(op, attr, n_src, src, dst);
    qn_context *context;
    qn_result r;
    char text[300];
    assert_int_equal(qn_context_create(NULL, &context), QN_OK);
    assert_int_equal(qn_workspace_bytes(&q, &q.workspace_size, &r), QN_OK);
    if (q.workspace_size) q.workspace = aligned_alloc(QN_WORKSPACE_ALIGN, (q.workspace_size + 63) / 64 * 64);
    if (qn_dispatch(context, &q, &r) != QN_OK) {
        qn_result_format(&r, text, sizeof text);
        fail_msg("%s", text);
    }
    free(q.workspace);
    qn_context_destroy(context);
}

/* A row turned into a column: its last axis, of one, keeps the stride of the row's first. */
static void a_turned_row_of_packed_weights(void **state) {
    (void)state;
    enum { ROWS = 5 };
    float *x = malloc(ROWS * sizeof *x), *y = malloc(ROWS * sizeof *y), scale = 0.5f;
    int8_t w = 6;
    for (int i = 0; i < ROWS; i++) x[i] = (float)i + 1;
    qn_tensor src[3] = {VIEW(QN_DTYPE_F32, x, ROWS * 4, ROWS, 1), VIEW(QN_DTYPE_I8, &w, 1, 1, 1),
                        VIEW(QN_DTYPE_F32, &scale, 4, 1, 1)};
    qn_tensor dst = VIEW(QN_DTYPE_F32, y, ROWS * 4, ROWS, 1);
    src[0].stride[1] = dst.stride[1] = ROWS * 4;
    run(QN_OP_dequant_matmul, NULL, 3, src, &dst);
    for (int i = 0; i < ROWS; i++) assert_true(y[i] == 3 * x[i]);
    free(x);
    free(y);
}

static void products_with_another_axis_of_one(void **state) {
    (void)state;
    float a[6] = {1, 2, 3, 4, 5, 6}, b[12] = {1, 0, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1}, *y = malloc(8 * sizeof *y);
    static const float want[8] = {1, 2, 3, 6, 4, 5, 6, 15};
    qn_attr_dot_general at = qn_attr_dot_general_default();
    at.lc = (qn_dims){.rank = 1, .d = {1}};
    at.rc = (qn_dims){.rank = 1, .d = {0}};
    qn_tensor src[2] = {VIEW(QN_DTYPE_F32, a, sizeof a, 2, 3), VIEW(QN_DTYPE_F32, b, sizeof b, 3, 4)};
    qn_tensor dst = VIEW(QN_DTYPE_F32, y, 32, 1, 2, 4);
    run(QN_OP_dot_general, &at, 2, src, &dst);
    assert_memory_equal(y, want, sizeof want);
    free(y);
}

/* The gradient with fewer axes than x, whose axes the attribute counts. */
static void a_gradient_without_the_one_in_front(void **state) {
    (void)state;
    float g[6] = {1, 2, 3, 4, 5, 6}, x[6] = {0}, dx[6];
    static const float want[6] = {6, 5, 3, 15, 11, 6};
    qn_attr_scan_back at = qn_attr_scan_back_default();
    at.axis = 2;
    qn_tensor src[2] = {VIEW(QN_DTYPE_F32, g, sizeof g, 2, 3), VIEW(QN_DTYPE_F32, x, sizeof x, 1, 2, 3)};
    qn_tensor dst = VIEW(QN_DTYPE_F32, dx, sizeof dx, 1, 2, 3);
    src[0].shape[2] = 1000; /* beyond its rank: nobody's */
    run(QN_OP_scan_back, &at, 2, src, &dst);
    assert_memory_equal(dx, want, sizeof want);
}

static void nothing_beside_something(void **state) {
    (void)state;
    float a[6] = {1, 2, 3, 4, 5, 6}, *y = malloc(sizeof a);
    qn_attr_concat at = qn_attr_concat_default();
    at.axis = 0;
    qn_tensor src[2] = {VIEW(QN_DTYPE_F32, a, sizeof a, 1, 6), VIEW(QN_DTYPE_F32, NULL, 0, 0, 6)};
    qn_tensor dst = VIEW(QN_DTYPE_F32, y, sizeof a, 6);
    run(QN_OP_concat, &at, 2, src, &dst);
    assert_memory_equal(y, a, sizeof a);
    free(y);
}

/* One element for all: more of them than can be addressed are refused, and as many as can are reckoned with. */
static void one_element_that_is_many(void **state) {
    (void)state;
    float one = 1, y = 0;
    for (int bits = 40; bits <= 62; bits++) {
        int64_t k = (INT64_C(1) << bits) - 1;
        qn_tensor src[2] = {VIEW(QN_DTYPE_F32, &one, 4, 1, 1), VIEW(QN_DTYPE_F32, &one, 4, 1, 1)};
        qn_tensor dst = VIEW(QN_DTYPE_F32, &y, 4, 1, 1);
        src[0].shape[1] = src[1].shape[0] = k;
        for (int i = 0; i < 4; i++) src[i / 2].stride[i % 2] = 0;
        qn_request q = request(QN_OP_matmul, NULL, 2, src, &dst);
        qn_result r;
        size_t bytes = 0;
        qn_status status = qn_workspace_bytes(&q, &bytes, &r);
        assert_int_equal(status, bits > 45 ? QN_INVALID : QN_OK);
        if (bits > 45) assert_int_equal(r.reason, QN_REASON_SIZE_OVERFLOW);
    }
}

static void more_channels_than_can_be_said(void **state) {
    (void)state;
    for (int more = 0; more < 3; more++) {
        int64_t channels = (INT64_C(1) << 32) + more;
        qn_tensor src[2] = {VIEW(QN_DTYPE_F32, NULL, 0, channels, 1, 2, 2), VIEW(QN_DTYPE_F32, NULL, 0, 1, channels, 6, 6)};
        qn_request q = request(QN_OP_conv_2d_dw, NULL, 2, src, NULL);
        qn_result r;
        size_t bytes;
        assert_int_equal(qn_workspace_bytes(&q, &bytes, &r), QN_OK);
    }
}

/* Keys and values of one place, head and batch, which no stride is followed to: not even a step beyond. */
static void one_key_with_any_stride(void **state) {
    (void)state;
    enum { QUERIES = 3, DEEP = 32 };
    float q[QUERIES * DEEP], k[DEEP], v[DEEP], *y = malloc(sizeof q);
    for (int i = 0; i < QUERIES * DEEP; i++) q[i] = (float)(i % 7) / 7;
    for (int i = 0; i < DEEP; i++) k[i] = 1, v[i] = (float)i;
    qn_attr_flash_attn_ext flash = qn_attr_flash_attn_ext_default();
    flash.scale = 1;
    for (int way = 0; way < 2; way++)
        for (int queries = 1; queries <= QUERIES; queries += QUERIES - 1) {
            qn_tensor src[3] = {VIEW(QN_DTYPE_F32, q, sizeof q, 1, 1, queries, DEEP),
                                VIEW(QN_DTYPE_F32, k, sizeof k, 1, 1, 1, DEEP), VIEW(QN_DTYPE_F32, v, sizeof v, 1, 1, 1, DEEP)};
            qn_tensor dst = VIEW(QN_DTYPE_F32, y, sizeof q, 1, 1, queries, DEEP);
            if (way) dst = VIEW(QN_DTYPE_F32, y, sizeof q, 1, queries, 1, DEEP);
            for (int i = 0; i < 3; i++) src[1].stride[i] = src[2].stride[i] = INT64_MAX - 7;
            run(way ? QN_OP_flash_attn_ext : QN_OP_attention, way ? (const void *)&flash : NULL, 3, src, &dst);
            for (int i = 0; i < queries * DEEP; i++) assert_true(y[i] == v[i % DEEP]);
        }
    free(y);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_turned_row_of_packed_weights),
        cmocka_unit_test(products_with_another_axis_of_one),
        cmocka_unit_test(a_gradient_without_the_one_in_front),
        cmocka_unit_test(nothing_beside_something),
        cmocka_unit_test(one_element_that_is_many),
        cmocka_unit_test(more_channels_than_can_be_said),
        cmocka_unit_test(one_key_with_any_stride),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
