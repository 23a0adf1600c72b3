/* The passes that turn events into the model, in the order of section 0. Each returns QN_OK, QN_NO_MEMORY, or QN_FORMAT with a
 * sentence where --strict-reference rejects the trace as the reference does. */
#ifndef QUERN_PROF_PASSES_H
#define QUERN_PROF_PASSES_H

#include "prof/prof_map.h"
#include "prof/prof_model.h"

/* classify.c: kinds, names, trace start, order by time (section 3). */
qn_status qn_prof_classify(prof_trace *trace, qn_error *error);
/* owner_repair.c, --owner=enclosing: external ids of runtime calls by what encloses them (section 22). */
qn_status qn_prof_owner_repair(prof_trace *trace, qn_error *error);

typedef QN_VEC(uint32_t) prof_ids;

/* Working state of sections 4 to 7. */
typedef struct prof_thread {
    prof_val key;        /* int(tid), or the value as written where that is no number */
    uint32_t begin, end; /* into prof_threads.nodes */
} prof_thread;

typedef struct prof_threads {
    QN_VEC(prof_thread) list; /* first-seen order */
    QN_VEC(uint32_t) nodes;   /* thread by thread, event order inside */
} prof_threads;

typedef struct prof_zero { /* a runtime call with external id 0 */
    uint32_t rt, next;     /* next of the same thread as written, PROF_NIL at the end */
} prof_zero;

typedef struct prof_build {
    prof_trace *trace;
    qn_error *error;
    prof_threads threads;    /* operator nodes */
    prof_threads pl_threads; /* Lightning's profile nodes */
    QN_VEC(prof_zero) zeros;
    prof_map zero_first, zero_last; /* thread as written to index into zeros */
    prof_map rt_first, rt_last;     /* --owner=time: integer thread to runtime calls, chained by rt_next in event order */
    uint32_t *rt_next;
    QN_VEC(uint32_t) orphans; /* device nodes, section 4 */
    uint32_t main_tree;       /* index into trace->trees of the last thread with steps, or PROF_NIL */
    int strict;
} prof_build;

qn_status qn_prof_nodes(prof_build *build);                         /* trace_nodes.c, section 4 */
qn_status qn_prof_owners(prof_build *build);                        /* owners.c: runtime calls of operators by external id */
qn_status qn_prof_trees(prof_build *build);                         /* optree.c, section 5 */
qn_status qn_prof_owners_by_time(prof_build *build, uint32_t tree); /* owners.c, --owner=time: one standing tree */
qn_status qn_prof_durations(prof_build *build);                     /* durations.c, section 6 */
qn_status qn_prof_backward(prof_build *build);                      /* backward.c, section 7 */

/* Appends the nodes under `root` to `out`, children before their parent, the root last. A node reached twice appears twice. */
qn_status qn_prof_postorder(prof_trace *trace, uint32_t root, prof_ids *out);
/* Sorts node ids by start, then end descending. */
qn_status qn_prof_sort_nodes(prof_trace *trace, uint32_t *ids, size_t n);
/* int(tid): an integer where the written value is one, else the value itself. */
prof_val qn_prof_thread_key(const prof_trace *trace, prof_val written);

qn_status qn_prof_steps(prof_trace *trace, qn_error *error);   /* steps.c, section 8 */
qn_status qn_prof_split(prof_trace *trace, qn_error *error);   /* step_split.c, section 9 */
qn_status qn_prof_devices(prof_trace *trace, qn_error *error); /* device_metrics.c, sections 12 and 13 */
qn_status qn_prof_op_groups(prof_trace *trace);                /* op_groups.c, section 14 */
qn_status qn_prof_kernel_groups(prof_trace *trace);            /* kernel_groups.c, section 15 */
qn_status qn_prof_memory(prof_trace *trace);                   /* memory_assign.c, section 17 */
qn_status qn_prof_modules(prof_trace *trace, qn_error *error); /* modules.c, section 19 */

/* analyse.c: everything after reading. */
qn_status qn_prof_analyse(prof_trace *trace, qn_error *error);

#endif
