/* Quantising on the way, for training: fake_quant rounds weights to the levels that a scale and a bias of their group make, qdq
 * takes them through a block dtype and back. Neither has a useful derivative, so their gradients pass straight through the
 * rounding. With z = (w - bias) / scale, q = z rounded and cut to the bins, and I = 1 where z is among them:
 *     dw = g I,   dscale = sum of g (q - I z),   dbias = sum of g (1 - I) */
#include <math.h>

#include "op/op_emit.h"
#include "op/product.h"

/* ---- Shape rules */

/* Scales and biases, one for each group of a row of w. */
static qn_status check_groups(qn_infer_call *c, int w, int64_t group) {
    const qn_tensor *x = c->src[w], *scales = c->src[w + 1];
    if (qn_ne(x, 0) % group) return qn_reject_src(c, w, QN_REASON_SHAPE_MULTIPLE, qn_axis(x, 0), group, qn_ne(x, 0));
    QN_TRY(qn_need_extent(c, w + 1, 0, qn_ne(x, 0) / group));
    for (int k = 1; k < (x->rank > scales->rank ? x->rank : scales->rank); k++) QN_TRY(qn_need_extent(c, w + 1, k, qn_ne(x, k)));
    QN_TRY(qn_need_same_shape(c, w + 2, w + 1));
    QN_TRY(qn_need_same_dtype(c, w + 1, w));
    return qn_need_same_dtype(c, w + 2, w);
}

qn_status qn_infer_fake_quant(qn_infer_call *c) {
    QN_TRY(check_groups(c, 0, ((const qn_attr_fake_quant *)c->attr)->group));
    c->flops_each = 5;
    qn_out_like(c, 0, c->src[0], c->src[0]->dtype);
    return QN_OK;
}

qn_status qn_infer_fake_quant_back(qn_infer_call *c) {
    QN_TRY(check_groups(c, 1, ((const qn_attr_fake_quant_back *)c->attr)->group));
    QN_TRY(qn_need_same_shape(c, 0, 1));
    QN_TRY(qn_need_same_dtype(c, 0, 1));
    c->flops_each = 8;
    for (int i = 0; i < 3; i++) qn_out_like(c, i, c->src[i + 1], c->src[i + 1]->dtype);
    return QN_OK;
}

qn_status qn_infer_qdq(qn_infer_call *c) {
    const qn_tensor *w = c->src[0];
    uint32_t dtype = (uint32_t)((const qn_attr_qdq *)c->attr)->dtype;
    if (!qn_is_block(dtype) || !qn_can_convert(QN_DTYPE_F32, (qn_dtype)dtype))
        return qn_reject_attr(c, "dtype", QN_REASON_DTYPE_CONVERT, -1, dtype, w->dtype);
    int64_t block = qn_dtype_describe((qn_dtype)dtype)->block;
    if (qn_ne(w, 0) % block) return qn_reject_src(c, 0, QN_REASON_SHAPE_MULTIPLE, qn_axis(w, 0), block, qn_ne(w, 0));
    c->flops_each = 5;
    qn_out_like(c, 0, w, w->dtype);
    return QN_OK;
}

/* ---- References */

typedef struct rounded {
    double z, q;
    int inside;
} rounded;

static rounded round_to_bins(double w, double scale, double bias, double top) {
    rounded r = {.z = (w - bias) / scale};
    r.inside = r.z >= 0 && r.z <= top;
    r.q = r.z <= 0 ? 0 : r.z >= top ? top : round(r.z);
    return r;
}

qn_status qn_ref_fake_quant(const qn_call *c) {
    const qn_attr_fake_quant *at = c->attr;
    const qn_tensor *w = c->src[0], *scales = c->src[1], *biases = c->src[2], *y = c->dst[0];
    double v, s, b;
    qn_rows it;
    for (qn_rows_begin(&it, w->rank, w->shape); it.live; qn_rows_next(&it))
        for (int64_t i = 0; i < it.n; i++) {
            qn_load_row(w, qn_row(&it, w), i, 1, &v);
            qn_load_row(scales, qn_row(&it, scales), i / at->group, 1, &s);
            qn_load_row(biases, qn_row(&it, biases), i / at->group, 1, &b);
            v = round_to_bins(v, s, b, at->bins - 1).q * s + b;
            qn_store_row(y, qn_row(&it, y), i, 1, &v);
        }
    return QN_OK;
}

qn_status qn_ref_fake_quant_back(const qn_call *c) {
    const qn_attr_fake_quant_back *at = c->attr;
    const qn_tensor *g = c->src[0], *w = c->src[1], *scales = c->src[2], *biases = c->src[3];
    qn_rows it;
    for (qn_rows_begin(&it, w->rank, w->shape); it.live; qn_rows_next(&it))
        for (int64_t first = 0; first < it.n; first += at->group) {
            double v, s, b, up, ds = 0, db = 0;
            qn_load_row(scales, qn_row(&it, scales), first / at->group, 1, &s);
            qn_load_row(biases, qn_row(&it, biases), first / at->group, 1, &b);
            for (int64_t i = first; i < first + at->group; i++) {
                qn_load_row(w, qn_row(&it, w), i, 1, &v);
                qn_load_row(g, qn_row(&it, g), i, 1, &up);
                rounded r = round_to_bins(v, s, b, at->bins - 1);
                ds += up * (r.inside ? r.q - r.z : r.q);
                db += r.inside ? 0 : up;
                v = r.inside ? up : 0;
                qn_store_row(c->dst[0], qn_row(&it, c->dst[0]), i, 1, &v);
            }
            qn_store_row(c->dst[1], qn_row(&it, c->dst[1]), first / at->group, 1, &ds);
            qn_store_row(c->dst[2], qn_row(&it, c->dst[2]), first / at->group, 1, &db);
        }
    return QN_OK;
}

/* The codec of the block dtype itself, on rows as f32 doubles: whatever a file would hold. */
qn_status qn_ref_qdq(const qn_call *c) {
    const qn_tensor *w = c->src[0], *y = c->dst[0];
    qn_dtype dtype = (qn_dtype)((const qn_attr_qdq *)c->attr)->dtype;
    const qn_dtype_info *info = qn_dtype_describe(dtype);
    char code[QN_RUN * 2];
    double v[QN_RUN];
    qn_rows it;
    for (qn_rows_begin(&it, w->rank, w->shape); it.live; qn_rows_next(&it))
        for (int64_t first = 0; first < it.n; first += info->block) {
            qn_load_row(w, qn_row(&it, w), first, info->block, v);
            qn_store_run(dtype, code, info->bytes, 0, info->block, v);
            qn_load_run(dtype, code, info->bytes, 0, info->block, v);
            qn_store_row(y, qn_row(&it, y), first, info->block, v);
        }
    return QN_OK;
}

/* ---- Gradients */

void qn_vjp_fake_quant(qn_vjp_call *v) {
    const qn_attr_fake_quant *from = v->attr;
    qn_attr_fake_quant_back at = qn_attr_fake_quant_back_default();
    qn_val src[4] = {v->grad[0], v->src[0], v->src[1], v->src[2]}, out[3];
    at.bins = from->bins;
    at.group = from->group;
    qn_emit_many(v, QN_OP_fake_quant_back, 0, &at, 4, src, 3, out);
    for (int i = 0; i < 3; i++)
        if (v->want[i]) v->out[i] = out[i];
}

void qn_vjp_qdq(qn_vjp_call *v) {
    if (v->want[0]) v->out[0] = v->grad[0];
}
