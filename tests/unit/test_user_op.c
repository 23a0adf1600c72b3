/* An op that a program brings along, in a graph: its shape rule is asked as the graph is built, its function runs in a plan, its
 * gradient is part of qn_graph_grad. The op scales rows by a number of its own and also gives their sums. */
#include "control_help.h"

typedef struct scaler {
    double by;
    int shapes, runs, backs; /* how often each function was called */
} scaler;

static qn_status scale_shape(void *user, int n_src, const qn_tensor *const *src, qn_tensor *dst) {
    ((scaler *)user)->shapes++;
    if (n_src != 1 || !src[0] || src[0]->rank != 2 || src[0]->dtype != QN_DTYPE_F64) return QN_INVALID;
    for (int i = 0; i < 2; i++) {
        dst[i].dtype = QN_DTYPE_F64;
        dst[i].rank = 2 - i;
        memcpy(dst[i].shape, src[0]->shape, sizeof dst[i].shape);
    }
    return QN_OK;
}

static double *at(const qn_tensor *t, int64_t i, int64_t j) {
    return (double *)(void *)((char *)t->data + t->offset + i * t->stride[0] + (t->rank > 1 ? j * t->stride[1] : 0));
}

static qn_status scale_run(void *user, int n_src, const qn_tensor *const *src, int n_dst, const qn_tensor *const *dst, int task,
                           int n_tasks) {
    scaler *s = user;
    s->runs++;
    if (n_src != 1 || n_dst != 2) return QN_INVALID;
    for (int64_t i = task; i < src[0]->shape[0]; i += n_tasks) {
        double sum = 0;
        for (int64_t j = 0; j < src[0]->shape[1]; j++) sum += *at(dst[0], i, j) = s->by * *at(src[0], i, j);
        *at(dst[1], i, 0) = sum;
    }
    return QN_OK;
}

static qn_status scale_back(void *user, int wanted, int n_src, const qn_tensor *const *src, int n_dst,
                            const qn_tensor *const *grad, const qn_tensor *dx) {
    scaler *s = user;
    s->backs++;
    if (wanted != 0 || n_src != 1 || n_dst != 2 || !src[0]) return QN_INVALID;
    for (int64_t i = 0; i < dx->shape[0]; i++)
        for (int64_t j = 0; j < dx->shape[1]; j++)
            *at(dx, i, j) = s->by * ((grad[0] ? *at(grad[0], i, j) : 0) + (grad[1] ? *at(grad[1], i, 0) : 0));
    return QN_OK;
}

static void own_op_runs_and_differentiates_in_a_plan(void **state) {
    scaler s = {.by = 3};
    const qn_user_op op = {"scaler", 1, 2, 2, &s, scale_shape, scale_run, scale_back};
    const int64_t shape[2] = {4, 5};
    qn_attr_user_op attr = qn_attr_user_op_default();
    qn_graph *g;
    (void)state;
    attr.definition = &op;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F64, 2, shape), out[2], grads[2];
    assert_int_equal(qn_graph_apply(g, QN_OP_user_op, 0, 1, &x, &attr, 2, out), QN_OK);
    assert_true(s.shapes > 0);
    for (int i = 0; i < 2; i++) { /* losses: the sum of squares of one output each, which leaves the other without a gradient */
        qn_val squares = qn_graph_op(g, QN_OP_sqr, 0, 1, &out[i], NULL), loss = qn_graph_op(g, QN_OP_sum, 0, 1, &squares, NULL);
        assert_int_equal(qn_graph_grad(g, loss, 1, &x, &grads[i]), QN_OK);
    }
    qn_graph_output(g, out[0], "scaled");
    qn_graph_output(g, out[1], "sums");
    qn_graph_output(g, grads[0], "by scaled");
    qn_graph_output(g, grads[1], "by sums");
    qn_plan *p = plan_of(g);
    double data[20];
    for (int i = 0; i < 20; i++) data[i] = i;
    set(p, "x", data);
    run(p);
    assert_true(s.runs == op.n_tasks && s.backs == 2);
    const double *scaled = output(p, "scaled"), *sums = output(p, "sums"), *a = output(p, "by scaled"), *b = output(p, "by sums");
    for (int i = 0; i < 20; i++) {
        assert_true(scaled[i] == 3 * i);
        assert_true(sums[i / 5] == 3 * (5 * 5 * (i / 5) + 10));
        assert_true(a[i] == 2 * 9.0 * i);
        assert_true(b[i] == 2 * 3 * sums[i / 5]);
    }
    qn_plan_destroy(p);
    qn_graph_destroy(g);
}

static void own_guard_turns_down_as_the_graph_is_built(void **state) {
    scaler s = {.by = 3};
    const qn_user_op op = {"scaler", 1, 2, 1, &s, scale_shape, scale_run, NULL};
    const int64_t shape[3] = {2, 3, 4};
    qn_attr_user_op attr = qn_attr_user_op_default();
    qn_error error;
    qn_graph *g;
    qn_val out[2];
    (void)state;
    attr.definition = &op;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F64, 3, shape);
    assert_int_not_equal(qn_graph_apply(g, QN_OP_user_op, 0, 1, &x, &attr, 2, out), QN_OK);
    assert_int_not_equal(qn_graph_error(g, &error), QN_OK);
    assert_non_null(strstr(error.text, "callback returned"));
    qn_graph_destroy(g);
    assert_int_equal(s.runs, 0);
}

/* Without a gradient of its own it has none, and the sentence says so. */
static void no_gradient_is_an_error(void **state) {
    scaler s = {.by = 3};
    const qn_user_op op = {"scaler", 1, 2, 1, &s, scale_shape, scale_run, NULL};
    const int64_t shape[2] = {2, 3};
    qn_attr_user_op attr = qn_attr_user_op_default();
    qn_error error;
    qn_graph *g;
    qn_val out[2], grad;
    (void)state;
    attr.definition = &op;
    assert_int_equal(qn_graph_create(0, &g), QN_OK);
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F64, 2, shape);
    assert_int_equal(qn_graph_apply(g, QN_OP_user_op, 0, 1, &x, &attr, 2, out), QN_OK);
    qn_val loss = qn_graph_op(g, QN_OP_sum, 0, 1, &out[0], NULL);
    assert_int_equal(qn_graph_grad(g, loss, 1, &x, &grad), QN_UNSUPPORTED);
    qn_graph_error(g, &error);
    assert_non_null(strstr(error.text, "definition has no gradient"));
    qn_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_op_runs_and_differentiates_in_a_plan),
        cmocka_unit_test(own_guard_turns_down_as_the_graph_is_built),
        cmocka_unit_test(no_gradient_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
