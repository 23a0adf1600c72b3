/* What an event is called and what it carries: its category, and the record of its arguments. */
#include "prof/trace_read.h"

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
    /* Written by profilers, but no part of any view. */
    {"overhead", PROF_CAT_NONE, 0, 0},
    {"cuda_sync", PROF_CAT_NONE, 0, 0},
    {"cuda_event", PROF_CAT_NONE, 0, 0},
    {"cuda_profiler_range", PROF_CAT_NONE, 0, 0},
    {"ac2g", PROF_CAT_NONE, 0, 0},
    {"async_cpu_to_gpu", PROF_CAT_NONE, 0, 0},
    {"fwdbwd", PROF_CAT_NONE, 0, 0},
    {"forward_backward", PROF_CAT_NONE, 0, 0},
    {"cpu_instant_event", PROF_CAT_NONE, 0, 0},
    {"external_correlation", PROF_CAT_NONE, 0, 0},
    {"gpu_pm_counter", PROF_CAT_NONE, 0, 0},
    {"xpu_driver", PROF_CAT_NONE, 0, 0},
    {"privateuse1_driver", PROF_CAT_NONE, 0, 0},
    {"hpu_op", PROF_CAT_NONE, 0, 0},
    {"mtia_ccp_events", PROF_CAT_NONE, 0, 0},
    {"mtia_insight", PROF_CAT_NONE, 0, 0},
    {"collective_comm", PROF_CAT_NONE, 0, 0},
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

prof_category qn_prof_event_category(prof_reader *reader) {
    enum { ALL = sizeof CATEGORIES / sizeof *CATEGORIES };
    const prof_tok *tok = &reader->field[PROF_F_CAT];
    const char *bytes = reader->cursor.scan.base + tok->at;
    for (size_t tried = 0, i = reader->last_category; tried <= ALL; i = tried++) { /* the last one first */
        if (same_lower(bytes, CATEGORIES[i].name, tok->length)) {
            reader->last_category = (uint8_t)i;
            reader->saw_gpu |= CATEGORIES[i].gpu;
            reader->saw_mlu |= CATEGORIES[i].mlu;
            return (prof_category)CATEGORIES[i].category;
        }
    }
    reader->trace->events_unknown++;
    return PROF_CAT_NONE;
}

/* ---- Argument records, each distinct one kept once ---------------------------------------------------------------- */

static uint32_t hash_vals(qn_hash_key key, const prof_val *vals, size_t n) {
    uint64_t hash = key.begin;
    for (size_t i = 0; i < n; i++) {
        hash = qn_hash_tagged(key, hash, vals[i].tag, (uint64_t)vals[i].i);
    }
    return (uint32_t)hash;
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

static uint32_t op_hash(qn_hash_key key, const void *owner, uint32_t index) {
    return hash_vals(key, ((const prof_trace *)owner)->ops.at[index].all, OP_VALS);
}

static uint32_t kernel_hash(qn_hash_key key, const void *owner, uint32_t index) {
    return hash_vals(key, ((const prof_trace *)owner)->kernels.at[index].all, KERNEL_VALS);
}

/* Records of n values each lie one behind another from `all` on, and the one at `last` is new. The number of its equal among those
 * before it; if there is none, its own. */
static uint32_t keep_once(prof_slots *slots, const prof_val *all, size_t n, uint32_t last) {
    const prof_val *wanted = all + last * n;
    size_t cursor = hash_vals(slots->key, wanted, n);
    for (uint32_t id; (id = prof_slots_at(slots, &cursor)) != PROF_NIL; cursor++) {
        if (same_vals(all + id * n, wanted, n)) {
            return id;
        }
    }
    prof_slots_put(slots, cursor, last);
    return last;
}

static uint32_t store_op_args(prof_reader *reader) {
    prof_trace *trace = reader->trace;
    prof_op_args args;
    prof_val empty = {{0}, PROF_LIST};
    args.dims = qn_prof_reader_field(reader, PROF_F_DIMS);
    if (args.dims.tag == PROF_ABSENT) {
        args.dims = qn_prof_reader_field(reader, PROF_F_DIMS_LOWER);
    }
    if (args.dims.tag == PROF_ABSENT) {
        args.dims = empty;
    }
    args.types = qn_prof_reader_field(reader, PROF_F_TYPES);
    args.stack = qn_prof_reader_field(reader, PROF_F_STACK);
    args.flops = qn_prof_reader_number(reader, PROF_F_FLOPS);
    args.bytes = qn_prof_reader_number(reader, PROF_F_TRAFFIC);
    args.origin = qn_prof_reader_field(reader, PROF_F_ORIGIN);
    if (qn_prof_slots_room(&reader->op_slots, &trace->arena, op_hash, trace) != QN_OK ||
        !QN_VEC_ROOM(&trace->arena, &trace->ops, 1)) {
        reader->cursor.status = QN_NO_MEMORY;
        return PROF_NIL;
    }
    trace->ops.at[trace->ops.n] = args;
    uint32_t id = keep_once(&reader->op_slots, (const prof_val *)trace->ops.at, OP_VALS, (uint32_t)trace->ops.n);
    trace->ops.n += id == trace->ops.n;
    return id;
}

/* The 2.3 line of torch_mlu writes dimx, dimy, dimz instead of one list. */
static prof_val three_dims(prof_reader *reader) {
    prof_val list = {{0}, PROF_ABSENT};
    if (!prof_reader_has(reader, PROF_F_DIMX)) {
        return list;
    }
    char json[3 * PROF_NUM_TEXT + 8];
    size_t used = 0;
    for (int field = PROF_F_DIMX; field <= PROF_F_DIMZ; field++) {
        prof_val v = qn_prof_reader_number(reader, field);
        json[used++] = field == PROF_F_DIMX ? '[' : ',';
        used += (size_t)(v.tag == PROF_DBL ? qn_prof_dbl_text(v.d, json + used) : qn_prof_int_text(v.i, json + used));
    }
    json[used++] = ']';
    uint32_t id = qn_prof_intern_list(&reader->trace->text, json, used);
    reader->cursor.status = id == PROF_NIL ? QN_NO_MEMORY : reader->cursor.status;
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
        args.all[i] = qn_prof_reader_field(reader, FIELDS[i]);
    }
    if (args.dim.tag == PROF_ABSENT) {
        args.dim = three_dims(reader);
    }
    reader->saw_mlu |= args.type.tag != PROF_ABSENT || args.topo.tag != PROF_ABSENT;
    if (qn_prof_slots_room(&reader->kernel_slots, &trace->arena, kernel_hash, trace) != QN_OK ||
        !QN_VEC_ROOM(&trace->arena, &trace->kernels, 1)) {
        reader->cursor.status = QN_NO_MEMORY;
        return PROF_NIL;
    }
    trace->kernels.at[trace->kernels.n] = args;
    uint32_t id = keep_once(&reader->kernel_slots, (const prof_val *)trace->kernels.at, KERNEL_VALS, (uint32_t)trace->kernels.n);
    trace->kernels.n += id == trace->kernels.n;
    return id;
}

static uint32_t store_py_args(prof_reader *reader) {
    prof_trace *trace = reader->trace;
    if (!QN_VEC_ROOM(&trace->arena, &trace->pys, 1)) {
        reader->cursor.status = QN_NO_MEMORY;
        return PROF_NIL;
    }
    prof_py_args args = {qn_prof_reader_field(reader, PROF_F_PY_ID), qn_prof_reader_field(reader, PROF_F_PY_PARENT),
                         qn_prof_reader_field(reader, PROF_F_PY_MODULE), qn_prof_reader_field(reader, PROF_F_ORIGIN)};
    trace->pys.at[trace->pys.n] = args;
    return (uint32_t)trace->pys.n++;
}

uint32_t qn_prof_event_args(prof_reader *reader, prof_category category) {
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
