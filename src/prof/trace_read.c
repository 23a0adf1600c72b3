/* The top of a trace file: which keys matter, and the stream of events. One pass; only the event at hand is in memory. */
#include "prof/trace_read.h"

#include <string.h>

/* ---- deviceProperties --------------------------------------------------------------------------------------------- */

/* The next member of an object whose text is checked already, so that the scanner cannot fail in it; 0 behind the last. */
static int next_pair(prof_reader *reader, const char **p, int first, prof_tok *key, prof_tok *value) {
    int closed;
    return qn_prof_scan_member(&reader->cursor.scan, p, first, key, &closed) == PROF_SCAN_OK && !closed &&
           qn_prof_scan_value(&reader->cursor.scan, p, value) == PROF_SCAN_OK;
}

static prof_val *prop_field(prof_prop *prop, const char *key, size_t length) {
    static const char *const KEYS[] = {"name", "totalGlobalMem", "totalMem(MiB)", "computeMajor", "computeMinor"};
    prof_val *const fields[] = {&prop->name, &prop->total_global_mem, &prop->total_mem_mib, &prop->compute_major,
                                &prop->compute_minor};
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        if (strlen(KEYS[i]) == length && memcmp(KEYS[i], key, length) == 0) {
            return fields[i];
        }
    }
    return NULL;
}

/* One entry of the list. */
static void read_prop(prof_reader *reader, const char *p) {
    prof_trace *trace = reader->trace;
    prof_prop prop;
    memset(&prop, 0, sizeof prop);
    prof_tok key, value;
    int is_object = *p++ == '{';
    for (int first = 1; is_object && next_pair(reader, &p, first, &key, &value); first = 0) {
        prof_val *field = prop_field(&prop, reader->cursor.scan.base + key.at, key.length);
        if (field) {
            *field = qn_prof_reader_value(reader, &value);
        }
    }
    if (prop.name.tag == PROF_STR && qn_prof_starts(prof_string(trace, (uint32_t)prop.name.i), "MLU")) {
        reader->saw_mlu = 1;
    }
    reader->saw_mlu |= prop.total_mem_mib.tag != PROF_ABSENT;
    if (!QN_VEC_ROOM(&trace->arena, &trace->props, 1)) {
        reader->cursor.status = QN_NO_MEMORY;
        return;
    }
    trace->props.at[trace->props.n++] = prop;
}

static void read_props(prof_reader *reader, const prof_tok *tok) {
    const char *p = reader->cursor.scan.base + tok->at;
    reader->trace->props.n = 0;
    reader->trace->has_props = tok->type == PROF_TOK_LIST && *p == '[';
    int closed = !reader->trace->has_props;
    p++;
    for (int first = 1; !closed && reader->cursor.status == QN_OK; first = 0) {
        prof_tok item;
        if (qn_prof_scan_item(&reader->cursor.scan, &p, first, &closed) != PROF_SCAN_OK || closed) {
            break;
        }
        const char *start = p;
        if (qn_prof_scan_value(&reader->cursor.scan, &p, &item) != PROF_SCAN_OK) {
            break;
        }
        read_prop(reader, start);
    }
}

/* What the recorder measured of the machine. */
static void read_limits(prof_reader *reader, const prof_tok *tok) {
    prof_trace *trace = reader->trace;
    const char *p = reader->cursor.scan.base + tok->at;
    prof_tok key, value;
    int is_object = tok->type == PROF_TOK_LIST && *p == '{';
    p++;
    for (int first = 1; is_object && next_pair(reader, &p, first, &key, &value); first = 0) {
        const char *name = reader->cursor.scan.base + key.at;
        if (key.length == 6 && memcmp(name, "gflops", 6) == 0) {
            trace->limit_gflops = qn_prof_tok_number(&reader->cursor.scan, &value);
        } else if (key.length == 4 && memcmp(name, "gbps", 4) == 0) {
            trace->limit_gbps = qn_prof_tok_number(&reader->cursor.scan, &value);
        }
    }
}

/* ---- The top object ----------------------------------------------------------------------------------------------- */

static qn_status read_events(prof_reader *reader) {
    if (reader->seen_events) {
        qn_prof_event_forget(reader);
    }
    reader->seen_events = 1;
    return qn_prof_cursor_events(&reader->cursor, qn_prof_event_mark, qn_prof_event_take, reader);
}

/* A value that is kept whole until it is used. */
static qn_status read_value(prof_reader *reader, prof_tok *tok) {
    prof_cursor *cursor = &reader->cursor;
    prof_scan_result result;
    const char *p;
    do {
        prof_cursor_aim(cursor);
        p = cursor->p;
        result = qn_prof_scan_value(&cursor->scan, &p, tok);
    } while (result == PROF_SCAN_MORE && qn_prof_cursor_more(cursor));
    cursor->p = p;
    return result == PROF_SCAN_OK ? QN_OK : qn_prof_cursor_fail(cursor, result);
}

enum { KEY_OTHER, KEY_EVENTS, KEY_PROPS, KEY_LIMITS, KEY_FRAMEWORK };

static qn_status next_key(prof_reader *reader, int first, int *which, int *closed) {
    static const char *const KEYS[] = {"", "traceEvents", "deviceProperties", "quernLimits", "Framework"};
    prof_tok key;
    const char *value;
    prof_scan_result result = qn_prof_cursor_member(&reader->cursor, first, &key, &value, closed);
    if (result != PROF_SCAN_OK) {
        return qn_prof_cursor_fail(&reader->cursor, result);
    }
    *which = KEY_OTHER;
    for (int i = KEY_EVENTS; !*closed && i <= KEY_FRAMEWORK; i++) {
        if (strlen(KEYS[i]) == key.length && memcmp(reader->cursor.scan.base + key.at, KEYS[i], key.length) == 0) {
            *which = i;
        }
    }
    reader->cursor.p = value;
    return QN_OK;
}

static qn_status read_member(prof_reader *reader, int which) {
    prof_tok tok;
    if (which == KEY_OTHER) {
        prof_scan_result result = qn_prof_cursor_skip(&reader->cursor);
        return result == PROF_SCAN_OK ? QN_OK : qn_prof_cursor_fail(&reader->cursor, result);
    }
    if (which == KEY_EVENTS) {
        int is_list = *reader->cursor.p == '[';
        return is_list ? read_events(reader) : qn_prof_cursor_refuse(&reader->cursor, "traceEvents is not an array");
    }
    qn_status status = read_value(reader, &tok);
    if (status != QN_OK) {
        return status;
    }
    if (which == KEY_PROPS) {
        read_props(reader, &tok);
    } else if (which == KEY_LIMITS) {
        read_limits(reader, &tok);
    } else {
        prof_val value = qn_prof_reader_value(reader, &tok);
        reader->trace->lightning = value.tag == PROF_STR &&
                                   qn_prof_is(prof_string(reader->trace, (uint32_t)value.i), "pytorch-lightning");
    }
    return reader->cursor.status;
}

static qn_status read_object(prof_reader *reader) {
    reader->cursor.p++;
    for (int first = 1;; first = 0) {
        int which = KEY_OTHER, closed = 0;
        qn_status status = next_key(reader, first, &which, &closed);
        if (status != QN_OK || closed) {
            return status;
        }
        status = read_member(reader, which);
        if (status != QN_OK) {
            return status;
        }
    }
}

static qn_status read_document(prof_reader *reader) {
    prof_cursor *cursor = &reader->cursor;
    qn_status status;
    if (*cursor->p == '{') {
        status = read_object(reader);
    } else if (*cursor->p == '[' && !cursor->scan.strict) {
        status = read_events(reader); /* the bare form of the Chrome trace format */
    } else {
        return qn_prof_cursor_fail(cursor, qn_prof_scan_bad(&cursor->scan, cursor->p, "expected { at the top"));
    }
    status = status == QN_OK ? qn_prof_cursor_blanks(cursor) : status;
    if (status == QN_OK && cursor->p < cursor->scan.end) {
        return qn_prof_cursor_fail(cursor, qn_prof_scan_bad(&cursor->scan, cursor->p, "more text follows the trace"));
    }
    if (status == QN_OK && !reader->seen_events) {
        return qn_error_set(cursor->error, QN_FORMAT, "%s: there is no traceEvents", cursor->path);
    }
    return status;
}

/* ---- Afterwards --------------------------------------------------------------------------------------------------- */

typedef struct link { /* both ends of one flow id */
    prof_val id;
    prof_num from, to;
    int has_from, has_to;
    uint32_t order; /* of first start */
} link;

typedef QN_VEC(link) links;

static uint32_t link_hash(qn_hash_key key, const void *owner, uint32_t index) {
    return qn_prof_hash_value(key, ((const links *)owner)->at[index].id);
}

static qn_status join_ends(prof_reader *reader, links *all, prof_slots *slots) {
    qn_arena *arena = &reader->trace->arena;
    for (size_t i = 0; i < reader->flows.n; i++) {
        const prof_raw_flow *end = &reader->flows.at[i];
        if (qn_prof_slots_room(slots, arena, link_hash, all) != QN_OK || !QN_VEC_ROOM(arena, all, 1)) {
            return QN_NO_MEMORY;
        }
        size_t cursor = qn_prof_hash_value(slots->key, end->id);
        uint32_t found;
        while ((found = prof_slots_at(slots, &cursor)) != PROF_NIL && !prof_same(all->at[found].id, end->id)) {
            cursor++;
        }
        if (found == PROF_NIL) {
            found = (uint32_t)all->n++;
            memset(&all->at[found], 0, sizeof all->at[found]);
            all->at[found].id = end->id;
            prof_slots_put(slots, cursor, found);
        }
        link *joined = &all->at[found];
        if (end->is_start) {
            joined->order = joined->has_from ? joined->order : (uint32_t)i;
            joined->from = end->ts;
            joined->has_from = 1;
        } else {
            joined->to = end->ts;
            joined->has_to = 1;
        }
    }
    return QN_OK;
}

static int begins_first(const void *a, const void *b, const void *unused) {
    (void)unused;
    return ((const link *)a)->order < ((const link *)b)->order;
}

static qn_status join_flows(prof_reader *reader) {
    prof_trace *trace = reader->trace;
    links all = {NULL, 0, 0};
    prof_slots slots = {0};
    qn_status status = join_ends(reader, &all, &slots);
    size_t kept = 0;
    for (size_t i = 0; i < all.n; i++) {
        if (all.at[i].has_from && all.at[i].has_to) {
            all.at[kept++] = all.at[i];
        }
    }
    if (status == QN_OK) {
        status = qn_prof_sort(&trace->arena, all.at, kept, sizeof *all.at, begins_first, NULL);
    }
    if (status == QN_OK && kept) {
        status = QN_VEC_ROOM(&trace->arena, &trace->flows, kept) ? QN_OK : QN_NO_MEMORY;
    }
    for (size_t i = 0; status == QN_OK && i < kept; i++) {
        prof_flow flow = {all.at[i].from, all.at[i].to};
        trace->flows.at[trace->flows.n++] = flow;
    }
    qn_arena_release(&trace->arena, all.at);
    qn_arena_release(&trace->arena, slots.at);
    QN_VEC_FREE(&trace->arena, &reader->flows);
    return status;
}

/* Section 2: an end mark a day or more (in the reference's units) behind the start is left out of the trace view. */
static void decide_window_end(prof_reader *reader) {
    const prof_marks *marks = &reader->marks;
    prof_trace *trace = reader->trace;
    trace->window_end_event = UINT64_MAX;
    if (marks->end_at == UINT64_MAX || marks->start_at == UINT64_MAX) {
        return;
    }
    int end_is_later = marks->end_at > marks->start_at;
    uint64_t end_at = end_is_later ? marks->first_end_after_start : marks->end_at;
    prof_num end_ts = end_is_later ? marks->first_end_ts : marks->end_ts;
    prof_num start_ts = end_is_later ? marks->start_ts : marks->first_start_ts;
    if (prof_gt(prof_sub(end_ts, start_ts), prof_int(86400000))) {
        trace->window_end_event = end_at;
    }
}

static qn_profile_dialect decide_dialect(const prof_reader *reader) {
    if (reader->trace->options.dialect != QN_PROFILE_AUTO) {
        return reader->trace->options.dialect;
    }
    if (!reader->saw_mlu) {
        return QN_PROFILE_UPSTREAM;
    }
    return reader->saw_gpu ? QN_PROFILE_MLU_B : QN_PROFILE_MLU_A;
}

static qn_status finish_read(prof_reader *reader) {
    prof_trace *trace = reader->trace;
    qn_arena *arena = &trace->arena;
    trace->text_bytes = reader->cursor.window.offset + reader->cursor.window.length;
    trace->saw_na = reader->cursor.scan.bare_na != 0;
    decide_window_end(reader);
    trace->dialect = decide_dialect(reader);
    qn_arena_release(arena, reader->op_slots.at);
    qn_arena_release(arena, reader->kernel_slots.at);
    qn_arena_release(arena, reader->ident_slots.at);
    return join_flows(reader);
}

qn_status qn_prof_trace_read(prof_trace *trace, qn_error *error) {
    prof_reader *reader = qn_arena_alloc(&trace->arena, 1, sizeof *reader);
    if (!reader) {
        return qn_error_set(error, QN_NO_MEMORY, "%s: no memory to read", trace->path);
    }
    reader->trace = trace;
    reader->cursor.scan.strict = (trace->options.flags & QN_PROFILE_STRICT) != 0;
    qn_prof_event_init(reader);
    qn_status status = qn_prof_cursor_open(&reader->cursor, &trace->arena, trace->path, &trace->options, error);
    if (status != QN_OK) {
        return status;
    }
    status = read_document(reader);
    if (status == QN_OK) {
        status = finish_read(reader);
    }
    if (status == QN_NO_MEMORY) {
        qn_error_set(error, status, "%s: the events need more than the %llu bytes of memory allowed", trace->path,
                     (unsigned long long)trace->arena.limit);
    }
    qn_prof_cursor_close(&reader->cursor);
    return status;
}
