/* Gated delta rule: a matrix state that decays, is corrected towards v by how far its answer to k is off, and is read by q.
 * The state is stored with the value index first, so that everything here works on one row (one value) at a time:
 *
 *   D_i = e^{g_i} S'_i,   delta = beta (v - sum_i D_i k_i),   S_i = D_i + k_i delta,   y = width^{-1/2} sum_i S_i q_i
 *
 * Heads of q and k are tiled over the heads of v. The result packs rows [tokens, heads width], then `keep` snapshots of the
 * states, the newest first. ggml leaves snapshots older than the first token unwritten; here they are zero, because an
 * accepted op writes every element of its result. */
#include <math.h>

#include "op/op_emit.h"
#include "op/op_recurrent.h"
#include "op/op_state.h"

typedef struct delta {
    const qn_tensor *q, *k, *v, *g, *beta, *state;
    int64_t seqs, steps, heads, key_heads, width, gates, keep; /* gates: 1, or one per key */
} delta;

static void delta_open(delta *z, const qn_tensor *const *src, int32_t keep) {
    *z = (delta){.q = src[0], .k = src[1], .v = src[2], .g = src[3], .beta = src[4], .state = src[5], .keep = keep};
    z->seqs = qn_ne(z->v, 3);
    z->steps = qn_ne(z->v, 2);
    z->heads = qn_ne(z->v, 1);
    z->width = qn_ne(z->v, 0);
    z->key_heads = qn_ne(z->q, 1);
    z->gates = qn_ne(z->g, 0);
}

/* ---- Guards */

static qn_status check_shapes(qn_infer_call *c, int first, const delta *z) {
    for (int i = 0; i < 6; i++) QN_TRY(qn_need_rank(c, first + i, 4));
    QN_TRY(qn_need_extent(c, first, 0, z->width));
    QN_TRY(qn_need_extent(c, first, 2, z->steps));
    QN_TRY(qn_need_extent(c, first, 3, z->seqs));
    if (z->key_heads == 0 ? z->heads != 0 : z->heads % z->key_heads != 0)
        return qn_reject_src(c, first, QN_REASON_SHAPE_DIVIDES, z->q->rank - 2, z->heads, z->key_heads);
    QN_TRY(qn_need_same_shape(c, first + 1, first));
    if (z->gates != 1) QN_TRY(qn_need_extent(c, first + 3, 0, z->width));
    QN_TRY(qn_need_extent(c, first + 4, 0, 1));
    for (int i = 3; i <= 4; i++) {
        QN_TRY(qn_need_extent(c, first + i, 1, z->heads));
        QN_TRY(qn_need_extent(c, first + i, 2, z->steps));
        QN_TRY(qn_need_extent(c, first + i, 3, z->seqs));
    }
    QN_TRY(qn_need_extent(c, first + 5, 0, z->width));
    QN_TRY(qn_need_extent(c, first + 5, 1, z->width));
    QN_TRY(qn_need_extent(c, first + 5, 2, z->heads));
    return qn_need_extent(c, first + 5, 3, z->seqs);
}

/* Extents of the packed result: [seqs steps + keep seqs width, heads width]. */
static qn_status packed_extents(qn_infer_call *c, const delta *z, int64_t d[2]) {
    int64_t tokens, states;
    if (qn_mul_overflow(z->seqs, z->steps, &tokens) || qn_mul_overflow(z->seqs, z->width, &states) ||
        qn_mul_overflow(states, z->keep, &states) || qn_add_overflow(tokens, states, &d[0]))
        return qn_reject_out(c, 0, QN_REASON_SIZE_OVERFLOW, 0, INT64_MAX, z->keep);
    d[1] = z->heads * z->width; /* fits: v is larger, its empty axes aside */
    return QN_OK;
}

qn_status qn_infer_gated_delta_net(qn_infer_call *c) {
    delta z;
    int64_t d[2];
    delta_open(&z, c->src, ((const qn_attr_gated_delta_net *)c->attr)->k);
    QN_TRY(check_shapes(c, 0, &z));
    QN_TRY(packed_extents(c, &z, d));
    QN_TRY(qn_need_one_dtype(c, 0));
    QN_TRY(qn_scratch_add(c, z.width, z.width, 1)); /* the state, then decay, q, k, v and y */
    QN_TRY(qn_scratch_add(c, z.width, 5, 1));
    double cells = (double)z.seqs * (double)z.steps * (double)z.heads * (double)z.width * (double)z.width;
    c->flops_each = 8.0 * cells / ((double)d[0] * (double)d[1]);
    return qn_out_shape(c, 0, z.v->dtype, 2, d);
}

qn_status qn_infer_gated_delta_net_back(qn_infer_call *c) {
    delta z;
    int64_t d[2] = {0, 0};
    delta_open(&z, c->src + 1, ((const qn_attr_gated_delta_net_back *)c->attr)->k);
    QN_TRY(check_shapes(c, 1, &z));
    QN_TRY(packed_extents(c, &z, d));
    QN_TRY(qn_need_rank(c, 0, 2));
    QN_TRY(qn_need_extent(c, 0, 0, d[1]));
    QN_TRY(qn_need_extent(c, 0, 1, d[0]));
    QN_TRY(qn_need_one_dtype(c, 1));
    QN_TRY(qn_scratch_add(c, z.steps + 2, z.width, z.width)); /* the states, and the gradient of one */
    QN_TRY(qn_scratch_add(c, z.steps, z.width, 2));           /* sums for q and k over the heads that share them */
    QN_TRY(qn_scratch_add(c, z.width, 7, 1));
    for (int i = 0; i < 6; i++) qn_out_like(c, i, c->src[i + 1], c->src[i + 1]->dtype);
    return QN_OK;
}

/* ---- References */

/* One token's operands as doubles. */
typedef struct token {
    double *decay, *q, *k, *v, *y;
    double beta, scale;
} token;

static char *token_row(const qn_tensor *t, int64_t b, int64_t step, int64_t h) { return qn_at(t, qn_off4(t, b, step, h, 0)); }

static void token_place(token *x, double *at, int64_t n) {
    x->decay = at;
    x->q = at + n;
    x->k = at + 2 * n;
    x->v = at + 3 * n;
    x->y = at + 4 * n;
    x->scale = 1 / sqrt((double)n);
}

static void token_load(token *x, const delta *z, int64_t b, int64_t t, int64_t h) {
    int64_t n = z->width, shared = h % z->key_heads;
    qn_load_row(z->q, token_row(z->q, b, t, shared), 0, n, x->q);
    qn_load_row(z->k, token_row(z->k, b, t, shared), 0, n, x->k);
    qn_load_row(z->v, token_row(z->v, b, t, h), 0, n, x->v);
    qn_load_row(z->g, token_row(z->g, b, t, h), 0, z->gates, x->decay);
    for (int64_t i = z->gates; i < n; i++) x->decay[i] = x->decay[0];
    for (int64_t i = 0; i < n; i++) x->decay[i] = exp(x->decay[i]);
    x->beta = qn_get4(z->beta, b, t, h, 0);
}

/* next may be prev. */
static void step(int64_t n, const token *x, const double *prev, double *next) {
    for (int64_t j = 0; j < n; j++, prev += n, next += n) {
        double answer = 0, y = 0;
        for (int64_t i = 0; i < n; i++) answer += x->decay[i] * prev[i] * x->k[i];
        double off = x->beta * (x->v[j] - answer);
        for (int64_t i = 0; i < n; i++) {
            next[i] = x->decay[i] * prev[i] + x->k[i] * off;
            y += next[i] * x->q[i];
        }
        x->y[j] = y * x->scale;
    }
}

static void load_state(const delta *z, int64_t b, int64_t h, double *to) {
    for (int64_t j = 0; j < z->width; j++) qn_load_row(z->state, token_row(z->state, b, h, j), 0, z->width, to + j * z->width);
}

/* Row j of a snapshot in the packed tensor. */
static char *snapshot_row(const delta *z, const qn_tensor *packed, int64_t slot, int64_t b, int64_t h, int64_t j) {
    int64_t run = ((slot * z->seqs + b) * z->heads + h) * z->width + j;
    return qn_packed_run(packed, z->seqs * z->steps, z->heads, z->width, run);
}

static void put_snapshot(const delta *z, const qn_tensor *y, int64_t slot, int64_t b, int64_t h, const double *from) {
    for (int64_t j = 0; j < z->width; j++) qn_store_row(y, snapshot_row(z, y, slot, b, h, j), 0, z->width, from + j * z->width);
}

/* The gradient of the snapshot taken when `left` tokens remained, added on. */
static void add_snapshot(const delta *z, const qn_tensor *gy, int64_t left, int64_t b, int64_t h, double *grad, double *row) {
    if (left >= z->keep) return;
    for (int64_t j = 0; j < z->width; j++) {
        qn_load_row(gy, snapshot_row(z, gy, left, b, h, j), 0, z->width, row);
        for (int64_t i = 0; i < z->width; i++) grad[j * z->width + i] += row[i];
    }
}

static void clear(double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = 0;
}

qn_status qn_ref_gated_delta_net(const qn_call *c) {
    delta z;
    token x;
    delta_open(&z, c->src, ((const qn_attr_gated_delta_net *)c->attr)->k);
    if (z.seqs == 0 || z.heads == 0 || z.width == 0) return QN_OK;
    const qn_tensor *y = c->dst[0];
    double *state = c->workspace;
    token_place(&x, state + z.width * z.width, z.width);
    for (int64_t b = 0; b < z.seqs; b++)
        for (int64_t h = 0; h < z.heads; h++) {
            load_state(&z, b, h, state);
            if (z.steps == 0) put_snapshot(&z, y, 0, b, h, state);
            for (int64_t t = 0; t < z.steps; t++) {
                token_load(&x, &z, b, t, h);
                step(z.width, &x, state, state);
                qn_store_row(y, qn_at(y, (b * z.steps + t) * qn_nb(y, 1)), h * z.width, z.width, x.y);
                if (z.steps - 1 - t < z.keep) put_snapshot(&z, y, z.steps - 1 - t, b, h, state);
            }
            clear(state, z.width * z.width);
            for (int64_t slot = z.steps ? z.steps : 1; slot < z.keep; slot++) put_snapshot(&z, y, slot, b, h, state);
        }
    return QN_OK;
}

/* ---- The reverse pass */

typedef struct reverse {
    delta z;
    const qn_tensor *gy;
    const qn_tensor *const *dst; /* dq, dk, dv, dg, dbeta, dstate */
    token x;                     /* its y holds the result's gradient */
    double *states, *grad, *dq, *dk, *dv, *dg;
} reverse;

/* One token, one value after the other. grad turns from the gradient of the state behind the token into that before it. */
static double reverse_step(const reverse *p, int64_t t) {
    int64_t n = p->z.width;
    const token *x = &p->x;
    const double *prev = p->states + t * n * n, *next = prev + n * n;
    double *grad = p->grad, *dq = p->dq + t * n, *dk = p->dk + t * n, dbeta = 0;
    for (int64_t j = 0; j < n; j++, prev += n, next += n, grad += n) {
        double answer = 0, doff = 0, gy = x->scale * x->y[j];
        for (int64_t i = 0; i < n; i++) {
            dq[i] += gy * next[i];
            grad[i] += gy * x->q[i];
            answer += x->decay[i] * prev[i] * x->k[i];
            doff += grad[i] * x->k[i];
        }
        double off = x->beta * (x->v[j] - answer), danswer = -x->beta * doff;
        dbeta += doff * (x->v[j] - answer);
        p->dv[j] = x->beta * doff;
        for (int64_t i = 0; i < n; i++) {
            double decayed = x->decay[i] * prev[i], through = grad[i] + danswer * x->k[i];
            dk[i] += grad[i] * off + danswer * decayed;
            p->dg[i] += through * decayed;
            grad[i] = x->decay[i] * through;
        }
    }
    return dbeta;
}

static void reverse_token(const reverse *p, int64_t b, int64_t h, int64_t t, token *x) {
    const delta *z = &p->z;
    int64_t n = z->width;
    token_load(x, z, b, t, h);
    qn_load_row(p->gy, qn_at(p->gy, (b * z->steps + t) * qn_nb(p->gy, 1)), h * n, n, x->y);
    clear(p->dg, n);
    double dbeta = reverse_step(p, t);
    if (z->gates == 1) /* one gate for all keys */
        for (int64_t i = 1; i < n; i++) p->dg[0] += p->dg[i];
    qn_store_row(p->dst[2], token_row(p->dst[2], b, t, h), 0, n, p->dv);
    qn_store_row(p->dst[3], token_row(p->dst[3], b, t, h), 0, z->gates, p->dg);
    qn_put4(p->dst[4], b, t, h, 0, dbeta);
}

static void reverse_head(reverse *p, int64_t b, int64_t h) {
    const delta *z = &p->z;
    int64_t n = z->width, area = n * n;
    load_state(z, b, h, p->states);
    for (int64_t t = 0; t < z->steps; t++) {
        token_load(&p->x, z, b, t, h);
        step(n, &p->x, p->states + t * area, p->states + (t + 1) * area);
    }
    clear(p->grad, area);
    if (z->steps == 0) add_snapshot(z, p->gy, 0, b, h, p->grad, p->dv);
    for (int64_t t = z->steps; t-- > 0;) {
        add_snapshot(z, p->gy, z->steps - 1 - t, b, h, p->grad, p->dv);
        reverse_token(p, b, h, t, &p->x);
    }
    for (int64_t j = 0; j < n; j++) qn_store_row(p->dst[5], token_row(p->dst[5], b, h, j), 0, n, p->grad + j * n);
}

qn_status qn_ref_gated_delta_net_back(const qn_call *c) {
    reverse p = {.gy = c->src[0], .dst = c->dst};
    delta_open(&p.z, c->src + 1, ((const qn_attr_gated_delta_net_back *)c->attr)->k);
    int64_t n = p.z.width, area = n * n, steps = p.z.steps;
    if (n == 0) /* gates and betas there are, with nothing to act on */
        for (int i = 3; i < 5; i++) qn_fill(c->dst[i], 0);
    if (p.z.seqs == 0 || p.z.key_heads == 0 || n == 0) return QN_OK;
    p.states = c->workspace;
    p.grad = p.states + (steps + 1) * area;
    p.dq = p.grad + area;
    p.dk = p.dq + steps * n;
    p.dv = p.dk + steps * n;
    p.dg = p.dv + n;
    token_place(&p.x, p.dg + n, n);
    for (int64_t b = 0; b < p.z.seqs; b++)
        for (int64_t shared = 0; shared < p.z.key_heads; shared++) {
            clear(p.dq, steps * n);
            clear(p.dk, steps * n);
            for (int64_t h = shared; h < p.z.heads; h += p.z.key_heads) reverse_head(&p, b, h);
            for (int64_t t = 0; t < steps; t++) {
                qn_store_row(c->dst[0], token_row(c->dst[0], b, t, shared), 0, n, p.dq + t * n);
                qn_store_row(c->dst[1], token_row(c->dst[1], b, t, shared), 0, n, p.dk + t * n);
            }
        }
    return QN_OK;
}

/* ---- Gradient: one reverse pass gives them all. */

void qn_vjp_gated_delta_net(qn_vjp_call *v) {
    qn_attr_gated_delta_net_back at = qn_attr_gated_delta_net_back_default();
    at.k = ((const qn_attr_gated_delta_net *)v->attr)->k;
    qn_val src[7] = {v->grad[0]}, out[6];
    for (int i = 0; i < 6; i++) src[i + 1] = v->src[i];
    qn_emit_many(v, QN_OP_gated_delta_net_back, 0, &at, 7, src, 6, out);
    for (int i = 0; i < 6; i++)
        if (v->want[i]) v->out[i] = out[i];
}
