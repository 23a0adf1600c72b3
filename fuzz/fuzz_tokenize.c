/* Vocabularies and texts from anybody. The input is: a byte for the kind of model, a byte of switches, tokens and merges ended by 0xFE
 * (0xFD between them, the first byte of each its type), then the text. Whatever is made must encode any text or say why not; ids decode to
 * the same bytes at once and in pieces; and a vocabulary that has every byte gives the text back. */
#include <stdio.h>
#include <stdlib.h>

#include <quern/text.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 2000 };

#define PROMISE(condition)                              \
    do {                                                \
        if (!(condition)) broken(#condition, __LINE__); \
    } while (0)

static void broken(const char *promise, int line) {
    fprintf(stderr, "fuzz_tokenize.c:%d: broken promise: %s\n", line, promise);
    abort();
}

typedef struct input {
    const uint8_t *at, *end;
} input;

static int byte(input *in) { return in->at < in->end ? *in->at++ : 0; }

/* Texts up to the next 0xFE; returns how many. */
static size_t texts(input *in, qn_text *out, int32_t *types) {
    size_t n = 0;
    while (in->at < in->end && *in->at != 0xFE && n < MOST) {
        if (types) types[n] = *in->at++ % 8;
        const uint8_t *from = in->at;
        while (in->at < in->end && *in->at != 0xFD && *in->at != 0xFE) in->at++;
        out[n++] = (qn_text){(const char *)from, (size_t)(in->at - from)};
        if (in->at < in->end && *in->at == 0xFD) in->at++;
    }
    if (in->at < in->end) in->at++;
    return n;
}

/* All bytes in the letters of gpt2, behind the tokens there are. */
static size_t add_letters(qn_text *tokens, int32_t *types, size_t n) {
    static char letters[256][2];
    int next = 0;
    for (int b = 0; b < 256; b++) {
        int visible = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD), code = visible ? b : 0x100 + next++;
        size_t length = code < 0x80 ? 1 : 2;
        letters[b][0] = (char)(length == 1 ? code : 0xC0 | code >> 6);
        letters[b][1] = (char)(0x80 | (code & 0x3F));
        tokens[n] = (qn_text){letters[b], length};
        types[n++] = QN_TOKEN_NORMAL;
    }
    return n;
}

static void decode(const qn_tokenizer *t, const int32_t *ids, size_t n, uint32_t flags, qn_text want) {
    qn_error error;
    size_t length = 0, sum = 0;
    char *text = NULL, *pieces;
    qn_status status = qn_tokenizer_decode(t, ids, n, flags, NULL, NULL, 0, &length, &error);
    PROMISE(status == QN_OK || status == QN_WORKSPACE);
    text = malloc(length + 1);
    pieces = malloc(length + 1);
    PROMISE(text && pieces && qn_tokenizer_decode(t, ids, n, flags, NULL, text, length, &length, &error) == QN_OK);
    qn_decode_state state = {{0}};
    for (size_t i = 0; i <= n; i++) {
        size_t part = 0;
        uint32_t end = i == n ? QN_DECODE_END : 0;
        PROMISE(qn_tokenizer_decode(t, n ? ids + (i < n ? i : 0) : NULL, i < n, flags | end, &state, pieces + sum, length - sum,
                                    &part, &error) == QN_OK);
        sum += part;
    }
    PROMISE(sum == length && memcmp(pieces, text, sum) == 0);
    if (want.at) PROMISE(length == want.length && memcmp(text, want.at, length) == 0);
    free(text);
    free(pieces);
}

static void encode(const qn_tokenizer *t, qn_text text, uint32_t flags, int lossless) {
    qn_error error = {QN_OK, ""};
    size_t n = 0, again = 0;
    qn_status status = qn_tokenizer_encode(t, text.at, text.length, flags, NULL, 0, &n, &error);
    if (status != QN_OK && status != QN_WORKSPACE) {
        PROMISE(error.text[0]);
        return;
    }
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    PROMISE(ids && qn_tokenizer_encode(t, text.at, text.length, flags, ids, n, &again, &error) == QN_OK && again == n);
    for (size_t i = 0; i < n; i++) {
        qn_token_info info = {.size = sizeof info};
        PROMISE(qn_tokenizer_token(t, ids[i], &info) == QN_OK);
    }
    decode(t, ids, n, QN_DECODE_SPECIAL, lossless ? text : (qn_text){NULL, 0});
    decode(t, ids, n, QN_DECODE_CLEAN, (qn_text){NULL, 0});
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const MODELS[] = {"llama", "gpt2", "bert", "t5", "gemma4"}, *const PRE[] = {
                                                                                       "gpt-2",      "default",      "llama-bpe",
                                                                                       "gpt-4o",     "deepseek-llm", "tekken",
                                                                                       "kimi-k2",    "afmoe",        "tiny_aya",
                                                                                       "exaone-moe", "bloom",        "superbpe",
                                                                                       "falcon",     "qwen2"};
    input in = {data, data + size};
    int model = byte(&in), switches = byte(&in);
    qn_text *tokens = calloc(MOST + 300, sizeof *tokens), *merges = calloc(MOST + 1, sizeof *merges);
    int32_t *types = calloc(MOST + 300, sizeof *types);
    float *scores = calloc(MOST + 300, sizeof *scores);
    PROMISE(tokens && merges && types && scores);
    qn_vocab_source s = qn_vocab_source_default();
    s.model = MODELS[model % 5];
    s.pre = PRE[model / 5 % 14];
    size_t n = texts(&in, tokens, types);
    s.merges = merges;
    s.n_merges = texts(&in, merges, NULL);
    int all = switches & 1 && model % 5 == 1;
    if (all) n = add_letters(tokens, types, n);
    for (size_t i = 0; i < n; i++) scores[i] = (float)((int)(i * 7919 % 101) - 50) * 0.1f;
    s.n_tokens = (int32_t)n;
    s.tokens = tokens;
    s.types = switches & 2 ? NULL : types;
    s.scores = switches & 4 ? NULL : scores;
    s.add_space_prefix = switches & 8 ? 1 : -1;
    s.unk = switches & 16 ? 0 : -1;
    s.name = switches & 32 ? "phi-3" : NULL;
    s.charsmap = switches & 64 ? data : NULL;
    s.charsmap_bytes = switches & 64 ? size : 0;
    qn_tokenizer *t = NULL;
    qn_error error = {QN_OK, ""};
    qn_status status = qn_tokenizer_create(&s, &t, &error);
    if (status != QN_OK) {
        PROMISE(!t && error.text[0] && error.status == status);
    } else {
        qn_text text = {(const char *)in.at, (size_t)(in.end - in.at)};
        encode(t, text, 0, all && s.types && !(switches & 32)); /* types make sure that letters stand for bytes */
        encode(t, text, QN_ENCODE_SPECIAL | QN_ENCODE_MODEL, 0);
        qn_tokenizer_destroy(t);
    }
    free(tokens);
    free(merges);
    free(types);
    free(scores);
    return 0;
}
