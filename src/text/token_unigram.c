/* SentencePiece's unigram model (t5): text is normalised by the vocabulary's own map of characters, then cut where the sum of
 * the scores is best, which one pass from left to right finds. */
#include <stdlib.h>

#include "text/tokenizer.h"
#include "base/heap.h"
#include "text/utf8.h"

enum { MOST_MATCH = 256, MOST_REPLACEMENT = 256, UNKNOWN_PENALTY = 10 };

qn_status qn_text_unigram_prepare(qn_tokenizer *t, const qn_vocab_source *source, qn_error *error) {
    if (t->unk < 0) return qn_error_set(error, QN_FORMAT, "a vocabulary of model '%s' without an unknown token", t->model->name);
    int32_t *ids = qn_arena_resize(&t->arena, NULL, (size_t)t->n_tokens, sizeof *ids);
    size_t n = 0;
    double least = 0;
    for (int32_t id = 0; ids && id < t->n_tokens; id++) {
        const token_data *d = &t->token[id];
        if (d->type == QN_TOKEN_NORMAL && d->score < least) least = d->score;
        if (d->type == QN_TOKEN_NORMAL || d->type == QN_TOKEN_USER_DEFINED || d->type == QN_TOKEN_UNUSED) ids[n++] = id;
    }
    t->unknown_score = least - UNKNOWN_PENALTY;
    t->falls_to_bytes = 1;
    for (int b = 0; b < 256; b++) t->falls_to_bytes &= t->byte_token[b] >= 0 && t->token[t->byte_token[b]].type == QN_TOKEN_BYTE;
    int ok = ids && qn_text_trie_build(&t->words, &t->arena, t->texts.pool.at, t->texts.span.at, ids, n);
    qn_arena_release(&t->arena, ids);
    if (ok && source->charsmap_bytes) {
        uint32_t nodes;
        uint8_t *copy = qn_arena_alloc(&t->arena, source->charsmap_bytes, 1);
        if (!copy) return qn_error_set(error, QN_NO_MEMORY, "no memory for the map of characters");
        memcpy(copy, source->charsmap, source->charsmap_bytes);
        t->charsmap = copy;
        t->charsmap_bytes = source->charsmap_bytes;
        if (t->charsmap_bytes >= 4) memcpy(&nodes, copy, 4);
        if (t->charsmap_bytes < 4 || nodes % 4 || nodes > t->charsmap_bytes - 4)
            return qn_error_set(error, QN_FORMAT, "the precompiled map of characters is cut short at %zu bytes",
                                t->charsmap_bytes);
    }
    return ok ? QN_OK : qn_error_set(error, QN_NO_MEMORY, "no memory for the tree of words");
}

/* The map is a double array: node i's children lie at base(i) ^ byte, and carry the byte as their label; a node that ends a
 * match has one more child, for byte 0, that holds where the replacement starts behind the array. */
static uint32_t map_node(const qn_tokenizer *t, uint32_t index, uint32_t nodes) {
    uint32_t node = 0;
    if (index < nodes) memcpy(&node, t->charsmap + 4 + (size_t)index * 4, 4);
    return node;
}

static uint32_t map_base(uint32_t node) { return node >> 10 << (node >> 9 & 1) * 8; }

/* Bytes of the longest match at the start of a text, and what replaces them; 0: nothing matches, or the map is broken there. A
 * map may lead in circles: without a longest match each place of a text would be followed to its end. */
static size_t map_longest(const qn_tokenizer *t, qn_text text, qn_text *replacement) {
    uint32_t bytes;
    if (!t->charsmap_bytes) return 0;
    memcpy(&bytes, t->charsmap, 4);
    uint32_t nodes = bytes / 4, at = map_base(map_node(t, 0, nodes));
    size_t longest = 0, start = 0, rest = t->charsmap_bytes - 4 - bytes;
    for (size_t i = 0; i < text.length && i < MOST_MATCH && text.at[i]; i++) {
        unsigned char c = (unsigned char)text.at[i];
        at ^= c;
        uint32_t node = map_node(t, at, nodes);
        if ((node & 0x800000FFu) != c) break;
        at ^= map_base(node);
        if (node >> 8 & 1) {
            longest = i + 1;
            start = map_node(t, at, nodes) & 0x7FFFFFFFu;
        }
    }
    if (!longest || start >= rest) return 0;
    const char *from = (const char *)t->charsmap + 4 + bytes + start;
    const char *end = memchr(from, 0, rest - start < MOST_REPLACEMENT ? rest - start : MOST_REPLACEMENT);
    if (!end) return 0;
    *replacement = (qn_text){from, (size_t)(end - from)};
    return longest;
}

typedef struct normal_text {
    char *at;
    size_t n, room;
    int failed, in_word, prefixed;
} normal_text;

static void append(normal_text *out, const char *bytes, size_t n) {
    if (out->n + n > out->room) {
        size_t room = (out->n + n) * 2 + 64;
        char *grown = qn_heap_resize(out->at, room);
        if (!grown) {
            out->failed = 1;
            return;
        }
        out->at = grown;
        out->room = room;
    }
    memcpy(out->at + out->n, bytes, n);
    out->n += n;
}

/* Spaces become U+2581; runs of them one, where the vocabulary wants that; one stands before the first word. */
static void append_normal(const qn_tokenizer *t, normal_text *out, qn_text part) {
    for (size_t i = 0; i < part.length && !out->failed; i++) {
        if (part.at[i] == ' ') {
            out->in_word = 0;
            if (!t->remove_extra_whitespaces) append(out, QN_TEXT_SPACE, 3);
            continue;
        }
        if (!out->in_word && ((t->add_space_prefix && !out->prefixed) || t->remove_extra_whitespaces)) {
            append(out, QN_TEXT_SPACE, 3);
            out->prefixed = 1;
        }
        out->in_word = 1;
        append(out, part.at + i, 1);
    }
}

static void normalise(const qn_tokenizer *t, qn_text text, normal_text *out) {
    for (size_t i = 0; i < text.length && !out->failed;) {
        qn_text rest = {text.at + i, text.length - i}, part;
        uint32_t code;
        size_t size = map_longest(t, rest, &part);
        if (!size) {
            size = qn_text_utf8_read(rest.at, rest.length, &code);
            part = size ? (qn_text){rest.at, size} : (qn_text){"\xEF\xBF\xBD", 3};
        }
        append_normal(t, out, part);
        i += size ? size : 1;
    }
}

typedef struct best_cut { /* of the text up to here */
    double score;
    int32_t id;
    uint32_t from;
} best_cut;

static void offer(best_cut *here, double score, int32_t id, size_t from) {
    if (score > here->score) *here = (best_cut){score, id, (uint32_t)from};
}

static void cut(const qn_tokenizer *t, const char *text, size_t n, best_cut *best) {
    for (size_t i = 0; i <= n; i++) best[i] = (best_cut){-INFINITY, t->unk, 0};
    best[0].score = 0;
    for (size_t i = 0; i < n;) {
        uint32_t code, node = 0;
        size_t size = qn_text_utf8_read(text + i, n - i, &code);
        int single = 0;
        if (!size) size = 1;
        for (size_t k = i; k < n; k++) {
            node = qn_text_trie_step(&t->words, node, text[k]);
            if (!node) break;
            if (!t->words.node[node].same) continue;
            int32_t id = t->words.id[t->words.node[node].ids];
            single |= k + 1 - i == size;
            offer(&best[k + 1], best[i].score + (t->token[id].type == QN_TOKEN_USER_DEFINED ? 0.0 : (double)t->token[id].score),
                  id, i);
        }
        if (!single) offer(&best[i + size], best[i].score + t->unknown_score, t->unk, i);
        i += size;
    }
}

qn_status qn_text_unigram_encode(const qn_tokenizer *t, qn_text text, int first, token_out *out, qn_error *error) {
    (void)first;
    normal_text normal = {0};
    normalise(t, text, &normal);
    best_cut *best = normal.failed ? NULL : qn_heap_alloc((normal.n + 1) * sizeof *best);
    size_t before = out->count;
    if (best) {
        cut(t, normal.at, normal.n, best);
        int unknown = 0;
        for (size_t at = normal.n; at > 0; at = best[at].from) { /* from the end; neighbours that are unknown count once */
            int is_unknown = best[at].id == t->unk;
            if (is_unknown && t->falls_to_bytes)
                for (size_t k = at; k-- > best[at].from;) qn_text_emit(out, t->byte_token[(unsigned char)normal.at[k]]);
            else if (!unknown || !is_unknown) qn_text_emit(out, best[at].id);
            unknown = is_unknown;
        }
        for (size_t i = before, k = out->count; i + 1 < k; i++) {
            int32_t id = out->ids[i];
            out->ids[i] = out->ids[--k];
            out->ids[k] = id;
        }
    }
    qn_status status = best ? QN_OK : qn_error_set(error, QN_NO_MEMORY, "no memory to encode %zu bytes", text.length);
    qn_heap_free(best);
    qn_heap_free(normal.at);
    return status;
}
