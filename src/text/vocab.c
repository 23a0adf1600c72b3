/* Making a tokenizer: the vocabulary is copied and checked, its texts are entered in the map, the model kind builds its
 * tables. */
#include <stdlib.h>

#include "text/tokenizer.h"
#include "base/heap.h"

#define MODEL_FUNCTIONS(kind)                                                                            \
    qn_status qn_text_##kind##_prepare(qn_tokenizer *t, const qn_vocab_source *source, qn_error *error); \
    qn_status qn_text_##kind##_encode(const qn_tokenizer *t, qn_text text, int first, token_out *out, qn_error *error)
MODEL_FUNCTIONS(spm);
MODEL_FUNCTIONS(bpe);
MODEL_FUNCTIONS(wordpiece);
MODEL_FUNCTIONS(unigram);

static const token_model MODELS[] = {
#define QN_TOKEN_MODEL(name, kind, ...) {name, qn_text_##kind##_prepare, qn_text_##kind##_encode, __VA_ARGS__},
#include "text/token_models.def"
#undef QN_TOKEN_MODEL
};

enum { MOST_TOKENS = 1 << 24 };

static qn_status no_memory(qn_error *error) { return qn_error_set(error, QN_NO_MEMORY, "no memory for the tokenizer"); }

/* "llama, gpt2, bert": for sentences that say what is known. */
static void list_models(char *out, size_t room) {
    size_t n = 0;
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++) {
        size_t size = strlen(MODELS[i].name);
        if (n + size + 3 > room) break;
        if (i) memcpy(out + n, ", ", 2), n += 2;
        memcpy(out + n, MODELS[i].name, size);
        n += size;
    }
    out[n] = 0;
}

static qn_status choose_kind(qn_tokenizer *t, const qn_vocab_source *source, qn_error *error) {
    char known[128];
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++)
        if (strcmp(MODELS[i].name, source->model) == 0) t->model = &MODELS[i];
    if (!t->model) {
        list_models(known, sizeof known);
        return qn_error_set(error, QN_UNSUPPORTED, "tokenizer model '%.64s' is not known; known are: %s", source->model, known);
    }
    if (!*t->model->pre) return QN_OK;
    const char *pre = source->pre && *source->pre && strcmp(t->model->pre, "default") == 0 ? source->pre : t->model->pre;
    t->pre = qn_text_pre_find(pre);
    if (!t->pre) return qn_error_set(error, QN_UNSUPPORTED, "pre-tokenizer '%.64s' is not known", pre);
    return QN_OK;
}

static qn_status check_source(const qn_vocab_source *s, qn_error *error) {
    if (s->size != sizeof *s)
        return qn_error_set(error, QN_ARGUMENT, "vocabulary source of %u bytes, expected %zu", s->size, sizeof *s);
    if (!s->model) return qn_error_set(error, QN_ARGUMENT, "vocabulary source without a model name");
    if (s->n_tokens < 1 || s->n_tokens > MOST_TOKENS)
        return qn_error_set(error, QN_FORMAT, "a vocabulary of %d tokens; at least 1 and at most %d are possible", s->n_tokens,
                            MOST_TOKENS);
    if (!s->tokens || (s->n_merges && !s->merges) || (s->charsmap_bytes && !s->charsmap))
        return qn_error_set(error, QN_ARGUMENT, "vocabulary source with counts but without what they count");
    for (int32_t i = 0; i < s->n_tokens; i++) {
        if (s->tokens[i].length > TOKEN_MOST_BYTES || (s->tokens[i].length && !s->tokens[i].at))
            return qn_error_set(error, QN_FORMAT, "token %d has %zu bytes; at most %d are possible", i, s->tokens[i].length,
                                TOKEN_MOST_BYTES);
        if (s->scores && !(s->scores[i] > -INFINITY && s->scores[i] < INFINITY))
            return qn_error_set(error, QN_FORMAT, "token %d has a score that is no number", i);
    }
    return QN_OK;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte that "<0x0A>" names, or -1. */
static int named_byte(qn_text text) {
    if (text.length != 6 || memcmp(text.at, "<0x", 3) != 0 || text.at[5] != '>') return -1;
    int high = hex_digit(text.at[3]), low = hex_digit(text.at[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static size_t unescape_spaces(qn_text text, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < text.length;) {
        if (text.length - i >= 3 && memcmp(text.at + i, QN_TEXT_SPACE, 3) == 0) {
            out[n++] = ' ';
            i += 3;
        } else {
            out[n++] = text.at[i++];
        }
    }
    return n;
}

/* What a token stands for: special tokens for what is written, byte tokens for their byte, others for what their alphabet
 * says. */
static qn_status piece_of(const qn_tokenizer *t, int32_t id, qn_text text, int type, char *piece, size_t *n, qn_error *error) {
    int letters = t->pre && !(t->pre->flags & PRE_RAW);
    if (type == QN_TOKEN_BYTE) {
        int byte = named_byte(text);
        if (byte < 0)
            return qn_error_set(error, QN_FORMAT, "token %d, '%.*s', should name a byte and does not", id, (int)text.length,
                                text.at);
        *piece = (char)byte;
        *n = 1;
    } else if (type != QN_TOKEN_NORMAL && type != QN_TOKEN_UNUSED) {
        memcpy(piece, text.at, *n = text.length);
    } else if (!letters) {
        *n = unescape_spaces(text, piece);
    } else if (!qn_text_letters_to_bytes(text, piece, n)) {
        memcpy(piece, text.at, *n = text.length);
    }
    return QN_OK;
}

static qn_status add_token(qn_tokenizer *t, const qn_vocab_source *s, int32_t id, qn_error *error) {
    char key[TOKEN_MOST_BYTES + 1], piece[TOKEN_MOST_BYTES + 1];
    qn_text text = s->tokens[id];
    int type = s->types && s->types[id] >= QN_TOKEN_NORMAL && s->types[id] <= QN_TOKEN_BYTE ? s->types[id] : QN_TOKEN_NORMAL;
    size_t n_key = text.length, n_piece = 0;
    if (text.length == 0) text.at = "";
    qn_status status = piece_of(t, id, text, type, piece, &n_piece, error);
    if (status != QN_OK) return status;
    memcpy(key, text.at, text.length);
    if (t->pre && !(t->pre->flags & PRE_RAW)) {
        int spelt = qn_text_letters_to_bytes(text, key, &n_key);
        /* No text becomes a token in other letters; and a token that stands for its letters does not stand for their bytes. */
        if (!spelt ||
            (type != QN_TOKEN_NORMAL && type != QN_TOKEN_UNUSED && (n_key != n_piece || memcmp(key, piece, n_key) != 0)))
            n_key = 0;
    }
    if (qn_text_texts_add(&t->texts, &t->arena, key, n_key) < 0 || t->texts.pool.n > UINT32_MAX - TOKEN_MOST_BYTES ||
        !QN_VEC_ROOM(&t->arena, &t->texts.pool, n_piece))
        return no_memory(error);
    token_data *d = &t->token[id];
    d->piece = t->texts.span.at[id];
    if (n_piece != n_key || memcmp(piece, key, n_key) != 0) {
        d->piece = (token_span){(uint32_t)t->texts.pool.n, (uint32_t)n_piece};
        memcpy(t->texts.pool.at + t->texts.pool.n, piece, n_piece);
        t->texts.pool.n += n_piece;
    }
    d->type = (uint8_t)type;
    d->score = s->scores ? s->scores[id] : 0;
    if (n_piece > t->longest) t->longest = n_piece;
    if (n_key > t->longest) t->longest = n_key;
    return QN_OK;
}

/* Bytes: tokens that name them, else tokens that are them. */
static void find_bytes(qn_tokenizer *t) {
    for (int b = 0; b < 256; b++) t->byte_token[b] = -1;
    for (int32_t id = 0; id < t->n_tokens; id++)
        if (t->token[id].type == QN_TOKEN_BYTE) t->byte_token[(unsigned char)*token_piece(t, id).at] = id;
    for (int b = 0; b < 256; b++) {
        char name[6] = {'<', '0', 'x', "0123456789ABCDEF"[b >> 4], "0123456789ABCDEF"[b & 15], '>'}, byte = (char)b;
        if (t->byte_token[b] < 0) t->byte_token[b] = qn_text_map_find(&t->by_text, name, sizeof name);
        if (t->byte_token[b] < 0 || (t->pre && !(t->pre->flags & PRE_RAW)))
            t->byte_token[b] = qn_text_map_find(&t->by_text, &byte, 1);
    }
}

static qn_status add_tokens(qn_tokenizer *t, const qn_vocab_source *s, qn_error *error) {
    t->n_tokens = s->n_tokens;
    t->token = qn_arena_alloc(&t->arena, (size_t)s->n_tokens, sizeof *t->token);
    if (!t->token || s->n_merges > MOST_TOKENS || !QN_VEC_ROOM(&t->arena, &t->texts.pool, 1)) return no_memory(error);
    if (!qn_text_map_init(&t->by_text, &t->arena, (size_t)s->n_tokens + 3 * s->n_merges, &t->texts)) return no_memory(error);
    for (int32_t id = 0; id < s->n_tokens; id++) {
        qn_status status = add_token(t, s, id, error);
        if (status != QN_OK) return status;
        if (t->texts.span.at[id].n && qn_text_map_add(&t->by_text, id) < 0)
            return qn_error_set(error, QN_FORMAT, "the texts of more than %d tokens collide, as if made to", TOKEN_MAP_PROBES);
    }
    find_bytes(t);
    return QN_OK;
}

static void find_newline(qn_tokenizer *t) {
    token_out out = {0};
    t->newline = -1;
    if (t->model->encode(t, (qn_text){"\n", 1}, 0, &out, NULL) == QN_OK && out.count == 1 && out.ids[0] != t->unk)
        t->newline = out.ids[0];
    qn_heap_free(out.ids);
}

qn_status qn_tokenizer_create(const qn_vocab_source *source, qn_tokenizer **tokenizer, qn_error *error) {
    if (!source || !tokenizer)
        return qn_error_set(error, QN_ARGUMENT, "qn_tokenizer_create needs a source and a place for the tokenizer");
    *tokenizer = NULL;
    qn_status status = check_source(source, error);
    if (status != QN_OK) return status;
    qn_tokenizer *t = qn_heap_zeroed(1, sizeof *t);
    if (!t) return no_memory(error);
    qn_arena_init(&t->arena, 0);
    t->has_lock = pthread_mutex_init(&t->lock, NULL) == 0;
    status = t->has_lock ? choose_kind(t, source, error) : no_memory(error);
    if (status == QN_OK) status = add_tokens(t, source, error);
    if (status == QN_OK) status = qn_text_vocab_special(t, source, error);
    if (status == QN_OK) status = t->model->prepare(t, source, error);
    if (status == QN_OK) find_newline(t);
    if (status == QN_OK) *tokenizer = t;
    else qn_tokenizer_destroy(t);
    return status;
}

void qn_tokenizer_destroy(qn_tokenizer *t) {
    if (!t) return;
    qn_text_pre_release(t);
    if (t->has_lock) pthread_mutex_destroy(&t->lock);
    qn_arena_destroy(&t->arena);
    qn_heap_free(t);
}

qn_status qn_tokenizer_describe(const qn_tokenizer *t, qn_tokenizer_info *info) {
    if (!t || !info || info->size != sizeof *info) return QN_ARGUMENT;
    *info = (qn_tokenizer_info){.size = sizeof *info,
                                .n_tokens = t->n_tokens,
                                .model = t->model->name,
                                .pre = t->pre ? t->pre->name : "",
                                .bos = t->bos,
                                .eos = t->eos,
                                .eot = t->eot,
                                .eom = t->eom,
                                .unk = t->unk,
                                .sep = t->sep,
                                .pad = t->pad,
                                .mask = t->mask,
                                .newline = t->newline,
                                .add_bos = t->add_bos,
                                .add_eos = t->add_eos,
                                .add_sep = t->add_sep,
                                .add_space_prefix = t->add_space_prefix,
                                .clean_spaces = t->clean_spaces,
                                .ignored_ids = t->ignored_ids,
                                .longest = t->longest};
    return QN_OK;
}

qn_status qn_tokenizer_token(const qn_tokenizer *t, int32_t id, qn_token_info *info) {
    if (!t || !info || info->size != sizeof *info || id < 0 || id >= t->n_tokens) return QN_ARGUMENT;
    const token_data *d = &t->token[id];
    *info = (qn_token_info){sizeof *info, d->type, token_piece(t, id), d->score, d->ends};
    return QN_OK;
}
