/* A small world of stories that the project itself makes, endless and the same for the same seed; its vocabulary; and the model
 * that `quern train --example stories` trains on them. */
#ifndef QN_APPS_STORIES_H
#define QN_APPS_STORIES_H

#include <quern/model.h>
#include <quern/text.h>

#include "net.h"

/* ---- Text: story_grammar.c */

enum { STORY_BYTES = 2048 }; /* no story is longer */

/* The next story, with a zero behind it; its length. */
size_t story_tell(uint64_t *state, char text[STORY_BYTES]);

/* ---- Words: story_vocab.c. Byte-level BPE with whole words as tokens: a word that is there is one token, any other falls back to bytes. */

enum { STORY_MOST_TOKENS = 2048, STORY_BEGIN = 256, STORY_END = 257 };

typedef struct story_vocab {
    qn_text tokens[STORY_MOST_TOKENS]; /* as GGUF has them, spaces and control bytes spelt as letters */
    int32_t types[STORY_MOST_TOKENS];
    int32_t n;
    qn_text merges[STORY_MOST_TOKENS]; /* of two bytes into a token; longer ones are only ever taken whole */
    size_t n_merges;
    char *letters; /* what tokens and merges point into */
    size_t n_letters;
    qn_tokenizer *tokenizer;
} story_vocab;

/* Always the same vocabulary, whatever the training's seed. 0: what is wrong has been said. */
int story_vocab_make(story_vocab *v);
void story_vocab_free(story_vocab *v);
/* Fills n ids with whole stories, the last one cut: begin, words, end, begin ... */
int story_vocab_fill(const story_vocab *v, uint64_t *state, int32_t *ids, size_t n);

/* ---- The network: net_stories.c. The llama architecture, as src/model builds it. */

enum {
    STORY_LAYERS = 4,
    STORY_WIDE = 128,
    STORY_HEADS = 4,
    STORY_HEADS_KV = 2,
    STORY_HEAD = STORY_WIDE / STORY_HEADS,
    STORY_FF = 448,
    STORY_CONTEXT = 256,
    STORY_BATCH = 4 /* sequences in a step */
};
#define STORY_EPSILON 1e-5f
#define STORY_ROPE_BASE 10000.0f

/* tokens and labels [batch * context], output "loss"; with `train` an AdamW step for every param. */
int net_stories(net *n, int64_t words, int train);
int net_stories_example(net *n); /* a training step with the stories' own vocabulary */

/* ---- The file: story_export.c */

/* The params, in f32, each by its name from the plan's outputs ("NAME'"). 0: what is wrong has been said. */
int story_export(const char *path, const net *n, const qn_plan *plan, const story_vocab *v);
/* Mean loss of sequences by the model in a file, run as any user would. */
int story_file_loss(const char *path, qn_context *context, const int32_t *ids, int32_t sequences, double *loss);

#endif
