/* matmul, out_prod and dot_general by way of the product of k_gemm.h. */
#include "cpu/k_gemm.h"

/* Everything but the cut follows from the call again when it runs: descriptors are cheaper to read than to remember. */
typedef int (*describe_fn)(const qn_call *c, qn_gemm *g);

static int prepare(const qn_call *c, qn_cpu_step *s, describe_fn describe, qn_cpu_run_fn run) {
    qn_gemm g;
    if (qn_tensor_count(c->dst[0]) == 0 || !describe(c, &g)) return 0;
    qn_gemm_cut cut = qn_gemm_plan(&g);
    return qn_gemm_step(s, &cut, run);
}

static void run(const qn_call *c, int phase, int64_t part, describe_fn describe) {
    qn_gemm g;
    if (!describe(c, &g)) return;
    qn_gemm_cut cut = qn_gemm_plan(&g);
    qn_gemm_part(&g, &cut, c->workspace, phase, part);
}

static void start(qn_gemm *g, const qn_call *c) {
    const qn_tensor *y = c->dst[0];
    *g = (qn_gemm){.c = qn_at(y, 0), .c_dtype = y->dtype};
    g->a.data = qn_at(c->src[0], 0);
    g->a.dtype = c->src[0]->dtype;
    g->b.data = qn_at(c->src[1], 0);
    g->b.dtype = c->src[1]->dtype;
}

/* ---- matmul */

static int64_t stretched(const qn_tensor *t, int k) { return qn_ne(t, k) == 1 ? 0 : qn_nb(t, k); }

static int describe_matmul(const qn_call *c, qn_gemm *g) {
    const qn_attr_matmul *at = c->attr;
    const qn_tensor *a = c->src[0], *b = c->src[1], *y = c->dst[0];
    int a_row = at->transpose_a ? 0 : 1, b_column = at->transpose_b ? 1 : 0, rows = a->rank > 1, columns = b->rank > 1;
    start(g, c);
    g->m = rows ? qn_ne(a, a_row) : 1;
    g->n = columns ? qn_ne(b, b_column) : 1;
    g->k = rows ? qn_ne(a, !a_row) : qn_ne(a, 0);
    g->a.along = rows ? qn_nb(a, a_row) : 0;
    g->a.deep = rows ? qn_nb(a, !a_row) : qn_nb(a, 0);
    g->b.along = columns ? qn_nb(b, b_column) : 0;
    g->b.deep = columns ? qn_nb(b, !b_column) : qn_nb(b, 0);
    g->c_column = columns ? qn_nb(y, 0) : 0;
    g->c_row = rows ? qn_nb(y, columns) : 0;
    int most = a->rank > b->rank ? a->rank : b->rank;
    for (int i = most - 1; i > 1; i--) {
        int64_t extent = qn_ne(a, i) == 1 ? qn_ne(b, i) : qn_ne(a, i);
        qn_gemm_axis(g, extent, stretched(a, i), stretched(b, i), qn_nb(y, i - 2 + rows + columns));
    }
    return qn_gemm_settle(g);
}

static void run_matmul(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)s;
    run(c, phase, part, describe_matmul);
}

int QN_K(matmul)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, describe_matmul, run_matmul); }

/* ---- out_prod: y[.., j, i] = sum over p of a[.., p, i] b[.., p, j] */

static int describe_out_prod(const qn_call *c, qn_gemm *g) {
    const qn_tensor *a = c->src[0], *b = c->src[1], *y = c->dst[0];
    start(g, c);
    qn_gemm_side side = g->a; /* the op's b is the side with rows */
    g->a = g->b;
    g->b = side;
    g->m = qn_ne(b, 0);
    g->n = qn_ne(a, 0);
    g->k = qn_ne(a, 1);
    g->a.along = qn_nb(b, 0);
    g->a.deep = qn_nb(b, 1);
    g->b.along = qn_nb(a, 0);
    g->b.deep = qn_nb(a, 1);
    g->c_row = qn_nb(y, 1);
    g->c_column = qn_nb(y, 0);
    return qn_gemm_groups(g, a, b, y) && qn_gemm_settle(g);
}

static void run_out_prod(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)s;
    run(c, phase, part, describe_out_prod);
}

int QN_K(out_prod)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, describe_out_prod, run_out_prod); }

/* ---- dot_general: when the summed axes of either operand are one axis to step along, and so are its own */

typedef struct axes {
    int n;
    int64_t extent[QN_MAX_RANK], stride[QN_MAX_RANK];
} axes;

static void add_axis(axes *l, int64_t extent, int64_t stride) {
    if (extent == 1) return;
    l->extent[l->n] = extent;
    l->stride[l->n++] = stride;
}

/* The one axis that a list of them amounts to; 0 when it takes more. */
static int as_one(const axes *l, int64_t *extent, int64_t *stride) {
    *extent = 1;
    *stride = 0;
    for (int i = l->n - 1; i >= 0; i--) {
        if (i < l->n - 1 && l->stride[i] != l->stride[i + 1] * l->extent[i + 1]) return 0;
        *extent *= l->extent[i];
        if (i == l->n - 1) *stride = l->stride[i];
    }
    return 1;
}

static axes named_axes(const qn_tensor *t, const qn_dims *list) {
    axes l = {.n = 0};
    for (int i = 0; i < list->rank; i++) add_axis(&l, t->shape[list->d[i]], t->stride[list->d[i]]);
    return l;
}

/* An operand's own axes, and where they are in y from axis *at on. */
static void own_axes(const qn_tensor *t, const qn_dims *summed, const qn_dims *batch, const qn_tensor *y, int *at, axes *own,
                     axes *out) {
    unsigned used = 0;
    for (int i = 0; i < summed->rank; i++) used |= 1u << summed->d[i];
    for (int i = 0; i < batch->rank; i++) used |= 1u << batch->d[i];
    own->n = out->n = 0;
    for (int i = 0; i < t->rank; i++)
        if (!(used >> i & 1)) {
            add_axis(own, t->shape[i], t->stride[i]);
            add_axis(out, t->shape[i], y->stride[(*at)++]);
        }
}

static int describe_dot_general(const qn_call *c, qn_gemm *g) {
    const qn_attr_dot_general *at = c->attr;
    const qn_tensor *a = c->src[0], *b = c->src[1], *y = c->dst[0];
    axes a_sum = named_axes(a, &at->lc), b_sum = named_axes(b, &at->rc), a_own, b_own, y_rows, y_columns;
    int axis = at->lb.rank;
    int64_t extent;
    start(g, c);
    own_axes(a, &at->lc, &at->lb, y, &axis, &a_own, &y_rows);
    own_axes(b, &at->rc, &at->rb, y, &axis, &b_own, &y_columns);
    int one = as_one(&a_sum, &g->k, &g->a.deep) && as_one(&b_sum, &extent, &g->b.deep) && as_one(&a_own, &g->m, &g->a.along) &&
              as_one(&b_own, &g->n, &g->b.along) && as_one(&y_rows, &extent, &g->c_row) &&
              as_one(&y_columns, &extent, &g->c_column);
    if (!one) return 0;
    for (int i = 0; i < at->lb.rank; i++)
        qn_gemm_axis(g, a->shape[at->lb.d[i]], a->stride[at->lb.d[i]], b->stride[at->rb.d[i]], y->stride[i]);
    return qn_gemm_settle(g);
}

static void run_dot_general(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)s;
    run(c, phase, part, describe_dot_general);
}

int QN_K(dot_general)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, describe_dot_general, run_dot_general); }
