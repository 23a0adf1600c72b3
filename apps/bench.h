/* The benchmarks of `quern bench`, one file each; argv[0] is the benchmark's name. */
#ifndef QN_APPS_BENCH_H
#define QN_APPS_BENCH_H

int bench_limits(int argc, char **argv, const char *folder);
int bench_model(int argc, char **argv, const char *folder); /* argv[0] is the verb: all behind it are flags */
int bench_ops(int argc, char **argv, const char *folder);
int bench_plan(int argc, char **argv, const char *folder);
int bench_profile(int argc, char **argv, const char *folder);

extern const char bench_limits_help[], bench_ops_help[];

/* bench_trace.c: the analyser on a trace file. */
int bench_trace(const char *path);

double bench_now(void); /* nanoseconds */

#endif
