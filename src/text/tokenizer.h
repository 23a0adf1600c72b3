/* What the files of the tokenizer share. A model kind is a row of token_models.def with two functions: `prepare` builds its
 * tables when the vocabulary is in place, `encode` turns one stretch of text (no special tokens in it) into ids. */
#ifndef QN_TEXT_TOKENIZER_H
#define QN_TEXT_TOKENIZER_H

#include <pthread.h>

#include <quern/text.h>

#include "base/arena.h"
#include "base/heap.h"
#include "text/token_map.h"
#include "text/token_trie.h"

enum { TOKEN_MOST_BYTES = 4096 }; /* of one token; what a text can cost is its length times this, at the very worst */

typedef struct token_data {
    token_span piece; /* the bytes it stands for */
    float score;
    uint8_t type, ends;
    uint8_t strip_left, strip_right; /* as a special token it takes the white space beside it along */
} token_data;

/* Flags of a pre kind, rows of token_pre.def. */
enum {
    PRE_WHOLE = 1u,     /* a piece that is a token is that token, whatever the merges say */
    PRE_BOS = 2u,       /* add BOS unless the vocabulary says otherwise */
    PRE_SEP = 4u,       /* the same for SEP */
    PRE_EXACT = 8u,     /* texts are shown as they are, not cleaned */
    PRE_RAW = 16u,      /* tokens are written in plain UTF-8, not in the letters that stand for bytes */
    PRE_ESCAPE = 32u,   /* spaces are U+2581 in the vocabulary */
    PRE_NO_BOS = 64u,   /* the BOS of the model kind is not one here */
    PRE_NEWLINES = 128u /* PRE_WHOLE for pieces of newlines */
};

typedef struct pre_stage {
    const char *regex;
    int threes; /* what matches is cut into threes, counted from its end */
} pre_stage;

enum { PRE_MOST_STAGES = 6 };

typedef struct pre_kind {
    const char *name;
    uint32_t flags;
    pre_stage stage[PRE_MOST_STAGES]; /* each cuts the pieces of the one before into what matches and what lies between */
} pre_kind;

typedef struct token_out { /* ids so far */
    int32_t *ids;
    size_t room, count;
    int failed; /* no memory: ids are missing */
} token_out;

typedef struct token_model token_model;

struct qn_tokenizer {
    qn_arena arena;
    const token_model *model;
    const pre_kind *pre; /* NULL for models without */
    void **regex;        /* compiled stages of pre; see token_pre.c */
    int32_t n_tokens;
    size_t longest; /* bytes of the longest token */
    token_data *token;
    token_texts
        texts; /* by number: what encoding looks up, tokens first, then what only merges know; the pool holds pieces too */
    token_map by_text;
    token_trie special;          /* tokens that are found in the text before anything else */
    uint8_t starts_special[256]; /* 1: of a user-defined token; 2: of one that only QN_ENCODE_SPECIAL sees */
    int32_t byte_token[256];     /* -1: none */
    pair_map merges;             /* gpt2 */
    int32_t byte_text[256];      /* gpt2: the text of one byte */
    token_trie words;            /* bert and t5 */
    const uint8_t *charsmap;     /* t5 */
    size_t charsmap_bytes;
    double unknown_score;
    int falls_to_bytes; /* t5: there is a token for each byte, for what is unknown */
    int32_t bos, eos, eot, eom, unk, sep, pad, mask, newline;
    int32_t add_bos, add_eos, add_sep, add_space_prefix, remove_extra_whitespaces, lowercase, strip_accents, clean_spaces;
    int32_t ignored_ids;
    pthread_mutex_t lock; /* over what is made when a grammar first asks */
    int has_lock;
    token_trie *pieces; /* of every token that is no control token, for grammars */
};

struct token_model {
    const char *name;
    qn_status (*prepare)(qn_tokenizer *t, const qn_vocab_source *source, qn_error *error);
    qn_status (*encode)(const qn_tokenizer *t, qn_text text, int first, token_out *out, qn_error *error);
    int32_t bos, eos, unk, sep, pad, mask; /* unless the vocabulary says otherwise */
    int8_t add_bos, add_eos, add_sep, add_space_prefix;
    int8_t clean_spaces;
    int8_t strips_first; /* the first space of a decoded text is the tokenizer's even without add_space_prefix */
    const char *pre;     /* of models that have one: the kind where the source names none; "" for models without */
};

extern const token_model qn_text_models[];
extern const size_t qn_text_n_models;

static inline qn_text token_piece(const qn_tokenizer *t, int32_t id) {
    return (qn_text){t->texts.pool.at + t->token[id].piece.at, t->token[id].piece.n};
}

/* token_pre.c: pieces of a text, in order. */
typedef qn_status (*pre_piece_fn)(void *user, const char *at, size_t n);
const pre_kind *qn_text_pre_find(const char *name);
qn_status qn_text_pre_compile(qn_tokenizer *t, qn_error *error);
void qn_text_pre_release(qn_tokenizer *t);
qn_status qn_text_pre_split(const qn_tokenizer *t, qn_text text, pre_piece_fn piece, void *user, qn_error *error);

/* byte_letters.c: the letters in which gpt2 vocabularies write bytes. out has room for text.n bytes; 0: text holds other
 * characters. */
int qn_text_letters_to_bytes(qn_text text, char *out, size_t *n);

/* vocab_special.c: ids, ends and strips that follow from names of tokens and models; and the tree of special tokens. */
qn_status qn_text_vocab_special(qn_tokenizer *t, const qn_vocab_source *source, qn_error *error);

void qn_text_emit(token_out *out, int32_t id);
/* Bytes no token covers: byte tokens, else the unknown token once, else U+FFFD for a stray byte, else a sentence. */
qn_status qn_text_emit_bytes(const qn_tokenizer *t, const char *at, size_t n, token_out *out, qn_error *error);

/* A copy with every space written as U+2581, behind one more if `prefix`; qn_heap_free() it. NULL: no memory. */
char *qn_text_escape_spaces(qn_text text, int prefix, size_t *n);

#define QN_TEXT_SPACE "\xE2\x96\x81" /* U+2581, which stands for a space in SentencePiece and WordPiece vocabularies */

#endif
