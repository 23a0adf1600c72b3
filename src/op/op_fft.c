/* fft: the discrete Fourier transform of every row, of any length. Lengths whose prime factors are small are done by passes of
 * those radices, each sorting as it goes; others by Bluestein's identity n k = (n^2 + k^2 - (k - n)^2) / 2, which turns the
 * transform into a convolution with a chirp, and that into transforms whose length is a power of two. All in doubles, every
 * angle from an exact index, so the error stays near 1e-15 log N of the largest value.
 *
 * Complex numbers are kept as two arrays. A lane is one row of them as it lies in a tensor, in any of three layouts. */
#include <math.h>

#include "op/op_emit.h"
#include "op/op_state.h"
#include "op/ref.h"

enum { RADIX_MOST = 31, FACTORS_MOST = 64, BLOCK = 0, PAIRS = 1 }; /* the last two are values of the attribute layout */

/* ---- Lengths */

/* Factors of n, at most RADIX_MOST each, fours first, and how many; -1 when it has a larger prime. n is not 0. */
static int factorise(int64_t n, int *factor) {
    int count = 0;
    for (; n % 4 == 0; n /= 4) factor[count++] = 4;
    for (int p = 2; p <= RADIX_MOST && n > 1; p++)
        for (; n % p == 0; n /= p) factor[count++] = p;
    return n == 1 ? count : -1;
}

/* The power of two in which two rows of n can be convolved without meeting themselves. */
static int64_t chirp_length(int64_t n) {
    int64_t m = 1;
    while (m < 2 * n - 1) m *= 2;
    return m;
}

/* Complex numbers in a row: half of the axis, or the axis in front of the pairs, or the axis. */
static int64_t lane_length(const qn_tensor *x, int32_t layout) {
    if (x->dtype == QN_DTYPE_C64) return qn_ne(x, 0);
    return layout == PAIRS ? qn_ne(x, 1) : qn_ne(x, 0) / 2;
}

qn_status qn_infer_fft(qn_infer_call *c) {
    const qn_attr_fft *at = c->attr;
    const qn_tensor *x = c->src[0];
    int factor[FACTORS_MOST];
    if (x->dtype == QN_DTYPE_C64) {
        if (at->layout != BLOCK) return qn_reject_attr(c, "layout", QN_REASON_ATTR_CHOICE, -1, BLOCK, at->layout);
    } else if (at->layout == PAIRS) {
        if (x->rank < 2) return qn_reject_src(c, 0, QN_REASON_SHAPE_RANK_LOW, -1, 2, x->rank);
        QN_TRY(qn_need_extent(c, 0, 0, 2));
    } else if (qn_ne(x, 0) % 2) {
        return qn_reject_src(c, 0, QN_REASON_SHAPE_MULTIPLE, x->rank - 1, 2, qn_ne(x, 0));
    }
    int64_t n = lane_length(x, at->layout);
    if (n > INT64_MAX / 1024) return qn_reject_src(c, 0, QN_REASON_SHAPE_LARGE, x->rank - 1, INT64_MAX / 1024, n);
    if (n > 0 && factorise(n, factor) >= 0) QN_TRY(qn_scratch_add(c, n, 6, 1));
    else if (n > 0) {
        QN_TRY(qn_scratch_add(c, n, 2, 1));
        QN_TRY(qn_scratch_add(c, chirp_length(n), 8, 1));
    }
    if (qn_tensor_count(x) == 0) c->workspace = 0;
    c->flops_each = n > 1 ? 2.5 * log2((double)n) : 1;
    qn_out_like(c, 0, x, x->dtype);
    return QN_OK;
}

/* ---- Transforms */

typedef struct cplx {
    double *re, *im;
} cplx;

static cplx take(double **at, int64_t n) {
    cplx z = {*at, *at + n};
    *at += 2 * n;
    return z;
}

/* e^(-2 pi i j / n) for all j; those on the axes exactly. */
static void roots(cplx w, int64_t n) {
    for (int64_t j = 0; j < n; j++) {
        double angle = 2 * 3.14159265358979323846 * ((double)j / (double)n);
        w.re[j] = cos(angle);
        w.im[j] = -sin(angle);
    }
    if (n % 2 == 0) w.im[n / 2] = 0;
    if (n % 4 == 0) w.re[n / 4] = w.re[3 * n / 4] = 0;
}

/* A transform of a length with small factors: from x, by way of y; w are its roots. The result is where the return says. */
typedef struct transform {
    int64_t n;
    int count, factor[FACTORS_MOST];
    cplx w;
} transform;

static void transform_open(transform *t, int64_t n, cplx w) {
    t->n = n;
    t->count = factorise(n, t->factor);
    t->w = w;
    roots(w, n);
}

/* One pass: `done` is the length of the transforms that x holds, in the order [frequency][which]; y gets those p times longer.
 * Frequency k + done s of the longer one is the sum over q of transform q's frequency k, times the root q (k + done s). */
static void pass(const transform *t, int p, int64_t done, cplx x, cplx y) {
    int64_t n = t->n, rest = n / (done * p);
    for (int64_t k = 0; k < done; k++)
        for (int s = 0; s < p; s++) {
            double wr[RADIX_MOST], wi[RADIX_MOST];
            int64_t turn = (k + done * s) * rest; /* below n */
            for (int64_t q = 0, at = 0; q < p; q++, at = (at + turn) % n) {
                wr[q] = t->w.re[at];
                wi[q] = t->w.im[at];
            }
            const double *re = x.re + k * p * rest, *im = x.im + k * p * rest;
            double *to_re = y.re + (k + done * s) * rest, *to_im = y.im + (k + done * s) * rest;
            for (int64_t r = 0; r < rest; r++) {
                double a = 0, b = 0;
                for (int q = 0; q < p; q++) {
                    double u = re[q * rest + r], v = im[q * rest + r];
                    a += u * wr[q] - v * wi[q];
                    b += u * wi[q] + v * wr[q];
                }
                to_re[r] = a;
                to_im[r] = b;
            }
        }
}

static cplx transform_run(const transform *t, cplx x, cplx y) {
    int64_t done = 1;
    for (int i = 0; i < t->count; i++) {
        cplx swap = x;
        pass(t, t->factor[i], done, x, y);
        done *= t->factor[i];
        x = y;
        y = swap;
    }
    return x;
}

/* A transform of any length, and all it keeps: for Bluestein's the chirp e^(-pi i j^2 / n), and the transform of its conjugate,
 * wrapped around. */
typedef struct engine {
    transform t; /* of length n, or of the power of two */
    int64_t n;
    int direct;
    cplx x, y, chirp, kernel;
} engine;

static void engine_open(engine *e, int64_t n, double *at) {
    int factor[FACTORS_MOST];
    e->n = n;
    e->direct = factorise(n, factor) >= 0;
    int64_t m = e->direct ? n : chirp_length(n);
    transform_open(&e->t, m, take(&at, m));
    e->x = take(&at, m);
    e->y = take(&at, m);
    if (e->direct) return;
    e->kernel = take(&at, m);
    e->chirp = take(&at, n);
    for (int64_t i = 0; i < m; i++) e->x.re[i] = e->x.im[i] = 0;
    for (int64_t j = 0, square = 0; j < n; square = (square + 2 * j + 1) % (2 * n), j++) { /* j^2 modulo 2 n */
        double angle = 3.14159265358979323846 * ((double)square / (double)n);
        e->chirp.re[j] = cos(angle);
        e->chirp.im[j] = -sin(angle);
        e->x.re[j] = e->x.re[(m - j) % m] = e->chirp.re[j];
        e->x.im[j] = e->x.im[(m - j) % m] = -e->chirp.im[j];
    }
    cplx k = transform_run(&e->t, e->x, e->y);
    memcpy(e->kernel.re, k.re, (size_t)m * sizeof(double));
    memcpy(e->kernel.im, k.im, (size_t)m * sizeof(double));
}

static void multiply(cplx a, cplx b, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double re = a.re[i] * b.re[i] - a.im[i] * b.im[i], im = a.re[i] * b.im[i] + a.im[i] * b.re[i];
        a.re[i] = re;
        a.im[i] = im;
    }
}

/* The transform of what lies in e->x; the result is where the return says. */
static cplx engine_run(engine *e) {
    if (e->direct) return transform_run(&e->t, e->x, e->y);
    int64_t m = e->t.n;
    for (int64_t i = e->n; i < m; i++) e->x.re[i] = e->x.im[i] = 0;
    multiply(e->x, e->chirp, e->n);
    cplx a = transform_run(&e->t, e->x, e->y), other = a.re == e->x.re ? e->y : e->x;
    multiply(a, e->kernel, m);
    for (int64_t i = 0; i < m; i++) a.im[i] = -a.im[i]; /* back, by the conjugate of the transform of the conjugate */
    a = transform_run(&e->t, a, other);
    for (int64_t i = 0; i < e->n; i++) {
        a.re[i] /= (double)m;
        a.im[i] /= -(double)m;
    }
    multiply(a, e->chirp, e->n);
    return a;
}

/* ---- Reference */

/* Where a tensor's rows have their numbers: part p of number i at row + i step + p gap. */
typedef struct lane {
    qn_tensor rows; /* to walk */
    qn_dtype dtype;
    int64_t step, gap;
} lane;

static lane lane_of(const qn_tensor *x, int32_t layout, int64_t n) {
    lane l = {.rows = *x, .dtype = (qn_dtype)x->dtype, .step = qn_nb(x, 0)};
    l.gap = n * l.step;
    if (x->dtype == QN_DTYPE_C64) {
        l.dtype = QN_DTYPE_F32;
        l.gap = (int64_t)sizeof(float);
    } else if (layout == PAIRS) {
        l.rows.rank--;
        l.step = qn_nb(x, 1);
        l.gap = qn_nb(x, 0);
    }
    return l;
}

/* What all numbers are multiplied with in the end. */
static double scale_of(const qn_attr_fft *at, int64_t n) {
    if (at->norm == 2) return 1 / sqrt((double)n);
    return at->norm == (at->inverse ? 1 : 3) ? 1 / (double)n : 1;
}

qn_status qn_ref_fft(const qn_call *c) {
    const qn_attr_fft *at = c->attr;
    if (qn_tensor_count(c->src[0]) == 0) return QN_OK;
    int64_t n = lane_length(c->src[0], at->layout);
    lane from = lane_of(c->src[0], at->layout, n), to = lane_of(c->dst[0], at->layout, n);
    double scale = scale_of(at, n), sign = at->inverse ? -1 : 1;
    engine e;
    qn_rows it;
    engine_open(&e, n, c->workspace);
    for (qn_rows_begin(&it, from.rows.rank, from.rows.shape); it.live; qn_rows_next(&it)) {
        const char *row = qn_row(&it, &from.rows);
        char *out = qn_row(&it, &to.rows);
        for (int64_t i = 0; i < n; i++) {
            e.x.re[i] = qn_load_one(from.dtype, row + i * from.step);
            e.x.im[i] = sign * qn_load_one(from.dtype, row + i * from.step + from.gap);
        }
        cplx y = engine_run(&e);
        for (int64_t i = 0; i < n; i++) {
            qn_store_one(to.dtype, out + i * to.step, scale * y.re[i]);
            qn_store_one(to.dtype, out + i * to.step + to.gap, scale * sign * y.im[i]);
        }
    }
    return QN_OK;
}

/* ---- Gradient: the transform the other way, with the same scale, whichever norm has that one there. */

void qn_vjp_fft(qn_vjp_call *v) {
    static const int32_t norm_there[2][4] = {{0, 0, 2, 1}, {0, 3, 2, 0}}; /* [inverse][norm] */
    qn_attr_fft at = *(const qn_attr_fft *)v->attr;
    at.norm = norm_there[at.inverse != 0][at.norm];
    at.inverse = !at.inverse;
    if (v->want[0]) v->out[0] = qn_emit1(v, QN_OP_fft, 0, &at, v->grad[0]);
}
