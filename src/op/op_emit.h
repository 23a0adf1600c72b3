/* How gradient rules write ops without knowing who listens: the graph builder records them, the eager checker runs them at
 * once. A rule is called with the values of the forward op and the gradients of its outputs, and leaves in v->out[i] the
 * gradient of source i for each v->want[i]; QN_VAL_NONE means zero. The first failure sticks in v->status and every later call
 * returns QN_VAL_NONE, so a rule can be written as one expression.
 *
 * Rules need not match dtypes: the caller converts v->out[i] to the dtype of source i, and the binary helpers here bring
 * unequal operands to the wider one. */
#ifndef QN_OP_EMIT_H
#define QN_OP_EMIT_H

#include "op/op.h"

typedef struct qn_emitter {
    void *self;
    /* Append one op; fills out[0..n_out). Absent optional sources are QN_VAL_NONE. */
    qn_status (*apply)(void *self, int op, int subop, int n_src, const qn_val *src, const void *attr, int n_out, qn_val *out);
    /* Shape and dtype of a value; valid until the next apply. */
    const qn_shape *(*shape)(void *self, qn_val value);
    qn_graph *graph; /* that apply adds to, for rules that must build bodies for it; NULL when ops run at once */
    /* Byte strides of a value, one per axis; 0 when it is dense. NULL: values have no layout, which is the same as dense. */
    int (*strides)(void *self, qn_val value, int64_t *stride);
} qn_emitter;

struct qn_vjp_call {
    const qn_emitter *emitter;
    int op, subop;
    const void *attr; /* the forward op's, complete */
    int n_src, n_dst;
    qn_val src[QN_MAX_SRC]; /* QN_VAL_NONE where not given */
    qn_val dst[QN_MAX_DST];
    qn_val grad[QN_MAX_DST]; /* gradient of each output, QN_VAL_NONE when it is zero */
    int want[QN_MAX_SRC];
    qn_val out[QN_MAX_SRC];
    qn_status status;
    const char *why; /* of a rule that refused, else NULL */
    int why_slot;    /* the source it refused, -1 when it is none of the op's own */
};

/* A rule's way to say that it has no gradient for a source: fails v as UNSUPPORTED. `why` is a constant string. */
void qn_vjp_refuse(qn_vjp_call *v, int slot, const char *why);

/* Any op with one output. attr NULL takes the defaults. */
qn_val qn_emit1(qn_vjp_call *v, qn_op op, int subop, const void *attr, qn_val a);
qn_val qn_emit2(qn_vjp_call *v, qn_op op, int subop, const void *attr, qn_val a, qn_val b);
qn_val qn_emit3(qn_vjp_call *v, qn_op op, int subop, const void *attr, qn_val a, qn_val b, qn_val c);
/* Any op at all. */
void qn_emit_many(qn_vjp_call *v, qn_op op, int subop, const void *attr, int n_src, const qn_val *src, int n_out, qn_val *out);

/* By value: a copy, so it stays good. Zero rank when v has failed. */
qn_shape qn_shape_of(qn_vjp_call *v, qn_val x);

qn_val qn_e_add(qn_vjp_call *v, qn_val a, qn_val b); /* b may be smaller: tiled */
qn_val qn_e_sub(qn_vjp_call *v, qn_val a, qn_val b);
qn_val qn_e_mul(qn_vjp_call *v, qn_val a, qn_val b);
qn_val qn_e_div(qn_vjp_call *v, qn_val a, qn_val b);
qn_val qn_e_scale(qn_vjp_call *v, qn_val a, double s, double b); /* s a + b */
qn_val qn_e_unary(qn_vjp_call *v, qn_unary f, qn_val a);
qn_val qn_e_sum_rows(qn_vjp_call *v, qn_val a);
qn_val qn_e_zeros(qn_vjp_call *v, qn_val like);
qn_val qn_e_cast(qn_vjp_call *v, qn_val a, uint32_t dtype); /* a itself when it has that dtype */
qn_val qn_e_cont(qn_vjp_call *v, qn_val a);
qn_val qn_e_transpose(qn_vjp_call *v, qn_val a);                           /* last two axes, copied: contiguous */
qn_val qn_e_reshape(qn_vjp_call *v, qn_val a, int rank, const int64_t *d); /* copies first: any strides */
qn_val qn_e_like(qn_vjp_call *v, qn_val a, qn_val shape_of);               /* reshape to another value's shape */
qn_val qn_e_permute(qn_vjp_call *v, qn_val a, int rank, const int *axes);  /* contiguous: axis i is axis axes[i] of a */
qn_val qn_e_tile(qn_vjp_call *v, qn_val a, int rank, const int64_t *d);    /* repeat */
qn_val qn_e_untile(qn_vjp_call *v, qn_val g, int rank, const int64_t *d);  /* repeat_back; g itself when shapes agree */
qn_val qn_e_untile_like(qn_vjp_call *v, qn_val g, qn_val like);
/* Elements [start, start + n) on one axis (counted from the front), copied. */
qn_val qn_e_slice(qn_vjp_call *v, qn_val a, int axis, int64_t start, int64_t n);
/* Window with byte strides into the contiguous form of a, copied. */
qn_val qn_e_window(qn_vjp_call *v, qn_val a, int rank, const int64_t *d, const int64_t *strides, int64_t offset);

#endif
