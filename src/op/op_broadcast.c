/* Ops whose operands are broadcast against each other: compare, logic, where (arith is next door); and what broadcasting is made
 * of or spares: expand, narrow, join and cast. Operands are walked with a stride of zero where they are stretched. */
#include "op/op_broadcast.h"

#include "op/op_emit.h"
#include "op/scalar_math.h"
#include "op/op_layout.h"

/* ---- Shape rules */

qn_status qn_infer_arith(qn_infer_call *c) {
    QN_TRY(qn_op_broadcast(c, 2, c->src[0]->dtype));
    return qn_need_same_dtype(c, 1, 0);
}

qn_status qn_infer_compare(qn_infer_call *c) {
    QN_TRY(qn_op_broadcast(c, 2, QN_DTYPE_BOOL));
    return qn_need_same_dtype(c, 1, 0);
}

qn_status qn_infer_logic(qn_infer_call *c) {
    int one = c->subop == QN_LOGIC_not;
    if (one && c->src[1]) return qn_reject_src(c, 1, QN_REASON_NOT_TAKEN, -1, 0, 0);
    if (!one && !c->src[1]) return qn_reject_src(c, 1, QN_REASON_MISSING, -1, 0, 0);
    return qn_op_broadcast(c, 2, QN_DTYPE_BOOL);
}

qn_status qn_infer_where(qn_infer_call *c) {
    QN_TRY(qn_op_broadcast(c, 3, c->src[1]->dtype));
    return qn_need_same_dtype(c, 2, 1);
}

qn_status qn_infer_cast(qn_infer_call *c) {
    const qn_tensor *a = c->src[0];
    uint32_t to = (uint32_t)((const qn_attr_cast *)c->attr)->dtype;
    QN_TRY(qn_out_shape(c, 0, to, a->rank, a->shape));
    if (!qn_can_convert((qn_dtype)a->dtype, (qn_dtype)to))
        return qn_reject_unsupported(c, 0, QN_REASON_DTYPE_CONVERT, to, a->dtype);
    return QN_OK;
}

qn_status qn_infer_expand(qn_infer_call *c) {
    const qn_dims *shape = &((const qn_attr_expand *)c->attr)->shape;
    const qn_tensor *a = c->src[0];
    int64_t count;
    QN_TRY(qn_op_shape_check(c, "shape", shape, a->dtype, &count));
    if (shape->rank < a->rank) return qn_reject_attr(c, "shape", QN_REASON_ATTR_RANK, -1, a->rank, shape->rank);
    for (int k = 0; k < shape->rank; k++) {
        int i = shape->rank - 1 - k;
        int64_t n = qn_ne(a, k);
        if (n != 1 && shape->d[i] != n) return qn_reject_attr(c, "shape", QN_REASON_ATTR_EXTENT, i, n, shape->d[i]);
        c->view_stride[i] = n == 1 && shape->d[i] != 1 ? 0 : qn_nb(a, k);
    }
    c->view_offset = a->offset;
    return qn_out_shape(c, 0, a->dtype, shape->rank, shape->d);
}

/* Where the first element that is left lies. A view of nothing begins where a does: its own place may be out of reach. */
static qn_status narrow_offset(qn_infer_call *c, int axis, int64_t steps, int64_t length) {
    const qn_tensor *a = c->src[0];
    int64_t skip;
    c->view_offset = a->offset;
    if (length == 0) return QN_OK;
    if (qn_mul_overflow(steps, a->stride[axis], &skip) || qn_add_overflow(a->offset, skip, &c->view_offset))
        return qn_reject_src(c, 0, QN_REASON_ADDRESS_OVERFLOW, axis, 0, a->stride[axis]);
    if (c->view_offset >= 0) return QN_OK;
    return qn_reject_src(c, 0, QN_REASON_OUT_OF_BUFFER_LOW, axis, 0, c->view_offset == INT64_MIN ? INT64_MAX : -c->view_offset);
}

qn_status qn_infer_narrow(qn_infer_call *c) {
    const qn_attr_narrow *at = c->attr;
    const qn_tensor *a = c->src[0];
    QN_TRY(qn_op_axis_check(c, at->axis, a->rank));
    int axis = qn_op_front(a->rank, qn_op_axis(at->axis, a->rank));
    int64_t n = a->shape[axis], d[QN_MAX_RANK], block = axis == a->rank - 1 ? qn_dtype_describe((qn_dtype)a->dtype)->block : 1;
    if (at->start > n)
        return qn_reject_attr(c, "start", QN_REASON_ATTR_HIGH, -1, qn_f_bits((double)n), qn_f_bits((double)at->start));
    if (at->length > n - at->start)
        return qn_reject_attr(c, "length", QN_REASON_ATTR_HIGH, -1, qn_f_bits((double)(n - at->start)),
                              qn_f_bits((double)at->length));
    if (at->start % block) return qn_reject_attr(c, "start", QN_REASON_PARTIAL_BLOCK, axis, block, at->start);
    if (at->length % block) return qn_reject_attr(c, "length", QN_REASON_PARTIAL_BLOCK, axis, block, at->length);
    for (int i = 0; i < a->rank; i++) {
        d[i] = i == axis ? at->length : a->shape[i];
        c->view_stride[i] = a->stride[i];
    }
    QN_TRY(narrow_offset(c, axis, at->start / block, at->length));
    return qn_out_shape(c, 0, a->dtype, a->rank, d);
}

static int join_rank(const qn_tensor *const *src, int n) {
    int rank = 1;
    for (int s = 0; s < n; s++)
        if (src[s] && src[s]->rank > rank) rank = src[s]->rank;
    return rank;
}

qn_status qn_infer_join(qn_infer_call *c) {
    int32_t axis = ((const qn_attr_join *)c->attr)->axis;
    const qn_tensor *a = c->src[0];
    int rank = join_rank(c->src, c->n_src);
    int64_t d[QN_MAX_RANK], sum = 0;
    QN_TRY(qn_op_axis_check(c, axis, rank));
    int joined = qn_op_axis(axis, rank);
    for (int s = 0; s < c->n_src; s++) {
        const qn_tensor *t = c->src[s];
        if (!t) continue;
        for (int k = 0; k < rank; k++)
            if (k != joined) QN_TRY(qn_need_extent(c, s, k, qn_ne(a, k)));
        if (qn_add_overflow(sum, qn_ne(t, joined), &sum))
            return qn_reject_src(c, s, QN_REASON_SIZE_OVERFLOW, joined < t->rank ? qn_op_front(t->rank, joined) : 0, INT64_MAX,
                                 qn_ne(t, joined));
        QN_TRY(qn_need_same_dtype(c, s, 0));
    }
    for (int k = 0; k < rank; k++) d[rank - 1 - k] = k == joined ? sum : qn_ne(a, k);
    return qn_out_shape(c, 0, a->dtype, rank, d);
}

/* ---- References */

void qn_op_pairs(const qn_tensor *y, const qn_tensor *a, const qn_tensor *b, qn_run2_fn f) {
    qn_tensor left = qn_op_stretch(a, y), right = qn_op_stretch(b, y);
    double x[QN_RUN], z[QN_RUN];
    qn_rows it;
    for (qn_rows_begin(&it, y->rank, y->shape); it.live; qn_rows_next(&it))
        for (int64_t i = 0; i < it.n; i += QN_RUN) {
            int64_t n = it.n - i < QN_RUN ? it.n - i : QN_RUN;
            qn_load_row(&left, qn_row(&it, &left), i, n, x);
            qn_load_row(&right, qn_row(&it, &right), i, n, z);
            f(x, z, n);
            qn_store_row(y, qn_row(&it, y), i, n, x);
        }
}

void qn_op_integer_pairs(const qn_tensor *y, const qn_tensor *a, const qn_tensor *b, qn_op_integer_fn f) {
    qn_tensor left = qn_op_stretch(a, y), right = qn_op_stretch(b, y);
    qn_dtype dtype = (qn_dtype)a->dtype;
    qn_rows it;
    for (qn_rows_begin(&it, y->rank, y->shape); it.live; qn_rows_next(&it)) {
        char *to = qn_row(&it, y);
        const char *x = qn_row(&it, &left), *z = qn_row(&it, &right);
        for (int64_t i = 0; i < it.n; i++) {
            int64_t v = f(qn_load_index(dtype, x + i * qn_nb(&left, 0)), qn_load_index(dtype, z + i * qn_nb(&right, 0)));
            qn_store_integer((qn_dtype)y->dtype, to + i * qn_nb(y, 0), v);
        }
    }
}

#define COMPARE(name, sign)                                           \
    static void float_##name(double *a, const double *b, int64_t n) { \
        for (int64_t i = 0; i < n; i++) a[i] = a[i] sign b[i];        \
    }                                                                 \
    static int64_t integer_##name(int64_t a, int64_t b) { return a sign b; }
COMPARE(eq, ==)
COMPARE(ne, !=)
COMPARE(lt, <)
COMPARE(le, <=)
COMPARE(gt, >)
COMPARE(ge, >=)

static const qn_run2_fn floats[] = {
#define QN_COMPARE(name, formula) float_##name,
#include <quern/compare.def>
#undef QN_COMPARE
};

double qn_op_compare(int subop, double a, double b) {
    floats[subop](&a, &b, 1);
    return a;
}

qn_status qn_ref_compare(const qn_call *c) {
    static const qn_op_integer_fn integers[] = {
#define QN_COMPARE(name, formula) integer_##name,
#include <quern/compare.def>
#undef QN_COMPARE
    };
    if (qn_is_integer(c->src[0]->dtype)) qn_op_integer_pairs(c->dst[0], c->src[0], c->src[1], integers[c->subop]);
    else qn_op_pairs(c->dst[0], c->src[0], c->src[1], floats[c->subop]);
    return QN_OK;
}

#define LOGIC(name, expression)                                       \
    static void truth_##name(double *a, const double *b, int64_t n) { \
        for (int64_t i = 0; i < n; i++) {                             \
            int x = a[i] != 0, z = b[i] != 0;                         \
            (void)z;                                                  \
            a[i] = expression;                                        \
        }                                                             \
    }
LOGIC(and, x &&z)
LOGIC(or, x || z)
LOGIC(xor, x != z)
LOGIC(not, !x)

static const qn_run2_fn truths[] = {
#define QN_LOGIC(name, formula) truth_##name,
#include <quern/logic.def>
#undef QN_LOGIC
};

double qn_op_logic(int subop, double a, double b) {
    truths[subop](&a, &b, 1);
    return a;
}

qn_status qn_ref_logic(const qn_call *c) {
    qn_op_pairs(c->dst[0], c->src[0], c->src[c->subop == QN_LOGIC_not ? 0 : 1], truths[c->subop]);
    return QN_OK;
}

qn_status qn_ref_where(const qn_call *c) {
    const qn_tensor *to = c->dst[0];
    qn_tensor cond = qn_op_stretch(c->src[0], to), x = qn_op_stretch(c->src[1], to), y = qn_op_stretch(c->src[2], to);
    size_t bytes = (size_t)qn_dtype_bytes(to->dtype);
    double run[QN_RUN];
    qn_rows it;
    for (qn_rows_begin(&it, to->rank, to->shape); it.live; qn_rows_next(&it)) {
        char *row = qn_row(&it, to);
        const char *px = qn_row(&it, &x), *py = qn_row(&it, &y);
        for (int64_t i = 0; i < it.n; i++) {
            int64_t left = it.n - i;
            if (i % QN_RUN == 0) qn_load_row(&cond, qn_row(&it, &cond), i, left < QN_RUN ? left : QN_RUN, run);
            const char *from = run[i % QN_RUN] != 0 ? px + i * qn_nb(&x, 0) : py + i * qn_nb(&y, 0);
            memmove(row + i * qn_nb(to, 0), from, bytes); /* in place it is the same element */
        }
    }
    return QN_OK;
}

qn_status qn_ref_cast(const qn_call *c) {
    if (!qn_op_in_place(c->dst[0], c->src[0])) qn_copy(c->dst[0], c->src[0]);
    return QN_OK;
}

static qn_status writes_nothing(const qn_call *c) {
    (void)c;
    return QN_OK;
}
qn_status qn_ref_expand(const qn_call *c) { return writes_nothing(c); }
qn_status qn_ref_narrow(const qn_call *c) { return writes_nothing(c); }

qn_status qn_ref_join(const qn_call *c) {
    int k = qn_op_axis(((const qn_attr_join *)c->attr)->axis, join_rank(c->src, c->n_src)), axis = QN_MAX_RANK - 1 - k;
    int64_t block = k == 0 ? qn_dtype_describe((qn_dtype)c->src[0]->dtype)->block : 1;
    qn_tensor part = qn_op_tensor_widen(c->dst[0]);
    for (int s = 0; s < c->n_src; s++) {
        if (!c->src[s]) continue;
        part.shape[axis] = qn_ne(c->src[s], k);
        qn_copy(&part, c->src[s]);
        part.offset += part.shape[axis] / block * part.stride[axis];
    }
    return QN_OK;
}

/* ---- Gradients */

void qn_vjp_where(qn_vjp_call *v) {
    qn_val g = v->grad[0], cond = v->src[0], zero = QN_VAL_NONE;
    v->out[0] = QN_VAL_NONE; /* a condition chooses: nothing of it is in the result */
    if (v->want[1] || v->want[2]) zero = qn_e_zeros(v, g);
    if (v->want[1]) v->out[1] = qn_e_untile_like(v, qn_emit3(v, QN_OP_where, 0, NULL, cond, g, zero), v->src[1]);
    if (v->want[2]) v->out[2] = qn_e_untile_like(v, qn_emit3(v, QN_OP_where, 0, NULL, cond, zero, g), v->src[2]);
}

void qn_vjp_expand(qn_vjp_call *v) {
    if (v->want[0]) v->out[0] = qn_e_untile_like(v, v->grad[0], v->src[0]);
}

void qn_vjp_narrow(qn_vjp_call *v) {
    const qn_attr_narrow *at = v->attr;
    qn_shape a = qn_shape_of(v, v->src[0]);
    qn_attr_pad pad = qn_attr_pad_default();
    if (!v->want[0] || v->status != QN_OK) return;
    int axis = qn_op_front(a.rank, qn_op_axis(at->axis, a.rank));
    pad.left.rank = pad.right.rank = a.rank;
    pad.left.d[axis] = at->start;
    pad.right.d[axis] = a.d[axis] - at->start - at->length;
    v->out[0] = qn_emit1(v, QN_OP_pad, 0, &pad, v->grad[0]);
}

void qn_vjp_join(qn_vjp_call *v) {
    qn_shape s[QN_MAX_SRC];
    int rank = 1;
    for (int i = 0; i < v->n_src; i++) {
        s[i] = qn_shape_of(v, v->src[i]);
        if (v->src[i] != QN_VAL_NONE && s[i].rank > rank) rank = s[i].rank;
    }
    int k = qn_op_axis(((const qn_attr_join *)v->attr)->axis, rank);
    qn_attr_narrow at = qn_attr_narrow_default();
    at.axis = -1 - k;
    for (int i = 0; i < v->n_src; i++) {
        if (v->src[i] == QN_VAL_NONE) continue;
        at.length = qn_sd(&s[i], k);
        if (v->want[i]) v->out[i] = qn_e_like(v, qn_emit1(v, QN_OP_narrow, 0, &at, v->grad[0]), v->src[i]);
        at.start += at.length;
    }
}
