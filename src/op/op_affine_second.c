/* Second order of the norms with weights: layer_norm_back, rms_layer_norm_back and batch_norm_back as formulas of ops. */
#include "op/op_tape.h"

static qn_val mean_rows(qn_vjp_call *v, qn_val x) { return qn_emit1(v, QN_OP_mean, 0, NULL, x); }
static qn_val square(qn_vjp_call *v, qn_val x) { return qn_emit1(v, QN_OP_sqr, 0, NULL, x); }
static qn_val root(qn_vjp_call *v, qn_val x) { return qn_emit1(v, QN_OP_sqrt, 0, NULL, x); }

/* ---- Rows. With d = x - mean, s = sqrt(mean of d^2 + eps), h = d / s and q = g gamma:
 *     dx = (q - mean of q - h mean of (q h)) / s + gmean / n - grstd h / (n s^2),   dgamma = sum of g h,   dbeta = sum of g. */

static void row_formula(qn_vjp_call *v, int centred, double eps, qn_val *out) {
    qn_shape shape = qn_shape_of(v, v->src[1]);
    int64_t n = qn_sd(&shape, 0);
    qn_val g = qn_op_wide(v, v->src[0]), d = qn_op_wide(v, v->src[1]), q = g;
    if (v->src[2] != QN_VAL_NONE) q = qn_e_mul(v, g, qn_e_reshape(v, qn_op_wide(v, v->src[2]), 1, &n));
    if (centred) d = qn_e_sub(v, d, mean_rows(v, d));
    qn_val s = root(v, qn_e_scale(v, mean_rows(v, square(v, d)), 1, eps)), h = qn_e_div(v, d, s);
    qn_val rest = qn_e_sub(v, q, qn_e_mul(v, h, mean_rows(v, qn_e_mul(v, q, h))));
    if (centred) rest = qn_e_sub(v, rest, mean_rows(v, q));
    out[0] = qn_e_div(v, rest, s);
    if (centred && v->n_src > 3 && v->src[3] != QN_VAL_NONE)
        out[0] = qn_e_add(v, out[0], qn_e_scale(v, v->src[3], 1 / (double)n, 0));
    if (centred && v->n_src > 4 && v->src[4] != QN_VAL_NONE) {
        qn_val along = qn_e_mul(v, h, qn_e_div(v, v->src[4], square(v, s)));
        out[0] = qn_e_sub(v, out[0], qn_e_scale(v, along, 1 / (double)n, 0));
    }
    if (v->n_dst > 1) out[1] = qn_e_untile(v, qn_e_mul(v, g, h), 1, &n);
    if (v->n_dst > 2) out[2] = qn_e_untile(v, g, 1, &n);
}

static void layer_norm_back_formula(qn_vjp_call *v, qn_op_tape *t, qn_val *out) {
    (void)t;
    row_formula(v, 1, (double)((const qn_attr_layer_norm_back *)v->attr)->eps, out);
}

static void rms_layer_norm_back_formula(qn_vjp_call *v, qn_op_tape *t, qn_val *out) {
    (void)t;
    row_formula(v, 0, (double)((const qn_attr_rms_layer_norm_back *)v->attr)->eps, out);
}

static int is_empty(qn_vjp_call *v, qn_val x) {
    qn_shape s = qn_shape_of(v, x);
    for (int i = 0; i < s.rank; i++)
        if (s.d[i] == 0) return 1;
    return 0;
}

void qn_vjp_layer_norm_back(qn_vjp_call *v) {
    if (!is_empty(v, v->src[1])) qn_op_vjp_of_formula(v, layer_norm_back_formula);
}
void qn_vjp_rms_layer_norm_back(qn_vjp_call *v) {
    if (!is_empty(v, v->src[1])) qn_op_vjp_of_formula(v, rms_layer_norm_back_formula);
}

/* ---- Channels: the forward pass as rows [channels, everything else], and its gradient */

typedef struct channels {
    int64_t n, c, rest;
} channels;

static qn_val to_rows(qn_vjp_call *v, const channels *k, qn_val x) {
    static const int order[3] = {1, 0, 2};
    int64_t split[3] = {k->n, k->c, k->rest}, rows[2] = {k->c, k->n * k->rest};
    return qn_e_reshape(v, qn_e_permute(v, qn_e_reshape(v, x, 3, split), 3, order), 2, rows);
}

static qn_val column(qn_vjp_call *v, const channels *k, qn_val w) {
    int64_t d[2] = {k->c, 1};
    return w == QN_VAL_NONE ? w : qn_e_reshape(v, qn_op_wide(v, w), 2, d);
}

/* What batch_norm computes in training, from x, gamma, beta and the running statistics: all its outputs, by rows. */
static void forward(qn_vjp_call *v, const channels *k, const qn_val *by, qn_val *y) {
    const qn_attr_batch_norm_back *at = v->attr;
    double step = (double)at->momentum, n = (double)(k->n * k->rest);
    qn_val mean = by[3], var = by[4];
    if (at->training) {
        mean = mean_rows(v, by[0]);
        var = mean_rows(v, square(v, qn_e_sub(v, by[0], mean)));
        y[3] = qn_e_add(v, qn_e_scale(v, by[3], 1 - step, 0), qn_e_scale(v, mean, step, 0));
        y[4] = qn_e_add(v, qn_e_scale(v, by[4], 1 - step, 0), qn_e_scale(v, var, step * (n > 1 ? n / (n - 1) : 1), 0));
    }
    qn_val s = root(v, qn_e_scale(v, var, 1, (double)at->eps)), h = qn_e_div(v, qn_e_sub(v, by[0], mean), s);
    y[0] = qn_e_add(v, qn_e_mul(v, h, by[1]), by[2]);
    y[1] = mean;
    y[2] = qn_e_div(v, qn_e_scale(v, qn_e_zeros(v, s), 1, 1), s);
}

static void batch_norm_back_formula(qn_vjp_call *v, qn_op_tape *t, qn_val *out) {
    static const int order[3] = {1, 0, 2};
    qn_shape s = qn_shape_of(v, v->src[1]);
    channels k = {s.d[0], s.d[1], 1};
    for (int i = 2; i < s.rank; i++) k.rest *= s.d[i];
    qn_val gamma = column(v, &k, v->src[2]);
    qn_val by[5] = {to_rows(v, &k, qn_op_wide(v, v->src[1])), gamma, qn_e_zeros(v, gamma), column(v, &k, v->src[3]),
                    column(v, &k, v->src[4])};
    qn_val y[5] = {QN_VAL_NONE, QN_VAL_NONE, QN_VAL_NONE, QN_VAL_NONE, QN_VAL_NONE}, up[5] = {0}, back[5];
    forward(v, &k, by, y);
    up[0] = to_rows(v, &k, qn_op_wide(v, v->src[0]));
    for (int i = 1; i < 5; i++) up[i] = 4 + i < v->n_src ? column(v, &k, v->src[4 + i]) : QN_VAL_NONE;
    qn_op_tape_back(t, v, 5, y, up, 5, by, back);
    int64_t turned[3] = {k.c, k.n, k.rest};
    out[0] = qn_e_like(v, qn_e_permute(v, qn_e_reshape(v, back[0], 3, turned), 3, order), v->src[1]);
    for (int i = 1; i < v->n_dst; i++) out[i] = back[i] == QN_VAL_NONE ? QN_VAL_NONE : qn_e_reshape(v, back[i], 1, &k.c);
}

void qn_vjp_batch_norm_back(qn_vjp_call *v) {
    if (!is_empty(v, v->src[1])) qn_op_vjp_of_formula(v, batch_norm_back_formula);
}
