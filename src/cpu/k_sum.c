/* Sums over any axes of dense f32, f16 or bf16: reduce (sum and mean), repeat_back, sum_rows, sum, mean; and count_equal. */
#include "cpu/k_axes.h"
#include "cpu/k_lanes.h"
#include "cpu/simd/simd_wide.h"

enum { PIECE = 1 << 14, LONG = 4 * PIECE, AHEAD = 4096 }; /* AHEAD: bytes before they are read, a line is asked for */

/* VF_N neighbours as doubles. */
typedef struct wide {
    vd low, high;
} wide;
QN_INLINE wide wide_at(uint32_t dtype, const char *x, int64_t i) {
    const float *f = (const float *)(const void *)x + i;
    if (dtype == QN_DTYPE_F32) return (wide){vd_from(f), vd_from(f + VF_N / 2)};
    vf v = qn_lanes(dtype, x, i);
    return (wide){vd_low(v), vd_high(v)};
}

/* n neighbours, in as many chains as hide an addition's time. */
QN_INLINE double add_up(uint32_t dtype, const char *x, int64_t n) {
    if (dtype == QN_DTYPE_F32) return vd_add_up((const float *)(const void *)x, n);
    vd a = vd_zero(), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 2 * VF_N <= n; i += 2 * VF_N) {
        for (int k = 0; k < 4 * VF_N; k += 64) __builtin_prefetch(x + i * 2 + k + AHEAD, 0, 3);
        wide p = wide_at(dtype, x, i), q = wide_at(dtype, x, i + VF_N);
        a += p.low;
        b += p.high;
        c += q.low;
        d += q.high;
    }
    for (; i < n; i += VF_N) { /* lanes behind the end are zeros */
        vf v = qn_lanes_at(dtype, x, i, n);
        a += vd_low(v);
        b += vd_high(v);
    }
    return vd_sum((a + b) + (c + d));
}

/* A run, a long one in pieces: as run_pieces adds up the only one there is. */
QN_INLINE double add_run(uint32_t dtype, const char *x, int64_t n) {
    double sum = 0;
    if (n < LONG) return add_up(dtype, x, n);
    for (int64_t i = 0; i < n; i += PIECE) sum += add_up(dtype, x + i * qn_float_bytes(dtype), n - i < PIECE ? n - i : PIECE);
    return sum;
}

/* Sums of `width` neighbours in the output, the innermost group staying: rows are added one after the other. All sums are of doubles:
 * where terms cancel, a sum of floats would be left with its own roundings. */
QN_INLINE void add_row(uint32_t dtype, double *sum, const char *x, int first, int width) {
    int i = first;
    for (; i + VF_N <= width; i += VF_N) {
        wide v = wide_at(dtype, x, i);
        vd_store(sum + i, vd_load(sum + i) + v.low);
        vd_store(sum + i + VF_N / 2, vd_load(sum + i + VF_N / 2) + v.high);
    }
    if (i == width) return;
    float rest[VF_N];
    vf_store(rest, qn_lanes_some(dtype, x, i, width - i));
    for (int k = 0; i + k < width; k++) sum[i + k] += (double)rest[k];
}

/* Rows of x that are `pitch` apart: four at a time, so that sums are fetched and put back a quarter as often, while the next four are
 * asked for: of a wide matrix each lies in a page of its own, which machines do not look ahead to. */
QN_INLINE void add_rows(uint32_t dtype, double *sum, const char *x, int64_t pitch, int64_t rows, int width) {
    int64_t step = pitch * qn_float_bytes(dtype);
    for (; rows >= 4; rows -= 4, x += 4 * step) {
        int i = 0;
        for (; i + VF_N <= width; i += VF_N) {
            vd low = vd_load(sum + i), high = vd_load(sum + i + VF_N / 2);
            for (int k = 0; k < 4; k++) {
                __builtin_prefetch(x + (k + 4) * step + i * qn_float_bytes(dtype), 0, 3);
                wide v = wide_at(dtype, x + k * step, i);
                low += v.low;
                high += v.high;
            }
            vd_store(sum + i, low);
            vd_store(sum + i + VF_N / 2, high);
        }
        for (int k = 0; i < width && k < 4; k++) add_row(dtype, sum, x + k * step, i, width);
    }
    for (; rows > 0; rows--, x += step) add_row(dtype, sum, x, 0, width);
}

QN_INLINE void put(uint32_t dtype, char *y, int64_t i, double v) {
    if (dtype == QN_DTYPE_F32) ((float *)(void *)y)[i] = (float)v;
    else qn_lanes_put_some(dtype, y, i, vf_set1((float)v), 1);
}

QN_INLINE void sum_columns(uint32_t dtype, const qn_axes *l, const char *x, char *y, int64_t unit, double scale) {
    qn_axes_columns c = qn_axes_columns_at(l, unit);
    double sum[QN_ABREAST] = {0};
    do add_rows(dtype, sum, x + qn_axes_columns_from(l, &c) * qn_float_bytes(dtype), c.width, c.rows, c.some);
    while (qn_axes_next(l, c.above, &c.place, 1));
    for (int i = 0; i < c.some; i++) put(dtype, y, c.to + i, sum[i] * scale);
}

QN_INLINE void sum_runs(uint32_t dtype, const qn_axes *l, const char *x, char *y, int64_t n, double scale) {
    int inner = l->n - 1;
    int64_t run = l->extent[inner];
    qn_axes_place w = qn_axes_kept(l, inner, n);
    double sum = 0;
    do sum += add_run(dtype, x + qn_axes_offset(l, inner, &w, run) * qn_float_bytes(dtype), run);
    while (qn_axes_next(l, inner, &w, 1));
    put(dtype, y, n, sum * scale);
}

static double scale_of(const qn_call *c, const qn_axes *l) {
    return qn_axes_is_mean(c) ? (double)l->kept / (double)qn_tensor_count(c->src[0]) : 1.0;
}

QN_INLINE void sum_units(uint32_t dtype, const qn_axes *l, const char *x, char *y, int64_t first, int64_t end, double scale) {
    int64_t row = l->n == 2 && !l->gone[0] && l->gone[1] ? l->extent[1] : 0, u = first;
    for (; row && u < end; u++) put(dtype, y, u, add_run(dtype, x + u * row * qn_float_bytes(dtype), row) * scale);
    for (; u < end; u++) {
        if (l->n == 0) put(dtype, y, u, qn_load_one((qn_dtype)dtype, x + u * qn_float_bytes(dtype)) * scale);
        else if (l->gone[l->n - 1]) sum_runs(dtype, l, x, y, u, scale);
        else sum_columns(dtype, l, x, y, u, scale);
    }
}

static void run(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    qn_axes l;
    (void)phase;
    if (!qn_axes_of(c, &l)) return;
    int64_t units = qn_axes_units(&l), first = qn_cpu_cut(units, s->parts[0], part),
            end = qn_cpu_cut(units, s->parts[0], part + 1);
#define CALL(d) sum_units(d, &l, qn_at(c->src[0], 0), qn_at(c->dst[0], 0), first, end, scale_of(c, &l))
    QN_BY_FLOAT(c->src[0]->dtype, CALL);
#undef CALL
}

static double sum_piece(uint32_t dtype, const char *x, int64_t n) {
#define CALL(d) return add_up(d, x, n)
    QN_BY_FLOAT(dtype, CALL);
#undef CALL
}

/* One sum of everything, in pieces: sums of pieces are kept in the workspace and added when all are there. */
static void run_pieces(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *x = c->src[0];
    double *sums = c->workspace, sum = 0;
    int64_t n = qn_tensor_count(x), pieces = (n + PIECE - 1) / PIECE, bytes = PIECE * qn_float_bytes(x->dtype);
    if (phase == 0) {
        int64_t end = qn_cpu_cut(pieces, s->parts[0], part + 1);
        for (int64_t i = qn_cpu_cut(pieces, s->parts[0], part); i < end; i++)
            sums[i] = sum_piece(x->dtype, qn_at(x, i * bytes), n - i * PIECE < PIECE ? n - i * PIECE : PIECE);
        return;
    }
    for (int64_t i = 0; i < pieces; i++) sum += sums[i];
    qn_store_one((qn_dtype)x->dtype, qn_at(c->dst[0], 0), s->n[0] ? sum * (1 / (double)n) : sum);
}

static int prepare_pieces(qn_cpu_step *s, int64_t n, int is_mean) {
    int64_t pieces = (n + PIECE - 1) / PIECE;
    qn_cpu_by_rows(s, "sum of sums", run_pieces, pieces, 4.0 * PIECE, 0);
    s->n_phases = 2;
    s->parts[1] = 1;
    s->workspace = (size_t)pieces * sizeof(double);
    s->n[0] = is_mean;
    return 1;
}

static int prepare(const qn_call *c, qn_cpu_step *s) {
    qn_axes l;
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    if (!qn_lanes_float(x->dtype) || y->dtype != x->dtype || !qn_cpu_is_dense(x) || !qn_cpu_is_dense(y)) return 0;
    if (qn_tensor_count(x) == 0 || qn_tensor_count(y) == 0 || !qn_axes_of(c, &l)) return 0;
    if (l.n == 1 && l.gone[0] && l.extent[0] >= LONG) return prepare_pieces(s, l.extent[0], scale_of(c, &l) < 1.0);
    int64_t units = qn_axes_units(&l);
    return qn_cpu_by_rows(s, "sums", run, units, 4.0 * (double)qn_tensor_count(x) / (double)units, 0);
}

int QN_K(fold)(const qn_call *c, qn_cpu_step *s);  /* k_fold.c */
int QN_K(total)(const qn_call *c, qn_cpu_step *s); /* k_total.c: f64 and integers */

int QN_K(reduce)(const qn_call *c, qn_cpu_step *s) {
    int adds = c->subop == QN_REDUCE_sum || c->subop == QN_REDUCE_mean;
    return (adds ? prepare(c, s) : QN_K(fold)(c, s)) || QN_K(total)(c, s);
}

#define KERNEL(op) \
    int QN_K(op)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s) || QN_K(total)(c, s); }
KERNEL(repeat_back)
KERNEL(sum_rows)
KERNEL(mean)
KERNEL(sum)

/* ---- count_equal: parts count apart, and a second phase adds up */

/* n is below 2^31, so no lane's count overflows. */
static int64_t count_run(const char *a, const char *b, int64_t n) {
    const float *p = (const float *)(const void *)a,
                *q = (const float *)(const void *)b; /* bits are loaded, whatever they mean */
    vi same = vi_set1(0);
    int32_t lane[VF_N], one, other;
    int64_t i = 0, count = 0;
    for (; i + VF_N <= n; i += VF_N) same -= vi_bits(vf_load(p + i)) == vi_bits(vf_load(q + i));
    memcpy(lane, &same, sizeof lane);
    for (int k = 0; k < VF_N; k++) count += lane[k];
    for (; i < n; i++) {
        memcpy(&one, a + i * 4, 4);
        memcpy(&other, b + i * 4, 4);
        count += one == other;
    }
    return count;
}

static void run_count(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    int64_t *counts = c->workspace, n = qn_tensor_count(c->src[0]), pieces = (n + PIECE - 1) / PIECE, all = 0;
    if (phase == 1) {
        for (int64_t i = 0; i < s->parts[0]; i++) all += counts[i];
        memcpy(qn_at(c->dst[0], 0), &all, sizeof all);
        return;
    }
    for (int64_t i = qn_cpu_cut(pieces, s->parts[0], part), end = qn_cpu_cut(pieces, s->parts[0], part + 1); i < end; i++)
        all += count_run(qn_at(c->src[0], i * PIECE * 4), qn_at(c->src[1], i * PIECE * 4),
                         n - i * PIECE < PIECE ? n - i * PIECE : PIECE);
    counts[part] = all;
}

int QN_K(count_equal)(const qn_call *c, qn_cpu_step *s) {
    int64_t n = qn_tensor_count(c->src[0]);
    if (n == 0 || !qn_cpu_is_dense(c->src[0]) || !qn_cpu_is_dense(c->src[1])) return 0;
    qn_cpu_by_rows(s, "count_equal", run_count, (n + PIECE - 1) / PIECE, PIECE * 8.0, 0);
    s->n_phases = 2;
    s->parts[1] = 1;
    s->workspace = (size_t)s->parts[0] * sizeof(int64_t);
    return 1;
}
