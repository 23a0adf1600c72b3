/* What fusion makes around rms_norm: rms_norm_add, rms_norm_gate, rms_norm_group. Results are rounded where the parts would round. */
#include "cpu/k_norm.h"
#include "cpu/simd/simd_act.h"

static const qn_tensor *given(const qn_call *c, int slot) { return slot < c->n_src ? c->src[slot] : NULL; }

/* As it would be read back from memory. */
QN_INLINE vf rounded(uint32_t dtype, vf v) {
    uint16_t half[VF_N];
    if (dtype == QN_DTYPE_F32) return v;
    qn_lanes_put(dtype, (char *)half, 0, v);
    return qn_lanes(dtype, (const char *)half, 0);
}

typedef struct row {
    char *y;
    const char *x, *other; /* what is added, or what gates */
    const qn_tensor *gamma, *scale;
    int64_t n;
    double eps;
    int act;
} row;

QN_INLINE vf normed(uint32_t dtype, const row *w, int64_t i, vf r) {
    vf h = qn_lanes_at(dtype, w->x, i, w->n) * r;
    return rounded(dtype, w->gamma ? h * weight_at(w->gamma, i, w->n) : h);
}

QN_INLINE void add_row(uint32_t dtype, const row *w) {
    double mean, r;
    row_moments(dtype, SQUARES, w->x, w->n, w->eps, &mean, &r);
    int one = w->scale && qn_ne(w->scale, 0) == 1;
    vf by = one ? vf_set1(qn_lanes_some(dtype, qn_at(w->scale, 0), 0, 1)[0]) : vf_set1(1.0f);
    for (int64_t i = 0; i < w->n; i += VF_N) {
        vf v = normed(dtype, w, i, vf_set1((float)r)) + qn_lanes_at(dtype, w->other, i, w->n);
        if (w->scale) v = rounded(dtype, v) * (one ? by : weight_at(w->scale, i, w->n));
        qn_lanes_put_at(dtype, w->y, i, v, w->n);
    }
}

QN_INLINE void gate_row(uint32_t dtype, const row *w) {
    double mean, r;
    row_moments(dtype, SQUARES, w->x, w->n, w->eps, &mean, &r);
    for (int64_t i = 0; i < w->n; i += VF_N) {
        vf z = qn_lanes_at(dtype, w->other, i, w->n);
        vf a = w->act < 0 ? z : rounded(dtype, w->act == QN_UNARY_silu ? f_silu(z) : f_sigmoid(z));
        qn_lanes_put_at(dtype, w->y, i, normed(dtype, w, i, vf_set1((float)r)) * a, w->n);
    }
}

static void run_add(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    int gates = c->op == QN_OP_rms_norm_gate;
    row w = {.gamma = given(c, 2), .n = qn_ne(x, 0), .eps = (double)((const qn_attr_rms_norm *)c->attr)->eps};
    if (gates) w.act = ((const qn_attr_rms_norm_gate *)c->attr)->act;
    else w.scale = given(c, 3);
    int64_t rows = qn_tensor_count(x) / w.n, end = qn_cpu_cut(rows, s->parts[0], part + 1);
    qn_rows it;
    (void)phase;
    for (qn_rows_begin_at(&it, x->rank, x->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it)) {
        w.x = qn_row(&it, x);
        w.y = qn_row(&it, y);
        w.other = qn_row(&it, c->src[1]);
#define ADD_OF(d) add_row(d, &w)
#define GATE_OF(d) gate_row(d, &w)
        if (gates) QN_BY_FLOAT(x->dtype, GATE_OF);
        else QN_BY_FLOAT(x->dtype, ADD_OF);
    }
}

static int takes(const qn_call *c, int first, int end) {
    const qn_tensor *x = c->src[0];
    if (qn_tensor_count(x) == 0 || !qn_lanes_rows(x)) return 0;
    for (int i = first; i < end; i++)
        if (given(c, i) && !qn_lanes_rows(given(c, i))) return 0;
    for (int i = 0; i < c->n_dst; i++)
        if (c->dst[i] && (!qn_lanes_rows(c->dst[i]) || c->dst[i]->rank != x->rank)) return 0;
    return 1;
}

int QN_K(rms_norm_add)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *x = c->src[0], *scale = given(c, 3);
    if (!takes(c, 1, 4) || (scale && scale->dtype != x->dtype)) return 0;
    return qn_cpu_by_rows(s, "rms_norm_add rows", run_add, qn_tensor_count(x) / qn_ne(x, 0), 16.0 * (double)qn_ne(x, 0), 0);
}

/* The gates that models have; another activation is the reference's. */
int QN_K(rms_norm_gate)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *x = c->src[0];
    int act = ((const qn_attr_rms_norm_gate *)c->attr)->act;
    if (!takes(c, 1, 3) || (act >= 0 && act != QN_UNARY_silu && act != QN_UNARY_sigmoid)) return 0;
    return qn_cpu_by_rows(s, "rms_norm_gate rows", run_add, qn_tensor_count(x) / qn_ne(x, 0), 16.0 * (double)qn_ne(x, 0), 0);
}

/* ---- One norm, several weights */

QN_INLINE void group_row(uint32_t dtype, const qn_call *c, const qn_rows *it, double eps) {
    double mean, r;
    const char *x = qn_row(it, c->src[0]);
    row_moments(dtype, SQUARES, x, it->n, eps, &mean, &r);
    for (int k = 0; k < c->n_dst; k++) {
        if (!c->dst[k]) continue;
        char *y = qn_row(it, c->dst[k]);
        for (int64_t i = 0; i < it->n; i += VF_N)
            qn_lanes_put_at(dtype, y, i, qn_lanes_at(dtype, x, i, it->n) * vf_set1((float)r) * weight_at(c->src[1 + k], i, it->n),
                            it->n);
    }
}

static void run_group(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    const qn_tensor *x = c->src[0];
    int64_t rows = qn_tensor_count(x) / qn_ne(x, 0), end = qn_cpu_cut(rows, s->parts[0], part + 1);
    double eps = (double)((const qn_attr_rms_norm_group *)c->attr)->eps;
    qn_rows it;
    (void)phase;
    for (qn_rows_begin_at(&it, x->rank, x->shape, qn_cpu_cut(rows, s->parts[0], part)); it.live && it.row < end;
         qn_rows_next(&it)) {
#define GROUP_OF(d) group_row(d, c, &it, eps)
        QN_BY_FLOAT(x->dtype, GROUP_OF);
    }
}

int QN_K(rms_norm_group)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *x = c->src[0];
    if (!takes(c, 1, 5)) return 0;
    return qn_cpu_by_rows(s, "rms_norm_group rows", run_group, qn_tensor_count(x) / qn_ne(x, 0), 20.0 * (double)qn_ne(x, 0), 0);
}
