/* Reading a trace file into the first half of a prof_trace. */
#ifndef QUERN_PROF_TRACE_READ_H
#define QUERN_PROF_TRACE_READ_H

#include "prof/json_scan.h"
#include "prof/prof_model.h"
#include "prof/prof_text.h"
#include "prof/prof_sort.h"
#include "prof/trace_keys.h"
#include "prof/trace_source.h"

typedef struct prof_raw_flow { /* one end of a forward/backward link */
    prof_val id;
    prof_num ts;
    int is_start;
} prof_raw_flow;

typedef struct prof_marks {                                                  /* for the `Record Window End` rule of section 2 */
    uint64_t end_at, first_end_after_start, start_at, first_start_after_end; /* item numbers, UINT64_MAX: none */
    prof_num end_ts, first_end_ts, start_ts, first_start_ts;
} prof_marks;

/* A string or list that was read before, by its bytes: where they stand again, nothing need be scanned or looked up. */
typedef struct prof_memo {
    const char *bytes; /* strings without their quotes; NULL: none */
    uint32_t length, id;
    uint8_t type; /* PROF_TOK_STRING or PROF_TOK_LIST */
} prof_memo;

enum { PROF_MEMOS = 256 };

typedef struct prof_reader {
    prof_trace *trace;
    prof_scan scan;
    prof_window window;
    const char *p; /* next byte to look at */
    qn_error *error;
    qn_status status; /* of memory and input; the scanner has its own */

    prof_keys keys;
    prof_tok field[PROF_FIELDS];
    uint64_t present, known; /* bit per field: it was given; it is what `last` says */
    prof_memo last[PROF_FIELDS];
    prof_memo memos[PROF_MEMOS];   /* by a hash of field and first bytes */
    uint32_t memo_at[PROF_FIELDS]; /* where the value at hand belongs in them, or PROF_NIL */

    uint32_t last_ident[2]; /* pid, tid */
    uint8_t last_category;  /* index into the table of names */
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
