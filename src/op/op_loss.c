/* Cross entropy against label distributions, and its gradient. Labels need not add up to one: the gradient is that of the
 * formula, not of its usual special case. */
#include <math.h>

#include "op/op_tape.h"
#include "op/product.h"
#include "op/softmax.h"

/* ---- Shape rules */

static qn_status need_columns(qn_infer_call *c, int logits) {
    const qn_tensor *x = c->src[logits];
    if (qn_ne(x, 0) == 0) return qn_reject_src(c, logits, QN_REASON_SHAPE_EMPTY, qn_axis(x, 0), 0, 0);
    return QN_OK;
}

/* A mean over no rows has no value, so no axis may be empty. */
qn_status qn_infer_cross_entropy_loss(qn_infer_call *c) {
    const qn_tensor *x = c->src[0];
    const int64_t one[1] = {1};
    QN_TRY(qn_need_same_shape(c, 1, 0));
    for (int k = 0; k < x->rank; k++)
        if (qn_ne(x, k) == 0) return qn_reject_src(c, 0, QN_REASON_SHAPE_EMPTY, qn_axis(x, k), 0, 0);
    QN_TRY(qn_need_same_dtype(c, 1, 0));
    c->flops_each = 6.0 * (double)qn_tensor_count(x);
    return qn_out_shape(c, 0, x->dtype, 1, one);
}

qn_status qn_infer_cross_entropy_loss_back(qn_infer_call *c) {
    const qn_tensor *g = c->src[0], *x = c->src[1];
    int64_t n = qn_tensor_count(g);
    if (n != 1) return qn_reject_src(c, 0, QN_REASON_SHAPE_COUNT, -1, 1, n);
    QN_TRY(qn_need_same_shape(c, 2, 1));
    QN_TRY(need_columns(c, 1));
    QN_TRY(qn_need_same_dtype(c, 0, 1));
    QN_TRY(qn_need_same_dtype(c, 2, 1));
    c->flops_each = 6;
    qn_out_like(c, 0, x, x->dtype);
    return QN_OK;
}

/* As cross_entropy_loss: the teacher's logits have the student's shape. */
qn_status qn_infer_kl_loss(qn_infer_call *c) { return qn_infer_cross_entropy_loss(c); }

/* ---- References */

/* Sum over a row of labels times log softmax. What has no label has no part in it: its logit may be -Inf, as a mask leaves it. */
static double row_likelihood(const qn_tensor *x, const char *x_row, const qn_tensor *labels, const char *l_row, int64_t n) {
    double logit[QN_RUN], label[QN_RUN], total = qn_op_row_log_sum(x, x_row, n), sum = 0;
    for (int64_t first = 0; first < n; first += QN_RUN) {
        int64_t some = qn_some(n, first);
        qn_load_row(x, x_row, first, some, logit);
        qn_load_row(labels, l_row, first, some, label);
        for (int64_t i = 0; i < some; i++)
            if (label[i] != 0) sum += label[i] * (logit[i] - total);
    }
    return sum;
}

qn_status qn_ref_cross_entropy_loss(const qn_call *c) {
    const qn_tensor *y = c->dst[0], *x = c->src[0], *labels = c->src[1];
    double sum = 0, rows = 0;
    qn_rows it;
    for (qn_rows_begin(&it, x->rank, x->shape); it.live; qn_rows_next(&it)) {
        sum += row_likelihood(x, qn_row(&it, x), labels, qn_row(&it, labels), it.n);
        rows++;
    }
    qn_put4(y, 0, 0, 0, 0, -sum / rows);
    return QN_OK;
}

static double row_sum(const qn_tensor *t, const char *row, int64_t n) {
    double run[QN_RUN], sum = 0;
    for (int64_t first = 0; first < n; first += QN_RUN) {
        int64_t some = qn_some(n, first);
        qn_load_row(t, row, first, some, run);
        for (int64_t i = 0; i < some; i++) sum += run[i];
    }
    return sum;
}

/* (sum of the labels * softmax - labels) * step. Each run of logits is read before dx, which may be there, replaces it. */
static void back_row(const qn_call *c, const qn_rows *it, double step) {
    const qn_tensor *dx = c->dst[0], *x = c->src[1], *labels = c->src[2];
    char *to = qn_row(it, dx);
    const char *x_row = qn_row(it, x), *l_row = qn_row(it, labels);
    double logit[QN_RUN], label[QN_RUN], total = qn_op_row_log_sum(x, x_row, it->n), mass = row_sum(labels, l_row, it->n);
    for (int64_t first = 0; first < it->n; first += QN_RUN) {
        int64_t some = qn_some(it->n, first);
        qn_load_row(x, x_row, first, some, logit);
        qn_load_row(labels, l_row, first, some, label);
        for (int64_t i = 0; i < some; i++) logit[i] = (mass * exp(logit[i] - total) - label[i]) * step;
        qn_store_row(dx, to, first, some, logit);
    }
}

qn_status qn_ref_cross_entropy_loss_back(const qn_call *c) {
    const qn_tensor *dx = c->dst[0], *g = c->src[0], *x = c->src[1];
    int64_t count = qn_tensor_count(dx);
    if (count == 0) return QN_OK;
    double step = qn_load_one((qn_dtype)g->dtype, qn_at(g, 0)) / (double)(count / qn_ne(dx, 0));
    qn_rows it;
    for (qn_rows_begin(&it, x->rank, x->shape); it.live; qn_rows_next(&it)) back_row(c, &it, step);
    return QN_OK;
}

/* ln of the sum of e^(x / t) over a row. */
static double row_log_sum_at(const qn_tensor *x, const char *row, int64_t n, double t) {
    double run[QN_RUN], most = -INFINITY, sum = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t first = 0; first < n; first += QN_RUN) {
            int64_t some = qn_some(n, first);
            qn_load_row(x, row, first, some, run);
            for (int64_t i = 0; i < some; i++)
                if (pass) sum += exp(run[i] / t - most);
                else if (run[i] / t > most) most = run[i] / t;
        }
    return most + log(sum);
}

/* Sum over a row of p (ln p - ln q). What the teacher rules out has no part in it. */
static double row_divergence(const qn_tensor *x, const char *x_row, const qn_tensor *z, const char *z_row, int64_t n, double t) {
    double student[QN_RUN], teacher[QN_RUN], sum = 0;
    double student_sum = row_log_sum_at(x, x_row, n, t), teacher_sum = row_log_sum_at(z, z_row, n, t);
    for (int64_t first = 0; first < n; first += QN_RUN) {
        int64_t some = qn_some(n, first);
        qn_load_row(x, x_row, first, some, student);
        qn_load_row(z, z_row, first, some, teacher);
        for (int64_t i = 0; i < some; i++) {
            double ln_p = teacher[i] / t - teacher_sum, p = exp(ln_p);
            if (p != 0) sum += p * (ln_p - (student[i] / t - student_sum));
        }
    }
    return sum;
}

qn_status qn_ref_kl_loss(const qn_call *c) {
    const qn_tensor *x = c->src[0], *z = c->src[1];
    double sum = 0, rows = 0, t = (double)((const qn_attr_kl_loss *)c->attr)->temperature;
    qn_rows it;
    for (qn_rows_begin(&it, x->rank, x->shape); it.live; qn_rows_next(&it), rows++)
        sum += row_divergence(x, qn_row(&it, x), z, qn_row(&it, z), it.n, t);
    qn_put4(c->dst[0], 0, 0, 0, 0, sum / rows);
    return QN_OK;
}

/* ---- Gradient. Labels may be learned too (distillation): theirs is -g log softmax / rows. */

void qn_vjp_cross_entropy_loss(qn_vjp_call *v) {
    if (v->want[0]) v->out[0] = qn_emit3(v, QN_OP_cross_entropy_loss_back, 0, NULL, v->grad[0], v->src[0], v->src[1]);
    if (!v->want[1]) return;
    qn_shape s = qn_shape_of(v, v->src[0]);
    double rows = 1;
    for (int k = 1; k < s.rank; k++) rows *= (double)qn_sd(&s, k);
    qn_val likelihood = qn_emit1(v, QN_OP_log_soft_max, 0, NULL, v->src[0]);
    v->out[1] = qn_e_mul(v, likelihood, qn_e_scale(v, v->grad[0], -1 / rows, 0));
}

/* (mass softmax - labels) g / rows, as ops. */
static void cross_entropy_loss_back_formula(qn_vjp_call *v, qn_op_tape *t, qn_val *out) {
    (void)t;
    qn_val x = v->src[1], labels = v->src[2];
    qn_shape s = qn_shape_of(v, x);
    const int64_t one[1] = {1};
    double rows = 1;
    for (int k = 1; k < s.rank; k++) rows *= (double)qn_sd(&s, k);
    if (rows == 0) return;
    qn_val share = qn_e_mul(v, qn_emit1(v, QN_OP_soft_max, 0, NULL, x), qn_e_sum_rows(v, labels));
    qn_val step = qn_e_scale(v, qn_e_reshape(v, v->src[0], 1, one), 1 / rows, 0);
    out[0] = qn_e_mul(v, qn_e_sub(v, share, labels), step);
}

void qn_vjp_cross_entropy_loss_back(qn_vjp_call *v) { qn_op_vjp_of_formula(v, cross_entropy_loss_back_formula); }

/* With p the teacher's distribution and q the student's, both at the temperature: dstudent = (q - p) g / (rows t), and
 * dteacher = p (ln p - ln q - sum of p (ln p - ln q)) g / (rows t). */
void qn_vjp_kl_loss(qn_vjp_call *v) {
    double t = (double)((const qn_attr_kl_loss *)v->attr)->temperature, rows = 1;
    qn_attr_soft_max at = qn_attr_soft_max_default();
    qn_shape s = qn_shape_of(v, v->src[0]);
    for (int k = 1; k < s.rank; k++) rows *= (double)qn_sd(&s, k);
    qn_val x = qn_e_scale(v, v->src[0], 1 / t, 0), z = qn_e_scale(v, v->src[1], 1 / t, 0);
    qn_val p = qn_emit1(v, QN_OP_soft_max, 0, &at, z), step = qn_e_scale(v, v->grad[0], 1 / (rows * t), 0);
    if (v->want[0]) v->out[0] = qn_e_mul(v, qn_e_sub(v, qn_emit1(v, QN_OP_soft_max, 0, &at, x), p), step);
    if (!v->want[1]) return;
    qn_val off = qn_e_sub(v, qn_emit1(v, QN_OP_log_soft_max, 0, NULL, z), qn_emit1(v, QN_OP_log_soft_max, 0, NULL, x));
    off = qn_e_sub(v, off, qn_e_sum_rows(v, qn_e_mul(v, p, off)));
    v->out[1] = qn_e_mul(v, qn_e_mul(v, p, off), step);
}
