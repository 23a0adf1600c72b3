/* The stages of the delta rule by chunks, as ops of their own (see op_delta.h). Lanes lie along keys or values, a part takes whole
 * chunks of a head; only the states follow each other from chunk to chunk, and of them a part takes whole rows, which do not need
 * each other. The inverse is computed in double: what it is applied to may be far larger than what comes out. */
#include <math.h>

#include "cpu/k_lanes.h"
#include "cpu/simd/simd_math.h"
#include "op/op_delta.h"

enum { ROWS = 16 }; /* rows of a state that one unit takes through all chunks */

typedef struct place {
    qn_delta_sizes z;
    int64_t chunk, chunks;
    int64_t b, h, key, first, n; /* of the unit at hand: a head, its chunk's first token and how many it has */
} place;

static int is_floats(const qn_tensor *t) { return t->dtype == QN_DTYPE_F32 && qn_lanes_rows(t); }

static place open_place(const qn_tensor *g, const qn_tensor *k, int64_t width, int64_t chunk, int blocked) {
    place p = {.z = {qn_ne(g, 2), qn_ne(g, 1), qn_ne(g, 0), qn_ne(k, 1), qn_ne(k, 0), width, blocked}, .chunk = chunk};
    p.chunks = (p.z.steps + chunk - 1) / chunk;
    return p;
}

static int is_some(const place *p) { return p->z.seqs > 0 && p->z.steps > 0 && p->z.heads > 0 && p->z.key_width > 0; }

static void chunk_begin(place *p, int64_t number) {
    p->first = number * p->chunk;
    p->n = p->z.steps - p->first < p->chunk ? p->z.steps - p->first : p->chunk;
}

/* Units are the chunks of all heads. */
static void unit_begin(place *p, int64_t unit) {
    p->b = unit / (p->z.heads * p->chunks);
    p->h = unit / p->chunks % p->z.heads;
    p->key = qn_op_delta_key_head(&p->z, p->h);
    chunk_begin(p, unit % p->chunks);
}
static int64_t units_of(const place *p) { return p->z.seqs * p->z.heads * p->chunks; }

static float *row_of(const place *p, const qn_tensor *t, int64_t i, int64_t h) {
    return (float *)(void *)qn_at(t, qn_off4(t, p->b, p->first + i, h, 0));
}

static void numbers_of(const place *p, const qn_tensor *t, float *to) {
    for (int64_t i = 0; i < p->n; i++) to[i] = *(const float *)(const void *)qn_at(t, qn_off4(t, 0, p->b, p->first + i, p->h));
}

static float dot(const float *a, const float *b, int64_t n) {
    vf s = vf_zero(), t = s;
    int64_t i = 0;
    for (; i + 2 * VF_N <= n; i += 2 * VF_N) {
        s = vf_fma(vf_load(a + i), vf_load(b + i), s);
        t = vf_fma(vf_load(a + i + VF_N), vf_load(b + i + VF_N), t);
    }
    for (; i < n; i += VF_N) {
        int left = (int)(n - i < VF_N ? n - i : VF_N);
        s = vf_fma(vf_loadn(a + i, left), vf_loadn(b + i, left), s);
    }
    return vf_sum(s + t);
}

/* y += f x */
static void add_times(float *y, float f, const float *x, int64_t n) {
    vf by = vf_set1(f);
    int64_t i = 0;
    for (; i + VF_N <= n; i += VF_N) vf_store(y + i, vf_fma(by, vf_load(x + i), vf_load(y + i)));
    if (i < n) vf_storen(y + i, vf_fma(by, vf_loadn(x + i, (int)(n - i)), vf_loadn(y + i, (int)(n - i))), (int)(n - i));
}

static float exp_of(float x) { return vf_exp(vf_set1(x))[0]; }

/* Scratch of a part: numbers of a chunk, twice. */
static int64_t room_of(const place *p) { return (2 * p->chunk + 15) / 16 * 16; }

static int by_chunks(const place *p, qn_cpu_step *s, const char *name, qn_cpu_run_fn run, double flops) {
    qn_cpu_by_rows(s, name, run, units_of(p), 0, flops);
    s->workspace = (size_t)(s->parts[0] * room_of(p)) * sizeof(float);
    return 1;
}

/* ---- A_ij = beta_i k_i.k_j e^(G_i - G_j) below the diagonal */

static place open_kkt(const qn_call *c) {
    const qn_attr_delta_kkt *at = c->attr;
    return open_place(c->src[2], c->src[0], 0, at->chunk, at->blocked);
}

static void run_kkt(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    place p = open_kkt(c);
    float *beta = (float *)c->workspace + part * room_of(&p), *g = beta + p.chunk;
    int64_t end = qn_cpu_cut(units_of(&p), s->parts[0], part + 1);
    for (int64_t u = qn_cpu_cut(units_of(&p), s->parts[0], part); u < end; u++) {
        unit_begin(&p, u);
        numbers_of(&p, c->src[1], beta);
        numbers_of(&p, c->src[2], g);
        for (int64_t i = 0; i < p.n; i++) {
            float *a = row_of(&p, c->dst[0], i, p.h);
            const float *k = row_of(&p, c->src[0], i, p.key);
            memset(a, 0, (size_t)p.chunk * sizeof *a);
            for (int64_t j = 0; j < i; j++)
                a[j] = beta[i] * dot(k, row_of(&p, c->src[0], j, p.key), p.z.key_width) * exp_of(g[i] - g[j]);
        }
    }
}

int QN_K(delta_kkt)(const qn_call *c, qn_cpu_step *s) {
    place p = open_kkt(c);
    if (!is_some(&p) || !is_floats(c->src[0]) || !is_floats(c->dst[0]) || c->src[2]->dtype != QN_DTYPE_F32) return 0;
    return by_chunks(&p, s, "delta kkt", run_kkt, (double)(p.chunk * p.chunk) * (double)p.z.key_width);
}

/* ---- (1 + A)^-1 by forward substitution, row after row */

static int64_t matrix_bytes(int64_t n) { return n * n * (int64_t)sizeof(double); }

static void run_invert(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    const qn_tensor *a = c->src[0];
    place p = {.z = {qn_ne(a, 3), qn_ne(a, 2), qn_ne(a, 1), 1, 0, 0, 0}, .chunk = qn_ne(a, 0)};
    p.chunks = (p.z.steps + p.chunk - 1) / p.chunk;
    double *t = (double *)(void *)((char *)c->workspace + part * matrix_bytes(p.chunk));
    int64_t ld = p.chunk, end = qn_cpu_cut(units_of(&p), s->parts[0], part + 1);
    for (int64_t u = qn_cpu_cut(units_of(&p), s->parts[0], part); u < end; u++) {
        unit_begin(&p, u);
        for (int64_t i = 0; i < p.n; i++) {
            const float *from = row_of(&p, a, i, p.h);
            float *to = row_of(&p, c->dst[0], i, p.h);
            double *row = t + i * ld;
            for (int64_t j = 0; j < ld; j++) row[j] = j == i;
            for (int64_t m = 0; m < i; m++) {
                double f = (double)from[m];
                for (int64_t j = 0; j <= m; j++) row[j] -= f * t[m * ld + j];
            }
            for (int64_t j = 0; j < ld; j++) to[j] = (float)row[j];
        }
    }
}

int QN_K(delta_invert)(const qn_call *c, qn_cpu_step *s) {
    const qn_tensor *a = c->src[0];
    int64_t n = qn_ne(a, 0), steps = qn_ne(a, 2);
    if (qn_tensor_count(a) == 0 || !is_floats(a) || !is_floats(c->dst[0])) return 0;
    double flops = (double)(n * n) * (double)n / 3;
    qn_cpu_by_rows(s, "delta invert", run_invert, qn_ne(a, 3) * qn_ne(a, 1) * ((steps + n - 1) / n), 0, flops);
    s->workspace = (size_t)(s->parts[0] * matrix_bytes(n));
    return 1;
}

/* ---- W = T beta e^G K, U = T beta V */

static place open_wu(const qn_call *c) {
    const qn_attr_delta_wu *at = c->attr;
    return open_place(c->src[3], c->src[0], qn_ne(c->src[1], 0), at->chunk, at->blocked);
}

static void run_wu(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    place p = open_wu(c);
    float *beta = (float *)c->workspace + part * room_of(&p), *g = beta + p.chunk;
    int64_t end = qn_cpu_cut(units_of(&p), s->parts[0], part + 1);
    for (int64_t u = qn_cpu_cut(units_of(&p), s->parts[0], part); u < end; u++) {
        unit_begin(&p, u);
        numbers_of(&p, c->src[2], beta);
        numbers_of(&p, c->src[3], g);
        for (int64_t i = 0; i < p.n; i++) g[i] = exp_of(g[i]);
        for (int64_t i = 0; i < p.n; i++) {
            const float *t = row_of(&p, c->src[4], i, p.h);
            float *w = row_of(&p, c->dst[0], i, p.h), *v = row_of(&p, c->dst[1], i, p.h);
            memset(w, 0, (size_t)p.z.key_width * sizeof *w);
            memset(v, 0, (size_t)p.z.width * sizeof *v);
            for (int64_t j = 0; j <= i; j++) {
                add_times(w, t[j] * beta[j] * g[j], row_of(&p, c->src[0], j, p.key), p.z.key_width);
                add_times(v, t[j] * beta[j], row_of(&p, c->src[1], j, p.h), p.z.width);
            }
        }
    }
}

int QN_K(delta_wu)(const qn_call *c, qn_cpu_step *s) {
    place p = open_wu(c);
    if (!is_some(&p) || p.z.width < 1 || c->src[3]->dtype != QN_DTYPE_F32) return 0;
    if (!is_floats(c->src[0]) || !is_floats(c->src[1]) || !is_floats(c->src[4]) || !is_floats(c->dst[0]) || !is_floats(c->dst[1]))
        return 0;
    return by_chunks(&p, s, "delta wu", run_wu, (double)(p.chunk * p.chunk) * (double)(p.z.key_width + p.z.width));
}

/* ---- F = U - W S^T, and the state from chunk to chunk */

static place open_states(const qn_call *c) {
    const qn_attr_delta_states *at = c->attr;
    return open_place(c->src[3], c->src[0], qn_ne(c->src[2], 0), at->chunk, at->blocked);
}

/* Row l of the state before a chunk, in [B, chunks, H, V, K]. */
static float *before(const place *p, const qn_tensor *t, int64_t chunk, int64_t l) {
    return (float *)(void *)qn_at(t, l * qn_nb(t, 1) + p->h * qn_nb(t, 2) + chunk * qn_nb(t, 3) + p->b * qn_nb(t, 4));
}

static float *state_row(const place *p, const qn_tensor *t, int64_t l) {
    return (float *)(void *)(qn_op_delta_state(t, p->b, p->h) + l * qn_nb(t, 1));
}

/* One row through all chunks; g has room for a chunk's numbers. */
static void carry_row(const qn_call *c, place *p, int64_t l, float *g) {
    int64_t n = p->z.key_width;
    float *state = state_row(p, c->dst[2], l);
    memcpy(state, state_row(p, c->src[4], l), (size_t)n * sizeof *state);
    for (int64_t chunk = 0; chunk < p->chunks; chunk++) {
        float *was = before(p, c->dst[0], chunk, l);
        chunk_begin(p, chunk);
        numbers_of(p, c->src[3], g);
        memcpy(was, state, (size_t)n * sizeof *was);
        float last = g[p->n - 1], decay = exp_of(last);
        for (int64_t i = 0; i < n; i++) state[i] *= decay;
        for (int64_t i = 0; i < p->n; i++) {
            float fresh = row_of(p, c->src[2], i, p->h)[l] - dot(row_of(p, c->src[1], i, p->h), was, n);
            row_of(p, c->dst[1], i, p->h)[l] = fresh;
            add_times(state, fresh * exp_of(last - g[i]), row_of(p, c->src[0], i, p->key), n);
        }
    }
}

static void run_states(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    place p = open_states(c);
    float *g = (float *)c->workspace + part * room_of(&p);
    int64_t blocks = (p.z.width + ROWS - 1) / ROWS, units = p.z.seqs * p.z.heads * blocks;
    int64_t end = qn_cpu_cut(units, s->parts[0], part + 1);
    for (int64_t u = qn_cpu_cut(units, s->parts[0], part); u < end; u++) {
        p.b = u / (p.z.heads * blocks);
        p.h = u / blocks % p.z.heads;
        p.key = qn_op_delta_key_head(&p.z, p.h);
        for (int64_t l = u % blocks * ROWS; l < p.z.width && l < (u % blocks + 1) * ROWS; l++) carry_row(c, &p, l, g);
    }
}

int QN_K(delta_states)(const qn_call *c, qn_cpu_step *s) {
    place p = open_states(c);
    if (!is_some(&p) || p.z.width < 1 || c->src[3]->dtype != QN_DTYPE_F32) return 0;
    for (int i = 0; i < 5; i++)
        if (i != 3 && !is_floats(c->src[i])) return 0;
    for (int i = 0; i < 3; i++)
        if (!is_floats(c->dst[i])) return 0;
    double flops = 4.0 * ROWS * (double)p.z.steps * (double)p.z.key_width;
    qn_cpu_by_rows(s, "delta states", run_states, p.z.seqs * p.z.heads * ((p.z.width + ROWS - 1) / ROWS), 0, flops);
    s->workspace = (size_t)(s->parts[0] * room_of(&p)) * sizeof(float);
    return 1;
}

/* ---- y_i = scale (e^(G_i) S q_i + sum over j <= i of q_i.k_j e^(G_i - G_j) F_j) */

static place open_outputs(const qn_call *c) {
    const qn_attr_delta_outputs *at = c->attr;
    return open_place(c->src[4], c->src[0], qn_ne(c->src[2], 0), at->chunk, at->blocked);
}

static void run_outputs(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    const qn_attr_delta_outputs *at = c->attr;
    place p = open_outputs(c);
    float scale = at->scale != 0 ? at->scale : (float)(1 / sqrt((double)p.z.key_width));
    float *g = (float *)c->workspace + part * room_of(&p);
    int64_t end = qn_cpu_cut(units_of(&p), s->parts[0], part + 1);
    for (int64_t u = qn_cpu_cut(units_of(&p), s->parts[0], part); u < end; u++) {
        unit_begin(&p, u);
        numbers_of(&p, c->src[4], g);
        for (int64_t i = 0; i < p.n; i++) {
            const float *q = row_of(&p, c->src[0], i, p.key);
            float *y = row_of(&p, c->dst[0], i, p.h), up = scale * exp_of(g[i]);
            for (int64_t l = 0; l < p.z.width; l++) y[l] = up * dot(before(&p, c->src[3], u % p.chunks, l), q, p.z.key_width);
            for (int64_t j = 0; j <= i; j++) {
                float weight = scale * dot(q, row_of(&p, c->src[1], j, p.key), p.z.key_width) * exp_of(g[i] - g[j]);
                add_times(y, weight, row_of(&p, c->src[2], j, p.h), p.z.width);
            }
        }
    }
}

int QN_K(delta_outputs)(const qn_call *c, qn_cpu_step *s) {
    place p = open_outputs(c);
    if (!is_some(&p) || p.z.width < 1 || c->src[4]->dtype != QN_DTYPE_F32 || !is_floats(c->dst[0])) return 0;
    for (int i = 0; i < 4; i++)
        if (!is_floats(c->src[i])) return 0;
    double each = (double)p.z.width + (double)p.chunk;
    return by_chunks(&p, s, "delta outputs", run_outputs, 2.0 * (double)p.chunk * each * (double)p.z.key_width);
}
