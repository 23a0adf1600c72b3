/* quern bench limits: the roof of the roofline view, that is what this machine's memory and arithmetic give at best. */
#include <quern/record.h>

#include <stdio.h>
#include <stdlib.h>

#include "app.h"
#include "bench.h"

static const char help
    [] = "usage: quern bench limits [MILLISECONDS]\n\n"
         "  memory bandwidth (read, write, a = b + s * c) and f32 multiply-add rate, of one core and of all; default 2000 ms\n";

static void print_row(const char *name, double one, double all, const char *unit) {
    printf("  %-22s %10.1f %12.1f   %s\n", name, one, all, unit);
}

int bench_limits(int argc, char **argv, const char *folder) {
    if (folder) fprintf(stderr, "quern bench limits: no op runs, so nothing is recorded\n");
    int milliseconds = argc > 1 ? atoi(argv[1]) : 2000;
    if (argc > 2 || milliseconds <= 0) {
        fputs(help, stderr);
        return APP_USAGE;
    }
    qn_limits l;
    qn_error error;
    l.size = sizeof l;
    if (qn_limits_measure(milliseconds, &l, &error) != QN_OK) {
        fprintf(stderr, "quern bench limits: %s\n", error.text);
        return APP_FAILED;
    }
    printf("what this machine gives, fastest pass            one core   %3d cores\n", l.cores);
    print_row("memory read", l.read_gbps_core, l.read_gbps, "GB/s");
    print_row("memory write", l.write_gbps_core, l.write_gbps, "GB/s");
    print_row("memory a = b + s * c", l.triad_gbps_core, l.triad_gbps, "GB/s");
    char name[40];
    snprintf(name, sizeof name, "f32 FMA (%s)", l.isa);
    print_row(name, l.gflops_core, l.gflops, "GFLOP/s");
    return APP_OK;
}
