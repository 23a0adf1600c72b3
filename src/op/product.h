/* What the ops that multiply rows share (matmul, softmax with masks, attention): the dot product of their references, and the
 * checks about sharing an operand and about f64. */
#ifndef QN_OP_PRODUCT_H
#define QN_OP_PRODUCT_H

#include "op/ref.h"

/* The k-th axis from the end, counted from the front as reasons print it; negative when t has no such axis. */
static inline int qn_axis(const qn_tensor *t, int k) { return t->rank - 1 - k; }

/* Whether `many` splits into equal shares over `few`; nothing splits only over nothing. */
static inline int qn_divides(int64_t few, int64_t many) { return few == 0 ? many == 0 : many % few == 0; }

/* How many of `many` share one of `few`; 1 when there are none, so that it may be divided by. */
static inline int64_t qn_share(int64_t few, int64_t many) { return few > 0 && many > few ? many / few : 1; }

/* Rejects unless the k-th extent from the end of source `slot` divides `whole`. */
static inline qn_status qn_need_divides(qn_infer_call *c, int slot, int k, int64_t whole) {
    int64_t extent = qn_ne(c->src[slot], k);
    if (qn_divides(extent, whole)) return QN_OK;
    return qn_reject_src(c, slot, QN_REASON_SHAPE_DIVIDES, qn_axis(c->src[slot], k), whole, extent);
}

/* f64 is there to check gradients with: it goes with itself only, so that no result is quietly less exact than it looks. */
static inline qn_status qn_need_f64_pair(qn_infer_call *c, int slot, int like) {
    uint32_t a = c->src[like]->dtype, b = c->src[slot]->dtype;
    if ((a == QN_DTYPE_F64) == (b == QN_DTYPE_F64)) return QN_OK;
    return qn_reject_src(c, slot, QN_REASON_DTYPE_PAIR, -1, a, b);
}

/* f64 from f64, f32 from everything else: what products of rows give. */
static inline uint32_t qn_product_dtype(const qn_tensor *t) { return t->dtype == QN_DTYPE_F64 ? QN_DTYPE_F64 : QN_DTYPE_F32; }

/* What a product of two operands is rounded to: their dtype when they agree on one, f32 otherwise. */
static inline uint32_t qn_joint_dtype(const qn_tensor *a, const qn_tensor *b) {
    return a->dtype == b->dtype ? a->dtype : QN_DTYPE_F32;
}

/* How many elements from `first` of a row of n fit on the stack. */
static inline int64_t qn_some(int64_t n, int64_t first) { return n - first < QN_RUN ? n - first : QN_RUN; }

/* First byte of row (i3, i2, i1), axes counted from the last. Rows of nothing have none: the strides of an empty tensor were
 * never checked and must not be used. */
static inline char *qn_row4(const qn_tensor *t, int64_t i3, int64_t i2, int64_t i1) {
    return qn_ne(t, 0) ? qn_at(t, qn_off4(t, i3, i2, i1, 0)) : NULL;
}

/* Dot product of two rows of any dtypes, left to right. */
static inline double qn_dot_rows(const qn_tensor *a, const char *a_row, const qn_tensor *b, const char *b_row, int64_t n) {
    double x[QN_RUN], y[QN_RUN], sum = 0;
    for (int64_t first = 0; first < n; first += QN_RUN) {
        int64_t some = qn_some(n, first);
        qn_load_row(a, a_row, first, some, x);
        qn_load_row(b, b_row, first, some, y);
        for (int64_t i = 0; i < some; i++) sum += x[i] * y[i];
    }
    return sum;
}

/* sum += weight * row[first, first + some). */
static inline void qn_add_row(double *sum, double weight, const qn_tensor *t, const char *row, int64_t first, int64_t some) {
    double x[QN_RUN];
    qn_load_row(t, row, first, some, x);
    for (int64_t i = 0; i < some; i++) sum[i] += weight * x[i];
}

/* Byte offset of matrix number `number`, all axes but the last two taken as one. */
static inline int64_t qn_matrix_offset(const qn_tensor *t, int64_t number) {
    int64_t offset = 0;
    for (int k = 2; k < t->rank; k++) {
        offset += number % qn_ne(t, k) * qn_nb(t, k);
        number /= qn_ne(t, k);
    }
    return offset;
}

#endif
