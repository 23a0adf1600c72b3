/* The vocabulary of the stories, from the stories themselves: the 256 bytes, the two ends, and every piece that the pattern of
 * `llama-bpe` cuts their text into, the most frequent first. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stories.h"

enum { STORIES_READ = 4000 };

typedef struct piece {
    char text[32];
    uint32_t n, count;
} piece;

typedef struct pieces {
    piece list[STORY_MOST_TOKENS];
    size_t n;
} pieces;

static int fail(const char *text) {
    fprintf(stderr, "quern train: the stories' vocabulary: %s\n", text);
    return 0;
}

/* The piece at `at`: letters with one other sign in front, or signs with a space in front and line ends behind. What stories hold is
 * plain ASCII without digits or apostrophes, so this is all that the pattern does with them; the tokenizer's answer is checked below. */
static size_t piece_length(const char *at) {
    size_t n = !isalpha((unsigned char)*at) && *at != '\n' && isalpha((unsigned char)at[1]);
    if (isalpha((unsigned char)at[n])) {
        while (isalpha((unsigned char)at[n])) n++;
        return n;
    }
    n = *at == ' ';
    if (ispunct((unsigned char)at[n])) {
        while (ispunct((unsigned char)at[n])) n++;
        while (at[n] == '\n') n++;
        return n;
    }
    return 1;
}

static int count_piece(pieces *p, const char *text, size_t n) {
    for (size_t i = 0; i < p->n; i++)
        if (p->list[i].n == n && memcmp(p->list[i].text, text, n) == 0) return p->list[i].count++, 1;
    if (n >= sizeof p->list->text || p->n == STORY_MOST_TOKENS - STORY_END - 1) return fail("too many or too long words");
    piece *fresh = &p->list[p->n++];
    memset(fresh, 0, sizeof *fresh);
    memcpy(fresh->text, text, n);
    fresh->n = (uint32_t)n;
    fresh->count = 1;
    return 1;
}

static int by_count(const void *a, const void *b) {
    const piece *x = a, *y = b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    return strcmp(x->text, y->text);
}

/* Byte-level BPE writes the bytes that are no visible sign as letters from U+0100 on, in their order. */
static void add_letter(story_vocab *v, unsigned char byte) {
    int visible = (byte > ' ' && byte < 127) || (byte > 160 && byte != 173);
    unsigned code = byte;
    if (!visible) {
        code = 256;
        for (unsigned b = 0; b < byte; b++) code += !((b > ' ' && b < 127) || (b > 160 && b != 173));
    }
    if (code < 128) {
        v->letters[v->n_letters++] = (char)code;
    } else {
        v->letters[v->n_letters++] = (char)(0xC0 | code >> 6);
        v->letters[v->n_letters++] = (char)(0x80 | (code & 63));
    }
}

static void add_token(story_vocab *v, const char *text, size_t n, int type) {
    const char *from = v->letters + v->n_letters;
    for (size_t i = 0; i < n; i++) add_letter(v, (unsigned char)text[i]);
    v->types[v->n] = type;
    v->tokens[v->n++] = (qn_text){from, (size_t)(v->letters + v->n_letters - from)};
}

static void add_merge(story_vocab *v, const char *pair) {
    const char *from = v->letters + v->n_letters;
    add_letter(v, (unsigned char)pair[0]);
    v->letters[v->n_letters++] = ' ';
    add_letter(v, (unsigned char)pair[1]);
    v->merges[v->n_merges++] = (qn_text){from, (size_t)(v->letters + v->n_letters - from)};
}

static int make_tokenizer(story_vocab *v) {
    qn_error error;
    qn_vocab_source source = qn_vocab_source_default();
    source.model = "gpt2";
    source.pre = "llama-bpe"; /* takes a whole word before it merges anything */
    source.n_tokens = v->n;
    source.tokens = v->tokens;
    source.types = v->types;
    source.merges = v->merges;
    source.n_merges = v->n_merges;
    source.bos = STORY_BEGIN;
    source.eos = STORY_END;
    source.add_bos = 1;
    return qn_tokenizer_create(&source, &v->tokenizer, &error) == QN_OK || fail(error.text);
}

static int gather(pieces *p) {
    char text[STORY_BYTES];
    uint64_t state = 0;
    for (int i = 0; i < STORIES_READ; i++) {
        size_t n = story_tell(&state, text), length;
        for (size_t at = 0; at < n; at += length) {
            length = piece_length(text + at);
            if (length > 1 && !count_piece(p, text + at, length)) return 0;
        }
    }
    qsort(p->list, p->n, sizeof *p->list, by_count);
    return 1;
}

int story_vocab_make(story_vocab *v) {
    memset(v, 0, sizeof *v);
    pieces *p = calloc(1, sizeof *p);
    v->letters = malloc((size_t)STORY_MOST_TOKENS * 80);
    int good = p && v->letters ? gather(p) : fail("no memory");
    for (int i = 0; good && i < 256; i++) add_token(v, &(char){(char)i}, 1, QN_TOKEN_NORMAL);
    if (good) {
        add_token(v, "<|begin|>", 9, QN_TOKEN_CONTROL);
        add_token(v, "<|end|>", 7, QN_TOKEN_CONTROL);
    }
    for (size_t i = 0; good && i < p->n; i++) {
        add_token(v, p->list[i].text, p->list[i].n, QN_TOKEN_NORMAL);
        if (p->list[i].n == 2) add_merge(v, p->list[i].text);
    }
    free(p);
    return good && make_tokenizer(v);
}

void story_vocab_free(story_vocab *v) {
    qn_tokenizer_destroy(v->tokenizer);
    free(v->letters);
}

int story_vocab_fill(const story_vocab *v, uint64_t *state, int32_t *ids, size_t n) {
    char text[STORY_BYTES];
    int32_t one[STORY_BYTES + 16];
    qn_error error;
    size_t at = 0, count;
    while (at < n) {
        size_t length = story_tell(state, text);
        if (qn_tokenizer_encode(v->tokenizer, text, length, QN_ENCODE_MODEL, one, STORY_BYTES, &count, &error) != QN_OK)
            return fail(error.text);
        one[count++] = STORY_END;
        for (size_t i = 0; i < count && at < n; i++) ids[at++] = one[i];
    }
    return 1;
}
