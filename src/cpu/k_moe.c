/* moe_route, moe_gate and moe_combine. Scores are worked out in double, as the reference does, so that the same experts are chosen; what
 * is long, the norm and the products with the gate, goes by vectors. */
#include <math.h>

#include "cpu/k_norm.h"
#include "cpu/simd/simd_math.h"
#include "cpu/simd/simd_wide.h"

enum { SOFTMAX, SIGMOID, SOFTMAX_CHOSEN };

_Static_assert(offsetof(qn_attr_moe_gate, factor) == offsetof(qn_attr_moe_route, factor), "shared attributes");

static const qn_tensor *given(const qn_call *c, int slot) { return slot < c->n_src ? c->src[slot] : NULL; }

/* ---- Routing a row of logits. Rows of doubles have room for whole vectors. */

enum { LANES = VF_N / 2 };

typedef struct routing {
    const qn_attr_moe_route *at;
    const double *bias; /* NULL: none */
    const qn_tensor *scale;
    int64_t n;
} routing;

/* A row's scratch: scores, and what they are chosen by, whole vectors of each, and the chosen. */
static int64_t padded(int64_t n) { return (n + 15) / 16 * 16; }
static int64_t row_doubles(int64_t n) { return 3 * padded(n); }

static const double *load_bias(const qn_tensor *bias, int64_t n, double *to) {
    if (!bias) return NULL;
    qn_load_row(bias, qn_at(bias, 0), 0, n, to);
    for (int64_t i = n; i < padded(n); i++) to[i] = 0;
    return to;
}

static double most_of(vd v) {
    double t[LANES];
    vd_store(t, v);
    for (int i = 1; i < LANES; i++) t[0] = t[i] > t[0] ? t[i] : t[0];
    return t[0];
}

/* e^(x - shift) or, with `sigmoid`, 1 / (1 + e^-x). Far from zero, where a rounding decides whether two scores are equal, and where some
 * are no numbers, libm's exp is asked, as the reference does. */
static void exps(double *x, int64_t n, double shift, int sigmoid) {
    vd by = vd_zero() + shift, far = vd_zero();
    for (int64_t i = 0; i < n; i += LANES) far = vd_max(vd_max(vd_load(x + i) - by, by - vd_load(x + i)), far);
    int near = most_of(far) < (sigmoid ? 30 : 700);
    for (int64_t i = 0; i < n && near; i++) near = x[i] == x[i];
    for (int64_t i = 0; i < n && !near; i++) x[i] = sigmoid ? 1 / (1 + exp(-x[i])) : exp(x[i] - shift);
    for (int64_t i = 0; i < n && near; i += LANES) {
        vd v = vd_load(x + i);
        vd_store(x + i, sigmoid ? 1 / (1 + vd_exp(-v)) : vd_exp(v - by));
    }
}

static void score(double *x, int64_t n, int kind) {
    vd most = vd_zero() - INFINITY, sum = vd_zero();
    if (kind == SOFTMAX_CHOSEN) return;
    for (int64_t i = n; i % LANES; i++) x[i] = x[0];
    for (int64_t i = 0; i < n && kind == SOFTMAX; i += LANES) most = vd_max(vd_load(x + i), most);
    exps(x, n, kind == SOFTMAX ? most_of(most) : 0, kind == SIGMOID);
    for (int64_t i = n; i % LANES; i++) x[i] = 0;
    for (int64_t i = 0; i < n && kind == SOFTMAX; i += LANES) sum += vd_load(x + i);
    vd all = vd_zero() + vd_sum(sum);
    for (int64_t i = 0; i < n && kind == SOFTMAX; i += LANES) vd_store(x + i, vd_load(x + i) / all);
}

static int32_t *id_at(char *ids, int64_t j, int64_t step) { return (int32_t *)(void *)(ids + j * step); }

/* The k best of finite numbers, largest first, of equals the lower: each goes in front of those below it in a list of the best so far. */
static void choose(const double *v, double *best, int64_t n, int64_t k, char *ids, int64_t step) {
    int64_t have = 0;
    for (int64_t i = 0; i < n; i++) {
        if (have == k && !(v[i] > best[k - 1])) continue;
        int64_t j = have < k ? have++ : k - 1;
        for (; j > 0 && v[i] > best[j - 1]; j--) {
            best[j] = best[j - 1];
            *id_at(ids, j, step) = *id_at(ids, j - 1, step);
        }
        best[j] = v[i];
        *id_at(ids, j, step) = (int32_t)i;
    }
}

/* The same where some are not finite: the first that is not taken stays unless something is above it. */
static void choose_any(const double *v, double *taken, int64_t n, int64_t k, char *ids, int64_t step) {
    for (int64_t i = 0; i < n; i++) taken[i] = 0;
    for (int64_t j = 0; j < k; j++) {
        int64_t found = -1;
        for (int64_t i = 0; i < n; i++)
            if (taken[i] == 0 && (found < 0 || v[i] > v[found])) found = i;
        taken[found] = 1;
        *id_at(ids, j, step) = (int32_t)found;
    }
}

/* Scores with their bias; whether all are finite. */
static int rank(const routing *r, const double *x, double *ranks) {
    int finite = 1;
    for (int64_t i = 0; i < r->n; i++) {
        ranks[i] = r->bias ? x[i] + r->bias[i] : x[i];
        finite &= fabs(ranks[i]) < INFINITY;
    }
    return finite;
}

static void weigh(const routing *r, double *w, const char *ids, int64_t step) {
    int64_t k = r->at->k;
    double sum = 0;
    if (r->at->score == SOFTMAX_CHOSEN) score(w, k, SOFTMAX);
    for (int pass = 0; pass < 2; pass++) {
        if (pass == (r->at->scale_first ? 0 : 1)) {
            for (int64_t i = 0; i < k && r->scale; i++)
                w[i] *= qn_get4(r->scale, 0, 0, 0, qn_load_index(QN_DTYPE_I32, ids + i * step));
        } else if (r->at->renorm) {
            for (int64_t i = 0; i < k; i++) sum += w[i];
            for (int64_t i = 0; i < k && sum != 0; i++) w[i] /= sum;
        }
    }
    for (int64_t i = 0; i < k; i++) w[i] *= (double)r->at->factor;
}

static void route_row(const routing *r, double *x, const qn_tensor *weights, char *w_row, const qn_tensor *ids, char *id_row) {
    double *ranks = x + padded(r->n), *chosen = ranks + padded(r->n);
    int64_t step = qn_nb(ids, 0);
    score(x, r->n, r->at->score);
    if (rank(r, x, ranks)) choose(ranks, chosen, r->n, r->at->k, id_row, step);
    else choose_any(ranks, chosen, r->n, r->at->k, id_row, step);
    for (int64_t i = 0; i < r->at->k; i++) chosen[i] = x[*id_at(id_row, i, step)];
    weigh(r, chosen, id_row, step);
    qn_store_row(weights, w_row, 0, r->at->k, chosen);
}

static void run_route(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *logits = c->src[0], *weights = c->dst[0], *ids = c->dst[1];
    routing r = {c->attr, NULL, given(c, 2), qn_ne(logits, 0)};
    int64_t tokens = qn_tensor_count(logits) / r.n, end = qn_cpu_cut(tokens, s->parts[0], part + 1);
    double *x = (double *)c->workspace + part * (row_doubles(r.n) + padded(r.n));
    qn_rows it;
    (void)phase;
    r.bias = load_bias(given(c, 1), r.n, x + row_doubles(r.n));
    for (qn_rows_begin_at(&it, logits->rank, logits->shape, qn_cpu_cut(tokens, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it)) {
        qn_load_row(logits, qn_row(&it, logits), 0, r.n, x);
        route_row(&r, x, weights, qn_row(&it, weights), ids, qn_row(&it, ids));
    }
}

int QN_K(moe_route)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *logits = c->src[0];
    int64_t n = qn_ne(logits, 0);
    if (qn_tensor_count(logits) == 0 || n > 1 << 16) return 0;
    qn_cpu_by_rows(s, "moe_route rows", run_route, qn_tensor_count(logits) / n, 0, 20.0 * (double)n);
    s->workspace = (size_t)(s->parts[0] * (row_doubles(n) + padded(n))) * sizeof(double);
    return 1;
}

/* ---- The gate. A token's row is normalised and rounded, then the dots with the rows of the gate are cut into units, which a second
 * phase routes by. */

enum { EXPERTS = 8 }; /* rows of the gate in a unit */

static int64_t row_floats(const qn_tensor *x) { return padded(qn_ne(x, 0)); }

QN_INLINE void norm_row(uint32_t dtype, const char *x, const qn_tensor *gamma, int64_t n, double eps, float *to) {
    double mean, r;
    float v[VF_N], g[VF_N];
    row_moments(dtype, SQUARES, x, n, eps, &mean, &r);
    for (int64_t i = 0; i < n; i += VF_N) {
        vf_store(v, qn_lanes_at(dtype, x, i, n));
        vf_store(g, weight_at(gamma, i, n));
        for (int k = 0; k < VF_N; k++) v[k] = (float)((double)v[k] * r * (double)g[k]);
        qn_lanes_put(dtype, (char *)g, 0, vf_load(v));
        vf_store(to + i, qn_lanes(dtype, (const char *)g, 0));
    }
}

/* In double, because a choice hangs on it. */
QN_INLINE double dot_row(uint32_t dtype, const float *x, const char *w, int64_t n) {
    vd low = vd_zero(), high = low;
    for (int64_t i = 0; i < n; i += VF_N) {
        vf a = vf_loadn(x + i, n - i < VF_N ? (int)(n - i) : VF_N), b = qn_lanes_at(dtype, w, i, n);
        low += vd_low(a) * vd_low(b);
        high += vd_high(a) * vd_high(b);
    }
    return vd_sum(low + high);
}

static void gate_unit(const qn_call *c, int64_t unit, const float *rows, double *logits) {
    const qn_tensor *x = c->src[0], *w = c->src[2];
    int64_t n = qn_ne(w, 1), across = (n + EXPERTS - 1) / EXPERTS, token = unit / across, e = unit % across * EXPERTS;
    const float *row = rows + token * row_floats(x);
    for (int64_t end = e + EXPERTS < n ? e + EXPERTS : n; e < end; e++) {
#define DOT(d) logits[token * row_doubles(n) + e] = (double)(float)dot_row(d, row, qn_at(w, e * qn_nb(w, 1)), qn_ne(x, 0))
        QN_BY_FLOAT(w->dtype, DOT);
#undef DOT
    }
}

static void gate_row(const qn_call *c, const qn_rows *it, float *to) {
    const qn_attr_moe_gate *at = c->attr;
    const qn_tensor *x = c->src[0];
#define NORM(d) norm_row(d, qn_row(it, x), c->src[1], it->n, (double)at->eps, to)
    QN_BY_FLOAT(x->dtype, NORM);
#undef NORM
}

static void run_gate(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *x = c->src[0], *w = c->src[2], *weights = c->dst[0], *ids = c->dst[1];
    int64_t n = qn_ne(w, 1), tokens = qn_tensor_count(x) / qn_ne(x, 0), units = tokens * ((n + EXPERTS - 1) / EXPERTS);
    double *logits = c->workspace;
    float *rows = (float *)(void *)(logits + tokens * row_doubles(n));
    int64_t all = phase == 1 ? units : tokens, end = qn_cpu_cut(all, s->parts[phase], part + 1);
    int64_t first = qn_cpu_cut(all, s->parts[phase], part);
    qn_attr_moe_route route = qn_attr_moe_route_default();
    memcpy(&route, c->attr, offsetof(qn_attr_moe_route, factor) + sizeof route.factor);
    routing r = {&route, NULL, given(c, 4), n};
    if (phase == 2) r.bias = load_bias(given(c, 3), n, (double *)c->workspace + s->n[0] + part * padded(n));
    qn_rows it;
    for (int64_t u = first; phase == 1 && u < end; u++) gate_unit(c, u, rows, logits);
    if (phase == 1) return;
    for (qn_rows_begin_at(&it, x->rank, x->shape, first); it.live && it.row < end; qn_rows_next(&it)) {
        if (phase == 0) gate_row(c, &it, rows + it.row * row_floats(x));
        else route_row(&r, logits + it.row * row_doubles(n), weights, qn_row(&it, weights), ids, qn_row(&it, ids));
    }
}

int QN_K(moe_gate)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *x = c->src[0], *w = c->src[2];
    int64_t n = qn_ne(w, 1), width = qn_ne(x, 0), tokens = qn_tensor_count(x) / width, most = INT64_MAX / 4096;
    if (tokens == 0 || !qn_lanes_rows(x) || !qn_lanes_rows(c->src[1]) || !qn_lanes_rows(w)) return 0;
    if (n > 1 << 16 || tokens > most / (1 << 18) || width > most / tokens) return 0;
    int64_t units = tokens * ((n + EXPERTS - 1) / EXPERTS);
    qn_cpu_by_rows(s, "moe_gate", run_gate, tokens, 6.0 * (double)width, 0);
    s->n_phases = 3;
    s->parts[1] = qn_cpu_parts(units, 4.0 * EXPERTS * (double)width, 0);
    s->parts[2] = qn_cpu_parts(tokens, 0, 100.0 * (double)n);
    s->n[0] = tokens * (row_doubles(n) + row_floats(x) / 2); /* doubles in front of the biases, a row for each part */
    s->workspace = (size_t)(s->n[0] + s->parts[2] * padded(n)) * sizeof(double);
    return 1;
}

/* ---- The sum of what experts gave */

QN_INLINE void combine_row(uint32_t dtype, const qn_call *c, int64_t t, double gate) {
    const qn_tensor *w = c->src[0], *e = c->src[1], *shared = given(c, 3), *residual = given(c, 4), *y = c->dst[0];
    int64_t n = qn_ne(y, 0), chosen = qn_ne(e, 1), step = qn_nb(e, 1);
    char *to = qn_at(y, t * qn_nb(y, 1));
    const char *from = qn_at(e, t * qn_nb(e, 2)), *by = qn_at(w, t * qn_nb(w, 1));
    for (int64_t i = 0; i < n; i += VF_N) {
        vf sum = vf_zero();
        for (int64_t k = 0; k < chosen; k++) {
            float weight = (float)qn_load_one((qn_dtype)w->dtype, by + k * qn_nb(w, 0));
            sum = vf_fma(vf_set1(weight), qn_lanes_at(dtype, from + k * step, i, n), sum);
        }
        if (shared) sum = vf_fma(qn_lanes_at(dtype, qn_at(shared, t * qn_nb(shared, 1)), i, n), vf_set1((float)gate), sum);
        if (residual) sum += qn_lanes_at(dtype, qn_at(residual, t * qn_nb(residual, 1)), i, n);
        qn_lanes_put_at(dtype, to, i, sum, n);
    }
}

static void run_combine(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *y = c->dst[0], *gate = given(c, 2);
    int64_t rows = qn_ne(y, 1), end = qn_cpu_cut(rows, s->parts[0], part + 1);
    (void)phase;
    for (int64_t t = qn_cpu_cut(rows, s->parts[0], part); t < end; t++) {
        double share = gate ? 1 / (1 + exp(-qn_get4(gate, 0, 0, t, 0))) : 0;
#define COMBINE(d) combine_row(d, c, t, share)
        QN_BY_FLOAT(y->dtype, COMBINE);
#undef COMBINE
    }
}

int QN_K(moe_combine)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *y = c->dst[0], *e = c->src[1];
    if (qn_tensor_count(y) == 0 || qn_tensor_count(e) == 0 || !qn_lanes_rows(y) || !qn_lanes_rows(e)) return 0;
    if (!qn_lanes_float(c->src[0]->dtype)) return 0;
    for (int i = 3; i < 5; i++)
        if (given(c, i) && !qn_lanes_rows(given(c, i))) return 0;
    return qn_cpu_by_rows(s, "moe_combine rows", run_combine, qn_ne(y, 1), 4.0 * (double)(qn_ne(e, 0) * (qn_ne(e, 1) + 2)), 0);
}
