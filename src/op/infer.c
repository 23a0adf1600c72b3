/* What the ops' own rules are written with: rejections, and the shape checks many of them share. */
#include "op/guard.h"
#include "tensor/convert.h"

qn_status qn_reject_src(qn_infer_call *c, int slot, qn_reason reason, int dim, int64_t expected, int64_t actual) {
    return qn_reject(c, QN_INVALID, QN_ARG_SOURCE, slot, reason, dim, expected, actual);
}

qn_status qn_reject_attr(qn_infer_call *c, const char *name, qn_reason reason, int dim, int64_t expected, int64_t actual) {
    int field = 0;
    while (field < c->info->n_attr && strcmp(c->info->attr[field].name, name) != 0) field++;
    return qn_reject(c, QN_INVALID, QN_ARG_ATTR, field, reason, dim, expected, actual);
}

qn_status qn_reject_out(qn_infer_call *c, int slot, qn_reason reason, int dim, int64_t expected, int64_t actual) {
    return qn_reject(c, QN_INVALID, QN_ARG_DEST, slot, reason, dim, expected, actual);
}

qn_status qn_reject_unsupported(qn_infer_call *c, int slot, qn_reason reason, int64_t expected, int64_t actual) {
    return qn_reject(c, QN_UNSUPPORTED, QN_ARG_SOURCE, slot, reason, -1, expected, actual);
}

qn_status qn_need_rank(qn_infer_call *c, int slot, int most) {
    const qn_tensor *t = c->src[slot];
    for (int k = most; k < t->rank; k++)
        if (qn_ne(t, k) != 1) return qn_reject_src(c, slot, QN_REASON_SHAPE_RANK, -1, most, t->rank);
    return QN_OK;
}

qn_status qn_need_extent(qn_infer_call *c, int slot, int k, int64_t want) {
    const qn_tensor *t = c->src[slot];
    if (qn_ne(t, k) == want) return QN_OK;
    return qn_reject_src(c, slot, QN_REASON_SHAPE_EXTENT, t->rank - 1 - k, want, qn_ne(t, k));
}

qn_status qn_need_same_shape(qn_infer_call *c, int slot, int like) {
    const qn_tensor *t = c->src[slot], *l = c->src[like];
    int rank = t->rank > l->rank ? t->rank : l->rank;
    for (int k = 0; k < rank; k++) QN_TRY(qn_need_extent(c, slot, k, qn_ne(l, k)));
    return QN_OK;
}

qn_status qn_need_same_dtype(qn_infer_call *c, int slot, int like) {
    uint32_t have = c->src[slot]->dtype, want = c->src[like]->dtype;
    return have == want ? QN_OK : qn_reject_src(c, slot, QN_REASON_DTYPE_PAIR, -1, want, have);
}

qn_status qn_need_contiguous(qn_infer_call *c, int slot) {
    const qn_tensor *t = c->src[slot];
    if (qn_tensor_is_contiguous(t)) return QN_OK;
    const qn_dtype_info *d = qn_dtype_describe((qn_dtype)t->dtype);
    int64_t step = d->bytes;
    for (int i = t->rank - 1; i >= 0; i--) {
        int64_t n = i == t->rank - 1 ? t->shape[i] / d->block : t->shape[i];
        if (n != 1 && t->stride[i] != step) return qn_reject_src(c, slot, QN_REASON_NOT_CONTIGUOUS, i, step, t->stride[i]);
        step *= n;
    }
    return QN_OK;
}

qn_status qn_need_tiles(qn_infer_call *c, int small, int big) {
    const qn_tensor *s = c->src[small], *b = c->src[big];
    int rank = s->rank > b->rank ? s->rank : b->rank;
    for (int k = 0; k < rank; k++) {
        int64_t ns = qn_ne(s, k), nb = qn_ne(b, k);
        if (ns == nb) continue;
        if (ns == 0 ? nb != 0 : nb % ns != 0) return qn_reject_src(c, small, QN_REASON_SHAPE_DIVIDES, s->rank - 1 - k, nb, ns);
    }
    return QN_OK;
}

void qn_out_like(qn_infer_call *c, int i, const qn_tensor *like, uint32_t dtype) {
    c->out[i].dtype = dtype;
    c->out[i].rank = like->rank;
    for (int k = 0; k < like->rank; k++) c->out[i].d[k] = like->shape[k];
    if (c->n_out <= i) c->n_out = i + 1;
}

qn_status qn_out_shape(qn_infer_call *c, int i, uint32_t dtype, int rank, const int64_t *d) {
    const qn_dtype_info *info = qn_dtype_describe((qn_dtype)dtype);
    int64_t bytes = info->bytes;
    int empty = 0;
    c->out[i].dtype = dtype;
    c->out[i].rank = rank;
    for (int k = 0; k < rank; k++) {
        if (d[k] < 0) return qn_reject_out(c, i, QN_REASON_NEGATIVE_EXTENT, k, 0, d[k]);
        if (d[k] && qn_mul_overflow(bytes, d[k], &bytes)) return qn_reject_out(c, i, QN_REASON_SIZE_OVERFLOW, k, INT64_MAX, d[k]);
        empty |= d[k] == 0;
        c->out[i].d[k] = d[k];
    }
    if (!empty && bytes / info->block > QN_LAYOUT_BYTES)
        return qn_reject_out(c, i, QN_REASON_SIZE_OVERFLOW, 0, QN_LAYOUT_BYTES, d[0]);
    if (d[rank - 1] % info->block) return qn_reject_out(c, i, QN_REASON_PARTIAL_BLOCK, rank - 1, info->block, d[rank - 1]);
    if (c->n_out <= i) c->n_out = i + 1;
    return QN_OK;
}

int qn_trim_rank(int rank, const int64_t *d, int least) {
    while (rank > least && d[0] == 1) {
        d++;
        rank--;
    }
    return rank;
}

int qn_infer_host_value(const qn_infer_call *c, int slot, int64_t i, double *value) {
    const qn_tensor *t = c->src[slot];
    if (!t || !t->data || (t->flags & QN_TENSOR_DEVICE) || i < 0 || i >= qn_tensor_count(t)) return 0;
    int64_t at = t->offset;
    for (int k = 0; k < t->rank; k++) {
        at += i % qn_ne(t, k) * qn_nb(t, k);
        i /= qn_ne(t, k);
    }
    *value = qn_load_one((qn_dtype)t->dtype, (const char *)t->data + at);
    return 1;
}

double qn_op_flops(const qn_infer_call *c) {
    double n = 1;
    if (c->info->is_view || c->n_out == 0) return 0;
    for (int i = 0; i < c->out[0].rank; i++) n *= (double)c->out[0].d[i];
    if (n == 0) return 0; /* the count for each may have been divided by it */
    return n * (c->flops_each > 0 ? c->flops_each : 1);
}
