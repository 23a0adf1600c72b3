/* Grammars: what they accept, against a slow recogniser that shares nothing with them; that no grammar makes them slow; and
 * what they allow of a vocabulary. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rand.h"
#include "cmocka_setup.h"
#include "small_vocab.h"
#include "text/grammar_parts.h"

typedef struct machine {
    qn_arena arena;
    grammar_tree tree;
    network net;
    run run;
    int32_t start;
    qn_error error;
} machine;

static qn_status build(machine *m, const char *text, size_t n) {
    memset(m, 0, sizeof *m);
    qn_arena_init(&m->arena, 0);
    m->tree.arena = &m->arena;
    qn_status status = qn_text_grammar_parse(&m->tree, (qn_text){text, n}, NULL, &m->error);
    if (status == QN_OK) status = qn_text_grammar_compile(&m->net, &m->arena, &m->tree, &m->error);
    if (status == QN_OK) m->start = qn_text_run_start(&m->run, &m->net);
    return status;
}

static void drop(machine *m) {
    qn_text_run_free(&m->run);
    qn_arena_destroy(&m->arena);
}

/* 'y': in the language; 'p': the beginning of something in it, as far as one can see; 'n': neither. */
static char judge(machine *m, const char *text, size_t n) {
    int32_t set = m->start;
    for (size_t i = 0; i < n && set > SET_DEAD; i++) set = qn_text_run_step(&m->run, set, (uint8_t)text[i]);
    assert_int_not_equal(set, SET_FAILED);
    return set == SET_DEAD ? 'n' : m->run.sets.at[set].ends ? 'y' : 'p';
}

static void expect(const char *grammar, const char *text, char want) {
    machine m;
    if (build(&m, grammar, strlen(grammar)) != QN_OK) fail_msg("%s: %s", grammar, m.error.text);
    char is = judge(&m, text, strlen(text));
    if (is != want) fail_msg("%s: '%s' is judged '%c', should be '%c'", grammar, text, is, want);
    drop(&m);
}

static void grammars_accept_what_they_say(void **state) {
    (void)state;
    expect("root ::= \"ab\"", "ab", 'y');
    expect("root ::= \"ab\"", "a", 'p');
    expect("root ::= \"ab\"", "abc", 'n');
    expect("root ::= \"a\" | \"b\" |\n \"c\"", "c", 'y');
    expect("root ::= (\"a\"\n \"b\")", "ab", 'y');
    expect("root ::= x y # words\n\n# more\nx ::= \"1\"\ny ::= \"2\"", "12", 'y');
    expect("root ::= [a-c]+", "abccba", 'y');
    expect("root ::= [^a-c]+", "xyz\xC3\xA9", 'y');
    expect("root ::= [^a-c]+", "xa", 'n');
    expect("root ::= [\xC3\xA9-\xE4\xB8\xAD]", "\xE0\xA0\x80", 'y');
    expect("root ::= [\xC3\xA9-\xE4\xB8\xAD]", "\xE4\xB8\xAE", 'n');
    expect("root ::= [\\u4e2d\\x41]", "A", 'y');
    expect("root ::= \"\\U0001F600\"", "\xF0\x9F\x98\x80", 'y');
    expect("root ::= .", "\xF0\x9F\x98\x80", 'y');
    expect("root ::= .", "\xF0\x9F\x98", 'p');
    expect("root ::= .", "\xFF", 'n');
    expect("root ::= \"a\"{2,3}", "a", 'p');
    expect("root ::= \"a\"{2,3}", "aaa", 'y');
    expect("root ::= \"a\"{2,3}", "aaaa", 'n');
    expect("root ::= \"a\"{,2}", "", 'y');
    expect("root ::= \"ab\"{2}", "abab", 'y');
    expect("root ::= \"ab\"{2,}", "abababab", 'y');
    expect("root ::= \"\"", "", 'y');
    expect("root ::= [\\]\\[\\-\\\\\"]+", "[]-\\\"", 'y');
    expect("root ::= \"\\\"\\\\\\n\"", "\"\\\n", 'y');
    expect("root ::= \"a\" root \"b\" | \"\"", "aaabbb", 'y');
    expect("root ::= \"a\" root \"b\" | \"\"", "aaabb", 'p');
    expect("root ::= root \"+\" [0-9] | [0-9]", "1+2+3", 'y'); /* calls itself first */
    expect("root ::= root | \"a\"", "a", 'y');
    expect("root ::= x* \"c\"\nx ::= \"a\"? | \"b\"*", "abbac", 'y');
}

static void faults_name_their_place(void **state) {
    (void)state;
    static const char *const FAULTS[][2] = {{"root ::= x", "'x' is used and not defined"},
                                            {"", "'root' is used and not defined"},
                                            {"root = \"a\"", "1:6: '::=' is missing"},
                                            {"root ::= \"a", "1:10: a literal without its end"},
                                            {"root ::= [a", "1:10: a class without its end"},
                                            {"root ::= (\"a\"", "1:10: a '(' without its ')'"},
                                            {"root ::= \"a\"\nroot ::= \"b\"", "2:1: a rule that is there already"},
                                            {"root ::= [z-a]", "1:10: a class with a range that runs backwards"},
                                            {"root ::= \"a\"{3,2}", "1:13: repetitions with the greater number first"},
                                            {"root ::= \"a\"{99999999}", "more than 65536 repetitions"},
                                            {"root ::= \"\\q\"", "an escape that is not known"},
                                            {"root ::= \"\\x4\"", "too few hexadecimal digits"},
                                            {"root ::= \"\\ud800\"", "names no character"},
                                            {"root ::= \"\xFF\"", "no UTF-8"},
                                            {"root ::= \"a\" )", "1:14: nothing that can stand in a rule"},
                                            {"root ::= <think>", "no vocabulary"},
                                            {"root ::= \"a\" !", "'!' stands before tokens only"}};
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        machine m;
        assert_int_not_equal(build(&m, FAULTS[i][0], strlen(FAULTS[i][0])), QN_OK);
        if (!strstr(m.error.text, FAULTS[i][1])) fail_msg("%s: '%s', should hold '%s'", FAULTS[i][0], m.error.text, FAULTS[i][1]);
        drop(&m);
    }
    char deep[5000] = "root ::= ";
    memset(deep + 9, '(', 4000);
    machine m;
    assert_int_equal(build(&m, deep, 4009), QN_INVALID);
    assert_non_null(strstr(m.error.text, "too deeply"));
    drop(&m);
    size_t n = (size_t)sprintf(deep, "root ::= ");
    for (int i = 0; i < 17; i++) n += (size_t)sprintf(deep + n, "\"a\"{65536} ");
    assert_int_equal(build(&m, deep, n), QN_INVALID);
    assert_non_null(strstr(m.error.text, "written out"));
    drop(&m);
    expect("root ::= ((x{9999}){9999}){9999}\nx ::= \"abc\"{9999}", "abcabcab", 'p'); /* each repetition is written out once */
}

/* ---- A slow recogniser: for each rule and place the set of places it can end at, until nothing changes. */

enum { LONGEST = 7, MOST_RULES = 6 };

typedef struct slow {
    const grammar_tree *tree;
    const char *text;
    size_t n;
    uint32_t ends[MOST_RULES][LONGEST + 1];
} slow;

static uint32_t slow_node(const slow *s, const tree_node *node, size_t at);

static uint32_t slow_after(const slow *s, const tree_node *node, uint32_t from) {
    uint32_t ends = 0;
    for (size_t i = 0; i <= s->n; i++)
        if (from >> i & 1) ends |= slow_node(s, node, i);
    return ends;
}

static uint32_t slow_node(const slow *s, const tree_node *node, size_t at) {
    uint32_t ends = 0, from = 1u << at;
    switch (node->kind) {
    case TREE_LITERAL:
        return at + node->n <= s->n && (node->n == 0 || memcmp(s->text + at, node->bytes, node->n) == 0) ? 1u << (at + node->n)
                                                                                                         : 0;
    case TREE_CLASS: {
        int in = 0;
        for (size_t i = 0; i < node->n && at < s->n; i++)
            in |= (uint32_t)s->text[at] >= node->range[i].low && (uint32_t)s->text[at] <= node->range[i].high;
        return at < s->n && in != node->inverted ? 1u << (at + 1) : 0;
    }
    case TREE_RULE: return s->ends[node->rule][at];
    case TREE_SEQUENCE:
        for (const tree_node *part = node->first; part; part = part->next) from = slow_after(s, part, from);
        return from;
    case TREE_CHOICE:
        for (const tree_node *part = node->first; part; part = part->next) ends |= slow_node(s, part, at);
        return ends;
    case TREE_REPEAT:
        for (int i = 0; i < node->least; i++) from = slow_after(s, node->first, from);
        ends = from;
        for (int i = node->least; (node->most < 0 || i < node->most) && i < node->least + 20; i++)
            ends |= from = slow_after(s, node->first, from);
        return ends;
    case TREE_TOKEN: break;
    }
    return 0;
}

static int slow_accepts(const grammar_tree *tree, const char *text, size_t n) {
    slow s = {.tree = tree, .text = text, .n = n};
    for (int changed = 1; changed;) {
        changed = 0;
        for (size_t r = 0; r < tree->rules.n; r++) {
            for (size_t at = 0; at <= n; at++) {
                uint32_t ends = s.ends[r][at] | slow_node(&s, tree->rules.at[r].body, at);
                changed |= ends != s.ends[r][at];
                s.ends[r][at] = ends;
            }
        }
    }
    return s.ends[0][0] >> n & 1;
}

static size_t random_expression(qn_rand *r, char *out, int depth) {
    static const char *const ATOMS[] = {"\"a\"", "\"b\"", "\"ab\"", "[ab]", "[^a]", "root", "x", "y", "\"\"", "z"};
    size_t n = 0;
    int parts = 1 + (int)(qn_rand_next(r) % 3);
    for (int i = 0; i < parts; i++) {
        if (i && qn_rand_next(r) % 3 == 0) n += (size_t)sprintf(out + n, "| ");
        if (depth < 2 && qn_rand_next(r) % 4 == 0) {
            n += (size_t)sprintf(out + n, "(");
            n += random_expression(r, out + n, depth + 1);
            n += (size_t)sprintf(out + n, ")");
        } else {
            n += (size_t)sprintf(out + n, "%s", ATOMS[qn_rand_next(r) % 10]);
        }
        static const char *const REPEATS[] = {"* ", "+ ", "? ", "{2} ", "{1,2} ", "{2,} "};
        n += (size_t)sprintf(out + n, "%s", qn_rand_next(r) % 3 ? " " : REPEATS[qn_rand_next(r) % 6]);
    }
    return n;
}

static void random_grammars_agree_with_the_slow_way(void **state) {
    (void)state;
    qn_rand rand = {1};
    int yes = 0, no = 0;
    for (int round = 0; round < 400; round++) {
        char text[2000];
        size_t n = 0;
        static const char *const NAMES[] = {"root", "x", "y", "z"};
        for (int i = 0; i < 4; i++) {
            n += (size_t)sprintf(text + n, "%s ::= ", NAMES[i]);
            n += random_expression(&rand, text + n, 0);
            n += (size_t)sprintf(text + n, "\n");
        }
        machine m;
        if (build(&m, text, n) != QN_OK) fail_msg("%s: %s", text, m.error.text);
        for (int length = 0; length <= LONGEST; length++) {
            for (int k = 0; k < 1 << length; k += length < 5 ? 1 : 1 + (int)(qn_rand_next(&rand) % 7)) {
                char word[LONGEST + 1];
                for (int i = 0; i < length; i++) word[i] = k >> i & 1 ? 'b' : 'a';
                int want = slow_accepts(&m.tree, word, (size_t)length);
                int is = judge(&m, word, (size_t)length) == 'y';
                if (is != want) fail_msg("%s'%.*s' is judged %d, should be %d", text, length, word, is, want);
                yes += want;
                no += !want;
            }
        }
        drop(&m);
    }
    assert_true(yes > 3000 && no > 3000); /* the test looked at both */
}

/* ---- No grammar makes them slow */

static void hard(const char *grammar, char letter, size_t n, char want) {
    machine m;
    char *text = malloc(n);
    assert_non_null(text);
    memset(text, letter, n);
    if (build(&m, grammar, strlen(grammar)) != QN_OK) fail_msg("%s: %s", grammar, m.error.text);
    assert_int_equal(judge(&m, text, n), want);
    drop(&m);
    free(text);
}

static void ambiguity_does_not_double(void **state) {
    (void)state;
    hard("root ::= \"a\" root p | \"a\" root q | \"\"\np ::= \"b\"?\nq ::= \"b\"?", 'a', 2000, 'y');
    hard("root ::= (\"a\"?)* (\"a\"?)* (\"a\"?)* \"b\"", 'a', 2000, 'p');
    hard("root ::= root root | \"a\"", 'a', 300, 'y');
    hard("root ::= x{0,500}\nx ::= \"a\"? \"a\"? \"a\"?", 'a', 1500, 'y');
    hard("root ::= ((((((\"a\"*)*)*)*)*)*)*", 'a', 5000, 'y');
    hard("root ::= \"a\" root | \"a\"", 'a', 20000, 'y');
    hard("root ::= \"a\" root?", 'a', 20000, 'y');
    hard("root ::= \"a\"? root? \"c\"?", 'a', 300, 'y');
}

/* As many repetitions as a grammar's text has room for, of what takes no state: they were written out one by one. */
static void empty_texts_repeated_cost_nothing(void **state) {
    (void)state;
    static const char *const PARTS[] = {"\"\"{65536} ", "\"\"{0,65536} ", "(\"\"{65536}){65536} ", "[]{65536} ", "[]{0,65536} "};
    expect("root ::= \"a\" \"\"{65536} \"b\"", "ab", 'y');
    expect("root ::= \"a\" \"\"{0,65536} \"b\"", "ab", 'y');
    expect("root ::= (\"\" | \"a\"){3} \"b\"", "aaab", 'y');
    expect("root ::= (\"\" | \"a\"){3} \"b\"", "aaaab", 'n');
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++) {
        enum { ROOM = 4 << 20 };
        size_t length = strlen(PARTS[i]), n = 9;
        machine m;
        char *text = malloc(ROOM);
        assert_non_null(text);
        memcpy(text, "root ::= ", n);
        for (; n + length <= ROOM; n += length) memcpy(text + n, PARTS[i], length);
        alarm(60); /* where each took its 65536 turns it were minutes */
        build(&m, text, n);
        alarm(0);
        drop(&m);
        free(text);
    }
}

/* ---- Vocabularies */

static const char *const WORDS[] = {"true", "false", "tr",       "ue",   "{\"", "\":", "12", "[[",
                                    "]]",   "null",  "\xC3\xA9", "\xC3", "ab",  "abc", ", "};
enum { N_WORDS = sizeof WORDS / sizeof *WORDS };

static text_grammar *grammar_over(const qn_tokenizer *t, qn_grammar_kind kind, const char *text) {
    text_grammar *g = NULL;
    qn_error error = {QN_OK, ""};
    if (qn_text_grammar_create(kind, (qn_text){text, strlen(text)}, t, &g, &error) != QN_OK) fail_msg("%s: %s", text, error.text);
    return g;
}

static const char JSON[] = "root ::= value\n"
                           "value ::= \"{\" ws (pair (\",\" ws pair)*)? \"}\" ws | \"[\" ws (value (\",\" ws value)*)? \"]\" ws "
                           "| string | number | (\"true\" | \"false\" | \"null\") ws\n"
                           "pair ::= string \":\" ws value\n"
                           "string ::= \"\\\"\" ([^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" [\"\\\\nrt])* \"\\\"\" ws\n"
                           "number ::= \"-\"? ([0-9] | [1-9] [0-9]{0,15}) (\".\" [0-9]+)? ws\n"
                           "ws ::= [ \\n]*";

static int allowed_bit(const uint32_t *allowed, int32_t id) { return allowed[id / 32] >> (id % 32) & 1; }

static void masks_agree_with_tokens_one_by_one(void **state) {
    (void)state;
    qn_tokenizer *t = small_vocab(WORDS, N_WORDS);
    assert_non_null(t);
    qn_rand rand = {5};
    const char *grammars[] = {JSON, "root ::= [^x]* \"x\"", "root ::= <think> (!</s>){0,3} \"ab\"* | \"abc\" .",
                              "root ::= (\"a\" \"b\"? | \"tr\" | \"ue\")+"};
    int steps = 0;
    for (int round = 0; round < 40; round++) {
        text_grammar *g = grammar_over(t, QN_GRAMMAR_GBNF, grammars[round % 4]);
        for (int i = 0; i < 30; i++) {
            const uint32_t *allowed;
            qn_error error;
            int32_t open[SMALL_WORDS + N_WORDS];
            size_t n = 0;
            assert_int_equal(qn_text_grammar_mask(g, SMALL_WORDS + N_WORDS, &allowed, &error), QN_OK);
            for (int32_t id = 0; id < SMALL_WORDS + N_WORDS; id++) {
                if (allowed_bit(allowed, id)) open[n++] = id;
                if (allowed_bit(allowed, id) != qn_text_grammar_allows(g, id))
                    fail_msg("round %d, step %d, token %d", round, i, id);
                if (!allowed_bit(allowed, id)) assert_int_equal(qn_text_grammar_accept(g, id, &error), QN_INVALID);
            }
            if (!n) break;
            int32_t id = open[qn_rand_next(&rand) % n];
            assert_int_equal(qn_text_grammar_accept(g, id, &error), QN_OK);
            steps++;
            if (id == SMALL_END && qn_text_grammar_allows(g, SMALL_END) && !qn_text_grammar_allows(g, SMALL_BYTES + 'a')) break;
        }
        qn_text_grammar_destroy(g);
    }
    assert_true(steps > 300);
    qn_tokenizer_destroy(t);
}

static void long_runs_are_tidied(void **state) {
    (void)state;
    qn_tokenizer *t = small_vocab(WORDS, N_WORDS);
    text_grammar *g = grammar_over(
        t, QN_GRAMMAR_GBNF,
        "root ::= (\"a\" \"b\"){0,9000} list?\nlist ::= \"[\" list \"]\" | \"x\""); /* a new set at each step */
    qn_error error;
    for (int i = 0; i < 9000; i++) {
        assert_int_equal(qn_text_grammar_accept(g, SMALL_BYTES + 'a', &error), QN_OK);
        assert_false(qn_text_grammar_allows(g, SMALL_END));
        assert_int_equal(qn_text_grammar_accept(g, SMALL_BYTES + 'b', &error), QN_OK);
    }
    assert_false(qn_text_grammar_allows(g, SMALL_BYTES + 'a'));
    for (int i = 0; i < 3000; i++) assert_int_equal(qn_text_grammar_accept(g, SMALL_BYTES + '[', &error), QN_OK);
    assert_int_equal(qn_text_grammar_accept(g, SMALL_BYTES + 'x', &error), QN_OK);
    for (int i = 0; i < 3000; i++) {
        assert_false(qn_text_grammar_allows(g, SMALL_END));
        assert_int_equal(qn_text_grammar_accept(g, SMALL_BYTES + ']', &error), QN_OK);
    }
    assert_false(qn_text_grammar_allows(g, SMALL_BYTES + ']'));
    assert_true(qn_text_grammar_allows(g, SMALL_END));
    qn_text_grammar_destroy(g);
    qn_tokenizer_destroy(t);
}

static void samplers_follow_grammars(void **state) {
    (void)state;
    qn_tokenizer *t = small_vocab(WORDS, N_WORDS);
    float logits[SMALL_WORDS + N_WORDS];
    const char grammar[] = "root ::= \"true\" | \"ab\" \"c\"?";
    qn_text text = {grammar, sizeof grammar - 1};
    qn_sampler_options o = qn_sampler_options_default();
    o.grammar_kind = QN_GRAMMAR_GBNF;
    o.grammar = &text;
    o.tokenizer = t;
    qn_sampler *s = NULL;
    qn_error error = {QN_OK, ""};
    assert_int_equal(qn_sampler_create(&o, &s, &error), QN_OK);
    for (int i = 0; i < SMALL_WORDS + N_WORDS; i++) logits[i] = i == SMALL_BYTES + 'z' ? 50.0f : (float)(i % 13) * 0.1f;
    char out[32];
    size_t n = 0;
    int32_t id = -1;
    while (n < 20) {
        assert_int_equal(qn_sampler_pick(s, logits, SMALL_WORDS + N_WORDS, &id, &error), QN_OK);
        assert_int_equal(qn_sampler_accept(s, id, 0, &error), QN_OK);
        if (id == SMALL_END) break;
        qn_token_info info = {.size = sizeof info};
        assert_int_equal(qn_tokenizer_token(t, id, &info), QN_OK);
        memcpy(out + n, info.piece.at, info.piece.length);
        n += info.piece.length;
    }
    out[n] = 0;
    assert_int_equal(id, SMALL_END);
    assert_true(strcmp(out, "true") == 0 || strcmp(out, "ab") == 0 || strcmp(out, "abc") == 0);
    assert_int_equal(qn_sampler_accept(s, SMALL_BYTES + 'z', 0, &error), QN_INVALID);
    assert_int_equal(qn_sampler_accept(s, SMALL_BYTES + 'z', QN_ACCEPT_PROMPT, &error), QN_OK);
    qn_sampler_destroy(s);
    text.length = 5;
    assert_int_equal(qn_sampler_create(&o, &s, &error), QN_INVALID);
    o.tokenizer = NULL;
    assert_int_equal(qn_sampler_create(&o, &s, &error), QN_ARGUMENT);
    qn_tokenizer_destroy(t);
}

/* Each reset lets the whole text be written again: after one that ended, one cut short, and one so long that places were tidied. */
static void a_reset_sampler_begins_its_grammar_anew(void **state) {
    (void)state;
    qn_tokenizer *t = small_vocab(WORDS, N_WORDS);
    const char grammar[] = "root ::= (\"a\" \"b\"){0,9000} \"c\"";
    qn_text text = {grammar, sizeof grammar - 1};
    qn_sampler_options o = qn_sampler_options_default();
    o.grammar_kind = QN_GRAMMAR_GBNF;
    o.grammar = &text;
    o.tokenizer = t;
    qn_sampler *s = NULL;
    qn_error error = {QN_OK, ""};
    assert_int_equal(qn_sampler_create(&o, &s, &error), QN_OK);
    static const int PAIRS[] = {0, 3, 9000, 2, 5000, 1, 9000};
    for (size_t i = 0; i < sizeof PAIRS / sizeof *PAIRS; i++) {
        for (int k = 0; k < PAIRS[i]; k++) {
            assert_int_equal(qn_sampler_accept(s, SMALL_BYTES + 'a', 0, &error), QN_OK);
            assert_int_equal(qn_sampler_accept(s, SMALL_BYTES + 'b', 0, &error), QN_OK);
        }
        if (i % 2 == 0) {
            assert_int_equal(qn_sampler_accept(s, SMALL_BYTES + 'c', 0, &error), QN_OK);
            assert_int_equal(qn_sampler_accept(s, SMALL_END, 0, &error), QN_OK);
            assert_int_equal(qn_sampler_accept(s, SMALL_BYTES + 'a', 0, &error), QN_INVALID); /* it stands at its end */
        }
        assert_int_equal(qn_sampler_reset(s, &error), QN_OK);
        assert_int_equal(qn_sampler_accept(s, SMALL_BYTES + 'b', 0, &error), QN_INVALID); /* and now at its beginning */
    }
    qn_sampler_destroy(s);
    qn_tokenizer_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(grammars_accept_what_they_say),
                                       cmocka_unit_test(faults_name_their_place),
                                       cmocka_unit_test(random_grammars_agree_with_the_slow_way),
                                       cmocka_unit_test(ambiguity_does_not_double),
                                       cmocka_unit_test(empty_texts_repeated_cost_nothing),
                                       cmocka_unit_test(masks_agree_with_tokens_one_by_one),
                                       cmocka_unit_test(long_runs_are_tidied),
                                       cmocka_unit_test(samplers_follow_grammars),
                                       cmocka_unit_test(a_reset_sampler_begins_its_grammar_anew)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
