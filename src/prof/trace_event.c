/* One event: which of its members matter, and the fixed-size record made of them. Everything else is passed over unread. The
 * decision to keep an event is made after all its members are marked, because their order is free. */
#include <string.h>

#include "prof/trace_read.h"

static const char *const NAMES[PROF_FIELDS] = {"ph",
                                               "cat",
                                               "name",
                                               "pid",
                                               "tid",
                                               "ts",
                                               "dur",
                                               "id",
                                               "args",
                                               "external id",
                                               "External id",
                                               "correlation",
                                               "Input Dims",
                                               "Input dims",
                                               "Input type",
                                               "Call stack",
                                               "device",
                                               "grid",
                                               "block",
                                               "registers per thread",
                                               "shared memory",
                                               "blocks per SM",
                                               "est. achieved occupancy %",
                                               "kernel type",
                                               "dim",
                                               "dimx",
                                               "dimy",
                                               "dimz",
                                               "tasktopo",
                                               "tasktopo_node",
                                               "Addr",
                                               "Bytes",
                                               "Device Type",
                                               "Device Id",
                                               "Total Allocated",
                                               "Total Reserved",
                                               "Python id",
                                               "Python parent id",
                                               "Python module id",
                                               "flops",
                                               "bytes",
                                               "origin"};

static unsigned name_hash(const char *name, size_t length) {
    return ((unsigned)length * 21u + (unsigned char)name[0] * 5u + (unsigned char)name[length - 1] * 59u) & 255u;
}

void qn_prof_event_init(prof_reader *reader) {
    for (int field = PROF_F_ARGS + 1; field < PROF_FIELDS; field++) {
        unsigned at = name_hash(NAMES[field], strlen(NAMES[field]));
        while (reader->arg_table[at]) {
            at = (at + 1) & 255u;
        }
        reader->arg_table[at] = (uint8_t)field;
    }
    reader->marks.end_at = reader->marks.start_at = UINT64_MAX;
    reader->marks.first_end_after_start = reader->marks.first_start_after_end = UINT64_MAX;
}

/* ---- Marking ------------------------------------------------------------------------------------------------------ */

static int same_name(const char *name, size_t length, int field) { return memcmp(name, NAMES[field], length) == 0; }

static int event_field(const char *name, size_t length) {
    if (length == 2) {
        return same_name(name, 2, PROF_F_PH)   ? PROF_F_PH
               : same_name(name, 2, PROF_F_TS) ? PROF_F_TS
               : same_name(name, 2, PROF_F_ID) ? PROF_F_ID
                                               : -1;
    }
    if (length == 3) {
        return same_name(name, 3, PROF_F_CAT)   ? PROF_F_CAT
               : same_name(name, 3, PROF_F_PID) ? PROF_F_PID
               : same_name(name, 3, PROF_F_TID) ? PROF_F_TID
               : same_name(name, 3, PROF_F_DUR) ? PROF_F_DUR
                                                : -1;
    }
    if (length == 4) {
        return same_name(name, 4, PROF_F_NAME) ? PROF_F_NAME : same_name(name, 4, PROF_F_ARGS) ? PROF_F_ARGS : -1;
    }
    return -1;
}

static int arg_field(const prof_reader *reader, const char *name, size_t length) {
    if (length == 0) {
        return -1;
    }
    for (unsigned at = name_hash(name, length); reader->arg_table[at]; at = (at + 1) & 255u) {
        int field = reader->arg_table[at];
        if (strlen(NAMES[field]) == length && same_name(name, length, field)) {
            return field;
        }
    }
    return -1;
}

/* The field a key names; a key written with escapes is resolved first. */
static int key_field(const prof_reader *reader, const prof_tok *key, int in_args) {
    const char *name = reader->scan.base + key->at;
    size_t length = key->length;
    char plain[3 * 64];
    if (key->escaped) {
        if (length > 64) {
            return -1;
        }
        length = qn_prof_unescape(name, length, plain);
        name = plain;
    }
    return in_args ? arg_field(reader, name, length) : event_field(name, length);
}

static prof_scan_result parse_args(prof_reader *reader, const char **p) {
    prof_tok key, ignored;
    int closed;
    ++*p;
    for (int first = 1;; first = 0) {
        prof_scan_result result = qn_prof_scan_member(&reader->scan, p, first, &key, &closed);
        if (result != PROF_SCAN_OK || closed) {
            return result;
        }
        int field = key_field(reader, &key, 1);
        result = qn_prof_scan_value(&reader->scan, p, field < 0 ? &ignored : &reader->field[field]);
        if (result != PROF_SCAN_OK) {
            return result;
        }
        if (field >= 0) {
            reader->present |= 1ull << field;
        }
    }
}

prof_scan_result qn_prof_event_parse(prof_reader *reader, const char **p) {
    const uint64_t own = (1ull << PROF_F_ARGS) - 1;
    prof_tok key, ignored;
    int closed;
    reader->present = 0;
    ++*p;
    for (int first = 1;; first = 0) {
        prof_scan_result result = qn_prof_scan_member(&reader->scan, p, first, &key, &closed);
        if (result != PROF_SCAN_OK || closed) {
            return result;
        }
        int field = key_field(reader, &key, 0);
        if (field == PROF_F_ARGS) {
            reader->present &= own; /* a second `args` replaces the first whole */
        }
        if (field == PROF_F_ARGS && **p == '{') {
            result = parse_args(reader, p);
        } else {
            result = qn_prof_scan_value(&reader->scan, p, field < 0 ? &ignored : &reader->field[field]);
            if (field >= 0 && field != PROF_F_ARGS) {
                reader->present |= 1ull << field;
            }
        }
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

static prof_val get(prof_reader *reader, int field) {
    return has(reader, field) ? qn_prof_reader_value(reader, &reader->field[field]) : prof_absent();
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
    size_t cursor = qn_prof_hash_value(value);
    if (qn_prof_slots_room(&reader->ident_slots, &trace->arena, ident_hash, trace) != QN_OK) {
        reader->status = QN_NO_MEMORY;
        return 0;
    }
    for (uint32_t id; (id = prof_slots_at(&reader->ident_slots, &cursor)) != PROF_NIL; cursor++) {
        if (trace->idents.at[id].tag == value.tag && trace->idents.at[id].i == value.i) {
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

static int is_text(const prof_reader *reader, int field, const char *literal) {
    const prof_tok *tok = &reader->field[field];
    return has(reader, field) && tok->type == PROF_TOK_STRING && tok->length == strlen(literal) &&
           memcmp(bytes_of(reader, tok), literal, tok->length) == 0;
}

static int starts_with(const prof_reader *reader, int field, const char *prefix) {
    const prof_tok *tok = &reader->field[field];
    size_t length = strlen(prefix);
    return has(reader, field) && tok->type == PROF_TOK_STRING && tok->length >= length &&
           memcmp(bytes_of(reader, tok), prefix, length) == 0;
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
        if (c != lower[i]) {
            return 0;
        }
    }
    return 1;
}

static prof_category category_of(prof_reader *reader) {
    const prof_tok *tok = &reader->field[PROF_F_CAT];
    const char *bytes = bytes_of(reader, tok);
    for (size_t i = 0; i < sizeof CATEGORIES / sizeof *CATEGORIES; i++) {
        if (strlen(CATEGORIES[i].name) == tok->length && same_lower(bytes, CATEGORIES[i].name, tok->length)) {
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
        return qn_error_set(reader->error, QN_FORMAT, "byte %llu: an event %s", (unsigned long long)at, what);
    }
    return QN_OK;
}

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
    if (trace->mems.n >= PROF_NIL - 1 || !QN_VEC_ROOM(&trace->arena, &trace->mems, 1)) {
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
    if (reader->status != QN_OK || trace->events.n >= PROF_NIL - 1 || !QN_VEC_ROOM(&trace->arena, &trace->events, 1)) {
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
    reader->marks.end_at = reader->marks.start_at = UINT64_MAX;
    reader->marks.first_end_after_start = reader->marks.first_start_after_end = UINT64_MAX;
}
