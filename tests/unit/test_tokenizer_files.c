/* Real vocabularies: every text of each NAME.gguf.inp gives the ids of NAME.gguf.out, and those ids give the text back, at
 * once and piece by piece. A folder other than the shared one can be named in QUERN_VOCAB. */
#include <dirent.h>

#include "libraries.h"
#include "vocab_help.h"

static const char SEPARATOR[] = "\n__ggml_vocab_test__\n";

typedef struct tally {
    int files, texts;
} tally;

/* Piece by piece, in steps of one id: whole characters only, and the same bytes in the end. */
static void decode_in_pieces(const qn_tokenizer *t, const int32_t *ids, size_t n, const char *want, size_t length) {
    qn_decode_state state = {{0}};
    char text[8192];
    size_t at = 0;
    qn_error error;
    for (size_t i = 0; i <= n; i++) {
        size_t size = 0;
        qn_status status = qn_tokenizer_decode(t, ids + (i < n ? i : 0), i < n, i < n ? 0 : QN_DECODE_END, &state, text + at,
                                               sizeof text - at, &size, &error);
        assert_int_equal(status, QN_OK);
        if (size) assert_int_not_equal((unsigned char)text[at] & 0xC0, 0x80);
        at += size;
    }
    assert_int_equal(at, length);
    assert_memory_equal(text, want, length);
}

static void check_round_trip(const qn_tokenizer *t, const int32_t *ids, size_t n, const char *text, size_t length) {
    char back[8192];
    size_t size = 0, again_n = 0;
    int32_t again[4096];
    qn_error error;
    qn_tokenizer_info info = {.size = sizeof info};
    assert_int_equal(qn_tokenizer_describe(t, &info), QN_OK);
    int lossy = strcmp(info.model, "bert") == 0; /* lower case, no accents: the ids come back, the text does not */
    assert_int_equal(qn_tokenizer_decode(t, ids, n, QN_DECODE_SPECIAL, NULL, back, sizeof back, &size, &error), QN_OK);
    if (lossy) {
        assert_int_equal(qn_tokenizer_encode(t, back, size, QN_ENCODE_SPECIAL, again, 4096, &again_n, &error), QN_OK);
        assert_int_equal(again_n, n);
        assert_memory_equal(again, ids, n * sizeof *ids);
        return;
    }
    assert_int_equal(size, length);
    assert_memory_equal(back, text, length);
    decode_in_pieces(t, ids, n, text, length);
}

static void check_text(const qn_tokenizer *t, const char *text, size_t length, const char *line, const char *path) {
    int32_t ids[4096];
    size_t n = 0, want_n = 0;
    qn_error error = {QN_OK, ""};
    if (qn_tokenizer_encode(t, text, length, 0, ids, 4096, &n, &error) != QN_OK) fail_msg("%s: %s", path, error.text);
    for (char *end;; line = end, want_n++) {
        long id = strtol(line, &end, 10);
        if (end == line) break;
        if (want_n < n && id != ids[want_n])
            fail_msg("%s: '%.*s': id %zu is %d, should be %ld", path, (int)length, text, want_n, ids[want_n], id);
    }
    if (n != want_n) fail_msg("%s: '%.*s' gives %zu ids, should give %zu", path, (int)length, text, n, want_n);
    check_round_trip(t, ids, n, text, length);
}

static void check_file(const char *path, tally *sum) {
    char name[1100];
    size_t n_inp = 0, n_out = 0;
    file_vocab v;
    qn_tokenizer *t = NULL;
    qn_error error = {QN_OK, ""};
    snprintf(name, sizeof name, "%s.inp", path);
    char *inp = vocab_slurp(name, &n_inp);
    snprintf(name, sizeof name, "%s.out", path);
    char *out = vocab_slurp(name, &n_out), *line = out;
    if (!inp || !out) {
        free(inp);
        free(out);
        return;
    }
    inp[n_inp] = out[n_out] = 0;
    assert_true(vocab_open(&v, path));
    qn_status status = qn_tokenizer_create(&v.source, &t, &error);
    int lacks = status == QN_UNSUPPORTED && !(HAVE_PCRE2 && HAVE_UTF8PROC) && strstr(error.text, "this build was made without");
    if (lacks) print_message("not tested: %s: %s\n", path, error.text);
    else if (status != QN_OK) fail_msg("%s: %s", path, error.text);
    vocab_close(&v); /* the tokenizer has copied what it needs */
    if (lacks) {
        free(inp);
        free(out);
        return;
    }
    for (char *text = inp, *next; text; text = next) {
        next = strstr(text, SEPARATOR);
        char *end = line ? strchr(line, '\n') : NULL;
        if (end) *end = 0;
        size_t length = next ? (size_t)(next - text) : strlen(text);
        if (!next && length && text[length - 1] == '\n') length--; /* the line behind the last text */
        if (!next && length == 0 && !end) break;
        check_text(t, text, length, line ? line : "", path);
        sum->texts++;
        if (next) next += sizeof SEPARATOR - 1;
        line = end ? end + 1 : NULL;
    }
    sum->files++;
    qn_tokenizer_destroy(t);
    free(inp);
    free(out);
}

static void every_text_gives_its_ids_and_comes_back(void **state) {
    (void)state;
    const char *folder = getenv("QUERN_VOCAB") ? getenv("QUERN_VOCAB") : "../shared/data/vocab";
    DIR *d = opendir(folder);
    tally sum = {0, 0};
    if (!d) {
        print_message("no %s here: real vocabularies are not tested\n", folder);
        skip();
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[1024];
        size_t n = strlen(e->d_name);
        if (n < 6 || strcmp(e->d_name + n - 5, ".gguf") != 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        check_file(path, &sum);
    }
    closedir(d);
    print_message("%d vocabularies, %d texts\n", sum.files, sum.texts);
    assert_true(sum.files > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_text_gives_its_ids_and_comes_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
