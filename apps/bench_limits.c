/* quern bench limits: the roof of the roofline view, that is what this machine's memory and arithmetic give at best. */
#include <quern/limits.h>

#include <stdio.h>

#include "bench.h"
#include "lm.h"

const char
    bench_limits_help[] = "usage: quern bench limits [MILLISECONDS]\n\n"
                          "  what memory and the last cache give (reads in one, two and four streams a core, writes, copies, a "
                          "= b + s * c) and rates\n"
                          "  of f32 multiply-adds and products of bytes, of one core and of all; default 4000 ms\n";

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

int bench_limits(int argc, char **argv, const char *folder) {
    if (folder) fprintf(stderr, "quern bench limits: no op runs, so nothing is recorded\n");
    int64_t milliseconds = 4000;
    if (argc > 1 && lm_number("bench", "limits", argv[1], 10, 60000, &milliseconds) != APP_OK) return APP_USAGE;
    qn_limits_all l;
    qn_error error;
    l.roof.size = sizeof l;
    if (qn_limits_measure((int)milliseconds, &l.roof, &error) != QN_OK) {
        fprintf(stderr, "quern bench limits: %s\n", error.text);
        return APP_FAILED;
    }
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
