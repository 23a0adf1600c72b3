/* Cutting an image into square windows, and putting them together again. Windows that hang over the right or lower edge are
 * filled up with zeros, which are dropped on the way back; each op is the other's gradient. */
#include "op/op_conv.h"

/* How many windows of this size cover an extent. */
static int64_t windows_over(int64_t extent, int32_t size) { return extent / size + (extent % size != 0); }

/* ---- Shape rules */

qn_status qn_infer_win_part(qn_infer_call *c) {
    const qn_attr_win_part *at = c->attr;
    const qn_tensor *x = c->src[0];
    QN_TRY(qn_need_rank(c, 0, 3));
    int64_t d[4] = {windows_over(qn_ne(x, 2), at->w) * windows_over(qn_ne(x, 1), at->w), at->w, at->w, qn_ne(x, 0)};
    return qn_out_shape(c, 0, x->dtype, 4, d);
}

qn_status qn_infer_win_unpart(qn_infer_call *c) {
    const qn_attr_win_unpart *at = c->attr;
    const qn_tensor *x = c->src[0];
    int64_t windows, d[3] = {at->h0, at->w0, qn_ne(x, 0)};
    QN_TRY(qn_need_rank(c, 0, 4));
    QN_TRY(qn_need_extent(c, 0, 1, at->w));
    QN_TRY(qn_need_extent(c, 0, 2, at->w));
    if (qn_mul_overflow(windows_over(at->h0, at->w), windows_over(at->w0, at->w), &windows))
        return qn_reject_src(c, 0, QN_REASON_SHAPE_EXTENT, qn_axis(x, 3), INT64_MAX, qn_ne(x, 3));
    QN_TRY(qn_need_extent(c, 0, 3, windows));
    return qn_out_shape(c, 0, x->dtype, 3, d);
}

/* ---- References */

/* A run of channels from one place to another, or zeros when there is no source. */
static void move_channels(const qn_tensor *to, char *at, const qn_tensor *from, const char *source) {
    double run[QN_RUN];
    for (int64_t first = 0; first < qn_ne(to, 0); first += QN_RUN) {
        int64_t some = qn_some(qn_ne(to, 0), first);
        for (int64_t i = 0; i < some; i++) run[i] = 0;
        if (source) qn_load_row(from, source, first, some, run);
        qn_store_row(to, at, first, some, run);
    }
}

qn_status qn_ref_win_part(const qn_call *c) {
    const qn_attr_win_part *at = c->attr;
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    int64_t height = qn_ne(x, 2), width = qn_ne(x, 1), across = windows_over(width, at->w);
    if (qn_tensor_count(y) == 0) return QN_OK;
    for (int64_t p = 0; p < qn_ne(y, 3); p++)
        for (int64_t i = 0; i < at->w; i++)
            for (int64_t j = 0; j < at->w; j++) {
                int64_t row = p / across * at->w + i, column = p % across * at->w + j;
                int inside = row < height && column < width;
                move_channels(y, qn_row4(y, p, i, j), x, inside ? qn_row4(x, 0, row, column) : NULL);
            }
    return QN_OK;
}

qn_status qn_ref_win_unpart(const qn_call *c) {
    const qn_attr_win_unpart *at = c->attr;
    const qn_tensor *x = c->src[0], *y = c->dst[0];
    int64_t across = windows_over(at->w0, at->w);
    if (qn_tensor_count(y) == 0) return QN_OK;
    for (int64_t row = 0; row < at->h0; row++)
        for (int64_t column = 0; column < at->w0; column++) {
            int64_t p = row / at->w * across + column / at->w;
            move_channels(y, qn_row4(y, 0, row, column), x, qn_row4(x, p, row % at->w, column % at->w));
        }
    return QN_OK;
}

/* ---- Gradients */

void qn_vjp_win_part(qn_vjp_call *v) {
    const qn_attr_win_part *from = v->attr;
    qn_shape x = qn_shape_of(v, v->src[0]);
    if (qn_is_empty(v, v->src[0])) return;
    qn_attr_win_unpart at = qn_attr_win_unpart_default();
    at.w = from->w;
    at.h0 = qn_sd(&x, 2);
    at.w0 = qn_sd(&x, 1);
    v->out[0] = qn_with_rank_of(v, qn_emit1(v, QN_OP_win_unpart, 0, &at, v->grad[0]), v->src[0]);
}

void qn_vjp_win_unpart(qn_vjp_call *v) {
    const qn_attr_win_unpart *from = v->attr;
    qn_attr_win_part at = qn_attr_win_part_default();
    at.w = from->w;
    v->out[0] = qn_with_rank_of(v, qn_emit1(v, QN_OP_win_part, 0, &at, v->grad[0]), v->src[0]);
}
