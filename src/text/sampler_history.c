/* What a sampler remembers of the text: the last tokens, how often each of them came, and how long ago a breaker was. */
#include <stdlib.h>

#include "text/sampler.h"
#include "base/heap.h"

size_t qn_text_sample_window(int32_t last_n) {
    return last_n < 0 || last_n > SAMPLE_MOST_HISTORY ? SAMPLE_MOST_HISTORY : (size_t)last_n;
}

int qn_text_sample_ids(qn_sampler *s, size_t n) {
    if (n <= s->ids_room) return 1;
    int32_t *counts = qn_heap_resize(s->counts, n * sizeof *counts);
    if (counts) s->counts = counts;
    int32_t *repeats = counts ? qn_heap_resize(s->repeats, n * sizeof *repeats) : NULL;
    if (!repeats) return 0;
    s->repeats = repeats;
    memset(s->counts + s->ids_room, 0, (n - s->ids_room) * sizeof *counts);
    memset(s->repeats + s->ids_room, 0, (n - s->ids_room) * sizeof *repeats);
    s->ids_room = n;
    return 1;
}

void qn_text_sample_forget(qn_sampler *s) {
    s->n_history = s->n_tail = s->since_breaker = 0;
    if (s->ids_room) memset(s->counts, 0, s->ids_room * sizeof *s->counts); /* dry leaves `repeats` clean */
    s->mirostat_mu = 2 * (double)s->o.mirostat_tau;
}

/* At least the longest window is kept; twice that, so that moving it down is rare. */
static int make_room(qn_sampler *s) {
    size_t window = qn_text_sample_window(s->o.repeat_last_n), dry = qn_text_sample_window(s->o.dry_penalty_last_n);
    size_t keep = (window > dry ? window : dry) + 1;
    if (s->n_history >= 2 * keep) {
        memmove(s->history, s->history + s->n_history - keep, keep * sizeof *s->history);
        s->n_history = keep;
    }
    if (s->n_history == s->history_room) {
        size_t room = s->history_room ? s->history_room * 2 : 256;
        int32_t *grown = qn_heap_resize(s->history, room * sizeof *grown);
        if (!grown) return 0;
        s->history = grown;
        s->history_room = room;
    }
    return 1;
}

static int contains(const char *text, size_t n, qn_text part) {
    for (size_t i = 0; part.length && i + part.length <= n; i++)
        if (memcmp(text + i, part.at, part.length) == 0) return 1;
    return 0;
}

int qn_text_sample_breaks(const qn_sampler *s, int32_t id) {
    qn_token_info token = {.size = sizeof token};
    if (!s->o.n_dry_breakers || qn_tokenizer_token(s->o.tokenizer, id, &token) != QN_OK) return 0;
    for (size_t i = 0; i < s->o.n_dry_breakers; i++)
        if (contains(token.piece.at, token.piece.length, s->breakers[i])) return 1;
    return 0;
}

/* A breaker may also begin in the tokens before; the tail holds as much of them as it can need. */
static void watch_breakers(qn_sampler *s, int32_t id) {
    qn_token_info token = {.size = sizeof token};
    s->since_breaker++;
    if (!s->o.n_dry_breakers || qn_tokenizer_token(s->o.tokenizer, id, &token) != QN_OK) return;
    int broken = qn_text_sample_breaks(s, id);
    size_t most = s->longest_breaker - 1, take = token.piece.length < most ? token.piece.length : most;
    memcpy(s->tail + s->n_tail, token.piece.at, take); /* the tail has room for twice as much */
    for (size_t i = 0; !broken && i < s->o.n_dry_breakers; i++) broken = contains(s->tail, s->n_tail + take, s->breakers[i]);
    if (broken) {
        s->since_breaker = 0;
        s->n_tail = 0; /* it is used up */
        return;
    }
    size_t all = s->n_tail + take, keep = all < most ? all : most;
    if (token.piece.length >= most) {
        memcpy(s->tail, token.piece.at + token.piece.length - most, most);
        keep = most;
    } else {
        memmove(s->tail, s->tail + all - keep, keep);
    }
    s->n_tail = keep;
}

qn_status qn_text_sample_remember(qn_sampler *s, int32_t id, qn_error *error) {
    if (!qn_text_sample_ids(s, (size_t)id + 1) || !make_room(s))
        return qn_error_set(error, QN_NO_MEMORY, "no memory for the sampler's history");
    size_t window = qn_text_sample_window(s->o.repeat_last_n);
    s->history[s->n_history++] = id;
    if (window) {
        s->counts[id]++;
        if (s->n_history > window) s->counts[s->history[s->n_history - 1 - window]]--;
    }
    watch_breakers(s, id);
    return QN_OK;
}
