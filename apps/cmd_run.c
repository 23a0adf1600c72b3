/* quern run: a prompt in, text out. Text goes to standard output, all else to standard error. */
#include <errno.h>
#include <time.h>

#include "lm_sample.h"

static const char help[] = "usage: quern run FILE [-p TEXT | -f FILE] [-n N]\n"
                           "  -p, --prompt TEXT       what comes first (default: nothing but the model's own beginning)\n"
                           "  -f, --file FILE         the same from a file, '-' for standard input\n"
                           "  -n, --predict N         tokens to make (default: until the model ends; -1)\n"
                           "  -r, --reverse-prompt T  stop when the text comes to T; each -r is one more text to stop at\n"
                           "  -e, --escape            \\n, \\t, \\\\ in the prompt mean what they do in C\n"
                           "  --special               tokens written out in the prompt are those tokens\n"
                           "  --ignore-eos            go on behind the model's end\n"
                           "  --no-display-prompt     leave the prompt out\n"
                           "  --prompt-cache FILE     keep the prompt's state there, and use it when it fits\n" LM_HELP;

typedef struct run_words {
    const char *prompt, *file, *n, *cache, *stops[MODEL_MOST + 1];
    int escape, special, ignore_end, no_prompt;
    int plain; /* as llama.cpp's users say it: there is no conversation here */
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
    qn_text stops[MODEL_MOST];
    for (; w->stops[o.n_stops]; o.n_stops++) stops[o.n_stops] = (qn_text){w->stops[o.n_stops], strlen(w->stops[o.n_stops])};
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

int cmd_run(int argc, char **argv) {
    const char *folder = app_profile_option(&argc, argv);
    lm_words words = {0};
    run_words w = {0};
    sample_words sw = {0};
    lm l;
    const model_flag own[] = {LM_FLAGS(words),
                              {"-p", &w.prompt, NULL, 0},
                              {"--prompt", &w.prompt, NULL, 0},
                              {"-f", &w.file, NULL, 0},
                              {"--file", &w.file, NULL, 0},
                              {"-n", &w.n, NULL, 0},
                              {"--predict", &w.n, NULL, 0},
                              {"--n-predict", &w.n, NULL, 0},
                              {"-r", w.stops, NULL, MODEL_SEVERAL},
                              {"--reverse-prompt", w.stops, NULL, MODEL_SEVERAL},
                              {"-e", NULL, &w.escape, 0},
                              {"--escape", NULL, &w.escape, 0},
                              {"--special", NULL, &w.special, 0},
                              {"--ignore-eos", NULL, &w.ignore_end, 0},
                              {"--no-display-prompt", NULL, &w.no_prompt, 0},
                              {"-no-cnv", NULL, &w.plain, 0},
                              {"--no-conversation", NULL, &w.plain, 0},
                              {"--prompt-cache", &w.cache, NULL, 0}};
    int rc = sample_options(argc, argv, help, &sw, own, (int)(sizeof own / sizeof *own), &words);
    if (rc != APP_OK) return rc < 0 ? APP_OK : rc;
    if (w.prompt && w.file) return app_apart("quern run", "-p", "-f");
    if (app_is_empty("quern run", "the prompt's file", w.file) || app_is_empty("quern run", "the prompt cache", w.cache))
        return APP_USAGE;
    model_catch_stop_reading();
    rc = lm_open(&l, "run", &words);
    if (rc == APP_OK) rc = lm_prepare(&l, &words, folder);
    if (rc == APP_OK) rc = generate(&l, &w, &sw);
    return lm_close(&l, rc);
}
