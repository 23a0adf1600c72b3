/* Grammars, as the sampler sees them: which tokens may come next, and one that does. */
#ifndef QN_TEXT_GRAMMAR_H
#define QN_TEXT_GRAMMAR_H

#include <quern/text.h>

typedef struct text_grammar text_grammar;

/* The tokenizer must outlive the grammar. */
qn_status qn_text_grammar_create(qn_grammar_kind kind, qn_text text, const qn_tokenizer *tokenizer, text_grammar **grammar,
                                 qn_error *error);
void qn_text_grammar_destroy(text_grammar *g);                       /* NULL is fine */
qn_status qn_text_grammar_restart(text_grammar *g, qn_error *error); /* at its first byte; else it stays where it is */
int qn_text_grammar_allows(text_grammar *g, int32_t id);
/* A bit for each of the first n ids: those that may come next. Lives until the next call. */
qn_status qn_text_grammar_mask(text_grammar *g, size_t n, const uint32_t **allowed, qn_error *error);
qn_status qn_text_grammar_accept(text_grammar *g, int32_t id, qn_error *error);

#endif
