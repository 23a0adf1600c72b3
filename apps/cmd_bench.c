/* quern bench: what a thing costs, beside the least it could cost, in the same run. The figure of a series is its fastest
 * round after a warm-up: on a shared machine everything else measures the neighbours. */
#include <stdio.h>
#include <time.h>

#include "app.h"
#include "app_profile.h"
#include "bench.h"

double bench_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

enum { N = 16, ROUNDS = 600, CALLS = 2000, ASKS = 50 }; /* short rounds, so that some are whole on a busy machine */

typedef struct subject {
    qn_context *context;
    qn_request request;
    float a[N], b[N], y[N];
} subject;

/* Kept out of line, so that a loop over it cannot be folded into one addition. */
__attribute__((noinline)) static void bare_add(float *y, const float *a, const float *b) {
    for (int i = 0; i < N; i++) y[i] = a[i] + b[i];
}

static double time_bare(subject *s) {
    double start = bench_now();
    for (int i = 0; i < CALLS; i++) {
        bare_add(s->y, s->a, s->b);
        __asm__ volatile("" ::: "memory");
    }
    return (bench_now() - start) / CALLS;
}

static double time_dispatch(subject *s) {
    qn_result result;
    double start = bench_now();
    for (int i = 0; i < CALLS; i++) {
        if (qn_dispatch(s->context, &s->request, &result) != QN_OK) return -1;
        __asm__ volatile("" ::: "memory");
    }
    return (bench_now() - start) / CALLS;
}

/* How much scratch a call needs, which comes before it where shapes change. */
static double time_asking(subject *s) {
    qn_result result;
    size_t bytes;
    double start = bench_now();
    for (int i = 0; i < ASKS; i++)
        if (qn_workspace_bytes(&s->request, &bytes, &result) != QN_OK) return -1;
    return (bench_now() - start) / ASKS;
}

enum { BARE, CALL, ASKING, TIMED };

/* The fastest of each; APP_FAILED when the add is rejected. */
static int time_rounds(subject *s, double *best) {
    static double (*const timed[TIMED])(subject *) = {time_bare, time_dispatch, time_asking};
    for (int k = 0; k < TIMED; k++) best[k] = 1e9;
    for (int i = 0; i < ROUNDS; i++)
        for (int k = 0; k < TIMED; k++) {
            double took = timed[k](s);
            if (took < 0) {
                fprintf(stderr, "quern bench: the add was rejected\n");
                return APP_FAILED;
            }
            if (took < best[k]) best[k] = took;
        }
    return APP_OK;
}

static int time_calls(const char *folder) {
    enum { LIMIT_NS = 150, RECORDED_LIMIT_NS = 350 };
    subject s;
    memset(&s, 0, sizeof s);
    int64_t shape[1] = {N};
    qn_tensor a, b, y;
    qn_tensor_init(&a, QN_DTYPE_F32, 1, shape, s.a, sizeof s.a);
    qn_tensor_init(&b, QN_DTYPE_F32, 1, shape, s.b, sizeof s.b);
    qn_tensor_init(&y, QN_DTYPE_F32, 1, shape, s.y, sizeof s.y);
    s.request = (qn_request){.size = sizeof s.request,
                             .version = QN_REQUEST_VERSION,
                             .op = QN_OP_add,
                             .n_src = 2,
                             .n_dst = 1,
                             .src = {&a, &b},
                             .dst = {&y}};
    if (qn_context_create(NULL, &s.context) != QN_OK) {
        fprintf(stderr, "quern bench: no context could be made\n");
        return APP_FAILED;
    }
    app_profile profile;
    double best[TIMED] = {0}, limit = folder ? RECORDED_LIMIT_NS : LIMIT_NS;
    int rc = app_profile_begin(&profile, folder);
    if (rc == APP_OK) rc = app_profile_attach(&profile, s.context, "bench dispatch");
    if (rc == APP_OK) rc = time_rounds(&s, best);
    int written = app_profile_end(&profile);
    qn_context_destroy(s.context);
    if (rc != APP_OK || written != APP_OK) return APP_FAILED;
    printf("add of %d floats, fastest of %d rounds of %d calls\n", N, ROUNDS, CALLS);
    double cost = best[CALL] - best[BARE];
    printf("  bare loop          %7.1f ns\n  qn_dispatch        %7.1f ns%s\n", best[BARE], best[CALL],
           folder ? ", recorded" : "");
    printf("  qn_workspace_bytes %7.1f ns\n", best[ASKING]);
    printf("  cost of a call     %7.1f ns (limit %.0f ns: %s)\n", cost, limit, cost <= limit ? "kept" : "exceeded");
    return cost <= limit ? APP_OK : APP_FAILED;
}

typedef struct dispatch_words {
    option_maybe profile;
} dispatch_words;

static const option_row dispatch_rows[] = {APP_PROFILE_ROW(dispatch_words, profile), {0}};
static const option_group dispatch_groups[] = {{NULL, dispatch_rows, 0}, {0}};

static int run_dispatch(const quern_verb *self, int argc, char **argv) {
    dispatch_words w = {{0, NULL}};
    int rc = options_read(self, argc, argv, &w);
    return rc == APP_OK ? time_calls(app_profile_folder(&w.profile)) : rc;
}

const quern_verb bench_dispatch = {
    .name = "bench dispatch",
    .who = "quern bench",
    .brief = "time one eager call of a 16-element add, beside the bare loop",
    .run = run_dispatch,
    .usage = "[--profile[=DIR]]",
    .about = "Times what one eager call costs for an add of 16 elements, beside the bare loop; with --profile, what "
             "a recorded call costs.",
    .groups = dispatch_groups};

static const quern_verb *const benches[] = {&bench_dispatch, &bench_plan, &bench_limits, &bench_ops, &bench_profile, NULL};

const quern_verb verb_bench = {
    .name = "bench",
    .brief = "measure, beside a limit or a peer in the same run",
    .run = bench_model,
    .usage = "-m FILE [options]\nops [options]\nlimits | dispatch | plan | profile [options]",
    .about = "Measures. With a model: how many tokens a second it reads (ppN: N tokens of a prompt) and makes (tgN: N, one "
             "after the other, behind as many tokens as -d says). Encoders only read, a text as a whole.",
    .groups = bench_model_groups,
    .subs = benches};
