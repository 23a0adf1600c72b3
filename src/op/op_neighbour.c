/* Choices by rank: knn, the nearest others of each point from a matrix of distances, and group_limited_gate, which experts a
 * token goes to and with what weight. Ids are results of their own, as integers; gradients go through the numbers beside them. */
#include <math.h>

#include "op/op_emit.h"
#include "op/op_state.h"
#include "op/rank.h"
#include "op/ref.h"

/* ---- knn */

/* Ids fit in 32 bits without a check: a square of 2^31 rows has no size that fits in 64. */
qn_status qn_infer_knn(qn_infer_call *c) {
    const qn_tensor *pairs = c->src[0];
    int64_t n = qn_ne(pairs, 0), k = ((const qn_attr_knn *)c->attr)->k;
    if (pairs->rank < 2) return qn_reject_src(c, 0, QN_REASON_SHAPE_RANK_LOW, -1, 2, pairs->rank);
    if (qn_ne(pairs, 1) != n) return qn_reject_src(c, 0, QN_REASON_SHAPE_SQUARE, -1, n, qn_ne(pairs, 1));
    if (k >= n) return qn_reject_attr(c, "k", QN_REASON_ATTR_HIGH, -1, qn_f_bits((double)(n - 1)), qn_f_bits((double)k));
    if (qn_tensor_count(pairs)) QN_TRY(qn_scratch_add(c, n, 1, 1));
    c->flops_each = (double)n;
    for (int i = 0; i < 2; i++) {
        qn_out_like(c, i, pairs, i ? pairs->dtype : (uint32_t)QN_DTYPE_I32);
        c->out[i].d[pairs->rank - 1] = k;
    }
    return QN_OK;
}

/* Whether i comes before j in ascending order: NaN last, ties by the lower. */
static int nearer(const double *d, int64_t i, int64_t j) {
    if (isnan(d[i]) || isnan(d[j])) return isnan(d[i]) && isnan(d[j]) ? i < j : isnan(d[j]);
    return d[i] != d[j] ? d[i] < d[j] : i < j;
}

qn_status qn_ref_knn(const qn_call *c) {
    const qn_tensor *pairs = c->src[0], *ids = c->dst[0], *distances = c->dst[1];
    int64_t n = qn_ne(pairs, 0), k = qn_ne(ids, 0);
    size_t bytes = (size_t)qn_dtype_bytes(pairs->dtype);
    double *d = c->workspace;
    qn_rows it;
    for (qn_rows_begin(&it, pairs->rank, pairs->shape); it.live; qn_rows_next(&it)) {
        const char *row = qn_row(&it, pairs);
        int64_t self = it.row % n, last = -1;
        qn_load_row(pairs, row, 0, n, d);
        for (int64_t s = 0; s < k; s++) {
            int64_t best = -1;
            for (int64_t i = 0; i < n; i++)
                if (i != self && (last < 0 || nearer(d, last, i)) && (best < 0 || nearer(d, i, best))) best = i;
            qn_store_one(QN_DTYPE_I32, qn_row(&it, ids) + s * qn_nb(ids, 0), (double)best);
            memcpy(qn_row(&it, distances) + s * qn_nb(distances, 0), row + best * qn_nb(pairs, 0), bytes);
            last = best;
        }
    }
    return QN_OK;
}

/* Adds g onto zeros in the shape of `like`, each element where its id says. */
static qn_val scatter_back(qn_vjp_call *v, qn_val like, qn_val g, qn_val ids) {
    qn_attr_scatter_along_add at = qn_attr_scatter_along_add_default();
    qn_val zeros = qn_e_zeros(v, qn_e_cast(v, like, qn_shape_of(v, g).dtype));
    return qn_emit3(v, QN_OP_scatter_along_add, 0, &at, zeros, g, ids);
}

void qn_vjp_knn(qn_vjp_call *v) {
    if (v->want[0] && v->grad[1] != QN_VAL_NONE) v->out[0] = scatter_back(v, v->src[0], v->grad[1], v->dst[0]);
}

/* ---- group_limited_gate */

qn_status qn_infer_group_limited_gate(qn_infer_call *c) {
    const qn_attr_group_limited_gate *at = c->attr;
    const qn_tensor *scores = c->src[0];
    int64_t experts = qn_ne(scores, 0);
    QN_TRY(qn_need_same_shape(c, 1, 0));
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    if (experts == 0) return qn_reject_src(c, 0, QN_REASON_SHAPE_EMPTY, scores->rank - 1, 0, 0);
    if (experts > INT32_MAX) return qn_reject_src(c, 0, QN_REASON_SHAPE_LARGE, scores->rank - 1, INT32_MAX, experts);
    if (experts % at->n_group) return qn_reject_src(c, 0, QN_REASON_SHAPE_MULTIPLE, scores->rank - 1, at->n_group, experts);
    if (at->topk_group > at->n_group)
        return qn_reject_attr(c, "topk_group", QN_REASON_ATTR_HIGH, -1, qn_f_bits((double)at->n_group),
                              qn_f_bits((double)at->topk_group));
    int64_t most = at->topk_group * (experts / at->n_group);
    if (at->top_k > most)
        return qn_reject_attr(c, "top_k", QN_REASON_ATTR_HIGH, -1, qn_f_bits((double)most), qn_f_bits((double)at->top_k));
    if (qn_tensor_count(scores)) QN_TRY(qn_scratch_add(c, experts, 4, 1)); /* scores, ranks, groups' ranks, choice */
    c->flops_each = (double)experts;
    for (int i = 0; i < 2; i++) {
        qn_out_like(c, i, scores, i ? scores->dtype : (uint32_t)QN_DTYPE_I32);
        c->out[i].d[scores->rank - 1] = at->top_k;
    }
    return QN_OK;
}

/* The sum of a group's two best, or its only one. */
static double group_rank(const double *x, int64_t n) {
    double first = -INFINITY, second = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (x[i] > first) {
            second = first;
            first = x[i];
        } else if (x[i] > second) {
            second = x[i];
        }
    }
    return n > 1 ? qn_op_group_rank(first, second) : first;
}

/* Numbers of the experts of one token, best first, into chosen. NaN counts as -Inf, so that there is always an order. */
static void choose(const qn_attr_group_limited_gate *at, int64_t experts, double *ranks, double *groups, double *chosen) {
    int64_t per_group = experts / at->n_group, last = -1;
    double *open = chosen; /* first which groups are open: there are no more groups than experts */
    for (int64_t i = 0; i < experts; i++)
        if (isnan(ranks[i])) ranks[i] = -INFINITY;
    for (int64_t g = 0; g < at->n_group; g++) {
        groups[g] = group_rank(ranks + g * per_group, per_group);
        open[g] = 0;
    }
    for (int64_t i = 0; i < at->topk_group; i++) {
        last = qn_op_next_best(groups, at->n_group, last, NULL, 1);
        open[last] = 1;
    }
    memcpy(groups, open, (size_t)at->n_group * sizeof(double));
    last = -1;
    for (int64_t i = 0; i < at->top_k; i++) {
        last = qn_op_next_best(ranks, experts, last, groups, per_group);
        chosen[i] = (double)last;
    }
}

qn_status qn_ref_group_limited_gate(const qn_call *c) {
    const qn_attr_group_limited_gate *at = c->attr;
    const qn_tensor *scores = c->src[0], *ranks = c->src[1], *ids = c->dst[0], *weights = c->dst[1];
    int64_t experts = qn_ne(scores, 0);
    double *s = c->workspace, *r = s + experts, *groups = r + experts, *chosen = groups + experts;
    qn_rows it;
    for (qn_rows_begin(&it, scores->rank, scores->shape); it.live; qn_rows_next(&it)) {
        double sum = 1e-20;
        qn_load_row(scores, qn_row(&it, scores), 0, experts, s);
        qn_load_row(ranks, qn_row(&it, ranks), 0, experts, r);
        choose(at, experts, r, groups, chosen);
        for (int64_t i = 0; i < at->top_k; i++) sum += s[(int64_t)chosen[i]];
        for (int64_t i = 0; i < at->top_k; i++) {
            r[i] = (double)at->scaling * s[(int64_t)chosen[i]] / (at->top_k > 1 ? sum : 1);
            qn_store_one(QN_DTYPE_I32, qn_row(&it, ids) + i * qn_nb(ids, 0), chosen[i]);
        }
        qn_store_row(weights, qn_row(&it, weights), 0, at->top_k, r);
    }
    return QN_OK;
}

/* Of w = scaling s / sum s: ds = scaling (g - <g, s> / sum) / sum. The ranks only choose. */
void qn_vjp_group_limited_gate(qn_vjp_call *v) {
    const qn_attr_group_limited_gate *at = v->attr;
    qn_attr_gather_along along = qn_attr_gather_along_default();
    qn_val g = v->grad[1], ids = v->dst[0];
    if (!v->want[0] || g == QN_VAL_NONE) return;
    if (at->top_k > 1) {
        qn_val s = qn_emit2(v, QN_OP_gather_along, 0, &along, v->src[0], ids);
        qn_val sum = qn_e_scale(v, qn_e_sum_rows(v, s), 1, 1e-20);
        qn_val dot = qn_e_div(v, qn_e_sum_rows(v, qn_e_mul(v, g, s)), sum);
        g = qn_e_div(v, qn_e_sub(v, g, dot), sum);
    }
    v->out[0] = scatter_back(v, v->src[0], qn_e_scale(v, g, (double)at->scaling, 0), ids);
}
