/* The timeline of a trace: everything with a duration, in columns small enough to be drawn by a page. */
#ifndef QUERN_PROF_TIMELINE_H
#define QUERN_PROF_TIMELINE_H

#include "prof/prof_map.h"
#include "prof/timeline_scan.h"

enum { PROF_ARGS_CHUNK = 2048 }; /* events whose arguments are asked for together */

typedef struct prof_span {
    int64_t start, dur; /* ns; start on the trace's own clock until sorted, then after the first */
    uint32_t lane, name, category;
    uint32_t seq; /* number among the spans in file order */
} prof_span;

typedef struct prof_lane {
    uint32_t pid, tid, name; /* strings; name 0 when none is given */
    prof_num sort;
} prof_lane;

typedef struct prof_process {
    uint32_t pid, name, labels;
    prof_num sort;
} prof_process;

typedef struct prof_arrow {
    uint32_t from_lane, to_lane; /* PROF_NIL: that end was not seen */
    int64_t from, to;
} prof_arrow;

typedef struct prof_series { /* one curve: a counter's name and one of its arguments */
    uint32_t lane, name, key;
} prof_series;

typedef struct prof_point {
    uint32_t series;
    int64_t ts;
    double value;
} prof_point;

typedef struct prof_timeline {
    qn_arena *arena;
    prof_text names; /* of events and categories */
    prof_text words; /* of processes, threads, flows and counters */
    prof_map lane_of, process_of, arrow_of, series_of;
    QN_VEC(prof_span) spans; /* by start, then the longer first */
    QN_VEC(prof_lane) lanes;
    QN_VEC(prof_process) processes;
    QN_VEC(prof_arrow) arrows;
    QN_VEC(prof_series) series;
    QN_VEC(prof_point) points; /* by series, then time */
    int64_t start;             /* ns of the first span */
    uint64_t left_out;         /* spans without a usable time, name or thread */
} prof_timeline;

/* Whether an item is drawn as a span: a complete event, or an instant that is no memory record. */
int qn_prof_timeline_is_span(const prof_item *item, int64_t *start, int64_t *dur);
/* What is known of a process, NULL when nothing names it. */
const prof_process *qn_prof_timeline_process(const prof_timeline *timeline, uint32_t pid);
/* Reads the whole file. */
qn_status qn_prof_timeline_build(prof_timeline *timeline, qn_arena *arena, const char *path, const qn_profile_options *options,
                                 qn_error *error);

#endif
