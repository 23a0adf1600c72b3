/* The memory curve (section 17): what is allocated and reserved over time, thinned out where there is more than can be drawn. */
#include <string.h>

#include "base/decimal.h"
#include "prof/prof_sort.h"
#include "prof/view_memory.h"
#include "prof/view_texts.h"

enum { MOST_POINTS = 10240 };

typedef struct point {
    prof_num time, allocated, reserved;
} point;

typedef struct curve { /* of one device */
    QN_VEC(point) points;
    prof_num peak; /* bytes; at least 0.0 */
} curve;

typedef struct curves {
    prof_memory_view of;
    QN_VEC(curve) list; /* by running number of the device */
} curves;

static curve *curve_of(curves *all, uint32_t device) {
    uint32_t at = qn_prof_memory_device(&all->of.devices, device);
    if (at == PROF_NIL || !QN_VEC_ROOM(all->of.arena, &all->list, 1)) {
        return NULL;
    }
    if (at == all->list.n) {
        curve *fresh = &all->list.at[all->list.n++];
        memset(fresh, 0, sizeof *fresh);
        fresh->peak = prof_dbl(0.0);
    }
    return &all->list.at[at];
}

/* A point at the new time with the old values comes before each new one, which makes steps of what would be slopes. */
static int add_point(qn_arena *arena, curve *c, const point *p) {
    if (!QN_VEC_ROOM(arena, &c->points, 2)) {
        return 0;
    }
    if (c->points.n) {
        point step = c->points.at[c->points.n - 1];
        step.time = p->time;
        c->points.at[c->points.n++] = step;
    }
    c->points.at[c->points.n++] = *p;
    return 1;
}

static int is_nan(prof_num v) { return !prof_is_num(v) || (v.tag == PROF_DBL && isnan(v.d)); }

static int collect(curves *all, const prof_units *units) {
    const prof_trace *trace = all->of.trace;
    for (size_t i = 0; i < trace->mems.n; i++) {
        const prof_mem *record = &trace->mems.at[i];
        if (record->address.tag == PROF_ABSENT || record->device == 0 || is_nan(record->allocated) || is_nan(record->reserved)) {
            continue;
        }
        curve *c = curve_of(all, record->device);
        point p = {prof_mul(prof_sub(record->ts, trace->trace_start), units->time_factor),
                   prof_mul(record->allocated, units->memory_factor), prof_mul(record->reserved, units->memory_factor)};
        if (!c || !add_point(all->of.arena, c, &p)) {
            return 0;
        }
        c->peak = prof_max(c->peak, record->allocated);
    }
    return 1;
}

/* ---- Largest triangle, three buckets ------------------------------------------------------------------------------ */

typedef struct spot {
    double x, y;
} spot;

static spot spot_of(const point *p) {
    spot s = {prof_to_dbl(p->time), prof_to_dbl(p->allocated)};
    return s;
}

static double triangle(spot a, spot b, spot c) { return 0.5 * fabs((a.x - c.x) * (b.y - a.y) - (a.x - b.x) * (c.y - a.y)); }

static spot mean(const point *points, size_t n) {
    spot sum = {0, 0};
    for (size_t i = 0; i < n; i++) {
        spot s = spot_of(&points[i]);
        sum.x += s.x;
        sum.y += s.y;
    }
    sum.x /= (double)n;
    sum.y /= (double)n;
    return sum;
}

/* The inner points fall into runs as even as can be, longer ones first; of each run the point stays that makes the largest
 * triangle with the point kept before and the centre of the next run. Done in place: a run lies at or behind where its point
 * goes. */
static void thin_out(curve *c) {
    point *points = c->points.at;
    size_t inner = c->points.n - 2, runs = MOST_POINTS - 2, longer = inner % runs, length = inner / runs, at = 1;
    for (size_t run = 0; run < runs; run++) {
        size_t n = length + (run < longer), next = run + 1 == runs ? 1 : length + (run + 1 < longer), best = at;
        spot kept = spot_of(&points[run]), centre = mean(&points[at + n], next);
        double largest = -1;
        for (size_t i = at; i < at + n; i++) {
            double area = triangle(kept, spot_of(&points[i]), centre);
            if (area > largest) {
                largest = area;
                best = i;
            }
        }
        points[run + 1] = points[best];
        at += n;
    }
    points[MOST_POINTS - 1] = points[c->points.n - 1];
    c->points.n = MOST_POINTS;
}

/* ---- Writing ------------------------------------------------------------------------------------------------------ */

static int is_name_before(const void *a, const void *b, const void *context) {
    return qn_prof_str_cmp(prof_string(context, *(const uint32_t *)a), prof_string(context, *(const uint32_t *)b)) < 0;
}

static qn_status put_devices(prof_json *json, const curves *all) {
    size_t n = all->of.devices.entries.n;
    uint32_t *names = qn_arena_alloc(all->of.arena, n, sizeof *names);
    if (!names) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        names[i] = (uint32_t)all->of.devices.entries.at[i].key.i;
    }
    if (qn_prof_sort(all->of.arena, names, n, sizeof *names, is_name_before, all->of.trace) != QN_OK) {
        return QN_NO_MEMORY;
    }
    qn_prof_json_key(json, "devices");
    qn_prof_json_array(json);
    for (size_t i = 0; i < n; i++) {
        qn_prof_view_string(json, all->of.trace, names[i]);
    }
    qn_prof_json_array_end(json);
    return QN_OK;
}

static void put_device_key(prof_json *json, const curves *all, size_t i) {
    const prof_str *name = prof_memory_device_name(all->of.trace, &all->of.devices, i);
    qn_prof_json_key_bytes(json, name->at, name->length);
}

static void put_peaks(prof_json *json, const curves *all, const prof_units *units) {
    char number[400];
    qn_prof_json_key(json, "peaks");
    qn_prof_json_object(json);
    for (size_t i = 0; i < all->list.n; i++) {
        double peak = prof_to_dbl(prof_mul(all->list.at[i].peak, units->memory_factor));
        put_device_key(json, all, i);
        qn_prof_json_string_begin(json);
        qn_prof_json_part(json, "Peak Memory Usage: ");
        qn_prof_json_part_bytes(json, number, (size_t)qn_decimal_print(number, sizeof number, 'f', 1, peak));
        qn_prof_json_part(json, units->memory);
        qn_prof_json_string_end(json);
    }
    qn_prof_json_object_end(json);
}

static qn_status put_metadata(prof_json *json, const curves *all, const prof_units *units) {
    qn_prof_json_key(json, "metadata");
    qn_prof_json_object(json);
    qn_prof_memory_default(json, all->of.trace, &all->of.devices);
    qn_status status = put_devices(json, all);
    put_peaks(json, all, units);
    qn_prof_json_key(json, "totals"); /* the reference looks for them in the wrong place and never finds any */
    qn_prof_json_object(json);
    qn_prof_json_object_end(json);
    qn_prof_json_key(json, "first_ts");
    qn_prof_json_num(json, all->of.trace->trace_start);
    qn_prof_json_key(json, "time_metric");
    qn_prof_json_text(json, units->time);
    qn_prof_json_key(json, "memory_metric");
    qn_prof_json_text(json, units->memory);
    qn_prof_json_key(json, "time_factor");
    qn_prof_json_num(json, units->time_factor);
    qn_prof_json_key(json, "memory_factor");
    qn_prof_json_num(json, units->memory_factor);
    qn_prof_json_object_end(json);
    qn_prof_json_key(json, "columns");
    qn_prof_json_array(json);
    qn_prof_memory_column(json, "Time", units->time, 1, qn_prof_text_curve_time);
    qn_prof_memory_column(json, "Allocated", units->memory, 1, qn_prof_text_curve_allocated);
    qn_prof_memory_column(json, "Reserved", units->memory, 1, qn_prof_text_curve_reserved);
    qn_prof_json_array_end(json);
    return status;
}

static void put_rows(prof_json *json, const curves *all) {
    qn_prof_json_key(json, "rows");
    qn_prof_json_object(json);
    for (size_t i = 0; i < all->list.n; i++) {
        const curve *c = &all->list.at[i];
        put_device_key(json, all, i);
        qn_prof_json_array(json);
        for (size_t k = 0; k < c->points.n; k++) {
            qn_prof_json_array(json);
            qn_prof_json_num(json, c->points.at[k].time);
            qn_prof_json_num(json, c->points.at[k].allocated);
            qn_prof_json_num(json, c->points.at[k].reserved);
            qn_prof_json_array_end(json);
        }
        qn_prof_json_array_end(json);
    }
    qn_prof_json_object_end(json);
}

qn_status qn_prof_view_memory_curve(const prof_view_context *context, prof_json *json, qn_error *error) {
    curves all;
    memset(&all, 0, sizeof all);
    qn_status status = qn_prof_memory_begin(context, "MB", &all.of, error);
    if (status != QN_OK) {
        return status;
    }
    if (!collect(&all, &all.of.units)) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < all.list.n && !prof_is_a(all.of.trace); i++) {
        if (all.list.at[i].points.n > MOST_POINTS) {
            thin_out(&all.list.at[i]);
        }
    }
    qn_prof_json_object(json);
    status = put_metadata(json, &all, &all.of.units);
    put_rows(json, &all);
    qn_prof_json_object_end(json);
    return status;
}
