/* Attention with latent keys and values: a row of the cache is one short vector for all heads, and the part of the key that turns. A file
 * brings the matrices from it to the heads in one of two forms. Absorbed, they are applied to queries and results instead, so that all
 * heads read the same row; else keys and values of each head are made and kept. */
#include "model/build.h"

enum { F32 = 4 }; /* bytes */

/* Numbers [from, from + length) of each of `heads` parts, of `each` numbers, of x's rows. */
static qn_val part_of(qn_build *b, qn_val x, int64_t heads, int64_t each, int64_t from, int64_t length) {
    return qn_build_view(b, x, 3, (int64_t[]){b->all, heads, length}, (int64_t[]){heads * each * F32, each * F32, F32},
                         from * F32);
}

static qn_val join(qn_build *b, qn_val a, qn_val c) { return qn_build_two(b, QN_OP_concat, a, c); }

/* Each head's own matrix: x is [all, heads, in], the result [all, heads, out]. */
static qn_val by_heads(qn_build *b, qn_val x, const char *name, int64_t heads, int64_t in, int64_t out) {
    const int64_t turned[3] = {1, 0, 2}, shape[3] = {heads, out, in};
    qn_val w = heads > 1 ? qn_build_weight(b, name, 1, 3, shape)
                         : qn_build_reshape(b, qn_build_weight(b, name, 1, 2, shape + 1), 3, shape);
    qn_val y = qn_build_two(b, QN_OP_mul_mat, w, qn_build_permute(b, x, 3, turned));
    return qn_build_permute(b, y, 3, turned);
}

static qn_val latent_norm(qn_build *b, qn_val x, const char *name, int64_t width) {
    return qn_build_two(b, QN_OP_mul, qn_build_normalise(b, x), qn_build_small(b, name, 1, 1, &width));
}

static qn_val queries(qn_build *b, qn_val x) {
    const qn_hparams *h = &b->m->h;
    int64_t width = h->layers[b->layer].heads * (int64_t)h->head_length;
    if (!qn_build_has(b, "attn_q_a.weight")) return qn_build_linear(b, x, "attn_q", h->n_embd, width, QN_SCALE_NEVER);
    qn_val q = qn_build_linear(b, x, "attn_q_a", h->n_embd, h->latent_q, QN_SCALE_NEVER);
    return qn_build_linear(b, latent_norm(b, q, "attn_q_a_norm.weight", h->latent_q), "attn_q_b", h->latent_q, width,
                           QN_SCALE_NEVER);
}

void qn_build_latent(qn_build *b, qn_val x, qn_val out[3]) {
    const qn_hparams *h = &b->m->h;
    int64_t heads = h->layers[b->layer].heads, whole = h->head_length, turns = h->n_rot, rest = whole - turns,
            short_one = h->latent;
    qn_val q = queries(b, x), kv = qn_build_linear(b, x, "attn_kv_a_mqa", h->n_embd, short_one + turns, QN_SCALE_NEVER);
    qn_val q_rest = part_of(b, q, heads, whole, 0, rest), q_turned = qn_build_rope(b, part_of(b, q, heads, whole, rest, turns));
    qn_val turned = qn_build_rope(b, part_of(b, kv, 1, short_one + turns, short_one, turns));
    qn_val row = latent_norm(b, part_of(b, kv, 1, short_one + turns, 0, short_one), "attn_kv_a_norm.weight", short_one);
    if (h->absorbed) {
        out[0] = join(b, by_heads(b, q_rest, "attn_k_b.weight", heads, rest, short_one), q_turned);
        out[1] = join(b, row, turned);
        out[2] = row;
        return;
    }
    int64_t v = h->value_length;
    row = qn_build_reshape(b, row, 2, (int64_t[]){b->all, short_one});
    qn_val made = qn_build_linear(b, row, "attn_kv_b", short_one, heads * (rest + v), QN_SCALE_NEVER);
    out[0] = join(b, q_rest, q_turned);
    out[1] = join(b, part_of(b, made, heads, rest + v, 0, rest),
                  qn_build_expand(b, turned, 3, (int64_t[]){b->all, heads, turns}));
    out[2] = qn_build_one(b, QN_OP_cont, part_of(b, made, heads, rest + v, rest, v));
}

/* What the heads read, [all, heads * latent], as their values, [all, heads * length]. */
qn_val qn_build_latent_values(qn_build *b, qn_val y) {
    const qn_hparams *h = &b->m->h;
    int64_t heads = h->layers[b->layer].heads;
    y = qn_build_reshape(b, y, 3, (int64_t[]){b->all, heads, h->latent});
    y = qn_build_one(b, QN_OP_cont, by_heads(b, y, "attn_v_b.weight", heads, h->latent, h->head_values));
    return qn_build_reshape(b, y, 2, (int64_t[]){b->all, heads * (int64_t)h->head_values});
}
