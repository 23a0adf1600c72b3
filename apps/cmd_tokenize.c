/* quern tokenize: a text as the model sees it; and embed: a text as one vector. */
#include <math.h>

#include "lm.h"

static const char tokenize_help[] = "usage: quern tokenize FILE [-p TEXT | -f FILE] [--ids] [--no-bos]\n"
                                    "Prints the tokens of a text, a line each: number and piece.\n"
                                    "  -p, --prompt TEXT       the text (default: standard input)\n"
                                    "  -f, --file FILE         the same from a file\n"
                                    "  --ids                   numbers alone, in one line\n"
                                    "  --no-bos                without the tokens the model wants around a text\n"
                                    "  --no-parse-special      <s> and its like are text\n"
                                    "  --count                 only how many\n"
                                    "  --no-mmap               read the model into memory instead of mapping its file\n";

typedef struct text_words {
    const char *text, *file, *normalise, *pooling;
    int ids, no_bos, no_special, count, json;
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

int cmd_tokenize(int argc, char **argv) {
    lm_words words = {0};
    text_words w = {0};
    lm l;
    const model_flag flags[] = {{"-m", &words.model, NULL, 0},
                                {"--model", &words.model, NULL, 0},
                                {"-p", &w.text, NULL, 0},
                                {"--prompt", &w.text, NULL, 0},
                                {"-f", &w.file, NULL, 0},
                                {"--file", &w.file, NULL, 0},
                                {"--ids", NULL, &w.ids, 0},
                                {"--no-bos", NULL, &w.no_bos, 0},
                                {"--no-parse-special", NULL, &w.no_special, 0},
                                {"--count", NULL, &w.count, 0},
                                {"--no-mmap", NULL, &words.no_map, 0}};
    int rc = lm_options(argc, argv, tokenize_help, flags, sizeof flags / sizeof *flags, &words);
    if (rc != APP_OK) return rc < 0 ? APP_OK : rc;
    if (w.ids && w.count) return app_apart("quern tokenize", "--ids", "--count");
    rc = check_text("quern tokenize", &w);
    if (rc != APP_OK) return rc;
    model_catch_stop_reading();
    rc = lm_open_vocabulary(&l, "tokenize", &words);
    if (rc == APP_OK) rc = print_tokens(&l, &w);
    return lm_close(&l, rc);
}

/* ---- embed */

static const char
    embed_help[] = "usage: quern embed FILE [-p TEXT | -f FILE]\n"
                   "Prints the embedding of a text, a number a line: the mean of its tokens' vectors, of length 1.\n"
                   "  --pooling mean|cls|last     which (default: what the model's file says, else mean)\n"
                   "  --no-normalize              leave the length as it is\n"
                   "  --json                      as a JSON list\n" LM_HELP;

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

int cmd_embed(int argc, char **argv) {
    const char *folder = app_profile_option(&argc, argv);
    lm_words words = {0};
    text_words w = {0};
    lm l;
    const model_flag flags[] = {LM_FLAGS(words),
                                {"-p", &w.text, NULL, 0},
                                {"--prompt", &w.text, NULL, 0},
                                {"-f", &w.file, NULL, 0},
                                {"--file", &w.file, NULL, 0},
                                {"--pooling", &w.pooling, NULL, 0},
                                {"--no-normalize", NULL, &w.no_special, 0},
                                {"--json", NULL, &w.json, 0}};
    int rc = lm_options(argc, argv, embed_help, flags, sizeof flags / sizeof *flags, &words);
    if (rc != APP_OK) return rc < 0 ? APP_OK : rc;
    rc = check_text("quern embed", &w);
    if (rc != APP_OK) return rc;
    model_catch_stop_reading();
    rc = lm_open(&l, "embed", &words);
    if (rc == APP_OK) rc = lm_prepare(&l, &words, folder);
    if (rc == APP_OK) rc = embed(&l, &w);
    return lm_close(&l, rc);
}
