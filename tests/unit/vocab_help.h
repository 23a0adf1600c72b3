/* Vocabularies for tests: those of GGUF files, read through the public reader, and small ones made of lists. */
#ifndef QN_TESTS_VOCAB_HELP_H
#define QN_TESTS_VOCAB_HELP_H

#include <stdio.h>
#include <stdlib.h>

#include <quern/format.h>
#include <quern/text.h>

typedef struct file_vocab {
    qn_file *file;
    qn_vocab_source source;
    char model[64], pre[64], name[128];
    qn_text *tokens, *merges;
    float *scores;
    int32_t *types;
} file_vocab;

static inline int vocab_value(const qn_file *file, const char *key, qn_file_value *v) {
    return qn_file_key(file, qn_file_find(file, QN_FILE_KEYS, key), v) == QN_OK;
}

static inline int32_t vocab_number(const qn_file *file, const char *key) {
    qn_file_value v;
    return vocab_value(file, key, &v) ? (int32_t)v.integer : -1;
}

static inline const char *vocab_string(const qn_file *file, const char *key, char *out, size_t room) {
    qn_file_value v;
    if (!vocab_value(file, key, &v) || v.type != QN_KEY_STRING || v.bytes >= room) return NULL;
    memcpy(out, v.text, v.bytes);
    out[v.bytes] = 0;
    return out;
}

static inline qn_text *vocab_texts(const qn_file *file, const char *key, size_t *n) {
    qn_file_value list, item;
    *n = 0;
    if (!vocab_value(file, key, &list)) return NULL;
    qn_text *texts = calloc(list.count + 1, sizeof *texts);
    for (; texts && *n < list.count && qn_file_item(&list, *n, &item) == QN_OK; ++*n)
        texts[*n] = (qn_text){item.text, item.bytes};
    return texts;
}

static inline void vocab_close(file_vocab *v) {
    free(v->tokens);
    free(v->merges);
    free(v->scores);
    free(v->types);
    qn_file_close(v->file);
}

/* Fills v->source from a GGUF file; 0 when the file has no vocabulary. Close it in any case. */
static inline int vocab_open(file_vocab *v, const char *path) {
    qn_error error = {QN_OK, ""};
    qn_file_value list, item;
    size_t n = 0;
    memset(v, 0, sizeof *v);
    if (qn_file_open(path, NULL, &v->file, &error) != QN_OK) {
        fprintf(stderr, "%s: %s\n", path, error.text);
        return 0;
    }
    const qn_file *f = v->file;
    qn_vocab_source *s = &v->source;
    *s = qn_vocab_source_default();
    s->model = vocab_string(f, "tokenizer.ggml.model", v->model, sizeof v->model);
    s->pre = vocab_string(f, "tokenizer.ggml.pre", v->pre, sizeof v->pre);
    s->name = vocab_string(f, "general.name", v->name, sizeof v->name);
    s->tokens = v->tokens = vocab_texts(f, "tokenizer.ggml.tokens", &n);
    s->n_tokens = (int32_t)n;
    s->merges = v->merges = vocab_texts(f, "tokenizer.ggml.merges", &s->n_merges);
    if (vocab_value(f, "tokenizer.ggml.scores", &list) && list.count == n && (v->scores = calloc(n + 1, sizeof *v->scores)))
        for (size_t i = 0; i < n && qn_file_item(&list, i, &item) == QN_OK; i++) v->scores[i] = (float)item.number;
    if (vocab_value(f, "tokenizer.ggml.token_type", &list) && list.count == n && (v->types = calloc(n + 1, sizeof *v->types)))
        for (size_t i = 0; i < n && qn_file_item(&list, i, &item) == QN_OK; i++) v->types[i] = (int32_t)item.integer;
    s->scores = v->scores;
    s->types = v->types;
    if (vocab_value(f, "tokenizer.ggml.precompiled_charsmap", &list)) s->charsmap = list.text, s->charsmap_bytes = list.bytes;
    s->bos = vocab_number(f, "tokenizer.ggml.bos_token_id");
    s->eos = vocab_number(f, "tokenizer.ggml.eos_token_id");
    s->eot = vocab_number(f, "tokenizer.ggml.eot_token_id");
    s->eom = vocab_number(f, "tokenizer.ggml.eom_token_id");
    s->unk = vocab_number(f, "tokenizer.ggml.unknown_token_id");
    s->sep = vocab_number(f, "tokenizer.ggml.seperator_token_id"); /* so it is spelt */
    s->pad = vocab_number(f, "tokenizer.ggml.padding_token_id");
    s->mask = vocab_number(f, "tokenizer.ggml.mask_token_id");
    s->add_bos = vocab_number(f, "tokenizer.ggml.add_bos_token");
    s->add_eos = vocab_number(f, "tokenizer.ggml.add_eos_token");
    s->add_sep = vocab_number(f, "tokenizer.ggml.add_sep_token");
    s->add_space_prefix = vocab_number(f, "tokenizer.ggml.add_space_prefix");
    s->remove_extra_whitespaces = vocab_number(f, "tokenizer.ggml.remove_extra_whitespaces");
    return s->model && s->tokens;
}

/* A whole file, which the caller frees; NULL when it cannot be read. */
static inline char *vocab_slurp(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    char *text = f ? malloc(1 << 22) : NULL;
    *n = text ? fread(text, 1, 1 << 22, f) : 0;
    if (f) fclose(f);
    return text;
}

#endif
