/* Reading a trace file into the first half of a prof_trace. */
#ifndef QUERN_PROF_TRACE_READ_H
#define QUERN_PROF_TRACE_READ_H

#include "prof/json_scan.h"
#include "prof/prof_model.h"
#include "prof/prof_text.h"
#include "prof/prof_sort.h"
#include "prof/trace_source.h"

/* Fields of an event and its arguments that are looked at, in the order of trace_event.c's name table. */
typedef enum prof_field {
    PROF_F_PH,
    PROF_F_CAT,
    PROF_F_NAME,
    PROF_F_PID,
    PROF_F_TID,
    PROF_F_TS,
    PROF_F_DUR,
    PROF_F_ID,
    PROF_F_ARGS, /* never stored itself; arguments follow */
    PROF_F_EXTERNAL_LOWER,
    PROF_F_EXTERNAL,
    PROF_F_CORRELATION,
    PROF_F_DIMS,
    PROF_F_DIMS_LOWER,
    PROF_F_TYPES,
    PROF_F_STACK,
    PROF_F_DEVICE,
    PROF_F_GRID,
    PROF_F_BLOCK,
    PROF_F_REGISTERS,
    PROF_F_SHARED,
    PROF_F_BLOCKS_PER_SM,
    PROF_F_OCCUPANCY,
    PROF_F_KERNEL_TYPE,
    PROF_F_DIM,
    PROF_F_DIMX,
    PROF_F_DIMY,
    PROF_F_DIMZ,
    PROF_F_TOPO,
    PROF_F_TOPO_NODE,
    PROF_F_ADDR,
    PROF_F_BYTES,
    PROF_F_DEVICE_TYPE,
    PROF_F_DEVICE_ID,
    PROF_F_ALLOCATED,
    PROF_F_RESERVED,
    PROF_F_PY_ID,
    PROF_F_PY_PARENT,
    PROF_F_PY_MODULE,
    PROF_F_FLOPS,
    PROF_F_TRAFFIC, /* "bytes" of an operator; memory records have "Bytes" */
    PROF_F_ORIGIN,
    PROF_FIELDS
} prof_field;

typedef struct prof_raw_flow { /* one end of a forward/backward link */
    prof_val id;
    prof_num ts;
    int is_start;
} prof_raw_flow;

typedef struct prof_marks {                                                  /* for the `Record Window End` rule of section 2 */
    uint64_t end_at, first_end_after_start, start_at, first_start_after_end; /* item numbers, UINT64_MAX: none */
    prof_num end_ts, first_end_ts, start_ts, first_start_ts;
} prof_marks;

typedef struct prof_reader {
    prof_trace *trace;
    prof_scan scan;
    prof_window window;
    const char *p; /* next byte to look at */
    qn_error *error;
    qn_status status; /* of memory and input; the scanner has its own */

    uint8_t arg_table[256]; /* hash of an argument's name to its field, 0 free */
    prof_tok field[PROF_FIELDS];
    uint64_t present; /* bit per field */

    prof_slots op_slots, kernel_slots, ident_slots;
    QN_VEC(prof_raw_flow) flows;
    prof_marks marks;
    int seen_events, saw_gpu, saw_mlu;
} prof_reader;

/* Fills trace->events and what belongs to them from trace->path; the order is the file's. */
qn_status qn_prof_trace_read(prof_trace *trace, qn_error *error);

/* trace_event.c: one item of traceEvents. `parse` marks the fields of the object at *p; `store` keeps what is needed. */
void qn_prof_event_init(prof_reader *reader);
prof_scan_result qn_prof_event_parse(prof_reader *reader, const char **p);
qn_status qn_prof_event_store(prof_reader *reader);
/* Forgets all events: a second `traceEvents` replaces the first. */
void qn_prof_event_forget(prof_reader *reader);

/* A token as a value of the trace: strings and lists are interned. Sets reader->status when memory ends. */
prof_val qn_prof_reader_value(prof_reader *reader, const prof_tok *tok);

#endif
