/* A small vocabulary for tests: every byte as a token, some words, and the end. */
#ifndef QN_TESTS_SMALL_VOCAB_H
#define QN_TESTS_SMALL_VOCAB_H

#include <stdio.h>

#include <quern/text.h>

enum { SMALL_END = 0, SMALL_CONTROL = 1, SMALL_BYTES = 2, SMALL_WORDS = SMALL_BYTES + 256, SMALL_MOST = 64 };

/* Model "llama", no space prefix: ids SMALL_WORDS on are the words. The caller destroys it. */
static inline qn_tokenizer *small_vocab(const char *const *words, int n) {
    static char names[256][8];
    qn_text tokens[SMALL_WORDS + SMALL_MOST];
    int32_t types[SMALL_WORDS + SMALL_MOST];
    qn_vocab_source s = qn_vocab_source_default();
    qn_tokenizer *t = NULL;
    tokens[SMALL_END] = (qn_text){"</s>", 4};
    tokens[SMALL_CONTROL] = (qn_text){"<think>", 7};
    types[SMALL_END] = types[SMALL_CONTROL] = QN_TOKEN_CONTROL;
    for (int b = 0; b < 256; b++) {
        snprintf(names[b], sizeof names[b], "<0x%02X>", b);
        tokens[SMALL_BYTES + b] = (qn_text){names[b], 6};
        types[SMALL_BYTES + b] = QN_TOKEN_BYTE;
    }
    for (int i = 0; i < n && i < SMALL_MOST; i++) {
        tokens[SMALL_WORDS + i] = (qn_text){words[i], strlen(words[i])};
        types[SMALL_WORDS + i] = QN_TOKEN_NORMAL;
    }
    s.model = "llama";
    s.n_tokens = SMALL_WORDS + n;
    s.tokens = tokens;
    s.types = types;
    s.eos = s.bos = SMALL_END;
    s.add_bos = s.add_space_prefix = 0;
    s.unk = SMALL_CONTROL;
    return qn_tokenizer_create(&s, &t, NULL) == QN_OK ? t : NULL;
}

#endif
