/* The storyteller: its tales are whole and always the same, its vocabulary has each of their words, and the model in models/ speaks
 * that vocabulary: who changes the tables trains it anew. */
#include <stdlib.h>

#include "../../apps/story_grammar.c"
#include "../../apps/story_vocab.c"
#include "libraries.h"

enum { TALES = 300 };

static story_vocab words;

static int setup(void **state) {
    (void)state;
    return !story_vocab_make(&words) && HAVE_PCRE2; /* without it there are words, and nothing that cuts a text into them */
}

static int teardown(void **state) {
    (void)state;
    story_vocab_free(&words);
    return 0;
}

static void same_seed_same_tales(void **state) {
    (void)state;
    char a[STORY_BYTES], b[STORY_BYTES], c[STORY_BYTES];
    uint64_t one = 7, two = 7, other = 8;
    for (int i = 0; i < TALES; i++) {
        size_t n = story_tell(&one, a);
        assert_int_equal(n, strlen(a));
        assert_int_equal(n, story_tell(&two, b));
        assert_string_equal(a, b);
        story_tell(&other, c);
        assert_string_not_equal(a, c);
    }
}

static void tales_are_whole(void **state) {
    (void)state;
    char text[STORY_BYTES];
    uint64_t seed = 1;
    for (int i = 0; i < 10 * TALES; i++) {
        size_t n = story_tell(&seed, text), quotes = 0;
        assert_true(n > 200 && n + 100 < STORY_BYTES);
        assert_null(strpbrk(text, "{}[]|"));
        assert_null(strstr(text, "  "));
        for (const char *at = text; (at = strstr(at, " a ")); at++) assert_null(strchr("aeiou", at[3]));
        for (const char *at = text; (at = strstr(at, " an ")); at++) assert_non_null(strchr("aeiou", at[4]));
        for (size_t k = 0; k < n; k++) quotes += text[k] == '"';
        assert_int_equal(quotes % 2, 0);
        assert_non_null(strchr(".!\"", text[n - 1]));
    }
}

static void round_trip(const char *text, size_t n, size_t *count) {
    static int32_t ids[STORY_BYTES];
    char back[2 * STORY_BYTES];
    size_t length;
    qn_error error;
    assert_int_equal(qn_tokenizer_encode(words.tokenizer, text, n, QN_ENCODE_MODEL, ids, STORY_BYTES, count, &error), QN_OK);
    assert_int_equal(ids[0], STORY_BEGIN);
    assert_int_equal(qn_tokenizer_decode(words.tokenizer, ids, *count, 0, NULL, back, sizeof back, &length, &error), QN_OK);
    assert_int_equal(length, n);
    assert_memory_equal(back, text, n);
}

static void every_word_is_a_token(void **state) {
    (void)state;
    NEED_LIBRARY(PCRE2);
    char text[STORY_BYTES];
    uint64_t seed = 99;
    size_t count, foreign;
    for (int i = 0; i < TALES; i++) {
        size_t n = story_tell(&seed, text), pieces_there = 0;
        for (size_t at = 0; at < n; at += piece_length(text + at)) pieces_there++;
        round_trip(text, n, &count);
        assert_int_equal(count, pieces_there + 1);
    }
    round_trip("Zyx 12 na\xc3\xafve \xff\x01\t<|end|>", 23, &foreign); /* bytes, and no end written out in a text */
    assert_true(foreign > 15);
}

static void the_model_speaks_these_words(void **state) {
    (void)state;
    qn_file *file;
    qn_error error;
    qn_file_value list, item;
    assert_int_equal(qn_file_open("models/stories.gguf", NULL, &file, &error), QN_OK);
    assert_int_equal(qn_file_key(file, qn_file_find(file, QN_FILE_KEYS, "tokenizer.ggml.tokens"), &list), QN_OK);
    assert_int_equal(list.count, words.n);
    for (uint64_t i = 0; i < list.count; i++) {
        assert_int_equal(qn_file_item(&list, i, &item), QN_OK);
        assert_int_equal(item.bytes, words.tokens[i].length);
        assert_memory_equal(item.text, words.tokens[i].at, item.bytes);
    }
    qn_file_close(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_seed_same_tales), cmocka_unit_test(tales_are_whole),
                                       cmocka_unit_test(every_word_is_a_token), cmocka_unit_test(the_model_speaks_these_words)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
