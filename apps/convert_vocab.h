/* What the files that convert vocabularies share. */
#ifndef QN_APPS_CONVERT_VOCAB_H
#define QN_APPS_CONVERT_VOCAB_H

#include "convert_parts.h"

typedef enum vocab_kind {
    VOCAB_SPM,          /* of tokenizer.model; the others of tokenizer.json */
    VOCAB_BPE_OF_BYTES, /* sentencepiece, told as merges */
    VOCAB_BPE,
    VOCAB_WORDS,
    VOCAB_UNIGRAM
} vocab_kind;

#define CONVERT_MARK "\xe2\x96\x81" /* U+2581, which sentencepiece writes for a space */

typedef struct token {
    const char *text;
    uint64_t bytes;
    float score;
    int32_t type; /* 0: not there */
    int marked;   /* U+2581 goes in front */
} token;

typedef struct vocab {
    conversion *c;
    qn_file *json, *settings; /* tokenizer.json and tokenizer_config.json, NULL where there is none */
    const qn_file *config;
    token *tokens;
    int64_t n, most; /* how many there are so far; and can be: see set_token */
    convert_spm spm; /* of tokenizer.model */
    int prefix;      /* whether a space goes in front of a text; -1: nobody says */
} vocab;

/* A string of a JSON document by its name, and whether it is this one; a bool of tokenizer.json, at a place such as "normalizer." */
int convert_find_text(const qn_file *file, const char *name, qn_file_value *v);
int convert_is_text(const qn_file_value *v, const char *text);
int convert_flag_at(const vocab *v, const char *place, const char *name, int otherwise);

/* convert_steps.c: what tokenizer.json does to a text before tokens are looked for. The name of how it is cut; the steps of a unigram
 * vocabulary; and refused, for the others, what their kinds of GGUF cannot say. */
qn_status convert_pre(vocab *v);
qn_status convert_unigram_steps(vocab *v);
qn_status convert_check_steps(vocab *v, vocab_kind kind);

#endif
