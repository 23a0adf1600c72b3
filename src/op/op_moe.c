/* Mixtures of experts: which experts a token goes to and by what weights, and the sum of what they gave. Models differ in how
 * scores become weights; the attributes of moe_route name the conventions:
 *
 *   score 0, renorm           softmax over all experts, the k largest, divided by their sum
 *   score 0, renorm, scale    the same, then times a scale of each expert, without a second division
 *   score 2, scale_first      the k largest logits, softmax over those, times the scales, divided by the new sum
 *   score 1, bias, factor     sigmoid; a bias decides who is chosen but has no part in the weights
 *
 * Ties go to the lower index. Gradients flow through the weights of the chosen, never through the choice. */
#include <math.h>

#include "op/op_tape.h"
#include "op/product.h"

enum { SOFTMAX, SIGMOID, SOFTMAX_CHOSEN };

_Static_assert(offsetof(qn_attr_moe_gate, factor) == offsetof(qn_attr_moe_route, factor), "shared attributes");

/* ---- Shape rules */

static qn_status check_experts(qn_infer_call *c, int slot, int64_t n, const qn_tensor *logits) {
    if (!c->src[slot]) return QN_OK;
    QN_TRY(qn_need_rank(c, slot, 1));
    QN_TRY(qn_need_extent(c, slot, 0, n));
    if ((c->src[slot]->dtype == QN_DTYPE_F64) != (logits->dtype == QN_DTYPE_F64))
        return qn_reject_src(c, slot, QN_REASON_DTYPE_PAIR, -1, logits->dtype, c->src[slot]->dtype);
    return QN_OK;
}

/* Weights and ids [.., k] for rows of n experts, in the shape of `rows`. */
static qn_status route_shapes(qn_infer_call *c, const qn_tensor *rows, int64_t n, int64_t k, int first) {
    int64_t d[QN_MAX_RANK];
    if (k > n) return qn_reject_attr(c, "k", QN_REASON_ATTR_HIGH, -1, qn_f_bits((double)n), qn_f_bits((double)k));
    if (n > INT32_MAX) return qn_reject_src(c, first, QN_REASON_SHAPE_LARGE, -1, INT32_MAX, n);
    int64_t bytes; /* a score and a mark for each */
    if (qn_mul_overflow(n, 2 * (int64_t)sizeof(double), &bytes))
        return qn_reject_src(c, first, QN_REASON_SIZE_OVERFLOW, -1, INT64_MAX, n);
    c->workspace += (size_t)bytes;
    for (int i = 0; i < rows->rank; i++) d[i] = rows->shape[i];
    d[rows->rank - 1] = k;
    QN_TRY(qn_out_shape(c, 0, qn_product_dtype(rows), rows->rank, d));
    return qn_out_shape(c, 1, QN_DTYPE_I32, rows->rank, d);
}

qn_status qn_infer_moe_route(qn_infer_call *c) {
    const qn_attr_moe_route *at = c->attr;
    const qn_tensor *logits = c->src[0];
    int64_t n = qn_ne(logits, 0);
    QN_TRY(check_experts(c, 1, n, logits));
    QN_TRY(check_experts(c, 2, n, logits));
    c->flops_each = 6.0 * (double)n / (double)at->k;
    return route_shapes(c, logits, n, at->k, 0);
}

qn_status qn_infer_moe_gate(qn_infer_call *c) {
    const qn_attr_moe_gate *at = c->attr;
    const qn_tensor *x = c->src[0], *w = c->src[2];
    int64_t width = qn_ne(x, 0), n = qn_ne(w, 1);
    if (width == 0) return qn_reject_src(c, 0, QN_REASON_SHAPE_EMPTY, qn_axis(x, 0), 1, 0);
    QN_TRY(qn_need_rank(c, 1, 1));
    QN_TRY(qn_need_extent(c, 1, 0, width));
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    QN_TRY(qn_need_rank(c, 2, 2));
    QN_TRY(qn_need_extent(c, 2, 0, width));
    QN_TRY(qn_need_f64_pair(c, 2, 0));
    QN_TRY(check_experts(c, 3, n, x));
    QN_TRY(check_experts(c, 4, n, x));
    int64_t bytes;
    if (qn_mul_overflow(width, (int64_t)sizeof(double), &bytes))
        return qn_reject_src(c, 0, QN_REASON_SIZE_OVERFLOW, qn_axis(x, 0), INT64_MAX, width);
    c->workspace = (size_t)bytes;
    c->flops_each = 2.0 * (double)n * (double)width / (double)at->k;
    return route_shapes(c, x, n, at->k, 2);
}

qn_status qn_infer_moe_combine(qn_infer_call *c) {
    const qn_tensor *e = c->src[1], *gate = c->src[2], *shared = c->src[3];
    int64_t d[2] = {qn_ne(e, 2), qn_ne(e, 0)};
    QN_TRY(qn_need_rank(c, 1, 3));
    QN_TRY(qn_need_rank(c, 0, 2));
    QN_TRY(qn_need_extent(c, 0, 0, qn_ne(e, 1)));
    QN_TRY(qn_need_extent(c, 0, 1, d[0]));
    QN_TRY(qn_need_f64_pair(c, 0, 1));
    if (gate && !shared) return qn_reject_src(c, 3, QN_REASON_MISSING, -1, 0, 0);
    if (shared && !gate) return qn_reject_src(c, 2, QN_REASON_MISSING, -1, 0, 0);
    if (gate) {
        QN_TRY(qn_need_rank(c, 2, 2));
        QN_TRY(qn_need_extent(c, 2, 0, 1));
        QN_TRY(qn_need_extent(c, 2, 1, d[0]));
        QN_TRY(qn_need_f64_pair(c, 2, 1));
    }
    for (int s = 3; s < 5; s++) {
        if (!c->src[s]) continue;
        QN_TRY(qn_need_rank(c, s, 2));
        QN_TRY(qn_need_extent(c, s, 0, d[1]));
        QN_TRY(qn_need_extent(c, s, 1, d[0]));
        QN_TRY(qn_need_same_dtype(c, s, 1));
    }
    c->flops_each = 2.0 * (double)qn_ne(e, 1) + 4;
    return qn_out_shape(c, 0, e->dtype, 2, d);
}

/* ---- References */

typedef struct routing {
    const qn_attr_moe_route *at;
    const qn_tensor *bias, *scale;
    int64_t n;
} routing;

static double expert_number(const qn_tensor *t, int64_t i, double otherwise) { return t ? qn_get4(t, 0, 0, 0, i) : otherwise; }

/* Scores in place of logits: softmax over all of them, or the sigmoid of each. For softmax over the chosen they stay. */
static void score(double *x, int64_t n, int kind) {
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
    for (int64_t i = 0; i < n && kind != SOFTMAX_CHOSEN; i++) {
        x[i] = kind == SIGMOID ? 1 / (1 + exp(-x[i])) : exp(x[i] - most);
        sum += x[i];
    }
    for (int64_t i = 0; i < n && kind == SOFTMAX; i++) x[i] /= sum;
}

/* The best that is not marked; NaN is never better, and the first wins when none is. */
static int64_t best(const routing *r, const double *x, const double *taken) {
    int64_t found = -1;
    double most = 0;
    for (int64_t i = 0; i < r->n; i++) {
        double v = x[i] + expert_number(r->bias, i, 0);
        if (taken[i] != 0 || (found >= 0 && !(v > most))) continue;
        found = i;
        most = v;
    }
    return found;
}

/* The weights of k chosen scores. */
static void weigh(const routing *r, double *w, const qn_tensor *ids, const char *id_row) {
    int64_t k = r->at->k;
    double sum = 0;
    if (r->at->score == SOFTMAX_CHOSEN) score(w, k, SOFTMAX);
    for (int pass = 0; pass < 2; pass++) {
        if (pass == (r->at->scale_first ? 0 : 1)) {
            for (int64_t i = 0; i < k; i++)
                w[i] *= expert_number(r->scale, qn_load_index(QN_DTYPE_I32, id_row + i * qn_nb(ids, 0)), 1);
        } else if (r->at->renorm) {
            for (int64_t i = 0; i < k; i++) sum += w[i];
            for (int64_t i = 0; i < k && sum != 0; i++) w[i] /= sum;
        }
    }
    for (int64_t i = 0; i < k; i++) w[i] *= (double)r->at->factor;
}

/* One row of logits in `x`, with as many doubles behind them; k of those become the weights. */
static void route_row(const routing *r, double *x, const qn_tensor *weights, char *w_row, const qn_tensor *ids, char *id_row) {
    double *taken = x + r->n;
    score(x, r->n, r->at->score);
    for (int64_t i = 0; i < r->n; i++) taken[i] = 0;
    for (int64_t i = 0; i < r->at->k; i++) {
        int64_t id = best(r, x, taken);
        taken[id] = 1;
        qn_store_one(QN_DTYPE_I32, id_row + i * qn_nb(ids, 0), (double)id);
    }
    for (int64_t i = 0; i < r->at->k; i++) taken[i] = x[qn_load_index(QN_DTYPE_I32, id_row + i * qn_nb(ids, 0))];
    weigh(r, taken, ids, id_row);
    qn_store_row(weights, w_row, 0, r->at->k, taken);
}

static const qn_tensor *given(const qn_call *c, int slot) { return slot < c->n_src ? c->src[slot] : NULL; }

qn_status qn_ref_moe_route(const qn_call *c) {
    const qn_tensor *logits = c->src[0], *weights = c->dst[0], *ids = c->dst[1];
    routing r = {c->attr, given(c, 1), given(c, 2), qn_ne(logits, 0)};
    qn_rows it;
    for (qn_rows_begin(&it, logits->rank, logits->shape); it.live; qn_rows_next(&it)) {
        qn_load_row(logits, qn_row(&it, logits), 0, r.n, c->workspace);
        route_row(&r, c->workspace, weights, qn_row(&it, weights), ids, qn_row(&it, ids));
    }
    return QN_OK;
}

/* Rounded where the parts are: the norm to x's dtype, the product to what mul_mat gives. */
qn_status qn_ref_moe_gate(const qn_call *c) {
    const qn_attr_moe_gate *at = c->attr;
    const qn_tensor *x = c->src[0], *gamma = c->src[1], *w = c->src[2], *weights = c->dst[0], *ids = c->dst[1];
    qn_attr_moe_route route = qn_attr_moe_route_default();
    int64_t width = qn_ne(x, 0);
    memcpy(&route, at, offsetof(qn_attr_moe_route, factor) + sizeof route.factor);
    routing r = {&route, given(c, 3), given(c, 4), qn_ne(w, 1)};
    double *row = c->workspace, *logits = row + width, g;
    qn_dtype sum_dtype = (qn_dtype)weights->dtype;
    qn_rows it;
    for (qn_rows_begin(&it, x->rank, x->shape); it.live; qn_rows_next(&it)) {
        double squares = 0, round[1];
        qn_load_row(x, qn_row(&it, x), 0, width, row);
        for (int64_t i = 0; i < width; i++) squares += row[i] * row[i];
        double inverse = 1 / sqrt(squares / (double)width + (double)at->eps);
        for (int64_t i = 0; i < width; i++) {
            qn_load_row(gamma, qn_at(gamma, 0), i, 1, &g);
            qn_store_one((qn_dtype)x->dtype, round, row[i] * inverse * g);
            row[i] = qn_load_one((qn_dtype)x->dtype, round);
        }
        for (int64_t e = 0; e < r.n; e++) {
            double sum = 0, v;
            for (int64_t i = 0; i < width; i++) {
                qn_load_row(w, qn_row4(w, 0, 0, e), i, 1, &v);
                sum += row[i] * v;
            }
            qn_store_one(sum_dtype, round, sum);
            logits[e] = qn_load_one(sum_dtype, round);
        }
        route_row(&r, logits, weights, qn_row(&it, weights), ids, qn_row(&it, ids));
    }
    return QN_OK;
}

qn_status qn_ref_moe_combine(const qn_call *c) {
    const qn_tensor *w = c->src[0], *e = c->src[1], *gate = given(c, 2), *shared = given(c, 3), *residual = given(c, 4);
    const qn_tensor *y = c->dst[0];
    if (qn_tensor_count(y) == 0) return QN_OK;
    for (int64_t t = 0; t < qn_ne(y, 1); t++)
        for (int64_t i = 0; i < qn_ne(y, 0); i++) {
            double sum = 0;
            for (int64_t k = 0; k < qn_ne(e, 1); k++) sum += qn_get4(w, 0, 0, t, k) * qn_get4(e, 0, t, k, i);
            if (shared) sum += qn_get4(shared, 0, 0, t, i) / (1 + exp(-qn_get4(gate, 0, 0, t, 0)));
            if (residual) sum += qn_get4(residual, 0, 0, t, i);
            qn_put4(y, 0, 0, t, i, sum);
        }
    return QN_OK;
}

/* ---- Gradients */

static qn_val arith(qn_vjp_call *v, qn_arith f, qn_val a, qn_val b) { return qn_emit2(v, QN_OP_arith, f, NULL, a, b); }

static void route_formula(qn_vjp_call *v, qn_op_tape *t, qn_val *out) {
    (void)t;
    const qn_attr_moe_route *at = v->attr;
    qn_val ids = v->dst[1], x = qn_op_wide(v, v->src[0]), w;
    if (at->score == SOFTMAX_CHOSEN) w = qn_emit1(v, QN_OP_softmax, 0, NULL, qn_emit2(v, QN_OP_gather_along, 0, NULL, x, ids));
    else {
        w = at->score == SIGMOID ? qn_e_unary(v, QN_UNARY_sigmoid, x) : qn_emit1(v, QN_OP_softmax, 0, NULL, x);
        w = qn_emit2(v, QN_OP_gather_along, 0, NULL, w, ids);
    }
    qn_val scale = v->src[2];
    if (scale != QN_VAL_NONE) {
        qn_shape s = qn_shape_of(v, scale); /* one axis counts, those before it are 1 */
        scale = qn_emit2(v, QN_OP_gather, 0, NULL, qn_e_reshape(v, scale, 1, &s.d[s.rank - 1]), ids);
    }
    if (scale != QN_VAL_NONE && at->scale_first) w = arith(v, QN_ARITH_mul, w, scale);
    if (at->renorm) w = arith(v, QN_ARITH_div, w, qn_e_sum_rows(v, w));
    if (scale != QN_VAL_NONE && !at->scale_first) w = arith(v, QN_ARITH_mul, w, scale);
    out[0] = qn_e_scale(v, w, (double)at->factor, 0);
}

void qn_vjp_moe_route(qn_vjp_call *v) { qn_op_vjp_of_formula(v, route_formula); }

static void combine_formula(qn_vjp_call *v, qn_op_tape *t, qn_val *out) {
    (void)t;
    qn_attr_reduce over = qn_attr_reduce_default();
    qn_val w = qn_op_wide(v, v->src[0]), e = qn_op_wide(v, v->src[1]);
    qn_shape s = qn_shape_of(v, e);
    int64_t d[3] = {qn_sd(&s, 2), qn_sd(&s, 1), qn_sd(&s, 0)}, weights[3] = {d[0], d[1], 1}, rows[2] = {d[0], d[2]};
    over.axes = (qn_dims){.rank = 1, .d = {1}};
    qn_val y = arith(v, QN_ARITH_mul, qn_e_reshape(v, e, 3, d), qn_e_reshape(v, w, 3, weights));
    y = qn_emit1(v, QN_OP_reduce, QN_REDUCE_sum, &over, y);
    if (v->src[2] != QN_VAL_NONE) {
        int64_t column[2] = {d[0], 1};
        qn_val gate = qn_e_reshape(v, qn_e_unary(v, QN_UNARY_sigmoid, qn_op_wide(v, v->src[2])), 2, column);
        y = arith(v, QN_ARITH_add, y, arith(v, QN_ARITH_mul, qn_e_reshape(v, qn_op_wide(v, v->src[3]), 2, rows), gate));
    }
    if (v->src[4] != QN_VAL_NONE) y = arith(v, QN_ARITH_add, y, qn_e_reshape(v, qn_op_wide(v, v->src[4]), 2, rows));
    out[0] = y;
}

void qn_vjp_moe_combine(qn_vjp_call *v) { qn_op_vjp_of_formula(v, combine_formula); }
