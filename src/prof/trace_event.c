/* One event: which of its members matter, and the fixed-size record made of them. Everything else is passed over unread. The
 * decision to keep an event is made after all its members are marked, because their order is free. */
#include <string.h>

#include "prof/trace_read.h"

static void forget_marks(prof_marks *marks) {
    marks->end_at = marks->start_at = UINT64_MAX;
    marks->first_end_after_start = marks->first_start_after_end = UINT64_MAX;
}

void qn_prof_event_init(prof_reader *reader) {
    qn_prof_keys_init(&reader->keys);
    forget_marks(&reader->marks);
}

/* ---- Marking ------------------------------------------------------------------------------------------------------ */

/* Whether the memo's value stands at p, which is inside the window. */
static int stands_at(const prof_reader *reader, const prof_memo *memo, const char *p) {
    int quoted = memo->type == PROF_TOK_STRING;
    p += quoted;
    return memo->bytes && reader->cursor.scan.end - p > (ptrdiff_t)memo->length && memcmp(p, memo->bytes, memo->length) == 0 &&
           (!quoted || (p[-1] == '"' && p[memo->length] == '"'));
}

/* Where a value that begins with these bytes is remembered. What follows a short one takes part too, which does no harm. */
static uint32_t memo_place(const char *p, int field) {
    enum { WORDS = 3 };
    uint64_t hash = (uint64_t)field, word;
    for (int i = 0; i < WORDS; i++) {
        memcpy(&word, p + 8 * i, 8);
        hash = (hash ^ word) * 0x9fb21c651e98df25ull;
        hash ^= hash >> 29;
    }
    return (uint32_t)(hash >> 32) % PROF_MEMOS;
}

/* Whether the value at *p was read before as this field's; passes over it if so. */
static int seen_before(prof_reader *reader, const char **p, int field) {
    enum { LOOKED_AT = 24 };
    prof_memo *last = &reader->last[field];
    reader->memo_at[field] = PROF_NIL;
    if (!stands_at(reader, last, *p)) {
        if (reader->cursor.scan.end - *p <= LOOKED_AT) {
            return 0;
        }
        reader->memo_at[field] = memo_place(*p, field);
        const prof_memo *memo = &reader->memos[reader->memo_at[field]];
        if (!stands_at(reader, memo, *p)) {
            return 0;
        }
        *last = *memo;
    }
    int quoted = last->type == PROF_TOK_STRING;
    prof_tok tok = {(uint32_t)(*p + quoted - reader->cursor.scan.base), last->length, last->type, 0};
    reader->field[field] = tok;
    reader->known |= 1ull << field;
    *p += last->length + 2u * (unsigned)quoted;
    return 1;
}

/* Apart, so that numbers, which are most of what is wanted, need not save what this uses. */
__attribute__((noinline)) static prof_scan_result mark_other(prof_reader *reader, const char **p, int field) {
    const uint64_t bit = 1ull << field;
    reader->counted &= ~bit;
    int may_be_known = (**p == '"' && field > PROF_F_CAT) || **p == '['; /* phases and categories are quicker scanned */
    if (may_be_known && seen_before(reader, p, field)) {
        return PROF_SCAN_OK;
    }
    reader->known &= ~bit;
    return qn_prof_scan_value(&reader->cursor.scan, p, &reader->field[field]);
}

static prof_scan_result mark(prof_reader *reader, const char **p, int field) {
    prof_tok ignored;
    if (field < 0 || field == PROF_F_ARGS) {
        return qn_prof_scan_value(&reader->cursor.scan, p, &ignored);
    }
    const uint64_t bit = 1ull << field;
    reader->present |= bit;
    unsigned length = prof_scan_digits(&reader->cursor.scan, *p, &reader->number[field]);
    if (!length) {
        return mark_other(reader, p, field);
    }
    prof_tok tok = {(uint32_t)(*p - reader->cursor.scan.base), length, PROF_TOK_INT, 0};
    reader->field[field] = tok;
    reader->counted |= bit;
    reader->known &= ~bit;
    *p += length;
    return PROF_SCAN_OK;
}

static prof_scan_result parse_args(prof_reader *reader, const char **p) {
    unsigned seam = PROF_SEAM_ARGS;
    int field;
    ++*p;
    for (;;) {
        prof_scan_result result = qn_prof_keys_next(&reader->keys, &reader->cursor.scan, p, &seam, &field);
        if (result != PROF_SCAN_OK || field == PROF_KEY_CLOSED) {
            return result;
        }
        result = mark(reader, p, field);
        if (result != PROF_SCAN_OK) {
            return result;
        }
    }
}

prof_scan_result qn_prof_event_mark(void *user, const char **p) {
    prof_reader *reader = user;
    const uint64_t own = (1ull << PROF_F_ARGS) - 1;
    unsigned seam = PROF_SEAM_EVENT;
    int field;
    reader->present = 0;
    ++*p;
    for (;;) {
        prof_scan_result result = qn_prof_keys_next(&reader->keys, &reader->cursor.scan, p, &seam, &field);
        if (result != PROF_SCAN_OK || field == PROF_KEY_CLOSED) {
            return result;
        }
        if (field == PROF_F_ARGS) {
            reader->present &= own; /* a second `args` replaces the first whole */
        }
        result = field == PROF_F_ARGS && **p == '{' ? parse_args(reader, p) : mark(reader, p, field);
        if (result != PROF_SCAN_OK) {
            return result;
        }
    }
}

/* ---- Values ------------------------------------------------------------------------------------------------------- */

static const char *bytes_of(const prof_reader *reader, const prof_tok *tok) { return reader->cursor.scan.base + tok->at; }

prof_val qn_prof_reader_value(prof_reader *reader, const prof_tok *tok) {
    prof_text *text = &reader->trace->text;
    prof_val value = {{0}, PROF_STR};
    uint32_t id;
    if (tok->type == PROF_TOK_STRING) {
        id = qn_prof_intern_json(text, bytes_of(reader, tok), tok->length, tok->escaped);
    } else if (tok->type == PROF_TOK_NA) {
        id = qn_prof_intern(text, "N/A", 3);
    } else if (tok->type == PROF_TOK_LIST) {
        id = qn_prof_intern_list(text, bytes_of(reader, tok), tok->length);
        value.tag = PROF_LIST;
    } else {
        return qn_prof_tok_number(&reader->cursor.scan, tok);
    }
    if (id == PROF_NIL) {
        reader->cursor.status = QN_NO_MEMORY;
        return prof_absent();
    }
    value.i = id;
    return value;
}

static void remember(prof_reader *reader, int field, const char *bytes, size_t length, prof_val value) {
    const prof_tok *tok = &reader->field[field];
    if (length != tok->length || tok->escaped) {
        return; /* it was repaired, and is not what the file says */
    }
    prof_memo memo = {bytes, tok->length, (uint32_t)value.i, tok->type};
    reader->last[field] = memo;
    if (reader->memo_at[field] != PROF_NIL) {
        reader->memos[reader->memo_at[field]] = memo;
    }
}

prof_val qn_prof_reader_field(prof_reader *reader, int field) {
    if (!prof_reader_has(reader, field)) {
        return prof_absent();
    }
    const prof_tok *tok = &reader->field[field];
    if (reader->counted >> field & 1) {
        return prof_int(reader->number[field]);
    }
    if (reader->known >> field & 1) {
        prof_val value = {{reader->last[field].id}, tok->type == PROF_TOK_LIST ? PROF_LIST : PROF_STR};
        return value;
    }
    prof_val value = qn_prof_reader_value(reader, tok);
    if (value.tag == PROF_LIST) {
        const prof_list *list = &reader->trace->text.lists.at[value.i];
        remember(reader, field, list->json, list->json_length, value);
    } else if (value.tag == PROF_STR && tok->type == PROF_TOK_STRING) {
        const prof_str *string = prof_string(reader->trace, (uint32_t)value.i);
        remember(reader, field, string->at, string->length, value);
    }
    return value;
}

prof_val qn_prof_reader_number(prof_reader *reader, int field) {
    if (!prof_reader_has(reader, field)) {
        return prof_absent();
    }
    int counted = (int)(reader->counted >> field & 1);
    return counted ? prof_int(reader->number[field]) : qn_prof_tok_number(&reader->cursor.scan, &reader->field[field]);
}

static uint32_t ident_hash(qn_hash_key key, const void *owner, uint32_t index) {
    return qn_prof_hash_value(key, ((const prof_trace *)owner)->idents.at[index]);
}

/* Distinct pid and tid values; "7" and 7 are different, as written. */
static uint32_t ident(prof_reader *reader, int field) {
    prof_trace *trace = reader->trace;
    prof_val value = qn_prof_reader_field(reader, field);
    uint32_t last = reader->last_ident[field == PROF_F_TID]; /* most events lie where the one before them does */
    if (last < trace->idents.n && trace->idents.at[last].tag == value.tag && trace->idents.at[last].i == value.i) {
        return last;
    }
    if (qn_prof_slots_room(&reader->ident_slots, &trace->arena, ident_hash, trace) != QN_OK) {
        reader->cursor.status = QN_NO_MEMORY;
        return 0;
    }
    size_t cursor = qn_prof_hash_value(reader->ident_slots.key, value);
    for (uint32_t id; (id = prof_slots_at(&reader->ident_slots, &cursor)) != PROF_NIL; cursor++) {
        if (trace->idents.at[id].tag == value.tag && trace->idents.at[id].i == value.i) {
            reader->last_ident[field == PROF_F_TID] = id;
            return id;
        }
    }
    if (!QN_VEC_ROOM(&trace->arena, &trace->idents, 1) || trace->idents.n >= PROF_NIL - 1) {
        reader->cursor.status = QN_NO_MEMORY;
        return 0;
    }
    trace->idents.at[trace->idents.n] = value;
    prof_slots_put(&reader->ident_slots, cursor, (uint32_t)trace->idents.n);
    return (uint32_t)trace->idents.n++;
}

static inline int starts_with(const prof_reader *reader, int field, const char *prefix) {
    const prof_tok *tok = &reader->field[field];
    size_t length = strlen(prefix);
    return prof_reader_has(reader, field) && tok->type == PROF_TOK_STRING && tok->length >= length &&
           memcmp(bytes_of(reader, tok), prefix, length) == 0;
}

static inline int is_text(const prof_reader *reader, int field, const char *literal) {
    return reader->field[field].length == strlen(literal) && starts_with(reader, field, literal);
}

/* ---- Keeping ------------------------------------------------------------------------------------------------------ */

static qn_status broken(prof_reader *reader, const char *what) {
    prof_trace *trace = reader->trace;
    trace->events_broken++;
    if (trace->options.flags & QN_PROFILE_STRICT) {
        uint64_t at = reader->cursor.window.offset + (uint64_t)(reader->cursor.scan.base - reader->cursor.window.at);
        return qn_error_set(reader->cursor.error, QN_FORMAT, "%s: byte %llu: an event %s", trace->path, (unsigned long long)at,
                            what);
    }
    return QN_OK;
}

/* A time to reckon with. The reference takes NaN and infinities too, and answers with them. */
static int is_time(const prof_reader *reader, prof_val value) {
    int finite = value.tag != PROF_DBL || value.d - value.d == 0;
    return prof_is_num(value) && (finite || (reader->trace->options.flags & QN_PROFILE_STRICT));
}

/* How many more items to make room for behind n: what the rest of the file will bring if it goes on as it began. */
static size_t to_come(const prof_reader *reader, size_t n) {
    enum { LEAST = 256 };
    double share = qn_prof_window_share(&reader->cursor.window, reader->cursor.p);
    return n < LEAST || share <= 0 ? 1 : (size_t)((double)n * 1.05 / share) - n + 1;
}

#define ROOM_FOR_NEXT(reader, v)                                                                  \
    ((v)->n < (v)->cap || QN_VEC_ROOM(&(reader)->trace->arena, (v), to_come((reader), (v)->n)) || \
     QN_VEC_ROOM(&(reader)->trace->arena, (v), 1))

static qn_status store_memory(prof_reader *reader) {
    prof_trace *trace = reader->trace;
    prof_mem mem;
    memset(&mem, 0, sizeof mem);
    mem.ts = qn_prof_reader_number(reader, PROF_F_TS);
    if (!is_time(reader, mem.ts)) {
        return broken(reader, "has no time");
    }
    mem.address = qn_prof_reader_field(reader, PROF_F_ADDR);
    mem.bytes = qn_prof_reader_number(reader, PROF_F_BYTES);
    if (!prof_is_num(mem.bytes)) {
        mem.bytes = prof_int(0);
    }
    mem.device_type = qn_prof_reader_field(reader, PROF_F_DEVICE_TYPE);
    mem.device_id = qn_prof_reader_field(reader, PROF_F_DEVICE_ID);
    mem.allocated = qn_prof_reader_number(reader, PROF_F_ALLOCATED);
    mem.reserved = qn_prof_reader_number(reader, PROF_F_RESERVED);
    mem.tid = ident(reader, PROF_F_TID);
    mem.node = PROF_NIL;
    reader->saw_mlu |= mem.device_type.tag == PROF_INT && mem.device_type.i == 20;
    if (trace->mems.n >= PROF_NIL - 1 || !ROOM_FOR_NEXT(reader, &trace->mems)) {
        return QN_NO_MEMORY;
    }
    trace->mems.at[trace->mems.n++] = mem;
    return reader->cursor.status;
}

static qn_status store_flow(prof_reader *reader, int is_start) {
    prof_raw_flow flow = {qn_prof_reader_field(reader, PROF_F_ID), qn_prof_reader_number(reader, PROF_F_TS), is_start};
    if (!QN_VEC_ROOM(&reader->trace->arena, &reader->flows, 1)) {
        return QN_NO_MEMORY;
    }
    reader->flows.at[reader->flows.n++] = flow;
    return reader->cursor.status;
}

static void mark_window(prof_reader *reader) {
    prof_marks *marks = &reader->marks;
    uint64_t item = reader->trace->events_seen - 1;
    if (is_text(reader, PROF_F_NAME, "Record Window End")) {
        marks->end_at = item;
        marks->end_ts = qn_prof_reader_number(reader, PROF_F_TS);
        marks->first_start_after_end = UINT64_MAX;
        if (marks->first_end_after_start == UINT64_MAX) {
            marks->first_end_after_start = item;
            marks->first_end_ts = marks->end_ts;
        }
    } else if (starts_with(reader, PROF_F_NAME, "Iteration Start:")) {
        marks->start_at = item;
        marks->start_ts = qn_prof_reader_number(reader, PROF_F_TS);
        marks->first_end_after_start = UINT64_MAX;
        if (marks->first_start_after_end == UINT64_MAX) {
            marks->first_start_after_end = item;
            marks->first_start_ts = marks->start_ts;
        }
    }
}

static qn_status store_complete(prof_reader *reader) {
    prof_trace *trace = reader->trace;
    if (!prof_reader_has(reader, PROF_F_CAT) || reader->field[PROF_F_CAT].type != PROF_TOK_STRING) {
        return broken(reader, "of phase X has no category");
    }
    prof_category category = qn_prof_event_category(reader);
    if (category == PROF_CAT_NONE || (category == PROF_CAT_CUDA_DRIVER && !(trace->options.flags & QN_PROFILE_DRIVER))) {
        return QN_OK;
    }
    prof_val name = qn_prof_reader_field(reader, PROF_F_NAME), ts = qn_prof_reader_number(reader, PROF_F_TS),
             dur = qn_prof_reader_number(reader, PROF_F_DUR);
    if (name.tag != PROF_STR || !is_time(reader, ts) || !is_time(reader, dur)) {
        return reader->cursor.status != QN_OK ? reader->cursor.status : broken(reader, "of phase X lacks a name, ts or dur");
    }
    prof_val external = qn_prof_reader_field(reader, PROF_F_EXTERNAL_LOWER),
             correlation = qn_prof_reader_field(reader, PROF_F_CORRELATION);
    if (external.tag == PROF_ABSENT) {
        external = qn_prof_reader_field(reader, PROF_F_EXTERNAL);
    }
    prof_event event;
    memset(&event, 0, sizeof event);
    event.ts.i = ts.i;
    event.ts_tag = (uint8_t)ts.tag;
    event.dur.i = dur.i;
    event.dur_tag = (uint8_t)dur.tag;
    event.external.i = external.i;
    event.external_tag = (uint8_t)external.tag;
    event.correlation.i = correlation.i;
    event.correlation_tag = (uint8_t)correlation.tag;
    event.name = (uint32_t)name.i;
    event.pid = ident(reader, PROF_F_PID);
    event.tid = ident(reader, PROF_F_TID);
    event.category = (uint8_t)category;
    event.args = qn_prof_event_args(reader, category);
    if (reader->cursor.status != QN_OK || trace->events.n >= PROF_NIL - 1 || !ROOM_FOR_NEXT(reader, &trace->events)) {
        return QN_NO_MEMORY;
    }
    trace->events_backward += prof_lt(dur, prof_int(0));
    trace->events.at[trace->events.n++] = event;
    return QN_OK;
}

qn_status qn_prof_event_take(void *user, int is_object) {
    prof_reader *reader = user;
    reader->trace->events_seen++;
    reader->present = is_object ? reader->present : 0; /* an item that is no object counts as a broken event */
    const prof_tok *phase = &reader->field[PROF_F_PH];
    char ph = prof_reader_has(reader, PROF_F_PH) && phase->type == PROF_TOK_STRING && phase->length == 1
                  ? *bytes_of(reader, phase)
                  : 0;
    if (!prof_reader_has(reader, PROF_F_NAME)) {
        return broken(reader, "has no name");
    }
    mark_window(reader);
    if (ph == 'X') {
        return store_complete(reader);
    }
    if (ph == 'i' && is_text(reader, PROF_F_NAME, "[memory]")) {
        return store_memory(reader);
    }
    if ((ph == 's' || ph == 'f') && (is_text(reader, PROF_F_CAT, "fwdbwd") || is_text(reader, PROF_F_CAT, "forward_backward"))) {
        return store_flow(reader, ph == 's');
    }
    return QN_OK;
}

void qn_prof_event_forget(prof_reader *reader) {
    prof_trace *trace = reader->trace;
    trace->events.n = trace->mems.n = trace->pys.n = 0;
    trace->events_seen = trace->events_broken = trace->events_unknown = trace->events_backward = 0;
    reader->flows.n = 0;
    forget_marks(&reader->marks);
}
