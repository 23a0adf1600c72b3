/* Convolutions of graphs, which are cross-correlations: x is [N, C, ..], with one to three axes behind its channels, and
 * channels may be split into groups that do not see each other. A transposed convolution has the very weights of the
 * convolution whose adjoint it is, so each gives the other's gradient for x, and one op gives the weights' for both. */
#include "op/op_convn.h"
#include "op/op_emit.h"

typedef struct geometry {
    qn_window_lists lists;
    int32_t groups;
} geometry;

#define GEOMETRY_OF(at) \
    { {&(at)->stride, &(at)->padding, &(at)->padding_hi, &(at)->dilation}, (at)->groups }

/* ---- Shape rules */

/* One to three axes behind [N, C]; *axes becomes how many. */
static qn_status need_image(qn_infer_call *c, int slot, int *axes) {
    const qn_tensor *x = c->src[slot];
    *axes = x->rank - 2;
    if (*axes < 1) return qn_reject_src(c, slot, QN_REASON_SHAPE_RANK_LOW, -1, 3, x->rank);
    if (*axes > QN_WINDOW_AXES) return qn_reject_src(c, slot, QN_REASON_SHAPE_RANK, -1, 2 + QN_WINDOW_AXES, x->rank);
    return QN_OK;
}

/* As many axes as another source, whose rank is at least 3. */
static qn_status need_rank_of(qn_infer_call *c, int slot, int like) {
    int have = c->src[slot]->rank, want = c->src[like]->rank;
    if (have < want) return qn_reject_src(c, slot, QN_REASON_SHAPE_RANK_LOW, -1, want, have);
    return have > want ? qn_reject_src(c, slot, QN_REASON_SHAPE_RANK, -1, want, have) : QN_OK;
}

static qn_status need_multiple(qn_infer_call *c, int slot, int k, int64_t of) {
    int64_t n = qn_ne(c->src[slot], k);
    return n % of ? qn_reject_src(c, slot, QN_REASON_SHAPE_MULTIPLE, qn_axis(c->src[slot], k), of, n) : QN_OK;
}

static qn_status need_bias(qn_infer_call *c, int64_t channels) {
    if (!c->src[2]) return QN_OK;
    QN_TRY(qn_need_rank(c, 2, 1));
    QN_TRY(qn_need_extent(c, 2, 0, channels));
    return qn_need_f64_pair(c, 2, 0);
}

/* Fits kernels of `taps` to the image in `slot`. The taps are those of source `kernel`, or of the attribute when that is -1. */
static qn_status fit_axis(qn_infer_call *c, qn_window *w, int64_t behind, int slot, int kernel, int k) {
    const qn_tensor *x = c->src[slot];
    int at = kernel < 0 ? x->rank - 3 - k : qn_axis(c->src[kernel], k);
    qn_window_fault fault = qn_window_fit_between(w, behind);
    if (fault == QN_WINDOW_WIDE && kernel < 0) return qn_reject_attr(c, "kernel", QN_REASON_WINDOW_OVERFLOW, at, 0, w->taps);
    if (fault == QN_WINDOW_WIDE) return qn_reject_src(c, kernel, QN_REASON_WINDOW_OVERFLOW, at, 0, w->taps);
    if (fault == QN_WINDOW_OK) return QN_OK;
    int64_t least = w->dilation * (w->taps - 1) - w->pad - behind;
    return qn_reject_src(c, slot, QN_REASON_SHAPE_SMALL, qn_axis(x, k), least < INT64_MAX ? least + 1 : least, w->in);
}

/* Elements of the last axes of a tensor, for counting arithmetic. */
static double volume(const qn_tensor *t, int axes) {
    double n = 1;
    for (int k = 0; k < axes; k++) n *= (double)qn_ne(t, k);
    return n;
}

qn_status qn_infer_conv(qn_infer_call *c) {
    const qn_attr_conv *at = c->attr;
    const qn_tensor *x = c->src[0], *w = c->src[1];
    geometry g = GEOMETRY_OF(at);
    int64_t d[QN_MAX_RANK];
    int axes;
    QN_TRY(need_image(c, 0, &axes));
    QN_TRY(need_rank_of(c, 1, 0));
    QN_TRY(qn_need_window_lists(c, &g.lists, axes));
    QN_TRY(need_multiple(c, 0, axes, at->groups));
    QN_TRY(need_multiple(c, 1, axes + 1, at->groups));
    QN_TRY(qn_need_extent(c, 1, axes, qn_ne(x, axes) / at->groups));
    for (int k = 0; k < axes; k++) {
        qn_window win = qn_window_along(&g.lists, k);
        win.in = qn_ne(x, k);
        win.taps = qn_ne(w, k);
        if (win.taps < 1) return qn_reject_src(c, 1, QN_REASON_SHAPE_EMPTY, qn_axis(w, k), 1, 0);
        QN_TRY(fit_axis(c, &win, qn_pad_behind(&g.lists, k), 0, 1, k));
        d[x->rank - 1 - k] = win.out;
    }
    d[0] = x->shape[0];
    d[1] = w->shape[0];
    QN_TRY(qn_need_f64_pair(c, 1, 0));
    QN_TRY(need_bias(c, d[1]));
    c->flops_each = 2 * volume(w, axes + 1);
    return qn_out_shape(c, 0, qn_joint_dtype(x, w), x->rank, d);
}

/* The extent that a transposed window spreads `out` values over. */
static qn_status spread_axis(qn_infer_call *c, const qn_window *w, int64_t behind, int64_t more, int k, int64_t *extent) {
    const qn_tensor *x = c->src[0], *kernel = c->src[1];
    int64_t last, reach;
    if (w->out < 1) return qn_reject_src(c, 0, QN_REASON_SHAPE_EMPTY, qn_axis(x, k), 1, w->out);
    if (w->taps < 1) return qn_reject_src(c, 1, QN_REASON_SHAPE_EMPTY, qn_axis(kernel, k), 1, w->taps);
    if (more >= w->stride)
        return qn_reject_attr(c, "output_padding", QN_REASON_ATTR_ENTRY_HIGH, x->rank - 3 - k, w->stride - 1, more);
    if (qn_mul_overflow(w->out - 1, w->stride, &last))
        return qn_reject_src(c, 0, QN_REASON_WINDOW_OVERFLOW, qn_axis(x, k), 0, w->out);
    if (qn_mul_overflow(w->taps - 1, w->dilation, &reach) || qn_add_overflow(last, reach, &last) ||
        qn_add_overflow(last, more + 1, &last))
        return qn_reject_src(c, 1, QN_REASON_WINDOW_OVERFLOW, qn_axis(kernel, k), 0, w->taps);
    *extent = last - w->pad - behind;
    return *extent < 1 ? qn_reject_out(c, 0, QN_REASON_OUTPUT_EMPTY, qn_axis(x, k), 1, *extent) : QN_OK;
}

qn_status qn_infer_conv_transpose(qn_infer_call *c) {
    const qn_attr_conv_transpose *at = c->attr;
    const qn_tensor *x = c->src[0], *w = c->src[1];
    geometry g = GEOMETRY_OF(at);
    int64_t d[QN_MAX_RANK];
    int axes;
    QN_TRY(need_image(c, 0, &axes));
    QN_TRY(need_rank_of(c, 1, 0));
    QN_TRY(qn_need_window_lists(c, &g.lists, axes));
    QN_TRY(qn_need_list(c, "output_padding", &at->output_padding, axes, 0, INT32_MAX));
    QN_TRY(need_multiple(c, 0, axes, at->groups));
    QN_TRY(qn_need_extent(c, 1, axes + 1, qn_ne(x, axes)));
    for (int k = 0; k < axes; k++) {
        qn_window win = qn_window_along(&g.lists, k);
        win.out = qn_ne(x, k);
        win.taps = qn_ne(w, k);
        QN_TRY(
            spread_axis(c, &win, qn_pad_behind(&g.lists, k), qn_list_entry(&at->output_padding, k, 0), k, &d[x->rank - 1 - k]));
    }
    d[0] = x->shape[0];
    if (qn_mul_overflow(qn_ne(w, axes), at->groups, &d[1]))
        return qn_reject_out(c, 0, QN_REASON_SIZE_OVERFLOW, 1, INT64_MAX, qn_ne(w, axes));
    QN_TRY(qn_need_f64_pair(c, 1, 0));
    QN_TRY(need_bias(c, d[1]));
    c->flops_each = 2 * volume(w, axes) * volume(x, axes + 1) / at->groups;
    for (int k = 0; k < axes; k++) c->flops_each /= (double)d[x->rank - 1 - k];
    return qn_out_shape(c, 0, qn_joint_dtype(x, w), x->rank, d);
}

qn_status qn_infer_conv_back_w(qn_infer_call *c) {
    const qn_attr_conv_back_w *at = c->attr;
    const qn_tensor *gy = c->src[0], *x = c->src[1];
    geometry g = GEOMETRY_OF(at);
    int64_t d[QN_MAX_RANK];
    int axes;
    QN_TRY(need_image(c, 1, &axes));
    QN_TRY(need_rank_of(c, 0, 1));
    QN_TRY(qn_need_window_lists(c, &g.lists, axes));
    QN_TRY(qn_need_list(c, "kernel", &at->kernel, axes, 1, INT64_MAX));
    QN_TRY(need_multiple(c, 1, axes, at->groups));
    QN_TRY(need_multiple(c, 0, axes, at->groups));
    QN_TRY(qn_need_extent(c, 0, axes + 1, x->shape[0]));
    for (int k = 0; k < axes; k++) {
        qn_window win = qn_window_along(&g.lists, k);
        win.in = qn_ne(x, k);
        win.taps = d[x->rank - 1 - k] = qn_list_entry(&at->kernel, k, 1);
        QN_TRY(fit_axis(c, &win, qn_pad_behind(&g.lists, k), 1, -1, k));
        QN_TRY(qn_need_extent(c, 0, k, win.out));
    }
    d[0] = gy->shape[1];
    d[1] = x->shape[1] / at->groups;
    QN_TRY(qn_need_f64_pair(c, 0, 1));
    c->flops_each = 2 * volume(gy, axes) * (double)x->shape[0];
    return qn_out_shape(c, 0, qn_joint_dtype(gy, x), x->rank, d);
}

/* ---- References */

/* A convolution as byte strides: `few` holds the values at the windows' outputs and `many` the samples under them. */
typedef struct form {
    qn_window of[QN_WINDOW_AXES];
    const qn_tensor *few, *many, *w;
    int axes;
    int64_t batch, few_group, many_group; /* images, and channels of each side in one group */
} form;

static form form_of(const geometry *g, const qn_tensor *few, const qn_tensor *many, const qn_tensor *w) {
    form f = {.few = few, .many = many, .w = w, .axes = w->rank - 2, .batch = qn_ne(many, w->rank - 1)};
    f.few_group = w->shape[0] / g->groups;
    f.many_group = w->shape[1];
    for (int k = 0; k < QN_WINDOW_AXES; k++) {
        f.of[k] = (qn_window){.in = 1, .taps = 1, .stride = 1, .dilation = 1, .out = 1};
        if (k >= f.axes) continue;
        f.of[k] = qn_window_along(&g->lists, k);
        f.of[k].in = qn_ne(many, k);
        f.of[k].out = qn_ne(few, k);
        f.of[k].taps = qn_ne(w, k);
    }
    return f;
}

/* First byte of the row (depth, height) of channel `channel` of image n, in a tensor of the form's rank. */
static char *image_row(const form *f, const qn_tensor *t, int64_t n, int64_t channel, int64_t depth, int64_t height) {
    int64_t at = n * qn_nb(t, f->axes + 1) + channel * qn_nb(t, f->axes);
    if (f->axes > 1) at += height * qn_nb(t, 1);
    if (f->axes > 2) at += depth * qn_nb(t, 2);
    return qn_at(t, at);
}

static qn_strip strip_of(const form *f, const qn_tensor *t, int64_t n, int64_t channel, int64_t depth, int64_t height) {
    qn_strip s = {(qn_dtype)t->dtype, image_row(f, t, n, channel, depth, height), qn_nb(t, 0)};
    return s;
}

static double bias_of(const qn_tensor *bias, int64_t channel) { return bias ? qn_get4(bias, 0, 0, 0, channel) : 0; }

/* acc[i] += the sum for output column from + i of row (n, o, od, oh). */
static void collect_row(const form *f, int64_t n, int64_t o, int64_t od, int64_t oh, int64_t from, int64_t to, double *acc) {
    const qn_window *width = &f->of[0], *height = &f->of[1], *depth = &f->of[2];
    for (int64_t c = 0; c < f->many_group; c++)
        for (int64_t kd = 0; kd < depth->taps; kd++) {
            int64_t id = qn_window_sample(depth, od, kd);
            if (id < 0 || id >= depth->in) continue;
            for (int64_t kh = 0; kh < height->taps; kh++) {
                int64_t ih = qn_window_sample(height, oh, kh);
                if (ih < 0 || ih >= height->in) continue;
                char *w = image_row(f, f->w, o, c, kd, kh);
                qn_strip samples = strip_of(f, f->many, n, o / f->few_group * f->many_group + c, id, ih);
                for (int64_t kw = 0; kw < width->taps; kw++)
                    qn_window_collect(width, kw, samples, qn_load_one((qn_dtype)f->w->dtype, w + kw * qn_nb(f->w, 0)), from, to,
                                      acc);
            }
        }
}

/* acc[i] += what reaches sample from + i of row (n, m, id, ih). */
static void spread_row(const form *f, int64_t n, int64_t m, int64_t id, int64_t ih, int64_t from, int64_t to, double *acc) {
    const qn_window *width = &f->of[0], *height = &f->of[1], *depth = &f->of[2];
    for (int64_t c = m / f->many_group * f->few_group, end = c + f->few_group; c < end; c++)
        for (int64_t kd = 0; kd < depth->taps; kd++) {
            int64_t od = qn_window_output(depth, id, kd);
            if (od < 0) continue;
            for (int64_t kh = 0; kh < height->taps; kh++) {
                int64_t oh = qn_window_output(height, ih, kh);
                if (oh < 0) continue;
                char *w = image_row(f, f->w, c, m % f->many_group, kd, kh);
                qn_strip values = strip_of(f, f->few, n, c, od, oh);
                for (int64_t kw = 0; kw < width->taps; kw++)
                    qn_window_spread(width, kw, values, qn_load_one((qn_dtype)f->w->dtype, w + kw * qn_nb(f->w, 0)), from, to,
                                     acc);
            }
        }
}

typedef void (*row_fn)(const form *f, int64_t n, int64_t channel, int64_t depth, int64_t height, int64_t from, int64_t to,
                       double *acc);

/* Every row of y from its bias and, where there is anything to add up, from `row`. */
static void each_row(const form *f, const qn_tensor *y, const qn_tensor *bias, row_fn row, int idle) {
    double acc[QN_RUN];
    qn_rows it;
    for (qn_rows_begin(&it, y->rank, y->shape); it.live; qn_rows_next(&it)) {
        const int64_t *at = it.index; /* n, channel, then the image */
        int64_t n = at[0], channel = at[1], depth = f->axes > 2 ? at[2] : 0, height = f->axes > 1 ? at[f->axes] : 0;
        for (int64_t from = 0; from < it.n; from += QN_RUN) {
            int64_t to = from + qn_some(it.n, from);
            for (int64_t i = 0; i < to - from; i++) acc[i] = 0;
            if (!idle) row(f, n, channel, depth, height, from, to, acc);
            for (int64_t i = 0; i < to - from; i++) acc[i] += bias_of(bias, channel);
            qn_store_row(y, qn_row(&it, y), from, to - from, acc);
        }
    }
}

/* The destination with exactly the axes of the operands, which it may have fewer or more ones in front of. */
static qn_tensor with_rank(const qn_tensor *t, int rank) {
    qn_tensor out = *t;
    out.rank = rank;
    for (int k = 0; k < rank; k++) {
        out.shape[rank - 1 - k] = qn_ne(t, k);
        out.stride[rank - 1 - k] = qn_nb(t, k);
    }
    return out;
}

static int is_idle(const qn_tensor *a, const qn_tensor *b) { return qn_tensor_count(a) == 0 || qn_tensor_count(b) == 0; }

qn_status qn_ref_conv(const qn_call *c) {
    const qn_attr_conv *at = c->attr;
    geometry g = GEOMETRY_OF(at);
    qn_tensor y = with_rank(c->dst[0], c->src[0]->rank);
    form f = form_of(&g, &y, c->src[0], c->src[1]);
    each_row(&f, &y, c->src[2], collect_row, is_idle(c->src[0], c->src[1]));
    return QN_OK;
}

qn_status qn_ref_conv_transpose(const qn_call *c) {
    const qn_attr_conv_transpose *at = c->attr;
    geometry g = GEOMETRY_OF(at);
    qn_tensor y = with_rank(c->dst[0], c->src[0]->rank);
    form f = form_of(&g, c->src[0], &y, c->src[1]);
    each_row(&f, &y, c->src[2], spread_row, is_idle(c->src[0], c->src[1]));
    return QN_OK;
}

/* Sum over one row of outputs of each times the sample it sees at a tap. */
static double row_product(const qn_window *w, int64_t tap, qn_strip values, qn_strip samples) {
    double x[QN_RUN], y[QN_RUN], sum = 0;
    qn_range s = qn_window_outputs(w, tap, 0, w->in);
    for (int64_t o = s.first; o < s.last; o += QN_RUN) {
        int64_t some = qn_some(s.last, o);
        qn_strip_load(values, o, 1, some, x);
        qn_strip_load(samples, qn_window_sample(w, o, tap), w->stride, some, y);
        for (int64_t i = 0; i < some; i++) sum += x[i] * y[i];
    }
    return sum;
}

/* The gradient of weight (o, c, kd, kh, kw): over all images and windows, what came back times what the weight was shown. */
static double weight_grad(const form *f, int64_t o, int64_t c, int64_t kd, int64_t kh, int64_t kw) {
    const qn_window *width = &f->of[0], *height = &f->of[1], *depth = &f->of[2];
    int64_t channel = o / f->few_group * f->many_group + c;
    qn_range deep = qn_window_outputs(depth, kd, 0, depth->in), high = qn_window_outputs(height, kh, 0, height->in);
    double sum = 0;
    for (int64_t n = 0; n < f->batch; n++)
        for (int64_t od = deep.first; od < deep.last; od++)
            for (int64_t oh = high.first; oh < high.last; oh++) {
                int64_t id = qn_window_sample(depth, od, kd), ih = qn_window_sample(height, oh, kh);
                sum += row_product(width, kw, strip_of(f, f->few, n, o, od, oh), strip_of(f, f->many, n, channel, id, ih));
            }
    return sum;
}

qn_status qn_ref_conv_back_w(const qn_call *c) {
    const qn_attr_conv_back_w *at = c->attr;
    geometry g = GEOMETRY_OF(at);
    qn_tensor dw = with_rank(c->dst[0], c->src[1]->rank);
    form f = form_of(&g, c->src[0], c->src[1], &dw);
    int idle = is_idle(c->src[0], c->src[1]);
    qn_rows it;
    for (qn_rows_begin(&it, dw.rank, dw.shape); it.live; qn_rows_next(&it)) {
        int64_t kd = f.axes > 2 ? it.index[2] : 0, kh = f.axes > 1 ? it.index[f.axes] : 0;
        for (int64_t kw = 0; kw < it.n; kw++) {
            double v = idle ? 0 : weight_grad(&f, it.index[0], it.index[1], kd, kh, kw);
            qn_store_row(&dw, qn_row(&it, &dw), kw, 1, &v);
        }
    }
    return QN_OK;
}

/* ---- Gradients */

static int is_empty(qn_vjp_call *v, qn_val x) {
    qn_shape s = qn_shape_of(v, x);
    for (int i = 0; i < s.rank; i++)
        if (s.d[i] == 0) return 1;
    return 0;
}

#define COPY_GEOMETRY(to, from)                                                                  \
    ((to).groups = (from)->groups, (to).stride = (from)->stride, (to).padding = (from)->padding, \
     (to).padding_hi = (from)->padding_hi, (to).dilation = (from)->dilation)

/* The weights' gradient, from values at the windows' outputs and the samples under them. */
static qn_val weights_grad(qn_vjp_call *v, qn_attr_conv_back_w *at, qn_val few, qn_val many) {
    qn_shape w = qn_shape_of(v, v->src[1]);
    at->kernel.rank = w.rank - 2;
    for (int i = 0; i < w.rank - 2; i++) at->kernel.d[i] = w.d[i + 2];
    return qn_emit2(v, QN_OP_conv_back_w, 0, at, few, many);
}

/* A bias was added everywhere in its channel. */
static qn_val bias_grad(qn_vjp_call *v) {
    qn_shape g = qn_shape_of(v, v->grad[0]);
    int64_t flat[3] = {g.d[0], g.d[1], 1}, sum[3] = {1, g.d[1], 1};
    for (int i = 2; i < g.rank; i++) flat[2] *= g.d[i];
    return qn_e_like(v, qn_e_untile(v, qn_e_reshape(v, v->grad[0], 3, flat), 3, sum), v->src[2]);
}

/* What the windows left over at the end of each axis, which the adjoint must put back. */
static qn_dims left_over(qn_shape x, qn_shape w, geometry g) {
    qn_dims more;
    memset(&more, 0, sizeof more);
    more.rank = x.rank - 2;
    for (int k = 0; k < more.rank; k++) {
        qn_window win = qn_window_along(&g.lists, k);
        int64_t room = qn_sd(&x, k) + win.pad + qn_pad_behind(&g.lists, k);
        more.d[more.rank - 1 - k] = (room - win.dilation * (qn_sd(&w, k) - 1) - 1) % win.stride;
    }
    return more;
}

void qn_vjp_conv(qn_vjp_call *v) {
    const qn_attr_conv *from = v->attr;
    if (v->want[2]) v->out[2] = bias_grad(v);
    if (is_empty(v, v->grad[0]) || is_empty(v, v->src[0]) || is_empty(v, v->src[1])) return; /* the others are zero */
    if (v->want[0]) {
        qn_attr_conv_transpose at = qn_attr_conv_transpose_default();
        COPY_GEOMETRY(at, from);
        geometry how = GEOMETRY_OF(from);
        at.output_padding = left_over(qn_shape_of(v, v->src[0]), qn_shape_of(v, v->src[1]), how);
        v->out[0] = qn_emit2(v, QN_OP_conv_transpose, 0, &at, v->grad[0], v->src[1]);
    }
    if (v->want[1]) {
        qn_attr_conv_back_w at = qn_attr_conv_back_w_default();
        COPY_GEOMETRY(at, from);
        v->out[1] = weights_grad(v, &at, v->grad[0], v->src[0]);
    }
}

void qn_vjp_conv_transpose(qn_vjp_call *v) {
    const qn_attr_conv_transpose *from = v->attr;
    if (v->want[2]) v->out[2] = bias_grad(v);
    if (is_empty(v, v->grad[0]) || is_empty(v, v->src[0]) || is_empty(v, v->src[1])) return;
    if (v->want[0]) {
        qn_attr_conv at = qn_attr_conv_default();
        COPY_GEOMETRY(at, from);
        v->out[0] = qn_emit2(v, QN_OP_conv, 0, &at, v->grad[0], v->src[1]);
    }
    if (v->want[1]) {
        qn_attr_conv_back_w at = qn_attr_conv_back_w_default();
        COPY_GEOMETRY(at, from);
        v->out[1] = weights_grad(v, &at, v->src[0], v->grad[0]);
    }
}

/* dw is linear in g and in x: <up, dw> is <g, conv(x, up)>. */
void qn_vjp_conv_back_w(qn_vjp_call *v) {
    const qn_attr_conv_back_w *from = v->attr;
    qn_val up = v->grad[0], g = v->src[0], x = v->src[1];
    if (is_empty(v, up) || is_empty(v, g) || is_empty(v, x)) return;
    if (v->want[0]) {
        qn_attr_conv at = qn_attr_conv_default();
        COPY_GEOMETRY(at, from);
        v->out[0] = qn_emit2(v, QN_OP_conv, 0, &at, x, up);
    }
    if (v->want[1]) {
        qn_attr_conv_transpose at = qn_attr_conv_transpose_default();
        geometry how = GEOMETRY_OF(from);
        COPY_GEOMETRY(at, from);
        at.output_padding = left_over(qn_shape_of(v, x), qn_shape_of(v, up), how);
        v->out[1] = qn_emit2(v, QN_OP_conv_transpose, 0, &at, g, up);
    }
}
