/* Rotary embedding by two positions, for patches of images: the first half of a head turns by the column, the second by the row,
 * each as a head of its own with channels half of it apart. */
#include <math.h>

#include "op/op_emit.h"
#include "op/product.h"

qn_status qn_infer_rope_2d(qn_infer_call *c) {
    const qn_tensor *x = c->src[0];
    if (qn_ne(x, 0) % 4) return qn_reject_src(c, 0, QN_REASON_SHAPE_MULTIPLE, qn_axis(x, 0), 4, qn_ne(x, 0));
    for (int i = 1; i < 3; i++) {
        QN_TRY(qn_need_rank(c, i, 1));
        QN_TRY(qn_need_extent(c, i, 0, qn_ne(x, 2)));
    }
    c->flops_each = 4;
    qn_out_like(c, 0, x, x->dtype);
    return QN_OK;
}

qn_status qn_ref_rope_2d(const qn_call *c) {
    const qn_attr_rope_2d *at = c->attr;
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    qn_dtype dtype = (qn_dtype)x->dtype;
    qn_rows it;
    for (qn_rows_begin(&it, x->rank, x->shape); it.live; qn_rows_next(&it)) {
        const char *from = qn_row(&it, x);
        char *to = qn_row(&it, y);
        int64_t quarter = it.n / 4, token = it.rank > 2 ? it.index[it.rank - 3] : 0;
        for (int64_t i = 0; i < 2 * quarter; i++) {
            int64_t u = i < quarter ? i : i + quarter, v = u + quarter;
            double pos = (double)qn_index4(c->src[i < quarter ? 1 : 2], 0, 0, 0, token);
            double angle = pos * pow((double)at->freq_base, -(double)(i % quarter) / (double)quarter);
            double co = cos(angle), si = at->back ? -sin(angle) : sin(angle);
            double a = qn_load_one(dtype, from + u * qn_nb(x, 0)), b = qn_load_one(dtype, from + v * qn_nb(x, 0));
            qn_store_one(dtype, to + u * qn_nb(y, 0), a * co - b * si);
            qn_store_one(dtype, to + v * qn_nb(y, 0), a * si + b * co);
        }
    }
    return QN_OK;
}

/* The transpose of a rotation turns the other way. */
void qn_vjp_rope_2d(qn_vjp_call *v) {
    qn_attr_rope_2d at = *(const qn_attr_rope_2d *)v->attr;
    at.back = !at.back;
    if (v->want[0]) v->out[0] = qn_emit3(v, QN_OP_rope_2d, 0, &at, v->grad[0], v->src[1], v->src[2]);
}
