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
    return memo->bytes && reader->scan.end - p > (ptrdiff_t)memo->length && memcmp(p, memo->bytes, memo->length) == 0 &&
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
        if (reader->scan.end - *p <= LOOKED_AT) {
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
    prof_tok tok = {(uint32_t)(*p + quoted - reader->scan.base), last->length, last->type, 0};
    reader->field[field] = tok;
    reader->known |= 1ull << field;
    *p += last->length + 2u * (unsigned)quoted;
    return 1;
}

static prof_scan_result mark(prof_reader *reader, const char **p, int field) {
    prof_tok ignored;
    if (field < 0 || field == PROF_F_ARGS) {
        return qn_prof_scan_value(&reader->scan, p, &ignored);
    }
    reader->present |= 1ull << field;
    int may_be_known = (**p == '"' && field > PROF_F_CAT) || **p == '['; /* numbers are quicker read than remembered */
    if (may_be_known && seen_before(reader, p, field)) {
        return PROF_SCAN_OK;
    }
    reader->known &= ~(1ull << field);
    return qn_prof_scan_value(&reader->scan, p, &reader->field[field]);
}

static prof_scan_result parse_args(prof_reader *reader, const char **p) {
    unsigned seam = PROF_SEAM_ARGS;
    int field;
    ++*p;
    for (;;) {
        prof_scan_result result = qn_prof_keys_next(&reader->keys, &reader->scan, p, &seam, &field);
        if (result != PROF_SCAN_OK || field == PROF_KEY_CLOSED) {
            return result;
        }
        result = mark(reader, p, field);
        if (result != PROF_SCAN_OK) {
            return result;
        }
    }
}

prof_scan_result qn_prof_event_parse(prof_reader *reader, const char **p) {
    const uint64_t own = (1ull << PROF_F_ARGS) - 1;
    unsigned seam = PROF_SEAM_EVENT;
    int field;
    reader->present = 0;
    ++*p;
    for (;;) {
        prof_scan_result result = qn_prof_keys_next(&reader->keys, &reader->scan, p, &seam, &field);
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

static int has(const prof_reader *reader, int field) { return (int)(reader->present >> field & 1); }

static const char *bytes_of(const prof_reader *reader, const prof_tok *tok) { return reader->scan.base + tok->at; }

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
        return qn_prof_tok_number(&reader->scan, tok);
    }
    if (id == PROF_NIL) {
        reader->status = QN_NO_MEMORY;
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

static prof_val get(prof_reader *reader, int field) {
    if (!has(reader, field)) {
        return prof_absent();
    }
    const prof_tok *tok = &reader->field[field];
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

static prof_val number(prof_reader *reader, int field) {
    return has(reader, field) ? qn_prof_tok_number(&reader->scan, &reader->field[field]) : prof_absent();
}

static uint32_t ident_hash(const void *owner, uint32_t index) {
    return qn_prof_hash_value(((const prof_trace *)owner)->idents.at[index]);
}

/* Distinct pid and tid values; "7" and 7 are different, as written. */
static uint32_t ident(prof_reader *reader, int field) {
    prof_trace *trace = reader->trace;
    prof_val value = get(reader, field);
    uint32_t last = reader->last_ident[field == PROF_F_TID]; /* most events lie where the one before them does */
    if (last < trace->idents.n && trace->idents.at[last].tag == value.tag && trace->idents.at[last].i == value.i) {
        return last;
    }
    size_t cursor = qn_prof_hash_value(value);
    if (qn_prof_slots_room(&reader->ident_slots, &trace->arena, ident_hash, trace) != QN_OK) {
        reader->status = QN_NO_MEMORY;
        return 0;
    }
    for (uint32_t id; (id = prof_slots_at(&reader->ident_slots, &cursor)) != PROF_NIL; cursor++) {
        if (trace->idents.at[id].tag == value.tag && trace->idents.at[id].i == value.i) {
            reader->last_ident[field == PROF_F_TID] = id;
            return id;
        }
    }
    if (!QN_VEC_ROOM(&trace->arena, &trace->idents, 1) || trace->idents.n >= PROF_NIL - 1) {
        reader->status = QN_NO_MEMORY;
        return 0;
    }
    trace->idents.at[trace->idents.n] = value;
    prof_slots_put(&reader->ident_slots, cursor, (uint32_t)trace->idents.n);
    return (uint32_t)trace->idents.n++;
}

static inline int starts_with(const prof_reader *reader, int field, const char *prefix) {
    const prof_tok *tok = &reader->field[field];
    size_t length = strlen(prefix);
    return has(reader, field) && tok->type == PROF_TOK_STRING && tok->length >= length &&
           memcmp(bytes_of(reader, tok), prefix, length) == 0;
}

static inline int is_text(const prof_reader *reader, int field, const char *literal) {
    return reader->field[field].length == strlen(literal) && starts_with(reader, field, literal);
}

/* ---- Categories --------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint8_t category, gpu, mlu;
} CATEGORIES[] = {
    {"cpu_op", PROF_CAT_OPERATOR, 0, 0},
    {"operator", PROF_CAT_OPERATOR, 0, 0},
    {"kernel", PROF_CAT_KERNEL, 0, 0},
    {"cuda_runtime", PROF_CAT_CUDA_RUNTIME, 1, 0},
    {"runtime", PROF_CAT_RUNTIME, 0, 0},
    {"privateuse1_runtime", PROF_CAT_PRIVATE_RUNTIME, 0, 0},
    {"python_function", PROF_CAT_PYTHON_FUNCTION, 0, 0},
    {"user_annotation", PROF_CAT_ANNOTATION, 0, 0},
    {"gpu_user_annotation", PROF_CAT_DEVICE_ANNOTATION, 0, 0},
    {"mlu_user_annotation", PROF_CAT_MLU_ANNOTATION, 0, 1},
    {"python", PROF_CAT_PYTHON, 0, 0},
    {"trace", PROF_CAT_TRACE, 0, 0},
    {"memcpy", PROF_CAT_MEMCPY, 0, 0},
    {"gpu_memcpy", PROF_CAT_MEMCPY, 0, 0},
    {"mlu_memcpy", PROF_CAT_MLU_MEMCPY, 0, 1},
    {"memset", PROF_CAT_MEMSET, 0, 0},
    {"gpu_memset", PROF_CAT_MEMSET, 0, 0},
    {"mlu_memset", PROF_CAT_MLU_MEMSET, 0, 1},
    {"mlu_runtime", PROF_CAT_MLU_RUNTIME, 0, 1},
    {"mtia_runtime", PROF_CAT_OTHER_RUNTIME, 0, 0},
    {"glow_runtime", PROF_CAT_OTHER_RUNTIME, 0, 0},
    {"xpu_runtime", PROF_CAT_OTHER_RUNTIME, 0, 0},
    {"cuda_driver", PROF_CAT_CUDA_DRIVER, 1, 0},
};

static int same_lower(const char *bytes, const char *lower, size_t length) {
    for (size_t i = 0; i < length; i++) {
        char c = bytes[i] >= 'A' && bytes[i] <= 'Z' ? (char)(bytes[i] | 32) : bytes[i];
        if (c != lower[i] || c == 0) { /* a 0 in the file is not the end of a name */
            return 0;
        }
    }
    return lower[length] == 0;
}

static prof_category category_of(prof_reader *reader) {
    enum { ALL = sizeof CATEGORIES / sizeof *CATEGORIES };
    const prof_tok *tok = &reader->field[PROF_F_CAT];
    const char *bytes = bytes_of(reader, tok);
    for (size_t tried = 0, i = reader->last_category; tried <= ALL; i = tried++) { /* the last one first */
        if (same_lower(bytes, CATEGORIES[i].name, tok->length)) {
            reader->last_category = (uint8_t)i;
            reader->saw_gpu |= CATEGORIES[i].gpu;
            reader->saw_mlu |= CATEGORIES[i].mlu;
            return (prof_category)CATEGORIES[i].category;
        }
    }
    return PROF_CAT_NONE;
}

/* ---- Argument records, each distinct one kept once ---------------------------------------------------------------- */

static uint32_t hash_vals(const prof_val *vals, size_t n) {
    uint32_t hash = 0;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ (uint32_t)vals[i].i ^ (uint32_t)((uint64_t)vals[i].i >> 32) * 31u ^ vals[i].tag << 28) * 2654435761u;
        hash ^= hash >> 15;
    }
    return hash;
}

static int same_vals(const prof_val *a, const prof_val *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (a[i].tag != b[i].tag || a[i].i != b[i].i) {
            return 0;
        }
    }
    return 1;
}

enum { OP_VALS = sizeof(prof_op_args) / sizeof(prof_val), KERNEL_VALS = sizeof(prof_kernel_args) / sizeof(prof_val) };

static uint32_t op_hash(const void *owner, uint32_t index) {
    return hash_vals(((const prof_trace *)owner)->ops.at[index].all, OP_VALS);
}

static uint32_t kernel_hash(const void *owner, uint32_t index) {
    return hash_vals(((const prof_trace *)owner)->kernels.at[index].all, KERNEL_VALS);
}

static uint32_t store_op_args(prof_reader *reader) {
    prof_trace *trace = reader->trace;
    prof_op_args args;
    prof_val empty = {{0}, PROF_LIST};
    args.dims = get(reader, PROF_F_DIMS);
    if (args.dims.tag == PROF_ABSENT) {
        args.dims = get(reader, PROF_F_DIMS_LOWER);
    }
    if (args.dims.tag == PROF_ABSENT) {
        args.dims = empty;
    }
    args.types = get(reader, PROF_F_TYPES);
    args.stack = get(reader, PROF_F_STACK);
    args.flops = number(reader, PROF_F_FLOPS);
    args.bytes = number(reader, PROF_F_TRAFFIC);
    args.origin = get(reader, PROF_F_ORIGIN);
    if (qn_prof_slots_room(&reader->op_slots, &trace->arena, op_hash, trace) != QN_OK ||
        !QN_VEC_ROOM(&trace->arena, &trace->ops, 1)) {
        reader->status = QN_NO_MEMORY;
        return PROF_NIL;
    }
    size_t cursor = hash_vals(args.all, OP_VALS);
    for (uint32_t id; (id = prof_slots_at(&reader->op_slots, &cursor)) != PROF_NIL; cursor++) {
        if (same_vals(trace->ops.at[id].all, args.all, OP_VALS)) {
            return id;
        }
    }
    trace->ops.at[trace->ops.n] = args;
    prof_slots_put(&reader->op_slots, cursor, (uint32_t)trace->ops.n);
    return (uint32_t)trace->ops.n++;
}

/* The 2.3 line of torch_mlu writes dimx, dimy, dimz instead of one list. */
static prof_val three_dims(prof_reader *reader) {
    prof_val list = {{0}, PROF_ABSENT};
    if (!has(reader, PROF_F_DIMX)) {
        return list;
    }
    char json[3 * PROF_NUM_TEXT + 8];
    size_t used = 0;
    for (int field = PROF_F_DIMX; field <= PROF_F_DIMZ; field++) {
        prof_val v = number(reader, field);
        json[used++] = field == PROF_F_DIMX ? '[' : ',';
        used += (size_t)(v.tag == PROF_DBL ? qn_prof_dbl_text(v.d, json + used) : qn_prof_int_text(v.i, json + used));
    }
    json[used++] = ']';
    uint32_t id = qn_prof_intern_list(&reader->trace->text, json, used);
    reader->status = id == PROF_NIL ? QN_NO_MEMORY : reader->status;
    list.i = id;
    list.tag = PROF_LIST;
    return list;
}

static uint32_t store_kernel_args(prof_reader *reader) {
    prof_trace *trace = reader->trace;
    prof_kernel_args args;
    static const uint8_t FIELDS[KERNEL_VALS] = {PROF_F_DEVICE, PROF_F_GRID,          PROF_F_BLOCK,     PROF_F_REGISTERS,
                                                PROF_F_SHARED, PROF_F_BLOCKS_PER_SM, PROF_F_OCCUPANCY, PROF_F_KERNEL_TYPE,
                                                PROF_F_DIM,    PROF_F_TOPO,          PROF_F_TOPO_NODE};
    for (int i = 0; i < KERNEL_VALS; i++) {
        args.all[i] = get(reader, FIELDS[i]);
    }
    if (args.dim.tag == PROF_ABSENT) {
        args.dim = three_dims(reader);
    }
    reader->saw_mlu |= args.type.tag != PROF_ABSENT || args.topo.tag != PROF_ABSENT;
    if (qn_prof_slots_room(&reader->kernel_slots, &trace->arena, kernel_hash, trace) != QN_OK ||
        !QN_VEC_ROOM(&trace->arena, &trace->kernels, 1)) {
        reader->status = QN_NO_MEMORY;
        return PROF_NIL;
    }
    size_t cursor = hash_vals(args.all, KERNEL_VALS);
    for (uint32_t id; (id = prof_slots_at(&reader->kernel_slots, &cursor)) != PROF_NIL; cursor++) {
        if (same_vals(trace->kernels.at[id].all, args.all, KERNEL_VALS)) {
            return id;
        }
    }
    trace->kernels.at[trace->kernels.n] = args;
    prof_slots_put(&reader->kernel_slots, cursor, (uint32_t)trace->kernels.n);
    return (uint32_t)trace->kernels.n++;
}

static uint32_t store_py_args(prof_reader *reader) {
    prof_trace *trace = reader->trace;
    if (!QN_VEC_ROOM(&trace->arena, &trace->pys, 1)) {
        reader->status = QN_NO_MEMORY;
        return PROF_NIL;
    }
    prof_py_args args = {get(reader, PROF_F_PY_ID), get(reader, PROF_F_PY_PARENT), get(reader, PROF_F_PY_MODULE),
                         get(reader, PROF_F_ORIGIN)};
    trace->pys.at[trace->pys.n] = args;
    return (uint32_t)trace->pys.n++;
}

/* ---- Keeping ------------------------------------------------------------------------------------------------------ */

static qn_status broken(prof_reader *reader, const char *what) {
    prof_trace *trace = reader->trace;
    trace->events_broken++;
    if (trace->options.flags & QN_PROFILE_STRICT) {
        uint64_t at = reader->window.offset + (uint64_t)(reader->scan.base - reader->window.at);
        return qn_error_set(reader->error, QN_FORMAT, "%s: byte %llu: an event %s", trace->path, (unsigned long long)at, what);
    }
    return QN_OK;
}

/* How many more items to make room for behind n: what the rest of the file will bring if it goes on as it began. */
static size_t to_come(const prof_reader *reader, size_t n) {
    enum { LEAST = 256 };
    double share = qn_prof_window_share(&reader->window, reader->p);
    return n < LEAST || share <= 0 ? 1 : (size_t)((double)n * 1.05 / share) - n + 1;
}

#define ROOM_FOR_NEXT(reader, v)                                                                  \
    ((v)->n < (v)->cap || QN_VEC_ROOM(&(reader)->trace->arena, (v), to_come((reader), (v)->n)) || \
     QN_VEC_ROOM(&(reader)->trace->arena, (v), 1))

static qn_status store_memory(prof_reader *reader) {
    prof_trace *trace = reader->trace;
    prof_mem mem;
    memset(&mem, 0, sizeof mem);
    mem.ts = number(reader, PROF_F_TS);
    if (!prof_is_num(mem.ts)) {
        return broken(reader, "has no time");
    }
    mem.address = get(reader, PROF_F_ADDR);
    mem.bytes = number(reader, PROF_F_BYTES);
    if (!prof_is_num(mem.bytes)) {
        mem.bytes = prof_int(0);
    }
    mem.device_type = get(reader, PROF_F_DEVICE_TYPE);
    mem.device_id = get(reader, PROF_F_DEVICE_ID);
    mem.allocated = number(reader, PROF_F_ALLOCATED);
    mem.reserved = number(reader, PROF_F_RESERVED);
    mem.tid = ident(reader, PROF_F_TID);
    mem.node = PROF_NIL;
    reader->saw_mlu |= mem.device_type.tag == PROF_INT && mem.device_type.i == 20;
    if (trace->mems.n >= PROF_NIL - 1 || !ROOM_FOR_NEXT(reader, &trace->mems)) {
        return QN_NO_MEMORY;
    }
    trace->mems.at[trace->mems.n++] = mem;
    return reader->status;
}

static qn_status store_flow(prof_reader *reader, int is_start) {
    prof_raw_flow flow = {get(reader, PROF_F_ID), number(reader, PROF_F_TS), is_start};
    if (!QN_VEC_ROOM(&reader->trace->arena, &reader->flows, 1)) {
        return QN_NO_MEMORY;
    }
    reader->flows.at[reader->flows.n++] = flow;
    return reader->status;
}

static void mark_window(prof_reader *reader) {
    prof_marks *marks = &reader->marks;
    uint64_t item = reader->trace->events_seen - 1;
    if (is_text(reader, PROF_F_NAME, "Record Window End")) {
        marks->end_at = item;
        marks->end_ts = number(reader, PROF_F_TS);
        marks->first_start_after_end = UINT64_MAX;
        if (marks->first_end_after_start == UINT64_MAX) {
            marks->first_end_after_start = item;
            marks->first_end_ts = marks->end_ts;
        }
    } else if (starts_with(reader, PROF_F_NAME, "Iteration Start:")) {
        marks->start_at = item;
        marks->start_ts = number(reader, PROF_F_TS);
        marks->first_end_after_start = UINT64_MAX;
        if (marks->first_start_after_end == UINT64_MAX) {
            marks->first_start_after_end = item;
            marks->first_start_ts = marks->start_ts;
        }
    }
}

static uint32_t store_args(prof_reader *reader, prof_category category) {
    switch (category) {
    case PROF_CAT_OPERATOR:
    case PROF_CAT_PYTHON:
    case PROF_CAT_ANNOTATION:
    case PROF_CAT_DEVICE_ANNOTATION:
    case PROF_CAT_MLU_ANNOTATION: return store_op_args(reader);
    case PROF_CAT_KERNEL: return store_kernel_args(reader);
    case PROF_CAT_PYTHON_FUNCTION: return store_py_args(reader);
    default: return PROF_NIL;
    }
}

static qn_status store_complete(prof_reader *reader) {
    prof_trace *trace = reader->trace;
    if (!has(reader, PROF_F_CAT) || reader->field[PROF_F_CAT].type != PROF_TOK_STRING) {
        return broken(reader, "of phase X has no category");
    }
    prof_category category = category_of(reader);
    if (category == PROF_CAT_NONE || (category == PROF_CAT_CUDA_DRIVER && !(trace->options.flags & QN_PROFILE_DRIVER))) {
        return QN_OK;
    }
    prof_val name = get(reader, PROF_F_NAME), ts = number(reader, PROF_F_TS), dur = number(reader, PROF_F_DUR);
    if (name.tag != PROF_STR || !prof_is_num(ts) || !prof_is_num(dur)) {
        return reader->status != QN_OK ? reader->status : broken(reader, "of phase X lacks a name, ts or dur");
    }
    prof_val external = get(reader, PROF_F_EXTERNAL_LOWER), correlation = get(reader, PROF_F_CORRELATION);
    if (external.tag == PROF_ABSENT) {
        external = get(reader, PROF_F_EXTERNAL);
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
    event.args = store_args(reader, category);
    if (reader->status != QN_OK || trace->events.n >= PROF_NIL - 1 || !ROOM_FOR_NEXT(reader, &trace->events)) {
        return QN_NO_MEMORY;
    }
    trace->events.at[trace->events.n++] = event;
    return QN_OK;
}

qn_status qn_prof_event_store(prof_reader *reader) {
    reader->trace->events_seen++;
    const prof_tok *phase = &reader->field[PROF_F_PH];
    char ph = has(reader, PROF_F_PH) && phase->type == PROF_TOK_STRING && phase->length == 1 ? *bytes_of(reader, phase) : 0;
    if (!has(reader, PROF_F_NAME)) {
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
    trace->events_seen = trace->events_broken = 0;
    reader->flows.n = 0;
    forget_marks(&reader->marks);
}
