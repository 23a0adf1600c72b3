/* Everything after reading, in the order of section 0. */
#include "prof/analyse.h"

#include <string.h>

#include "base/cancel.h"
#include "prof/prof_passes.h"
#include "prof/prof_text.h"
#include "prof/trace_read.h"

static qn_status finish_trees(prof_trace *trace) {
    prof_ids order = {NULL, 0, 0};
    if (!QN_VEC_ROOM(&trace->arena, &order, trace->nodes.n)) {
        return QN_NO_MEMORY;
    }
    for (size_t i = 0; i < trace->trees.n; i++) {
        if (qn_prof_postorder(trace, trace->trees.at[i].root, &order) != QN_OK) {
            return QN_NO_MEMORY;
        }
    }
    for (size_t i = 0; i < order.n; i++) {
        const prof_node *node = &trace->nodes.at[order.at[i]];
        trace->nodes.at[order.at[i]].in_tree = 1;
        for (uint32_t kid = 0; kid < node->kid_count; kid++) {
            trace->nodes.at[trace->kids.at[node->kid_begin + kid]].parent = order.at[i];
        }
    }
    trace->postorder.at = order.at;
    trace->postorder.n = order.n;
    trace->postorder.cap = order.cap;
    return QN_OK;
}

static qn_status build_trees(prof_trace *trace, qn_error *error) {
    qn_arena *arena = &trace->arena;
    prof_build *build = qn_arena_alloc(arena, 1, sizeof *build);
    /* Slices are taken of these three even when they hold nothing, so none of them may be NULL. */
    if (!build || !QN_VEC_ROOM(arena, &trace->kids, 1) || !QN_VEC_ROOM(arena, &trace->node_rts, 1) ||
        !QN_VEC_ROOM(arena, &trace->rt_devs, 1)) {
        return QN_NO_MEMORY;
    }
    build->trace = trace;
    build->error = error;
    build->strict = (trace->options.flags & QN_PROFILE_STRICT) != 0;
    qn_status status = qn_prof_nodes(build);
    status = status == QN_OK ? qn_prof_owners(build) : status;
    status = status == QN_OK ? qn_prof_trees(build) : status;
    status = status == QN_OK ? qn_prof_durations(build) : status;
    status = status == QN_OK ? qn_prof_backward(build) : status;
    QN_VEC_FREE(arena, &build->threads.list);
    QN_VEC_FREE(arena, &build->threads.nodes);
    QN_VEC_FREE(arena, &build->pl_threads.list);
    QN_VEC_FREE(arena, &build->pl_threads.nodes);
    QN_VEC_FREE(arena, &build->zeros);
    QN_VEC_FREE(arena, &build->orphans);
    return status == QN_OK ? finish_trees(trace) : status;
}

/* Asked between passes, each of which is short against the reading. */
static qn_status check_cancel(const prof_trace *trace, qn_error *error) {
    int stop = qn_cancel_wanted(trace->options.cancel);
    return stop ? qn_error_set(error, QN_CANCELLED, "%s: the analysis was stopped", trace->path) : QN_OK;
}

qn_status qn_prof_analyse(prof_trace *trace, qn_error *error) {
    qn_status status = check_cancel(trace, error);
    status = status == QN_OK ? qn_prof_classify(trace, error) : status;
    if (status == QN_OK && (trace->options.flags & QN_PROFILE_OWNER_ENCLOSING)) {
        status = qn_prof_owner_repair(trace, error);
    }
    status = status == QN_OK ? check_cancel(trace, error) : status;
    status = status == QN_OK ? build_trees(trace, error) : status;
    status = status == QN_OK ? check_cancel(trace, error) : status;
    status = status == QN_OK ? qn_prof_steps(trace, error) : status;
    status = status == QN_OK ? qn_prof_split(trace, error) : status;
    status = status == QN_OK ? qn_prof_devices(trace, error) : status;
    status = status == QN_OK ? qn_prof_op_groups(trace) : status;
    status = status == QN_OK ? qn_prof_kernel_groups(trace) : status;
    status = status == QN_OK ? qn_prof_memory(trace) : status;
    return status == QN_OK ? qn_prof_modules(trace, error) : status;
}

qn_status qn_prof_trace_load(const char *path, const qn_profile_options *options, prof_trace *trace, qn_error *error) {
    memset(trace, 0, sizeof *trace);
    uint64_t limit = options->max_memory;
    qn_arena_init(&trace->arena, limit < SIZE_MAX ? (size_t)limit : SIZE_MAX);
    trace->options = *options;
    trace->path = path;
    qn_error local;
    error = error ? error : &local;
    error->status = QN_OK;
    error->text[0] = 0;
    qn_status status = qn_prof_text_init(&trace->text, &trace->arena);
    status = status == QN_OK ? qn_prof_trace_read(trace, error) : status;
    if (status == QN_OK) {
        status = qn_prof_analyse(trace, error);
        if (status == QN_FORMAT) {
            qn_error_wrap(error, "%s", path);
        }
    }
    if (status == QN_NO_MEMORY) {
        qn_error_set(error, status, "%s: the analysis needs more than the %llu bytes of memory allowed", path,
                     (unsigned long long)limit);
    }
    if (status != QN_OK) {
        qn_prof_trace_free(trace);
    }
    return status;
}

void qn_prof_trace_free(prof_trace *trace) {
    qn_arena_destroy(&trace->arena);
    memset(trace, 0, sizeof *trace);
}
