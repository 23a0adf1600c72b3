/* quern bench plan: what planning costs for a large graph, and what a step costs when a plan of tiny ones is replayed. */
#include <stdio.h>
#include <stdlib.h>

#include "app.h"
#include "app_profile.h"
#include "bench.h"

enum { ADDS = 1000, LARGE = 10000, ROUNDS = 400 };

/* A chain of adds of 16 floats, long enough that a step's own cost shows. */
static qn_graph *chain(int n) {
    qn_graph *g = NULL;
    if (qn_graph_create(0, &g) != QN_OK) return NULL;
    qn_val x = qn_graph_input(g, "x", QN_DTYPE_F32, 1, (int64_t[]){16});
    qn_val y = qn_graph_input(g, "y", QN_DTYPE_F32, 1, (int64_t[]){16});
    for (int i = 0; i < n; i++) x = qn_graph_op(g, QN_OP_add, 0, 2, (qn_val[]){x, y}, NULL);
    qn_graph_output(g, x, "z");
    return g;
}

/* A deep net with its gradients, cut off at about n nodes: most values of the way up live until the way down. */
static qn_graph *deep(int n) {
    qn_graph *g = NULL;
    qn_val grads[2];
    if (qn_graph_create(0, &g) != QN_OK) return NULL;
    qn_val from = qn_graph_input(g, "x", QN_DTYPE_F32, 2, (int64_t[]){8, 16}),
           w = qn_graph_input(g, "w", QN_DTYPE_F32, 2, (int64_t[]){16, 16});
    qn_val x = from;
    while (qn_graph_node_count(g) < n / 4) {
        x = qn_graph_op(g, QN_OP_matmul, 0, 2, (qn_val[]){x, w}, NULL);
        x = qn_graph_op(g, QN_OP_unary, QN_UNARY_gelu, 1, &x, NULL);
    }
    x = qn_graph_op(g, QN_OP_sum, 0, 1, &x, NULL);
    qn_graph_grad(g, x, 2, (qn_val[]){from, w}, grads);
    while (qn_graph_node_count(g) < n) grads[0] = qn_graph_op(g, QN_OP_unary, QN_UNARY_tanh, 1, &grads[0], NULL);
    qn_graph_output(g, grads[0], "dx");
    qn_graph_output(g, grads[1], "dw");
    return g;
}

static qn_status set_inputs(qn_plan *plan, qn_error *error) {
    float data[16] = {0};
    qn_tensor t;
    qn_tensor_init(&t, QN_DTYPE_F32, 1, (int64_t[]){16}, data, sizeof data);
    qn_status status = qn_plan_set(plan, "x", &t, error);
    return status == QN_OK ? qn_plan_set(plan, "y", &t, error) : status;
}

/* Fastest nanoseconds per step, negative after a failure. */
static double replay(qn_plan *plan, int threads, qn_error *error) {
    qn_pool *pool = NULL;
    qn_context *context = NULL;
    double best = -1;
    if (threads > 1 && qn_pool_create(threads, &pool) != QN_OK) return -1;
    qn_context_options o = {.size = sizeof o, .pool = pool};
    if (qn_context_create(&o, &context) == QN_OK)
        for (int i = 0; i < ROUNDS; i++) {
            double start = bench_now();
            if (qn_plan_run(plan, context, error) != QN_OK) break;
            double each = (bench_now() - start) / ADDS;
            if (best < 0 || each < best) best = each;
        }
    qn_context_destroy(context);
    qn_pool_destroy(pool);
    return best;
}

static int measure_replay(app_profile *profile) {
    static const struct {
        int threads;
        double limit;
    } cases[] = {{1, 40}, {2, 100}};
    qn_error error = {QN_OK, ""};
    qn_plan *plan = NULL;
    qn_graph *g = chain(ADDS);
    qn_plan_options o = {.size = sizeof o, .flags = QN_PLAN_NO_PASSES}; /* else they become one region */
    int rc = APP_OK;
    if (!g || qn_plan_create(g, &o, &plan, &error) != QN_OK || set_inputs(plan, &error) != QN_OK) rc = APP_FAILED;
    for (size_t i = 0; rc == APP_OK && i < sizeof cases / sizeof *cases; i++) {
        double ns = replay(plan, cases[i].threads, &error);
        printf("  replay of %d adds of 16 floats, %d thread%s   %7.1f ns a step (limit %.0f: %s)\n", ADDS, cases[i].threads,
               cases[i].threads > 1 ? "s" : " ", ns, cases[i].limit, ns >= 0 && ns <= cases[i].limit ? "kept" : "exceeded");
        if (ns < 0 || ns > cases[i].limit) rc = APP_FAILED;
    }
    if (error.status != QN_OK) fprintf(stderr, "quern bench: %s\n", error.text);
    else if (app_profile_run(profile, plan, "bench plan") != APP_OK) rc = APP_FAILED;
    qn_plan_destroy(plan);
    qn_graph_destroy(g);
    return rc;
}

static int measure_planning(void) {
    qn_error error = {QN_OK, ""};
    qn_plan *plan = NULL;
    qn_graph *g = deep(LARGE);
    int32_t nodes = g ? qn_graph_node_count(g) : 0;
    double seconds[2];
    for (int i = 0; g && i < 2; i++) {
        qn_plan_options o = {.size = sizeof o, .flags = i ? 0 : QN_PLAN_NO_PASSES};
        double start = bench_now();
        if (qn_plan_create(g, &o, &plan, &error) != QN_OK) break;
        seconds[i] = (bench_now() - start) * 1e-9;
        qn_plan_destroy(plan);
    }
    qn_graph_destroy(g);
    if (!g || error.status != QN_OK) {
        fprintf(stderr, "quern bench: %s\n", g ? error.text : "no memory");
        return APP_FAILED;
    }
    int kept = seconds[0] < 1 && seconds[1] < 1;
    printf("  planning %d nodes   %.3f s as written, %.3f s with all passes (limit 1: %s)\n", nodes, seconds[0], seconds[1],
           kept ? "kept" : "exceeded");
    return kept ? APP_OK : APP_FAILED;
}

typedef struct plan_words {
    option_maybe profile;
} plan_words;

static const option_row rows[] = {APP_PROFILE_ROW(plan_words, profile), {0}};
static const option_group groups[] = {{NULL, rows, 0}, {0}};

static int run(const quern_verb *self, int argc, char **argv) {
    plan_words w = {{0, NULL}};
    app_profile profile;
    int rc = options_read(self, argc, argv, &w);
    if (rc != APP_OK) return rc;
    printf("plans, fastest of %d rounds\n", ROUNDS);
    int begun = app_profile_begin(&profile, app_profile_folder(&w.profile));
    if (begun != APP_OK) return begun;
    int a = measure_replay(&profile), b = measure_planning(), written = app_profile_end(&profile);
    return a == APP_OK && b == APP_OK ? written : APP_FAILED;
}

const quern_verb bench_plan = {
    .name = "bench plan",
    .who = "quern bench",
    .brief = "time planning 10,000 nodes, and replaying 1,000 tiny ones",
    .run = run,
    .usage = "[--profile[=DIR]]",
    .about = "Times how long a graph of 10,000 nodes takes to be planned, and what a step costs when a plan of 1,000 "
             "tiny ones is run again.",
    .groups = groups};
