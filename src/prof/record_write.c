/* From rings to a file: collect, put in order, write the frame around the events. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "prof/record_file.h"

/* ---- Collecting --------------------------------------------------------------------------------------------------- */

/* What encloses comes before what it encloses; of two that cover the same time the one that ended later is the outer one. */
static int before(const void *left, const void *right) {
    const qn_record_key *a = left, *b = right;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    if (a->end != b->end) return a->end > b->end ? -1 : 1;
    return a->record > b->record ? -1 : a->record < b->record;
}

static qn_status sort_records(qn_record_file *f, qn_record_thread *t, const uint64_t *words, size_t n_words) {
    uint64_t least = f->recorder->options.active ? f->recorder->phase_start : 0;
    size_t n = 0;
    for (size_t at = 0; at < n_words; at += qn_trace_head_words(words[at])) n++;
    t->keys = qn_arena_alloc(&f->arena, n, sizeof *t->keys);
    if (!t->keys) return QN_NO_MEMORY;
    for (size_t at = 0; at < n_words; at += qn_trace_head_words(words[at])) {
        const uint64_t *record = words + at;
        if (record[1] < least) continue;
        t->keys[t->n++] = (qn_record_key){record[1], record[2], record};
        qn_trace_kind kind = qn_trace_head_kind(*record);
        if (kind != QN_TRACE_DEVICE && record[2] > t->last_end) t->last_end = record[2];
    }
    qsort(t->keys, t->n, sizeof *t->keys, before);
    return QN_OK;
}

static qn_status collect(qn_record_file *f) {
    qn_recorder *r = f->recorder;
    for (qn_trace_ring *ring = r->rings; ring; ring = ring->next) f->n_threads++;
    f->threads = qn_arena_alloc(&f->arena, f->n_threads, sizeof *f->threads);
    uint64_t *scratch = qn_arena_resize(&f->arena, NULL, (size_t)r->ring_words, sizeof *scratch);
    if (!f->threads || !scratch) return QN_NO_MEMORY;
    size_t place = f->n_threads; /* the list begins with the newest */
    for (qn_trace_ring *ring = r->rings; ring; ring = ring->next) {
        qn_record_thread *t = &f->threads[--place];
        t->ring = ring;
        size_t n = qn_trace_collect(ring, scratch, &f->lost);
        uint64_t *words = qn_arena_alloc(&f->arena, n, sizeof *words);
        if (!words) return QN_NO_MEMORY;
        memcpy(words, scratch, n * sizeof *words);
        if (sort_records(f, t, words, n) != QN_OK) return QN_NO_MEMORY;
    }
    qn_arena_release(&f->arena, scratch);
    return QN_OK;
}

/* ---- Tables ------------------------------------------------------------------------------------------------------- */

static int by_key(const void *left, const void *right) {
    const qn_record_pair *a = left, *b = right;
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    return a->start < b->start ? -1 : a->start > b->start;
}

const qn_record_pair *qn_record_find(const qn_record_pairs *pairs, uint64_t key) {
    size_t low = 0, high = pairs->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (pairs->at[middle].key < key) low = middle + 1;
        else high = middle;
    }
    return low < pairs->n && pairs->at[low].key == key ? &pairs->at[low] : NULL;
}

static qn_status add(qn_record_file *f, qn_record_pairs *pairs, uint64_t key, uint64_t start, uint32_t tid) {
    if (!QN_VEC_ROOM(&f->arena, pairs, 1)) return QN_NO_MEMORY;
    pairs->at[pairs->n++] = (qn_record_pair){key, start, tid};
    return QN_OK;
}

static void sort_pairs(qn_record_pairs *pairs, int distinct) {
    if (!pairs->n) return;
    qsort(pairs->at, pairs->n, sizeof *pairs->at, by_key);
    size_t kept = 1;
    for (size_t i = 1; distinct && i < pairs->n; i++)
        if (by_key(&pairs->at[kept - 1], &pairs->at[i]) != 0) pairs->at[kept++] = pairs->at[i];
    if (distinct) pairs->n = kept;
}

static qn_status tabulate_one(qn_record_file *f, const qn_record_thread *t, const qn_record_key *k, int *links) {
    const uint64_t *body = k->record + 1;
    qn_status status = QN_OK;
    switch (qn_trace_head_kind(*k->record)) {
    case QN_TRACE_RUNTIME:
        if (body[3]) status = add(f, &f->submits, body[3], k->start, t->ring->index);
        break;
    case QN_TRACE_DEVICE:
        if (body[3]) status = add(f, &f->works, body[3], 0, 0);
        if (status == QN_OK) status = add(f, &f->queues, (uint32_t)body[5], body[5] >> 32, 0);
        break;
    case QN_TRACE_LINK: *links = 1; break;
    default: break;
    }
    return status;
}

static qn_status tabulate_ops(qn_record_file *f) {
    for (size_t i = 0; i < f->n_threads; i++)
        for (size_t j = 0; j < f->threads[i].n; j++) {
            const qn_record_key *k = &f->threads[i].keys[j];
            qn_trace_kind kind = qn_trace_head_kind(*k->record);
            if (kind != QN_TRACE_OP && kind != QN_TRACE_HOST) continue;
            if (add(f, &f->ops, k->record[3], k->start, f->threads[i].ring->index) != QN_OK) return QN_NO_MEMORY;
        }
    sort_pairs(&f->ops, 0);
    return QN_OK;
}

static qn_status tabulate(qn_record_file *f) {
    int links = 0;
    for (size_t i = 0; i < f->n_threads; i++)
        for (size_t j = 0; j < f->threads[i].n; j++)
            if (tabulate_one(f, &f->threads[i], &f->threads[i].keys[j], &links) != QN_OK) return QN_NO_MEMORY;
    sort_pairs(&f->submits, 0);
    sort_pairs(&f->works, 1);
    sort_pairs(&f->queues, 1);
    return links ? tabulate_ops(f) : QN_OK;
}

/* ---- Steps -------------------------------------------------------------------------------------------------------- */

/* Where a step goes on that was open when the last file was written: where that file ends, but around what was open then, too, and is
 * in this file whole. */
static uint64_t carried_on(const qn_record_file *f, const qn_record_thread *t) {
    uint64_t start = f->start;
    for (size_t j = 0; j < t->n && t->keys[j].start < start; j++)
        if (qn_trace_head_kind(*t->keys[j].record) != QN_TRACE_DEVICE) start = t->keys[j].start;
    return start > t->ring->step_start ? start : t->ring->step_start;
}

/* A step lasts until the next begins, a nanosecond less so that readers see no overlap; the last one until its thread's last
 * record. One that is open is remembered for the next file. */
static void emit_steps(qn_record_file *f, const qn_record_thread *t) {
    int64_t number = t->ring->open_step;
    uint64_t start = carried_on(f, t);
    for (size_t j = 0; j < t->n; j++) {
        const qn_record_key *k = &t->keys[j];
        if (qn_trace_head_kind(*k->record) != QN_TRACE_STEP) continue;
        if (number >= 0) qn_record_emit_step(f, t, (uint64_t)number, start, k->start - 1);
        number = qn_trace_head_tag(*k->record) ? -1 : (int64_t)k->record[3];
        start = t->ring->step_start = k->start;
    }
    if (number >= 0 && t->last_end >= start) qn_record_emit_step(f, t, (uint64_t)number, start, t->last_end + 1);
    t->ring->open_step = number;
}

/* ---- The frame ---------------------------------------------------------------------------------------------------- */

static void member(qn_record_file *f, int comma, const char *name) {
    qn_out_text(f->out, comma ? ",\"" : "\"");
    qn_out_text(f->out, name);
    qn_out_text(f->out, "\":");
}

static void member_string(qn_record_file *f, int comma, const char *name, const char *text) {
    member(f, comma, name);
    qn_out_text(f->out, "\"");
    qn_out_escaped(f->out, text, strlen(text));
    qn_out_text(f->out, "\"");
}

static void member_id(qn_record_file *f, const char *name, uint64_t value) {
    if (!value) return;
    member(f, 1, name);
    qn_out_id(f->out, value);
}

static void write_devices(qn_record_file *f) {
    member(f, 1, "deviceProperties");
    qn_out_text(f->out, "[");
    for (int i = 0; i < f->recorder->n_devices; i++) {
        const qn_record_device *d = &f->recorder->devices[i].device;
        qn_out_text(f->out, i ? ",{\"id\":" : "{\"id\":");
        qn_out_int(f->out, i);
        if (*d->name) member_string(f, 1, "name", d->name);
        member_id(f, "totalGlobalMem", d->memory);
        if (d->compute_major) {
            member_id(f, "computeMajor", (uint64_t)d->compute_major);
            member(f, 1, "computeMinor");
            qn_out_int(f->out, d->compute_minor);
        }
        member_id(f, "numSms", (uint64_t)d->cores);
        member_id(f, "clockBoundNanoseconds", d->clock_bound);
        qn_out_text(f->out, "}");
    }
    qn_out_text(f->out, "]");
}

static void write_limits(qn_record_file *f) {
    const qn_limits *l = &f->recorder->limits;
    const struct {
        const char *name;
        double value;
    } rates[] = {{"gflops", l->gflops},
                 {"gbps", l->triad_gbps > l->read_gbps ? l->triad_gbps : l->read_gbps},
                 {"gflops_core", l->gflops_core},
                 {"gbps_core", l->triad_gbps_core > l->read_gbps_core ? l->triad_gbps_core : l->read_gbps_core},
                 {"read_gbps", l->read_gbps},
                 {"write_gbps", l->write_gbps},
                 {"triad_gbps", l->triad_gbps}};
    if (!f->recorder->has_limits) return;
    member(f, 1, "quernLimits");
    qn_out_text(f->out, "{\"cores\":");
    qn_out_int(f->out, l->cores);
    member_string(f, 1, "isa", l->isa);
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        member(f, 1, rates[i].name);
        qn_out_number(f->out, rates[i].value);
    }
    qn_out_text(f->out, "}");
}

static void meta(qn_record_file *f, const char *what, int64_t pid, int64_t tid, const char *key, const char *text,
                 int64_t number) {
    qn_record_event_open(f, "M", NULL);
    qn_record_event_name(f, "", what, strlen(what), "");
    qn_record_event_place(f, pid, tid);
    qn_record_event_at(f, f->start);
    qn_out_text(f->out, ",\"args\":{");
    if (text) {
        member_string(f, 0, key, text);
    } else {
        member(f, 0, key);
        qn_out_int(f->out, number);
    }
    qn_out_text(f->out, "}}");
}

static void write_host_names(qn_record_file *f) {
    meta(f, "process_name", f->pid, 0, "name", "quern", 0);
    meta(f, "process_labels", f->pid, 0, "labels", "CPU", 0);
    meta(f, "process_sort_index", f->pid, 0, "sort_index", NULL, f->pid);
    for (size_t i = 0; i < f->n_threads; i++) {
        const qn_trace_ring *ring = f->threads[i].ring;
        meta(f, "thread_name", f->pid, ring->index, "name", ring->thread, 0);
        meta(f, "thread_sort_index", f->pid, ring->index, "sort_index", NULL, ring->index);
    }
}

static void write_device_names(qn_record_file *f) {
    char text[64];
    for (size_t i = 0; i < f->queues.n; i++) {
        int32_t device = (int32_t)(uint32_t)f->queues.at[i].key, queue = (int32_t)(uint32_t)f->queues.at[i].start;
        if (i == 0 || f->queues.at[i - 1].key != f->queues.at[i].key) {
            int known = device >= 0 && device < f->recorder->n_devices && *f->recorder->devices[device].name;
            meta(f, "process_name", device, 0, "name", known ? f->recorder->devices[device].name : "device", 0);
            snprintf(text, sizeof text, "GPU %d", device);
            meta(f, "process_labels", device, 0, "labels", text, 0);
            meta(f, "process_sort_index", device, 0, "sort_index", NULL, 5000000 + (int64_t)device);
        }
        snprintf(text, sizeof text, "queue %d", queue);
        meta(f, "thread_name", device, queue, "name", text, 0);
        meta(f, "thread_sort_index", device, queue, "sort_index", NULL, queue);
    }
}

static void write_span(qn_record_file *f) {
    qn_record_event_open(f, "X", "Trace");
    qn_out_text(f->out, ",\"name\":\"PyTorch Profiler (0)\",\"pid\":\"Spans\",\"tid\":\"PyTorch Profiler\"");
    qn_record_event_span(f, f->start, f->end);
    qn_out_text(f->out, ",\"args\":{\"Op count\":0}}");
    f->events--;
    qn_record_event_open(f, "i", NULL);
    qn_out_text(
        f->out,
        ",\"name\":\"Iteration Start: PyTorch Profiler\",\"s\":\"g\",\"pid\":\"Traces\",\"tid\":\"Trace PyTorch Profiler\"");
    qn_record_event_at(f, f->start);
    qn_out_text(f->out, "}");
    qn_record_event_open(f, "i", NULL);
    qn_out_text(f->out, ",\"name\":\"Record Window End\",\"s\":\"g\",\"pid\":\"\",\"tid\":\"\"");
    qn_record_event_at(f, f->end);
    qn_out_text(f->out, "}");
}

static void write_counts(qn_record_file *f) {
    uint64_t labels_lost = f->recorder->info.labels_lost;
    for (size_t i = 0; i < f->n_threads; i++)
        labels_lost += atomic_load_explicit(&f->threads[i].ring->labels_lost, memory_order_relaxed);
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {{"events", f->events}, {"dropped", f->lost}, {"labels_lost", labels_lost}, {"clamped", f->clamped}};
    member(f, 1, "quernRecorder");
    qn_out_text(f->out, "{\"version\":\"");
    qn_out_text(f->out, qn_version());
    qn_out_text(f->out, "\"");
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        member(f, 1, counts[i].name);
        qn_out_id(f->out, counts[i].value);
    }
    qn_out_text(f->out, "}");
}

static void write_trace(qn_record_file *f) {
    qn_out_text(f->out, "{\"schemaVersion\":1");
    write_devices(f);
    qn_out_text(f->out, ",\"displayTimeUnit\":\"ms\",\"baseTimeNanoseconds\":");
    qn_out_id(f->out, f->recorder->base_wall);
    write_limits(f);
    qn_out_text(f->out, ",\"traceEvents\":[");
    write_host_names(f);
    write_device_names(f);
    write_span(f);
    for (size_t i = 0; i < f->n_threads; i++) emit_steps(f, &f->threads[i]);
    qn_record_emit_threads(f);
    qn_out_text(f->out, "\n]");
    write_counts(f);
    member_string(f, 1, "traceName", f->out->path);
    qn_out_text(f->out, "}\n");
}

/* ---- The file ----------------------------------------------------------------------------------------------------- */

/* <host>_<pid>.<stamp>.pt.trace.json[.gz]; the worker's name may hold nothing that a path or the pattern could misread. */
static void name_file(qn_recorder *r, int64_t pid, uint64_t wall) {
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) != 0 || !*host) snprintf(host, sizeof host, "host");
    for (char *c = host; *c; c++) {
        int plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '-';
        if (!plain) *c = *c == '.' ? 0 : '-';
        if (!*c) break;
    }
    r->last_stamp = wall > r->last_stamp ? wall : r->last_stamp + 1;
    snprintf(r->path, sizeof r->path, "%s/%s_%lld.%llu.pt.trace.json%s", r->folder, *host ? host : "host", (long long)pid,
             (unsigned long long)r->last_stamp, r->options.flags & QN_RECORD_GZIP ? ".gz" : "");
}

/* What is collected is gone from the rings: the file is there before. */
static qn_status write_out(qn_record_file *f, qn_error *error) {
    qn_recorder *r = f->recorder;
    qn_status status = qn_out_open(f->out, r->path, (r->options.flags & QN_RECORD_GZIP) != 0, error);
    if (status != QN_OK) return status;
    status = collect(f);
    if (status == QN_OK) status = tabulate(f);
    if (status == QN_OK) write_trace(f);
    else qn_error_set(error, status, "no memory to put the records of %zu threads in order", f->n_threads);
    qn_status closed = qn_out_close(f->out, status == QN_OK, status == QN_OK ? error : NULL);
    return status == QN_OK ? closed : status;
}

/* After a file that failed: its records are lost as those are that a ring had no room for. */
static void count_unwritten(const qn_record_file *f) {
    f->recorder->unwritten = f->lost;
    for (size_t i = 0; f->threads && i < f->n_threads; i++) f->recorder->unwritten += f->threads[i].n;
}

qn_status qn_record_write_file(qn_recorder *r, qn_error *error) {
    qn_record_file f;
    memset(&f, 0, sizeof f);
    f.recorder = r;
    f.pid = getpid();
    f.whole = (r->options.flags & QN_RECORD_WHOLE_US) != 0;
    f.end = qn_clock_now();
    f.lost = r->unwritten;
    f.start = r->window_start > r->phase_start ? r->window_start : r->phase_start;
    qn_status status = qn_out_make_folder(r->folder, error);
    if (status != QN_OK) return status;
    name_file(r, f.pid, qn_clock_wall());
    qn_arena_init(&f.arena, 0);
    f.out = qn_arena_alloc(&f.arena, 1, sizeof *f.out);
    status = f.out ? write_out(&f, error) : qn_error_set(error, QN_NO_MEMORY, "no memory to write a trace");
    if (status != QN_OK) count_unwritten(&f);
    if (status == QN_OK) {
        r->unwritten = 0;
        r->info.dropped += f.lost;
        r->window_start = f.end;
        r->info.files++;
        r->info.events += f.events;
        r->info.clamped += f.clamped;
    }
    qn_arena_destroy(&f.arena);
    qn_record_drop_spent(r);
    return status;
}
