/* Norms with weights: layer_norm and rms_layer_norm over rows, batch_norm over channels, and their gradients. Statistics are
 * taken in two passes over doubles, so a variance is never negative. With h = (x - mean) r the normalised value,
 * y = h gamma + beta and, for rows and for channels in training,
 *     dx = r (q - mean of q - h mean of (q h)) with q = g gamma,   dgamma = sum of g h,   dbeta = sum of g.
 * The running statistics of batch_norm move as  next = (1 - momentum) running + momentum batch,  where the batch's variance
 * is the unbiased one. */
#include <math.h>

#include "op/op_axes.h"
#include "op/op_emit.h"

enum { LAST = QN_MAX_RANK - 1 };

_Static_assert(offsetof(qn_attr_layer_norm, eps) == offsetof(qn_attr_layer_norm_back, eps), "shared attributes");
_Static_assert(offsetof(qn_attr_layer_norm, eps) == offsetof(qn_attr_rms_layer_norm, eps), "shared attributes");
_Static_assert(offsetof(qn_attr_layer_norm, eps) == offsetof(qn_attr_rms_layer_norm_back, eps), "shared attributes");
_Static_assert(offsetof(qn_attr_batch_norm, eps) == offsetof(qn_attr_batch_norm_back, eps), "shared attributes");
_Static_assert(offsetof(qn_attr_batch_norm, training) == offsetof(qn_attr_batch_norm_back, training), "shared attributes");
_Static_assert(offsetof(qn_attr_batch_norm, momentum) == offsetof(qn_attr_batch_norm_back, momentum), "shared attributes");

/* ---- Shape rules */

/* Statistics of halves are kept in f32. */
static uint32_t statistics_dtype(const qn_tensor *x) { return x->dtype == QN_DTYPE_F64 ? QN_DTYPE_F64 : QN_DTYPE_F32; }

/* Rejects a weight that is not one number for each of n, or not of x's dtype; halves also take f32. */
static qn_status need_weight(qn_infer_call *c, int slot, const qn_tensor *x, int64_t n) {
    const qn_tensor *w = c->src[slot];
    if (!w) return QN_OK;
    QN_TRY(qn_need_rank(c, slot, 1));
    QN_TRY(qn_need_extent(c, slot, 0, n));
    if (w->dtype == x->dtype || (w->dtype == QN_DTYPE_F32 && x->dtype != QN_DTYPE_F64)) return QN_OK;
    return qn_reject_src(c, slot, QN_REASON_DTYPE_PAIR, -1, x->dtype, w->dtype);
}

static qn_status need_columns(qn_infer_call *c, int slot) {
    const qn_tensor *x = c->src[slot];
    return qn_ne(x, 0) == 0 ? qn_reject_src(c, slot, QN_REASON_SHAPE_EMPTY, x->rank - 1, 1, 0) : QN_OK;
}

qn_status qn_infer_rms_layer_norm(qn_infer_call *c) {
    const qn_tensor *x = c->src[0];
    QN_TRY(need_columns(c, 0));
    QN_TRY(need_weight(c, 1, x, qn_ne(x, 0)));
    QN_TRY(need_weight(c, 2, x, qn_ne(x, 0)));
    c->flops_each = 7; /* mean, difference, square, its mean, scale, and the weights */
    qn_out_like(c, 0, x, x->dtype);
    return QN_OK;
}

qn_status qn_infer_layer_norm(qn_infer_call *c) {
    const qn_tensor *x = c->src[0];
    QN_TRY(qn_infer_rms_layer_norm(c));
    for (int i = 1; i < 3; i++) {
        qn_out_like(c, i, x, statistics_dtype(x));
        c->out[i].d[x->rank - 1] = 1;
    }
    return QN_OK;
}

/* dx, dgamma and dbeta; the latter are summed up in the workspace. */
qn_status qn_infer_rms_layer_norm_back(qn_infer_call *c) {
    const qn_tensor *x = c->src[1];
    int64_t n = qn_ne(x, 0), bytes;
    QN_TRY(qn_need_same_shape(c, 0, 1));
    QN_TRY(qn_need_same_dtype(c, 0, 1));
    QN_TRY(need_columns(c, 1));
    QN_TRY(need_weight(c, 2, x, n));
    if (qn_mul_overflow(n, 2 * (int64_t)sizeof(double), &bytes))
        return qn_reject_src(c, 1, QN_REASON_SIZE_OVERFLOW, x->rank - 1, INT64_MAX, n);
    c->workspace = (size_t)bytes;
    c->flops_each = 14;
    qn_out_like(c, 0, x, x->dtype);
    QN_TRY(qn_out_shape(c, 1, statistics_dtype(x), 1, &n));
    return qn_out_shape(c, 2, statistics_dtype(x), 1, &n);
}

qn_status qn_infer_layer_norm_back(qn_infer_call *c) {
    const qn_tensor *x = c->src[1];
    QN_TRY(qn_infer_rms_layer_norm_back(c));
    for (int s = 3; s < 5; s++) {
        if (!c->src[s]) continue;
        for (int k = 0; k < x->rank || k < c->src[s]->rank; k++) QN_TRY(qn_need_extent(c, s, k, k ? qn_ne(x, k) : 1));
        if (c->src[s]->dtype != statistics_dtype(x))
            return qn_reject_src(c, s, QN_REASON_DTYPE_PAIR, -1, statistics_dtype(x), c->src[s]->dtype);
    }
    return QN_OK;
}

/* x of at least [N, C], one weight per channel in each slot from `first` to `last`; in training, something in each channel. */
static qn_status need_channels(qn_infer_call *c, int slot, int first, int last, int training) {
    const qn_tensor *x = c->src[slot];
    if (x->rank < 2) return qn_reject_src(c, slot, QN_REASON_SHAPE_RANK_LOW, -1, 2, x->rank);
    for (int i = 0; training && i < x->rank; i++)
        if (i != 1 && x->shape[i] == 0) return qn_reject_src(c, slot, QN_REASON_SHAPE_EMPTY, i, 1, 0);
    for (int s = first; s <= last; s++) QN_TRY(need_weight(c, s, x, x->shape[1]));
    return QN_OK;
}

qn_status qn_infer_batch_norm(qn_infer_call *c) {
    const qn_attr_batch_norm *at = c->attr;
    const qn_tensor *x = c->src[0];
    QN_TRY(need_channels(c, 0, 1, 4, at->training));
    qn_out_like(c, 0, x, x->dtype);
    c->flops_each = at->training ? 7 : 4;
    if (!at->training) return QN_OK;
    uint32_t dtypes[4] = {statistics_dtype(x), statistics_dtype(x), c->src[3]->dtype, c->src[4]->dtype};
    for (int i = 0; i < 4; i++) QN_TRY(qn_out_shape(c, i + 1, dtypes[i], 1, &x->shape[1]));
    return QN_OK;
}

qn_status qn_infer_batch_norm_back(qn_infer_call *c) {
    const qn_attr_batch_norm_back *at = c->attr;
    const qn_tensor *x = c->src[1];
    QN_TRY(qn_need_same_shape(c, 0, 1));
    QN_TRY(qn_need_same_dtype(c, 0, 1));
    for (int s = 5; !at->training && s < 9; s++)
        if (c->src[s]) return qn_reject_src(c, s, QN_REASON_NOT_TAKEN, -1, 0, 0);
    QN_TRY(need_channels(c, 1, 2, 8, at->training));
    qn_out_like(c, 0, x, x->dtype);
    c->flops_each = at->training ? 14 : 8;
    for (int i = 1; i < 5; i++) QN_TRY(qn_out_shape(c, i, statistics_dtype(x), 1, &x->shape[1]));
    return QN_OK;
}

/* ---- What is normalised together: a walk over `gone` (one row, or all of a channel), with x and maybe g in step */

typedef struct moments {
    double n, mean, var, r;
    double q, qh; /* sums of g gamma and of g gamma h: of g and g h for channels, whose gamma is one number */
} moments;

static double weight_at(const qn_tensor *w, int64_t i, double otherwise) {
    double v = otherwise;
    if (w) qn_load_row(w, qn_at(w, 0), i, 1, &v);
    return v;
}

/* Mean and 1 / standard deviation of all elements; without `centred` the mean is taken as 0. */
static moments moments_of(const qn_tensor *x, double eps, int centred) {
    moments m = {0, 0, 0, 0, 0, 0};
    double run[QN_RUN];
    qn_rows it;
    for (int pass = centred ? 0 : 1; pass < 2; pass++) {
        m.n = 0;
        for (qn_rows_begin(&it, QN_MAX_RANK, x->shape); it.live; qn_rows_next(&it))
            for (int64_t i = 0; i < it.n; i += QN_RUN) {
                int64_t take = it.n - i < QN_RUN ? it.n - i : QN_RUN;
                qn_load_row(x, qn_row(&it, x), i, take, run);
                m.n += (double)take;
                for (int64_t k = 0; k < take; k++) {
                    if (pass == 0) m.mean += run[k];
                    else m.var += (run[k] - m.mean) * (run[k] - m.mean);
                }
            }
        if (pass == 0) m.mean /= m.n;
    }
    m.var /= m.n;
    m.r = 1 / sqrt(m.var + eps);
    return m;
}

/* ---- Rows */

static void put_statistic(const qn_tensor *t, const qn_rows *it, double v) {
    if (t) qn_store_row(t, qn_row(it, t), 0, 1, &v);
}

static qn_tensor row_of(const qn_tensor *t, const qn_rows *it) {
    qn_tensor kept, gone;
    qn_op_split(t, 1, &kept, &gone);
    gone.data = qn_row(it, t);
    gone.offset = 0;
    return gone;
}

static void norm_rows(const qn_call *c, int centred) {
    const qn_tensor *x = c->src[0], *y = c->dst[0], *gamma = c->src[1], *beta = c->src[2];
    double eps = (double)((const qn_attr_layer_norm *)c->attr)->eps, value;
    qn_rows it;
    for (qn_rows_begin(&it, x->rank, x->shape); it.live; qn_rows_next(&it)) {
        qn_tensor row = row_of(x, &it);
        moments m = moments_of(&row, eps, centred);
        const char *from = qn_row(&it, x);
        char *to = qn_row(&it, y);
        if (centred) {
            put_statistic(c->dst[1], &it, m.mean);
            put_statistic(c->dst[2], &it, m.r);
        }
        for (int64_t i = 0; i < it.n; i++) {
            qn_load_row(x, from, i, 1, &value);
            value = (value - m.mean) * m.r * weight_at(gamma, i, 1) + weight_at(beta, i, 0);
            qn_store_row(y, to, i, 1, &value);
        }
    }
}

qn_status qn_ref_layer_norm(const qn_call *c) {
    norm_rows(c, 1);
    return QN_OK;
}

qn_status qn_ref_rms_layer_norm(const qn_call *c) {
    norm_rows(c, 0);
    return QN_OK;
}

/* One row's dx; its part of dgamma and dbeta is added to `sums`, gamma's first, then beta's. up_mean and up_r are the gradients
 * of the statistics. g may be where dx goes, so an element of it is not looked at after that of dx is written. */
static void back_row(const qn_call *c, const qn_rows *it, int centred, double up_mean, double up_r, double *sums) {
    const qn_tensor *g = c->src[0], *x = c->src[1], *gamma = c->src[2], *dx = c->dst[0];
    qn_tensor row = row_of(x, it);
    moments m = moments_of(&row, (double)((const qn_attr_layer_norm *)c->attr)->eps, centred);
    const char *pg = qn_row(it, g), *px = qn_row(it, x);
    char *to = qn_row(it, dx);
    double up, value;
    for (int64_t i = 0; i < it->n; i++) {
        qn_load_row(g, pg, i, 1, &up);
        qn_load_row(x, px, i, 1, &value);
        double h = (value - m.mean) * m.r, q = up * weight_at(gamma, i, 1);
        if (centred) m.q += q;
        m.qh += q * h;
        sums[i] += up * h;
        sums[it->n + i] += up;
    }
    for (int64_t i = 0; i < it->n; i++) {
        qn_load_row(g, pg, i, 1, &up);
        qn_load_row(x, px, i, 1, &value);
        double h = (value - m.mean) * m.r, q = up * weight_at(gamma, i, 1);
        double d = m.r * (q - m.q / m.n - h * m.qh / m.n) + up_mean / m.n - up_r * m.r * m.r * h / m.n;
        qn_store_row(dx, to, i, 1, &d);
    }
}

static void back_rows(const qn_call *c, int centred) {
    const qn_tensor *x = c->src[1];
    double *sums = c->workspace, up[2];
    int64_t n = qn_ne(x, 0);
    qn_rows it;
    for (int64_t i = 0; i < 2 * n; i++) sums[i] = 0;
    for (qn_rows_begin(&it, x->rank, x->shape); it.live; qn_rows_next(&it)) {
        for (int s = 0; s < 2; s++) {
            const qn_tensor *t = centred ? c->src[3 + s] : NULL; /* only layer_norm gives its statistics away */
            up[s] = 0;
            if (t) qn_load_row(t, qn_row(&it, t), 0, 1, &up[s]);
        }
        back_row(c, &it, centred, up[0], up[1], sums);
    }
    for (int i = 1; i < 3; i++)
        if (c->dst[i]) qn_store_row(c->dst[i], qn_at(c->dst[i], 0), 0, n, sums + (i - 1) * n);
}

qn_status qn_ref_layer_norm_back(const qn_call *c) {
    back_rows(c, 1);
    return QN_OK;
}

qn_status qn_ref_rms_layer_norm_back(const qn_call *c) {
    back_rows(c, 0);
    return QN_OK;
}

/* ---- Channels */

/* Every axis but the second, of a tensor of `rank` axes. */
static unsigned all_but_channel(int rank) { return ((1u << rank) - 1) & ~(1u << (rank - 2)); }

/* A tensor's elements of one channel. */
static qn_tensor channel_of(const qn_tensor *t, int rank, int64_t channel) {
    qn_tensor kept, gone;
    qn_op_split(t, all_but_channel(rank), &kept, &gone);
    return qn_op_begin_at(&gone, &kept, qn_at(t, 0), channel);
}

static void put_weight(const qn_tensor *t, int64_t i, double v) {
    if (t) qn_store_row(t, qn_at(t, 0), i, 1, &v);
}

/* The batch's variance without its bias; a single element has none. */
static double unbias(double n) { return n > 1 ? n / (n - 1) : 1; }

static moments channel_moments(const qn_tensor *x, const qn_tensor *mean, const qn_tensor *var, int64_t channel,
                               const qn_attr_batch_norm *at) {
    if (at->training) return moments_of(x, (double)at->eps, 1);
    moments m = {1, weight_at(mean, channel, 0), weight_at(var, channel, 1), 0, 0, 0};
    m.r = 1 / sqrt(m.var + (double)at->eps);
    return m;
}

static void put_running(const qn_call *c, int64_t channel, const moments *m) {
    const qn_attr_batch_norm *at = c->attr;
    double step = (double)at->momentum, variance = m->var * unbias(m->n);
    put_weight(c->dst[1], channel, m->mean);
    put_weight(c->dst[2], channel, m->r);
    put_weight(c->dst[3], channel, (1 - step) * weight_at(c->src[3], channel, 0) + step * m->mean);
    put_weight(c->dst[4], channel, (1 - step) * weight_at(c->src[4], channel, 0) + step * variance);
}

qn_status qn_ref_batch_norm(const qn_call *c) {
    const qn_attr_batch_norm *at = c->attr;
    int rank = c->src[0]->rank;
    double value;
    for (int64_t channel = 0; channel < c->src[0]->shape[1]; channel++) {
        qn_tensor x = channel_of(c->src[0], rank, channel), y = channel_of(c->dst[0], rank, channel);
        moments m = channel_moments(&x, c->src[3], c->src[4], channel, at);
        double gamma = weight_at(c->src[1], channel, 1), beta = weight_at(c->src[2], channel, 0);
        if (at->training) put_running(c, channel, &m);
        qn_rows it;
        for (qn_rows_begin(&it, QN_MAX_RANK, x.shape); it.live; qn_rows_next(&it)) {
            const char *from = qn_row(&it, &x);
            char *to = qn_row(&it, &y);
            for (int64_t i = 0; i < it.n; i++) {
                qn_load_row(&x, from, i, 1, &value);
                value = (value - m.mean) * m.r * gamma + beta;
                qn_store_row(&y, to, i, 1, &value);
            }
        }
    }
    return QN_OK;
}

/* Sums of g and of g h over a channel. */
static void channel_sums(const qn_tensor *g, const qn_tensor *x, moments *m) {
    double up, value;
    qn_rows it;
    for (qn_rows_begin(&it, QN_MAX_RANK, x->shape); it.live; qn_rows_next(&it)) {
        const char *pg = qn_row(&it, g), *px = qn_row(&it, x);
        for (int64_t i = 0; i < it.n; i++) {
            qn_load_row(g, pg, i, 1, &up);
            qn_load_row(x, px, i, 1, &value);
            m->q += up;
            m->qh += up * (value - m->mean) * m->r;
        }
    }
}

/* The gradients of a channel's weights and running statistics. */
static void put_channel_sums(const qn_call *c, int64_t channel, const moments *m, double gamma) {
    const qn_attr_batch_norm *at = c->attr;
    double left = 1 - (double)at->momentum;
    put_weight(c->dst[1], channel, m->qh);
    put_weight(c->dst[2], channel, m->q);
    put_weight(c->dst[3], channel, at->training ? left * weight_at(c->src[7], channel, 0) : -gamma * m->r * m->q);
    put_weight(c->dst[4], channel, at->training ? left * weight_at(c->src[8], channel, 0) : -0.5 * gamma * m->r * m->r * m->qh);
}

/* In training the batch's mean and variance have gradients of their own: up_mean, up_var, from all outputs they go into. */
qn_status qn_ref_batch_norm_back(const qn_call *c) {
    const qn_attr_batch_norm *at = c->attr;
    int rank = c->src[1]->rank;
    double up, value;
    for (int64_t channel = 0; channel < c->src[1]->shape[1]; channel++) {
        qn_tensor g = channel_of(c->src[0], rank, channel), x = channel_of(c->src[1], rank, channel);
        qn_tensor dx = channel_of(c->dst[0], rank, channel);
        moments m = channel_moments(&x, c->src[3], c->src[4], channel, at);
        double gamma = weight_at(c->src[2], channel, 1), step = (double)at->momentum;
        double up_mean = weight_at(c->src[5], channel, 0) + step * weight_at(c->src[7], channel, 0);
        double up_var = step * unbias(m.n) * weight_at(c->src[8], channel, 0) -
                        0.5 * m.r * m.r * m.r * weight_at(c->src[6], channel, 0);
        channel_sums(&g, &x, &m);
        put_channel_sums(c, channel, &m, gamma);
        double share = at->training ? 1 / m.n : 0; /* running statistics do not depend on x */
        qn_rows it;
        for (qn_rows_begin(&it, QN_MAX_RANK, x.shape); it.live; qn_rows_next(&it)) {
            const char *pg = qn_row(&it, &g), *px = qn_row(&it, &x);
            char *to = qn_row(&it, &dx);
            for (int64_t i = 0; i < it.n; i++) {
                qn_load_row(&g, pg, i, 1, &up);
                qn_load_row(&x, px, i, 1, &value);
                double away = value - m.mean, d = gamma * m.r * (up - share * (m.q + away * m.r * m.qh));
                d += share * (up_mean + 2 * away * up_var);
                qn_store_row(&dx, to, i, 1, &d);
            }
        }
    }
    return QN_OK;
}

/* ---- Gradients */

/* The gradient of y, or zeros where only the statistics have one. */
static qn_val gradient_of_y(qn_vjp_call *v) { return v->grad[0] != QN_VAL_NONE ? v->grad[0] : qn_e_zeros(v, v->src[0]); }

/* How many outputs a back op must give so that the last wanted one is among them. */
static int wanted(const qn_vjp_call *v, int n) {
    while (n > 1 && !v->want[n - 1]) n--;
    return n;
}

void qn_vjp_layer_norm(qn_vjp_call *v) {
    qn_attr_layer_norm_back at = qn_attr_layer_norm_back_default();
    at.eps = ((const qn_attr_layer_norm *)v->attr)->eps;
    qn_val src[5] = {gradient_of_y(v), v->src[0], v->src[1], v->grad[1], v->grad[2]}, out[3];
    int n = wanted(v, 3);
    qn_emit_many(v, QN_OP_layer_norm_back, 0, &at, 5, src, n, out);
    for (int i = 0; i < n; i++)
        if (v->want[i]) v->out[i] = out[i];
}

void qn_vjp_rms_layer_norm(qn_vjp_call *v) {
    qn_attr_rms_layer_norm_back at = qn_attr_rms_layer_norm_back_default();
    at.eps = ((const qn_attr_rms_layer_norm *)v->attr)->eps;
    qn_val src[3] = {v->grad[0], v->src[0], v->src[1]}, out[3];
    int n = wanted(v, 3);
    qn_emit_many(v, QN_OP_rms_layer_norm_back, 0, &at, 3, src, n, out);
    for (int i = 0; i < n; i++)
        if (v->want[i]) v->out[i] = out[i];
}

void qn_vjp_batch_norm(qn_vjp_call *v) {
    const qn_attr_batch_norm *forward = v->attr;
    qn_attr_batch_norm_back at = qn_attr_batch_norm_back_default();
    at.training = forward->training;
    at.momentum = forward->momentum;
    at.eps = forward->eps;
    qn_val src[9] = {gradient_of_y(v), v->src[0],  v->src[1],  v->src[3], v->src[4],
                     v->grad[1],       v->grad[2], v->grad[3], v->grad[4]},
           out[5];
    int n = wanted(v, 5);
    qn_emit_many(v, QN_OP_batch_norm_back, 0, &at, 9, src, n, out);
    for (int i = 0; i < n; i++)
        if (v->want[i]) v->out[i] = out[i];
}
