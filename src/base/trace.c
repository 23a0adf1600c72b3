/* The ring: reserve, store, publish; and the collector's copy. See the header for who may move what. */
#include "base/trace.h"

#include <string.h>

#include "base/clock.h"

enum { ID_BLOCK = 1024 }; /* ids a ring takes at a time, so that threads do not fight over one counter */

static size_t whole(size_t bytes) { return (bytes + 63) / 64 * 64; }

static uint32_t slots_for(uint32_t max_labels) {
    uint32_t slots = 64;
    while (slots < 2 * (uint64_t)max_labels) slots *= 2;
    return slots;
}

size_t qn_trace_ring_bytes(uint64_t words, uint32_t max_labels) {
    return whole(sizeof(qn_trace_ring)) + whole(words * sizeof(uint64_t)) + whole(max_labels * sizeof(qn_trace_label)) +
           whole(slots_for(max_labels) * sizeof(uint32_t)) + whole((size_t)max_labels * QN_TRACE_LABEL_TEXT);
}

static const char FULL[] = "(more names than the recorder has room for)";

qn_trace_ring *qn_trace_ring_init(void *memory, uint64_t words, uint32_t max_labels) {
    char *at = memory;
    qn_trace_ring *ring = memory;
    size_t all = qn_trace_ring_bytes(words, max_labels), before = whole(sizeof *ring) + whole(words * sizeof(uint64_t));
    memset(memory, 0, sizeof *ring);
    memset(at + before, 0, all - before); /* the words stay as they are: none is read before it is written */
    at += whole(sizeof *ring);
    ring->words = (_Atomic uint64_t *)(void *)at;
    at += whole(words * sizeof(uint64_t));
    ring->labels = (qn_trace_label *)(void *)at;
    at += whole(max_labels * sizeof(qn_trace_label));
    ring->slots = (uint32_t *)(void *)at;
    at += whole(slots_for(max_labels) * sizeof(uint32_t));
    ring->text = at;
    ring->mask = words - 1;
    ring->max_labels = max_labels;
    ring->slot_mask = slots_for(max_labels) - 1;
    ring->key = qn_hash_process_key();
    ring->open_step = -1;
    memcpy(ring->text, FULL, sizeof FULL - 1); /* label 0: the root of the parts, and the name of names without room */
    ring->labels[0].length = sizeof FULL - 1;
    ring->text_used = sizeof FULL - 1;
    atomic_store_explicit(&ring->n_labels, 1, memory_order_release);
    return ring;
}

/* ---- Writing ------------------------------------------------------------------------------------------------------ */

uint64_t qn_trace_time(qn_trace_ring *ring) {
    uint64_t t = qn_clock_now();
    if (t <= ring->last_time) t = ring->last_time + 1;
    return ring->last_time = t;
}

uint64_t qn_trace_next_id(qn_trace_ring *ring) {
    if (ring->next_id == ring->end_id) {
        ring->next_id = 1 + atomic_fetch_add_explicit(ring->ids, ID_BLOCK, memory_order_relaxed);
        ring->end_id = ring->next_id + ID_BLOCK;
    }
    return ring->next_id++;
}

/* Whether n more words may be stored at ring->at. */
static int reserve(qn_trace_ring *ring, unsigned n) {
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    if (ring->at + n - tail <= ring->mask + 1) return 1;
    if (!ring->drop_oldest) {
        uint64_t dropped = atomic_load_explicit(&ring->dropped, memory_order_relaxed);
        atomic_store_explicit(&ring->dropped, dropped + 1, memory_order_relaxed);
        return 0;
    }
    while (ring->at + n - tail > ring->mask + 1)
        tail += qn_trace_head_words(atomic_load_explicit(&ring->words[tail & ring->mask], memory_order_relaxed));
    atomic_store_explicit(&ring->tail, tail, memory_order_relaxed);
    return 1;
}

void qn_trace_write(qn_trace_ring *ring, qn_trace_kind kind, unsigned tag, const uint64_t *body, unsigned n) {
    if (!reserve(ring, n + 1)) return;
    uint64_t head = (uint64_t)kind | (uint64_t)(n + 1) << 8 | (uint64_t)(tag & 65535) << 16 | (uint64_t)ring->sequence++ << 32;
    atomic_store_explicit(&ring->words[ring->at & ring->mask], head, memory_order_release);
    for (unsigned i = 0; i < n; i++)
        atomic_store_explicit(&ring->words[(ring->at + 1 + i) & ring->mask], body[i], memory_order_release);
    ring->at += n + 1;
    atomic_store_explicit(&ring->head, ring->at, memory_order_release);
}

void qn_trace_begin(qn_trace_ring *ring, qn_trace_span *span) {
    if (!qn_trace_on(ring)) {
        span->id = 0;
        return;
    }
    span->around = ring->open_op;
    span->id = ring->open_op = qn_trace_next_id(ring);
    span->start = qn_trace_time(ring);
}

int qn_trace_end(qn_trace_ring *ring, const qn_trace_span *span, uint64_t *end) {
    if (!span->id) return 0;
    *end = qn_trace_time(ring);
    ring->open_op = span->around;
    return 1;
}

/* ---- Labels ------------------------------------------------------------------------------------------------------- */

static uint32_t label_hash(qn_hash_key key, uint32_t parent, unsigned kind, const char *text, size_t length) {
    return (uint32_t)qn_hash_bytes(key, qn_hash_word(key, key.begin, (uint64_t)parent << 32 | kind), text, length);
}

/* Longest prefix that a label may have and that does not cut a UTF-8 sequence. */
static size_t label_length(const char *text) {
    size_t length = 0;
    while (length < QN_TRACE_LABEL_MAX && text[length]) length++;
    if (length < QN_TRACE_LABEL_MAX || !text[length]) return length;
    while (length && ((unsigned char)text[length] & 0xc0) == 0x80) length--;
    return length;
}

uint32_t qn_trace_label_of(qn_trace_ring *ring, uint32_t parent, unsigned kind, const char *text) {
    size_t length = label_length(text);
    uint32_t hash = label_hash(ring->key, parent, kind, text, length), cursor = hash & ring->slot_mask;
    for (uint32_t id; (id = ring->slots[cursor]) != 0; cursor = (cursor + 1) & ring->slot_mask) {
        const qn_trace_label *l = &ring->labels[id];
        if (l->hash == hash && l->parent == parent && l->kind == kind && l->length == length &&
            memcmp(ring->text + l->text, text, length) == 0)
            return id;
    }
    uint32_t n = atomic_load_explicit(&ring->n_labels, memory_order_relaxed);
    if (n == ring->max_labels || ring->text_used + length > (size_t)ring->max_labels * QN_TRACE_LABEL_TEXT) {
        uint64_t lost = atomic_load_explicit(&ring->labels_lost, memory_order_relaxed);
        atomic_store_explicit(&ring->labels_lost, lost + 1, memory_order_relaxed);
        return 0;
    }
    ring->labels[n] = (qn_trace_label){parent, hash, ring->text_used, (uint16_t)length, (uint16_t)kind};
    memcpy(ring->text + ring->text_used, text, length);
    ring->text_used += (uint32_t)length;
    ring->slots[cursor] = n;
    atomic_store_explicit(&ring->n_labels, n + 1, memory_order_release);
    return n;
}

/* ---- Collecting --------------------------------------------------------------------------------------------------- */

size_t qn_trace_collect(qn_trace_ring *ring, uint64_t *out, uint64_t *lost) {
    ring->spent = atomic_load_explicit(&ring->slot, memory_order_acquire) ==
                  NULL; /* before the words are read, so that all are */
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    uint64_t from = tail > ring->read_at ? tail : ring->read_at;
    if (head - from > ring->mask + 1) from = head - ring->mask - 1; /* overtaken between the two loads; cut below */
    for (uint64_t i = from; i < head; i++)
        out[i - from] = atomic_load_explicit(&ring->words[i & ring->mask], memory_order_acquire);
    tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
    uint64_t valid = tail > from ? tail : from; /* always the start of a record */
    size_t n = valid < head ? (size_t)(head - valid) : 0;
    memmove(out, out + (size_t)((n ? valid : from) - from), n * sizeof *out);
    if (n) {
        *lost += qn_trace_head_sequence(out[0]) - ring->expected;
        size_t at = 0, last = 0;
        while (at < n) {
            last = at;
            at += qn_trace_head_words(out[at]);
        }
        ring->expected = qn_trace_head_sequence(out[last]) + 1;
    }
    uint64_t dropped = atomic_load_explicit(&ring->dropped, memory_order_relaxed);
    *lost += dropped - ring->dropped_before;
    ring->dropped_before = dropped;
    ring->read_at = head;
    if (!ring->drop_oldest) atomic_store_explicit(&ring->tail, head, memory_order_release);
    return n;
}
