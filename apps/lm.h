/* What the verbs that run a language model share: run, chat, eval, tokenize, embed, bench -m. */
#ifndef QN_APPS_LM_H
#define QN_APPS_LM_H

#include <quern/device.h>
#include <quern/model.h>

#include "app_profile.h"
#include "model_app.h"

/* Words of the command line, NULL where none was given. */
typedef struct lm_words {
    const char *model, *word; /* behind -m; by itself. lm_read leaves one */
    const char *threads, *context, *batch, *sequences, *k, *v, *cap, *device, *gpu_layers, *fused;
    int no_map;
    option_maybe profile;
} lm_words;

/* The rows of lm_words, but for sequences, which few verbs take. */
extern const option_row lm_rows[];
const char *lm_cache_type(int item); /* types of the cache, for completion */

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

/* options_read, with the model behind -m or by itself: `words` are part of `all`. */
int lm_read(const quern_verb *v, int argc, char **argv, void *all, lm_words *words);
/* A positive number from a word; what is wrong has been said. */
int lm_number(const char *verb, const char *flag, const char *word, int64_t least, int64_t most, int64_t *number);
/* Opens the model alone. Each returns APP_OK, or an exit code when all has been said. */
int lm_open(lm *l, const char *verb, const lm_words *words);
int lm_open_vocabulary(lm *l, const char *verb, const lm_words *words); /* for its tokenizer; of any architecture */
/* And threads, device, recorder, options of a session. */
int lm_prepare(lm *l, const lm_words *words);
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
