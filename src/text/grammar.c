/* Grammars: being written; until then a sampler with one is refused. */
#include "text/grammar.h"

struct text_grammar {
    int unused;
};

qn_status qn_text_grammar_create(qn_grammar_kind kind, qn_text text, const qn_tokenizer *tokenizer, text_grammar **grammar,
                                 qn_error *error) {
    (void)kind, (void)text, (void)tokenizer, (void)grammar;
    return qn_error_set(error, QN_UNSUPPORTED, "grammars are not part of this build");
}

void qn_text_grammar_destroy(text_grammar *g) { (void)g; }

int qn_text_grammar_allows(text_grammar *g, int32_t id) {
    (void)g, (void)id;
    return 0;
}

qn_status qn_text_grammar_mask(text_grammar *g, size_t n, const uint32_t **allowed, qn_error *error) {
    (void)g, (void)n, (void)allowed;
    return qn_error_set(error, QN_UNSUPPORTED, "grammars are not part of this build");
}

qn_status qn_text_grammar_accept(text_grammar *g, int32_t id, qn_error *error) {
    (void)g, (void)id;
    return qn_error_set(error, QN_UNSUPPORTED, "grammars are not part of this build");
}
