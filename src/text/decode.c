/* Ids to text, all at once or piece by piece. What comes out piece by piece is the same bytes, held back where a character, or
 * a space that cleaning may drop, is not decided yet. */
#include <stdlib.h>

#include "text/tokenizer.h"
#include "base/heap.h"
#include "text/utf8.h"

/* The public state, by name. */
typedef struct held_back {
    unsigned char begun; /* a space at the front of the next piece is the text's own */
    unsigned char n_space, n_tail;
    char space[4]; /* for cleaning: a space and what follows it */
    char tail[3];  /* the start of a character */
    unsigned char started;
    unsigned char unused[5];
} held_back;
_Static_assert(sizeof(held_back) == sizeof(qn_decode_state), "the public state has room for what is held back");

typedef struct decoder {
    const qn_tokenizer *t;
    uint32_t flags;
    held_back held;
    char *text;
    size_t n, room;
    int failed;
} decoder;

static void put(decoder *d, const char *bytes, size_t n) {
    if (d->n + n > d->room && !d->failed) {
        size_t room = (d->n + n) * 2 + 64;
        char *grown = qn_heap_resize(d->text, room);
        if (grown) d->text = grown, d->room = room;
        else d->failed = 1;
    }
    if (d->failed || n == 0) return;
    memcpy(d->text + d->n, bytes, n);
    d->n += n;
}

/* What no space stands before. The apostrophe between spaces loses the one behind it too. */
static const char *const TIGHT[] = {".", "?", "!", ",", "' ", "n't", "'m", "'s", "'ve", "'re"};

/* 1: these bytes are one of them; -1: they may become one; 0: they can not. */
static int tightens(const char *bytes, size_t n) {
    int answer = 0;
    for (size_t i = 0; i < sizeof TIGHT / sizeof *TIGHT; i++) {
        size_t size = strlen(TIGHT[i]);
        if (n > size || memcmp(TIGHT[i], bytes, n) != 0) continue;
        if (n == size) return 1;
        answer = -1;
    }
    return answer;
}

/* Holds a space back, with what follows it, until it is clear whether it stays. */
static void put_clean(decoder *d, char byte) {
    held_back *h = &d->held;
    if (h->n_space) {
        h->space[h->n_space] = byte;
        int tight = tightens(h->space + 1, h->n_space);
        if (tight < 0) {
            h->n_space++;
            return;
        }
        if (tight > 0) {
            put(d, h->space + 1, (size_t)h->n_space - (byte == ' '));
            h->n_space = 0;
            return;
        }
        put(d, h->space, h->n_space); /* it stays, and the byte is looked at anew */
        h->n_space = 0;
    }
    if (byte == ' ') h->space[h->n_space++] = byte;
    else put(d, &byte, 1);
}

static void put_token(decoder *d, int32_t id) {
    const token_data *data = &d->t->token[id];
    qn_text piece = token_piece(d->t, id);
    int special = data->type == QN_TOKEN_CONTROL || data->type == QN_TOKEN_UNKNOWN;
    if (!special || d->flags & QN_DECODE_SPECIAL) {
        int strip = !d->held.begun && (d->t->add_space_prefix || d->t->model->strips_first) && data->type == QN_TOKEN_NORMAL;
        if (strip && piece.length && *piece.at == ' ') piece.at++, piece.length--;
        if (d->flags & QN_DECODE_CLEAN)
            for (size_t i = 0; i < piece.length; i++) put_clean(d, piece.at[i]);
        else put(d, piece.at, piece.length);
        d->held.begun = 1;
    }
    if (d->t->add_space_prefix && (special || data->type == QN_TOKEN_USER_DEFINED))
        d->held.begun = 0; /* encoding adds one here */
}

/* Keeps the start of a character that is not whole yet; at the end, everything comes out. */
static void hold_back(decoder *d, int end) {
    if (end) {
        put(d, d->held.space, d->held.n_space);
        d->held.n_space = 0;
        return;
    }
    if (d->failed || d->held.n_space)
        return; /* a held space comes before whatever follows: the text so far ends in a whole character */
    size_t tail = qn_text_utf8_unfinished(d->text, d->n);
    d->n -= tail;
    if (tail) memcpy(d->held.tail, d->text + d->n, tail);
    d->held.n_tail = (unsigned char)tail;
}

qn_status qn_tokenizer_decode(const qn_tokenizer *t, const int32_t *ids, size_t n, uint32_t flags, qn_decode_state *state,
                              char *text, size_t room, size_t *length, qn_error *error) {
    if (!t || !length || (n && !ids) || (room && !text))
        return qn_error_set(error, QN_ARGUMENT,
                            "qn_tokenizer_decode needs a tokenizer, ids, room for text and a place for its length");
    if (flags & ~(QN_DECODE_SPECIAL | QN_DECODE_CONTINUE | QN_DECODE_CLEAN | QN_DECODE_END))
        return qn_error_set(error, QN_ARGUMENT, "unknown decode flags 0x%x", flags);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= t->n_tokens)
            return qn_error_set(error, QN_ARGUMENT, "id %d is not one of the %d tokens", ids[i], t->n_tokens);
    decoder d = {.t = t, .flags = flags};
    if (state) memcpy(&d.held, state, sizeof d.held);
    if (d.held.n_space >= sizeof d.held.space || d.held.n_tail > sizeof d.held.tail)
        return qn_error_set(error, QN_ARGUMENT, "a decode state that no call has left");
    if (flags & QN_DECODE_CONTINUE && !d.held.started) d.held.begun = 1;
    d.held.started = 1;
    put(&d, d.held.tail, d.held.n_tail);
    d.held.n_tail = 0;
    for (size_t i = 0; i < n; i++) put_token(&d, ids[i]);
    hold_back(&d, !state || flags & QN_DECODE_END);
    qn_status status = QN_OK;
    if (d.failed) {
        status = qn_error_set(error, QN_NO_MEMORY, "no memory to decode %zu ids", n);
    } else {
        *length = d.n;
        if (d.n > room) {
            status = qn_error_set(error, QN_WORKSPACE, "%zu ids give %zu bytes, and there is room for %zu", n, d.n, room);
        } else {
            if (d.n) memcpy(text, d.text, d.n);
            if (state) memcpy(state, &d.held, sizeof d.held);
        }
    }
    qn_heap_free(d.text);
    return status;
}
