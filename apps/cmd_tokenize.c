/* quern tokenize: a text as the model sees it; and embed: a text as one vector. */
#include <math.h>

#include "lm.h"

typedef struct text_words {
    const char *text, *file, *pooling;
    int ids, no_bos, no_special, count, json;
    lm_words lm;
} text_words;

static void print_token(const qn_tokenizer *t, int32_t id) {
    qn_token_info info = {.size = sizeof info};
    printf("%6d  ", id);
    if (qn_tokenizer_token(t, id, &info) == QN_OK) model_print_text(info.piece.at, info.piece.length, 200);
    putchar('\n');
}

static char *take_text(const lm *l, const text_words *w, size_t *length) {
    if (!w->text) return lm_read_file(l, w->file ? w->file : "-", length);
    char *copy = malloc((*length = strlen(w->text)) + 1);
    if (copy) memcpy(copy, w->text, *length + 1);
    else model_fail(l->verb, "no memory for a text");
    return copy;
}

static int check_text(const char *who, const text_words *w) {
    if (w->text && w->file) return app_apart(who, "-p", "-f");
    return app_is_empty(who, "the text's file", w->file) ? APP_USAGE : APP_OK;
}

static int print_tokens(lm *l, const text_words *w) {
    const qn_tokenizer *t;
    size_t length, n;
    if (lm_tokenizer(l, &t) != APP_OK) return APP_FAILED;
    char *text = take_text(l, w, &length);
    if (!text) return APP_FAILED;
    int32_t *ids = lm_encode(l, t, text, length, (w->no_bos ? 0 : QN_ENCODE_MODEL) | (w->no_special ? 0 : QN_ENCODE_SPECIAL), &n);
    if (ids && w->count) printf("%zu\n", n);
    for (size_t i = 0; ids && !w->count && i < n; i++) {
        if (w->ids) printf(i + 1 < n ? "%d " : "%d", ids[i]);
        else print_token(t, ids[i]);
    }
    if (ids && w->ids && !w->count) putchar('\n');
    int rc = ids ? APP_OK : APP_FAILED;
    free(ids);
    free(text);
    return rc;
}

static const option_row tokenize_rows[] = {
    OPTION(text_words, lm.word, "MODEL.gguf", NULL, NULL, .files = "gguf"),
    OPTION(text_words, lm.model, "-m, --model", "FILE", "the model, a GGUF file; -m may be left out", .files = "gguf"),
    OPTION(text_words, text, "-p, --prompt", "TEXT", "the text (default: standard input)"),
    OPTION(text_words, file, "-f, --file", "FILE", "the same from a file", .files = "*"),
    OPTION(text_words, ids, "--ids", NULL, "print the numbers alone, in one line"),
    OPTION(text_words, count, "--count", NULL, "print only how many there are"),
    OPTION(text_words, no_bos, "--no-bos", NULL, "leave out the tokens that the model wants around a text"),
    OPTION(text_words, no_special, "--no-parse-special", NULL, "special tokens written out, such as <s>, are text"),
    OPTION(text_words, lm.no_map, "--no-mmap", NULL, "read the model into memory instead of mapping its file"),
    {0}};
static const option_group tokenize_groups[] = {{NULL, tokenize_rows, 0}, {0}};

static int run_tokenize(const quern_verb *self, int argc, char **argv) {
    text_words w = {0};
    lm l;
    int rc = lm_read(self, argc, argv, &w, &w.lm);
    if (rc != APP_OK) return rc;
    if (w.ids && w.count) return app_apart("quern tokenize", "--ids", "--count");
    rc = check_text("quern tokenize", &w);
    if (rc != APP_OK) return rc;
    model_catch_stop_reading();
    rc = lm_open_vocabulary(&l, "tokenize", &w.lm);
    if (rc == APP_OK) rc = print_tokens(&l, &w);
    return lm_close(&l, rc);
}

const quern_verb verb_tokenize = {.name = "tokenize",
                                  .brief = "print the tokens of a text",
                                  .run = run_tokenize,
                                  .usage = "-m MODEL.gguf [-p TEXT | -f FILE] [options]",
                                  .about = "Prints the tokens of a text as the model sees it, a line each: number and piece.",
                                  .groups = tokenize_groups,
                                  .needs = "models"};

/* ---- embed */

enum { POOL_MEAN = 1, POOL_CLS = 2, POOL_LAST = 3 };

static int pooling_of(const lm *l, const char *word) {
    static const char *const names[] = {"none", "mean", "cls", "last"};
    char key[96];
    qn_file_value v;
    for (int i = 1; word && i < 4; i++)
        if (strcmp(word, names[i]) == 0) return i;
    if (word) return -1;
    snprintf(key, sizeof key, "%s.pooling_type", l->info.architecture);
    if (qn_file_key(l->info.file, qn_file_find(l->info.file, QN_FILE_KEYS, key), &v) == QN_OK && v.integer >= 1 && v.integer <= 3)
        return (int)v.integer;
    return POOL_MEAN;
}

static void print_vector(const double *sum, int width, double length, int json) {
    if (json) putchar('[');
    for (int i = 0; i < width; i++) printf(json ? (i ? ", %.9g" : "%.9g") : "%.9g\n", sum[i] / length);
    if (json) puts("]");
}

static int pool_rows(const lm *l, int kind, size_t n, const text_words *w) {
    int width = l->info.n_embd;
    double *sum = calloc((size_t)width, sizeof *sum), length = 0;
    if (!sum) return model_fail("embed", "no memory for a vector");
    for (size_t i = 0; i < n; i++) {
        const float *row = qn_session_result(l->session, 0, (int32_t)i);
        int counts = kind == POOL_MEAN || (kind == POOL_CLS ? i == 0 : i + 1 == n);
        for (int k = 0; counts && k < width; k++) sum[k] += (double)row[k] / (kind == POOL_MEAN ? (double)n : 1);
    }
    for (int k = 0; k < width; k++) length += sum[k] * sum[k];
    print_vector(sum, width, w->no_special || length == 0 ? 1 : sqrt(length), w->json);
    free(sum);
    return APP_OK;
}

static int embed(lm *l, const text_words *w) {
    const qn_tokenizer *t;
    qn_error error;
    size_t length, n = 0;
    int kind = pooling_of(l, w->pooling);
    if (kind < 0) return model_fail("embed", "--pooling is mean, cls or last"), APP_USAGE;
    if (!l->info.is_encoder) return model_fail("embed", "this model makes text; an encoder such as bert gives embeddings");
    if (lm_tokenizer(l, &t) != APP_OK) return APP_FAILED;
    char *text = take_text(l, w, &length);
    int32_t *ids = text ? lm_encode(l, t, text, length, QN_ENCODE_MODEL, &n) : NULL;
    int rc = ids ? APP_OK : APP_FAILED;
    if (rc == APP_OK && !l->options.batch) l->options.batch = (int32_t)(n < 1 ? 1 : n);
    if (rc == APP_OK) rc = lm_session(l);
    qn_session_part part = {0, (int32_t)n, ids, 1};
    if (rc == APP_OK && qn_session_run(l->session, &part, 1, &error) != QN_OK) rc = lm_fail(l, &error);
    if (rc == APP_OK) rc = pool_rows(l, kind, n, w);
    free(ids);
    free(text);
    return rc;
}

static const option_row embed_rows[] = {
    OPTION(text_words, text, "-p, --prompt", "TEXT", "the text (default: standard input)"),
    OPTION(text_words, file, "-f, --file", "FILE", "the same from a file", .files = "*"),
    OPTION(text_words, pooling, "--pooling", "mean|cls|last", "which vector (default: what the model's file says, else mean)"),
    OPTION(text_words, no_special, "--no-normalize", NULL, "leave the vector's length as it is"),
    OPTION(text_words, json, "--json", NULL, "print a JSON list"),
    {0}};
static const option_group embed_groups[] = {
    {NULL, embed_rows, 0}, {"The model and how it runs", lm_rows, offsetof(text_words, lm)}, {0}};

static int run_embed(const quern_verb *self, int argc, char **argv) {
    text_words w = {0};
    lm l;
    int rc = lm_read(self, argc, argv, &w, &w.lm);
    if (rc == APP_OK) rc = check_text("quern embed", &w);
    if (rc != APP_OK) return rc;
    model_catch_stop_reading();
    rc = lm_open(&l, "embed", &w.lm);
    if (rc == APP_OK) rc = lm_prepare(&l, &w.lm);
    if (rc == APP_OK) rc = embed(&l, &w);
    return lm_close(&l, rc);
}

const quern_verb verb_embed = {
    .name = "embed",
    .brief = "print the embedding of a text",
    .run = run_embed,
    .usage = "-m MODEL.gguf [-p TEXT | -f FILE] [options]",
    .about = "Prints the embedding of a text, a number a line: the mean of its tokens' vectors, of length 1. It takes an "
             "encoder such as bert.",
    .groups = embed_groups,
    .needs = "models"};
