/* Backward passes of the recurrences of op_recurrent.c. Each sequence and head is run forward once more with every state kept
 * in the workspace, then walked from the last token to the first. The gradient that comes in is that of the packed result, so
 * it holds the gradients of the returned states too. */
#include "op/op_recurrent.h"
#include "op/op_state.h"

/* ---- One token. prev and next are the states before and behind it. */

static void back_wkv6(int64_t n, double scale, double *const *x, const double *prev, const double *next, double *grad,
                      const double *gy, double *const *dx) {
    const double *k = x[0], *v = x[1], *r = x[2], *tf = x[3], *td = x[4];
    (void)scale;
    (void)next;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double s = prev[i * n + j], g = grad[i * n + j], kv = k[i] * v[j];
            double through = g + r[i] * tf[i] * gy[j]; /* what k_i v_j feeds: the state and, by tf, the result */
            dx[0][i] += through * v[j];
            dx[1][j] += through * k[i];
            dx[2][i] += gy[j] * (s + tf[i] * kv);
            dx[3][i] += gy[j] * r[i] * kv;
            dx[4][i] += g * s;
            grad[i * n + j] = td[i] * g + r[i] * gy[j];
        }
}

static void back_gla(int64_t n, double scale, double *const *x, const double *prev, const double *next, double *grad,
                     const double *gy, double *const *dx) {
    const double *k = x[0], *v = x[1], *q = x[2], *g = x[3];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double through = grad[i * n + j] + scale * q[i] * gy[j];
            dx[0][i] += through * v[j];
            dx[1][j] += through * k[i];
            dx[2][i] += scale * gy[j] * next[i * n + j];
            dx[3][i] += through * prev[i * n + j];
            grad[i * n + j] = g[i] * through;
        }
}

static void back_wkv7(int64_t n, double scale, double *const *x, const double *prev, const double *next, double *grad,
                      const double *gy, double *const *dx) {
    const double *r = x[0], *w = x[1], *k = x[2], *v = x[3], *a = x[4], *b = x[5];
    (void)scale;
    for (int64_t i = 0; i < n; i++) {
        const double *before = prev + i * n, *behind = next + i * n;
        double *g = grad + i * n, u = 0, du = 0;
        for (int64_t j = 0; j < n; j++) {
            g[j] += gy[i] * r[j];
            u += a[j] * before[j];
            du += g[j] * b[j];
        }
        for (int64_t j = 0; j < n; j++) {
            dx[0][j] += gy[i] * behind[j];
            dx[1][j] += g[j] * before[j];
            dx[2][j] += g[j] * v[i];
            dx[3][i] += g[j] * k[j];
            dx[4][j] += du * before[j];
            dx[5][j] += g[j] * u;
            g[j] = w[j] * g[j] + a[j] * du;
        }
    }
}

/* ---- Guards: the forward op's, and a gradient in the shape of its result. */

static qn_status infer_back(qn_infer_call *c, const qn_recurrent_kind *kind) {
    qn_recurrent_sizes z;
    int64_t d[2];
    QN_TRY(qn_op_recurrent_check(c, kind, 1, &z));
    QN_TRY(qn_op_recurrent_packed(c, &z, d));
    QN_TRY(qn_need_rank(c, 0, 2));
    QN_TRY(qn_need_extent(c, 0, 0, d[1]));
    QN_TRY(qn_need_extent(c, 0, 1, d[0]));
    QN_TRY(qn_need_one_dtype(c, 1));
    QN_TRY(qn_scratch_add(c, z.steps + 2, z.width, z.width)); /* the states, and the gradient of one */
    QN_TRY(qn_scratch_add(c, z.width, 2 * kind->n_in + 1, 1));
    c->flops_each = 24.0 * (double)z.width;
    for (int i = 0; i <= kind->n_in; i++) qn_out_like(c, i, c->src[i + 1], c->src[i + 1]->dtype);
    return QN_OK;
}

qn_status qn_infer_rwkv_wkv6_back(qn_infer_call *c) { return infer_back(c, &qn_recurrent_wkv6); }
qn_status qn_infer_gated_linear_attn_back(qn_infer_call *c) { return infer_back(c, &qn_recurrent_gla); }
qn_status qn_infer_rwkv_wkv7_back(qn_infer_call *c) { return infer_back(c, &qn_recurrent_wkv7); }

/* ---- References */

typedef struct reverse {
    const qn_call *c;
    const qn_recurrent_kind *kind;
    qn_recurrent_back back;
    double scale;
    qn_recurrent_sizes z;
    double *states, *grad, *y, *x[QN_RECURRENT_IN], *dx[QN_RECURRENT_IN];
} reverse;

static void clear(double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = 0;
}

static char *row_of(const qn_tensor *t, int64_t token, int64_t head) { return qn_at(t, qn_off4(t, 0, token, head, 0)); }

/* One token backward; the rows of the gradients that belong to it are stored. */
static void reverse_token(const reverse *p, int64_t b, int64_t h, int64_t t) {
    const qn_tensor *g = p->c->src[0];
    int64_t n = p->z.width, area = n * n, token = b * p->z.steps + t;
    qn_op_recurrent_load(p->kind, p->c->src + 1, token, h, n, p->x);
    qn_load_row(g, qn_at(g, token * qn_nb(g, 1)), h * n, n, p->y);
    for (int i = 0; i < p->kind->n_in; i++)
        if (i != p->kind->per_head) clear(p->dx[i], n);
    p->back(n, p->scale, p->x, p->states + t * area, p->states + (t + 1) * area, p->grad, p->y, p->dx);
    for (int i = 0; i < p->kind->n_in; i++)
        if (i != p->kind->per_head) qn_store_row(p->c->dst[i], row_of(p->c->dst[i], token, h), 0, n, p->dx[i]);
}

static void reverse_sequence(const reverse *p, int64_t b, int64_t h) {
    const qn_tensor *g = p->c->src[0], *from = p->c->src[p->kind->n_in + 1], *to = p->c->dst[p->kind->n_in];
    int64_t n = p->z.width, area = n * n;
    qn_load_row(from, qn_at(from, b * qn_nb(from, 1)), h * area, area, p->states);
    for (int64_t t = 0; t < p->z.steps; t++) {
        qn_op_recurrent_load(p->kind, p->c->src + 1, b * p->z.steps + t, h, n, p->x);
        p->kind->step(n, p->scale, p->x, p->states + t * area, p->states + (t + 1) * area, p->y);
    }
    for (int64_t i = 0; i < n; i++)
        qn_load_row(g, qn_packed_run(g, p->z.tokens, p->z.heads, n, (b * p->z.heads + h) * n + i), 0, n, p->grad + i * n);
    for (int64_t t = p->z.steps; t-- > 0;) reverse_token(p, b, h, t);
    qn_store_row(to, qn_at(to, b * qn_nb(to, 1)), h * area, area, p->grad);
}

static qn_status backward(const qn_call *c, const qn_recurrent_kind *kind, qn_recurrent_back back, double scale) {
    reverse p = {.c = c, .kind = kind, .back = back, .scale = scale};
    qn_op_recurrent_open(kind, c->src + 1, &p.z);
    int64_t n = p.z.width, area = n * n;
    if (p.z.heads == 0 || n == 0) return QN_OK;
    p.states = c->workspace;
    p.grad = p.states + (p.z.steps + 1) * area;
    p.y = p.grad + area;
    for (int i = 0; i < kind->n_in; i++) {
        p.x[i] = p.y + (1 + i) * n;
        p.dx[i] = p.y + (1 + kind->n_in + i) * n;
    }
    int shared = kind->per_head;
    if (p.z.seqs == 0 && shared < 0) return QN_OK; /* every gradient is empty; a shared row's is zero */
    for (int64_t h = 0; h < p.z.heads; h++) {
        if (shared >= 0) clear(p.dx[shared], n);
        for (int64_t b = 0; b < p.z.seqs; b++) reverse_sequence(&p, b, h);
        if (shared >= 0) qn_store_row(c->dst[shared], row_of(c->dst[shared], 0, h), 0, n, p.dx[shared]);
    }
    return QN_OK;
}

qn_status qn_ref_rwkv_wkv6_back(const qn_call *c) { return backward(c, &qn_recurrent_wkv6, back_wkv6, 1); }
qn_status qn_ref_rwkv_wkv7_back(const qn_call *c) { return backward(c, &qn_recurrent_wkv7, back_wkv7, 1); }
qn_status qn_ref_gated_linear_attn_back(const qn_call *c) {
    return backward(c, &qn_recurrent_gla, back_gla, (double)((const qn_attr_gated_linear_attn_back *)c->attr)->scale);
}
