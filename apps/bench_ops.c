/* quern bench ops: how fast single ops run, beside what this machine's memory and arithmetic would allow. Each row of
 * bench_ops.def is a graph that is planned once, so that weights are packed before the clock starts; the figure is the fastest of
 * many runs. */
#include <quern/plan.h>
#include <quern/limits.h>

#include <stdio.h>
#include <stdlib.h>

#include "app.h"
#include "app_profile.h"
#include "bench.h"

const char bench_ops_help
    [] = "usage: quern bench ops [--op NAME] [--dtype NAME] [--shape TEXT] [-t N,...] [--ms N] "
         "[--against FILE] [-o md|csv|json]\n\n"
         "  --op, --dtype, --shape  only rows of that op and dtype, and whose shape has that text in it\n"
         "  -t, --threads N,...     default 1 and the number of cores\n"
         "  --ms N                  time for each row and number of threads, default 300\n"
         "  --against FILE          a csv of before; adds how many times as fast this is\n\n"
         "  roof: what part of the time the op must take by the machine's bandwidth (of its last cache for what that "
         "holds, for the\n"
         "  op's mix of reads and writes) and f32 multiply-adds, whichever takes longer; 8-bit products can be "
         "faster than that\n";

typedef struct row {
    const char *op, *shape, *dtype, *graph;
} row;

static const row rows[] = {
#define BENCH(op, shape, dtype, graph) {op, shape, dtype, "quern graph 1\n" graph},
#include "bench_ops.def"
#undef BENCH
};

enum { THREADS = 8, TABLE = 4096 };
typedef struct entry { /* a line of a table of before */
    char key[120];
    double ns;
} entry;

typedef struct options {
    const char *op, *dtype, *shape, *format, *against;
    int threads[THREADS], n_threads;
    double ms;
    qn_limits_all limits;
    entry *before;
    int n_before, printed;
    app_profile profile;
} options;

typedef struct figures {
    double ns, flops, bytes, written, roof, ratio; /* written: of the bytes; ratio to the table of before; 0: not in it */
    char kernel[96];
} figures;

/* ---- One op */

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Nearly normal, as trained weights are: kernels may make use of that. */
static float about_normal(uint32_t *state) {
    float sum = -4;
    for (int i = 0; i < 8; i++) sum += (float)next_random(state) * 0x1p-24f;
    return sum;
}

static uint16_t half_of(uint32_t dtype, float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if (dtype == QN_DTYPE_BF16) return (uint16_t)(bits >> 16);
    uint32_t exponent = bits >> 23 & 255; /* what is smaller than an f16's normal numbers is zero here */
    uint32_t size = exponent > 112 ? (exponent - 112) << 10 | (bits >> 13 & 1023) : 0;
    return (uint16_t)((bits >> 16 & 0x8000u) | size);
}

/* Floats of 32 bits between -1 and 1, of 16 bits as above; indices in order; blocks of bytes whose scales are small, but
 * no smaller than what is normal: a scale of mxfp4 is an exponent, its first byte. */
static void fill(const qn_tensor *t, const char *name, uint64_t bytes, uint32_t seed) {
    const qn_dtype_info *info = qn_dtype_describe((qn_dtype)t->dtype);
    uint8_t *to = t->data;
    uint64_t n = bytes / info->bytes, many = strcmp(name, "ids") == 0 ? 8 : 512;
    if (t->dtype == QN_DTYPE_F32)
        for (uint64_t i = 0; i < n; i++) ((float *)t->data)[i] = (float)next_random(&seed) * 0x1p-23f - 1.0f;
    else if (t->dtype == QN_DTYPE_I32)
        for (uint64_t i = 0; i < n; i++) ((int32_t *)t->data)[i] = (int32_t)(i % many);
    else if (t->dtype == QN_DTYPE_I8 || t->dtype == QN_DTYPE_U8 || t->dtype == QN_DTYPE_U32)
        for (uint64_t i = 0; i < bytes; i++) to[i] = (uint8_t)next_random(&seed);
    else if (info->block > 1)
        for (uint64_t i = 0; i < bytes; i++)
            to[i] = (uint8_t)(t->dtype == QN_DTYPE_MXFP4 && i % info->bytes == 0 ? 120 : next_random(&seed) & 0x3f);
    else
        for (uint64_t i = 0; i < n; i++) ((uint16_t *)t->data)[i] = half_of(t->dtype, about_normal(&seed) * 0.02f);
}

static int set_leaf(qn_plan *plan, const qn_graph *g, qn_val v, qn_error *error) {
    qn_value_info info = {.size = sizeof info};
    if (qn_graph_value(g, v, &info) != QN_OK || (info.kind != QN_VALUE_INPUT && info.kind != QN_VALUE_PARAM)) return APP_OK;
    uint64_t bytes = 0;
    qn_tensor t;
    if (qn_tensor_bytes(info.dtype, info.rank, info.shape, &bytes) != QN_OK) return APP_FAILED;
    void *data = malloc(bytes);
    if (!data) return APP_FAILED;
    qn_status status = qn_tensor_init(&t, info.dtype, info.rank, info.shape, data, bytes);
    if (status == QN_OK) fill(&t, info.name, bytes, (uint32_t)v + 1);
    if (status == QN_OK) status = qn_plan_set(plan, info.name, &t, error);
    free(data);
    return status == QN_OK ? APP_OK : APP_FAILED;
}

static int make_plan(const row *r, qn_plan **plan) {
    qn_graph *g = NULL;
    qn_error error = {QN_OK, ""};
    qn_plan_options o = {.size = sizeof o, .flags = QN_PLAN_NO_PASSES};
    int rc = qn_graph_parse(r->graph, strlen(r->graph), 0, &g, &error) == QN_OK ? APP_OK : APP_FAILED;
    if (rc == APP_OK && qn_plan_create(g, &o, plan, &error) != QN_OK) rc = APP_FAILED;
    for (qn_val v = 0; rc == APP_OK && v < qn_graph_value_count(g); v++) rc = set_leaf(*plan, g, v, &error);
    if (rc != APP_OK) fprintf(stderr, "quern bench ops: %s %s: %s\n", r->op, r->shape, *error.text ? error.text : "no memory");
    qn_graph_destroy(g);
    return rc;
}

/* Bytes of what a step makes; shapes of the table have no symbols. */
static double written_by(const qn_plan_step_info *s) {
    qn_node_info n = {.size = sizeof n};
    double sum = 0;
    if (qn_graph_node(s->graph, s->node, &n) != QN_OK) return 0;
    for (int i = 0; i < n.n_out; i++) {
        qn_value_info v = {.size = sizeof v};
        uint64_t bytes = 0;
        if (qn_graph_value(s->graph, n.out[i], &v) == QN_OK && qn_tensor_bytes(v.dtype, v.rank, v.shape, &bytes) == QN_OK)
            sum += (double)bytes;
    }
    return sum;
}

static void add_up(const qn_plan *plan, figures *f) {
    qn_plan_totals t = {.size = sizeof t};
    qn_plan_describe(plan, &t);
    for (int32_t i = 0; i < t.n_steps; i++) {
        qn_plan_step_info s = {.size = sizeof s};
        if (qn_plan_step_describe(plan, i, &s) != QN_OK) continue;
        f->flops += s.flops;
        f->bytes += (double)s.bytes;
        f->written += written_by(&s);
        snprintf(f->kernel, sizeof f->kernel, "%s%s%s", strcmp(s.how, "native") == 0 ? s.kernel : s.how, *s.level ? " " : "",
                 s.level);
    }
}

/* Fastest nanoseconds of a run, negative after a failure; at least three runs after the first, unless that took very long. */
static double time_runs(qn_plan *plan, qn_context *context, double ms) {
    qn_error error = {QN_OK, ""};
    double best = -1, end = 0;
    for (int i = 0; i < 4 || bench_now() < end; i++) {
        double start = bench_now();
        if (qn_plan_run(plan, context, &error) != QN_OK) {
            fprintf(stderr, "quern bench ops: %s\n", error.text);
            return -1;
        }
        double ns = bench_now() - start;
        if (i == 0 && ns > 5e6 * ms) return ns;
        if (i == 0) end = bench_now() + ms * 1e6;
        else if (best < 0 || ns < best) best = ns;
    }
    return best;
}

/* What so many threads can have: as much as one core for each of them, and together no more than all cores. */
static double share_of(double core, double all, int threads) { return core * threads < all ? core * threads : all; }

/* Nanoseconds that the op's bytes take at least. Of measured loops, reads alone, two reads to a write, one to one, and writes alone, the
 * time for a byte goes straight from each to the next. */
static double least_moving(const qn_limits_all *l, const figures *f, int threads) {
    int near = f->bytes <= (double)l->cache_bytes;
    const qn_bandwidth *one = near ? &l->cache_core : &l->memory_core, *all = near ? &l->cache : &l->memory;
    const double at[] = {0, 1.0 / 3, 1.0 / 2, 1},
                 rates[] = {share_of(one->read, all->read, threads), share_of(one->triad, all->triad, threads),
                            share_of(one->copy, all->copy, threads), share_of(one->write, all->write, threads)};
    double share = f->bytes > 0 ? f->written / f->bytes : 0;
    int i = share <= at[1] ? 0 : share <= at[2] ? 1 : 2;
    double way = (share < 1 ? share : 1) - at[i], step = at[i + 1] - at[i];
    return f->bytes * (1 / rates[i] + way / step * (1 / rates[i + 1] - 1 / rates[i]));
}

static int time_row(const options *o, qn_plan *plan, int threads, figures *f) {
    qn_pool *pool = NULL;
    qn_context *context = NULL;
    *f = (figures){0};
    add_up(plan, f);
    if (threads > 1 && qn_pool_create(threads, &pool) != QN_OK) return APP_FAILED;
    qn_context_options c = {.size = sizeof c, .pool = pool};
    f->ns = qn_context_create(&c, &context) == QN_OK ? time_runs(plan, context, o->ms) : -1;
    qn_context_destroy(context);
    qn_pool_destroy(pool);
    double flops = share_of(o->limits.roof.gflops_core, o->limits.roof.gflops, threads),
           moving = least_moving(&o->limits, f, threads);
    f->roof = (f->flops / flops > moving ? f->flops / flops : moving) / f->ns * 100;
    return f->ns > 0 ? APP_OK : APP_FAILED;
}

/* ---- Tables */

static void make_key(const row *r, int threads, char *key, size_t size) {
    snprintf(key, size, "\"%s\",\"%s\",%s,%d,", r->op, r->shape, r->dtype, threads);
}

static void look_up(const options *o, const row *r, int threads, figures *f) {
    char key[sizeof o->before->key];
    make_key(r, threads, key, sizeof key);
    for (int i = 0; i < o->n_before; i++)
        if (strcmp(key, o->before[i].key) == 0) f->ratio = o->before[i].ns / f->ns;
}

/* Lines as print_row writes them: the key up to the number of threads with its comma, then nanoseconds. */
static int read_before(options *o, const char *path) {
    char line[400];
    FILE *from = fopen(path, "r");
    o->before = calloc(TABLE, sizeof *o->before);
    while (from && o->before && o->n_before < TABLE && fgets(line, sizeof line, from)) {
        entry *e = &o->before[o->n_before];
        const char *at = strrchr(line, '"'); /* behind the shape come dtype, threads, ns */
        for (int i = 0; at && i < 3; i++) at = strchr(at + (i > 0), ',');
        if (!at || (size_t)(at + 1 - line) >= sizeof e->key) continue;
        snprintf(e->key, sizeof e->key, "%.*s", (int)(at + 1 - line), line);
        e->ns = strtod(at + 1, NULL);
        o->n_before += e->ns > 0;
    }
    int read = from && !ferror(from);
    if (!read) fprintf(stderr, "quern bench ops: %s cannot be read\n", path);
    else if (!o->before) fprintf(stderr, "quern bench ops: there is no memory for the table of before\n");
    else if (!o->n_before) fprintf(stderr, "quern bench ops: %s has no row as 'quern bench ops -o csv' writes them\n", path);
    if (from) fclose(from);
    return read && o->n_before ? APP_OK : APP_FAILED;
}

static void print_head(const options *o) {
    const qn_limits_all *l = &o->limits;
    if (*o->format == 'j')
        printf("{\"cores\": %d, \"read_gbps\": %.1f, \"read_gbps_core\": %.1f, \"cache_gbps\": %.1f, \"cache_gbps_core\": %.1f, "
               "\"gflops\": %.1f, \"gflops_core\": %.1f, \"isa\": \"%s\",\n \"rows\": [",
               l->roof.cores, l->memory.read, l->memory_core.read, l->cache.read, l->cache_core.read, l->roof.gflops,
               l->roof.gflops_core, l->roof.isa);
    else if (*o->format == 'c')
        printf("op,shape,dtype,threads,ns,gflops,gbps,roof_percent,kernel%s\n", o->before ? ",times" : "");
    else {
        printf(
            "Limits: one core %.1f GB/s read from memory, %.1f from the last cache, %.1f GFLOP/s; %d cores %.1f and %.1f GB/s, "
            "%.1f GFLOP/s (f32, %s).\n\n",
            l->memory_core.read, l->cache_core.read, l->roof.gflops_core, l->roof.cores, l->memory.read, l->cache.read,
            l->roof.gflops, l->roof.isa);
        printf("| op | shape | dtype | threads | ns | GFLOP/s | GB/s | roof %% | kernel |%s\n", o->before ? " times |" : "");
        printf("|---|---|---|---:|---:|---:|---:|---:|---|%s\n", o->before ? "---:|" : "");
    }
}

static void print_row(options *o, const row *r, int threads, const figures *f) {
    char key[sizeof o->before->key];
    double gflops = f->flops / f->ns, gbps = f->bytes / f->ns;
    make_key(r, threads, key, sizeof key);
    if (*o->format == 'j')
        printf("%s\n  {\"op\": \"%s\", \"shape\": \"%s\", \"dtype\": \"%s\", \"threads\": %d, \"ns\": %.0f, \"gflops\": %.2f, "
               "\"gbps\": %.2f, \"roof_percent\": %.1f, \"kernel\": \"%s\"",
               o->printed ? "," : "", r->op, r->shape, r->dtype, threads, f->ns, gflops, gbps, f->roof, f->kernel);
    else if (*o->format == 'c') printf("%s%.0f,%.2f,%.2f,%.1f,%s", key, f->ns, gflops, gbps, f->roof, f->kernel);
    else
        printf("| %s | %s | %s | %d | %.0f | %.1f | %.1f | %.0f | %s |", r->op, r->shape, r->dtype, threads, f->ns, gflops, gbps,
               f->roof, f->kernel);
    if (o->before) printf(*o->format == 'j' ? ", \"times\": %.3f" : *o->format == 'c' ? ",%.3f" : " %.2f |", f->ratio);
    printf(*o->format == 'j' ? "}" : "\n");
    fflush(stdout);
    o->printed++;
}

/* ---- The command */

static int wants(const options *o, const row *r) {
    return (!o->op || strcmp(o->op, r->op) == 0) && (!o->dtype || strcmp(o->dtype, r->dtype) == 0) &&
           (!o->shape || strstr(r->shape, o->shape));
}

static int run_row(options *o, const row *r) {
    qn_plan *plan = NULL;
    int rc = make_plan(r, &plan);
    for (int i = 0; rc == APP_OK && i < o->n_threads; i++) {
        figures f;
        rc = time_row(o, plan, o->threads[i], &f);
        if (rc == APP_OK && o->before) look_up(o, r, o->threads[i], &f);
        if (rc == APP_OK) print_row(o, r, o->threads[i], &f);
    }
    if (rc == APP_OK) rc = app_profile_run(&o->profile, plan, r->op);
    qn_plan_destroy(plan);
    return rc;
}

static int take_threads(options *o, const char *list) {
    for (o->n_threads = 0; o->n_threads < THREADS; list++) {
        char *end;
        long n = strtol(list, &end, 10);
        if (end == list || n < 1 || n > 1024 || (*end && *end != ',')) return 0;
        o->threads[o->n_threads++] = (int)n;
        list = end;
        if (!*list) return 2;
    }
    return 0;
}

/* One word with its value; 0: not understood. */
static int take(options *o, const char *word, const char *value) {
    enum { MOST_MS = 3600 * 1000 }; /* nobody waits longer */
    char *end;
    if (!value) return 0;
    if (strcmp(word, "--op") == 0) return o->op = value, 2;
    if (strcmp(word, "--dtype") == 0) return o->dtype = value, 2;
    if (strcmp(word, "--shape") == 0) return o->shape = value, 2;
    if (strcmp(word, "-t") == 0 || strcmp(word, "--threads") == 0) return take_threads(o, value);
    if (strcmp(word, "--ms") == 0) return (o->ms = strtod(value, &end)) > 0 && o->ms <= MOST_MS && !*end ? 2 : 0;
    if (strcmp(word, "--against") == 0) return o->against = value, 2;
    if (strcmp(word, "-o") != 0) return 0;
    o->format = value;
    return strcmp(value, "md") == 0 || strcmp(value, "csv") == 0 || strcmp(value, "json") == 0 ? 2 : 0;
}

static int run_all(options *o) {
    qn_error error = {QN_OK, ""};
    int rc = APP_OK, found = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) found |= wants(o, &rows[i]);
    if (!found) {
        fprintf(stderr, "quern bench ops: no row of the table is like that\n");
        return APP_USAGE;
    }
    o->limits.roof.size = sizeof o->limits;
    if (qn_limits_measure(2000, &o->limits.roof, &error) != QN_OK) {
        fprintf(stderr, "quern bench ops: %s\n", error.text);
        return APP_FAILED;
    }
    if (!o->n_threads) {
        o->threads[o->n_threads++] = 1;
        if (o->limits.roof.cores > 1) o->threads[o->n_threads++] = o->limits.roof.cores;
    }
    print_head(o);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (wants(o, &rows[i]) && run_row(o, &rows[i]) != APP_OK) rc = APP_FAILED;
    if (*o->format == 'j') printf("]}\n");
    return rc;
}

static int understand(options *o, int argc, char **argv) {
    for (int i = 1, used; i < argc; i += used) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        used = take(o, argv[i], value);
        if (used) continue;
        fprintf(stderr, "quern bench: ops cannot use '%s'%s%s; 'quern bench ops --help' says more\n", argv[i], value ? " " : "",
                value ? value : "");
        return APP_USAGE;
    }
    return APP_OK;
}

int bench_ops(int argc, char **argv, const char *folder) {
    options o = {.format = "md", .ms = 300};
    int rc = understand(&o, argc, argv);
    if (rc == APP_OK && o.against) rc = read_before(&o, o.against);
    if (rc == APP_OK && (rc = app_profile_begin(&o.profile, folder)) == APP_OK) {
        rc = run_all(&o);
        int written = app_profile_end(&o.profile);
        rc = rc == APP_OK ? written : rc;
    }
    free(o.before);
    return rc;
}
