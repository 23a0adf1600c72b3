/* delta_rule_back: the states of a sequence forwards, then the gradients backwards from token to token. A part takes whole key
 * heads of a sequence, so that the sums for q and k over the heads that share them are its own. Lanes lie along the keys; rows of
 * the state follow each other. */
#include <math.h>

#include "cpu/k_lanes.h"
#include "op/op_delta.h"

typedef struct rule {
    const qn_tensor *q, *k, *v, *g, *beta, *state, *gy, *gnext;
    qn_delta_sizes z;
    int64_t keys; /* of a row of the scratch: whole vectors, zero behind the end */
    float scale;
} rule;

/* Scratch of a part: all states, the gradient of one, sums for q and k, and rows of one token. */
typedef struct room {
    float *states, *grad, *dq, *dk, *q, *k, *v, *up;
    int64_t floats;
} room;

static rule open_rule(const qn_call *c) {
    const qn_attr_delta_rule_back *at = c->attr;
    rule r = {.q = c->src[0], .k = c->src[1], .v = c->src[2], .g = c->src[3], .beta = c->src[4], .state = c->src[5]};
    r.gy = c->n_src > 6 ? c->src[6] : NULL;
    r.gnext = c->n_src > 7 ? c->src[7] : NULL;
    r.z = (qn_delta_sizes){qn_ne(r.v, 3), qn_ne(r.v, 2), qn_ne(r.v, 1), qn_ne(r.q, 1), qn_ne(r.q, 0), qn_ne(r.v, 0), at->blocked};
    r.keys = (r.z.key_width + VF_N - 1) / VF_N * VF_N;
    r.scale = at->scale != 0 ? at->scale : (float)(1 / sqrt((double)r.z.key_width));
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
    m.v = m.k + r->keys;
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

static float number_of(const qn_tensor *t, int64_t b, int64_t step, int64_t h) {
    return *(const float *)(const void *)qn_at(t, qn_off4(t, 0, b, step, h));
}

/* ---- One token */

static void forward(const rule *r, const room *m, int64_t t, float decay, float beta) {
    const float *prev = m->states + t * r->z.width * r->keys;
    float *next = m->states + (t + 1) * r->z.width * r->keys;
    for (int64_t j = 0; j < r->z.width; j++, prev += r->keys, next += r->keys) {
        vf sum = vf_zero(), d = vf_set1(decay);
        for (int64_t i = 0; i < r->keys; i += VF_N) sum = vf_fma(vf_load(prev + i), vf_load(m->k + i), sum);
        vf off = vf_set1(beta * (m->v[j] - decay * vf_sum(sum)));
        for (int64_t i = 0; i < r->keys; i += VF_N) vf_store(next + i, vf_fma(off, vf_load(m->k + i), d * vf_load(prev + i)));
    }
}

/* grad turns from the gradient of the state behind the token into that before it, v into its own. */
static void backward(const rule *r, const room *m, int64_t t, float decay, float beta, float *dg, float *dbeta) {
    int64_t n = r->keys;
    const float *prev = m->states + t * r->z.width * n, *next = prev + r->z.width * n;
    float *grad = m->grad, *dq = m->dq + t * n, *dk = m->dk + t * n;
    double by_beta = 0, by_g = 0;
    for (int64_t j = 0; j < r->z.width; j++, prev += n, next += n, grad += n) {
        vf up = vf_set1(r->scale * m->up[j]), answer = vf_zero(), pull = vf_zero(), through = vf_zero(), d = vf_set1(decay);
        for (int64_t i = 0; i < n; i += VF_N) {
            vf g = vf_fma(up, vf_load(m->q + i), vf_load(grad + i)), k = vf_load(m->k + i);
            vf_store(dq + i, vf_fma(up, vf_load(next + i), vf_load(dq + i)));
            vf_store(grad + i, g);
            answer = vf_fma(vf_load(prev + i), k, answer);
            pull = vf_fma(g, k, pull);
        }
        float miss = m->v[j] - decay * vf_sum(answer), off = vf_sum(pull), back = beta * off;
        by_beta += (double)off * (double)miss;
        m->v[j] = back;
        vf learnt = vf_set1(beta * miss), lost = vf_set1(back);
        for (int64_t i = 0; i < n; i += VF_N) {
            vf g = vf_load(grad + i), old = d * vf_load(prev + i), rest = g - lost * vf_load(m->k + i);
            vf_store(dk + i, vf_load(dk + i) + (g * learnt - lost * old));
            through = vf_fma(rest, old, through);
            vf_store(grad + i, d * rest);
        }
        by_g += (double)vf_sum(through);
    }
    *dg = (float)by_g;
    *dbeta = (float)by_beta;
}

/* ---- One head */

static void load_token(const rule *r, const room *m, int64_t b, int64_t t, int64_t h, float *decay, float *beta) {
    int64_t shared = qn_op_delta_key_head(&r->z, h);
    take_row(r->q, b, t, shared, r->z.key_width, r->keys, m->q);
    take_row(r->k, b, t, shared, r->z.key_width, r->keys, m->k);
    take_row(r->v, b, t, h, r->z.width, r->z.width, m->v);
    *decay = (float)exp((double)number_of(r->g, b, t, h));
    *beta = number_of(r->beta, b, t, h);
}

static void run_head(const rule *r, const room *m, const qn_tensor *const *dst, int64_t b, int64_t h) {
    int64_t area = r->z.width * r->keys;
    float decay, beta, dg, dbeta;
    take_state(r, r->state, b, h, m->states);
    for (int64_t t = 0; t < r->z.steps; t++) {
        load_token(r, m, b, t, h, &decay, &beta);
        forward(r, m, t, decay, beta);
    }
    memset(m->grad, 0, (size_t)area * sizeof *m->grad);
    if (r->gnext) take_state(r, r->gnext, b, h, m->grad);
    for (int64_t t = r->z.steps; t-- > 0;) {
        load_token(r, m, b, t, h, &decay, &beta);
        if (r->gy) take_row(r->gy, b, t, h, r->z.width, r->z.width, m->up);
        else memset(m->up, 0, (size_t)r->z.width * sizeof *m->up);
        backward(r, m, t, decay, beta, &dg, &dbeta);
        put(m->v, r->z.width, qn_at(dst[2], qn_off4(dst[2], b, t, h, 0)), qn_nb(dst[2], 0));
        *(float *)(void *)qn_at(dst[3], qn_off4(dst[3], 0, b, t, h)) = dg;
        *(float *)(void *)qn_at(dst[4], qn_off4(dst[4], 0, b, t, h)) = dbeta;
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

int QN_K(delta_rule_back)(const qn_call *c, qn_cpu_step *s) {
    rule r = open_rule(c);
    const qn_delta_sizes *z = &r.z;
    if (r.v->dtype != QN_DTYPE_F32 || z->seqs < 1 || z->steps < 1 || z->heads < 1 || z->key_width < 1 || z->width < 1) return 0;
    int64_t floats = (z->steps + 2) * z->width * r.keys + 2 * (z->steps + 1) * r.keys + 2 * (z->width + VF_N);
    double flops = 16.0 * (double)(z->heads / z->key_heads) * (double)z->steps * (double)z->width * (double)r.keys;
    qn_cpu_by_rows(s, "delta rule gradient", run_back, z->seqs * z->key_heads, 0, flops);
    while (s->parts[0] > 1 && s->parts[0] * floats * 4 > MOST_ROOM) s->parts[0] /= 2;
    s->workspace = (size_t)(s->parts[0] * floats) * sizeof(float);
    return 1;
}
