/* Tokenizers over small vocabularies: special tokens, what models add, texts that come piece by piece, and vocabularies that lie. */
#include <stdlib.h>

#include "base/rand.h"
#include "cmocka_setup.h"
#include "small_vocab.h"
#include "text/tokenizer.h"

typedef struct entry {
    const char *text;
    int32_t type;
    float score;
} entry;

static qn_vocab_source source_of(const char *model, const entry *entries, size_t n, qn_text *tokens, int32_t *types,
                                 float *scores) {
    qn_vocab_source s = qn_vocab_source_default();
    for (size_t i = 0; i < n; i++) {
        tokens[i] = (qn_text){entries[i].text, strlen(entries[i].text)};
        types[i] = entries[i].type;
        scores[i] = entries[i].score;
    }
    s.model = model;
    s.n_tokens = (int32_t)n;
    s.tokens = tokens;
    s.types = types;
    s.scores = scores;
    return s;
}

#define SOURCE(model, entries)                        \
    qn_text tokens[sizeof entries / sizeof *entries]; \
    int32_t types[sizeof entries / sizeof *entries];  \
    float scores[sizeof entries / sizeof *entries];   \
    qn_vocab_source s = source_of(model, entries, sizeof entries / sizeof *entries, tokens, types, scores)

static qn_tokenizer *make(const qn_vocab_source *s) {
    qn_tokenizer *t = NULL;
    qn_error error = {QN_OK, ""};
    if (qn_tokenizer_create(s, &t, &error) != QN_OK) fail_msg("%s", error.text);
    return t;
}

static void encodes(const qn_tokenizer *t, const char *text, uint32_t flags, size_t n, const int32_t *want) {
    int32_t ids[64];
    size_t count = 0;
    qn_error error = {QN_OK, ""};
    if (qn_tokenizer_encode(t, text, strlen(text), flags, ids, 64, &count, &error) != QN_OK) fail_msg("%s: %s", text, error.text);
    if (count != n) fail_msg("'%s' gives %zu ids, should give %zu", text, count, n);
    for (size_t i = 0; i < n; i++)
        if (ids[i] != want[i]) fail_msg("'%s': id %zu is %d, should be %d", text, i, ids[i], want[i]);
}

static void decodes(const qn_tokenizer *t, const int32_t *ids, size_t n, uint32_t flags, const char *want) {
    char text[256];
    size_t length = 0;
    qn_error error;
    assert_int_equal(qn_tokenizer_decode(t, ids, n, flags, NULL, text, sizeof text, &length, &error), QN_OK);
    text[length] = 0;
    assert_string_equal(text, want);
}

#define SPACE "\xE2\x96\x81"
static const entry SPM[] = {{"<unk>", 2, 0},  {"<s>", 3, 0},    {"</s>", 3, 0},     {SPACE, 1, -1},   {"a", 1, -2},
                            {"b", 1, -2},     {"ab", 1, -0.5f}, {SPACE "ab", 1, 0}, {"ba", 1, -0.1f}, {"<0xC3>", 6, 0},
                            {"<0xA9>", 6, 0}, {"<tag>", 4, 0},  {"<tag>>", 4, 0},   {"<0x0A>", 6, 0}, {"<|im_end|>", 3, 0}};

static void sentencepiece_merges_by_score(void **state) {
    (void)state;
    SOURCE("llama", SPM);
    qn_tokenizer *t = make(&s);
    encodes(t, "ab", 0, 1, (int32_t[]){7});
    encodes(t, "ab", QN_ENCODE_MODEL, 2, (int32_t[]){1, 7});
    encodes(t, "aba", 0, 3, (int32_t[]){3, 4, 8}); /* "ba" is better than "ab" */
    encodes(t, "a b", 0, 4, (int32_t[]){3, 4, 3, 5});
    encodes(t, "\xC3\xA9", 0, 3, (int32_t[]){3, 9, 10}); /* a character without a token: its bytes */
    encodes(t, "x", 0, 2, (int32_t[]){3, 0});            /* a byte without a token: unknown */
    encodes(t, "", 0, 0, NULL);
    encodes(t, "", QN_ENCODE_MODEL, 1, (int32_t[]){1});
    decodes(t, (int32_t[]){1, 7, 7}, 3, 0, "ab ab");
    decodes(t, (int32_t[]){7}, 1, QN_DECODE_CONTINUE, " ab");
    decodes(t, (int32_t[]){1, 7, 2}, 3, QN_DECODE_SPECIAL, "<s>ab</s>");
    qn_tokenizer_destroy(t);
}

static void special_tokens_are_found_when_asked(void **state) {
    (void)state;
    SOURCE("llama", SPM);
    qn_tokenizer *t = make(&s);
    encodes(t, "ab</s>ab", QN_ENCODE_SPECIAL, 3, (int32_t[]){7, 2, 7});
    encodes(t, "<tag>ab", 0, 2, (int32_t[]){11, 7});  /* user-defined ones always */
    encodes(t, "<tag>>ab", 0, 2, (int32_t[]){12, 7}); /* the longest at a place */
    encodes(t, "<s><s>", QN_ENCODE_SPECIAL, 2, (int32_t[]){1, 1});
    qn_token_info info = {.size = sizeof info};
    assert_int_equal(qn_tokenizer_token(t, 14, &info), QN_OK);
    assert_int_equal(info.ends, 1); /* known by its name */
    assert_int_equal(qn_tokenizer_token(t, 2, &info), QN_OK);
    assert_int_equal(info.ends, 1);
    assert_int_equal(qn_tokenizer_token(t, 11, &info), QN_OK);
    assert_int_equal(info.ends, 0);
    assert_int_equal(qn_tokenizer_token(t, 15, &info), QN_ARGUMENT);
    qn_tokenizer_info all = {.size = sizeof all};
    assert_int_equal(qn_tokenizer_describe(t, &all), QN_OK);
    assert_int_equal(all.eot, 14);
    assert_int_equal(all.newline, 13);
    assert_int_equal(all.ignored_ids, 0);
    qn_tokenizer_destroy(t);
    s.name = "Phi3-mini";
    t = make(&s);
    encodes(t, "<|im_end|> \n ab", QN_ENCODE_SPECIAL, 2, (int32_t[]){14, 7}); /* takes the white space behind it along */
    qn_tokenizer_destroy(t);
    s.bos = 400;
    t = make(&s);
    assert_int_equal(qn_tokenizer_describe(t, &all), QN_OK);
    assert_int_equal(all.ignored_ids, 1);
    assert_int_equal(all.bos, 1);
    qn_tokenizer_destroy(t);
}

/* "\xC4\xA0" is the letter of the space, "\xC4\x8A" that of the newline. */
static const entry BPE[] = {{"a", 1, 0},
                            {"b", 1, 0},
                            {"c", 1, 0},
                            {"ab", 1, 0},
                            {"abc", 1, 0},
                            {"\xC4\xA0", 1, 0},
                            {"\xC4\xA0"
                             "ab",
                             1, 0},
                            {"\xC4\x8A", 1, 0},
                            {"<|endoftext|>", 3, 0},
                            {"\xC4\xA0"
                             "abc",
                             1, 0},
                            {"\xC3\x83", 1, 0},
                            {"\xC2\xA9", 1, 0}};

static void ranked_merges_go_by_rank(void **state) {
    (void)state;
    const qn_text merges[] = {{"a b", 3}, {"\xC4\xA0 ab", 5}, {"ab c", 4}};
    SOURCE("gpt2", BPE);
    s.pre = "gpt-2";
    s.merges = merges;
    s.n_merges = 3;
    qn_tokenizer *t = NULL;
    qn_error error = {QN_OK, ""};
    qn_status status = qn_tokenizer_create(&s, &t, &error);
    if (status == QN_UNSUPPORTED && strstr(error.text, "PCRE2")) skip(); /* a build without it says so */
    assert_int_equal(status, QN_OK);
    encodes(t, "abc", 0, 1, (int32_t[]){4});
    encodes(t, " abc", 0, 2, (int32_t[]){6, 2}); /* rank 1 before rank 2 */
    encodes(t, "ab\n\xC3\xA9", 0, 4, (int32_t[]){3, 7, 10, 11});
    encodes(t, "<|endoftext|>ab", QN_ENCODE_SPECIAL, 2, (int32_t[]){8, 3});
    decodes(t, (int32_t[]){6, 2, 7, 10, 11}, 5, 0, " abc\n\xC3\xA9");
    int32_t ids[8];
    size_t n;
    assert_int_equal(qn_tokenizer_encode(t, "z", 1, 0, ids, 8, &n, &error), QN_INVALID);
    assert_non_null(strstr(error.text, "byte 0x7A"));
    qn_tokenizer_destroy(t);
    s.pre = "llama-bpe"; /* a piece that is a token is that token */
    t = make(&s);
    encodes(t, " abc", 0, 1, (int32_t[]){9});
    qn_tokenizer_destroy(t);
    s.pre = "nonsense";
    assert_int_equal(qn_tokenizer_create(&s, &t, &error), QN_UNSUPPORTED);
    assert_non_null(strstr(error.text, "'nonsense'"));
}

/* Every pre kind of the table compiles, and what it cuts a text into is the text. */
static qn_status gather(void *user, const char *at, size_t n) {
    qn_text *rest = user;
    if (n == 0 || n > rest->length || memcmp(rest->at, at, n) != 0) return QN_INVALID;
    rest->at += n;
    rest->length -= n;
    return QN_OK;
}

static void every_way_to_cut_loses_nothing(void **state) {
    (void)state;
    static const char *const NAMES[] = {
#define QN_PRE(name, flags, ...) name,
#include "text/token_pre.def"
#undef QN_PRE
    };
    static const char *const TEXTS[] = {"Hello, y'all! I'LL be 1234567 \xC2\xBD  \n\n\t x\r\n",
                                        "\xE4\xBD\xA0\xE5\xA5\xBD\xE4\xB8\x96 \xED\x95\x9C\xEA\xB5\xAD ABCdef\xCC\x81",
                                        "\xFF\xC3(\xE2\x82\x80 12 \xF0\x9F\xA6\x99\x80",
                                        "   ",
                                        "1234567890x 99 ",
                                        "'"};
    const qn_text merge = {"a b", 3};
    qn_rand rand = {9};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        SOURCE("gpt2", BPE);
        qn_error error = {QN_OK, ""};
        qn_tokenizer *t = NULL;
        s.pre = NAMES[i];
        s.merges = &merge;
        s.n_merges = 1;
        qn_status status = qn_tokenizer_create(&s, &t, &error);
        if (status == QN_UNSUPPORTED && strstr(error.text, "PCRE2,")) skip();
        if (status != QN_OK) fail_msg("%s: %s", NAMES[i], error.text);
        for (int k = 0; k < 60; k++) {
            char noise[40];
            size_t n = k < 6 ? strlen(TEXTS[k]) : 1 + qn_rand_next(&rand) % 39;
            for (size_t c = 0; c < n && k >= 6; c++)
                noise[c] = (char)(k % 2 ? qn_rand_next(&rand) : (uint64_t) " aA1.'\n\xC3"[qn_rand_next(&rand) % 8]);
            qn_text text = {k < 6 ? TEXTS[k] : noise, n}, rest = text;
            status = qn_text_pre_split(t, text, gather, &rest, &error);
            if (status != QN_OK || rest.length) fail_msg("%s, text %d: %zu bytes are missing", NAMES[i], k, rest.length);
        }
        qn_tokenizer_destroy(t);
    }
}

static const entry WORDS[] = {
    {"[PAD]", 3, 0}, {"[UNK]", 3, 0}, {"[CLS]", 3, 0},   {"[SEP]", 3, 0},      {SPACE "hello", 1, 0},       {SPACE "he", 1, 0},
    {"llo", 1, 0},   {"s", 1, 0},     {SPACE ",", 1, 0}, {SPACE "cafe", 1, 0}, {SPACE "\xE4\xBD\xA0", 1, 0}};

static void words_are_the_longest_tokens(void **state) {
    (void)state;
    SOURCE("bert", WORDS);
    s.unk = 1;
    s.bos = 2;
    s.sep = 3;
    qn_tokenizer *t = NULL;
    qn_error error = {QN_OK, ""};
    qn_status status = qn_tokenizer_create(&s, &t, &error);
    if (status == QN_UNSUPPORTED && strstr(error.text, "utf8proc")) skip();
    assert_int_equal(status, QN_OK);
    encodes(t, "Hello, HELLOS", QN_ENCODE_MODEL, 6, (int32_t[]){2, 4, 8, 4, 7, 3});
    encodes(t, "caf\xC3\xA9 helx", 0, 2, (int32_t[]){9, 1}); /* without its accent; and a word that no tokens spell */
    encodes(t, "\xE4\xBD\xA0hello", 0, 2, (int32_t[]){10, 4});
    encodes(t, "\t\n\x01\xFF", 0, 0, NULL);
    decodes(t, (int32_t[]){4, 7, 8, 4}, 4, 0, "hellos , hello");
    decodes(t, (int32_t[]){4, 7, 8, 4}, 4, QN_DECODE_CLEAN, "hellos, hello");
    qn_tokenizer_destroy(t);
}

static void the_best_sum_wins(void **state) {
    (void)state;
    static const entry UNIGRAM[] = {{"<pad>", 3, 0}, {"</s>", 3, 0},   {"<unk>", 2, 0}, {"a", 1, -1},
                                    {"b", 1, -1},    {"ab", 1, -1.5f}, {"aba", 1, -4},  {SPACE, 1, -1}};
    SOURCE("t5", UNIGRAM);
    qn_tokenizer *t = make(&s);
    encodes(t, "aba", 0, 2, (int32_t[]){5, 3});
    encodes(t, "ab ab", QN_ENCODE_MODEL, 4, (int32_t[]){5, 7, 5, 1});
    encodes(t, "axxb", 0, 3, (int32_t[]){3, 2, 4}); /* what is unknown and side by side is unknown once */
    qn_tokenizer_destroy(t);
    s.add_space_prefix = s.remove_extra_whitespaces = 1;
    t = make(&s);
    encodes(t, "  a   b ", 0, 4, (int32_t[]){7, 3, 7, 4});
    qn_tokenizer_destroy(t);
}

/* A vocabulary that has them all spells what it does not know in bytes, each for itself. */
static void what_is_unknown_falls_to_bytes(void **state) {
    (void)state;
    static entry all[4 + 256] = {{"<pad>", 3, 0}, {"</s>", 3, 0}, {"<unk>", 2, 0}, {"a", 1, -1}};
    static char names[256][8];
    for (int b = 0; b < 256; b++) {
        snprintf(names[b], sizeof names[b], "<0x%02X>", (unsigned)b);
        all[4 + b] = (entry){names[b], 6, 0};
    }
    SOURCE("t5", all);
    qn_tokenizer *t = make(&s);
    encodes(t, "a\xC3\xA9xa", 0, 5, (int32_t[]){3, 4 + 0xC3, 4 + 0xA9, 4 + 'x', 3});
    decodes(t, (int32_t[]){3, 4 + 0xC3, 4 + 0xA9, 4 + 'x', 3}, 5, 0, "a\xC3\xA9xa");
    qn_tokenizer_destroy(t);
}

static void pieces_never_cut_a_character(void **state) {
    (void)state;
    qn_tokenizer *t = small_vocab(NULL, 0);
    const char text[] = "a\xC3\xA9\xE4\xBD\xA0\xF0\x9F\xA6\x99\xFF\xE2\x82z\xF0\x9F"; /* and bytes that are no characters */
    qn_decode_state state_of = {{0}};
    char out[64];
    size_t n = 0, length, chunks = 0;
    qn_error error;
    for (size_t i = 0; i < sizeof text - 1; i++) {
        int32_t id = SMALL_BYTES + (unsigned char)text[i];
        assert_int_equal(qn_tokenizer_decode(t, &id, 1, 0, &state_of, out + n, sizeof out - n, &length, &error), QN_OK);
        chunks += length > 0;
        n += length;
        assert_memory_equal(out, text, n);
    }
    assert_int_equal(n, sizeof text - 1 - 2); /* the last two bytes wait for more */
    assert_int_equal(chunks, 6);              /* what is no character comes out with what follows it */
    qn_decode_state saved = state_of;
    assert_int_equal(qn_tokenizer_decode(t, NULL, 0, QN_DECODE_END, &state_of, NULL, 0, &length, &error), QN_WORKSPACE);
    assert_int_equal(length, 2);
    assert_memory_equal(&state_of, &saved, sizeof saved);
    assert_int_equal(qn_tokenizer_decode(t, NULL, 0, QN_DECODE_END, &state_of, out + n, 2, &length, &error), QN_OK);
    assert_memory_equal(out, text, sizeof text - 1);
    qn_tokenizer_destroy(t);
}

static void cleaning_is_the_same_in_pieces(void **state) {
    (void)state;
    qn_tokenizer *t = small_vocab(NULL, 0);
    static const char *const TEXTS[][2] = {{"Hi , you ' re it 's n't  . x", "Hi, you're it'sn't . x"},
                                           {"do n't", "don't"},
                                           {" 'v", " 'v"},
                                           {"a  !", "a !"},
                                           {"we 've 'x", "we've 'x"}};
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++) {
        const char *text = TEXTS[i][0];
        int32_t ids[64];
        size_t n = strlen(text), at = 0, length;
        qn_decode_state held = {{0}};
        char out[128], whole[128];
        qn_error error;
        for (size_t k = 0; k < n; k++) ids[k] = SMALL_BYTES + (unsigned char)text[k];
        assert_int_equal(qn_tokenizer_decode(t, ids, n, QN_DECODE_CLEAN, NULL, whole, sizeof whole, &length, &error), QN_OK);
        whole[length] = 0;
        assert_string_equal(whole, TEXTS[i][1]);
        for (size_t k = 0; k <= n; k++) {
            assert_int_equal(qn_tokenizer_decode(t, ids + (k < n ? k : 0), k < n, QN_DECODE_CLEAN | (k == n ? QN_DECODE_END : 0),
                                                 &held, out + at, sizeof out - at, &length, &error),
                             QN_OK);
            at += length;
        }
        out[at] = 0;
        assert_string_equal(out, whole);
    }
    for (int byte = 0; byte < 16; byte++) { /* a state of anybody's making is refused, or does no harm */
        qn_decode_state made = {{0}};
        char out[128];
        size_t length;
        memset((char *)&made + byte, 4, 1);
        qn_tokenizer_decode(t, (int32_t[]){SMALL_BYTES + '.'}, 1, QN_DECODE_CLEAN, &made, out, sizeof out, &length, NULL);
    }
    qn_tokenizer_destroy(t);
}

static void room_is_asked_for_and_nothing_is_touched(void **state) {
    (void)state;
    qn_tokenizer *t = small_vocab(NULL, 0);
    int32_t ids[3] = {-9, -9, -9};
    size_t n = 0;
    qn_error error;
    assert_int_equal(qn_tokenizer_encode(t, "abcd", 4, 0, ids, 3, &n, &error), QN_WORKSPACE);
    assert_int_equal(n, 4);
    assert_int_equal(ids[0], -9);
    assert_int_equal(qn_tokenizer_encode(t, "abcd", 4, 0, NULL, 0, &n, &error), QN_WORKSPACE);
    assert_int_equal(qn_tokenizer_encode(t, NULL, 4, 0, ids, 3, &n, &error), QN_ARGUMENT);
    assert_int_equal(qn_tokenizer_encode(t, "a", 1, 64, ids, 3, &n, &error), QN_ARGUMENT);
    assert_int_equal(qn_tokenizer_decode(t, (int32_t[]){9999}, 1, 0, NULL, NULL, 0, &n, &error), QN_ARGUMENT);
    assert_int_equal(qn_tokenizer_decode(t, (int32_t[]){-1}, 1, 0, NULL, NULL, 0, &n, &error), QN_ARGUMENT);
    qn_tokenizer_destroy(t);
    qn_tokenizer_destroy(NULL);
}

static void refuse(const qn_vocab_source *s, qn_status status, const char *text) {
    qn_tokenizer *t = (qn_tokenizer *)&status;
    qn_error error = {QN_OK, ""};
    assert_int_equal(qn_tokenizer_create(s, &t, &error), status);
    if (!strstr(error.text, text)) fail_msg("'%s' should hold '%s'", error.text, text);
    assert_null(t);
}

static void vocabularies_that_lie_are_refused(void **state) {
    (void)state;
    SOURCE("llama", SPM);
    qn_vocab_source bad = s;
    bad.size = 1;
    refuse(&bad, QN_ARGUMENT, "of 1 bytes");
    bad = s;
    bad.model = "rwkv";
    refuse(&bad, QN_UNSUPPORTED, "'rwkv' is not known; known are: llama, gpt2");
    bad = s;
    bad.n_tokens = 0;
    refuse(&bad, QN_FORMAT, "0 tokens");
    bad.n_tokens = INT32_MAX;
    refuse(&bad, QN_FORMAT, "at most");
    tokens[4].length = 5000;
    refuse(&s, QN_FORMAT, "token 4 has 5000 bytes");
    tokens[4].length = 1;
    scores[4] = NAN;
    refuse(&s, QN_FORMAT, "token 4 has a score");
    scores[4] = 0;
    static const char *const BYTES[] = {"<0x-1>", "<0xZZ>", "<0x1>", "0x10", "<0x100>"}; /* as published attacks spell them */
    for (size_t i = 0; i < sizeof BYTES / sizeof *BYTES; i++) {
        tokens[9] = (qn_text){BYTES[i], strlen(BYTES[i])};
        refuse(&s, QN_FORMAT, "should name a byte");
    }
    tokens[9] = (qn_text){"<0xC3>", 6};
    bad = s;
    bad.model = "gpt2";
    bad.types = NULL;
    refuse(&bad, QN_FORMAT, "without merges");
    static const char *const MERGES[] = {"ab", " ab", "a ", "", "a"};
    for (size_t i = 0; i < sizeof MERGES / sizeof *MERGES; i++) {
        qn_text merge = {MERGES[i], strlen(MERGES[i])};
        bad.merges = &merge;
        bad.n_merges = 1;
        refuse(&bad, QN_FORMAT, "not two texts with a space between");
    }
    bad = s;
    bad.model = "t5";
    bad.types = NULL;
    bad.unk = 0;
    bad.charsmap = "\xFF\xFF\xFF\x7F";
    bad.charsmap_bytes = 4;
    refuse(&bad, QN_FORMAT, "cut short");
    bad.charsmap_bytes = 2;
    refuse(&bad, QN_FORMAT, "cut short");
}

/* Ids that add nothing and types that do not exist are survived. */
static void odd_vocabularies_are_survived(void **state) {
    (void)state;
    static const entry ODD[] = {{"", 1, 0}, {"", 3, 0}, {"a", 77, 0}, {"a", -5, 0}, {"", 4, 0}, {"b", 5, 0}};
    SOURCE("llama", ODD);
    s.add_space_prefix = 0;
    qn_tokenizer *t = make(&s);
    encodes(t, "a", QN_ENCODE_SPECIAL, 1, (int32_t[]){2});
    encodes(t, "b", QN_ENCODE_MODEL, 2, (int32_t[]){1, 5}); /* the BOS of the kind */
    qn_tokenizer_destroy(t);
}

/* Of one text many times over, the first token is found, and unasked the first that needs no asking. */
static void a_text_many_times_over_is_found_once(void **state) {
    (void)state;
    static const entry SAME[] = {{"<unk>", 2, 0}, {"x", 3, 0}, {"x", 3, 0}, {"x", 4, 0}, {"x", 4, 0}, {"y", 4, 0}, {"y", 3, 0}};
    SOURCE("llama", SAME);
    s.add_space_prefix = 0;
    qn_tokenizer *t = make(&s);
    encodes(t, "xy", QN_ENCODE_SPECIAL, 2, (int32_t[]){1, 5});
    encodes(t, "xy", 0, 2, (int32_t[]){3, 5});
    for (uint32_t i = 0; i < t->special.nodes; i++) assert_true(t->special.node[i].same <= 2);
    qn_tokenizer_destroy(t);
}

/* A map of characters in which a leads back to itself would follow a text of them to its end, from every place. */
static void a_map_of_characters_in_a_circle_ends(void **state) {
    (void)state;
    static const entry TWO[] = {{"<unk>", 2, 0}, {"b", 1, -1}};
    struct {
        uint32_t bytes, nodes[256];
        char replacement[4];
    } map = {.bytes = sizeof map.nodes, .replacement = "b"};
    char text[1001];
    SOURCE("t5", TWO);
    map.nodes['a'] = 'a' | 1u << 8 | (uint32_t)'a' << 10; /* its children lie where it lies itself, and it ends a match */
    s.unk = 0;
    s.add_space_prefix = s.add_eos = 0;
    s.charsmap = &map;
    s.charsmap_bytes = sizeof map;
    qn_tokenizer *t = make(&s);
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    encodes(t, text, 0, 4, (int32_t[]){1, 1, 1, 1}); /* a b for each 256 at most */
    qn_tokenizer_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sentencepiece_merges_by_score),
                                       cmocka_unit_test(special_tokens_are_found_when_asked),
                                       cmocka_unit_test(ranked_merges_go_by_rank),
                                       cmocka_unit_test(every_way_to_cut_loses_nothing),
                                       cmocka_unit_test(words_are_the_longest_tokens),
                                       cmocka_unit_test(the_best_sum_wins),
                                       cmocka_unit_test(what_is_unknown_falls_to_bytes),
                                       cmocka_unit_test(pieces_never_cut_a_character),
                                       cmocka_unit_test(cleaning_is_the_same_in_pieces),
                                       cmocka_unit_test(room_is_asked_for_and_nothing_is_touched),
                                       cmocka_unit_test(vocabularies_that_lie_are_refused),
                                       cmocka_unit_test(odd_vocabularies_are_survived),
                                       cmocka_unit_test(a_text_many_times_over_is_found_once),
                                       cmocka_unit_test(a_map_of_characters_in_a_circle_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
