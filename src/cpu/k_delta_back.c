/* delta_rule_back and gated_delta_net_back: the states of a sequence forwards, then the gradients backwards from token to token. A
 * part takes whole key heads of a sequence, so that the sums for q and k over the heads that share them are its own. Lanes lie along
 * the keys; rows of the state follow each other. */
#include <math.h>

#include "cpu/k_lanes.h"
#include "cpu/simd/simd_math.h"
#include "op/op_delta.h"
#include "op/op_recurrent.h"

typedef struct rule {
    const qn_tensor *q, *k, *v, *g, *beta, *state, *gy, *gnext;
    qn_delta_sizes z;
    int net;       /* gated_delta_net: decays [B, T, H, gates], gy packed as its result is, with `keep` snapshots of states */
    int64_t gates; /* decays of a token: one, or one for each key */
    int64_t keep;
    int64_t keys; /* of a row of the scratch: whole vectors, zero behind the end */
    float scale;
} rule;

/* Scratch of a part: all states, the gradient of one, sums for q and k, and rows of one token. */
typedef struct room {
    float *states, *grad, *dq, *dk, *q, *k, *decay, *dg, *v, *up;
    int64_t floats;
} room;

static rule open_at(const qn_tensor *const *src, int blocked, float scale) {
    rule r = {.q = src[0], .k = src[1], .v = src[2], .g = src[3], .beta = src[4], .state = src[5], .gates = 1};
    r.z = (qn_delta_sizes){qn_ne(r.v, 3), qn_ne(r.v, 2), qn_ne(r.v, 1), qn_ne(r.q, 1), qn_ne(r.q, 0), qn_ne(r.v, 0), blocked};
    r.keys = (r.z.key_width + VF_N - 1) / VF_N * VF_N;
    r.scale = scale != 0 ? scale : (float)(1 / sqrt((double)r.z.key_width));
    return r;
}

static rule open_rule(const qn_call *c) {
    const qn_attr_delta_rule_back *at = c->attr;
    int net = c->op == QN_OP_gated_delta_net_back;
    rule r = open_at(c->src + net, net ? 0 : at->blocked, net ? 0 : at->scale);
    r.net = net;
    if (net) {
        r.gy = c->src[0];
        r.gates = qn_ne(r.g, 0);
        r.keep = ((const qn_attr_gated_delta_net_back *)c->attr)->k;
        return r;
    }
    r.gy = c->n_src > 6 ? c->src[6] : NULL;
    r.gnext = c->n_src > 7 ? c->src[7] : NULL;
    return r;
}

static room place(const rule *r, float *base) {
    int64_t area = r->z.width * r->keys, wide = (r->z.width + VF_N - 1) / VF_N * VF_N;
    room m = {.states = base};
    m.grad = m.states + (r->z.steps + 1) * area;
    m.dq = m.grad + area;
    m.dk = m.dq + r->z.steps * r->keys;
    m.q = m.dk + r->z.steps * r->keys;
    m.k = m.q + r->keys;
    m.decay = m.k + r->keys;
    m.dg = m.decay + r->keys;
    m.v = m.dg + r->keys;
    m.up = m.v + wide;
    m.floats = m.up + wide - base;
    return m;
}

/* n elements from `from` on, `apart` bytes from each other, and zeros up to `most`. */
static void take(const char *from, int64_t apart, int64_t n, int64_t most, float *to) {
    for (int64_t i = 0; i < n; i++) to[i] = *(const float *)(const void *)(from + i * apart);
    for (int64_t i = n; i < most; i++) to[i] = 0;
}

static void put(const float *from, int64_t n, char *to, int64_t apart) {
    for (int64_t i = 0; i < n; i++) *(float *)(void *)(to + i * apart) = from[i];
}

static void take_row(const qn_tensor *t, int64_t b, int64_t step, int64_t h, int64_t n, int64_t most, float *to) {
    take(qn_at(t, qn_off4(t, b, step, h, 0)), qn_nb(t, 0), n, most, to);
}

static void take_state(const rule *r, const qn_tensor *t, int64_t b, int64_t h, float *to) {
    const char *rows = qn_op_delta_state(t, b, h);
    for (int64_t j = 0; j < r->z.width; j++, rows += qn_nb(t, 1), to += r->keys)
        take(rows, qn_nb(t, 0), r->z.key_width, r->keys, to);
}

/* The number, or the first of them, of a token and a head. */
static char *number_at(const rule *r, const qn_tensor *t, int64_t b, int64_t step, int64_t h) {
    return r->net ? qn_at(t, qn_off4(t, b, step, h, 0)) : qn_at(t, qn_off4(t, 0, b, step, h));
}

/* ---- One token */

static void forward(const rule *r, const room *m, int64_t t, float beta) {
    const float *prev = m->states + t * r->z.width * r->keys;
    float *next = m->states + (t + 1) * r->z.width * r->keys;
    for (int64_t j = 0; j < r->z.width; j++, prev += r->keys, next += r->keys) {
        vf sum = vf_zero();
        for (int64_t i = 0; i < r->keys; i += VF_N) {
            vf old = vf_load(m->decay + i) * vf_load(prev + i);
            sum = vf_fma(old, vf_load(m->k + i), sum);
            vf_store(next + i, old);
        }
        vf off = vf_set1(beta * (m->v[j] - vf_sum(sum)));
        for (int64_t i = 0; i < r->keys; i += VF_N) vf_store(next + i, vf_fma(off, vf_load(m->k + i), vf_load(next + i)));
    }
}

/* grad turns from the gradient of the state behind the token into that before it, v into its own; dg gets those of the decays'
 * logarithms. Gives that of beta. */
static float backward(const rule *r, const room *m, int64_t t, float beta) {
    int64_t n = r->keys;
    const float *prev = m->states + t * r->z.width * n, *next = prev + r->z.width * n;
    float *grad = m->grad, *dq = m->dq + t * n, *dk = m->dk + t * n;
    double by_beta = 0;
    memset(m->dg, 0, (size_t)n * sizeof *m->dg);
    for (int64_t j = 0; j < r->z.width; j++, prev += n, next += n, grad += n) {
        vf up = vf_set1(r->scale * m->up[j]), answer = vf_zero(), pull = vf_zero();
        for (int64_t i = 0; i < n; i += VF_N) {
            vf g = vf_fma(up, vf_load(m->q + i), vf_load(grad + i)), k = vf_load(m->k + i);
            vf_store(dq + i, vf_fma(up, vf_load(next + i), vf_load(dq + i)));
            vf_store(grad + i, g);
            answer = vf_fma(vf_load(m->decay + i) * vf_load(prev + i), k, answer);
            pull = vf_fma(g, k, pull);
        }
        float miss = m->v[j] - vf_sum(answer), off = vf_sum(pull), back = beta * off;
        by_beta += (double)off * (double)miss;
        m->v[j] = back;
        vf learnt = vf_set1(beta * miss), lost = vf_set1(back);
        for (int64_t i = 0; i < n; i += VF_N) {
            vf g = vf_load(grad + i), d = vf_load(m->decay + i), old = d * vf_load(prev + i), rest = g - lost * vf_load(m->k + i);
            vf_store(dk + i, vf_load(dk + i) + (g * learnt - lost * old));
            vf_store(m->dg + i, vf_fma(rest, old, vf_load(m->dg + i)));
            vf_store(grad + i, d * rest);
        }
    }
    return (float)by_beta;
}

/* ---- One head */

/* Gives beta. */
static float load_token(const rule *r, const room *m, int64_t b, int64_t t, int64_t h) {
    int64_t shared = qn_op_delta_key_head(&r->z, h), n = r->z.key_width;
    take_row(r->q, b, t, shared, n, r->keys, m->q);
    take_row(r->k, b, t, shared, n, r->keys, m->k);
    take_row(r->v, b, t, h, r->z.width, r->z.width, m->v);
    take(number_at(r, r->g, b, t, h), r->gates == 1 ? 0 : qn_nb(r->g, 0), n, r->keys, m->decay);
    for (int64_t i = 0; i < r->keys; i += VF_N) vf_store(m->decay + i, vf_exp(vf_load(m->decay + i)));
    return *(const float *)(const void *)number_at(r, r->beta, b, t, h);
}

/* What comes in for the result of a token. */
static void load_gradient(const rule *r, const room *m, int64_t b, int64_t t, int64_t h) {
    int64_t n = r->z.width;
    if (!r->gy) memset(m->up, 0, (size_t)n * sizeof *m->up);
    else if (!r->net) take_row(r->gy, b, t, h, n, n, m->up);
    else {
        const char *row = qn_at(r->gy, (b * r->z.steps + t) * qn_nb(r->gy, 1) + h * n * qn_nb(r->gy, 0));
        take(row, qn_nb(r->gy, 0), n, n, m->up);
    }
}

/* What comes in for the state when so many tokens were left, added on. */
static void add_snapshot(const rule *r, const room *m, int64_t b, int64_t h, int64_t left) {
    if (!r->net || left >= r->keep) return;
    for (int64_t j = 0; j < r->z.width; j++) {
        int64_t run = ((left * r->z.seqs + b) * r->z.heads + h) * r->z.width + j;
        const char *row = qn_packed_run(r->gy, r->z.seqs * r->z.steps, r->z.heads, r->z.width, run);
        for (int64_t i = 0; i < r->z.key_width; i++)
            m->grad[j * r->keys + i] += *(const float *)(const void *)(row + i * qn_nb(r->gy, 0));
    }
}

static void store_token(const rule *r, const room *m, const qn_tensor *const *dst, int64_t b, int64_t t, int64_t h, float dbeta) {
    char *dg = number_at(r, dst[3], b, t, h);
    put(m->v, r->z.width, qn_at(dst[2], qn_off4(dst[2], b, t, h, 0)), qn_nb(dst[2], 0));
    *(float *)(void *)number_at(r, dst[4], b, t, h) = dbeta;
    if (r->gates > 1) {
        put(m->dg, r->gates, dg, qn_nb(dst[3], 0));
        return;
    }
    double sum = 0;
    for (int64_t i = 0; i < r->z.key_width; i++) sum += (double)m->dg[i];
    *(float *)(void *)dg = (float)sum;
}

static void run_head(const rule *r, const room *m, const qn_tensor *const *dst, int64_t b, int64_t h) {
    take_state(r, r->state, b, h, m->states);
    for (int64_t t = 0; t < r->z.steps; t++) {
        float beta = load_token(r, m, b, t, h);
        forward(r, m, t, beta);
    }
    memset(m->grad, 0, (size_t)(r->z.width * r->keys) * sizeof *m->grad);
    if (r->gnext) take_state(r, r->gnext, b, h, m->grad);
    for (int64_t t = r->z.steps; t-- > 0;) {
        float beta = load_token(r, m, b, t, h);
        load_gradient(r, m, b, t, h);
        add_snapshot(r, m, b, h, r->z.steps - 1 - t);
        store_token(r, m, dst, b, t, h, backward(r, m, t, beta));
    }
    char *to = qn_op_delta_state(dst[5], b, h);
    for (int64_t j = 0; j < r->z.width; j++, to += qn_nb(dst[5], 1))
        put(m->grad + j * r->keys, r->z.key_width, to, qn_nb(dst[5], 0));
}

static void run_back(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    rule r = open_rule(c);
    room m = place(&r, c->workspace);
    int64_t units = r.z.seqs * r.z.key_heads, end = qn_cpu_cut(units, s->parts[0], part + 1);
    m = place(&r, (float *)c->workspace + part * m.floats);
    for (int64_t u = qn_cpu_cut(units, s->parts[0], part); u < end; u++) {
        int64_t b = u / r.z.key_heads, key = u % r.z.key_heads;
        memset(m.dq, 0, (size_t)(2 * r.z.steps * r.keys) * sizeof *m.dq); /* dk lies behind it */
        for (int64_t h = 0; h < r.z.heads; h++)
            if (qn_op_delta_key_head(&r.z, h) == key) run_head(&r, &m, c->dst, b, h);
        for (int64_t t = 0; t < r.z.steps; t++) {
            put(m.dq + t * r.keys, r.z.key_width, qn_at(c->dst[0], qn_off4(c->dst[0], b, t, key, 0)), qn_nb(c->dst[0], 0));
            put(m.dk + t * r.keys, r.z.key_width, qn_at(c->dst[1], qn_off4(c->dst[1], b, t, key, 0)), qn_nb(c->dst[1], 0));
        }
    }
}

enum { MOST_ROOM = 1 << 26 }; /* bytes of scratch from which on fewer parts run at once */

static int prepare(const qn_call *c, qn_cpu_step *s, const char *name) {
    rule r = open_rule(c);
    const qn_delta_sizes *z = &r.z;
    if (r.v->dtype != QN_DTYPE_F32 || z->seqs < 1 || z->steps < 1 || z->heads < 1 || z->key_width < 1 || z->width < 1) return 0;
    int64_t floats = (z->steps + 2) * z->width * r.keys + 2 * (z->steps + 2) * r.keys + 2 * (z->width + VF_N);
    double flops = 16.0 * (double)(z->heads / z->key_heads) * (double)z->steps * (double)z->width * (double)r.keys;
    qn_cpu_by_rows(s, name, run_back, z->seqs * z->key_heads, 0, flops);
    while (s->parts[0] > 1 && s->parts[0] * floats * 4 > MOST_ROOM) s->parts[0] /= 2;
    s->workspace = (size_t)(s->parts[0] * floats) * sizeof(float);
    return 1;
}

int QN_K(delta_rule_back)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, "delta rule gradient"); }
int QN_K(gated_delta_net_back)(const qn_call *c, qn_cpu_step *s) { return prepare(c, s, "delta net gradient"); }
