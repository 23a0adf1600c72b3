/* What a file of kernels includes. It is compiled once per level with QN_LEVEL set to the level's name; names that differ by level
 * are made by QN_K, everything else in such a file is static. */
#ifndef QN_CPU_KERNEL_H
#define QN_CPU_KERNEL_H

#include "cpu/ahead.h"
#include "cpu/cpu.h"
#include "cpu/simd/simd.h"
#include "op/ref.h"

#define QN_CAT_(a, b, c) a##b##c
#define QN_CAT(a, b, c) QN_CAT_(a, b, c)
#define QN_K(name) QN_CAT(qn_k_##name, __, QN_LEVEL)
#define QN_CPU_TABLE QN_CAT(qn_cpu_table, __, QN_LEVEL)

/* When weights that stream out of memory are asked for: x86's own prefetchers stop at pages and fall behind several streams. 0: left to the
 * machine. */
#if defined(__x86_64__)
enum { QN_SOON = QN_AHEAD_SOON, QN_LATER = QN_AHEAD_LATER };
#else
enum { QN_SOON = 0, QN_LATER = 0 };
#endif

/* About how many nanoseconds of work a part should have so that handing it over pays. A step under two of these is not shared. */
enum { QN_CPU_PART_BYTES = 1 << 16, QN_CPU_PART_FLOPS = 1 << 18 };

/* How many parts for n rows when one row costs so many bytes of traffic and flops; from shapes alone, at most 64. */
static inline int64_t qn_cpu_parts(int64_t rows, double row_bytes, double row_flops) {
    double work = (double)rows * (row_bytes / QN_CPU_PART_BYTES + row_flops / QN_CPU_PART_FLOPS);
    int64_t parts = work < 2 ? 1 : work > 64 ? 64 : (int64_t)work;
    return parts > rows ? (rows > 0 ? rows : 1) : parts;
}

/* The rows [first, end) of a part when n rows are cut into so many. */
static inline int64_t qn_cpu_cut(int64_t n, int64_t parts, int64_t part) {
    int64_t each = n / parts, rest = n % parts;
    return each * part + (part < rest ? part : rest);
}

/* One phase, rows cut into parts by their cost. */
static inline int qn_cpu_by_rows(qn_cpu_step *s, const char *name, qn_cpu_run_fn run, int64_t rows, double row_bytes,
                                 double row_flops) {
    s->run = run;
    s->name = name;
    s->n_phases = 1;
    s->parts[0] = qn_cpu_parts(rows, row_bytes, row_flops);
    return 1;
}

/* Bytes of an element of f32, f16 or bf16. */
static inline int64_t qn_float_bytes(uint32_t dtype) { return dtype == QN_DTYPE_F32 ? 4 : 2; }

static inline int qn_cpu_is_dense(const qn_tensor *t) { return qn_tensor_is_contiguous(t); }

#endif
