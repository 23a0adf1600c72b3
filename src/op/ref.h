/* Tools of the reference kernels. Everything is read as double and written with one rounding, whatever the dtype, so a
 * reference is the formula and nothing else. Integers go through double too: ops that must keep 64-bit integers exact copy
 * bytes instead (qn_copy_run). */
#ifndef QN_OP_REF_H
#define QN_OP_REF_H

#include "op/op.h"
#include "tensor/convert.h"
#include "tensor/dtype.h"

enum { QN_RUN = 256 }; /* elements a reference keeps on the stack at a time: one block of the largest block type */

/* As an integer sum, because a row of an empty view has an address that nothing is ever read from, in its buffer or not. */
static inline char *qn_at(const qn_tensor *t, int64_t bytes) {
    return (char *)((uintptr_t)t->data + (uintptr_t)(t->offset + bytes));
}

/* Byte offset of element (i3, i2, i1, i0), axes counted from the last; axes beyond the rank take index 0. */
static inline int64_t qn_off4(const qn_tensor *t, int64_t i3, int64_t i2, int64_t i1, int64_t i0) {
    return i0 * qn_nb(t, 0) + i1 * qn_nb(t, 1) + i2 * qn_nb(t, 2) + i3 * qn_nb(t, 3);
}
/* One element as double. Plain dtypes only: decode blocks with qn_load_row. */
static inline double qn_get4(const qn_tensor *t, int64_t i3, int64_t i2, int64_t i1, int64_t i0) {
    return qn_load_one((qn_dtype)t->dtype, qn_at(t, qn_off4(t, i3, i2, i1, i0)));
}
static inline void qn_put4(const qn_tensor *t, int64_t i3, int64_t i2, int64_t i1, int64_t i0, double v) {
    qn_store_one((qn_dtype)t->dtype, qn_at(t, qn_off4(t, i3, i2, i1, i0)), v);
}
/* Index held by an I32 or I64 tensor. */
static inline int64_t qn_index4(const qn_tensor *t, int64_t i3, int64_t i2, int64_t i1, int64_t i0) {
    return qn_load_index((qn_dtype)t->dtype, qn_at(t, qn_off4(t, i3, i2, i1, i0)));
}

/* Walks all rows of a shape (every axis but the last) in logical order. Use:
 *     qn_rows it;
 *     for (qn_rows_begin(&it, y->rank, y->shape); it.live; qn_rows_next(&it)) { ... qn_row(&it, y) ... }
 * An empty shape has no rows. A shape whose last axis is empty has no rows either. */
typedef struct qn_rows {
    int live;
    int rank;
    int64_t n;   /* length of a row */
    int64_t row; /* number of this row */
    const int64_t *shape;
    int64_t index[QN_MAX_RANK]; /* of this row's first element */
} qn_rows;

void qn_rows_begin(qn_rows *it, int rank, const int64_t *shape);
/* The same from row number `row` on. */
void qn_rows_begin_at(qn_rows *it, int rank, const int64_t *shape, int64_t row);
static inline void qn_rows_next(qn_rows *it) {
    it->row++;
    for (int i = it->rank - 2; i >= 0; i--) {
        if (++it->index[i] < it->shape[i]) return;
        it->index[i] = 0;
    }
    it->live = 0;
}
/* First byte of this row in a tensor of the walked shape (leading ones aside). */
static inline char *qn_row(const qn_rows *it, const qn_tensor *t) {
    int64_t at = 0;
    for (int k = 1; k < it->rank && k < t->rank; k++) at += it->index[it->rank - 1 - k] * t->stride[t->rank - 1 - k];
    return qn_at(t, at);
}
/* The same in a smaller tensor that is tiled over the walked shape: index modulo extent on every axis. Most indices are below, or the extent
 * is 1: a division costs as much as a short row does. */
static inline char *qn_row_tiled(const qn_rows *it, const qn_tensor *t) {
    int64_t at = 0;
    for (int k = 1; k < it->rank && k < t->rank; k++) {
        int axis = t->rank - 1 - k;
        int64_t i = it->index[it->rank - 1 - k], extent = t->shape[axis];
        if (i >= extent) i = extent == 1 ? 0 : i % extent;
        at += i * t->stride[axis];
    }
    return qn_at(t, at);
}

/* Elements [first, first + n) of a row that starts at `row`, as doubles. Any dtype, any first. */
static inline void qn_load_row(const qn_tensor *t, const char *row, int64_t first, int64_t n, double *out) {
    qn_load_run((qn_dtype)t->dtype, row, qn_nb(t, 0), first, n, out);
}
/* Elements [first, first + n) of a row written from doubles. For block types first and n are whole blocks. */
static inline void qn_store_row(const qn_tensor *t, char *row, int64_t first, int64_t n, const double *in) {
    qn_store_run((qn_dtype)t->dtype, row, qn_nb(t, 0), first, n, in);
}
/* Elements of a row that is tiled along the last axis too: element i is row[i mod extent]. */
void qn_load_row_tiled(const qn_tensor *t, const char *row, int64_t first, int64_t n, double *out);

/* Fill a whole tensor with one value. */
void qn_fill(const qn_tensor *t, double value);
/* Copy src to dst in logical order; shapes may differ, counts may not. Same dtype copies bits, else converts once. */
void qn_copy(const qn_tensor *dst, const qn_tensor *src);

/* y = f(x) for every element; p is passed on. */
typedef double (*qn_map1_fn)(double x, const void *p);
typedef double (*qn_map2_fn)(double a, double b, const void *p);
void qn_map1(const qn_tensor *y, const qn_tensor *x, qn_map1_fn f, const void *p);
/* y = f(a, b), b tiled over a. */
void qn_map2(const qn_tensor *y, const qn_tensor *a, const qn_tensor *b, qn_map2_fn f, const void *p);

/* The same with the loop inside f: a[i] = f(a[i], b[i]) for n elements. For functions so short that a call each would be most
 * of the work. */
typedef void (*qn_run2_fn)(double *a, const double *b, int64_t n);
void qn_map2_runs(const qn_tensor *y, const qn_tensor *a, const qn_tensor *b, qn_run2_fn f);

#endif
