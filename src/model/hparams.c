/* What a model's keys say. Every number is checked before anything is computed from it; keys that an architecture does not use are
 * not read, as files are full of them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/model.h"

static const qn_arch ARCHS[] = {
#define QN_ARCH(title, ...) {.name = title, __VA_ARGS__},
#include "model/archs.def"
#undef QN_ARCH
};
enum { N_ARCHS = sizeof ARCHS / sizeof *ARCHS, MOST_LAYERS = 1024, MOST_WIDTH = 1 << 20 };

const char *qn_model_arch_name(int number) { return number >= 0 && number < N_ARCHS ? ARCHS[number].name : NULL; }

const qn_arch *qn_model_arch_find(qn_text name) {
    for (int i = 0; i < N_ARCHS; i++)
        if (strlen(ARCHS[i].name) == name.length && memcmp(ARCHS[i].name, name.at, name.length) == 0) return &ARCHS[i];
    return NULL;
}

int qn_model_key(const qn_model *m, const char *name, qn_file_value *value) {
    return qn_file_key(m->file, qn_file_find(m->file, QN_FILE_KEYS, name), value) == QN_OK;
}

/* "llama." in front. */
static int find(const qn_model *m, const char *name, qn_file_value *value, char full[160]) {
    snprintf(full, 160, "%s.%s", m->arch->name, name);
    return qn_model_key(m, full, value);
}

static qn_status whole(const qn_model *m, const char *name, int64_t standard, int64_t least, int64_t most, int64_t *number,
                       qn_error *error) {
    char full[160];
    qn_file_value v;
    *number = standard;
    if (find(m, name, &v, full)) {
        if (v.type == QN_KEY_STRING || v.type == QN_KEY_ARRAY) return qn_error_set(error, QN_FORMAT, "%s is not a number", full);
        *number = v.integer;
    } else if (standard < 0) {
        return qn_error_set(error, QN_FORMAT, "the key %s is missing", full);
    }
    if (*number < least || *number > most)
        return qn_error_set(error, QN_FORMAT, "%s is %lld, which is not between %lld and %lld", full, (long long)*number,
                            (long long)least, (long long)most);
    return QN_OK;
}

static qn_status small(const qn_model *m, const char *name, int32_t standard, int32_t least, int32_t most, int32_t *number,
                       qn_error *error) {
    int64_t wide;
    QN_TRY(whole(m, name, standard, least, most, &wide, error));
    *number = (int32_t)wide;
    return QN_OK;
}

static qn_status real(const qn_model *m, const char *name, float standard, float *number, qn_error *error) {
    char full[160];
    qn_file_value v;
    *number = standard;
    if (!find(m, name, &v, full)) return QN_OK;
    if (v.type == QN_KEY_STRING || v.type == QN_KEY_ARRAY) return qn_error_set(error, QN_FORMAT, "%s is not a number", full);
    if (!isfinite(v.number) || fabs(v.number) > 1e30) return qn_error_set(error, QN_FORMAT, "%s is not a usable number", full);
    *number = (float)v.number;
    return QN_OK;
}

static qn_status only_if(int used, const qn_model *m, const char *name, float *number, qn_error *error) {
    *number = 0;
    return used ? real(m, name, 0, number, error) : QN_OK;
}

/* A number for all layers, or an array with one for each. */
static qn_status of_layer(const qn_model *m, const char *name, int layer, int32_t standard, int32_t *number, qn_error *error) {
    char full[160];
    qn_file_value v, item;
    *number = standard;
    if (!find(m, name, &v, full)) return standard < 0 ? qn_error_set(error, QN_FORMAT, "the key %s is missing", full) : QN_OK;
    if (v.type == QN_KEY_ARRAY) {
        if (qn_file_item(&v, (uint64_t)layer, &item) != QN_OK)
            return qn_error_set(error, QN_FORMAT, "%s has %llu items, layer %d has none", full, (unsigned long long)v.count,
                                layer);
        v = item;
    }
    if (v.type == QN_KEY_STRING || v.type == QN_KEY_ARRAY) return qn_error_set(error, QN_FORMAT, "%s is not a number", full);
    if (v.integer < 0 || v.integer > MOST_WIDTH) return qn_error_set(error, QN_FORMAT, "%s is %lld", full, (long long)v.integer);
    *number = (int32_t)v.integer;
    return QN_OK;
}

static int has_rope(const qn_model *m) {
    return m->arch->rope != QN_ROPE_NONE && (!m->arch->rope_layers || m->arch->rope_layers == m->h.n_layers);
}

/* By the row's period, the file's, or what the file says of each layer. */
static qn_status read_window(const qn_model *m, int layer, qn_layer_shape *l, qn_error *error) {
    char full[160];
    qn_file_value v;
    int32_t period = m->arch->window_period, yes;
    if (m->h.window <= 0 || period <= 0) return QN_OK;
    if (find(m, "attention.sliding_window_pattern", &v, full)) {
        QN_TRY(of_layer(m, "attention.sliding_window_pattern", layer, 0, &yes, error));
        if (v.type == QN_KEY_ARRAY) {
            l->windowed = yes != 0;
            return QN_OK;
        }
        period = yes;
    }
    int full_first = (m->arch->has & QN_HAS_FULL_FIRST) != 0;
    l->windowed = (uint8_t)(period == 0 || (full_first ? layer % period != 0 : layer % period < period - 1));
    return QN_OK;
}

static qn_status read_layers(qn_model *m, qn_error *error) {
    qn_hparams *h = &m->h;
    h->layers = qn_arena_alloc(&m->arena, (size_t)h->n_layers, sizeof *h->layers);
    if (!h->layers) return qn_error_set(error, QN_NO_MEMORY, "no memory for %d layers", h->n_layers);
    for (int i = 0; i < h->n_layers; i++) {
        qn_layer_shape *l = &h->layers[i];
        QN_TRY(of_layer(m, "attention.head_count", i, -1, &l->heads, error));
        QN_TRY(of_layer(m, "attention.head_count_kv", i, l->heads, &l->heads_kv, error));
        QN_TRY(of_layer(m, "feed_forward_length", i, 0, &l->ff, error));
        if (l->heads < 1 || l->heads_kv < 1 || l->heads % l->heads_kv)
            return qn_error_set(error, QN_FORMAT, "layer %d: %d heads cannot share %d of keys", i, l->heads, l->heads_kv);
        QN_TRY(read_window(m, i, l, error));
        l->roped = (uint8_t)(has_rope(m) && (!m->arch->no_rope_step || (i + 1) % m->arch->no_rope_step));
        if (m->arch->has & QN_HAS_ROPE_BY_WINDOW && h->window > 0) l->roped = has_rope(m) && l->windowed;
    }
    return QN_OK;
}

/* The scale of YaRN's attention; its op multiplies by 1 + 0.1 ln(1 / scale) once more, which is taken off here. */
static qn_status read_yarn(qn_model *m, float factor, qn_error *error) {
    qn_hparams *h = &m->h;
    char full[160];
    qn_file_value v;
    float scaling_factor, log_multiplier;
    QN_TRY(real(m, "rope.scaling.yarn_ext_factor", -1, &h->yarn_ext, error));
    QN_TRY(real(m, "rope.scaling.yarn_attn_factor", 1, &h->yarn_attn, error));
    QN_TRY(real(m, "rope.scaling.yarn_beta_fast", 32, &h->yarn_fast, error));
    QN_TRY(real(m, "rope.scaling.yarn_beta_slow", 1, &h->yarn_slow, error));
    QN_TRY(real(m, "rope.scaling.attn_factor", 1, &scaling_factor, error));
    QN_TRY(real(m, "rope.scaling.yarn_log_multiplier", 0, &log_multiplier, error));
    if (m->arch->latent) log_multiplier /= 0.1f; /* as these files have it */
    int is_yarn = find(m, "rope.scaling.type", &v, full) && v.type == QN_KEY_STRING && v.bytes == 4 &&
                  memcmp(v.text, "yarn", 4) == 0;
    int is_none = find(m, "rope.scaling.type", &v, full) && v.type == QN_KEY_STRING && v.bytes == 4 &&
                  memcmp(v.text, "none", 4) == 0;
    if (is_none) h->rope_scale = 1;
    if (h->yarn_ext < 0) h->yarn_ext = is_yarn ? 1 : 0;
    if (h->yarn_ext != 0 && factor > 1) {
        float grown = 1 + 0.1f * logf(factor);
        float other = 1 + 0.1f * log_multiplier * logf(factor);
        float wanted = log_multiplier == 0 ? grown : m->arch->even_yarn && log_multiplier != 1 ? 1 : grown / other;
        h->yarn_attn = wanted / grown;
    }
    h->yarn_attn *= scaling_factor;
    return QN_OK;
}

static qn_status read_sections(qn_model *m, qn_error *error) {
    char full[160];
    qn_file_value v;
    int32_t width;
    if (!(m->arch->has & QN_HAS_ROPE_SECTIONS) || !find(m, "rope.dimension_sections", &v, full) || v.type != QN_KEY_ARRAY)
        return QN_OK;
    for (uint64_t i = 0; i < v.count && i < 4; i++) {
        QN_TRY(of_layer(m, "rope.dimension_sections", (int)i, 0, &width, error));
        m->h.rope_sections |= width > 0;
    }
    return QN_OK;
}

static qn_status read_rope(qn_model *m, qn_error *error) {
    qn_hparams *h = &m->h;
    float factor, linear;
    QN_TRY(small(m, "rope.dimension_count", h->key_length, 0, h->key_length, &h->n_rot, error));
    if (h->n_rot % 2) return qn_error_set(error, QN_FORMAT, "rope.dimension_count is %d, which is odd", h->n_rot);
    QN_TRY(real(m, "rope.freq_base", 10000, &h->rope_base, error));
    QN_TRY(real(m, "rope.freq_base_swa", m->arch->window_base > 0 ? m->arch->window_base : h->rope_base, &h->rope_base_window,
                error));
    QN_TRY(real(m, "rope.scale_linear", 0, &linear, error));
    QN_TRY(real(m, "rope.scaling.factor", linear, &factor, error));
    if (h->rope_base <= 0 || h->rope_base_window <= 0 || factor < 0)
        return qn_error_set(error, QN_FORMAT, "the keys of rope are not positive");
    h->rope_scale = factor == 0 ? 1 : 1 / factor;
    if (m->arch->has & QN_HAS_ROPE_ALPHA) {
        float alpha;
        QN_TRY(real(m, "rope.scaling.alpha", 0, &alpha, error));
        if (alpha > 0 && h->key_length > 2) h->rope_base *= powf(alpha, (float)h->key_length / (float)(h->key_length - 2));
    }
    QN_TRY(read_sections(m, error));
    QN_TRY(whole(m, "rope.scaling.original_context_length", h->context, 0, INT32_MAX, &h->rope_context, error));
    return read_yarn(m, factor, error);
}

static qn_status read_switch(const qn_model *m, const char *name, int standard, int32_t *on, qn_error *error) {
    return small(m, name, standard, 0, 1, on, error);
}

static qn_status read_scales(qn_model *m, qn_error *error) {
    qn_hparams *h = &m->h;
    uint32_t has = m->arch->has;
    QN_TRY(only_if(has & QN_HAS_SOFTCAP, m, "attn_logit_softcapping", &h->softcap, error));
    QN_TRY(only_if(has & QN_HAS_FINAL_SOFTCAP, m, "final_logit_softcapping", &h->final_softcap, error));
    QN_TRY(only_if(has & QN_HAS_ALIBI, m, "attention.max_alibi_bias", &h->alibi, error));
    if (m->arch->alibi > 0 && (!m->arch->alibi_layers || m->arch->alibi_layers == h->n_layers)) h->alibi = m->arch->alibi;
    QN_TRY(only_if(has & QN_HAS_CLAMP, m, "attention.clamp_kqv", &h->clamp, error));
    int mini = (has & QN_HAS_MINI_SCALES) != 0;
    if (has & QN_HAS_SCALE_KEYS) {
        QN_TRY(real(m, "embedding_scale", mini ? 12 : 0, &h->embed_scale, error));
        QN_TRY(real(m, "residual_scale", mini ? 1.4f / sqrtf((float)h->n_layers) : 0, &h->residual_scale, error));
    }
    if (has & (QN_HAS_SCALE_KEYS | QN_HAS_LOGIT_MULTIPLIER))
        QN_TRY(real(m, "logit_scale", mini ? 256 / (float)h->n_embd : 0, &h->logit_scale, error));
    QN_TRY(only_if(has & QN_HAS_TEMPERATURE, m, "attention.temperature_scale", &h->temperature, error));
    QN_TRY(real(m, "attention.temperature_length", 0, &h->temperature_length, error));
    if (!m->arch->latent) h->temperature_length = (float)h->rope_context;
    if (m->arch->warm > 0 && h->window > 0) {
        h->temperature = m->arch->warm;
        h->temperature_length = (float)h->window;
        h->temperature_ahead = 1;
    }
    if (h->temperature != 0 && h->temperature_length < 1)
        return qn_error_set(error, QN_FORMAT, "queries grow with their position, and nothing tells how fast");
    QN_TRY(real(m, "attention.scale", 0, &h->attention_scale, error));
    if (h->softcap < 0 || h->final_softcap < 0 || h->alibi < 0 || h->clamp < 0)
        return qn_error_set(error, QN_FORMAT, "a softcap, alibi bias or clamp is negative");
    if (has & QN_HAS_EMBED_SQRT) h->embed_scale = sqrtf((float)h->n_embd);
    if (h->attention_scale == 0) {
        int wide = m->arch->wide_scale_layers && m->arch->wide_scale_layers == h->n_layers;
        float width = wide ? (float)h->n_embd / (float)h->layers[0].heads : (float)h->key_length;
        h->attention_scale = 1 / (has & QN_HAS_LINEAR_SCALE ? width : sqrtf(width));
    }
    return QN_OK;
}

/* Keys and values in short. The scale of scores takes back what YaRN's rope puts on a part of the key only. */
static qn_status read_latent(qn_model *m, qn_error *error) {
    qn_hparams *h = &m->h;
    float log_multiplier;
    if (!m->arch->latent) return QN_OK;
    QN_TRY(small(m, "attention.kv_lora_rank", -1, 1, MOST_WIDTH, &h->latent, error));
    QN_TRY(small(m, "attention.q_lora_rank", 0, 0, MOST_WIDTH, &h->latent_q, error));
    QN_TRY(small(m, "attention.key_length_mla", 0, 0, MOST_WIDTH, &h->head_length, error));
    QN_TRY(small(m, "attention.value_length_mla", 0, 0, MOST_WIDTH, &h->head_values, error));
    h->absorbed = h->head_length > 0 && h->head_values > 0;
    if (!h->absorbed) h->head_length = h->key_length;
    if (h->n_rot < 2 || h->n_rot >= h->head_length)
        return qn_error_set(error, QN_FORMAT, "%d numbers of a key of %d cannot turn", h->n_rot, h->head_length);
    if (h->absorbed && (h->key_length != h->latent + h->n_rot || h->value_length != h->latent))
        return qn_error_set(error, QN_FORMAT, "keys of %d and values of %d are not made of %d and %d", h->key_length,
                            h->value_length, h->latent, h->n_rot);
    QN_TRY(real(m, "rope.scaling.yarn_log_multiplier", 0, &log_multiplier, error));
    float grown = 0.1f * logf(1 / h->rope_scale), scale = h->yarn_attn * (1 + grown) * (1 + log_multiplier / 0.1f * grown);
    h->attention_scale = scale * scale / sqrtf((float)h->head_length);
    return QN_OK;
}

static qn_status read_gating(qn_model *m, qn_error *error) {
    qn_hparams *h = &m->h;
    qn_experts_kind kind = m->arch->experts;
    int by_keys = kind == QN_EXPERTS_BY_KEYS || kind == QN_EXPERTS_BY_KEYS_SUM;
    int32_t gating = QN_GATING_NONE;
    h->gating = kind == QN_EXPERTS_SOFTMAX_CHOSEN ? QN_GATING_CHOSEN : QN_GATING_SOFTMAX;
    h->gating_sum = kind == QN_EXPERTS_NORMALISED || kind == QN_EXPERTS_BY_KEYS_SUM;
    if (!by_keys) return QN_OK;
    QN_TRY(small(m, "expert_gating_func", 0, 0, 255, &gating, error));
    if (gating > QN_GATING_CHOSEN)
        return qn_error_set(error, QN_UNSUPPORTED, "%s.expert_gating_func is %d, of which nothing is known", m->arch->name,
                            gating);
    h->gating = gating ? (qn_gating)gating : m->arch->gating ? m->arch->gating : QN_GATING_SOFTMAX;
    if (kind == QN_EXPERTS_BY_KEYS) QN_TRY(small(m, "expert_weights_norm", 0, 0, 1, &h->gating_sum, error));
    QN_TRY(small(m, "expert_group_count", 0, 0, 4096, &h->n_groups, error));
    QN_TRY(small(m, "expert_group_used_count", 0, 0, 4096, &h->groups_used, error));
    if (h->n_groups > 1 && (h->n_experts % h->n_groups || h->n_experts / h->n_groups < 2 || h->groups_used < 1 ||
                            h->groups_used > h->n_groups || h->n_experts / h->n_groups * h->groups_used < h->n_used))
        return qn_error_set(error, QN_FORMAT, "%d of %d experts cannot be chosen from %d of %d groups", h->n_used, h->n_experts,
                            h->groups_used, h->n_groups);
    return QN_OK;
}

static qn_status read_experts(qn_model *m, qn_error *error) {
    qn_hparams *h = &m->h;
    QN_TRY(small(m, "expert_count", 0, 0, 4096, &h->n_experts, error));
    QN_TRY(small(m, "expert_used_count", 0, 0, h->n_experts, &h->n_used, error));
    QN_TRY(small(m, "expert_feed_forward_length", 0, 0, MOST_WIDTH, &h->expert_ff, error));
    QN_TRY(small(m, "expert_shared_feed_forward_length", 0, 0, MOST_WIDTH, &h->shared_ff, error));
    QN_TRY(real(m, "expert_weights_scale", 0, &h->expert_scale, error));
    QN_TRY(read_gating(m, error));
    if (h->n_experts && m->arch->experts == QN_EXPERTS_NONE)
        return qn_error_set(error, QN_UNSUPPORTED, "%s with experts is not known", m->arch->name);
    if (h->n_experts && !h->n_used) return qn_error_set(error, QN_FORMAT, "there are %d experts and none is used", h->n_experts);
    if (h->n_experts && !h->expert_ff) h->expert_ff = h->layers[0].ff;
    return QN_OK;
}

static qn_status read_vocab_size(qn_model *m, qn_error *error) {
    qn_file_value v;
    char full[160];
    qn_file_tensor t;
    if (find(m, "vocab_size", &v, full) && v.type != QN_KEY_STRING && v.type != QN_KEY_ARRAY && v.integer > 0 &&
        v.integer < INT32_MAX) {
        m->h.n_vocab = (int32_t)v.integer;
    } else if (qn_model_key(m, "tokenizer.ggml.tokens", &v) && v.type == QN_KEY_ARRAY && v.count > 0 && v.count < INT32_MAX) {
        m->h.n_vocab = (int32_t)v.count;
    }
    /* The table itself knows best: vocabularies are padded. */
    if (qn_file_entry(m->file, qn_file_find(m->file, QN_FILE_TENSORS, "token_embd.weight"), &t) == QN_OK && t.tensor.rank == 2 &&
        t.tensor.shape[0] > 0 && t.tensor.shape[0] < INT32_MAX)
        m->h.n_vocab = (int32_t)t.tensor.shape[0];
    return m->h.n_vocab > 0 ? QN_OK : qn_error_set(error, QN_FORMAT, "nothing in the file tells the size of its vocabulary");
}

qn_status qn_model_read_hparams(qn_model *m, qn_error *error) {
    qn_hparams *h = &m->h;
    int rms = m->arch->norm == QN_NORM_RMS;
    int32_t ahead;
    QN_TRY(small(m, "block_count", -1, 1, MOST_LAYERS, &h->n_layers, error));
    QN_TRY(small(m, "nextn_predict_layers", 0, 0, h->n_layers - 1, &ahead, error));
    h->n_layers -= ahead; /* layers that guess further tokens come last, and are not run */
    QN_TRY(small(m, "embedding_length", -1, 1, MOST_WIDTH, &h->n_embd, error));
    QN_TRY(whole(m, "context_length", -1, 1, INT32_MAX, &h->context, error));
    QN_TRY(real(m, rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", 1e-5f, &h->eps, error));
    if (h->eps < 0) return qn_error_set(error, QN_FORMAT, "the epsilon of norms is negative");
    QN_TRY(small(m, "attention.sliding_window", m->arch->window, 0, INT32_MAX, &h->window, error));
    if (!m->arch->window_period || (m->arch->window_layers && m->arch->window_layers != h->n_layers)) h->window = 0;
    QN_TRY(read_layers(m, error));
    int32_t heads = h->layers[0].heads;
    QN_TRY(small(m, "attention.key_length", h->n_embd / heads, 1, MOST_WIDTH, &h->key_length, error));
    QN_TRY(small(m, "attention.value_length", h->n_embd / heads, 1, MOST_WIDTH, &h->value_length, error));
    QN_TRY(read_rope(m, error));
    QN_TRY(read_scales(m, error));
    QN_TRY(read_latent(m, error));
    QN_TRY(read_experts(m, error));
    if (m->arch->residual == QN_RESIDUAL_BY_KEY) QN_TRY(read_switch(m, "use_parallel_residual", 1, &h->parallel, error));
    if (m->arch->has & QN_HAS_ROPE_SWITCH) {
        int32_t on;
        QN_TRY(read_switch(m, "rope.scaling.finetuned", 1, &on, error));
        for (int i = 0; i < h->n_layers && !on; i++) h->layers[i].roped = 0;
    }
    return read_vocab_size(m, error);
}
