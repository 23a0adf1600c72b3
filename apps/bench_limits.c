/* quern bench limits: the roof of the roofline view, that is what this machine's memory and arithmetic give at best. */
#include <quern/limits.h>

#include <stdio.h>

#include "app.h"
#include "bench.h"
#include "lm.h"

static void print_row(const char *name, double one, double all, const char *unit) {
    printf("  %-22s %10.1f %12.1f   %s\n", name, one, all, unit);
}

static void print_bandwidth(const char *where, const qn_bandwidth *one, const qn_bandwidth *all) {
    static const char *const names[] = {"read, 1 stream", "read, 2 streams", "read, 4 streams"};
    char name[40];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s %s", where, names[i]);
        print_row(name, one->read_streams[i], all->read_streams[i], "GB/s");
    }
    snprintf(name, sizeof name, "%s write", where);
    print_row(name, one->write, all->write, "GB/s");
    snprintf(name, sizeof name, "%s copy", where);
    print_row(name, one->copy, all->copy, "GB/s");
    snprintf(name, sizeof name, "%s a = b + s * c", where);
    print_row(name, one->triad, all->triad, "GB/s");
}

/* More than noise below what it cannot be below: one core may have the whole of a bandwidth. */
static int is_below(double is, double least) { return is < 0.95 * least; }

static int any_below(const qn_bandwidth *is, const qn_bandwidth *least) {
    return is_below(is->read, least->read) || is_below(is->write, least->write) || is_below(is->copy, least->copy) ||
           is_below(is->triad, least->triad);
}

/* What a quiet machine would not give, NULL when there is nothing of the kind. */
static const char *disturbance(const qn_limits_all *l) {
    int slow = l->roof.gflops < l->roof.gflops_core || l->dots < l->dots_core || l->tiles < l->tiles_core;
    if ((slow && l->roof.cores > 1) || any_below(&l->memory, &l->memory_core) || any_below(&l->cache, &l->cache_core))
        return "all cores together gave less than one alone";
    if (any_below(&l->cache, &l->memory) || any_below(&l->cache_core, &l->memory_core))
        return "the cache gave less than the memory";
    return NULL;
}

int bench_measure_limits(const char *who, int milliseconds, qn_limits_all *limits) {
    enum { TIMES = 2 };
    const char *disturbed = "";
    qn_error error;
    for (int i = 0; disturbed && i < TIMES; i++) {
        limits->roof.size = sizeof *limits;
        if (qn_limits_measure(milliseconds, &limits->roof, &error) != QN_OK) {
            fprintf(stderr, "%s: %s\n", who, error.text);
            return APP_FAILED;
        }
        disturbed = disturbance(limits);
    }
    if (disturbed)
        fprintf(stderr, "%s: the machine was disturbed, %d times: %s; its limits may be higher\n", who, TIMES, disturbed);
    return APP_OK;
}

typedef struct limits_words {
    const char *milliseconds;
    option_maybe profile;
} limits_words;

static const option_row rows[] = {
    OPTION(limits_words, milliseconds, "MILLISECONDS", NULL, "how long it may take, about (default 4000)"),
    OPTION(limits_words, profile, "--profile", "DIR", "is taken as by the other benchmarks; no op runs, so nothing is recorded",
           .files = "/"),
    {0}};
static const option_group groups[] = {{NULL, rows, 0}, {0}};

static int run(const quern_verb *self, int argc, char **argv) {
    limits_words w = {NULL, {0, NULL}};
    int64_t milliseconds = 4000;
    int rc = options_read(self, argc, argv, &w);
    if (rc != APP_OK) return rc;
    if (app_profile_folder(&w.profile)) fprintf(stderr, "quern bench limits: no op runs, so nothing is recorded\n");
    if (w.milliseconds && lm_number("bench", "limits", w.milliseconds, 10, 60000, &milliseconds) != APP_OK) return APP_USAGE;
    qn_limits_all l;
    rc = bench_measure_limits("quern bench limits", (int)milliseconds, &l);
    if (rc != APP_OK) return rc;
    printf("what this machine gives, fastest pass            one core   %3d cores\n", l.roof.cores);
    print_bandwidth("memory", &l.memory_core, &l.memory);
    print_bandwidth("cache", &l.cache_core, &l.cache);
    char name[40];
    snprintf(name, sizeof name, "f32 FMA (%s)", l.roof.isa);
    print_row(name, l.roof.gflops_core, l.roof.gflops, "GFLOP/s");
    if (l.dots > 0) print_row("8-bit dots", l.dots_core, l.dots, "GOP/s");
    if (l.tiles > 0) print_row("8-bit tiles", l.tiles_core, l.tiles, "GOP/s");
    return APP_OK;
}

const quern_verb bench_limits = {
    .name = "bench limits",
    .who = "quern bench",
    .brief = "measure the memory bandwidth and arithmetic that this machine gives at best",
    .run = run,
    .usage = "[MILLISECONDS]",
    .about = "Measures what memory and the last cache give (reads in one, two and four streams a core, writes, copies, a "
             "= b + s * c), and the rates of f32 multiply-adds and of products of bytes, of one core and of all.",
    .groups = groups};
