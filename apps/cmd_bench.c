/* quern bench: what a thing costs, beside the least it could cost, in the same run. The figure of a series is its fastest
 * round after a warm-up: on a shared machine everything else measures the neighbours. */
#include <stdio.h>
#include <time.h>

#include "app.h"
#include "app_profile.h"
#include "bench.h"

static const char
    help[] = "usage: quern bench WHAT [--profile[=DIR]]\n\n"
             "  -m FILE           tokens a second of a model; quern bench -m FILE --help\n"
             "  dispatch          what one eager call costs for a 16-element add, beside the bare loop\n"
             "  plan              planning 10,000 nodes, and replaying 1,000 tiny ones\n"
             "  limits [MS]       memory bandwidth and arithmetic this machine gives at best\n"
             "  ops [options]     single ops at shapes that matter, beside those limits; quern bench ops --help\n"
             "  profile [TRACE]   what recording costs; with a trace file, how fast the analyser is\n\n"
             "  --profile records the run into DIR (default quern-profile); dispatch then shows what a recorded call costs\n";

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

static int bench_dispatch(const char *folder) {
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

static int dispatch_only(int argc, char **argv, const char *folder) {
    (void)argc, (void)argv;
    return bench_dispatch(folder);
}

/* Those without a help of their own have the verb's. */
static const struct {
    const char *name;
    int (*run)(int argc, char **argv, const char *folder);
    const char *help;
    int most; /* words behind the name, none of them an option; -1: it sorts them itself */
} benches[] = {{"dispatch", dispatch_only, help, 0},
               {"plan", bench_plan, help, 0},
               {"limits", bench_limits, bench_limits_help, 1},
               {"ops", bench_ops, bench_ops_help, -1},
               {"profile", bench_profile, help, 1}};

static int asks_for_help(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) return 1;
    return 0;
}

/* argv[0] is the benchmark. */
static int run_bench(size_t which, int argc, char **argv, const char *folder) {
    if (asks_for_help(argc, argv)) {
        fputs(benches[which].help, stdout);
        return APP_OK;
    }
    for (int i = 1; benches[which].most >= 0 && i < argc; i++)
        if (i > benches[which].most || argv[i][0] == '-') {
            fprintf(stderr, "quern bench: %s has no use for '%s'; 'quern bench %s --help' says more\n", argv[0], argv[i],
                    argv[0]);
            return APP_USAGE;
        }
    return benches[which].run(argc, argv, folder);
}

int cmd_bench(int argc, char **argv) {
    if (argc == 2 && asks_for_help(argc, argv)) {
        fputs(help, stdout);
        return APP_OK;
    }
    const char *folder = app_profile_option(&argc, argv);
    if (argc >= 2 && (argv[1][0] == '-' || strstr(argv[1], ".gguf"))) return bench_model(argc, argv, folder);
    for (size_t i = 0; argc >= 2 && i < sizeof benches / sizeof *benches; i++)
        if (strcmp(argv[1], benches[i].name) == 0) return run_bench(i, argc - 1, argv + 1, folder);
    fprintf(stderr, argc < 2 ? "quern bench: what should be measured?\n%s" : "quern bench: that is not a benchmark\n%s", help);
    return APP_USAGE;
}
