/* One trace file in the making: what was collected from each ring, and the tables the events need from each other. */
#ifndef QN_PROF_RECORD_FILE_H
#define QN_PROF_RECORD_FILE_H

#include "prof/record.h"
#include "prof/record_out.h"

typedef struct qn_record_key { /* a record of a thread, in the order of the file */
    uint64_t start, end;
    const uint64_t *record; /* header word, then the body */
} qn_record_key;

typedef struct qn_record_thread {
    qn_trace_ring *ring;
    qn_record_key *keys; /* by start, then the longer first, then the one that ended later */
    size_t n;
    uint64_t last_end; /* of what ran on the thread itself */
} qn_record_thread;

typedef struct qn_record_pair { /* correlation to start of the submission; op to its start */
    uint64_t key, start;
    uint32_t tid;
} qn_record_pair;

typedef QN_VEC(qn_record_pair) qn_record_pairs;

typedef struct qn_record_file {
    qn_recorder *recorder;
    qn_record_out *out;
    qn_arena arena;
    qn_record_thread *threads;
    size_t n_threads;
    uint64_t start, end; /* of the window */
    int64_t pid;
    int whole; /* microseconds */
    int comma;
    qn_record_pairs submits; /* by correlation */
    qn_record_pairs works;   /* correlations of device work */
    qn_record_pairs ops;     /* by id; only when there are links */
    qn_record_pairs queues;  /* key device, start queue: those that are used */
    uint64_t events, lost, clamped, flows;
} qn_record_file;

/* The pair with that key, or NULL; the array is sorted. */
const qn_record_pair *qn_record_find(const qn_record_pairs *pairs, uint64_t key);

/* record_event.c */
void qn_record_emit_threads(qn_record_file *file);
void qn_record_emit_step(qn_record_file *file, const qn_record_thread *thread, uint64_t number, uint64_t start, uint64_t end);

/* Helpers of both: a field with its comma, times relative to the recorder's base. */
void qn_record_event_open(qn_record_file *file, const char *phase, const char *category);
void qn_record_event_name(qn_record_file *file, const char *prefix, const char *name, size_t length, const char *suffix);
void qn_record_event_place(qn_record_file *file, int64_t pid, int64_t tid);
void qn_record_event_span(qn_record_file *file, uint64_t start, uint64_t end);
void qn_record_event_at(qn_record_file *file, uint64_t time);

#endif
