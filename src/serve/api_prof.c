/* Traces get plain numbers, so that the page needs no names in its requests and attributes. */
#include "serve/api_prof.h"

#include <string.h>

#include "prof/prof_json.h"

#ifdef QUERN_HAS_PAGE
extern const unsigned char qn_page_html[]; /* generated from web/ by its build.mjs */
extern const size_t qn_page_html_length, qn_page_html_data_at;

const char *qn_page_asset(size_t *length, size_t *data_at) {
    *length = qn_page_html_length;
    *data_at = qn_page_html_data_at;
    return (const char *)qn_page_html;
}
#define QUERN_PAGE_WHY "" /* nobody asks */
#else
#ifndef QUERN_PAGE_WHY
#define QUERN_PAGE_WHY "it was left out"
#endif
const char *qn_page_asset(size_t *length, size_t *data_at) {
    *length = *data_at = 0;
    return NULL;
}
#endif

qn_status qn_page_source(qn_profile *profile, const qn_page_options *options, page_source *source, qn_error *error) {
    size_t length, data_at;
    if (!profile) {
        return qn_error_set(error, QN_ARGUMENT, "the page needs a profile");
    }
    if (options && options->size < sizeof *options) {
        return qn_error_set(error, QN_ARGUMENT, "the page options say they have %u bytes", options->size);
    }
    if (!qn_page_asset(&length, &data_at)) {
        return qn_error_set(error, QN_UNSUPPORTED,
                            "this quern was built without its page: " QUERN_PAGE_WHY "; quern profile VIEW works without");
    }
    source->profile = profile;
    source->against = options ? options->against : NULL;
    source->title = options && options->title ? options->title : "profile";
    return QN_OK;
}

static int find(qn_profile *profile, int *id, page_trace *trace) {
    for (int run = 0; qn_profile_run_name(profile, run); run++) {
        for (int worker = 0; qn_profile_worker_name(profile, run, worker); worker++) {
            for (int span = 0; qn_profile_span_name(profile, run, worker, span); span++) {
                if ((*id)-- == 0) {
                    trace->profile = profile;
                    trace->run = run;
                    trace->worker = worker;
                    trace->span = span;
                    return 1;
                }
            }
        }
    }
    return 0;
}

int qn_page_trace(const page_source *source, int id, page_trace *trace) {
    trace->is_against = 0;
    if (id < 0) {
        return 0;
    }
    if (find(source->profile, &id, trace)) {
        return 1;
    }
    trace->is_against = 1;
    return source->against && find(source->against, &id, trace);
}

qn_status qn_page_index(const page_source *source, qn_profile_write_fn write, void *user) {
    prof_json json;
    page_trace trace;
    qn_prof_json_init(&json, write, user);
    qn_prof_json_object(&json);
    qn_prof_json_key(&json, "title");
    qn_prof_json_text(&json, source->title);
    qn_prof_json_key(&json, "version");
    qn_prof_json_text(&json, qn_version());
    qn_prof_json_key(&json, "traces");
    qn_prof_json_array(&json);
    for (int id = 0; qn_page_trace(source, id, &trace); id++) {
        qn_prof_json_object(&json);
        qn_prof_json_key(&json, "id");
        qn_prof_json_int(&json, id);
        qn_prof_json_key(&json, "run");
        qn_prof_json_text(&json, qn_profile_run_name(trace.profile, trace.run));
        qn_prof_json_key(&json, "worker");
        qn_prof_json_text(&json, qn_profile_worker_name(trace.profile, trace.run, trace.worker));
        qn_prof_json_key(&json, "span");
        qn_prof_json_text(&json, qn_profile_span_name(trace.profile, trace.run, trace.worker, trace.span));
        if (trace.is_against) {
            qn_prof_json_key(&json, "against");
            qn_prof_json_bool(&json, 1);
        }
        qn_prof_json_object_end(&json);
    }
    qn_prof_json_array_end(&json);
    qn_prof_json_object_end(&json);
    return qn_prof_json_finish(&json);
}

static qn_status write_info(const page_trace *trace, qn_profile_write_fn write, void *user, qn_error *error) {
    static const char *const DIALECTS[] = {"auto", "upstream", "mlu_a", "mlu_b"};
    qn_profile_info info;
    prof_json json;
    memset(&info, 0, sizeof info);
    info.size = (uint32_t)sizeof info;
    qn_status status = qn_profile_load(trace->profile, trace->run, trace->worker, trace->span, error);
    status = status == QN_OK ? qn_profile_trace_info(trace->profile, trace->run, trace->worker, trace->span, &info) : status;
    if (status != QN_OK) {
        return status;
    }
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {{"text_bytes", info.text_bytes},         {"events_seen", info.events_seen},
                  {"events_kept", info.events_kept},       {"events_broken", info.events_broken},
                  {"nodes_dropped", info.nodes_dropped},   {"orphan_kernels", info.orphan_kernels},
                  {"events_unknown", info.events_unknown}, {"events_backward", info.events_backward}};
    qn_prof_json_init(&json, write, user);
    qn_prof_json_object(&json);
    qn_prof_json_key(&json, "dialect");
    qn_prof_json_text(&json, (unsigned)info.dialect < 4 ? DIALECTS[info.dialect] : "unknown");
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        qn_prof_json_key(&json, counts[i].name);
        qn_prof_json_int(&json, (int64_t)counts[i].value);
    }
    qn_prof_json_object_end(&json);
    return qn_prof_json_finish(&json);
}

qn_status qn_page_view(const page_source *source, const page_query *query, qn_profile_write_fn write, void *user,
                       qn_error *error) {
    page_trace trace, other;
    qn_profile_request request = qn_profile_request_default();
    if (!qn_page_trace(source, query->trace, &trace)) {
        return qn_error_set(error, QN_ARGUMENT, "there is no trace %d", query->trace);
    }
    if (strcmp(query->view, "info") == 0) {
        return write_info(&trace, write, user, error);
    }
    request.run = qn_profile_run_name(trace.profile, trace.run);
    request.worker = qn_profile_worker_name(trace.profile, trace.run, trace.worker);
    request.span = qn_profile_span_name(trace.profile, trace.run, trace.worker, trace.span);
    request.path = query->path;
    request.start_ts = query->start_ts;
    request.end_ts = query->end_ts;
    if (strcmp(query->view, "diff") == 0) {
        if (!qn_page_trace(source, query->other, &other)) {
            return qn_error_set(error, QN_ARGUMENT, "there is no trace %d to compare with", query->other);
        }
        request.against = other.profile;
        request.against_run = qn_profile_run_name(other.profile, other.run);
        request.against_worker = qn_profile_worker_name(other.profile, other.run, other.worker);
        request.against_span = qn_profile_span_name(other.profile, other.run, other.worker, other.span);
    }
    return qn_profile_view(trace.profile, query->view, &request, write, user, error);
}
