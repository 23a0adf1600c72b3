/* quern bench ops: how fast single ops run, beside what this machine's memory and arithmetic would allow. Each row of
 * bench_ops.def is a graph that is planned once, so that weights are packed before the clock starts; the figure is the fastest of
 * many runs. */
#include <quern/plan.h>

#include <stdio.h>
#include <stdlib.h>

#include "app.h"
#include "app_profile.h"
#include "bench.h"

typedef struct row {
    const char *op, *shape, *dtype, *graph;
} row;

static const row rows[] = {
#define BENCH(op, shape, dtype, graph) {op, shape, dtype, "quern graph 1\n" graph},
#include "bench_ops.def"
#undef BENCH
};

enum { THREADS = 8, N_ROWS = (int)(sizeof rows / sizeof *rows) };

typedef struct options {
    const char *op, *dtype, *shape, *format, *against;
    int threads[THREADS], n_threads, list;
    double ms;
    qn_limits_all limits;
    bench_before before;
    int printed, unmatched; /* rows; those that the table of before does not have */
    app_profile profile;
} options;

typedef struct figures {
    double ns, flops, bytes, written, roof, ratio; /* written: of the bytes; ratio: to the table of before, 0: not in it */
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

/* Both sides of these products are rounded to 8 bits; attention decodes blocks, and multiplies floats. */
static int multiplies_bytes(const row *r) {
    const qn_dtype_info *info = qn_dtype_describe(qn_dtype_from_name(r->dtype));
    int bytes = info && (info->kind == QN_KIND_BLOCK || strcmp(r->dtype, "i8") == 0 || strcmp(r->dtype, "u8") == 0);
    return bytes && (strstr(r->op, "mat") || strstr(r->op, "conv"));
}

/* Arithmetic that so many threads can have for the row, in GFLOP/s. */
static double best_rate(const qn_limits_all *l, const row *r, int threads) {
    double rates[] = {share_of(l->roof.gflops_core, l->roof.gflops, threads), share_of(l->dots_core, l->dots, threads),
                      share_of(l->tiles_core, l->tiles, threads)};
    double best = rates[0];
    for (int i = 1; i < 3 && multiplies_bytes(r); i++) best = rates[i] > best ? rates[i] : best;
    return best;
}

static int time_row(const options *o, const row *r, qn_plan *plan, int threads, figures *f) {
    qn_pool *pool = NULL;
    qn_context *context = NULL;
    *f = (figures){0};
    add_up(plan, f);
    if (threads > 1 && qn_pool_create(threads, &pool) != QN_OK) return APP_FAILED;
    qn_context_options c = {.size = sizeof c, .pool = pool};
    f->ns = qn_context_create(&c, &context) == QN_OK ? time_runs(plan, context, o->ms) : -1;
    qn_context_destroy(context);
    qn_pool_destroy(pool);
    double working = f->flops / best_rate(&o->limits, r, threads), moving = least_moving(&o->limits, f, threads);
    f->roof = (working > moving ? working : moving) / f->ns * 100;
    return f->ns > 0 ? APP_OK : APP_FAILED;
}

/* ---- Tables */

static void print_head(const options *o) {
    const qn_limits_all *l = &o->limits;
    if (*o->format == 'j')
        printf("{\"cores\": %d, \"read_gbps\": %.1f, \"read_gbps_core\": %.1f, \"cache_gbps\": %.1f, \"cache_gbps_core\": %.1f, "
               "\"gflops\": %.1f, \"gflops_core\": %.1f, \"isa\": \"%s\", \"dots\": %.1f, \"dots_core\": %.1f, "
               "\"tiles\": %.1f, \"tiles_core\": %.1f,\n \"rows\": [",
               l->roof.cores, l->memory.read, l->memory_core.read, l->cache.read, l->cache_core.read, l->roof.gflops,
               l->roof.gflops_core, l->roof.isa, l->dots, l->dots_core, l->tiles, l->tiles_core);
    else if (*o->format == 'c')
        printf("op,shape,dtype,threads,ns,gflops,gbps,roof_percent,kernel%s\n", o->before.rows ? ",times" : "");
    else {
        printf(
            "Limits: one core %.1f GB/s read from memory, %.1f from the last cache, %.1f GFLOP/s; %d cores %.1f and %.1f GB/s, "
            "%.1f GFLOP/s (f32, %s).\n",
            l->memory_core.read, l->cache_core.read, l->roof.gflops_core, l->roof.cores, l->memory.read, l->cache.read,
            l->roof.gflops, l->roof.isa);
        if (l->dots > 0) printf("Products of bytes: one core %.1f GOP/s, all %.1f.\n", l->dots_core, l->dots);
        if (l->tiles > 0) printf("The same by tiles: one core %.1f GOP/s, all %.1f.\n", l->tiles_core, l->tiles);
        puts("");
        printf("| op | shape | dtype | threads | ns | GFLOP/s | GB/s | roof %% | kernel |%s\n", o->before.rows ? " times |" : "");
        printf("|---|---|---|---:|---:|---:|---:|---:|---|%s\n", o->before.rows ? "---:|" : "");
    }
}

/* What the table of before does not have is nothing, not zero. */
static void print_times(options *o, double ratio) {
    static const char *const some[] = {", \"times\": %.3f", ",%.3f", " %.2f |"}, *const none[] = {", \"times\": null", ",",
                                                                                                  " - |"};
    int form = *o->format == 'j' ? 0 : *o->format == 'c' ? 1 : 2;
    if (ratio > 0) printf(some[form], ratio);
    else fputs(none[form], stdout);
    o->unmatched += !(ratio > 0);
}

static void print_row(options *o, const row *r, int threads, const figures *f) {
    double gflops = f->flops / f->ns, gbps = f->bytes / f->ns;
    if (*o->format == 'j')
        printf("%s\n  {\"op\": \"%s\", \"shape\": \"%s\", \"dtype\": \"%s\", \"threads\": %d, \"ns\": %.0f, \"gflops\": %.2f, "
               "\"gbps\": %.2f, \"roof_percent\": %.1f, \"kernel\": \"%s\"",
               o->printed ? "," : "", r->op, r->shape, r->dtype, threads, f->ns, gflops, gbps, f->roof, f->kernel);
    else if (*o->format == 'c')
        printf("\"%s\",\"%s\",%s,%d,%.0f,%.2f,%.2f,%.1f,%s", r->op, r->shape, r->dtype, threads, f->ns, gflops, gbps, f->roof,
               f->kernel);
    else
        printf("| %s | %s | %s | %d | %.0f | %.1f | %.1f | %.0f | %s |", r->op, r->shape, r->dtype, threads, f->ns, gflops, gbps,
               f->roof, f->kernel);
    if (o->before.rows) print_times(o, f->ratio);
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
        rc = time_row(o, r, plan, o->threads[i], &f);
        f.ratio = bench_before_ns(&o->before, r->op, r->shape, r->dtype, o->threads[i]) / f.ns;
        if (rc == APP_OK) print_row(o, r, o->threads[i], &f);
    }
    if (rc == APP_OK) rc = app_profile_run(&o->profile, plan, r->op);
    qn_plan_destroy(plan);
    return rc;
}

static void add_threads(options *o, int n) {
    for (int i = 0; i < o->n_threads; i++)
        if (o->threads[i] == n) return;
    o->threads[o->n_threads++] = n;
}

/* Numbers between commas; twice the same is once. */
static int take_threads(options *o, const char *list) {
    for (o->n_threads = 0; o->n_threads < THREADS; list++) {
        char *end;
        long n = strtol(list, &end, 10);
        if (end == list || n < 1 || n > QN_POOL_MAX || (*end && *end != ',')) return 0;
        add_threads(o, (int)n);
        list = end;
        if (!*list) return 1;
    }
    return 0;
}

static int take_ms(options *o, const char *value) {
    enum { MOST_MS = 3600 * 1000 }; /* nobody waits longer */
    char *end;
    return (o->ms = strtod(value, &end)) > 0 && o->ms <= MOST_MS && !*end;
}

static int is_format(const char *value) {
    return strcmp(value, "md") == 0 || strcmp(value, "csv") == 0 || strcmp(value, "json") == 0;
}

static int run_all(options *o) {
    int rc = bench_measure_limits("quern bench ops", 2000, &o->limits);
    if (rc != APP_OK) return rc;
    if (!o->n_threads) {
        int cores = o->limits.roof.cores;
        add_threads(o, 1);
        add_threads(o, cores < QN_POOL_MAX ? cores : QN_POOL_MAX);
    }
    print_head(o);
    for (int i = 0; i < N_ROWS; i++)
        if (wants(o, &rows[i]) && run_row(o, &rows[i]) != APP_OK) rc = APP_FAILED;
    if (*o->format == 'j') printf("]}\n");
    if (o->unmatched)
        fprintf(stderr, "quern bench ops: %d of %d rows have no times, as %s does not have them\n", o->unmatched, o->printed,
                o->before.path);
    return rc;
}

/* ---- Which rows there are */

static int is_op(const char *name) {
    if (qn_op_from_name(name) >= 0) return 1;
    for (int op = 0; qn_op_describe(op); op++)
        if (qn_subop_from_name(op, name) >= 0) return 1;
    return 0;
}

/* No row is as the words want it. */
static int refuse(const options *o) {
    options any = {.op = o->op};
    int has_rows = 0;
    for (int i = 0; i < N_ROWS; i++) has_rows |= wants(&any, &rows[i]);
    if (has_rows)
        fprintf(stderr, "quern bench ops: no row is of%s%s%s%s%s%s", o->op ? " op " : "", o->op ? o->op : "",
                o->dtype ? " dtype " : "", o->dtype ? o->dtype : "", o->shape ? " shape " : "", o->shape ? o->shape : "");
    else fprintf(stderr, "quern bench ops: '%s' is %s", o->op, is_op(o->op) ? "an op, but no row times it" : "no op");
    fprintf(stderr, "; 'quern bench ops --list' shows the rows\n");
    return APP_USAGE;
}

static int is_same(const row *a, const row *b) { return strcmp(a->op, b->op) == 0 && strcmp(a->shape, b->shape) == 0; }

/* Each op and shape once, with the dtypes that it has. */
static void list_rows(const options *o) {
    for (int i = 0; i < N_ROWS; i++) {
        int first = 1;
        if (!wants(o, &rows[i])) continue;
        for (int k = 0; k < i && first; k++) first = !wants(o, &rows[k]) || !is_same(&rows[i], &rows[k]);
        if (!first) continue;
        printf("%-22s  %-44s ", rows[i].op, rows[i].shape);
        for (int k = i; k < N_ROWS; k++)
            if (wants(o, &rows[k]) && is_same(&rows[i], &rows[k])) printf(" %s", rows[k].dtype);
        puts("");
    }
}

/* ---- All of it */

typedef struct ops_words {
    const char *op, *dtype, *shape, *threads, *ms, *against, *format;
    int list;
    option_maybe profile;
} ops_words;

static const char *op_of_row(int i) { /* each once: those of an op stand together */
    for (int k = 0; k < N_ROWS; k++)
        if ((k == 0 || strcmp(rows[k].op, rows[k - 1].op) != 0) && i-- == 0) return rows[k].op;
    return NULL;
}

static const option_row words[] = {
    OPTION(ops_words, op, "--op", "NAME", "only rows of this op", .choices = op_of_row),
    OPTION(ops_words, dtype, "--dtype", "NAME", "only rows of this dtype"),
    OPTION(ops_words, shape, "--shape", "TEXT", "only rows whose shape has that text in it"),
    OPTION(ops_words, list, "--list", NULL, "print op, shape and dtypes of the rows, and time nothing"),
    OPTION(ops_words, threads, "-t, --threads", "N,...",
           "numbers of threads up to 256, at most 8 of them (default 1 and the number of cores)"),
    OPTION(ops_words, ms, "--ms", "N", "time for each row and number of threads (default 300)"),
    OPTION(ops_words, against, "--against", "FILE",
           "a csv of before; adds how many times as fast this is, to rows that are in it", .files = "csv"),
    OPTION(ops_words, format, "-o", "md|csv|json", "form of the table (default md)"),
    APP_PROFILE_ROW(ops_words, profile),
    {0}};
static const option_group groups[] = {{NULL, words, 0}, {0}};

static int cannot_be(const char *name, const char *value) {
    fprintf(stderr, "quern bench: ops: %s cannot be '%s'; 'quern bench ops --help' says more\n", name, value);
    return APP_USAGE;
}

static int understand(options *o, const ops_words *w) {
    const struct {
        const char *name, *value;
    } filled[] = {{"--op", w->op}, {"--dtype", w->dtype}, {"--shape", w->shape}, {"--against", w->against}};
    for (size_t i = 0; i < sizeof filled / sizeof *filled; i++)
        if (filled[i].value && !*filled[i].value) return cannot_be(filled[i].name, "");
    o->op = w->op;
    o->dtype = w->dtype;
    o->shape = w->shape;
    o->against = w->against;
    o->list = w->list;
    if (w->threads && !take_threads(o, w->threads)) return cannot_be("--threads", w->threads);
    if (w->ms && !take_ms(o, w->ms)) return cannot_be("--ms", w->ms);
    if (w->format && !is_format(w->format)) return cannot_be("-o", w->format);
    if (w->format) o->format = w->format;
    for (int i = 0; i < N_ROWS; i++)
        if (wants(o, &rows[i])) return APP_OK;
    return refuse(o);
}

static int run(const quern_verb *self, int argc, char **argv) {
    options o = {.format = "md", .ms = 300};
    ops_words w = {0};
    int rc = options_read(self, argc, argv, &w);
    if (rc == APP_OK) rc = understand(&o, &w);
    if (rc != APP_OK) return rc;
    if (o.list) return list_rows(&o), APP_OK;
    if (o.against) rc = bench_before_read(&o.before, o.against);
    if (rc == APP_OK && (rc = app_profile_begin(&o.profile, app_profile_folder(&w.profile))) == APP_OK) {
        rc = run_all(&o);
        int written = app_profile_end(&o.profile);
        rc = rc == APP_OK ? written : rc;
    }
    bench_before_free(&o.before);
    return rc;
}

const quern_verb bench_ops = {
    .name = "bench ops",
    .who = "quern bench",
    .brief = "time single ops at shapes that matter, beside those limits",
    .run = run,
    .usage = "[options]",
    .about = "Times single ops, each planned once, beside what this machine's memory and arithmetic would allow.\n\n"
             "The column roof: what part of the time the op must take by the machine's bandwidth (of its last cache for what "
             "that holds, "
             "for the op's mix of reads and writes) and by its arithmetic, whichever takes longer. Arithmetic is f32 "
             "multiply-adds; for "
             "products of block types and of bytes the best of products of bytes, see quern bench limits. What needs fewer "
             "operations "
             "than are counted, as Winograd's convolution, can be above 100.",
    .groups = groups};
