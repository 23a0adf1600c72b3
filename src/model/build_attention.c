/* Attention of a layer, with its cache. Every sequence has cells of its own, in the order of its positions, so what a token gives does
 * not depend on who else is there. Encoders keep no cache: keys are the tokens of the run. */
#include <stdio.h>

#include "model/build.h"

enum { F32 = 4 }; /* bytes */

static qn_val clamp(qn_build *b, qn_val x) {
    if (b->m->h.clamp <= 0) return x;
    qn_attr_clamp at = qn_attr_clamp_default();
    at.min = -b->m->h.clamp;
    at.max = b->m->h.clamp;
    return qn_build_op(b, QN_OP_clamp, 0, 1, &x, &at);
}

/* [all, heads, length] of q, k and v, from one matrix or three. */
static void project(qn_build *b, qn_val x, qn_val out[3]) {
    static const char *const names[3] = {"attn_q", "attn_k", "attn_v"};
    const qn_hparams *h = &b->m->h;
    const qn_layer_shape *l = &h->layers[b->layer];
    const int64_t heads[3] = {l->heads, l->heads_kv, l->heads_kv}, length[3] = {h->key_length, h->key_length, h->value_length};
    int scale = b->m->arch->has & QN_LACKS_QKV_EXTRAS ? QN_SCALE_NEVER : QN_SCALE_FIRST;
    if (!qn_build_has(b, "attn_qkv.weight")) {
        for (int i = 0; i < 3; i++) {
            qn_val y = clamp(b, qn_build_linear(b, x, names[i], h->n_embd, heads[i] * length[i], scale));
            out[i] = qn_build_reshape(b, y, 3, (int64_t[]){b->all, heads[i], length[i]});
        }
        return;
    }
    int64_t width = 0, at = 0;
    for (int i = 0; i < 3; i++) width += heads[i] * length[i];
    qn_val y = clamp(b, qn_build_linear(b, x, "attn_qkv", h->n_embd, width, scale));
    for (int i = 0; i < 3; i++) {
        out[i] = qn_build_view(b, y, 3, (int64_t[]){b->all, heads[i], length[i]}, (int64_t[]){width * F32, length[i] * F32, F32},
                               at * F32);
        at += heads[i] * length[i];
    }
}

/* A norm over each head, with one weight for all heads or one each, or over all heads together; the weight's shape tells which. */
static qn_val head_norm(qn_build *b, qn_val x, const char *name, int64_t heads, int64_t length) {
    char part[96];
    qn_file_tensor t;
    snprintf(part, sizeof part, "blk.%d.%s.weight", b->layer, name);
    if (qn_file_entry(b->m->file, qn_file_find(b->m->file, QN_FILE_TENSORS, part), &t) != QN_OK) return x;
    int64_t count = qn_tensor_count(&t.tensor), all = heads * length;
    int over_all = count == all && t.tensor.rank == 1 && heads > 1;
    if (over_all) x = qn_build_reshape(b, x, 2, (int64_t[]){b->all, all});
    x = qn_build_normalise(b, x);
    snprintf(part, sizeof part, "%s.weight", name);
    int64_t shape[2] = {heads, length};
    qn_val w = over_all || count != all ? qn_build_small(b, part, 1, 1, over_all ? &all : &length)
                                        : qn_build_small(b, part, 1, 2, shape);
    x = qn_build_two(b, QN_OP_mul, x, w);
    snprintf(part, sizeof part, "%s.bias", name);
    qn_val bias = qn_build_small(b, part, 0, 1, over_all ? &all : &length);
    if (bias != QN_VAL_NONE) x = qn_build_two(b, QN_OP_add, x, bias);
    return over_all ? qn_build_reshape(b, x, 3, (int64_t[]){b->all, heads, length}) : x;
}

/* Factors that stretch some frequencies: the file's own, or those for the context at hand. */
static qn_val rope_factors(qn_build *b) {
    if (!(b->m->arch->has & QN_HAS_ROPE_FACTORS)) return QN_VAL_NONE;
    int layer = b->layer;
    int64_t pairs = b->m->h.n_rot / 2;
    int is_long = b->shape->context > b->m->h.rope_context;
    b->layer = -1;
    const char *name = qn_build_has(b, "rope_freqs.weight") ? "rope_freqs.weight"
                       : is_long                            ? "rope_factors_long.weight"
                                                            : "rope_factors_short.weight";
    qn_val v = QN_VAL_NONE;
    if (qn_build_has(b, name)) {
        if (b->factors == QN_VAL_NONE) b->factors = qn_build_small(b, name, 1, 1, &pairs);
        v = b->factors;
    }
    b->layer = layer;
    return v;
}

qn_val qn_build_rope(qn_build *b, qn_val x) {
    const qn_hparams *h = &b->m->h;
    if (!h->layers[b->layer].roped || !h->n_rot) return x;
    qn_attr_rope at = qn_attr_rope_default();
    int windowed = h->layers[b->layer].windowed;
    at.n_dims = h->n_rot;
    at.mode = b->m->arch->rope == QN_ROPE_NEOX || h->rope_sections ? 2 : 0;
    at.n_ctx_orig = (int32_t)h->rope_context;
    at.freq_base = windowed ? h->rope_base_window : h->rope_base;
    at.freq_scale = windowed && b->m->arch->window_base > 0 ? 1 : h->rope_scale;
    at.ext_factor = h->yarn_ext;
    at.attn_factor = h->yarn_attn;
    at.beta_fast = h->yarn_fast;
    at.beta_slow = h->yarn_slow;
    qn_val src[3] = {x, b->positions, rope_factors(b)};
    return qn_build_op(b, QN_OP_rope, 0, src[2] == QN_VAL_NONE ? 2 : 3, src, &at);
}

/* Rows go into the cells of their positions; what comes back is the run's sequences, [sequences, heads, keys, length]. */
static qn_val remember(qn_build *b, qn_val rows, const char *name, qn_dtype dtype, int64_t heads, int64_t length) {
    char full[64];
    uint64_t row = 0, one = 0;
    int64_t width = heads * length;
    snprintf(full, sizeof full, "cache.%s.%d", name, b->layer);
    const qn_dtype_info *info = qn_dtype_describe(dtype);
    if (b->status == QN_OK && (width % info->block || length % info->block)) {
        qn_build_fail(b, QN_UNSUPPORTED, "a cache of %s takes heads in multiples of %d, this model's have %lld", info->name,
                      (int)info->block, (long long)length);
        return QN_VAL_NONE;
    }
    qn_tensor_bytes(dtype, 1, &width, &row);
    qn_tensor_bytes(dtype, 1, &length, &one);
    int64_t shape[2] = {qn_model_cache_rows(b->shape), width}, stream = b->shape->context * (int64_t)row;
    qn_val cache = b->status == QN_OK ? qn_graph_param(b->g, full, dtype, 2, shape) : QN_VAL_NONE;
    rows = qn_build_reshape(b, rows, 2, (int64_t[]){b->all, width});
    cache = qn_build_op(b, QN_OP_store_rows, 0, 3, (qn_val[]){cache, rows, b->cells}, NULL);
    qn_graph_output(b->g, cache, full);
    return qn_build_view(b, cache, 4, (int64_t[]){b->sequences, heads, b->keys, length},
                         (int64_t[]){stream, (int64_t)one, (int64_t)row, (int64_t)info->bytes},
                         qn_graph_dim(b->g, '*', qn_graph_dim(b->g, '-', b->end, b->sequences), stream));
}

/* [all, heads, length] as [sequences, heads, tokens, length]. */
static qn_val by_head(qn_build *b, qn_val x, int64_t heads, int64_t length) {
    x = qn_build_reshape(b, x, 4, (int64_t[]){b->sequences, b->tokens, heads, length});
    return qn_build_permute(b, x, 4, (int64_t[]){0, 2, 1, 3});
}

static void norm_heads(qn_build *b, qn_val p[3]) {
    const qn_hparams *h = &b->m->h;
    const qn_layer_shape *l = &h->layers[b->layer];
    if (!(b->m->arch->has & QN_HAS_QK_NORM) || !qn_build_has(b, "attn_q_norm.weight") || !qn_build_has(b, "attn_k_norm.weight"))
        return;
    p[0] = head_norm(b, p[0], "attn_q_norm", l->heads, h->key_length);
    p[1] = head_norm(b, p[1], "attn_k_norm", l->heads_kv, h->key_length);
}

static void project_and_turn(qn_build *b, qn_val x, qn_val p[3]) {
    int late = (b->m->arch->has & QN_HAS_QK_NORM_LATE) != 0;
    project(b, x, p);
    if (!late) norm_heads(b, p);
    p[0] = qn_build_rope(b, p[0]);
    p[1] = qn_build_rope(b, p[1]);
    if (late) norm_heads(b, p);
    if (b->m->arch->bare_qk_norm && b->m->h.layers[b->layer].roped && b->m->h.n_experts != 128)
        for (int i = 0; i < 2; i++) p[i] = qn_build_normalise(b, p[i]);
}

/* Queries times 1 + temperature ln(1 + floor((position + ahead) / length)), so that a long context does not level the scores. */
static qn_val warm(qn_build *b, qn_val q) {
    const qn_hparams *h = &b->m->h;
    qn_attr_cast to = qn_attr_cast_default();
    qn_attr_scale more = qn_attr_scale_default();
    to.dtype = QN_DTYPE_F32;
    qn_val w = qn_build_op(b, QN_OP_cast, 0, 1, &b->positions, &to);
    int64_t one = 1;
    qn_val length = qn_graph_constant(b->g, QN_DTYPE_F32, 1, &one, &h->temperature_length, sizeof h->temperature_length);
    more.s = 1;
    more.b = h->temperature_ahead;
    w = qn_build_op(b, QN_OP_scale, 0, 1, &w, &more);
    w = qn_build_unary(b, QN_UNARY_floor, qn_build_two(b, QN_OP_div, w, length)); /* a product would miss some multiples */
    more.b = 1;
    w = qn_build_one(b, QN_OP_log, qn_build_op(b, QN_OP_scale, 0, 1, &w, &more));
    more.s = h->temperature; /* and still + 1 */
    w = qn_build_op(b, QN_OP_scale, 0, 1, &w, &more);
    return qn_build_two(b, QN_OP_mul, q, qn_build_reshape(b, w, 3, (int64_t[]){b->all, 1, 1}));
}

qn_val qn_build_attention(qn_build *b, qn_val x) {
    const qn_hparams *h = &b->m->h;
    const qn_layer_shape *l = &h->layers[b->layer];
    qn_val p[3];
    if (h->latent) qn_build_latent(b, x, p);
    else project_and_turn(b, x, p);
    if (h->temperature != 0 && !(b->m->arch->warm > 0 && l->roped)) p[0] = warm(b, p[0]);
    int encoder = (b->m->arch->has & QN_IS_ENCODER) != 0;
    qn_val q = by_head(b, p[0], l->heads, h->key_length);
    qn_val k = encoder ? by_head(b, p[1], l->heads_kv, h->key_length)
                       : remember(b, p[1], "k", b->shape->k, l->heads_kv, h->key_length);
    qn_val v = encoder ? by_head(b, p[2], l->heads_kv, h->value_length)
                       : remember(b, p[2], "v", b->shape->v, l->heads_kv, h->value_length);
    qn_attr_flash_attn_ext at = qn_attr_flash_attn_ext_default();
    at.scale = h->attention_scale;
    at.max_bias = h->alibi;
    at.logit_softcap = h->softcap;
    at.prec = 10; /* f32 throughout */
    int64_t heads = l->heads;
    qn_val sinks = b->m->arch->has & QN_HAS_SINKS ? qn_build_small(b, "attn_sinks.weight", 0, 1, &heads) : QN_VAL_NONE;
    qn_val src[5] = {q, k, v, l->windowed ? b->mask_window : b->mask, sinks};
    qn_val y = qn_build_op(b, QN_OP_flash_attn_ext, 0, sinks == QN_VAL_NONE ? 4 : 5, src, &at);
    y = qn_build_reshape(b, y, 2, (int64_t[]){b->all, heads * h->value_length});
    if (h->absorbed) y = qn_build_latent_values(b, y);
    return qn_build_linear(b, y, "attn_output", heads * (h->absorbed ? h->head_values : h->value_length), h->n_embd,
                           QN_SCALE_FIRST);
}
