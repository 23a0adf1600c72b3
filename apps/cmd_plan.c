/* quern plan: what a graph will allocate and where each of its nodes will run, before anything is loaded. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <quern/device.h>

#include "app.h"
#include "lm.h"
#include "net.h"

typedef struct plan_words {
    const char *file, *bind, *example_name, *cap_text;
    lm_words words; /* of -m */
    int steps, values, json, strict, reference, no_passes;
    const net_example *example;
    unsigned long long cap;
    uint32_t flags;
} plan_words;

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

typedef struct step_row {
    qn_plan_step_info s;
    qn_node_info n;
} step_row;

static int step_at(const qn_plan *plan, int32_t i, step_row *r) {
    r->s.size = sizeof r->s;
    r->n.size = sizeof r->n;
    return qn_plan_step_describe(plan, i, &r->s) == QN_OK && qn_graph_node(r->s.graph, r->s.node, &r->n) == QN_OK;
}

static int kernel_text(const qn_plan_step_info *s, char text[96]) {
    return snprintf(text, 96, "%s%s%s", s->kernel, *s->level ? " " : "", s->level);
}

static void print_steps(const qn_plan *plan, const qn_plan_totals *t) {
    int op = 2, kernel = 6; /* widths of the columns: at least their heads */
    char text[96];
    for (int32_t i = 0; i < t->n_steps; i++) {
        step_row r;
        if (!step_at(plan, i, &r)) continue;
        int a = (int)strlen(qn_op_describe(r.n.op)->name), b = kernel_text(&r.s, text);
        op = a > op ? a : op;
        kernel = b > kernel ? b : kernel;
    }
    printf("\n%5s  %-*s %-7s %-10s %-*s %12s %12s  %s\n", "node", op, "op", "where", "how", kernel, "kernel", "bytes", "flops",
           "part");
    for (int32_t i = 0; i < t->n_steps; i++) {
        step_row r;
        if (!step_at(plan, i, &r)) continue;
        kernel_text(&r.s, text);
        printf("%5d  %-*s %-7s %-10s %-*s %12llu %12.4g  %s\n", r.s.node, op, qn_op_describe(r.n.op)->name, r.s.place, r.s.how,
               kernel, text, (unsigned long long)r.s.bytes, r.s.flops, r.n.label);
        if (*r.s.reason) printf("       not on the device: %s\n", r.s.reason);
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
        step_row r;
        if (!step_at(plan, i, &r)) continue;
        printf("%s\n  {\"node\": %d, \"op\": \"%s\", \"place\": \"%s\", \"how\": \"%s\", \"kernel\": \"%s\", \"level\": \"%s\", "
               "\"bytes\": %llu, \"flops\": %.17g}",
               i ? "," : "", r.s.node, qn_op_describe(r.n.op)->name, r.s.place, r.s.how, r.s.kernel, r.s.level,
               (unsigned long long)r.s.bytes, r.s.flops);
    }
    printf("]}\n");
}

static int build_graph(const plan_words *o, qn_graph **graph) {
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

static int make_plan(const plan_words *o, const qn_graph *graph, qn_device *device, qn_plan **plan, double *seconds) {
    int64_t symbols[APP_SYMBOLS];
    struct timespec from, to;
    qn_error error = {QN_OK, ""};
    int rc = app_graph_symbols("quern plan", graph, o->bind, symbols);
    if (rc != APP_OK) return rc;
    qn_plan_options p = {.size = sizeof p, .flags = o->flags, .symbols = symbols, .memory_cap = o->cap, .device = device};
    clock_gettime(CLOCK_MONOTONIC, &from);
    qn_status status = qn_plan_create(graph, &p, plan, &error);
    clock_gettime(CLOCK_MONOTONIC, &to);
    *seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
    return status == QN_OK ? APP_OK : complain(o->example ? o->example->name : o->file, error.text);
}

static void report(const plan_words *o, const qn_plan *plan, double seconds) {
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
    qn_file_info file = {.size = sizeof file};
    qn_file_describe(l->info.file, &file);
    printf("params: %llu bytes of weights %s, and %llu of cache\n", (unsigned long long)sums[1],
           file.mapped ? "mapped from the file, which the host does not pay" : "read into memory, beyond the plan",
           (unsigned long long)sums[0]);
}

static int run_model(const plan_words *o) {
    lm l;
    struct timespec from, to;
    int rc = lm_open(&l, "plan", &o->words);
    if (rc == APP_OK) rc = lm_prepare(&l, &o->words);
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

static int run(const plan_words *o) {
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

static void print_examples(FILE *to) {
    for (int i = 0; net_example_at(i); i++) fprintf(to, "%s%s", i ? ", " : "", net_example_at(i)->name);
    fputs("\n", to);
}

static const char *example_name(int i) { return net_example_at(i) ? net_example_at(i)->name : NULL; }

static const option_row rows[] = {
    OPTION(plan_words, file, "FILE", NULL, NULL, .files = "qir"),
    OPTION(plan_words, example_name, "--example", "NAME", "a network of ours instead of a file", .choices = example_name,
           .once = 1),
    OPTION(plan_words, cap_text, "--cap", "BYTES", "refuse the plan when it needs more, with the numbers"),
    OPTION(plan_words, words.device, "--device", "vulkan[:N]", "plan for a device"),
    OPTION(plan_words, steps, "--steps", NULL, "print every step: node, op, where, kernel, bytes, flops"),
    OPTION(plan_words, values, "--values", NULL, "print every value: storage, offset, bytes, lifetime"),
    OPTION(plan_words, json, "--json", NULL, "print totals and steps for machines"),
    {0}};
static const option_row model_rows[] = {
    OPTION(plan_words, words.model, "-m, --model", "FILE", "the model, a GGUF file; -m may be left out", .files = "gguf"),
    OPTION(plan_words, words.context, "-c, --ctx-size", "N", "tokens of a sequence (0: what the model was trained for)"),
    OPTION(plan_words, words.batch, "-b, --batch-size", "N", "tokens of a prompt in one run (default 512)"),
    OPTION(plan_words, words.sequences, "-np, --parallel", "N", "sequences at once (default 1)"),
    OPTION(plan_words, words.k, "-ctk, --cache-type-k", "TYPE", "type of the cache of keys (default f16)",
           .choices = lm_cache_type),
    OPTION(plan_words, words.v, "-ctv, --cache-type-v", "TYPE", "type of the cache of values (default f16)",
           .choices = lm_cache_type),
    OPTION(plan_words, words.no_map, "--no-mmap", NULL,
           "read the weights into memory, beyond the plan, instead of mapping the file"),
    {0}};
static const option_row graph_rows[] = {
    OPTION(plan_words, bind, "--bind", "NAME=N,...", "numbers for symbols; those left out take their largest"),
    OPTION(plan_words, strict, "--strict", NULL, "refuse what the device cannot run"),
    OPTION(plan_words, reference, "--reference", NULL, "plan without fast kernels"),
    OPTION(plan_words, no_passes, "--no-passes", NULL, "plan the graph as it is written"),
    {0}};
static const option_group groups[] = {{NULL, rows, 0}, {"Of a model", model_rows, 0}, {"Of a graph", graph_rows, 0}, {0}};

static int for_models(const plan_words *o) {
    return o->words.context || o->words.batch || o->words.sequences || o->words.k || o->words.v || o->words.no_map;
}

/* What does not go together, NULL: all does. */
static const char *fault(const plan_words *o) {
    int n = !!o->file + !!o->example + !!o->words.model;
    if (n == 0) return "which graph? Name a file, a model or an example";
    if (n > 1) return "one graph, please: a file, a model or an example";
    if (for_models(o) && !o->words.model) return "-c, -b, -np, -ctk, -ctv and --no-mmap are for models";
    if (o->words.model && (o->bind || o->flags)) return "--bind, --strict, --reference and --no-passes are not for models";
    if (o->json && o->values) return "--json tells no values: leave out --values";
    if (o->strict && !o->words.device) return "--strict is about a device: --device names it";
    return NULL;
}

/* What the words mean: which graph, how much, how. */
static int understand(plan_words *o) {
    int64_t cap;
    size_t length = o->file ? strlen(o->file) : 0;
    if (length > 5 && strcmp(o->file + length - 5, ".gguf") == 0 && !o->words.model) {
        o->words.model = o->file;
        o->file = NULL;
    }
    if (o->example_name && !(o->example = net_example_find(o->example_name))) {
        fprintf(stderr, "quern plan: there is no example '%s'; there are ", o->example_name);
        print_examples(stderr);
        return APP_USAGE;
    }
    if (o->cap_text) {
        if (lm_number("plan", "--cap", o->cap_text, 1, INT64_MAX, &cap) != APP_OK) return APP_USAGE;
        o->cap = (unsigned long long)cap;
    }
    o->flags = (o->strict ? QN_PLAN_STRICT : 0u) | (o->reference ? QN_PLAN_REFERENCE : 0u) |
               (o->no_passes ? QN_PLAN_NO_PASSES : 0u);
    return APP_OK;
}

static int run_words(const quern_verb *self, int argc, char **argv) {
    plan_words o = {0};
    int rc = options_read(self, argc, argv, &o);
    if (rc == APP_OK) rc = understand(&o);
    if (rc != APP_OK) return rc;
    const char *wrong = fault(&o);
    if (wrong) {
        fprintf(stderr, "quern plan: %s; 'quern plan --help' says more\n", wrong);
        return APP_USAGE;
    }
    if (app_is_empty("quern plan", "the file", o.file)) return APP_USAGE;
    return o.words.model ? run_model(&o) : run(&o);
}

static void print_more(FILE *to) {
    fputs("Examples: ", to);
    print_examples(to);
}

const quern_verb verb_plan = {
    .name = "plan",
    .brief = "what a graph or a model will allocate, and where each node will run",
    .run = run_words,
    .usage = "FILE.qir [options]\n-m MODEL.gguf [options]\n--example NAME [options]",
    .about = "Plans a graph, and prints what a run will allocate on each side and why each node runs where it does. A model "
             "is planned as 'quern run' would plan it: its weights stay in the mapped file and cost nothing.",
    .groups = groups,
    .more = print_more};
