/* quern bench profile: what recording costs, on and off, and how fast the analyser goes through a trace. Two contexts run the
 * same ops in turn, one recorded and one not. A run is made of blocks well under a millisecond, and the figure of each block is its
 * fastest round: on a shared machine longer stretches measure the neighbours. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "app.h"
#include "app_profile.h"
#include "bench.h"

enum { OPS = 1000, BLOCK = 10, ROUNDS = 40, TINY = 16, TINY_CALLS = 20000, ROWS = 64, COLUMNS = 128, INNER = 32 };

typedef struct plan {
    qn_request requests[3];
    qn_tensor tensors[9];
    float *memory;
    void *workspace;
} plan;

static qn_tensor *matrix(plan *p, int i, float **at, int64_t rows, int64_t columns) {
    int64_t shape[2] = {rows, columns};
    uint64_t bytes = (uint64_t)(rows * columns) * sizeof(float);
    qn_tensor_init(&p->tensors[i], QN_DTYPE_F32, 2, shape, *at, bytes);
    for (int64_t k = 0; k < rows * columns; k++) (*at)[k] = (float)(k % 7) * 0.25f;
    *at += rows * columns;
    return &p->tensors[i];
}

static void set_request(qn_request *q, qn_op op, const qn_tensor *a, const qn_tensor *b, const qn_tensor *y) {
    *q = (qn_request){.size = sizeof *q,
                      .version = QN_REQUEST_VERSION,
                      .op = (uint16_t)op,
                      .n_src = (uint16_t)(b ? 2 : 1),
                      .n_dst = 1,
                      .src = {a, b},
                      .dst = {y}};
}

/* The workspace of the neediest request, for all: they run one after another. */
static int give_workspace(plan *p) {
    size_t most = 0;
    for (int i = 0; i < 3; i++) {
        size_t bytes = 0;
        if (qn_workspace_bytes(&p->requests[i], &bytes, NULL) != QN_OK) return APP_FAILED;
        most = bytes > most ? bytes : most;
    }
    p->workspace = calloc(most ? most : 1, 1);
    for (int i = 0; i < 3; i++) {
        p->requests[i].workspace = p->workspace;
        p->requests[i].workspace_size = most;
    }
    return p->workspace ? APP_OK : APP_FAILED;
}

/* The ops a layer is made of: a sum, a product of matrices, a softmax, each some tens of microseconds. */
static int make_medium(plan *p) {
    float *at = p->memory = calloc(8 * ROWS * COLUMNS, sizeof(float));
    if (!at) return APP_FAILED;
    qn_tensor *a = matrix(p, 0, &at, ROWS, COLUMNS), *b = matrix(p, 1, &at, ROWS, COLUMNS), *y = matrix(p, 2, &at, ROWS, COLUMNS);
    set_request(&p->requests[0], QN_OP_add, a, b, y);
    a = matrix(p, 3, &at, ROWS / 2, INNER), b = matrix(p, 4, &at, ROWS / 2, INNER), y = matrix(p, 5, &at, ROWS / 2, ROWS / 2);
    set_request(&p->requests[1], QN_OP_mul_mat, a, b, y);
    a = matrix(p, 6, &at, ROWS / 2, COLUMNS), y = matrix(p, 7, &at, ROWS / 2, COLUMNS);
    set_request(&p->requests[2], QN_OP_soft_max, a, NULL, y);
    return give_workspace(p);
}

static void make_tiny(plan *p, float memory[3][TINY]) {
    int64_t shape[1] = {TINY};
    for (int i = 0; i < 3; i++) qn_tensor_init(&p->tensors[i], QN_DTYPE_F32, 1, shape, memory[i], sizeof memory[i]);
    for (int i = 0; i < 3; i++) set_request(&p->requests[i], QN_OP_add, &p->tensors[0], &p->tensors[1], &p->tensors[2]);
}

/* Nanoseconds an op; negative when one was rejected. */
static double time_ops(qn_context *context, const plan *p, int n) {
    double start = bench_now();
    for (int i = 0; i < n; i++)
        if (qn_dispatch(context, &p->requests[i % 3], NULL) != QN_OK) return -1;
    return (bench_now() - start) / n;
}

typedef struct pair {
    double off, on;
} pair;

/* Nanoseconds an op of a run of n ops, `block` at a time. */
static pair compare(qn_context *off, qn_context *on, const plan *p, int n, int block) {
    pair sum = {0, 0};
    for (int at = 0; at < n; at += block) {
        pair best = {1e18, 1e18};
        for (int round = 0; round < ROUNDS; round++) {
            double t_off = 0, t_on = 0;
            if (round % 2) t_on = time_ops(on, p, block); /* neither always follows the other */
            t_off = time_ops(off, p, block);
            if (round % 2 == 0) t_on = time_ops(on, p, block);
            if (t_off < 0 || t_on < 0) return (pair){-1, -1};
            if (t_off < best.off) best.off = t_off;
            if (t_on < best.on) best.on = t_on;
        }
        sum.off += best.off * block / n;
        sum.on += best.on * block / n;
    }
    return sum;
}

/* ---- The branch that remains when nothing is recorded ------------------------------------------------------------- */

typedef struct holder {
    void *volatile ring;
    uint64_t sum;
} holder;

__attribute__((noinline)) static void without_branch(holder *h) { h->sum++; }

__attribute__((noinline)) static void with_branch(holder *h) {
    if (h->ring) h->sum += 2;
    h->sum++;
}

static double time_branch(void (*call)(holder *)) {
    enum { CALLS = 1000000 };
    holder h = {NULL, 0};
    double best = 1e18;
    for (int round = 0; round < ROUNDS; round++) {
        double start = bench_now();
        for (int i = 0; i < CALLS; i++) call(&h);
        double ns = (bench_now() - start) / CALLS;
        if (ns < best) best = ns;
    }
    return best;
}

/* ---- The report --------------------------------------------------------------------------------------------------- */

static const char *kept(int yes) { return yes ? "kept" : "exceeded"; }

/* What was compared, in nanoseconds an op. */
typedef struct costs {
    pair same;           /* two contexts that no recorder is attached to: what is noise */
    pair waiting;        /* one of them attached to a recorder that waits for its turn */
    pair tiny, shapes;   /* one of them recording, without shapes and with */
    pair medium;         /* recording ops of a usual size */
    pair medium_waiting; /* not recording them */
} costs;

static int report(const costs *c) {
    enum { LIMIT_NS = 200, LIMIT_PERCENT = 2 };
    pair tiny = c->tiny, shapes = c->shapes, medium = c->medium;
    if (c->same.off < 0 || c->waiting.off < 0 || tiny.off < 0 || shapes.off < 0 || medium.off < 0 || c->medium_waiting.off < 0) {
        fprintf(stderr, "quern bench profile: an op was rejected\n");
        return APP_FAILED;
    }
    double cost = tiny.on - tiny.off, percent = 100 * (medium.on - medium.off) / medium.off;
    double branch = time_branch(with_branch) - time_branch(without_branch);
    printf("recording, fastest of %d rounds\n", ROUNDS);
    printf("  an op, without shapes       %8.1f ns more (limit %d ns: %s)\n", cost, LIMIT_NS, kept(cost <= LIMIT_NS));
    printf("  an op, with shapes          %8.1f ns more\n", shapes.on - shapes.off);
    printf("  %d ops of %5.1f us          %8.2f %% more (limit %d %%: %s)\n", OPS, medium.off / 1e3, percent, LIMIT_PERCENT,
           kept(percent <= LIMIT_PERCENT));
    printf("  off: a recorder that waits  %8.1f ns more an op of %.0f ns; two contexts without one differ by %.1f ns\n",
           c->waiting.on - c->waiting.off, c->waiting.off, c->same.on - c->same.off);
    printf("  off: %d ops as above      %8.2f %% more\n", OPS, 100 * (c->medium_waiting.on / c->medium_waiting.off - 1));
    printf("  off: one branch never taken %8.2f ns, %.4f %% of such an op\n", branch, 100 * branch / medium.off);
    return cost <= LIMIT_NS && percent <= LIMIT_PERCENT ? APP_OK : APP_FAILED;
}

/* A recorder whose records are thrown away, for timing. */
static int quiet_recorder(qn_context *context, uint32_t flags, uint32_t wait, qn_recorder **recorder) {
    qn_error error;
    qn_recorder_options options = qn_recorder_options_default();
    const char *place = getenv("TMPDIR");
    options.folder = place && *place ? place : "/tmp"; /* where no trace is ever written to */
    options.flags = flags | QN_RECORD_DROP_OLDEST;
    options.wait = wait; /* for a step that never comes */
    options.active = wait;
    if (qn_recorder_create(&options, recorder, &error) == QN_OK &&
        qn_recorder_attach(*recorder, context, "bench", &error) == QN_OK)
        return APP_OK;
    fprintf(stderr, "quern bench profile: %s\n", error.text);
    return APP_FAILED;
}

/* What is not recorded: two contexts alike, then one with a recorder that waits. */
static int measure_off(qn_context *off, qn_context *on, const plan *tiny, const plan *medium, costs *c) {
    qn_recorder *recorder = NULL;
    c->same = compare(off, on, tiny, TINY_CALLS, TINY_CALLS / 20);
    int rc = quiet_recorder(on, 0, 1, &recorder);
    if (rc == APP_OK) {
        c->waiting = compare(off, on, tiny, TINY_CALLS, TINY_CALLS / 20);
        c->medium_waiting = compare(off, on, medium, OPS, BLOCK);
    }
    qn_recorder_destroy(recorder);
    return rc;
}

static int measure_on(qn_context *off, qn_context *on, const plan *tiny, const plan *medium, app_profile *profile, costs *c) {
    qn_recorder *recorder = NULL;
    int rc = quiet_recorder(on, 0, 0, &recorder);
    if (rc == APP_OK) c->tiny = compare(off, on, tiny, TINY_CALLS, TINY_CALLS / 20);
    qn_recorder_destroy(recorder);
    recorder = NULL;
    if (rc == APP_OK) rc = quiet_recorder(on, QN_RECORD_SHAPES, 0, &recorder);
    if (rc == APP_OK) c->shapes = compare(off, on, tiny, TINY_CALLS, TINY_CALLS / 20);
    if (rc == APP_OK && profile->recorder) { /* the run that is kept replaces the one thrown away */
        qn_recorder_destroy(recorder);
        recorder = NULL;
        rc = app_profile_attach(profile, on, "bench profile");
    }
    if (rc == APP_OK) c->medium = compare(off, on, medium, OPS, BLOCK);
    qn_recorder_destroy(recorder);
    return rc;
}

static int measure_cost(qn_context *off, qn_context *on, app_profile *profile) {
    plan medium, tiny;
    float small[3][TINY] = {{0}};
    costs c;
    memset(&medium, 0, sizeof medium);
    memset(&tiny, 0, sizeof tiny);
    make_tiny(&tiny, small);
    int rc = make_medium(&medium);
    if (rc == APP_OK) rc = measure_off(off, on, &tiny, &medium, &c);
    if (rc == APP_OK) rc = measure_on(off, on, &tiny, &medium, profile, &c);
    free(medium.memory);
    free(medium.workspace);
    return rc == APP_OK ? report(&c) : rc;
}

int bench_profile(int argc, char **argv, const char *folder) {
    app_profile profile;
    if (app_profile_begin(&profile, folder) != APP_OK) return APP_FAILED; /* before a minute's work would be lost */
    int trace_rc = APP_OK; /* first, while the process is small: peak memory is the process's */
    if (argc == 2) trace_rc = bench_trace(argv[1]);
    else printf("analyser: not measured; name a trace file to do so\n");
    qn_context *off = NULL, *on = NULL;
    int rc = APP_FAILED;
    if (qn_context_create(NULL, &off) == QN_OK && qn_context_create(NULL, &on) == QN_OK) rc = measure_cost(off, on, &profile);
    else fprintf(stderr, "quern bench profile: no context could be made\n");
    int written = app_profile_end(&profile);
    qn_context_destroy(off);
    qn_context_destroy(on);
    if (rc == APP_OK) rc = written;
    return rc == APP_OK ? trace_rc : rc;
}
