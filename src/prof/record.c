/* Making recorders, lending rings, and the schedule of what is kept. */
#include "prof/record.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "prof/record_out.h"
#include "run/context.h"

enum { LIMITS_MS = 200 };

const char *qn_recorder_environment(void) {
    const char *folder = getenv("QUERN_PROFILE");
    return folder && *folder ? folder : NULL;
}

/* ---- Making ------------------------------------------------------------------------------------------------------- */

static qn_status check_options(const qn_recorder_options *o, qn_error *error) {
    const uint32_t known = QN_RECORD_SHAPES | QN_RECORD_DROP_OLDEST | QN_RECORD_GZIP | QN_RECORD_WHOLE_US | QN_RECORD_LIMITS;
    if (o->size != sizeof *o) return qn_error_set(error, QN_ARGUMENT, "recorder options of another version: %u bytes", o->size);
    if (o->flags & ~known) return qn_error_set(error, QN_ARGUMENT, "unknown recorder flags 0x%x", o->flags & ~known);
    if (!o->allocator.allocate != !o->allocator.release)
        return qn_error_set(error, QN_ARGUMENT, "an allocator needs both allocate and release");
    if (!o->folder || !*o->folder) return qn_error_set(error, QN_ARGUMENT, "a recorder needs a folder to write into");
    if (strlen(o->folder) >= QN_RECORD_PATH)
        return qn_error_set(error, QN_ARGUMENT, "the folder's name has %zu bytes, at most %d", strlen(o->folder),
                            QN_RECORD_PATH - 1);
    if (o->ring_bytes > (uint64_t)1 << 40)
        return qn_error_set(error, QN_ARGUMENT, "a ring of %llu bytes is beyond 1 TiB", (unsigned long long)o->ring_bytes);
    if (o->max_labels > 1u << 24) return qn_error_set(error, QN_ARGUMENT, "%u labels are beyond 16777216", o->max_labels);
    return QN_OK;
}

static uint64_t power_of_two(uint64_t least) {
    uint64_t n = 1024;
    while (n < least) n *= 2;
    return n;
}

qn_status qn_recorder_create(const qn_recorder_options *options, qn_recorder **recorder, qn_error *error) {
    if (!recorder) return qn_error_set(error, QN_ARGUMENT, "no place for the recorder");
    *recorder = NULL;
    if (!options) return qn_error_set(error, QN_ARGUMENT, "a recorder needs options: a folder at least");
    qn_status status = check_options(options, error);
    if (status == QN_OK) status = qn_out_try_folder(options->folder, error); /* rather now than when there is something to lose */
    if (status != QN_OK) return status;
    qn_allocator allocator = options->allocator.allocate ? options->allocator : qn_memory_default();
    qn_recorder *r = allocator.allocate(allocator.user, sizeof *r, 64);
    if (!r) return qn_error_set(error, QN_NO_MEMORY, "no memory for a recorder");
    memset(r, 0, sizeof *r);
    if (pthread_mutex_init(&r->lock, NULL) != 0) {
        allocator.release(allocator.user, r, sizeof *r);
        return qn_error_set(error, QN_NO_MEMORY, "no lock for a recorder");
    }
    r->options = *options;
    r->options.allocator = allocator;
    memcpy(r->folder, options->folder, strlen(options->folder) + 1);
    r->options.folder = r->folder;
    r->ring_words = power_of_two((options->ring_bytes ? options->ring_bytes : (uint64_t)8 << 20) / sizeof(uint64_t));
    if (!r->options.max_labels) r->options.max_labels = 4096;
    r->info.size = sizeof r->info;
    if (options->flags & QN_RECORD_LIMITS) {
        r->limits.size = sizeof r->limits;
        r->has_limits = qn_limits_measure(LIMITS_MS, &r->limits, NULL) == QN_OK;
    }
    r->base = r->phase_start = qn_clock_now();
    r->base_wall = qn_clock_wall();
    atomic_init(&r->recording, options->active == 0 || options->wait == 0);
    *recorder = r;
    return QN_OK;
}

static void let_go(qn_trace_ring *ring) {
    qn_trace_ring **slot = atomic_exchange_explicit(&ring->slot, NULL, memory_order_acq_rel);
    if (slot) *slot = NULL;
}

void qn_recorder_destroy(qn_recorder *r) {
    if (!r) return;
    qn_allocator allocator = r->options.allocator;
    size_t bytes = qn_trace_ring_bytes(r->ring_words, r->options.max_labels);
    for (qn_trace_ring *ring = r->rings, *next; ring; ring = next) {
        next = ring->next;
        let_go(ring);
        allocator.release(allocator.user, ring, bytes);
    }
    pthread_mutex_destroy(&r->lock);
    allocator.release(allocator.user, r, sizeof *r);
}

void qn_record_drop_spent(qn_recorder *r) {
    const qn_allocator *a = &r->options.allocator;
    for (qn_trace_ring **at = &r->rings, *ring; (ring = *at) != NULL;) {
        if (!ring->spent) {
            at = &ring->next;
            continue;
        }
        *at = ring->next;
        r->info.labels_lost += atomic_load_explicit(&ring->labels_lost, memory_order_relaxed);
        a->release(a->user, ring, qn_trace_ring_bytes(r->ring_words, r->options.max_labels));
    }
}

/* ---- Lending ------------------------------------------------------------------------------------------------------ */

qn_status qn_recorder_attach(qn_recorder *r, qn_context *context, const char *thread, qn_error *error) {
    if (!r || !context) return qn_error_set(error, QN_ARGUMENT, "attaching needs a recorder and a context");
    if (context->ring) return qn_error_set(error, QN_ARGUMENT, "this context is attached to a recorder already");
    qn_allocator *a = &r->options.allocator;
    void *memory = a->allocate(a->user, qn_trace_ring_bytes(r->ring_words, r->options.max_labels), 64);
    if (!memory)
        return qn_error_set(error, QN_NO_MEMORY, "no memory for a ring of %llu bytes", (unsigned long long)(r->ring_words * 8));
    qn_trace_ring *ring = qn_trace_ring_init(memory, r->ring_words, r->options.max_labels);
    ring->drop_oldest = (r->options.flags & QN_RECORD_DROP_OLDEST) != 0;
    ring->shapes = (r->options.flags & QN_RECORD_SHAPES) != 0;
    ring->recording = &r->recording;
    ring->ids = &r->ids;
    ring->recorder = r;
    atomic_init(&ring->slot, &context->ring);
    pthread_mutex_lock(&r->lock);
    ring->index = ++r->n_rings;
    if (thread) snprintf(ring->thread, sizeof ring->thread, "%s", thread);
    else snprintf(ring->thread, sizeof ring->thread, "thread %u", ring->index);
    ring->next = r->rings;
    r->rings = ring;
    pthread_mutex_unlock(&r->lock);
    context->ring = ring;
    return QN_OK;
}

void qn_recorder_detach(qn_context *context) {
    if (!context || !context->ring) return;
    let_go(context->ring);
    context->ring = NULL;
}

qn_status qn_recorder_add_device(qn_recorder *r, const qn_record_device *device, qn_error *error) {
    if (!r || !device || device->size != sizeof *device)
        return qn_error_set(error, QN_ARGUMENT, "a device needs a recorder and a description of this version");
    qn_status status = QN_OK;
    pthread_mutex_lock(&r->lock);
    if (r->n_devices == QN_RECORD_DEVICES) {
        status = qn_error_set(error, QN_ARGUMENT, "a recorder knows at most %d devices", QN_RECORD_DEVICES);
    } else {
        qn_record_prop *prop = &r->devices[r->n_devices++];
        prop->device = *device;
        snprintf(prop->name, sizeof prop->name, "%s", device->name ? device->name : "");
        prop->device.name = prop->name;
    }
    pthread_mutex_unlock(&r->lock);
    return status;
}

/* ---- Writing and the schedule ------------------------------------------------------------------------------------- */

qn_status qn_recorder_write(qn_recorder *r, const char **path, qn_error *error) {
    if (path) *path = NULL;
    if (!r) return qn_error_set(error, QN_ARGUMENT, "there is no recorder to write");
    pthread_mutex_lock(&r->lock);
    qn_status status = qn_record_write_file(r, error);
    if (status == QN_OK && path) *path = r->path;
    pthread_mutex_unlock(&r->lock);
    return status;
}

qn_status qn_recorder_describe(qn_recorder *r, qn_recorder_info *info) {
    if (!r || !info || info->size != sizeof *info) return QN_ARGUMENT;
    pthread_mutex_lock(&r->lock);
    *info = r->info;
    info->dropped += r->unwritten;
    for (const qn_trace_ring *ring = r->rings; ring; ring = ring->next) {
        info->labels_lost += atomic_load_explicit(&ring->labels_lost, memory_order_relaxed);
        info->dropped += atomic_load_explicit(&ring->dropped, memory_order_relaxed) - ring->dropped_before;
    }
    pthread_mutex_unlock(&r->lock);
    return QN_OK;
}

typedef enum phase { PHASE_WAIT, PHASE_WARMUP, PHASE_ACTIVE } phase;

/* What a step of that number belongs to. Before the first step (-1) the phase is that of step 0. */
static phase phase_of(const qn_recorder_options *o, int64_t step) {
    if (o->active == 0) return PHASE_ACTIVE;
    uint64_t length = (uint64_t)o->wait + o->warmup + o->active, at = step < 0 ? 0 : (uint64_t)step;
    if (o->repeat && at / length >= o->repeat) return PHASE_WAIT;
    at %= length;
    return at < o->wait ? PHASE_WAIT : at < (uint64_t)o->wait + o->warmup ? PHASE_WARMUP : PHASE_ACTIVE;
}

/* Whether `step` is the first of an active phase: so it is after another phase, and in a schedule without any also after the
 * last step of the round before. */
static int opens_active(const qn_recorder_options *o, int64_t step) {
    uint64_t length = (uint64_t)o->wait + o->warmup + o->active;
    return o->active && phase_of(o, step) == PHASE_ACTIVE && (uint64_t)step % length == (uint64_t)o->wait + o->warmup;
}

static void forget(qn_recorder *r) {
    qn_arena arena;
    qn_arena_init(&arena, 0);
    uint64_t ignored = 0, *scratch = qn_arena_alloc(&arena, r->ring_words, sizeof *scratch);
    for (qn_trace_ring *ring = r->rings; scratch && ring; ring = ring->next) {
        qn_trace_collect(ring, scratch, &ignored);
        ring->open_step = -1;
    }
    qn_arena_destroy(&arena);
    qn_record_drop_spent(r);
}

qn_status qn_record_schedule(qn_recorder *r, qn_trace_ring *ring, uint64_t time, qn_error *error) {
    qn_status status = QN_OK;
    int64_t step = r->next_step++;
    phase now = phase_of(&r->options, step);
    int opens = opens_active(&r->options, step);
    int closes = r->options.active && step > 0 && phase_of(&r->options, step - 1) == PHASE_ACTIVE &&
                 (opens || now != PHASE_ACTIVE);
    if (closes) {
        uint64_t end[3] = {time, time, 0};
        qn_trace_write(ring, QN_TRACE_STEP, 1, end, 3);
        status = qn_record_write_file(r, error);
    } else if (opens) {
        forget(r);
    }
    if (opens) r->phase_start = time;
    atomic_store_explicit(&r->recording, now != PHASE_WAIT, memory_order_relaxed);
    uint64_t body[3] = {time, time, (uint64_t)step};
    if (now != PHASE_WAIT) qn_trace_write(ring, QN_TRACE_STEP, 0, body, 3);
    return status;
}
