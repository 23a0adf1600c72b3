/* --owner=enclosing: the rule of torch_mlu's edition for PyTorch 2.1, which met traces whose runtime calls carry ids that are no
 * operator's. Each runtime call takes the external id of the last event, in order of time, that encloses it on the same pid and tid
 * and has an id other than 0. Device work does not count, nor does another call of the same correlation. Of two calls over the
 * very same time the one with the lower correlation counts as the outer one, unless its id is its correlation, that is: wrong.
 *
 * The reference compares every call with every event. Here each track keeps the events that may still enclose something: an event
 * that a later one outlasts can never again be the last that encloses, so the ends of those kept fall, and one search finds it. */
#include <string.h>

#include "prof/prof_passes.h"

static const uint64_t MOST_COMPARISONS = 1000000000; /* some seconds; beyond it the trace is hostile */

typedef struct track { /* one pid and tid */
    prof_ids open;     /* events with an id, in order; their ends fall */
} track;

typedef struct repair {
    prof_trace *trace;
    prof_map index; /* pid and tid to track */
    QN_VEC(track) tracks;
    uint32_t *track_of; /* per event of the group at hand */
    uint64_t comparisons;
} repair;

static int is_device_work(const prof_event *event) {
    return event->kind == PROF_KIND_KERNEL || event->kind == PROF_KIND_MEMCPY || event->kind == PROF_KIND_MEMSET;
}

static int has_id(const prof_trace *trace, const prof_event *event) {
    prof_val id = qn_prof_thread_key(trace, prof_event_external(event)); /* ids are read as threads are: "7" is 7 */
    return prof_is_num(id) && !prof_is_zero(id);
}

static int same_call(const prof_event *call, const prof_event *event) {
    return event->kind == PROF_KIND_RUNTIME && prof_same(prof_event_correlation(event), prof_event_correlation(call));
}

static void give_id(prof_event *call, const prof_event *from) {
    call->external = from->external;
    call->external_tag = from->external_tag;
}

/* ---- Events that began earlier ------------------------------------------------------------------------------------ */

/* The last event of the track before `end` that encloses the call, looked for one by one. */
static const prof_event *search_back(repair *r, const prof_event *call, size_t end) {
    const prof_trace *trace = r->trace;
    for (size_t i = end; i-- > 0; r->comparisons++) {
        const prof_event *event = &trace->events.at[i];
        if (event->pid == call->pid && event->tid == call->tid && !is_device_work(event) && !same_call(call, event) &&
            prof_ge(prof_event_end(event), prof_event_end(call)) && has_id(trace, event)) {
            return event;
        }
    }
    return NULL;
}

static const prof_event *find_open(repair *r, const prof_event *call, const track *t, size_t group) {
    const prof_trace *trace = r->trace;
    size_t low = 0, high = t->open.n; /* those before `low` reach at least as far as the call */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (prof_ge(prof_event_end(&trace->events.at[t->open.at[middle]]), prof_event_end(call))) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0) {
        return NULL;
    }
    const prof_event *found = &trace->events.at[t->open.at[low - 1]];
    return same_call(call, found) ? search_back(r, call, group) : found; /* what it hid may be the answer */
}

static qn_status open_event(repair *r, uint32_t index, track *t) {
    const prof_trace *trace = r->trace;
    const prof_event *event = &trace->events.at[index];
    if (is_device_work(event) || !has_id(trace, event)) {
        return QN_OK;
    }
    while (t->open.n && !prof_gt(prof_event_end(&trace->events.at[t->open.at[t->open.n - 1]]), prof_event_end(event))) {
        t->open.n--;
    }
    if (!QN_VEC_ROOM(&r->trace->arena, &t->open, 1)) {
        return QN_NO_MEMORY;
    }
    t->open.at[t->open.n++] = index;
    return QN_OK;
}

/* ---- Events that begin together ----------------------------------------------------------------------------------- */

/* Whether one that begins with the call gives it its id. */
static int encloses_at_once(const prof_trace *trace, const prof_event *event, const prof_event *call) {
    int order = prof_cmp(prof_event_end(event), prof_event_end(call));
    if (order == 0 && event->kind == PROF_KIND_RUNTIME) {
        prof_val outer = prof_event_correlation(event), inner = prof_event_correlation(call);
        return prof_is_num(outer) && prof_is_num(inner) && prof_lt(outer, inner) && !prof_same(outer, prof_event_external(event));
    }
    return (order == 0 || order == 1) && has_id(trace, event);
}

static void repair_call(repair *r, size_t begin, size_t end, size_t at) {
    prof_trace *trace = r->trace;
    prof_event *call = &trace->events.at[at];
    const prof_event *from = find_open(r, call, &r->tracks.at[r->track_of[at - begin]], begin);
    for (size_t i = begin; i < end; i++, r->comparisons++) {
        const prof_event *event = &trace->events.at[i];
        if (r->track_of[i - begin] == r->track_of[at - begin] && !is_device_work(event) && !same_call(call, event) &&
            encloses_at_once(trace, event, call)) {
            from = event;
        }
    }
    if (from) {
        give_id(call, from);
    }
}

static qn_status find_tracks(repair *r, size_t begin, size_t end) {
    prof_trace *trace = r->trace;
    for (size_t i = begin; i < end; i++) {
        const prof_event *event = &trace->events.at[i];
        prof_val key = prof_int((int64_t)((uint64_t)event->pid << 32 | event->tid));
        uint32_t *known = qn_prof_map_put(&r->index, key, (uint32_t)r->tracks.n);
        if (!known || !QN_VEC_ROOM(&trace->arena, &r->tracks, 1)) {
            return QN_NO_MEMORY;
        }
        if (*known == r->tracks.n) {
            memset(&r->tracks.at[r->tracks.n++], 0, sizeof *r->tracks.at);
        }
        r->track_of[i - begin] = *known;
    }
    return QN_OK;
}

/* Events [begin, end) start at the same time. */
static qn_status repair_group(repair *r, size_t begin, size_t end) {
    prof_trace *trace = r->trace;
    qn_status status = find_tracks(r, begin, end);
    for (size_t i = begin; i < end && status == QN_OK; i++) {
        if (trace->events.at[i].kind == PROF_KIND_RUNTIME) {
            repair_call(r, begin, end, i);
        }
        status = r->comparisons > MOST_COMPARISONS ? QN_FORMAT : QN_OK;
    }
    for (size_t i = begin; i < end && status == QN_OK; i++) {
        status = open_event(r, (uint32_t)i, &r->tracks.at[r->track_of[i - begin]]);
    }
    return status;
}

qn_status qn_prof_owner_repair(prof_trace *trace, qn_error *error) {
    repair r;
    memset(&r, 0, sizeof r);
    r.trace = trace;
    qn_prof_map_init(&r.index, &trace->arena);
    r.track_of = qn_arena_resize(&trace->arena, NULL, trace->events.n, sizeof *r.track_of);
    qn_status status = r.track_of ? QN_OK : QN_NO_MEMORY;
    for (size_t begin = 0, end; begin < trace->events.n && status == QN_OK; begin = end) {
        prof_num start = prof_event_ts(&trace->events.at[begin]);
        for (end = begin + 1; end < trace->events.n && prof_eq(prof_event_ts(&trace->events.at[end]), start); end++) {}
        status = repair_group(&r, begin, end);
    }
    for (size_t i = 0; i < r.tracks.n; i++) {
        QN_VEC_FREE(&trace->arena, &r.tracks.at[i].open);
    }
    QN_VEC_FREE(&trace->arena, &r.tracks);
    qn_prof_map_free(&r.index);
    qn_arena_release(&trace->arena, r.track_of);
    return status == QN_FORMAT ? qn_error_set(error, status, "too many calls at the same time for --owner=enclosing") : status;
}
