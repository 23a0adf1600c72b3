/* Ways to spoil a tensor of a request: its descriptor, its dtype, its agreement with the op, its overlap with others. Data and
 * size tell the truth about memory that exists: a lie there is the one thing a callee cannot find out, unless no memory could be so
 * large. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "check_reject.h"

static int64_t unit_of(const qn_tensor *t) { return qn_dtype_describe((qn_dtype)t->dtype)->bytes; }
static int is_block(const qn_tensor *t) { return qn_dtype_describe((qn_dtype)t->dtype)->block > 1; }

/* An axis with at least two elements whose stride is free to change; -1 when there is none. */
static int wide_axis(const qn_tensor *t) {
    for (int i = 0; i < t->rank - is_block(t); i++)
        if (t->shape[i] > 1) return i;
    return -1;
}

/* One past the last byte the view uses. */
static uint64_t end_of(const qn_tensor *t) {
    int64_t end = t->offset + unit_of(t);
    for (int i = 0; i < t->rank; i++) {
        int64_t n = i == t->rank - 1 ? t->shape[i] / qn_dtype_describe((qn_dtype)t->dtype)->block : t->shape[i];
        if (t->stride[i] > 0) end += (n - 1) * t->stride[i];
    }
    return (uint64_t)end;
}

/* Ways to spoil a descriptor: single fields, then where its bytes lie. `data_matters` below: the slot's data is used. */
enum { FIELD_WAYS = 9, PLACE_WAYS = 5, STRIDE_WAYS = 4, DESCRIPTOR_WAYS = FIELD_WAYS + PLACE_WAYS + STRIDE_WAYS };

static int because(qc_fault *f, const char *what, qn_reason reason) {
    f->what = what;
    qc_because(f, reason);
    return QC_FAULT_TRY;
}

static int spoil_field(qn_tensor *t, int way, int data_matters, qc_fault *f) {
    int some = qn_tensor_count(t) > 0;
    switch (way) {
    case 0: t->data = NULL; return because(f, "no data", QN_REASON_NULL_DATA), some && data_matters;
    case 1: t->dtype = 0; return because(f, "dtype 0", QN_REASON_UNKNOWN_DTYPE);
    case 2: t->dtype = QN_DTYPE_COUNT; return because(f, "unknown dtype", QN_REASON_UNKNOWN_DTYPE);
    case 3: t->flags |= 1u << 31; return because(f, "unknown flags", QN_REASON_FLAGS);
    case 4: t->rank = 0; return because(f, "rank 0", QN_REASON_RANK);
    case 5: t->rank = QN_MAX_RANK + 1; return because(f, "rank 9", QN_REASON_RANK);
    case 6: t->rank = -1; return because(f, "rank -1", QN_REASON_RANK);
    case 7: t->shape[t->rank - 1] = -1; return because(f, "negative extent", QN_REASON_NEGATIVE_EXTENT);
    default: t->reserved = 1; return because(f, "reserved field of a tensor", QN_REASON_RECORD_RESERVED);
    }
}

static int spoil_place(qn_tensor *t, int way, qc_fault *f) {
    const qn_dtype_info *info = qn_dtype_describe((qn_dtype)t->dtype);
    if (qn_tensor_count(t) < 1) return QC_FAULT_SKIP;
    switch (way) {
    case 0:
        t->shape[0] = INT64_MAX - (INT64_MAX % info->block);
        qc_because(f, QN_REASON_ADDRESS_OVERFLOW), qc_because(f, QN_REASON_OUT_OF_BUFFER_HIGH);
        return because(f, "extents past 64 bits", QN_REASON_SIZE_OVERFLOW);
    case 1: t->size = end_of(t) - 1; return because(f, "buffer one byte short", QN_REASON_OUT_OF_BUFFER_HIGH);
    case 2:
        t->offset++;
        qc_because(f, QN_REASON_OUT_OF_BUFFER_HIGH);
        return because(f, "offset between elements", QN_REASON_OFFSET_UNIT), info->bytes > 1 && info->block == 1;
    case 3: /* the view itself lies where it lay: only the end is where no address is */
        t->size = UINT64_MAX;
        return because(f, "buffer past the last address", QN_REASON_BUFFER_END), t->data != NULL;
    default:
        t->offset = -info->bytes;
        qc_because(f, QN_REASON_OUT_OF_BUFFER_LOW);
        return because(f, "negative offset", QN_REASON_OFFSET_NEGATIVE);
    }
}

static int spoil_stride(qn_tensor *t, int way, qc_fault *f) {
    int axis = wide_axis(t);
    if (axis < 0 || qn_tensor_count(t) < 1) return QC_FAULT_SKIP;
    int64_t unit = unit_of(t), beyond = ((int64_t)t->size / unit + 1) * unit;
    switch (way) {
    case 0: t->stride[axis] = beyond; return because(f, "stride past the buffer", QN_REASON_OUT_OF_BUFFER_HIGH);
    case 1: t->stride[axis] = -beyond; return because(f, "stride before the buffer", QN_REASON_OUT_OF_BUFFER_LOW);
    case 2:
        t->stride[axis] = INT64_MAX / unit * unit;
        qc_because(f, QN_REASON_OUT_OF_BUFFER_HIGH);
        return because(f, "stride past 64 bits", QN_REASON_ADDRESS_OVERFLOW);
    default: /* rows of blocks may begin at any byte */
        t->stride[axis]++;
        return because(f, "stride between elements", QN_REASON_STRIDE_UNIT), unit > 1 && !is_block(t);
    }
}

static int spoil_descriptor(qn_tensor *t, int way, int data_matters, qc_fault *f) {
    if (way < FIELD_WAYS) return spoil_field(t, way, data_matters, f);
    if (way < FIELD_WAYS + PLACE_WAYS) return spoil_place(t, way - FIELD_WAYS, f);
    return spoil_stride(t, way - FIELD_WAYS - PLACE_WAYS, f);
}

int qc_fault_source(qc_built *b, int i, qc_fault *f) {
    const qn_op_info *info = qn_op_describe(b->c->op);
    int slot = i / (DESCRIPTOR_WAYS + 1), way = i % (DESCRIPTOR_WAYS + 1);
    if (slot >= b->request.n_src) return QC_FAULT_END;
    if (!b->request.src[slot]) return QC_FAULT_SKIP;
    qc_want(f, QN_INVALID, QN_ARG_SOURCE, slot, "source left out");
    if (way == DESCRIPTOR_WAYS) {
        b->request.src[slot] = NULL;
        qc_because(f, QN_REASON_MISSING);
        return !(info->src[slot].flags & QN_SLOT_OPTIONAL);
    }
    return spoil_descriptor(&b->src[slot], way, !(info->src[slot].flags & QN_SLOT_SHAPE), f);
}

/* Every dtype the slot does not take, in a tensor that is well-formed otherwise. */
int qc_fault_source_dtype(qc_built *b, int i, qc_fault *f) {
    const qn_op_info *info = qn_op_describe(b->c->op);
    int slot = i / QN_DTYPE_COUNT;
    uint32_t dtype = (uint32_t)(i % QN_DTYPE_COUNT);
    if (slot >= b->request.n_src) return QC_FAULT_END;
    if (!b->request.src[slot] || dtype == 0 || (info->src[slot].dtypes >> dtype & 1)) return QC_FAULT_SKIP;
    qn_tensor old = b->src[slot];
    int64_t shape[QN_MAX_RANK];
    memcpy(shape, old.shape, sizeof shape);
    int64_t block = qn_dtype_describe((qn_dtype)dtype)->block;
    shape[old.rank - 1] = (shape[old.rank - 1] + block - 1) / block * block;
    if (qc_tensor_make(&b->src[slot], 0, dtype, old.rank, shape) != QN_OK) return QC_FAULT_SKIP;
    qc_want(f, QN_INVALID, QN_ARG_SOURCE, slot, "dtype the slot does not take");
    qc_because(f, QN_REASON_DTYPE_CLASS);
    return QC_FAULT_TRY;
}

int qc_fault_dest(qc_built *b, int i, qc_fault *f) {
    const qn_op_info *info = qn_op_describe(b->c->op);
    int slot = i / (DESCRIPTOR_WAYS + 1), way = i % (DESCRIPTOR_WAYS + 1);
    if (slot >= b->request.n_dst) return QC_FAULT_END;
    if (!b->request.dst[slot]) return QC_FAULT_SKIP;
    qc_want(f, QN_INVALID, QN_ARG_DEST, slot, "destination left out");
    if (way == DESCRIPTOR_WAYS) {
        b->request.dst[slot] = NULL;
        qc_because(f, QN_REASON_MISSING);
        return !(info->dst[slot].flags & QN_SLOT_OPTIONAL);
    }
    return spoil_descriptor(&b->dst[slot], way, 1, f);
}

/* ---- A destination that is well-formed but not what the op gives */

static int other_tensor(qn_tensor *t, uint32_t dtype, int rank, const int64_t *shape) {
    return qc_tensor_make(t, 0, dtype, rank, shape) == QN_OK;
}

static int dest_view(qn_tensor *t, int way, qc_fault *f) {
    int64_t unit = unit_of(t);
    int axis = wide_axis(t);
    qc_because(f, QN_REASON_DST_VIEW);
    f->what = "not the view the op describes";
    if (way == 0) { /* elsewhere, with the same form */
        uint64_t bytes = t->size;
        t->data = qc_alloc((size_t)bytes, 64);
        return t->data != NULL && bytes > 0;
    }
    if (way == 1 && axis >= 0 && t->stride[axis] >= 2 * unit) return t->stride[axis] -= unit, QC_FAULT_TRY;
    return QC_FAULT_SKIP;
}

int qc_fault_dest_form(qc_built *b, int i, qc_fault *f) {
    enum { WAYS = 7 };
    const qn_op_info *info = qn_op_describe(b->c->op);
    int slot = i / WAYS, way = i % WAYS;
    if (slot >= b->request.n_dst) return QC_FAULT_END;
    if (!b->request.dst[slot]) return QC_FAULT_SKIP;
    qn_tensor *t = &b->dst[slot];
    int64_t shape[QN_MAX_RANK + 1], block = qn_dtype_describe((qn_dtype)t->dtype)->block;
    qc_want(f, QN_INVALID, QN_ARG_DEST, slot, "shape of the destination");
    if (way >= 5) return info->is_view ? dest_view(t, way - 5, f) : QC_FAULT_SKIP;
    memcpy(shape, t->shape, sizeof t->shape);
    switch (way) {
    case 0: shape[t->rank - 1] += block; return qc_because(f, QN_REASON_DST_SHAPE), other_tensor(t, t->dtype, t->rank, shape);
    case 1:
        shape[0] += t->rank == 1 ? block : 1;
        qc_because(f, QN_REASON_DST_RANK);
        return qc_because(f, QN_REASON_DST_SHAPE), other_tensor(t, t->dtype, t->rank, shape);
    case 2:
        f->what = "rank of the destination";
        memcpy(shape + 1, t->shape, sizeof t->shape);
        shape[0] = 2;
        qc_because(f, QN_REASON_DST_RANK);
        return t->rank < QN_MAX_RANK && other_tensor(t, t->dtype, t->rank + 1, shape);
    case 3:
        f->what = "dtype of the destination";
        qc_because(f, QN_REASON_DST_DTYPE);
        return other_tensor(t, t->dtype == QN_DTYPE_I8 ? QN_DTYPE_I16 : QN_DTYPE_I8, t->rank, shape);
    default:
        f->what = "constant destination";
        t->flags |= QN_TENSOR_CONST;
        qc_because(f, QN_REASON_DST_CONST);
        return !info->is_view;
    }
}

/* ---- Overlap */

/* The destination begins in the last byte of the source. */
static int over_source(qc_built *b, int s, qc_fault *f) {
    const qn_op_info *info = qn_op_describe(b->c->op);
    qn_tensor *x = &b->src[s], *y = &b->dst[0];
    if (!b->request.src[s] || (info->src[s].flags & (QN_SLOT_SHAPE | QN_SLOT_STATE))) return QC_FAULT_SKIP;
    if (info->src[0].flags & QN_SLOT_STATE) return QC_FAULT_SKIP;
    if (qn_tensor_count(x) < 1 || qn_tensor_count(y) < 1) return QC_FAULT_SKIP;
    int64_t unit = unit_of(y), at = ((int64_t)x->size - 1) / unit * unit;
    if (at + y->offset == x->offset && (info->src[s].flags & QN_SLOT_IN_PLACE)) return QC_FAULT_SKIP;
    char *both = qc_alloc((size_t)at + (size_t)y->size, 64);
    if (!both || y->offset || (size_t)at + (size_t)y->size < (size_t)x->size) return QC_FAULT_SKIP;
    memcpy(both, x->data, (size_t)x->size);
    x->data = y->data = both;
    x->size = y->size = (uint64_t)at + y->size;
    y->offset = at;
    qc_want(f, QN_INVALID, QN_ARG_DEST, 0, "destination over the end of a source");
    qc_because(f, QN_REASON_ALIAS_SOURCE);
    return QC_FAULT_TRY;
}

/* The destination begins with the source's first element: only where running in place is not declared. A layout with gaps may lie in another's,
 * so that the same buffer alone is no overlap. */
static int on_source(qc_built *b, int s, qc_fault *f) {
    const qn_op_info *info = qn_op_describe(b->c->op);
    qn_tensor *x = &b->src[s], *y = &b->dst[0];
    uint32_t flags = info->src[s].flags;
    if (!b->request.src[s] || (flags & (QN_SLOT_SHAPE | QN_SLOT_STATE | QN_SLOT_IN_PLACE))) return QC_FAULT_SKIP;
    if ((info->src[0].flags & QN_SLOT_STATE) || qn_tensor_count(x) < 1 || qn_tensor_count(y) < 1) return QC_FAULT_SKIP;
    if (x->offset % unit_of(y)) return QC_FAULT_SKIP;
    int64_t before = (y->offset + 63) / 64 * 64; /* what y reaches in front of its first element */
    size_t bytes = (size_t)before + (size_t)x->size + (size_t)y->size;
    char *both = qc_alloc(bytes, 64);
    if (!both) return QC_FAULT_SKIP;
    memcpy(both + before, x->data, (size_t)x->size);
    x->data = y->data = both;
    x->size = y->size = bytes;
    y->offset = x->offset += before;
    qc_want(f, QN_INVALID, QN_ARG_DEST, 0, "destination on a source that is not to be overwritten");
    qc_because(f, QN_REASON_ALIAS_SOURCE);
    return QC_FAULT_TRY;
}

static int over_itself(qn_tensor *y, int slot, qc_fault *f) {
    int axis = wide_axis(y);
    if (axis < 0 || qn_tensor_count(y) < 1) return QC_FAULT_SKIP;
    y->stride[axis] = 0;
    qc_want(f, QN_INVALID, QN_ARG_DEST, slot, "destination over itself");
    qc_because(f, QN_REASON_SELF_OVERLAP);
    return QC_FAULT_TRY;
}

/* Two destinations in one buffer; for state, a destination that is not its source. */
static int over_another(qc_built *b, int slot, qc_fault *f) {
    const qn_op_info *info = qn_op_describe(b->c->op);
    qn_tensor *y = &b->dst[slot];
    qc_want(f, QN_INVALID, QN_ARG_DEST, slot, "two destinations overlap");
    if (qn_tensor_count(y) < 1) return QC_FAULT_SKIP;
    if (slot < info->n_src && (info->src[slot].flags & QN_SLOT_STATE)) {
        f->what = "state that is not updated in place";
        qc_because(f, QN_REASON_NOT_IN_PLACE);
        return other_tensor(y, y->dtype, y->rank, b->src[slot].shape);
    }
    if (slot == 0 || !b->request.dst[0] || qn_tensor_count(&b->dst[0]) < 1) return QC_FAULT_SKIP;
    uint64_t size = b->dst[0].size > y->size ? b->dst[0].size : y->size;
    void *one = qc_alloc((size_t)size, 64);
    if (!one) return QC_FAULT_SKIP;
    b->dst[0].data = y->data = one;
    b->dst[0].size = y->size = size;
    qc_because(f, QN_REASON_ALIAS_DEST);
    return QC_FAULT_TRY;
}

int qc_fault_parameter(qc_built *b, int i, qc_fault *f) {
    const qn_op_info *info = qn_op_describe(b->c->op);
    if (i > 0 || !info->n_src || !(info->src[0].flags & QN_SLOT_STATE)) return QC_FAULT_END;
    b->src[0].flags = b->dst[0].flags = 0;
    qc_want(f, QN_INVALID, QN_ARG_SOURCE, 0, "state that is no parameter");
    qc_because(f, QN_REASON_NOT_PARAMETER);
    return QC_FAULT_TRY;
}

int qc_fault_alias(qc_built *b, int i, qc_fault *f) {
    const qn_op_info *info = qn_op_describe(b->c->op);
    int slot = i / 4;
    if (slot >= QN_MAX_SRC) return QC_FAULT_END;
    if (info->is_view) return QC_FAULT_END;
    if (i % 4 == 0) return slot < b->request.n_src ? over_source(b, slot, f) : QC_FAULT_SKIP;
    if (i % 4 == 1) return slot < b->request.n_src ? on_source(b, slot, f) : QC_FAULT_SKIP;
    if (slot >= b->request.n_dst || !b->request.dst[slot]) return QC_FAULT_SKIP;
    int state = slot < info->n_src && (info->src[slot].flags & QN_SLOT_STATE) != 0;
    if (i % 4 == 2) return state ? QC_FAULT_SKIP : over_itself(&b->dst[slot], slot, f);
    return over_another(b, slot, f);
}
