/* Second order of the ops over any axes: reduce_back, softmax_back and scan_back as formulas of ops. The axes that an op sums
 * over are brought to the end and made one, so that everything is about rows [outer, n]. */
#include "op/op_axes.h"
#include "op/op_tape.h"

/* ---- Rows out of any axes */

typedef struct rows_form {
    int rank;
    int order[QN_MAX_RANK]; /* axis i of the reordered tensor is axis order[i] */
    int64_t d[QN_MAX_RANK]; /* its extents */
    int64_t flat[2];        /* outer, n */
} rows_form;

static rows_form form_of(qn_shape x, unsigned set) {
    rows_form f = {x.rank, {0}, {0}, {1, 1}};
    int n = 0;
    for (int gone = 0; gone < 2; gone++)
        for (int i = 0; i < x.rank; i++) {
            if ((int)(set >> (x.rank - 1 - i) & 1) != gone) continue;
            f.order[n] = i;
            f.d[n++] = x.d[i];
            f.flat[gone] *= x.d[i];
        }
    return f;
}

static qn_val to_rows(qn_vjp_call *v, const rows_form *f, qn_val x) {
    return qn_e_reshape(v, qn_e_permute(v, x, f->rank, f->order), 2, f->flat);
}

static qn_val from_rows(qn_vjp_call *v, const rows_form *f, qn_val rows) {
    int back[QN_MAX_RANK];
    for (int i = 0; i < f->rank; i++) back[f->order[i]] = i;
    return qn_e_permute(v, qn_e_reshape(v, rows, f->rank, f->d), f->rank, back);
}

/* ---- reduce_back */

static qn_val scan_rows(qn_vjp_call *v, qn_val x, int product, int reverse, int exclusive) {
    qn_attr_scan at = qn_attr_scan_default();
    at.reverse = reverse;
    at.exclusive = exclusive;
    return qn_emit1(v, QN_OP_scan, product ? QN_SCAN_prod : QN_SCAN_sum, &at, x);
}

/* 1 at the first extremum of each row, 0 elsewhere. */
static qn_val extremum_rows(qn_vjp_call *v, qn_val x, int64_t n) {
    qn_attr_arg_reduce at = qn_attr_arg_reduce_default();
    qn_attr_one_hot hot = qn_attr_one_hot_default();
    hot.depth = n;
    hot.dtype = (int32_t)qn_shape_of(v, x).dtype;
    int which = v->subop == QN_REDUCE_max ? QN_ARG_REDUCE_max : QN_ARG_REDUCE_min;
    return qn_emit1(v, QN_OP_one_hot, 0, &hot, qn_emit1(v, QN_OP_arg_reduce, which, &at, x));
}

static void reduce_back_formula(qn_vjp_call *v, qn_op_tape *t, qn_val *out) {
    (void)t;
    const qn_attr_reduce_back *at = v->attr;
    qn_shape s = qn_shape_of(v, v->src[1]);
    const rows_form f = form_of(s, qn_op_axes_set(&at->axes, s.rank));
    int64_t column[2] = {f.flat[0], 1};
    if (f.flat[0] == 0 || f.flat[1] == 0) return; /* nothing came back */
    qn_val g = qn_e_reshape(v, qn_op_wide(v, v->src[0]), 2, column), x = to_rows(v, &f, qn_op_wide(v, v->src[1])), share;
    switch (v->subop) {
    case QN_REDUCE_prod: share = qn_e_mul(v, scan_rows(v, x, 1, 0, 1), scan_rows(v, x, 1, 1, 1)); break;
    case QN_REDUCE_max:
    case QN_REDUCE_min: share = extremum_rows(v, x, f.flat[1]); break;
    default: share = qn_e_scale(v, qn_e_zeros(v, x), 1, v->subop == QN_REDUCE_mean ? 1 / (double)f.flat[1] : 1); break;
    }
    out[0] = from_rows(v, &f, qn_e_mul(v, share, g));
}

void qn_vjp_reduce_back(qn_vjp_call *v) { qn_op_vjp_of_formula(v, reduce_back_formula); }

/* ---- softmax_back: y (g - sum of g y) */

static void softmax_back_formula(qn_vjp_call *v, qn_op_tape *t, qn_val *out) {
    (void)t;
    qn_shape s = qn_shape_of(v, v->src[0]);
    const rows_form f = form_of(s, 1u << qn_op_axis(((const qn_attr_softmax_back *)v->attr)->axis, s.rank));
    if (f.flat[0] == 0 || f.flat[1] == 0) return;
    qn_val g = to_rows(v, &f, qn_op_wide(v, v->src[0]));
    qn_val y = to_rows(v, &f, qn_op_wide(v, qn_e_like(v, v->src[1], v->src[0]))); /* axes of 1 in front do not count */
    out[0] = from_rows(v, &f, qn_e_mul(v, y, qn_e_sub(v, g, qn_e_sum_rows(v, qn_e_mul(v, g, y)))));
}

void qn_vjp_softmax_back(qn_vjp_call *v) { qn_op_vjp_of_formula(v, softmax_back_formula); }

/* ---- scan_back */

static qn_val triangle(qn_vjp_call *v, qn_val x, int32_t kind) {
    qn_attr_tri at = qn_attr_tri_default();
    at.kind = kind;
    return qn_emit1(v, QN_OP_tri, 0, &at, x);
}

/* Of a product: dx_j = (product of all before j) times the sum over the results i behind j of g_i (product of what lies between).
 * The products between are the scans of n rows, the j-th of which is 1 up to j: n^2 numbers, and no division. */
static qn_val product_back(qn_vjp_call *v, const rows_form *f, qn_val g, qn_val x) {
    enum { UPPER_FULL = 0, UPPER = 1, LOWER_FULL = 2, LOWER = 3 };
    const qn_attr_scan_back *at = v->attr;
    int64_t n = f->flat[1], row[3] = {f->flat[0], 1, n}, square[3] = {f->flat[0], n, n};
    qn_val many = qn_e_tile(v, qn_e_reshape(v, x, 3, row), 3, square), zeros = qn_e_zeros(v, many);
    qn_val ones = triangle(v, qn_e_scale(v, zeros, 1, 1), at->reverse ? UPPER_FULL : LOWER_FULL);
    qn_val between = scan_rows(v, qn_e_add(v, triangle(v, many, at->reverse ? LOWER : UPPER), ones), 1, at->reverse,
                               at->exclusive);
    int32_t behind = at->reverse ? (at->exclusive ? LOWER : LOWER_FULL) : (at->exclusive ? UPPER : UPPER_FULL);
    qn_val each = triangle(v, qn_e_mul(v, between, qn_e_reshape(v, g, 3, row)), behind);
    return qn_e_mul(v, scan_rows(v, x, 1, at->reverse, 1), qn_e_reshape(v, qn_e_sum_rows(v, each), 2, f->flat));
}

static void scan_back_formula(qn_vjp_call *v, qn_op_tape *t, qn_val *out) {
    (void)t;
    const qn_attr_scan_back *at = v->attr;
    qn_shape s = qn_shape_of(v, v->src[1]);
    const rows_form f = form_of(s, 1u << qn_op_axis(at->axis, s.rank));
    if (f.flat[0] == 0 || f.flat[1] == 0) return;
    qn_val g = to_rows(v, &f, qn_op_wide(v, qn_e_like(v, v->src[0], v->src[1]))); /* axes of 1 in front do not count */
    qn_val x = to_rows(v, &f, qn_op_wide(v, v->src[1]));
    qn_val dx = v->subop == QN_SCAN_prod ? product_back(v, &f, g, x) : scan_rows(v, g, 0, !at->reverse, at->exclusive);
    out[0] = from_rows(v, &f, dx);
}

void qn_vjp_scan_back(qn_vjp_call *v) { qn_op_vjp_of_formula(v, scan_back_formula); }
