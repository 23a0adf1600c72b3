/* The gated delta rule: delta_rule and gated_delta_net. A row of the state depends on no other row, so a block of them goes through all
 * the tokens of a sequence. For a few tokens rows are taken as they lie. For more, lanes are rows: a block is kept turned, key by key,
 * and no sum goes across lanes. By chunks or token by token is the same to this kernel, which goes token by token: a block of the
 * state lies in the first cache, and products of chunks would compute more to read it less. */
#include <math.h>

#include "cpu/k_state_turned.h"
#include "cpu/simd/simd_math.h"
#include "op/op_delta.h"

typedef struct rule {
    const qn_tensor *q, *k, *v, *g, *beta, *state;
    int64_t seqs, steps, heads, keys, width; /* keys: elements of a row of the state */
    int64_t gates;                           /* decays of a token: one, or one for each key */
    int64_t block, blocks;                   /* rows of a block, blocks of a head's state */
    float scale;
    int net;            /* gated_delta_net, which */
    int64_t keep, slot; /* keeps so many states, the newest first, so many floats apart */
} rule;

/* One token: s <- decay s;  d = beta (v - s k);  s <- s + d kT;  y = s q. v and y are those of the block's rows. */
typedef struct token {
    const float *k, *q, *v;
    float *y, beta, scale;
    float *decay, *decayed; /* decay: one, or one for each key; decayed: then the keys times them */
} token;

/* ---- A few tokens: rows as they lie */

QN_INLINE void advance_rows(const qn_state_rows *x, const token *t, int each) {
    const qn_state_step step = {.decay = t->decay, .keys = t->k, .read = t->q};
    vf off[QN_STATE_ROWS / VF_N]; /* all at once, so that no row waits for its own */
    for (int64_t r = 0; r < x->rows; r += VF_N) {
        vf seen = each ? qn_state_dot(x, r, t->decayed) : qn_state_dot(x, r, t->k) * vf_set1(t->decay[0]);
        off[r / VF_N] = vf_set1(t->beta) * (qn_lanes_at(QN_DTYPE_F32, (const char *)t->v, r, x->rows) - seen);
    }
    for (int64_t r = 0; r < x->rows; r += VF_N) {
        vf y = qn_state_next(x, r, &step, each, 0, off[r / VF_N], vf_zero());
        qn_lanes_put_at(QN_DTYPE_F32, (char *)t->y, r, y * vf_set1(t->scale), x->rows);
    }
}

static void rows_one(const qn_state_rows *x, const token *t) { advance_rows(x, t, 0); }
static void rows_each(const qn_state_rows *x, const token *t) { advance_rows(x, t, 1); }

/* ---- Many tokens: lanes are rows */

QN_INLINE void advance_turned(float *s, const qn_state_rows *x, const token *t, int each) {
    const qn_state_step step = {.decay = t->decay, .keys = t->k, .read = t->q};
    vf v[QN_TURNED_VECTORS], off[QN_TURNED_VECTORS], y[QN_TURNED_VECTORS], all = vf_set1(each ? 1.0f : t->decay[0]);
    qn_turned_take(v, t->v, x->rows);
    qn_turned_dot(s, x->n, each ? t->decayed : t->k, off);
    for (int w = 0; w < QN_TURNED_VECTORS; w++) off[w] = vf_set1(t->beta) * (v[w] - all * off[w]);
    qn_turned_next(s, x->n, &step, each, 0, off, off, y);
    for (int w = 0; w < QN_TURNED_VECTORS; w++) y[w] *= vf_set1(t->scale);
    qn_turned_give(t->y, y, x->rows);
}

static void turned_one(float *s, const qn_state_rows *x, const token *t) { advance_turned(s, x, t, 0); }
static void turned_each(float *s, const qn_state_rows *x, const token *t) { advance_turned(s, x, t, 1); }

/* ---- Blocks */

/* Of sequence b and head h, from row `first` on; `shared` is the head its keys come from. Results of tokens lie y_apart from each other,
 * and the newest state goes to `to`. */
typedef struct unit {
    int64_t b, h, shared, first, rows, y_apart, to_apart;
    float *y, *to;
} unit;

static int is_floats(const qn_tensor *t) { return t->dtype == QN_DTYPE_F32 && qn_lanes_rows(t); }

static float *row_of(const qn_tensor *t, int64_t b, int64_t step, int64_t h) {
    return (float *)(void *)qn_at(t, qn_off4(t, b, step, h, 0));
}

static void decays(const rule *z, int64_t b, int64_t t, int64_t h, float *out) {
    const char *g = z->net ? qn_at(z->g, qn_off4(z->g, b, t, h, 0)) : qn_at(z->g, qn_off4(z->g, 0, b, t, h));
    int64_t apart = z->net ? qn_nb(z->g, 0) : 0;
    for (int64_t i = 0; i < z->gates; i += VF_N) {
        float some[VF_N] = {0};
        for (int64_t j = i; j < z->gates && j < i + VF_N; j++) some[j - i] = *(const float *)(const void *)(g + j * apart);
        vf_store(some, vf_exp(vf_load(some)));
        for (int64_t j = i; j < z->gates && j < i + VF_N; j++) out[j] = some[j - i];
    }
}

static token token_of(const rule *z, const unit *u, int64_t t, float *spare) {
    const qn_tensor *beta = z->beta;
    token at = {.k = row_of(z->k, u->b, t, u->shared), .q = row_of(z->q, u->b, t, u->shared), .scale = z->scale};
    at.v = row_of(z->v, u->b, t, u->h) + u->first;
    at.y = u->y + t * u->y_apart;
    at.beta = *(const float *)(const void *)qn_at(beta,
                                                  z->net ? qn_off4(beta, u->b, t, u->h, 0) : qn_off4(beta, 0, u->b, t, u->h));
    at.decay = spare;
    at.decayed = spare + z->gates;
    decays(z, u->b, t, u->h, spare);
    for (int64_t i = 0; i < z->keys && z->gates > 1; i++) at.decayed[i] = spare[i] * at.k[i];
    if (t + 1 == z->steps) return at;
    qn_state_ask(row_of(z->k, u->b, t + 1, u->shared), z->keys);
    qn_state_ask(row_of(z->q, u->b, t + 1, u->shared), z->keys);
    qn_state_ask(row_of(z->v, u->b, t + 1, u->h) + u->first, u->rows);
    qn_state_ask(at.y + u->y_apart, u->rows);
    return at;
}

/* The rows that a call begins with. Elements that do not lie side by side are brought to where the newest will lie at once. */
static qn_state_rows begin(const rule *z, const unit *u) {
    const qn_tensor *t = z->state;
    const char *from = qn_op_delta_state(t, u->b, u->h) + u->first * qn_nb(t, 1);
    qn_state_rows x = {u->to, u->to, u->to_apart, u->to_apart, u->rows, z->keys};
    if (is_floats(t)) {
        x.from = (const float *)(const void *)from;
        x.from_apart = qn_nb(t, 1) / 4;
        return x;
    }
    for (int64_t r = 0; r < x.rows; r++)
        for (int64_t i = 0; i < x.n; i++)
            x.to[r * x.to_apart + i] = *(const float *)(const void *)(from + r * qn_nb(t, 1) + i * qn_nb(t, 0));
    return x;
}

/* A token reads what the one before it wrote, and writes where its state will be kept, or else where the newest will. */
static void few_tokens(const rule *z, const unit *u, float *spare) {
    qn_state_rows x = begin(z, u);
    for (int64_t t = 0; t < z->steps; t++) {
        int64_t left = z->steps - 1 - t;
        token at = token_of(z, u, t, spare);
        x.to = u->to + (left < z->keep ? left * z->slot : 0);
        (z->gates == 1 ? rows_one : rows_each)(&x, &at);
        x.from = x.to;
        x.from_apart = x.to_apart;
    }
}

static void many_tokens(const rule *z, const unit *u, float *spare, float *tile) {
    qn_state_rows x = begin(z, u);
    qn_turn_in(&x, tile);
    for (int64_t t = 0; t < z->steps; t++) {
        int64_t left = z->steps - 1 - t;
        token at = token_of(z, u, t, spare);
        (z->gates == 1 ? turned_one : turned_each)(tile, &x, &at);
        x.to = u->to + left * z->slot;
        if (left < z->keep) qn_turn_out(&x, tile);
    }
}

/* ---- The two ops. gated_delta_net has the result's rows, then snapshots of the states, in one tensor. */

static rule rule_of(const qn_call *c) {
    rule z = {.q = c->src[0], .k = c->src[1], .v = c->src[2], .g = c->src[3], .beta = c->src[4], .state = c->src[5]};
    z.net = c->op == QN_OP_gated_delta_net;
    z.seqs = qn_ne(z.v, 3);
    z.steps = qn_ne(z.v, 2);
    z.heads = qn_ne(z.v, 1);
    z.width = qn_ne(z.v, 0);
    z.keys = qn_ne(z.q, 0);
    z.gates = z.net ? qn_ne(z.g, 0) : 1;
    z.keep = z.net ? ((const qn_attr_gated_delta_net *)c->attr)->k : 1;
    z.slot = z.seqs * z.heads * z.width * z.keys;
    z.block = z.steps < QN_TURNED_TOKENS ? QN_STATE_ROWS : QN_TURNED_ROWS;
    z.blocks = (z.width + z.block - 1) / z.block;
    float scale = z.net ? 0 : ((const qn_attr_delta_rule *)c->attr)->scale;
    z.scale = scale != 0 ? scale : (float)(1 / sqrt((double)z.keys));
    return z;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static unit unit_of(const rule *z, const qn_call *c, int64_t i) {
    unit u = {.b = i / (z->blocks * z->heads), .h = i / z->blocks % z->heads, .first = i % z->blocks * z->block};
    u.rows = least(z->width - u.first, z->block);
    if (z->net) {
        int64_t row = z->heads * z->width, at = u.h * z->width + u.first;
        float *y = row_of(c->dst[0], 0, 0, 0);
        u.shared = u.h % qn_ne(z->q, 1);
        u.y = y + u.b * z->steps * row + at;
        u.y_apart = row;
        u.to = y + z->seqs * z->steps * row + (u.b * row + at) * z->keys;
        u.to_apart = z->keys;
        return u;
    }
    qn_delta_sizes sizes = {
        .heads = z->heads, .key_heads = qn_ne(z->q, 1), .blocked = ((const qn_attr_delta_rule *)c->attr)->blocked};
    u.shared = qn_op_delta_key_head(&sizes, u.h);
    u.y = row_of(c->dst[0], u.b, 0, u.h) + u.first;
    u.y_apart = qn_nb(c->dst[0], 2) / 4;
    u.to_apart = qn_nb(c->dst[1], 1) / 4;
    u.to = (float *)(void *)qn_op_delta_state(c->dst[1], u.b, u.h) + u.first * u.to_apart;
    return u;
}

static int64_t tile_floats(const rule *z) { return z->steps < QN_TURNED_TOKENS ? 0 : qn_turned_floats(z->keys); }
static int64_t part_floats(const rule *z) { return (tile_floats(z) + 2 * z->gates + 15) / 16 * 16; }

static void run_rule(const qn_call *c, const qn_cpu_step *s, int phase, int64_t part) {
    (void)phase;
    rule z = rule_of(c);
    int64_t units = z.seqs * z.heads * z.blocks, end = qn_cpu_cut(units, s->parts[0], part + 1);
    float *tile = (float *)c->workspace + part * part_floats(&z), *spare = tile + tile_floats(&z);
    for (int64_t i = qn_cpu_cut(units, s->parts[0], part); i < end; i++) {
        unit u = unit_of(&z, c, i);
        if (z.steps < QN_TURNED_TOKENS) few_tokens(&z, &u, spare);
        else many_tokens(&z, &u, spare, tile);
        for (int64_t slot = z.steps; slot < z.keep; slot++) /* rows of one tensor's states lie side by side */
            memset(u.to + slot * z.slot, 0, (size_t)(u.rows * z.keys) * sizeof(float));
    }
}

static int prepare(const qn_call *c, qn_cpu_step *s, const char *name) {
    rule z = rule_of(c);
    if (z.seqs < 1 || z.steps < 1 || z.heads < 1 || z.keys < 1 || z.width < 1) return 0;
    if (!is_floats(z.q) || !is_floats(z.k) || !is_floats(z.v)) return 0;
    double cells = (double)z.block * (double)z.keys;
    qn_cpu_by_rows(s, name, run_rule, z.seqs * z.heads * z.blocks, cells * 8, 6.0 * cells * (double)z.steps);
    s->workspace = (size_t)(s->parts[0] * part_floats(&z)) * sizeof(float);
    return 1;
}

int QN_K(delta_rule)(const qn_call *c, qn_cpu_step *s) {
    return is_floats(c->dst[0]) && is_floats(c->dst[1]) && prepare(c, s, "delta rule rows");
}
int QN_K(gated_delta_net)(const qn_call *c, qn_cpu_step *s) {
    return is_floats(c->dst[0]) && qn_cpu_is_dense(c->dst[0]) && prepare(c, s, "delta net rows");
}
