/* glu with all its gates and glu_back, scale and clamp: what is computed element by element with a few constants. */
#include "cpu/k_gate.h"
#include "cpu/k_lanes.h"
#include "cpu/k_past.h"

/* ---- glu: u is gated, v is what it is multiplied with */

typedef qn_attr_glu attrs; /* glu_back has the same record */

/* The derivatives by u and by v. */
QN_INLINE void slopes_of(int sub, vf u, vf v, const attrs *p, vf *du, vf *dv) {
    vf zero = vf_zero();
    switch (sub) {
    case QN_GLU_reglu:
        *du = vf_select(u <= zero, zero, v);
        *dv = vf_select(u <= zero, zero, u);
        return;
    case QN_GLU_geglu: *du = d_gelu(u) * v, *dv = f_gelu(u); return;
    case QN_GLU_swiglu: *du = d_silu(u) * v, *dv = f_silu(u); return;
    case QN_GLU_geglu_erf: *du = d_gelu_erf(u) * v, *dv = f_gelu_erf(u); return;
    case QN_GLU_geglu_quick: *du = d_gelu_quick(u) * v, *dv = f_gelu_quick(u); return;
    default: break;
    }
    vf limit = vf_set1(p->limit), alpha = vf_set1(p->alpha), cu = qn_limit_high(u, limit);
    vf cv = qn_limit_low(qn_limit_high(v, limit), f_neg(limit)), s = vf_sigmoid(alpha * cu), bend = s * (ONE - s);
    vf slope = s + vf_select(bend == zero, zero, alpha * cu * bend);
    *du = vf_select(u <= limit, (cv + ONE) * slope, zero);
    *dv = vf_select(vf_abs(v) <= limit, gate(cu, s), zero);
}

QN_INLINE void glu_row(uint32_t dtype, int sub, char *y, const char *u, const char *v, int64_t n, const attrs *p) {
    int64_t i = 0;
    for (; i + VF_N <= n; i += VF_N) qn_lanes_put(dtype, y, i, qn_gate_of(sub, qn_lanes(dtype, u, i), qn_lanes(dtype, v, i), p));
    if (i < n) qn_lanes_put_at(dtype, y, i, qn_gate_of(sub, qn_lanes_at(dtype, u, i, n), qn_lanes_at(dtype, v, i, n), p), n);
}

QN_INLINE void back_row(uint32_t dtype, int sub, char *du, char *dv, const char *g, const char *u, const char *v, int64_t n,
                        const attrs *p) {
    for (int64_t i = 0; i < n; i += VF_N) {
        vf up = qn_lanes_at(dtype, g, i, n), by_u, by_v;
        slopes_of(sub, qn_lanes_at(dtype, u, i, n), qn_lanes_at(dtype, v, i, n), p, &by_u, &by_v);
        qn_lanes_put_at(dtype, du, i, up * by_u, n);
        if (dv) qn_lanes_put_at(dtype, dv, i, up * by_v, n);
    }
}

typedef void (*glu_fn)(uint32_t dtype, char *y, const char *u, const char *v, int64_t n, const attrs *p);
typedef void (*back_fn)(uint32_t dtype, char *du, char *dv, const char *g, const char *u, const char *v, int64_t n,
                        const attrs *p);
#define QN_GLU(name, formula)                                                                                           \
    static void glu_##name(uint32_t dtype, char *y, const char *u, const char *v, int64_t n, const attrs *p) {          \
        QN_BY_FLOAT(dtype, FORWARD_##name);                                                                             \
    }                                                                                                                   \
    static void back_##name(uint32_t dtype, char *du, char *dv, const char *g, const char *u, const char *v, int64_t n, \
                            const attrs *p) {                                                                           \
        QN_BY_FLOAT(dtype, BACKWARD_##name);                                                                            \
    }
#define FORWARD_reglu(d) glu_row(d, QN_GLU_reglu, y, u, v, n, p)
#define FORWARD_geglu(d) glu_row(d, QN_GLU_geglu, y, u, v, n, p)
#define FORWARD_swiglu(d) glu_row(d, QN_GLU_swiglu, y, u, v, n, p)
#define FORWARD_swiglu_oai(d) glu_row(d, QN_GLU_swiglu_oai, y, u, v, n, p)
#define FORWARD_geglu_erf(d) glu_row(d, QN_GLU_geglu_erf, y, u, v, n, p)
#define FORWARD_geglu_quick(d) glu_row(d, QN_GLU_geglu_quick, y, u, v, n, p)
#define BACKWARD_reglu(d) back_row(d, QN_GLU_reglu, du, dv, g, u, v, n, p)
#define BACKWARD_geglu(d) back_row(d, QN_GLU_geglu, du, dv, g, u, v, n, p)
#define BACKWARD_swiglu(d) back_row(d, QN_GLU_swiglu, du, dv, g, u, v, n, p)
#define BACKWARD_swiglu_oai(d) back_row(d, QN_GLU_swiglu_oai, du, dv, g, u, v, n, p)
#define BACKWARD_geglu_erf(d) back_row(d, QN_GLU_geglu_erf, du, dv, g, u, v, n, p)
#define BACKWARD_geglu_quick(d) back_row(d, QN_GLU_geglu_quick, du, dv, g, u, v, n, p)
#include <quern/glu.def>
#undef QN_GLU

static const struct {
    glu_fn forward;
    back_fn back;
} gates[] = {
#define QN_GLU(name, formula) {glu_##name, back_##name},
#include <quern/glu.def>
#undef QN_GLU
};

/* Where u and v of a row lie: in two rows, or in the halves of one. */
static void halves(const qn_rows *it, const qn_tensor *a, const qn_tensor *b, const attrs *p, const char **u, const char **v) {
    *u = qn_row(it, a);
    *v = b ? qn_row(it, b) : *u + qn_ne(a, 0) / 2 * qn_nb(a, 0);
    if (b || !p->swapped) return;
    const char *first = *u;
    *u = *v;
    *v = first;
}

enum { COLUMNS = 2048 }; /* long rows are cut, so that one row is work for many */

/* Piece number `unit` of the pieces of rows of t: the row, and [*first, *first + *n) of it. */
static void piece_of(const qn_tensor *t, int64_t unit, int64_t *row, int64_t *first, int64_t *n) {
    int64_t wide = qn_ne(t, 0), pieces = (wide + COLUMNS - 1) / COLUMNS;
    *row = unit / pieces;
    *first = unit % pieces * COLUMNS;
    *n = wide - *first < COLUMNS ? wide - *first : COLUMNS;
}
static int64_t pieces_of(const qn_tensor *t) {
    return qn_tensor_count(t) / qn_ne(t, 0) * ((qn_ne(t, 0) + COLUMNS - 1) / COLUMNS);
}

static void run_glu(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    const qn_tensor *y = c->dst[0], *a = c->src[0], *b = c->n_src > 1 ? c->src[1] : NULL;
    int64_t units = pieces_of(y), end = qn_cpu_cut(units, s->parts[0], part + 1), size = qn_float_bytes(y->dtype);
    int past = qn_past_is(NULL, y, c->src, c->n_src);
    _Alignas(64) char tile[QN_PAST_TILE];
    for (int64_t unit = qn_cpu_cut(units, s->parts[0], part); unit < end; unit++) {
        int64_t row, first, n;
        const char *u, *v;
        qn_rows it;
        piece_of(y, unit, &row, &first, &n);
        qn_rows_begin_at(&it, y->rank, y->shape, row);
        halves(&it, a, b, c->attr, &u, &v);
        first *= size;
        char *to = qn_row(&it, y) + first;
        u += first, v += first;
        if (!past) gates[c->subop].forward(y->dtype, to, u, v, n, c->attr);
        for (int64_t some; past && n > 0; n -= some, to += some * size, u += some * size, v += some * size) {
            some = qn_past_some(to, n, size);
            qn_past_ask(u, some * size);
            qn_past_ask(v, some * size);
            gates[c->subop].forward(y->dtype, tile, u, v, some, c->attr);
            qn_past_put(to, tile, some * size);
        }
    }
    if (past) qn_past_end();
}

static int same_rows(const qn_call *c, uint32_t dtype) {
    for (int i = 0; i < c->n_src; i++)
        if (c->src[i] && (c->src[i]->dtype != dtype || !qn_lanes_rows(c->src[i]))) return 0;
    for (int i = 0; i < c->n_dst; i++)
        if (c->dst[i] && (c->dst[i]->dtype != dtype || !qn_lanes_rows(c->dst[i]) || qn_tensor_count(c->dst[i]) == 0)) return 0;
    return 1;
}

int QN_K(glu)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *y = c->dst[0];
    if (!same_rows(c, y->dtype) || y->rank != c->src[0]->rank) return 0;
    return qn_cpu_by_rows(s, "glu", run_glu, pieces_of(y), 12.0 * (double)(qn_ne(y, 0) < COLUMNS ? qn_ne(y, 0) : COLUMNS),
                          30.0 * (double)(qn_ne(y, 0) < COLUMNS ? qn_ne(y, 0) : COLUMNS));
}

/* The odd element that halves leave over has no part in the result: its gradient is 0. */
static void run_glu_back(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    const qn_tensor *g = c->src[0], *a = c->src[1], *b = c->n_src > 2 ? c->src[2] : NULL;
    const qn_tensor *da = c->dst[0], *db = c->n_dst > 1 ? c->dst[1] : NULL;
    const attrs
    *p = c->attr;
    int64_t rows = qn_tensor_count(g) / qn_ne(g, 0), end = qn_cpu_cut(rows, s->parts[0], part + 1), half = qn_ne(a, 0) / 2;
    qn_rows it;
    for (qn_rows_begin_at(&it, g->rank, g->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it)) {
        const char *u, *v;
        char *du = qn_row(&it, da), *dv = b ? (db ? qn_row(&it, db) : NULL) : du + half * qn_nb(da, 0);
        halves(&it, a, b, p, &u, &v);
        if (!b && qn_ne(a, 0) % 2) memset(du + 2 * half * qn_nb(da, 0), 0, (size_t)qn_nb(da, 0));
        if (!b && p->swapped) gates[c->subop].back(g->dtype, dv, du, qn_row(&it, g), u, v, qn_ne(g, 0), p);
        else gates[c->subop].back(g->dtype, du, dv, qn_row(&it, g), u, v, qn_ne(g, 0), p);
    }
}

int QN_K(glu_back)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *g = c->src[0];
    if (!same_rows(c, g->dtype) || qn_tensor_count(g) == 0 || g->rank != c->src[1]->rank) return 0;
    return qn_cpu_by_rows(s, "glu_back", run_glu_back, qn_tensor_count(g) / qn_ne(g, 0), 20.0 * (double)qn_ne(g, 0),
                          60.0 * (double)qn_ne(g, 0));
}

/* ---- scale and clamp */

QN_INLINE void scale_row(uint32_t dtype, char *y, const char *x, int64_t n, vf a, vf b) {
    int64_t i = 0;
    for (; i + VF_N <= n; i += VF_N) qn_lanes_put(dtype, y, i, vf_fma(a, qn_lanes(dtype, x, i), b));
    if (i < n) qn_lanes_put_at(dtype, y, i, vf_fma(a, qn_lanes_at(dtype, x, i, n), b), n);
}
QN_INLINE void clamp_row(uint32_t dtype, char *y, const char *x, int64_t n, vf a, vf b) {
    int64_t i = 0;
    for (; i + VF_N <= n; i += VF_N) qn_lanes_put(dtype, y, i, qn_limit_high(qn_limit_low(qn_lanes(dtype, x, i), a), b));
    if (i < n) qn_lanes_put_at(dtype, y, i, qn_limit_high(qn_limit_low(qn_lanes_at(dtype, x, i, n), a), b), n);
}

typedef void (*map_fn)(uint32_t dtype, char *y, const char *x, int64_t n, vf a, vf b);
static void scale_any(uint32_t dtype, char *y, const char *x, int64_t n, vf a, vf b) {
#define CALL(d) scale_row(d, y, x, n, a, b)
    QN_BY_FLOAT(dtype, CALL);
#undef CALL
}
static void clamp_any(uint32_t dtype, char *y, const char *x, int64_t n, vf a, vf b) {
#define CALL(d) clamp_row(d, y, x, n, a, b)
    QN_BY_FLOAT(dtype, CALL);
#undef CALL
}

static void run_map(const qn_call *c, const qn_cpu_step *s, int64_t part, map_fn map, float a, float b) {
    const qn_tensor *y = c->dst[0], *x = c->src[0];
    int64_t units = s->n[0] ? (s->n[0] + COLUMNS - 1) / COLUMNS : pieces_of(y);
    int64_t end = qn_cpu_cut(units, s->parts[0], part + 1), size = qn_float_bytes(y->dtype);
    int past = qn_past_is(NULL, y, c->src, c->n_src);
    _Alignas(64) char tile[QN_PAST_TILE];
    for (int64_t unit = qn_cpu_cut(units, s->parts[0], part); unit < end; unit++) {
        int64_t row, first = unit * COLUMNS, n = s->n[0] - first < COLUMNS ? s->n[0] - first : COLUMNS;
        qn_rows it;
        char *to;
        const char *from;
        if (s->n[0]) {
            to = qn_at(y, first * size);
            from = qn_at(x, first * size);
        } else {
            piece_of(y, unit, &row, &first, &n);
            qn_rows_begin_at(&it, y->rank, y->shape, row);
            to = qn_row(&it, y) + first * size;
            from = qn_row(&it, x) + first * size;
        }
        if (!past) map(y->dtype, to, from, n, vf_set1(a), vf_set1(b));
        for (int64_t some; past && n > 0; n -= some, to += some * size, from += some * size) {
            some = qn_past_some(to, n, size);
            qn_past_ask(from, some * size);
            map(y->dtype, tile, from, some, vf_set1(a), vf_set1(b));
            qn_past_put(to, tile, some * size);
        }
    }
    if (past) qn_past_end();
}

/* n[0]: how many elements when both are dense and rows do not matter, 0 otherwise. */
static int prepare_map(const qn_call *c, qn_cpu_step *s, const char *name, qn_cpu_run_fn run) {
    const qn_tensor *y = c->dst[0], *x = c->src[0];
    if (!same_rows(c, y->dtype)) return 0;
    int dense = qn_cpu_is_dense(y) && qn_cpu_is_dense(x);
    int64_t count = qn_tensor_count(y), units = dense ? (count + COLUMNS - 1) / COLUMNS : pieces_of(y);
    s->n[0] = dense ? count : 0;
    return qn_cpu_by_rows(s, name, run, units, 8.0 * (double)count / (double)units, 0);
}

static void run_scale(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    const qn_attr_scale *at = c->attr;
    run_map(c, s, part, scale_any, at->s, at->b == 0 ? -0.0f : at->b); /* -0 adds nothing, 0 would make -0 a 0 */
}
static void run_clamp(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    const qn_attr_clamp *at = c->attr;
    run_map(c, s, part, clamp_any, at->min, at->max);
}
int QN_K(doubles)(const qn_call *c, qn_cpu_step *s); /* k_doubles.c: f64 */

int QN_K(scale)(const qn_call *c, qn_cpu_step *s) { return prepare_map(c, s, "scale", run_scale) || QN_K(doubles)(c, s); }
int QN_K(clamp)(const qn_call *c, qn_cpu_step *s) { return prepare_map(c, s, "clamp", run_clamp) || QN_K(doubles)(c, s); }
