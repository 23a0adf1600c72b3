/* A long row has the same bits alone and beside others, at every level: where one row is cut into pieces for threads, many are added up as
 * if they were. What goes row by row is not written down: the reference says so, as for `qn_check batch`, whose rows are shorter. */
#include <stdlib.h>
#include <string.h>

#include "cmocka_setup.h"
#include "cpu/cpu.h"
#include "run/context.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

enum { ROWS = 3, COLUMNS = 70002, MOST = 3, ROOM = 8 * ROWS * COLUMNS, OUTER = 12, INNER = COLUMNS / OUTER };

static qn_context *reference, *kernels;
static uint64_t source[MOST][ROWS * COLUMNS];
static unsigned char whole[2][ROOM], piece[2][ROOM];

static void draw(qn_dtype dtype) {
    uint64_t state = 88172645463325252u;
    for (int s = 0; s < MOST; s++)
        for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            double v = (double)(state >> 11) * 0x1p-52 - 1;
            qn_store_one(dtype, (char *)source[s] + i * qn_dtype_bytes(dtype), v);
        }
}

static int compared; /* by the kernels at hand */

/* Runs it into `to`; the bytes of the only result, 0 when the op would not. */
static size_t run(qn_context *context, qn_request *q, unsigned char *to, qn_tensor *y) {
    qn_tensor all[QN_MAX_DST];
    size_t bytes = 0;
    int n = 0;
    if (qn_infer(q, all, &n, NULL) != QN_OK || n != 1) return 0;
    *y = all[0];
    size_t size = (size_t)(qn_tensor_count(y) * qn_dtype_bytes(y->dtype));
    if (size == 0 || size > ROOM) return 0;
    y->data = to;
    y->size = size;
    q->n_dst = 1;
    q->dst[0] = y;
    q->workspace = NULL;
    q->workspace_size = 0;
    if (qn_workspace_bytes(q, &bytes, NULL) != QN_OK) return 0;
    q->workspace_size = (bytes + QN_WORKSPACE_ALIGN - 1) / QN_WORKSPACE_ALIGN * QN_WORKSPACE_ALIGN;
    q->workspace = bytes ? aligned_alloc(QN_WORKSPACE_ALIGN, q->workspace_size) : NULL;
    qn_status status = qn_dispatch(context, q, NULL);
    free(q->workspace);
    return status == QN_OK ? size : 0;
}

/* All rows and the last one, by the axis they have in the sources; 1 when the first axis of the result is theirs. */
static int run_both(qn_context *context, qn_request q, int axis, int which) {
    qn_tensor last[MOST], y, one;
    size_t bytes = run(context, &q, whole[which], &y);
    if (!bytes || y.shape[0] != ROWS) return 0;
    for (int i = 0; i < q.n_src; i++) {
        last[i] = *q.src[i];
        last[i].offset += (ROWS - 1) * last[i].stride[axis];
        last[i].shape[axis] = 1;
        q.src[i] = &last[i];
    }
    q.n_dst = 0;
    return run(context, &q, piece[which], &one) * ROWS == bytes ? (int)(bytes / ROWS) : 0;
}

static int is_last(int which, int bytes) { return memcmp(whole[which] + (ROWS - 1) * bytes, piece[which], (size_t)bytes) == 0; }

/* Sources all alike. */
static void check(int op, int subop, const void *attr, qn_dtype dtype, int rank, const int64_t *shape, int axis) {
    qn_tensor x[MOST];
    qn_request q = {.size = sizeof q, .version = QN_REQUEST_VERSION, .op = (uint16_t)op, .subop = (uint16_t)subop, .attr = attr};
    q.n_src = (uint16_t)qn_op_describe(op)->n_src_min;
    for (int i = 0; i < q.n_src; i++) {
        assert_int_equal(qn_tensor_init(&x[i], dtype, rank, shape, source[i], sizeof source[i]), QN_OK);
        q.src[i] = &x[i];
    }
    int bytes = run_both(reference, q, axis, 0);
    if (!bytes || !is_last(0, bytes)) return; /* not row by row */
    uint32_t have = qn_cpu_levels();
    for (int l = 0; l < QN_CPU_LEVEL_COUNT; l++) {
        if (!(have >> l & 1)) continue;
        kernels->cpu_levels = have & ((2u << l) - 1);
        assert_int_equal(run_both(kernels, q, axis, 1), bytes);
        compared++;
        if (!is_last(1, bytes))
            fail_msg("%s%s%s of %s, up to level %s: a row has other bits beside others", qn_op_describe(op)->name,
                     qn_subop_count(op) ? "." : "", qn_subop_count(op) ? qn_subop_name(op, subop) : "",
                     qn_dtype_describe(dtype)->name, qn_cpu_level_name(l));
    }
}

static const qn_dtype dtypes[] = {QN_DTYPE_F32, QN_DTYPE_F64, QN_DTYPE_BF16};

static void each(void (*check_dtype)(qn_dtype)) {
    qn_context_options plain = {.size = sizeof plain, .flags = QN_CONTEXT_REFERENCE};
    assert_int_equal(qn_context_create(&plain, &reference), QN_OK);
    assert_int_equal(qn_context_create(NULL, &kernels), QN_OK);
    compared = 0;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        draw(dtypes[d]);
        check_dtype(dtypes[d]);
    }
    qn_context_destroy(kernels);
    qn_context_destroy(reference);
}

/* Every op that needs no attribute. */
static void check_ops(qn_dtype dtype) {
    for (int op = 0; op < QN_OP_COUNT; op++) {
        const qn_op_info *info = qn_op_describe(op);
        if (info->is_view || info->n_body || info->n_src_min < 1 || info->n_src_min > MOST || info->n_dst_min != 1) continue;
        int subops = qn_subop_count(op) ? qn_subop_count(op) : 1;
        for (int s = 0; s < subops; s++) check(op, s, NULL, dtype, 2, (int64_t[]){ROWS, COLUMNS}, 0);
    }
}

static void long_rows(void **state) {
    (void)state;
    each(check_ops);
    assert_true(compared > 100);
}

/* What is reduced lies on both sides of the rows, or behind them in two axes. */
static void check_axes(qn_dtype dtype) {
    for (int s = 0; s < QN_REDUCE_COUNT; s++) {
        qn_attr_reduce around = qn_attr_reduce_default(), behind = around;
        around.axes = (qn_dims){.rank = 2, .d = {0, 2}};
        behind.axes = (qn_dims){.rank = 2, .d = {1, 2}};
        check(QN_OP_reduce, s, &around, dtype, 3, (int64_t[]){OUTER, ROWS, INNER}, 1);
        check(QN_OP_reduce, s, &around, dtype, 4, (int64_t[]){OUTER, ROWS, INNER / 6, 6}, 1);
        check(QN_OP_reduce, s, &behind, dtype, 3, (int64_t[]){ROWS, OUTER, INNER}, 0);
    }
}

static void axes_between(void **state) {
    (void)state;
    each(check_axes);
    assert_true(compared >= 3 * QN_REDUCE_COUNT);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(long_rows), cmocka_unit_test(axes_between)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
