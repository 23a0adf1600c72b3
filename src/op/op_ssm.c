/* State-space ops: the short causal convolution in front of a Mamba layer, and its selective scan with the scan's reverse pass.
 *
 * The scan packs results [seqs, steps, heads, width], then `keep` snapshots [keep, seqs, heads, width, state] of the states,
 * the newest first, into one flat tensor. ggml leaves snapshots older than the first token unwritten; here they are zero,
 * because an accepted op writes every element of its result. */
#include <math.h>

#include "op/op_emit.h"
#include "op/op_state.h"
#include "op/ref.h"

/* ---- Convolution: y[s,t,c] = sum_j x[s,c,t+j] w[c,j] */

static qn_status check_conv(qn_infer_call *c, int x, int w) {
    const qn_tensor *signal = c->src[x], *taps = c->src[w];
    QN_TRY(qn_need_rank(c, x, 3));
    QN_TRY(qn_need_rank(c, w, 2));
    QN_TRY(qn_need_extent(c, w, 1, qn_ne(signal, 1)));
    if (qn_ne(taps, 0) == 0) return qn_reject_src(c, w, QN_REASON_SHAPE_EMPTY, taps->rank - 1, 1, 0);
    if (qn_ne(signal, 0) < qn_ne(taps, 0))
        return qn_reject_src(c, x, QN_REASON_SHAPE_SMALL, signal->rank - 1, qn_ne(taps, 0), qn_ne(signal, 0));
    return QN_OK;
}

qn_status qn_infer_ssm_conv(qn_infer_call *c) {
    QN_TRY(check_conv(c, 0, 1));
    QN_TRY(qn_need_one_dtype(c, 0));
    const qn_tensor *x = c->src[0];
    c->flops_each = 2.0 * (double)qn_ne(c->src[1], 0);
    int64_t d[3] = {qn_ne(x, 2), qn_ne(x, 0) - qn_ne(c->src[1], 0) + 1, qn_ne(x, 1)};
    return qn_out_shape(c, 0, x->dtype, 3, d);
}

qn_status qn_infer_ssm_conv_back(qn_infer_call *c) {
    QN_TRY(check_conv(c, 1, 2));
    const qn_tensor *x = c->src[1], *w = c->src[2];
    QN_TRY(qn_need_rank(c, 0, 3));
    QN_TRY(qn_need_extent(c, 0, 0, qn_ne(x, 1)));
    QN_TRY(qn_need_extent(c, 0, 1, qn_ne(x, 0) - qn_ne(w, 0) + 1));
    QN_TRY(qn_need_extent(c, 0, 2, qn_ne(x, 2)));
    QN_TRY(qn_need_one_dtype(c, 1));
    c->flops_each = 4.0 * (double)qn_ne(w, 0);
    qn_out_like(c, 0, x, x->dtype);
    qn_out_like(c, 1, w, w->dtype);
    return QN_OK;
}

qn_status qn_ref_ssm_conv(const qn_call *c) {
    const qn_tensor *x = c->src[0], *w = c->src[1], *y = c->dst[0];
    if (qn_tensor_count(y) == 0) return QN_OK;
    for (int64_t s = 0; s < qn_ne(y, 2); s++)
        for (int64_t t = 0; t < qn_ne(y, 1); t++)
            for (int64_t i = 0; i < qn_ne(y, 0); i++) {
                double sum = 0;
                for (int64_t j = 0; j < qn_ne(w, 0); j++) sum += qn_get4(x, 0, s, i, t + j) * qn_get4(w, 0, 0, i, j);
                qn_put4(y, 0, s, t, i, sum);
            }
    return QN_OK;
}

qn_status qn_ref_ssm_conv_back(const qn_call *c) {
    const qn_tensor *g = c->src[0], *x = c->src[1], *w = c->src[2], *dx = c->dst[0], *dw = c->dst[1];
    int64_t seqs = qn_ne(x, 2), steps = qn_ne(g, 1), taps = qn_ne(w, 0);
    for (int64_t i = 0; i < qn_ne(w, 1); i++)
        for (int64_t j = 0; j < taps; j++) {
            double sum = 0;
            for (int64_t s = 0; s < seqs; s++)
                for (int64_t t = 0; t < steps; t++) sum += qn_get4(g, 0, s, t, i) * qn_get4(x, 0, s, i, t + j);
            qn_put4(dw, 0, 0, i, j, sum);
        }
    if (qn_tensor_count(dx) == 0) return QN_OK;
    for (int64_t s = 0; s < seqs; s++)
        for (int64_t i = 0; i < qn_ne(x, 1); i++)
            for (int64_t at = 0; at < qn_ne(x, 0); at++) {
                int64_t first = at < steps ? 0 : at - steps + 1, last = at < taps ? at : taps - 1;
                double sum = 0;
                for (int64_t j = first; j <= last; j++) sum += qn_get4(g, 0, s, at - j, i) * qn_get4(w, 0, 0, i, j);
                qn_put4(dx, 0, s, i, at, sum);
            }
    return QN_OK;
}

void qn_vjp_ssm_conv(qn_vjp_call *v) {
    qn_val src[3] = {v->grad[0], v->src[0], v->src[1]}, out[2];
    qn_emit_many(v, QN_OP_ssm_conv_back, 0, NULL, 3, src, 2, out);
    for (int i = 0; i < 2; i++)
        if (v->want[i]) v->out[i] = out[i];
}

/* dx and dw are linear in g, and each in the other's operand: every part is one of the two ops again. */
void qn_vjp_ssm_conv_back(qn_vjp_call *v) {
    qn_val g = v->src[0], x = v->src[1], w = v->src[2], to_x = v->grad[0], to_w = v->grad[1], out[2];
    if (v->want[0]) {
        qn_val a = to_x == QN_VAL_NONE ? to_x : qn_emit2(v, QN_OP_ssm_conv, 0, NULL, to_x, w);
        qn_val b = to_w == QN_VAL_NONE ? to_w : qn_emit2(v, QN_OP_ssm_conv, 0, NULL, x, to_w);
        v->out[0] = a == QN_VAL_NONE ? b : b == QN_VAL_NONE ? a : qn_e_add(v, a, b);
    }
    if (v->want[1] && to_w != QN_VAL_NONE) {
        qn_emit_many(v, QN_OP_ssm_conv_back, 0, NULL, 3, (qn_val[]){g, x, to_w}, 2, out);
        v->out[1] = out[0];
    }
    if (v->want[2] && to_x != QN_VAL_NONE) {
        qn_emit_many(v, QN_OP_ssm_conv_back, 0, NULL, 3, (qn_val[]){g, to_x, w}, 2, out);
        v->out[2] = out[1];
    }
}

/* ---- Scan. With step = softplus(dt) and decay = e^{step a}: h = decay h' + step x b, y = sum over the state of h c. */

typedef struct scan {
    const qn_tensor *h0, *x, *dt, *a, *b, *c, *ids;
    int64_t slots, seqs, steps, heads, width, state, groups, rates, keep; /* rates: of decay, one per head or per state */
} scan;

static void scan_open(scan *z, const qn_tensor *const *src, int32_t keep) {
    *z = (scan){.h0 = src[0], .x = src[1], .dt = src[2], .a = src[3], .b = src[4], .c = src[5], .ids = src[6], .keep = keep};
    z->slots = qn_ne(z->h0, 3);
    z->heads = qn_ne(z->h0, 2);
    z->width = qn_ne(z->h0, 1);
    z->state = qn_ne(z->h0, 0);
    z->seqs = qn_ne(z->x, 3);
    z->steps = qn_ne(z->x, 2);
    z->groups = qn_ne(z->b, 1);
    z->rates = qn_ne(z->a, 0);
}

static qn_status check_scan(qn_infer_call *c, int first, const scan *z) {
    static const int rank[7] = {4, 4, 3, 2, 4, 4, 1};
    for (int i = 0; i < 7; i++) QN_TRY(qn_need_rank(c, first + i, rank[i]));
    QN_TRY(qn_need_extent(c, first + 1, 0, z->width));
    QN_TRY(qn_need_extent(c, first + 1, 1, z->heads));
    QN_TRY(qn_need_extent(c, first + 2, 0, z->heads));
    QN_TRY(qn_need_extent(c, first + 2, 1, z->steps));
    QN_TRY(qn_need_extent(c, first + 2, 2, z->seqs));
    if (z->rates != 1) QN_TRY(qn_need_extent(c, first + 3, 0, z->state));
    QN_TRY(qn_need_extent(c, first + 3, 1, z->heads));
    QN_TRY(qn_need_extent(c, first + 4, 0, z->state));
    if (z->groups == 0 ? z->heads != 0 : z->heads % z->groups != 0)
        return qn_reject_src(c, first + 4, QN_REASON_SHAPE_DIVIDES, z->b->rank - 2, z->heads, z->groups);
    QN_TRY(qn_need_extent(c, first + 4, 2, z->steps));
    QN_TRY(qn_need_extent(c, first + 4, 3, z->seqs));
    QN_TRY(qn_need_same_shape(c, first + 5, first + 4));
    QN_TRY(qn_need_extent(c, first + 6, 0, z->seqs));
    if (z->keep > 1 && z->rates != 1) return qn_reject_attr(c, "k", QN_REASON_ATTR_VALUE, -1, 1, z->keep);
    c->index_limit[first + 6] = z->slots;
    return QN_OK;
}

/* Elements of the packed result. */
static qn_status packed_count(qn_infer_call *c, const scan *z, int64_t *count) {
    int64_t results, states;
    if (qn_mul_overflow(z->seqs, z->heads, &results) || qn_mul_overflow(results, z->width, &results) ||
        qn_mul_overflow(results, z->state, &states) || qn_mul_overflow(states, z->keep, &states) ||
        qn_mul_overflow(results, z->steps, &results) || qn_add_overflow(results, states, count))
        return qn_reject_out(c, 0, QN_REASON_SIZE_OVERFLOW, 0, INT64_MAX, z->keep);
    return QN_OK;
}

qn_status qn_infer_ssm_scan(qn_infer_call *c) {
    scan z;
    int64_t n;
    scan_open(&z, c->src, ((const qn_attr_ssm_scan *)c->attr)->k);
    QN_TRY(check_scan(c, 0, &z));
    QN_TRY(packed_count(c, &z, &n));
    QN_TRY(qn_need_one_dtype(c, 0));
    QN_TRY(qn_scratch_add(c, z.width, z.state, 1)); /* the state, then a, decay, b and c */
    QN_TRY(qn_scratch_add(c, z.state, 4, 1));
    double cells = (double)z.seqs * (double)z.steps * (double)z.heads * (double)z.width * (double)z.state;
    c->flops_each = 7.0 * cells / (double)n; /* decay, input and output of each cell of the states */
    return qn_out_shape(c, 0, z.h0->dtype, 1, &n);
}

qn_status qn_infer_ssm_scan_back(qn_infer_call *c) {
    scan z;
    int64_t n = 0;
    scan_open(&z, c->src + 1, ((const qn_attr_ssm_scan_back *)c->attr)->k);
    QN_TRY(check_scan(c, 1, &z));
    QN_TRY(packed_count(c, &z, &n));
    QN_TRY(qn_need_rank(c, 0, 1));
    QN_TRY(qn_need_extent(c, 0, 0, n));
    QN_TRY(qn_need_one_dtype(c, 1));
    QN_TRY(qn_scratch_add(c, z.steps + 2, z.width, z.state)); /* the states, and the gradient of one */
    QN_TRY(qn_scratch_add(c, z.slots, z.width, z.state));     /* sums for h0: sequences may share a slot */
    QN_TRY(qn_scratch_add(c, z.seqs, z.steps, z.state));      /* sums for b and c over the heads of a group */
    QN_TRY(qn_scratch_add(c, z.seqs, z.steps, z.state));
    QN_TRY(qn_scratch_add(c, z.state, 4, 1));
    QN_TRY(qn_scratch_add(c, z.rates, 1, 1));
    c->flops_each = 24.0 * (double)z.seqs * (double)z.steps / (double)z.slots;
    for (int i = 0; i < 6; i++) qn_out_like(c, i, c->src[i + 1], c->src[i + 1]->dtype);
    return QN_OK;
}

/* ---- References of the scan */

/* One token and head as doubles. */
typedef struct token {
    double *a, *decay, *b, *c, step;
} token;

static void token_place(token *k, double *at, int64_t n) {
    k->a = at;
    k->decay = at + n;
    k->b = at + 2 * n;
    k->c = at + 3 * n;
}

/* ln(1 + e^x), which is x itself from 20 on, as ggml has it. */
static double softplus(double x) { return x > 20 ? x : log1p(exp(x)); }
static double softplus_slope(double x) { return x > 20 ? 1 : 1 / (1 + exp(-x)); }

static void token_load(token *k, const scan *z, int64_t s, int64_t t, int64_t h) {
    int64_t n = z->state, group = h / (z->heads / z->groups);
    qn_load_row(z->a, qn_at(z->a, h * qn_nb(z->a, 1)), 0, z->rates < n ? z->rates : n, k->a);
    for (int64_t i = z->rates; i < n; i++) k->a[i] = k->a[0];
    qn_load_row(z->b, qn_at(z->b, qn_off4(z->b, s, t, group, 0)), 0, n, k->b);
    qn_load_row(z->c, qn_at(z->c, qn_off4(z->c, s, t, group, 0)), 0, n, k->c);
    k->step = softplus(qn_get4(z->dt, 0, s, t, h));
    for (int64_t i = 0; i < n; i++) k->decay[i] = exp(k->step * k->a[i]);
}

/* next may be prev. */
static double scan_row(int64_t n, const token *k, double x, const double *prev, double *next) {
    double y = 0;
    for (int64_t i = 0; i < n; i++) {
        next[i] = prev[i] * k->decay[i] + k->step * x * k->b[i];
        y += next[i] * k->c[i];
    }
    return y;
}

static char *flat_at(const qn_tensor *t, int64_t i) { return qn_at(t, i * qn_nb(t, 0)); }

/* Where the result of a token and head begins in the packed tensor, and a snapshot of a head. */
static int64_t result_at(const scan *z, int64_t s, int64_t t, int64_t h) {
    return ((s * z->steps + t) * z->heads + h) * z->width;
}
static int64_t snapshot_at(const scan *z, int64_t slot, int64_t s, int64_t h) {
    return (z->seqs * z->steps + (slot * z->seqs + s) * z->state) * z->heads * z->width + h * z->width * z->state;
}

static void load_state(const scan *z, int64_t s, int64_t h, double *to) {
    int64_t slot = qn_index4(z->ids, 0, 0, 0, s);
    for (int64_t p = 0; p < z->width; p++)
        qn_load_row(z->h0, qn_at(z->h0, qn_off4(z->h0, slot, h, p, 0)), 0, z->state, to + p * z->state);
}

static void clear(double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = 0;
}

qn_status qn_ref_ssm_scan(const qn_call *c) {
    scan z;
    token k;
    scan_open(&z, c->src, ((const qn_attr_ssm_scan *)c->attr)->k);
    const qn_tensor *y = c->dst[0];
    if (z.seqs == 0 || z.heads == 0 || z.width == 0) return QN_OK;
    if (z.state == 0) { /* nothing is remembered, nothing comes out */
        qn_fill(y, 0);
        return QN_OK;
    }
    int64_t area = z.width * z.state;
    double *state = c->workspace;
    token_place(&k, state + area, z.state);
    for (int64_t s = 0; s < z.seqs; s++)
        for (int64_t h = 0; h < z.heads; h++) {
            load_state(&z, s, h, state);
            if (z.steps == 0) qn_store_row(y, flat_at(y, snapshot_at(&z, 0, s, h)), 0, area, state);
            for (int64_t t = 0; t < z.steps; t++) {
                int64_t at = result_at(&z, s, t, h), left = z.steps - 1 - t;
                token_load(&k, &z, s, t, h);
                for (int64_t p = 0; p < z.width; p++) {
                    double *row = state + p * z.state;
                    double v = scan_row(z.state, &k, qn_get4(z.x, s, t, h, p), row, row);
                    qn_store_one((qn_dtype)y->dtype, flat_at(y, at + p), v);
                }
                if (left < z.keep) qn_store_row(y, flat_at(y, snapshot_at(&z, left, s, h)), 0, area, state);
            }
            clear(state, area);
            for (int64_t slot = z.steps ? z.steps : 1; slot < z.keep; slot++)
                qn_store_row(y, flat_at(y, snapshot_at(&z, slot, s, h)), 0, area, state);
        }
    return QN_OK;
}

/* ---- The reverse pass */

typedef struct reverse {
    scan z;
    token k;
    const qn_tensor *g;
    const qn_tensor *const *dst; /* dh0, dx, ddt, da, db, dc */
    double *states, *grad, *dh0, *da, *db, *dc;
} reverse;

/* One token of one head. grad turns from the gradient of the state behind the token into that before it. */
static void reverse_token(const reverse *r, int64_t s, int64_t t, int64_t h) {
    const scan *z = &r->z;
    const token *k = &r->k;
    int64_t n = z->state, area = z->width * n, at = result_at(z, s, t, h);
    double *db = r->db + (s * z->steps + t) * n, *dc = r->dc + (s * z->steps + t) * n, dstep = 0;
    for (int64_t p = 0; p < z->width; p++) {
        const double *prev = r->states + t * area + p * n, *next = prev + area;
        double *grad = r->grad + p * n, dx = 0;
        double gy = qn_load_one((qn_dtype)r->g->dtype, flat_at(r->g, at + p)), x = qn_get4(z->x, s, t, h, p);
        for (int64_t i = 0; i < n; i++) {
            grad[i] += gy * k->c[i];
            double kept = k->decay[i] * prev[i] * grad[i];
            dc[i] += gy * next[i];
            db[i] += k->step * x * grad[i];
            dx += k->b[i] * grad[i];
            dstep += k->a[i] * kept;
            r->da[z->rates == 1 ? 0 : i] += k->step * kept;
            grad[i] *= k->decay[i];
        }
        dstep += x * dx;
        qn_put4(r->dst[1], s, t, h, p, k->step * dx);
    }
    qn_put4(r->dst[2], 0, s, t, h, dstep * softplus_slope(qn_get4(z->dt, 0, s, t, h)));
}

/* The gradient of the snapshot taken when `left` tokens remained, added on. */
static void add_snapshot(const reverse *r, int64_t left, int64_t s, int64_t h) {
    const scan *z = &r->z;
    if (left >= z->keep) return;
    int64_t at = snapshot_at(z, left, s, h);
    for (int64_t i = 0; i < z->width * z->state; i++) r->grad[i] += qn_load_one((qn_dtype)r->g->dtype, flat_at(r->g, at + i));
}

static void reverse_sequence(reverse *r, int64_t s, int64_t h) {
    const scan *z = &r->z;
    int64_t n = z->state, area = z->width * n;
    load_state(z, s, h, r->states);
    for (int64_t t = 0; t < z->steps; t++) {
        const double *prev = r->states + t * area;
        token_load(&r->k, z, s, t, h);
        for (int64_t p = 0; p < z->width; p++)
            (void)scan_row(n, &r->k, qn_get4(z->x, s, t, h, p), prev + p * n, r->states + (t + 1) * area + p * n);
    }
    clear(r->grad, area);
    if (z->steps == 0) add_snapshot(r, 0, s, h);
    for (int64_t t = z->steps; t-- > 0;) {
        add_snapshot(r, z->steps - 1 - t, s, h);
        token_load(&r->k, z, s, t, h);
        reverse_token(r, s, t, h);
    }
    double *slot = r->dh0 + qn_index4(z->ids, 0, 0, 0, s) * area;
    for (int64_t i = 0; i < area; i++) slot[i] += r->grad[i];
}

static void reverse_head(reverse *r, int64_t h) {
    const scan *z = &r->z;
    const qn_tensor *dh0 = r->dst[0], *da = r->dst[3];
    int64_t n = z->state, area = z->width * n;
    clear(r->dh0, z->slots * area);
    clear(r->da, z->rates);
    for (int64_t s = 0; s < z->seqs; s++) reverse_sequence(r, s, h);
    for (int64_t slot = 0; slot < z->slots; slot++)
        for (int64_t p = 0; p < z->width; p++)
            qn_store_row(dh0, qn_at(dh0, qn_off4(dh0, slot, h, p, 0)), 0, n, r->dh0 + slot * area + p * n);
    qn_store_row(da, qn_at(da, h * qn_nb(da, 1)), 0, z->rates, r->da);
}

qn_status qn_ref_ssm_scan_back(const qn_call *c) {
    reverse r = {.g = c->src[0], .dst = c->dst};
    scan *z = &r.z;
    scan_open(z, c->src + 1, ((const qn_attr_ssm_scan_back *)c->attr)->k);
    for (int i = 0; i < 6; i++) qn_fill(c->dst[i], 0);
    if (z->seqs == 0 || z->heads == 0 || z->width == 0 || z->state == 0) return QN_OK;
    int64_t n = z->state, area = z->width * n, tokens = z->seqs * z->steps, per_group = z->heads / z->groups;
    r.states = c->workspace;
    r.grad = r.states + (z->steps + 1) * area;
    r.dh0 = r.grad + area;
    r.db = r.dh0 + z->slots * area;
    r.dc = r.db + tokens * n;
    r.da = r.dc + tokens * n;
    token_place(&r.k, r.da + z->rates, n);
    for (int64_t group = 0; group < z->groups; group++) {
        clear(r.db, 2 * tokens * n);
        for (int64_t h = group * per_group; h < (group + 1) * per_group; h++) reverse_head(&r, h);
        for (int64_t s = 0; s < z->seqs; s++)
            for (int64_t t = 0; t < z->steps; t++)
                for (int i = 4; i <= 5; i++) {
                    const double *sum = (i == 4 ? r.db : r.dc) + (s * z->steps + t) * n;
                    qn_store_row(c->dst[i], qn_at(c->dst[i], qn_off4(c->dst[i], s, t, group, 0)), 0, n, sum);
                }
    }
    return QN_OK;
}

void qn_vjp_ssm_scan(qn_vjp_call *v) {
    qn_attr_ssm_scan_back at = qn_attr_ssm_scan_back_default();
    at.k = ((const qn_attr_ssm_scan *)v->attr)->k;
    qn_val src[8] = {v->grad[0]}, out[6];
    for (int i = 0; i < 7; i++) src[i + 1] = v->src[i];
    qn_emit_many(v, QN_OP_ssm_scan_back, 0, &at, 8, src, 6, out);
    for (int i = 0; i < 6; i++)
        if (v->want[i]) v->out[i] = out[i];
}
