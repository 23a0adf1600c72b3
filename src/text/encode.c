/* Text to ids: special tokens are found first, the longest at the leftmost place; the model kind encodes what lies between. */
#include <stdlib.h>

#include "text/tokenizer.h"
#include "base/heap.h"

enum { MOST_TEXT = 1 << 28 };

void qn_text_emit(token_out *out, int32_t id) {
    if (out->count == out->room && !out->failed) {
        size_t room = out->room ? out->room * 2 : 256;
        int32_t *grown = room < SIZE_MAX / 8 ? qn_heap_resize(out->ids, room * sizeof *grown) : NULL;
        if (grown) out->ids = grown, out->room = room;
        else out->failed = 1;
    }
    if (!out->failed) out->ids[out->count++] = id;
}

static int has_tokens(const qn_tokenizer *t, const char *at, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (t->byte_token[(unsigned char)at[i]] < 0) return 0;
    return 1;
}

qn_status qn_text_emit_bytes(const qn_tokenizer *t, const char *at, size_t n, token_out *out, qn_error *error) {
    if (!has_tokens(t, at, n)) {
        if (t->unk >= 0) {
            qn_text_emit(out, t->unk);
            return QN_OK;
        }
        if (n != 1 || !((unsigned char)*at & 0x80) || !has_tokens(t, "\xEF\xBF\xBD", 3)) {
            while (t->byte_token[(unsigned char)*at] >= 0) at++;
            return qn_error_set(error, QN_INVALID, "byte 0x%02X of the text has no token, and the vocabulary no unknown token",
                                (unsigned)(unsigned char)*at);
        }
        at = "\xEF\xBF\xBD"; /* what a byte that belongs to no character is written as */
        n = 3;
    }
    for (size_t i = 0; i < n; i++) qn_text_emit(out, t->byte_token[(unsigned char)at[i]]);
    return QN_OK;
}

char *qn_text_escape_spaces(qn_text text, int prefix, size_t *n) {
    size_t spaces = prefix != 0, i = 0;
    for (; i < text.length; i++) spaces += text.at[i] == ' ';
    if (text.length > SIZE_MAX / 4) return NULL;
    char *out = qn_heap_alloc(text.length + 2 * spaces + 2), *p = out;
    if (!out) return NULL;
    if (prefix) memcpy(p, QN_TEXT_SPACE, 3), p += 3;
    for (i = 0; i < text.length; i++) {
        if (text.at[i] == ' ') memcpy(p, QN_TEXT_SPACE, 3), p += 3;
        else *p++ = text.at[i];
    }
    *n = (size_t)(p - out);
    return out;
}

/* The longest special token at the start of a text, or -1. Control tokens count only when asked for. */
static int32_t special_at(const qn_tokenizer *t, qn_text text, uint32_t flags) {
    int32_t best = -1;
    uint32_t node = 0;
    for (size_t i = 0; i < text.length; i++) {
        node = qn_text_trie_step(&t->special, node, text.at[i]);
        if (!node) break;
        const trie_node *here = &t->special.node[node];
        for (uint32_t k = 0; k < here->same; k++) {
            int32_t id = t->special.id[here->ids + k];
            if (flags & QN_ENCODE_SPECIAL || t->token[id].type == QN_TOKEN_USER_DEFINED) {
                best = id;
                break;
            }
        }
    }
    return best;
}

static int is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static qn_status encode_parts(const qn_tokenizer *t, qn_text text, uint32_t flags, token_out *out, qn_error *error) {
    uint8_t may_start = flags & QN_ENCODE_SPECIAL ? 3 : 1;
    size_t from = 0;
    int after_special = 1; /* so is the start of the text */
    for (size_t i = 0; i <= text.length;) {
        int32_t id = -1;
        if (i < text.length) {
            if (t->starts_special[(unsigned char)text.at[i]] & may_start)
                id = special_at(t, (qn_text){text.at + i, text.length - i}, flags);
            if (id < 0) {
                i++;
                continue;
            }
        }
        size_t end = i;
        while (id >= 0 && t->token[id].strip_left && end > from && is_space(text.at[end - 1])) end--;
        if (end > from) {
            qn_status status = t->model->encode(t, (qn_text){text.at + from, end - from}, after_special, out, error);
            if (status != QN_OK) return status;
        }
        if (id < 0) break;
        qn_text_emit(out, id);
        i += t->token[id].piece.n;
        while (t->token[id].strip_right && i < text.length && is_space(text.at[i])) i++;
        from = i;
        after_special = 1;
    }
    return QN_OK;
}

static qn_status emit_own(const qn_tokenizer *t, int32_t id, const char *name, token_out *out, qn_error *error) {
    if (id < 0)
        return qn_error_set(error, QN_FORMAT, "the vocabulary says to add %s and names no such token (model '%s')", name,
                            t->model->name);
    qn_text_emit(out, id);
    return QN_OK;
}

qn_status qn_tokenizer_encode(const qn_tokenizer *t, const char *text, size_t length, uint32_t flags, int32_t *ids, size_t room,
                              size_t *count, qn_error *error) {
    if (!t || !count || (length && !text) || (room && !ids))
        return qn_error_set(error, QN_ARGUMENT,
                            "qn_tokenizer_encode needs a tokenizer, a text, room for ids and a place for their count");
    if (length > MOST_TEXT)
        return qn_error_set(error, QN_ARGUMENT, "a text of %zu bytes; at most %d are encoded at once", length, MOST_TEXT);
    if (flags & ~(QN_ENCODE_MODEL | QN_ENCODE_SPECIAL))
        return qn_error_set(error, QN_ARGUMENT, "unknown encode flags 0x%x", flags);
    token_out out = {0}; /* a list of our own until all is well, so that nothing half-done is left behind */
    qn_status status = QN_OK;
    if (flags & QN_ENCODE_MODEL && t->add_bos) status = emit_own(t, t->bos, "BOS", &out, error);
    if (status == QN_OK && length) status = encode_parts(t, (qn_text){text, length}, flags, &out, error);
    if (status == QN_OK && flags & QN_ENCODE_MODEL && t->add_sep) status = emit_own(t, t->sep, "SEP", &out, error);
    if (status == QN_OK && flags & QN_ENCODE_MODEL && t->add_eos) status = emit_own(t, t->eos, "EOS", &out, error);
    if (status == QN_OK && out.failed) status = qn_error_set(error, QN_NO_MEMORY, "no memory to encode %zu bytes", length);
    if (status == QN_OK) {
        *count = out.count;
        if (out.count > room)
            status = qn_error_set(error, QN_WORKSPACE, "%zu bytes give %zu ids, and there is room for %zu", length, out.count,
                                  room);
        else if (out.count) memcpy(ids, out.ids, out.count * sizeof *ids);
    }
    qn_heap_free(out.ids);
    return status;
}
