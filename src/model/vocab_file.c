/* The tokenizer that the keys of a GGUF file describe. */
#include "base/heap.h"
#include "model/model.h"

/* Arrays of the file as the tokenizer takes them; they live until it is made. */
typedef struct vocab_arrays {
    qn_arena arena; /* of its texts: a model may be asked by several threads at once, and stays as it is */
    qn_text *tokens, *merges;
    float *scores;
    int32_t *types;
} vocab_arrays;

static qn_status texts(const qn_model *m, const char *name, qn_text **list, uint64_t *count, qn_error *error) {
    qn_file_value v, item;
    *count = 0;
    if (!qn_model_key(m, name, &v)) return QN_OK;
    if (v.type != QN_KEY_ARRAY || v.item != QN_KEY_STRING)
        return qn_error_set(error, QN_FORMAT, "%s is not a list of texts", name);
    if (v.count >= INT32_MAX) return qn_error_set(error, QN_FORMAT, "%s has too many items", name);
    *list = qn_heap_zeroed(v.count + 1, sizeof **list);
    if (!*list) return qn_error_set(error, QN_NO_MEMORY, "no memory for %llu texts", (unsigned long long)v.count);
    for (uint64_t i = 0; i < v.count; i++) {
        if (qn_file_item(&v, i, &item) != QN_OK)
            return qn_error_set(error, QN_FORMAT, "%s: item %llu cannot be read", name, (unsigned long long)i);
        (*list)[i] = (qn_text){item.text, (size_t)item.bytes};
    }
    *count = v.count;
    return QN_OK;
}

/* Scores and types, one for each token. */
static qn_status numbers(const qn_model *m, const char *name, uint64_t n, float **reals, int32_t **wholes, qn_error *error) {
    qn_file_value v, item;
    if (!qn_model_key(m, name, &v)) return QN_OK;
    if (v.type != QN_KEY_ARRAY || v.item == QN_KEY_STRING || v.item == QN_KEY_ARRAY || v.count != n)
        return qn_error_set(error, QN_FORMAT, "%s is not a list of %llu numbers", name, (unsigned long long)n);
    void *list = qn_heap_zeroed(n + 1, 4);
    if (reals) *reals = list;
    else *wholes = list;
    if (!list) return qn_error_set(error, QN_NO_MEMORY, "no memory for %llu numbers", (unsigned long long)n);
    for (uint64_t i = 0; i < n && qn_file_item(&v, i, &item) == QN_OK; i++) {
        if (reals) (*reals)[i] = (float)item.number;
        else (*wholes)[i] = item.integer >= INT32_MIN && item.integer <= INT32_MAX ? (int32_t)item.integer : 0;
    }
    return QN_OK;
}

static void special(const qn_model *m, const char *name, int32_t *id) {
    qn_file_value v;
    if (qn_model_key(m, name, &v) && v.type != QN_KEY_STRING && v.type != QN_KEY_ARRAY && v.integer >= 0 && v.integer < INT32_MAX)
        *id = (int32_t)v.integer;
}

static void specials(const qn_model *m, qn_vocab_source *s) {
    special(m, "tokenizer.ggml.bos_token_id", &s->bos);
    special(m, "tokenizer.ggml.eos_token_id", &s->eos);
    special(m, "tokenizer.ggml.eot_token_id", &s->eot);
    special(m, "tokenizer.ggml.eom_token_id", &s->eom);
    special(m, "tokenizer.ggml.unknown_token_id", &s->unk);
    special(m, "tokenizer.ggml.seperator_token_id", &s->sep); /* as files spell it */
    special(m, "tokenizer.ggml.padding_token_id", &s->pad);
    special(m, "tokenizer.ggml.mask_token_id", &s->mask);
    special(m, "tokenizer.ggml.add_bos_token", &s->add_bos);
    special(m, "tokenizer.ggml.add_eos_token", &s->add_eos);
    special(m, "tokenizer.ggml.add_sep_token", &s->add_sep);
    special(m, "tokenizer.ggml.add_space_prefix", &s->add_space_prefix);
    special(m, "tokenizer.ggml.remove_extra_whitespaces", &s->remove_extra_whitespaces);
    special(m, "tokenizer.ggml.normalizer.lowercase", &s->lowercase);
}

/* A text with a zero behind it; NULL when there is none. */
static qn_status text_of(const qn_model *m, qn_arena *arena, const char *name, const char **text, qn_error *error) {
    qn_file_value v;
    *text = NULL;
    if (!qn_model_key(m, name, &v) || v.type != QN_KEY_STRING || v.bytes > 4096) return QN_OK;
    char *copy = qn_arena_alloc(arena, (size_t)v.bytes + 1, 1);
    if (!copy) return qn_error_set(error, QN_NO_MEMORY, "no memory for %s", name);
    if (v.bytes) memcpy(copy, v.text, (size_t)v.bytes);
    *text = copy;
    return QN_OK;
}

static qn_status gather(const qn_model *m, vocab_arrays *a, qn_vocab_source *s, qn_error *error) {
    uint64_t n_tokens, n_merges;
    qn_file_value v;
    QN_TRY(text_of(m, &a->arena, "tokenizer.ggml.model", &s->model, error));
    QN_TRY(text_of(m, &a->arena, "tokenizer.ggml.pre", &s->pre, error));
    QN_TRY(text_of(m, &a->arena, "general.name", &s->name, error));
    if (!s->model) return qn_error_set(error, QN_UNSUPPORTED, "the file has no tokenizer (tokenizer.ggml.model)");
    QN_TRY(texts(m, "tokenizer.ggml.tokens", &a->tokens, &n_tokens, error));
    if (!n_tokens) return qn_error_set(error, QN_UNSUPPORTED, "the file's tokenizer, '%s', has no tokens", s->model);
    QN_TRY(texts(m, "tokenizer.ggml.merges", &a->merges, &n_merges, error));
    QN_TRY(numbers(m, "tokenizer.ggml.scores", n_tokens, &a->scores, NULL, error));
    QN_TRY(numbers(m, "tokenizer.ggml.token_type", n_tokens, NULL, &a->types, error));
    s->n_tokens = (int32_t)n_tokens;
    s->tokens = a->tokens;
    s->scores = a->scores;
    s->types = a->types;
    s->merges = a->merges;
    s->n_merges = (size_t)n_merges;
    if (qn_model_key(m, "tokenizer.ggml.precompiled_charsmap", &v) && v.type == QN_KEY_ARRAY &&
        (v.item == QN_KEY_U8 || v.item == QN_KEY_I8)) {
        s->charsmap = v.text;
        s->charsmap_bytes = (size_t)v.bytes;
    }
    specials(m, s);
    return QN_OK;
}

qn_status qn_model_read_tokenizer(const qn_model *m, qn_tokenizer **tokenizer, qn_error *error) {
    vocab_arrays a = {.tokens = NULL};
    qn_arena_init(&a.arena, 0);
    qn_vocab_source source = qn_vocab_source_default();
    qn_status status = gather(m, &a, &source, error);
    if (status == QN_OK) status = qn_tokenizer_create(&source, tokenizer, error);
    qn_heap_free(a.tokens);
    qn_heap_free(a.merges);
    qn_heap_free(a.scores);
    qn_heap_free(a.types);
    qn_arena_destroy(&a.arena);
    return status;
}
