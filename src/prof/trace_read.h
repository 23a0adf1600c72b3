/* Reading a trace file into the first half of a prof_trace. */
#ifndef QUERN_PROF_TRACE_READ_H
#define QUERN_PROF_TRACE_READ_H

#include "prof/prof_model.h"
#include "prof/prof_text.h"
#include "prof/prof_sort.h"
#include "prof/trace_cursor.h"
#include "prof/trace_keys.h"

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
    prof_cursor cursor;

    prof_keys keys;
    prof_tok field[PROF_FIELDS];
    uint64_t present, known, counted; /* bit per field: it was given; it is what `last` says; it is `number` */
    int64_t number[PROF_FIELDS];
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

/* trace_event.c: one item of traceEvents. `mark` finds the fields of the object at *p; `take` keeps what is needed. The user is the
 * reader. */
void qn_prof_event_init(prof_reader *reader);
prof_scan_result qn_prof_event_mark(void *user, const char **p);
qn_status qn_prof_event_take(void *user, int is_object);
/* Forgets all events: a second `traceEvents` replaces the first. */
void qn_prof_event_forget(prof_reader *reader);

/* trace_args.c: the category of an event of phase X, and the record of its arguments, PROF_NIL when its kind has none. */
prof_category qn_prof_event_category(prof_reader *reader);
uint32_t qn_prof_event_args(prof_reader *reader, prof_category category);

/* Fields of the event at hand: absent when they were not given, and as a number when they are none. */
static inline int prof_reader_has(const prof_reader *reader, int field) { return (int)(reader->present >> field & 1); }
prof_val qn_prof_reader_field(prof_reader *reader, int field);
prof_val qn_prof_reader_number(prof_reader *reader, int field);

/* A token as a value of the trace: strings and lists are interned. Sets the cursor's status when memory ends. */
prof_val qn_prof_reader_value(prof_reader *reader, const prof_tok *tok);

#endif
