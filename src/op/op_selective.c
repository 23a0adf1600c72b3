/* selective_scan: a diagonal state per channel that decays and takes in as much as delta says,
 *
 *   h_n <- e^(delta a_n) h_n + delta b_n x,   y = sum_n c_n h_n
 *
 * along the steps of a sequence, from a given state or from zero, and the state it ends in. (ssm_scan is the form of ggml, with
 * softplus inside, one decay per head and packed results.) The gradient walks back over states kept in the workspace. */
#include <math.h>

#include "op/op_emit.h"
#include "op/op_state.h"
#include "op/ref.h"

enum { X, DELTA, A, B, C, STATE, SOURCES };

typedef struct scan {
    const qn_tensor *const *src; /* X to STATE */
    int64_t seqs, steps, channels, n;
} scan;

static scan scan_of(const qn_tensor *const *src) {
    scan z = {src, qn_ne(src[X], 2), qn_ne(src[X], 1), qn_ne(src[X], 0), qn_ne(src[A], 0)};
    return z;
}

/* ---- Guards */

static qn_status check(qn_infer_call *c, int first, const scan *z) {
    QN_TRY(qn_need_rank(c, first + X, 3));
    QN_TRY(qn_need_same_shape(c, first + DELTA, first + X));
    QN_TRY(qn_need_rank(c, first + A, 2));
    QN_TRY(qn_need_extent(c, first + A, 1, z->channels));
    for (int i = B; i <= C; i++) {
        QN_TRY(qn_need_rank(c, first + i, 3));
        QN_TRY(qn_need_extent(c, first + i, 0, z->n));
        QN_TRY(qn_need_extent(c, first + i, 1, z->steps));
        QN_TRY(qn_need_extent(c, first + i, 2, z->seqs));
    }
    return QN_OK;
}

/* A tensor of states, which may be left out. */
static qn_status check_state(qn_infer_call *c, int slot, const scan *z) {
    if (!c->src[slot]) return QN_OK;
    QN_TRY(qn_need_rank(c, slot, 3));
    QN_TRY(qn_need_extent(c, slot, 0, z->n));
    QN_TRY(qn_need_extent(c, slot, 1, z->channels));
    return qn_need_extent(c, slot, 2, z->seqs);
}

static qn_status one_dtype(qn_infer_call *c, int like) {
    for (int i = 0; i < c->n_src; i++)
        if (c->src[i]) QN_TRY(qn_need_same_dtype(c, i, like));
    return QN_OK;
}

static qn_status state_out(qn_infer_call *c, int i, const scan *z) {
    int64_t d[3] = {z->seqs, z->channels, z->n};
    return qn_out_shape(c, i, z->src[X]->dtype, 3, d);
}

qn_status qn_infer_selective_scan(qn_infer_call *c) {
    scan z = scan_of(c->src);
    QN_TRY(check(c, 0, &z));
    QN_TRY(check_state(c, STATE, &z));
    QN_TRY(one_dtype(c, X));
    QN_TRY(qn_scratch_add(c, z.n, 4, 1)); /* a, b, c and the state */
    c->flops_each = 7.0 * (double)z.n;
    qn_out_like(c, 0, c->src[X], c->src[X]->dtype);
    return state_out(c, 1, &z);
}

qn_status qn_infer_selective_scan_back(qn_infer_call *c) {
    enum { FIRST = 2 };
    scan z = scan_of(c->src + FIRST);
    QN_TRY(check(c, FIRST, &z));
    QN_TRY(check_state(c, FIRST + STATE, &z));
    if (c->src[0]) QN_TRY(qn_need_same_shape(c, 0, FIRST + X));
    QN_TRY(check_state(c, 1, &z));
    QN_TRY(one_dtype(c, FIRST + X));
    int64_t steps;
    if (qn_add_overflow(z.steps, 1, &steps)) return qn_reject_src(c, FIRST, QN_REASON_SHAPE_LARGE, -1, INT64_MAX - 1, z.steps);
    QN_TRY(qn_scratch_add(c, z.n, 4, 1));          /* a, b, c and a state's gradient */
    QN_TRY(qn_scratch_add(c, steps, z.n, 1));      /* the states */
    QN_TRY(qn_scratch_add(c, z.steps, z.n, 2));    /* sums for b and c over the channels */
    QN_TRY(qn_scratch_add(c, z.channels, z.n, 1)); /* sums for a over the sequences */
    c->flops_each = 20.0 * (double)z.n;
    for (int i = X; i <= C; i++) qn_out_like(c, i, c->src[FIRST + i], c->src[X + FIRST]->dtype);
    return state_out(c, STATE, &z);
}

/* ---- Reference */

static void load(const qn_tensor *t, int64_t i2, int64_t i1, int64_t n, double *to) {
    qn_load_row(t, qn_at(t, qn_off4(t, 0, i2, i1, 0)), 0, n, to);
}

static void store(const qn_tensor *t, int64_t i2, int64_t i1, int64_t n, const double *from) {
    qn_store_row(t, qn_at(t, qn_off4(t, 0, i2, i1, 0)), 0, n, from);
}

static void first_state(const scan *z, int64_t b, int64_t h, double *to) {
    if (z->src[STATE]) load(z->src[STATE], b, h, z->n, to);
    else
        for (int64_t i = 0; i < z->n; i++) to[i] = 0;
}

/* next may be prev. */
static double step(int64_t n, double x, double delta, const double *a, const double *b, const double *c, const double *prev,
                   double *next) {
    double y = 0;
    for (int64_t i = 0; i < n; i++) {
        next[i] = exp(delta * a[i]) * prev[i] + delta * b[i] * x;
        y += c[i] * next[i];
    }
    return y;
}

qn_status qn_ref_selective_scan(const qn_call *call) {
    scan z = scan_of(call->src);
    double *a = call->workspace, *b = a + z.n, *c = b + z.n, *state = c + z.n;
    for (int64_t s = 0; s < z.seqs; s++)
        for (int64_t h = 0; h < z.channels; h++) {
            load(z.src[A], 0, h, z.n, a);
            first_state(&z, s, h, state);
            for (int64_t t = 0; t < z.steps; t++) {
                double x = qn_get4(z.src[X], 0, s, t, h), delta = qn_get4(z.src[DELTA], 0, s, t, h);
                load(z.src[B], s, t, z.n, b);
                load(z.src[C], s, t, z.n, c);
                qn_put4(call->dst[0], 0, s, t, h, step(z.n, x, delta, a, b, c, state, state));
            }
            store(call->dst[1], s, h, z.n, state);
        }
    return QN_OK;
}

/* ---- The reverse pass */

typedef struct reverse {
    scan z;
    const qn_tensor *g, *g_last;
    const qn_tensor *const *dst; /* as the sources */
    double *a, *b, *c, *grad, *states, *db, *dc, *da;
} reverse;

/* One step; grad turns from the gradient of the state behind it into that before it. */
static void reverse_step(const reverse *p, int64_t s, int64_t h, int64_t t) {
    const scan *z = &p->z;
    double x = qn_get4(z->src[X], 0, s, t, h), delta = qn_get4(z->src[DELTA], 0, s, t, h), dx = 0, ddelta = 0;
    double gy = p->g ? qn_get4(p->g, 0, s, t, h) : 0;
    const double *prev = p->states + t * z->n, *next = prev + z->n;
    double *db = p->db + t * z->n, *dc = p->dc + t * z->n, *da = p->da + h * z->n;
    load(z->src[B], s, t, z->n, p->b);
    load(z->src[C], s, t, z->n, p->c);
    for (int64_t i = 0; i < z->n; i++) {
        double decay = exp(delta * p->a[i]), grad = p->grad[i] + gy * p->c[i];
        dc[i] += gy * next[i];
        dx += grad * delta * p->b[i];
        db[i] += grad * delta * x;
        da[i] += grad * delta * decay * prev[i];
        ddelta += grad * (p->a[i] * decay * prev[i] + p->b[i] * x);
        p->grad[i] = grad * decay;
    }
    qn_put4(p->dst[X], 0, s, t, h, dx);
    qn_put4(p->dst[DELTA], 0, s, t, h, ddelta);
}

static void reverse_channel(const reverse *p, int64_t s, int64_t h) {
    const scan *z = &p->z;
    load(z->src[A], 0, h, z->n, p->a);
    first_state(z, s, h, p->states);
    for (int64_t t = 0; t < z->steps; t++) {
        double x = qn_get4(z->src[X], 0, s, t, h), delta = qn_get4(z->src[DELTA], 0, s, t, h);
        load(z->src[B], s, t, z->n, p->b);
        step(z->n, x, delta, p->a, p->b, p->b, p->states + t * z->n, p->states + (t + 1) * z->n); /* its y is not wanted */
    }
    if (p->g_last) load(p->g_last, s, h, z->n, p->grad);
    else
        for (int64_t i = 0; i < z->n; i++) p->grad[i] = 0;
    for (int64_t t = z->steps; t-- > 0;) reverse_step(p, s, h, t);
    store(p->dst[STATE], s, h, z->n, p->grad);
}

qn_status qn_ref_selective_scan_back(const qn_call *call) {
    reverse p = {.z = scan_of(call->src + 2), .g = call->src[0], .g_last = call->src[1], .dst = call->dst};
    const scan *z = &p.z;
    int64_t row = z->steps * z->n;
    p.a = call->workspace;
    p.b = p.a + z->n;
    p.c = p.b + z->n;
    p.grad = p.c + z->n;
    p.states = p.grad + z->n;
    p.db = p.states + row + z->n;
    p.dc = p.db + row;
    p.da = p.dc + row;
    for (int64_t i = 0; i < z->channels * z->n; i++) p.da[i] = 0;
    for (int64_t s = 0; s < z->seqs; s++) {
        for (int64_t i = 0; i < row; i++) p.db[i] = p.dc[i] = 0;
        for (int64_t h = 0; h < z->channels; h++) reverse_channel(&p, s, h);
        for (int64_t t = 0; t < z->steps; t++) {
            store(p.dst[B], s, t, z->n, p.db + t * z->n);
            store(p.dst[C], s, t, z->n, p.dc + t * z->n);
        }
    }
    for (int64_t h = 0; h < z->channels; h++) store(p.dst[A], 0, h, z->n, p.da + h * z->n);
    return QN_OK;
}

void qn_vjp_selective_scan(qn_vjp_call *v) {
    qn_val src[2 + SOURCES] = {v->grad[0], v->grad[1]}, out[SOURCES];
    for (int i = 0; i < SOURCES; i++) src[2 + i] = i < v->n_src ? v->src[i] : QN_VAL_NONE;
    qn_emit_many(v, QN_OP_selective_scan_back, 0, NULL, 2 + SOURCES, src, SOURCES, out);
    for (int i = 0; i < v->n_src; i++)
        if (v->want[i]) v->out[i] = out[i];
}
