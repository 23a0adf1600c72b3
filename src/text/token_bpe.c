/* Byte-pair encoding by ranked merges (gpt2): the text is cut by the pre-tokenizer, each piece starts as bytes (or characters)
 * and is merged in the order of the list. Symbols are numbers of texts: those of tokens, and those that only merges mention. */
#include <stdlib.h>

#include "text/merge.h"
#include "base/heap.h"
#include "text/utf8.h"

enum { MOST_MERGE_BYTES = 2 * TOKEN_MOST_BYTES + 1 };

/* The number of a text, entered if it is new; -1: no memory, -2: collisions. */
static int32_t intern(qn_tokenizer *t, const char *bytes, size_t n) {
    int32_t known = qn_text_map_find(&t->by_text, bytes, n);
    if (known >= 0) return known;
    int32_t number = qn_text_texts_add(&t->texts, &t->arena, bytes, n);
    if (number < 0) return -1;
    return qn_text_map_add(&t->by_text, number) < 0 ? -2 : number;
}

static qn_status intern_fault(int32_t number, size_t rank, qn_error *error) {
    if (number == -1) return qn_error_set(error, QN_NO_MEMORY, "no memory for the merges");
    return qn_error_set(error, QN_FORMAT, "merge %zu: the texts of more than %d tokens collide, as if made to", rank,
                        TOKEN_MAP_PROBES);
}

static qn_status add_merge(qn_tokenizer *t, qn_text merge, size_t rank, qn_error *error) {
    char bytes[MOST_MERGE_BYTES];
    const char *space = merge.length > 2 && merge.length <= MOST_MERGE_BYTES ? memchr(merge.at + 1, ' ', merge.length - 1) : NULL;
    if (!space || space == merge.at + merge.length - 1)
        return qn_error_set(error, QN_FORMAT, "merge %zu, '%.*s', is not two texts with a space between", rank,
                            merge.length > 64 ? 64 : (int)merge.length, merge.at ? merge.at : "");
    qn_text left = {merge.at, (size_t)(space - merge.at)}, right = {space + 1, merge.length - left.length - 1};
    size_t n_left = left.length, n_right = right.length;
    if (t->pre->flags & PRE_RAW) {
        memcpy(bytes, left.at, n_left);
        memcpy(bytes + n_left, right.at, n_right);
    } else if (!qn_text_letters_to_bytes(left, bytes, &n_left) || !qn_text_letters_to_bytes(right, bytes + n_left, &n_right)) {
        return QN_OK; /* of characters that no text consists of: it never happens */
    }
    int32_t l = intern(t, bytes, n_left), r = l < 0 ? l : intern(t, bytes + n_left, n_right);
    int32_t both = r < 0 ? r : intern(t, bytes, n_left + n_right);
    if (both < 0) return intern_fault(both, rank, error);
    return qn_text_pairs_add(&t->merges, l, r, (int32_t)rank, both) < 0 ? intern_fault(-2, rank, error) : QN_OK;
}

qn_status qn_text_bpe_prepare(qn_tokenizer *t, const qn_vocab_source *source, qn_error *error) {
    if (!qn_text_pairs_init(&t->merges, &t->arena, source->n_merges))
        return qn_error_set(error, QN_NO_MEMORY, "no memory for the merges");
    if (source->n_merges == 0) return qn_error_set(error, QN_FORMAT, "a vocabulary of model '%s' without merges", t->model->name);
    for (size_t rank = 0; rank < source->n_merges; rank++) {
        qn_status status = add_merge(t, source->merges[rank], rank, error);
        if (status != QN_OK) return status;
    }
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        t->byte_text[b] = qn_text_map_find(&t->by_text, &byte, 1);
    }
    return qn_text_pre_compile(t, error);
}

static int rank_pair(const qn_tokenizer *t, const merge_symbol *left, const merge_symbol *right, uint64_t *order, int32_t *id) {
    if (left->id < 0 || right->id < 0) return 0;
    const pair_entry *e = qn_text_pairs_find(&t->merges, left->id, right->id);
    if (!e) return 0;
    *order = (uint64_t)e->rank;
    *id = e->result;
    return 1;
}

typedef struct bpe_run {
    merger merger;
    token_out *out;
    qn_error *error;
} bpe_run;

static int is_newlines(const char *at, size_t n) {
    while (n && at[n - 1] == '\n') n--;
    return n == 0;
}

static int add_symbols(bpe_run *b, const char *at, size_t n) {
    const qn_tokenizer *t = b->merger.t;
    b->merger.n = 0;
    for (size_t i = 0; i < n;) {
        size_t size = 1;
        if (t->pre->flags & PRE_RAW) {
            uint32_t code;
            size = qn_text_utf8_read(at + i, n - i, &code);
            if (!size) size = 1;
        }
        int32_t id = t->pre->flags & PRE_RAW ? qn_text_map_find(&t->by_text, at + i, size) : t->byte_text[(unsigned char)at[i]];
        if (!qn_text_merge_add(&b->merger, at + i, size, id)) return 0;
        i += size;
    }
    return 1;
}

static qn_status encode_piece(void *user, const char *at, size_t n) {
    bpe_run *b = user;
    const qn_tokenizer *t = b->merger.t;
    if (t->pre->flags & PRE_WHOLE || (t->pre->flags & PRE_NEWLINES && is_newlines(at, n))) {
        int32_t whole = qn_text_map_find(&t->by_text, at, n);
        if (whole >= 0 && whole < t->n_tokens) {
            qn_text_emit(b->out, whole);
            return QN_OK;
        }
    }
    if (!add_symbols(b, at, n) || !qn_text_merge_run(&b->merger))
        return qn_error_set(b->error, QN_NO_MEMORY, "no memory to merge a piece of %zu bytes", n);
    for (int32_t i = 0; i >= 0; i = b->merger.symbol[i].next) {
        const merge_symbol *s = &b->merger.symbol[i];
        if (s->id >= 0 && s->id < t->n_tokens) {
            qn_text_emit(b->out, s->id);
        } else {
            qn_status status = qn_text_emit_bytes(t, s->at, s->n, b->out, b->error);
            if (status != QN_OK) return status;
        }
    }
    return QN_OK;
}

qn_status qn_text_bpe_encode(const qn_tokenizer *t, qn_text text, int first, token_out *out, qn_error *error) {
    (void)first;
    char *escaped = NULL;
    if (t->pre->flags & PRE_ESCAPE) {
        size_t n = 0;
        escaped = qn_text_escape_spaces(text, 0, &n);
        if (!escaped) return qn_error_set(error, QN_NO_MEMORY, "no memory to encode %zu bytes", text.length);
        text = (qn_text){escaped, n};
    }
    bpe_run b = {.merger = {.t = t, .rank = rank_pair}, .out = out, .error = error};
    qn_status status = qn_text_pre_split(t, text, encode_piece, &b, error);
    qn_text_merge_free(&b.merger);
    qn_heap_free(escaped);
    return status;
}
