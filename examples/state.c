/* Keeps state across runs: a running mean of what is fed in, which never leaves the plan. On a device it would stay there. */
#include <quern/quern.h>
#include <stdio.h>

static qn_error error;

static int fail(void) {
    printf("%s\n", error.text);
    return 1;
}

static qn_status set(qn_plan *plan, const char *name, float *data, int64_t n) {
    qn_tensor t;
    qn_tensor_init(&t, QN_DTYPE_F32, 1, &n, data, (size_t)n * sizeof *data);
    return qn_plan_set(plan, name, &t, &error);
}

int main(void) {
    enum { N = 4 };
    int64_t n = N;
    float zero[N] = {0}, sample[N], mean[N];
    qn_graph *g;
    qn_plan *plan;
    qn_graph_create(0, &g);
    qn_val state = qn_graph_input(g, "mean", QN_DTYPE_F32, 1, &n), x = qn_graph_input(g, "x", QN_DTYPE_F32, 1, &n);

    /* next = 0.9 mean + 0.1 x */
    qn_attr_scale most = qn_attr_scale_default(), rest = qn_attr_scale_default();
    most.s = 0.9f;
    rest.s = 0.1f;
    qn_val a = qn_graph_op(g, QN_OP_scale, 0, 1, &state, &most), b = qn_graph_op(g, QN_OP_scale, 0, 1, &x, &rest);
    qn_graph_output(g, qn_graph_op(g, QN_OP_add, 0, 2, (qn_val[]){a, b}, NULL), "next");

    if (qn_plan_create(g, NULL, &plan, &error) != QN_OK) return fail();
    if (qn_plan_feed(plan, "next", "mean", &error) != QN_OK) return fail(); /* the output is the next run's input */
    if (set(plan, "mean", zero, N) != QN_OK) return fail();
    for (int run = 1; run <= 50; run++) {
        for (int i = 0; i < N; i++) sample[i] = (float)(i + run % 2);
        if (set(plan, "x", sample, N) != QN_OK || qn_plan_run(plan, NULL, &error) != QN_OK) return fail();
    }
    if (qn_plan_read(plan, "next", 0, mean, sizeof mean, &error) != QN_OK) return fail();
    for (int i = 0; i < N; i++) printf("%.3f%c", (double)mean[i], i + 1 < N ? ' ' : '\n');
    qn_plan_destroy(plan);
    qn_graph_destroy(g);
    return 0;
}
