/* scan and cumsum: running sums and products along an axis, in double. Lanes are what lies beside each other: elements of the
 * axes behind, or rows, turned so that they do; few rows, or such of halves, are one chain each, as the reference has it. */
#include "cpu/k_copy.h"
#include "cpu/simd/simd_turn.h"
#include "cpu/simd/simd_wide.h"

/* x dense as [outer, n, inner], n the axis that is walked. */
typedef struct form {
    int64_t outer, n, inner;
    int product, reverse, exclusive;
} form;

static form form_of(const qn_call *c) {
    const qn_attr_scan *at = c->attr;
    const qn_tensor *x = c->src[0];
    if (c->op == QN_OP_cumsum) {
        const qn_attr_cumsum *rows = c->attr;
        return (form){qn_tensor_count(x) / qn_ne(x, 0), qn_ne(x, 0), 1, 0, rows->reverse, rows->exclusive};
    }
    int axis = at->axis < 0 ? at->axis + x->rank : at->axis;
    form f = {1, x->shape[axis], 1, c->subop == QN_SCAN_prod, at->reverse, at->exclusive};
    for (int i = 0; i < axis; i++) f.outer *= x->shape[i];
    for (int i = axis + 1; i < x->rank; i++) f.inner *= x->shape[i];
    return f;
}

typedef struct running {
    vd low, high;
} running;

/* What goes out for x, and what is carried on. */
QN_INLINE vf step(const form *f, running *now, vf x) {
    running before = *now;
    if (f->product) *now = (running){now->low * vd_low(x), now->high * vd_high(x)};
    else *now = (running){now->low + vd_low(x), now->high + vd_high(x)};
    return f->exclusive ? vf_of_wide(before.low, before.high) : vf_of_wide(now->low, now->high);
}

static running start_of(const form *f) {
    vd one = vd_set1(f->product ? 1 : 0);
    return (running){one, one};
}

static void scan_columns(const form *f, const float *x, float *y, int some) {
    running now = start_of(f);
    for (int64_t k = 0; k < f->n; k++) {
        int64_t at = (f->reverse ? f->n - 1 - k : k) * f->inner;
        vf_storen(y + at, step(f, &now, vf_loadn(x + at, some)), some);
    }
}

/* Up to VF_N rows; a square of them at a time. */
static void scan_rows(const form *f, const float *x, float *y, int some) {
    running now = start_of(f);
    for (int64_t first = 0; first < f->n; first += VF_N) {
        vf r[VF_N];
        int many = (int)(f->n - first < VF_N ? f->n - first : VF_N);
        int64_t at = f->reverse ? f->n - first - many : first;
        for (int i = 0; i < VF_N; i++) r[i] = i < some ? vf_loadn(x + i * f->n + at, many) : vf_zero();
        vf_turn(r);
        for (int i = 0; i < many; i++) {
            int k = f->reverse ? many - 1 - i : i;
            r[k] = step(f, &now, r[k]);
        }
        vf_turn(r);
        for (int i = 0; i < some; i++) vf_storen(y + i * f->n + at, r[i], many);
    }
}

static int64_t units_of(const form *f) {
    return f->inner == 1 ? (f->outer + VF_N - 1) / VF_N : f->outer * ((f->inner + VF_N - 1) / VF_N);
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    form f = form_of(c);
    const float *x = (const float *)(const void *)qn_at(c->src[0], 0);
    float *y = (float *)(void *)qn_at(c->dst[0], 0);
    int64_t wide = (f.inner + VF_N - 1) / VF_N, u = qn_cpu_cut(units_of(&f), s->parts[0], part);
    (void)phase;
    for (int64_t end = qn_cpu_cut(units_of(&f), s->parts[0], part + 1); u < end; u++) {
        int64_t first = (f.inner == 1 ? u : u % wide) * VF_N, left = (f.inner == 1 ? f.outer : f.inner) - first;
        int64_t at = f.inner == 1 ? first * f.n : u / wide * f.n * f.inner + first;
        (f.inner == 1 ? scan_rows : scan_columns)(&f, x + at, y + at, (int)(left < VF_N ? left : VF_N));
    }
}

static int by_lanes(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    if (x->dtype != QN_DTYPE_F32 || qn_tensor_count(x) == 0 || !qn_cpu_is_dense(x) || !qn_cpu_is_dense(y)) return 0;
    form f = form_of(c);
    if (f.inner == 1 && f.outer < VF_N / 2) return 0; /* few rows: lanes would be empty */
    return qn_cpu_by_rows(s, f.inner == 1 ? "scan of turned rows" : "scan of columns", run, units_of(&f),
                          8.0 * (double)f.n * VF_N, 4.0 * (double)f.n * VF_N);
}

int QN_K(scan)(const qn_call *c, qn_cpu_step *s) { return by_lanes(c, s); }

/* ---- One chain of doubles */

static void sum_along(const float *x, float *y, int64_t n, const qn_attr_cumsum *at, double *sum) {
    for (int64_t k = 0; k < n; k++) {
        int64_t i = at->reverse ? n - 1 - k : k;
        double next = *sum + (double)x[i];
        y[i] = (float)(at->exclusive ? *sum : next);
        *sum = next;
    }
}

static void run_cumsum(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    enum { RUN = 512 };
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    const qn_attr_cumsum *at = c->attr;
    int64_t n = qn_ne(a, 0), rows = qn_tensor_count(a) / n, end = qn_cpu_cut(rows, s->parts[0], part + 1);
    int64_t size = a->dtype == QN_DTYPE_F32 ? 4 : 2;
    float x[RUN];
    qn_rows it;
    (void)phase;
    for (qn_rows_begin_at(&it, a->rank, a->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it)) {
        double sum = 0;
        for (int64_t done = 0, some; done < n; done += some) {
            some = n - done < RUN ? n - done : RUN;
            int64_t first = at->reverse ? n - done - some : done;
            qn_copy_row(a->dtype, qn_row(&it, a) + first * size, QN_DTYPE_F32, (char *)x, some);
            sum_along(x, x, some, at, &sum);
            qn_copy_row(QN_DTYPE_F32, (const char *)x, y->dtype, qn_row(&it, y) + first * size, some);
        }
    }
}

int QN_K(cumsum)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *a = c->src[0], *y = c->dst[0];
    if (by_lanes(c, s)) return 1;
    if (!qn_lanes_rows(a) || !qn_lanes_rows(y) || a->dtype != y->dtype || qn_tensor_count(a) == 0) return 0;
    return qn_cpu_by_rows(s, "running sums", run_cumsum, qn_tensor_count(a) / qn_ne(a, 0), 16.0 * (double)qn_ne(a, 0), 0);
}
