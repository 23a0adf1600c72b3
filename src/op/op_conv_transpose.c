/* Transposed convolutions: every sample lays down a copy of the kernel, `s` apart, and what overlaps is added. Seen from the
 * result it is a convolution running backwards: the result's samples lie under windows whose outputs are x. */
#include "op/op_conv.h"

/* ---- Shape rules. Sources: the weights [Cin, Cout, taps..], then x. */

/* Completes the window of one axis and gives the result's extent there. */
static qn_status result_extent(qn_infer_call *c, int k, int32_t stride, int64_t *extent) {
    const qn_tensor *w = c->src[0], *x = c->src[1];
    qn_window a = {.taps = qn_ne(w, k), .stride = stride, .dilation = 1, .out = qn_ne(x, k)};
    if (a.taps < 1) return qn_reject_src(c, 0, QN_REASON_SHAPE_EMPTY, qn_axis(w, k), 1, a.taps);
    if (a.out < 1) return qn_reject_src(c, 1, QN_REASON_SHAPE_EMPTY, qn_axis(x, k), 1, a.out);
    if (qn_window_unfit(&a)) return qn_reject_src(c, 1, QN_REASON_WINDOW_OVERFLOW, qn_axis(x, k), 0, a.out);
    *extent = a.in;
    return QN_OK;
}

qn_status qn_infer_conv_transpose_1d(qn_infer_call *c) {
    const qn_attr_conv_transpose_1d *at = c->attr;
    int64_t d[2] = {qn_ne(c->src[0], 1), 0};
    QN_TRY(qn_need_rank(c, 0, 3));
    QN_TRY(qn_need_rank(c, 1, 2));
    QN_TRY(qn_need_extent(c, 1, 1, qn_ne(c->src[0], 2)));
    QN_TRY(result_extent(c, 0, at->s, &d[1]));
    QN_TRY(qn_need_f64_pair(c, 0, 1));
    const qn_tensor *w = c->src[0], *x = c->src[1];
    c->flops_each = 2.0 * (double)qn_ne(w, 2) * (double)qn_ne(w, 0) * (double)qn_ne(x, 0) / (double)d[1];
    return qn_out_shape(c, 0, x->dtype, 2, d);
}

qn_status qn_infer_conv_transpose_2d(qn_infer_call *c) {
    const qn_attr_conv_transpose_2d *at = c->attr;
    int64_t d[4] = {qn_ne(c->src[1], 3), qn_ne(c->src[0], 2), 0, 0};
    QN_TRY(qn_need_rank(c, 0, 4));
    QN_TRY(qn_need_rank(c, 1, 4));
    QN_TRY(qn_need_extent(c, 1, 2, qn_ne(c->src[0], 3)));
    QN_TRY(result_extent(c, 0, at->s, &d[3]));
    QN_TRY(result_extent(c, 1, at->s, &d[2]));
    QN_TRY(qn_need_f64_pair(c, 0, 1));
    const qn_tensor *w = c->src[0], *x = c->src[1];
    double taps = (double)qn_ne(w, 0) * (double)qn_ne(w, 1), places = (double)qn_ne(x, 0) * (double)qn_ne(x, 1);
    c->flops_each = 2.0 * (double)qn_ne(w, 3) * taps * places / ((double)d[2] * (double)d[3]);
    return qn_out_shape(c, 0, x->dtype, 4, d);
}

/* ---- References */

/* Both forms as images of width and height; byte strides. */
typedef struct lay_form {
    qn_window width, height;
    int64_t batch, in, out;
    const qn_tensor *w, *x, *y;
    int64_t w_in, w_out, w_height, x_batch, x_in, x_height, y_batch, y_out, y_height;
} lay_form;

/* acc[i] += what lies on column from + i of row (n, o, ih) of the result. */
static void sum_copies(const lay_form *f, int64_t n, int64_t o, int64_t ih, int64_t from, int64_t to, double *acc) {
    for (int64_t c = 0; c < f->in; c++)
        for (int64_t kh = 0; kh < f->height.taps; kh++) {
            int64_t row = qn_window_output(&f->height, ih, kh);
            if (row < 0) continue;
            char *w = qn_at(f->w, c * f->w_in + o * f->w_out + kh * f->w_height);
            char *x = qn_at(f->x, n * f->x_batch + c * f->x_in + row * f->x_height);
            qn_strip laid = {(qn_dtype)f->x->dtype, x, qn_nb(f->x, 0)};
            for (int64_t kw = 0; kw < f->width.taps; kw++) {
                double weight = qn_load_one((qn_dtype)f->w->dtype, w + kw * qn_nb(f->w, 0));
                qn_window_spread(&f->width, kw, laid, weight, from, to, acc);
            }
        }
}

static void lay_copies(const lay_form *f) {
    double acc[QN_RUN];
    if (f->in == 0) {
        qn_fill(f->y, 0);
        return;
    }
    for (int64_t r = 0; r < f->batch * f->out * f->height.in; r++) {
        int64_t ih = r % f->height.in, o = r / f->height.in % f->out, n = r / f->height.in / f->out;
        char *row = qn_at(f->y, n * f->y_batch + o * f->y_out + ih * f->y_height);
        for (int64_t from = 0; from < f->width.in; from += QN_RUN) {
            int64_t to = from + qn_some(f->width.in, from);
            for (int64_t i = 0; i < to - from; i++) acc[i] = 0;
            sum_copies(f, n, o, ih, from, to, acc);
            qn_store_row(f->y, row, from, to - from, acc);
        }
    }
}

static qn_window window_back(const lay_form *f, int k, int32_t stride) {
    qn_window a = {.in = qn_ne(f->y, k), .taps = qn_ne(f->w, k), .stride = stride, .dilation = 1, .out = qn_ne(f->x, k)};
    return a;
}

qn_status qn_ref_conv_transpose_1d(const qn_call *c) {
    const qn_attr_conv_transpose_1d *at = c->attr;
    lay_form f = {.height = QN_WINDOW_ALONG(1, 0, 1), .batch = 1, .w = c->src[0], .x = c->src[1], .y = c->dst[0]};
    f.width = window_back(&f, 0, at->s);
    f.in = qn_ne(f.w, 2);
    f.out = qn_ne(f.w, 1);
    f.w_in = qn_nb(f.w, 2);
    f.w_out = qn_nb(f.w, 1);
    f.x_in = qn_nb(f.x, 1);
    f.y_out = qn_nb(f.y, 1);
    lay_copies(&f);
    return QN_OK;
}

qn_status qn_ref_conv_transpose_2d(const qn_call *c) {
    const qn_attr_conv_transpose_2d *at = c->attr;
    lay_form f = {.w = c->src[0], .x = c->src[1], .y = c->dst[0]};
    f.width = window_back(&f, 0, at->s);
    f.height = window_back(&f, 1, at->s);
    f.batch = qn_ne(f.x, 3);
    f.in = qn_ne(f.w, 3);
    f.out = qn_ne(f.w, 2);
    f.w_in = qn_nb(f.w, 3);
    f.w_out = qn_nb(f.w, 2);
    f.w_height = qn_nb(f.w, 1);
    f.x_batch = qn_nb(f.x, 3);
    f.x_in = qn_nb(f.x, 2);
    f.x_height = qn_nb(f.x, 1);
    f.y_batch = qn_nb(f.y, 3);
    f.y_out = qn_nb(f.y, 2);
    f.y_height = qn_nb(f.y, 1);
    lay_copies(&f);
    return QN_OK;
}

/* ---- Gradients. The patches of g, one row per sample of x, meet the weights as [Cin, Cout times taps]: x gets their products,
 * the weights get x times them. */

static void gradients(qn_vjp_call *v, const qn_attr_im2col *at, int64_t batch, int64_t in) {
    qn_shape x = qn_shape_of(v, v->src[1]), g = qn_shape_of(v, v->grad[0]);
    qn_val patches = qn_emit2(v, QN_OP_im2col, 0, at, v->src[0], v->grad[0]);
    qn_shape p = qn_shape_of(v, patches);
    int64_t samples = at->is_2d ? qn_sd(&x, 0) * qn_sd(&x, 1) : qn_sd(&x, 0), patch = qn_sd(&p, 0), rows = batch * samples;
    int64_t wide[2] = {rows, patch}, flat[2] = {in, patch};
    int swap[3] = {0, 2, 1};
    patches = qn_e_reshape(v, patches, 2, wide);
    if (v->want[0]) {
        int64_t split[3] = {batch, in, samples}, tall[2] = {rows, in};
        qn_val columns = qn_e_reshape(v, qn_e_permute(v, qn_e_reshape(v, v->src[1], 3, split), 3, swap), 2, tall);
        v->out[0] = qn_e_like(v, qn_emit2(v, QN_OP_out_prod, 0, NULL, patches, columns), v->src[0]);
    }
    if (v->want[1]) {
        int64_t split[3] = {batch, samples, in};
        qn_val w = qn_e_cast(v, qn_e_reshape(v, v->src[0], 2, flat), g.dtype);
        qn_val back = qn_e_reshape(v, qn_emit2(v, QN_OP_mul_mat, 0, NULL, w, patches), 3, split);
        v->out[1] = qn_e_like(v, qn_e_permute(v, back, 3, swap), v->src[1]);
    }
}

void qn_vjp_conv_transpose_1d(qn_vjp_call *v) {
    const qn_attr_conv_transpose_1d *from = v->attr;
    qn_shape x = qn_shape_of(v, v->src[1]);
    qn_attr_im2col at = qn_attr_im2col_default();
    at.is_2d = 0;
    at.s0 = from->s;
    if (!qn_conv_is_idle(v)) gradients(v, &at, 1, qn_sd(&x, 1));
}

void qn_vjp_conv_transpose_2d(qn_vjp_call *v) {
    const qn_attr_conv_transpose_2d *from = v->attr;
    qn_shape x = qn_shape_of(v, v->src[1]);
    qn_attr_im2col at = qn_attr_im2col_default();
    at.s0 = at.s1 = from->s;
    if (!qn_conv_is_idle(v)) gradients(v, &at, qn_sd(&x, 3), qn_sd(&x, 2));
}
