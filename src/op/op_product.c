/* General products of graphs: matmul with broadcast batches, dot_general over any axes, and matrices picked by index. The first
 * two are one loop over byte strides: an operand has stride 0 along every axis of the result that it does not have. Sums are
 * taken in double, left to right, and rounded once. */
#include "op/op_emit.h"
#include "op/product.h"

/* ---- The loop */

typedef struct product {
    const qn_tensor *a, *b, *y;
    int n_out, n_sum; /* both at least 1 */
    int64_t out[QN_MAX_RANK], sum[QN_MAX_RANK];
    int64_t a_out[QN_MAX_RANK], b_out[QN_MAX_RANK], a_sum[QN_MAX_RANK], b_sum[QN_MAX_RANK];
} product;

static void out_axis(product *p, int64_t extent, int64_t a_stride, int64_t b_stride) {
    p->out[p->n_out] = extent;
    p->a_out[p->n_out] = a_stride;
    p->b_out[p->n_out++] = b_stride;
}

static void sum_axis(product *p, int64_t extent, int64_t a_stride, int64_t b_stride) {
    p->sum[p->n_sum] = extent;
    p->a_sum[p->n_sum] = a_stride;
    p->b_sum[p->n_sum++] = b_stride;
}

static double sum_at(const product *p, const char *a, const char *b) {
    double x[QN_RUN], y[QN_RUN], total = 0;
    int last = p->n_sum - 1;
    qn_rows it;
    for (qn_rows_begin(&it, p->n_sum, p->sum); it.live; qn_rows_next(&it)) {
        int64_t at_a = 0, at_b = 0;
        for (int i = 0; i < last; i++) {
            at_a += it.index[i] * p->a_sum[i];
            at_b += it.index[i] * p->b_sum[i];
        }
        for (int64_t first = 0; first < it.n; first += QN_RUN) {
            int64_t some = qn_some(it.n, first);
            qn_load_run((qn_dtype)p->a->dtype, a + at_a, p->a_sum[last], first, some, x);
            qn_load_run((qn_dtype)p->b->dtype, b + at_b, p->b_sum[last], first, some, y);
            for (int64_t i = 0; i < some; i++) total += x[i] * y[i];
        }
    }
    return total;
}

static void multiply(product *p) {
    if (qn_tensor_count(p->y) == 0) return;
    if (qn_tensor_count(p->a) == 0 || qn_tensor_count(p->b) == 0) { /* nothing to add up; strides of nothing mean nothing */
        qn_fill(p->y, 0);
        return;
    }
    if (p->n_out == 0) out_axis(p, 1, 0, 0);
    if (p->n_sum == 0) sum_axis(p, 1, 0, 0);
    int last = p->n_out - 1;
    qn_rows it;
    for (qn_rows_begin(&it, p->n_out, p->out); it.live; qn_rows_next(&it)) {
        int64_t at_a = 0, at_b = 0;
        char *row = qn_row(&it, p->y);
        for (int i = 0; i < last; i++) {
            at_a += it.index[i] * p->a_out[i];
            at_b += it.index[i] * p->b_out[i];
        }
        for (int64_t i = 0; i < it.n; i++) {
            double v = sum_at(p, qn_at(p->a, at_a + i * p->a_out[last]), qn_at(p->b, at_b + i * p->b_out[last]));
            qn_store_row(p->y, row, i, 1, &v);
        }
    }
}

/* ---- Matmul. A vector has neither rows (on the left) nor columns (on the right). */

/* Axes of the operands, from the last; -1: a vector has none. */
typedef struct matmul_axes {
    int a_row, a_sum, b_sum, b_column;
    int batch; /* axes of the result in front of rows and columns */
} matmul_axes;

static matmul_axes axes_of(int a_rank, int b_rank, const qn_attr_matmul *at) {
    matmul_axes m = {-1, 0, 0, -1, 0};
    if (a_rank > 1) {
        m.a_row = at->transpose_a ? 0 : 1;
        m.a_sum = at->transpose_a ? 1 : 0;
    }
    if (b_rank > 1) {
        m.b_sum = at->transpose_b ? 0 : 1;
        m.b_column = at->transpose_b ? 1 : 0;
    }
    int most = a_rank > b_rank ? a_rank : b_rank;
    m.batch = most > 2 ? most - 2 : 0;
    return m;
}

static qn_status need_matrix(qn_infer_call *c, int slot, int transposed) {
    if (!transposed || c->src[slot]->rank > 1) return QN_OK;
    return qn_reject_src(c, slot, QN_REASON_SHAPE_RANK_LOW, -1, 2, c->src[slot]->rank);
}

qn_status qn_infer_matmul(qn_infer_call *c) {
    const qn_attr_matmul *at = c->attr;
    const qn_tensor *a = c->src[0], *b = c->src[1];
    int64_t d[QN_MAX_RANK], k;
    int n = 0;
    QN_TRY(need_matrix(c, 0, at->transpose_a));
    QN_TRY(need_matrix(c, 1, at->transpose_b));
    matmul_axes m = axes_of(a->rank, b->rank, at);
    k = qn_ne(a, m.a_sum);
    QN_TRY(qn_need_extent(c, 1, m.b_sum, k));
    for (int i = m.batch + 1; i > 1; i--) {
        int64_t na = qn_ne(a, i), nb = qn_ne(b, i);
        if (na != nb && na != 1 && nb != 1) return qn_reject_src(c, 1, QN_REASON_SHAPE_EXTENT, qn_axis(b, i), na, nb);
        d[n++] = na == 1 ? nb : na;
    }
    if (m.a_row >= 0) d[n++] = qn_ne(a, m.a_row);
    if (m.b_column >= 0) d[n++] = qn_ne(b, m.b_column);
    if (n == 0) d[n++] = 1;
    QN_TRY(qn_need_f64_pair(c, 1, 0));
    c->flops_each = 2 * (double)k;
    return qn_out_shape(c, 0, qn_joint_dtype(a, b), n, d);
}

/* Stride along an axis that may be stretched from 1. */
static int64_t stretched(const qn_tensor *t, int k) { return qn_ne(t, k) == 1 ? 0 : qn_nb(t, k); }

qn_status qn_ref_matmul(const qn_call *c) {
    product p = {.a = c->src[0], .b = c->src[1], .y = c->dst[0]};
    matmul_axes m = axes_of(p.a->rank, p.b->rank, c->attr);
    for (int i = m.batch + 1; i > 1; i--)
        out_axis(&p, qn_ne(p.a, i) == 1 ? qn_ne(p.b, i) : qn_ne(p.a, i), stretched(p.a, i), stretched(p.b, i));
    if (m.a_row >= 0) out_axis(&p, qn_ne(p.a, m.a_row), qn_nb(p.a, m.a_row), 0);
    if (m.b_column >= 0) out_axis(&p, qn_ne(p.b, m.b_column), 0, qn_nb(p.b, m.b_column));
    sum_axis(&p, qn_ne(p.a, m.a_sum), qn_nb(p.a, m.a_sum), qn_nb(p.b, m.b_sum));
    multiply(&p);
    return QN_OK;
}

static qn_val matmul(qn_vjp_call *v, qn_val a, int transpose_a, qn_val b, int transpose_b) {
    qn_attr_matmul at = qn_attr_matmul_default();
    at.transpose_a = transpose_a;
    at.transpose_b = transpose_b;
    return qn_emit2(v, QN_OP_matmul, 0, &at, a, b);
}

/* A value as a matrix with its batches: a vector gets the axis it lacks. */
static qn_val as_matrix(qn_vjp_call *v, qn_val x, int is_vector, int as_row) {
    qn_shape s = qn_shape_of(v, x);
    if (!is_vector) return x;
    int64_t d[2] = {as_row ? 1 : s.d[0], as_row ? s.d[0] : 1};
    return qn_e_reshape(v, x, 2, d);
}

/* The gradient with the axes that vectors took from the result. */
static qn_val whole_gradient(qn_vjp_call *v, const matmul_axes *m) {
    qn_shape g = qn_shape_of(v, v->grad[0]), y = qn_shape_of(v, v->dst[0]);
    if (m->a_row >= 0 && m->b_column >= 0 && g.rank == y.rank) return v->grad[0];
    int64_t d[QN_MAX_RANK];
    int n = m->batch + 2, k = 0;
    d[n - 1] = m->b_column < 0 ? 1 : qn_sd(&y, k++);
    d[n - 2] = m->a_row < 0 ? 1 : qn_sd(&y, k++);
    for (int i = n - 3; i >= 0; i--) d[i] = qn_sd(&y, k++);
    return qn_e_reshape(v, v->grad[0], n, d);
}

/* Adds up what batches sharing an operand gave, and takes its shape. */
static qn_val gather_batches(qn_vjp_call *v, qn_val each, qn_val source) {
    qn_shape e = qn_shape_of(v, each), s = qn_shape_of(v, source);
    int64_t d[QN_MAX_RANK];
    int vector = s.rank == 1;
    for (int k = 0; k < e.rank; k++) d[e.rank - 1 - k] = k < 2 ? qn_sd(&e, k) : vector ? 1 : qn_sd(&s, k);
    qn_val sum = qn_e_untile(v, each, e.rank, d);
    return e.rank == s.rank ? sum : qn_e_like(v, sum, source);
}

/* With A and B the matrices as they are multiplied: dA = g BT and dB = AT g; transposed once more for an operand that was. */
void qn_vjp_matmul(qn_vjp_call *v) {
    const qn_attr_matmul *at = v->attr;
    int a_vector = qn_shape_of(v, v->src[0]).rank == 1, b_vector = qn_shape_of(v, v->src[1]).rank == 1;
    matmul_axes m = axes_of(qn_shape_of(v, v->src[0]).rank, qn_shape_of(v, v->src[1]).rank, at);
    qn_val g = whole_gradient(v, &m);
    if (v->want[0]) {
        qn_val b = as_matrix(v, v->src[1], b_vector, 0);
        qn_val each = at->transpose_a ? matmul(v, b, at->transpose_b, g, 1) : matmul(v, g, 0, b, !at->transpose_b);
        v->out[0] = gather_batches(v, each, v->src[0]);
    }
    if (v->want[1]) {
        qn_val a = as_matrix(v, v->src[0], a_vector, 1);
        qn_val each = at->transpose_b ? matmul(v, g, 1, a, at->transpose_a) : matmul(v, a, !at->transpose_a, g, 0);
        v->out[1] = gather_batches(v, each, v->src[1]);
    }
}

/* ---- Dot_general */

/* The axes of an operand that are neither summed nor batches, in order; returns how many. */
static int rest_axes(int rank, const qn_dims *summed, const qn_dims *batch, int *rest) {
    unsigned used = 0;
    int n = 0;
    for (int i = 0; i < summed->rank; i++) used |= 1u << summed->d[i];
    for (int i = 0; i < batch->rank; i++) used |= 1u << batch->d[i];
    for (int i = 0; i < rank; i++)
        if (!(used >> i & 1)) rest[n++] = i;
    return n;
}

/* A list of different axes of a source, none of them among `taken`; adds its own to `taken`. */
static qn_status need_axes(qn_infer_call *c, int slot, const char *name, const qn_dims *list, unsigned *taken) {
    unsigned own = 0;
    int rank = c->src[slot]->rank;
    for (int i = 0; i < list->rank; i++) {
        int64_t axis = list->d[i];
        if (axis < 0) return qn_reject_attr(c, name, QN_REASON_ATTR_ENTRY_LOW, i, 0, axis);
        if (axis >= rank) return qn_reject_attr(c, name, QN_REASON_ATTR_ENTRY_HIGH, i, rank - 1, axis);
        if (own >> axis & 1) return qn_reject_attr(c, name, QN_REASON_ATTR_REPEATED, i, 0, axis);
        if (*taken >> axis & 1) return qn_reject_attr(c, name, QN_REASON_ATTR_CONFLICT, i, axis, axis);
        own |= 1u << axis;
    }
    *taken |= own;
    return QN_OK;
}

static qn_status need_pairs(qn_infer_call *c, const qn_dims *left, const qn_dims *right) {
    const qn_tensor *a = c->src[0], *b = c->src[1];
    for (int i = 0; i < left->rank; i++) {
        int64_t want = a->shape[left->d[i]], have = b->shape[right->d[i]];
        if (want != have) return qn_reject_src(c, 1, QN_REASON_SHAPE_EXTENT, (int)right->d[i], want, have);
    }
    return QN_OK;
}

qn_status qn_infer_dot_general(qn_infer_call *c) {
    const qn_attr_dot_general *at = c->attr;
    const qn_tensor *a = c->src[0], *b = c->src[1];
    unsigned a_taken = 0, b_taken = 0;
    int left[QN_MAX_RANK], right[QN_MAX_RANK], n = 0;
    int64_t d[QN_MAX_RANK];
    if (at->rc.rank != at->lc.rank) return qn_reject_attr(c, "rc", QN_REASON_ATTR_RANK, -1, at->lc.rank, at->rc.rank);
    if (at->rb.rank != at->lb.rank) return qn_reject_attr(c, "rb", QN_REASON_ATTR_RANK, -1, at->lb.rank, at->rb.rank);
    QN_TRY(need_axes(c, 0, "lc", &at->lc, &a_taken));
    QN_TRY(need_axes(c, 1, "rc", &at->rc, &b_taken));
    QN_TRY(need_axes(c, 0, "lb", &at->lb, &a_taken));
    QN_TRY(need_axes(c, 1, "rb", &at->rb, &b_taken));
    QN_TRY(need_pairs(c, &at->lc, &at->rc));
    QN_TRY(need_pairs(c, &at->lb, &at->rb));
    int n_left = rest_axes(a->rank, &at->lc, &at->lb, left), n_right = rest_axes(b->rank, &at->rc, &at->rb, right);
    int rank = at->lb.rank + n_left + n_right;
    if (rank > QN_MAX_RANK) return qn_reject_out(c, 0, QN_REASON_SHAPE_RANK, -1, QN_MAX_RANK, rank);
    for (int i = 0; i < at->lb.rank; i++) d[n++] = a->shape[at->lb.d[i]];
    for (int i = 0; i < n_left; i++) d[n++] = a->shape[left[i]];
    for (int i = 0; i < n_right; i++) d[n++] = b->shape[right[i]];
    if (n == 0) d[n++] = 1;
    c->flops_each = 2;
    for (int i = 0; i < at->lc.rank; i++) c->flops_each *= (double)a->shape[at->lc.d[i]];
    QN_TRY(qn_need_f64_pair(c, 1, 0));
    return qn_out_shape(c, 0, qn_joint_dtype(a, b), n, d);
}

qn_status qn_ref_dot_general(const qn_call *c) {
    const qn_attr_dot_general *at = c->attr;
    product p = {.a = c->src[0], .b = c->src[1], .y = c->dst[0]};
    const int64_t *sa = p.a->stride, *sb = p.b->stride;
    int rest[QN_MAX_RANK], n;
    for (int i = 0; i < at->lb.rank; i++) out_axis(&p, p.a->shape[at->lb.d[i]], sa[at->lb.d[i]], sb[at->rb.d[i]]);
    n = rest_axes(p.a->rank, &at->lc, &at->lb, rest);
    for (int i = 0; i < n; i++) out_axis(&p, p.a->shape[rest[i]], sa[rest[i]], 0);
    n = rest_axes(p.b->rank, &at->rc, &at->rb, rest);
    for (int i = 0; i < n; i++) out_axis(&p, p.b->shape[rest[i]], 0, sb[rest[i]]);
    for (int i = 0; i < at->lc.rank; i++) sum_axis(&p, p.a->shape[at->lc.d[i]], sa[at->lc.d[i]], sb[at->rc.d[i]]);
    multiply(&p);
    return QN_OK;
}

/* Both operands of dot_general seen from the one whose gradient is wanted. */
typedef struct dot_side {
    qn_val mine, other;
    const qn_dims *my_sum, *my_batch, *other_sum, *other_batch;
    int rest_first; /* where the other's own axes begin in the gradient */
} dot_side;

/* Where each axis of the wanted gradient is in what [batch, my rest, other's summed axes in its order] has. */
static void back_axes(const dot_side *s, int rank, int *axes) {
    int rest[QN_MAX_RANK], n = rest_axes(rank, s->my_sum, s->my_batch, rest), at = 0;
    for (int i = 0; i < s->my_batch->rank; i++) axes[s->my_batch->d[i]] = at++;
    for (int i = 0; i < n; i++) axes[rest[i]] = at++;
    for (int axis = 0; axis < QN_MAX_RANK; axis++)
        for (int i = 0; i < s->other_sum->rank; i++)
            if (s->other_sum->d[i] == axis) axes[s->my_sum->d[i]] = at++;
}

/* Sums the gradient with the other operand over the other's own axes, and puts what is left in the order of mine. */
static qn_val dot_back(qn_vjp_call *v, const dot_side *s) {
    qn_attr_dot_general at = qn_attr_dot_general_default();
    int other_rank = qn_shape_of(v, s->other).rank, rank = qn_shape_of(v, s->mine).rank, rest[QN_MAX_RANK],
        axes[QN_MAX_RANK] = {0};
    int n = rest_axes(other_rank, s->other_sum, s->other_batch, rest), same = 1;
    if (s->my_sum->rank == rank && s->other_sum->rank == other_rank) { /* the result was one number */
        for (int i = 0; i < rank; i++) axes[s->my_sum->d[i]] = (int)s->other_sum->d[i];
        return qn_e_mul(v, qn_e_permute(v, s->other, rank, axes), v->grad[0]);
    }
    at.lc.rank = at.rc.rank = n;
    for (int i = 0; i < n; i++) {
        at.lc.d[i] = s->rest_first + i;
        at.rc.d[i] = rest[i];
    }
    at.lb.rank = s->my_batch->rank;
    for (int i = 0; i < at.lb.rank; i++) at.lb.d[i] = i;
    at.rb = *s->other_batch;
    qn_val back = qn_emit2(v, QN_OP_dot_general, 0, &at, v->grad[0], s->other);
    back_axes(s, rank, axes);
    for (int i = 0; i < rank; i++) same &= axes[i] == i;
    return same ? back : qn_e_permute(v, back, rank, axes);
}

void qn_vjp_dot_general(qn_vjp_call *v) {
    const qn_attr_dot_general *at = v->attr;
    int rest[QN_MAX_RANK], n_left = rest_axes(qn_shape_of(v, v->src[0]).rank, &at->lc, &at->lb, rest);
    dot_side a = {v->src[0], v->src[1], &at->lc, &at->lb, &at->rc, &at->rb, at->lb.rank + n_left};
    dot_side b = {v->src[1], v->src[0], &at->rc, &at->rb, &at->lc, &at->lb, at->lb.rank};
    if (v->want[0]) v->out[0] = dot_back(v, &a);
    if (v->want[1]) v->out[1] = dot_back(v, &b);
}

/* ---- Grouped_matmul */

qn_status qn_infer_grouped_matmul(qn_infer_call *c) {
    const qn_tensor *x = c->src[0], *w = c->src[1];
    QN_TRY(qn_need_rank(c, 0, 2));
    QN_TRY(qn_need_rank(c, 1, 3));
    QN_TRY(qn_need_rank(c, 2, 1));
    QN_TRY(qn_need_extent(c, 1, 1, qn_ne(x, 0)));
    QN_TRY(qn_need_extent(c, 2, 0, qn_ne(x, 1)));
    QN_TRY(qn_need_f64_pair(c, 1, 0));
    c->index_limit[2] = qn_ne(w, 2);
    int64_t d[2] = {qn_ne(x, 1), qn_ne(w, 0)};
    c->flops_each = 2 * (double)qn_ne(x, 0);
    return qn_out_shape(c, 0, qn_joint_dtype(x, w), 2, d);
}

qn_status qn_ref_grouped_matmul(const qn_call *c) {
    const qn_tensor *y = c->dst[0], *x = c->src[0], *w = c->src[1], *idx = c->src[2];
    int64_t n = qn_ne(y, 0), k = qn_ne(x, 0);
    if (qn_tensor_count(y) == 0) return QN_OK;
    for (int64_t i = 0; i < qn_ne(y, 1); i++) {
        int64_t e = qn_index4(idx, 0, 0, 0, i);
        for (int64_t first = 0; first < n; first += QN_RUN) {
            double sum[QN_RUN] = {0};
            int64_t some = qn_some(n, first);
            for (int64_t j = 0; j < k; j++) qn_add_row(sum, qn_get4(x, 0, 0, i, j), w, qn_row4(w, 0, e, j), first, some);
            qn_store_row(y, qn_row4(y, 0, 0, i), first, some, sum);
        }
    }
    return QN_OK;
}

/* A value with an axis of extent 1 put in before its last. */
static qn_val as_units(qn_vjp_call *v, qn_val x, uint32_t dtype) {
    qn_shape s = qn_shape_of(v, x);
    int64_t d[3] = {qn_sd(&s, 1), 1, qn_sd(&s, 0)};
    return qn_e_cast(v, qn_e_reshape(v, x, 3, d), dtype);
}

/* x gets each row's gradient back through its matrix transposed; the matrices collect outer products by index. */
void qn_vjp_grouped_matmul(qn_vjp_call *v) {
    qn_shape x = qn_shape_of(v, v->src[0]), w = qn_shape_of(v, v->src[1]), g = qn_shape_of(v, v->grad[0]);
    int64_t matrices[3] = {qn_sd(&w, 2), qn_sd(&w, 1), qn_sd(&w, 0)}, ids[2] = {qn_sd(&x, 1), 1};
    if (v->want[0]) {
        qn_val turned = qn_e_transpose(v, qn_e_reshape(v, v->src[1], 3, matrices));
        v->out[0] = qn_e_like(v, qn_emit3(v, QN_OP_grouped_matmul, 0, NULL, v->grad[0], turned, v->src[2]), v->src[0]);
    }
    if (v->want[1] && matrices[0] > 0) {
        qn_attr_out_prod_id at = qn_attr_out_prod_id_default();
        uint32_t wide = g.dtype == QN_DTYPE_F64 ? QN_DTYPE_F64 : QN_DTYPE_F32;
        at.n_expert = matrices[0];
        v->out[1] = qn_e_like(v,
                              qn_emit3(v, QN_OP_out_prod_id, 0, &at, as_units(v, v->grad[0], wide), as_units(v, v->src[0], wide),
                                       qn_e_reshape(v, v->src[2], 2, ids)),
                              v->src[1]);
    }
}
