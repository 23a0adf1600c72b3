/* What the emitters share: values of the trace as JSON, column headers, the order of rows. */
#ifndef QUERN_PROF_VIEW_UTIL_H
#define QUERN_PROF_VIEW_UTIL_H

#include "prof/prof_view.h"

/* A column of a table; a NULL tooltip is left out. */
typedef struct prof_column {
    const char *name;
    int is_number;
    const char *tooltip;
} prof_column;

/* {"type": ..., "name": ..., "tooltip": ...}, as operator and kernel tables write it. */
void qn_prof_view_column(prof_json *json, const char *name, int is_number, const char *tooltip);
void qn_prof_view_columns(prof_json *json, const prof_column *columns, size_t n);
/* "columns": [...], "rows": [, to be closed behind the rows. */
void qn_prof_view_table(prof_json *json, const prof_column *columns, size_t n);
/* "columns": [{"type": "string", "name": "name"}, {"type": "number", "name": "value"}], "rows": without the rows. */
void qn_prof_view_pie_head(prof_json *json);

/* An interned string; 0 is null. */
void qn_prof_view_string(prof_json *json, const prof_trace *trace, uint32_t id);
void qn_prof_view_string_part(prof_json *json, const prof_trace *trace, uint32_t id);
/* A value as JSON, of its own kind; absent is null. */
void qn_prof_view_value(prof_json *json, const prof_trace *trace, prof_val value);
/* text(v) of section 1 as a JSON string, whole or as a part of one. */
void qn_prof_view_value_text(prof_json *json, const prof_trace *trace, prof_val value);
void qn_prof_view_value_part(prof_json *json, const prof_trace *trace, prof_val value);

/* Ends a string begun with qn_prof_json_string_begin as the key of what follows. */
void qn_prof_view_key_end(prof_json *json);

/* r0 of section 1. The reference's integers have no bound, so what is beyond 64 bits still prints as one. */
void qn_prof_view_round0(prof_json *json, prof_num value);

/* 100 * a / b rounded to two places; 0.0 for a zero divisor, where the reference would fail. */
prof_num qn_prof_view_percent(prof_num a, prof_num b);

/* "Yes" or "No". */
void qn_prof_view_yes(prof_json *json, int yes);

static inline int prof_is_a(const prof_trace *trace) { return trace->dialect == QN_PROFILE_MLU_A; }
static inline int prof_is_b(const prof_trace *trace) { return trace->dialect == QN_PROFILE_MLU_B; }
/* Upstream's rules about NVIDIA devices hold: in upstream itself, and in mlu_b for GPU traces. */
static inline int prof_nvidia_rules(const prof_trace *trace) { return !prof_is_a(trace) && trace->is_gpu; }

/* The memory of a device in bytes, from whichever key it is given by in this dialect; absent when it is not. */
prof_num qn_prof_view_device_bytes(const prof_trace *trace, const prof_prop *prop);
/* "16.0 GB" and "7.5" as JSON strings, where the properties tell. */
int qn_prof_view_has_memory(const prof_trace *trace, const prof_prop *prop);
void qn_prof_view_memory_text(prof_json *json, const prof_prop *prop);
int qn_prof_view_has_capability(const prof_prop *prop);
void qn_prof_view_capability_text(prof_json *json, const prof_trace *trace, const prof_prop *prop);

/* No such view in this trace. */
qn_status qn_prof_view_missing(qn_error *error, const prof_trace *trace, const char *view, const char *why);

#endif
