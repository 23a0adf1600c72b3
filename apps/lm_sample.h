/* Flags that say how tokens are picked, for run and chat. */
#ifndef QN_APPS_LM_SAMPLE_H
#define QN_APPS_LM_SAMPLE_H

#include "lm.h"

/* One word for each number of samplers.def, then the rest. */
typedef struct sample_words {
#define QN_SAMPLER_F32(name, standard, low, high, meaning) const char *name;
#define QN_SAMPLER_I32(name, standard, low, high, meaning) const char *name;
#include <quern/samplers.def>
#undef QN_SAMPLER_F32
#undef QN_SAMPLER_I32
    const char *seed, *order, *letters, *grammar, *grammar_file, *schema, *schema_file;
} sample_words;

/* Their rows. */
extern const option_row sample_rows[];

/* The sampler they describe. Texts it needs are kept in `texts` until sample_free. *seed is the one that was used. */
typedef struct sample {
    qn_sampler *sampler;
    char *text; /* of a grammar file */
    qn_text grammar;
    uint64_t seed;
} sample;
int sample_create(lm *l, const sample_words *w, sample *s);
void sample_free(sample *s);

#endif
