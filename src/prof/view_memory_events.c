/* Memory events (section 17): every allocation with its release, and those of which only one half was seen. */
#include <string.h>

#include "prof/prof_sort.h"
#include "prof/view_memory.h"

typedef struct event_row {
    uint32_t device; /* running number */
    uint32_t name, parent;
    prof_num bytes, allocated, released; /* times; absent: not seen */
} event_row;

typedef struct open_record { /* an allocation or a release that waits for its other half */
    uint32_t record;
    int done;
} open_record;

typedef struct open_records { /* like a map that keeps its order: a key taken out and put in again goes to the end */
    prof_map at;              /* address to index into list, PROF_NIL once taken out */
    QN_VEC(open_record) list;
} open_records;

typedef struct event_list {
    prof_memory_view of;
    QN_VEC(event_row) rows;
    open_records allocations, releases;
} event_list;

/* ---- Pairing ------------------------------------------------------------------------------------------------------ */

/* The size is the release's where there is one, the device and the name are the allocation's. */
static int add_row(event_list *events, const prof_mem *allocation, const prof_mem *release) {
    const prof_mem *named = allocation ? allocation : release;
    if (!QN_VEC_ROOM(events->of.arena, &events->rows, 1)) {
        return 0;
    }
    event_row *row = &events->rows.at[events->rows.n++];
    row->device = qn_prof_memory_device(&events->of.devices, named->device);
    row->name = named->op_name;
    row->parent = named->parent_name;
    row->bytes = release ? prof_sub(prof_int(0), release->bytes) : allocation->bytes;
    row->allocated = allocation ? allocation->ts : prof_absent();
    row->released = release ? release->ts : prof_absent();
    return row->device != PROF_NIL;
}

static int keep(qn_arena *arena, open_records *open, prof_val address, uint32_t record) {
    uint32_t *at = qn_prof_map_put(&open->at, address, PROF_NIL);
    if (!at || !QN_VEC_ROOM(arena, &open->list, 1)) {
        return 0;
    }
    if (*at == PROF_NIL) {
        *at = (uint32_t)open->list.n++;
    }
    open->list.at[*at] = (open_record){record, 0};
    return 1;
}

static int take_record(event_list *events, uint32_t index) {
    const prof_mem *record = &events->of.trace->mems.at[index];
    if (record->address.tag == PROF_ABSENT || record->device == 0) {
        return 1;
    }
    if (prof_gt(record->bytes, prof_int(0))) {
        return keep(events->of.arena, &events->allocations, record->address, index);
    }
    uint32_t *at = qn_prof_map_find(&events->allocations.at, record->address);
    if (!at || *at == PROF_NIL) {
        return keep(events->of.arena, &events->releases, record->address, index);
    }
    open_record *open = &events->allocations.list.at[*at];
    open->done = 1;
    *at = PROF_NIL;
    return add_row(events, &events->of.trace->mems.at[open->record], record);
}

static int pair_records(event_list *events) {
    const prof_mem *records = events->of.trace->mems.at;
    for (size_t i = 0; i < events->of.trace->mems.n; i++) {
        if (!take_record(events, (uint32_t)i)) {
            return 0;
        }
    }
    for (size_t i = 0; i < events->allocations.list.n; i++) {
        const open_record *open = &events->allocations.list.at[i];
        if (!open->done && !add_row(events, &records[open->record], NULL)) {
            return 0;
        }
    }
    for (size_t i = 0; i < events->releases.list.n; i++) {
        if (!add_row(events, NULL, &records[events->releases.list.at[i].record])) {
            return 0;
        }
    }
    return 1;
}

/* ---- Writing ------------------------------------------------------------------------------------------------------ */

static int is_by_device(const void *a, const void *b, const void *context) {
    (void)context;
    return ((const event_row *)a)->device < ((const event_row *)b)->device;
}

static void put_head(prof_json *json, const event_list *events, const prof_units *units) {
    qn_prof_json_key(json, "metadata");
    qn_prof_json_object(json);
    qn_prof_json_key(json, "title");
    qn_prof_json_text(json, "Memory Events");
    qn_prof_memory_default(json, events->of.trace, &events->of.devices);
    qn_prof_json_object_end(json);
    qn_prof_json_key(json, "columns");
    qn_prof_json_array(json);
    qn_prof_memory_column(json, "Operator", NULL, 0, "");
    qn_prof_memory_column(json, "Size", units->memory, 1, "");
    qn_prof_memory_column(json, "Allocation Time", units->time, 1, "");
    qn_prof_memory_column(json, "Release Time", units->time, 1, "");
    qn_prof_memory_column(json, "Duration", units->time, 1, "");
    qn_prof_json_array_end(json);
}

/* An allocator's own operator says little, so its parent is named in front of it. */
static void put_name(prof_json *json, const prof_trace *trace, const event_row *row) {
    if (row->name == 0) {
        qn_prof_json_text(json, "<unknown>");
    } else if (row->parent && qn_prof_starts(prof_string(trace, row->name), "aten::empty")) {
        qn_prof_json_string_begin(json);
        qn_prof_view_string_part(json, trace, row->parent);
        qn_prof_json_part(json, " (");
        qn_prof_view_string_part(json, trace, row->name);
        qn_prof_json_part(json, ")");
        qn_prof_json_string_end(json);
    } else {
        qn_prof_view_string(json, trace, row->name);
    }
}

static void put_span(prof_json *json, const prof_units *units, prof_num from, prof_num to) {
    if (prof_is_num(from) && prof_is_num(to)) {
        qn_prof_json_num(json, qn_prof_memory_rounded(prof_mul(prof_sub(to, from), units->time_factor)));
    } else {
        qn_prof_json_null(json);
    }
}

static void put_rows(prof_json *json, const event_list *events, const prof_units *units) {
    const prof_trace *trace = events->of.trace;
    qn_prof_json_key(json, "rows");
    qn_prof_json_object(json);
    for (size_t i = 0; i < events->rows.n; i++) {
        const event_row *row = &events->rows.at[i];
        if (i == 0 || row->device != row[-1].device) {
            const prof_str *name = prof_memory_device_name(trace, &events->of.devices, row->device);
            qn_prof_json_key_bytes(json, name->at, name->length);
            qn_prof_json_array(json);
        }
        qn_prof_json_array(json);
        put_name(json, trace, row);
        qn_prof_json_num(json, qn_prof_memory_rounded(prof_mul(row->bytes, units->memory_factor)));
        put_span(json, units, trace->trace_start, row->allocated);
        put_span(json, units, trace->trace_start, row->released);
        put_span(json, units, row->allocated, row->released);
        qn_prof_json_array_end(json);
        if (i + 1 == events->rows.n || row->device != row[1].device) {
            qn_prof_json_array_end(json);
        }
    }
    qn_prof_json_object_end(json);
}

qn_status qn_prof_view_memory_events(const prof_view_context *context, prof_json *json, qn_error *error) {
    event_list events;
    memset(&events, 0, sizeof events);
    qn_status status = qn_prof_memory_begin(context, "KB", &events.of, error);
    if (status != QN_OK) {
        return status;
    }
    qn_prof_map_init(&events.allocations.at, context->arena);
    qn_prof_map_init(&events.releases.at, context->arena);
    if (!pair_records(&events) ||
        qn_prof_sort(context->arena, events.rows.at, events.rows.n, sizeof *events.rows.at, is_by_device, NULL) != QN_OK) {
        return QN_NO_MEMORY;
    }
    qn_prof_json_object(json);
    put_head(json, &events, &events.of.units);
    put_rows(json, &events, &events.of.units);
    qn_prof_json_object_end(json);
    return QN_OK;
}
