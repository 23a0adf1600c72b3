/* A recorder: the rings it lent to contexts, the schedule, and what goes into every file. The lock is taken when a context is
 * attached, a device is named, a phase changes or a file is written; recording never takes it. */
#ifndef QN_PROF_RECORD_H
#define QN_PROF_RECORD_H

#include <pthread.h>

#include <quern/record.h>

#include "base/arena.h"
#include "base/trace.h"
#include "prof/record_work.h"

enum { QN_RECORD_DEVICES = 64, QN_RECORD_PATH = 1024 };

typedef struct qn_record_prop { /* a device as it was described, its name copied */
    qn_record_device device;
    char name[128];
} qn_record_prop;

struct qn_recorder {
    pthread_mutex_t lock;
    qn_recorder_options options;
    char folder[QN_RECORD_PATH];
    char path[QN_RECORD_PATH + 512]; /* of the last file */

    qn_trace_ring *rings; /* newest first */
    uint64_t ring_words;
    uint32_t n_rings;

    _Atomic uint32_t recording;
    _Atomic uint64_t ids;
    uint64_t base, base_wall; /* the same moment on both clocks */
    uint64_t phase_start;     /* of the schedule: records that began before it are not written */
    uint64_t window_start;    /* where the last file ended */
    uint64_t unwritten;       /* records of files that failed since, told as dropped */
    int64_t next_step;

    qn_record_prop devices[QN_RECORD_DEVICES];
    int n_devices;
    qn_limits limits;
    int has_limits;

    qn_recorder_info info;
    uint64_t last_stamp;
};

/* record.c; the lock is held: gives back the rings that are spent, for contexts may come and go as long as a program runs. */
void qn_record_drop_spent(qn_recorder *recorder);
/* record_write.c; the lock is held. */
qn_status qn_record_write_file(qn_recorder *recorder, qn_error *error);
/* record.c: what a step that begins at `time` changes; the lock is held. */
qn_status qn_record_schedule(qn_recorder *recorder, qn_trace_ring *ring, uint64_t time, qn_error *error);

#endif
