/* Trace points: a ring of variable-length records per thread, written by one thread and read by one collector, without locks.
 *
 * A record is a header word and a body of words; body[0] is its start and body[1] its end in nanoseconds. Every word is stored
 * with release order and loaded with acquire order, so that a collector which copies words that the writer overtakes meanwhile
 * (rings that drop the oldest) also sees the new tail, and throws those words away. On x86-64 both are plain moves.
 *
 * Who owns what: `head` moves only by the writer. `tail` moves only by the writer in rings that drop the oldest, only by the
 * collector in the others. Labels are written once by the writer and published by their count. */
#ifndef QN_BASE_TRACE_H
#define QN_BASE_TRACE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

typedef enum qn_trace_kind {
    QN_TRACE_NONE,
    QN_TRACE_OP,      /* start, end, id, flops, bytes, label | subop << 32 | n_src << 48, shapes; tag: op */
    QN_TRACE_HOST,    /* start, end, id, flops, bytes, label | n_src << 48, name, shapes */
    QN_TRACE_RANGE,   /* start, end, label, instance, instance around it; tag: kind of label */
    QN_TRACE_STEP,    /* start, start, number; tag 1: the last one ends and none begins */
    QN_TRACE_RUNTIME, /* start, end, name, correlation, op */
    QN_TRACE_DEVICE,  /* start, end, then as record_api.c packs it; tag: what work */
    QN_TRACE_MEMORY,  /* time, time, address, bytes, allocated, reserved, device */
    QN_TRACE_COUNTER, /* time, time, name, value */
    QN_TRACE_LINK     /* time, time, forward op, backward op */
} qn_trace_kind;

enum {
    QN_TRACE_DEPTH = 64,
    QN_TRACE_WORDS_MAX = 112,       /* longest record; a ring is never smaller than a few of these */
    QN_TRACE_LABEL_TEXT = 32,       /* average bytes of text a label has room for */
    QN_TRACE_LABEL_MAX = 255,       /* longest label; the rest is cut */
    QN_TRACE_NO_PARENT = 0x7fffffff /* of labels that are names, not parts */
};

typedef struct qn_trace_label { /* a node of the tree of parts: label 0 is the root and means none */
    uint32_t parent, hash;
    uint32_t text; /* offset */
    uint16_t length, kind;
} qn_trace_label;

typedef struct qn_trace_open { /* a range that is open */
    uint64_t start, instance;  /* start 0: it began while nothing was recorded */
    uint32_t label, kind;      /* label 0: no room for it, its ops are filed under the one around */
    uint32_t around, reserved;
} qn_trace_open;

typedef struct qn_trace_ring qn_trace_ring;
struct qn_trace_ring {
    /* Set once. */
    _Atomic uint64_t *words;
    uint64_t mask; /* words - 1 */
    int drop_oldest, shapes;
    const _Atomic uint32_t *recording; /* the recorder's switch */
    _Atomic uint64_t *ids;             /* the recorder's counter, taken from in blocks */
    void *recorder;                    /* whose ring it is, for those above who know what that is */
    qn_trace_label *labels;
    uint32_t *slots; /* hash table of labels: number, 0 free */
    char *text;
    uint32_t max_labels, slot_mask;
    qn_hash_key key; /* of the hashes of labels */

    /* The writer's. */
    uint64_t at; /* where head is */
    uint64_t last_time, next_id, end_id;
    uint64_t open_op, last_op, instances;
    uint32_t sequence, label, depth, text_used;
    qn_trace_open open[QN_TRACE_DEPTH];

    /* Shared. */
    _Atomic uint64_t head, tail, dropped, labels_lost;
    _Atomic uint32_t n_labels;
    _Atomic(qn_trace_ring **) slot; /* where the context keeps its pointer to this ring; NULL when it let go */

    /* The collector's. */
    uint64_t read_at, dropped_before;
    uint32_t expected, index;
    int64_t open_step; /* -1: none */
    uint64_t step_start;
    int spent; /* its context had let go when it was last collected: nothing is in it, and nothing comes any more */
    char thread[64];
    qn_trace_ring *next;
};

/* Bytes of one block that holds a ring of `words` (a power of two, at least 1024) with its labels. */
size_t qn_trace_ring_bytes(uint64_t words, uint32_t max_labels);
qn_trace_ring *qn_trace_ring_init(void *memory, uint64_t words, uint32_t max_labels);

/* ---- For the thread that records ---------------------------------------------------------------------------------- */

static inline int qn_trace_on(const qn_trace_ring *ring) {
    return ring && atomic_load_explicit(ring->recording, memory_order_relaxed);
}

/* Now, but later than every time before: nested events must differ, or readers that add start and duration as doubles see them
 * overlap. */
uint64_t qn_trace_time(qn_trace_ring *ring);
uint64_t qn_trace_next_id(qn_trace_ring *ring);
/* Number of a label under a parent; 0 when there is no room and it is a part, or the label that says so when it is a name. */
uint32_t qn_trace_label_of(qn_trace_ring *ring, uint32_t parent, unsigned kind, const char *text);
void qn_trace_write(qn_trace_ring *ring, qn_trace_kind kind, unsigned tag, const uint64_t *body, unsigned n);

typedef struct qn_trace_span {
    uint64_t start, id, around; /* id 0: not recorded */
} qn_trace_span;

void qn_trace_begin(qn_trace_ring *ring, qn_trace_span *span);
/* Ends the op that begin opened; 1 when a record should follow, with its end in *end. */
int qn_trace_end(qn_trace_ring *ring, const qn_trace_span *span, uint64_t *end);

/* ---- For the collector -------------------------------------------------------------------------------------------- */

static inline qn_trace_kind qn_trace_head_kind(uint64_t head) { return (qn_trace_kind)(head & 255); }
static inline unsigned qn_trace_head_words(uint64_t head) { return (unsigned)(head >> 8 & 255); }
static inline unsigned qn_trace_head_tag(uint64_t head) { return (unsigned)(head >> 16 & 65535); }
static inline uint32_t qn_trace_head_sequence(uint64_t head) { return (uint32_t)(head >> 32); }

/* Copies the whole records that were not collected yet into `out`, which has room for the ring; returns the words and adds the
 * records lost since the last time to *lost. */
size_t qn_trace_collect(qn_trace_ring *ring, uint64_t *out, uint64_t *lost);

static inline double qn_trace_dbl(uint64_t word) {
    union {
        uint64_t u;
        double d;
    } v = {word};
    return v.d;
}
static inline uint64_t qn_trace_bits(double value) {
    union {
        double d;
        uint64_t u;
    } v = {value};
    return v.u;
}

#endif
