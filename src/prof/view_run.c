/* Lists about a run: which views it has, and which workers have each (section 19, end). */
#include "prof/view_util.h"

enum { OVERVIEW, OPERATOR, KERNEL, TRACE, DISTRIBUTED, MEMORY, MODULE, LIGHTNING, LISTED_VIEWS };

static const char *const titles[LISTED_VIEWS] = {"Overview",    "Operator", "Kernel", "Trace",
                                                 "Distributed", "Memory",   "Module", "Lightning"};

static unsigned views_of(const prof_trace *trace) {
    unsigned views = 1u << OVERVIEW | 1u << OPERATOR | 1u << TRACE;
    views |= trace->has_kernel ? 1u << KERNEL : 0;
    views |= trace->mems.n ? 1u << MEMORY : 0;
    views |= trace->has_modules ? 1u << (trace->lightning ? LIGHTNING : MODULE) : 0;
    return views;
}

static unsigned views_of_worker(const prof_run_worker *worker) {
    unsigned views = 0;
    for (size_t i = 0; i < worker->n_traces; i++) {
        views |= views_of(worker->traces[i]);
    }
    return views;
}

static unsigned views_of_run(const prof_view_context *context) {
    unsigned views = context->run_has_distributed ? 1u << DISTRIBUTED : 0;
    for (size_t i = 0; i < context->n_workers; i++) {
        views |= views_of_worker(&context->workers[i]);
    }
    return views;
}

qn_status qn_prof_view_views(const prof_view_context *context, prof_json *json, qn_error *error) {
    (void)error;
    unsigned views = views_of_run(context);
    qn_prof_json_array(json);
    for (unsigned v = 0; v < LISTED_VIEWS; v++) {
        if (views >> v & 1) {
            qn_prof_json_text(json, titles[v]);
        }
    }
    qn_prof_json_array_end(json);
    return QN_OK;
}

qn_status qn_prof_view_workers(const prof_view_context *context, prof_json *json, qn_error *error) {
    (void)error;
    unsigned views = views_of_run(context);
    qn_prof_json_object(json);
    for (unsigned v = 0; v < LISTED_VIEWS; v++) {
        if (!(views >> v & 1)) {
            continue;
        }
        qn_prof_json_key(json, titles[v]);
        qn_prof_json_array(json);
        if (v == DISTRIBUTED) {
            qn_prof_json_text(json, "All");
        }
        for (size_t i = 0; i < context->n_workers && v != DISTRIBUTED; i++) {
            if (views_of_worker(&context->workers[i]) >> v & 1) {
                qn_prof_json_text(json, context->workers[i].name);
            }
        }
        qn_prof_json_array_end(json);
    }
    qn_prof_json_object_end(json);
    return QN_OK;
}
