/* A model, its session and the flags for both. */
#include "lm.h"

#include <errno.h>
#include <math.h>

int lm_fail(const lm *l, const qn_error *error) {
    return error->status == QN_CANCELLED && *model_stopped() ? MODEL_INTERRUPTED : model_fail(l->verb, error->text);
}

int lm_number(const char *verb, const char *flag, const char *word, int64_t least, int64_t most, int64_t *number) {
    char *end;
    errno = 0;
    long long n = strtoll(word, &end, 10);
    if (end != word && !*end && errno == 0 && n >= least && n <= most) return *number = n, APP_OK;
    fprintf(stderr, "quern %s: %s takes a number from %lld to %lld, not '%s'\n", verb, flag, (long long)least, (long long)most,
            word);
    return APP_USAGE;
}

const char *lm_cache_type(int item) {
    static const char *const names[] = {"f32", "f16", "bf16", "q8_0", "q4_0"};
    return item < (int)(sizeof names / sizeof *names) ? names[item] : NULL;
}

const option_row lm_rows[] = {
    OPTION(lm_words, word, "MODEL.gguf", NULL, NULL, .files = "gguf"),
    OPTION(lm_words, model, "-m, --model", "FILE", "the model, a GGUF file; -m may be left out", .files = "gguf"),
    OPTION(lm_words, threads, "-t, --threads", "N", "threads (default: as many as there are cores for it)"),
    OPTION(lm_words, context, "-c, --ctx-size", "N",
           "most tokens in a sequence; 0: what the model was trained for (default: that, at most 4096)"),
    OPTION(lm_words, batch, "-b, --batch-size, -ub, --ubatch-size", "N", "tokens of a prompt in one run (default 512)"),
    OPTION(lm_words, k, "-ctk, --cache-type-k", "TYPE", "type of the KV cache's keys (default f16)", .choices = lm_cache_type),
    OPTION(lm_words, v, "-ctv, --cache-type-v", "TYPE", "type of the KV cache's values (default f16)", .choices = lm_cache_type),
    OPTION(lm_words, device, "-dev, --device", "vulkan[:N]", "run on this device; 'quern devices' lists them"),
    OPTION(lm_words, gpu_layers, "-ngl, --gpu-layers", "all",
           "run on the first GPU, or on the CPU when there is none; 0: on the CPU"),
    OPTION(lm_words, fused, "-fa, --flash-attn", "on|auto", "taken as llama.cpp takes it; attention is always one op here"),
    OPTION(lm_words, cap, "--memory-cap", "BYTES", "refuse to allocate more"),
    OPTION(lm_words, no_map, "--no-mmap", NULL, "read the model into memory, beyond the cap, instead of mapping its file"),
    APP_PROFILE_ROW(lm_words, profile),
    {0}};

int lm_read(const quern_verb *v, int argc, char **argv, void *all, lm_words *words) {
    int rc = options_read(v, argc, argv, all);
    if (rc != APP_OK || !words->word) return rc;
    if (words->model) {
        fprintf(stderr, "quern %s: one model, please: '%s' or '%s'?\n", v->name, words->model, words->word);
        return APP_USAGE;
    }
    words->model = words->word;
    return APP_OK;
}

static int open_model(lm *l, const char *verb, const lm_words *words, uint32_t flags) {
    qn_error error;
    memset(l, 0, sizeof *l);
    l->verb = verb;
    if (!words->model) {
        fprintf(stderr, "quern %s: which model? Name a file; 'quern %s --help' says more\n", verb, verb);
        return APP_USAGE;
    }
    char who[32];
    snprintf(who, sizeof who, "quern %s", verb);
    if (app_is_empty(who, "the model", words->model)) return APP_USAGE;
    qn_file_options options = qn_file_options_default();
    options.cancel = model_stopped();
    options.flags = flags | (words->no_map ? QN_FILE_NO_MAP : 0u);
    if (qn_model_open(words->model, &options, &l->model, &error) != QN_OK) return lm_fail(l, &error);
    l->info.size = sizeof l->info;
    qn_model_describe(l->model, &l->info);
    return APP_OK;
}

int lm_open(lm *l, const char *verb, const lm_words *words) { return open_model(l, verb, words, 0); }
int lm_open_vocabulary(lm *l, const char *verb, const lm_words *words) { return open_model(l, verb, words, QN_MODEL_VOCABULARY); }

static int take_type(const lm *l, const char *flag, const char *word, qn_dtype *type) {
    if (!word) return APP_OK;
    qn_dtype found = qn_dtype_from_name(word);
    const qn_dtype_info *info = qn_dtype_describe(found);
    if (info && (info->kind == QN_KIND_FLOAT || info->kind == QN_KIND_BLOCK)) return *type = found, APP_OK;
    fprintf(stderr, "quern %s: %s takes a type such as f16 or q8_0, not '%s'\n", l->verb, flag, word);
    return APP_USAGE;
}

static int take_words(lm *l, const lm_words *w, int64_t *threads) {
    int64_t n;
    int rc = APP_OK;
    qn_device_info cpu;
    qn_device_list(&cpu, 1, NULL, NULL);
    *threads = cpu.n_cores < QN_POOL_MAX ? cpu.n_cores : QN_POOL_MAX;
    l->options.size = sizeof l->options;
    if (w->threads && rc == APP_OK) rc = lm_number(l->verb, "--threads", w->threads, 1, QN_POOL_MAX, threads);
    if (w->context && rc == APP_OK && (rc = lm_number(l->verb, "--ctx-size", w->context, 0, 1 << 26, &n)) == APP_OK)
        l->options.context = n ? n : l->info.context;
    if (l->options.context > l->info.context)
        fprintf(stderr, "quern %s: the model was made for %lld token%s; beyond them it may lose the thread\n", l->verb,
                (long long)l->info.context, app_s(l->info.context));
    if (w->batch && rc == APP_OK && (rc = lm_number(l->verb, "--batch-size", w->batch, 1, 65536, &n)) == APP_OK)
        l->options.batch = (int32_t)n;
    if (w->sequences && rc == APP_OK && (rc = lm_number(l->verb, "--parallel", w->sequences, 1, 1024, &n)) == APP_OK)
        l->options.sequences = (int32_t)n;
    if (w->cap && rc == APP_OK && (rc = lm_number(l->verb, "--memory-cap", w->cap, 1, INT64_MAX, &n)) == APP_OK)
        l->options.memory_cap = (uint64_t)n;
    if (rc == APP_OK) rc = take_type(l, "--cache-type-k", w->k, &l->options.k);
    if (rc == APP_OK) rc = take_type(l, "--cache-type-v", w->v, &l->options.v);
    return rc;
}

/* llama.cpp's flags for what is settled here: a model is on the GPU or it is not, and attention is one op. */
static int take_others(const lm *l, const lm_words *w, int *wants_gpu) {
    int64_t n = 0;
    *wants_gpu = 0;
    if (w->fused && strcmp(w->fused, "on") != 0 && strcmp(w->fused, "auto") != 0 && strcmp(w->fused, "1") != 0) {
        fprintf(stderr, "quern %s: attention is always one op here: -fa is on or auto, not '%s'\n", l->verb, w->fused);
        return APP_USAGE;
    }
    if (!w->gpu_layers || strcmp(w->gpu_layers, "auto") == 0) return APP_OK;
    int all = strcmp(w->gpu_layers, "all") == 0;
    int rc = all ? APP_OK : lm_number(l->verb, "--gpu-layers", w->gpu_layers, -1, INT32_MAX, &n);
    if (rc == APP_OK && n > 0 && n < l->info.n_layers) {
        fprintf(stderr, "quern %s: all %d layers go to the GPU or none: --gpu-layers is 0 or all\n", l->verb, l->info.n_layers);
        return APP_USAGE;
    }
    *wants_gpu = rc == APP_OK && (all || n);
    return rc;
}

/* Recipes say -ngl 99 for machines of every kind: where there is no GPU they mean the CPU, and never a driver that only plays one. */
static int open_gpu(lm *l) {
    qn_error error;
    qn_status status = qn_device_open("vulkan", QN_DEVICE_FIRST_GPU, &l->device, &error);
    l->options.device = l->device;
    if (status == QN_OK) return APP_OK;
    if (status != QN_UNSUPPORTED) return lm_fail(l, &error);
    fprintf(stderr, "quern %s: --gpu-layers: %s; the model runs on the CPU\n", l->verb, error.text);
    return APP_OK;
}

static int open_device(lm *l, const char *name, int wants_gpu) {
    char who[32];
    if (!name && wants_gpu) return open_gpu(l);
    if (!name || strcmp(name, "cpu") == 0) return APP_OK;
    snprintf(who, sizeof who, "quern %s", l->verb);
    int rc = app_device_open(who, name, &l->device);
    l->options.device = l->device;
    return rc;
}

int lm_prepare(lm *l, const lm_words *words) {
    int64_t threads;
    int wants_gpu;
    int rc = take_words(l, words, &threads);
    if (rc == APP_OK) rc = take_others(l, words, &wants_gpu);
    if (rc == APP_OK) rc = open_device(l, words->device, wants_gpu);
    if (rc != APP_OK) return rc;
    l->threads = (int)threads;
    qn_context_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    if (threads > 1 && qn_pool_create((int)threads, &l->pool) != QN_OK) return model_fail(l->verb, "no threads can be had");
    options.pool = l->pool;
    if (qn_context_create(&options, &l->context) != QN_OK) return model_fail(l->verb, "no memory for a context");
    l->options.run = l->context;
    rc = app_profile_begin(&l->profile, app_profile_folder(&words->profile));
    return rc == APP_OK ? app_profile_attach(&l->profile, l->context, "main") : rc;
}

static void cancel(void *session) { qn_session_cancel(session); }

/* A long prompt is one run: Ctrl-C must not wait for its end. */
int lm_session(lm *l) {
    qn_error error;
    if (qn_session_create(l->model, &l->options, &l->session, &error) != QN_OK) return lm_fail(l, &error);
    model_stop_by(cancel, l->session);
    return APP_OK;
}

int64_t lm_context(const lm *l) {
    if (l->options.context) return l->options.context;
    return l->info.context < QN_DEFAULT_CONTEXT ? l->info.context : QN_DEFAULT_CONTEXT;
}

int lm_tokenizer(lm *l, const qn_tokenizer **tokenizer) {
    qn_error error;
    return qn_model_tokenizer(l->model, tokenizer, &error) == QN_OK ? APP_OK : lm_fail(l, &error);
}

int lm_close(lm *l, int rc) {
    int written = app_profile_end(&l->profile);
    model_stop_by(NULL, NULL);
    qn_session_destroy(l->session);
    qn_model_close(l->model);
    qn_context_destroy(l->context);
    qn_pool_destroy(l->pool);
    qn_device_close(l->device);
    if (rc == APP_FAILED && *model_stopped()) rc = MODEL_INTERRUPTED;
    return rc == APP_OK ? written : rc;
}

int32_t *lm_encode(const lm *l, const qn_tokenizer *t, const char *text, size_t length, uint32_t flags, size_t *n) {
    qn_error error;
    size_t room = length + 16;
    for (;;) {
        int32_t *ids = calloc(room, sizeof *ids);
        if (!ids) return model_fail(l->verb, "no memory for a text"), NULL;
        qn_status status = qn_tokenizer_encode(t, text, length, flags, ids, room, n, &error);
        if (status == QN_OK) return ids;
        free(ids);
        if (status != QN_WORKSPACE) return lm_fail(l, &error), NULL;
        room = *n;
    }
}

/* All that comes, to be freed; NULL with *why when something is in the way. */
static char *read_all(FILE *file, size_t *length, const char **why) {
    enum { LARGEST_TEXT = 1 << 30, PIECE = 65536 };
    char *text = NULL;
    for (size_t cap = 0, got = 1; got && !*why && !*model_stopped();) {
        char *more = cap - *length <= PIECE ? realloc(text, cap = cap * 2 + 2 * PIECE) : text;
        if (more) text = more;
        got = more ? fread(text + *length, 1, PIECE, file) : 0;
        *length += got;
        if (!more) *why = "no memory for it";
        else if (ferror(file)) *why = strerror(errno);
        else if (*length > LARGEST_TEXT) *why = "it has more than a GiB";
    }
    if (!*why && !*model_stopped()) return text[*length] = 0, text;
    free(text);
    return NULL;
}

char *lm_read_file(const lm *l, const char *path, size_t *length) {
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    const char *why = file ? NULL : strerror(errno);
    *length = 0;
    char *text = file ? read_all(file, length, &why) : NULL;
    if (file && file != stdin) fclose(file);
    if (!text && !*model_stopped()) fprintf(stderr, "quern %s: %s: %s\n", l->verb, path, why);
    return text;
}

double lm_surprise(const float *logits, int n, int32_t id) {
    double most = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        if (logits[i] > most) most = logits[i];
    for (int i = 0; i < n; i++) sum += exp(logits[i] - most);
    return most + log(sum) - logits[id];
}
