/* Recurrences over a matrix state per sequence and head: RWKV 6, gated linear attention, RWKV 7. The state is kept in doubles
 * from the first token to the last and rounded once, when it is returned. */
#include "op/op_emit.h"
#include "op/op_recurrent.h"
#include "op/op_state.h"

/* ---- One token. State index: [key i][value j] for the first two, [value i][key j] for RWKV 7. */

/* y_j = sum_i r_i (S'_ij + tf_i k_i v_j), S_ij = td_i S'_ij + k_i v_j */
static void step_wkv6(int64_t n, double scale, double *const *x, const double *prev, double *next, double *y) {
    const double *k = x[0], *v = x[1], *r = x[2], *tf = x[3], *td = x[4];
    (void)scale;
    for (int64_t j = 0; j < n; j++) y[j] = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double s = prev[i * n + j], kv = k[i] * v[j];
            y[j] += r[i] * (s + tf[i] * kv);
            next[i * n + j] = td[i] * s + kv;
        }
}

/* S_ij = g_i S'_ij + k_i v_j, y_j = scale sum_i q_i S_ij */
static void step_gla(int64_t n, double scale, double *const *x, const double *prev, double *next, double *y) {
    const double *k = x[0], *v = x[1], *q = x[2], *g = x[3];
    for (int64_t j = 0; j < n; j++) y[j] = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double s = g[i] * prev[i * n + j] + k[i] * v[j];
            y[j] += q[i] * s;
            next[i * n + j] = s;
        }
    for (int64_t j = 0; j < n; j++) y[j] *= scale;
}

/* u_i = sum_j a_j S'_ij, S_ij = w_j S'_ij + v_i k_j + u_i b_j, y_i = sum_j r_j S_ij */
static void step_wkv7(int64_t n, double scale, double *const *x, const double *prev, double *next, double *y) {
    const double *r = x[0], *w = x[1], *k = x[2], *v = x[3], *a = x[4], *b = x[5];
    (void)scale;
    for (int64_t i = 0; i < n; i++) {
        const double *from = prev + i * n;
        double *to = next + i * n, u = 0, sum = 0;
        for (int64_t j = 0; j < n; j++) u += a[j] * from[j];
        for (int64_t j = 0; j < n; j++) {
            to[j] = w[j] * from[j] + v[i] * k[j] + u * b[j];
            sum += r[j] * to[j];
        }
        y[i] = sum;
    }
}

const qn_recurrent_kind qn_recurrent_wkv6 = {5, 3, step_wkv6};
const qn_recurrent_kind qn_recurrent_gla = {4, -1, step_gla};
const qn_recurrent_kind qn_recurrent_wkv7 = {6, -1, step_wkv7};

/* ---- Guards */

qn_status qn_op_recurrent_check(qn_infer_call *c, const qn_recurrent_kind *kind, int first, qn_recurrent_sizes *z) {
    int state = first + kind->n_in;
    const qn_tensor *rows = c->src[first], *s = c->src[state];
    int64_t wide;
    QN_TRY(qn_need_rank(c, first, 3));
    QN_TRY(qn_need_rank(c, state, 2));
    for (int i = 1; i < kind->n_in; i++) {
        if (i != kind->per_head) {
            QN_TRY(qn_need_same_shape(c, first + i, first));
            continue;
        }
        QN_TRY(qn_need_rank(c, first + i, 2));
        QN_TRY(qn_need_extent(c, first + i, 0, qn_ne(rows, 0)));
        QN_TRY(qn_need_extent(c, first + i, 1, qn_ne(rows, 1)));
    }
    if (qn_mul_overflow(qn_ne(rows, 1), qn_ne(rows, 0), &wide) || qn_mul_overflow(wide, qn_ne(rows, 0), &wide))
        return qn_reject_src(c, first, QN_REASON_SIZE_OVERFLOW, rows->rank - 1, INT64_MAX, qn_ne(rows, 0));
    QN_TRY(qn_need_extent(c, state, 0, wide));
    qn_op_recurrent_open(kind, c->src + first, z);
    if (z->seqs == 0 && z->tokens) return qn_reject_src(c, state, QN_REASON_SHAPE_EMPTY, s->rank - 2, 1, 0);
    if (z->seqs && z->tokens % z->seqs)
        return qn_reject_src(c, first, QN_REASON_SHAPE_MULTIPLE, rows->rank - 3, z->seqs, z->tokens);
    return QN_OK;
}

qn_status qn_op_recurrent_packed(qn_infer_call *c, const qn_recurrent_sizes *z, int64_t d[2]) {
    int64_t states;
    if (qn_mul_overflow(z->width, z->seqs, &states) || qn_add_overflow(z->tokens, states, &d[0]))
        return qn_reject_out(c, 0, QN_REASON_SIZE_OVERFLOW, 0, INT64_MAX, z->seqs);
    d[1] = z->heads * z->width; /* fits: the state is wider */
    return QN_OK;
}

static qn_status infer_forward(qn_infer_call *c, const qn_recurrent_kind *kind) {
    qn_recurrent_sizes z;
    int64_t d[2];
    QN_TRY(qn_op_recurrent_check(c, kind, 0, &z));
    QN_TRY(qn_op_recurrent_packed(c, &z, d));
    QN_TRY(qn_need_one_dtype(c, 0));
    QN_TRY(qn_scratch_add(c, z.width, z.width, 1));
    QN_TRY(qn_scratch_add(c, z.width, kind->n_in + 1, 1));
    double cells = (double)z.tokens * (double)z.heads * (double)z.width *
                   (double)z.width; /* of states, about 8 operations each */
    c->flops_each = 8.0 * cells / ((double)d[0] * (double)d[1]);
    return qn_out_shape(c, 0, c->src[0]->dtype, 2, d);
}

qn_status qn_infer_rwkv_wkv6(qn_infer_call *c) { return infer_forward(c, &qn_recurrent_wkv6); }
qn_status qn_infer_gated_linear_attn(qn_infer_call *c) { return infer_forward(c, &qn_recurrent_gla); }
qn_status qn_infer_rwkv_wkv7(qn_infer_call *c) { return infer_forward(c, &qn_recurrent_wkv7); }

/* ---- References */

void qn_op_recurrent_open(const qn_recurrent_kind *kind, const qn_tensor *const *src, qn_recurrent_sizes *z) {
    z->tokens = qn_ne(src[0], 2);
    z->heads = qn_ne(src[0], 1);
    z->width = qn_ne(src[0], 0);
    z->seqs = qn_ne(src[kind->n_in], 1);
    z->steps = z->seqs ? z->tokens / z->seqs : 0;
}

void qn_op_recurrent_load(const qn_recurrent_kind *kind, const qn_tensor *const *src, int64_t token, int64_t head, int64_t n,
                          double *const *x) {
    for (int i = 0; i < kind->n_in; i++) {
        int64_t row = i == kind->per_head ? 0 : token;
        qn_load_row(src[i], qn_at(src[i], qn_off4(src[i], 0, row, head, 0)), 0, n, x[i]);
    }
}

static qn_status forward(const qn_call *c, const qn_recurrent_kind *kind, double scale) {
    qn_recurrent_sizes z;
    qn_op_recurrent_open(kind, c->src, &z);
    if (z.seqs == 0 || z.heads == 0 || z.width == 0) return QN_OK;
    const qn_tensor *out = c->dst[0], *from = c->src[kind->n_in];
    int64_t n = z.width, area = n * n;
    double *state = c->workspace, *y = state + area, *x[QN_RECURRENT_IN];
    for (int i = 0; i < kind->n_in; i++) x[i] = y + (i + 1) * n;
    for (int64_t b = 0; b < z.seqs; b++)
        for (int64_t h = 0; h < z.heads; h++) {
            qn_load_row(from, qn_at(from, b * qn_nb(from, 1)), h * area, area, state);
            for (int64_t t = b * z.steps; t < (b + 1) * z.steps; t++) {
                qn_op_recurrent_load(kind, c->src, t, h, n, x);
                kind->step(n, scale, x, state, state, y);
                qn_store_row(out, qn_at(out, t * qn_nb(out, 1)), h * n, n, y);
            }
            for (int64_t i = 0; i < n; i++)
                qn_store_row(out, qn_packed_run(out, z.tokens, z.heads, n, (b * z.heads + h) * n + i), 0, n, state + i * n);
        }
    return QN_OK;
}

qn_status qn_ref_rwkv_wkv6(const qn_call *c) { return forward(c, &qn_recurrent_wkv6, 1); }
qn_status qn_ref_rwkv_wkv7(const qn_call *c) { return forward(c, &qn_recurrent_wkv7, 1); }
qn_status qn_ref_gated_linear_attn(const qn_call *c) {
    return forward(c, &qn_recurrent_gla, (double)((const qn_attr_gated_linear_attn *)c->attr)->scale);
}

/* ---- Gradients: one reverse pass gives them all. */

static void emit_back(qn_vjp_call *v, const qn_recurrent_kind *kind, qn_op op, const void *attr) {
    qn_val src[QN_RECURRENT_IN + 2], out[QN_RECURRENT_IN + 1];
    int n = kind->n_in + 1;
    src[0] = v->grad[0];
    for (int i = 0; i < n; i++) src[i + 1] = v->src[i];
    qn_emit_many(v, op, 0, attr, n + 1, src, n, out);
    for (int i = 0; i < n; i++)
        if (v->want[i]) v->out[i] = out[i];
}

void qn_vjp_rwkv_wkv6(qn_vjp_call *v) { emit_back(v, &qn_recurrent_wkv6, QN_OP_rwkv_wkv6_back, NULL); }
void qn_vjp_rwkv_wkv7(qn_vjp_call *v) { emit_back(v, &qn_recurrent_wkv7, QN_OP_rwkv_wkv7_back, NULL); }
void qn_vjp_gated_linear_attn(qn_vjp_call *v) {
    qn_attr_gated_linear_attn_back at = qn_attr_gated_linear_attn_back_default();
    at.scale = ((const qn_attr_gated_linear_attn *)v->attr)->scale;
    emit_back(v, &qn_recurrent_gla, QN_OP_gated_linear_attn_back, &at);
}
