/* What a model is inside: a row of archs.def, the numbers its file gives, and the file. */
#ifndef QN_MODEL_MODEL_H
#define QN_MODEL_MODEL_H

#include <quern/model.h>

#include "base/arena.h"
#include "op/op.h"

typedef enum qn_norm_kind { QN_NORM_RMS, QN_NORM_LAYER, QN_NORM_BARE } qn_norm_kind; /* bare: no weight and no bias */
typedef enum qn_rope_kind { QN_ROPE_NONE, QN_ROPE_NORMAL, QN_ROPE_NEOX } qn_rope_kind;
typedef enum qn_act_kind { QN_ACT_SILU, QN_ACT_GELU, QN_ACT_RELU, QN_ACT_RELU_SQUARED, QN_ACT_OAI } qn_act_kind;
typedef enum qn_gate_kind {
    QN_GATE_SPLIT,  /* two matrices, ffn_gate and ffn_up */
    QN_GATE_HALVES, /* one, whose first half is the gate */
    QN_GATE_NONE
} qn_gate_kind;

typedef enum qn_residual_kind {
    QN_RESIDUAL_SERIAL,     /* x + attention, then + ffn of that */
    QN_RESIDUAL_SHARED,     /* x + attention + ffn, both of the same norm of x */
    QN_RESIDUAL_BY_KEY,     /* use_parallel_residual: x + attention + ffn, the ffn of a norm of x of its own; else serial */
    QN_RESIDUAL_BY_NORM,    /* serial; a layer without ffn_norm feeds the norm of attention to the ffn */
    QN_RESIDUAL_NORM_AFTER, /* norm(x + attention), then norm(+ ffn): encoders */
    QN_RESIDUAL_POST_ONLY   /* x + norm(attention), then + norm(ffn), without norms before */
} qn_residual_kind;

typedef enum qn_experts_kind {
    QN_EXPERTS_NONE,
    QN_EXPERTS_PLAIN,          /* softmax over all, the chosen keep their weights */
    QN_EXPERTS_NORMALISED,     /* the same, made to sum to 1 */
    QN_EXPERTS_SOFTMAX_CHOSEN, /* the chosen by logit, softmax over those */
    QN_EXPERTS_BY_KEYS,        /* expert_gating_func says of which of these, expert_weights_norm whether made to sum to 1 */
    QN_EXPERTS_BY_KEYS_SUM     /* the same, always made to sum to 1 */
} qn_experts_kind;

/* Values of expert_gating_func: how logits become weights. */
typedef enum qn_gating { QN_GATING_NONE, QN_GATING_SOFTMAX, QN_GATING_SIGMOID, QN_GATING_CHOSEN } qn_gating;

enum {
    QN_HAS_POSITIONS = 1u << 0,        /* a learned vector per position */
    QN_HAS_POSITIONS_MAYBE = 1u << 1,  /* when the file has them */
    QN_HAS_ROPE_FACTORS = 1u << 2,     /* rope_freqs, or rope_factors_short and _long by the context */
    QN_HAS_ROPE_SWITCH = 1u << 3,      /* rope.scaling.finetuned false: no rope */
    QN_HAS_FFN_SCALES = 1u << 4,       /* ffn_*.scale count */
    QN_HAS_QK_NORM = 1u << 5,          /* attn_q_norm and attn_k_norm count */
    QN_HAS_EMBED_SQRT = 1u << 6,       /* embeddings times the root of their width */
    QN_HAS_POST_NORMS = 1u << 7,       /* post_attention_norm, post_ffw_norm */
    QN_HAS_POST_NORM_AS_FFN = 1u << 8, /* post_attention_norm is what others call ffn_norm */
    QN_HAS_SOFTCAP = 1u << 9,
    QN_HAS_FINAL_SOFTCAP = 1u << 10,
    QN_HAS_ALIBI = 1u << 11,            /* attention.max_alibi_bias */
    QN_HAS_CLAMP = 1u << 12,            /* attention.clamp_kqv */
    QN_HAS_SCALE_KEYS = 1u << 13,       /* embedding_scale, residual_scale, attention.scale, logit_scale (divides) */
    QN_HAS_LOGIT_MULTIPLIER = 1u << 14, /* logit_scale (multiplies) */
    QN_HAS_SINKS = 1u << 15,
    QN_HAS_TOKEN_TYPES = 1u << 16,
    QN_HAS_EMBED_NORM = 1u << 17,     /* token_embd_norm */
    QN_IS_ENCODER = 1u << 18,         /* every token sees every other, and no logits */
    QN_HAS_QK_NORM_LATE = 1u << 19,   /* those norms come behind the rope */
    QN_HAS_ROPE_BY_WINDOW = 1u << 20, /* where some layers have a window, only those have rope */
    QN_HAS_ROPE_SECTIONS = 1u << 21,  /* rope.dimension_sections: pairs lie half a head apart; one position serves all sections */
    QN_HAS_ROPE_ALPHA = 1u << 22,     /* rope.scaling.alpha stretches the base */
    QN_HAS_LINEAR_SCALE = 1u << 23,   /* scores are divided by the width of a head, not its root */
    QN_HAS_MINI_SCALES = 1u << 24,    /* QN_HAS_SCALE_KEYS, and what MiniCPM has without those keys */
    QN_HAS_TEMPERATURE = 1u << 25,    /* attention.temperature_scale: queries grow with their position */
    QN_HAS_FULL_FIRST = 1u << 26,     /* of window_period layers the first has no window, not the last */
    QN_HAS_OUT_NORM_AS_FFN = 1u << 27, /* attn_output_norm is what others call ffn_norm */
    QN_HAS_EXPERTS_BESIDE = 1u << 28,  /* experts of ffn_norm_exps of the layer's input, beside a network */
    QN_LACKS_BIASES = 1u << 29,        /* those of attn_output, the networks and the head do not count, if there are any */
    QN_LACKS_QKV_EXTRAS = 1u << 30     /* likewise biases and scales of Q, K and V */
};

typedef struct qn_arch {
    const char *name;
    qn_norm_kind norm;
    qn_rope_kind rope;
    qn_act_kind act;
    qn_gate_kind gate;
    qn_residual_kind residual;
    qn_experts_kind experts;
    uint32_t has;
    int32_t window_period;     /* of so many layers all but the last have a sliding window; 0: none has */
    int32_t window;            /* when the file names none */
    int32_t window_layers;     /* only a model of so many layers has windows; 0: any */
    int32_t rope_layers;       /* likewise rope */
    int32_t alibi_layers;      /* likewise alibi */
    qn_gating gating;          /* when the file names none */
    int32_t chunked;           /* a window is a block of positions, not the last so many */
    float warm;                /* temperature of layers without rope, from position window - 1 on */
    int32_t bare_qk_norm;      /* layers with rope normalise Q and K behind it, without weights; not with 128 experts */
    int32_t weighs_first;      /* experts' weights come before their networks */
    int32_t early_router;      /* experts are chosen by what comes into the layer */
    int32_t even_yarn;         /* both of YaRN's factors of attention are one number, unless it is 1 */
    int32_t latent;            /* keys and values are made of something shorter: attention.kv_lora_rank */
    float window_base;         /* rope base of layers with a window, when the file names none; 0: that of the others */
    int32_t wide_scale_layers; /* a model of so many layers scales scores by the width of a head, n_embd / n_heads */
    int32_t no_rope_step;      /* every layer whose number (from 1) is a multiple has no rope */
    float alibi;
} qn_arch;

const qn_arch *qn_model_arch_find(qn_text name);
const char *qn_model_arch_name(int number); /* from 0; NULL past the last */

/* One layer's own numbers. */
typedef struct qn_layer_shape {
    int32_t heads, heads_kv, ff;
    uint8_t windowed, roped;
} qn_layer_shape;

typedef struct qn_hparams {
    int32_t n_layers, n_embd, n_vocab, key_length, value_length, n_rot;
    int64_t context;
    float eps;
    float rope_base, rope_base_window, rope_scale, yarn_ext, yarn_attn, yarn_fast, yarn_slow;
    int64_t rope_context; /* what the model was trained for before its rope was scaled */
    int32_t window;
    float softcap, final_softcap, alibi, clamp, embed_scale, residual_scale, attention_scale, logit_scale;
    int32_t parallel;
    int32_t n_experts, n_used, expert_ff, shared_ff;
    float expert_scale;
    qn_gating gating;
    int32_t n_groups, groups_used;                            /* of experts, when there is more than one */
    int32_t gating_sum;                                       /* weights of the chosen are made to sum to 1 */
    float temperature, temperature_length, temperature_ahead; /* ahead: added to a position */
    int32_t latent,
        latent_q; /* width of what is kept instead of keys and values, 0: those are; and of what queries are made of */
    int32_t head_length, head_values; /* of a head then: its query and key, its value */
    int32_t absorbed;                 /* a row of the cache is the latent itself */
    int32_t rope_sections;            /* there are such */
    qn_layer_shape *layers;
} qn_hparams;

struct qn_model {
    qn_arena arena;
    qn_file *file;
    const qn_arch *arch;
    qn_hparams h;
    qn_text name, chat_template;
    _Atomic(qn_tokenizer *) tokenizer; /* made when the first of its sessions asks, which may be on any thread */
    uint64_t n_params, bytes;
};

/* hparams.c: what the keys say, each checked. */
qn_status qn_model_read_hparams(qn_model *m, qn_error *error);
/* vocab_file.c: the tokenizer the file describes. */
qn_status qn_model_read_tokenizer(const qn_model *m, qn_tokenizer **tokenizer, qn_error *error);
/* A key of the file; 0 when there is none. */
int qn_model_key(const qn_model *m, const char *name, qn_file_value *value);

/* ---- build.c: the graph. Symbols: sequences in the run, all their tokens together, keys looked at, the number behind that of the
 * last sequence; and rows of results wanted. Inputs: tokens, positions, cells [all], mask (and mask_window) [sequences, 1, all /
 * sequences, keys], wanted [rows], last [end] (never read: it tells the plan the number). That the end is counted and not the
 * beginning lets all symbols be at their bounds together: every sequence, from the first on. Outputs: result, [rows, n_vocab] or [rows, n_embd]. Params have the
 * names of the file's tensors; the cache's are cache.k.N and cache.v.N, [rows, heads * length]. */
typedef struct qn_model_shape {
    int64_t context; /* cells of a sequence, a multiple of `step` */
    int64_t step;    /* keys come in multiples of it */
    int32_t sequences, batch;
    qn_dtype k, v;
} qn_model_shape;

qn_status qn_model_build(const qn_model *m, const qn_model_shape *shape, qn_graph **graph, qn_error *error);
/* Rows of a layer's cache. */
int64_t qn_model_cache_rows(const qn_model_shape *shape);

#endif
