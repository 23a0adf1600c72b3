/* The checks of the contract, in its fixed order: record, op, source count, each source, attributes, the op's rule, then
 * destinations, aliasing and workspace. The first failure wins and says which argument, which axis and which numbers. */
#include "op/guard.h"

#include "tensor/convert.h"

qn_status qn_reject(qn_infer_call *c, qn_status status, int arg_kind, int arg, qn_reason reason, int dim, int64_t expected,
                    int64_t actual) {
    qn_result *r = c->result;
    r->status = status;
    r->arg_kind = (uint16_t)arg_kind;
    r->arg = arg;
    r->reason = (uint16_t)reason;
    r->dim = dim;
    r->expected = expected;
    r->actual = actual;
    return status;
}

static qn_status reject_layout(qn_infer_call *c, int arg_kind, int arg, const qn_layout_fault *f) {
    return qn_reject(c, QN_INVALID, arg_kind, arg, f->reason, f->dim, f->expected, f->actual);
}

static qn_status check_record(const qn_request *q, qn_infer_call *c) {
    if (q->size != sizeof *q)
        return qn_reject(c, QN_UNEXPECTED, QN_ARG_REQUEST, 0, QN_REASON_RECORD_SIZE, -1, sizeof *q, q->size);
    if (q->version != QN_REQUEST_VERSION)
        return qn_reject(c, QN_UNEXPECTED, QN_ARG_REQUEST, 0, QN_REASON_RECORD_VERSION, -1, QN_REQUEST_VERSION, q->version);
    if (q->reserved) return qn_reject(c, QN_INVALID, QN_ARG_REQUEST, 0, QN_REASON_RECORD_RESERVED, -1, 0, q->reserved);
    c->info = qn_op_describe(q->op);
    if (!c->info) return qn_reject(c, QN_UNEXPECTED, QN_ARG_REQUEST, 0, QN_REASON_UNKNOWN_OP, -1, QN_OP_COUNT - 1, q->op);
    int last = qn_subop_count(q->op) ? qn_subop_count(q->op) - 1 : 0;
    if (q->subop > last) return qn_reject(c, QN_UNEXPECTED, QN_ARG_REQUEST, 0, QN_REASON_UNKNOWN_SUBOP, -1, last, q->subop);
    if (q->n_src > c->info->n_src)
        return qn_reject(c, QN_INVALID, QN_ARG_REQUEST, 0, QN_REASON_SOURCE_COUNT_HIGH, -1, c->info->n_src, q->n_src);
    if (q->n_src < c->info->n_src_min)
        return qn_reject(c, QN_INVALID, QN_ARG_REQUEST, 0, QN_REASON_SOURCE_COUNT_LOW, -1, c->info->n_src_min, q->n_src);
    return QN_OK;
}

static qn_status check_source(qn_infer_call *c, int slot, const qn_tensor *t, int need_data, qn_span *span) {
    const qn_slot_info *s = &c->info->src[slot];
    if (!t) {
        if (s->flags & QN_SLOT_OPTIONAL) return QN_OK;
        return qn_reject(c, QN_INVALID, QN_ARG_SOURCE, slot, QN_REASON_MISSING, -1, 0, 0);
    }
    qn_layout_fault fault;
    int data = need_data && !(s->flags & QN_SLOT_SHAPE) && !(t->flags & QN_TENSOR_DEVICE);
    if (qn_layout_check(t, data, span, &fault) != QN_OK) return reject_layout(c, QN_ARG_SOURCE, slot, &fault);
    if (!(s->dtypes >> t->dtype & 1))
        return qn_reject(c, QN_INVALID, QN_ARG_SOURCE, slot, QN_REASON_DTYPE_CLASS, -1, 0, t->dtype);
    return QN_OK;
}

static qn_status check_number(qn_infer_call *c, int i, double v) {
    const qn_attr_info *f = &c->info->attr[i];
    if (isnan(v)) return qn_reject(c, QN_INVALID, QN_ARG_ATTR, i, QN_REASON_ATTR_NAN, -1, 0, 0);
    if (isinf(v) && !(v < 0 ? isinf(f->low) : isinf(f->high)))
        return qn_reject(c, QN_INVALID, QN_ARG_ATTR, i, QN_REASON_ATTR_INFINITE, v < 0 ? 0 : 1, 0, 0);
    if (v < f->low) return qn_reject(c, QN_INVALID, QN_ARG_ATTR, i, QN_REASON_ATTR_LOW, -1, qn_f_bits(f->low), qn_f_bits(v));
    if (v > f->high) return qn_reject(c, QN_INVALID, QN_ARG_ATTR, i, QN_REASON_ATTR_HIGH, -1, qn_f_bits(f->high), qn_f_bits(v));
    return QN_OK;
}

/* Nothing may hide behind the last word: records are compared by their bytes. */
static qn_status check_words(qn_infer_call *c, int i, const qn_code *list) {
    if (list->count < 0 || list->count > QN_MAX_WORDS)
        return qn_reject(c, QN_INVALID, QN_ARG_ATTR, i, QN_REASON_ATTR_RANK, -1, QN_MAX_WORDS, list->count);
    if (list->reserved) return qn_reject(c, QN_INVALID, QN_ARG_ATTR, i, QN_REASON_RECORD_RESERVED, -1, 0, list->reserved);
    if (list->count == 0) return qn_reject(c, QN_INVALID, QN_ARG_ATTR, i, QN_REASON_ATTR_MISSING, -1, 0, 0);
    for (int k = list->count; k < QN_MAX_WORDS; k++)
        if (list->w[k]) return qn_reject(c, QN_INVALID, QN_ARG_ATTR, i, QN_REASON_RECORD_RESERVED, k, 0, list->w[k]);
    return QN_OK;
}

static qn_status check_attribute(qn_infer_call *c, int i) {
    const qn_attr_info *f = &c->info->attr[i];
    const char *field = (const char *)c->attr + f->offset;
    switch (f->kind) {
    case QN_ATTR_KIND_f32: return check_number(c, i, (double)*(const float *)(const void *)field);
    case QN_ATTR_KIND_i64: return check_number(c, i, (double)*(const int64_t *)(const void *)field);
    case QN_ATTR_KIND_i32:
    case QN_ATTR_KIND_bool: return check_number(c, i, (double)*(const int32_t *)(const void *)field);
    case QN_ATTR_KIND_dtype: {
        int32_t d = *(const int32_t *)(const void *)field;
        if (d < 0 || d >= QN_DTYPE_COUNT)
            return qn_reject(c, QN_INVALID, QN_ARG_ATTR, i, QN_REASON_UNKNOWN_DTYPE, -1, QN_DTYPE_COUNT - 1, d);
        if (f->required && d == 0) return qn_reject(c, QN_INVALID, QN_ARG_ATTR, i, QN_REASON_ATTR_MISSING, -1, 0, 0);
        return QN_OK;
    }
    case QN_ATTR_KIND_dims: {
        const qn_dims *d = (const qn_dims *)(const void *)field;
        if (d->rank < 0 || d->rank > QN_MAX_RANK)
            return qn_reject(c, QN_INVALID, QN_ARG_ATTR, i, QN_REASON_ATTR_RANK, -1, QN_MAX_RANK, d->rank);
        if (d->reserved) return qn_reject(c, QN_INVALID, QN_ARG_ATTR, i, QN_REASON_RECORD_RESERVED, -1, 0, d->reserved);
        if (f->required && d->rank == 0) return qn_reject(c, QN_INVALID, QN_ARG_ATTR, i, QN_REASON_ATTR_MISSING, -1, 0, 0);
        return QN_OK;
    }
    case QN_ATTR_KIND_words: return check_words(c, i, (const qn_code *)(const void *)field);
    case QN_ATTR_KIND_fn: return QN_OK;
    case QN_ATTR_KIND_body:
        if (*(const qn_graph *const *)(const void *)field) return QN_OK;
        return qn_reject(c, QN_INVALID, QN_ARG_ATTR, i, QN_REASON_ATTR_MISSING, -1, 0, 0);
    }
    return QN_OK;
}

static qn_status check_attributes(qn_infer_call *c, const void *attr) {
    c->attr_given = attr != NULL;
    c->attr = attr ? attr : c->info->attr_default;
    if (!attr) {
        for (int i = 0; i < c->info->n_attr; i++)
            if (c->info->attr[i].required) return qn_reject(c, QN_INVALID, QN_ARG_ATTR, i, QN_REASON_ATTR_MISSING, -1, 0, 0);
        return QN_OK;
    }
    uint32_t head[2];
    memcpy(head, attr, sizeof head);
    if (head[0] != c->info->attr_bytes)
        return qn_reject(c, QN_UNEXPECTED, QN_ARG_REQUEST, 0, QN_REASON_ATTR_SIZE, -1, c->info->attr_bytes, head[0]);
    if (head[1] != QN_ATTR_VERSION)
        return qn_reject(c, QN_UNEXPECTED, QN_ARG_REQUEST, 0, QN_REASON_ATTR_VERSION, -1, QN_ATTR_VERSION, head[1]);
    for (int i = 0; i < c->info->n_attr; i++) QN_TRY(check_attribute(c, i));
    return QN_OK;
}

int qn_guard_indices(const qn_tensor *t, int64_t limit, int64_t *which, int64_t *value) {
    int64_t index[QN_MAX_RANK] = {0}, n = qn_tensor_count(t);
    for (int64_t k = 0; k < n; k++) {
        int64_t at = t->offset;
        for (int i = 0; i < t->rank; i++) at += index[i] * t->stride[i];
        int64_t v = qn_load_index((qn_dtype)t->dtype, (const char *)t->data + at);
        if (v < 0 || v >= limit) {
            *which = k;
            *value = v;
            return 0;
        }
        for (int i = t->rank - 1; i >= 0 && ++index[i] == t->shape[i]; i--) index[i] = 0;
    }
    return 1;
}

/* Found out before anything is written. */
static qn_status check_indices(qn_infer_call *c, int slot) {
    const qn_tensor *t = c->src[slot];
    int64_t which, value, limit = c->index_limit[slot];
    if (!t || !t->data || (t->flags & QN_TENSOR_DEVICE) || qn_guard_indices(t, limit, &which, &value)) return QN_OK;
    return qn_reject(c, QN_INVALID, QN_ARG_SOURCE, slot, QN_REASON_INDEX_RANGE, which > INT32_MAX ? INT32_MAX : (int)which, limit,
                     value);
}

qn_status qn_guard_sources(const qn_request *q, int need_data, qn_guarded *g, qn_result *result) {
    qn_infer_call *c = &g->infer;
    c->info = NULL;
    c->result = result;
    c->op = q->op;
    c->subop = q->subop;
    c->n_src = q->n_src;
    c->src = q->src;
    c->n_out = 0;
    c->workspace = 0;
    c->flops_each = 0;
    QN_TRY(check_record(q, c));
    g->info = c->info;
    if (need_data && c->info->n_body) return qn_reject(c, QN_UNSUPPORTED, QN_ARG_REQUEST, 0, QN_REASON_PLAN_ONLY, -1, 0, 0);
    for (int i = 0; i < c->info->n_src; i++) {
        if (i >= q->n_src && q->src[i]) return qn_reject(c, QN_INVALID, QN_ARG_SOURCE, i, QN_REASON_NOT_TAKEN, -1, 0, 0);
        QN_TRY(check_source(c, i, q->src[i], need_data, &g->src[i]));
        c->index_limit[i] = INT64_MAX;
    }
    QN_TRY(check_attributes(c, q->attr));
    QN_TRY(qn_op_rules_of(q->op)->infer(c));
    if (need_data)
        for (int i = 0; i < q->n_src; i++)
            if (c->info->src[i].flags & QN_SLOT_INDEX) QN_TRY(check_indices(c, i));
    return QN_OK;
}

static qn_status check_view(const qn_request *q, qn_infer_call *c) {
    const qn_tensor *a = q->src[0], *y = q->dst[0];
    int64_t want = c->view_offset;
    if (y->data != a->data || y->offset != want)
        return qn_reject(c, QN_INVALID, QN_ARG_DEST, 0, QN_REASON_DST_VIEW, -1, want, y->data == a->data ? y->offset : -1);
    int shift = y->rank - c->out[0].rank;
    for (int i = 0; i < c->out[0].rank; i++)
        if (c->out[0].d[i] > 1 && i + shift >= 0 && y->stride[i + shift] != c->view_stride[i])
            return qn_reject(c, QN_INVALID, QN_ARG_DEST, 0, QN_REASON_DST_VIEW, i, c->view_stride[i], y->stride[i + shift]);
    return QN_OK;
}

/* Shapes agree when they do from the last axis on and what is left over in front is ones. */
static qn_status check_agrees(qn_infer_call *c, int i, const qn_tensor *y) {
    const qn_shape *want = &c->out[i];
    int rank = y->rank > want->rank ? y->rank : want->rank;
    for (int k = 0; k < rank; k++) {
        if (qn_ne(y, k) == qn_sd(want, k)) continue;
        if (k >= want->rank) return qn_reject(c, QN_INVALID, QN_ARG_DEST, i, QN_REASON_DST_RANK, -1, want->rank, y->rank);
        return qn_reject(c, QN_INVALID, QN_ARG_DEST, i, QN_REASON_DST_SHAPE, rank - 1 - k, qn_sd(want, k), qn_ne(y, k));
    }
    if (y->dtype != want->dtype) return qn_reject(c, QN_INVALID, QN_ARG_DEST, i, QN_REASON_DST_DTYPE, -1, want->dtype, y->dtype);
    return QN_OK;
}

static qn_status check_alias(const qn_request *q, qn_guarded *g, int i) {
    qn_infer_call *c = &g->infer;
    const qn_tensor *y = q->dst[i];
    qn_layout_fault fault;
    if (qn_layout_check_distinct(y, &fault) != QN_OK) return reject_layout(c, QN_ARG_DEST, i, &fault);
    for (int s = 0; s < q->n_src; s++) {
        const qn_tensor *x = q->src[s];
        uint32_t flags = c->info->src[s].flags;
        if (!x || (flags & QN_SLOT_SHAPE)) continue;
        if ((flags & QN_SLOT_STATE) && s == i) {
            if (qn_layout_same(x, y)) continue;
            return qn_reject(c, QN_INVALID, QN_ARG_DEST, i, QN_REASON_NOT_IN_PLACE, s, 0, 0);
        }
        if (!qn_span_meet(&g->src[s], &g->dst[i])) continue;
        if (i == 0 && (flags & QN_SLOT_IN_PLACE) && qn_layout_same(x, y)) continue;
        if (qn_layout_overlap(x, y)) return qn_reject(c, QN_INVALID, QN_ARG_DEST, i, QN_REASON_ALIAS_SOURCE, s, 0, 0);
    }
    for (int k = 0; k < i; k++)
        if (q->dst[k] && qn_span_meet(&g->dst[k], &g->dst[i]) && qn_layout_overlap(q->dst[k], y))
            return qn_reject(c, QN_INVALID, QN_ARG_DEST, i, QN_REASON_ALIAS_DEST, k, 0, 0);
    return QN_OK;
}

static qn_status check_destination(const qn_request *q, qn_guarded *g, int i) {
    qn_infer_call *c = &g->infer;
    const qn_tensor *y = q->dst[i];
    if (!y) {
        if (c->info->dst[i].flags & QN_SLOT_OPTIONAL) return QN_OK;
        return qn_reject(c, QN_INVALID, QN_ARG_DEST, i, QN_REASON_MISSING, -1, 0, 0);
    }
    if (i >= c->n_out) return qn_reject(c, QN_INVALID, QN_ARG_DEST, i, QN_REASON_NOT_TAKEN, -1, 0, 0);
    qn_layout_fault fault;
    if (qn_layout_check(y, !(y->flags & QN_TENSOR_DEVICE), &g->dst[i], &fault) != QN_OK)
        return reject_layout(c, QN_ARG_DEST, i, &fault);
    if ((y->flags & QN_TENSOR_CONST) && !c->info->is_view)
        return qn_reject(c, QN_INVALID, QN_ARG_DEST, i, QN_REASON_DST_CONST, -1, 0, y->flags);
    return check_agrees(c, i, y);
}

qn_status qn_guard_destinations(const qn_request *q, qn_guarded *g) {
    qn_infer_call *c = &g->infer;
    if (q->n_dst < g->info->n_dst_min || q->n_dst > g->info->n_dst)
        return qn_reject(c, QN_INVALID, QN_ARG_REQUEST, 0, QN_REASON_DEST_COUNT, -1, g->info->n_dst_min, q->n_dst);
    for (int i = 0; i < g->info->n_dst; i++) {
        if (i >= q->n_dst && q->dst[i]) return qn_reject(c, QN_INVALID, QN_ARG_DEST, i, QN_REASON_NOT_TAKEN, -1, 0, 0);
        QN_TRY(check_destination(q, g, i));
    }
    if (g->info->is_view) return check_view(q, c);
    for (int i = 0; i < q->n_dst; i++)
        if (q->dst[i]) QN_TRY(check_alias(q, g, i));
    return QN_OK;
}

qn_status qn_guard_workspace(const qn_request *q, qn_guarded *g) {
    qn_infer_call *c = &g->infer;
    if (c->workspace == 0) return QN_OK;
    if (!q->workspace) return qn_reject(c, QN_WORKSPACE, QN_ARG_WORKSPACE, 0, QN_REASON_MISSING, -1, (int64_t)c->workspace, 0);
    if (q->workspace_size < c->workspace)
        return qn_reject(c, QN_WORKSPACE, QN_ARG_WORKSPACE, 0, QN_REASON_WORKSPACE_SMALL, -1, (int64_t)c->workspace,
                         (int64_t)q->workspace_size);
    uintptr_t low = (uintptr_t)q->workspace;
    if (q->workspace_size > UINTPTR_MAX - low)
        return qn_reject(c, QN_WORKSPACE, QN_ARG_WORKSPACE, 0, QN_REASON_BUFFER_END, -1, 0, 0);
    if (low % QN_WORKSPACE_ALIGN)
        return qn_reject(c, QN_WORKSPACE, QN_ARG_WORKSPACE, 0, QN_REASON_WORKSPACE_ALIGN, -1, QN_WORKSPACE_ALIGN,
                         (int64_t)(low % QN_WORKSPACE_ALIGN));
    qn_span scratch = {low, low + c->workspace, c->workspace};
    for (int i = 0; i < q->n_src; i++)
        if (q->src[i] && qn_span_meet(&g->src[i], &scratch))
            return qn_reject(c, QN_INVALID, QN_ARG_SOURCE, i, QN_REASON_WORKSPACE_ALIAS, -1, 0, 0);
    for (int i = 0; i < q->n_dst; i++)
        if (q->dst[i] && qn_span_meet(&g->dst[i], &scratch))
            return qn_reject(c, QN_INVALID, QN_ARG_DEST, i, QN_REASON_WORKSPACE_ALIAS, -1, 0, 0);
    return QN_OK;
}
