/* quern plan: what a graph will allocate and where each of its nodes will run, before anything is loaded. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <quern/device.h>

#include "app.h"
#include "lm.h"
#include "net.h"

static const char help
    [] = "usage: quern plan FILE.qir | --example NAME | -m MODEL.gguf [options]\n\n"
         "Plans a graph and prints what a run will allocate on each side, and why each node runs where it does.\n\n"
         "  -m FILE             a model as 'quern run' would plan it: its weights stay in the mapped file and cost nothing;\n"
         "                      with -c N (tokens of a sequence), -b N (of a run), -np N (sequences), -ctk, -ctv TYPE (cache)\n"
         "  --bind NAME=N,...   numbers for symbols; those left out take their largest\n"
         "  --cap BYTES         refuse the plan when it needs more, with the numbers\n"
         "  --device vulkan[:N] plan for a device; --strict refuses what it cannot run\n"
         "  --reference         without fast kernels\n"
         "  --no-passes         the graph as it is written\n"
         "  --steps             every step: node, op, where, kernel, bytes, flops\n"
         "  --values            every value: storage, offset, bytes, lifetime\n"
         "  --json              totals and steps as JSON\n"
         "  --example NAME      a network of ours instead of a file: ";

typedef struct options {
    const char *file, *bind;
    lm_words words; /* of -m */
    const net_example *example;
    unsigned long long cap;
    uint32_t flags;
    int steps, values, json;
} options;

static int complain(const char *what, const char *text) {
    fprintf(stderr, "quern plan: %s: %s\n", what, text);
    return APP_FAILED;
}

static void print_bytes(const char *title, uint64_t bytes) {
    printf("  %-12s %14llu bytes  %9.2f MiB\n", title, (unsigned long long)bytes, (double)bytes / 1048576.0);
}

static void print_totals(const qn_plan_totals *t, double seconds) {
    printf("memory\n");
    print_bytes("arena", t->arena_bytes);
    print_bytes("scratch", t->scratch_bytes);
    print_bytes("params", t->param_bytes);
    print_bytes("packed", t->packed_bytes);
    print_bytes("inputs", t->input_bytes);
    print_bytes("constants", t->constant_bytes);
    if (t->n_device) print_bytes("staging", t->staging_bytes);
    print_bytes("host", t->host_bytes);
    if (t->n_device) print_bytes("device", t->device_bytes);
    if (t->n_device) print_bytes("its scratch", t->device_scratch_bytes);
    double bound = t->lower_bound ? (double)t->arena_bytes / (double)t->lower_bound : 1;
    printf("arena: %.3f times the lower bound of %llu bytes; %llu without sharing\n", bound, (unsigned long long)t->lower_bound,
           (unsigned long long)t->unshared_bytes);
    printf("steps: %d; views %d, in place %d, copies added %d\n", t->n_steps, t->n_views, t->n_in_place, t->n_copies);
    printf("where: %d on the device in %d submissions; on the CPU %d with a fast kernel, %d by reference\n", t->n_device,
           t->n_segments, t->n_steps - t->n_device - t->n_reference < 0 ? 0 : t->n_steps - t->n_device - t->n_reference,
           t->n_reference);
    printf("planned in %.1f ms\n", seconds * 1e3);
}

static void print_steps(const qn_plan *plan, const qn_plan_totals *t) {
    printf("\n%5s  %-22s %-7s %-10s %-28s %12s %12s  %s\n", "node", "op", "where", "how", "kernel", "bytes", "flops", "part");
    for (int32_t i = 0; i < t->n_steps; i++) {
        qn_plan_step_info s = {.size = sizeof s};
        qn_node_info n = {.size = sizeof n};
        char kernel[96];
        if (qn_plan_step_describe(plan, i, &s) != QN_OK || qn_graph_node(s.graph, s.node, &n) != QN_OK) continue;
        snprintf(kernel, sizeof kernel, "%s%s%s", s.kernel, *s.level ? " " : "", s.level);
        printf("%5d  %-22s %-7s %-10s %-28s %12llu %12.4g  %s\n", s.node, qn_op_describe(n.op)->name, s.place, s.how, kernel,
               (unsigned long long)s.bytes, s.flops, n.label);
        if (*s.reason) printf("       not on the device: %s\n", s.reason);
    }
}

static void print_values(const qn_plan *plan) {
    static const char *const storages[] = {"arena", "input", "param", "constant", "view"};
    printf("\n%6s  %-8s %6s %14s %14s %6s %6s\n", "value", "storage", "root", "offset", "bytes", "born", "dies");
    for (qn_val v = 0; v < qn_graph_value_count(qn_plan_graph(plan)); v++) {
        qn_plan_value info = {.size = sizeof info};
        if (qn_plan_value_describe(plan, v, &info) != QN_OK) continue;
        printf("%6d  %-8s %6d %14llu %14llu %6d %6d\n", v, storages[info.storage], info.root, (unsigned long long)info.offset,
               (unsigned long long)info.bytes, info.born, info.dies);
    }
}

static void print_json(const qn_plan *plan, const qn_plan_totals *t, double seconds) {
    const struct {
        const char *name;
        uint64_t bytes;
    } sums[] = {{"arena_bytes", t->arena_bytes},       {"lower_bound", t->lower_bound},
                {"unshared_bytes", t->unshared_bytes}, {"scratch_bytes", t->scratch_bytes},
                {"param_bytes", t->param_bytes},       {"packed_bytes", t->packed_bytes},
                {"input_bytes", t->input_bytes},       {"constant_bytes", t->constant_bytes},
                {"staging_bytes", t->staging_bytes},   {"host_bytes", t->host_bytes},
                {"device_bytes", t->device_bytes},     {"device_scratch_bytes", t->device_scratch_bytes}};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        printf("%s\"%s\": %llu", i ? ", " : "{", sums[i].name, (unsigned long long)sums[i].bytes);
    printf(", \"seconds\": %.6f, \"steps\": [", seconds);
    for (int32_t i = 0; i < t->n_steps; i++) {
        qn_plan_step_info s = {.size = sizeof s};
        qn_node_info n = {.size = sizeof n};
        if (qn_plan_step_describe(plan, i, &s) != QN_OK || qn_graph_node(s.graph, s.node, &n) != QN_OK) continue;
        printf("%s\n  {\"node\": %d, \"op\": \"%s\", \"place\": \"%s\", \"how\": \"%s\", \"kernel\": \"%s\", \"level\": \"%s\", "
               "\"bytes\": %llu, \"flops\": %.17g}",
               i ? "," : "", s.node, qn_op_describe(n.op)->name, s.place, s.how, s.kernel, s.level, (unsigned long long)s.bytes,
               s.flops);
    }
    printf("]}\n");
}

static int build_graph(const options *o, qn_graph **graph) {
    if (!o->example) return app_graph_read("quern plan", o->file, graph);
    net *n = calloc(1, sizeof *n);
    qn_error error = {QN_OK, ""};
    int rc = APP_FAILED;
    if (n && qn_graph_create(0, &n->graph) == QN_OK) {
        rc = o->example->build(n) ? APP_OK : APP_FAILED;
        qn_graph_error(n->graph, &error);
        *graph = n->graph;
    }
    free(n);
    return rc == APP_OK ? rc : complain(o->example->name, error.text);
}

static int make_plan(const options *o, const qn_graph *graph, qn_device *device, qn_plan **plan, double *seconds) {
    int64_t symbols[APP_SYMBOLS];
    struct timespec from, to;
    qn_error error = {QN_OK, ""};
    if (app_graph_symbols("quern plan", graph, o->bind, symbols) != APP_OK) return APP_USAGE;
    qn_plan_options p = {.size = sizeof p, .flags = o->flags, .symbols = symbols, .memory_cap = o->cap, .device = device};
    clock_gettime(CLOCK_MONOTONIC, &from);
    qn_status status = qn_plan_create(graph, &p, plan, &error);
    clock_gettime(CLOCK_MONOTONIC, &to);
    *seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    return status == QN_OK ? APP_OK : complain(o->example ? o->example->name : o->file, error.text);
}

static void report(const options *o, const qn_plan *plan, double seconds) {
    qn_plan_totals t = {.size = sizeof t};
    qn_plan_describe(plan, &t);
    if (o->json) print_json(plan, &t, seconds);
    else print_totals(&t, seconds);
    if (o->steps && !o->json) print_steps(plan, &t);
    if (o->values && !o->json) print_values(plan);
}

/* Params of a session: tensors of the file, and the cache, which is the session's own. */
static void print_params(const lm *l) {
    const qn_graph *g = qn_plan_graph(qn_session_plan(l->session));
    uint64_t sums[2] = {0, 0}, bytes;
    for (qn_val v = 0; v < qn_graph_value_count(g); v++) {
        qn_value_info info = {.size = sizeof info};
        if (qn_graph_value(g, v, &info) != QN_OK || info.kind != QN_VALUE_PARAM) continue;
        if (qn_tensor_bytes(info.dtype, info.rank, info.shape, &bytes) == QN_OK)
            sums[qn_file_find(l->info.file, QN_FILE_TENSORS, info.name) >= 0] += bytes;
    }
    printf("params: %llu bytes of weights mapped from the file, which the host does not pay, and %llu of cache\n",
           (unsigned long long)sums[1], (unsigned long long)sums[0]);
}

static int run_model(const options *o) {
    lm l;
    struct timespec from, to;
    int rc = lm_open(&l, "plan", &o->words);
    if (rc == APP_OK) rc = lm_prepare(&l, &o->words, NULL);
    l.options.memory_cap = o->cap;
    clock_gettime(CLOCK_MONOTONIC, &from);
    if (rc == APP_OK) rc = lm_session(&l);
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (rc == APP_OK) {
        double seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
        report(o, qn_session_plan(l.session), seconds);
        if (!o->json) print_params(&l);
    }
    return lm_close(&l, rc);
}

static int run(const options *o) {
    qn_graph *graph = NULL;
    qn_device *device = NULL;
    qn_plan *plan = NULL;
    double seconds = 0;
    int rc = build_graph(o, &graph);
    if (rc == APP_OK && o->words.device) rc = app_device_open("quern plan", o->words.device, &device);
    if (rc == APP_OK) rc = make_plan(o, graph, device, &plan, &seconds);
    if (rc == APP_OK) report(o, plan, seconds);
    qn_plan_destroy(plan);
    qn_device_close(device);
    qn_graph_destroy(graph);
    return rc;
}

static int print_help(FILE *to) {
    fputs(help, to);
    for (int i = 0; net_example_at(i); i++) fprintf(to, "%s%s", i ? ", " : "", net_example_at(i)->name);
    fputs("\n", to);
    return to == stdout ? APP_OK : APP_USAGE;
}

/* One word with its value; how many it took, 0: not known or not understood. */
static int take(options *o, int n, char **words) {
    const char *w = words[0];
    char *end;
    if (strcmp(w, "--steps") == 0) return o->steps = 1;
    if (strcmp(w, "--values") == 0) return o->values = 1;
    if (strcmp(w, "--json") == 0) return o->json = 1;
    if (strcmp(w, "--strict") == 0) return o->flags |= QN_PLAN_STRICT, 1;
    if (strcmp(w, "--reference") == 0) return o->flags |= QN_PLAN_REFERENCE, 1;
    if (strcmp(w, "--no-passes") == 0) return o->flags |= QN_PLAN_NO_PASSES, 1;
    size_t length = strlen(w);
    if (*w != '-' && length > 5 && strcmp(w + length - 5, ".gguf") == 0 && !o->words.model) return o->words.model = w, 1;
    if (*w != '-' && !o->file) return o->file = w, 1;
    if (n < 2) return 0;
    if (strcmp(w, "-m") == 0 || strcmp(w, "--model") == 0) return o->words.model = words[1], 2;
    if (strcmp(w, "-c") == 0 || strcmp(w, "--ctx-size") == 0) return o->words.context = words[1], 2;
    if (strcmp(w, "--bind") == 0) return o->bind = words[1], 2;
    if (strcmp(w, "--device") == 0) return o->words.device = words[1], 2;
    if (strcmp(w, "-b") == 0 || strcmp(w, "--batch-size") == 0) return o->words.batch = words[1], 2;
    if (strcmp(w, "-np") == 0 || strcmp(w, "--parallel") == 0) return o->words.sequences = words[1], 2;
    if (strcmp(w, "-ctk") == 0 || strcmp(w, "--cache-type-k") == 0) return o->words.k = words[1], 2;
    if (strcmp(w, "-ctv") == 0 || strcmp(w, "--cache-type-v") == 0) return o->words.v = words[1], 2;
    if (strcmp(w, "--example") == 0) return (o->example = net_example_find(words[1])) ? 2 : 0;
    if (strcmp(w, "--cap") != 0) return 0;
    errno = 0;
    o->cap = strtoull(words[1], &end, 10); /* which takes -5 for a number near the largest */
    return errno || *end || *words[1] < '0' || *words[1] > '9' || !o->cap ? 0 : 2;
}

static int for_models(const options *o) {
    return o->words.context || o->words.batch || o->words.sequences || o->words.k || o->words.v;
}

/* What does not go together, NULL: all does. */
static const char *fault(const options *o) {
    int n = !!o->file + !!o->example + !!o->words.model;
    if (n == 0) return "which graph? Name a file, a model or an example";
    if (n > 1) return "one graph, please: a file, a model or an example";
    if (for_models(o) && !o->words.model) return "-c, -b, -np, -ctk and -ctv are for models";
    if (o->words.model && (o->bind || o->flags)) return "--bind, --strict, --reference and --no-passes are not for models";
    return NULL;
}

int cmd_plan(int argc, char **argv) {
    options o = {0};
    for (int i = 1; i < argc;) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return print_help(stdout);
        int used = take(&o, argc - i, argv + i);
        if (!used) {
            fprintf(stderr, "quern plan: cannot use '%s'%s%s\n", argv[i], i + 1 < argc ? " " : "",
                    i + 1 < argc ? argv[i + 1] : "");
            return print_help(stderr);
        }
        i += used;
    }
    const char *wrong = fault(&o);
    if (wrong) {
        fprintf(stderr, "quern plan: %s\n", wrong);
        return print_help(stderr);
    }
    return o.words.model ? run_model(&o) : run(&o);
}
