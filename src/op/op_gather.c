/* Rows chosen by index: get_rows and its adjoints, set_rows and the gradient of its rows. Indices have one axis less than what
 * they choose from: axis k of an index tensor, counted from the end, goes with axis k + 1 of the rows. The indices were found
 * in range before any of this runs. */
#include "op/op_emit.h"
#include "op/op_layout.h"

enum { LAST = QN_MAX_RANK - 1, ROW = QN_MAX_RANK - 2 };

/* ---- Shape rules */

/* c->out[0]: the shape of a source with another number of rows. */
static qn_status out_rows(qn_infer_call *c, const qn_tensor *like, int64_t rows, uint32_t dtype) {
    int rank = like->rank < 2 ? 2 : like->rank;
    int64_t d[QN_MAX_RANK];
    for (int k = 0; k < rank; k++) d[rank - 1 - k] = k == 1 ? rows : qn_ne(like, k);
    return qn_out_shape(c, 0, dtype, rank, d);
}

/* Rejects indices whose batch is not exactly that of `like`. */
static qn_status need_batch(qn_infer_call *c, int idx, const qn_tensor *like) {
    for (int k = 1; k < QN_MAX_RANK; k++) QN_TRY(qn_need_extent(c, idx, k, qn_ne(like, k + 1)));
    return QN_OK;
}

/* Rejects indices whose batch does not tile that of `like`. */
static qn_status need_batch_tiles(qn_infer_call *c, int idx, const qn_tensor *like) {
    const qn_tensor *t = c->src[idx];
    for (int k = 1; k < QN_MAX_RANK; k++) {
        int64_t small = qn_ne(t, k), big = qn_ne(like, k + 1);
        if (small ? big % small != 0 : big != 0)
            return qn_reject_src(c, idx, QN_REASON_SHAPE_DIVIDES, t->rank - 1 - k, big, small);
    }
    return QN_OK;
}

static uint32_t widened(uint32_t dtype) { return dtype == QN_DTYPE_F64 || dtype == QN_DTYPE_I32 ? dtype : QN_DTYPE_F32; }

qn_status qn_infer_get_rows(qn_infer_call *c) {
    const qn_tensor *a = c->src[0], *idx = c->src[1];
    QN_TRY(need_batch(c, 1, a));
    c->index_limit[1] = qn_ne(a, 1);
    return out_rows(c, a, qn_ne(idx, 0), widened(a->dtype));
}

qn_status qn_infer_scatter_add_rows(qn_infer_call *c) {
    const qn_attr_scatter_add_rows *at = c->attr;
    const qn_tensor *g = c->src[0];
    QN_TRY(qn_need_extent(c, 1, 0, qn_ne(g, 1)));
    QN_TRY(need_batch(c, 1, g));
    c->index_limit[1] = at->rows;
    return out_rows(c, g, at->rows, widened(g->dtype));
}

qn_status qn_infer_get_rows_back(qn_infer_call *c) {
    const qn_attr_get_rows_back *at = c->attr;
    const qn_tensor *g = c->src[0];
    QN_TRY(qn_need_rank(c, 0, 2));
    QN_TRY(qn_need_rank(c, 1, 1));
    QN_TRY(qn_need_extent(c, 1, 0, qn_ne(g, 1)));
    c->index_limit[1] = at->rows;
    int64_t d[2] = {at->rows, qn_ne(g, 0)};
    return qn_out_shape(c, 0, widened(g->dtype), 2, d);
}

qn_status qn_infer_set_rows(qn_infer_call *c) {
    const qn_tensor *a = c->src[0], *b = c->src[1];
    QN_TRY(qn_need_extent(c, 1, 0, qn_ne(a, 0)));
    for (int k = 2; k < QN_MAX_RANK; k++) QN_TRY(qn_need_extent(c, 1, k, qn_ne(a, k)));
    QN_TRY(qn_need_extent(c, 2, 0, qn_ne(b, 1)));
    QN_TRY(need_batch_tiles(c, 2, a));
    if ((a->dtype == QN_DTYPE_F64) != (b->dtype == QN_DTYPE_F64)) return qn_need_same_dtype(c, 1, 0);
    c->index_limit[2] = qn_ne(a, 1);
    qn_out_like(c, 0, a, a->dtype);
    if (!qn_can_convert((qn_dtype)b->dtype, (qn_dtype)a->dtype))
        return qn_reject_unsupported(c, 0, QN_REASON_DTYPE_CONVERT, a->dtype, b->dtype);
    return QN_OK;
}

qn_status qn_infer_store_rows(qn_infer_call *c) {
    if (!(c->src[0]->flags & QN_TENSOR_PARAM)) return qn_reject_src(c, 0, QN_REASON_NOT_PARAMETER, -1, 0, 0);
    return qn_infer_set_rows(c);
}

qn_status qn_infer_set_rows_back(qn_infer_call *c) {
    const qn_tensor *g = c->src[0];
    QN_TRY(need_batch_tiles(c, 1, g));
    c->index_limit[1] = qn_ne(g, 1);
    return out_rows(c, g, qn_ne(c->src[1], 0), g->dtype);
}

/* ---- References. All tensors are widened to the full rank first. */

/* Index number i of the batch this row lies in; the batch of the indices is tiled. */
static int64_t index_at(const qn_rows *it, const qn_tensor *idx, int64_t i) {
    int64_t offset = i * idx->stride[LAST];
    for (int j = 0; j < ROW; j++) offset += it->index[j] % idx->shape[j + 1] * idx->stride[j + 1];
    return qn_load_index((qn_dtype)idx->dtype, qn_at(idx, offset));
}

/* Row number `row` of the batch this row lies in, as a tensor of one axis. */
static qn_tensor row_at(const qn_rows *it, const qn_tensor *t, int64_t row) {
    qn_tensor r = *t;
    for (int j = 0; j < ROW; j++) r.offset += it->index[j] * t->stride[j];
    r.offset += row * t->stride[ROW];
    r.rank = 1;
    r.shape[0] = t->shape[LAST];
    r.stride[0] = t->stride[LAST];
    return r;
}

qn_status qn_ref_get_rows(const qn_call *c) {
    qn_tensor y = qn_op_tensor_widen(c->dst[0]), a = qn_op_tensor_widen(c->src[0]), idx = qn_op_tensor_widen(c->src[1]);
    qn_rows it;
    for (qn_rows_begin(&it, y.rank, y.shape); it.live; qn_rows_next(&it)) {
        qn_tensor from = row_at(&it, &a, index_at(&it, &idx, it.index[ROW])), to = row_at(&it, &y, it.index[ROW]);
        qn_copy(&to, &from);
    }
    return QN_OK;
}

static void add_row(const qn_tensor *to, const qn_tensor *from) {
    double sum[QN_RUN], more[QN_RUN];
    for (int64_t at = 0; at < to->shape[0]; at += QN_RUN) {
        int64_t n = to->shape[0] - at < QN_RUN ? to->shape[0] - at : QN_RUN;
        qn_load_row(to, qn_at(to, 0), at, n, sum);
        qn_load_row(from, qn_at(from, 0), at, n, more);
        for (int64_t i = 0; i < n; i++) sum[i] += more[i];
        qn_store_row(to, qn_at(to, 0), at, n, sum);
    }
}

/* In order of the indices, so that equal ones add up the same way every time. */
qn_status qn_ref_scatter_add_rows(const qn_call *c) {
    qn_tensor y = qn_op_tensor_widen(c->dst[0]), g = qn_op_tensor_widen(c->src[0]), idx = qn_op_tensor_widen(c->src[1]);
    qn_rows it;
    qn_fill(c->dst[0], 0);
    for (qn_rows_begin(&it, g.rank, g.shape); it.live; qn_rows_next(&it)) {
        qn_tensor from = row_at(&it, &g, it.index[ROW]), to = row_at(&it, &y, index_at(&it, &idx, it.index[ROW]));
        add_row(&to, &from);
    }
    return QN_OK;
}

qn_status qn_ref_get_rows_back(const qn_call *c) { return qn_ref_scatter_add_rows(c); }

/* In order of the indices: of equal ones the last stays. */
qn_status qn_ref_set_rows(const qn_call *c) {
    qn_tensor y = qn_op_tensor_widen(c->dst[0]), b = qn_op_tensor_widen(c->src[1]), idx = qn_op_tensor_widen(c->src[2]);
    qn_rows it;
    if (!qn_op_in_place(c->dst[0], c->src[0])) qn_copy(c->dst[0], c->src[0]);
    for (qn_rows_begin(&it, b.rank, b.shape); it.live; qn_rows_next(&it)) {
        qn_tensor from = row_at(&it, &b, it.index[ROW]), to = row_at(&it, &y, index_at(&it, &idx, it.index[ROW]));
        qn_copy(&to, &from);
    }
    return QN_OK;
}

qn_status qn_ref_store_rows(const qn_call *c) { return qn_ref_set_rows(c); }

/* Whether a later row of the batch went to the same place. Looking at all of them keeps the op free of a table of places. */
static int replaced(const qn_rows *it, const qn_tensor *idx, int64_t i, int64_t place) {
    for (int64_t later = i + 1; later < idx->shape[LAST]; later++)
        if (index_at(it, idx, later) == place) return 1;
    return 0;
}

qn_status qn_ref_set_rows_back(const qn_call *c) {
    qn_tensor y = qn_op_tensor_widen(c->dst[0]), g = qn_op_tensor_widen(c->src[0]), idx = qn_op_tensor_widen(c->src[1]);
    qn_rows it;
    for (qn_rows_begin(&it, y.rank, y.shape); it.live; qn_rows_next(&it)) {
        int64_t i = it.index[ROW], place = index_at(&it, &idx, i);
        qn_tensor from = row_at(&it, &g, place), to = row_at(&it, &y, i);
        if (replaced(&it, &idx, i, place)) qn_fill(&to, 0);
        else qn_copy(&to, &from);
    }
    return QN_OK;
}

/* ---- Gradients */

void qn_vjp_get_rows(qn_vjp_call *v) {
    qn_shape a = qn_shape_of(v, v->src[0]);
    qn_attr_scatter_add_rows at = qn_attr_scatter_add_rows_default();
    at.rows = qn_sd(&a, 1);
    if (v->want[0]) v->out[0] = qn_e_like(v, qn_emit2(v, QN_OP_scatter_add_rows, 0, &at, v->grad[0], v->src[1]), v->src[0]);
}

void qn_vjp_scatter_add_rows(qn_vjp_call *v) {
    if (v->want[0]) v->out[0] = qn_e_like(v, qn_emit2(v, QN_OP_get_rows, 0, NULL, v->grad[0], v->src[1]), v->src[0]);
}

/* Rows that were replaced no longer matter to a; of the rows of b those do that are still there. */
void qn_vjp_set_rows(qn_vjp_call *v) {
    qn_val g = v->grad[0];
    if (v->want[0]) {
        qn_val zeros = qn_e_cast(v, qn_e_zeros(v, v->src[1]), qn_shape_of(v, g).dtype);
        v->out[0] = qn_emit3(v, QN_OP_set_rows, 0, NULL, g, zeros, v->src[2]);
    }
    if (v->want[1]) v->out[1] = qn_e_like(v, qn_emit2(v, QN_OP_set_rows_back, 0, NULL, g, v->src[2]), v->src[1]);
}

void qn_vjp_get_rows_back(qn_vjp_call *v) { qn_vjp_scatter_add_rows(v); }

/* Every row goes back where it came from; of several from one place the last one stays, which is the one that counted. */
void qn_vjp_set_rows_back(qn_vjp_call *v) {
    qn_val up = v->grad[0], zeros = qn_e_cast(v, qn_e_zeros(v, v->src[0]), qn_shape_of(v, up).dtype);
    if (v->want[0]) v->out[0] = qn_emit3(v, QN_OP_set_rows, 0, NULL, zeros, up, v->src[1]);
}
