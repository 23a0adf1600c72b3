/* What the verbs that run a language model share: run, chat, eval, tokenize, embed, bench -m. */
#ifndef QN_APPS_LM_H
#define QN_APPS_LM_H

#include <quern/device.h>
#include <quern/model.h>

#include "app_profile.h"
#include "model_app.h"

/* Words of the command line, NULL where none was given. */
typedef struct lm_words {
    const char *model, *threads, *context, *batch, *sequences, *k, *v, *cap, *device, *gpu_layers, *fused;
    int no_map;
} lm_words;

/* The flags behind lm_words, for model_options. */
#define LM_FLAGS(w)                                                                                                        \
    {"-m", &(w).model, NULL, 0}, {"--model", &(w).model, NULL, 0}, {"-t", &(w).threads, NULL, 0},                          \
        {"--threads", &(w).threads, NULL, 0}, {"-c", &(w).context, NULL, 0}, {"--ctx-size", &(w).context, NULL, 0},        \
        {"-b", &(w).batch, NULL, 0}, {"--batch-size", &(w).batch, NULL, 0}, {"-ctk", &(w).k, NULL, 0},                     \
        {"--cache-type-k", &(w).k, NULL, 0}, {"-ctv", &(w).v, NULL, 0}, {"--cache-type-v", &(w).v, NULL, 0},               \
        {"-ub", &(w).batch, NULL, 0}, {"--ubatch-size", &(w).batch, NULL, 0}, {"-dev", &(w).device, NULL, 0},              \
        {"-ngl", &(w).gpu_layers, NULL, 0}, {"--gpu-layers", &(w).gpu_layers, NULL, 0}, {"-fa", &(w).fused, NULL, 0},      \
        {"--flash-attn", &(w).fused, NULL, 0}, {"--memory-cap", &(w).cap, NULL, 0}, {"--no-mmap", NULL, &(w).no_map, 0}, { \
        "--device", &(w).device, NULL, 0                                                                                   \
    }

/* For help texts. */
#define LM_HELP                                                                                           \
    "  -m, --model FILE        the model, a GGUF file; -m may be left out\n"                              \
    "  -t, --threads N         threads (default: as many as there are cores for it)\n"                    \
    "  -c, --ctx-size N        most tokens in a sequence (0: the model's; default: that, at most 4096)\n" \
    "  -b, -ub, --batch-size N tokens of a prompt in one run (default 512)\n"                             \
    "  -ctk, -ctv TYPE         types of the cache: f32, f16, bf16, q8_0, q4_0 (default f16)\n"            \
    "  --device vulkan[:N]     run on this device; 'quern devices' lists them\n"                          \
    "  -ngl, --gpu-layers all  run on the first GPU, or on the CPU when there is none; 0: on the CPU\n"   \
    "  --memory-cap BYTES      refuse to allocate more\n"                                                 \
    "  --no-mmap               read the model into memory, beyond the cap, instead of mapping its file\n" \
    "  --profile[=DIR]         record a trace\n"

typedef struct lm {
    const char *verb;
    qn_model *model;
    qn_model_info info;
    qn_pool *pool;
    qn_context *context;
    qn_device *device;
    qn_session *session;
    qn_session_options options;
    app_profile profile;
    int threads;
} lm;

/* model_options with a model behind -m or by itself. */
int lm_options(int argc, char **argv, const char *help, const model_flag *flags, int n_flags, lm_words *words);
/* A positive number from a word; what is wrong has been said. */
int lm_number(const char *verb, const char *flag, const char *word, int64_t least, int64_t most, int64_t *number);
/* Opens the model alone. Each returns APP_OK, or an exit code when all has been said. */
int lm_open(lm *l, const char *verb, const lm_words *words);
int lm_open_vocabulary(lm *l, const char *verb, const lm_words *words); /* for its tokenizer; of any architecture */
/* And threads, device, recorder, options of a session; `folder` from app_profile_option. */
int lm_prepare(lm *l, const lm_words *words, const char *folder);
int lm_session(lm *l);
/* Most tokens in a sequence of the session. */
int64_t lm_context(const lm *l);
int lm_tokenizer(lm *l, const qn_tokenizer **tokenizer);
/* Everything goes, the trace is written. rc, or APP_FAILED when that failed; what failed after Ctrl-C was interrupted. */
int lm_close(lm *l, int rc);
/* "quern VERB: text" */
int lm_fail(const lm *l, const qn_error *error);
/* Tokens of a text, to be freed; NULL when it failed. */
int32_t *lm_encode(const lm *l, const qn_tokenizer *t, const char *text, size_t length, uint32_t flags, size_t *n);
/* A whole file ('-': standard input), to be freed. NULL: why was said, or Ctrl-C came, which lm_close tells in its code. */
char *lm_read_file(const lm *l, const char *path, size_t *length);

/* Minus the logarithm of what softmax gives a token. */
double lm_surprise(const float *logits, int n, int32_t id);

#endif
