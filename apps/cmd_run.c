/* quern run: a prompt in, text out. Text goes to standard output, all else to standard error. */
#include <errno.h>
#include <time.h>

#include "lm_sample.h"

typedef struct run_words {
    const char *prompt, *file, *n, *cache;
    option_many stops;
    int escape, special, ignore_end, no_prompt;
    int plain; /* as llama.cpp's users say it: there is no conversation here */
    lm_words lm;
    sample_words sample;
} run_words;

/* What goes to standard output. The prompt is printed with the first piece: one that does not fit leaves nothing there. */
typedef struct output {
    qn_text prompt; /* not yet printed */
    int failed;     /* errno of a write */
} output;

static int print_text(output *out, const char *text, size_t length) {
    size_t n = out->prompt.length;
    errno = 0;
    int good = (!n || fwrite(out->prompt.at, 1, n, stdout) == n) && (!length || fwrite(text, 1, length, stdout) == length);
    out->prompt.length = 0;
    if (!good || fflush(stdout) != 0) out->failed = errno ? errno : EIO;
    return !out->failed;
}

static qn_status print_piece(void *user, const char *text, size_t length, int32_t id) {
    (void)id;
    if (*model_stopped()) return QN_CANCELLED;
    return print_text(user, text, length) ? QN_OK : QN_IO;
}

static size_t unescape(char *text, size_t length) {
    size_t to = 0;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (c == '\\' && i + 1 < length) {
            char next = text[i + 1];
            const char *from = "nrt\\\"'0", *into = "\n\r\t\\\"'\0", *found = memchr(from, next, 7);
            if (found) c = into[found - from], i++;
        }
        text[to++] = c;
    }
    return to;
}

static char *take_prompt(const lm *l, const run_words *w, size_t *length) {
    char *text = NULL;
    if (w->file) text = lm_read_file(l, w->file, length);
    else if ((text = malloc((*length = w->prompt ? strlen(w->prompt) : 0) + 1)))
        memcpy(text, w->prompt ? w->prompt : "", *length + 1);
    if (text && w->escape) *length = unescape(text, *length);
    return text;
}

static void print_speed(const lm *l, const qn_generate_result *r, uint64_t seed) {
    static const char *const ends[] = {"the model ended", "a stop was reached", "as many as asked for", "the context is full",
                                       "stopped"};
    double prompt = (double)r->prompt_nanoseconds * 1e-9, made = (double)r->made_nanoseconds * 1e-9;
    if (!r->n_made) prompt += made; /* the prompt's time ends with the first token, and there was none */
    fprintf(stderr, "\nprompt %d token%s in %.3f s", r->n_prompt, app_s(r->n_prompt), prompt);
    if (prompt > 0) fprintf(stderr, " (%.1f a second)", r->n_prompt / prompt);
    fprintf(stderr, ", then %d", r->n_made);
    if (r->n_made > 1 && made > 0) fprintf(stderr, " in %.3f s (%.1f a second)", made, (r->n_made - 1) / made);
    fprintf(stderr, "; %s; seed %llu, %d thread%s\n", ends[r->end], (unsigned long long)seed, l->threads, app_s(l->threads));
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

typedef struct cache_work {
    int not_kept; /* what was read could not be written */
    int32_t n;    /* tokens that were read for it, and how long that took */
    uint64_t nanoseconds;
} cache_work;

/* The prompt's state from the file, when it is this prompt's, else into it. 0: there is none. */
static int use_cache(lm *l, const char *path, qn_text prompt, uint32_t flags, cache_work *work) {
    const qn_tokenizer *t;
    qn_error error;
    size_t n;
    if (lm_tokenizer(l, &t) != APP_OK) return 0;
    int32_t *ids = lm_encode(l, t, prompt.at, prompt.length, QN_ENCODE_MODEL | flags, &n);
    if (!ids) return 0;
    int hit = 0;
    FILE *file = fopen(path, "rb");
    if (file) {
        fclose(file);
        hit = qn_session_load(l->session, 0, path, ids, (int64_t)n, &error) == QN_OK;
        if (!hit) fprintf(stderr, "quern run: %s is not used: %s\n", path, error.text);
    }
    if (!hit && n > 1) { /* all but the last token: that one is run when text is made */
        qn_session_part part = {0, (int32_t)n - 1, ids, 0};
        uint64_t from = now();
        hit = qn_session_run(l->session, &part, 1, &error) == QN_OK;
        work->nanoseconds = now() - from;
        work->n = hit ? part.n : 0;
        if (hit && qn_session_save(l->session, 0, path, &error) != QN_OK) {
            fprintf(stderr, "quern run: %s\n", error.text);
            work->not_kept = 1;
        }
    }
    free(ids);
    return hit;
}

static int generate(lm *l, const run_words *w, const sample_words *sw) {
    qn_error error;
    sample s;
    qn_generate_options o = qn_generate_options_default();
    qn_generate_result r = {.size = sizeof r};
    int64_t most = -1;
    size_t length = 0;
    cache_work cached = {0};
    int rc = w->n ? lm_number("run", "--predict", w->n, -1, INT32_MAX, &most) : APP_OK;
    if (rc == APP_OK) rc = lm_session(l);
    if (rc != APP_OK) return rc;
    char *prompt = take_prompt(l, w, &length);
    if (!prompt) return APP_FAILED;
    rc = sample_create(l, sw, &s);
    o.prompt = (qn_text){prompt, length};
    o.most = (int32_t)most;
    o.sampler = s.sampler;
    o.flags = (w->special ? QN_GENERATE_SPECIAL : 0u) | (w->ignore_end ? QN_GENERATE_IGNORE_END : 0u);
    qn_text stops[OPTION_MANY];
    for (; o.n_stops < w->stops.n; o.n_stops++)
        stops[o.n_stops] = (qn_text){w->stops.at[o.n_stops], strlen(w->stops.at[o.n_stops])};
    o.stops = stops;
    if (rc == APP_OK && w->cache && use_cache(l, w->cache, o.prompt, w->special ? QN_ENCODE_SPECIAL : 0, &cached))
        o.flags |= QN_GENERATE_WHOLE;
    output out = {{prompt, w->no_prompt ? 0 : length}, 0};
    qn_status made = rc == APP_OK ? qn_generate(l->session, &o, print_piece, &out, &r, &error) : QN_OK;
    if (*model_stopped()) rc = MODEL_INTERRUPTED;
    else if (made != QN_OK) rc = lm_fail(l, &error);
    if (rc != APP_FAILED && rc != APP_USAGE && !out.failed) {
        print_text(&out, "\n", 1);
        r.n_prompt += cached.n;
        r.prompt_nanoseconds += cached.nanoseconds;
        if (made == QN_OK) print_speed(l, &r, s.seed);
    }
    if (out.failed && !*model_stopped()) { /* what waits for a reader ends with Ctrl-C */
        fprintf(stderr, "quern run: the text cannot be written: %s\n", strerror(out.failed));
        rc = APP_FAILED;
    }
    if (rc == APP_OK && cached.not_kept) rc = APP_FAILED;
    sample_free(&s);
    free(prompt);
    return rc;
}

static const option_row rows[] = {
    OPTION(run_words, prompt, "-p, --prompt", "TEXT", "what comes first (default: nothing but the model's own beginning)"),
    OPTION(run_words, file, "-f, --file", "FILE", "the same from a file; - is standard input", .files = "*"),
    OPTION(run_words, n, "-n, --predict, --n-predict", "N", "tokens to make; -1 (the default): until the model ends"),
    OPTION(run_words, stops, "-r, --reverse-prompt", "TEXT",
           "stop when the text comes to TEXT; each -r is one more text to stop at"),
    OPTION(run_words, escape, "-e, --escape", NULL, "\\n, \\t, \\\\ in the prompt mean what they do in C"),
    OPTION(run_words, special, "--special", NULL, "special tokens written out in the prompt, such as <s>, are those tokens"),
    OPTION(run_words, ignore_end, "--ignore-eos", NULL, "go on behind the model's end of text"),
    OPTION(run_words, no_prompt, "--no-display-prompt", NULL, "leave the prompt out of what is printed"),
    OPTION(run_words, cache, "--prompt-cache", "FILE", "keep the prompt's state there, and use it when it fits", .files = "*"),
    OPTION(run_words, plain, "-no-cnv, --no-conversation", NULL, "taken as llama.cpp takes it; 'quern chat' is the conversation"),
    {0}};
static const option_group groups[] = {{NULL, rows, 0},
                                      {"The model and how it runs", lm_rows, offsetof(run_words, lm)},
                                      {"How tokens are picked", sample_rows, offsetof(run_words, sample)},
                                      {0}};

static int run(const quern_verb *self, int argc, char **argv) {
    run_words w = {0};
    lm l;
    int rc = lm_read(self, argc, argv, &w, &w.lm);
    if (rc != APP_OK) return rc;
    if (w.prompt && w.file) return app_apart("quern run", "-p", "-f");
    if (app_is_empty("quern run", "the prompt's file", w.file) || app_is_empty("quern run", "the prompt cache", w.cache))
        return APP_USAGE;
    model_catch_stop_reading();
    rc = lm_open(&l, "run", &w.lm);
    if (rc == APP_OK) rc = lm_prepare(&l, &w.lm);
    if (rc == APP_OK) rc = generate(&l, &w, &w.sample);
    return lm_close(&l, rc);
}

const quern_verb verb_run = {.name = "run",
                             .brief = "complete a prompt with a language model",
                             .run = run,
                             .usage = "-m MODEL.gguf [-p TEXT | -f FILE] [-n N] [options]",
                             .about = "A prompt goes in, text comes out, on standard output; all else goes to standard error.",
                             .groups = groups,
                             .needs = "models"};
