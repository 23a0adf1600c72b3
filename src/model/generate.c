/* From a prompt to text, piece by piece. Text that may yet turn out to be the beginning of a stop is held back until it is not. */
#include "base/clock.h"
#include "base/heap.h"
#include "model/session.h"

enum { FIRST_ROOM = 256 }; /* of text held back: never nothing, so that none of it has an address as well */

typedef struct generation {
    qn_session *s;
    const qn_generate_options *o;
    const qn_tokenizer *tokenizer;
    qn_piece_fn piece;
    void *user;
    qn_decode_state decode;
    char *held; /* decoded and not handed over yet */
    size_t n_held, cap;
    qn_generate_result r;
    int caller_ended;
} generation;

static qn_status hand_over(generation *g, size_t n, int32_t id) {
    if (n && g->piece && g->piece(g->user, g->held, n, id) != QN_OK) g->caller_ended = 1;
    memmove(g->held, g->held + n, g->n_held - n);
    g->n_held -= n;
    return QN_OK;
}

/* Where the first stop begins that is whole, or if none is, where one may be about to begin; n_held: nowhere. A longer one that may
 * yet come does not hide a shorter one that is there. */
static size_t find_stop(const generation *g, int *whole) {
    size_t begun = g->n_held;
    *whole = 0;
    for (size_t at = 0; at < g->n_held; at++)
        for (int32_t k = 0; k < g->o->n_stops; k++) {
            qn_text stop = g->o->stops[k];
            size_t left = g->n_held - at, n = left < stop.length ? left : stop.length;
            if (!stop.length || memcmp(g->held + at, stop.at, n) != 0) continue;
            *whole = n == stop.length;
            if (*whole) return at;
            if (begun == g->n_held) begun = at;
        }
    return begun;
}

static qn_status decode(generation *g, const int32_t *ids, size_t n, uint32_t flags, qn_error *error) {
    size_t length = 0;
    for (;;) {
        qn_status status = qn_tokenizer_decode(g->tokenizer, ids, n, flags, &g->decode, g->held + g->n_held, g->cap - g->n_held,
                                               &length, error);
        if (status != QN_WORKSPACE) {
            if (status == QN_OK) g->n_held += length;
            return status;
        }
        char *more = qn_heap_resize(g->held, g->n_held + length + 256);
        if (!more) return qn_error_set(error, QN_NO_MEMORY, "no memory for a piece of text");
        g->held = more;
        g->cap = g->n_held + length + 256;
    }
}

/* 1: a stop ended it. */
static int speak(generation *g, int32_t id, uint32_t flags, qn_status *status, qn_error *error) {
    int whole = 0;
    *status = decode(g, &id, id >= 0 ? 1 : 0, flags | QN_DECODE_CONTINUE, error);
    if (*status != QN_OK) return 0;
    size_t safe = find_stop(g, &whole);
    if (flags & QN_DECODE_END && !whole) safe = g->n_held;
    hand_over(g, safe, id);
    return whole;
}

static qn_status likeliest(const float *logits, int64_t n, int32_t *id, qn_error *error) {
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++)
        if (logits[i] == logits[i] && (best < 0 || logits[i] > logits[best])) best = i;
    if (best < 0) return qn_error_set(error, QN_INVALID, "every logit is NaN");
    *id = (int32_t)best;
    return QN_OK;
}

static qn_status read_prompt(generation *g, int32_t **ids, size_t *n, qn_error *error) {
    const qn_generate_options *o = g->o;
    size_t room = o->prompt.length + 16;
    int fresh = g->s->sequences[o->sequence].length == 0 || o->flags & QN_GENERATE_WHOLE;
    uint32_t flags = (fresh && !(o->flags & QN_GENERATE_NO_MODEL) ? QN_ENCODE_MODEL : 0) |
                     (o->flags & QN_GENERATE_SPECIAL ? QN_ENCODE_SPECIAL : 0);
    for (;;) {
        *ids = qn_heap_zeroed(room, sizeof **ids);
        if (!*ids) return qn_error_set(error, QN_NO_MEMORY, "no memory for a prompt of %zu bytes", o->prompt.length);
        qn_status status = qn_tokenizer_encode(g->tokenizer, o->prompt.at ? o->prompt.at : "", o->prompt.length, flags, *ids,
                                               room, n, error);
        if (status != QN_WORKSPACE) {
            qn_tokenizer_info info;
            info.size = sizeof info;
            qn_tokenizer_describe(g->tokenizer, &info);
            if (status == QN_OK && *n > 1 && flags & QN_ENCODE_MODEL && info.eos >= 0 && (*ids)[*n - 1] == info.eos)
                --*n; /* it goes on */
            return status;
        }
        qn_heap_free(*ids);
        room = *n;
    }
}

static qn_status run(generation *g, const int32_t *ids, int32_t n, qn_error *error) {
    qn_session_part part = {g->o->sequence, n, ids, 0};
    return qn_session_go_on(g->s, &part, 1, error);
}

/* How many of the ids the sequence holds already, but never all: the last one is run for its logits. */
static size_t keep_common(generation *g, const int32_t *ids, size_t n) {
    qn_sequence *q = &g->s->sequences[g->o->sequence];
    size_t same = 0;
    if (!(g->o->flags & QN_GENERATE_WHOLE) || !n) return 0;
    while (same < n - 1 && same < (size_t)q->length && q->ids[same] == ids[same]) same++;
    q->length = (int64_t)same;
    return same;
}

static qn_status begin(generation *g, qn_error *error) {
    int32_t *ids = NULL;
    size_t n = 0;
    qn_status status = read_prompt(g, &ids, &n, error);
    if (status == QN_OK && !n)
        status = qn_error_set(error, QN_INVALID, "there is no prompt, and the vocabulary has no token to begin with");
    if (status == QN_OK && n > INT32_MAX) status = qn_error_set(error, QN_INVALID, "the prompt is too long");
    for (size_t i = 0; i < n && status == QN_OK && g->o->sampler; i++)
        status = qn_sampler_accept(g->o->sampler, ids[i], QN_ACCEPT_PROMPT, error);
    size_t kept = status == QN_OK ? keep_common(g, ids, n) : 0;
    if (status == QN_OK) status = run(g, ids + kept, (int32_t)(n - kept), error);
    g->r.n_prompt = (int32_t)(n - kept);
    qn_heap_free(ids);
    return status;
}

static qn_status pick(generation *g, int32_t *id, int *ends, qn_error *error) {
    const float *logits = qn_session_result(g->s, 0, -1);
    if (!logits) return qn_error_set(error, QN_INVALID, "the sequence has no logits to go on from");
    if (g->o->sampler) QN_TRY(qn_sampler_pick(g->o->sampler, logits, (size_t)g->s->width, id, error));
    else QN_TRY(likeliest(logits, g->s->width, id, error));
    qn_token_info token;
    token.size = sizeof token;
    *ends = qn_tokenizer_token(g->tokenizer, *id, &token) == QN_OK && token.ends && !(g->o->flags & QN_GENERATE_IGNORE_END);
    return QN_OK;
}

/* Tokens until something ends it. */
static qn_status go_on(generation *g, uint64_t from, qn_error *error) {
    qn_status status = QN_OK;
    for (;;) {
        int32_t id;
        int ends = 0;
        if (g->o->most >= 0 && g->r.n_made >= g->o->most) return g->r.end = QN_END_MOST, QN_OK;
        QN_TRY(pick(g, &id, &ends, error));
        if (!g->r.n_made) g->r.prompt_nanoseconds = qn_clock_now() - from;
        g->r.n_made++;
        if (g->o->sampler) QN_TRY(qn_sampler_accept(g->o->sampler, id, 0, error));
        if (ends) return g->r.end = QN_END_TOKEN, QN_OK;
        int stopped = speak(g, id, 0, &status, error);
        if (status != QN_OK) return status;
        if (stopped || g->caller_ended) return g->r.end = stopped ? QN_END_STOP : QN_END_CALLER, QN_OK;
        if (g->o->most >= 0 && g->r.n_made >= g->o->most) return g->r.end = QN_END_MOST, QN_OK;
        if (g->s->sequences[g->o->sequence].length >= g->s->context) return g->r.end = QN_END_CONTEXT, QN_OK;
        QN_TRY(run(g, &id, 1, error));
    }
}

qn_status qn_generate(qn_session *s, const qn_generate_options *o, qn_piece_fn piece, void *user, qn_generate_result *result,
                      qn_error *error) {
    if (!s || !o || o->size < sizeof *o) return qn_error_set(error, QN_ARGUMENT, "a session and options are needed");
    if (s->m->arch->has & QN_IS_ENCODER)
        return qn_error_set(error, QN_UNSUPPORTED, "%s is an encoder: it gives embeddings, not text", s->m->arch->name);
    if (o->sequence < 0 || o->sequence >= s->shape.sequences || (o->n_stops && !o->stops))
        return qn_error_set(error, QN_ARGUMENT, "sequence %d: the session has %d", o->sequence, s->shape.sequences);
    generation g;
    memset(&g, 0, sizeof g);
    g.s = s;
    g.o = o;
    g.piece = piece;
    g.user = user;
    g.cap = FIRST_ROOM;
    g.held = qn_heap_alloc(g.cap);
    if (!g.held) return qn_error_set(error, QN_NO_MEMORY, "no memory for a piece of text");
    uint64_t from = qn_clock_now();
    qn_status status = qn_model_tokenizer(s->m, &g.tokenizer, error), spoken = QN_OK;
    if (status == QN_OK) status = begin(&g, error);
    if (status == QN_OK) status = go_on(&g, from, error);
    if (status == QN_OK && g.r.end != QN_END_STOP && !g.caller_ended) speak(&g, -1, QN_DECODE_END, &spoken, error);
    qn_session_uncancel(s);
    g.r.made_nanoseconds = qn_clock_now() - from - g.r.prompt_nanoseconds;
    qn_heap_free(g.held);
    if (result && result->size >= sizeof *result) {
        g.r.size = sizeof *result;
        *result = g.r;
    }
    return status;
}
