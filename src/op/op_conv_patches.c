/* Patches: the samples under each position of a kernel, laid out as the rows of a matrix, and the way back, which adds what
 * overlaps. Convolutions are matrix products with them, so most convolution gradients are written with these ops. One pair of
 * loops serves all forms; a form only says where its axes lie. */
#include "op/op_conv.h"

/* ---- Shape rules */

/* Images of so many channels, as `axes` axes of windows see them. */
typedef struct patch_form {
    int axes;
    int64_t batch, channels;
    qn_windows w;
} patch_form;

/* Shape of the patch matrix: [batch, (height,) width, channels times taps], the depth folded into the batch. */
static qn_status patch_shape(qn_infer_call *c, const patch_form *f, qn_extents *out) {
    const qn_window *w = f->w.of;
    int64_t taps = w[0].taps * w[1].taps * w[2].taps, row, first; /* the taps are axes of a tensor, their product fits */
    if (qn_mul_overflow(f->channels, taps, &row)) /* the kernel has its channels as an axis too, unless they are given as ic */
        return qn_reject_attr(c, "ic", QN_REASON_ATTR_HIGH, -1, qn_f_bits((double)(INT64_MAX / taps)),
                              qn_f_bits((double)f->channels));
    if (qn_mul_overflow(f->batch, w[2].out, &first)) return qn_reject_out(c, 0, QN_REASON_SIZE_OVERFLOW, 0, INT64_MAX, f->batch);
    out->rank = f->axes == 1 ? 3 : 4;
    out->d[0] = row;
    out->d[1] = w[0].out;
    out->d[2] = f->axes == 1 ? first : w[1].out;
    out->d[3] = first;
    return QN_OK;
}

/* x f32 may come out halved, anything may come out as it is. */
static qn_status patch_dtype(qn_infer_call *c, uint32_t from, int32_t wanted, uint32_t *to) {
    *to = wanted ? (uint32_t)wanted : from;
    int halved = from == QN_DTYPE_F32 && (*to == QN_DTYPE_F16 || *to == QN_DTYPE_BF16);
    if (*to != from && !halved) return qn_reject_attr(c, "dtype", QN_REASON_DTYPE_PAIR, -1, from, *to);
    return QN_OK;
}

static qn_status out_patches(qn_infer_call *c, uint32_t dtype, const qn_extents *e) {
    int64_t d[4];
    for (int k = 0; k < e->rank; k++) d[k] = e->d[e->rank - 1 - k];
    return qn_out_shape(c, 0, dtype, e->rank, d);
}

/* The attribute `shape` of the ops that fold: an image of at most `most` axes. */
static qn_status image_shape(qn_infer_call *c, const qn_dims *shape, int most) {
    if (shape->rank > most) return qn_reject_attr(c, "shape", QN_REASON_ATTR_RANK, -1, most, shape->rank);
    for (int i = 0; i < shape->rank; i++)
        if (shape->d[i] < 0) return qn_reject_attr(c, "shape", QN_REASON_NEGATIVE_EXTENT, i, 0, shape->d[i]);
    return qn_out_shape(c, 0, qn_product_dtype(c->src[0]), shape->rank, shape->d);
}

static qn_status need_patches(qn_infer_call *c, const qn_extents *e) {
    QN_TRY(qn_need_rank(c, 0, e->rank));
    for (int k = 0; k < e->rank; k++) QN_TRY(qn_need_extent(c, 0, k, e->d[k]));
    return QN_OK;
}

static qn_windows windows_2d(const qn_attr_im2col *at) {
    qn_windows flat = QN_WINDOWS_1D(at), full = QN_WINDOWS_2D(at);
    return at->is_2d ? full : flat;
}

static qn_windows windows_2d_back(const qn_attr_im2col_back *at) {
    qn_windows flat = QN_WINDOWS_1D(at), full = QN_WINDOWS_2D(at);
    return at->is_2d ? full : flat;
}

qn_status qn_infer_im2col(qn_infer_call *c) {
    const qn_attr_im2col *at = c->attr;
    int axes = at->is_2d ? 2 : 1;
    qn_extents x = qn_extents_of(c->src[1]), y;
    patch_form f = {axes, x.d[axes + 1], x.d[axes], windows_2d(at)};
    uint32_t dtype;
    QN_TRY(qn_need_rank(c, 0, axes + 2));
    QN_TRY(qn_need_rank(c, 1, axes + 2));
    QN_TRY(qn_need_extent(c, 1, axes, qn_ne(c->src[0], axes)));
    QN_TRY(qn_windows_infer(c, &f.w, axes, &x, 1, 0));
    QN_TRY(patch_shape(c, &f, &y));
    QN_TRY(patch_dtype(c, c->src[1]->dtype, at->dtype, &dtype));
    return out_patches(c, dtype, &y);
}

qn_status qn_infer_im2col_back(qn_infer_call *c) {
    const qn_attr_im2col_back *at = c->attr;
    int axes = at->is_2d ? 2 : 1;
    qn_extents x = qn_extents_of_dims(&at->shape), g;
    patch_form f = {axes, x.d[axes + 1], x.d[axes], windows_2d_back(at)};
    QN_TRY(qn_need_rank(c, 1, axes + 2));
    QN_TRY(image_shape(c, &at->shape, axes + 2));
    if (x.d[axes] != qn_ne(c->src[1], axes))
        return qn_reject_attr(c, "shape", QN_REASON_ATTR_EXTENT, x.rank - 1 - axes, qn_ne(c->src[1], axes), x.d[axes]);
    QN_TRY(qn_windows_infer(c, &f.w, axes, &x, -1, 1));
    QN_TRY(patch_shape(c, &f, &g));
    return need_patches(c, &g);
}

/* The kernel's first axis is output channels times ic; a kernel lent for its window alone has 1 there. */
static qn_status need_kernel_3d(qn_infer_call *c, int kernel, int32_t ic) {
    const qn_tensor *k = c->src[kernel];
    QN_TRY(qn_need_rank(c, kernel, 4));
    if (qn_ne(k, 3) == 1 || qn_ne(k, 3) % ic == 0) return QN_OK;
    return qn_reject_src(c, kernel, QN_REASON_SHAPE_MULTIPLE, qn_axis(k, 3), ic, qn_ne(k, 3));
}

qn_status qn_infer_im2col_3d(qn_infer_call *c) {
    const qn_attr_im2col_3d *at = c->attr;
    qn_extents x = qn_extents_of(c->src[1]), y;
    patch_form f = {3, x.d[3] / at->ic, at->ic, QN_WINDOWS_3D(at)};
    uint32_t dtype;
    QN_TRY(need_kernel_3d(c, 0, at->ic));
    QN_TRY(qn_need_rank(c, 1, 4));
    if (x.d[3] % at->ic) return qn_reject_src(c, 1, QN_REASON_SHAPE_MULTIPLE, x.rank - 4, at->ic, x.d[3]);
    QN_TRY(qn_windows_infer(c, &f.w, 3, &x, 1, 0));
    QN_TRY(patch_shape(c, &f, &y));
    QN_TRY(patch_dtype(c, c->src[1]->dtype, at->dtype, &dtype));
    return out_patches(c, dtype, &y);
}

qn_status qn_infer_im2col_3d_back(qn_infer_call *c) {
    const qn_attr_im2col_3d_back *at = c->attr;
    qn_extents x = qn_extents_of_dims(&at->shape), g;
    patch_form f = {3, x.d[3] / at->ic, at->ic, QN_WINDOWS_3D(at)};
    QN_TRY(need_kernel_3d(c, 1, at->ic));
    QN_TRY(image_shape(c, &at->shape, 4));
    if (x.d[3] % at->ic) return qn_reject_attr(c, "shape", QN_REASON_SHAPE_MULTIPLE, x.rank - 4, at->ic, x.d[3]);
    QN_TRY(qn_windows_infer(c, &f.w, 3, &x, -1, 1));
    QN_TRY(patch_shape(c, &f, &g));
    return need_patches(c, &g);
}

/* The columns are 1-D patches without a batch, of a signal whose length follows from theirs. */
static qn_window window_of_columns(const qn_attr_col2im_1d *at, const qn_tensor *cols) {
    qn_window w = {.taps = qn_ne(cols, 0) / at->oc, .stride = at->s, .pad = at->p, .dilation = 1, .out = qn_ne(cols, 1)};
    return w;
}

qn_status qn_infer_col2im_1d(qn_infer_call *c) {
    const qn_attr_col2im_1d *at = c->attr;
    const qn_tensor *cols = c->src[0];
    qn_window w = window_of_columns(at, cols);
    QN_TRY(qn_need_rank(c, 0, 2));
    for (int k = 0; k < 2; k++)
        if (qn_ne(cols, k) == 0) return qn_reject_src(c, 0, QN_REASON_SHAPE_EMPTY, cols->rank - 1 - k, 1, 0);
    if (qn_ne(cols, 0) % at->oc) return qn_reject_src(c, 0, QN_REASON_SHAPE_MULTIPLE, cols->rank - 1, at->oc, qn_ne(cols, 0));
    if (qn_window_unfit(&w)) return qn_reject_src(c, 0, QN_REASON_WINDOW_OVERFLOW, cols->rank - 2, 0, w.out);
    if (w.in < 1) return qn_reject_out(c, 0, QN_REASON_OUTPUT_EMPTY, 1, 1, w.in);
    int64_t d[2] = {at->oc, w.in};
    return qn_out_shape(c, 0, cols->dtype, 2, d);
}

/* ---- References */

/* Where an image and its patches lie, as byte strides. */
typedef struct patch_map {
    qn_windows w;
    int64_t batch, channels;
    const qn_tensor *image, *rows;
    int64_t image_batch, image_channel, image_axis[QN_WINDOW_AXES];
    int64_t rows_batch, rows_axis[QN_WINDOW_AXES]; /* from one position of the window to the next */
} patch_map;

static patch_map map_2d(const qn_windows *w, int axes, const qn_tensor *image, const qn_tensor *rows) {
    patch_map m = {.w = *w, .image = image, .rows = rows, .channels = qn_ne(image, axes), .batch = qn_ne(image, axes + 1)};
    m.image_batch = qn_nb(image, axes + 1);
    m.image_channel = qn_nb(image, axes);
    m.rows_batch = qn_nb(rows, axes + 1);
    for (int k = 0; k < axes; k++) {
        m.image_axis[k] = qn_nb(image, k);
        m.rows_axis[k] = qn_nb(rows, k + 1);
    }
    return m;
}

static patch_map map_3d(const qn_windows *w, int64_t ic, const qn_tensor *image, const qn_tensor *rows) {
    patch_map m = {.w = *w, .image = image, .rows = rows, .channels = ic, .batch = qn_ne(image, 3) / ic};
    if (m.batch == 0) return m; /* strides of nothing may be anything, and overflow here */
    m.image_batch = qn_nb(image, 3) * ic;
    m.image_channel = qn_nb(image, 3);
    m.rows_batch = qn_nb(rows, 3) * w->of[2].out;
    for (int k = 0; k < 3; k++) {
        m.image_axis[k] = qn_nb(image, k);
        m.rows_axis[k] = qn_nb(rows, k + 1);
    }
    return m;
}

/* One column of the matrix at one row of positions: what tap kw sees in a row of the image, zeros where `samples` has none. */
static void unfold_column(const qn_window *w, int64_t kw, const qn_strip *samples, qn_strip column) {
    double run[QN_RUN];
    qn_range s = qn_window_outputs(w, kw, 0, samples ? w->in : 0);
    for (int64_t from = 0; from < w->out; from += QN_RUN) {
        int64_t to = from + qn_some(w->out, from);
        int64_t first = s.first > from ? s.first : from, last = s.last < to ? s.last : to;
        for (int64_t i = 0; i < to - from; i++) run[i] = 0;
        if (samples && first < last)
            qn_strip_load(*samples, qn_window_sample(w, first, kw), w->stride, last - first, run + (first - from));
        qn_store_run(column.dtype, column.at + from * column.step, column.step, 0, to - from, run);
    }
}

static void unfold(const patch_map *m) {
    const qn_window *width = &m->w.of[0], *height = &m->w.of[1], *depth = &m->w.of[2];
    int64_t kernel = width->taps * height->taps * depth->taps, has_samples = qn_tensor_count(m->image) > 0;
    if (qn_tensor_count(m->rows) == 0) return;
    for (int64_t r = 0; r < m->batch * depth->out * height->out; r++) {
        int64_t oh = r % height->out, od = r / height->out % depth->out, n = r / height->out / depth->out;
        char *row = qn_at(m->rows, n * m->rows_batch + od * m->rows_axis[2] + oh * m->rows_axis[1]);
        for (int64_t e = 0; e < m->channels * kernel; e++) {
            int64_t kw = e % width->taps, kh = e / width->taps % height->taps, kd = e / width->taps / height->taps % depth->taps;
            int64_t ih = qn_window_sample(height, oh, kh), id = qn_window_sample(depth, od, kd);
            int real = has_samples && ih >= 0 && ih < height->in && id >= 0 && id < depth->in;
            qn_strip samples = {(qn_dtype)m->image->dtype, NULL, m->image_axis[0]};
            qn_strip column = {(qn_dtype)m->rows->dtype, row + e * qn_nb(m->rows, 0), m->rows_axis[0]};
            if (real)
                samples.at = qn_at(m->image, n * m->image_batch + e / kernel * m->image_channel + id * m->image_axis[2] +
                                                 ih * m->image_axis[1]);
            unfold_column(width, kw, real ? &samples : NULL, column);
        }
    }
}

/* Samples [from, to) of one row of the image: every position that saw one of them gives it back. */
static void fold_samples(const patch_map *m, int64_t n, int64_t c, int64_t id, int64_t ih, int64_t from, int64_t to,
                         double *acc) {
    const qn_window *width = &m->w.of[0], *height = &m->w.of[1], *depth = &m->w.of[2];
    for (int64_t kd = 0; kd < depth->taps; kd++) {
        int64_t od = qn_window_output(depth, id, kd);
        if (od < 0) continue;
        for (int64_t kh = 0; kh < height->taps; kh++) {
            int64_t oh = qn_window_output(height, ih, kh);
            if (oh < 0) continue;
            int64_t e = ((c * depth->taps + kd) * height->taps + kh) * width->taps;
            int64_t at = n * m->rows_batch + od * m->rows_axis[2] + oh * m->rows_axis[1];
            for (int64_t kw = 0; kw < width->taps; kw++) {
                char *first = qn_at(m->rows, at + (e + kw) * qn_nb(m->rows, 0));
                qn_strip column = {(qn_dtype)m->rows->dtype, first, m->rows_axis[0]};
                qn_window_spread(width, kw, column, 1, from, to, acc);
            }
        }
    }
}

static void fold(const patch_map *m) {
    const qn_window *width = &m->w.of[0];
    int64_t height = m->w.of[1].in, depth = m->w.of[2].in;
    double acc[QN_RUN];
    if (qn_tensor_count(m->image) == 0) return;
    for (int64_t r = 0; r < m->batch * m->channels * depth * height; r++) {
        int64_t ih = r % height, id = r / height % depth;
        int64_t c = r / height / depth % m->channels, n = r / height / depth / m->channels;
        char *row = qn_at(m->image, n * m->image_batch + c * m->image_channel + id * m->image_axis[2] + ih * m->image_axis[1]);
        for (int64_t from = 0; from < width->in; from += QN_RUN) {
            int64_t to = from + qn_some(width->in, from);
            for (int64_t i = 0; i < to - from; i++) acc[i] = 0;
            fold_samples(m, n, c, id, ih, from, to, acc);
            qn_store_row(m->image, row, from, to - from, acc);
        }
    }
}

qn_status qn_ref_im2col(const qn_call *c) {
    const qn_attr_im2col *at = c->attr;
    int axes = at->is_2d ? 2 : 1;
    qn_windows w = windows_2d(at);
    qn_extents x = qn_extents_of(c->src[1]);
    qn_windows_fit(&w, axes, &x, c->src[0]);
    patch_map m = map_2d(&w, axes, c->src[1], c->dst[0]);
    unfold(&m);
    return QN_OK;
}

qn_status qn_ref_im2col_back(const qn_call *c) {
    const qn_attr_im2col_back *at = c->attr;
    int axes = at->is_2d ? 2 : 1;
    qn_windows w = windows_2d_back(at);
    qn_extents x = qn_extents_of(c->dst[0]);
    qn_windows_fit(&w, axes, &x, c->src[1]);
    patch_map m = map_2d(&w, axes, c->dst[0], c->src[0]);
    fold(&m);
    return QN_OK;
}

qn_status qn_ref_im2col_3d(const qn_call *c) {
    const qn_attr_im2col_3d *at = c->attr;
    qn_windows w = QN_WINDOWS_3D(at);
    qn_extents x = qn_extents_of(c->src[1]);
    qn_windows_fit(&w, 3, &x, c->src[0]);
    patch_map m = map_3d(&w, at->ic, c->src[1], c->dst[0]);
    unfold(&m);
    return QN_OK;
}

qn_status qn_ref_im2col_3d_back(const qn_call *c) {
    const qn_attr_im2col_3d_back *at = c->attr;
    qn_windows w = QN_WINDOWS_3D(at);
    qn_extents x = qn_extents_of(c->dst[0]);
    qn_windows_fit(&w, 3, &x, c->src[1]);
    patch_map m = map_3d(&w, at->ic, c->dst[0], c->src[0]);
    fold(&m);
    return QN_OK;
}

qn_status qn_ref_col2im_1d(const qn_call *c) {
    const qn_attr_col2im_1d *at = c->attr;
    const qn_tensor *cols = c->src[0], *y = c->dst[0];
    qn_windows w = {{window_of_columns(at, cols), QN_WINDOW_ALONG(1, 0, 1), QN_WINDOW_ALONG(1, 0, 1)}};
    w.of[0].in = qn_ne(y, 0);
    patch_map m = map_2d(&w, 1, y, cols);
    fold(&m);
    return QN_OK;
}

/* ---- Gradients: unfolding and folding are each other's transpose. */

void qn_vjp_im2col(qn_vjp_call *v) {
    const qn_attr_im2col *from = v->attr;
    if (!v->want[1]) return;
    qn_attr_im2col_back at = qn_attr_im2col_back_default();
    QN_COPY_WINDOWS_2D(at, from);
    at.is_2d = from->is_2d;
    at.shape = qn_dims_of(v, v->src[1], from->is_2d ? 4 : 3);
    v->out[1] = qn_with_rank_of(v, qn_emit2(v, QN_OP_im2col_back, 0, &at, v->grad[0], v->src[0]), v->src[1]);
}

void qn_vjp_im2col_back(qn_vjp_call *v) {
    const qn_attr_im2col_back *from = v->attr;
    if (!v->want[0]) return;
    qn_attr_im2col at = qn_attr_im2col_default();
    QN_COPY_WINDOWS_2D(at, from);
    at.is_2d = from->is_2d;
    v->out[0] = qn_with_rank_of(v, qn_emit2(v, QN_OP_im2col, 0, &at, v->src[1], v->grad[0]), v->src[0]);
}

void qn_vjp_im2col_3d(qn_vjp_call *v) {
    const qn_attr_im2col_3d *from = v->attr;
    if (!v->want[1]) return;
    qn_attr_im2col_3d_back at = qn_attr_im2col_3d_back_default();
    QN_COPY_WINDOWS_3D(at, from);
    at.ic = from->ic;
    at.shape = qn_dims_of(v, v->src[1], 4);
    v->out[1] = qn_with_rank_of(v, qn_emit2(v, QN_OP_im2col_3d_back, 0, &at, v->grad[0], v->src[0]), v->src[1]);
}

void qn_vjp_im2col_3d_back(qn_vjp_call *v) {
    const qn_attr_im2col_3d_back *from = v->attr;
    if (!v->want[0]) return;
    qn_attr_im2col_3d at = qn_attr_im2col_3d_default();
    QN_COPY_WINDOWS_3D(at, from);
    at.ic = from->ic;
    v->out[0] = qn_with_rank_of(v, qn_emit2(v, QN_OP_im2col_3d, 0, &at, v->src[1], v->grad[0]), v->src[0]);
}

/* The 1-D patches of g. The columns themselves, seen as [T, OC, K], lend the kernel's shape. */
void qn_vjp_col2im_1d(qn_vjp_call *v) {
    const qn_attr_col2im_1d *from = v->attr;
    if (!v->want[0]) return;
    qn_shape cols = qn_shape_of(v, v->src[0]);
    int64_t d[3] = {qn_sd(&cols, 1), from->oc, qn_sd(&cols, 0) / from->oc};
    qn_attr_im2col at = qn_attr_im2col_default();
    at.is_2d = 0;
    at.s0 = from->s;
    at.p0 = from->p;
    v->out[0] = qn_e_like(v, qn_emit2(v, QN_OP_im2col, 0, &at, qn_e_reshape(v, v->src[0], 3, d), v->grad[0]), v->src[0]);
}
