/* Grammars and schemas from anybody: the first byte says which, the rest is the text, up to a byte 0xFF; what follows decides which tokens
 * are likely. A grammar is refused with a sentence or it is followed: every token that is picked is one that it accepts. */
#include <stdio.h>
#include <stdlib.h>

#include <quern/text.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PROMISE(condition)                              \
    do {                                                \
        if (!(condition)) broken(#condition, __LINE__); \
    } while (0)

static void broken(const char *promise, int line) {
    fprintf(stderr, "fuzz_grammar.c:%d: broken promise: %s\n", line, promise);
    abort();
}

static const char *const WORDS[] = {"</s>", "<think>", "true", "null", "{\"", "\":", "12", "[[", ", ", "ab", "\xC3\xA9", "\xC3"};
enum { N_WORDS = sizeof WORDS / sizeof *WORDS, N_TOKENS = 256 + N_WORDS, STEPS = 40 };

static qn_tokenizer *vocabulary(void) {
    static char names[256][8];
    qn_text tokens[N_TOKENS];
    int32_t types[N_TOKENS];
    qn_vocab_source s = qn_vocab_source_default();
    qn_tokenizer *t = NULL;
    for (int i = 0; i < N_WORDS; i++) {
        tokens[i] = (qn_text){WORDS[i], strlen(WORDS[i])};
        types[i] = i < 2 ? QN_TOKEN_CONTROL : QN_TOKEN_NORMAL;
    }
    for (int b = 0; b < 256; b++) {
        snprintf(names[b], sizeof names[b], "<0x%02X>", b);
        tokens[N_WORDS + b] = (qn_text){names[b], 6};
        types[N_WORDS + b] = QN_TOKEN_BYTE;
    }
    s.model = "llama";
    s.n_tokens = N_TOKENS;
    s.tokens = tokens;
    s.types = types;
    s.eos = 0;
    PROMISE(qn_tokenizer_create(&s, &t, NULL) == QN_OK);
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static qn_tokenizer *t; /* one for all inputs; it never changes */
    if (!t) t = vocabulary();
    if (size < 1) return 0;
    const uint8_t *mark = memchr(data + 1, 0xFF, size - 1);
    size_t n = mark ? (size_t)(mark - data) : size;
    char *exact = malloc(n ? n : 1); /* of its exact size, so that a step beyond it is seen */
    PROMISE(exact);
    memcpy(exact, data + 1, n - 1);
    qn_text text = {exact, n - 1};
    qn_sampler_options o = qn_sampler_options_default();
    o.grammar_kind = data[0] & 1 ? QN_GRAMMAR_JSON_SCHEMA : QN_GRAMMAR_GBNF;
    o.grammar = &text;
    o.tokenizer = t;
    o.temperature = data[0] & 2 ? 0 : 1;
    o.seed = size;
    qn_sampler *s = NULL;
    qn_error error = {QN_OK, ""};
    qn_status status = qn_sampler_create(&o, &s, &error);
    free(exact);
    if (status != QN_OK) {
        PROMISE(!s && error.text[0] && error.status == status);
        return 0;
    }
    for (int i = 0; i < STEPS; i++) {
        float logits[N_TOKENS];
        int32_t id = -1;
        uint8_t like = n + (size_t)i + 1 < size ? data[n + (size_t)i + 1] : (uint8_t)(i * 37);
        for (int k = 0; k < N_TOKENS; k++) logits[k] = (float)((k * 31 + like * 17) % 64) * 0.1f;
        status = qn_sampler_pick(s, logits, N_TOKENS, &id, &error);
        if (status != QN_OK) { /* too ambiguous, or a way that no token continues */
            PROMISE(error.text[0]);
            break;
        }
        status = qn_sampler_accept(s, id, 0, &error);
        PROMISE(status == QN_OK || strstr(error.text, "ambiguous"));
        if (id == 0 || status != QN_OK) break;
    }
    qn_sampler_destroy(s);
    return 0;
}
