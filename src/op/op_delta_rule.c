/* The gated delta rule as one op, with its reverse pass: a matrix state that decays, is corrected towards v by how far its answer
 * to k is off, and is read by q. Token by token
 *
 *   S <- e^g S,   d = beta (v - S k),   S <- S + d k^T,   y = scale S q
 *
 * or by chunks (op_delta.h), which gives the same up to rounding. gated_delta_net is ggml's form of it, with keys as wide as
 * values. */
#include <math.h>

#include "op/op_delta.h"
#include "op/op_emit.h"
#include "op/product.h"

_Static_assert(offsetof(qn_attr_delta_rule, blocked) == offsetof(qn_attr_delta_rule_back, blocked), "shared attributes");

static void sizes_of(qn_delta_sizes *z, const qn_tensor *const *src, int blocked) {
    const qn_tensor *q = src[0], *v = src[2];
    *z = (qn_delta_sizes){qn_ne(v, 3), qn_ne(v, 2), qn_ne(v, 1), qn_ne(q, 1), qn_ne(q, 0), qn_ne(v, 0), blocked};
}

static double scale_of(const qn_delta_sizes *z, float scale) {
    return scale != 0 ? (double)scale : 1 / sqrt((double)z->key_width);
}

/* ---- Shape rules */

static qn_status check_rule(qn_infer_call *c, const qn_delta_sizes *z) {
    QN_TRY(qn_need_rank(c, 2, 4));
    QN_TRY(qn_need_rank(c, 0, 4));
    QN_TRY(qn_need_extent(c, 0, 2, z->steps));
    QN_TRY(qn_need_extent(c, 0, 3, z->seqs));
    QN_TRY(qn_need_divides(c, 0, 1, z->heads));
    QN_TRY(qn_need_same_shape(c, 1, 0));
    QN_TRY(qn_need_rank(c, 3, 3));
    int64_t numbers[3] = {z->heads, z->steps, z->seqs}, state[4] = {z->key_width, z->width, z->heads, z->seqs};
    for (int k = 0; k < 3; k++) QN_TRY(qn_need_extent(c, 3, k, numbers[k]));
    QN_TRY(qn_need_same_shape(c, 4, 3));
    QN_TRY(qn_need_rank(c, 5, 4));
    for (int k = 0; k < 4; k++) QN_TRY(qn_need_extent(c, 5, k, state[k]));
    for (int i = 1; i < c->n_src; i++)
        if (c->src[i]) QN_TRY(qn_need_same_dtype(c, i, 0));
    return QN_OK;
}

qn_status qn_infer_delta_rule(qn_infer_call *c) {
    const qn_attr_delta_rule *at = c->attr;
    qn_delta_sizes z;
    sizes_of(&z, c->src, at->blocked);
    QN_TRY(check_rule(c, &z));
    QN_TRY(qn_op_delta_room(c, &z, at->chunk ? at->chunk : 1));
    c->flops_each = 6.0 * (double)z.key_width;
    int64_t d[4] = {z.seqs, z.steps, z.heads, z.width}, state[4] = {z.seqs, z.heads, z.width, z.key_width};
    QN_TRY(qn_out_shape(c, 0, c->src[0]->dtype, 4, d));
    return qn_out_shape(c, 1, c->src[0]->dtype, 4, state);
}

qn_status qn_infer_delta_rule_back(qn_infer_call *c) {
    const qn_attr_delta_rule_back *at = c->attr;
    const qn_tensor *gy = c->src[6], *gnext = c->src[7];
    qn_delta_sizes z;
    sizes_of(&z, c->src, at->blocked);
    QN_TRY(check_rule(c, &z));
    if (gy) QN_TRY(qn_need_same_shape(c, 6, 2));
    if (gnext) QN_TRY(qn_need_same_shape(c, 7, 5));
    int64_t states;
    if (qn_add_overflow(z.steps, 2, &states)) return qn_reject_out(c, 0, QN_REASON_SIZE_OVERFLOW, -1, INT64_MAX, z.steps);
    QN_TRY(qn_scratch_add(c, states, z.width, z.key_width)); /* the states, and the gradient of one */
    QN_TRY(qn_scratch_add(c, z.steps, z.key_width, 2));      /* sums for q and k over the heads that share them */
    QN_TRY(qn_op_delta_room(c, &z, 1));
    c->flops_each = 14.0 * (double)z.width;
    for (int i = 0; i < 6; i++) qn_out_like(c, i, c->src[i], c->src[i]->dtype);
    return QN_OK;
}

/* ---- References */

/* Rows of tokens [first, first + x->n) of one head. */
static void load_tokens(const qn_delta_sizes *z, const qn_tensor *const *src, int64_t b, int64_t first, int64_t h,
                        const qn_delta_chunk *x) {
    int64_t key = qn_op_delta_key_head(z, h);
    qn_op_delta_load(src[0], b, first, x->n, key, z->key_width, x->q);
    qn_op_delta_load(src[1], b, first, x->n, key, z->key_width, x->k);
    qn_op_delta_load(src[2], b, first, x->n, h, z->width, x->v);
    qn_op_delta_load_numbers(src[3], b, first, x->n, h, x->g);
    qn_op_delta_load_numbers(src[4], b, first, x->n, h, x->beta);
}

/* One token, from prev to next, which may be the same. y may be NULL. */
static void step(const qn_delta_chunk *x, const double *prev, double *next, double scale, double *y) {
    int64_t n = x->key_width;
    double decay = exp(x->g[0]);
    for (int64_t j = 0; j < x->width; j++, prev += n, next += n) {
        double answer = 0, read = 0;
        for (int64_t i = 0; i < n; i++) answer += decay * prev[i] * x->k[i];
        double off = x->beta[0] * (x->v[j] - answer);
        for (int64_t i = 0; i < n; i++) {
            next[i] = decay * prev[i] + off * x->k[i];
            read += next[i] * x->q[i];
        }
        if (y) y[j] = scale * read;
    }
}

/* e to this is 0, so whatever lies below it forgets no more; and running sums of it are small enough that what comes after it is still in
 * their differences, which are decays of their own. */
static const double FORGOTTEN = -800;

static void run_chunk(const qn_delta_chunk *x, double scale) {
    for (int64_t i = 0; i < x->n; i++) {
        if (x->g[i] < FORGOTTEN) x->g[i] = FORGOTTEN;
        if (i) x->g[i] += x->g[i - 1];
    }
    qn_op_delta_kkt(x);
    qn_op_delta_invert(x);
    qn_op_delta_wu(x);
    qn_op_delta_fresh(x);
    for (int64_t i = 0; i < x->n; i++) qn_op_delta_read(x, i, scale, x->u + i * x->width); /* u has been used */
    qn_op_delta_advance(x);
}

qn_status qn_ref_delta_rule(const qn_call *c) {
    const qn_attr_delta_rule *at = c->attr;
    const qn_tensor *y = c->dst[0], *next = c->dst[1];
    int64_t most = at->chunk ? at->chunk : 1;
    qn_delta_sizes z;
    qn_delta_chunk x;
    sizes_of(&z, c->src, at->blocked);
    qn_op_delta_place(&x, &z, most, c->workspace);
    double scale = scale_of(&z, at->scale);
    for (int64_t b = 0; b < z.seqs; b++)
        for (int64_t h = 0; h < z.heads; h++) {
            qn_op_delta_load_state(c->src[5], qn_op_delta_state(c->src[5], b, h), z.width, z.key_width, x.state);
            for (int64_t first = 0; first < z.steps; first += most) {
                x.n = z.steps - first < most ? z.steps - first : most;
                load_tokens(&z, c->src, b, first, h, &x);
                if (at->chunk) run_chunk(&x, scale);
                else step(&x, x.state, x.state, scale, x.u);
                qn_op_delta_store(y, b, first, x.n, h, z.width, x.u);
            }
            qn_op_delta_store_state(next, qn_op_delta_state(next, b, h), z.width, z.key_width, x.state);
        }
    return QN_OK;
}

/* ---- The reverse pass */

typedef struct reverse {
    qn_delta_sizes z;
    qn_delta_chunk x; /* of one token; u holds the gradient of y */
    const qn_tensor *const *src, *gy, *gnext;
    const qn_tensor *const *dst;
    double *states, *grad, *dq, *dk;
    double scale;
} reverse;

/* One token: grad turns from the gradient of the state behind it into that before it. dv goes over v. */
static void reverse_step(const reverse *p, int64_t t, double *dg, double *dbeta) {
    const qn_delta_chunk *x = &p->x;
    int64_t n = x->key_width;
    double decay = exp(x->g[0]), *grad = p->grad, *dq = p->dq + t * n, *dk = p->dk + t * n;
    const double *prev = p->states + t * n * x->width, *next = prev + n * x->width;
    *dg = *dbeta = 0;
    for (int64_t j = 0; j < x->width; j++, prev += n, next += n, grad += n) {
        double answer = 0, doff = 0, up = p->scale * x->u[j];
        for (int64_t i = 0; i < n; i++) {
            dq[i] += up * next[i];
            grad[i] += up * x->q[i];
            answer += decay * prev[i] * x->k[i];
            doff += grad[i] * x->k[i];
        }
        double miss = x->v[j] - answer, back = x->beta[0] * doff;
        *dbeta += doff * miss;
        x->v[j] = back;
        for (int64_t i = 0; i < n; i++) {
            double decayed = decay * prev[i], through = grad[i] - back * x->k[i];
            dk[i] += grad[i] * x->beta[0] * miss - back * decayed;
            *dg += through * decayed;
            grad[i] = decay * through;
        }
    }
}

static void reverse_head(reverse *p, int64_t b, int64_t h) {
    const qn_delta_sizes *z = &p->z;
    int64_t area = z->width * z->key_width;
    double dg, dbeta;
    qn_op_delta_load_state(p->src[5], qn_op_delta_state(p->src[5], b, h), z->width, z->key_width, p->states);
    for (int64_t t = 0; t < z->steps; t++) {
        load_tokens(z, p->src, b, t, h, &p->x);
        step(&p->x, p->states + t * area, p->states + (t + 1) * area, 0, NULL);
    }
    for (int64_t i = 0; i < area; i++) p->grad[i] = 0;
    if (p->gnext) qn_op_delta_load_state(p->gnext, qn_op_delta_state(p->gnext, b, h), z->width, z->key_width, p->grad);
    for (int64_t t = z->steps; t-- > 0;) {
        load_tokens(z, p->src, b, t, h, &p->x);
        for (int64_t j = 0; j < z->width; j++) p->x.u[j] = 0;
        if (p->gy) qn_op_delta_load(p->gy, b, t, 1, h, z->width, p->x.u);
        reverse_step(p, t, &dg, &dbeta);
        qn_op_delta_store(p->dst[2], b, t, 1, h, z->width, p->x.v);
        qn_put4(p->dst[3], 0, b, t, h, dg);
        qn_put4(p->dst[4], 0, b, t, h, dbeta);
    }
    qn_op_delta_store_state(p->dst[5], qn_op_delta_state(p->dst[5], b, h), z->width, z->key_width, p->grad);
}

qn_status qn_ref_delta_rule_back(const qn_call *c) {
    const qn_attr_delta_rule_back *at = c->attr;
    reverse p = {.src = c->src, .dst = c->dst, .gy = c->n_src > 6 ? c->src[6] : NULL, .gnext = c->n_src > 7 ? c->src[7] : NULL};
    sizes_of(&p.z, c->src, at->blocked);
    int64_t area = p.z.width * p.z.key_width, rows = p.z.steps * p.z.key_width;
    p.scale = scale_of(&p.z, at->scale);
    p.states = c->workspace;
    p.grad = p.states + (p.z.steps + 1) * area;
    p.dq = p.grad + area;
    p.dk = p.dq + rows;
    qn_op_delta_place(&p.x, &p.z, 1, p.dk + rows);
    for (int64_t b = 0; b < p.z.seqs; b++)
        for (int64_t key = 0; key < p.z.key_heads; key++) {
            for (int64_t i = 0; i < rows; i++) p.dq[i] = p.dk[i] = 0;
            for (int64_t h = 0; h < p.z.heads; h++)
                if (qn_op_delta_key_head(&p.z, h) == key) reverse_head(&p, b, h);
            qn_op_delta_store(c->dst[0], b, 0, p.z.steps, key, p.z.key_width, p.dq);
            qn_op_delta_store(c->dst[1], b, 0, p.z.steps, key, p.z.key_width, p.dk);
        }
    return QN_OK;
}

void qn_vjp_delta_rule(qn_vjp_call *v) {
    const qn_attr_delta_rule *from = v->attr;
    qn_attr_delta_rule_back at = qn_attr_delta_rule_back_default();
    qn_val src[8], out[6];
    at.scale = from->scale;
    at.blocked = from->blocked;
    for (int i = 0; i < 6; i++) src[i] = v->src[i];
    src[6] = v->grad[0];
    src[7] = v->grad[1];
    qn_emit_many(v, QN_OP_delta_rule_back, 0, &at, 8, src, 6, out);
    for (int i = 0; i < 6; i++)
        if (v->want[i]) v->out[i] = out[i];
}
