/* Language models: a GGUF file becomes tokens, numbers and text.
 *
 *     qn_model *model;
 *     qn_session *session;
 *     if (qn_model_open("model.gguf", NULL, &model, &error) != QN_OK) return complain(error.text);
 *     if (qn_session_create(model, NULL, &session, &error) != QN_OK) return complain(error.text);
 *     qn_generate_options want = qn_generate_options_default();
 *     want.prompt = (qn_text){"Once upon a time", 16};
 *     qn_generate(session, &want, print_piece, NULL, NULL, &error);
 *
 * The same tokens give the same bits for any number of threads, however a prompt is cut into runs, and whatever else is in the
 * batch.
 *
 * A session belongs to one thread at a time, but for qn_session_cancel; sessions of one model may run at once on different threads. A
 * model never changes after it is opened, and may be asked by any of them. */
#include <quern/quern.h> /* which includes this file at its end: either way in, everything is there, in order */
#ifndef QUERN_MODEL_H
#define QUERN_MODEL_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qn_model qn_model;

/* In the flags of the options: only the tokenizer is wanted, and any architecture will do. Such a model has no sessions. */
enum { QN_MODEL_VOCABULARY = 1u << 16 };

/* Opens a model; weights stay in the file, mapped, until they are used. UNSUPPORTED names an architecture that is not known, and
 * those that are; FORMAT names the key or tensor that is missing, and the shape a tensor should have. options may be NULL. A mapped
 * file that another program shortens raises SIGBUS in whoever runs the model; QN_FILE_NO_MAP in the options reads it instead. */
QN_API qn_status qn_model_open(const char *path, const qn_file_options *options, qn_model **model, qn_error *error);
QN_API void qn_model_close(qn_model *model); /* NULL is fine; its sessions must be gone */

typedef struct qn_model_info {
    uint32_t size;            /* sizeof(qn_model_info), set by the caller */
    uint32_t is_encoder;      /* gives an embedding instead of logits: bert and its kin */
    const char *architecture; /* "llama" */
    qn_text name;             /* general.name; empty when there is none */
    qn_text chat_template;    /* tokenizer.chat_template, likewise */
    int32_t n_layers, n_embd, n_vocab, n_heads, n_heads_kv, n_ff, n_experts, n_experts_used;
    int64_t context;     /* tokens it was trained for */
    uint64_t n_params;   /* numbers in all tensors */
    uint64_t bytes;      /* of all tensors */
    const qn_file *file; /* what it was read from */
} qn_model_info;
QN_API qn_status qn_model_describe(const qn_model *model, qn_model_info *info);
/* The model's tokenizer, which belongs to it; an error when the file has none that can be used. */
QN_API qn_status qn_model_tokenizer(qn_model *model, const qn_tokenizer **tokenizer, qn_error *error);

/* ---- Sessions: a plan for the model, and what it remembers of one or several sequences. */

typedef struct qn_session qn_session;

enum { QN_DEFAULT_CONTEXT = 4096 }; /* most tokens in a sequence, where nobody asks for another number */

typedef struct qn_session_options {
    uint32_t size;            /* sizeof(qn_session_options) */
    uint32_t flags;           /* QN_SESSION_* */
    int64_t context;          /* most tokens in a sequence; 0: what the model was trained for, but at most QN_DEFAULT_CONTEXT */
    int32_t sequences;        /* how many are kept at once; 0: one */
    int32_t batch;            /* most tokens of a sequence in one run of the plan; 0: 512 */
    qn_dtype k, v;            /* of the cache: f32, f16, bf16, q8_0, q4_0 and so on; 0: f16 */
    uint64_t memory_cap;      /* 0: none */
    struct qn_device *device; /* NULL: the CPU */
    qn_context *run;          /* brings the pool and the recorder; NULL: one thread. Must outlive the session */
} qn_session_options;
enum {
    QN_SESSION_F32_CACHE = 1u, /* k and v of 0 mean f32 */
    QN_SESSION_TIMED = 2u      /* QN_PLAN_TIMED */
};

QN_API qn_status qn_session_create(qn_model *model, const qn_session_options *options, qn_session **session, qn_error *error);
QN_API void qn_session_destroy(qn_session *session);
/* The plan, to describe its memory and steps. It belongs to the session. */
QN_API const qn_plan *qn_session_plan(const qn_session *session);

/* Tokens that follow in one sequence. */
typedef struct qn_session_part {
    int32_t sequence; /* from 0 */
    int32_t n;
    const int32_t *ids;
    uint32_t all; /* 1: results for every token; 0: for the last one */
} qn_session_part;
/* Runs the model over the parts, each a different sequence. INVALID, with nothing changed, for an id that is not in the vocabulary
 * or a sequence that would become longer than its context. */
QN_API qn_status qn_session_run(qn_session *session, const qn_session_part *parts, int n_parts, qn_error *error);
/* What the last run gave for a token of a part: n_vocab logits, or n_embd numbers of an encoder. token counts from the first
 * (-1: the last); NULL when the run gave nothing for it. Good until the next run. */
QN_API const float *qn_session_result(const qn_session *session, int part, int32_t token);
/* Tokens a sequence holds; and forgets all but the first so many. */
QN_API int64_t qn_session_length(const qn_session *session, int32_t sequence);
QN_API qn_status qn_session_cut(qn_session *session, int32_t sequence, int64_t length, qn_error *error);
/* From any thread: the run or generation in progress ends with QN_CANCELLED. */
QN_API void qn_session_cancel(qn_session *session);

/* A sequence to a file and back, so that a long prompt is read once. Loading fails, with nothing changed, when the file belongs to
 * another model or cache, and when its tokens are not the first of ids (n ids; NULL: whatever they are). */
QN_API qn_status qn_session_save(qn_session *session, int32_t sequence, const char *path, qn_error *error);
QN_API qn_status qn_session_load(qn_session *session, int32_t sequence, const char *path, const int32_t *ids, int64_t n,
                                 qn_error *error);

/* ---- Text */

/* The sampler is told the prompt and each token that follows: qn_sampler_reset before each new answer it serves. */
typedef struct qn_generate_options {
    uint32_t size;        /* sizeof(qn_generate_options) */
    int32_t sequence;     /* which of the session's sequences goes on */
    qn_text prompt;       /* what comes first; may be empty when the sequence holds tokens */
    int32_t most;         /* tokens to make; -1: until the model ends or the context is full */
    uint32_t flags;       /* QN_GENERATE_* */
    qn_sampler *sampler;  /* picks; NULL: the likeliest */
    const qn_text *stops; /* texts that end it, and are not handed over */
    int32_t n_stops;
} qn_generate_options;
enum {
    QN_GENERATE_SPECIAL = 1u,    /* tokens such as <|im_start|> written out in the prompt are those tokens */
    QN_GENERATE_IGNORE_END = 2u, /* goes on behind the token that ends a text */
    QN_GENERATE_NO_MODEL = 4u,   /* no BOS in front, whatever the vocabulary says */
    QN_GENERATE_WHOLE = 8u       /* the prompt is the text from its beginning: what the sequence holds of it already is not run
                                    again, what it holds beyond is forgotten */
};
static inline qn_generate_options qn_generate_options_default(void) {
    qn_generate_options o;
    memset(&o, 0, sizeof o);
    o.size = (uint32_t)sizeof o;
    o.most = -1;
    return o;
}

typedef enum qn_generate_end { QN_END_TOKEN, QN_END_STOP, QN_END_MOST, QN_END_CONTEXT, QN_END_CALLER } qn_generate_end;
typedef struct qn_generate_result {
    uint32_t size; /* sizeof(qn_generate_result), set by the caller */
    qn_generate_end end;
    int32_t n_prompt, n_made;                      /* tokens */
    uint64_t prompt_nanoseconds, made_nanoseconds; /* the first token counts to the prompt */
} qn_generate_result;

/* A piece of text, never cut inside UTF-8; anything but QN_OK ends the generation (and is not an error). */
typedef qn_status (*qn_piece_fn)(void *user, const char *text, size_t length, int32_t id);
/* result may be NULL. */
QN_API qn_status qn_generate(qn_session *session, const qn_generate_options *options, qn_piece_fn piece, void *user,
                             qn_generate_result *result, qn_error *error);

#ifdef __cplusplus
}
#endif
#endif
