/* What several finished analyses give together: the distributed view (section 18) and the diff view (section 20). */
#ifndef QUERN_PROF_JOINT_H
#define QUERN_PROF_JOINT_H

#include "prof/prof_model.h"

/* ---- Distributed: all workers of one span ------------------------------------------------------------------------- */

typedef struct prof_dist_cell {
    uint32_t worker; /* index into prof_dist.workers */
    prof_num value[4];
} prof_dist_cell;

typedef struct prof_dist_row { /* one key of `data`; cells by worker name ascending */
    const char *key;           /* "all", a step's name; NULL prints as the key null */
    QN_VEC(prof_dist_cell) cells;
} prof_dist_row;

typedef QN_VEC(prof_dist_row) prof_dist_rows;

typedef struct prof_comm_stat {
    uint32_t name; /* string of that worker's trace */
    int64_t calls;
    prof_num size, latency, transfer; /* totals; averages are r0(total / calls) */
} prof_comm_stat;

typedef struct prof_dist_worker {
    const char *name;
    const prof_trace *trace;      /* for device info: props, used_pids, device_word */
    QN_VEC(prof_comm_stat) comms; /* names in first-seen order */
} prof_dist_worker;

typedef struct prof_dist {
    qn_arena *arena;
    int exists;                       /* the conditions of section 18 hold; without them the rest is empty and there is no view */
    QN_VEC(prof_dist_worker) workers; /* ascending by name */
    prof_dist_rows overlap;           /* values: computation - overlap, overlap, communication - overlap, other; row 0 is "all" */
    prof_dist_rows waittime;          /* values 0 and 1: transfer, wait; row 0 is "all" */
} prof_dist;

/* workers: named and loaded, in any order. Strings and traces must outlive the result; memory comes from `arena`. */
qn_status qn_prof_dist_build(qn_arena *arena, const prof_dist_worker *workers, size_t n, prof_dist *dist);

/* ---- Diff --------------------------------------------------------------------------------------------------------- */

typedef struct prof_diff_agg { /* operators proper of one name under a side */
    uint32_t name;             /* string of that side's trace */
    int64_t calls;
    prof_num host, device, host_self, device_self;
    int64_t kernel_calls;                     /* mlu_b shows these three */
    const char *kernel_names, *kernel_counts; /* joined by ';', terminated; "" when none */
    size_t kernel_names_length;
} prof_diff_agg;

typedef struct prof_diff_side {
    const char *name; /* "Blank", "CompositeNodes" or the node's own name */
    size_t name_length;
    prof_num duration, device, total;
    QN_VEC(prof_diff_agg) aggs;
} prof_diff_side;

typedef struct prof_diff_node {
    prof_diff_side left, right;
    uint32_t kid_begin, kid_count; /* into prof_diff.kids; kids have larger indices than their parent */
} prof_diff_node;

typedef struct prof_diff {
    const prof_trace *left, *right;
    QN_VEC(prof_diff_node) nodes; /* 0 is the root */
    QN_VEC(uint32_t) kids;
} prof_diff;

/* QN_UNSUPPORTED when there is too much to compare. */
qn_status qn_prof_diff_build(qn_arena *arena, const prof_trace *left, const prof_trace *right, prof_diff *diff);

#endif
