/* The eager emitter: each op a gradient rule writes is inferred, given fresh outputs and dispatched there and then. Views share
 * their source's bytes, as they would in a graph. */
#include "check_emit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static qn_status trouble(qc_tape *tape, qn_status status, int op, const char *text) {
    const qn_op_info *info = qn_op_describe(op);
    if (!tape->trouble[0]) snprintf(tape->trouble, sizeof tape->trouble, "emitting %s: %s", info ? info->name : "?", text);
    return status;
}

qn_val qc_tape_bring(qc_tape *tape, const qn_tensor *t) {
    if (tape->n == QC_MAX_VALUE) return QN_VAL_NONE;
    tape->value[tape->n] = *t;
    tape->owned[tape->n] = NULL;
    return tape->n++;
}

qn_val qc_tape_new(qc_tape *tape, uint32_t dtype, int rank, const int64_t *shape) {
    uint64_t bytes;
    qn_tensor t;
    if (qn_tensor_bytes((qn_dtype)dtype, rank, shape, &bytes) != QN_OK || bytes > 1 << 28) return QN_VAL_NONE;
    void *data = calloc(1, (size_t)bytes + 8);
    qn_val v = data && qn_tensor_init(&t, (qn_dtype)dtype, rank, shape, data, bytes) == QN_OK ? qc_tape_bring(tape, &t)
                                                                                              : QN_VAL_NONE;
    if (v == QN_VAL_NONE) free(data);
    else tape->owned[v] = data;
    return v;
}

/* Sources of the request; 0 when one of them is no value. */
static int take_sources(qc_tape *tape, qn_request *q, int n_src, const qn_val *src) {
    if (n_src < 0 || n_src > QN_MAX_SRC) return 0;
    for (int i = 0; i < n_src; i++) {
        if (src[i] == QN_VAL_NONE) continue;
        if (src[i] < 0 || src[i] >= tape->n) return 0;
        q->src[i] = &tape->value[src[i]];
    }
    q->n_src = (uint16_t)n_src;
    return 1;
}

static qn_status apply(void *self, int op, int subop, int n_src, const qn_val *src, const void *attr, int n_out, qn_val *out) {
    qc_tape *tape = self;
    qn_request q = {.size = sizeof q, .version = QN_REQUEST_VERSION, .op = (uint16_t)op, .subop = (uint16_t)subop, .attr = attr};
    qn_result r;
    qn_tensor made[QN_MAX_DST];
    char text[256];
    int n = 0;
    size_t bytes = 0;
    if (!take_sources(tape, &q, n_src, src)) return trouble(tape, QN_ARGUMENT, op, "a source is no value of this tape");
    qn_status status = qn_infer(&q, made, &n, &r);
    if (status == QN_OK) status = qn_workspace_bytes(&q, &bytes, &r);
    if (status != QN_OK) {
        qn_result_format(&r, text, sizeof text);
        return trouble(tape, status, op, text);
    }
    int least = qn_op_describe(op)->n_dst_min, give = n_out > least ? n_out : least;
    if (give > n || give > QN_MAX_DST) return trouble(tape, QN_ARGUMENT, op, "more outputs are asked for than it has");
    for (int i = 0; i < give; i++) {
        qn_val v = qn_op_describe(op)->is_view ? qc_tape_bring(tape, &made[i])
                                               : qc_tape_new(tape, made[i].dtype, made[i].rank, made[i].shape);
        if (v == QN_VAL_NONE) return trouble(tape, QN_NO_MEMORY, op, "the tape is full");
        q.dst[i] = &tape->value[v];
        if (i < n_out) out[i] = v;
    }
    q.n_dst = (uint16_t)give;
    if (bytes)
        q.workspace = aligned_alloc(QN_WORKSPACE_ALIGN,
                                    (bytes + QN_WORKSPACE_ALIGN - 1) / QN_WORKSPACE_ALIGN * QN_WORKSPACE_ALIGN);
    q.workspace_size = bytes;
    status = qn_dispatch(qc_context, &q, &r);
    free(q.workspace);
    if (status == QN_OK) return QN_OK;
    qn_result_format(&r, text, sizeof text);
    return trouble(tape, status, op, text);
}

static const qn_shape *shape(void *self, qn_val value) {
    qc_tape *tape = self;
    memset(&tape->asked, 0, sizeof tape->asked);
    if (value < 0 || value >= tape->n) return &tape->asked;
    const qn_tensor *t = &tape->value[value];
    tape->asked.dtype = t->dtype;
    tape->asked.rank = t->rank;
    memcpy(tape->asked.d, t->shape, sizeof tape->asked.d);
    return &tape->asked;
}

static int strides(void *self, qn_val value, int64_t *stride) {
    const qc_tape *tape = self;
    const qn_tensor *t = value >= 0 && value < tape->n ? &tape->value[value] : NULL;
    if (!t || qn_tensor_is_contiguous(t)) return 0;
    memcpy(stride, t->stride, sizeof t->stride);
    return 1;
}

void qc_tape_begin(qc_tape *tape) {
    tape->n = 0;
    tape->trouble[0] = 0;
    tape->emitter = (qn_emitter){tape, apply, shape, NULL, strides};
}

void qc_tape_end(qc_tape *tape) {
    for (int i = 0; i < tape->n; i++) free(tape->owned[i]);
    tape->n = 0;
}
