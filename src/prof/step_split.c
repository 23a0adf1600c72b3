/* Section 9: each step's time split among the roles by priority, and the figures of communication against computation. */
#include <string.h>

#include "prof/prof_passes.h"

static const uint64_t MOST_PARTS = 500000000; /* some seconds; beyond it the trace is hostile */

/* Steps that lie over one another are each split by themselves: many over much could take hours. */
static qn_status bound_work(const prof_trace *trace, qn_error *error) {
    uint64_t parts = 0;
    for (size_t i = 0; i < trace->steps.n; i++) {
        for (int role = 0; role < PROF_ROLE_OTHER; role++) {
            parts += qn_prof_ranges_in(trace->steps.at[i].start, trace->steps.at[i].end, &trace->roles[role]);
        }
    }
    if (parts <= MOST_PARTS) {
        return QN_OK;
    }
    return qn_error_set(error, QN_FORMAT, "its %zu steps lie over one another, too much to be split", trace->steps.n);
}

/* The parts of all steps that belong to each role. When earlier roles have used up everything, the slots begin again from the
 * whole steps: a slip of the reference that the expected views contain. */
static qn_status split_roles(prof_trace *trace, const prof_ranges *steps, prof_ranges *cost) {
    qn_arena *arena = &trace->arena;
    prof_ranges slots = {NULL, 0, 0}, rest;
    for (int role = 0; role < PROF_ROLE_OTHER; role++) {
        qn_status status = QN_OK;
        if (slots.n == 0) {
            prof_ranges all = {NULL, 0, 0};
            all.at = trace->roles[role].at;
            all.n = all.cap = trace->roles[role].n;
            if (!QN_VEC_ROOM(arena, &cost[role], all.n)) {
                return QN_NO_MEMORY;
            }
            if (all.n) {
                memcpy(cost[role].at, all.at, all.n * sizeof *all.at);
            }
            cost[role].n = all.n;
            status = qn_prof_ranges_merge(arena, steps, &slots);
        } else {
            status = qn_prof_ranges_meet(arena, &slots, &trace->roles[role], &cost[role]);
        }
        memset(&rest, 0, sizeof rest);
        if (status != QN_OK || qn_prof_ranges_minus(arena, &slots, &cost[role], &rest) != QN_OK) {
            return QN_NO_MEMORY;
        }
        QN_VEC_FREE(arena, &slots);
        slots = rest;
    }
    cost[PROF_ROLE_OTHER] = slots;
    return QN_OK;
}

static void cost_of_steps(prof_trace *trace, const prof_ranges *cost) {
    size_t n = trace->steps.n;
    for (size_t i = 0; i < n; i++) {
        prof_step *step = &trace->steps.at[i];
        for (int role = 0; role < PROF_ROLES; role++) {
            step->cost[role] = qn_prof_ranges_sum_in(step->start, step->end, &cost[role]);
            trace->average[role] += prof_to_dbl(step->cost[role]);
        }
        step->total = prof_sub(step->end, step->start);
        trace->average_total += prof_to_dbl(step->total);
    }
    for (int role = 0; role < PROF_ROLES; role++) {
        trace->average[role] /= (double)n;
    }
    trace->average_total /= (double)n;
}

static qn_status compare_communication(prof_trace *trace) {
    const prof_ranges *comm = &trace->roles[PROF_ROLE_COMMUNICATION];
    const prof_ranges *comp = &trace->roles[trace->roles[PROF_ROLE_KERNEL].n ? PROF_ROLE_KERNEL : PROF_ROLE_CPU];
    prof_ranges both = {NULL, 0, 0};
    if (qn_prof_ranges_meet(&trace->arena, comp, comm, &both) != QN_OK) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < trace->steps.n; i++) {
        prof_step *step = &trace->steps.at[i];
        step->overlap = qn_prof_ranges_sum_in(step->start, step->end, &both);
        step->computation = qn_prof_ranges_sum_in(step->start, step->end, comp);
        step->communication = qn_prof_ranges_sum_in(step->start, step->end, comm);
        step->other = prof_sub(prof_sub(prof_add(step->total, step->overlap), step->computation), step->communication);
    }
    QN_VEC_FREE(&trace->arena, &both);
    return QN_OK;
}

qn_status qn_prof_split(prof_trace *trace, qn_error *error) {
    prof_ranges steps = {NULL, 0, 0}, cost[PROF_ROLES];
    memset(cost, 0, sizeof cost);
    qn_status status = bound_work(trace, error);
    for (size_t i = 0; i < trace->steps.n && status == QN_OK; i++) {
        if (qn_prof_range_push(&trace->arena, &steps, trace->steps.at[i].start, trace->steps.at[i].end) != QN_OK) {
            return QN_NO_MEMORY;
        }
    }
    status = status == QN_OK ? split_roles(trace, &steps, cost) : status;
    if (status != QN_OK) {
        return status;
    }
    cost_of_steps(trace, cost);
    for (int role = 0; role < PROF_ROLES; role++) {
        QN_VEC_FREE(&trace->arena, &cost[role]);
    }
    QN_VEC_FREE(&trace->arena, &steps);
    if (trace->average_total == 0 && (trace->options.flags & QN_PROFILE_STRICT)) {
        return qn_error_set(error, QN_FORMAT, "the steps have no length, which the reference divides by");
    }
    return compare_communication(trace);
}
