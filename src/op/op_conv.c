/* Convolutions, which are cross-correlations: no kernel is turned around. All three forms are one loop over byte strides. Weights
 * may be halves; they and the samples are multiplied as they are, nothing is rounded before the sum is. */
#include "op/op_conv.h"

/* ---- Shape rules. Sources: the weights, then the image. */

qn_status qn_infer_conv_2d(qn_infer_call *c) {
    const qn_attr_conv_2d *at = c->attr;
    const qn_tensor *w = c->src[0], *x = c->src[1];
    qn_windows win = QN_WINDOWS_2D(at);
    qn_extents image = qn_extents_of(x);
    QN_TRY(qn_need_rank(c, 0, 4));
    QN_TRY(qn_need_rank(c, 1, 4));
    QN_TRY(qn_need_extent(c, 1, 2, qn_ne(w, 2)));
    QN_TRY(qn_windows_infer(c, &win, 2, &image, 1, 0));
    QN_TRY(qn_need_f64_pair(c, 0, 1));
    c->flops_each = 2.0 * (double)qn_ne(w, 0) * (double)qn_ne(w, 1) * (double)qn_ne(w, 2);
    int64_t d[4] = {qn_ne(x, 3), qn_ne(w, 3), win.of[1].out, win.of[0].out};
    return qn_out_shape(c, 0, x->dtype, 4, d);
}

qn_status qn_infer_conv_2d_dw(qn_infer_call *c) {
    const qn_attr_conv_2d_dw *at = c->attr;
    const qn_tensor *w = c->src[0], *x = c->src[1];
    qn_windows win = QN_WINDOWS_2D(at);
    qn_extents image = qn_extents_of(x);
    QN_TRY(qn_need_rank(c, 0, 4));
    QN_TRY(qn_need_rank(c, 1, 4));
    QN_TRY(qn_need_extent(c, 0, 2, 1));
    QN_TRY(qn_need_extent(c, 1, 2, qn_ne(w, 3)));
    QN_TRY(qn_windows_infer(c, &win, 2, &image, 1, 0));
    QN_TRY(qn_need_f64_pair(c, 0, 1));
    c->flops_each = 2.0 * (double)qn_ne(w, 0) * (double)qn_ne(w, 1);
    int64_t d[4] = {qn_ne(x, 3), qn_ne(w, 3), win.of[1].out, win.of[0].out};
    return qn_out_shape(c, 0, x->dtype, 4, d);
}

qn_status qn_infer_conv_3d(qn_infer_call *c) {
    const qn_attr_conv_3d *at = c->attr;
    qn_windows win = QN_WINDOWS_3D(at);
    qn_extents image = qn_extents_of(c->src[1]);
    QN_TRY(qn_need_rank(c, 0, 4));
    QN_TRY(qn_need_rank(c, 1, 4));
    QN_TRY(qn_need_extent(c, 0, 3, (int64_t)at->oc * at->ic));
    QN_TRY(qn_need_extent(c, 1, 3, (int64_t)at->n * at->ic));
    QN_TRY(qn_windows_infer(c, &win, 3, &image, 1, 0));
    QN_TRY(qn_need_f64_pair(c, 0, 1));
    const qn_tensor *w = c->src[0];
    c->flops_each = 2.0 * (double)qn_ne(w, 0) * (double)qn_ne(w, 1) * (double)qn_ne(w, 2) * (double)at->ic;
    int64_t d[4] = {(int64_t)at->n * at->oc, win.of[2].out, win.of[1].out, win.of[0].out};
    return qn_out_shape(c, 0, c->src[1]->dtype, 4, d);
}

/* ---- References */

/* Where the operands of a convolution lie, as byte strides. */
typedef struct conv_form {
    qn_windows win;
    int64_t batch, out, in; /* images, channels of y, channels of x that one channel of y sees */
    const qn_tensor *w, *x, *y;
    int64_t w_out, w_in, x_batch, x_out, x_in, y_batch, y_out; /* x_out: from what one channel of y sees to the next */
    int64_t w_axis[QN_WINDOW_AXES], x_axis[QN_WINDOW_AXES], y_axis[QN_WINDOW_AXES];
} conv_form;

static conv_form form_of(const qn_call *c, const qn_windows *win, int axes) {
    conv_form f = {.win = *win, .w = c->src[0], .x = c->src[1], .y = c->dst[0]};
    qn_extents image = qn_extents_of(f.x);
    qn_windows_fit(&f.win, axes, &image, f.w);
    for (int k = 0; k < axes; k++) {
        f.w_axis[k] = qn_nb(f.w, k);
        f.x_axis[k] = qn_nb(f.x, k);
        f.y_axis[k] = qn_nb(f.y, k);
    }
    return f;
}

/* acc[i] += the sum for output column from + i of row (n, o, od, oh). */
static void sum_taps(const conv_form *f, int64_t n, int64_t o, int64_t od, int64_t oh, int64_t from, int64_t to, double *acc) {
    const qn_window *width = &f->win.of[0], *height = &f->win.of[1], *depth = &f->win.of[2];
    for (int64_t c = 0; c < f->in; c++)
        for (int64_t kd = 0; kd < depth->taps; kd++) {
            int64_t id = qn_window_sample(depth, od, kd);
            if (id < 0 || id >= depth->in) continue;
            for (int64_t kh = 0; kh < height->taps; kh++) {
                int64_t ih = qn_window_sample(height, oh, kh);
                if (ih < 0 || ih >= height->in) continue;
                char *x = qn_at(f->x, n * f->x_batch + o * f->x_out + c * f->x_in + id * f->x_axis[2] + ih * f->x_axis[1]);
                char *w = qn_at(f->w, o * f->w_out + c * f->w_in + kd * f->w_axis[2] + kh * f->w_axis[1]);
                qn_strip samples = {(qn_dtype)f->x->dtype, x, f->x_axis[0]};
                for (int64_t kw = 0; kw < width->taps; kw++) {
                    double weight = qn_load_one((qn_dtype)f->w->dtype, w + kw * f->w_axis[0]);
                    qn_window_collect(width, kw, samples, weight, from, to, acc);
                }
            }
        }
}

static void convolve(const conv_form *f) {
    int64_t width = f->win.of[0].out, height = f->win.of[1].out, depth = f->win.of[2].out;
    double acc[QN_RUN];
    if (qn_tensor_count(f->x) == 0 || qn_tensor_count(f->w) == 0) {
        qn_fill(f->y, 0);
        return;
    }
    for (int64_t r = 0; r < f->batch * f->out * depth * height; r++) {
        int64_t oh = r % height, od = r / height % depth, o = r / height / depth % f->out, n = r / height / depth / f->out;
        char *row = qn_at(f->y, n * f->y_batch + o * f->y_out + od * f->y_axis[2] + oh * f->y_axis[1]);
        for (int64_t from = 0; from < width; from += QN_RUN) {
            int64_t to = from + qn_some(width, from);
            for (int64_t i = 0; i < to - from; i++) acc[i] = 0;
            sum_taps(f, n, o, od, oh, from, to, acc);
            qn_store_row(f->y, row, from, to - from, acc);
        }
    }
}

qn_status qn_ref_conv_2d(const qn_call *c) {
    const qn_attr_conv_2d *at = c->attr;
    qn_windows win = QN_WINDOWS_2D(at);
    conv_form f = form_of(c, &win, 2);
    f.batch = qn_ne(f.x, 3);
    f.out = qn_ne(f.w, 3);
    f.in = qn_ne(f.w, 2);
    f.w_out = qn_nb(f.w, 3);
    f.w_in = qn_nb(f.w, 2);
    f.x_batch = qn_nb(f.x, 3);
    f.x_in = qn_nb(f.x, 2);
    f.y_batch = qn_nb(f.y, 3);
    f.y_out = qn_nb(f.y, 2);
    convolve(&f);
    return QN_OK;
}

qn_status qn_ref_conv_2d_dw(const qn_call *c) {
    const qn_attr_conv_2d_dw *at = c->attr;
    qn_windows win = QN_WINDOWS_2D(at);
    conv_form f = form_of(c, &win, 2);
    f.batch = qn_ne(f.x, 3);
    f.out = qn_ne(f.w, 3);
    f.in = 1;
    f.w_out = qn_nb(f.w, 3);
    f.x_batch = qn_nb(f.x, 3);
    f.x_out = qn_nb(f.x, 2);
    f.y_batch = qn_nb(f.y, 3);
    f.y_out = qn_nb(f.y, 2);
    convolve(&f);
    return QN_OK;
}

qn_status qn_ref_conv_3d(const qn_call *c) {
    const qn_attr_conv_3d *at = c->attr;
    qn_windows win = QN_WINDOWS_3D(at);
    conv_form f = form_of(c, &win, 3);
    f.batch = at->n;
    f.out = at->oc;
    f.in = at->ic;
    if (qn_tensor_count(f.x) > 0) { /* strides of nothing may be anything, and overflow here */
        f.w_out = qn_nb(f.w, 3) * at->ic;
        f.w_in = qn_nb(f.w, 3);
        f.x_batch = qn_nb(f.x, 3) * at->ic;
        f.x_in = qn_nb(f.x, 3);
        f.y_batch = qn_nb(f.y, 3) * at->oc;
        f.y_out = qn_nb(f.y, 3);
    }
    convolve(&f);
    return QN_OK;
}

/* ---- Gradients. With the patches of x as the rows of P, y is P times the weights transposed; so the weights get the gradient
 * times P, and P gets the gradient times the weights, which folds back into x. */

static int64_t count_of(const qn_shape *s) {
    int64_t n = 1;
    for (int k = 0; k < s->rank; k++) n *= s->d[k];
    return n;
}

/* g as [batch, channels, positions], and the weights as [channels, patch]. */
typedef struct conv_sizes {
    uint32_t dtype;
    int64_t batch, out, positions, patch;
} conv_sizes;

static conv_sizes sizes_of(qn_vjp_call *v, int64_t batch, int64_t out) {
    qn_shape g = qn_shape_of(v, v->grad[0]), w = qn_shape_of(v, v->src[0]);
    conv_sizes z = {g.dtype, batch, out, count_of(&g) / batch / out, count_of(&w) / out};
    return z;
}

/* Gradient of the weights from the patches of x. */
static qn_val weights_grad(qn_vjp_call *v, const conv_sizes *z, qn_val patches) {
    int64_t split[3] = {z->batch, z->out, z->positions}, rows = z->batch * z->positions;
    int64_t tall[2] = {rows, z->out}, wide[2] = {rows, z->patch};
    int swap[3] = {0, 2, 1};
    qn_val g = qn_e_reshape(v, qn_e_permute(v, qn_e_reshape(v, v->grad[0], 3, split), 3, swap), 2, tall);
    return qn_e_like(v, qn_emit2(v, QN_OP_out_prod, 0, NULL, qn_e_reshape(v, patches, 2, wide), g), v->src[0]);
}

/* Gradient of the patches, [batch, positions, patch]. */
static qn_val patches_grad(qn_vjp_call *v, const conv_sizes *z) {
    int64_t split[3] = {z->batch, z->out, z->positions}, flat[2] = {z->out, z->patch};
    qn_val w = qn_e_cast(v, qn_e_reshape(v, v->src[0], 2, flat), z->dtype);
    return qn_emit2(v, QN_OP_out_prod, 0, NULL, w, qn_e_reshape(v, v->grad[0], 3, split));
}

void qn_vjp_conv_2d(qn_vjp_call *v) {
    const qn_attr_conv_2d *from = v->attr;
    if (qn_conv_is_idle(v)) return;
    qn_shape g = qn_shape_of(v, v->grad[0]);
    conv_sizes z = sizes_of(v, qn_sd(&g, 3), qn_sd(&g, 2));
    if (v->want[0]) {
        qn_attr_im2col at = qn_attr_im2col_default();
        QN_COPY_WINDOWS_2D(at, from);
        v->out[0] = weights_grad(v, &z, qn_emit2(v, QN_OP_im2col, 0, &at, v->src[0], v->src[1]));
    }
    if (v->want[1]) {
        qn_attr_im2col_back at = qn_attr_im2col_back_default();
        QN_COPY_WINDOWS_2D(at, from);
        at.shape = qn_dims_of(v, v->src[1], 4);
        int64_t rows[4] = {z.batch, qn_sd(&g, 1), qn_sd(&g, 0), z.patch};
        qn_val patches = qn_e_reshape(v, patches_grad(v, &z), 4, rows);
        v->out[1] = qn_with_rank_of(v, qn_emit2(v, QN_OP_im2col_back, 0, &at, patches, v->src[0]), v->src[1]);
    }
}

void qn_vjp_conv_3d(qn_vjp_call *v) {
    const qn_attr_conv_3d *from = v->attr;
    if (qn_conv_is_idle(v)) return;
    qn_shape g = qn_shape_of(v, v->grad[0]);
    conv_sizes z = sizes_of(v, from->n, from->oc);
    if (v->want[0]) {
        qn_attr_im2col_3d at = qn_attr_im2col_3d_default();
        QN_COPY_WINDOWS_3D(at, from);
        at.ic = from->ic;
        v->out[0] = weights_grad(v, &z, qn_emit2(v, QN_OP_im2col_3d, 0, &at, v->src[0], v->src[1]));
    }
    if (v->want[1]) {
        qn_attr_im2col_3d_back at = qn_attr_im2col_3d_back_default();
        QN_COPY_WINDOWS_3D(at, from);
        at.ic = from->ic;
        at.shape = qn_dims_of(v, v->src[1], 4);
        int64_t rows[4] = {z.batch * qn_sd(&g, 2), qn_sd(&g, 1), qn_sd(&g, 0), z.patch};
        qn_val patches = qn_e_reshape(v, patches_grad(v, &z), 4, rows);
        v->out[1] = qn_with_rank_of(v, qn_emit2(v, QN_OP_im2col_3d_back, 0, &at, patches, v->src[0]), v->src[1]);
    }
}

/* Depthwise, every channel of every image is an image of one channel with weights of its own: a batch of thin products. */
void qn_vjp_conv_2d_dw(qn_vjp_call *v) {
    const qn_attr_conv_2d_dw *from = v->attr;
    if (qn_conv_is_idle(v)) return;
    qn_shape g = qn_shape_of(v, v->grad[0]), x = qn_shape_of(v, v->src[1]), w = qn_shape_of(v, v->src[0]);
    int64_t n = qn_sd(&g, 3), c = qn_sd(&g, 2), positions = qn_sd(&g, 1) * qn_sd(&g, 0), patch = qn_sd(&w, 1) * qn_sd(&w, 0);
    int64_t single[4] = {n * c, 1, qn_sd(&x, 1), qn_sd(&x, 0)};
    if (v->want[0]) {
        qn_attr_im2col at = qn_attr_im2col_default();
        QN_COPY_WINDOWS_2D(at, from);
        int64_t rows[4] = {n, c, positions, patch}, column[4] = {n, c, positions, 1}, sum[4] = {1, c, 1, patch};
        qn_val patches = qn_emit2(v, QN_OP_im2col, 0, &at, v->src[0], qn_e_reshape(v, v->src[1], 4, single));
        qn_val each = qn_emit2(v, QN_OP_out_prod, 0, NULL, qn_e_reshape(v, patches, 4, rows),
                               qn_e_reshape(v, v->grad[0], 4, column));
        v->out[0] = qn_e_like(v, qn_e_untile(v, each, 4, sum), v->src[0]);
    }
    if (v->want[1]) {
        qn_attr_im2col_back at = qn_attr_im2col_back_default();
        QN_COPY_WINDOWS_2D(at, from);
        at.shape.rank = 4;
        memcpy(at.shape.d, single, sizeof single);
        int64_t row[4] = {n, c, 1, positions}, weights[4] = {1, c, 1, patch};
        int64_t rows[4] = {n * c, qn_sd(&g, 1), qn_sd(&g, 0), patch};
        qn_val each = qn_emit2(v, QN_OP_out_prod, 0, NULL, qn_e_cast(v, qn_e_reshape(v, v->src[0], 4, weights), g.dtype),
                               qn_e_reshape(v, v->grad[0], 4, row));
        v->out[1] = qn_e_like(v, qn_emit2(v, QN_OP_im2col_back, 0, &at, qn_e_reshape(v, each, 4, rows), v->src[0]), v->src[1]);
    }
}
