/* The gated delta rule: delta_rule and gated_delta_net. A row of the state depends on no other row, so lanes are rows: a block of
 * them is kept turned, key by key, over all the tokens of a sequence, and no sum goes across lanes. By chunks or token by token is
 * the same to this kernel, which goes token by token: a block of the state lies in the first cache, and products of chunks would
 * compute more to read it less. */
#include <math.h>

#include "cpu/k_lanes.h"
#include "cpu/simd/simd_math.h"
#include "cpu/simd/simd_turn.h"
#include "op/op_delta.h"
#include "op/op_recurrent.h"

enum { VECTORS = VF_N < 16 ? 4 : 2, BLOCK = VECTORS * VF_N, CHAINS = 2 }; /* rows of a block; sums side by side */

typedef struct rule {
    const qn_tensor *q, *k, *v, *g, *beta, *state;
    int64_t seqs, steps, heads, keys, width; /* keys: elements of a row of the state */
    int64_t gates;                           /* decays of a token: one, or one for each key */
    int64_t blocks;                          /* of a head's state */
    float scale;
} rule;

/* ---- One token over a block of rows */

/* s <- decay s;  d = beta (v - s k);  s <- s + d kT;  y = s q. decay has one number, or one for each key. */
QN_INLINE void advance(float *s, int64_t n, const float *k, const float *q, const float *decay, int many, const vf *v, float beta,
                       vf *y) {
    vf sum[CHAINS][VECTORS], off[VECTORS], all = vf_set1(many ? 1.0f : decay[0]);
    memset(sum, 0, sizeof sum);
    for (int64_t i = 0; i < n; i += CHAINS)
        for (int c = 0; c < CHAINS && i + c < n; c++) {
            vf ki = vf_set1(many ? decay[i + c] * k[i + c] : k[i + c]);
            for (int w = 0; w < VECTORS; w++) sum[c][w] = vf_fma(vf_load(s + (i + c) * BLOCK + w * VF_N), ki, sum[c][w]);
        }
    for (int w = 0; w < VECTORS; w++) off[w] = vf_set1(beta) * (v[w] - all * (sum[0][w] + sum[1][w]));
    memset(sum, 0, sizeof sum);
    for (int64_t i = 0; i < n; i += CHAINS)
        for (int c = 0; c < CHAINS && i + c < n; c++) {
            vf ki = vf_set1(k[i + c]), qi = vf_set1(q[i + c]), di = many ? vf_set1(decay[i + c]) : all;
            for (int w = 0; w < VECTORS; w++) {
                vf t = vf_fma(off[w], ki, vf_load(s + (i + c) * BLOCK + w * VF_N) * di);
                vf_store(s + (i + c) * BLOCK + w * VF_N, t);
                sum[c][w] = vf_fma(t, qi, sum[c][w]);
            }
        }
    for (int w = 0; w < VECTORS; w++) y[w] = sum[0][w] + sum[1][w];
}

static void advance_one(float *s, int64_t n, const float *k, const float *q, const float *decay, const vf *v, float beta, vf *y) {
    advance(s, n, k, q, decay, 0, v, beta, y);
}
static void advance_each(float *s, int64_t n, const float *k, const float *q, const float *decay, const vf *v, float beta,
                         vf *y) {
    advance(s, n, k, q, decay, 1, v, beta, y);
}

/* ---- Blocks */

/* Up to BLOCK numbers of a row from `first` on, those behind its end zero. */
static void take(vf *v, const float *row, int64_t first, int64_t n) {
    for (int w = 0; w < VECTORS; w++, first += VF_N)
        v[w] = first + VF_N <= n ? vf_load(row + first) : first < n ? vf_loadn(row + first, (int)(n - first)) : vf_zero();
}

static void give(float *row, int64_t first, int64_t n, const vf *v, float scale) {
    for (int w = 0; w < VECTORS && first < n; w++, first += VF_N) {
        vf x = v[w] * vf_set1(scale);
        if (first + VF_N <= n) vf_store(row + first, x);
        else vf_storen(row + first, x, (int)(n - first));
    }
}

/* Rows of a state, `apart` bytes after each other, elements of a row `place` bytes; `n` of them, BLOCK at most. */
typedef struct rows {
    char *at;
    int64_t apart, place, n;
} rows;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* VF_N rows and as many keys, from row r and key i on, turned into or out of the tile; rows that are not there are zero. */
static void turn_square_in(const rows *x, int64_t r, int64_t i, int64_t keys, float *s) {
    vf square[VF_N];
    int some = (int)least(keys - i, VF_N);
    for (int64_t j = 0; j < VF_N; j++) {
        const float *from = (const float *)(const void *)(x->at + (r + j) * x->apart) + i;
        square[j] = r + j >= x->n ? vf_zero() : some == VF_N ? vf_load(from) : vf_loadn(from, some);
    }
    vf_turn(square);
    for (int j = 0; j < some; j++) vf_store(s + (i + j) * BLOCK + r, square[j]);
}

static void turn_square_out(const rows *x, int64_t r, int64_t i, int64_t keys, const float *s) {
    vf square[VF_N];
    int some = (int)least(keys - i, VF_N);
    for (int j = 0; j < VF_N; j++) square[j] = j < some ? vf_load(s + (i + j) * BLOCK + r) : vf_zero();
    vf_turn(square);
    for (int64_t j = 0; j < VF_N && r + j < x->n; j++) {
        float *to = (float *)(void *)(x->at + (r + j) * x->apart) + i;
        if (some == VF_N) vf_store(to, square[j]);
        else vf_storen(to, square[j], some);
    }
}

static void turn_in(const rows *x, int64_t keys, float *s) {
    for (int64_t i = 0; i < keys && x->place == 4; i += VF_N)
        for (int64_t r = 0; r < BLOCK; r += VF_N) turn_square_in(x, r, i, keys, s);
    for (int64_t i = 0; i < keys && x->place != 4; i++)
        for (int64_t r = 0; r < BLOCK; r++)
            s[i * BLOCK + r] = r < x->n ? *(const float *)(const void *)(x->at + r * x->apart + i * x->place) : 0;
}

static void turn_out(const rows *x, int64_t keys, const float *s) {
    for (int64_t i = 0; i < keys && x->place == 4; i += VF_N)
        for (int64_t r = 0; r < x->n; r += VF_N) turn_square_out(x, r, i, keys, s);
    for (int64_t i = 0; i < keys && x->place != 4; i++)
        for (int64_t r = 0; r < x->n; r++) *(float *)(void *)(x->at + r * x->apart + i * x->place) = s[i * BLOCK + r];
}

/* Of tensor t, from the first byte of a head's state on. */
static rows rows_of(const rule *z, const qn_tensor *t, char *head, int64_t first) {
    return (rows){head + first * qn_nb(t, 1), qn_nb(t, 1), qn_nb(t, 0), least(z->width - first, BLOCK)};
}

static void decays(const rule *z, int64_t b, int64_t t, int64_t h, int net, float *out) {
    const char *g = net ? qn_at(z->g, qn_off4(z->g, b, t, h, 0)) : qn_at(z->g, qn_off4(z->g, 0, b, t, h));
    int64_t apart = net ? qn_nb(z->g, 0) : 0;
    for (int64_t i = 0; i < z->gates; i += VF_N) {
        float some[VF_N] = {0};
        for (int64_t j = i; j < z->gates && j < i + VF_N; j++) some[j - i] = *(const float *)(const void *)(g + j * apart);
        vf_store(some, vf_exp(vf_load(some)));
        for (int64_t j = i; j < z->gates && j < i + VF_N; j++) out[j] = some[j - i];
    }
}

static const float *row_of(const qn_tensor *t, int64_t b, int64_t step, int64_t h) {
    return (const float *)(const void *)qn_at(t, qn_off4(t, b, step, h, 0));
}

/* One token of a head over the block from row `first` on. */
static void token(const rule *z, int64_t b, int64_t t, int64_t h, int64_t shared, int net, int64_t first, float *s, float *decay,
                  float *y) {
    vf v[VECTORS], read[VECTORS];
    decays(z, b, t, h, net, decay);
    take(v, row_of(z->v, b, t, h), first, z->width);
    const char *beta = net ? qn_at(z->beta, qn_off4(z->beta, b, t, h, 0)) : qn_at(z->beta, qn_off4(z->beta, 0, b, t, h));
    (z->gates == 1 ? advance_one : advance_each)(s, z->keys, row_of(z->k, b, t, shared), row_of(z->q, b, t, shared), decay, v,
                                                 *(const float *)(const void *)beta, read);
    give(y, first, z->width, read, z->scale);
}

/* ---- What the two ops have in common */

static int is_floats(const qn_tensor *t) { return t->dtype == QN_DTYPE_F32 && qn_lanes_rows(t); }

static int64_t tile_floats(const rule *z) { return (z->keys * BLOCK + z->gates + 15) / 16 * 16; }

static int prepare(const rule *z, qn_cpu_step *s, const char *name, qn_cpu_run_fn run) {
    if (z->seqs < 1 || z->steps < 1 || z->heads < 1 || z->keys < 1 || z->width < 1) return 0;
    if (z->v->dtype != QN_DTYPE_F32 || !is_floats(z->q) || !is_floats(z->k) || !is_floats(z->v)) return 0;
    double flops = 6.0 * (double)(z->steps * BLOCK) * (double)z->keys;
    qn_cpu_by_rows(s, name, run, z->seqs * z->heads * z->blocks, 0, flops);
    s->workspace = (size_t)(s->parts[0] * tile_floats(z)) * sizeof(float);
    return 1;
}

typedef struct unit {
    int64_t b, h, first;
} unit;

static unit unit_of(const rule *z, int64_t i) {
    return (unit){i / (z->blocks * z->heads), i / z->blocks % z->heads, i % z->blocks * BLOCK};
}

/* ---- delta_rule */

static rule open_rule(const qn_call *c) {
    const qn_attr_delta_rule *at = c->attr;
    rule z = {.q = c->src[0], .k = c->src[1], .v = c->src[2], .g = c->src[3], .beta = c->src[4], .state = c->src[5], .gates = 1};
    z.seqs = qn_ne(z.v, 3);
    z.steps = qn_ne(z.v, 2);
    z.heads = qn_ne(z.v, 1);
    z.width = qn_ne(z.v, 0);
    z.keys = qn_ne(z.q, 0);
    z.blocks = (z.width + BLOCK - 1) / BLOCK;
    z.scale = at->scale != 0 ? at->scale : (float)(1 / sqrt((double)z.keys));
    return z;
}

static void run_rule(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    rule z = open_rule(c);
    const qn_tensor *y = c->dst[0], *next = c->dst[1], *state = z.state;
    qn_delta_sizes sizes = {
        .heads = z.heads, .key_heads = qn_ne(z.q, 1), .blocked = ((const qn_attr_delta_rule *)c->attr)->blocked};
    int64_t units = z.seqs * z.heads * z.blocks, end = qn_cpu_cut(units, s->parts[0], part + 1);
    float *tile = (float *)c->workspace + part * tile_floats(&z), *decay = tile + z.keys * BLOCK;
    for (int64_t i = qn_cpu_cut(units, s->parts[0], part); i < end; i++) {
        unit u = unit_of(&z, i);
        int64_t shared = qn_op_delta_key_head(&sizes, u.h);
        rows from = rows_of(&z, state, qn_op_delta_state(state, u.b, u.h), u.first);
        rows to = rows_of(&z, next, qn_op_delta_state(next, u.b, u.h), u.first);
        turn_in(&from, z.keys, tile);
        for (int64_t t = 0; t < z.steps; t++)
            token(&z, u.b, t, u.h, shared, 0, u.first, tile, decay, (float *)(void *)qn_at(y, qn_off4(y, u.b, t, u.h, 0)));
        turn_out(&to, z.keys, tile);
    }
}

int QN_K(delta_rule)(const qn_call *c, qn_cpu_step *s) {
    rule z = open_rule(c);
    return is_floats(c->dst[0]) && prepare(&z, s, "delta rule rows", run_rule);
}

/* ---- gated_delta_net: the result's rows, then snapshots of the states, the newest first */

static rule open_net(const qn_call *c) {
    rule z = open_rule(c);
    z.gates = qn_ne(z.g, 0);
    z.scale = (float)(1 / sqrt((double)z.keys));
    return z;
}

static void put_snapshot(const rule *z, const qn_tensor *y, int64_t slot, const unit *u, const float *tile) {
    int64_t n = least(z->width - u->first, BLOCK);
    for (int64_t r = 0; r < n; r++) {
        int64_t run = ((slot * z->seqs + u->b) * z->heads + u->h) * z->width + u->first + r;
        float *to = (float *)(void *)qn_packed_run(y, z->seqs * z->steps, z->heads, z->width, run);
        for (int64_t k = 0; k < z->keys; k++) to[k] = tile ? tile[k * BLOCK + r] : 0;
    }
}

static void run_net(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    rule z = open_net(c);
    const qn_tensor *y = c->dst[0], *state = z.state;
    int64_t units = z.seqs * z.heads * z.blocks, end = qn_cpu_cut(units, s->parts[0], part + 1);
    int64_t keep = ((const qn_attr_gated_delta_net *)c->attr)->k, key_heads = qn_ne(z.q, 1);
    float *tile = (float *)c->workspace + part * tile_floats(&z), *decay = tile + z.keys * BLOCK;
    for (int64_t i = qn_cpu_cut(units, s->parts[0], part); i < end; i++) {
        unit u = unit_of(&z, i);
        rows from = rows_of(&z, state, qn_op_delta_state(state, u.b, u.h), u.first);
        turn_in(&from, z.keys, tile);
        for (int64_t t = 0; t < z.steps; t++) {
            float *to = (float *)(void *)qn_at(y, (u.b * z.steps + t) * qn_nb(y, 1)) + u.h * z.width;
            token(&z, u.b, t, u.h, u.h % key_heads, 1, u.first, tile, decay, to);
            if (z.steps - 1 - t < keep) put_snapshot(&z, y, z.steps - 1 - t, &u, tile);
        }
        for (int64_t slot = z.steps; slot < keep; slot++) put_snapshot(&z, y, slot, &u, NULL);
    }
}

int QN_K(gated_delta_net)(const qn_call *c, qn_cpu_step *s) {
    rule z = open_net(c);
    return is_floats(c->dst[0]) && prepare(&z, s, "delta net rows", run_net);
}
