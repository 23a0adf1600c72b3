/* `qn_check threads`: one, two, three and seven threads give the same bits, for every op of the table, and every part of a round of theirs
 * runs once. Ops that a request can run are
 * dispatched on their cases with all the kernels this machine has; an op without a case that comes to a result fails the check. What
 * has bodies runs in a plan, with whole steps of training and whole layers, which are held to the same. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "check_plans.h"
#include "cpu/cpu.h"
#include "thread/pool.h"

enum { ROOM = 1 << 22, MOST_SMALL = 1500, MOST_LARGE = 120000, PARTS = 8, ROUNDS = 50000 };

static const int counts[] = {1, 2, 3, 7};
enum { COUNTS = sizeof counts / sizeof *counts };

static unsigned char first[ROOM], others[ROOM];
static int covered[QN_OP_COUNT];

/* Contexts with every kernel, by number of threads. */
typedef struct bench {
    qn_pool *pools[COUNTS];
    qn_context *contexts[COUNTS];
} bench;

static int make_bench(bench *t) {
    for (int i = 0; i < COUNTS; i++) {
        t->pools[i] = qc_pool_start(counts[i]);
        qn_context_options o = {.size = sizeof o, .pool = t->pools[i]};
        if (!t->pools[i] || qn_pool_threads(t->pools[i]) != counts[i] || qn_context_create(&o, &t->contexts[i]) != QN_OK)
            return 0;
    }
    return 1;
}

static void drop_bench(bench *t) {
    for (int i = 0; i < COUNTS; i++) {
        qn_context_destroy(t->contexts[i]);
        qn_pool_destroy(t->pools[i]);
    }
}

/* ---- Rounds */

typedef struct tally {
    _Atomic int seen[PARTS];
} tally;

static void count(void *arg, int64_t part) { atomic_fetch_add_explicit(&((tally *)arg)->seen[part], 1, memory_order_relaxed); }

/* One small round after the other, so that whoever comes late to one would be found in the next. */
static void check_rounds(qn_pool *pool) {
    static tally two[2];
    int64_t wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        tally *t = &two[round & 1];
        int parts = 2 + round % (PARTS - 1);
        for (int k = 0; k < PARTS; k++) atomic_store_explicit(&t->seen[k], 0, memory_order_relaxed);
        qn_pool_for(pool, parts, count, t);
        for (int k = 0; k < PARTS; k++) wrong += atomic_load_explicit(&t->seen[k], memory_order_relaxed) != (k < parts);
    }
    if (!wrong) qc_pass();
    else
        qc_fail(NULL, "%d threads: %lld parts of %d rounds did not run once", qn_pool_threads(pool), (long long)wrong,
                (int)ROUNDS);
}

/* ---- Ops */

/* Outputs of one run; -1 when it came to none. */
static int64_t run_once(qc_built *b, const qc_case *c, const qc_draw *d, qn_context *context, unsigned char *out) {
    qc_outcome o;
    qc_context = context;
    qc_build(b, c, d, &(qc_options){.poison = 0xff});
    if (b->trouble || b->inferred != QN_OK) return -1;
    qc_run(b, &o);
    return o.status == QN_OK ? (int64_t)qc_outputs(b, out, ROOM) : -1;
}

static void check_draw(bench *t, const qc_case *c, const qc_draw *d) {
    qc_built b;
    int64_t bytes = run_once(&b, c, d, t->contexts[0], first);
    if (bytes < 0) return;
    for (int i = 1; i < COUNTS; i++) {
        if (run_once(&b, c, d, t->contexts[i], others) == bytes && memcmp(first, others, (size_t)bytes) == 0) qc_pass();
        else qc_fail(&b, "%d threads give other bits than one", counts[i]);
    }
    covered[c->op] += bytes > 0;
}

static void check_ops(bench *t) {
    for (int i = 0; i < qc_cases_count(); i++) {
        const qc_case *c = qc_cases_at(i);
        if (c->kind != QC_ACCEPT || (qc_set.op >= 0 && qc_set.op != c->op)) continue;
        int64_t most = qc_set.quick ? 2 : 12, step = c->n_variant <= most ? 1 : (c->n_variant + most - 1) / most;
        int64_t large = qn_cpu_has_kernel(c->op) && !qc_set.small ? MOST_LARGE : MOST_SMALL;
        for (int64_t v = 0; v < c->n_variant; v += step) {
            qc_draw d;
            uint64_t seed = qc_mix(qc_case_seed(c), (uint64_t)v);
            qc_draw_make(c, &d, v, QC_SHAPES_ODD, MOST_SMALL, seed);
            check_draw(t, c, &d);
            qc_draw_make(c, &d, v, QC_SHAPES_LARGE, large, seed + 1);
            check_draw(t, c, &d);
        }
    }
}

/* ---- Plans */

static void check_plan(bench *t, int number) {
    qc_plan plan;
    int64_t bytes = -1;
    for (int i = 0; i < COUNTS; i++) {
        if (!qc_plan_begin(number, &plan)) return;
        for (int32_t n = 0; i == 0 && n < qn_graph_node_count(plan.graph); n++) {
            qn_node_info node = {.size = sizeof node};
            if (qn_graph_node(plan.graph, n, &node) == QN_OK) covered[node.op]++;
        }
        int64_t got = qc_plan_run(&plan, t->contexts[i], i == 0 ? first : others, ROOM);
        if (i == 0) bytes = got;
        else if (got == bytes && memcmp(first, others, (size_t)bytes) == 0) qc_pass();
        else qc_fail(NULL, "plan \"%s\": %d threads give other bits than one", plan.name, counts[i]);
        qc_plan_end(&plan);
    }
}

int qc_mode_threads(void) {
    bench t = {{NULL}, {NULL}};
    qn_context *around = qc_context;
    int n_covered = 0, n_kernels = 0;
    if (make_bench(&t)) {
        for (int i = 0; i < COUNTS; i++) check_rounds(t.pools[i]);
        check_ops(&t);
        for (int i = 0; qc_set.op < 0 && i < qc_plans_count(); i++) check_plan(&t, i);
    } else qc_fail(NULL, "there are no pools of 1, 2, 3 and 7 threads");
    for (int op = 0; op < QN_OP_COUNT; op++) {
        n_covered += covered[op] > 0;
        n_kernels += covered[op] > 0 && qn_cpu_has_kernel(op);
        if (!covered[op] && (qc_set.op < 0 || qc_set.op == op))
            qc_fail(NULL, "%s was not run with several threads", qn_op_describe(op)->name);
    }
    printf("%d of %d ops run with 1, 2, 3 and 7 threads, %d of them have kernels\n", n_covered, (int)QN_OP_COUNT, n_kernels);
    drop_bench(&t);
    qc_context = around;
    return qc_finish();
}
