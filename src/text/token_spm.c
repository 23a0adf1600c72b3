/* SentencePiece's byte-pair encoding (llama): the whole text, spaces as U+2581, merged by the scores of the tokens that come out;
 * characters without a token become byte tokens. */
#include <stdlib.h>

#include "text/merge.h"
#include "base/heap.h"
#include "text/utf8.h"

qn_status qn_text_spm_prepare(qn_tokenizer *t, const qn_vocab_source *source, qn_error *error) {
    (void)t;
    (void)source;
    (void)error;
    return QN_OK;
}

/* Bits of a float in the order of its values, turned round: the best score comes first. */
static uint64_t by_score(float score) {
    uint32_t bits;
    score += 0.0f; /* no negative zero */
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? bits : 0x7FFFFFFFu - bits;
}

static int rank_pair(const qn_tokenizer *t, const merge_symbol *left, const merge_symbol *right, uint64_t *order, int32_t *id) {
    size_t n = (size_t)left->n + right->n;
    if (n > t->longest) return 0;
    *id = qn_text_map_find(&t->by_text, left->at, n);
    if (*id < 0) return 0;
    *order = by_score(t->token[*id].score);
    return 1;
}

qn_status qn_text_spm_encode(const qn_tokenizer *t, qn_text text, int first, token_out *out, qn_error *error) {
    size_t n = 0;
    char *escaped = qn_text_escape_spaces(text, first && t->add_space_prefix, &n);
    merger m = {.t = t, .rank = rank_pair};
    int ok = escaped != NULL;
    for (size_t i = 0; ok && i < n;) {
        uint32_t code;
        size_t size = qn_text_utf8_read(escaped + i, n - i, &code);
        if (!size) size = 1;
        ok = qn_text_merge_add(&m, escaped + i, size, -1);
        i += size;
    }
    qn_status status = QN_OK;
    if (!ok || !qn_text_merge_run(&m)) status = qn_error_set(error, QN_NO_MEMORY, "no memory to encode %zu bytes", text.length);
    for (int32_t i = 0; status == QN_OK && n && i >= 0; i = m.symbol[i].next) {
        const merge_symbol *s = &m.symbol[i];
        int32_t id = s->id >= 0 ? s->id : qn_text_map_find(&t->by_text, s->at, s->n);
        if (id >= 0) qn_text_emit(out, id);
        else status = qn_text_emit_bytes(t, s->at, s->n, out, error);
    }
    qn_text_merge_free(&m);
    qn_heap_free(escaped);
    return status;
}
