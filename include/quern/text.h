/* Quern's text side: tokenizers, samplers, grammars and chat templates. It knows bytes and numbers, no tensors.
 *
 *     qn_vocab_source source = qn_vocab_source_default();      filled from the metadata of a model file
 *     qn_tokenizer_create(&source, &tokenizer, &error);
 *     qn_tokenizer_encode(tokenizer, text, strlen(text), QN_ENCODE_MODEL, ids, room, &n, &error);
 *     qn_sampler_create(&options, &sampler, &error);
 *     qn_decode_state state = {{0}};
 *     for (;;) {
 *         ... logits of the next token ...
 *         qn_sampler_pick(sampler, logits, n_tokens, &id, &error);
 *         qn_sampler_accept(sampler, id, 0, &error);
 *         if (qn_tokenizer_token(tokenizer, id, &info) != QN_OK || info.ends) break;
 *         qn_tokenizer_decode(tokenizer, &id, 1, 0, &state, piece, sizeof piece, &length, &error);
 *     }
 *
 * Every byte string is a legal text, template, grammar and schema: it is taken or refused with a sentence, in bounded time and
 * memory. A tokenizer never changes after it is made and may be used by any number of threads at once; a sampler belongs to one
 * thread at a time. Token ids are int32_t; -1 means none. */
#include <quern/quern.h> /* which includes this file at its end: either way in, everything is there, in order */
#ifndef QUERN_TEXT_H
#define QUERN_TEXT_H

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Tokenizers --------------------------------------------------------------------------------------------------- */

typedef struct qn_text { /* bytes that end where length says; zeros inside are bytes like others */
    const char *at;
    size_t length;
} qn_text;

/* Types of tokens, with the numbers of tokenizer.ggml.token_type. */
enum {
    QN_TOKEN_NORMAL = 1,
    QN_TOKEN_UNKNOWN = 2,
    QN_TOKEN_CONTROL = 3,
    QN_TOKEN_USER_DEFINED = 4,
    QN_TOKEN_UNUSED = 5,
    QN_TOKEN_BYTE = 6
};

/* A vocabulary as a file tells it; the key each field comes from is named. Everything is copied. Start from
 * qn_vocab_source_default(), in which ids and switches are -1: what the model kind has by itself. */
typedef struct qn_vocab_source {
    uint32_t size;    /* sizeof(qn_vocab_source) */
    int32_t n_tokens; /* how many of tokens, scores and types */
    const char
        *model; /* tokenizer.ggml.model: "llama" (SentencePiece BPE), "gpt2" (byte BPE), "bert" (WordPiece), "t5" (unigram) */
    const char *pre;  /* tokenizer.ggml.pre, for gpt2; NULL: "default" */
    const char *name; /* general.name; some models are known by it to strip spaces around their special tokens; may be NULL */
    const qn_text *tokens; /* tokenizer.ggml.tokens */
    const float *scores;   /* tokenizer.ggml.scores; NULL: all 0 */
    const int32_t *types;  /* tokenizer.ggml.token_type; NULL: all normal */
    const qn_text *merges; /* tokenizer.ggml.merges: "left right", best first */
    size_t n_merges;
    const void *charsmap; /* tokenizer.ggml.precompiled_charsmap; may be NULL */
    size_t charsmap_bytes;
    int32_t bos, eos, eot, eom, unk, sep, pad, mask; /* tokenizer.ggml.*_token_id */
    int32_t add_bos, add_eos, add_sep;               /* tokenizer.ggml.add_bos_token and so on: 0, 1 or -1 */
    int32_t add_space_prefix, remove_extra_whitespaces, lowercase, strip_accents;
} qn_vocab_source;

static inline qn_vocab_source qn_vocab_source_default(void) {
    qn_vocab_source s;
    memset(&s, 0, sizeof s);
    s.size = (uint32_t)sizeof s;
    s.bos = s.eos = s.eot = s.eom = s.unk = s.sep = s.pad = s.mask = -1;
    s.add_bos = s.add_eos = s.add_sep = -1;
    s.add_space_prefix = s.remove_extra_whitespaces = s.lowercase = s.strip_accents = -1;
    return s;
}

typedef struct qn_tokenizer qn_tokenizer;

/* UNSUPPORTED names a model or pre kind that is not known (and those that are), or a library this build lacks; FORMAT says
 * what in the vocabulary cannot be: a merge without its space, a byte token that names no byte. */
QN_API qn_status qn_tokenizer_create(const qn_vocab_source *source, qn_tokenizer **tokenizer, qn_error *error);
QN_API void qn_tokenizer_destroy(qn_tokenizer *tokenizer);

typedef struct qn_tokenizer_info {
    uint32_t size; /* set by the caller to sizeof(qn_tokenizer_info) */
    int32_t n_tokens;
    const char *model, *pre;                         /* of the source; pre is "" where it plays no part */
    int32_t bos, eos, eot, eom, unk, sep, pad, mask; /* with what the model kind and well-known names add; -1: none */
    int32_t newline;                                 /* the token of "\n", if one token is */
    int32_t add_bos, add_eos, add_sep, add_space_prefix;
    int32_t clean_spaces; /* this vocabulary's texts are usually shown with QN_DECODE_CLEAN */
    int32_t ignored_ids;  /* special ids of the source that lie outside the vocabulary and were taken as not given */
    size_t longest;       /* bytes of the longest token */
} qn_tokenizer_info;
QN_API qn_status qn_tokenizer_describe(const qn_tokenizer *tokenizer, qn_tokenizer_info *info);

typedef struct qn_token_info {
    uint32_t size; /* set by the caller to sizeof(qn_token_info) */
    int32_t type;  /* QN_TOKEN_* */
    qn_text piece; /* the bytes it stands for, which need not be whole characters; lives as long as the tokenizer */
    float score;
    int32_t ends; /* generation ends with it: end of text, of turn, of message */
} qn_token_info;
/* ARGUMENT when there is no such id. */
QN_API qn_status qn_tokenizer_token(const qn_tokenizer *tokenizer, int32_t id, qn_token_info *info);

enum {
    QN_ENCODE_MODEL = 1u,  /* put the model's own tokens around the text (BOS, EOS, SEP), as the vocabulary wants */
    QN_ENCODE_SPECIAL = 2u /* control tokens written out in the text are those tokens; without, they are text */
};

/* Any bytes, also invalid UTF-8, which survives in every model that has tokens for all bytes (in others it becomes U+FFFD or the
 * unknown token). *count is how many ids the text gives; when that is more than room, the answer is WORKSPACE and ids is not
 * touched. length + 16 ids are enough for almost every text. */
QN_API qn_status qn_tokenizer_encode(const qn_tokenizer *tokenizer, const char *text, size_t length, uint32_t flags, int32_t *ids,
                                     size_t room, size_t *count, qn_error *error);

enum {
    QN_DECODE_SPECIAL = 1u,  /* show control tokens; without, they are left out */
    QN_DECODE_CONTINUE = 2u, /* the text goes on from somewhere else: its first space is not the one the tokenizer added */
    QN_DECODE_CLEAN = 4u,    /* no space before . , ! ? n't 's 'm 've 're, as tokenizers of words like it */
    QN_DECODE_END = 8u       /* no more ids follow: what was held back comes out, whole character or not */
};

/* What a text that comes piece by piece has held back. All zero at its start; copy it to go back. */
typedef struct qn_decode_state {
    unsigned char held[16];
} qn_decode_state;

/* Bytes of the ids. With a state, characters that later ids complete are held back until then, so that what comes out is never
 * cut inside UTF-8 (bytes that can be no character come out as they are); state NULL means the ids are all there is. *length
 * is how many bytes there are; when that is more than room, the answer is WORKSPACE and neither text nor state is touched. */
QN_API qn_status qn_tokenizer_decode(const qn_tokenizer *tokenizer, const int32_t *ids, size_t n, uint32_t flags,
                                     qn_decode_state *state, char *text, size_t room, size_t *length, qn_error *error);

/* ---- Samplers ----------------------------------------------------------------------------------------------------- */

typedef struct qn_logit_bias {
    int32_t id;
    float bias; /* added to its logit; -INFINITY forbids it */
} qn_logit_bias;

typedef enum qn_grammar_kind { QN_GRAMMAR_NONE, QN_GRAMMAR_GBNF, QN_GRAMMAR_JSON_SCHEMA } qn_grammar_kind;

typedef struct qn_sampler_options {
    uint32_t size; /* sizeof(qn_sampler_options) */
    qn_grammar_kind grammar_kind;
#define QN_SAMPLER_F32(name, standard, low, high, meaning) float name;
#define QN_SAMPLER_I32(name, standard, low, high, meaning) int32_t name;
#include <quern/samplers.def>
#undef QN_SAMPLER_F32
#undef QN_SAMPLER_I32
    uint64_t seed;             /* same seed, same logits, same tokens: on every machine */
    const char *order;         /* stages joined by ';', or their letters; NULL: as in samplers.def */
    const qn_logit_bias *bias; /* applied before everything else */
    size_t n_bias;
    const qn_text *dry_breakers; /* texts that end a repeat; NULL: newline : " * */
    size_t n_dry_breakers;
    const qn_text *grammar;        /* what grammar_kind says: the text must follow it from its first byte on */
    const qn_tokenizer *tokenizer; /* needed for a grammar and for dry breakers; must outlive the sampler */
} qn_sampler_options;

static inline qn_sampler_options qn_sampler_options_default(void) {
    qn_sampler_options o;
    memset(&o, 0, sizeof o);
    o.size = (uint32_t)sizeof o;
#define QN_SAMPLER_F32(name, standard, low, high, meaning) o.name = standard;
#define QN_SAMPLER_I32(name, standard, low, high, meaning) o.name = standard;
#include <quern/samplers.def>
#undef QN_SAMPLER_F32
#undef QN_SAMPLER_I32
    return o;
}

typedef struct qn_sampler qn_sampler;

/* A sampler and all it remembers: history, random numbers, place in the grammar. */
QN_API qn_status qn_sampler_create(const qn_sampler_options *options, qn_sampler **sampler, qn_error *error);
QN_API void qn_sampler_destroy(qn_sampler *sampler);

/* A new answer: the grammar begins at its first byte, and what penalties, dry and mirostat know of the text before is forgotten, so
 * that a prompt which is accepted whole again counts once. The random numbers go on where they are: a conversation does not draw
 * the same ones for each answer, and its seed still tells all of it. When it fails, nothing has changed. */
QN_API qn_status qn_sampler_reset(qn_sampler *sampler, qn_error *error);

/* One token for n logits (n tokens of the vocabulary), which are not changed. INVALID when nothing is left to pick: every
 * logit is -INFINITY or NaN, or the grammar allows no token. */
QN_API qn_status qn_sampler_pick(qn_sampler *sampler, const float *logits, size_t n, int32_t *id, qn_error *error);

/* The token that really follows, picked or not (tokens of the prompt too, for the penalties): history and grammar go on by it.
 * INVALID, and nothing changes, when the grammar forbids it. QN_ACCEPT_PROMPT leaves the grammar where it is. */
enum { QN_ACCEPT_PROMPT = 1u };
QN_API qn_status qn_sampler_accept(qn_sampler *sampler, int32_t id, uint32_t flags, qn_error *error);

typedef struct qn_candidate {
    int32_t id;
    float logit, p; /* after the chain; p sums to 1 over all that were left */
} qn_candidate;
/* What the last pick chose from, likeliest first: writes at most room of them and returns how many there were. */
QN_API size_t qn_sampler_candidates(qn_sampler *sampler, qn_candidate *candidates, size_t room);

/* ---- Chat templates ----------------------------------------------------------------------------------------------- */

typedef qn_status (*qn_text_write_fn)(void *user, const char *text, size_t length);

typedef struct qn_chat_limits { /* 0: the number behind */
    uint32_t size;              /* sizeof(qn_chat_limits) */
    uint32_t depth;  /* 256: nested expressions, blocks and calls; each one more may take 2 KiB beside QN_STACK_BYTES */
    uint64_t steps;  /* 10 million: nodes evaluated, and pieces of 64 bytes that are looked through */
    uint64_t memory; /* 256 MiB */
    uint64_t output; /* 64 MiB */
    int64_t now;     /* seconds since 1970 for strftime_now, told as in UTC; 0: this machine's clock at the call, in UTC */
} qn_chat_limits;

/* Renders a Jinja template (the subset that published chat templates use; docs/text.md lists it). context is a JSON
 * object; its members are the template's variables: {"messages": [{"role": "user", "content": "..."}],
 * "add_generation_prompt": true, "bos_token": "<s>"}. No file, network or environment is in reach of a template, and of the time only
 * what strftime_now tells: a template that asks for the date gives the same text on another day only when limits->now says which one.
 * limits may be NULL. write is called with the whole text once, after everything succeeded. INVALID with line and sentence for a
 * template or context that cannot be rendered; USER with the template's own words when it calls raise_exception. */
QN_API qn_status qn_chat_render(qn_text chat_template, qn_text context, const qn_chat_limits *limits, qn_text_write_fn write,
                                void *user, qn_error *error);

#ifdef __cplusplus
}
#endif
#endif
