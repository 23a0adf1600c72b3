/* quern bench profile: what recording costs, on and off, and how fast the analyser goes through a trace. Two contexts run the
 * same ops in turn, one recorded and one not. A run is made of blocks well under a millisecond, and the figure of each block is its
 * fastest round: on a shared machine longer stretches measure the neighbours. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "app.h"
#include "app_profile.h"
#include "bench.h"

enum { OPS = 300, BLOCK = 10, ROUNDS = 40, TINY = 16, TINY_CALLS = 20000, ROWS = 128, COLUMNS = 512, SIDE = 128, INNER = 128 };

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

static int no_memory(void) {
    fprintf(stderr, "quern bench profile: there is no memory for what is timed\n");
    return APP_FAILED;
}

/* What the library says about a request that it rejected. */
static int rejected(const qn_result *result) {
    char text[300];
    qn_result_format(result, text, sizeof text);
    fprintf(stderr, "quern bench profile: %s\n", text);
    return APP_FAILED;
}

/* The workspace of the neediest request, for all: they run one after another. */
static int give_workspace(plan *p) {
    size_t most = QN_WORKSPACE_ALIGN;
    for (int i = 0; i < 3; i++) {
        size_t bytes = 0;
        qn_result result;
        if (qn_workspace_bytes(&p->requests[i], &bytes, &result) != QN_OK) return rejected(&result);
        most = bytes > most ? bytes : most;
    }
    most += -most % QN_WORKSPACE_ALIGN; /* aligned_alloc asks for that */
    p->workspace = aligned_alloc(QN_WORKSPACE_ALIGN, most);
    if (!p->workspace) return no_memory();
    memset(p->workspace, 0, most);
    for (int i = 0; i < 3; i++) {
        p->requests[i].workspace = p->workspace;
        p->requests[i].workspace_size = most;
    }
    return APP_OK;
}

/* The ops a layer is made of: a sum, a product of matrices, a softmax, each of one to a few tens of microseconds on a fast core. */
static int make_medium(plan *p) {
    float *at = p->memory = calloc(5 * ROWS * COLUMNS + 2 * SIDE * INNER + SIDE * SIDE, sizeof(float));
    if (!at) return no_memory();
    qn_tensor *a = matrix(p, 0, &at, ROWS, COLUMNS), *b = matrix(p, 1, &at, ROWS, COLUMNS), *y = matrix(p, 2, &at, ROWS, COLUMNS);
    set_request(&p->requests[0], QN_OP_add, a, b, y);
    a = matrix(p, 3, &at, SIDE, INNER), b = matrix(p, 4, &at, SIDE, INNER), y = matrix(p, 5, &at, SIDE, SIDE);
    set_request(&p->requests[1], QN_OP_mul_mat, a, b, y);
    a = matrix(p, 6, &at, ROWS, COLUMNS), y = matrix(p, 7, &at, ROWS, COLUMNS);
    set_request(&p->requests[2], QN_OP_soft_max, a, NULL, y);
    return give_workspace(p);
}

static void make_tiny(plan *p, float memory[3][TINY]) {
    int64_t shape[1] = {TINY};
    for (int i = 0; i < 3; i++) qn_tensor_init(&p->tensors[i], QN_DTYPE_F32, 1, shape, memory[i], sizeof memory[i]);
    for (int i = 0; i < 3; i++) set_request(&p->requests[i], QN_OP_add, &p->tensors[0], &p->tensors[1], &p->tensors[2]);
}

/* Nanoseconds an op; negative when one was rejected, and that has been said. */
static double time_ops(qn_context *context, const plan *p, int n) {
    qn_result result;
    double start = bench_now();
    for (int i = 0; i < n; i++)
        if (qn_dispatch(context, &p->requests[i % 3], &result) != QN_OK) return rejected(&result), -1;
    return (bench_now() - start) / n;
}

typedef struct pair {
    double off, on;
} pair;

/* Nanoseconds an op of a run of n ops, `block` at a time. */
static int compare(qn_context *off, qn_context *on, const plan *p, int n, int block, pair *sum) {
    *sum = (pair){0, 0};
    for (int at = 0; at < n; at += block) {
        pair best = {1e18, 1e18};
        for (int round = 0; round < ROUNDS; round++) {
            double t_off = 0, t_on = 0;
            if (round % 2) t_on = time_ops(on, p, block); /* neither always follows the other */
            if (t_on >= 0) t_off = time_ops(off, p, block);
            if (t_off >= 0 && round % 2 == 0) t_on = time_ops(on, p, block);
            if (t_off < 0 || t_on < 0) return APP_FAILED;
            if (t_off < best.off) best.off = t_off;
            if (t_on < best.on) best.on = t_on;
        }
        sum->off += best.off * block / n;
        sum->on += best.on * block / n;
    }
    return APP_OK;
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
    double cost = tiny.on - tiny.off, percent = 100 * (medium.on - medium.off) / medium.off;
    double branch = time_branch(with_branch) - time_branch(without_branch);
    printf("recording, fastest of %d rounds\n", ROUNDS);
    printf("  an op, without shapes       %8.1f ns more (limit %d ns: %s)\n", cost, LIMIT_NS, kept(cost <= LIMIT_NS));
    printf("  an op, with shapes          %8.1f ns more\n", shapes.on - shapes.off);
    printf("  %d ops of %5.1f us           %8.2f %% more (limit %d %%: %s)\n", OPS, medium.off / 1e3, percent, LIMIT_PERCENT,
           kept(percent <= LIMIT_PERCENT));
    printf("  off: a recorder that waits  %8.1f ns more an op of %.0f ns; two contexts without one differ by %.1f ns\n",
           c->waiting.on - c->waiting.off, c->waiting.off, c->same.on - c->same.off);
    printf("  off: %d ops as above       %8.2f %% more\n", OPS, 100 * (c->medium_waiting.on / c->medium_waiting.off - 1));
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
    int rc = compare(off, on, tiny, TINY_CALLS, TINY_CALLS / 20, &c->same);
    if (rc == APP_OK) rc = quiet_recorder(on, 0, 1, &recorder);
    if (rc == APP_OK) rc = compare(off, on, tiny, TINY_CALLS, TINY_CALLS / 20, &c->waiting);
    if (rc == APP_OK) rc = compare(off, on, medium, OPS, BLOCK, &c->medium_waiting);
    qn_recorder_destroy(recorder);
    return rc;
}

static int measure_on(qn_context *off, qn_context *on, const plan *tiny, const plan *medium, app_profile *profile, costs *c) {
    qn_recorder *recorder = NULL;
    int rc = quiet_recorder(on, 0, 0, &recorder);
    if (rc == APP_OK) rc = compare(off, on, tiny, TINY_CALLS, TINY_CALLS / 20, &c->tiny);
    qn_recorder_destroy(recorder);
    recorder = NULL;
    if (rc == APP_OK) rc = quiet_recorder(on, QN_RECORD_SHAPES, 0, &recorder);
    if (rc == APP_OK) rc = compare(off, on, tiny, TINY_CALLS, TINY_CALLS / 20, &c->shapes);
    if (rc == APP_OK && profile->recorder) { /* the run that is kept replaces the one thrown away */
        qn_recorder_destroy(recorder);
        recorder = NULL;
        rc = app_profile_attach(profile, on, "bench profile");
    }
    if (rc == APP_OK) rc = compare(off, on, medium, OPS, BLOCK, &c->medium);
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

typedef struct profile_words {
    const char *trace;
    option_maybe profile;
} profile_words;

static const option_row rows[] = {
    OPTION(profile_words, trace, "TRACE", NULL, "a trace file: how fast the analyser is on it", .files = "*"),
    APP_PROFILE_ROW(profile_words, profile),
    {0}};
static const option_group groups[] = {{NULL, rows, 0}, {0}};

static int run(const quern_verb *self, int argc, char **argv) {
    app_profile profile;
    profile_words w = {NULL, {0, NULL}};
    int words = options_read(self, argc, argv, &w);
    if (words != APP_OK) return words;
    if (app_is_empty("quern bench profile", "the trace", w.trace)) return APP_USAGE;
    if (app_profile_begin(&profile, app_profile_folder(&w.profile)) != APP_OK)
        return APP_FAILED; /* before a minute's work would be lost */
    int trace_rc = APP_OK; /* first, while the process is small: peak memory is the process's */
    if (w.trace) trace_rc = bench_trace(w.trace);
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

const quern_verb bench_profile = {
    .name = "bench profile",
    .who = "quern bench",
    .brief = "time what recording costs; with a trace file, how fast the analyser is",
    .run = run,
    .usage = "[TRACE] [--profile[=DIR]]",
    .about = "Times what recording costs an op, on and off; with a trace file also how fast the analyser goes "
             "through it.",
    .groups = groups};
