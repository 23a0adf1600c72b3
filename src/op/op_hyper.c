/* Hyper-connections: several residual streams beside a layer. comb makes the 4 by 4 matrices that mix the streams, doubly
 * normalised by Sinkhorn's iteration; pre sums the streams into a layer's input; post spreads its result over them again. */
#include <math.h>

#include "op/op_emit.h"
#include "op/op_state.h"
#include "op/ref.h"

enum { STREAMS = 4, AREA = STREAMS * STREAMS, MIXES = 2 * STREAMS + AREA, FIRST = 2 * STREAMS, MIX_SCALE = 2 };

/* ---- Guards */

static qn_status check_comb(qn_infer_call *c, int first) {
    const qn_tensor *scale = c->src[first + 1];
    QN_TRY(qn_need_rank(c, first, 2));
    QN_TRY(qn_need_extent(c, first, 0, MIXES));
    QN_TRY(qn_need_rank(c, first + 1, 1));
    if (qn_ne(scale, 0) <= MIX_SCALE)
        return qn_reject_src(c, first + 1, QN_REASON_SHAPE_SMALL, scale->rank - 1, MIX_SCALE + 1, qn_ne(scale, 0));
    QN_TRY(qn_need_rank(c, first + 2, 1));
    return qn_need_extent(c, first + 2, 0, MIXES);
}

qn_status qn_infer_dsv4_hc_comb(qn_infer_call *c) {
    QN_TRY(check_comb(c, 0));
    QN_TRY(qn_need_one_dtype(c, 0));
    int64_t d[3] = {qn_ne(c->src[0], 1), STREAMS, STREAMS};
    return qn_out_shape(c, 0, c->src[0]->dtype, 3, d);
}

qn_status qn_infer_dsv4_hc_comb_back(qn_infer_call *c) {
    QN_TRY(check_comb(c, 1));
    QN_TRY(qn_need_rank(c, 0, 3));
    QN_TRY(qn_need_extent(c, 0, 0, STREAMS));
    QN_TRY(qn_need_extent(c, 0, 1, STREAMS));
    QN_TRY(qn_need_extent(c, 0, 2, qn_ne(c->src[1], 1)));
    QN_TRY(qn_need_one_dtype(c, 1));
    QN_TRY(qn_scratch_add(c, 2 * (int64_t)((const qn_attr_dsv4_hc_comb_back *)c->attr)->n_iter, AREA, 1));
    for (int i = 0; i < 3; i++) qn_out_like(c, i, c->src[i + 1], c->src[i + 1]->dtype);
    return QN_OK;
}

qn_status qn_infer_dsv4_hc_pre(qn_infer_call *c) {
    const qn_tensor *x = c->src[0];
    QN_TRY(qn_need_rank(c, 0, 3));
    QN_TRY(qn_need_rank(c, 1, 2));
    QN_TRY(qn_need_extent(c, 1, 0, qn_ne(x, 1)));
    QN_TRY(qn_need_extent(c, 1, 1, qn_ne(x, 2)));
    QN_TRY(qn_need_one_dtype(c, 0));
    c->flops_each = 2.0 * (double)qn_ne(x, 1);
    int64_t d[2] = {qn_ne(x, 2), qn_ne(x, 0)};
    return qn_out_shape(c, 0, x->dtype, 2, d);
}

qn_status qn_infer_dsv4_hc_post(qn_infer_call *c) {
    const qn_tensor *x = c->src[0], *residual = c->src[1];
    int64_t streams = qn_ne(residual, 1), tokens = qn_ne(x, 1);
    QN_TRY(qn_need_rank(c, 0, 2));
    QN_TRY(qn_need_rank(c, 1, 3));
    QN_TRY(qn_need_extent(c, 1, 0, qn_ne(x, 0)));
    QN_TRY(qn_need_extent(c, 1, 2, tokens));
    QN_TRY(qn_need_rank(c, 2, 2));
    QN_TRY(qn_need_extent(c, 2, 0, streams));
    QN_TRY(qn_need_extent(c, 2, 1, tokens));
    QN_TRY(qn_need_rank(c, 3, 3));
    QN_TRY(qn_need_extent(c, 3, 0, streams));
    QN_TRY(qn_need_extent(c, 3, 1, streams));
    QN_TRY(qn_need_extent(c, 3, 2, tokens));
    QN_TRY(qn_need_one_dtype(c, 0));
    c->flops_each = 2.0 * (double)streams + 2.0;
    int64_t d[3] = {tokens, streams, qn_ne(x, 0)};
    return qn_out_shape(c, 0, x->dtype, 3, d);
}

/* ---- comb: softmax of the rows plus eps, then columns, and (rows, columns) again and again, are divided by eps plus their
 * sum. Stage 0 is the softmax; odd stages follow a division of the columns, even ones of the rows. */

static void softmax_rows(const qn_tensor *mixes, const qn_tensor *scale, const qn_tensor *base, int64_t t, double *out) {
    double factor = qn_get4(scale, 0, 0, 0, MIX_SCALE);
    for (int r = 0; r < STREAMS; r++, out += STREAMS) {
        double most = -INFINITY, sum = 0;
        for (int i = 0; i < STREAMS; i++) {
            int at = FIRST + r * STREAMS + i;
            out[i] = qn_get4(mixes, 0, 0, t, at) * factor + qn_get4(base, 0, 0, 0, at);
            if (out[i] > most) most = out[i];
        }
        for (int i = 0; i < STREAMS; i++) {
            out[i] = exp(out[i] - most);
            sum += out[i];
        }
        for (int i = 0; i < STREAMS; i++) out[i] /= sum;
    }
}

/* Elements of a line are `step` apart: 1 for a row, STREAMS for a column. */
static void normalise_line(const double *x, int step, double eps, double *out) {
    double sum = eps;
    for (int i = 0; i < STREAMS; i++) sum += x[i * step];
    for (int i = 0; i < STREAMS; i++) out[i * step] = x[i * step] / sum;
}

static void normalise(const double *x, int stage, double eps, double *out) {
    int columns = stage & 1, step = columns ? STREAMS : 1, next = columns ? 1 : STREAMS;
    for (int line = 0; line < STREAMS; line++) normalise_line(x + line * next, step, eps, out + line * next);
}

qn_status qn_ref_dsv4_hc_comb(const qn_call *c) {
    const qn_attr_dsv4_hc_comb *at = c->attr;
    const qn_tensor *y = c->dst[0];
    for (int64_t t = 0; t < qn_ne(y, 2); t++) {
        double m[AREA];
        softmax_rows(c->src[0], c->src[1], c->src[2], t, m);
        for (int i = 0; i < AREA; i++) m[i] += (double)at->eps;
        for (int stage = 1; stage < 2 * at->n_iter; stage++) normalise(m, stage, (double)at->eps, m);
        for (int i = 0; i < AREA; i++) qn_put4(y, 0, t, i / STREAMS, i % STREAMS, m[i]);
    }
    return QN_OK;
}

/* ---- comb, backward */

/* Gradient of y = x / (eps + sum x) on every line, in place: (g - <g, y>) / (eps + sum x). */
static void normalise_back(const double *x, const double *y, int stage, double eps, double *g) {
    int columns = stage & 1, step = columns ? STREAMS : 1, next = columns ? 1 : STREAMS;
    for (int line = 0; line < STREAMS; line++) {
        int at = line * next;
        double sum = eps, dot = 0;
        for (int i = 0; i < STREAMS; i++) {
            sum += x[at + i * step];
            dot += g[at + i * step] * y[at + i * step];
        }
        for (int i = 0; i < STREAMS; i++) g[at + i * step] = (g[at + i * step] - dot) / sum;
    }
}

/* Gradient of one token for the arguments of the softmax. */
static void comb_back(const qn_call *c, int64_t t, double *stages, double *g) {
    const qn_attr_dsv4_hc_comb_back *at = c->attr;
    double eps = (double)at->eps, soft[AREA];
    int last = 2 * at->n_iter - 1;
    softmax_rows(c->src[1], c->src[2], c->src[3], t, soft);
    for (int i = 0; i < AREA; i++) stages[i] = soft[i] + eps;
    for (int stage = 1; stage <= last; stage++) normalise(stages + (stage - 1) * AREA, stage, eps, stages + stage * AREA);
    for (int i = 0; i < AREA; i++) g[i] = qn_get4(c->src[0], 0, t, i / STREAMS, i % STREAMS);
    for (int stage = last; stage > 0; stage--) normalise_back(stages + (stage - 1) * AREA, stages + stage * AREA, stage, eps, g);
    for (int r = 0; r < STREAMS; r++) {
        double *row = g + r * STREAMS, dot = 0;
        for (int i = 0; i < STREAMS; i++) dot += row[i] * soft[r * STREAMS + i];
        for (int i = 0; i < STREAMS; i++) row[i] = soft[r * STREAMS + i] * (row[i] - dot);
    }
}

qn_status qn_ref_dsv4_hc_comb_back(const qn_call *c) {
    const qn_tensor *mixes = c->src[1], *scale = c->src[2], *dmixes = c->dst[0], *dscale = c->dst[1], *dbase = c->dst[2];
    double factor = qn_get4(scale, 0, 0, 0, MIX_SCALE), of_scale = 0, of_base[AREA] = {0};
    for (int i = 0; i < 3; i++) qn_fill(c->dst[i], 0); /* what comb does not read gets none */
    for (int64_t t = 0; t < qn_ne(mixes, 1); t++) {
        double g[AREA];
        comb_back(c, t, c->workspace, g);
        for (int i = 0; i < AREA; i++) {
            qn_put4(dmixes, 0, 0, t, FIRST + i, factor * g[i]);
            of_scale += qn_get4(mixes, 0, 0, t, FIRST + i) * g[i];
            of_base[i] += g[i];
        }
    }
    qn_put4(dscale, 0, 0, 0, MIX_SCALE, of_scale);
    for (int i = 0; i < AREA; i++) qn_put4(dbase, 0, 0, 0, FIRST + i, of_base[i]);
    return QN_OK;
}

/* ---- pre and post */

/* y[t,e] = sum_h x[t,h,e] w[t,h] */
qn_status qn_ref_dsv4_hc_pre(const qn_call *c) {
    const qn_tensor *x = c->src[0], *w = c->src[1], *y = c->dst[0];
    if (qn_tensor_count(y) == 0) return QN_OK;
    for (int64_t t = 0; t < qn_ne(y, 1); t++)
        for (int64_t e = 0; e < qn_ne(y, 0); e++) {
            double sum = 0;
            for (int64_t h = 0; h < qn_ne(x, 1); h++) sum += qn_get4(x, 0, t, h, e) * qn_get4(w, 0, 0, t, h);
            qn_put4(y, 0, 0, t, e, sum);
        }
    return QN_OK;
}

/* y[t,d,e] = x[t,e] post[t,d] + sum_s residual[t,s,e] comb[t,s,d] */
qn_status qn_ref_dsv4_hc_post(const qn_call *c) {
    const qn_tensor *x = c->src[0], *residual = c->src[1], *post = c->src[2], *comb = c->src[3], *y = c->dst[0];
    if (qn_tensor_count(y) == 0) return QN_OK;
    for (int64_t t = 0; t < qn_ne(y, 2); t++)
        for (int64_t d = 0; d < qn_ne(y, 1); d++)
            for (int64_t e = 0; e < qn_ne(y, 0); e++) {
                double sum = qn_get4(x, 0, 0, t, e) * qn_get4(post, 0, 0, t, d);
                for (int64_t s = 0; s < qn_ne(y, 1); s++) sum += qn_get4(residual, 0, t, s, e) * qn_get4(comb, 0, t, s, d);
                qn_put4(y, 0, t, d, e, sum);
            }
    return QN_OK;
}

/* ---- Gradients */

void qn_vjp_dsv4_hc_comb(qn_vjp_call *v) {
    const qn_attr_dsv4_hc_comb *from = v->attr;
    qn_attr_dsv4_hc_comb_back at = qn_attr_dsv4_hc_comb_back_default();
    at.eps = from->eps;
    at.n_iter = from->n_iter;
    qn_val src[4] = {v->grad[0], v->src[0], v->src[1], v->src[2]}, out[3];
    qn_emit_many(v, QN_OP_dsv4_hc_comb_back, 0, &at, 4, src, 3, out);
    for (int i = 0; i < 3; i++)
        if (v->want[i]) v->out[i] = out[i];
}

/* [tokens, n] as [tokens, n, 1] or [tokens, 1, n], to be tiled over [tokens, streams, n]. */
static qn_val as_column(qn_vjp_call *v, qn_val a) {
    qn_shape s = qn_shape_of(v, a);
    int64_t d[3] = {qn_sd(&s, 1), qn_sd(&s, 0), 1};
    return qn_e_reshape(v, a, 3, d);
}
static qn_val as_row(qn_vjp_call *v, qn_val a) {
    qn_shape s = qn_shape_of(v, a);
    int64_t d[3] = {qn_sd(&s, 1), 1, qn_sd(&s, 0)};
    return qn_e_reshape(v, a, 3, d);
}

void qn_vjp_dsv4_hc_pre(qn_vjp_call *v) {
    qn_shape x = qn_shape_of(v, v->src[0]);
    int64_t full[3] = {qn_sd(&x, 2), qn_sd(&x, 1), qn_sd(&x, 0)};
    qn_val g = as_row(v, v->grad[0]);
    if (v->want[0]) v->out[0] = qn_e_like(v, qn_e_mul(v, qn_e_tile(v, g, 3, full), as_column(v, v->src[1])), v->src[0]);
    if (v->want[1]) v->out[1] = qn_e_like(v, qn_e_sum_rows(v, qn_e_mul(v, v->src[0], g)), v->src[1]);
}

void qn_vjp_dsv4_hc_post(qn_vjp_call *v) {
    qn_val g = v->grad[0], x = v->src[0], residual = v->src[1], post = v->src[2], comb = v->src[3];
    if (v->want[0]) v->out[0] = qn_e_like(v, qn_emit2(v, QN_OP_dsv4_hc_pre, 0, NULL, g, post), x);
    if (v->want[1]) v->out[1] = qn_e_like(v, qn_emit2(v, QN_OP_out_prod, 0, NULL, g, qn_e_transpose(v, comb)), residual);
    if (v->want[2]) v->out[2] = qn_e_like(v, qn_e_sum_rows(v, qn_e_mul(v, g, as_row(v, x))), post);
    if (v->want[3]) v->out[3] = qn_e_like(v, qn_emit2(v, QN_OP_mul_mat, 0, NULL, qn_e_cont(v, g), residual), comb);
}
