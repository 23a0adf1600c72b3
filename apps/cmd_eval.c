/* quern eval: how well a model predicts a text, or the raw numbers it gives for one sequence of tokens. */
#include <errno.h>
#include <math.h>
#include <sys/stat.h>

#include "lm.h"

typedef struct eval_words {
    const char *file, *text, *ids, *logits, *chunks;
    lm_words lm;
} eval_words;

/* ---- Raw logits */

static int32_t *parse_ids(const lm *l, const char *text, size_t *n) {
    size_t room = strlen(text) / 2 + 1;
    int32_t *ids = calloc(room, sizeof *ids);
    const char *at = text;
    *n = 0;
    while (ids) {
        char *end;
        at += strspn(at, " ,\t\n");
        if (!*at) return ids;
        errno = 0;
        long id = strtol(at, &end, 10);
        if (end == at || errno || id < 0 || id > INT32_MAX || !strchr(" ,\t\n", *end)) break;
        ids[(*n)++] = (int32_t)id;
        at = end;
    }
    fprintf(stderr, "quern %s: --ids takes numbers with spaces between, not '%.20s'\n", l->verb, at);
    free(ids);
    return NULL;
}

static int write_rows(const lm *l, const char *path, size_t n) {
    size_t width = (size_t)(l->info.is_encoder ? l->info.n_embd : l->info.n_vocab);
    FILE *file = fopen(path, "wb");
    int ok = file != NULL;
    for (size_t i = 0; ok && i < n; i++)
        ok = fwrite(qn_session_result(l->session, 0, (int32_t)i), sizeof(float), width, file) == width;
    if (file && fclose(file) != 0) ok = 0;
    if (ok) return APP_OK;
    fprintf(stderr, "quern eval: %s cannot be written: %s\n", path, strerror(errno));
    struct stat there; /* half a file is removed; a device or a pipe is not ours to remove */
    if (file && stat(path, &there) == 0 && S_ISREG(there.st_mode)) remove(path);
    return APP_FAILED;
}

static int run_ids(lm *l, const eval_words *w) {
    qn_error error;
    size_t n;
    int32_t *ids = parse_ids(l, w->ids, &n);
    if (!ids) return APP_USAGE;
    if (!n) return free(ids), model_fail("eval", "--ids names no token");
    if (!l->options.context) l->options.context = n > (size_t)l->info.context ? (int64_t)n : 0;
    if (l->info.is_encoder && !l->options.batch) l->options.batch = (int32_t)n;
    int rc = lm_session(l);
    qn_session_part part = {0, (int32_t)n, ids, 1};
    if (rc == APP_OK && qn_session_run(l->session, &part, 1, &error) != QN_OK) rc = lm_fail(l, &error);
    if (rc == APP_OK && w->logits) rc = write_rows(l, w->logits, n);
    const float *last = rc == APP_OK ? qn_session_result(l->session, 0, -1) : NULL;
    if (last && !w->logits && l->info.is_encoder)
        printf("%zu token%s, each a vector of %d numbers; --logits FILE writes them\n", n, app_s((int64_t)n), l->info.n_embd);
    else if (last && !w->logits) {
        int best = 0;
        for (int i = 1; i < l->info.n_vocab; i++)
            if (last[i] > last[best]) best = i;
        printf("%zu token%s; the likeliest next is %d with a logit of %.6g\n", n, app_s((int64_t)n), best, (double)last[best]);
    }
    free(ids);
    return rc;
}

/* ---- Perplexity: windows that do not overlap, of each the second half counted, so that every token counted has something before it */

enum { LEAST_WINDOW = 3 }; /* of two tokens the second half is one, with nothing behind it */

typedef struct tally {
    double sum, squares;
    int64_t n;
} tally;

/* A window is run in pieces, so that no more logits than those of a piece are kept. */
static int run_window(lm *l, const int32_t *ids, int64_t window, tally *t, qn_error *error) {
    enum { PIECE = 128 };
    qn_session_cut(l->session, 0, 0, error);
    for (int64_t at = 0; at < window; at += PIECE) {
        int32_t n = (int32_t)(window - at < PIECE ? window - at : PIECE);
        qn_session_part part = {0, n, ids + at, at + n > window / 2};
        if (qn_session_run(l->session, &part, 1, error) != QN_OK) return lm_fail(l, error);
        for (int64_t i = at; i < at + n; i++) {
            if (i < window / 2 || i + 1 >= window) continue;
            double s = lm_surprise(qn_session_result(l->session, 0, (int32_t)(i - at)), l->info.n_vocab, ids[i + 1]);
            t->sum += s;
            t->squares += s * s;
            t->n++;
        }
    }
    return APP_OK;
}

static int run_perplexity(lm *l, const int32_t *ids, size_t n, int64_t chunks) {
    qn_error error;
    int64_t window = l->options.context      ? l->options.context
                     : l->info.context < 512 ? l->info.context
                                             : 512,
            count = (int64_t)n / window;
    tally t = {0, 0, 0};
    if (window < LEAST_WINDOW) {
        fprintf(stderr, "quern eval: a window of %lld token%s has none to predict; -c takes %d or more\n", (long long)window,
                app_s(window), LEAST_WINDOW);
        return l->options.context ? APP_USAGE : APP_FAILED;
    }
    if (count < 1) {
        fprintf(stderr, "quern eval: the text has %zu token%s, a window takes %lld; -c makes it shorter\n", n, app_s((int64_t)n),
                (long long)window);
        return APP_FAILED;
    }
    if (chunks > 0 && chunks < count) count = chunks;
    l->options.context = window;
    int rc = lm_session(l);
    for (int64_t c = 0; c < count && rc == APP_OK; c++) {
        rc = run_window(l, ids + c * window, window, &t, &error);
        model_progress("windows", (uint64_t)(c + 1), (uint64_t)count);
        if (*model_stopped()) rc = MODEL_INTERRUPTED;
    }
    model_progress_end();
    if (rc != APP_OK) return rc;
    double mean = t.sum / (double)t.n, spread = sqrt(fmax(0, t.squares / (double)t.n - mean * mean) / (double)t.n);
    printf("perplexity %.4f +/- %.4f over %lld token%s in %lld window%s of %lld\n", exp(mean), exp(mean) * spread, (long long)t.n,
           app_s(t.n), (long long)count, app_s(count), (long long)window);
    return rc;
}

static int run_text(lm *l, const eval_words *w) {
    const qn_tokenizer *t;
    size_t length = 0, n = 0;
    int64_t chunks = 0;
    int rc = w->chunks ? lm_number("eval", "--chunks", w->chunks, 1, INT64_MAX, &chunks) : APP_OK;
    if (rc == APP_OK) rc = lm_tokenizer(l, &t);
    if (rc != APP_OK) return rc;
    if (l->info.is_encoder) return model_fail("eval", "an encoder predicts no text; it takes --ids");
    char *text = w->file ? lm_read_file(l, w->file, &length) : NULL;
    if (w->file && !text) return APP_FAILED;
    int32_t *ids = lm_encode(l, t, w->file ? text : w->text, w->file ? length : strlen(w->text), QN_ENCODE_MODEL, &n);
    rc = ids ? run_perplexity(l, ids, n, chunks) : APP_FAILED;
    free(ids);
    free(text);
    return rc;
}

/* One text or one list of ids, and to each what is for it. */
static int check_words(const eval_words *w) {
    static const char who[] = "quern eval";
    if (w->file && w->text) return app_apart(who, "-f", "-p");
    if (w->ids && (w->file || w->text)) return app_apart(who, "--ids", w->file ? "-f" : "-p");
    if (w->ids && w->chunks) return app_apart(who, "--ids", "--chunks");
    if (w->logits && !w->ids) return app_apart(who, "--logits", w->file ? "-f" : "-p");
    return app_is_empty(who, "the text's file", w->file) || app_is_empty(who, "the file of logits", w->logits) ? APP_USAGE
                                                                                                               : APP_OK;
}

static const option_row rows[] = {
    OPTION(eval_words, file, "-f, --file", "FILE", "the text whose perplexity is wanted, from a file; - is standard input",
           .files = "*"),
    OPTION(eval_words, text, "-p, --prompt", "TEXT", "the text itself"),
    OPTION(eval_words, chunks, "--chunks", "N", "only the first N windows"),
    OPTION(eval_words, ids, "--ids", "\"11 48 85\"", "the raw logits of one sequence of tokens (of an encoder: its vectors)"),
    OPTION(eval_words, logits, "--logits", "OUT.f32",
           "write those of every token there: [tokens, vocabulary] in f32 (of an encoder: "
           "[tokens, width])",
           .files = "*"),
    {0}};
static const option_group groups[] = {{NULL, rows, 0}, {"The model and how it runs", lm_rows, offsetof(eval_words, lm)}, {0}};

static int run(const quern_verb *self, int argc, char **argv) {
    eval_words w = {0};
    lm l;
    int rc = lm_read(self, argc, argv, &w, &w.lm);
    if (rc != APP_OK) return rc;
    if (!w.ids && !w.file && !w.text) {
        fputs("quern eval: what text? -f FILE, -p TEXT or --ids; 'quern eval --help' says more\n", stderr);
        return APP_USAGE;
    }
    rc = check_words(&w);
    if (rc != APP_OK) return rc;
    if (model_is_same("eval", w.lm.model, w.logits) || model_is_same("eval", w.file, w.logits)) return APP_USAGE;
    model_catch_stop_reading();
    rc = lm_open(&l, "eval", &w.lm);
    if (rc == APP_OK) rc = lm_prepare(&l, &w.lm);
    l.options.flags |= QN_SESSION_F32_CACHE;
    if (rc == APP_OK) rc = w.ids ? run_ids(&l, &w) : run_text(&l, &w);
    return lm_close(&l, rc);
}

const quern_verb verb_eval = {
    .name = "eval",
    .brief = "measure a model's perplexity on a text, or print raw logits",
    .run = run,
    .usage = "-m MODEL.gguf -f FILE [-c N] [options]\n-m MODEL.gguf --ids \"11 48 85\" [--logits OUT.f32] [options]",
    .about = "Prints how well a model predicts a text (its perplexity, in windows of -c tokens that do not overlap), or the "
             "raw logits of one sequence of tokens. The cache is f32 unless a type is named.",
    .groups = groups,
    .needs = "models"};
