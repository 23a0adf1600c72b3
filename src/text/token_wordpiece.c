/* WordPiece (bert): text is cleaned and put into lower case without accents, words are cut at spaces, punctuation and Chinese
 * characters, and each word is the longest tokens that spell it, or unknown. Words begin with U+2581 in the vocabulary. */
#include <stdlib.h>

#include "text/tokenizer.h"
#include "base/heap.h"
#include "text/utf8.h"

#ifdef QN_HAVE_UTF8PROC
#include <utf8proc.h>

qn_status qn_text_wordpiece_prepare(qn_tokenizer *t, const qn_vocab_source *source, qn_error *error) {
    (void)source;
    if (t->unk < 0) return qn_error_set(error, QN_FORMAT, "a vocabulary of model '%s' without an unknown token", t->model->name);
    int32_t *ids = qn_arena_resize(&t->arena, NULL, (size_t)t->n_tokens, sizeof *ids);
    for (int32_t id = 0; ids && id < t->n_tokens; id++) ids[id] = id;
    int ok = ids && qn_text_trie_build(&t->words, &t->arena, t->texts.pool.at, t->texts.span.at, ids, (size_t)t->n_tokens);
    qn_arena_release(&t->arena, ids);
    return ok ? QN_OK : qn_error_set(error, QN_NO_MEMORY, "no memory for the tree of words");
}

typedef struct word_run {
    const qn_tokenizer *t;
    token_out *out;
    char *word;
    size_t n, room;
    int failed;
} word_run;

static void add_bytes(word_run *w, const char *bytes, size_t n) {
    if (w->n + n > w->room) {
        size_t room = (w->n + n) * 2 + 64;
        char *grown = qn_heap_resize(w->word, room);
        if (!grown) {
            w->failed = 1;
            return;
        }
        w->word = grown;
        w->room = room;
    }
    memcpy(w->word + w->n, bytes, n);
    w->n += n;
}

/* The word is spelt by the longest tokens; when that fails anywhere, the whole word is unknown. */
static void end_word(word_run *w) {
    if (w->n == 0 || w->failed) return;
    const token_trie *words = &w->t->words;
    size_t before = w->out->count;
    for (size_t from = 0; from < w->n;) {
        size_t end = from;
        int32_t best = -1;
        uint32_t node = 0;
        for (size_t i = from; i < w->n; i++) {
            node = qn_text_trie_step(words, node, w->word[i]);
            if (!node) break;
            if (words->node[node].same) best = words->id[words->node[node].ids], end = i + 1;
        }
        if (best < 0) {
            w->out->count = before;
            qn_text_emit(w->out, w->t->unk);
            break;
        }
        qn_text_emit(w->out, best);
        from = end;
    }
    w->n = 0;
}

static void add_code(word_run *w, uint32_t code) {
    char bytes[4];
    if (w->n == 0) add_bytes(w, QN_TEXT_SPACE, 3);
    if (w->t->lowercase) code = (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
    add_bytes(w, bytes, qn_text_utf8_write(code, bytes));
}

static int is_chinese(uint32_t c) {
    static const uint32_t RANGES[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
                                         {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    for (size_t i = 0; i < sizeof RANGES / sizeof *RANGES; i++)
        if (c >= RANGES[i][0] && c <= RANGES[i][1]) return 1;
    return 0;
}

/* Other control characters that Unicode takes for white space are no text here. */
static int is_white(uint32_t c, utf8proc_category_t kind) {
    return c == '\t' || c == '\n' || c == '\r' || (kind >= UTF8PROC_CATEGORY_ZS && kind <= UTF8PROC_CATEGORY_ZP);
}

static int is_punctuation(uint32_t c, utf8proc_category_t kind) {
    if (c < 0x80) return c > 0x20 && c < 0x7F && !(c >= '0' && c <= '9') && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

static void take(word_run *w, uint32_t c) {
    utf8proc_category_t kind = utf8proc_category((utf8proc_int32_t)c);
    if (is_white(c, kind)) {
        end_word(w);
        return;
    }
    if (c == 0 || c == 0xFFFD || kind == UTF8PROC_CATEGORY_CN || kind >= UTF8PROC_CATEGORY_CC) return; /* not text */
    if (w->t->strip_accents && kind == UTF8PROC_CATEGORY_MN) return;
    int alone = is_punctuation(c, kind) || is_chinese(c);
    if (alone) end_word(w);
    add_code(w, c);
    if (alone) end_word(w);
}

qn_status qn_text_wordpiece_encode(const qn_tokenizer *t, qn_text text, int first, token_out *out, qn_error *error) {
    (void)first;
    word_run w = {.t = t, .out = out};
    for (size_t i = 0; i < text.length && !w.failed;) {
        uint32_t code;
        size_t size = qn_text_utf8_read(text.at + i, text.length - i, &code);
        i += size ? size : 1;
        if (!size) continue; /* a stray byte is no text either */
        utf8proc_int32_t parts[32];
        int boundary = 0;
        utf8proc_ssize_t n = 1;
        parts[0] = (utf8proc_int32_t)code;
        if (t->strip_accents) n = utf8proc_decompose_char((utf8proc_int32_t)code, parts, 32, UTF8PROC_DECOMPOSE, &boundary);
        for (utf8proc_ssize_t k = 0; k < n && k < 32; k++) take(&w, (uint32_t)parts[k]);
    }
    end_word(&w);
    qn_heap_free(w.word);
    return w.failed ? qn_error_set(error, QN_NO_MEMORY, "no memory for a word of the text") : QN_OK;
}

#else

qn_status qn_text_wordpiece_prepare(qn_tokenizer *t, const qn_vocab_source *source, qn_error *error) {
    (void)source;
    return qn_error_set(error, QN_UNSUPPORTED, "tokenizer model '%s' needs utf8proc, which this build was made without",
                        t->model->name);
}

qn_status qn_text_wordpiece_encode(const qn_tokenizer *t, qn_text text, int first, token_out *out, qn_error *error) {
    (void)text;
    (void)first;
    (void)out;
    return qn_error_set(error, QN_UNSUPPORTED, "tokenizer model '%s' needs utf8proc, which this build was made without",
                        t->model->name);
}

#endif
