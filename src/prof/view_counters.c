/* Utilisation per device over time, in up to a hundred buckets, and the estimated SM efficiency piece by piece. */
#include "prof/view_counters.h"

#include <string.h>

#include "prof/view_util.h"

typedef struct counters {
    prof_json *json;
    const prof_trace *trace;
    const prof_device *device;
    const char *title, *key; /* name after the device, and the argument's name */
    size_t written;
} counters;

static inline void put(prof_json *json, const char *text) { qn_prof_json_raw(json, text, strlen(text)); }

static void put_num(prof_json *json, prof_num value) { qn_prof_json_part_num(json, value); }

static void put_counter(counters *c, prof_num ts, prof_num value) {
    prof_json *json = c->json;
    if (c->written++) {
        put(json, ", ");
    }
    put(json, "{\"ph\":\"C\", \"name\":\"");
    put(json, c->trace->device_word);
    put(json, " ");
    qn_prof_view_value_part(json, c->trace, c->device->id);
    put(json, " ");
    put(json, c->title);
    put(json, "\", \"pid\":");
    json->comma = 0; /* the text around it is ours, so the writer must not place any */
    qn_prof_view_value(json, c->trace, c->device->id);
    put(json, ", \"ts\":");
    put_num(json, ts);
    put(json, ", \"args\":{\"");
    put(json, c->key);
    put(json, "\":");
    put_num(json, value);
    put(json, "}}");
}

/* The first two make the viewer draw the axis from 0 to 1. */
static void put_baseline(counters *c) {
    put_counter(c, c->trace->window_start, prof_int(1));
    put_counter(c, c->trace->window_start, prof_int(0));
}

typedef struct buckets {
    int64_t size; /* a power of ten */
    int n;
    prof_num start, end;
} buckets;

/* None for a window shorter than a microsecond, or one that is not a time at all. */
static buckets divide_window(const prof_trace *trace) {
    buckets b = {1, 0, trace->window_start, trace->window_end};
    double length = prof_is_num(b.start) && prof_is_num(b.end) ? prof_to_dbl(prof_sub(b.end, b.start)) : 0;
    while (length / (double)b.size > 100 && b.size <= INT64_MAX / 10) {
        b.size *= 10;
    }
    length /= (double)b.size;
    b.n = length >= 1 && length <= 100 ? (int)length : 0;
    return b;
}

static prof_num bucket_start(const buckets *b, int i) { return prof_add(b->start, prof_mul(prof_int(i), prof_int(b->size))); }

static prof_num bucket_end(const buckets *b, int i) { return i < b->n - 1 ? bucket_start(b, i + 1) : b->end; }

/* Both lists are sorted, so one walk over the ranges serves all buckets; *at stays at the first range that may matter later. */
static prof_num busy_in(const prof_ranges *busy, size_t *at, prof_num start, prof_num end) {
    prof_num sum = prof_int(0);
    while (*at < busy->n && prof_gt(end, busy->at[*at].start)) {
        const prof_range *range = &busy->at[*at];
        if (prof_lt(start, range->end)) {
            prof_num left = prof_max(range->start, start), right = prof_min(range->end, end);
            sum = prof_add(sum, prof_sub(right, left));
            if (prof_lt(end, range->end)) {
                break;
            }
        }
        ++*at;
    }
    return sum;
}

static void put_utilisation(counters *c, const buckets *b) {
    size_t at = 0;
    put_baseline(c);
    for (int i = 0; i < b->n; i++) {
        prof_num start = bucket_start(b, i), end = bucket_end(b, i);
        put_counter(c, start, prof_dbl(prof_div(busy_in(&c->device->busy, &at, start, end), prof_sub(end, start))));
    }
    put_counter(c, b->end, prof_int(0));
}

static void put_efficiency(counters *c) {
    const prof_pieces *pieces = &c->device->efficiency_pieces;
    if (pieces->n) {
        put_baseline(c);
    }
    for (size_t i = 0; i < pieces->n; i++) {
        put_counter(c, pieces->at[i].start, pieces->at[i].value);
        put_counter(c, pieces->at[i].end, prof_int(0));
    }
}

int qn_prof_view_has_counters(const prof_trace *trace) { return trace->devices.n && divide_window(trace).n; }

void qn_prof_view_put_counters(prof_json *json, const prof_trace *trace) {
    counters c = {json, trace, NULL, "Utilization", trace->is_gpu ? "GPU Utilization" : "MLU Utilization", 0};
    buckets b = divide_window(trace);
    for (size_t i = 0; i < trace->devices.n && b.n; i++) {
        c.device = &trace->devices.at[i];
        put_utilisation(&c, &b);
    }
    c.title = c.key = "Est. SM Efficiency";
    for (size_t i = 0; i < trace->devices.n && b.n && prof_nvidia_rules(trace); i++) {
        c.device = &trace->devices.at[i];
        put_efficiency(&c);
    }
}

qn_status qn_prof_view_trace_counters(const prof_view_context *context, prof_json *json, qn_error *error) {
    (void)error;
    qn_prof_json_raw(json, "[", 1);
    qn_prof_view_put_counters(json, context->trace);
    qn_prof_json_raw(json, "]", 1);
    return QN_OK;
}
