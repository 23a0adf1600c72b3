/* What the files of the sampler share: candidates, and the chain of stages that thins them out. */
#ifndef QN_TEXT_SAMPLER_H
#define QN_TEXT_SAMPLER_H

#include <quern/text.h>

#include "base/rand.h"

typedef struct sample_set {
    qn_candidate *at;
    size_t n;
    size_t sorted; /* so many in front are the best, best first; of equals the lower id */
} sample_set;

/* Makes the first k (all, when there are fewer) the best k in order; linear in n. 0: no memory. */
int qn_text_sample_sort(sample_set *set, size_t k);
/* Probabilities of all candidates from their logits. */
void qn_text_sample_softmax(sample_set *set);

typedef int (*sample_stage_fn)(qn_sampler *s, sample_set *set); /* 0: no memory */

typedef struct sample_stage {
    const char *name;
    char letter;
    sample_stage_fn apply;
} sample_stage;

enum { SAMPLE_MOST_STAGES = 32, SAMPLE_MOST_HISTORY = 1 << 20, SAMPLE_MOST_ID = 1 << 24 };

struct qn_sampler {
    qn_sampler_options o;
    qn_logit_bias *bias;
    qn_text *breakers;
    char *breaker_bytes;
    const sample_stage *chain[SAMPLE_MOST_STAGES];
    size_t n_chain;
    qn_rand rand;
    double mirostat_mu;
    qn_candidate *candidates; /* room for `room` */
    size_t room;
    sample_set set;   /* what the last pick chose from; lies in candidates */
    int32_t *history; /* the last tokens, oldest first */
    size_t n_history, history_room;
    int32_t *counts;  /* by id: how often it is among the last repeat_last_n */
    int32_t *repeats; /* by id: scratch of dry */
    size_t ids_room;
    char *tail; /* the last bytes of the text, as many as a breaker may need */
    size_t n_tail, longest_breaker;
    size_t since_breaker; /* tokens behind the last breaker */
    struct text_grammar *grammar;
};

extern const sample_stage qn_text_sample_stages[];
extern const size_t qn_text_n_sample_stages;

/* sampler_history.c */
void qn_text_sample_forget(qn_sampler *s); /* all of the text, and where mirostat had come to by it */
qn_status qn_text_sample_remember(qn_sampler *s, int32_t id, qn_error *error);
int qn_text_sample_ids(qn_sampler *s, size_t n);            /* room for ids below n; 0: no memory */
size_t qn_text_sample_window(int32_t last_n);               /* tokens to look back; -1 is the most there is room for */
int qn_text_sample_breaks(const qn_sampler *s, int32_t id); /* a breaker lies in this token */

/* sampler_mirostat.c: thins the set and aims; after it one of the set is picked. */
int qn_text_sample_mirostat(qn_sampler *s, sample_set *set, size_t n_tokens, size_t *picked);
/* One of the set by its probabilities. */
size_t qn_text_sample_draw(qn_sampler *s, const sample_set *set);
int qn_text_stage_temperature(qn_sampler *s, sample_set *set);

#endif
