/* Trains a two-layer net to tell whether two numbers have the same sign, and prints the loss as it falls. */
#include <quern/quern.h>
#include <stdio.h>

enum { BATCH = 64, HIDDEN = 16, STEPS = 400 };

static qn_error error;
static int set(qn_plan *p, const char *name, int rank, const int64_t *shape, float *data, size_t bytes) {
    qn_tensor t;
    qn_tensor_init(&t, QN_DTYPE_F32, rank, shape, data, bytes);
    return qn_plan_set(p, name, &t, &error) == QN_OK;
}

int main(void) {
    const char *names[] = {"w1", "b1", "w2"};
    int64_t shapes[3][2] = {{2, HIDDEN}, {1, HIDDEN}, {HIDDEN, 1}};
    static float x[BATCH][2], y[BATCH], start[3][2 * HIDDEN];
    unsigned random = 1;
    qn_graph *g;
    qn_graph_create(0, &g);
    qn_val in = qn_graph_input(g, "x", QN_DTYPE_F32, 2, (int64_t[]){BATCH, 2}), w[3], dw[3];
    qn_val want = qn_graph_input(g, "y", QN_DTYPE_F32, 2, (int64_t[]){BATCH, 1});
    qn_val rate = qn_graph_input(g, "rate", QN_DTYPE_F32, 1, (int64_t[]){2});
    for (int i = 0; i < 3; i++) w[i] = qn_graph_param(g, names[i], QN_DTYPE_F32, 2, shapes[i]);
    qn_val h = qn_graph_op(g, QN_OP_matmul, 0, 2, (qn_val[]){in, w[0]}, NULL);
    h = qn_graph_op(g, QN_OP_arith, QN_ARITH_add, 2, (qn_val[]){h, w[1]}, NULL);
    h = qn_graph_op(g, QN_OP_unary, QN_UNARY_tanh, 1, &h, NULL);
    h = qn_graph_op(g, QN_OP_matmul, 0, 2, (qn_val[]){h, w[2]}, NULL);
    h = qn_graph_op(g, QN_OP_sub, 0, 2, (qn_val[]){h, want}, NULL);
    h = qn_graph_op(g, QN_OP_sqr, 0, 1, &h, NULL);
    qn_val loss = qn_graph_op(g, QN_OP_reduce, QN_REDUCE_mean, 1, &h, NULL);
    qn_graph_grad(g, loss, 3, w, dw);
    for (int i = 0; i < 3; i++) /* each step updates its param where it is */
        qn_graph_output(g, qn_graph_op(g, QN_OP_opt_step_sgd, 0, 3, (qn_val[]){w[i], dw[i], rate}, NULL), names[i]);
    qn_graph_output(g, loss, "loss");

    qn_plan *plan; /* whatever went wrong above is said here, once */
    if (qn_plan_create(g, NULL, &plan, &error) != QN_OK) return printf("%s\n", error.text), 1;
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 2 * HIDDEN; k++)
            start[i][k] = (float)((random = random * 1103515245u + 12345u) >> 16 & 1023) / 512 - 1;
        if (!set(plan, names[i], 2, shapes[i], start[i], sizeof(float) * (size_t)(shapes[i][0] * shapes[i][1]))) return 1;
    }
    set(plan, "rate", 1, (int64_t[]){2}, (float[]){0.2f, 0}, 2 * sizeof(float));
    for (int step = 0; step <= STEPS; step++) {
        for (int i = 0; i < BATCH; i++) {
            for (int k = 0; k < 2; k++) x[i][k] = (float)((random = random * 1103515245u + 12345u) >> 16 & 1023) / 512 - 1;
            y[i] = x[i][0] * x[i][1] > 0 ? 1 : -1;
        }
        set(plan, "x", 2, (int64_t[]){BATCH, 2}, x[0], sizeof x);
        set(plan, "y", 2, (int64_t[]){BATCH, 1}, y, sizeof y);
        if (qn_plan_run(plan, NULL, &error) != QN_OK) return printf("%s\n", error.text), 1;
        float now;
        qn_plan_read(plan, "loss", 0, &now, sizeof now, &error);
        if (step % 100 == 0) printf("step %3d: loss %.3f\n", step, (double)now);
    }
    qn_plan_destroy(plan);
    qn_graph_destroy(g);
}
