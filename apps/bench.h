/* The benchmarks of `quern bench`, one file each. */
#ifndef QN_APPS_BENCH_H
#define QN_APPS_BENCH_H

#include <quern/limits.h>

#include "options.h"

extern const quern_verb bench_dispatch, bench_limits, bench_ops, bench_plan, bench_profile;
/* Of a model: what the verb does itself. */
int bench_model(const quern_verb *self, int argc, char **argv);
extern const option_group bench_model_groups[];

/* bench_trace.c: the analyser on a trace file. */
int bench_trace(const char *path);

/* bench_limits.c: what the machine gives at best; measured once more when something else was running, and said when that went on.
 * APP_OK or APP_FAILED, having said why. */
int bench_measure_limits(const char *who, int milliseconds, qn_limits_all *limits);

/* bench_against.c: a table of before. Reading says what is wrong; free it in any case. Of equal rows the last counts. */
typedef struct bench_before {
    const char *path;
    struct bench_entry *rows; /* NULL: there is no such table */
    int n;
} bench_before;
int bench_before_read(bench_before *before, const char *path);
double bench_before_ns(const bench_before *before, const char *op, const char *shape, const char *dtype,
                       int threads); /* 0: none */
void bench_before_free(bench_before *before);

double bench_now(void); /* nanoseconds */

#endif
