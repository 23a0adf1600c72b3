/* Gradients of the norms of rows and groups: norm_back, rms_norm_back, l2_norm_back, group_norm_back, and with weights layer_norm_back
 * and rms_layer_norm_back. With h the normalised row and q the gradient times gamma, dx = r (q - A - h B): A is the mean of q where the
 * row was centred, B the mean of q h (its sum for l2_norm). Gradients of weights are summed over the rows of a part in double, and then over the parts. */
#include "cpu/k_norm.h"
#include "cpu/k_past.h"
#include "cpu/simd/simd_wide.h"

typedef struct back_row {
    const char *g, *x;
    const char *next_g, *next_x; /* rows behind, when dx goes past the caches by whole vectors; meanwhile they are asked for */
    char *dx;
    const qn_tensor *gamma; /* or NULL */
    double *sums;           /* n of g h, then n of g; or NULL */
    int64_t n;
    double eps;
} back_row;

QN_INLINE vf gradient_at(uint32_t dtype, const back_row *w, int64_t i) {
    vf g = qn_lanes_at(dtype, w->g, i, w->n);
    return w->gamma ? g * weight_at(w->gamma, i, w->n) : g;
}

/* Sums over a row less a number near its mean, d: of d d, of d, of q, and of q d, in one walk. */
typedef struct row_sums {
    away_sums away;
    double q, qd;
} row_sums;
typedef struct lane_sums {
    vf squares, d, q, qd;
} lane_sums;

/* Adds one vector's. Lanes behind the end of a row are zero in q and in d. */
QN_INLINE void add_lanes(norm_kind kind, vf q, vf d, lane_sums *s) {
    s->squares = vf_fma(d, d, s->squares);
    if (kind == CENTRED) s->d += d;
    s->q += q;
    s->qd = vf_fma(q, d, s->qd);
}

/* 0 where a run's sums leave the range of floats, as d d and q d may where q h does not. */
QN_INLINE int sum_back(uint32_t dtype, norm_kind kind, const back_row *w, vf mean, row_sums *t) {
    *t = (row_sums){{0, 0}, 0, 0};
    for (int64_t first = 0; first < w->n; first += RUN) {
        int64_t i = first, end = w->n < first + RUN ? w->n : first + RUN;
        lane_sums a = {vf_zero(), vf_zero(), vf_zero(), vf_zero()},
                  b = a; /* two of each, so that one need not wait for the other */
        for (; i + 2 * VF_N <= end; i += 2 * VF_N) {
            vf g = qn_lanes(dtype, w->g, i), h = qn_lanes(dtype, w->g, i + VF_N);
            if (w->gamma) g *= weight_at(w->gamma, i, end), h *= weight_at(w->gamma, i + VF_N, end);
            add_lanes(kind, g, qn_lanes(dtype, w->x, i) - mean, &a);
            add_lanes(kind, h, qn_lanes(dtype, w->x, i + VF_N) - mean, &b);
        }
        for (; i < end; i += VF_N) {
            vf d = qn_lanes_at(dtype, w->x, i, end) - mean;
            add_lanes(kind, gradient_at(dtype, w, i), end - i < VF_N ? vf_some(d, (int)(end - i), vf_zero()) : d, &a);
        }
        float squares = vf_sum(a.squares + b.squares), along = vf_sum(a.qd + b.qd);
        float q = vf_sum(a.q + b.q);
        if (!(squares < INFINITY && squares > 1e-30f && along - along == 0 && q - q == 0)) return 0;
        t->away.squares += (double)squares;
        t->away.d += (double)vf_sum(a.d + b.d);
        t->q += (double)q;
        t->qd += (double)along;
    }
    return 1;
}

/* Of VF_N elements the gradient times gamma and the normalised row, in double. */
typedef struct far_lanes {
    vd g[2], q[2], h[2];
} far_lanes;

static inline far_lanes far_lanes_at(uint32_t dtype, const back_row *w, double mean, double r, int64_t i) {
    vf g = qn_lanes_at(dtype, w->g, i, w->n), x = qn_lanes_at(dtype, w->x, i, w->n);
    far_lanes v = {{vd_low(g), vd_high(g)}, {vd_low(g), vd_high(g)}, {(vd_low(x) - mean) * r, (vd_high(x) - mean) * r}};
    if (w->gamma) {
        vf gamma = weight_at(w->gamma, i, w->n);
        v.q[0] *= vd_low(gamma), v.q[1] *= vd_high(gamma);
    }
    return v;
}

/* Sums of q and of q h, for rows that need that. Lanes behind the end of a row are zero in q. */
static void sum_far(uint32_t dtype, const back_row *w, double mean, double r, row_sums *t) {
    vd q = vd_zero(), qh = q;
    for (int64_t i = 0; i < w->n; i += VF_N) {
        far_lanes v = far_lanes_at(dtype, w, mean, r, i);
        q += v.q[0] + v.q[1];
        qh = vd_fma(v.q[0], v.h[0], vd_fma(v.q[1], v.h[1], qh));
    }
    t->q = vd_sum(q);
    t->qd = vd_sum(qh);
}

static void add_wide(double *to, vd low, vd high, int64_t n) {
    double t[VF_N];
    if (n >= VF_N) {
        vd_store(to, vd_load(to) + low);
        vd_store(to + VF_N / 2, vd_load(to + VF_N / 2) + high);
        return;
    }
    vd_store(t, low);
    vd_store(t + VF_N / 2, high);
    for (int64_t i = 0; i < n; i++) to[i] += t[i];
}

/* What is taken off a row, what it is multiplied by, A and B. */
typedef struct back_numbers {
    double mean, r, off, along;
} back_numbers;

/* The same as floats, and what is added after the row was multiplied. */
typedef struct back_moments {
    vf mean, r, more, off, along;
} back_moments;

/* Whether floats hold them, and all that comes of them. */
QN_INLINE int back_numbers_of(uint32_t dtype, norm_kind kind, const back_row *w, back_numbers *is, back_moments *as) {
    double n = (double)w->n, lacks, squares, r;
    float near = kind == CENTRED ? (float)(sum_row(dtype, w->x, w->n) / n) : 0;
    row_sums t;
    if (sum_back(dtype, kind, w, vf_set1(near), &t)) {
        squares = squares_about_mean(t.away, n, &lacks);
        r = row_factor(kind, squares, w->n, w->eps);
        t.qd = (t.qd - lacks * t.q) * r;
    } else {
        double mean;
        squares = row_moments(dtype, kind, w->x, w->n, w->eps, &mean, &r);
        near = (float)mean;
        lacks = mean - (double)near;
        sum_far(dtype, w, mean, r, &t);
    }
    double along = kind != LENGTH ? t.qd / n : sqrt(squares) < w->eps ? 0 : t.qd; /* the floor of a length is constant */
    double off = kind == CENTRED ? t.q / n : 0;
    *is = (back_numbers){(double)near + lacks, r, off, along};
    *as = (back_moments){vf_set1(near), vf_set1((float)r), vf_set1((float)-lost(lacks, r)), vf_set1((float)off),
                         vf_set1((float)along)};
    return is_near(r) && fabs(off) + sqrt(n) * fabs(along) < 1e30; /* no h is above sqrt n */
}

/* VF_N elements of x, normalised. */
QN_INLINE vf normal(const back_moments *m, vf x) { return vf_fma(x - m->mean, m->r, m->more); }

/* dx of VF_N elements, or of as many as there are. */
QN_INLINE vf back_lanes(const back_moments *m, vf q, vf h) { return m->r * (q - m->off - h * m->along); }

/* Rows that go past the caches by whole vectors. */
QN_INLINE void put_past(const back_row *w, const back_moments *m) {
    for (int64_t i = 0; i < w->n; i += VF_N) {
        __builtin_prefetch(w->next_g + i * 4, 0, 3);
        __builtin_prefetch(w->next_x + i * 4, 0, 3);
        vf h = normal(m, qn_lanes(QN_DTYPE_F32, w->x, i));
        qn_past_store((float *)(void *)w->dx + i, back_lanes(m, gradient_at(QN_DTYPE_F32, w, i), h));
    }
}

/* In double, for rows that floats do not hold in between. */
static void put_far(uint32_t dtype, const back_row *w, const back_numbers *is) {
    for (int64_t i = 0; i < w->n; i += VF_N) {
        far_lanes v = far_lanes_at(dtype, w, is->mean, is->r, i);
        vd dx[2];
        for (int k = 0; k < 2; k++) dx[k] = (v.q[k] - is->off - v.h[k] * is->along) * is->r;
        qn_lanes_put_at(dtype, w->dx, i, vf_of_wide(dx[0], dx[1]), w->n);
        if (!w->sums) continue;
        add_wide(w->sums + i, v.g[0] * v.h[0], v.g[1] * v.h[1], w->n - i);
        add_wide(w->sums + w->n + i, v.g[0], v.g[1], w->n - i);
    }
}

QN_INLINE void back_one(uint32_t dtype, norm_kind kind, const back_row *w) {
    back_numbers is;
    back_moments m;
    if (!back_numbers_of(dtype, kind, w, &is, &m)) {
        put_far(dtype, w, &is);
        return;
    }
    if (dtype == QN_DTYPE_F32 && w->next_x) {
        put_past(w, &m);
        return;
    }
    for (int64_t i = 0; i < w->n; i += VF_N) {
        vf g = qn_lanes_at(dtype, w->g, i, w->n), h = normal(&m, qn_lanes_at(dtype, w->x, i, w->n));
        vf q = w->gamma ? g * weight_at(w->gamma, i, w->n) : g;
        qn_far_ask(w->dx + i * qn_float_bytes(dtype) + QN_FAR_AHEAD);
        qn_lanes_put_at(dtype, w->dx, i, back_lanes(&m, q, h), w->n);
        if (!w->sums) continue;
        vf along = g * h;
        add_wide(w->sums + i, vd_low(along), vd_high(along), w->n - i);
        add_wide(w->sums + w->n + i, vd_low(g), vd_high(g), w->n - i);
    }
}

static void back_any(uint32_t dtype, norm_kind kind, const back_row *w) {
#define CENTRED_OF(d) back_one(d, CENTRED, w)
#define SQUARES_OF(d) back_one(d, SQUARES, w)
#define LENGTH_OF(d) back_one(d, LENGTH, w)
    if (kind == CENTRED) QN_BY_FLOAT(dtype, CENTRED_OF);
    else if (kind == SQUARES) QN_BY_FLOAT(dtype, SQUARES_OF);
    else QN_BY_FLOAT(dtype, LENGTH_OF);
}

/* ---- Ops */

static const qn_tensor *wanted(const qn_call *c, int slot) { return slot < c->n_dst ? c->dst[slot] : NULL; }
static int sums_weights(const qn_call *c) { return wanted(c, 1) || wanted(c, 2); }

enum { NEAR = 1 << 15 }; /* bytes of a row behind, that stay near when they are asked for */

static void run_rows(const qn_call *c, const qn_cpu_step *s, int64_t part, norm_kind kind) {
    const qn_tensor *g = c->src[0], *x = c->src[1], *dx = c->dst[0];
    int64_t n = qn_ne(x, 0), rows = qn_tensor_count(x) / n, end = qn_cpu_cut(rows, s->parts[0], part + 1);
    back_row w = {.n = n, .eps = (double)((const qn_attr_norm_back *)c->attr)->eps};
    w.gamma = c->n_src > 2 ? c->src[2] : NULL;
    if (sums_weights(c)) {
        w.sums = (double *)c->workspace + part * 2 * n;
        memset(w.sums, 0, (size_t)n * 2 * sizeof *w.sums);
    }
    int64_t bytes = n * 4;
    int past = x->dtype == QN_DTYPE_F32 && !w.sums && bytes <= NEAR && qn_past_is(s, dx, c->src, 2);
    qn_rows it;
    for (qn_rows_begin_at(&it, x->rank, x->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it)) {
        w.g = qn_row(&it, g);
        w.x = qn_row(&it, x);
        w.dx = qn_row(&it, dx);
        int whole = past && ((uintptr_t)w.dx | (uintptr_t)bytes) % sizeof(vf) == 0;
        w.next_g = whole ? w.g + bytes : NULL;
        w.next_x = whole ? w.x + bytes : NULL;
        back_any(x->dtype, kind, &w);
    }
    if (past) qn_past_end();
}

/* Columns of the parts' sums, each in the order of the parts. */
static void run_weights(const qn_call *c, const qn_cpu_step *s, int64_t part) {
    int64_t n = qn_ne(c->src[1], 0), end = qn_cpu_cut(n, s->parts[1], part + 1);
    for (int k = 0; k < 2; k++) {
        const qn_tensor *to = wanted(c, k + 1);
        if (!to) continue;
        const double *sums = (const double *)c->workspace + k * n;
        for (int64_t i = qn_cpu_cut(n, s->parts[1], part); i < end; i++) {
            double sum = 0;
            for (int64_t p = 0; p < s->parts[0]; p++) sum += sums[p * 2 * n + i];
            qn_store_row(to, qn_at(to, 0), i, 1, &sum);
        }
    }
}

/* Of shorter rows little is left after A and B are taken off, at worst rounding alone: the reference does those in double. */
enum { SHORT = 16 };

static int prepare(const qn_call *c, qn_cpu_step *s, const char *name, qn_cpu_run_fn run) {
    const qn_tensor *g = c->src[0], *x = c->src[1], *dx = c->dst[0], *gamma = c->n_src > 2 ? c->src[2] : NULL;
    int64_t count = qn_tensor_count(x), n = qn_ne(x, 0), bytes;
    if (!dx || count == 0 || g->dtype != x->dtype || dx->dtype != x->dtype || g->rank != x->rank || dx->rank != x->rank) return 0;
    if (!qn_lanes_rows(g) || !qn_lanes_rows(x) || !qn_lanes_rows(dx) || (gamma && !qn_lanes_rows(gamma))) return 0;
    if (n < SHORT) return 0;
    for (int i = 3; i < c->n_src; i++)
        if (c->src[i]) return 0; /* gradients of the statistics are rare */
    qn_cpu_by_rows(s, name, run, count / n, 20.0 * (double)n, 0);
    if (!sums_weights(c)) return 1;
    int64_t most = count / n / 16 + 1; /* so that the parts' sums are small beside the rows */
    if (s->parts[0] > most) s->parts[0] = most;
    if (qn_mul_overflow(n, 2 * (int64_t)sizeof(double) * s->parts[0], &bytes)) return 0;
    s->workspace = (size_t)bytes;
    s->n_phases = 2;
    s->parts[1] = qn_cpu_parts(n, 16.0 * (double)s->parts[0], 0);
    return 1;
}

#define ROWS(op, kind)                                                                      \
    static void run_##op(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) { \
        if (phase == 0) run_rows(c, s, part, kind);                                         \
        else run_weights(c, s, part);                                                       \
    }                                                                                       \
    int QN_K(op)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, #op " rows", run_##op); }
ROWS(norm_back, CENTRED)
ROWS(rms_norm_back, SQUARES)
ROWS(l2_norm_back, LENGTH)
ROWS(layer_norm_back, CENTRED)
ROWS(rms_layer_norm_back, SQUARES)

/* ---- Groups of channels: as in group_norm, a group of a dense tensor is one long row. */

static int64_t group_channels(const qn_call *c) {
    int64_t channels = qn_ne(c->src[1], 2), groups = ((const qn_attr_group_norm_back *)c->attr)->n_groups;
    return (channels + groups - 1) / groups;
}

static void run_groups(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *x = c->src[1];
    int64_t channels = qn_ne(x, 2), plane = qn_ne(x, 0) * qn_ne(x, 1), per = group_channels(c);
    int64_t groups = (channels + per - 1) / per, units = groups * qn_ne(x, 3), end = qn_cpu_cut(units, s->parts[0], part + 1);
    int64_t size = qn_float_bytes(x->dtype);
    (void)phase;
    for (int64_t u = qn_cpu_cut(units, s->parts[0], part); u < end; u++) {
        int64_t first = u % groups * per, some = channels - first < per ? channels - first : per;
        int64_t at = (u / groups * channels + first) * plane * size;
        back_row w = {.g = qn_at(c->src[0], at), .x = qn_at(x, at), .dx = qn_at(c->dst[0], at), .n = some * plane};
        w.eps = (double)((const qn_attr_group_norm_back *)c->attr)->eps;
        back_any(x->dtype, CENTRED, &w);
    }
}

int QN_K(group_norm_back)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *g = c->src[0], *x = c->src[1], *dx = c->dst[0];
    int64_t count = qn_tensor_count(x), plane = qn_ne(x, 0) * qn_ne(x, 1), channels = qn_ne(x, 2), per = group_channels(c);
    if (count == 0 || x->rank > 4 || dx->dtype != x->dtype || !qn_lanes_float(x->dtype)) return 0;
    if (!qn_cpu_is_dense(g) || !qn_cpu_is_dense(x) || !qn_cpu_is_dense(dx)) return 0;
    int64_t last = channels - (channels - 1) / per * per, units = (channels + per - 1) / per * qn_ne(x, 3);
    if (last * plane < SHORT) return 0;
    return qn_cpu_by_rows(s, "group_norm_back", run_groups, units, 20.0 * (double)count / (double)units, 0);
}
